//! `Importer`: scopes of names, one per nested graph, and the walk over the nodes.

use std::collections::{BTreeMap, HashMap, HashSet};

use planish_ir::{Graph, ValueId};
use planish_onnx::{AttributeValue, Node};
use planish_op::ValueType;
use planish_op::infer::Content;
use planish_tensor::Dim;

use crate::adapt;
use crate::error::{ImportError, ImportErrorKind, UnsupportedNode};
use crate::node::{NodeImport, describe};
use crate::order::runnable_order;
use crate::tensors::Weights;
use crate::types::value_type;

/// One graph under construction.
struct Frame<'m> {
    graph: Graph,
    names: HashMap<String, ValueId>,
    /// Types that the file gives for values in between and outputs.
    declared: HashMap<&'m str, &'m planish_onnx::Type<'m>>,
    /// Values of the graph outside that this one reads, in the order of its trailing inputs.
    captured: Vec<ValueId>,
    /// How many branches are being imported in place; their names may meet those of other branches.
    n_inlined: usize,
}

/// The state of one import.
pub(crate) struct Importer<'m> {
    pub(crate) weights: Weights,
    opsets: BTreeMap<&'m str, i64>,
    /// The innermost graph is last.
    frames: Vec<Frame<'m>>,
}

/// The domain as it is looked up: the standard one has two spellings.
pub(crate) fn domain_key<'a>(domain: &'a str) -> &'a str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// The newest version of the standard operators that the importer has rules for.
pub const NEWEST_OPSET: i64 = 27;
/// The oldest that is fully covered; most models of older ones import too.
pub const OLDEST_OPSET: i64 = 7;

impl<'m> Importer<'m> {
    pub(crate) fn new(model: &'m planish_onnx::Model<'m>, weights: Weights) -> Result<Self, ImportError> {
        let mut opsets = BTreeMap::new();
        for import in &model.opset_imports {
            opsets.insert(domain_key(&import.domain), import.version);
        }
        if let Some(&version) = opsets.get("") {
            if version > NEWEST_OPSET {
                return Err(ImportError::invalid(format!(
                    "the model uses opset {version}, known are {OLDEST_OPSET} to {NEWEST_OPSET}; \
                     try exporting with opset_version={NEWEST_OPSET}"
                )));
            }
            if version < 1 {
                return Err(ImportError::invalid(format!(
                    "the model says opset {version}, which does not exist"
                )));
            }
        }
        Ok(Importer { weights, opsets, frames: Vec::new() })
    }

    /// The version of the node's operator set; what is not imported is taken as the oldest.
    pub(crate) fn opset_of(&self, node: &Node<'_>) -> i64 {
        node.opset.unwrap_or_else(|| self.opsets.get(domain_key(&node.domain)).copied().unwrap_or(1))
    }

    /// The graph under construction.
    pub(crate) fn graph(&mut self) -> &mut Graph {
        &mut self.frame().graph
    }

