//! numpy's files: `.npy` holds one array, `.npz` is a zip archive of them.
//!
//! A `.npy` is a magic number, a version, the length of a header, the header (a Python dictionary with the
//! element type, the order and the shape) and the elements. Element types that numpy lacks travel in the next
//! wider one that has all of their values: small floats in `f32`, small integers in 8 bits. numpy itself writes arrays of
//! `ml_dtypes` as raw bytes (`V1`, `V2`), one element a byte or two; who reads them says what they are.

use std::io::{self, BufReader, Read, Seek, Write};
use std::path::Path;

use planish_tensor::{Bytes, DType, Tensor, TensorError, element_count, memory};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::first_error::FirstError;
use crate::{Error, ErrorKind};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// numpy's own headers have some hundred bytes.
const MAX_HEADER: usize = 1 << 16;
/// Bytes of elements that are read before memory is asked for again.
const FIRST_PIECE: usize = 1 << 26;
/// Elements begin at a multiple of this.
const ALIGNMENT: usize = 64;

/// Asked before an array's elements are read, by its name, type and sizes: a small file can promise, and inflate to,
/// more than there is memory.
/// [`accept_all`] takes everything; [`read`] has an example.
pub type Accept<'a> = &'a dyn Fn(&str, DType, &[usize]) -> Result<(), Error>;

/// What the raw bytes of an array of this name are elements of, where the reader knows.
/// [`read_as`] has an example.
pub type RawType<'a> = &'a dyn Fn(&str) -> Option<DType>;

/// Takes whatever array a file holds.
/// [`read`] has an example.
pub fn accept_all(_: &str, _: DType, _: &[usize]) -> Result<(), Error> {
    Ok(())
}

/// What is wrong with an array, in words; its file is named by who opened it.
type Parsed<T> = Result<T, String>;

fn not_usable(path: &Path, kind: &str, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::BadFile, format!("{} is not a usable {kind} file: {why}", path.display()))
}

/// The array in a `.npy` file.
///
/// ```
/// use planish::Tensor;
/// use planish::io::npy;
///
/// # let path = std::env::temp_dir().join(format!("planish-doc-{}.npy", std::process::id()));
/// let x = Tensor::vector(vec![1f32, 2.0, 3.0]);
/// npy::save(&path, &x)?;
/// assert_eq!(npy::read(&path, &npy::accept_all)?, x);
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), planish::Error>(())
/// ```
pub fn read(path: &Path, accept: Accept<'_>) -> Result<Tensor, Error> {
    read_as(path, accept, &|_| None)
}

/// The same, for arrays of `ml_dtypes` too, which numpy writes as raw bytes: the caller says what they are.
///
/// ```
/// use planish::DType;
/// use planish::io::npy;
///
/// # let path = std::env::temp_dir().join(format!("planish-doc-raw-{}.npy", std::process::id()));
/// // numpy.save("x.npy", numpy.array([1, -2], ml_dtypes.bfloat16))
/// let mut bytes = b"\x93NUMPY\x01\x00\x3a\x00{'descr': '|V2', 'fortran_order': False, 'shape': (2,), }\n".to_vec();
/// bytes.extend([0x80, 0x3f, 0x00, 0xc0]);
/// std::fs::write(&path, bytes).unwrap();
/// let x = npy::read_as(&path, &npy::accept_all, &|_| Some(DType::BF16))?;
/// assert_eq!((x.dtype(), x.to_f64s()), (DType::BF16, vec![1.0, -2.0]));
/// assert!(npy::read(&path, &npy::accept_all).is_err());
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), planish::Error>(())
/// ```
pub fn read_as(path: &Path, accept: Accept<'_>, raw: RawType<'_>) -> Result<Tensor, Error> {
    let file = planish_files::open(path).map_err(|error| Error::io("read", path, &error))?;
    let mut file = BufReader::new(file);
    let header = Header::read(&mut file).and_then(|header| header.known(raw("")));
    let header = header.map_err(|why| not_usable(path, ".npy", why))?;
    accept("", header.dtype, &header.shape)?;
    elements(&mut file, &header).map_err(|why| not_usable(path, ".npy", why))
}

