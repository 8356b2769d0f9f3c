//! The values of a model's inputs: from files, images or random numbers, each checked against its type.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use planish_ir::Graph;
use planish_op::{TensorType, Value};
use planish_tensor::{DType, Tensor, element_count};

use crate::ending::Ending;
use crate::random::Random;
use crate::shapes::{self, Sizes};
use crate::{doctor, npy, picture, print};

/// What the user gave.
#[derive(Debug, Default)]
pub(crate) struct Sources<'a> {
    pub(crate) archive: Option<&'a PathBuf>,
    pub(crate) files: &'a [String],
    pub(crate) random: Option<u64>,
    pub(crate) shapes: &'a [String],
    /// Sizes for symbols that nothing else binds: what a plan was tuned at.
    pub(crate) defaults: &'a [(String, i64)],
}

/// A value for every input.
#[derive(Debug)]
pub(crate) struct Fed {
    pub(crate) tensors: Vec<(String, Tensor)>,
    /// What the user should know: choices made for them.
    pub(crate) notes: Vec<String>,
    /// Symbols that have several sizes.
    pub(crate) untied: BTreeSet<String>,
}

impl Fed {
    pub(crate) fn values(&self) -> Vec<Value> {
        self.tensors.iter().map(|(_, tensor)| Value::from(tensor.clone())).collect()
    }
}

