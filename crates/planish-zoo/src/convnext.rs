//! ConvNeXt-Tiny (Liu and others, 2022): large depthwise kernels, linear layers and layer normalization over
//! channels that come last for them.

use planish_ir::ValueId;
use planish_op::{Add, Mul};
use planish_tensor::DType;

use crate::layers::{Window, gain};
use crate::net::{Made, Net};
use crate::weights::Spread;

const EPSILON: f32 = 1e-6;
/// Channels and blocks of the stages.
const STAGES: [(usize, usize); 4] = [(96, 3), (192, 3), (384, 9), (768, 3)];
/// The scale of a branch before it meets its input; 18 blocks let the variance grow to less than the double.
const BRANCH: f32 = 0.2;

pub(crate) fn convnext_tiny(net: &mut Net) -> Made {
    let x = net.input("x", DType::F32, &[3, 224, 224])?;
    let mut from = STAGES[0].0;
    let mut x = net.conv("stem.conv", x, Window::patches(3, from, 4).gain(gain::LINEAR).with_bias())?;
    x = norm_channels(net, "stem.norm", x, from)?;
    for (stage, (to, depth)) in STAGES.into_iter().enumerate() {
        if stage > 0 {
            x = norm_channels(net, &format!("down{stage}.norm"), x, from)?;
            let window = Window::patches(from, to, 2).gain(gain::LINEAR).with_bias();
            x = net.conv(&format!("down{stage}.conv"), x, window)?;
        }
        for block in 0..depth {
            x = residual(net, &format!("stage{}.{block}", stage + 1), x, to)?;
        }
        from = to;
    }
    // PyTorch writes a gather over computed indices between the mean and the norm; it moves nothing.
    let x = net.image_mean("mean", x)?;
    let x = norm_channels(net, "norm", x, from)?;
    let x = net.reshape("features", x, &[-1, from as i64])?;
    net.gemm("out", x, from, 1000, gain::LINEAR)
}

/// Layer normalization over the channels of an image, which has them first.
fn norm_channels(net: &mut Net, name: &str, x: ValueId, n: usize) -> Made {
    let y = net.transpose(&format!("{name}.last"), x, &[0, 2, 3, 1])?;
    let y = net.layer_norm(name, y, n, EPSILON)?;
    net.transpose(&format!("{name}.first"), y, &[0, 3, 1, 2])
}

fn residual(net: &mut Net, name: &str, x: ValueId, n: usize) -> Made {
    let part = |part: &str| format!("{name}.{part}");
    let window = Window::depthwise(n, 7).gain(gain::LINEAR).with_bias();
    let y = net.conv(&part("depthwise"), x, window)?;
    let y = net.transpose(&part("last"), y, &[0, 2, 3, 1])?;
    let y = net.layer_norm(&part("norm"), y, n, EPSILON)?;
    let y = net.linear(&part("widen"), y, n, 4 * n, gain::LINEAR)?;
    let y = net.gelu(&part("gelu"), y)?;
    let y = net.linear(&part("narrow"), y, 4 * n, n, gain::GELU)?;
    let y = net.transpose(&part("first"), y, &[0, 3, 1, 2])?;
    let scale = net.parameter(&part("layer_scale"), &[n, 1, 1], Spread::around(BRANCH, BRANCH / 4.0))?;
    let y = net.op(&part("scaled"), Mul {}, &[scale, y])?;
    net.op(&part("add"), Add {}, &[y, x])
}
