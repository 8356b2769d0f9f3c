//! `Graph`: nodes and values in arenas, in an order that can be run.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use planish_op::infer::{Content, InferError, InferInput, Inference, Inferred, MAX_RANK};
use planish_op::{Op, ValueType};
use planish_tensor::{DType, Dim, Shape, Tensor};

use crate::control;
use crate::id::{NodeId, ValueId};
use crate::knowledge::Knowledge;

/// What is known of one value.
#[derive(Clone, Debug)]
pub struct ValueInfo {
    pub name: Box<str>,
    pub ty: ValueType,
    /// Constant elements, or integers that follow from symbolic dimensions.
    pub content: Option<Content>,
    /// The node that makes it; `None` for graph inputs and constants.
    pub producer: Option<NodeId>,
}

impl ValueInfo {
    /// The elements of a constant.
    pub fn constant(&self) -> Option<&Tensor> {
        match &self.content {
            Some(Content::Tensor(tensor)) if self.producer.is_none() => Some(tensor),
            _ => None,
        }
    }
}

/// One operation.
///
/// A node with bodies (control flow) takes the values that its bodies use from outside as trailing inputs;
/// each body lists them as trailing inputs too, the same for all bodies of the node. So the inputs of a node
/// are all that it reads.
#[derive(Clone, Debug)]
pub struct Node {
    pub name: Box<str>,
    pub op: Op,
    pub inputs: Vec<Option<ValueId>>,
    /// `None` where an output is not wanted.
    pub outputs: Vec<Option<ValueId>>,
    pub bodies: Vec<Graph>,
    /// How many of `inputs`, counted from the end, are captured by the bodies.
    pub n_captured: usize,
}

/// A node that is to be added.
#[derive(Clone, Debug)]
pub struct NewNode {
    pub name: Box<str>,
    pub op: Op,
    pub inputs: Vec<Option<ValueId>>,
    pub outputs: Vec<NewOutput>,
    pub bodies: Vec<Graph>,
    pub n_captured: usize,
}

/// An output of a node that is to be added.
#[derive(Clone, Debug)]
pub enum NewOutput {
    /// Not wanted.
    Skip,
    /// A new value; what its type is known to be beyond inference, if anything.
    Value { name: Box<str>, declared: Declared },
}

/// What is known of a type before inference.
#[derive(Clone, Debug)]
pub enum Declared {
    Nothing,
    /// Gives the rank where inference leaves it open; sizes are not believed.
    Hint(ValueType),
    /// Replaces what inference says, if compatible: the text form prints final types.
    Exact(ValueType),
    /// The type that the value had before its graph was rebuilt: its symbols stay, and what inference has
    /// found out since is taken over.
    Before(ValueType),
}

impl NewNode {
    /// A node without bodies whose outputs are all wanted.
    pub fn new(name: &str, op: impl Into<Op>, inputs: Vec<Option<ValueId>>, outputs: &[&str]) -> NewNode {
        let outputs = outputs
            .iter()
            .map(|&name| NewOutput::Value { name: name.into(), declared: Declared::Nothing })
            .collect();
        NewNode { name: name.into(), op: op.into(), inputs, outputs, bodies: Vec::new(), n_captured: 0 }
    }
}

/// A node, in a graph or on its way there, as inference sees it.
#[derive(Clone, Copy)]
pub(crate) struct NodeParts<'a> {
    pub(crate) name: &'a str,
    pub(crate) op: &'a Op,
    pub(crate) inputs: &'a [Option<ValueId>],
    pub(crate) n_outputs: usize,
    pub(crate) bodies: &'a [Graph],
    pub(crate) n_captured: usize,
}

/// A function from inputs to outputs.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub name: String,
    pub(crate) nodes: Vec<Node>,
    pub(crate) values: Vec<ValueInfo>,
    pub(crate) by_name: HashMap<Box<str>, ValueId>,
    pub(crate) inputs: Vec<ValueId>,
    pub(crate) outputs: Vec<ValueId>,
    pub(crate) n_fresh_symbols: usize,
    pub(crate) knowledge: Knowledge,
}

/// Sequences and optionals within one another; ONNX goes no further than an optional sequence. The limit keeps
/// everything that recurses over types from recursing without end.
const MAX_NESTED_TYPES: usize = 8;

