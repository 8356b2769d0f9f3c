//! Convolution weights as panels: as wide as a tile, depth in the order in which windows are read.
//!
//! Elements are ordered by group, class of taps (one for a plain convolution, see [`tap_classes`]), panel of
//! output channels, tap, input channel, output channel; the last panel of each class is as narrow as its
//! vectors. Columns that pad it are zero. [`unpack`] gives back exactly what was packed.

use std::ops::Range;

use planish_op::window::PlacedAxis;
use planish_tensor::Bytes;

use super::geometry::{AXES, TapClass, tap_classes};
use crate::gemm::table::Panels;

/// What a weight is of: its sizes and how its taps are grouped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    pub groups: usize,
    /// Input channels of a group.
    pub c: usize,
    /// Output channels of a group.
    pub k: usize,
    pub kernel: [usize; AXES],
    pub transposed: bool,
    classes: Vec<TapClass>,
}

impl Filter {
    pub fn new(groups: usize, c: usize, k: usize, axes: &[PlacedAxis; AXES], transposed: bool) -> Filter {
        let kernel = [axes[0].kernel, axes[1].kernel, axes[2].kernel];
        Filter { groups, c, k, kernel, transposed, classes: tap_classes(axes, transposed) }
    }

    /// The same with another number of input channels of a group.
    pub(crate) fn with_channels(&self, c: usize) -> Filter {
        Filter { c, ..self.clone() }
    }

    pub fn n_taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Elements of the weight as the model has it.
    pub fn len(&self) -> usize {
        self.groups * self.c * self.k * self.n_taps()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Place of an element in the model's weight: `K, C/groups, taps`, or `C, K/groups, taps` if transposed.
    pub fn place(&self, group: usize, c: usize, k: usize, tap: usize) -> usize {
        let (outer, n_inner, inner) =
            if self.transposed { (group * self.c + c, self.k, k) } else { (group * self.k + k, self.c, c) };
        (outer * n_inner + inner) * self.n_taps() + tap
    }

    /// The class of each tap.
    pub fn class_of_tap(&self) -> Vec<usize> {
        let mut classes = vec![0; self.n_taps()];
        for (idx, class) in self.classes.iter().enumerate() {
            for &x in &class[0] {
                for &y in &class[1] {
                    for &z in &class[2] {
                        classes[(x * self.kernel[1] + y) * self.kernel[2] + z] = idx;
                    }
                }
            }
        }
        classes
    }

    /// Calls `panel(packed place, group, output channels, taps)` for every panel: `c` rows for each of the taps.
    fn for_each_panel(&self, panels: Panels, mut panel: impl FnMut(usize, usize, Range<usize>, &[usize])) {
        let taps_of = |class: &TapClass| {
            let [_, height, width] = self.kernel;
            let rows = class[0].iter().flat_map(|&x| class[1].iter().map(move |&y| x * height + y));
            rows.flat_map(|row| class[2].iter().map(move |&z| row * width + z)).collect()
        };
        let classes: Vec<Vec<usize>> = self.classes.iter().map(taps_of).collect();
        let mut packed = 0;
        for group in 0..self.groups {
            for taps in &classes {
                for k0 in (0..self.k).step_by(panels.nr) {
                    let n = panels.nr.min(self.k - k0);
                    panel(packed, group, k0..k0 + n, taps);
                    packed += taps.len() * self.c * panels.width(n);
                }
            }
        }
    }

    /// Where the `c` rows of each tap of each panel begin in the packed form, and how wide they are.
    pub(super) fn parts(&self, panels: Panels) -> Vec<(usize, usize)> {
        let mut parts = Vec::new();
        self.for_each_panel(panels, |packed, _, channels, taps| {
            let width = panels.width(channels.len());
            parts.extend((0..taps.len()).map(|idx| (packed + idx * self.c * width, width)));
        });
        parts
    }

    /// Calls `at(packed place, model place)` for every element, all taps of a few rows together: what is read then lies
    /// side by side, and what is written is in the cache until its lines are full.
    fn for_each(&self, panels: Panels, mut at: impl FnMut(usize, usize)) {
        self.for_each_panel(panels, |packed, group, channels, taps| {
            let width = panels.width(channels.len());
            for c0 in (0..self.c).step_by(ROWS_AT_ONCE) {
                for (j, k) in channels.clone().enumerate() {
                    for c in c0..self.c.min(c0 + ROWS_AT_ONCE) {
                        let (to, from) = (packed + c * width + j, self.place(group, c, k, 0));
                        for (idx, tap) in taps.iter().enumerate() {
                            at(to + idx * self.c * width, from + tap);
                        }
                    }
                }
            }
        });
    }
}

/// Rows of a panel whose taps are written together: nine taps of 64 channels are 36 KiB then.
const ROWS_AT_ONCE: usize = 16;

/// Elements of the packed form.
pub fn packed_len(filter: &Filter, panels: impl Into<Panels>) -> usize {
    filter.groups * filter.n_taps() * filter.c * panels.into().width(filter.k)
}

/// The packed form of a weight of [`Filter::len`] elements.
pub fn pack(filter: &Filter, panels: impl Into<Panels>, weight: &[f32]) -> Vec<f32> {
    let panels = panels.into();
    let mut packed = vec![0.0; packed_len(filter, panels)];
    filter.for_each(panels, |to, from| packed[to] = weight[from]);
    packed
}

/// The same in memory that kernels read where it lies.
pub fn pack_bytes(filter: &Filter, panels: impl Into<Panels>, weight: &[f32]) -> Bytes {
    let panels = panels.into();
    Bytes::filled(packed_len(filter, panels), |packed: &mut [f32]| {
        filter.for_each(panels, |to, from| packed[to] = weight[from]);
    })
}

/// The weight that was packed.
pub fn unpack(filter: &Filter, panels: impl Into<Panels>, packed: &[f32]) -> Vec<f32> {
    let mut weight = vec![0.0; filter.len()];
    filter.for_each(panels.into(), |from, to| weight[to] = packed[from]);
    weight
}

#[cfg(test)]
mod tests {
    use super::super::geometry::TRIVIAL_AXIS;
    use super::*;
    use crate::gemm::table::Tile;
    use crate::isa::Isa;

    #[test]
    fn what_was_packed_comes_back() {
        for isa in Isa::available() {
            for tile in Tile::of(isa) {
                for (groups, c, k, transposed) in [
                    (1, 3, 1, false),
                    (2, 5, 33, false),
                    (1, 4, 70, true),
                    (3, 2, 17, true),
                    (1, 1, 16, false),
                ] {
                    let axis = |kernel, stride| PlacedAxis { kernel, stride, dilation: 2, ..TRIVIAL_AXIS };
                    let axes = [axis(1, 1), axis(3, 2), axis(4, 3)];
                    let filter = Filter::new(groups, c, k, &axes, transposed);
                    let weight: Vec<f32> = (0..filter.len()).map(|i| i as f32 + 1.0).collect();
                    let packed = pack(&filter, tile, &weight);
                    assert_eq!(packed.len(), packed_len(&filter, tile));
                    assert_eq!(packed.iter().filter(|x| **x != 0.0).count(), weight.len());
                    assert_eq!(unpack(&filter, tile, &packed), weight);
                }
            }
        }
    }
}
