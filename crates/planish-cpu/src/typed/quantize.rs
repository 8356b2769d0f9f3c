//! QuantizeLinear and DequantizeLinear of every type and granularity: integers of 2 to 16 bits, floats of 4 and 8, one scale
//! for all, for each place of an axis or for each block along one. The numbers are those of the reference, bit by bit.

use planish_kernel::{KernelError, Layout, Problem};
use planish_op::Op;
use planish_tensor::small_float::E8M0Rounding;
use planish_tensor::{DType, normalize_axis};

use super::args::{Arg, Args};
use super::column::{COLUMN, Form, Load, Rounding, Store, ints, ints_mut, reals_mut, settle};
use crate::family::Work;
use crate::isa::Isa;
use crate::shared::Shared;
use crate::team::Team;

/// Elements of a task, a multiple of a column: some 20 µs.
const TASK_ELEMENTS: usize = 1 << 13;

/// Which scale belongs to which element.
#[derive(Clone, Copy, Debug)]
enum Granularity {
    One,
    /// One scale for each place of an axis of `len`, `inner` elements apart.
    Axis {
        inner: usize,
        len: usize,
    },
    /// One scale for each `block` places of the axis, apart for all other places.
    Blocks {
        inner: usize,
        len: usize,
        block: usize,
    },
}

impl Granularity {
    fn of(x: &[usize], scale: &[usize], axis: i64, block: i64) -> Option<Granularity> {
        let block = usize::try_from(block).ok()?;
        if scale.is_empty() || (block == 0 && scale.iter().product::<usize>() == 1) {
            return Some(Granularity::One);
        }
        let axis = normalize_axis(axis, x.len()).ok()?;
        let (inner, len) = (x[axis + 1..].iter().product(), x[axis]);
        if block == 0 {
            return (scale == [len]).then_some(Granularity::Axis { inner, len });
        }
        let mut expected = x.to_vec();
        expected[axis] = len.div_ceil(block);
        (scale == expected).then_some(Granularity::Blocks { inner, len, block })
    }

    /// The place of an element's scale, how many elements from it on have their scales in order, and how far apart these are.
    fn run(self, flat: usize) -> (usize, usize, usize) {
        match self {
            Granularity::One => (0, usize::MAX, 0),
            Granularity::Axis { inner: 1, len } => (flat % len, len - flat % len, 1),
            Granularity::Axis { inner, len } => (flat / inner % len, inner - flat % inner, 0),
            Granularity::Blocks { inner, len, block } => {
                let (outer, along) = (flat / inner / len, flat / inner % len);
                let place = (outer * len.div_ceil(block) + along / block) * inner + flat % inner;
                match inner {
                    1 => (place, (block - along % block).min(len - along), 0),
                    _ => (place, inner - flat % inner, 1),
                }
            }
        }
    }
}

/// What is made of an element.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// The division is in this type.
    Quantize {
        precision: DType,
    },
    Dequantize,
}

/// One of the operators at given sizes, over dense operands.
#[derive(Debug)]
pub(super) struct Quantization {
    isa: Isa,
    args: Args,
    way: Way,
    granularity: Granularity,
    n: usize,
    to: DType,
    rounding: Rounding,
}

pub(super) fn plan(isa: Isa, problem: &Problem, args: &Args) -> Option<Quantization> {
    let ([node], [y]) = (&problem.region.nodes[..], &problem.outputs[..]) else { return None };
    let (x, scale, zero) = (args.operand(0)?, args.operand(1)?, args.operand(2));
    let is_scale = scale.dtype.is_wide_float() || scale.dtype == DType::F8E8M0;
    let (axis, block, saturate, way) = match &node.op {
        Op::QuantizeLinear(op) if x.dtype.is_wide_float() || x.dtype == DType::I32 => {
            let known = [op.precision, Some(scale.dtype), Some(x.dtype), Some(DType::F32)];
            let precision = known.into_iter().flatten().find(|dtype| dtype.is_wide_float())?;
            (op.axis, op.block_size, op.saturate, Way::Quantize { precision })
        }
        Op::DequantizeLinear(op) if y.dtype.is_wide_float() => {
            (op.axis, op.block_size, true, Way::Dequantize)
        }
        _ => return None,
    };
    let small = match way {
        Way::Quantize { .. } => y.dtype,
        Way::Dequantize => x.dtype,
    };
    let is_small = (small.is_int() && small.bits() <= 16)
        || (small.is_small_float() && small != DType::F8E8M0)
        || (small == DType::I32 && matches!(way, Way::Dequantize));
    let zero_fits = zero.is_none_or(|zero| {
        zero.dtype == small && (zero.dims == scale.dims || (zero.len() == 1 && scale.len() == 1))
    });
    let expected = args.inferred(problem, 0)?;
    let fits = is_scale
        && is_small
        && zero_fits
        && (expected.dtype, &expected.dims) == (y.dtype, &y.dims)
        && x.dims == y.dims
        && y.is_dense(Layout::Plain)
        && args.are_dense();
    if !fits {
        return None;
    }
    let granularity = Granularity::of(&x.dims, &scale.dims, axis, block)?;
    let rounding = Rounding { saturate, scale: E8M0Rounding::Nearest };
    Some(Quantization { isa, args: args.clone(), way, granularity, n: y.len(), to: y.dtype, rounding })
}

