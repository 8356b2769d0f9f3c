//! Windows out of images: cut, padded and brought to the type of the model's input, one row at a time.

use planish_runtime::{PortInfo, View};
use planish_tensor::{DType, Tensor};

use super::SlidingWindow;
use super::grid::Grid;
use crate::{Error, ErrorKind};

/// More axes of pixels than any model has.
const MAX_AXES: usize = 3;

/// An image for one input of the model.
pub(super) struct Image<'a> {
    pub(super) name: String,
    pub(super) n_images: usize,
    pub(super) n_channels: usize,
    view: View<'a>,
    /// The axes of pixels are the last ones.
    n_axes: usize,
    /// Of the model's input.
    dtype: DType,
    /// For each channel a factor and what is added; `None` where pixels are taken as they are.
    affine: Option<Vec<(f32, f32)>>,
}

impl<'a> Image<'a> {
    pub(super) fn new(port: &PortInfo, view: View<'a>, options: &SlidingWindow) -> Result<Image<'a>, Error> {
        let name = port.name.clone();
        let wrong =
            |why: String| Error::new(ErrorKind::WrongShape, format!("input `{name}` is {}: {why}", port.ty));
        let ty = port.ty.as_tensor();
        let rank = ty.and_then(|ty| Some(ty.shape.as_ref()?.rank()));
        let (Some(ty), Some(rank @ 3..)) = (ty, rank) else {
            return Err(wrong("windows are for inputs of [N, C, …] with axes of pixels".to_string()));
        };
        let (dims, n_axes) = (view.dims(), rank - 2);
        if n_axes > MAX_AXES || dims.len() < n_axes || dims.len() > rank {
            return Err(wrong(format!(
                "an image of sizes {dims:?} does not fit; give [N, C, …], [C, …] or pixels"
            )));
        }
        let before = &dims[..dims.len() - n_axes];
        let (n_images, n_channels) = match before {
            [n, c] => (*n, *c),
            [c] => (1, *c),
            _ => (1, 1),
        };
        if view.dtype().bits() < 8 || ty.dtype.bits() < 8 {
            return Err(wrong("elements below a byte cannot be cut into windows".to_string()));
        }
        let affine = options.affine(n_channels)?;
        let is_identity = affine.iter().all(|&(factor, added)| factor == 1.0 && added == 0.0);
        let affine = (!is_identity).then_some(affine);
        Ok(Image { name, n_images, n_channels, view, n_axes, dtype: ty.dtype, affine })
    }

    /// The sizes of the axes of pixels.
    pub(super) fn sizes(&self) -> &'a [usize] {
        let dims = self.view.dims();
        &dims[dims.len() - self.n_axes..]
    }

