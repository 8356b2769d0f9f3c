//! A calibration chosen by what INT8 does to the outputs: which calibrator, whether channels are evened out, and which nodes
//! read floats.
//!
//! No calibrator is best for all models. One that clips long tails costs a transformer its few large channels (MiniLM's
//! embeddings by entropy: cosine 0.86, by minmax 0.989, with channels evened out 0.994); one that clips nothing costs a
//! network whose values differ from image to image (mesmer_cell_seg: 20 dB by minmax, 34 by entropy). So plans of integers
//! are built by the cost model, run on some of the samples, and held against the plan in floats: by their outputs, and by
//! what a softmax or sigmoid makes these of.

use planish_compile::{BuildOptions, Precision};
use planish_op::Value;
use planish_quantize::{Calibration, Calibrator, Collector, DEFAULT_PERCENTILE, Range};
use planish_tensor::{DType, Tensor};

use super::squashed::squashed;
use super::{CalibrationBuilder, Sample};
use crate::{Accuracy, Builder, Device, Engine, Error, ErrorKind, Model, Plan};

/// Samples that plans are compared on, the first ones.
const N_SAMPLES: usize = 8;
/// Calibrators in the order in which they are preferred.
const CALIBRATORS: [Calibrator; 4] =
    [Calibrator::Entropy, Calibrator::Percentile(DEFAULT_PERCENTILE), Calibrator::Best, Calibrator::MinMax];
/// Another calibrator than the one before it, or channels evened out, must leave at most this part of the error.
const CLEARLY_LESS: f64 = 0.95;
/// Channels are evened out for trial with calibrators whose error is at most so many times the least.
const NEAR: f64 = 1.5;
/// Floats cost time, so they must leave at most this part of the error: 3 dB less.
const WORTH_FLOATS: f64 = 0.7;
/// An error at which nothing is looked for any more, relative L2 of the worst output: 40 dB below it.
const BEARABLE: f64 = 0.01;
/// How often nodes that stand out are looked for: behind the worst ones others come up.
const ROUNDS: usize = 2;
/// Samples on which they are looked for: that takes the reference implementation.
const N_LOOKED_INTO: usize = 4;

/// The thresholds of each calibrator.
pub(super) fn candidates(collector: &Collector) -> Vec<(Calibrator, Vec<(String, Range)>)> {
    CALIBRATORS.iter().map(|&calibrator| (calibrator, collector.ranges_by(calibrator))).collect()
}

