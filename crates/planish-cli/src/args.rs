//! The command line's words.

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand, ValueEnum};

#[derive(Parser, Debug)]
#[command(
    name = "planish",
    version,
    about = "Trained models (ONNX) to tuned and checked plans, run fast",
    after_help = "Start with `planish demo`. Exit codes: 0 done, 1 the answer is no, 2 bad usage or bad input, \
                  3 this machine cannot do it, 4 a mistake of ours (please report it), 130 interrupted."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Show what a model is: inputs, outputs, operators, parameters, work
    Inspect(Inspect),
    /// Turn a model into a plan: optimized, tuned and checked for this machine
    Build(Build),
    /// Run a model once and show or save its outputs
    Run(Run),
    /// Time a model: latency, throughput, memory
    Bench(Bench),
    /// Time every layer of a model
    Profile(Profile),
    /// Look into files of measured times, join them, compare them
    #[command(subcommand)]
    Timing(Timing),
    /// Sign a plan, or make a key to sign with
    Sign(Sign),
    /// Tell whether a plan is signed by a key: exit code 0 if it is, 1 if not
    Verify(Verify),
    /// Write a model of a known kind with random weights, or list them
    Zoo(Zoo),
    /// Make a model, build, check, time and compare it: everything at once
    Demo(Demo),
    /// Show what this machine offers: CPU, memory, GPUs, libraries
    Doctor(Doctor),
}

impl Command {
    /// Where its report goes as JSON.
    pub(crate) fn json(&self) -> Option<&Json> {
        Some(match self {
            Command::Inspect(args) => &args.json,
            Command::Build(args) => &args.json,
            Command::Run(args) => &args.json,
            Command::Bench(args) => &args.json,
            Command::Profile(args) => &args.json,
            Command::Timing(Timing::Show(args)) => &args.json,
            Command::Timing(Timing::Merge(args)) => &args.json,
            Command::Timing(Timing::Diff(args)) => &args.json,
            Command::Zoo(args) => &args.json,
            Command::Doctor(args) => &args.json,
            Command::Verify(args) => &args.json,
            Command::Sign(_) | Command::Demo(_) => return None,
        })
    }

