//! Group and instance normalization of `[N, C, …]`, in either layout.
//!
//! In the plain layout the channels of a group are runs of memory, and a task is one group of one sample. With
//! channels last every pixel has all groups: a first fork finds, for blocks of pixels, each group's mean and
//! the squares around that mean; these are joined; a second fork scales and shifts. Blocks are a matter of
//! sizes alone, and so is the order in which they are joined.

use planish_kernel::norm::NormSteps;

use super::split;
use crate::isa::Isa;
use crate::lines::{each_vector, moments_along};
use crate::pointwise::Pointwise;
use crate::shared::Shared;
use crate::simd::{Simd, SimdKernel};
use crate::team::Team;

/// Elements of a block of pixels: half of a usual second cache's 512 KiB holds three.
const BLOCK_ELEMENTS: usize = 1 << 14;

/// Pixels of a block at most: so many are added in f32, in two chains.
const BLOCK_PIXELS: usize = 512;

/// Rows of channels that a slot needs: sums, squares, means.
const SLOT_ROWS: usize = 3;

/// A normalization of groups, its places settled.
#[derive(Debug)]
pub struct GroupNorm {
    pub(super) isa: Isa,
    pub(super) n_samples: usize,
    pub(super) n_channels: usize,
    pub(super) n_groups: usize,
    /// Elements of a channel.
    pub(super) plane: usize,
    /// Distances of samples, channels and pixels in input and output. Either pixels or channels are at 1 in
    /// both.
    pub(super) from: NormSteps,
    pub(super) to: NormSteps,
    pub(super) epsilon: f32,
    pub(super) epilogue: Option<Pointwise>,
}

/// Mean and sum of squares around it, of so many elements.
#[derive(Clone, Copy, Debug)]
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    const NONE: Moments = Moments { count: 0.0, mean: 0.0, squares: 0.0 };

    /// Of both together.
    fn join(self, other: Moments) -> Moments {
        let count = self.count + other.count;
        if count == 0.0 {
            return Moments::NONE;
        }
        let apart = other.mean - self.mean;
        Moments {
            count,
            mean: self.mean + apart * (other.count / count),
            squares: self.squares + other.squares + apart * apart * (self.count * other.count / count),
        }
    }
}

impl GroupNorm {
    fn is_channels_last(&self) -> bool {
        self.from.channel == 1 && self.to.channel == 1 && (self.plane > 1 || self.n_channels > 1)
    }

    fn per_group(&self) -> usize {
        self.n_channels / self.n_groups.max(1)
    }

    fn pixels_per_block(&self) -> usize {
        (BLOCK_ELEMENTS / self.n_channels.max(1)).clamp(1, BLOCK_PIXELS)
    }

    fn n_blocks(&self) -> usize {
        self.plane.div_ceil(self.pixels_per_block())
    }

    /// Bytes before those of the slots: moments of each group in each block of a sample, then what each
    /// channel of a sample is shifted, scaled and shifted by.
    fn common_bytes(&self) -> usize {
        if !self.is_channels_last() {
            return 0;
        }
        let moments = self.n_samples * self.n_blocks() * self.n_groups * size_of::<Moments>();
        let channels = self.n_samples * 3 * self.n_channels * size_of::<f32>();
        moments.next_multiple_of(64) + channels.next_multiple_of(64)
    }

    fn slot_bytes(&self) -> usize {
        let own = if self.is_channels_last() { SLOT_ROWS * self.n_channels * size_of::<f32>() } else { 0 };
        let epilogue = self.epilogue.as_ref().map_or(0, Pointwise::workspace_bytes);
        own.next_multiple_of(64) + epilogue
    }

    /// Workspace bytes for a team of `n_slots`.
    pub fn workspace_bytes(&self, n_slots: usize) -> usize {
        self.common_bytes() + n_slots * self.slot_bytes()
    }

