//! `cargo xtask transfers`: what a plan on a GPU makes of the link, and what one more context costs in memory.
//!
//! Two contexts that take inputs from the engine's pinned buffers, each with the next run's copies under way while one
//! computes, are held against the lesser of two rates: that of the same contexts with everything in the device's memory,
//! and that of the link. Runs one after the other are timed too. All is measured in one process.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use planish::{
    Bindings, Buffer, Builder, Context, ContextOptions, Device, Engine, Overlap, Plan, Precision, Profile,
    SymbolRange, Tensor, View, Wait,
};
use planish_cuda::{Cuda, LinkRate};

use crate::figure::Figures;

/// Of what device and link allow.
const MIN_SHARE: f64 = 0.9;
/// What a further context may take beside its arena: captured graphs, streams, events.
const MAX_BEYOND_ARENA: f64 = 16.0 * MIB;
/// Contexts over which that is averaged, since a device's memory is handed out in large pieces.
const N_FURTHER: usize = 4;
const N_COPIES: usize = 100;
/// Launches are met, captured and replayed, where runs overlap for both places that they have on the device.
const N_WARM_UP: usize = 6;
const MIB: f64 = (1 << 20) as f64;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A plan with one input; without one, `resnet18_224` is built.
    plan: Option<PathBuf>,
    /// The batch.
    #[arg(long, default_value_t = 16)]
    batch: usize,
    #[arg(long, default_value = "cuda")]
    device: Device,
    /// What a plan that is built here computes in.
    #[arg(long, default_value = "fp16")]
    precision: String,
    /// How hard it is searched for.
    #[arg(long, default_value_t = 3)]
    tune_level: u32,
    /// How long each rate is measured.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

/// Where inputs and outputs are.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Ends {
    Device,
    Pinned,
    /// Pinned, each run pushed before the one before is done.
    Pipelined,
    Pageable,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut figures = Figures::new();
    let engine = engine(options)?;
    let input = input(&engine, options.batch)?;
    let on_device = engine.record().device().is_some();
    if on_device {
        second_context(&engine, &input, options.device, &mut figures)?;
    }
    let rate = |ends: Ends, n: usize| -> Result<f64> {
        let rate = rate(&engine, &input, ends, n, Duration::from_secs_f64(options.seconds))?;
        println!("{n} contexts, {ends:?}: {rate:.0} runs/s, {:.1} images/s", rate * options.batch as f64);
        Ok(rate)
    };
    let (pinned, pageable) = (rate(Ends::Pipelined, 2)?, rate(Ends::Pageable, 2)?);
    let in_turn = rate(Ends::Pinned, 2)?;
    rate(Ends::Pipelined, 1)?;
    if !on_device {
        println!("a plan on the CPU has no link");
        return Ok(figures.all_good());
    }
    let resident = rate(Ends::Device, 1)?.max(rate(Ends::Device, 2)?);
    let cuda = cuda(options.device)?;
    let bytes = input.bytes().len();
    let link = LinkRate::measure(&cuda, bytes, N_COPIES)?;
    println!(
        "link: {:.1} GB/s to the device alone; {:.1} to it and {:.1} back at once ({:.2} MB a copy)",
        link.up_alone / 1e9,
        link.up / 1e9,
        link.down / 1e9,
        bytes as f64 / 1e6
    );
    let through = link.up_alone.max(link.up) / bytes as f64;
    let most = resident.min(through);
    println!(
        "device-resident {resident:.0} runs/s, link {through:.0} runs/s; pinned without overlap {:.0} %, pageable {:.0} %",
        100.0 * in_turn / most,
        100.0 * pageable / most
    );
    let seen = format!("{:.1} % ({pinned:.0} of {most:.0} runs/s)", 100.0 * pinned / most);
    let asked = format!(">= {:.0} % of device and link", 100.0 * MIN_SHARE);
    figures.say("two contexts from pinned buffers", asked, seen, pinned / most >= MIN_SHARE);
    Ok(figures.all_good())
}

