//! Resize as the backend sees it: candidates and prepared work.

use planish_kernel::quantized::Dequantized;
use planish_kernel::resize::resized_axes;
use planish_kernel::{Budget, Candidate, KernelError, Layout, Operand, Problem, Ref, Tactic};
use planish_op::{Op, ResizeMode};
use planish_tensor::DType;

use super::taps::Taps;
use super::{BytesOf, ResizeArguments, ResizeForm, Resizing};
use crate::elements::Requantized;
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::spatial::{AXES, ImageStrides, image_candidates, image_work};
use crate::team::Team;

/// Nanoseconds of one point of a row of the plain layout; measured by the example `movement`.
const POINT_NS: f64 = 1.0;

/// Resizes of the spatial axes of images: f32, bytes with a scale, or nearest pixels of any type.
#[derive(Debug)]
pub(crate) struct ResizeFamily;

/// The resize that a problem asks for, with these operands.
fn plan(isa: Isa, problem: &Problem, x: &Operand, y: &Operand) -> Option<Resizing> {
    let dequantized = Dequantized::of(problem).ok()?;
    let problem = dequantized.as_ref().map_or(problem, |inner| &inner.problem);
    let [node] = &problem.region.nodes[..] else { return None };
    let Op::Resize(op) = &node.op else { return None };
    let is_nearest = op.mode == ResizeMode::Nearest;
    let bytes = match &dequantized {
        Some(inner) => Some(BytesOf { signed: x.dtype == DType::I8, by: Requantized::of(inner)? }),
        None => None,
    };
    let fits_type = match bytes {
        Some(_) => !is_nearest,
        None => x.dtype == y.dtype && (x.dtype == DType::F32 || (is_nearest && !x.dtype.is_sub_byte())),
    };
    let fits = node.inputs.first() == Some(&Some(Ref::Input(0)))
        && problem.region.outputs == [Ref::Node { node: 0, output: 0 }]
        && (3..=5).contains(&x.rank())
        && fits_type
        && !(is_nearest && op.antialias);
    let axes = resized_axes(op, problem, x, y).filter(|_| fits)?;
    let (outer, spatial) = axes.split_at(2);
    if outer.iter().any(|axis| !axis.is_identity()) {
        return None;
    }
    let mut taps: [Taps; AXES] = std::array::from_fn(|_| Taps::identity(1));
    for (idx, axis) in spatial.iter().enumerate() {
        taps[AXES - spatial.len() + idx] = Taps::along(axis, op)?;
    }
    let form = ResizeForm {
        batch: x.dims[0],
        channels: x.dims[1],
        taps,
        in_width: *x.dims.last()?,
        from: ImageStrides::of(x)?,
        to: ImageStrides::of(y)?,
    };
    Resizing::plan(isa, form, is_nearest.then_some(x.dtype.bits() / 8), bytes)
}

impl Family for ResizeFamily {
    fn name(&self) -> &'static str {
        "resize"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let ns = |plan: &Resizing, layout: Layout| {
            let bytes = problem.traffic_bytes() as f64;
            let ns = expected_ns(isa, 2.0 * plan.macs() as f64, bytes, problem.threads);
            let n_points: usize = problem.outputs.iter().map(Operand::len).sum();
            match layout {
                // Along rows points are computed one by one.
                Layout::Plain => ns + POINT_NS * n_points as f64 / problem.threads.max(1) as f64,
                _ => ns,
            }
        };
        image_candidates(problem, &format!("resize_{isa}"), |x, y| plan(isa, problem, x, y), ns)
    }

    fn prepare(&self, isa: Isa, problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let refusal = "not a resize of an image's spatial axes by constants";
        image_work(problem, |x, y| plan(isa, problem, x, y), refusal)
    }
}

impl Work for Resizing {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        n_slots * self.workspace_len() * size_of::<f32>()
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, workspace } = shared;
        let arguments = ResizeArguments { x: inputs[0], y: outputs[0], workspace: workspace.cast() };
        // SAFETY: the caller grants what the operands span and the workspace that was asked for.
        unsafe { Resizing::run(self, &arguments, team) };
        Ok(())
    }
}
