//! The loop behind every element-wise operator: an output element is a function of one element of each
//! operand, read through broadcasting.

use std::borrow::Cow;
use std::ops::Range;

use planish_op::Value;
use planish_tensor::{DType, Element, Tensor, bf16, f16};

use crate::nd;
use crate::number::Number;
use crate::{EvalError, EvalResult, Evaluation};

/// A function of one element of each operand, in the type in which they are computed with.
pub(super) type Function<'f, W> = &'f (dyn Fn(&[W]) -> W + Sync);

/// What an operator is as a function of real numbers and as one of integers; `None` where it is not defined.
#[derive(Clone, Copy)]
pub(super) struct Definition<'f> {
    pub(super) real: Option<Function<'f, f64>>,
    pub(super) int: Option<Function<'f, i128>>,
    pub(super) output: Output,
}

/// The element type of the output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// The operands' own.
    Same,
    /// `Bool`: everything but zero is true.
    Bool,
}

/// Applies a definition to operands of one element type, broadcast against each other.
pub(super) fn apply(cx: &Evaluation<'_>, operands: &[&Tensor], definition: Definition<'_>) -> EvalResult {
    let shape = broadcast_all(cx, operands)?;
    let dtype = cx.common_type(operands)?;
    let undefined = || cx.bad_type(dtype);
    let (real, int) = (definition.real.ok_or_else(undefined), definition.int.ok_or_else(undefined));
    let problem = Problem { cx, operands, shape: &shape, output: definition.output };
    match dtype {
        DType::F64 => problem.solve::<f64>(real?),
        DType::F32 => problem.solve::<f32>(real?),
        DType::F16 => problem.solve::<f16>(real?),
        DType::BF16 => problem.solve::<bf16>(real?),
        DType::I8 => problem.solve::<i8>(int?),
        DType::I16 => problem.solve::<i16>(int?),
        DType::I32 => problem.solve::<i32>(int?),
        DType::I64 => problem.solve::<i64>(int?),
        DType::U8 => problem.solve::<u8>(int?),
        DType::U16 => problem.solve::<u16>(int?),
        DType::U32 => problem.solve::<u32>(int?),
        DType::U64 => problem.solve::<u64>(int?),
        DType::Bool => problem.solve::<bool>(int?),
        DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ
        | DType::F8E8M0
        | DType::F4E2M1
        | DType::I4
        | DType::U4
        | DType::I2
        | DType::U2 => Err(undefined()),
    }
}

/// The shape that all operands broadcast to.
pub(super) fn broadcast_all(cx: &Evaluation<'_>, operands: &[&Tensor]) -> Result<Vec<usize>, EvalError> {
    operands.iter().try_fold(Vec::new(), |shape, operand| nd::broadcast(cx, &shape, operand.shape()))
}

struct Problem<'a> {
    cx: &'a Evaluation<'a>,
    operands: &'a [&'a Tensor],
    shape: &'a [usize],
    output: Output,
}

impl Problem<'_> {
    fn solve<T: Number>(&self, function: Function<'_, T::Wide>) -> EvalResult {
        let output = match self.output {
            Output::Same => self.compute::<T, T>(|args| T::narrow(function(args)))?,
            Output::Bool => self.compute::<T, bool>(|args| function(args) != T::Wide::default())?,
        };
        Ok(vec![Value::Tensor(output)])
    }

    fn compute<T: Number, U: Element>(
        &self,
        function: impl Fn(&[T::Wide]) -> U + Sync,
    ) -> Result<Tensor, EvalError> {
        let len = nd::output_len(self.cx, U::DTYPE, self.shape)?;
        let operands: Vec<Broadcast<'_, T>> = self
            .operands
            .iter()
            .map(|operand| Broadcast::of(operand, self.shape))
            .collect::<Result<_, _>>()?;
        let out = nd::fill_elements(len, |range, out: &mut [U]| {
            let columns: Vec<Cow<'_, [T]>> =
                operands.iter().map(|operand| operand.read(range.clone())).collect();
            match columns.as_slice() {
                // What nearly all operators have, without a list to fill: Add is twice as fast so.
                [x] => out.iter_mut().zip(x.iter()).for_each(|(to, x)| *to = function(&[x.widen()])),
                [x, y] => {
                    let pairs = x.iter().zip(y.iter());
                    out.iter_mut()
                        .zip(pairs)
                        .for_each(|(to, (x, y))| *to = function(&[x.widen(), y.widen()]));
                }
                columns => {
                    let mut args = vec![T::Wide::default(); columns.len()];
                    for (place, to) in out.iter_mut().enumerate() {
                        args.iter_mut().zip(columns).for_each(|(arg, column)| *arg = column[place].widen());
                        *to = function(&args);
                    }
                }
            }
        });
        Ok(Tensor::new(self.shape, out)?)
    }
}

/// Elements read as if they were broadcast to a larger shape.
pub(super) struct Broadcast<'a, T: Clone> {
    elements: Cow<'a, [T]>,
    shape: &'a [usize],
    strides: Vec<usize>,
}

impl<'a, T: Element> Broadcast<'a, T> {
    /// A tensor of `T`s read with the shape `to`, to which it broadcasts.
    pub(super) fn of(tensor: &'a Tensor, to: &'a [usize]) -> Result<Self, EvalError> {
        Ok(Broadcast::new(tensor.elements()?, tensor.shape(), to))
    }
}

impl<'a, T: Copy> Broadcast<'a, T> {
    /// Elements of the shape `from` read with the shape `to`, to which it broadcasts.
    pub(super) fn new(elements: Cow<'a, [T]>, from: &[usize], to: &'a [usize]) -> Self {
        Broadcast { elements, shape: to, strides: nd::broadcast_strides(from, to) }
    }

    /// The elements at a range of flat indices of the larger shape.
    pub(super) fn read(&self, range: Range<usize>) -> Cow<'_, [T]> {
        match &*self.elements {
            [single] => Cow::Owned(vec![*single; range.len()]),
            // Broadcasting only repeats, so equal counts (not zero, or there is no range) mean equal order.
            all if all.len() == nd::count(self.shape) => Cow::Borrowed(&all[range]),
            all => {
                let mut column = Vec::with_capacity(range.len());
                self.for_each_run(range, |offset, len| match self.strides.last() {
                    Some(0) | None => column.extend(std::iter::repeat_n(all[offset], len)),
                    Some(stride) => column.extend((0..len).map(|step| all[offset + step * stride])),
                });
                Cow::Owned(column)
            }
        }
    }

    /// Calls `visit` with the offset and length of each stretch of a range that lies within one row (a line
    /// along the last axis).
    fn for_each_run(&self, range: Range<usize>, mut visit: impl FnMut(usize, usize)) {
        let (Some((&width, outer_shape)), Some((&stride, outer_strides))) =
            (self.shape.split_last(), self.strides.split_last())
        else {
            return visit(0, range.len());
        };
        let rows = range.start / width..range.end.div_ceil(width);
        nd::for_each_offset(outer_shape, outer_strides, rows, |row, offset| {
            let first = range.start.max(row * width);
            let end = range.end.min((row + 1) * width);
            visit(offset + (first - row * width) * stride, end - first);
        });
    }
}
