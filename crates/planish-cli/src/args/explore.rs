//! The words of `planish explore`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Parser;

use super::{Args, Building, Command, Json, Opening};

#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  planish explore model.plan --onnx model.onnx      model.html, with the graph before and after
  planish explore model.plan --try                  also builds it otherwise, and shows what that gains
  planish explore fp32.plan fp16.plan -o diff.html
  planish explore model.onnx --serve")]
pub(crate) struct Explore {
    /// The plan, or an .onnx file that is built first
    pub(crate) model: PathBuf,
    /// Another plan (or model) to compare it with
    pub(crate) other: Option<PathBuf>,
    /// The page; beside the plan if not given
    #[arg(short, long, value_name = "FILE.html", conflicts_with = "serve")]
    pub(crate) output: Option<PathBuf>,
    /// Write no file, and serve the page to browsers on this machine until interrupted
    #[arg(long)]
    pub(crate) serve: bool,
    /// The port to serve on; any that is free if not given
    #[arg(long, value_name = "N", default_value_t = 0, requires = "serve")]
    pub(crate) port: u16,
    /// The .onnx file that the plan was built from: shows the graph before, and which node went where
    #[arg(long, value_name = "MODEL.onnx")]
    pub(crate) onnx: Option<PathBuf>,
    /// Try what would help: build the plan again with one thing changed at a time (tuning, precision, threads, batch), run
    /// both in turn, and show the gain
    #[arg(long = "try", conflicts_with = "no_time")]
    pub(crate) tries: bool,
    /// Run nothing: times are those of tuning
    #[arg(long)]
    pub(crate) no_time: bool,
    /// Runs, of which the shortest quarter is averaged
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) iterations: usize,
    /// Do not use the plan cache: always build, and keep nothing
    #[arg(long)]
    pub(crate) no_cache: bool,
    #[command(flatten)]
    pub(crate) building: Building,
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) json: Json,
}

impl Explore {
    /// As `planish explore PLAN --onnx MODEL -o PAGE` has it.
    pub(crate) fn usual(plan: &Path, model: &Path, page: &Path) -> anyhow::Result<Explore> {
        let words = ["planish", "explore", "--device", "cpu", "--onnx"].map(OsStr::new);
        let paths =
            [model.as_os_str(), OsStr::new("-o"), page.as_os_str(), OsStr::new("--"), plan.as_os_str()];
        match Args::try_parse_from(words.into_iter().chain(paths))?.command {
            Command::Explore(args) => Ok(args),
            _ => anyhow::bail!("`explore` is another command"),
        }
    }
}
