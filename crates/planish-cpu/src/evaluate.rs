//! The last tactic of everything: a region computed by the reference, through copies in plain layout; and regions on host
//! values, whose sizes only a run can tell, by kernels that are prepared as it comes by.

use planish_kernel::{
    Budget, Candidate, KernelError, KernelErrorKind, Layout, Operand, Problem, Ref, Region, RegionNode,
    Tactic, Want,
};
use planish_op::Value;
use planish_reference::EvalErrorKind;
use planish_tensor::{Bytes, Tensor, memory};

use crate::family::{Family, Work};
use crate::found;
use crate::isa::Isa;
use crate::shared::Shared;
use crate::team::Team;

/// The outputs of a region on these inputs, node by node over the reference.
pub fn evaluate_region(
    region: &Region,
    inputs: &[Option<Value>],
    max_bytes: usize,
) -> Result<Vec<Value>, KernelError> {
    node_by_node(region, inputs, |node, operands| by_reference(node, operands, max_bytes))
}

/// The same by kernels wherever there are some for what the values turn out to be.
pub(crate) fn evaluate_on(
    isa: Isa,
    region: &Region,
    inputs: &[Option<Value>],
    max_bytes: usize,
    threads: usize,
) -> Result<Vec<Value>, KernelError> {
    node_by_node(region, inputs, |node, operands| {
        match found::by_kernel(isa, node, operands, max_bytes, threads)? {
            Some(outputs) => Ok(outputs),
            None => by_reference(node, operands, max_bytes),
        }
    })
}

/// An error of a node with its name, if it has one.
pub(crate) fn blamed(node: &RegionNode, error: &dyn std::fmt::Display) -> String {
    if node.name.is_empty() { error.to_string() } else { format!("node `{}`: {error}", node.name) }
}

fn by_reference(
    node: &RegionNode,
    operands: &[Option<&Value>],
    max_bytes: usize,
) -> Result<Vec<Value>, KernelError> {
    let n_outputs = node.n_outputs as usize;
    planish_reference::evaluate_within(&node.op, operands, n_outputs, max_bytes).map_err(|error| {
        let kind = match error.kind() {
            EvalErrorKind::TooLarge => KernelErrorKind::OutOfMemory,
            EvalErrorKind::Limit => KernelErrorKind::Limit,
            _ => KernelErrorKind::BadValues,
        };
        KernelError::new(kind, blamed(node, &error))
    })
}

fn node_by_node(
    region: &Region,
    inputs: &[Option<Value>],
    evaluate: impl Fn(&RegionNode, &[Option<&Value>]) -> Result<Vec<Value>, KernelError>,
) -> Result<Vec<Value>, KernelError> {
    let missing = || KernelError::new(KernelErrorKind::Failed, "a region reads what it does not have");
    let constants: Vec<Value> = region.constants.iter().cloned().map(Value::Tensor).collect();
    let mut made: Vec<Vec<Value>> = Vec::with_capacity(region.nodes.len());
    for node in &region.nodes {
        let outputs = {
            let operands: Vec<Option<&Value>> = node
                .inputs
                .iter()
                .map(|reference| match reference {
                    None => None,
                    Some(Ref::Input(idx)) => inputs.get(*idx as usize).and_then(Option::as_ref),
                    Some(Ref::Constant(idx)) => constants.get(*idx as usize),
                    Some(Ref::Node { node, output }) => {
                        made.get(*node as usize).and_then(|outputs| outputs.get(*output as usize))
                    }
                })
                .collect();
            evaluate(node, &operands)?
        };
        made.push(outputs);
    }
    let output = |reference: &Ref| match reference {
        Ref::Input(idx) => inputs.get(*idx as usize).cloned().flatten(),
        Ref::Constant(idx) => constants.get(*idx as usize).cloned(),
        Ref::Node { node, output } => made.get(*node as usize).and_then(|o| o.get(*output as usize)).cloned(),
    };
    region.outputs.iter().map(|reference| output(reference).ok_or_else(missing)).collect()
}

/// The family of one tactic: the reference.
pub(crate) struct ReferenceFamily;

/// Nanoseconds per output element that the reference is expected to take: slow enough that any kernel wins.
const SLOW_NS: f64 = 100.0;

