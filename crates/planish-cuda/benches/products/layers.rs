//! The layers: what they compute, and one element of it exactly.

use planish_kernel::{Layout, Numeric, Operand, Problem, Ref, Region, RegionNode};
use planish_op::{self as op, AutoPad, Op};
use planish_tensor::DType;

/// A layer of a model.
pub(crate) struct Layer {
    pub(crate) model: &'static str,
    /// How often the model has it.
    pub(crate) count: u32,
    pub(crate) problem: Problem,
    pub(crate) kind: Kind,
    name: String,
}

/// What a layer is, for the exact value of an element.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Conv {
        kernel: [usize; 3],
        stride: [usize; 3],
        pad: [usize; 3],
        dilation: [usize; 3],
        groups: usize,
    },
    /// B is transposed.
    Product {
        transposed: bool,
    },
}

/// What comes after the sums.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum After {
    Nothing,
    Relu,
    /// A value of the output's sizes is added, then ReLU.
    AddRelu,
    Gelu,
    Swish,
}

impl Layer {
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.model, self.name)
    }

    /// Rows, columns and depth.
    pub(crate) fn sizes(&self) -> [usize; 3] {
        let (a, b) = (&self.problem.inputs[0].dims, &self.problem.inputs[1].dims);
        let out = &self.problem.outputs[0].dims;
        match self.kind {
            Kind::Conv { .. } => {
                let pixels: usize = out[2..].iter().product();
                [out[0] * pixels, out[1], b[1..].iter().product()]
            }
            Kind::Product { .. } => {
                let columns = out[out.len() - 1];
                [self.problem.outputs[0].len() / columns, columns, a[a.len() - 1]]
            }
        }
    }

    pub(crate) fn flops(&self) -> f64 {
        self.sizes().iter().map(|size| *size as f64).product::<f64>() * 2.0
    }

    /// Root of the mean square of errors over that of values.
    pub(crate) fn tolerance(&self) -> f64 {
        match (self.problem.outputs[0].dtype, self.problem.numeric == Numeric::TF32) {
            (DType::F16, _) => 1e-3,
            (DType::BF16, _) => 8e-3,
            (_, true) => 1e-3,
            _ => 2e-6,
        }
    }

    /// The sum for one element, from values in the order of operators.
    pub(crate) fn exact(&self, inputs: &[Vec<f32>], element: usize) -> f64 {
        let (a, b) = (&self.problem.inputs[0].dims, &self.problem.inputs[1].dims);
        let out = &self.problem.outputs[0].dims;
        let mut at: Vec<usize> = vec![0; out.len()];
        let mut rest = element;
        for axis in (0..out.len()).rev() {
            at[axis] = rest % out[axis];
            rest /= out[axis];
        }
        match self.kind {
            Kind::Conv { kernel, stride, pad, dilation, groups } => {
                let spatial = out.len() - 2;
                let place = |axis: usize| if axis + spatial < 3 { 0 } else { at[axis + spatial - 1] };
                let size = |axis: usize| if axis + spatial < 3 { 1 } else { a[axis + spatial - 1] };
                let (c, per_group) = (b[1], b[0] / groups);
                let first = at[1] / per_group * c;
                let mut sum = 0.0f64;
                for channel in 0..c {
                    for z in 0..kernel[0] {
                        for y in 0..kernel[1] {
                            for x in 0..kernel[2] {
                                let taps = [z, y, x];
                                let mut offset = at[0] * a[1] + first + channel;
                                let mut inside = true;
                                for axis in 0..3 {
                                    let along = place(axis) * stride[axis] + taps[axis] * dilation[axis];
                                    inside &= (pad[axis]..size(axis) + pad[axis]).contains(&along);
                                    offset = offset * size(axis) + along.wrapping_sub(pad[axis]);
                                    if !inside {
                                        break;
                                    }
                                }
                                if inside {
                                    let tap = (z * kernel[1] + y) * kernel[2] + x;
                                    let n_taps = kernel.iter().product::<usize>();
                                    let weight = inputs[1][(at[1] * c + channel) * n_taps + tap];
                                    sum += f64::from(inputs[0][offset]) * f64::from(weight);
                                }
                            }
                        }
                    }
                }
                sum
            }
            Kind::Product { transposed } => {
                let (rank, k) = (out.len(), a[a.len() - 1]);
                let (row, column) = (at[rank - 2], at[rank - 1]);
                let batch = |dims: &[usize]| {
                    let mut idx = 0;
                    for axis in 0..dims.len() - 2 {
                        let along = at[rank - dims.len() + axis];
                        idx = idx * dims[axis] + if dims[axis] == 1 { 0 } else { along };
                    }
                    idx
                };
                let a_row = (batch(a) * a[a.len() - 2] + row) * k;
                let (n, b_first) = (out[rank - 1], batch(b) * k * out[rank - 1]);
                (0..k)
                    .map(|depth| {
                        let b_at = if transposed { column * k + depth } else { depth * n + column };
                        f64::from(inputs[0][a_row + depth]) * f64::from(inputs[1][b_first + b_at])
                    })
                    .sum()
            }
        }
    }
}

