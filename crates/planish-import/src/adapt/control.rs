//! If, Loop, Scan and SequenceMap: bodies imported with the values that they capture made explicit.

use std::collections::{HashMap, HashSet};

use planish_ir::{Graph, ValueId};
use planish_onnx::AttributeValue;
use planish_op::infer::Content;
use planish_op::{If, Loop, Op, SequenceMap, TensorType, ValueType};
use planish_tensor::{DType, Dim, Shape, normalize_axis};

use crate::error::ImportError;
use crate::importer::Formal;
use crate::node::{NodeImport, Out};

fn body_of<'m>(n: &NodeImport<'_, 'm>, name: &str) -> Result<&'m planish_onnx::Graph<'m>, ImportError> {
    match n.attribute(name) {
        Some(AttributeValue::Graph(graph)) => Ok(graph),
        Some(_) => Err(ImportError::invalid(format!("attribute `{name}` must be a graph"))),
        None => Err(ImportError::invalid(format!("{} needs the attribute `{name}`", n.node.op_type))),
    }
}

pub(super) fn if_(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let condition = n.required(0)?;
    if n.inputs.len() > 1 {
        return Err(ImportError::invalid(format!("If takes one input, there are {}", n.inputs.len())));
    }
    let (then_branch, else_branch) = (body_of(n, "then_branch")?, body_of(n, "else_branch")?);
    // A condition that follows from shapes decides now; the other branch may not even fit the types.
    if let Some(taken) = known_condition(n, condition) {
        let branch = if taken { then_branch } else { else_branch };
        let values = n.importer.inline_branch(branch)?;
        let n_wanted = n.all_outputs().len();
        if values.len() < n_wanted {
            let detail = format!("the branch has {} outputs, the node {n_wanted}", values.len());
            return Err(ImportError::invalid(detail));
        }
        for (output, value) in values.into_iter().enumerate().take(n.node.outputs.len()) {
            n.alias(output, value)?;
        }
        return Ok(());
    }
    let (mut then_graph, then_captured) = n.importer.body(then_branch, &[], None)?;
    let (mut else_graph, else_captured) = n.importer.body(else_branch, &[], Some(&then_graph))?;
    // Both branches take the same captured values: the union, in order of first use.
    let mut seen = HashSet::new();
    let mut captured = then_captured.clone();
    captured.extend(&else_captured);
    captured.retain(|id| seen.insert(*id));
    take_captured(n, &mut then_graph, &then_captured, &captured)?;
    take_captured(n, &mut else_graph, &else_captured, &captured)?;
    let mut inputs = vec![Some(condition)];
    inputs.extend(captured.iter().copied().map(Some));
    let outputs = n.all_outputs();
    n.add_with_bodies(Op::from(If {}), inputs, &outputs, vec![then_graph, else_graph], captured.len())?;
    Ok(())
}

/// The value of a condition that inference knows.
fn known_condition(n: &mut NodeImport<'_, '_>, condition: ValueId) -> Option<bool> {
    let value = n.graph().value(condition);
    value.ty.as_tensor().filter(|ty| ty.dtype == DType::Bool)?;
    match value.content.as_ref()? {
        Content::Tensor(tensor) if tensor.len() == 1 => Some(tensor.to_i64s()[0] != 0),
        Content::Ints(ints) if ints.dims.len() == 1 => ints.dims[0].as_const().map(|number| number != 0),
        _ => None,
    }
}

/// Makes a body without formal inputs, which has `own` as inputs, take all of `captured` in that order.
fn take_captured(
    n: &mut NodeImport<'_, '_>,
    body: &mut Graph,
    own: &[ValueId],
    captured: &[ValueId],
) -> Result<(), ImportError> {
    let existing: HashMap<ValueId, ValueId> = own.iter().copied().zip(body.inputs().to_vec()).collect();
    let mut inputs = Vec::with_capacity(captured.len());
    for id in captured {
        inputs.push(match existing.get(id) {
            Some(&own) => own,
            None => {
                let outer = n.graph().value(*id).clone();
                let mut name = outer.name.to_string();
                while body.find(&name).is_some() {
                    name.push('\'');
                }
                body.add_input(&name, outer.ty)?
            }
        });
    }
    body.set_inputs(inputs);
    Ok(())
}