/// Why a graph could not be built or is not valid.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GraphErrorKind {
    /// Two values with one name.
    DuplicateName,
    /// More nodes or values than ids.
    TooManyValues,
    /// The operator refuses its inputs.
    Infer(InferError),
    /// Bodies, captured values and arity of a control-flow node do not fit.
    BadBody(String),
    /// A broken invariant found by `verify`.
    Invalid(String),
}

/// A graph that could not be built or is not valid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GraphError {
    kind: GraphErrorKind,
    place: String,
}

impl GraphError {
    pub(crate) fn new(kind: GraphErrorKind, place: impl Into<String>) -> GraphError {
        GraphError { kind, place: place.into() }
    }

    /// The same error seen from outside: in the body of a node.
    pub(crate) fn inside(self, outer: &str) -> GraphError {
        GraphError { kind: self.kind, place: format!("{outer}/{}", self.place) }
    }

    pub fn kind(&self) -> &GraphErrorKind {
        &self.kind
    }

    /// The node or value concerned.
    pub fn place(&self) -> &str {
        &self.place
    }
}

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            GraphErrorKind::DuplicateName => write!(f, "two values are called `{}`", self.place),
            GraphErrorKind::TooManyValues => write!(f, "more values or nodes than a graph can hold"),
            GraphErrorKind::Infer(error) if self.place.is_empty() => write!(f, "{error}"),
            GraphErrorKind::Infer(error) => write!(f, "node `{}`: {error}", self.place),
            GraphErrorKind::BadBody(detail) | GraphErrorKind::Invalid(detail) => {
                write!(f, "`{}`: {detail}", self.place)
            }
        }
    }
}

impl std::error::Error for GraphError {}

impl Graph {
    pub fn new(name: &str) -> Graph {
        Graph { name: name.to_string(), ..Graph::default() }
    }

    /// A graph for a body: its fresh symbols start after the outer graph's, so that they do not meet.
    pub fn body(name: &str, outer: &Graph) -> Graph {
        let Graph { n_fresh_symbols, knowledge, .. } = *outer;
        Graph { name: name.to_string(), n_fresh_symbols, knowledge, ..Graph::default() }
    }

    /// An empty graph whose fresh symbols are numbered from `n_fresh_symbols`: to rebuild another one into,
    /// whose symbols stay.
    pub fn numbered_from(name: &str, n_fresh_symbols: usize) -> Graph {
        Graph { name: name.to_string(), n_fresh_symbols, ..Graph::default() }
    }

    /// Above the number of every fresh symbol of this graph.
    pub fn n_fresh_symbols(&self) -> usize {
        self.n_fresh_symbols
    }

