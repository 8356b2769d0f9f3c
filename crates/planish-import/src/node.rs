//! `NodeImport`: what a rule sees of one ONNX node, and how it adds nodes to the graph.

use planish_ir::{Declared, Graph, NewNode, NewOutput, ValueId};
use planish_onnx::{AttributeValue, Node};
use planish_op::{Attribute, AttributeKind, Op, OpSpec, TensorType, ValueType};
use planish_tensor::{Dim, Shape, Tensor};

use crate::attributes;
use crate::error::{ImportError, ImportErrorKind, UnsupportedNode, shorten};
use crate::importer::Importer;

/// A node as a user finds it: its name, or its operator and first output.
pub(crate) fn describe(node: &Node<'_>) -> String {
    let output = node.outputs.iter().find(|name| !name.is_empty());
    let op_type = shorten(&node.op_type);
    match (node.name.is_empty(), output) {
        (false, _) => format!("node `{}` ({op_type})", shorten(&node.name)),
        (true, Some(output)) => format!("node {op_type} making `{}`", shorten(output)),
        (true, None) => format!("node {op_type}"),
    }
}

/// Where an output of an added node goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Out {
    /// The ONNX node's output at this position (skipped if the node omits it).
    Node(usize),
    /// A new value in between.
    Temporary,
}

/// One ONNX node on its way into the graph.
pub(crate) struct NodeImport<'i, 'm> {
    pub(crate) importer: &'i mut Importer<'m>,
    pub(crate) node: &'m Node<'m>,
    /// The version of the operator set that the node's domain is imported at.
    pub(crate) opset: i64,
    /// The node's inputs, `None` where omitted.
    pub(crate) inputs: Vec<Option<ValueId>>,
}

