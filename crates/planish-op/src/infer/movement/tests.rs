//! Shapes, contents and refusals of the layout rules, and the chains that exporters make of them.

use planish_tensor::{DType, Tensor};

use crate::infer::testing::{Input, as_input, constant, elements, inferred, ints, numbers, of, output};
use crate::infer::{InferErrorKind, Inferred};
use crate::*;

type Outcome = Result<String, InferErrorKind>;

fn is(text: &str) -> Outcome {
    Ok(text.to_string())
}

/// Type and contents as text: `i64[2] = n,3`.
fn described(output: &Inferred) -> String {
    match elements(output) {
        Some(elements) => format!("{} = {elements}", output.ty),
        None => output.ty.to_string(),
    }
}

fn full(op: impl Into<Op>, inputs: &[Input]) -> Outcome {
    inferred(op, inputs, 1).map(|outputs| described(&outputs[0]))
}

/// The only output as an input of the next node.
fn step(op: impl Into<Op>, inputs: &[Input]) -> Input {
    as_input(inferred(op, inputs, 1).unwrap().remove(0))
}

fn gather(data: &Input, index: i64) -> Input {
    step(Gather { axis: 0 }, &[data.clone(), constant(Tensor::scalar(index))])
}

fn unsqueeze(data: &Input) -> Input {
    step(Unsqueeze {}, &[data.clone(), numbers(&[0])])
}

const RESHAPE: Reshape = Reshape { allowzero: false };

#[test]
fn shape_knows_its_contents() {
    let shape = |start, end| Shape { start, end };
    assert_eq!(full(shape(0, None), &[of("f32[n,3]")]), is("i64[2] = n,3"));
    assert_eq!(full(shape(-1, None), &[of("f32[n,3]")]), is("i64[1] = 3"));
    assert_eq!(full(shape(i64::MIN, Some(i64::MAX)), &[of("f32[2]")]), is("i64[1] = 2"));
    assert_eq!(full(shape(2, Some(1)), &[of("f32[n,3,4]")]), is("i64[0] = "));
    assert_eq!(full(shape(0, None), &[of("f32[*]")]), is("i64[rank0]"));
    assert_eq!(full(Size {}, &[of("f32[n,3]")]), is("i64[] = 3*n"));
    assert_eq!(full(Size {}, &[of("f32[*]")]), is("i64[]"));
}

#[test]
fn heads_are_split_off_symbolically() {
    let hidden = of("f32[batch,seq,768]");
    let shape = step(Shape { start: 0, end: None }, std::slice::from_ref(&hidden));
    let (batch, seq) = (unsqueeze(&gather(&shape, 0)), unsqueeze(&gather(&shape, -2)));
    let heads = [batch.clone(), seq.clone(), numbers(&[12]), numbers(&[64])];
    let target = step(Concat { axis: 0 }, &heads);
    assert_eq!(output(RESHAPE, &[hidden.clone(), target]), is("f32[batch,seq,12,64]"));
    let target = step(Concat { axis: 0 }, &[batch.clone(), numbers(&[-1, 12, 64])]);
    assert_eq!(output(RESHAPE, &[hidden.clone(), target]), is("f32[batch,seq,12,64]"));
    let target = step(Concat { axis: 0 }, &[batch, seq, numbers(&[-1])]);
    assert_eq!(output(RESHAPE, &[of("f32[batch,seq,12,64]"), target]), is("f32[batch,seq,768]"));
    assert_eq!(output(RESHAPE, &[hidden, numbers(&[-1, 768])]), is("f32[batch*seq,768]"));
}

#[test]
fn pads_of_pytorch_resolve() {
    // The exporter turns (left, right, top, bottom) about: pad with zeros, pair up, reverse, transpose.
    let zeros = ConstantOfShape { value: Some(Tensor::vector(vec![0i64])) };
    let zeros = step(zeros, &[numbers(&[4])]);
    let padded = |sides: Input| {
        let pads = step(Concat { axis: 0 }, &[sides, zeros.clone()]);
        let pairs = step(RESHAPE, &[pads, numbers(&[-1, 2])]);
        let back = [numbers(&[-1]), numbers(&[i64::MIN]), numbers(&[0]), numbers(&[-1])];
        let reversed = step(Slice {}, &[&[pairs], &back[..]].concat());
        let turned = step(Transpose { perm: Some(vec![1, 0]) }, &[reversed]);
        let flat = step(RESHAPE, &[turned, numbers(&[-1])]);
        output(Pad { mode: PadMode::Constant }, &[of("f32[n,3,h,w]"), flat])
    };
    assert_eq!(padded(numbers(&[1, 2, 3, 4])), is("f32[n,3,h+7,w+3]"));
    // To a multiple of 7, as windowed attention needs it.
    let sides = ints(&["0", "mod(-w,7)", "0", "mod(-h,7)"]);
    assert_eq!(padded(sides), is("f32[n,3,h+mod(6*h,7),w+mod(6*w,7)]"));
}

