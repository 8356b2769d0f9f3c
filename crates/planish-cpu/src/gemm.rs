//! Matrix products: the register tile, the table of its instances, packing, and the blocked driver.

pub mod table;
pub mod tile;

#[cfg(test)]
mod tile_tests;
