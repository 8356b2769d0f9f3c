//! The words of `planish strip`.

use std::path::PathBuf;

use super::Json;

#[derive(clap::Args, Debug)]
pub(crate) struct Strip {
    /// The plan
    pub(crate) plan: PathBuf,
    /// Where the plan without weights goes
    #[arg(short, long, value_name = "OUT.plan")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) json: Json,
}