    /// Writes the window of these numbers along each axis to `to`, channel by channel.
    pub(super) fn window(
        &self,
        image: usize,
        places: &[usize],
        grid: &Grid,
        cval: f64,
        to: &mut [u8],
    ) -> Result<(), Error> {
        let starts: Vec<usize> =
            grid.axes.iter().zip(places).map(|(axis, &place)| axis.starts[place]).collect();
        let (Some(last), Some(&start)) = (grid.axes.last(), starts.last()) else {
            return Err(Error::internal("a window without axes"));
        };
        let leading = &grid.axes[..self.n_axes - 1];
        let n_rows: usize = leading.iter().map(|axis| axis.roi).product();
        let row_bytes = last.roi * self.dtype.bits() / 8;
        let filler = Tensor::from_f64s(self.dtype, &[1], &[cval])?;
        let mut rows = to.chunks_exact_mut(row_bytes);
        let mut pixels = vec![0f32; last.size];
        for channel in 0..self.n_channels {
            for row in 0..n_rows {
                let Some(to) = rows.next() else {
                    return Err(Error::internal("a window is larger than its place"));
                };
                // The row of the image that this one shows, by its number among all rows.
                let mut from = Some(image * self.n_channels + channel);
                let mut stride = n_rows;
                let mut left = row;
                for (axis, start) in leading.iter().zip(&starts) {
                    stride /= axis.roi;
                    let source = axis.sources[start + left / stride];
                    left %= stride;
                    from = from.zip(source).map(|(row, at)| row * axis.size + at);
                }
                let Some(from) = from else {
                    repeat(to, filler.bytes());
                    continue;
                };
                let whole = self.row(from, last.size)?;
                match last.is_padded() {
                    false => {
                        let width = whole.len() / last.size;
                        let part = &whole[start * width..(start + last.roi) * width];
                        self.convert(part, channel, &mut pixels, to)?;
                    }
                    true => {
                        let mut line = vec![0; last.size * self.dtype.bits() / 8];
                        self.convert(whole, channel, &mut pixels, &mut line)?;
                        let width = self.dtype.bits() / 8;
                        for (to, source) in to.chunks_exact_mut(width).zip(&last.sources[start..]) {
                            let pixel =
                                source.map_or(&filler.bytes()[..], |at| &line[at * width..(at + 1) * width]);
                            to.copy_from_slice(pixel);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The bytes of row number `row` among all rows of pixels.
    fn row(&self, row: usize, size: usize) -> Result<&'a [u8], Error> {
        let bytes = size * self.view.dtype().bits() / 8;
        self.view
            .bytes()
            .get(row * bytes..(row + 1) * bytes)
            .ok_or_else(|| Error::internal("a row outside of its image"))
    }

    /// Brings pixels to the model's type; `scratch` has room for a row.
    fn convert(&self, from: &[u8], channel: usize, scratch: &mut [f32], to: &mut [u8]) -> Result<(), Error> {
        let own = self.view.dtype();
        let affine = self.affine.as_ref().map(|affine| affine[channel]);
        if own == self.dtype && affine.is_none() {
            to.copy_from_slice(from);
            return Ok(());
        }
        let n = from.len() * 8 / own.bits();
        let pixels = &mut scratch[..n];
        floats(own, from, pixels)?;
        if let Some((factor, added)) = affine {
            pixels.iter_mut().for_each(|pixel| *pixel = *pixel * factor + added);
        }
        if self.dtype == DType::F32 {
            to.chunks_exact_mut(4)
                .zip(&*pixels)
                .for_each(|(to, pixel)| to.copy_from_slice(&pixel.to_le_bytes()));
            return Ok(());
        }
        let values: Vec<f64> = pixels.iter().map(|&pixel| f64::from(pixel)).collect();
        to.copy_from_slice(Tensor::from_f64s(self.dtype, &[n], &values)?.bytes());
        Ok(())
    }
}

/// Elements of a type as floats.
pub(super) fn floats(dtype: DType, from: &[u8], to: &mut [f32]) -> Result<(), Error> {
    macro_rules! widen {
        ($type:ty) => {
            for (to, from) in to.iter_mut().zip(from.as_chunks().0) {
                *to = <$type>::from_le_bytes(*from) as f32;
            }
        };
    }
    match dtype {
        DType::U8 | DType::Bool => widen!(u8),
        DType::I8 => widen!(i8),
        DType::U16 => widen!(u16),
        DType::I16 => widen!(i16),
        DType::U32 => widen!(u32),
        DType::I32 => widen!(i32),
        DType::F32 => widen!(f32),
        DType::F64 => widen!(f64),
        _ => {
            let n = to.len();
            let values = View::from_bytes(dtype, &[n], from)?.to_tensor().to_f64s();
            to.iter_mut().zip(values).for_each(|(to, value)| *to = value as f32);
        }
    }
    Ok(())
}

/// Fills `to` with repetitions of an element.
fn repeat(to: &mut [u8], element: &[u8]) {
    to.chunks_exact_mut(element.len()).for_each(|to| to.copy_from_slice(element));
}
