//! One pointwise operator over operands of any type, column by column.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use planish_kernel::{KernelError, KernelErrorKind, Problem};
use planish_op::{BitShiftDirection, Op, Pointwise};
use planish_tensor::DType;
use planish_tensor::small_float::E8M0Rounding;

use super::args::Args;
use super::arithmetic::{Order, Two, compare, fold, map, truths};
use super::casts::{Direct, cast, direct};
use super::column::{COLUMN, Form, Load, Rounding, Store, ints, ints_mut, reals, reals_mut, settle};
use crate::family::Work;
use crate::isa::Isa;
use crate::pointwise::loops::Args as LoopArgs;
use crate::pointwise::space::{Axis, Space, Stream};
use crate::shared::Shared;
use crate::spatial::units_per_task;
use crate::team::Team;

/// The most operands of an operator here.
const MOST: usize = 8;
/// Elements of a task: some 20 µs.
const TASK_ELEMENTS: usize = 1 << 14;

/// What one element is made by.
#[derive(Clone, Copy, Debug)]
enum Function {
    Real1(fn(f64) -> f64),
    /// Binary and variadic ones: what two words make, folded from the left.
    Fold(Two),
    Mean,
    Compare(Order),
    IsNan,
    IsInf {
        negative: bool,
        positive: bool,
    },
    Not,
    BitNot,
    Abs,
    Neg,
    Sign,
    Relu,
    Clip {
        low: bool,
        high: bool,
    },
    Select,
    Cast,
}

fn function(op: Pointwise<'_>, n_inputs: usize, given: &[bool]) -> Option<Function> {
    use Function::*;
    Some(match op {
        Pointwise::Abs(_) => Abs,
        Pointwise::Neg(_) => Neg,
        Pointwise::Sign(_) => Sign,
        Pointwise::Relu(_) => Relu,
        Pointwise::Not(_) => Not,
        Pointwise::BitwiseNot(_) => BitNot,
        Pointwise::Acos(_) => Real1(f64::acos),
        Pointwise::Asin(_) => Real1(f64::asin),
        Pointwise::Asinh(_) => Real1(f64::asinh),
        Pointwise::Atan(_) => Real1(f64::atan),
        Pointwise::Atanh(_) => Real1(f64::atanh),
        Pointwise::Ceil(_) => Real1(f64::ceil),
        Pointwise::Cos(_) => Real1(f64::cos),
        Pointwise::Cosh(_) => Real1(f64::cosh),
        Pointwise::Exp(_) => Real1(f64::exp),
        Pointwise::Floor(_) => Real1(f64::floor),
        Pointwise::Log(_) => Real1(f64::ln),
        Pointwise::Reciprocal(_) => Real1(f64::recip),
        Pointwise::Round(_) => Real1(f64::round_ties_even),
        Pointwise::Sigmoid(_) => Real1(sigmoid),
        Pointwise::Sin(_) => Real1(f64::sin),
        Pointwise::Sinh(_) => Real1(f64::sinh),
        Pointwise::Sqrt(_) => Real1(f64::sqrt),
        Pointwise::Tan(_) => Real1(f64::tan),
        Pointwise::Tanh(_) => Real1(f64::tanh),
        Pointwise::Softplus(_) => Real1(|x| x.max(0.0) + (-x.abs()).exp().ln_1p()),
        Pointwise::Softsign(_) => Real1(|x| x / (1.0 + x.abs())),
        Pointwise::HardSwish(_) => Real1(|x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0)),
        Pointwise::IsNaN(_) => IsNan,
        Pointwise::IsInf(op) => IsInf { negative: op.detect_negative, positive: op.detect_positive },
        Pointwise::Clip(_) => Clip { low: given.get(1) == Some(&true), high: given.get(2) == Some(&true) },
        Pointwise::Add(_) | Pointwise::Sum(_) => Fold(Two::Add),
        Pointwise::Sub(_) => Fold(Two::Sub),
        Pointwise::Mul(_) => Fold(Two::Mul),
        Pointwise::Div(_) => Fold(Two::Div),
        Pointwise::Pow(_) => Fold(Two::Pow),
        Pointwise::Mod(op) => Fold(if op.fmod { Two::Fmod } else { Two::Mod }),
        Pointwise::Min(_) => Fold(Two::Min),
        Pointwise::Max(_) => Fold(Two::Max),
        Pointwise::Mean(_) => Mean,
        Pointwise::PRelu(_) => Fold(Two::PRelu),
        Pointwise::And(_) | Pointwise::BitwiseAnd(_) => Fold(Two::And),
        Pointwise::Or(_) | Pointwise::BitwiseOr(_) => Fold(Two::Or),
        Pointwise::Xor(_) | Pointwise::BitwiseXor(_) => Fold(Two::Xor),
        Pointwise::BitShift(op) => {
            Fold(if op.direction == BitShiftDirection::Left { Two::Left } else { Two::Right })
        }
        Pointwise::Equal(_) => Compare(Order::Equal),
        Pointwise::Less(_) => Compare(Order::Less),
        Pointwise::LessOrEqual(_) => Compare(Order::LessOrEqual),
        Pointwise::Greater(_) => Compare(Order::Greater),
        Pointwise::GreaterOrEqual(_) => Compare(Order::GreaterOrEqual),
        Pointwise::Where(_) if n_inputs == 3 => Select,
        Pointwise::Cast(_) => Cast,
        // Functions with parameters, and those that f64 has no digits for in the standard library.
        _ => return None,
    })
}

