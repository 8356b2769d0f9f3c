//! A region as one product that the library knows: matrices with leading dimensions, one batch stride each, and
//! an epilogue of bias, residual and activation.

use planish_kernel::axes::join;
use planish_kernel::pointwise::Unary;
use planish_kernel::{Arithmetic, KernelError, Operand, Problem, Ref};
use planish_op::Op;
use planish_tensor::DType;

use super::bytes::{Bias, Scaling};
use crate::families::product::epilogue::{Bytes, Following};
use crate::families::product::{Apart, has_few_rows};
use crate::formats::{Format, Packing};
use crate::libs::{function_after, multiplies};

/// One matrix as the library sees it, columns outermost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Matrix {
    pub(super) rows: u64,
    pub(super) columns: u64,
    /// Elements from one column to the next.
    pub(super) leading: i64,
    pub(super) batch_stride: i64,
    /// Whether the product takes it transposed.
    pub(super) transposed: bool,
}

/// What is done with each sum, bias and residual included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Activation {
    None,
    Relu,
    GeluTanh,
}

/// A product with its operands.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Shape {
    /// Inputs of the region.
    pub(super) a: usize,
    pub(super) b: usize,
    pub(super) bias: Option<Bias>,
    pub(super) residual: Option<usize>,
    pub(super) activation: Activation,
    /// Of both factors.
    pub(super) dtype: DType,
    pub(super) scaling: Scaling,
    /// The second factor, where it is of bytes, with its depth innermost.
    pub(super) packing: Option<Packing>,
    pub(super) tf32: bool,
    pub(super) n_batch: i32,
    /// In the library's order: its first factor is our second.
    pub(super) first: Matrix,
    pub(super) second: Matrix,
    pub(super) output: Matrix,
    pub(super) added: Matrix,
    k: usize,
}

/// Bytes that the library takes at once.
const CHUNK: usize = 16;

/// The batch dimensions of a product: sizes and strides of a, b, output and residual, outermost first.
type Batch = (usize, [usize; 4]);

