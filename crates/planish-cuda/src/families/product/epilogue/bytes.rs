//! The numbers of 8 bits around a product, integers or floats: what its sums are multiplied by, and how its residual and its result are stored.

use planish_kernel::pointwise::Epilogue;
use planish_kernel::quantized::{Dequantized, DequantizedInput, Quantization, Scales};
use planish_kernel::{KernelError, Problem, Ref};
use planish_op::Op;
use planish_tensor::DType;

use crate::source::Source;

/// Which of a product's operands are bytes; none by default.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Bytes {
    /// Where both factors are.
    pub(crate) factors: Option<Factors>,
    pub(crate) residual: Option<Quantization>,
    pub(crate) output: Option<Quantization>,
    /// Inputs of the region that are dequantized.
    pub(crate) inputs: Vec<usize>,
}

/// What sums of products of bytes are multiplied by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Factors {
    pub(crate) factor: f32,
    /// An input of the region with a scale for each column.
    pub(crate) columns: Option<usize>,
}

/// What kernels are given beside addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) factor: f32,
    pub(crate) residual_scale: f32,
    pub(crate) inverse: f32,
    pub(crate) lo: f32,
    pub(crate) hi: f32,
}

impl Bytes {
    /// The bytes of a problem whose product is the first node of `apart`; refused where they are beyond the kernels.
    pub(crate) fn of(
        problem: &Problem,
        apart: &Dequantized,
        epilogue: &Epilogue,
    ) -> Result<Bytes, KernelError> {
        let refuse = |what: &str| Err(KernelError::unsupported(format!("a product of integers: {what}")));
        let main = &apart.problem.region.nodes[0];
        let factor = |place: usize| match main.inputs.get(place).copied().flatten() {
            Some(Ref::Input(input)) => Some(input as usize),
            _ => None,
        };
        let (Some(x), Some(weight)) = (factor(0), factor(1)) else {
            return refuse("factors that are no inputs of the region");
        };
        let factors = match (apart.input(x), apart.input(weight)) {
            (None, None) => None,
            (Some(a), Some(b)) => {
                // The weight's axis that columns are.
                let axis = match &main.op {
                    Op::MatMul(_) => problem.inputs[weight].rank() - 1,
                    Op::Gemm(gemm) if !gemm.trans_b => 1,
                    Op::ConvTranspose(_) => 1,
                    _ => 0,
                };
                let is_plain = |input: &DequantizedInput| {
                    matches!(input.dtype, DType::I8 | DType::F8E4M3FN) && input.zero == 0
                };
                if !is_plain(a) || !is_plain(b) || a.dtype != b.dtype {
                    return refuse("factors that are not signed, not around zero, or of different types");
                }
                Some(match (a.scales, b.scales) {
                    (Scales::One(a), Scales::One(b)) => Factors { factor: a * b, columns: None },
                    (Scales::One(a), Scales::Input { input, axis: own }) if own == axis => {
                        Factors { factor: a, columns: Some(input) }
                    }
                    _ => return refuse("scales that do not follow the columns"),
                })
            }
            _ => return refuse("one factor alone"),
        };
        let residual = epilogue.residual.map(|residual| residual.input as usize);
        let stored = match residual.and_then(|input| apart.input(input)) {
            None => None,
            Some(&DequantizedInput { dtype, scales: Scales::One(scale), zero, .. }) => {
                Some(Quantization { dtype, scale, zero })
            }
            Some(_) => return refuse("a residual with scales of its own for channels"),
        };
        let inputs: Vec<usize> = apart.inputs.iter().map(|known| known.input).collect();
        let known = |input: &usize| [Some(x), Some(weight), residual].contains(&Some(*input));
        if !inputs.iter().all(known) {
            return refuse("integers beside factors and residual");
        }
        Ok(Bytes { factors, residual: stored, output: apart.output, inputs })
    }

    pub(crate) fn scales(&self) -> Option<usize> {
        self.factors.and_then(|factors| factors.columns)
    }

    pub(crate) fn numbers(&self, (lo, hi): (f32, f32)) -> Numbers {
        Numbers {
            factor: self.factors.map_or(1.0, |factors| factors.factor),
            residual_scale: self.residual.map_or(1.0, |residual| residual.scale),
            inverse: self.output.map_or(1.0, |output| 1.0 / output.scale),
            lo,
            hi,
        }
    }

    /// The same in steps of the output, between its least and its largest integer.
    pub(crate) fn in_steps(&self, bounds: (f32, f32)) -> Numbers {
        let Numbers { factor, residual_scale, inverse, lo, hi } = self.numbers(bounds);
        let (least, most) = self.range();
        let zero = self.output.map_or(0, |output| output.zero);
        let within = |bound: f32| (bound * inverse).clamp((least - zero) as f32, (most - zero) as f32);
        Numbers {
            factor: factor * inverse,
            residual_scale: residual_scale * inverse,
            inverse,
            lo: within(lo),
            hi: within(hi),
        }
    }

    /// The least and the largest number of the output.
    fn range(&self) -> (i32, i32) {
        match self.output.map(|output| output.dtype) {
            Some(DType::U8) => (0, 255),
            Some(DType::F8E4M3FN) => (-448, 448),
            _ => (-128, 127),
        }
    }

    /// As epilogue.cuh takes it. Zero points are part of the text: few differ from zero.
    pub(crate) fn define(&self, source: Source) -> Source {
        let scale = match self.factors {
            None => 0,
            Some(Factors { columns: None, .. }) => 1,
            Some(_) => 2,
        };
        let (least, most) = self.range();
        source
            .define("EPILOGUE_SCALE", scale)
            .define("RES_BYTES", u32::from(self.residual.is_some()))
            .define("RES_ZERO", self.residual.map_or(0, |residual| residual.zero))
            .define("OUT_BYTES", u32::from(self.output.is_some()))
            .define("OUT_F8", u32::from(self.output.is_some_and(|output| output.dtype.is_float())))
            .define("OUT_LEAST", least)
            .define("OUT_MOST", most)
            .define("OUT_ZERO", self.output.map_or(0, |output| output.zero))
    }
}
