//! Trilu, ReverseSequence and OneHot: elements of any width, moved whole.

use planish_kernel::{KernelError, KernelErrorKind, Layout, Problem};
use planish_op::Op;
use planish_tensor::{DType, normalize_axis};

use super::args::Args;
use super::column::Load;
use crate::family::Work;
use crate::isa::Isa;
use crate::shared::Shared;
use crate::spatial::units_per_task;
use crate::team::Team;

/// Bytes of a task: some 20 µs.
const TASK_BYTES: usize = 1 << 17;

#[derive(Debug)]
enum Form {
    /// Matrices of which a triangle is kept.
    Triangle { rows: usize, cols: usize, upper: bool },
    /// `[first][second][run]`, turned around along one of the two axes for each place of the other.
    Reverse { first: usize, second: usize, run: usize, time_first: bool },
    /// Places of `on` among `off`, along an axis of `depth`.
    OneHot { depth: usize, inner: usize },
}

/// One of them at given sizes, over dense operands.
#[derive(Debug)]
pub(super) struct Moves {
    isa: Isa,
    args: Args,
    form: Form,
    /// Bytes of an element.
    width: usize,
    /// How often the form is there, and elements of each in the output.
    n_blocks: usize,
    block: usize,
    /// The integers that say where.
    places: Option<(DType, usize)>,
}

pub(super) fn plan(isa: Isa, problem: &Problem, args: &Args) -> Option<Moves> {
    let ([node], [y]) = (&problem.region.nodes[..], &problem.outputs[..]) else { return None };
    let x = args.operand(0)?;
    let expected = args.inferred(problem, 0)?;
    let fits = expected.dtype == y.dtype
        && expected.dims == y.dims
        && y.is_dense(Layout::Plain)
        && args.are_dense()
        && !y.dtype.is_sub_byte()
        && !y.is_empty();
    let integers = |place: usize| {
        let operand = args.operand(place)?;
        operand.dtype.is_whole_int().then_some((operand.dtype, operand.len()))
    };
    let (form, block, places) = match &node.op {
        _ if !fits => return None,
        Op::Trilu(op) if x.dtype == y.dtype && x.dims == y.dims => {
            let &[.., rows, cols] = &x.dims[..] else { return None };
            let places = match args.get(1) {
                None => None,
                Some(_) => Some(integers(1).filter(|(_, n)| *n == 1)?),
            };
            (Form::Triangle { rows, cols, upper: op.upper }, rows * cols, places)
        }
        Op::ReverseSequence(op) if x.dtype == y.dtype && x.dims == y.dims => {
            let &[first, second, ref rest @ ..] = &x.dims[..] else { return None };
            let time_first = match (op.time_axis, op.batch_axis) {
                (0, 1) => true,
                (1, 0) => false,
                _ => return None,
            };
            let n_lines = if time_first { second } else { first };
            let places = integers(1).filter(|(_, n)| *n == n_lines)?;
            (Form::Reverse { first, second, run: rest.iter().product(), time_first }, y.len(), Some(places))
        }
        Op::OneHot(op) => {
            let axis = normalize_axis(op.axis, y.rank()).ok()?;
            let values = args.operand(2)?;
            let mut dims = y.dims.clone();
            let depth = dims.remove(axis);
            if dims != x.dims || values.dims != [2] || values.dtype != y.dtype {
                return None;
            }
            let inner: usize = y.dims[axis + 1..].iter().product();
            (Form::OneHot { depth, inner }, depth * inner, Some(integers(0)?))
        }
        _ => return None,
    };
    let n_blocks = y.len() / block.max(1);
    Some(Moves { isa, args: args.clone(), form, width: y.dtype.bits() / 8, n_blocks, block, places })
}

impl Moves {
    /// The integer number `at`.
    ///
    /// # Safety
    /// The operands must be readable.
    unsafe fn integer(&self, shared: &Shared<'_>, at: usize) -> i64 {
        let Some((dtype, n)) = self.places.filter(|(_, n)| at < *n) else { return 0 };
        let place = if matches!(self.form, Form::OneHot { .. }) { 0 } else { 1 };
        let mut word = [0u64; 1];
        let from = self.args.at(shared, place);
        // SAFETY: granted by the caller; there are `n` integers.
        unsafe { Load { dtype, from, first: at.min(n - 1), step: 1, to: &mut word }.run(self.isa) };
        word[0] as i64
    }

