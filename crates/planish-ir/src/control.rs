//! Control flow: what the outputs of If, Loop, Scan and SequenceMap are, given their bodies; and how types
//! that come from two places are joined.

use planish_op::infer::{Content, InferError, InferErrorKind, InferInput, Inferred};
use planish_op::{Class, Op, TensorType, ValueType};
use planish_tensor::{DType, Dim, Shape};

use crate::graph::{Graph, GraphError, GraphErrorKind, NodeParts};

/// Whether the operator keeps its work in bodies.
pub(crate) fn has_bodies(op: &Op) -> bool {
    op.class() == Class::Control
}

/// How many inputs the operator itself, given `n_own`, hands to a body before the captured ones.
pub(crate) fn n_formal(op: &Op, n_own: usize) -> usize {
    match op {
        Op::If(_) => 0,
        // Iteration number and condition take the places of the trip count and the condition.
        Op::Loop(_) => n_own.max(2),
        _ => n_own,
    }
}

type Fresh<'a> = &'a mut dyn FnMut(&str) -> Dim;

/// The outputs of a node with bodies.
pub(crate) fn infer(
    node: NodeParts<'_>,
    inputs: &[Option<InferInput<'_>>],
    fresh: Fresh<'_>,
) -> Result<Vec<Inferred>, GraphError> {
    let bad = |detail: String| GraphError::new(GraphErrorKind::BadBody(detail), node.name);
    let n_own = inputs
        .len()
        .checked_sub(node.n_captured)
        .ok_or_else(|| bad("more captured values than inputs".into()))?;
    if let Some(most) = node.op.max_inputs().filter(|&most| n_own > most) {
        let detail = format!("at most {most} inputs are taken, there are {n_own}");
        let error = InferError::new(node.op.name(), InferErrorKind::ExtraInput, detail);
        return Err(GraphError::new(GraphErrorKind::Infer(error), node.name));
    }
    let n_bodies = if matches!(node.op, Op::If(_)) { 2 } else { 1 };
    if node.bodies.len() != n_bodies {
        return Err(bad(format!("{} needs {n_bodies} bodies, has {}", node.op.name(), node.bodies.len())));
    }
    let n_formal = n_formal(node.op, n_own);
    for body in node.bodies {
        check_inputs(node, inputs, body, n_own, n_formal).map_err(bad)?;
    }
    let types = match &node.op {
        Op::If(_) => {
            check_condition(node, inputs)?;
            let (then, other) = (output_types(&node.bodies[0]), output_types(&node.bodies[1]));
            if then.len() != other.len() {
                return Err(bad(format!("the branches have {} and {} outputs", then.len(), other.len())));
            }
            match known_condition(inputs) {
                // The other branch never runs; exporters leave such choices where sizes are equal anyway.
                Some(true) => Some(then.into_iter().cloned().collect()),
                Some(false) => Some(other.into_iter().cloned().collect()),
                None => {
                    let join_both = |(a, b)| join(a, b, fresh);
                    then.into_iter().zip(other).map(join_both).collect::<Option<Vec<_>>>()
                }
            }
        }
        Op::Loop(_) => {
            let outputs = output_types(&node.bodies[0]);
            let n_carried = n_own.saturating_sub(2);
            if outputs.len() < 1 + n_carried {
                return Err(bad(format!(
                    "the body has {} outputs, at least {} are needed",
                    outputs.len(),
                    1 + n_carried
                )));
            }
            let carried = outputs[1..=n_carried]
                .iter()
                .zip(&inputs[2.min(n_own)..n_own])
                .map(|(out, initial)| initial.as_ref().and_then(|initial| join(initial.ty, out, fresh)))
                .collect::<Option<Vec<_>>>();
            carried.map(|mut types| {
                let n_iterations = fresh("iterations");
                types.extend(outputs[1 + n_carried..].iter().map(|out| stacked(out, 0, &n_iterations)));
                types
            })
        }
        Op::Scan(scan) => {
            let outputs = output_types(&node.bodies[0]);
            let n_scanned = usize::try_from(scan.num_scan_inputs).unwrap_or(usize::MAX);
            let n_states = n_own
                .checked_sub(n_scanned)
                .filter(|_| n_scanned > 0)
                .ok_or_else(|| bad(format!("num_scan_inputs is {n_scanned}, there are {n_own} inputs")))?;
            if outputs.len() < n_states {
                return Err(bad(format!("the body has {} outputs for {n_states} states", outputs.len())));
            }
            let states = inputs[..n_states]
                .iter()
                .zip(&outputs)
                .map(|(initial, out)| initial.as_ref().and_then(|initial| join(initial.ty, out, fresh)))
                .collect::<Option<Vec<_>>>();
            states.map(|mut types| {
                let axis_of = |idx: usize| scan.scan_input_axes.get(idx).copied().unwrap_or(0);
                let length = (0..n_scanned)
                    .find_map(|idx| {
                        let shape = inputs[n_states + idx]?.ty.as_tensor()?.shape.as_ref()?;
                        let axis = planish_tensor::normalize_axis(axis_of(idx), shape.rank()).ok()?;
                        Some(shape.dims()[axis].clone())
                    })
                    .unwrap_or_else(|| fresh("scan_length"));
                for (idx, out) in outputs[n_states..].iter().enumerate() {
                    let axis = scan.scan_output_axes.get(idx).copied().unwrap_or(0);
                    types.push(stacked(out, axis, &length));
                }
                types
            })
        }
        Op::SequenceMap(_) => {
            let outputs = output_types(&node.bodies[0]);
            Some(outputs.into_iter().map(|ty| ValueType::Sequence(Box::new(of_every_element(ty)))).collect())
        }
        _ => Some(Vec::new()),
    };
    let types =
        types.ok_or_else(|| bad("the types of the bodies' outputs and of the inputs differ".into()))?;
    Ok(types.into_iter().map(|ty| Inferred { ty, content: None }).collect())
}

/// The condition of an If, where the contents tell it before any run.
fn known_condition(inputs: &[Option<InferInput<'_>>]) -> Option<bool> {
    let value = match inputs.first()?.as_ref()?.content? {
        Content::Tensor(tensor) if tensor.len() == 1 => tensor.to_i64s().first().copied(),
        Content::Ints(ints) if ints.dims.len() == 1 => ints.dims.first()?.as_const(),
        _ => None,
    };
    value.map(|value| value != 0)
}

/// That the condition of an If is one truth value.
fn check_condition(node: NodeParts<'_>, inputs: &[Option<InferInput<'_>>]) -> Result<(), GraphError> {
    let refuse = |kind, detail: String| {
        let error = InferError::new(node.op.name(), kind, detail);
        Err(GraphError::new(GraphErrorKind::Infer(error), node.name))
    };
    let Some(Some(condition)) = inputs.first() else {
        return refuse(InferErrorKind::MissingInput, "the condition is missing".into());
    };
    match condition.ty {
        ValueType::Tensor(tensor) if tensor.dtype == DType::Bool => {
            let count = tensor.shape.as_ref().and_then(|shape| shape.element_count().as_const());
            match count {
                None | Some(1) => Ok(()),
                Some(_) => {
                    refuse(InferErrorKind::BadShape, format!("the condition {tensor} is not one element"))
                }
            }
        }
        other => refuse(InferErrorKind::BadType, format!("the condition must be boolean, it is {other}")),
    }
}

/// That the body takes what the node hands it: formal inputs first, then the captured values as they are.
fn check_inputs(
    node: NodeParts<'_>,
    inputs: &[Option<InferInput<'_>>],
    body: &Graph,
    n_own: usize,
    n_formal: usize,
) -> Result<(), String> {
    let (found, expected) = (body.inputs().len(), n_formal + node.n_captured);
    if found != expected {
        return Err(format!("the body `{}` takes {found} inputs, {expected} are given", body.name));
    }
    let (formals, captured) = body.inputs().split_at(n_formal);
    for (idx, &id) in formals.iter().enumerate() {
        let formal = body.value(id);
        let given = inputs[..n_own].get(idx).copied().flatten().map(|input| input.ty);
        if let Some(given) = formal_mismatch(node.op, idx, given, &formal.ty) {
            let (name, ty) = (&formal.name, &formal.ty);
            return Err(format!("input `{name}` of the body is {ty}, {given} is given"));
        }
    }
    for (outer, &id) in inputs[n_own..].iter().zip(captured) {
        let inner = body.value(id);
        let outer = outer.ok_or_else(|| format!("what `{}` captures is absent", inner.name))?.ty;
        if !compatible(outer, &inner.ty) {
            return Err(format!("`{}` captures {}, outside it is {outer}", inner.name, inner.ty));
        }
    }
    Ok(())
}

/// What is handed to the formal input of type `inner`, if that is of another kind or element type. Shapes
/// may differ: they change from step to step.
fn formal_mismatch(op: &Op, idx: usize, outer: Option<&ValueType>, inner: &ValueType) -> Option<String> {
    let of_dtype = |dtype: DType| {
        let matches = inner.as_tensor().is_some_and(|tensor| tensor.dtype == dtype);
        (!matches).then(|| dtype.to_string())
    };
    match (op, idx, outer) {
        (Op::Loop(_), 0, _) => of_dtype(DType::I64),
        (Op::Loop(_), 1, _) => of_dtype(DType::Bool),
        (Op::SequenceMap(_), _, Some(ValueType::Sequence(element))) => {
            (!feeds(element, inner)).then(|| element.to_string())
        }
        (_, _, Some(outer)) => (!feeds(outer, inner)).then(|| outer.to_string()),
        (_, _, None) => Some("nothing".into()),
    }
}

/// Whether a value of type `outer` can be handed where `inner` is expected, shapes aside.
fn feeds(outer: &ValueType, inner: &ValueType) -> bool {
    match (outer, inner) {
        (ValueType::Tensor(outer), ValueType::Tensor(inner)) => outer.dtype == inner.dtype,
        (ValueType::Sequence(outer), ValueType::Sequence(inner)) => feeds(outer, inner),
        (ValueType::Optional(outer), ValueType::Optional(inner)) => feeds(outer, inner),
        (outer, ValueType::Optional(inner)) => feeds(outer, inner),
        _ => false,
    }
}

fn output_types(body: &Graph) -> Vec<&ValueType> {
    body.outputs().iter().map(|&id| &body.value(id).ty).collect()
}

/// The type that the elements of a mapped sequence share: a size that the body finds may differ in each.
fn of_every_element(ty: &ValueType) -> ValueType {
    let ValueType::Tensor(TensorType { dtype, shape: Some(shape) }) = ty else { return ty.clone() };
    let found_in_body = |dim: &Dim| dim.symbols().iter().any(|name| name.contains('\''));
    let dims = shape.iter().map(|dim| if found_in_body(dim) { Dim::UNKNOWN } else { dim.clone() });
    ValueType::tensor(*dtype, dims.collect())
}

/// The type of `element` stacked `length` times along a new axis (counted over the result's rank).
fn stacked(element: &ValueType, axis: i64, length: &Dim) -> ValueType {
    let ValueType::Tensor(tensor) = element else { return element.clone() };
    let shape = tensor.shape.as_ref().and_then(|shape| {
        let mut dims = shape.dims().to_vec();
        let axis = planish_tensor::normalize_axis(axis, dims.len() + 1).ok()?;
        dims.insert(axis, length.clone());
        Some(Shape::from_iter(dims))
    });
    ValueType::Tensor(TensorType { dtype: tensor.dtype, shape })
}

/// The type of a value that may come from either place; `None` if no type covers both.
pub fn join(a: &ValueType, b: &ValueType, fresh: Fresh<'_>) -> Option<ValueType> {
    match (a, b) {
        (ValueType::Tensor(a), ValueType::Tensor(b)) if a.dtype == b.dtype => {
            let shape = match (&a.shape, &b.shape) {
                (Some(a), Some(b)) if a.rank() == b.rank() => {
                    let dims = a.dims().iter().zip(b.dims());
                    Some(dims.map(|(a, b)| if a == b { a.clone() } else { fresh("either") }).collect())
                }
                _ => None,
            };
            Some(ValueType::Tensor(TensorType { dtype: a.dtype, shape }))
        }
        (ValueType::Sequence(a), ValueType::Sequence(b)) => {
            Some(ValueType::Sequence(Box::new(a.joined_element(b)?)))
        }
        (ValueType::Optional(a), ValueType::Optional(b)) => {
            Some(ValueType::Optional(Box::new(join(a, b, fresh)?)))
        }
        (ValueType::Optional(inner), other) | (other, ValueType::Optional(inner)) => {
            Some(ValueType::Optional(Box::new(join(inner, other, fresh)?)))
        }
        _ => None,
    }
}

/// `inferred` with an unknown rank taken from `hint`, its sizes left open. What a file declares of sizes is not taken
/// over: exporters write those of the run that they traced, and one name for sizes that differ.
pub(crate) fn ranked(inferred: ValueType, hint: &ValueType, fresh: Fresh<'_>) -> ValueType {
    match (inferred, hint) {
        (
            ValueType::Tensor(TensorType { dtype, shape: None }),
            ValueType::Tensor(TensorType { dtype: declared, shape: Some(hint) }),
        ) if dtype == *declared => {
            ValueType::tensor(dtype, (0..hint.rank()).map(|_| fresh("declared")).collect())
        }
        (own, _) => own,
    }
}

/// `before` with what `now` knows beyond it: a rank, numbers, and expressions of fewer run-time symbols. Other
/// symbols stay, so that the values which share them still do.
pub(crate) fn refine(before: ValueType, now: ValueType) -> ValueType {
    match (before, now) {
        (ValueType::Tensor(before), ValueType::Tensor(now)) => {
            let shape = match (before.shape, now.shape) {
                (Some(before), Some(now)) => {
                    let dims = before.into_iter().zip(now);
                    Some(dims.map(|(before, now)| refined_dim(before, now)).collect())
                }
                (before, now) => before.or(now),
            };
            ValueType::Tensor(TensorType { dtype: before.dtype, shape })
        }
        (before, _) => before,
    }
}

/// Whether `after` is `before`, or says more of sizes that only a run could tell before.
pub fn refines(before: &ValueType, after: &ValueType) -> bool {
    compatible(before, after) && refine(before.clone(), after.clone()) == *after
}

/// A size in fewer run-time symbols says more, and must be taken over: the value that such a symbol was read off may
/// have lost it the same way, and then nothing tells its size.
fn refined_dim(before: Dim, now: Dim) -> Dim {
    let n_fresh = |dim: &Dim| dim.symbols().iter().filter(|name| name.contains('\'')).count();
    let knows_more = before.is_unknown() || (!now.is_unknown() && n_fresh(&now) < n_fresh(&before));
    if before.as_const().is_none() && (now.as_const().is_some() || knows_more) { now } else { before }
}

/// Whether one value can have both types.
pub fn compatible(a: &ValueType, b: &ValueType) -> bool {
    match (a, b) {
        (ValueType::Tensor(a), ValueType::Tensor(b)) => {
            let shapes_fit = match (&a.shape, &b.shape) {
                (Some(a), Some(b)) => {
                    let fits = |(a, b): (&Dim, &Dim)| match (a.as_const(), b.as_const()) {
                        (Some(a), Some(b)) => a == b,
                        _ => true,
                    };
                    a.rank() == b.rank() && a.dims().iter().zip(b.dims()).all(fits)
                }
                _ => true,
            };
            a.dtype == b.dtype && shapes_fit
        }
        (ValueType::Sequence(a), ValueType::Sequence(b)) => compatible(a, b),
        (ValueType::Optional(a), ValueType::Optional(b)) => compatible(a, b),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use planish_op::If;
    use planish_tensor::Tensor;

    use super::*;
    use crate::graph::NewNode;

    #[test]
    fn a_rebuilt_value_keeps_its_symbols_and_learns_numbers() {
        // A word with a `'` is a symbol that a run finds, which the text form of shapes would quote.
        let dim = |text: &str| if text.contains('\'') { Dim::symbol(text) } else { text.parse().unwrap() };
        let ty = |text: &str| ValueType::tensor(DType::F32, text.split(',').map(dim).collect());
        assert_eq!(refine(ty("n,m'0,k'1,m'0"), ty("n'9,n'8,2*n,3")), ty("n,m'0,2*n,3"));
        // Not only where it stands alone: nothing else may know the symbol any more.
        let twice = |name: &str| {
            ValueType::tensor(DType::F32, [Dim::symbol(name) * Dim::from(2)].into_iter().collect())
        };
        assert_eq!(refine(twice("m'0"), ty("2*n")), ty("2*n"));
        assert_eq!(refine(twice("m'0"), twice("m'9")), twice("m'0"));
        assert!(refines(&ty("m'0,3"), &ty("n,3")) && refines(&ty("n,3"), &ty("n,3")));
        assert!(!refines(&ty("n,3"), &ty("m'0,3")) && !refines(&ty("n,3"), &ty("n,4")));
        assert_eq!(refine(ty("3,2*n"), ty("n,n'7")), ty("3,2*n"));
        assert_eq!(refine(ValueType::unranked(DType::F32), ty("n'3")), ty("n'3"));
        assert_eq!(refine(ty("4"), ValueType::unranked(DType::F32)), ty("4"));
    }

    /// The type of an If whose branches have different ranks, under this condition.
    fn chosen(condition: impl Fn(&mut Graph) -> crate::ValueId) -> String {
        let mut graph = Graph::new("chosen");
        let condition = condition(&mut graph);
        let branch = |name: &str, value: Tensor| {
            let mut body = Graph::new(name);
            let id = body.add_constant("value", value).unwrap();
            body.set_outputs(vec![id]);
            body
        };
        let bodies = vec![branch("then", Tensor::scalar(1f32)), branch("else", Tensor::vector(vec![1f32]))];
        let node = NewNode { bodies, ..NewNode::new("if", If {}, vec![Some(condition)], &["y"]) };
        graph.add_node(node).unwrap();
        graph.value(graph.find("y").unwrap()).ty.to_string()
    }

    #[test]
    fn joined_dimensions_are_fresh_outside_sequences_and_unknown_in_them() {
        let matrix = |rows: Dim| ValueType::tensor(DType::F32, [rows, Dim::from(3)].into_iter().collect());
        let (a, b) = (matrix(Dim::symbol("n")), matrix(Dim::symbol("m")));
        let mut fresh = |hint: &str| Dim::symbol(hint);
        assert_eq!(join(&a, &b, &mut fresh).unwrap().to_string(), "f32[either,3]");
        // One symbol for all elements would claim that they agree.
        let [a, b] = [a, b].map(|element| ValueType::Sequence(Box::new(element)));
        assert_eq!(join(&a, &b, &mut fresh).unwrap().to_string(), "seq(f32[unknown(),3])");
        let [a, b] = [a, b].map(|sequence| ValueType::Optional(Box::new(sequence)));
        assert_eq!(join(&a, &b, &mut fresh).unwrap().to_string(), "optional(seq(f32[unknown(),3]))");
        assert_eq!(join(&a, &a, &mut fresh).unwrap(), a);
    }

    #[test]
    fn a_known_condition_chooses_the_branch() {
        assert_eq!(chosen(|graph| graph.add_constant("c", Tensor::scalar(true)).unwrap()), "f32[]");
        assert_eq!(chosen(|graph| graph.add_constant("c", Tensor::vector(vec![false])).unwrap()), "f32[1]");
        let bool = ValueType::tensor(DType::Bool, Shape::scalar());
        assert_eq!(chosen(|graph| graph.add_input("c", bool.clone()).unwrap()), "f32[*]");
    }
}
