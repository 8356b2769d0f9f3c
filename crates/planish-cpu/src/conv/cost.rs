//! What convolutions are expected to take, in nanoseconds: for builds without measuring, and to leave out what
//! cannot win.
//!
//! The numbers are of a Zen 4 core; others differ in all of them by about the same factor, which is all that a
//! choice needs.

use super::geometry::Geometry;
use super::winograd::algebra::AxisKind;
use super::winograd::{Cut, Kind};
use crate::gemm::table::{Panels, Tile};
use crate::isa::Isa;

/// Cycles of a nanosecond.
const GIGAHERTZ: f64 = 3.6;

/// Time to wake a team and to join it.
const FORK_NS: f64 = 2_000.0;

/// Time to hand one task to a thread.
const TASK_NS: f64 = 100.0;

/// Bytes a nanosecond from the last-level cache, and from memory.
const CACHE_RATE: f64 = 25.0;
const MEMORY_RATE: f64 = 12.0;

/// What of the last-level cache weights can count on.
const CACHE_BYTES: f64 = 16e6;

/// Vector multiply-and-adds of a cycle, and how many of them tiles reach.
fn rate(isa: Isa) -> f64 {
    match isa.name() {
        "avx512" => 0.92,
        "avx2" => 1.75,
        _ => 0.3,
    }
}

/// The time of `cycles` that `n_tasks` even tasks share, on `threads` threads.
fn shared(cycles: f64, n_tasks: usize, threads: usize) -> f64 {
    let rounds = n_tasks.div_ceil(threads.max(1)).max(1);
    let tasks = n_tasks.max(1) as f64;
    let fork = if threads > 1 { FORK_NS } else { 0.0 };
    cycles / GIGAHERTZ * rounds as f64 / tasks + TASK_NS * rounds as f64 + fork
}

/// The time to bring weights to the cores, beyond what hides behind arithmetic.
fn weight_traffic(bytes: f64) -> f64 {
    bytes.min(CACHE_BYTES) / CACHE_RATE + (bytes - CACHE_BYTES).max(0.0) / MEMORY_RATE
}

/// Cycles of a matrix product of `m` windows over `n_segments` segments of `depth` each.
fn product(isa: Isa, tile: Tile, m: usize, k: usize, n_segments: usize, depth: usize) -> f64 {
    let vectors = k.div_ceil(tile.lanes());
    let n_tiles = m.div_ceil(tile.mr()) * k.div_ceil(tile.nr());
    let multiplications = (m * vectors * n_segments * depth) as f64 / rate(isa);
    // Entering a tile, then each segment of it; storing takes two cycles a vector.
    multiplications + (n_tiles * (40 + 12 * n_segments)) as f64 + 2.0 * (m * vectors) as f64
}

/// Implicit GEMM of bytes; the geometry counts quads of channels. The tile's rows, columns, and how many multiply-adds
/// it does in the time of one f32.
pub(super) fn quantized(
    g: &Geometry,
    isa: Isa,
    (mr, panels, speed): (usize, Panels, f64),
    n_tasks: usize,
    threads: usize,
) -> f64 {
    let n_taps = g.n_taps();
    let m = g.n_images * g.axes.iter().map(|axis| axis.output).product::<usize>();
    let vectors = g.k.div_ceil(panels.lanes);
    let n_tiles = m.div_ceil(mr) * g.k.div_ceil(panels.nr);
    let per_dot = 4.0 / (speed * rate(isa));
    let products = (m * vectors * n_taps * g.c) as f64 * per_dot;
    // Entering a tile, then each segment of it; scaling, rounding and storing take ten cycles a vector; a pointer for
    // each window and tap.
    let around =
        (n_tiles * (40 + 12 * n_taps)) as f64 + (10 * m * vectors) as f64 + 1.5 * (m * n_taps) as f64;
    shared(g.groups as f64 * (products + around), n_tasks, threads)
}

/// Implicit GEMM of bf16 over f32: the tile's rows, columns, and how many multiply-adds it does in the time of one f32.
pub(crate) fn bf16(
    g: &Geometry,
    isa: Isa,
    (mr, panels, speed): (usize, Panels, f64),
    n_tasks: usize,
    threads: usize,
) -> f64 {
    let (mut cycles, mut taps) = (0.0, 0);
    for phase in g.phases() {
        let (m, n_taps) = (g.n_images * phase.n_pixels(), phase.n_taps());
        let vectors = g.k.div_ceil(panels.lanes);
        let n_tiles = m.div_ceil(mr) * g.k.div_ceil(panels.nr);
        let products = (m.next_multiple_of(mr) * vectors * n_taps * g.c) as f64 / (speed * rate(isa));
        // Two loads, a conversion and a store for 32 numbers of a window; beginning a tile; bias, clamp and store of a
        // vector; a pointer for each window and tap.
        let rounding = (m * n_taps * g.c) as f64 * 0.1;
        let around = (n_tiles * 100 + 4 * m * vectors) as f64 + 1.5 * (m * n_taps) as f64;
        cycles += g.groups as f64 * (products + rounding + around);
        taps += n_taps;
    }
    let weights = 2.0 * (taps * g.groups * g.c * g.k) as f64;
    shared(cycles, n_tasks, threads) + weight_traffic(weights)
}