fn sigmoid(x: f64) -> f64 {
    let small = (-x.abs()).exp();
    if x < 0.0 { small / (1.0 + small) } else { 1.0 / (1.0 + small) }
}

/// A pointwise operator at given sizes.
#[derive(Debug)]
pub(super) struct Elementwise {
    isa: Isa,
    direct: Option<Direct>,
    function: Function,
    args: Args,
    types: Vec<DType>,
    to: DType,
    rounding: Rounding,
    space: Space,
    /// Of the operands, and of the output.
    streams: Vec<Stream>,
}

pub(super) fn plan(isa: Isa, problem: &Problem, args: &Args) -> Option<Elementwise> {
    let ([node], [y]) = (&problem.region.nodes[..], &problem.outputs[..]) else { return None };
    let op = node.op.as_pointwise()?;
    let given: Vec<bool> = args.all.iter().map(Option::is_some).collect();
    let function = function(op, args.all.len(), &given)?;
    let operands: Vec<_> = args.all.iter().flatten().collect();
    let types: Vec<DType> = operands.iter().map(|arg| arg.operand.dtype).collect();
    let dense_only = |dtype: DType| dtype.is_sub_byte();
    let to = args.inferred(problem, 0)?;
    let mixes = matches!(function, Function::Cast | Function::Select | Function::Fold(Two::Pow));
    let fits = !operands.is_empty()
        && operands.len() <= MOST
        && to.dtype == y.dtype
        && to.dims == y.dims
        && (mixes || types.iter().all(|dtype| *dtype == types[0] && !dense_only(*dtype)));
    // Powers are of words of one form: those of integers are no numbers of f64, those of signed ones no unsigned ones.
    let form = Form::of(types[0]);
    let is_exact = !matches!(function, Function::Fold(Two::Pow))
        || types.iter().all(|ty| Form::of(*ty) == form && *ty != DType::Bool && !dense_only(*ty));
    let is_chosen =
        !matches!(function, Function::Select) || (types[1] == types[2] && types[0] == DType::Bool);
    if !fits || !is_exact || !is_chosen {
        return None;
    }
    let rank = y.rank();
    let axes = (0..rank).map(|axis| {
        let own = |arg: &&super::args::Arg| {
            let place = (axis + arg.operand.rank()).checked_sub(rank);
            let place = place.filter(|place| arg.operand.dims[*place] != 1);
            place.map_or(0, |place| arg.operand.strides[place])
        };
        let mut strides: Vec<usize> = operands.iter().map(own).collect();
        strides.push(y.strides[axis]);
        Axis { dim: y.dims[axis], strides }
    });
    let reaches = |arg: &&super::args::Arg| {
        let dims = &arg.operand.dims;
        let surplus = dims.len().saturating_sub(rank);
        dims[..surplus].iter().all(|dim| *dim == 1)
            && dims.iter().rev().zip(y.dims.iter().rev()).all(|(own, dim)| own == dim || *own == 1)
    };
    let (space, streams) = Space::of_all(axes.collect(), operands.len(), operands.len() + 1);
    let packs = |dtype: DType| dtype.is_sub_byte();
    let is_whole = !packs(y.dtype) || (space.n_rows == 1 && streams[operands.len()].dense);
    let cols_fit = streams.iter().all(|stream| stream.col_step.is_some());
    if !operands.iter().all(reaches) || !is_whole || !cols_fit {
        return None;
    }
    let rounding = match &node.op {
        Op::Cast(op) => Rounding {
            saturate: op.saturate,
            scale: match op.round_mode {
                planish_op::CastRounding::Up => E8M0Rounding::Up,
                planish_op::CastRounding::Down => E8M0Rounding::Down,
                planish_op::CastRounding::Nearest => E8M0Rounding::Nearest,
            },
        },
        _ => Rounding::USUAL,
    };
    let is_run = streams.iter().all(|stream| stream.col_step == Some(1));
    let direct = match function {
        Function::Cast if is_run => direct(types[0], y.dtype),
        _ => None,
    };
    Some(Elementwise {
        isa,
        direct,
        function,
        args: args.clone(),
        types,
        to: y.dtype,
        rounding,
        space,
        streams,
    })
}

