//! Lies about types and sizes: refused when a context meets them.

use planish_kernel::Ref;
use planish_op::ValueType;
use planish_plan::Storage;
use planish_tensor::{DType, Dim, Shape, Tensor};

use crate::{Forgery, all_refused, input, like, output, resize, step, ty, unlist, value};

pub(crate) const FORGERIES: [Forgery; 20] = [
    Forgery {
        name: "a reduction whose region gives its input back",
        base: "reductions",
        says: "is to hold it",
        change: |plan| step(plan, "ReduceMean").region.outputs[0] = Ref::Input(0),
    },
    Forgery {
        name: "a running sum whose region gives its axis back",
        base: "reductions",
        says: "is to hold it",
        change: |plan| step(plan, "CumSum").region.outputs[0] = Ref::Constant(0),
    },
    Forgery {
        name: "a reduction to fewer elements than it makes",
        base: "reductions",
        says: "is to hold it",
        change: |plan| {
            let at = output(plan, "ReduceMax", 0);
            resize(plan, at, &[1, 1, 1, 1]);
        },
    },
    Forgery {
        name: "a product to fewer columns than it makes",
        base: "products",
        says: "is to hold it",
        change: |plan| {
            let at = input(plan, "LogSoftmax", 0);
            resize(plan, at, &[2, 6, 3]);
        },
    },
    Forgery {
        name: "a convolution to fewer pixels than it makes",
        base: "convolutions",
        says: "is to hold it",
        change: |plan| {
            let at = output(plan, "Conv", 0);
            resize(plan, at, &[2, 16, 1, 1]);
        },
    },
    Forgery {
        name: "a pool to fewer channels than it makes",
        base: "images",
        says: "is to hold it",
        change: |plan| {
            let at = output(plan, "MaxPool", 0);
            resize(plan, at, &[2, 1, 4, 4]);
        },
    },
    Forgery {
        name: "a search whose places are too narrow",
        base: "reductions",
        says: "is to hold it",
        change: |plan| {
            let at = output(plan, "ArgMax", 0);
            value(plan, at).ty = ty(DType::U8, &[2, 1, 5, 7]);
        },
    },
    Forgery {
        name: "an attention to other heads",
        base: "attention",
        says: "is to hold it",
        change: |plan| {
            let at = output(plan, "Attention", 0);
            resize(plan, at, &[1, 1, 5, 6]);
        },
    },
    Forgery {
        name: "a last state of another size",
        base: "recurrent",
        says: "is to hold it",
        change: |plan| {
            let at = output(plan, "LSTM", 1);
            resize(plan, at, &[1, 1, 1]);
        },
    },
    Forgery {
        name: "more of the best than there are",
        base: "reductions",
        says: "step `",
        change: |plan| {
            step(plan, "TopK").region.constants[0] = Tensor::vector(vec![i64::MAX]);
        },
    },
    Forgery {
        name: "sizes beyond all memory",
        base: "products",
        says: "more than any memory",
        change: |plan| {
            let at = output(plan, "MatMul", 0);
            resize(plan, at, &[1 << 30, 1 << 30, 1 << 30]);
        },
    },
    Forgery {
        name: "an output of nothing",
        base: "products",
        says: "is to hold it",
        change: |plan| {
            let at = input(plan, "LogSoftmax", 0);
            resize(plan, at, &[-5, 6, 6]);
        },
    },
    Forgery {
        name: "a symbol that nobody gives",
        base: "products",
        says: "a size is not known",
        change: |plan| {
            let at = output(plan, "MatMul", 0);
            let shape =
                [Dim::symbol("elsewhere"), Dim::from(6), Dim::from(33)].into_iter().collect::<Shape>();
            value(plan, at).ty = ValueType::tensor(DType::F32, shape);
        },
    },
    Forgery {
        name: "a view that is larger than its value at these sizes alone",
        base: "products",
        says: "does not fit into",
        change: |plan| {
            let of = input(plan, "LogSoftmax", 0);
            let view = like(&mut plan.program, of, Storage::Alias { of });
            let shape = [Dim::symbol("n") * Dim::from(2), Dim::from(6), Dim::from(6)];
            value(plan, view).ty = ValueType::tensor(DType::F32, shape.into_iter().collect::<Shape>());
            step(plan, "LogSoftmax").inputs[0] = Some(view);
        },
    },
    Forgery {
        name: "a part that leaves its value at these sizes alone",
        base: "products",
        says: "a size is not known",
        change: |plan| {
            let of = input(plan, "LogSoftmax", 0);
            let part = like(&mut plan.program, of, Storage::Inside { of, axis: 0, offset: Dim::symbol("n") });
            step(plan, "LogSoftmax").inputs[0] = Some(part);
        },
    },
    Forgery {
        name: "a required input that is left out",
        base: "products",
        says: "a kernel leaves out input 0",
        change: |plan| step(plan, "LogSoftmax").inputs[0] = None,
    },
    Forgery {
        name: "a mask that is left out",
        base: "attention",
        says: "a kernel leaves out input 3",
        change: |plan| step(plan, "Attention").inputs[3] = None,
    },
    Forgery {
        name: "numbers read as another type",
        base: "products",
        says: "its inputs do not fit",
        change: |plan| {
            let of = input(plan, "LogSoftmax", 0);
            let view = like(&mut plan.program, of, Storage::Alias { of });
            let shape = [Dim::symbol("n"), Dim::from(6), Dim::from(6)].into_iter().collect::<Shape>();
            value(plan, view).ty = ValueType::tensor(DType::I32, shape);
            step(plan, "LogSoftmax").inputs[0] = Some(view);
        },
    },
    Forgery {
        name: "an output of the host that is a tensor of another type",
        base: "host",
        says: "another type or shape than was inferred",
        change: |plan| {
            let at = output(plan, "NonZero", 0);
            let shape = [Dim::from(2), Dim::symbol("found")].into_iter().collect::<Shape>();
            value(plan, at).ty = ValueType::tensor(DType::U8, shape);
        },
    },
    Forgery {
        name: "an output that the caller would read beyond its end",
        base: "reductions",
        says: "is to hold it",
        change: |plan| {
            let at = output(plan, "ReduceMean", 0);
            unlist(plan, at);
            plan.program.outputs.push(at);
            resize(plan, at, &[1 << 20, 5]);
        },
    },
];

#[test]
fn lies_about_sizes() {
    all_refused(&FORGERIES);
}
