//! The words of `planish quantize`.

use std::path::PathBuf;

use super::{Calibrating, Evening, Json, LayerPrecision};

#[derive(clap::Args, Debug)]
pub(crate) struct Quantize {
    /// The model, an .onnx file
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) calibrating: Calibrating,
    /// Quantize matrix products alone, by ranges that are found in each run, of every row (if nothing is said) or of the
    /// whole tensor that a product reads; needs no calibration
    #[arg(long, value_name = "row|tensor", conflicts_with = "calib", num_args = 0..=1, require_equals = true, default_missing_value = "row")]
    pub(crate) dynamic: Option<planish::DynamicRange>,
    /// Store the weights of large matrix products as integers in groups: int8, int4, or with the elements of a group as in
    /// int4:32; activations stay floats. With samples in --calib weights are rounded with regard to what products read
    #[arg(long, value_name = "int8|int4[:GROUP]", conflicts_with = "dynamic")]
    pub(crate) weights: Option<planish::WeightStorage>,
    /// The quantized model; MODEL_qdq.onnx beside the model if not given
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Keep layers in fp32 by name, or take first and last layers in, as in 'encoder/*:fp32' or 'conv1:int8'
    #[arg(long, value_name = "GLOB:fp32|int8", value_parser = crate::load::layer_precision)]
    pub(crate) layer_precision: Vec<LayerPrecision>,
    /// Weights within ±63, for ONNX Runtime on x86 without VNNI, whose sums of two products saturate
    #[arg(long)]
    pub(crate) reduced_range: bool,
    #[command(flatten)]
    pub(crate) evening: Evening,
    /// Print what the optimizer did, and why rules did not apply
    #[arg(long)]
    pub(crate) explain: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}
