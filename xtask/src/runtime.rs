//! Figures of the runtime: the cost of a call, contexts shared by many threads, many shapes in a row.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use planish::{Builder, Context, ContextOptions, Device, Engine, Profile, SymbolRange, View};
use planish_ir::Graph;
use planish_testing::Random;

#[derive(clap::Args)]
pub(crate) struct ContextsOptions {
    /// How many runs; a million, or 200,000 with --long-tasks.
    n_runs: Option<usize>,
    /// Three contexts for each of 64 threads, tasks so long that callers sleep, two busy processes beside.
    #[arg(long)]
    pub(crate) long_tasks: bool,
}

impl ContextsOptions {
    pub(crate) fn n_runs(&self) -> usize {
        self.n_runs.unwrap_or(if self.long_tasks { 200_000 } else { 1_000_000 })
    }
}

#[derive(clap::Args)]
pub(crate) struct ShapesOptions {
    /// How many distinct sequence lengths.
    #[arg(default_value_t = 1_000)]
    n_shapes: usize,
    /// Layers of the transformer; MiniLM has 6.
    #[arg(long, default_value_t = 6)]
    layers: usize,
}

/// The most that a call of one Add on 4 floats may cost, in nanoseconds.
const MAX_CALL_NS: f64 = 3_000.0;
/// The most that the median resolve may take, in microseconds.
const MAX_RESOLVE_US: f64 = 200.0;

/// Nanoseconds that this thread has had a core, as of the last tick or switch of the scheduler.
pub(crate) fn cpu_ns() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    text.split(' ').next().and_then(|ns| ns.parse().ok()).context("schedstat has no time")
}

pub(crate) fn build(graph: Graph, profile: Option<Profile>, threads: usize) -> Result<Engine> {
    let mut builder = Builder::from_graph(graph).device(Device::Cpu).tune_level(0).threads(threads);
    if let Some(profile) = profile {
        builder = builder.profile(profile);
    }
    Ok(Engine::new(builder.build()?, Device::Cpu)?)
}

/// Prints what a call costs beside the kernels.
pub(crate) fn overhead() -> Result<bool> {
    const N_CALLS: usize = 500_000;
    let graph =
        "graph \"add\" {\n input %a: f32[4]\n input %b: f32[4]\n %y: f32[4] = Add(%a, %b)\n output %y\n}";
    let engine = build(graph.parse()?, None, 1)?;
    let (a, b, dims) = ([1f32, 2., 3., 4.], [5f32, 6., 7., 8.], [4]);
    let views = [View::new(&dims, &a)?, View::new(&dims, &b)?];
    let mut good = true;
    for threads in [1, 2] {
        let mut context = engine.context_with(ContextOptions::new(threads))?;
        let mut time = |what: &str, run: &mut dyn FnMut(&mut Context) -> Result<()>| -> Result<()> {
            for _ in 0..1_000 {
                run(&mut context)?;
            }
            let mut best = f64::INFINITY;
            let (wall, cpu) = (Instant::now(), cpu_ns()?);
            for _ in 0..N_CALLS / 1_000 {
                let started = Instant::now();
                for _ in 0..1_000 {
                    run(&mut context)?;
                }
                best = best.min(started.elapsed().as_nanos() as f64 / 1_000.0);
            }
            let (wall, cpu) = (wall.elapsed().as_nanos() as f64, cpu_ns()? - cpu);
            let (wall, cpu) = (wall / N_CALLS as f64, cpu / N_CALLS as f64);
            println!(
                "{threads} threads, {what}: {cpu:.0} ns of CPU, {wall:.0} ns of wall time, best {best:.0}"
            );
            good &= cpu < MAX_CALL_NS;
            Ok(())
        };
        time("run_in_order", &mut |context| Ok(context.run_in_order(&views)?))?;
        time("run by name", &mut |context| {
            let outputs = context.run(&[("a", views[0]), ("b", views[1])])?;
            if outputs.at(0).is_none() {
                bail!("there is no output");
            }
            Ok(())
        })?;
        let sums = context.output(0).and_then(|view| view.as_slice::<f32>().map(<[f32]>::to_vec));
        if sums.as_deref() != Some(&[6., 8., 10., 12.][..]) {
            bail!("the sums are {sums:?}");
        }
    }
    Ok(good)
}

