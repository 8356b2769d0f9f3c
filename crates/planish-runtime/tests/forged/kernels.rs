//! Lies about tactics, packed weights, attributes, and operands that lie upon each other: refused when kernels are
//! prepared.

use planish_kernel::{Backend, Layout};
use planish_op::{Attribute, ValueType};
use planish_plan::{Plan, Storage};
use planish_tensor::{Bytes, DType, Dim, Shape, Tensor};

use crate::{
    Forgery, all_refused, input, like, output, packed, resize, set_attribute, set_tactic, step, unlist,
    value, weight,
};

/// Stores a step's weight in a format, as long as the format says, and has the step read it so.
fn pack_as(plan: &mut Plan, op: &str, idx: usize, format: &str) {
    let at = weight(plan, op, idx);
    let weight = &mut plan.weights[at];
    let n_bytes = planish_cpu::Cpu::new().packed_bytes(format, weight.dtype, &weight.dims);
    weight.format = Some(format.to_string());
    weight.packed_by = Some(0);
    // A format that such a weight cannot have: a length that an older reader took.
    weight.bytes = Bytes::from_vec(vec![1u8; n_bytes.unwrap_or(16 * 8 * 8 * 4)]);
    packed(step(plan, op))[idx] = Some(format.to_string());
}

pub(crate) const FORGERIES: [Forgery; 30] = [
    Forgery {
        name: "a tactic of no family",
        base: "products",
        says: "the CPU backend has no tactic",
        change: |plan| set_tactic(step(plan, "LogSoftmax"), "warp_speed"),
    },
    Forgery {
        name: "a tactic of another family",
        base: "products",
        says: "is no reduction",
        change: |plan| set_tactic(step(plan, "LogSoftmax"), "reduce_plain_avx2"),
    },
    Forgery {
        name: "a product's tactic on a softmax",
        base: "products",
        says: "no product of matrices",
        change: |plan| set_tactic(step(plan, "LogSoftmax"), "gemm_f32_1x1"),
    },
    Forgery {
        name: "a convolution's tactic on a product",
        base: "products",
        says: "is no convolution of its kind",
        change: |plan| {
            set_tactic(step(plan, "LogSoftmax"), "conv_igemm_f32");
        },
    },
    Forgery {
        name: "a depthwise tactic on a whole convolution",
        base: "convolutions",
        says: "not a depthwise convolution",
        change: |plan| set_tactic(step(plan, "Conv"), "depthwise_f32_avx2"),
    },
    Forgery {
        name: "a bottleneck's tactic on one convolution",
        base: "convolutions",
        says: "not a widening, a depthwise",
        change: |plan| set_tactic(step(plan, "Conv"), "bottleneck_f32_avx2"),
    },
    Forgery {
        name: "a tile that no kernel has",
        base: "convolutions",
        says: "no convolution is called",
        change: |plan| {
            packed(step(plan, "Conv"))[1] = None;
            set_tactic(step(plan, "Conv"), "conv_igemm_f32_999x999_avx512");
        },
    },
    Forgery {
        name: "a convolution whose weight is not packed",
        base: "convolutions",
        says: "needs its weight packed",
        change: |plan| packed(step(plan, "Conv"))[1] = None,
    },
    Forgery {
        name: "a lookup in a packed table",
        base: "picks",
        says: "does not read input 0 packed as `panels32x16`",
        change: |plan| pack_as(plan, "Gather", 0, "panels32x16"),
    },
    Forgery {
        name: "a pointwise program over a packed weight",
        base: "norms",
        says: "does not read input",
        change: |plan| {
            let last = step(plan, "RMSNormalization").inputs.len() - 1;
            pack_as(plan, "RMSNormalization", last, "panels32x16");
        },
    },
    Forgery {
        name: "a recurrent layer over a packed weight",
        base: "recurrent",
        says: "does not read input 1 packed as",
        change: |plan| pack_as(plan, "LSTM", 1, "conv_panels8v8_g1"),
    },
    Forgery {
        name: "a Winograd packing of a kernel of 1x1",
        base: "convolutions",
        says: "cpu does not pack so",
        change: |plan| {
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
        },
    },
    Forgery {
        name: "a depthwise packing of a whole convolution",
        base: "convolutions",
        says: "cpu does not pack so",
        change: |plan| pack_as(plan, "Conv", 1, "taps_by_channels16"),
    },
    Forgery {
        name: "a format of sizes that ask for all memory",
        base: "convolutions",
        says: "cpu reads",
        change: |plan| {
            let at = weight(plan, "Conv", 1);
            let value_at = input(plan, "Conv", 1);
            plan.weights[at].dims = vec![1, 1, 1 << 40, 1];
            resize(plan, value_at, &[1, 1, 1 << 40, 1]);
        },
    },
    Forgery {
        name: "a packed weight of fewer bytes than its format has",
        base: "convolutions",
        says: "bytes, cpu reads",
        change: |plan| {
            let at = weight(plan, "Conv", 1);
            plan.weights[at].bytes = plan.weights[at].bytes.slice(0..64).unwrap();
        },
    },
    Forgery {
        name: "a convolution over its own input",
        base: "convolutions",
        says: "overlaps input",
        change: |plan| {
            // The second convolution: its image and its output have the same sizes.
            let second =
                plan.program.steps.iter().position(|step| step.region.ops().contains("Add")).unwrap();
            let (from, to) = (plan.program.steps[second].inputs[0], plan.program.steps[second].outputs[0]);
            plan.program.values[to.unwrap() as usize].storage = Storage::Alias { of: from.unwrap() };
        },
    },
    Forgery {
        name: "a scatter over its own indices",
        base: "picks",
        says: "overlaps input",
        change: |plan| {
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
        },
    },
    Forgery {
        name: "a tiling over its own input",
        base: "moves",
        says: "overlaps input 0",
        change: |plan| {
            let from = output(plan, "Pad", 0);
            let to = output(plan, "Tile", 0);
            unlist(plan, to);
            // Room for what is tiled, and what is padded inside of it.
            value(plan, to).storage = Storage::Arena;
            value(plan, from).storage = Storage::Inside { of: to, axis: 1, offset: Dim::from(0) };
        },
    },
    Forgery {
        name: "two outputs of a step at one place",
        base: "recurrent",
        says: "overlaps another output",
        change: |plan| {
            let (last, cell) = (output(plan, "LSTM", 1), output(plan, "LSTM", 2));
            unlist(plan, cell);
            value(plan, cell).storage = Storage::Alias { of: last };
        },
    },
    Forgery {
        name: "a softmax upon a part of its input",
        base: "products",
        says: "overlaps input 0",
        change: |plan| {
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
        },
    },
    Forgery {
        name: "strides of nothing",
        base: "convolutions",
        says: "its inputs do not fit",
        change: |plan| set_attribute(step(plan, "Conv"), "strides", Attribute::Ints(vec![0, 0])),
    },
    Forgery {
        name: "padding beyond all sizes",
        base: "convolutions",
        says: "its inputs do not fit",
        change: |plan| set_attribute(step(plan, "Conv"), "pads", Attribute::Ints(vec![i64::MAX; 4])),
    },
    Forgery {
        name: "a dilation below zero",
        base: "convolutions",
        says: "its inputs do not fit",
        change: |plan| set_attribute(step(plan, "Conv"), "dilations", Attribute::Ints(vec![-3, -3])),
    },
    Forgery {
        name: "no groups",
        base: "convolutions",
        says: "its inputs do not fit",
        change: |plan| set_attribute(step(plan, "Conv"), "group", Attribute::Int(0)),
    },
    Forgery {
        name: "a softmax along an axis that is not there",
        base: "products",
        says: "its inputs do not fit",
        change: |plan| set_attribute(step(plan, "LogSoftmax"), "axis", Attribute::Int(i64::MIN)),
    },
    Forgery {
        name: "blocks of nothing",
        base: "moves",
        says: "its inputs do not fit",
        change: |plan| set_attribute(step(plan, "DepthToSpace"), "blocksize", Attribute::Int(0)),
    },
    Forgery {
        name: "a recurrent layer of other gates",
        base: "recurrent",
        says: "its inputs do not fit",
        change: |plan| set_attribute(step(plan, "LSTM"), "hidden_size", Attribute::Int(1 << 40)),
    },
    Forgery {
        name: "padding below nothing",
        base: "moves",
        says: "step `",
        change: |plan| {
            let constants = &mut step(plan, "Pad").region.constants;
            constants[0] = Tensor::vector(vec![i64::MIN; 8]);
        },
    },
    Forgery {
        name: "more repeats than there is room for",
        base: "moves",
        says: "is to hold it",
        change: |plan| {
            let constants = &mut step(plan, "Tile").region.constants;
            constants[0] = Tensor::vector(vec![1i64, 9, 1, 1]);
        },
    },
    Forgery {
        name: "an image in a layout that its kernel does not read",
        base: "convolutions",
        says: "does not take these operands",
        change: |plan| {
            let at = output(plan, "Conv", 0);
            value(plan, at).layout = Layout::Plain;
        },
    },
];

#[test]
fn lies_about_kernels() {
    all_refused(&FORGERIES);
}
