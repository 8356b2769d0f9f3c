//! Nodes before the model: resizing, cropping, colours, scales.

use planish_op as op;
use planish_op::{ResizeAspectPolicy, ResizeCoordinates, ResizeMode, ResizeNearest, ValueType};
use planish_tensor::{DType, Dim, Tensor};

use super::words::{Layout, PreStep};
use super::{side, wrong};
use crate::network::{NetworkBuilder, Wire};
use crate::{Error, ErrorKind};

/// Where a picture's axes are in the model's input.
pub(super) struct Places {
    rank: usize,
    channels: usize,
    n_channels: Option<usize>,
    height: usize,
    width: usize,
    /// The model's own sizes, where they are fixed.
    model_size: (Option<i64>, Option<i64>),
}

/// A picture that was brought to another size by one factor or two: what boxes in it are undone by.
#[derive(Clone, Copy)]
pub(super) struct Picture {
    /// As it came, in the model's layout.
    pub(super) wire: Wire,
    pub(super) height: i64,
    pub(super) width: i64,
    pub(super) rows: i64,
    pub(super) columns: i64,
    /// One factor for both sides, and the rest filled.
    pub(super) is_letterbox: bool,
}

impl Places {
    pub(super) fn of(name: &str, ty: &ValueType, dims: &[Dim], layout: Layout) -> Result<Places, Error> {
        let rank = dims.len();
        if !(3..=4).contains(&rank) {
            let message =
                format!("--pre: input `{name}` is {ty}; pictures are [N,C,H,W] or [N,H,W,C], or without N");
            return wrong(ErrorKind::WrongShape, message);
        }
        let first = rank - 3;
        let (channels, height, width) = match layout.is_last() {
            true => (first + 2, first, first + 1),
            false => (first, first + 1, first + 2),
        };
        let model_size = (dims[height].as_const(), dims[width].as_const());
        Ok(Places { rank, channels, n_channels: dims[channels].as_usize(), height, width, model_size })
    }

    /// Where a step brings pictures of any size to one, the border takes any.
    pub(super) fn widen(&self, name: &str, steps: &[PreStep], dims: &mut [Dim]) {
        let sizes = |step: &PreStep| {
            use PreStep::{Crop, Letterbox, Resize, ResizeShorter};
            matches!(step, ResizeShorter(_) | Resize(..) | Letterbox(..) | Crop(..))
        };
        if steps.iter().any(sizes) {
            dims[self.height] = side(name, "height");
            dims[self.width] = side(name, "width");
        }
    }

    fn letterbox(&self, name: &str, asked: Option<(i64, i64)>) -> Result<(i64, i64), Error> {
        match (asked, self.model_size) {
            (Some(asked), _) => Ok(asked),
            (None, (Some(height), Some(width))) => Ok((height, width)),
            (None, _) => {
                let message = format!(
                    "--pre: the model takes `{name}` in many sizes; say which, as in letterbox=640x640,div=255"
                );
                wrong(ErrorKind::BadOption, message)
            }
        }
    }

