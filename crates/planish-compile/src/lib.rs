//! From a graph to a plan.
//!
//! ```text
//! Graph ─passes─▶ Graph ─lower─▶ Lowered ─price─▶ Priced ─choose─▶ Chosen ─schedule─▶ Scheduled ─▶ Plan
//! ```
//!
//! Each stage is a folder and a type that prints itself; [`build_until`] stops at one of them.
//!
//! - `backends`: the host's, and devices with memory of their own;
//! - `default_sizes`: the sizes that a model is run and tuned at where nobody gives any; `sizes`: what symbols then are;
//! - `precision`: the graph in the number types that were asked for; `integers`: layers of 8-bit integers;
//! - `lower`: a graph to steps that may be taken, each a region of nodes that one kernel may cover, with the ways to do
//!   it: a backend's candidates, or nothing at all where a value is only seen differently;
//! - `price`: what each way costs, by the cost model, from the timing cache or measured, and the tuner's policy;
//! - `choose`: regions against their parts, the cheapest tactics with layout changes priced, others at other sizes, and
//!   the tactic lock;
//! - `schedule`: reorders and transfers put in, storage decided, parts of values written and read in place, weights
//!   packed;
//! - `code`: what the plan's tactics need beside the plan, and the compiled code that it carries;
//! - `check`: the self-check; `plugins`: plugins against their own references;
//! - `build`: the driver, `stopped`: builds that stop at a stage;
//! - `recover`: the way back from a plan to a graph that can be built;
//! - `simplify`: the passes alone, for a model that stays one;
//! - `sparsity`: 2:4 weights, pruned, found and counted;
//! - `diagnose`: where a plan departs from the model in floats, and what keeps it from that.

mod backends;
mod budget;
mod build;
mod canonical;
mod check;
mod choose;
mod code;
mod default_sizes;
mod diagnose;
mod error;
mod integers;
mod lower;
mod options;
mod plugins;
mod precision;
mod price;
mod recover;
mod refit;
mod schedule;
mod simplify;
mod sizes;
mod sparsity;
mod stages;
mod stopped;
mod text_file;

pub use build::{Built, build, build_until, optimized};
pub use canonical::canonical;
pub use choose::Chosen;
pub use choose::tactic_lock::TacticLock;
pub use default_sizes::{default_sizes, tuned_sizes};
pub use diagnose::{
    Cause, Departure, Diagnose, Diagnosis, StepError, diagnose, float_reference, is_layer, layer_of,
    low_layers,
};
pub use error::{BuildError, BuildErrorKind};
pub use integers::{Quantized, quantized};
pub use lower::Lowered;
pub use options::{BuildOptions, Precision, Progress, TacticSelector};
pub use planish_passes::{
    ActivationRange, DynamicRange, IntegerShare, Report as PassesReport, WeightRange, WeightStorage,
    name_matches,
};
pub use plugins::{Pattern, PluginCheck, check_plugin, match_plugin};
pub use price::Priced;
pub use price::cache::{TimingCache, TimingDiff, TimingEntry, TimingKey};
pub use recover::{Recovered, Unpack, recover};
pub use refit::{Refitted, recheck, refit};
pub use schedule::Scheduled;
pub use simplify::{OLDEST_SIMPLE_OPSET, simplified};
pub use sparsity::{Pruned, Sparsity, pruned, sparse_layers};
pub use stages::Stages;
pub use stopped::{Stage, Stopped};
