//! `planish calibrate`: the ranges of a model's activations on real data.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use planish::io::{ChannelOrder, Preprocess, Samples};
use planish::{Calibration, CalibrationBuilder, Calibrator, Device, Model, Sample};
use serde_json::{Value, json};

use crate::args::{AskedCalibrator, Calibrate, Calibrating, Pixels};
use crate::ending::Answer;
use crate::{files, load, print, progress, say_note};

pub(crate) fn command(args: &Calibrate, out: &mut dyn Write) -> Result<Answer> {
    let calibrator = calibrator(args)?;
    let path = args.output.clone().unwrap_or_else(|| args.model.with_extension("calib"));
    let given: Vec<&Path> = [Some(&args.model), args.data.as_ref(), args.from.as_ref()]
        .into_iter()
        .flatten()
        .map(PathBuf::as_path)
        .collect();
    files::check_target(&path, files::Kind::Calibration, &given)?;
    if let Some(cache) = &args.tensorrt {
        ensure!(*cache != path, "-o and --tensorrt name one file; give each its own");
        files::check_target(cache, files::Kind::TensorRtCache, &given)?;
    }
    let model = Model::open(&args.model)?;
    let calibration = match (&args.from, &args.data) {
        (Some(from), _) => taken_over(from, &model)?,
        (None, Some(data)) => calibrate(args, calibrator, model, data)?,
        (None, None) => bail!("nothing to calibrate with; give --data or --from"),
    };
    calibration.save(&path)?;
    if let Some(cache) = &args.tensorrt {
        calibration.save_tensorrt(cache)?;
    }
    if !args.json.replaces_tables() {
        let n_samples = match calibration.n_samples() {
            0 => String::new(),
            n => format!(", {} samples", print::count(n)),
        };
        let n_tensors = print::count(calibration.ranges().len() as u64);
        let by = calibration.calibrator();
        writeln!(out, "calibration  {} ({n_tensors} tensors, {by}{n_samples})", path.display())?;
        if let Some(cache) = &args.tensorrt {
            writeln!(out, "tensorrt     {}", cache.display())?;
        }
    }
    print::json(out, &args.json, &report(&calibration, &path))?;
    Ok(Answer::Yes)
}

/// The calibrator with its argument.
fn calibrator(args: &Calibrate) -> Result<AskedCalibrator> {
    let Some(percent) = args.percentile else { return Ok(args.calibrator) };
    let other = match args.calibrator {
        AskedCalibrator::Named(Calibrator::Percentile(_)) => {
            return Ok(AskedCalibrator::Named(Calibrator::percentile(percent)?));
        }
        AskedCalibrator::Named(other) => other.to_string(),
        AskedCalibrator::Auto => "auto".to_string(),
    };
    bail!("--percentile is for --calibrator percentile, {other} has none")
}

/// The calibration that a model is quantized by: from a file, or of samples; `None` where neither is given. For weights alone
/// it must be samples: files have no second moments.
pub(crate) fn for_model(
    args: &Calibrating,
    model: &Model,
    device: Device,
    threads: Option<usize>,
    for_weights: bool,
) -> Result<Option<Calibration>> {
    let Some(path) = &args.calib else { return Ok(None) };
    if samples_of(args).is_none() {
        ensure!(
            !for_weights,
            "--weights rounds with regard to samples, which a calibration has not; give samples in --calib, or leave it out"
        );
        let calibration = Calibration::open(path)?;
        calibration.check_model(model).context("--calib")?;
        return Ok(Some(calibration));
    }
    let pixels = preprocess(&args.pixels);
    let samples = Samples::open(path, model.graph(), args.calib_samples, &pixels).context("--calib")?;
    run(samples, args.calibrator, model.clone(), (device, threads), for_weights).map(Some)
}

/// What is calibrated with, where that is samples and not a calibration.
pub(crate) fn samples_of(args: &Calibrating) -> Option<&Path> {
    let is_calibration = |path: &Path| {
        [files::Kind::Calibration, files::Kind::TensorRtCache].into_iter().any(|kind| files::is(path, kind))
    };
    args.calib.as_deref().filter(|path| !is_calibration(path))
}

/// Samples of a calibration on which the certificate states what integers cost.
const CERTIFIED_SAMPLES: usize = 8;

/// The samples that the certificate of a plan in integers goes by: some of those that it is calibrated with, where these are
/// given.
pub(crate) fn for_certificate(args: &Calibrating, model: &Model) -> Result<Vec<Sample>> {
    let Some(path) = samples_of(args) else { return Ok(Vec::new()) };
    let n = args.calib_samples.min(CERTIFIED_SAMPLES);
    let samples = Samples::open(path, model.graph(), n, &preprocess(&args.pixels)).context("--calib")?;
    samples.collect::<Result<_, _>>().context("--calib")
}

/// Calibrates with the samples that the arguments name.
fn calibrate(
    args: &Calibrate,
    calibrator: AskedCalibrator,
    model: Model,
    data: &Path,
) -> Result<Calibration> {
    load::check_device(args.device)?;
    let samples = Samples::open(data, model.graph(), args.samples, &preprocess(&args.pixels))?;
    run(samples, calibrator, model, (args.device, args.threads), false)
}

/// Runs the samples.
fn run(
    samples: Samples,
    calibrator: AskedCalibrator,
    model: Model,
    (device, threads): (Device, Option<usize>),
    second_moments: bool,
) -> Result<Calibration> {
    samples.notes().iter().for_each(|note| say_note(note));
    let mut builder = CalibrationBuilder::from_model(model).device(device).second_moments(second_moments);
    builder = match calibrator {
        AskedCalibrator::Auto => builder.measured(true),
        AskedCalibrator::Named(calibrator) => builder.calibrator(calibrator),
    };
    if let Some(threads) = threads {
        builder = builder.threads(threads);
    }
    if let Some(bar) = progress::bar() {
        builder = builder.progress(bar);
    }
    let calibration = builder.run(samples)?;
    progress::clear();
    calibration.notes().iter().for_each(|note| say_note(note));
    Ok(calibration)
}

/// A calibration from a file, as one of this model: the names that it has not are told.
fn taken_over(from: &Path, model: &Model) -> Result<Calibration> {
    let calibration = Calibration::open(from)?;
    calibration.check_model(model)?;
    let unknown: Vec<&str> = calibration
        .ranges()
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| model.graph().find(name).is_none())
        .collect();
    if let Some(first) = unknown.first() {
        let (n, of) = (unknown.len(), calibration.ranges().len());
        say_note(&format!("{n} of {of} tensors are not in the model, as `{first}`"));
    }
    Ok(calibration.bound_to(model))
}

pub(crate) fn preprocess(pixels: &Pixels) -> Preprocess {
    let list = |numbers: &[f32]| (!numbers.is_empty()).then(|| numbers.to_vec());
    Preprocess {
        resize: pixels.resize,
        crop: pixels.crop,
        scale: pixels.scale,
        mean: list(&pixels.mean),
        std: list(&pixels.std),
        order: if pixels.bgr { ChannelOrder::Bgr } else { ChannelOrder::Rgb },
        layout: pixels.layout.map(Into::into),
    }
}

fn report(calibration: &Calibration, path: &Path) -> Value {
    let tensor = |(name, range): &(String, planish::Range)| json!({ "name": name, "min": range.min, "max": range.max, "threshold": range.threshold });
    json!({
        "output": path,
        "calibrator": calibration.calibrator(),
        "samples": calibration.n_samples(),
        "notes": calibration.notes(),
        "tensors": calibration.ranges().iter().map(tensor).collect::<Vec<_>>(),
    })
}
