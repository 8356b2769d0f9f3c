//! The command line's words.

mod border;
mod bundle;
mod calibrate;
mod check;
mod compare;
mod contract;
mod debug;
mod demo;
mod edit;
mod explore;
mod exporter;
mod plugin;
mod polygraphy;
mod polygraphy_tools;
mod quantize;
mod refit;
mod sign;
mod slide;
mod strip;
mod sweep;
mod timing;
mod trtexec;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand, ValueEnum};

pub(crate) use border::Bordering;
pub(crate) use bundle::Bundle;
pub(crate) use calibrate::{AskedCalibrator, Calibrate, Calibrating, Pixels};
pub(crate) use check::Check;
pub(crate) use compare::{Compare, Runs, Subject};
pub(crate) use contract::Contracting;
pub(crate) use debug::{Asking, Debug, DebugAccuracy, DebugReduce, DebugReplay, DebugTactics};
pub(crate) use demo::{Demo, Scenario};
pub(crate) use edit::{Extract, Insert, Reshape, Sanitize, Simplify, Sparsify, Surgeon};
pub(crate) use explore::Explore;
pub(crate) use exporter::Exporter;
pub(crate) use plugin::{PluginCheck, PluginCommand, PluginList, PluginMatch};
pub(crate) use polygraphy::{Polygraphy, PolygraphyRun};
pub(crate) use polygraphy_tools::{
    PolygraphyCheck, PolygraphyConvert, PolygraphyDebug, PolygraphyInspect, PolygraphySurgeon,
};
pub(crate) use quantize::Quantize;
pub(crate) use refit::Refit;
pub(crate) use sign::{Sign, Verify};
pub(crate) use slide::Slide;
pub(crate) use strip::Strip;
pub(crate) use sweep::Sweep;
pub(crate) use timing::{Timing, TimingDiff, TimingMerge, TimingShow};
pub(crate) use trtexec::Trtexec;

#[derive(Parser, Debug)]
#[command(
    name = "planish",
    version,
    about = "Builds ONNX models into tuned and checked plans, and runs them",
    after_help = "Start with `planish demo`. Exit codes: 0 done, 1 the answer is no, 2 bad usage or bad input, \
                  3 this machine cannot do it, 4 a mistake of ours (please report it), 130 interrupted."
)]
pub(crate) struct Args {
    /// Tell what builds decide: fusions, precisions, kernels; -vv also candidates and what rules refused
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// A plugin with operators of your own, a .cu file or a shared library, whose code is run; may be repeated
    #[arg(long = "plugin", global = true, value_name = "FILE")]
    pub(crate) plugins: Vec<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Layers by a pattern of their names, and what they are computed in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LayerPrecision {
    pub(crate) pattern: String,
    /// fp32, int8 or fp8.
    pub(crate) precision: planish::Precision,
}

/// What `--precision` asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AskedPrecision {
    Named(planish::Precision),
    /// The fastest that keeps to a contract.
    Auto,
}

impl Default for AskedPrecision {
    fn default() -> AskedPrecision {
        AskedPrecision::Named(planish::Precision::default())
    }
}