#[test]
fn positions_are_sliced_and_counted() {
    let ids = of("i64[batch,seq]");
    let seq = gather(&step(Shape { start: 0, end: None }, &[ids]), 1);
    let counted = step(
        Range { stash_type: 1 },
        &[constant(Tensor::scalar(0i64)), seq.clone(), constant(Tensor::scalar(1i64))],
    );
    assert_eq!(counted.unwrap().0.to_string(), "i64[seq]");
    let end = unsqueeze(&seq);
    let table = [of("i64[1,512]"), numbers(&[0]), end, numbers(&[1])];
    assert_eq!(output(Slice {}, &table), is("i64[1,min(512,seq)]"));
    let mask = [of("f32[1,1,past+seq,past+seq]"), ints(&["past"]), ints(&["past+seq"]), numbers(&[2])];
    assert_eq!(output(Slice {}, &mask), is("f32[1,1,seq,past+seq]"));
}

#[test]
fn masks_are_expanded() {
    let shape = ints(&["batch", "1", "seq", "seq"]);
    assert_eq!(output(Expand {}, &[of("f32[batch,1,1,seq]"), shape.clone()]), is("f32[batch,1,seq,seq]"));
    let ones = ConstantOfShape { value: Some(Tensor::vector(vec![1f32])) };
    assert_eq!(output(ones, std::slice::from_ref(&shape)), is("f32[batch,1,seq,seq]"));
    assert_eq!(output(Expand {}, &[of("f32[2]"), shape]), is("f32[batch,1,seq,2]"));
    assert_eq!(output(Expand {}, &[of("f32[3,1]"), of("i64[3]")]), is("f32[expand0,3,expand1]"));
    assert_eq!(output(Expand {}, &[of("f32[3,1]"), of("i64[k]")]), is("f32[*]"));
    assert_eq!(full(Expand {}, &[ints(&["n"]), numbers(&[2])]), is("i64[2] = n,n"));
    assert_eq!(output(Expand {}, &[of("f32[3]"), numbers(&[2])]), Err(InferErrorKind::BadShape));
    assert_eq!(output(Expand {}, &[of("f32[3]"), numbers(&[-1])]), Err(InferErrorKind::BadShape));
}

#[test]
fn reshape_uses_what_is_known() {
    let to = |data: &str, target: &[i64]| output(RESHAPE, &[of(data), numbers(target)]);
    assert_eq!(to("f32[n,4,5]", &[0, -1]), is("f32[n,20]"));
    assert_eq!(to("f32[n,4]", &[2, -1]), is("f32[2,2*n]"));
    assert_eq!(to("f32[n,3]", &[-1, 2]), is("f32[floordiv(3*n,2),2]"));
    assert_eq!(to("f32[*]", &[0, -1, 7]), is("f32[reshape0,reshape1,7]"));
    assert_eq!(to("f32[2,3]", &[]), Err(InferErrorKind::BadShape));
    assert_eq!(to("f32[n]", &[]), is("f32[]"));
    for bad in [&[-1, -1][..], &[-2, 3], &[4, -1], &[0, 0, 0], &[7], &[i64::MIN], &[i64::MAX, i64::MAX]] {
        assert_eq!(to("f32[2,3]", bad), Err(InferErrorKind::BadShape), "{bad:?}");
    }
    let zero = Reshape { allowzero: true };
    assert_eq!(output(zero.clone(), &[of("f32[0,3]"), numbers(&[3, 0])]), is("f32[3,0]"));
    assert_eq!(output(zero, &[of("f32[n,3]"), numbers(&[0, -1])]), Err(InferErrorKind::BadShape));
    assert_eq!(output(RESHAPE, &[of("f32[2,n]"), of("i64[3]")]), is("f32[reshape0,reshape1,reshape2]"));
    assert_eq!(output(RESHAPE, &[of("f32[2,n]"), of("i64[1]")]), is("f32[2*n]"));
    assert_eq!(output(RESHAPE, &[of("f32[2,n]"), ints(&["unknown()", "2"])]), is("f32[n,2]"));
    assert_eq!(output(RESHAPE, &[of("f32[2,n]"), of("i64[k]")]), is("f32[*]"));
    assert_eq!(output(RESHAPE, &[of("f32[2,n]"), of("i64[9999999999]")]), Err(InferErrorKind::BadShape));
    assert_eq!(output(RESHAPE, &[of("f32[2,n]"), of("f32[1]")]), Err(InferErrorKind::BadType));
    assert_eq!(full(RESHAPE, &[ints(&["n"]), numbers(&[])]), is("i64[] = n"));
}

