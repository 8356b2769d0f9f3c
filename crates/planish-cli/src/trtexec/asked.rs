//! What trtexec's flags ask for, in our own words.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use planish::{Device, Precision};

use super::flags::Given;
use crate::args::{AskedPrecision, Building, LayerPrecision};
use crate::load;

/// Where the plan comes from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    Onnx(PathBuf),
    Engine(PathBuf),
}

#[derive(Debug)]
pub(super) struct Asked {
    pub(super) origin: Origin,
    pub(super) save: Option<PathBuf>,
    pub(super) building: Building,
    /// The shapes to run at.
    pub(super) shapes: Vec<String>,
    pub(super) inputs: Vec<(String, PathBuf)>,
    pub(super) expected: Vec<(String, PathBuf)>,
    pub(super) atol: f64,
    pub(super) rtol: f64,
    pub(super) iterations: usize,
    pub(super) warm_up: Duration,
    pub(super) duration: Duration,
    pub(super) contexts: usize,
    pub(super) no_transfers: bool,
    pub(super) spin: bool,
    pub(super) skip_inference: bool,
    pub(super) version_only: bool,
    pub(super) time_opening: bool,
    pub(super) verbose: bool,
    pub(super) average_runs: Option<usize>,
    pub(super) percentiles: Vec<f64>,
    pub(super) names_only: bool,
    pub(super) dump_output: bool,
    pub(super) dump_profile: bool,
    pub(super) dump_layers: bool,
    pub(super) dump_shapes: bool,
    pub(super) export_times: Option<PathBuf>,
    pub(super) export_output: Option<PathBuf>,
    pub(super) export_profile: Option<PathBuf>,
    pub(super) export_layers: Option<PathBuf>,
    /// How flags were understood, where that is not plain.
    pub(super) notes: Vec<String>,
}

/// The smallest, usual and largest shapes of one profile.
#[derive(Clone, Default, Debug)]
struct Shapes {
    min: Vec<String>,
    opt: Vec<String>,
    max: Vec<String>,
}

impl Shapes {
    /// As `--shape-profile` takes it: what is not given is what is.
    fn profile(&self) -> Option<String> {
        let usual = [&self.opt, &self.max, &self.min].into_iter().find(|list| !list.is_empty())?;
        let or_usual = |list: &Vec<String>| if list.is_empty() { usual.join(",") } else { list.join(",") };
        let (min, opt, max) = (or_usual(&self.min), or_usual(&self.opt), or_usual(&self.max));
        Some(format!("min={min} opt={opt} max={max}"))
    }
}

