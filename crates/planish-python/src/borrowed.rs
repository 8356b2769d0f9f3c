//! `Borrowed`: a tensor of the caller's for the time of one call, without a copy where that can be.

use planish::{Bytes, DType, ErrorKind, HostBuffer, Tensor, View};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::element_type;
use crate::errors::{OrRaise, wrong};
use crate::protocols::{
    ArrayInterface, DL_CPU, DL_CUDA, DL_CUDA_HOST, DLTENSOR, DlManagedTensor, NOT_SWAPPED, pointer_in,
};

/// A tensor that Python lent us, as the runtime reads it.
pub(crate) struct Borrowed<'py> {
    dtype: DType,
    dims: Vec<usize>,
    data: Data,
    /// Whose outputs are made alike.
    pub(crate) framework: Framework,
    /// What owns the memory, or keeps it where it is.
    _owner: Bound<'py, PyAny>,
}

enum Data {
    /// So many bytes at this address, which the owner keeps.
    Lent(*const u8, usize),
    Copied(HostBuffer),
}

/// Whose arrays the caller works with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Framework {
    #[default]
    Numpy,
    Torch,
    Jax,
}

/// A tensor as a protocol describes it.
pub(crate) struct Described {
    pub(crate) dtype: DType,
    pub(crate) dims: Vec<usize>,
    /// In bytes.
    pub(crate) strides: Vec<isize>,
    pub(crate) data: *const u8,
}

impl<'py> Borrowed<'py> {
    /// The tensor that is given for an input of this name and type.
    pub(crate) fn of(
        given: &Bound<'py, PyAny>,
        name: &str,
        wanted: Option<DType>,
    ) -> PyResult<Borrowed<'py>> {
        let py = given.py();
        if let Some(capsule) = given.getattr_opt(intern!(py, "__array_struct__"))? {
            let described = by_interface(given, name, &capsule, wanted)?;
            return Borrowed::new(described, Framework::Numpy, given.clone(), name);
        }
        if given.hasattr(intern!(py, "__dlpack__"))? {
            check_device(given, name)?;
            let capsule = given.call_method0(intern!(py, "__dlpack__")).map_err(|error| {
                let message = format!("input `{name}` cannot be lent through DLPack: {}", error.value(py));
                wrong(py, ErrorKind::WrongType, message)
            })?;
            let described = by_dlpack(&capsule, name)?;
            let framework = framework(given)?;
            // The capsule owns the tensor, and the memory with it, until it is dropped.
            return Borrowed::new(described, framework, capsule, name);
        }
        let is_text = given.is_instance_of::<PyString>() || given.is_none();
        let made = match is_text {
            true => Err(wrong(py, ErrorKind::WrongType, String::new())),
            false => numpy_of(given, wanted),
        };
        let made = made.map_err(|_| {
            let is = given.get_type().name().map_or_else(|_| "object".to_string(), |name| name.to_string());
            let message = format!(
                "input `{name}` is a {is}, which is no array; give a numpy array, or anything with DLPack"
            );
            wrong(py, ErrorKind::WrongType, message)
        })?;
        let capsule = made.getattr(intern!(py, "__array_struct__"))?;
        let described = by_interface(&made, name, &capsule, wanted)?;
        Borrowed::new(described, Framework::Numpy, made, name)
    }

    fn new(
        described: Described,
        framework: Framework,
        owner: Bound<'py, PyAny>,
        name: &str,
    ) -> PyResult<Borrowed<'py>> {
        let py = owner.py();
        let item = element_type::item_bytes(described.dtype);
        let n_bytes = described.dims.iter().try_fold(item, |bytes, &dim| bytes.checked_mul(dim));
        let Some(n_bytes) = n_bytes else {
            return Err(wrong(
                py,
                ErrorKind::WrongShape,
                format!("input `{name}` has more bytes than any memory"),
            ));
        };
        let is_plain = is_plain(&described.dims, &described.strides, item);
        let data = match is_plain && !described.dtype.is_sub_byte() {
            true => Data::Lent(described.data, n_bytes),
            false => {
                // SAFETY: the protocol that described the tensor vouches for its elements while the owner lives.
                let bytes = unsafe { gathered(&described, item, n_bytes) };
                let mut copy = HostBuffer::zeros(described.dtype, &described.dims).or_raise(py)?;
                pack(described.dtype, &bytes, copy.bytes_mut());
                Data::Copied(copy)
            }
        };
        Ok(Borrowed { dtype: described.dtype, dims: described.dims, data, framework, _owner: owner })
    }

    pub(crate) fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Whether its elements are, or are going to be, copied before a kernel reads them.
    pub(crate) fn is_copied(&self) -> bool {
        match &self.data {
            // Where the runtime takes memory as it is.
            Data::Lent(start, n_bytes) => *n_bytes > 0 && !start.addr().is_multiple_of(size_of::<u64>()),
            Data::Copied(_) => true,
        }
    }

    fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::Lent(_, 0) => &[],
            // SAFETY: the owner keeps this many bytes there while `self` lives. Another thread of Python's may write to
            // them meanwhile, as with every library that computes on arrays without holding the interpreter's lock: then
            // the results are of the old elements and the new, and no address is ever made of them.
            Data::Lent(start, n_bytes) => unsafe { std::slice::from_raw_parts(*start, *n_bytes) },
            Data::Copied(copy) => copy.bytes(),
        }
    }

    /// As a run reads it.
    pub(crate) fn view(&self, py: Python<'_>) -> PyResult<View<'_>> {
        View::from_bytes(self.dtype, &self.dims, self.bytes()).or_raise(py)
    }

    /// A copy that owns its memory.
    pub(crate) fn to_tensor(&self, py: Python<'_>) -> PyResult<Tensor> {
        let tensor = Tensor::from_bytes(self.dtype, &self.dims, Bytes::aligned(self.bytes()));
        tensor.map_err(planish::Error::from).or_raise(py)
    }
}

