//! The faults: what each is called, the model it is planted in, the tactic that is spoiled, and how.

use planish_op::Op;
use planish_tensor::Tensor;
use planish_testing::models;

use crate::faulty::{Launch, Spoil};

/// The text of a graph.
pub(crate) type Model = fn() -> String;

#[derive(Clone, Copy)]
pub(crate) struct Fault {
    /// What sort of mistake it is.
    pub(crate) kind: &'static str,
    pub(crate) name: &'static str,
    pub(crate) model: Model,
    /// A part of the tactic's name.
    pub(crate) tactic: &'static str,
    pub(crate) spoil: Spoil,
}

pub(crate) const fn fault(
    kind: &'static str,
    name: &'static str,
    model: Model,
    tactic: &'static str,
    spoil: fn(&mut Launch),
) -> Fault {
    Fault { kind, name, model, tactic, spoil: Spoil::Launch(spoil) }
}

/// Which model runs which tactic, for the control without a fault.
pub(crate) const FAMILIES: &[(Model, &str)] = &[
    (models::conv, "conv_igemm"),
    (models::stem, "conv_band"),
    (models::conv, "conv_winograd4"),
    (models::plain_conv, "conv_winograd2"),
    (models::residual, "conv_1x1"),
    (models::strided, "conv_igemm"),
    (models::depthwise, "depthwise"),
    (models::gemm, "gemm"),
    (models::square_gemm, "gemm"),
    (models::pointwise, "pointwise"),
    (models::relu, "pointwise"),
    (models::rows, "pointwise"),
    (models::product_of_rows, "gemm"),
    (models::layer_norm, "norm"),
    (models::group_norm, "norm"),
    (models::softmax, "softmax"),
    (models::attention, "attention"),
    (models::causal, "attention"),
    (models::max_pool, "pool"),
    (models::average_pool, "pool"),
    (models::transpose, "move"),
    (models::concat, "move"),
    (models::pad, "move"),
    (models::resize, "resize"),
    (models::reduce, "reduce"),
    (models::large_conv, "conv_igemm"),
    (models::large_gemm, "gemm"),
    (models::bottleneck, "bottleneck"),
    (models::gather, "pick"),
    (models::rotary, "rotary"),
    (models::cast, "pointwise"),
    (models::masked, "attention"),
    (models::loop_body, "gemm"),
    (models::scan_body, "gemm"),
    (models::branches, "softmax"),
    (models::branches, "norm"),
    (models::open_rows, "gemm"),
    (models::two_profiles, "gemm"),
    (models::few_bits, "nbits"),
    (models::recurrent, "recurrent_i8"),
    (running_sums, "typed"),
    (folded, "typed"),
    (half_spectra, "typed"),
    (live_weights, "live"),
];

/// Running sums of integers.
fn running_sums() -> String {
    "graph \"g\" { input %x: i64[3, 700] const %a: i64[1] = [1] %y: i64[3, 700] = CumSum(%x, %a) output %y }"
        .into()
}

/// Updates that are added where several meet.
fn folded() -> String {
    "graph \"g\" { input %x: f32[6, 5] input %i: i64[40, 5] input %u: f32[40, 5] \
     %y: f32[6, 5] = ScatterElements(%x, %i, %u) {reduction=\"add\"} output %y }"
        .into()
}

/// Spectra of real signals.
fn half_spectra() -> String {
    "graph \"g\" { input %x: f32[9, 48, 1] %y: f32[9, 25, 2] = DFT(%x) {onesided=true} output %y }".into()
}

/// A convolution whose weights a run brings.
fn live_weights() -> String {
    "graph \"g\" { input %x: f32[1, 5, 13, 11] input %w: f32[6, 5, 3, 3] \
     %y: f32[1, 6, 11, 9] = Conv(%x, %w) output %y }"
        .into()
}

