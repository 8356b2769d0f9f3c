//! Images as inputs: decoded, brought to the size and layout that the input's type asks for.

use std::io::BufReader;
use std::path::Path;

use image::ImageDecoder;
use image::imageops::FilterType;
use planish_op::TensorType;
use planish_tensor::{DType, Tensor};

use crate::{Error, ErrorKind};

/// Which axes hold what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) is_batched: bool,
    /// Channels before rows and columns.
    pub(crate) channels_first: bool,
    pub(crate) n_channels: usize,
    pub(crate) height: Option<usize>,
    pub(crate) width: Option<usize>,
}

/// Whether the file's name is that of an image.
/// [`load`] has an example.
pub fn is_image(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or("").to_lowercase();
    ["png", "jpg", "jpeg", "bmp"].contains(&extension.as_str())
}

/// The image in a file, upright: turned and mirrored as the camera wrote into it (EXIF), as viewers and OpenCV show it.
pub(crate) fn decode(path: &Path) -> Result<image::DynamicImage, Error> {
    let reader = planish_files::open(path)
        .and_then(|file| image::ImageReader::new(BufReader::new(file)).with_guessed_format())
        .map_err(|error| Error::io("read", path, &error))?;
    upright(reader).map_err(|error| {
        Error::new(ErrorKind::BadFile, format!("{} is not a usable image: {error}", path.display()))
    })
}

fn upright(
    reader: image::ImageReader<impl std::io::BufRead + std::io::Seek>,
) -> image::ImageResult<image::DynamicImage> {
    let mut decoder = reader.into_decoder()?;
    // What `ImageReader::decode` asks before it allocates.
    image::Limits::default().reserve(decoder.total_bytes())?;
    // What cannot be read of it says nothing: the pixels are as good as without.
    let orientation = decoder.orientation().unwrap_or(image::metadata::Orientation::NoTransforms);
    let mut image = image::DynamicImage::from_decoder(decoder)?;
    image.apply_orientation(orientation);
    Ok(image)
}

/// The pixels of an image as `[channels, rows, columns]` with 1, 3 or 4 channels, in 8 bits or, where the file has more, 16.
///
/// ```
/// use planish::Tensor;
/// use planish::io::picture;
///
/// # let path = std::env::temp_dir().join(format!("planish-doc-pixels-{}.png", std::process::id()));
/// # image::RgbImage::from_pixel(2, 1, image::Rgb([255, 7, 0])).save(&path)?;
/// assert_eq!(picture::pixels(&path, 3)?, Tensor::new(&[3, 1, 2], vec![255u8, 255, 7, 7, 0, 0])?);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn pixels(path: &Path, n_channels: usize) -> Result<Tensor, Error> {
    let image = decode(path)?;
    let shape = [n_channels, image.height() as usize, image.width() as usize];
    fn by_channel<T: planish_tensor::Element>(shape: &[usize; 3], pixels: Vec<T>) -> Result<Tensor, Error> {
        let channel = |channel: usize| pixels.iter().skip(channel).step_by(shape[0]).copied();
        Ok(Tensor::new(shape, (0..shape[0]).flat_map(channel).collect())?)
    }
    let is_deep = image.color().bytes_per_pixel() / image.color().channel_count() > 1;
    match (n_channels, is_deep) {
        (1, false) => by_channel(&shape, image.into_luma8().into_raw()),
        (1, true) => by_channel(&shape, image.into_luma16().into_raw()),
        (3, false) => by_channel(&shape, image.into_rgb8().into_raw()),
        (3, true) => by_channel(&shape, image.into_rgb16().into_raw()),
        (4, false) => by_channel(&shape, image.into_rgba8().into_raw()),
        (4, true) => by_channel(&shape, image.into_rgba16().into_raw()),
        _ => wrong(format!("{} has 1, 3 or 4 channels, not {n_channels}", path.display())),
    }
}

