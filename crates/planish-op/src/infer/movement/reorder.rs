//! Operators that put elements elsewhere.

use planish_tensor::{Dim, Shape};

use super::{List, list_len, unranked};
use crate::infer::checks::{checked_dim, same_dim};
use crate::infer::known::{Known, with_known};
use crate::infer::{InferError, InferResult, Inference, Inferred};

pub(in crate::infer) fn transpose(op: &crate::Transpose, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    let Some(shape) = cx.shape(0)? else {
        // The permutation tells the rank.
        let shape = op.perm.as_ref().map(|perm| cx.fresh_shape(perm.len(), "transpose"));
        return Ok(vec![Inferred::maybe_ranked(dtype, shape)]);
    };
    let rank = shape.rank();
    let perm = match &op.perm {
        Some(perm) if perm.len() == rank => cx.distinct_axes(perm, rank)?,
        Some(perm) => return Err(cx.bad_attribute(format!("perm {perm:?} does not fit {shape}"))),
        None => (0..rank).rev().collect(),
    };
    let permuted: Shape = perm.iter().map(|&axis| &shape[axis]).collect();
    let known = permuted.as_fixed().and_then(|fixed| {
        Known::of(cx, 0)?.indexed(&fixed, |index| {
            let mut source = vec![0; rank];
            perm.iter().zip(index).for_each(|(&axis, &place)| source[axis] = place);
            Some(source)
        })
    });
    Ok(vec![with_known(dtype, permuted, known)])
}

pub(in crate::infer) fn expand(_op: &crate::Expand, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    let target = match List::of(cx, 1)? {
        List::Known(target) => target,
        List::Length(len) => vec![Dim::UNKNOWN; len],
        List::Unknown => return Ok(unranked(dtype)),
    };
    if let Some(size) = target.iter().filter_map(Dim::as_const).find(|&size| size < 0) {
        return Err(cx.bad_shape(format!("cannot expand to a size of {size}")));
    }
    let Some(shape) = cx.shape(0)? else { return Ok(unranked(dtype)) };
    let rank = shape.rank().max(target.len());
    let mut dims = Vec::with_capacity(rank);
    for axis in 0..rank {
        let own = (axis + shape.rank()).checked_sub(rank).map_or(&Dim::ONE, |axis| &shape[axis]);
        let wanted = (axis + target.len()).checked_sub(rank).map_or(&Dim::ONE, |axis| &target[axis]);
        dims.push(match (own.as_const(), wanted.as_const()) {
            (Some(a), Some(b)) if a != b && a != 1 && b != 1 => {
                return Err(cx.bad_shape(format!("{shape} cannot be expanded to {b} at axis {axis}")));
            }
            // Only a size of 1 can become another, so the rest need no knowledge of the target.
            (Some(size), _) if size != 1 => own.clone(),
            _ => checked_dim(cx, own.broadcast(wanted), "expand")?,
        });
    }
    let expanded = Shape::new(dims);
    let known = expanded.as_fixed().and_then(|fixed| {
        let known = Known::of(cx, 0)?;
        let skipped = rank - known.shape.len();
        known.indexed(&fixed, |index| {
            let own = index[skipped..].iter().zip(&known.shape);
            Some(own.map(|(&place, &dim)| if dim == 1 { 0 } else { place }).collect())
        })
    });
    Ok(vec![with_known(dtype, expanded, known)])
}

pub(in crate::infer) fn tile(_op: &crate::Tile, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    let repeats = List::of(cx, 1)?;
    let Some(shape) = cx.shape(0)? else {
        let shape = repeats.len().map(|rank| cx.fresh_shape(rank, "tile"));
        return Ok(vec![Inferred::maybe_ranked(dtype, shape)]);
    };
    if repeats.len().is_some_and(|len| len != shape.rank()) {
        return Err(cx.bad_shape(format!("{} repeats do not fit {shape}", repeats.len().unwrap_or(0))));
    }
    let mut dims = Vec::with_capacity(shape.rank());
    for (axis, dim) in shape.iter().enumerate() {
        let repeat = repeats.get(axis).unwrap_or(&Dim::UNKNOWN);
        if repeat.as_const().is_some_and(|repeat| repeat < 0) {
            return Err(cx.bad_shape(format!("axis {axis} cannot be repeated {repeat} times")));
        }
        dims.push(checked_dim(cx, dim * repeat, "tile")?);
    }
    let tiled = Shape::new(dims);
    let known = tiled.as_fixed().and_then(|fixed| {
        let known = Known::of(cx, 0)?;
        known.indexed(&fixed, |index| {
            Some(index.iter().zip(&known.shape).map(|(&place, &dim)| place % dim).collect())
        })
    });
    Ok(vec![with_known(dtype, tiled, known)])
}

