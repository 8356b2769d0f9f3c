//! Definitions checked by hand-computed values, edge shapes and refusals.

use planish_op::*;
use planish_tensor::{DType, Tensor};

use crate::EvalErrorKind;
use crate::testing::{NO_INPUTS, counting, ints, number_types, one, pattern, refusal, run_all};

#[test]
fn shape_and_size_read_dimensions() {
    let data = counting(DType::F32, &[2, 3, 5]);
    assert_eq!(one(Shape { start: 0, end: None }, &[&data]).to_i64s(), [2, 3, 5]);
    assert_eq!(one(Shape { start: -2, end: Some(-1) }, &[&data]).to_i64s(), [3]);
    assert_eq!(one(Shape { start: i64::MIN, end: Some(i64::MAX) }, &[&data]).to_i64s(), [2, 3, 5]);
    assert_eq!(one(Shape { start: 2, end: Some(1) }, &[&data]).to_i64s(), [0i64; 0]);
    let size = one(Size {}, &[&data]);
    assert_eq!((size.rank(), size.to_i64s()), (0, vec![30]));
    assert_eq!(one(Size {}, &[&counting(DType::F32, &[0, 7])]).to_i64s(), [0]);
}

#[test]
fn reshape_copies_infers_and_refuses() {
    let reshape = Reshape { allowzero: false };
    let data = counting(DType::F32, &[2, 3, 4]);
    let shape_of = |target: &[i64]| {
        run_all(reshape.clone(), &[&data, &ints(target)], 1).map(|out| out[0].shape().to_vec())
    };
    assert_eq!(shape_of(&[0, -1]), Ok(vec![2, 12]));
    assert_eq!(shape_of(&[-1]), Ok(vec![24]));
    assert_eq!(shape_of(&[4, 0, -1]), Ok(vec![4, 3, 2]));
    for bad in [&[5, -1][..], &[-1, -1], &[-2, 12], &[1, 1, 24, 0], &[3, 9], &[i64::MAX, i64::MAX, -1]] {
        assert_eq!(shape_of(bad), Err(EvalErrorKind::BadShape), "{bad:?}");
    }
    let empty = counting(DType::F32, &[0, 3]);
    let zero = Reshape { allowzero: true };
    assert_eq!(one(zero.clone(), &[&empty, &ints(&[3, 0])]).shape(), [3, 0]);
    assert_eq!(refusal(zero, &[&empty, &ints(&[0, -1])]), EvalErrorKind::BadShape);
    assert_eq!(one(reshape.clone(), &[&empty, &ints(&[-1, 3])]).shape(), [0, 3]);
    assert_eq!(one(reshape.clone(), &[&counting(DType::F32, &[1, 1]), &ints(&[])]).shape(), [0usize; 0]);
    assert_eq!(refusal(reshape, &[&empty, &counting(DType::F32, &[2])]), EvalErrorKind::BadType);
}

#[test]
fn flatten_squeeze_unsqueeze() {
    let data = counting(DType::F32, &[2, 1, 3, 1]);
    let flat = |axis| run_all(Flatten { axis }, &[&data], 1).map(|out| out[0].shape().to_vec());
    assert_eq!(flat(0), Ok(vec![1, 6]));
    assert_eq!(flat(4), Ok(vec![6, 1]));
    assert_eq!(flat(-2), Ok(vec![2, 3]));
    assert_eq!(flat(5), Err(EvalErrorKind::BadAttribute));
    assert_eq!(one(Flatten { axis: 0 }, &[&Tensor::scalar(1f32)]).shape(), [1, 1]);
    assert_eq!(one(Squeeze {}, &[&data]).shape(), [2, 3]);
    assert_eq!(one(Squeeze {}, &[&data, &ints(&[-1])]).shape(), [2, 1, 3]);
    assert_eq!(refusal(Squeeze {}, &[&data, &ints(&[0])]), EvalErrorKind::BadShape);
    assert_eq!(refusal(Squeeze {}, &[&data, &ints(&[1, -3])]), EvalErrorKind::BadAttribute);
    assert_eq!(one(Unsqueeze {}, &[&counting(DType::F32, &[2, 3]), &ints(&[3, 0])]).shape(), [1, 2, 3, 1]);
    assert_eq!(one(Unsqueeze {}, &[&Tensor::scalar(1f32), &ints(&[-1])]).shape(), [1]);
    assert_eq!(refusal(Unsqueeze {}, &[&data, &ints(&[5, 6])]), EvalErrorKind::BadAttribute);
}

