//! `cargo xtask contexts --long-tasks`: contexts whose callers sleep until workers are done, under more load than the
//! machine has cores. Every result is compared, and a watchdog ends what does not go on.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use planish::{Context, ContextOptions, Engine, View};

use crate::runtime::{build, numbers};
use crate::sharing::Busy;

const N_THREADS: usize = 64;
/// Of each thread, used in turn.
const N_CONTEXTS: usize = 3;
/// The caller and two workers.
const N_SLOTS: usize = 3;
const N_BUSY: usize = 2;
/// Rows of an input; a row is a task.
const ROWS: [usize; 3] = [2, 3, 4];
/// Elements of a row, and how many of them are taken.
const LENGTH: usize = 1 << 16;
const TAKEN: usize = 16;
/// A caller spins for 50 µs; tasks must last well beyond that.
const MIN_TASK_US: f64 = 200.0;
/// No run takes long, so this long without one that ends means that none will.
const PATIENCE: Duration = Duration::from_secs(120);

/// One input and its outputs, bit by bit.
struct Case {
    rows: usize,
    first: usize,
    expected: Vec<Vec<u8>>,
}

pub(crate) fn run(n_runs: usize) -> Result<bool> {
    let text = format!(
        "graph \"largest\" {{\n input %x: f32[rows,{LENGTH}]\n const %k: i64[1] = [{TAKEN}]\n \
         %v: f32[rows,{TAKEN}], %i: i64[rows,{TAKEN}] = TopK(%x, %k) {{axis=1}}\n output %v, %i\n}}"
    );
    let engine = build(text.parse()?, None, N_SLOTS)?;
    let most = ROWS.into_iter().max().unwrap_or(1);
    let x = numbers(2 * most * LENGTH, 5);
    let mut cases = Vec::new();
    let mut alone = engine.context_with(ContextOptions::new(1))?;
    for rows in ROWS {
        for first in 0..most {
            let expected = outputs(&mut alone, &x, rows, first)?;
            cases.push(Case { rows, first, expected });
        }
    }
    let task_us = task_us(&engine, &x)?;
    println!("a task takes {task_us:.0} µs (at least {MIN_TASK_US:.0})");
    if task_us < MIN_TASK_US {
        bail!("tasks are too short for callers to sleep");
    }

    let (next, n_done, n_wrong) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let is_over = AtomicBool::new(false);
    let busy = Busy::new(N_BUSY)?;
    let started = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..N_THREADS)
            .map(|thread| {
                let (engine, x, cases) = (&engine, &x, &cases);
                let (next, n_done, n_wrong) = (&next, &n_done, &n_wrong);
                scope.spawn(move || -> Result<()> {
                    let context = |_| engine.context_with(ContextOptions::new(N_SLOTS));
                    let mut contexts = (0..N_CONTEXTS).map(context).collect::<Result<Vec<_>, _>>()?;
                    loop {
                        let idx = next.fetch_add(1, SeqCst);
                        if idx >= n_runs {
                            return Ok(());
                        }
                        let case = &cases[(idx * 7 + thread) % cases.len()];
                        let context = &mut contexts[idx % N_CONTEXTS];
                        let is_right = outputs(context, x, case.rows, case.first)? == case.expected;
                        n_wrong.fetch_add(usize::from(!is_right), SeqCst);
                        n_done.fetch_add(1, SeqCst);
                    }
                })
            })
            .collect();
        scope.spawn(|| watch(&n_done, &is_over));
        let ended = threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked")));
        is_over.store(true, SeqCst);
        ended
    })?;
    drop(busy);
    let (n_done, n_wrong) = (n_done.into_inner(), n_wrong.into_inner());
    println!(
        "{n_done} runs by {N_THREADS} threads with {N_CONTEXTS} contexts each, {} workers each, beside {N_BUSY} busy \
         processes on {} cores in {:.1} s: {n_wrong} mismatches, no hang",
        N_SLOTS - 1,
        std::thread::available_parallelism().map_or(1, usize::from),
        started.elapsed().as_secs_f64()
    );
    Ok(n_wrong == 0 && n_done == n_runs)
}

fn outputs(context: &mut Context, x: &[f32], rows: usize, first: usize) -> Result<Vec<Vec<u8>>> {
    let dims = [rows, LENGTH];
    context.run_in_order(&[View::new(&dims, &x[first * LENGTH..(first + rows) * LENGTH])?])?;
    (0..2).map(|idx| Ok(context.output(idx).context("there is no output")?.bytes().to_vec())).collect()
}

/// What one task takes, on one thread and as quick as it gets.
fn task_us(engine: &Engine, x: &[f32]) -> Result<f64> {
    let mut context = engine.context_with(ContextOptions::new(1))?;
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let started = Instant::now();
        outputs(&mut context, x, ROWS[0], 0)?;
        best = best.min(started.elapsed().as_secs_f64() * 1e6 / ROWS[0] as f64);
    }
    Ok(best)
}

/// Ends the process where no run has ended for a long time: a thread that waits for ever cannot be joined.
fn watch(n_done: &AtomicUsize, is_over: &AtomicBool) {
    let (mut last, mut since) = (0, Instant::now());
    while !is_over.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(200));
        let now = n_done.load(SeqCst);
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() > PATIENCE {
            eprintln!("hang: no run has ended for {} s after {now} runs", PATIENCE.as_secs());
            std::process::exit(1);
        }
    }
}
