//! The network that every stop builds: a small classifier with residual blocks, and images for it.

use planish::io::Random;
use planish::{DType, Error, Model, NetworkBuilder, Sample, Tensor, Window};

/// Weights that stand for trained ones: repeatable numbers of a size that keeps activations around 1.
fn weights(shape: &[usize], seed: u64) -> Result<Tensor, Error> {
    let n: usize = shape.iter().product();
    let fan: usize = shape[1..].iter().product();
    let mut random = Random::new(seed);
    let scale = (3.0 / fan.max(1) as f64).sqrt();
    let values = (0..n).map(|_| ((2.0 * random.unit() - 1.0) * scale) as f32).collect::<Vec<f32>>();
    Ok(Tensor::new(shape, values)?)
}

pub(crate) fn model() -> Result<Model, Error> {
    let mut net = NetworkBuilder::new("classifier");
    let x = net.input("image", DType::F32, "batch,3,32,32")?;
    let mut y =
        net.named("stem").conv(x, weights(&[16, 3, 3, 3], 1)?, None, Window::new().stride(2).pad(1))?;
    y = net.relu(y)?;
    for block in 0..2 {
        let name = format!("block{block}");
        let z = net.named(&name).conv(y, weights(&[16, 16, 3, 3], 2 + block)?, None, Window::new().pad(1))?;
        let z = net.add(y, z)?;
        y = net.relu(z)?;
    }
    let y = net.global_average_pool(y)?;
    let y = net.flatten(y, 1)?;
    let y = net.named("head").linear(y, weights(&[10, 16], 7)?, None)?;
    let y = net.softmax(y, -1)?;
    net.output("scores", y)?;
    Model::from_network(net)
}

/// A batch of images.
pub(crate) fn images(batch: usize, seed: u64) -> Result<Tensor, Error> {
    Ok(Random::new(seed).tensor(DType::F32, &[batch, 3, 32, 32])?)
}

/// Images one by one, as a calibration takes them.
pub(crate) fn samples(n: u64) -> impl Iterator<Item = Result<Sample, Error>> {
    (0..n).map(|seed| Ok(Sample::new(vec![("image".to_string(), images(1, seed)?)], 1)))
}