/// The array in a `.npy` file, mapped: its pages are read when they are touched, so it may be larger than memory. A file in
/// Fortran's order or of big-endian numbers is read instead. [`Bytes::map_file`] says what holds while it is mapped.
///
/// ```
/// use planish::Tensor;
/// use planish::io::npy;
///
/// # let path = std::env::temp_dir().join(format!("planish-doc-mapped-{}.npy", std::process::id()));
/// npy::save(&path, &Tensor::vector(vec![1f32, 2.0, 3.0]))?;
/// assert_eq!(npy::map(&path)?.elements::<f32>()?[2], 3.0);
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn map(path: &Path) -> Result<Tensor, Error> {
    let cannot = |error: io::Error| Error::io("read", path, &error);
    let mut file = planish_files::open(path).map_err(cannot)?;
    let bad = |why: String| not_usable(path, ".npy", why);
    let header = Header::read(&mut file).and_then(|header| header.known(None)).map_err(bad)?;
    if header.is_big_endian || header.is_fortran {
        return read(path, &accept_all);
    }
    let start =
        usize::try_from(file.stream_position().map_err(cannot)?).map_err(|error| bad(error.to_string()))?;
    let bytes = Bytes::map_opened(&file).map_err(cannot)?;
    let n_bytes = header.dtype.bytes_of(&header.shape);
    let elements = n_bytes.and_then(|n| bytes.slice(start..start.checked_add(n)?));
    let elements = elements.ok_or_else(|| {
        let (shape, has) = (&header.shape, bytes.len().saturating_sub(start));
        bad(format!(
            "its header promises {} of shape {shape:?}, it has {has} bytes of elements",
            header.dtype
        ))
    })?;
    Ok(Tensor::from_bytes(header.dtype, &header.shape, elements)?)
}

/// The arrays in a `.npz` file, in file order.
///
/// ```
/// use planish::Tensor;
/// use planish::io::npy;
///
/// # let path = std::env::temp_dir().join(format!("planish-doc-archive-{}.npz", std::process::id()));
/// let arrays = [("x".to_string(), Tensor::vector(vec![1f32, 2.0])), ("n".to_string(), Tensor::scalar(3i64))];
/// npy::save_archive(&path, &arrays)?;                          // numpy.load("arrays.npz")["x"]
/// assert_eq!(npy::read_archive(&path, &npy::accept_all)?, arrays);
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), planish::Error>(())
/// ```
pub fn read_archive(path: &Path, accept: Accept<'_>) -> Result<Vec<(String, Tensor)>, Error> {
    read_archive_as(path, accept, &|_| None)
}

/// The same, for arrays of `ml_dtypes` too, as [`read_as`] reads them.
///
/// ```
/// use planish::io::npy;
/// use planish::{DType, Tensor};
///
/// # let path = std::env::temp_dir().join(format!("planish-doc-raw-archive-{}.npz", std::process::id()));
/// npy::save_archive(&path, &[("x".to_string(), Tensor::vector(vec![1f32]))])?;
/// let arrays = npy::read_archive_as(&path, &npy::accept_all, &|_| Some(DType::BF16))?;
/// assert_eq!(arrays[0].1.dtype(), DType::F32);                 // numpy's own types are as the file says
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), planish::Error>(())
/// ```
pub fn read_archive_as(
    path: &Path,
    accept: Accept<'_>,
    raw: RawType<'_>,
) -> Result<Vec<(String, Tensor)>, Error> {
    let file = planish_files::open(path).map_err(|error| Error::io("read", path, &error))?;
    let bad = |why: &dyn std::fmt::Display| not_usable(path, ".npz", why);
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(|why| bad(&why))?;
    let mut arrays = Vec::new();
    for idx in 0..archive.len() {
        let mut entry = archive.by_index(idx).map_err(|why| bad(&why))?;
        let name = entry.name().map_err(|why| bad(&why))?.into_owned();
        let Some(name) = name.strip_suffix(".npy").map(str::to_string) else { continue };
        let in_array = |why: String| bad(&format!("array `{name}`: {why}"));
        let header = Header::read(&mut entry).and_then(|header| header.known(raw(&name)));
        let header = header.map_err(in_array)?;
        accept(&name, header.dtype, &header.shape)?;
        let array = elements(&mut entry, &header).map_err(in_array)?;
        arrays.push((name, array));
    }
    Ok(arrays)
}

