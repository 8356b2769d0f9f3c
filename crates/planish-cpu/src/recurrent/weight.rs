//! Weights of recurrent layers: a matrix for each direction, of floats, or of bytes with a scale for each row.
//!
//! Floats that are known at build are packed in panels, the recurrent ones gate by gate.
//! Bytes come from a DequantizeLinear with one block along the sum. They are packed as `nbits` has them, so that the products
//! of a step read a quarter of the memory: with few rows that is what a step takes its time for.

use planish_kernel::{KernelError, Problem, Ref};
use planish_op::Op;
use planish_tensor::{Bytes, DType, Tensor};

use crate::formats::Format;
use crate::gemm::codes::{PackedCodes, Width};
use crate::gemm::family::BlockZeros;
use crate::gemm::{Blocks, BlocksCall, MatrixB, Tile};
use crate::isa::Isa;
use crate::shared::Shared;

/// One of the two weights at given sizes.
#[derive(Debug)]
pub(crate) struct Weight {
    /// Its place among the inputs.
    pub(crate) input: usize,
    /// Bytes from the matrix of a direction to that of the next.
    step: usize,
    /// Columns of the sum.
    k: usize,
    bytes: Option<Scales>,
    /// Into how many matrices the rows of a direction are packed, where they are floats and known.
    parts: Option<usize>,
}

/// What bytes stand for.
#[derive(Debug)]
struct Scales {
    /// An input: a number for each direction and row.
    input: usize,
    rows: usize,
    zeros: BlockZeros,
    /// Bytes from the zero points of a direction to those of the next.
    zeros_step: usize,
}

/// The arrangement of floats.
fn floats(isa: Isa, parts: usize) -> Format {
    Format::Gates { panels: Tile::usual(isa).into(), parts }
}

/// The arrangement of bytes, and of their zero points.
fn format(isa: Isa) -> Format {
    Format::Codes { panels: Tile::usual(isa).into(), width: Width::Eight, transposed: true }
}

impl Weight {
    /// The weight of these sizes (directions, rows, columns) that a layer reads; `None` where it is of another kind. Its rows
    /// are packed in `parts` matrices.
    pub(super) fn of(isa: Isa, problem: &Problem, from: Option<Ref>, parts: usize) -> Option<Weight> {
        let sizes = |input: usize| <[usize; 3]>::try_from(&problem.inputs[input].dims[..]).ok();
        match from? {
            Ref::Input(input) => {
                let input = input as usize;
                let dims = sizes(input)?;
                let [dirs, rows, k] = dims;
                let packed =
                    problem.inputs[input].constant.then(|| floats(isa, parts).packed_len(&dims)).flatten();
                let (elements, parts) = match packed {
                    Some(elements) => (elements / dirs, Some(parts)),
                    None => (rows.checked_mul(k)?, None),
                };
                let step = elements.checked_mul(size_of::<f32>())?;
                (problem.inputs[input].dtype == DType::F32).then_some(Weight {
                    input,
                    step,
                    k,
                    bytes: None,
                    parts,
                })
            }
            Ref::Node { node, output: 0 } => {
                let node = problem.region.nodes.get(node as usize)?;
                let Op::DequantizeLinear(op) = &node.op else { return None };
                let constant = |place: usize| match node.inputs.get(place).copied().flatten() {
                    Some(Ref::Input(idx)) => Some(idx as usize).filter(|&idx| problem.inputs[idx].constant),
                    _ => None,
                };
                let (input, scales) = (constant(0)?, constant(1)?);
                let [dirs, rows, k] = sizes(input)?;
                let one_block = op.block_size == k as i64 && matches!(op.axis, 2 | -1);
                let has_floats = op.output_dtype.is_none_or(|dtype| dtype == DType::F32)
                    && problem.inputs[scales].dtype == DType::F32;
                let dtype = problem.inputs[input].dtype;
                let is_like =
                    |own: DType, dims: &[usize]| (own == dtype && dims == [dirs, rows, 1]).then_some(());
                let zeros = match node.inputs.get(2).copied().flatten() {
                    None => BlockZeros::None,
                    Some(Ref::Input(_)) => {
                        let zeros = constant(2)?;
                        is_like(problem.inputs[zeros].dtype, &problem.inputs[zeros].dims)?;
                        BlockZeros::Input(zeros)
                    }
                    known => {
                        let zeros = problem.region.constant(known)?;
                        is_like(zeros.dtype(), zeros.shape())?;
                        BlockZeros::Known(pack(isa, zeros).ok()?)
                    }
                };
                // Without a sign they are stored less the middle of their range, and so are their zero points.
                let is_signed = match dtype {
                    DType::I8 => true,
                    DType::U8 => !matches!(zeros, BlockZeros::None),
                    _ => false,
                };
                let fits = sizes(scales)? == [dirs, rows, 1];
                let len = |k: usize| {
                    let panels = Tile::usual(isa).into();
                    PackedCodes { panels, width: Width::Eight, k, n: rows }.checked_len()
                };
                let bytes = Some(Scales { input: scales, rows, zeros, zeros_step: len(1)? });
                let is_bytes = one_block && has_floats && is_signed && fits && dirs * rows * k > 0;
                is_bytes.then_some(Weight { input, step: len(k)?, k, bytes, parts: None })
            }
            _ => None,
        }
    }

