//! A problem: a region at one set of sizes, with the number types to compute in.

use planish_tensor::DType;

use crate::{Candidate, KernelError, Operand, Ref, Region, Tactic, Want};

/// What products are taken in. Not always a type that values are stored in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Arithmetic {
    F32,
    /// f32 storage whose factors are rounded to 10 bits of mantissa before they are multiplied.
    Tf32,
    F16,
    Bf16,
    I8,
    /// Floats of 8 bits, E4M3.
    F8,
}

impl Arithmetic {
    const ALL: [Arithmetic; 6] = [
        Arithmetic::F32,
        Arithmetic::Tf32,
        Arithmetic::F16,
        Arithmetic::Bf16,
        Arithmetic::I8,
        Arithmetic::F8,
    ];

    /// As it stands in plans and timing caches.
    pub fn name(self) -> &'static str {
        match self {
            Arithmetic::F32 => "f32",
            Arithmetic::Tf32 => "tf32",
            Arithmetic::F16 => "f16",
            Arithmetic::Bf16 => "bf16",
            Arithmetic::I8 => "i8",
            Arithmetic::F8 => "f8",
        }
    }

    pub fn named(name: &str) -> Option<Arithmetic> {
        Arithmetic::ALL.into_iter().find(|arithmetic| arithmetic.name() == name)
    }
}

/// The number types of a computation: one of the constants below, which are all that kernels compute in; a plan with another
/// mix is refused.
///
/// What numbers are stored in is no field, since it differs from operand to operand: [`Operand::dtype`] says it, and of a
/// packed weight [`Operand::packed`]. Weights of bytes that are multiplied as floats are `F32` with an operand of `I8` (the CPU's
/// `nbits` and `recurrent`); f32 values that a kernel rounds as it packs them are `BF16` with operands of `F32`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Numeric {
    /// What products are taken in.
    pub element: Arithmetic,
    /// What sums are kept in.
    pub accumulator: DType,
    /// What quantization scales are applied in. f32 everywhere today: a kernel that scaled in f16 would be a constant of its own.
    pub scale: DType,
}

impl Numeric {
    /// Everything in f32.
    pub const F32: Numeric = Numeric::summed_in_f32(Arithmetic::F32);
    /// Products of f32 values rounded to tf32, sums in f32.
    pub const TF32: Numeric = Numeric::summed_in_f32(Arithmetic::Tf32);
    /// Products of f16 values, sums in f32.
    pub const F16: Numeric = Numeric::summed_in_f32(Arithmetic::F16);
    /// Products of bf16 values, sums in f32.
    pub const BF16: Numeric = Numeric::summed_in_f32(Arithmetic::Bf16);

    /// Products of 8 bits, exact sums in i32, scaled in f32.
    pub const I8: Numeric = Numeric { element: Arithmetic::I8, accumulator: DType::I32, scale: DType::F32 };

    /// Products of floats of 8 bits (E4M3), sums in f32, scaled in f32.
    pub const F8: Numeric = Numeric::summed_in_f32(Arithmetic::F8);

    const fn summed_in_f32(element: Arithmetic) -> Numeric {
        Numeric { element, accumulator: DType::F32, scale: DType::F32 }
    }
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
    /// The problem as a candidate wants it: dense operands in its layouts, weights as it packs them.
    pub fn for_candidate(&self, candidate: &Candidate) -> Problem {
        let mut problem = self.with_layouts(&candidate.inputs, &candidate.outputs);
        for (operand, packed) in problem.inputs.iter_mut().zip(&candidate.packed) {
            operand.packed = packed.clone();
        }
        problem
    }

    /// The problem with dense operands in these layouts.
    pub fn with_layouts(&self, inputs: &[Want], outputs: &[Want]) -> Problem {
        let mut problem = self.clone();
        let lay =
            |(operand, want): (&mut Operand, &Want)| operand.strides = want.layout.strides(&operand.dims);
        problem.inputs.iter_mut().zip(inputs).for_each(lay);
        problem.outputs.iter_mut().zip(outputs).for_each(lay);
        problem
    }

    /// All of it as one line: region, operands with strides, number types and threads.
    pub fn key(&self) -> String {
        self.described(&self.region.key())
    }

    /// Everything that a measured time depends on, as one line.
    pub fn timing_key(&self) -> String {
        self.described(&self.region.timing_key())
    }

    fn described(&self, region: &str) -> String {
        let operand = |operand: &Operand| {
            let dims = operand.dims.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
            let layout = if operand.is_dense(crate::Layout::Plain) {
                "p".to_string()
            } else if operand.is_dense(crate::Layout::ChannelsLast) {
                "c".to_string()
            } else {
                operand.strides.iter().map(usize::to_string).collect::<Vec<_>>().join("_")
            };
            let kind = match (operand.constant, operand.two_of_four) {
                (true, true) => "sparse_w",
                (true, false) => "w",
                _ => "",
            };
            format!("{}{}[{}]{}", kind, operand.dtype.name(), dims, layout)
        };
        let join = |list: &[Operand]| list.iter().map(operand).collect::<Vec<_>>().join(",");
        format!(
            "{region} {} -> {} {}/{}/{} t{}",
            join(&self.inputs),
            join(&self.outputs),
            self.numeric.element.name(),
            self.numeric.accumulator.name(),
            self.numeric.scale.name(),
            self.threads
        )
    }

    /// Refuses packed operands but those that the tactic packs: `reads` says for each input the format that it reads
    /// it in. A packed weight is not a tensor, so nothing else of the region may read it either.
    pub fn check_packed(&self, tactic: &Tactic, reads: &[Option<String>]) -> Result<(), KernelError> {
        let refuse = |what: String| Err(KernelError::unsupported(format!("{tactic} {what}")));
        if let Some(format) = self.outputs.iter().find_map(|output| output.packed.as_ref()) {
            return refuse(format!("does not write an output packed as `{format}`"));
        }
        for (idx, input) in self.inputs.iter().enumerate() {
            let Some(format) = &input.packed else { continue };
            if !input.constant || reads.get(idx).and_then(Option::as_ref) != Some(format) {
                return refuse(format!("does not read input {idx} packed as `{format}`"));
            }
            let own = Ref::Input(idx as u32);
            let nodes = self.region.nodes.iter().flat_map(|node| node.inputs.iter().flatten());
            if nodes.chain(&self.region.outputs).filter(|reference| **reference == own).count() != 1 {
                return refuse(format!("reads input {idx}, packed as `{format}`, in more places than one"));
            }
        }
        Ok(())
    }

    /// Bytes that inputs and outputs span: the least traffic of one run.
    pub fn traffic_bytes(&self) -> usize {
        self.inputs.iter().chain(&self.outputs).map(Operand::span_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetics_have_names_of_their_own() {
        for arithmetic in Arithmetic::ALL {
            assert_eq!(Arithmetic::named(arithmetic.name()), Some(arithmetic));
        }
        assert_eq!(Arithmetic::named("f4"), None);
    }
}
