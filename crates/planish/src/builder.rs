//! `Builder`: from a model to a plan.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use planish_compile::{
    BuildOptions, Built, Diagnose, DynamicRange, PassesReport, Precision, Progress, Sparsity, Stage, Stopped,
    TimingCache, WeightStorage, diagnose,
};
use planish_ir::Graph;
use planish_kernel::Backend;
use planish_plan::Profile;

use crate::accuracy::certified;
use crate::border::Border;
use crate::calibration::{Calibration, Sample};
use crate::contract::{Choice, Contract, ContractData, Search};
use crate::device::Device;
use crate::model::Model;
use crate::network::NetworkBuilder;
use crate::plan::Plan;
use crate::target::{BuildTarget, as_asked, not_run};
use crate::{Error, ErrorKind};

/// A quantized model, and how it came about.
/// Given by [`Builder::quantize`], which has an example.
#[derive(Debug)]
#[non_exhaustive]
pub struct Quantized {
    /// With QuantizeLinear and DequantizeLinear around its layers.
    pub model: Model,
    /// Which layers are quantized, which are not, and why.
    pub notes: Vec<String>,
    /// What the passes did and refused.
    pub passes: PassesReport,
}

/// A model with pruned weights, and how it came about.
/// Given by [`Builder::prune`]; [`Builder::sparsity`] has an example.
#[derive(Debug)]
#[non_exhaustive]
pub struct Pruned {
    /// With weights that are 2:4 sparse.
    pub model: Model,
    /// Which layers are pruned, what that costs, and which are not.
    pub notes: Vec<String>,
    /// What the passes did and refused.
    pub passes: PassesReport,
}

/// A simplified model, and how it came about.
/// Given by [`Builder::simplify`], which has an example.
#[derive(Debug)]
#[non_exhaustive]
pub struct Simplified {
    /// After the passes.
    pub model: Model,
    /// What the passes did and refused.
    pub passes: PassesReport,
}

/// A build to be: a model, a device and options.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use planish::{Builder, Device, Precision};
///
/// let graph = r#"graph "g" { input %x: f32[n,4] %y: f32[n,4] = Relu(%x) output %y }"#;
/// let told = Arc::new(AtomicUsize::new(0));
/// let telling = told.clone();
/// let mut builder = Builder::from_graph(graph.parse()?)        // or Builder::new("model.onnx")
///     .device(Device::Cpu)
///     .precision(Precision::Fp32)
///     .threads(2)
///     .tune_level(1)                                           // measures a few candidates a step
///     .tactic_sources("-cudnn")?
///     .winograd(false)
///     .strict(true)
///     .workspace(64 << 20)
///     .build_time(Duration::from_secs(10))
///     .progress(Arc::new(move |_, _, _| { telling.fetch_add(1, Ordering::Relaxed); }));
/// builder.options_mut().explain = true;                        // what has no method of its own
/// assert_eq!(builder.graph().nodes().len(), 1);
/// let (built, timings) = builder.build_with_report()?;         // or build(), for the plan alone
/// assert_eq!(built.plan.program.steps.len(), 1);
/// assert!(told.load(Ordering::Relaxed) > 0);
///
/// // Its times spare the next build the measuring.
/// let again = Builder::from_graph(graph.parse()?).threads(2).tune_level(1).timings(timings);
/// assert!(again.cache_key()?.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Builder {
    model: Model,
    device: Device,
    /// In the place of the device, where it is given.
    target: Option<BuildTarget>,
    options: BuildOptions,
    timings: TimingCache,
    samples: Vec<Sample>,
}

impl Builder {
    /// A build of the model in this ONNX file.
    pub fn new(path: impl AsRef<Path>) -> Result<Builder, Error> {
        Ok(Builder::from_model(Model::open(path)?))
    }

    /// A build of a model that was read before.
    pub fn from_model(model: Model) -> Builder {
        let (border, metadata) = (model.border.clone(), model.properties.iter().cloned().collect());
        let options = BuildOptions { source: model.source, border, metadata, ..BuildOptions::default() };
        let (timings, samples) = (TimingCache::default(), Vec::new());
        Builder { model, device: Device::Auto, target: None, options, timings, samples }
    }

