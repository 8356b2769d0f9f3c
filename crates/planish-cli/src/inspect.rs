//! `planish inspect`: what a model is, from the file and from the graph that it becomes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use planish_import::{ImportError, ImportErrorKind, Imported, UnsupportedNode, import_bytes};
use planish_ir::Graph;
use planish_onnx::{AttributeValue, Dimension, Type};
use planish_tensor::Bytes;
use serde_json::json;

use crate::args::Inspect;
use crate::ending::Answer;
use crate::shapes::{self, Sizes};
use crate::{inspect_plan, load, print, say_note};

pub(crate) fn command(args: &Inspect, out: &mut dyn Write) -> Result<Answer> {
    if load::is_plan(&args.model) {
        return inspect_plan::command(args, out);
    }
    if args.graph {
        let imported = import(&args.model)?;
        write!(out, "{}", imported.graph)?;
        return Ok(Answer::Yes);
    }
    let report = Report::new(&args.model, &args.shapes)?;
    if !args.json.replaces_tables() {
        report.print(out)?;
    }
    print::json(out, &args.json, &report.json())?;
    Ok(if report.unsupported.is_empty() { Answer::Yes } else { Answer::No })
}

fn map(path: &Path) -> Result<Bytes> {
    Bytes::map_file(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The folder in which a model's external data lies; that of a bare file name is the current one.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn refused(path: &Path, error: ImportError) -> anyhow::Error {
    match error.kind() {
        // Already names its file.
        ImportErrorKind::Io { .. } => anyhow!(error),
        ImportErrorKind::Onnx(_) => anyhow!("{} is not a usable ONNX model: {error}", path.display()),
        _ => anyhow!("{}: {error}", path.display()),
    }
}

/// The graph of a model file.
pub(crate) fn import(path: &Path) -> Result<Imported> {
    import_bytes(&map(path)?, Some(folder(path))).map_err(|error| refused(path, error))
}

/// Weights of one element type.
#[derive(Default)]
struct Weights {
    n_tensors: u64,
    n_elements: u64,
    n_bytes: u64,
}

/// What the file holds, counted over all nested graphs.
#[derive(Default)]
struct Contents {
    n_nodes: u64,
    operators: BTreeMap<String, u64>,
    weights: BTreeMap<&'static str, Weights>,
}

impl Contents {
    fn add_graph(&mut self, graph: &planish_onnx::Graph<'_>) {
        graph.initializers.iter().for_each(|tensor| self.add_tensor(tensor));
        graph.sparse_initializers.iter().for_each(|sparse| self.add_tensor(&sparse.values));
        graph.nodes.iter().for_each(|node| self.add_node(node));
    }

    fn add_node(&mut self, node: &planish_onnx::Node<'_>) {
        let name = match &*node.domain {
            "" | "ai.onnx" => node.op_type.to_string(),
            domain => format!("{domain}.{}", node.op_type),
        };
        self.n_nodes += 1;
        *self.operators.entry(name).or_default() += 1;
        for attribute in &node.attributes {
            match &attribute.value {
                AttributeValue::Tensor(tensor) => self.add_tensor(tensor),
                AttributeValue::Graph(graph) => self.add_graph(graph),
                AttributeValue::Graphs(graphs) => graphs.iter().for_each(|graph| self.add_graph(graph)),
                _ => {}
            }
        }
    }

    fn add_tensor(&mut self, tensor: &planish_onnx::Tensor<'_>) {
        let (Ok(n), Ok(bytes)) = (tensor.element_count(), tensor.byte_len()) else { return };
        let name = planish_import::types::dtype(tensor.data_type)
            .map_or(tensor.data_type.name(), |dtype| dtype.name());
        let weights = self.weights.entry(name).or_default();
        weights.n_tensors += 1;
        weights.n_elements += n as u64;
        weights.n_bytes += bytes as u64;
    }
}

/// The arithmetic of one inference.
struct Count {
    flops: u64,
    n_uncounted: usize,
    /// The `--shapes` that it holds for; empty if all sizes are fixed.
    shapes: String,
}

/// Everything that `inspect` says.
pub(crate) struct Report {
    path: String,
    n_bytes: u64,
    producer: String,
    ir_version: i64,
    opsets: Vec<(String, i64)>,
    name: String,
    contents: Contents,
    inputs: Vec<(String, String)>,
    outputs: Vec<(String, String)>,
    /// `None` where the graph could not be made or no sizes fit; the reason in words.
    work: Result<Count, String>,
    unsupported: Vec<UnsupportedNode>,
}

impl Report {
    pub(crate) fn new(path: &Path, shape_arguments: &[String]) -> Result<Report> {
        let bytes = map(path)?;
        let model = planish_onnx::read(&bytes)
            .map_err(|error| anyhow!("{} is not a usable ONNX model: {error}", path.display()))?;
        let mut contents = Contents::default();
        contents.add_graph(&model.graph);
        model.functions.iter().flat_map(|function| &function.nodes).for_each(|node| contents.add_node(node));
        let mut report = Report {
            path: path.display().to_string(),
            n_bytes: bytes.len() as u64,
            producer: format!("{} {}", model.producer_name, model.producer_version).trim().to_string(),
            ir_version: model.ir_version,
            opsets: model
                .opset_imports
                .iter()
                .map(|import| {
                    let domain = if import.domain.is_empty() { "ai.onnx" } else { &import.domain };
                    (domain.to_string(), import.version)
                })
                .collect(),
            name: model.graph.name.to_string(),
            contents,
            inputs: Vec::new(),
            outputs: Vec::new(),
            work: Err("not counted".into()),
            unsupported: Vec::new(),
        };
        match import_bytes(&bytes, Some(folder(path))) {
            Ok(imported) => report.add_graph(&imported.graph, shape_arguments)?,
            Err(error) => match error.kind() {
                ImportErrorKind::Unsupported(nodes) => {
                    report.unsupported = nodes.clone();
                    report.work = Err("not counted, some operators are not supported".into());
                    let names = |infos: &[planish_onnx::ValueInfo<'_>]| {
                        infos.iter().map(|info| (info.name.to_string(), declared(info))).collect()
                    };
                    report.inputs = names(&model.graph.inputs);
                    report.outputs = names(&model.graph.outputs);
                }
                _ => return Err(refused(path, error)),
            },
        }
        Ok(report)
    }

    fn add_graph(&mut self, graph: &Graph, shape_arguments: &[String]) -> Result<()> {
        let typed = |ids: &[planish_ir::ValueId]| -> Vec<(String, String)> {
            ids.iter().map(|&id| graph.value(id)).map(|v| (v.name.to_string(), v.ty.to_string())).collect()
        };
        self.inputs = typed(graph.inputs());
        self.outputs = typed(graph.outputs());
        self.work = match count(graph, shape_arguments) {
            Ok(count) => Ok(count),
            // What the user asked for must fit; what was only tried may fail.
            Err(error) if !shape_arguments.is_empty() => return Err(error),
            Err(error) => Err(format!("not counted: {error:#}")),
        };
        Ok(())
    }

    pub(crate) fn print(&self, out: &mut dyn Write) -> Result<()> {
        let opsets: Vec<String> = self.opsets.iter().map(|(domain, v)| format!("{domain} {v}")).collect();
        let producer = if self.producer.is_empty() { "not named" } else { &self.producer };
        writeln!(out, "model       {} ({})", self.path, print::bytes(self.n_bytes))?;
        writeln!(out, "producer    {producer}")?;
        writeln!(out, "format      ONNX IR {}, opset {}", self.ir_version, opsets.join(", "))?;
        writeln!(out, "graph       {}, {} nodes", quoted(&self.name), print::count(self.contents.n_nodes))?;
        for (heading, list) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            writeln!(out, "{heading}")?;
            let rows: Vec<Vec<String>> =
                list.iter().map(|(name, ty)| vec![name.clone(), ty.clone()]).collect();
            print::table(out, &rows, &[])?;
        }
        writeln!(out, "operators")?;
        let rows: Vec<Vec<String>> =
            self.operators().into_iter().map(|(name, n)| vec![name.clone(), print::count(n)]).collect();
        print::table(out, &rows, &[1])?;
        let (n_elements, n_bytes) = self.totals();
        writeln!(out, "parameters  {}", print::count(n_elements))?;
        let by_type: Vec<String> = self
            .contents
            .weights
            .iter()
            .map(|(name, weights)| format!("{name} {}", print::bytes(weights.n_bytes)))
            .collect();
        let by_type = if by_type.is_empty() { String::new() } else { format!(" ({})", by_type.join(", ")) };
        writeln!(out, "weights     {}{by_type}", print::bytes(n_bytes))?;
        match &self.work {
            Ok(work) => {
                let place = if work.shapes.is_empty() {
                    String::new()
                } else {
                    format!(" at --shapes {}", work.shapes)
                };
                let at_least = if work.n_uncounted > 0 { "at least " } else { "" };
                writeln!(
                    out,
                    "work        {at_least}{} per inference{place}; multiply and add counted as two",
                    print::flops(work.flops)
                )?;
                if work.n_uncounted > 0 {
                    let n = print::count(work.n_uncounted as u64);
                    writeln!(out, "            without {n} nodes whose work only the data decides")?;
                }
            }
            Err(reason) => writeln!(out, "work        {reason}")?,
        }
        if self.unsupported.is_empty() {
            writeln!(out, "unsupported none")?;
        } else {
            writeln!(out, "unsupported {} nodes", self.unsupported.len())?;
            let rows: Vec<Vec<String>> = self.unsupported.iter().map(|node| vec![node.to_string()]).collect();
            print::table(out, &rows, &[])?;
        }
        Ok(())
    }

    /// Operators, the most frequent first.
    fn operators(&self) -> Vec<(&String, u64)> {
        let mut list: Vec<(&String, u64)> =
            self.contents.operators.iter().map(|(name, &n)| (name, n)).collect();
        list.sort_by_key(|&(name, n)| (std::cmp::Reverse(n), name));
        list
    }

    fn totals(&self) -> (u64, u64) {
        let weights = self.contents.weights.values();
        weights.fold((0, 0), |(n, bytes), weights| (n + weights.n_elements, bytes + weights.n_bytes))
    }

    fn json(&self) -> serde_json::Value {
        let typed = |list: &[(String, String)]| -> Vec<serde_json::Value> {
            list.iter().map(|(name, ty)| json!({"name": name, "type": ty})).collect()
        };
        let operators: serde_json::Map<String, serde_json::Value> =
            self.operators().into_iter().map(|(name, n)| (name.clone(), json!(n))).collect();
        let weights: serde_json::Map<String, serde_json::Value> = self
            .contents
            .weights
            .iter()
            .map(|(name, w)| {
                let entry = json!({"tensors": w.n_tensors, "elements": w.n_elements, "bytes": w.n_bytes});
                (name.to_string(), entry)
            })
            .collect();
        let opsets: serde_json::Map<String, serde_json::Value> =
            self.opsets.iter().map(|(domain, version)| (domain.clone(), json!(version))).collect();
        let (n_elements, n_bytes) = self.totals();
        let (flops, n_uncounted, shapes) = match &self.work {
            Ok(work) => (json!(work.flops), json!(work.n_uncounted), json!(work.shapes)),
            Err(_) => (json!(null), json!(null), json!(null)),
        };
        let unsupported: Vec<_> = self
            .unsupported
            .iter()
            .map(|node| {
                json!({
                    "domain": if node.domain.is_empty() { "ai.onnx" } else { &node.domain },
                    "op_type": node.op_type,
                    "opset": node.opset,
                    "node": node.node,
                    "reason": node.reason,
                })
            })
            .collect();
        json!({
            "model": self.path,
            "file_bytes": self.n_bytes,
            "producer": self.producer,
            "ir_version": self.ir_version,
            "opsets": opsets,
            "graph": self.name,
            "nodes": self.contents.n_nodes,
            "inputs": typed(&self.inputs),
            "outputs": typed(&self.outputs),
            "operators": operators,
            "parameters": n_elements,
            "weight_bytes": n_bytes,
            "weights": weights,
            "flops": flops,
            "uncounted_nodes": n_uncounted,
            "flops_shapes": shapes,
            "unsupported": unsupported,
        })
    }
}