/// The elements after a header.
fn elements(reader: &mut dyn Read, header: &Header) -> Parsed<Tensor> {
    let too_large = || format!("an array of shape {:?} does not fit into memory", header.shape);
    let n = element_count(&header.shape).ok_or_else(too_large)?;
    let width = header.dtype.bits().div_ceil(8);
    let n_bytes = n.checked_mul(width).ok_or_else(too_large)?;
    let mut data = Vec::new();
    // Grown as data comes: a header may promise anything, and what was packed may inflate to it.
    while data.len() < n_bytes {
        let more = (n_bytes - data.len()).min(data.len().max(FIRST_PIECE));
        memory::fits(more).map_err(|_| too_large())?;
        let read =
            (&mut *reader).take(more as u64).read_to_end(&mut data).map_err(|error| error.to_string())?;
        if read < more {
            return Err(format!("its header promises {n_bytes} bytes of elements, it has {}", data.len()));
        }
    }
    if header.is_big_endian {
        data.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
    if header.is_fortran {
        data = rows_last(&data, &header.shape, width);
    }
    if header.dtype.is_sub_byte() {
        data = packed(&data, header.dtype.bits());
    }
    Tensor::from_bytes(header.dtype, &header.shape, Bytes::from_vec(data)).map_err(|error| error.to_string())
}

/// Elements of one byte each, put together: the first in the low bits.
fn packed(data: &[u8], bits: usize) -> Vec<u8> {
    let mask = (1u8 << bits) - 1;
    let byte = |elements: &[u8]| elements.iter().rev().fold(0, |byte, element| byte << bits | element & mask);
    data.chunks(8 / bits).map(byte).collect()
}

/// Elements stored with the first axis running fastest, put into our order.
fn rows_last(data: &[u8], shape: &[usize], width: usize) -> Vec<u8> {
    let mut ordered = Vec::with_capacity(data.len());
    let mut index = vec![0; shape.len()];
    for _ in 0..data.len() / width.max(1) {
        let place = index.iter().zip(shape).rev().fold(0, |place, (idx, size)| place * size + idx);
        ordered.extend_from_slice(&data[place * width..(place + 1) * width]);
        for (idx, size) in index.iter_mut().zip(shape).rev() {
            *idx += 1;
            if *idx < *size {
                break;
            }
            *idx = 0;
        }
    }
    ordered
}

#[derive(Debug)]
struct Header {
    /// For raw bytes, an integer of as many until [`Header::known`] is told.
    dtype: DType,
    /// The bytes of an element whose type the file does not say.
    raw: Option<usize>,
    is_big_endian: bool,
    is_fortran: bool,
    shape: Vec<usize>,
}

impl Header {
    fn read(reader: &mut dyn Read) -> Parsed<Header> {
        let mut fill = |bytes: &mut [u8], cut: &str| reader.read_exact(bytes).map_err(|_| cut.to_string());
        let mut start = [0; 8];
        fill(&mut start, "it is too short")?;
        if !start.starts_with(MAGIC) {
            return Err("it does not begin as one".to_string());
        }
        let cut = "its header is cut off";
        let header_len = match start[6] {
            1 => {
                let mut len = [0; 2];
                fill(&mut len, cut)?;
                usize::from(u16::from_le_bytes(len))
            }
            2 | 3 => {
                let mut len = [0; 4];
                fill(&mut len, cut)?;
                u32::from_le_bytes(len) as usize
            }
            version => return Err(format!("version {version} of the format is not known")),
        };
        if header_len > MAX_HEADER {
            return Err(format!("its header has {header_len} bytes, more than numpy writes"));
        }
        let mut header = vec![0; header_len];
        fill(&mut header, cut)?;
        let header = String::from_utf8(header).map_err(|_| "its header is not text".to_string())?;
        Header::parse(&header)
    }

    fn parse(text: &str) -> Parsed<Header> {
        let field = |name: &str| {
            let (_, rest) = text.split_once(&format!("'{name}':"))?;
            Some(rest.trim_start())
        };
        let unreadable = || format!("the header `{}` cannot be read", text.trim());
        let descr = field("descr").ok_or_else(unreadable)?;
        let Some(descr) = descr.strip_prefix('\'').and_then(|rest| Some(rest.split_once('\'')?.0)) else {
            return Err("arrays of records are not supported".to_string());
        };
        let is_fortran = field("fortran_order").ok_or_else(unreadable)?.starts_with("True");
        let shape = field("shape").ok_or_else(unreadable)?;
        let shape = shape.strip_prefix('(').and_then(|rest| Some(rest.split_once(')')?.0));
        let shape = shape.ok_or_else(unreadable)?.split(',').map(str::trim).filter(|size| !size.is_empty());
        let shape = shape.map(str::parse).collect::<Result<Vec<usize>, _>>().map_err(|_| unreadable())?;
        let (is_big_endian, kind) = match descr.split_at_checked(1) {
            Some((">", kind)) => (true, kind),
            Some(("<" | "|" | "=", kind)) => (false, kind),
            _ => (false, descr),
        };
        let own = NUMPY_TYPES.iter().find(|(_, name)| *name == kind).map(|(dtype, _)| *dtype);
        let (dtype, raw) = match (own, kind) {
            (Some(dtype), _) => (dtype, None),
            // Of float8_e5m2 numpy writes `f1`, which it cannot read itself.
            (None, "V1" | "f1") => (DType::U8, Some(1)),
            (None, "V2") => (DType::U16, Some(2)),
            _ => return Err(format!("elements of numpy type `{descr}` are not supported")),
        };
        Ok(Header { dtype, raw, is_big_endian, is_fortran, shape })
    }

    /// With the type of raw bytes, which numpy has no name for.
    fn known(mut self, raw: Option<DType>) -> Parsed<Header> {
        let Some(bytes) = self.raw else { return Ok(self) };
        let is_own = |dtype: DType| NUMPY_TYPES.iter().any(|(known, _)| *known == dtype);
        let fits = |dtype: &DType| !is_own(*dtype) && dtype.bits().div_ceil(8) == bytes;
        match raw {
            Some(dtype) if fits(&dtype) => {
                self.dtype = dtype;
                Ok(self)
            }
            Some(dtype) => Err(format!("its elements are raw bytes (`|V{bytes}`), which are no {dtype}")),
            None => Err(format!(
                "its elements are raw bytes (`|V{bytes}`), as numpy writes types of ml_dtypes, and nothing says of which type; \
                 save it with astype('float32')"
            )),
        }
    }
}

/// The element types that both sides have.
const NUMPY_TYPES: [(DType, &str); 12] = [
    (DType::F64, "f8"),
    (DType::F32, "f4"),
    (DType::F16, "f2"),
    (DType::I8, "i1"),
    (DType::I16, "i2"),
    (DType::I32, "i4"),
    (DType::I64, "i8"),
    (DType::U8, "u1"),
    (DType::U16, "u2"),
    (DType::U32, "u4"),
    (DType::U64, "u8"),
    (DType::Bool, "b1"),
];

/// The type in which a `.npy` holds elements of type `dtype`.
/// [`converted`] has an example.
pub fn stored_type(dtype: DType) -> DType {
    match dtype {
        dtype if NUMPY_TYPES.iter().any(|(known, _)| *known == dtype) => dtype,
        dtype if dtype.is_float() => DType::F32,
        dtype if dtype.is_signed_int() => DType::I8,
        _ => DType::U8,
    }
}

/// The tensor in a type that holds every value of its own.
///
/// ```
/// use planish::io::npy;
/// use planish::{DType, Tensor, f16};
///
/// let x = Tensor::vector(vec![f16::from_f32(0.5)]);
/// assert_eq!(npy::converted(&x, DType::F32)?, Tensor::vector(vec![0.5f32]));
/// assert_eq!(npy::stored_type(DType::BF16), DType::F32);       // numpy has no bf16
/// # Ok::<(), planish::TensorError>(())
/// ```
pub fn converted(tensor: &Tensor, dtype: DType) -> Result<Tensor, TensorError> {
    if tensor.dtype() == dtype {
        return Ok(tensor.clone());
    }
    Tensor::from_f64s(dtype, tensor.shape(), &tensor.to_f64s())
}

/// Writes a tensor as `.npy`.
///
/// ```
/// let mut bytes = Vec::new();
/// planish::io::npy::write(&mut bytes, &planish::Tensor::vector(vec![1f32]))?;
/// assert!(bytes.starts_with(b"\x93NUMPY"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write(out: &mut dyn Write, tensor: &Tensor) -> io::Result<()> {
    let tensor = converted(tensor, stored_type(tensor.dtype())).map_err(io::Error::other)?;
    let name = NUMPY_TYPES.iter().find(|(dtype, _)| *dtype == tensor.dtype()).map_or("", |(_, name)| name);
    let order = if tensor.dtype().bits() == 8 { '|' } else { '<' };
    // Python spells a tuple of one with a comma.
    let sizes: String = tensor.shape().iter().map(|size| format!("{size}, ")).collect();
    let sizes = if tensor.rank() == 1 { sizes.trim_end() } else { sizes.trim_end_matches(", ") };
    let mut header = format!("{{'descr': '{order}{name}', 'fortran_order': False, 'shape': ({sizes}), }}");
    let unpadded = MAGIC.len() + 4 + header.len() + 1;
    header.push_str(&" ".repeat(unpadded.next_multiple_of(ALIGNMENT) - unpadded));
    header.push('\n');
    let header_len = u16::try_from(header.len()).map_err(io::Error::other)?;
    out.write_all(MAGIC)?;
    out.write_all(&[1, 0])?;
    out.write_all(&header_len.to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    out.write_all(tensor.bytes())
}

/// Writes named tensors as `.npz`, not compressed, as numpy's `savez` does.
/// Into memory or a file that is open; [`save_archive`] is for paths.
///
/// ```
/// use planish::Tensor;
/// use planish::io::npy;
///
/// let mut bytes = std::io::Cursor::new(Vec::new());
/// npy::write_archive(&mut bytes, &[("x".to_string(), Tensor::vector(vec![1f32, 2.0]))])?;
/// assert!(bytes.into_inner().starts_with(b"PK"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write_archive(out: impl Write + Seek, tensors: &[(String, Tensor)]) -> io::Result<()> {
    // An archive that is dropped unfinished tries once more, and prints what it meets.
    let mut out = FirstError::new(out);
    let mut archive = ZipWriter::new(&mut out);
    for (name, tensor) in tensors {
        // From here on the old format's 32-bit sizes do not do.
        let is_large = tensor.bytes().len() > (u32::MAX / 8) as usize;
        let options =
            SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(is_large);
        archive.start_file(format!("{name}.npy"), options)?;
        write(&mut archive, tensor)?;
    }
    archive.finish()?;
    out.end()
}

