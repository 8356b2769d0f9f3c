//! The words of `planish calibrate`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::Json;

#[derive(clap::Args, Debug)]
pub(crate) struct Calibrate {
    /// The model, an .onnx file
    pub(crate) model: PathBuf,
    /// The samples: a folder or file of images, .npy or .npz arrays, TIFF stacks or CSV
    #[arg(long, alias = "calib", value_name = "PATH", required_unless_present = "from")]
    pub(crate) data: Option<PathBuf>,
    /// Take an existing calibration instead of samples: Planish's own or a calibration cache of TensorRT
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    pub(crate) from: Option<PathBuf>,
    /// The calibration; MODEL.calib beside the model if not given
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write a calibration cache for TensorRT, too
    #[arg(long, value_name = "FILE")]
    pub(crate) tensorrt: Option<PathBuf>,
    /// Use at most this many samples, evenly spaced
    #[arg(long, alias = "calib-samples", value_name = "N", default_value_t = 500)]
    pub(crate) samples: usize,
    /// How thresholds are found: entropy (Kullback-Leibler divergence), minmax (nothing is clipped), percentile, best (least
    /// squared error), or auto: whichever costs the outputs of eight samples least, channels evened out and nodes left in
    /// floats where that is much less
    #[arg(long, value_name = "CALIBRATOR", default_value = "auto", value_parser = crate::load::asked_calibrator)]
    pub(crate) calibrator: AskedCalibrator,
    /// The percentage of magnitudes that --calibrator percentile keeps [default: 99.99]
    #[arg(long, value_name = "PERCENT")]
    pub(crate) percentile: Option<f64>,
    #[command(flatten)]
    pub(crate) pixels: Pixels,
    /// The device to run on: cpu, cuda, cuda:1, or auto (a GPU if there is one)
    #[arg(long, value_name = "cpu|cuda[:N]|auto", default_value = "auto")]
    pub(crate) device: planish::Device,
    /// CPU threads; all that this process may use if not given
    #[arg(long, value_name = "N", value_parser = crate::load::threads)]
    pub(crate) threads: Option<usize>,
    #[command(flatten)]
    pub(crate) json: Json,
}

/// A calibrator, or that it is to be found.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) enum AskedCalibrator {
    #[default]
    Auto,
    Named(planish::Calibrator),
}

/// Where the ranges of a model's values come from, for layers of integers.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Calibrating {
    /// For int8 and fp8: a calibration (of `planish calibrate`, or a calibration cache of TensorRT), or samples to calibrate with
    /// as `planish calibrate` does
    #[arg(long, value_name = "FILE.calib|SAMPLES")]
    pub(crate) calib: Option<PathBuf>,
    /// Calibrate with at most this many samples, evenly spaced
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) calib_samples: usize,
    /// How thresholds are found: entropy, minmax, percentile, best, or auto: whichever costs the outputs least
    #[arg(long, value_name = "CALIBRATOR", default_value = "auto", value_parser = crate::load::asked_calibrator)]
    pub(crate) calibrator: AskedCalibrator,
    #[command(flatten)]
    pub(crate) pixels: Pixels,
}

/// How pixels become an input; what is not given is what ImageNet's classifiers take.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Pixels {
    /// Resize images so that the shorter side has this many pixels (8/7 of the crop if not given)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) resize: Option<u32>,
    /// Cut this size out of the middle (the model's own if not given)
    #[arg(long, value_name = "N|HxW", value_parser = crate::load::crop)]
    pub(crate) crop: Option<(u32, u32)>,
    /// What the brightest pixel becomes before mean and std are taken out: 1 if not given, 255 keeps bytes as they are
    #[arg(long, value_name = "NUMBER")]
    pub(crate) scale: Option<f32>,
    /// The mean of each channel (ImageNet's for three channels, 0 for others)
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) mean: Vec<f32>,
    /// The standard deviation of each channel (ImageNet's for three channels, 1 for others)
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    pub(crate) std: Vec<f32>,
    /// The model takes blue, green, red
    #[arg(long)]
    pub(crate) bgr: bool,
    /// The order of the input's axes, where its shape does not tell
    #[arg(long, value_enum, value_name = "nchw|nhwc")]
    pub(crate) layout: Option<AxisOrder>,
}

/// The order of an image input's axes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum AxisOrder {
    Nchw,
    Nhwc,
}

impl From<AxisOrder> for planish::io::PixelLayout {
    fn from(order: AxisOrder) -> planish::io::PixelLayout {
        match order {
            AxisOrder::Nchw => planish::io::PixelLayout::Nchw,
            AxisOrder::Nhwc => planish::io::PixelLayout::Nhwc,
        }
    }
}