/// The image as a tensor for an input of this type, and what was done to it in words.
///
/// ```
/// use planish::TensorType;
/// use planish::io::picture;
///
/// # let path = std::env::temp_dir().join(format!("planish-doc-{}.png", std::process::id()));
/// # image::RgbImage::from_pixel(4, 4, image::Rgb([255, 0, 0])).save(&path)?;
/// assert!(picture::is_image(&path));
/// let ty = TensorType { dtype: planish::DType::F32, shape: Some(planish::Shape::from(&[1usize, 3, 2, 2][..])) };
/// let (pixels, note) = picture::load(&path, "x", &ty)?;        // resized, scaled and turned as the type asks
/// assert_eq!(pixels.shape(), [1, 3, 2, 2]);
/// println!("{note}");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn load(path: &Path, name: &str, ty: &TensorType) -> Result<(Tensor, String), Error> {
    let is_single = |layout: &Layout| !layout.is_batched || batch(ty).is_none_or(|batch| batch == 1);
    let Some(layout) = layout(ty).filter(is_single) else {
        return wrong(format!(
            "input `{name}` of type {ty} does not take an image: that needs [1,C,H,W] or [1,H,W,C] (or no 1) \
             with 1, 3 or 4 channels"
        ));
    };
    let decoded = decode(path)?;
    let (from_width, from_height) = (decoded.width(), decoded.height());
    let side = |wanted: Option<usize>, own| match wanted.map_or(Ok(own), u32::try_from) {
        Ok(side) => Ok(side),
        Err(_) => wrong(format!("input `{name}` of type {ty} is larger than any image")),
    };
    let (width, height) = (side(layout.width, from_width)?, side(layout.height, from_height)?);
    let resized = if (width, height) == (from_width, from_height) {
        decoded
    } else {
        decoded.resize_exact(width, height, FilterType::Triangle)
    };
    let (pixels, colors) = match layout.n_channels {
        1 => (resized.into_luma8().into_raw(), "gray"),
        3 => (resized.into_rgb8().into_raw(), "RGB"),
        _ => (resized.into_rgba8().into_raw(), "RGBA"),
    };
    let is_scaled = ty.dtype.is_float();
    let value = |byte: u8| if is_scaled { f64::from(byte) / 255.0 } else { f64::from(byte) };
    let (h, w, c) = (height as usize, width as usize, layout.n_channels);
    let values: Vec<f64> = if layout.channels_first {
        (0..c).flat_map(|channel| pixels.iter().skip(channel).step_by(c)).map(|&byte| value(byte)).collect()
    } else {
        pixels.into_iter().map(value).collect()
    };
    let mut shape = if layout.is_batched { vec![1] } else { Vec::new() };
    shape.extend(if layout.channels_first { [c, h, w] } else { [h, w, c] });
    if ty.dtype == DType::Bool || (ty.dtype.is_int() && ty.dtype.bits() < 8) || ty.dtype == DType::I8 {
        return wrong(format!("input `{name}` of type {ty} cannot hold the values 0 to 255 of an image"));
    }
    let tensor = Tensor::from_f64s(ty.dtype, &shape, &values)?;
    let size = if (width, height) == (from_width, from_height) {
        format!("{width}x{height}")
    } else {
        format!("{from_width}x{from_height} resized to {width}x{height} (bilinear)")
    };
    let order = if layout.channels_first { "channels first" } else { "channels last" };
    let range = if is_scaled { "scaled to 0..1, no mean or deviation taken out" } else { "values 0..255" };
    Ok((tensor, format!("{name}: {} {size}, {colors}, {order}, {range}", path.display())))
}

fn wrong<T>(message: String) -> Result<T, Error> {
    Err(Error::new(ErrorKind::WrongType, message))
}

/// The fixed size of the first axis.
fn batch(ty: &TensorType) -> Option<i64> {
    ty.shape.as_ref()?.dims().first()?.as_const()
}

