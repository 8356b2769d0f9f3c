//! The convolution itself, in any arithmetic and any number of axes: for tiles of output positions, the
//! patches under the windows are gathered as columns and multiplied by the matrix of weights.

use std::ops::Range;

use planish_op::window::{PlacedAxis, WindowAttributes};
use planish_tensor::Dim;

use crate::product::{Strips, multiply};
use crate::scalar::Scalar;
use crate::{EvalError, Evaluation, nd};

use super::{check_group, image_shape};

/// Output positions whose patches are gathered at once: 64 columns of 576 numbers (64 channels, 3x3) are
/// 288 KiB of f64, which second-level caches hold.
const MAX_TILE: usize = 64;
/// Small images are cut finer, so that there is work for several threads.
const MIN_TILE: usize = 16;

/// A patch element outside the image.
const PADDING: usize = usize::MAX;

/// A convolution with every size known.
#[derive(Clone, Debug)]
pub(crate) struct Convolution {
    pub(super) batch: usize,
    pub(super) channels: usize,
    pub(super) groups: usize,
    pub(super) out_channels: usize,
    /// One per spatial axis.
    pub(super) axes: Vec<PlacedAxis>,
}

impl Convolution {
    /// Checks that an input and a weight fit together and that the result can be allocated.
    pub(crate) fn new(
        cx: &Evaluation<'_>,
        x: &[usize],
        weight: &[usize],
        attributes: &WindowAttributes<'_>,
        group: i64,
    ) -> Result<Convolution, EvalError> {
        let groups = check_group(cx, "group", group)?;
        let (batch, channels, spatial) = image_shape(cx, x)?;
        let (out_channels, per_group, kernel) = image_shape(cx, weight)?;
        let fits = kernel.len() == spatial.len()
            && per_group.checked_mul(groups) == Some(channels)
            && out_channels.is_multiple_of(groups);
        if !fits {
            return Err(cx.bad_shape(format!(
                "a weight of shape {weight:?} in {groups} groups does not fit an input of shape {x:?}"
            )));
        }
        let kernel: Vec<Dim> = kernel.iter().copied().map(Dim::from).collect();
        let axes = attributes
            .kernel_of_weight(&kernel)
            .and_then(|kernel| attributes.axes(&kernel))
            .and_then(|axes| axes.iter().zip(spatial).map(|(axis, size)| axis.place(*size)).collect())
            .map_err(|error| cx.bad_window(error))?;
        let convolution = Convolution { batch, channels, groups, out_channels, axes };
        nd::result_len(cx, &convolution.shape())?;
        Ok(convolution)
    }

    /// The result's shape.
    pub(crate) fn shape(&self) -> Vec<usize> {
        [self.batch, self.out_channels].into_iter().chain(self.axes.iter().map(|axis| axis.output)).collect()
    }

    /// Where the windows lie, one entry per spatial axis.
    pub(crate) fn axes(&self) -> &[PlacedAxis] {
        &self.axes
    }

    /// Taps of the kernel.
    pub(super) fn n_taps(&self) -> usize {
        self.axes.iter().map(|axis| axis.kernel).product()
    }

    /// The coordinates of every tap.
    pub(super) fn taps(&self) -> Vec<Vec<usize>> {
        let kernel: Vec<usize> = self.axes.iter().map(|axis| axis.kernel).collect();
        (0..self.n_taps()).map(|tap| nd::unravel(tap, &kernel)).collect()
    }

    /// The coordinates of output position `position`.
    pub(super) fn window(&self, position: usize) -> Vec<usize> {
        let sizes: Vec<usize> = self.axes.iter().map(|axis| axis.output).collect();
        nd::unravel(position, &sizes)
    }

    /// Whether there is nothing to sum: no output or no input channels. The kernel of such a convolution may
    /// be of any size, since its weight has no elements.
    pub(super) fn is_trivial(&self) -> bool {
        self.channels == 0 || self.shape().contains(&0)
    }

