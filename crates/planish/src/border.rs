//! `Border`: what a plan takes and gives at its border, other than its model does: types, layouts, and work before and after
//! the model. All of it becomes nodes of the graph, so that it is fused, tuned and checked like any other.
//!
//! - `words`: the grammar; `pre`, `post`: nodes before and behind the model; `boxes`: detections; `labels`: names of classes.

mod boxes;
mod labels;
mod post;
mod pre;
mod words;

use std::collections::HashSet;

use planish_ir::Graph;
use planish_op::{TensorType, ValueType};
use planish_tensor::{Dim, Shape};

pub use labels::{Labelled, labels_of};
pub(crate) use labels::{label_line, of_metadata};
use pre::Picture;
use words::{Layout, Port, PreStep};

use crate::network::{NetworkBuilder, Wire};
use crate::{Error, ErrorKind};

/// What a plan takes and gives at its border, other than its model does. [`crate::Model::with_border`] puts it into a model;
/// `docs/io.md` has the grammar.
///
/// ```
/// use planish::{Border, Builder, DType, Device, Engine, Model, NetworkBuilder, Tensor, View};
///
/// let mut net = NetworkBuilder::new("mean of channels");
/// let x = net.input("x", DType::F32, "batch,3,2,2")?;
/// let y = net.reduce_mean(x, &[2, 3], false)?;
/// net.output("y", y)?;
/// let border = Border::new().io("x:u8:nhwc").io("y:i32").pre("x:div=255,mean=0.5,std=0.5").post("y:argmax");
/// let model = Model::from_network(net)?.with_border(&border)?;
/// let plan = Builder::from_model(model).device(Device::Cpu).tune_level(0).build()?;
///
/// let engine = Engine::new(plan, Device::Cpu)?;
/// assert_eq!(engine.inputs()[0].ty.to_string(), "u8[batch,2,2,3]");
/// assert_eq!(engine.outputs()[0].ty.to_string(), "i32[batch]");
/// let pixels = [9u8, 0, 5, 8, 1, 90, 7, 2, 90, 6, 3, 90];                 // the third channel has the most
/// let mut context = engine.context()?;
/// let outputs = context.run(&[("x", View::new(&[1, 2, 2, 3], &pixels)?)])?;
/// assert_eq!(outputs.at(0).unwrap().as_slice::<i32>().unwrap(), [2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Border {
    io: Vec<String>,
    pre: Vec<String>,
    post: Vec<String>,
}

impl Border {
    /// The model's own.
    pub fn new() -> Border {
        Border::default()
    }

    /// The type and layout of an input or output: `NAME[:TYPE][:LAYOUT]`, as in `x:u8:nhwc`.
    pub fn io(mut self, port: &str) -> Border {
        self.io.push(port.to_string());
        self
    }

    /// What is done to an input before the model sees it: `NAME:STEP,…`, as in `x:resize=256,crop=224,div=255`.
    pub fn pre(mut self, steps: &str) -> Border {
        self.pre.push(steps.to_string());
        self
    }

    /// What is done to an output: `NAME:STEP,…`, as in `y:softmax,topk=5`.
    pub fn post(mut self, steps: &str) -> Border {
        self.post.push(steps.to_string());
        self
    }

    /// Whether it is the model's own.
    pub fn is_empty(&self) -> bool {
        self.io.is_empty() && self.pre.is_empty() && self.post.is_empty()
    }

