//! Weights of 4 and 8 bits with their scales and zero points, as `kernels/nbits.cuh` reads them: tiles of 16 columns.

use planish_tensor::DType;

/// Columns of a tile.
pub(crate) const COLUMNS: usize = 16;
/// Elements of one product of the tensor cores along the sum.
const STEP: usize = 16;
const LANES: usize = 32;
/// Blocks that a chunk may have.
const MOST_BLOCKS: usize = 4;

/// What lies in tiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// Integers of so many bits, in chunks of 16 bytes a lane. Four lanes share groups of so many neighbours along the sum:
    /// 16, or 32 where a group has one scale.
    Codes { bits: usize, group: usize },
    /// Scales: blocks one after the other, the two columns of a lane side by side.
    Scales,
    /// Zero points, laid out as scales, a byte each.
    Zeros,
}

/// The tiles of a matrix of `k x n` (of scales and zero points: blocks by columns), or `n x k` where it is transposed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tiles {
    pub(crate) content: Content,
    k: usize,
    n: usize,
    transposed: bool,
}

/// Elements along the sum that lie in 16 bytes of each lane of a warp.
pub(crate) fn chunk_depth(bits: usize) -> usize {
    STEP * STEP / bits
}

impl Content {
    /// As it stands in plans, before what says how the matrix lies.
    pub(crate) fn name(self) -> String {
        match self {
            Content::Codes { bits, group } => format!("codes{bits}g{group}"),
            Content::Scales => "scales16".to_string(),
            Content::Zeros => "zeros16".to_string(),
        }
    }

    pub(crate) fn all() -> impl Iterator<Item = Content> {
        let codes = [(4, 16), (4, 32), (8, 16), (8, 32)];
        let codes = codes.into_iter().map(|(bits, group)| Content::Codes { bits, group });
        codes.chain([Content::Scales, Content::Zeros])
    }

    /// Bits that an element of this type takes; `None` where it does not lie so.
    pub(crate) fn stored_bits(self, dtype: DType) -> Option<usize> {
        let is_integer = matches!(dtype, DType::I4 | DType::U4 | DType::I8 | DType::U8);
        match self {
            Content::Codes { bits, .. } => (is_integer && dtype.bits() == bits).then_some(bits),
            Content::Zeros => is_integer.then_some(8),
            Content::Scales => matches!(dtype, DType::F32 | DType::F16 | DType::BF16).then(|| dtype.bits()),
        }
    }
}

/// The sign bit of a type, which is turned over so that all integers count from 0.
pub(crate) fn sign_bit(dtype: DType) -> u8 {
    match dtype {
        DType::I4 => 0x8,
        DType::I8 => 0x80,
        _ => 0,
    }
}

impl Tiles {
    /// Tiles of a tensor of these sizes; one of scales may be a list, of one block.
    pub(crate) fn of(content: Content, transposed: bool, dims: &[usize]) -> Option<Tiles> {
        let (k, n) = match *dims {
            [n] if !matches!(content, Content::Codes { .. }) => (1, n),
            [k, n] if !transposed => (k, n),
            [n, k] => (k, n),
            _ => return None,
        };
        let tiles = Tiles { content, k, n, transposed: transposed && dims.len() == 2 };
        let padded = n.checked_next_multiple_of(COLUMNS)?.checked_mul(tiles.padded_k()?)?;
        padded.checked_add(MOST_BLOCKS * COLUMNS)?.checked_mul(4).map(|_| tiles)
    }

    fn padded_k(&self) -> Option<usize> {
        match self.content {
            Content::Codes { bits, .. } => self.k.checked_next_multiple_of(chunk_depth(bits)),
            Content::Scales | Content::Zeros => Some(self.k),
        }
    }

    /// Elements with padding. Kernels ask for the scales of whole chunks, which may be more blocks than the last tile has.
    pub(crate) fn len(&self) -> usize {
        let behind = match self.content {
            Content::Codes { .. } => 0,
            Content::Scales | Content::Zeros => MOST_BLOCKS * COLUMNS,
        };
        self.n.next_multiple_of(COLUMNS) * self.padded_k().unwrap_or(0) + behind
    }