/// A type that covers what a carried value has before a step (`ty`) and after it (`made`): sizes that change are left
/// open, each as a symbol that `open` remembers, and so is a rank that changes.
fn widened(
    n: &mut NodeImport<'_, '_>,
    ty: &ValueType,
    made: &ValueType,
    open: &mut HashSet<String>,
) -> ValueType {
    let (ValueType::Tensor(own), ValueType::Tensor(other)) = (ty, made) else { return unshaped(ty) };
    match (&own.shape, &other.shape) {
        (Some(before), Some(after)) if before.rank() == after.rank() => {
            let dims = before.iter().zip(after);
            let dims = dims.map(|(before, after)| match covers_size(before, after, open) {
                true => before.clone(),
                false => open_dim(n, open),
            });
            ValueType::tensor(own.dtype, dims.collect::<Vec<_>>().into_iter().collect())
        }
        _ => unshaped(ty),
    }
}

/// The type with every size left open.
fn any_sizes(n: &mut NodeImport<'_, '_>, ty: &ValueType, open: &mut HashSet<String>) -> ValueType {
    match ty {
        ValueType::Tensor(TensorType { dtype, shape: Some(shape) }) => {
            let dims: Vec<Dim> = (0..shape.rank()).map(|_| open_dim(n, open)).collect();
            ValueType::tensor(*dtype, dims.into_iter().collect())
        }
        other => unshaped(other),
    }
}

fn open_dim(n: &mut NodeImport<'_, '_>, open: &mut HashSet<String>) -> Dim {
    let dim = n.fresh_dim("carried");
    open.extend(dim.as_symbol().map(str::to_string));
    dim
}

fn covers_size(before: &Dim, after: &Dim, open: &HashSet<String>) -> bool {
    before == after || before.as_symbol().is_some_and(|symbol| open.contains(symbol))
}

/// Whether a value of type `made` can be handed to the next step as `ty`.
fn covers(ty: &ValueType, made: &ValueType, open: &HashSet<String>) -> bool {
    match (ty, made) {
        (ValueType::Tensor(TensorType { shape: None, .. }), _) => true,
        (
            ValueType::Tensor(TensorType { shape: Some(before), .. }),
            ValueType::Tensor(TensorType { shape: Some(after), .. }),
        ) => {
            before.rank() == after.rank()
                && before.iter().zip(after).all(|(before, after)| covers_size(before, after, open))
        }
        (ty, made) => ty == made || *ty == unshaped(ty),
    }
}

/// The type with nothing known of shapes: they may change from step to step.
fn unshaped(ty: &ValueType) -> ValueType {
    match ty {
        ValueType::Tensor(tensor) => ValueType::unranked(tensor.dtype),
        ValueType::Sequence(element) => ValueType::Sequence(Box::new(unshaped(element))),
        ValueType::Optional(element) => ValueType::Optional(Box::new(unshaped(element))),
    }
}

/// Which of the values from `first` on a body hands on as it got them. `output_of` says where the value at a
/// place comes out.
fn unchanged(
    body: &planish_onnx::Graph<'_>,
    values: std::ops::Range<usize>,
    output_of: impl Fn(usize) -> usize,
) -> Vec<usize> {
    let is_identity = |node: &&planish_onnx::Node<'_>| {
        node.op_type == "Identity" && node.domain.is_empty() && node.inputs.len() == 1
    };
    let copies: HashMap<&str, &str> = body
        .nodes
        .iter()
        .filter(is_identity)
        .filter_map(|node| Some((node.outputs.first()?.as_ref(), node.inputs[0].as_ref())))
        .collect();
    let original = |mut name| {
        // No chain is longer; names in a circle are refused later.
        for _ in 0..copies.len() {
            match copies.get(name) {
                Some(from) => name = *from,
                None => break,
            }
        }
        name
    };
    let is_same = |idx: &usize| match (body.inputs.get(*idx), body.outputs.get(output_of(*idx))) {
        (Some(input), Some(output)) => original(output.name.as_ref()) == input.name.as_ref(),
        _ => false,
    };
    values.filter(is_same).collect()
}

