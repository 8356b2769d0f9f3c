//! Weights that are 2:4 sparse along the sum, as `kernels/sparse_tile.cuh` reads them: tiles of 16 columns, of each four
//! neighbours along the sum the two that may differ from zero, and which two these are.
//!
//! A tile is chunks of 64 elements along the sum, one after the other, of two products of the tensor cores each. A chunk is
//! 16 bytes of every lane of a warp for either product, then 4 bytes of every lane that say where the elements lie. Lane l has
//! columns l / 4 and l / 4 + 8 in turns, and of each product the fours l % 4 and l % 4 + 4. Lanes l % 4 of 0 and 1 say where
//! those of the first product lie, the others those of the second: two bits an element, four fours in each half of a word,
//! of the two columns.

use planish_kernel::KernelError;
use planish_tensor::{Bytes, DType, Tensor};

use super::codes::COLUMNS;

/// Elements along the sum in a chunk, and in one product.
pub(crate) const DEPTH: usize = 64;
const STEP: usize = 32;
const LANES: usize = 32;
/// Bytes of a chunk: of both products, and of places.
pub(crate) const CHUNK_BYTES: usize = 2 * LANES * 16 + LANES * 4;
const PLACES: usize = 2 * LANES * 16;

/// Elements have 16 bits.
const SIZE: usize = 2;

/// The tiles of a matrix of `k x n`, or `n x k` where it is transposed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SparseTiles {
    k: usize,
    n: usize,
    transposed: bool,
}

/// Four neighbours of a column: where their two elements and their places are.
struct Four {
    column: usize,
    /// The first of the four along the sum.
    k: usize,
    /// Of the first element, and of the byte whose lower or upper half (`shift`) has both places.
    value: usize,
    place: usize,
    shift: u32,
}

impl SparseTiles {
    pub(crate) fn of(transposed: bool, dims: &[usize]) -> Option<SparseTiles> {
        let (k, n) = match *dims {
            [k, n] if !transposed => (k, n),
            [n, k] => (k, n),
            _ => return None,
        };
        let tiles = SparseTiles { k, n, transposed };
        let [tiles_n, chunks] = tiles.counts();
        let fits = tiles_n.checked_mul(chunks)?.checked_mul(CHUNK_BYTES)? > 0 && n.checked_mul(k).is_some();
        fits.then_some(tiles)
    }

    /// Tiles of columns, and chunks of each.
    pub(crate) fn counts(&self) -> [usize; 2] {
        [self.n.div_ceil(COLUMNS), self.k.div_ceil(DEPTH)]
    }

    pub(crate) fn n_bytes(&self) -> usize {
        let [tiles, chunks] = self.counts();
        tiles * chunks * CHUNK_BYTES
    }

    /// All fours, those behind the matrix's edges too.
    fn fours(&self) -> impl Iterator<Item = Four> + use<> {
        let [tiles, chunks] = self.counts();
        (0..tiles * chunks).flat_map(move |chunk| {
            let (tile, start) = (chunk / chunks, chunk % chunks * DEPTH);
            (0..COLUMNS * DEPTH / 4).map(move |at| {
                let (product, within) = (at / (COLUMNS * STEP / 4), at % (COLUMNS * STEP / 4));
                let (column, four) = (within / (STEP / 4), within % (STEP / 4));
                let (row, half) = (column % 8, column / 8);
                let lane = row * 4 + four % 4;
                let word = half + 2 * (four / 4);
                // Of the lanes that say where: two for each product, four fours in half of a word.
                let teller = row * 4 + 2 * product + four / 4;
                Four {
                    column: tile * COLUMNS + column,
                    k: start + product * STEP + four * 4,
                    value: chunk * CHUNK_BYTES + product * LANES * 16 + lane * 16 + word * 4,
                    place: chunk * CHUNK_BYTES + PLACES + teller * 4 + half * 2 + four % 4 / 2,
                    shift: (four % 2 * 4) as u32,
                }
            })
        })
    }

    /// Where an element of the matrix lies in the weight; `None` behind its edges.
    fn element(&self, k: usize, column: usize) -> Option<usize> {
        let place = if self.transposed { column * self.k + k } else { k * self.n + column };
        (k < self.k && column < self.n).then_some(place)
    }

