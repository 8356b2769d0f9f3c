//! The words of `planish sweep`.

use std::path::PathBuf;
use std::time::Duration;

use planish::{Device, Precision};

use super::{Calibrating, Json};

#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  planish sweep resnet18.onnx --batches 1,8,16 --sizes 224,256,384,512 --precisions fp32,int8 --calib photos/ -o results/
What is done is kept in the folder: the same command again goes on where it was stopped.")]
pub(crate) struct Sweep {
    /// The models, .onnx files. One whose sizes are fixed counts for its own size, and belongs to those that have the same
    /// name before it: resnet18_224.onnx and resnet18_256.onnx are one model at two sizes
    #[arg(required = true, value_name = "MODEL.onnx")]
    pub(crate) models: Vec<PathBuf>,
    /// Sizes of the first axis of the inputs
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1",
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) batches: Vec<usize>,
    /// Sizes of all other open axes (height and width of images, length of sequences); a default if not given
    #[arg(long, value_name = "N,…", value_delimiter = ',',
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) sizes: Vec<usize>,
    /// Precisions to build in; int8 needs --calib
    #[arg(long, value_name = "PRECISION,…", value_delimiter = ',', default_value = "fp32", value_parser = crate::load::precision)]
    pub(crate) precisions: Vec<Precision>,
    /// Devices to run on
    #[arg(long, value_name = "DEVICE,…", value_delimiter = ',', default_value = "auto")]
    pub(crate) devices: Vec<Device>,
    /// CPU threads; all that this process may use if not given
    #[arg(long, value_name = "N,…", value_delimiter = ',',
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) threads: Vec<usize>,
    /// The folder of results: sweep.jsonl, sweep.csv, plots in SVG and PNG, and report.html
    #[arg(short, long, value_name = "FOLDER", default_value = "results")]
    pub(crate) output: PathBuf,
    /// Warm up each for this long before measuring
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = crate::load::duration)]
    pub(crate) warmup: Duration,
    /// Measure each for this long
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::load::duration)]
    pub(crate) duration: Duration,
    /// Tuning effort, see `planish build`
    #[arg(long, value_name = "0..5", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=5))]
    pub(crate) tune_level: u32,
    /// Time limit for measuring tactics of one build, as in 60s
    #[arg(long, value_name = "TIME", value_parser = crate::load::duration)]
    pub(crate) build_time: Option<Duration>,
    /// Check no plan
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Measure everything anew, whatever the folder has
    #[arg(long)]
    pub(crate) again: bool,
    /// Do not use the plan cache: always build, and keep nothing
    #[arg(long)]
    pub(crate) no_cache: bool,
    #[command(flatten)]
    pub(crate) calibrating: Calibrating,
    #[command(flatten)]
    pub(crate) json: Json,
}
