//! Quantized weights in the form that tiles read: panels of quads, the last of which may be filled up with zeros, then the sums of each output channel's weights,
//! then of each panel whether any of its weights are large, then in which order its rows are read: those of small weights
//! first.

use planish_op::window::PlacedAxis;

use super::super::geometry::{AXES, TRIVIAL_AXIS};
use super::super::pack::{self, Filter};
use super::QUAD;
use crate::formats::MAX_STRIDE;
use crate::gemm::table::Panels;

/// How a weight stands in the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrangement {
    /// A convolution's: output channels, channels of a group, taps. Where it is transposed: input channels, output
    /// channels of a group, taps, with the stride and dilation of each axis.
    Conv { groups: usize, steps: Option<[(usize, usize); AXES]> },
    /// The second factor of a matrix product, `k x n`, or `n x k` where it is transposed.
    Matrix { transposed: bool },
}

/// What lies where in packed bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Places {
    /// In bytes; the panels begin at 0.
    pub(crate) sums: usize,
    pub(super) flags: usize,
    /// Empty for panels whose tiles take every weight.
    pub(super) order: usize,
    pub(crate) len: usize,
}

/// Sums are read by whole vectors, the last of which may reach this far beyond.
const MORE_SUMS: usize = 16;
/// Tiles of vectors of so many lanes tell small weights from large ones. An entry of the order stands where its row lies in
/// the panels, divided by this.
pub(super) const ORDERED_LANES: usize = 8;
/// Stands beside the number of a row of large weights.
pub(super) const LARGE: u16 = 1 << 15;
/// The next part begins at a cache line.
const LINE: usize = 64;

/// The sizes of a weight: groups, channels of a group in and out, taps, and into how many classes these fall.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    groups: usize,
    c: usize,
    k: usize,
    n_taps: usize,
    n_classes: usize,
}

impl Sizes {
    fn of(arrangement: Arrangement, dims: &[usize]) -> Option<Sizes> {
        let sizes = match (arrangement, dims) {
            (Arrangement::Conv { groups, steps }, [outer, inner, taps @ ..]) if taps.len() <= AXES => {
                let whole = groups > 0 && outer.is_multiple_of(groups);
                let n_taps = taps.iter().try_fold(1usize, |all, taps| all.checked_mul(*taps))?;
                let outer = whole.then(|| outer / groups)?;
                match steps {
                    None => Sizes { groups, c: *inner, k: outer, n_taps, n_classes: 1 },
                    Some(steps) => {
                        let fits = |(stride, dilation): &(usize, usize)| {
                            (1..=MAX_STRIDE).contains(stride) && *dilation > 0
                        };
                        let n_classes = steps.iter().map(|(stride, _)| stride).product();
                        steps.iter().all(fits).then_some(Sizes {
                            groups,
                            c: outer,
                            k: *inner,
                            n_taps,
                            n_classes,
                        })?
                    }
                }
            }
            (Arrangement::Matrix { transposed: false }, &[c, k]) => {
                Sizes { groups: 1, c, k, n_taps: 1, n_classes: 1 }
            }
            (Arrangement::Matrix { transposed: true }, &[k, c]) => {
                Sizes { groups: 1, c, k, n_taps: 1, n_classes: 1 }
            }
            _ => return None,
        };
        let fits = sizes.c > 0 && sizes.k > 0 && sizes.n_taps > 0;
        fits.then_some(sizes)
    }

    fn places(self, panels: Panels) -> Option<Places> {
        let quads = self.groups.checked_mul(self.n_taps)?.checked_mul(self.c.div_ceil(QUAD))?;
        let width = self.k.checked_next_multiple_of(panels.lanes)?;
        let sums = quads.checked_mul(width)?.checked_mul(QUAD)?.checked_next_multiple_of(LINE)?;
        let channels = self.groups.checked_mul(self.k)?.checked_mul(self.n_classes)?;
        let channels = channels.checked_add(MORE_SUMS)?;
        let flags = sums.checked_add(channels.checked_mul(4)?)?.checked_next_multiple_of(LINE)?;
        let n_panels = self.groups.checked_mul(self.k.div_ceil(panels.nr))?;
        let order = flags.checked_add(n_panels.checked_mul(4)?)?.checked_next_multiple_of(LINE)?;
        let n_rows =
            if panels.lanes == ORDERED_LANES { quads.checked_mul(width / ORDERED_LANES)? } else { 0 };
        let len = order.checked_add(n_rows.checked_mul(2)?)?.checked_next_multiple_of(LINE)?;
        // The number of a row fits beside the mark.
        (self.c.div_ceil(QUAD) <= usize::from(LARGE)).then_some(Places { sums, flags, order, len })
    }
}

/// What lies where; `None` for a weight that cannot be packed so.
pub(crate) fn places(arrangement: Arrangement, panels: Panels, dims: &[usize]) -> Option<Places> {
    Sizes::of(arrangement, dims)?.places(panels)
}

/// Bytes of the packed form of a weight of these sizes.
pub(crate) fn packed_bytes(arrangement: Arrangement, panels: Panels, dims: &[usize]) -> Option<usize> {
    places(arrangement, panels, dims).map(|places| places.len)
}

