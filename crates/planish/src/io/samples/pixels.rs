//! From pixels to an input: size, crop, range, mean and deviation, layout.

use std::path::Path;

use image::imageops::FilterType;
use planish_tensor::{DType, Tensor};

use super::Port;
use crate::io::picture::{self, Layout};
use crate::{Error, ErrorKind};

/// What torchvision's classifiers were trained with, by channel.
const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];
/// The shorter side before the crop, for a crop of 224.
const IMAGENET_RESIZE: (u64, u64) = (256, 224);
/// The crop where the model leaves its size open.
const IMAGENET_CROP: u32 = 224;

/// The order of colours.
/// A field of [`Preprocess`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChannelOrder {
    /// Red first.
    #[default]
    Rgb,
    /// Blue first.
    Bgr,
}

/// The order of the axes.
/// A field of [`Preprocess`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PixelLayout {
    /// Channels before rows and columns.
    Nchw,
    /// Channels last.
    Nhwc,
}

/// How pixels become an input. What is not given is what ImageNet's classifiers take, at the sizes of the model.
///
/// ```
/// use planish::io::{ChannelOrder, PixelLayout, Preprocess};
///
/// // What a model takes that was trained on bytes in OpenCV's order, as TensorFlow lays them out.
/// let preprocess = Preprocess {
///     scale: Some(255.0),
///     mean: Some(vec![0.0]),
///     std: Some(vec![1.0]),
///     order: ChannelOrder::Bgr,
///     layout: Some(PixelLayout::Nhwc),
///     ..Preprocess::default()
/// };
/// assert_eq!(preprocess.crop, None);                                   // as large as the model's input
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Preprocess {
    /// The shorter side of images before the crop; 8/7 of the crop if not given. TIFF files are not resized.
    pub resize: Option<u32>,
    /// Height and width of the part in the middle that is taken.
    pub crop: Option<(u32, u32)>,
    /// What the brightest pixel value becomes: 1 for inputs of floats, or 255 to keep bytes as they are.
    pub scale: Option<f32>,
    /// Subtracted by channel, after scaling.
    pub mean: Option<Vec<f32>>,
    /// Divided by, by channel.
    pub std: Option<Vec<f32>>,
    /// The order of colours.
    pub order: ChannelOrder,
    /// The order of the axes, where the model's shape does not tell.
    pub layout: Option<PixelLayout>,
}

/// Pixels of one image or page, channels innermost, from 0 to 1 (or as they are, for files of floats).
#[derive(Clone, Debug)]
pub(super) struct Plane {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) n_channels: usize,
    pub(super) values: Vec<f32>,
}

impl Preprocess {
    /// What is subtracted and divided by, for so many channels in the order of the model.
    fn normalization(&self, n_channels: usize, dtype: DType) -> Result<(Vec<f32>, Vec<f32>), Error> {
        let is_imagenet = n_channels == 3 && dtype.is_float();
        let list = |given: &Option<Vec<f32>>, usual: [f32; 3], none: f32, flag: &str| match given {
            Some(list) if list.len() == n_channels => Ok(list.clone()),
            Some(list) if list.len() == 1 => Ok(vec![list[0]; n_channels]),
            Some(list) => {
                let n = list.len();
                bad_option(format!("{flag} has {n} numbers, the input has {n_channels} channels"))
            }
            None if is_imagenet => {
                let mut usual = usual.to_vec();
                if self.order == ChannelOrder::Bgr {
                    usual.reverse();
                }
                Ok(usual)
            }
            None => Ok(vec![none; n_channels]),
        };
        let mean = list(&self.mean, IMAGENET_MEAN, 0.0, "--mean")?;
        let std = list(&self.std, IMAGENET_STD, 1.0, "--std")?;
        if std.contains(&0.0) || mean.iter().chain(&std).any(|value| !value.is_finite()) {
            return bad_option("--mean and --std take numbers, and no --std is 0".to_string());
        }
        Ok((mean, std))
    }

    fn scale(&self, dtype: DType) -> f32 {
        self.scale.unwrap_or(if dtype.is_float() { 1.0 } else { 255.0 })
    }

    /// The model's layout of images, or the one that was given.
    pub(super) fn layout_of(&self, port: &Port) -> Result<Layout, Error> {
        let dims = port.dims()?;
        let rest = if dims.len() == 4 { &dims[1..] } else { &dims[..] };
        let forced = match (self.layout, rest) {
            (Some(PixelLayout::Nchw), [Some(c), h, w]) => Some((true, *c, *h, *w)),
            (Some(PixelLayout::Nhwc), [h, w, Some(c)]) => Some((false, *c, *h, *w)),
            _ => None,
        };
        let forced = forced.map(|(channels_first, n_channels, height, width)| Layout {
            is_batched: dims.len() == 4,
            channels_first,
            n_channels,
            height,
            width,
        });
        let guessed = if self.layout.is_none() { picture::layout(&port.ty) } else { None };
        let layout = forced.or(guessed).filter(|layout| [1, 3, 4].contains(&layout.n_channels));
        layout.ok_or_else(|| {
            let (name, ty) = (&port.name, &port.ty);
            let message = format!(
                "input `{name}` of type {ty} takes no images: that needs [N,C,H,W] or [N,H,W,C] with 1, 3 or 4 channels"
            );
            Error::new(ErrorKind::WrongType, message)
        })
    }

    /// Height and width to cut out: given, or the model's own.
    pub(super) fn crop_of(&self, height: Option<usize>, width: Option<usize>) -> Option<(usize, usize)> {
        let given = self.crop.map(|(height, width)| (height as usize, width as usize));
        given.or(height.zip(width))
    }

