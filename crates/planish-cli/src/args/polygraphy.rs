//! The words of `planish polygraphy` and its `run`, which are Polygraphy's.

use std::path::PathBuf;

use clap::Subcommand;

use super::{PolygraphyCheck, PolygraphyConvert, PolygraphyDebug, PolygraphyInspect, PolygraphySurgeon};

#[derive(Subcommand, Debug)]
pub(crate) enum Polygraphy {
    /// Run a model on several backends and compare their outputs
    Run(PolygraphyRun),
    /// Build a plan
    Convert(PolygraphyConvert),
    /// Look into models, plans and arrays
    #[command(subcommand)]
    Inspect(PolygraphyInspect),
    /// Change models
    #[command(subcommand)]
    Surgeon(PolygraphySurgeon),
    /// Check models
    #[command(subcommand)]
    Check(PolygraphyCheck),
    /// Find what is wrong
    #[command(subcommand)]
    Debug(PolygraphyDebug),
}

const RUNNERS: &str = "Runners";
const DATA: &str = "Data";
const COMPARISON: &str = "Comparison";
const BUILDING: &str = "Building";
const IGNORED: &str = "Accepted, and without effect here";

#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  planish polygraphy run model.onnx --trt --onnxrt --atol 1e-4 --rtol 1e-4
  planish polygraphy run model.onnx --trt --fp16 --onnxrt --input-shapes x:[1,3,224,224] --val-range [0,1] --validate
  planish polygraphy run model.onnx --trt --save-tactics good.tactics --save-engine model.plan
  planish polygraphy run model.plan --trt --load-inputs in.npz --load-outputs golden.npz
--trt is Planish: a plan for the GPU if there is one, else for the CPU. --onnxrt is ONNX Runtime in a python3 that has it.")]
pub(crate) struct PolygraphyRun {
    /// The model, an .onnx or a .plan file
    pub(crate) model: PathBuf,
    /// Run a plan of Planish
    #[arg(long, help_heading = RUNNERS)]
    pub(crate) trt: bool,
    /// Run ONNX Runtime
    #[arg(long, help_heading = RUNNERS)]
    pub(crate) onnxrt: bool,
    /// Run the exact reference of Planish
    #[arg(long, help_heading = RUNNERS)]
    pub(crate) reference: bool,
    /// The Python that has the package onnxruntime
    #[arg(long, value_name = "PROGRAM", default_value = "python3", help_heading = RUNNERS)]
    pub(crate) python: PathBuf,
    /// What the file is: onnx or engine; told from the file if not given
    #[arg(long, value_name = "TYPE", help_heading = RUNNERS)]
    pub(crate) model_type: Option<String>,
    /// The device of --trt: cpu, cuda, cuda:1, or auto
    #[arg(long, value_name = "cpu|cuda[:N]|auto", default_value = "auto", help_heading = RUNNERS)]
    pub(crate) device: planish::Device,
    /// Values between nodes that become outputs, as names or patterns; `mark all` takes all
    #[arg(long, alias = "trt-outputs", value_name = "NAME", num_args = 1.., help_heading = RUNNERS)]
    pub(crate) onnx_outputs: Vec<String>,

