//! One plan for a range of sizes against plans for each size: `cargo xtask dynamic`.
//!
//! Runs of both take turns, so that a slow moment of the machine meets both, and the processor time of the calling
//! thread counts, so that other work on the machine does not. All builds share one timing cache.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use planish::{Builder, Context, ContextOptions, Device, Engine, Profile, SymbolRange, TimingCache, Value};
use planish_ir::Graph;
use planish_plan::StepKind;
use planish_tensor::{DType, Tensor};

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

/// How much slower the plan for all sizes may be, and how much where it was tuned.
const MAX_LOSS: f64 = 0.10;
const MAX_LOSS_AT_OPT: f64 = 0.05;
/// A sample is at least this long: the scheduler tells processor time every few milliseconds.
const SAMPLE_NS: f64 = 200e6;

pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut good = true;
    for model in &options.models {
        let subject = match model.as_str() {
            "resnet18" => &RESNET18,
            "minilm" => &MINILM,
            other => anyhow::bail!("there is no `{other}` here; give resnet18 or minilm"),
        };
        good &= measure(subject, options)?;
    }
    Ok(good)
}

fn measure(subject: &Subject, options: &Options) -> Result<bool> {
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
        "{}: {} of {first} to {last}, tuned at {}, against plans for each size; 1 thread, tune level {}",
        subject.zoo, subject.symbol, subject.opt, options.tune_level
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
    let mut good = true;
    for &size in subject.sizes {
        let one = build(&graph, subject, (size, size, size), options, &mut timings)?;
        let inputs = inputs(&graph, subject, size)?;
        let (one_ms, all_ms) = turns(&one, &all, &inputs, options.rounds)?;
        let ratio = all_ms / one_ms;
        let most = 1.0 + if size == subject.opt { MAX_LOSS_AT_OPT } else { MAX_LOSS };
        good &= ratio <= most;
        let verdict = if ratio <= most { "" } else { "  too slow" };
        println!("{size:>6} {one_ms:>12.2} {all_ms:>12.2} {ratio:>8.3}{verdict}");
    }
    if let Some(path) = &options.timing_cache {
        timings.save(path)?;
    }
    Ok(good)
}

fn build(
    graph: &Graph,
    subject: &Subject,
    (min, opt, max): (i64, i64, i64),
    options: &Options,
    timings: &mut TimingCache,
) -> Result<Engine> {
    let range = |symbol: &str, (min, opt, max)| SymbolRange { symbol: symbol.to_string(), min, opt, max };
    let mut ranges = vec![range(subject.symbol, (min, opt, max))];
    ranges.extend(subject.fixed.iter().map(|&(symbol, size)| range(symbol, (size, size, size))));
    let builder = Builder::from_graph(graph.clone())
        .profile(Profile { ranges })
        .threads(1)
        .tune_level(options.tune_level)
        .timings(timings.clone());
    let (built, known) = builder.build_with_report()?;
    *timings = known;
    Ok(Engine::new(built.plan.into(), Device::Cpu)?)
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
    let median = |list: &mut Vec<f64>| {
        list.sort_by(f64::total_cmp);
        list[list.len() / 2]
    };
    let [mut one, mut all] = times;
    Ok((median(&mut one), median(&mut all)))
}
