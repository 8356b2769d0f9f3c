//! Graphs back to ONNX: the oldest opset from 21 on that has every operator, constants as initializers, bodies
//! that read what they capture by name.

mod opset;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use planish_ir::{Graph, Node, ValueId};
use planish_onnx::{
    Attribute as OnnxAttribute, AttributeValue, Dimension, Model, OpsetImport, Type, ValueInfo,
};
use planish_op::{Attribute, Op, ResizeMode, ResizeNearest, ValueType};
use planish_tensor::{DType, Dim, Tensor};

use crate::error::{ImportError, ImportErrorKind};
use crate::types::data_type;

/// The bytes of an ONNX file that means what the graph means, under the same names.
///
/// Values in bodies that would hide others get new names. What ONNX cannot say is refused, and so is a model of
/// more than 2 GiB, which no single ONNX file can be.
pub fn export(graph: &Graph) -> Result<Vec<u8>, ImportError> {
    let mut exporter = Exporter::default();
    let onnx = exporter.graph(graph, HashMap::new(), Role::Model)?;
    let n_bytes: usize = exporter.n_bytes(&onnx);
    if n_bytes > MAX_FILE {
        let detail = format!("the constants take {n_bytes} bytes, an ONNX file holds at most {MAX_FILE}");
        let error = ImportError::new(ImportErrorKind::TooLarge { detail });
        return Err(error.hint("split the model, or share constants between its parts"));
    }
    let opset = opset::needed(graph);
    let import = |domain: &str, version| OpsetImport { domain: Cow::Owned(domain.to_string()), version };
    let mut opset_imports = vec![import("", opset)];
    let mut others: Vec<_> = exporter.domains.iter().collect();
    others.sort();
    opset_imports.extend(others.into_iter().map(|(domain, &version)| import(domain, version)));
    let model = Model {
        ir_version: opset::ir_version(opset),
        opset_imports,
        producer_name: "planish".into(),
        producer_version: env!("CARGO_PKG_VERSION").into(),
        graph: onnx,
        ..Model::default()
    };
    Ok(planish_onnx::write(&model))
}

/// Protobuf counts in 31 bits; a little is left for the graph itself.
const MAX_FILE: usize = (i32::MAX as usize) - (16 << 20);

/// What a graph is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Model,
    Body,
}

/// A constant by the memory that it shares, so that a body's reference to one outside is found again.
type Memory<'g> = (*const u8, usize, DType, &'g [usize]);

fn memory(tensor: &Tensor) -> Memory<'_> {
    (tensor.bytes().as_ptr(), tensor.bytes().len(), tensor.dtype(), tensor.shape())
}

#[derive(Default)]
struct Exporter<'g> {
    /// ONNX forbids that an inner name of a value hides an outer one.
    values: UniqueNames,
    /// ONNX Runtime refuses two nodes of one name, which what a rule made of one node have here.
    nodes: UniqueNames,
    /// The constants of the graphs around, the outermost first.
    scopes: Vec<HashMap<Memory<'g>, String>>,
    /// Versions of the operator sets besides the standard one.
    domains: HashMap<&'g str, i64>,
}

/// What the values of a graph are called in the file.
type Names = HashMap<ValueId, String>;

/// Names given so far, each with the last suffix that was put to it.
#[derive(Default)]
struct UniqueNames(HashMap<String, usize>);

impl UniqueNames {
    /// `wanted`, or that with a suffix if it is taken.
    fn give(&mut self, wanted: &str) -> String {
        let Some(mut suffix) = self.0.get(wanted).copied() else {
            self.0.insert(wanted.to_string(), 1);
            return wanted.to_string();
        };
        // The names are finite in number, so some suffix is free.
        let name = loop {
            suffix += 1;
            let name = format!("{wanted}.{suffix}");
            if !self.0.contains_key(&name) {
                break name;
            }
        };
        self.0.insert(wanted.to_string(), suffix);
        self.0.insert(name.clone(), 1);
        name
    }
}

impl<'g> Exporter<'g> {
    /// A name for a value; the empty one would mean that there is none.
    fn unique(&mut self, wanted: &str) -> String {
        self.values.give(if wanted.is_empty() { "value" } else { wanted })
    }

