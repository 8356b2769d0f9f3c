//! Matrix products of f32 by tiles of bf16: the rows of A are the windows of a convolution of one tap.

use planish_kernel::pointwise::Epilogue;
use planish_kernel::{KernelError, KernelErrorKind};
use planish_op::window::PlacedAxis;

use super::{BatchDim, GemmProblem, MatrixA};
use crate::conv::bf16::Bf16Tile;
use crate::conv::geometry::{Geometry, Pixels, TRIVIAL_AXIS};
use crate::conv::igemm::Igemm;
use crate::conv::pack::Filter;
use crate::conv::{After, ConvCall, Finished};
use crate::family::Work;
use crate::isa::Isa;
use crate::pointwise::Pointwise;
use crate::shared::Shared;
use crate::team::Team;

/// What stands in plans.
pub(super) fn tactic(tile: Bf16Tile) -> String {
    format!("gemm_{}", tile.name())
}

/// The tile of a tactic of bf16, where it is one; an error where this machine does not have it.
pub(super) fn tile_of(isa: Isa, name: &str) -> Option<Result<Bf16Tile, KernelError>> {
    let missing = || {
        let message = format!("no product of bf16 is called `{name}` here; rebuild the plan");
        KernelError::new(KernelErrorKind::NoSuchTactic, message)
    };
    let tile = || Bf16Tile::all(isa).find(|tile| tactic(*tile) == name);
    name.starts_with("gemm_bf16_").then(|| tile().ok_or_else(missing))
}

/// The constant matrix B of `k x n`, or `n x k` where it is transposed, as the weight of a convolution.
pub(crate) fn filter(k: usize, n: usize, transposed: bool) -> Filter {
    // The weight of a transposed convolution has its input channels outermost.
    Filter::new(1, k, n, &[TRIVIAL_AXIS; 3], !transposed)
}

/// Where everything lies; `None` where A is stored by columns, has no whole pairs, or has too many batches. Batches are
/// images and the outer axes of a convolution.
pub(super) fn geometry(posed: &GemmProblem, residual_stride: Option<usize>) -> Option<Geometry> {
    let MatrixA::Rows { stride } = posed.a else { return None };
    if posed.k == 0 || !posed.k.is_multiple_of(2) {
        return None;
    }
    let mut outer = posed.batch.iter().filter(|dim| dim.len != 1).rev();
    let [inner, middle, image] = std::array::from_fn(|_| outer.next().copied().unwrap_or(BatchDim::ONE));
    if outer.next().is_some() {
        return None;
    }
    let pixels = |of: fn(&BatchDim) -> usize, row: usize| Pixels {
        image: of(&image),
        axes: [of(&middle), of(&inner), row],
        channel: 1,
    };
    let axis = |len: usize| PlacedAxis { input: len, output: len, ..TRIVIAL_AXIS };
    Some(Geometry {
        n_images: image.len,
        groups: 1,
        c: posed.k,
        k: posed.n,
        axes: [axis(middle.len), axis(inner.len), axis(posed.m)],
        transposed: false,
        input: pixels(|dim| dim.a, stride),
        output: pixels(|dim| dim.c, posed.c_stride),
        residual: residual_stride.map(|row| pixels(|dim| dim.residual, row)),
    })
}

/// A product that is ready to run.
#[derive(Debug)]
pub(super) struct MultiplyBf16 {
    pub(super) plan: Igemm<Bf16Tile>,
    /// The pointwise nodes that the tile does not know.
    pub(super) rest: Option<Pointwise>,
    /// Inputs of the region.
    pub(super) a: usize,
    pub(super) b: usize,
    pub(super) epilogue: Epilogue,
}

impl Work for MultiplyBf16 {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        Pointwise::bytes_behind(self.rest.as_ref(), self.plan.workspace_bytes(n_slots), n_slots)
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let behind = shared.behind(self.plan.workspace_bytes(team.n_slots()));
        // SAFETY: the block is the task's own; slots have different workspace.
        let hook = (self.rest.as_ref())
            .map(|rest| move |finished: &Finished| unsafe { finished.follow(rest, &behind) });
        let call = ConvCall {
            input: shared.inputs[self.a].cast(),
            weights: shared.inputs[self.b].cast(),
            bias: shared.optional(self.epilogue.bias),
            residual: shared.optional(self.epilogue.residual.map(|residual| residual.input)),
            output: shared.outputs[0].cast(),
            workspace: shared.workspace,
            lo: self.epilogue.lo,
            hi: self.epilogue.hi,
            after: hook.as_ref().map(|hook| hook as &After<'_>),
            staging: 0,
        };
        // SAFETY: the caller grants what the operands span, and the plan was made for their strides.
        unsafe { self.plan.run(&call, team) };
        Ok(())
    }
}
