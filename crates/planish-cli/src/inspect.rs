//! `planish inspect`: what a model is, from the file and from the graph that it becomes.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use planish::graph::Graph;
use planish::shapes;
use planish::{Error, ErrorKind, Model, Summary};
use serde_json::json;

use crate::args::Inspect;
use crate::ending::Answer;
use crate::{inspect_plan, load, print, say_note};

pub(crate) fn command(args: &Inspect, out: &mut dyn Write) -> Result<Answer> {
    if load::is_plan(&args.model) {
        return inspect_plan::command(args, out);
    }
    if args.graph {
        write!(out, "{}", Model::open(&args.model)?.graph())?;
        return Ok(Answer::Yes);
    }
    let report = Report::new(&args.model, &args.shapes)?;
    if !args.json.replaces_tables() {
        report.print(out)?;
    }
    print::json(out, &args.json, &report.json())?;
    Ok(if report.summary.unsupported.is_empty() { Answer::Yes } else { Answer::No })
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
    summary: Summary,
    /// An error where the graph could not be made or no sizes fit; the reason in words.
    work: Result<Count, String>,
}

impl Report {
    pub(crate) fn new(path: &Path, shape_arguments: &[String]) -> Result<Report> {
        let summary = Summary::read(path)?;
        let work = match &summary.model {
            None => Err("not counted, some operators are not supported".to_string()),
            Some(model) => match count(model.graph(), shape_arguments) {
                Ok(count) => Ok(count),
                // What the user asked for must fit; what was only tried may fail.
                Err(error) if !shape_arguments.is_empty() => return Err(error.into()),
                Err(error) => Err(format!("not counted: {error}")),
            },
        };
        Ok(Report { path: path.display().to_string(), summary, work })
    }

    pub(crate) fn print(&self, out: &mut dyn Write) -> Result<()> {
        let opsets: Vec<String> =
            self.summary.opsets.iter().map(|(domain, v)| format!("{domain} {v}")).collect();
        let producer = if self.summary.producer.is_empty() { "not named" } else { &self.summary.producer };
        writeln!(out, "model       {} ({})", self.path, print::bytes(self.summary.n_bytes))?;
        writeln!(out, "producer    {producer}")?;
        writeln!(out, "format      ONNX IR {}, opset {}", self.summary.ir_version, opsets.join(", "))?;
        writeln!(
            out,
            "graph       {}, {} nodes",
            quoted(&self.summary.name),
            print::count(self.summary.n_nodes)
        )?;
        for (heading, list) in [("inputs", &self.summary.inputs), ("outputs", &self.summary.outputs)] {
            writeln!(out, "{heading}")?;
            let rows: Vec<Vec<String>> =
                list.iter().map(|(name, ty)| vec![name.clone(), ty.clone()]).collect();
            print::table(out, &rows, &[])?;
        }
        writeln!(out, "operators")?;
        let rows: Vec<Vec<String>> =
            self.operators().into_iter().map(|(name, n)| vec![name.clone(), print::count(n)]).collect();
        print::table(out, &rows, &[1])?;
        let totals = self.summary.totals();
        writeln!(out, "parameters  {}", print::count(totals.n_elements))?;
        let by_type: Vec<String> = self
            .summary
            .weights
            .iter()
            .map(|(name, weights)| format!("{name} {}", print::bytes(weights.n_bytes)))
            .collect();
        let by_type = if by_type.is_empty() { String::new() } else { format!(" ({})", by_type.join(", ")) };
        writeln!(out, "weights     {}{by_type}", print::bytes(totals.n_bytes))?;
        if let Some((n_sparse @ 1.., n_layers)) = self.sparse_layers() {
            writeln!(out, "sparsity    {n_sparse} of {n_layers} layers have weights that are 2:4 sparse")?;
        }
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
        if self.summary.unsupported.is_empty() {
            writeln!(out, "unsupported none")?;
        } else {
            writeln!(out, "unsupported {} nodes", self.summary.unsupported.len())?;
            let rows: Vec<Vec<String>> =
                self.summary.unsupported.iter().map(|node| vec![node.to_string()]).collect();
            print::table(out, &rows, &[])?;
        }
        Ok(())
    }

