//! Words of `planish build` as scripts that export to TensorRT spell them.

use std::path::PathBuf;

const HEADING: &str = "As exporters to TensorRT spell it";

#[derive(clap::Args, Debug, Default)]
pub(crate) struct Exporter {
    /// The shape of the first input, as in 1 3 224 224
    #[arg(long, value_name = "N", num_args = 1.., help_heading = HEADING, conflicts_with = "shapes")]
    pub(crate) input_shape: Vec<usize>,
    /// Let the batch, the first axis of every input, vary between --min-batch and --max-batch
    #[arg(long, help_heading = HEADING)]
    pub(crate) dynamic_shapes: bool,
    /// The smallest batch (1 if not given)
    #[arg(long, value_name = "N", help_heading = HEADING, requires = "dynamic_shapes")]
    pub(crate) min_batch: Option<usize>,
    /// The batch to tune for (that of --input-shape, or the smallest)
    #[arg(long, value_name = "N", help_heading = HEADING, requires = "dynamic_shapes")]
    pub(crate) opt_batch: Option<usize>,
    /// The largest batch (that to tune for)
    #[arg(long, value_name = "N", help_heading = HEADING, requires = "dynamic_shapes")]
    pub(crate) max_batch: Option<usize>,
    /// The most workspace, as --workspace; a number alone is GiB below 1024, MiB below a million, else bytes
    #[arg(long, value_name = "SIZE", help_heading = HEADING, conflicts_with = "workspace")]
    pub(crate) workspace_size: Option<String>,
    /// The same as --calib
    #[arg(long, value_name = "PATH", help_heading = HEADING, conflicts_with = "calib")]
    pub(crate) calibration_data: Option<PathBuf>,
    /// The same as --calib-samples
    #[arg(long, value_name = "N", help_heading = HEADING)]
    pub(crate) num_calibration_samples: Option<usize>,
    /// Time the plan, as `planish bench` does
    #[arg(long, help_heading = HEADING)]
    pub(crate) benchmark: bool,
    /// Time at least this many runs
    #[arg(long, value_name = "N", help_heading = HEADING, requires = "benchmark")]
    pub(crate) benchmark_iterations: Option<usize>,
}