    /// Convolves `x` with weights `w`; the padding is zero.
    pub(crate) fn compute<T: Scalar>(&self, x: &[T], w: &[T]) -> Vec<T> {
        if self.is_trivial() {
            return vec![T::default(); nd::count(&self.shape())];
        }
        let taps = self.taps();
        let plane: usize = self.axes.iter().map(|axis| axis.input).product();
        self.compute_with(w, |batch, positions| {
            let windows: Vec<Vec<usize>> = positions.map(|position| self.window(position)).collect();
            let (n_columns, mut places) = (windows.len(), Vec::with_capacity(windows.len() * taps.len()));
            for tap in &taps {
                places.extend(windows.iter().map(|window| self.place(window, tap).unwrap_or(PADDING)));
            }
            let first = batch * self.channels;
            move |channel: usize, tap: usize, column: usize| match places[tap * n_columns + column] {
                PADDING => T::default(),
                place => x[(first + channel) * plane + place],
            }
        })
    }

    /// Where a tap of a window looks within a plane, `None` in the padding.
    fn place(&self, window: &[usize], tap: &[usize]) -> Option<usize> {
        let mut along = self.axes.iter().zip(window).zip(tap);
        along.try_fold(0, |flat, ((axis, window), tap)| {
            Some(flat * axis.input + axis.position(*window, *tap)?)
        })
    }

    /// Convolves with patches of any kind: `patches(batch, positions)` gives the element of a patch for
    /// (input channel, tap, index into `positions`).
    pub(super) fn compute_with<T: Scalar, P: Fn(usize, usize, usize) -> T>(
        &self,
        w: &[T],
        patches: impl Fn(usize, Range<usize>) -> P + Sync,
    ) -> Vec<T> {
        let shape = self.shape();
        if self.is_trivial() {
            return vec![T::default(); nd::count(&shape)];
        }
        let (n_positions, in_per_group) = (nd::count(&shape[2..]), self.channels / self.groups);
        let (n_taps, out_per_group) = (self.n_taps(), self.out_channels / self.groups);
        let depth = in_per_group * n_taps;
        let weights: Vec<Strips<T>> = (0..self.groups)
            .map(|group| Strips::strided(&w[group * out_per_group * depth..], out_per_group, depth, depth, 1))
            .collect();
        let tile = n_positions.div_ceil(8).next_multiple_of(4).clamp(MIN_TILE, MAX_TILE);
        let tiles: Vec<(usize, Range<usize>)> = (0..self.batch)
            .flat_map(|batch| {
                let starts = (0..n_positions).step_by(tile);
                starts.map(move |start| (batch, start..(start + tile).min(n_positions)))
            })
            .collect();
        let lengths: Vec<usize> =
            tiles.iter().map(|(_, positions)| self.out_channels * positions.len()).collect();
        let tiled = nd::fill_slices(&lengths, depth, |idx, out| {
            let (batch, positions) = &tiles[idx];
            let patch = patches(*batch, positions.clone());
            let mut columns = Strips::zeros(positions.len(), depth);
            let by_group = out.chunks_exact_mut(out_per_group * positions.len());
            for (group, (weights, out)) in weights.iter().zip(by_group).enumerate() {
                let first = group * in_per_group;
                columns.fill(n_taps, |column, channel, tap| patch(first + channel, tap, column));
                multiply(weights, &columns, 0..weights.len(), out);
            }
        });
        self.untile(&tiles, &tiled, n_positions)
    }

    /// Brings tiles of `[channel, position]` into the order `[batch, channel, position]`.
    fn untile<T: Scalar>(&self, tiles: &[(usize, Range<usize>)], tiled: &[T], n_positions: usize) -> Vec<T> {
        let mut out = vec![T::default(); tiled.len()];
        let mut rest = tiled;
        for (batch, positions) in tiles {
            for channel in 0..self.out_channels {
                let (row, tail) = rest.split_at(positions.len());
                let start = (batch * self.out_channels + channel) * n_positions + positions.start;
                out[start..][..row.len()].copy_from_slice(row);
                rest = tail;
            }
        }
        out
    }
}
