//! A problem: a region at one set of sizes, with the number types to compute in.

use planish_tensor::DType;

use crate::{Operand, Region};

/// The number types of a computation. Storage types stand in the operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Numeric {
    /// What products are taken in.
    pub element: DType,
    /// What sums are kept in.
    pub accumulator: DType,
    /// What quantization scales are applied in.
    pub scale: DType,
}

impl Numeric {
    /// Everything in f32.
    pub const F32: Numeric = Numeric { element: DType::F32, accumulator: DType::F32, scale: DType::F32 };
}

/// What is to be computed: a region over operands of known sizes.
#[derive(Clone, PartialEq, Debug)]
pub struct Problem {
    pub region: Region,
    pub inputs: Vec<Operand>,
    pub outputs: Vec<Operand>,
    pub numeric: Numeric,
    /// The most threads that will run it; results never depend on it, scratch and prices do.
    pub threads: usize,
}

impl Problem {
    /// Everything that a measured time depends on, as one line: region, operands with strides, number types
    /// and threads.
    pub fn key(&self) -> String {
        let operand = |operand: &Operand| {
            let dims = operand.dims.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
            let layout = if operand.is_dense(crate::Layout::Plain) {
                "p".to_string()
            } else if operand.is_dense(crate::Layout::ChannelsLast) {
                "c".to_string()
            } else {
                operand.strides.iter().map(usize::to_string).collect::<Vec<_>>().join("_")
            };
            let kind = if operand.constant { "w" } else { "" };
            format!("{}{}[{}]{}", kind, operand.dtype.name(), dims, layout)
        };
        let join = |list: &[Operand]| list.iter().map(operand).collect::<Vec<_>>().join(",");
        format!(
            "{} {} -> {} {}/{}/{} t{}",
            self.region.key(),
            join(&self.inputs),
            join(&self.outputs),
            self.numeric.element.name(),
            self.numeric.accumulator.name(),
            self.numeric.scale.name(),
            self.threads
        )
    }

    /// Bytes that inputs and outputs span: the least traffic of one run.
    pub fn traffic_bytes(&self) -> usize {
        self.inputs.iter().chain(&self.outputs).map(Operand::span_bytes).sum()
    }
}