#[test]
fn transpose_moves_every_type() {
    for dtype in DType::ALL {
        let data = pattern(dtype, &[2, 3, 5]);
        let out = one(Transpose { perm: Some(vec![2, 0, 1]) }, &[&data]);
        assert_eq!((out.dtype(), out.shape()), (dtype, &[5, 2, 3][..]));
        let (from, to) = (data.to_f64s(), out.to_f64s());
        for (i, j, k) in (0..30).map(|flat| (flat / 15, flat / 5 % 3, flat % 5)) {
            assert_eq!(to[(k * 2 + i) * 3 + j].to_bits(), from[(i * 3 + j) * 5 + k].to_bits(), "{dtype}");
        }
        let back = one(Transpose { perm: Some(vec![1, 2, 0]) }, &[&out]);
        assert_eq!(back, data);
    }
    assert_eq!(
        one(Transpose { perm: None }, &[&counting(DType::F32, &[2, 3])]).to_i64s(),
        [0, 3, 1, 4, 2, 5]
    );
    assert_eq!(one(Transpose { perm: None }, &[&Tensor::scalar(3u8)]), Tensor::scalar(3u8));
    assert_eq!(one(Transpose { perm: None }, &[&counting(DType::F32, &[0, 4])]).shape(), [4, 0]);
    for perm in [vec![0], vec![0, 0], vec![0, 2], vec![0, 1, 2]] {
        let kind = refusal(Transpose { perm: Some(perm) }, &[&counting(DType::F32, &[2, 3])]);
        assert_eq!(kind, EvalErrorKind::BadAttribute);
    }
}

#[test]
fn tensors_without_elements_may_have_dimensions_beyond_bounds() {
    let huge = Tensor::zeros(DType::I4, &[1 << 40, 0, 1 << 40]).unwrap();
    let out = one(Transpose { perm: Some(vec![2, 1, 0]) }, &[&huge]);
    assert_eq!(out.shape(), [1 << 40, 0, 1 << 40]);
    let cut = one(Slice {}, &[&huge, &ints(&[1]), &ints(&[5]), &ints(&[0])]);
    assert_eq!(cut.shape(), [4, 0, 1 << 40]);
    let pads = ints(&[-((1 << 40) - 1), 1, 0, 0, 0, -((1 << 40) - 1)]);
    assert_eq!(one(Pad { mode: PadMode::Constant }, &[&huge, &pads]).to_i64s(), [0]);
    let joined = one(Concat { axis: 0 }, &[&huge, &huge]);
    assert_eq!(joined.shape(), [1 << 41, 0, 1 << 40]);
}

#[test]
fn expand_broadcasts_both_ways() {
    let data = Tensor::new(&[2, 1], vec![7i32, 8]).unwrap();
    assert_eq!(one(Expand {}, &[&data, &ints(&[3])]).to_i64s(), [7, 7, 7, 8, 8, 8]);
    let out = one(Expand {}, &[&data, &ints(&[2, 1, 2])]);
    assert_eq!((out.shape(), out.to_i64s()), (&[2, 2, 2][..], vec![7, 7, 8, 8, 7, 7, 8, 8]));
    assert_eq!(one(Expand {}, &[&data, &ints(&[0])]).shape(), [2, 0]);
    assert_eq!(refusal(Expand {}, &[&data, &ints(&[3, 1])]), EvalErrorKind::BadShape);
    assert_eq!(refusal(Expand {}, &[&data, &ints(&[-1])]), EvalErrorKind::BadValue);
    assert_eq!(refusal(Expand {}, &[&data, &ints(&[1 << 40, 2, 1])]), EvalErrorKind::TooLarge);
}

