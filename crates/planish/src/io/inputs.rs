//! The values of a model's inputs: from files, images or random numbers, each checked against its type.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use planish_ir::{Graph, ValueInfo};
use planish_op::{TensorType, Value};
use planish_tensor::{DType, Tensor};

use super::random::Random;
use super::{npy, picture};
use crate::model::untied;
use crate::shapes::{self, Sizes};
use crate::{Engine, Error, ErrorKind, machine};

/// Where the values of inputs come from; what no file gives is drawn at random.
///
/// ```
/// use planish::graph::Graph;
/// use planish::io::Sources;
///
/// let graph: Graph = r#"graph "g" { input %x: f32[batch,3] %y: f32[batch,3] = Relu(%x) output %y }"#.parse()?;
/// let shapes = ["x:2x3".to_string()];
/// let inputs = Sources { random: Some(7), shapes: &shapes, ..Sources::default() }.gather(&graph)?;
/// assert_eq!(inputs.tensors[0].1.shape(), [2, 3]);
/// assert_eq!(inputs.notes, ["random numbers for `x`, as with --random 7"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Sources<'a> {
    /// A `.npz` file with one array per input, by name.
    pub archive: Option<&'a PathBuf>,
    /// `NAME=FILE`: a `.npy` file or an image each.
    pub files: &'a [String],
    /// The seed of random numbers for inputs that no file gives. Without one they are drawn only where no file gives
    /// any.
    pub random: Option<u64>,
    /// Shapes of random inputs, as in `x:1x3x224x224`.
    pub shapes: &'a [String],
    /// Sizes for symbols that nothing else binds: what a plan was tuned at.
    pub defaults: &'a [(String, i64)],
}

/// A value for every input.
/// Given by [`Sources::gather`] and [`Sources::gather_for`]; [`Sources`] has an example.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Inputs {
    /// By name, in the model's order.
    pub tensors: Vec<(String, Tensor)>,
    /// What the user should know: choices made for them.
    pub notes: Vec<String>,
    /// Symbols that have several sizes: see [`crate::Model::untie`].
    pub untied: BTreeSet<String>,
}

impl Inputs {
    /// The values in the model's order.
    pub fn values(&self) -> Vec<Value> {
        self.tensors.iter().map(|(_, tensor)| Value::from(tensor.clone())).collect()
    }
}

