//! The three engines of an image generator in a tight loop: encoder, denoiser, decoder, contexts made once.
//!
//! What one engine wrote is what the next reads, in device memory on a GPU. A run waits for its own stream, never for the
//! device. Every image is compared with that of a clean run: an engine of its own, one context, one run.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use planish::{Bindings, Buffer, Context as Lane, Engine, Model, Precision, Tensor, View};

use super::bench::{Asked, Bench, metrics, output, stats};
use super::report::Report;
use crate::ending::Ending;
use crate::page::chart::{Chart, Point, Series, Spread};
use crate::print;

const MODELS: [&str; 3] = ["gen_encoder_256", "gen_unet_32", "gen_decoder_32"];
const IMAGE: [usize; 4] = [1, 3, 256, 256];
/// Seed of the weights; images take the next ones.
const SEED: u64 = 7;
/// Images of the loop, and how long it may take.
const LOOP: usize = 200;
const SHORT_LOOP: usize = 2;
const MOST: Duration = Duration::from_secs(60);
/// Different images, in turn, so that what one run leaves behind would show in the next.
const IMAGES: u64 = 3;

/// One engine of the line.
struct Stage {
    context: Lane,
    bindings: Bindings,
    input: String,
    output: String,
    /// Of the output.
    dims: Vec<usize>,
}

/// Three engines, one behind the other.
struct Line {
    stages: Vec<Stage>,
}

impl Line {
    fn new(engines: &[Engine]) -> Result<Line> {
        let mut dims = IMAGE.to_vec();
        let mut stages: Vec<Stage> = Vec::new();
        for (idx, engine) in engines.iter().enumerate() {
            let first = |ports: Vec<planish::PortInfo>| {
                ports.into_iter().next().map(|port| port.name).context("a model has no input or no output")
            };
            let (input, output) = (first(engine.inputs())?, first(engine.outputs())?);
            let context = engine.context()?;
            let sizes = context.output_dims(&[(&input, &dims)])?;
            let output_dims = sizes.into_iter().next().flatten().context("an output of unknown size")?;
            let on_device = engine.record().device().is_some();
            let mut bindings = Bindings::new();
            if idx == 0 {
                bindings = bindings.input(&input, context.input_buffer(&input, &dims)?);
            }
            // Only the image at the end goes to the host.
            bindings = bindings.output(
                &output,
                match on_device && idx + 1 < engines.len() {
                    true => Buffer::from(context.device_output_buffer(&output, &output_dims)?),
                    false => Buffer::from(context.output_buffer(&output, &output_dims)?),
                },
            );
            dims.clone_from(&output_dims);
            stages.push(Stage { context, bindings, input, output, dims: output_dims });
        }
        Ok(Line { stages })
    }

    fn run(&mut self, image: &Tensor) -> Result<Tensor> {
        let first = &mut self.stages[0];
        let buffer = first.bindings.input_mut(&first.input).context("no buffer for the image")?;
        buffer.bytes_mut().copy_from_slice(image.bytes());
        for idx in 0..self.stages.len() {
            let (before, rest) = self.stages.split_at_mut(idx);
            let stage = &mut rest[0];
            let Some(before) = before.last_mut() else {
                stage.context.run_bound(&mut stage.bindings)?;
                continue;
            };
            // The buffer moves behind the engine that wrote it, and back.
            let buffer =
                before.bindings.take_output_buffer(&before.output).context("the output has no buffer")?;
            stage.bindings = std::mem::take(&mut stage.bindings).input(&stage.input, buffer);
            let ran = stage.context.run_bound(&mut stage.bindings);
            let buffer = stage.bindings.take_input(&stage.input).context("the input has no buffer")?;
            before.bindings = std::mem::take(&mut before.bindings).output(&before.output, buffer);
            ran?;
        }
        let last = self.stages.last().context("there are no engines")?;
        let image = last.bindings.get_output(&last.output).context("no image came out")?;
        Ok(Tensor::new(&last.dims, image.as_slice::<f32>().context("images are f32")?.to_vec())?)
    }
}

