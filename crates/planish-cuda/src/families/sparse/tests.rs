//! Kernels on the host against the reference.

use planish_gpu::plan::Plan;
use planish_kernel::{Budget, Candidate, KernelError, Operand, Problem, Tactic};
use planish_tensor::Tensor;
use planish_testing::problems::sparse;
use planish_testing::{Random, Tolerance};

use super::SparseFamily;
use crate::family::Family;
use crate::formats::Packing;
use crate::gpu::Gpu;
use crate::trial;

/// Sums of up to 512 products of numbers up to 2, in f32, stored in 16 bits of which bf16 leaves 8.
const SUMS: Tolerance = Tolerance { relative: 8e-3, absolute: 2e-2 };

/// Some of the tactics of each problem: the host's compiler is slow.
struct Some {
    most: usize,
}

impl Family for Some {
    fn name(&self) -> &'static str {
        "sparse"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let all = SparseFamily.candidates(gpu, problem, &Budget::WIDE);
        let step = all.len().div_ceil(self.most).max(1);
        all.into_iter().step_by(step).collect()
    }

    fn packings(&self, problem: &Problem, tactic: &Tactic) -> Result<Vec<Packing>, KernelError> {
        SparseFamily.packings(problem, tactic)
    }

    fn plan(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Plan, KernelError> {
        SparseFamily.plan(gpu, problem, tactic)
    }
}

fn check(problem: &Problem, seed: u64, most: usize) {
    let mut random = Random::new(seed);
    let inputs: Vec<Tensor> = (0..problem.inputs.len()).map(|idx| random.input(problem, idx, 2.0)).collect();
    trial::check_on(&Some { most }, problem, &inputs, SUMS);
}

#[test]
fn few_rows() {
    for (seed, problem) in sparse::samples().iter().enumerate() {
        check(problem, seed as u64, 1);
    }
}

#[test]
fn edges() {
    let has_kernels = |problem: &&Problem| !problem.outputs[0].is_empty();
    for (seed, problem) in sparse::of_all_sizes().iter().filter(has_kernels).enumerate() {
        if super::Posed::of(problem).is_ok() {
            check(problem, seed as u64, 1);
        }
    }
}

#[test]
fn dense_weights_have_no_candidates() {
    let gpu = Gpu::known("h200").unwrap();
    for problem in sparse::samples() {
        assert!(!SparseFamily.candidates(&gpu, &problem, &Budget::USUAL).is_empty(), "{}", problem.key());
        let dense = |operand: &Operand| Operand { two_of_four: false, ..operand.clone() };
        let inputs = problem.inputs.iter().map(dense).collect();
        let dense = Problem { inputs, ..problem };
        assert!(SparseFamily.candidates(&gpu, &dense, &Budget::USUAL).is_empty());
    }
}

#[test]
fn names_come_back() {
    let gpu = Gpu::known("h200").unwrap();
    for problem in sparse::samples() {
        for candidate in SparseFamily.candidates(&gpu, &problem, &Budget::WIDE) {
            let arranged = problem.for_candidate(&candidate);
            assert!(SparseFamily.sources(&gpu, &arranged, &candidate.tactic).is_ok(), "{}", candidate.tactic);
        }
    }
    // The last one's rows would not be in shared memory.
    for name in ["sparse_", "sparse_m8", "sparse_m8r3w4a1", "sparse_m64r1w4a1"] {
        let tactic = Tactic::new(name.to_string(), 1);
        assert!(SparseFamily.sources(&gpu, &sparse::samples()[0], &tactic).is_err(), "{name}");
    }
}