/// Writes a `.npy` file, in one piece or not at all.
/// [`read`] has an example.
pub fn save(path: &Path, tensor: &Tensor) -> Result<(), Error> {
    let written = planish_files::write(path, |file| write(file, tensor));
    written.map(drop).map_err(|error| Error::io("write", path, &error))
}

/// Writes a `.npz` file of named tensors, in one piece or not at all.
/// [`read_archive`] has an example.
pub fn save_archive(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), Error> {
    let written = planish_files::write(path, |file| write_archive(file, tensors));
    written.map(drop).map_err(|error| Error::io("write", path, &error))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn read(reader: &mut dyn Read) -> Parsed<Tensor> {
        let header = Header::read(reader)?.known(None)?;
        elements(reader, &header)
    }

    fn written(tensor: &Tensor) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, tensor).unwrap();
        bytes
    }

    #[test]
    fn every_type_comes_back_in_its_own_or_a_wider_one() {
        for dtype in DType::ALL {
            for shape in [&[][..], &[3], &[2, 0, 3], &[1, 2, 3]] {
                let n = shape.iter().product::<usize>();
                let values: Vec<f64> = (0..n).map(|idx| (idx % 2) as f64 + 1.0).collect();
                let tensor = Tensor::from_f64s(dtype, shape, &values).unwrap();
                let back = read(&mut Cursor::new(written(&tensor))).unwrap();
                assert_eq!(back, converted(&tensor, stored_type(dtype)).unwrap(), "{dtype}");
                assert_eq!(converted(&back, dtype).unwrap(), tensor, "{dtype}");
            }
        }
    }

    #[test]
    fn headers_as_numpy_writes_them() {
        let bytes = written(&Tensor::vector(vec![1f32, 2.0]));
        assert_eq!(&bytes[..10], b"\x93NUMPY\x01\x00v\x00");
        let header = std::str::from_utf8(&bytes[10..128]).unwrap();
        assert_eq!(header.trim_end(), "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }");
        assert_eq!(bytes.len(), 128 + 8);
        let header = |text: &str| Header::parse(text);
        let parsed = header("{'descr': '>i2', 'fortran_order': True, 'shape': (4, 5), }").unwrap();
        assert_eq!((parsed.dtype, parsed.shape), (DType::I16, vec![4, 5]));
        assert!(parsed.is_big_endian && parsed.is_fortran);
        for (text, message) in [
            ("{}", "the header `{}` cannot be read"),
            ("{'descr': [('a', '<f4')], }", "arrays of records are not supported"),
            (
                "{'descr': '<c8', 'fortran_order': False, 'shape': ()}",
                "elements of numpy type `<c8` are not supported",
            ),
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
                "the header `{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}` cannot be read",
            ),
        ] {
            assert_eq!(header(text).unwrap_err(), message);
        }
    }

    #[test]
    fn raw_bytes_are_what_the_reader_says() {
        let header = |bytes: usize| {
            let text = format!("{{'descr': '|V{bytes}', 'fortran_order': False, 'shape': (3,), }}");
            Header::parse(&text).unwrap()
        };
        let read = |dtype: DType, data: &[u8]| {
            elements(&mut Cursor::new(data), &header(dtype.bits().div_ceil(8)).known(Some(dtype))?)
        };
        let one_of = |dtype: DType, data: &[u8]| read(dtype, data).unwrap().to_f64s();
        assert_eq!(one_of(DType::BF16, &[0x80, 0x3f, 0, 0xc0, 0, 0]), [1.0, -2.0, 0.0]);
        assert_eq!(one_of(DType::F8E4M3FN, &[0x38, 0xb8, 0x40]), [1.0, -1.0, 2.0]);
        // As ml_dtypes keeps them: a byte each, with the sign spread over it.
        assert_eq!(one_of(DType::I4, &[0xff, 0x07, 0xf8]), [-1.0, 7.0, -8.0]);
        assert_eq!(one_of(DType::U2, &[3, 0, 2]), [3.0, 0.0, 2.0]);
        // numpy has a name of its own making for this one.
        let named = Header::parse("{'descr': '<f1', 'fortran_order': False, 'shape': (2,), }").unwrap();
        let named = named.known(Some(DType::F8E5M2)).unwrap();
        assert_eq!(elements(&mut Cursor::new(&[0x3c, 0xc0]), &named).unwrap().to_f64s(), [1.0, -2.0]);
        assert!(read(DType::I4, &[1, 2]).unwrap_err().contains("promises 3 bytes"));
        for (bytes, dtype) in [(1, Some(DType::BF16)), (2, Some(DType::F16)), (1, Some(DType::U8)), (2, None)]
        {
            let error = header(bytes).known(dtype).unwrap_err();
            assert!(error.contains(&format!("raw bytes (`|V{bytes}`)")), "{error}");
        }
    }

    #[test]
    fn other_orders_are_brought_to_ours() {
        let mut bytes = written(&Tensor::new(&[2, 3], vec![1i16, 4, 2, 5, 3, 6]).unwrap());
        let text = String::from_utf8_lossy(&bytes).replace("False", "True ");
        assert!(text.contains("True"));
        let at = bytes.windows(5).position(|window| window == b"False").unwrap();
        bytes[at..at + 5].copy_from_slice(b"True ");
        let tensor = read(&mut Cursor::new(&bytes)).unwrap();
        assert_eq!(tensor, Tensor::new(&[2, 3], vec![1i16, 2, 3, 4, 5, 6]).unwrap());
        let at = bytes.windows(3).position(|window| window == b"<i2").unwrap();
        bytes[at] = b'>';
        let tensor = read(&mut Cursor::new(&bytes)).unwrap();
        assert_eq!(tensor.to_i64s(), [256, 512, 768, 1024, 1280, 1536]);
    }

    #[test]
    fn damaged_files_are_refused() {
        let bytes = written(&Tensor::vector(vec![1f64; 10]));
        for end in 0..bytes.len() {
            assert!(read(&mut Cursor::new(&bytes[..end])).is_err(), "cut at {end}");
        }
        let mut huge = bytes.clone();
        let at = huge.windows(5).position(|window| window == b"(10,)").unwrap();
        huge[at..at + 24].copy_from_slice(b"(9999999999999999999,)  ");
        assert!(read(&mut Cursor::new(&huge)).is_err());
    }

    #[test]
    fn mapped_files_hold_what_read_ones_do() {
        let path = std::env::temp_dir().join(format!("planish-npy-map-{}.npy", std::process::id()));
        for shape in [&[][..], &[3], &[2, 0, 3], &[4, 5]] {
            let n = shape.iter().product::<usize>();
            let tensor = Tensor::new(shape, (0..n as i32).collect()).unwrap();
            save(&path, &tensor).unwrap();
            assert_eq!(map(&path).unwrap(), tensor);
        }
        let mut bytes = written(&Tensor::new(&[2, 3], vec![1i16, 4, 2, 5, 3, 6]).unwrap());
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        let error = map(&path).unwrap_err().to_string();
        assert!(error.ends_with("promises i16 of shape [2, 3], it has 11 bytes of elements"), "{error}");
        let at = bytes.windows(5).position(|window| window == b"False").unwrap();
        bytes[at..at + 5].copy_from_slice(b"True ");
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(map(&path).unwrap(), Tensor::new(&[2, 3], vec![1i16, 2, 3, 4, 5, 6]).unwrap());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn archives_come_back() {
        let tensors = vec![
            ("x".to_string(), Tensor::vector(vec![1f32, 2.0])),
            ("/layer/out:0".to_string(), Tensor::scalar(7i64)),
        ];
        let path = std::env::temp_dir().join(format!("planish-npz-{}.npz", std::process::id()));
        let mut bytes = Cursor::new(Vec::new());
        write_archive(&mut bytes, &tensors).unwrap();
        std::fs::write(&path, bytes.into_inner()).unwrap();
        assert_eq!(read_archive(&path, &accept_all).unwrap(), tensors);
        let refused = read_archive(&path, &|name, _, shape| {
            Err(Error::new(ErrorKind::OutOfMemory, format!("{name} {shape:?}")))
        });
        let refused = refused.unwrap_err();
        assert_eq!(refused.to_string(), "x [2]");
        std::fs::write(&path, b"not an archive").unwrap();
        assert!(read_archive(&path, &accept_all).is_err());
        std::fs::remove_file(path).unwrap();
    }
}