    pub(super) fn is_packed(&self) -> bool {
        self.parts.is_some()
    }

    /// The same weight as it lies in the model.
    pub(super) fn unpacked(self, rows: usize) -> Weight {
        match self.parts {
            Some(_) => Weight { step: rows * self.k * size_of::<f32>(), parts: None, ..self },
            None => self,
        }
    }

    /// The input with the scales of signed bytes that have no zero points.
    pub(super) fn signed_scales(&self) -> Option<usize> {
        let bytes = self.bytes.as_ref()?;
        matches!(bytes.zeros, BlockZeros::None).then_some(bytes.input)
    }

    pub(super) fn is_bytes(&self) -> bool {
        self.bytes.is_some()
    }

    /// The format that an input of the region is packed in, as this weight has it.
    pub(super) fn format(&self, isa: Isa, input: usize) -> Option<String> {
        if let Some(parts) = self.parts {
            return (input == self.input).then(|| floats(isa, parts).name());
        }
        let bytes = self.bytes.as_ref()?;
        let is_packed =
            input == self.input || matches!(bytes.zeros, BlockZeros::Input(zeros) if zeros == input);
        is_packed.then(|| format(isa).name())
    }

    /// As a product is told where its second factor lies.
    pub(super) fn matrix(&self) -> MatrixB {
        match (&self.bytes, self.parts) {
            (Some(_), _) => MatrixB::Blocks(Blocks { width: Width::Eight, rows: self.k }),
            (None, Some(_)) => MatrixB::Packed,
            (None, None) => MatrixB::Columns { stride: self.k },
        }
    }

    /// The matrix of a direction, as floats or as bytes.
    pub(super) fn at(&self, shared: Shared<'_>, direction: usize) -> (*const f32, Option<BlocksCall>) {
        let matrix = shared.inputs[self.input].wrapping_add(direction * self.step);
        let blocks = self.bytes.as_ref().map(|bytes| BlocksCall {
            codes: matrix,
            scales: shared.inputs[bytes.input].cast::<f32>().wrapping_add(direction * bytes.rows),
            zeros: match &bytes.zeros {
                BlockZeros::None => std::ptr::null(),
                BlockZeros::Input(input) => {
                    shared.inputs[*input].cast::<i8>().wrapping_add(direction * bytes.zeros_step)
                }
                BlockZeros::Known(zeros) => {
                    zeros.as_ptr().cast::<i8>().wrapping_add(direction * bytes.zeros_step)
                }
            },
        });
        (matrix.cast(), blocks)
    }
}

/// A weight of bytes, or its zero points, packed.
pub(super) fn pack(isa: Isa, tensor: &Tensor) -> Result<Vec<u8>, KernelError> {
    format(isa).pack_codes(tensor)
}

/// A weight of floats, packed in this format.
pub(super) fn pack_floats(format: &str, tensor: &Tensor) -> Result<Bytes, KernelError> {
    let refuse = || KernelError::unsupported(format!("a weight of shape {:?} as {format}", tensor.shape()));
    let elements = tensor.elements::<f32>().map_err(|_| refuse())?;
    let packed = Format::named(format).and_then(|format| format.pack_gates(tensor.shape(), &elements));
    Ok(Bytes::from_vec(packed.ok_or_else(refuse)?))
}