impl Shape {
    pub(super) fn of(problem: &Problem) -> Result<Shape, KernelError> {
        let refuse = |what: &str| KernelError::unsupported(format!("cuBLASLt: {what}"));
        let apart = Apart::of(problem)?;
        let plain = apart.as_ref().map_or(problem, Apart::problem);
        let node = plain.region.nodes.first().ok_or_else(|| refuse("an empty region"))?;
        let (trans_a, trans_b) = match &node.op {
            Op::MatMul(_) => (false, false),
            Op::Gemm(gemm) if gemm.alpha == 1.0 && gemm.beta == 1.0 => (gemm.trans_a, gemm.trans_b),
            _ => return Err(refuse("no plain product")),
        };
        let input = |place: usize| match node.inputs.get(place).copied().flatten() {
            Some(Ref::Input(idx)) if (idx as usize) < problem.inputs.len() => Ok(idx as usize),
            _ => Err(refuse("a factor that is not an input of the region")),
        };
        let (a_at, b_at) = (input(0)?, input(1)?);
        let (a, b) = (&problem.inputs[a_at], &problem.inputs[b_at]);
        let [c] = &problem.outputs[..] else { return Err(refuse("several outputs")) };
        let dtype = a.dtype;
        let of_bytes = matches!(dtype, DType::I8 | DType::F8E4M3FN);
        let whole = [a, b, c].iter().all(|operand| operand.rank() >= 2 && !operand.is_empty());
        if !whole || a.packed.is_some() || (b.packed.is_some() && !of_bytes) {
            return Err(refuse("vectors, empty or packed factors"));
        }
        if b.dtype != dtype || !multiplies(&problem.numeric, dtype) {
            return Err(refuse("types that are mixed, or that it does not multiply"));
        }
        let following = Following::of(problem, apart.as_ref())?;
        let (activation, bias, residual) = after(&following, c.dtype)?;
        let scaling = match of_bytes {
            true => Scaling::of_bytes(problem, &following)?,
            false => Scaling::wide(dtype, residual.is_some()),
        };
        let bias = bias.map(|input| scaling.bias(problem, input));
        let floats =
            bias.map(|bias| bias.stored).into_iter().chain(residual.map(|idx| problem.inputs[idx].dtype));
        let mut beside = floats.chain([c.dtype]);
        if !of_bytes && (following.bytes != Bytes::default() || beside.any(|other| other != dtype)) {
            return Err(refuse("a bias, residual or result of another type"));
        }
        if bias.is_some_and(|bias| !bias.stored.is_float() || bias.stored.bits() < 16) {
            return Err(refuse("a bias of integers"));
        }
        let r = residual.map(|idx| &problem.inputs[idx]);
        if r.is_some_and(|r| r.dims != c.dims) {
            return Err(refuse("a residual that is broadcast"));
        }
        let r = r.unwrap_or(c);
        let (a_side, mut b_side) = (Side::of(a, trans_a), Side::of(b, trans_b));
        // Bytes are multiplied with the depth of both factors innermost, in whole chunks of 16.
        let packing = of_bytes.then(|| {
            let format = Format::Matrix { per_chunk: CHUNK, transposed: trans_b };
            Packing { input: b_at, format, dtype }
        });
        if of_bytes {
            let lies = b.constant && b.rank() == 2 && a_side.column == 1 && b_side.rows.is_multiple_of(CHUNK);
            if !lies {
                return Err(refuse("bytes that lie otherwise than the library takes them"));
            }
            (b_side.row, b_side.column) = (1, b_side.rows);
        }
        let (c_side, r_side) = (Side::of(c, false), Side::of(r, false));
        let (mut m, n, k) = (a_side.rows, b_side.columns, a_side.columns);
        if b_side.rows != k || (c_side.rows, c_side.columns) != (m, n) {
            return Err(refuse("sizes that do not fit together"));
        }
        let n_outer = c.rank() - 2;
        let along = |operand: &Operand, axis: usize| {
            let own = (axis + operand.rank()).checked_sub(c.rank());
            own.filter(|own| operand.dims[*own] != 1).map_or(0, |own| operand.strides[own])
        };
        let mut batches: Vec<Batch> = (0..n_outer)
            .map(|axis| (c.dims[axis], [along(a, axis), along(b, axis), along(c, axis), along(r, axis)]))
            .filter(|batch| batch.0 != 1)
            .collect();
        // Batches that share the second factor are further rows, where rows lie evenly.
        if folds(&batches, m, [a_side.row, c_side.row, r_side.row]) {
            m *= batches.iter().map(|batch| batch.0).product::<usize>();
            batches.clear();
        }
        let (n_batch, strides) = joined(&batches).ok_or_else(|| refuse("batches without one stride"))?;
        let stride = |idx: usize| strides[idx] as i64;
        // The library's columns are our rows.
        let first = Matrix::of(n, k, b_side.column, b_side.row, stride(1));
        let second = Matrix::of(k, m, a_side.column, a_side.row, stride(0));
        let output = Matrix::of(n, m, c_side.column, c_side.row, stride(2));
        let added = Matrix::of(n, m, r_side.column, r_side.row, stride(3));
        let (Some(first), Some(second), Some(output), Some(added)) = (first, second, output, added) else {
            return Err(refuse("a matrix with gaps in both directions"));
        };
        if output.transposed || added.transposed {
            return Err(refuse("an output with its rows innermost"));
        }
        Ok(Shape {
            a: a_at,
            b: b_at,
            bias,
            residual,
            activation,
            dtype,
            scaling,
            packing,
            tf32: problem.numeric.element == Arithmetic::Tf32 && !has_few_rows(problem),
            n_batch: i32::try_from(n_batch).map_err(|_| refuse("too many batches"))?,
            first,
            second,
            output,
            added,
            k,
        })
    }

    pub(super) fn flops(&self) -> f64 {
        2.0 * self.output.rows as f64 * self.output.columns as f64 * self.k as f64 * f64::from(self.n_batch)
    }
}

/// The last two dimensions of an operand, perhaps exchanged.
#[derive(Clone, Copy, Debug)]
struct Side {
    rows: usize,
    columns: usize,
    /// Strides from row to row and from column to column.
    row: usize,
    column: usize,
}

impl Side {
    fn of(operand: &Operand, transposed: bool) -> Side {
        let at = operand.rank() - 2;
        let (row, column) = if transposed { (at + 1, at) } else { (at, at + 1) };
        Side {
            rows: operand.dims[row],
            columns: operand.dims[column],
            row: operand.strides[row],
            column: operand.strides[column],
        }
    }
}

impl Matrix {
    /// A matrix of `rows` by `columns` with these strides of one row and one column: as it is where rows are
    /// adjacent, else transposed where columns are.
    fn of(rows: usize, columns: usize, row: usize, column: usize, batch_stride: i64) -> Option<Matrix> {
        let made = |rows: usize, columns: usize, leading: usize, transposed| Matrix {
            rows: rows as u64,
            columns: columns as u64,
            // Of one column the stride says nothing.
            leading: (if columns == 1 { rows } else { leading }) as i64,
            batch_stride,
            transposed,
        };
        let direct = (row == 1 || rows == 1) && (columns == 1 || column >= rows);
        let turned = (column == 1 || columns == 1) && (rows == 1 || row >= columns);
        match (direct, turned) {
            (true, _) => Some(made(rows, columns, column, false)),
            (false, true) => Some(made(columns, rows, row, true)),
            (false, false) => None,
        }
    }
}

