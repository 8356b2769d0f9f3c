//! One step on the tensors that it read and made: at every element against the reference or against other kernels, and
//! against the reference at points. What is done was decided by counts before; here it is done, on any thread.

use std::borrow::Cow;

use planish_kernel::{Backend, Region, Tactic};
use planish_op::Value;
use planish_plan::{Check, Outcome, Step};
use planish_tensor::{Bytes, DType, Tensor};

use super::points::{
    Allowance, Expected, expected, expected_everywhere, flat, point_of, sample, widened, widened_region,
};
use super::rounded::Posed;
use super::rows_of_region::cut_rows;
use super::skipped;
use super::tolerance::{Errs, allowance};
use super::witness::{suspects, witness};
use super::work::Work;

/// Values are computed once, magnitudes of terms another time.
pub(super) const REFERENCE_PASSES: u64 = 2;
/// Nodes in front of the last layer of a step are evaluated whole; beyond this a few rows of the batch must do.
const MAX_INNER: u64 = 100_000_000;
/// Steps are compared several at once, each on one thread.
const WITNESS_THREADS: usize = 1;

/// How a step is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// Every element with the reference.
    Everywhere,
    /// Every element with other kernels, and some with the reference.
    Witness,
    /// Some elements with the reference.
    Points,
}

/// A step that ran.
pub(super) struct Job<'a> {
    pub(super) step: &'a Step,
    pub(super) tactic: Option<&'a Tactic>,
    /// How exact the tactic is.
    pub(super) errs: Errs,
    /// What the tactic rounds factors of f32 to.
    pub(super) rounds: Option<DType>,
    pub(super) inputs: Vec<Option<Tensor>>,
    /// Which inputs are weights, and may be packed.
    pub(super) is_weight: Vec<bool>,
    pub(super) outputs: Vec<Option<Tensor>>,
    pub(super) work: Option<Work>,
    pub(super) how: How,
    /// Of the places that are looked at.
    pub(super) seed: u64,
}

/// Where an output of a step is looked at.
struct Look<'a> {
    output: usize,
    points: &'a [Vec<usize>],
    /// Those of the points that other kernels say something else of, the worst first.
    suspects: &'a [Vec<usize>],
    got: &'a Tensor,
    allowance: Allowance,
}

impl Job<'_> {
    /// Compares the step; the subject of the check says how.
    pub(super) fn compare(&self, other_kernels: &dyn Backend) -> Check {
        let inputs: Vec<Option<Value>> =
            self.inputs.iter().map(|input| input.as_ref().map(aligned).map(Value::Tensor)).collect();
        let posed = Posed { region: self.step.region.clone(), inputs, is_weight: self.is_weight.clone() };
        let Posed { region, inputs, is_weight } = match self.rounds {
            Some(dtype) => posed.with_rounded_factors(dtype),
            None => posed,
        };
        let tactic = self.tactic.map_or("", |tactic| tactic.name.as_str());
        let found = (self.how == How::Witness).then(|| {
            let region = widened_region(&region);
            let inputs: Vec<Option<Value>> = inputs.iter().map(widened).collect();
            witness(other_kernels, &region, &inputs, &is_weight, tactic, WITNESS_THREADS).ok()
        });
        let (others, by) = found.flatten().map_or_else(Default::default, |found| (found.outputs, found.by));
        let is_witnessed = !others.is_empty();
        let mut tally = Tally::default();
        for (output, got) in self.outputs.iter().enumerate() {
            let Some(got) = got else { continue };
            let allowance = allowance(self.step, self.errs, &inputs, got.dtype());
            let outcome = if self.how == How::Everywhere {
                expected_everywhere(&region, &inputs, output, allowance).and_then(|expected| {
                    tally.compare(&got.to_f64s(), &expected, &|at| point_of(at, got.shape()))
                })
            } else {
                let other = others.get(output).filter(|other| other.shape() == got.shape());
                let suspects: Vec<Vec<usize>> = other.map_or(Vec::new(), |other| {
                    suspects(got, other).into_iter().map(|at| point_of(at, got.shape())).collect()
                });
                let points = points_to_check(got, &suspects, self.seed, is_witnessed);
                let look = Look { output, points: &points, suspects: &suspects, got, allowance };
                self.at_points(&region, &inputs, &look, &mut tally)
            };
            match outcome {
                Ok(true) => {}
                Ok(false) => break,
                // What the reference cannot compute at points says nothing about the kernel.
                Err(why) => return skipped("", why),
            }
        }
        let mut subject = match (self.how, is_witnessed) {
            (How::Everywhere, _) => ", every element".to_string(),
            (_, true) => format!(", every element against {}", by.join(" and ")),
            (_, false) => ", at points".to_string(),
        };
        if !tactic.is_empty() {
            subject = format!(" by {tactic}{subject}");
        }
        tally.check(subject)
    }

    /// Compares an output with the reference at points; `Ok(false)` once one is wrong.
    fn at_points(
        &self,
        region: &Region,
        inputs: &[Option<Value>],
        look: &Look<'_>,
        tally: &mut Tally,
    ) -> Result<bool, String> {
        let Look { output, points, suspects, got, allowance } = *look;
        let is_large = self.work.is_some_and(|work| REFERENCE_PASSES * work.inner > MAX_INNER);
        let cut = is_large.then(|| cut_rows(region, inputs, got.shape(), points, suspects)).flatten();
        let values = Numbers::of(got);
        let pick = |points: &[Vec<usize>]| -> Vec<f64> {
            points.iter().map(|point| values.get(flat(point, got.shape()))).collect()
        };
        let Some(cut) = cut else {
            let expected = expected(region, inputs, output, points, allowance)?;
            return tally.compare(&pick(points), &expected, &|at| points[at].clone());
        };
        for row in cut {
            let expected = expected(region, &row.inputs, output, &row.inner_points, allowance)?;
            if !tally.compare(&pick(&row.points), &expected, &|at| row.points[at].clone())? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The numbers of a tensor; those of f32 are not converted before they are asked for.
enum Numbers<'a> {
    F32(Cow<'a, [f32]>),
    Converted(Vec<f64>),
}

impl Numbers<'_> {
    fn of(tensor: &Tensor) -> Numbers<'_> {
        match tensor.elements::<f32>() {
            Ok(list) => Numbers::F32(list),
            Err(_) => Numbers::Converted(tensor.to_f64s()),
        }
    }

    fn get(&self, at: usize) -> f64 {
        match self {
            Numbers::F32(list) => f64::from(list[at]),
            Numbers::Converted(list) => list[at],
        }
    }

    /// The places of the largest number, the smallest, the first NaN and the first infinity.
    fn extremes(&self) -> [Option<usize>; 4] {
        match self {
            Numbers::F32(list) => extremes(list.iter().map(|&x| f64::from(x))),
            Numbers::Converted(list) => extremes(list.iter().copied()),
        }
    }
}