    /// Runs it. `x`, `scale`, `bias` say which inputs of the region they are.
    ///
    /// # Safety
    /// The pointers must be valid for the sizes and strides of the plan, `workspace` for `workspace_bytes`, and
    /// nobody else may use them meanwhile. The output may be `x`.
    pub(crate) unsafe fn run(&self, shared: &Shared<'_>, [x, scale, bias]: [usize; 3], team: &Team) {
        if self.n_samples == 0 || self.n_channels == 0 || self.plane == 0 {
            return;
        }
        let operands = Operands { shared, x, scale, bias };
        if !self.is_channels_last() {
            team.for_each(self.n_samples * self.n_groups, &|task| {
                // SAFETY: the caller grants everything, the slots apart; tasks write apart.
                unsafe { self.group(task.idx, &operands, self.slot_workspace(shared, task.slot)) };
            });
            return;
        }
        let n_blocks = self.n_samples * self.n_blocks();
        team.for_each(n_blocks, &|task| {
            let workspace = self.slot_workspace(shared, task.slot).cast::<f32>();
            self.isa.run(Measure { plan: self, operands: &operands, block: task.idx, workspace });
        });
        self.settle(&operands);
        team.for_each(n_blocks, &|task| {
            let workspace = self.slot_workspace(shared, task.slot);
            self.isa.run(Scale { plan: self, operands: &operands, block: task.idx, workspace });
        });
    }

    fn slot_workspace(&self, shared: &Shared<'_>, slot: usize) -> *mut u8 {
        // SAFETY: the workspace has this many slots.
        unsafe { shared.workspace.add(self.common_bytes() + slot * self.slot_bytes()) }
    }

    /// One group of one sample in the plain layout.
    unsafe fn group(&self, idx: usize, operands: &Operands<'_>, workspace: *mut u8) {
        let (sample, group) = (idx / self.n_groups, idx % self.n_groups);
        let moments = self.isa.run(Plain { plan: self, operands, sample, group });
        let inverse = 1.0 / (moments.squares / moments.count + f64::from(self.epsilon)).sqrt();
        let per_group = self.per_group();
        for channel in group * per_group..(group + 1) * per_group {
            // SAFETY: the channel is one of the plan's; the caller grants the operands.
            unsafe {
                let factor = inverse * f64::from(*operands.scale().add(channel));
                let (hi, lo) = split(moments.mean);
                let shift = f64::from(*operands.bias().add(channel)) - f64::from(lo) * factor;
                let from = operands.x().add(sample * self.from.sample + channel * self.from.channel);
                let to = operands.y().add(sample * self.to.sample + channel * self.to.channel);
                self.isa.run(Run { from, to, n: self.plane, hi, factor: factor as f32, shift: shift as f32 });
            }
        }
        if let Some(epilogue) = &self.epilogue {
            let first = group * per_group;
            let row = sample * self.n_channels + first;
            let inputs = operands.shared.inputs;
            // SAFETY: as above.
            unsafe {
                let to = operands.y().add(sample * self.to.sample + first * self.to.channel);
                let rows = row..row + per_group;
                epilogue.run_block(inputs, to, self.to.channel, rows, 0..self.plane, workspace);
            }
        }
    }

    fn moments(&self, shared: &Shared<'_>, sample: usize, block: usize) -> *mut Moments {
        let idx = (sample * self.n_blocks() + block) * self.n_groups;
        // SAFETY: the table of moments comes first in the workspace.
        unsafe { shared.workspace.cast::<Moments>().add(idx) }
    }

    /// What each channel of a sample is shifted by, scaled by and shifted by again: three rows.
    fn channels(&self, shared: &Shared<'_>, sample: usize) -> *mut f32 {
        let table = self.n_samples * self.n_blocks() * self.n_groups * size_of::<Moments>();
        // SAFETY: the rows come after the table of moments.
        unsafe {
            let rows = shared.workspace.add(table.next_multiple_of(64)).cast::<f32>();
            rows.add(sample * 3 * self.n_channels)
        }
    }

    /// Joins the blocks' moments, always in the same order, and settles every channel.
    fn settle(&self, operands: &Operands<'_>) {
        let shared = operands.shared;
        let per_group = self.per_group();
        for sample in 0..self.n_samples {
            let rows = self.channels(shared, sample);
            for group in 0..self.n_groups {
                let mut all = Moments::NONE;
                for block in 0..self.n_blocks() {
                    // SAFETY: the first fork wrote the moments of every group.
                    all = all.join(unsafe { *self.moments(shared, sample, block).add(group) });
                }
                let inverse = 1.0 / (all.squares / all.count + f64::from(self.epsilon)).sqrt();
                let (hi, lo) = split(all.mean);
                for channel in group * per_group..(group + 1) * per_group {
                    // SAFETY: there are so many channels in each.
                    unsafe {
                        let factor = inverse * f64::from(*operands.scale().add(channel));
                        let shift = f64::from(*operands.bias().add(channel)) - f64::from(lo) * factor;
                        *rows.add(channel) = hi;
                        *rows.add(self.n_channels + channel) = factor as f32;
                        *rows.add(2 * self.n_channels + channel) = shift as f32;
                    }
                }
            }
        }
    }