    /// Which element of the matrix lies at a place.
    pub(crate) fn place(&self, idx: usize) -> Option<usize> {
        let (k, column) = match self.content {
            Content::Codes { bits, group } => {
                let (per_lane, depth) = (chunk_depth(bits) / 2, chunk_depth(bits));
                let (at, own) = (idx / per_lane, idx % per_lane);
                let (chunk, lane) = (at / LANES, at % LANES);
                let n_chunks = self.k.div_ceil(depth);
                let (step, own) = (own / 8, own % 8);
                // Fragments alternate between a lane's two columns. Words of 4 bits give neighbours along the sum as
                // their halves; bytes give them as neighbours.
                let (fragment, half) = match bits {
                    4 => (own % 4, own / 4),
                    _ => (own / 2, own % 2),
                };
                let (steps, step) = (step / (group / STEP), step % (group / STEP));
                let within = steps * group + group / 4 * (lane % 4) + 4 * step + fragment / 2 * 2 + half;
                let column = chunk / n_chunks * COLUMNS + lane / 4 + 8 * (fragment % 2);
                (chunk % n_chunks * depth + within, column)
            }
            Content::Scales | Content::Zeros => {
                let (row, own) = (idx / COLUMNS, idx % COLUMNS);
                if self.k == 0 {
                    return None;
                }
                (row % self.k, row / self.k * COLUMNS + own / 2 + 8 * (own % 2))
            }
        };
        let place = if self.transposed { column * self.k + k } else { k * self.n + column };
        (k < self.k && column < self.n).then_some(place)
    }

    /// Codes or zero points, one a byte, as they are packed.
    pub(crate) fn pack_codes(&self, dtype: DType, codes: &[u8]) -> Vec<u8> {
        let flip = sign_bit(dtype);
        let code = |idx: usize| self.place(idx).map_or(0, |place| codes[place] ^ flip);
        match self.content {
            Content::Codes { bits: 4, .. } => {
                (0..self.len() / 2).map(|at| code(2 * at) | code(2 * at + 1) << 4).collect()
            }
            _ => (0..self.len()).map(code).collect(),
        }
    }

    /// The codes behind their packed form.
    pub(crate) fn unpack_codes(&self, dtype: DType, bytes: &[u8]) -> Vec<u8> {
        let mut codes = vec![0; self.n * self.k];
        let flip = sign_bit(dtype);
        for idx in 0..self.len() {
            let Some(place) = self.place(idx) else { continue };
            codes[place] = flip
                ^ match self.content {
                    Content::Codes { bits: 4, .. } => bytes[idx / 2] >> (idx % 2 * 4) & 0xf,
                    _ => bytes[idx],
                };
        }
        codes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_lies_at_one_place() {
        for content in Content::all() {
            for (transposed, dims) in [(false, [70, 33]), (true, [33, 70]), (true, [1, 1])] {
                let tiles = Tiles::of(content, transposed, &dims).unwrap();
                let mut places: Vec<usize> = (0..tiles.len()).filter_map(|idx| tiles.place(idx)).collect();
                places.sort_unstable();
                assert!(places.into_iter().eq(0..dims[0] * dims[1]), "{content:?} {dims:?}");
            }
        }
    }

    #[test]
    fn lanes_hold_what_fragments_ask_for() {
        let tiles = Tiles::of(Content::Codes { bits: 4, group: 32 }, true, &[16, 64]).unwrap();
        // Lane 5 (column 1, the second of four), second step: elements 12 to 15 of columns 1 and 9, halves of words.
        let at = |own: usize| tiles.place(5 * 32 + 8 + own).map(|place| (place / 64, place % 64));
        let expected = [(1, 12), (9, 12), (1, 14), (9, 14), (1, 13), (9, 13), (1, 15), (9, 15)];
        assert_eq!((0..8).map(at).collect::<Option<Vec<_>>>().unwrap(), expected);
        let tiles = Tiles::of(Content::Codes { bits: 8, group: 16 }, true, &[16, 32]).unwrap();
        let at = |own: usize| tiles.place(16 * 5 + 8 + own).map(|place| (place / 32, place % 32));
        let expected = [(1, 20), (1, 21), (9, 20), (9, 21), (1, 22), (1, 23), (9, 22), (9, 23)];
        assert_eq!((0..8).map(at).collect::<Option<Vec<_>>>().unwrap(), expected);
    }
}
