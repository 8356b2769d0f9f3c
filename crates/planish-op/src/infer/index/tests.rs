//! Shapes, contents and refusals of the index rules.

use planish_tensor::Tensor;

use crate::infer::testing::{Input, constant, inferred, ints, numbers, of, output, outputs};
use crate::infer::{InferErrorKind, testing};
use crate::*;

type Outcome = Result<String, InferErrorKind>;

fn is(text: &str) -> Outcome {
    Ok(text.to_string())
}

fn column(values: &[i64]) -> Input {
    constant(Tensor::new(&[values.len(), 1], values.to_vec()).unwrap())
}

/// The known elements of the only output.
fn elements(op: impl Into<Op>, inputs: &[Input]) -> Option<String> {
    testing::elements(&inferred(op, inputs, 1).unwrap()[0])
}

#[test]
fn gather_replaces_an_axis() {
    let gather = |axis, data: &str, index: Input| output(Gather { axis }, &[of(data), index]);
    assert_eq!(gather(0, "f32[v,768]", of("i64[b,s]")), is("f32[b,s,768]"));
    assert_eq!(gather(-1, "f32[a,b]", of("i64[]")), is("f32[a]"));
    assert_eq!(gather(0, "f32[a,b]", of("i64[*]")), is("f32[*]"));
    assert_eq!(gather(0, "f32[]", of("i64[]")), Err(InferErrorKind::BadAttribute));
    assert_eq!(gather(0, "f32[3]", numbers(&[-4])), Err(InferErrorKind::BadShape));
    assert_eq!(gather(0, "f32[3]", of("f32[]")), Err(InferErrorKind::BadType));
    let list = ints(&["a", "b", "c"]);
    assert_eq!(elements(Gather { axis: 0 }, &[list.clone(), numbers(&[-1, 0])]), Some("c,a".into()));
    assert_eq!(elements(Gather { axis: 0 }, &[list, of("i64[2]")]), None);
    let grid = constant(Tensor::new(&[2, 2], vec![1i64, 2, 3, 4]).unwrap());
    assert_eq!(elements(Gather { axis: 1 }, &[grid, numbers(&[1])]), Some("2,4".into()));
}

#[test]
fn gather_elements_is_like_the_indices() {
    let gather = |data: &str, index: &str| output(GatherElements { axis: 1 }, &[of(data), of(index)]);
    assert_eq!(gather("f32[a,b]", "i64[a,2]"), is("f32[a,2]"));
    assert_eq!(gather("f32[a,b]", "i64[*]"), is("f32[gather0,gather1]"));
    assert_eq!(gather("f32[*]", "i64[*]"), is("f32[*]"));
    assert_eq!(gather("f32[2,3]", "i64[3,9]"), Err(InferErrorKind::BadShape));
    assert_eq!(gather("f32[2,3]", "i64[3]"), Err(InferErrorKind::BadShape));
    assert_eq!(gather("f32[2]", "i64[2]"), Err(InferErrorKind::BadAttribute));
    let inputs = [ints(&["a", "b"]), numbers(&[1, 1, -2])];
    assert_eq!(elements(GatherElements { axis: 0 }, &inputs), Some("b,b,a".into()));
}

#[test]
fn gather_nd_joins_tuples_and_rests() {
    let gather =
        |batch_dims, data: &str, index: &str| output(GatherND { batch_dims }, &[of(data), of(index)]);
    assert_eq!(gather(0, "f32[a,b,c]", "i64[n,2]"), is("f32[n,c]"));
    assert_eq!(gather(1, "f32[a,b,c]", "i64[a,n,1]"), is("f32[a,n,c]"));
    assert_eq!(gather(1, "f32[2,b,c]", "i64[a,1]"), is("f32[2,c]"));
    assert_eq!(gather(0, "f32[a,b]", "i64[n,k]"), is("f32[*]"));
    assert_eq!(gather(0, "f32[a,b]", "i64[n,3]"), Err(InferErrorKind::BadShape));
    assert_eq!(gather(1, "f32[2,b]", "i64[3,1]"), Err(InferErrorKind::BadShape));
    assert_eq!(gather(2, "f32[2,b]", "i64[2,b,1]"), Err(InferErrorKind::BadShape));
    assert_eq!(gather(0, "f32[2,b]", "i64[]"), Err(InferErrorKind::BadShape));
    assert_eq!(gather(-1, "f32[2,b]", "i64[2]"), Err(InferErrorKind::BadAttribute));
    let inputs = [ints(&["a", "b", "c"]), column(&[2, -3])];
    assert_eq!(elements(GatherND { batch_dims: 0 }, &inputs), Some("c,a".into()));
}