/// The dimensions of an image batch and a positive block size.
fn image_and_block<'a>(
    cx: &Inference<'a>,
    blocksize: i64,
) -> Result<(Option<[&'a Dim; 4]>, Dim), InferError> {
    if blocksize <= 0 {
        return Err(cx.bad_attribute(format!("blocksize must be positive, it is {blocksize}")));
    }
    let image = cx.shape_of_rank(0, 4)?.map(|shape| [&shape[0], &shape[1], &shape[2], &shape[3]]);
    Ok((image, blocksize.into()))
}

/// `dim / block`, which must leave nothing.
fn exact_part(cx: &mut Inference<'_>, dim: &Dim, block: &Dim) -> Result<Dim, InferError> {
    if let (Some(size), Some(parts)) = (dim.as_const(), block.as_const())
        && size % parts != 0
    {
        return Err(cx.bad_shape(format!("{size} does not divide by {parts}")));
    }
    checked_dim(cx, dim.floor_div(block), "block")
}

pub(in crate::infer) fn depth_to_space(op: &crate::DepthToSpace, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    let (image, block) = image_and_block(cx, op.blocksize)?;
    let shape = match image {
        Some([batch, channels, height, width]) => {
            let depth = exact_part(cx, channels, &(&block * &block))?;
            let height = checked_dim(cx, height * &block, "block")?;
            Shape::new(vec![batch.clone(), depth, height, checked_dim(cx, width * &block, "block")?])
        }
        None => cx.fresh_shape(4, "depth_to_space"),
    };
    Ok(vec![Inferred::tensor(dtype, shape)])
}

pub(in crate::infer) fn space_to_depth(op: &crate::SpaceToDepth, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    let (image, block) = image_and_block(cx, op.blocksize)?;
    let shape = match image {
        Some([batch, channels, height, width]) => {
            let depth = checked_dim(cx, channels * &block * &block, "block")?;
            let height = exact_part(cx, height, &block)?;
            Shape::new(vec![batch.clone(), depth, height, exact_part(cx, width, &block)?])
        }
        None => cx.fresh_shape(4, "space_to_depth"),
    };
    Ok(vec![Inferred::tensor(dtype, shape)])
}

/// The output is like input 0, whose rank must be 2 at least.
fn like_matrices(cx: &Inference<'_>) -> InferResult {
    let ty = cx.tensor(0)?;
    match &ty.shape {
        Some(shape) if shape.rank() < 2 => Err(cx.bad_shape(format!("{ty} must have rank 2 or more"))),
        shape => Ok(vec![Inferred::maybe_ranked(ty.dtype, shape.clone())]),
    }
}

pub(in crate::infer) fn trilu(_op: &crate::Trilu, cx: &mut Inference<'_>) -> InferResult {
    if cx.has_input(1) && list_len(cx, 1)?.is_some_and(|len| len != 1) {
        return Err(cx.bad_shape("k must be one number"));
    }
    like_matrices(cx)
}

pub(in crate::infer) fn reverse_sequence(op: &crate::ReverseSequence, cx: &mut Inference<'_>) -> InferResult {
    if !matches!((op.time_axis, op.batch_axis), (0, 1) | (1, 0)) {
        let axes = (op.time_axis, op.batch_axis);
        return Err(cx.bad_attribute(format!("time and batch axes {axes:?} are not 0 and 1")));
    }
    let output = like_matrices(cx)?;
    if let (Some(shape), Some(lens)) = (cx.shape(0)?, cx.shape_of_rank(1, 1)?) {
        same_dim(cx, "the batch size", &shape[op.batch_axis as usize], &lens[0])?;
    }
    Ok(output)
}
