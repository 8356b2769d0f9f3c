//! Convolution to few output channels: vectors run along the input's channels, and each output is the sum of
//! one vector's lanes.
//!
//! Tiles of output channels would be mostly empty there: with 3 channels of 16 lanes, 13 of 16 multiplications
//! are for nothing.

use super::geometry::{Geometry, Phase};
use super::pack::Filter;
use super::windows::Windows;
use super::{ConvCall, part, wanted_tasks};
use crate::isa::Isa;
use crate::simd::{Simd, SimdKernel, arrays};
use crate::team::{Task, Team};

/// The most output channels.
pub const MOST_OUTPUTS: usize = 4;

/// Windows that share each loaded weight.
const WINDOWS: usize = 4;

/// Channels of packed weights are rounded up to this: the widest vector.
pub const CHANNEL_BLOCK: usize = 16;

/// A convolution to few channels, for one geometry.
#[derive(Debug)]
pub struct Narrow {
    geometry: Geometry,
    isa: Isa,
    windows: Windows,
    n_tasks: usize,
    zeros: Vec<f32>,
    slot_bytes: usize,
}

/// Elements of the packed weights.
pub fn packed_len(filter: &Filter) -> usize {
    filter.n_taps() * filter.k * filter.c.next_multiple_of(CHANNEL_BLOCK)
}

/// The weight by tap, output channel, input channel, padded with zeros.
pub fn pack(filter: &Filter, weight: &[f32]) -> Vec<f32> {
    let mut packed = vec![0.0; packed_len(filter)];
    for_each(filter, |to, from| packed[to] = weight[from]);
    packed
}

/// The weight that was packed.
pub fn unpack(filter: &Filter, packed: &[f32]) -> Vec<f32> {
    let mut weight = vec![0.0; filter.len()];
    for_each(filter, |from, to| weight[to] = packed[from]);
    weight
}

/// Calls `at(packed place, model place)` for every element.
fn for_each(filter: &Filter, mut at: impl FnMut(usize, usize)) {
    let padded = filter.c.next_multiple_of(CHANNEL_BLOCK);
    for tap in 0..filter.n_taps() {
        for k in 0..filter.k {
            for c in 0..filter.c {
                at((tap * filter.k + k) * padded + c, filter.place(0, c, k, tap));
            }
        }
    }
}

impl Narrow {
    /// Plans a run; `None` for more than [`MOST_OUTPUTS`] channels, groups, transposed windows, or an input whose
    /// channels are not innermost.
    pub fn new(geometry: Geometry, isa: Isa) -> Option<Narrow> {
        let fits = !geometry.transposed
            && geometry.groups == 1
            && (1..=MOST_OUTPUTS).contains(&geometry.k)
            && geometry.input.channel == 1;
        if !fits {
            return None;
        }
        let phase: Phase = geometry.phases().pop()?;
        let windows = Windows::new(&geometry, phase, WINDOWS, false);
        // A vector of channels for each multiplication, and the sum of its lanes.
        let work = geometry.flops() + (geometry.n_images * geometry.out_pixels() * geometry.k * 300) as f64;
        let n_tasks = wanted_tasks(work).min(windows.n_tiles());
        let slot_bytes = (8 * WINDOWS * windows.n_taps()).next_multiple_of(64);
        let zeros = vec![0.0; geometry.c];
        Some(Narrow { geometry, isa, windows, n_tasks, zeros, slot_bytes })
    }

    /// What the work is cut into.
    pub fn n_tasks(&self) -> usize {
        self.n_tasks
    }

    pub fn workspace_bytes(&self, n_slots: usize) -> usize {
        self.slot_bytes * n_slots
    }

    /// # Safety
    /// The call's addresses must be readable, the output and the workspace writable, for what the geometry and
    /// the plan say.
    pub unsafe fn run(&self, call: &ConvCall<'_>, team: &Team) {
        team.for_each(self.n_tasks, &|task| self.isa.run(Tiles { plan: self, call, task }));
    }
}

/// The tiles of one task.
struct Tiles<'a> {
    plan: &'a Narrow,
    call: &'a ConvCall<'a>,
    task: Task,
}

impl SimdKernel for Tiles<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: whoever runs the plan grants the call's memory.
        unsafe {
            match self.plan.geometry.k {
                1 => self.tiles::<S, 1>(s),
                2 => self.tiles::<S, 2>(s),
                3 => self.tiles::<S, 3>(s),
                _ => self.tiles::<S, 4>(s),
            }
        }
    }
}

