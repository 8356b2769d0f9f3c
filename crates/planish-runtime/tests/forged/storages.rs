//! Lies about where values are, who reads and writes them, and what stands in lists: refused when a plan is read.

use planish_kernel::{Layout, Ref};
use planish_op::ValueType;
use planish_plan::{Evidence, Profile, Role, StepKind, Storage, SymbolRange};
use planish_tensor::{DType, Dim};

use crate::{
    Forgery, all_refused, input, like, output, packed, place, resize, step, ty, unlist, value, weight,
};

pub(crate) const FORGERIES: [Forgery; 40] = [
    Forgery {
        name: "an output that is an input",
        base: "products",
        says: "has no memory of its own",
        change: |plan| plan.program.outputs[0] = plan.program.inputs[0],
    },
    Forgery {
        name: "an output that is a view of another value",
        base: "products",
        says: "has no memory of its own",
        change: |plan| {
            let of = plan.program.outputs[0];
            plan.program.outputs[0] = like(&mut plan.program, of, Storage::Alias { of });
        },
    },
    Forgery {
        name: "an output that is a part of another value",
        base: "products",
        says: "has no memory of its own",
        change: |plan| {
            let of = plan.program.outputs[0];
            let part = like(&mut plan.program, of, Storage::Inside { of, axis: 0, offset: Dim::from(0) });
            plan.program.outputs[0] = part;
        },
    },
    Forgery {
        name: "an output that is a weight",
        base: "products",
        says: "has no memory of its own",
        change: |plan| {
            let weight =
                plan.program.values.iter().position(|value| matches!(value.storage, Storage::Weight(_)));
            plan.program.outputs[0] = weight.unwrap() as u32;
        },
    },
    Forgery {
        name: "an input twice",
        base: "products",
        says: "is not a value of the caller's, once",
        change: |plan| plan.program.inputs.push(plan.program.inputs[0]),
    },
    Forgery {
        name: "a value of the caller's that is no input",
        base: "products",
        says: "nobody gives",
        change: |plan| {
            let of = plan.program.inputs[0];
            like(&mut plan.program, of, Storage::Input);
        },
    },
    Forgery {
        name: "two inputs of one name",
        base: "attention",
        says: "two inputs are called",
        change: |plan| {
            let name = value(plan, 0).name.clone();
            let second = plan.program.inputs[1];
            value(plan, second).name = name;
        },
    },
    Forgery {
        name: "an output that nothing writes",
        base: "products",
        says: "nothing writes the output",
        change: |plan| {
            let of = plan.program.outputs[0];
            plan.program.outputs[0] = like(&mut plan.program, of, Storage::Arena);
        },
    },
    Forgery {
        name: "steps in the wrong order",
        base: "products",
        says: "which nothing has written yet",
        change: |plan| plan.program.steps.reverse(),
    },
    Forgery {
        name: "a step that writes over an input",
        base: "products",
        says: "over an input or a weight",
        change: |plan| {
            let x = plan.program.inputs[0];
            step(plan, "LogSoftmax").outputs[0] = Some(x);
        },
    },
    Forgery {
        name: "a step that writes into a view of a weight",
        base: "products",
        says: "over an input or a weight",
        change: |plan| {
            let at = input(plan, "MatMul", 1);
            let view = like(&mut plan.program, at, Storage::Alias { of: at });
            step(plan, "LogSoftmax").outputs[0] = Some(view);
        },
    },
    Forgery {
        name: "a value that is written twice",
        base: "products",
        says: "which was written before",
        change: |plan| {
            let again = plan.program.steps[place(plan, "LogSoftmax")].clone();
            plan.program.steps.push(again);
        },
    },
    Forgery {
        name: "one value as two outputs of a step",
        base: "recurrent",
        says: "which was written before",
        change: |plan| step(plan, "LSTM").outputs[2] = step(plan, "LSTM").outputs[1],
    },
    Forgery {
        name: "a circle of views",
        base: "products",
        says: "is a part of itself",
        change: |plan| {
            let at = plan.program.values.len() as u32;
            let first = like(&mut plan.program, 0, Storage::Alias { of: at + 1 });
            like(&mut plan.program, 0, Storage::Alias { of: first });
        },
    },
    Forgery {
        name: "a chain of more views than any plan has",
        base: "products",
        says: "more than 4096 times",
        change: |plan| {
            let mut of = 0;
            for _ in 0..5000 {
                of = like(&mut plan.program, 0, Storage::Alias { of });
            }
        },
    },
    Forgery {
        name: "a view of a value that is not there",
        base: "products",
        says: "value 4000000000 is named",
        change: |plan| {
            like(&mut plan.program, 0, Storage::Alias { of: 4_000_000_000 });
        },
    },
    Forgery {
        name: "a view that is larger than what it is a view of",
        base: "bottleneck",
        says: "in the memory of",
        change: |plan| {
            let view = like(&mut plan.program, 0, Storage::Alias { of: 0 });
            resize(plan, view, &[1 << 30]);
        },
    },
    Forgery {
        name: "a part along an axis that is not there",
        base: "products",
        says: "of axis 7 in",
        change: |plan| {
            like(&mut plan.program, 0, Storage::Inside { of: 0, axis: 7, offset: Dim::from(0) });
        },
    },
    Forgery {
        name: "a part before the beginning",
        base: "products",
        says: "at -1 of axis 1 in",
        change: |plan| {
            like(&mut plan.program, 0, Storage::Inside { of: 0, axis: 1, offset: Dim::from(-1) });
        },
    },
    Forgery {
        name: "a part whose end wraps",
        base: "products",
        says: "of axis 1 in",
        change: |plan| {
            like(&mut plan.program, 0, Storage::Inside { of: 0, axis: 1, offset: Dim::from(i64::MAX) });
        },
    },
    Forgery {
        name: "a weight that is not there",
        base: "products",
        says: "is weight 99 of",
        change: |plan| {
            let at = input(plan, "MatMul", 1);
            value(plan, at).storage = Storage::Weight(99);
        },
    },
    Forgery {
        name: "a weight of another type than its value",
        base: "pointwise",
        says: "its weight is",
        change: |plan| {
            let at = weight(plan, "Mul", 1);
            plan.weights[at].dtype = DType::I32;
        },
    },
    Forgery {
        name: "a weight of fewer bytes than its sizes",
        base: "pointwise",
        says: "needs 28 bytes, it has 24",
        change: |plan| {
            let at = weight(plan, "Mul", 1);
            plan.weights[at].bytes = plan.weights[at].bytes.slice(0..24).unwrap();
        },
    },
    Forgery {
        name: "a weight whose sizes wrap",
        base: "pointwise",
        says: "does not fit into memory",
        change: |plan| {
            let at = weight(plan, "Mul", 1);
            plan.weights[at].dims = vec![1 << 40, 1 << 40];
        },
    },
    Forgery {
        name: "a packed weight in a layout",
        base: "convolutions",
        says: "channels_last in format",
        change: |plan| {
            let packed = plan.weights.iter_mut().find(|weight| weight.format.is_some()).unwrap();
            packed.layout = Layout::ChannelsLast;
        },
    },
    Forgery {
        name: "a value on a target that is not there",
        base: "products",
        says: "lies on target 7 of 1",
        change: |plan| value(plan, 0).target = 7,
    },
    Forgery {
        name: "a step on a target that is not there",
        base: "products",
        says: "it runs on target 7 of 1",
        change: |plan| plan.program.steps[0].target = 7,
    },
    Forgery {
        name: "a step that reads another target's memory",
        base: "products",
        says: "is on target 1",
        change: |plan| {
            let again = plan.header.targets[0].clone();
            plan.header.targets.push(again);
            plan.roles.push(Role::Device);
            let at = output(plan, "LogSoftmax", 0);
            value(plan, at).target = 1;
        },
    },
    Forgery {
        name: "a plan without a host",
        base: "products",
        says: "0 targets are hosts and 1 devices",
        change: |plan| plan.roles[0] = Role::Device,
    },
    Forgery {
        name: "a target without a role",
        base: "products",
        says: "1 targets have 0 roles",
        change: |plan| plan.roles.clear(),
    },
    Forgery {
        name: "a second device",
        base: "products",
        says: "1 targets are hosts and 2 devices",
        change: |plan| {
            let again = plan.header.targets[0].clone();
            plan.header.targets.extend([again.clone(), again]);
            plan.roles.extend([Role::Device, Role::Device]);
        },
    },
    Forgery {
        name: "more threads than any machine has",
        base: "products",
        says: "for 1000000 threads",
        change: |plan| plan.header.threads = 1_000_000,
    },
    Forgery {
        name: "a profile without sizes",
        base: "products",
        says: "has no range in",
        change: |plan| {
            let range = SymbolRange { symbol: "n".into(), min: 5, opt: 2, max: 9 };
            plan.header.profiles = vec![Profile { ranges: vec![range] }];
        },
    },
    Forgery {
        name: "evidence for a step that is not there",
        base: "products",
        says: "evidence for step 77",
        change: |plan| plan.evidence.push(Evidence { step: 77, timings: Vec::new(), why: String::new() }),
    },
    Forgery {
        name: "a step without tactics",
        base: "products",
        says: "it has no tactic",
        change: |plan| {
            if let StepKind::Kernel { variants, .. } = &mut plan.program.steps[0].kind {
                variants.clear();
            }
        },
    },
    Forgery {
        name: "an activation that is packed",
        base: "products",
        says: "which is no weight",
        change: |plan| packed(step(plan, "MatMul"))[0] = Some("panels32x16".into()),
    },
    Forgery {
        name: "a region that reads an input that is not there",
        base: "products",
        says: "the region reads Input(40)",
        change: |plan| step(plan, "LogSoftmax").region.nodes[0].inputs[0] = Some(Ref::Input(40)),
    },
    Forgery {
        name: "a region that reads itself",
        base: "products",
        says: "the region reads Node",
        change: |plan| {
            step(plan, "LogSoftmax").region.nodes[0].inputs[0] = Some(Ref::Node { node: 0, output: 0 });
        },
    },
    Forgery {
        name: "a node of four billion outputs",
        base: "moves",
        says: "a node of 4294967295 outputs",
        change: |plan| step(plan, "Tile").region.nodes[0].n_outputs = u32::MAX,
    },
    Forgery {
        name: "a kernel over a value that is no tensor",
        base: "products",
        says: "a kernel cannot take",
        change: |plan| {
            let at = output(plan, "LogSoftmax", 0);
            unlist(plan, at);
            value(plan, at).storage = Storage::Own;
            value(plan, at).ty = ValueType::Sequence(Box::new(ty(DType::F32, &[2])));
        },
    },
];

#[test]
fn lies_about_storages_and_lists() {
    all_refused(&FORGERIES);
}
