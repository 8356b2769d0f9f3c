//! Calibration: a model run over samples, and the ranges that its activations take.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use planish_compile::{ActivationRange, BuildOptions, Progress, optimized};
use planish_ir::Graph;
use planish_op::Value;
use planish_quantize::{
    CalibrationError, CalibrationErrorKind, Calibrator, ChannelAxis, Collector, Range, SecondMoments,
    layer_inputs, observable,
};
use planish_runtime::Context;
use planish_tensor::{DType, Tensor};

use crate::model::Model;
use crate::shapes::{self, Sizes};
use crate::{Builder, Device, Engine, Error, ErrorKind};

mod measured;
mod squashed;

/// The inputs of one run, by name.
/// [`CalibrationBuilder`] has an example, and `io::Samples` reads them from files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sample {
    /// A tensor for every input of the model.
    pub inputs: Vec<(String, Tensor)>,
    /// How many samples the run counts for: the batch.
    pub count: usize,
}

impl Sample {
    /// The inputs of a run that counts for `count` samples.
    pub fn new(inputs: Vec<(String, Tensor)>, count: usize) -> Sample {
        Sample { inputs, count }
    }
}

/// A calibration to be: a model, and how its thresholds are found.
///
/// The model is optimized as for a build, and run as a plan that gives all activations which could be quantized as
/// outputs. Those in bodies of control flow are not seen.
///
/// ```
/// use planish::{CalibrationBuilder, Calibrator, DType, Model, NetworkBuilder, Sample, Tensor};
///
/// let mut net = NetworkBuilder::new("scale");
/// let x = net.input("x", DType::F32, "batch,4")?;
/// let y = net.mul(x, 3.0)?;
/// net.output("y", y)?;
///
/// let samples = (1..=20).map(|n| {
///     let x = Tensor::new(&[1, 4], vec![0.1 * n as f32; 4])?;
///     Ok(Sample::new(vec![("x".to_string(), x)], 1))
/// });
/// let model = Model::from_network(net)?;                               // or CalibrationBuilder::new("model.onnx")
/// let calibration = CalibrationBuilder::from_model(model).calibrator(Calibrator::MinMax).run(samples)?;
/// assert_eq!(calibration.get("y").unwrap().threshold, 6.0);
/// # let path = std::env::temp_dir().join(format!("planish-doc-{}.calib", std::process::id()));
/// calibration.save(&path)?;
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CalibrationBuilder {
    model: Model,
    device: Device,
    calibrator: Calibrator,
    measured: bool,
    second_moments: bool,
    options: BuildOptions,
}

impl CalibrationBuilder {
    /// A calibration of the model in this ONNX file.
    pub fn new(path: impl AsRef<Path>) -> Result<CalibrationBuilder, Error> {
        Ok(CalibrationBuilder::from_model(Model::open(path)?))
    }

    /// A calibration of a model that was read before.
    pub fn from_model(model: Model) -> CalibrationBuilder {
        let options = BuildOptions {
            // Kernels are not worth measuring for some hundred runs, and the plan is thrown away after them.
            tune_level: 0,
            verify: false,
            ..BuildOptions::default()
        };
        CalibrationBuilder {
            model,
            device: Device::Auto,
            calibrator: Calibrator::default(),
            measured: false,
            second_moments: false,
            options,
        }
    }

    /// Where the model runs; ranges are the same but for rounding.
    pub fn device(mut self, device: Device) -> CalibrationBuilder {
        self.device = device;
        self
    }

    /// How thresholds are found.
    pub fn calibrator(mut self, calibrator: Calibrator) -> CalibrationBuilder {
        self.calibrator = calibrator;
        self
    }

