//! `Metrics`: how far tensors are from those that were wanted, summed up over samples.

use planish_tensor::Tensor;

/// Classes that top-5 agreement looks at.
const TOP: usize = 5;

/// How far some tensors are from those that were wanted: fed sample by sample, asked at the end.
///
/// ```
/// use planish::{Metrics, Tensor};
///
/// let want = Tensor::new(&[1, 4], vec![0f32, 1.0, 4.0, 2.0])?;
/// let got = Tensor::new(&[1, 4], vec![0f32, 1.0, 3.0, 2.0])?;
/// let mut metrics = Metrics::default();
/// metrics.add(&got, &want);
/// assert_eq!((metrics.max_abs(), metrics.mean_abs()), (1.0, 0.25));
/// assert_eq!(metrics.relative_l2(), (1.0f64 / 21.0).sqrt());
/// assert!((metrics.psnr() - 20.0 * (4.0f64 / 0.5).log10()).abs() < 1e-9);     // the peak is the range of what was wanted
/// assert!((metrics.snr() - 10.0 * 21f64.log10()).abs() < 1e-9 && metrics.cosine() > 0.98);
/// assert_eq!((metrics.top1(), metrics.top5()), (Some(1.0), None));            // of four classes none is beyond five
/// let worst = metrics.worst().unwrap();
/// assert_eq!((worst.sample, &worst.index[..], worst.got, worst.want), (0, &[0, 2][..], 3.0, 4.0));
/// assert_eq!((metrics.n_elements(), metrics.n_nan(), metrics.n_infinite()), (4, 0, 0));
/// assert!(!metrics.has_other_shape() && metrics.n_not_finite() == 0);
/// # Ok::<(), planish::TensorError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Metrics {
    n_samples: usize,
    n_elements: u64,
    /// Sums over elements that are finite on both sides.
    absolute: f64,
    error: f64,
    norm: f64,
    low: f64,
    high: f64,
    max_abs: f64,
    worst: Option<Worst>,
    /// Of samples.
    cosines: f64,
    top1: Share,
    top5: Share,
    n_nan: u64,
    n_infinite: u64,
    /// Elements that are finite on one side only, or other infinities.
    n_not_finite: u64,
    has_other_shape: bool,
}

/// The element that is farthest off. [`Metrics`] has an example.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Worst {
    /// Of which sample, in the order in which they were added.
    pub sample: usize,
    /// Where in the tensor, an index for each axis.
    pub index: Vec<usize>,
    /// What is there.
    pub got: f64,
    /// What was wanted there.
    pub want: f64,
}

/// Some of several.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Share {
    n: u64,
    of: u64,
}

impl Share {
    fn value(self) -> Option<f64> {
        (self.of > 0).then(|| self.n as f64 / self.of as f64)
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            n_samples: 0,
            n_elements: 0,
            absolute: 0.0,
            error: 0.0,
            norm: 0.0,
            low: f64::INFINITY,
            high: f64::NEG_INFINITY,
            max_abs: 0.0,
            worst: None,
            cosines: 0.0,
            top1: Share::default(),
            top5: Share::default(),
            n_nan: 0,
            n_infinite: 0,
            n_not_finite: 0,
            has_other_shape: false,
        }
    }
}

