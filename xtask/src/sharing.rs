//! `cargo xtask sharing`: what is lost when contexts, engines or other processes share the cores.
//!
//! Each figure is a ratio of throughputs measured in turns, so that a machine's slow moments fall on both sides.

use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use planish::{Builder, Context, ContextOptions, Device, Engine, View};

/// How long one measurement lasts; long against a time slice of the scheduler (3 ms) and against a run.
const TURN: Duration = Duration::from_millis(1_500);
/// Turns of each kind.
const N_TURNS: usize = 5;
/// Two contexts of one thread on two cores do at least so much more than one.
const MIN_TWO_CONTEXTS: f64 = 1.8;
/// The engines that are used in turn.
const PIPELINE: [&str; 3] = ["gen_encoder_256", "gen_unet_32", "gen_decoder_32"];
/// What using three engines in turn may cost against each alone.
const MAX_TURN_LOSS: f64 = 0.03;
/// The least share of the fair one that a run keeps beside busy processes.
const MIN_FAIR_SHARE: f64 = 0.8;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A model of `planish zoo`.
    #[arg(default_value = "resnet18_224")]
    model: String,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let engine = |model: &str, threads: usize| -> Result<Engine> {
        let graph = planish_zoo::graph(model, 0)?;
        Ok(Engine::new(
            Builder::from_graph(graph).device(Device::Cpu).tune_level(0).threads(threads).build()?,
            Device::Cpu,
        )?)
    };
    let one = engine(&options.model, 1)?;
    let mut good = two_contexts(&one)?;
    let mut pipeline = Vec::new();
    for model in PIPELINE {
        pipeline.push(engine(model, 1)?);
    }
    good &= engines_in_turn("an image generator's three engines", &pipeline)? <= MAX_TURN_LOSS;
    // What engines lose whose weights fit in the last cache only while they are alone, for comparison.
    let small = [one, engine("mobilenet_v2_224", 1)?, engine("cifar_cnn", 1)?];
    engines_in_turn("a small model's, and two smaller ones'", &small)?;
    good &= beside_busy(&engine(&options.model, 2)?)?;
    Ok(good)
}

/// A context with an input of its own.
struct Caller {
    context: Context,
    dims: Vec<usize>,
    pixels: Vec<f32>,
}

impl Caller {
    fn new(engine: &Engine, threads: usize) -> Result<Caller> {
        let input = engine.inputs().into_iter().next().context("the model has no input")?;
        let shape =
            input.ty.as_tensor().and_then(|ty| ty.shape.clone()).context("an input of unknown rank")?;
        let dims = shape.eval(&|_: &str| Some(1)).context("an input of unknown size")?;
        let n: usize = dims.iter().product();
        let pixels = (0..n).map(|idx| (idx * 7_919 % 1_009) as f32 / 1_009.0 - 0.5).collect();
        let mut caller = Caller { context: engine.context_with(ContextOptions::new(threads))?, dims, pixels };
        caller.run()?;
        Ok(caller)
    }

    fn run(&mut self) -> Result<()> {
        Ok(self.context.run_in_order(&[View::new(&self.dims, &self.pixels)?])?)
    }

    /// Runs per second over one turn.
    fn rate(&mut self) -> Result<f64> {
        let (started, mut n_runs) = (Instant::now(), 0);
        while started.elapsed() < TURN {
            self.run()?;
            n_runs += 1;
        }
        Ok(f64::from(n_runs) / started.elapsed().as_secs_f64())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Two threads with a context each against one.
fn two_contexts(engine: &Engine) -> Result<bool> {
    let (mut first, mut second) = (Caller::new(engine, 1)?, Caller::new(engine, 1)?);
    let mut ratios = Vec::new();
    for _ in 0..N_TURNS {
        let alone = first.rate()?;
        let (a, b) = std::thread::scope(|scope| {
            let other = scope.spawn(|| second.rate());
            (first.rate(), other.join())
        });
        let both = a? + b.map_err(|_| anyhow::anyhow!("the other thread panicked"))??;
        ratios.push(both / alone);
    }
    let ratio = median(ratios);
    println!("two contexts of one thread: {ratio:.2} x one (at least {MIN_TWO_CONTEXTS})");
    Ok(ratio >= MIN_TWO_CONTEXTS)
}

/// Three engines, one run of each in turn, against each alone.
fn engines_in_turn(what: &str, engines: &[Engine]) -> Result<f64> {
    let mut callers = engines.iter().map(|engine| Caller::new(engine, 1)).collect::<Result<Vec<_>>>()?;
    let mut losses = Vec::new();
    for _ in 0..N_TURNS {
        let alone: f64 = callers.iter_mut().map(|caller| Ok(1.0 / caller.rate()?)).sum::<Result<f64>>()?;
        let (started, mut n_rounds) = (Instant::now(), 0);
        while started.elapsed() < TURN {
            callers.iter_mut().try_for_each(Caller::run)?;
            n_rounds += 1;
        }
        let in_turn = started.elapsed().as_secs_f64() / f64::from(n_rounds);
        losses.push(in_turn / alone - 1.0);
    }
    let loss = median(losses);
    println!("in turn, {what}: {:.1} % lost", 100.0 * loss);
    Ok(loss)
}

/// Processes that do nothing but use a core each; ended when dropped, and by themselves where we end without that.
pub(crate) struct Busy(Vec<Child>);

impl Busy {
    pub(crate) fn new(n: usize) -> Result<Busy> {
        let work = "while kill -0 $PPID; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done";
        let spawn = |_| Command::new("sh").args(["-c", work]).spawn();
        Ok(Busy((0..n).map(spawn).collect::<std::io::Result<_>>()?))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself; nothing is left to do then.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A run on all cores beside as many busy processes has half of the machine. What its share is worth is measured
/// by plain threads that count, beside the same processes.
fn beside_busy(engine: &Engine) -> Result<bool> {
    let n_cores = std::thread::available_parallelism()?.get().min(2);
    let mut caller = Caller::new(engine, n_cores)?;
    let mut ratios = Vec::new();
    for _ in 0..N_TURNS {
        let (alone, counted_alone) = (caller.rate()?, counted(n_cores));
        let busy = Busy::new(n_cores)?;
        let (beside, counted_beside) = (caller.rate()?, counted(n_cores));
        drop(busy);
        ratios.push((beside / alone) / (counted_beside / counted_alone));
    }
    let ratio = median(ratios);
    println!(
        "beside {n_cores} busy processes: {:.0} % of the fair share (at least {:.0})",
        100.0 * ratio,
        100.0 * MIN_FAIR_SHARE
    );
    Ok(ratio >= MIN_FAIR_SHARE)
}

/// How far `n` threads count together in one turn.
fn counted(n: usize) -> f64 {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let count = || {
            let mut n = 0u64;
            while !stop.load(Relaxed) {
                n = std::hint::black_box(n + 1);
            }
            n as f64
        };
        let threads: Vec<_> = (0..n).map(|_| scope.spawn(count)).collect();
        std::thread::sleep(TURN);
        stop.store(true, Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap_or(0.0)).sum()
    })
}
