//! The different elements of a tensor, as Unique wants them.

use std::collections::HashMap;

use planish_tensor::{DType, Tensor};

/// Values that lie so close, for each element there is, are looked up in a table.
const TABLE_PER_ELEMENT: u64 = 4;
/// A table of so many values is never too large.
const SMALL_TABLE: u64 = 1 << 12;

/// Equal elements, as one group each.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Where each group occurs first.
    pub(crate) first: Vec<usize>,
    /// The group of each element.
    pub(crate) inverse: Vec<i64>,
    pub(crate) counts: Vec<i64>,
}

impl Groups {
    pub(crate) fn takes(dtype: DType) -> bool {
        dtype.is_whole_int() || matches!(dtype, DType::Bool | DType::F32 | DType::F64)
    }

    /// In ascending order, or by first occurrence; `None` for other types, and where an element is no number.
    pub(crate) fn of(x: &Tensor, sorted: bool) -> Option<Groups> {
        let keys = keys(x)?;
        let mut groups =
            Groups { first: Vec::new(), inverse: Vec::with_capacity(keys.len()), counts: Vec::new() };
        let low = keys.iter().copied().min().unwrap_or(0);
        let range = keys.iter().copied().max().unwrap_or(0) - low;
        let most = TABLE_PER_ELEMENT.saturating_mul(keys.len() as u64).max(SMALL_TABLE);
        if range < most {
            let mut known = vec![i64::MAX; range as usize + 1];
            groups.collect(&keys, |key, new| {
                let group = &mut known[(key - low) as usize];
                *group = (*group).min(new);
                *group
            });
        } else {
            let mut known = HashMap::new();
            groups.collect(&keys, |key, new| *known.entry(key).or_insert(new));
        }
        if sorted {
            groups.sort_by(&keys);
        }
        Some(groups)
    }

    /// `group_of` gives the group of a key, the one that it is given where the key is new.
    fn collect(&mut self, keys: &[u64], mut group_of: impl FnMut(u64, i64) -> i64) {
        for (at, key) in keys.iter().enumerate() {
            let group = group_of(*key, self.first.len() as i64);
            if group == self.first.len() as i64 {
                self.first.push(at);
                self.counts.push(0);
            }
            self.counts[group as usize] += 1;
            self.inverse.push(group);
        }
    }

    fn sort_by(&mut self, keys: &[u64]) {
        let mut order: Vec<usize> = (0..self.first.len()).collect();
        order.sort_unstable_by_key(|group| keys[self.first[*group]]);
        let mut place = vec![0i64; order.len()];
        order.iter().enumerate().for_each(|(to, from)| place[*from] = to as i64);
        self.first = order.iter().map(|group| self.first[*group]).collect();
        self.counts = order.iter().map(|group| self.counts[*group]).collect();
        self.inverse.iter_mut().for_each(|group| *group = place[*group as usize]);
    }
}

/// A number for each element, in the order of the elements and equal where these are.
fn keys(x: &Tensor) -> Option<Vec<u64>> {
    const SIGN: u64 = 1 << 63;
    let of_f64 = |x: f64| {
        // Both zeros are one.
        let bits = (x + 0.0).to_bits();
        (!x.is_nan()).then_some(if bits & SIGN == 0 { bits | SIGN } else { !bits })
    };
    match x.dtype() {
        DType::F64 => x.elements::<f64>().ok()?.iter().map(|x| of_f64(*x)).collect(),
        DType::F32 => x.elements::<f32>().ok()?.iter().map(|x| of_f64(f64::from(*x))).collect(),
        DType::U64 => Some(x.elements::<u64>().ok()?.to_vec()),
        DType::I64 => Some(x.elements::<i64>().ok()?.iter().map(|x| *x as u64 ^ SIGN).collect()),
        DType::Bool | DType::U8 => Some(x.bytes().iter().map(|x| u64::from(*x)).collect()),
        dtype if dtype.is_whole_int() => Some(x.to_i64s().iter().map(|x| *x as u64 ^ SIGN).collect()),
        _ => None,
    }
}