#[test]
fn flatten_squeeze_unsqueeze() {
    let flat = |data: &str, axis| output(Flatten { axis }, &[of(data)]);
    assert_eq!(flat("f32[n,3,h,2]", 1), is("f32[n,6*h]"));
    assert_eq!(flat("f32[n,3,h,2]", 4), is("f32[6*h*n,1]"));
    assert_eq!(flat("f32[n,3]", -2), is("f32[1,3*n]"));
    assert_eq!(flat("f32[]", 0), is("f32[1,1]"));
    assert_eq!(flat("f32[*]", 9), is("f32[flatten0,flatten1]"));
    assert_eq!(flat("f32[n,3]", 3), Err(InferErrorKind::BadAttribute));
    let squeeze = |data: &str, axes: Input| output(Squeeze {}, &[of(data), axes]);
    assert_eq!(squeeze("f32[1,n,1]", numbers(&[0, -1])), is("f32[n]"));
    assert_eq!(squeeze("f32[1,n,m]", numbers(&[1])), is("f32[1,m]"));
    assert_eq!(squeeze("f32[1,3,1]", None), is("f32[3]"));
    assert_eq!(squeeze("f32[1,n,1]", None), is("f32[*]"));
    assert_eq!(squeeze("f32[1,n,1]", of("i64[2]")), is("f32[squeeze0]"));
    assert_eq!(squeeze("f32[1,n,1]", of("i64[4]")), Err(InferErrorKind::BadShape));
    assert_eq!(squeeze("f32[2]", numbers(&[0])), Err(InferErrorKind::BadShape));
    assert_eq!(squeeze("f32[1,1]", numbers(&[0, -2])), Err(InferErrorKind::BadAttribute));
    let widen = |data: &str, axes: Input| output(Unsqueeze {}, &[of(data), axes]);
    assert_eq!(widen("f32[n]", numbers(&[-1, 0])), is("f32[1,n,1]"));
    assert_eq!(widen("f32[n]", of("i64[1]")), is("f32[unsqueeze0,unsqueeze1]"));
    assert_eq!(widen("f32[n]", numbers(&[2])), Err(InferErrorKind::BadAttribute));
    assert_eq!(full(Squeeze {}, &[ints(&["n"])]), is("i64[] = n"));
}

#[test]
fn transpose_and_tile() {
    let turn = |data: &str, perm: Option<Vec<i64>>| output(Transpose { perm }, &[of(data)]);
    assert_eq!(turn("f32[a,b,c]", Some(vec![2, 0, 1])), is("f32[c,a,b]"));
    assert_eq!(turn("f32[a,b,c]", None), is("f32[c,b,a]"));
    assert_eq!(turn("f32[*]", Some(vec![1, 0])), is("f32[transpose0,transpose1]"));
    assert_eq!(turn("f32[*]", None), is("f32[*]"));
    assert_eq!(turn("f32[a,b]", Some(vec![0, 0])), Err(InferErrorKind::BadAttribute));
    assert_eq!(turn("f32[a,b]", Some(vec![0])), Err(InferErrorKind::BadAttribute));
    let tile = |data: &str, repeats: Input| output(Tile {}, &[of(data), repeats]);
    assert_eq!(tile("f32[n,2]", ints(&["2", "k"])), is("f32[2*n,2*k]"));
    assert_eq!(tile("f32[n,2]", of("i64[2]")), is("f32[tile0,tile1]"));
    assert_eq!(tile("f32[n,2]", numbers(&[2])), Err(InferErrorKind::BadShape));
    assert_eq!(tile("f32[n]", numbers(&[-1])), Err(InferErrorKind::BadShape));
    assert_eq!(tile("f32[4]", numbers(&[i64::MAX])), is("f32[tile0]"));
    assert_eq!(full(Tile {}, &[ints(&["n", "1"]), numbers(&[2])]), is("i64[4] = n,1,n,1"));
}

