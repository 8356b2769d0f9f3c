//! The words of `planish timing`.

use std::path::PathBuf;

use clap::Subcommand;

use super::Json;

#[derive(Subcommand, Debug)]
pub(crate) enum Timing {
    /// Show the times of a timing cache, the fastest tactic of each problem first
    Show(TimingShow),
    /// Merge timing caches; of several times for one tactic the one with more samples is kept
    Merge(TimingMerge),
    /// Compare two timing caches; exit code 1 if a time differs by more than the threshold
    Diff(TimingDiff),
}

#[derive(clap::Args, Debug)]
pub(crate) struct TimingShow {
    /// A timing cache, as `planish build --timing-cache` makes it
    pub(crate) file: PathBuf,
    /// Show only problems, tactics and devices that contain this text
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
    /// The merged timing cache; entries that are already in this file are kept
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Say which times of one tactic on one kind of device are more than this many percent apart
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    pub(crate) threshold: f64,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug)]
pub(crate) struct TimingDiff {
    pub(crate) left: PathBuf,
    pub(crate) right: PathBuf,
    /// Treat times that differ by at most this many percent as equal
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    pub(crate) threshold: f64,
    #[command(flatten)]
    pub(crate) json: Json,
}
