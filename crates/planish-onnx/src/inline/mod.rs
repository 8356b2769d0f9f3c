//! Model-local functions: every call replaced by the function's body.
//!
//! A body's values get new names, its inputs and outputs those of the call, and attributes that refer to the
//! function's own get the call's values or the defaults. Calls inside bodies and subgraphs are replaced too.
//! What a small file can blow up to is bounded in nodes, bytes and depth.

mod bind;
mod weight;

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use bind::{Binding, Scope};

use crate::error::{OnnxError, OnnxErrorKind, Result, shorten};
use crate::{Attribute, AttributeValue, Function, Graph, Model, Node};

/// Nodes and calls that inlining may handle. The largest language models have some 50,000 nodes.
const MAX_NODES: usize = 500_000;

/// Bytes that inlined nodes may take, text and constants included.
const MAX_BYTES: usize = 256 << 20;

/// Functions may call each other this deep; exporters make one level per nested module, some twenty.
const MAX_CALLS: usize = 100;

/// Subgraphs may nest this deep after inlining, which is as deep as a file that can be read may nest them.
const MAX_NESTING: usize = 32;

/// Replaces every call of a model-local function by the function's body, and drops the functions.
///
/// A node from a body that imports another operator set version than the model carries it in
/// [`Node::opset`]. After an error the model is no longer whole and should be read again.
pub fn inline_functions(model: &mut Model<'_>) -> Result<()> {
    if model.functions.is_empty() {
        return Ok(());
    }
    let functions = std::mem::take(&mut model.functions);
    let model_opsets: HashMap<&str, i64> =
        model.opset_imports.iter().map(|import| (standard(&import.domain), import.version)).collect();
    let mut callees = Vec::with_capacity(functions.len());
    for (id, function) in functions.iter().enumerate() {
        callees.push(Callee::new(id, function, &model_opsets)?);
    }
    callees.sort_by(|a, b| a.key().cmp(&b.key()));
    if let Some([twice, _]) = callees.array_windows().find(|[a, b]| a.key() == b.key()) {
        return Err(bad_function(twice.function, "is defined twice"));
    }
    let mut inliner = Inliner {
        callees: &callees,
        used: HashSet::new(),
        counter: 0,
        n_nodes: 0,
        n_bytes: 0,
        active: Vec::new(),
        nesting: 0,
    };
    inliner.collect_names(&model.graph);
    inliner.graph(&mut model.graph)
}