    /// Channels normalized and put where the model wants them: the elements of one sample, without its batch axis.
    pub(super) fn finish(&self, plane: &Plane, layout: &Layout, dtype: DType) -> Result<Vec<f64>, Error> {
        let n = layout.n_channels;
        let (mean, std) = self.normalization(n, dtype)?;
        let scale = self.scale(dtype);
        let is_bgr = self.order == ChannelOrder::Bgr && n >= 3;
        let value = |pixel: &[f32], channel: usize| {
            let from = if is_bgr && channel < 3 { 2 - channel } else { channel };
            f64::from((pixel[from] * scale - mean[channel]) / std[channel])
        };
        let pixels = || plane.values.chunks_exact(n);
        Ok(if layout.channels_first {
            (0..n)
                .flat_map(|channel| pixels().map(move |pixel| (pixel, channel)))
                .map(|(p, c)| value(p, c))
                .collect()
        } else {
            pixels()
                .flat_map(|pixel| (0..n).map(move |channel| (pixel, channel)))
                .map(|(p, c)| value(p, c))
                .collect()
        })
    }

    /// What was done, in words.
    pub(super) fn note(&self, size: &str, layout: &Layout, dtype: DType) -> Result<String, Error> {
        let (mean, std) = self.normalization(layout.n_channels, dtype)?;
        let colors = match (layout.n_channels, self.order) {
            (1, _) => "gray",
            (_, ChannelOrder::Rgb) => "RGB",
            (_, ChannelOrder::Bgr) => "BGR",
        };
        let axes = if layout.channels_first { "channels first" } else { "channels last" };
        let scale = self.scale(dtype);
        Ok(format!(
            "{size}, {colors}, {axes}, 0..{scale}, mean {mean:?}, std {std:?}; --resize, --crop, --scale, --mean, --std \
             and --bgr say otherwise"
        ))
    }
}

pub(super) fn bad_option<T>(message: String) -> Result<T, Error> {
    Err(Error::new(ErrorKind::BadOption, message))
}

/// The middle of a plane.
pub(super) fn cropped(plane: Plane, size: Option<(usize, usize)>, origin: &Path) -> Result<Plane, Error> {
    let Some((height, width)) = size.filter(|&size| size != (plane.height, plane.width)) else {
        return Ok(plane);
    };
    if height > plane.height || width > plane.width {
        let (h, w, origin) = (plane.height, plane.width, origin.display());
        let message =
            format!("{origin} is {h}x{w}, smaller than the {height}x{width} to be cut out; give --crop HxW");
        return Err(Error::new(ErrorKind::WrongShape, message));
    }
    let (top, left) = ((plane.height - height) / 2, (plane.width - width) / 2);
    let rows = plane.values.chunks_exact(plane.width * plane.n_channels).skip(top).take(height);
    let part = left * plane.n_channels..(left + width) * plane.n_channels;
    let values = rows.flat_map(|row| row[part.clone()].iter().copied()).collect();
    Ok(Plane { height, width, n_channels: plane.n_channels, values })
}

/// An image as one sample, with a batch axis of 1 where the input has one.
pub(super) fn image(
    path: &Path,
    port: &Port,
    preprocess: &Preprocess,
    notes: Option<&mut Vec<String>>,
) -> Result<Tensor, Error> {
    let layout = preprocess.layout_of(port)?;
    let usual = (IMAGENET_CROP as usize, IMAGENET_CROP as usize);
    let (height, width) = preprocess.crop_of(layout.height, layout.width).unwrap_or(usual);
    let (wide, narrow) = IMAGENET_RESIZE;
    let usual = (height.max(width) as u64).saturating_mul(wide) / narrow;
    let side = preprocess.resize.map_or(usual, u64::from).clamp(1, u64::from(u32::MAX)) as u32;
    let decoded = picture::decode(path)?;
    let (w, h) = (decoded.width().max(1), decoded.height().max(1));
    let (new_w, new_h) = shorter_to(side, w, h);
    let resized = if (new_w, new_h) == (w, h) {
        decoded
    } else {
        decoded.resize_exact(new_w, new_h, FilterType::Triangle)
    };
    let bytes = match layout.n_channels {
        1 => resized.into_luma8().into_raw(),
        3 => resized.into_rgb8().into_raw(),
        _ => resized.into_rgba8().into_raw(),
    };
    let values = bytes.iter().map(|&byte| f32::from(byte) / 255.0).collect();
    let plane =
        Plane { height: new_h as usize, width: new_w as usize, n_channels: layout.n_channels, values };
    let plane = cropped(plane, Some((height, width)), path)?;
    if let Some(notes) = notes {
        let size = format!("images: shorter side to {side} (bilinear), {height}x{width} from the middle");
        notes.push(preprocess.note(&size, &layout, port.ty.dtype)?);
    }
    let values = preprocess.finish(&plane, &layout, port.ty.dtype)?;
    let mut shape = if layout.is_batched { vec![1] } else { Vec::new() };
    let n = layout.n_channels;
    shape.extend(if layout.channels_first { [n, height, width] } else { [height, width, n] });
    Ok(Tensor::from_f64s(port.ty.dtype, &shape, &values)?)
}

/// Width and height with the shorter side at `side`, the longer in proportion.
fn shorter_to(side: u32, width: u32, height: u32) -> (u32, u32) {
    let scaled = |long: u32, short: u32| {
        let scaled = (u64::from(long) * u64::from(side) + u64::from(short) / 2) / u64::from(short);
        scaled.clamp(1, u64::from(u32::MAX)) as u32
    };
    if width <= height { (side, scaled(height, width)) } else { (scaled(width, height), side) }
}