/// 64 threads lease 3 contexts and run shapes in turn; every result must be the one of a context alone.
pub(crate) fn contexts(options: &ContextsOptions) -> Result<bool> {
    if options.long_tasks {
        return crate::long_tasks::run(options.n_runs());
    }
    const N_THREADS: usize = 64;
    const N_CONTEXTS: usize = 3;
    const N_BATCHES: usize = 7;
    const ROW: usize = 24;
    let weights = hex(&numbers(ROW * 16, 1));
    let more = hex(&numbers(16 * 8, 2));
    let text = format!(
        "graph \"small\" {{\n input %x: f32[batch,{ROW}]\n const %w: f32[{ROW},16] = hex \"{weights}\"\n \
         const %v: f32[16,8] = hex \"{more}\"\n %a: f32[batch,16] = MatMul(%x, %w)\n \
         %b: f32[batch,16] = Tanh(%a)\n %c: f32[batch,8] = MatMul(%b, %v)\n \
         %y: f32[batch,8] = Softmax(%c)\n output %y\n}}"
    );
    let engine = build(text.parse()?, None, 2)?;
    let x = numbers(N_BATCHES * ROW, 3);
    let run = |context: &mut Context, first: usize, batch: usize| -> Result<Vec<u8>> {
        let dims = [batch, ROW];
        context.run_in_order(&[View::new(&dims, &x[first * ROW..(first + batch) * ROW])?])?;
        Ok(context.output(0).context("there is no output")?.bytes().to_vec())
    };
    let mut alone = engine.context()?;
    let mut cases = Vec::new();
    for first in 0..N_BATCHES {
        for batch in 1..=N_BATCHES - first {
            cases.push((first, batch, run(&mut alone, first, batch)?));
        }
    }
    let pool = engine.pool(N_CONTEXTS)?;
    let (next, n_wrong) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..N_THREADS {
            scope.spawn(|| {
                loop {
                    let idx = next.fetch_add(1, SeqCst);
                    if idx >= options.n_runs() {
                        break;
                    }
                    // 11 and the number of cases have no common factor: neighbours in time differ in size.
                    let (first, batch, expected) = &cases[idx * 11 % cases.len()];
                    let is_right = run(&mut pool.lease(), *first, *batch).is_ok_and(|got| got == *expected);
                    n_wrong.fetch_add(usize::from(!is_right), SeqCst);
                }
            });
        }
    });
    let n_wrong = n_wrong.into_inner();
    println!(
        "{} runs of {} shapes and places by {N_THREADS} threads on {N_CONTEXTS} contexts in {:.1} s: \
         {n_wrong} mismatches",
        options.n_runs(),
        cases.len(),
        started.elapsed().as_secs_f64()
    );
    Ok(n_wrong == 0)
}

/// Distinct sequence lengths in a row on a transformer: how long a new one takes to resolve, and memory.
pub(crate) fn shapes(options: &ShapesOptions) -> Result<bool> {
    let range = SymbolRange { symbol: "seq".into(), min: 1, opt: 128, max: options.n_shapes.max(128) as i64 };
    let graph = transformer(options.layers).parse()?;
    let engine = build(graph, Some(Profile { ranges: vec![range] }), 1)?;
    let n_steps = engine.record().program.steps.len();
    let mut context = engine.context_with(ContextOptions::new(1))?;
    let mut times = Vec::with_capacity(options.n_shapes);
    let mut cpu_times = 0.0;
    let resident = resident_kib()?;
    for idx in 0..options.n_shapes {
        // Odd steps through all lengths: no order that memory could follow.
        let seq = 1 + idx * 389 % options.n_shapes;
        let dims = [1, seq, WIDTH];
        let (started, cpu) = (Instant::now(), cpu_ns()?);
        context.resolve(&[("x", &dims)])?;
        times.push(started.elapsed().as_nanos() as f64 / 1e3);
        cpu_times += cpu_ns()? - cpu;
    }
    let grown = resident_kib()?.saturating_sub(resident);
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    println!(
        "{} lengths of {n_steps} steps: median resolve {median:.0} µs ({:.0} to {:.0}, mean {:.0} µs of CPU), \
         {} resolved, arena {} KiB, process grew by {grown} KiB",
        options.n_shapes,
        times[0],
        times[times.len() - 1],
        cpu_times / 1e3 / times.len() as f64,
        context.n_resolved(),
        context.arena_bytes() / 1024
    );
    Ok(median < MAX_RESOLVE_US)
}

