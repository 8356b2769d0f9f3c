//! `planish simplify`, `planish extract` and `planish surgeon`: models to other models.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use planish::io::Sources;
use planish::onnx::{self, Attribute, AttributeValue, DataType, Dimension, Edit, Type};
use planish::{Builder, Metrics, Model, Simplified, shapes};
use serde_json::json;

use crate::args::{Extract, Insert, Json, Reshape, Sanitize, Simplify, Sparsify, Surgeon};
use crate::ending::Answer;
use crate::files::{self, Kind};
use crate::{load, print, run, say_note};

pub(crate) fn simplify(args: &Simplify, out: &mut dyn Write) -> Result<Answer> {
    files::check_target(&args.output, Kind::Onnx, &[&args.model])?;
    let model = Model::open(&args.model)?;
    let simple = simplified(&model, args)?;
    let agrees = compare(&model, &simple.model, args, out)?;
    if !agrees {
        return Ok(Answer::No);
    }
    simple.model.save_onnx(&args.output)?;
    let (before, after) = (n_nodes(&model), n_nodes(&simple.model));
    if !args.json.replaces_tables() {
        if args.explain {
            write!(out, "{}", simple.passes)?;
        }
        writeln!(out, "model   {} ({before} nodes before, {after} now)", args.output.display())?;
    }
    print::json(out, &args.json, &json!({ "model": args.output, "nodes_before": before, "nodes": after }))?;
    Ok(Answer::Yes)
}

fn n_nodes(model: &Model) -> usize {
    model.graph().nodes().len()
}

fn simplified(model: &Model, args: &Simplify) -> Result<Simplified> {
    let asked = shapes::Asked { shapes: args.shapes.clone(), ..shapes::Asked::default() };
    let untied = asked.untied(model.graph())?;
    let model = model.clone().untie(&untied)?;
    let profiles = asked.resolve(model.graph())?;
    let mut builder = Builder::from_model(model);
    let options = builder.options_mut();
    options.profiles = profiles;
    options.disabled_passes.clone_from(&args.disabled_passes);
    options.explain = args.explain;
    Ok(builder.simplify(args.opset)?)
}

/// Passes change the order of sums, nothing more: what is further apart is a mistake of theirs.
const MOST_APART: f64 = 1e-4;

/// Whether both models give the same on random inputs.
fn compare(model: &Model, simple: &Model, args: &Simplify, out: &mut dyn Write) -> Result<bool> {
    let limits = planish::Limits::default();
    for seed in 0..args.check {
        let sources = Sources { random: Some(seed), shapes: &args.shapes, ..Sources::default() };
        let inputs = sources.gather(model.graph())?;
        let expected = run::run(model.graph(), &inputs, &limits)?.tensors();
        let own = run::run(simple.graph(), &inputs, &limits)?.tensors();
        for ((name, expected), (_, own)) in expected.iter().zip(&own) {
            let mut metrics = Metrics::default();
            metrics.add(own, expected);
            let apart = metrics.relative_l2();
            if !args.json.replaces_tables() {
                writeln!(out, "check   {seed}: `{name}` relative L2 error {apart:.1e}")?;
            }
            if apart > MOST_APART {
                say_note(&format!(
                    "the simplified model differs from the model at `{name}`; nothing is written"
                ));
                return Ok(false);
            }
        }
    }
    Ok(true)
}

pub(crate) fn extract(args: &Extract, out: &mut dyn Write) -> Result<Answer> {
    files::check_target(&args.output, Kind::Onnx, &[&args.model])?;
    let file = onnx::File::open(&args.model)?;
    let (model, types) = (file.model()?, file.types());
    let known = |name: &str| {
        let graph = &model.graph;
        let mut made = graph.nodes.iter().flat_map(|node| &node.outputs);
        made.any(|output| output == name) || graph.inputs.iter().any(|input| input.name == name)
    };
    let inputs = args.inputs.iter().map(|text| Port::parse(text, &known)).collect::<Result<Vec<_>>>()?;
    let names: Vec<String> = inputs.iter().map(|port| port.name.clone()).collect();
    let outputs = match args.outputs.is_empty() {
        true => model.graph.outputs.iter().map(|output| output.name.to_string()).collect(),
        false => args.outputs.clone(),
    };
    let mut part = onnx::extract(&model, &types, &names, &outputs)?;
    for port in inputs {
        let Some(input) = part.graph.inputs.iter_mut().find(|input| input.name == port.name) else {
            continue;
        };
        port.apply(&mut input.ty)?;
    }
    write_model(&part, &args.output, &args.json, model.graph.nodes.len(), out)
}

