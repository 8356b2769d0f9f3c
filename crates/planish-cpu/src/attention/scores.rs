//! Rows of scores: scaled, capped and masked, turned into weights, and the sums that go with them.

use super::Block;
use crate::lines::load_or;
use crate::simd::Simd;
use crate::vecmath;

/// Below this power of two a weight is zero.
const LOWEST: f32 = -200.0;

impl Block<'_> {
    /// Scales, caps and masks one row of scores of the keys from `start` on. Gives what is still to be
    /// multiplied with: where nothing but a scale is to be done, that is left to the next step.
    ///
    /// # Safety
    /// The line must have `n_keys` scores.
    #[inline(always)]
    pub(super) unsafe fn prepare<S: Simd>(
        &self,
        s: S,
        line: *mut f32,
        (batch, head, query): (usize, usize, usize),
        start: usize,
        n_keys: usize,
    ) -> f32 {
        let plan = self.plan;
        let is_positive = plan.scale > 0.0 && plan.scale.is_finite();
        if plan.mask.is_none() && !plan.causal && plan.softcap <= 0.0 && is_positive {
            return plan.scale;
        }
        let scale = s.splat(plan.scale);
        let offset = plan.mask.as_ref().map_or(0, |mask| mask.strides.at(batch, head, query));
        let mut at = 0;
        while at < n_keys {
            let n = n_keys - at;
            // SAFETY: the line has `n_keys` scores, and the mask is asked for keys that there are.
            unsafe {
                let mut score = s.mul(s.load_part(line.add(at), n), scale);
                if plan.softcap > 0.0 {
                    let cap = s.splat(plan.softcap);
                    score = s.mul(cap, vecmath::tanh(s, s.div(score, cap)));
                }
                if plan.mask.is_some() {
                    score = s.add(score, self.mask(s, offset, start + at, n.min(S::LANES)));
                }
                s.store_part(line.add(at), n, score);
            }
            at += S::LANES;
        }
        if plan.causal {
            for key in (query + 1).saturating_sub(start).min(n_keys)..n_keys {
                // SAFETY: the line has `n_keys` scores.
                unsafe { *line.add(key) = f32::NEG_INFINITY };
            }
        }
        1.0
    }

    /// What the mask adds to the scores of `n` keys from `first` on, at most a vector of them.
    ///
    /// # Safety
    /// The mask must span the keys below its number of them from `offset` on.
    #[inline(always)]
    unsafe fn mask<S: Simd>(&self, s: S, offset: usize, first: usize, n: usize) -> S::F {
        let Some(mask) = &self.plan.mask else { return s.zero() };
        let input = self.shared.inputs[mask.input];
        let n_there = mask.n_keys.saturating_sub(first).min(n);
        // SAFETY: `n_there` keys from `first` on are in the mask.
        unsafe {
            if !mask.boolean && mask.key == 1 {
                return load_or(s, input.cast::<f32>().add(offset + first), n_there, f32::NEG_INFINITY);
            }
            let mut lanes = [f32::NEG_INFINITY; vecmath::MAX_LANES];
            for (lane, value) in lanes.iter_mut().enumerate().take(n_there) {
                let at = offset + (first + lane) * mask.key;
                *value = match mask.boolean {
                    true if *input.add(at) != 0 => 0.0,
                    true => f32::NEG_INFINITY,
                    false => *input.cast::<f32>().add(at),
                };
            }
            s.load(lanes.as_ptr())
        }
    }
}

/// The largest of `n` numbers; NaN is passed over.
///
/// # Safety
/// The line must have them.
#[inline(always)]
unsafe fn largest_of<S: Simd>(s: S, line: *const f32, n: usize) -> f32 {
    // Four chains, as a maximum takes several cycles.
    let mut most = [s.splat(f32::NEG_INFINITY); 4];
    let mut at = 0;
    // SAFETY: granted by the caller.
    unsafe {
        while at + 4 * S::LANES <= n {
            for (idx, most) in most.iter_mut().enumerate() {
                *most = s.max(s.load(line.add(at + idx * S::LANES)), *most);
            }
            at += 4 * S::LANES;
        }
        while at < n {
            most[0] = s.max(load_or(s, line.add(at), n - at, f32::NEG_INFINITY), most[0]);
            at += S::LANES;
        }
    }
    s.max_lane(s.max(s.max(most[0], most[1]), s.max(most[2], most[3])))
}