/// The standard operators' domain has two spellings.
fn standard(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

fn bad_function(function: &Function<'_>, what: &str) -> OnnxError {
    let text = format!(
        "the function {:?} of domain {:?} {what}",
        shorten(&function.name),
        shorten(&function.domain)
    );
    OnnxError::new(OnnxErrorKind::BadFunction, text).inside("functions")
}

/// A function, checked once, and what its calls look up.
#[derive(Debug)]
struct Callee<'s, 'a> {
    id: usize,
    function: &'s Function<'a>,
    /// Versions that the body imports, by domain, where they differ from the model's.
    opsets: HashMap<&'s str, i64>,
    defaults: HashMap<&'s str, &'s AttributeValue<'a>>,
}

impl<'s, 'a> Callee<'s, 'a> {
    fn new(id: usize, function: &'s Function<'a>, model_opsets: &HashMap<&str, i64>) -> Result<Self> {
        let imports = function.opset_imports.iter().map(|import| (standard(&import.domain), import.version));
        let opsets = imports.filter(|(domain, version)| model_opsets.get(domain) != Some(version)).collect();
        let mut defaults = HashMap::with_capacity(function.attribute_protos.len());
        for default in &function.attribute_protos {
            match default.value {
                AttributeValue::Graph(_) | AttributeValue::Graphs(_) | AttributeValue::Reference(_) => {
                    let what =
                        format!("has a default for {:?} that is not a constant", shorten(&default.name));
                    return Err(bad_function(function, &what));
                }
                _ => defaults.insert(default.name.as_ref(), &default.value),
            };
        }
        Ok(Self { id, function, opsets, defaults })
    }

    /// What a call must match.
    fn key(&self) -> (&str, &str, &str) {
        (&self.function.name, standard(&self.function.domain), &self.function.overload)
    }
}

#[derive(Debug)]
struct Inliner<'s, 'a> {
    /// Sorted by key.
    callees: &'s [Callee<'s, 'a>],
    /// Hashes of all value names in use. Two names with one hash merely cost a suffix.
    used: HashSet<u64>,
    counter: usize,
    n_nodes: usize,
    n_bytes: usize,
    /// Functions being inlined, outermost first.
    active: Vec<usize>,
    nesting: usize,
}

impl<'s, 'a> Inliner<'s, 'a> {
    fn collect_names(&mut self, graph: &Graph<'a>) {
        let values = graph.inputs.iter().chain(&graph.outputs).map(|value| value.name.as_ref());
        let constants = graph.initializers.iter().map(|tensor| tensor.name.as_ref());
        let sparse = graph.sparse_initializers.iter().map(|sparse| sparse.values.name.as_ref());
        let names = values.chain(constants).chain(sparse);
        let in_nodes = graph.nodes.iter().flat_map(|node| node.inputs.iter().chain(&node.outputs));
        self.used.extend(names.chain(in_nodes.map(AsRef::as_ref)).map(hash));
        for attribute in graph.nodes.iter().flat_map(|node| &node.attributes) {
            graphs(attribute).iter().for_each(|graph| self.collect_names(graph));
        }
    }

    /// A value name that nothing else has.
    fn fresh(&mut self, wanted: String) -> Result<String> {
        let mut name = wanted;
        if !self.used.insert(hash(&name)) {
            let stem = name.len();
            loop {
                self.counter += 1;
                name.truncate(stem);
                name.push_str(&format!("_{}", self.counter));
                if self.used.insert(hash(&name)) {
                    break;
                }
            }
        }
        self.charge(0, name.len() + size_of::<(String, u64)>())?;
        Ok(name)
    }

    fn charge(&mut self, nodes: usize, bytes: usize) -> Result<()> {
        self.n_nodes += nodes;
        self.n_bytes = self.n_bytes.saturating_add(bytes);
        let what = if self.n_nodes > MAX_NODES {
            format!("inlining the model's functions makes more than {MAX_NODES} nodes")
        } else if self.n_bytes > MAX_BYTES {
            format!("inlining the model's functions takes more than {} MiB", MAX_BYTES >> 20)
        } else {
            return Ok(());
        };
        Err(OnnxError::new(OnnxErrorKind::FunctionExpansion, what).inside("functions"))
    }

    fn graph(&mut self, graph: &mut Graph<'a>) -> Result<()> {
        let nodes = std::mem::take(&mut graph.nodes);
        let mut out = Vec::with_capacity(nodes.len());
        for node in nodes {
            self.node(node, &mut out)?;
        }
        graph.nodes = out;
        Ok(())
    }

    /// Adds a node whose names are final: itself, or what it calls.
    fn node(&mut self, mut node: Node<'a>, out: &mut Vec<Node<'a>>) -> Result<()> {
        for attribute in &mut node.attributes {
            for graph in graphs_mut(attribute) {
                if self.nesting == MAX_NESTING {
                    let what = format!("subgraphs nest deeper than {MAX_NESTING} levels");
                    return Err(OnnxError::new(OnnxErrorKind::TooDeep, what).in_node(&node.name));
                }
                self.nesting += 1;
                self.graph(graph)?;
                self.nesting -= 1;
            }
        }
        let key = (node.op_type.as_ref(), standard(&node.domain), node.overload.as_ref());
        let callees = self.callees;
        match callees.binary_search_by(|callee| callee.key().cmp(&key)).ok().map(|place| &callees[place]) {
            Some(callee) => self.call(callee, &node, out).map_err(|error| error.in_node(&node.name)),
            None => {
                out.push(node);
                Ok(())
            }
        }
    }

    fn call(&mut self, callee: &'s Callee<'s, 'a>, node: &Node<'a>, out: &mut Vec<Node<'a>>) -> Result<()> {
        let function = callee.function;
        if self.active.contains(&callee.id) {
            let name = shorten(&function.name);
            let what = format!("the function {name:?} calls itself, directly or through others");
            return Err(OnnxError::new(OnnxErrorKind::FunctionRecursion, what).inside("functions"));
        }
        if self.active.len() == MAX_CALLS {
            let what = format!("functions call each other deeper than {MAX_CALLS} levels");
            return Err(OnnxError::new(OnnxErrorKind::TooDeep, what).inside("functions"));
        }
        self.charge(1, 0)?;
        let binding = Binding::new(callee, node, self)?;
        let scope = self.function_scope(&binding, node, out)?;
        self.active.push(callee.id);
        for inner in &function.nodes {
            self.charge(0, weight::node(inner))?;
            let bound = self.bind_node(inner, &binding, &scope)?;
            self.node(bound, out)?;
        }
        self.active.pop();
        Ok(())
    }

    /// Names of the body's values: the call's for inputs and outputs, new ones for the rest.
    fn function_scope<'c>(
        &mut self,
        binding: &Binding<'c, 'a>,
        node: &Node<'a>,
        out: &mut Vec<Node<'a>>,
    ) -> Result<Scope<'c, 'a>> {
        let function = binding.callee.function;
        if node.inputs.len() > function.inputs.len() || node.outputs.len() > function.outputs.len() {
            let what = format!(
                "takes {} inputs and gives {} outputs, but is called with {} and {}",
                function.inputs.len(),
                function.outputs.len(),
                node.inputs.len(),
                node.outputs.len(),
            );
            return Err(bad_function(function, &what));
        }
        let mut scope = Scope::default();
        for (nth, formal) in function.inputs.iter().enumerate() {
            let actual = node.inputs.get(nth).cloned().unwrap_or_default();
            self.charge(0, actual.len() + weight::NAME)?;
            if scope.names.insert(formal, actual).is_some() {
                return Err(bad_function(function, &format!("names its input {:?} twice", shorten(formal))));
            }
        }
        let mut results = HashMap::with_capacity(function.outputs.len());
        for (nth, formal) in function.outputs.iter().enumerate() {
            let actual = node.outputs.get(nth).filter(|name| !name.is_empty());
            self.charge(0, weight::NAME)?;
            if results.insert(formal.as_ref(), actual).is_some() {
                return Err(bad_function(function, &format!("names its output {:?} twice", shorten(formal))));
            }
            // An input handed through as an output.
            if let (Some(actual), Some(input)) = (actual, scope.names.get(formal.as_ref())) {
                self.charge(1, size_of::<Node<'_>>() + actual.len() + input.len())?;
                out.push(Node {
                    op_type: "Identity".into(),
                    inputs: vec![input.clone()],
                    outputs: vec![actual.clone()],
                    ..Node::default()
                });
            }
        }
        for name in function.nodes.iter().flat_map(|node| &node.outputs).filter(|name| !name.is_empty()) {
            let new = match results.get(name.as_ref()) {
                Some(Some(actual)) => (*actual).clone(),
                _ => self.fresh(binding.prefixed(name))?.into(),
            };
            self.charge(0, new.len() + weight::NAME)?;
            if scope.names.insert(name, new).is_some() {
                return Err(bad_function(function, &format!("defines {:?} twice", shorten(name))));
            }
        }
        match function.outputs.iter().find(|name| !scope.names.contains_key(name.as_ref())) {
            Some(name) => {
                Err(bad_function(function, &format!("never computes its output {:?}", shorten(name))))
            }
            None => Ok(scope),
        }
    }
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

fn graphs<'g, 'a>(attribute: &'g Attribute<'a>) -> &'g [Graph<'a>] {
    match &attribute.value {
        AttributeValue::Graph(graph) => std::slice::from_ref(graph),
        AttributeValue::Graphs(graphs) => graphs,
        _ => &[],
    }
}

fn graphs_mut<'g, 'a>(attribute: &'g mut Attribute<'a>) -> &'g mut [Graph<'a>] {
    match &mut attribute.value {
        AttributeValue::Graph(graph) => std::slice::from_mut(graph),
        AttributeValue::Graphs(graphs) => graphs,
        _ => &mut [],
    }
}
