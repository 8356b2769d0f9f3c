//! The runs that `planish bench` times: contexts made ready, warmed up, and run block by block.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use planish::{
    Bindings, Context as Lane, ContextMemory, ContextOptions, Engine, Overlap, Phases, Tensor, View, Wait,
};

use super::blocks::{self, BLOCKS, Begun, Block, SHORTEST_BLOCK, Usage};
use super::rounds::{self, Round, Steps};
use super::told::Told;
use crate::memory::Held;

/// How a model is to be timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) warmup: Duration,
    pub(crate) duration: Duration,
    /// At least so many runs.
    pub(crate) iterations: usize,
    /// Whether the steps are timed too, for longer where that is needed.
    pub(crate) is_profiled: bool,
    pub(crate) contexts: usize,
    pub(crate) threads: usize,
    pub(crate) streams: usize,
    pub(crate) spin: bool,
    pub(crate) overlap: bool,
    pub(crate) pageable: bool,
    pub(crate) no_transfers: bool,
}

impl Timing {
    /// One context that blocks, for this long.
    pub(crate) fn plain(threads: usize, warmup: Duration, duration: Duration) -> Timing {
        Timing {
            warmup,
            duration,
            iterations: 3,
            is_profiled: false,
            contexts: 1,
            threads,
            streams: planish::DEFAULT_STREAMS,
            spin: false,
            overlap: false,
            pageable: false,
            no_transfers: false,
        }
    }
}

/// What all contexts measured together: those of blocks one context after the other.
pub(crate) struct Timed {
    pub(crate) times: Vec<Duration>,
    pub(crate) blocks: Vec<Block>,
    pub(super) rounds: Vec<Round>,
    pub(crate) wall: Duration,
    pub(crate) arena_bytes: usize,
    /// What all threads together worked, from the first warm-up's end on.
    pub(crate) cpu: Option<Duration>,
    pub(crate) device: Option<OnDevice>,
    /// Of the first context: until its first result.
    pub(crate) first: Duration,
    /// By context, on a GPU.
    pub(crate) held: Vec<Held>,
}

impl Timed {
    /// The ends between which the median lies at 95 %.
    pub(crate) fn interval_ms(&self) -> Option<[f64; 2]> {
        Told::of(&self.blocks).interval_ms
    }

    /// Whether other work left the runs alone as far as is needed to tell plans apart.
    pub(crate) fn is_restless(&self) -> bool {
        Told::of(&self.blocks).is_restless()
    }

    /// Takes a further round in.
    fn add(&mut self, round: Timed) {
        self.times.extend(round.times);
        self.blocks.extend(round.blocks);
        self.rounds.extend(round.rounds);
        self.wall += round.wall;
        self.cpu = self.cpu.zip(round.cpu).map(|(sum, cpu)| sum + cpu);
    }
}

/// What one context measured.
struct Lap {
    times: Vec<Duration>,
    blocks: Vec<Block>,
    steps: Steps,
    wall: Duration,
    arena_bytes: usize,
    cpu: Option<Duration>,
    device: Option<OnDevice>,
    first: Duration,
    held: Option<Held>,
}

/// What one context did on a GPU.
pub(crate) struct OnDevice {
    /// Medians, each of its own.
    pub(crate) phases: Phases,
    pub(crate) memory: ContextMemory,
}

/// Runs whose transfers and kernels are timed apart.
const PHASED_RUNS: usize = 101;

/// How runs get their inputs.
enum Source<'a> {
    Views(Vec<View<'a>>),
    Bound(Bindings),
}

