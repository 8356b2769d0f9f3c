//! What is wrong with a file, or will hurt somewhere: each finding with its place, and whether [`crate::onnx::fix`] repairs it.

use std::collections::{HashMap, HashSet};

use planish_import::{NEWEST_OPSET, OLDEST_OPSET};
use planish_onnx::{AttributeValue, DataType, Dimension, Graph, Model, Node, Tensor, Type};
use planish_tensor::{bf16, f16};

use super::file::Types;
use super::fix::{optional_outputs, runnable_order};
use super::names::{bodies, constants, each_constant, live_nodes, producers, read_names, reads};

/// How bad a finding is.
/// Given by [`Finding::severity`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Worth to know; nothing breaks.
    Note,
    /// Wrong, or slow somewhere.
    Warning,
    /// The model cannot be used as it is, or means something else to different runtimes.
    Error,
}

/// One thing that is wrong.
/// Given by [`lint`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// Its kind, as in `dead-node`.
    pub rule: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The node, value or weight.
    pub place: String,
    /// What is wrong there.
    pub message: String,
    /// What [`crate::onnx::fix`] does about it; `None` where a person has to.
    pub fix: Option<&'static str>,
}

/// Looks a model over.
/// [`crate::onnx`] has an example.
pub fn lint(model: &Model<'_>, types: &Types) -> Vec<Finding> {
    let mut lint = Lint { found: Vec::new() };
    lint.versions(model);
    if let Some(why) = types.why_not() {
        lint.add(Severity::Error, "unusable", "the model", why, None);
    }
    for node in types.unsupported() {
        let text = node.to_string();
        lint.add(Severity::Error, "unsupported-operator", &text, "Planish has no such operator", None);
    }
    lint.names(&model.graph);
    lint.wiring(&model.graph);
    lint.ports(&model.graph);
    lint.declared(&model.graph, types);
    lint.constants(&model.graph);
    lint.quantization(&model.graph);
    lint.training(&model.graph);
    lint.functions(model);
    lint.found
}

struct Lint {
    found: Vec<Finding>,
}

impl Lint {
    fn add(
        &mut self,
        severity: Severity,
        rule: &'static str,
        place: &str,
        message: &str,
        fix: Option<&'static str>,
    ) {
        self.found.push(Finding {
            rule,
            severity,
            place: place.to_string(),
            message: message.to_string(),
            fix,
        });
    }

    fn versions(&mut self, model: &Model<'_>) {
        for import in &model.opset_imports {
            let is_standard = ["", "ai.onnx"].contains(&import.domain.as_ref());
            let (place, version) = (format!("opset {}", import.version), import.version);
            if is_standard && version < OLDEST_OPSET {
                let message = format!(
                    "older than {OLDEST_OPSET}, the oldest that is read; convert it with onnx.version_converter"
                );
                self.add(Severity::Error, "old-opset", &place, &message, None);
            } else if is_standard && version < RECENT_OPSET {
                let message = format!(
                    "runtimes drop opsets before {RECENT_OPSET} one by one; `planish simplify` writes the model in a recent one"
                );
                self.add(Severity::Note, "old-opset", &place, &message, None);
            } else if is_standard && version > NEWEST_OPSET {
                let message = format!("newer than {NEWEST_OPSET}, the newest that is known");
                self.add(Severity::Warning, "new-opset", &place, &message, None);
            }
        }
        let used = used_domains(model);
        for import in model.opset_imports.iter().filter(|import| !used.contains(plain_domain(&import.domain)))
        {
            let place = format!("opset import `{}`", import.domain);
            self.add(Severity::Note, "unused-opset", &place, "no node is of this domain", Some("is removed"));
        }
    }

    fn names(&mut self, graph: &Graph<'_>) {
        let mut n_by_name: HashMap<&str, usize> = HashMap::new();
        graph.nodes.iter().filter(|node| !node.name.is_empty()).for_each(|node| {
            *n_by_name.entry(node.name.as_ref()).or_default() += 1;
        });
        let mut twice: Vec<_> = n_by_name.into_iter().filter(|(_, n)| *n > 1).collect();
        twice.sort_unstable();
        for (name, n) in twice {
            let message = format!("{n} nodes have this name; ONNX Runtime refuses that");
            self.add(
                Severity::Warning,
                "duplicate-node-name",
                name,
                &message,
                Some("later ones get a number"),
            );
        }
        let mut makers: HashSet<&str> = graph.inputs.iter().map(|input| input.name.as_ref()).collect();
        for name in constants(graph) {
            if !makers.insert(name) && graph.inputs.iter().all(|input| input.name != name) {
                self.add(Severity::Error, "duplicate-value-name", name, "two constants have this name", None);
            }
        }
        for name in graph.nodes.iter().flat_map(|node| &node.outputs).filter(|name| !name.is_empty()) {
            if !makers.insert(name) {
                self.add(
                    Severity::Error,
                    "duplicate-value-name",
                    name,
                    "two nodes make a value of this name",
                    None,
                );
            }
        }
    }

