//! `Summary`: what a model file holds, also where parts of it are not supported.

use std::collections::BTreeMap;
use std::path::Path;

pub use planish_import::UnsupportedNode;
use planish_import::types;
use planish_onnx::{AttributeValue, Dimension, Type};
use planish_tensor::Bytes;

use crate::model::Model;
use crate::{Error, ErrorKind};

/// Weights of one element type.
/// Given by [`Summary::totals`], and by type in [`Summary::weights`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct WeightTotals {
    /// How many tensors there are.
    pub n_tensors: u64,
    /// Their elements.
    pub n_elements: u64,
    /// Their bytes.
    pub n_bytes: u64,
}

/// What an ONNX file holds: nodes and weights counted over all nested graphs and functions.
///
/// ```no_run
/// let summary = planish::Summary::read("model.onnx")?;
/// println!("{} nodes, {} parameters", summary.n_nodes, summary.totals().n_elements);
/// for node in &summary.unsupported {
///     println!("not supported: {node}");
/// }
/// # Ok::<(), planish::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// Bytes of the file, external data apart.
    pub n_bytes: u64,
    /// The program that wrote it, with its version.
    pub producer: String,
    /// The version of the file format.
    pub ir_version: i64,
    /// Versions of operator sets by domain, the standard one as `ai.onnx`.
    pub opsets: Vec<(String, i64)>,
    /// The graph's name.
    pub name: String,
    /// Nodes, nested ones too.
    pub n_nodes: u64,
    /// How often each operator is there; those of other domains as `domain.Operator`.
    pub operators: BTreeMap<String, u64>,
    /// Weights by element type.
    pub weights: BTreeMap<&'static str, WeightTotals>,
    /// Names and types of inputs.
    pub inputs: Vec<(String, String)>,
    /// Names and types of outputs.
    pub outputs: Vec<(String, String)>,
    /// Nodes that Planish does not have.
    pub unsupported: Vec<UnsupportedNode>,
    /// The model that it becomes; nothing where nodes are not supported.
    pub model: Option<Model>,
}

impl Summary {
    /// Reads an ONNX file.
    pub fn read(path: impl AsRef<Path>) -> Result<Summary, Error> {
        let path = path.as_ref();
        let bytes = Bytes::map_file(path).map_err(|error| Error::io("read", path, &error))?;
        let model = planish_onnx::read(&bytes).map_err(|error| {
            let message = format!("{} is not a usable ONNX model: {error}", path.display());
            Error::new(ErrorKind::BadModel, message)
        })?;
        let standard =
            |domain: &str| if domain.is_empty() { "ai.onnx".to_string() } else { domain.to_string() };
        let opsets = model.opset_imports.iter();
        let mut summary = Summary {
            n_bytes: bytes.len() as u64,
            producer: format!("{} {}", model.producer_name, model.producer_version).trim().to_string(),
            ir_version: model.ir_version,
            opsets: opsets.map(|opset| (standard(&opset.domain), opset.version)).collect(),
            name: model.graph.name.to_string(),
            n_nodes: 0,
            operators: BTreeMap::new(),
            weights: BTreeMap::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            unsupported: Vec::new(),
            model: None,
        };
        summary.add_graph(&model.graph);
        model.functions.iter().flat_map(|function| &function.nodes).for_each(|node| summary.add_node(node));
        match Model::of_bytes(path, &bytes)? {
            Ok(imported) => {
                let graph = imported.graph();
                let typed = |ids: &[planish_ir::ValueId]| {
                    let values = ids.iter().map(|&id| graph.value(id));
                    values.map(|value| (value.name.to_string(), value.ty.to_string())).collect()
                };
                (summary.inputs, summary.outputs) = (typed(graph.inputs()), typed(graph.outputs()));
                summary.model = Some(imported);
            }
            Err(unsupported) => {
                let typed = |infos: &[planish_onnx::ValueInfo<'_>]| {
                    infos.iter().map(|info| (info.name.to_string(), declared(info))).collect()
                };
                summary.inputs = typed(&model.graph.inputs);
                summary.outputs = typed(&model.graph.outputs);
                summary.unsupported = unsupported;
            }
        }
        Ok(summary)
    }

    /// All weights together.
    pub fn totals(&self) -> WeightTotals {
        self.weights.values().fold(WeightTotals::default(), |sum, weights| WeightTotals {
            n_tensors: sum.n_tensors + weights.n_tensors,
            n_elements: sum.n_elements + weights.n_elements,
            n_bytes: sum.n_bytes + weights.n_bytes,
        })
    }

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
        let name = types::dtype(tensor.data_type).map_or(tensor.data_type.name(), |dtype| dtype.name());
        let weights = self.weights.entry(name).or_default();
        weights.n_tensors += 1;
        weights.n_elements += n as u64;
        weights.n_bytes += bytes as u64;
    }
}

/// The type that the file gives for a value, of tensors only.
fn declared(info: &planish_onnx::ValueInfo<'_>) -> String {
    let Some(Type::Tensor { elem, shape }) = &info.ty else { return String::new() };
    let name = types::dtype(*elem).map_or(elem.name(), |dtype| dtype.name());
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