    /// Refused where three of four differ from zero.
    pub(crate) fn pack(&self, weight: &Tensor) -> Result<Vec<u8>, KernelError> {
        let from: &[u8] = weight.bytes();
        let mut bytes = vec![0; self.n_bytes()];
        for four in self.fours() {
            let mut kept: [(usize, [u8; SIZE]); 2] = [(0, [0; SIZE]), (3, [0; SIZE])];
            let mut n_kept = 0;
            for at in 0..4 {
                let Some(place) = self.element(four.k + at, four.column) else { continue };
                let element = [from[place * SIZE], from[place * SIZE + 1]];
                if element == [0; SIZE] {
                    continue;
                }
                if n_kept == 2 {
                    return Err(KernelError::unsupported("a weight that is not 2:4 sparse along the sum"));
                }
                kept[n_kept] = (at, element);
                n_kept += 1;
            }
            // Places ascend: that of a single element is followed by the last, or follows the first.
            if n_kept == 1 && kept[0].0 == 3 {
                kept = [(0, [0; SIZE]), kept[0]];
            }
            for (idx, (at, element)) in kept.into_iter().enumerate() {
                let to = four.value + idx * SIZE;
                bytes[to..to + SIZE].copy_from_slice(&element);
                bytes[four.place] |= (at as u8) << (four.shift + 2 * idx as u32);
            }
        }
        Ok(bytes)
    }

    pub(crate) fn unpack(
        &self,
        dtype: DType,
        dims: &[usize],
        bytes: &[u8],
    ) -> Result<Tensor, planish_tensor::TensorError> {
        let mut to = vec![0u8; self.n * self.k * SIZE];
        for four in self.fours() {
            for idx in 0..2 {
                let at = usize::from(bytes[four.place] >> (four.shift + 2 * idx as u32) & 3);
                let from = four.value + idx * SIZE;
                let element = &bytes[from..from + SIZE];
                if let Some(place) =
                    self.element(four.k + at, four.column).filter(|_| element.iter().any(|byte| *byte != 0))
                {
                    to[place * SIZE..(place + 1) * SIZE].copy_from_slice(element);
                }
            }
        }
        Tensor::from_bytes(dtype, dims, Bytes::from_vec(to))
    }
}

/// Whether elements of this type lie so.
pub(crate) fn takes(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_testing::Random;

    #[test]
    fn weights_come_back() {
        for (transposed, dims) in [(false, [64, 16]), (true, [16, 64]), (true, [33, 150]), (false, [7, 3])] {
            let weight = Random::new(5).two_of_four(DType::F16, &dims, usize::from(transposed), 1.0);
            let tiles = SparseTiles::of(transposed, &dims).unwrap();
            let packed = tiles.pack(&weight).unwrap();
            assert_eq!(packed.len(), tiles.n_bytes());
            assert_eq!(tiles.unpack(DType::F16, &dims, &packed).unwrap(), weight, "{dims:?} {transposed}");
        }
    }

    #[test]
    fn three_of_four_are_refused() {
        let dense = Random::new(5).tensor(DType::F16, &[8, 4], 1.0);
        assert!(SparseTiles::of(false, &[8, 4]).unwrap().pack(&dense).is_err());
        assert_eq!(SparseTiles::of(false, &[0, 4]), None);
        assert_eq!(SparseTiles::of(false, &[usize::MAX, 4]), None);
    }

    /// As PTX has it for mma.sp.m16n8k32: lane 4 g + 1 has of row g + 8 the elements of fours 1 and 5, and says where those of
    /// fours 4 to 7 are.
    #[test]
    fn lanes_hold_what_fragments_ask_for() {
        let mut values = vec![0.0; 16 * 64];
        // Column 11 is row 3 + 8: of its four 5 in the second product the elements 1 and 3.
        let start = 11 * 64 + 32 + 5 * 4;
        (values[start + 1], values[start + 3]) = (1.0, 2.0);
        let weight = Tensor::from_f64s(DType::F16, &[16, 64], &values).unwrap();
        let bytes = SparseTiles::of(true, &[16, 64]).unwrap().pack(&weight).unwrap();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (one, two) = (0x3c00u32, 0x4000u32);
        assert_eq!(word(512 + (3 * 4 + 1) * 16 + 3 * 4), one | two << 16);
        // Lane 3 of four tells; the upper half of its word is of row g + 8, its second four bits of four 5. Elsewhere 0 and 3.
        assert_eq!(word(1024 + (3 * 4 + 3) * 4), 0xccdc_cccc);
        assert_eq!(word(1024 + 3 * 4 * 4), 0xcccc_cccc);
    }
}
