//! Single elements of an output without the rest of it, for checks of problems that are too large to
//! evaluate whole.
//!
//! An operator's definition is not written twice: the inputs are cut to what the element depends on (one row
//! and one column of a product, the window of a convolution, the line of a softmax), and the operator is
//! evaluated on these. Sums run in the same order in the cut as in the whole, so the results are the same to
//! the last bit. Where no cut is known, the whole output is evaluated once and the elements are picked.

mod axes;
mod cut;
mod products;
#[cfg(test)]
mod tests;
mod windows;

use std::collections::VecDeque;

use planish_op::{Class, Op, Value};
use planish_tensor::Tensor;

use crate::{EvalError, EvalErrorKind, Evaluation, evaluate, nd};
use cut::{Cut, CutProblem};

/// Cut problems whose results are kept for the next points: points near each other are often in the same group, and a
/// group may have a million elements.
const MAX_PARTS: usize = 4;

/// The elements of output number `output` at `points` (coordinates along each axis), as `f64`: exact but for
/// 64-bit integers beyond 2^53.
///
/// What refuses the whole evaluation because of other elements (an integer divided by zero elsewhere) need
/// not be noticed.
pub fn evaluate_at(
    op: &Op,
    inputs: &[Option<&Value>],
    n_outputs: usize,
    output: usize,
    points: &[Vec<usize>],
) -> Result<Vec<f64>, EvalError> {
    let cx = &Evaluation::new(op.name(), inputs, n_outputs);
    let mut whole: Option<Made> = None;
    let mut parts: VecDeque<(CutProblem, Made)> = VecDeque::new();
    let make = |op: &Op, inputs: &[Option<&Value>]| {
        let outputs = evaluate(op, inputs, n_outputs)?;
        let tensor = tensor_of(cx, &outputs, output)?;
        Ok::<Made, EvalError>(Made { shape: tensor.shape().to_vec(), values: tensor.to_f64s() })
    };
    let one = |point: &Vec<usize>| {
        let Some(Cut { problem, place }) = cut(op, cx, output, point) else {
            if whole.is_none() {
                whole = Some(make(op, inputs)?);
            }
            return whole.as_ref().map_or(Ok(0.0), |whole| whole.element(cx, point));
        };
        if let Some((_, made)) = parts.iter().find(|(known, _)| *known == problem) {
            return made.element(cx, &place);
        }
        let inputs = problem.inputs(cx)?;
        let inputs: Vec<Option<&Value>> = inputs.iter().map(Option::as_ref).collect();
        let made = make(&problem.op, &inputs)?;
        let element = made.element(cx, &place);
        parts.truncate(MAX_PARTS - 1);
        parts.push_front((problem, made));
        element
    };
    points.iter().map(one).collect()
}

/// An output that was evaluated.
struct Made {
    shape: Vec<usize>,
    values: Vec<f64>,
}

impl Made {
    fn element(&self, cx: &Evaluation<'_>, point: &[usize]) -> Result<f64, EvalError> {
        let shape = &self.shape;
        let found = cut::within(point, shape).and_then(|()| self.values.get(nd::ravel(point, shape)));
        found.copied().ok_or_else(|| {
            cx.error(EvalErrorKind::BadValue, format!("there is no point {point:?} in the shape {shape:?}"))
        })
    }
}

fn tensor_of<'a>(cx: &Evaluation<'_>, outputs: &'a [Value], output: usize) -> Result<&'a Tensor, EvalError> {
    outputs.get(output).and_then(Value::as_tensor).ok_or_else(|| {
        cx.error(EvalErrorKind::BadValue, format!("output {output} is not computed, or not a tensor"))
    })
}

/// The smaller problem that has the element of `output` at `point` in it. `None` where the whole must be
/// evaluated, also because something is wrong with the inputs or the point: the refusal is then that of the
/// whole.
fn cut(op: &Op, cx: &Evaluation<'_>, output: usize, point: &[usize]) -> Option<Cut> {
    match op {
        Op::MatMul(_) => products::matmul(op, cx, point),
        Op::MatMulInteger(_) => products::matmul_integer(op, cx, point),
        Op::QLinearMatMul(_) => products::qlinear_matmul(op, cx, point),
        Op::Gemm(gemm) => products::gemm(gemm, cx, point),

        Op::Conv(op) => windows::conv(op, cx, point),
        Op::ConvInteger(op) => windows::conv_integer(op, cx, point),
        Op::QLinearConv(op) => windows::qlinear_conv(op, cx, point),
        Op::ConvTranspose(op) => windows::conv_transpose(op, cx, point),
        // The second output counts places through the whole tensor.
        Op::MaxPool(_) if output != 0 => None,

        Op::ArgMax(o) => axes::arg(op, o.axis, o.keepdims, cx, point),
        Op::ArgMin(o) => axes::arg(op, o.axis, o.keepdims, cx, point),
        Op::CumSum(_) | Op::CumProd(_) => axes::scan(op, cx, point),
        Op::Softmax(o) => axes::line(op, o.axis, cx, point),
        Op::LogSoftmax(o) => axes::line(op, o.axis, cx, point),
        Op::Hardmax(o) => axes::line(op, o.axis, cx, point),
        Op::LpNormalization(o) => axes::line(op, o.axis, cx, point),
        Op::LRN(_) => axes::line(op, 1, cx, point),
        Op::MeanVarianceNormalization(o) => axes::mean_variance(o, cx, point),
        Op::LayerNormalization(o) => axes::layer(op, o.axis, output, cx, point),
        Op::RMSNormalization(o) => axes::layer(op, o.axis, output, cx, point),
        Op::BatchNormalization(o) => (!o.training_mode).then(|| axes::batch_norm(op, cx, point))?,
        Op::InstanceNormalization(_) => axes::instance_norm(op, cx, point),
        Op::GroupNormalization(o) => axes::group_norm(o, cx, point),

        Op::Identity(_) => cut::elementwise(op, cx, point),
        op => cut_by_class(op, cx, point),
    }
}

/// What serves all operators of a class; the whole is never wrong.
fn cut_by_class(op: &Op, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    match op.class() {
        Class::Pointwise(_) => cut::elementwise(op, cx, point),
        Class::Reduction => axes::reduce(op, op.as_reduce()?, cx, point),
        Class::Pool | Class::GlobalPool => windows::plane(op, cx, point),

        // The whole costs little more than reading it.
        Class::Movement | Class::Indexing | Class::Data | Class::Sequence | Class::Quantization => None,

        // Every element depends on most of the inputs, or on positions that only the operator knows.
        Class::Product
        | Class::Convolution
        | Class::Line
        | Class::Norm
        | Class::Loss
        | Class::Recurrent
        | Class::Attention
        | Class::Resampling
        | Class::Window
        | Class::Random
        | Class::Other => None,

        // Refused by the evaluation of the whole.
        Class::Control | Class::Custom => None,
    }
}
