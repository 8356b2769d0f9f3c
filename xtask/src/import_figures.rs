//! `cargo xtask import-figures`: how long importing takes, how it grows with the nodes, and what memory it needs.
//!
//! The models are generated. Each is imported by a process of its own, an optimized build of this program, so
//! that the peak of memory is that of the import alone.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use planish_onnx::{
    Attribute, AttributeValue, DataType, Dimension, Graph, Model, Node, OpsetImport, Tensor, ValueInfo, write,
};

use crate::{root, scratch};

#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Import this file once and print seconds, nodes and the peak of memory: what the runs are made of.
    #[arg(long, value_name = "FILE")]
    measure: Option<PathBuf>,
}

/// Each file is imported this often; the best counts, as everything that disturbs makes it slower.
const RUNS: usize = 3;

/// A chain of 50,000 nodes is imported in less.
const MAX_CHAIN_SECONDS: f64 = 2.0;
/// A file of 100 MB is imported in less.
const MAX_WEIGHTS_SECONDS: f64 = 0.3;
/// At the peak, a file of 100 MB takes less memory than this times its size.
const MAX_PEAK: f64 = 1.3;
/// Four times the nodes may take this times as long: linear, with room for what caches do.
const MAX_GROWTH: f64 = 6.0;

pub(crate) fn run(options: &Options) -> Result<bool> {
    match &options.measure {
        Some(path) => measure(path),
        None => table(),
    }
}

/// One import, in this process.
fn measure(path: &Path) -> Result<bool> {
    let start = Instant::now();
    let imported = planish_import::import_file(path).map_err(|error| anyhow::anyhow!("{error}"))?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{seconds} {} {}", imported.graph.nodes().len(), peak_memory()?);
    Ok(true)
}

/// The most bytes of memory that this process has had.
pub(crate) fn peak_memory() -> Result<usize> {
    let status = fs::read_to_string("/proc/self/status").context("the peak of memory is read from /proc")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let peak: usize = peak.trim().trim_end_matches("kB").trim().parse().context("VmHWM is a number")?;
    Ok(peak * 1024)
}

struct Measured {
    seconds: f64,
    n_nodes: usize,
    peak: usize,
    size: usize,
}

fn table() -> Result<bool> {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--package", "xtask"])
        .current_dir(root())
        .status()
        .context("cannot start cargo")?;
    if !built.success() {
        bail!("the optimized build failed");
    }
    let folder = scratch().join("import-figures");
    fs::create_dir_all(&folder)?;
    let chain = |n_nodes: usize| (format!("chain of {n_nodes} nodes"), write(&chain_model(n_nodes)));
    let shapes = |n_nodes: usize| (format!("shape chain of {n_nodes} nodes"), write(&shape_model(n_nodes)));
    let weights = vec![0x3c; WEIGHT_BYTES];
    let files = [
        chain(25_000),
        chain(50_000),
        chain(100_000),
        shapes(25_000),
        shapes(50_000),
        shapes(100_000),
        ("ifs of 50000 nodes".to_string(), write(&branch_model(50_000))),
        ("100 MB of weights".to_string(), write(&weight_model(&weights))),
    ];
    println!(
        "{:<28} {:>8} {:>9} {:>9} {:>11} {:>9} {:>10}",
        "model", "nodes", "MB", "seconds", "nodes/s", "peak MB", "peak/size"
    );
    let mut all = Vec::new();
    for (idx, (name, bytes)) in files.iter().enumerate() {
        let path = folder.join(format!("{idx}.onnx"));
        fs::write(&path, bytes)?;
        let mut best = measured(&path, bytes.len())?;
        for _ in 1..RUNS {
            let next = measured(&path, bytes.len())?;
            best.peak = best.peak.max(next.peak);
            best.seconds = best.seconds.min(next.seconds);
        }
        println!(
            "{name:<28} {:>8} {:>9.2} {:>9.4} {:>11.0} {:>9.1} {:>10.2}",
            best.n_nodes,
            best.size as f64 / 1e6,
            best.seconds,
            best.n_nodes as f64 / best.seconds,
            best.peak as f64 / 1e6,
            best.peak as f64 / best.size as f64,
        );
        all.push(best);
        fs::remove_file(&path)?;
    }
    let [chain_25, chain_50, chain_100, shapes_25, shapes_50, shapes_100, branches, weights] = &all[..]
    else {
        bail!("a figure is missing");
    };
    let mut ok = true;
    let mut check = |what: &str, value: f64, most: f64| {
        ok &= value < most;
        println!("{what}: {value:.4}, at most {most}{}", if value < most { "" } else { "  <-- MISSED" });
    };
    check("seconds for 50,000 nodes", chain_50.seconds, MAX_CHAIN_SECONDS);
    check("seconds for 50,000 nodes of shape arithmetic", shapes_50.seconds, MAX_CHAIN_SECONDS);
    check("seconds for 50,000 nodes in branches", branches.seconds, MAX_CHAIN_SECONDS);
    check("time for 100,000 nodes over 25,000", chain_100.seconds / chain_25.seconds, MAX_GROWTH);
    check("the same for shape arithmetic", shapes_100.seconds / shapes_25.seconds, MAX_GROWTH);
    check("seconds for 100 MB", weights.seconds, MAX_WEIGHTS_SECONDS);
    check("peak over size of 100 MB", weights.peak as f64 / weights.size as f64, MAX_PEAK);
    Ok(ok)
}

