//! The models are what they say, and come back from ONNX as they went.

use planish_op::Value;
use planish_tensor::{Bytes, DType, Tensor};

use super::*;

/// Above this, reading back would take more memory and time than it tells: the layers are the same.
const SMALL: usize = 30_000_000;

#[test]
fn every_model_has_its_parameters_and_one_output() {
    for entry in ENTRIES {
        let (graph, n_parameters) = built(entry, 0).unwrap();
        assert_eq!(n_parameters, entry.n_parameters, "{}", entry.name);
        graph.verify().unwrap();
        let [out] = graph.outputs() else { panic!("{}: one output", entry.name) };
        let out = graph.value(*out);
        assert_eq!(&*out.name, "out", "{}", entry.name);
        let dims = out.ty.as_tensor().and_then(|ty| ty.shape.as_ref()).unwrap();
        assert_eq!(dims.get(0).and_then(|dim| dim.as_symbol()), Some("batch"), "{}", entry.name);
        let is_open = |dim: &planish_tensor::Dim| entry.name == "minilm" && dim.as_symbol() == Some("seq");
        let known = |dim: &planish_tensor::Dim| dim.as_usize().is_some() || is_open(dim);
        assert!(dims.dims()[1..].iter().all(known), "{}: {dims}", entry.name);
    }
}

#[test]
fn small_models_come_back_from_onnx() {
    for entry in ENTRIES.iter().filter(|entry| entry.n_parameters < SMALL) {
        let graph = graph(entry.name, 7).unwrap();
        let bytes = Bytes::from_vec(onnx(entry.name, 7).unwrap());
        let back = planish_import::import_bytes(&bytes, None).unwrap().graph;
        graph.same_as(&back).unwrap_or_else(|what| panic!("{}: {what}", entry.name));
    }
}

#[test]
fn seeds_make_different_weights_and_the_same_seed_the_same() {
    assert_eq!(onnx("cifar_cnn", 3).unwrap(), onnx("cifar_cnn", 3).unwrap());
    let weight = |seed| {
        let graph = graph("cifar_cnn", seed).unwrap();
        let id = graph.find("hidden.weight").unwrap();
        graph.value(id).constant().unwrap().clone()
    };
    assert_ne!(weight(3), weight(4));
}

#[test]
fn outputs_are_of_a_sane_size() {
    let image: Vec<f64> = (0..3 * 224 * 224).map(|idx| (idx as f64 * 0.37).sin()).collect();
    let x = Tensor::from_f64s(DType::F32, &[1, 3, 224, 224], &image).unwrap();
    let graph = graph("mobilenet_v2_224", 0).unwrap();
    let outputs = planish_ir::interpret(&graph, vec![Value::Tensor(x)]).unwrap();
    let logits = outputs[0].as_tensor().unwrap().to_f64s();
    let mean = logits.iter().sum::<f64>() / 1000.0;
    let deviation = (logits.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1000.0).sqrt();
    // Trained classifiers have logits with deviations of one to four; a tenth to ten keeps FP16 and INT8 usable.
    assert!((0.1..10.0).contains(&deviation), "{deviation}");
}

#[test]
fn an_unknown_name_gets_a_hint() {
    let said = |name: &str| graph(name, 0).unwrap_err().to_string();
    let near = said("ResNet50");
    assert_eq!(near, "there is no model `ResNet50` in the zoo; did you mean resnet50_224?");
    assert_eq!(said("yolo"), "there is no model `yolo` in the zoo; `planish zoo` lists all");
}
