//! The words of `planish simplify`, `planish extract` and `planish surgeon`: commands that write ONNX.

use std::path::PathBuf;

use clap::Subcommand;

use super::Json;

#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  planish simplify model.onnx -o simple.onnx
  planish simplify model.onnx -o at224.onnx --shapes x:1x3x224x224 --check 3
  planish simplify model.onnx -o simple.onnx --opset 24      # may use Attention and Swish")]
pub(crate) struct Simplify {
    /// The model, an .onnx file
    pub(crate) model: PathBuf,
    /// The simplified model
    #[arg(short, long, value_name = "OUT.onnx")]
    pub(crate) output: PathBuf,
    /// Fixed input shapes, as in x:1x3x224x224; shapes in between become numbers
    #[arg(long, value_name = "NAME:SIZES,…", value_delimiter = ',')]
    pub(crate) shapes: Vec<String>,
    /// The newest opset whose operators may be used; the model's own newer ones stay
    #[arg(long, value_name = "N", default_value_t = 21, value_parser = clap::value_parser!(i64).range(21..=26))]
    pub(crate) opset: i64,
    /// Compare with the model over the reference on this many random inputs: exit code 1 if they differ
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) check: u64,
    /// Skip a pass of the optimizer; may be repeated
    #[arg(long = "disable-pass", value_name = "PASS")]
    pub(crate) disabled_passes: Vec<String>,
    /// Print what the optimizer did, and why rules did not apply
    #[arg(long)]
    pub(crate) explain: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  planish extract model.onnx --outputs /backbone/out -o backbone.onnx
  planish extract model.onnx --inputs /backbone/out:1x512x7x7 --outputs logits -o head.onnx")]
pub(crate) struct Extract {
    /// The model, an .onnx file
    pub(crate) model: PathBuf,
    /// Values that become inputs, as NAME, NAME:SIZES or NAME:SIZES:TYPE; those of the model if not given
    #[arg(long, value_name = "NAME[:SIZES[:TYPE]]", num_args = 1..)]
    pub(crate) inputs: Vec<String>,
    /// Values that become outputs; those of the model if not given
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub(crate) outputs: Vec<String>,
    /// The part
    #[arg(short, long, value_name = "OUT.onnx")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) json: Json,
}

/// Changes a model's file, node by node.
#[derive(Subcommand, Debug)]
pub(crate) enum Surgeon {
    /// Put a node between values
    Insert(Insert),
    /// Take nodes out; their readers read what they read
    Remove(Remove),
    /// Drop outputs, with all that only they need
    Prune(Prune),
    /// Give values and nodes other names
    Rename(Rename),
    /// Give inputs other shapes
    Reshape(Reshape),
    /// Repair all that `planish check` can; with --fold-constants simplify, too
    Sanitize(Sanitize),
    /// Prune weights to 2:4 sparsity: of each four along the sum of a MatMul, Gemm or Conv the two largest stay
    Sparsify(Sparsify),
    /// The same as `planish extract`
    Extract(Extract),
}

#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  planish surgeon insert model.onnx --op Clip --inputs logits min max --outputs probabilities -o clipped.onnx
  planish surgeon insert model.onnx --op Softmax --inputs logits --outputs p --attrs axis=-1 --mark -o soft.onnx")]
pub(crate) struct Insert {
    /// The model, an .onnx file
    pub(crate) model: PathBuf,
    /// The operator, as ONNX spells it
    #[arg(long, value_name = "NAME")]
    pub(crate) op: String,
    /// Its domain
    #[arg(long, value_name = "DOMAIN", default_value = "")]
    pub(crate) domain: String,
    /// The node's name
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) name: String,
    /// Values that it reads
    #[arg(long, value_name = "NAME", num_args = 1.., required = true)]
    pub(crate) inputs: Vec<String>,
    /// Values that it makes: what made them before is replaced
    #[arg(long, value_name = "NAME", num_args = 1.., required = true)]
    pub(crate) outputs: Vec<String>,
    /// Attributes, as in axis=1, alpha=0.5, mode=linear, pads=[0,0,1,1]
    #[arg(long, value_name = "NAME=VALUE", num_args = 1..)]
    pub(crate) attrs: Vec<String>,
    /// Make what the node makes outputs of the model, in place of what it reads where that is one
    #[arg(long)]
    pub(crate) mark: bool,
    #[command(flatten)]
    pub(crate) written: Written,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Remove {
    /// The model, an .onnx file
    pub(crate) model: PathBuf,
    /// Names of nodes, or op:OPERATOR for all of one kind (* matches any characters, ? one), as in op:Dropout
    #[arg(long, value_name = "GLOB|op:GLOB", num_args = 1.., required = true)]
    pub(crate) nodes: Vec<String>,
    #[command(flatten)]
    pub(crate) written: Written,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Prune {
    /// The model, an .onnx file
    pub(crate) model: PathBuf,
    /// Outputs to drop (* matches any characters, ? one)
    #[arg(long, value_name = "GLOB", num_args = 1.., required = true)]
    pub(crate) outputs: Vec<String>,
    #[command(flatten)]
    pub(crate) written: Written,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Rename {
    /// The model, an .onnx file
    pub(crate) model: PathBuf,
    /// Values: inputs, outputs, weights and all between
    #[arg(long, value_name = "OLD=NEW", num_args = 1.., required_unless_present = "nodes")]
    pub(crate) values: Vec<String>,
    /// Nodes
    #[arg(long, value_name = "OLD=NEW", num_args = 1..)]
    pub(crate) nodes: Vec<String>,
    #[command(flatten)]
    pub(crate) written: Written,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Reshape {
    /// The model, an .onnx file
    pub(crate) model: PathBuf,
    /// Inputs with their dimensions, numbers or names, as in x:batch,3,224,224
    #[arg(long, value_name = "NAME:DIMENSIONS", num_args = 1.., required = true)]
    pub(crate) inputs: Vec<String>,
    #[command(flatten)]
    pub(crate) written: Written,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Sanitize {
    /// The model, an .onnx file
    pub(crate) model: PathBuf,
    /// Simplify as well: fold constants, remove what does nothing
    #[arg(long)]
    pub(crate) fold_constants: bool,
    #[command(flatten)]
    pub(crate) written: Written,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Sparsify {
    /// The model, an .onnx file
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) written: Written,
}

/// Where a changed model goes.
#[derive(clap::Args, Debug)]
pub(crate) struct Written {
    /// The changed model
    #[arg(short, long, value_name = "OUT.onnx")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) json: Json,
}

impl Surgeon {
    /// The model that it reads, and where its report goes.
    pub(crate) fn parts(&self) -> (&PathBuf, &Json) {
        match self {
            Surgeon::Insert(args) => (&args.model, &args.written.json),
            Surgeon::Remove(args) => (&args.model, &args.written.json),
            Surgeon::Prune(args) => (&args.model, &args.written.json),
            Surgeon::Rename(args) => (&args.model, &args.written.json),
            Surgeon::Reshape(args) => (&args.model, &args.written.json),
            Surgeon::Sanitize(args) => (&args.model, &args.written.json),
            Surgeon::Sparsify(args) => (&args.model, &args.written.json),
            Surgeon::Extract(args) => (&args.model, &args.json),
        }
    }
}
