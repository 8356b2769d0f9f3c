//! Layers as PyTorch's exporter writes them.

use planish_ir::ValueId;
use planish_op::{
    Add, AutoPad, BatchNormalization, Clip, Conv, ConvTranspose, Div, Erf, Gemm, InstanceNormalization,
    LayerNormalization, MatMul, MaxPool, Mul, ReduceMean, Relu, Reshape, Shape, Sigmoid, Transpose,
};
use planish_tensor::Tensor;

use crate::net::{Made, Net};
use crate::weights::Spread;

/// Gains that keep the second moment of normal numbers over a layer that follows: 1 / E[f(x)^2].
pub(crate) mod gain {
    pub(crate) const LINEAR: f32 = 1.0;
    pub(crate) const RELU: f32 = 2.0;
    pub(crate) const GELU: f32 = 2.35;
    pub(crate) const SILU: f32 = 2.8;
}

/// A convolution: kernel and image have as many dimensions as `dims` says, all alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: usize,
    pub(crate) to: usize,
    kernel: usize,
    stride: usize,
    pad: usize,
    groups: usize,
    dims: usize,
    gain: f32,
    bias: bool,
}

impl Window {
    /// Keeps the size of the image (odd kernels); no bias, after a ReLU.
    pub(crate) fn new(from: usize, to: usize, kernel: usize) -> Window {
        let pad = kernel / 2;
        Window { from, to, kernel, stride: 1, pad, groups: 1, dims: 2, gain: gain::RELU, bias: false }
    }

    /// Cuts the image into patches.
    pub(crate) fn patches(from: usize, to: usize, kernel: usize) -> Window {
        Window { stride: kernel, pad: 0, ..Window::new(from, to, kernel) }
    }

    /// One filter a channel.
    pub(crate) fn depthwise(channels: usize, kernel: usize) -> Window {
        Window { groups: channels, ..Window::new(channels, channels, kernel) }
    }

    pub(crate) fn stride(self, stride: usize) -> Window {
        Window { stride, ..self }
    }

    pub(crate) fn dims(self, dims: usize) -> Window {
        Window { dims, ..self }
    }

    pub(crate) fn gain(self, gain: f32) -> Window {
        Window { gain, ..self }
    }

    pub(crate) fn with_bias(self) -> Window {
        Window { bias: true, ..self }
    }

    fn each<T: Clone>(&self, value: T) -> Vec<T> {
        vec![value; self.dims]
    }

    fn weight_shape(&self, first: usize, second: usize) -> Vec<usize> {
        [first, second].into_iter().chain(self.each(self.kernel)).collect()
    }
}

/// The deviation of biases and of shifts of normalizations.
const BIAS: f32 = 0.1;
/// The deviation of scales and variances of normalizations around their center, relative to it; the bell is cut
/// at 3.46 deviations, so they stay positive.
const NEAR: f32 = 0.14;

impl Net {
    pub(crate) fn conv(&mut self, name: &str, x: ValueId, window: Window) -> Made {
        let Window { from, to, kernel, stride, pad, groups, dims, gain, bias } = window;
        let fan_in = from / groups * kernel.pow(dims as u32);
        let shape = window.weight_shape(to, from / groups);
        let mut inputs =
            vec![x, self.parameter(&format!("{name}.weight"), &shape, Spread::fan(fan_in, gain))?];
        if bias {
            inputs.push(self.bias(name, to)?);
        }
        let op = Conv {
            group: groups as i64,
            pads: vec![pad as i64; 2 * dims],
            strides: window.each(stride as i64),
            dilations: window.each(1),
            kernel_shape: Some(window.each(kernel as i64)),
            auto_pad: AutoPad::NotSet,
        };
        self.op(name, op, &inputs)
    }