impl Family for ReferenceFamily {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn candidates(&self, _isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let n_elements: usize = problem.outputs.iter().map(Operand::len).sum();
        vec![Candidate {
            slow: true,
            ..Candidate::new(
                Tactic::new("reference", 1),
                vec![Want::dense(Layout::Plain); problem.inputs.len()],
                vec![Want::dense(Layout::Plain); problem.outputs.len()],
                2_000.0 + SLOW_NS * n_elements as f64,
            )
        }]
    }

    fn prepare(&self, _isa: Isa, problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let operands = problem.inputs.iter().chain(&problem.outputs);
        if let Some(odd) = operands.clone().find(|o| o.packed.is_some() || !o.is_dense(Layout::Plain)) {
            return Err(KernelError::unsupported(format!("the reference takes plain operands, not {odd:?}")));
        }
        Ok(Box::new(Evaluate {
            region: problem.region.clone(),
            inputs: problem.inputs.clone(),
            outputs: problem.outputs.clone(),
        }))
    }
}

#[derive(Debug)]
struct Evaluate {
    region: Region,
    inputs: Vec<Operand>,
    outputs: Vec<Operand>,
}

impl Work for Evaluate {
    unsafe fn run(&self, shared: Shared<'_>, _team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, .. } = shared;
        let mut values = Vec::with_capacity(inputs.len());
        for (operand, &from) in self.inputs.iter().zip(inputs) {
            let n_bytes = operand.span_bytes();
            let mut bytes = memory::zeroed(n_bytes)
                .map_err(|error| KernelError::new(KernelErrorKind::OutOfMemory, error.to_string()))?;
            // SAFETY: the caller grants what the operand spans.
            unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), n_bytes) };
            let tensor = Tensor::from_bytes(operand.dtype, &operand.dims, Bytes::from_vec(bytes))
                .map_err(|error| KernelError::new(KernelErrorKind::Failed, error.to_string()))?;
            values.push(Some(Value::Tensor(tensor)));
        }
        // What its outputs take was allowed when they got their memory.
        let results = evaluate_region(&self.region, &values, usize::MAX)?;
        for ((operand, &to), value) in self.outputs.iter().zip(outputs).zip(results) {
            let tensor =
                value.as_tensor().filter(|t| t.shape() == operand.dims && t.dtype() == operand.dtype);
            let tensor = tensor.ok_or_else(|| {
                KernelError::new(
                    KernelErrorKind::Failed,
                    format!("{} made another type or shape than was inferred", self.region.title()),
                )
            })?;
            // SAFETY: the caller grants what the operand spans, and a plain tensor has exactly those bytes.
            unsafe { std::ptr::copy_nonoverlapping(tensor.bytes().as_ptr(), to, operand.span_bytes()) };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_op as op;

    #[test]
    fn a_region_of_two_nodes_is_computed_in_order() {
        let mut region = Region::single(op::Add {}.into(), 2, 1);
        region.constants.push(Tensor::scalar(3.0f32));
        region.nodes.push(planish_kernel::RegionNode {
            name: "times".into(),
            op: op::Mul {}.into(),
            inputs: vec![Some(Ref::Node { node: 0, output: 0 }), Some(Ref::Constant(0))],
            n_outputs: 1,
        });
        region.outputs = vec![Ref::Node { node: 1, output: 0 }];
        let input = |values: Vec<f32>| Some(Value::Tensor(Tensor::vector(values)));
        let outputs =
            evaluate_region(&region, &[input(vec![1.0, 2.0]), input(vec![10.0, 20.0])], 16).unwrap();
        assert_eq!(outputs[0].as_tensor().unwrap().to_f64s(), [33.0, 66.0]);
    }

    #[test]
    fn values_beyond_the_limit_are_refused_before_they_are_made() {
        let region = Region::single(op::ConstantOfShape { value: None }.into(), 1, 1);
        let sizes = [Some(Value::Tensor(Tensor::vector(vec![1i64 << 36])))];
        let error = evaluate_region(&region, &sizes, 1 << 20).unwrap_err();
        assert_eq!(*error.kind(), KernelErrorKind::Limit, "{error}");
    }
}