/// `e^(score·scale - shift)`, where the difference is not above zero but for rounding. The exponent is rounded
/// once more than in [`vecmath::exp`], which costs ULPs only where the weight is small beside the largest, 1.
#[inline(always)]
fn weight<S: Simd>(s: S, score: S::F, scale: S::F, shift: S::F) -> S::F {
    let difference = s.sub(s.mul(score, scale), shift);
    let exponent = s.mul(difference, s.splat(std::f32::consts::LOG2_E));
    // The second operand is the answer where one is NaN: it stays.
    vecmath::exp2_down(s, s.max(s.splat(LOWEST), exponent))
}

/// Turns a row of scores, times `scale`, into weights against the largest so far, and adds their sum to
/// `total`. Gives what sums made before must be multiplied with.
///
/// # Safety
/// The line must have `n` scores.
#[inline(always)]
pub(super) unsafe fn soften<S: Simd>(
    s: S,
    line: *mut f32,
    n: usize,
    scale: f32,
    largest: &mut f32,
    total: &mut f32,
) -> f32 {
    // SAFETY: granted by the caller. The scale is positive, so that the largest score stays so.
    let new = unsafe { (largest_of(s, line, n) * scale).max(*largest) };
    if new == f32::NEG_INFINITY {
        // Everything is hidden so far: no weight, unless a NaN among the scores says otherwise.
        let mut sum = 0.0;
        for at in 0..n {
            // SAFETY: the line has `n` scores.
            unsafe {
                let score = *line.add(at);
                let weight = if score.is_nan() { score } else { 0.0 };
                *line.add(at) = weight;
                sum += weight;
            }
        }
        *total += sum;
        return 1.0;
    }
    let kept = if *largest == new { 1.0 } else { (*largest - new).exp() };
    let (scale, shift) = (s.splat(scale), s.splat(new));
    let mut sums = [s.zero(); 2];
    let mut at = 0;
    // SAFETY: the line has `n` scores; lanes after the end weigh nothing.
    unsafe {
        while at + 2 * S::LANES <= n {
            for (idx, sum) in sums.iter_mut().enumerate() {
                let place = line.add(at + idx * S::LANES);
                let weight = weight(s, s.load(place), scale, shift);
                s.store(place, weight);
                *sum = s.add(*sum, weight);
            }
            at += 2 * S::LANES;
        }
        while at < n {
            let score = load_or(s, line.add(at), n - at, f32::NEG_INFINITY);
            let weight = weight(s, score, scale, shift);
            s.store_part(line.add(at), n - at, weight);
            sums[0] = s.add(sums[0], weight);
            at += S::LANES;
        }
    }
    *total = *total * kept + s.sum(s.add(sums[0], sums[1]));
    *largest = new;
    kept
}

/// # Safety
/// The line must have `n` elements.
#[inline(always)]
pub(super) unsafe fn rescale<S: Simd>(s: S, line: *mut f32, n: usize, by: f32) {
    let factor = s.splat(by);
    let mut at = 0;
    while at < n {
        // SAFETY: the caller grants `n` elements.
        unsafe { s.store_part(line.add(at), n - at, s.mul(s.load_part(line.add(at), n - at), factor)) };
        at += S::LANES;
    }
}

/// # Safety
/// Both must have `n` elements.
#[inline(always)]
pub(super) unsafe fn divide<S: Simd>(s: S, from: *const f32, by: f32, to: *mut f32, n: usize) {
    let divisor = s.splat(by);
    let mut at = 0;
    while at < n {
        // SAFETY: the caller grants `n` elements of each.
        unsafe { s.store_part(to.add(at), n - at, s.div(s.load_part(from.add(at), n - at), divisor)) };
        at += S::LANES;
    }
}