    /// A transposed convolution whose stride is its kernel: every input point makes a patch.
    pub(crate) fn conv_transpose(&mut self, name: &str, x: ValueId, window: Window) -> Made {
        let Window { from, to, kernel, stride, dims, gain, .. } = window;
        let shape = window.weight_shape(from, to);
        let weight = self.parameter(&format!("{name}.weight"), &shape, Spread::fan(from, gain))?;
        let bias = self.bias(name, to)?;
        let op = ConvTranspose {
            strides: window.each(stride as i64),
            pads: vec![0; 2 * dims],
            output_padding: window.each(0),
            dilations: window.each(1),
            kernel_shape: Some(window.each(kernel as i64)),
            group: 1,
            auto_pad: AutoPad::NotSet,
            output_shape: None,
        };
        self.op(name, op, &[x, weight, bias])
    }

    pub(crate) fn bias(&mut self, name: &str, n: usize) -> Made {
        self.parameter(&format!("{name}.bias"), &[n], Spread::around(0.0, BIAS))
    }

    fn scale(&mut self, name: &str, n: usize, center: f32) -> Made {
        self.parameter(&format!("{name}.weight"), &[n], Spread::around(center, NEAR * center))
    }

    /// Batch normalization with the statistics of activations that need none, roughly.
    pub(crate) fn batch_norm(&mut self, name: &str, x: ValueId, n: usize) -> Made {
        self.batch_norm_scaled(name, x, n, 1.0)
    }

    /// The same with another scale, for branches that are added to their input.
    pub(crate) fn batch_norm_scaled(&mut self, name: &str, x: ValueId, n: usize, scale: f32) -> Made {
        let scale = self.scale(name, n, scale)?;
        let shift = self.bias(name, n)?;
        let mean = self.statistic(&format!("{name}.running_mean"), &[n], Spread::around(0.0, BIAS))?;
        let variance = self.statistic(&format!("{name}.running_var"), &[n], Spread::around(1.0, NEAR))?;
        let op = BatchNormalization { training_mode: false, momentum: 0.9, epsilon: 1e-5 };
        self.op(name, op, &[x, scale, shift, mean, variance])
    }

    pub(crate) fn layer_norm(&mut self, name: &str, x: ValueId, n: usize, epsilon: f32) -> Made {
        let inputs = [x, self.scale(name, n, 1.0)?, self.bias(name, n)?];
        self.op(name, LayerNormalization { stash_type: 1, epsilon, axis: -1 }, &inputs)
    }

    /// Group normalization of an image: instance normalization between reshapes, then scale and shift.
    pub(crate) fn group_norm(&mut self, name: &str, x: ValueId, n: usize, n_groups: usize) -> Made {
        let grouped = self.ints(&[0, n_groups as i64, -1])?;
        let part = |part: &str| format!("{name}.{part}");
        let ones = self.shared("group_ones", || Tensor::vector(vec![1f32; n_groups]))?;
        let zeros = self.shared("group_zeros", || Tensor::vector(vec![0f32; n_groups]))?;
        let y = self.op(&part("groups"), Reshape { allowzero: false }, &[x, grouped])?;
        let y = self.op(&part("normal"), InstanceNormalization { epsilon: 1e-5 }, &[y, ones, zeros])?;
        let shape = self.op(&part("shape"), Shape { start: 0, end: None }, &[x])?;
        let y = self.op(&part("image"), Reshape { allowzero: false }, &[y, shape])?;
        let scale = self.parameter(&part("weight"), &[n, 1, 1], Spread::around(1.0, NEAR))?;
        let shift = self.parameter(&part("bias"), &[n, 1, 1], Spread::around(0.0, BIAS))?;
        let y = self.op(&part("scaled"), Mul {}, &[y, scale])?;
        self.op(name, Add {}, &[y, shift])
    }

    /// A linear layer over the last axis: a product and a sum.
    pub(crate) fn linear(&mut self, name: &str, x: ValueId, from: usize, to: usize, gain: f32) -> Made {
        let weight = self.parameter(&format!("{name}.weight"), &[from, to], Spread::fan(from, gain))?;
        let bias = self.bias(name, to)?;
        let product = self.op(&format!("{name}.product"), MatMul {}, &[x, weight])?;
        self.op(name, Add {}, &[product, bias])
    }

