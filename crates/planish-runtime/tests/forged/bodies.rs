//! Lies about steps on the host, transfers and the bodies of control flow.

use planish_plan::{Control, Plan, Program, StepKind, Storage};
use planish_tensor::Dim;

use crate::{Forgery, all_refused, like, output, step, value};

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
    Forgery {
        name: "a branch without the other",
        base: "control",
        says: "If with 1 bodies",
        change: |plan| {
            control(plan, "If").bodies.pop();
        },
    },
    Forgery {
        name: "more captured values than inputs",
        base: "control",
        says: "captured values for fewer inputs",
        change: |plan| control(plan, "If").n_captured = 40,
    },
    Forgery {
        name: "fewer captured values than a body takes",
        base: "control",
        says: "it is given",
        change: |plan| control(plan, "If").n_captured = 0,
    },
    Forgery {
        name: "a body that takes one input more",
        base: "control",
        says: "it is given",
        change: |plan| {
            let body = body(plan, "Loop");
            let more = like(body, body.inputs[0], Storage::Input);
            body.inputs.push(more);
        },
    },
    Forgery {
        name: "a body that carries nothing on",
        base: "control",
        says: "are carried on",
        change: |plan| body(plan, "Loop").outputs.truncate(1),
    },
    Forgery {
        name: "a body whose output is its input",
        base: "control",
        says: "has no memory of its own",
        change: |plan| {
            let body = body(plan, "Loop");
            body.outputs[1] = body.inputs[2];
        },
    },
    Forgery {
        name: "a body whose condition is not one truth value",
        base: "control",
        says: "the condition must be one boolean",
        change: |plan| {
            let body = body(plan, "Loop");
            body.outputs[0] = body.outputs[1];
        },
    },
    Forgery {
        name: "a body that carries another type on",
        base: "control",
        says: "the model takes",
        change: |plan| {
            let body = body(plan, "Loop");
            body.outputs[1] = body.outputs[0];
        },
    },
    Forgery {
        name: "bodies for an operator that has none",
        base: "control",
        says: "is no control flow",
        change: |plan| step(plan, "If").region.nodes[0].op = planish_op::Neg {}.into(),
    },
    Forgery {
        name: "control flow of two nodes",
        base: "control",
        says: "control flow of 2 nodes",
        change: |plan| {
            let region = &mut step(plan, "If").region;
            let again = region.nodes[0].clone();
            region.nodes.push(again);
        },
    },
    Forgery {
        name: "a branch of other sizes than its step says",
        base: "control",
        says: "is to hold it",
        change: |plan| {
            for body in &mut control(plan, "If").bodies {
                let at = body.outputs[0] as usize;
                body.values[at].ty = crate::ty(planish_tensor::DType::F32, &[1, 1]);
            }
        },
    },
    Forgery {
        name: "a result of the host that is a view",
        base: "host",
        says: "which has no memory of its own",
        change: |plan| {
            let at = output(plan, "NonZero", 0);
            let of = like(&mut plan.program, at, Storage::Own);
            value(plan, at).storage = Storage::Alias { of };
        },
    },
    Forgery {
        name: "a result of the host that is a part",
        base: "host",
        says: "which has no memory of its own",
        change: |plan| {
            let at = output(plan, "NonZero", 0);
            let of = like(&mut plan.program, at, Storage::Own);
            value(plan, at).storage = Storage::Inside { of, axis: 0, offset: Dim::from(0) };
        },
    },
    Forgery {
        name: "a kernel that writes over what the host keeps",
        base: "host",
        says: "over what a step on the host made",
        change: |plan| {
            let of = step(plan, "Relu").inputs[0].expect("an input");
            let view = like(&mut plan.program, of, Storage::Alias { of });
            let mut again = step(plan, "Relu").clone();
            again.outputs[0] = Some(view);
            plan.program.steps.push(again);
        },
    },
    Forgery {
        name: "a transfer within one memory",
        base: "products",
        says: "a transfer from target 0 to target 0",
        change: |plan| step(plan, "LogSoftmax").kind = StepKind::Transfer,
    },
    Forgery {
        name: "a transfer of several values",
        base: "products",
        says: "a transfer has one input and one output",
        change: |plan| step(plan, "MatMul").kind = StepKind::Transfer,
    },
];

#[test]
fn lies_about_bodies_and_the_host() {
    all_refused(&FORGERIES);
}
