//! Resize as the backend sees it: candidates and prepared work.

use planish_kernel::resize::resized_axes;
use planish_kernel::{Budget, Candidate, KernelError, Layout, Operand, Problem, Ref, Tactic, Want};
use planish_op::{Op, ResizeMode};
use planish_tensor::DType;

use super::taps::Taps;
use super::{ResizeArguments, ResizeForm, Resizing};
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::price::expected_ns;
use crate::spatial::{AXES, ImageStrides};
use crate::team::Team;

/// Nanoseconds of one point of a row of the plain layout; measured by the example `movement`.
const POINT_NS: f64 = 1.0;

/// Resizes of the spatial axes of images: f32, or nearest pixels of any type.
#[derive(Debug)]
pub(crate) struct ResizeFamily;

/// The resize that a problem asks for, with these operands.
fn plan(isa: Isa, problem: &Problem, x: &Operand, y: &Operand) -> Option<Resizing> {
    let [node] = &problem.region.nodes[..] else { return None };
    let Op::Resize(op) = &node.op else { return None };
    let is_nearest = op.mode == ResizeMode::Nearest;
    let fits = node.inputs.first() == Some(&Some(Ref::Input(0)))
        && problem.region.outputs == [Ref::Node { node: 0, output: 0 }]
        && (3..=5).contains(&x.rank())
        && x.dtype == y.dtype
        && (x.dtype == DType::F32 || (is_nearest && !x.dtype.is_sub_byte()))
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
    Resizing::plan(isa, form, is_nearest.then_some(x.dtype.bits() / 8))
}

impl Family for ResizeFamily {
    fn name(&self) -> &'static str {
        "resize"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let ([x], [y]) = (&problem.inputs[..], &problem.outputs[..]) else { return Vec::new() };
        let candidate = |layout: Layout| {
            let laid = |operand: &Operand| Operand::dense(operand.dtype, &operand.dims, layout);
            let plan = plan(isa, problem, &laid(x), &laid(y))?;
            let bytes = (x.span_bytes() + y.span_bytes()) as f64;
            let mut ns = expected_ns(isa, 2.0 * plan.macs() as f64, bytes, problem.threads);
            if layout == Layout::Plain {
                // Along rows points are computed one by one.
                ns += POINT_NS * y.len() as f64 / problem.threads.max(1) as f64;
            }
            Some(Candidate {
                tactic: Tactic::new(format!("resize_{isa}"), 1),
                inputs: vec![Want::inside(layout)],
                outputs: vec![Want::inside(layout)],
                packed: vec![None],
                predicted_ns: ns,
                in_place: Vec::new(),
                slow: false,
            })
        };
        [Layout::ChannelsLast, Layout::Plain].into_iter().filter_map(candidate).collect()
    }

    fn prepare(&self, isa: Isa, problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let planned = match (&problem.inputs[..], &problem.outputs[..]) {
            ([x], [y]) => plan(isa, problem, x, y),
            _ => None,
        };
        match planned {
            Some(plan) => Ok(Box::new(plan)),
            None => Err(KernelError::unsupported("not a resize of an image's spatial axes by constants")),
        }
    }
}

impl Work for Resizing {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        n_slots * self.workspace_len() * size_of::<f32>()
    }

    unsafe fn run(
        &self,
        inputs: &[*const u8],
        outputs: &[*mut u8],
        workspace: *mut u8,
        team: &Team,
    ) -> Result<(), KernelError> {
        let arguments = ResizeArguments { x: inputs[0], y: outputs[0], workspace: workspace.cast() };
        // SAFETY: the caller grants what the operands span and the workspace that was asked for.
        unsafe { Resizing::run(self, &arguments, team) };
        Ok(())
    }
}
