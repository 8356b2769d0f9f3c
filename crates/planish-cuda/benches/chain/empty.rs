//! The empty chain: what a step costs that does nothing, by the way in which it waits for the step before.

use std::sync::Arc;

use planish_cuda::driver::{DeviceMemory, Event, Module, Stream, Timing};
use planish_cuda::launch::{Launch, Params};
use planish_cuda::{Source, nvrtc};
use planish_kernel::{Address, Call, Memory, Wait};

use crate::Failure;
use crate::timing::{Bench, REPLAYS};

const TEXT: &str = include_str!("empty.cu");
const THREADS: u32 = 128;
/// A 56x56 image of 64 channels in 16 bits: the largest between two layers of ResNet-18.
const ACTIVATION: usize = 56 * 56 * 64 * 2;
/// Blocks of a cluster where the barrier knows of clusters; divides every grid below.
const CLUSTER: u32 = 4;
const LENGTHS: [usize; 5] = [5, 10, 20, 40, 80];
const GRIDS: [u32; 3] = [32, 132, 264];
const ENTRIES: [&str; 6] =
    ["step_plain", "step_early", "step_late", "phases_counter", "phases_flags", "phases_clusters"];

/// What a step does.
#[derive(Clone, Copy, PartialEq)]
enum Load {
    Nothing,
    Word,
    Activation,
}

impl Load {
    const ALL: [Load; 3] = [Load::Nothing, Load::Word, Load::Activation];

    fn name(self) -> &'static str {
        match self {
            Load::Nothing => "nothing",
            Load::Word => "a word",
            Load::Activation => "401 KB",
        }
    }

    fn source(self) -> Source {
        let mut source = Source::new("empty.cu", TEXT, ENTRIES[0]);
        for entry in &ENTRIES[1..] {
            source = source.entry(entry);
        }
        source.define("WORK", self as u32).define("VECTORS", ACTIVATION / 16)
    }
}

/// How a step waits for the one before.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// A kernel after a kernel.
    Plain,
    /// Programmatic launch, the next let in at once or when the inputs are there.
    Early,
    Late,
    /// A phase of one kernel, after a barrier over its grid.
    Counter,
    Flags,
    Clusters,
}

impl Way {
    const ALL: [Way; 6] = [Way::Plain, Way::Early, Way::Late, Way::Counter, Way::Flags, Way::Clusters];

    fn is_kernels(self) -> bool {
        matches!(self, Way::Plain | Way::Early | Way::Late)
    }
}

/// Compiles all kernels without a device.
pub(crate) fn compile(gpu: &planish_cuda::Gpu) -> Result<(), Failure> {
    for load in Load::ALL {
        nvrtc::compile_cached(&load.source(), gpu)?;
    }
    Ok(())
}

/// Buffers that steps go round in, all of the same size.
struct Ring {
    memory: DeviceMemory,
    n_buffers: usize,
    bytes: usize,
}

impl Ring {
    /// For a chain that ends where it began, so that replays go on counting.
    fn new(bench: &Bench, n_steps: usize) -> Result<Ring, Failure> {
        let n_buffers = if n_steps.is_multiple_of(2) { 2 } else { n_steps };
        let bytes = ACTIVATION;
        let memory = DeviceMemory::new(&bench.context, n_buffers * bytes)?;
        // SAFETY: the memory has these bytes, and nothing else uses it.
        unsafe { bench.stream.fill(memory.address().0, 0, memory.len())? };
        Ok(Ring { memory, n_buffers, bytes })
    }

    fn buffer(&self, idx: usize) -> Address {
        self.memory.address().offset(idx % self.n_buffers * self.bytes)
    }

    /// Whether every number that the last step of a replay wrote is what so many steps make of zero.
    fn check(&self, bench: &Bench, load: Load, blocks: u32, steps: u32) -> Result<(), Failure> {
        let mut bytes = vec![0u8; self.bytes];
        // SAFETY: the buffer has these bytes; nobody touches them before the stream is done.
        unsafe { bench.stream.download(bytes.as_mut_ptr(), self.buffer(0).0, bytes.len())? };
        bench.stream.synchronize(Wait::Block)?;
        let words =
            bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        let (step, n) = match load {
            Load::Nothing => return Ok(()),
            Load::Word => (8, blocks as usize),
            Load::Activation => (1, self.bytes / 4),
        };
        match words.step_by(step).take(n).enumerate().find(|(_, word)| *word != steps) {
            None => Ok(()),
            Some((at, word)) => Err(format!("number {at} is {word:#x} after {steps} steps").into()),
        }
    }
}

