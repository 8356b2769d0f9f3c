//! A second opinion on every element of a step: the same region computed node by node by other kernels, without
//! fusion. Where the two differ most the reference decides, so that no tolerance stands between them.

use std::borrow::Cow;

use planish_kernel::{
    Backend, Budget, Candidate, Layout, Numeric, Operand, Problem, Ref, Region, RegionNode,
};
use planish_op::Value;
use planish_reference::evaluate;
use planish_tensor::Tensor;

use super::alone::launch;

/// Elements that the reference decides on, of each of two rankings.
const N_SUSPECTS: usize = 3;
/// A way that shares less code with the tactic under test may be so much slower than the fastest.
const MAX_SLOWER: f64 = 6.0;
/// Elements that the reference may compute for a node that no other kernel takes.
const MAX_REFERENCE_ELEMENTS: usize = 1 << 18;

/// What other kernels make of a region: its outputs, and which kernels they were.
pub(super) struct Witness {
    pub(super) outputs: Vec<Tensor>,
    pub(super) by: Vec<String>,
}

/// Computes a region on plain values node by node. `backend` is a host's; `tactic` is the one under test, which is not
/// asked again. `is_weight` names inputs that may be packed.
pub(super) fn witness(
    backend: &dyn Backend,
    region: &Region,
    inputs: &[Option<Value>],
    is_weight: &[bool],
    tactic: &str,
    threads: usize,
) -> Result<Witness, String> {
    let mut made: Vec<Vec<Tensor>> = Vec::with_capacity(region.nodes.len());
    let mut by: Vec<String> = Vec::new();
    for node in &region.nodes {
        let outputs = {
            let mut operands: Vec<(Tensor, bool)> = Vec::new();
            let mut references = Vec::with_capacity(node.inputs.len());
            for reference in &node.inputs {
                let found = match reference {
                    Some(Ref::Input(idx)) => {
                        let value = inputs.get(*idx as usize).and_then(Option::as_ref);
                        let is_weight = is_weight.get(*idx as usize).copied().unwrap_or(false);
                        value.and_then(Value::as_tensor).map(|tensor| (tensor.clone(), is_weight))
                    }
                    Some(Ref::Node { node, output }) => made
                        .get(*node as usize)
                        .and_then(|list| list.get(*output as usize))
                        .map(|t| (t.clone(), false)),
                    Some(Ref::Constant(_)) | None => None,
                };
                references.push(match (reference, found) {
                    (Some(Ref::Constant(idx)), _) => Some(Ref::Constant(*idx)),
                    (Some(_), Some(operand)) => {
                        operands.push(operand);
                        Some(Ref::Input(operands.len() as u32 - 1))
                    }
                    (None, _) => None,
                    (Some(_), None) => None,
                });
            }
            let alone = Region {
                n_inputs: operands.len() as u32,
                constants: region.constants.clone(),
                nodes: vec![RegionNode { inputs: references, ..node.clone() }],
                outputs: (0..node.n_outputs).map(|output| Ref::Node { node: 0, output }).collect(),
            };
            one(backend, alone, &operands, tactic, threads, &mut by)?
        };
        made.push(outputs);
    }
    let output = |reference: &Ref| match reference {
        Ref::Node { node, output } => made.get(*node as usize)?.get(*output as usize).cloned(),
        Ref::Input(idx) => inputs.get(*idx as usize)?.as_ref()?.as_tensor().cloned(),
        Ref::Constant(idx) => region.constants.get(*idx as usize).cloned(),
    };
    let outputs = region.outputs.iter().map(output).collect::<Option<Vec<_>>>();
    by.sort();
    by.dedup();
    Ok(Witness { outputs: outputs.ok_or("an output is not a tensor")?, by })
}

/// One node by another kernel than `tactic`, or by the reference where that is cheap.
fn one(
    backend: &dyn Backend,
    region: Region,
    operands: &[(Tensor, bool)],
    tactic: &str,
    threads: usize,
    by: &mut Vec<String>,
) -> Result<Vec<Tensor>, String> {
    let node = region.nodes[0].clone();
    let operand = |(tensor, constant): &(Tensor, bool)| Operand {
        constant: *constant,
        ..Operand::dense(tensor.dtype(), tensor.shape(), Layout::Plain)
    };
    let inputs: Vec<Operand> = operands.iter().map(operand).collect();
    let mut problem = Problem { region, inputs, outputs: Vec::new(), numeric: Numeric::F32, threads };
    let types = problem.inner_types().map_err(|error| error.to_string())?;
    problem.outputs = types[0].iter().map(|ty| Operand::dense(ty.dtype, &ty.dims, Layout::Plain)).collect();
    let candidates = backend.candidates_from(&problem, &Budget::USUAL, &|source| source == "own");
    for candidate in preferred(candidates, tactic) {
        let posed = problem.for_candidate(&candidate);
        let tensors: Vec<Option<Tensor>> = operands.iter().map(|(tensor, _)| Some(tensor.clone())).collect();
        if let Ok(outputs) = launch(backend, &posed, &candidate.tactic, &tensors) {
            by.push(candidate.tactic.name);
            return Ok(outputs);
        }
    }
    let n_elements = problem.inputs.iter().chain(&problem.outputs).map(Operand::len).max().unwrap_or(0);
    if n_elements > MAX_REFERENCE_ELEMENTS {
        return Err(format!("no second kernel takes {}", node.op.name()));
    }
    let values: Vec<Option<Value>> = node
        .inputs
        .iter()
        .map(|reference| match (*reference)? {
            Ref::Input(idx) => operands.get(idx as usize).map(|(tensor, _)| Value::Tensor(tensor.clone())),
            other => problem.region.constant(Some(other)).cloned().map(Value::Tensor),
        })
        .collect();
    let values: Vec<Option<&Value>> = values.iter().map(Option::as_ref).collect();
    let outputs = evaluate(&node.op, &values, node.n_outputs as usize).map_err(|error| error.to_string())?;
    by.push("reference".to_string());
    outputs.iter().map(|value| value.as_tensor().cloned().ok_or("no tensor".to_string())).collect()
}

