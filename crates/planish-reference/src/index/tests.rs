//! Definitions checked by hand-computed values, edge shapes and refusals.

use planish_op::*;
use planish_tensor::{DType, Tensor};

use crate::EvalErrorKind;
use crate::testing::{counting, ints, one, pattern, refusal, run_all};

fn matrix(rows: &[&[i64]]) -> Tensor {
    Tensor::new(&[rows.len(), rows[0].len()], rows.concat()).unwrap()
}

#[test]
fn gather_takes_along_an_axis() {
    let data = counting(DType::F32, &[3, 2]);
    let out = one(Gather { axis: 0 }, &[&data, &matrix(&[&[0, -1], &[1, 1]])]);
    assert_eq!((out.shape(), out.to_i64s()), (&[2, 2, 2][..], vec![0, 1, 4, 5, 2, 3, 2, 3]));
    let column = one(Gather { axis: -1 }, &[&data, &Tensor::scalar(1i32)]);
    assert_eq!((column.shape(), column.to_i64s()), (&[3][..], vec![1, 3, 5]));
    assert_eq!(one(Gather { axis: 0 }, &[&data, &ints(&[])]).shape(), [0, 2]);
    for index in [3, -4, i64::MIN, i64::MAX] {
        assert_eq!(refusal(Gather { axis: 0 }, &[&data, &ints(&[index])]), EvalErrorKind::BadValue);
    }
    assert_eq!(refusal(Gather { axis: 0 }, &[&data, &counting(DType::F32, &[1])]), EvalErrorKind::BadType);
    assert_eq!(
        refusal(Gather { axis: 0 }, &[&Tensor::scalar(1f32), &ints(&[0])]),
        EvalErrorKind::BadAttribute
    );
    for dtype in DType::ALL {
        let data = pattern(dtype, &[5, 3]);
        let back = one(Gather { axis: 0 }, &[&data, &ints(&[4, 3, 2, 1, 0])]);
        assert_eq!(one(Gather { axis: 0 }, &[&back, &ints(&[4, 3, 2, 1, 0])]), data);
    }
}

#[test]
fn gather_elements_keeps_the_other_coordinates() {
    let data = matrix(&[&[1, 2, 3], &[4, 5, 6], &[7, 8, 9]]);
    let index = matrix(&[&[1, 2, 0], &[-1, 0, 0]]);
    assert_eq!(one(GatherElements { axis: 0 }, &[&data, &index]).to_i64s(), [4, 8, 3, 7, 2, 3]);
    let index = matrix(&[&[1], &[-1]]);
    assert_eq!(one(GatherElements { axis: 1 }, &[&data, &index]).to_i64s(), [2, 6]);
    let outside = refusal(GatherElements { axis: 0 }, &[&data, &matrix(&[&[3, 0, 0]])]);
    assert_eq!(outside, EvalErrorKind::BadValue);
    let wide = refusal(GatherElements { axis: 0 }, &[&data, &matrix(&[&[0, 0, 0, 0]])]);
    assert_eq!(wide, EvalErrorKind::BadShape);
    assert_eq!(refusal(GatherElements { axis: 0 }, &[&data, &ints(&[0])]), EvalErrorKind::BadShape);
}

#[test]
fn gather_nd_takes_slices_by_tuples() {
    let data = counting(DType::F32, &[2, 2, 2]);
    let gather = |batch_dims| GatherND { batch_dims };
    let out = one(gather(0), &[&data, &matrix(&[&[0, 1], &[1, 0]])]);
    assert_eq!((out.shape(), out.to_i64s()), (&[2, 2][..], vec![2, 3, 4, 5]));
    let out = one(gather(1), &[&data, &matrix(&[&[1], &[0]])]);
    assert_eq!((out.shape(), out.to_i64s()), (&[2, 2][..], vec![2, 3, 4, 5]));
    let out = one(gather(0), &[&data, &matrix(&[&[-1, -1, -1]])]);
    assert_eq!((out.shape(), out.to_i64s()), (&[1][..], vec![7]));
    let whole = Tensor::new(&[2, 0], Vec::<i64>::new()).unwrap();
    assert_eq!(one(gather(0), &[&data, &whole]).shape(), [2, 2, 2, 2]);
    assert_eq!(refusal(gather(0), &[&data, &matrix(&[&[0, 0, 0, 0]])]), EvalErrorKind::BadShape);
    assert_eq!(refusal(gather(3), &[&data, &matrix(&[&[0]])]), EvalErrorKind::BadShape);
    assert_eq!(refusal(gather(-1), &[&data, &matrix(&[&[0]])]), EvalErrorKind::BadValue);
    assert_eq!(refusal(gather(1), &[&data, &matrix(&[&[0]])]), EvalErrorKind::BadShape);
    assert_eq!(refusal(gather(0), &[&data, &matrix(&[&[2]])]), EvalErrorKind::BadValue);
    assert_eq!(refusal(gather(0), &[&data, &Tensor::scalar(0i64)]), EvalErrorKind::BadShape);
}