    /// The model that it reads.
    pub(crate) fn model(&self) -> Option<&Path> {
        match self {
            Command::Inspect(args) => Some(&args.model),
            Command::Build(args) => Some(&args.model),
            Command::Run(args) => Some(&args.model),
            Command::Bench(args) => Some(&args.model),
            Command::Profile(args) => Some(&args.model),
            _ => None,
        }
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct Inspect {
    /// The model, an .onnx or a .plan file
    pub(crate) model: PathBuf,
    /// Sizes for inputs with open dimensions, as in x:1x3x224x224,mask:1x16 (for the count of work)
    #[arg(long, value_name = "NAME:SIZES,…", value_delimiter = ',')]
    pub(crate) shapes: Vec<String>,
    /// Print the graph in its text form, and nothing else: after import, or of a plan after optimization
    #[arg(long)]
    pub(crate) graph: bool,
    /// Of a plan: every step with its kernel, its rivals and why it won
    #[arg(long)]
    pub(crate) layers: bool,
    /// Of a plan: what its self-check found
    #[arg(long)]
    pub(crate) certificate: bool,
    /// Of a plan: all that it holds but the weights' elements, to be read or compared line by line
    #[arg(long)]
    pub(crate) text: bool,
    /// Of a plan for a GPU: open it there and tell what memory it needs, which loads its code
    #[arg(long)]
    pub(crate) memory: bool,
    /// Of a plan: write each piece of its compiled code to a file in this folder, for a disassembler
    #[arg(long, value_name = "FOLDER")]
    pub(crate) code: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Run {
    /// The model, an .onnx or a .plan file
    pub(crate) model: PathBuf,
    /// What runs it: short for --device, and the reference besides
    #[arg(long, value_enum, conflicts_with = "device")]
    pub(crate) backend: Option<Backend>,
    /// Where it runs: cpu, cuda, cuda:1, or auto, which takes a GPU where there is one
    #[arg(long, value_name = "cpu|cuda[:N]|auto", default_value = "auto")]
    pub(crate) device: planish::Device,
    /// What the model is computed in: fp32, tf32, fp16 or bf16
    #[arg(long, value_name = "PRECISION", default_value = "fp32", value_parser = crate::load::precision)]
    pub(crate) precision: planish::Precision,
    /// Inputs by name, one array each, in a numpy .npz file
    #[arg(long, value_name = "FILE.npz")]
    pub(crate) inputs: Option<PathBuf>,
    /// One input from a numpy .npy file or an image (png, jpeg, bmp)
    #[arg(long = "input", value_name = "NAME=FILE")]
    pub(crate) input: Vec<String>,
    /// Random numbers for the inputs that no file gives (without any input: seed 0)
    #[arg(long, value_name = "SEED")]
    pub(crate) random: Option<u64>,
    /// Sizes for inputs with open dimensions, as in x:1x3x224x224,mask:1x16
    #[arg(long, value_name = "NAME:SIZES,…", value_delimiter = ',')]
    pub(crate) shapes: Vec<String>,
    /// Where the outputs go: one .npz file, or a folder of .npy files
    #[arg(short, long, value_name = "OUT.npz|FOLDER")]
    pub(crate) output: Option<PathBuf>,
    /// Threads to run with; all that this process may use if not given
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// How hard to tune before the run, see `planish build`
    #[arg(long, value_name = "0..5", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=5))]
    pub(crate) tune_level: u32,
    /// Leave Winograd convolutions out
    #[arg(long)]
    pub(crate) no_winograd: bool,
    /// Build anew instead of taking the plan from the user's cache folder, and keep nothing there
    #[arg(long)]
    pub(crate) no_cache: bool,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) json: Json,
}

/// How a plan is opened.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct Opening {
    /// Put weights into the GPU's managed memory, which the driver moves to the host and back where memory runs short
    #[arg(long)]
    pub(crate) managed_weights: bool,
    /// Where the compiled code of a GPU plan's kernels comes from: the plan, which is a program and must be trusted;
    /// NVRTC on this machine, whatever the plan carries; or the plan, if it is signed by a --trusted-key
    #[arg(long, value_enum, default_value_t, value_name = "plan|compile|signed")]
    pub(crate) code: CodeSource,
    /// A public key whose plans are trusted, for --code signed; may be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) trusted_key: Vec<PathBuf>,
    /// The plan's signature, for --code signed; MODEL.plan.sig if not given
    #[arg(long, value_name = "FILE")]
    pub(crate) signature: Option<PathBuf>,
    /// The most trips that all loops of a run may make together (100 million if not given); a run that would make more
    /// ends with an error
    #[arg(long, value_name = "N")]
    pub(crate) max_trips: Option<u64>,
    /// The most memory that a run may hold beside weights and inputs, as in 4G (as much as there is if not given)
    #[arg(long, value_name = "BYTES", value_parser = crate::load::bytes)]
    pub(crate) max_memory: Option<usize>,
    /// Read the plan into memory instead of mapping its file, which may then be overwritten while it is in use
    #[arg(long)]
    pub(crate) copy: bool,
}

/// Where compiled code comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(crate) enum CodeSource {
    #[default]
    Plan,
    Compile,
    Signed,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Sign {
    /// The plan to sign
    #[arg(required_unless_present = "new_key")]
    pub(crate) plan: Option<PathBuf>,
    /// The private key
    #[arg(long, value_name = "FILE", required_unless_present = "new_key")]
    pub(crate) key: Option<PathBuf>,
    /// Where the signature goes; MODEL.plan.sig if not given
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Make a key instead: the private one in FILE, which only you can read, the public one in FILE.pub
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plan", "key", "output"])]
    pub(crate) new_key: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Verify {
    /// The plan
    pub(crate) plan: PathBuf,
    /// A public key that is trusted; may be given several times
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) key: Vec<PathBuf>,
    /// The plan's signature; MODEL.plan.sig if not given
    #[arg(long, value_name = "FILE")]
    pub(crate) signature: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: Json,
}

/// How a plan is built, wherever a model is given instead of a plan.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct Building {
    /// Where the plan runs: cpu, cuda (the first NVIDIA GPU), cuda:1, or auto, which takes a GPU where there is one
    #[arg(long, value_name = "cpu|cuda[:N]|auto", default_value = "auto")]
    pub(crate) device: planish::Device,
    /// What the model is computed in: fp32, tf32, fp16 or bf16
    #[arg(long, value_name = "PRECISION", default_value = "fp32", value_parser = crate::load::precision)]
    pub(crate) precision: planish::Precision,
    /// Keep layers in fp32 by their names, as in 'encoder/*:fp32' (* stands for any letters, ? for one)
    #[arg(long, value_name = "GLOB:fp32", value_parser = crate::load::layer_precision)]
    pub(crate) layer_precision: Vec<String>,
    /// Sizes of the inputs, as in x:1x3x224x224,mask:1x16; the plan is made for these alone
    #[arg(long, value_name = "NAME:SIZES,…", value_delimiter = ',')]
    pub(crate) shapes: Vec<String>,
    /// The smallest sizes that the plan must take
    #[arg(long, value_name = "NAME:SIZES,…", value_delimiter = ',', requires = "max_shapes")]
    pub(crate) min_shapes: Vec<String>,
    /// The sizes to tune for
    #[arg(long, value_name = "NAME:SIZES,…", value_delimiter = ',', requires = "max_shapes")]
    pub(crate) opt_shapes: Vec<String>,
    /// The largest sizes that the plan must take
    #[arg(long, value_name = "NAME:SIZES,…", value_delimiter = ',')]
    pub(crate) max_shapes: Vec<String>,
    /// A profile as 'min=x:1x3x224x224 opt=x:8x3x224x224 max=x:32x3x224x224'; may be given several times
    #[arg(long = "profile", value_name = "PROFILE")]
    pub(crate) profiles: Vec<String>,
    /// Threads to tune for and to run with; all that this process may use if not given
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// 0 chooses kernels by the cost model, up to 5 measures more and more
    #[arg(long, value_name = "0..5", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=5))]
    pub(crate) tune_level: u32,
    /// Times of earlier builds are taken from this file, new ones are added to it
    #[arg(long, value_name = "FILE")]
    pub(crate) timing_cache: Option<PathBuf>,
    /// Measure nothing; fail where a time is not in the timing cache
    #[arg(long, requires = "timing_cache")]
    pub(crate) timing_cache_only: bool,
    /// Take tactics by where they come from (own, reference, cublaslt, cudnn): +own,-cudnn changes what all are,
    /// `own` alone leaves the others out
    #[arg(long, value_name = "SOURCES", allow_hyphen_values = true)]
    pub(crate) tactic_sources: Option<String>,
    /// Search for tactics no longer than this; what is not measured by then goes by the cost model
    #[arg(long, value_name = "TIME", value_parser = crate::load::duration)]
    pub(crate) build_time: Option<std::time::Duration>,
    /// The most workspace that a step may ask for, as in 512M or 4G
    #[arg(long, value_name = "BYTES", value_parser = crate::load::bytes)]
    pub(crate) workspace: Option<usize>,
    /// Write the tactic of every step to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) save_tactics: Option<PathBuf>,
    /// Take the tactics that this file names, and fail if one is gone
    #[arg(long, value_name = "FILE")]
    pub(crate) load_tactics: Option<PathBuf>,
    /// Leave Winograd convolutions out: slower, with smaller rounding errors
    #[arg(long)]
    pub(crate) no_winograd: bool,
    /// Refuse what only the slow reference can compute, and steps on the CPU in a plan for a GPU
    #[arg(long)]
    pub(crate) strict: bool,
    /// Leave the self-check out
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Leave a pass out; may be given several times
    #[arg(long = "disable-pass", value_name = "PASS")]
    pub(crate) disabled_passes: Vec<String>,
    /// Stop the optimizer after this many passes, to find a guilty one
    #[arg(long, value_name = "N")]
    pub(crate) stop_after: Option<usize>,
    /// Say what the optimizer did, and why rules refused
    #[arg(long)]
    pub(crate) explain: bool,
    /// Symbols that stand for several sizes of the inputs that are at hand.
    #[arg(skip)]
    pub(crate) untied: std::collections::BTreeSet<String>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Build {
    /// The model, an .onnx file
    pub(crate) model: PathBuf,
    /// Where the plan goes; beside the model if not given
    #[arg(short, long, value_name = "FILE.plan")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) building: Building,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Bench {
    /// The model, an .onnx or a .plan file
    pub(crate) model: PathBuf,
    /// Build anew instead of taking the plan from the user's cache folder, and keep nothing there
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// Runs before the clock counts, for this long
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = crate::load::duration)]
    pub(crate) warmup: std::time::Duration,
    /// Runs that count, for this long
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = crate::load::duration)]
    pub(crate) duration: std::time::Duration,
    /// At least this many runs that count
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) iterations: usize,
    /// Contexts that run at the same time, each in its own thread
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) contexts: usize,
    /// Share of the runs, in percent, that the trimmed mean leaves out at each end
    #[arg(long, value_name = "PERCENT", default_value_t = 10)]
    pub(crate) trim: u32,
    /// Inputs by name, one array each, in a numpy .npz file; random numbers if not given
    #[arg(long, value_name = "FILE.npz")]
    pub(crate) inputs: Option<PathBuf>,
    /// Keep inputs and outputs in the GPU's memory, so that nothing is transferred while the clock counts
    #[arg(long)]
    pub(crate) no_transfers: bool,
    /// Take inputs from ordinary memory instead of the engine's own pinned buffers
    #[arg(long, conflicts_with = "no_transfers")]
    pub(crate) pageable: bool,
    /// Have each context's next run under way already while one computes, so that copies to and from the GPU overlap with
    /// it: more runs a second, each of which takes longer
    #[arg(long, conflicts_with_all = ["no_transfers", "pageable"])]
    pub(crate) overlap: bool,
    /// Wait for the GPU by looking all the time: the least latency, for a whole core
    #[arg(long)]
    pub(crate) spin: bool,
    /// Streams over which the branches of a captured graph are spread on a GPU
    #[arg(long, value_name = "N", default_value_t = planish::DEFAULT_STREAMS)]
    pub(crate) streams: usize,
    #[command(flatten)]
    pub(crate) building: Building,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Profile {
    /// The model, an .onnx or a .plan file
    pub(crate) model: PathBuf,
    /// Build anew instead of taking the plan from the user's cache folder, and keep nothing there
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// Show this many layers, the slowest first; 0 shows all in order
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) top: usize,
    /// Runs whose median counts
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub(crate) iterations: usize,
    #[command(flatten)]
    pub(crate) building: Building,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Timing {
    /// Show the times of a file, the fastest tactic of each problem first
    Show(TimingShow),
    /// Join files into one; where several have a time, the one of more samples stays
    Merge(TimingMerge),
    /// Compare two files; the answer is no if a time differs by more than the threshold
    Diff(TimingDiff),
}

