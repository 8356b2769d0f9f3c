//! Tests of passes: text in, text out.

use expect_test::Expect;
use planish_ir::Graph;
use planish_op::Value;
use planish_tensor::Tensor;

use crate::driver::{Options, Pass, Pipeline};
use crate::report::PassReport;
use crate::rule::Rule;

/// The graph of a text that holds all of its constants. `graph "g" { … }` around it may be left out.
#[track_caller]
pub(crate) fn graph(text: &str) -> Graph {
    let whole = match text.trim_start().starts_with("graph") {
        true => text.to_string(),
        false => format!("graph \"g\" {{ {text} }}"),
    };
    let graph: Graph = whole.parse().unwrap_or_else(|error| panic!("{error} in\n{whole}"));
    graph.verify().unwrap_or_else(|error| panic!("{error} in\n{whole}"));
    graph
}

/// What a pass makes of the graph, verified, and its report.
#[track_caller]
pub(crate) fn run(pass: Pass, before: &str) -> (Graph, PassReport) {
    let before = graph(before);
    let options = Options { explain: true, verify_each: true, ..Options::default() };
    let name = pass.name();
    let (after, mut report) = Pipeline::new(vec![pass])
        .run(before.clone(), &options)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    same_interface(&before, &after);
    (after, report.passes.remove(0))
}

/// That the graph becomes the expected one: statements only, one a line, and `refused` lines after them.
#[track_caller]
pub(crate) fn check(rule: impl Rule + Send + 'static, before: &str, after: Expect) {
    check_pass(Pass::rule(rule), before, after);
}

/// [`check`], and that the outputs stay what they were.
#[track_caller]
pub(crate) fn check_same(rule: impl Rule + Send + 'static, before: &str, expected: Expect) {
    let (after, report) = run(Pass::rule(rule), before);
    assert!(report.hits > 0, "nothing was rewritten in {before}");
    expect_text(&after, &report, expected);
    assert_same_outputs(&graph(before), &after);
}

/// [`check`] for any kind of pass.
#[track_caller]
pub(crate) fn check_pass(pass: Pass, before: &str, after: Expect) {
    let (graph, report) = run(pass, before);
    expect_text(&graph, &report, after);
}

#[track_caller]
fn expect_text(graph: &Graph, report: &PassReport, expected: Expect) {
    let text = graph.print_whole();
    let lines: Vec<&str> = text.lines().collect();
    // The first and last line are the braces around the statements.
    let statements = lines[1..lines.len() - 1].iter().map(|line| line.strip_prefix("  ").unwrap_or(line));
    let mut shown: String = statements.map(|line| format!("{line}\n")).collect();
    for refusal in &report.refusals {
        shown.push_str(&format!("refused at {}: {}\n", refusal.node, refusal.reason));
    }
    expected.assert_eq(&shown);
}

/// That names, types and order of inputs and outputs are the same; of sizes that only a run could tell, outputs may
/// say more.
#[track_caller]
pub(crate) fn same_interface(before: &Graph, after: &Graph) {
    let list = |graph: &Graph, ids: &[planish_ir::ValueId]| -> Vec<String> {
        ids.iter().map(|id| format!("{}: {}", graph.value(*id).name, graph.value(*id).ty)).collect()
    };
    assert_eq!(list(before, before.inputs()), list(after, after.inputs()), "inputs changed");
    let of = |graph: &Graph, id: &planish_ir::ValueId| graph.value(*id).clone();
    let is_same = |(old, new): (&planish_ir::ValueId, &planish_ir::ValueId)| {
        let (old, new) = (of(before, old), of(after, new));
        old.name == new.name && planish_ir::refines(&old.ty, &new.ty)
    };
    let (old, new) = (before.outputs(), after.outputs());
    assert!(
        old.len() == new.len() && old.iter().zip(new).all(is_same),
        "outputs changed from {:?} to {:?}",
        list(before, old),
        list(after, new)
    );
}