    /// The sample of a block, and its pixels.
    fn block(&self, idx: usize) -> (usize, std::ops::Range<usize>) {
        let (sample, block) = (idx / self.n_blocks(), idx % self.n_blocks());
        let start = block * self.pixels_per_block();
        (sample, start..(start + self.pixels_per_block()).min(self.plane))
    }
}

#[derive(Clone, Copy)]
struct Operands<'a> {
    shared: &'a Shared<'a>,
    x: usize,
    scale: usize,
    bias: usize,
}

impl Operands<'_> {
    fn x(&self) -> *const f32 {
        self.shared.inputs[self.x].cast()
    }

    fn scale(&self) -> *const f32 {
        self.shared.inputs[self.scale].cast()
    }

    fn bias(&self) -> *const f32 {
        self.shared.inputs[self.bias].cast()
    }

    fn y(&self) -> *mut f32 {
        self.shared.outputs[0].cast()
    }
}

/// Moments of a group in the plain layout.
struct Plain<'a> {
    plan: &'a GroupNorm,
    operands: &'a Operands<'a>,
    sample: usize,
    group: usize,
}

impl SimdKernel for Plain<'_> {
    type Output = Moments;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Moments {
        let plan = self.plan;
        let per_group = plan.per_group();
        // Channels without gaps between them are one run.
        let joined = plan.from.channel == plan.plane;
        let (n_runs, len) = if joined { (1, per_group * plan.plane) } else { (per_group, plan.plane) };
        let count = (per_group * plan.plane) as f64;
        // SAFETY: the caller of `run` grants the operands.
        unsafe {
            let first = self.sample * plan.from.sample + self.group * per_group * plan.from.channel;
            let run = |idx: usize| self.operands.x().add(first + idx * plan.from.channel);
            let (mean, squares) = moments_along(s, (0..n_runs).map(run), len);
            Moments { count, mean, squares }
        }
    }
}

/// `(x - hi)·factor + shift` over a run.
struct Run {
    from: *const f32,
    to: *mut f32,
    n: usize,
    hi: f32,
    factor: f32,
    shift: f32,
}

impl SimdKernel for Run {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (hi, factor, shift) = (s.splat(self.hi), s.splat(self.factor), s.splat(self.shift));
        // SAFETY: the caller grants both runs.
        unsafe {
            each_vector!(S, self.n, |at, rest| {
                let off = s.sub(s.load_part(self.from.add(at), rest), hi);
                s.store_part(self.to.add(at), rest, s.mul_add(off, factor, shift));
            });
        }
    }
}

/// Moments of every group in a block of pixels.
struct Measure<'a> {
    plan: &'a GroupNorm,
    operands: &'a Operands<'a>,
    block: usize,
    /// [`SLOT_ROWS`] rows of channels.
    workspace: *mut f32,
}

impl SimdKernel for Measure<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let plan = self.plan;
        let (sample, pixels) = plan.block(self.block);
        let per_group = plan.per_group();
        let n = plan.n_channels;
        let count = (pixels.len() * per_group) as f64;
        // SAFETY: the caller of `run` grants operands and workspace.
        unsafe {
            let first = self.operands.x().add(sample * plan.from.sample + pixels.start * plan.from.pixel);
            let (sums, squares, means) = (self.workspace, self.workspace.add(n), self.workspace.add(2 * n));
            let block = Pixels { first, step: plan.from.pixel, n: pixels.len() };
            let of_group = |row: *const f32, group: usize| {
                (0..per_group).map(|idx| f64::from(*row.add(group * per_group + idx))).sum::<f64>()
            };
            let moments = plan.moments(self.operands.shared, sample, self.block % plan.n_blocks());
            block.sums(s, n, sums);
            for group in 0..plan.n_groups {
                let mean = (of_group(sums, group) / count) as f32;
                (0..per_group).for_each(|idx| *means.add(group * per_group + idx) = mean);
            }
            block.moments(s, n, means, sums, squares);
            for group in 0..plan.n_groups {
                // By so much the rounded mean is off.
                let off = of_group(sums, group);
                let mean = f64::from(*means.add(group * per_group)) + off / count;
                let squares = (of_group(squares, group) - off * off / count).max(0.0);
                moments.add(group).write(Moments { count, mean, squares });
            }
        }
    }
}

/// Pixels with their channels side by side.
struct Pixels {
    first: *const f32,
    step: usize,
    n: usize,
}