/// Takes a model with the values among its outputs that these patterns name.
pub(crate) fn with_outputs<T>(
    path: &Path,
    flag: &str,
    patterns: &[String],
    take: impl FnOnce(&onnx::Model<'_>) -> Result<T>,
) -> Result<T> {
    let file = onnx::File::open(path)?;
    let (mut model, types) = (file.model()?, file.types());
    let is_asked = |name: &str| patterns.iter().any(|pattern| planish::name_matches(pattern, name));
    let made = model.graph.nodes.iter().flat_map(|node| &node.outputs);
    let names: Vec<String> =
        made.filter(|name| !name.is_empty() && is_asked(name)).map(|name| name.to_string()).collect();
    ensure!(
        !names.is_empty(),
        "{flag} {}: no value of the model has such a name; `planish inspect --graph` lists them",
        patterns.join(" ")
    );
    onnx::mark_outputs(&mut model, &types, &names)?;
    take(&model)
}

/// An input with what is said of its type.
struct Port {
    name: String,
    dims: Option<Vec<Dimension<'static>>>,
    elem: Option<DataType>,
}

impl Port {
    /// `NAME`, `NAME:SIZES`, `NAME:SIZES:TYPE`; sizes as 1x3x224x224 or [1,3,224,224], `auto` for what the model says. Names
    /// may hold colons: the longest that is known is taken.
    fn parse(text: &str, known: &dyn Fn(&str) -> bool) -> Result<Port> {
        let mut rest = Vec::new();
        let mut name = text;
        while !known(name) {
            let Some((before, after)) = name.rsplit_once(':') else {
                bail!("the model has no value `{text}`; `planish inspect --graph` lists them");
            };
            rest.insert(0, after);
            name = before;
        }
        let said = |text: &&str| !text.is_empty() && *text != "auto";
        let dims = rest.first().copied().filter(said).map(dimensions).transpose()?;
        let elem = rest.get(1).copied().filter(said).map(element).transpose()?;
        if rest.len() > 2 {
            bail!("`{text}`: after the name come sizes and a type, as in x:1x3x224x224:float");
        }
        Ok(Port { name: name.to_string(), dims, elem })
    }

    fn apply(self, ty: &mut Option<Type<'_>>) -> Result<()> {
        match ty {
            Some(Type::Tensor { elem, shape }) => {
                *elem = self.elem.unwrap_or(*elem);
                if let Some(dims) = self.dims {
                    *shape = Some(dims);
                }
            }
            Some(_) => bail!("`{}` is no tensor, it has no sizes that could be given", self.name),
            None => *ty = self.elem.map(|elem| Type::Tensor { elem, shape: self.dims }),
        }
        Ok(())
    }
}

fn dimensions(text: &str) -> Result<Vec<Dimension<'static>>> {
    let plain = text.trim_start_matches('[').trim_end_matches(']').replace(' ', "");
    let separator = if plain.contains(',') { ',' } else { 'x' };
    let dim = |part: &str| match part.parse::<i64>() {
        Ok(size) if size >= 0 => Ok(Dimension::Value(size)),
        Err(_) if !part.is_empty() => Ok(Dimension::Param(part.to_string().into())),
        _ => bail!("`{text}` is no shape; give 1x3x224x224 or batch,3,224,224"),
    };
    plain.split(separator).map(dim).collect()
}

fn element(text: &str) -> Result<DataType> {
    let name = match text {
        "float32" | "fp32" | "f32" => "float",
        "fp16" | "f16" | "half" => "float16",
        "bf16" => "bfloat16",
        "float64" | "f64" => "double",
        other => other,
    };
    let found = DataType::ALL.iter().find(|data_type| data_type.name() == name);
    found.copied().with_context(|| format!("`{text}` is no type of elements; give float, float16, int64, …"))
}

