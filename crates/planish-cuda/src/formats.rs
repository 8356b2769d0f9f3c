//! The arrangements that weights are packed in, by name. A name with the weight's type and sizes says how long the
//! packed form is and which element is where; no GPU is needed to go back.

pub(crate) mod codes;
pub(crate) mod sparse;

use planish_kernel::{KernelError, Operand, PackedForm, PackedWeight, Problem, Tactic};
use planish_tensor::{Bytes, DType, Tensor};

use self::codes::{Content, Tiles};
use self::sparse::SparseTiles;

/// An arrangement of a weight's elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// The second matrix of a product, `k x n`, or `n x k` where it is transposed: a row for each column, `k`
    /// innermost, padded to whole chunks.
    Matrix { per_chunk: usize, transposed: bool },
    /// A convolution's: a row for each output channel, taps and then channels within it, padded to whole chunks.
    Conv { per_chunk: usize },
    /// A depthwise convolution's: taps outermost, channels innermost.
    Taps,
    /// As [`Format::Conv`], with each row of a window padded to pairs and the whole to 16.
    Stem,
    /// A transposed convolution's: taps outermost, then input channels of a group, then groups with their output
    /// channels. There is no way back from it.
    TapsInOut { groups: usize },
    /// The same of one group with input channels innermost; no way back either.
    TapsOutIn,
    /// A matrix of few bits, its scales or its zero points, in tiles of columns; `k x n`, or `n x k` where it is transposed.
    Tiles { content: Content, transposed: bool },
    /// A matrix that is 2:4 sparse along `k`, half of its elements in tiles of columns; `k x n`, or `n x k` where it is
    /// transposed.
    Sparse { transposed: bool },
}

/// An input that a tactic reads packed: in which arrangement, and as which type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packing {
    pub(crate) input: usize,
    pub(crate) format: Format,
    pub(crate) dtype: DType,
}

impl Packing {
    /// For each input of a problem the format that it is packed in.
    pub(crate) fn of_inputs(
        packings: impl IntoIterator<Item = Packing>,
        problem: &Problem,
    ) -> Vec<Option<String>> {
        let mut names = vec![None; problem.inputs.len()];
        for packing in packings {
            names[packing.input] = Some(packing.format.name());
        }
        names
    }

    /// The weight of a problem in this arrangement; refused where it is another one, or not of the type that the tactic
    /// takes.
    pub(crate) fn pack(
        self,
        problem: &Problem,
        tactic: &Tactic,
        weight: &Tensor,
    ) -> Result<PackedWeight, KernelError> {
        match weight.shape() == problem.inputs[self.input].dims && weight.dtype() == self.dtype {
            true => self.format.pack(weight),
            false => Err(KernelError::unsupported(format!("{tactic} packs its weight alone"))),
        }
    }
}

/// Elements of one step of the tensor cores along k.
pub(crate) const STEP: usize = 16;

impl Format {
    /// As it stands in plans.
    pub(crate) fn name(self) -> String {
        match self {
            Format::Matrix { per_chunk, transposed } => {
                format!("gemm_rows{per_chunk}{}", if transposed { "t" } else { "" })
            }
            Format::Conv { per_chunk } => format!("conv_rows{per_chunk}"),
            Format::Taps => "taps".to_string(),
            Format::Stem => "stem_rows".to_string(),
            Format::TapsInOut { .. } => "taps_in_out".to_string(),
            Format::TapsOutIn => "taps_out_in".to_string(),
            Format::Tiles { content, transposed } => {
                format!("{}{}", content.name(), if transposed { "t" } else { "" })
            }
            Format::Sparse { transposed } => format!("sparse24{}", if transposed { "t" } else { "" }),
        }
    }

    /// The format of this name, which may come from a file that nobody vouches for.
    fn named(name: &str) -> Option<Format> {
        let [four, eight, sixteen] = [4, 8, 16].map(|per_chunk| {
            [
                Format::Matrix { per_chunk, transposed: false },
                Format::Matrix { per_chunk, transposed: true },
                Format::Conv { per_chunk },
            ]
        });
        let tiles = Content::all()
            .flat_map(|content| [false, true].map(|transposed| Format::Tiles { content, transposed }));
        four.into_iter()
            .chain(eight)
            .chain(sixteen)
            .chain([Format::Conv { per_chunk: 1 }, Format::Taps, Format::Stem])
            .chain(tiles)
            .chain([false, true].map(|transposed| Format::Sparse { transposed }))
            .find(|format| format.name() == name)
    }

