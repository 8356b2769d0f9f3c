//! Reference: Einstein summation, two operands at a time.
//!
//! Operands are first reduced to the labels that anybody else needs (diagonals taken, private axes summed).
//! Two of them are then one batched matrix product: labels of both that are needed later are the batch,
//! labels of both that are not are summed, the others are rows and columns.

use planish_op::Einsum;
use planish_op::einsum::{AxisLabels, Equation, Label};
use planish_tensor::Tensor;

use crate::product::{Strips, multiply_all};
use crate::scalar::{Computation, Scalar, in_own_arithmetic};
use crate::{EvalError, EvalResult, Evaluation, nd};

pub(crate) fn einsum(op: &Einsum, cx: &Evaluation<'_>) -> EvalResult {
    let tensors = cx.tensors()?;
    let equation = Equation::parse(&op.equation).map_err(|error| cx.bad_attribute(error.to_string()))?;
    let ranks: Vec<usize> = tensors.iter().map(|tensor| tensor.rank()).collect();
    let labels = equation.label(&ranks).map_err(|error| cx.bad_shape(error.to_string()))?;
    let summation = Summation { cx, sizes: sizes(cx, &tensors, &labels)?, labels, tensors: &tensors };
    Ok(vec![in_own_arithmetic(cx, &tensors, &summation)?.into()])
}

/// The size of every label: one number, apart from ones that broadcast.
fn sizes(
    cx: &Evaluation<'_>,
    tensors: &[&Tensor],
    labels: &AxisLabels,
) -> Result<Vec<(Label, usize)>, EvalError> {
    let mut sizes: Vec<(Label, usize)> = Vec::new();
    for (tensor, labels) in tensors.iter().zip(&labels.inputs) {
        for (axis, label) in labels.iter().enumerate() {
            let size = tensor.shape()[axis];
            let first = labels.iter().position(|other| other == label).unwrap_or(axis);
            if tensor.shape()[first] != size {
                return Err(
                    cx.bad_shape(format!("a label is repeated over different sizes in {:?}", tensor.shape()))
                );
            }
            match sizes.iter_mut().find(|(other, _)| other == label) {
                None => sizes.push((*label, size)),
                Some((_, known)) if *known == 1 => *known = size,
                Some((_, known)) if size != 1 && *known != size => {
                    return Err(cx.bad_shape(format!("one label has sizes {known} and {size}")));
                }
                Some(_) => {}
            }
        }
    }
    Ok(sizes)
}

struct Summation<'a> {
    cx: &'a Evaluation<'a>,
    tensors: &'a [&'a Tensor],
    labels: AxisLabels,
    sizes: Vec<(Label, usize)>,
}

/// A dense tensor whose axes have distinct labels.
struct Operand<T> {
    labels: Vec<Label>,
    shape: Vec<usize>,
    data: Vec<T>,
}

impl Computation for Summation<'_> {
    fn compute<T: Scalar>(&self, inputs: &[Vec<T>]) -> Result<(Vec<usize>, Vec<T>), EvalError> {
        let mut result: Option<Operand<T>> = None;
        for (idx, data) in inputs.iter().enumerate() {
            let needed = |label: &Label| {
                let others = self.labels.inputs.iter().enumerate().filter(|(other, _)| *other != idx);
                self.labels.output.contains(label) || others.into_iter().any(|(_, l)| l.contains(label))
            };
            let labels = &self.labels.inputs[idx];
            let mut kept: Vec<Label> = labels.iter().copied().filter(needed).collect();
            kept.sort();
            kept.dedup();
            let operand = self.reduce(data, self.tensors[idx].shape(), labels, kept)?;
            result = Some(match result {
                None => operand,
                Some(before) => self.contract(&before, &operand, &self.labels.inputs[idx + 1..])?,
            });
        }
        let Some(result) = result else { return Ok((Vec::new(), Vec::new())) };
        let out = self.reduce(&result.data, &result.shape, &result.labels, self.labels.output.clone())?;
        Ok((out.shape, out.data))
    }
}

