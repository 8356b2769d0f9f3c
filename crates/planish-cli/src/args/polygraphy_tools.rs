//! The words of `planish polygraphy convert`, `inspect`, `surgeon`, `check` and `debug`, which are Polygraphy's.

use std::path::PathBuf;

use clap::Subcommand;

use super::PolygraphyRun;

#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  planish polygraphy convert model.onnx -o model.plan --fp16
  planish polygraphy convert model.onnx --convert-to trt -o model.engine --trt-min-shapes x:[1,3,224,224] --trt-opt-shapes x:[8,3,224,224] --trt-max-shapes x:[32,3,224,224]")]
pub(crate) struct PolygraphyConvert {
    #[command(flatten)]
    pub(crate) run: PolygraphyRun,
    /// The plan
    #[arg(short, long, value_name = "OUT.plan")]
    pub(crate) output: PathBuf,
    /// What it becomes: trt, a plan
    #[arg(long, value_name = "KIND", default_value = "trt")]
    pub(crate) convert_to: String,
}

/// Looks into models, plans and arrays.
#[derive(Subcommand, Debug)]
pub(crate) enum PolygraphyInspect {
    /// Inputs, outputs and layers of a model or a plan
    #[command(after_help = "Example:
  planish polygraphy inspect model model.onnx --show layers")]
    Model {
        /// An .onnx or a .plan file
        model: PathBuf,
        /// What is shown beside inputs and outputs: layers; attrs and weights show the graph as text
        #[arg(long, value_name = "WHAT", num_args = 0..)]
        show: Vec<String>,
        /// The same in older words: none, basic, attrs or full
        #[arg(long, value_name = "MODE")]
        mode: Option<String>,
        /// What the file is; told from the file
        #[arg(long, value_name = "TYPE")]
        model_type: Option<String>,
        /// Show the model as the build sees it; taken, as that is what is shown
        #[arg(long, alias = "convert-to", value_name = "KIND")]
        display_as: Option<String>,
    },
    /// Arrays of an .npz file
    Data {
        /// The file
        file: PathBuf,
        /// Print the elements, too
        #[arg(short = 's', long)]
        show_values: bool,
        /// Taken: least, largest and mean are printed in any case
        #[arg(long)]
        histogram: bool,
        /// Taken: the same
        #[arg(short = 'a', long)]
        all: bool,
    },
    /// Whether all of a model can be built, and what not
    Capability {
        /// An .onnx file
        model: PathBuf,
    },
}

/// Changes models.
#[derive(Subcommand, Debug)]
pub(crate) enum PolygraphySurgeon {
    /// The part of a model between values
    #[command(after_help = "Example:
  planish polygraphy surgeon extract model.onnx --inputs h:[1,512]:float32 --outputs y:auto -o part.onnx")]
    Extract {
        /// An .onnx file
        model: PathBuf,
        /// Values that become inputs: NAME:SHAPE:TYPE, `auto` for what the model says
        #[arg(long, value_name = "NAME:SHAPE:TYPE", num_args = 1..)]
        inputs: Vec<String>,
        /// Values that become outputs: NAME:TYPE
        #[arg(long, value_name = "NAME:TYPE", num_args = 1..)]
        outputs: Vec<String>,
        /// The part
        #[arg(short, long, value_name = "OUT.onnx")]
        output: PathBuf,
    },
    /// Repair and simplify a model
    Sanitize {
        /// An .onnx file
        model: PathBuf,
        /// Fold constants
        #[arg(long)]
        fold_constants: bool,
        /// Taken: what nobody reads goes in any case
        #[arg(long)]
        cleanup: bool,
        /// Taken: nodes are sorted in any case
        #[arg(long)]
        toposort: bool,
        /// Other shapes of inputs
        #[arg(long, value_name = "NAME:SHAPE", num_args = 1..)]
        override_input_shapes: Vec<String>,
        /// The model
        #[arg(short, long, value_name = "OUT.onnx")]
        output: PathBuf,
    },
    /// Put a node between values
    Insert {
        /// An .onnx file
        model: PathBuf,
        /// The operator
        #[arg(long, value_name = "NAME")]
        op: String,
        /// The node's name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Values that it reads
        #[arg(long, value_name = "NAME", num_args = 1.., required = true)]
        inputs: Vec<String>,
        /// Values that it makes
        #[arg(long, value_name = "NAME", num_args = 1.., required = true)]
        outputs: Vec<String>,
        /// Attributes, as in axis=1
        #[arg(long, value_name = "NAME=VALUE", num_args = 1..)]
        attrs: Vec<String>,
        /// The model
        #[arg(short, long, value_name = "OUT.onnx")]
        output: PathBuf,
    },
    /// Prune weights to 2:4 sparsity
    Prune {
        /// An .onnx file
        model: PathBuf,
        /// The model
        #[arg(short, long, value_name = "OUT.onnx")]
        output: PathBuf,
    },
}

/// Checks models.
#[derive(Subcommand, Debug)]
pub(crate) enum PolygraphyCheck {
    /// Look a model over
    Lint {
        /// An .onnx file
        model: PathBuf,
    },
}

/// Finds what is wrong.
#[derive(Subcommand, Debug)]
pub(crate) enum PolygraphyDebug {
    /// Find the smallest part of a model on which a command still fails
    #[command(after_help = "Example:
  planish polygraphy debug reduce model.onnx -o part.onnx --check planish polygraphy run polygraphy_debug.onnx --trt --onnxrt")]
    Reduce {
        /// An .onnx file
        model: PathBuf,
        /// The part
        #[arg(short, long, value_name = "OUT.onnx")]
        output: PathBuf,
        /// Shapes of inputs
        #[arg(long, value_name = "NAME:SHAPE", num_args = 1..)]
        model_input_shapes: Vec<String>,
        /// How parts are chosen; taken: by halves, then node by node
        #[arg(long, value_name = "MODE")]
        mode: Option<String>,
        /// Show what the command writes
        #[arg(long)]
        show_output: bool,
        /// The command, all that follows: polygraphy_debug.onnx stands for the part
        #[arg(long, value_name = "CMD", num_args = 1.., allow_hyphen_values = true, required = true)]
        check: Vec<String>,
    },
}
