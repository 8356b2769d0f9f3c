//! Trials of plans, for tests: a problem run by each of a family's candidates on strided operands, and compared
//! with the reference. On a GPU if there is one; otherwise the kernels' text is compiled by the host's C++
//! compiler and its threads are fibers. Both compute with the same text.

mod device;
mod host;

use planish_kernel::{Budget, Candidate, Fault, Operand, Problem};
use planish_tensor::{DType, Tensor};
use planish_testing::operand::{GAP, arranged, collect, lay_out};
use planish_testing::{Random, Reals, Tolerance, assert_close, evaluate};

use crate::family::Family;
use crate::gpu::Gpu;

pub(crate) use self::device::cuda;
pub(crate) use self::host::emulate;

/// Runs the problem by every candidate of the family, in its layouts, dense and inside larger values.
#[track_caller]
pub(crate) fn check(family: &dyn Family, problem: &Problem, seed: u64, tolerance: Tolerance) {
    let mut numbers = Random::new(seed);
    let inputs: Vec<Tensor> =
        problem.inputs.iter().map(|operand| numbers.tensor(operand.dtype, &operand.dims, 2.0)).collect();
    check_on(family, problem, &inputs, tolerance);
}

/// The same on given inputs.
#[track_caller]
pub(crate) fn check_on(family: &dyn Family, problem: &Problem, inputs: &[Tensor], tolerance: Tolerance) {
    let gpu = match cuda() {
        Some(cuda) => cuda.gpu().clone(),
        None => Gpu::known("h200").unwrap(),
    };
    // What is computed with is f32, whatever it is stored in.
    let want = evaluate(&problem.region, inputs, Reals::F32).unwrap();
    let candidates = family.candidates(&gpu, problem, &Budget::USUAL);
    assert!(!candidates.is_empty(), "no candidate: {}", problem.key());
    for candidate in &candidates {
        let gaps: &[usize] = match candidate.inputs.iter().chain(&candidate.outputs).any(|want| want.inside) {
            true if cuda().is_some() => &[0, 8, 3],
            // The host's compiler is slow.
            true => &[0, 3],
            false => &[0],
        };
        for &gap in gaps {
            let mut arranged = arranged(problem, candidate, gap);
            let mut operands: Vec<Tensor> = inputs.to_vec();
            for (idx, operand) in arranged.inputs.iter_mut().enumerate() {
                if candidate.packed[idx].is_some() {
                    let packings = family.packings(problem, &candidate.tactic).unwrap();
                    let packing = packings.into_iter().find(|packing| packing.input == idx).unwrap();
                    let packed = packing.pack(problem, &candidate.tactic, &inputs[idx]).unwrap();
                    assert_eq!(Some(&packed.format), candidate.packed[idx].as_ref());
                    let len = packed.bytes.len();
                    operands[idx] = Tensor::from_bytes(DType::U8, &[len], packed.bytes).unwrap();
                    operand.packed = Some(packed.format);
                }
            }
            let what = format!("{} gap {gap}: {}", candidate.tactic, arranged.key());
            let plan = || family.plan(&gpu, &arranged, &candidate.tactic).unwrap();
            if cuda().is_none() && plan().steps.iter().any(|step| step.cluster > 1) {
                println!("{what}: the host has no clusters");
                continue;
            }
            let got = run(family, &gpu, &arranged, candidate, &operands);
            assert_eq!(got.len(), want.len(), "{what}");
            for (got, want) in got.iter().zip(&want) {
                assert_close(got, want, tolerance, &what);
            }
        }
    }
}

fn run(
    family: &dyn Family,
    gpu: &Gpu,
    problem: &Problem,
    candidate: &Candidate,
    inputs: &[Tensor],
) -> Vec<Tensor> {
    let lay = |(operand, tensor): (&Operand, &Tensor)| match operand.packed {
        Some(_) => tensor.bytes().to_vec(),
        None => lay_out(operand, tensor),
    };
    let from: Vec<Vec<u8>> = problem.inputs.iter().zip(inputs).map(lay).collect();
    let mut to: Vec<Vec<u8>> =
        problem.outputs.iter().map(|operand| vec![GAP; operand.span_bytes()]).collect();
    match cuda() {
        Some(cuda) => device::on_device(cuda, problem, candidate, &from, &mut to),
        None => {
            let plan = family.plan(gpu, problem, &candidate.tactic).unwrap();
            host::emulate(&plan, &from, &mut to);
        }
    }
    problem.outputs.iter().zip(&to).map(|(operand, bytes)| collect(operand, bytes).unwrap()).collect()
}

/// What the kernels of the family's first candidate tell of these inputs, and the output; on the host whether a device is
/// here or not, since a device's word is read by the runtime.
pub(crate) fn fault(family: &dyn Family, problem: &Problem, inputs: &[Tensor]) -> (Option<Fault>, Tensor) {
    let gpu = Gpu::known("h200").unwrap();
    let candidate = family.candidates(&gpu, problem, &Budget::USUAL).into_iter().next().unwrap();
    let plan = family.plan(&gpu, problem, &candidate.tactic).unwrap();
    let from: Vec<Vec<u8>> =
        problem.inputs.iter().zip(inputs).map(|(operand, tensor)| lay_out(operand, tensor)).collect();
    let mut to = vec![vec![GAP; problem.outputs[0].span_bytes()]];
    let word = host::emulate(&plan, &from, &mut to);
    (Fault::of_word(word), collect(&problem.outputs[0], &to[0]).unwrap())
}
