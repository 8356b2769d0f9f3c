//! A pattern that is given as a graph: the formula that says the same.

use std::collections::HashMap;

use planish_ir::{Graph, ValueId};
use planish_op::Attribute;
use planish_plugin::{Argument, Call, Formula, Plugin, Setting};
use planish_tensor::{DType, Tensor};

/// The formula of a graph over inputs that are named as the plugin's. Attributes of its nodes are what a model must have;
/// those of the plugin's operator stay at their defaults.
pub(super) fn of_graph(graph: &Graph, plugin: &Plugin) -> Result<Formula, String> {
    let ports = &plugin.declaration().signature.inputs;
    let mut known: HashMap<ValueId, Argument> = HashMap::new();
    for &id in graph.inputs() {
        let name = &graph.value(id).name;
        let idx = ports.iter().position(|port| port.name == **name).ok_or_else(|| {
            let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
            format!(
                "the pattern has an input `{name}`; name its inputs as those of {}: {}",
                plugin.identity(),
                names.join(", ")
            )
        })?;
        known.insert(id, Argument::Input(idx));
    }
    let mut calls = Vec::new();
    for (_, node) in graph.nodes() {
        let of_node = |why: String| format!("node `{}` ({}) of the pattern {why}", node.name, node.op.name());
        let argument = |id: &ValueId| match known.get(id) {
            Some(argument) => Ok(argument.clone()),
            None => graph.value(*id).constant().and_then(constant).ok_or_else(|| {
                let name = &graph.value(*id).name;
                of_node(format!(
                    "reads `{name}`: constants are one float, or a list of i64; make it an input"
                ))
            }),
        };
        let arguments = node
            .inputs
            .iter()
            .map(|input| input.as_ref().map(argument).transpose())
            .collect::<Result<Vec<_>, _>>()?;
        let mut settings = Vec::new();
        for (name, value) in node.op.attributes() {
            let setting = setting(&value);
            let setting =
                setting.ok_or_else(|| of_node(format!("has `{name}`, which no pattern can say")))?;
            settings.push((name.to_string(), setting));
        }
        for (output, id) in node.outputs.iter().enumerate() {
            if let Some(id) = id {
                known.insert(*id, Argument::Call { call: calls.len(), output });
            }
        }
        let (op, n_outputs) = (node.op.name().to_string(), node.outputs.len());
        calls.push(Call { op, arguments, settings, n_outputs });
    }
    let outputs: Vec<Argument> = graph.outputs().iter().filter_map(|id| known.get(id).cloned()).collect();
    match outputs[..] {
        [Argument::Call { .. }] if graph.outputs().len() == 1 => Ok(Formula { calls, outputs }),
        _ => Err("a pattern has one output, which a node of it computes".to_string()),
    }
}

/// A constant as formulas have it.
fn constant(tensor: &Tensor) -> Option<Argument> {
    match (tensor.dtype(), tensor.shape()) {
        (DType::I64, []) => Some(Argument::Ints(tensor.to_i64s(), true)),
        (DType::I64, [_]) => Some(Argument::Ints(tensor.to_i64s(), false)),
        (dtype, _) if dtype.is_float() && tensor.len() == 1 => Some(Argument::Float(tensor.to_f64s()[0])),
        _ => None,
    }
}

fn setting(value: &Attribute) -> Option<Setting> {
    match value {
        Attribute::Int(number) => Some(Setting::Int(*number)),
        Attribute::Bool(truth) => Some(Setting::Int(i64::from(*truth))),
        Attribute::Float(number) => Some(Setting::Float(f64::from(*number))),
        Attribute::Str(text) => Some(Setting::Text(text.clone())),
        Attribute::Ints(numbers) => Some(Setting::Ints(numbers.clone())),
        Attribute::DType(dtype) => Some(Setting::Text(dtype.to_string())),
        _ => None,
    }
}
