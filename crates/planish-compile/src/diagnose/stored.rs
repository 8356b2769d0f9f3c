//! How a plan stores the values of the float model: as they are, in 16 bits, or as integers with a scale.
//!
//! Passes keep names: what is rounded keeps that of the float value, with what was done to it behind it (`x.quantize`,
//! `x to f16`). Values whose names tell nothing are found by the node that makes them.

use std::collections::HashMap;

use planish_ir::{Graph, Node, ValueId};
use planish_op::{Cast, CastRounding, DequantizeLinear, Op, QuantizeLinear, Value};
use planish_plan::Program;
use planish_reference::evaluate;
use planish_tensor::{DType, Tensor};

/// Ends of names by which passes tell what they made of a value.
const ENDINGS: [&str; 5] = [".quantize", ".dequantize", " to f16", " to bf16", " to f32"];

/// A value of a plan that the float model has, too.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// Its name in the float model.
    pub(super) name: String,
    by: By,
}

#[derive(Clone, Debug)]
enum By {
    /// As it is.
    Itself,
    /// A float of fewer bits.
    Float(DType),
    Integers {
        scale: Tensor,
        zero_point: Tensor,
    },
}

impl Stored {
    /// A tensor of the float model as the plan stores it.
    pub(super) fn encode(&self, tensor: &Tensor) -> Option<Tensor> {
        match &self.by {
            By::Itself => Some(tensor.clone()),
            By::Float(to) => one(cast(*to), &[tensor]),
            By::Integers { scale, zero_point } => one(QUANTIZE, &[tensor, scale, zero_point]),
        }
    }

    /// A tensor of the plan as the float model has it.
    pub(super) fn decode(&self, tensor: &Tensor) -> Option<Tensor> {
        match &self.by {
            By::Itself => Some(tensor.clone()),
            By::Float(_) => one(cast(DType::F32), &[tensor]),
            By::Integers { scale, zero_point } => one(DEQUANTIZE, &[tensor, scale, zero_point]),
        }
    }

    pub(super) fn precision(&self) -> &'static str {
        match &self.by {
            By::Itself => "f32",
            By::Float(dtype) => dtype.name(),
            By::Integers { zero_point, .. } => zero_point.dtype().name(),
        }
    }

    pub(super) fn is_rounded(&self) -> bool {
        !matches!(self.by, By::Itself)
    }

    /// The largest magnitudes that it can hold, below and above zero; `None` where it holds all of f32.
    pub(super) fn ends(&self) -> Option<[f64; 2]> {
        match &self.by {
            By::Itself | By::Float(DType::BF16) => None,
            By::Float(_) => Some([-65504.0, 65504.0]),
            By::Integers { scale, zero_point } => {
                let (low, high) = match zero_point.dtype() {
                    DType::F8E4M3FN => (-448, 448),
                    dtype => dtype.int_range()?,
                };
                let zero = zero_point.to_f64s()[0];
                let scale = scale.to_f64s()[0];
                Some([(low as f64 - zero) * scale, (high as f64 - zero) * scale])
            }
        }
    }
}

/// With one scale for all elements.
const QUANTIZE: QuantizeLinear =
    QuantizeLinear { precision: None, output_dtype: None, block_size: 0, saturate: true, axis: 1 };
const DEQUANTIZE: DequantizeLinear = DequantizeLinear { output_dtype: None, block_size: 0, axis: 1 };

fn cast(to: DType) -> Cast {
    Cast { to, saturate: true, round_mode: CastRounding::Up }
}

/// The only output of an operator by the reference.
fn one(op: impl Into<Op>, inputs: &[&Tensor]) -> Option<Tensor> {
    let values: Vec<Value> = inputs.iter().map(|tensor| Value::Tensor((*tensor).clone())).collect();
    let values: Vec<Option<&Value>> = values.iter().map(Some).collect();
    let outputs = evaluate(&op.into(), &values, 1).ok()?;
    outputs.into_iter().next()?.as_tensor().cloned()
}

/// For each value of a program how it stores what the float model has.
pub(super) fn of_plan(program: &Program, graph: &Graph, reference: &Graph) -> Vec<Option<Stored>> {
    let names = Names::new(graph, reference);
    let one = |value: &planish_plan::Value| {
        let id = graph.find(&value.name)?;
        let dtype = value.ty.as_tensor()?.dtype;
        let by = match dtype {
            DType::F32 => By::Itself,
            DType::F16 | DType::BF16 => By::Float(dtype),
            DType::I8 | DType::U8 | DType::F8E4M3FN => integers(graph, id)?,
            _ => return None,
        };
        Some(Stored { name: names.of(id, dtype)?, by })
    };
    program.values.iter().map(one).collect()
}