struct Kernels {
    module: Arc<Module>,
}

impl Kernels {
    fn step(&self, way: Way, blocks: u32, ahead: u32, joins: bool) -> Result<Launch, Failure> {
        let function = self.module.function(ENTRIES[way as usize])?;
        let params = Params::new().input(0).optional_input(joins.then_some(1)).value(ahead).output(0);
        let launch = Launch::line(function, blocks as usize, THREADS, params);
        Ok(if way == Way::Plain { launch } else { launch.programmatic() })
    }

    fn phases(&self, way: Way, blocks: u32, ring: &Ring, n_steps: usize) -> Result<Launch, Failure> {
        let function = self.module.function(ENTRIES[way as usize])?;
        let numbers = [ring.bytes / 4, ring.n_buffers, n_steps].map(|number| number as u32);
        let mut params = Params::new().output(0);
        for number in numbers {
            params = params.value(number);
        }
        let launch = Launch::line(function, blocks as usize, THREADS, params.workspace(0));
        Ok(if way == Way::Clusters { launch.with_cluster([CLUSTER, 1, 1]) } else { launch })
    }
}

fn put(
    launch: &Launch,
    inputs: &[Address],
    output: Address,
    barrier: Address,
    on: &Stream,
) -> Result<(), Failure> {
    let call = Call { inputs, outputs: &[output], workspace: barrier, fault: Address::NULL };
    // SAFETY: the kernels take these arguments; the buffers outlive every replay, and they lie on the stream's device.
    unsafe { launch.launch(&call, on)? };
    Ok(())
}

/// Steps of a graph: what each does, how it is launched, by how many blocks, and how many there are.
#[derive(Clone, Copy)]
struct Steps {
    load: Load,
    way: Way,
    blocks: u32,
    n_steps: usize,
}

/// One chain: the microseconds of a replay.
fn chain(bench: &Bench, kernels: &Kernels, steps: Steps) -> Result<f64, Failure> {
    let Steps { load, way, blocks, n_steps } = steps;
    let ring = Ring::new(bench, n_steps)?;
    let barrier = DeviceMemory::new(&bench.context, 4096)?;
    // SAFETY: the memory has these bytes, and nothing else uses it.
    unsafe { bench.stream.fill(barrier.address().0, 0, barrier.len())? };
    bench.stream.synchronize(Wait::Block)?;
    let graph = bench.record(|| {
        if way.is_kernels() {
            let launch = kernels.step(way, blocks, 0, false)?;
            for idx in 0..n_steps {
                put(&launch, &[ring.buffer(idx)], ring.buffer(idx + 1), Address::NULL, &bench.stream)?;
            }
        } else {
            let launch = kernels.phases(way, blocks, &ring, n_steps)?;
            put(&launch, &[], ring.buffer(0), barrier.address(), &bench.stream)?;
        }
        Ok(())
    })?;
    let us = bench.time(&graph)?;
    ring.check(bench, load, blocks, n_steps as u32 * REPLAYS)?;
    Ok(us)
}

/// How steps of two branches stand to each other.
#[derive(Clone, Copy)]
enum Shape {
    /// One after the other.
    Row,
    /// Half of them in each of two branches that meet at the end.
    Halves,
    /// Again and again two steps beside one, and one that joins them: a residual block with a convolution in its
    /// shortcut.
    Diamonds,
}

