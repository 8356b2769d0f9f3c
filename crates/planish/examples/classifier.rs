//! A small image classifier by hand, built for a range of batches, saved, opened again and run.
//!
//! `cargo run --release -p planish --example classifier`

use std::time::Instant;

use planish::{
    Builder, DType, Device, Engine, Error, NetworkBuilder, Plan, Profile, SymbolRange, Tensor, View, Window,
    Wire,
};

/// Weights that stand for trained ones: repeatable numbers of a size that keeps activations around 1.
fn weights(shape: &[usize], seed: u64) -> Tensor {
    let n: usize = shape.iter().product();
    let fan: usize = shape[1..].iter().product();
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * (3.0 / fan.max(1) as f32).sqrt()
    };
    Tensor::new(shape, (0..n).map(|_| next()).collect()).expect("as many numbers as the shape says")
}

/// Two convolutions and what went in, added.
fn residual(net: &mut NetworkBuilder, x: Wire, channels: usize, seed: u64) -> Result<Wire, Error> {
    let shape = [channels, channels, 3, 3];
    let y = net.conv(x, weights(&shape, seed), None, Window::new().pad(1))?;
    let y = net.relu(y)?;
    let y = net.conv(y, weights(&shape, seed + 1), None, Window::new().pad(1))?;
    let y = net.add(x, y)?;
    net.relu(y)
}

fn network() -> Result<NetworkBuilder, Error> {
    let mut net = NetworkBuilder::new("classifier");
    let x = net.input("image", DType::F32, "batch,3,64,64")?;
    let stem = weights(&[32, 3, 7, 7], 1);
    let y = net.named("stem").conv(x, stem, None, Window::new().stride(2).pad(3))?;
    let y = net.relu(y)?;
    let y = residual(&mut net, y, 32, 2)?;
    let y = net.named("down").conv(y, weights(&[64, 32, 3, 3], 4), None, Window::new().stride(2).pad(1))?;
    let y = net.relu(y)?;
    let y = residual(&mut net, y, 64, 5)?;
    let y = net.global_average_pool(y)?;
    let y = net.flatten(y, 1)?;
    let bias = Tensor::vector(vec![0.1f32; 10]);
    let y = net.named("head").linear(y, weights(&[10, 64], 7), Some(bias.into()))?;
    let y = net.softmax(y, -1)?;
    net.output("scores", y)?;
    Ok(net)
}

fn main() -> Result<(), Error> {
    // One plan for batches of 1 to 16, tuned at 4.
    let batch = SymbolRange { symbol: "batch".into(), min: 1, opt: 4, max: 16 };
    let started = Instant::now();
    let plan = Builder::from_network(network()?)?.profile(Profile { ranges: vec![batch] }).build()?;
    println!("built and checked in {:.2} s", started.elapsed().as_secs_f64());

    let path = std::env::temp_dir().join("planish-classifier.plan");
    let bytes = plan.save(&path)?;
    println!("{} holds {bytes} bytes", path.display());

    let engine = Engine::new(Plan::open(&path)?, Device::Cpu)?;
    let mut context = engine.context()?;
    for n in [1, 4, 16] {
        let pixels = vec![0.5f32; n * 3 * 64 * 64];
        let dims = [n, 3, 64, 64];
        let image = View::new(&dims, &pixels)?;
        context.run(&[("image", image)])?;
        let started = Instant::now();
        let outputs = context.run(&[("image", image)])?;
        let ms = started.elapsed().as_secs_f64() * 1e3;
        let scores = outputs.at(0).map(|scores| scores.dims().to_vec()).unwrap_or_default();
        println!("batch {n:2}: scores {scores:?} in {ms:.2} ms");
    }
    // Beyond the profile is an error that says so.
    let pixels = vec![0.5f32; 17 * 3 * 64 * 64];
    match context.run(&[("image", View::new(&[17, 3, 64, 64], &pixels)?)]) {
        Ok(_) => println!("batch 17 ran"),
        Err(error) => println!("batch 17: {error}"),
    }
    std::fs::remove_file(&path).ok();
    Ok(())
}