fn measured(path: &Path, size: usize) -> Result<Measured> {
    let program = root().join("target/release/xtask");
    let output = Command::new(&program)
        .arg("import-figures")
        .arg("--measure")
        .arg(path)
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let [seconds, n_nodes, peak] = text.split_whitespace().collect::<Vec<_>>()[..] else {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    };
    Ok(Measured { seconds: seconds.parse()?, n_nodes: n_nodes.parse()?, peak: peak.parse()?, size })
}

fn model(graph: Graph<'_>) -> Model<'_> {
    let opset_imports = vec![OpsetImport { domain: "".into(), version: 21 }];
    Model { ir_version: 10, opset_imports, graph, ..Model::default() }
}

fn values(name: &'static str, dims: Vec<Dimension<'static>>) -> ValueInfo<'static> {
    ValueInfo::tensor(name, DataType::Float, dims)
}

fn node(op_type: &'static str, idx: usize, inputs: &[Cow<'static, str>], output: String) -> Node<'static> {
    let name = format!("/model/layers.{idx}/{op_type}").into();
    let (inputs, outputs) = (inputs.to_vec(), vec![output.into()]);
    Node { op_type: op_type.into(), name, inputs, outputs, ..Node::default() }
}

/// Layers of element-wise operators with a bias each, named as exporters name them.
fn chain_model(n_nodes: usize) -> Model<'static> {
    let batch = || vec![Dimension::Param("batch".into()), Dimension::Value(64)];
    let mut graph = Graph {
        name: "chain".into(),
        inputs: vec![values("x", batch())],
        outputs: vec![values("y", batch())],
        ..Graph::default()
    };
    let mut last: Cow<'static, str> = "x".into();
    for idx in 0..n_nodes {
        let op_type = ["Add", "Relu", "Mul", "Sigmoid"][idx % 4];
        let output = format!("/model/layers.{idx}/{op_type}_output_0");
        let mut inputs = vec![last];
        if idx % 2 == 0 {
            let bias = format!("model.layers.{idx}.bias");
            graph.initializers.push(Tensor::raw(bias.clone(), DataType::Float, vec![64], vec![0u8; 256]));
            inputs.push(bias.into());
        }
        last = output.clone().into();
        let output = if idx + 1 == n_nodes { "y".to_string() } else { output };
        graph.nodes.push(node(op_type, idx, &inputs, output));
    }
    model(graph)
}

