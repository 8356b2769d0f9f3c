//! Moving elements: the one place that knows how wide they are.
//!
//! An operator that only moves data says where each output element comes from; what an element means does
//! not matter. Elements are moved as unsigned words of their width, those below a byte as unpacked codes.
//!
//! Offsets are computed with wrapping arithmetic: strides of a tensor without elements may be beyond all
//! bounds, and are never followed.

use std::borrow::Cow;

use planish_tensor::{Bytes, Element, Tensor, TensorError};

use crate::nd::{self, fill_blocks};
use crate::{EvalError, EvalErrorKind, Evaluation};

/// The source place that is nowhere: the element is the fill value.
pub(crate) const NOWHERE: usize = usize::MAX;

/// Where the places along one output axis lie in the source; the offsets of all axes add up.
#[derive(Clone, Debug)]
pub(crate) enum Axis {
    Steps { len: usize, start: usize, step: isize },
    Table(Vec<usize>),
}

impl Axis {
    /// `len` places, `stride` elements apart.
    pub(crate) fn all(len: usize, stride: usize) -> Axis {
        Axis::Steps { len, start: 0, step: stride as isize }
    }

    /// `len` places from `start` on, `step` places apart, each `stride` elements.
    pub(crate) fn steps(len: usize, start: usize, step: isize, stride: usize) -> Axis {
        Axis::Steps { len, start: start.wrapping_mul(stride), step: step.wrapping_mul(stride as isize) }
    }

    /// `len` times the same place.
    pub(crate) fn repeat(len: usize) -> Axis {
        Axis::Steps { len, start: 0, step: 0 }
    }

    /// The given places, `NOWHERE` among them, `stride` elements apart.
    pub(crate) fn table(places: impl Iterator<Item = usize>, stride: usize) -> Axis {
        Axis::Table(
            places.map(|place| if place == NOWHERE { place } else { place.wrapping_mul(stride) }).collect(),
        )
    }

    fn len(&self) -> usize {
        match self {
            Axis::Steps { len, .. } => *len,
            Axis::Table(places) => places.len(),
        }
    }

    /// `base` moved to place `idx` of this axis. The starts of steps are in the base already.
    fn shift(&self, base: usize, idx: usize) -> usize {
        match self {
            _ if base == NOWHERE => NOWHERE,
            Axis::Steps { step, .. } => base.wrapping_add_signed(step.wrapping_mul(idx as isize)),
            Axis::Table(places) if places[idx] == NOWHERE => NOWHERE,
            Axis::Table(places) => base.wrapping_add(places[idx]),
        }
    }
}

/// One axis for each dimension of `shape`, taking everything in order.
pub(crate) fn all_axes(shape: &[usize]) -> Vec<Axis> {
    shape.iter().zip(nd::strides(shape)).map(|(&len, stride)| Axis::all(len, stride)).collect()
}

/// The tensor whose element at `(i, j, …)` is the source's at offset `axes[0](i) + axes[1](j) + …`; where
/// one of them is `NOWHERE`, it is `fill` (zero if absent).
pub(crate) fn pick(
    cx: &Evaluation<'_>,
    source: &Tensor,
    axes: &[Axis],
    fill: Option<&Tensor>,
) -> Result<Tensor, EvalError> {
    let shape: Vec<usize> = axes.iter().map(Axis::len).collect();
    let sources: Vec<&Tensor> = [source].into_iter().chain(fill).collect();
    assemble(cx, &shape, &sources, &Picked::new(axes))
}

/// The tensor of `shape` whose run number `i` of `run` elements starts at `place(i)` in the source, or is zero
/// where that is `NOWHERE`.
pub(crate) fn pick_runs(
    cx: &Evaluation<'_>,
    source: &Tensor,
    shape: &[usize],
    run: usize,
    place: impl Fn(usize) -> usize + Sync,
) -> Result<Tensor, EvalError> {
    assemble(cx, shape, &[source], &PickedRuns { run, place })
}

/// `data` with run number `i` of `updates` (`run` elements each) written at `places[i]`, in this order.
pub(crate) fn write_runs(
    cx: &Evaluation<'_>,
    data: &Tensor,
    updates: &Tensor,
    run: usize,
    places: &[usize],
) -> Result<Tensor, EvalError> {
    assemble(cx, data.shape(), &[data, updates], &WrittenRuns { run, places })
}

/// The tensors' runs in turn: `runs[0]` elements of the first, `runs[1]` of the second, and again.
pub(crate) fn interleave(
    cx: &Evaluation<'_>,
    shape: &[usize],
    sources: &[&Tensor],
    runs: &[usize],
) -> Result<Tensor, EvalError> {
    assemble(cx, shape, sources, &Interleaved { runs })
}