    fn wiring(&mut self, graph: &Graph<'_>) {
        let mut there: HashSet<&str> = graph.inputs.iter().map(|input| input.name.as_ref()).collect();
        there.extend(constants(graph));
        let makers = producers(graph);
        for node in &graph.nodes {
            for name in
                reads(node).into_iter().filter(|name| !there.contains(name) && !makers.contains_key(name))
            {
                let message = format!("reads `{name}`, which nothing makes");
                self.add(Severity::Error, "missing-value", &described(node), &message, None);
            }
        }
        for output in graph.outputs.iter().map(|output| output.name.as_ref()) {
            if !there.contains(output) && !makers.contains_key(output) {
                self.add(Severity::Error, "missing-value", output, "an output that nothing makes", None);
            }
        }
        if let Some(order) = runnable_order(graph)
            && !order.is_sorted()
        {
            let message = "nodes stand before others that make what they read; ONNX wants them in order";
            self.add(Severity::Warning, "unsorted-nodes", "the graph", message, Some("they are sorted"));
        }
        let is_live = live_nodes(graph);
        let read = read_names(graph);
        for (node, _) in graph.nodes.iter().zip(&is_live).filter(|(_, is_live)| !**is_live) {
            let message = "no output of the model needs it";
            self.add(Severity::Warning, "dead-node", &described(node), message, Some("is removed"));
        }
        for (node, _) in graph.nodes.iter().zip(&is_live).filter(|(_, is_live)| **is_live) {
            for name in optional_outputs(node).iter().filter(|name| !read.contains(name.as_ref())) {
                let message = format!("its optional output `{name}` is read by nobody");
                self.add(Severity::Note, "dead-output", &described(node), &message, Some("is left out"));
            }
        }
        for name in constants(graph).filter(|name| !read.contains(name)) {
            self.add(Severity::Warning, "unused-initializer", name, "no node reads it", Some("is removed"));
        }
        let identities =
            graph.nodes.iter().filter(|node| node.op_type == "Identity" && node.domain.is_empty());
        let n = identities.count();
        if n > 0 {
            let message = format!("{n} nodes do nothing; `planish simplify` removes them");
            self.add(Severity::Note, "identity", "the graph", &message, None);
        }
    }

    fn ports(&mut self, graph: &Graph<'_>) {
        let read = read_names(graph);
        let known: HashSet<&str> = constants(graph).collect();
        for input in &graph.inputs {
            if known.contains(input.name.as_ref()) {
                let message = "a constant that is an input as well; runtimes then may not fold it";
                self.add(
                    Severity::Warning,
                    "initializer-as-input",
                    &input.name,
                    message,
                    Some("is a constant alone"),
                );
                continue;
            }
            if !read.contains(input.name.as_ref()) {
                self.add(Severity::Warning, "unused-input", &input.name, "no node reads this input", None);
            }
            match &input.ty {
                Some(Type::Tensor { shape: None, .. }) => {
                    self.add(
                        Severity::Warning,
                        "unknown-rank",
                        &input.name,
                        "the file does not say its rank",
                        None,
                    );
                }
                Some(Type::Tensor { shape: Some(dims), .. }) => {
                    for axis in (0..dims.len()).filter(|&axis| is_unnamed(&dims[axis])) {
                        let message =
                            format!("dimension {axis} is open and has no name, so nothing can be said of it");
                        self.add(
                            Severity::Note,
                            "unnamed-dimension",
                            &input.name,
                            &message,
                            Some("is named by input and axis"),
                        );
                    }
                }
                Some(_) => {}
                None => self.add(
                    Severity::Error,
                    "untyped-input",
                    &input.name,
                    "the file does not say its type",
                    None,
                ),
            }
        }
    }

    fn declared(&mut self, graph: &Graph<'_>, types: &Types) {
        let makers = producers(graph);
        for info in graph.outputs.iter().chain(&graph.value_infos) {
            if !makers.contains_key(info.name.as_ref()) {
                continue;
            }
            if let (Some(declared), Some(own)) = (&info.ty, types.inferred(&info.name))
                && let Some(message) = disagreement(declared, &own)
            {
                self.add(
                    Severity::Warning,
                    "declared-shape",
                    &info.name,
                    &message,
                    Some("what is inferred is declared"),
                );
            }
        }
    }