fn write_model(
    model: &onnx::Model<'_>,
    path: &Path,
    json: &Json,
    n_before: usize,
    out: &mut dyn Write,
) -> Result<Answer> {
    let n_bytes = onnx::save(model, path)?;
    let n = model.graph.nodes.len();
    if !json.replaces_tables() {
        let size = print::bytes(n_bytes);
        writeln!(out, "model   {} ({n_before} nodes before, {n} now, {size})", path.display())?;
        for (title, list) in [("input", &model.graph.inputs), ("output", &model.graph.outputs)] {
            for info in list {
                writeln!(out, "{title:7} {}", info.name)?;
            }
        }
    }
    print::json(
        out,
        json,
        &json!({ "model": path, "nodes_before": n_before, "nodes": n, "bytes": n_bytes }),
    )?;
    Ok(Answer::Yes)
}

pub(crate) fn surgeon(args: &Surgeon, out: &mut dyn Write) -> Result<Answer> {
    let written = match args {
        Surgeon::Extract(args) => return extract(args, out),
        Surgeon::Insert(args) => &args.written,
        Surgeon::Remove(args) => &args.written,
        Surgeon::Prune(args) => &args.written,
        Surgeon::Rename(args) => &args.written,
        Surgeon::Reshape(args) => &args.written,
        Surgeon::Sanitize(args) => &args.written,
        Surgeon::Sparsify(args) => &args.written,
    };
    let (path, json) = args.parts();
    if load::is_plan(path) {
        bail!("{} is a plan; its model is what can be changed, and built again", path.display());
    }
    files::check_target(&written.output, Kind::Onnx, &[path])?;
    if let Surgeon::Sparsify(args) = args {
        return sparsify(args, out);
    }
    let file = onnx::File::open(path)?;
    let (mut model, types) = (file.model()?, file.types());
    let n_before = model.graph.nodes.len();
    if let Surgeon::Sanitize(args) = args {
        onnx::fix(&mut model, &types);
        if args.fold_constants {
            return fold(args, &model, n_before, out);
        }
    }
    for edit in edits(args)? {
        onnx::edit(&mut model, &types, &edit)?;
    }
    // What comes of it is a model again, or the reason is told.
    if types.unsupported().is_empty() {
        onnx::to_model(&model).context("the changed model is not a usable one, nothing is written")?;
    }
    write_model(&model, &written.output, json, n_before, out)
}

fn fold(args: &Sanitize, model: &onnx::Model<'_>, n_before: usize, out: &mut dyn Write) -> Result<Answer> {
    let opset = model
        .opset_imports
        .iter()
        .find(|import| import.domain.is_empty())
        .map_or(21, |import| import.version);
    let simple = Builder::from_model(onnx::to_model(model)?).simplify(opset.max(21))?;
    simple.model.save_onnx(&args.written.output)?;
    let n = n_nodes(&simple.model);
    if !args.written.json.replaces_tables() {
        writeln!(out, "model   {} ({n_before} nodes before, {n} now)", args.written.output.display())?;
    }
    let report = json!({ "model": args.written.output, "nodes_before": n_before, "nodes": n });
    print::json(out, &args.written.json, &report)?;
    Ok(Answer::Yes)
}

/// Writes the model with its weights pruned to 2:4 sparsity.
fn sparsify(args: &Sparsify, out: &mut dyn Write) -> Result<Answer> {
    let output = &args.written.output;
    let pruned = Builder::from_model(Model::open(&args.model)?).prune()?;
    pruned.notes.iter().for_each(|note| say_note(note));
    pruned.model.save_onnx(output)?;
    let (n_sparse, n_layers) = pruned.model.sparse_layers();
    if !args.written.json.replaces_tables() {
        writeln!(out, "model   {} ({n_sparse} of {n_layers} layers are 2:4 sparse)", output.display())?;
    }
    let report =
        json!({ "model": output, "sparse_layers": n_sparse, "layers": n_layers, "notes": pruned.notes });
    print::json(out, &args.written.json, &report)?;
    Ok(Answer::Yes)
}

/// The changes that the arguments ask for, in their order.
fn edits(args: &Surgeon) -> Result<Vec<Edit>> {
    let pair = |text: &String| {
        let parts = text.split_once('=').filter(|(from, to)| !from.is_empty() && !to.is_empty());
        let (from, to) = parts.with_context(|| format!("`{text}` names no two names; give OLD=NEW"))?;
        Ok((from.to_string(), to.to_string()))
    };
    match args {
        Surgeon::Insert(args) => Ok(vec![insert(args)?]),
        Surgeon::Remove(args) => {
            Ok(args.nodes.iter().map(|pattern| Edit::Remove { pattern: pattern.clone() }).collect())
        }
        Surgeon::Prune(args) => {
            Ok(args.outputs.iter().map(|pattern| Edit::DropOutputs { pattern: pattern.clone() }).collect())
        }
        Surgeon::Rename(args) => {
            let values =
                args.values.iter().map(|text| pair(text).map(|(from, to)| Edit::RenameValue { from, to }));
            let nodes =
                args.nodes.iter().map(|text| pair(text).map(|(from, to)| Edit::RenameNode { from, to }));
            values.chain(nodes).collect()
        }
        Surgeon::Reshape(args) => reshapes(args),
        Surgeon::Sanitize(_) | Surgeon::Sparsify(_) | Surgeon::Extract(_) => Ok(Vec::new()),
    }
}

