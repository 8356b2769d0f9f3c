//! `Importer`: scopes of names, one per nested graph, and the walk over the nodes.

use std::collections::{BTreeMap, HashSet};

use planish_ir::{Graph, ValueId};
use planish_onnx::{AttributeValue, Node};
use planish_op::ValueType;
use planish_op::infer::Content;
use planish_tensor::Dim;

use crate::adapt;
use crate::error::{ImportError, ImportErrorKind, UnsupportedNode, shorten};
use crate::frame::Frame;
use crate::node::{NodeImport, describe};
use crate::order::{FreeNames, producers, runnable_order};
use crate::tensors::Weights;
use crate::types::value_type;

/// The state of one import.
pub(crate) struct Importer<'m> {
    pub(crate) weights: Weights<'m>,
    opsets: BTreeMap<&'m str, i64>,
    free_names: FreeNames<'m>,
    /// The innermost graph is last.
    frames: Vec<Frame<'m>>,
    notes: Vec<String>,
}

/// What a formal input of a body is.
#[derive(Clone, Debug)]
pub(crate) enum Formal {
    /// An input of this type.
    Own(ValueType),
    /// A value of the graph around, the same in every step: no input, but captured.
    Outer(ValueId),
}

/// The domain as it is looked up: the standard one has two spellings.
pub(crate) fn domain_key(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// The newest version of the standard operators that the importer has rules for.
pub const NEWEST_OPSET: i64 = 27;
/// The oldest that is fully covered; most models of older ones import too.
pub const OLDEST_OPSET: i64 = 7;

fn check_opset(version: i64) -> Result<(), ImportError> {
    if (1..=NEWEST_OPSET).contains(&version) {
        return Ok(());
    }
    Err(ImportError::new(ImportErrorKind::Opset { version }))
}

impl<'m> Importer<'m> {
    pub(crate) fn new(model: &'m planish_onnx::Model<'m>, weights: Weights<'m>) -> Result<Self, ImportError> {
        let mut opsets = BTreeMap::new();
        for import in &model.opset_imports {
            let domain = domain_key(&import.domain);
            if opsets.insert(domain, import.version).is_some_and(|other| other != import.version) {
                let domain = if domain.is_empty() { "ai.onnx" } else { domain };
                let detail = format!("the domain `{}` is imported in two versions", shorten(domain));
                return Err(ImportError::invalid(detail));
            }
        }
        if let Some(&version) = opsets.get("") {
            check_opset(version)?;
        }
        Ok(Importer {
            weights,
            opsets,
            free_names: FreeNames::new(&model.graph),
            frames: Vec::new(),
            notes: Vec::new(),
        })
    }

    /// The version of the node's operator set; what is not imported is taken as the oldest.
    pub(crate) fn opset_of(&self, node: &Node<'_>) -> i64 {
        node.opset.unwrap_or_else(|| self.opsets.get(domain_key(&node.domain)).copied().unwrap_or(1))
    }

    /// The graph under construction.
    pub(crate) fn graph(&mut self) -> &mut Graph {
        &mut self.frame().graph
    }

    /// The innermost graph with its names.
    pub(crate) fn frame(&mut self) -> &mut Frame<'m> {
        self.frames.last_mut().expect("a frame is pushed before nodes are imported")
    }

    /// The value called `name`, captured from outer graphs if need be.
    pub(crate) fn lookup(&mut self, name: &'m str) -> Result<ValueId, ImportError> {
        let innermost = self.frames.len() - 1;
        self.lookup_at(name, innermost)?
            .ok_or_else(|| ImportError::new(ImportErrorKind::UndefinedValue { name: name.to_string() }))
    }

    fn lookup_at(&mut self, name: &'m str, depth: usize) -> Result<Option<ValueId>, ImportError> {
        if let Some(id) = self.frames[depth].find(name) {
            return Ok(Some(id));
        }
        if depth == 0 {
            return Ok(None);
        }
        let Some(outer_id) = self.lookup_at(name, depth - 1)? else { return Ok(None) };
        let own_name = self.frames[depth].unique_name(name);
        let id = self.capture(outer_id, own_name, depth)?;
        self.frames[depth].define_captured(name, id);
        Ok(Some(id))
    }

    /// Makes a value of the graph around the one at `depth` known in it.
    fn capture(&mut self, outer_id: ValueId, name: String, depth: usize) -> Result<ValueId, ImportError> {
        let outer = self.frames[depth - 1].graph.value(outer_id).clone();
        let frame = &mut self.frames[depth];
        Ok(match (&outer.content, outer.producer) {
            // Constants are shared memory: a body holds its own reference instead of capturing.
            (Some(Content::Tensor(tensor)), None) => frame.graph.add_constant(&name, tensor.clone())?,
            _ => {
                let id = frame.graph.add_known_input(&name, outer.ty, outer.content)?;
                frame.captured.push(outer_id);
                id
            }
        })
    }

    /// How many graphs the one under construction lies in.
    pub(crate) fn depth(&self) -> usize {
        self.frames.len()
    }

    /// Keeps a line for whoever uses the model; a body that is imported again says it once.
    pub(crate) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Imports the outermost graph, and gives what there is to say of it.
    pub(crate) fn model(
        mut self,
        graph: &'m planish_onnx::Graph<'m>,
    ) -> Result<(Graph, Vec<String>), ImportError> {
        let unsupported = self.unsupported_nodes(graph);
        if !unsupported.is_empty() {
            return Err(ImportError::new(ImportErrorKind::Unsupported(unsupported)));
        }
        self.push_frame(Graph::new(&graph.name), graph)?;
        let constants: HashSet<&str> = constant_names(graph).collect();
        for input in graph.inputs.iter().filter(|input| !constants.contains(input.name.as_ref())) {
            let name = input.name.as_ref();
            let ty = input.ty.as_ref().ok_or_else(|| {
                ImportError::invalid(format!("the graph input `{}` has no type", shorten(name)))
            })?;
            // A dimension without a name gets one from the input, so that shapes can be given for it.
            let ty = value_type(ty, &mut |axis| Dim::symbol(&format!("{name}.{axis}")))
                .map_err(|error| error.at(|| format!("graph input `{}`", shorten(name))))?;
            let id = self.graph().add_input(name, ty)?;
            self.frame().define(name, id);
        }
        self.nodes(graph)?;
        self.outputs(graph)?;
        Ok((self.frames.pop().expect("the frame pushed above").graph, self.notes))
    }

    /// Imports a body with these formal inputs. Gives the graph and the captured outer values. After an error
    /// the importer is as before, and may try again with other types.
    pub(crate) fn body(
        &mut self,
        body: &'m planish_onnx::Graph<'m>,
        formals: &[Formal],
        numbered_after: Option<&Graph>,
    ) -> Result<(Graph, Vec<ValueId>), ImportError> {
        let depth = self.frames.len();
        let imported = self.try_body(body, formals, numbered_after);
        self.frames.truncate(depth);
        imported
    }

    fn try_body(
        &mut self,
        body: &'m planish_onnx::Graph<'m>,
        formals: &[Formal],
        numbered_after: Option<&Graph>,
    ) -> Result<(Graph, Vec<ValueId>), ImportError> {
        let constants: HashSet<&str> = constant_names(body).collect();
        let inputs: Vec<_> =
            body.inputs.iter().filter(|input| !constants.contains(input.name.as_ref())).collect();
        if inputs.len() != formals.len() {
            return Err(ImportError::invalid(format!(
                "the body `{}` takes {} inputs, {} are given",
                shorten(&body.name),
                inputs.len(),
                formals.len()
            )));
        }
        let outer = numbered_after.unwrap_or(&self.frames[self.frames.len() - 1].graph);
        let graph = Graph::body(&body.name, outer);
        self.push_frame(graph, body)?;
        // Those of the loop itself come first; what is captured follows.
        for (input, formal) in inputs.iter().zip(formals) {
            if let Formal::Own(ty) = formal {
                let id = self.graph().add_input(&input.name, ty.clone())?;
                self.frame().define(&input.name, id);
            }
        }
        let innermost = self.frames.len() - 1;
        for (input, formal) in inputs.iter().zip(formals) {
            if let Formal::Outer(outer) = *formal {
                let id = self.capture(outer, input.name.to_string(), innermost)?;
                self.frame().define(&input.name, id);
            }
        }
        self.nodes(body)?;
        self.outputs(body)?;
        let frame = self.frames.pop().expect("the frame pushed above");
        Ok((frame.graph, frame.captured))
    }

    /// Imports the nodes of a branch that is known to be taken in place of its If, and gives its outputs.
    pub(crate) fn inline_branch(
        &mut self,
        branch: &'m planish_onnx::Graph<'m>,
    ) -> Result<Vec<ValueId>, ImportError> {
        let constants: HashSet<&str> = constant_names(branch).collect();
        if branch.inputs.iter().any(|input| !constants.contains(input.name.as_ref())) {
            let detail = format!("the branch `{}` must not take inputs", shorten(&branch.name));
            return Err(ImportError::invalid(detail));
        }
        self.frame().enter_branch(branch);
        self.initializers(branch)?;
        self.nodes(branch)?;
        let mut outputs = Vec::with_capacity(branch.outputs.len());
        for output in &branch.outputs {
            outputs.push(self.lookup(&output.name)?);
        }
        self.frame().leave_branch();
        Ok(outputs)
    }

    fn push_frame(&mut self, graph: Graph, onnx: &'m planish_onnx::Graph<'m>) -> Result<(), ImportError> {
        self.frames.push(Frame::new(graph, onnx));
        self.initializers(onnx)
    }

    fn initializers(&mut self, onnx: &'m planish_onnx::Graph<'m>) -> Result<(), ImportError> {
        for tensor in &onnx.initializers {
            let place = || format!("initializer `{}`", shorten(&tensor.name));
            let value = self.weights.tensor(tensor).map_err(|error| error.at(place))?;
            self.initializer(&tensor.name, value)?;
        }
        for sparse in &onnx.sparse_initializers {
            let place = || format!("sparse initializer `{}`", shorten(&sparse.values.name));
            let value = self.weights.sparse(sparse).map_err(|error| error.at(place))?;
            self.initializer(&sparse.values.name, value)?;
        }
        Ok(())
    }

    fn initializer(&mut self, name: &'m str, value: planish_tensor::Tensor) -> Result<(), ImportError> {
        if name.is_empty() {
            return Err(ImportError::invalid("an initializer has no name"));
        }
        let frame = self.frame();
        let own_name = frame.own_name(name);
        let id = frame.graph.add_constant(&own_name, value)?;
        frame.define(name, id);
        Ok(())
    }

    fn nodes(&mut self, graph: &'m planish_onnx::Graph<'m>) -> Result<(), ImportError> {
        let producers = producers(graph)?;
        let is_known = |name: &str| self.frames.iter().any(|frame| frame.find(name).is_some());
        let order = runnable_order(graph, &producers, &self.free_names, &is_known)?;
        if !self.frame().is_in_branch() {
            self.frame().producers = producers;
        }
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
        if domain_key(&node.domain).is_empty() {
            // A function may import another version than the model.
            check_opset(opset)?;
        }
        adapt::import(NodeImport { importer: self, node, opset, inputs })
    }

    fn outputs(&mut self, graph: &'m planish_onnx::Graph<'m>) -> Result<(), ImportError> {
        let mut ids = Vec::with_capacity(graph.outputs.len());
        for output in &graph.outputs {
            let place = || format!("graph output `{}`", shorten(&output.name));
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

fn constant_names<'g>(graph: &'g planish_onnx::Graph<'_>) -> impl Iterator<Item = &'g str> {
    let dense = graph.initializers.iter().map(|tensor| tensor.name.as_ref());
    dense.chain(graph.sparse_initializers.iter().map(|sparse| sparse.values.name.as_ref()))
}