    /// As a plan keeps it, a line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |kind: &'static str| move |text: &String| format!("{kind}={text}");
        let lists = [("io", &self.io), ("pre", &self.pre), ("post", &self.post)];
        lists.iter().flat_map(|(kind, list)| list.iter().map(line(kind))).collect()
    }

    /// From the lines of a plan's options.
    pub(crate) fn of_options(options: &str) -> Border {
        let mut border = Border::new();
        for line in options.lines() {
            match line.split_once('=') {
                Some(("io", text)) => border.io.push(text.to_string()),
                Some(("pre", text)) => border.pre.push(text.to_string()),
                Some(("post", text)) => border.post.push(text.to_string()),
                _ => {}
            }
        }
        border
    }

    /// The graph inside of this border, and the names of its outputs' classes where they were given.
    pub(crate) fn around(
        &self,
        graph: &Graph,
        own_labels: &[String],
    ) -> Result<(Graph, Vec<Labelled>), Error> {
        let name = |&id: &planish_ir::ValueId| graph.value(id).name.to_string();
        let inputs: Vec<String> = graph.inputs().iter().map(name).collect();
        let outputs: Vec<String> = graph.outputs().iter().map(name).collect();
        let ports = words::ports(&self.io, &inputs, &outputs)?;
        let pre = words::steps("--pre", &self.pre, "input", &inputs, words::pre_step)?;
        let post = words::steps("--post", &self.post, "output", &outputs, words::post_step)?;
        let mut net = NetworkBuilder::numbered_from(&graph.name, graph.n_fresh_symbols());
        let mut pictures = Vec::new();
        let mut fed = Vec::new();
        for (&id, name) in graph.inputs().iter().zip(&inputs) {
            let steps = pre.get(name).map_or(&[][..], Vec::as_slice);
            fed.push(input(&mut net, name, &graph.value(id).ty, ports.get(name), steps, &mut pictures)?);
        }
        let inner = specialized(graph, &net, &fed)?;
        let is_changed = |name: &String| ports.contains_key(name) || post.contains_key(name);
        let mut taken: HashSet<String> = outputs.iter().filter(|name| is_changed(name)).cloned().collect();
        taken.extend(net.value_names());
        let rename =
            |name: &str| if taken.contains(name) { format!("{name}.model") } else { name.to_string() };
        let made = net.append(&inner, &fed, &rename)?;
        let mut labels = Vec::new();
        for (name, wire) in outputs.iter().zip(made) {
            let steps = post.get(name).map_or(&[][..], Vec::as_slice);
            let own = (own_labels, &pictures[..]);
            post::output(&mut net, name, wire, ports.get(name), steps, own, &mut labels)?;
        }
        Ok((net.finish()?, labels))
    }
}

/// An input of the border, and what the model is fed from it.
fn input(
    net: &mut NetworkBuilder,
    name: &str,
    ty: &ValueType,
    port: Option<&Port>,
    steps: &[PreStep],
    pictures: &mut Vec<Picture>,
) -> Result<Wire, Error> {
    if port.is_none() && steps.is_empty() {
        return net.input_of(name, ty.clone());
    }
    let TensorType { dtype, shape } = tensor(name, "input", ty)?;
    let port = port.copied().unwrap_or_default();
    let Some(shape) = shape else {
        if let (true, None) = (steps.is_empty(), port.layout) {
            let given = ValueType::Tensor(TensorType { dtype: port.dtype.unwrap_or(dtype), shape: None });
            let wire = net.input_of(name, given)?;
            return net.cast(wire, dtype);
        }
        return wrong(
            ErrorKind::WrongShape,
            format!("input `{name}` is {ty}, of any rank: it has no layout"),
        );
    };
    let mut dims = shape.dims().to_vec();
    let own = Layout::guessed(&dims);
    let places = match steps {
        [] => None,
        _ => Some(pre::Places::of(name, ty, &dims, own)?),
    };
    if let Some(places) = &places {
        places.widen(name, steps, &mut dims);
    }
    let turned = turned(name, "input", ty, port.layout, own, dims.len())?;
    let outer =
        turned.as_ref().map_or(dims.clone(), |axes| axes.iter().map(|&at| dims[at].clone()).collect());
    let given = net.input(name, port.dtype.unwrap_or(dtype), Shape::new(outer))?;
    let mut wire = given;
    if let Some(axes) = &turned {
        wire = net.transpose(wire, &back(axes))?;
    }
    match places {
        None if port.dtype.is_some_and(|given| given != dtype) => net.cast(wire, dtype),
        None => Ok(wire),
        Some(places) => {
            let done = places.apply(net, name, wire, dtype, steps)?;
            pictures.extend(places.picture(name, wire, steps));
            Ok(done)
        }
    }
}