/// Words as numbers, whatever they were.
fn to_reals(dtype: DType, words: &mut [u64]) {
    if Form::of(dtype) != Form::Real {
        for at in 0..words.len() {
            words[at] = (ints(words)[at] as f64).to_bits();
        }
    }
}

impl Quantization {
    /// The numbers of the parameter at a place of the node, one for each of the elements from `first` on.
    ///
    /// # Safety
    /// The operands must be readable.
    unsafe fn parameter(&self, shared: &Shared<'_>, place: usize, first: usize, words: &mut [u64]) {
        let Some(Arg { operand, .. }) = self.args.get(place) else { return words.fill(0) };
        let (dtype, from) = (operand.dtype, self.args.at(shared, place));
        let mut done = 0;
        while done < words.len() {
            let (at, len, step) = self.granularity.run(first + done);
            let end = done.saturating_add(len).min(words.len());
            // SAFETY: the caller grants the operands, and every element has its parameter there.
            unsafe {
                Load { dtype, from, first: at, step, to: &mut words[done..end] }.run(self.isa);
            }
            done = end;
        }
        to_reals(dtype, words);
    }

    /// One column of elements.
    ///
    /// # Safety
    /// The operands must be readable and writable.
    unsafe fn column(&self, shared: &Shared<'_>, first: usize, n: usize) {
        let (mut x, mut scale, mut zero) = ([0u64; COLUMN], [0u64; COLUMN], [0u64; COLUMN]);
        let (x, scale, zero) = (&mut x[..n], &mut scale[..n], &mut zero[..n]);
        let Some(Arg { operand, .. }) = self.args.get(0) else { return };
        let (dtype, from) = (operand.dtype, self.args.at(shared, 0));
        // SAFETY: granted by the caller.
        unsafe {
            Load { dtype, from, first, step: 1, to: &mut *x }.run(self.isa);
            self.parameter(shared, 1, first, scale);
            self.parameter(shared, 2, first, zero);
        }
        to_reals(dtype, x);
        match self.way {
            Way::Quantize { precision } => {
                settle(precision, x);
                settle(precision, scale);
                let divided = reals_mut(x).iter_mut().zip(reals_mut(scale));
                divided.for_each(|(x, scale)| *x /= *scale);
                settle(precision, x);
                self.to_small(x, zero);
            }
            Way::Dequantize => {
                let parameters = reals_mut(scale).iter().zip(&*reals_mut(zero));
                let numbers = reals_mut(x).iter_mut().zip(parameters);
                numbers.for_each(|(x, (scale, zero))| *x = (*x - zero) * scale);
                settle(self.to, x);
            }
        }
        let to = shared.outputs[0];
        // SAFETY: granted by the caller; columns begin at multiples of their length, so at whole bytes.
        unsafe {
            Store { dtype: self.to, rounding: self.rounding, from: x, to, first, step: 1 }.run(self.isa);
        }
    }

    /// Ratios as words of the quantized type: integers are rounded before the zero point is added, and held within their
    /// range; floats are rounded as they are stored. NaN becomes the lowest integer.
    fn to_small(&self, ratios: &mut [u64], zeros: &mut [u64]) {
        let zeros = &*reals_mut(zeros);
        match self.to.int_range() {
            Some((low, high)) => {
                let (low, high) = (low as f64, high as f64);
                for (at, zero) in zeros.iter().enumerate() {
                    let rounded = f64::from_bits(ratios[at]).round_ties_even() + zero;
                    // The larger of NaN and a number is the number.
                    ints_mut(ratios)[at] = rounded.max(low).min(high) as i64;
                }
            }
            None => {
                let both = reals_mut(ratios).iter_mut().zip(zeros);
                both.filter(|(_, zero)| **zero != 0.0).for_each(|(ratio, zero)| *ratio += zero);
            }
        }
    }
}

impl Work for Quantization {
    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        team.for_each(self.n.div_ceil(TASK_ELEMENTS), &|task| {
            let shared = &shared;
            let end = self.n.min((task.idx + 1) * TASK_ELEMENTS);
            for first in (task.idx * TASK_ELEMENTS..end).step_by(COLUMN) {
                // SAFETY: the caller grants the operands; tasks write apart.
                unsafe { self.column(shared, first, COLUMN.min(end - first)) };
            }
        });
        Ok(())
    }
}