#[test]
fn tile_repeats_the_whole() {
    let data = Tensor::new(&[2, 2], vec![1u8, 2, 3, 4]).unwrap();
    let out = one(Tile {}, &[&data, &ints(&[1, 2])]);
    assert_eq!((out.shape(), out.to_i64s()), (&[2, 4][..], vec![1, 2, 1, 2, 3, 4, 3, 4]));
    assert_eq!(one(Tile {}, &[&data, &ints(&[2, 1])]).to_i64s(), [1, 2, 3, 4, 1, 2, 3, 4]);
    assert_eq!(one(Tile {}, &[&data, &ints(&[0, 3])]).shape(), [0, 6]);
    assert_eq!(refusal(Tile {}, &[&data, &ints(&[2])]), EvalErrorKind::BadShape);
    assert_eq!(refusal(Tile {}, &[&data, &ints(&[2, -1])]), EvalErrorKind::BadValue);
    assert_eq!(refusal(Tile {}, &[&data, &ints(&[i64::MAX, i64::MAX])]), EvalErrorKind::TooLarge);
}

#[test]
fn concat_and_split_are_inverse_for_every_type() {
    for dtype in DType::ALL {
        let data = pattern(dtype, &[3, 7, 2]);
        let parts = run_all(Split { num_outputs: Some(3), axis: 1 }, &[&data], 3).unwrap();
        let sizes: Vec<usize> = parts.iter().map(|part| part.shape()[1]).collect();
        assert_eq!(sizes, [3, 3, 1]);
        assert_eq!(one(Concat { axis: -2 }, &parts.iter().collect::<Vec<_>>()), data);
    }
    let split = Split { num_outputs: None, axis: 0 };
    let parts = run_all(split.clone(), &[&counting(DType::F32, &[6]), &ints(&[2, 0, 4])], 3).unwrap();
    assert_eq!(parts.iter().map(Tensor::to_i64s).collect::<Vec<_>>(), [vec![0, 1], vec![], vec![2, 3, 4, 5]]);
    assert_eq!(run_all(split.clone(), &[&counting(DType::F32, &[6])], 2).unwrap()[1].shape(), [3]);
    assert_eq!(
        refusal(split.clone(), &[&counting(DType::F32, &[6]), &ints(&[2, 3])]),
        EvalErrorKind::BadShape
    );
    assert_eq!(
        refusal(split.clone(), &[&counting(DType::F32, &[6]), &ints(&[7, -1])]),
        EvalErrorKind::BadValue
    );
    assert_eq!(
        refusal(split, &[&counting(DType::F32, &[6]), &ints(&[i64::MAX, i64::MAX, 8])]),
        EvalErrorKind::BadShape
    );
    let uneven = Split { num_outputs: Some(4), axis: 0 };
    assert_eq!(run_all(uneven, &[&counting(DType::F32, &[5])], 4).unwrap_err(), EvalErrorKind::BadShape);
    for num_outputs in [0, -1, 2, i64::MAX] {
        let other = Split { num_outputs: Some(num_outputs), axis: 0 };
        assert_eq!(refusal(other, &[&counting(DType::F32, &[0])]), EvalErrorKind::BadAttribute);
    }
    assert_eq!(
        refusal(Concat { axis: 0 }, &[&counting(DType::F32, &[2]), &counting(DType::F32, &[2, 1])]),
        EvalErrorKind::BadShape
    );
    assert_eq!(
        refusal(Concat { axis: 0 }, &[&counting(DType::F32, &[2]), &ints(&[2])]),
        EvalErrorKind::BadType
    );
    assert_eq!(refusal(Concat { axis: 1 }, &[&counting(DType::F32, &[2])]), EvalErrorKind::BadAttribute);
    assert_eq!(refusal(Concat { axis: 0 }, NO_INPUTS), EvalErrorKind::MissingInput);
}