/// Faults of single kernels.
pub(crate) const FAULTS: &[Fault] = &[
    // Convolution as a product.
    fault("border of an image", "the right border misses its last tap", models::conv, "conv_igemm", |l| {
        halo(l, 3, true)
    }),
    fault("border of an image", "the left border misses its first tap", models::stem, "conv_band", |l| {
        halo(l, 3, false)
    }),
    fault("border of an image", "the top border misses its first tap", models::conv, "conv_igemm", |l| {
        halo(l, 2, false)
    }),
    fault("epilogue", "bias dropped", models::conv, "conv_igemm", |l| drop_input(l, 2, |_| true)),
    fault("epilogue", "bias dropped in the last channels", models::stem, "conv_band", |l| {
        drop_input(l, 2, |p| p[1] >= 32)
    }),
    fault(
        "stale workspace",
        "workspace read before it is written",
        models::conv,
        "conv_igemm",
        stale_workspace,
    ),
    fault("elements exchanged", "spatial axes swapped", models::strided, "conv_igemm", |l| {
        let right = l.out.clone();
        let dims = l.dims.clone();
        l.each(|p, _| right[((p[0] * dims[1] + p[1]) * dims[2] + p[3]) * dims[3] + p[2]]);
    }),
    fault("elements exchanged", "windows begin one column late", models::strided, "conv_igemm", |l| {
        let image = l.inputs[0].clone().unwrap();
        let width = image.shape()[3];
        let values = image.to_f64s();
        let mut flat = 0;
        let other = l.instead(0, |p, _| {
            flat += 1;
            if p[3] + 1 < width { values[flat] as f32 } else { 0.0 }
        });
        l.take(&other, |_| true);
    }),
    fault("not written", "last column of each row not written", models::conv, "conv_igemm", |l| {
        not_written(l, 3)
    }),
    fault("tail of a tile", "last eight channels are those before", models::conv, "conv_igemm", |l| {
        repeated(l, 1, 8)
    }),
    fault("epilogue", "residual left out", models::residual, "conv_1x1", |l| {
        let residual = l.inputs.len() - 1;
        drop_input(l, residual, |_| true);
    }),
    fault("epilogue", "clipped at another bound", models::residual, "conv_1x1", |l| {
        let other = l.by(|region| {
            for constant in &mut region.constants {
                if constant.to_f64s() == [2.0] {
                    *constant = Tensor::scalar(1.9f32);
                }
            }
        });
        l.take(&other, |_| true);
    }),
    fault("one wrong channel", "one channel of a tile wrong", models::stem, "conv_band", |l| {
        l.each(|p, x| if p[1] == 13 { x * 1.01 } else { x });
    }),
    fault("epilogue", "Relu left out in the last row", models::conv, "conv_igemm", |l| {
        let other = l.by(|region| region.outputs[0] = planish_kernel::Ref::Node { node: 0, output: 0 });
        l.take(&other, |p| p[2] == 18);
    }),
    fault(
        "state kept between runs",
        "the result hangs on the run before",
        models::conv,
        "conv_igemm",
        previous_run,
    ),
    fault("threads", "two threads write one row", models::conv, "conv_igemm", |l| race(l, 2)),
    fault("epilogue", "bias added twice", models::strided, "conv_igemm", |l| {
        let other = l.instead(2, |_, x| 2.0 * x);
        l.take(&other, |_| true);
    }),
    Fault {
        kind: "weights",
        name: "a tap misplaced when packed",
        model: models::conv,
        tactic: "conv_igemm",
        spoil: Spoil::Packed(|weights, dims| {
            let taps: usize = dims[1..].iter().product();
            weights.swap(17 * taps + 4, 17 * taps + 5);
        }),
    },
    Fault {
        kind: "written over its input",
        name: "written over its live input",
        model: models::plain_conv,
        tactic: "conv_igemm",
        spoil: Spoil::InPlace,
    },
    // Winograd.
    fault("tail of a tile", "last row of tiles is the one before", models::conv, "conv_winograd4", |l| {
        repeated(l, 2, 1)
    }),
    fault("elements exchanged", "two columns of a tile swapped", models::conv, "conv_winograd4", |l| {
        let right = l.out.clone();
        let width = l.dims[3];
        let mut flat = 0;
        l.each(|p, x| {
            flat += 1;
            match p[3] % 4 {
                1 if p[3] + 1 < width => right[flat],
                2 => right[flat - 2],
                _ => x,
            }
        });
    }),
    fault(
        "stale workspace",
        "transformed tiles left from another channel",
        models::plain_conv,
        "conv_winograd2",
        stale_workspace,
    ),
    fault("precision", "products in half precision", models::conv, "conv_winograd4", |l| half(l, 0)),
    fault(
        "border of an image",
        "wrong at the right border only",
        models::plain_conv,
        "conv_winograd2",
        |l| halo(l, 3, true),
    ),
    // Depthwise.
    fault(
        "border of an image",
        "the left border misses its first tap",
        models::depthwise,
        "depthwise",
        |l| halo(l, 3, false),
    ),
    fault(
        "border of an image",
        "the bottom border misses its last tap",
        models::depthwise,
        "depthwise",
        |l| halo(l, 2, true),
    ),
    fault(
        "tail of a tile",
        "channels after the last full vector wrong",
        models::depthwise,
        "depthwise",
        |l| repeated(l, 1, 8),
    ),
    fault("epilogue", "bias dropped", models::depthwise, "depthwise", |l| drop_input(l, 2, |_| true)),
    fault("elements exchanged", "spatial axes swapped", models::depthwise, "depthwise", |l| {
        let right = l.out.clone();
        let dims = l.dims.clone();
        l.each(|p, _| right[((p[0] * dims[1] + p[1]) * dims[2] + p[3]) * dims[3] + p[2]]);
    }),
    fault("threads", "two threads write one row", models::depthwise, "depthwise", |l| race(l, 2)),
    // Products.
    fault("not written", "last row not written", models::gemm, "gemm", |l| not_written(l, 0)),
    fault("tail of a tile", "last columns are those before", models::gemm, "gemm", |l| repeated(l, 1, 5)),
    fault("terms of a sum", "last term of each sum left out", models::gemm, "gemm", |l| {
        let other = l.instead(0, |p, x| if p[1] == 70 { 0.0 } else { x });
        l.take(&other, |_| true);
    }),
    fault("epilogue", "bias dropped", models::gemm, "gemm", |l| drop_input(l, 2, |_| true)),
    fault("epilogue", "bias broadcast along the wrong axis", models::square_gemm, "gemm", |l| {
        let bias = l.inputs[2].clone().unwrap().to_f64s();
        l.each(|p, x| x - bias[p[1]] as f32 + bias[p[0]] as f32);
    }),
    fault("precision", "products in half precision", models::gemm, "gemm", |l| half(l, 0)),
    fault("threads", "two threads write one row", models::gemm, "gemm", |l| race(l, 0)),
    fault(
        "state kept between runs",
        "the result hangs on the run before",
        models::gemm,
        "gemm",
        previous_run,
    ),
    // Weights alone of few bits.
    fault("tail of a tile", "last columns are those before", models::few_bits, "nbits", |l| {
        repeated(l, 1, 5)
    }),
    fault("terms of a sum", "last term of each sum left out", models::few_bits, "nbits", |l| {
        let other = l.instead(input_of(l, &[19, 48]), |p, x| if p[1] == 47 { 0.0 } else { x });
        l.take(&other, |_| true);
    }),
    fault("weights", "the last block has the scale of the one before", models::few_bits, "nbits", |l| {
        let scales = input_of(l, &[3, 37]);
        let values = l.inputs[scales].clone().unwrap().to_f64s();
        let other = l.instead(scales, |p, x| if p[0] == 2 { values[37 + p[1]] as f32 } else { x });
        l.take(&other, |_| true);
    }),
    fault("precision", "products in half precision", models::few_bits, "nbits", |l| {
        half(l, input_of(l, &[19, 48]))
    }),
    // Recurrent layers.
    fault("tail of a tile", "the last step is the one before", models::recurrent, "recurrent_i8", |l| {
        repeated(l, 0, 1)
    }),
    fault("weights", "rows have the scale of the next", models::recurrent, "recurrent_i8", |l| {
        let scales = input_of(l, &[1, 132, 1]);
        let values = l.inputs[scales].clone().unwrap().to_f64s();
        let other = l.instead(scales, |p, _| values[(p[1] + 1) % 132] as f32);
        l.take(&other, |_| true);
    }),
    fault("not written", "last unit not written", models::recurrent, "recurrent_i8", |l| not_written(l, 3)),
    // Element by element.
    fault("operands", "an operand broadcast from its first element", models::pointwise, "pointwise", |l| {
        let first = l.inputs.iter().position(|t| t.as_ref().is_some_and(|t| t.len() == 45)).unwrap();
        let values = l.inputs[first].clone().unwrap().to_f64s();
        let other = l.instead(first, |_, _| values[0] as f32);
        l.take(&other, |_| true);
    }),
    fault("operands", "the other operand not moved on between rows", models::pointwise, "pointwise", |l| {
        let other = l.inputs.iter().position(|t| t.as_ref().is_some_and(|t| t.len() == 21)).unwrap();
        let values = l.inputs[other].clone().unwrap().to_f64s();
        let other = l.instead(other, |p, _| values[p[0] / 2 * 2] as f32);
        l.take(&other, |_| true);
    }),
    fault("not written", "last element of each row not written", models::pointwise, "pointwise", |l| {
        not_written(l, 2)
    }),
    fault("not written", "very last element not written", models::relu, "pointwise", |l| {
        let last = l.out.len() - 1;
        l.out[last] = l.before[last];
    }),
    fault("function", "sigmoid of another steepness", models::pointwise, "pointwise", |l| {
        l.each(|_, x| x + (0.5 - x) * 1e-3)
    }),
    fault("NaN", "NaN becomes zero", models::relu, "pointwise", |l| {
        let input = l.inputs[0].clone().unwrap().to_f64s();
        let mut values = input.iter();
        l.each(|_, x| if values.next().unwrap().is_nan() { 0.0 } else { x });
    }),
    // Other sizes than the tuned ones.
    fault("one size only", "wrong after the tuned number of rows", models::rows, "pointwise", |l| {
        l.each(|p, x| if p[0] >= 4 { 0.0 } else { x });
    }),
    fault("one size only", "wrong for a single row", models::product_of_rows, "gemm", |l| {
        let single = l.dims[0] == 1;
        l.each(|p, x| if single && p[1] == 52 { 0.0 } else { x });
    }),
    // Norms.
    fault("function", "epsilon left out", models::layer_norm, "norm", |l| {
        let other = l.by(|region| {
            if let Op::LayerNormalization(norm) = &mut region.nodes[0].op {
                norm.epsilon = 0.0;
            }
        });
        l.take(&other, |_| true);
    }),
    fault("function", "variance over one less", models::layer_norm, "norm", |l| {
        let bias = l.inputs[2].clone().unwrap().to_f64s();
        l.each(|p, x| (x - bias[p[1]] as f32) * (69.0f32 / 70.0).sqrt() + bias[p[1]] as f32);
    }),
    fault("tail of a tile", "last row is the one before", models::layer_norm, "norm", |l| repeated(l, 0, 1)),
    fault("operands", "scale by group instead of channel", models::group_norm, "norm", |l| {
        let scale = l.inputs[1].clone().unwrap().to_f64s();
        let other = l.instead(1, |p, _| scale[p[0] / 6] as f32);
        l.take(&other, |_| true);
    }),
    fault("tail of a tile", "group boundary one channel late", models::group_norm, "norm", |l| {
        repeated(l, 1, 1)
    }),
    // Softmax and attention.
    fault("terms of a sum", "last element left out of the sum", models::softmax, "softmax", |l| {
        let right = l.out.clone();
        l.each(|p, x| x / (1.0 - right[p[0] * 77 + 76]));
    }),
    fault("terms of a sum", "tail lanes counted into the sum", models::softmax, "softmax", |l| {
        l.each(|_, x| x * 0.97)
    }),
    fault("large values", "overflow: the maximum is not subtracted", models::softmax, "softmax", |l| {
        let input = l.inputs[0].clone().unwrap().to_f64s();
        let largest = |row: usize| input[row * 77..row * 77 + 77].iter().fold(f64::MIN, |m, x| m.max(*x));
        l.each(|p, x| if largest(p[0]) > 88.0 { f32::NAN } else { x });
    }),
    fault("operands", "scale left out", models::attention, "attention", |l| {
        let other = l.instead(0, |_, x| 4.0 * x);
        l.take(&other, |_| true);
    }),
    fault("terms of a sum", "last key left out", models::attention, "attention", |l| {
        let other = l.instead(1, |p, x| if p[2] == 22 { -100.0 * x.abs() } else { x });
        l.take(&other, |_| true);
    }),
    fault("elements exchanged", "values of the neighbouring head", models::attention, "attention", |l| {
        let right = l.out.clone();
        let per_head = 19 * 16;
        let mut flat = 0;
        l.each(|p, _| {
            flat += 1;
            right[if p[1] % 2 == 0 { flat - 1 + per_head } else { flat - 1 - per_head }]
        });
    }),
    fault("masks", "mask off by one", models::causal, "attention", |l| {
        let other = l.by(|region| {
            if let Op::Attention(attention) = &mut region.nodes[0].op {
                attention.is_causal = false;
            }
        });
        l.take(&other, |p| p[2] == 17);
    }),
    fault(
        "stale workspace",
        "workspace read before it is written",
        models::attention,
        "attention",
        stale_workspace,
    ),
    // Pooling.
    fault("border of an image", "padding counts as zero", models::max_pool, "pool", |l| {
        let (h, w) = (l.dims[2] - 1, l.dims[3] - 1);
        l.each(|p, x| if p[2] == 0 || p[3] == 0 || p[2] == h || p[3] == w { x.max(0.0) } else { x });
    }),
    fault("border of an image", "padding counted into the average", models::average_pool, "pool", |l| {
        let (h, w) = (l.dims[2] - 1, l.dims[3] - 1);
        l.each(|p, x| if p[3] == 0 || p[3] == w || p[2] == 0 || p[2] == h { x * 2.0 / 3.0 } else { x });
    }),
    fault("tail of a tile", "last column is the one before", models::average_pool, "pool", |l| {
        repeated(l, 3, 1)
    }),
    Fault {
        kind: "written over its input",
        name: "written over its live input",
        model: models::max_pool,
        tactic: "pool",
        spoil: Spoil::InPlace,
    },
    // Movement, resampling, reduction.
    Fault {
        kind: "written over its input",
        name: "written over its live input",
        model: models::transpose,
        tactic: "move",
        spoil: Spoil::InPlace,
    },
    fault("not written", "last block not written", models::transpose, "move", |l| {
        let before = l.before.clone();
        l.take(&before, |p| p[0] >= 16 && p[1] >= 16);
    }),
    fault("elements exchanged", "second part one row early", models::concat, "move", |l| {
        let right = l.out.clone();
        let dims = l.dims.clone();
        l.each(|p, x| {
            let row = if (16..25).contains(&p[1]) { p[1] + 1 } else { return x };
            right[(p[0] * dims[1] + row) * dims[2] + p[2]]
        });
    }),
    fault("border of an image", "padded with zero at the end", models::pad, "move", |l| {
        l.each(|p, x| if p[2] >= 16 { 0.0 } else { x })
    }),
    fault("function", "phase off by a quarter", models::resize, "resize", |l| {
        let shifted = l.instead(0, |_, x| x);
        let dims = l.dims.clone();
        let mut flat = 0;
        l.each(|p, x| {
            flat += 1;
            if p[3] + 1 < dims[3] { 0.75 * x + 0.25 * shifted[flat] } else { x }
        });
    }),
    fault("terms of a sum", "last element left out", models::reduce, "reduce", |l| {
        let other = l.instead(0, |p, x| if p[1] == 66 { 0.0 } else { x });
        l.take(&other, |_| true);
    }),
    fault("threads", "two threads write one row", models::reduce, "reduce", |l| race(l, 0)),
    // Rotary embeddings.
    fault("function", "turned the other way", models::rotary, "rotary", |l| {
        let other = l.instead(2, |_, x| -x);
        l.take(&other, |_| true);
    }),
    fault("tail of a tile", "the last pairs read the first cosines", models::rotary, "rotary", |l| {
        let cos = l.inputs[1].clone().unwrap().to_f64s();
        let other = l.instead(1, |p, x| if p[1] < 16 { x } else { cos[p[0] * 19 + p[1] - 16] as f32 });
        l.take(&other, |_| true);
    }),
    fault("operands", "the sines of the next position", models::rotary, "rotary", |l| {
        let sin = l.inputs[2].clone().unwrap().to_f64s();
        let other = l.instead(2, |p, _| sin[(p[0] + 1) % 13 * 19 + p[1]] as f32);
        l.take(&other, |_| true);
    }),
    fault("elements exchanged", "neighbours taken for pairs", models::rotary, "rotary", |l| {
        let other = l.by(|region| {
            if let Op::RotaryEmbedding(rotary) = &mut region.nodes[0].op {
                rotary.interleaved = true;
            }
        });
        l.take(&other, |_| true);
    }),
    fault("not written", "elements behind the pairs not written", models::rotary, "rotary", |l| {
        let before = l.before.clone();
        l.take(&before, |p| p[3] >= 38);
    }),
    fault("threads", "two threads write one head", models::rotary, "rotary", |l| race(l, 1)),
    // Rows of a batch.
    fault(
        "rows of a batch",
        "a row's rounding follows the row before",
        models::product_of_rows,
        "gemm",
        next_row,
    ),
    fault("rows of a batch", "a row's rounding follows the row before", models::rows, "pointwise", next_row),
    fault("rows of a batch", "rows are scaled by the largest of all", models::rows, "pointwise", |l| {
        let largest = l.inputs[0].as_ref().unwrap().to_f64s().into_iter().fold(0.0f64, f64::max);
        l.each(|_, x| x * (1.0 + 1e-7 * largest.fract() as f32));
    }),
];