    /// `names` holds what the graph's captured inputs are called outside.
    fn graph(
        &mut self,
        graph: &'g Graph,
        mut names: Names,
        role: Role,
    ) -> Result<planish_onnx::Graph<'g>, ImportError> {
        // ONNX wants a name, whatever it is.
        let name = if graph.name.is_empty() { "graph" } else { &graph.name };
        let mut onnx = planish_onnx::Graph { name: name.into(), ..Default::default() };
        for &id in graph.inputs() {
            if names.contains_key(&id) {
                continue;
            }
            let value = graph.value(id);
            let name = self.unique(&value.name);
            onnx.inputs.push(value_info(name.clone(), Some(&value.ty)));
            names.insert(id, name);
        }
        self.scopes.push(HashMap::new());
        for (id, value) in graph.values() {
            let Some(tensor) = value.constant() else { continue };
            let outside = self.scopes.iter().rev().find_map(|scope| scope.get(&memory(tensor)));
            // Memory of no bytes is not an identity.
            if let Some(outer) = outside.filter(|_| role == Role::Body && !tensor.is_empty()) {
                names.insert(id, outer.clone());
                continue;
            }
            let name = self.unique(&value.name);
            onnx.initializers.push(constant(name.clone().into(), tensor));
            if let Some(scope) = self.scopes.last_mut() {
                scope.insert(memory(tensor), name.clone());
            }
            names.insert(id, name);
        }
        for (_, node) in graph.nodes() {
            self.node(graph, node, &mut names, &mut onnx)?;
        }
        self.outputs(graph, &names, role, &mut onnx)?;
        self.scopes.pop();
        Ok(onnx)
    }

    fn node(
        &mut self,
        graph: &'g Graph,
        node: &'g Node,
        names: &mut Names,
        onnx: &mut planish_onnx::Graph<'g>,
    ) -> Result<(), ImportError> {
        let at = |error: ImportError| error.at(|| format!("node `{}` ({})", node.name, node.op.name()));
        let (own, captured) = node.inputs.split_at(node.inputs.len().saturating_sub(node.n_captured));
        let mut attributes = attributes(graph, node).map_err(at)?;
        for (body, name) in node.bodies.iter().zip(body_names(&node.op)) {
            // The body's last inputs are what it captures; they go by their names outside.
            let formals = body.inputs().len().saturating_sub(captured.len());
            let mut inner = Names::new();
            for (&id, outer) in body.inputs()[formals..].iter().zip(captured) {
                if let Some(outer) = outer {
                    inner.insert(id, name_of(names, *outer)?);
                }
            }
            let body = self.graph(body, inner, Role::Body)?;
            attributes.push(OnnxAttribute::new(*name, AttributeValue::Graph(Box::new(body))));
        }
        let mut inputs = Vec::with_capacity(own.len());
        for id in own {
            inputs.push(id.map_or(Ok(String::new()), |id| name_of(names, id))?.into());
        }
        trim(&mut inputs);
        let mut outputs: Vec<Cow<'g, str>> = Vec::with_capacity(node.outputs.len());
        for id in &node.outputs {
            let name = id.map(|id| self.unique(&graph.value(id).name));
            if let (Some(id), Some(name)) = (*id, &name) {
                names.insert(id, name.clone());
                let ty = &graph.value(id).ty;
                if known(ty) {
                    onnx.value_infos.push(value_info(name.clone(), Some(ty)));
                }
            }
            outputs.push(name.unwrap_or_default().into());
        }
        // Split tells by its outputs how many parts there are.
        if !matches!(node.op, Op::Split(_)) {
            trim(&mut outputs);
        }
        let (domain, op_type) = self.spelling(&node.op);
        let name = if node.name.is_empty() { String::new() } else { self.nodes.give(&node.name) }.into();
        let (domain, op_type) = (Cow::Borrowed(domain), Cow::Borrowed(op_type));
        onnx.nodes.push(planish_onnx::Node {
            name,
            domain,
            op_type,
            inputs,
            outputs,
            attributes,
            ..Default::default()
        });
        Ok(())
    }

    /// Domain and name of the operator.
    fn spelling(&mut self, op: &'g Op) -> (&'g str, &'g str) {
        let (domain, version) = match op {
            Op::Custom(custom) => (custom.domain.as_str(), custom.version),
            Op::Inverse(_) | Op::CropAndResize(_) => ("com.microsoft", 1),
            Op::TreeEnsemble(_) => ("ai.onnx.ml", 5),
            _ => return ("", op.name()),
        };
        let known = self.domains.entry(domain).or_insert(version);
        *known = version.max(*known);
        (domain, op.name())
    }

    /// Outputs have names of their own, and a body must make them itself: where that is not so, an Identity
    /// stands between.
    fn outputs(
        &mut self,
        graph: &'g Graph,
        names: &Names,
        role: Role,
        onnx: &mut planish_onnx::Graph<'g>,
    ) -> Result<(), ImportError> {
        let mut seen = HashSet::new();
        for &id in graph.outputs() {
            let value = graph.value(id);
            let mut name = name_of(names, id)?;
            let is_made = value.producer.is_some();
            if !seen.insert(id) || (role == Role::Body && !is_made) {
                let own = self.unique(&value.name);
                onnx.nodes.push(planish_onnx::Node {
                    op_type: "Identity".into(),
                    inputs: vec![name.into()],
                    outputs: vec![own.clone().into()],
                    ..Default::default()
                });
                name = own;
            }
            onnx.outputs.push(value_info(name, Some(&value.ty)));
        }
        // What is an output has its type there.
        let outputs: HashSet<Cow<'_, str>> = onnx.outputs.iter().map(|output| output.name.clone()).collect();
        onnx.value_infos.retain(|info| !outputs.contains(&info.name));
        Ok(())
    }

    fn n_bytes(&self, onnx: &planish_onnx::Graph<'_>) -> usize {
        let in_bodies =
            onnx.nodes.iter().flat_map(|node| &node.attributes).map(|attribute| match &attribute.value {
                AttributeValue::Graph(body) => self.n_bytes(body),
                AttributeValue::Tensor(tensor) => tensor.byte_len().unwrap_or(usize::MAX),
                _ => 0,
            });
        let own = onnx.initializers.iter().map(|tensor| tensor.byte_len().unwrap_or(usize::MAX));
        own.chain(in_bodies).fold(0, usize::saturating_add)
    }
}

