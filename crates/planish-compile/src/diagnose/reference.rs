//! The float model that a plan is held against: that of the file which it was built from, or what the plan's own graph
//! says where it is of floats.

use std::sync::Arc;

use planish_ir::Graph;
use planish_kernel::Backend;

use crate::build::optimized;
use crate::error::{BuildError, BuildErrorKind, of_passes};
use crate::options::{BuildOptions, Precision};
use crate::recover::Recovered;

/// The optimized model in f32, with the names that the plan's graph has. Without the `model` that the plan was built from
/// its weights are those of the plan, and a plan of integers has no float model at all.
pub fn float_reference(
    plan: &Recovered,
    model: Option<&Graph>,
    backends: &[Arc<dyn Backend>],
) -> Result<Graph, BuildError> {
    let options = BuildOptions {
        precision: Precision::Fp32,
        fp32_layers: Vec::new(),
        int8_layers: Vec::new(),
        ..plan.options.clone()
    };
    if let Some(model) = model {
        return optimized(model, backends, &options);
    }
    match plan.options.precision {
        Precision::Fp32 | Precision::Tf32 => Ok(plan.graph.clone()),
        Precision::Fp16 | Precision::Bf16 => {
            let pass_options = planish_passes::Options {
                cancel: options.cancel.clone(),
                ..planish_passes::Options::default()
            };
            let raised = planish_passes::raise_precision().run(plan.graph.clone(), &pass_options);
            raised.map(|(graph, _)| graph).map_err(|error| of_passes(&error))
        }
        Precision::Int8 | Precision::Fp8 => {
            let message = "the plan's layers are of 8 bits, and what they were before is in the model: give the .onnx \
                           file that it was built from with --against";
            Err(BuildError::new(BuildErrorKind::Refused, message))
        }
    }
}