    /// All nodes, in an order that can be run.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(idx, node)| (node_id(idx), node))
    }

    /// All values, in order of their making.
    pub fn values(&self) -> impl ExactSizeIterator<Item = (ValueId, &ValueInfo)> {
        self.values.iter().enumerate().map(|(idx, value)| (value_id(idx), value))
    }

    /// The node with this id; ids come from this graph.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The value with this id; ids come from this graph.
    pub fn value(&self, id: ValueId) -> &ValueInfo {
        &self.values[id.index()]
    }

    pub fn find(&self, name: &str) -> Option<ValueId> {
        self.by_name.get(name).copied()
    }

    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
    }

    pub fn set_outputs(&mut self, outputs: Vec<ValueId>) {
        self.outputs = outputs;
    }

    /// Puts the inputs into another order, or lets some go; they must be inputs of this graph.
    pub fn set_inputs(&mut self, inputs: Vec<ValueId>) {
        self.inputs = inputs;
    }

    pub fn add_input(&mut self, name: &str, ty: ValueType) -> Result<ValueId, GraphError> {
        let id = self.add_value(ValueInfo { name: name.into(), ty, content: None, producer: None })?;
        self.inputs.push(id);
        Ok(id)
    }

    /// An input of a body whose contents are known outside (a captured constant, say).
    pub fn add_known_input(
        &mut self,
        name: &str,
        ty: ValueType,
        content: Option<Content>,
    ) -> Result<ValueId, GraphError> {
        // A constant tensor would make the input a constant; only symbolic knowledge is kept.
        let content = content.filter(|content| matches!(content, Content::Ints(_) | Content::Grid(_)));
        let Inferred { ty, content } = self.knowledge.keep(Inferred { ty, content });
        let id = self.add_input(name, ty)?;
        self.values[id.index()].content = content;
        Ok(id)
    }

    pub fn add_constant(&mut self, name: &str, tensor: Tensor) -> Result<ValueId, GraphError> {
        let ty = ValueType::tensor(tensor.dtype(), Shape::from(tensor.shape()));
        let content = Some(Content::Tensor(tensor));
        self.add_value(ValueInfo { name: name.into(), ty, content, producer: None })
    }

    /// Gives a constant other elements of its own type and sizes; nothing happens, and `false` is given, where it is none. Types
    /// that were inferred from the old elements stay: this is for weights.
    pub fn set_elements(&mut self, id: ValueId, tensor: Tensor) -> bool {
        let value = &mut self.values[id.index()];
        let same = |old: &Tensor| (old.dtype(), old.shape()) == (tensor.dtype(), tensor.shape());
        let is_fit = value.constant().is_some_and(same);
        if is_fit {
            value.content = Some(Content::Tensor(tensor));
        }
        is_fit
    }

    /// Adds a node after all others and infers its outputs.
    pub fn add_node(&mut self, new: NewNode) -> Result<NodeId, GraphError> {
        let id = NodeId::from_index(self.nodes.len())
            .ok_or_else(|| GraphError::new(GraphErrorKind::TooManyValues, &*new.name))?;
        let inferred = self.infer_new(&new)?;
        let NewNode { name, op, inputs, outputs, bodies, n_captured } = new;
        for body in &bodies {
            self.n_fresh_symbols = self.n_fresh_symbols.max(body.n_fresh_symbols);
            self.knowledge.after(body.knowledge);
        }
        let mut output_ids = Vec::with_capacity(outputs.len());
        for (output, inferred) in outputs.into_iter().zip(inferred) {
            let NewOutput::Value { name: value_name, declared } = output else {
                output_ids.push(None);
                continue;
            };
            let Inferred { ty, content } = self.knowledge.keep(inferred);
            let ty = match declared {
                Declared::Nothing => ty,
                Declared::Hint(hint) => {
                    control::ranked(ty, &hint, &mut |hint| fresh_symbol(hint, &mut self.n_fresh_symbols))
                }
                Declared::Exact(exact) if control::compatible(&ty, &exact) => exact,
                Declared::Before(before) if control::compatible(&ty, &before) => control::refine(before, ty),
                Declared::Exact(declared) | Declared::Before(declared) => {
                    let detail = format!("output `{value_name}` is declared {declared}, inference says {ty}");
                    return Err(GraphError::new(GraphErrorKind::Invalid(detail), &*name));
                }
            };
            let info = ValueInfo { name: value_name, ty, content, producer: Some(id) };
            output_ids.push(Some(self.add_value(info)?));
        }
        self.nodes.push(Node { name, op, inputs, outputs: output_ids, bodies, n_captured });
        Ok(id)
    }

    fn infer_new(&mut self, new: &NewNode) -> Result<Vec<Inferred>, GraphError> {
        if let Some(known) = declared_outputs(new) {
            return Ok(known);
        }
        let parts = NodeParts {
            name: &new.name,
            op: &new.op,
            inputs: &new.inputs,
            n_outputs: new.outputs.len(),
            bodies: &new.bodies,
            n_captured: new.n_captured,
        };
        let values = new.inputs.iter().flatten().map(|id| &self.values[id.index()]);
        let sees_contents = self.knowledge.read(values.map(|value| (&value.ty, value.content.as_ref())));
        let mut n_fresh = self.n_fresh_symbols;
        let inferred = self.infer_parts(parts, sees_contents, &mut n_fresh)?;
        self.n_fresh_symbols = n_fresh;
        Ok(inferred)
    }

    /// What inference says of a node over this graph's values: at least one entry per output.
    pub(crate) fn infer_parts(
        &self,
        node: NodeParts<'_>,
        sees_contents: bool,
        n_fresh: &mut usize,
    ) -> Result<Vec<Inferred>, GraphError> {
        let inputs: Vec<Option<InferInput<'_>>> = node
            .inputs
            .iter()
            .map(|id| {
                id.map(|id| {
                    let value = &self.values[id.index()];
                    InferInput { ty: &value.ty, content: value.content.as_ref().filter(|_| sees_contents) }
                })
            })
            .collect();
        let mut fresh = |hint: &str| fresh_symbol(hint, n_fresh);
        let inferred = if control::has_bodies(node.op) {
            control::infer(node, &inputs, &mut fresh)?
        } else if !node.bodies.is_empty() || node.n_captured != 0 {
            let detail = format!("{} takes no bodies and captures nothing", node.op.name());
            return Err(GraphError::new(GraphErrorKind::BadBody(detail), node.name));
        } else {
            let mut cx = Inference::new(node.op.name(), &inputs, node.n_outputs, &mut fresh);
            planish_op::infer(node.op, &mut cx)
                .map_err(|error| GraphError::new(GraphErrorKind::Infer(error), node.name))?
        };
        if inferred.len() < node.n_outputs {
            let detail =
                format!("{} has {} outputs, {} are used", node.op.name(), inferred.len(), node.n_outputs);
            return Err(GraphError::new(GraphErrorKind::Invalid(detail), node.name));
        }
        Ok(inferred)
    }

    /// A dimension that no other value of this graph has.
    pub fn fresh_dim(&mut self, hint: &str) -> Dim {
        fresh_symbol(hint, &mut self.n_fresh_symbols)
    }

    fn add_value(&mut self, info: ValueInfo) -> Result<ValueId, GraphError> {
        if let Some(detail) = beyond_limits(&info.ty) {
            return Err(GraphError::new(GraphErrorKind::Invalid(detail), &*info.name));
        }
        let too_many = || GraphError::new(GraphErrorKind::TooManyValues, &*info.name);
        let id = ValueId::from_index(self.values.len()).ok_or_else(too_many)?;
        match self.by_name.entry(info.name.clone()) {
            Entry::Occupied(_) => return Err(GraphError::new(GraphErrorKind::DuplicateName, &*info.name)),
            Entry::Vacant(entry) => entry.insert(id),
        };
        self.values.push(info);
        Ok(id)
    }
}

