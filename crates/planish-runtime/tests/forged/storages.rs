//! Lies about where values are, who reads and writes them, and what stands in lists: refused when a plan is read.

use planish_kernel::{Layout, Ref};
use planish_op::ValueType;
use planish_plan::{Evidence, Profile, Role, StepKind, Storage, SymbolRange};
use planish_tensor::{DType, Dim};

use crate::{
    Forgery, all_refused, input, lie, like, output, packed, place, resize, step, ty, unlist, value, weight,
};

pub(crate) const FORGERIES: [Forgery; 42] = [
    lie("an output that is an input", "products", "has no memory of its own", |plan| {
        plan.program.outputs[0] = plan.program.inputs[0]
    }),
    lie("an output that is a view of another value", "products", "has no memory of its own", |plan| {
        let of = plan.program.outputs[0];
        plan.program.outputs[0] = like(&mut plan.program, of, Storage::Alias { of });
    }),
    lie("an output that is a part of another value", "products", "has no memory of its own", |plan| {
        let of = plan.program.outputs[0];
        let part = like(&mut plan.program, of, Storage::Inside { of, axis: 0, offset: Dim::from(0) });
        plan.program.outputs[0] = part;
    }),
    lie("an output that is a weight", "products", "has no memory of its own", |plan| {
        let weight = plan.program.values.iter().position(|value| matches!(value.storage, Storage::Weight(_)));
        plan.program.outputs[0] = weight.unwrap() as u32;
    }),
    lie("an input twice", "products", "is not a value of the caller's, once", |plan| {
        plan.program.inputs.push(plan.program.inputs[0])
    }),
    lie("a value of the caller's that is not an input", "products", "nobody gives", |plan| {
        let of = plan.program.inputs[0];
        like(&mut plan.program, of, Storage::Input);
    }),
    lie("two inputs of one name", "attention", "two inputs are called", |plan| {
        let name = value(plan, 0).name.clone();
        let second = plan.program.inputs[1];
        value(plan, second).name = name;
    }),
    lie("an output that nothing writes", "products", "nothing writes the output", |plan| {
        let of = plan.program.outputs[0];
        plan.program.outputs[0] = like(&mut plan.program, of, Storage::Arena);
    }),
    lie("steps in the wrong order", "products", "which nothing has written yet", |plan| {
        plan.program.steps.reverse()
    }),
    lie("a step that writes over an input", "products", "over an input or a weight", |plan| {
        let x = plan.program.inputs[0];
        step(plan, "LogSoftmax").outputs[0] = Some(x);
    }),
    lie("a step that writes into a view of a weight", "products", "over an input or a weight", |plan| {
        let at = input(plan, "MatMul", 1);
        let view = like(&mut plan.program, at, Storage::Alias { of: at });
        step(plan, "LogSoftmax").outputs[0] = Some(view);
    }),
    lie("a value that is written twice", "products", "which was written before", |plan| {
        let again = plan.program.steps[place(plan, "LogSoftmax")].clone();
        plan.program.steps.push(again);
    }),
    lie("one value as two outputs of a step", "recurrent", "which was written before", |plan| {
        step(plan, "LSTM").outputs[2] = step(plan, "LSTM").outputs[1]
    }),
    lie("a circle of views", "products", "is a part of itself", |plan| {
        let at = plan.program.values.len() as u32;
        let first = like(&mut plan.program, 0, Storage::Alias { of: at + 1 });
        like(&mut plan.program, 0, Storage::Alias { of: first });
    }),
    lie("a chain of more views than any plan has", "products", "more than 4096 times", |plan| {
        let mut of = 0;
        for _ in 0..5000 {
            of = like(&mut plan.program, 0, Storage::Alias { of });
        }
    }),
    lie("a view of a value that is not there", "products", "value 4000000000 is named", |plan| {
        like(&mut plan.program, 0, Storage::Alias { of: 4_000_000_000 });
    }),
    lie("a view that is larger than what it is a view of", "bottleneck", "in the memory of", |plan| {
        let view = like(&mut plan.program, 0, Storage::Alias { of: 0 });
        resize(plan, view, &[1 << 30]);
    }),
    lie("a part along an axis that is not there", "products", "of axis 7 in", |plan| {
        like(&mut plan.program, 0, Storage::Inside { of: 0, axis: 7, offset: Dim::from(0) });
    }),
    lie("a part before the beginning", "products", "at -1 of axis 1 in", |plan| {
        like(&mut plan.program, 0, Storage::Inside { of: 0, axis: 1, offset: Dim::from(-1) });
    }),
    lie("a part whose end wraps", "products", "of axis 1 in", |plan| {
        like(&mut plan.program, 0, Storage::Inside { of: 0, axis: 1, offset: Dim::from(i64::MAX) });
    }),
    lie("a weight that is not there", "products", "is weight 99 of", |plan| {
        let at = input(plan, "MatMul", 1);
        value(plan, at).storage = Storage::Weight(99);
    }),
    lie("a weight of another type than its value", "pointwise", "its weight is", |plan| {
        let at = weight(plan, "Mul", 1);
        plan.weights[at].dtype = DType::I32;
    }),
    lie("a weight of fewer bytes than its sizes", "pointwise", "needs 28 bytes, it has 24", |plan| {
        let at = weight(plan, "Mul", 1);
        plan.weights[at].bytes = plan.weights[at].bytes.slice(0..24).unwrap();
    }),
    lie("a weight whose sizes wrap", "pointwise", "does not fit into memory", |plan| {
        let at = weight(plan, "Mul", 1);
        plan.weights[at].dims = vec![1 << 40, 1 << 40];
    }),
    lie("a packed weight in a layout", "convolutions", "channels_last in format", |plan| {
        let packed = plan.weights.iter_mut().find(|weight| weight.format.is_some()).unwrap();
        packed.layout = Layout::ChannelsLast;
    }),
    lie("a value on a target that is not there", "products", "lies on target 7 of 1", |plan| {
        value(plan, 0).target = 7
    }),
    lie("a step on a target that is not there", "products", "it runs on target 7 of 1", |plan| {
        plan.program.steps[0].target = 7
    }),
    lie("a step that reads another target's memory", "products", "is on target 1", |plan| {
        let again = plan.header.targets[0].clone();
        plan.header.targets.push(again);
        plan.roles.push(Role::Device);
        let at = output(plan, "LogSoftmax", 0);
        value(plan, at).target = 1;
    }),
    lie("a plan without a host", "products", "0 targets are hosts and 1 devices", |plan| {
        plan.roles[0] = Role::Device
    }),
    lie("a state that is no input", "products", "names no input", |plan| {
        plan.header.options = "state=nothing=nowhere".to_string()
    }),
    lie("a state that is no output", "products", "there is no output", |plan| {
        let name = &plan.program.values[plan.program.inputs[0] as usize].name;
        plan.header.options = format!("state={name}=nowhere")
    }),
    lie("a target without a role", "products", "1 targets have 0 roles", |plan| plan.roles.clear()),
    lie("a second device", "products", "1 targets are hosts and 2 devices", |plan| {
        let again = plan.header.targets[0].clone();
        plan.header.targets.extend([again.clone(), again]);
        plan.roles.extend([Role::Device, Role::Device]);
    }),
    lie("more threads than any machine has", "products", "for 1000000 threads", |plan| {
        plan.header.threads = 1_000_000
    }),
    lie("a profile without sizes", "products", "has no range in", |plan| {
        let range = SymbolRange { symbol: "n".into(), min: 5, opt: 2, max: 9 };
        plan.header.profiles = vec![Profile { ranges: vec![range] }];
    }),
    lie("evidence for a step that is not there", "products", "evidence for step 77", |plan| {
        plan.evidence.push(Evidence { step: 77, timings: Vec::new(), why: String::new() })
    }),
    lie("a step without tactics", "products", "it has no tactic", |plan| {
        if let StepKind::Kernel { variants, .. } = &mut plan.program.steps[0].kind {
            variants.clear();
        }
    }),
    lie("an activation that is packed", "products", "which is not a weight", |plan| {
        packed(step(plan, "MatMul"))[0] = Some("panels32x16".into())
    }),
    lie("a region that reads an input that is not there", "products", "the region reads Input(40)", |plan| {
        step(plan, "LogSoftmax").region.nodes[0].inputs[0] = Some(Ref::Input(40))
    }),
    lie("a region that reads itself", "products", "the region reads Node", |plan| {
        step(plan, "LogSoftmax").region.nodes[0].inputs[0] = Some(Ref::Node { node: 0, output: 0 });
    }),
    lie("a node of four billion outputs", "moves", "a node of 4294967295 outputs", |plan| {
        step(plan, "Tile").region.nodes[0].n_outputs = u32::MAX
    }),
    lie("a kernel over a value that is not a tensor", "products", "a kernel cannot take", |plan| {
        let at = output(plan, "LogSoftmax", 0);
        unlist(plan, at);
        value(plan, at).storage = Storage::Own;
        value(plan, at).ty = ValueType::Sequence(Box::new(ty(DType::F32, &[2])));
    }),
];

#[test]
fn lies_about_storages_and_lists() {
    all_refused(&FORGERIES);
}