    /// Whether the calibrator is chosen by what INT8 does to the outputs of the first samples, instead of by
    /// [`CalibrationBuilder::calibrator`]; whether channels are to be evened out, and which nodes had better read floats,
    /// is found in the same way. The calibration says all that, and every build by it goes by it.
    ///
    /// ```
    /// use planish::{CalibrationBuilder, DType, Model, NetworkBuilder, Sample, Tensor};
    ///
    /// let mut net = NetworkBuilder::new("two layers");
    /// let x = net.input("x", DType::F32, "batch,16")?;
    /// let weights = |n: usize| Tensor::new(&[16, 16], (0..256).map(|i| ((i * n % 13) as f32 - 6.0) / 16.0).collect());
    /// let hidden = net.linear(x, weights(5)?, None)?;
    /// let y = net.linear(hidden, weights(7)?, None)?;
    /// net.output("y", y)?;
    /// let samples = (0..20).map(|n| {
    ///     let x = Tensor::new(&[1, 16], (0..16).map(|i| ((i * 3 + n) % 7) as f32 - 3.0).collect())?;
    ///     Ok(Sample::new(vec![("x".to_string(), x)], 1))
    /// });
    /// let model = Model::from_network(net)?;
    /// let calibration = CalibrationBuilder::from_model(model).threads(1).measured(true).run(samples)?;
    /// assert!(calibration.notes().iter().any(|note| note.starts_with("--calibrator auto took ")));
    /// let (evens_channels_out, in_floats) = calibration.advice();
    /// println!("channels evened out: {evens_channels_out}; nodes in floats: {in_floats:?}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn measured(mut self, wanted: bool) -> CalibrationBuilder {
        self.measured = wanted;
        self
    }

    /// Whether it is also found how the channels go together of what matrix products read, which
    /// [`Builder::weights`](crate::Builder::weights) then takes into regard. That takes longer, and is not written to files.
    ///
    /// ```
    /// use planish::{Builder, CalibrationBuilder, DType, Model, NetworkBuilder, Sample, Tensor};
    ///
    /// let mut net = NetworkBuilder::new("product");
    /// let x = net.input("x", DType::F32, "batch,256")?;
    /// let weights = (0..256 * 256).map(|i| ((i * 31 % 97) as f32 - 48.0) / 97.0).collect();
    /// let y = net.linear(x, Tensor::new(&[256, 256], weights)?, None)?;
    /// net.output("y", y)?;
    /// let model = Model::from_network(net)?;
    /// let samples = (0..8).map(|n| {
    ///     let x = Tensor::new(&[4, 256], (0..1024).map(|i| ((i + n) % 7) as f32 - 3.0).collect())?;
    ///     Ok(Sample::new(vec![("x".to_string(), x)], 4))
    /// });
    /// let calibration = CalibrationBuilder::from_model(model.clone()).threads(1).second_moments(true).run(samples)?;
    /// let plan = Builder::from_model(model).weights("int4".parse()?).calibration(&calibration)?.tune_level(0).build()?;
    /// # assert!(!plan.record().program.steps.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn second_moments(mut self, wanted: bool) -> CalibrationBuilder {
        self.second_moments = wanted;
        self
    }

    /// CPU threads to run with.
    pub fn threads(mut self, threads: usize) -> CalibrationBuilder {
        self.options.threads = threads.max(1);
        self
    }

    /// Told how many of the samples are done; 0 of them where nobody knows how many there are.
    pub fn progress(mut self, progress: Progress) -> CalibrationBuilder {
        self.options.progress = Some(progress);
        self
    }

    /// The graph that is calibrated.
    pub fn graph(&self) -> &Graph {
        self.model.graph()
    }

    /// Runs all samples and finds the thresholds.
    pub fn run<S>(self, samples: S) -> Result<Calibration, Error>
    where
        S: IntoIterator<Item = Result<Sample, Error>>,
    {
        let (name, hash) = (self.model.graph().name.clone(), self.model.hash());
        let progress = self.options.progress.clone();
        let calibrator = self.calibrator;
        let mut trials = self.measured.then(|| measured::Trials::new(&self));
        let mut samples = samples.into_iter();
        let n_samples = samples.size_hint().1.unwrap_or(0);
        let mut collector = Collector::new(calibrator);
        if let Some(first) = samples.next().transpose()? {
            let mut watched = Watched::build(self, &first)?;
            watched.run(&first, &mut collector)?;
            trials.iter_mut().for_each(|trials| trials.keep(&first));
            for sample in samples {
                if let Some(progress) = &progress {
                    progress("calibrate", collector.n_samples(), n_samples.max(collector.n_samples()));
                }
                let sample = sample?;
                watched.run(&sample, &mut collector)?;
                trials.iter_mut().for_each(|trials| trials.keep(&sample));
            }
        }
        let candidates = trials.as_ref().map_or_else(Vec::new, |_| measured::candidates(&collector));
        let collected = collector.finish(&name, Some(hash)).map_err(of_calibration)?;
        let mut notes = collected.notes();
        let mut inner = collected.calibration;
        if let Some(trials) = trials {
            let settled = trials.settle(inner, candidates)?;
            inner = settled.calibration;
            notes.extend(settled.note);
        }
        Ok(Calibration { inner, moments: Arc::new(collected.moments), notes })
    }
}

/// A plan of the model that gives its activations as outputs.
struct Watched {
    context: Context,
    inputs: Vec<String>,
    /// The inputs that are observed.
    observed_inputs: BTreeSet<String>,
    /// The name of each output that is observed.
    outputs: Vec<Option<String>>,
    /// Where the channels are of those that layers read.
    axes: HashMap<String, ChannelAxis>,
    second_moments: bool,
}