/// Where `--stop-after` stops.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StopAfter {
    /// After so many passes; the build goes on with what they left.
    Passes(usize),
    /// After a stage of the build, which is then shown.
    Stage(planish::Stage),
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Show what a model is: inputs, outputs, operators, parameters, work
    Inspect(Inspect),
    /// Turn a model into a plan: optimized, tuned and checked for this machine
    Build(Build),
    /// Run a model once and show or save its outputs
    Run(Run),
    /// Run a model over an image or volume in overlapping windows, and blend the results
    Slide(Slide),
    /// Find the ranges of a model's activations on real data, for quantizing them
    Calibrate(Calibrate),
    /// Write a quantized model: QuantizeLinear and DequantizeLinear around its layers, for Planish and other runtimes
    Quantize(Quantize),
    /// Time a model: latency, throughput, memory
    Bench(Bench),
    /// Time models over sizes, batches, precisions, devices and threads: a table, plots and a page
    Sweep(Sweep),
    /// Hold models, plans, backends and precisions against each other: exit code 1 beyond a limit
    Compare(Compare),
    /// Time every layer of a model
    Profile(Profile),
    /// A plan as a page: the graph before and after, every kernel and why, memory, hazards
    Explore(Explore),
    /// Look into what a plan does
    #[command(subcommand)]
    Debug(Debug),
    /// Show, merge and compare timing caches
    #[command(subcommand)]
    Timing(Timing),
    /// Sign a plan, or make a key to sign with
    Sign(Sign),
    /// Verify a plan's signature: exit code 0 if a given key signed it, 1 if not
    Verify(Verify),
    /// Give a plan the weights of another model of the same graph, without building it again
    Refit(Refit),
    /// Put plans of one model for several targets into one file, which is opened by the best that fits
    Bundle(Bundle),
    /// Write a plan without its weights, to be filled again from its model with `planish refit`
    Strip(Strip),
    /// Look a model over and repair it, or take a plan through the deployment checklist: exit code 1 if something is wrong
    Check(Check),
    /// Write a model with its constants folded and what does nothing removed, for Planish and other runtimes
    Simplify(Simplify),
    /// Write the part of a model between some of its values
    Extract(Extract),
    /// Change a model's file: insert, remove, prune, rename, reshape, sanitize, sparsify
    #[command(subcommand)]
    Surgeon(Surgeon),
    /// List and check plugins (operators of your own), and put one into a model in place of a pattern of nodes
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Write one of the benchmark models with random weights, or list them
    Zoo(Zoo),
    /// Make a model, then build, check, time and compare it: a tour of everything
    Demo(Demo),
    /// Show what this machine has: CPU, memory, GPUs, libraries, and its measured peaks
    Doctor(Doctor),
    /// Build and measure by the flags of TensorRT's trtexec 8 to 11, for scripts that have them
    #[command(disable_help_flag = true)]
    Trtexec(Trtexec),
    /// Compare backends, convert, look into and change models by the words of Polygraphy, for scripts that have them
    #[command(subcommand, version)]
    Polygraphy(Polygraphy),
    /// Print what a shell needs to complete commands: planish completions bash > ~/.local/share/bash-completion/completions/planish
    Completions(Completions),
    /// Write manual pages into a folder, one for each command
    Man(Man),
}

impl Command {
    /// The command with older spellings of arguments brought to those of today.
    pub(crate) fn brought_up_to_date(mut self) -> Command {
        match &mut self {
            Command::Build(args) => {
                args.building.profiles.append(&mut args.older.older_profiles);
                args.building.metadata.append(&mut args.meta);
            }
            Command::Bench(args) => args.building.profiles.append(&mut args.older.older_profiles),
            _ => {}
        }
        self
    }

    /// Where its report goes as JSON.
    pub(crate) fn json(&self) -> Option<&Json> {
        Some(match self {
            Command::Inspect(args) => &args.json,
            Command::Build(args) => &args.json,
            Command::Run(args) => &args.with.json,
            Command::Slide(args) => &args.with.json,
            Command::Refit(args) => &args.json,
            Command::Strip(args) => &args.json,
            Command::Bundle(args) => &args.json,
            Command::Check(args) => &args.json,
            Command::Simplify(args) => &args.json,
            Command::Extract(args) => &args.json,
            Command::Surgeon(args) => args.parts().1,
            Command::Calibrate(args) => &args.json,
            Command::Quantize(args) => &args.json,
            Command::Bench(args) => &args.json,
            Command::Compare(args) => &args.json,
            Command::Profile(args) => &args.json,
            Command::Explore(args) => &args.json,
            Command::Sweep(args) => &args.json,
            Command::Debug(args) => args.parts().1,
            Command::Timing(Timing::Show(args)) => &args.json,
            Command::Timing(Timing::Merge(args)) => &args.json,
            Command::Timing(Timing::Diff(args)) => &args.json,
            Command::Zoo(args) => &args.json,
            Command::Doctor(args) => &args.json,
            Command::Verify(args) => &args.json,
            Command::Plugin(args) => args.json(),
            Command::Sign(_)
            | Command::Demo(_)
            | Command::Trtexec(_)
            | Command::Polygraphy(_)
            | Command::Completions(_)
            | Command::Man(_) => {
                return None;
            }
        })
    }