#[test]
fn stacking_makes_a_new_axis() {
    let cx = crate::Evaluation::new("ConcatFromSequence", &[], 1);
    let (a, b) = (ints(&[1, 2]), ints(&[3, 4]));
    let rows = super::join::stack_tensors(&cx, &[&a, &b], 0).unwrap();
    assert_eq!((rows.shape(), rows.to_i64s()), (&[2, 2][..], vec![1, 2, 3, 4]));
    let columns = super::join::stack_tensors(&cx, &[&a, &b], -1).unwrap();
    assert_eq!((columns.shape(), columns.to_i64s()), (&[2, 2][..], vec![1, 3, 2, 4]));
    assert!(super::join::stack_tensors(&cx, &[&a, &ints(&[1])], 0).is_err());
    assert!(super::join::stack_tensors(&cx, &[], 0).is_err());
    assert!(super::join::stack_tensors(&cx, &[&a], 2).is_err());
}

fn sliced(dim: usize, start: i64, end: i64, step: i64) -> Vec<i64> {
    let data = counting(DType::F32, &[dim]);
    one(Slice {}, &[&data, &ints(&[start]), &ints(&[end]), &ints(&[0]), &ints(&[step])]).to_i64s()
}

#[test]
fn slice_clamps_and_steps() {
    assert_eq!(sliced(5, 1, 4, 1), [1, 2, 3]);
    assert_eq!(sliced(5, -2, i64::MAX, 1), [3, 4]);
    assert_eq!(sliced(5, -100, 100, 3), [0, 3]);
    assert_eq!(sliced(5, 7, 9, 1), [0i64; 0]);
    assert_eq!(sliced(5, 3, 1, 1), [0i64; 0]);
    assert_eq!(sliced(5, -1, i64::MIN, -1), [4, 3, 2, 1, 0]);
    assert_eq!(sliced(5, 100, 0, -2), [4, 2]);
    // The start is clamped into the axis when stepping back, as the ONNX text says (numpy takes nothing).
    assert_eq!(sliced(3, -100, i64::MIN, -1), [0]);
    assert_eq!(sliced(5, 0, 5, i64::MAX), [0]);
    assert_eq!(sliced(5, 4, -6, i64::MIN), [4]);
    assert_eq!(sliced(0, 0, 3, 1), [0i64; 0]);
    let matrix = counting(DType::F32, &[3, 4]);
    let out = one(Slice {}, &[&matrix, &ints(&[-1, 1]), &ints(&[-4, 3]), &ints(&[0, -1]), &ints(&[-2, 1])]);
    assert_eq!((out.shape(), out.to_i64s()), (&[2, 2][..], vec![9, 10, 1, 2]));
    let starts = Tensor::vector(vec![1i32]);
    assert_eq!(one(Slice {}, &[&matrix, &starts, &Tensor::vector(vec![2i32])]).to_i64s(), [4, 5, 6, 7]);
    let zero_step = [&matrix, &ints(&[0]), &ints(&[1]), &ints(&[0]), &ints(&[0])];
    assert_eq!(refusal(Slice {}, &zero_step), EvalErrorKind::BadValue);
    assert_eq!(refusal(Slice {}, &[&matrix, &ints(&[0]), &ints(&[1, 2])]), EvalErrorKind::BadShape);
    let twice = [&matrix, &ints(&[0, 0]), &ints(&[1, 1]), &ints(&[0, -2])];
    assert_eq!(refusal(Slice {}, &twice), EvalErrorKind::BadAttribute);
}

fn padded(mode: PadMode, dim: usize, before: i64, after: i64) -> Vec<i64> {
    one(Pad { mode }, &[&counting(DType::F32, &[dim]), &ints(&[before, after])]).to_i64s()
}

