//! The words of `planish refit`.

use std::path::PathBuf;

use super::Json;

#[derive(clap::Args, Debug)]
pub(crate) struct Refit {
    /// The plan
    pub(crate) plan: PathBuf,
    /// A model of the same graph, with other weights
    pub(crate) model: PathBuf,
    /// Take some of the weights from a numpy .npz file, one array each, by their names in the model; all others are the model's
    #[arg(long, value_name = "FILE.npz")]
    pub(crate) weights: Option<PathBuf>,
    /// For a plan of int8 or fp8: the calibration that it was built with
    #[arg(long, value_name = "FILE.calib")]
    pub(crate) calib: Option<PathBuf>,
    /// Where the plan with these weights goes
    #[arg(short, long, value_name = "OUT.plan")]
    pub(crate) output: PathBuf,
    /// Run the self-check, too; else the certificate says that the plan was not checked since
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}
