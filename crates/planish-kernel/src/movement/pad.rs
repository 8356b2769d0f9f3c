//! Pad: what is kept, and around it the constant, or the kept elements again in the order of the mode.

use crate::KernelError;
use planish_op::{Pad, PadMode};
use planish_tensor::Bytes;

use super::{Lowering, Move, Source, View};

/// More pieces than this are left to the reference: a kernel per piece would cost more than the elements.
const MAX_PIECES: usize = 1024;

/// One axis: `kept` places of the input from `first` on stand at place `at` of an output of `len` places.
struct Axis {
    first: usize,
    kept: usize,
    at: usize,
    len: usize,
}

/// Neighbouring output places whose input places are evenly spaced.
#[derive(Clone, Copy)]
struct Piece {
    to: usize,
    from: usize,
    len: usize,
    step: isize,
}

pub(super) fn pad(cx: &Lowering<'_>, op: &Pad) -> Result<Vec<Move>, KernelError> {
    let (source, x) = cx.data(0)?;
    cx.same_type(&x, 0)?;
    let y = cx.output(0)?;
    let pads = cx.ints(1)?.ok_or_else(|| cx.unfit())?;
    let named = cx.ints(3)?.unwrap_or_else(|| (0..x.rank() as i64).collect());
    let named = cx.axes(&named, x.rank())?;
    if pads.len() != 2 * named.len() || y.rank() != x.rank() {
        return Err(cx.unfit());
    }
    let mut amounts = vec![(0, 0); x.rank()];
    for (idx, &axis) in named.iter().enumerate() {
        amounts[axis] = (pads[idx], pads[named.len() + idx]);
    }
    let axes: Option<Vec<Axis>> =
        amounts.iter().zip(&x.dims).map(|((before, after), dim)| Axis::new(*dim, *before, *after)).collect();
    let axes = axes.ok_or_else(|| cx.unfit())?;
    if axes.iter().zip(&y.dims).any(|(axis, dim)| axis.len != *dim) {
        return Err(cx.unfit());
    }
    let (from, to) = (View::of(&x), View::of(y));
    if op.mode == PadMode::Constant {
        let mut moves = frame(cx, &axes, &to)?;
        let (mut from, mut to) = (from, to);
        for (idx, axis) in axes.iter().enumerate() {
            from = from.cut(idx, axis.first, axis.kept, 1);
            to = to.cut(idx, axis.at, axis.kept, 1);
        }
        moves.push(cx.copy(&source, &from, 0, &to)?);
        return Ok(moves);
    }
    if y.is_empty() {
        return Ok(Vec::new());
    }
    let mut parts = vec![(from, to)];
    for (idx, axis) in axes.iter().enumerate() {
        let pieces = axis.pieces(op.mode).ok_or_else(|| cx.unfit())?;
        if parts.len() * pieces.len() > MAX_PIECES {
            return Err(cx.unsupported("repeats its input too often"));
        }
        let cut = |piece: &Piece, (from, to): &(View, View)| {
            (from.cut(idx, piece.from, piece.len, piece.step), to.cut(idx, piece.to, piece.len, 1))
        };
        parts = parts.iter().flat_map(|part| pieces.iter().map(move |piece| cut(piece, part))).collect();
    }
    parts.iter().map(|(from, to)| cx.copy(&source, from, 0, to)).collect()
}

/// Everything around what is kept, filled with the constant: for each axis the places before and after, where
/// the axes before it are kept ones and those after it all.
fn frame(cx: &Lowering<'_>, axes: &[Axis], to: &View) -> Result<Vec<Move>, KernelError> {
    let dtype = cx.output(0)?.dtype;
    let fill = match cx.parameter(2)? {
        Some(tensor) if tensor.dtype() == dtype && tensor.len() == 1 => tensor.bytes().clone(),
        Some(_) => return Err(cx.unfit()),
        None => Bytes::from_vec(vec![0u8; dtype.bits() / 8]),
    };
    let mut moves = Vec::new();
    let mut kept = to.clone();
    for (idx, axis) in axes.iter().enumerate() {
        let after = axis.at + axis.kept;
        for (start, len) in [(0, axis.at), (after, axis.len - after)] {
            if len > 0 {
                let part = kept.cut(idx, start, len, 1);
                let constant = View { offset: 0, dims: part.dims.clone(), strides: vec![0; part.dims.len()] };
                moves.push(cx.copy(&Source::Constant(fill.clone()), &constant, 0, &part)?);
            }
        }
        kept = kept.cut(idx, axis.at, axis.kept, 1);
    }
    Ok(moves)
}

impl Axis {
    /// `None` where nothing could be left, or sizes overflow.
    fn new(dim: usize, before: i64, after: i64) -> Option<Axis> {
        let size = i64::try_from(dim).ok()?;
        let len = usize::try_from(size.checked_add(before)?.checked_add(after)?).ok()?;
        let first = before.min(0).unsigned_abs() as usize;
        let cut = after.min(0).unsigned_abs() as usize;
        let kept = dim.saturating_sub(first).saturating_sub(cut);
        // Cut beyond its end, the axis is constant everywhere.
        let at = (before.max(0) as usize).min(len - kept.min(len));
        Some(Axis { first: first.min(dim), kept, at, len })
    }

    /// The pieces of a mode that repeats what is kept; `None` where that is nothing.
    fn pieces(&self, mode: PadMode) -> Option<Vec<Piece>> {
        if self.kept == 0 {
            return None;
        }
        let (kept, at) = (self.kept as isize, self.at as isize);
        let place = |to: usize| {
            let idx = to as isize - at;
            let inside = match mode {
                PadMode::Constant | PadMode::Edge => idx.clamp(0, kept - 1),
                PadMode::Wrap => idx.rem_euclid(kept),
                PadMode::Reflect => {
                    // There and back, the two ends not repeated.
                    let period = (2 * (kept - 1)).max(1);
                    let idx = idx.rem_euclid(period);
                    idx.min(period - idx).min(kept - 1)
                }
            };
            self.first + inside as usize
        };
        let mut pieces: Vec<Piece> = Vec::new();
        for to in 0..self.len {
            let from = place(to);
            if let Some(last) = pieces.last_mut() {
                let step = from as isize - (last.from as isize + last.step * (last.len as isize - 1));
                if last.len == 1 {
                    last.step = step;
                }
                if step == last.step {
                    last.len += 1;
                    continue;
                }
            }
            pieces.push(Piece { to, from, len: 1, step: 1 });
        }
        Some(pieces)
    }
}
