//! The words of `planish bundle`.

use std::path::PathBuf;

use super::Json;

#[derive(clap::Args, Debug)]
pub(crate) struct Bundle {
    /// Plans of one model, each for another target
    #[arg(required = true)]
    pub(crate) plans: Vec<PathBuf>,
    /// The file with all of them
    #[arg(short, long, value_name = "OUT.plan")]
    pub(crate) output: PathBuf,
    /// Keep weights as each target packs them: a larger file that opens faster
    #[arg(long)]
    pub(crate) packed: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}
