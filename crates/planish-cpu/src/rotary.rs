//! RotaryEmbedding: pairs of elements of each head's vector are turned by the angles of its step.
//!
//! Memory bounds it: vectors are read and written once, in the order in which the input lies, and the tables' rows come
//! from a near cache for all heads but one. Positions are checked before anything is written, and each again where it is
//! used: whatever happened to them in between, nothing outside of the tables is read.

mod family;
#[cfg(test)]
mod tests;

pub(crate) use family::RotaryFamily;

use planish_kernel::{KernelError, KernelErrorKind, rotary};
use planish_tensor::DType;

use crate::isa::Isa;
use crate::lines::each_vector;
use crate::simd::{Simd, SimdKernel};
use crate::spatial::units_per_task;
use crate::team::Team;

/// Elements of a task: some 5 µs.
const TASK_ELEMENTS: usize = 1 << 14;

/// Where something is in all operands: elements from their first one.
#[derive(Clone, Copy, Default, Debug)]
struct Offsets {
    x: usize,
    y: usize,
    cos: usize,
    sin: usize,
    position: usize,
}

impl Offsets {
    #[inline(always)]
    fn ahead(self, by: Offsets, n: usize) -> Offsets {
        Offsets {
            x: self.x.wrapping_add(by.x.wrapping_mul(n)),
            y: self.y.wrapping_add(by.y.wrapping_mul(n)),
            cos: self.cos.wrapping_add(by.cos.wrapping_mul(n)),
            sin: self.sin.wrapping_add(by.sin.wrapping_mul(n)),
            position: self.position.wrapping_add(by.position.wrapping_mul(n)),
        }
    }
}

/// Batches, heads or steps: how many, and the way from one to the next.
#[derive(Clone, Copy, Debug)]
struct Axis {
    len: usize,
    step: Offsets,
}

/// How positions are read, and how many rows there are for them.
#[derive(Clone, Copy, Debug)]
struct Rows {
    is_wide: bool,
    n_rows: usize,
    /// From one row of the tables to the next.
    cos: usize,
    sin: usize,
}

/// An embedding with everything settled that its sizes settle.
#[derive(Clone, Debug)]
pub struct RotaryPlan {
    isa: Isa,
    n_pairs: usize,
    interleaved: bool,
    /// Elements of a vector behind its pairs.
    n_kept: usize,
    /// As the input lies, outermost first.
    axes: [Axis; 3],
    /// With positions.
    rows: Option<Rows>,
    n_positions: usize,
}

/// What a run reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct RotaryArguments {
    pub x: *const f32,
    pub cos: *const f32,
    pub sin: *const f32,
    /// Not read without positions.
    pub positions: *const u8,
    pub y: *mut f32,
}

// SAFETY: the inputs are only read, and no two tasks write the same elements.
unsafe impl Sync for RotaryArguments {}

impl RotaryPlan {
    /// Of an embedding of f32.
    pub fn new(isa: Isa, of: &rotary::Rotary) -> RotaryPlan {
        let [batch, heads, seq, size] = of.x.sizes;
        let step = |axis: usize, cos: usize, sin: usize, position: usize| Offsets {
            x: of.x.strides[axis],
            y: of.y.strides[axis],
            cos,
            sin,
            position,
        };
        let rows = of.positions.as_ref().map(|positions| Rows {
            is_wide: positions.dtype == DType::I64,
            n_rows: positions.n_rows,
            cos: of.cos.strides[1],
            sin: of.sin.strides[1],
        });
        let (over_batch, over_seq) = match rows {
            Some(_) => (step(0, 0, 0, seq), step(2, 0, 0, 1)),
            None => (
                step(0, of.cos.strides[0], of.sin.strides[0], 0),
                step(2, of.cos.strides[1], of.sin.strides[1], 0),
            ),
        };
        let mut axes = [
            Axis { len: batch, step: over_batch },
            Axis { len: heads, step: step(1, 0, 0, 0) },
            Axis { len: seq, step: over_seq },
        ];
        axes.sort_by_key(|axis| std::cmp::Reverse(axis.step.x));
        RotaryPlan {
            isa,
            n_pairs: of.n_pairs,
            interleaved: of.interleaved,
            n_kept: size - 2 * of.n_pairs,
            axes,
            n_positions: if rows.is_some() { batch * seq } else { 0 },
            rows,
        }
    }

    /// Elements of a vector.
    fn size(&self) -> usize {
        2 * self.n_pairs + self.n_kept
    }

    fn n_vectors(&self) -> usize {
        if self.size() == 0 { 0 } else { self.axes.iter().map(|axis| axis.len).product() }
    }

    /// Makes the output.
    ///
    /// # Safety
    /// The pointers must be valid for what the planned operands span, positions dense, and nothing else may write them
    /// meanwhile. `y` may be `x` if their strides are the same.
    pub unsafe fn run(&self, arguments: &RotaryArguments, team: &Team) -> Result<(), KernelError> {
        let n_vectors = self.n_vectors();
        if let (Some(rows), 1..) = (self.rows, n_vectors) {
            for idx in 0..self.n_positions {
                // SAFETY: there are so many.
                let position = unsafe { rows.position(arguments.positions, idx) };
                if position as u64 >= rows.n_rows as u64 {
                    return Err(KernelError::new(
                        KernelErrorKind::BadValues,
                        format!("position {position} is not one of {}", rows.n_rows),
                    ));
                }
            }
        }
        let per_task = units_per_task(n_vectors, self.size(), TASK_ELEMENTS);
        team.for_each(n_vectors.div_ceil(per_task), &|task| {
            let first = task.idx * per_task;
            let vectors = first..(first + per_task).min(n_vectors);
            self.isa.run(Run { plan: self, vectors, arguments: *{ arguments } });
        });
        Ok(())
    }
}