    fn constants(&mut self, graph: &Graph<'_>) {
        let mut counted = Vec::new();
        each_constant(graph, &mut |name, tensor| counted.push((name, tensor.data_type, Counted::of(tensor))));
        for (name, data_type, counted) in counted {
            let Counted { n_nan, n_inf, n_denormal, n } = counted;
            if n_nan > 0 {
                self.add(
                    Severity::Error,
                    "nan-weight",
                    name,
                    &format!("{n_nan} of {n} elements are NaN"),
                    None,
                );
            }
            if n_inf > 0 {
                // Masks are made of them.
                let severity = if n_inf == n { Severity::Note } else { Severity::Warning };
                self.add(
                    severity,
                    "infinite-weight",
                    name,
                    &format!("{n_inf} of {n} elements are infinite"),
                    None,
                );
            }
            if n_denormal > 0 {
                let message = format!(
                    "{n_denormal} of {n} elements are denormal, which some processors compute slowly"
                );
                self.add(Severity::Note, "denormal-weight", name, &message, Some("they become 0"));
            }
            if data_type == DataType::Double && n > 1 {
                let message = format!(
                    "{n} elements of 64 bits: twice the memory, and GPUs compute them at a fraction of their rate"
                );
                self.add(Severity::Note, "double-constant", name, &message, None);
            }
        }
    }

    fn quantization(&mut self, graph: &Graph<'_>) {
        let by_name: HashMap<&str, &Tensor<'_>> =
            graph.initializers.iter().map(|tensor| (tensor.name.as_ref(), tensor)).collect();
        for node in &graph.nodes {
            if !["QuantizeLinear", "DequantizeLinear"].contains(&node.op_type.as_ref()) {
                continue;
            }
            let scale = node.inputs.get(1).and_then(|name| by_name.get(name.as_ref()));
            let wrong = scale.and_then(|scale| floats(scale)).map(|scales| {
                scales.into_iter().filter(|scale| !(*scale > 0.0 && scale.is_finite())).count()
            });
            if let Some(n) = wrong.filter(|n| *n > 0) {
                let message = format!("{n} of its scales are not above 0, or not finite");
                self.add(Severity::Error, "quantization-scale", &described(node), &message, None);
            }
        }
    }

    fn training(&mut self, graph: &Graph<'_>) {
        for node in &graph.nodes {
            let is_training = node
                .attribute("training_mode")
                .is_some_and(|attribute| attribute.value == AttributeValue::Int(1));
            if is_training {
                let message = "computes as in training; export the model in its evaluation mode";
                self.add(Severity::Warning, "training-mode", &described(node), message, None);
            }
            node.attributes.iter().flat_map(bodies).for_each(|body| self.training(body));
        }
    }

    fn functions(&mut self, model: &Model<'_>) {
        let called = called_functions(model);
        for function in &model.functions {
            if !called.contains(&(plain_domain(&function.domain), function.name.as_ref())) {
                let message = "a function that no node calls";
                self.add(Severity::Note, "unused-function", &function.name, message, Some("is removed"));
            }
        }
    }
}

/// Opsets before this one are of before 2021.
const RECENT_OPSET: i64 = 13;

/// A node as people find it: by its name, or by what it makes.
pub(super) fn described(node: &Node<'_>) -> String {
    let first = node.outputs.iter().find(|name| !name.is_empty());
    match (node.name.as_ref(), first) {
        ("", Some(output)) => format!("{} that makes `{output}`", node.op_type),
        (name, _) => format!("{} `{name}`", node.op_type),
    }
}

pub(super) fn plain_domain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

fn each_node<'m, 'a>(graph: &'m Graph<'a>, visit: &mut dyn FnMut(&'m Node<'a>)) {
    for node in &graph.nodes {
        visit(node);
        node.attributes.iter().flat_map(bodies).for_each(|body| each_node(body, visit));
    }
}

/// The domains of all nodes, those of functions included.
pub(super) fn used_domains<'m>(model: &'m Model<'_>) -> HashSet<&'m str> {
    let mut domains = HashSet::new();
    each_node(&model.graph, &mut |node| _ = domains.insert(plain_domain(&node.domain)));
    domains.extend(
        model.functions.iter().flat_map(|function| &function.nodes).map(|node| plain_domain(&node.domain)),
    );
    domains
}

