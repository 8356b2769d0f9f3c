//! The examples of the root folder, run as they are, on small models and an image made here.

#[allow(dead_code)]
#[path = "../../../examples/classify_image.rs"]
mod classify_image;
#[allow(dead_code)]
#[path = "../../../examples/dynamic_batch.rs"]
mod dynamic_batch;
#[allow(dead_code)]
#[path = "../../../examples/fp16_gpu.rs"]
mod fp16_gpu;
#[allow(dead_code)]
#[path = "../../../examples/network_by_hand.rs"]
mod network_by_hand;
#[allow(dead_code)]
#[path = "../../../examples/thread_pool.rs"]
mod thread_pool;
#[allow(dead_code)]
#[path = "../../../examples/tour/main.rs"]
mod tour;

use std::path::PathBuf;

use planish::graph::interpret;
use planish::{DType, Device, Model, NetworkBuilder, Tensor, Value};

/// A folder of its own for each test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("planish-examples-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_image_is_classified() {
    let folder = Folder::new("classify");
    // Ten classes, the first three of which are how red, green and blue an image is.
    let mut net = NetworkBuilder::new("colours");
    let x = net.input("image", DType::F32, "batch,3,8,8").unwrap();
    let y = net.global_average_pool(x).unwrap();
    let y = net.flatten(y, 1).unwrap();
    let weights = (0..30).map(|idx| if idx / 3 == idx % 3 { 4.0f32 } else { 0.0 }).collect::<Vec<f32>>();
    let y = net.linear(y, Tensor::new(&[10, 3], weights).unwrap(), None).unwrap();
    net.output("scores", y).unwrap();
    let model = folder.0.join("colours.onnx");
    net.save_onnx(&model).unwrap();
    let picture = folder.0.join("green.png");
    image::RgbImage::from_pixel(20, 10, image::Rgb([10, 250, 30])).save(&picture).unwrap();
    let guesses = classify_image::classify(&model, &picture).unwrap();
    assert_eq!(guesses.len(), 5);
    assert_eq!(guesses[0].0, 1, "{guesses:?}");
    assert!(guesses[0].1 > 0.9, "{guesses:?}");
    assert!(guesses.windows(2).all(|pair| pair[0].1 >= pair[1].1), "{guesses:?}");
}

#[test]
fn batches_have_profiles() {
    let folder = Folder::new("batch");
    let refused = dynamic_batch::run(&folder.0.join("batch.plan"), 0).unwrap();
    assert!(refused.contains("batch") && refused.contains("16"), "{refused}");
}

#[test]
fn fp16_needs_a_gpu_and_says_so() {
    let distance = fp16_gpu::compare(fp16_gpu::small_model().unwrap()).unwrap();
    assert_eq!(distance.is_some(), Device::Auto.settled() != Device::Cpu);
    // Ten numbers of eleven bits each, through two products.
    assert!(distance.is_none_or(|distance| distance > 0.0 && distance < 3e-3), "{distance:?}");
}

#[test]
fn a_network_by_hand_is_what_the_reference_computes() {
    let model = Model::from_network(network_by_hand::network().unwrap()).unwrap();
    let out = network_by_hand::run(model.clone()).unwrap();
    let tokens: Vec<f32> = (0..2 * 3 * 32).map(|idx| (idx % 32) as f32 / 32.0).collect();
    let tokens = Value::from(Tensor::new(&[2, 3, 32], tokens).unwrap());
    let exact = interpret(model.graph(), vec![tokens]).unwrap();
    let exact = exact[0].as_tensor().unwrap().to_f64s();
    assert_eq!(out.len(), exact.len());
    for (got, want) in out.iter().zip(exact) {
        assert!((f64::from(*got) - want).abs() < 1e-4, "{got} {want}");
    }
}

#[test]
fn threads_share_contexts() {
    assert_eq!(thread_pool::serve(10, 0).unwrap(), 0);
}

#[test]
fn every_stop_of_the_tour_runs() {
    for (name, run) in tour::STOPS {
        run().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
