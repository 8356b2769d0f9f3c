//! A small classifier of 32x32 images that come with their channels last, as Keras models take them.

use planish_op::Softmax;
use planish_tensor::DType;

use crate::layers::{Window, gain};
use crate::net::{Made, Net};

pub(crate) fn cifar_cnn(net: &mut Net) -> Made {
    let x = net.input("x", DType::F32, &[32, 32, 3])?;
    let mut x = net.transpose("first", x, &[0, 3, 1, 2])?;
    let mut from = 3;
    for (stage, to) in [64, 128, 256].into_iter().enumerate() {
        for (idx, from) in [from, to].into_iter().enumerate() {
            let name = format!("stage{}.{idx}", stage + 1);
            x = net.conv(&format!("{name}.conv"), x, Window::new(from, to, 3).with_bias())?;
            x = net.batch_norm(&format!("{name}.norm"), x, to)?;
            x = net.relu(&format!("{name}.relu"), x)?;
        }
        x = net.max_pool(&format!("stage{}.pool", stage + 1), x, Window::patches(to, to, 2))?;
        from = to;
    }
    x = net.reshape("features", x, &[-1, 256 * 16])?;
    x = net.gemm("hidden", x, 256 * 16, 512, gain::RELU)?;
    x = net.relu("hidden.relu", x)?;
    // Half of what keeps the spread: maxima over patches have raised it, and the softmax is not to saturate.
    x = net.gemm("classes", x, 512, 10, gain::LINEAR / 4.0)?;
    net.op("out", Softmax { axis: -1 }, &[x])
}
