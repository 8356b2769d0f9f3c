//! Resampling and detection: shapes that follow, and shapes that are refused.

use planish_tensor::Tensor;

use super::*;
use crate::Attribute;
use crate::infer::InferErrorKind::{self, BadAttribute, BadShape, BadType};
use crate::infer::testing::{ABSENT, Input, constant, first, ints, named, of, output};

fn resize(attributes: &[(&str, Attribute)], inputs: &[Input]) -> Result<String, InferErrorKind> {
    output(named("Resize", attributes), inputs)
}

fn scales(values: &[f32]) -> Input {
    constant(Tensor::vector(values.to_vec()))
}

#[test]
fn resize_by_scales_is_exact_for_quotients() {
    let resized = |values: &[f32]| resize(&[], &[of("f32[n,3,h,9]"), ABSENT, scales(values)]);
    assert_eq!(resized(&[1.0, 1.0, 2.0, 2.0]).unwrap(), "f32[n,3,2*h,18]");
    assert_eq!(resized(&[1.0, 1.0, 0.5, 0.6]).unwrap(), "f32[n,3,floordiv(h,2),5]");
    assert_eq!(resized(&[1.0, 1.0, 0.123_456_78, 1.0]).unwrap(), "f32[n,3,resized0,9]");
    assert_eq!(resized(&[1.0, 1.0, 2.0]), Err(BadShape));
    assert_eq!(resized(&[1.0, 1.0, -2.0, 1.0]), Err(BadShape));
    assert_eq!(resized(&[1.0, 1.0, f32::NAN, 1.0]), Err(BadShape));
    let unknown = resize(&[], &[of("f32[n,3]"), ABSENT, of("f32[2]")]);
    assert_eq!(unknown.unwrap(), "f32[resized0,resized1]");
}

#[test]
fn resize_by_sizes_takes_their_contents() {
    let resized = |sizes| resize(&[], &[of("u8[n,3,h,w]"), ABSENT, ABSENT, sizes]);
    assert_eq!(resized(ints(&["n", "3", "2*h+1", "7"])).unwrap(), "u8[n,3,2*h+1,7]");
    assert_eq!(resized(of("i64[4]")).unwrap(), "u8[resized0,resized1,resized2,resized3]");
    assert_eq!(resized(ints(&["n", "3", "4"])), Err(BadShape));
    assert_eq!(resized(ints(&["n", "3", "-4", "1"])), Err(BadShape));
    let empty = || constant(Tensor::vector(Vec::<f32>::new()));
    let old_form = resize(&[], &[of("f32[2]"), empty(), empty(), ints(&["5"])]);
    assert_eq!(old_form.unwrap(), "f32[5]");
    assert_eq!(resize(&[], &[of("f32[0]"), ABSENT, ABSENT, ints(&["5"])]), Err(BadShape));
    assert_eq!(resize(&[], &[of("f32[2]")]), Err(BadShape));
    assert_eq!(resize(&[], &[of("f32[2]"), ABSENT, scales(&[1.0]), ints(&["2"])]), Err(BadShape));
}

#[test]
fn resize_of_some_axes_and_unknown_ranks() {
    let axes = |axes: &[i64]| vec![("axes", Attribute::Ints(axes.to_vec()))];
    let resized =
        |list: &[i64], sizes| resize(&axes(list), &[of("f32[n,3,h,w]"), ABSENT, ABSENT, ints(sizes)]);
    assert_eq!(resized(&[-1, 2], &["5", "6"]).unwrap(), "f32[n,3,6,5]");
    assert_eq!(resized(&[3, -1], &["5", "6"]), Err(BadAttribute));
    assert_eq!(resized(&[4], &["5"]), Err(BadAttribute));
    assert_eq!(resized(&[i64::MIN], &["5"]), Err(BadAttribute));
    let unranked = |attributes: &[_], sizes| resize(attributes, &[of("f32[*]"), ABSENT, ABSENT, sizes]);
    assert_eq!(unranked(&[], ints(&["n", "7"])).unwrap(), "f32[n,7]");
    assert_eq!(unranked(&[], ints(&["n", "-7"])), Err(BadShape));
    assert_eq!(unranked(&[], of("i64[2]")).unwrap(), "f32[resized0,resized1]");
    assert_eq!(unranked(&axes(&[1]), ints(&["7"])).unwrap(), "f32[*]");
}