#[test]
fn pad_in_all_modes() {
    assert_eq!(padded(PadMode::Constant, 2, 1, 2), [0, 0, 1, 0, 0]);
    assert_eq!(padded(PadMode::Edge, 3, 2, 1), [0, 0, 0, 1, 2, 2]);
    assert_eq!(padded(PadMode::Reflect, 4, 3, 2), [3, 2, 1, 0, 1, 2, 3, 2, 1]);
    // Further than one reflection, and of a single place.
    assert_eq!(padded(PadMode::Reflect, 3, 5, 0), [1, 0, 1, 2, 1, 0, 1, 2]);
    assert_eq!(padded(PadMode::Reflect, 1, 2, 1), [0, 0, 0, 0]);
    assert_eq!(padded(PadMode::Wrap, 3, 4, 2), [2, 0, 1, 2, 0, 1, 2, 0, 1]);
    assert_eq!(padded(PadMode::Constant, 5, -1, -2), [1, 2]);
    assert_eq!(padded(PadMode::Constant, 3, -5, 4), [0, 0]);
    // What is cut away is not mirrored or repeated.
    assert_eq!(padded(PadMode::Reflect, 5, -1, 3), [1, 2, 3, 4, 3, 2, 1]);
    assert_eq!(padded(PadMode::Edge, 5, -1, 3), [1, 2, 3, 4, 4, 4, 4]);
    assert_eq!(padded(PadMode::Wrap, 5, -1, 3), [1, 2, 3, 4, 1, 2, 3]);
    let pad = |mode| Pad { mode };
    let constant = [&counting(DType::F32, &[1, 2]), &ints(&[1, 0, 0, 0]), &Tensor::scalar(9f32)];
    assert_eq!(one(pad(PadMode::Constant), &constant).to_i64s(), [9, 9, 0, 1]);
    let with_axes = [&counting(DType::F32, &[2, 2]), &ints(&[0, 1]), &Tensor::scalar(9f32), &ints(&[-1])];
    assert_eq!(one(pad(PadMode::Constant), &with_axes).to_i64s(), [0, 1, 9, 2, 3, 9]);
    for dtype in DType::ALL {
        let data = pattern(dtype, &[3]);
        let out = one(pad(PadMode::Edge), &[&data, &ints(&[1, 1])]).to_f64s();
        let from = data.to_f64s();
        assert_eq!(out, [from[0], from[0], from[1], from[2], from[2]], "{dtype}");
    }
}

#[test]
fn pad_refuses_what_cannot_be() {
    let pad = |mode, pads: &[i64]| {
        run_all(Pad { mode }, &[&counting(DType::F32, &[3]), &ints(pads)], 1).unwrap_err()
    };
    assert_eq!(pad(PadMode::Constant, &[-2, -2]), EvalErrorKind::BadValue);
    assert_eq!(pad(PadMode::Edge, &[-3, 4]), EvalErrorKind::BadValue);
    assert_eq!(pad(PadMode::Constant, &[1]), EvalErrorKind::BadShape);
    assert_eq!(pad(PadMode::Constant, &[i64::MAX, i64::MAX]), EvalErrorKind::TooLarge);
    let empty = [&counting(DType::F32, &[0]), &ints(&[1, 1])];
    assert_eq!(refusal(Pad { mode: PadMode::Wrap }, &empty), EvalErrorKind::BadValue);
    assert_eq!(one(Pad { mode: PadMode::Constant }, &empty).to_i64s(), [0, 0]);
    let wrong_type = [&counting(DType::F32, &[3]), &ints(&[1, 1]), &ints(&[3])];
    assert_eq!(refusal(Pad { mode: PadMode::Constant }, &wrong_type), EvalErrorKind::BadType);
}

#[test]
fn center_crop_pad_keeps_the_middle() {
    let crop = CenterCropPad { axes: None };
    assert_eq!(one(crop.clone(), &[&counting(DType::F32, &[7]), &ints(&[4])]).to_i64s(), [1, 2, 3, 4]);
    assert_eq!(one(crop.clone(), &[&counting(DType::F32, &[2]), &ints(&[5])]).to_i64s(), [0, 0, 1, 0, 0]);
    let last = CenterCropPad { axes: Some(vec![-1]) };
    assert_eq!(one(last.clone(), &[&counting(DType::F32, &[2, 3]), &ints(&[1])]).to_i64s(), [1, 4]);
    assert_eq!(refusal(last, &[&counting(DType::F32, &[2, 3]), &ints(&[-1])]), EvalErrorKind::BadValue);
    assert_eq!(refusal(crop, &[&counting(DType::F32, &[2, 3]), &ints(&[1])]), EvalErrorKind::BadShape);
}