/// What is tried out, and on what.
pub(super) struct Trials {
    /// With what its last softmax or sigmoid reads as outputs, too.
    model: Model,
    n_logits: usize,
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
        let logits = squashed(builder.model.graph());
        let model = builder.model.clone().with_more_outputs(&logits);
        Trials { model, options, n_logits: logits.len(), samples: Vec::new() }
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
        match self.chosen(&usual, candidates) {
            Ok(Some(settled)) => Ok(settled),
            Ok(None) => Ok(Settled { calibration: usual, note: None }),
            Err(error) if *error.kind() == ErrorKind::Cancelled => Err(error),
            Err(error) => {
                let note = format!(
                    "--calibrator auto took {}, for plans could not be compared: {error}",
                    usual.calibrator
                );
                Ok(Settled { calibration: usual, note: Some(note) })
            }
        }
    }

    fn chosen(
        &self,
        usual: &Calibration,
        candidates: Vec<(Calibrator, Vec<(String, Range)>)>,
    ) -> Result<Option<Settled>, Error> {
        let n_trials = 2 * candidates.len() + ROUNDS;
        let Some(exact) = self.outputs(&self.plan(Precision::Fp32, None)?)? else { return Ok(None) };
        let mut said = Vec::new();
        let mut tried: Vec<(Calibration, f64)> = Vec::new();
        for (at, (calibrator, ranges)) in candidates.into_iter().enumerate() {
            self.tell(at, n_trials);
            let by = Calibration { calibrator: calibrator.to_string(), ranges, ..usual.clone() };
            let Some(error) = self.error(&by, &exact)? else { return Ok(None) };
            said.push(format!("{calibrator} {error:.1e}"));
            tried.push((by, error));
        }
        let least = tried.iter().map(|(_, error)| *error).fold(f64::INFINITY, f64::min);
        if least > BEARABLE {
            let near: Vec<Calibration> =
                tried.iter().filter(|(_, error)| *error <= NEAR * least).map(|(by, _)| by.clone()).collect();
            for (at, by) in near.into_iter().enumerate() {
                self.tell(CALIBRATORS.len() + at, n_trials);
                let evened = Calibration { equalize: true, ..by };
                if let Some(error) = self.error(&evened, &exact)? {
                    said.push(format!("{} with channels evened out {error:.1e}", evened.calibrator));
                    tried.push((evened, error));
                }
            }
        }
        let better = |best: (Calibration, f64), next: (Calibration, f64)| {
            if next.1 < CLEARLY_LESS * best.1 { next } else { best }
        };
        let Some((mut calibration, mut error)) = tried.into_iter().reduce(better) else { return Ok(None) };
        for round in 0..ROUNDS {
            if error <= BEARABLE {
                break;
            }
            self.tell(2 * CALIBRATORS.len() + round, n_trials);
            let Some(wider) = self.without_the_worst(&calibration)? else { break };
            let Some(less) = self.error(&wider, &exact)?.filter(|less| *less < WORTH_FLOATS * error) else {
                break;
            };
            said.push(format!("with {} nodes in floats {less:.1e}", wider.wide.len()));
            (calibration, error) = (wider, less);
        }
        let (chosen, on) = (&calibration.calibrator, self.samples.len());
        let of = if self.n_logits == 0 { "" } else { " or of what its softmax or sigmoid reads" };
        let note = format!(
            "--calibrator auto took {chosen}: relative L2 error of the worst output{of} on {on} samples by {}",
            said.join(", ")
        );
        Ok(Some(Settled { calibration, note: Some(note) }))
    }

    fn tell(&self, done: usize, of: usize) {
        if let Some(progress) = &self.options.progress {
            progress("choose", done, of);
        }
    }

    /// A plan by the cost model, in floats or by a calibration.
    fn plan(&self, precision: Precision, calibration: Option<&Calibration>) -> Result<Plan, Error> {
        let mut builder = Builder::from_model(self.model.clone()).device(Device::Cpu);
        let source = builder.options_mut().source;
        *builder.options_mut() = BuildOptions { source, precision, progress: None, ..self.options.clone() };
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
            let floats =
                outputs.iter().filter_map(Value::as_tensor).filter(|tensor| tensor.dtype() == DType::F32);
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
        let found = accuracy.run(self.samples.iter().take(N_LOOKED_INTO).cloned().map(Ok))?;
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
        given
            .map(|(_, tensor)| Value::from(tensor.clone()))
            .ok_or_else(|| Error::new(ErrorKind::WrongInputs, message()))
    };
    program.inputs.iter().map(one).collect()
}