impl Watched {
    fn build(builder: CalibrationBuilder, first: &Sample) -> Result<Watched, Error> {
        let CalibrationBuilder { mut model, device, mut options, second_moments, .. } = builder;
        let mut sizes = Sizes::new();
        let mut apart = BTreeSet::new();
        for (name, tensor) in &first.inputs {
            let ports = shapes::tensor_inputs(model.graph());
            let port = ports.iter().find(|(value, _)| *value.name == **name);
            let Some((_, ty)) = port else { return Err(unknown_input(name)) };
            apart.extend(shapes::bind("the first sample", name, ty, tensor.shape(), &mut sizes)?);
        }
        model = model.untie(&apart)?;
        // Sizes of symbols that were taken apart are chosen anew.
        options.tune_at = sizes.into_iter().filter(|(symbol, _)| !apart.contains(symbol)).collect();
        let mut graph = optimized(model.graph(), &device.backends()?, &options)?;
        let name_of = |graph: &Graph, id| graph.value(id).name.to_string();
        let inputs: Vec<String> = graph.inputs().iter().map(|&id| name_of(&graph, id)).collect();
        let axes = layer_inputs(&graph).into_iter().map(|(id, axis)| (name_of(&graph, id), axis)).collect();
        let (mut observed_inputs, mut observed) = (BTreeSet::new(), BTreeSet::new());
        let mut outputs = Vec::new();
        for id in observable(&graph) {
            if graph.inputs().contains(&id) {
                observed_inputs.insert(name_of(&graph, id));
            } else {
                observed.insert(id);
                outputs.push(id);
            }
        }
        outputs.extend(graph.outputs().iter().filter(|id| !observed.contains(id)));
        let names = outputs.iter().map(|id| observed.contains(id).then(|| name_of(&graph, *id))).collect();
        graph.set_outputs(outputs);
        let threads = options.threads;
        let mut builder = Builder::from_graph(graph).device(device);
        *builder.options_mut() = options;
        let engine = Engine::new(builder.build()?, device)?;
        let context = engine.context_with(planish_runtime::ContextOptions::new(threads))?;
        Ok(Watched { context, inputs, observed_inputs, outputs: names, axes, second_moments })
    }

    fn run(&mut self, sample: &Sample, collector: &mut Collector) -> Result<(), Error> {
        let given: HashMap<&str, &Tensor> =
            sample.inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        if let Some(name) = given.keys().find(|name| !self.inputs.iter().any(|input| input == *name)) {
            return Err(unknown_input(name));
        }
        let mut values = Vec::new();
        for name in &self.inputs {
            let tensor = given.get(name.as_str()).ok_or_else(|| {
                let message = format!("sample {} has no value for `{name}`", collector.n_samples() + 1);
                Error::new(ErrorKind::WrongInputs, message)
            })?;
            if self.observed_inputs.contains(name) && tensor.dtype() == DType::F32 {
                let elements = tensor.elements::<f32>()?;
                collector.observe_input(name, &elements).map_err(of_calibration)?;
                self.by_channel(name, tensor.shape(), &elements, collector);
            }
            values.push(Value::from((*tensor).clone()));
        }
        let outputs = self.context.run_values(&values)?;
        for (name, value) in self.outputs.iter().zip(&outputs) {
            if let (Some(name), Some(tensor)) = (name, value.as_tensor()) {
                let elements = tensor.elements::<f32>()?;
                collector.observe(name, &elements).map_err(of_calibration)?;
                self.by_channel(name, tensor.shape(), &elements, collector);
            }
        }
        collector.end_run(sample.count);
        Ok(())
    }

    /// Shows what a layer reads channel by channel.
    fn by_channel(&self, name: &str, shape: &[usize], values: &[f32], collector: &mut Collector) {
        let Some(&axis) = self.axes.get(name) else { return };
        let Some((n_channels, inner)) = axis.of(shape) else { return };
        collector.observe_channels(name, values, n_channels, inner);
        if self.second_moments && axis == ChannelAxis::Last {
            collector.observe_rows(name, values, n_channels);
        }
    }
}

fn unknown_input(name: &str) -> Error {
    Error::new(ErrorKind::WrongInputs, format!("`{name}` is not an input of the model"))
}

