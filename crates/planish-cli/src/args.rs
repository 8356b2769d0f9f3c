//! The command line's words.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

#[derive(Parser, Debug)]
#[command(
    name = "planish",
    version,
    about = "Look into trained models (ONNX) and run them",
    after_help = "Start with `planish demo`. Exit codes: 0 done, 1 the answer is no, 2 bad usage or bad input, \
                  3 this machine cannot do it."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Show what a model is: inputs, outputs, operators, parameters, work
    Inspect(Inspect),
    /// Run a model once and show or save its outputs
    Run(Run),
    /// Write a model of a known kind with random weights, or list them
    Zoo(Zoo),
    /// Make a small model, inspect it and run it
    Demo(Demo),
    /// Show what this machine offers: CPU, memory, GPUs, libraries
    Doctor(Doctor),
}

#[derive(clap::Args, Debug)]
pub(crate) struct Inspect {
    /// The model, an .onnx file
    pub(crate) model: PathBuf,
    /// Sizes for inputs with open dimensions, as in x:1x3x224x224,mask:1x16 (for the count of work)
    #[arg(long, value_name = "NAME:SIZES,…", value_delimiter = ',')]
    pub(crate) shapes: Vec<String>,
    /// Print the graph after import in its text form, and nothing else
    #[arg(long)]
    pub(crate) graph: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Run {
    /// The model, an .onnx file
    pub(crate) model: PathBuf,
    /// What runs it
    #[arg(long, value_enum, default_value_t = Backend::Reference)]
    pub(crate) backend: Backend,
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
    /// Where the files go; a new folder under the temporary one if not given
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