/// The order in which the axes of a tensor stand at the border, where that is another one than the model's.
fn turned(
    name: &str,
    what: &str,
    ty: &dyn std::fmt::Display,
    asked: Option<Layout>,
    own: Layout,
    rank: usize,
) -> Result<Option<Vec<usize>>, Error> {
    let Some(asked) = asked else { return Ok(None) };
    if let Some(wanted) = asked.rank()
        && wanted != rank
    {
        let message =
            format!("--io: {what} `{name}` is {ty} of {rank} axes, `{asked}` is a layout of {wanted}");
        return wrong(ErrorKind::WrongShape, message);
    }
    if rank < 3 {
        let message = format!("--io: {what} `{name}` is {ty}; layouts are for tensors of 3 axes and more");
        return wrong(ErrorKind::WrongShape, message);
    }
    Ok((asked.is_last() != own.is_last()).then(|| match asked.is_last() {
        true => [0].into_iter().chain(2..rank).chain([1]).collect(),
        false => [0, rank - 1].into_iter().chain(1..rank - 1).collect(),
    }))
}

/// The order that undoes another one.
fn back(axes: &[usize]) -> Vec<i64> {
    let mut back = vec![0; axes.len()];
    axes.iter().enumerate().for_each(|(to, &from)| back[from] = to as i64);
    back
}

fn tensor(name: &str, what: &str, ty: &ValueType) -> Result<TensorType, Error> {
    ty.as_tensor().cloned().ok_or_else(|| {
        Error::new(ErrorKind::WrongType, format!("{what} `{name}` is {ty}; a border is for tensors alone"))
    })
}

/// The model at the sizes that it is fed.
fn specialized(graph: &Graph, net: &NetworkBuilder, fed: &[Wire]) -> Result<Graph, Error> {
    let mut sizes: Vec<(String, i64)> = Vec::new();
    for (&id, &wire) in graph.inputs().iter().zip(fed) {
        let (Some(own), Some(given)) = (shape_of(&graph.value(id).ty), net.shape_of(wire)?) else { continue };
        for (own, given) in own.dims().iter().zip(given.dims()) {
            if let (Some(symbol), Some(size)) = (own.as_symbol(), given.as_const()) {
                sizes.push((symbol.to_string(), size));
            }
        }
    }
    let size = |name: &str| sizes.iter().find(|(known, _)| known == name).map(|(_, size)| *size);
    let inner = graph.specialize(&size).map_err(|error| {
        let message = format!("the model does not take what the pre-processing gives: {error}");
        Error::new(ErrorKind::WrongShape, message)
    })?;
    for (&id, &wire) in inner.inputs().iter().zip(fed) {
        let (value, given) = (inner.value(id), net.type_of(wire)?);
        if shape_of(&value.ty).is_some() && value.ty != *given {
            let message = format!(
                "input `{}` is {}, its pre-processing gives {given}; change the sizes",
                value.name, value.ty
            );
            return wrong(ErrorKind::WrongShape, message);
        }
    }
    Ok(inner)
}

fn shape_of(ty: &ValueType) -> Option<&Shape> {
    ty.as_tensor()?.shape.as_ref()
}

/// A symbol for a side of a picture that may have any size.
fn side(name: &str, which: &str) -> Dim {
    Dim::symbol(&format!("{name}.{which}"))
}

fn wrong<T>(kind: ErrorKind, message: String) -> Result<T, Error> {
    Err(Error::new(kind, message))
}

#[cfg(test)]
mod tests;