/// The ranges of a model's activations: where each is clipped when it becomes an integer.
///
/// The file is text, one line a tensor; see `docs/calibration.md`.
///
/// ```
/// use planish::{Builder, Calibration, CalibrationBuilder, DType, Model, NetworkBuilder, Sample, Tensor};
///
/// # let mut net = NetworkBuilder::new("scale");
/// # let x = net.input("x", DType::F32, "batch,4")?;
/// # let y = net.mul(x, 3.0)?;
/// # net.output("y", y)?;
/// # let model = Model::from_network(net)?;
/// # let samples = (1..=20).map(|n| {
/// #     let x = Tensor::new(&[1, 4], vec![0.1 * n as f32; 4])?;
/// #     Ok(Sample::new(vec![("x".to_string(), x)], 1))
/// # });
/// # let path = std::env::temp_dir().join(format!("planish-doc-ranges-{}.calib", std::process::id()));
/// CalibrationBuilder::from_model(model.clone()).threads(1).run(samples)?.save(&path)?;
/// let calibration = Calibration::open(&path)?;
/// calibration.check_model(&model)?;                                    // an error for another model
/// assert_eq!(calibration.n_samples(), 20);
/// # let cache = path.with_extension("cache");
/// calibration.save_tensorrt(&cache)?;
/// let shared = Calibration::open(&cache)?.bound_to(&model);            // such a file does not say of which model it is
/// shared.check_model(&model)?;
/// # std::fs::remove_file(&cache)?;
/// for (tensor, range) in calibration.ranges() {
///     println!("{tensor} is clipped at {}, by {}", range.threshold, calibration.calibrator());
/// }
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Calibration {
    inner: planish_quantize::Calibration,
    /// Of what matrix products read; not in files.
    moments: Arc<HashMap<String, SecondMoments>>,
    notes: Vec<String>,
}

impl Calibration {
    /// Reads a calibration: Planish's own, or a calibration cache of TensorRT.
    pub fn open(path: impl AsRef<Path>) -> Result<Calibration, Error> {
        planish_quantize::Calibration::open(path).map(Calibration::of).map_err(of_calibration)
    }

    /// Reads a calibration from the text of such a file.
    ///
    /// ```
    /// let cache = "TRT-8600-EntropyCalibration2\nx: 3c010a14\n";          // of TensorRT
    /// let calibration = planish::Calibration::from_text(cache)?;
    /// assert_eq!(calibration.to_tensorrt()?, cache);
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn from_text(text: &str) -> Result<Calibration, Error> {
        planish_quantize::Calibration::from_text(text).map(Calibration::of).map_err(of_calibration)
    }

    /// What a file has, and nothing beside it.
    fn of(inner: planish_quantize::Calibration) -> Calibration {
        Calibration { inner, moments: Arc::default(), notes: Vec::new() }
    }

    /// The text of TensorRT's calibration cache.
    pub fn to_tensorrt(&self) -> Result<String, Error> {
        self.inner.to_tensorrt().map_err(of_calibration)
    }

    /// Writes the file, in one piece.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.inner.save(path).map_err(of_calibration)
    }

    /// Writes TensorRT's calibration cache, in one piece.
    pub fn save_tensorrt(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.inner.save_tensorrt(path).map_err(of_calibration)
    }

    /// The same calibration, bound to this model: for caches of TensorRT, which do not say what they are of.
    pub fn bound_to(mut self, model: &Model) -> Calibration {
        self.inner.model.clone_from(&model.graph().name);
        self.inner.hash = Some(model.hash());
        self
    }

    /// Refuses the calibration of another model.
    pub fn check_model(&self, model: &Model) -> Result<(), Error> {
        self.inner.check_model(&model.hash()).map_err(of_calibration)
    }

    /// The range of a tensor.
    pub fn get(&self, tensor: &str) -> Option<&Range> {
        self.inner.get(tensor)
    }

    /// All ranges by tensor, in the graph's order.
    pub fn ranges(&self) -> &[(String, Range)] {
        &self.inner.ranges
    }

    /// Has a build go by it.
    pub(crate) fn give(&self, options: &mut BuildOptions) {
        let range = |(name, range): &(String, Range)| {
            let Range { min, max, threshold } = *range;
            (name.clone(), ActivationRange { min, max, threshold })
        };
        options.ranges = self.inner.ranges.iter().map(range).collect();
        options.channels = self.inner.channels.iter().cloned().collect();
        options.moments = self.moments.clone();
        options.equalize |= self.inner.equalize;
        options.imprecise_nodes.clone_from(&self.inner.wide);
    }

    /// Whether builds even channels out by it, and the nodes that they let read floats.
    pub fn advice(&self) -> (bool, &[String]) {
        (self.inner.equalize, &self.inner.wide)
    }

    /// How thresholds were found.
    pub fn calibrator(&self) -> &str {
        &self.inner.calibrator
    }

    /// How many samples were seen; 0 where the file does not say.
    pub fn n_samples(&self) -> u64 {
        self.inner.n_samples
    }

    /// Whether more samples would change anything, and which tensors have no threshold; nothing for one from a file.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

fn of_calibration(error: CalibrationError) -> Error {
    let kind = match error.kind() {
        CalibrationErrorKind::Io { doing, path, error } => return Error::io(doing, path, error),
        CalibrationErrorKind::BadFile => ErrorKind::BadFile,
        CalibrationErrorKind::OtherModel => ErrorKind::Refused,
        CalibrationErrorKind::BadValues => ErrorKind::BadValues,
        CalibrationErrorKind::BadOption => ErrorKind::BadOption,
        _ => ErrorKind::Failed,
    };
    Error::new(kind, error.to_string())
}
