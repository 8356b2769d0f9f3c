//! Passes: rewrites of a graph into a simpler one with the same meaning.
//!
//! A rule proposes ([`Rule`], [`Match`], [`Patch`]), the driver edits, and a refusal has a reason. The order of
//! the passes stands in `pipelines.rs` and nowhere else; each pass has its own file under `passes/`.
//!
//! ```
//! let graph = planish_ir::parse(
//!     "graph \"g\" { input %x: f32[2] %a: f32[2] = Identity(%x) %y: f32[2] = Relu(%a) output %y }",
//!     &[],
//! )?;
//! let (graph, report) = planish_passes::standard().run(graph, &planish_passes::Options::default())?;
//! assert_eq!(graph.nodes().len(), 1);
//! assert_eq!(report.hits("remove_identity"), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
mod agreement;
mod driver;
mod error;
mod formula;
mod integer_share;
mod integer_weights;
mod layer;
mod names;
mod normal;
mod passes;
mod pattern;
mod pipelines;
mod quantization;
mod rebuild;
mod report;
mod reshape;
mod rounding;
mod rule;
#[cfg(test)]
mod testing;
mod transpose;
mod view;

pub use driver::{Options, Pass, Pipeline};
pub use error::{PassError, PassErrorKind};
pub use integer_share::IntegerShare;
pub use integer_weights::WeightRange;
pub use names::matches as name_matches;
pub use passes::prune_weights::kept_norms;
pub use passes::quantize_dynamically::DynamicRange;
pub use passes::quantize_layers::{ActivationRange, IntegerKernels, Quantize, Transposed};
pub use passes::quantize_weights::{WeightStorage, weight_error};
pub use pipelines::{
    dequantize_weights, equalize, fold_loose_weights, fold_sizes, integers, lower_precision, match_plugin,
    move_integers, plain_zeros, portable_integers, prune_weights, quantize, quantize_dynamically,
    quantize_recurrent, quantize_weights, raise_precision, round_weights, standard,
};
pub use planish_quantize::{Channels, SecondMoments};
pub use report::{PassReport, Refusal, Report};
pub use rule::{Match, NewValue, Operand, Patch, Proposals, Rule, Sweep};
pub use view::View;
