//! The words of `planish compare`.

use std::path::{Path, PathBuf};

use planish::{Device, Precision};

use super::{Calibrating, Json};

#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  planish compare model.onnx@reference model.onnx@cpu@fp16 --data photos/ --max-error 'psnr>=40'
  planish compare model.onnx@onnxruntime model.plan --layers --plot layers.svg
  planish compare outputs_of_pytorch/ model.onnx --hops --inputs inputs.npz")]
pub(crate) struct Compare {
    /// What is compared, each an .onnx or a .plan file, with what runs it (reference, cpu, cuda[:N], onnxruntime) and in
    /// what precision; or a folder or .npz file of outputs that another program stored. All are held against the first
    #[arg(required = true, value_name = "FILE[@BACKEND][@PRECISION]", value_parser = Subject::parse)]
    pub(crate) subjects: Vec<Subject>,
    /// Follow one model from hop to hop: the file on the reference, its optimized graph on the reference, the plan, and the
    /// plan written and read again; stored outputs may come before the model
    #[arg(long, conflicts_with = "layers")]
    pub(crate) hops: bool,
    /// The samples to compare on: a folder or file of images, .npy or .npz arrays, TIFF stacks or CSV
    #[arg(long, value_name = "PATH", conflicts_with = "inputs")]
    pub(crate) data: Option<PathBuf>,
    /// One sample: inputs by name, one array each, in a numpy .npz file
    #[arg(long, value_name = "FILE.npz")]
    pub(crate) inputs: Option<PathBuf>,
    /// Use at most this many samples, evenly spaced; with labels all are used
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) samples: usize,
    /// Seed of random inputs, where no data is given
    #[arg(long, value_name = "SEED", default_value_t = 0, conflicts_with_all = ["data", "inputs"])]
    pub(crate) random: u64,
    /// Shapes of random inputs with dynamic dimensions, as in x:1x3x224x224,mask:1x16
    #[arg(long, value_name = "NAME:SIZES,…", value_delimiter = ',')]
    pub(crate) shapes: Vec<String>,
    /// The class of every sample, for top-1 and top-5 accuracy: a text file with a number on each line, a .npy array, or an
    /// .npz with an array `labels`
    #[arg(long, value_name = "FILE", requires = "data")]
    pub(crate) labels: Option<PathBuf>,
    /// Exit with 1 if outputs are farther from the first's than this: 0.01 or 'rel<=0.01', 'psnr>=40', 'cosine>=0.999',
    /// 'max<=0.1', 'mae<=0.01'
    #[arg(long, value_name = "BOUND", value_parser = crate::contract::contract)]
    pub(crate) max_error: Option<planish::Contract>,
    /// Compare every layer of the plans with the float model, in the order of the network
    #[arg(long)]
    pub(crate) layers: bool,
    /// Draw the errors of the layers into this SVG file
    #[arg(long, value_name = "FILE.svg", requires = "layers")]
    pub(crate) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) calibrating: Calibrating,
    /// CPU threads; all that this process may use if not given
    #[arg(long, value_name = "N", value_parser = crate::load::threads)]
    pub(crate) threads: Option<usize>,
    /// Tuning effort for models that are built first, see `planish build`
    #[arg(long, value_name = "0..5", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=5))]
    pub(crate) tune_level: u32,
    /// Do not use the plan cache: always build, and keep nothing
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// The Python that has the package onnxruntime
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub(crate) python: PathBuf,
    #[command(flatten)]
    pub(crate) json: Json,
}

/// What runs a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Runs {
    Reference,
    On(Device),
    OnnxRuntime,
}

/// One of those that are compared.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Subject {
    /// As it was given.
    pub(crate) text: String,
    pub(crate) file: PathBuf,
    pub(crate) runs: Option<Runs>,
    pub(crate) precision: Option<Precision>,
}

impl Subject {
    /// Reads `FILE[@BACKEND][@PRECISION]`; a file whose own name has an `@` is taken as it is.
    fn parse(text: &str) -> Result<Subject, String> {
        let mut subject =
            Subject { text: text.to_string(), file: PathBuf::from(text), runs: None, precision: None };
        let mut rest = text;
        while !Path::new(rest).exists() {
            let Some((file, word)) = rest.rsplit_once('@') else { break };
            let (runs, precision) = (runs(word), Precision::named(word));
            match (runs, precision) {
                (Some(_), _) if subject.runs.is_some() => return Err(format!("`{text}` names two backends")),
                (None, Some(_)) if subject.precision.is_some() => {
                    return Err(format!("`{text}` names two precisions"));
                }
                (Some(runs), _) => subject.runs = Some(runs),
                (None, Some(precision)) => subject.precision = Some(precision),
                (None, None) => {
                    return Err(format!(
                        "`{word}` is no backend (reference, cpu, cuda, onnxruntime) and no precision (fp32, tf32, fp16, \
                         bf16, int8)"
                    ));
                }
            }
            rest = file;
        }
        subject.file = PathBuf::from(rest);
        Ok(subject)
    }
}

fn runs(word: &str) -> Option<Runs> {
    match word {
        "reference" => Some(Runs::Reference),
        "onnxruntime" | "onnxrt" | "ort" => Some(Runs::OnnxRuntime),
        _ => word.parse().ok().map(Runs::On),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_carry_a_backend_and_a_precision() {
        let read = |text: &str| {
            Subject::parse(text)
                .map(|subject| (subject.file.display().to_string(), subject.runs, subject.precision))
        };
        assert_eq!(read("a.onnx"), Ok(("a.onnx".into(), None, None)));
        assert_eq!(read("a.onnx@ort"), Ok(("a.onnx".into(), Some(Runs::OnnxRuntime), None)));
        let both = Ok(("a.onnx".into(), Some(Runs::On(Device::Cuda(1))), Some(Precision::Fp16)));
        assert_eq!(read("a.onnx@cuda:1@fp16"), both);
        assert_eq!(read("a.onnx@fp16@cuda:1"), both);
        assert!(read("a.onnx@tpu").unwrap_err().contains("`tpu` is no backend"));
        assert!(read("a.onnx@cpu@reference").unwrap_err().contains("two backends"));
        assert!(read("a.onnx@fp16@fp32").unwrap_err().contains("two precisions"));
    }
}
