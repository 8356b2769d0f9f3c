//! What tests and benchmarks of all crates share. Development only: never a dependency of a library.
//!
//! - [`Random`]: the one generator of random numbers;
//! - [`evaluate`]: a region's outputs by the reference, reals in the type that the test asks for;
//! - [`operand`]: values in strided memory with gaps, between fences;
//! - [`Tolerance`]: how far results may be off, with the reason for each number;
//! - [`Sample`]: problems written down briefly; [`problems`]: many of them, by kind;
//! - [`models`]: small models as text, one for each family of kernels;
//! - [`Altered`]: a backend that is another one but for what a test changes;
//! - [`conformance`]: one suite of problems that every backend runs.

mod altered;
mod compare;
pub mod conformance;
pub mod models;
pub mod operand;
pub mod problems;
mod random;
mod region;
mod sample;

pub use altered::{Altered, Change};
pub use compare::{Tolerance, assert_close, error_within, within};
pub use operand::{Fenced, Placed, Placement};
pub use random::Random;
pub use region::{Reals, evaluate, evaluate_op};
pub use sample::{Sample, constant, input, node, region};