fn scatter(reduction: ScatterReduction, data: &Tensor, index: &[i64], updates: &Tensor) -> Tensor {
    one(ScatterElements { reduction, axis: 0 }, &[data, &ints(index), updates])
}

#[test]
fn scatter_elements_writes_and_folds() {
    let data = Tensor::new(&[2, 3], vec![0f32; 6]).unwrap();
    let updates = Tensor::new(&[1, 3], vec![1f32, 2.0, 3.0]).unwrap();
    let op = ScatterElements { reduction: ScatterReduction::None, axis: 0 };
    let out = one(op.clone(), &[&data, &matrix(&[&[1, 0, -1]]), &updates]);
    assert_eq!(out.to_i64s(), [0, 2, 0, 1, 0, 3]);
    assert_eq!(refusal(op, &[&data, &matrix(&[&[1]]), &updates]), EvalErrorKind::BadShape);
    let bytes = Tensor::vector(vec![100i8, 1]);
    let updates = Tensor::vector(vec![100i8, 50]);
    assert_eq!(scatter(ScatterReduction::Add, &bytes, &[0, 0], &updates).to_i64s(), [-6, 1]);
    assert_eq!(scatter(ScatterReduction::Mul, &bytes, &[1, 1], &updates).to_i64s(), [100, -120]);
    assert_eq!(scatter(ScatterReduction::Max, &bytes, &[1, 1], &updates).to_i64s(), [100, 100]);
    assert_eq!(scatter(ScatterReduction::Min, &bytes, &[0, 1], &updates).to_i64s(), [100, 1]);
    let large = Tensor::vector(vec![u64::MAX, 1]);
    let updates = Tensor::vector(vec![2u64, u64::MAX]);
    let max = scatter(ScatterReduction::Max, &large, &[0, 1], &updates);
    assert_eq!(max, Tensor::vector(vec![u64::MAX, u64::MAX]));
    let sum = scatter(ScatterReduction::Add, &large, &[0, 1], &updates);
    assert_eq!(sum, Tensor::vector(vec![1u64, 0]));
    let truth = scatter(
        ScatterReduction::Add,
        &Tensor::vector(vec![false, true]),
        &[0, 1],
        &Tensor::vector(vec![true, false]),
    );
    assert_eq!(truth, Tensor::vector(vec![true, true]));
    let nan =
        scatter(ScatterReduction::Max, &Tensor::vector(vec![f32::NAN]), &[0], &Tensor::vector(vec![1f32]));
    assert!(nan.to_f64s()[0].is_nan());
}

#[test]
fn float_sums_are_rounded_once() {
    // Each addition of 2^-12 alone would be lost in half precision.
    let one = Tensor::from_f64s(DType::F16, &[1], &[1.0]).unwrap();
    let small = Tensor::from_f64s(DType::F16, &[4], &[2f64.powi(-12); 4]).unwrap();
    let sum = scatter(ScatterReduction::Add, &one, &[0; 4], &small);
    assert_eq!(sum.to_f64s(), [1.0 + 2f64.powi(-10)]);
}