/// The last bit of an element is another one if the element of the row before is positive.
fn next_row(launch: &mut Launch) {
    let right = Launch { out: launch.out.clone(), ..copy(launch) };
    launch.each(|p, x| match p[0].checked_sub(1) {
        Some(before) if right.at(&[before, p[1]]) > 0.0 => f32::from_bits(x.to_bits() ^ 1),
        _ => x,
    });
}

/// The border along `axis` is computed as if the image ended one element earlier there.
fn halo(launch: &mut Launch, axis: usize, end: bool) {
    let image = launch.inputs[0].as_ref().unwrap().shape()[axis];
    let other = launch.instead(0, |p, x| if p[axis] == if end { image - 1 } else { 0 } { 0.0 } else { x });
    let last = if end { launch.dims[axis] - 1 } else { 0 };
    launch.take(&other, |p| p[axis] == last);
}

/// The first input of these sizes.
fn input_of(launch: &Launch, dims: &[usize]) -> usize {
    let is_it = |tensor: &Option<Tensor>| tensor.as_ref().is_some_and(|tensor| tensor.shape() == dims);
    launch.inputs.iter().position(is_it).expect("the fault's model has this input")
}

/// An input counts as zero where `wrong` holds.
fn drop_input(launch: &mut Launch, input: usize, wrong: impl FnMut(&[usize]) -> bool) {
    let other = launch.instead(input, |_, _| 0.0);
    launch.take(&other, wrong);
}