impl Sources<'_> {
    /// Values for the inputs of an engine's plan.
    ///
    /// ```
    /// use planish::io::Sources;
    /// use planish::{Builder, Device, Engine};
    ///
    /// let graph = r#"graph "g" { input %x: f32[3] %y: f32[3] = Relu(%x) output %y }"#;
    /// let engine = Engine::new(Builder::from_graph(graph.parse()?).tune_level(0).build()?, Device::Auto)?;
    /// let inputs = Sources::default().gather_for(&engine)?;
    /// assert_eq!((inputs.tensors[0].0.as_str(), inputs.values().len()), ("x", 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn gather_for(&self, engine: &Engine) -> Result<Inputs, Error> {
        let mut graph = Graph::new("inputs");
        let is_given = |name: &str| self.files.iter().any(|text| text.split('=').next() == Some(name));
        for (at, port) in engine.inputs().into_iter().enumerate() {
            // A state is what it was, unless a file says otherwise.
            if engine.states().iter().any(|pair| pair.input == at) && !is_given(&port.name) {
                continue;
            }
            graph
                .add_input(&port.name, port.ty)
                .map_err(|error| Error::internal(format!("input `{}`: {error}", port.name)))?;
        }
        let inputs = self.gather(&graph)?;
        match inputs.untied.first() {
            None => Ok(inputs),
            Some(symbol) => Err(Error::new(
                ErrorKind::WrongShape,
                format!(
                    "the plan was made for one size of `{symbol}`, the inputs have several; build it with --shapes \
                     that give each input its own"
                ),
            )),
        }
    }

    /// Values for the inputs of a graph.
    pub fn gather(&self, graph: &Graph) -> Result<Inputs, Error> {
        let mut taken = Taken { inputs: tensors(graph)?, ..Taken::default() };
        if let Some(path) = self.archive {
            let origin = path.display().to_string();
            let accept = |name: &str, dtype, shape: &[usize]| taken.accept(name, &origin, dtype, shape);
            let arrays = npy::read_archive_as(path, &accept, &|name| taken.dtype_of(name))?;
            if arrays.is_empty() {
                let message =
                    format!("{origin} has no arrays; numpy.savez({origin:?}, NAME=array) puts some in");
                return Err(Error::new(ErrorKind::BadFile, message));
            }
            for (name, tensor) in arrays {
                taken.take(&name, tensor, &origin)?;
            }
        }
        for text in self.files {
            let Some((name, path)) = text.split_once('=') else {
                let message = format!("`--input {text}` names no input; give NAME=FILE");
                return Err(Error::new(ErrorKind::BadOption, message));
            };
            let path = Path::new(path);
            let origin = path.display().to_string();
            let tensor = if picture::is_image(path) {
                let (tensor, note) = picture::load(path, name, taken.type_of(name, "--input")?)?;
                taken.notes.push(note);
                tensor
            } else {
                let accept = |_: &str, dtype, shape: &[usize]| taken.accept(name, &origin, dtype, shape);
                npy::read_as(path, &accept, &|_| taken.dtype_of(name))?
            };
            taken.take(name, tensor, &origin)?;
        }
        let explicit = shapes::parse("--shapes", self.shapes)?;
        for (name, shape) in &explicit {
            let ty = taken.type_of(name, "--shapes")?;
            let given = format!("`--shapes {name}:{}`", shapes::sizes_text(shape));
            let apart = shapes::bind(&given, name, ty, shape, &mut taken.sizes)?;
            taken.untied.extend(apart);
        }
        if !taken.untied.is_empty() {
            let mut inputs = self.gather(&untied(graph, &taken.untied)?)?;
            inputs.notes.insert(0, shapes::untied_note(&taken.untied));
            inputs.untied = taken.untied;
            return Ok(inputs);
        }
        self.draw(graph, &mut taken, &explicit)?;
        let sizes = &taken.sizes;
        graph.specialize(&|symbol| sizes.get(symbol).copied()).map_err(|error| {
            let message = format!("the model does not accept inputs of these sizes: {error}");
            Error::new(ErrorKind::WrongShape, message)
        })?;
        taken.done()
    }

    /// Random numbers for the inputs that no file gives.
    fn draw(&self, graph: &Graph, taken: &mut Taken<'_>, explicit: &shapes::Shapes) -> Result<(), Error> {
        let missing = taken.missing();
        if missing.is_empty() {
            return Ok(());
        }
        let seed = match self.random {
            Some(seed) => seed,
            None if taken.given.is_empty() => 0,
            None => {
                let message = format!(
                    "no value is given for {}; add them to --inputs, give --input NAME=FILE, or add --random SEED",
                    quoted(&missing)
                );
                return Err(Error::new(ErrorKind::WrongInputs, message));
            }
        };
        for (symbol, size) in self.defaults {
            taken.sizes.entry(symbol.clone()).or_insert(*size);
        }
        taken.sizes = shapes::default_sizes(graph, &taken.sizes)?;
        let mut random = Random::new(seed);
        let mut chosen = Vec::new();
        for (value, ty) in &taken.inputs {
            let name = &*value.name;
            if !missing.contains(&name) {
                continue;
            }
            let shape = match explicit.get(name) {
                Some(shape) => shape.clone(),
                None => shapes::shape_at(name, ty, &taken.sizes)?,
            };
            let tensor = random.tensor(ty.dtype, &shape).map_err(|error| {
                let text = shapes::sizes_text(&shape);
                Error::new(ErrorKind::WrongShape, format!("input `{name}` of {text}: {error}"))
            })?;
            taken.given.insert(name.to_string(), tensor);
            if !explicit.contains_key(name) && ty.shape.as_ref().is_some_and(|s| s.as_fixed().is_none()) {
                chosen.push((name.to_string(), shape));
            }
        }
        taken.notes.push(format!("random numbers for {}, as with --random {seed}", quoted(&missing)));
        if !chosen.is_empty() {
            taken.notes.push(format!("sizes chosen, as with --shapes {}", shapes::argument(&chosen)));
        }
        Ok(())
    }
}

/// All inputs of a graph, for which values are to be found; other kinds than tensors are refused.
fn tensors(graph: &Graph) -> Result<Vec<(&ValueInfo, &TensorType)>, Error> {
    let tensor = |&id| {
        let value = graph.value(id);
        let ty = value.ty.as_tensor().ok_or_else(|| {
            let message = format!("input `{}` is {}; only tensors can be given here", value.name, value.ty);
            Error::new(ErrorKind::WrongType, message)
        })?;
        Ok((value, ty))
    };
    graph.inputs().iter().map(tensor).collect()
}

