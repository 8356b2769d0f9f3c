//! Many rows: the weight becomes numbers in the workspace, and a family of ordinary products reads it there.

use planish_gpu::kernel_args;
use planish_gpu::operands::{refuse, size_of_element};
use planish_gpu::plan::{Arg, KernelCode, Plan, Slot};
use planish_gpu::space::{self, int};
use planish_kernel::{Address, Budget, Call, KernelError, Problem, Tactic};

use super::posed::Posed;
use crate::backend::family_of;
use crate::driver::Stream;
use crate::families::gemm::GemmFamily;
use crate::families::wgemm::WGemmFamily;
use crate::family::{Family, Ready, Work};
use crate::formats::Format;
use crate::gpu::Gpu;
use crate::planned;
use crate::source::Source;

/// What the names of such tactics begin with, after the family's.
pub(super) const PREFIX: &str = "expand_";

const KERNEL: &str =
    concat!(include_str!("../../../kernels/nbits.cuh"), include_str!("../../../kernels/nbits_expand.cu"));

/// Warps of a block.
const WARPS: usize = 8;
/// Inputs of a region; those of products with an epilogue are fewer.
const MAX_INPUTS: usize = 16;
/// Tactics of ordinary products that are offered.
const MOST: usize = 4;
/// Nothing is done while one launch waits for the whole of another.
const WAIT_NS: f64 = 3_000.0;

kernel_args! {
    /// What nbits_expand.cu is given. Rows of numbers are `row` long, at least `k`.
    struct ExpandArgs {
        n: i32,
        k: i32,
        row: i32,
        n_tiles: i32,
        n_chunks: i32,
        n_blocks: i32,
    }
}

/// A product by a tactic for numbers.
pub(super) struct Expanded {
    inner: Tactic,
    /// The region over numbers, the weight packed as the tactic reads it.
    problem: Problem,
    weight: usize,
    pub(super) expand: Plan,
    /// Bytes of the weight as numbers.
    bytes: usize,
}

impl Expanded {
    pub(super) fn of(posed: &Posed, inner: Tactic) -> Result<Expanded, KernelError> {
        let Posed { weight, n, k, .. } = posed;
        let mut problem = weight.problem.clone();
        problem.inputs[weight.weight].packed = None;
        let Some(reads) = posed.reads() else { return refuse("nbits: blocks that are no multiple of 16") };
        let packing = match family_of(&inner)?.packings(&problem, &inner)?[..] {
            [packing] if packing.input == weight.weight => packing,
            _ => return refuse(format!("{inner} reads its weight otherwise")),
        };
        let Format::Matrix { per_chunk, .. } = packing.format else {
            return refuse(format!("{inner} reads its weight otherwise"));
        };
        problem.inputs[weight.weight].packed = Some(packing.format.name());
        let dtype = problem.inputs[weight.weight].dtype;
        let row = k.next_multiple_of(per_chunk);
        let [n_tiles, n_chunks] = posed.tiles();
        let numbers = ExpandArgs {
            n: int(*n)?,
            k: int(*k)?,
            row: int(row)?,
            n_tiles: int(n_tiles)?,
            n_chunks: int(n_chunks)?,
            n_blocks: int(weight.n_blocks())?,
        };
        let Some(stored) = planish_gpu::codegen::storage_type(dtype) else {
            return refuse(format!("weights as numbers of type {dtype}"));
        };
        let code = posed
            .told(KernelCode::new("nbits_expand.cu", KERNEL, "nbits_expand", &numbers), reads)?
            .define("Y_T", stored);
        let mut args = Vec::from(posed.addresses());
        args.extend([Arg::Address(Slot::Workspace, 0), Arg::of(&numbers)]);
        let grid = [space::blocks(n_tiles * n_chunks, WARPS)?, 1, 1];
        let expand = Plan::one(code, grid, 32 * WARPS as u32, args);
        let bytes = (n * row * size_of_element(dtype)).next_multiple_of(256);
        if problem.inputs.len() > MAX_INPUTS {
            return refuse("nbits: more than 16 inputs");
        }
        Ok(Expanded { inner, problem, weight: weight.weight, expand, bytes })
    }

    /// Tactics for numbers with what they take in all.
    pub(super) fn candidates(
        gpu: &Gpu,
        posed: &Posed,
        problem: &Problem,
        budget: &Budget,
    ) -> Vec<(String, f64)> {
        if posed.reads().is_none() {
            return Vec::new();
        }
        let mut plain = posed.weight.problem.clone();
        plain.inputs[posed.weight.weight].packed = None;
        let families: [&dyn Family; 2] = [&WGemmFamily, &GemmFamily];
        let mut all: Vec<_> =
            families.into_iter().flat_map(|family| family.candidates(gpu, &plain, budget)).collect();
        all.sort_by(|a, b| a.predicted_ns.total_cmp(&b.predicted_ns));
        let bytes =
            plain.inputs[posed.weight.weight].span_bytes() + problem.inputs[posed.weight.weight].span_bytes();
        let expand_ns = gpu.roofline_ns(0.0, 1.0, bytes as f64) + WAIT_NS;
        all.into_iter()
            .filter(|candidate| Expanded::of(posed, candidate.tactic.clone()).is_ok())
            .take(MOST)
            .map(|candidate| (candidate.tactic.name, candidate.predicted_ns + expand_ns))
            .collect()
    }

    pub(super) fn sources(&self, gpu: &Gpu) -> Result<Vec<Source>, KernelError> {
        let mut sources = planned::sources(&self.expand);
        sources.extend(family_of(&self.inner)?.sources(gpu, &self.problem, &self.inner)?);
        Ok(sources)
    }

    pub(super) fn prepare(&self, ready: &Ready<'_>) -> Result<Box<dyn Work>, KernelError> {
        let Some((_, product)) = ready.code.split_first() else { return ready.refuse("its code is missing") };
        let expand = planned::prepare(&self.expand, ready)?;
        let inner = Ready { cuda: ready.cuda, problem: &self.problem, tactic: &self.inner, code: product };
        let mut product = family_of(&self.inner)?.prepare(&inner)?;
        product.waits_for_weights();
        Ok(Box::new(ExpandThenMultiply { expand, product, weight: self.weight, bytes: self.bytes }))
    }
}

/// Both one after the other; the product finds its weight at the beginning of the workspace.
#[derive(Debug)]
struct ExpandThenMultiply {
    expand: Box<dyn Work>,
    product: Box<dyn Work>,
    weight: usize,
    bytes: usize,
}

impl Work for ExpandThenMultiply {
    fn workspace_bytes(&self) -> usize {
        self.bytes + self.product.workspace_bytes()
    }

    unsafe fn launch(&self, call: &Call<'_>, stream: &Stream) -> Result<(), KernelError> {
        // SAFETY: the caller grants what both ask for.
        unsafe { self.expand.launch(call, stream)? };
        let mut inputs = [Address::NULL; MAX_INPUTS];
        let inputs = &mut inputs[..call.inputs.len().min(MAX_INPUTS)];
        inputs.copy_from_slice(&call.inputs[..inputs.len()]);
        inputs[self.weight] = call.workspace;
        let call = Call { inputs, workspace: call.workspace.offset(self.bytes), ..*call };
        // SAFETY: as above; the weight's place is the part of the workspace that was just filled.
        unsafe { self.product.launch(&call, stream) }
    }
}