#[test]
fn concat_sums_and_agrees() {
    let concat = |axis, inputs: &[&str]| {
        output(Concat { axis }, &inputs.iter().map(|text| of(text)).collect::<Vec<_>>())
    };
    assert_eq!(concat(-1, &["f32[n,2]", "f32[n,k]"]), is("f32[n,k+2]"));
    assert_eq!(concat(0, &["f32[n,k]", "f32[m,3]"]), is("f32[m+n,3]"));
    assert_eq!(concat(0, &["f32[n,3]", "f32[*]"]), is("f32[concat0,3]"));
    assert_eq!(concat(0, &["f32[*]", "f32[*]"]), is("f32[*]"));
    assert_eq!(concat(0, &["f32[n,2]", "f32[n,3]"]), Err(InferErrorKind::BadShape));
    assert_eq!(concat(0, &["f32[n]", "f32[n,3]"]), Err(InferErrorKind::BadShape));
    assert_eq!(concat(0, &["f32[n]", "i64[n]"]), Err(InferErrorKind::BadType));
    assert_eq!(concat(1, &["f32[n]"]), Err(InferErrorKind::BadAttribute));
    assert_eq!(concat(0, &[]), Err(InferErrorKind::MissingInput));
    let floats = [constant(Tensor::vector(vec![1f32, 1.0])), constant(Tensor::vector(vec![2f32, 2.5]))];
    assert_eq!(full(Concat { axis: 0 }, &floats), is("f32[4] = 1,1,2,2.5"));
}

fn splits(op: Split, inputs: &[Input], n: usize) -> Result<Vec<String>, InferErrorKind> {
    inferred(op, inputs, n).map(|outputs| outputs.iter().map(described).collect())
}

#[test]
fn split_by_sizes_or_evenly() {
    let even = |n| Split { num_outputs: Some(n), axis: -1 };
    let given = Split { num_outputs: None, axis: 0 };
    let types = |texts: &[&str]| Ok(texts.iter().map(|text| text.to_string()).collect::<Vec<_>>());
    assert_eq!(splits(even(3), &[of("f32[n,7]")], 3), types(&["f32[n,3]", "f32[n,3]", "f32[n,1]"]));
    assert_eq!(splits(even(2), &[of("f32[2*n]")], 2), types(&["f32[n]", "f32[n]"]));
    let halves = types(&["f32[floordiv(n+1,2)]", "f32[n-floordiv(n+1,2)]"]);
    assert_eq!(splits(even(2), &[of("f32[n]")], 2), halves);
    assert_eq!(splits(even(4), &[of("f32[5]")], 4), Err(InferErrorKind::BadShape));
    assert_eq!(splits(even(3), &[of("f32[6]")], 2), Err(InferErrorKind::BadAttribute));
    assert_eq!(splits(even(-1), &[of("f32[6]")], 2), Err(InferErrorKind::BadAttribute));
    let sizes = |sizes: &[i64], n| splits(given.clone(), &[ints(&["a", "b", "c"]), numbers(sizes)], n);
    assert_eq!(sizes(&[1, 2], 2), types(&["i64[1] = a", "i64[2] = b,c"]));
    assert_eq!(sizes(&[1, 1], 2), Err(InferErrorKind::BadShape));
    assert_eq!(sizes(&[4, -1], 2), Err(InferErrorKind::BadShape));
    assert_eq!(sizes(&[3], 2), Err(InferErrorKind::BadAttribute));
    let partly = [of("f32[n]"), ints(&["2", "unknown()"])];
    assert_eq!(splits(given.clone(), &partly, 2), types(&["f32[2]", "f32[n-2]"]));
    assert_eq!(splits(given, &[of("f32[*]"), of("i64[2]")], 2), types(&["f32[*]", "f32[*]"]));
}

