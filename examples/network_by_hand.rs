//! A transformer's feed-forward block defined layer by layer, built, run, and written as ONNX.
//!
//! `cargo run --release --example network_by_hand [FILE.onnx]`

use std::path::PathBuf;

use planish::io::Random;
use planish::{Builder, DType, Device, Engine, Error, Model, NetworkBuilder, Tensor, View};

/// Widths of the block.
const WIDTH: usize = 32;
const HIDDEN: usize = 4 * WIDTH;

/// `x + down(gelu(up(norm(x))))`.
pub(crate) fn network() -> Result<NetworkBuilder, Error> {
    let mut random = Random::new(1);
    let mut weights = |shape: &[usize]| -> Result<Tensor, Error> {
        let scale = 1.0 / (shape[1] as f64).sqrt();
        let n: usize = shape.iter().product();
        let values = (0..n).map(|_| ((2.0 * random.unit() - 1.0) * scale) as f32).collect::<Vec<f32>>();
        Ok(Tensor::new(shape, values)?)
    };
    let mut net = NetworkBuilder::new("feed_forward");
    let x = net.input("tokens", DType::F32, &format!("batch,seq,{WIDTH}")[..])?;
    let ones = Tensor::vector(vec![1f32; WIDTH]);
    let y = net.named("norm").layer_norm(x, ones, None, -1, 1e-5)?;
    let y = net.named("up").linear(y, weights(&[HIDDEN, WIDTH])?, None)?;
    let y = net.gelu(y)?;
    let y = net.named("down").linear(y, weights(&[WIDTH, HIDDEN])?, None)?;
    let y = net.add(x, y)?;
    net.output("out", y)?;
    Ok(net)
}

/// The block's output on tokens that are all alike, by the plan.
pub(crate) fn run(model: Model) -> Result<Vec<f32>, Error> {
    // What a wrong layer would say names the layer and what it was given.
    println!("{}", model.graph());
    let plan = Builder::from_model(model).tune_level(0).build()?;
    let mut context = Engine::new(plan, Device::Auto)?.context()?;
    let tokens: Vec<f32> = (0..2 * 3 * WIDTH).map(|idx| (idx % WIDTH) as f32 / WIDTH as f32).collect();
    let outputs = context.run(&[("tokens", View::new(&[2, 3, WIDTH], &tokens)?)])?;
    Ok(outputs.at(0).and_then(|out| out.as_slice::<f32>().map(<[f32]>::to_vec)).unwrap_or_default())
}

fn main() -> Result<(), Error> {
    let net = network()?;
    if let Some(path) = std::env::args_os().nth(1).map(PathBuf::from) {
        net.save_onnx(&path)?;
        println!("wrote {}", path.display());
    }
    let out = run(Model::from_network(net)?)?;
    println!("{} numbers, the first {:.4}", out.len(), out[0]);
    Ok(())
}
