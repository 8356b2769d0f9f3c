//! A calibration chosen by what INT8 does to the outputs: which calibrator, whether channels are evened out, and which nodes
//! read floats.
//!
//! No calibrator is best for all models. One that clips long tails costs a transformer its few large channels (MiniLM's
//! embeddings by entropy: cosine 0.86, by minmax 0.989, with channels evened out 0.994); one that clips nothing costs a
//! network whose values differ from image to image (mesmer_cell_seg: 20 dB by minmax, 34 by entropy). So plans of integers
//! are built by the cost model, run on some of the samples, and held against the plan in floats.

use planish_compile::{BuildOptions, Precision};
use planish_quantize::{Calibration, Calibrator, Collector, DEFAULT_PERCENTILE, Range};
use planish_op::Value;
use planish_tensor::{DType, Tensor};

use super::{CalibrationBuilder, Sample};
use crate::{Accuracy, Builder, Device, Engine, Error, ErrorKind, Model, Plan};

/// Samples that plans are compared on, the first ones.
const N_SAMPLES: usize = 8;
/// Calibrators in the order in which they are preferred.
const CALIBRATORS: [Calibrator; 4] =
    [Calibrator::Entropy, Calibrator::Percentile(DEFAULT_PERCENTILE), Calibrator::Best, Calibrator::MinMax];
/// Another calibrator than the one before it, or channels evened out, must leave at most this part of the error.
const CLEARLY_LESS: f64 = 0.9;
/// Floats cost time, so they must leave at most this part of the error: 3 dB less.
const WORTH_FLOATS: f64 = 0.7;
/// An error at which nothing is looked for any more, relative L2 of the worst output: 40 dB below it.
const BEARABLE: f64 = 0.01;
/// How often nodes that stand out are looked for: behind the worst ones others come up.
const ROUNDS: usize = 3;

/// The thresholds of each calibrator.
pub(super) fn candidates(collector: &Collector) -> Vec<(Calibrator, Vec<(String, Range)>)> {
    CALIBRATORS.iter().map(|&calibrator| (calibrator, collector.ranges_by(calibrator))).collect()
}

/// What is tried out, and on what.
pub(super) struct Trials {
    model: Model,
    options: BuildOptions,
    samples: Vec<Sample>,
}

/// The calibration that was chosen, and how that came.
pub(super) struct Settled {
    pub(super) calibration: Calibration,
    pub(super) note: Option<String>,
}

impl Trials {
    pub(super) fn new(builder: &CalibrationBuilder) -> Trials {
        // Integers as they come, whether or not they are faster: how much they cost is the question.
        let options = BuildOptions { obey_precision: true, ..builder.options.clone() };
        Trials { model: builder.model.clone(), options, samples: Vec::new() }
    }

    pub(super) fn keep(&mut self, sample: &Sample) {
        if self.samples.len() < N_SAMPLES {
            self.samples.push(sample.clone());
        }
    }

    /// Chooses among the candidates; `usual` is given back where nothing can be compared, as for a model without a layer
    /// that may be of integers or without an output of floats.
    pub(super) fn settle(
        &self,
        usual: Calibration,
        candidates: Vec<(Calibrator, Vec<(String, Range)>)>,
    ) -> Result<Settled, Error> {
        let n_trials = candidates.len() + 1 + ROUNDS;
        let mut said = Vec::new();
        let mut best: Option<(Calibration, f64)> = None;
        let Some(exact) = self.outputs(&self.plan(Precision::Fp32, None)?)? else {
            return Ok(Settled { calibration: usual, note: None });
        };
        for (at, (calibrator, ranges)) in candidates.into_iter().enumerate() {
            self.tell(at, n_trials);
            let tried = Calibration { calibrator: calibrator.to_string(), ranges, ..usual.clone() };
            let Some(error) = self.error(&tried, &exact)? else {
                return Ok(Settled { calibration: usual, note: None });
            };
            said.push(format!("{} {error:.1e}", tried.calibrator));
            if best.as_ref().is_none_or(|(_, least)| error < CLEARLY_LESS * least) {
                best = Some((tried, error));
            }
        }
        let Some((mut calibration, mut error)) = best else {
            return Ok(Settled { calibration: usual, note: None });
        };
        let chosen = calibration.calibrator.clone();
        if error > BEARABLE {
            self.tell(CALIBRATORS.len(), n_trials);
            let evened = Calibration { equalize: true, ..calibration.clone() };
            if let Some(less) = self.error(&evened, &exact)?.filter(|less| *less < CLEARLY_LESS * error) {
                said.push(format!("with channels evened out {less:.1e}"));
                (calibration, error) = (evened, less);
            }
        }
        for round in 0..ROUNDS {
            if error <= BEARABLE {
                break;
            }
            self.tell(CALIBRATORS.len() + 1 + round, n_trials);
            let Some(wider) = self.without_the_worst(&calibration)? else { break };
            let Some(less) = self.error(&wider, &exact)?.filter(|less| *less < WORTH_FLOATS * error) else {
                break;
            };
            said.push(format!("with {} nodes in floats {less:.1e}", wider.wide.len()));
            (calibration, error) = (wider, less);
        }
        let on = self.samples.len();
        let note =
            format!("--calibrator auto took {chosen}: relative L2 error of the worst output on {on} samples by {}", said.join(", "));
        Ok(Settled { calibration, note: Some(note) })
    }

