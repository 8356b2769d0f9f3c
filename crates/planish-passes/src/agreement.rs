//! Tests of passes by numbers: the interpreter gives the same outputs before and after.

use planish_ir::{Graph, interpret};
use planish_op::Value;
use planish_tensor::{DType, Tensor};
use planish_testing::Random;

use crate::driver::Pass;
use crate::rule::Rule;
use crate::testing::{graph, run};

/// What outputs may differ by, relative to 1 + their size: the graph before rounds to `f32` after every node
/// (half a unit is 6e-8), and the formulas have up to 20 nodes with factors up to about 3.
pub(crate) const ROUNDINGS: f64 = 4e-6;

/// Values drawn from here besides the special ones.
const RANGE: f64 = 3.0;

/// What goes into the graph inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feed<'a> {
    /// Sizes for the symbols.
    pub(crate) sizes: &'a [(&'a str, i64)],
    /// Numbers that stand among the random ones.
    pub(crate) special: &'a [f64],
}

/// Random numbers in a small range.
pub(crate) const PLAIN: Feed<'static> = Feed { sizes: &[], special: &[] };

/// Also what ONNX gives a meaning to: NaN, infinities, zeros and large numbers.
pub(crate) const SPECIAL: Feed<'static> = Feed {
    sizes: &[],
    special: &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 80.0, -80.0, 1e4, -1e4],
};

/// That the rule has something to rewrite and the outputs stay the same.
#[track_caller]
pub(crate) fn agrees(rule: impl Rule + Send + 'static, text: &str, feed: Feed<'_>) {
    let (after, report) = run(Pass::rule(rule), text);
    assert!(report.hits > 0, "nothing was rewritten: {:?}", report.refusals);
    same_outputs(&graph(text), &after, feed);
}

/// That the rule makes this graph of the text, and the outputs stay the same.
#[track_caller]
pub(crate) fn becomes(rule: impl Rule + Send + 'static, text: &str, wanted: &str, feed: Feed<'_>) {
    let (after, report) = run(Pass::rule(rule), text);
    let reasons: Vec<&str> = report.refusals.iter().map(|refusal| refusal.reason.as_str()).collect();
    assert_eq!((after.print_whole(), reasons), (graph(wanted).print_whole(), vec![]));
    same_outputs(&graph(text), &after, feed);
}

#[track_caller]
fn same_outputs(before: &Graph, after: &Graph, feed: Feed<'_>) {
    for seed in 1..=3 {
        let inputs = inputs(before, feed, seed);
        let expected = interpret(before, inputs.clone()).unwrap();
        let found = interpret(after, inputs).unwrap();
        assert_eq!(expected.len(), found.len());
        for (expected, found) in expected.iter().zip(&found) {
            same_value(expected, found);
        }
    }
}

#[track_caller]
fn same_value(expected: &Value, found: &Value) {
    let (Value::Tensor(expected), Value::Tensor(found)) = (expected, found) else {
        panic!("outputs of tests are tensors")
    };
    assert_eq!((expected.dtype(), expected.shape()), (found.dtype(), found.shape()));
    for (idx, (e, f)) in expected.to_f64s().into_iter().zip(found.to_f64s()).enumerate() {
        let is_same = (e.is_nan() && f.is_nan()) || e == f || (e - f).abs() <= ROUNDINGS * (1.0 + e.abs());
        assert!(is_same, "element {idx}: {f:e}, before {e:e}");
    }
}

fn inputs(graph: &Graph, feed: Feed<'_>, seed: u64) -> Vec<Value> {
    let mut random = Random::new(seed);
    let size = |name: &str| feed.sizes.iter().find(|(known, _)| *known == name).map(|(_, size)| *size);
    let mut make = |id: &planish_ir::ValueId| {
        let ty = graph.value(*id).ty.as_tensor().unwrap();
        let shape = ty.shape.as_ref().unwrap().eval(&size).expect("a size for every symbol");
        let n: usize = shape.iter().product();
        let values: Vec<f64> = (0..n)
            .map(|_| {
                let (place, value) = (random.unit(), random.unit());
                // One element in eight is special.
                let pick = (place * 8.0 * feed.special.len() as f64) as usize;
                match (ty.dtype, feed.special.get(pick)) {
                    (DType::Bool, _) => f64::from(value < 0.7),
                    (dtype, _) if dtype.is_int() => (value * 4.0).floor(),
                    (_, Some(&special)) => special,
                    (_, None) => (2.0 * value - 1.0) * RANGE,
                }
            })
            .collect();
        Value::from(Tensor::from_f64s(ty.dtype, &shape, &values).unwrap())
    };
    graph.inputs().iter().map(&mut make).collect()
}

/// That the rule leaves the graph as it is and gives this reason, at one node or at several.
#[track_caller]
pub(crate) fn refuses(rule: impl Rule + Send + 'static, text: &str, reason: &str) {
    let (after, report) = run(Pass::rule(rule), text);
    assert_eq!(graph(text).print_whole(), after.print_whole());
    let mut reasons: Vec<&str> = report.refusals.iter().map(|refusal| refusal.reason.as_str()).collect();
    reasons.dedup();
    assert_eq!(reasons, [reason]);
}

/// That the graph is not what the rule looks for: it stays as it is, without a refusal.
#[track_caller]
pub(crate) fn leaves(rule: impl Rule + Send + 'static, text: &str) {
    let (after, report) = run(Pass::rule(rule), text);
    assert_eq!(graph(text).print_whole(), after.print_whole());
    assert_eq!(report.refusals.len(), 0, "{:?}", report.refusals);
}