    fn frame(&mut self) -> &mut Frame<'m> {
        self.frames.last_mut().expect("a frame is pushed before nodes are imported")
    }

    /// The type that the file declares for a value of the innermost graph.
    pub(crate) fn declared_type(&mut self, name: &str) -> Option<ValueType> {
        let frame = self.frame();
        let ty = *frame.declared.get(name)?;
        value_type(ty, &mut |_| frame.graph.fresh_dim("any")).ok()
    }

    pub(crate) fn define(&mut self, name: &str, id: ValueId) {
        self.frame().names.insert(name.to_string(), id);
    }

    /// A name that no value of the innermost graph has.
    pub(crate) fn unique_name(&mut self, base: &str) -> String {
        let graph = &self.frame().graph;
        let free = |name: &String| graph.find(name).is_none();
        let base = base.to_string();
        if free(&base) {
            return base;
        }
        // Values are finite in number, so some suffix is free.
        (2..).map(|n: usize| format!("{base}.{n}")).find(free).unwrap_or(base)
    }

    /// The name that a node's output gets in the graph: its own, but for branches imported in place.
    pub(crate) fn output_name(&mut self, name: &str) -> String {
        if self.frame().n_inlined > 0 { self.unique_name(name) } else { name.to_string() }
    }

    /// The value called `name`, captured from outer graphs if need be.
    pub(crate) fn lookup(&mut self, name: &str) -> Result<ValueId, ImportError> {
        let innermost = self.frames.len() - 1;
        self.lookup_at(name, innermost)?
            .ok_or_else(|| ImportError::new(ImportErrorKind::UndefinedValue { name: name.to_string() }))
    }

    fn lookup_at(&mut self, name: &str, depth: usize) -> Result<Option<ValueId>, ImportError> {
        if let Some(&id) = self.frames[depth].names.get(name) {
            return Ok(Some(id));
        }
        if depth == 0 {
            return Ok(None);
        }
        let Some(outer_id) = self.lookup_at(name, depth - 1)? else { return Ok(None) };
        let outer = self.frames[depth - 1].graph.value(outer_id).clone();
        let frame = &mut self.frames[depth];
        let id = match (&outer.content, outer.producer) {
            // Constants are shared memory: a body holds its own reference instead of capturing.
            (Some(Content::Tensor(tensor)), None) => frame.graph.add_constant(name, tensor.clone())?,
            _ => {
                frame.captured.push(outer_id);
                frame.graph.add_known_input(name, outer.ty, outer.content)?
            }
        };
        frame.names.insert(name.to_string(), id);
        Ok(Some(id))
    }

    /// Imports the outermost graph.
    pub(crate) fn model(mut self, graph: &'m planish_onnx::Graph<'m>) -> Result<Graph, ImportError> {
        let unsupported = self.unsupported_nodes(graph);
        if !unsupported.is_empty() {
            return Err(ImportError::new(ImportErrorKind::Unsupported(unsupported)));
        }
        self.push_frame(Graph::new(&graph.name), graph)?;
        let constants: HashSet<&str> = constant_names(graph).collect();
        for input in graph.inputs.iter().filter(|input| !constants.contains(input.name.as_ref())) {
            let name = input.name.as_ref();
            let ty = input.ty.as_ref().ok_or_else(|| {
                ImportError::invalid(format!(
                    "the graph input `{name}` has no type; exporters always write one"
                ))
            })?;
            // A dimension without a name gets one from the input, so that shapes can be given for it.
            let ty = value_type(ty, &mut |axis| Dim::symbol(&format!("{name}.{axis}")))
                .map_err(|error| error.at(|| format!("graph input `{name}`")))?;
            let id = self.graph().add_input(name, ty)?;
            self.define(name, id);
        }
        self.nodes(graph)?;
        self.outputs(graph)?;
        Ok(self.frames.pop().expect("the frame pushed above").graph)
    }

    /// Imports a body whose formal inputs have these types. Gives the graph and the captured outer values.
    pub(crate) fn body(
        &mut self,
        body: &'m planish_onnx::Graph<'m>,
        formals: Vec<ValueType>,
        numbered_after: Option<&Graph>,
    ) -> Result<(Graph, Vec<ValueId>), ImportError> {
        let constants: HashSet<&str> = constant_names(body).collect();
        let inputs: Vec<_> =
            body.inputs.iter().filter(|input| !constants.contains(input.name.as_ref())).collect();
        if inputs.len() != formals.len() {
            return Err(ImportError::invalid(format!(
                "the body `{}` takes {} inputs, {} are given",
                body.name,
                inputs.len(),
                formals.len()
            )));
        }
        let outer = numbered_after.unwrap_or(&self.frames[self.frames.len() - 1].graph);
        let graph = Graph::body(&body.name, outer);
        self.push_frame(graph, body)?;
        for (input, ty) in inputs.into_iter().zip(formals) {
            let id = self.graph().add_input(&input.name, ty)?;
            self.define(&input.name, id);
        }
        self.nodes(body)?;
        self.outputs(body)?;
        let frame = self.frames.pop().expect("the frame pushed above");
        Ok((frame.graph, frame.captured))
    }

    /// The declared type of a body's input, dimensions without a name made fresh; `None` if not declared.
    pub(crate) fn formal_type(&mut self, input: &planish_onnx::ValueInfo<'_>) -> Option<ValueType> {
        let graph = self.graph();
        value_type(input.ty.as_ref()?, &mut |_| graph.fresh_dim("any")).ok()
    }

    /// Imports the nodes of a branch that is known to be taken in place of its If, and gives its outputs.
    pub(crate) fn inline_branch(
        &mut self,
        branch: &'m planish_onnx::Graph<'m>,
    ) -> Result<Vec<ValueId>, ImportError> {
        if branch.inputs.iter().any(|input| constant_names(branch).all(|name| name != input.name)) {
            return Err(ImportError::invalid(format!("the branch `{}` must not take inputs", branch.name)));
        }
        let (names, declared) = (self.frame().names.clone(), self.frame().declared.clone());
        self.frame().declared.extend(declared_types(branch));
        self.frame().n_inlined += 1;
        self.initializers(branch)?;
        self.nodes(branch)?;
        let mut outputs = Vec::with_capacity(branch.outputs.len());
        for output in &branch.outputs {
            outputs.push(self.lookup(&output.name)?);
        }
        // The branch's names end with it.
        let frame = self.frame();
        (frame.names, frame.declared) = (names, declared);
        frame.n_inlined -= 1;
        Ok(outputs)
    }

    fn push_frame(&mut self, graph: Graph, onnx: &'m planish_onnx::Graph<'m>) -> Result<(), ImportError> {
        let declared = declared_types(onnx).collect();
        self.frames.push(Frame {
            graph,
            names: HashMap::new(),
            declared,
            captured: Vec::new(),
            n_inlined: 0,
        });
        self.initializers(onnx)
    }

    fn initializers(&mut self, onnx: &'m planish_onnx::Graph<'m>) -> Result<(), ImportError> {
        for tensor in &onnx.initializers {
            let place = || format!("initializer `{}`", tensor.name);
            let value = self.weights.tensor(tensor).map_err(|error| error.at(place))?;
            self.initializer(&tensor.name, value)?;
        }
        for sparse in &onnx.sparse_initializers {
            let place = || format!("sparse initializer `{}`", sparse.values.name);
            let value = self.weights.sparse(sparse).map_err(|error| error.at(place))?;
            self.initializer(&sparse.values.name, value)?;
        }
        Ok(())
    }

    fn initializer(&mut self, name: &str, value: planish_tensor::Tensor) -> Result<(), ImportError> {
        if name.is_empty() {
            return Err(ImportError::invalid("an initializer has no name"));
        }
        let graph_name = self.output_name(name);
        let id = self.graph().add_constant(&graph_name, value)?;
        self.define(name, id);
        Ok(())
    }

    fn nodes(&mut self, graph: &'m planish_onnx::Graph<'m>) -> Result<(), ImportError> {
        let order = {
            let frames = &self.frames;
            let is_known = |name: &str| frames.iter().any(|frame| frame.names.contains_key(name));
            runnable_order(graph, &is_known)?
        };
        for idx in order {
            let node = &graph.nodes[idx];
            self.node(node).map_err(|error| error.at(|| describe(node)))?;
        }
        Ok(())
    }

    fn node(&mut self, node: &'m Node<'m>) -> Result<(), ImportError> {
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for name in &node.inputs {
            inputs.push(if name.is_empty() { None } else { Some(self.lookup(name)?) });
        }
        let opset = self.opset_of(node);
        adapt::import(NodeImport { importer: self, node, opset, inputs })
    }

    fn outputs(&mut self, graph: &'m planish_onnx::Graph<'m>) -> Result<(), ImportError> {
        let mut ids = Vec::with_capacity(graph.outputs.len());
        for output in &graph.outputs {
            let place = || format!("graph output `{}`", output.name);
            ids.push(self.lookup(&output.name).map_err(|error| error.at(place))?);
        }
        self.graph().set_outputs(ids);
        Ok(())
    }

    /// Every node, nested ones included, that no rule covers.
    fn unsupported_nodes(&self, graph: &planish_onnx::Graph<'_>) -> Vec<UnsupportedNode> {
        let mut list = Vec::new();
        for node in &graph.nodes {
            let (domain, opset) = (domain_key(&node.domain), self.opset_of(node));
            if let Err(reason) = adapt::supports(domain, &node.op_type, opset) {
                let op_type = node.op_type.to_string();
                list.push(UnsupportedNode {
                    domain: domain.into(),
                    op_type,
                    opset,
                    node: describe(node),
                    reason,
                });
            }
            for attribute in &node.attributes {
                match &attribute.value {
                    AttributeValue::Graph(body) => list.extend(self.unsupported_nodes(body)),
                    AttributeValue::Graphs(bodies) => {
                        list.extend(bodies.iter().flat_map(|body| self.unsupported_nodes(body)));
                    }
                    _ => {}
                }
            }
        }
        list
    }
}

/// Types that the file gives for values in between and outputs.
fn declared_types<'m>(
    graph: &'m planish_onnx::Graph<'m>,
) -> impl Iterator<Item = (&'m str, &'m planish_onnx::Type<'m>)> {
    let infos = graph.value_infos.iter().chain(&graph.outputs);
    infos.filter_map(|info| Some((info.name.as_ref(), info.ty.as_ref()?)))
}

fn constant_names<'g>(graph: &'g planish_onnx::Graph<'_>) -> impl Iterator<Item = &'g str> {
    let dense = graph.initializers.iter().map(|tensor| tensor.name.as_ref());
    dense.chain(graph.sparse_initializers.iter().map(|sparse| sparse.values.name.as_ref()))
}
