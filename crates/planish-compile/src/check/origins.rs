//! Where the elements of a value come from: through operators that only move elements, down to the value that they
//! were computed as. Two places in memory hold the same element if their origins are the same.

use planish_ir::{Graph, Node, ValueId};
use planish_op::Op;
use planish_tensor::{Tensor, normalize_axis};

use super::wires::Wires;

/// How a value's elements follow from those of others.
#[derive(Clone, Debug)]
enum Move {
    /// Computed, given or constant: elements are its own.
    Own,
    /// The same elements in the same order.
    Same(ValueId),
    /// Output axis `i` is input axis `perm[i]`.
    Transposed { of: ValueId, perm: Vec<usize> },
    /// From `start` on along `axis`.
    Sliced { of: ValueId, axis: usize, start: usize },
    /// One after the other along `axis`, each with where it begins.
    Joined { axis: usize, parts: Vec<(ValueId, usize)> },
}

/// The origins of all elements of a graph's values at given sizes.
#[derive(Debug)]
pub(super) struct Origins {
    moves: Vec<Move>,
    dims: Vec<Option<Vec<usize>>>,
    wires: Vec<u32>,
    /// Through how many values an element of each may have to be followed.
    depths: Vec<u64>,
}

/// An element: the number of the expression that computed it, and which of its elements it is.
pub(super) type Element = (u32, u64);

impl Origins {
    pub(super) fn new(graph: &Graph, wires: &Wires<'_>, sizes: &[(String, i64)]) -> Origins {
        let lookup = |name: &str| sizes.iter().find(|(known, _)| known == name).map(|(_, size)| *size);
        let dims: Vec<Option<Vec<usize>>> = graph
            .values()
            .map(|(_, value)| value.ty.as_tensor().and_then(|ty| ty.shape.as_ref()?.eval(&lookup)))
            .collect();
        let mut moves = vec![Move::Own; dims.len()];
        let mut depths = vec![1; dims.len()];
        for (_, node) in graph.nodes() {
            for (place, id) in node.outputs.iter().enumerate() {
                if let Some(id) = id {
                    let moved = movement(graph, node, place, &dims).unwrap_or(Move::Own);
                    // Nodes stand after those that they read.
                    depths[id.index()] = 1 + match &moved {
                        Move::Own => 0,
                        Move::Same(of) | Move::Transposed { of, .. } | Move::Sliced { of, .. } => {
                            depths[of.index()]
                        }
                        Move::Joined { parts, .. } => {
                            parts.iter().map(|(of, _)| depths[of.index()]).max().unwrap_or(0)
                        }
                    };
                    moves[id.index()] = moved;
                }
            }
        }
        let wires = graph.values().map(|(id, _)| wires.of(id)).collect();
        Origins { moves, dims, wires, depths }
    }

    /// Through how many values an element of this one may have to be followed.
    pub(super) fn depth(&self, id: ValueId) -> u64 {
        self.depths[id.index()]
    }

    pub(super) fn dims(&self, id: ValueId) -> Option<&[usize]> {
        self.dims[id.index()].as_deref()
    }

    /// The origin of element `at` (in row-major order) of a value whose sizes are known.
    pub(super) fn element(&self, id: ValueId, at: u64) -> Element {
        let (mut id, mut at) = (id, at);
        loop {
            let dims = self.dims(id).unwrap_or(&[]);
            match &self.moves[id.index()] {
                Move::Own => return (self.wires[id.index()], at),
                Move::Same(of) => id = *of,
                Move::Transposed { of, perm } => {
                    let inner = self.dims(*of).unwrap_or(&[]);
                    let mut place = vec![0u64; inner.len()];
                    let mut rest = at;
                    for (axis, &from) in perm.iter().enumerate().rev() {
                        let size = (dims[axis] as u64).max(1);
                        place[from] = rest % size;
                        rest /= size;
                    }
                    at = place.iter().zip(inner).fold(0, |flat, (place, size)| flat * *size as u64 + place);
                    id = *of;
                }
                Move::Sliced { of, axis, start } => {
                    let inner = self.dims(*of).unwrap_or(&[]);
                    at = moved(at, dims[*axis], inner[*axis], after(dims, *axis), |along| {
                        along + *start as u64
                    });
                    id = *of;
                }
                Move::Joined { axis, parts } => {
                    let step = after(dims, *axis);
                    let along = at / step % (dims[*axis] as u64).max(1);
                    let after = parts.partition_point(|(_, start)| *start as u64 <= along);
                    let Some((of, start)) = after.checked_sub(1).and_then(|part| parts.get(part)) else {
                        return (self.wires[id.index()], at);
                    };
                    let inner = self.dims(*of).unwrap_or(&[]);
                    at = moved(at, dims[*axis], inner[*axis], step, |along| along - *start as u64);
                    id = *of;
                }
            }
        }
    }
}