impl<'a> Source<'a> {
    /// Views of ordinary memory on the CPU; on a GPU the engine's own buffers, unless the arguments say otherwise.
    fn new(
        context: &Lane,
        names: &[&str],
        tensors: &'a [Tensor],
        args: &Timing,
        on_device: bool,
    ) -> Result<Source<'a>> {
        if !on_device || args.pageable {
            return Ok(Source::Views(tensors.iter().map(View::from).collect()));
        }
        let mut bindings = Bindings::new();
        let mut dims = Vec::new();
        for (name, tensor) in names.iter().zip(tensors) {
            dims.push((*name, tensor.shape()));
            if args.no_transfers {
                let mut buffer = context.device_input_buffer(name, tensor.shape())?;
                buffer.upload(View::from(tensor))?;
                bindings = bindings.input(name, buffer);
            } else {
                let mut buffer = context.input_buffer(name, tensor.shape())?;
                buffer.bytes_mut().copy_from_slice(tensor.bytes());
                bindings = bindings.input(name, buffer);
            }
        }
        for (port, dims) in context.engine().outputs().iter().zip(context.output_dims(&dims)?) {
            // Outputs whose sizes only a run can tell stay with the context.
            let Some(dims) = dims else { continue };
            bindings = match args.no_transfers {
                true => bindings.output(&port.name, context.device_output_buffer(&port.name, &dims)?),
                false => bindings.output(&port.name, context.output_buffer(&port.name, &dims)?),
            };
        }
        Ok(Source::Bound(bindings))
    }

    fn run(&mut self, context: &mut Lane) -> Result<()> {
        match self {
            Source::Views(views) => context.run_in_order(views)?,
            Source::Bound(bindings) => context.run_bound(bindings)?,
        }
        Ok(())
    }

    /// Runs as long as `more` says by the number of runs so far; gives the time of each.
    fn run_while(
        &mut self,
        context: &mut Lane,
        mut further: Vec<Bindings>,
        more: &dyn Fn(usize) -> bool,
    ) -> Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(1 << 10);
        match self {
            Source::Bound(first) if !further.is_empty() => {
                further.push(std::mem::take(first));
                *first = overlapped(context, further, more, &mut times)?;
            }
            _ => {
                while more(times.len()) {
                    let run = Instant::now();
                    self.run(context)?;
                    times.push(run.elapsed());
                }
            }
        }
        Ok(times)
    }

    fn run_phased(&mut self, context: &mut Lane) -> Result<Phases> {
        Ok(match self {
            Source::Views(views) => context.run_phased(views)?,
            Source::Bound(bindings) => context.run_bound_phased(bindings)?,
        })
    }

    /// Medians of transfers and kernels.
    fn phases(&mut self, context: &mut Lane) -> Result<OnDevice> {
        let mut all = Vec::new();
        for _ in 0..PHASED_RUNS {
            all.push(self.run_phased(context)?);
        }
        let median = |of: fn(&Phases) -> f64| {
            let mut list: Vec<f64> = all.iter().map(of).collect();
            list.sort_by(f64::total_cmp);
            list[list.len() / 2]
        };
        let phases = Phases {
            upload_ns: median(|phases| phases.upload_ns),
            compute_ns: median(|phases| phases.compute_ns),
            download_ns: median(|phases| phases.download_ns),
        };
        Ok(OnDevice { phases, memory: context.memory() })
    }

    /// Bytes of inputs and outputs that lie on the device.
    fn device_bytes(&self) -> usize {
        match self {
            Source::Views(_) => 0,
            Source::Bound(bindings) => bindings.device_bytes(),
        }
    }
}

/// Runs that overlap with each other's copies, one for each set of buffers; gives one of these back.
fn overlapped(
    context: &mut Lane,
    mut sets: Vec<Bindings>,
    more: &dyn Fn(usize) -> bool,
    times: &mut Vec<Duration>,
) -> Result<Bindings> {
    let mut pipeline = context.pipeline()?;
    let mut pushed = VecDeque::new();
    loop {
        let n_runs = times.len() + pushed.len();
        if let Some(next) = sets.pop_if(|_| more(n_runs)) {
            pushed.push_back(Instant::now());
            pipeline.push(next)?;
        } else if let (Some(done), Some(began)) = (pipeline.pop()?, pushed.pop_front()) {
            times.push(began.elapsed());
            sets.push(done);
        } else {
            return sets.pop().context("no buffers came back");
        }
    }
}

