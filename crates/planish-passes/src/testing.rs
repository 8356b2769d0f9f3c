//! Tests of passes: text in, text out.

use expect_test::Expect;
use planish_ir::Graph;

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

/// That the graph becomes the expected one: statements only, one a line, and `refused` lines behind them.
#[track_caller]
pub(crate) fn check(rule: impl Rule + Send + 'static, before: &str, after: Expect) {
    check_pass(Pass::rule(rule), before, after);
}

/// [`check`] for any kind of pass.
#[track_caller]
pub(crate) fn check_pass(pass: Pass, before: &str, after: Expect) {
    let (graph, report) = run(pass, before);
    let text = graph.print_whole();
    let lines: Vec<&str> = text.lines().collect();
    // The first and last line are the braces around the statements.
    let statements = lines[1..lines.len() - 1].iter().map(|line| line.strip_prefix("  ").unwrap_or(line));
    let mut shown: String = statements.map(|line| format!("{line}\n")).collect();
    for refusal in &report.refusals {
        shown.push_str(&format!("refused at {}: {}\n", refusal.node, refusal.reason));
    }
    after.assert_eq(&shown);
}

/// That names, types and order of inputs and outputs are the same.
#[track_caller]
pub(crate) fn same_interface(before: &Graph, after: &Graph) {
    let list = |graph: &Graph, ids: &[planish_ir::ValueId]| -> Vec<String> {
        ids.iter().map(|id| format!("{}: {}", graph.value(*id).name, graph.value(*id).ty)).collect()
    };
    assert_eq!(list(before, before.inputs()), list(after, after.inputs()), "inputs changed");
    assert_eq!(list(before, before.outputs()), list(after, after.outputs()), "outputs changed");
}