/// What is too much about a type, if anything.
fn beyond_limits(ty: &ValueType) -> Option<String> {
    let mut inner = ty;
    for _ in 0..=MAX_NESTED_TYPES {
        match inner {
            ValueType::Sequence(element) | ValueType::Optional(element) => inner = element,
            ValueType::Tensor(tensor) => {
                let rank = tensor.rank().filter(|&rank| rank > MAX_RANK)?;
                return Some(format!(
                    "a tensor of more than {MAX_RANK} dimensions ({rank}) is not supported"
                ));
            }
        }
    }
    Some(format!("sequences and optionals nest deeper than {MAX_NESTED_TYPES} levels"))
}

/// The outputs of a plugin's node whose types are all given: without the plugin there is nothing to ask.
fn declared_outputs(new: &NewNode) -> Option<Vec<Inferred>> {
    if !planish_op::plugin::is_missing(&new.op) || !new.bodies.is_empty() || new.n_captured != 0 {
        return None;
    }
    let known = |output: &NewOutput| match output {
        NewOutput::Value { declared: Declared::Exact(ty), .. } => Some(ty.clone()),
        // The type of an output that nobody reads does not matter.
        NewOutput::Skip => Some(ValueType::unranked(DType::F32)),
        NewOutput::Value { .. } => None,
    };
    new.outputs.iter().map(|output| Some(Inferred { ty: known(output)?, content: None })).collect()
}

/// Names of fresh symbols carry a `'`, which no identifier of an exporter has, and a running number.
fn fresh_symbol(hint: &str, n_fresh: &mut usize) -> Dim {
    let dim = Dim::symbol(&format!("{hint}'{n_fresh}"));
    *n_fresh += 1;
    dim
}

fn node_id(idx: usize) -> NodeId {
    NodeId::from_index(idx).expect("add_node refused indices beyond the ids")
}

fn value_id(idx: usize) -> ValueId {
    ValueId::from_index(idx).expect("add_value refused indices beyond the ids")
}