/// A loop of either kind on its way in.
struct Repeated<'m> {
    op: Op,
    body: &'m planish_onnx::Graph<'m>,
    inputs: Vec<Option<ValueId>>,
    /// Types of the formal inputs; those of carried values are filled in.
    formals: Vec<ValueType>,
    /// Which inputs are carried from step to step.
    carried: std::ops::Range<usize>,
    /// Outputs of the body before those of the carried values, which are none of the node's.
    n_before: usize,
}

/// Deeper than this, types of carried values are not tried out: each try imports the bodies inside again.
const MAX_TRIED_DEPTH: usize = 2;
/// Times that a body is imported to find out which sizes it keeps; what is not settled by then is left open.
const MAX_TRIES: usize = 4;

impl<'m> Repeated<'m> {
    fn output_of(&self, input: usize) -> usize {
        input - self.carried.start + self.n_before
    }

    /// Imports the body and adds the node. Values that never change become captured ones, so that weights which
    /// an exporter hands from step to step are seen to be constant. Of the others it is assumed that they keep
    /// the shape that they begin with; sizes that the body changes are left open, until all others hold for
    /// every step. What the file declares of them is not looked at: exporters write what they traced.
    fn finish(mut self, n: &mut NodeImport<'_, 'm>) -> Result<(), ImportError> {
        let fixed = unchanged(self.body, self.carried.clone(), |idx| self.output_of(idx));
        let charged = n.importer.weights.charged();
        let mut open = HashSet::new();
        let mut formals: Vec<Formal> = self.formals.iter().cloned().map(Formal::Own).collect();
        let changing: Vec<usize> = self.carried.clone().filter(|idx| !fixed.contains(idx)).collect();
        for idx in self.carried.clone() {
            let initial = n.required(idx)?;
            let ty = n.graph().value(initial).ty.clone();
            formals[idx] = match fixed.contains(&idx) {
                true => Formal::Outer(initial),
                false if n.importer.depth() > MAX_TRIED_DEPTH => Formal::Own(unshaped(&ty)),
                false => Formal::Own(ty),
            };
        }
        let mut n_tries = 0;
        let (mut graph, captured) = loop {
            n_tries += 1;
            let imported = n.importer.body(self.body, &formals, None);
            let is_last = n_tries >= MAX_TRIES;
            let mut is_settled = true;
            for &idx in &changing {
                let Formal::Own(ty) = &formals[idx] else { continue };
                let made = imported.as_ref().ok().and_then(|(graph, _)| {
                    graph.outputs().get(self.output_of(idx)).map(|output| graph.value(*output).ty.clone())
                });
                let wider = match made {
                    Some(made) if covers(ty, &made, &open) => continue,
                    _ if is_last => unshaped(ty),
                    Some(made) => widened(n, ty, &made, &mut open),
                    // The body does not take what the value begins with; maybe what it becomes.
                    None if n_tries == 1 => any_sizes(n, ty, &mut open),
                    None => unshaped(ty),
                };
                is_settled &= wider == *ty;
                formals[idx] = Formal::Own(wider);
            }
            if is_settled {
                break imported?;
            }
            n.importer.weights.uncharge_to(charged);
        };
        let kept = |idx: &usize| !fixed.iter().any(|fixed| self.output_of(*fixed) == *idx);
        let outputs = graph.outputs().to_vec();
        graph.set_outputs((0..outputs.len()).filter(kept).map(|idx| outputs[idx]).collect());
        let outputs: Vec<Out> = n
            .all_outputs()
            .into_iter()
            .enumerate()
            .filter(|(at, _)| kept(&(at + self.n_before)))
            .map(|(_, out)| out)
            .collect();
        for &idx in &fixed {
            let (output, initial) = (self.output_of(idx) - self.n_before, n.required(idx)?);
            if n.wants(output) {
                n.alias(output, initial)?;
            }
        }
        let mut at = 0;
        self.inputs.retain(|_| {
            at += 1;
            !fixed.contains(&(at - 1))
        });
        self.inputs.extend(captured.iter().copied().map(Some));
        n.add_with_bodies(self.op, self.inputs, &outputs, vec![graph], captured.len())?;
        Ok(())
    }
}

