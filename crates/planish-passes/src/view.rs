//! What a rule sees: the graph, who reads which value, and what is known of elements and shapes.

use planish_ir::{Graph, Node, NodeId, ValueId};
use planish_op::infer::Content;
use planish_tensor::{DType, Dim, Shape, Tensor};

/// One graph (or one body), with an index from values to their readers.
#[derive(Debug)]
pub struct View<'g> {
    graph: &'g Graph,
    /// The readers of value `i` are `readers[starts[i]..starts[i + 1]]`.
    readers: Vec<NodeId>,
    starts: Vec<usize>,
    is_output: Vec<bool>,
    is_input: Vec<bool>,
}

impl<'g> View<'g> {
    pub fn new(graph: &'g Graph) -> View<'g> {
        let n_values = graph.values().len();
        let mut starts = vec![0; n_values + 1];
        for (_, node) in graph.nodes() {
            node.inputs.iter().flatten().for_each(|id| starts[id.index() + 1] += 1);
        }
        for idx in 0..n_values {
            starts[idx + 1] += starts[idx];
        }
        let mut next = starts.clone();
        let mut readers: Vec<Option<NodeId>> = vec![None; starts[n_values]];
        for (node_id, node) in graph.nodes() {
            for id in node.inputs.iter().flatten() {
                readers[next[id.index()]] = Some(node_id);
                next[id.index()] += 1;
            }
        }
        let mut is_output = vec![false; n_values];
        graph.outputs().iter().for_each(|id| is_output[id.index()] = true);
        let mut is_input = vec![false; n_values];
        graph.inputs().iter().for_each(|id| is_input[id.index()] = true);
        View { graph, readers: readers.into_iter().flatten().collect(), starts, is_output, is_input }
    }

    pub fn graph(&self) -> &'g Graph {
        self.graph
    }

    pub fn node(&self, id: NodeId) -> &'g Node {
        self.graph.node(id)
    }

    /// The name of a value.
    pub fn name(&self, id: ValueId) -> &'g str {
        &self.graph.value(id).name
    }

    /// What users know a node by: its name, or that of what it makes if it has none.
    pub fn label(&self, node: &'g Node) -> &'g str {
        match node.outputs.iter().flatten().next() {
            Some(output) if node.name.is_empty() => self.name(*output),
            _ => &node.name,
        }
    }

    /// The node that makes a value, none for inputs and constants.
    pub fn producer(&self, id: ValueId) -> Option<(NodeId, &'g Node)> {
        let node = self.graph.value(id).producer?;
        Some((node, self.graph.node(node)))
    }

    /// Who reads a value, in order; a node that reads it twice is listed twice.
    pub fn readers(&self, id: ValueId) -> &[NodeId] {
        &self.readers[self.starts[id.index()]..self.starts[id.index() + 1]]
    }

    /// Whether a value is an output of the graph.
    pub fn is_output(&self, id: ValueId) -> bool {
        self.is_output[id.index()]
    }

    /// Whether a value is an input of the graph.
    pub fn is_input(&self, id: ValueId) -> bool {
        self.is_input[id.index()]
    }

    /// The one node that reads a value, once; `None` if others do or the value is an output.
    pub fn sole_reader(&self, id: ValueId) -> Option<(NodeId, &'g Node)> {
        match self.readers(id) {
            &[reader] if !self.is_output(id) => Some((reader, self.graph.node(reader))),
            _ => None,
        }
    }

    /// Whether a value could take the name of a graph output: it is not an input, constant or other output.
    pub fn can_become_output(&self, id: ValueId) -> bool {
        self.graph.value(id).producer.is_some() && !self.is_output(id)
    }

    /// Input `idx` of a node, if it is there.
    pub fn input(&self, node: &Node, idx: usize) -> Option<ValueId> {
        node.inputs.get(idx).copied().flatten()
    }

    /// The elements of a constant.
    pub fn constant(&self, id: ValueId) -> Option<&'g Tensor> {
        self.graph.value(id).constant()
    }

    /// The elements of a constant input of a node.
    pub fn constant_input(&self, node: &Node, idx: usize) -> Option<&'g Tensor> {
        self.constant(self.input(node, idx)?)
    }

    /// The only integer of a constant input of a node.
    pub fn number_input(&self, node: &Node, idx: usize) -> Option<i64> {
        match self.constant_input(node, idx)?.to_i64s()[..] {
            [number] => Some(number),
            _ => None,
        }
    }

    /// The number that a constant holds once, or in all of its elements.
    pub fn splat(&self, id: ValueId) -> Option<f64> {
        let tensor = self.constant(id)?;
        let (bytes, bits) = (tensor.bytes(), tensor.dtype().bits());
        if tensor.len() == 1 {
            return tensor.to_f64s().first().copied();
        }
        let width = (bits % 8 == 0).then_some(bits / 8)?;
        let first = bytes.slice(0..width)?;
        if !bytes.chunks_exact(width).all(|chunk| chunk == &first[..]) {
            return None;
        }
        Tensor::from_bytes(tensor.dtype(), &[], first).ok()?.to_f64s().first().copied()
    }

    /// The integers that a value is known to hold: those of a constant, or what follows from shapes.
    pub fn ints(&self, id: ValueId) -> Option<Vec<i64>> {
        match self.graph.value(id).content.as_ref()? {
            Content::Tensor(tensor) if tensor.dtype().is_int() => Some(tensor.to_i64s()),
            Content::Tensor(_) => None,
            Content::Ints(ints) => ints.dims.iter().map(Dim::as_const).collect(),
            Content::Grid(dims) => dims.iter().map(Dim::as_const).collect(),
        }
    }

    /// The integers, numbers or symbolic, of a value of rank 0 or 1.
    pub fn dims(&self, id: ValueId) -> Option<Vec<Dim>> {
        match self.graph.value(id).content.as_ref()? {
            Content::Tensor(tensor) if tensor.dtype().is_int() && tensor.rank() <= 1 => {
                Some(tensor.to_i64s().into_iter().map(Dim::from).collect())
            }
            Content::Ints(ints) => Some(ints.dims.clone()),
            Content::Tensor(_) | Content::Grid(_) => None,
        }
    }

    /// The element type of a tensor.
    pub fn dtype(&self, id: ValueId) -> Option<DType> {
        Some(self.graph.value(id).ty.as_tensor()?.dtype)
    }

    /// The shape of a tensor whose rank is known.
    pub fn shape(&self, id: ValueId) -> Option<&'g Shape> {
        self.graph.value(id).ty.as_tensor()?.shape.as_ref()
    }

    /// The shape of a tensor whose dimensions are all numbers.
    pub fn fixed_shape(&self, id: ValueId) -> Option<Vec<usize>> {
        self.shape(id)?.as_fixed()
    }

    pub fn rank(&self, id: ValueId) -> Option<usize> {
        self.shape(id).map(Shape::rank)
    }

    /// Whether two tensors are known to have the same type and shape.
    pub fn same_type(&self, a: ValueId, b: ValueId) -> bool {
        let (Some(a_shape), Some(b_shape)) = (self.shape(a), self.shape(b)) else { return false };
        self.dtype(a) == self.dtype(b) && a_shape == b_shape && !a_shape.iter().any(Dim::is_unknown)
    }
}
