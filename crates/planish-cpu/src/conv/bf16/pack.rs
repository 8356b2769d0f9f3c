//! Weights in pairs of bf16, each pair in the bits of one f32, in panels.

use planish_tensor::bf16;

use super::super::pack::{self, Filter};
use super::PAIR;
use crate::gemm::table::Panels;

/// The filter of pairs; `None` where channels are no whole pairs.
fn pairs(filter: &Filter) -> Option<Filter> {
    (filter.c.is_multiple_of(PAIR) && !filter.is_empty()).then(|| filter.with_channels(filter.c / PAIR))
}

/// Words of four bytes of a weight's packed form; `None` where it cannot be packed so.
pub(crate) fn packed_words(filter: &Filter, panels: Panels) -> Option<usize> {
    pairs(filter).map(|pairs| pack::packed_len(&pairs, panels))
}

/// The packed form of a weight of [`Filter::len`] elements, rounded where they are no bf16.
pub(crate) fn pack(filter: &Filter, panels: Panels, weight: &[f32]) -> Option<Vec<f32>> {
    let halves = pairs(filter)?;
    let mut words = vec![0.0f32; halves.len()];
    each(&halves, |group, c, k, tap| {
        let [low, high] = [0, 1].map(|i| {
            let number = weight[filter.place(group, PAIR * c + i, k, tap)];
            u32::from(bf16::from_f32(number).to_bits())
        });
        words[halves.place(group, c, k, tap)] = f32::from_bits(high << 16 | low);
    });
    Some(pack::pack(&halves, panels, &words))
}

/// The weight that was packed.
pub(crate) fn unpack(filter: &Filter, panels: Panels, packed: &[f32]) -> Option<Vec<f32>> {
    let halves = pairs(filter)?;
    let words = pack::unpack(&halves, panels, packed);
    let mut weight = vec![0.0; filter.len()];
    each(&halves, |group, c, k, tap| {
        let word = words[halves.place(group, c, k, tap)].to_bits();
        for (i, half) in [word as u16, (word >> 16) as u16].into_iter().enumerate() {
            weight[filter.place(group, PAIR * c + i, k, tap)] = bf16::from_bits(half).to_f32();
        }
    });
    Some(weight)
}

/// Calls `at(group, c, k, tap)` for every element of a filter.
fn each(filter: &Filter, mut at: impl FnMut(usize, usize, usize, usize)) {
    for group in 0..filter.groups {
        for c in 0..filter.c {
            for k in 0..filter.k {
                for tap in 0..filter.n_taps() {
                    at(group, c, k, tap);
                }
            }
        }
    }
}
