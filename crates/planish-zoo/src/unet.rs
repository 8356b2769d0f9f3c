//! UNets of four levels (Ronneberger and others, 2015), in two and in three dimensions.

use planish_ir::ValueId;
use planish_op::Concat;
use planish_tensor::DType;

use crate::layers::{Window, gain};
use crate::net::{Made, Net};

const LEVELS: usize = 4;

pub(crate) fn labelfree_2d(net: &mut Net) -> Made {
    unet(net, 2, 256, 32)
}

pub(crate) fn segmentation_3d(net: &mut Net) -> Made {
    unet(net, 3, 64, 16)
}

/// Channels double on the way down; on the way up, those of the same level are set beside.
fn unet(net: &mut Net, dims: usize, size: usize, base: usize) -> Made {
    let image: Vec<usize> = std::iter::once(1).chain(vec![size; dims]).collect();
    let mut x = net.input("x", DType::F32, &image)?;
    let (mut from, mut skips) = (1, Vec::new());
    for level in 0..LEVELS {
        let to = base << level;
        x = double(net, &format!("down{level}"), x, [from, to], dims)?;
        if level + 1 < LEVELS {
            skips.push((x, to));
            x = net.max_pool(&format!("pool{level}"), x, Window::patches(to, to, 2).dims(dims))?;
        }
        from = to;
    }
    for (level, (skip, to)) in skips.into_iter().enumerate().rev() {
        let window = Window::patches(from, to, 2).dims(dims);
        x = net.conv_transpose(&format!("up{level}"), x, window)?;
        x = net.op(&format!("beside{level}"), Concat { axis: 1 }, &[x, skip])?;
        x = double(net, &format!("merge{level}"), x, [2 * to, to], dims)?;
        from = to;
    }
    net.conv("out", x, Window::new(from, 1, 1).dims(dims).gain(gain::LINEAR).with_bias())
}

/// Two convolutions, each with normalization and a ReLU.
fn double(net: &mut Net, name: &str, x: ValueId, [from, to]: [usize; 2], dims: usize) -> Made {
    let mut y = x;
    for (idx, from) in [from, to].into_iter().enumerate() {
        y = net.conv(&format!("{name}.{idx}.conv"), y, Window::new(from, to, 3).dims(dims).with_bias())?;
        y = net.batch_norm(&format!("{name}.{idx}.norm"), y, to)?;
        y = net.relu(&format!("{name}.{idx}.relu"), y)?;
    }
    Ok(y)
}
