//! Lies about steps on the host, transfers and the bodies of control flow.

use planish_plan::{Control, Plan, Program, StepKind, Storage};
use planish_tensor::Dim;

use crate::{Forgery, all_refused, lie, like, output, step, value};

fn control<'a>(plan: &'a mut Plan, op: &str) -> &'a mut Control {
    match &mut step(plan, op).kind {
        StepKind::Control(control) => control,
        kind => panic!("{kind:?}"),
    }
}

fn body<'a>(plan: &'a mut Plan, op: &str) -> &'a mut Program {
    &mut control(plan, op).bodies[0]
}

pub(crate) const FORGERIES: [Forgery; 16] = [
    lie("a branch without the other", "control", "If with 1 bodies", |plan| {
        control(plan, "If").bodies.pop();
    }),
    lie("more captured values than inputs", "control", "captured values for fewer inputs", |plan| {
        control(plan, "If").n_captured = 40
    }),
    lie("fewer captured values than a body takes", "control", "it is given", |plan| {
        control(plan, "If").n_captured = 0
    }),
    lie("a body that takes one input more", "control", "it is given", |plan| {
        let body = body(plan, "Loop");
        let more = like(body, body.inputs[0], Storage::Input);
        body.inputs.push(more);
    }),
    lie("a body that carries nothing on", "control", "are carried on", |plan| {
        body(plan, "Loop").outputs.truncate(1)
    }),
    lie("a body whose output is its input", "control", "has no memory of its own", |plan| {
        let body = body(plan, "Loop");
        body.outputs[1] = body.inputs[2];
    }),
    lie(
        "a body whose condition is not one truth value",
        "control",
        "the condition must be one boolean",
        |plan| {
            let body = body(plan, "Loop");
            body.outputs[0] = body.outputs[1];
        },
    ),
    lie("a body that carries another type on", "control", "the model takes", |plan| {
        let body = body(plan, "Loop");
        body.outputs[1] = body.outputs[0];
    }),
    lie("bodies for an operator that has none", "control", "is not control flow", |plan| {
        step(plan, "If").region.nodes[0].op = planish_op::Neg {}.into()
    }),
    lie("control flow of two nodes", "control", "control flow of 2 nodes", |plan| {
        let region = &mut step(plan, "If").region;
        let again = region.nodes[0].clone();
        region.nodes.push(again);
    }),
    lie("a branch of other sizes than its step says", "control", "is to hold it", |plan| {
        for body in &mut control(plan, "If").bodies {
            let at = body.outputs[0] as usize;
            body.values[at].ty = crate::ty(planish_tensor::DType::F32, &[1, 1]);
        }
    }),
    lie("a result of the host that is a view", "host", "which has no memory of its own", |plan| {
        let at = output(plan, "NonZero", 0);
        let of = like(&mut plan.program, at, Storage::Own);
        value(plan, at).storage = Storage::Alias { of };
    }),
    lie("a result of the host that is a part", "host", "which has no memory of its own", |plan| {
        let at = output(plan, "NonZero", 0);
        let of = like(&mut plan.program, at, Storage::Own);
        value(plan, at).storage = Storage::Inside { of, axis: 0, offset: Dim::from(0) };
    }),
    lie(
        "a kernel that writes over what the host keeps",
        "host",
        "over what a step on the host made",
        |plan| {
            let of = step(plan, "Relu").inputs[0].expect("an input");
            let view = like(&mut plan.program, of, Storage::Alias { of });
            let mut again = step(plan, "Relu").clone();
            again.outputs[0] = Some(view);
            plan.program.steps.push(again);
        },
    ),
    lie("a transfer within one memory", "products", "a transfer from target 0 to target 0", |plan| {
        step(plan, "LogSoftmax").kind = StepKind::Transfer
    }),
    lie("a transfer of several values", "products", "a transfer has one input and one output", |plan| {
        step(plan, "MatMul").kind = StepKind::Transfer
    }),
];

#[test]
fn lies_about_bodies_and_the_host() {
    all_refused(&FORGERIES);
}