/// MiniLM's sizes.
const WIDTH: usize = 384;
const HEADS: usize = 12;

fn resident_kib() -> Result<usize> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// An encoder of MiniLM's sizes over embeddings of a symbolic length.
fn transformer(layers: usize) -> String {
    let (head, inner) = (WIDTH / HEADS, 4 * WIDTH);
    let mut text = format!("graph \"encoder\" {{\n input %x: f32[1,seq,{WIDTH}]\n");
    let constant = |text: &mut String, name: &str, dims: &[usize], seed: usize| {
        let data = hex(&numbers(dims.iter().product(), seed as u64));
        let dims = dims.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        text.push_str(&format!(" const %{name}: f32[{dims}] = hex \"{data}\"\n"));
    };
    text.push_str(&format!(
        " const %split: i64[4] = [0, 0, {HEADS}, {head}]\n const %join: i64[3] = [0, 0, {WIDTH}]\n"
    ));
    text.push_str(" const %scale: f32[] = [0.17677669]\n");
    constant(&mut text, "one", &[WIDTH], 1);
    let mut last = "x".to_string();
    for layer in 0..layers {
        for (idx, (name, rows, cols)) in
            [("q", WIDTH, WIDTH), ("k", WIDTH, WIDTH), ("v", WIDTH, WIDTH), ("o", WIDTH, WIDTH)]
                .into_iter()
                .chain([("up", WIDTH, inner), ("down", inner, WIDTH)])
                .enumerate()
        {
            constant(&mut text, &format!("w_{name}{layer}"), &[rows, cols], 10 * layer + idx + 2);
        }
        let l = layer;
        let full = format!("f32[1,seq,{WIDTH}]");
        for name in ["q", "k", "v"] {
            let perm = if name == "k" { "[0,2,3,1]" } else { "[0,2,1,3]" };
            let dims =
                if name == "k" { format!("{HEADS},{head},seq") } else { format!("{HEADS},seq,{head}") };
            text.push_str(&format!(
                " %{name}{l}: {full} = MatMul(%{last}, %w_{name}{l})\n \
                 %{name}s{l}: f32[1,seq,{HEADS},{head}] = Reshape(%{name}{l}, %split)\n \
                 %{name}t{l}: f32[1,{dims}] = Transpose(%{name}s{l}) {{perm={perm}}}\n"
            ));
        }
        let scores = format!("f32[1,{HEADS},seq,seq]");
        text.push_str(&format!(
            " %s{l}: {scores} = MatMul(%qt{l}, %kt{l})\n %m{l}: {scores} = Mul(%s{l}, %scale)\n \
             %p{l}: {scores} = Softmax(%m{l})\n %c{l}: f32[1,{HEADS},seq,{head}] = MatMul(%p{l}, %vt{l})\n \
             %d{l}: f32[1,seq,{HEADS},{head}] = Transpose(%c{l}) {{perm=[0,2,1,3]}}\n \
             %e{l}: {full} = Reshape(%d{l}, %join)\n %f{l}: {full} = MatMul(%e{l}, %w_o{l})\n \
             %g{l}: {full} = Add(%f{l}, %{last})\n %h{l}: {full} = LayerNormalization(%g{l}, %one)\n \
             %i{l}: f32[1,seq,{inner}] = MatMul(%h{l}, %w_up{l})\n %j{l}: f32[1,seq,{inner}] = Gelu(%i{l})\n \
             %n{l}: {full} = MatMul(%j{l}, %w_down{l})\n %t{l}: {full} = Add(%n{l}, %h{l})\n \
             %y{l}: {full} = LayerNormalization(%t{l}, %one)\n"
        ));
        last = format!("y{l}");
    }
    text.push_str(&format!(" output %{last}\n}}"));
    text
}

/// Seeded numbers in -1..1.
pub(crate) fn numbers(n: usize, seed: u64) -> Vec<f32> {
    Random::new(seed).list(n)
}

fn hex(numbers: &[f32]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    bytes
        .flat_map(|byte| [byte >> 4, byte & 15].map(|digit| char::from(DIGITS[usize::from(digit)])))
        .collect()
}
