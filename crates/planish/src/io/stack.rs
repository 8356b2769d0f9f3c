//! TIFF stacks: files of pages, each an image of its own, of 8, 16, 32 or 64 bits or of floats, also beyond 4 GB
//! (BigTIFF).

use std::io::{BufReader, Read, Seek, Write};
use std::path::Path;

use planish_tensor::{Bytes, DType, Element, Tensor};
use tiff::ColorType;
use tiff::decoder::{Decoder, DecodingResult, Limits};
use tiff::encoder::{TiffEncoder, TiffKind, colortype};

use crate::{Error, ErrorKind, machine};

/// Where files begin to need 64-bit offsets, with room for what stands beside pixels.
const BIG_FROM: usize = (1 << 32) - (1 << 24);

/// A page as it was decoded.
pub(crate) struct Page {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) n_channels: usize,
    /// Whether channels lie one after another; else they lie side by side in each pixel.
    pub(crate) is_planar: bool,
    pub(crate) values: DecodingResult,
}

fn bad(path: &Path, why: impl std::fmt::Display) -> Error {
    // What the standard library says of a file that ends too early.
    let why = why.to_string().replace("failed to fill whole buffer", "it ends too early, and may be cut off");
    Error::new(ErrorKind::BadFile, format!("{} is not a usable TIFF file: {why}", path.display()))
}

/// Decodes the pages of a file one after another; none may take more than `max_bytes`.
pub(crate) fn pages(
    path: &Path,
    max_bytes: usize,
    each: &mut dyn FnMut(Page) -> Result<(), Error>,
) -> Result<(), Error> {
    let file = planish_files::open(path).map_err(|error| Error::io("read", path, &error))?;
    let mut limits = Limits::default();
    limits.decoding_buffer_size = max_bytes;
    let decoder = Decoder::new(BufReader::new(file)).map_err(|error| bad(path, error))?;
    let mut decoder = decoder.with_limits(limits);
    for number in 1.. {
        each(page(&mut decoder).map_err(|why| bad(path, format!("page {number}: {why}")))?)?;
        if !decoder.more_images() {
            break;
        }
        decoder.next_image().map_err(|error| bad(path, error))?;
    }
    Ok(())
}

/// The page that the decoder stands at.
fn page<R: Read + Seek>(decoder: &mut Decoder<R>) -> Result<Page, String> {
    let (width, height) = decoder.dimensions().map_err(|error| error.to_string())?;
    let (width, height) = (width as usize, height as usize);
    let color = decoder.colortype().map_err(|error| error.to_string())?;
    if !matches!(color.bit_depth(), 8 | 16 | 32 | 64) {
        return Err(format!("its samples have {} bits; save it with 8, 16 or 32", color.bit_depth()));
    }
    let n_channels = match color {
        ColorType::Gray(_) => 1,
        ColorType::GrayA(_) => 2,
        ColorType::RGB(_) => 3,
        ColorType::RGBA(_) => 4,
        ColorType::Multiband { num_samples, .. } => usize::from(num_samples),
        other => return Err(format!("pixels of kind {other:?} are not supported; gray, RGB and RGBA are")),
    };
    let mut values = DecodingResult::U8(Vec::new());
    let layout = decoder.read_image_to_buffer(&mut values).map_err(|error| error.to_string())?;
    let n_bytes = values.as_buffer(0).as_bytes().len();
    let width_of_one = n_bytes / (width * height * n_channels).max(1);
    if n_bytes != layout.complete_len
        || n_bytes != width_of_one * width * height * n_channels
        || width_of_one == 0
    {
        return Err("its pixels are not as many bytes as its sizes say".to_string());
    }
    Ok(Page { height, width, n_channels, is_planar: layout.planes > 1, values })
}

