//! The part of the demo with a trained model: FP32, FP16 and INT8 on images that it was not trained on.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use planish::io::{Preprocess, Samples, npy};
use planish::{Builder, CalibrationBuilder, Device, Engine, Model, Plan, Precision, View};

use super::shell;
use crate::{files, print};

/// The classifier of Fashion-MNIST with 500 images for calibration and 500 for comparison, as `bench/train_fashion_mnist.py`
/// left them.
pub(crate) const MODEL: &[u8] = include_bytes!("../../../planish/tests/data/fashion_mnist.onnx");
pub(crate) const CALIBRATION: &[u8] =
    include_bytes!("../../../planish/tests/data/fashion_mnist_calibration.npz");
pub(crate) const TEST: &[u8] = include_bytes!("../../../planish/tests/data/fashion_mnist_test.npz");
const FILES: [(&str, &[u8]); 3] =
    [("fashion_mnist.onnx", MODEL), ("calibration.npz", CALIBRATION), ("test.npz", TEST)];
const PRECISIONS: [Precision; 3] = [Precision::Fp32, Precision::Fp16, Precision::Int8];
/// Images that run at once when answers are counted and speed is measured.
const BATCH: usize = 50;
/// How long each plan is timed.
const TIMED: Duration = Duration::from_millis(500);
/// Images of 500 that a lower precision may get wrong beyond FP32: 0.3 points are asked for on 10,000 images, and of 500
/// scores a few are so close that rounding decides.
const MAX_LOST: usize = 5;

/// What a plan was seen to do.
struct Seen {
    n_bytes: u64,
    n_right: usize,
    median: Duration,
}

pub(super) fn show(folder: &Path, out: &mut dyn Write) -> Result<()> {
    let path = |name: &str| folder.join(name);
    for (name, bytes) in FILES {
        files::write(&path(name), |file| file.write_all(bytes))?;
    }
    let model = Model::open(path(FILES[0].0))?;
    let preprocess = Preprocess { scale: Some(1.0), ..Preprocess::default() };
    let samples = Samples::open(path(FILES[1].0), model.graph(), usize::MAX, &preprocess)?;
    let calibration = CalibrationBuilder::from_model(model.clone()).device(Device::Cpu).run(samples)?;
    let (images, labels) = images(TEST)?;
    let n = labels.len();
    writeln!(
        out,
        "\nA trained model: a classifier of clothes on {n} photographs that it was not trained on (Fashion-MNIST).\n"
    )?;
    let headings = ["", "plan", "images right", "an image, median of batches"];
    let mut rows = vec![headings.map(String::from).to_vec()];
    let mut right = Vec::new();
    for precision in PRECISIONS {
        let builder =
            Builder::from_model(model.clone()).device(Device::Cpu).tune_level(1).precision(precision);
        let builder = match precision {
            Precision::Int8 => builder.calibration(&calibration)?,
            _ => builder,
        };
        let plan = path(&format!("fashion_mnist.{}.plan", precision.name()));
        let seen = seen(builder.build()?, &plan, &images, &labels)?;
        right.push(seen.n_right);
        rows.push(vec![
            precision.name().to_uppercase(),
            print::bytes(seen.n_bytes),
            format!("{} of {n}, {:.1} %", seen.n_right, 100.0 * seen.n_right as f64 / n as f64),
            print::seconds(seen.median.as_secs_f64() / BATCH as f64),
        ]);
    }
    print::table(out, &rows, &[1, 2, 3])?;
    ensure!(
        right.iter().all(|n_right| n_right + MAX_LOST >= right[0]),
        crate::ending::Ending::Ours(format!(
            "of {n} images {right:?} are right, where all should be about the first"
        ))
    );
    writeln!(out, "\nThe same by hand:\n")?;
    let file = |name: &str| shell(&path(name)).into_owned();
    writeln!(
        out,
        "  planish build {} --precision int8 --calib {} --scale 1 -o {}",
        file(FILES[0].0),
        file(FILES[1].0),
        file("fashion_mnist.int8.plan")
    )?;
    Ok(())
}

/// Builds nothing: writes a plan, counts its right answers and times it.
fn seen(plan: Plan, path: &PathBuf, images: &[f32], labels: &[u8]) -> Result<Seen> {
    let n_bytes = plan.save(path)?;
    let mut context = Engine::new(plan, Device::Cpu)?.context()?;
    let n_pixels = images.len() / labels.len();
    let mut n_right = 0;
    let mut times = Vec::new();
    let start = Instant::now();
    // All images once, and on until the time is over.
    for round in 0.. {
        for (images, labels) in images.chunks_exact(BATCH * n_pixels).zip(labels.chunks_exact(BATCH)) {
            let dims = [BATCH, 1, 28, 28];
            let run = Instant::now();
            let outputs = context.run(&[("pixels", View::new(&dims, images)?)])?;
            times.push(run.elapsed());
            if round == 0 {
                let scores = outputs.get("scores").and_then(|scores| scores.as_slice::<f32>());
                let scores = scores.context("the classifier has no scores")?;
                let is_right = |(scores, label): &(&[f32], &u8)| class(scores) == usize::from(**label);
                n_right += scores.chunks_exact(scores.len() / BATCH).zip(labels).filter(is_right).count();
            }
        }
        if start.elapsed() >= TIMED {
            break;
        }
    }
    times.sort_unstable();
    Ok(Seen { n_bytes, n_right, median: times[times.len() / 2] })
}

/// The class with the highest score.
pub(crate) fn class(scores: &[f32]) -> usize {
    let best = scores.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(class, _)| class)
}

/// The images of an archive, from 0 to 1, and their classes.
pub(crate) fn images(archive: &[u8]) -> Result<(Vec<f32>, Vec<u8>)> {
    let scratch = crate::scratch::Scratch::new("images")?;
    let path = scratch.path().join("images.npz");
    files::write(&path, |file| file.write_all(archive))?;
    let arrays = npy::read_archive(&path, &npy::accept_all)?;
    let array = |name: &str| {
        let found = arrays.iter().find(|(own, _)| own == name);
        found.map(|(_, tensor)| Ok::<_, anyhow::Error>(tensor.elements::<u8>()?.into_owned())).transpose()
    };
    let pixels = array("pixels")?.context("there are no pixels")?;
    let pixels = pixels.into_iter().map(|byte| f32::from(byte) / 255.0).collect();
    Ok((pixels, array("labels")?.unwrap_or_default()))
}
