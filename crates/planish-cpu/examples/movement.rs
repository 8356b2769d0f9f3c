//! Micro-benchmarks of kernels that are bound by memory: depthwise convolution against the multiply-add peak,
//! everything else against a plain copy. One thread; times are the thread's own CPU time, so that other load
//! on the machine counts little.
//!
//! `cargo run --release -p planish-cpu --example movement [depthwise|…]`

#![allow(unsafe_code)]

use std::time::Duration;

use planish_cpu::depthwise::{Depthwise, DepthwiseArguments, packed_len};
use planish_cpu::isa::Isa;
use planish_cpu::simd::{Simd, SimdKernel};
use planish_cpu::spatial::Windows;
use planish_cpu::team::Team;
use planish_kernel::{Layout, Operand};
use planish_op::window::PlacedAxis;
use planish_tensor::DType;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    println!(
        "copy of 64 MiB: {:.1} GB/s; of 256 KiB: {:.1} GB/s (read and written)",
        copy_rate(64 << 20),
        copy_rate(256 << 10)
    );
    if wants("depthwise") {
        depthwise();
    }
}

/// CPU nanoseconds of this thread.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Seconds of CPU that one call takes: the best of several rounds, each long enough for the clock.
fn seconds(mut call: impl FnMut()) -> f64 {
    call();
    let mut n = 1;
    loop {
        let from = cpu_ns();
        (0..n).for_each(|_| call());
        if Duration::from_nanos(cpu_ns() - from) > Duration::from_millis(20) {
            break;
        }
        n *= 2;
    }
    let round = || {
        let from = cpu_ns();
        (0..n).for_each(|_| call());
        (cpu_ns() - from) as f64 / n as f64 / 1e9
    };
    std::iter::repeat_with(round).take(7).fold(f64::MAX, f64::min)
}

fn copy_rate(bytes: usize) -> f64 {
    let (from, mut to) = (vec![1u8; bytes], vec![2u8; bytes]);
    let time = seconds(|| to.copy_from_slice(std::hint::black_box(&from)));
    2.0 * bytes as f64 / time / 1e9
}

struct Peak(usize);

impl SimdKernel for Peak {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let mut sums = [s.splat(1.0); 12];
        let (a, b) = (s.splat(0.999), s.splat(0.001));
        for _ in 0..self.0 {
            for sum in &mut sums {
                *sum = s.mul_add(*sum, a, b);
            }
        }
        sums.into_iter().map(|sum| s.sum(sum)).sum()
    }
}

fn peak(isa: Isa) -> f64 {
    let n = 20_000;
    let time = seconds(|| {
        std::hint::black_box(isa.run(Peak(std::hint::black_box(n))));
    });
    2.0 * (n * 12 * isa.lanes()) as f64 / time / 1e9
}

fn axis(input: usize, kernel: usize, stride: usize) -> PlacedAxis {
    let pad = kernel / 2;
    let output = (input + 2 * pad - kernel) / stride + 1;
    PlacedAxis { input, output, kernel, stride, dilation: 1, pad_begin: pad, pad_end: pad }
}

fn depthwise() {
    for (size, channels, kernel, stride) in [
        (112, 32, 3, 1),
        (112, 96, 3, 2),
        (56, 144, 3, 1),
        (28, 192, 3, 1),
        (14, 384, 3, 1),
        (14, 576, 3, 2),
        (7, 960, 3, 1),
        (28, 240, 5, 1),
        (14, 480, 5, 1),
        (7, 1152, 5, 1),
        (56, 96, 7, 1),
        (14, 384, 7, 1),
    ] {
        let axes = [axis(size, kernel, stride), axis(size, kernel, stride)];
        let x = Operand::dense(DType::F32, &[1, channels, size, size], Layout::ChannelsLast);
        let out = axes[0].output;
        let y = Operand::dense(DType::F32, &[1, channels, out, out], Layout::ChannelsLast);
        let (data, weights) = (vec![0.5f32; x.len()], vec![0.25f32; packed_len(channels, kernel * kernel)]);
        let bias = vec![0.125f32; channels];
        let mut result = vec![0f32; y.len()];
        print!("depthwise {kernel}x{kernel}/{stride} {channels:5} x {size:3}²:");
        for isa in Isa::available() {
            let windows = Windows::new(&axes, &x, &y).expect("sizes fit");
            let plan = Depthwise::plan(isa, windows, channels, (0.0, 6.0)).expect("channels innermost");
            let team = Team::alone();
            let time = seconds(|| {
                let arguments = DepthwiseArguments {
                    x: data.as_ptr(),
                    weights: weights.as_ptr(),
                    bias: bias.as_ptr(),
                    y: result.as_mut_ptr(),
                    hook: None,
                };
                // SAFETY: the buffers have the sizes of the operands.
                unsafe { plan.run(&arguments, &team) };
            });
            let rate = 2.0 * plan.macs() as f64 / time / 1e9;
            let moved = (x.len() + y.len()) as f64 * 4.0 / time / 1e9;
            print!(
                "  {isa} {:.0} µs {rate:.1} GFLOP/s ({:.0} %) {moved:.0} GB/s",
                time * 1e6,
                100.0 * rate / peak(isa)
            );
        }
        println!();
    }
}
