//! `NetworkBuilder`: a network defined by hand, layer by layer, with types and shapes known at every call.

mod advice;
mod body;
mod layers;
mod movement;
mod norms;
mod operand;
#[cfg(test)]
mod tests;
mod window;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use planish_ir::{Graph, GraphError, NewNode, ValueId};
use planish_op::{Attribute, Op, ValueType};
use planish_tensor::{DType, Shape, Tensor};

use crate::{Error, ErrorKind};

pub use body::Body;
pub use layers::Heads;
pub use operand::{IntoShape, Operand};
pub use window::Window;

/// A value of a network under construction: what a layer gives, and what further layers take.
/// [`NetworkBuilder`] has examples.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Wire {
    network: u64,
    id: ValueId,
}

/// Tells the wires of networks apart.
static N_NETWORKS: AtomicU64 = AtomicU64::new(0);

/// A network that is defined by hand.
///
/// Every layer is a method that takes wires and gives one; its type and shape are inferred at once, symbolic sizes
/// included, and what does not fit is refused with the layer's name, the shapes it met and what to try. Where a
/// layer takes parameters, a [`Tensor`] or a number may stand in place of a wire.
///
/// ```
/// use planish::{Builder, DType, Device, Engine, NetworkBuilder, Tensor, View, Window};
///
/// let mut net = NetworkBuilder::new("digits");
/// let x = net.input("x", DType::F32, "batch,1,8,8")?;
/// let y = net.named("stem").conv(x, Tensor::new(&[4, 1, 3, 3], vec![0.1f32; 36])?, None, Window::new().pad(1))?;
/// let y = net.relu(y)?;
/// let y = net.max_pool(y, Window::of(&[2, 2]).stride(2))?;
/// assert_eq!(net.type_of(y)?.to_string(), "f32[batch,4,4,4]");
/// let y = net.flatten(y, 1)?;
/// let y = net.named("head").linear(y, Tensor::new(&[10, 64], vec![0.01f32; 640])?, None)?;
/// let y = net.softmax(y, -1)?;
/// net.output("scores", y)?;
///
/// let plan = Builder::from_network(net)?.tune_level(0).build()?;
/// let mut context = Engine::new(plan, Device::Auto)?.context()?;
/// let outputs = context.run(&[("x", View::new(&[2, 1, 8, 8], &vec![1.0f32; 128])?)])?;
/// assert_eq!(outputs.at(0).unwrap().dims(), [2, 10]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A layer is called after its operator (`relu_1`) unless [`named`](NetworkBuilder::named) says otherwise. What has
/// no method of its own is added by [`op`](NetworkBuilder::op), [`op_list`](NetworkBuilder::op_list) or
/// [`op_by_name`](NetworkBuilder::op_by_name): every operator that Planish knows can be reached, in the meaning of
/// the newest ONNX opset.
///
/// ```
/// use planish::op::CumSum;
/// use planish::{DType, NetworkBuilder, Tensor};
///
/// let mut net = NetworkBuilder::new("sums");
/// let x = net.input("x", DType::F32, "n,5")?;
/// let axis = net.constant("axis", Tensor::scalar(1i64))?;
/// let y = net.op(CumSum { reverse: false, exclusive: true }, &[x, axis])?;
/// net.output("sums", y)?;
///
/// let error = net.matmul(y, Tensor::new(&[4, 2], vec![0.0f32; 8])?).unwrap_err();
/// assert!(error.to_string().starts_with("layer `matmul_1`: MatMul: "));
/// assert!(error.to_string().ends_with("`transpose` turns one over"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct NetworkBuilder {
    id: u64,
    graph: Graph,
    /// What the next layer is to be called.
    next_name: Option<String>,
    n_of_kind: HashMap<String, usize>,
    outputs: Vec<ValueId>,
}

impl NetworkBuilder {
    /// An empty network of this name.
    pub fn new(name: &str) -> NetworkBuilder {
        NetworkBuilder::around(Graph::new(name))
    }

    /// An empty network whose symbols do not meet those of a graph that is going to be appended to it.
    pub(crate) fn numbered_from(name: &str, n_fresh_symbols: usize) -> NetworkBuilder {
        NetworkBuilder::around(Graph::numbered_from(name, n_fresh_symbols))
    }