fn number_types(dtype: DType) -> Numeric {
    match dtype {
        DType::F16 => Numeric::F16,
        DType::BF16 => Numeric::BF16,
        _ => Numeric::F32,
    }
}

/// Puts bias and the rest after a node; the bias is input 2.
fn after(region: &mut Region, inputs: &mut Vec<Operand>, out: &[usize], dtype: DType, what: After) {
    let mut push = |op: Op, others: &[Ref]| {
        let mut from = vec![Some(Ref::Node { node: region.nodes.len() as u32 - 1, output: 0 })];
        from.extend(others.iter().map(|other| Some(*other)));
        region.nodes.push(RegionNode { name: op.name().to_string(), op, inputs: from, n_outputs: 1 });
    };
    let last = Ref::Input(inputs.len() as u32);
    match what {
        After::Nothing => {}
        After::Relu => push(op::Relu {}.into(), &[]),
        After::AddRelu => {
            inputs.push(Operand::dense(dtype, out, Layout::Plain));
            push(op::Add {}.into(), &[last]);
            push(op::Relu {}.into(), &[]);
        }
        After::Gelu => push(op::Gelu { approximate: op::GeluApproximation::None }.into(), &[]),
        After::Swish => push(op::Swish { alpha: 1.0 }.into(), &[]),
    }
    region.n_inputs = inputs.len() as u32;
    region.outputs = vec![Ref::Node { node: region.nodes.len() as u32 - 1, output: 0 }];
}

struct Shape<'a> {
    x: &'a [usize],
    n: usize,
    kernel: usize,
    stride: usize,
    pad: usize,
    dilation: usize,
    groups: usize,
}

