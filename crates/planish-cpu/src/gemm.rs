//! Matrix products: the register tile, the table of its instances, packing, and the blocked driver.
//!
//! Read [`tile`] first, then [`table`]; [`GemmPlan`] decides how a product is cut and computed, and runs it.

pub(crate) mod bf16;
mod blocks;
pub mod codes;
mod dots;
mod drive;
pub(crate) mod family;
pub(crate) mod pack;
mod plan;
pub mod table;
pub mod tile;

#[cfg(test)]
mod drive_tests;
#[cfg(test)]
mod family_tests;
#[cfg(test)]
mod tile_tests;

pub use blocks::{Blocks, BlocksCall};
pub use drive::{Block, BlockHook, GemmCall};
pub use pack::{PackedB, Strides};
pub use plan::{BatchDim, GemmPlan, GemmProblem, MAX_BATCH_DIMS, MatrixA, MatrixB};
pub use table::Tile;
pub use tile::{Ahead, EpilogueCall, TileCall};
