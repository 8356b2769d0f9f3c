//! Nodes that compute what a plugin's operator does become that operator: by a formula over operators of the table, the
//! plugin's own reference or another one.

use std::sync::Arc;

use planish_ir::{NodeId, ValueId};
use planish_op::infer::{InferInput, Inference};
use planish_op::{Attribute, Op};
use planish_plugin::{Argument, Formula, Plugin, Setting};
use planish_tensor::{DType, Dim};

use crate::rule::{Match, Operand, Patch, Rule};
use crate::view::View;

/// One formula of one result, and the plugin that computes it.
#[derive(Debug)]
pub(crate) struct MatchPlugin {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) formula: Formula,
}

/// What a formula's names were found to be.
#[derive(Clone, Debug)]
struct Found {
    inputs: Vec<Option<ValueId>>,
    attributes: Vec<(String, Attribute)>,
}

impl Rule for MatchPlugin {
    fn name(&self) -> &'static str {
        "match_plugin"
    }

    fn try_at(&self, cx: &View<'_>, node: NodeId) -> Match {
        let [result @ Argument::Call { output, .. }] = &self.formula.outputs[..] else { return Match::No };
        let Some(value) = cx.node(node).outputs.get(*output).copied().flatten() else { return Match::No };
        let n_inputs = self.plugin.declaration().signature.inputs.len();
        let empty = Found { inputs: vec![None; n_inputs], attributes: Vec::new() };
        let Some(found) = self.value(cx, result, value, empty) else { return Match::No };
        let missing =
            |(idx, port): (usize, &planish_plugin::Port)| found.inputs[idx].is_none() && !port.optional;
        if self.plugin.declaration().signature.inputs.iter().enumerate().any(missing) {
            return Match::blocked("the pattern does not say all inputs of the plugin's operator");
        }
        let op = Op::Custom(self.plugin.custom(found.attributes));
        let types: Vec<Option<InferInput<'_>>> = found
            .inputs
            .iter()
            .map(|input| {
                input.map(|id| {
                    let value = cx.graph().value(id);
                    InferInput { ty: &value.ty, content: value.content.as_ref() }
                })
            })
            .collect();
        let mut fresh = |hint: &str| Dim::symbol(&format!("{hint}'match"));
        match planish_op::infer(&op, &mut Inference::new(op.name(), &types, 1, &mut fresh)) {
            Err(why) => return Match::blocked(format!("the plugin does not take it: {why}")),
            Ok(made) if made[0].ty.as_tensor().map(|ty| ty.dtype) != cx.dtype(value) => {
                return Match::blocked("the plugin makes another type");
            }
            Ok(_) => {}
        }
        let mut patch = Patch::new();
        let inputs = found.inputs.iter().map(|input| input.map(Operand::Old)).collect();
        let made = patch.node_with(&cx.node(node).name, op, inputs, 1);
        if let Some(dtype) = cx.dtype(value) {
            patch.has_shape_of(cx, made[0], dtype, value);
        }
        patch.replace(value, made[0]);
        Match::Rewrite(patch)
    }
}

