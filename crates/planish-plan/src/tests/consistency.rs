//! Plans whose parts contradict each other: refused when they are written, and so when they are read.

use planish_kernel::{Layout, Ref, Region};
use planish_op as op;
use planish_tensor::Dim;

use super::sample::{self, kernel, value};
use crate::{Plan, PlanErrorKind, StepKind, Storage};

/// Changes the sample; it must be refused with a message that has these words.
#[track_caller]
fn refused(words: &str, change: impl FnOnce(&mut Plan)) {
    let mut plan = sample::plan();
    plan.validate().expect("the sample is in order");
    change(&mut plan);
    let error = plan.to_bytes().expect_err(words);
    assert_eq!(error.kind(), PlanErrorKind::Inconsistent, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn indices_out_of_range() {
    refused("value 11 is named, there are 11", |plan| plan.program.steps[0].inputs[0] = Some(11));
    refused("value 99 is named", |plan| plan.program.outputs.push(99));
    refused("value 99 is named", |plan| plan.program.inputs.push(99));
    refused("value 99 is named", |plan| plan.program.values[4].storage = Storage::Alias { of: 99 });
    refused("`w` is weight 2 of 2", |plan| plan.program.values[1].storage = Storage::Weight(2));
    refused("target 2 of 2", |plan| plan.program.steps[1].target = 2);
    refused("target 2 of 2", |plan| plan.program.values[5].target = 2);
    refused("evidence for step 7 of 7", |plan| plan.evidence[0].step = 7);
    refused("of target Some(2), there are 2", |plan| plan.weights[0].packed_by = Some(2));
    refused("of target None", |plan| plan.weights[0].packed_by = None);
    refused("of target Some(0)", |plan| plan.weights[1].packed_by = Some(0));
    refused("constant #0 is weight 2 of 2", |plan| plan.constants[0] = 2);
}

#[test]
fn storages_that_cannot_be() {
    refused("is a part of itself", |plan| plan.program.values[4].storage = Storage::Alias { of: 4 });
    refused("is a part of itself", |plan| plan.program.values[6].storage = Storage::Alias { of: 4 });
    refused("at 0 of axis 4", |plan| {
        plan.program.values[3].storage = Storage::Inside { of: 6, axis: 4, offset: Dim::ZERO }
    });
    refused("at -1 of axis 1", |plan| {
        plan.program.values[3].storage = Storage::Inside { of: 6, axis: 1, offset: Dim::from(-1) }
    });
    refused("at 6 of axis 1", |plan| {
        plan.program.values[6].ty = sample::f32s("[batch,8,3,3]");
        plan.program.values[3].storage = Storage::Inside { of: 6, axis: 1, offset: Dim::from(6) };
    });
    refused("in the memory of", |plan| {
        plan.program.values[3].ty = sample::f32s("[1,4,3,3]");
        plan.program.values[4].ty = sample::f32s("[1,37]");
    });
    refused("cannot be known", |plan| plan.program.values[5].ty = sample::f32s("[unknown()]"));
    refused("has no memory of a tensor", |plan| plan.program.values[7].storage = Storage::Arena);
    refused("lie on different targets", |plan| plan.program.values[4].target = 1);
    refused("its weight is", |plan| plan.weights[0].dims = vec![4, 3, 3, 1]);
    refused("needs 16 bytes, it has 500", |plan| {
        plan.weights[1].bytes = plan.weights[0].bytes.clone();
    });
    refused("more than 4096 times", |plan| {
        for of in 10..4200 {
            plan.program.values.push(value("part", "[batch,8]", Storage::Alias { of }));
            plan.program.values.last_mut().unwrap().target = 1;
        }
    });
}

#[test]
fn orders_that_cannot_be() {
    refused("which nothing has written yet", |plan| plan.program.steps.swap(0, 2));
    refused("which was written before", |plan| {
        let again = plan.program.steps[1].clone();
        plan.program.steps.push(again);
    });
    refused("over an input or a weight", |plan| plan.program.steps[1].outputs[0] = Some(2));
    refused("over an input or a weight", |plan| plan.program.values[5].storage = Storage::Alias { of: 0 });
    refused("nothing writes the output `y on device`", |plan| {
        plan.program.steps.pop();
    });
    refused("nobody gives `cond`", |plan| {
        plan.program.inputs.pop();
    });
    refused("is not a value of the caller's, once", |plan| plan.program.inputs.push(0));
    refused("two inputs are called `x`", |plan| plan.program.values[8].name = "x".to_string());
}

#[test]
fn regions_and_steps_that_do_not_fit() {
    refused("3 inputs for a region of 2", |plan| {
        plan.program.steps[0].region = Region::single(op::Add {}.into(), 2, 1)
    });
    refused("which is not there", |plan| {
        plan.program.steps[0].region.nodes[0].inputs[0] = Some(Ref::Node { node: 0, output: 0 })
    });
    refused("which is not there", |plan| {
        plan.program.steps[0].region.outputs[0] = Ref::Node { node: 1, output: 1 }
    });
    refused("which is not there", |plan| {
        plan.program.steps[0].region.nodes[1].inputs[2] = Some(Ref::Constant(2))
    });
    refused("it reads `x` packed as panels32, which is not a weight", |plan| {
        let StepKind::Kernel { packed, .. } = &mut plan.program.steps[0].kind else { unreachable!() };
        packed[0] = Some("panels32".to_string());
    });
    refused("for 4097 threads", |plan| plan.header.threads = 4097);
    refused("it has no tactic", |plan| {
        plan.program.steps[0].kind = StepKind::Kernel { variants: vec![], packed: vec![], slow: false }
    });
    refused("`y on device` is on target 1", |plan| {
        let transfer = plan.program.steps.pop().unwrap();
        let region = Region::single(op::Relu {}.into(), 1, 1);
        plan.program.steps.push(kernel("relu", region, &[9], &[10]));
        assert_eq!(transfer.kind, StepKind::Transfer);
    });
    refused("a copy does not change plain to channels_last", |plan| {
        for at in [9, 10] {
            plan.program.values[at].ty = sample::f32s("[batch,8,2,2]");
        }
        plan.program.values[10].layout = Layout::ChannelsLast;
    });
    refused("Relu is not control flow", |plan| {
        plan.program.steps[3].region.nodes[0].op = op::Relu {}.into();
    });
    refused("If with 1 bodies", |plan| {
        let StepKind::Control(control) = &mut plan.program.steps[3].kind else { unreachable!() };
        control.bodies.pop();
    });
    refused("body 1: value 9 is named", |plan| {
        let StepKind::Control(control) = &mut plan.program.steps[3].kind else { unreachable!() };
        control.bodies[1].outputs[0] = 9;
    });
}

#[test]
fn code_that_stands_twice_or_is_empty() {
    refused("stands twice or out of order", |plan| plan.code[1].key = plan.code[0].key.clone());
    refused("stands twice or out of order", |plan| plan.code.reverse());
    refused("has no key or no bytes", |plan| plan.code[0].key.clear());
    refused("has no key or no bytes", |plan| {
        plan.code[1].bytes = planish_tensor::Bytes::from_vec(vec![0u8; 0])
    });
}

#[test]
fn profiles_that_are_no_ranges() {
    refused("`batch` has no range", |plan| plan.header.profiles[0].ranges[0].opt = 33);
    refused("`batch` has no range", |plan| plan.header.profiles[0].ranges[0].min = -1);
    refused("`batch` has two ranges", |plan| {
        let range = plan.header.profiles[0].ranges[0].clone();
        plan.header.profiles[0].ranges.push(range);
    });
    refused("tuned at -1", |plan| plan.header.tuned_at[0].1 = -1);
}