/// The last places along `axis` keep what was there before.
fn not_written(launch: &mut Launch, axis: usize) {
    let before = launch.before.clone();
    let last = launch.dims[axis] - 1;
    launch.take(&before, |p| p[axis] == last);
}

/// The last `n` places along `axis` repeat the ones before them.
fn repeated(launch: &mut Launch, axis: usize, n: usize) {
    let first = launch.dims[axis] - n;
    let right = Launch { out: launch.out.clone(), ..copy(launch) };
    launch.each(|p, x| {
        if p[axis] < first {
            return x;
        }
        let mut place = p.to_vec();
        place[axis] -= n;
        right.at(&place)
    });
}

/// Sums begin with what the workspace holds.
pub(crate) fn stale_workspace(launch: &mut Launch) {
    for (value, stale) in launch.out.iter_mut().zip(&launch.workspace) {
        *value += stale;
    }
}

/// Something is kept from one run to the next.
pub(crate) fn previous_run(launch: &mut Launch) {
    if launch.n_before > 0 {
        launch.out[0] += 1e-6;
    }
}

/// The row in the middle along `axis` is added by two threads where there are two.
fn race(launch: &mut Launch, axis: usize) {
    let (threads, middle) = (launch.threads, launch.dims[axis] / 2);
    launch.each(|p, x| if threads > 2 && p[axis] == middle { x * 1.000_001 } else { x });
}

/// One input is rounded to bf16.
fn half(launch: &mut Launch, input: usize) {
    let other = launch.instead(input, |_, x| f32::from_bits(x.to_bits() & 0xFFFF_0000));
    launch.take(&other, |_| true);
}

fn copy(launch: &Launch) -> Launch {
    Launch {
        region: launch.region.clone(),
        dims: launch.dims.clone(),
        inputs: Vec::new(),
        out: Vec::new(),
        before: Vec::new(),
        workspace: Vec::new(),
        threads: launch.threads,
        n_before: launch.n_before,
    }
}
