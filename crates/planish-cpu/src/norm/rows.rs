//! Layer and RMS normalization: every row by itself.

use super::split;
use crate::isa::Isa;
use crate::lines::{Outside, Square, each_vector, moments_along, offsets, sum_along};
use crate::pointwise::Pointwise;
use crate::simd::{Simd, SimdKernel};

/// Elements of a task: some 10 µs.
const TASK_ELEMENTS: usize = 1 << 15;

/// What a row is divided by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowKind {
    /// Its deviation, after its mean is taken off.
    Layer,
    /// The root of its mean square.
    Rms,
}

/// A normalization of rows, its places settled.
#[derive(Debug)]
pub struct RowNorm {
    pub(super) isa: Isa,
    pub(super) kind: RowKind,
    /// Where rows begin in input and output.
    pub(super) outside: Vec<Outside>,
    /// Where the rows of a second input begin, which is added first.
    pub(super) residual: Option<Vec<Outside>>,
    pub(super) len: usize,
    pub(super) epsilon: f32,
    pub(super) epilogue: Option<Pointwise>,
}

/// The operands of a run; parameters have an element for each of a row.
#[derive(Clone, Copy, Debug)]
pub struct RowOperands {
    pub x: *const f32,
    /// Added to `x` where the plan says so.
    pub residual: *const f32,
    /// May be null: ones.
    pub scale: *const f32,
    /// May be null: zeros.
    pub bias: *const f32,
    pub y: *mut f32,
}

impl RowNorm {
    fn n_rows(&self) -> usize {
        self.outside.iter().map(|outside| outside.dim).product()
    }

    fn per_task(&self) -> usize {
        (TASK_ELEMENTS / self.len.max(1)).max(1)
    }

    /// How many tasks: a matter of sizes alone.
    pub fn n_tasks(&self) -> usize {
        if self.len == 0 { 0 } else { self.n_rows().div_ceil(self.per_task()) }
    }

    /// Workspace bytes of a slot.
    pub fn workspace_bytes(&self) -> usize {
        self.epilogue.as_ref().map_or(0, Pointwise::workspace_bytes)
    }

    /// Runs one task. `inputs` are those of the region, for the epilogue.
    ///
    /// # Safety
    /// The operands must be valid for the sizes and strides of the plan, `workspace` for `workspace_bytes()`;
    /// other tasks of the run may use them meanwhile, nobody else. `y` may be `x`.
    pub unsafe fn run_task(
        &self,
        task: usize,
        operands: RowOperands,
        inputs: &[*const u8],
        workspace: *mut u8,
    ) {
        let rows = task * self.per_task()..((task + 1) * self.per_task()).min(self.n_rows());
        for row in rows {
            let (from, to) = offsets(&self.outside, row);
            // SAFETY: the caller grants the operands; the row is one of the output's.
            unsafe {
                let mut own = operands;
                own.x = own.x.add(from);
                own.y = own.y.add(to);
                let residual =
                    self.residual.as_ref().map(|outside| own.residual.add(offsets(outside, row).0));
                self.isa.run(Row { plan: self, operands: own, residual });
                if let Some(epilogue) = &self.epilogue {
                    epilogue.run_block(inputs, own.y, self.len, row..row + 1, 0..self.len, workspace);
                }
            }
        }
    }
}

struct Row<'a> {
    plan: &'a RowNorm,
    operands: RowOperands,
    residual: Option<*const f32>,
}

impl SimdKernel for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let RowOperands { mut x, scale, bias, y, .. } = self.operands;
        let n = self.plan.len;
        let count = n as f64;
        // SAFETY: the caller of `run_task` grants a row of each.
        unsafe {
            if let Some(residual) = self.residual {
                each_vector!(S, n, |at, rest| {
                    let sum = s.add(s.load_part(x.add(at), rest), s.load_part(residual.add(at), rest));
                    s.store_part(y.add(at), rest, sum);
                });
                x = y.cast_const();
            }
            let (mean, square) = match self.plan.kind {
                RowKind::Layer => {
                    let (mean, squares) = moments_along(s, std::iter::once(x), n);
                    (mean, squares / count)
                }
                RowKind::Rms => (0.0, sum_along::<S, Square>(s, x, n, s.zero()) / count),
            };
            let inverse = (1.0 / (square + f64::from(self.plan.epsilon)).sqrt()) as f32;
            let (hi, lo) = split(mean);
            let (hi, lo, inverse) = (s.splat(hi), s.splat(lo), s.splat(inverse));
            let normal = |v: S::F| s.mul(s.sub(s.sub(v, hi), lo), inverse);
            match (scale.is_null(), bias.is_null()) {
                (false, false) => each_vector!(S, n, |at, rest| {
                    let v = normal(s.load_part(x.add(at), rest));
                    let (scale, bias) = (s.load_part(scale.add(at), rest), s.load_part(bias.add(at), rest));
                    s.store_part(y.add(at), rest, s.mul_add(v, scale, bias));
                }),
                (false, true) => each_vector!(S, n, |at, rest| {
                    let v = normal(s.load_part(x.add(at), rest));
                    s.store_part(y.add(at), rest, s.mul(v, s.load_part(scale.add(at), rest)));
                }),
                (true, _) => each_vector!(S, n, |at, rest| {
                    s.store_part(y.add(at), rest, normal(s.load_part(x.add(at), rest)));
                }),
            }
        }
    }
}
