//! Samples for calibration: a folder or a file of images, arrays, TIFF stacks or numbers, as the inputs of a model.
//!
//! The order is fixed: files by their paths, samples within a file as they stand in it. Where there are more than are
//! asked for, every n-th is taken, so that a folder with a subfolder for each class gives samples of all of them.

mod arrays;
mod pixels;
mod stack;
mod table;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use planish_ir::Graph;
use planish_op::TensorType;
use planish_tensor::{Bytes, Tensor};

use crate::{Error, ErrorKind, Sample, shapes};
pub use pixels::{ChannelOrder, PixelLayout, Preprocess};

/// Folders within folders are looked through down to this depth; deeper ones are likely to be a circle of links.
const MAX_DEPTH: usize = 16;

/// What a file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Image,
    /// `.npy`: one array.
    Array,
    /// `.npz`: arrays by name.
    Archive,
    Stack,
    Table,
}

impl Kind {
    fn of(path: &Path) -> Option<Kind> {
        if super::picture::is_image(path) {
            return Some(Kind::Image);
        }
        match path.extension()?.to_str()?.to_lowercase().as_str() {
            "npy" => Some(Kind::Array),
            "npz" => Some(Kind::Archive),
            "tif" | "tiff" => Some(Kind::Stack),
            "csv" => Some(Kind::Table),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Image => "images",
            Kind::Array => ".npy files",
            Kind::Archive => ".npz files",
            Kind::Stack => "TIFF files",
            Kind::Table => "CSV files",
        }
    }
}

/// An input of the model that is to be fed.
#[derive(Clone, Debug)]
struct Port {
    name: String,
    ty: TensorType,
}

impl Port {
    /// The sizes of the input; open ones are `None`.
    fn dims(&self) -> Result<Vec<Option<usize>>, Error> {
        let Some(shape) = &self.ty.shape else {
            let message = format!("input `{}` is {}, of any rank; samples need a shape", self.name, self.ty);
            return Err(Error::new(ErrorKind::WrongShape, message));
        };
        Ok(shape.dims().iter().map(|dim| dim.as_usize()).collect())
    }
}

/// Samples from files, read as they are asked for.
///
/// ```no_run
/// use planish::io::{Preprocess, Samples};
/// use planish::{CalibrationBuilder, Model};
///
/// let model = Model::open("model.onnx")?;
/// let samples = Samples::open("photos", model.graph(), 500, &Preprocess::default())?;
/// println!("{}", samples.notes().join("\n"));                         // how pixels become inputs
/// let calibration = CalibrationBuilder::from_model(model).run(samples)?;
/// # Ok::<(), planish::Error>(())
/// ```
#[derive(Debug)]
pub struct Samples {
    ports: Vec<Port>,
    preprocess: Preprocess,
    kind: Kind,
    files: VecDeque<PathBuf>,
    /// Samples to take of each file.
    per_file: usize,
    /// What was read and not yet handed out.
    ready: VecDeque<Sample>,
    n_left: usize,
    notes: Vec<String>,
}

impl Samples {
    /// Up to `limit` samples of a folder or file, for the inputs of a graph.
    pub fn open(
        path: impl AsRef<Path>,
        graph: &Graph,
        limit: usize,
        preprocess: &Preprocess,
    ) -> Result<Samples, Error> {
        let path = path.as_ref();
        let inputs = shapes::tensor_inputs(graph);
        let ports: Vec<Port> = inputs
            .iter()
            .map(|(value, ty)| Port { name: value.name.to_string(), ty: (*ty).clone() })
            .collect();
        if limit == 0 || ports.is_empty() || ports.len() != graph.inputs().len() {
            let message = match limit {
                0 => "0 samples calibrate nothing; 100 to 500 are usual",
                _ => "only models whose inputs are all tensors can be calibrated",
            };
            return Err(Error::new(ErrorKind::BadOption, message));
        }
        let mut files = Vec::new();
        let metadata = std::fs::metadata(path).map_err(|error| Error::io("read", path, &error))?;
        match (metadata.is_dir(), Kind::of(path)) {
            (true, _) => gather(path, MAX_DEPTH, &mut files)?,
            (false, Some(kind)) => files.push((kind, path.to_path_buf())),
            (false, None) => return Err(no_kind(path)),
        }
        files.sort_by(|a, b| a.1.cmp(&b.1));
        let Some(&(kind, _)) = files.first() else { return Err(no_kind(path)) };
        if let Some((other, _)) = files.iter().find(|(other, _)| *other != kind) {
            let (kind, other, path) = (kind.name(), other.name(), path.display());
            let message = format!("{path} has {kind} and {other}; put one kind of samples into a folder");
            return Err(Error::new(ErrorKind::BadFile, message));
        }
        let files: Vec<PathBuf> = files.into_iter().map(|(_, path)| path).collect();
        let mut samples = Samples {
            ports,
            preprocess: preprocess.clone(),
            kind,
            files: VecDeque::new(),
            per_file: 1,
            ready: VecDeque::new(),
            n_left: limit,
            notes: Vec::new(),
        };
        if kind == Kind::Array && samples.ports.len() > 1 {
            // One file for each input.
            samples.per_file = limit;
            samples.ready = arrays::by_file_name(&files, &samples.ports, limit, preprocess)?.into();
        } else {
            let chosen = evenly(files.len(), limit);
            samples.per_file = limit.div_ceil(chosen.len());
            samples.files = chosen.into_iter().map(|idx| files[idx].clone()).collect();
            samples.read_on()?;
        }
        if samples.ready.is_empty() {
            let message = format!(
                "{} gives no sample for the model's inputs; a batch of a fixed size needs that many",
                path.display()
            );
            return Err(Error::new(ErrorKind::BadFile, message));
        }
        Ok(samples)
    }

