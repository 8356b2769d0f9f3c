//! What convolutions and matrix products share: tiles, splits of the sum, prices, and what follows each sum.
//!
//! Both run the block of `kernels/product.cuh`, each with its own loaders. A [`Way`] is all that tells one
//! tactic from another; its name in a tactic's name can be read back.

pub(crate) mod finish;
mod price;
mod tile;

#[cfg(test)]
mod tests;

pub(crate) use price::Work as Amount;
pub(crate) use tile::{Math, Split, Way, has_few_rows, numeric_of};

use std::sync::atomic::{AtomicBool, Ordering};

use planish_kernel::{Candidate, KernelError, KernelErrorKind, Tactic};
use planish_tensor::{DType, Tensor};

use crate::source::Source;

/// The block that both kernels run.
pub(crate) const BLOCK: &str =
    concat!(include_str!("../../kernels/finish.cuh"), "\n", include_str!("../../kernels/product.cuh"));

/// Raised when kernels or packings change.
pub(crate) const REVISION: u32 = 2;

/// Candidates that are expected to take this many times as long as the best are not offered.
const HOPELESS: f64 = 2.0;

/// The most candidates of one family for a problem: each costs a compilation when a plan is tuned.
pub(crate) const MOST_CANDIDATES: usize = 12;

static EVERYTHING: AtomicBool = AtomicBool::new(false);

/// See [`crate::offline::offer_everything`].
pub(crate) fn offer_everything(everything: bool) {
    EVERYTHING.store(everything, Ordering::Relaxed);
}

/// The best of the candidates, in the order of their prices.
pub(crate) fn best_of(mut candidates: Vec<Candidate>, most_candidates: usize) -> Vec<Candidate> {
    candidates.sort_by(|a, b| a.predicted_ns.total_cmp(&b.predicted_ns));
    if EVERYTHING.load(Ordering::Relaxed) {
        return candidates;
    }
    let most = candidates.first().map_or(0.0, |best| best.predicted_ns * HOPELESS);
    candidates.retain(|candidate| candidate.predicted_ns <= most);
    candidates.truncate(most_candidates);
    candidates
}

/// The way that a tactic's name tells, behind the family's own part.
pub(crate) fn way_of(tactic: &Tactic, own: &str) -> Result<Way, KernelError> {
    tactic.name.strip_prefix(own).and_then(Way::named).ok_or_else(|| {
        KernelError::new(
            KernelErrorKind::NoSuchTactic,
            format!("no tactic is called `{}`; rebuild the plan", tactic.name),
        )
    })
}

/// The source with a way's settings.
pub(crate) fn with_way(source: Source, way: &Way) -> Source {
    let tile = way.tile;
    let (cluster, memory) = match way.split {
        Split::None => (0, 0),
        Split::Cluster(_) => (1, 0),
        Split::Memory(_) => (0, 1),
    };
    source
        .define("SIMT", u32::from(way.math == Math::F32))
        .define("MATH", way.math.name_in_c())
        .define("ELEM", way.math.element_in_c())
        .define("BM", tile.bm)
        .define("BN", tile.bn)
        .define("CHUNKS", tile.chunks)
        .define("WM", tile.wm)
        .define("WN", tile.wn)
        .define("WK", tile.wk)
        .define("STAGES", tile.stages)
        .define("SPLIT_CLUSTER", cluster)
        .define("SPLIT_MEMORY", memory)
}

/// A weight's elements as bytes of `dtype`, in the order and number that `place` names: `None` is padding.
pub(crate) fn arrange(
    weight: &Tensor,
    dtype: DType,
    len: usize,
    place: impl Fn(usize) -> Option<usize>,
) -> Result<Vec<u8>, KernelError> {
    if weight.dtype() != dtype {
        let message = format!("a weight of type {} where {dtype} is packed", weight.dtype());
        return Err(KernelError::unsupported(message));
    }
    let size = dtype.bytes_for(1).unwrap_or(0);
    let from = weight.bytes();
    let mut to = vec![0u8; len * size];
    for (idx, to) in to.chunks_exact_mut(size).enumerate() {
        let Some(place) = place(idx) else { continue };
        let Some(element) = from.get(place * size..(place + 1) * size) else {
            return Err(KernelError::unsupported("a weight of other sizes than the problem's"));
        };
        to.copy_from_slice(element);
    }
    Ok(to)
}

/// The way back from [`arrange`].
pub(crate) fn restore(
    packed: &[u8],
    dtype: DType,
    dims: &[usize],
    len: usize,
    place: impl Fn(usize) -> Option<usize>,
) -> Result<Tensor, KernelError> {
    let size = dtype.bytes_for(1).unwrap_or(0);
    if packed.len() != len * size {
        let message = format!("a packed weight of {} bytes, expected {}", packed.len(), len * size);
        return Err(KernelError::unsupported(message));
    }
    let mut to = vec![0u8; dims.iter().product::<usize>() * size];
    for (idx, from) in packed.chunks_exact(size).enumerate() {
        let Some(place) = place(idx) else { continue };
        if let Some(element) = to.get_mut(place * size..(place + 1) * size) {
            element.copy_from_slice(from);
        }
    }
    Tensor::from_bytes(dtype, dims, planish_tensor::Bytes::from_vec(to))
        .map_err(|error| KernelError::unsupported(error.to_string()))
}