#[test]
fn depth_and_space_are_inverse() {
    let data = counting(DType::F32, &[2, 8, 2, 3]);
    let dcr = DepthToSpace { mode: DepthToSpaceMode::Dcr, blocksize: 2 };
    let spread = one(dcr, &[&data]);
    assert_eq!(spread.shape(), [2, 2, 4, 6]);
    // Row 0 of the first image takes depth 0 and depth 2 in turn.
    assert_eq!(spread.to_i64s()[..4], [0, 12, 1, 13]);
    assert_eq!(one(SpaceToDepth { blocksize: 2 }, &[&spread]), data);
    let crd = one(DepthToSpace { mode: DepthToSpaceMode::Crd, blocksize: 2 }, &[&data]);
    assert_eq!(crd.to_i64s()[..4], [0, 6, 1, 7]);
    for blocksize in [0, -1, 3, i64::MAX] {
        assert!(run_all(DepthToSpace { mode: DepthToSpaceMode::Dcr, blocksize }, &[&data], 1).is_err());
        assert!(run_all(SpaceToDepth { blocksize }, &[&data], 1).is_err());
    }
    assert_eq!(
        refusal(SpaceToDepth { blocksize: 1 }, &[&counting(DType::F32, &[2, 2])]),
        EvalErrorKind::BadShape
    );
}