impl Metrics {
    /// Adds a sample's tensor and what was wanted. A tensor of another shape is infinitely far.
    pub fn add(&mut self, got: &Tensor, want: &Tensor) {
        let sample = self.n_samples;
        self.n_samples += 1;
        if got.shape() != want.shape() {
            self.has_other_shape = true;
            return;
        }
        let (got, values, dims) = (got.to_f64s(), want.to_f64s(), want.shape());
        let (mut dot, mut norm_got, mut norm_want) = (0.0, 0.0, 0.0);
        let mut farthest: Option<usize> = None;
        for (at, (&x, &y)) in got.iter().zip(&values).enumerate() {
            self.n_nan += u64::from(x.is_nan());
            self.n_infinite += u64::from(x.is_infinite());
            dot += x * y;
            norm_got += x * x;
            norm_want += y * y;
            if y.is_finite() {
                self.norm += y * y;
                (self.low, self.high) = (self.low.min(y), self.high.max(y));
            }
            // The same infinity or NaN on both sides is no difference.
            let difference = match (x.is_finite() && y.is_finite(), x == y || (x.is_nan() && y.is_nan())) {
                (_, true) => continue,
                (true, false) => (x - y).abs(),
                (false, false) => {
                    self.n_not_finite += 1;
                    f64::INFINITY
                }
            };
            if difference.is_finite() {
                self.absolute += difference;
                self.error += difference * difference;
            }
            if difference > self.max_abs {
                self.max_abs = difference;
                farthest = Some(at);
            }
        }
        self.n_elements += values.len() as u64;
        if let Some(at) = farthest {
            let index = index_of(at, dims);
            self.worst = Some(Worst { sample, index, got: got[at], want: values[at] });
        }
        let norms = (norm_got * norm_want).sqrt();
        self.cosines += if norms > 0.0 || norms.is_nan() { dot / norms } else { 1.0 };
        self.count_classes(&got, &values, want);
    }

    /// Compares the places of the largest numbers, where the tensor has an axis of classes.
    fn count_classes(&mut self, got: &[f64], values: &[f64], want: &Tensor) {
        if !want.dtype().is_float() {
            return;
        }
        let Some((n_classes, stride)) = classes(want.shape()) else { return };
        for first in rows(values.len(), n_classes, stride) {
            let of = |list: &[f64], class: usize| list[first + class * stride];
            let largest = |list: &[f64]| {
                (0..n_classes).max_by(|&a, &b| of(list, a).total_cmp(&of(list, b)).then(b.cmp(&a)))
            };
            let Some(class) = largest(values) else { continue };
            self.top1.of += 1;
            self.top1.n += u64::from(largest(got) == Some(class));
            if n_classes > TOP {
                self.top5.of += 1;
                self.top5.n += u64::from(rank(n_classes, class, &|other| of(got, other)) < TOP);
            }
        }
    }

    fn is_far(&self) -> bool {
        self.n_not_finite > 0 || self.has_other_shape
    }

    /// The largest absolute difference.
    pub fn max_abs(&self) -> f64 {
        if self.is_far() { f64::INFINITY } else { self.max_abs }
    }

    /// The mean of the absolute differences (MAE).
    pub fn mean_abs(&self) -> f64 {
        if self.is_far() { f64::INFINITY } else { self.absolute / self.n_elements.max(1) as f64 }
    }

    /// The norm of the difference over the norm of what was wanted.
    pub fn relative_l2(&self) -> f64 {
        match self.error {
            _ if self.is_far() => f64::INFINITY,
            0.0 => 0.0,
            error => (error / self.norm.max(f64::MIN_POSITIVE)).sqrt(),
        }
    }

    /// Peak signal-to-noise ratio in dB, the peak being the range of what was wanted; infinite where nothing differs.
    pub fn psnr(&self) -> f64 {
        match self.error {
            _ if self.is_far() => f64::NEG_INFINITY,
            0.0 => f64::INFINITY,
            error => 20.0 * ((self.high - self.low) / (error / self.n_elements as f64).sqrt()).log10(),
        }
    }

    /// Signal-to-noise ratio in dB; infinite where nothing differs.
    pub fn snr(&self) -> f64 {
        -20.0 * self.relative_l2().log10()
    }

    /// The cosine of the angle between a sample's tensor and what was wanted, in the mean of the samples.
    pub fn cosine(&self) -> f64 {
        if self.has_other_shape { f64::NAN } else { self.cosines / self.n_samples.max(1) as f64 }
    }

    /// The share of rows whose largest number is in the same place; `None` where there is no axis of classes: axis 1 of
    /// images and volumes (rank 4 and more), the last one of others.
    pub fn top1(&self) -> Option<f64> {
        self.top1.value()
    }