impl Asked {
    pub(super) fn new(given: &[Given]) -> Result<Asked> {
        let has = |name: &str| given.iter().any(|one| one.flag.name == name);
        let value =
            |name: &str| given.iter().rev().find(|one| one.flag.name == name).map(|one| one.value.as_str());
        let path = |name: &str| value(name).map(PathBuf::from);
        let mut notes = Vec::new();
        let origin = match (path("onnx"), path("loadEngine")) {
            (Some(model), None) => Origin::Onnx(model),
            (None, Some(plan)) => Origin::Engine(plan),
            (Some(_), Some(_)) => bail!("--onnx and --loadEngine name two models; give one of them"),
            (None, None) => bail!("no model is given; give --onnx=MODEL.onnx or --loadEngine=MODEL.plan"),
        };
        if matches!(origin, Origin::Engine(_)) && has("saveEngine") {
            bail!("--saveEngine writes a plan that was built; with --loadEngine nothing is built");
        }
        let device = device(value("device"), has("cpuOnly"), &mut notes)?;
        let on_gpu = matches!(device, Device::Cuda(_));
        let mut building = Building {
            device,
            precision: AskedPrecision::Named(precision(&has, value("calib").is_some(), on_gpu, &mut notes)),
            strongly_typed: has("stronglyTyped"),
            sparsity: sparsity(value("sparsity"))?,
            tune_level: number(value("builderOptimizationLevel"), "builderOptimizationLevel")?.unwrap_or(3),
            timing_cache: path("timingCacheFile"),
            timing_cache_only: has("errorOnTimingCacheMiss"),
            workspace: workspace(value("workspace"), value("memPoolSize"))?,
            explain: has("verbose"),
            ..Building::default()
        };
        ensure!(building.tune_level <= 5, "--builderOptimizationLevel goes from 0 to 5");
        ensure!(
            !building.timing_cache_only || building.timing_cache.is_some(),
            "--errorOnTimingCacheMiss needs --timingCacheFile"
        );
        if let AskedPrecision::Named(narrow @ (Precision::Int8 | Precision::Fp8)) = building.precision {
            building.calibrating.calib = path("calib");
            building.calibrating.calib_samples = 500;
            if building.calibrating.calib.is_none() && narrow == Precision::Int8 {
                building.dynamic = Some(planish::DynamicRange::default());
                notes.push(
                    "--int8 without --calib: matrix products alone are of integers, by ranges that are found in each \
                     run; integers that the model says itself are kept"
                        .to_string(),
                );
            }
        }
        if value("precisionConstraints") != Some("none") {
            building.layer_precision = layer_precisions(value("layerPrecisions"), &mut notes)?;
        }
        building.border.formats =
            [value("inputIOFormats"), value("outputIOFormats")].map(|formats| formats.map(str::to_string));
        building.tactic_sources = tactic_sources(value("tacticSources"), &mut notes);
        let shapes = value("shapes").map(list).unwrap_or_default();
        building.profiles = profiles(given)?;
        if building.profiles.is_empty() {
            building.shapes.clone_from(&shapes);
        }
        let verbosity = value("profilingVerbosity").unwrap_or("layer_names_only");
        ensure!(
            ["layer_names_only", "default", "detailed", "verbose", "none"].contains(&verbosity),
            "--profilingVerbosity is layer_names_only, detailed or none, not `{verbosity}`"
        );
        let percentiles = match value("percentile") {
            Some(text) => list(text)
                .iter()
                .map(|one| one.parse().ok().filter(|p| (0.0..=100.0).contains(p)))
                .collect::<Option<Vec<f64>>>()
                .with_context(|| {
                    format!("--percentile={text}: give numbers from 0 to 100, as in 90,95,99")
                })?,
            None => vec![90.0, 95.0, 99.0],
        };
        let seconds = |name: &str, usual: f64, unit: f64| -> Result<Duration> {
            let number = number::<f64>(value(name), name)?.unwrap_or(usual);
            Duration::try_from_secs_f64(number * unit)
                .with_context(|| format!("--{name} is no time: {number}"))
        };
        let contexts = number(value("infStreams"), "infStreams")?.or(number(value("streams"), "streams")?);
        let asked = Asked {
            origin,
            save: path("saveEngine"),
            building,
            shapes,
            inputs: value("loadInputs").map(named_files).transpose()?.unwrap_or_default(),
            expected: value("loadRefOutputs").map(named_files).transpose()?.unwrap_or_default(),
            // What trtexec 11 allows where nothing is said.
            atol: number(value("atol"), "atol")?.unwrap_or(1e-5),
            rtol: number(value("rtol"), "rtol")?.unwrap_or(1e-5),
            iterations: number(value("iterations"), "iterations")?.unwrap_or(10),
            warm_up: seconds("warmUp", 200.0, 1e-3)?,
            duration: seconds("duration", 3.0, 1.0)?,
            contexts: contexts.unwrap_or(1),
            no_transfers: has("noDataTransfers"),
            spin: has("useSpinWait"),
            skip_inference: has("skipInference") || has("buildOnly"),
            version_only: has("getPlanVersionOnly"),
            time_opening: has("timeDeserialize"),
            verbose: has("verbose"),
            average_runs: number(value("avgRuns"), "avgRuns")?,
            percentiles,
            names_only: !["detailed", "verbose"].contains(&verbosity),
            dump_output: has("dumpOutput"),
            dump_profile: has("dumpProfile"),
            dump_layers: has("dumpLayerInfo"),
            dump_shapes: has("dumpOptimizationProfile"),
            export_times: path("exportTimes"),
            export_output: path("exportOutput"),
            export_profile: path("exportProfile"),
            export_layers: path("exportLayerInfo"),
            notes,
        };
        ensure!(
            asked.expected.is_empty() || !asked.inputs.is_empty(),
            "--loadRefOutputs needs the inputs that they are of: --loadInputs"
        );
        ensure!(asked.contexts > 0, "--infStreams is at least 1");
        ensure!(asked.average_runs != Some(0), "--avgRuns is at least 1");
        Ok(asked)
    }
}

/// TensorRT's sparsity; where nothing is said kernels for sparse weights compete, which changes no result.
fn sparsity(value: Option<&str>) -> Result<planish::Sparsity> {
    let parse = |text: &str| text.parse().map_err(|error: String| anyhow::anyhow!("--sparsity: {error}"));
    Ok(value.map(parse).transpose()?.unwrap_or_default())
}

/// The parts of a list, without quotes that TensorRT wants around names with colons.
fn list(text: &str) -> Vec<String> {
    text.split(',').map(|part| part.trim().replace('\'', "")).filter(|part| !part.is_empty()).collect()
}

fn number<T: std::str::FromStr>(value: Option<&str>, name: &str) -> Result<Option<T>> {
    value
        .map(|text| text.parse().ok().with_context(|| format!("--{name}={text}: not a number that it takes")))
        .transpose()
}

