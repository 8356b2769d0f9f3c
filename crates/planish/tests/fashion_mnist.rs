//! A trained classifier on the images that it was trained for: how many it gets right, and what its calibration finds.
//!
//! 500 test images are in the repository. All 10,000 are used where Debian's package `dataset-fashion-mnist` is installed,
//! or where `PLANISH_FASHION_MNIST` names the folder of its files; without them that test counts as ignored.

mod harness;

use std::io::Read;
use std::path::{Path, PathBuf};

use harness::{on_cpu, on_gpu};
use libtest_mimic::{Arguments, Completion, Trial};
use planish::io::{Preprocess, Samples, npy};
use planish::{Builder, Calibration, CalibrationBuilder, Calibrator, Device, Engine, Model, Precision, View};

/// What PyTorch gets right of the first 500 and of all 10,000 test images in FP32.
const RIGHT_OF_500: usize = 464;
const RIGHT_OF_10_000: usize = 9262;
/// Scores that are equal but for rounding may change their order: one image in five thousand, at least one.
const fn ties(n_images: usize) -> usize {
    1 + n_images / 5000
}

const N_PIXELS: usize = 28 * 28;
const N_CLASSES: usize = 10;
const BATCH: usize = 100;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// How many images the model's plan of 8 bits puts into the class of their label, by a calibration.
fn n_right_in_8_bits(
    device: Device,
    precision: Precision,
    calibration: &Calibration,
    (pixels, labels): (&[u8], &[u8]),
) -> usize {
    let builder = builder(device).precision(precision).calibration(calibration).unwrap();
    n_right_of(builder, device, pixels, labels)
}

/// The same in floats.
fn n_right(device: Device, precision: Precision, pixels: &[u8], labels: &[u8]) -> usize {
    n_right_of(builder(device).precision(precision), device, pixels, labels)
}

fn builder(device: Device) -> Builder {
    Builder::new(data("fashion_mnist.onnx")).unwrap().device(device)
}

fn n_right_of(builder: Builder, device: Device, pixels: &[u8], labels: &[u8]) -> usize {
    let plan = builder.tune_level(0).build().unwrap();
    let mut context = Engine::new(plan, device).unwrap().context().unwrap();
    let mut right = 0;
    for (images, labels) in pixels.chunks(BATCH * N_PIXELS).zip(labels.chunks(BATCH)) {
        let x: Vec<f32> = images.iter().map(|&byte| f32::from(byte) / 255.0).collect();
        let dims = [labels.len(), 1, 28, 28];
        let outputs = context.run(&[("pixels", View::new(&dims, &x).unwrap())]).unwrap();
        let scores = outputs.get("scores").unwrap().as_slice::<f32>().unwrap();
        for (scores, &label) in scores.chunks_exact(N_CLASSES).zip(labels) {
            let best = (0..N_CLASSES).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap();
            right += usize::from(best == usize::from(label));
        }
    }
    right
}

/// The images and labels in the repository.
fn committed() -> (Vec<u8>, Vec<u8>) {
    let arrays = npy::read_archive(&data("fashion_mnist_test.npz"), &npy::accept_all).unwrap();
    let array = |name: &str| {
        let (_, array) = arrays.iter().find(|(own, _)| own == name).unwrap();
        array.elements::<u8>().unwrap().into_owned()
    };
    let (pixels, labels) = (array("pixels"), array("labels"));
    assert_eq!(labels.len(), 500);
    (pixels, labels)
}

fn committed_images(device: Device) {
    let (pixels, labels) = committed();
    let right = n_right(device, Precision::Fp32, &pixels, &labels);
    println!("{right} of 500 right");
    assert!(right.abs_diff(RIGHT_OF_500) <= ties(500), "{right} of 500, PyTorch {RIGHT_OF_500}");
}

/// The folder with the data set's own files, or where it was looked for.
fn whole_data_set() -> Result<PathBuf, String> {
    let named = std::env::var_os("PLANISH_FASHION_MNIST").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| "/usr/share/datasets/fashion-mnist".into());
    match folder.join("t10k-images-idx3-ubyte.gz").exists() {
        true => Ok(folder),
        false => Err(format!("{} has no Fashion-MNIST; apt install dataset-fashion-mnist", folder.display())),
    }
}

