//! The words of `planish check`.

use std::path::PathBuf;
use std::time::Duration;

use super::{Json, Pixels};

#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  planish check model.onnx                          # what is wrong with it
  planish check model.onnx --fix -o fixed.onnx      # and repaired, where a machine can
  planish check model.plan --max-latency 5ms --max-memory 2G --shapes x:1x3x224x224 --strict")]
pub(crate) struct Check {
    /// An .onnx file, which is looked over; or a plan, which goes through the deployment checklist and gets a new
    /// certificate
    pub(crate) model: PathBuf,
    /// For a model: write it repaired to -o
    #[arg(long, requires = "output")]
    pub(crate) fix: bool,
    /// For a model: the repaired one
    #[arg(short, long, value_name = "OUT.onnx", requires = "fix")]
    pub(crate) output: Option<PathBuf>,
    /// For a plan: shapes that it meets in use, as in x:8x3x224x224,mask:8x16; may be repeated
    #[arg(long, value_name = "NAME:SIZES,…")]
    pub(crate) shapes: Vec<String>,
    /// For a plan: samples on which a calibration must hold, and whose shapes it meets
    #[arg(long, value_name = "PATH")]
    pub(crate) data: Option<PathBuf>,
    /// Use at most this many samples, evenly spaced
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) samples: usize,
    /// For an int8 plan: the .onnx file that it was built from, with --data
    #[arg(long, value_name = "MODEL.onnx", requires = "data")]
    pub(crate) against: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pixels: Pixels,
    /// For a plan: the most that 99 of 100 runs may take, as in 5ms
    #[arg(long, value_name = "TIME", value_parser = crate::load::duration)]
    pub(crate) max_latency: Option<Duration>,
    /// For a plan: the most memory that it may take with all contexts, as in 2G
    #[arg(long, value_name = "BYTES", value_parser = crate::load::bytes)]
    pub(crate) max_memory: Option<usize>,
    /// For a plan: contexts that run at once, for the point under load
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) contexts: usize,
    /// For a plan: the least share of its device that runs must use, in percent
    #[arg(long, value_name = "PERCENT")]
    pub(crate) min_utilisation: Option<f64>,
    /// For a plan: measure for this long, alone and under load
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::load::duration)]
    pub(crate) duration: Duration,
    /// Points that nothing was given for count as failed; for a model, notes do
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}
