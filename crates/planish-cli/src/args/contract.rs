//! The words of `--precision auto`: what a plan must keep to.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

#[derive(clap::Args, Debug, Default)]
pub(crate) struct Contracting {
    /// For --precision auto: how far outputs may be from those in FP32 on samples held out from the search, as relative L2
    /// error (0.01 or 'rel<=0.01'), 'psnr>=40' or 'cosine>=0.999'
    #[arg(long, value_name = "BOUND", value_parser = crate::contract::contract, conflicts_with = "metric")]
    pub(crate) max_error: Option<planish::Contract>,
    /// For --precision auto: count labels instead
    #[arg(long, value_enum, requires = "labels")]
    pub(crate) metric: Option<Metric>,
    /// The class of every sample: a text file with a number on each line, a .npy array, or an .npz with an array `labels`
    #[arg(long, value_name = "FILE", requires = "metric")]
    pub(crate) labels: Option<PathBuf>,
    /// Percentage points of top-1 accuracy that may be lost against FP32
    #[arg(long, value_name = "POINTS", default_value_t = 0.5, requires = "metric")]
    pub(crate) max_drop: f64,
    /// For --precision auto: the longest that a run may take, in the median, as in 5ms
    #[arg(long, value_name = "TIME", value_parser = crate::load::duration)]
    pub(crate) max_latency: Option<Duration>,
    /// The samples that the contract is measured on, every second one held out from the search; those of --calib if not
    /// given
    #[arg(long, value_name = "PATH")]
    pub(crate) data: Option<PathBuf>,
    /// Use at most this many of them, evenly spaced; with labels all are used
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) data_samples: usize,
    /// Write all candidates to this CSV file
    #[arg(long, value_name = "FILE.csv")]
    pub(crate) pareto: Option<PathBuf>,
    /// Draw all candidates into this SVG file
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

/// What is counted of labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Metric {
    /// The share of samples whose largest output is where the label says
    Top1,
}
