//! Planted faults of precision: the layer that departs is named, and its pins repair the plan.
//!
//! A fault is a wrong line of a calibration (values are clipped at an eighth of what they reach, or get sixteen times
//! coarser steps) or weights of another scale. Some are planted in every run of the tests; all of them, and those of
//! ResNet-18, by `cargo xtask planted-faults`, which prints the figures of docs/accuracy.md.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use planish::graph::Graph;
use planish::io::{Preprocess, Samples};
use planish::{
    Accuracy, Builder, Calibration, CalibrationBuilder, Calibrator, Cause, Device, Diagnosis, Model, Plan,
    Precision, Sample, Tensor,
};
use planish_testing::Random;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A model with what it takes to quantize it and to look into its plans.
struct Case {
    model: Model,
    calibration: Calibration,
    samples: Vec<Sample>,
}

/// What is planted.
#[derive(Clone, Debug)]
enum Fault {
    /// The thresholds of these values, which share a scale, are so many times what they should be.
    Range { values: Vec<&'static str>, factor: f32 },
    /// The weights of a layer, by their name and its, are so many times what they should be.
    Weights { weights: &'static str, layer: &'static str, factor: f32 },
}

impl Case {
    fn fashion_mnist(n_samples: usize) -> Case {
        let model = Model::open(data("fashion_mnist.onnx")).unwrap();
        let preprocess = Preprocess { scale: Some(1.0), ..Preprocess::default() };
        let open = |file: &str, n: usize| Samples::open(data(file), model.graph(), n, &preprocess).unwrap();
        let builder = CalibrationBuilder::from_model(model.clone()).device(Device::Cpu);
        let calibration =
            builder.calibrator(Calibrator::MinMax).run(open("fashion_mnist_calibration.npz", 100)).unwrap();
        let samples = open("fashion_mnist_calibration.npz", n_samples).map(Result::unwrap).collect();
        Case { model, calibration, samples }
    }

    fn resnet18() -> Case {
        let model = Model::from(planish_zoo::graph("resnet18_224", 0).unwrap());
        let mut random = Random::new(18);
        let mut sample = || {
            let pixels = (0..3 * 224 * 224).map(|_| random.float()).collect();
            Sample::new(vec![(input(&model), Tensor::new(&[1, 3, 224, 224], pixels).unwrap())], 1)
        };
        let for_calibration: Vec<Sample> = (0..4).map(|_| sample()).collect();
        let samples = (0..2).map(|_| sample()).collect();
        let builder = CalibrationBuilder::from_model(model.clone()).device(Device::Cpu);
        let calibration =
            builder.calibrator(Calibrator::MinMax).run(for_calibration.into_iter().map(Ok)).unwrap();
        Case { model, calibration, samples }
    }

    /// The plan in INT8, of a model that may have been changed, with these layers in fp32.
    fn plan(&self, model: Model, calibration: &Calibration, pins: &[String]) -> Plan {
        let mut builder = Builder::from_model(model).device(Device::Cpu).tune_level(0).threads(2);
        let options = builder.options_mut();
        // It goes for the model that it should have been built from.
        options.source = self.model.hash();
        options.fp32_layers = pins.to_vec();
        options.verify = false;
        builder.precision(Precision::Int8).ranges(calibration).build().unwrap()
    }

    fn faulty(&self, fault: &Fault, pins: &[String]) -> Plan {
        match fault {
            Fault::Range { values, factor } => {
                self.plan(self.model.clone(), &with_threshold(&self.calibration, values, *factor), pins)
            }
            Fault::Weights { weights, factor, .. } => {
                let graph = with_scaled(self.model.graph(), weights, *factor);
                self.plan(Model::from(graph), &self.calibration, pins)
            }
        }
    }