/// Candidates but for the one under test: those of another algorithm first unless they are far slower, then by price.
fn preferred(mut candidates: Vec<Candidate>, tactic: &str) -> Vec<Candidate> {
    let stem = |name: &str| name.split('_').take(2).collect::<Vec<_>>().join("_");
    candidates.retain(|candidate| !candidate.slow && candidate.tactic.name != tactic);
    let best = candidates.iter().map(|candidate| candidate.predicted_ns).fold(f64::INFINITY, f64::min);
    let rank = |candidate: &Candidate| {
        let alike = stem(&candidate.tactic.name) == stem(tactic);
        alike || candidate.predicted_ns > MAX_SLOWER * best
    };
    candidates.sort_by(|a, b| {
        (rank(a), a.predicted_ns).partial_cmp(&(rank(b), b.predicted_ns)).unwrap_or(std::cmp::Ordering::Equal)
    });
    // The next ones are asked where the first refuses; more than a few are not.
    candidates.truncate(3);
    candidates
}

/// The elements that differ most between two results, the worst first: by the difference itself, and by the difference among elements
/// of the same size (the largest of the element's row, channel and column). Those that are a number in one alone come
/// first.
pub(super) fn suspects(got: &Tensor, other: &Tensor) -> Vec<usize> {
    let (got_values, other_values) = (floats(got), floats(other));
    let shape = got.shape();
    let n_inner = shape.last().copied().unwrap_or(1).max(1);
    // Axes in front of the last one: the first and the second.
    let axes: Vec<usize> =
        (0..shape.len().saturating_sub(1).min(2)).filter(|&axis| shape[axis] > 1).collect();
    let rows_behind = |axis: usize| shape[axis + 1..shape.len() - 1].iter().product::<usize>().max(1);
    let place = |axis: usize, row: usize| row / rows_behind(axis) % shape[axis];
    let mut largest: Vec<Vec<f32>> = axes.iter().map(|&axis| vec![0.0; shape[axis]]).collect();
    let mut largest_inner = vec![0.0f32; n_inner];
    for (row, part) in other_values.chunks(n_inner).enumerate() {
        let mut most = 0.0f32;
        for (x, column) in part.iter().zip(&mut largest_inner) {
            let size = if x.is_finite() { x.abs() } else { 0.0 };
            most = most.max(size);
            *column = column.max(size);
        }
        for (list, &axis) in largest.iter_mut().zip(&axes) {
            let entry = &mut list[place(axis, row)];
            *entry = entry.max(most);
        }
    }
    let mut odd = Vec::new();
    let mut by_difference = Ranking::default();
    let mut by_share = Ranking::default();
    for (row, (a, b)) in got_values.chunks(n_inner).zip(other_values.chunks(n_inner)).enumerate() {
        let scales = largest.iter().zip(&axes).map(|(list, &axis)| list[place(axis, row)]);
        let row_scale = scales.fold(f32::INFINITY, f32::min);
        for (column, (&a, &b)) in a.iter().zip(b).enumerate() {
            if a.to_bits() == b.to_bits() {
                continue;
            }
            let at = row * n_inner + column;
            if !a.is_finite() || !b.is_finite() {
                if !(a.is_nan() && b.is_nan()) && odd.len() < N_SUSPECTS {
                    odd.push(at);
                }
                continue;
            }
            let difference = (a - b).abs();
            by_difference.offer(at, difference);
            let scale = if n_inner > 1 { row_scale.min(largest_inner[column]) } else { row_scale };
            by_share.offer(at, if scale > 0.0 { difference / scale } else { f32::MAX });
        }
    }
    let (by_difference, by_share) = (by_difference.sorted(), by_share.sorted());
    for place in 0..N_SUSPECTS {
        odd.extend([&by_difference, &by_share].into_iter().filter_map(|list| list.get(place)));
    }
    odd
}

fn floats(tensor: &Tensor) -> Cow<'_, [f32]> {
    match tensor.elements::<f32>() {
        Ok(list) => list,
        Err(_) => Cow::Owned(tensor.to_f64s().into_iter().map(|x| x as f32).collect()),
    }
}

/// The largest of a list, a few.
#[derive(Default)]
struct Ranking {
    list: Vec<(usize, f32)>,
    least: f32,
}

impl Ranking {
    /// The places, that of the largest first.
    fn sorted(mut self) -> Vec<usize> {
        self.list.sort_by(|a, b| b.1.total_cmp(&a.1));
        self.list.into_iter().map(|(at, _)| at).collect()
    }

    fn offer(&mut self, at: usize, size: f32) {
        if self.list.len() < N_SUSPECTS {
            self.list.push((at, size));
        } else if size > self.least {
            let least = self.list.iter().enumerate().min_by(|a, b| a.1.1.total_cmp(&b.1.1));
            if let Some((place, _)) = least {
                self.list[place] = (at, size);
            }
        } else {
            return;
        }
        if self.list.len() == N_SUSPECTS {
            self.least = self.list.iter().map(|(_, size)| *size).fold(f32::INFINITY, f32::min);
        }
    }
}
