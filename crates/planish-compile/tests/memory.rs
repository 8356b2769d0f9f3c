//! The memory that a build takes beside the model: its weights once, packed, and little more.
//!
//! One test in a binary of its own: all that the process allocates is counted.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use planish_compile::{BuildOptions, TimingCache, build};
use planish_cpu::Cpu;
use planish_kernel::Backend;
use planish_tensor::Tensor;

/// Matrices of the model, each of `SIDE * SIDE` numbers of four bytes: 72 MB in all.
const N_WEIGHTS: usize = 32;
const SIDE: usize = 768;
const WEIGHT_BYTES: usize = N_WEIGHTS * SIDE * SIDE * 4;
/// What a build may take for each byte of the weights, in tenths; a second copy of them would be 20.
const TENTHS_PER_BYTE: usize = 13;
/// What it may take besides: comparisons hold a few weights in wider types.
const REST: usize = 24 << 20;

/// The system's allocator, counting.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let in_use = IN_USE.fetch_add(layout.size(), SeqCst) + layout.size();
        PEAK.fetch_max(in_use, SeqCst);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), SeqCst);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_build_holds_the_weights_once() {
    let weight = |seed: usize| {
        let value = |idx: usize| ((idx * 31 + seed * 7) % 1009) as f32 / 25_000.0 - 0.02;
        Tensor::new(&[SIDE, SIDE], (0..SIDE * SIDE).map(value).collect()).unwrap()
    };
    let weights: Vec<Tensor> = (0..N_WEIGHTS).map(weight).collect();
    let mut text = format!("graph \"g\" {{\n input %v0: f32[2, {SIDE}]\n");
    for idx in 0..N_WEIGHTS {
        let next = idx + 1;
        writeln!(text, " const %w{idx}: f32[{SIDE}, {SIDE}] = #{idx}").unwrap();
        writeln!(text, " %m{idx}: f32[2, {SIDE}] = MatMul(%v{idx}, %w{idx})").unwrap();
        writeln!(text, " %v{next}: f32[2, {SIDE}] = Tanh(%m{idx})").unwrap();
    }
    writeln!(text, " output %v{N_WEIGHTS}\n}}").unwrap();
    let graph = planish_ir::parse(&text, &weights).unwrap();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    let options = BuildOptions { tune_level: 1, threads: 2, ..BuildOptions::default() };
    let before = IN_USE.load(SeqCst);
    PEAK.store(before, SeqCst);
    let built = build(&graph, &backends, &options, &mut TimingCache::default()).unwrap();
    let taken = PEAK.load(SeqCst) - before;
    let packed = built.plan.weights.iter().filter(|weight| weight.format.is_some()).count();
    assert_eq!(packed, N_WEIGHTS, "nothing is asked of a build that packs nothing");
    let most = WEIGHT_BYTES / 10 * TENTHS_PER_BYTE + REST;
    assert!(taken <= most, "{} MB for {} MB of weights", taken >> 20, WEIGHT_BYTES >> 20);
}