impl MatchPlugin {
    /// Whether a value is what an argument says, and what the names then are.
    fn value(&self, cx: &View<'_>, argument: &Argument, value: ValueId, mut found: Found) -> Option<Found> {
        match argument {
            Argument::Input(idx) => match found.inputs[*idx] {
                Some(known) => (known == value).then_some(found),
                None => {
                    found.inputs[*idx] = Some(value);
                    Some(found)
                }
            },
            Argument::Float(number) => {
                // As near as the constant's type holds it.
                let splat = cx.splat(value).filter(|_| cx.dtype(value).is_some_and(DType::is_float))?;
                let near =
                    (splat - number).abs() <= 1e-3 * number.abs() || splat == f64::from(*number as f32);
                let exact = cx.dtype(value) == Some(DType::F32) && splat != f64::from(*number as f32);
                (near && !exact).then_some(found)
            }
            Argument::Ints(numbers, is_scalar) => {
                let rank = if *is_scalar { 0 } else { 1 };
                (cx.ints(value)? == *numbers && cx.rank(value) == Some(rank)).then_some(found)
            }
            Argument::Call { call, output } => {
                let (_, node) = cx.producer(value)?;
                let said = &self.formula.calls[*call];
                if node.op.name() != said.op || node.outputs.get(*output).copied().flatten() != Some(value) {
                    return None;
                }
                let attributes = node.op.attributes();
                for (name, setting) in &said.settings {
                    let Setting::Own(own) = setting else { continue };
                    let rule = self.plugin.declaration().attributes.iter().find(|rule| rule.name == *own)?;
                    let given =
                        attributes.iter().find(|(known, _)| known == name).map(|(_, value)| match value {
                            Attribute::Bool(truth) => Attribute::Int(i64::from(*truth)),
                            other => other.clone(),
                        });
                    // An attribute at the table's default is not listed: then it must be the plugin's, too.
                    let given = given.unwrap_or_else(|| rule.example.clone());
                    match found.attributes.iter().find(|(known, _)| known == own) {
                        Some((_, known)) if *known != given => return None,
                        Some(_) => {}
                        None => found.attributes.push((own.clone(), given)),
                    }
                }
                let resolved = Formula { calls: vec![said.clone()], outputs: Vec::new() };
                if resolved.ops(&found.attributes).ok()?.first() != Some(&node.op) {
                    return None;
                }
                let n_given = node.inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
                let n_said = said.arguments.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
                if n_given != n_said {
                    return None;
                }
                let inputs: Vec<Option<ValueId>> = node.inputs[..n_given].to_vec();
                let straight = self.all(cx, &said.arguments[..n_said], &inputs, found.clone());
                if straight.is_some() || !matches!(node.op, Op::Add(_) | Op::Mul(_)) {
                    return straight;
                }
                let swapped: Vec<Option<ValueId>> = inputs.into_iter().rev().collect();
                self.all(cx, &said.arguments[..n_said], &swapped, found)
            }
        }
    }

    fn all(
        &self,
        cx: &View<'_>,
        arguments: &[Option<Argument>],
        inputs: &[Option<ValueId>],
        found: Found,
    ) -> Option<Found> {
        arguments.iter().zip(inputs).try_fold(found, |found, pair| match pair {
            (None, None) => Some(found),
            (Some(argument), Some(value)) => self.value(cx, argument, *value, found),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use planish_ir::Graph;

    use crate::driver::Options;
    use crate::pipelines::match_plugin;
    use planish_plugin::{Formula, Plugin};

    const DECLARATION: &str = "planish-plugin 1
op: test.match::Gate
version: 1
types: T = float32
inputs: x: T[..., n], by: T[..., n]
outputs: y: T[..., n]
attributes: slope: float = 0.01
reference: y = Mul(LeakyRelu(x, alpha=slope), Sigmoid(by))
";

    fn matched(text: &str) -> String {
        let plugin = Plugin::function(DECLARATION, |_, _| Err("not run here".to_string())).unwrap();
        let plugin = plugin.register().unwrap();
        let formula: Formula = plugin.declaration().reference.clone().unwrap();
        let graph: Graph = text.parse().unwrap();
        let (graph, _) = match_plugin(plugin, formula).run(graph, &Options::default()).unwrap();
        graph.nodes().map(|(_, node)| node.op.name().to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_pattern_becomes_the_operator_in_either_order_with_its_attribute() {
        let with = |product: &str, alpha: &str| {
            format!(
                r#"graph "g" {{
                    input %a: f32[k,4]
                    input %b: f32[k,4]
                    %l: f32[k,4] = LeakyRelu(%a){alpha}
                    %s: f32[k,4] = Sigmoid(%b)
                    %y: f32[k,4] = Mul({product})
                    output %y
                }}"#
            )
        };
        assert_eq!(matched(&with("%l, %s", "")), "Gate");
        assert_eq!(matched(&with("%s, %l", " {alpha = 0.5}")), "Gate");
        assert_eq!(matched(&with("%s, %s", "")), "Sigmoid Mul");
    }
}
