//! The rules: one per operator whose form changed over the opsets, all others by the operator table.

mod constant;
mod control;
mod geometry;
mod inputs;
mod normalize;

use planish_op::OpSpec;

use crate::error::ImportError;
use crate::importer::{OLDEST_OPSET, domain_key};
use crate::node::NodeImport;

type Rule = fn(&mut NodeImport<'_, '_>) -> Result<(), ImportError>;

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
    // Meanings and words that changed.
    ("Softmax", normalize::softmax),
    ("LogSoftmax", normalize::softmax),
    ("Hardmax", normalize::softmax),
    ("BatchNormalization", normalize::batch_normalization),
    ("GroupNormalization", normalize::group_normalization),
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

/// Standard operators that are left out on purpose.
const REFUSED: &[(&str, &str)] = &[
    ("ImageDecoder", "decode images before the model; `planish run --input x=photo.jpg` does"),
    ("RegexFullMatch", "strings are not supported; tokenize before the model"),
    ("StringConcat", "strings are not supported; tokenize before the model"),
    ("StringNormalizer", "strings are not supported; tokenize before the model"),
    ("StringSplit", "strings are not supported; tokenize before the model"),
];

fn rule(domain: &str, op_type: &str) -> Option<Rule> {
    match domain {
        "" => RULES.iter().find(|(name, _)| *name == op_type).map(|(_, rule)| *rule),
        _ => None,
    }
}

/// Whether a node of this kind can be imported; if not, why, as far as there is more to say.
pub(crate) fn supports(domain: &str, op_type: &str, opset: i64) -> Result<(), Option<&'static str>> {
    if domain.is_empty() {
        if opset < OLDEST_OPSET {
            return Err(Some(
                "operator sets before 7 are not supported; convert the model to opset 13 or later",
            ));
        }
        if let Some((_, reason)) = REFUSED.iter().find(|(name, _)| *name == op_type) {
            return Err(Some(*reason));
        }
        // Names that exist only as the target of another domain's rule are not standard operators.
        let is_standard = !matches!(op_type, "Inverse" | "CropAndResize") && OpSpec::find(op_type).is_some();
        if rule(domain, op_type).is_some() || is_standard {
            return Ok(());
        }
        return Err(None);
    }
    match rule(domain, op_type) {
        Some(_) => Ok(()),
        None => Err(None),
    }
}

/// Imports one node.
pub(crate) fn import(mut node: NodeImport<'_, '_>) -> Result<(), ImportError> {
    match rule(domain_key(&node.node.domain), &node.node.op_type) {
        Some(rule) => rule(&mut node),
        None => {
            let op_type = node.node.op_type.as_ref();
            node.finish_generic(op_type, &[])
        }
    }
}
