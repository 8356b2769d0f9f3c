//! The words of `planish debug`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use super::{Building, Json, Pixels};

/// Looks into what a plan does.
#[derive(Subcommand, Debug)]
pub(crate) enum Debug {
    /// Name the layers where a plan departs from its model in floats, and write the pins that keep them in fp32
    Accuracy(DebugAccuracy),
    /// Find the smallest part of a model on which a command still fails
    Reduce(DebugReduce),
    /// Find the tactics that make a command fail, always or sometimes
    Tactics(Box<DebugTactics>),
    /// Run again what `planish run --capture FILE` wrote, and say whether it ends the same: exit code 1 if not
    Replay(DebugReplay),
}

impl Debug {
    /// The model or plan that it reads, and where its report goes.
    pub(crate) fn parts(&self) -> (&PathBuf, &Json) {
        match self {
            Debug::Accuracy(args) => (&args.plan, &args.json),
            Debug::Reduce(args) => (&args.model, &args.json),
            Debug::Tactics(args) => (&args.model, &args.json),
            Debug::Replay(args) => (&args.file, &args.json),
        }
    }
}

/// A command that says by its exit code whether something is wrong.
#[derive(clap::Args, Debug)]
pub(crate) struct Asking {
    /// The command, as a shell takes it: {} stands for the file to look at, which comes last if there is no {}
    #[arg(long, value_name = "CMD")]
    pub(crate) check: String,
    /// The most that one run of it may take; a run that takes longer has another result than any other
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = crate::load::duration)]
    pub(crate) timeout: Duration,
    /// Show what the command writes
    #[arg(long)]
    pub(crate) show: bool,
}

#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  planish debug reduce model.onnx --check 'planish build {} -o /tmp/x.plan'       # a build that fails
  planish debug reduce model.onnx --check 'planish polygraphy run {} --trt --onnxrt'  # other results than ONNX Runtime
A part still fails if the command ends with the same exit code as on the whole model.")]
pub(crate) struct DebugReduce {
    /// The model, an .onnx file
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) asking: Asking,
    /// The smallest part; MODEL.reduced.onnx beside the model if not given
    #[arg(short, long, value_name = "OUT.onnx")]
    pub(crate) output: Option<PathBuf>,
    /// Shapes of inputs with dynamic dimensions, as in x:1x3x224x224
    #[arg(long, value_name = "NAME:SIZES,…", value_delimiter = ',')]
    pub(crate) shapes: Vec<String>,
    /// Keep sizes open in the parts, instead of those of --shapes or the usual ones
    #[arg(long, conflicts_with = "shapes")]
    pub(crate) open_sizes: bool,
    /// Run the command at most this many times
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) max_checks: usize,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  planish debug tactics model.onnx --check 'planish compare {} model.onnx@reference --max-error rel<=1e-4' --tries 5
The model is built again and again without some of its tactics; the plan goes to the command as {}.")]
pub(crate) struct DebugTactics {
    /// The model, an .onnx file
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) asking: Asking,
    /// Run the command this many times on each plan: one failure counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) tries: usize,
    /// Where the tactics of a build go that does not fail, for `planish build --load-tactics`; MODEL.good.tactics beside the
    /// model if not given
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) building: Building,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug)]
pub(crate) struct DebugReplay {
    /// What `planish run --capture FILE` wrote
    pub(crate) file: PathBuf,
    /// Write what is in it to this folder, and run nothing
    #[arg(long, value_name = "FOLDER")]
    pub(crate) unpack: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug)]
pub(crate) struct DebugAccuracy {
    /// The plan
    pub(crate) plan: PathBuf,
    /// The .onnx file that the plan was built from: a plan in int8 or fp8 needs it, others count their weights as exact without it
    #[arg(long, value_name = "MODEL.onnx")]
    pub(crate) against: Option<PathBuf>,
    /// The samples to compare on: a folder or file of images, .npy or .npz arrays, TIFF stacks or CSV
    #[arg(long, value_name = "PATH")]
    pub(crate) data: Option<PathBuf>,
    /// Use at most this many samples, evenly spaced
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) samples: usize,
    /// Seed of random inputs, where no --data is given
    #[arg(long, value_name = "SEED", default_value_t = 0, conflicts_with = "data")]
    pub(crate) random: u64,
    #[command(flatten)]
    pub(crate) pixels: Pixels,
    /// Where the pins go, for `planish build --pins`; MODEL.pins beside the plan if not given
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Show this many steps, those with the largest errors of their own
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,
    /// The device to run on: cpu, cuda, cuda:1, or auto (that of the plan)
    #[arg(long, value_name = "cpu|cuda[:N]|auto", default_value = "auto")]
    pub(crate) device: planish::Device,
    #[command(flatten)]
    pub(crate) json: Json,
}
