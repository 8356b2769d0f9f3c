//! Microscopy: a label-free UNet, a 3-D segmentation and a 3-D masked autoencoder, as users run them: precisions with
//! calibration images, batches, sliding windows, a time lapse, an ensemble.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::Result;
use planish::{
    Blend, Engine, Ensemble, Metrics, Model, Precision, Session, SlidingWindow, StreamOptions, Tensor, View,
    WhenFull,
};

use super::bench::{Asked, Bench, cells, metrics, output, reshaped, stats};
use super::report::Report;
use crate::page::chart::{Chart, Point, Series, Spread};
use crate::print;

/// The networks of `planish zoo`, what they are, and the sizes of their images.
const NETWORKS: [(&str, &str, &[usize]); 3] = [
    ("labelfree_unet2d_256", "2-D label-free UNet", &[256, 256]),
    ("seg_unet3d_64", "3-D segmentation", &[64, 64, 64]),
    ("mae3d_64", "3-D masked autoencoder", &[64, 64, 64]),
];
const SEED: u64 = 3;
/// The largest batch of plans with an open one.
const BATCH: usize = 4;
/// Images for calibration, and others to compare on.
const CALIBRATION: u64 = 8;
const COMPARED: u64 = 4;
const RUNS: usize = 30;
const MOST: Duration = Duration::from_secs(6);

/// Images of one channel in a batch.
fn batch(dims: &[usize], n: usize, seed: u64) -> Result<Tensor> {
    let mut pixels = Vec::new();
    for number in 0..n {
        pixels.extend(cells(dims, seed + number as u64)?.elements::<f32>()?.iter().copied());
    }
    Ok(Tensor::new(&[&[n, 1], dims].concat(), pixels)?)
}

pub(super) fn run(bench: &mut Bench, report: &mut Report<'_>) -> Result<()> {
    report.text(&format!(
        "Networks of `planish zoo` with random weights on made images of bright cells. Each as a plan for one image (fixed) and as \
         one for 1 to {BATCH} (open), in three precisions; INT8 by {CALIBRATION} calibration images; errors on {COMPARED} other \
         images against FP32."
    ))?;
    let networks = if bench.is_short { &NETWORKS[..1] } else { &NETWORKS[..] };
    let precisions = if bench.is_short { &bench.precisions()[..2] } else { &bench.precisions()[..] };
    let headings = [
        "network",
        "in",
        "plan MB",
        "build s",
        "fixed, ms",
        "open, 1, ms",
        &format!("open, {BATCH}, ms an image"),
        "images/s",
        "PSNR dB",
        "relative L2",
    ];
    let mut rows = vec![headings.map(String::from).to_vec()];
    let mut series: Vec<Series> = Vec::new();
    let mut unet: Option<(Model, Engine)> = None;
    let mut volume: Option<Engine> = None;
    for (number, (name, about, dims)) in networks.iter().enumerate() {
        let model = bench.model(name, SEED)?;
        let calibration = match precisions.iter().any(|precision| precision.quantizes()) {
            true => {
                let samples = (0..CALIBRATION).map(|seed| batch(dims, 1, 1000 + seed));
                Some(bench.calibrate(&model, samples.collect::<Result<Vec<_>>>()?)?)
            }
            false => None,
        };
        let images = (0..if bench.is_short { 1 } else { COMPARED })
            .map(|seed| batch(dims, 1, seed))
            .collect::<Result<Vec<_>>>()?;
        let mut exact: Vec<Tensor> = Vec::new();
        let mut points = Vec::new();
        for &precision in precisions {
            let calibration = calibration.as_ref().filter(|_| precision.quantizes());
            let many = BATCH as i64;
            let (open, open_time) =
                bench.build(&model, Asked { precision, batches: [1, many, many], calibration })?;
            // The small form has one plan for both.
            let (fixed, fixed_time) = match bench.is_short {
                true => (open.clone(), Duration::ZERO),
                false => bench.build(&model, Asked { precision, batches: [1, 1, 1], calibration })?,
            };
            let n_bytes = open.file_bytes()?;
            let engines = [bench.engine(fixed)?, bench.engine(open)?];
            let runs = if bench.is_short { 1 } else { RUNS };
            let time = |engine: &Engine, n: usize| -> Result<f64> {
                let times = bench.time(&mut engine.context()?, &batch(dims, n, 50)?, runs, MOST)?;
                Ok(stats(&times).median)
            };
            let (alone, one, many) =
                (time(&engines[0], 1)?, time(&engines[1], 1)?, time(&engines[1], BATCH)?);
            let mut context = engines[0].context()?;
            let mut all = Metrics::default();
            for (idx, image) in images.iter().enumerate() {
                let got = output(&mut context, image)?;
                if precision == Precision::Fp32 {
                    exact.push(got.clone());
                }
                all.add(&got, &exact[idx]);
            }
            let an_image = many / BATCH as f64;
            let is_exact = all.relative_l2() == 0.0;
            rows.push(vec![
                about.to_string(),
                precision.name().to_uppercase(),
                format!("{:.2}", n_bytes as f64 / 1e6),
                format!("{:.1}", (fixed_time + open_time).as_secs_f64()),
                format!("{alone:.2}"),
                format!("{one:.2}"),
                format!("{an_image:.2}"),
                format!("{:.2}", 1e3 / an_image),
                if is_exact { "same".to_string() } else { format!("{:.1}", all.psnr()) },
                print::number(all.relative_l2()),
            ]);
            points.push(Point {
                x: an_image,
                y: all.relative_l2().max(1e-9),
                about: format!("{about}, {}", precision.name()),
            });
            if precision == Precision::Fp32 && number == 0 {
                unet = Some((model.clone(), engines[1].clone()));
            }
            if precision == Precision::Fp32 && number == 1 {
                volume = Some(engines[1].clone());
            }
        }
        series.push(Series { name: about.to_string(), points, is_scattered: true });
    }
    report.heading("Precisions")?;
    report.table(rows, 2)?;
    report.chart(
        "error_over_speed",
        Chart {
            title: "Error over speed (FP32 at the bottom)".to_string(),
            x_label: "ms an image, in batches".to_string(),
            y_label: "relative L2 error against FP32, logarithmic".to_string(),
            y: Spread::Log,
            series,
            ..Chart::default()
        },
    );
    let Some((model, engine)) = unet else { return Ok(()) };
    large(bench, &engine, volume.as_ref(), report)?;
    lists(bench, &engine, report)?;
    lapse(bench, &engine, report)?;
    ensemble(bench, &model, &engine, report)
}