/// The axes of an image input; `None` for one that takes no image.
pub(crate) fn layout(ty: &TensorType) -> Option<Layout> {
    let dims = ty.shape.as_ref()?.dims();
    let (is_batched, dims) = match dims {
        [_, rest @ ..] if rest.len() == 3 => (true, rest),
        dims => (false, dims),
    };
    let [a, b, c] = dims else { return None };
    let channels = |dim: &planish_tensor::Dim| dim.as_usize().filter(|n| [1, 3, 4].contains(n));
    // An image of one to four rows is less likely than channels in front.
    if let Some(n_channels) = channels(a) {
        return Some(Layout {
            is_batched,
            channels_first: true,
            n_channels,
            height: b.as_usize(),
            width: c.as_usize(),
        });
    }
    let n_channels = channels(c)?;
    Some(Layout { is_batched, channels_first: false, n_channels, height: a.as_usize(), width: b.as_usize() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_tensor::Shape;

    fn ty(dtype: DType, shape: &str) -> TensorType {
        TensorType::new(dtype, shape.parse::<Shape>().unwrap())
    }

    #[test]
    fn layouts_are_guessed_from_shapes() {
        let guess = |shape: &str| {
            layout(&ty(DType::F32, shape)).map(|l| (l.is_batched, l.channels_first, l.n_channels))
        };
        assert_eq!(guess("[n,3,224,224]"), Some((true, true, 3)));
        assert_eq!(guess("[1,224,224,3]"), Some((true, false, 3)));
        assert_eq!(guess("[1,h,w,4]"), Some((true, false, 4)));
        assert_eq!(guess("[1,28,28]"), Some((false, true, 1)));
        assert_eq!(guess("[28,28,1]"), Some((false, false, 1)));
        assert_eq!(guess("[2,3,224,224]"), Some((true, true, 3)));
        assert_eq!(guess("[1,8,224,224]"), None);
        assert_eq!(guess("[224,224]"), None);
    }

    #[test]
    fn pixels_land_where_they_should() {
        let path = std::env::temp_dir().join(format!("planish-picture-{}.png", std::process::id()));
        let mut image = image::RgbImage::new(2, 1);
        image.put_pixel(0, 0, image::Rgb([255, 0, 51]));
        image.put_pixel(1, 0, image::Rgb([0, 102, 255]));
        image.save(&path).unwrap();
        let (tensor, note) = load(&path, "x", &ty(DType::F32, "[b,3,h,w]")).unwrap();
        assert_eq!(tensor.shape(), [1, 3, 1, 2]);
        assert_eq!(
            tensor.to_f64s().iter().map(|x| (x * 255.0).round()).collect::<Vec<_>>(),
            [255.0, 0.0, 0.0, 102.0, 51.0, 255.0]
        );
        assert!(
            note.ends_with("2x1, RGB, channels first, scaled to 0..1, no mean or deviation taken out"),
            "{note}"
        );
        let (tensor, _) = load(&path, "x", &ty(DType::U8, "[h,w,3]")).unwrap();
        assert_eq!((tensor.shape(), tensor.to_i64s()[..4].to_vec()), (&[1, 2, 3][..], vec![255, 0, 51, 0]));
        let (tensor, note) = load(&path, "x", &ty(DType::U8, "[5,6,3]")).unwrap();
        assert_eq!(tensor.shape(), [5, 6, 3]);
        assert!(note.contains("2x1 resized to 6x5 (bilinear)"), "{note}");
        assert!(load(&path, "x", &ty(DType::I8, "[1,3,1,2]")).is_err());
        assert!(load(&path, "x", &ty(DType::F32, "[5]")).is_err());
        assert!(load(&path, "x", &ty(DType::F32, "[2,3,1,2]")).is_err());
        std::fs::write(&path, b"no image").unwrap();
        assert!(load(&path, "x", &ty(DType::F32, "[b,3,h,w]")).is_err());
        std::fs::remove_file(path).unwrap();
    }

    /// A JPEG whose EXIF says how the camera was held.
    fn photo(orientation: u8) -> Vec<u8> {
        let mut bytes = std::io::Cursor::new(Vec::new());
        // Dark on the left.
        let pixels = image::GrayImage::from_fn(32, 16, |x, _| image::Luma([if x < 16 { 10 } else { 240 }]));
        pixels.write_to(&mut bytes, image::ImageFormat::Jpeg).unwrap();
        let mut bytes = bytes.into_inner();
        // APP1 of 34 bytes: a little-endian TIFF with one entry, tag 0x0112, a short.
        let mut exif = vec![0xFF, 0xE1, 0, 34];
        exif.extend(b"Exif\0\0II\x2A\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0");
        exif.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
        bytes.splice(2..2, exif);
        bytes
    }

    #[test]
    fn photos_stand_upright() {
        let path = std::env::temp_dir().join(format!("planish-upright-{}.jpg", std::process::id()));
        // Of the picture as it is to be seen: its sizes, and whether its first and its last pixel are dark.
        for (orientation, size, dark) in [
            (1, (32, 16), (true, false)),
            (3, (32, 16), (false, true)),
            (6, (16, 32), (true, false)),
            (8, (16, 32), (false, true)),
            (99, (32, 16), (true, false)),
        ] {
            std::fs::write(&path, photo(orientation)).unwrap();
            let image = decode(&path).unwrap().into_luma8();
            assert_eq!(image.dimensions(), size, "orientation {orientation}");
            let is_dark = |pixel: &image::Luma<u8>| pixel.0[0] < 128;
            let (first, last) = (image.pixels().next().unwrap(), image.pixels().next_back().unwrap());
            assert_eq!((is_dark(first), is_dark(last)), dark, "orientation {orientation}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