    /// One block of the output.
    ///
    /// # Safety
    /// As for `Work::run`.
    unsafe fn block(&self, shared: &Shared<'_>, block: usize) {
        let width = self.width;
        let at = block * self.block * width;
        // SAFETY: the output has these bytes, and this task alone writes them; so are the inputs below.
        let to = unsafe { std::slice::from_raw_parts_mut(shared.outputs[0].add(at), self.block * width) };
        match self.form {
            Form::Triangle { rows, cols, upper } => {
                // SAFETY: as above.
                let from = unsafe {
                    std::slice::from_raw_parts(self.args.at(shared, 0).add(at), self.block * width)
                };
                // SAFETY: granted by the caller.
                let k = unsafe { self.integer(shared, 0) };
                for row in 0..rows {
                    let line = row * cols * width..(row + 1) * cols * width;
                    let (from, to) = (&from[line.clone()], &mut to[line]);
                    let edge = (row as i64).saturating_add(k).saturating_add(i64::from(!upper));
                    let edge = edge.clamp(0, cols as i64) as usize * width;
                    let (kept, gone) =
                        if upper { (edge..cols * width, 0..edge) } else { (0..edge, edge..cols * width) };
                    to[kept.clone()].copy_from_slice(&from[kept]);
                    to[gone].fill(0);
                }
            }
            Form::Reverse { first, second, run, time_first } => {
                let bytes = run * width;
                // SAFETY: as above.
                let from = unsafe { std::slice::from_raw_parts(self.args.at(shared, 0), self.block * width) };
                for outer in 0..first {
                    for inner in 0..second {
                        let (time, line) = if time_first { (outer, inner) } else { (inner, outer) };
                        // SAFETY: granted by the caller.
                        let len = unsafe { self.integer(shared, line) } as usize;
                        let turned = if time < len { len - 1 - time } else { time };
                        let source =
                            if time_first { turned * second + inner } else { outer * second + turned };
                        let target = (outer * second + inner) * bytes;
                        to[target..target + bytes]
                            .copy_from_slice(&from[source * bytes..(source + 1) * bytes]);
                    }
                }
            }
            Form::OneHot { depth, inner } => {
                // SAFETY: there are two values.
                let values = unsafe { std::slice::from_raw_parts(self.args.at(shared, 2), 2 * width) };
                let (off, on) = values.split_at(width);
                to.chunks_exact_mut(width).for_each(|element| element.copy_from_slice(off));
                for col in 0..inner {
                    // SAFETY: granted by the caller.
                    let index = unsafe { self.integer(shared, block * inner + col) };
                    let place = if index < 0 { index.saturating_add(depth as i64) } else { index };
                    if (place as usize) < depth {
                        let at = (place as usize * inner + col) * width;
                        to[at..at + width].copy_from_slice(on);
                    }
                }
            }
        }
    }
}

impl Work for Moves {
    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        if let Form::Reverse { first, second, time_first, .. } = self.form {
            let (times, lines) = if time_first { (first, second) } else { (second, first) };
            for line in 0..lines {
                // SAFETY: granted by the caller.
                let len = unsafe { self.integer(&shared, line) };
                if len < 0 || len > times as i64 {
                    let why = format!("a sequence of {len} steps, where there are {times}");
                    return Err(KernelError::new(KernelErrorKind::BadValues, why));
                }
            }
        }
        let per_task = units_per_task(self.n_blocks, self.block * self.width, TASK_BYTES);
        team.for_each(self.n_blocks.div_ceil(per_task), &|task| {
            let shared = &shared;
            for block in task.idx * per_task..((task.idx + 1) * per_task).min(self.n_blocks) {
                // SAFETY: the caller grants the operands; blocks are written by one task each.
                unsafe { self.block(shared, block) };
            }
        });
        Ok(())
    }
}