impl Rows {
    /// # Safety
    /// There must be a position `idx`.
    #[inline(always)]
    unsafe fn position(&self, positions: *const u8, idx: usize) -> i64 {
        // SAFETY: the caller says so.
        unsafe {
            match self.is_wide {
                true => positions.cast::<i64>().add(idx).read_unaligned(),
                false => positions.cast::<i32>().add(idx).read_unaligned().into(),
            }
        }
    }
}

struct Run<'a> {
    plan: &'a RotaryPlan,
    vectors: std::ops::Range<usize>,
    arguments: RotaryArguments,
}

impl SimdKernel for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Run { plan, vectors, arguments } = self;
        let mut at = [0usize; 3];
        let mut here = Offsets::default();
        let mut rest = vectors.start;
        for (place, axis) in at.iter_mut().zip(&plan.axes).rev() {
            *place = rest % axis.len;
            rest /= axis.len;
            here = here.ahead(axis.step, *place);
        }
        for _ in vectors {
            let (mut cos, mut sin) = (here.cos, here.sin);
            if let Some(rows) = plan.rows {
                // SAFETY: there is a position for each step of each batch.
                let position = unsafe { rows.position(arguments.positions, here.position) };
                // As unsigned, one below zero is beyond any size.
                assert!((position as u64) < rows.n_rows as u64, "a position changed while it was used");
                cos += position as usize * rows.cos;
                sin += position as usize * rows.sin;
            }
            // SAFETY: the caller of `RotaryPlan::run` grants the operands, and the row is one of the tables'.
            unsafe {
                let (x, y) = (arguments.x.add(here.x), arguments.y.add(here.y));
                let (cos, sin) = (arguments.cos.add(cos), arguments.sin.add(sin));
                match plan.interleaved {
                    true => neighbours(s, x, y, cos, sin, plan.n_pairs),
                    false => halves(s, x, y, cos, sin, plan.n_pairs),
                }
                let (x, y) = (x.add(2 * plan.n_pairs), y.add(2 * plan.n_pairs));
                each_vector!(S, plan.n_kept, |at, rest| {
                    s.store_part(y.add(at), rest, s.load_part(x.add(at), rest));
                });
            }
            for (place, axis) in at.iter_mut().zip(&plan.axes).rev() {
                *place += 1;
                here = here.ahead(axis.step, 1);
                if *place < axis.len {
                    break;
                }
                here = here.ahead(axis.step, axis.len.wrapping_neg());
                *place = 0;
            }
        }
    }
}

/// A pair turned: `cos·a - sin·b` and `sin·a + cos·b`.
#[inline(always)]
fn turned<S: Simd>(s: S, (a, b): (S::F, S::F), cos: S::F, sin: S::F) -> (S::F, S::F) {
    (s.neg_mul_add(sin, b, s.mul(cos, a)), s.mul_add(sin, a, s.mul(cos, b)))
}

/// Pairs whose second elements are `n` behind the first ones.
///
/// # Safety
/// `x` and `y` must be good for `2 * n` elements, the tables for `n`. `y` may be `x`.
#[inline(always)]
unsafe fn halves<S: Simd>(s: S, x: *const f32, y: *mut f32, cos: *const f32, sin: *const f32, n: usize) {
    // SAFETY: the caller grants it; both elements of a pair are read before either is written.
    unsafe {
        each_vector!(S, n, |at, rest| {
            let pair = (s.load_part(x.add(at), rest), s.load_part(x.add(n + at), rest));
            let (cos, sin) = (s.load_part(cos.add(at), rest), s.load_part(sin.add(at), rest));
            let (first, second) = turned(s, pair, cos, sin);
            s.store_part(y.add(at), rest, first);
            s.store_part(y.add(n + at), rest, second);
        });
    }
}

/// Pairs of neighbours.
///
/// # Safety
/// As [`halves`].
#[inline(always)]
unsafe fn neighbours<S: Simd>(s: S, x: *const f32, y: *mut f32, cos: *const f32, sin: *const f32, n: usize) {
    // SAFETY: the caller grants it; a second vector of no elements is not touched.
    unsafe {
        each_vector!(S, n, |at, rest| {
            let (x, y) = (x.add(2 * at), y.add(2 * at));
            let more = (2 * rest).saturating_sub(S::LANES);
            let next = |vector: *const f32| vector.wrapping_add(S::LANES);
            let pair = s.unzip(s.load_part(x, 2 * rest), s.load_part(next(x), more));
            let (cos, sin) = (s.load_part(cos.add(at), rest), s.load_part(sin.add(at), rest));
            let (first, second) = turned(s, pair, cos, sin);
            let (first, second) = s.zip(first, second);
            s.store_part(y, 2 * rest, first);
            s.store_part(next(y).cast_mut(), more, second);
        });
    }
}
