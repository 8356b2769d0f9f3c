//! Images and volumes of any kind of file as tensors of pixels, for sliding windows.

use std::path::Path;

use planish_tensor::{DType, Tensor};

use super::{npy, picture, stack};
use crate::{Error, ErrorKind};

/// Pixels from a file.
/// [`volume`] has an example.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Volume {
    /// `[C, …]`, or `[N, C, …]` for a file with several images, or as an array has it.
    pub pixels: Tensor,
    /// The value of the brightest pixel that the file's format can hold; `None` for arrays and floats, which are numbers.
    pub brightest: Option<f64>,
}

/// The pixels in a file, for a model with so many axes of pixels and, where that is known, so many channels.
///
/// A `.npy` array is mapped and taken as it is. An image (png, jpeg, bmp) is brought to the channels. The pages of a TIFF
/// file are the depth of a volume where there are three axes; else they are channels, where the model takes as many,
/// or images.
///
/// ```
/// use planish::Tensor;
/// use planish::io::{stack, volume};
///
/// # let path = std::env::temp_dir().join(format!("planish-doc-volume-{}.tif", std::process::id()));
/// stack::save(&path, &Tensor::zeros(planish::DType::U16, &[5, 3, 4])?)?;
/// assert_eq!(volume(&path, 3, Some(1))?.pixels.shape(), [1, 5, 3, 4]);         // channels, depth, rows, columns
/// assert_eq!(volume(&path, 2, Some(5))?.pixels.shape(), [5, 3, 4]);            // channels, rows, columns
/// let images = volume(&path, 2, Some(1))?;                                    // images, channels, rows, columns
/// assert_eq!((images.pixels.shape(), images.brightest), (&[5, 1, 3, 4][..], Some(65535.0)));
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn volume(path: &Path, n_axes: usize, n_channels: Option<usize>) -> Result<Volume, Error> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or("").to_lowercase();
    let pixels = match extension.as_str() {
        "npy" => return Ok(Volume { pixels: npy::map(path)?, brightest: None }),
        "tif" | "tiff" => of_pages(path, stack::read(path)?, n_axes, n_channels)?,
        _ if picture::is_image(path) => picture::pixels(path, n_channels.unwrap_or(3))?,
        _ => {
            let message = format!("{} is no image; give .npy, .tif, .png, .jpg or .bmp", path.display());
            return Err(Error::new(ErrorKind::BadFile, message));
        }
    };
    let brightest = match pixels.dtype() {
        DType::U8 => Some(f64::from(u8::MAX)),
        DType::U16 => Some(f64::from(u16::MAX)),
        _ => None,
    };
    Ok(Volume { pixels, brightest })
}

/// Pages by what they are to the model.
fn of_pages(path: &Path, pages: Tensor, n_axes: usize, n_channels: Option<usize>) -> Result<Tensor, Error> {
    let &[n, channels, height, width] = pages.shape() else {
        return Err(Error::internal("pages have four axes"));
    };
    Ok(match (n_axes, channels) {
        (3, 1) => pages.reshaped(&[1, n, height, width])?,
        (3, _) => {
            let message =
                format!("{} has {channels} channels in each page; volumes are gray", path.display());
            return Err(Error::new(ErrorKind::BadFile, message));
        }
        (_, 1) if n > 1 && n_channels == Some(n) => pages.reshaped(&[n, height, width])?,
        _ if n == 1 => pages.reshaped(&[channels, height, width])?,
        _ => pages,
    })
}