fn conv(model: &'static str, count: u32, dtype: DType, shape: Shape<'_>, what: After) -> Layer {
    let Shape { x, n, kernel, stride, pad, dilation, groups } = shape;
    let spatial = x.len() - 2;
    let each = |value: usize| vec![value as i64; spatial];
    let conv = op::Conv {
        group: groups as i64,
        pads: vec![pad as i64; 2 * spatial],
        auto_pad: AutoPad::NotSet,
        strides: each(stride),
        dilations: each(dilation),
        kernel_shape: None,
    };
    let mut weight = vec![n, x[1] / groups];
    weight.extend(vec![kernel; spatial]);
    let mut out = vec![x[0], n];
    out.extend(x[2..].iter().map(|size| (size + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1));
    let mut region = Region::single(conv.into(), 3, 1);
    let mut inputs = vec![
        Operand::dense(dtype, x, Layout::Plain),
        Operand::weight(dtype, &weight),
        Operand::weight(dtype, &[n]),
    ];
    after(&mut region, &mut inputs, &out, dtype, what);
    let axes = |value: usize, none: usize| {
        let mut axes = [none; 3];
        axes[3 - spatial..].fill(value);
        axes
    };
    let kind = Kind::Conv {
        kernel: axes(kernel, 1),
        stride: axes(stride, 1),
        pad: axes(pad, 0),
        dilation: axes(dilation, 1),
        groups,
    };
    let problem = Problem {
        region,
        inputs,
        outputs: vec![Operand::dense(dtype, &out, Layout::Plain)],
        numeric: number_types(dtype),
        threads: 1,
    };
    let sizes = x.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
    let mut name = format!("{} conv {sizes} {n} k{kernel} s{stride}", dtype.name());
    if groups > 1 {
        name += &format!(" g{groups}");
    }
    if dilation > 1 {
        name += &format!(" d{dilation}");
    }
    Layer { model, count, problem, kind, name }
}

fn product(
    model: &'static str,
    count: u32,
    dtype: DType,
    a: &[usize],
    b: &[usize],
    is_weight: bool,
    what: After,
) -> Layer {
    let mut out = if a.len() >= b.len() { a.to_vec() } else { b.to_vec() };
    let rank = out.len();
    out[rank - 2] = a[a.len() - 2];
    out[rank - 1] = b[b.len() - 1];
    for (axis, size) in out[..rank - 2].iter_mut().enumerate() {
        let own = |dims: &[usize]| (axis + dims.len()).checked_sub(rank).map_or(1, |own| dims[own]);
        *size = own(a).max(own(b));
    }
    let mut region = Region::single(op::MatMul {}.into(), 2, 1);
    let mut inputs = vec![
        Operand::dense(dtype, a, Layout::Plain),
        Operand { constant: is_weight, ..Operand::dense(dtype, b, Layout::Plain) },
    ];
    if is_weight {
        inputs.push(Operand::weight(dtype, &[out[rank - 1]]));
        region.nodes.push(RegionNode {
            name: "bias".to_string(),
            op: op::Add {}.into(),
            inputs: vec![Some(Ref::Node { node: 0, output: 0 }), Some(Ref::Input(2))],
            n_outputs: 1,
        });
    }
    after(&mut region, &mut inputs, &out, dtype, what);
    let problem = Problem {
        region,
        inputs,
        outputs: vec![Operand::dense(dtype, &out, Layout::Plain)],
        numeric: number_types(dtype),
        threads: 1,
    };
    let text = |dims: &[usize]| dims.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
    let name =
        format!("{} matmul {} . {}{}", dtype.name(), text(a), text(b), if is_weight { " w" } else { "" });
    Layer { model, count, problem, kind: Kind::Product { transposed: false }, name }
}

/// Every layer: the suite's, and shapes at the edges of what kernels take.
pub(crate) fn layers() -> Vec<Layer> {
    let mut all = Vec::new();
    let half = DType::F16;
    let mut add = |model, count, x: &[usize], n, kernel, stride, pad, what| {
        let shape = Shape { x, n, kernel, stride, pad, dilation: 1, groups: 1 };
        all.push(conv(model, count, half, shape, what));
    };
    for (model, b) in [("resnet18 b1", 1), ("resnet18 b16", 16)] {
        add(model, 1, &[b, 3, 224, 224], 64, 7, 2, 3, After::Relu);
        add(model, 2, &[b, 64, 56, 56], 64, 3, 1, 1, After::Relu);
        add(model, 2, &[b, 64, 56, 56], 64, 3, 1, 1, After::AddRelu);
        add(model, 1, &[b, 64, 56, 56], 128, 3, 2, 1, After::Relu);
        add(model, 1, &[b, 128, 28, 28], 128, 3, 1, 1, After::Relu);
        add(model, 2, &[b, 128, 28, 28], 128, 3, 1, 1, After::AddRelu);
        add(model, 1, &[b, 64, 56, 56], 128, 1, 2, 0, After::Nothing);
        add(model, 1, &[b, 128, 28, 28], 256, 3, 2, 1, After::Relu);
        add(model, 1, &[b, 256, 14, 14], 256, 3, 1, 1, After::Relu);
        add(model, 2, &[b, 256, 14, 14], 256, 3, 1, 1, After::AddRelu);
        add(model, 1, &[b, 128, 28, 28], 256, 1, 2, 0, After::Nothing);
        add(model, 1, &[b, 256, 14, 14], 512, 3, 2, 1, After::Relu);
        add(model, 1, &[b, 512, 7, 7], 512, 3, 1, 1, After::Relu);
        add(model, 2, &[b, 512, 7, 7], 512, 3, 1, 1, After::AddRelu);
        add(model, 1, &[b, 256, 14, 14], 512, 1, 2, 0, After::Nothing);
    }
    let m = "unet2d";
    add(m, 1, &[1, 1, 256, 256], 32, 3, 1, 1, After::Relu);
    for (count, c, size, n) in [
        (2, 32, 256, 32),
        (1, 32, 128, 64),
        (2, 64, 128, 64),
        (1, 64, 64, 128),
        (2, 128, 64, 128),
        (1, 128, 32, 256),
        (1, 256, 32, 256),
        (1, 256, 64, 128),
        (1, 128, 128, 64),
        (1, 64, 256, 32),
    ] {
        add(m, count, &[1, c, size, size], n, 3, 1, 1, After::Relu);
    }
    add(m, 1, &[1, 32, 256, 256], 1, 1, 1, 0, After::Nothing);
    let m = "unet3d";
    add(m, 1, &[1, 1, 64, 64, 64], 16, 3, 1, 1, After::Relu);
    for (count, c, size, n) in [
        (2, 16, 64, 16),
        (1, 16, 32, 32),
        (2, 32, 32, 32),
        (1, 32, 16, 64),
        (2, 64, 16, 64),
        (1, 64, 8, 128),
        (1, 128, 8, 128),
        (1, 128, 16, 64),
        (1, 64, 32, 32),
        (1, 32, 64, 16),
    ] {
        add(m, count, &[1, c, size, size, size], n, 3, 1, 1, After::Relu);
    }
    add(m, 1, &[1, 16, 64, 64, 64], 1, 1, 1, 0, After::Nothing);
    add("mae3d", 1, &[1, 1, 64, 64, 64], 384, 8, 8, 0, After::Nothing);
    for (model, rows) in [
        (
            "gen_encoder",
            &[
                (1, 3, 256, 64, 3, 1),
                (2, 64, 256, 64, 3, 1),
                (1, 64, 256, 128, 3, 2),
                (2, 128, 128, 128, 3, 1),
                (1, 128, 128, 256, 3, 2),
                (2, 256, 64, 256, 3, 1),
                (1, 256, 64, 256, 3, 2),
                (2, 256, 32, 256, 3, 1),
                (1, 256, 32, 768, 1, 1),
                (1, 256, 32, 256, 1, 1),
                (1, 256, 32, 4, 3, 1),
            ][..],
        ),
        (
            "gen_unet",
            &[
                (1, 4, 32, 128, 3, 1),
                (4, 128, 32, 128, 3, 1),
                (1, 128, 32, 256, 3, 2),
                (4, 256, 16, 256, 3, 1),
                (2, 256, 16, 768, 1, 1),
                (2, 256, 16, 256, 1, 1),
                (1, 256, 16, 512, 3, 2),
                (4, 512, 8, 512, 3, 1),
                (1, 512, 8, 1536, 1, 1),
                (1, 512, 8, 512, 1, 1),
                (1, 512, 16, 256, 3, 1),
                (1, 256, 32, 128, 3, 1),
                (1, 128, 32, 4, 3, 1),
            ],
        ),
        (
            "gen_decoder",
            &[
                (1, 4, 32, 256, 3, 1),
                (2, 256, 32, 256, 3, 1),
                (1, 256, 32, 768, 1, 1),
                (1, 256, 32, 256, 1, 1),
                (3, 256, 64, 256, 3, 1),
                (1, 256, 128, 128, 3, 1),
                (2, 128, 128, 128, 3, 1),
                (1, 128, 256, 64, 3, 1),
                (2, 64, 256, 64, 3, 1),
                (1, 64, 256, 3, 3, 1),
            ],
        ),
    ] {
        for (count, c, size, n, kernel, stride) in rows {
            add(model, *count, &[1, *c, *size, *size], *n, *kernel, *stride, kernel / 2, After::Nothing);
        }
    }
    for (c, size, n) in
        [(3, 32, 64), (64, 32, 64), (64, 16, 128), (128, 16, 128), (128, 8, 256), (256, 8, 256)]
    {
        add("cifar b32", 1, &[32, c, size, size], n, 3, 1, 1, After::Relu);
    }
    for (count, c, size, n) in [
        (1, 32, 112, 16),
        (1, 16, 112, 96),
        (1, 96, 56, 24),
        (2, 24, 56, 144),
        (3, 32, 28, 192),
        (4, 64, 14, 384),
        (3, 384, 14, 64),
        (3, 96, 14, 576),
        (3, 160, 7, 960),
        (2, 960, 7, 160),
        (1, 320, 7, 1280),
    ] {
        add("mobilenet 1x1", count, &[1, c, size, size], n, 1, 1, 0, After::Nothing);
    }
    let mut multiply = |model, count, a: &[usize], b: &[usize], weight, what| {
        all.push(product(model, count, half, a, b, weight, what));
    };
    for (model, batch) in [("resnet18 b1", 1), ("resnet18 b16", 16)] {
        multiply(model, 1, &[batch, 512], &[512, 1000], true, After::Nothing);
    }
    multiply("cifar b32", 1, &[32, 4096], &[4096, 512], true, After::Relu);
    multiply("mae3d", 24, &[1, 512, 384], &[384, 384], true, After::Nothing);
    multiply("mae3d", 6, &[1, 512, 384], &[384, 1536], true, After::Gelu);
    multiply("mae3d", 6, &[1, 512, 1536], &[1536, 384], true, After::Nothing);
    multiply("minilm", 24, &[1, 128, 384], &[384, 384], true, After::Nothing);
    multiply("minilm", 6, &[1, 128, 384], &[384, 1536], true, After::Gelu);
    multiply("minilm", 6, &[1, 128, 1536], &[1536, 384], true, After::Nothing);
    multiply("bert", 48, &[1, 128, 768], &[768, 768], true, After::Nothing);
    multiply("bert", 12, &[1, 128, 768], &[768, 3072], true, After::Gelu);
    multiply("bert", 12, &[1, 128, 3072], &[3072, 768], true, After::Nothing);
    multiply("bert fused", 12, &[1, 128, 768], &[768, 2304], true, After::Nothing);
    multiply("minilm fused", 6, &[1, 128, 384], &[384, 1152], true, After::Nothing);
    multiply("attention", 1, &[1, 12, 128, 64], &[1, 12, 64, 128], false, After::Nothing);
    multiply("large", 1, &[4096, 4096], &[4096, 4096], true, After::Nothing);
    edges(&mut all);
    all
}

/// Tails, groups, dilations, other types: more for their results than for their times.
fn edges(all: &mut Vec<Layer>) {
    let mut add = |dtype, x: &[usize], n, kernel, stride, pad, dilation, groups, what| {
        all.push(conv("edges", 1, dtype, Shape { x, n, kernel, stride, pad, dilation, groups }, what));
    };
    let (f16, bf16, f32) = (DType::F16, DType::BF16, DType::F32);
    for dtype in [f16, bf16, f32] {
        add(dtype, &[2, 40, 13, 11], 30, 3, 1, 1, 1, 1, After::AddRelu);
        add(dtype, &[1, 7, 9, 9], 20, 3, 2, 1, 1, 1, After::Swish);
        add(dtype, &[3, 64, 10, 10], 64, 3, 1, 2, 2, 4, After::Relu);
        add(dtype, &[1, 24, 5, 6, 7], 17, 3, 1, 1, 1, 1, After::Nothing);
    }
    add(f16, &[1, 16, 50], 33, 9, 3, 4, 1, 1, After::Gelu);
    add(f16, &[1, 8, 30, 30], 24, 7, 1, 3, 1, 1, After::Relu);
    add(f16, &[1, 3, 17, 19], 5, 1, 1, 0, 1, 1, After::Relu);
    add(bf16, &[1, 128, 28, 28], 128, 3, 1, 1, 1, 1, After::AddRelu);
    add(f32, &[1, 128, 28, 28], 128, 3, 1, 1, 1, 1, After::AddRelu);
    add(f32, &[1, 64, 56, 56], 64, 3, 1, 1, 1, 1, After::Relu);
    let mut multiply = |dtype, a: &[usize], b: &[usize], weight, what| {
        all.push(product("edges", 1, dtype, a, b, weight, what));
    };
    for dtype in [f16, bf16, f32] {
        multiply(dtype, &[37, 100], &[100, 51], true, After::Gelu);
        multiply(dtype, &[2, 3, 20, 33], &[3, 33, 24], false, After::Nothing);
    }
    multiply(f16, &[1, 4096], &[4096, 1024], true, After::Nothing);
    multiply(f32, &[128, 768], &[768, 768], true, After::Nothing);
    // The same in tf32.
    let tf32: Vec<Layer> = [("matmul 128x768", 0usize), ("conv 1x128x28x28", 1)]
        .into_iter()
        .map(|(_, which)| {
            let shape =
                Shape { x: &[1, 128, 28, 28], n: 128, kernel: 3, stride: 1, pad: 1, dilation: 1, groups: 1 };
            let mut layer = match which {
                0 => product("edges", 1, f32, &[128, 768], &[768, 768], true, After::Nothing),
                _ => conv("edges", 1, f32, shape, After::AddRelu),
            };
            layer.problem.numeric = Numeric::TF32;
            layer.name = layer.name.replacen("f32", "tf32", 1);
            layer
        })
        .collect();
    all.extend(tf32);
}