/// Images that are larger than the networks' inputs.
fn large(bench: &Bench, engine: &Engine, volume: Option<&Engine>, report: &mut Report<'_>) -> Result<()> {
    let side = if bench.is_short { 320 } else { 1024 };
    let mut rows = vec![
        ["image", "window", "overlap", "windows", "s", "ms a window", "windows alone, s"]
            .map(String::from)
            .to_vec(),
    ];
    let mut one = |engine: &Engine, dims: &[usize], roi: &[usize]| -> Result<()> {
        let image = cells(dims, 9)?;
        let mut session = Session::new(engine)?;
        let windows = SlidingWindow {
            roi: roi.to_vec(),
            overlap: vec![0.25],
            mode: Blend::Gaussian,
            batch: BATCH,
            ..SlidingWindow::default()
        };
        let mut n_windows = 0;
        session.warm_up(1)?;
        let start = Instant::now();
        session.sliding_window_with(&image, &windows, &mut |_, of| n_windows = of)?;
        let seconds = start.elapsed().as_secs_f64();
        // As many runs of batches without the image around them.
        let batches = n_windows.div_ceil(BATCH);
        let input = batch(roi, BATCH, 50)?;
        let mut context = engine.context()?;
        context.run_in_order(&[View::from(&input)])?;
        let start = Instant::now();
        for _ in 0..batches {
            context.run_in_order(&[View::from(&input)])?;
        }
        let alone = start.elapsed().as_secs_f64();
        let text = |dims: &[usize]| dims.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ");
        rows.push(vec![
            text(dims),
            text(roi),
            "0.25".to_string(),
            n_windows.to_string(),
            format!("{seconds:.2}"),
            format!("{:.1}", 1e3 * seconds / n_windows.max(1) as f64),
            format!("{alone:.2}"),
        ]);
        Ok(())
    };
    one(engine, &[side, side], &[256, 256])?;
    if let Some(volume) = volume {
        one(volume, &[96, 128, 128], &[64, 64, 64])?;
    }
    report.heading("Sliding windows, FP32")?;
    report.table(rows, 2)
}