#[test]
fn resize_keeps_the_aspect_ratio() {
    let policy = |word: &str, input: &str| {
        let attributes = [
            ("keep_aspect_ratio_policy", Attribute::Str(word.into())),
            ("axes", Attribute::Ints(vec![0, 1])),
        ];
        resize(&attributes, &[of(input), ABSENT, ABSENT, ints(&["7", "8"])])
    };
    assert_eq!(policy("not_larger", "f32[2,4,c]").unwrap(), "f32[4,8,c]");
    assert_eq!(policy("not_smaller", "f32[2,4,c]").unwrap(), "f32[7,14,c]");
    assert_eq!(policy("not_smaller", "f32[h,4,c]").unwrap(), "f32[resized0,resized1,c]");
    assert_eq!(policy("not_larger", "f32[0,4,c]"), Err(BadShape));
}

#[test]
fn grids_fit_their_images() {
    let sample = |x, grid| first("GridSample", &[], &[x, grid]);
    assert_eq!(sample("f32[n,c,h,w]", "f32[n,5,6,2]").unwrap(), "f32[n,c,5,6]");
    assert_eq!(sample("u8[n,c,d,h,w]", "f64[3,4,5,6,3]").unwrap(), "u8[3,c,4,5,6]");
    assert_eq!(sample("f32[*]", "f32[3,4,5,2]").unwrap(), "f32[*]");
    assert_eq!(sample("f32[2,c,h,w]", "f32[3,5,6,2]"), Err(BadShape));
    assert_eq!(sample("f32[2,c,h,w]", "f32[2,5,6,3]"), Err(BadShape));
    assert_eq!(sample("f32[2,c,h,w]", "f32[2,5,2]"), Err(BadShape));
    assert_eq!(sample("f32[2,c]", "f32[2,0]"), Err(BadShape));
    assert_eq!(sample("f32[2,c,h,w]", "i32[2,5,6,2]"), Err(BadType));
}

#[test]
fn affine_grids_are_as_large_as_asked() {
    let grid = |theta, sizes| output(AffineGrid { align_corners: false }, &[of(theta), sizes]);
    assert_eq!(grid("f32[n,2,3]", ints(&["n", "c", "h", "5"])).unwrap(), "f32[n,h,5,2]");
    assert_eq!(grid("f32[2,3,4]", ints(&["2", "c", "4", "h", "5"])).unwrap(), "f32[2,4,h,5,3]");
    assert_eq!(grid("f32[n,2,3]", of("i64[4]")).unwrap(), "f32[n,grid0,grid1,2]");
    assert_eq!(grid("f32[n,2,3]", of("i64[k]")).unwrap(), "f32[n,grid0,grid1,2]");
    assert_eq!(grid("f32[*]", of("i64[k]")).unwrap(), "f32[*]");
    assert_eq!(grid("f32[n,2,3]", ints(&["n"])), Err(BadShape));
    assert_eq!(grid("f32[n,3,4]", ints(&["n", "c", "h", "5"])), Err(BadShape));
    assert_eq!(grid("f32[n,2,3]", ints(&["n", "c", "-1", "5"])), Err(BadShape));
    assert_eq!(grid("f32[n,2]", of("i64[4]")), Err(BadShape));
}

#[test]
fn crops_and_selections() {
    let crop = |boxes, batch, size| {
        let op = named("CropAndResize", &[]);
        output(op, &[of("f32[b,c,h,w]"), of(boxes), of(batch), size])
    };
    assert_eq!(crop("f32[r,4]", "i32[6]", ints(&["7", "w"])).unwrap(), "f32[6,c,7,w]");
    assert_eq!(crop("f32[*]", "i32[*]", of("i32[2]")).unwrap(), "f32[boxes0,c,crop_height1,crop_width2]");
    assert_eq!(crop("f32[r,5]", "i32[6]", of("i32[2]")), Err(BadShape));
    assert_eq!(crop("f32[r,4]", "i32[6]", ints(&["7"])), Err(BadShape));
    assert_eq!(crop("f32[r,4]", "i32[6]", ints(&["-7", "1"])), Err(BadShape));

    let select = |boxes, scores, limit| {
        output(NonMaxSuppression { center_point_box: false }, &[of(boxes), of(scores), limit])
    };
    assert_eq!(select("f32[b,n,4]", "f32[b,80,n]", of("i64[]")).unwrap(), "i64[selected0,3]");
    assert_eq!(select("f32[b,n,4]", "f32[b,80,n]", ABSENT).unwrap(), "i64[0,3]");
    assert_eq!(select("f32[1,5,4]", "f32[1,80,6]", ABSENT), Err(BadShape));
    assert_eq!(select("f32[1,5,3]", "f32[1,80,5]", ABSENT), Err(BadShape));
    assert_eq!(select("f32[1,5,4]", "i64[1,80,5]", ABSENT), Err(BadType));
}