fn extremes(numbers: impl Iterator<Item = f64>) -> [Option<usize>; 4] {
    let (mut most, mut least) = (f64::NEG_INFINITY, f64::INFINITY);
    let mut found = [None; 4];
    for (at, x) in numbers.enumerate() {
        if x.is_finite() {
            if x > most {
                (most, found[0]) = (x, Some(at));
            }
            if x < least {
                (least, found[1]) = (x, Some(at));
            }
        } else {
            let place = if x.is_nan() { 2 } else { 3 };
            found[place] = found[place].or(Some(at));
        }
    }
    found
}

/// A weight at an address that its type allows: one in a mapped file may lie anywhere, and the reference would copy all
/// of it for every point.
fn aligned(weight: &Tensor) -> Tensor {
    let bytes = weight.bytes();
    if bytes.as_ptr().addr().is_multiple_of(size_of::<u64>()) {
        return weight.clone();
    }
    let copied = Bytes::from_vec(bytes.to_vec());
    Tensor::from_bytes(weight.dtype(), weight.shape(), copied).unwrap_or_else(|_| weight.clone())
}

/// Where an output is compared with the reference: sampled places, its extremes, and where other kernels say something
/// else.
fn points_to_check(got: &Tensor, suspects: &[Vec<usize>], seed: u64, besides: bool) -> Vec<Vec<usize>> {
    let mut points = sample(got.shape(), seed, besides);
    let extremes = Numbers::of(got).extremes();
    points.extend(extremes.into_iter().flatten().map(|at| point_of(at, got.shape())));
    points.extend_from_slice(suspects);
    points.sort_unstable();
    points.dedup();
    points
}

/// What was compared of a step so far.
#[derive(Default)]
struct Tally {
    n_points: u64,
    worst: f64,
    failure: Option<String>,
}

impl Tally {
    /// Compares numbers with what was expected; `Ok(false)` once one is wrong.
    fn compare(
        &mut self,
        got: &[f64],
        expected: &Expected,
        point: &dyn Fn(usize) -> Vec<usize>,
    ) -> Result<bool, String> {
        if got.len() != expected.values.len() {
            return Err(format!("{} elements instead of {}", got.len(), expected.values.len()));
        }
        for (at, ((got, want), bound)) in got.iter().zip(&expected.values).zip(&expected.bounds).enumerate() {
            self.n_points += 1;
            let same = got == want || (got.is_nan() && want.is_nan());
            let share = if same { 0.0 } else { (got - want).abs() / bound.max(f64::MIN_POSITIVE) };
            // A NaN is as wrong as can be.
            if share.is_nan() || share > 1.0 {
                self.worst = if share.is_nan() { f64::INFINITY } else { share };
                self.failure = Some(format!("{got:e} instead of {want:e} at {:?}", point(at)));
                return Ok(false);
            }
            self.worst = self.worst.max(share);
        }
        Ok(true)
    }

    fn check(self, subject: String) -> Check {
        let outcome = self.failure.map_or(Outcome::Passed, Outcome::Failed);
        Check { subject, n_points: self.n_points, worst: self.worst, outcome }
    }
}