/// The relative L2 error, over all samples, of the output that has the largest; `None` where outputs differ in their sizes, as
/// those that a comparison of scores selects, or where one is not finite. Infinities that are the same are right: what a
/// softmax reads has them where something is masked.
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
                if got == want && !want.is_finite() {
                    continue;
                }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CalibrationBuilder, NetworkBuilder};

    const WIDTH: usize = 32;
    /// How far one channel reaches beyond the others.
    const OUTLIER: f32 = 4096.0;

    fn tensor(values: &[f32]) -> Tensor {
        Tensor::new(&[1, values.len()], values.to_vec()).unwrap()
    }

    /// Three layers; what the second reads has one large channel, which it takes back.
    fn model() -> Model {
        let mut net = NetworkBuilder::new("outlier");
        let mut random = planish_testing::Random::new(3);
        let mut weights = |scale: &dyn Fn(usize, usize) -> f32| {
            let all = random.list(WIDTH * WIDTH);
            let at = |i: usize| all[i] * scale(i / WIDTH, i % WIDTH);
            Tensor::new(&[WIDTH, WIDTH], (0..WIDTH * WIDTH).map(at).collect()).unwrap()
        };
        let (first, second, third) = (
            weights(&|output, _| if output == 5 { OUTLIER } else { 1.0 }),
            weights(&|_, input| if input == 5 { 1.0 / OUTLIER } else { 1.0 }),
            weights(&|_, _| 1.0),
        );
        let x = net.input("x", DType::F32, "batch,32").unwrap();
        let a = net.linear(x, first, None).unwrap();
        let a = net.relu(a).unwrap();
        let b = net.linear(a, second, None).unwrap();
        let c = net.linear(b, third, None).unwrap();
        net.output("y", c).unwrap();
        Model::from_network(net).unwrap()
    }

    fn samples() -> Vec<Sample> {
        let mut random = planish_testing::Random::new(9);
        let mut sample = || Sample::new(vec![("x".to_string(), tensor(&random.list(WIDTH)))], 1);
        (0..16).map(|_| sample()).collect()
    }

    #[test]
    fn channels_are_evened_out_where_that_is_measured_to_help() {
        let model = model();
        let found = CalibrationBuilder::from_model(model.clone()).threads(1).measured(true);
        let found = found.run(samples().into_iter().map(Ok)).unwrap();
        let (evened, _) = found.advice();
        assert!(evened, "{:?}", found.notes());
        let note = found.notes().last().unwrap();
        assert!(
            note.starts_with("--calibrator auto took ") && note.contains("with channels evened out"),
            "{note}"
        );
        // A build by the file does what the file says.
        let path = std::env::temp_dir().join(format!("planish-measured-{}.calib", std::process::id()));
        found.save(&path).unwrap();
        let read = super::super::Calibration::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut builder = Builder::from_model(model).calibration(&read).unwrap();
        assert!(builder.options_mut().equalize);
    }

    #[test]
    fn what_cannot_be_compared_is_calibrated_as_usual() {
        let mut net = NetworkBuilder::new("no layer");
        let x = net.input("x", DType::F32, "batch,32").unwrap();
        let y = net.mul(x, 3.0).unwrap();
        net.output("y", y).unwrap();
        let found =
            CalibrationBuilder::from_model(Model::from_network(net).unwrap()).threads(1).measured(true);
        let found = found.run(samples().into_iter().map(Ok)).unwrap();
        assert_eq!(found.calibrator(), "entropy");
        assert!(found.notes().iter().all(|note| !note.contains("auto")), "{:?}", found.notes());
    }

    #[test]
    fn the_worst_output_counts() {
        let one = |values: &[f32]| vec![tensor(&[1.0, 2.0]), tensor(values)];
        let exact = [one(&[3.0, 4.0]), one(&[0.0, 0.0])];
        assert_eq!(worst(&exact, &exact).unwrap(), Some(0.0));
        assert_eq!(worst(&[one(&[3.0, 4.0]), one(&[3.0, 4.0])], &exact).unwrap(), Some(1.0));
        assert_eq!(worst(&[one(&[3.0, f32::NAN]), one(&[0.0, 0.0])], &exact).unwrap(), None);
        assert_eq!(worst(&[one(&[3.0, 4.0, 5.0]), one(&[0.0, 0.0])], &exact).unwrap(), None);
        let masked = [vec![tensor(&[3.0, f32::NEG_INFINITY])]];
        assert_eq!(worst(&masked, &masked).unwrap(), Some(0.0));
        assert_eq!(worst(&[vec![tensor(&[3.0, 1.0])]], &masked).unwrap(), None);
    }

    #[test]
    fn what_a_saturated_softmax_reads_counts() {
        let net = |is_squashed: bool| {
            let mut net = NetworkBuilder::new("saturated");
            let mut random = planish_testing::Random::new(5);
            let mut weights = |scale: f32| {
                let all = random.list(WIDTH * WIDTH).into_iter().map(|weight| weight * scale).collect();
                Tensor::new(&[WIDTH, WIDTH], all).unwrap()
            };
            // The first class is far ahead of all others, whatever is read.
            let bias = Tensor::vector((0..WIDTH).map(|at| if at == 0 { 1e4f32 } else { 0.0 }).collect());
            let layers = [weights(1.0), weights(1.0), weights(1.0)];
            let mut x = net.input("x", DType::F32, "batch,32").unwrap();
            for (at, weights) in layers.into_iter().enumerate() {
                x = net.linear(x, weights, (at == 2).then(|| bias.clone().into())).unwrap();
                if at < 2 {
                    x = net.relu(x).unwrap();
                }
            }
            let y = if is_squashed { net.softmax(x, 1).unwrap() } else { x };
            net.output("y", y).unwrap();
            let found = CalibrationBuilder::from_model(Model::from_network(net).unwrap()).threads(1);
            let found = found.measured(true).run(samples().into_iter().map(Ok)).unwrap();
            found.notes().last().unwrap().split(" samples by ").nth(1).unwrap().to_string()
        };
        // By the outputs alone all would be 0.
        assert_eq!(net(true), net(false));
        assert!(!net(true).contains("0.0e0"), "{}", net(true));
    }
}
