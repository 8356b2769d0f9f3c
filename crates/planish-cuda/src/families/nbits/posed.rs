//! A region as a product with a weight of few bits, and how kernels read that weight.

use planish_gpu::operands::{is_float, refuse, storage};
use planish_gpu::plan::{Arg, KernelCode, Slot};
use planish_kernel::weight_only::{WeightOnly, WeightZeros};
use planish_kernel::{Arithmetic, KernelError, Problem};
use planish_tensor::DType;

use crate::families::few_rows::{Amount, Clocks, rows_of};
use crate::formats::codes::{self, Content, sign_bit};
use crate::formats::{Format, Packing};
use crate::gpu::Gpu;

/// Bytes of a chunk's integers.
const CHUNK_BYTES: usize = 512;
/// Integers become numbers once, each eight rows are loaded and multiplied. Of the best ways of 8 to 64 rows at 4096 x 11008 on
/// an H200.
const CLOCKS: Clocks = Clocks { chunk: 50.0, rows: 85.0, staged: 100.0, scaled: None };
/// Clocks for eight rows and a depth of 64 where weights are scaled first, of 64 rows at 4096 x 11008.
const SCALED_CLOCKS: f64 = 75.0;

/// A product of rows and a weight of few bits.
#[derive(Clone, Debug)]
pub(super) struct Posed {
    pub(super) weight: WeightOnly,
    /// The rows.
    pub(super) x: usize,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    /// The zero point of all, as kernels count, where it is no operand.
    zero: Option<u8>,
}

/// How lanes read the weight: neighbours along the sum that four of them share, and elements with one scale, 0 for all
/// of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reads {
    pub(super) group: usize,
    block: usize,
}

impl Posed {
    pub(super) fn of(problem: &Problem) -> Result<Posed, KernelError> {
        let refuse = |what: &str| refuse(format!("nbits: {what}"));
        let Some(weight) = WeightOnly::of(problem) else {
            return refuse("no product with a weight of few bits");
        };
        let (n, k) = (weight.n, weight.k);
        let x = rows_of(&weight.problem, weight.weight, [n, k])?;
        let rows = &problem.inputs[x];
        let leading = rows.rank() - 1;
        let numbers = weight.problem.inputs[weight.weight].dtype;
        let allowed = match problem.numeric.element {
            Arithmetic::F16 => DType::F16,
            Arithmetic::Bf16 => DType::BF16,
            Arithmetic::F32 | Arithmetic::Tf32 => DType::F32,
            _ => return refuse("another arithmetic"),
        };
        let scales = &problem.inputs[weight.scales];
        if rows.dtype != allowed
            || numbers != allowed
            || !is_float(scales.dtype)
            || problem.inputs[weight.weight].is_empty()
        {
            return refuse("factors of different types");
        }
        let zero = match &weight.zeros {
            WeightZeros::Input(_) => None,
            WeightZeros::None => Some(sign_bit(weight.dtype)),
            WeightZeros::Known(zeros) => {
                let codes = zeros.codes().map_err(|error| KernelError::unsupported(error.to_string()))?;
                match codes.first() {
                    Some(first) if codes.iter().all(|code| code == first) => {
                        Some(first ^ sign_bit(weight.dtype))
                    }
                    _ => return refuse("different zero points that are constants of the region"),
                }
            }
        };
        let m = rows.dims[..leading].iter().product();
        Ok(Posed { weight, x, m, n, k, zero })
    }

    pub(super) fn bits(&self) -> usize {
        self.weight.dtype.bits()
    }

    /// How kernels read the weight; `None` where a block ends within a product of the tensor cores.
    pub(super) fn reads(&self) -> Option<Reads> {
        match self.weight.block {
            block if block >= self.k => Some(Reads { group: 32, block: 0 }),
            block if block.is_multiple_of(32) => Some(Reads { group: 32, block }),
            block if block.is_multiple_of(16) => Some(Reads { group: 16, block }),
            _ => None,
        }
    }

