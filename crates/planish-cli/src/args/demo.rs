//! The words of `planish demo`.

use std::path::PathBuf;

use planish::Device;

#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  planish demo                                   two minutes: build, verify, precisions, speed
  planish demo --scenario microscopy results/    a scenario of docs/scenarios: tables, plots and report.html in the folder
  planish demo --scenario classifier results/ --model cifar10.onnx --data cifar10.npz")]
pub(crate) struct Demo {
    /// Folder for the files; planish/demo in the user's cache folder if not given
    pub(crate) folder: Option<PathBuf>,
    /// Reproduce a scenario of docs/scenarios on this machine instead
    #[arg(long, value_enum)]
    pub(crate) scenario: Option<Scenario>,
    /// A small form of the scenario, in seconds: fewer sizes and runs, nothing tuned, plans not checked
    #[arg(long, requires = "scenario")]
    pub(crate) short: bool,
    /// The device: cpu, cuda[:N] or auto (a GPU if there is one)
    #[arg(long, value_name = "cpu|cuda[:N]|auto", default_value = "auto", requires = "scenario")]
    pub(crate) device: Device,
    /// For `classifier`: a trained model of one input, an .onnx file; a small one of clothes if not given
    #[arg(long, value_name = "MODEL.onnx", requires = "scenario", requires = "data")]
    pub(crate) model: Option<PathBuf>,
    /// For `classifier`: an .npz file with `images` and `labels`, and for INT8 with `calibration`, all as the model takes them
    #[arg(long, value_name = "FILE.npz", requires = "scenario", requires = "model")]
    pub(crate) data: Option<PathBuf>,
    /// The Python that has ONNX Runtime, for the comparison with it
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub(crate) python: PathBuf,
}

/// The scenarios.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scenario {
    /// Three engines of an image generator in a tight loop
    Generation,
    /// Label-free UNet, 3-D segmentation, 3-D masked autoencoder: precisions, sliding windows, time lapse, ensemble
    Microscopy,
    /// ResNet-18 over sizes, batches and approaches
    Resnet18,
    /// A trained classifier from ONNX to three plans: every hop, accuracy, throughput
    Classifier,
}