/// Whether all batches continue the rows of the first factor, the output and the residual, and share the second
/// factor.
fn folds(batches: &[Batch], m: usize, rows: [usize; 3]) -> bool {
    let mut expected = rows.map(|row| row * m);
    // Of one row the stride says nothing: the innermost batch is taken for it.
    if let (1, Some((_, strides))) = (m, batches.last()) {
        expected = [strides[0], strides[2], strides[3]];
        if expected.iter().zip(rows).any(|(stride, row)| *stride != row) {
            return false;
        }
    }
    for (size, strides) in batches.iter().rev() {
        if strides[1] != 0 || [strides[0], strides[2], strides[3]] != expected {
            return false;
        }
        expected = expected.map(|stride| stride * size);
    }
    true
}

/// All batches as one, if each operand has one stride for them.
fn joined(batches: &[Batch]) -> Option<(usize, [usize; 4])> {
    let stride = |batch: &Batch, operand: usize| batch.1.get(operand).map(|stride| *stride as isize);
    match join(batches.iter().copied(), |batch| &mut batch.0, stride)[..] {
        [] => Some((1, [0; 4])),
        [all] => Some(all),
        _ => None,
    }
}

/// Activation, bias and residual after the product; refused where there is more.
fn after(
    following: &Following,
    stored: DType,
) -> Result<(Activation, Option<usize>, Option<usize>), KernelError> {
    let refuse = |what: &str| Err(KernelError::unsupported(format!("cuBLASLt: {what}")));
    let epilogue = &following.epilogue;
    let mut activation = match (epilogue.lo, epilogue.hi) {
        (f32::NEG_INFINITY, f32::INFINITY) => Activation::None,
        (0.0, f32::INFINITY) => Activation::Relu,
        _ => return refuse("a clamp that is not ReLU"),
    };
    match function_after(following, stored)? {
        None => {}
        Some(Unary::GeluTanh) if activation == Activation::None => activation = Activation::GeluTanh,
        Some(_) => return refuse("another function than GELU by tanh"),
    }
    let residual = match epilogue.residual {
        Some(residual) if residual.after_clamp => return refuse("a residual after the activation"),
        other => other.map(|residual| residual.input as usize),
    };
    if following.constant_bias.is_some() {
        return refuse("a bias that is part of the region");
    }
    Ok((activation, epilogue.bias.map(|bias| bias as usize), residual))
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_kernel::{Layout, Numeric, Region, RegionNode};
    use planish_testing::problems::matmul::matmul;
    use planish_testing::problems::quantized::{To, quantized};

    fn problem(a: &[usize], b: &[usize], c: &[usize], op: Op) -> Problem {
        Problem {
            region: Region::single(op, 2, 1),
            inputs: [a, b].iter().map(|dims| Operand::dense(DType::F16, dims, Layout::Plain)).collect(),
            outputs: vec![Operand::dense(DType::F16, c, Layout::Plain)],
            numeric: Numeric::F16,
            threads: 1,
        }
    }

    #[test]
    fn batches_with_one_weight_are_rows() {
        let shape =
            Shape::of(&problem(&[4, 5, 16], &[16, 8], &[4, 5, 8], planish_op::MatMul {}.into())).unwrap();
        assert_eq!(shape.n_batch, 1);
        let matrix =
            |rows, columns, leading| Matrix { rows, columns, leading, batch_stride: 0, transposed: false };
        assert_eq!((shape.first, shape.second), (matrix(8, 16, 8), matrix(16, 20, 16)));
        assert_eq!(shape.output, matrix(8, 20, 8));
    }

    #[test]
    fn batches_of_their_own_have_one_stride() {
        let matmul = || planish_op::MatMul {}.into();
        let shape = Shape::of(&problem(&[2, 3, 5, 16], &[2, 3, 16, 8], &[2, 3, 5, 8], matmul())).unwrap();
        assert_eq!((shape.n_batch, shape.first.batch_stride, shape.second.batch_stride), (6, 128, 80));
        assert_eq!((shape.flops(), shape.output.batch_stride), (2.0 * 6.0 * 5.0 * 16.0 * 8.0, 40));
        // The second factor repeats along one of two: no single stride.
        assert!(Shape::of(&problem(&[2, 3, 5, 16], &[3, 16, 8], &[2, 3, 5, 8], matmul())).is_err());
        let shape = Shape::of(&problem(&[3, 1, 16], &[3, 16, 8], &[3, 1, 8], matmul())).unwrap();
        assert_eq!((shape.n_batch, shape.second.leading), (3, 16));
    }

    #[test]
    fn transposed_factors_are_told_to_the_library() {
        let gemm = planish_op::Gemm { alpha: 1.0, beta: 1.0, trans_a: false, trans_b: true };
        let shape = Shape::of(&problem(&[5, 16], &[8, 16], &[5, 8], gemm.into())).unwrap();
        let turned = Matrix { rows: 16, columns: 8, leading: 16, batch_stride: 0, transposed: true };
        assert_eq!(shape.first, turned);
        let scaled = planish_op::Gemm { alpha: 2.0, beta: 1.0, trans_a: false, trans_b: true };
        assert!(Shape::of(&problem(&[5, 16], &[8, 16], &[5, 8], scaled.into())).is_err());
    }

    #[test]
    fn relu_and_tanh_gelu_are_taken_and_others_are_not() {
        let with = |op: Op| {
            let mut problem = problem(&[5, 16], &[16, 8], &[5, 8], planish_op::MatMul {}.into());
            let inputs = vec![Some(Ref::Node { node: 0, output: 0 })];
            problem.region.nodes.push(RegionNode { name: "then".into(), op, inputs, n_outputs: 1 });
            problem.region.outputs = vec![Ref::Node { node: 1, output: 0 }];
            Shape::of(&problem).map(|shape| shape.activation)
        };
        let gelu = |approximate| planish_op::Gelu { approximate }.into();
        assert_eq!(with(planish_op::Relu {}.into()).unwrap(), Activation::Relu);
        assert_eq!(with(gelu(planish_op::GeluApproximation::Tanh)).unwrap(), Activation::GeluTanh);
        assert!(with(gelu(planish_op::GeluApproximation::None)).is_err());
        assert!(with(planish_op::Tanh {}.into()).is_err());
    }

    /// A product of bytes with its bias, where every column has a scale of its own.
    fn of_bytes(dtype: DType, to: To) -> Problem {
        quantized(&matmul(DType::F16, &[40, 64], &[64, 48], true, None), dtype, 0, to).unwrap()
    }

    /// The same with one scale for the weight.
    fn per_tensor(mut problem: Problem) -> Problem {
        problem.inputs.pop();
        problem.region.n_inputs -= 1;
        problem.region.constants.push(planish_tensor::Tensor::scalar(0.5f32));
        problem.region.nodes[1].inputs[1] = Some(Ref::Constant(problem.region.constants.len() as u32 - 1));
        problem
    }

    #[test]
    fn integers_become_integers_with_one_scale() {
        assert!(Shape::of(&of_bytes(DType::I8, To::Bytes(0))).is_err());
        let shape = Shape::of(&per_tensor(of_bytes(DType::I8, To::Bytes(0)))).unwrap();
        let bias = shape.bias.unwrap();
        // Counted in steps of the result: as many times as large as one over its scale.
        assert_eq!((bias.taken, shape.scaling.output), (DType::F32, DType::I8));
        assert!(!bias.is_taken() && bias.factor > 1.0);
        let depth_innermost =
            Matrix { rows: 64, columns: 48, leading: 64, batch_stride: 0, transposed: true };
        assert_eq!(shape.first, depth_innermost);
        assert_eq!(shape.packing.map(|packing| packing.format.name()).as_deref(), Some("gemm_rows16"));
        for to in [To::F16, To::F32, To::Bytes(-5)] {
            assert!(Shape::of(&per_tensor(of_bytes(DType::I8, to))).is_err(), "{to:?}");
        }
    }

    #[test]
    fn floats_of_8_bits_have_scales_of_columns_or_become_bytes() {
        let floats = DType::F8E4M3FN;
        let shape = Shape::of(&of_bytes(floats, To::F16)).unwrap();
        assert_eq!((shape.scaling.columns, shape.scaling.steps), (Some(3), None));
        assert_eq!(shape.bias.unwrap().taken, DType::F16);
        assert!(Shape::of(&of_bytes(floats, To::Bytes(0))).is_err());
        let shape = Shape::of(&per_tensor(of_bytes(floats, To::Bytes(0)))).unwrap();
        assert_eq!((shape.scaling.columns, shape.scaling.added), (None, DType::F16));
        assert!(shape.scaling.steps.is_some_and(|steps| steps > 1.0));
        // A bias of 32 bits would have to become one of 16.
        assert!(Shape::of(&of_bytes(floats, To::F32)).is_err());
    }
}