impl Elementwise {
    /// Nanoseconds for an element on one thread.
    pub(super) fn element_ns(&self) -> f64 {
        match self.function {
            Function::Cast if self.direct.is_some() => 0.3,
            Function::Real1(_) | Function::Fold(Two::Pow | Two::Mod | Two::Fmod) => 15.0,
            Function::Fold(Two::Div) if !self.to.is_float() => 6.0,
            _ => 1.0,
        }
    }

    /// The words of an output column. Gives whether an integer was divided by zero.
    fn apply(&self, columns: &[[u64; COLUMN]], n: usize, out: &mut [u64]) -> bool {
        let form = Form::of(self.types[0]);
        let a = &columns[0][..n];
        let mut refused = false;
        match self.function {
            Function::Cast => cast(self.types[0], self.to, a, out),
            Function::Select => {
                let (yes, no) = (&columns[1][..n], &columns[2][..n]);
                for ((to, holds), (yes, no)) in out.iter_mut().zip(a).zip(yes.iter().zip(no)) {
                    *to = if *holds != 0 { *yes } else { *no };
                }
                return false;
            }
            Function::Real1(f) => map(reals_mut(out), reals(a), f),
            Function::Abs if form == Form::Real => map(reals_mut(out), reals(a), f64::abs),
            Function::Abs if form == Form::Int => map(ints_mut(out), ints(a), i64::wrapping_abs),
            Function::Neg if form == Form::Real => map(reals_mut(out), reals(a), |x| -x),
            Function::Neg => map(ints_mut(out), ints(a), i64::wrapping_neg),
            Function::Sign if form == Form::Real => {
                let sign = |x: f64| {
                    if x > 0.0 {
                        1.0
                    } else if x < 0.0 {
                        -1.0
                    } else {
                        x + 0.0
                    }
                };
                map(reals_mut(out), reals(a), sign);
            }
            Function::Sign if form == Form::Int => map(ints_mut(out), ints(a), i64::signum),
            Function::Sign => map(out, a, |x| u64::from(x != 0)),
            Function::Relu if form == Form::Real => {
                map(reals_mut(out), reals(a), |x| if x < 0.0 { 0.0 } else { x });
            }
            Function::Relu => map(ints_mut(out), ints(a), |x| x.max(0)),
            Function::Abs => out.copy_from_slice(a),
            Function::Not => map(out, a, |x| x ^ 1),
            Function::BitNot => map(out, a, |x| !x),
            Function::IsNan => truths(out, reals(a), f64::is_nan),
            Function::IsInf { negative, positive } => truths(out, reals(a), |x| {
                (positive && x == f64::INFINITY) || (negative && x == f64::NEG_INFINITY)
            }),
            Function::Compare(order) => {
                let b = &columns[1][..n];
                match form {
                    Form::Real => compare(order, reals(a), reals(b), out),
                    Form::Int => compare(order, ints(a), ints(b), out),
                    Form::Unsigned => compare(order, a, b, out),
                }
                return false;
            }
            Function::Clip { low, high } => self.clip(columns, n, (low, high), out),
            Function::Fold(two) => {
                out.copy_from_slice(a);
                for b in &columns[1..] {
                    refused |= fold(two, form, out, &b[..n]);
                }
            }
            Function::Mean => {
                out.copy_from_slice(a);
                columns[1..].iter().for_each(|b| {
                    fold(Two::Add, form, out, &b[..n]);
                });
                let count = columns.len() as f64;
                reals_mut(out).iter_mut().for_each(|x| *x /= count);
            }
        }
        settle(self.to, out);
        refused
    }

    fn clip(&self, columns: &[[u64; COLUMN]], n: usize, (low, high): (bool, bool), out: &mut [u64]) {
        out.copy_from_slice(&columns[0][..n]);
        let most = match self.to {
            DType::F32 => f64::from(f32::MAX),
            DType::F16 => 65504.0,
            DType::BF16 => f64::from(f32::from_bits(0x7f7f_0000)),
            _ => f64::MAX,
        };
        let form = Form::of(self.to);
        let bound = |idx: usize| columns[idx][0];
        let (lower, upper) = (low.then(|| bound(1)), high.then(|| bound(1 + usize::from(low))));
        match form {
            Form::Real => {
                let (low, high) = (lower.map_or(-most, f64::from_bits), upper.map_or(most, f64::from_bits));
                for x in reals_mut(out) {
                    let raised = if *x < low { low } else { *x };
                    *x = if raised > high { high } else { raised };
                }
            }
            Form::Int => {
                let (low, high) =
                    (lower.map_or(i64::MIN, |x| x as i64), upper.map_or(i64::MAX, |x| x as i64));
                ints_mut(out).iter_mut().for_each(|x| *x = (*x).max(low).min(high));
            }
            Form::Unsigned => {
                let (low, high) = (lower.unwrap_or(0), upper.unwrap_or(u64::MAX));
                out.iter_mut().for_each(|x| *x = (*x).max(low).min(high));
            }
        }
    }
}