/// A context that is ready to be timed.
struct Ready<'a> {
    context: Lane,
    source: Source<'a>,
    /// Buffers of further runs, where they overlap.
    further: Vec<Bindings>,
    /// From the engine to the first result.
    first: Duration,
    held: Option<Held>,
}

/// Runs of a context before its memory is listed: the first launches, the second captures, the third replays.
const RUNS_TO_LIST: usize = 3;

impl<'a> Ready<'a> {
    /// Made one after the other, so that what the GPU has less of is this context's.
    fn new(
        engine: &Engine,
        names: &[&str],
        tensors: &'a [Tensor],
        options: ContextOptions,
        args: &Timing,
        on_device: bool,
    ) -> Result<Ready<'a>> {
        let before = engine.device_memory();
        let began = Instant::now();
        let mut context = engine.context_with(options)?;
        let mut source = Source::new(&context, names, tensors, args, on_device)?;
        source.run(&mut context)?;
        let first = began.elapsed();
        let mut further = Vec::new();
        for _ in 1..if args.overlap && on_device { Overlap::DEPTH } else { 1 } {
            if let Source::Bound(bindings) = Source::new(&context, names, tensors, args, on_device)? {
                further.push(bindings);
            }
        }
        if !on_device {
            return Ok(Ready { context, source, further, first, held: None });
        }
        for _ in 1..RUNS_TO_LIST {
            source.run(&mut context)?;
        }
        let held = Held::new(context.memory(), source.device_bytes(), before, engine.device_memory());
        Ok(Ready { context, source, further, first, held: Some(held) })
    }

    /// Warms up, and runs for as long as the arguments say.
    fn time(self, args: &Timing, on_device: bool, names: &[&str]) -> Result<Lap> {
        let Ready { mut context, mut source, further, first, held } = self;
        let start = Instant::now();
        while start.elapsed() < args.warmup {
            source.run(&mut context)?;
        }
        let usage = Usage::now();
        let start = Instant::now();
        let more = |n_runs: usize| start.elapsed() < args.duration || n_runs < args.iterations;
        let mut steps = Steps::default();
        // Others of our own would be counted as well, and a pipeline of runs is not to be drained in between.
        let (times, blocks, wall) = match on_device || args.contexts > 1 {
            true => {
                let times = source.run_while(&mut context, further, &more)?;
                let blocks = blocks::cut(&times);
                (times, blocks, start.elapsed())
            }
            false => by_blocks(&mut source, &mut context, args, names, &mut steps)?,
        };
        let cpu = Usage::now().zip(usage).map(|(end, start)| end.worked.saturating_sub(start.worked));
        let device = on_device.then(|| source.phases(&mut context)).transpose()?;
        Ok(Lap { times, blocks, steps, wall, arena_bytes: context.arena_bytes(), cpu, device, first, held })
    }
}

/// Steps that are not settled are timed for so many times a round's duration at most.
const ROUND_PATIENCE: u32 = 2;