    /// All values' names.
    pub(crate) fn value_names(&self) -> impl Iterator<Item = String> {
        self.graph.values().map(|(_, value)| value.name.to_string())
    }

    /// A whole graph as layers of this network; see [`Graph::append`].
    pub(crate) fn append(
        &mut self,
        graph: &Graph,
        inputs: &[Wire],
        rename: &dyn Fn(&str) -> String,
    ) -> Result<Vec<Wire>, Error> {
        let inputs = inputs.iter().map(|&wire| self.own(wire, "an input")).collect::<Result<Vec<_>, _>>()?;
        let outputs = self.graph.append(graph, &inputs, rename).map_err(advice::of_graph)?;
        Ok(outputs.into_iter().map(|id| self.wire(id)).collect())
    }

    /// A constant under this name, or one like it that is free.
    pub(crate) fn number(&mut self, name: &str, tensor: Tensor) -> Result<Wire, Error> {
        let mut free = name.to_string();
        let mut n = 1;
        while self.graph.find(&free).is_some() {
            n += 1;
            free = format!("{name}_{n}");
        }
        self.constant(&free, tensor)
    }

    fn around(graph: Graph) -> NetworkBuilder {
        NetworkBuilder {
            id: N_NETWORKS.fetch_add(1, Ordering::Relaxed),
            graph,
            next_name: None,
            n_of_kind: HashMap::new(),
            outputs: Vec::new(),
        }
    }

    /// An input of the network. Sizes are numbers or symbols: `"batch,3,224,224"`, `"n,2*n+1"`, `[1, 3, 8, 8]`.
    pub fn input(&mut self, name: &str, dtype: DType, shape: impl IntoShape) -> Result<Wire, Error> {
        let shape = shape.into_shape().map_err(|why| {
            let message =
                format!("input `{name}`: {why}; sizes are numbers and symbols, `batch,3,224,224` for one");
            Error::new(ErrorKind::BadModel, message)
        })?;
        self.input_of(name, ValueType::tensor(dtype, shape))
    }

    /// An input of any type: a tensor of unknown rank, a sequence, an optional.
    ///
    /// ```
    /// use planish::{DType, NetworkBuilder, TensorType, ValueType};
    ///
    /// let mut net = NetworkBuilder::new("any rank");
    /// let x = net.input_of("x", ValueType::Tensor(TensorType { dtype: DType::F32, shape: None }))?;
    /// assert!(net.shape_of(x)?.is_none());
    /// assert_eq!(net.name_of(x)?, "x");
    /// let y = net.relu(x)?;
    /// net.output("y", y)?;
    /// let bytes = net.to_onnx()?;                                          // or save_onnx, into a file
    /// assert!(!bytes.is_empty());
    /// assert_eq!(net.finish()?.outputs().len(), 1);                        // the graph itself
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn input_of(&mut self, name: &str, ty: ValueType) -> Result<Wire, Error> {
        self.free(name, "input")?;
        let id = self.graph.add_input(name, ty).map_err(advice::of_graph)?;
        Ok(self.wire(id))
    }

    /// A constant, under a name of its own.
    pub fn constant(&mut self, name: &str, tensor: Tensor) -> Result<Wire, Error> {
        self.free(name, "constant")?;
        let id = self.graph.add_constant(name, tensor).map_err(advice::of_graph)?;
        Ok(self.wire(id))
    }

    /// Names the next layer.
    pub fn named(&mut self, name: &str) -> &mut NetworkBuilder {
        self.next_name = Some(name.to_string());
        self
    }

    /// A layer of any operator with one output.
    pub fn op(&mut self, op: impl Into<Op>, inputs: &[Wire]) -> Result<Wire, Error> {
        let inputs: Vec<Option<Wire>> = inputs.iter().copied().map(Some).collect();
        self.one(op.into(), &inputs)
    }

    /// A layer of any operator: inputs may be left out, and it may have several outputs.
    ///
    /// ```
    /// use planish::{DType, NetworkBuilder, op};
    ///
    /// let mut net = NetworkBuilder::new("dropout");
    /// let x = net.input("x", DType::F32, "n")?;
    /// let both = net.op_list(op::Dropout { seed: None }, &[Some(x), None, None], 2)?;
    /// assert_eq!(net.type_of(both[1])?.to_string(), "bool[n]");
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn op_list(
        &mut self,
        op: impl Into<Op>,
        inputs: &[Option<Wire>],
        n_outputs: usize,
    ) -> Result<Vec<Wire>, Error> {
        let op = op.into();
        let name = self.layer_name(op.name())?;
        self.layer(&name, op, inputs, n_outputs)
    }

