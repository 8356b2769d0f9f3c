//! Accuracy: where a plan departs from its model in floats.

use planish_compile::{
    BuildOptions, Diagnose, Diagnosis, Progress, StepError, diagnose, float_reference, recover,
};
use planish_ir::Graph;
use planish_plan::{Check, Outcome};

use crate::device::unpack;
use crate::model::Model;
use crate::plan::Plan;
use crate::{Device, Error, ErrorKind, Opened, Sample};

/// A look into a plan to be: which steps are off, by how much of their own and by how much since the start, and which
/// layers to keep in fp32.
///
/// ```
/// use planish::{Accuracy, Builder, CalibrationBuilder, DType, Device, Model, NetworkBuilder, Precision, Sample, Tensor};
///
/// let mut net = NetworkBuilder::new("two layers");
/// let x = net.input("x", DType::F32, "batch,8")?;
/// let numbers = |n: usize| Tensor::new(&[8, 8], (0..64).map(|i| ((i * n % 13) as f32 - 6.0) / 8.0).collect());
/// let hidden = net.linear(x, numbers(5)?, None)?;
/// let hidden = net.relu(hidden)?;
/// let y = net.linear(hidden, numbers(7)?, None)?;
/// net.output("y", y)?;
/// let model = Model::from_network(net)?;                               // or Model::open("model.onnx")
///
/// let samples: Vec<Sample> = (0..4)
///     .map(|n| {
///         let x = Tensor::new(&[1, 8], (0..8).map(|i| (i * n) as f32 / 8.0 - 1.0).collect())?;
///         Ok(Sample::new(vec![("x".to_string(), x)], 1))
///     })
///     .collect::<Result<_, planish::Error>>()?;
/// let calibration = CalibrationBuilder::from_model(model.clone()).run(samples.iter().cloned().map(Ok))?;
/// let mut builder = Builder::from_model(model.clone()).device(Device::Cpu).tune_level(0);
/// builder.options_mut().int8_layers = vec!["*".to_string()];
/// let plan = builder.precision(Precision::Int8).calibration(&calibration)?.build()?;
///
/// let accuracy = Accuracy::of(plan)
///     .against(model)
///     .device(Device::Cpu)
///     .progress(std::sync::Arc::new(|_, done, of| println!("{done} of {of} samples")));
/// assert_eq!(accuracy.graph()?.inputs().len(), 1);                     // what samples are for
/// assert_eq!(accuracy.tuned_at(), [("batch".to_string(), 1)]);
/// let found = accuracy.run(samples.into_iter().map(Ok))?;
/// assert_eq!(found.n_samples, 4);
/// assert!(found.steps.iter().any(|step| step.own > 0.0 && step.accumulated > 0.0));
/// assert!(found.departures.is_empty());                                // both are off by the usual rounding
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Accuracy {
    plan: Plan,
    model: Option<Model>,
    device: Device,
    options: BuildOptions,
}

/// What a plan's precision costs on samples, as lines of its certificate: they state, and have no bound to keep.
pub(crate) fn certified(found: &Diagnosis) -> Vec<Check> {
    let stated = |subject: String| Check { subject, n_points: 0, worst: 0.0, outcome: Outcome::Passed };
    let on = found.n_samples;
    let of_output = |(name, error): &(String, f64)| {
        stated(format!("cost of the precision, `{name}` on {on} samples: relative L2 error {error:.2e}"))
    };
    let of_step = |step: &StepError| {
        let StepError { step, layer, precision, own, accumulated, .. } = step;
        let errors = format!("own error {own:.2e}, accumulated {accumulated:.2e}");
        stated(format!("cost of the precision, step {step}: {layer} in {precision}: {errors}"))
    };
    found.outputs.iter().map(of_output).chain(found.steps.iter().map(of_step)).collect()
}

impl Accuracy {
    /// A look into this plan.
    pub fn of(plan: Plan) -> Accuracy {
        Accuracy { plan, model: None, device: Device::Auto, options: BuildOptions::default() }
    }

    /// The model that the plan was built from: without it weights count as exact, and a plan in INT8 cannot be looked
    /// into.
    pub fn against(mut self, model: Model) -> Accuracy {
        self.model = Some(model);
        self
    }

    /// Where the plan runs.
    pub fn device(mut self, device: Device) -> Accuracy {
        self.device = device;
        self
    }

    /// Told how many of the samples are done.
    pub fn progress(mut self, progress: Progress) -> Accuracy {
        self.options.progress = Some(progress);
        self
    }

    /// The graph whose inputs samples are for.
    pub fn graph(&self) -> Result<Graph, Error> {
        match &self.model {
            Some(model) => Ok(model.graph().clone()),
            None => Ok(recover(&self.plan.inner.recipe(), &unpack)?.graph),
        }
    }

    /// The sizes that the plan was tuned at, by symbol.
    pub fn tuned_at(&self) -> &[(String, i64)] {
        &self.plan.inner.header.tuned_at
    }

    /// Runs all samples and compares.
    pub fn run<S>(self, samples: S) -> Result<Diagnosis, Error>
    where
        S: IntoIterator<Item = Result<Sample, Error>>,
    {
        if let Some(model) = &self.model
            && model.hash() != self.plan.inner.header.source
        {
            let message = "the plan was built from another model than the one that it is to be held against";
            return Err(Error::new(ErrorKind::Refused, message));
        }
        let plan = match self.plan.fit(self.device)? {
            Opened::Fits(plan) => plan.inner,
            Opened::NeedsRebuild(rebuild) => return Err(Error::needs_rebuild(rebuild.why())),
        };
        let backends = plan.header.targets.iter().map(|target| self.device.backend_for(target));
        let backends = backends.collect::<Result<Vec<_>, Error>>()?;
        let recovered = recover(&plan.recipe(), &unpack)?;
        let reference = float_reference(&recovered, self.model.as_ref().map(Model::graph), &backends)?;
        let samples = samples.into_iter().map(|sample| Ok(sample?.inputs));
        let samples = samples.collect::<Result<Vec<_>, Error>>()?;
        if samples.is_empty() {
            return Err(Error::new(
                ErrorKind::WrongInputs,
                "nothing to compare on; give at least one sample",
            ));
        }
        let what =
            Diagnose { plan: &plan, backends: &backends, graph: &recovered.graph, reference: &reference };
        let options = BuildOptions { threads: recovered.options.threads, ..self.options };
        diagnose(&what, &samples, &options)
    }
}
