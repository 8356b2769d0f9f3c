//! The three networks of a latent image generator: image to latent, the denoiser, latent to image.

use planish_ir::ValueId;
use planish_op::{
    Add, Div, MatMul, Resize, ResizeAspectPolicy, ResizeCoordinates, ResizeMode, ResizeNearest, Slice,
    Softmax, Squeeze, Tanh,
};
use planish_tensor::{DType, Tensor};

use crate::layers::{Window, gain};
use crate::net::{Made, Net};

const N_GROUPS: usize = 16;

pub(crate) fn encoder(net: &mut Net) -> Made {
    let x = net.input("image", DType::F32, &[3, 256, 256])?;
    let x = same(net, "first", x, 3, 64)?;
    let x = residual(net, "block0", x, 64)?;
    let x = halve(net, "half0", x, 64, 128)?;
    let x = residual(net, "block1", x, 128)?;
    let x = halve(net, "half1", x, 128, 256)?;
    let x = residual(net, "block2", x, 256)?;
    let x = halve(net, "half2", x, 256, 256)?;
    let x = residual(net, "block3", x, 256)?;
    let x = attention(net, "attention3", x, 256, 32)?;
    same(net, "out", x, 256, 4)
}

pub(crate) fn unet(net: &mut Net) -> Made {
    let (a, b, c) = (128, 256, 512);
    let x = net.input("latent", DType::F32, &[4, 32, 32])?;
    let x = same(net, "first", x, 4, a)?;
    let high = residual(net, "down1", x, a)?;
    let x = halve(net, "half1", high, a, b)?;
    let x = residual(net, "down2", x, b)?;
    let low = attention(net, "down2.attention", x, b, 16)?;
    let x = halve(net, "half2", low, b, c)?;
    let x = residual(net, "middle1", x, c)?;
    let x = attention(net, "middle1.attention", x, c, 8)?;
    let x = residual(net, "middle2", x, c)?;
    let x = twice(net, "twice2", x, c, b)?;
    let x = net.op("add2", Add {}, &[x, low])?;
    let x = residual(net, "up2", x, b)?;
    let x = attention(net, "up2.attention", x, b, 16)?;
    let x = twice(net, "twice1", x, b, a)?;
    let x = net.op("add1", Add {}, &[x, high])?;
    let x = residual(net, "up1", x, a)?;
    let x = net.group_norm("norm", x, a, N_GROUPS)?;
    let x = net.silu("silu", x)?;
    same(net, "out", x, a, 4)
}

pub(crate) fn decoder(net: &mut Net) -> Made {
    let x = net.input("latent", DType::F32, &[4, 32, 32])?;
    let x = same(net, "first", x, 4, 256)?;
    let x = residual(net, "block0", x, 256)?;
    let x = attention(net, "attention0", x, 256, 32)?;
    let x = twice(net, "twice0", x, 256, 256)?;
    let x = residual(net, "block1", x, 256)?;
    let x = twice(net, "twice1", x, 256, 128)?;
    let x = residual(net, "block2", x, 128)?;
    let x = twice(net, "twice2", x, 128, 64)?;
    let x = residual(net, "block3", x, 64)?;
    let x = net.group_norm("norm", x, 64, N_GROUPS)?;
    let x = net.silu("silu", x)?;
    let x = same(net, "last", x, 64, 3)?;
    net.op("out", Tanh {}, &[x])
}

fn same(net: &mut Net, name: &str, x: ValueId, from: usize, to: usize) -> Made {
    net.conv(name, x, Window::new(from, to, 3).gain(gain::LINEAR).with_bias())
}

fn halve(net: &mut Net, name: &str, x: ValueId, from: usize, to: usize) -> Made {
    net.conv(name, x, Window::new(from, to, 3).stride(2).gain(gain::LINEAR).with_bias())
}

/// Every point four times, and a convolution.
fn twice(net: &mut Net, name: &str, x: ValueId, from: usize, to: usize) -> Made {
    let scales = net.shared("twice", || Tensor::vector(vec![1f32, 1.0, 2.0, 2.0]))?;
    let op = Resize {
        mode: ResizeMode::Nearest,
        nearest_mode: ResizeNearest::Floor,
        coordinate_transformation_mode: ResizeCoordinates::Asymmetric,
        keep_aspect_ratio_policy: ResizeAspectPolicy::Stretch,
        axes: None,
        antialias: false,
        extrapolation_value: 0.0,
        exclude_outside: false,
        cubic_coeff_a: -0.75,
    };
    let y = net.op_with(&format!("{name}.larger"), op, vec![Some(x), None, Some(scales)])?;
    same(net, name, y, from, to)
}

/// Two normalized convolutions around which the input goes.
fn residual(net: &mut Net, name: &str, x: ValueId, n: usize) -> Made {
    let mut y = x;
    for idx in 1..=2 {
        y = net.group_norm(&format!("{name}.norm{idx}"), y, n, N_GROUPS)?;
        y = net.silu(&format!("{name}.silu{idx}"), y)?;
        let window = Window::new(n, n, 3).gain(gain::SILU).with_bias();
        y = net.conv(&format!("{name}.conv{idx}"), y, window)?;
    }
    net.op(&format!("{name}.add"), Add {}, &[x, y])
}

/// Self-attention with one head over the points of a square image, around which the input goes.
fn attention(net: &mut Net, name: &str, x: ValueId, n: usize, size: usize) -> Made {
    let part = |part: &str| format!("{name}.{part}");
    let (channels, side) = (n as i64, size as i64);
    let y = net.group_norm(&part("norm"), x, n, N_GROUPS)?;
    let window = Window::new(n, 3 * n, 1).gain(gain::LINEAR).with_bias();
    let y = net.conv(&part("qkv"), y, window)?;
    let y = net.reshape(&part("qkv.split"), y, &[-1, 3, channels, side * side])?;
    let axis = net.ints(&[1])?;
    let third = |net: &mut Net, which: &str, idx: i64| {
        let (start, end) = (net.ints(&[idx])?, net.ints(&[idx + 1])?);
        let y = net.op(&format!("{name}.{which}.slice"), Slice {}, &[y, start, end, axis])?;
        net.op(&format!("{name}.{which}"), Squeeze {}, &[y, axis])
    };
    let (q, k, v) = (third(net, "q", 0)?, third(net, "k", 1)?, third(net, "v", 2)?);
    let q = net.transpose(&part("q.points"), q, &[0, 2, 1])?;
    let scores = net.op(&part("scores"), MatMul {}, &[q, k])?;
    let root = net.number((n as f32).sqrt())?;
    let scores = net.op(&part("scaled"), Div {}, &[scores, root])?;
    let weights = net.op(&part("softmax"), Softmax { axis: -1 }, &[scores])?;
    let weights = net.transpose(&part("weights"), weights, &[0, 2, 1])?;
    let mixed = net.op(&part("mixed"), MatMul {}, &[v, weights])?;
    let mixed = net.reshape(&part("mixed.image"), mixed, &[-1, channels, side, side])?;
    let window = Window::new(n, n, 1).gain(gain::LINEAR).with_bias();
    let y = net.conv(&part("o"), mixed, window)?;
    net.op(&part("add"), Add {}, &[x, y])
}
