//! Measured peak of fused multiply-adds in f32: what no kernel can beat, and a gauge of the load on the machine.
//!
//! Built by run.py with `rustc -C opt-level=3 -C target-cpu=native`. Usage: fma_peak THREADS SECONDS; prints GFLOP/s
//! (a multiply-add counts as two), all threads together.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

/// Independent chains: the latency of an FMA (4 cycles) times two a cycle, and some more for 256-bit units.
const CHAINS: usize = 12;
/// Floats of the widest vector register.
const LANES: usize = 16;
const STEPS: usize = 4096;

#[inline(always)]
fn step(sum: &mut [f32; LANES], factor: &[f32; LANES]) {
    for lane in 0..LANES {
        sum[lane] = sum[lane].mul_add(factor[lane], factor[lane]);
    }
}

/// Chains in variables of their own stay in registers; they start apart, or they would be computed as one.
fn block(factor: f32, seed: f32) -> f32 {
    let factor = [factor; LANES];
    let start: [[f32; LANES]; CHAINS] = std::array::from_fn(|chain| [seed + chain as f32; LANES]);
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h, mut i, mut j, mut k, mut l] = start;
    for _ in 0..STEPS {
        step(&mut a, &factor);
        step(&mut b, &factor);
        step(&mut c, &factor);
        step(&mut d, &factor);
        step(&mut e, &factor);
        step(&mut f, &factor);
        step(&mut g, &factor);
        step(&mut h, &factor);
        step(&mut i, &factor);
        step(&mut j, &factor);
        step(&mut k, &factor);
        step(&mut l, &factor);
    }
    [a, b, c, d, e, f, g, h, i, j, k, l].iter().flatten().sum()
}

/// GFLOP/s of one thread over `seconds`.
fn rate(seconds: f64) -> f64 {
    let (start, limit) = (Instant::now(), Duration::from_secs_f64(seconds));
    let mut n_blocks = 0;
    while start.elapsed() < limit {
        black_box(block(black_box(0.5), black_box(0.25)));
        n_blocks += 1;
    }
    (n_blocks * STEPS * CHAINS * LANES * 2) as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn main() {
    let mut args = std::env::args().skip(1);
    let n_threads: usize = args.next().and_then(|text| text.parse().ok()).unwrap_or(1);
    let seconds: f64 = args.next().and_then(|text| text.parse().ok()).unwrap_or(0.3);
    let threads: Vec<_> = (0..n_threads).map(|_| thread::spawn(move || rate(seconds))).collect();
    let total: f64 = threads.into_iter().map(|thread| thread.join().unwrap_or(0.0)).sum();
    println!("{total:.1}");
}
