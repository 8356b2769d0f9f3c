//! Lies about types and sizes: refused when a context meets them.

use planish_kernel::Ref;
use planish_op::ValueType;
use planish_plan::Storage;
use planish_tensor::{DType, Dim, Shape, Tensor};

use crate::{
    Forgery, all_refused, input, lie, like, output, resize, resize_input, resize_output, step, ty, unlist,
    value,
};

pub(crate) const FORGERIES: [Forgery; 20] = [
    lie("a reduction whose region gives its input back", "reductions", "is to hold it", |plan| {
        step(plan, "ReduceMean").region.outputs[0] = Ref::Input(0)
    }),
    lie("a running sum whose region gives its axis back", "reductions", "is to hold it", |plan| {
        step(plan, "CumSum").region.outputs[0] = Ref::Constant(0)
    }),
    lie("a reduction to fewer elements than it makes", "reductions", "is to hold it", |plan| {
        resize_output(plan, "ReduceMax", 0, &[1, 1, 1, 1])
    }),
    lie("a product to fewer columns than it makes", "products", "is to hold it", |plan| {
        resize_input(plan, "LogSoftmax", 0, &[2, 6, 3])
    }),
    lie("a convolution to fewer pixels than it makes", "convolutions", "is to hold it", |plan| {
        resize_output(plan, "Conv", 0, &[2, 16, 1, 1])
    }),
    lie("a pool to fewer channels than it makes", "images", "is to hold it", |plan| {
        resize_output(plan, "MaxPool", 0, &[2, 1, 4, 4])
    }),
    lie("a search whose places are too narrow", "reductions", "is to hold it", |plan| {
        let at = output(plan, "ArgMax", 0);
        value(plan, at).ty = ty(DType::U8, &[2, 1, 5, 7]);
    }),
    lie("an attention to other heads", "attention", "is to hold it", |plan| {
        resize_output(plan, "Attention", 0, &[1, 1, 5, 6])
    }),
    lie("a last state of another size", "recurrent", "is to hold it", |plan| {
        resize_output(plan, "LSTM", 1, &[1, 1, 1])
    }),
    lie("more of the best than there are", "reductions", "step `", |plan| {
        step(plan, "TopK").region.constants[0] = Tensor::vector(vec![i64::MAX]);
    }),
    lie("sizes beyond all memory", "products", "more than any memory", |plan| {
        resize_output(plan, "MatMul", 0, &[1 << 30, 1 << 30, 1 << 30])
    }),
    lie("an output of nothing", "products", "is to hold it", |plan| {
        resize_input(plan, "LogSoftmax", 0, &[-5, 6, 6])
    }),
    lie("a symbol that nobody gives", "products", "a size is not known", |plan| {
        let at = output(plan, "MatMul", 0);
        let shape = [Dim::symbol("elsewhere"), Dim::from(6), Dim::from(33)].into_iter().collect::<Shape>();
        value(plan, at).ty = ValueType::tensor(DType::F32, shape);
    }),
    lie(
        "a view that is larger than its value at these sizes alone",
        "products",
        "does not fit into",
        |plan| {
            let of = input(plan, "LogSoftmax", 0);
            let view = like(&mut plan.program, of, Storage::Alias { of });
            let shape = [Dim::symbol("n") * Dim::from(2), Dim::from(6), Dim::from(6)];
            value(plan, view).ty = ValueType::tensor(DType::F32, shape.into_iter().collect::<Shape>());
            step(plan, "LogSoftmax").inputs[0] = Some(view);
        },
    ),
    lie("a part that leaves its value at these sizes alone", "products", "a size is not known", |plan| {
        let of = input(plan, "LogSoftmax", 0);
        let part = like(&mut plan.program, of, Storage::Inside { of, axis: 0, offset: Dim::symbol("n") });
        step(plan, "LogSoftmax").inputs[0] = Some(part);
    }),
    lie("a required input that is left out", "products", "a kernel leaves out input 0", |plan| {
        step(plan, "LogSoftmax").inputs[0] = None
    }),
    lie("a mask that is left out", "attention", "a kernel leaves out input 3", |plan| {
        step(plan, "Attention").inputs[3] = None
    }),
    lie("numbers read as another type", "products", "its inputs do not fit", |plan| {
        let of = input(plan, "LogSoftmax", 0);
        let view = like(&mut plan.program, of, Storage::Alias { of });
        let shape = [Dim::symbol("n"), Dim::from(6), Dim::from(6)].into_iter().collect::<Shape>();
        value(plan, view).ty = ValueType::tensor(DType::I32, shape);
        step(plan, "LogSoftmax").inputs[0] = Some(view);
    }),
    lie(
        "an output of the host that is a tensor of another type",
        "host",
        "another type or shape than was inferred",
        |plan| {
            let at = output(plan, "NonZero", 0);
            let shape = [Dim::from(2), Dim::symbol("found")].into_iter().collect::<Shape>();
            value(plan, at).ty = ValueType::tensor(DType::U8, shape);
        },
    ),
    lie("an output that the caller would read beyond its end", "reductions", "is to hold it", |plan| {
        let at = output(plan, "ReduceMean", 0);
        unlist(plan, at);
        plan.program.outputs.push(at);
        resize(plan, at, &[1 << 20, 5]);
    }),
];

#[test]
fn lies_about_sizes() {
    all_refused(&FORGERIES);
}
