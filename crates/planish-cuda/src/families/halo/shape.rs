//! Shapes of the patch kernel: a block's piece of the output, how warps share it, and what it costs.

use crate::families::product::Math;
use crate::gpu::Gpu;

/// What is compiled in besides the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    /// Rows of 16 pixels, and tiles of eight columns, of a warp.
    pub(super) rows: u32,
    pub(super) nt: u32,
    /// Channels of the patch at a time.
    pub(super) kc: u32,
    /// Along x, y, z and columns.
    pub(super) warps: [u32; 4],
    pub(super) buffers: u32,
}

/// The sizes of a convolution; those of axes as x, y, z.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Amount {
    pub(super) images: usize,
    pub(super) size: [usize; 3],
    pub(super) taps: [usize; 3],
    pub(super) stride: [usize; 3],
    pub(super) dilation: [usize; 3],
    pub(super) c: usize,
    pub(super) n: usize,
    /// Elements are gathered one by one, and a window's row becomes a pixel's channels.
    pub(super) gather: bool,
    /// Bytes of an element of the output.
    pub(super) out_bytes: usize,
}

/// Rows, tiles of columns, warps along columns: large tiles of accumulators ask for the fewest fragments.
const PER_WARP: [[u32; 3]; 10] = [
    [8, 1, 1],
    [4, 1, 1],
    [8, 2, 1],
    [4, 2, 1],
    [4, 4, 1],
    [2, 4, 1],
    [4, 4, 2],
    [4, 8, 1],
    [2, 8, 1],
    [2, 8, 2],
];
const WARPS: [[u32; 3]; 14] = [
    [1, 2, 1],
    [2, 1, 1],
    [1, 4, 1],
    [2, 2, 1],
    [4, 1, 1],
    [1, 8, 1],
    [2, 4, 1],
    [4, 2, 1],
    [1, 1, 4],
    [2, 1, 2],
    [1, 2, 2],
    [2, 1, 4],
    [1, 2, 4],
    [2, 2, 2],
];

/// Clocks of a launch and of the first patch's way through memory.
const START: f64 = 4_000.0;
/// Bytes a clock that one multiprocessor takes from the second-level cache, and gives to it.
const BYTES_PER_CLOCK: f64 = 32.0;
/// Clocks of a multiprocessor for one element that is gathered, and for eight that are finished.
const GATHERED: f64 = 0.12;
const FINISHED: f64 = 1.0;
/// Clocks of a fragment's way out of shared memory: 512 bytes at 128 a clock.
const FRAGMENT: f64 = 4.0;
/// What `mma.sync` reaches of a tensor core's peak on Hopper, whose full rate only wgmma has; before it, most.
const SHARE_HOPPER: f64 = 0.6;
const SHARE: f64 = 0.8;

impl Shape {
    pub(super) fn name(&self) -> String {
        let Shape { rows, nt, kc, warps: [x, y, z, n], buffers } = self;
        format!("{rows}x{nt}x{kc}_w{x}x{y}x{z}x{n}_b{buffers}")
    }

    pub(super) fn named(name: &str) -> Option<Shape> {
        let mut parts = name.split('_');
        let mut numbers = |prefix: &str| -> Option<Vec<u32>> {
            parts.next()?.strip_prefix(prefix)?.split('x').map(|part| part.parse().ok()).collect()
        };
        let (warp, warps, buffers) = (numbers("")?, numbers("w")?, numbers("b")?);
        let ([rows, nt, kc], [x, y, z, n], [buffers]) = (&warp[..], &warps[..], &buffers[..]) else {
            return None;
        };
        let shape = Shape { rows: *rows, nt: *nt, kc: *kc, warps: [*x, *y, *z, *n], buffers: *buffers };
        let sane = PER_WARP.contains(&[*rows, *nt, *n])
            && WARPS.contains(&[*x, *y, *z])
            && (16..=256).contains(kc)
            && kc.is_multiple_of(16)
            && (1..=2).contains(buffers);
        (sane && shape.name() == name).then_some(shape)
    }

    pub(super) fn threads(&self) -> u32 {
        32 * self.warps.iter().product::<u32>()
    }

    pub(super) fn columns(&self) -> usize {
        (8 * self.nt * self.warps[3]) as usize
    }

    /// Pixels along x, y, z.
    pub(super) fn extent(&self) -> [usize; 3] {
        let [x, y, z, _] = self.warps;
        [16 * x, self.rows * y, z].map(|size| size as usize)
    }

    /// Bytes of a pixel of the patch.
    fn pitch(&self) -> usize {
        self.kc as usize * 2 + 16
    }

    /// Pixels of the patch along x, y, z.
    fn patch(&self, work: &Amount) -> [usize; 3] {
        let extent = self.extent();
        let reach = |axis: usize| {
            (extent[axis] - 1) * work.stride[axis] + (work.taps[axis] - 1) * work.dilation[axis] + 1
        };
        [if work.gather { extent[0] } else { reach(0) }, reach(1), reach(2)]
    }

    /// As the kernel lays it out: weights of all chunks and taps, then patches.
    pub(super) fn shared_bytes(&self, work: &Amount) -> usize {
        let weights = self.chunks(work) * work.kept_taps() * self.columns() * self.pitch();
        let patch = self.patch(work).iter().product::<usize>() * self.pitch();
        weights + self.buffers as usize * patch
    }