impl Page {
    /// The pixels as `[C, H, W]`, in their own type.
    fn into_tensor(self) -> Result<Tensor, Error> {
        let Page { height, width, n_channels, is_planar, values } = self;
        fn made<T: Element>(shape: &[usize; 3], is_planar: bool, values: Vec<T>) -> Result<Tensor, Error> {
            let [n, ..] = *shape;
            if is_planar || n == 1 {
                return Ok(Tensor::new(shape, values)?);
            }
            let channel = |channel: usize| values.iter().skip(channel).step_by(n).copied();
            Ok(Tensor::new(shape, (0..n).flat_map(channel).collect())?)
        }
        let shape = [n_channels, height, width];
        match values {
            DecodingResult::U8(values) => made(&shape, is_planar, values),
            DecodingResult::U16(values) => made(&shape, is_planar, values),
            DecodingResult::U32(values) => made(&shape, is_planar, values),
            DecodingResult::U64(values) => made(&shape, is_planar, values),
            DecodingResult::I8(values) => made(&shape, is_planar, values),
            DecodingResult::I16(values) => made(&shape, is_planar, values),
            DecodingResult::I32(values) => made(&shape, is_planar, values),
            DecodingResult::I64(values) => made(&shape, is_planar, values),
            DecodingResult::F32(values) => made(&shape, is_planar, values),
            DecodingResult::F64(values) => made(&shape, is_planar, values),
            DecodingResult::F16(values) => made(&shape, is_planar, values),
        }
    }
}

/// All pages of a file as one tensor, `[pages, channels, rows, columns]`, in their own type.
///
/// ```
/// use planish::Tensor;
/// use planish::io::stack;
///
/// # let path = std::env::temp_dir().join(format!("planish-doc-stack-{}.tif", std::process::id()));
/// let volume = Tensor::new(&[5, 1, 3, 4], (0..60).map(|idx| idx as u16).collect())?;
/// stack::save(&path, &volume)?;                                        // five pages of 3 x 4
/// assert_eq!(stack::read(&path)?, volume);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read(path: &Path) -> Result<Tensor, Error> {
    let room = machine::memory().and_then(|room| usize::try_from(room).ok()).unwrap_or(usize::MAX);
    let mut first: Option<Tensor> = None;
    let (mut n_pages, mut all) = (0, Vec::new());
    pages(path, room, &mut |page| {
        let page = page.into_tensor()?;
        n_pages += 1;
        let Some(first) = &first else {
            first = Some(page);
            return Ok(());
        };
        if (page.dtype(), page.shape()) != (first.dtype(), first.shape()) {
            let of = |page: &Tensor| format!("{} {:?}", page.dtype(), page.shape());
            return Err(bad(path, format!("page 1 is {}, page {n_pages} is {}", of(first), of(&page))));
        }
        if all.is_empty() {
            all.extend_from_slice(first.bytes());
        }
        if all.len() + 2 * page.bytes().len() > room {
            let message = format!("{} has more pages than this machine has memory for", path.display());
            return Err(Error::new(ErrorKind::OutOfMemory, message));
        }
        all.extend_from_slice(page.bytes());
        Ok(())
    })?;
    let first = first.ok_or_else(|| bad(path, "it has no page"))?;
    let shape = [&[n_pages], first.shape()].concat();
    if n_pages == 1 {
        return Ok(first.reshaped(&shape)?);
    }
    Ok(Tensor::from_bytes(first.dtype(), &shape, Bytes::from_vec(all))?)
}

/// Writes a tensor as gray pages of its last two axes, in one piece or not at all; small floats as `f32`.
/// [`read`] has an example.
pub fn save(path: &Path, tensor: &Tensor) -> Result<(), Error> {
    let tensor = match tensor.dtype() {
        dtype if dtype.is_float() && dtype.bits() < 32 => super::npy::converted(tensor, DType::F32)?,
        DType::Bool => super::npy::converted(tensor, DType::U8)?,
        _ => tensor.clone(),
    };
    let (dtype, shape) = (tensor.dtype(), tensor.shape());
    let (Some(&[height, width]), false) = (shape.last_chunk(), tensor.is_empty()) else {
        let message = format!("{dtype} of sizes {shape:?} has no pages for {}", path.display());
        return Err(Error::new(ErrorKind::WrongShape, message));
    };
    let sizes = u32::try_from(width).ok().zip(u32::try_from(height).ok());
    let (width, height) = sizes.ok_or_else(|| {
        Error::new(ErrorKind::WrongShape, format!("pages of {height}x{width} are too large for a TIFF file"))
    })?;
    let written = planish_files::write(path, |file| {
        let is_big = tensor.bytes().len() >= BIG_FROM;
        let done = match is_big {
            true => TiffEncoder::new_big(file).and_then(|to| write(to, &tensor, width, height)),
            false => TiffEncoder::new(file).and_then(|to| write(to, &tensor, width, height)),
        };
        done.map_err(|error| match error {
            tiff::TiffError::IoError(error) => error,
            other => std::io::Error::other(other),
        })
    });
    written.map(drop).map_err(|error| Error::io("write", path, &error))
}

