//! The words of `planish sign` and `planish verify`.

use std::path::PathBuf;

use super::Json;

#[derive(clap::Args, Debug)]
pub(crate) struct Sign {
    /// The plan to sign
    #[arg(required_unless_present = "new_key")]
    pub(crate) plan: Option<PathBuf>,
    /// The private key
    #[arg(long, value_name = "FILE", required_unless_present = "new_key")]
    pub(crate) key: Option<PathBuf>,
    /// Where the signature goes; MODEL.plan.sig if not given
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Make a key pair instead: the private key in FILE, readable only by you, the public key in FILE.pub
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plan", "key", "output"])]
    pub(crate) new_key: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Verify {
    /// The plan
    pub(crate) plan: PathBuf,
    /// A public key that is trusted; may be given several times
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) key: Vec<PathBuf>,
    /// The plan's signature; MODEL.plan.sig if not given
    #[arg(long, value_name = "FILE")]
    pub(crate) signature: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: Json,
}