/// Implicit GEMM.
pub(super) fn igemm(g: &Geometry, isa: Isa, tile: Tile, n_tasks: usize, threads: usize) -> f64 {
    let (mut cycles, mut taps) = (0.0, 0);
    for phase in g.phases() {
        let m = g.n_images * phase.n_pixels();
        cycles += g.groups as f64 * product(isa, tile, m, g.k, phase.n_taps(), g.c);
        // A pointer for each window and tap.
        cycles += (g.groups * m * phase.n_taps()) as f64 * 1.5;
        taps += phase.n_taps();
    }
    // Rows whose distance is a multiple of 4 KiB share a set of the first cache, which has 8 places.
    let crowded = tile.mr() > 8 && g.n_taps() == 1 && g.input.axes[2].is_multiple_of(1024);
    let cycles = if crowded { cycles * 1.3 } else { cycles };
    let weights = 4.0 * (taps * g.groups * g.c * g.k) as f64;
    shared(cycles, n_tasks, threads) + weight_traffic(weights)
}

/// Bands of few channels.
pub(super) fn band(g: &Geometry, isa: Isa, tile: Tile, n_tasks: usize, threads: usize) -> f64 {
    let [z, y, x] = &g.axes;
    let m = g.n_images * g.out_pixels();
    let mut cycles = product(isa, tile, m, g.k, z.kernel * y.kernel, x.kernel * g.c);
    cycles += (m * z.kernel * y.kernel) as f64 * 1.5;
    // Rows are copied once for each tap of depth, and some twice.
    cycles += (g.n_images * g.in_size(0) * g.in_size(1) * g.in_size(2) * g.c * z.kernel) as f64 * 1.5;
    shared(cycles, n_tasks, threads)
}

/// Few outputs.
pub(super) fn narrow(g: &Geometry, isa: Isa, n_tasks: usize, threads: usize) -> f64 {
    let m = (g.n_images * g.out_pixels()) as f64;
    let vectors = (g.n_taps() * g.c.div_ceil(isa.lanes())) as f64;
    // Multiplications, a load of the pixel for each of them, pointers, and the accumulators of lanes.
    let cycles = vectors * (g.k as f64 + 1.0) / rate(isa) + 2.0 * g.n_taps() as f64 + 12.0 * g.k as f64;
    shared(m * cycles, n_tasks, threads)
}

/// Cycles that an axis' transforms take for a vector of channels and all of a tile: measured, with loads and
/// stores.
fn transform(kind: Kind) -> (f64, f64) {
    match kind {
        Kind::Two => (60.0, 40.0),
        Kind::Four => (190.0, 160.0),
        Kind::Row => (30.0, 25.0),
    }
}

/// Winograd; the last of the way is how many multiply-adds it does in the time of one f32.
pub(super) fn winograd(
    g: &Geometry,
    isa: Isa,
    tile: Tile,
    (kind, cut, speed): (Kind, Cut, f64),
    n_tasks: usize,
    threads: usize,
) -> f64 {
    let [y, x] = kind.axes().map(AxisKind::n_out);
    let columns = g.n_images * g.out_size(1).div_ceil(y) * g.out_size(2).div_ceil(x);
    let tiles = columns * g.out_size(0);
    let (input, output) = transform(kind);
    // Longer vectors do more at a time, but with half of the rate.
    let width = if isa.name() == "avx512" { 1.0 } else { 0.7 };
    let slices = if g.axes[0].kernel > 1 { 1.25 } else { 1.0 };
    let times = match cut {
        Cut::Split(rows) => (n_tasks / tiles.div_ceil(rows).max(1)).max(1),
        _ => 1,
    };
    let mut cycles = (times * tiles * g.c.div_ceil(tile.lanes())) as f64 * input * width * slices;
    cycles += tiles as f64 * g.k.div_ceil(tile.lanes()) as f64 * output * width;
    let products = product(isa, tile, tiles, g.k, g.axes[0].kernel, g.c);
    cycles += kind.n_points() as f64 * products / speed;
    let rows = cut.rows().min(tiles).max(1);
    let mut weights = 4.0 * (kind.n_points() * g.axes[0].kernel * g.c * g.k) as f64;
    if matches!(cut, Cut::Live(_)) {
        // Two cycles to store a vector at each point, and the accumulators.
        let vectors = (g.axes[0].kernel * g.c * g.k.div_ceil(tile.lanes())) as f64;
        cycles += tiles.div_ceil(rows) as f64 * vectors * 2.2 * kind.n_points() as f64;
        weights = 4.0 * (g.n_taps() * g.c * g.k) as f64;
    }
    // Points and products that outgrow the second cache wait for the third: seen are a tenth for each doubling
    // from a quarter of the cache on, then a quarter in all.
    let held = (4 * kind.n_points() * rows * (g.c + g.k.min(64))) as f64;
    let spill = (held / (super::L2_BYTES as f64 / 4.0)).log2().clamp(0.0, 2.5);
    let cycles = cycles * (1.0 + 0.1 * spill);
    // Each block of tiles reads all weights again; what the second cache holds costs nothing extra.
    let again = if weights > super::L2_BYTES as f64 { (tiles / rows) as f64 * 0.1 } else { 0.0 };
    let (fork, n_tasks) = match cut {
        Cut::Fused(_) | Cut::Split(_) => (0.0, n_tasks),
        Cut::Phased(_) | Cut::Live(_) => {
            let n_blocks = tiles.div_ceil(rows);
            (if threads > 1 { 2.0 * FORK_NS * n_blocks as f64 } else { 0.0 }, n_tasks * n_blocks)
        }
    };
    shared(cycles, n_tasks, threads) + weight_traffic(weights) * (1.0 + again) + fork
}
