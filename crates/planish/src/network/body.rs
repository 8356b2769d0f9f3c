//! Bodies of control flow: networks of their own that read outer values by capturing them.

use std::ops::{Deref, DerefMut};

use planish_ir::{Graph, ValueId};
use planish_op::Op;

use super::{NetworkBuilder, Wire, advice};
use crate::{Error, ErrorKind};

/// The body of an If, a Loop, a Scan or a SequenceMap: a [`NetworkBuilder`] whose layers are those of the body.
///
/// ```
/// use planish::op::If;
/// use planish::{Body, Builder, DType, Device, Engine, NetworkBuilder, View};
///
/// let mut net = NetworkBuilder::new("choice");
/// let x = net.input("x", DType::F32, "n")?;
/// let negative = net.input("negative", DType::Bool, "")?;
///
/// let mut then = Body::new(&net, "then");
/// let inner = then.capture(&net, x)?;
/// let y = then.neg(inner)?;
/// then.output("negated", y)?;
///
/// let mut other = Body::new(&net, "else");
/// let inner = other.capture(&net, x)?;
/// let y = other.mul(inner, 2.0)?;
/// other.output("doubled", y)?;
///
/// let y = net.control(If {}, &[Some(negative)], vec![then, other])?;
/// net.output("y", y[0])?;
///
/// let plan = Builder::from_network(net)?.tune_level(0).build()?;
/// let mut context = Engine::new(plan, Device::Auto)?.context()?;
/// let outputs = context.run(&[("x", View::new(&[2], &[1.0f32, 2.0])?), ("negative", View::new(&[], &[true])?)])?;
/// assert_eq!(outputs.at(0).unwrap().as_slice::<f32>().unwrap(), [-1.0, -2.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Body {
    inner: NetworkBuilder,
    outer: u64,
    /// Outer values and what they are inside.
    captured: Vec<(Wire, ValueId)>,
}

impl Deref for Body {
    type Target = NetworkBuilder;

    fn deref(&self) -> &NetworkBuilder {
        &self.inner
    }
}

impl DerefMut for Body {
    fn deref_mut(&mut self) -> &mut NetworkBuilder {
        &mut self.inner
    }
}

impl Body {
    /// A body for a layer of `outer`.
    pub fn new(outer: &NetworkBuilder, name: &str) -> Body {
        let inner = NetworkBuilder::around(Graph::body(name, &outer.graph));
        Body { inner, outer: outer.id, captured: Vec::new() }
    }

    /// A value of the network around, to be read in the body.
    pub fn capture(&mut self, outer: &NetworkBuilder, wire: Wire) -> Result<Wire, Error> {
        let id = outer.own(wire, "a capture")?;
        if let Some((_, known)) = self.captured.iter().find(|(known, _)| *known == wire) {
            return Ok(self.inner.wire(*known));
        }
        let value = outer.graph.value(id);
        let name = self.captured_name(&value.name);
        // Constants are shared with the body instead of being handed to it.
        if let Some(tensor) = value.constant() {
            return self.inner.constant(&name, tensor.clone());
        }
        let added = self.inner.graph.add_known_input(&name, value.ty.clone(), value.content.clone());
        let inside = added.map_err(advice::of_graph)?;
        self.captured.push((wire, inside));
        Ok(self.inner.wire(inside))
    }

    /// The outer name, or one like it where the body has that already.
    fn captured_name(&self, outer: &str) -> String {
        let mut name = outer.to_string();
        while self.inner.graph.find(&name).is_some() {
            name.push_str(".outer");
        }
        name
    }

    /// The graph of the body with the captured values of all bodies after its own inputs.
    fn finish(mut self, all: &[(Wire, &NetworkBuilder)]) -> Result<Graph, Error> {
        for &(wire, outer) in all {
            self.capture(outer, wire)?;
        }
        let is_captured = |id: &ValueId| self.captured.iter().any(|(_, inside)| inside == id);
        let mut inputs: Vec<ValueId> = self.inner.graph.inputs().to_vec();
        inputs.retain(|id| !is_captured(id));
        let place = |wire: &Wire| self.captured.iter().find(|(known, _)| known == wire).map(|(_, id)| *id);
        inputs.extend(all.iter().filter_map(|(wire, _)| place(wire)));
        self.inner.graph.set_inputs(inputs);
        self.inner.complete()?;
        Ok(self.inner.graph)
    }
}

impl NetworkBuilder {
    /// A layer with bodies: `If` (then, else), `Loop`, `Scan` or `SequenceMap` (one body). Its outputs are those of
    /// the bodies as ONNX has it: a Loop's without the condition.
    pub fn control(
        &mut self,
        op: impl Into<Op>,
        inputs: &[Option<Wire>],
        bodies: Vec<Body>,
    ) -> Result<Vec<Wire>, Error> {
        let op = op.into();
        let name = self.layer_name(op.name())?;
        if let Some(body) = bodies.iter().find(|body| body.outer != self.id) {
            let message = format!(
                "layer `{name}`: body `{}` was made for another network; make it with `Body::new(&net, ...)` of this one",
                body.graph.name
            );
            return Err(Error::new(ErrorKind::BadModel, message));
        }
        let mut captured: Vec<Wire> = Vec::new();
        for (wire, _) in bodies.iter().flat_map(|body| &body.captured) {
            if !captured.contains(wire) {
                captured.push(*wire);
            }
        }
        let n_outputs = bodies.first().map_or(0, |body| body.outputs.len());
        let n_outputs = if matches!(op, Op::Loop(_)) { n_outputs.saturating_sub(1) } else { n_outputs };
        let outer: &NetworkBuilder = self;
        let all: Vec<(Wire, &NetworkBuilder)> = captured.iter().map(|&wire| (wire, outer)).collect();
        let graphs = bodies.into_iter().map(|body| body.finish(&all)).collect::<Result<Vec<_>, _>>()?;
        let inputs: Vec<Option<Wire>> =
            inputs.iter().copied().chain(captured.iter().copied().map(Some)).collect();
        self.layer_with(&name, op, &inputs, n_outputs, graphs, captured.len())
    }
}