    /// A build of a graph that was made otherwise.
    pub fn from_graph(graph: Graph) -> Builder {
        Builder::from_model(Model::from(graph))
    }

    /// A build of a network that was defined by hand.
    ///
    /// ```
    /// use planish::{Builder, DType, NetworkBuilder, Profile, SymbolRange};
    ///
    /// let mut net = NetworkBuilder::new("scale");
    /// let x = net.input("x", DType::F32, "batch,16")?;
    /// let y = net.mul(x, 0.5)?;
    /// net.output("y", y)?;
    /// let batch = SymbolRange { symbol: "batch".into(), min: 1, opt: 8, max: 32 };
    /// let plan = Builder::from_network(net)?
    ///     .profile(Profile { ranges: vec![batch] })
    ///     .threads(2)
    ///     .tune_level(0)
    ///     .build()?;
    /// assert_eq!(plan.record().header.profiles.len(), 1);
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn from_network(network: NetworkBuilder) -> Result<Builder, Error> {
        Ok(Builder::from_model(Model::from_network(network)?))
    }

    /// Where the plan is going to run.
    pub fn device(mut self, device: Device) -> Builder {
        self.device = device;
        self
    }

    /// What the model is computed in, where its operators allow it.
    pub fn precision(mut self, precision: Precision) -> Builder {
        self.options.precision = precision;
        self
    }

    /// The ranges of the model's values, which [`Precision::Int8`] quantizes by; refused if they are of another model.
    /// [`Builder::quantize`] has an example.
    pub fn calibration(self, calibration: &Calibration) -> Result<Builder, Error> {
        calibration.check_model(&self.model)?;
        Ok(self.ranges(calibration))
    }

    /// The same without a look at which model the ranges are of, for one that was changed since.
    pub fn ranges(mut self, calibration: &Calibration) -> Builder {
        calibration.give(&mut self.options);
        self
    }

