//! `planish quantize`: a float model to one with QuantizeLinear and DequantizeLinear.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use planish::{Builder, Device, Model, Precision, WeightRange};
use serde_json::json;

use crate::args::Quantize;
use crate::ending::Answer;
use crate::{calibrate, files, load, print, say_note};

pub(crate) fn command(args: &Quantize, out: &mut dyn Write) -> Result<Answer> {
    let path = args.output.clone().unwrap_or_else(|| beside(&args.model));
    files::check_target(&path, files::Kind::Onnx, &[&args.model])?;
    let model = Model::open(&args.model)?;
    let calibration =
        calibrate::for_model(&args.calibrating, &model, Device::Cpu, None, args.weights.is_some())?;
    let precision = if args.weights.is_some() { Precision::Fp32 } else { Precision::Int8 };
    let mut builder = Builder::from_model(model).device(Device::Cpu).precision(precision);
    if let Some(calibration) = &calibration {
        builder = builder.calibration(calibration).context("--calib")?;
    }
    let options = builder.options_mut();
    load::set_layer_precisions(options, &args.layer_precision);
    options.weight_range = args.reduced_range.then_some(WeightRange::Reduced);
    options.dynamic = args.dynamic;
    args.evening.set(options);
    options.weights = args.weights;
    options.explain = args.explain;
    let quantized = builder.quantize()?;
    quantized.notes.iter().for_each(|note| say_note(note));
    quantized.model.save_onnx(&path)?;
    if !args.json.replaces_tables() {
        if args.explain {
            write!(out, "{}", quantized.passes)?;
        }
        writeln!(out, "model   {}", path.display())?;
    }
    print::json(out, &args.json, &json!({ "model": path, "notes": quantized.notes }))?;
    Ok(Answer::Yes)
}

/// `net.onnx` becomes `net_qdq.onnx`.
fn beside(model: &std::path::Path) -> PathBuf {
    let stem = model.file_stem().unwrap_or_default().to_string_lossy();
    model.with_file_name(format!("{stem}_qdq.onnx"))
}