fn engine(options: &Options) -> Result<Engine> {
    let plan = match &options.plan {
        Some(path) => Plan::open(path)?,
        None => {
            let size = options.batch as i64;
            let range = SymbolRange { symbol: "batch".into(), min: size, opt: size, max: size };
            let precision = Precision::named(&options.precision).context("give fp32, tf32, fp16 or bf16")?;
            Builder::from_graph(planish_zoo::graph("resnet18_224", 0)?)
                .device(options.device)
                .precision(precision)
                .tune_level(options.tune_level)
                .profile(Profile { ranges: vec![range] })
                .build()?
        }
    };
    Ok(Engine::new(plan, options.device)?)
}

fn cuda(device: Device) -> Result<Cuda> {
    match device.settled() {
        Device::Cuda(index) => Ok(Cuda::open(index)?),
        other => anyhow::bail!("{other} is not a GPU"),
    }
}

/// Numbers between -0.5 and 0.5 for the plan's one input.
fn input(engine: &Engine, batch: usize) -> Result<Tensor> {
    let ports = engine.inputs();
    ensure!(ports.len() == 1, "the plan has {} inputs, not one", ports.len());
    let shape =
        ports[0].ty.as_tensor().and_then(|ty| ty.shape.clone()).context("an input of unknown rank")?;
    let dims = shape.eval(&|_: &str| Some(batch as i64)).context("an input of unknown size")?;
    let n: usize = dims.iter().product();
    Ok(Tensor::new(
        &dims,
        (0..n).map(|idx| (idx * 7_919 % 1_009) as f32 / 1_009.0 - 0.5).collect::<Vec<_>>(),
    )?)
}

/// A context with its buffers, and what it computes.
struct Caller<'a> {
    context: Context,
    /// More than one only where runs overlap.
    bindings: Vec<Bindings>,
    input: &'a Tensor,
    output: String,
    ends: Ends,
}

