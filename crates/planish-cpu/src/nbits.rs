//! Matrix products whose weight is of 4 or 8 bits in blocks with a scale each, activations in f32: MatMulNBits, and
//! blocked DequantizeLinear in front of MatMul or Gemm. Kernels read the integers (`gemm/blocks.rs`); what follows the
//! product is what f32 products have.

use planish_kernel::weight_only::{WeightOnly, WeightZeros};
use planish_kernel::{
    Budget, Candidate, KernelError, KernelErrorKind, Layout, Numeric, PackedWeight, Problem, Tactic, Want,
    WeightUse,
};
use planish_tensor::{Bytes, DType, Tensor};

use crate::family::{Family, Work};
use crate::formats::Format;
use crate::gemm::codes::Width;
use crate::gemm::family::{BlockOperands, BlockZeros, Product, wants};
use crate::gemm::{Blocks, GemmProblem, MatrixB, PackedB, Strides, Tile};
use crate::isa::Isa;

#[cfg(test)]
mod tests;

/// The family of products with weights in blocks.
pub(crate) struct NBitsFamily;

/// Raised when a change makes old timings or packed weights meaningless.
const REVISION: u32 = 1;

/// A region that the family computes.
struct Found {
    weight: WeightOnly,
    product: Product,
    blocks: Blocks,
}

impl Found {
    fn of(problem: &Problem) -> Option<Found> {
        let weight = WeightOnly::of(problem).filter(|_| problem.numeric == Numeric::F32)?;
        let product = Product::of(&weight.problem).filter(|product| product.b == weight.weight)?;
        let blocks = Blocks { width: Width::of(weight.dtype)?, rows: weight.block };
        let has_floats = problem.inputs[weight.scales].dtype == DType::F32;
        // Integers without a sign are stored less the middle of their range, and so are their zero points: there must be
        // some. Passes give all weights a sign before.
        let is_signed = matches!(weight.dtype, DType::I4 | DType::I8) || weight.zeros != WeightZeros::None;
        (has_floats && is_signed && Blocks::takes(weight.block, weight.k)).then_some(Found {
            weight,
            product,
            blocks,
        })
    }

    fn expect(problem: &Problem) -> Result<Found, KernelError> {
        let refuse = || {
            let ops = problem.region.ops();
            KernelError::unsupported(format!("nbits: {ops} is no product with a weight in blocks"))
        };
        Found::of(problem).ok_or_else(refuse)
    }

    /// The format of an input, where it is packed: the weight always, scales where there are several rows of them.
    fn format(&self, tile: Tile, input: usize) -> Option<String> {
        let transposed = self.weight.transposed;
        let panels = tile.into();
        let is_zeros = self.weight.zeros == WeightZeros::Input(input);
        if input == self.weight.weight {
            Some(Format::Codes { panels, width: self.blocks.width, transposed }.name())
        } else if is_zeros {
            Some(Format::Codes { panels, width: Width::Eight, transposed }.name())
        } else if input == self.weight.scales && self.weight.problem.inputs[input].rank() == 2 {
            Some(Format::Matrix { panels, transposed }.name())
        } else {
            None
        }
    }

    /// Where the scales of blocks and columns are in their tensor.
    fn strides(&self) -> Strides {
        match self.weight.transposed {
            true => Strides { k: 1, n: self.weight.n_blocks() },
            false => Strides { k: self.weight.n, n: 1 },
        }
    }

    /// Zero points as kernels read them.
    fn zeros(&self, tile: Tile) -> Result<BlockZeros, KernelError> {
        match &self.weight.zeros {
            WeightZeros::None => Ok(BlockZeros::None),
            WeightZeros::Input(input) => Ok(BlockZeros::Input(*input)),
            WeightZeros::Known(zeros) => {
                let format = Format::Codes {
                    panels: tile.into(),
                    width: Width::Eight,
                    transposed: self.weight.transposed,
                };
                Ok(BlockZeros::Known(format.pack_codes(zeros)?))
            }
        }
    }
}

fn tactic_name(tile: Tile) -> String {
    // Of the tile's own name what follows the family.
    format!("nbits_{}", tile.name().trim_start_matches("gemm_"))
}

fn tile_of(isa: Isa, tactic: &Tactic) -> Result<Tile, KernelError> {
    Tile::of(isa).find(|tile| tactic_name(*tile) == tactic.name).ok_or_else(|| {
        KernelError::new(
            KernelErrorKind::NoSuchTactic,
            format!("no tile `{}`; rebuild the plan", tactic.name),
        )
    })
}

impl Family for NBitsFamily {
    fn name(&self) -> &'static str {
        "nbits"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Some(found) = Found::of(problem) else { return Vec::new() };
        let Found { weight, product, blocks } = &found;
        let Ok(posed) = product.pose(&weight.problem) else { return Vec::new() };
        if product.rest(isa, &weight.problem).is_err() || problem.inputs[weight.weight].is_empty() {
            return Vec::new();
        }
        let posed = GemmProblem { b: MatrixB::Blocks(*blocks), ..posed };
        Tile::suited(isa, posed.n)
            .map(|tile| Candidate {
                packed: (0..problem.inputs.len()).map(|input| found.format(tile, input)).collect(),
                ..Candidate::new(
                    Tactic::new(tactic_name(tile), REVISION),
                    wants(problem),
                    vec![Want::inside(Layout::Plain)],
                    product.predicted_ns(isa, tile, &weight.problem, posed),
                )
            })
            .collect()
    }

    fn pack(&self, isa: Isa, used: WeightUse<'_>, weight: &Tensor) -> Result<PackedWeight, KernelError> {
        let WeightUse { problem, tactic, input } = used;
        let found = Found::expect(problem)?;
        let tile = tile_of(isa, tactic)?;
        let refuse = || KernelError::unsupported(format!("{tactic} does not pack input {input}"));
        let format = found.format(tile, input).ok_or_else(refuse)?;
        if weight.shape() != problem.inputs[input].dims {
            return Err(refuse());
        }
        let bytes = match Format::named(&format).ok_or_else(refuse)? {
            Format::Matrix { panels, .. } => {
                let elements = weight.elements::<f32>().map_err(|_| refuse())?;
                let layout = PackedB::new(panels, found.weight.n_blocks(), found.weight.n);
                let mut packed = vec![0.0f32; layout.len()];
                layout.pack(&elements, found.strides(), &mut packed);
                Bytes::from_vec(packed)
            }
            codes => Bytes::from_vec(codes.pack_codes(weight)?),
        };
        Ok(PackedWeight { format, bytes })
    }

    fn format(&self, isa: Isa, used: WeightUse<'_>) -> Result<Option<String>, KernelError> {
        Ok(Found::expect(used.problem)?.format(tile_of(isa, used.tactic)?, used.input))
    }

    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let found = Found::expect(problem)?;
        let tile = tile_of(isa, tactic)?;
        for (input, operand) in problem.inputs.iter().enumerate() {
            if operand.packed != found.format(tile, input) {
                return Err(KernelError::unsupported(format!("{tactic} needs input {input} packed")));
            }
        }
        let operands = BlockOperands { scales: found.weight.scales, zeros: found.zeros(tile)? };
        let Found { weight, product, blocks } = found;
        Ok(Box::new(product.of_blocks(isa, tile, &weight.problem, blocks, operands)?))
    }
}