    /// The weight, its scales and its zero points in tiles.
    pub(super) fn packings(&self) -> Vec<Packing> {
        let group = self.reads().map_or(16, |reads| reads.group);
        let WeightOnly { weight, scales, transposed, dtype, .. } = self.weight;
        let packing = |input: usize, content: Content, dtype: DType| Packing {
            input,
            format: Format::Tiles { content, transposed },
            dtype,
        };
        let mut all = vec![
            packing(weight, Content::Codes { bits: self.bits(), group }, dtype),
            packing(scales, Content::Scales, self.weight.problem.inputs[scales].dtype),
        ];
        if let WeightZeros::Input(zeros) = self.weight.zeros {
            all.push(packing(zeros, Content::Zeros, dtype));
        }
        all
    }

    /// Tiles of columns, and chunks of each.
    pub(super) fn tiles(&self) -> [usize; 2] {
        [self.n.div_ceil(codes::COLUMNS), self.k.div_ceil(codes::chunk_depth(self.bits()))]
    }

    /// Shared memory of a chunk of a tile, as `SLOT_BYTES` in nbits_tile.cuh.
    pub(super) fn slot_bytes(&self) -> usize {
        let Some(Reads { block, .. }) = self.reads() else { return 0 };
        let depth = codes::chunk_depth(self.bits());
        let segments = match block {
            0 => return 512,
            block if block.is_multiple_of(depth) => 1,
            block if block.is_multiple_of(32) => depth / 32,
            _ => depth / 16,
        };
        let scale = 2 * self.weight.problem.inputs[self.weight.scales].dtype.bits() / 8;
        512 + segments * 32 * (scale + if self.zero.is_none() { 4 } else { 0 })
    }

    /// What prices go by.
    pub(super) fn amount(&self, problem: &Problem) -> Amount {
        let [tiles, chunks] = self.tiles();
        let parts = if problem.inputs[self.x].dtype == DType::F32 { 3 } else { 1 };
        let row = codes::chunk_depth(self.bits()) * problem.inputs[self.x].dtype.bits() / 8;
        let stages = parts == 1 && self.k.is_multiple_of(8);
        let bytes = problem.traffic_bytes();
        let scaled = self.scales_first().then_some(SCALED_CLOCKS * row as f64 / 128.0);
        Amount {
            m: self.m,
            tiles,
            chunks,
            bytes,
            parts,
            slot: self.slot_bytes(),
            chunk_bytes: CHUNK_BYTES,
            row,
            stages,
            shares_rows: false,
            clocks: Clocks { scaled, ..CLOCKS },
        }
    }

    /// Whether weights may be scaled before they are multiplied: scales are of the type of the rows, of 16 bits.
    pub(super) fn scales_first(&self) -> bool {
        let inputs = &self.weight.problem.inputs;
        let dtype = inputs[self.weight.scales].dtype;
        dtype == inputs[self.x].dtype && dtype.bits() == 16
    }

    /// What tensor cores take products in: rows of f32 in three parts of bf16.
    pub(super) fn multiplied_in(&self) -> &'static str {
        if self.weight.problem.inputs[self.x].dtype == DType::F16 { "f16" } else { "bf16" }
    }

    /// Whether the GPU's tensor cores take them.
    pub(super) fn has_units(&self, gpu: &Gpu) -> bool {
        gpu.sm >= 80 || self.multiplied_in() == "f16"
    }

    /// What nbits.cuh is told.
    pub(super) fn told(&self, code: KernelCode, reads: Reads) -> Result<KernelCode, KernelError> {
        let scales = &self.weight.problem.inputs[self.weight.scales];
        let plain = planish_kernel::Operand { packed: None, ..scales.clone() };
        Ok(code
            .define("BITS", self.bits())
            .define("GROUP", reads.group)
            .define("BLOCK", reads.block)
            .define("ZEROS", u8::from(self.zero.is_none()))
            .define("ZERO", self.zero.unwrap_or(0))
            .define("S_T", storage(&plain)?))
    }

    /// The weight, its scales and its zero points.
    pub(super) fn addresses(&self) -> [Arg; 3] {
        let input = |input: usize| Arg::Address(Slot::Input(input), 0);
        let zeros = match self.weight.zeros {
            WeightZeros::Input(zeros) => input(zeros),
            _ => Arg::Nothing,
        };
        [input(self.weight.weight), input(self.weight.scales), zeros]
    }
}
