//! Residual networks (He and others, 2016).

use planish_ir::ValueId;
use planish_op::Add;
use planish_tensor::DType;

use crate::layers::{Window, gain};
use crate::net::{Made, Net};

/// How strongly a block's branch is scaled before it meets its input. At 1 every block would double the variance,
/// 2^16 over a ResNet-50; training leaves scales well below 1 there.
const BRANCH: f32 = 0.25;

/// Channels of a stage before a bottleneck widens them.
const WIDTHS: [usize; 4] = [64, 128, 256, 512];

pub(crate) fn resnet18(net: &mut Net, size: usize) -> Made {
    resnet(net, size, [2, 2, 2, 2], false)
}

pub(crate) fn resnet50(net: &mut Net) -> Made {
    resnet(net, 224, [3, 4, 6, 3], true)
}

fn resnet(net: &mut Net, size: usize, depths: [usize; 4], bottleneck: bool) -> Made {
    let x = net.input("x", DType::F32, &[3, size, size])?;
    let x = net.conv("conv1", x, Window::new(3, 64, 7).stride(2).gain(gain::LINEAR))?;
    let x = net.batch_norm("bn1", x, 64)?;
    let x = net.relu("relu", x)?;
    let mut x = net.max_pool("maxpool", x, Window::new(64, 64, 3).stride(2))?;
    let mut from = 64;
    for (stage, (depth, width)) in depths.into_iter().zip(WIDTHS).enumerate() {
        for block in 0..depth {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let name = format!("layer{}.{block}", stage + 1);
            let to = if bottleneck { 4 * width } else { width };
            let windows = if bottleneck {
                vec![
                    Window::new(from, width, 1),
                    Window::new(width, width, 3).stride(stride),
                    Window::new(width, to, 1),
                ]
            } else {
                vec![Window::new(from, width, 3).stride(stride), Window::new(width, width, 3)]
            };
            x = residual(net, &name, x, &windows, Window::new(from, to, 1).stride(stride))?;
            from = to;
        }
    }
    net.classify(x, from, 1000)
}

/// Convolutions with normalization, the input added, a ReLU; `around` fits the input where it does not fit.
fn residual(net: &mut Net, name: &str, x: ValueId, windows: &[Window], around: Window) -> Made {
    let mut y = x;
    for (idx, &window) in windows.iter().enumerate() {
        let (number, is_last) = (idx + 1, idx + 1 == windows.len());
        y = net.conv(&format!("{name}.conv{number}"), y, window)?;
        let scale = if is_last { BRANCH } else { 1.0 };
        y = net.batch_norm_scaled(&format!("{name}.bn{number}"), y, window.to, scale)?;
        if !is_last {
            y = net.relu(&format!("{name}.relu{number}"), y)?;
        }
    }
    let needs_fit = around.from != around.to;
    let input = if needs_fit {
        // After a ReLU, but it takes the place of the input: its second moment is to stay.
        let fitted = net.conv(&format!("{name}.downsample.0"), x, around.gain(gain::LINEAR))?;
        net.batch_norm(&format!("{name}.downsample.1"), fitted, around.to)?
    } else {
        x
    };
    let sum = net.op(&format!("{name}.add"), Add {}, &[y, input])?;
    net.relu(&format!("{name}.relu"), sum)
}