impl Summation<'_> {
    fn size(&self, label: &Label) -> usize {
        self.sizes.iter().find(|(other, _)| other == label).map_or(1, |(_, size)| *size)
    }

    /// Orders axes by `kept` and sums the others; a label that stands twice is a diagonal.
    fn reduce<T: Scalar>(
        &self,
        data: &[T],
        shape: &[usize],
        labels: &[Label],
        kept: Vec<Label>,
    ) -> Result<Operand<T>, EvalError> {
        let own = nd::strides(shape);
        let walk = |label: &Label| {
            let axes =
                || labels.iter().enumerate().filter(|(_, other)| *other == label).map(|(axis, _)| axis);
            (axes().map(|axis| shape[axis]).next().unwrap_or(1), axes().map(|axis| own[axis]).sum::<usize>())
        };
        let mut summed: Vec<Label> = labels.iter().copied().filter(|label| !kept.contains(label)).collect();
        summed.sort();
        summed.dedup();
        let (out_shape, out_strides): (Vec<usize>, Vec<usize>) = kept.iter().map(walk).unzip();
        let (sum_shape, sum_strides): (Vec<usize>, Vec<usize>) = summed.iter().map(walk).unzip();
        let mut out = vec![T::default(); nd::result_len(self.cx, &out_shape)?];
        let (n_out, n_summed) = (out.len(), nd::count(&sum_shape));
        nd::for_each_offset(&out_shape, &out_strides, 0..n_out, |flat, start| {
            let mut sum = T::default();
            nd::for_each_offset(&sum_shape, &sum_strides, 0..n_summed, |_, offset| {
                sum = sum.plus(data[start + offset]);
            });
            out[flat] = sum;
        });
        Ok(Operand { labels: kept, shape: out_shape, data: out })
    }

    /// Multiplies two operands and sums the labels of both that nobody needs later.
    fn contract<T: Scalar>(
        &self,
        a: &Operand<T>,
        b: &Operand<T>,
        later: &[Vec<Label>],
    ) -> Result<Operand<T>, EvalError> {
        let needed = |label: &Label| {
            self.labels.output.contains(label) || later.iter().any(|labels| labels.contains(label))
        };
        let both = |label: &&Label| b.labels.contains(label);
        let batch: Vec<Label> = a.labels.iter().filter(both).filter(|l| needed(l)).copied().collect();
        let summed: Vec<Label> = a.labels.iter().filter(both).filter(|l| !needed(l)).copied().collect();
        let rows: Vec<Label> = a.labels.iter().filter(|l| !b.labels.contains(l)).copied().collect();
        let columns: Vec<Label> = b.labels.iter().filter(|l| !a.labels.contains(l)).copied().collect();
        let labels: Vec<Label> = batch.iter().chain(&rows).chain(&columns).copied().collect();
        let shape: Vec<usize> = labels.iter().map(|label| self.size(label)).collect();
        nd::result_len(self.cx, &shape)?;
        let depth: Vec<usize> = summed.iter().map(|label| self.size(label)).collect();
        // Broadcasting repeats elements, so the factors can be larger than the operands.
        for vectors in [&rows, &columns] {
            let factor = batch.iter().chain(vectors).map(|label| self.size(label)).chain(depth.clone());
            nd::result_len(self.cx, &factor.collect::<Vec<usize>>())?;
        }
        if shape.contains(&0) {
            return Ok(Operand { labels, shape, data: Vec::new() });
        }
        let batches = (self.offsets(a, &batch), self.offsets(b, &batch));
        let left = self.matrices(a, &batches.0, &rows, &summed);
        let right = self.matrices(b, &batches.1, &columns, &summed);
        let pairs: Vec<(usize, usize)> = (0..left.len()).map(|idx| (idx, idx)).collect();
        Ok(Operand { labels, shape, data: multiply_all(&left, &right, &pairs) })
    }

    /// Where the elements with each combination of `labels` begin; sizes of one broadcast.
    fn offsets<T>(&self, operand: &Operand<T>, labels: &[Label]) -> Vec<usize> {
        let own = nd::strides(&operand.shape);
        let stride = |label: &Label| match operand.labels.iter().position(|other| other == label) {
            Some(axis) if operand.shape[axis] != 1 => own[axis],
            _ => 0,
        };
        let shape: Vec<usize> = labels.iter().map(|label| self.size(label)).collect();
        let strides: Vec<usize> = labels.iter().map(stride).collect();
        let mut offsets = Vec::with_capacity(nd::count(&shape));
        nd::for_each_offset(&shape, &strides, 0..nd::count(&shape), |_, offset| offsets.push(offset));
        offsets
    }

    /// One matrix per batch: `vectors` are its rows or columns, `along` what they are summed over.
    fn matrices<T: Scalar>(
        &self,
        operand: &Operand<T>,
        batches: &[usize],
        vectors: &[Label],
        along: &[Label],
    ) -> Vec<Strips<T>> {
        let (vectors, along) = (self.offsets(operand, vectors), self.offsets(operand, along));
        let matrix = |&start: &usize| {
            Strips::from_fn(vectors.len(), along.len(), |vector, place| {
                operand.data[start + vectors[vector] + along[place]]
            })
        };
        batches.iter().map(matrix).collect()
    }
}
