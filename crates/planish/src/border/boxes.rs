//! Boxes of detectors: from what a network says of each place to boxes with a class and a score, one a thing.

use planish_op as op;
use planish_tensor::{DType, Tensor};

use super::post::Made;
use super::pre::Picture;
use super::words::{BoxesOf, Nms};
use super::wrong;
use crate::network::{NetworkBuilder, Wire};
use crate::{Error, ErrorKind};

/// Boxes as corners, `[n, places, 4]`, with scores `[n, classes, places]`; with suppression the boxes that are left, their
/// scores, classes and pictures. Where the picture was brought to the model's size by one known step, boxes are those of the
/// picture as it came.
pub(super) fn decoded(
    net: &mut NetworkBuilder,
    name: &str,
    raw: Wire,
    of: BoxesOf,
    nms: Option<Nms>,
    pictures: &[Picture],
) -> Result<Made, Error> {
    let ty = net.type_of(raw)?.clone();
    let rank = net.shape_of(raw)?.map(|shape| shape.rank());
    if rank != Some(3) {
        let message = format!(
            "--post: boxes of YOLO are [n, 4 + classes, places] or [n, places, 5 + classes]; `{name}` is {ty}"
        );
        return wrong(ErrorKind::WrongShape, message);
    }
    let (centres, scores) = match of {
        BoxesOf::YoloV8 => {
            let centres = net.slice(raw, 1, 0, 4)?;
            (net.transpose(centres, &[0, 2, 1])?, net.slice(raw, 1, 4, i64::MAX)?)
        }
        BoxesOf::YoloV5 => {
            let anything = net.slice(raw, 2, 4, 5)?;
            let classes = net.slice(raw, 2, 5, i64::MAX)?;
            let scores = net.mul(classes, anything)?;
            (net.slice(raw, 2, 0, 4)?, net.transpose(scores, &[0, 2, 1])?)
        }
    };
    let middle = net.slice(centres, 2, 0, 2)?;
    let size = net.slice(centres, 2, 2, 4)?;
    let half = net.mul(size, 0.5)?;
    let (low, high) = (net.sub(middle, half)?, net.add(middle, half)?);
    let mut corners = net.concat(&[low, high], 2)?;
    if let [picture] = pictures {
        corners = as_it_came(net, corners, picture)?;
    }
    let Some(nms) = nms else {
        return Ok(Made { first: corners, beside: vec![("scores", scores)], classes: None });
    };
    // A place is of its best class alone.
    let best = net.reduce_max(scores, &[1], true)?;
    let is_best = net.op(op::GreaterOrEqual {}, &[scores, best])?;
    let own = net.select(is_best, scores, 0.0)?;
    let most = net.number("nms.most", Tensor::scalar(nms.most))?;
    let overlap = net.number("nms.overlap", Tensor::scalar(nms.overlap))?;
    let least = net.number("nms.score", Tensor::scalar(nms.score))?;
    let suppression = op::NonMaxSuppression { center_point_box: true };
    let chosen = net.op(suppression, &[centres, own, most, overlap, least])?;
    let column = |net: &mut NetworkBuilder, from: i64| net.slice(chosen, 1, from, from + 1);
    let (images, classes, places) = (column(net, 0)?, column(net, 1)?, column(net, 2)?);
    let where_boxes = net.concat(&[images, places], 1)?;
    let boxes = net.op(op::GatherND { batch_dims: 0 }, &[corners, where_boxes])?;
    let scores = net.op(op::GatherND { batch_dims: 0 }, &[own, chosen])?;
    let (classes, images) = (net.squeeze(classes, &[1])?, net.squeeze(images, &[1])?);
    let beside = vec![("scores", scores), ("classes", classes), ("images", images)];
    Ok(Made { first: boxes, beside, classes: Some("classes") })
}

/// Corners in the coordinates of the picture before it was brought to the model's size.
fn as_it_came(net: &mut NetworkBuilder, corners: Wire, picture: &Picture) -> Result<Wire, Error> {
    let shape = net.shape(picture.wire)?;
    let sides = net.gather(shape, Tensor::vector(vec![picture.columns, picture.rows]), 0)?;
    let sides = net.cast(sides, DType::F32)?;
    let wanted = Tensor::vector(vec![picture.width as f32, picture.height as f32]);
    let wanted = net.number("boxes.sides", wanted)?;
    let factors = net.div(wanted, sides)?;
    if !picture.is_letterbox {
        let factors = net.concat(&[factors, factors], 0)?;
        return net.div(corners, factors);
    }
    let factor = net.op(op::ReduceMin { noop_with_empty_axes: false, keepdims: true }, &[factors])?;
    let fitted = net.mul(sides, factor)?;
    let fitted = net.round(fitted)?;
    let around = net.sub(wanted, fitted)?;
    let around = net.mul(around, 0.5)?;
    let around = net.concat(&[around, around], 0)?;
    let moved = net.sub(corners, around)?;
    net.div(moved, factor)
}
