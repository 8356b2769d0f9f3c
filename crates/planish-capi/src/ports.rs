//! Inputs and outputs as C sees them: numbered, inputs first.

use std::ffi::{CString, c_char};

use planish::graph::Graph;
use planish::{DType, Error, ErrorKind, PortInfo, ValueType};

use crate::given::{Crossing, c_text};

/// Element types, with the numbers that ONNX gives them. Those below a byte are packed, the first element in the low bits.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanishType {
    /// Not a tensor: a sequence, or an optional value.
    None = 0,
    Float32 = 1,
    Uint8 = 2,
    Int8 = 3,
    Uint16 = 4,
    Int16 = 5,
    Int32 = 6,
    Int64 = 7,
    Bool = 9,
    Float16 = 10,
    Float64 = 11,
    Uint32 = 12,
    Uint64 = 13,
    Bfloat16 = 16,
    Float8e4m3fn = 17,
    Float8e4m3fnuz = 18,
    Float8e5m2 = 19,
    Float8e5m2fnuz = 20,
    Uint4 = 21,
    Int4 = 22,
    Float4e2m1 = 23,
    Float8e8m0 = 24,
    Uint2 = 25,
    Int2 = 26,
}

impl From<DType> for PlanishType {
    fn from(dtype: DType) -> PlanishType {
        match dtype {
            DType::F64 => PlanishType::Float64,
            DType::F32 => PlanishType::Float32,
            DType::F16 => PlanishType::Float16,
            DType::BF16 => PlanishType::Bfloat16,
            DType::I8 => PlanishType::Int8,
            DType::I16 => PlanishType::Int16,
            DType::I32 => PlanishType::Int32,
            DType::I64 => PlanishType::Int64,
            DType::U8 => PlanishType::Uint8,
            DType::U16 => PlanishType::Uint16,
            DType::U32 => PlanishType::Uint32,
            DType::U64 => PlanishType::Uint64,
            DType::Bool => PlanishType::Bool,
            DType::F8E4M3FN => PlanishType::Float8e4m3fn,
            DType::F8E4M3FNUZ => PlanishType::Float8e4m3fnuz,
            DType::F8E5M2 => PlanishType::Float8e5m2,
            DType::F8E5M2FNUZ => PlanishType::Float8e5m2fnuz,
            DType::F8E8M0 => PlanishType::Float8e8m0,
            DType::F4E2M1 => PlanishType::Float4e2m1,
            DType::I4 => PlanishType::Int4,
            DType::U4 => PlanishType::Uint4,
            DType::I2 => PlanishType::Int2,
            DType::U2 => PlanishType::Uint2,
        }
    }
}

/// An input or an output. Set `size` to `sizeof(PlanishTensorInfo)`; the library fills in the rest. Pointers are valid as
/// long as the model or the engine that was asked, or any context of it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlanishTensorInfo {
    /// Of this structure.
    pub size: usize,
    /// As the model calls it.
    pub name: *const c_char,
    /// Its sizes in words, `batch,3,224,224` say; `?` where only a run can tell.
    pub shape: *const c_char,
    /// Its sizes, `rank` of them, -1 where they are open.
    pub dims: *const i64,
    /// How many sizes there are; -1 where that is open, too.
    pub rank: i32,
    pub element_type: PlanishType,
    /// Bits of one element.
    pub element_bits: u32,
    /// 1 for an input, 0 for an output.
    pub is_input: i32,
}

// SAFETY: its size first; it is only given out.
unsafe impl Crossing for PlanishTensorInfo {
    const NAME: &'static str = "PlanishTensorInfo";
    const FIRST_SIZE: usize = size_of::<PlanishTensorInfo>();
}

/// An input or an output.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) dtype: Option<DType>,
    pub(crate) is_input: bool,
    c_name: CString,
    shape: CString,
    pub(crate) dims: Option<Vec<i64>>,
}