    /// How a weight of these sizes is packed so; `None` where it cannot be.
    pub(crate) fn rows(self, dims: &[usize]) -> Option<Rows> {
        let n_elements = planish_tensor::element_count(dims)?;
        let (n, k, inner, per_chunk, transposed) = match (self, dims) {
            (Format::Matrix { per_chunk, transposed: false }, &[k, n]) => (n, k, 1, per_chunk, true),
            (Format::Matrix { per_chunk, transposed: true }, &[n, k]) => (n, k, 1, per_chunk, false),
            (Format::Conv { per_chunk }, &[n, c, ..]) => {
                let k = n_elements.checked_div(n)?;
                (n, k, c, per_chunk, false)
            }
            (Format::Taps, &[c, ..]) => (n_elements.checked_div(c)?, c, 1, 1, true),
            (Format::Stem, &[n, c, .., last]) => {
                let (k, run) = (n_elements.checked_div(n)?, c.checked_mul(last)?);
                let padded = run.checked_next_multiple_of(2)?;
                let row = k.checked_div(run)?.checked_mul(padded)?.checked_next_multiple_of(STEP)?;
                n.checked_mul(row)?;
                return Some(Rows { n, k, inner: c, row, transposed: false, run, padded });
            }
            _ => return None,
        };
        let row = k.checked_next_multiple_of(per_chunk)?;
        n.checked_mul(row)?;
        Some(Rows { n, k, inner, row, transposed, run: k, padded: row.max(1) })
    }

    /// Refused where a tactic's weight is not packed so.
    pub(crate) fn expect(self, weight: &Operand, tactic: &Tactic) -> Result<(), KernelError> {
        match weight.packed.as_deref() == Some(&*self.name()) {
            true => Ok(()),
            false => Err(KernelError::unsupported(format!("{tactic}: its weight is not packed"))),
        }
    }

    /// A weight in this arrangement; padding is zero.
    pub(crate) fn pack(self, weight: &Tensor) -> Result<PackedWeight, KernelError> {
        if let Format::TapsInOut { .. } | Format::TapsOutIn = self {
            return Ok(PackedWeight { format: self.name(), bytes: Bytes::from_vec(self.transposed(weight)) });
        }
        let no_such = || {
            let message = format!("a weight of sizes {:?} as `{}`", weight.shape(), self.name());
            KernelError::unsupported(message)
        };
        let dtype = weight.dtype();
        if let Format::Sparse { .. } = self {
            let tiles = self.sparse_tiles(dtype, weight.shape()).ok_or_else(no_such)?;
            return Ok(PackedWeight { format: self.name(), bytes: Bytes::from_vec(tiles.pack(weight)?) });
        }
        let arranged = self.arranged(weight.shape()).ok_or_else(no_such)?;
        let bytes = match (arranged.stored_bits(dtype).ok_or_else(no_such)?, &arranged) {
            (4 | 8, Arranged::Tiles(tiles)) => {
                tiles.pack_codes(dtype, &weight.codes().map_err(|_| no_such())?)
            }
            (bits, _) => {
                let size = bits / 8;
                let from = weight.bytes();
                let mut bytes = vec![0u8; arranged.len() * size];
                for (idx, to) in bytes.chunks_exact_mut(size).enumerate() {
                    if let Some(place) = arranged.place(idx) {
                        to.copy_from_slice(&from[place * size..(place + 1) * size]);
                    }
                }
                bytes
            }
        };
        Ok(PackedWeight { format: self.name(), bytes: Bytes::from_vec(bytes) })
    }

    /// The tiles of a sparse weight; `None` for other formats, and types that do not lie so.
    fn sparse_tiles(self, dtype: DType, dims: &[usize]) -> Option<SparseTiles> {
        match self {
            Format::Sparse { transposed } if sparse::takes(dtype) => SparseTiles::of(transposed, dims),
            _ => None,
        }
    }

    /// Which element of a weight of these sizes is where; `None` where it cannot be packed so.
    fn arranged(self, dims: &[usize]) -> Option<Arranged> {
        match self {
            Format::Tiles { content, transposed } => {
                Tiles::of(content, transposed, dims).map(Arranged::Tiles)
            }
            _ => self.rows(dims).map(Arranged::Rows),
        }
    }
}