#[test]
fn slices_of_shapes_and_contents() {
    let slice = |data: Input, lists: &[Input]| full(Slice {}, &[&[data], lists].concat());
    let list = ints(&["a", "b", "c"]);
    assert_eq!(slice(list.clone(), &[numbers(&[1]), numbers(&[i64::MAX])]), is("i64[2] = b,c"));
    let back = [numbers(&[-1]), numbers(&[i64::MIN]), numbers(&[0]), numbers(&[-2])];
    assert_eq!(slice(list.clone(), &back), is("i64[2] = c,a"));
    assert_eq!(slice(list, &[numbers(&[3]), numbers(&[9])]), is("i64[0] = "));
    let one_axis = [of("i64[1]"), of("i64[1]"), numbers(&[-1])];
    assert_eq!(slice(of("f32[a,b]"), &one_axis), is("f32[a,slice0]"));
    let any_axis = [numbers(&[0]), numbers(&[1]), of("i64[1]")];
    assert_eq!(slice(of("f32[a,b]"), &any_axis), is("f32[slice0,slice1]"));
    assert_eq!(slice(of("f32[*]"), &[numbers(&[0]), numbers(&[1])]), is("f32[*]"));
    let differ = [numbers(&[0]), numbers(&[1, 2])];
    assert_eq!(slice(of("f32[a]"), &differ), Err(InferErrorKind::BadShape));
    let zero = [numbers(&[0]), numbers(&[1]), numbers(&[0]), numbers(&[0])];
    assert_eq!(slice(of("f32[a]"), &zero), Err(InferErrorKind::BadShape));
    let twice = [numbers(&[0, 0]), numbers(&[1, 1]), numbers(&[0, -1])];
    assert_eq!(slice(of("f32[a]"), &twice), Err(InferErrorKind::BadAttribute));
}

#[test]
fn pad_and_crop() {
    let pad =
        |data: &str, rest: &[Input]| output(Pad { mode: PadMode::Reflect }, &[&[of(data)], rest].concat());
    assert_eq!(pad("f32[n,4]", &[ints(&["1", "p", "2", "-1"])]), is("f32[n+3,p+3]"));
    assert_eq!(pad("f32[n,4]", &[numbers(&[1, 1]), None, numbers(&[-1])]), is("f32[n,6]"));
    assert_eq!(pad("f32[n,4]", &[of("i64[4]")]), is("f32[pad0,pad1]"));
    assert_eq!(pad("f32[n,4]", &[of("i64[2]"), None, numbers(&[0])]), is("f32[pad0,4]"));
    assert_eq!(pad("f32[*]", &[of("i64[4]")]), is("f32[pad0,pad1]"));
    assert_eq!(pad("f32[4]", &[numbers(&[-2, -3])]), Err(InferErrorKind::BadShape));
    assert_eq!(pad("f32[4]", &[numbers(&[1])]), Err(InferErrorKind::BadShape));
    assert_eq!(pad("f32[4]", &[numbers(&[1, 1]), of("i64[]")]), Err(InferErrorKind::BadType));
    let list = [ints(&["n"]), numbers(&[1, 2]), constant(Tensor::scalar(7i64))];
    assert_eq!(full(Pad { mode: PadMode::Constant }, &list), is("i64[4] = 7,n,7,7"));
    let crop = |axes, data: &str, target: Input| output(CenterCropPad { axes }, &[of(data), target]);
    assert_eq!(crop(None, "f32[n,4]", numbers(&[3, 5])), is("f32[3,5]"));
    assert_eq!(crop(Some(vec![-1]), "f32[n,4]", ints(&["k"])), is("f32[n,k]"));
    assert_eq!(crop(None, "f32[*]", of("i64[2]")), is("f32[crop0,crop1]"));
    assert_eq!(crop(None, "f32[n,4]", numbers(&[3])), Err(InferErrorKind::BadShape));
    assert_eq!(crop(Some(vec![2]), "f32[n,4]", numbers(&[3])), Err(InferErrorKind::BadAttribute));
}

#[test]
fn depth_space_and_triangles() {
    let spread =
        |data: &str, blocksize| output(DepthToSpace { mode: DepthToSpaceMode::Dcr, blocksize }, &[of(data)]);
    assert_eq!(spread("f32[n,8,h,3]", 2), is("f32[n,2,2*h,6]"));
    assert_eq!(
        spread("f32[*]", 2),
        is("f32[depth_to_space0,depth_to_space1,depth_to_space2,depth_to_space3]")
    );
    assert_eq!(spread("f32[n,6,h,3]", 2), Err(InferErrorKind::BadShape));
    assert_eq!(spread("f32[n,6,h]", 2), Err(InferErrorKind::BadShape));
    assert_eq!(spread("f32[n,6,h,3]", 0), Err(InferErrorKind::BadAttribute));
    let stack = |data: &str, blocksize| output(SpaceToDepth { blocksize }, &[of(data)]);
    assert_eq!(stack("f32[n,c,2*h,6]", 2), is("f32[n,4*c,h,3]"));
    assert_eq!(stack("f32[n,c,h,5]", 2), Err(InferErrorKind::BadShape));
    assert_eq!(stack("f32[n,4,8,8]", i64::MAX), Err(InferErrorKind::BadShape));
    assert_eq!(output(Trilu { upper: true }, &[of("f32[n,m]")]), is("f32[n,m]"));
    assert_eq!(output(Trilu { upper: true }, &[of("f32[n]")]), Err(InferErrorKind::BadShape));
    let reverse = |time_axis, batch_axis, lens: &str| {
        output(ReverseSequence { time_axis, batch_axis }, &[of("f32[t,4]"), of(lens)])
    };
    assert_eq!(reverse(0, 1, "i64[4]"), is("f32[t,4]"));
    assert_eq!(reverse(0, 1, "i64[5]"), Err(InferErrorKind::BadShape));
    assert_eq!(reverse(1, 1, "i64[4]"), Err(InferErrorKind::BadAttribute));
}

