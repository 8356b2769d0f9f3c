//! The rules: one per operator whose form changed over the opsets, all others by the operator table.

mod constant;
mod control;
mod custom;
mod geometry;
mod inputs;
mod legacy;
mod norm;

use planish_op::OpSpec;

use crate::contrib;
use crate::error::ImportError;
use crate::importer::domain_key;
use crate::ml;
use crate::node::NodeImport;

/// Adds what an ONNX node means to the graph.
pub(crate) type Rule = fn(&mut NodeImport<'_, '_>) -> Result<(), ImportError>;

/// Standard operators that need more than their row in the table, by name.
const RULES: &[(&str, Rule)] = &[
    // Constants and conversions.
    ("Constant", constant::constant),
    ("CastLike", constant::cast_like),
    // Attributes that became inputs.
    ("Squeeze", inputs::axes_before_13),
    ("Unsqueeze", inputs::axes_before_13),
    ("ReduceSum", inputs::axes_before_13),
    ("ReduceL1", inputs::axes_before_18),
    ("ReduceL2", inputs::axes_before_18),
    ("ReduceLogSum", inputs::axes_before_18),
    ("ReduceLogSumExp", inputs::axes_before_18),
    ("ReduceMax", inputs::axes_before_18),
    ("ReduceMean", inputs::axes_before_18),
    ("ReduceMin", inputs::axes_before_18),
    ("ReduceProd", inputs::axes_before_18),
    ("ReduceSumSquare", inputs::axes_before_18),
    ("Split", inputs::split),
    ("Clip", inputs::clip),
    ("Pad", inputs::pad),
    ("Slice", inputs::slice),
    ("TopK", inputs::topk),
    ("Dropout", inputs::dropout),
    ("DFT", inputs::dft),
    ("STFT", inputs::stft),
    // Meanings and words that changed.
    ("Softmax", norm::softmax),
    ("LogSoftmax", norm::softmax),
    ("Hardmax", norm::softmax),
    ("BatchNormalization", norm::batch_normalization),
    ("GroupNormalization", norm::group_normalization),
    ("Resize", geometry::resize),
    ("Upsample", geometry::upsample),
    ("GridSample", geometry::grid_sample),
    ("RoiAlign", geometry::roi_align),
    ("Scatter", geometry::scatter),
    // Control flow.
    ("If", control::if_),
    ("Loop", control::loop_),
    ("Scan", control::scan),
    ("SequenceMap", control::sequence_map),
];

/// Rules that take precedence before opset 7.
const LEGACY_RULES: &[(&str, Rule)] = &[
    ("Add", legacy::binary),
    ("Sub", legacy::binary),
    ("Mul", legacy::binary),
    ("Div", legacy::binary),
    ("Pow", legacy::binary),
    ("And", legacy::binary),
    ("Or", legacy::binary),
    ("Xor", legacy::binary),
    ("Equal", legacy::binary),
    ("Greater", legacy::binary),
    ("Less", legacy::binary),
    ("PRelu", legacy::prelu),
    ("Concat", legacy::concat),
    ("Reshape", legacy::reshape),
];

/// Operators that lost attributes in opset 6 or 7, and have no other rule.
const LOST_ATTRIBUTES: &[&str] = &[
    "Abs",
    "Ceil",
    "Clip",
    "Elu",
    "Exp",
    "Floor",
    "Gemm",
    "HardSigmoid",
    "InstanceNormalization",
    "LeakyRelu",
    "Log",
    "Max",
    "Mean",
    "Min",
    "Neg",
    "Reciprocal",
    "Relu",
    "Selu",
    "Sigmoid",
    "Sqrt",
    "Sum",
    "Tanh",
];

/// Standard operators that are left out on purpose.
const REFUSED: &[(&str, &str)] = &[
    ("ImageDecoder", "decode images before the model; `planish run --input x=photo.jpg` does"),
    ("RegexFullMatch", "strings are not supported; tokenize before the model"),
    ("StringConcat", "strings are not supported; tokenize before the model"),
    ("StringNormalizer", "strings are not supported; tokenize before the model"),
    ("StringSplit", "strings are not supported; tokenize before the model"),
];

fn rule(domain: &str, op_type: &str, opset: i64) -> Option<Rule> {
    // Whoever loads a plugin means it.
    if !domain.is_empty() && planish_op::plugin::version_for(domain, op_type, opset).is_some() {
        return Some(custom::custom);
    }
    let find =
        |rules: &[(&str, Rule)]| rules.iter().find(|(name, _)| *name == op_type).map(|(_, rule)| *rule);
    match domain {
        "" if opset < 7 => find(LEGACY_RULES)
            .or_else(|| find(RULES))
            .or_else(|| LOST_ATTRIBUTES.contains(&op_type).then_some(legacy::drop_old_attributes as Rule)),
        "" => find(RULES).or_else(|| find(contrib::STANDARD_RULES)),
        "com.microsoft" => find(contrib::RULES),
        "ai.onnx.ml" => find(ml::RULES),
        _ => None,
    }
}

/// Whether a node of this kind can be imported; if not, why, as far as there is more to say.
pub(crate) fn supports(domain: &str, op_type: &str, opset: i64) -> Result<(), Option<&'static str>> {
    if domain.is_empty() {
        if let Some((_, reason)) = REFUSED.iter().find(|(name, _)| *name == op_type) {
            return Err(Some(*reason));
        }
        // Names that exist only as the target of another domain's rule are not standard operators.
        let is_standard = !matches!(op_type, "Inverse" | "CropAndResize" | "TreeEnsemble")
            && OpSpec::find(op_type).is_some();
        if rule(domain, op_type, opset).is_some() || is_standard {
            return Ok(());
        }
        return Err(None);
    }
    match rule(domain, op_type, opset) {
        Some(_) => Ok(()),
        None if domain == "ai.onnx.ml" => {
            Err(ml::REFUSED.iter().find(|(name, _)| *name == op_type).map(|(_, reason)| *reason))
        }
        None => Err(None),
    }
}

/// Imports one node.
pub(crate) fn import(mut node: NodeImport<'_, '_>) -> Result<(), ImportError> {
    match rule(domain_key(&node.node.domain), &node.node.op_type, node.opset) {
        Some(rule) => rule(&mut node),
        None => {
            let op_type = node.node.op_type.as_ref();
            node.finish_generic(op_type, &[])
        }
    }
}
