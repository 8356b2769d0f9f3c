//! Kernels on the host against the reference, and the weight as numbers.

use planish_gpu::plan::{Arg, Plan, Slot};
use planish_kernel::{Budget, Candidate, KernelError, Problem, Tactic};
use planish_tensor::Tensor;
use planish_testing::problems::nbits;
use planish_testing::{Random, Reals, Tolerance, assert_close, evaluate};

use super::expand::Expanded;
use super::posed::Posed;
use super::{NBitsFamily, PREFIX, expand};
use crate::family::Family;
use crate::formats::Packing;
use crate::gpu::Gpu;
use crate::trial;

/// Sums of up to 512 products of numbers up to 2 and weights up to 255 times a scale below 2, in f32.
const SUMS: Tolerance = Tolerance { relative: 1e-5, absolute: 2e-2 };
/// The same where weights are rounded to f16 first: each of up to 192 products of at most 1020 is off by a 4096th, in either
/// direction, and their sum by about the root of 192 times that.
const ROUNDED_SUMS: Tolerance = Tolerance { relative: 1e-3, absolute: 3.5 };
/// Integers times scales, rounded once.
const NUMBERS: Tolerance = Tolerance { relative: 1e-7, absolute: 0.0 };

/// The tactics that are plans of launches, of which each problem is run by some.
struct Direct {
    most: usize,
    /// Those that scale weights before they multiply them.
    scaled: bool,
}

impl Family for Direct {
    fn name(&self) -> &'static str {
        "nbits"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let mut all = NBitsFamily.candidates(gpu, problem, &Budget::WIDE);
        all.retain(|candidate| !candidate.tactic.name.starts_with(&format!("{PREFIX}{}", expand::PREFIX)));
        let is_scaled = |candidate: &Candidate| candidate.tactic.name.contains("xh");
        all.retain(|candidate| is_scaled(candidate) == self.scaled);
        let step = all.len().div_ceil(self.most).max(1);
        all.into_iter().step_by(step).collect()
    }

    fn packings(&self, problem: &Problem, tactic: &Tactic) -> Result<Vec<Packing>, KernelError> {
        NBitsFamily.packings(problem, tactic)
    }

    fn plan(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Plan, KernelError> {
        NBitsFamily.plan(gpu, problem, tactic)
    }
}

#[test]
fn few_rows() {
    for (seed, problem) in nbits::samples().iter().enumerate() {
        trial::check(&Direct { most: 2, scaled: false }, problem, seed as u64, SUMS);
    }
}

#[test]
fn many_rows_of_scaled_weights() {
    let mut n_checked = 0;
    for (seed, problem) in nbits::samples().iter().enumerate() {
        let scaled = Direct { most: 2, scaled: true };
        if scaled.candidates(&Gpu::known("h200").unwrap(), problem, &Budget::WIDE).is_empty() {
            continue;
        }
        trial::check(&scaled, problem, seed as u64, ROUNDED_SUMS);
        n_checked += 1;
    }
    assert!(n_checked > 0, "no sample has as many rows");
}

#[test]
fn edges() {
    for (seed, problem) in nbits::of_all_sizes().iter().enumerate() {
        let takes = Posed::of(problem).is_ok_and(|posed| posed.reads().is_some() && posed.m > 0);
        if takes {
            trial::check(&Direct { most: 1, scaled: false }, problem, seed as u64, SUMS);
        }
    }
}

/// What the kernel leaves in the workspace is the weight as DequantizeLinear makes it, a row for each column.
#[test]
fn weights_become_numbers() {
    let gpu = Gpu::known("h200").unwrap();
    let mut n_checked = 0;
    for (seed, problem) in nbits::samples().iter().enumerate() {
        let posed = Posed::of(problem).unwrap();
        let inner = Expanded::candidates(&gpu, &posed, problem, &Budget::USUAL);
        let Some((inner, _)) = inner.into_iter().next() else { continue };
        let expanded = Expanded::of(&posed, Tactic::new(inner, 1)).unwrap();
        let mut random = Random::new(seed as u64);
        let tensors: Vec<Tensor> =
            problem.inputs.iter().map(|input| random.tensor(input.dtype, &input.dims, 1.0)).collect();
        let mut from: Vec<Vec<u8>> = tensors.iter().map(|tensor| tensor.bytes().to_vec()).collect();
        for packing in posed.packings() {
            from[packing.input] = packing.format.pack(&tensors[packing.input]).unwrap().bytes.to_vec();
        }
        let dtype = posed.weight.problem.inputs[posed.weight.weight].dtype;
        let plan = expanded.into_output();
        let (size, row) = (dtype.bits() / 8, posed.k.next_multiple_of(128 / dtype.bits()));
        let mut to = vec![vec![0xff; posed.n * row * size]];
        trial::emulate(&plan, &from, &mut to);
        let mut region = problem.region.clone();
        region.nodes.truncate(1);
        region.outputs = vec![planish_kernel::Ref::Node { node: 0, output: 0 }];
        let want = evaluate(&region, &tensors, Reals::Stored).unwrap().remove(0).to_f64s();
        let got = Tensor::from_bytes(dtype, &[posed.n, row], planish_tensor::Bytes::from_vec(to.remove(0)));
        let got = got.unwrap().to_f64s();
        let at = |column: usize, k: usize| match posed.weight.transposed {
            true => want[column * posed.k + k],
            false => want[k * posed.n + column],
        };
        let (mut made, mut expected) = (Vec::new(), Vec::new());
        for column in 0..posed.n {
            for k in 0..row {
                made.push(got[column * row + k]);
                expected.push(if k < posed.k { at(column, k) } else { 0.0 });
            }
        }
        let tensor = |values: &[f64]| Tensor::from_f64s(dtype, &[values.len()], values).unwrap();
        assert_close(&tensor(&made), &tensor(&expected), NUMBERS, &problem.key());
        n_checked += 1;
    }
    assert!(n_checked > 10, "{n_checked}");
}

impl Expanded {
    /// The launch that makes numbers, into the first output.
    fn into_output(self) -> Plan {
        let mut plan = self.expand;
        for arg in &mut plan.steps[0].args {
            if *arg == Arg::Address(Slot::Workspace, 0) {
                *arg = Arg::Address(Slot::Output(0), 0);
            }
        }
        plan
    }
}

#[test]
fn names_come_back() {
    let gpu = Gpu::known("h200").unwrap();
    for problem in nbits::samples() {
        for candidate in NBitsFamily.candidates(&gpu, &problem, &Budget::WIDE) {
            let arranged = problem.for_candidate(&candidate);
            assert!(NBitsFamily.sources(&gpu, &arranged, &candidate.tactic).is_ok(), "{}", candidate.tactic);
        }
    }
    for name in ["nbits_", "nbits_m8", "nbits_m8r3w4a1", "nbits_expand_", "nbits_expand_conv_f16"] {
        let tactic = Tactic::new(name.to_string(), 1);
        assert!(NBitsFamily.sources(&gpu, &nbits::samples()[0], &tactic).is_err(), "{name}");
    }
}
