//! The text form: what it looks like, that it comes back, and where its errors point.

mod errors;
mod forms;
mod random;

use planish_op::ValueType;
use planish_op::infer::Content;

use crate::graph::{Declared, Graph, NewNode, NewOutput};
use crate::id::ValueId;

fn ty(text: &str) -> ValueType {
    super::cursor::Cursor::new(text).value_type().unwrap()
}

/// A node with exact types for its outputs; `_` skips one.
fn node(
    name: &str,
    op: impl Into<planish_op::Op>,
    inputs: &[Option<ValueId>],
    outputs: &[(&str, &str)],
) -> NewNode {
    let output = |(name, text): &(&str, &str)| match *name {
        "_" => NewOutput::Skip,
        name => NewOutput::Value { name: name.into(), declared: Declared::Exact(ty(text)) },
    };
    NewNode {
        name: name.into(),
        op: op.into(),
        inputs: inputs.to_vec(),
        outputs: outputs.iter().map(output).collect(),
        bodies: Vec::new(),
        n_captured: 0,
    }
}

/// Both printed forms parse back to the same graph, and printing that gives the same text.
#[track_caller]
fn comes_back(graph: &Graph) {
    graph.verify().unwrap();
    let printed = graph.print();
    let back = super::parse(&printed.text, &printed.constants).unwrap_or_else(|error| {
        panic!("{error} in\n{}", printed.text);
    });
    back.verify().unwrap();
    graph.same_as(&back).unwrap();
    assert_eq!(back.print(), printed);
    same_contents(graph, &back);
    let whole: Graph = graph.print_whole().parse().unwrap();
    graph.same_as(&whole).unwrap();
    assert_eq!(whole.print_whole(), graph.print_whole());
}

/// What inference knew before is known again, but for the names of symbols that it makes itself.
#[track_caller]
fn same_contents(a: &Graph, b: &Graph) {
    for (_, value) in a.values() {
        let other = b.find(&value.name).map(|id| b.value(id));
        if let Some(Content::Ints(ints)) = &value.content {
            if ints.dims.iter().any(|dim| dim.symbols().iter().any(|name| name.contains('\''))) {
                continue;
            }
            let there = other.and_then(|other| other.content.as_ref());
            assert!(matches!(there, Some(Content::Ints(other)) if other == ints), "{ints:?} {there:?}\n{a}");
        }
    }
    for ((_, a), (_, b)) in a.nodes().zip(b.nodes()) {
        a.bodies.iter().zip(&b.bodies).for_each(|(a, b)| same_contents(a, b));
    }
}
