//! `Net`: a graph under construction, with weights drawn as layers ask for them.

use planish_ir::{Graph, NewNode, ValueId};
use planish_op::{Op, ValueType};
use planish_tensor::{DType, Dim, Shape, Tensor};

use crate::error::{ZooError, ZooErrorKind};
use crate::weights::{self, Spread};

/// What a layer hands on.
pub(crate) type Made = Result<ValueId, ZooError>;

/// A graph under construction.
pub(crate) struct Net {
    graph: Graph,
    seed: u64,
    n_parameters: usize,
}

impl Net {
    pub(crate) fn new(name: &str, seed: u64) -> Net {
        Net { graph: Graph::new(name), seed, n_parameters: 0 }
    }

    /// The graph with this output, and the number of its parameters.
    pub(crate) fn finish(mut self, out: ValueId) -> (Graph, usize) {
        self.graph.set_outputs(vec![out]);
        (self.graph, self.n_parameters)
    }

    /// An input with a dynamic batch before `dims`.
    pub(crate) fn input(&mut self, name: &str, dtype: DType, dims: &[usize]) -> Made {
        let dims: Vec<Dim> = dims.iter().map(|&dim| Dim::from(dim)).collect();
        self.input_of(name, dtype, &dims)
    }

    /// The same with dimensions that may be symbols too.
    pub(crate) fn input_of(&mut self, name: &str, dtype: DType, dims: &[Dim]) -> Made {
        let batch = std::iter::once(Dim::symbol("batch"));
        let shape = Shape::new(batch.chain(dims.iter().cloned()).collect());
        let added = self.graph.add_input(name, ValueType::tensor(dtype, shape));
        added.map_err(|error| ZooError::new(ZooErrorKind::Graph(error), name))
    }

    /// A node whose one output has its name.
    pub(crate) fn op(&mut self, name: &str, op: impl Into<Op>, inputs: &[ValueId]) -> Made {
        self.op_with(name, op, inputs.iter().map(|&id| Some(id)).collect())
    }

    /// The same with inputs that are left out.
    pub(crate) fn op_with(&mut self, name: &str, op: impl Into<Op>, inputs: Vec<Option<ValueId>>) -> Made {
        let broken = |error| ZooError::new(ZooErrorKind::Graph(error), name);
        self.graph.add_node(NewNode::new(name, op, inputs, &[name])).map_err(broken)?;
        // The node was added with one output of this name.
        self.graph.find(name).ok_or_else(|| ZooError::unknown(name))
    }

    /// Trained numbers.
    pub(crate) fn parameter(&mut self, name: &str, shape: &[usize], spread: Spread) -> Made {
        self.n_parameters += shape.iter().product::<usize>();
        self.statistic(name, shape, spread)
    }

    /// Numbers that come from data but are no parameters.
    pub(crate) fn statistic(&mut self, name: &str, shape: &[usize], spread: Spread) -> Made {
        let n = shape.iter().product();
        let tensor = Tensor::new(shape, weights::draw(self.seed, name, n, spread));
        let tensor = tensor.map_err(|error| ZooError::new(ZooErrorKind::Weight(error), name))?;
        self.constant(name, tensor)
    }

    /// A vector of integers (a shape, axes); the same numbers are one constant.
    pub(crate) fn ints(&mut self, values: &[i64]) -> Made {
        let text: Vec<String> = values.iter().map(i64::to_string).collect();
        self.shared(&format!("ints_{}", text.join("_")), || Tensor::vector(values.to_vec()))
    }

    /// An integer of rank 0.
    pub(crate) fn int(&mut self, value: i64) -> Made {
        self.shared(&format!("int_{value}"), || Tensor::scalar(value))
    }

    /// A number of rank 0.
    pub(crate) fn number(&mut self, value: f32) -> Made {
        self.shared(&format!("number_{value}"), || Tensor::scalar(value))
    }

    /// A constant that is used under one name wherever it is wanted.
    pub(crate) fn shared(&mut self, name: &str, make: impl FnOnce() -> Tensor) -> Made {
        match self.graph.find(name) {
            Some(id) => Ok(id),
            None => self.constant(name, make()),
        }
    }

    fn constant(&mut self, name: &str, tensor: Tensor) -> Made {
        let added = self.graph.add_constant(name, tensor);
        added.map_err(|error| ZooError::new(ZooErrorKind::Graph(error), name))
    }
}