pub(super) fn run(bench: &mut Bench, report: &mut Report<'_>) -> Result<()> {
    report.text(
        "Encoder (256 x 256), denoiser and decoder of `planish zoo`, random weights; one image after the other through \
         contexts that are made once.",
    )?;
    let models = MODELS.map(|name| bench.model(name, SEED)).into_iter().collect::<Result<Vec<Model>>>()?;
    let images = (1..=if bench.is_short { 1 } else { IMAGES })
        .map(|seed| Ok(planish::io::Random::new(SEED + seed).tensor(planish::DType::F32, &IMAGE)?))
        .collect::<Result<Vec<Tensor>>>()?;
    let n_images = if bench.is_short { SHORT_LOOP } else { LOOP };
    let mut exact: Vec<Tensor> = Vec::new();
    let mut rows = vec![
        [
            "in",
            "build s",
            "plans MB",
            "images",
            "median ms",
            "p99 ms",
            "images/s",
            "times FP32",
            "unlike clean run",
            "MAE to clean",
            "MAE to FP32",
            "PSNR to FP32 dB",
        ]
        .map(String::from)
        .to_vec(),
    ];
    let mut parts = vec![["in", "encoder ms", "denoiser ms", "decoder ms"].map(String::from).to_vec()];
    let mut series = Vec::new();
    let mut fp32_rate = None;
    let precisions = bench.precisions();
    for precision in [precisions[0], precisions[1]] {
        let (mut engines, mut n_bytes, mut built) = (Vec::new(), 0, Duration::ZERO);
        for model in &models {
            let asked = Asked { precision, batches: [1, 1, 1], calibration: None };
            let (plan, time) = bench.build(model, asked)?;
            built += time;
            n_bytes += plan.file_bytes()?;
            engines.push(bench.engine(plan)?);
        }
        // Clean runs: contexts of their own for every image, used once.
        let clean = images.iter().map(|image| Line::new(&engines)?.run(image)).collect::<Result<Vec<_>>>()?;
        let mut line = Line::new(&engines)?;
        for image in images.iter().filter(|_| !bench.is_short) {
            line.run(image)?;
        }
        let (mut times, mut n_unlike, mut worst) = (Vec::new(), 0, 0f64);
        let start = Instant::now();
        while times.len() < n_images && (times.len() < SHORT_LOOP || start.elapsed() < MOST) {
            let which = times.len() % images.len();
            let begun = Instant::now();
            let made = line.run(&images[which])?;
            times.push(begun.elapsed());
            if made.bytes() != clean[which].bytes() {
                n_unlike += 1;
                worst = worst.max(metrics(&made, &clean[which]).mean_abs());
            }
        }
        parts.push(alone(&engines, &images[0], precision, if bench.is_short { 1 } else { 10 })?);
        if precision == Precision::Fp32 {
            exact.clone_from(&clean);
        }
        let mut all = planish::Metrics::default();
        clean.iter().zip(&exact).for_each(|(got, want)| all.add(got, want));
        let seen = stats(&times);
        let rate = times.len() as f64 / times.iter().sum::<Duration>().as_secs_f64();
        let base = *fp32_rate.get_or_insert(rate);
        let name = precision.name().to_uppercase();
        rows.push(vec![
            name.clone(),
            format!("{:.1}", built.as_secs_f64()),
            format!("{:.1}", n_bytes as f64 / 1e6),
            times.len().to_string(),
            format!("{:.2}", seen.median),
            format!("{:.2}", seen.p99),
            format!("{rate:.2}"),
            format!("{:.2}", rate / base),
            n_unlike.to_string(),
            print::number(worst),
            print::number(all.mean_abs()),
            if all.mean_abs() == 0.0 { "same".to_string() } else { format!("{:.1}", all.psnr()) },
        ]);
        let point = |(at, time): (usize, &Duration)| Point {
            x: at as f64,
            y: time.as_secs_f64() * 1e3,
            about: format!("{name}, image {at}"),
        };
        series.push(Series {
            name: name.clone(),
            points: times.iter().enumerate().map(point).collect(),
            is_scattered: false,
        });
        ensure!(
            n_unlike == 0,
            Ending::Ours(format!("{n_unlike} images of the loop in {name} are unlike those of clean runs"))
        );
    }
    report.heading("The loop")?;
    report.table(rows, 1)?;
    report.heading("Engines alone")?;
    report.table(parts, 1)?;
    report.chart(
        "latency_of_the_loop",
        Chart {
            title: "Latency of every image of the loop".to_string(),
            x_label: "image".to_string(),
            y_label: "ms".to_string(),
            x: Spread::Linear,
            series,
            ..Chart::default()
        },
    );
    Ok(())
}

/// The median of each engine by itself, inputs and outputs on the host.
fn alone(engines: &[Engine], image: &Tensor, precision: Precision, runs: usize) -> Result<Vec<String>> {
    let mut row = vec![precision.name().to_uppercase()];
    let mut x = image.clone();
    for engine in engines {
        let mut context = engine.context()?;
        let mut times = Vec::new();
        for _ in 0..runs {
            let start = Instant::now();
            context.run_in_order(&[View::from(&x)])?;
            times.push(start.elapsed());
        }
        row.push(format!("{:.2}", stats(&times).median));
        x = output(&mut context, &x)?;
    }
    Ok(row)
}
