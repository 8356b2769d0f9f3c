//! What is at both ends of Winograd's transforms: pixels of some type, and what follows the sum.

use std::fmt;
use std::ops::Range;

use super::{Block, Winograd};
use crate::conv::RunCall;

/// Pixels at both ends of the transforms, by their type.
pub trait Border: fmt::Debug + Sized {
    /// What a run hands over.
    type Call<'a>: RunCall;

    /// Whether weights may be transformed as they are used.
    const TAKES_LIVE: bool;

    fn weights(call: &Self::Call<'_>) -> *const f32;

    /// Transforms some of a block's input tiles; `to` is its first tile at the first point.
    ///
    /// # Safety
    /// The call's input must be readable for what the geometry says, `to` writable for the block's points.
    unsafe fn transform_inputs(
        plan: &Winograd<Self>,
        call: &Self::Call<'_>,
        block: &Block,
        tiles: Range<usize>,
        to: *mut f32,
    );

    /// Transforms products back to pixels, with what follows the sum.
    ///
    /// # Safety
    /// The call's addresses must be good for these tiles and channels, the products readable.
    unsafe fn transform_outputs(
        plan: &Winograd<Self>,
        call: &Self::Call<'_>,
        block: &Block,
        products: Products,
    );
}

/// Products at all points, of some of a block's output tiles with some output channels.
#[derive(Clone, Debug)]
pub struct Products {
    pub(in crate::conv) tiles: Range<usize>,
    pub(in crate::conv) channels: Range<usize>,
    /// Those of the first tile with the first channel at the first point.
    pub(in crate::conv) from: *const f32,
    pub(in crate::conv) tile_stride: usize,
    pub(in crate::conv) point_stride: usize,
}

/// A tile of pixels; places are in elements of the operand.
#[derive(Debug)]
pub(in crate::conv) struct InputTile {
    /// The tile's first pixel; outside the image where there is padding.
    pub(in crate::conv) at: isize,
    /// The rows and columns of the tile that are inside the image.
    pub(in crate::conv) rows: Range<usize>,
    pub(in crate::conv) cols: Range<usize>,
}

/// Where a tile's pixels go.
#[derive(Debug)]
pub(in crate::conv) struct OutputTile {
    pub(in crate::conv) output: usize,
    /// Where something is added.
    pub(in crate::conv) residual: Option<usize>,
    /// How much of the tile is inside the image.
    pub(in crate::conv) rows: usize,
    pub(in crate::conv) cols: usize,
}