#[derive(clap::Args, Debug)]
pub(crate) struct TimingShow {
    /// A timing cache, as `planish build --timing-cache` makes it
    pub(crate) file: PathBuf,
    /// Only problems, tactics and devices in which this text stands
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug)]
pub(crate) struct TimingMerge {
    /// Timing caches
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Where all of them go; what is in that file already stays
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug)]
pub(crate) struct TimingDiff {
    pub(crate) left: PathBuf,
    pub(crate) right: PathBuf,
    /// Times that differ by at most this many percent count as equal
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    pub(crate) threshold: f64,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Zoo {
    /// The model; without one, all are listed
    pub(crate) name: Option<String>,
    /// Where it goes; NAME.onnx in this folder if not given
    #[arg(short, long, value_name = "FILE.onnx", requires = "name")]
    pub(crate) output: Option<PathBuf>,
    /// The seed of the weights
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Demo {
    /// Where the files go; planish/demo in the user's cache folder if not given
    pub(crate) folder: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug, Default)]
pub(crate) struct Json {
    /// JSON instead of tables, or beside them in FILE
    #[arg(long = "json", value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub(crate) target: Option<PathBuf>,
}

impl Json {
    /// Whether JSON goes to standard output, where tables would.
    pub(crate) fn replaces_tables(&self) -> bool {
        self.target.as_ref().is_some_and(|path| path.as_os_str() == "-")
    }

    /// The file that gets JSON beside the tables.
    pub(crate) fn file(&self) -> Option<&PathBuf> {
        self.target.as_ref().filter(|_| !self.replaces_tables())
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Backend {
    /// The definition of every operator: slow and exact
    Reference,
    /// This machine's processor
    Cpu,
    /// An NVIDIA GPU
    Cuda,
}
