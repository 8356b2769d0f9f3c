//! What must hold of any model: it ends in a typed error of one line, or in a graph that verifies, that comes back
//! the same from its text and from ONNX and, if it is small, can be run without a panic and to the types that
//! inference said.

use planish_import::{ImportErrorKind, export, import_bytes};
use planish_ir::{Graph, Node, interpret_with, parse};
use planish_op::{Op, Value, ValueType};
use planish_tensor::{Bytes, Tensor};

/// Graphs of more nodes are not run, nor are those with a value of more elements.
const MAX_NODES: usize = 64;
const MAX_ELEMENTS: usize = 1 << 10;
/// Loops that turn more often are not run, nor are counts in attributes that the work grows with.
const MAX_TURNS: i64 = 16;
/// The size of every dimension that is a symbol.
const SYMBOL: i64 = 2;

/// How far a model came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Refused,
    Imported,
    Run,
}

/// Does everything with a model that can be done. `declares` tells that the file may declare types that it does
/// not have: then only what inference said for itself would count, which nobody can tell apart.
pub fn check(file: Vec<u8>, declares: bool) -> Outcome {
    let imported = match import_bytes(&Bytes::from_vec(file), None) {
        Ok(imported) => imported,
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains('\n') && text.len() < 4000, "{text:?}");
            return Outcome::Refused;
        }
    };
    let graph = imported.graph;
    graph.verify().expect("an imported graph");
    let printed = graph.print();
    let back = parse(&printed.text, &printed.constants).expect("a printed graph");
    graph.same_as(&back).expect("the same graph");
    let exported = match export(&graph) {
        Ok(file) => Some(import_bytes(&Bytes::from_vec(file), None).expect("an exported graph").graph),
        Err(error) if matches!(error.kind(), ImportErrorKind::NotExpressible { .. }) => None,
        Err(error) => panic!("an imported graph cannot be exported: {error}"),
    };
    let Some(inputs) = inputs(&graph).filter(|_| is_small(&graph)) else { return Outcome::Imported };
    let Some(outputs) = run(&graph, inputs.clone(), !declares) else { return Outcome::Imported };
    if let Some(exported) = exported {
        let again = run(&exported, inputs, !declares).expect("what ran before");
        assert_eq!(again, outputs, "an exported graph means something else");
    }
    Outcome::Run
}

fn run(graph: &Graph, inputs: Vec<Value>, checks_types: bool) -> Option<Vec<Value>> {
    // Bodies are observed too, and their nodes belong to other graphs: only this graph's are looked at.
    let mut check = |node: &Node, outputs: &[Option<&Value>]| {
        let own = checks_types && graph.nodes().any(|(_, own)| std::ptr::eq(own, node));
        for (id, value) in node.outputs.iter().zip(outputs).filter(|_| own) {
            if let (Some(id), Some(value)) = (id, value) {
                let info = graph.value(*id);
                assert!(has_type(value, &info.ty), "{} says {} of {value:?}", node.op.name(), info.ty);
            }
        }
    };
    interpret_with(graph, inputs, &planish_op::Limits::default(), &mut check).ok()
}

/// Whether a run cannot take long.
fn is_small(graph: &Graph) -> bool {
    graph.nodes().len() <= MAX_NODES
        && graph.values().all(|(_, value)| is_small_type(&value.ty))
        && graph.nodes().all(|(_, node)| turns(graph, node) && node.bodies.iter().all(is_small))
}

fn turns(graph: &Graph, node: &Node) -> bool {
    match &node.op {
        Op::Loop(_) => node.inputs.first().copied().flatten().is_some_and(|id| {
            let count = graph.value(id).constant().map(Tensor::to_i64s);
            count.is_some_and(|count| count.iter().all(|&count| count <= MAX_TURNS))
        }),
        Op::RoiAlign(op) => op.sampling_ratio <= MAX_TURNS,
        Op::TfIdfVectorizer(op) => op.max_skip_count <= MAX_TURNS && op.max_gram_length <= MAX_TURNS,
        _ => true,
    }
}

fn is_small_type(ty: &ValueType) -> bool {
    match ty {
        ValueType::Tensor(tensor) => {
            // A symbol of an input has the size that it is given; one that a run finds out has any.
            let size = |name: &str| (!name.contains('\'')).then_some(SYMBOL);
            let fixed = tensor.shape.as_ref().and_then(|shape| shape.eval(&size));
            fixed
                .and_then(|dims| planish_tensor::element_count(&dims))
                .is_some_and(|count| count <= MAX_ELEMENTS)
        }
        ValueType::Sequence(element) | ValueType::Optional(element) => is_small_type(element),
    }
}

fn inputs(graph: &Graph) -> Option<Vec<Value>> {
    let value = |ty: &ValueType| {
        let tensor = ty.as_tensor()?;
        let dims = tensor.shape.as_ref()?.eval(&|_| Some(SYMBOL))?;
        let count = planish_tensor::element_count(&dims)?;
        let values: Vec<f64> = (0..count).map(|idx| (idx % 5) as f64 - 1.0).collect();
        Tensor::from_f64s(tensor.dtype, &dims, &values).ok().map(Value::from)
    };
    graph.inputs().iter().map(|&id| value(&graph.value(id).ty)).collect()
}

/// Whether inference, which may leave things open, was right.
fn has_type(value: &Value, ty: &ValueType) -> bool {
    match (value, ty) {
        (Value::Tensor(tensor), ValueType::Tensor(ty)) => {
            let fits = ty.shape.as_ref().is_none_or(|shape| {
                let same = |(dim, &size): (&planish_tensor::Dim, &usize)| {
                    dim.as_const().is_none_or(|_| dim.as_usize() == Some(size))
                };
                shape.rank() == tensor.rank() && shape.iter().zip(tensor.shape()).all(same)
            });
            tensor.dtype() == ty.dtype && fits
        }
        (Value::Sequence(values), ValueType::Sequence(ty)) => values.iter().all(|value| has_type(value, ty)),
        (Value::Optional(value), ValueType::Optional(ty)) => {
            value.as_ref().is_none_or(|value| has_type(value, ty))
        }
        _ => false,
    }
}