    /// A layer by the ONNX name of its operator, with those attributes that are not at their defaults.
    ///
    /// ```
    /// use planish::op::Attribute;
    /// use planish::{DType, NetworkBuilder, Tensor};
    ///
    /// let mut net = NetworkBuilder::new("best");
    /// let x = net.input("x", DType::F32, "n,100")?;
    /// let k = net.constant("k", Tensor::vector(vec![5i64]))?;
    /// let best = net.op_by_name("TopK", &[("axis", Attribute::Int(1))], &[Some(x), Some(k)], 2)?;
    /// assert_eq!(net.type_of(best[1])?.to_string(), "i64[n,5]");
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn op_by_name(
        &mut self,
        op: &str,
        attributes: &[(&str, Attribute)],
        inputs: &[Option<Wire>],
        n_outputs: usize,
    ) -> Result<Vec<Wire>, Error> {
        let name = self.layer_name(op)?;
        let attributes: Vec<(String, Attribute)> =
            attributes.iter().map(|(key, value)| (key.to_string(), value.clone())).collect();
        let op = Op::from_attributes(op, &attributes).map_err(|error| {
            let message =
                format!("layer `{name}`: {error}; names of operators and attributes are those of ONNX");
            Error::new(ErrorKind::BadModel, message)
        })?;
        self.layer(&name, op, inputs, n_outputs)
    }

    /// Makes a value an output of the network, under this name.
    pub fn output(&mut self, name: &str, wire: Wire) -> Result<(), Error> {
        let id = self.own(wire, &format!("output `{name}`"))?;
        let id = if *self.graph.value(id).name == *name && !self.outputs.contains(&id) {
            id
        } else {
            self.free(name, "output")?;
            let op = planish_op::Identity {}.into();
            self.layer(name, op, &[Some(wire)], 1)?[0].id
        };
        self.outputs.push(id);
        Ok(())
    }

    /// The type of a value, as far as it is known before a run.
    pub fn type_of(&self, wire: Wire) -> Result<&ValueType, Error> {
        Ok(&self.graph.value(self.own(wire, "type_of")?).ty)
    }

    /// The sizes of a tensor, symbols included; nothing where the rank is not known or it is not a tensor.
    /// [`NetworkBuilder::input_of`] has an example.
    pub fn shape_of(&self, wire: Wire) -> Result<Option<&Shape>, Error> {
        Ok(self.type_of(wire)?.as_tensor().and_then(|ty| ty.shape.as_ref()))
    }

    /// What the value is called.
    /// [`NetworkBuilder::input_of`] has an example.
    pub fn name_of(&self, wire: Wire) -> Result<&str, Error> {
        Ok(&self.graph.value(self.own(wire, "name_of")?).name)
    }

    /// The graph that was made, verified; an error where nothing is an output.
    /// [`NetworkBuilder::input_of`] has an example.
    pub fn finish(mut self) -> Result<Graph, Error> {
        self.complete()?;
        Ok(self.graph)
    }

    /// The bytes of an ONNX file of this network.
    /// [`NetworkBuilder::input_of`] has an example.
    pub fn to_onnx(&self) -> Result<Vec<u8>, Error> {
        let mut graph = self.graph.clone();
        graph.set_outputs(self.outputs.clone());
        self.check(&graph)?;
        planish_import::export(&graph).map_err(|error| crate::error::of_import(&error, error.to_string()))
    }

    /// Writes an ONNX file of this network.
    ///
    /// ```no_run
    /// # use planish::{DType, NetworkBuilder};
    /// let mut net = NetworkBuilder::new("double");
    /// let x = net.input("x", DType::F32, "n")?;
    /// let y = net.mul(x, 2.0)?;
    /// net.output("y", y)?;
    /// net.save_onnx("double.onnx")?;
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn save_onnx(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let bytes = self.to_onnx()?;
        let written = planish_files::write(path, |file| std::io::Write::write_all(file, &bytes));
        written.map(drop).map_err(|error| Error::io("write", path, &error))
    }