/// An array of numpy's own, made of numbers and lists of them, of the type that the model takes.
fn numpy_of<'py>(given: &Bound<'py, PyAny>, wanted: Option<DType>) -> PyResult<Bound<'py, PyAny>> {
    let py = given.py();
    let numpy = py.import(intern!(py, "numpy"))?;
    // What says of itself that it is an array has a type already.
    let has_type = given.hasattr(intern!(py, "__array__"))?;
    match wanted.filter(|&dtype| !has_type && element_type::is_numpys(dtype)) {
        Some(dtype) => numpy.call_method1(intern!(py, "asarray"), (given, element_type::name(dtype))),
        None => numpy.call_method1(intern!(py, "asarray"), (given,)),
    }
}

fn by_interface(
    array: &Bound<'_, PyAny>,
    name: &str,
    capsule: &Bound<'_, PyAny>,
    wanted: Option<DType>,
) -> PyResult<Described> {
    let py = array.py();
    let interface = pointer_in::<ArrayInterface>(capsule, None)?;
    // SAFETY: numpy's protocol has this structure there while the capsule lives.
    let interface = unsafe { &*interface };
    let rank = usize::try_from(interface.rank).unwrap_or(0);
    if interface.two != 2 {
        return Err(wrong(py, ErrorKind::WrongType, format!("input `{name}` has a broken __array_struct__")));
    }
    let item = usize::try_from(interface.item_bytes).unwrap_or(0);
    let dtype = match element_type::of_kind(interface.kind as u8, item) {
        Some(dtype) => Some(dtype),
        None => {
            let called: String =
                array.getattr(intern!(py, "dtype"))?.getattr(intern!(py, "name"))?.extract()?;
            // Files of numpy keep types of `ml_dtypes` as raw bytes: the model says what they are.
            let raw = || wanted.filter(|&dtype| element_type::is_raw(dtype, interface.kind as u8, item));
            element_type::named(&called).or_else(raw)
        }
    };
    let Some(dtype) = dtype else {
        let is = array.getattr(intern!(py, "dtype"))?;
        return Err(wrong(
            py,
            ErrorKind::WrongType,
            format!("input `{name}` is of {is}, which no model takes"),
        ));
    };
    if interface.flags & NOT_SWAPPED == 0 && item > 1 {
        let message = format!(
            "input `{name}` has the other byte order; give it with `.astype('{}')`",
            element_type::name(dtype)
        );
        return Err(wrong(py, ErrorKind::WrongType, message));
    }
    let (dims, strides) = match rank {
        0 => (Vec::new(), Vec::new()),
        _ => {
            // SAFETY: the structure has as many sizes and strides as dimensions.
            let (dims, strides) = unsafe {
                (
                    std::slice::from_raw_parts(interface.dims, rank),
                    std::slice::from_raw_parts(interface.strides, rank),
                )
            };
            (dims.iter().map(|&dim| dim.max(0) as usize).collect(), strides.to_vec())
        }
    };
    Ok(Described { dtype, dims, strides, data: interface.data.cast_const().cast() })
}