/// Microseconds of a replay of `n_steps` steps (a multiple of four) in a shape.
fn branches(bench: &Bench, kernels: &Kernels, steps: Steps, shape: Shape) -> Result<f64, Failure> {
    let Steps { load, way, blocks, n_steps } = steps;
    let side = Stream::new(&bench.context)?;
    let (fork, join) = (Event::new(&bench.context, Timing::None)?, Event::new(&bench.context, Timing::None)?);
    // A main branch, and a second one. A diamond's steps are three deep.
    let main = Ring::new(bench, if matches!(shape, Shape::Diamonds) { 3 } else { n_steps / 2 })?;
    let second = Ring::new(bench, n_steps / 2)?;
    bench.stream.synchronize(Wait::Block)?;
    let step = kernels.step(way, blocks, 0, false)?;
    // What has a step of another stream before it waits for it to the end.
    let first = Launch { programmatic: false, ..step.clone() };
    let joint = Launch { programmatic: false, ..kernels.step(way, blocks, 1, true)? };
    let mut depth = 0;
    let graph = bench.record(|| {
        let go = |launch: &Launch, ring: &Ring, idx: usize, on: &Stream| {
            put(launch, &[ring.buffer(idx)], ring.buffer(idx + 1), Address::NULL, on)
        };
        match shape {
            Shape::Row => {
                depth = n_steps;
                (0..n_steps).try_for_each(|idx| go(&step, &main, idx, &bench.stream))?;
            }
            Shape::Halves => {
                depth = n_steps / 2;
                fork.record(&bench.stream)?;
                side.wait_for(&fork)?;
                for idx in 0..n_steps / 2 {
                    go(&step, &main, idx, &bench.stream)?;
                    go(if idx == 0 { &first } else { &step }, &second, idx, &side)?;
                }
                join.record(&side)?;
                bench.stream.wait_for(&join)?;
            }
            Shape::Diamonds => {
                depth = n_steps / 4 * 3;
                for idx in 0..n_steps / 4 {
                    let at = idx * 3;
                    fork.record(&bench.stream)?;
                    side.wait_for(&fork)?;
                    go(&step, &main, at, &bench.stream)?;
                    put(&first, &[main.buffer(at)], second.buffer(0), Address::NULL, &side)?;
                    join.record(&side)?;
                    put(&step, &[main.buffer(at + 1)], second.buffer(1), Address::NULL, &bench.stream)?;
                    bench.stream.wait_for(&join)?;
                    let both = [second.buffer(1), second.buffer(0)];
                    put(&joint, &both, main.buffer(at + 3), Address::NULL, &bench.stream)?;
                }
            }
        }
        Ok(())
    })?;
    let us = bench.time(&graph)?;
    main.check(bench, load, blocks, depth as u32 * REPLAYS)?;
    if let Shape::Halves = shape {
        second.check(bench, load, blocks, depth as u32 * REPLAYS)?;
    }
    Ok(us)
}

/// Measures and prints.
pub(crate) fn run(bench: &Bench) -> Result<(), Failure> {
    println!(
        "# The empty chain: microseconds of a replayed graph over its steps ({THREADS} threads a block)."
    );
    println!(
        "# kernels: plain; programmatic launch, the next let in at once (early) or after the wait (late)."
    );
    println!(
        "# phases of one kernel: barrier by a counter, by flags, by a counter of clusters of {CLUSTER}."
    );
    println!("step     blocks steps   plain   early    late counter   flags clusters");
    for load in Load::ALL {
        let kernels = Kernels { module: bench.module(&load.source())? };
        for blocks in GRIDS {
            let mut times = [[0.0; Way::ALL.len()]; LENGTHS.len()];
            for (row, n_steps) in times.iter_mut().zip(LENGTHS) {
                for (us, way) in row.iter_mut().zip(Way::ALL) {
                    *us = chain(bench, &kernels, Steps { load, way, blocks, n_steps })?;
                }
                let each = row.map(|us| format!("{:7.2}", us / n_steps as f64)).join(" ");
                println!("{:8} {blocks:6} {n_steps:5} {each}", load.name());
            }
            // What the length does not change (the start of the graph, the events) falls out.
            let (short, long) = (&times[2], &times[LENGTHS.len() - 1]);
            let n_more = (LENGTHS[LENGTHS.len() - 1] - LENGTHS[2]) as f64;
            let each: Vec<String> = short
                .iter()
                .zip(long)
                .map(|(short, long)| format!("{:7.2}", (long - short) / n_more))
                .collect();
            println!("{:8} {blocks:6} 20-80 {}", load.name(), each.join(" "));
        }
    }
    println!(
        "# Branches: microseconds of all steps; diamonds are a step, then two steps beside one and their join."
    );
    println!("step     blocks steps launch     row  halves diamonds");
    for load in [Load::Word, Load::Activation] {
        let kernels = Kernels { module: bench.module(&load.source())? };
        for blocks in [66, 132] {
            for n_steps in [20, 40] {
                for (way, name) in [(Way::Plain, "plain"), (Way::Early, "early")] {
                    let steps = Steps { load, way, blocks, n_steps };
                    let us = |shape| branches(bench, &kernels, steps, shape);
                    let (row, halves, diamonds) = (us(Shape::Row)?, us(Shape::Halves)?, us(Shape::Diamonds)?);
                    println!(
                        "{:8} {blocks:6} {n_steps:5} {name:6} {row:7.1} {halves:7.1} {diamonds:8.1}",
                        load.name()
                    );
                }
            }
        }
    }
    Ok(())
}