fn name_of(names: &Names, id: ValueId) -> Result<String, ImportError> {
    let missing = || ImportError::invalid("a value is read before anything makes it");
    names.get(&id).cloned().ok_or_else(missing)
}

/// Trailing absent inputs and outputs are left out.
fn trim(names: &mut Vec<Cow<'_, str>>) {
    while names.pop_if(|name| name.is_empty()).is_some() {}
}

/// The attributes that hold the bodies, in order.
fn body_names(op: &Op) -> &'static [&'static str] {
    match op {
        Op::If(_) => &["then_branch", "else_branch"],
        _ => &["body"],
    }
}

fn constant<'g>(name: Cow<'g, str>, tensor: &'g Tensor) -> planish_onnx::Tensor<'g> {
    let dims = tensor.shape().iter().map(|&dim| dim as i64).collect();
    planish_onnx::Tensor::raw(name, data_type(tensor.dtype()), dims, &tensor.bytes()[..])
}

/// The attributes as ONNX spells them.
fn attributes<'g>(graph: &Graph, node: &'g Node) -> Result<Vec<OnnxAttribute<'g>>, ImportError> {
    let mut list = Vec::new();
    if let Op::TreeEnsemble(op) = &node.op {
        if !op.leaf_starts.is_empty() {
            let what = "TreeEnsemble with leaves that speak of several targets".into();
            let error = ImportError::new(ImportErrorKind::NotExpressible { what });
            return Err(error.hint("keep the file that the model was read from"));
        }
        // Required by ONNX, whatever it is.
        if op.n_targets == 1 {
            list.push(OnnxAttribute::new("n_targets", AttributeValue::Int(1)));
        }
    }
    for (name, value) in node.op.attributes() {
        // The table spells fields as Rust does.
        let name = match (&node.op, name) {
            (Op::Gemm(_), "trans_a") => "transA",
            (Op::Gemm(_), "trans_b") => "transB",
            (Op::Optional(_), "element_type") => "type",
            (_, name) => name,
        };
        let value = match &node.op {
            Op::Resize(op) if name == "nearest_mode" && op.mode != ResizeMode::Nearest => continue,
            Op::Resize(op) if name == "nearest_mode" && op.nearest_mode == ResizeNearest::Simple => {
                AttributeValue::String(simple_rounding(graph, node)?.as_bytes().into())
            }
            _ => attribute(value),
        };
        list.push(OnnxAttribute::new(name, value));
    }
    if let Op::Split(split) = &node.op
        && split.num_outputs.is_none()
        && !node.inputs.get(1).is_some_and(Option::is_some)
    {
        let n_outputs = i64::try_from(node.outputs.len()).unwrap_or(i64::MAX);
        list.push(OnnxAttribute::new("num_outputs", AttributeValue::Int(n_outputs)));
    }
    Ok(list)
}