pub(super) fn loop_(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let body = body_of(n, "body")?;
    let mut inputs = n.inputs.clone();
    // Trip count and condition are optional; the carried values start at the third place.
    inputs.resize(inputs.len().max(2), None);
    let mut formals =
        vec![ValueType::tensor(DType::I64, Shape::scalar()), ValueType::tensor(DType::Bool, Shape::scalar())];
    for idx in 2..inputs.len() {
        n.required(idx)?;
        body.inputs.get(idx).ok_or_else(|| {
            ImportError::invalid(format!("Loop has {} inputs, its body {}", inputs.len(), body.inputs.len()))
        })?;
        formals.push(ValueType::unranked(DType::F32));
    }
    let carried = 2..inputs.len();
    // The condition is the body's first output.
    Repeated { op: Op::from(Loop {}), body, inputs, formals, carried, n_before: 1 }.finish(n)
}

fn finish_with_body<'m>(
    n: &mut NodeImport<'_, 'm>,
    op: Op,
    mut inputs: Vec<Option<ValueId>>,
    body: &'m planish_onnx::Graph<'m>,
    formals: Vec<ValueType>,
) -> Result<(), ImportError> {
    let formals: Vec<Formal> = formals.into_iter().map(Formal::Own).collect();
    let (graph, captured) = n.importer.body(body, &formals, None)?;
    inputs.extend(captured.iter().copied().map(Some));
    let outputs = n.all_outputs();
    n.add_with_bodies(op, inputs, &outputs, vec![graph], captured.len())?;
    Ok(())
}

pub(super) fn scan(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    if n.opset < 9 {
        return Err(
            n.unsupported(Some("Scan of opset 8 (batched, with sequence lengths); export with opset 9"))
        );
    }
    let body = body_of(n, "body")?;
    let list = n.op_attributes("Scan", &["body"])?;
    let op = Op::from_attributes("Scan", &list)?;
    let Op::Scan(scan) = &op else { return Err(n.unsupported(None)) };
    let inputs = n.inputs.clone();
    let n_scanned = usize::try_from(scan.num_scan_inputs).unwrap_or(usize::MAX);
    let n_states = inputs.len().checked_sub(n_scanned).ok_or_else(|| {
        ImportError::invalid(format!("num_scan_inputs is {n_scanned}, there are {} inputs", inputs.len()))
    })?;
    let mut formals = Vec::with_capacity(inputs.len());
    for idx in 0..inputs.len() {
        let value = n.required(idx)?;
        body.inputs.get(idx).ok_or_else(|| {
            ImportError::invalid(format!("Scan has {} inputs, its body {}", inputs.len(), body.inputs.len()))
        })?;
        if idx < n_states {
            formals.push(ValueType::unranked(DType::F32));
            continue;
        }
        let axis = scan.scan_input_axes.get(idx - n_states).copied().unwrap_or(0);
        let TensorType { dtype, shape } = n.type_of(value)?;
        let shape = match shape {
            Some(shape) => {
                let mut dims = shape.into_dims();
                let axis = normalize_axis(axis, dims.len())
                    .map_err(|error| ImportError::invalid(error.to_string()))?;
                dims.remove(axis);
                Some(Shape::new(dims))
            }
            None => None,
        };
        formals.push(ValueType::Tensor(TensorType { dtype, shape }));
    }
    Repeated { op: op.clone(), body, inputs, formals, carried: 0..n_states, n_before: 0 }.finish(n)
}

pub(super) fn sequence_map(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let body = body_of(n, "body")?;
    let inputs = n.inputs.clone();
    let mut formals = Vec::with_capacity(inputs.len());
    for idx in 0..inputs.len() {
        let value = n.required(idx)?;
        formals.push(match &n.graph().value(value).ty {
            // The elements of a sequence may differ in shape.
            ValueType::Sequence(element) => unshaped(element),
            other => other.clone(),
        });
    }
    finish_with_body(n, Op::from(SequenceMap {}), inputs, body, formals)
}
