//! A model in FP16 on an NVIDIA GPU, and how far its answers are from FP32 on the CPU.
//!
//! `cargo run --release --example fp16_gpu [MODEL.onnx]`
//!
//! Without a model it takes a small one of its own. Without a GPU it says so, and ends well.

use std::path::PathBuf;

use planish::io::Sources;
use planish::{
    Builder, DType, Device, Engine, Error, ErrorKind, Model, NetworkBuilder, Precision, Tensor, Value, Window,
};

/// Relative L2 distance of FP16 on the first GPU from FP32 on the CPU; nothing where there is no GPU.
pub(crate) fn compare(model: Model) -> Result<Option<f64>, Error> {
    let gpu = Device::Cuda(0);
    match gpu.describe() {
        Ok(name) => println!("GPU: {name}"),
        Err(error) if *error.kind() == ErrorKind::Lacking => {
            println!("there is no GPU to run on: {error}");
            return Ok(None);
        }
        Err(error) => return Err(error),
    }
    let inputs = Sources { random: Some(7), ..Sources::default() }.gather(model.graph())?.values();
    let fast = Builder::from_model(model.clone()).device(gpu).precision(Precision::Fp16).build()?;
    let exact = Builder::from_model(model).device(Device::Cpu).tune_level(0).build()?;
    let got = Engine::new(fast, gpu)?.context()?.run_values(&inputs)?;
    let want = Engine::new(exact, Device::Cpu)?.context()?.run_values(&inputs)?;
    Ok(Some(distance(&got, &want)))
}

fn distance(got: &[Value], want: &[Value]) -> f64 {
    let numbers = |values: &[Value]| -> Vec<f64> {
        values.iter().filter_map(Value::as_tensor).flat_map(Tensor::to_f64s).collect()
    };
    let (got, want) = (numbers(got), numbers(want));
    let error: f64 = got.iter().zip(&want).map(|(a, b)| (a - b).powi(2)).sum();
    let norm: f64 = want.iter().map(|b| b * b).sum();
    (error / norm.max(f64::MIN_POSITIVE)).sqrt()
}

/// A convolution, a product and what comes with them.
pub(crate) fn small_model() -> Result<Model, Error> {
    let mut net = NetworkBuilder::new("small");
    let x = net.input("image", DType::F32, "1,3,32,32")?;
    let weights = |shape: &[usize]| {
        let n: usize = shape.iter().product();
        let values = (0..n).map(|idx| ((idx * 37 % 101) as f32 - 50.0) / 200.0).collect::<Vec<f32>>();
        Tensor::new(shape, values)
    };
    let y = net.conv(x, weights(&[16, 3, 3, 3])?, None, Window::new().pad(1))?;
    let y = net.relu(y)?;
    let y = net.global_average_pool(y)?;
    let y = net.flatten(y, 1)?;
    let y = net.linear(y, weights(&[10, 16])?, None)?;
    net.output("scores", y)?;
    Model::from_network(net)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = match std::env::args_os().nth(1).map(PathBuf::from) {
        Some(path) => Model::open(path)?,
        None => small_model()?,
    };
    if let Some(distance) = compare(model)? {
        println!("FP16 on the GPU is {distance:.1e} (relative L2) from FP32 on the CPU");
    }
    Ok(())
}
