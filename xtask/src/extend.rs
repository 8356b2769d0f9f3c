//! `cargo xtask extend`: what it costs to exchange weights under running threads, and to compute by a plugin.
//!
//! Processor time where one thread works alone, so that other work on the machine does not count; a refit is timed by the
//! clock as well, since threads wait for it. Build with `--release` to measure.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use planish::{Builder, ContextOptions, Device, Engine, Model, Plan, Tensor, View};
use planish_testing::Random;

use crate::figure::Figures;
use crate::runtime::cpu_ns;
use crate::{root, scratch};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Parts to measure: refit, plugin.
    #[arg(default_values_t = ["refit", "plugin"].map(String::from))]
    parts: Vec<String>,
    /// Refits under running threads.
    #[arg(long, default_value_t = 20)]
    refits: usize,
    /// Threads that run meanwhile.
    #[arg(long, default_value_t = 8)]
    threads: usize,
    /// How often blocks of runs are timed.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
}

/// What a refit may take, from the new model in memory to an engine whose next run has its weights, in milliseconds.
const MAX_REFIT_MS: f64 = 50.0;
/// How much longer than the built-in operator a plugin's may take.
const MAX_OVERHEAD: f64 = 0.02;
/// About how long a block of runs is, in nanoseconds: some systems count processor time by ticks of 4 ms.
const BLOCK_NS: f64 = 80e6;

pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut figures = Figures::new();
    for part in &options.parts {
        match part.as_str() {
            "refit" => refit(options, &mut figures)?,
            "plugin" => plugin(options, &mut figures)?,
            other => bail!("there is no part `{other}`; give refit or plugin"),
        }
    }
    Ok(figures.all_good())
}

fn built(model: &Model) -> Result<Plan> {
    Ok(Builder::from_model(model.clone()).device(Device::Cpu).threads(1).tune_level(0).build()?)
}

/// Shortest and median.
fn summary(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[0], times[times.len() / 2])
}

/// Processor time of all threads of this process so far, in milliseconds.
fn process_ms() -> Result<f64> {
    let mut ns = 0.0;
    for task in std::fs::read_dir("/proc/self/task")? {
        // A thread may have ended meanwhile.
        let text = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        ns += text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0);
    }
    Ok(ns / 1e6)
}

/// Weights of two seeds take turns: first alone, then under threads that run and compare every result.
fn refit(options: &Options, figures: &mut Figures) -> Result<()> {
    let name = "resnet18_224";
    let models = [0, 1].map(|seed| planish_zoo::graph(name, seed).map(Model::from));
    let [Ok(first), Ok(second)] = models else { bail!("the zoo has no {name}") };
    let plan = built(&first)?;
    let image = Random::new(1).floats(&[1, 3, 224, 224]);
    let answer = |plan: &Plan| -> Result<Tensor> {
        let engine = Engine::new(plan.clone(), Device::Cpu)?;
        let mut context = engine.context_with(ContextOptions::new(1))?;
        let outputs = context.run(&[("x", View::from(&image))])?;
        Ok(outputs.at(0).context("no output")?.to_tensor())
    };
    let answers = [answer(&plan)?, answer(&plan.refit(&second)?)?];
    ensure!(answers[0] != answers[1], "two seeds give one answer");

    let mut engine = Engine::new(plan.clone(), Device::Cpu)?;
    let (mut clock, mut swaps, mut own) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..options.refits {
        let (began, cpu) = (Instant::now(), cpu_ns()?);
        let newer = plan.refit(if turn % 2 == 0 { &second } else { &first })?;
        let swap = Instant::now();
        engine.refit(newer)?;
        swaps.push(swap.elapsed().as_secs_f64() * 1e3);
        clock.push(began.elapsed().as_secs_f64() * 1e3);
        own.push((cpu_ns()? - cpu) / 1e6);
    }
    let (least, median) = summary(clock);
    println!(
        "{name}, no thread running: {median:.1} ms ({least:.1} at least), of these the engine {:.2} ms; processor time \
         of the calling thread {:.1} ms",
        summary(swaps).1,
        summary(own).1
    );
    figures.say(
        &format!("{name}: refit, ms"),
        format!("<= {MAX_REFIT_MS}"),
        format!("{median:.1}"),
        median <= MAX_REFIT_MS,
    );

    let (stop, n_mixed) = (AtomicBool::new(false), AtomicUsize::new(0));
    let n_seen = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let (shared, mut clock, mut cpu) = (engine.clone(), Vec::new(), Vec::new());
    let result = std::thread::scope(|scope| {
        let one = || -> Result<()> {
            let mut context = shared.context_with(ContextOptions::new(1))?;
            while !stop.load(Ordering::Relaxed) {
                let outputs = context.run(&[("x", View::from(&image))])?;
                let y = outputs.at(0).context("no output")?;
                match answers.iter().position(|known| y.bytes() == &known.bytes()[..]) {
                    Some(which) => n_seen[which].fetch_add(1, Ordering::Relaxed),
                    None => n_mixed.fetch_add(1, Ordering::Relaxed),
                };
            }
            Ok(())
        };
        let threads: Vec<_> = (0..options.threads).map(|_| scope.spawn(one)).collect();
        let mut swap = || -> Result<()> {
            for turn in 0..options.refits {
                let which = turn % 2;
                let before = n_seen[which].load(Ordering::Relaxed);
                let (began, own) = (Instant::now(), cpu_ns()?);
                let newer = plan.refit(if which == 1 { &second } else { &first })?;
                engine.refit(newer)?;
                clock.push(began.elapsed().as_secs_f64() * 1e3);
                cpu.push((cpu_ns()? - own) / 1e6);
                // Until a thread had them.
                while n_seen[which].load(Ordering::Relaxed) == before && began.elapsed().as_secs() < 30 {
                    std::thread::yield_now();
                }
            }
            Ok(())
        };
        let result = swap();
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        result
    });
    result?;
    let (n_cores, seen) = (std::thread::available_parallelism()?, n_seen.map(AtomicUsize::into_inner));
    let (least, median) = summary(clock);
    println!(
        "{name}, {} threads running on {n_cores} cores, {} refits: {median:.1} ms by the clock ({least:.1} at least), {:.1} ms \
         of the calling thread; results of either weights {seen:?}; {:.0} ms of processor time in all",
        options.threads,
        options.refits,
        summary(cpu).1,
        process_ms()?
    );
    let what = format!("{name}: refit under {} running threads, ms by the clock", options.threads);
    figures.say(&what, format!("<= {MAX_REFIT_MS}"), format!("{median:.1}"), median <= MAX_REFIT_MS);
    let n_mixed = n_mixed.into_inner();
    figures.say("results of neither weights", 0, n_mixed, n_mixed == 0 && seen.iter().all(|n| *n > 0));
    Ok(())
}

