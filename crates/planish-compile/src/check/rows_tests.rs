//! Rows followed through small graphs: where they stay apart, where they are mixed.

use planish_ir::{Graph, ValueId};

use super::rows::{Rows, follow};

/// Follows the rows of inputs that begin with `n`, at five rows.
fn rows(body: &str) -> Result<Vec<Rows>, String> {
    let graph: Graph = format!("graph \"g\" {{ {body} }}").parse().unwrap();
    let lookup = |name: &str| (name == "n").then_some(5);
    let dims = |id: ValueId| graph.value(id).ty.as_tensor().and_then(|ty| ty.shape.as_ref()?.eval(&lookup));
    let has_rows = |id: ValueId| graph.value(id).ty.to_string().starts_with("f32[n");
    let rows = follow(&graph, 5, &has_rows, &dims)?;
    Ok(graph.outputs().iter().map(|id| rows[id.index()]).collect())
}

#[track_caller]
fn apart(body: &str, axis: usize) {
    assert_eq!(rows(body), Ok(vec![Rows::Along(axis)]), "{body}");
}

#[track_caller]
fn mixed(body: &str) {
    assert!(rows(body).is_err_and(|why| why.ends_with("mixes rows, or may")), "{body}");
}

#[test]
fn element_by_element_rows_stay_apart() {
    apart("input %x: f32[n, 4] %y: f32[n, 4] = Relu(%x) output %y", 0);
    apart("input %x: f32[n, 4] input %z: f32[4] %y: f32[n, 4] = Add(%x, %z) output %y", 0);
    // Rows along the last axis of one and the first of the other meet everywhere.
    mixed("input %x: f32[n, 1] input %z: f32[n] %y: f32[n, n] = Add(%x, %z) output %y");
}

#[test]
fn products_mix_what_they_sum_over() {
    apart(
        "input %x: f32[n, 4] const %w: f32[4, 2] = [1,1,1,1,1,1,1,1] %y: f32[n, 2] = MatMul(%x, %w) output %y",
        0,
    );
    apart("input %x: f32[n, 3, 4] input %z: f32[n, 4, 2] %y: f32[n, 3, 2] = MatMul(%x, %z) output %y", 0);
    apart("input %x: f32[2, 4] input %z: f32[n, 4, 3] %y: f32[n, 2, 3] = MatMul(%x, %z) output %y", 0);
    mixed("input %x: f32[3, 5] input %z: f32[n, 2] %y: f32[3, 2] = MatMul(%x, %z) output %y");
    mixed(
        "input %x: f32[n, 4] %t: f32[4, n] = Transpose(%x) { perm = [1, 0] } %y: f32[n, n] = MatMul(%x, %t) output %y",
    );
}

#[test]
fn reductions_and_norms_go_by_their_axes() {
    apart("input %x: f32[n, 4] %y: f32[n, 4] = Softmax(%x) { axis = 1 } output %y", 0);
    mixed("input %x: f32[n, 4] %y: f32[n, 4] = Softmax(%x) { axis = 0 } output %y");
    let sum = |axes: &str, shape: &str| {
        format!(
            "input %x: f32[n, 4, 3] const %a: i64[1] = [{axes}]
             %y: f32{shape} = ReduceSum(%x, %a) {{ keepdims = false }} output %y"
        )
    };
    apart(&sum("1", "[n, 3]"), 0);
    apart(&sum("-1", "[n, 4]"), 0);
    mixed(&sum("0", "[4, 3]"));
    mixed("input %x: f32[n, 4] %y: f32[1, 1] = ReduceSum(%x) output %y");
}

#[test]
fn rows_move_with_their_axis() {
    apart("input %x: f32[n, 4, 3] %y: f32[4, 3, n] = Transpose(%x) { perm = [1, 2, 0] } output %y", 2);
    // Blocks of four along the first axis, and back.
    apart("input %x: f32[n, 4, 3] const %s: i64[2] = [-1, 3] %y: f32[4*n, 3] = Reshape(%x, %s) output %y", 0);
    apart(
        "input %x: f32[n, 4, 3] const %s: i64[4] = [1, -1, 2, 6] %y: f32[1, n, 2, 6] = Reshape(%x, %s) output %y",
        1,
    );
    // Rows after an axis that is taken apart are no longer blocks of one.
    mixed(
        "input %x: f32[n, 4] %t: f32[4, n] = Transpose(%x) { perm = [1, 0] } const %s: i64[1] = [-1]
         %y: f32[4*n] = Reshape(%t, %s) output %y",
    );
    mixed("input %x: f32[n, 4] input %z: f32[n, 4] %y: f32[2*n, 4] = Concat(%x, %z) { axis = 0 } output %y");
    apart("input %x: f32[n, 4] input %z: f32[n, 4] %y: f32[n, 8] = Concat(%x, %z) { axis = 1 } output %y", 0);
}

#[test]
fn slices_of_the_batch_are_mixed_and_shapes_are_shared() {
    let slice = |axis: usize, shape: &str| {
        format!(
            "input %x: f32[n, 4] const %b: i64[1] = [0] const %e: i64[1] = [2] const %a: i64[1] = [{axis}]
             %y: f32{shape} = Slice(%x, %b, %e, %a) output %y"
        )
    };
    apart(&slice(1, "[n, 2]"), 0);
    assert!(rows(&slice(0, "[min(2,n), 4]")).is_err());
    assert_eq!(rows("input %x: f32[n, 4] %y: i64[2] = Shape(%x) output %y"), Ok(vec![Rows::Shared]));
}

#[test]
fn operators_without_a_rule_count_as_mixing() {
    let why = rows("input %x: f32[n, 4, 4] %y: f32[n] = Det(%x) output %y").unwrap_err();
    assert!(why.contains("(Det) mixes rows, or may"), "{why}");
}
