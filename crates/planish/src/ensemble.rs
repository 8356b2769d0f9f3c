//! `Ensemble`: several models asked the same question, and one answer.

use std::collections::BTreeMap;

use planish_runtime::PortInfo;
use planish_tensor::Tensor;

use crate::{Error, ErrorKind, Item, NamedTensors, Session};

/// The axis of an output that has a place for each class, wherever there is a batch before it.
const CLASS_AXIS: usize = 1;

/// How many answers become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Combine {
    Mean,
    Vote,
}

/// Several sessions that get the same inputs and whose outputs become one: their mean, or what most of them say.
///
/// ```
/// # #[cfg(feature = "build")] {
/// use planish::{Builder, Device, Ensemble, Engine, Session, Tensor};
///
/// # let session = |scale: f32| -> Result<Session, Box<dyn std::error::Error>> {
/// #     let mut net = planish::NetworkBuilder::new("scores");
/// #     let x = net.input("x", planish::DType::F32, "batch,3")?;
/// #     let y = net.mul(x, scale)?;
/// #     net.output("scores", y)?;
/// #     let plan = Builder::from_network(net)?.tune_level(0).threads(1).build()?;
/// #     Ok(Session::new(&Engine::new(plan, Device::Auto)?)?)
/// # };
/// let x = Tensor::new(&[1, 3], vec![1f32, 2., 3.])?;
/// let mut ensemble = Ensemble::mean(vec![session(1.0)?, session(2.0)?, session(-6.0)?])?;
/// assert_eq!(ensemble.infer(&x)?.get("scores"), Some(&Tensor::new(&[1, 3], vec![-1f32, -2., -3.])?));
///
/// let mut ensemble = Ensemble::vote(vec![session(1.0)?, session(2.0)?, session(-6.0)?])?;
/// assert_eq!(ensemble.infer(&x)?.get("scores"), Some(&Tensor::new(&[1], vec![2i64])?)); // two of three say class 2
/// let items = vec![Tensor::vector(vec![1f32, 2., 3.]); 5];
/// let labels = ensemble.infer_all(&items)?;
/// assert_eq!((labels.len(), labels[4].get("scores")), (5, Some(&Tensor::scalar(2i64))));
/// ensemble.members_mut().iter_mut().try_for_each(|session| session.warm_up(2))?;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Ensemble {
    members: Vec<Session>,
    combine: Combine,
    /// Of the outputs with a batch axis, where it is known.
    output_ranks: Vec<Option<usize>>,
}

impl Ensemble {
    /// The mean of the members' outputs, which must be floats of the same sizes; summed in `f64`, given in the type of
    /// the first member's.
    pub fn mean(members: Vec<Session>) -> Result<Ensemble, Error> {
        Ensemble::new(members, Combine::Mean)
    }

    /// What most members say. Of floats, each has scores with the classes along axis 1 (axis 0 of a list of scores), a
    /// member says its best class, and the result is the classes' numbers (`i64`) without that axis; where as many say
    /// one class as another, the higher sum of scores decides. Of integers, each element is a vote for its value, and
    /// the smallest wins among equals.
    pub fn vote(members: Vec<Session>) -> Result<Ensemble, Error> {
        Ensemble::new(members, Combine::Vote)
    }

    fn new(members: Vec<Session>, combine: Combine) -> Result<Ensemble, Error> {
        let Some(first) = members.first() else {
            return Err(Error::new(ErrorKind::BadOption, "an ensemble needs at least one session"));
        };
        let n_outputs = |session: &Session| session.engine().outputs().len();
        if let Some(at) = members.iter().position(|member| n_outputs(member) != n_outputs(first)) {
            let (other, own) = (n_outputs(&members[at]), n_outputs(first));
            let message = format!("member {at} of the ensemble has {other} outputs, member 0 has {own}");
            return Err(Error::new(ErrorKind::BadOption, message));
        }
        let rank = |port: &PortInfo| Some(port.ty.as_tensor()?.shape.as_ref()?.rank());
        let output_ranks = first.engine().outputs().iter().map(rank).collect();
        Ok(Ensemble { members, combine, output_ranks })
    }