    fn tell(&self, done: usize, of: usize) {
        if let Some(progress) = &self.options.progress {
            progress("choose", done, of);
        }
    }

    /// A plan by the cost model, in floats or by a calibration.
    fn plan(&self, precision: Precision, calibration: Option<&Calibration>) -> Result<Plan, Error> {
        let mut builder = Builder::from_model(self.model.clone()).device(Device::Cpu);
        *builder.options_mut() = BuildOptions { precision, progress: None, ..self.options.clone() };
        if let Some(calibration) = calibration {
            builder = builder.ranges(&super::Calibration::of(calibration.clone()));
        }
        builder.build()
    }

    /// The plan of integers; `None` where there is nothing to be made integers.
    fn in_integers(&self, calibration: &Calibration) -> Result<Option<Plan>, Error> {
        match self.plan(Precision::Int8, Some(calibration)) {
            Ok(plan) => Ok(Some(plan)),
            Err(error) if *error.kind() == ErrorKind::Cancelled => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// The outputs of floats for each sample; `None` where there are none.
    fn outputs(&self, plan: &Plan) -> Result<Option<Vec<Vec<Tensor>>>, Error> {
        let engine = Engine::new(plan.clone(), Device::Cpu)?;
        let mut context = engine.context()?;
        let mut all: Vec<Vec<Tensor>> = Vec::with_capacity(self.samples.len());
        for sample in &self.samples {
            let outputs = context.run_values(&in_order(plan, sample)?)?;
            let floats = outputs.iter().filter_map(Value::as_tensor).filter(|tensor| tensor.dtype() == DType::F32);
            all.push(floats.cloned().collect());
        }
        Ok(all.first().is_some_and(|first| !first.is_empty()).then_some(all))
    }

    /// The error of a plan of integers.
    fn error(&self, calibration: &Calibration, exact: &[Vec<Tensor>]) -> Result<Option<f64>, Error> {
        let Some(plan) = self.in_integers(calibration)? else { return Ok(None) };
        match self.outputs(&plan)? {
            Some(outputs) => worst(&outputs, exact),
            None => Ok(None),
        }
    }

    /// The calibration with the nodes in floats besides that stand out by it; `None` where none does.
    fn without_the_worst(&self, calibration: &Calibration) -> Result<Option<Calibration>, Error> {
        let Some(plan) = self.in_integers(calibration)? else { return Ok(None) };
        let accuracy = Accuracy::of(plan).against(self.model.clone()).device(Device::Cpu);
        let found = accuracy.run(self.samples.iter().cloned().map(Ok))?;
        let mut wide = calibration.wide.clone();
        wide.extend(found.pins().into_iter().filter(|name| !calibration.wide.contains(name)));
        Ok((wide.len() > calibration.wide.len()).then(|| Calibration { wide, ..calibration.clone() }))
    }
}

/// A sample's tensors in the order of the plan's inputs.
fn in_order(plan: &Plan, sample: &Sample) -> Result<Vec<Value>, Error> {
    let program = &plan.record().program;
    let one = |&input: &u32| {
        let name = &program.values[input as usize].name;
        let given = sample.inputs.iter().find(|(known, _)| known == name);
        let message = || format!("a sample has no value for `{name}`");
        given.map(|(_, tensor)| Value::from(tensor.clone())).ok_or_else(|| Error::new(ErrorKind::WrongInputs, message()))
    };
    program.inputs.iter().map(one).collect()
}

/// The relative L2 error, over all samples, of the output that has the largest; `None` where outputs differ in their sizes, as
/// those that a comparison of scores selects, or where one is not finite.
fn worst(outputs: &[Vec<Tensor>], exact: &[Vec<Tensor>]) -> Result<Option<f64>, Error> {
    let n_outputs = exact.first().map_or(0, Vec::len);
    let mut worst: f64 = 0.0;
    for at in 0..n_outputs {
        let (mut off, mut all) = (0.0, 0.0);
        for (got, want) in outputs.iter().zip(exact) {
            let (Some(got), Some(want)) = (got.get(at), want.get(at)) else { return Ok(None) };
            if got.shape() != want.shape() {
                return Ok(None);
            }
            for (got, want) in got.elements::<f32>()?.iter().zip(want.elements::<f32>()?.iter()) {
                off += f64::from(got - want).powi(2);
                all += f64::from(*want).powi(2);
            }
        }
        let error = if off == 0.0 { 0.0 } else { (off / all).sqrt() };
        if !error.is_finite() {
            return Ok(None);
        }
        worst = worst.max(error);
    }
    Ok(Some(worst))
}
