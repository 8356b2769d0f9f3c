//! The plan: what is run, in which order, with which kernels and weights; and its file.
//!
//! - `record`: the structures of a plan. They are written for the file: every field has its encoding, and
//!   what is stored never changes its meaning;
//! - `codec`: each structure as bytes, and back from bytes that nobody trusts;
//! - `container`: sections, their places and checksums;
//! - `validate`: what must hold between the structures before anything is run;
//! - `narrow`: f32 weights stored in 16 bits;
//! - `packed`: the code of plans without weights;
//! - `stripped`: plans without the bytes of their weights;
//! - `bundle`: several plans of one model in one file;
//! - `file`: [`Plan::write_file`], [`Plan::open`] and their like;
//! - `signature`: keys, and detached signatures of plans;
//! - `recipe`: what of a plan every later version can read, to build it anew;
//! - `metadata`: what a file says of itself, without the rest of it;
//! - `describe`: a plan as text for people.

mod bundle;
mod codec;
mod container;
mod describe;
mod error;
mod file;
mod metadata;
mod narrow;
mod packed;
mod recipe;
mod record;
mod signature;
mod stripped;
#[cfg(test)]
mod tests;
mod validate;

pub use bundle::{Bundle, is_bundle};
pub use error::{PlanError, PlanErrorKind};
pub use file::is_plan;
#[doc(hidden)]
pub use file::{seal, seal_packed, unseal};
pub use metadata::PlanMetadata;
pub use recipe::Recipe;
pub use record::{
    Certificate, CertificateState, Check, Control, Evidence, Header, NOT_RUN, Outcome, Plan, Port, Profile,
    Program, REFITTED, Role, Step, StepKind, Storage, SymbolRange, Timing, Value, Variant, Weight,
};
pub use signature::{MAX_SIGNATURE_FILE, PrivateKey, PublicKey, Signature, SignatureError};
pub use stripped::Stripped;
pub use validate::MAX_PLAN_THREADS;