/// Refuses what is not in memory that the host reads.
fn check_device(given: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
    let py = given.py();
    let (kind, index): (i32, i32) = given.call_method0(intern!(py, "__dlpack_device__"))?.extract()?;
    let place = match kind {
        DL_CPU | DL_CUDA_HOST => return Ok(()),
        DL_CUDA => format!("in the memory of GPU {index}"),
        _ => format!("on a device of DLPack's kind {kind}"),
    };
    let message =
        format!("input `{name}` is {place}, the engine reads host memory; give it on the CPU (x.cpu())");
    Err(wrong(py, ErrorKind::WrongInputs, message))
}

pub(crate) fn by_dlpack(capsule: &Bound<'_, PyAny>, name: &str) -> PyResult<Described> {
    let managed = pointer_in::<DlManagedTensor>(capsule, Some(DLTENSOR))?;
    // SAFETY: a capsule of this name has this structure there while it lives and nobody takes it, which only we could.
    let tensor = unsafe { &(*managed).tensor };
    let (code, bits, lanes) = (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes);
    let dtype = element_type::of_dlpack(code, bits).filter(|_| lanes == 1);
    // Below a byte DLPack packs, and arrays of numpy do not: nobody has sent one yet.
    let Some(dtype) = dtype.filter(|dtype| !dtype.is_sub_byte()) else {
        let message = format!(
            "input `{name}` has elements of DLPack's type {code} with {bits} bits, which no model takes"
        );
        return Err(wrong(capsule.py(), ErrorKind::WrongType, message));
    };
    let item = element_type::item_bytes(dtype);
    let rank = usize::try_from(tensor.rank).unwrap_or(0);
    let list = |start: *const i64| match rank {
        0 => &[][..],
        // SAFETY: the tensor has as many sizes, and strides where it has any, as dimensions.
        _ => unsafe { std::slice::from_raw_parts(start, rank) },
    };
    let dims: Vec<usize> = list(tensor.dims).iter().map(|&dim| dim.max(0) as usize).collect();
    let strides = match tensor.strides.is_null() {
        true => plain_strides(&dims, item),
        false => {
            list(tensor.strides).iter().map(|&stride| (stride as isize).wrapping_mul(item as isize)).collect()
        }
    };
    let data = tensor.data.cast_const().cast::<u8>().wrapping_add(tensor.byte_offset as usize);
    Ok(Described { dtype, dims, strides, data })
}

/// Whose tensor it is, by the package that its type comes from.
fn framework(given: &Bound<'_, PyAny>) -> PyResult<Framework> {
    let module = given.get_type().module()?;
    let module = module.to_string();
    Ok(match module.split('.').next() {
        Some("torch") => Framework::Torch,
        Some("jax" | "jaxlib") => Framework::Jax,
        _ => Framework::Numpy,
    })
}

