//! DynamicQuantizeLinear as the backend sees it: candidates and prepared work.

use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Ref, Tactic, Want, layouts_for};
use planish_op::Op;
use planish_tensor::DType;

use super::{DynamicQuantize, DynamicQuantizeArguments, Range};
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::team::Team;

/// Operations of an element: both ends of the range, a division, both bounds, roundings.
const OPERATIONS: f64 = 10.0;

/// DynamicQuantizeLinear of f32.
pub(crate) struct DynamicQuantizeFamily;

fn plan(isa: Isa, problem: &Problem) -> Option<DynamicQuantize> {
    let ([node], [x], [y, scale, zero]) =
        (&problem.region.nodes[..], &problem.inputs[..], &problem.outputs[..])
    else {
        return None;
    };
    let output = |output| Ref::Node { node: 0, output };
    let fits = matches!(node.op, Op::DynamicQuantizeLinear(_))
        && node.inputs == [Some(Ref::Input(0))]
        && problem.region.outputs == [output(0), output(1), output(2)]
        && x.dims == y.dims
        && scale.dims.is_empty()
        && zero.dims.is_empty()
        && [x.dtype, y.dtype, scale.dtype, zero.dtype] == [DType::F32, DType::U8, DType::F32, DType::U8];
    fits.then(|| DynamicQuantize { isa, n: x.len() })
}

impl Family for DynamicQuantizeFamily {
    fn name(&self) -> &'static str {
        "dynquant"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Some(plan) = plan(isa, problem) else { return Vec::new() };
        let traffic = 2.0 * problem.traffic_bytes() as f64;
        let predicted_ns = expected_ns(isa, OPERATIONS * plan.n as f64, traffic, problem.threads);
        let candidate = |layout: Layout| {
            let scalar = Want::dense(Layout::Plain);
            Candidate::new(
                Tactic::new(format!("dynquant_{}_{isa}", layout.name()), 1),
                vec![Want::dense(layout)],
                vec![Want::dense(layout), scalar, scalar],
                predicted_ns,
            )
        };
        layouts_for(&problem.outputs[..1]).map(candidate).collect()
    }

    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let plan = plan(isa, problem).ok_or_else(|| {
            KernelError::unsupported(format!("{tactic} computes one DynamicQuantizeLinear"))
        })?;
        let (x, y) = (&problem.inputs[0], &problem.outputs[0]);
        let is_flat = [Layout::Plain, Layout::ChannelsLast]
            .iter()
            .any(|layout| x.is_dense(*layout) && y.is_dense(*layout));
        match is_flat {
            true => Ok(Box::new(plan)),
            false => Err(KernelError::unsupported(format!("{tactic} takes dense operands of one layout"))),
        }
    }
}

impl Work for DynamicQuantize {
    fn workspace_bytes(&self, _n_slots: usize) -> usize {
        self.n_tasks() * size_of::<Range>()
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, workspace } = shared;
        let arguments = DynamicQuantizeArguments {
            x: inputs[0].cast(),
            y: outputs[0],
            scale: outputs[1].cast(),
            zero: outputs[2],
            ranges: workspace.cast(),
        };
        // SAFETY: the caller grants what the operands span and the workspace that was asked for.
        unsafe { DynamicQuantize::run(self, &arguments, team) };
        Ok(())
    }
}
