//! One plan for a range of sizes against plans for each size: `cargo xtask dynamic`.
//!
//! Runs of both take turns, so that a slow moment of the machine meets both. On the CPU the processor time of the
//! calling thread counts, so that other work on the machine does not; on a GPU its own clock, with inputs and outputs
//! in its memory. All builds share one timing cache, and with `--work` plans are taken from an earlier call.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use planish::{
    Bindings, Builder, Context, ContextOptions, Device, Engine, Plan, Precision, Profile, SymbolRange,
    TimingCache, Value, View, Wait,
};
use planish_ir::Graph;
use planish_plan::StepKind;
use planish_tensor::{DType, Tensor};

use crate::figure::Figures;
use crate::runtime::cpu_ns;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// `resnet18`, `minilm`, or both.
    #[arg(default_values_t = ["resnet18".to_string(), "minilm".to_string()])]
    models: Vec<String>,
    /// An ONNX file to take instead of the zoo's model, with the same symbols.
    #[arg(long)]
    file: Option<PathBuf>,
    /// How often each plan is timed at each size.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// How hard the builds search.
    #[arg(long, default_value_t = 3)]
    tune_level: u32,
    #[arg(long, default_value = "cpu")]
    device: Device,
    #[arg(long, default_value = "fp32")]
    precision: String,
    /// Sizes to measure, of those that the model's subject has.
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<i64>,
    /// A folder that keeps plans between calls.
    #[arg(long)]
    work: Option<PathBuf>,
    /// A file that keeps times between calls.
    #[arg(long)]
    timing_cache: Option<PathBuf>,
}

/// What is measured of one model.
struct Subject {
    zoo: &'static str,
    symbol: &'static str,
    opt: i64,
    sizes: &'static [i64],
    /// Sizes of the other symbols.
    fixed: &'static [(&'static str, i64)],
}

const RESNET18: Subject =
    Subject { zoo: "resnet18_224", symbol: "batch", opt: 8, sizes: &[1, 2, 4, 8, 16, 32], fixed: &[] };
const MINILM: Subject = Subject {
    zoo: "minilm",
    symbol: "seq",
    opt: 128,
    sizes: &[16, 32, 64, 128, 256, 512],
    fixed: &[("batch", 1)],
};

/// How much slower the plan for all sizes may be, and how much on the CPU where it was tuned.
const MAX_LOSS: f64 = 0.10;
const MAX_LOSS_AT_OPT: f64 = 0.05;
/// A sample is at least this long: the scheduler tells processor time every few milliseconds.
const SAMPLE_NS: f64 = 200e6;
/// On a device: runs before the clock counts, and runs that count.
const DEVICE_WARM_UP: usize = 20;
const DEVICE_RUNS: usize = 201;
/// Two plans of one model in one precision; FP16 may be 5e-3 from the truth on either side.
const MAX_DISTANCE: f64 = 1e-2;

pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut figures = Figures::new();
    for model in &options.models {
        let subject = match model.as_str() {
            "resnet18" => &RESNET18,
            "minilm" => &MINILM,
            other => anyhow::bail!("there is no `{other}` here; give resnet18 or minilm"),
        };
        measure(subject, options, &mut figures)?;
    }
    Ok(figures.all_good())
}

fn measure(subject: &Subject, options: &Options, figures: &mut Figures) -> Result<()> {
    let graph = match &options.file {
        Some(path) => planish_import::import_file(path)?.graph,
        None => planish_zoo::graph(subject.zoo, 0)?,
    };
    let (first, last) = (subject.sizes[0], subject.sizes[subject.sizes.len() - 1]);
    let mut timings = TimingCache::default();
    if let Some(path) = &options.timing_cache {
        timings = TimingCache::load_if_any(path)?.unwrap_or_default();
    }
    println!(
        "{}: {} of {first} to {last}, tuned at {}, against plans for each size; {} {}, 1 thread, tune level {}",
        subject.zoo, subject.symbol, subject.opt, options.device, options.precision, options.tune_level
    );
    let all = build(&graph, subject, (first, subject.opt, last), options, &mut timings)?;
    let n_switching = all
        .record()
        .program
        .steps
        .iter()
        .filter(|step| matches!(&step.kind, StepKind::Kernel { variants, .. } if variants.len() > 1));
    let n_switching = n_switching.count();
    println!("{n_switching} of {} steps take other tactics at other sizes", all.record().program.steps.len());
    println!("{:>6} {:>12} {:>12} {:>8}", subject.symbol, "one size ms", "all sizes ms", "ratio");
    let asked = |size: &i64| options.sizes.is_empty() || options.sizes.contains(size);
    for &size in subject.sizes.iter().filter(|size| asked(size)) {
        let one = build(&graph, subject, (size, size, size), options, &mut timings)?;
        let inputs = inputs(&graph, subject, size)?;
        let (one_ms, all_ms) = match all.record().device() {
            None => turns(&one, &all, &inputs, options.rounds)?,
            Some(_) => device_turns(&one, &all, &inputs)?,
        };
        let ratio = all_ms / one_ms;
        let is_opt = size == subject.opt && options.device == Device::Cpu;
        let most = 1.0 + if is_opt { MAX_LOSS_AT_OPT } else { MAX_LOSS };
        let verdict = if ratio <= most { "" } else { "  too slow" };
        println!("{size:>6} {one_ms:>12.4} {all_ms:>12.4} {ratio:>8.3}{verdict}");
        let name = format!("dynamic {} against static, {} {size}", subject.zoo, subject.symbol);
        figures.say(&name, format!("<= {most:.2}"), format!("{ratio:.3}"), ratio <= most);
    }
    Ok(())
}

