//! What a pass says: a rule looks at a node and proposes a patch, says no, or says why it may not.
//!
//! A rule never edits. It reads through a [`View`] and describes in a [`Patch`] which values can be had in
//! another way; the driver puts the patches in. The one promise of a patch is that every replaced value has
//! the same elements as before (within rounding, where the pass says so): then any set of patches that were
//! made from one graph can be put in together.

use std::borrow::Cow;

use planish_ir::{Graph, Node, NodeId, ValueId};
use planish_op::{Op, TensorType, ValueType};
use planish_tensor::{DType, Tensor};

use crate::view::View;

/// What a rule has to say about one node.
#[derive(Debug)]
pub enum Match {
    /// Put this in.
    Rewrite(Patch),
    /// The node is not what the rule looks for.
    No,
    /// The node is what the rule looks for, but a precondition does not hold. Said by `--explain`, so it is a
    /// sentence for the owner of the model: "the sum is read by another node too".
    Blocked(Cow<'static, str>),
}

impl Match {
    /// A refusal with a reason made for the case.
    pub fn blocked(reason: impl Into<Cow<'static, str>>) -> Match {
        Match::Blocked(reason.into())
    }
}

/// A rewrite that can be decided by looking around one node.
pub trait Rule: Sync {
    /// Verb and object, as the file is called: `remove_identity`.
    fn name(&self) -> &'static str;

    /// The patch for `node`, which every rewrite of this rule belongs to exactly one of.
    fn try_at(&self, cx: &View<'_>, node: NodeId) -> Match;
}

/// A rewrite that looks at the whole graph at once (constants along chains, equal nodes).
pub trait Sweep: Sync {
    /// Verb and object, as the file is called.
    fn name(&self) -> &'static str;

    /// All patches and refusals for the graph as it is.
    fn propose(&self, cx: &View<'_>, proposals: &mut Proposals);
}

/// What one look at a graph has brought up, in order.
#[derive(Debug, Default)]
pub struct Proposals {
    pub(crate) patches: Vec<(NodeId, Patch)>,
    pub(crate) refusals: Vec<(NodeId, Cow<'static, str>)>,
}

impl Proposals {
    /// Adds what a rule said about a node.
    pub fn add(&mut self, node: NodeId, found: Match) {
        match found {
            Match::Rewrite(patch) => self.patches.push((node, patch)),
            Match::No => {}
            Match::Blocked(reason) => self.refusals.push((node, reason)),
        }
    }
}

/// A value in a patch: one that the graph has, or one that the patch makes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    Old(ValueId),
    New(NewValue),
}

/// A value that a patch makes; belongs to that patch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NewValue {
    /// The index of its maker in [`Patch::items`].
    pub(crate) item: usize,
    pub(crate) output: usize,
}

impl From<ValueId> for Operand {
    fn from(id: ValueId) -> Operand {
        Operand::Old(id)
    }
}

/// Something new in a patch.
#[derive(Debug)]
pub(crate) enum Item {
    Constant {
        name: Box<str>,
        tensor: Tensor,
    },
    Node {
        name: Box<str>,
        op: Box<Op>,
        inputs: Vec<Option<Operand>>,
        n_outputs: usize,
        /// Of control flow alone.
        bodies: Bodies,
    },
}

/// What a node of control flow has beside its operands.
#[derive(Debug, Default)]
pub(crate) struct Bodies {
    pub(crate) graphs: Vec<Graph>,
    /// How many of the node's inputs, counted from the end, the bodies capture.
    pub(crate) n_captured: usize,
}

/// New nodes and constants, and the old values that they stand for. Nodes that nothing reads any more need
/// no mention: the driver drops them.
#[derive(Debug, Default)]
pub struct Patch {
    pub(crate) items: Vec<Item>,
    pub(crate) replace: Vec<(ValueId, Operand)>,
    /// Types of new values that are known before inference.
    pub(crate) known: Vec<(Operand, ValueType)>,
    /// Names of new values that are not those of their nodes.
    pub(crate) called: Vec<(Operand, Box<str>)>,
    pub(crate) relies_on: Vec<NodeId>,
}

impl Patch {
    pub fn new() -> Patch {
        Patch::default()
    }

