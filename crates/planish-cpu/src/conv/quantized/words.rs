//! Weights of bytes at the points of F(2x2, 3x3), four times as large and so whole, two input channels an element.

use crate::conv::winograd::Kind;
use crate::gemm::table::Panels;

/// Input channels come in multiples of this: those of a vector of 16 bits.
pub(super) const LANES: usize = 16;

/// The most input channels: four times the largest sum, 255 · 128 for each of nine taps and each channel, is below 2^31.
pub(super) const MAX_CHANNELS: usize = 1824;

/// Elements of four bytes of the packed form of a weight of these sizes; `None` where it cannot be packed so.
pub(crate) fn packed_len(panels: Panels, dims: &[usize]) -> Option<usize> {
    let &([k, c, 3, 3] | [k, c, 1, 3, 3]) = dims else { return None };
    let fits = k > 0 && c > 0 && c.is_multiple_of(LANES) && c <= MAX_CHANNELS;
    let per_point = (c / 2).checked_mul(k.checked_next_multiple_of(panels.lanes)?)?;
    per_point.checked_mul(Kind::Two.n_points()).filter(|_| fits)
}

/// The packed form; `None` where the sizes do not fit.
#[cfg(target_arch = "x86_64")]
pub(super) fn pack(panels: Panels, dims: &[usize], weight: &[i8]) -> Option<Vec<u8>> {
    use crate::conv::geometry::{AXES, TRIVIAL_AXIS};
    use crate::conv::pack::Filter;

    let len = packed_len(panels, dims)?;
    let &([k, c, 3, 3] | [k, c, 1, 3, 3]) = dims else { return None };
    if weight.len() != 9 * k * c {
        return None;
    }
    let mut axes = [TRIVIAL_AXIS; AXES];
    axes[1..].iter_mut().for_each(|axis| axis.kernel = 3);
    let filter = Filter::new(1, c, k, &axes, false);
    let floats: Vec<f32> = weight.iter().map(|&weight| weight.into()).collect();
    // Quarters of numbers below 2^11 are exact.
    let points = crate::conv::winograd::pack::pack(Kind::Two, &filter, panels, &floats);
    let mut bytes = Vec::with_capacity(4 * len);
    for point in points.chunks_exact(c * panels.width(k)) {
        let mut rest = point;
        for panel in (0..k).step_by(panels.nr) {
            let width = panels.width(panels.nr.min(k - panel));
            let (rows, others) = rest.split_at(c * width);
            for two in rows.chunks_exact(2 * width) {
                let (first, second) = two.split_at(width);
                for pair in first.iter().zip(second) {
                    bytes.extend_from_slice(&((pair.0 * 4.0) as i16).to_ne_bytes());
                    bytes.extend_from_slice(&((pair.1 * 4.0) as i16).to_ne_bytes());
                }
            }
            rest = others;
        }
    }
    Some(bytes)
}