/// A list of images, in batches and one by one.
fn lists(bench: &Bench, engine: &Engine, report: &mut Report<'_>) -> Result<()> {
    let n = if bench.is_short { 2 } else { 20 };
    let items = (0..n)
        .map(|seed| reshaped(&cells(&[256, 256], seed)?, &[1, 256, 256]))
        .collect::<Result<Vec<_>>>()?;
    let mut session = Session::new(engine)?;
    session.warm_up(1)?;
    let mut rows = vec![["batch", "images", "transfers", "s", "images/s"].map(String::from).to_vec()];
    let mut first: Option<Vec<Tensor>> = None;
    let mut worst: f64 = 0.0;
    for size in [1, BATCH] {
        let start = Instant::now();
        let done = session.batch_inference(&items, size)?;
        let seconds = start.elapsed().as_secs_f64();
        let made: Vec<Tensor> = done.results.iter().map(|result| result.tensors()[0].clone()).collect();
        let base = first.get_or_insert_with(|| made.clone());
        for (got, want) in made.iter().zip(base) {
            worst = worst.max(metrics(got, want).relative_l2());
        }
        rows.push(vec![
            size.to_string(),
            n.to_string(),
            done.transfers.to_string(),
            format!("{seconds:.2}"),
            format!("{:.2}", n as f64 / seconds),
        ]);
    }
    report.heading("A list of images, FP32")?;
    report.table(rows, 0)?;
    report.text(&format!("In batches the results are {} off those one by one.", print::number(worst)))
}

/// Frames that come faster than they can be run, and slower.
fn lapse(bench: &Bench, engine: &Engine, report: &mut Report<'_>) -> Result<()> {
    let n = if bench.is_short { 3 } else { 40 };
    let mut session = Session::new(engine)?;
    let frame = batch(&[256, 256], 1, 70)?;
    session.warm_up(2)?;
    let start = Instant::now();
    for _ in 0..3 {
        session.infer(&frame)?;
    }
    let run = start.elapsed() / 3;
    let mut rows = vec![
        ["frames every ms", "frames", "delivered", "dropped", "late", "mean ms", "longest ms"]
            .map(String::from)
            .to_vec(),
    ];
    for factor in [0.5, 1.5] {
        let period = run.mul_f64(factor);
        let begun = Instant::now();
        // A camera: a frame at its time, whoever is ready.
        let camera = (0..n).map(|number| {
            std::thread::sleep((period * number).saturating_sub(begun.elapsed()));
            frame.clone()
        });
        let options = StreamOptions { queue: 2, when_full: WhenFull::DropOldest, deadline: Some(4 * run) };
        let told = session.stream(camera, options, |_| ControlFlow::Continue(()))?;
        rows.push(vec![
            format!("{:.1}", period.as_secs_f64() * 1e3),
            told.frames.to_string(),
            told.delivered.to_string(),
            (told.dropped + told.expired).to_string(),
            told.late.to_string(),
            format!("{:.1}", told.total_latency.as_secs_f64() * 1e3 / told.delivered.max(1) as f64),
            format!("{:.1}", told.max_latency.as_secs_f64() * 1e3),
        ]);
    }
    report.heading(
        "A time lapse, FP32: the newest frames are run, at most two wait, four runs are the deadline",
    )?;
    report.table(rows, 0)
}

/// Three trainings of one network asked together.
fn ensemble(bench: &mut Bench, model: &Model, engine: &Engine, report: &mut Report<'_>) -> Result<()> {
    let mut members = vec![Session::new(engine)?];
    for seed in 1..if bench.is_short { 2 } else { 3 } {
        let other = bench.model(NETWORKS[0].0, SEED + seed)?;
        let asked =
            Asked { precision: Precision::Fp32, batches: [1, BATCH as i64, BATCH as i64], calibration: None };
        let (plan, _) = bench.build(&other, asked)?;
        members.push(Session::new(&bench.engine(plan)?)?);
    }
    let image = batch(&[256, 256], 1, 5)?;
    let start = Instant::now();
    let single = members[0].infer(&image)?.tensors()[0].clone();
    let alone = start.elapsed();
    let mut together = Ensemble::mean(members)?;
    let start = Instant::now();
    let mean = together.infer(&image)?;
    let time = start.elapsed();
    let apart = metrics(&mean.tensors()[0], &single).relative_l2();
    let n = together.members_mut().len();
    report.heading(&format!("An ensemble of {n}, FP32"))?;
    report.text(&format!(
        "One network of {} parts: {}; all {n} and their mean: {}. The mean is {apart:.2} (relative L2) from the first member.",
        model.graph().nodes().len(),
        print::seconds(alone.as_secs_f64()),
        print::seconds(time.as_secs_f64())
    ))
}