/// Values for the graph's inputs.
pub(crate) fn gather(graph: &Graph, sources: &Sources<'_>) -> Result<Fed> {
    let inputs = shapes::inputs(graph)?;
    let names: Vec<&str> = inputs.iter().map(|(value, _)| &*value.name).collect();
    let type_of = |name: &str, origin: &str| -> Result<&TensorType> {
        let place = names.iter().position(|known| *known == name);
        let place = place.with_context(|| {
            format!("{origin} gives `{name}`, which is no input of the model; inputs are {}", quoted(&names))
        })?;
        Ok(inputs[place].1)
    };
    // Before elements are read: what the input cannot take, and what the machine has no memory for.
    let accept = |name: &str, origin: &str, dtype: DType, shape: &[usize]| -> Result<()> {
        let ty = type_of(name, origin)?;
        check_type(name, ty, dtype, origin)?;
        shapes::bind(name, ty, shape, &mut Sizes::new()).with_context(|| origin.to_string())?;
        let n_bytes = element_count(shape).and_then(|n| dtype.bytes_for(n));
        if let (Some(n_bytes), Some(room)) = (n_bytes, doctor::memory()) {
            let (wants, has) = (print::bytes(n_bytes as u64), print::bytes(room));
            ensure!(
                n_bytes as u64 <= room,
                Ending::Lacking(format!(
                    "{origin}: `{name}` takes {wants}, this machine has {has} of memory"
                ))
            );
        }
        Ok(())
    };
    let (mut notes, mut untied) = (Vec::new(), BTreeSet::new());
    let mut sizes = Sizes::new();
    let mut given: BTreeMap<String, Tensor> = BTreeMap::new();
    let mut take = |name: &str, tensor: Tensor, origin: &str, sizes: &mut Sizes| -> Result<()> {
        let ty = type_of(name, origin)?;
        let tensor = typed(name, ty, tensor, origin)?;
        untied.extend(shapes::bind(name, ty, tensor.shape(), sizes).with_context(|| origin.to_string())?);
        ensure!(given.insert(name.to_string(), tensor).is_none(), "input `{name}` is given twice");
        Ok(())
    };
    if let Some(path) = sources.archive {
        let origin = path.display().to_string();
        let accept = |name: &str, dtype, shape: &[usize]| accept(name, &origin, dtype, shape);
        for (name, tensor) in npy::read_archive(path, &accept)? {
            take(&name, tensor, &origin, &mut sizes)?;
        }
    }
    for text in sources.files {
        let (name, path) =
            text.split_once('=').with_context(|| format!("--input wants NAME=FILE, not `{text}`"))?;
        let path = Path::new(path);
        let tensor = if picture::is_image(path) {
            let (tensor, note) = picture::load(path, name, type_of(name, "--input")?)?;
            notes.push(note);
            tensor
        } else {
            let origin = path.display().to_string();
            npy::read_file(path, &|_, dtype, shape| accept(name, &origin, dtype, shape))?
        };
        take(name, tensor, &path.display().to_string(), &mut sizes)?;
    }
    let explicit = shapes::parse(sources.shapes)?;
    for (name, shape) in &explicit {
        let ty = type_of(name, "--shapes")?;
        untied.extend(shapes::bind(name, ty, shape, &mut sizes).context("--shapes")?);
    }
    if !untied.is_empty() {
        let mut fed = gather(&shapes::untied(graph, &untied)?, sources)?;
        fed.notes.insert(0, shapes::untied_note(&untied));
        fed.untied = untied;
        return Ok(fed);
    }

    let missing: Vec<&str> = names.iter().copied().filter(|name| !given.contains_key(*name)).collect();
    let seed = match sources.random {
        Some(seed) => seed,
        None if given.is_empty() => 0,
        None if missing.is_empty() => 0,
        None => bail!(
            "no value is given for {}; add them to --inputs, give --input NAME=FILE, or add --random SEED",
            quoted(&missing)
        ),
    };
    if !missing.is_empty() {
        for (symbol, size) in sources.defaults {
            sizes.entry(symbol.clone()).or_insert(*size);
        }
        let complete = shapes::complete(graph, &sizes)?;
        let mut random = Random::new(seed);
        let mut chosen = Vec::new();
        for (value, ty) in &inputs {
            let name = &*value.name;
            if !missing.contains(&name) {
                continue;
            }
            let shape = match explicit.get(name) {
                Some(shape) => shape.clone(),
                None => shapes::shape_at(name, ty, &complete)?,
            };
            given.insert(name.to_string(), random.tensor(ty.dtype, &shape)?);
            if !explicit.contains_key(name) && ty.shape.as_ref().is_some_and(|s| s.as_fixed().is_none()) {
                chosen.push((name.to_string(), shape));
            }
        }
        notes.push(format!("random numbers for {}, as with --random {seed}", quoted(&missing)));
        if !chosen.is_empty() {
            notes.push(format!("sizes chosen, as with --shapes {}", shapes::argument(&chosen)));
        }
        sizes = complete;
    }
    graph
        .specialize(&|symbol| sizes.get(symbol).copied())
        .context("the model does not accept inputs of these sizes")?;
    let tensors = names
        .iter()
        .map(|name| Some((name.to_string(), given.remove(*name)?)))
        .collect::<Option<Vec<_>>>()
        .context("an input has no value")?;
    Ok(Fed { tensors, notes, untied })
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The tensor in the input's type: as it is, or back from the type that stands in for it in a file.
fn typed(name: &str, ty: &TensorType, tensor: Tensor, origin: &str) -> Result<Tensor> {
    if tensor.dtype() == ty.dtype {
        return Ok(tensor);
    }
    check_type(name, ty, tensor.dtype(), origin)?;
    let converted = npy::converted(&tensor, ty.dtype)?;
    ensure!(
        npy::converted(&converted, npy::stored_type(ty.dtype))? == tensor,
        "{origin}: input `{name}` is {ty}, and not all values of the file fit that type"
    );
    Ok(converted)
}

/// Refuses elements of a type that is neither the input's own nor the one that stands in for it.
fn check_type(name: &str, ty: &TensorType, dtype: DType, origin: &str) -> Result<()> {
    let stored = npy::stored_type(ty.dtype);
    ensure!(
        dtype == ty.dtype || dtype == stored,
        "{origin}: input `{name}` is {ty}, the file holds {dtype}; convert it with numpy's astype('{}')",
        numpy_name(stored)
    );
    Ok(())
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
