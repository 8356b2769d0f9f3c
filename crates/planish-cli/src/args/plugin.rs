//! `planish plugin`: its words.

use std::path::PathBuf;

use clap::Subcommand;

use super::Json;

#[derive(Subcommand, Debug)]
pub(crate) enum PluginCommand {
    /// Show what the plugins of files offer: operators, types, sizes, tactics, hashes
    List(PluginList),
    /// Try plugins against their own references, every type at many sizes: exit code 1 if one is wrong
    Check(PluginCheck),
    /// Write a model in which a pattern of nodes is a plugin's operator
    Match(PluginMatch),
}

impl PluginCommand {
    pub(crate) fn json(&self) -> &Json {
        match self {
            PluginCommand::List(args) => &args.json,
            PluginCommand::Check(args) => &args.json,
            PluginCommand::Match(args) => &args.json,
        }
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct PluginList {
    /// Plugins, .cu files or shared libraries; those of --plugin if none
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug)]
pub(crate) struct PluginCheck {
    /// Plugins, .cu files or shared libraries; those of --plugin if none
    pub(crate) files: Vec<PathBuf>,
    /// The device to run on: cpu, cuda, cuda:1, or auto (a GPU if there is one)
    #[arg(long, value_name = "cpu|cuda[:N]|auto", default_value = "auto")]
    pub(crate) device: planish::Device,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug)]
pub(crate) struct PluginMatch {
    /// The model, an .onnx file
    pub(crate) model: PathBuf,
    /// The operator, as DOMAIN::NAME; may be left out where the plugins bring one
    #[arg(long, value_name = "DOMAIN::NAME")]
    pub(crate) op: Option<String>,
    /// What is looked for, over the operator's inputs and outputs, as in 'y = Mul(x, Sigmoid(x))', or an .onnx
    /// file with inputs of those names and one output; its reference if not given
    #[arg(long, value_name = "TEXT|FILE.onnx")]
    pub(crate) pattern: Option<String>,
    /// Where the model is written
    #[arg(short, long, value_name = "OUT.onnx")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) json: Json,
}