#[test]
fn scatter_nd_writes_slices() {
    let data = counting(DType::F32, &[3, 2]);
    let updates = Tensor::new(&[2, 2], vec![10f32, 11.0, 12.0, 13.0]).unwrap();
    let op = |reduction| ScatterND { reduction };
    let index = matrix(&[&[2], &[0]]);
    assert_eq!(one(op(ScatterReduction::None), &[&data, &index, &updates]).to_i64s(), [12, 13, 2, 3, 10, 11]);
    let twice = matrix(&[&[1], &[1]]);
    assert_eq!(one(op(ScatterReduction::Add), &[&data, &twice, &updates]).to_i64s(), [0, 1, 24, 27, 4, 5]);
    let wrong = counting(DType::F32, &[2, 3]);
    assert_eq!(refusal(op(ScatterReduction::None), &[&data, &index, &wrong]), EvalErrorKind::BadShape);
    let other_type = Tensor::new(&[2, 2], vec![0i64; 4]).unwrap();
    assert_eq!(refusal(op(ScatterReduction::None), &[&data, &index, &other_type]), EvalErrorKind::BadType);
}

#[test]
fn tensor_scatter_updates_a_cache() {
    let cache = Tensor::new(&[2, 3, 1], vec![0i32; 6]).unwrap();
    let update = Tensor::new(&[2, 2, 1], vec![1i32, 2, 3, 4]).unwrap();
    let op = |mode| TensorScatter { mode, axis: -2 };
    assert_eq!(one(op(TensorScatterMode::Linear), &[&cache, &update]).to_i64s(), [1, 2, 0, 3, 4, 0]);
    let starts = ints(&[1, 0]);
    assert_eq!(one(op(TensorScatterMode::Linear), &[&cache, &update, &starts]).to_i64s(), [0, 1, 2, 3, 4, 0]);
    let wrap = ints(&[2, 7]);
    assert_eq!(one(op(TensorScatterMode::Circular), &[&cache, &update, &wrap]).to_i64s(), [2, 0, 1, 0, 3, 4]);
    assert_eq!(refusal(op(TensorScatterMode::Linear), &[&cache, &update, &wrap]), EvalErrorKind::BadValue);
    assert_eq!(
        refusal(op(TensorScatterMode::Linear), &[&cache, &update, &ints(&[0])]),
        EvalErrorKind::BadShape
    );
    let batch = TensorScatter { mode: TensorScatterMode::Linear, axis: 0 };
    assert_eq!(refusal(batch, &[&cache, &update]), EvalErrorKind::BadAttribute);
    let long = Tensor::new(&[2, 4, 1], vec![0i32; 8]).unwrap();
    assert_eq!(refusal(op(TensorScatterMode::Linear), &[&cache, &long]), EvalErrorKind::BadShape);
}

#[test]
fn one_hot_marks_the_class() {
    let off_on = Tensor::vector(vec![2u8, 7]);
    let out = one(OneHot { axis: -1 }, &[&ints(&[1, -1, 3]), &Tensor::scalar(3i64), &off_on]);
    assert_eq!((out.shape(), out.to_i64s()), (&[3, 3][..], vec![2, 7, 2, 2, 2, 7, 2, 2, 2]));
    let floats = Tensor::vector(vec![1.7f32, 0.0]);
    let out = one(OneHot { axis: 0 }, &[&floats, &Tensor::vector(vec![2.9f32]), &off_on]);
    assert_eq!((out.shape(), out.to_i64s()), (&[2, 2][..], vec![2, 7, 7, 2]));
    assert_eq!(one(OneHot { axis: -1 }, &[&ints(&[1]), &Tensor::scalar(0i64), &off_on]).shape(), [1, 0]);
    let negative = [&ints(&[1]), &Tensor::scalar(-1i64), &off_on];
    assert_eq!(refusal(OneHot { axis: -1 }, &negative), EvalErrorKind::BadValue);
    assert_eq!(
        refusal(OneHot { axis: 2 }, &[&ints(&[1]), &ints(&[2]), &off_on]),
        EvalErrorKind::BadAttribute
    );
    assert_eq!(
        refusal(OneHot { axis: 0 }, &[&ints(&[1]), &ints(&[2]), &ints(&[2])]),
        EvalErrorKind::BadShape
    );
}