#[test]
fn scatters_are_like_the_data() {
    let none = ScatterReduction::None;
    let op = |reduction| ScatterElements { reduction, axis: 0 };
    let by_element =
        |data: &str, index: &str, updates: &str| output(op(none), &[of(data), of(index), of(updates)]);
    assert_eq!(by_element("f32[n,3]", "i64[1,2]", "f32[1,2]"), is("f32[n,3]"));
    assert_eq!(by_element("f32[*]", "i64[1,2]", "f32[1,2]"), is("f32[*]"));
    assert_eq!(by_element("f32[n,3]", "i64[1,2]", "f32[1,3]"), Err(InferErrorKind::BadShape));
    assert_eq!(by_element("f32[n,3]", "i64[1,2]", "i64[1,2]"), Err(InferErrorKind::BadType));
    let list = [ints(&["a", "b", "c"]), numbers(&[1, -1]), ints(&["x", "7"])];
    assert_eq!(elements(op(none), &list), Some("a,x,7".into()));
    assert_eq!(elements(op(ScatterReduction::Add), &list), None);
    let nd = |data: &str, index: &str, updates: &str| {
        output(ScatterND { reduction: none }, &[of(data), of(index), of(updates)])
    };
    assert_eq!(nd("f32[n,3]", "i64[k,1]", "f32[k,3]"), is("f32[n,3]"));
    assert_eq!(nd("f32[n,3]", "i64[k,1]", "f32[k,4]"), Err(InferErrorKind::BadShape));
    assert_eq!(nd("f32[n,3]", "i64[k,1]", "f32[k]"), Err(InferErrorKind::BadShape));
    let list = [ints(&["a", "b", "c"]), column(&[2, 0]), ints(&["x", "y"])];
    assert_eq!(elements(ScatterND { reduction: none }, &list), Some("y,b,x".into()));
}

#[test]
fn tensor_scatter_is_like_the_cache() {
    let update = |axis, inputs: &[&str]| {
        let op = TensorScatter { mode: TensorScatterMode::Linear, axis };
        output(op, &inputs.iter().map(|text| of(text)).collect::<Vec<_>>())
    };
    assert_eq!(update(-2, &["f32[b,h,64,8]", "f32[b,h,s,8]", "i64[b]"]), is("f32[b,h,64,8]"));
    assert_eq!(update(-2, &["f32[b,4,8]", "f32[b,5,8]"]), Err(InferErrorKind::BadShape));
    assert_eq!(update(-2, &["f32[b,4,8]", "f32[b,4,7]"]), Err(InferErrorKind::BadShape));
    assert_eq!(update(-2, &["f32[2,4,8]", "f32[2,4,8]", "i64[3]"]), Err(InferErrorKind::BadShape));
    assert_eq!(update(0, &["f32[b,4]", "f32[b,4]"]), Err(InferErrorKind::BadAttribute));
}

#[test]
fn one_hot_inserts_the_depth() {
    let hot = |axis, depth: Input| output(OneHot { axis }, &[of("i64[n,2]"), depth, of("f32[2]")]);
    assert_eq!(hot(-1, constant(Tensor::scalar(10i64))), is("f32[n,2,10]"));
    assert_eq!(hot(0, constant(Tensor::vector(vec![10.7f32]))), is("f32[10,n,2]"));
    assert_eq!(hot(1, of("i64[]")), is("f32[n,depth0,2]"));
    assert_eq!(hot(1, ints(&["k"])), is("f32[n,k,2]"));
    assert_eq!(hot(3, of("i64[]")), Err(InferErrorKind::BadAttribute));
    assert_eq!(hot(0, numbers(&[-3])), Err(InferErrorKind::BadShape));
    let three = [of("i64[n]"), numbers(&[2]), of("f32[3]")];
    assert_eq!(output(OneHot { axis: 0 }, &three), Err(InferErrorKind::BadShape));
}