/// The elements of an idx file: four bytes, the last of which is the number of axes, their sizes, then bytes.
fn idx_file(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).unwrap();
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    let n_axes = usize::from(bytes[3]);
    bytes.split_off(4 + 4 * n_axes)
}

fn all_test_images(folder: &Path) {
    let pixels = idx_file(&folder.join("t10k-images-idx3-ubyte.gz"));
    let labels = idx_file(&folder.join("t10k-labels-idx1-ubyte.gz"));
    assert_eq!((pixels.len(), labels.len()), (10_000 * N_PIXELS, 10_000));
    let right = n_right(Device::Cpu, Precision::Fp32, &pixels, &labels);
    println!("{right} of 10,000 right");
    assert!(right.abs_diff(RIGHT_OF_10_000) <= ties(10_000), "{right}, PyTorch {RIGHT_OF_10_000}");
    for (precision, loss, _) in SIXTEEN_BITS {
        let low = n_right(Device::Cpu, precision, &pixels, &labels);
        println!("{low} of 10,000 right in {}", precision.name());
        assert!(low.abs_diff(right) <= loss, "{}: {low} against {right}", precision.name());
    }
    let mut by_samples = Vec::new();
    for calibrator in CALIBRATORS {
        for n_samples in [100, 500] {
            let calibration = calibrated(Device::Cpu, calibrator, n_samples);
            let integers = n_right_in_8_bits(Device::Cpu, Precision::Int8, &calibration, (&pixels, &labels));
            println!("{integers} of 10,000 right in INT8 ({calibrator}, {n_samples} samples)");
            assert!(
                integers + LOSS_OF_8_BITS >= right,
                "{calibrator}, {n_samples}: {integers} against {right}"
            );
            by_samples.push(integers);
        }
    }
    for n_samples in [100, 500] {
        let calibration = calibrated(Device::Cpu, Calibrator::MinMax, n_samples);
        let floats = n_right_in_8_bits(Device::Cpu, Precision::Fp8, &calibration, (&pixels, &labels));
        println!("{floats} of 10,000 right in FP8 ({n_samples} samples)");
        assert!(floats + LOSS_OF_8_BITS >= right, "FP8, {n_samples}: {floats} against {right}");
    }
    for (pair, calibrator) in by_samples.chunks(2).zip(CALIBRATORS) {
        assert!(pair[0].abs_diff(pair[1]) <= SAMPLES_APART, "{calibrator}: {pair:?}");
    }
}

const CALIBRATORS: [Calibrator; 4] =
    [Calibrator::Entropy, Calibrator::MinMax, Calibrator::Percentile(99.99), Calibrator::Best];

/// Of 10,000 images the plan in 16 bits may get so many more or fewer right than that in FP32, 0.05 points and 0.15; of
/// 500 images, where as much is less than one image, so many.
const SIXTEEN_BITS: [(Precision, usize, usize); 2] = [(Precision::Fp16, 5, 1), (Precision::Bf16, 15, 2)];

fn committed_images_in_16_bits(device: Device) {
    let (pixels, labels) = committed();
    let right = n_right(device, Precision::Fp32, &pixels, &labels);
    for (precision, _, loss) in SIXTEEN_BITS {
        let low = n_right(device, precision, &pixels, &labels);
        println!("{low} of 500 right in {}, {right} in fp32", precision.name());
        assert!(low.abs_diff(right) <= loss, "{}: {low} against {right}", precision.name());
    }
}

/// Of 10,000 images: 0.3 points fewer than FP32 are right in INT8 and FP8 at most, and 100 samples do as well as 500 within
/// 0.2.
const LOSS_OF_8_BITS: usize = 30;
const SAMPLES_APART: usize = 20;
/// Of 500 images: 0.3 points are between one and two of them, and which these are is chance.
const LOSS_OF_8_BITS_OF_500: usize = 4;