#[test]
fn compress_keeps_what_is_true() {
    let data = counting(DType::F32, &[3, 2]);
    let condition = Tensor::vector(vec![false, true, true]);
    assert_eq!(one(Compress { axis: Some(0) }, &[&data, &condition]).to_i64s(), [2, 3, 4, 5]);
    assert_eq!(one(Compress { axis: None }, &[&data, &condition]).to_i64s(), [1, 2]);
    assert_eq!(refusal(Compress { axis: Some(1) }, &[&data, &condition]), EvalErrorKind::BadValue);
    assert_eq!(refusal(Compress { axis: None }, &[&data, &ints(&[1])]), EvalErrorKind::BadType);
}

#[test]
fn non_zero_lists_coordinates() {
    let data = Tensor::new(&[2, 2], vec![1f32, 0.0, -0.0, f32::NAN]).unwrap();
    let out = one(NonZero {}, &[&data]);
    assert_eq!((out.shape(), out.to_i64s()), (&[2, 2][..], vec![0, 1, 0, 1]));
    assert_eq!(one(NonZero {}, &[&Tensor::scalar(3i64)]).shape(), [0, 1]);
    assert_eq!(one(NonZero {}, &[&Tensor::scalar(0u64)]).shape(), [0, 0]);
    assert_eq!(one(NonZero {}, &[&counting(DType::F32, &[2, 0])]).shape(), [2, 0]);
}

#[test]
fn top_k_breaks_ties_by_index() {
    let data = Tensor::vector(vec![1f32, 3.0, 3.0, f32::NAN, -1.0]);
    let top = |largest, k: i64| run_all(TopK { sorted: true, largest, axis: 0 }, &[&data, &ints(&[k])], 2);
    assert_eq!(top(true, 3).unwrap()[1].to_i64s(), [3, 1, 2]);
    let smallest = top(false, 5).unwrap();
    assert_eq!(smallest[1].to_i64s(), [4, 0, 1, 2, 3]);
    assert_eq!(smallest[0].to_f64s()[..4], [-1.0, 1.0, 3.0, 3.0]);
    assert_eq!(top(true, 0).unwrap()[0].shape(), [0]);
    assert_eq!(top(true, 6).unwrap_err(), EvalErrorKind::BadValue);
    assert_eq!(top(true, -1).unwrap_err(), EvalErrorKind::BadValue);
    let columns = Tensor::new(&[2, 3], vec![5u64, u64::MAX, 1, 6, 2, 3]).unwrap();
    let out = run_all(TopK { sorted: false, largest: true, axis: 0 }, &[&columns, &ints(&[1])], 2).unwrap();
    assert_eq!(out[0], Tensor::new(&[1, 3], vec![6u64, u64::MAX, 3]).unwrap());
    assert_eq!(out[1].to_i64s(), [1, 0, 1]);
}

#[test]
fn unique_values_and_slices() {
    let data = Tensor::vector(vec![2f32, 1.0, 1.0, 3.0, 4.0, 3.0]);
    let unique = |sorted, axis, data: &Tensor| run_all(Unique { axis, sorted }, &[data], 4).unwrap();
    let lists: Vec<Vec<i64>> = unique(false, None, &data).iter().map(Tensor::to_i64s).collect();
    assert_eq!(lists, [vec![2, 1, 3, 4], vec![0, 1, 3, 4], vec![0, 1, 1, 2, 3, 2], vec![1, 2, 2, 1]]);
    let lists: Vec<Vec<i64>> = unique(true, None, &data).iter().map(Tensor::to_i64s).collect();
    assert_eq!(lists, [vec![1, 2, 3, 4], vec![1, 0, 3, 4], vec![1, 0, 0, 2, 3, 2], vec![2, 1, 2, 1]]);
    let columns = matrix(&[&[1, 0, 1, 2], &[1, 3, 1, 0]]);
    let lists: Vec<Vec<i64>> = unique(true, Some(-1), &columns).iter().map(Tensor::to_i64s).collect();
    assert_eq!(lists, [vec![0, 1, 2, 3, 1, 0], vec![1, 0, 3], vec![1, 0, 1, 2], vec![1, 2, 1]]);
    let nans = Tensor::vector(vec![f32::NAN, 0.0, f32::NAN, -0.0]);
    assert_eq!(unique(true, None, &nans)[3].to_i64s(), [2, 2]);
    assert_eq!(unique(true, None, &counting(DType::F32, &[0])).iter().map(|out| out.len()).max(), Some(0));
    assert_eq!(unique(true, None, &Tensor::scalar(7i8))[0], Tensor::vector(vec![7i8]));
    assert_eq!(unique(true, Some(0), &counting(DType::F32, &[3, 0]))[0].shape(), [1, 0]);
    assert_eq!(run_all(Unique { axis: None, sorted: true }, &[&data], 1).unwrap().len(), 1);
}

