//! One plan for batches of 1 to 16, tuned for two ranges of them, saved, opened again and run.
//!
//! `cargo run --release --example dynamic_batch`

use std::path::Path;
use std::time::Instant;

use planish::shapes::Asked;
use planish::{
    Builder, DType, Device, Engine, Error, Model, NetworkBuilder, Opened, Plan, Tensor, View, Window, Wire,
};

/// Weights that stand for trained ones: repeatable numbers of a size that keeps activations around 1.
fn weights(shape: &[usize], seed: u64) -> Result<Tensor, Error> {
    let n: usize = shape.iter().product();
    let fan: usize = shape[1..].iter().product();
    let mut random = planish::io::Random::new(seed);
    let scale = (3.0 / fan.max(1) as f64).sqrt();
    let values = (0..n).map(|_| ((2.0 * random.unit() - 1.0) * scale) as f32).collect::<Vec<f32>>();
    Ok(Tensor::new(shape, values)?)
}

/// Two convolutions, and what went in added.
fn residual(net: &mut NetworkBuilder, x: Wire, channels: usize, seed: u64) -> Result<Wire, Error> {
    let shape = [channels, channels, 3, 3];
    let y = net.conv(x, weights(&shape, seed)?, None, Window::new().pad(1))?;
    let y = net.relu(y)?;
    let y = net.conv(y, weights(&shape, seed + 1)?, None, Window::new().pad(1))?;
    let y = net.add(x, y)?;
    net.relu(y)
}

fn network() -> Result<NetworkBuilder, Error> {
    let mut net = NetworkBuilder::new("classifier");
    let x = net.input("image", DType::F32, "batch,3,32,32")?;
    let y = net.named("stem").conv(x, weights(&[16, 3, 7, 7], 1)?, None, Window::new().stride(2).pad(3))?;
    let y = net.relu(y)?;
    let y = residual(&mut net, y, 16, 2)?;
    let y = net.global_average_pool(y)?;
    let y = net.flatten(y, 1)?;
    let y = net.named("head").linear(y, weights(&[10, 16], 7)?, None)?;
    let y = net.softmax(y, -1)?;
    net.output("scores", y)?;
    Ok(net)
}

/// Builds, saves, opens and runs; gives the error that a batch outside of the profiles ends in.
pub(crate) fn run(path: &Path, tune_level: u32) -> Result<String, Error> {
    let model = Model::from_network(network()?)?;
    // The first profile that allows a run's sizes serves it.
    let profiles = ["min=image:1x3x32x32 opt=image:1x3x32x32 max=image:4x3x32x32", "max=image:16x3x32x32"];
    let profiles = profiles.map(String::from).to_vec();
    let profiles = Asked { profiles, ..Asked::default() }.resolve(model.graph())?;
    let started = Instant::now();
    let mut builder = Builder::from_model(model).tune_level(tune_level);
    for profile in profiles {
        builder = builder.profile(profile);
    }
    let bytes = builder.build()?.save(path)?;
    println!(
        "built and checked in {:.2} s: {} has {bytes} bytes",
        started.elapsed().as_secs_f64(),
        path.display()
    );

    // A plan of another machine would have to be built again; that is for the caller to say.
    let plan = match Plan::open_for(path, Device::Auto)? {
        Opened::Fits(plan) => plan,
        Opened::NeedsRebuild(rebuild) => {
            println!("{}; building it again", rebuild.why());
            rebuild.build()?
        }
    };
    let mut context = Engine::new(plan, Device::Auto)?.context()?;
    for n in [1, 4, 16] {
        let pixels = vec![0.5f32; n * 3 * 32 * 32];
        let dims = [n, 3, 32, 32];
        let image = View::new(&dims, &pixels)?;
        context.run(&[("image", image)])?;
        let started = Instant::now();
        let outputs = context.run(&[("image", image)])?;
        let ms = started.elapsed().as_secs_f64() * 1e3;
        let scores = outputs.at(0).map(|scores| scores.dims().to_vec()).unwrap_or_default();
        println!("batch {n:2}: scores {scores:?} in {ms:.2} ms");
    }
    // A batch outside of the profiles is an error that says so.
    let pixels = vec![0.5f32; 17 * 3 * 32 * 32];
    let refused = match context.run(&[("image", View::new(&[17, 3, 32, 32], &pixels)?)]) {
        Ok(_) => "batch 17 ran".to_string(),
        Err(error) => error.to_string(),
    };
    println!("batch 17: {refused}");
    Ok(refused)
}

fn main() -> Result<(), Error> {
    let path = std::env::temp_dir().join(format!("planish-dynamic-batch-{}.plan", std::process::id()));
    let ended = run(&path, 3);
    std::fs::remove_file(&path).ok();
    ended.map(drop)
}
