//! Nodes behind the model: probabilities, the best, boxes, types and layouts.

use planish_tensor::DType;

use super::boxes;
use super::labels::{self, Labelled};
use super::pre::Picture;
use super::words::{Layout, Port, PostStep};
use super::{tensor, turned, wrong};
use crate::network::{NetworkBuilder, Wire};
use crate::{Error, ErrorKind};

/// What one output of the model has become: its own name's value, others beside it, and which of them are classes.
pub(super) struct Made {
    pub(super) first: Wire,
    /// By what stands after the name and a dot.
    pub(super) beside: Vec<(&'static str, Wire)>,
    /// The numbers of classes: `""` for the first.
    pub(super) classes: Option<&'static str>,
}

/// An output of the model, what follows it, and the outputs of the border that are left.
pub(super) fn output(
    net: &mut NetworkBuilder,
    name: &str,
    wire: Wire,
    port: Option<&Port>,
    steps: &[PostStep],
    (own_labels, pictures): (&[String], &[Picture]),
    labels: &mut Vec<Labelled>,
) -> Result<(), Error> {
    if port.is_none() && steps.is_empty() {
        return net.output(name, wire);
    }
    let mut made = Made { first: wire, beside: Vec::new(), classes: None };
    let mut steps = steps.iter().peekable();
    while let Some(step) = steps.next() {
        match step {
            PostStep::Softmax(axis) => {
                let axis = classes_axis(net, name, made.first, *axis)?;
                made.first = net.softmax(made.first, axis)?;
            }
            PostStep::Sigmoid => made.first = net.sigmoid(made.first)?,
            PostStep::ArgMax(axis) => {
                let axis = classes_axis(net, name, made.first, *axis)?;
                made.first = net.arg_max(made.first, axis, false)?;
                made.classes = Some("");
            }
            PostStep::TopK(k) => {
                let axis = classes_axis(net, name, made.first, None)?;
                let (values, indices) = net.top_k(made.first, *k, axis)?;
                (made.first, made.classes) = (values, Some("indices"));
                made.beside.push(("indices", indices));
            }
            PostStep::Boxes(of) => {
                let nms = match steps.peek() {
                    Some(PostStep::Nms(nms)) => Some(*nms),
                    _ => None,
                };
                if nms.is_some() {
                    steps.next();
                }
                made = boxes::decoded(net, name, made.first, *of, nms, pictures)?;
            }
            PostStep::Nms(_) => {
                let message = format!(
                    "--post: nms of `{name}` stands behind boxes, as in boxes=yolov8,nms=0.45/0.25/300"
                );
                return wrong(ErrorKind::BadOption, message);
            }
            PostStep::Labels(file) => {
                let Some(classes) = made.classes else {
                    let message = format!("--post: labels of `{name}` stand behind argmax, topk or nms");
                    return wrong(ErrorKind::BadOption, message);
                };
                let names = match file {
                    Some(file) => labels::read(file)?,
                    None if !own_labels.is_empty() => own_labels.to_vec(),
                    None => {
                        let message = format!(
                            "--post: the model's file has no names of classes for `{name}`; give a file with one a line, as in \
                             labels=classes.txt"
                        );
                        return wrong(ErrorKind::BadOption, message);
                    }
                };
                labels.push(Labelled { output: joined(name, classes), names });
            }
        }
    }
    let first = border_type(net, name, made.first, port)?;
    net.output(name, first)?;
    made.beside.into_iter().try_for_each(|(part, wire)| net.output(&joined(name, part), wire))
}

pub(super) fn joined(name: &str, part: &str) -> String {
    if part.is_empty() { name.to_string() } else { format!("{name}.{part}") }
}

/// The type and layout that `--io` asks for.
fn border_type(net: &mut NetworkBuilder, name: &str, wire: Wire, port: Option<&Port>) -> Result<Wire, Error> {
    let Some(port) = port else { return Ok(wire) };
    let ty = net.type_of(wire)?.clone();
    let of = tensor(name, "output", &ty)?;
    let mut wire = wire;
    if let Some(layout) = port.layout {
        let Some(shape) = &of.shape else {
            return wrong(
                ErrorKind::WrongShape,
                format!("output `{name}` is {ty}, of any rank: it has no layout"),
            );
        };
        let own = Layout::guessed(shape.dims());
        if let Some(axes) = turned(name, "output", &ty, Some(layout), own, shape.rank())? {
            let axes: Vec<i64> = axes.into_iter().map(|axis| axis as i64).collect();
            wire = net.transpose(wire, &axes)?;
        }
    }
    match port.dtype {
        Some(dtype) if dtype != of.dtype => {
            if dtype == DType::Bool && of.dtype.is_float() {
                let message =
                    format!("--io: output `{name}` is {ty}; whether a float is true is for the model to say");
                return wrong(ErrorKind::WrongType, message);
            }
            net.cast(wire, dtype)
        }
        _ => Ok(wire),
    }
}

/// The axis of classes: what was asked for, channels of maps, else the last.
fn classes_axis(net: &NetworkBuilder, name: &str, wire: Wire, asked: Option<i64>) -> Result<i64, Error> {
    let ty = net.type_of(wire)?;
    let Some(shape) = net.shape_of(wire)? else {
        return wrong(ErrorKind::WrongShape, format!("--post: output `{name}` is {ty}, of unknown rank"));
    };
    let rank = shape.rank() as i64;
    match asked {
        Some(axis) if !(-rank..rank).contains(&axis) => {
            wrong(ErrorKind::BadOption, format!("--post: output `{name}` is {ty} and has no axis {axis}"))
        }
        Some(axis) => Ok(axis),
        None if rank == 0 => {
            wrong(ErrorKind::BadOption, format!("--post: output `{name}` is {ty}, one number alone"))
        }
        None if rank >= 4 => Ok(1),
        None => Ok(-1),
    }
}