    /// A linear layer over rows, as the exporter writes it for matrices.
    pub(crate) fn gemm(&mut self, name: &str, x: ValueId, from: usize, to: usize, gain: f32) -> Made {
        let weight = self.parameter(&format!("{name}.weight"), &[to, from], Spread::fan(from, gain))?;
        let bias = self.bias(name, to)?;
        self.op(name, Gemm { alpha: 1.0, beta: 1.0, trans_a: false, trans_b: true }, &[x, weight, bias])
    }

    pub(crate) fn relu(&mut self, name: &str, x: ValueId) -> Made {
        self.op(name, Relu {}, &[x])
    }

    pub(crate) fn relu6(&mut self, name: &str, x: ValueId) -> Made {
        let (low, high) = (self.number(0.0)?, self.number(6.0)?);
        self.op(name, Clip {}, &[x, low, high])
    }

    /// x sigmoid(x).
    pub(crate) fn silu(&mut self, name: &str, x: ValueId) -> Made {
        let gate = self.op(&format!("{name}.sigmoid"), Sigmoid {}, &[x])?;
        self.op(name, Mul {}, &[x, gate])
    }

    /// x (1 + erf(x / sqrt 2)) / 2.
    pub(crate) fn gelu(&mut self, name: &str, x: ValueId) -> Made {
        let part = |part: &str| format!("{name}.{part}");
        let (root, one, half) =
            (self.number(std::f32::consts::SQRT_2)?, self.number(1.0)?, self.number(0.5)?);
        let y = self.op(&part("div"), Div {}, &[x, root])?;
        let y = self.op(&part("erf"), Erf {}, &[y])?;
        let y = self.op(&part("add"), Add {}, &[y, one])?;
        let y = self.op(&part("half"), Mul {}, &[half, y])?;
        self.op(name, Mul {}, &[x, y])
    }

    pub(crate) fn max_pool(&mut self, name: &str, x: ValueId, window: Window) -> Made {
        let op = MaxPool {
            pads: vec![window.pad as i64; 2 * window.dims],
            strides: window.each(window.stride as i64),
            dilations: window.each(1),
            kernel_shape: window.each(window.kernel as i64),
            storage_order: 0,
            ceil_mode: false,
            auto_pad: AutoPad::NotSet,
        };
        self.op(name, op, &[x])
    }

    pub(crate) fn transpose(&mut self, name: &str, x: ValueId, perm: &[i64]) -> Made {
        self.op(name, Transpose { perm: Some(perm.to_vec()) }, &[x])
    }

    pub(crate) fn reshape(&mut self, name: &str, x: ValueId, shape: &[i64]) -> Made {
        let shape = self.ints(shape)?;
        self.op(name, Reshape { allowzero: true }, &[x, shape])
    }

    /// A reshape in which 0 keeps the size at its place.
    pub(crate) fn reshape_rest(&mut self, name: &str, x: ValueId, shape: &[i64]) -> Made {
        let shape = self.ints(shape)?;
        self.op(name, Reshape { allowzero: false }, &[x, shape])
    }

    /// The mean over the image, which stays there with one point.
    pub(crate) fn image_mean(&mut self, name: &str, x: ValueId) -> Made {
        let axes = self.ints(&[-1, -2])?;
        self.op(name, ReduceMean { noop_with_empty_axes: false, keepdims: true }, &[x, axes])
    }

    /// The mean over the image and a linear layer: the end of a classifier.
    pub(crate) fn classify(&mut self, x: ValueId, n: usize, n_classes: usize) -> Made {
        let y = self.image_mean("mean", x)?;
        let y = self.reshape("features", y, &[-1, n as i64])?;
        self.gemm("out", y, n, n_classes, gain::LINEAR)
    }
}