#[test]
fn constants_ranges_and_eyes() {
    let ones = ConstantOfShape { value: Some(Tensor::vector(vec![1i64])) };
    assert_eq!(full(ones.clone(), &[numbers(&[2])]), is("i64[2] = 1,1"));
    assert_eq!(full(ones.clone(), &[numbers(&[])]), is("i64[] = 1"));
    assert_eq!(full(ones.clone(), &[of("i64[2]")]), is("i64[constant0,constant1]"));
    assert_eq!(full(ones.clone(), &[numbers(&[1 << 40])]), is("i64[1099511627776]"));
    assert_eq!(full(ones, &[numbers(&[-1])]), Err(InferErrorKind::BadShape));
    assert_eq!(output(ConstantOfShape { value: None }, &[of("i64[k]")]), is("f32[*]"));
    let scalar = |value: i64| constant(Tensor::scalar(value));
    let range = Range { stash_type: 1 };
    assert_eq!(full(range.clone(), &[scalar(1), scalar(8), scalar(3)]), is("i64[3] = 1,4,7"));
    assert_eq!(full(range.clone(), &[scalar(5), scalar(1), scalar(-2)]), is("i64[2] = 5,3"));
    assert_eq!(full(range.clone(), &[scalar(5), scalar(1), scalar(2)]), is("i64[0] = "));
    let n = step(Squeeze {}, &[ints(&["n"])]);
    assert_eq!(full(range.clone(), &[scalar(0), n.clone(), scalar(1)]), is("i64[n]"));
    assert_eq!(full(range.clone(), &[scalar(0), n.clone(), scalar(2)]), is("i64[floordiv(n+1,2)]"));
    assert_eq!(full(range.clone(), &[n.clone(), scalar(4), scalar(1)]), is("i64[max(0,-n+4)]"));
    assert_eq!(full(range.clone(), &[scalar(0), scalar(4), n.clone()]), is("i64[range0]"));
    let n_plus = step(Squeeze {}, &[ints(&["n+2"])]);
    assert_eq!(full(range.clone(), &[n, n_plus, scalar(1)]), is("i64[2] = n,n+1"));
    let float = |value: f32| constant(Tensor::scalar(value));
    assert_eq!(full(range.clone(), &[float(0.0), float(1.0), float(0.5)]), is("f32[2] = 0,0.5"));
    assert_eq!(output(range.clone(), &[of("f16[]"), of("f16[]"), of("f16[]")]), is("f16[range0]"));
    assert_eq!(full(range.clone(), &[scalar(0), scalar(4), scalar(0)]), Err(InferErrorKind::BadShape));
    assert_eq!(full(range.clone(), &[scalar(0), float(1.0), scalar(1)]), Err(InferErrorKind::BadType));
    assert_eq!(full(range.clone(), &[numbers(&[1, 2]), scalar(0), scalar(1)]), Err(InferErrorKind::BadShape));
    let nan = [float(0.0), float(f32::NAN), float(1.0)];
    assert_eq!(full(range.clone(), &nan), Err(InferErrorKind::BadShape));
    let wide = [scalar(i64::MIN), scalar(i64::MAX), scalar(1)];
    assert_eq!(full(range, &wide), is("i64[range0]"));
    let eye = EyeLike { dtype: Some(DType::Bool), k: 0 };
    assert_eq!(output(eye.clone(), &[of("f32[n,3]")]), is("bool[n,3]"));
    assert_eq!(output(eye, &[of("f32[n]")]), Err(InferErrorKind::BadShape));
}