fn build(
    graph: &Graph,
    subject: &Subject,
    (min, opt, max): (i64, i64, i64),
    options: &Options,
    timings: &mut TimingCache,
) -> Result<Engine> {
    let name = format!("{}_{}_{min}_{opt}_{max}.plan", subject.zoo, options.precision);
    let kept = options.work.as_ref().map(|folder| folder.join(name));
    if let Some(path) = kept.as_ref().filter(|path| path.is_file()) {
        return Ok(Engine::new(Plan::open(path)?, options.device)?);
    }
    let range = |symbol: &str, (min, opt, max)| SymbolRange { symbol: symbol.to_string(), min, opt, max };
    let mut ranges = vec![range(subject.symbol, (min, opt, max))];
    ranges.extend(subject.fixed.iter().map(|&(symbol, size)| range(symbol, (size, size, size))));
    let builder = Builder::from_graph(graph.clone())
        .profile(Profile { ranges })
        .threads(1)
        .device(options.device)
        .precision(Precision::named(&options.precision).context("give fp32, tf32, fp16 or bf16")?)
        .tune_level(options.tune_level)
        .timings(timings.clone());
    let (built, known) = builder.build_with_report()?;
    *timings = known;
    // At once: what is measured stays if the program is stopped.
    if let Some(path) = &options.timing_cache {
        timings.save(path)?;
    }
    let plan = Plan::from(built.plan);
    if let Some(path) = &kept {
        plan.save(path)?;
    }
    Ok(Engine::new(plan, options.device)?)
}

fn inputs(graph: &Graph, subject: &Subject, size: i64) -> Result<Vec<Value>> {
    let lookup = |name: &str| {
        let fixed = subject.fixed.iter().find(|(known, _)| *known == name).map(|(_, size)| *size);
        if name == subject.symbol { Some(size) } else { fixed }
    };
    let mut list = Vec::new();
    for &input in graph.inputs() {
        let ty = graph.value(input).ty.as_tensor().context("inputs are tensors")?;
        let dims = ty.shape.as_ref().and_then(|shape| shape.eval(&lookup)).context("a size is not known")?;
        let n: usize = dims.iter().product();
        let number =
            |at: usize| if ty.dtype == DType::F32 { (at as f64 * 0.37).sin() } else { (at % 1000) as f64 };
        list.push(Value::Tensor(Tensor::from_f64s(
            ty.dtype,
            &dims,
            &(0..n).map(number).collect::<Vec<_>>(),
        )?));
    }
    Ok(list)
}

/// A context with its inputs and outputs in the device's memory.
struct Resident {
    context: Context,
    bindings: Bindings,
}

impl Resident {
    fn new(engine: &Engine, inputs: &[Value]) -> Result<Resident> {
        let context = engine.context_with(ContextOptions { wait: Wait::Spin, ..ContextOptions::new(1) })?;
        let ports = engine.inputs();
        let mut bindings = Bindings::new();
        let mut dims = Vec::new();
        for (port, value) in ports.iter().zip(inputs) {
            let tensor = value.as_tensor().context("inputs are tensors")?;
            let mut buffer = context.device_input_buffer(&port.name, tensor.shape())?;
            buffer.upload(View::from(tensor))?;
            bindings = bindings.input(&port.name, buffer);
            dims.push((port.name.as_str(), tensor.shape()));
        }
        for (port, dims) in engine.outputs().iter().zip(context.output_dims(&dims)?) {
            let dims = dims.context("an output of unknown size")?;
            bindings = bindings.output(&port.name, context.device_output_buffer(&port.name, &dims)?);
        }
        Ok(Resident { context, bindings })
    }