/// The functions that are called, by domain and name.
pub(super) fn called_functions<'m>(model: &'m Model<'_>) -> HashSet<(&'m str, &'m str)> {
    let mut called = HashSet::new();
    each_node(&model.graph, &mut |node| {
        _ = called.insert((plain_domain(&node.domain), node.op_type.as_ref()))
    });
    let inner = model.functions.iter().flat_map(|function| &function.nodes);
    called.extend(inner.map(|node| (plain_domain(&node.domain), node.op_type.as_ref())));
    called
}

/// Whether a dimension of an input is open without a name: absent, or a number that no size can be.
pub(super) fn is_unnamed(dim: &Dimension<'_>) -> bool {
    match dim {
        Dimension::Unknown => true,
        Dimension::Value(size) => *size < 0,
        Dimension::Param(name) => name.is_empty(),
    }
}

/// What two types of a value disagree in, where both say something.
pub(super) fn disagreement(declared: &Type<'_>, own: &Type<'_>) -> Option<String> {
    let (Type::Tensor { elem, shape }, Type::Tensor { elem: own_elem, shape: own_shape }) = (declared, own)
    else {
        return None;
    };
    if elem != own_elem && *elem != DataType::Undefined {
        return Some(format!("is declared {} and is {}", elem.name(), own_elem.name()));
    }
    let (declared, own) = (shape.as_ref()?, own_shape.as_ref()?);
    let differs = declared.len() != own.len()
        || declared
            .iter()
            .zip(own)
            .any(|pair| matches!(pair, (Dimension::Value(a), Dimension::Value(b)) if a != b && *a > 0));
    differs.then(|| format!("is declared {} and is {}", dims_text(declared), dims_text(own)))
}

fn dims_text(dims: &[Dimension<'_>]) -> String {
    let dim = |dim: &Dimension<'_>| match dim {
        Dimension::Value(size) => size.to_string(),
        Dimension::Param(name) => name.to_string(),
        Dimension::Unknown => "?".to_string(),
    };
    format!("[{}]", dims.iter().map(dim).collect::<Vec<_>>().join(","))
}

/// Elements of a constant that are no ordinary numbers.
#[derive(Default)]
struct Counted {
    n: usize,
    n_nan: usize,
    n_inf: usize,
    n_denormal: usize,
}

impl Counted {
    fn of(tensor: &Tensor<'_>) -> Counted {
        let mut counted = Counted { n: tensor.element_count().unwrap_or(0), ..Counted::default() };
        let Ok(bytes) = tensor.to_le_bytes() else { return counted };
        let mut count = |is_nan: bool, is_infinite: bool, is_subnormal: bool| {
            counted.n_nan += usize::from(is_nan);
            counted.n_inf += usize::from(is_infinite);
            counted.n_denormal += usize::from(is_subnormal);
        };
        match tensor.data_type {
            DataType::Float => bytes.as_chunks().0.iter().for_each(|chunk| {
                let x = f32::from_le_bytes(*chunk);
                count(x.is_nan(), x.is_infinite(), x.is_subnormal());
            }),
            DataType::Double => bytes.as_chunks().0.iter().for_each(|chunk| {
                let x = f64::from_le_bytes(*chunk);
                count(x.is_nan(), x.is_infinite(), x.is_subnormal());
            }),
            // The smallest numbers of 16 bits are used on purpose, and cost nothing.
            DataType::Float16 => bytes.as_chunks().0.iter().for_each(|chunk| {
                let x = f32::from(f16::from_bits(u16::from_le_bytes(*chunk)));
                count(x.is_nan(), x.is_infinite(), false);
            }),
            DataType::Bfloat16 => bytes.as_chunks().0.iter().for_each(|chunk| {
                let x = f32::from(bf16::from_bits(u16::from_le_bytes(*chunk)));
                count(x.is_nan(), x.is_infinite(), x.is_subnormal());
            }),
            _ => {}
        }
        counted
    }
}

/// The elements of a constant of floats.
fn floats(tensor: &Tensor<'_>) -> Option<Vec<f32>> {
    let bytes = tensor.to_le_bytes().ok()?;
    Some(match tensor.data_type {
        DataType::Float => bytes.as_chunks().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect(),
        DataType::Float16 => {
            let half = |chunk: &[u8; 2]| f32::from(f16::from_bits(u16::from_le_bytes(*chunk)));
            bytes.as_chunks().0.iter().map(half).collect()
        }
        _ => return None,
    })
}