    /// What the user should know: how pixels become inputs.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Reads files until there is a sample.
    fn read_on(&mut self) -> Result<(), Error> {
        let mut loose = Vec::new();
        while self.ready.is_empty() {
            let Some(path) = self.files.pop_front() else { return Ok(()) };
            let note = self.notes.is_empty().then_some(&mut self.notes);
            let single = || match &self.ports[..] {
                [port] => Ok(port),
                ports => {
                    let (kind, n) = (self.kind.name(), ports.len());
                    let message =
                        format!("the model has {n} inputs, {kind} give one; give .npz files by name");
                    Err(Error::new(ErrorKind::WrongInputs, message))
                }
            };
            let units = match self.kind {
                Kind::Image => vec![pixels::image(&path, single()?, &self.preprocess, note)?],
                Kind::Stack => stack::read(&path, single()?, self.per_file, &self.preprocess, note)?,
                Kind::Table => table::read(&path, single()?, self.per_file)?,
                Kind::Array => {
                    let found = arrays::single(&path, single()?, self.per_file, &self.preprocess)?;
                    self.ready.extend(found);
                    continue;
                }
                Kind::Archive => {
                    let found = arrays::archive(&path, &self.ports, self.per_file, &self.preprocess, note)?;
                    self.ready.extend(found);
                    continue;
                }
            };
            loose.extend(units);
            self.gather_batches(&mut loose)?;
        }
        Ok(())
    }

    /// Puts single samples together to batches of the size that the model has.
    fn gather_batches(&mut self, loose: &mut Vec<Tensor>) -> Result<(), Error> {
        let port = &self.ports[0];
        let dims = port.dims()?;
        let has_batch = loose
            .first()
            .is_some_and(|first| first.rank() == dims.len() && first.shape().first() == Some(&1));
        let batch = dims.first().copied().flatten().filter(|_| has_batch).unwrap_or(1).max(1);
        while loose.len() >= batch {
            let parts: Vec<Tensor> = loose.drain(..batch).collect();
            let whole = if batch == 1 { parts[0].clone() } else { joined(&parts)? };
            self.ready.push_back(Sample::new(vec![(port.name.clone(), whole)], batch));
        }
        Ok(())
    }
}

impl Iterator for Samples {
    type Item = Result<Sample, Error>;

    fn next(&mut self) -> Option<Result<Sample, Error>> {
        if self.n_left == 0 {
            return None;
        }
        if self.ready.is_empty()
            && let Err(error) = self.read_on()
        {
            // Nothing comes after an error.
            self.n_left = 0;
            return Some(Err(error));
        }
        let sample = self.ready.pop_front()?;
        self.n_left = self.n_left.saturating_sub(sample.count);
        Some(Ok(sample))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n_files_give = self.files.len().saturating_mul(self.per_file);
        (0, Some(self.n_left.min(self.ready.len().saturating_add(n_files_give))))
    }
}

/// Single samples along a new or existing first axis.
fn joined(parts: &[Tensor]) -> Result<Tensor, Error> {
    let mut shape = parts[0].shape().to_vec();
    if let Some(other) = parts.iter().find(|part| part.shape() != shape) {
        let (a, b) = (shapes::sizes_text(&shape), shapes::sizes_text(other.shape()));
        let message = format!("samples of {a} and of {b} do not make a batch; give --crop");
        return Err(Error::new(ErrorKind::WrongShape, message));
    }
    shape[0] = parts.len();
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.bytes().iter().copied()).collect();
    Ok(Tensor::from_bytes(parts[0].dtype(), &shape, Bytes::from_vec(bytes))?)
}

/// `n` places of `of`, evenly spaced, or all of them.
fn evenly(of: usize, n: usize) -> Vec<usize> {
    let n = n.min(of);
    (0..n).map(|idx| (idx as u128 * of as u128 / n as u128) as usize).collect()
}

/// All files below a folder that can be samples; hidden ones and others are passed over.
fn gather(folder: &Path, depth: usize, files: &mut Vec<(Kind, PathBuf)>) -> Result<(), Error> {
    let cannot = |error: std::io::Error| Error::io("read", folder, &error);
    for entry in std::fs::read_dir(folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
            continue;
        }
        if path.is_dir() {
            if depth > 0 {
                gather(&path, depth - 1, files)?;
            }
        } else if let Some(kind) = Kind::of(&path) {
            files.push((kind, path));
        }
    }
    Ok(())
}

fn no_kind(path: &Path) -> Error {
    let message = format!(
        "{} has no samples; images (png, jpg, bmp), .npy, .npz, TIFF (tif) and CSV files are taken, alone or in a folder",
        path.display()
    );
    Error::new(ErrorKind::BadFile, message)
}

#[cfg(test)]
mod tests;
