//! Lies about tactics, packed weights, attributes, and operands that lie upon each other: refused when kernels are
//! prepared.

use planish_kernel::{Compiler, Layout};
use planish_op::{Attribute, ValueType};
use planish_plan::{Plan, Storage};
use planish_tensor::{Bytes, DType, Dim, Shape, Tensor};

use crate::{
    Forgery, all_refused, input, lie, like, output, packed, resize, set_attribute, set_tactic, step, unlist,
    value, weight,
};

/// Stores a step's weight in a format, as long as the format says, and has the step read it so.
fn pack_as(plan: &mut Plan, op: &str, idx: usize, format: &str) {
    let at = weight(plan, op, idx);
    let weight = &mut plan.weights[at];
    let n_bytes = planish_cpu::Cpu::new().packed_bytes(weight.packed_form(format));
    weight.format = Some(format.to_string());
    weight.packed_by = Some(0);
    // A format that such a weight cannot have: a length that an older reader took.
    weight.bytes = Bytes::from_vec(vec![1u8; n_bytes.unwrap_or(16 * 8 * 8 * 4)]);
    packed(step(plan, op))[idx] = Some(format.to_string());
}

pub(crate) const FORGERIES: [Forgery; 35] = [
    lie("a tactic of no family", "products", "the CPU backend has no tactic", |plan| {
        set_tactic(step(plan, "LogSoftmax"), "warp_speed")
    }),
    lie("a tactic of another family", "products", "is not a reduction", |plan| {
        set_tactic(step(plan, "LogSoftmax"), "reduce_plain_avx2")
    }),
    lie("a product's tactic on a softmax", "products", "not a product of matrices", |plan| {
        set_tactic(step(plan, "LogSoftmax"), "gemm_f32_1x1")
    }),
    lie("a convolution's tactic on a product", "products", "is not a convolution of its kind", |plan| {
        set_tactic(step(plan, "LogSoftmax"), "conv_igemm_f32");
    }),
    lie("a depthwise tactic on a whole convolution", "convolutions", "not a depthwise convolution", |plan| {
        set_tactic(step(plan, "Conv"), "depthwise_f32_avx2")
    }),
    lie(
        "a bottleneck's tactic on one convolution",
        "convolutions",
        "not a depthwise convolution of f32 images",
        |plan| set_tactic(step(plan, "Conv"), "bottleneck_f32_avx2"),
    ),
    lie("a tile that no kernel has", "convolutions", "no convolution is called", |plan| {
        packed(step(plan, "Conv"))[1] = None;
        set_tactic(step(plan, "Conv"), "conv_igemm_f32_999x999_avx512");
    }),
    lie("a convolution whose weight is not packed", "convolutions", "needs its weight packed", |plan| {
        packed(step(plan, "Conv"))[1] = None
    }),
    lie("a lookup in a packed table", "picks", "does not read input 0 packed as `panels32x16`", |plan| {
        pack_as(plan, "Gather", 0, "panels32x16")
    }),
    lie("a pointwise program over a packed weight", "norms", "does not read input", |plan| {
        let last = step(plan, "RMSNormalization").inputs.len() - 1;
        pack_as(plan, "RMSNormalization", last, "panels32x16");
    }),
    lie("a recurrent layer over a packed weight", "recurrent", "does not read input 1 packed as", |plan| {
        pack_as(plan, "LSTM", 1, "conv_panels8v8_g1")
    }),
    lie("a recurrent layer whose bytes are not packed", "recurrent", "needs input", |plan| {
        packed(step(plan, "DequantizeLinear"))[0] = None
    }),
    lie("sums in a type that no kernel has", "products", "which no kernel does", |plan| {
        step(plan, "MatMul").numeric.accumulator = DType::F64
    }),
    lie("a Winograd packing of a kernel of 1x1", "convolutions", "cpu does not pack so", |plan| {
        let op = plan.program.steps.iter().position(|step| step.region.ops().contains("Sigmoid"));
        let step = &mut plan.program.steps[op.expect("a 1x1 convolution")];
        let at = step.inputs.iter().flatten().find_map(|&value| {
            match plan.program.values[value as usize].storage {
                Storage::Weight(weight) if plan.weights[weight as usize].dims == [24, 16, 1, 1] => {
                    Some(weight)
                }
                _ => None,
            }
        });
        let weight = &mut plan.weights[at.expect("its weight") as usize];
        let format = "conv_winograd_two_panels8v8".to_string();
        let own = packed(step).iter().position(Option::is_some).expect("a packed weight");
        packed(step)[own] = Some(format.clone());
        weight.bytes = Bytes::from_vec(vec![1u8; 16 * 16 * 24 * 4]);
        weight.format = Some(format);
    }),
    lie("a depthwise packing of a whole convolution", "convolutions", "cpu does not pack so", |plan| {
        pack_as(plan, "Conv", 1, "taps_by_channels16")
    }),
    lie("a format of sizes that ask for all memory", "convolutions", "cpu reads", |plan| {
        let at = weight(plan, "Conv", 1);
        let value_at = input(plan, "Conv", 1);
        plan.weights[at].dims = vec![1, 1, 1 << 40, 1];
        resize(plan, value_at, &[1, 1, 1 << 40, 1]);
    }),
    lie(
        "a packed weight of 16 bits that is as long as one of f32",
        "convolutions",
        "bytes, cpu reads",
        |plan| {
            let at = weight(plan, "Conv", 1);
            plan.weights[at].narrowed = Some(DType::F16);
        },
    ),
    lie("a weight of 16 bits with as many bytes as f32 has", "convolutions", "bytes, it has", |plan| {
        let at = plan.weights.iter().position(|weight| weight.format.is_none()).expect("a plain weight");
        plan.weights[at].narrowed = Some(DType::BF16);
    }),
    lie(
        "a weight that is stored in a type that is not narrow",
        "convolutions",
        "cannot be stored as i8",
        |plan| {
            let at = weight(plan, "Conv", 1);
            plan.weights[at].narrowed = Some(DType::I8);
        },
    ),
    lie("a packed weight of fewer bytes than its format has", "convolutions", "bytes, cpu reads", |plan| {
        let at = weight(plan, "Conv", 1);
        plan.weights[at].bytes = plan.weights[at].bytes.slice(0..64).unwrap();
    }),
    lie("a convolution over its own input", "convolutions", "overlaps input", |plan| {
        // The second convolution: its image and its output have the same sizes.
        let second = plan.program.steps.iter().position(|step| step.region.ops().contains("Add")).unwrap();
        let (from, to) = (plan.program.steps[second].inputs[0], plan.program.steps[second].outputs[0]);
        plan.program.values[to.unwrap() as usize].storage = Storage::Alias { of: from.unwrap() };
    }),
    lie("a scatter over its own indices", "picks", "overlaps input", |plan| {
        // Indices are copied to where the result will be, and read from there.
        let (ids, to) = (plan.program.inputs[0], output(plan, "ScatterElements", 0));
        let index = like(&mut plan.program, ids, Storage::Alias { of: to });
        let at = crate::place(plan, "ScatterElements");
        let mut copy = step(plan, "Relu").clone();
        copy.region = planish_kernel::Region::single(planish_op::Identity {}.into(), 1, 1);
        (copy.inputs, copy.outputs) = (vec![Some(ids)], vec![Some(index)]);
        set_tactic(&mut copy, "move_copies");
        let scatter = &mut plan.program.steps[at];
        let place = scatter.inputs.len();
        scatter.inputs.push(Some(index));
        scatter.region.n_inputs += 1;
        scatter.region.nodes[0].inputs[1] = Some(planish_kernel::Ref::Input(place as u32));
        plan.program.steps.insert(at, copy);
    }),
    lie("a tiling over its own input", "moves", "overlaps input 0", |plan| {
        let from = output(plan, "Pad", 0);
        let to = output(plan, "Tile", 0);
        unlist(plan, to);
        // Room for what is tiled, and what is padded inside of it.
        value(plan, to).storage = Storage::Arena;
        value(plan, from).storage = Storage::Inside { of: to, axis: 1, offset: Dim::from(0) };
    }),
    lie("two outputs of a step at one place", "recurrent", "overlaps another output", |plan| {
        let (last, cell) = (output(plan, "LSTM", 1), output(plan, "LSTM", 2));
        unlist(plan, cell);
        value(plan, cell).storage = Storage::Alias { of: last };
    }),
    lie("a softmax upon a part of its input", "products", "overlaps input 0", |plan| {
        let (from, to) = (input(plan, "LogSoftmax", 0), output(plan, "LogSoftmax", 0));
        unlist(plan, to);
        let whole = like(&mut plan.program, from, Storage::Arena);
        let shape = [Dim::symbol("n"), Dim::from(7), Dim::from(6)].into_iter().collect::<Shape>();
        value(plan, whole).ty = ValueType::tensor(DType::F32, shape);
        for (part, offset) in [(from, 0), (to, 1)] {
            let shape = [Dim::symbol("n"), Dim::from(6), Dim::from(6)].into_iter().collect::<Shape>();
            value(plan, part).ty = ValueType::tensor(DType::F32, shape);
            value(plan, part).storage = Storage::Inside { of: whole, axis: 1, offset: Dim::from(offset) };
        }
    }),
    lie("strides of nothing", "convolutions", "its inputs do not fit", |plan| {
        set_attribute(step(plan, "Conv"), "strides", Attribute::Ints(vec![0, 0]))
    }),
    lie("padding beyond all sizes", "convolutions", "its inputs do not fit", |plan| {
        set_attribute(step(plan, "Conv"), "pads", Attribute::Ints(vec![i64::MAX; 4]))
    }),
    lie("a dilation below zero", "convolutions", "its inputs do not fit", |plan| {
        set_attribute(step(plan, "Conv"), "dilations", Attribute::Ints(vec![-3, -3]))
    }),
    lie("no groups", "convolutions", "its inputs do not fit", |plan| {
        set_attribute(step(plan, "Conv"), "group", Attribute::Int(0))
    }),
    lie("a softmax along an axis that is not there", "products", "its inputs do not fit", |plan| {
        set_attribute(step(plan, "LogSoftmax"), "axis", Attribute::Int(i64::MIN))
    }),
    lie("blocks of nothing", "moves", "its inputs do not fit", |plan| {
        set_attribute(step(plan, "DepthToSpace"), "blocksize", Attribute::Int(0))
    }),
    lie("a recurrent layer of other gates", "recurrent", "its inputs do not fit", |plan| {
        set_attribute(step(plan, "LSTM"), "hidden_size", Attribute::Int(1 << 40))
    }),
    lie("padding below nothing", "moves", "step `", |plan| {
        let constants = &mut step(plan, "Pad").region.constants;
        constants[0] = Tensor::vector(vec![i64::MIN; 8]);
    }),
    lie("more repeats than there is room for", "moves", "is to hold it", |plan| {
        let constants = &mut step(plan, "Tile").region.constants;
        constants[0] = Tensor::vector(vec![1i64, 9, 1, 1]);
    }),
    lie(
        "an image in a layout that its kernel does not read",
        "convolutions",
        "does not take these operands",
        |plan| {
            let at = output(plan, "Conv", 0);
            value(plan, at).layout = Layout::Plain;
        },
    ),
];

#[test]
fn lies_about_kernels() {
    all_refused(&FORGERIES);
}
