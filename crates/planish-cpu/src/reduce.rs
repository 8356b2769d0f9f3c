//! Reductions over any axes, in any layout: sums, means, extremes, norms, logarithms of sums; where extremes
//! lie; running sums.
//!
//! Axes are joined as far as memory allows. If the innermost ones are reduced, vectors go along them and every
//! result is a row's; if the innermost are kept, vectors go across and every lane is a result's; of pairs (complex
//! numbers) a vector has the first elements, another the second ones. Sums are in
//! f32 over blocks and in f64 beyond, so that their error does not grow with their length.

mod arg;
pub(crate) mod family;
mod scan;
#[cfg(test)]
mod tests;

pub use arg::ArgExtreme;
pub use scan::RunningSum;

use std::ops::Range;

use planish_op::Reduction;

use crate::isa::Isa;
use crate::lines::{Exponential, Magnitude, Outside, Own, Square, Term, load_or, offsets, sum_along};
use crate::simd::{Simd, SimdKernel};
use crate::vecmath;

/// Elements of a task.
const TASK_ELEMENTS: usize = 1 << 16;

/// What a reduction makes, of which elements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reduced {
    pub by: Reduction,
    /// The least that a mean divides by: with 0 the mean of nothing is NaN, with 1 it is 0.
    pub least_count: f64,
}

/// A reduction with its places settled.
#[derive(Clone, Debug)]
pub struct Reduce {
    isa: Isa,
    reduction: Reduction,
    least_count: f64,
    /// Where each result's first element lies, and where the result goes.
    kept: Vec<Outside>,
    /// Where the other elements of a result lie; the last in this list are neighbours where `form` is `Along`.
    reduced: Vec<Outside>,
    form: Form,
    n_reduced: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// Elements of a result lie in runs of this length.
    Along(usize),
    /// So many results lie side by side.
    Across(usize),
    /// The same of neighbouring pairs, as complex numbers are.
    Pairs(usize),
    /// Neither: element by element.
    Single,
}

impl Reduce {
    /// `to` has a stride for every axis of the input; those of reduced axes are not looked at.
    pub fn new(
        isa: Isa,
        Reduced { by: reduction, least_count }: Reduced,
        dims: &[usize],
        from: &[usize],
        to: &[usize],
        is_reduced: &[bool],
    ) -> Reduce {
        let mut order: Vec<usize> = (0..dims.len()).filter(|axis| dims[*axis] != 1).collect();
        order.sort_by_key(|axis| std::cmp::Reverse(from[*axis]));
        let pick = |wanted: bool| -> Vec<Outside> {
            let all = order.iter().filter(|axis| is_reduced[**axis] == wanted);
            let stride = |axis: usize| if wanted { from[axis] } else { to[axis] };
            crate::lines::merged(
                all.map(|&axis| Outside { dim: dims[axis], from: from[axis], to: stride(axis) }).collect(),
            )
        };
        let (mut kept, mut reduced) = (pick(false), pick(true));
        let n_reduced = reduced.iter().map(|outside| outside.dim).product();
        let vectors = reduction != Reduction::Prod;
        let is_pair = reduced[..] == [Outside { dim: 2, from: 1, to: 1 }];
        let form = match (kept.last().copied(), reduced.last().copied()) {
            (Some(Outside { dim, from: 2, to: 1 }), _) if vectors && is_pair => {
                kept.pop();
                Form::Pairs(dim)
            }
            (_, Some(Outside { dim, from: 1, .. })) if vectors => {
                reduced.pop();
                Form::Along(dim)
            }
            (Some(Outside { dim, from: 1, to: 1 }), _) if vectors => {
                kept.pop();
                Form::Across(dim)
            }
            _ => Form::Single,
        };
        Reduce { isa, reduction, least_count, kept, reduced, form, n_reduced }
    }

    /// Results, or vectors of results side by side.
    fn n_units(&self) -> usize {
        let n_kept: usize = self.kept.iter().map(|outside| outside.dim).product();
        match self.form {
            Form::Across(width) | Form::Pairs(width) => n_kept * width.div_ceil(self.isa.lanes()),
            Form::Along(_) | Form::Single => n_kept,
        }
    }

    fn per_task(&self) -> usize {
        let lanes = match self.form {
            Form::Across(_) | Form::Pairs(_) => self.isa.lanes(),
            Form::Along(_) | Form::Single => 1,
        };
        (TASK_ELEMENTS / (self.n_reduced.max(1) * lanes)).max(1)
    }

    /// How many tasks: a matter of sizes alone.
    pub fn n_tasks(&self) -> usize {
        self.n_units().div_ceil(self.per_task())
    }

    /// Runs one task.
    ///
    /// # Safety
    /// `from` and `to` must be valid for the sizes and strides given; other tasks of the run may use them
    /// meanwhile, nobody else.
    pub unsafe fn run_task(&self, task: usize, from: *const f32, to: *mut f32) {
        let units = task * self.per_task()..((task + 1) * self.per_task()).min(self.n_units());
        match self.reduction {
            Reduction::L1 => self.run_units::<Magnitude>(units, from, to),
            Reduction::L2 | Reduction::SumSquare => self.run_units::<Square>(units, from, to),
            Reduction::LogSumExp => self.run_units::<Exponential>(units, from, to),
            _ => self.run_units::<Own>(units, from, to),
        }
    }

