//! Any text as a graph: it ends in a typed error or in a graph that verifies, prints and comes back.

#![no_main]

use libfuzzer_sys::fuzz_target;
use planish_ir::{Graph, parse};

fuzz_target!(|text: &str| {
    let Ok(graph) = text.parse::<Graph>() else { return };
    graph.verify().expect("a parsed graph");
    let printed = graph.print();
    let back = parse(&printed.text, &printed.constants).expect("a printed graph");
    graph.same_as(&back).expect("the same graph");
    assert_eq!(back.print(), printed);
    let whole: Graph = graph.print_whole().parse().expect("a graph printed whole");
    graph.same_as(&whole).expect("the same graph");
});
