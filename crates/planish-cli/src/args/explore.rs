//! The words of `planish explore`.

use std::path::PathBuf;

use super::{Building, Json, Opening};

#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  planish explore model.plan --onnx model.onnx      model.html, with the graph before and after
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
    /// Run nothing: times are those of tuning
    #[arg(long)]
    pub(crate) no_time: bool,
    /// Runs, of which the median is shown
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