    fn run_units<T: Term>(&self, units: Range<usize>, from: *const f32, to: *mut f32) {
        self.isa.run(Run::<T> { term: std::marker::PhantomData, plan: self, units, from, to });
    }

    /// The result, from the sum (or for `LogSumExp` the sum of exponentials beside `most`).
    #[inline(always)]
    fn finish(&self, sum: f64, most: f32) -> f32 {
        let n = self.n_reduced as f64;
        match self.reduction {
            Reduction::Mean => (sum / n.max(self.least_count)) as f32,
            Reduction::L2 => sum.sqrt() as f32,
            Reduction::LogSum => sum.ln() as f32,
            Reduction::LogSumExp if most.is_infinite() => most,
            Reduction::LogSumExp => (sum.ln() + f64::from(most)) as f32,
            Reduction::Max | Reduction::Min => most,
            Reduction::L1 | Reduction::Prod | Reduction::Sum | Reduction::SumSquare => sum as f32,
        }
    }

    fn needs_most(&self) -> bool {
        matches!(self.reduction, Reduction::Max | Reduction::Min | Reduction::LogSumExp)
    }

    fn needs_sum(&self) -> bool {
        !matches!(self.reduction, Reduction::Max | Reduction::Min)
    }

    /// The extreme of nothing.
    fn worst(&self) -> f32 {
        if self.reduction == Reduction::Min { f32::INFINITY } else { f32::NEG_INFINITY }
    }

    /// The more extreme of two; NaN wins.
    #[inline(always)]
    fn extreme<S: Simd>(&self, s: S, most: S::F, v: S::F) -> S::F {
        let beats = if self.reduction == Reduction::Min { s.lt(v, most) } else { s.lt(most, v) };
        s.select(s.mask_or(beats, s.is_nan(v)), v, most)
    }

    fn extreme_of(&self, most: f32, v: f32) -> f32 {
        let beats = if self.reduction == Reduction::Min { v < most } else { v > most };
        if beats || v.is_nan() { v } else { most }
    }
}

struct Run<'a, T> {
    term: std::marker::PhantomData<T>,
    plan: &'a Reduce,
    units: Range<usize>,
    from: *const f32,
    to: *mut f32,
}

impl<T: Term> SimdKernel for Run<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let plan = self.plan;
        for unit in self.units {
            // SAFETY: the caller of `run_task` grants the operands.
            unsafe {
                match plan.form {
                    Form::Along(len) => {
                        let (from, to) = offsets(&plan.kept, unit);
                        *self.to.add(to) = along::<S, T>(s, plan, self.from.add(from), len);
                    }
                    Form::Across(width) => {
                        let n_vectors = width.div_ceil(S::LANES);
                        let (from, to) = offsets(&plan.kept, unit / n_vectors);
                        let first = unit % n_vectors * S::LANES;
                        let (from, to) = (self.from.add(from + first), self.to.add(to + first));
                        across::<S, T>(s, plan, from, to, width - first);
                    }
                    Form::Pairs(width) => {
                        let n_vectors = width.div_ceil(S::LANES);
                        let (from, to) = offsets(&plan.kept, unit / n_vectors);
                        let first = unit % n_vectors * S::LANES;
                        let (from, to) = (self.from.add(from + 2 * first), self.to.add(to + first));
                        pairs::<S, T>(s, plan, from, to, (width - first).min(S::LANES));
                    }
                    Form::Single => {
                        let (from, to) = offsets(&plan.kept, unit);
                        *self.to.add(to) = single(plan, self.from.add(from));
                    }
                }
            }
        }
    }
}

/// # Safety
/// All elements of the result must be readable.
#[inline(always)]
unsafe fn along<S: Simd, T: Term>(s: S, plan: &Reduce, from: *const f32, len: usize) -> f32 {
    let n_runs = plan.n_reduced.checked_div(len).unwrap_or(0);
    // SAFETY: the caller grants it.
    unsafe {
        let run = |idx: usize| from.add(offsets(&plan.reduced, idx).0);
        let mut most = plan.worst();
        if plan.needs_most() {
            let mut both = [s.splat(most); 2];
            for idx in 0..n_runs {
                let run = run(idx);
                let mut at = 0;
                while at + 2 * S::LANES <= len {
                    both[0] = plan.extreme(s, both[0], s.load(run.add(at)));
                    both[1] = plan.extreme(s, both[1], s.load(run.add(at + S::LANES)));
                    at += 2 * S::LANES;
                }
                while at < len {
                    both[0] = plan.extreme(s, both[0], load_or(s, run.add(at), len - at, most));
                    at += S::LANES;
                }
            }
            let mut lanes = [0.0; vecmath::MAX_LANES];
            s.store(lanes.as_mut_ptr(), plan.extreme(s, both[0], both[1]));
            most = lanes[..S::LANES].iter().fold(most, |most, v| plan.extreme_of(most, *v));
        }
        let mut sum = 0.0;
        if plan.needs_sum() {
            let center = s.splat(most);
            for idx in 0..n_runs {
                sum += sum_along::<S, T>(s, run(idx), len, center);
            }
        }
        plan.finish(sum, most)
    }
}