fn committed_images_in_int8(device: Device) {
    let (pixels, labels) = committed();
    for calibrator in CALIBRATORS {
        let calibration = calibrated(device, calibrator, 200);
        let right = n_right_in_8_bits(device, Precision::Int8, &calibration, (&pixels, &labels));
        println!("{right} of 500 right in INT8 ({calibrator})");
        assert!(
            right + LOSS_OF_8_BITS_OF_500 >= RIGHT_OF_500,
            "{calibrator}: {right} against {RIGHT_OF_500}"
        );
    }
}

/// Floats of 8 bits clip nothing, so calibrators do not matter to them.
fn committed_images_in_fp8(device: Device) {
    let (pixels, labels) = committed();
    let calibration = calibrated(Device::Cpu, Calibrator::MinMax, 200);
    let right = n_right_in_8_bits(device, Precision::Fp8, &calibration, (&pixels, &labels));
    println!("{right} of 500 right in FP8");
    assert!(right + LOSS_OF_8_BITS_OF_500 >= RIGHT_OF_500, "{right} against {RIGHT_OF_500}");
}

fn calibrated(device: Device, calibrator: Calibrator, n_samples: usize) -> Calibration {
    let model = Model::open(data("fashion_mnist.onnx")).unwrap();
    let preprocess = Preprocess { scale: Some(1.0), ..Preprocess::default() };
    let path = data("fashion_mnist_calibration.npz");
    let samples = Samples::open(path, model.graph(), n_samples, &preprocess).unwrap();
    let builder = CalibrationBuilder::from_model(model).device(device).calibrator(calibrator);
    builder.run(samples).unwrap()
}

/// Thresholds of 100 and of 500 samples differ by less than this, but for the tails that min-max goes by.
const AGREEMENT: f32 = 0.25;

fn ranges_of_the_trained_model(device: Device) {
    let widest = calibrated(device, Calibrator::MinMax, 500);
    assert_eq!(widest.n_samples(), 500);
    let pixels = widest.get("pixels").unwrap();
    assert_eq!((pixels.min, pixels.max, pixels.threshold), (0.0, 1.0, 1.0));
    // Names of the model that survive the folding of batch normalization.
    for name in ["stem.relu", "stem.pool", "blocks.0.relu", "blocks.1.add", "blocks.2.relu", "scores"] {
        assert!(widest.get(name).is_some(), "{name} is not among {:?}", widest.ranges());
    }
    assert_eq!(widest.get("stem.relu").unwrap().min, 0.0);
    for calibrator in [Calibrator::Entropy, Calibrator::Percentile(99.99), Calibrator::Best] {
        let (few, many) = (calibrated(device, calibrator, 100), calibrated(device, calibrator, 500));
        assert_eq!(many.ranges().len(), widest.ranges().len());
        for ((name, range), (_, widest)) in many.ranges().iter().zip(widest.ranges()) {
            assert!((range.min, range.max) == (widest.min, widest.max), "{calibrator}: {name}");
            assert!(range.threshold > 0.0 && range.threshold <= widest.threshold, "{calibrator}: {name}");
            let fewer = few.get(name).unwrap().threshold;
            let moved = (fewer - range.threshold).abs() / range.threshold;
            assert!(moved < AGREEMENT, "{calibrator}: {name} {fewer} and {}", range.threshold);
        }
    }
}

fn main() {
    let all = Trial::ignorable_test("cpu::all_test_images", || match whole_data_set() {
        Ok(folder) => {
            all_test_images(&folder);
            Ok(Completion::Completed)
        }
        Err(why) => Ok(Completion::ignored_with(why)),
    });
    let tests = vec![
        on_cpu("committed_images", committed_images),
        on_gpu("committed_images", committed_images),
        on_cpu("committed_images_in_16_bits", committed_images_in_16_bits),
        on_gpu("committed_images_in_16_bits", committed_images_in_16_bits),
        on_cpu("committed_images_in_int8", committed_images_in_int8),
        on_cpu("committed_images_in_fp8", committed_images_in_fp8),
        on_gpu("committed_images_in_fp8", committed_images_in_fp8),
        on_cpu("ranges_of_the_trained_model", ranges_of_the_trained_model),
        on_gpu("ranges_of_the_trained_model", ranges_of_the_trained_model),
        all,
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit();
}
