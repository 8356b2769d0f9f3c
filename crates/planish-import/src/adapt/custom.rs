//! Operators of plugins that are loaded.

use planish_onnx::AttributeValue;
use planish_op::{Attribute, Custom, Op, plugin};

use crate::attributes;
use crate::error::ImportError;
use crate::importer::domain_key;
use crate::node::NodeImport;

/// A node that a plugin computes, as it is.
pub(super) fn custom(node: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let domain = domain_key(&node.node.domain).to_string();
    let name = node.node.op_type.to_string();
    let version = plugin::version_for(&domain, &name, node.opset).ok_or_else(|| node.unsupported(None))?;
    let mut list: Vec<(String, Attribute)> = Vec::new();
    for attribute in &node.node.attributes {
        let name = attribute.name.as_ref();
        let value = match &attribute.value {
            AttributeValue::Int(number) => Attribute::Int(*number),
            AttributeValue::Float(number) => Attribute::Float(*number),
            AttributeValue::String(text) => Attribute::Str(attributes::utf8(text, name)?),
            AttributeValue::Ints(numbers) => Attribute::Ints(numbers.clone()),
            AttributeValue::Floats(numbers) => Attribute::Floats(numbers.clone()),
            _ => {
                let detail =
                    format!("attribute `{name}` is neither numbers nor text, which is all that plugins take");
                return Err(ImportError::invalid(detail));
            }
        };
        if list.iter().any(|(known, _)| known == name) {
            return Err(ImportError::invalid(format!("attribute `{name}` is given twice")));
        }
        list.push((name.to_string(), value));
    }
    let op = Custom { domain, name, version, attributes: list };
    if let Some(plugin) = plugin::find(&op) {
        let named = |why: String| {
            ImportError::invalid(format!("{} of the plugin {}: {why}", op.name, plugin.identity().origin))
        };
        plugin.check_attributes(&op).map_err(named)?;
    }
    let inputs = node.inputs.clone();
    let n_inputs = inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    node.finish(Op::Custom(op), &inputs[..n_inputs])
}
