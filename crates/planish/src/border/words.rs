//! The words of `--io`, `--pre` and `--post`.

use std::collections::HashMap;
use std::fmt;

use planish_tensor::{DType, Dim};

use crate::{Error, ErrorKind};

/// The order of a tensor's axes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// Channels before all other axes but the batch; for a given rank, or for any.
    First(Option<usize>),
    Last(Option<usize>),
}

/// Names of layouts, and what they are.
const LAYOUTS: [(&str, Layout); 8] = [
    ("nchw", Layout::First(Some(4))),
    ("nhwc", Layout::Last(Some(4))),
    ("ncdhw", Layout::First(Some(5))),
    ("ndhwc", Layout::Last(Some(5))),
    ("ncw", Layout::First(Some(3))),
    ("nwc", Layout::Last(Some(3))),
    ("channels-first", Layout::First(None)),
    ("channels-last", Layout::Last(None)),
];

impl Layout {
    /// What a model's own tensor is likely to be: channels are few, and before the rest where both ends could be them.
    pub(super) fn guessed(dims: &[Dim]) -> Layout {
        let is_few = |at: usize| dims.get(at).and_then(Dim::as_usize).is_some_and(|n| [1, 3, 4].contains(&n));
        match dims.len() > 2 && !is_few(1) && is_few(dims.len() - 1) {
            true => Layout::Last(None),
            false => Layout::First(None),
        }
    }

    pub(super) fn rank(self) -> Option<usize> {
        let (Layout::First(rank) | Layout::Last(rank)) = self;
        rank
    }

    pub(super) fn is_last(self) -> bool {
        matches!(self, Layout::Last(_))
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = LAYOUTS.iter().find(|(_, layout)| layout == self).map_or("layout", |(name, _)| *name);
        f.write_str(name)
    }
}

/// What `--io` says of an input or output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Port {
    pub(super) dtype: Option<DType>,
    pub(super) layout: Option<Layout>,
}

/// Types by our names and by those of other tools.
fn dtype(word: &str) -> Option<DType> {
    let ours = match word {
        "fp64" | "float64" | "double" => "f64",
        "fp32" | "float32" | "float" => "f32",
        "fp16" | "float16" | "half" => "f16",
        "bfloat16" => "bf16",
        "int8" => "i8",
        "int16" => "i16",
        "int32" => "i32",
        "int64" => "i64",
        "uint8" => "u8",
        "uint16" => "u16",
        "uint32" => "u32",
        "uint64" => "u64",
        other => other,
    };
    let dtype: DType = ours.parse().ok()?;
    // Elements below a byte share bytes, which no caller's array does.
    (dtype.bits() >= 8).then_some(dtype)
}

fn bad<T>(message: String) -> Result<T, Error> {
    Err(Error::new(ErrorKind::BadOption, message))
}

/// What `--io` says, by name.
pub(super) fn ports(
    given: &[String],
    inputs: &[String],
    outputs: &[String],
) -> Result<HashMap<String, Port>, Error> {
    let mut ports = HashMap::new();
    for text in given {
        let (mut name, mut port) = (text.as_str(), Port::default());
        // Names may have colons: what is a name as it stands is one.
        while !inputs.iter().chain(outputs).any(|known| known == name) {
            let Some((rest, word)) = name.rsplit_once(':') else { break };
            let layout = LAYOUTS.iter().find(|(known, _)| *known == word).map(|(_, layout)| *layout);
            match (dtype(word), layout) {
                (Some(dtype), _) if port.dtype.is_none() => port.dtype = Some(dtype),
                (_, Some(layout)) if port.layout.is_none() => port.layout = Some(layout),
                _ => {
                    let layouts: Vec<&str> = LAYOUTS.iter().map(|(name, _)| *name).collect();
                    return bad(format!(
                        "`--io {text}`: `{word}` is neither a type (fp32, fp16, bf16, int8, u8, i32, …) nor a layout ({}) that \
                         fits there; give NAME[:TYPE][:LAYOUT]",
                        layouts.join(", ")
                    ));
                }
            }
            name = rest;
        }
        if !inputs.iter().chain(outputs).any(|known| known == name) {
            return bad(format!(
                "`--io {text}`: the model has no input or output `{name}`; its inputs are {}, its outputs {}",
                quoted(inputs),
                quoted(outputs)
            ));
        }
        if port == Port::default() {
            return bad(format!("`--io {text}` says nothing of `{name}`; give NAME[:TYPE][:LAYOUT]"));
        }
        if ports.insert(name.to_string(), port).is_some() {
            return bad(format!("`--io {text}`: `{name}` was given before"));
        }
    }
    Ok(ports)
}