fn insert(args: &Insert) -> Result<Edit> {
    Ok(Edit::Insert {
        op: args.op.clone(),
        domain: args.domain.clone(),
        name: args.name.clone(),
        inputs: args.inputs.clone(),
        outputs: args.outputs.clone(),
        attributes: args.attrs.iter().map(|text| attribute(text)).collect::<Result<_>>()?,
        mark: args.mark,
    })
}

/// `axis=1`, `alpha=0.5`, `mode=linear`, `pads=[0,0,1,1]`.
fn attribute(text: &str) -> Result<Attribute<'static>> {
    let (name, value) =
        text.split_once('=').with_context(|| format!("`{text}` is no attribute; give NAME=VALUE"))?;
    let value = match value.strip_prefix('[').and_then(|list| list.strip_suffix(']')) {
        Some(list) => {
            let parts: Vec<&str> = list.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
            let ints: Result<Vec<i64>, _> = parts.iter().map(|part| part.parse()).collect();
            let floats: Result<Vec<f32>, _> = parts.iter().map(|part| part.parse()).collect();
            match (ints, floats) {
                (Ok(ints), _) => AttributeValue::Ints(ints),
                (_, Ok(floats)) => AttributeValue::Floats(floats),
                _ => AttributeValue::Strings(
                    parts.iter().map(|part| part.as_bytes().to_vec().into()).collect(),
                ),
            }
        }
        None => match (value.parse::<i64>(), value.parse::<f32>()) {
            (Ok(int), _) => AttributeValue::Int(int),
            (_, Ok(float)) => AttributeValue::Float(float),
            _ => AttributeValue::String(value.as_bytes().to_vec().into()),
        },
    };
    Ok(Attribute::new(name.to_string(), value))
}

fn reshapes(args: &Reshape) -> Result<Vec<Edit>> {
    let one = |text: &String| {
        let (input, dims) = text.rsplit_once(':').with_context(|| {
            format!("`{text}` gives no shape; give NAME:DIMENSIONS, as in x:batch,3,224,224")
        })?;
        let dims = dimensions(dims)?.into_iter().map(|dim| match dim {
            Dimension::Value(size) => size.to_string(),
            Dimension::Param(name) => name.to_string(),
            Dimension::Unknown => String::new(),
        });
        Ok(Edit::Reshape { input: input.to_string(), dims: dims.collect() })
    };
    args.inputs.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_people_write_them() {
        let known = |name: &str| ["x", "in:0"].contains(&name);
        let dims = |text: &str| Port::parse(text, &known).unwrap().dims.map(|dims| dims.len());
        assert_eq!(
            (dims("x"), dims("x:1x3"), dims("in:0"), dims("in:0:[1,3,4]:float32")),
            (None, Some(2), None, Some(3))
        );
        let port = Port::parse("x:auto:float16", &known).unwrap();
        assert_eq!((port.dims, port.elem), (None, Some(DataType::Float16)));
        assert!(Port::parse("y", &known).is_err() && Port::parse("x:1:float:2", &known).is_err());
        assert!(Port::parse("x:1x-3", &known).is_err() && Port::parse("x:1:floot", &known).is_err());
    }

    #[test]
    fn attributes_have_types() {
        let value = |text: &str| attribute(text).unwrap().value;
        assert_eq!(value("axis=-1"), AttributeValue::Int(-1));
        assert_eq!(value("alpha=0.5"), AttributeValue::Float(0.5));
        assert_eq!(value("pads=[0, 1]"), AttributeValue::Ints(vec![0, 1]));
        assert_eq!(value("mode=linear"), AttributeValue::String(b"linear".to_vec().into()));
        assert!(attribute("axis").is_err());
    }
}