    /// Milliseconds of the device's own time.
    fn sample(&mut self) -> Result<f64> {
        Ok(self.context.run_bound_phased(&mut self.bindings)?.compute_ns / 1e6)
    }

    fn outputs(&self) -> Result<Vec<Vec<u8>>> {
        let ports = self.context.engine().outputs();
        let one = |port: &planish::PortInfo| {
            let buffer = self.bindings.device_output(&port.name).context("an output without a buffer")?;
            Ok(buffer.download()?)
        };
        ports.iter().map(one).collect()
    }
}

/// Median milliseconds of a run of each on a device, in turns, once both have captured their launches.
fn device_turns(one: &Engine, all: &Engine, inputs: &[Value]) -> Result<(f64, f64)> {
    let mut both = [Resident::new(one, inputs)?, Resident::new(all, inputs)?];
    let mut times: [Vec<f64>; 2] = Default::default();
    for round in 0..DEVICE_WARM_UP + DEVICE_RUNS {
        for (resident, times) in both.iter_mut().zip(&mut times) {
            let ms = resident.sample()?;
            if round >= DEVICE_WARM_UP {
                times.push(ms);
            }
        }
    }
    // What is timed must be right: both computed the same network on the same input.
    let [one_outputs, all_outputs] = &both;
    for (one, all) in one_outputs.outputs()?.iter().zip(&all_outputs.outputs()?) {
        let distance = relative_l2(one, all);
        anyhow::ensure!(distance <= MAX_DISTANCE, "the two plans' outputs are {distance:.1e} apart");
    }
    let [mut one, mut all] = times;
    Ok((median(&mut one), median(&mut all)))
}

/// How far apart two lists of f32 are, as bytes; infinite where they have no number in common.
fn relative_l2(one: &[u8], other: &[u8]) -> f64 {
    let floats = |bytes: &[u8]| -> Vec<f64> {
        let floats = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        floats.map(f64::from).collect()
    };
    let (one, other) = (floats(one), floats(other));
    let squares: f64 = one.iter().map(|x| x * x).sum();
    let apart: f64 = one.iter().zip(&other).map(|(a, b)| (a - b).powi(2)).sum();
    let distance = (apart / squares).sqrt();
    if one.len() == other.len() && distance.is_finite() { distance } else { f64::INFINITY }
}

fn median(list: &mut [f64]) -> f64 {
    list.sort_by(f64::total_cmp);
    list[list.len() / 2]
}

/// Median milliseconds of a run of each, in turns.
fn turns(one: &Engine, all: &Engine, inputs: &[Value], rounds: usize) -> Result<(f64, f64)> {
    let context = |engine: &Engine| engine.context_with(ContextOptions::new(1));
    let (mut one, mut all) = (context(one)?, context(all)?);
    let begun = cpu_ns()?;
    one.run_values(inputs)?;
    all.run_values(inputs)?;
    let n_runs = (2.0 * SAMPLE_NS / (cpu_ns()? - begun).max(1e6)).ceil().clamp(1.0, 400.0) as usize;
    let sample = |context: &mut Context| -> Result<f64> {
        let begun = cpu_ns()?;
        for _ in 0..n_runs {
            context.run_values(inputs)?;
        }
        Ok((cpu_ns()? - begun) / n_runs as f64 / 1e6)
    };
    let mut times: [Vec<f64>; 2] = Default::default();
    for round in 0..rounds.max(1) {
        // Who goes first changes, so that what a run leaves in the caches favours nobody.
        for turn in 0..2 {
            let which = (round + turn) % 2;
            times[which].push(sample(if which == 0 { &mut one } else { &mut all })?);
        }
    }
    let [mut one, mut all] = times;
    Ok((median(&mut one), median(&mut all)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_relative() {
        let bytes = |list: &[f32]| list.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        assert!((relative_l2(&bytes(&[3.0, 4.0]), &bytes(&[3.0, 4.5])) - 0.1).abs() < 1e-9);
        assert_eq!(relative_l2(&bytes(&[1.0]), &bytes(&[1.0, 2.0])), f64::INFINITY);
        assert_eq!(relative_l2(&bytes(&[0.0]), &bytes(&[0.0])), f64::INFINITY);
        assert_eq!(relative_l2(&bytes(&[1.0]), &bytes(&[f32::NAN])), f64::INFINITY);
    }
}