/// `NAME:STEP,…` of each text, by name.
pub(super) fn steps<T>(
    flag: &str,
    given: &[String],
    what: &str,
    names: &[String],
    parse: fn(&str) -> Result<Vec<T>, String>,
) -> Result<HashMap<String, Vec<T>>, Error> {
    let mut all = HashMap::new();
    for text in given {
        let fits =
            |name: &&String| text.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with(':'));
        let Some(name) = names.iter().filter(fits).max_by_key(|name| name.len()) else {
            return bad(format!(
                "`{flag} {text}` begins with no {what} of the model; give NAME:STEP,… with one of {}",
                quoted(names)
            ));
        };
        let mut steps = Vec::new();
        for word in text[name.len() + 1..].split(',').map(str::trim).filter(|word| !word.is_empty()) {
            steps.extend(parse(word).or_else(|why| bad(format!("`{flag} {text}`: {why}")))?);
        }
        if steps.is_empty() {
            return bad(format!("`{flag} {text}` says nothing to do; see docs/io.md for the steps"));
        }
        if all.insert(name.clone(), steps).is_some() {
            return bad(format!("`{flag} {text}`: `{name}` was given before; join the steps by commas"));
        }
    }
    Ok(all)
}

pub(super) fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Something done to an input, in the order of the words.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum PreStep {
    /// The shorter side to a size, the other one by the same factor.
    ResizeShorter(i64),
    Resize(i64, i64),
    /// The longer side fitted, the rest filled with a number; without sizes those of the model.
    Letterbox(Option<(i64, i64)>, f32),
    /// The middle.
    Crop(i64, i64),
    /// Channels the other way round.
    Reverse,
    Div(Vec<f32>),
    Mul(Vec<f32>),
    Sub(Vec<f32>),
    Add(Vec<f32>),
}

/// The colour around a picture that YOLO's networks were trained with.
const YOLO_FILL: f32 = 114.0;

pub(super) fn pre_step(word: &str) -> Result<Vec<PreStep>, String> {
    let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
    let numbers = || numbers(word, value);
    Ok(vec![match (name, value) {
        ("imagenet", None) => {
            let list =
                ["resize=256", "crop=224", "div=255", "mean=0.485/0.456/0.406", "std=0.229/0.224/0.225"];
            return Ok(list.map(pre_step).into_iter().collect::<Result<Vec<_>, _>>()?.concat());
        }
        ("yolo", None) => return Ok(vec![PreStep::Letterbox(None, YOLO_FILL), PreStep::Div(vec![255.0])]),
        ("resize", Some(size)) if !size.contains('x') => PreStep::ResizeShorter(sides(word, size)?.0),
        ("resize", Some(size)) => {
            let (height, width) = sides(word, size)?;
            PreStep::Resize(height, width)
        }
        ("letterbox", None) => PreStep::Letterbox(None, YOLO_FILL),
        ("letterbox", Some(value)) => {
            let (size, fill) = value.split_once('/').unwrap_or((value, "114"));
            let fill = fill.parse().map_err(|_| format!("`{word}`: {fill} is not a number to fill with"))?;
            PreStep::Letterbox(Some(sides(word, size)?), fill)
        }
        ("crop", Some(size)) => {
            let (height, width) = sides(word, size)?;
            PreStep::Crop(height, width)
        }
        ("bgr" | "rgb", None) => PreStep::Reverse,
        ("div" | "std", Some(_)) => {
            let numbers = numbers()?;
            if numbers.contains(&0.0) {
                return Err(format!("`{word}` divides by 0"));
            }
            PreStep::Div(numbers)
        }
        ("mul" | "scale", Some(_)) => PreStep::Mul(numbers()?),
        ("sub" | "mean", Some(_)) => PreStep::Sub(numbers()?),
        ("add", Some(_)) => PreStep::Add(numbers()?),
        _ => {
            return Err(format!(
                "`{word}` is not a step; they are imagenet, yolo, resize=S|HxW, letterbox[=HxW[/FILL]], crop=S|HxW, bgr, \
                 div=, mul=, mean=, std=, add= with a number or one a channel (0.5/0.4/0.3)"
            ));
        }
    }])
}

