//! numpy's arrays as samples.
//!
//! An array with as many axes as its input has samples along the first one: as many rows each as the input's first axis
//! is long, or one where that is open. One with an axis more has a whole input in each row, one with an axis less is a
//! single sample without its batch axis.

use std::path::{Path, PathBuf};

use planish_tensor::{Bytes, DType, Tensor, element_count};

use super::pixels::{Plane, Preprocess, bad_option};
use super::{Port, evenly};
use crate::io::npy;
use crate::{Error, ErrorKind, Sample, machine, shapes};

/// What an array gives to an input, sample by sample.
struct Rows<'a> {
    port: &'a Port,
    array: Tensor,
    /// The shape of one.
    shape: Vec<usize>,
    n: usize,
}

impl<'a> Rows<'a> {
    fn of(array: Tensor, port: &'a Port, origin: &str) -> Result<Rows<'a>, Error> {
        let dims = port.dims()?;
        let own = array.shape().to_vec();
        let wrong = || {
            let (name, ty, own) = (&port.name, &port.ty, shapes::sizes_text(&own));
            let message = format!("{origin}: {own} is no number of samples for input `{name}` of type {ty}");
            Error::new(ErrorKind::WrongShape, message)
        };
        let (shape, n) = if own.len() == dims.len() + 1 {
            (own[1..].to_vec(), own[0])
        } else if own.len() + 1 == dims.len() {
            ([&[1], &own[..]].concat(), 1)
        } else if own.len() != dims.len() {
            return Err(wrong());
        } else {
            match dims.first() {
                // A single axis of open length is not cut: it may be a sentence.
                None | Some(None) if dims.len() < 2 => (own.clone(), 1),
                first => {
                    let rows = first.copied().flatten().unwrap_or(1);
                    if rows == 0 || !own[0].is_multiple_of(rows) {
                        return Err(wrong());
                    }
                    let mut shape = own.clone();
                    shape[0] = rows;
                    (shape, own[0] / rows)
                }
            }
        };
        let fits = shape.len() == dims.len()
            && shape.iter().zip(&dims).all(|(size, dim)| dim.is_none_or(|dim| dim == *size));
        if !fits || n == 0 {
            return Err(wrong());
        }
        Ok(Rows { port, array, shape, n })
    }

    /// One sample in the input's type.
    fn get(&self, idx: usize, preprocess: &Preprocess, origin: &str) -> Result<Tensor, Error> {
        let len = self.array.bytes().len() / self.n;
        let bytes = self.array.bytes()[idx * len..(idx + 1) * len].to_vec();
        let row = Tensor::from_bytes(self.array.dtype(), &self.shape, Bytes::from_vec(bytes))?;
        typed(row, self.port, preprocess, origin)
    }
}

/// The sample in the input's type: as it is, or bytes as pixels in the range that was asked for.
fn typed(row: Tensor, port: &Port, preprocess: &Preprocess, origin: &str) -> Result<Tensor, Error> {
    let (own, wanted) = (row.dtype(), port.ty.dtype);
    let is_pixels = matches!(own, DType::U8 | DType::U16) && wanted.is_float();
    if !is_pixels && (own == wanted || own == npy::stored_type(wanted)) {
        if preprocess.scale.is_some() || preprocess.mean.is_some() || preprocess.std.is_some() {
            return bad_option(format!(
                "{origin}: arrays of {own} are taken as they are; --scale, --mean and --std are for pixels (u8 and u16)"
            ));
        }
        return Ok(npy::converted(&row, wanted)?);
    }
    if !is_pixels {
        let (name, ty) = (&port.name, &port.ty);
        let message =
            format!("{origin} has elements of {own}, input `{name}` is {ty}; save the array as {wanted}");
        return Err(Error::new(ErrorKind::WrongType, message));
    }
    let largest = if own == DType::U8 { 255.0 } else { 65535.0 };
    let Some(scale) = preprocess.scale else {
        return bad_option(format!(
            "{origin} has elements of {own}, input `{}` is {}; say what {largest} becomes: --scale 1, or --scale {largest} \
             to keep values as they are",
            port.name, port.ty
        ));
    };
    if preprocess.mean.is_none() && preprocess.std.is_none() {
        let values: Vec<f64> = row.to_f64s().iter().map(|value| value / largest * f64::from(scale)).collect();
        return Ok(Tensor::from_f64s(wanted, row.shape(), &values)?);
    }
    // By channel: as an image whose channels are made innermost first.
    let layout = preprocess.layout_of(port)?;
    let values: Vec<f32> = row.to_f64s().iter().map(|value| (value / largest) as f32).collect();
    let n = layout.n_channels;
    let n_pixels = values.len() / n / if layout.is_batched { row.shape()[0] } else { 1 };
    let mut finished = Vec::with_capacity(values.len());
    for image in values.chunks_exact((n_pixels * n).max(1)) {
        let innermost = if layout.channels_first {
            (0..n_pixels).flat_map(|pixel| (0..n).map(move |c| image[c * n_pixels + pixel])).collect()
        } else {
            image.to_vec()
        };
        let plane = Plane { height: 1, width: n_pixels, n_channels: n, values: innermost };
        finished.extend(preprocess.finish(&plane, &layout, wanted)?);
    }
    Ok(Tensor::from_f64s(wanted, row.shape(), &finished)?)
}

/// Refuses arrays for which there is no memory before their elements are read.
fn fits_memory(path: &Path, name: &str, dtype: DType, shape: &[usize]) -> Result<(), Error> {
    let n_bytes = element_count(shape).and_then(|n| dtype.bytes_for(n)).map(|n| n as u64);
    match (n_bytes, machine::memory()) {
        (Some(n_bytes), Some(room)) if n_bytes > room => {
            let path = path.display();
            let message =
                format!("{path}: `{name}` takes {n_bytes} bytes, this machine has {room} bytes of memory");
            Err(Error::new(ErrorKind::OutOfMemory, message))
        }
        _ => Ok(()),
    }
}

fn load(path: &Path) -> Result<Tensor, Error> {
    npy::read(path, &|name, dtype, shape| fits_memory(path, name, dtype, shape))
}

/// Samples of a `.npy` file for a model with one input.
pub(super) fn single(
    path: &Path,
    port: &Port,
    limit: usize,
    preprocess: &Preprocess,
) -> Result<Vec<Sample>, Error> {
    let origin = path.display().to_string();
    together(&[Rows::of(load(path)?, port, &origin)?], limit, preprocess, &origin)
}

/// Samples of a `.npz` file by the names of the inputs. A single array serves a single input under any name.
pub(super) fn archive(
    path: &Path,
    ports: &[Port],
    limit: usize,
    preprocess: &Preprocess,
    notes: Option<&mut Vec<String>>,
) -> Result<Vec<Sample>, Error> {
    let origin = path.display().to_string();
    let mut arrays = npy::read_archive(path, &|name, dtype, shape| fits_memory(path, name, dtype, shape))?;
    if let ([port], [(name, _)]) = (ports, &mut arrays[..]) {
        name.clone_from(&port.name);
    }
    let mut rows = Vec::new();
    for port in ports {
        let Some(idx) = arrays.iter().position(|(name, _)| *name == port.name) else {
            let names: Vec<String> = arrays.iter().map(|(name, _)| format!("`{name}`")).collect();
            let message = format!("{origin} has no array `{}`; it has {}", port.name, names.join(", "));
            return Err(Error::new(ErrorKind::WrongInputs, message));
        };
        rows.push(Rows::of(arrays.swap_remove(idx).1, port, &format!("{origin}: `{}`", port.name))?);
    }
    if let (Some(notes), false) = (notes, arrays.is_empty()) {
        let mut names: Vec<String> = arrays.iter().map(|(name, _)| format!("`{name}`")).collect();
        names.sort();
        notes.push(format!("{origin}: {} are no inputs of the model and are not used", names.join(", ")));
    }
    together(&rows, limit, preprocess, &origin)
}

/// Samples of a folder with one `.npy` file for each input, which is named as the input is.
pub(super) fn by_file_name(
    files: &[PathBuf],
    ports: &[Port],
    limit: usize,
    preprocess: &Preprocess,
) -> Result<Vec<Sample>, Error> {
    let mut rows = Vec::new();
    for port in ports {
        let is_named = |path: &&PathBuf| path.file_stem().is_some_and(|stem| *stem == *port.name);
        let Some(path) = files.iter().find(is_named) else {
            let message = format!(
                "there is no file {}.npy; a model with several inputs takes one .npy file for each, or .npz files",
                port.name
            );
            return Err(Error::new(ErrorKind::WrongInputs, message));
        };
        rows.push(Rows::of(load(path)?, port, &path.display().to_string())?);
    }
    together(&rows, limit, preprocess, "the arrays")
}

/// The samples of several inputs; an array with a single one serves all samples of the others.
fn together(
    inputs: &[Rows<'_>],
    limit: usize,
    preprocess: &Preprocess,
    origin: &str,
) -> Result<Vec<Sample>, Error> {
    let n = inputs.iter().map(|rows| rows.n).max().unwrap_or(0);
    if let Some(rows) = inputs.iter().find(|rows| rows.n != n && rows.n != 1) {
        let message = format!("{origin}: `{}` has {} samples, another input has {n}", rows.port.name, rows.n);
        return Err(Error::new(ErrorKind::WrongShape, message));
    }
    let one = |idx: usize| {
        let mut values = Vec::new();
        for rows in inputs {
            let at = if rows.n == 1 { 0 } else { idx };
            values.push((rows.port.name.clone(), rows.get(at, preprocess, origin)?));
        }
        // A fixed batch counts for its size.
        let count = match inputs {
            [rows] if rows.shape.len() > 1 && rows.array.rank() == rows.shape.len() => rows.shape[0],
            _ => 1,
        };
        Ok(Sample::new(values, count))
    };
    evenly(n, limit).into_iter().map(one).collect()
}