/// What is gathered so far.
#[derive(Default)]
struct Taken<'g> {
    inputs: Vec<(&'g ValueInfo, &'g TensorType)>,
    given: BTreeMap<String, Tensor>,
    sizes: Sizes,
    notes: Vec<String>,
    untied: BTreeSet<String>,
}

impl<'g> Taken<'g> {
    fn type_of(&self, name: &str, origin: &str) -> Result<&'g TensorType, Error> {
        let found = self.inputs.iter().find(|(value, _)| *value.name == *name);
        found.map(|(_, ty)| *ty).ok_or_else(|| {
            let names: Vec<&str> = self.inputs.iter().map(|(value, _)| &*value.name).collect();
            let message = format!(
                "{origin} gives `{name}`, which is not an input of the model; its inputs are {}",
                quoted(&names)
            );
            Error::new(ErrorKind::WrongInputs, message)
        })
    }

    /// The input's element type: what raw bytes of a file are.
    fn dtype_of(&self, name: &str) -> Option<DType> {
        let found = self.inputs.iter().find(|(value, _)| *value.name == *name);
        found.map(|(_, ty)| ty.dtype)
    }

    /// Before elements are read: what the input cannot take, and what the machine has no memory for.
    fn accept(&self, name: &str, origin: &str, dtype: DType, shape: &[usize]) -> Result<(), Error> {
        let ty = self.type_of(name, origin)?;
        check_type(name, ty, dtype, origin)?;
        shapes::bind(origin, name, ty, shape, &mut Sizes::new())?;
        let n_bytes = dtype.bytes_of(shape).map(|n| n as u64);
        match (n_bytes, machine::memory()) {
            (Some(n_bytes), Some(room)) if n_bytes > room => {
                let message = format!(
                    "{origin}: `{name}` takes {n_bytes} bytes, this machine has {room} bytes of memory"
                );
                Err(Error::new(ErrorKind::OutOfMemory, message))
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self, name: &str, tensor: Tensor, origin: &str) -> Result<(), Error> {
        let ty = self.type_of(name, origin)?;
        let tensor = typed(name, ty, tensor, origin)?;
        let apart = shapes::bind(origin, name, ty, tensor.shape(), &mut self.sizes)?;
        self.untied.extend(apart);
        match self.given.insert(name.to_string(), tensor) {
            None => Ok(()),
            Some(_) => Err(Error::new(ErrorKind::WrongInputs, format!("input `{name}` is given twice"))),
        }
    }

    fn missing(&self) -> Vec<&'g str> {
        let names = self.inputs.iter().map(|(value, _)| &*value.name);
        names.filter(|name| !self.given.contains_key(*name)).collect()
    }

    fn done(mut self) -> Result<Inputs, Error> {
        let mut tensors = Vec::new();
        for (value, _) in &self.inputs {
            let tensor = self.given.remove(&*value.name);
            let tensor =
                tensor.ok_or_else(|| Error::internal(format!("input `{}` has no value", value.name)))?;
            tensors.push((value.name.to_string(), tensor));
        }
        Ok(Inputs { tensors, notes: self.notes, untied: self.untied })
    }
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The tensor in the input's type: as it is, or back from the type that stands in for it in a file.
fn typed(name: &str, ty: &TensorType, tensor: Tensor, origin: &str) -> Result<Tensor, Error> {
    if tensor.dtype() == ty.dtype {
        return Ok(tensor);
    }
    check_type(name, ty, tensor.dtype(), origin)?;
    let converted = npy::converted(&tensor, ty.dtype)?;
    if npy::converted(&converted, npy::stored_type(ty.dtype))? != tensor {
        let message =
            format!("{origin}: input `{name}` is {ty}, and not all values of the file fit that type");
        return Err(Error::new(ErrorKind::WrongType, message));
    }
    Ok(converted)
}

/// Refuses elements of a type that is neither the input's own nor the one that stands in for it.
fn check_type(name: &str, ty: &TensorType, dtype: DType, origin: &str) -> Result<(), Error> {
    let stored = npy::stored_type(ty.dtype);
    if dtype == ty.dtype || dtype == stored {
        return Ok(());
    }
    let message = format!(
        "{origin}: input `{name}` is {ty}, the file holds {dtype}; convert it with numpy's astype('{}')",
        numpy_name(stored)
    );
    Err(Error::new(ErrorKind::WrongType, message))
}

fn numpy_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "float64",
        DType::F16 => "float16",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::U8 => "uint8",
        DType::U16 => "uint16",
        DType::U32 => "uint32",
        DType::U64 => "uint64",
        DType::Bool => "bool",
        _ => "float32",
    }
}
