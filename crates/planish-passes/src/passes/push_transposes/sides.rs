//! Which movable nodes may move together: the two sides of transposes that are their own inverse.

use std::collections::HashMap;

use planish_ir::{NodeId, ValueId};

use super::moves::Moved;
use super::{after, is_identity, transposed};
use crate::view::View;

/// The movable nodes, in groups that have nothing to do with each other and alternatives within a group.
///
/// A Transpose that is its own inverse vanishes if what is before it moves or if what is after it does,
/// but not if both do: of such a pair of sides one may move.
pub(super) fn sides(
    cx: &View<'_>,
    perm: &[usize],
    movable: &HashMap<NodeId, Moved>,
) -> Vec<Vec<Vec<NodeId>>> {
    let ids: Vec<NodeId> =
        cx.graph().nodes().map(|(id, _)| id).filter(|id| movable.contains_key(id)).collect();
    if !is_identity(&after(perm, perm)) {
        return vec![vec![ids]];
    }
    let mut sides_of = Sides::default();
    let mut groups = Vec::new();
    for &start in &ids {
        if sides_of.nodes.contains_key(&start) {
            continue;
        }
        let mut group = Group::default();
        sides_of.enter(start, false, &mut group);
        let outputs = cx.node(start).outputs.iter().flatten().copied();
        group.open.extend(movable[&start].relaid().chain(outputs).map(|value| (value, false)));
        while let Some((value, side)) = group.open.pop() {
            if let Some(known) = sides_of.values.insert(value, side) {
                group.is_torn |= known != side;
                continue;
            }
            let maker = cx.producer(value);
            for &reader in cx.readers(value).iter().chain(maker.iter().map(|(id, _)| id)) {
                if let Some(moved) = movable.get(&reader) {
                    if sides_of.enter(reader, side, &mut group) {
                        let outputs = cx.node(reader).outputs.iter().flatten().copied();
                        group.open.extend(moved.relaid().chain(outputs).map(|value| (value, side)));
                    }
                    continue;
                }
                // A Transpose has the other side at its other end.
                let node = cx.node(reader);
                let Some((input, order)) = transposed(cx, node) else { continue };
                if order == perm {
                    let ends = node.outputs.iter().flatten().copied().chain([input]);
                    group.open.extend(ends.filter(|&end| end != value).map(|end| (end, !side)));
                }
            }
        }
        // A node that reads a value both ways is on neither side.
        if !group.is_torn {
            groups.push(group.sides.into_iter().filter(|ids| !ids.is_empty()).map(sorted).collect());
        }
    }
    groups
}

/// On which of two sides nodes and values are.
#[derive(Default)]
struct Sides {
    nodes: HashMap<NodeId, bool>,
    values: HashMap<ValueId, bool>,
}

/// Nodes that are connected, by their side.
#[derive(Default)]
struct Group {
    sides: [Vec<NodeId>; 2],
    /// Values still to be followed.
    open: Vec<(ValueId, bool)>,
    /// Whether something is on both sides.
    is_torn: bool,
}

impl Sides {
    /// Puts a node on a side of the group; whether it is new there.
    fn enter(&mut self, id: NodeId, side: bool, group: &mut Group) -> bool {
        match self.nodes.insert(id, side) {
            None => {
                group.sides[usize::from(side)].push(id);
                true
            }
            Some(known) => {
                group.is_torn |= known != side;
                false
            }
        }
    }
}

fn sorted(mut ids: Vec<NodeId>) -> Vec<NodeId> {
    ids.sort_unstable();
    ids
}