/// What exporters write to keep a dynamic batch: Shape, Gather, Unsqueeze, Concat, Reshape, over and over.
fn shape_model(n_nodes: usize) -> Model<'static> {
    let dims =
        || vec![Dimension::Param("batch".into()), Dimension::Param("seq".into()), Dimension::Value(64)];
    let ints = |name: &'static str, dims: Vec<i64>, value: i64| {
        Tensor::raw(name, DataType::Int64, dims, value.to_le_bytes().to_vec())
    };
    let mut graph = Graph {
        name: "shapes".into(),
        inputs: vec![values("x", dims())],
        initializers: vec![ints("zero", vec![], 0), ints("axes", vec![1], 0), ints("rest", vec![1], -1)],
        ..Graph::default()
    };
    let mut last: Cow<'static, str> = "x".into();
    for idx in 0..n_nodes / 5 {
        let value = |name: &str| format!("/model/layers.{idx}/{name}_output_0");
        let named = |name: &str| Cow::<'static, str>::Owned(value(name));
        let concat = Node {
            attributes: vec![Attribute::new("axis", AttributeValue::Int(0))],
            ..node("Concat", idx, &[named("Unsqueeze"), "rest".into()], value("Concat"))
        };
        graph.nodes.extend([
            node("Shape", idx, &[last.clone()], value("Shape")),
            node("Gather", idx, &[named("Shape"), "zero".into()], value("Gather")),
            node("Unsqueeze", idx, &[named("Gather"), "axes".into()], value("Unsqueeze")),
            concat,
            node("Reshape", idx, &[last, named("Concat")], value("Reshape")),
        ]);
        last = named("Reshape");
    }
    graph.outputs = vec![ValueInfo { name: last, ..ValueInfo::default() }];
    model(graph)
}

/// Ifs whose branches read what is outside.
fn branch_model(n_nodes: usize) -> Model<'static> {
    let batch = || vec![Dimension::Param("batch".into())];
    let mut graph = Graph {
        name: "branches".into(),
        inputs: vec![values("x", batch()), ValueInfo::tensor("c", DataType::Bool, vec![])],
        ..Graph::default()
    };
    let mut last: Cow<'static, str> = "x".into();
    for idx in 0..n_nodes / 5 {
        let branch = |op: &'static str| {
            let output = format!("{op}.{idx}");
            AttributeValue::Graph(Box::new(Graph {
                name: op.into(),
                outputs: vec![ValueInfo { name: output.clone().into(), ..ValueInfo::default() }],
                nodes: vec![
                    node("Neg", idx, &[last.clone()], format!("{op}.inner.{idx}")),
                    node(op, idx, &[format!("{op}.inner.{idx}").into(), "x".into()], output),
                ],
                ..Graph::default()
            }))
        };
        let output = format!("if.{idx}");
        let attributes =
            vec![Attribute::new("then_branch", branch("Add")), Attribute::new("else_branch", branch("Mul"))];
        graph.nodes.push(Node { attributes, ..node("If", idx, &["c".into()], output.clone()) });
        last = output.into();
    }
    graph.outputs = vec![ValueInfo { name: last, ..ValueInfo::default() }];
    model(graph)
}

/// Weights of the 100 MB model: 50 matrices of 2 MB.
const WEIGHT_BYTES: usize = 724 * 724 * 4;

fn weight_model(weights: &[u8]) -> Model<'_> {
    let mut graph = Graph {
        name: "weights".into(),
        inputs: vec![values("x", vec![Dimension::Param("batch".into()), Dimension::Value(724)])],
        ..Graph::default()
    };
    let mut last: Cow<'static, str> = "x".into();
    for idx in 0..48 {
        let name = format!("model.layers.{idx}.weight");
        graph.initializers.push(Tensor::raw(name.clone(), DataType::Float, vec![724, 724], weights));
        let output = format!("/model/layers.{idx}/MatMul_output_0");
        graph.nodes.push(node("MatMul", idx, &[last, name.into()], output.clone()));
        last = output.into();
    }
    graph.outputs = vec![ValueInfo { name: last, ..ValueInfo::default() }];
    model(graph)
}