/// The float model's names of a plan's values.
struct Names<'g> {
    graph: &'g Graph,
    reference: &'g Graph,
    /// Nodes of the float model by name; `None` where several have it.
    by_node: HashMap<&'g str, Option<&'g Node>>,
}

impl<'g> Names<'g> {
    fn new(graph: &'g Graph, reference: &'g Graph) -> Names<'g> {
        let mut by_node: HashMap<&str, Option<&Node>> = HashMap::new();
        for (_, node) in reference.nodes().filter(|(_, node)| !node.name.is_empty()) {
            by_node.entry(&node.name).and_modify(|known| *known = None).or_insert(Some(node));
        }
        Names { graph, reference, by_node }
    }

    fn of(&self, id: ValueId, dtype: DType) -> Option<String> {
        let name = &*self.graph.value(id).name;
        // What has the float model's type may have its name; what is stored otherwise has it only with an ending.
        let exact = (dtype == DType::F32).then_some(name).filter(|name| self.is_float(name));
        let found = exact.or_else(|| self.before_ending(name)).or_else(|| self.made_alike(id));
        found.map(str::to_string)
    }

    /// The name before what a pass put behind it, and behind that the number that makes it unique, or its reader.
    fn before_ending<'n>(&self, name: &'n str) -> Option<&'n str> {
        let whole = name.split(" for ").next().unwrap_or(name);
        let numbered = whole.trim_end_matches(|c: char| c.is_ascii_digit()).strip_suffix('.');
        let forms = [Some(whole), numbered];
        let stems = forms
            .into_iter()
            .flatten()
            .flat_map(|form| ENDINGS.iter().filter_map(|end| form.strip_suffix(end)));
        stems.into_iter().find(|stem| self.is_float(stem))
    }

    /// The value that the float model's node of the same name makes.
    fn made_alike(&self, id: ValueId) -> Option<&'g str> {
        let node = self.graph.node(self.graph.value(id).producer?);
        let place = node.outputs.iter().position(|output| *output == Some(id))?;
        let twin = (*self.by_node.get(&*node.name)?)?;
        let output = (*twin.outputs.get(place)?)?;
        let name = &*self.reference.value(output).name;
        (twin.op.name() == node.op.name() && self.is_float(name)).then_some(name)
    }

    fn is_float(&self, name: &str) -> bool {
        let found = self.reference.find(name).map(|id| self.reference.value(id));
        let is_f32 = |value: &planish_ir::ValueInfo| {
            value.constant().is_none() && value.ty.as_tensor().is_some_and(|ty| ty.dtype == DType::F32)
        };
        found.is_some_and(is_f32)
    }
}

/// The scale and zero point of a value of integers: from who makes it, who reads it, or what it was moved from.
fn integers(graph: &Graph, id: ValueId) -> Option<By> {
    let mut at = id;
    // A chain of moves is never longer than the graph.
    for _ in 0..graph.nodes().len() {
        let is_reader = |node: &&Node| {
            matches!(node.op, Op::DequantizeLinear(_)) && node.inputs.first() == Some(&Some(at))
        };
        let maker = graph.value(at).producer.map(|maker| graph.node(maker));
        let quantize = maker.filter(|node| matches!(node.op, Op::QuantizeLinear(_)));
        let by = quantize.or_else(|| graph.nodes().map(|(_, node)| node).find(is_reader));
        if let Some(node) = by {
            return parameters(graph, node, at);
        }
        at = (*maker?.inputs.first()?)?;
    }
    None
}

/// One scale and one zero point for all elements.
fn parameters(graph: &Graph, node: &Node, integers: ValueId) -> Option<By> {
    let constant = |place: usize| {
        let id = (*node.inputs.get(place)?)?;
        graph.value(id).constant().filter(|tensor| tensor.len() == 1)?.reshaped(&[]).ok()
    };
    let dtype = graph.value(integers).ty.as_tensor()?.dtype;
    let zero_point = match node.inputs.get(2) {
        Some(Some(_)) => constant(2)?,
        _ => Tensor::zeros(dtype, &[]).ok()?,
    };
    Some(By::Integers { scale: constant(1)?, zero_point })
}
