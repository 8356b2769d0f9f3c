//! `planish.build` and `planish.calibrate`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use planish::shapes::{self, List, sizes_text};
use planish::{
    Builder, Cached, CalibrationBuilder, Calibrator, Device, ErrorKind, Opened, PlanCache, Precision,
    Profile, Sparsity,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::calibration::Calibration;
use crate::errors::{OrRaise, wrong};
use crate::model::Model;
use crate::plan::{Plan, parse_device};
use crate::progress::Watch;
use crate::samples::Samples;

/// Shapes by input.
type Shapes = BTreeMap<String, Vec<usize>>;

/// What is asked of the sizes of a model.
enum Asked {
    Any,
    Profiles(Vec<[List; 3]>),
}

fn list(origin: &'static str, shapes: &Shapes) -> List {
    (origin, shapes.iter().map(|(name, shape)| format!("{name}:{}", sizes_text(shape))).collect())
}

/// Reads `shapes={"x": (1, 3)}`, or `profiles=[{"x": (smallest, usual, largest)}]`.
fn asked(py: Python<'_>, shapes: Option<Shapes>, profiles: Option<&Bound<'_, PyAny>>) -> PyResult<Asked> {
    match (shapes, profiles) {
        (None, None) => Ok(Asked::Any),
        (Some(shapes), None) => {
            let one = list("shapes", &shapes);
            Ok(Asked::Profiles(vec![[one.clone(), one.clone(), one]]))
        }
        (None, Some(profiles)) => {
            let several = match profiles.is_instance_of::<PyDict>() {
                true => PyList::new(py, [profiles])?.into_any(),
                false => profiles.clone(),
            };
            let mut all = Vec::new();
            for profile in several.try_iter()? {
                let profile: Result<BTreeMap<String, [Vec<usize>; 3]>, _> = profile?.extract();
                let profile = profile.map_err(|_| {
                    let message = "a profile gives three shapes for each input, the smallest, the usual and the \
                                   largest, as in {\"x\": [(1, 3), (8, 3), (32, 3)]}";
                    wrong(py, ErrorKind::BadOption, message)
                })?;
                let part = |idx: usize| {
                    profile.iter().map(|(name, three)| (name.clone(), three[idx].clone())).collect()
                };
                all.push([
                    list("profiles min", &part(0)),
                    list("profiles opt", &part(1)),
                    list("profiles max", &part(2)),
                ]);
            }
            Ok(Asked::Profiles(all))
        }
        (Some(_), Some(_)) => {
            Err(wrong(py, ErrorKind::BadOption, "shapes and profiles exclude each other; give one"))
        }
    }
}

impl Asked {
    /// The model with symbols of its own for inputs that are given different sizes, and its profiles.
    fn resolve(self, model: planish::Model) -> Result<(planish::Model, Vec<Profile>), planish::Error> {
        let Asked::Profiles(all) = self else { return Ok((model, Vec::new())) };
        shapes::apart(model, &all)
    }
}

/// The calibrator; `None` for `auto`.
fn parse_calibrator(py: Python<'_>, calibrator: &str) -> PyResult<Option<Calibrator>> {
    if calibrator == "auto" {
        return Ok(None);
    }
    let named = calibrator.parse();
    named.map(Some).map_err(|error| wrong(py, ErrorKind::BadOption, format!("{error}, and auto")))
}

/// Options of a calibration.
struct Calibrating {
    device: Device,
    threads: Option<usize>,
    /// Measured where it is `None`.
    calibrator: Option<Calibrator>,
}

impl Calibrating {
    /// Runs a model over samples of any iterable; gives the first of them too.
    fn run(
        self,
        of: &Bound<'_, PyAny>,
        model: &planish::Model,
        watch: &std::sync::Arc<Watch>,
    ) -> PyResult<(Calibration, Vec<planish::Sample>)> {
        let py = of.py();
        let builder = CalibrationBuilder::from_model(model.clone()).device(self.device);
        let mut builder = match self.calibrator {
            Some(calibrator) => builder.calibrator(calibrator),
            None => builder.measured(true),
        };
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        let mut samples = Samples::new(of, model)?;
        let builder = builder.progress(watch.progress());
        let found = py.detach(|| builder.run(&mut samples));
        if let Some(raised) = samples.raised.take() {
            return Err(raised);
        }
        Ok((Calibration { inner: found.or_raise(py)? }, samples.first))
    }
}

/// Runs a model over samples and finds the ranges of its activations, for plans in 8-bit integers.
///
/// `samples` is any iterable, a `torch.utils.data.DataLoader` say: each of its items is a dict of arrays by input, a tuple
/// of arrays in the model's order (what comes after the inputs, as labels do, is left out), or the array of the first
/// input. `calibrator` is `entropy`, `minmax`, `percentile:99.99`, `best`, or `auto`: whichever costs the outputs least.
///
/// >>> model = planish.Model.parse('graph "g" { input %x: f32[n,2] %y: f32[n,2] = Relu(%x) output %y }')
/// >>> found = planish.calibrate(model, (numpy.float32([[i, -i]]) for i in range(8)), calibrator="minmax")
/// >>> found.n_samples, found.ranges["x"].threshold
/// (8, 7.0)
#[pyfunction]
#[pyo3(signature = (model, samples, *, calibrator="auto", device="auto", threads=None, progress=None))]
pub(crate) fn calibrate(
    py: Python<'_>,
    model: &Bound<'_, PyAny>,
    samples: &Bound<'_, PyAny>,
    calibrator: &str,
    device: &str,
    threads: Option<usize>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Calibration> {
    let model = Model::of(model)?;
    let calibrating = Calibrating {
        device: parse_device(py, device)?,
        threads,
        calibrator: parse_calibrator(py, calibrator)?,
    };
    let watch = Watch::new(progress)?;
    let found = calibrating.run(samples, &model.inner, &watch);
    watch.end(py)?;
    Ok(found?.0)
}

/// Builds a plan of a model: optimized, tuned and checked for this machine.
///
/// `model` is the path of an ONNX file, its bytes, a `planish.Model`, or a module of PyTorch's with `example_inputs` (a
/// tensor, a tuple of them, or a dict), which goes through `torch.onnx`; `dynamic_shapes` is as `torch.export` takes it.
///
/// - `precision`: what it is computed in: `fp32`, `tf32`, `fp16`, `bf16`, or `int8` or `fp8` by the ranges of `calib`
/// - `sparsity`: `enable` has kernels for weights that are 2:4 sparse compete, which changes no result; `disable` leaves them
///   out, `force` prunes the weights of all layers by magnitude first
/// - `calib`: a `planish.Calibration`, the path of its file (or of a cache of TensorRT), or samples as `planish.calibrate`
///   takes them; `calibrator` says how their thresholds are found
/// - `shapes`: the sizes of all inputs, as `{"x": (1, 3, 224, 224)}`; without them a plan runs at any
/// - `profiles`: ranges of sizes, as `{"x": [smallest, usual, largest]}`, or a list of several such
/// - `device`: `auto`, `cpu`, `cuda` or `cuda:1`
/// - `threads`: the CPU threads to tune for, all of the machine if not given
/// - `tune_level`: 0 goes by the cost model, up to 5 measures more and more
/// - `timing_cache`: a file that keeps measured times from build to build
/// - `build_time`, `workspace`: the most seconds to search for kernels, and the most bytes of memory that one may ask for
/// - `fp32_layers`, `int8_layers`: names of layers, with `*` and `?`, that stay in FP32 or become integers
/// - `io`, `pre`, `post`: types, layouts and work at the border, as `io=["x:u8:nhwc"], pre=["x:imagenet"],
///   post=["y:softmax,topk=5"]`; `state`: inputs that are earlier outputs, as `["h=hn"]` (docs/io.md)
/// - `tactic_sources`: libraries that kernels may come from, as `"-cudnn"` or `"+cublasLt"`
/// - `strict`: refuses what only the slow reference can compute; `verify=False` leaves the self-check out
/// - `cache`: keeps the plan in the user's cache folder, and takes it from there the next time
/// - `progress`: True for a bar, or a function that is told the stage, how much of it is done, and of how much
///
/// >>> model = planish.Model.parse('graph "g" { input %x: f32[n,4] %y: f32[n,4] = Relu(%x) output %y }')
/// >>> plan = planish.build(model, profiles={"x": [(1, 4), (2, 4), (8, 4)]}, threads=1)
/// >>> plan
/// <planish.Plan "g", 1 steps, for ...>
/// >>> plan.engine()(numpy.zeros((9, 4), numpy.float32))
/// Traceback (most recent call last):
///     ...
/// planish.errors.WrongShape: ...
#[pyfunction]
#[pyo3(signature = (
    model, example_inputs=None, *, dynamic_shapes=None, precision="fp32", calib=None, calibrator="auto", shapes=None, profiles=None, device="auto",
    threads=None, tune_level=None, timing_cache=None, build_time=None, workspace=None, fp32_layers=None,
    int8_layers=None, sparsity="enable", io=None, pre=None, post=None, state=None, tactic_sources=None, strict=false, verify=true, cache=false, progress=None,
))]
#[expect(clippy::too_many_arguments, reason = "each is an option of Python's, given by name")]
pub(crate) fn build(
    py: Python<'_>,
    model: &Bound<'_, PyAny>,
    example_inputs: Option<&Bound<'_, PyAny>>,
    dynamic_shapes: Option<&Bound<'_, PyAny>>,
    precision: &str,
    calib: Option<&Bound<'_, PyAny>>,
    calibrator: &str,
    shapes: Option<Shapes>,
    profiles: Option<&Bound<'_, PyAny>>,
    device: &str,
    threads: Option<usize>,
    tune_level: Option<u32>,
    timing_cache: Option<PathBuf>,
    build_time: Option<f64>,
    workspace: Option<usize>,
    fp32_layers: Option<Vec<String>>,
    int8_layers: Option<Vec<String>>,
    sparsity: &str,
    io: Option<Vec<String>>,
    pre: Option<Vec<String>>,
    post: Option<Vec<String>>,
    state: Option<Vec<String>>,
    tactic_sources: Option<&str>,
    strict: bool,
    verify: bool,
    cache: bool,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Plan> {
    let refuse = |message: String| wrong(py, ErrorKind::BadOption, message);
    let model = match example_inputs {
        Some(inputs) => {
            let exporter = py.import(intern!(py, "planish.torch"))?.getattr(intern!(py, "model_of"))?;
            Model::of(&exporter.call1((model, inputs, dynamic_shapes))?)?.inner
        }
        None => Model::of(model)?.inner,
    };
    let device = parse_device(py, device)?.settled();
    let precision = Precision::named(precision).ok_or_else(|| {
        refuse(format!("`{precision}` is not a precision; give fp32, tf32, fp16, bf16, int8 or fp8"))
    })?;
    let sparsity: Sparsity = sparsity.parse().map_err(|error| refuse(format!("sparsity: {error}")))?;
    let asked = asked(py, shapes, profiles)?;
    let watch = Watch::new(progress)?;
    let calibration = match calib.filter(|calib| !calib.is_none()) {
        None => None,
        Some(_) if !precision.quantizes() => {
            let message = "calib is for layers of 8 bits; build with precision=\"int8\" or \"fp8\"";
            return Err(refuse(message.to_string()));
        }
        Some(calib) => {
            let calibrating = Calibrating { device, threads, calibrator: parse_calibrator(py, calibrator)? };
            Some(calibration_of(calib, calibrating, &model, &watch)?)
        }
    };
    let [io, pre, post, state] = [io, pre, post, state].map(Option::unwrap_or_default);
    let border = io.iter().fold(planish::Border::new(), |border, port| border.io(port));
    let border = pre.iter().fold(border, |border, steps| border.pre(steps));
    let border = post.iter().fold(border, |border, steps| border.post(steps));
    let states: Vec<&str> = state.iter().map(String::as_str).collect();
    let model = model.with_border(&border).and_then(|model| model.with_states(&states)).or_raise(py)?;
    let (model, profiles) = py.detach(|| asked.resolve(model)).or_raise(py)?;
    let mut builder = Builder::from_model(model).device(device).precision(precision).strict(strict);
    if let Some((calibration, samples)) = calibration {
        // Its hash is that of the model as it was read; untied symbols change that.
        builder = builder.ranges(&calibration.inner);
        if verify {
            builder = builder.precision_samples(samples);
        }
    }
    if let Some(list) = tactic_sources {
        builder = builder.tactic_sources(list).or_raise(py)?;
    }
    let options = builder.options_mut();
    options.profiles = profiles;
    options.verify = verify;
    options.timing_cache = timing_cache;
    options.workspace = workspace;
    options.fp32_layers = fp32_layers.unwrap_or_default();
    options.int8_layers = int8_layers.unwrap_or_default();
    options.sparsity = sparsity;
    options.progress = Some(watch.progress());
    options.cancel = watch.cancel.clone();
    if let Some(seconds) = build_time {
        let time = Duration::try_from_secs_f64(seconds);
        options.build_time =
            Some(time.map_err(|_| refuse(format!("build_time={seconds} is no number of seconds")))?);
    }
    if let Some(threads) = threads {
        if threads == 0 {
            return Err(refuse("threads must be at least 1".to_string()));
        }
        options.threads = threads;
    }
    if let Some(level) = tune_level {
        options.tune_level = level;
    }
    let cache = if cache { PlanCache::user() } else { None };
    let built = py.detach(|| built(builder, cache.as_ref(), device));
    watch.end(py)?;
    built.or_raise(py)
}

/// Builds a plan, or takes it from the cache.
fn built(builder: Builder, cache: Option<&PlanCache>, device: Device) -> Result<Plan, planish::Error> {
    let key = match cache {
        Some(_) => builder.cache_key()?,
        None => None,
    };
    if let (Some(cache), Some(key)) = (cache, &key)
        && let Cached::Hit(plan) = cache.find(key)
        && let Opened::Fits(plan) = plan.fit(device)?
    {
        return Ok(Plan::new(plan, Vec::new()));
    }
    let (mut built, _) = builder.build_with_report()?;
    let plan = planish::Plan::from(built.plan);
    if let (Some(cache), Some(key)) = (cache, &key)
        // A cache that cannot be written costs time, nothing else.
        && let Err(error) = cache.keep(key, &plan)
    {
        built.notes.push(format!("the plan is not cached: {error}"));
    }
    Ok(Plan::new(plan, built.notes))
}

/// A calibration as it is given: found already, in a file, or to be found on samples.
fn calibration_of(
    given: &Bound<'_, PyAny>,
    calibrating: Calibrating,
    model: &planish::Model,
    watch: &std::sync::Arc<Watch>,
) -> PyResult<(Calibration, Vec<planish::Sample>)> {
    let py = given.py();
    let found = if let Ok(found) = given.cast::<Calibration>() {
        found.get().clone()
    } else if let Ok(path) = given.extract::<PathBuf>() {
        Calibration::open_at(py, path)?
    } else {
        return calibrating.run(given, model, watch);
    };
    // A cache of TensorRT does not say what it is of.
    found.inner.check_model(model).or_raise(py)?;
    Ok((found, Vec::new()))
}