    /// The sessions, in the order in which they were given.
    pub fn members_mut(&mut self) -> &mut [Session] {
        &mut self.members
    }

    /// Runs all members on the same inputs.
    pub fn infer(&mut self, inputs: &(impl Item + ?Sized)) -> Result<NamedTensors, Error> {
        let mut answers = Vec::with_capacity(self.members.len());
        for (at, member) in self.members.iter_mut().enumerate() {
            answers.push(member.infer(inputs).map_err(|error| within(at, error))?);
        }
        self.combined(&answers)
    }

    /// Runs all members on a list of items in batches, as [`Session::infer_all`] does.
    pub fn infer_all<I: Item>(&mut self, items: &[I]) -> Result<Vec<NamedTensors>, Error> {
        let mut answers = Vec::with_capacity(self.members.len());
        for (at, member) in self.members.iter_mut().enumerate() {
            answers.push(member.infer_all(items).map_err(|error| within(at, error))?.into_iter());
        }
        let of_one = |_| {
            let answers: Vec<NamedTensors> = answers.iter_mut().filter_map(Iterator::next).collect();
            self.combined(&answers)
        };
        (0..items.len()).map(of_one).collect()
    }

    /// One answer of all members', output by output.
    fn combined(&self, answers: &[NamedTensors]) -> Result<NamedTensors, Error> {
        let names = answers[0].names();
        let mut tensors = Vec::with_capacity(names.len());
        for (idx, name) in names.iter().enumerate() {
            let all: Vec<&Tensor> = answers.iter().map(|answer| &answer.tensors()[idx]).collect();
            let of = |tensor: &Tensor| (tensor.dtype(), tensor.shape().to_vec());
            if let Some(at) = all.iter().position(|tensor| of(tensor) != of(all[0])) {
                let ((own, dims), (first, first_dims)) = (of(all[at]), of(all[0]));
                let message = format!(
                    "output `{name}` of member {at} of the ensemble is {own} of {dims:?}, that of member 0 {first} of \
                     {first_dims:?}"
                );
                return Err(Error::new(ErrorKind::WrongShape, message));
            }
            // Results of items without a batch axis have their classes one axis earlier.
            let n_missing = self.output_ranks[idx].map_or(0, |rank| rank.saturating_sub(all[0].rank()));
            tensors.push(match self.combine {
                Combine::Mean => mean(name, &all)?,
                Combine::Vote if all[0].dtype().is_float() => {
                    best_classes(name, &all, CLASS_AXIS.saturating_sub(n_missing))?
                }
                Combine::Vote => most_frequent(&all)?,
            });
        }
        Ok(answers[0].with_tensors(tensors))
    }
}

fn within(at: usize, error: Error) -> Error {
    error.within(format!("member {at} of the ensemble"))
}

fn mean(name: &str, all: &[&Tensor]) -> Result<Tensor, Error> {
    let dtype = all[0].dtype();
    if !dtype.is_float() {
        let message =
            format!("output `{name}` is {dtype}, which has no mean; `Ensemble::vote` takes integers");
        return Err(Error::new(ErrorKind::WrongType, message));
    }
    let mut sums = vec![0.0; all[0].len()];
    for tensor in all {
        sums.iter_mut().zip(tensor.to_f64s()).for_each(|(sum, value)| *sum += value);
    }
    sums.iter_mut().for_each(|sum| *sum /= all.len() as f64);
    Ok(Tensor::from_f64s(dtype, all[0].shape(), &sums)?)
}

