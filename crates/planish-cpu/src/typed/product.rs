//! MatMul and Gemm of f64: a panel of columns at a time, whose sums for a few rows stay in registers.

use std::ops::Range;

use planish_kernel::{KernelError, Layout, Problem};
use planish_op::Op;
use planish_tensor::DType;

use super::args::Args;
use crate::family::Work;
use crate::isa::Isa;
use crate::shared::Shared;
use crate::simd::{Simd, SimdKernel};
use crate::team::{Task, Team};

/// Columns of a panel: four of the longest vectors.
const COLUMNS: usize = 32;
/// Rows whose sums stay in registers: four vectors each.
const ROWS: usize = 4;
/// Rows of a task.
const TASK_ROWS: usize = 64;

/// One with everything settled that its sizes settle. Operands are dense.
#[derive(Debug)]
pub(super) struct Product {
    isa: Isa,
    args: Args,
    /// Sizes of the batch, with the elements from one matrix to the next of both factors.
    batch: Vec<(usize, [usize; 2])>,
    /// Rows, terms and columns.
    sizes: [usize; 3],
    /// Elements from row to row and from term to term of the first factor, from term to term and from column to column of
    /// the second.
    a: [usize; 2],
    b: [usize; 2],
    /// Elements from row to row and from column to column of what is added, if something is.
    c: Option<[usize; 2]>,
    alpha: f64,
    beta: f64,
}

pub(super) fn plan(isa: Isa, problem: &Problem, args: &Args) -> Option<Product> {
    let ([node], [y]) = (&problem.region.nodes[..], &problem.outputs[..]) else { return None };
    let (a, b) = (args.operand(0)?, args.operand(1)?);
    let made = args.inferred(problem, 0)?;
    let is_f64 = args.all.iter().flatten().all(|arg| arg.operand.dtype == DType::F64);
    let fits = is_f64
        && y.dtype == DType::F64
        && made.dims == y.dims
        && y.is_dense(Layout::Plain)
        && args.are_dense()
        && a.rank() >= 2
        && b.rank() >= 2;
    if !fits {
        return None;
    }
    let of = |turned: bool, dims: &[usize]| match turned {
        true => ([dims[1], dims[0]], [1, dims[1]]),
        false => ([dims[0], dims[1]], [dims[1], 1]),
    };
    let (last_a, last_b) = (&a.dims[a.rank() - 2..], &b.dims[b.rank() - 2..]);
    let (turns, alpha, beta, c) = match &node.op {
        Op::MatMul(_) => ([false; 2], 1.0, 0.0, None),
        Op::Gemm(op) => {
            let c = args.operand(2).map(|c| {
                let size = |from_end: usize| c.rank().checked_sub(from_end).map_or(1, |axis| c.dims[axis]);
                let step = |size: usize, step: usize| if size == 1 { 0 } else { step };
                [step(size(2), size(1)), step(size(1), 1)]
            });
            ([op.trans_a, op.trans_b], op.alpha.into(), op.beta.into(), c)
        }
        _ => return None,
    };
    let ([m, k], a_steps) = of(turns[0], last_a);
    let ([of_b, n], b_steps) = of(turns[1], last_b);
    if of_b != k || y.dims[y.rank() - 2..] != [m, n] {
        return None;
    }
    let outer = &y.dims[..y.rank() - 2];
    let step = |rank: usize, dims: &[usize], axis: usize| {
        // Axes are counted from the last one.
        let own = (rank - 2).checked_sub(outer.len() - axis)?;
        (dims[own] != 1).then(|| dims[own + 1..].iter().product())
    };
    let batch = outer.iter().enumerate().map(|(axis, &len)| {
        (len, [step(a.rank(), &a.dims, axis).unwrap_or(0), step(b.rank(), &b.dims, axis).unwrap_or(0)])
    });
    let batch = batch.collect();
    Some(Product { isa, args: args.clone(), batch, sizes: [m, k, n], a: a_steps, b: b_steps, c, alpha, beta })
}

impl Product {
    fn n_matrices(&self) -> usize {
        self.batch.iter().map(|(len, _)| len).product()
    }

    fn n_parts(&self) -> [usize; 2] {
        [self.sizes[0].div_ceil(TASK_ROWS), self.sizes[2].div_ceil(COLUMNS)]
    }

