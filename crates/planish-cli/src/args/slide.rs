//! The words of `planish slide`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::RunWith;

#[derive(clap::Args, Debug)]
pub(crate) struct Slide {
    /// The model, an .onnx or a .plan file, whose inputs and outputs are [N,C,H,W] or [N,C,D,H,W]
    pub(crate) model: PathBuf,
    /// The image: .npy, .tif (its pages are the depth of a volume), .png, .jpg, .bmp; for a model of several inputs an .npz
    /// with an array for each
    pub(crate) image: PathBuf,
    /// Where the result goes: .npy, .tif (a page for each channel) or .npz (for several outputs)
    #[arg(short, long, value_name = "OUT.npy|OUT.tif|OUT.npz")]
    pub(crate) output: PathBuf,
    /// The sizes of a window, as in 256x256 or 96x96x96; 0 takes the image's own. Those of the model if not given
    #[arg(long, value_name = "HxW|DxHxW", value_delimiter = 'x')]
    pub(crate) roi: Vec<usize>,
    /// The part of a window that the next one covers too, one number or one for each axis
    #[arg(long, value_name = "0..1", value_delimiter = ',', default_value = "0.25")]
    pub(crate) overlap: Vec<f64>,
    /// How overlapping windows are blended: every pixel the same, or by a Gaussian around the middle
    #[arg(long, value_enum, default_value_t)]
    pub(crate) mode: Mode,
    /// The Gaussian's standard deviation as a part of the window, one number or one for each axis
    #[arg(
        long,
        alias = "sigma-scale",
        value_name = "NUMBER",
        value_delimiter = ',',
        default_value = "0.125"
    )]
    pub(crate) sigma: Vec<f64>,
    /// Windows in one run; what the model or plan has if not given, or 1
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) batch: Option<usize>,
    /// What lies around an image that is smaller than a window
    #[arg(long, value_enum, default_value_t)]
    pub(crate) padding: PaddingMode,
    /// The value of constant padding, in the units of the model's input
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0, allow_hyphen_values = true)]
    pub(crate) cval: f64,
    /// Write labels, the number of the channel with the largest value, instead of channels
    #[arg(long)]
    pub(crate) argmax: bool,
    /// What the brightest pixel of an image becomes: 1 if not given, 255 keeps bytes as they are. Arrays and floats are
    /// multiplied by it
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0)]
    pub(crate) scale: f64,
    /// Subtracted from each channel, after scaling
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) mean: Vec<f64>,
    /// Divided by, for each channel
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    pub(crate) std: Vec<f64>,
    /// Tuning effort before the run, see `planish build`
    #[arg(long, value_name = "0..5", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=5))]
    pub(crate) tune_level: u32,
    #[command(flatten)]
    pub(crate) with: RunWith,
}

/// How overlapping windows are blended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Mode {
    #[default]
    Constant,
    Gaussian,
}

impl From<Mode> for planish::Blend {
    fn from(mode: Mode) -> planish::Blend {
        match mode {
            Mode::Constant => planish::Blend::Constant,
            Mode::Gaussian => planish::Blend::Gaussian,
        }
    }
}

/// What lies around a small image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum PaddingMode {
    #[default]
    Constant,
    Reflect,
    Replicate,
    Circular,
}

impl From<PaddingMode> for planish::Padding {
    fn from(mode: PaddingMode) -> planish::Padding {
        match mode {
            PaddingMode::Constant => planish::Padding::Constant,
            PaddingMode::Reflect => planish::Padding::Reflect,
            PaddingMode::Replicate => planish::Padding::Replicate,
            PaddingMode::Circular => planish::Padding::Circular,
        }
    }
}
