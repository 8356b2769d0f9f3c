//! What scenarios share: builds that learn from each other's times, runs that are timed, and images that look like what
//! microscopes and cameras give.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use planish::io::Random;
use planish::{
    Builder, Bytes, Calibration, CalibrationBuilder, Context as Lane, Device, Engine, Metrics, Model, Plan,
    Precision, Profile, Sample, SymbolRange, Tensor, TimingCache, Value, View,
};

use crate::interrupt::Stoppable;
use crate::progress;
use crate::stats::Stats;

/// Percent of runs that trimmed means leave out at each end.
const TRIM: u32 = 10;
/// Runs before a clock counts.
const WARM_UP: usize = 2;
/// A run that is this long is timed less often than asked.
const LEAST_RUNS: usize = 10;

/// Builds plans for one device; times of kernels that one build measured serve the next.
pub(super) struct Bench {
    pub(super) device: Device,
    pub(super) is_short: bool,
    timings: TimingCache,
}

/// What is built.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) precision: Precision,
    /// Of the first axis: smallest, tuned for, largest.
    pub(super) batches: [i64; 3],
    /// For INT8.
    pub(super) calibration: Option<&'a Calibration>,
}

impl Bench {
    pub(super) fn new(device: Device, is_short: bool) -> Bench {
        Bench { device: device.settled(), is_short, timings: TimingCache::default() }
    }

    pub(super) fn on_gpu(&self) -> bool {
        matches!(self.device, Device::Cuda(_))
    }

    /// FP32, the sixteen bits that this device multiplies in, and INT8.
    pub(super) fn precisions(&self) -> [Precision; 3] {
        let sixteen = if self.on_gpu() { Precision::Fp16 } else { Precision::Bf16 };
        [Precision::Fp32, sixteen, Precision::Int8]
    }

    fn tune_level(&self) -> u32 {
        if self.is_short { 0 } else { 2 }
    }

    /// A model of the zoo.
    pub(super) fn model(&self, name: &str, seed: u64) -> Result<Model> {
        Ok(Model::from_bytes(&Bytes::from_vec(planish_zoo::onnx(name, seed)?))?)
    }

    /// A plan, and how long it took.
    pub(super) fn build(&mut self, model: &Model, asked: Asked<'_>) -> Result<(Plan, Duration)> {
        let [min, opt, max] = asked.batches;
        let mut builder = Builder::from_model(model.clone())
            .device(self.device)
            .precision(asked.precision)
            .tune_level(self.tune_level())
            .timings(std::mem::take(&mut self.timings));
        let symbols: Vec<String> = batch_symbols(model);
        let ranges: Vec<SymbolRange> =
            symbols.into_iter().map(|symbol| SymbolRange { symbol, min, opt, max }).collect();
        if !ranges.is_empty() {
            builder = builder.profile(Profile { ranges });
        }
        if let Some(calibration) = asked.calibration {
            builder = builder.calibration(calibration)?;
        }
        let work = Stoppable::begin();
        builder.options_mut().cancel = work.flag();
        builder.options_mut().verify = !self.is_short;
        builder.options_mut().progress = progress::bar();
        let start = Instant::now();
        let built = builder.build_with_report();
        progress::clear();
        work.end()?;
        let (built, timings) = built?;
        self.timings = timings;
        Ok((built.plan.into(), start.elapsed()))
    }

    pub(super) fn engine(&self, plan: Plan) -> Result<Engine> {
        Ok(Engine::new(plan, self.device)?)
    }

    /// The ranges that a model has on these inputs, a sample each.
    pub(super) fn calibrate(&self, model: &Model, inputs: Vec<Tensor>) -> Result<Calibration> {
        let name = input_name(model)?;
        let samples = inputs.into_iter().map(|tensor| {
            let count = tensor.shape().first().copied().unwrap_or(1);
            Ok::<_, planish::Error>(Sample::new(vec![(name.clone(), tensor)], count))
        });
        Ok(CalibrationBuilder::from_model(model.clone()).device(self.device).run(samples)?)
    }

    /// Times of so many runs, or of those that fit into the time; 10 at least.
    pub(super) fn time(
        &self,
        context: &mut Lane,
        input: &Tensor,
        runs: usize,
        most: Duration,
    ) -> Result<Vec<Duration>> {
        let views = [View::from(input)];
        for _ in 0..WARM_UP {
            context.run_in_order(&views)?;
        }
        let (mut times, start) = (Vec::new(), Instant::now());
        while times.len() < runs && (times.len() < LEAST_RUNS.min(runs) || start.elapsed() < most) {
            let run = Instant::now();
            context.run_in_order(&views)?;
            times.push(run.elapsed());
        }
        Ok(times)
    }
}