pub(crate) fn plain_strides(dims: &[usize], item: usize) -> Vec<isize> {
    let mut strides = vec![0; dims.len()];
    let mut next = item as isize;
    for (stride, &dim) in strides.iter_mut().zip(dims).rev() {
        *stride = next;
        next = next.wrapping_mul(dim as isize);
    }
    strides
}

/// Whether the elements follow each other without gaps, the last dimension first.
pub(crate) fn is_plain(dims: &[usize], strides: &[isize], item: usize) -> bool {
    let mut next = item as isize;
    let follows = |(&dim, &stride): (&usize, &isize)| {
        let expected = next;
        next = next.wrapping_mul(dim as isize);
        dim == 1 || stride == expected
    };
    dims.contains(&0) || dims.iter().zip(strides).rev().all(follows)
}

/// The elements, one after another.
///
/// # Safety
/// An element must lie wherever the sizes and strides say.
unsafe fn gathered(from: &Described, item: usize, n_bytes: usize) -> Vec<u8> {
    // SAFETY: the caller's promise is passed on.
    unsafe {
        match item {
            1 => gathered_by::<1>(from, n_bytes),
            2 => gathered_by::<2>(from, n_bytes),
            4 => gathered_by::<4>(from, n_bytes),
            _ => gathered_by::<8>(from, n_bytes),
        }
    }
}

/// The same, with the size of an element known to the compiler.
///
/// # Safety
/// As for [`gathered`].
unsafe fn gathered_by<const ITEM: usize>(from: &Described, n_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(n_bytes);
    if from.dims.contains(&0) {
        return bytes;
    }
    let rank = from.dims.len();
    let (inner, stride) = if rank == 0 { (1, 0) } else { (from.dims[rank - 1], from.strides[rank - 1]) };
    let outer = rank.saturating_sub(1);
    let (mut at, mut row) = (vec![0usize; outer], 0isize);
    loop {
        for idx in 0..inner as isize {
            // SAFETY: every index is below its size, so an element lies there, at any alignment.
            let element = unsafe { from.data.offset(row + idx * stride).cast::<[u8; ITEM]>().read() };
            bytes.extend_from_slice(&element);
        }
        let Some(axis) = (0..outer).rev().find(|&axis| at[axis] + 1 < from.dims[axis]) else { return bytes };
        for (idx, stride) in at[axis + 1..].iter_mut().zip(&from.strides[axis + 1..]) {
            row -= stride * std::mem::take(idx) as isize;
        }
        at[axis] += 1;
        row += from.strides[axis];
    }
}

/// Elements of numpy, one a byte or more, as Planish keeps them: those below a byte share it, the first in the low bits.
fn pack(dtype: DType, from: &[u8], to: &mut [u8]) {
    if !dtype.is_sub_byte() {
        to.copy_from_slice(from);
        return;
    }
    let (bits, per_byte) = (dtype.bits(), 8 / dtype.bits());
    for (packed, elements) in to.iter_mut().zip(from.chunks(per_byte)) {
        let mask = (1u8 << bits) - 1;
        *packed = elements.iter().rev().fold(0, |byte, element| byte << bits | element & mask);
    }
}

/// The other way: one element a byte, with the sign spread over it.
pub(crate) fn unpacked(dtype: DType, packed: &[u8], n: usize) -> Vec<u8> {
    let (bits, per_byte) = (dtype.bits(), 8 / dtype.bits());
    let element = |idx: usize| {
        let up = packed[idx / per_byte] << (8 - bits - bits * (idx % per_byte));
        if dtype.is_signed_int() { (up as i8 >> (8 - bits)) as u8 } else { up >> (8 - bits) }
    };
    (0..n).map(element).collect()
}