/// That a pass takes the node away which makes `value`, the graph's only output after a Neg.
#[track_caller]
pub(crate) fn removed(rule: impl Rule + Send + 'static, statements: &str, value: &str) {
    let (graph, _) = run(Pass::rule(rule), &read_by_neg(statements, value));
    let left: Vec<&str> = graph.nodes().map(|(_, node)| node.op.name()).collect();
    assert_eq!(left, ["Neg"], "left of {statements}");
}

/// That a pass leaves everything as it is, refusing with this reason (empty: without any).
#[track_caller]
pub(crate) fn kept(rule: impl Rule + Send + 'static, statements: &str, value: &str, reason: &str) {
    let (_, report) = run(Pass::rule(rule), &read_by_neg(statements, value));
    assert_eq!(report.hits, 0, "{statements}");
    let reasons: Vec<&str> = report.refusals.iter().map(|refusal| &*refusal.reason).collect();
    assert_eq!(reasons, if reason.is_empty() { vec![] } else { vec![reason] }, "{statements}");
}

/// The statements with an output that reads `value`, so that its node is not an output itself.
fn read_by_neg(statements: &str, value: &str) -> String {
    let probe = graph(&format!("{statements} output %{value}"));
    let ty = &probe.value(probe.outputs()[0]).ty;
    let op =
        if ty.as_tensor().is_some_and(|ty| ty.dtype == planish_tensor::DType::Bool) { "Not" } else { "Neg" };
    format!("{statements} %result: {ty} = {op}(%{value}) output %result")
}

/// Relative distance of elements before and after a pass that folds constants: a weight is rounded once more
/// (6e-8), and the sums of the tests have few terms.
const ROUNDING: f64 = 1e-6;

/// Runs a pass and checks that the graphs give the same outputs on seeded inputs; gives both graphs.
#[track_caller]
pub(crate) fn same_outputs(rule: impl Rule + Send + 'static, before: &str) -> (Graph, Graph) {
    let (after, report) = run(Pass::rule(rule), before);
    assert!(report.hits > 0, "nothing was rewritten in {before}");
    let before = graph(before);
    assert_same_outputs(&before, &after);
    (before, after)
}

/// That two graphs give the same outputs on seeded inputs. Open dimensions get small sizes.
#[track_caller]
pub(crate) fn assert_same_outputs(before: &Graph, after: &Graph) {
    let inputs: Vec<Value> = before.inputs().iter().map(|id| input(&before.value(*id).ty)).collect();
    let expected = planish_ir::interpret(before, inputs.clone()).unwrap();
    let actual = planish_ir::interpret(after, inputs).unwrap_or_else(|error| panic!("{error} in {after}"));
    for (actual, expected) in actual.iter().zip(&expected) {
        let (Value::Tensor(actual), Value::Tensor(expected)) = (actual, expected) else {
            panic!("not tensors");
        };
        assert_eq!((actual.dtype(), actual.shape()), (expected.dtype(), expected.shape()));
        for (a, e) in actual.to_f64s().into_iter().zip(expected.to_f64s()) {
            let is_same = a == e || (a.is_nan() && e.is_nan());
            assert!(is_same || (a - e).abs() <= ROUNDING * e.abs().max(1.0), "{a}, expected {e} in\n{after}");
        }
    }
}

/// Small numbers of either sign that differ from place to place; whole for integers.
fn input(ty: &planish_op::ValueType) -> Value {
    let ty = ty.as_tensor().expect("inputs of these tests are tensors");
    let shape = ty.shape.as_ref().expect("inputs of these tests have a rank");
    let shape = shape.eval(&|name| Some(2 + name.len() as i64)).expect("every symbol has a size");
    let count: usize = shape.iter().product();
    let number = |place: usize| ((place * 37 + 11) % 23) as f64 / 4.0 - 2.5;
    let numbers: Vec<f64> = (0..count).map(number).collect();
    Tensor::from_f64s(ty.dtype, &shape, &numbers).expect("the count fits the shape").into()
}