impl Tiles<'_> {
    #[inline(always)]
    unsafe fn tiles<S: Simd, const K: usize>(&self, s: S) {
        let (plan, call) = (self.plan, self.call);
        let g = &plan.geometry;
        let zeros = plan.zeros.as_ptr();
        let n_taps = plan.windows.n_taps();
        // SAFETY: a slot has room for the pointers of a tile.
        let table = unsafe { call.workspace.add(self.task.slot * plan.slot_bytes) }.cast::<*const f32>();
        for idx in part(plan.windows.n_tiles(), plan.n_tasks, self.task.idx) {
            // SAFETY: as above; outputs, residual and bias hold all channels of the tile's pixels.
            unsafe {
                let place = plan.windows.point(g, call.input, zeros, 0..n_taps, idx, table);
                let sums = if place.m == WINDOWS {
                    self.sums::<S, K, WINDOWS>(s, table)
                } else {
                    let mut sums = [[0.0; K]; WINDOWS];
                    for (i, sum) in sums.iter_mut().enumerate().take(place.m) {
                        *sum = self.sums::<S, K, 1>(s, table.add(i))[0];
                    }
                    sums
                };
                for (i, sums) in sums.iter().enumerate().take(place.m) {
                    let to = call.output.add(place.output + i * g.output.axes[2]);
                    for (k, sum) in sums.iter().enumerate() {
                        let mut value = *sum;
                        if !call.bias.is_null() {
                            value += *call.bias.add(k);
                        }
                        if let Some(pixels) = &g.residual {
                            value += *call.residual.add(place.residual + i * pixels.axes[2] + k);
                        }
                        // Comparisons with NaN are false, so a NaN sum stays.
                        value = if value < call.lo { call.lo } else { value };
                        *to.add(k) = if value > call.hi { call.hi } else { value };
                    }
                }
            }
        }
    }

    /// The sums of `P` windows, whose pointers stand at `table` for each tap.
    #[inline(always)]
    unsafe fn sums<S: Simd, const K: usize, const P: usize>(
        &self,
        s: S,
        table: *const *const f32,
    ) -> [[f32; K]; WINDOWS] {
        let c = self.plan.geometry.c;
        let padded = c.next_multiple_of(CHANNEL_BLOCK);
        let whole = c - c % S::LANES;
        let mut acc = [[s.zero(); K]; P];
        let mut weights = self.call.weights;
        // SAFETY: every tap has `WINDOWS` pointers to `c` channels, and `K` rows of padded weights.
        unsafe {
            for tap in 0..self.plan.windows.n_taps() {
                let mut rows = [std::ptr::null::<f32>(); P];
                for (i, row) in rows.iter_mut().enumerate() {
                    *row = *table.add(tap * WINDOWS + i);
                }
                for c in (0..whole).step_by(S::LANES) {
                    let x = arrays::from_fn(|i| s.load(rows[i].add(c)));
                    step(s, &mut acc, x, weights.add(c), padded);
                }
                if whole < c {
                    let x = arrays::from_fn(|i| s.load_part(rows[i].add(whole), c - whole));
                    step(s, &mut acc, x, weights.add(whole), padded);
                }
                weights = weights.add(K * padded);
            }
        }
        let mut sums = [[0.0; K]; WINDOWS];
        for i in 0..P {
            for k in 0..K {
                sums[i][k] = s.sum(acc[i][k]);
            }
        }
        sums
    }
}

/// Adds the products of a vector of channels of `P` windows with `K` weights, `stride` apart.
///
/// # Safety
/// `weights` must be readable for `K` vectors.
#[inline(always)]
unsafe fn step<S: Simd, const K: usize, const P: usize>(
    s: S,
    acc: &mut [[S::F; K]; P],
    x: [S::F; P],
    weights: *const f32,
    stride: usize,
) {
    // SAFETY: granted by the caller.
    let w: [S::F; K] = arrays::from_fn(|k| unsafe { s.load(weights.add(k * stride)) });
    for i in 0..P {
        for k in 0..K {
            acc[i][k] = s.mul_add(x[i], w[k], acc[i][k]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Case, SUM_TOLERANCE, axis};
    use super::*;

    fn check(case: &Case) {
        for isa in Isa::available() {
            let plan = Narrow::new(case.geometry.clone(), isa).expect("few outputs");
            let weights = pack(&case.filter, &case.weight);
            assert_eq!(unpack(&case.filter, &weights), case.weight);
            // SAFETY: the case owns what the call names.
            let got =
                case.run(&weights, plan.workspace_bytes(1), |call, team| unsafe { plan.run(call, team) });
            case.check(&got, SUM_TOLERANCE, 0.0, isa.name());
        }
    }

    #[test]
    fn few_outputs_of_any_window() {
        for k in 1..=MOST_OUTPUTS {
            for c in [1, 7, 16, 33] {
                let one = axis(9, 1, 1, 1, (0, 0));
                check(&Case::new(2, 1, c, k, &[one, one], false, 0));
                let x = axis(11, 3, 2, 1, (1, 1));
                let y = axis(6, 3, 1, 2, (3, 0));
                check(&Case::new(1, 1, c, k, &[y, x], false, 3).with_residual(1).clamped(-0.25, 0.5));
                check(&Case::new(1, 1, c, k, &[x, y, x], false, 0));
            }
        }
    }

    #[test]
    fn nothing_to_compute_and_what_is_refused() {
        let x = axis(4, 3, 1, 1, (1, 1));
        check(&Case::new(0, 1, 3, 2, &[x, x], false, 0));
        check(&Case::new(1, 1, 0, 2, &[x, x], false, 0));
        for case in [Case::new(1, 1, 3, 0, &[x, x], false, 0), Case::new(1, 1, 3, 5, &[x, x], false, 0)] {
            assert!(Narrow::new(case.geometry.clone(), Isa::best()).is_none());
        }
    }

    #[test]
    fn not_a_number_stays_in_its_windows() {
        let x = axis(9, 3, 1, 1, (1, 1));
        let mut case = Case::new(1, 1, 5, 3, &[x, x], false, 0).clamped(0.0, 1.0);
        case.input[20] = f32::NAN;
        case.input[200] = f32::NEG_INFINITY;
        check(&case);
    }
}