/// The rounding of the first Resize in today's words: down where it enlarges, up where it shrinks. One word must
/// do for all axes.
fn simple_rounding(graph: &Graph, node: &Node) -> Result<&'static str, ImportError> {
    let scales = node.inputs.get(2).copied().flatten().and_then(|id| graph.value(id).constant());
    let scales = scales.map(Tensor::to_f64s).unwrap_or_default();
    match () {
        () if !scales.is_empty() && scales.iter().all(|&scale| scale >= 1.0) => Ok("floor"),
        () if !scales.is_empty() && scales.iter().all(|&scale| scale <= 1.0) => Ok("ceil"),
        () => {
            let what = "Resize that rounds as in opset 10, with scales that are not constant or both enlarge and shrink";
            let error = ImportError::new(ImportErrorKind::NotExpressible { what: what.into() });
            Err(error.hint("set nearest_mode to floor or ceil, whichever the model was trained with"))
        }
    }
}

fn attribute<'g>(value: Attribute) -> AttributeValue<'g> {
    match value {
        Attribute::Bool(value) => AttributeValue::Int(value.into()),
        Attribute::Int(value) => AttributeValue::Int(value),
        Attribute::Float(value) => AttributeValue::Float(value),
        Attribute::Str(value) => AttributeValue::String(value.into_bytes().into()),
        Attribute::Ints(values) => AttributeValue::Ints(values),
        Attribute::Floats(values) => AttributeValue::Floats(values),
        Attribute::Strs(values) => {
            AttributeValue::Strings(values.into_iter().map(|value| value.into_bytes().into()).collect())
        }
        Attribute::DType(dtype) => AttributeValue::Int(data_type(dtype).to_i32().into()),
        Attribute::Tensor(tensor) => {
            let owned = tensor.bytes().to_vec();
            let dims = tensor.shape().iter().map(|&dim| dim as i64).collect();
            let tensor = planish_onnx::Tensor::raw("", data_type(tensor.dtype()), dims, owned);
            AttributeValue::Tensor(Box::new(tensor))
        }
        Attribute::Type(ty) => AttributeValue::Type(Box::new(onnx_type(&ty))),
    }
}

fn value_info<'g>(name: String, ty: Option<&ValueType>) -> ValueInfo<'g> {
    ValueInfo { name: name.into(), ty: ty.map(onnx_type), ..ValueInfo::default() }
}

/// Whether there is more to say of a value than its element type.
fn known(ty: &ValueType) -> bool {
    ty.as_tensor().is_some_and(|tensor| tensor.shape.is_some())
}

/// A type as ONNX says it.
pub fn onnx_type<'g>(ty: &ValueType) -> Type<'g> {
    match ty {
        ValueType::Tensor(tensor) => {
            let dims = tensor.shape.as_ref().map(|shape| shape.iter().map(dimension).collect());
            Type::Tensor { elem: data_type(tensor.dtype), shape: dims }
        }
        ValueType::Sequence(element) => Type::Sequence(Box::new(onnx_type(element))),
        ValueType::Optional(element) => Type::Optional(Box::new(onnx_type(element))),
    }
}

/// Numbers and names. Expressions and what only a run can tell are left open: the importer finds them again.
fn dimension<'g>(dim: &Dim) -> Dimension<'g> {
    match (dim.as_const(), dim.as_symbol()) {
        (Some(size), _) => Dimension::Value(size),
        (_, Some(name)) if !name.contains('\'') => Dimension::Param(name.to_string().into()),
        _ => Dimension::Unknown,
    }
}