/// The elements of a packed weight.
enum Arranged {
    Rows(Rows),
    Tiles(Tiles),
}

impl Arranged {
    fn len(&self) -> usize {
        match self {
            Arranged::Rows(rows) => rows.len(),
            Arranged::Tiles(tiles) => tiles.len(),
        }
    }

    fn place(&self, idx: usize) -> Option<usize> {
        match self {
            Arranged::Rows(rows) => rows.place(idx),
            Arranged::Tiles(tiles) => tiles.place(idx),
        }
    }

    /// Bits of an element as it is packed; `None` for types that are not packed so.
    fn stored_bits(&self, dtype: DType) -> Option<usize> {
        match self {
            Arranged::Rows(_) => {
                let known =
                    matches!(dtype, DType::F32 | DType::F16 | DType::BF16 | DType::I8 | DType::F8E4M3FN);
                known.then(|| dtype.bits())
            }
            Arranged::Tiles(tiles) => tiles.content.stored_bits(dtype),
        }
    }
}

impl Format {
    /// The elements of a transposed convolution's weight, which has input channels, output channels of a group, taps.
    fn transposed(self, weight: &Tensor) -> Vec<u8> {
        let (all, outputs) = (weight.shape()[0], weight.shape()[1]);
        let taps = weight.len() / (all * outputs).max(1);
        let size = weight.dtype().bits() / 8;
        let bytes = weight.bytes();
        let mut out = vec![0; bytes.len()];
        for (idx, from) in bytes.chunks_exact(size).enumerate() {
            let (input, output, tap) = (idx / taps / outputs, idx / taps % outputs, idx % taps);
            let to = match self {
                Format::TapsInOut { groups } => {
                    let inputs = all / groups.max(1);
                    let (group, within) = (input / inputs, input % inputs);
                    (tap * inputs + within) * groups * outputs + group * outputs + output
                }
                _ => (tap * outputs + output) * all + input,
            };
            out[to * size..(to + 1) * size].copy_from_slice(from);
        }
        out
    }
}

/// Rows of packed elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    n: usize,
    k: usize,
    /// What runs innermost within a row, and lies outermost in the weight: channels before taps.
    inner: usize,
    /// Elements of a row with its padding.
    pub(crate) row: usize,
    /// Whether rows are columns of the weight.
    transposed: bool,
    /// So many elements of a row lie side by side, padded to so many.
    run: usize,
    padded: usize,
}

impl Rows {
    pub(crate) fn len(&self) -> usize {
        self.n * self.row
    }

    /// Which element of the weight lies at a place.
    pub(crate) fn place(&self, idx: usize) -> Option<usize> {
        let (row, at) = (idx / self.row, idx % self.row);
        let k = at / self.padded * self.run + at % self.padded;
        if at % self.padded >= self.run || k >= self.k {
            return None;
        }
        if self.transposed {
            return Some(k * self.n + row);
        }
        let n_outer = self.k / self.inner;
        Some(row * self.k + k % self.inner * n_outer + k / self.inner)
    }
}

/// Bytes that a packed weight has.
pub(crate) fn packed_bytes(form: PackedForm<'_>) -> Option<usize> {
    let PackedForm { format, dtype, dims } = form;
    let format = Format::named(format)?;
    if let Format::Sparse { .. } = format {
        return Some(format.sparse_tiles(dtype, dims)?.n_bytes());
    }
    let arranged = format.arranged(dims)?;
    Some(arranged.len().checked_mul(arranged.stored_bits(dtype)?)? / 8)
}