/// Elements per step along `axis`.
fn after(dims: &[usize], axis: usize) -> u64 {
    dims[axis + 1..].iter().product::<usize>().max(1) as u64
}

/// The element of a value that is `inner` long along an axis, for one of a value that is `outer` long there.
fn moved(at: u64, outer: usize, inner: usize, step: u64, along: impl Fn(u64) -> u64) -> u64 {
    let (outer, inner) = ((outer as u64).max(1), (inner as u64).max(1));
    let (before, here, rest) = (at / step / outer, at / step % outer, at % step);
    (before * inner + along(here)) * step + rest
}

/// How an output of a node follows from its inputs; `None` where it is computed, or sizes are not known.
fn movement(graph: &Graph, node: &Node, place: usize, dims: &[Option<Vec<usize>>]) -> Option<Move> {
    let input = |idx: usize| node.inputs.get(idx).copied().flatten();
    let known = |id: ValueId| dims[id.index()].as_ref();
    let output = node.outputs.get(place).copied().flatten()?;
    known(output)?;
    if let Op::Concat(concat) = &node.op {
        let axis = normalize_axis(concat.axis, known(output)?.len()).ok()?;
        let mut parts = Vec::new();
        let mut start = 0;
        for id in node.inputs.iter().flatten() {
            let size = *known(*id)?.get(axis)?;
            if size > 0 {
                parts.push((*id, start));
            }
            start += size;
        }
        return (!parts.is_empty()).then_some(Move::Joined { axis, parts });
    }
    let of = input(0)?;
    let from = known(of)?;
    match &node.op {
        Op::Reshape(_) | Op::Squeeze(_) | Op::Unsqueeze(_) | Op::Flatten(_) | Op::Identity(_) => {
            Some(Move::Same(of))
        }
        // With a ratio or a mode it may drop something.
        Op::Dropout(_) if place == 0 && node.inputs.len() == 1 => Some(Move::Same(of)),
        Op::Transpose(transpose) => {
            let perm: Vec<usize> = match &transpose.perm {
                Some(perm) => perm
                    .iter()
                    .map(|&axis| normalize_axis(axis, from.len()))
                    .collect::<Result<_, _>>()
                    .ok()?,
                None => (0..from.len()).rev().collect(),
            };
            (perm.len() == from.len()).then_some(Move::Transposed { of, perm })
        }
        Op::Split(split) => {
            let axis = normalize_axis(split.axis, from.len()).ok()?;
            let mut start = 0;
            for id in &node.outputs[..place] {
                start += known((*id)?)?.get(axis)?;
            }
            Some(Move::Sliced { of, axis, start })
        }
        Op::Slice(_) => {
            let numbers = |idx: usize| {
                let tensor = graph.value(input(idx)?).constant().map(Tensor::to_i64s);
                tensor.filter(|numbers| numbers.len() == 1).map(|numbers| numbers[0])
            };
            let start = numbers(1)?;
            let axis = if input(3).is_some() { normalize_axis(numbers(3)?, from.len()).ok()? } else { 0 };
            if input(4).is_some() && numbers(4)? != 1 {
                return None;
            }
            let size = *from.get(axis)? as i64;
            let start = if start < 0 { (size + start).max(0) } else { start.min(size) };
            Some(Move::Sliced { of, axis, start: start as usize })
        }
        _ => None,
    }
}