    /// Layers whose weights are 2:4 sparse, of how many.
    fn sparse_layers(&self) -> Option<(usize, usize)> {
        self.summary.model.as_ref().map(Model::sparse_layers)
    }

    /// Operators, the most frequent first.
    fn operators(&self) -> Vec<(&String, u64)> {
        let mut list: Vec<(&String, u64)> =
            self.summary.operators.iter().map(|(name, &n)| (name, n)).collect();
        list.sort_by_key(|&(name, n)| (std::cmp::Reverse(n), name));
        list
    }

    fn json(&self) -> serde_json::Value {
        let typed = |list: &[(String, String)]| -> Vec<serde_json::Value> {
            list.iter().map(|(name, ty)| json!({"name": name, "type": ty})).collect()
        };
        let operators: serde_json::Map<String, serde_json::Value> =
            self.operators().into_iter().map(|(name, n)| (name.clone(), json!(n))).collect();
        let weights: serde_json::Map<String, serde_json::Value> = self
            .summary
            .weights
            .iter()
            .map(|(name, w)| {
                let entry = json!({"tensors": w.n_tensors, "elements": w.n_elements, "bytes": w.n_bytes});
                (name.to_string(), entry)
            })
            .collect();
        let opsets: serde_json::Map<String, serde_json::Value> =
            self.summary.opsets.iter().map(|(domain, version)| (domain.clone(), json!(version))).collect();
        let totals = self.summary.totals();
        let (flops, n_uncounted, shapes) = match &self.work {
            Ok(work) => (json!(work.flops), json!(work.n_uncounted), json!(work.shapes)),
            Err(_) => (json!(null), json!(null), json!(null)),
        };
        let unsupported: Vec<_> = self
            .summary
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
            "file_bytes": self.summary.n_bytes,
            "producer": self.summary.producer,
            "ir_version": self.summary.ir_version,
            "opsets": opsets,
            "graph": self.summary.name,
            "nodes": self.summary.n_nodes,
            "inputs": typed(&self.summary.inputs),
            "outputs": typed(&self.summary.outputs),
            "operators": operators,
            "parameters": totals.n_elements,
            "weight_bytes": totals.n_bytes,
            "weights": weights,
            "sparse_layers": self.sparse_layers().map(|(n_sparse, _)| n_sparse),
            "flops": flops,
            "uncounted_nodes": n_uncounted,
            "flops_shapes": shapes,
            "unsupported": unsupported,
        })
    }
}

fn quoted(name: &str) -> String {
    if name.is_empty() { "without a name".into() } else { format!("`{name}`") }
}

/// The work at the given sizes, the rest chosen as for a run.
fn count(graph: &Graph, shape_arguments: &[String]) -> Result<Count, Error> {
    let (sizes, untied) = shapes::bind_all(graph, "--shapes", shape_arguments)?;
    if !untied.is_empty() {
        say_note(&shapes::untied_note(&untied));
        return count(Model::from(graph.clone()).untie(&untied)?.graph(), shape_arguments);
    }
    let sizes = shapes::default_sizes(graph, &sizes)?;
    let lookup = |symbol: &str| sizes.get(symbol).copied();
    let special = graph.specialize(&lookup).map_err(|error| {
        Error::new(ErrorKind::WrongShape, format!("the model does not accept inputs of these sizes: {error}"))
    })?;
    let work = special.work(&lookup);
    let inputs = shapes::tensor_inputs(graph);
    let open = inputs.iter().filter(|(_, ty)| ty.shape.as_ref().is_some_and(|s| s.as_fixed().is_none()));
    let shapes = open
        .map(|(value, ty)| Ok((value.name.to_string(), shapes::shape_at(&value.name, ty, &sizes)?)))
        .collect::<Result<Vec<_>, Error>>()?;
    let shapes = if shapes.is_empty() { String::new() } else { shapes::argument(&shapes) };
    Ok(Count { flops: work.flops, n_uncounted: work.uncounted.len(), shapes })
}