/// Runs block by block; gives the time of each run, the blocks, and how long these were together.
fn by_blocks(
    source: &mut Source<'_>,
    context: &mut Lane,
    args: &Timing,
    names: &[&str],
    steps: &mut Steps,
) -> Result<(Vec<Duration>, Vec<Block>, Duration)> {
    let start = Instant::now();
    let more = |n_runs: usize| start.elapsed() < args.duration || n_runs < args.iterations;
    let length = (args.duration / BLOCKS).max(SHORTEST_BLOCK);
    let (mut times, mut blocks, mut wall) = (Vec::new(), Vec::new(), Duration::ZERO);
    let goes_on = |steps: &Steps| {
        args.is_profiled && start.elapsed() < ROUND_PATIENCE * args.duration && !steps.are_settled()
    };
    while more(times.len()) || goes_on(steps) {
        let begun = Begun::now();
        let within = |n_runs: usize| n_runs == 0 || begun.elapsed() < length;
        let runs = source.run_while(context, Vec::new(), &within)?;
        let (block, took) = begun.end(&runs);
        times.extend(runs);
        blocks.push(block);
        wall += took;
        if let (true, Source::Views(views)) = (args.is_profiled, &source) {
            let inputs: Vec<(&str, View<'_>)> = names.iter().copied().zip(views.iter().copied()).collect();
            let begun = Instant::now();
            while begun.elapsed() < length {
                steps.add(&context.profile(&inputs)?);
            }
        }
    }
    Ok((times, blocks, wall))
}

/// Rounds of a measurement that is stored or compared: where some were never left alone, more are made, for so many times
/// the duration at most.
const ROUNDS: u32 = 6;
const PATIENCE: u32 = 5;

/// Times in rounds, each with a context of its own, and with an engine of its own where `reopen` gives one: where memory
/// lies is drawn anew.
pub(crate) fn run_rounds(
    engine: &Engine,
    reopen: &dyn Fn() -> Result<Option<Engine>>,
    names: &[&str],
    tensors: &[Tensor],
    args: &Timing,
) -> Result<Timed> {
    let share = Timing {
        duration: args.duration / ROUNDS,
        warmup: args.warmup / ROUNDS,
        iterations: args.iterations.div_ceil(ROUNDS as usize),
        is_profiled: true,
        ..*args
    };
    let start = Instant::now();
    let mut timed = run_all(engine, names, tensors, &Timing { warmup: args.warmup, ..share })?;
    // Each is kept until the next one has its memory, so that this is other memory.
    let mut last: Option<Engine> = None;
    for n_rounds in 1.. {
        let n_good = rounds::undisturbed(&timed.rounds).len();
        let is_late = start.elapsed() > PATIENCE * args.duration;
        if n_rounds >= ROUNDS && (n_good >= ROUNDS as usize || is_late) {
            break;
        }
        let next = reopen()?;
        drop(last.take());
        timed.add(run_all(next.as_ref().unwrap_or(engine), names, tensors, &share)?);
        last = next;
    }
    Ok(timed)
}

pub(crate) fn run_all(engine: &Engine, names: &[&str], tensors: &[Tensor], args: &Timing) -> Result<Timed> {
    let on_device = engine.record().device().is_some();
    let wait = if args.spin { Wait::Spin } else { Wait::Block };
    let options = ContextOptions { wait, streams: args.streams, ..ContextOptions::new(args.threads) };
    let mut ready = Vec::new();
    for _ in 0..args.contexts.max(1) {
        ready.push(Ready::new(engine, names, tensors, options, args, on_device).context("the run failed")?);
    }
    let results: Vec<Result<_>> = std::thread::scope(|scope| {
        let mut ready = ready.into_iter();
        let first = ready.next();
        let others: Vec<_> =
            ready.map(|ready| scope.spawn(move || ready.time(args, on_device, names))).collect();
        let mut results: Vec<_> = first.map(|ready| ready.time(args, on_device, names)).into_iter().collect();
        for other in others {
            results.push(other.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked"))));
        }
        results
    });
    let mut timed = Timed {
        times: Vec::new(),
        blocks: Vec::new(),
        rounds: Vec::new(),
        wall: Duration::ZERO,
        arena_bytes: 0,
        cpu: None,
        device: None,
        first: Duration::ZERO,
        held: Vec::new(),
    };
    for result in results {
        let Lap { times, blocks, steps, wall, arena_bytes, cpu, device, first, held } =
            result.context("the run failed")?;
        timed.times.extend(times);
        // With several contexts each is a round of its own.
        timed.rounds.extend(Round::of(&steps, &blocks));
        timed.blocks.extend(blocks);
        // Each counts the whole process, over nearly the same time.
        timed.cpu = timed.cpu.max(cpu);
        timed.wall = timed.wall.max(wall);
        timed.arena_bytes += arena_bytes;
        if timed.first.is_zero() {
            timed.first = first;
        }
        timed.device = timed.device.or(device);
        timed.held.extend(held);
    }
    Ok(timed)
}