    /// The model that it reads.
    pub(crate) fn model(&self) -> Option<&Path> {
        match self {
            Command::Inspect(args) => Some(&args.model),
            Command::Build(args) => Some(&args.model),
            Command::Run(args) => Some(&args.model),
            Command::Slide(args) => Some(&args.model),
            Command::Refit(args) => Some(&args.model),
            Command::Strip(args) => Some(&args.plan),
            Command::Check(args) => Some(&args.model),
            Command::Simplify(args) => Some(&args.model),
            Command::Extract(args) => Some(&args.model),
            Command::Surgeon(args) => Some(args.parts().0),
            Command::Calibrate(args) => Some(&args.model),
            Command::Quantize(args) => Some(&args.model),
            Command::Bench(args) => Some(&args.model),
            Command::Profile(args) => Some(&args.model),
            Command::Explore(args) => Some(&args.model),
            Command::Debug(args) => Some(args.parts().0),
            Command::Plugin(PluginCommand::Match(args)) => Some(&args.model),
            _ => None,
        }
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct Inspect {
    /// The model, an .onnx or a .plan file
    pub(crate) model: PathBuf,
    /// Shapes of inputs with dynamic dimensions, as in x:1x3x224x224,mask:1x16, for which FLOP are counted
    #[arg(long, value_name = "NAME:SIZES,…", value_delimiter = ',')]
    pub(crate) shapes: Vec<String>,
    /// Print the graph in its text form, and nothing else: after import, or of a plan after optimization
    #[arg(long)]
    pub(crate) graph: bool,
    /// For a plan: every step with its kernel, the candidates and why it was chosen
    #[arg(long)]
    pub(crate) layers: bool,
    /// For a plan: what its self-check found
    #[arg(long)]
    pub(crate) certificate: bool,
    /// For a plan: what it says of itself (versions, devices, shapes, precision, your own keys), read without the rest of
    /// the file
    #[arg(long)]
    pub(crate) metadata: bool,
    /// For a plan: everything except the elements of weights, as text to read or diff
    #[arg(long)]
    pub(crate) text: bool,
    /// For a GPU plan: open it and show the memory that it needs; this loads the plan's code
    #[arg(long)]
    pub(crate) memory: bool,
    /// For a plan: write each piece of compiled code to a file in this folder, for a disassembler
    #[arg(long, value_name = "FOLDER")]
    pub(crate) code: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Run {
    /// The model, an .onnx or a .plan file
    pub(crate) model: PathBuf,
    /// What runs it: short for --device, or the reference
    #[arg(long, value_enum, conflicts_with = "device")]
    pub(crate) backend: Option<Backend>,
    /// Inputs by name, one array each, in a numpy .npz file
    #[arg(long, value_name = "FILE.npz")]
    pub(crate) inputs: Option<PathBuf>,
    /// One input from a numpy .npy file or an image (png, jpeg, bmp)
    #[arg(long = "input", value_name = "NAME=FILE")]
    pub(crate) input: Vec<String>,
    /// Seed of random values for inputs that no file gives (0 if no input is given at all)
    #[arg(long, value_name = "SEED")]
    pub(crate) random: Option<u64>,
    /// Shapes of inputs with dynamic dimensions, as in x:1x3x224x224,mask:1x16
    #[arg(long, value_name = "NAME:SIZES,…", value_delimiter = ',')]
    pub(crate) shapes: Vec<String>,
    /// Where the outputs go: one .npz file, or a folder of .npy files
    #[arg(short, long, value_name = "OUT.npz|FOLDER")]
    pub(crate) output: Option<PathBuf>,
    /// For a model: take the values between its nodes whose names match among the outputs (* matches any characters, ?
    /// one); may be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) dump_tensors: Vec<String>,
    /// Write the model, its inputs, the options and how the run ended to one file, for `planish debug replay`
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
    /// Leave the weights out of it: random numbers of the same mean and deviation take their place there
    #[arg(long, requires = "capture")]
    pub(crate) without_weights: bool,
    /// Tuning effort before the run, see `planish build`
    #[arg(long, value_name = "0..5", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=5))]
    pub(crate) tune_level: u32,
    /// Do not use Winograd convolutions
    #[arg(long)]
    pub(crate) no_winograd: bool,
    #[command(flatten)]
    pub(crate) border: Bordering,
    #[command(flatten)]
    pub(crate) with: RunWith,
}

/// What a model is run with, built before if it is no plan.
#[derive(clap::Args, Debug)]
pub(crate) struct RunWith {
    /// The device to run on: cpu, cuda, cuda:1, or auto (a GPU if there is one)
    #[arg(long, value_name = "cpu|cuda[:N]|auto", default_value = "auto")]
    pub(crate) device: planish::Device,
    /// The precision of activations, weights and products: fp32, tf32, fp16 or bf16
    #[arg(long, value_name = "PRECISION", default_value = "fp32", value_parser = crate::load::precision)]
    pub(crate) precision: planish::Precision,
    /// CPU threads; all that this process may use if not given
    #[arg(long, value_name = "N", value_parser = crate::load::threads)]
    pub(crate) threads: Option<usize>,
    /// Do not use the plan cache: always build, and keep nothing
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
    /// Keep weights in CUDA managed memory, which the driver moves to the host if the GPU's memory runs short
    #[arg(long)]
    pub(crate) managed_weights: bool,
    /// Keep at most this much of the GPU's memory for weights, as in 512M; the rest stays in pinned host memory and is
    /// brought to the GPU ahead of its use in every run
    #[arg(long, value_name = "BYTES", value_parser = crate::load::bytes, conflicts_with = "managed_weights")]
    pub(crate) weight_budget: Option<usize>,
    /// Where the compiled code of a GPU plan comes from: the plan itself, which must be trusted like any program; NVRTC
    /// on this machine; or the plan, if it is signed by a --trusted-key
    #[arg(long, value_enum, default_value_t, value_name = "plan|compile|signed")]
    pub(crate) code: CodeSource,
    /// A public key whose plans are trusted, for --code signed; may be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) trusted_key: Vec<PathBuf>,
    /// The plan's signature, for --code signed; MODEL.plan.sig if not given
    #[arg(long, value_name = "FILE")]
    pub(crate) signature: Option<PathBuf>,
    /// Fail if the loops of a run make more iterations than this in total (100 million if not given)
    #[arg(long, value_name = "N")]
    pub(crate) max_trips: Option<u64>,
    /// Fail if a run needs more memory than this besides weights and inputs, as in 4G (no limit if not given)
    #[arg(long, value_name = "BYTES", value_parser = crate::load::bytes)]
    pub(crate) max_memory: Option<usize>,
    /// Read the plan into memory instead of mapping its file, so that the file may be overwritten during the run
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

/// What is done to layers before they become integers; both steps go by a calibration with channels.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Evening {
    /// For int8: even out the channels that layers read where the calibration says that this is less noise
    #[arg(long)]
    pub(crate) equalize: bool,
    /// For int8: leave biases as they are, whatever rounding weights does to the means of outputs
    #[arg(long)]
    pub(crate) no_bias_correction: bool,
}

impl Evening {
    pub(crate) fn set(&self, options: &mut planish::BuildOptions) {
        // A calibration may have asked for it, too.
        options.equalize |= self.equalize;
        options.correct_biases = !self.no_bias_correction;
    }
}

/// How a plan is built, wherever a model is given instead of a plan.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Building {
    /// The device to build for: cpu, cuda (the first NVIDIA GPU), cuda:1, or auto (a GPU if there is one)
    #[arg(long, value_name = "cpu|cuda[:N]|auto", default_value = "auto")]
    pub(crate) device: planish::Device,
    /// The precision of activations, weights and products: fp32, tf32, fp16, bf16, int8 or fp8; for `build` also auto, the
    /// fastest that keeps to a contract
    #[arg(long, value_name = "PRECISION", default_value = "fp32", value_parser = crate::load::asked_precision)]
    pub(crate) precision: AskedPrecision,
    /// Keep layers and other nodes in fp32 by name, as in 'encoder/*:fp32' (* matches any characters, ? one); with int8 or
    /// fp8 also 'conv1:int8', which takes first and last layers in
    #[arg(long, value_name = "GLOB:fp32|int8|fp8", value_parser = crate::load::layer_precision)]
    pub(crate) layer_precision: Vec<LayerPrecision>,
    /// Take such names from a file, as `planish debug accuracy` writes it
    #[arg(long, value_name = "FILE")]
    pub(crate) pins: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) calibrating: Calibrating,
    /// For int8: quantize matrix products alone, by ranges that are found in each run, of every row (if nothing is said) or
    /// of the whole tensor that a product reads; needs no calibration
    #[arg(long, value_name = "row|tensor", conflicts_with = "calib", num_args = 0..=1, require_equals = true, default_missing_value = "row")]
    pub(crate) dynamic: Option<planish::DynamicRange>,
    /// Store the weights of large matrix products as integers in groups: int8, int4, or with the elements of a group as in
    /// int4:32; activations stay as they are. With samples in --calib weights are rounded with regard to what products read
    #[arg(long, value_name = "int8|int4[:GROUP]")]
    pub(crate) weights: Option<planish::WeightStorage>,
    /// 2:4 sparse weights: enable has kernels that count on them compete where weights are so, which changes no result; force
    /// prunes the weights of all layers by magnitude first, which does
    #[arg(long, value_name = "enable|disable|force", default_value = "enable")]
    pub(crate) sparsity: planish::Sparsity,
    /// Keep the types that the model says; nothing is chosen
    #[arg(long, conflicts_with_all = ["precision", "layer_precision", "pins", "calib", "dynamic", "weights"])]
    pub(crate) strongly_typed: bool,
    /// For int8: weights within ±63 instead of ±127
    #[arg(long, conflicts_with = "full_range")]
    pub(crate) reduced_range: bool,
    /// For int8: all weights within ±127, also where the machine multiplies pairs of at most 128 faster
    #[arg(long)]
    pub(crate) full_range: bool,
    #[command(flatten)]
    pub(crate) evening: Evening,
    /// For int8: integers also where a wider precision is measured to be faster
    #[arg(long)]
    pub(crate) obey_precision: bool,
    #[command(flatten)]
    pub(crate) border: Bordering,
    /// Fixed input shapes, as in x:1x3x224x224,mask:1x16; the plan runs at these only
    #[arg(long, value_name = "NAME:SIZES,…", value_delimiter = ',')]
    pub(crate) shapes: Vec<String>,
    /// The smallest input shapes of the optimization profile
    #[arg(long, value_name = "NAME:SIZES,…", value_delimiter = ',', requires = "max_shapes")]
    pub(crate) min_shapes: Vec<String>,
    /// The input shapes to tune for
    #[arg(long, value_name = "NAME:SIZES,…", value_delimiter = ',', requires = "max_shapes")]
    pub(crate) opt_shapes: Vec<String>,
    /// The largest input shapes of the optimization profile
    #[arg(long, value_name = "NAME:SIZES,…", value_delimiter = ',')]
    pub(crate) max_shapes: Vec<String>,
    /// An optimization profile, as in 'min=x:1x3x224x224 opt=x:8x3x224x224 max=x:32x3x224x224'; may be repeated
    #[arg(long = "shape-profile", value_name = "PROFILE")]
    pub(crate) profiles: Vec<String>,
    /// CPU threads to tune for and to run with; all that this process may use if not given
    #[arg(long, value_name = "N", value_parser = crate::load::threads)]
    pub(crate) threads: Option<usize>,
    /// Tuning effort: 0 chooses kernels by the cost model, 1 to 5 measure more and more candidates
    #[arg(long, value_name = "0..5", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=5))]
    pub(crate) tune_level: u32,
    /// Timing cache: a file of measured times that is read before the build and extended by it
    #[arg(long, value_name = "FILE")]
    pub(crate) timing_cache: Option<PathBuf>,
    /// Measure nothing; fail if a time is not in the timing cache
    #[arg(long, requires = "timing_cache")]
    pub(crate) timing_cache_only: bool,
    /// Which sources of tactics compete (own, reference, cublaslt, cudnn): +NAME and -NAME add to and remove from all
    /// of them, as in +own,-cudnn; plain names take only these
    #[arg(long, value_name = "SOURCES", allow_hyphen_values = true)]
    pub(crate) tactic_sources: Option<String>,
    /// Time limit for measuring tactics, as in 60s; after it the cost model decides
    #[arg(long, value_name = "TIME", value_parser = crate::load::duration)]
    pub(crate) build_time: Option<std::time::Duration>,
    /// The most workspace that a step may use, as in 512M or 4G
    #[arg(long, value_name = "BYTES", value_parser = crate::load::bytes)]
    pub(crate) workspace: Option<usize>,
    /// Write the tactic of every step to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) save_tactics: Option<PathBuf>,
    /// Use the tactics that this file names; fail if one of them is not available
    #[arg(long, value_name = "FILE")]
    pub(crate) load_tactics: Option<PathBuf>,
    /// Do not use Winograd convolutions: slower, with smaller rounding errors
    #[arg(long)]
    pub(crate) no_winograd: bool,
    /// Fail if a step would run on the slow reference, or on the CPU in a GPU plan
    #[arg(long)]
    pub(crate) strict: bool,
    /// Skip the self-check
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Skip a pass of the optimizer; may be repeated
    #[arg(long = "disable-pass", value_name = "PASS")]
    pub(crate) disabled_passes: Vec<String>,
    /// Stop the optimizer after this many passes, to bisect a wrong result; on `build` also `lowered`, `priced` or
    /// `chosen`, which writes that stage as text to -o or the standard output
    #[arg(long, value_name = "N|STAGE", value_parser = crate::load::stop_after)]
    pub(crate) stop_after: Option<StopAfter>,
    /// Print what the optimizer did, and why rules did not apply
    #[arg(long)]
    pub(crate) explain: bool,
    /// Symbols that stand for several sizes of the inputs that are at hand.
    #[arg(skip)]
    pub(crate) untied: std::collections::BTreeSet<String>,
    /// Pairs of the user's own for the plan.
    #[arg(skip)]
    pub(crate) metadata: Vec<(String, String)>,
    /// What it is built for in the place of the device.
    #[arg(skip)]
    pub(crate) target: Option<String>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Build {
    /// The model, an .onnx file
    pub(crate) model: PathBuf,
    /// The plan file; beside the model if not given
    #[arg(short, long, value_name = "FILE.plan")]
    pub(crate) output: Option<PathBuf>,
    /// A pair of your own that the plan keeps beside those of the model's file, as in labels=cat,dog; `planish inspect
    /// --metadata` shows them; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = crate::load::pair)]
    pub(crate) meta: Vec<(String, String)>,
    /// Build for other machines than this one: portable, avx2 or avx512, and GPUs that need not be here as sm_80 or sm_90a (or
    /// a100, h200, …), compiled by NVRTC and tuned by --timing-cache or the cost model; several give one file, which is opened
    /// by the best that fits
    #[arg(id = "machines", long = "target", value_name = "NAME,…", value_delimiter = ',', conflicts_with_all = ["device", "strip_weights"])]
    pub(crate) target: Vec<String>,
    /// Leave the weights out of the plan; `planish refit` fills it again from the model
    #[arg(long)]
    pub(crate) strip_weights: bool,
    #[command(flatten)]
    pub(crate) building: Building,
    #[command(flatten)]
    pub(crate) contracting: Contracting,
    #[command(flatten)]
    pub(crate) exporter: Exporter,
    #[command(flatten)]
    pub(crate) older: Older,
    #[command(flatten)]
    pub(crate) json: Json,
}

/// Older spellings, where they cannot be mistaken: `planish profile` is about layers.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct Older {
    /// The same as --shape-profile
    #[arg(long = "profile", value_name = "PROFILE", hide = true)]
    pub(crate) older_profiles: Vec<String>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Bench {
    /// The model, an .onnx or a .plan file
    pub(crate) model: PathBuf,
    /// Do not use the plan cache: always build, and keep nothing
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// Warm up for this long before measuring
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = crate::load::duration)]
    pub(crate) warmup: std::time::Duration,
    /// Measure for this long
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = crate::load::duration)]
    pub(crate) duration: std::time::Duration,
    /// Measure at least this many runs
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) iterations: usize,
    /// Contexts that run concurrently, each on its own thread
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) contexts: usize,
    /// Percentage of runs that the trimmed mean drops at each end
    #[arg(long, value_name = "PERCENT", default_value_t = 10)]
    pub(crate) trim: u32,
    /// Inputs by name, one array each, in a numpy .npz file; random values if not given
    #[arg(long, value_name = "FILE.npz")]
    pub(crate) inputs: Option<PathBuf>,
    /// Keep inputs and outputs in GPU memory, so that no transfers are measured
    #[arg(long)]
    pub(crate) no_transfers: bool,
    /// Take inputs from pageable memory instead of the engine's pinned buffers
    #[arg(long, conflicts_with = "no_transfers")]
    pub(crate) pageable: bool,
    /// Overlap each context's transfers with the computation of its previous run: higher throughput, higher latency
    #[arg(long, conflicts_with_all = ["no_transfers", "pageable"])]
    pub(crate) overlap: bool,
    /// Busy-wait for the GPU: the lowest latency, at the cost of a CPU core
    #[arg(long)]
    pub(crate) spin: bool,
    /// Compare with a result that `--json=FILE` stored, or with another plan, run in turn: exit code 1 if this is slower, 3
    /// if the machine is too restless to tell
    #[arg(long, value_name = "BASE.json|BASE.plan")]
    pub(crate) against: Option<PathBuf>,
    /// Changes of this many percent and less are none, for --against
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, requires = "against")]
    pub(crate) tolerance: f64,
    /// Write the result's plain numbers to this CSV file, too
    #[arg(long, value_name = "FILE.csv")]
    pub(crate) csv: Option<PathBuf>,
    /// CUDA streams over which the branches of a captured graph are spread
    #[arg(long, value_name = "N", default_value_t = planish::DEFAULT_STREAMS)]
    pub(crate) streams: usize,
    #[command(flatten)]
    pub(crate) building: Building,
    #[command(flatten)]
    pub(crate) older: Older,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) json: Json,
}

