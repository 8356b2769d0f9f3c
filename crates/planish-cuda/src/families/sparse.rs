//! Products of a few rows with weights that are 2:4 sparse, on sparse tensor cores: half of the weight's elements are read, and
//! which of each four these are.
//!
//! Offered where the weight is known to be so ([`planish_kernel::Operand::two_of_four`]); a plan's tactic goes by its packing.

#[cfg(test)]
mod tests;

use planish_gpu::operands::refuse;
use planish_gpu::plan::{Arg, Plan, Slot};
use planish_kernel::{Arithmetic, Budget, Candidate, KernelError, Layout, Problem, Tactic, Want};
use planish_op::two_of_four::summed_axis;
use planish_tensor::DType;

use super::few_rows::{Amount, Clocks, FewRows, Way, rows_of};
use super::product::{Offer, best_of};
use crate::family::Family;
use crate::formats::sparse::{self, SparseTiles};
use crate::formats::{Format, Packing};
use crate::gpu::Gpu;

/// Raised when kernels or packings change.
const REVISION: u32 = 1;

/// The family's, and what the names of its tactics begin with.
pub(crate) const NAME: &str = "sparse";
const PREFIX: &str = "sparse_";

/// What chunks of tiles hold.
const CONTENT: &str = include_str!("../../kernels/sparse_tile.cuh");

/// Elements of a row that a lane copies at once: rows are whole vectors of 16 bytes.
const SHARE: usize = 8;

/// Clocks of a scheduler for a chunk of a tile. Nothing is converted; eight rows are loaded and multiplied twice.
const CLOCKS: Clocks = Clocks { chunk: 30.0, rows: 50.0, staged: 50.0, scaled: None };

/// Products with sparse weights.
pub(crate) struct SparseFamily;

/// A product of rows and a sparse weight.
struct Posed {
    x: usize,
    weight: usize,
    n: usize,
    k: usize,
    transposed: bool,
    dtype: DType,
    tiles: SparseTiles,
}

impl Posed {
    fn of(problem: &Problem) -> Result<Posed, KernelError> {
        let refuse = |what: &str| refuse(format!("sparse: {what}"));
        let Some(node) = problem.region.nodes.first() else { return refuse("an empty region") };
        let factor = node.inputs.get(1).copied().flatten();
        let Some(planish_kernel::Ref::Input(weight)) = factor else {
            return refuse("a weight that is no input of the region");
        };
        let weight = weight as usize;
        let Some(operand) = problem.inputs.get(weight).filter(|operand| operand.constant) else {
            return refuse("a weight that is not constant");
        };
        let Some(axis) = summed_axis(&node.op, operand.rank()).filter(|_| operand.rank() == 2) else {
            return refuse("no product of matrices");
        };
        let (k, n) = (operand.dims[axis], operand.dims[1 - axis]);
        let x = rows_of(problem, weight, [n, k])?;
        let dtype = operand.dtype;
        let allowed = match problem.numeric.element {
            Arithmetic::F16 => DType::F16,
            Arithmetic::Bf16 => DType::BF16,
            _ => return refuse("another arithmetic"),
        };
        if dtype != allowed || problem.inputs[x].dtype != allowed || !sparse::takes(dtype) {
            return refuse("factors of different types");
        }
        if !k.is_multiple_of(SHARE) {
            return refuse("rows that are no whole vectors");
        }
        let transposed = axis == 1;
        let Some(tiles) = SparseTiles::of(transposed, &operand.dims) else {
            return refuse("a weight without elements");
        };
        Ok(Posed { x, weight, n, k, transposed, dtype, tiles })
    }

    fn packing(&self) -> Packing {
        Packing {
            input: self.weight,
            format: Format::Sparse { transposed: self.transposed },
            dtype: self.dtype,
        }
    }

    fn m(&self, problem: &Problem) -> usize {
        let rows = &problem.inputs[self.x].dims;
        rows[..rows.len() - 1].iter().product()
    }

    /// What prices go by.
    fn amount(&self, problem: &Problem) -> Amount {
        let [tiles, chunks] = self.tiles.counts();
        let dense = problem.inputs[self.weight].span_bytes();
        Amount {
            m: self.m(problem),
            tiles,
            chunks,
            bytes: problem.traffic_bytes() - dense + self.tiles.n_bytes(),
            parts: 1,
            slot: sparse::CHUNK_BYTES,
            chunk_bytes: sparse::CHUNK_BYTES,
            row: sparse::DEPTH * self.dtype.bits() / 8,
            stages: true,
            shares_rows: true,
            clocks: CLOCKS,
        }
    }

    /// The launches of a way.
    fn plan(&self, problem: &Problem, way: Way) -> Result<Plan, KernelError> {
        let [n_tiles, n_chunks] = self.tiles.counts();
        let product = FewRows {
            problem,
            plain: problem,
            x: self.x,
            n: self.n,
            k: self.k,
            n_tiles,
            n_chunks,
            n_blocks: 0,
            addresses: [Arg::Address(Slot::Input(self.weight), 0), Arg::Nothing, Arg::Nothing],
            slot_bytes: sparse::CHUNK_BYTES,
            depth: sparse::DEPTH,
            share: SHARE,
            shares_rows: true,
            content: CONTENT,
        };
        product.plan(way, Ok)
    }
}

impl Family for SparseFamily {
    fn name(&self) -> &'static str {
        NAME
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        let Ok(posed) = Posed::of(problem) else { return Vec::new() };
        let is_sparse = problem.inputs[posed.weight].two_of_four;
        if !is_sparse || gpu.sm < 80 || problem.outputs[0].is_empty() {
            return Vec::new();
        }
        let packed = Packing::of_inputs([posed.packing()], problem);
        let inputs = vec![Want::dense(Layout::Plain); problem.inputs.len()];
        let offer = Offer { inputs, outputs: vec![Want::inside(Layout::Plain)], packed };
        let amount = posed.amount(problem);
        let ways = Way::all(gpu, &amount).into_iter().filter(|way| posed.plan(problem, *way).is_ok());
        let candidate = |way: Way| {
            offer.candidate(format!("{PREFIX}{}", way.name()), REVISION, amount.price_ns(gpu, &way))
        };
        best_of(ways.map(candidate).collect(), budget.tiles, budget)
    }

    fn packing(&self, problem: &Problem, _tactic: &Tactic) -> Result<Option<Packing>, KernelError> {
        Ok(Some(Posed::of(problem)?.packing()))
    }

    fn plan(&self, _gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Plan, KernelError> {
        let own = tactic.name.strip_prefix(PREFIX).unwrap_or_default();
        match Way::named(own) {
            Some(way) => Posed::of(problem)?.plan(problem, way),
            None => refuse(format!("no tactic is called `{}`; rebuild the plan", tactic.name)),
        }
    }
}