/// The weight behind its packed bytes. Needs no GPU.
pub fn unpack(form: PackedForm<'_>, bytes: &[u8]) -> Result<Tensor, KernelError> {
    let PackedForm { format, dtype, dims } = form;
    let wrong = || KernelError::unsupported(format!("{} bytes are no {form}", bytes.len()));
    let named = Format::named(format);
    let fits = packed_bytes(form) == Some(bytes.len());
    let named = named.filter(|_| fits).ok_or_else(wrong)?;
    if let Some(tiles) = named.sparse_tiles(dtype, dims) {
        let tensor = tiles.unpack(dtype, dims, bytes);
        return tensor.map_err(|error| KernelError::unsupported(error.to_string()));
    }
    let arranged = named.arranged(dims).ok_or_else(wrong)?;
    let tensor = match (arranged.stored_bits(dtype).ok_or_else(wrong)?, &arranged) {
        (4 | 8, Arranged::Tiles(tiles)) => Tensor::from_codes(dtype, dims, tiles.unpack_codes(dtype, bytes)),
        (bits, _) => {
            let size = bits / 8;
            let mut to = vec![0u8; dims.iter().product::<usize>() * size];
            for (idx, from) in bytes.chunks_exact(size).enumerate() {
                if let Some(place) = arranged.place(idx) {
                    to[place * size..(place + 1) * size].copy_from_slice(from);
                }
            }
            Tensor::from_bytes(dtype, dims, Bytes::from_vec(to))
        }
    };
    tensor.map_err(|error| KernelError::unsupported(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_others_are_none() {
        for name in [
            "gemm_rows4",
            "gemm_rows8t",
            "gemm_rows16",
            "conv_rows8",
            "conv_rows16",
            "taps",
            "stem_rows",
            "codes4g32",
            "codes8g16t",
            "scales16t",
            "zeros16",
            "sparse24",
            "sparse24t",
        ] {
            assert_eq!(Format::named(name).map(Format::name).as_deref(), Some(name));
        }
        for name in ["", "gemm_rows", "gemm_rows32", "gemm_rows04", "conv_rows8t", "panels32x16"] {
            assert_eq!(Format::named(name), None, "{name}");
        }
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        fn packed_bytes(format: &str, dtype: DType, dims: &[usize]) -> Option<usize> {
            super::packed_bytes(PackedForm { format, dtype, dims })
        }
        assert_eq!(packed_bytes("gemm_rows8", DType::F16, &[6, 3]), Some(3 * 8 * 2));
        assert_eq!(packed_bytes("gemm_rows8t", DType::F16, &[6, 3]), Some(6 * 8 * 2));
        assert_eq!(packed_bytes("conv_rows4", DType::F32, &[2, 3, 5]), Some(2 * 16 * 4));
        assert_eq!(packed_bytes("conv_rows4", DType::F32, &[0, 3, 5]), None);
        assert_eq!(packed_bytes("conv_rows16", DType::I8, &[2, 3, 7]), Some(2 * 32));
        assert_eq!(packed_bytes("conv_rows4", DType::I64, &[2, 3, 5]), None);
        assert_eq!(packed_bytes("gemm_rows4", DType::F32, &[2, 3, 5]), None);
        // Seven rows of 21 elements, padded to 22 each: 154, and to whole steps 160.
        assert_eq!(packed_bytes("stem_rows", DType::F16, &[64, 3, 7, 7]), Some(64 * 160 * 2));
        assert_eq!(packed_bytes("stem_rows", DType::F16, &[64, 0, 7, 7]), None);
        assert_eq!(packed_bytes("stem_rows", DType::F16, &[64, 3]), None);
        // Two tiles of two chunks, of 512 bytes each; a byte for each zero point, and four blocks behind the last.
        assert_eq!(packed_bytes("codes4g32", DType::U4, &[70, 20]), Some(4 * 512));
        assert_eq!(packed_bytes("codes4g32", DType::I8, &[70, 20]), None);
        assert_eq!(packed_bytes("zeros16t", DType::I4, &[20, 3]), Some((2 * 3 + 4) * 16));
        assert_eq!(packed_bytes("scales16", DType::F16, &[20]), Some((2 + 4) * 16 * 2));
        assert_eq!(packed_bytes("scales16", DType::I8, &[20]), None);
        assert_eq!(packed_bytes("codes4g16", DType::I4, &[usize::MAX, 2]), None);
        // Two tiles of two chunks.
        assert_eq!(packed_bytes("sparse24", DType::F16, &[70, 20]), Some(4 * 1152));
        assert_eq!(packed_bytes("sparse24t", DType::BF16, &[20, 64]), Some(2 * 1152));
        assert_eq!(packed_bytes("sparse24", DType::F32, &[70, 20]), None);
        assert_eq!(packed_bytes("sparse24", DType::F16, &[0, 20]), None);
        assert!(
            unpack(PackedForm { format: "gemm_rows8", dtype: DType::F16, dims: &[6, 3] }, &[0; 46]).is_err()
        );
    }
}
