//! Weights of f32 whose numbers a float type of 16 bits holds: the file has half their bytes, an engine widens them
//! when it is opened. Nothing is lost: a weight is narrowed only where every bit comes back.

use planish_tensor::{Bytes, DType, bf16, f16};

use crate::record::Weight;

/// The types that f32 is stored in, the one tried first ahead: it is widened by a shift.
const NARROW: [DType; 2] = [DType::BF16, DType::F16];

/// Bytes of an f32.
const WORD: usize = size_of::<f32>();
/// Bytes of a narrow number.
const HALF: usize = size_of::<u16>();

impl Weight {
    /// Stores the weight in half its bytes if nothing of it is lost.
    pub fn narrow(&mut self) {
        if self.narrowed.is_some() || self.dtype != DType::F32 || !self.bytes.len().is_multiple_of(WORD) {
            return;
        }
        for dtype in NARROW {
            if let Some(halves) = narrowed(dtype, &self.bytes) {
                self.bytes = Bytes::aligned(&halves);
                self.narrowed = Some(dtype);
                return;
            }
        }
    }

    /// The bytes that a kernel or a tensor of its type reads.
    pub fn widened(&self) -> Bytes {
        let of = |number: fn(u16) -> f32| {
            let halves = self.bytes.chunks_exact(HALF).map(|half| u16::from_ne_bytes([half[0], half[1]]));
            Bytes::from_vec(halves.map(number).collect::<Vec<f32>>())
        };
        match self.narrowed {
            Some(DType::F16) => of(|bits| f16::from_bits(bits).to_f32()),
            Some(_) => of(|bits| bf16::from_bits(bits).to_f32()),
            None => self.bytes.clone(),
        }
    }

    /// How many bytes [`Weight::widened`] has.
    pub fn widened_len(&self) -> usize {
        self.bytes.len() * self.narrowed.map_or(1, |_| WORD / HALF)
    }

    /// Whether what `narrowed` says is possible of a weight of so many bytes.
    pub(crate) fn may_be_narrowed(&self, len: u64) -> bool {
        self.dtype == DType::F32
            && self.narrowed.is_none_or(|dtype| NARROW.contains(&dtype))
            && len.is_multiple_of(HALF as u64)
    }
}

/// Words of f32 in a narrow type; `None` where one of them would not come back bit by bit.
fn narrowed(dtype: DType, words: &[u8]) -> Option<Vec<u8>> {
    let mut halves = Vec::with_capacity(words.len() / 2);
    for word in words.chunks_exact(WORD) {
        let number = f32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        let (half, back) = match dtype {
            DType::F16 => {
                let half = f16::from_f32(number);
                (half.to_bits(), half.to_f32())
            }
            _ => {
                let half = bf16::from_f32(number);
                (half.to_bits(), half.to_f32())
            }
        };
        if back.to_bits() != number.to_bits() {
            return None;
        }
        halves.extend_from_slice(&half.to_ne_bytes());
    }
    Some(halves)
}

#[cfg(test)]
mod tests {
    use planish_kernel::Layout;

    use super::*;

    fn weight(numbers: &[f32]) -> Weight {
        Weight {
            name: "w".to_string(),
            dtype: DType::F32,
            dims: vec![numbers.len()],
            layout: Layout::Plain,
            format: None,
            packed_by: None,
            narrowed: None,
            bytes: Bytes::from_vec(numbers.to_vec()),
        }
    }

    #[test]
    fn what_16_bits_hold_takes_half_the_bytes_and_comes_back() {
        let small = 2f32.powi(-24);
        for (numbers, narrow) in [
            (&[1.0, -0.0, 65504.0, small, f32::INFINITY][..], Some(DType::F16)),
            // Beyond the range of f16, with few bits of mantissa.
            (&[1e38f32, 1.5, 2f32.powi(-130)].map(|x| bf16::from_f32(x).to_f32()), Some(DType::BF16)),
            (&[0.1, 1.0], None),
            // Neither type holds both.
            (&[1.0 + 1.0 / 1024.0, 2f32.powi(100)], None),
            // A NaN with bits that are lost.
            (&[f32::from_bits(0x7f80_0001)], None),
            (&[], Some(DType::BF16)),
        ] {
            let (before, mut after) = (weight(numbers), weight(numbers));
            after.narrow();
            assert_eq!(after.narrowed, narrow, "{numbers:?}");
            let halves = if narrow.is_some() { 2 } else { 1 };
            assert_eq!(after.bytes.len() * halves, before.bytes.len());
            assert_eq!((after.widened(), after.widened_len()), (before.bytes.clone(), before.bytes.len()));
            assert!(after.may_be_narrowed(after.bytes.len() as u64));
            let again = after.clone();
            after.narrow();
            assert_eq!(after, again);
        }
    }

    #[test]
    fn other_types_stay_as_they_are() {
        let mut integers = Weight { dtype: DType::I32, ..weight(&[0.0; 4]) };
        integers.narrow();
        assert_eq!((integers.narrowed, integers.bytes.len()), (None, 16));
        assert!(!Weight { narrowed: Some(DType::F16), ..integers }.may_be_narrowed(16));
        assert!(!Weight { narrowed: Some(DType::I8), ..weight(&[0.0]) }.may_be_narrowed(4));
    }
}