impl Bench {
    /// As `planish bench MODEL` has it.
    pub(crate) fn usual(model: &Path) -> anyhow::Result<Bench> {
        let words = [OsStr::new("planish"), OsStr::new("bench"), OsStr::new("--"), model.as_os_str()];
        match Args::try_parse_from(words)?.command {
            Command::Bench(args) => Ok(args),
            _ => anyhow::bail!("`bench` is another command"),
        }
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct Profile {
    /// The model, an .onnx or a .plan file
    pub(crate) model: PathBuf,
    /// Do not use the plan cache: always build, and keep nothing
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// Show this many layers, the slowest first; 0 shows all in order
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) top: usize,
    /// Runs, of which the shortest quarter is averaged
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub(crate) iterations: usize,
    /// Write the layers as a trace for chrome://tracing or ui.perfetto.dev, too
    #[arg(long, value_name = "FILE.json")]
    pub(crate) trace: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) building: Building,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Zoo {
    /// The model's name; without one, all are listed
    pub(crate) name: Option<String>,
    /// The ONNX file; NAME.onnx in the current folder if not given
    #[arg(short, long, value_name = "FILE.onnx", requires = "name")]
    pub(crate) output: Option<PathBuf>,
    /// The seed of the weights
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Man {
    /// The folder, made if it is not there
    pub(crate) folder: PathBuf,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Doctor {
    /// Measure the peaks of this CPU and its GPUs (FLOP/s, INT8 OP/s, memory bandwidth) and keep them
    #[arg(long)]
    pub(crate) measure: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug, Default)]
pub(crate) struct Json {
    /// Print JSON instead of tables; with =FILE write it there and print the tables too
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
    /// The reference: slow and exact
    Reference,
    /// The CPU
    Cpu,
    /// An NVIDIA GPU
    Cuda,
}