impl Work for Elementwise {
    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let refused = AtomicBool::new(false);
        let Space { n_rows, n_cols, .. } = self.space;
        if n_rows * n_cols == 0 {
            return Ok(());
        }
        // Rows that are long are cut, short ones are joined.
        let cols_per_task = n_cols.min(TASK_ELEMENTS);
        let n_parts = n_cols.div_ceil(cols_per_task);
        let rows_per_task = units_per_task(n_rows, cols_per_task, TASK_ELEMENTS);
        team.for_each(n_rows.div_ceil(rows_per_task) * n_parts, &|task| {
            let (block, part) = (task.idx / n_parts, task.idx % n_parts);
            let rows = block * rows_per_task..((block + 1) * rows_per_task).min(n_rows);
            let cols = part * cols_per_task..((part + 1) * cols_per_task).min(n_cols);
            if let Some(Direct(run)) = &self.direct {
                for row in rows {
                    let shared = &shared;
                    let at = |stream: &Stream, dtype: DType| {
                        self.offset(stream, row, cols.start) * dtype.bits() / 8
                    };
                    let from = self.args.pointer(shared, 0).wrapping_add(at(&self.streams[0], self.types[0]));
                    let to = shared.outputs[0].wrapping_add(at(&self.streams[1], self.to));
                    let from = [from, std::ptr::null(), std::ptr::null()];
                    run(self.isa, &LoopArgs { from, steps: [1, 0, 0], to, n: cols.len() });
                }
                return;
            }
            let mut columns = [[0u64; COLUMN]; MOST];
            let mut out = [0u64; COLUMN];
            for row in rows {
                for first in cols.clone().step_by(COLUMN) {
                    let n = COLUMN.min(cols.end - first);
                    // SAFETY: the caller grants the operands; tasks write apart.
                    let divided = unsafe { self.column(&shared, row, first, n, (&mut columns, &mut out)) };
                    if divided {
                        refused.store(true, Relaxed);
                    }
                }
            }
        });
        match refused.into_inner() {
            true if matches!(self.function, Function::Fold(Two::Pow)) => {
                Err(KernelError::new(KernelErrorKind::BadValues, "integer zero to a negative power"))
            }
            true => Err(KernelError::new(KernelErrorKind::BadValues, "integer division by zero")),
            false => Ok(()),
        }
    }
}

impl Elementwise {
    /// Where an element of a row is.
    fn offset(&self, stream: &Stream, row: usize, col: usize) -> usize {
        let mut rest = row;
        let mut at = col * stream.col_step.unwrap_or(1);
        for (dim, stride) in self.space.row_dims.iter().zip(&stream.row_strides).rev() {
            at += rest % dim * stride;
            rest /= dim;
        }
        at
    }

    /// One column of a row.
    ///
    /// # Safety
    /// The operands must be readable and writable.
    unsafe fn column(
        &self,
        shared: &Shared<'_>,
        row: usize,
        first: usize,
        n: usize,
        (columns, out): (&mut [[u64; COLUMN]; MOST], &mut [u64; COLUMN]),
    ) -> bool {
        let offset = |stream: &Stream| self.offset(stream, row, first);
        let n_operands = self.types.len();
        for (idx, dtype) in self.types.iter().enumerate() {
            let stream = &self.streams[idx];
            let load = Load {
                dtype: *dtype,
                from: self.args.pointer(shared, idx),
                first: offset(stream),
                step: stream.col_step.unwrap_or(1),
                to: &mut columns[idx][..n],
            };
            // SAFETY: granted by the caller.
            unsafe { load.run(self.isa) };
        }
        let refused = self.apply(&columns[..n_operands], n, &mut out[..n]);
        let stream = &self.streams[n_operands];
        let store = Store {
            dtype: self.to,
            rounding: self.rounding,
            from: &out[..n],
            to: shared.outputs[0],
            first: offset(stream),
            step: stream.col_step.unwrap_or(1),
        };
        // SAFETY: granted by the caller; a column begins a byte, because its first element is a multiple of its length.
        unsafe { store.run(self.isa) };
        refused
    }
}