/// The class that most members give the best score, at every place of the other axes.
fn best_classes(name: &str, all: &[&Tensor], class_axis: usize) -> Result<Tensor, Error> {
    let shape = all[0].shape();
    let axis = class_axis.min(shape.len().saturating_sub(1));
    let Some(&n_classes) = shape.get(axis).filter(|&&n| n > 0) else {
        let message = format!("output `{name}` of sizes {shape:?} has no axis of classes to vote for");
        return Err(Error::new(ErrorKind::WrongShape, message));
    };
    let inner: usize = shape[axis + 1..].iter().product();
    let outer: usize = shape[..axis].iter().product();
    let scores: Vec<Vec<f64>> = all.iter().map(|tensor| tensor.to_f64s()).collect();
    let mut labels = Vec::with_capacity(outer * inner);
    for (at, step) in (0..outer).flat_map(|outer| (0..inner).map(move |inner| (outer, inner))) {
        let place = |class: usize| (at * n_classes + class) * inner + step;
        let mut votes = vec![(0usize, 0f64); n_classes];
        for scores in &scores {
            let best = (0..n_classes)
                .reduce(|best, class| if scores[place(class)] > scores[place(best)] { class } else { best });
            votes[best.unwrap_or(0)].0 += 1;
            votes.iter_mut().enumerate().for_each(|(class, vote)| vote.1 += scores[place(class)]);
        }
        let better = |a: usize, b: usize| if votes[b] > votes[a] { b } else { a };
        labels.push((0..n_classes).reduce(better).unwrap_or(0) as i64);
    }
    let dims = [&shape[..axis], &shape[axis + 1..]].concat();
    Ok(Tensor::new(&dims, labels)?)
}

/// The value that most members have, at every place.
fn most_frequent(all: &[&Tensor]) -> Result<Tensor, Error> {
    let values: Vec<Vec<i64>> = all.iter().map(|tensor| tensor.to_i64s()).collect();
    let of_place = |place: usize| {
        let mut votes = BTreeMap::new();
        values.iter().for_each(|values| *votes.entry(values[place]).or_insert(0usize) += 1);
        let most = votes.values().copied().max().unwrap_or(0);
        votes.into_iter().find(|&(_, n)| n == most).map_or(0, |(value, _)| value)
    };
    let labels: Vec<i64> = (0..all[0].len()).map(of_place).collect();
    Ok(Tensor::from_i64s(all[0].dtype(), all[0].shape(), &labels)?)
}

#[cfg(test)]
mod tests {
    use planish_tensor::DType;

    use super::*;

    fn scores(values: [f32; 6]) -> Tensor {
        Tensor::new(&[1, 3, 2], values.to_vec()).unwrap()
    }

    #[test]
    fn the_class_of_most_members_wins_and_scores_decide_among_equals() {
        // Two places of three classes: at the first, classes 0, 0, 2; at the second 1, 2, 0 with the best sum for 2.
        let a = scores([9., 1., 1., 5., 0., 0.]);
        let b = scores([3., 0., 2., 1., 0., 9.]);
        let c = scores([0., 4., 1., 0., 50., 3.]);
        let labels = best_classes("y", &[&a, &b, &c], CLASS_AXIS).unwrap();
        assert_eq!(labels, Tensor::new(&[1, 2], vec![0i64, 2]).unwrap());
        // Without a batch axis.
        let flat = |values: &[f32]| Tensor::vector(values.to_vec());
        let labels = best_classes("y", &[&flat(&[1., 2.]), &flat(&[5., 0.])], 0).unwrap();
        assert_eq!(labels, Tensor::scalar(0i64));
        assert!(best_classes("y", &[&Tensor::scalar(1f32)], 0).is_err());
    }

    #[test]
    fn integers_are_votes_themselves() {
        let list = |values: [u8; 4]| Tensor::vector(values.to_vec());
        let (a, b, c) = (list([1, 2, 3, 7]), list([1, 2, 2, 5]), list([0, 9, 1, 6]));
        assert_eq!(most_frequent(&[&a, &b, &c]).unwrap(), list([1, 2, 1, 5]));
        let error = mean("y", &[&a, &b]).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::WrongType);
    }

    #[test]
    fn means_are_taken_in_f64() {
        let all = [1e8f32, 1.0, -1e8].map(|value| Tensor::vector(vec![value]));
        let mean = mean("y", &all.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(mean, Tensor::vector(vec![1f32 / 3.0]));
        assert_eq!(mean.dtype(), DType::F32);
    }
}
