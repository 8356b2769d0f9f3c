//! Regions as matrix products: which matrices, where their elements lie, and which batches are further rows.

use planish_kernel::{KernelError, Operand, Problem, Ref, product_sizes};
use planish_op::Op;
use planish_tensor::DType;

use crate::families::product::epilogue::{Rows, TileEpilogue};
use crate::families::product::{Apart, Math, Products, Way};
use crate::formats::{Format, Packing};

/// Dimensions of batches that a kernel takes.
const BATCHES: usize = 3;

/// A region whose first node is a product of matrices.
#[derive(Clone, Debug)]
pub(in crate::families) struct Product {
    /// Inputs of the region.
    pub(in crate::families) a: usize,
    pub(in crate::families) b: usize,
    pub(in crate::families) trans_a: bool,
    pub(in crate::families) trans_b: bool,
    pub(in crate::families) epilogue: TileEpilogue,
}

/// One factor: strides from row to row (A) or column to column (B), along k, and of the batches.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::families) struct Factor {
    pub(in crate::families) dtype: DType,
    pub(in crate::families) row: usize,
    pub(in crate::families) k: usize,
    pub(in crate::families) batch: [usize; BATCHES],
}

impl Factor {
    /// Whether k lies in whole aligned chunks.
    pub(in crate::families) fn in_chunks(&self, per_chunk: usize, depth: usize) -> bool {
        self.k == 1
            && depth.is_multiple_of(per_chunk)
            && self.row.is_multiple_of(per_chunk)
            && self.batch.iter().all(|stride| stride.is_multiple_of(per_chunk))
    }
}

/// A product with its operands' strides.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::families) struct Posed {
    pub(in crate::families) m: usize,
    pub(in crate::families) n: usize,
    pub(in crate::families) k: usize,
    /// Where rows of B end: k, with padding where it is packed.
    pub(in crate::families) k_b: usize,
    pub(in crate::families) batch: [usize; BATCHES],
    pub(in crate::families) a: Factor,
    pub(in crate::families) b: Factor,
    pub(in crate::families) rows: Rows,
}

impl Posed {
    /// A product for each batch.
    pub(in crate::families) fn products<'a>(&self, way: &'a Way) -> Products<'a> {
        Products { way, count: self.batch.iter().product(), m: self.m, n: self.n }
    }
}

impl Product {
    pub(in crate::families) fn of(problem: &Problem) -> Result<Product, KernelError> {
        let refuse = |what: &str| KernelError::unsupported(format!("gemm: {what}"));
        let apart = Apart::of(problem)?;
        let region = &apart.as_ref().map_or(problem, Apart::problem).region;
        let Some(node) = region.nodes.first() else { return Err(refuse("an empty region")) };
        let (trans_a, trans_b) = match &node.op {
            Op::MatMul(_) => (false, false),
            Op::Gemm(gemm) => (gemm.trans_a, gemm.trans_b),
            _ => return Err(refuse("the region begins with something else")),
        };
        let input = |place: usize| match node.inputs.get(place).copied().flatten() {
            Some(Ref::Input(idx)) if (idx as usize) < problem.inputs.len() => Ok(idx as usize),
            _ => Err(refuse("a factor that is not an input of the region")),
        };
        let (a, b) = (input(0)?, input(1)?);
        if problem.outputs.len() != 1 || problem.inputs[a].rank() == 0 || problem.inputs[b].rank() == 0 {
            return Err(refuse("several outputs, or a factor without axes"));
        }
        let epilogue = TileEpilogue::of(problem, apart.as_ref())?;
        let dtype = problem.inputs[a].dtype;
        let known = match dtype {
            DType::F32 | DType::F16 | DType::BF16 => !epilogue.sums_integers(),
            DType::I8 | DType::F8E4M3FN => epilogue.sums_integers(),
            _ => false,
        };
        if problem.inputs[b].dtype != dtype || !known {
            return Err(refuse("factors of different types, or of others than f32, f16, bf16, i8 and f8"));
        }
        Ok(Product { a, b, trans_a, trans_b, epilogue })
    }

    /// Rows, columns and depth of one product.
    pub(in crate::families) fn sizes(&self, problem: &Problem) -> (usize, usize, usize) {
        let (a, b) = (&problem.inputs[self.a].dims, &problem.inputs[self.b].dims);
        product_sizes(a, b, self.trans_a, self.trans_b)
    }

    /// Whether B is one constant matrix, which is packed.
    pub(in crate::families) fn packs(&self, problem: &Problem) -> bool {
        let b = &problem.inputs[self.b];
        b.constant && b.rank() == 2 && !b.is_empty()
    }

    fn format(&self, math: Math) -> Format {
        Format::Matrix { per_chunk: math.per_chunk(), transposed: self.trans_b }
    }