/// A way to make the elements of a tensor from those of others.
trait Mover {
    fn cells<T: Element>(&self, len: usize, sources: &[Cow<'_, [T]>]) -> Vec<T>;
}

/// Runs the mover at the width of the sources' element type.
fn assemble(
    cx: &Evaluation<'_>,
    shape: &[usize],
    sources: &[&Tensor],
    mover: &impl Mover,
) -> Result<Tensor, EvalError> {
    let Some(first) = sources.first() else {
        return Err(cx.error(EvalErrorKind::MissingInput, "there is nothing to take elements from"));
    };
    let dtype = first.dtype();
    if let Some(other) = sources.iter().find(|source| source.dtype() != dtype) {
        let detail = format!("elements of types {dtype} and {} do not mix", other.dtype());
        return Err(cx.error(EvalErrorKind::BadType, detail));
    }
    let len = nd::output_len(cx, dtype, shape)?;
    if len == 0 {
        return Ok(Tensor::zeros(dtype, shape)?);
    }
    let tensor = match dtype.bits() {
        64 => Tensor::from_bytes(dtype, shape, words::<u64>(len, sources, mover)?),
        32 => Tensor::from_bytes(dtype, shape, words::<u32>(len, sources, mover)?),
        16 => Tensor::from_bytes(dtype, shape, words::<u16>(len, sources, mover)?),
        _ => {
            let codes: Result<Vec<_>, TensorError> = sources.iter().map(|source| source.codes()).collect();
            Tensor::from_codes(dtype, shape, mover.cells(len, &codes?))
        }
    };
    Ok(tensor?)
}

fn words<T: Element>(len: usize, sources: &[&Tensor], mover: &impl Mover) -> Result<Bytes, TensorError> {
    let views: Result<Vec<Tensor>, TensorError> = sources
        .iter()
        .map(|source| Tensor::from_bytes(T::DTYPE, source.shape(), source.bytes().clone()))
        .collect();
    let views = views?;
    let cells: Result<Vec<_>, TensorError> = views.iter().map(|view| view.elements::<T>()).collect();
    Ok(Bytes::from_vec(mover.cells(len, &cells?)))
}

/// Elements that one thread moves at a time: enough to make starting them cheap.
const BLOCK: usize = 1 << 14;

struct Picked {
    base: usize,
    axes: Vec<Axis>,
}

impl Picked {
    /// Neighbouring axes that walk through memory as one are merged, so that runs get long.
    fn new(axes: &[Axis]) -> Picked {
        let mut picked = Picked { base: 0, axes: Vec::new() };
        for axis in axes {
            let Axis::Steps { len, start, step } = *axis else {
                picked.axes.push(axis.clone());
                continue;
            };
            picked.base = picked.base.wrapping_add(start);
            match picked.axes.last_mut() {
                _ if len == 1 => {}
                Some(Axis::Steps { len: outer, step: outer_step, .. })
                    if *outer_step == step.wrapping_mul(len as isize) =>
                {
                    *outer = outer.wrapping_mul(len);
                    *outer_step = step;
                }
                _ => picked.axes.push(Axis::Steps { len, start: 0, step }),
            }
        }
        picked
    }
}

impl Mover for Picked {
    fn cells<T: Element>(&self, _len: usize, sources: &[Cow<'_, [T]>]) -> Vec<T> {
        let source: &[T] = &sources[0];
        let fill = sources.get(1).and_then(|fill| fill.first().copied()).unwrap_or_default();
        // The outer axes number the blocks, the inner ones lie within; a lone axis is one block.
        let mut n_outer = self.axes.len().saturating_sub(1);
        let mut block = self.axes.last().map_or(1, Axis::len);
        while n_outer > 0 && block * self.axes[n_outer - 1].len() <= BLOCK {
            n_outer -= 1;
            block *= self.axes[n_outer].len();
        }
        let (outer, inner) = self.axes.split_at(n_outer);
        let n_blocks = outer.iter().map(Axis::len).product();
        fill_blocks(n_blocks, block, block, |block_idx, out| {
            let mut rest = block_idx;
            let mut base = self.base;
            for axis in outer.iter().rev() {
                base = axis.shift(base, rest % axis.len());
                rest /= axis.len();
            }
            copy(source, inner, base, fill, out);
        })
    }
}

fn copy<T: Element>(source: &[T], axes: &[Axis], base: usize, fill: T, out: &mut [T]) {
    if base == NOWHERE {
        return out.fill(fill);
    }
    match axes {
        [] => out.fill(source[base]),
        [Axis::Steps { step: 1, .. }] => out.copy_from_slice(&source[base..base + out.len()]),
        [Axis::Steps { step: 0, .. }] => out.fill(source[base]),
        [row] => {
            for (idx, out) in out.iter_mut().enumerate() {
                let place = row.shift(base, idx);
                *out = if place == NOWHERE { fill } else { source[place] };
            }
        }
        [axis, rest @ ..] => {
            let part = out.len() / axis.len();
            for (idx, out) in out.chunks_exact_mut(part).enumerate() {
                copy(source, rest, axis.shift(base, idx), fill, out);
            }
        }
    }
}

struct PickedRuns<F> {
    run: usize,
    place: F,
}

impl<F: Fn(usize) -> usize + Sync> Mover for PickedRuns<F> {
    fn cells<T: Element>(&self, len: usize, sources: &[Cow<'_, [T]>]) -> Vec<T> {
        let source: &[T] = &sources[0];
        fill_blocks(len / self.run, self.run, self.run, |idx, out| match (self.place)(idx) {
            NOWHERE => out.fill(T::default()),
            place => out.copy_from_slice(&source[place..place + self.run]),
        })
    }
}

struct WrittenRuns<'a> {
    run: usize,
    places: &'a [usize],
}

impl Mover for WrittenRuns<'_> {
    fn cells<T: Element>(&self, _len: usize, sources: &[Cow<'_, [T]>]) -> Vec<T> {
        let mut out = sources[0].to_vec();
        // A run of no elements would make no chunks; there is nothing to write then.
        for (update, &place) in sources[1].chunks_exact(self.run.max(1)).zip(self.places) {
            out[place..place + self.run].copy_from_slice(update);
        }
        out
    }
}

struct Interleaved<'a> {
    runs: &'a [usize],
}

impl Mover for Interleaved<'_> {
    fn cells<T: Element>(&self, len: usize, sources: &[Cow<'_, [T]>]) -> Vec<T> {
        let mut out = Vec::with_capacity(len);
        for turn in 0.. {
            if out.len() >= len {
                break;
            }
            for (source, &run) in sources.iter().zip(self.runs) {
                out.extend_from_slice(&source[turn * run..(turn + 1) * run]);
            }
        }
        out
    }
}