#[test]
fn searches_find_an_unknown_number() {
    let condition = constant(Tensor::vector(vec![true, false, true]));
    let compress = |axis, condition: Input| output(Compress { axis }, &[of("f32[3,n]"), condition]);
    assert_eq!(compress(Some(0), condition.clone()), is("f32[2,n]"));
    assert_eq!(compress(None, condition), is("f32[2]"));
    assert_eq!(compress(Some(-1), of("bool[k]")), is("f32[3,compress0]"));
    assert_eq!(compress(None, of("i64[k]")), Err(InferErrorKind::BadType));
    assert_eq!(output(NonZero {}, &[of("f32[n,3]")]), is("i64[2,nonzero0]"));
    assert_eq!(output(NonZero {}, &[of("f32[]")]), is("i64[0,nonzero0]"));
    assert_eq!(output(NonZero {}, &[numbers(&[0, 5, 7])]), is("i64[1,2]"));
    assert_eq!(elements(NonZero {}, &[numbers(&[0, 5, 7])]), Some("1,2".into()));
    let unique = |axis, n| outputs(Unique { axis, sorted: true }, &[of("f32[n,3]")], n);
    let texts = |texts: &[&str]| Ok(texts.iter().map(|text| text.to_string()).collect::<Vec<_>>());
    assert_eq!(unique(None, 4), texts(&["f32[unique0]", "i64[unique0]", "i64[3*n]", "i64[unique0]"]));
    assert_eq!(unique(Some(0), 3), texts(&["f32[unique0,3]", "i64[unique0]", "i64[n]"]));
    assert_eq!(unique(Some(2), 1), Err(InferErrorKind::BadAttribute));
}

#[test]
fn top_k_takes_k() {
    let top =
        |data: &str, k: Input| outputs(TopK { sorted: true, largest: true, axis: -1 }, &[of(data), k], 2);
    let both = |values: &str, indices: &str| Ok(vec![values.to_string(), indices.to_string()]);
    assert_eq!(top("f32[n,9]", numbers(&[4])), both("f32[n,4]", "i64[n,4]"));
    assert_eq!(top("f32[n,m]", ints(&["min(3,m)"])), both("f32[n,min(3,m)]", "i64[n,min(3,m)]"));
    assert_eq!(top("f32[n,9]", of("i64[1]")), both("f32[n,topk0]", "i64[n,topk0]"));
    assert_eq!(top("f32[*]", numbers(&[4])), both("f32[*]", "i64[*]"));
    assert_eq!(top("f32[n,3]", numbers(&[4])), Err(InferErrorKind::BadShape));
    assert_eq!(top("f32[n,3]", numbers(&[-4])), Err(InferErrorKind::BadShape));
    assert_eq!(top("f32[n,3]", numbers(&[1, 1])), Err(InferErrorKind::BadShape));
    assert_eq!(top("bool[n,3]", numbers(&[1])), Err(InferErrorKind::BadType));
}

#[test]
fn n_grams_have_a_column_each() {
    let op = TfIdfVectorizer {
        mode: TfIdfMode::Tf,
        ngram_indexes: vec![0, 4],
        weights: vec![],
        ngram_counts: vec![0],
        pool_int64s: vec![1, 2],
        pool_strings: vec![],
        max_skip_count: 0,
        min_gram_length: 1,
        max_gram_length: 1,
    };
    assert_eq!(output(op.clone(), &[of("i32[n]")]), is("f32[5]"));
    assert_eq!(output(op.clone(), &[of("i32[b,n]")]), is("f32[b,5]"));
    assert_eq!(output(op.clone(), &[of("i32[*]")]), is("f32[*]"));
    assert_eq!(output(op.clone(), &[of("i32[a,b,c]")]), Err(InferErrorKind::BadShape));
    assert_eq!(output(op.clone(), &[of("f32[n]")]), Err(InferErrorKind::BadType));
    let strings = TfIdfVectorizer { pool_strings: vec!["a".into()], ..op.clone() };
    assert_eq!(output(strings, &[of("i32[n]")]), Err(InferErrorKind::BadType));
    for bad in [vec![], vec![-1], vec![i64::MAX]] {
        let bad = TfIdfVectorizer { ngram_indexes: bad, ..op.clone() };
        assert_eq!(output(bad, &[of("i32[n]")]), Err(InferErrorKind::BadAttribute));
    }
}