/// The type that the file gives for a value, of tensors only.
fn declared(info: &planish_onnx::ValueInfo<'_>) -> String {
    let Some(Type::Tensor { elem, shape }) = &info.ty else { return String::new() };
    let name = planish_import::types::dtype(*elem).map_or(elem.name(), |dtype| dtype.name());
    let dim = |dim: &Dimension<'_>| match dim {
        Dimension::Value(number) => number.to_string(),
        Dimension::Param(name) => name.to_string(),
        Dimension::Unknown => "?".to_string(),
    };
    match shape {
        Some(dims) => format!("{name}[{}]", dims.iter().map(dim).collect::<Vec<_>>().join(",")),
        None => format!("{name}[*]"),
    }
}

fn quoted(name: &str) -> String {
    if name.is_empty() { "without a name".into() } else { format!("`{name}`") }
}

/// The work at the given sizes, the rest chosen as for a run.
fn count(graph: &Graph, shape_arguments: &[String]) -> Result<Count> {
    let inputs = shapes::tensor_inputs(graph);
    let explicit = shapes::parse(shape_arguments)?;
    let (mut sizes, mut untied) = (Sizes::new(), BTreeSet::new());
    for (name, shape) in &explicit {
        let (_, ty) = inputs.iter().find(|(value, _)| *value.name == **name).with_context(|| {
            let names: Vec<String> = inputs.iter().map(|(value, _)| format!("`{}`", value.name)).collect();
            format!(
                "--shapes gives `{name}`, which is no input of the model; inputs are {}",
                names.join(", ")
            )
        })?;
        untied.extend(shapes::bind(name, ty, shape, &mut sizes).context("--shapes")?);
    }
    if !untied.is_empty() {
        say_note(&shapes::untied_note(&untied));
        return count(&shapes::untied(graph, &untied)?, shape_arguments);
    }
    let sizes = shapes::complete(graph, &sizes)?;
    let lookup = |symbol: &str| sizes.get(symbol).copied();
    let special = graph.specialize(&lookup).context("the model does not accept inputs of these sizes")?;
    let work = special.work(&lookup);
    let open = inputs.iter().filter(|(_, ty)| ty.shape.as_ref().is_some_and(|s| s.as_fixed().is_none()));
    let shapes = open
        .map(|(value, ty)| Ok((value.name.to_string(), shapes::shape_at(&value.name, ty, &sizes)?)))
        .collect::<Result<Vec<_>>>()?;
    let shapes = if shapes.is_empty() { String::new() } else { shapes::argument(&shapes) };
    Ok(Count { flops: work.flops, n_uncounted: work.uncounted.len(), shapes })
}