    /// The share of rows whose largest number is wanted where one of the five largest is; `None` with five classes or less.
    pub fn top5(&self) -> Option<f64> {
        self.top5.value()
    }

    /// The element that is farthest off; `None` where nothing differs.
    pub fn worst(&self) -> Option<&Worst> {
        self.worst.as_ref()
    }

    /// Elements that were compared.
    pub fn n_elements(&self) -> u64 {
        self.n_elements
    }

    /// Elements that are not a number, wanted or not.
    pub fn n_nan(&self) -> u64 {
        self.n_nan
    }

    /// Elements that are infinite, wanted or not.
    pub fn n_infinite(&self) -> u64 {
        self.n_infinite
    }

    /// Elements that are NaN or infinite on one side and something else on the other.
    pub fn n_not_finite(&self) -> u64 {
        self.n_not_finite
    }

    /// Whether a tensor had another shape than the one that was wanted.
    pub fn has_other_shape(&self) -> bool {
        self.has_other_shape
    }
}

/// How many of some rows have their label among the largest numbers: for the accuracy on a data set.
///
/// ```
/// use planish::{LabelCount, Tensor};
///
/// let mut count = LabelCount::default();
/// count.add(&Tensor::new(&[2, 3], vec![0f32, 5.0, 1.0, 7.0, 0.0, 2.0])?, &[1, 2]);
/// assert_eq!((count.n_rows, count.top1, count.top5), (2, 1, 2));
/// # Ok::<(), planish::TensorError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LabelCount {
    /// Rows that were looked at.
    pub n_rows: usize,
    /// Those whose largest number is where the label says.
    pub top1: usize,
    /// Those that have one of the five largest there.
    pub top5: usize,
}

impl LabelCount {
    /// Adds scores, a row for each label.
    pub fn add(&mut self, scores: &Tensor, labels: &[i64]) {
        let values = scores.to_f64s();
        let n_classes = values.len() / labels.len().max(1);
        self.n_rows += labels.len();
        for (row, &label) in values.chunks_exact(n_classes.max(1)).zip(labels) {
            let Some(label) = usize::try_from(label).ok().filter(|&label| label < n_classes) else {
                continue;
            };
            let rank = rank(n_classes, label, &|class| row[class]);
            self.top1 += usize::from(rank == 0);
            self.top5 += usize::from(rank < TOP);
        }
    }
}

/// How many classes have a larger number, or the same and come before.
fn rank(n_classes: usize, class: usize, of: &dyn Fn(usize) -> f64) -> usize {
    let own = of(class);
    let is_before = |other: &usize| match of(*other).total_cmp(&own) {
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Equal => *other < class,
        std::cmp::Ordering::Less => false,
    };
    (0..n_classes).filter(is_before).count()
}

/// The number of classes of a tensor of scores, and how many elements lie from one to the next.
fn classes(dims: &[usize]) -> Option<(usize, usize)> {
    let axis = if dims.len() >= 4 { 1 } else { dims.len().checked_sub(1)? };
    let stride = dims[axis + 1..].iter().product();
    (dims[axis] > 1).then_some((dims[axis], stride))
}

/// Where rows of classes begin.
fn rows(n_elements: usize, n_classes: usize, stride: usize) -> impl Iterator<Item = usize> {
    let block = n_classes * stride;
    (0..n_elements.checked_div(block).unwrap_or(0))
        .flat_map(move |idx| (0..stride).map(move |at| idx * block + at))
}

/// The place of an element, an index for each axis.
fn index_of(mut at: usize, dims: &[usize]) -> Vec<usize> {
    let mut index = vec![0; dims.len()];
    for (place, &size) in index.iter_mut().zip(dims).rev() {
        (*place, at) = (at % size.max(1), at / size.max(1));
    }
    index
}

