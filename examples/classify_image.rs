//! Classifies an image with a model from an ONNX file: decode, resize, normalize, run, top five.
//!
//! `cargo run --release --example classify_image -- MODEL.onnx IMAGE.jpg [LABELS.txt]`
//!
//! The model takes one image, `[1,3,H,W]` or `[1,H,W,3]`, as most trained on ImageNet do; the file of labels has one
//! class a line.

use std::path::{Path, PathBuf};

use planish::io::picture;
use planish::{Builder, DType, Device, Engine, Error, ErrorKind, Tensor, View};

/// What torchvision's models were trained with: mean and deviation of each channel of pixels in 0..1.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];

/// A class by its number, and its probability.
pub(crate) type Guess = (usize, f32);

/// The five most probable classes of the image.
pub(crate) fn classify(model: &Path, image: &Path) -> Result<Vec<Guess>, Error> {
    let plan = Builder::new(model)?.build()?;
    let engine = Engine::new(plan, Device::Auto)?;
    let input = &engine.inputs()[0];
    let ty =
        input.ty.as_tensor().ok_or_else(|| Error::new(ErrorKind::WrongType, "the input is not a tensor"))?;

    // Decoded, and resized to what the input's type says; pixels are in 0..1.
    let (pixels, what) = picture::load(image, &input.name, ty)?;
    println!("{what}");
    let pixels = normalized(&pixels)?;

    let mut context = engine.context()?;
    let outputs = context.run(&[(&input.name, View::from(&pixels))])?;
    let scores = outputs.at(0).and_then(|scores| scores.as_slice::<f32>().map(<[f32]>::to_vec));
    let scores = scores.ok_or_else(|| Error::new(ErrorKind::WrongType, "the first output is not of f32"))?;
    Ok(top_five(&scores))
}

/// Each channel with its mean taken out, over its deviation.
fn normalized(pixels: &Tensor) -> Result<Tensor, Error> {
    let shape = pixels.shape();
    if pixels.dtype() != DType::F32 || shape.len() != 4 {
        return Ok(pixels.clone());
    }
    // Channels come first, or last.
    let (n_channels, stride) = if shape[1] == 3 { (3, shape[2] * shape[3]) } else { (shape[3], 1) };
    let values = pixels.to_f64s().into_iter().enumerate().map(|(idx, value)| {
        let channel = (idx / stride % n_channels).min(2);
        (value as f32 - MEAN[channel]) / DEVIATION[channel]
    });
    Ok(Tensor::new(shape, values.collect::<Vec<f32>>())?)
}

/// Softmax, and the five largest.
fn top_five(scores: &[f32]) -> Vec<Guess> {
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = scores.iter().map(|score| (score - most).exp()).collect();
    let sum: f32 = powers.iter().sum();
    let mut guesses: Vec<Guess> = powers.iter().map(|power| power / sum).enumerate().collect();
    guesses.sort_by(|a, b| b.1.total_cmp(&a.1));
    guesses.truncate(5);
    guesses
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [model, image, labels @ ..] = &arguments[..] else {
        return Err("give MODEL.onnx IMAGE [LABELS.txt]".into());
    };
    let labels = labels.first().map(std::fs::read_to_string).transpose()?.unwrap_or_default();
    let labels: Vec<&str> = labels.lines().collect();
    for (class, probability) in classify(model, image)? {
        println!("{:5.1} %  {class:4}  {}", 100.0 * probability, labels.get(class).unwrap_or(&""));
    }
    Ok(())
}