    /// The patch that has `with` wherever `old` was read.
    pub fn replacing(old: ValueId, with: impl Into<Operand>) -> Patch {
        let mut patch = Patch::new();
        patch.replace(old, with);
        patch
    }

    /// Names a new value apart from its node. The name is a wish, and what takes the place of an old value has that one's.
    pub fn call(&mut self, value: Operand, name: &str) {
        self.called.push((value, name.into()));
    }

    /// Names the new node that makes a value.
    pub(crate) fn name_node(&mut self, value: Operand, to: &str) {
        if let Operand::New(value) = value
            && let Some(Item::Node { name, .. }) = self.items.get_mut(value.item)
        {
            *name = to.into();
        }
    }

    /// A new constant. The name is a wish: a taken one gets a number after it.
    pub fn constant(&mut self, name: &str, tensor: Tensor) -> Operand {
        self.items.push(Item::Constant { name: name.into(), tensor });
        self.last(0)
    }

    /// A new node with one output. The name is that of the main node which it stands for: profiles show it.
    pub fn node(&mut self, name: &str, op: impl Into<Op>, inputs: &[Operand]) -> Operand {
        self.node_with(name, op, inputs.iter().copied().map(Some).collect(), 1);
        self.last(0)
    }

    /// A new node with absent inputs or several outputs.
    pub fn node_with(
        &mut self,
        name: &str,
        op: impl Into<Op>,
        inputs: Vec<Option<Operand>>,
        n_outputs: usize,
    ) -> Vec<Operand> {
        self.node_with_bodies(name, op, inputs, n_outputs, Bodies::default())
    }

    /// A new node of control flow.
    pub(crate) fn node_with_bodies(
        &mut self,
        name: &str,
        op: impl Into<Op>,
        inputs: Vec<Option<Operand>>,
        n_outputs: usize,
        bodies: Bodies,
    ) -> Vec<Operand> {
        self.items.push(Item::Node { name: name.into(), op: Box::new(op.into()), inputs, n_outputs, bodies });
        (0..n_outputs).map(|output| self.last(output)).collect()
    }

    /// The same node with other inputs, in its place.
    pub fn with_inputs(&mut self, cx: &View<'_>, node: &Node, inputs: Vec<Option<Operand>>) {
        let made = self.node_with(&node.name, node.op.clone(), inputs, node.outputs.len());
        for (old, new) in node.outputs.iter().zip(made) {
            let Some(old) = *old else { continue };
            if let Some(dtype) = cx.dtype(old) {
                self.has_shape_of(cx, new, dtype, old);
            }
            self.replace(old, new);
        }
    }

    /// Has `with` wherever `old` was read, graph outputs included. A value that the patch makes takes over
    /// the name of the first value that it replaces.
    pub fn replace(&mut self, old: ValueId, with: impl Into<Operand>) {
        self.replace.push((old, with.into()));
    }

    /// Says that a new value has the shape of an old one, so that sizes which only a run can tell keep their names:
    /// other values' sizes may be said in these.
    pub fn has_shape_of(&mut self, cx: &View<'_>, new: Operand, dtype: DType, old: ValueId) {
        if let Some(shape) = cx.shape(old) {
            self.known.push((new, ValueType::Tensor(TensorType::new(dtype, shape.clone()))));
        }
    }

    /// Says that the patch pays off only if no other patch of this sweep is put in at `node`. The node that a
    /// rule was asked about and the makers of the replaced values are taken care of already.
    pub fn relies_on(&mut self, node: NodeId) {
        self.relies_on.push(node);
    }

    fn last(&self, output: usize) -> Operand {
        Operand::New(NewValue { item: self.items.len().saturating_sub(1), output })
    }
}
