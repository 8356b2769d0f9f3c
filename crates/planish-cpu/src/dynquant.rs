//! DynamicQuantizeLinear: a tensor as unsigned bytes, with the scale and zero point that its own range asks for.
//!
//! Two walks over the elements: their smallest and largest, then their bytes. The numbers are those of the reference, bit
//! by bit: the range holds 0, NaN counts for nothing in it and becomes 0.

mod family;
#[cfg(test)]
mod tests;

pub(crate) use family::DynamicQuantizeFamily;

use crate::isa::Isa;
use crate::lines::each_vector;
use crate::simd::{Simd, SimdKernel};
use crate::team::Team;

/// Elements of a task: some 5 µs.
const TASK_ELEMENTS: usize = 1 << 15;

/// The largest byte.
const LARGEST: f32 = 255.0;

/// The elements of a tensor, which follow each other, to be quantized.
#[derive(Clone, Copy, Debug)]
pub struct DynamicQuantize {
    pub isa: Isa,
    pub n: usize,
}

/// What a run reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct DynamicQuantizeArguments {
    pub x: *const f32,
    pub y: *mut u8,
    pub scale: *mut f32,
    pub zero: *mut u8,
    /// The range of each task, `n_tasks()` of them.
    pub ranges: *mut Range,
}

// SAFETY: tasks write disjoint parts of the bytes and of the ranges; the rest is read, or written between them.
unsafe impl Sync for DynamicQuantizeArguments {}

/// The smallest and the largest of some elements and 0.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Range {
    low: f32,
    high: f32,
}

impl Range {
    /// The scale and zero point of bytes over this range.
    fn grid(self) -> (f32, f32) {
        let Range { low, high } = self;
        // All zeros, or no elements: any scale would do.
        let scale = if low == high { 1.0 } else { (high - low) / LARGEST };
        (scale, (0.0 - low / scale).clamp(0.0, LARGEST).round_ties_even())
    }
}

impl DynamicQuantize {
    /// How many tasks there are: a matter of sizes alone.
    pub fn n_tasks(&self) -> usize {
        self.n.div_ceil(TASK_ELEMENTS)
    }

    fn elements(&self, task: usize) -> (usize, usize) {
        let start = task * TASK_ELEMENTS;
        (start, TASK_ELEMENTS.min(self.n - start))
    }

    /// Quantizes.
    ///
    /// # Safety
    /// `x` must be good for reading `n` elements, `y` for writing as many, `scale` and `zero` for one each, and `ranges` for
    /// `n_tasks()`; nobody else may use what is written.
    pub unsafe fn run(&self, arguments: &DynamicQuantizeArguments, team: &Team) {
        let call = arguments;
        team.for_each(self.n_tasks(), &|task| {
            let (start, n) = self.elements(task.idx);
            // SAFETY: the caller grants it; each task has a range of its own.
            unsafe { *call.ranges.add(task.idx) = self.isa.run(FindRange { x: call.x.add(start), n }) };
        });
        let mut range = Range { low: 0.0, high: 0.0 };
        for task in 0..self.n_tasks() {
            // SAFETY: written above.
            let part = unsafe { *call.ranges.add(task) };
            range = Range { low: range.low.min(part.low), high: range.high.max(part.high) };
        }
        let (scale, zero) = range.grid();
        // SAFETY: the caller grants it.
        unsafe {
            *call.scale = scale;
            *call.zero = zero as u8;
        }
        team.for_each(self.n_tasks(), &|task| {
            let (start, n) = self.elements(task.idx);
            // SAFETY: the caller grants it; tasks write apart.
            unsafe { self.isa.run(Quantize { x: call.x.add(start), y: call.y.add(start), n, scale, zero }) };
        });
    }
}

/// The range of `n` elements.
struct FindRange {
    x: *const f32,
    n: usize,
}

impl SimdKernel for FindRange {
    type Output = Range;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Range {
        // The smallest with its sign turned, so that both are maxima; lanes beyond the end read 0.
        let (mut low, mut high) = (s.zero(), s.zero());
        each_vector!(S, self.n, |at, rest| {
            // SAFETY: granted by `DynamicQuantize::run`.
            let x = unsafe { s.load_part(self.x.add(at), rest) };
            // The second operand is the result where the first is NaN.
            low = s.max(s.neg(x), low);
            high = s.max(x, high);
        });
        Range { low: 0.0 - s.max_lane(low), high: s.max_lane(high) }
    }
}

/// The bytes of `n` elements.
struct Quantize {
    x: *const f32,
    y: *mut u8,
    n: usize,
    scale: f32,
    zero: f32,
}

impl SimdKernel for Quantize {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let scale = s.splat(self.scale);
        // Held within whole numbers before it is rounded to one: the same as after it.
        let (low, high) = (s.splat(0.0 - self.zero), s.splat(LARGEST - self.zero));
        let zero = s.splat_int(self.zero as i32);
        each_vector!(S, self.n, |at, rest| {
            // SAFETY: granted by `DynamicQuantize::run`.
            unsafe {
                let ratio = s.div(s.load_part(self.x.add(at), rest), scale);
                // NaN becomes the low end.
                let held = s.min(s.max(ratio, low), high);
                s.store_bytes(self.y.add(at), rest, s.add_int(s.to_int(held), zero));
            }
        });
    }
}