#[test]
fn trilu_keeps_a_triangle() {
    let data = Tensor::new(&[2, 3], vec![1i64, 2, 3, 4, 5, 6]).unwrap();
    assert_eq!(one(Trilu { upper: true }, &[&data]).to_i64s(), [1, 2, 3, 0, 5, 6]);
    assert_eq!(one(Trilu { upper: false }, &[&data, &Tensor::scalar(1i64)]).to_i64s(), [1, 2, 0, 4, 5, 6]);
    assert_eq!(one(Trilu { upper: true }, &[&data, &Tensor::scalar(i64::MAX)]).to_i64s(), [0; 6]);
    assert_eq!(one(Trilu { upper: true }, &[&data, &ints(&[i64::MIN])]).to_i64s(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(one(Trilu { upper: true }, &[&counting(DType::F32, &[3, 0, 2])]).shape(), [3, 0, 2]);
    assert_eq!(refusal(Trilu { upper: true }, &[&counting(DType::F32, &[3])]), EvalErrorKind::BadShape);
}

#[test]
fn reverse_sequence_turns_the_front() {
    let data = counting(DType::F32, &[3, 2]);
    let by_time = ReverseSequence { batch_axis: 1, time_axis: 0 };
    assert_eq!(one(by_time.clone(), &[&data, &ints(&[3, 2])]).to_i64s(), [4, 3, 2, 1, 0, 5]);
    let by_batch = ReverseSequence { batch_axis: 0, time_axis: 1 };
    assert_eq!(one(by_batch, &[&data, &ints(&[0, 1, 2])]).to_i64s(), [0, 1, 2, 3, 5, 4]);
    assert_eq!(refusal(by_time.clone(), &[&data, &ints(&[4, 1])]), EvalErrorKind::BadValue);
    assert_eq!(refusal(by_time, &[&data, &ints(&[1])]), EvalErrorKind::BadShape);
    let same = ReverseSequence { batch_axis: 0, time_axis: 0 };
    assert_eq!(refusal(same, &[&data, &ints(&[1, 1])]), EvalErrorKind::BadAttribute);
}

#[test]
fn constants_of_a_shape() {
    let zeros = ConstantOfShape { value: None };
    assert_eq!(one(zeros.clone(), &[&ints(&[2, 0])]).shape(), [2, 0]);
    assert_eq!(one(zeros.clone(), &[&ints(&[])]), Tensor::scalar(0f32));
    let value = Tensor::from_f64s(DType::I4, &[1], &[-3.0]).unwrap();
    let filled = one(ConstantOfShape { value: Some(value) }, &[&ints(&[3])]);
    assert_eq!((filled.dtype(), filled.to_i64s()), (DType::I4, vec![-3, -3, -3]));
    assert_eq!(refusal(zeros.clone(), &[&ints(&[-1])]), EvalErrorKind::BadValue);
    assert_eq!(refusal(zeros, &[&ints(&[1 << 40])]), EvalErrorKind::TooLarge);
    let two = ConstantOfShape { value: Some(ints(&[1, 2])) };
    assert_eq!(refusal(two, &[&ints(&[1])]), EvalErrorKind::BadAttribute);
}

#[test]
fn ranges_of_all_number_types() {
    let range = Range { stash_type: 1 };
    for dtype in number_types() {
        let scalar = |value: f64| Tensor::from_f64s(dtype, &[], &[value]).unwrap();
        let out = one(range.clone(), &[&scalar(3.0), &scalar(10.0), &scalar(3.0)]);
        assert_eq!((out.dtype(), out.to_i64s()), (dtype, vec![3, 6, 9]));
        assert_eq!(one(range.clone(), &[&scalar(3.0), &scalar(3.0), &scalar(1.0)]).shape(), [0]);
        let kind = refusal(range.clone(), &[&scalar(3.0), &scalar(3.0), &scalar(0.0)]);
        assert_eq!(kind, EvalErrorKind::BadValue);
    }
    let down = [Tensor::scalar(10i32), Tensor::scalar(4i32), Tensor::scalar(-2i32)];
    assert_eq!(one(range.clone(), &[&down[0], &down[1], &down[2]]).to_i64s(), [10, 8, 6]);
    let wide = [Tensor::scalar(i64::MIN), Tensor::scalar(i64::MAX), Tensor::scalar(i64::MAX)];
    assert_eq!(one(range.clone(), &[&wide[0], &wide[1], &wide[2]]).to_i64s(), [i64::MIN, -1, i64::MAX - 1]);
    let large = [Tensor::scalar(u64::MAX - 1), Tensor::scalar(u64::MAX), Tensor::scalar(1u64)];
    assert_eq!(one(range.clone(), &[&large[0], &large[1], &large[2]]), Tensor::vector(vec![u64::MAX - 1]));
    let endless = [Tensor::scalar(0i64), Tensor::scalar(i64::MAX), Tensor::scalar(1i64)];
    assert_eq!(refusal(range.clone(), &[&endless[0], &endless[1], &endless[2]]), EvalErrorKind::TooLarge);
    let nan = [Tensor::scalar(0f32), Tensor::scalar(f32::NAN), Tensor::scalar(1f32)];
    assert_eq!(refusal(range.clone(), &[&nan[0], &nan[1], &nan[2]]), EvalErrorKind::BadValue);
    let bools = [Tensor::scalar(false), Tensor::scalar(true), Tensor::scalar(true)];
    assert_eq!(refusal(range, &[&bools[0], &bools[1], &bools[2]]), EvalErrorKind::BadType);
    let half = Tensor::from_f64s(DType::F16, &[], &[1.0]).unwrap();
    assert_eq!(refusal(Range { stash_type: 7 }, &[&half, &half, &half]), EvalErrorKind::BadAttribute);
}

#[test]
fn eye_like_marks_a_diagonal() {
    let data = counting(DType::F32, &[2, 3]);
    let eye = |k| one(EyeLike { dtype: Some(DType::I64), k }, &[&data]);
    assert_eq!(eye(1).to_i64s(), [0, 1, 0, 0, 0, 1]);
    assert_eq!(eye(-1).to_i64s(), [0, 0, 0, 1, 0, 0]);
    assert_eq!(eye(i64::MIN).to_i64s(), [0; 6]);
    assert_eq!(one(EyeLike { dtype: None, k: 0 }, &[&data]).dtype(), DType::F32);
    assert_eq!(
        refusal(EyeLike { dtype: None, k: 0 }, &[&counting(DType::F32, &[2])]),
        EvalErrorKind::BadShape
    );
}

#[test]
fn long_moves_agree_with_the_definition_across_threads() {
    let data = counting(DType::F32, &[67, 89, 31]);
    let out = one(Transpose { perm: Some(vec![2, 1, 0]) }, &[&data]);
    let (from, to) = (data.elements::<f32>().unwrap(), out.elements::<f32>().unwrap());
    for (flat, &value) in to.iter().enumerate() {
        let (k, j, i) = (flat / (89 * 67), flat / 67 % 89, flat % 67);
        assert_eq!(value, from[(i * 89 + j) * 31 + k]);
    }
}