impl<'m> NodeImport<'_, 'm> {
    pub(crate) fn graph(&mut self) -> &mut Graph {
        self.importer.graph()
    }

    /// The input at `idx`, `None` if omitted.
    pub(crate) fn input(&self, idx: usize) -> Option<ValueId> {
        self.inputs.get(idx).copied().flatten()
    }

    pub(crate) fn required(&self, idx: usize) -> Result<ValueId, ImportError> {
        self.input(idx).ok_or_else(|| ImportError::invalid(format!("input {idx} is missing")))
    }

    /// Whether the node wants its output at `idx`.
    pub(crate) fn wants(&self, idx: usize) -> bool {
        self.node.outputs.get(idx).is_some_and(|name| !name.is_empty())
    }

    pub(crate) fn type_of(&mut self, id: ValueId) -> Result<TensorType, ImportError> {
        let value = self.importer.graph().value(id);
        match &value.ty {
            ValueType::Tensor(tensor) => Ok(tensor.clone()),
            other => Err(ImportError::invalid(format!("`{}` must be a tensor, it is {other}", value.name))),
        }
    }

    /// The rank of a value, refused if unknown.
    pub(crate) fn rank_of(&mut self, id: ValueId) -> Result<usize, ImportError> {
        let ty = self.type_of(id)?;
        ty.rank().ok_or_else(|| {
            ImportError::invalid(format!("{} needs an input of known rank", self.node.op_type))
        })
    }

    pub(crate) fn shape_of(&mut self, id: ValueId) -> Result<Shape, ImportError> {
        let ty = self.type_of(id)?;
        ty.shape.ok_or_else(|| {
            ImportError::invalid(format!("{} needs an input of known rank", self.node.op_type))
        })
    }

    /// The elements of a constant input.
    pub(crate) fn constant_of(&mut self, id: ValueId) -> Option<Tensor> {
        self.importer.graph().value(id).constant().cloned()
    }

    // Attributes.

    pub(crate) fn attribute(&self, name: &str) -> Option<&'m AttributeValue<'m>> {
        self.node.attribute(name).map(|attribute| &attribute.value)
    }

    fn wrong_kind(&self, name: &str, expected: &str) -> ImportError {
        ImportError::invalid(format!("attribute `{name}` must be {expected}"))
    }

    pub(crate) fn int(&self, name: &str) -> Result<Option<i64>, ImportError> {
        match self.attribute(name) {
            None => Ok(None),
            Some(AttributeValue::Int(number)) => Ok(Some(*number)),
            Some(_) => Err(self.wrong_kind(name, "an integer")),
        }
    }

    pub(crate) fn int_or(&self, name: &str, default: i64) -> Result<i64, ImportError> {
        Ok(self.int(name)?.unwrap_or(default))
    }

    pub(crate) fn float(&self, name: &str) -> Result<Option<f32>, ImportError> {
        match self.attribute(name) {
            None => Ok(None),
            Some(AttributeValue::Float(number)) => Ok(Some(*number)),
            Some(AttributeValue::Int(number)) => Ok(Some(*number as f32)),
            Some(_) => Err(self.wrong_kind(name, "a number")),
        }
    }

    pub(crate) fn float_or(&self, name: &str, default: f32) -> Result<f32, ImportError> {
        Ok(self.float(name)?.unwrap_or(default))
    }

    pub(crate) fn ints(&self, name: &str) -> Result<Option<Vec<i64>>, ImportError> {
        match self.attribute(name) {
            None => Ok(None),
            Some(AttributeValue::Ints(numbers)) => Ok(Some(numbers.clone())),
            Some(AttributeValue::Floats(numbers)) if numbers.is_empty() => Ok(Some(Vec::new())),
            Some(_) => Err(self.wrong_kind(name, "a list of integers")),
        }
    }

    pub(crate) fn floats(&self, name: &str) -> Result<Option<Vec<f32>>, ImportError> {
        match self.attribute(name) {
            None => Ok(None),
            Some(AttributeValue::Floats(numbers)) => Ok(Some(numbers.clone())),
            Some(AttributeValue::Ints(numbers)) if numbers.is_empty() => Ok(Some(Vec::new())),
            Some(_) => Err(self.wrong_kind(name, "a list of numbers")),
        }
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, ImportError> {
        match self.attribute(name) {
            None => Ok(None),
            Some(AttributeValue::String(text)) => attributes::utf8(text, name).map(Some),
            Some(_) => Err(self.wrong_kind(name, "a string")),
        }
    }

    /// The node's attributes as the table row of `op` wants them; those in `handled` are left out.
    pub(crate) fn op_attributes(
        &mut self,
        op: &str,
        handled: &[&str],
    ) -> Result<Vec<(String, Attribute)>, ImportError> {
        let spec = OpSpec::find(op).ok_or_else(|| self.unsupported(None))?;
        let mut list = Vec::new();
        for attribute in &self.node.attributes {
            if handled.contains(&attribute.name.as_ref()) {
                continue;
            }
            // The table spells `transA` as Rust spells fields; `type` is a word of Rust's.
            let name = match attribute.name.as_ref() {
                "transA" => "trans_a",
                "transB" => "trans_b",
                "type" => "element_type",
                name => name,
            };
            let field = spec.field(name).ok_or_else(|| {
                let detail = format!("{op} has no attribute `{}` in opset {}", shorten(name), self.opset);
                ImportError::invalid(detail)
            })?;
            if list.iter().any(|(other, _)| other == name) {
                return Err(ImportError::invalid(format!("attribute `{name}` is given twice")));
            }
            // "Undefined" is how an optional element type is said not to be given.
            if field.kind == AttributeKind::DType
                && !field.required
                && attribute.value == AttributeValue::Int(0)
            {
                continue;
            }
            let value = attributes::convert(field, &attribute.value, &mut self.importer.weights)?;
            list.push((name.to_string(), value));
        }
        Ok(list)
    }

    // Adding to the graph.

    /// A constant with a name of its own.
    pub(crate) fn constant(&mut self, hint: &str, tensor: Tensor) -> Result<ValueId, ImportError> {
        self.importer.weights.charge(tensor.bytes().len())?;
        let base = self.prefix(hint);
        let name = self.importer.frame().unique_name(&base);
        Ok(self.importer.graph().add_constant(&name, tensor)?)
    }

    /// A vector of integers as a constant.
    pub(crate) fn int_vector(&mut self, hint: &str, values: Vec<i64>) -> Result<ValueId, ImportError> {
        self.constant(hint, Tensor::vector(values))
    }

    fn prefix(&self, hint: &str) -> String {
        let base = self.node.outputs.iter().find(|name| !name.is_empty()).unwrap_or(&self.node.name);
        format!("{base}/{hint}")
    }

    /// Adds a node and returns its outputs, `None` for those that are not wanted.
    pub(crate) fn add(
        &mut self,
        op: impl Into<Op>,
        inputs: &[Option<ValueId>],
        outputs: &[Out],
    ) -> Result<Vec<Option<ValueId>>, ImportError> {
        self.add_with_bodies(op.into(), inputs.to_vec(), outputs, Vec::new(), 0)
    }

    pub(crate) fn add_with_bodies(
        &mut self,
        op: Op,
        inputs: Vec<Option<ValueId>>,
        outputs: &[Out],
        bodies: Vec<Graph>,
        n_captured: usize,
    ) -> Result<Vec<Option<ValueId>>, ImportError> {
        let mut new_outputs = Vec::with_capacity(outputs.len());
        for (place, out) in outputs.iter().enumerate() {
            new_outputs.push(match *out {
                Out::Node(idx) if self.wants(idx) => {
                    let name = self.node.outputs[idx].as_ref();
                    let declared = match self.importer.frame().declared_type(name) {
                        Some(ty) => Declared::Hint(ty),
                        None => Declared::Nothing,
                    };
                    NewOutput::Value { name: self.importer.frame().own_name(name).into(), declared }
                }
                Out::Node(_) => NewOutput::Skip,
                Out::Temporary => {
                    // The place keeps the outputs of one node apart.
                    let hint =
                        if place == 0 { op.name().to_string() } else { format!("{}.{place}", op.name()) };
                    let base = self.prefix(&hint);
                    let name = self.importer.frame().unique_name(&base);
                    NewOutput::Value { name: name.into(), declared: Declared::Nothing }
                }
            });
        }
        let name = self.node.name.as_ref().into();
        let new = NewNode { name, op, inputs, outputs: new_outputs, bodies, n_captured };
        let id = self.importer.graph().add_node(new)?;
        let made = self.importer.graph().node(id).outputs.clone();
        for (out, id) in outputs.iter().zip(&made) {
            if let (Out::Node(idx), Some(id)) = (out, id) {
                self.importer.frame().define(&self.node.outputs[*idx], *id);
            }
        }
        Ok(made)
    }

    /// Adds a node whose one output is a new value in between.
    pub(crate) fn temporary(
        &mut self,
        op: impl Into<Op>,
        inputs: &[Option<ValueId>],
    ) -> Result<ValueId, ImportError> {
        let made = self.add(op, inputs, &[Out::Temporary])?;
        made.first().copied().flatten().ok_or_else(|| ImportError::invalid("the node made no value"))
    }

    /// Adds the node that takes the ONNX node's place: all of its outputs.
    pub(crate) fn finish(
        &mut self,
        op: impl Into<Op>,
        inputs: &[Option<ValueId>],
    ) -> Result<(), ImportError> {
        let outputs = self.all_outputs();
        self.add(op, inputs, &outputs).map(|_| ())
    }

    pub(crate) fn all_outputs(&self) -> Vec<Out> {
        // Trailing omitted outputs are as good as absent.
        let n_outputs =
            self.node.outputs.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
        (0..n_outputs).map(Out::Node).collect()
    }

    /// Lets the ONNX node's output stand for a value that exists already.
    pub(crate) fn alias(&mut self, output: usize, value: ValueId) -> Result<(), ImportError> {
        self.add(planish_op::Identity {}, &[Some(value)], &[Out::Node(output)]).map(|_| ())
    }

    /// The importer's default: the same operator with the same inputs, attributes by the table.
    pub(crate) fn finish_generic(&mut self, op: &str, handled: &[&str]) -> Result<(), ImportError> {
        let inputs = self.inputs.clone();
        self.finish_with(op, handled, &inputs)
    }

    /// Like the default, with other inputs.
    pub(crate) fn finish_with(
        &mut self,
        op: &str,
        handled: &[&str],
        inputs: &[Option<ValueId>],
    ) -> Result<(), ImportError> {
        let list = self.op_attributes(op, handled)?;
        let op = Op::from_attributes(op, &list)?;
        // Trailing omitted inputs are as good as absent.
        let n_inputs = inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.finish(op, &inputs[..n_inputs])
    }

    pub(crate) fn fresh_dim(&mut self, hint: &str) -> Dim {
        self.importer.graph().fresh_dim(hint)
    }

    /// The error for this node alone, found only while importing it.
    pub(crate) fn unsupported(&self, reason: Option<&'static str>) -> ImportError {
        ImportError::new(ImportErrorKind::Unsupported(vec![UnsupportedNode {
            domain: self.node.domain.to_string(),
            op_type: self.node.op_type.to_string(),
            opset: self.opset,
            node: describe(self.node),
            reason,
        }]))
    }
}