/// A rotary embedding and what follows it, as the model has it: attention's queries, scaled and gated.
fn rotary(batch: usize, heads: usize, steps: usize, size: usize) -> String {
    let (x, table) =
        (format!("f32[{batch},{heads},{steps},{size}]"), format!("f32[{batch},{steps},{}]", size / 2));
    format!(
        "graph \"rope\" {{\n input %x: {x}\n input %cos: {table}\n input %sin: {table}\n input %gate: {x}\n \
         %t: {x} = RotaryEmbedding(%x, %cos, %sin)\n %g: {x} = Mul(%t, %gate)\n %y: {x} = Sigmoid(%g)\n output %y\n}}"
    )
}

/// The worked example against the built-in operator, both with what follows fused into it where they can.
fn plugin(options: &Options, figures: &mut Figures) -> Result<()> {
    std::fs::create_dir_all(scratch())?;
    let library = scratch().join("librope.so");
    compile(&library)?;
    let loaded = planish::plugin::load(&library)?;
    let rope = loaded.first().context("the library has no plugin")?;
    let mut worst = f64::NEG_INFINITY;
    for (what, [batch, heads, steps, size]) in [
        ("one step of 8 sequences", [8, 32, 1, 128]),
        ("64 steps", [1, 32, 64, 128]),
        ("512 steps", [1, 16, 512, 64]),
    ] {
        let built_in = Model::from(rotary(batch, heads, steps, size).parse::<planish::graph::Graph>()?);
        let (own, n_found) = planish::plugin::matched(&built_in, rope, None)?;
        ensure!(n_found == 1, "the pattern was found {n_found} times");
        let plans = [built(&built_in)?, built(&own)?];
        let steps_of = plans.each_ref().map(|plan| plan.record().program.steps.len());
        let engines = [0, 1].map(|which| Engine::new(plans[which].clone(), Device::Cpu));
        let [Ok(built_in), Ok(own)] = engines else { bail!("an engine does not open") };
        let mut contexts =
            [built_in.context_with(ContextOptions::new(1))?, own.context_with(ContextOptions::new(1))?];
        let mut random = Random::new(3);
        let x = random.floats(&[batch, heads, steps, size]);
        let gate = random.floats(&[batch, heads, steps, size]);
        let tables = [0, 1].map(|_| random.floats(&[batch, steps, size / 2]));
        let inputs = [&x, &tables[0], &tables[1], &gate].map(View::from);
        let (mut times, mut n_runs) = ([Vec::new(), Vec::new()], 2_000.0);
        for round in 0..=options.rounds {
            for which in [0, 1] {
                let before = cpu_ns()?;
                for _ in 0..n_runs as usize {
                    contexts[which].run_in_order(&inputs)?;
                }
                let ns = (cpu_ns()? - before) / n_runs;
                match round {
                    0 => n_runs = (BLOCK_NS / ns).clamp(4.0, 50_000.0).ceil(),
                    _ => times[which].push(ns / 1e3),
                }
            }
        }
        let far = |a: f32, b: f32| (a - b).abs() > 1e-6;
        let outputs = contexts.each_ref().map(|context| context.output(0));
        let [Some(a), Some(b)] = outputs else { bail!("there is no output") };
        let (a, b) = (a.as_slice::<f32>().context("f32")?, b.as_slice::<f32>().context("f32")?);
        ensure!(!a.iter().zip(b).any(|(a, b)| far(*a, *b)), "the plugin computes something else");
        let [(least, median), (own_least, own_median)] = times.map(summary);
        println!(
            "{what} ({batch} x {heads} x {steps} x {size}): built in {median:.2} us ({least:.2} at least) in {} steps, \
             plugin {own_median:.2} us ({own_least:.2} at least) in {}",
            steps_of[0], steps_of[1]
        );
        worst = worst.max(own_median / median - 1.0);
    }
    figures.say(
        "rotary embedding by a plugin, fused with what follows: over the built-in operator, most of three sizes",
        format!("<= {:.0} %", 100.0 * MAX_OVERHEAD),
        format!("{:.1} %", 100.0 * worst),
        worst <= MAX_OVERHEAD,
    );
    Ok(())
}

fn compile(library: &Path) -> Result<()> {
    let compiler = Command::new("cc")
        .args(["-O3", "-march=native", "-shared", "-fPIC", "-I", "crates/planish-capi/include"])
        .args(["examples/plugins/rope/rope.c", "-o"])
        .arg(library)
        .current_dir(root())
        .output()
        .context("cannot start cc")?;
    ensure!(compiler.status.success(), "{}", String::from_utf8_lossy(&compiler.stderr));
    Ok(())
}