/// Smallest, largest and mean value of a tensor, and how many are no numbers.
///
/// ```
/// use planish::{Tensor, ValueRange};
///
/// let range = ValueRange::of(&Tensor::new(&[4], vec![1.0f32, -2.0, f32::NAN, 4.0])?).expect("there are numbers");
/// assert_eq!((range.min, range.max, range.mean, range.n_nan), (-2.0, 4.0, 1.0, 1));
/// assert_eq!(ValueRange::of(&Tensor::new(&[1], vec![f32::NAN])?), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ValueRange {
    /// The smallest number.
    pub min: f64,
    /// The largest number.
    pub max: f64,
    /// The mean of the numbers.
    pub mean: f64,
    /// Elements that are NaN.
    pub n_nan: usize,
}

impl ValueRange {
    /// `None` where no element is a number.
    pub fn of(tensor: &Tensor) -> Option<ValueRange> {
        let values = tensor.to_f64s();
        let numbers = || values.iter().copied().filter(|value| !value.is_nan());
        let n = numbers().count();
        (n > 0).then(|| ValueRange {
            min: numbers().fold(f64::INFINITY, f64::min),
            max: numbers().fold(f64::NEG_INFINITY, f64::max),
            mean: numbers().sum::<f64>() / n as f64,
            n_nan: values.len() - n,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(dims: &[usize], got: &[f32], want: &[f32]) -> Metrics {
        let tensor = |values: &[f32]| Tensor::new(dims, values.to_vec()).unwrap();
        let mut metrics = Metrics::default();
        metrics.add(&tensor(got), &tensor(want));
        metrics
    }

    #[test]
    fn equal_tensors_are_not_apart_whatever_they_hold() {
        let odd = [f32::NAN, f32::INFINITY, -1.0];
        let same = metrics(&[3], &odd, &odd);
        assert_eq!((same.max_abs(), same.relative_l2(), same.psnr()), (0.0, 0.0, f64::INFINITY));
        assert_eq!((same.n_nan(), same.n_infinite(), same.n_not_finite()), (1, 1, 0));
        let none = metrics(&[0], &[], &[]);
        assert_eq!((none.max_abs(), none.mean_abs(), none.cosine()), (0.0, 0.0, 1.0));
    }

    #[test]
    fn numbers_that_became_none_are_infinitely_far() {
        for (got, want) in [(f32::NAN, 1.0), (1.0, f32::NAN), (f32::INFINITY, f32::NEG_INFINITY)] {
            let far = metrics(&[2], &[got, 0.0], &[want, 0.0]);
            assert_eq!(
                (far.relative_l2(), far.psnr(), far.n_not_finite()),
                (f64::INFINITY, f64::NEG_INFINITY, 1)
            );
            assert_eq!(far.worst().unwrap().index, [0]);
        }
        let mut other = Metrics::default();
        other.add(&Tensor::vector(vec![1f32]), &Tensor::vector(vec![1f32, 2.0]));
        assert!(other.has_other_shape() && other.max_abs() == f64::INFINITY && other.cosine().is_nan());
    }

    #[test]
    fn classes_lie_along_the_second_axis_of_images_and_the_last_of_others() {
        // Two pixels, three classes: the first pixel agrees.
        let want = [1.0, 0.0, 0.0, 5.0, 0.0, 0.0];
        let got = [1.0, 9.0, 0.0, 5.0, 0.0, 0.0];
        assert_eq!(metrics(&[1, 3, 1, 2], &got, &want).top1(), Some(0.5));
        assert_eq!(metrics(&[1, 6], &got, &want).top1(), Some(0.0));
        assert_eq!(metrics(&[1, 6], &got, &want).top5(), Some(1.0));
        assert_eq!(metrics(&[6, 1], &got, &want).top1(), None);
        let mut count = LabelCount::default();
        count.add(&Tensor::new(&[1, 6], got.to_vec()).unwrap(), &[3]);
        count.add(&Tensor::new(&[1, 6], got.to_vec()).unwrap(), &[-1]);
        assert_eq!((count.n_rows, count.top1, count.top5), (2, 0, 1));
    }
}
