//! Results do not depend on the caller's floating-point mode, in a run, in a build, on workers or beside the caller.

use std::hint::black_box;

use planish::{Bindings, Builder, Context, Device, Engine, View};

use crate::common::{ROW, numbers, small_model};

/// Flush subnormal results to zero, take subnormal operands for zero, round up, round down, and all of it rounding to
/// zero.
const MODES: [u32; 5] = [0x8000, 0x0040, 0x4000, 0x2000, 0x6000 | 0x8000 | 0x0040];
const DEFAULT: u32 = 0x1F80;

fn set_mode(mode: u32) {
    // SAFETY: SSE is part of x86-64; the bits are modes with all exceptions masked.
    unsafe {
        std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const mode, options(nostack, preserves_flags, readonly));
    }
}

/// What `work` gives while the calling thread is in another mode, which must be the same after it.
fn in_mode<T>(mode: u32, work: impl FnOnce() -> T) -> T {
    set_mode(DEFAULT | mode);
    let done = work();
    let mut after = 0u32;
    // SAFETY: as above; the register is stored to a variable of its size.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut after, options(nostack, preserves_flags)) };
    set_mode(DEFAULT);
    assert_eq!(after & !0x3F, DEFAULT | mode, "the caller's mode was not given back");
    done
}

fn engine() -> Engine {
    let plan = Builder::from_graph(small_model("batch"))
        .device(Device::Cpu)
        .tune_level(0)
        .threads(2)
        .build()
        .unwrap();
    Engine::new(plan, Device::Cpu).unwrap()
}

const THIRD: f32 = 1.0 / 3.0;

/// Products at run time and one that a build folds, of a subnormal number.
const PRODUCTS: &str = r#"graph "products" {
    input %x: f32[n]
    const %third: f32[1] = [0.33333334]
    const %tiny: f32[1] = [1e-39]
    %folded: f32[1] = Mul(%tiny, %third)
    %y: f32[n] = Mul(%x, %third)
    %z: f32[n] = Mul(%x, %folded)
    output %y, %z
}"#;

#[test]
fn every_mode_would_change_these_bits_and_none_does() {
    // Rounded up or down; subnormal products of normal numbers; subnormal operands.
    let x: Vec<f32> = (1..40).map(|n| n as f32 * [-1.0, 1.0, 1e-38, -1e-38, 1e-40][n % 5]).collect();
    let dims = [x.len()];
    let engine = || {
        let plan = Builder::from_graph(PRODUCTS.parse().unwrap()).device(Device::Cpu).tune_level(0).build();
        Engine::new(plan.unwrap(), Device::Cpu).unwrap()
    };
    let run = |engine: &Engine| -> Vec<Vec<u8>> {
        let mut context = engine.context().unwrap();
        let outputs = context.run(&[("x", View::new(&dims, &x).unwrap())]).unwrap();
        (0..2).map(|idx| outputs.at(idx).unwrap().bytes().to_vec()).collect()
    };
    let own =
        || -> Vec<u8> { x.iter().flat_map(|x| (black_box(*x) * black_box(THIRD)).to_ne_bytes()).collect() };
    let (kept, plain) = (engine(), own());
    let want = run(&kept);
    assert_eq!(want[0], plain);
    assert!(want[1].iter().any(|byte| *byte != 0), "the folded product is zero");
    for mode in MODES {
        assert_ne!(in_mode(mode, own), plain, "mode {mode:x} changes nothing here");
        assert_eq!(in_mode(mode, || run(&kept)), want, "a run in mode {mode:x}");
        assert_eq!(run(&in_mode(mode, engine)), want, "a build in mode {mode:x}");
    }
}

fn run(context: &mut Context, x: &[f32]) -> Vec<Vec<u8>> {
    let outputs = context.run(&[("x", View::new(&[2, 3, 12, 12], x).unwrap())]).unwrap();
    (0..2).map(|idx| outputs.at(idx).unwrap().bytes().to_vec()).collect()
}

#[test]
fn bits_are_those_of_the_default_mode() {
    // Thirds, scaled so that some products and sums are subnormal.
    let x: Vec<f32> = numbers(2 * ROW, 9)
        .into_iter()
        .enumerate()
        .map(|(idx, value)| match idx % 3 {
            0 => value / 3.0,
            1 => value / 3.0 * f32::MIN_POSITIVE,
            _ => value * 1e-30,
        })
        .collect();
    let kept = engine();
    let want = run(&mut kept.context().unwrap(), &x);
    for mode in MODES {
        assert_eq!(in_mode(mode, || run(&mut kept.context().unwrap(), &x)), want, "a run in mode {mode:x}");
        // Weights are packed, constants folded and kernels checked in the caller's mode unless somebody sees to it.
        let built = in_mode(mode, engine);
        assert_eq!(run(&mut built.context().unwrap(), &x), want, "a build in mode {mode:x}");
        // The runner's thread starts in the mode of whoever starts it.
        let mut context = kept.context().unwrap();
        let mut input = context.input_buffer("x", &[2, 3, 12, 12]).unwrap();
        input.as_mut_slice::<f32>().unwrap().copy_from_slice(&x);
        let bindings = Bindings::new().input("x", input);
        in_mode(mode, || context.run_async(bindings).unwrap().wait().map(drop).unwrap());
        assert_eq!(context.output(0).unwrap().bytes(), want[0], "a run beside the caller in mode {mode:x}");
    }
}