    fn diagnosed(&self, plan: Plan) -> Diagnosis {
        let accuracy = Accuracy::of(plan).against(self.model.clone()).device(Device::Cpu);
        accuracy.run(self.samples.iter().cloned().map(Ok)).unwrap()
    }
}

fn input(model: &Model) -> String {
    model.graph().value(model.graph().inputs()[0]).name.to_string()
}

/// The calibration with other thresholds of some values, as if its file had been edited.
fn with_threshold(calibration: &Calibration, values: &[&str], factor: f32) -> Calibration {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("planish-accuracy-{}-{number}.calib", std::process::id()));
    calibration.save(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let edited = text.lines().map(|line| {
        let mut fields: Vec<String> = line.split('\t').map(str::to_string).collect();
        if fields.len() == 5 && fields[0] != "channels" && values.contains(&fields[1].as_str()) {
            // Smallest, largest and threshold.
            for field in &mut fields[2..] {
                *field = (field.parse::<f32>().unwrap() * factor).to_string();
            }
        }
        fields.join("\t") + "\n"
    });
    std::fs::write(&path, edited.collect::<String>()).unwrap();
    let edited = Calibration::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for value in values {
        assert_ne!(
            edited.get(value).unwrap().threshold,
            calibration.get(value).unwrap().threshold,
            "{value}"
        );
    }
    edited
}

/// The graph with the elements of one constant scaled.
fn with_scaled(graph: &Graph, constant: &str, factor: f32) -> Graph {
    let mut printed = graph.print();
    let line = printed.text.lines().find(|line| line.trim().starts_with(&format!("const %{constant}:")));
    let number =
        line.and_then(|line| line.split('#').nth(1)?.split(' ').next()?.parse::<usize>().ok()).unwrap();
    let tensor = &printed.constants[number];
    let scaled = tensor.elements::<f32>().unwrap().iter().map(|x| x * factor).collect();
    printed.constants[number] = Tensor::new(tensor.shape(), scaled).unwrap();
    planish_ir::parse(&printed.text, &printed.constants).unwrap()
}

/// Whether the worst departure is the planted one.
fn is_named(fault: &Fault, found: &Diagnosis) -> bool {
    let Some(worst) = found.worst() else { return false };
    match (fault, &worst.cause) {
        (Fault::Range { values, .. }, Cause::Storage { value, .. }) => values.contains(&value.as_str()),
        (Fault::Weights { layer, .. }, Cause::Weights) => found.steps[worst.at].layer == *layer,
        _ => false,
    }
}

fn output_error(found: &Diagnosis) -> f64 {
    found.outputs.iter().map(|(_, error)| *error).fold(0.0, f64::max)
}

/// Pins bring the error of a wrong range back to this many times that of the sound plan: what is left in integers rounds
/// as before, and other layers read what these make.
const REPAIRED: f64 = 1.5;

/// A fault that leaves the error of the sound plan as it was is none: it must grow by this factor. (The least seen is 1.45,
/// coarse steps of `layer4.0.relu1` in ResNet-18.)
const EFFECT: f64 = 1.2;

/// Plants faults and counts those that are named.
fn plant(case: &Case, faults: &[Fault], repair: bool) -> usize {
    let sound = case.diagnosed(case.plan(case.model.clone(), &case.calibration, &[]));
    println!(
        "sound: error of the output {:.2e}, {} departures",
        output_error(&sound),
        sound.departures.len()
    );
    assert!(sound.departures.is_empty(), "{:?}", sound.departures);
    let mut n_named = 0;
    for fault in faults {
        let plan = case.faulty(fault, &[]);
        let start = Instant::now();
        let found = case.diagnosed(plan);
        let time = start.elapsed();
        assert!(output_error(&found) > EFFECT * output_error(&sound), "{fault:?} has no effect");
        let named = is_named(fault, &found);
        n_named += usize::from(named);
        let verdict = if named { "named" } else { "NOT NAMED" };
        println!("{fault:?}: {verdict} in {time:.1?}, error {:.2e}", output_error(&found));
        if !named {
            found
                .departures
                .iter()
                .for_each(|other| println!("   {:?} {other:?}", found.steps[other.at].layer));
        }
        if let (Fault::Range { .. }, true) = (fault, repair) {
            let repaired = output_error(&case.diagnosed(case.faulty(fault, &found.pins())));
            println!("   {repaired:.2e} with {:?}", found.pins());
            assert!(repaired <= REPAIRED * output_error(&sound), "the pins do not repair it");
        }
        assert!(time.as_secs() < 60, "it took {time:?}");
    }
    println!("{n_named} of {} named", faults.len());
    n_named
}

fn range(values: &[&'static str], factor: f32) -> Fault {
    Fault::Range { values: values.to_vec(), factor }
}

const CLIPPED: f32 = 0.125;
const COARSE: f32 = 16.0;

/// Set by `cargo xtask planted-faults`, which takes some minutes: every fault is planted, and those of ResNet-18.
fn plants_all() -> bool {
    std::env::var_os("PLANISH_PLANT_ALL").is_some()
}

#[test]
fn faults_of_a_trained_classifier_are_named_and_repaired() {
    let faults = if plants_all() { all_of_a_trained_classifier() } else { some_of_a_trained_classifier() };
    let n_named = plant(&Case::fashion_mnist(8), &faults, true);
    assert!(10 * n_named >= 9 * faults.len(), "{n_named} of {}", faults.len());
}

fn some_of_a_trained_classifier() -> Vec<Fault> {
    vec![
        range(&["blocks.0.first.relu"], CLIPPED),
        range(&["blocks.1.relu"], COARSE),
        Fault::Weights { weights: "blocks.1.second.weight", layer: "blocks.1.second.conv", factor: 1.5 },
    ]
}

#[test]
fn a_plan_of_integers_needs_its_model() {
    let case = Case::fashion_mnist(1);
    let plan = case.plan(case.model.clone(), &case.calibration, &[]);
    let error = Accuracy::of(plan.clone()).run(case.samples.iter().cloned().map(Ok)).unwrap_err();
    assert!(error.to_string().contains("--against"), "{error}");
    let other = Model::from(with_scaled(case.model.graph(), "stem.weight", 2.0));
    let error = Accuracy::of(plan).against(other).run(case.samples.iter().cloned().map(Ok)).unwrap_err();
    assert!(error.to_string().contains("another model"), "{error}");
}

#[test]
fn a_plan_in_fp32_is_held_against_its_own_graph() {
    let case = Case::fashion_mnist(2);
    let plan = Builder::from_model(case.model.clone()).device(Device::Cpu).tune_level(0).build().unwrap();
    let found = Accuracy::of(plan).run(case.samples.iter().cloned().map(Ok)).unwrap();
    assert!(found.departures.is_empty() && found.n_not_compared == 0, "{found:?}");
    assert!(found.steps.iter().all(|step| step.own < 1e-5 && step.accumulated < 1e-5), "{found:?}");
    assert!(output_error(&found) < 1e-5);
}

fn all_of_a_trained_classifier() -> Vec<Fault> {
    let values: [&[&'static str]; 7] = [
        &["stem.relu", "stem.pool"],
        &["blocks.0.first.relu"],
        &["blocks.0.shortcut.norm"],
        &["blocks.0.relu"],
        &["blocks.1.first.relu"],
        &["blocks.1.relu"],
        &["blocks.2.first.relu"],
    ];
    let mut faults: Vec<Fault> =
        values.iter().flat_map(|values| [CLIPPED, COARSE].map(|factor| range(values, factor))).collect();
    let layers = [
        ("blocks.0.first.weight", "blocks.0.first.conv"),
        ("blocks.0.second.weight", "blocks.0.second.conv"),
        ("blocks.0.shortcut.weight", "blocks.0.shortcut.conv"),
        ("blocks.1.first.weight", "blocks.1.first.conv"),
        ("blocks.2.second.weight", "blocks.2.second.conv"),
        ("blocks.2.shortcut.weight", "blocks.2.shortcut.conv"),
    ];
    faults.extend(layers.map(|(weights, layer)| Fault::Weights { weights, layer, factor: 1.5 }));
    faults
}

#[test]
fn faults_of_resnet18_are_named() {
    if !plants_all() {
        return;
    }
    let mut faults = vec![
        range(&["relu", "maxpool"], CLIPPED),
        range(&["layer1.0.relu1"], CLIPPED),
        range(&["layer1.0.relu"], COARSE),
        range(&["layer1.1.relu1"], COARSE),
        range(&["layer2.0.relu1"], CLIPPED),
        range(&["layer2.0.downsample.1"], COARSE),
        range(&["layer2.1.relu1"], COARSE),
        range(&["layer2.1.relu"], CLIPPED),
        range(&["layer3.0.downsample.1"], CLIPPED),
        range(&["layer3.0.relu"], COARSE),
        range(&["layer3.1.relu1"], CLIPPED),
        range(&["layer4.0.relu1"], COARSE),
        range(&["layer4.1.relu1"], CLIPPED),
    ];
    let layers = [
        ("layer1.0.conv2.weight", "layer1.0.conv2", 1.5),
        ("layer1.1.conv1.weight", "layer1.1.conv1", 1.2),
        ("layer2.0.downsample.0.weight", "layer2.0.downsample.0", 0.5),
        ("layer2.1.conv2.weight", "layer2.1.conv2", 0.8),
        ("layer3.0.conv1.weight", "layer3.0.conv1", 2.0),
        ("layer3.1.conv2.weight", "layer3.1.conv2", 1.5),
        ("layer4.1.conv2.weight", "layer4.1.conv2", 1.2),
    ];
    faults.extend(layers.map(|(weights, layer, factor)| Fault::Weights { weights, layer, factor }));
    let n_named = plant(&Case::resnet18(), &faults, false);
    assert!(10 * n_named >= 9 * faults.len(), "{n_named} of {}", faults.len());
}
