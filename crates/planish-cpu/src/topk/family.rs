//! TopK as the backend sees it: candidates and prepared work.

use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Ref, Tactic, Want};
use planish_op::Op;
use planish_tensor::DType;

use super::{Beside, Entry, KeyType, TopK, TopKArguments};
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::shared::Shared;
use crate::team::Team;

/// Nanoseconds for one element: making its key and selecting.
const ELEMENT_NS: f64 = 5.0;

/// TopK of every type of numbers.
#[derive(Debug)]
pub(crate) struct TopKFamily;

fn plan(problem: &Problem) -> Option<TopK> {
    let ([node], [x, ..], [first, ..]) =
        (&problem.region.nodes[..], &problem.inputs[..], &problem.outputs[..])
    else {
        return None;
    };
    let Op::TopK(op) = &node.op else { return None };
    let key_type = match x.dtype {
        DType::F32 => KeyType::F32,
        DType::F64 => KeyType::F64,
        DType::F16 => KeyType::F16,
        DType::BF16 => KeyType::Bf16,
        dtype if !dtype.is_whole_int() => return None,
        dtype if dtype.is_signed_int() => KeyType::Signed(dtype.bits() / 8),
        dtype => KeyType::Unsigned(dtype.bits() / 8),
    };
    let rank = x.rank() as i64;
    let axis = usize::try_from(if op.axis < 0 { op.axis + rank } else { op.axis }).ok()?;
    // The output has as many as are asked for, wherever the number comes from.
    let k = *first.dims.get(axis)?;
    let mut expected = x.dims.clone();
    *expected.get_mut(axis)? = k;
    // Either output may be one that nothing reads.
    let output =
        |output: u32| problem.region.outputs.iter().position(|known| *known == Ref::Node { node: 0, output });
    let outputs = [output(0), output(1)];
    let types = [x.dtype, DType::I64];
    let fits = node.inputs.first() == Some(&Some(Ref::Input(0)))
        && k <= x.dims[axis]
        && outputs.iter().flatten().count() == problem.outputs.len()
        && outputs.iter().zip(types).all(|(output, dtype)| {
            output.is_none_or(|idx| {
                let made = &problem.outputs[idx];
                made.dims == expected && made.dtype == dtype
            })
        });
    let stride = |output: Option<usize>, at: usize| output.map_or(0, |idx| problem.outputs[idx].strides[at]);
    let beside = (0..x.rank()).filter(|at| *at != axis).map(|at| Beside {
        len: x.dims[at],
        from: x.strides[at],
        values: stride(outputs[0], at),
        places: stride(outputs[1], at),
    });
    if !fits {
        return None;
    }
    Some(TopK {
        key_type,
        largest: op.largest,
        len: x.dims[axis],
        k,
        from: x.strides[axis],
        outputs,
        values: stride(outputs[0], axis),
        places: stride(outputs[1], axis),
        beside: beside.collect(),
    })
}

impl Family for TopKFamily {
    fn name(&self) -> &'static str {
        "topk"
    }

    fn candidates(&self, _isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Some(plan) = plan(problem) else { return Vec::new() };
        vec![Candidate::new(
            Tactic::new("topk_select", 2),
            vec![Want::inside(Layout::Plain); problem.inputs.len()],
            vec![Want::inside(Layout::Plain); problem.outputs.len()],
            ELEMENT_NS * (plan.n_lines() * plan.len) as f64,
        )]
    }

    fn prepare(&self, _isa: Isa, problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        match plan(problem) {
            Some(plan) => Ok(Box::new(plan)),
            None => Err(KernelError::unsupported("not a TopK of numbers")),
        }
    }
}

impl Work for TopK {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        n_slots * self.workspace_len() * size_of::<Entry>()
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, workspace } = shared;
        let output = |place: Option<usize>| place.map_or(std::ptr::null_mut(), |idx| outputs[idx]);
        let arguments = TopKArguments {
            x: inputs[0],
            values: output(self.outputs[0]),
            places: output(self.outputs[1]).cast(),
            workspace: workspace.cast(),
        };
        // SAFETY: the caller grants what the operands span and the workspace that was asked for.
        unsafe { TopK::run(self, &arguments, team) };
        Ok(())
    }
}