impl Pixels {
    /// Channels `at..at + rest` of a pixel.
    ///
    /// # Safety
    /// The pixels must be good for them.
    #[inline(always)]
    unsafe fn load<S: Simd>(&self, s: S, pixel: usize, at: usize, rest: usize) -> S::F {
        // SAFETY: the caller grants it.
        unsafe { s.load_part(self.first.add(pixel * self.step + at), rest) }
    }

    /// For each of `n` channels the sum over all pixels.
    ///
    /// # Safety
    /// Pixels and sums must be good for `n` channels.
    #[inline(always)]
    unsafe fn sums<S: Simd>(&self, s: S, n: usize, sums: *mut f32) {
        let mut at = 0;
        while at < n {
            let rest = n - at;
            // SAFETY: the caller grants it.
            unsafe {
                let mut both = [s.zero(); 2];
                for pair in 0..self.n / 2 {
                    both[0] = s.add(both[0], self.load(s, 2 * pair, at, rest));
                    both[1] = s.add(both[1], self.load(s, 2 * pair + 1, at, rest));
                }
                if self.n % 2 == 1 {
                    both[0] = s.add(both[0], self.load(s, self.n - 1, at, rest));
                }
                s.store_part(sums.add(at), rest, s.add(both[0], both[1]));
            }
            at += S::LANES;
        }
    }

    /// For each of `n` channels the sums over all pixels of distances from `means`, and of their squares.
    ///
    /// # Safety
    /// Pixels and all rows must be good for `n` channels.
    #[inline(always)]
    unsafe fn moments<S: Simd>(&self, s: S, n: usize, means: *const f32, sums: *mut f32, squares: *mut f32) {
        let mut at = 0;
        while at < n {
            let rest = n - at;
            // SAFETY: the caller grants it.
            unsafe {
                let mean = s.load_part(means.add(at), rest);
                let (mut off, mut square) = ([s.zero(); 2], [s.zero(); 2]);
                for pair in 0..self.n / 2 {
                    let a = s.sub(self.load(s, 2 * pair, at, rest), mean);
                    let b = s.sub(self.load(s, 2 * pair + 1, at, rest), mean);
                    off = [s.add(off[0], a), s.add(off[1], b)];
                    square = [s.mul_add(a, a, square[0]), s.mul_add(b, b, square[1])];
                }
                if self.n % 2 == 1 {
                    let a = s.sub(self.load(s, self.n - 1, at, rest), mean);
                    off[0] = s.add(off[0], a);
                    square[0] = s.mul_add(a, a, square[0]);
                }
                s.store_part(sums.add(at), rest, s.add(off[0], off[1]));
                s.store_part(squares.add(at), rest, s.add(square[0], square[1]));
            }
            at += S::LANES;
        }
    }
}

/// Scales and shifts a block of pixels.
struct Scale<'a> {
    plan: &'a GroupNorm,
    operands: &'a Operands<'a>,
    block: usize,
    workspace: *mut u8,
}

impl SimdKernel for Scale<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let plan = self.plan;
        let (sample, pixels) = plan.block(self.block);
        let n = plan.n_channels;
        // SAFETY: the caller of `run` grants operands and workspace.
        unsafe {
            let hi = plan.channels(self.operands.shared, sample).cast_const();
            let (factor, shift) = (hi.add(n), hi.add(2 * n));
            let from = self.operands.x().add(sample * plan.from.sample + pixels.start * plan.from.pixel);
            let to = self.operands.y().add(sample * plan.to.sample + pixels.start * plan.to.pixel);
            for pixel in 0..pixels.len() {
                let (from, to) = (from.add(pixel * plan.from.pixel), to.add(pixel * plan.to.pixel));
                each_vector!(S, n, |at, rest| {
                    let off = s.sub(s.load_part(from.add(at), rest), s.load_part(hi.add(at), rest));
                    let (factor, shift) =
                        (s.load_part(factor.add(at), rest), s.load_part(shift.add(at), rest));
                    s.store_part(to.add(at), rest, s.mul_add(off, factor, shift));
                });
            }
            if let Some(epilogue) = &plan.epilogue {
                let workspace = self.workspace.add((SLOT_ROWS * n * size_of::<f32>()).next_multiple_of(64));
                let rows = sample * plan.plane + pixels.start..sample * plan.plane + pixels.end;
                epilogue.run_block(self.operands.shared.inputs, to, plan.to.pixel, rows, 0..n, workspace);
            }
        }
    }
}