/// What a context makes of an input, its first output.
pub(super) fn output(context: &mut Lane, input: &Tensor) -> Result<Tensor> {
    let made = context.run_values(&[Value::from(input.clone())])?;
    let first = made.first().and_then(Value::as_tensor).cloned();
    first.context("the model has no output that is a tensor")
}

pub(super) fn stats(times: &[Duration]) -> Stats {
    Stats::new(times, TRIM)
}

/// The open sizes of the first axes of a model's inputs.
fn batch_symbols(model: &Model) -> Vec<String> {
    let mut symbols: Vec<String> = Vec::new();
    for (_, ty) in planish::shapes::tensor_inputs(model.graph()) {
        let first = ty.shape.as_ref().and_then(|shape| shape.dims().first().cloned());
        if let Some(dim) = first.filter(|dim| dim.as_usize().is_none()) {
            let name = dim.to_string();
            if !symbols.contains(&name) {
                symbols.push(name);
            }
        }
    }
    symbols
}

/// The name of a model's one input.
pub(super) fn input_name(model: &Model) -> Result<String> {
    let inputs = planish::shapes::tensor_inputs(model.graph());
    let first = inputs.into_iter().next().map(|(value, _)| value.name.to_string());
    first.context("the model has no input")
}

/// How far one output is from another.
pub(super) fn metrics(got: &Tensor, want: &Tensor) -> Metrics {
    let mut metrics = Metrics::default();
    metrics.add(got, want);
    metrics
}

/// An image as a microscope gives it: bright blobs of several sizes over a background, with noise; scaled to mean 0 and
/// deviation 1. Of one channel, over any number of axes.
pub(super) fn cells(dims: &[usize], seed: u64) -> Result<Tensor> {
    let mut random = Random::new(seed);
    let n: usize = dims.iter().product();
    let n_cells = (n as f64 / 900f64.powf(dims.len() as f64 / 2.0)).ceil().clamp(3.0, 4000.0) as usize;
    let mut pixels = vec![0f32; n];
    for _ in 0..n_cells {
        let middle: Vec<f64> = dims.iter().map(|&size| random.unit() * size as f64).collect();
        let (radius, bright) = (3.0 + 7.0 * random.unit(), 0.5 + random.unit());
        let low: Vec<usize> = middle.iter().map(|at| (at - 2.5 * radius).max(0.0) as usize).collect();
        let high: Vec<usize> = middle
            .iter()
            .zip(dims)
            .map(|(at, &size)| ((at + 2.5 * radius).ceil() as usize).min(size))
            .collect();
        let mut at = low.clone();
        'cell: loop {
            let far: f64 = at.iter().zip(&middle).map(|(&x, m)| (x as f64 - m).powi(2)).sum();
            let place = at.iter().zip(dims).fold(0, |sum, (&x, &size)| sum * size + x);
            pixels[place] += (bright * (-far / (radius * radius)).exp()) as f32;
            for axis in (0..dims.len()).rev() {
                at[axis] += 1;
                if at[axis] < high[axis] {
                    continue 'cell;
                }
                at[axis] = low[axis];
            }
            break;
        }
    }
    for pixel in &mut pixels {
        *pixel += (0.1 * (random.unit() + random.unit() - 1.0)) as f32;
    }
    let mean = pixels.iter().map(|&x| f64::from(x)).sum::<f64>() / n as f64;
    let variance = pixels.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n as f64;
    let scale = 1.0 / variance.sqrt().max(1e-6);
    pixels.iter_mut().for_each(|x| *x = ((f64::from(*x) - mean) * scale) as f32);
    Ok(Tensor::new(dims, pixels)?)
}

/// The same elements under other sizes.
pub(super) fn reshaped(tensor: &Tensor, dims: &[usize]) -> Result<Tensor> {
    Ok(Tensor::new(dims, tensor.elements::<f32>()?.into_owned())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_have_cells_and_are_scaled() {
        for dims in [&[64, 48][..], &[20, 24, 28]] {
            let image = cells(dims, 1).unwrap();
            let pixels = image.elements::<f32>().unwrap().into_owned();
            let mean: f32 = pixels.iter().sum::<f32>() / pixels.len() as f32;
            let brightest = pixels.iter().copied().fold(f32::MIN, f32::max);
            assert!(mean.abs() < 1e-3 && brightest > 1.5, "{mean} {brightest}");
            assert_eq!(cells(dims, 1).unwrap(), image);
            assert_ne!(cells(dims, 2).unwrap(), image);
        }
    }
}
