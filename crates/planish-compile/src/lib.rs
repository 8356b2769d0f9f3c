//! From a graph to a plan.
//!
//! ```text
//! Graph ─passes─▶ Graph ─lower─▶ Draft (steps over regions) ─alternatives─▶ ─measure─▶ ─select─▶ ─schedule─▶ Plan
//! ```
//!
//! - `backends`: the host's, and devices with memory of their own;
//! - `default_sizes`: the sizes that a model is tuned at where nobody gives any; `sizes`: what symbols then are;
//! - `precision`: the graph in the number types that were asked for;
//! - `lower`: a graph to steps, each a region of nodes that one kernel may cover;
//! - `alternatives`: the ways to do each step: a backend's candidates, or nothing at all where a value is only
//!   seen differently;
//! - `measure`: what each way costs, `trial`: one of them run and timed;
//! - `policy`: how much is searched and measured at which tune level;
//! - `select`: the cheapest choice with layout changes priced;
//! - `variants`: other tactics at other sizes;
//! - `schedule`: reorders and transfers put in, storage decided, weights packed;
//! - `parts`: concatenations written in place, slices read in place;
//! - `code`: what the plan's tactics need beside the plan, and the compiled code that it carries;
//! - `build`: the driver;
//! - `recover`: the way back from a plan to a graph that can be built;
//! - `timing_cache` and `tactic_lock`: what builds remember in files.

mod backends;
mod budget;
mod build;
mod check;
mod choose;
mod code;
mod default_sizes;
mod error;
mod lower;
mod options;
mod precision;
mod price;
mod recover;
mod schedule;
mod sizes;
mod stages;
mod text_file;

pub use build::{Built, build};
pub use choose::tactic_lock::TacticLock;
pub use default_sizes::default_sizes;
pub use error::{BuildError, BuildErrorKind};
pub use options::{BuildOptions, Precision, Progress, TacticSelector};
pub use planish_passes::Report as PassesReport;
pub use price::cache::{TimingCache, TimingDiff, TimingEntry, TimingKey};
pub use recover::{Recovered, Unpack, recover};
pub use stages::Stages;
