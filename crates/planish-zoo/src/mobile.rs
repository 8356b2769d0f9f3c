//! Networks of inverted bottlenecks with depthwise convolutions: MobileNetV2 (Sandler and others, 2018) and
//! EfficientNet-B0 (Tan and Le, 2019).

use planish_ir::ValueId;
use planish_op::{Add, Mul, Sigmoid};
use planish_tensor::DType;

use crate::layers::{Window, gain};
use crate::net::{Made, Net};

/// As in the residual networks: the branch's scale before it meets its input.
const BRANCH: f32 = 0.5;

/// A stage: how often the channels are widened, kernel, channels, blocks, stride of the first.
type Stage = (usize, usize, usize, usize, usize);

const MOBILENET: [Stage; 7] = [
    (1, 3, 16, 1, 1),
    (6, 3, 24, 2, 2),
    (6, 3, 32, 3, 2),
    (6, 3, 64, 4, 2),
    (6, 3, 96, 3, 1),
    (6, 3, 160, 3, 2),
    (6, 3, 320, 1, 1),
];

const EFFICIENTNET: [Stage; 7] = [
    (1, 3, 16, 1, 1),
    (6, 3, 24, 2, 2),
    (6, 5, 40, 2, 2),
    (6, 3, 80, 3, 2),
    (6, 5, 112, 3, 1),
    (6, 5, 192, 4, 2),
    (6, 3, 320, 1, 1),
];

/// What the two networks differ in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// ReLU6.
    Mobile,
    /// SiLU and squeeze-excite.
    Efficient,
}

pub(crate) fn mobilenet_v2(net: &mut Net) -> Made {
    network(net, Kind::Mobile, &MOBILENET)
}

pub(crate) fn efficientnet_b0(net: &mut Net) -> Made {
    network(net, Kind::Efficient, &EFFICIENTNET)
}

fn network(net: &mut Net, kind: Kind, stages: &[Stage]) -> Made {
    let x = net.input("x", DType::F32, &[3, 224, 224])?;
    let mut x = kind.unit(net, "features.0", x, Window::new(3, 32, 3).stride(2).gain(gain::LINEAR))?;
    let mut from = 32;
    let mut n_blocks = 0;
    for &(widen, kernel, to, depth, first_stride) in stages {
        for block in 0..depth {
            n_blocks += 1;
            let stride = if block == 0 { first_stride } else { 1 };
            let name = format!("features.{n_blocks}");
            x = kind.block(net, &name, x, [from, from * widen, to], kernel, stride)?;
            from = to;
        }
    }
    let last = format!("features.{}", n_blocks + 1);
    x = kind.unit(net, &last, x, Window::new(from, 1280, 1).gain(gain::LINEAR))?;
    net.classify(x, 1280, 1000)
}

impl Kind {
    fn gain(self) -> f32 {
        match self {
            Kind::Mobile => gain::RELU,
            Kind::Efficient => gain::SILU,
        }
    }

    /// A convolution, normalized, and the activation.
    fn unit(self, net: &mut Net, name: &str, x: ValueId, window: Window) -> Made {
        let y = net.conv(&format!("{name}.conv"), x, window)?;
        let y = net.batch_norm(&format!("{name}.norm"), y, window.to)?;
        match self {
            Kind::Mobile => net.relu6(&format!("{name}.relu6"), y),
            Kind::Efficient => net.silu(&format!("{name}.silu"), y),
        }
    }

    /// Widen, a depthwise convolution, narrow; the input is added where it fits.
    fn block(
        self,
        net: &mut Net,
        name: &str,
        x: ValueId,
        [from, wide, to]: [usize; 3],
        kernel: usize,
        stride: usize,
    ) -> Made {
        let part = |part: &str| format!("{name}.{part}");
        let mut y = x;
        if wide > from {
            y = self.unit(net, &part("widen"), y, Window::new(from, wide, 1).gain(gain::LINEAR))?;
        }
        let depthwise = Window::depthwise(wide, kernel).stride(stride).gain(self.gain());
        y = self.unit(net, &part("depthwise"), y, depthwise)?;
        let mut narrow = Window::new(wide, to, 1).gain(self.gain());
        if self == Kind::Efficient {
            y = squeeze_excite(net, &part("excite"), y, wide, from / 4)?;
            // Gates near a half leave a quarter of the second moment, but where the spread grows, SiLU becomes a
            // ReLU and loses less. Measured deviation of the logits: 0.2 at 2, 1.6 at 2.5, 250 at 4.
            narrow = narrow.gain(2.5 * self.gain());
        }
        y = net.conv(&part("narrow.conv"), y, narrow)?;
        let is_residual = stride == 1 && from == to;
        let scale = if is_residual { BRANCH } else { 1.0 };
        y = net.batch_norm_scaled(&part("narrow.norm"), y, to, scale)?;
        match (is_residual, self) {
            (false, _) => Ok(y),
            (true, Kind::Mobile) => net.op(&part("add"), Add {}, &[x, y]),
            (true, Kind::Efficient) => net.op(&part("add"), Add {}, &[y, x]),
        }
    }
}

/// A gate for each channel, from the means of all.
fn squeeze_excite(net: &mut Net, name: &str, x: ValueId, n: usize, n_squeezed: usize) -> Made {
    let part = |part: &str| format!("{name}.{part}");
    let y = net.image_mean(&part("mean"), x)?;
    let y = net.conv(&part("fc1"), y, Window::new(n, n_squeezed, 1).gain(gain::SILU).with_bias())?;
    let y = net.silu(&part("silu"), y)?;
    let y = net.conv(&part("fc2"), y, Window::new(n_squeezed, n, 1).gain(gain::SILU).with_bias())?;
    let gate = net.op(&part("sigmoid"), Sigmoid {}, &[y])?;
    net.op(name, Mul {}, &[gate, x])
}