    /// B with k innermost, padded to whole chunks, where it is packed.
    pub(in crate::families) fn packing(&self, problem: &Problem, math: Math) -> Option<Packing> {
        let packing = Packing { input: self.b, format: self.format(math), dtype: math.dtype() };
        self.packs(problem).then_some(packing)
    }

    /// The product with the operands' strides.
    pub(in crate::families) fn pose(&self, problem: &Problem, math: Math) -> Result<Posed, KernelError> {
        let refuse = |what: &str| Err(KernelError::unsupported(format!("gemm: {what}")));
        let (m, n, k) = self.sizes(problem);
        let (a, b, c) = (&problem.inputs[self.a], &problem.inputs[self.b], &problem.outputs[0]);
        let (has_rows, has_columns) = (a.rank() > 1, b.rank() > 1);
        let tail = usize::from(has_rows) + usize::from(has_columns);
        if c.rank() < tail {
            return refuse("an output of too few axes");
        }
        let n_batch = c.rank() - tail;
        let (a_row, a_k) = match (a.rank(), self.trans_a) {
            (1, _) => (0, a.strides[0]),
            (rank, false) => (a.strides[rank - 2], a.strides[rank - 1]),
            (rank, true) => (a.strides[rank - 1], a.strides[rank - 2]),
        };
        let packed_row = k.next_multiple_of(math.per_chunk());
        let (b_column, b_k) = match (b.packed.is_some(), b.rank(), self.trans_b) {
            (true, ..) => (packed_row, 1),
            (_, 1, _) => (0, b.strides[0]),
            (_, rank, false) => (b.strides[rank - 1], b.strides[rank - 2]),
            (_, rank, true) => (b.strides[rank - 2], b.strides[rank - 1]),
        };
        let along = |operand: &Operand, axis: usize| {
            let own = (operand.rank() + axis).checked_sub(operand.rank().min(2) + n_batch);
            match own.filter(|own| *own + operand.rank().min(2) < operand.rank() && operand.dims[*own] != 1) {
                Some(own) if operand.packed.is_none() => operand.strides[own],
                _ => 0,
            }
        };
        let row_axis = has_rows.then_some(n_batch);
        let column = has_columns.then(|| c.rank() - 1);
        // Outermost first: size, strides of A and B, axis of the output.
        let mut dims: Vec<(usize, usize, usize, usize)> = (0..n_batch)
            .map(|axis| (c.dims[axis], along(a, axis), along(b, axis), axis))
            .filter(|dim| dim.0 != 1)
            .collect();
        let group = 8;
        let mut posed = Posed {
            m,
            n,
            k,
            k_b: if b.packed.is_some() { packed_row } else { k },
            batch: [1; BATCHES],
            a: Factor { dtype: a.dtype, row: a_row, k: a_k, batch: [0; BATCHES] },
            b: Factor { dtype: b.dtype, row: b_column, k: b_k, batch: [0; BATCHES] },
            rows: Rows {
                sizes: [1, 1, 1, m],
                axes: [None, None, None, row_axis],
                column,
                group,
                first: BATCHES,
            },
        };
        // Batches that B does not follow are further rows, where all rows lie evenly: in A, in the output, and in
        // whatever is read after the accumulators.
        let folds = !dims.is_empty()
            && dims.len() <= BATCHES
            && (m == 1 || has_rows)
            && dims.iter().all(|dim| dim.2 == 0)
            && {
                let mut expected = if m == 1 { None } else { Some(a_row * m) };
                dims.iter().rev().all(|dim| {
                    let even = expected.is_none_or(|expected| dim.1 == expected);
                    expected = Some(dim.1 * dim.0);
                    even
                })
            };
        if folds {
            let mut folded = posed;
            let innermost = dims.last().map_or(0, |dim| dim.1);
            folded.a.row = if m == 1 { innermost } else { a_row };
            folded.m = m * dims.iter().map(|dim| dim.0).product::<usize>();
            let start = BATCHES - dims.len();
            for (idx, dim) in dims.iter().enumerate() {
                folded.rows.sizes[start + idx] = dim.0;
                folded.rows.axes[start + idx] = Some(dim.3);
            }
            folded.rows.first = 0;
            if self.epilogue.is_linear(problem, &folded.rows) {
                return Ok(folded);
            }
        }
        // Neighbouring batches that continue each other in everything could be one; few models have more than
        // three, so more are refused.
        if dims.len() > BATCHES {
            return refuse("more than three dimensions of batches");
        }
        while dims.len() < BATCHES {
            dims.insert(0, (1, 0, 0, usize::MAX));
        }
        for (idx, dim) in dims.iter().enumerate() {
            posed.batch[idx] = dim.0;
            posed.a.batch[idx] = dim.1;
            posed.b.batch[idx] = dim.2;
            posed.rows.sizes[idx] = dim.0;
            posed.rows.axes[idx] = (dim.3 != usize::MAX).then_some(dim.3);
        }
        Ok(posed)
    }
}
