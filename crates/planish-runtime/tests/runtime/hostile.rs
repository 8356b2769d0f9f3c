//! Plans that were made to harm, with checksums in order: refused when they are opened or met by their sizes, and no
//! kernel reads or writes outside of its memory.

use std::sync::Arc;

use planish::{Builder, Device};
use planish_cpu::Cpu;
use planish_kernel::Backend;
use planish_op::ValueType;
use planish_plan::{Certificate, Plan, StepKind, Storage};
use planish_runtime::{Engine, RunErrorKind, View};
use planish_tensor::{Bytes, DType, Dim, Shape};

use crate::common::{ROW, numbers, small_model};

fn plan() -> Plan {
    let builder = Builder::from_graph(small_model("2")).device(Device::Cpu).tune_level(0).threads(1);
    let mut plan = builder.build().unwrap().record().clone();
    // Whoever forges a plan leaves out the certificate, which would tell.
    plan.certificate = Certificate::default();
    plan
}

/// As a file with right checksums, opened and run: the error's text.
fn refused(change: impl FnOnce(&mut Plan)) -> String {
    let mut plan = plan();
    change(&mut plan);
    let bytes = match plan.to_bytes() {
        Ok(bytes) => bytes,
        // What the plan's own validation refuses is refused when read, too.
        Err(error) => return error.to_string(),
    };
    let plan = match Plan::from_bytes(Bytes::from_vec(bytes)) {
        Ok(plan) => plan,
        Err(error) => return error.to_string(),
    };
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    let engine = match Engine::new(plan, backends) {
        Ok(engine) => engine,
        Err(error) => {
            assert!(matches!(error.kind(), RunErrorKind::NeedsRebuild { .. }), "{error}");
            return error.to_string();
        }
    };
    let x = numbers(2 * ROW, 5);
    let mut context = engine.context().unwrap();
    let error = context.run(&[("x", View::new(&[2, 3, 12, 12], &x).unwrap())]).map(|_| ()).unwrap_err();
    error.to_string()
}

#[track_caller]
fn says(words: &str, change: impl FnOnce(&mut Plan)) {
    let text = refused(change);
    assert!(text.contains(words), "{text}");
}

fn ty(dims: &[usize]) -> ValueType {
    let shape: Shape = dims.iter().map(|&dim| Dim::from(dim)).collect();
    ValueType::tensor(DType::F32, shape)
}

fn packed(plan: &Plan) -> usize {
    plan.weights.iter().position(|weight| weight.format.is_some()).unwrap()
}

#[test]
fn packed_weights_of_forged_lengths() {
    for keep in [0, 4, 64] {
        says("bytes, cpu reads", |plan| {
            let idx = packed(plan);
            let weight = &mut plan.weights[idx];
            weight.bytes = weight.bytes.slice(0..keep).unwrap();
        });
    }
    // Longer ones are no better: the length follows from format and sizes.
    says("bytes, cpu reads", |plan| {
        let idx = packed(plan);
        let mut longer = plan.weights[idx].bytes.to_vec();
        longer.extend([0; 64]);
        plan.weights[idx].bytes = Bytes::from_vec(longer);
    });
}

#[test]
fn formats_that_kernels_do_not_read() {
    says("cpu does not pack so", |plan| {
        for step in &mut plan.program.steps {
            if let StepKind::Kernel { packed, .. } = &mut step.kind {
                packed.iter_mut().flatten().for_each(|format| *format = "panels7x3".into());
            }
        }
        for weight in plan.weights.iter_mut().filter(|weight| weight.format.is_some()) {
            weight.format = Some("panels7x3".into());
        }
    });
    // A format that the backend knows, but not for such a weight or not for that kernel.
    let text = refused(|plan| {
        for step in &mut plan.program.steps {
            if let StepKind::Kernel { packed, .. } = &mut step.kind {
                packed.iter_mut().flatten().for_each(|format| *format = "panels8x8".into());
            }
        }
        for weight in plan.weights.iter_mut().filter(|weight| weight.format.is_some()) {
            weight.format = Some("panels8x8".into());
        }
    });
    let said = ["bytes, cpu reads", "cpu does not pack so", "does not read"];
    assert!(said.iter().any(|words| text.contains(words)), "{text}");
}

#[test]
fn outputs_smaller_than_what_is_written() {
    // The first convolution's output, as seen by all of its readers.
    let text = refused(|plan| {
        let output = plan.program.steps[0].outputs[0].unwrap() as usize;
        plan.program.values[output].ty = ty(&[2, 16, 1, 1]);
    });
    assert!(text.contains("the plan is damaged") || text.contains("does not"), "{text}");
    // A vector of one element where a product of ten columns is written.
    let text = refused(|plan| {
        let output = *plan.program.outputs.last().unwrap() as usize;
        plan.program.values[output].ty = ty(&[2, 1]);
    });
    assert!(text.contains("the plan is damaged"), "{text}");
}

#[test]
fn sizes_beyond_all_memory() {
    let huge = usize::MAX >> 16;
    let text = refused(|plan| {
        for value in plan.program.values.iter_mut().filter(|value| value.storage == Storage::Arena) {
            value.ty = ty(&[huge, huge]);
        }
    });
    assert!(text.contains("more than any memory") || text.contains("the plan is damaged"), "{text}");
}

#[test]
fn parts_outside_of_what_they_are_parts_of() {
    let arena = |plan: &Plan| {
        let is_arena = |idx: &usize| plan.program.values[*idx].storage == Storage::Arena;
        (0..plan.program.values.len()).filter(is_arena).collect::<Vec<_>>()
    };
    // Known sizes are refused when the plan is read.
    says("of axis 1 in", |plan| {
        let list = arena(plan);
        let rank = plan.program.values[list[1]].ty.as_tensor().unwrap().shape.as_ref().unwrap().rank();
        assert!(rank >= 2);
        plan.program.values[list[1]].storage =
            Storage::Inside { of: list[0] as u32, axis: 1, offset: Dim::from(1 << 20) };
    });
    says("in the memory of", |plan| {
        let list = arena(plan);
        plan.program.values[list[1]].storage = Storage::Alias { of: list[0] as u32 };
        plan.program.values[list[1]].ty = ty(&[1 << 20]);
    });
}