fn write<W: Write + Seek, K: TiffKind>(
    mut to: TiffEncoder<W, K>,
    tensor: &Tensor,
    width: u32,
    height: u32,
) -> tiff::TiffResult<()> {
    macro_rules! gray {
        ($color:ident, $type:ty) => {{
            let values = tensor.elements::<$type>().map_err(std::io::Error::other)?;
            let mut pages = values.chunks_exact(width as usize * height as usize);
            pages.try_for_each(|page| to.write_image::<colortype::$color>(width, height, page))
        }};
    }
    match tensor.dtype() {
        DType::U8 => gray!(Gray8, u8),
        DType::U16 => gray!(Gray16, u16),
        DType::U32 => gray!(Gray32, u32),
        DType::U64 => gray!(Gray64, u64),
        DType::I8 => gray!(GrayI8, i8),
        DType::I16 => gray!(GrayI16, i16),
        DType::I32 => gray!(GrayI32, i32),
        DType::I64 => gray!(GrayI64, i64),
        DType::F32 => gray!(Gray32Float, f32),
        DType::F64 => gray!(Gray64Float, f64),
        other => Err(std::io::Error::other(format!("TIFF files have no {other}")).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("planish-stack-{}-{name}.tif", std::process::id()))
    }

    #[test]
    fn pages_of_every_type_come_back() {
        let path = file("types");
        for dtype in
            [DType::U8, DType::U16, DType::U32, DType::I8, DType::I16, DType::I32, DType::F32, DType::F64]
        {
            for n_pages in [1, 3] {
                let values: Vec<f64> = (0..n_pages * 20).map(|value| value as f64).collect();
                let pages = Tensor::from_f64s(dtype, &[n_pages, 1, 4, 5], &values).unwrap();
                save(&path, &pages).unwrap();
                assert_eq!(read(&path).unwrap(), pages);
            }
        }
        let labels = Tensor::new(&[2, 2, 2, 2], vec![true; 16]).unwrap();
        save(&path, &labels).unwrap();
        assert_eq!(read(&path).unwrap().shape(), [4, 1, 2, 2]);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn colours_and_large_offsets_are_read() {
        let path = file("big");
        let mut to = TiffEncoder::new_big(std::fs::File::create(&path).unwrap()).unwrap();
        to.write_image::<colortype::RGB16>(2, 1, &[1, 2, 3, 4, 5, 6]).unwrap();
        drop(to);
        let pages = read(&path).unwrap();
        assert_eq!(pages, Tensor::new(&[1, 3, 1, 2], vec![1u16, 4, 2, 5, 3, 6]).unwrap());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_no_stack_is_said() {
        let path = file("bad");
        std::fs::write(&path, b"II*\0 and no more").unwrap();
        let error = read(&path).unwrap_err();
        assert!(
            error.to_string().ends_with("is not a usable TIFF file: it ends too early, and may be cut off"),
            "{error}"
        );
        // One bit a pixel: a directory of the sizes and of the strip, which is the byte behind it.
        let entries: [(u16, u16, u32); 8] = [
            (256, 3, 8),
            (257, 3, 1),
            (258, 3, 1),
            (262, 3, 1),
            (273, 4, 110),
            (277, 3, 1),
            (278, 3, 1),
            (279, 4, 1),
        ];
        let mut bytes = b"II*\0\x08\0\0\0\x08\0".to_vec();
        for (tag, kind, value) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend(1u32.to_le_bytes());
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend([0, 0, 0, 0, 0b1010_1010]);
        std::fs::write(&path, bytes).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.ends_with("page 1: its samples have 1 bits; save it with 8, 16 or 32"), "{error}");
        let mut to = TiffEncoder::new(std::fs::File::create(&path).unwrap()).unwrap();
        to.write_image::<colortype::Gray8>(2, 1, &[1, 2]).unwrap();
        to.write_image::<colortype::Gray8>(1, 1, &[1]).unwrap();
        drop(to);
        let error = read(&path).unwrap_err().to_string();
        assert!(error.ends_with("page 1 is u8 [1, 1, 2], page 2 is u8 [1, 1, 1]"), "{error}");
        std::fs::remove_file(&path).unwrap();
        assert!(save(&path, &Tensor::vector(vec![1f32])).is_err() && !path.exists());
    }
}