impl Port {
    fn new(name: &str, ty: &ValueType, is_input: bool) -> Port {
        let tensor = ty.as_tensor();
        let shape = tensor.and_then(|tensor| tensor.shape.as_ref());
        let dims = shape.map(|shape| shape.iter().map(|dim| dim.as_const().unwrap_or(-1)).collect());
        let words = shape.map_or_else(
            || "?".to_string(),
            |shape| shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        );
        Port {
            name: name.to_string(),
            dtype: tensor.map(|tensor| tensor.dtype),
            is_input,
            c_name: c_text(name),
            shape: c_text(&words),
            dims,
        }
    }

    /// For messages: input or output, and its name.
    pub(crate) fn what(&self) -> String {
        format!("{} `{}`", if self.is_input { "input" } else { "output" }, self.name)
    }

    fn info(&self) -> PlanishTensorInfo {
        let dims = self.dims.as_deref().unwrap_or_default();
        PlanishTensorInfo {
            size: size_of::<PlanishTensorInfo>(),
            name: self.c_name.as_ptr(),
            shape: self.shape.as_ptr(),
            dims: dims.as_ptr(),
            rank: self.dims.as_ref().map_or(-1, |dims| dims.len() as i32),
            element_type: self.dtype.map_or(PlanishType::None, PlanishType::from),
            element_bits: self.dtype.map_or(0, |dtype| dtype.bits() as u32),
            is_input: i32::from(self.is_input),
        }
    }
}

/// The inputs and outputs of a model or an engine.
#[derive(Debug)]
pub(crate) struct Ports {
    /// Inputs first.
    pub(crate) all: Vec<Port>,
    pub(crate) n_inputs: usize,
}

impl Ports {
    pub(crate) fn of_graph(graph: &Graph) -> Ports {
        let port = |is_input: bool| {
            move |&id: &planish::graph::ValueId| {
                let value = graph.value(id);
                Port::new(&value.name, &value.ty, is_input)
            }
        };
        let inputs: Vec<Port> = graph.inputs().iter().map(port(true)).collect();
        Ports::new(inputs, graph.outputs().iter().map(port(false)))
    }

    pub(crate) fn of_engine(inputs: &[PortInfo], outputs: &[PortInfo]) -> Ports {
        let port = |is_input: bool| move |port: &PortInfo| Port::new(&port.name, &port.ty, is_input);
        Ports::new(inputs.iter().map(port(true)).collect(), outputs.iter().map(port(false)))
    }

    fn new(inputs: Vec<Port>, outputs: impl Iterator<Item = Port>) -> Ports {
        let n_inputs = inputs.len();
        let mut all = inputs;
        all.extend(outputs);
        Ports { all, n_inputs }
    }

    pub(crate) fn inputs(&self) -> &[Port] {
        &self.all[..self.n_inputs]
    }

    /// The number of an input or, if there is none of this name, of an output.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|port| port.name == name)
    }

    /// The same, or an error that lists what there is.
    pub(crate) fn named(&self, name: &str) -> Result<usize, Error> {
        self.find(name).ok_or_else(|| {
            let names: Vec<String> = self.all.iter().map(|port| format!("`{}`", port.name)).collect();
            let message = format!("there is no input or output `{name}`; there are {}", names.join(", "));
            Error::new(ErrorKind::WrongInputs, message)
        })
    }

    /// The input or output of this number.
    pub(crate) fn at(&self, index: usize) -> Result<&Port, Error> {
        self.all.get(index).ok_or_else(|| {
            let n = self.all.len();
            let message = format!("there is no input or output {index}; there are {n}, counted from 0");
            Error::new(ErrorKind::WrongInputs, message)
        })
    }

    /// Tells C of an input or output.
    ///
    /// # Safety
    /// As for [`crate::given::write`].
    pub(crate) unsafe fn tell(&self, index: usize, info: *mut PlanishTensorInfo) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { crate::given::write(info, &self.at(index)?.info()) }
    }
}