    /// Shapes of inputs, as in x:[1,3,224,224] or x:1x3x224x224
    #[arg(long, alias = "inputs", value_name = "NAME:SHAPE", num_args = 1.., help_heading = DATA)]
    pub(crate) input_shapes: Vec<String>,
    /// The seed of random inputs
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = DATA)]
    pub(crate) seed: u64,
    /// The range of random inputs, as in [0,1], or of one as in x:[0,255]
    #[arg(long, value_name = "[LOW,HIGH]", num_args = 1.., help_heading = DATA)]
    pub(crate) val_range: Vec<String>,
    /// The smallest random float
    #[arg(long, value_name = "X", allow_hyphen_values = true, help_heading = DATA)]
    pub(crate) float_min: Option<f64>,
    /// The largest random float
    #[arg(long, value_name = "X", allow_hyphen_values = true, help_heading = DATA)]
    pub(crate) float_max: Option<f64>,
    /// The smallest random integer
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = DATA)]
    pub(crate) int_min: Option<i64>,
    /// The largest random integer
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = DATA)]
    pub(crate) int_max: Option<i64>,
    /// How many different inputs
    #[arg(long, alias = "iters", value_name = "N", default_value_t = 1, help_heading = DATA)]
    pub(crate) iterations: usize,
    /// Take inputs from these files: .npz, an array per input, an iteration each
    #[arg(long, alias = "load-input-data", value_name = "FILE.npz", num_args = 1.., help_heading = DATA)]
    pub(crate) load_inputs: Vec<PathBuf>,
    /// Write the inputs: .npz, with _1, _2 … in the names of further iterations
    #[arg(long, alias = "save-input-data", value_name = "FILE.npz", help_heading = DATA)]
    pub(crate) save_inputs: Option<PathBuf>,
    /// Compare with outputs of earlier: .npz, an iteration each
    #[arg(long, alias = "load-results", value_name = "FILE.npz", num_args = 1.., help_heading = DATA)]
    pub(crate) load_outputs: Vec<PathBuf>,
    /// Write the outputs of the first runner: .npz, with _1, _2 … in the names of further iterations
    #[arg(long, alias = "save-results", value_name = "FILE.npz", help_heading = DATA)]
    pub(crate) save_outputs: Option<PathBuf>,

    /// Absolute tolerance, as 1e-4, or of one output as in y:1e-4
    #[arg(long, alias = "abs-tol", value_name = "X", num_args = 1.., help_heading = COMPARISON)]
    pub(crate) atol: Vec<String>,
    /// Relative tolerance, likewise
    #[arg(long, alias = "rel-tol", value_name = "X", num_args = 1.., help_heading = COMPARISON)]
    pub(crate) rtol: Vec<String>,
    /// What must be within the tolerances: elemwise, max, mean, median or quantile
    #[arg(long, value_name = "STATISTIC", default_value = "elemwise", help_heading = COMPARISON)]
    pub(crate) check_error_stat: String,
    /// The quantile of --check-error-stat quantile
    #[arg(long, alias = "quantile", value_name = "0..1", default_value_t = 0.99, help_heading = COMPARISON)]
    pub(crate) error_quantile: f64,
    /// Fail if outputs have NaN or infinities
    #[arg(long, help_heading = COMPARISON)]
    pub(crate) validate: bool,
    /// Infinities of the same sign count as equal
    #[arg(long, help_heading = COMPARISON)]
    pub(crate) infinities_compare_equal: bool,
    /// Stop at the first output that differs
    #[arg(long, help_heading = COMPARISON)]
    pub(crate) fail_fast: bool,
    /// Compare outputs of other shapes, element by element
    #[arg(long, help_heading = COMPARISON)]
    pub(crate) no_shape_check: bool,

    /// Build in fp16
    #[arg(long, help_heading = BUILDING)]
    pub(crate) fp16: bool,
    /// Build in bf16
    #[arg(long, help_heading = BUILDING)]
    pub(crate) bf16: bool,
    /// Build in int8, with --calibration-cache
    #[arg(long, help_heading = BUILDING)]
    pub(crate) int8: bool,
    /// Build in fp8, with --calibration-cache
    #[arg(long, help_heading = BUILDING)]
    pub(crate) fp8: bool,
    /// Build in tf32
    #[arg(long, help_heading = BUILDING)]
    pub(crate) tf32: bool,
    /// Keep the types that the model says
    #[arg(long, help_heading = BUILDING)]
    pub(crate) strongly_typed: bool,
    /// Layers that stay in fp32, as in NAME:float32
    #[arg(long, value_name = "NAME:TYPE", num_args = 1.., help_heading = BUILDING)]
    pub(crate) layer_precisions: Vec<String>,
    /// A calibration, of TensorRT or ours, or samples
    #[arg(long, value_name = "FILE", help_heading = BUILDING)]
    pub(crate) calibration_cache: Option<PathBuf>,
    /// The smallest shapes of the profile
    #[arg(long, value_name = "NAME:SHAPE", num_args = 1.., help_heading = BUILDING)]
    pub(crate) trt_min_shapes: Vec<String>,
    /// The shapes to tune for
    #[arg(long, value_name = "NAME:SHAPE", num_args = 1.., help_heading = BUILDING)]
    pub(crate) trt_opt_shapes: Vec<String>,
    /// The largest shapes of the profile
    #[arg(long, value_name = "NAME:SHAPE", num_args = 1.., help_heading = BUILDING)]
    pub(crate) trt_max_shapes: Vec<String>,
    /// Write the plan
    #[arg(long, value_name = "FILE.plan", help_heading = BUILDING)]
    pub(crate) save_engine: Option<PathBuf>,
    /// Write the tactic of every step
    #[arg(long, alias = "save-tactic-replay", value_name = "FILE", help_heading = BUILDING)]
    pub(crate) save_tactics: Option<PathBuf>,
    /// Take the tactics that this file names
    #[arg(long, alias = "load-tactic-replay", value_name = "FILE", help_heading = BUILDING)]
    pub(crate) load_tactics: Option<PathBuf>,
    /// Take the tactics of this file if it is there, else write them
    #[arg(long, value_name = "FILE", help_heading = BUILDING, conflicts_with_all = ["save_tactics", "load_tactics"])]
    pub(crate) tactic_replay: Option<PathBuf>,
    /// Measured times, read and extended
    #[arg(long, alias = "save-timing-cache", alias = "timing-cache", value_name = "FILE", help_heading = BUILDING)]
    pub(crate) load_timing_cache: Option<PathBuf>,
    /// Fail if a time is not in it
    #[arg(long, help_heading = BUILDING, requires = "load_timing_cache")]
    pub(crate) error_on_timing_cache_miss: bool,
    /// Sources of tactics: cudnn, cublas_lt
    #[arg(long, value_name = "NAME", num_args = 0.., help_heading = BUILDING)]
    pub(crate) tactic_sources: Option<Vec<String>>,
    /// Tuning effort
    #[arg(long, value_name = "0..5", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=5), help_heading = BUILDING)]
    pub(crate) builder_optimization_level: u32,
    /// The most memory, as in workspace:4G
    #[arg(long, alias = "memory-pool-limit", value_name = "POOL:SIZE", num_args = 1.., help_heading = BUILDING)]
    pub(crate) pool_limit: Vec<String>,
    /// The most workspace, in bytes or as 4G
    #[arg(long, value_name = "SIZE", value_parser = crate::load::bytes, help_heading = BUILDING)]
    pub(crate) workspace: Option<usize>,

    /// Runs before the one that counts
    #[arg(long, value_name = "N", help_heading = IGNORED)]
    pub(crate) warm_up: Option<usize>,
    /// Every runner in a process of its own
    #[arg(long, help_heading = IGNORED)]
    pub(crate) use_subprocess: bool,
    /// How strictly precisions are kept
    #[arg(long, value_name = "MODE", help_heading = IGNORED)]
    pub(crate) precision_constraints: Option<String>,
    /// Execution providers of ONNX Runtime
    #[arg(long, alias = "execution-providers", value_name = "NAME", num_args = 1.., help_heading = IGNORED)]
    pub(crate) providers: Vec<String>,
    /// Kernels for weights that are 2:4 sparse
    #[arg(long, help_heading = IGNORED)]
    pub(crate) sparse_weights: bool,
    /// Plugin libraries of TensorRT
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = IGNORED)]
    pub(crate) plugins: Vec<PathBuf>,
    /// Weights that can be replaced
    #[arg(long, help_heading = IGNORED)]
    pub(crate) refittable: bool,
    /// Plans for other versions
    #[arg(long, help_heading = IGNORED)]
    pub(crate) version_compatible: bool,
    /// How much the plan says of its layers
    #[arg(long, value_name = "LEVEL", help_heading = IGNORED)]
    pub(crate) profiling_verbosity: Option<String>,
    /// Less output
    #[arg(short, long, alias = "silent", help_heading = IGNORED)]
    pub(crate) quiet: bool,
}