    /// The steps one after the other, in f32, and at the end the model's type.
    pub(super) fn apply(
        &self,
        net: &mut NetworkBuilder,
        name: &str,
        wire: Wire,
        to: DType,
        steps: &[PreStep],
    ) -> Result<Wire, Error> {
        let mut wire = match net.type_of(wire)?.as_tensor().map(|ty| ty.dtype) {
            Some(DType::F32) => wire,
            _ => net.cast(wire, DType::F32)?,
        };
        for step in steps {
            wire = match step {
                PreStep::ResizeShorter(size) => {
                    self.resize(net, wire, (*size, *size), ResizeAspectPolicy::NotSmaller)?
                }
                PreStep::Resize(height, width) => {
                    self.resize(net, wire, (*height, *width), ResizeAspectPolicy::Stretch)?
                }
                PreStep::Letterbox(size, fill) => {
                    let size = self.letterbox(name, *size)?;
                    let fitted = self.resize(net, wire, size, ResizeAspectPolicy::NotLarger)?;
                    // What is put around is 0.
                    let below = net.sub(fitted, *fill)?;
                    let padded = self.middle(net, below, size)?;
                    net.add(padded, *fill)?
                }
                PreStep::Crop(height, width) => self.middle(net, wire, (*height, *width))?,
                PreStep::Reverse => net.slice_by(wire, self.channels as i64, -1, i64::MIN + 1, -1)?,
                PreStep::Div(by) => {
                    let by = self.by_channel(name, by)?;
                    net.div(wire, by)?
                }
                PreStep::Mul(by) => {
                    let by = self.by_channel(name, by)?;
                    net.mul(wire, by)?
                }
                PreStep::Sub(by) => {
                    let by = self.by_channel(name, by)?;
                    net.sub(wire, by)?
                }
                PreStep::Add(by) => {
                    let by = self.by_channel(name, by)?;
                    net.add(wire, by)?
                }
            };
        }
        if to == DType::F32 { Ok(wire) } else { net.cast(wire, to) }
    }

    /// What boxes are brought back to, where the last change of sizes can be undone.
    pub(super) fn picture(&self, name: &str, wire: Wire, steps: &[PreStep]) -> Option<Picture> {
        let (rows, columns) = (self.height as i64, self.width as i64);
        let of = |(height, width), is_letterbox| Picture { wire, height, width, rows, columns, is_letterbox };
        let mut found = None;
        for step in steps {
            found = match step {
                PreStep::Letterbox(size, _) if found.is_none() => {
                    Some(of(self.letterbox(name, *size).ok()?, true))
                }
                PreStep::Resize(height, width) if found.is_none() => Some(of((*height, *width), false)),
                PreStep::Letterbox(..)
                | PreStep::Resize(..)
                | PreStep::ResizeShorter(_)
                | PreStep::Crop(..) => {
                    return None;
                }
                _ => found,
            };
        }
        found
    }

    fn resize(
        &self,
        net: &mut NetworkBuilder,
        wire: Wire,
        (height, width): (i64, i64),
        policy: ResizeAspectPolicy,
    ) -> Result<Wire, Error> {
        let resize = op::Resize {
            keep_aspect_ratio_policy: policy,
            axes: Some(vec![self.height as i64, self.width as i64]),
            // As pictures are made smaller wherever networks are trained.
            antialias: true,
            extrapolation_value: 0.0,
            exclude_outside: false,
            nearest_mode: ResizeNearest::RoundPreferFloor,
            coordinate_transformation_mode: ResizeCoordinates::HalfPixel,
            cubic_coeff_a: -0.75,
            mode: ResizeMode::Linear,
        };
        net.resize_by(resize, wire, &[height, width])
    }

    /// The middle of a picture, or the picture in the middle of zeros.
    fn middle(
        &self,
        net: &mut NetworkBuilder,
        wire: Wire,
        (height, width): (i64, i64),
    ) -> Result<Wire, Error> {
        let axes = vec![self.height as i64, self.width as i64];
        net.center_crop_pad(wire, axes, &[height, width])
    }

    /// Numbers that go along with the channels.
    fn by_channel(&self, name: &str, numbers: &[f32]) -> Result<Tensor, Error> {
        if numbers.len() == 1 {
            return Ok(Tensor::scalar(numbers[0]));
        }
        if self.n_channels != Some(numbers.len()) {
            let has = self.n_channels.map_or("an unknown number of".to_string(), |n| n.to_string());
            let message =
                format!("--pre: input `{name}` has {has} channels, {} numbers are given", numbers.len());
            return wrong(ErrorKind::BadOption, message);
        }
        let mut dims = vec![1; self.rank];
        dims[self.channels] = numbers.len();
        Ok(Tensor::new(&dims, numbers.to_vec())?)
    }
}