    /// Samples on which the certificate of a plan of lower precision states what it costs against FP32: of the outputs, and
    /// of every step.
    ///
    /// ```
    /// use planish::{Builder, CalibrationBuilder, DType, Device, Model, NetworkBuilder, Precision, Sample, Tensor};
    ///
    /// let mut net = NetworkBuilder::new("two layers");
    /// let x = net.input("x", DType::F32, "batch,8")?;
    /// let numbers = |n: usize| Tensor::new(&[8, 8], (0..64).map(|i| ((i * n % 13) as f32 - 6.0) / 8.0).collect());
    /// let hidden = net.linear(x, numbers(5)?, None)?;
    /// let y = net.linear(hidden, numbers(7)?, None)?;
    /// net.output("y", y)?;
    /// let model = Model::from_network(net)?;
    /// let sample = |n: usize| -> Result<Sample, planish::Error> {
    ///     let x = Tensor::new(&[1, 8], (0..8).map(|i| ((i + n) % 5) as f32 - 2.0).collect())?;
    ///     Ok(Sample::new(vec![("x".to_string(), x)], 1))
    /// };
    /// let calibration = CalibrationBuilder::from_model(model.clone()).run((0..8).map(sample))?;
    /// let builder = Builder::from_model(model).device(Device::Cpu).tune_level(0).precision(Precision::Int8);
    /// let samples = (0..4).map(sample).collect::<Result<_, _>>()?;
    /// let plan = builder.calibration(&calibration)?.precision_samples(samples).build()?;
    /// let stated = plan.certificate().checks.iter().filter(|check| check.subject.starts_with("cost of the precision"));
    /// assert!(stated.count() > 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn precision_samples(mut self, samples: Vec<Sample>) -> Builder {
        self.samples = samples;
        self
    }

    /// Adds shapes that the plan may run at.
    pub fn profile(mut self, profile: Profile) -> Builder {
        self.options.profiles.push(profile);
        self
    }

    /// Builds for a target by name, which takes the device's place: `portable`, `avx2` or `avx512` for CPUs that may have less
    /// than this one; `sm_80`, `sm_90a` and the like, or a GPU's short name, for GPUs that need not be here. Kernels of such a
    /// GPU are chosen by the timing cache of the options, or by the cost model, and compiled here by NVRTC; nobody runs them,
    /// so the certificate says [`crate::CertificateState::KernelsNotRun`] until [`Plan::recheck`] ran them there.
    ///
    /// ```
    /// use planish::{Builder, ErrorKind};
    ///
    /// let graph: planish::graph::Graph = r#"graph "g" { input %x: f32[4] %y: f32[4] = Relu(%x) output %y }"#.parse()?;
    /// let plan = Builder::from_graph(graph.clone()).target("portable")?.tune_level(0).build()?;
    /// assert_eq!(plan.record().header.targets[0].needs, ["portable"]);
    /// assert_eq!(*Builder::from_graph(graph).target("z80").unwrap_err().kind(), ErrorKind::BadOption);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn target(mut self, name: &str) -> Result<Builder, Error> {
        self.target = Some(BuildTarget::named(name)?);
        Ok(self)
    }

    /// Who plans.
    fn backends(&self) -> Result<Vec<Arc<dyn Backend>>, Error> {
        match &self.target {
            Some(target) => target.backends(self.options.timing_cache.as_deref()),
            None => self.device.backends(),
        }
    }

    /// A pair of the user's own that the plan keeps, beside those that the model's file has; of several with one key the last
    /// counts. [`Plan::metadata`] reads them without opening the plan.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Builder {
        self.options.metadata.insert(key.into(), value.into());
        self
    }

    /// Threads to tune for.
    pub fn threads(mut self, threads: usize) -> Builder {
        self.options.threads = threads.max(1);
        self
    }

    /// 0 goes by the cost model, up to 5 measures more and more.
    pub fn tune_level(mut self, level: u32) -> Builder {
        self.options.tune_level = level;
        self
    }

    /// With [`Precision::Int8`]: quantizes matrix products alone, by ranges that are found in each run, of every row or of
    /// the whole of what a product reads. [`Builder::quantize`] has an example.
    pub fn dynamic(mut self, ranges: DynamicRange) -> Builder {
        self.options.dynamic = Some(ranges);
        self
    }

    /// With [`Precision::Int8`]: whether channels are evened out in front of layers where a calibration says that this is
    /// less noise. [`Builder::correct_biases`] has an example.
    pub fn equalize(mut self, wanted: bool) -> Builder {
        self.options.equalize = wanted;
        self
    }

    /// With [`Precision::Int8`]: whether biases make up for what rounding weights does to the mean of a layer's output, by the
    /// channels of a calibration. They do unless this is switched off.
    ///
    /// ```
    /// use planish::{Builder, DType, NetworkBuilder, Precision};
    ///
    /// let mut net = NetworkBuilder::new("scale");
    /// let x = net.input("x", DType::F32, "batch,16")?;
    /// let y = net.mul(x, 0.5)?;
    /// net.output("y", y)?;
    /// let builder = Builder::from_network(net)?.precision(Precision::Int8);
    /// let mut other = builder.equalize(true).correct_biases(false);
    /// assert!(other.options_mut().equalize && !other.options_mut().correct_biases);
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn correct_biases(mut self, wanted: bool) -> Builder {
        self.options.correct_biases = wanted;
        self
    }

    /// Stores the weights of large matrix products as integers in groups, rounded to nearest; with a calibration that has
    /// [second moments](crate::CalibrationBuilder::second_moments) with regard to what the products read.
    pub fn weights(mut self, storage: WeightStorage) -> Builder {
        self.options.weights = Some(storage);
        self
    }

    /// What is made of weights of which two of each four neighbours along the sum are zero (2:4 sparsity): kernels that count
    /// on it compete, or not; [`Sparsity::Force`] prunes all layers so first, which changes what they compute.
    ///
    /// ```
    /// use planish::{Builder, DType, Device, Model, NetworkBuilder, Pruned, Sparsity, Tensor};
    ///
    /// let mut net = NetworkBuilder::new("layer");
    /// let x = net.input("x", DType::F32, "batch,32")?;
    /// let weight = Tensor::new(&[8, 32], (0..256).map(|i| (i * 7 % 13) as f32 - 6.5).collect())?;
    /// let y = net.linear(x, weight, None)?;
    /// net.output("y", y)?;
    /// let model = Model::from_network(net)?;
    /// assert_eq!(model.sparse_layers(), (0, 1));
    /// let builder = Builder::from_model(model.clone()).device(Device::Cpu).tune_level(0).threads(1);
    /// let (built, _) = builder.sparsity(Sparsity::Force).build_with_report()?;
    /// assert!(built.notes.iter().any(|note| note.contains("pruned to 2:4")));
    ///
    /// // The same as a model, to be trained on or compared with.
    /// let Pruned { model: pruned, notes, .. } = Builder::from_model(model).prune()?;
    /// assert_eq!(pruned.sparse_layers(), (1, 1));
    /// println!("{}", notes.join("\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sparsity(mut self, sparsity: Sparsity) -> Builder {
        self.options.sparsity = sparsity;
        self
    }

    /// Keeps the types that the model says: options that choose others are refused.
    ///
    /// ```
    /// use planish::{Builder, DType, NetworkBuilder, Precision};
    ///
    /// let mut net = NetworkBuilder::new("scale");
    /// let x = net.input("x", DType::F32, "batch,16")?;
    /// let y = net.mul(x, 0.5)?;
    /// net.output("y", y)?;
    /// let builder = Builder::from_network(net)?.strongly_typed(true).tune_level(0);
    /// assert!(builder.precision(Precision::Fp16).build().is_err());
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn strongly_typed(mut self, strongly_typed: bool) -> Builder {
        self.options.strongly_typed = strongly_typed;
        self
    }

    /// Whether Winograd convolutions may be used.
    pub fn winograd(mut self, winograd: bool) -> Builder {
        self.options.winograd = winograd;
        self
    }

    /// Refuses what only the slow reference can compute, and steps on the CPU in a plan for a GPU.
    pub fn strict(mut self, strict: bool) -> Builder {
        self.options.strict = strict;
        self
    }

    /// Takes sources of tactics in or leaves them out, as in `+own,-cudnn`.
    pub fn tactic_sources(mut self, list: &str) -> Result<Builder, Error> {
        self.options.set_tactic_sources(list, &crate::tactic_sources())?;
        Ok(self)
    }

    /// How long tactics may be searched for; what is not measured by then goes by the cost model.
    pub fn build_time(mut self, limit: Duration) -> Builder {
        self.options.build_time = Some(limit);
        self
    }

    /// The most workspace bytes that a step may ask for.
    pub fn workspace(mut self, bytes: usize) -> Builder {
        self.options.workspace = Some(bytes);
        self
    }

    /// Puts a border around the model: types and layouts of inputs and outputs, and work before and after it; see
    /// [`Model::with_border`].
    ///
    /// ```
    /// use planish::{Border, Builder, DType, NetworkBuilder};
    ///
    /// let mut net = NetworkBuilder::new("scale");
    /// let x = net.input("x", DType::F32, "batch,3,8,8")?;
    /// let y = net.mul(x, 0.5)?;
    /// net.output("y", y)?;
    /// let builder = Builder::from_network(net)?.border(&Border::new().io("x:u8:nhwc"))?;
    /// let input = builder.graph().value(builder.graph().inputs()[0]);
    /// assert_eq!(input.ty.to_string(), "u8[batch,8,8,3]");
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn border(self, border: &Border) -> Result<Builder, Error> {
        let model = self.model.with_border(border)?;
        let options = BuildOptions { source: model.source, border: model.border.clone(), ..self.options };
        Ok(Builder { model, options, ..self })
    }

    /// What a [`crate::PlanCache`] keeps the plan under; `None` where callbacks or a tactic lock decide what is
    /// built.
    pub fn cache_key(&self) -> Result<Option<String>, Error> {
        let backends = self.backends()?;
        Ok(crate::plan_cache::key(&self.options.source, &self.options, &backends))
    }

    /// Told about the stages of the build.
    pub fn progress(mut self, progress: Progress) -> Builder {
        self.options.progress = Some(progress);
        self
    }

    /// Times from earlier builds.
    pub fn timings(mut self, timings: TimingCache) -> Builder {
        self.timings = timings;
        self
    }

    /// All options at once, for what has no method here.
    pub fn options_mut(&mut self) -> &mut BuildOptions {
        &mut self.options
    }

    /// The graph that is built.
    pub fn graph(&self) -> &Graph {
        self.model.graph()
    }

    /// Builds the plan.
    pub fn build(self) -> Result<Plan, Error> {
        Ok(self.build_with_report()?.0.plan.into())
    }

    /// Finds the fastest precision that keeps to a contract, and builds it: see `docs/accuracy.md`. Integers are among the
    /// candidates where a calibration is given. The plan is `None` where nothing keeps to it.
    ///
    /// ```
    /// use planish::{Builder, CalibrationBuilder, Contract, ContractData, DType, Device, Model, NetworkBuilder, Sample, Tensor};
    ///
    /// let mut net = NetworkBuilder::new("two layers");
    /// let x = net.input("x", DType::F32, "batch,8")?;
    /// let numbers = |n: usize| Tensor::new(&[8, 8], (0..64).map(|i| ((i * n % 13) as f32 - 6.0) / 8.0).collect());
    /// let hidden = net.linear(x, numbers(5)?, None)?;
    /// let y = net.linear(hidden, numbers(7)?, None)?;
    /// net.output("y", y)?;
    /// let model = Model::from_network(net)?;                           // or Model::open("model.onnx")
    ///
    /// let sample = |n: usize| -> Result<Sample, planish::Error> {
    ///     let x = Tensor::new(&[1, 8], (0..8).map(|i| ((i + n) % 5) as f32 - 2.0).collect())?;
    ///     Ok(Sample::new(vec![("x".to_string(), x)], 1))
    /// };
    /// let calibration = CalibrationBuilder::from_model(model.clone()).run((0..8).map(sample))?;
    /// let data = ContractData::new((0..8).map(sample).collect::<Result<_, _>>()?, None)?;
    /// let contract: Contract = "rel<=0.05".parse()?;
    /// let builder = Builder::from_model(model).device(Device::Cpu).tune_level(0).calibration(&calibration)?;
    /// let (choice, built) = builder.build_by_contract(contract, &data)?;
    /// let chosen = &choice.candidates[choice.chosen.unwrap()];
    /// assert!(contract.holds(chosen.held_out.unwrap()) && built.is_some());
    /// println!("{}, {:?}; of all candidates:\n{}", chosen.name(), chosen.latency, choice.csv());
    /// assert!(choice.svg().starts_with("<svg"));                       // the same as a picture
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build_by_contract(
        mut self,
        contract: Contract,
        data: &ContractData,
    ) -> Result<(Choice, Option<(Built, TimingCache)>), Error> {
        let device = self.device.settled();
        let graph = self.model.graph();
        let search = Search { graph, device, options: &self.options, contract, data };
        let choice = search.run(&mut self.timings)?;
        let Some(chosen) = choice.chosen.map(|at| &choice.candidates[at]) else { return Ok((choice, None)) };
        self.options.precision = chosen.precision;
        self.options.fp32_layers.extend(chosen.fp32_layers.iter().cloned());
        let built = self.build_with_report()?;
        Ok((choice, Some(built)))
    }

    /// Quantizes the model as [`Precision::Int8`] does for the CPU, and keeps it a model: with QuantizeLinear and
    /// DequantizeLinear around its layers, for other runtimes ([`Model::save_onnx`]).
    ///
    /// ```
    /// use planish::{
    ///     Builder, CalibrationBuilder, DType, DynamicRange, Model, NetworkBuilder, Precision, Quantized, Sample, Tensor,
    /// };
    ///
    /// let mut net = NetworkBuilder::new("perceptron");
    /// let x = net.input("x", DType::F32, "batch,8")?;
    /// let hidden = net.linear(x, Tensor::new(&[8, 8], vec![0.25f32; 64])?, None)?;
    /// let y = net.linear(hidden, Tensor::new(&[4, 8], vec![0.5f32; 32])?, None)?;
    /// net.output("y", y)?;
    /// let model = Model::from_network(net)?;
    /// let samples = (1..=16).map(|n| {
    ///     Ok(Sample::new(vec![("x".to_string(), Tensor::new(&[1, 8], vec![0.1 * n as f32; 8])?)], 1))
    /// });
    /// let ranges = CalibrationBuilder::from_model(model.clone()).threads(1).run(samples)?;
    /// println!("{}", ranges.notes().join("\n"));
    ///
    /// let builder = Builder::from_model(model.clone()).calibration(&ranges)?;
    /// let Quantized { model: quantized, notes, .. } = builder.quantize()?;
    /// println!("{}", notes.join("\n"));
    /// assert!(quantized.graph().nodes().len() > model.graph().nodes().len());
    ///
    /// // Without data: the ranges of what matrix products read are found in each run.
    /// let dynamic = Builder::from_model(model.clone()).precision(Precision::Int8).dynamic(DynamicRange::Row).quantize()?;
    /// assert!(dynamic.model.graph().nodes().len() > model.graph().nodes().len());
    ///
    /// let int8 = Builder::from_model(model).precision(Precision::Int8).calibration(&ranges)?.tune_level(0).build()?;
    /// assert!(!int8.record().program.steps.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn quantize(self) -> Result<Quantized, Error> {
        let quantized = planish_compile::quantized(self.model.graph(), &self.options)?;
        Ok(Quantized {
            model: Model::from(quantized.graph),
            notes: quantized.notes,
            passes: quantized.passes,
        })
    }

    /// Prunes the weights of the model's layers to 2:4 sparsity by magnitude, as [`Sparsity::Force`] does, and leaves all else
    /// as it is. [`Builder::sparsity`] has an example.
    pub fn prune(self) -> Result<Pruned, Error> {
        let pruned = planish_compile::pruned(self.model.graph(), &self.options)?;
        Ok(Pruned { model: Model::from(pruned.graph), notes: pruned.notes, passes: pruned.passes })
    }

    /// Runs the passes that every build runs, and keeps the result a model for other runtimes ([`Model::save_onnx`]): constants
    /// folded, shapes computed where they follow, norms and activations as single nodes. It needs no opset newer than
    /// `opset`, unless the model has newer operators itself. A profile of fixed sizes is taken over; types stay as they are.
    ///
    /// ```
    /// use planish::{Builder, Simplified};
    ///
    /// let graph = r#"graph "g" { input %x: f32[n] %i: f32[n] = Identity(%x) %y: f32[n] = Relu(%i) output %y }"#;
    /// let Simplified { model, passes, .. } = Builder::from_graph(graph.parse()?).simplify(21)?;
    /// assert_eq!(model.graph().nodes().len(), 1);
    /// println!("{passes}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn simplify(self, opset: i64) -> Result<Simplified, Error> {
        let (graph, passes) = planish_compile::simplified(self.model.graph(), opset, &self.options)?;
        Ok(Simplified { model: Model::from(graph), passes })
    }

    /// Builds up to a stage, to look at it: its text is for people.
    ///
    /// ```
    /// use planish::{Builder, DType, NetworkBuilder, Stage};
    ///
    /// let mut net = NetworkBuilder::new("scale");
    /// let x = net.input("x", DType::F32, "batch,16")?;
    /// let y = net.mul(x, 0.5)?;
    /// net.output("y", y)?;
    /// let chosen = Builder::from_network(net)?.tune_level(0).build_until(Stage::Chosen)?;
    /// assert!(chosen.to_string().starts_with("chosen: 1 steps"));
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn build_until(mut self, stage: Stage) -> Result<Stopped, Error> {
        let backends = self.backends()?;
        let graph = self.model.graph();
        planish_compile::build_until(stage, graph, &backends, &self.options, &mut self.timings)
    }

    /// Builds the plan, and gives what the passes did and the times that are known now.
    pub fn build_with_report(mut self) -> Result<(Built, TimingCache), Error> {
        let backends = self.backends()?;
        let asked = self.options.clone();
        let note = self.target.as_ref().and_then(|target| target.settle(&mut self.options));
        let mut built =
            planish_compile::build(self.model.graph(), &backends, &self.options, &mut self.timings)?;
        built.notes.extend(note);
        if self.target.as_ref().is_some_and(BuildTarget::is_elsewhere) {
            built.plan.header.options = as_asked(&built.plan.header.options, &asked);
            built.plan.certify(vec![not_run()])?;
        }
        let fixed = match &self.options.profiles[..] {
            [only] => only.ranges.iter().filter(|range| range.min == range.max).collect(),
            _ => Vec::new(),
        };
        let size = |name: &str| fixed.iter().find(|range| range.symbol == name).map(|range| range.opt);
        let said = self.model.declared.disagreement(self.model.graph(), &built.graph, &size);
        built.notes.splice(0..0, self.model.notes.iter().cloned().chain(said));
        let is_pruned = self.options.sparsity == Sparsity::Force;
        let is_lower =
            self.options.precision != Precision::Fp32 || self.options.weights.is_some() || is_pruned;
        if !self.samples.is_empty() && self.options.verify && is_lower {
            self.state_cost(&mut built, &backends)?;
        }
        Ok((built, self.timings))
    }

    /// Adds to the certificate what the precision costs on the samples.
    fn state_cost(&self, built: &mut Built, backends: &[Arc<dyn Backend>]) -> Result<(), Error> {
        let in_floats = BuildOptions {
            precision: Precision::Fp32,
            ranges: HashMap::new(),
            channels: HashMap::new(),
            weights: None,
            sparsity: Sparsity::Disable,
            fp32_layers: Vec::new(),
            int8_layers: Vec::new(),
            ..self.options.clone()
        };
        let reference = planish_compile::optimized(self.model.graph(), backends, &in_floats)?;
        let what = Diagnose { plan: &built.plan, backends, graph: &built.graph, reference: &reference };
        let samples: Vec<_> = self.samples.iter().map(|sample| sample.inputs.clone()).collect();
        let found = match diagnose(&what, &samples, &self.options) {
            Ok(found) => found,
            Err(error) if *error.kind() == ErrorKind::Cancelled => return Err(error),
            // Samples may be of other sizes than the plan takes, which says nothing against it.
            Err(error) => {
                built.notes.push(format!("what the precision costs was not measured: {error}"));
                return Ok(());
            }
        };
        let mut checks = built.plan.certificate.checks.clone();
        checks.extend(certified(&found));
        built.plan.certify(checks)?;
        let outputs = found.outputs.iter().map(|(name, error)| format!("`{name}` {error:.1e}"));
        let name = match self.options.weights {
            Some(storage) => format!("--weights {storage}"),
            None => format!("--precision {}", self.options.precision.name()),
        };
        let name = match self.options.sparsity {
            Sparsity::Force => format!("{name} --sparsity force"),
            _ => name,
        };
        let outputs: Vec<String> = outputs.collect();
        let of = format!("relative L2 error against fp32 on {} samples", found.n_samples);
        built.notes.push(format!("{name} costs {}: {of}", outputs.join(", ")));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::{Sizes, default_sizes};

    #[test]
    fn sizes_that_nobody_gives_follow_one_rule() {
        let text = r#"graph "g" {
            input %x: f32[b,n] input %c: f32[48] %y: f32[b,48] = Add(%x, %c) output %y
        }"#;
        let model = Model::from(text.parse::<Graph>().unwrap());
        let sizes = default_sizes(model.graph(), &Sizes::new()).unwrap();
        assert_eq!((sizes["b"], sizes["n"]), (1, 48));
        let plan = Builder::from_model(model).device(Device::Cpu).tune_level(0).build().unwrap();
        let tuned: Sizes = plan.record().header.tuned_at.iter().cloned().collect();
        assert_eq!(tuned, sizes);
    }
}