/// `NAME:FILE,…`; the name may hold colons itself, files of these spell no `:`.
fn named_files(text: &str) -> Result<Vec<(String, PathBuf)>> {
    let one = |part: &String| {
        let (name, file) = part.rsplit_once(':')?;
        Some((name.to_string(), PathBuf::from(file)))
    };
    list(text)
        .iter()
        .map(one)
        .collect::<Option<Vec<_>>>()
        .with_context(|| format!("`{text}` does not name files; give NAME:FILE,NAME:FILE"))
}

fn device(value: Option<&str>, cpu_only: bool, notes: &mut Vec<String>) -> Result<Device> {
    let settled = match value {
        _ if cpu_only => Device::Cpu,
        None => Device::Auto.settled(),
        // What scripts give without a thought: the first GPU.
        Some("0") => {
            let settled = Device::Auto.settled();
            if settled == Device::Cpu {
                notes.push("--device=0: no GPU can be used here, the CPU is taken".to_string());
            }
            settled
        }
        Some(text) => match text.parse::<usize>() {
            Ok(index) => Device::Cuda(index),
            Err(_) => text.parse().map_err(|why: String| anyhow::anyhow!("--device={text}: {why}"))?,
        },
    };
    Ok(settled)
}

/// TensorRT takes the fastest of all precisions that are allowed; here one is chosen for all layers.
fn precision(
    has: &dyn Fn(&str) -> bool,
    is_calibrated: bool,
    on_gpu: bool,
    notes: &mut Vec<String>,
) -> Precision {
    let chosen = match () {
        () if has("stronglyTyped") => Precision::Fp32,
        () if has("fp8") => Precision::Fp8,
        () if has("int8") && (is_calibrated || !(has("fp16") || has("bf16"))) => Precision::Int8,
        () if has("best") && is_calibrated => Precision::Int8,
        () if has("fp16") => Precision::Fp16,
        () if has("bf16") => Precision::Bf16,
        () if has("best") && on_gpu => Precision::Fp16,
        // TensorRT's default.
        () if on_gpu && !has("noTF32") => Precision::Tf32,
        () => Precision::Fp32,
    };
    if has("best") || ["fp16", "bf16", "int8", "fp8"].iter().filter(|name| has(name)).count() > 1 {
        notes.push(format!("one precision is taken for all layers: {}", chosen.name()));
    }
    chosen
}

/// MiB where no unit is given, as trtexec counts.
fn workspace(older: Option<&str>, pools: Option<&str>) -> Result<Option<usize>> {
    let size = |text: &str| -> Result<usize> {
        let has_unit = text.ends_with(|c: char| c.is_alphabetic());
        let text = if has_unit { text.to_string() } else { format!("{text}M") };
        load::bytes(&text).map_err(anyhow::Error::msg)
    };
    let of_pool = |part: String| part.strip_prefix("workspace:").map(str::to_string);
    let newer = pools.map(list).unwrap_or_default().into_iter().find_map(of_pool);
    newer.as_deref().or(older).map(size).transpose()
}

fn layer_precisions(value: Option<&str>, notes: &mut Vec<String>) -> Result<Vec<LayerPrecision>> {
    let mut layers = Vec::new();
    for part in value.map(list).unwrap_or_default() {
        let Some((pattern, name)) = part.rsplit_once(':') else {
            bail!("--layerPrecisions `{part}`: give LAYER:fp32 or LAYER:int8");
        };
        match Precision::named(name) {
            Some(precision @ (Precision::Fp32 | Precision::Int8)) => {
                layers.push(LayerPrecision { pattern: pattern.to_string(), precision });
            }
            _ => notes.push(format!(
                "--layerPrecisions {part} has no effect here: single layers are kept in fp32 or taken into int8"
            )),
        }
    }
    Ok(layers)
}

/// TensorRT's names of sources in ours.
fn tactic_sources(value: Option<&str>, notes: &mut Vec<String>) -> Option<String> {
    let mut sources = Vec::new();
    for part in value.map(list).unwrap_or_default() {
        let (sign, name) = part.split_at(usize::from(part.starts_with(['+', '-'])));
        let ours = match name.to_ascii_uppercase().as_str() {
            "CUDNN" => "cudnn",
            "CUBLAS_LT" | "CUBLAS" => "cublaslt",
            _ => {
                notes.push(format!(
                    "--tacticSources {part} has no effect here: sources are CUDNN and CUBLAS_LT"
                ));
                continue;
            }
        };
        sources.push(format!("{sign}{ours}"));
    }
    (!sources.is_empty()).then(|| sources.join(","))
}