    /// Nanoseconds of an element of the output.
    pub(super) fn element_ns(&self) -> f64 {
        0.1 * self.sizes[1] as f64
    }
}

/// Some rows of a panel of columns.
struct Part<'a> {
    plan: &'a Product,
    shared: Shared<'a>,
    task: Task,
}

impl SimdKernel for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let plan = self.plan;
        let [m, k, n] = plan.sizes;
        let [n_blocks, n_panels] = plan.n_parts();
        let (rest, block) = (self.task.idx / n_blocks, self.task.idx % n_blocks);
        let (matrix, panel) = (rest / n_panels, rest % n_panels);
        let (mut at_a, mut at_b, mut rest) = (0, 0, matrix);
        for (len, [a, b]) in plan.batch.iter().rev() {
            at_a += rest % len * a;
            at_b += rest % len * b;
            rest /= len;
        }
        let columns = panel * COLUMNS..((panel + 1) * COLUMNS).min(n);
        let rows = block * TASK_ROWS..((block + 1) * TASK_ROWS).min(m);
        let a = plan.args.at(&self.shared, 0).cast::<f64>().wrapping_add(at_a);
        let b = plan.args.at(&self.shared, 1).cast::<f64>().wrapping_add(at_b);
        // SAFETY: each slot has as much workspace as was asked for; the caller of `Work::run` grants the operands, and no
        // other task has these elements of the output.
        unsafe {
            let start = self.shared.workspace.cast::<f64>().add(self.task.slot * k * COLUMNS);
            std::ptr::write_bytes(start, 0, k * COLUMNS);
            let packed = std::slice::from_raw_parts_mut(start, k * COLUMNS);
            for (term, packed) in packed.chunks_exact_mut(COLUMNS).enumerate() {
                for (to, column) in packed.iter_mut().zip(columns.clone()) {
                    *to = b.add(term * plan.b[0] + column * plan.b[1]).read_unaligned();
                }
            }
            self.multiply(a, packed, matrix * m * n, rows, columns);
        }
    }
}

impl Part<'_> {
    /// # Safety
    /// As for `Work::run`; there must be such rows and columns.
    #[inline(always)]
    unsafe fn multiply(
        &self,
        a: *const f64,
        packed: &[f64],
        start: usize,
        rows: Range<usize>,
        columns: Range<usize>,
    ) {
        let plan = self.plan;
        let n = plan.sizes[2];
        let y = self.shared.outputs[0].cast::<f64>();
        let c = plan.args.at(&self.shared, 2).cast::<f64>();
        for first in rows.clone().step_by(ROWS) {
            let n_rows = ROWS.min(rows.end - first);
            let mut sums = [[0f64; COLUMNS]; ROWS];
            // Those that are too many are the last one again.
            let lines: [*const f64; ROWS] =
                std::array::from_fn(|at| a.wrapping_add((first + at.min(n_rows - 1)) * plan.a[0]));
            for (term, packed) in packed.chunks_exact(COLUMNS).enumerate() {
                for (sums, line) in sums.iter_mut().zip(lines) {
                    // SAFETY: granted by the caller.
                    let by = unsafe { line.add(term * plan.a[1]).read_unaligned() };
                    sums.iter_mut().zip(packed).for_each(|(sum, factor)| *sum += by * factor);
                }
            }
            for (at, sums) in sums.iter().enumerate().take(n_rows) {
                let row = first + at;
                for (sum, column) in sums.iter().zip(columns.clone()) {
                    // SAFETY: granted by the caller.
                    unsafe {
                        let added = match plan.c {
                            Some([by_row, by_column]) => {
                                plan.beta * c.add(row * by_row + column * by_column).read_unaligned()
                            }
                            None => 0.0,
                        };
                        y.add(start + row * n + column).write_unaligned(plan.alpha * sum + added);
                    }
                }
            }
        }
    }
}

impl Work for Product {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        n_slots * self.sizes[1] * COLUMNS * size_of::<f64>()
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let n_tasks = self.n_matrices() * self.n_parts().iter().product::<usize>();
        team.for_each(n_tasks, &|task| self.isa.run(Part { plan: self, shared, task }));
        Ok(())
    }
}
