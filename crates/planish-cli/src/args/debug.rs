//! The words of `planish debug`.

use std::path::PathBuf;

use clap::Subcommand;

use super::{Json, Pixels};

/// Looks into what a plan does.
#[derive(Subcommand, Debug)]
pub(crate) enum Debug {
    /// Name the layers where a plan departs from its model in floats, and write the pins that keep them in fp32
    Accuracy(DebugAccuracy),
}

#[derive(clap::Args, Debug)]
pub(crate) struct DebugAccuracy {
    /// The plan
    pub(crate) plan: PathBuf,
    /// The .onnx file that the plan was built from: a plan in int8 needs it, others count their weights as exact without it
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