impl<'a> Caller<'a> {
    /// Runs a few times, so that launches are captured.
    fn new(engine: &Engine, input: &'a Tensor, ends: Ends) -> Result<Caller<'a>> {
        let context = engine.context_with(ContextOptions { wait: Wait::Spin, ..ContextOptions::new(1) })?;
        let name = engine.inputs().into_iter().next().context("no input")?.name;
        let output = engine.outputs().into_iter().next().context("no output")?.name;
        let dims = context.output_dims(&[(&name, input.shape())])?;
        let dims = dims.into_iter().next().flatten().context("an output of unknown size")?;
        let mut bindings = Vec::new();
        let n_sets = match ends {
            Ends::Device | Ends::Pinned => 1,
            Ends::Pipelined => Overlap::DEPTH,
            Ends::Pageable => 0,
        };
        for _ in 0..n_sets {
            let (from, to) = match ends {
                Ends::Device => {
                    let mut buffer = context.device_input_buffer(&name, input.shape())?;
                    buffer.upload(View::from(input))?;
                    (Buffer::from(buffer), Buffer::from(context.device_output_buffer(&output, &dims)?))
                }
                _ => {
                    let mut buffer = context.input_buffer(&name, input.shape())?;
                    buffer.bytes_mut().copy_from_slice(input.bytes());
                    (Buffer::from(buffer), Buffer::from(context.output_buffer(&output, &dims)?))
                }
            };
            bindings.push(Bindings::new().input(&name, from).output(&output, to));
        }
        let mut caller = Caller { context, bindings, input, output, ends };
        caller.run_while(&|n_runs| n_runs < N_WARM_UP)?;
        Ok(caller)
    }

    /// Runs as long as it is told to, by the number of runs so far; gives how many that were.
    fn run_while(&mut self, go_on: &dyn Fn(usize) -> bool) -> Result<usize> {
        let mut n_runs = 0;
        match (self.ends, &mut self.bindings[..]) {
            (Ends::Pipelined, _) => {
                let mut pipeline = self.context.pipeline()?;
                loop {
                    if let Some(next) = self.bindings.pop_if(|_| go_on(n_runs)) {
                        pipeline.push(next)?;
                        n_runs += 1;
                    } else if let Some(done) = pipeline.pop()? {
                        self.bindings.push(done);
                    } else {
                        break;
                    }
                }
            }
            (Ends::Device | Ends::Pinned, [bindings]) => {
                while go_on(n_runs) {
                    self.context.run_bound(bindings)?;
                    n_runs += 1;
                }
            }
            _ => {
                while go_on(n_runs) {
                    self.context.run_in_order(&[View::from(self.input)])?;
                    n_runs += 1;
                }
            }
        }
        Ok(n_runs)
    }

    /// What each of its sets of buffers has.
    fn results(&self) -> Result<Vec<Vec<u8>>> {
        if self.bindings.is_empty() {
            return Ok(vec![self.context.output(0).context("there is no output")?.bytes().to_vec()]);
        }
        let one = |bindings: &Bindings| match bindings.device_output(&self.output) {
            Some(buffer) => Ok(buffer.download()?),
            None => Ok(bindings.get_output(&self.output).context("no output buffer")?.bytes().to_vec()),
        };
        self.bindings.iter().map(one).collect()
    }
}

/// Runs per second of `n` contexts together, each in its own thread; all must have computed the same.
fn rate(engine: &Engine, input: &Tensor, ends: Ends, n: usize, time: Duration) -> Result<f64> {
    let mut callers = (0..n).map(|_| Caller::new(engine, input, ends)).collect::<Result<Vec<_>>>()?;
    let started = Instant::now();
    let counts: Vec<Result<usize>> = std::thread::scope(|scope| {
        let work = |caller: &mut Caller<'_>| caller.run_while(&|_| started.elapsed() < time);
        let threads: Vec<_> = callers.iter_mut().map(|caller| scope.spawn(move || work(caller))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<usize>>| {
            thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked")))
        };
        threads.into_iter().map(join).collect()
    });
    let seconds = started.elapsed().as_secs_f64();
    let n_runs = counts.into_iter().sum::<Result<usize>>()?;
    let alone = Caller::new(engine, input, Ends::Pageable)?.results()?;
    for caller in &callers {
        let same = caller.results()?.iter().all(|result| *result == alone[0]);
        ensure!(same, "{ends:?}: a context's result is another than that of one alone");
    }
    Ok(n_runs as f64 / seconds)
}

/// What further contexts take of the device's memory, by the driver's own count.
fn second_context(engine: &Engine, input: &Tensor, device: Device, figures: &mut Figures) -> Result<()> {
    let cuda = cuda(device)?;
    let first = Caller::new(engine, input, Ends::Pinned)?;
    let (before, _) = cuda.context()?.memory_info()?;
    let mut further = Vec::new();
    for _ in 0..N_FURTHER {
        further.push(Caller::new(engine, input, Ends::Pinned)?);
    }
    let (after, _) = cuda.context()?.memory_info()?;
    let arena = further[0].context.memory().device_arena as f64;
    let (n_graphs, graph_bytes) = further[0].context.graphs();
    let each = before.saturating_sub(after) as f64 / N_FURTHER as f64;
    println!(
        "a context more: {:.2} MiB, the mean of {N_FURTHER}; its arena and workspaces {:.2} MiB, {n_graphs} \
         captured graphs {:.2} MiB; the plan's weights {:.2} MiB are shared",
        each / MIB,
        arena / MIB,
        graph_bytes as f64 / MIB,
        engine.weight_bytes() as f64 / MIB
    );
    drop((first, further));
    let beyond = (each - arena).max(0.0);
    let seen = format!("{:.2} MiB ({:.2} with its arena)", beyond / MIB, each / MIB);
    figures.say("a second context beside its arena", "<= 16 MiB", seen, beyond <= MAX_BEYOND_ARENA);
    Ok(())
}