fn vectorizer(mode: TfIdfMode, weights: Vec<f32>) -> TfIdfVectorizer {
    TfIdfVectorizer {
        mode,
        ngram_indexes: vec![0, 1, 2, 3],
        weights,
        ngram_counts: vec![0, 2],
        pool_int64s: vec![2, 3, 5, 4, 5, 6],
        pool_strings: Vec::new(),
        max_skip_count: 1,
        min_gram_length: 1,
        max_gram_length: 2,
    }
}

#[test]
fn n_grams_are_counted_with_skips() {
    let data = Tensor::vector(vec![2i32, 5, 4, 6, 2, 5, 6]);
    // [2] twice, [3] never, [5,4] once; [5,6] once side by side and once with one item between.
    assert_eq!(one(vectorizer(TfIdfMode::Tf, vec![]), &[&data]).to_i64s(), [2, 0, 1, 2]);
    let weights = vec![0.5, 1.0, 2.0, 3.0];
    let idf = one(vectorizer(TfIdfMode::Idf, weights.clone()), &[&data]);
    assert_eq!(idf.to_f64s(), [0.5, 0.0, 2.0, 3.0]);
    let both = one(vectorizer(TfIdfMode::TfIdf, weights), &[&data]);
    assert_eq!(both.to_f64s(), [1.0, 0.0, 2.0, 6.0]);
    let rows = matrix(&[&[5, 4], &[3, 3]]);
    let out = one(vectorizer(TfIdfMode::Tf, vec![]), &[&rows]);
    assert_eq!((out.shape(), out.to_i64s()), (&[2, 4][..], vec![0, 0, 1, 0, 0, 2, 0, 0]));
    assert_eq!(one(vectorizer(TfIdfMode::Tf, vec![]), &[&ints(&[])]).to_i64s(), [0; 4]);
}

#[test]
fn n_gram_attributes_are_checked() {
    let data = ints(&[1]);
    let good = vectorizer(TfIdfMode::Tf, vec![]);
    let strings = TfIdfVectorizer { pool_strings: vec!["a".into()], ..good.clone() };
    assert_eq!(refusal(strings, &[&data]), EvalErrorKind::BadType);
    let bad = [
        TfIdfVectorizer { ngram_counts: vec![0, 9], ..good.clone() },
        TfIdfVectorizer { ngram_counts: vec![4, 2], ..good.clone() },
        TfIdfVectorizer { ngram_indexes: vec![0], ..good.clone() },
        TfIdfVectorizer { ngram_indexes: vec![], ..good.clone() },
        TfIdfVectorizer { ngram_indexes: vec![0, 1, 2, -3], ..good.clone() },
        TfIdfVectorizer { min_gram_length: 0, ..good.clone() },
        TfIdfVectorizer { min_gram_length: 3, ..good.clone() },
        TfIdfVectorizer { max_skip_count: -1, ..good.clone() },
    ];
    for op in bad {
        assert_eq!(refusal(op, &[&data]), EvalErrorKind::BadAttribute);
    }
    let wide = TfIdfVectorizer { ngram_indexes: vec![0, 1, 2, 1 << 50], ..good.clone() };
    assert_eq!(refusal(wide, &[&data]), EvalErrorKind::TooLarge);
    let far = TfIdfVectorizer { max_skip_count: i64::MAX, max_gram_length: i64::MAX, ..good };
    assert_eq!(one(far, &[&ints(&[5, 0, 0, 4])]).to_i64s(), [0, 0, 1, 0]);
}