/// Sides of pictures beyond this are mistakes.
const MAX_SIDE: i64 = 1 << 16;

fn sides(word: &str, text: &str) -> Result<(i64, i64), String> {
    let (height, width) = text.split_once('x').unwrap_or((text, text));
    let side = |text: &str| text.parse::<i64>().ok().filter(|side| (1..=MAX_SIDE).contains(side));
    side(height)
        .zip(side(width))
        .ok_or_else(|| format!("`{word}`: {text} is not a size; give 224 or 256x192"))
}

fn numbers(word: &str, text: Option<&str>) -> Result<Vec<f32>, String> {
    let number = |text: &str| text.parse::<f32>().ok().filter(|number| number.is_finite());
    let list: Option<Vec<f32>> = text.unwrap_or_default().split('/').map(number).collect();
    list.ok_or_else(|| format!("`{word}`: give a number, or one a channel as in 0.485/0.456/0.406"))
}

/// Something done to an output, in the order of the words.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum PostStep {
    Softmax(Option<i64>),
    Sigmoid,
    ArgMax(Option<i64>),
    TopK(i64),
    Boxes(BoxesOf),
    Nms(Nms),
    /// A file with a name a line; without one, the model's own names.
    Labels(Option<String>),
}

/// Whose boxes they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BoxesOf {
    /// `[n, 4 + classes, places]`: YOLOv8, YOLO11 and others without a number for "anything".
    YoloV8,
    /// `[n, places, 5 + classes]`: YOLOv5, v7.
    YoloV5,
}

/// What is left of boxes that lie over each other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Nms {
    pub(super) overlap: f32,
    pub(super) score: f32,
    pub(super) most: i64,
}

pub(super) fn post_step(word: &str) -> Result<Vec<PostStep>, String> {
    let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
    let axis = || {
        let axis =
            value.map(|value| value.parse::<i64>().map_err(|_| format!("`{word}`: {value} is not an axis")));
        axis.transpose()
    };
    Ok(vec![match (name, value) {
        ("softmax", _) => PostStep::Softmax(axis()?),
        ("sigmoid", None) => PostStep::Sigmoid,
        ("argmax", _) => PostStep::ArgMax(axis()?),
        ("topk", Some(k)) => match k.parse::<i64>() {
            Ok(k) if k > 0 => PostStep::TopK(k),
            _ => return Err(format!("`{word}`: give how many, as in topk=5")),
        },
        ("boxes", Some("yolov8" | "yolo11" | "yolo")) => PostStep::Boxes(BoxesOf::YoloV8),
        ("boxes", Some("yolov5" | "yolov7")) => PostStep::Boxes(BoxesOf::YoloV5),
        ("nms", _) => PostStep::Nms(nms(word, value)?),
        ("labels", _) => PostStep::Labels(value.map(str::to_string)),
        _ => {
            return Err(format!(
                "`{word}` is not a step; they are softmax[=AXIS], sigmoid, argmax[=AXIS], topk=K, boxes=yolov8|yolov5, \
                 nms[=IOU[/SCORE[/MOST]]], labels[=FILE]"
            ));
        }
    }])
}

fn nms(word: &str, value: Option<&str>) -> Result<Nms, String> {
    let mut nms = Nms { overlap: 0.45, score: 0.25, most: 300 };
    let wrong =
        || format!("`{word}`: give overlap, least score and most boxes a class, as in nms=0.45/0.25/300");
    for (at, part) in value.into_iter().flat_map(|value| value.split('/')).enumerate() {
        let share = part.parse::<f32>().ok().filter(|share| (0.0..=1.0).contains(share));
        match at {
            0 => nms.overlap = share.ok_or_else(wrong)?,
            1 => nms.score = share.ok_or_else(wrong)?,
            2 => nms.most = part.parse().ok().filter(|most| *most > 0).ok_or_else(wrong)?,
            _ => return Err(wrong()),
        }
    }
    Ok(nms)
}