/// The most that two neighbouring weights may sum up to for products of unsigned bytes to stay in 16 bits.
const MOST_OF_TWO: i32 = 128;

/// The axes of a weight, as far as its packing asks.
fn filter_axes(arrangement: Arrangement, dims: &[usize]) -> [PlacedAxis; AXES] {
    let mut axes = [TRIVIAL_AXIS; AXES];
    if let Arrangement::Conv { steps, .. } = arrangement {
        let taps = &dims[2..];
        for (axis, taps) in axes[AXES - taps.len()..].iter_mut().zip(taps) {
            axis.kernel = *taps;
        }
        for (axis, (stride, dilation)) in axes.iter_mut().zip(steps.into_iter().flatten()) {
            (axis.stride, axis.dilation) = (stride, dilation);
        }
    }
    axes
}

/// The packed form of a weight; `None` where its sizes do not fit.
pub(crate) fn pack(
    arrangement: Arrangement,
    panels: Panels,
    dims: &[usize],
    weight: &[i8],
) -> Option<Vec<u8>> {
    let Sizes { groups, c, k, n_taps, n_classes } = Sizes::of(arrangement, dims)?;
    let places = places(arrangement, panels, dims)?;
    if groups * c * k * n_taps != weight.len() {
        return None;
    }
    let is_transposed = matches!(arrangement, Arrangement::Conv { steps: Some(_), .. });
    let at = |group: usize, channel: usize, out: usize, tap: usize| match arrangement {
        _ if is_transposed => weight[((group * c + channel) * k + out) * n_taps + tap],
        Arrangement::Conv { .. } | Arrangement::Matrix { transposed: true } => {
            weight[((group * k + out) * c + channel) * n_taps + tap]
        }
        Arrangement::Matrix { transposed: false } => weight[channel * k + out],
    };
    let axes = filter_axes(arrangement, dims);
    let n_quads = c.div_ceil(QUAD);
    let filter = Filter::new(groups, n_quads, k, &axes, is_transposed);
    let class_of_tap = filter.class_of_tap();
    let mut quads = vec![0.0f32; filter.len()];
    let mut sums = vec![0i32; n_classes * groups * k];
    let n_panels = k.div_ceil(panels.nr);
    let mut flags = vec![0u32; groups * n_panels];
    for group in 0..groups {
        for out in 0..k {
            for quad in 0..n_quads {
                for tap in 0..n_taps {
                    let four: [i8; QUAD] = std::array::from_fn(|i| {
                        let channel = quad * QUAD + i;
                        if channel < c { at(group, channel, out, tap) } else { 0 }
                    });
                    flags[group * n_panels + out / panels.nr] |= u32::from(is_large(four));
                    let class = class_of_tap[tap];
                    sums[(class * groups + group) * k + out] +=
                        four.iter().map(|&w| i32::from(w)).sum::<i32>();
                    // Carried as f32 by the packing that all convolutions share; only its bits matter.
                    quads[filter.place(group, quad, out, tap)] = f32::from_ne_bytes(four.map(|w| w as u8));
                }
            }
        }
    }
    let mut bytes = Vec::with_capacity(places.len);
    let packed = pack::pack(&filter, panels, &quads);
    packed.iter().for_each(|quad| bytes.extend_from_slice(&quad.to_ne_bytes()));
    bytes.resize(places.sums, 0);
    sums.iter().for_each(|sum| bytes.extend_from_slice(&sum.to_ne_bytes()));
    bytes.resize(places.flags, 0);
    flags.iter().for_each(|flag| bytes.extend_from_slice(&flag.to_ne_bytes()));
    bytes.resize(places.order, 0);
    if panels.lanes == ORDERED_LANES {
        let order = order(&filter, panels, &packed);
        order.iter().for_each(|entry| bytes.extend_from_slice(&entry.to_ne_bytes()));
    }
    bytes.resize(places.len, 0);
    Some(bytes)
}

/// Whether two neighbouring products of a quad may leave 16 bits.
fn is_large(quad: [i8; QUAD]) -> bool {
    let magnitude = |i: usize| i32::from(quad[i]).abs();
    magnitude(0) + magnitude(1) > MOST_OF_TWO || magnitude(2) + magnitude(3) > MOST_OF_TWO
}

/// In which order the rows of each tap's part of a panel are read.
fn order(filter: &Filter, panels: Panels, packed: &[f32]) -> Vec<u16> {
    let mut order = vec![0; packed.len() / ORDERED_LANES];
    let quad_of = |quad: &f32| quad.to_ne_bytes().map(|byte| byte as i8);
    for (first, width) in filter.parts(panels) {
        let rows = packed[first..first + filter.c * width].chunks_exact(width);
        let rows = rows.map(|row| row.iter().any(|quad| is_large(quad_of(quad))));
        let (large, small): (Vec<_>, Vec<_>) = rows.enumerate().partition(|(_, is_large)| *is_large);
        for (place, (row, is_large)) in small.into_iter().chain(large).enumerate() {
            let mark = if is_large { LARGE } else { 0 };
            order[(first + place * width) / ORDERED_LANES] = row as u16 | mark;
        }
    }
    order
}