    fn complete(&mut self) -> Result<(), Error> {
        self.graph.set_outputs(self.outputs.clone());
        self.check(&self.graph)
    }

    fn check(&self, graph: &Graph) -> Result<(), Error> {
        if self.outputs.is_empty() {
            let message =
                format!("network `{}` has no outputs; mark one with `output(name, wire)`", self.graph.name);
            return Err(Error::new(ErrorKind::BadModel, message));
        }
        graph.verify().map_err(|error: GraphError| Error::new(ErrorKind::Failed, error.to_string()))
    }

    fn wire(&self, id: ValueId) -> Wire {
        Wire { network: self.id, id }
    }

    /// The value behind a wire, which must be of this network.
    fn own(&self, wire: Wire, layer: &str) -> Result<ValueId, Error> {
        if wire.network == self.id {
            return Ok(wire.id);
        }
        let message = format!(
            "{layer} of network `{}` is given a value of another network; a body reads outer values through \
             `Body::capture`",
            self.graph.name
        );
        Err(Error::new(ErrorKind::BadModel, message))
    }

    fn free(&self, name: &str, what: &str) -> Result<(), Error> {
        let taken = match name {
            "" => format!("{what}: the name is empty; give it one"),
            _ if self.graph.find(name).is_some() => {
                format!("{what} `{name}`: a value of this name is there already; give it another")
            }
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::BadModel, taken))
    }

    /// The name of the layer to come: what was asked for, or the operator's with a number.
    fn layer_name(&mut self, op: &str) -> Result<String, Error> {
        if let Some(name) = self.next_name.take() {
            self.free(&name, "layer")?;
            return Ok(name);
        }
        let kind = op.to_ascii_lowercase();
        loop {
            let n = self.n_of_kind.entry(kind.clone()).or_default();
            *n += 1;
            let name = format!("{kind}_{n}");
            if self.graph.find(&name).is_none() {
                return Ok(name);
            }
        }
    }

    fn one(&mut self, op: Op, inputs: &[Option<Wire>]) -> Result<Wire, Error> {
        let name = self.layer_name(op.name())?;
        self.one_named(&name, op, inputs)
    }

    fn one_named(&mut self, name: &str, op: Op, inputs: &[Option<Wire>]) -> Result<Wire, Error> {
        Ok(self.layer(name, op, inputs, 1)?[0])
    }

    fn layer(
        &mut self,
        name: &str,
        op: Op,
        inputs: &[Option<Wire>],
        n_outputs: usize,
    ) -> Result<Vec<Wire>, Error> {
        self.layer_with(name, op, inputs, n_outputs, Vec::new(), 0)
    }

    fn layer_with(
        &mut self,
        name: &str,
        op: Op,
        inputs: &[Option<Wire>],
        n_outputs: usize,
        bodies: Vec<Graph>,
        n_captured: usize,
    ) -> Result<Vec<Wire>, Error> {
        let layer = format!("layer `{name}`");
        let ids: Vec<Option<ValueId>> = inputs
            .iter()
            .map(|wire| wire.map(|wire| self.own(wire, &layer)).transpose())
            .collect::<Result<_, _>>()?;
        let n_given = ids.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        let ids = ids[..n_given].to_vec();
        // The first output has the layer's name, further ones a number after it.
        let mut names: Vec<String> = vec![name.to_string()];
        for idx in 1..n_outputs {
            let name = format!("{name}.{idx}");
            self.free(&name, &layer)?;
            names.push(name);
        }
        names.truncate(n_outputs);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let kind = op.clone();
        let node = NewNode { bodies, n_captured, ..NewNode::new(name, op, ids.clone(), &names) };
        let node = self.graph.add_node(node).map_err(|error| {
            let types: Vec<String> = ids
                .iter()
                .map(|id| id.map_or("nothing".into(), |id| self.graph.value(id).ty.to_string()))
                .collect();
            advice::of_layer(name, &kind, &types, &error)
        })?;
        let outputs: Vec<ValueId> = self.graph.node(node).outputs.iter().copied().flatten().collect();
        Ok(outputs.into_iter().map(|id| self.wire(id)).collect())
    }
}