    fn chunks(&self, work: &Amount) -> usize {
        work.inner().div_ceil(self.kc as usize)
    }

    /// Shapes for a convolution, without those that have no chance.
    pub(super) fn all(gpu: &Gpu, work: &Amount) -> Vec<Shape> {
        let inner = work.inner().next_multiple_of(16) as u32;
        let chunks: Vec<u32> = match work.gather {
            true => vec![inner],
            false => [16, 32, 64].into_iter().filter(|kc| inner.is_multiple_of(*kc)).collect(),
        };
        let columns = work.n.next_multiple_of(8);
        let mut shapes = Vec::new();
        for [rows, nt, wn] in PER_WARP {
            // At least three quarters of a single tile's columns exist, and few columns are not cut up.
            let own = (8 * nt * wn) as usize;
            if own > columns.next_power_of_two() || (own < columns && own < 32) {
                continue;
            }
            for [x, y, z] in WARPS {
                for &kc in &chunks {
                    for buffers in [1, 2] {
                        let shape = Shape { rows, nt, kc, warps: [x, y, z, wn], buffers };
                        let fits = shape.extent().iter().zip(work.size).zip([16, 4, 1]).all(
                            |((own, all), least)| *own <= all.next_multiple_of(least).max(least) * 5 / 4,
                        );
                        let sane = (buffers == 1 || !work.gather)
                            && (64..=256).contains(&shape.threads())
                            && shape.shared_bytes(work) <= gpu.smem_per_block;
                        if fits && sane {
                            shapes.push(shape);
                        }
                    }
                }
            }
        }
        shapes
    }

    /// Blocks on one multiprocessor at a time.
    fn together(&self, gpu: &Gpu, work: &Amount) -> f64 {
        let registers = self.rows * self.nt * 4 + work.taps[1] as u32 * self.nt.div_ceil(2) * 4 + 64;
        let by_registers = 65_536 / (registers.min(255) * self.threads());
        let by_memory = gpu.smem_per_sm / (self.shared_bytes(work) + 1024);
        by_memory.min(by_registers as usize).clamp(1, 8) as f64
    }
}

impl Amount {
    /// Elements that one tap of the patch has.
    pub(super) fn inner(&self) -> usize {
        if self.gather { self.taps[0] * self.c } else { self.c }
    }

    /// Taps that the patch is multiplied by.
    fn kept_taps(&self) -> usize {
        let [x, y, z] = self.taps;
        if self.gather { y * z } else { x * y * z }
    }

    /// Expected nanoseconds of a shape.
    pub(super) fn price_ns(&self, gpu: &Gpu, math: Math, shape: &Shape) -> f64 {
        let n_sms = f64::from(gpu.n_sms.max(1));
        let extent = shape.extent();
        let tiles = (0..3).map(|axis| self.size[axis].div_ceil(extent[axis])).product::<usize>()
            * self.images
            * self.n.div_ceil(shape.columns());
        let [tx, ty, tz] = self.taps;
        let tx = if self.gather { 1 } else { tx };
        let chunks = shape.chunks(self);
        let warps = f64::from(shape.threads() / 32);
        let depth = (chunks * shape.kc as usize / 16) as f64;
        let products = warps * f64::from(shape.rows * shape.nt) * (tx * ty * tz) as f64 * depth;
        let rows_in = (shape.rows as usize - 1) * self.stride[1] + (ty - 1) * self.dilation[1] + 1;
        let rows_in = rows_in.min(shape.rows as usize * ty);
        let fragments = warps
            * depth
            * (tx * tz) as f64
            * (rows_in as f64 + (ty as f64) * f64::from(shape.nt.div_ceil(2)));
        let peak = gpu.flops(math.arithmetic()) / 2.0 / n_sms / gpu.clock_hz;
        let share = if gpu.sm >= 90 { SHARE_HOPPER } else { SHARE };
        let together = shape.together(gpu, self);
        let per_sm = (tiles as f64 / n_sms).ceil();
        let active = (warps * together.min(per_sm)).min(16.0);
        // Some ten warps keep tensor cores and shared memory busy at once.
        let alone = (10.0 / active).max(1.0);
        let multiply =
            (products * 2048.0 / (peak * share)).max(fragments * FRAGMENT) * alone + 250.0 * chunks as f64;
        let patch = shape.patch(self).iter().product::<usize>() as f64;
        let load = match self.gather {
            true => patch * self.inner().next_multiple_of(8) as f64 * GATHERED,
            false => patch * f64::from(shape.kc) * 2.0 * chunks as f64 / BYTES_PER_CLOCK,
        };
        let made = (extent.iter().product::<usize>() * shape.columns().min(self.n)) as f64;
        let store = made / 8.0 * FINISHED + made * self.out_bytes as f64 / BYTES_PER_CLOCK;
        let overlaps = shape.buffers == 2 || together.min(per_sm) >= 2.0;
        let each = match overlaps {
            true => (multiply + store * 0.5).max(load + store),
            false => multiply + load + store,
        };
        let weights = (chunks * self.kept_taps() * shape.columns()) as f64 * f64::from(shape.kc) * 2.0;
        let clocks = START + load + weights / BYTES_PER_CLOCK + per_sm * each;
        clocks / gpu.clock_hz * 1e9
    }
}
