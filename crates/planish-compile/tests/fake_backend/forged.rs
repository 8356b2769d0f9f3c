//! Plans over two memories that were forged: whatever they say, the host never uses a device's address as a pointer,
//! and a device's kernels get operands as their tactics take them.

use std::sync::Arc;

use planish_cpu::Cpu;
use planish_kernel::Backend;
use planish_plan::{Plan, Step, StepKind, Storage};
use planish_runtime::Engine;

use crate::device::{Fake, TRANSPOSED};
use crate::{random, written};

/// Validated, opened and run: the error's text.
fn refused(change: impl FnOnce(&mut Plan)) -> String {
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(Fake::default())];
    let weight = random(&[8, 8], 9).as_tensor().unwrap().clone();
    let mut plan = written(&backends[0], &backends[1], &weight);
    change(&mut plan);
    if let Err(error) = plan.validate() {
        return error.to_string();
    }
    let run = |plan| Engine::new(plan, backends)?.context()?.run_values(&[random(&[8, 8], 1)]);
    run(plan).unwrap_err().to_string()
}

fn value(plan: &Plan, name: &str) -> u32 {
    plan.program.values.iter().position(|value| value.name == name).unwrap() as u32
}

/// The step that makes a value.
fn maker<'a>(plan: &'a mut Plan, name: &str) -> &'a mut Step {
    let made = value(plan, name);
    plan.program.steps.iter_mut().find(|step| step.outputs == [Some(made)]).unwrap()
}

#[test]
fn the_host_reads_no_memory_of_a_device() {
    let text = refused(|plan| {
        let product = value(plan, "product");
        plan.program.values[product as usize].storage = Storage::Own;
        maker(plan, "tanh").inputs[0] = Some(product);
    });
    assert!(text.contains("it runs on target 0, `product` is on target 1"), "{text}");
    let text = refused(|plan| {
        let product = value(plan, "product");
        let tanh = maker(plan, "tanh");
        tanh.inputs[0] = Some(product);
        tanh.kind = StepKind::Evaluate;
    });
    assert!(text.contains("it runs on target 0, `product` is on target 1"), "{text}");
    let text = refused(|plan| maker(plan, "squared").kind = StepKind::Evaluate);
    assert!(text.contains("works on the host, its values are on a device"), "{text}");
}

#[test]
fn transfers_bring_values_from_one_memory_to_the_other() {
    let text = refused(|plan| {
        let weight = value(plan, "w");
        maker(plan, "product here").inputs[0] = Some(weight);
    });
    assert!(text.contains("it brings the weight `w`"), "{text}");
    let text = refused(|plan| maker(plan, "squared").kind = StepKind::Transfer);
    assert!(text.contains("a transfer has one input and one output"), "{text}");
    let text = refused(|plan| maker(plan, "relu").kind = StepKind::Transfer);
    assert!(text.contains("a transfer from target 1 to target 1"), "{text}");
}

#[test]
fn a_device_writes_in_place_only_where_its_tactic_can() {
    let text = refused(|plan| {
        let (sum, scaled) = (value(plan, "sum"), value(plan, "scaled"));
        plan.program.values[sum as usize].storage = Storage::Alias { of: scaled };
    });
    assert!(text.contains("output 0 overlaps input 1"), "{text}");
}

#[test]
fn a_device_reads_packed_only_what_its_tactic_packs() {
    let text = refused(|plan| {
        let weight = value(plan, "w");
        let scaled = maker(plan, "scaled");
        scaled.inputs[1] = Some(weight);
        let StepKind::Kernel { packed, .. } = &mut scaled.kind else { panic!("no kernel") };
        *packed = vec![None, Some(TRANSPOSED.to_string())];
    });
    assert!(text.contains("does not read input 1 packed as"), "{text}");
}