/// Elements that are added in f32 before the sums go on in f64.
const BLOCK: usize = 64;

/// Up to a vector of results side by side.
///
/// # Safety
/// All elements of the results must be readable, and the results writable.
#[inline(always)]
unsafe fn across<S: Simd, T: Term>(s: S, plan: &Reduce, from: *const f32, to: *mut f32, width: usize) {
    // The innermost reduced dimension is walked by its stride, the others by their number.
    let (outer, inner) = match plan.reduced.split_last() {
        Some((inner, outer)) => (outer, *inner),
        None => (&[][..], Outside { dim: 1, from: 0, to: 0 }),
    };
    let n_outer = outer.iter().map(|outside| outside.dim).product::<usize>();
    // SAFETY: the caller grants it; lanes beyond `width` are never stored.
    unsafe {
        let mut most = s.splat(plan.worst());
        let mut sums = [0f64; vecmath::MAX_LANES];
        if plan.needs_most() {
            for idx in 0..n_outer {
                let from = from.add(offsets(outer, idx).0);
                for idx in 0..inner.dim {
                    most = plan.extreme(s, most, s.load_part(from.add(idx * inner.from), width));
                }
            }
        }
        if plan.needs_sum() {
            for idx in 0..n_outer {
                let from = from.add(offsets(outer, idx).0);
                for start in (0..inner.dim).step_by(BLOCK) {
                    let end = (start + BLOCK).min(inner.dim);
                    let mut both = [s.zero(); 2];
                    let load = |idx: usize| s.load_part(from.add(idx * inner.from), width);
                    let mut idx = start;
                    while idx + 1 < end {
                        both[0] = s.add(both[0], T::of(s, load(idx), most));
                        both[1] = s.add(both[1], T::of(s, load(idx + 1), most));
                        idx += 2;
                    }
                    if idx < end {
                        both[0] = s.add(both[0], T::of(s, load(idx), most));
                    }
                    let mut lanes = [0f32; vecmath::MAX_LANES];
                    s.store(lanes.as_mut_ptr(), s.add(both[0], both[1]));
                    sums.iter_mut().zip(lanes).for_each(|(sum, lane)| *sum += f64::from(lane));
                }
            }
        }
        let mut mosts = [0f32; vecmath::MAX_LANES];
        s.store(mosts.as_mut_ptr(), most);
        for lane in 0..width.min(S::LANES) {
            *to.add(lane) = plan.finish(sums[lane], mosts[lane]);
        }
    }
}

/// The results of up to a vector of neighbouring pairs.
///
/// # Safety
/// The pairs must be readable, and the results writable.
#[inline(always)]
unsafe fn pairs<S: Simd, T: Term>(s: S, plan: &Reduce, from: *const f32, to: *mut f32, n: usize) {
    // SAFETY: the caller grants it.
    unsafe {
        let rest = (2 * n).saturating_sub(S::LANES);
        let second = if rest > 0 { s.load_part(from.add(S::LANES), rest) } else { s.zero() };
        let (even, odd) = s.unzip(s.load_part(from, 2 * n), second);
        let mut most = s.splat(plan.worst());
        if plan.needs_most() {
            most = plan.extreme(s, plan.extreme(s, most, even), odd);
        }
        let sum = s.add(T::of(s, even, most), T::of(s, odd, most));
        match plan.reduction {
            Reduction::L1 | Reduction::Sum | Reduction::SumSquare => s.store_part(to, n, sum),
            Reduction::Max | Reduction::Min => s.store_part(to, n, most),
            _ => {
                let (mut sums, mut mosts) = ([0f32; vecmath::MAX_LANES], [0f32; vecmath::MAX_LANES]);
                s.store(sums.as_mut_ptr(), sum);
                s.store(mosts.as_mut_ptr(), most);
                for (lane, (sum, most)) in sums.into_iter().zip(mosts).take(n).enumerate() {
                    *to.add(lane) = plan.finish(f64::from(sum), most);
                }
            }
        }
    }
}

/// # Safety
/// All elements of the result must be readable.
unsafe fn single(plan: &Reduce, from: *const f32) -> f32 {
    // SAFETY: the caller grants it.
    let at = |idx: usize| unsafe { *from.add(offsets(&plan.reduced, idx).0) };
    let all = || (0..plan.n_reduced).map(at);
    let most = match plan.needs_most() {
        true => all().fold(plan.worst(), |most, v| plan.extreme_of(most, v)),
        false => plan.worst(),
    };
    let wide = || all().map(f64::from);
    let sum = match plan.reduction {
        Reduction::Prod => wide().product(),
        Reduction::L1 => wide().map(f64::abs).sum(),
        Reduction::L2 | Reduction::SumSquare => wide().map(|v| v * v).sum(),
        Reduction::LogSumExp => wide().map(|v| (v - f64::from(most)).exp()).sum(),
        _ => wide().sum::<f64>(),
    };
    plan.finish(sum, most)
}