/// The profiles in the order of their numbers: shapes belong to the `--profile` before them.
fn profiles(given: &[Given]) -> Result<Vec<String>> {
    let mut profiles = vec![Shapes::default()];
    let mut at = 0;
    for Given { flag, value } in given {
        let shapes = &mut profiles[at];
        match flag.name {
            "minShapes" => shapes.min = list(value),
            "optShapes" => shapes.opt = list(value),
            "maxShapes" => shapes.max = list(value),
            "profile" => {
                at = number(Some(value), "profile")?.unwrap_or(0);
                ensure!(at <= profiles.len(), "--profile={at}: number {} comes before it", profiles.len());
                if at == profiles.len() {
                    profiles.push(Shapes::default());
                }
            }
            _ => {}
        }
    }
    Ok(profiles.iter().filter_map(Shapes::profile).collect())
}

#[cfg(test)]
mod tests {
    use super::super::flags::parse;
    use super::*;

    fn asked(arguments: &[&str]) -> Result<Asked> {
        let all: Vec<String> =
            [&["--onnx=m.onnx", "--cpuOnly"], arguments].concat().iter().map(ToString::to_string).collect();
        Asked::new(&parse(&all)?)
    }

    #[test]
    fn flags_become_our_options() {
        let all = asked(&[
            "--fp16",
            "--workspace=2048",
            "--warmUp=500",
            "--duration=0",
            "--infStreams=3",
            "--layerPrecisions=a/*:fp32,b:fp16",
            "--percentile=50,99.9",
            "--tacticSources=-CUDNN,+EDGE_MASK_CONVOLUTIONS",
            "--builderOptimizationLevel=5",
        ])
        .unwrap();
        assert_eq!(all.building.precision, AskedPrecision::Named(Precision::Fp16));
        assert_eq!((all.building.workspace, all.building.tune_level), (Some(2 << 30), 5));
        assert_eq!((all.warm_up, all.duration), (Duration::from_millis(500), Duration::ZERO));
        assert_eq!((all.contexts, all.percentiles.as_slice()), (3, &[50.0, 99.9][..]));
        assert_eq!(all.building.layer_precision.len(), 1);
        assert_eq!(all.building.tactic_sources.as_deref(), Some("-cudnn"));
        assert_eq!(all.notes.len(), 2, "{:?}", all.notes);
        let pool = asked(&["--memPoolSize=dlaSRAM:1,workspace:1.5G"]).unwrap();
        assert_eq!(pool.building.workspace, Some(3 << 29));
    }

    #[test]
    fn shapes_become_profiles() {
        let one = asked(&["--minShapes=x:1x3", "--optShapes=x:4x3", "--maxShapes=x:8x3", "--shapes=x:2x3"])
            .unwrap();
        assert_eq!(one.building.profiles, ["min=x:1x3 opt=x:4x3 max=x:8x3"]);
        assert_eq!((one.shapes.as_slice(), one.building.shapes.len()), (&["x:2x3".to_string()][..], 0));
        let only = asked(&["--optShapes='x:0':4x3"]).unwrap();
        assert_eq!(only.building.profiles, ["min=x:0:4x3 opt=x:0:4x3 max=x:0:4x3"]);
        let two = asked(&["--profile=0", "--optShapes=x:1x3", "--profile=1", "--optShapes=x:8x3"]).unwrap();
        assert_eq!(two.building.profiles.len(), 2);
        assert!(asked(&["--profile=3"]).is_err());
        assert_eq!(asked(&["--shapes=x:2x3"]).unwrap().building.shapes, ["x:2x3"]);
    }

    #[test]
    fn integers_need_ranges() {
        let plain = asked(&["--int8"]).unwrap();
        assert!(plain.building.dynamic.is_some() && plain.notes[0].contains("without --calib"));
        let both = asked(&["--int8", "--fp16"]).unwrap();
        assert_eq!(both.building.precision, AskedPrecision::Named(Precision::Fp16));
        let calibrated = asked(&["--best", "--calib=c.cache"]).unwrap();
        assert_eq!(calibrated.building.precision, AskedPrecision::Named(Precision::Int8));
        assert!(calibrated.building.dynamic.is_none() && calibrated.building.calibrating.calib.is_some());
    }

    #[test]
    fn contradictions_are_refused() {
        for (arguments, wanted) in [
            (&["--loadEngine=p.plan"][..], "two models"),
            (&["--builderOptimizationLevel=9"], "from 0 to 5"),
            (&["--iterations=many"], "not a number"),
            (&["--percentile=101"], "from 0 to 100"),
            (&["--errorOnTimingCacheMiss"], "needs --timingCacheFile"),
            (&["--loadRefOutputs=y:f"], "--loadInputs"),
            (&["--loadInputs=f"], "NAME:FILE"),
        ] {
            let error = asked(arguments).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
