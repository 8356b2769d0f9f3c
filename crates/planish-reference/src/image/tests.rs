//! Resampling and detection: values that can be computed by hand, edge shapes, refusals.

use std::time::Instant;

use planish_op::Attribute;
use planish_tensor::{DType, Tensor};

use crate::EvalErrorKind::{self, BadAttribute, BadShape, BadType, BadValue, MissingInput, TooLarge};
use crate::testing::{assert_near, counting, f32s, int_list, ints, named, run, word};

fn row(values: &[f64]) -> Tensor {
    f32s(&[values.len()], values)
}

fn by_scales(
    attributes: &[(&str, Attribute)],
    input: &Tensor,
    scales: &[f32],
) -> Result<Tensor, EvalErrorKind> {
    let scales = Tensor::vector(scales.to_vec());
    run(named("Resize", attributes), &[Some(input), None, Some(&scales)])
}

fn by_sizes(
    attributes: &[(&str, Attribute)],
    input: &Tensor,
    sizes: &[i64],
) -> Result<Tensor, EvalErrorKind> {
    let sizes = Tensor::vector(sizes.to_vec());
    let inputs = [Some(input), None, None, Some(&sizes)];
    run(named("Resize", attributes), &inputs)
}

#[test]
fn every_coordinate_mode_places_points() {
    // 4 points to 2: the coordinates themselves, read off an image whose pixels are their own places.
    let place = |mode: &str, from: usize, to: i64| {
        let attributes = [("mode", word("linear")), ("coordinate_transformation_mode", word(mode))];
        by_sizes(&attributes, &counting(DType::F32, &[from]), &[to]).unwrap()
    };
    assert_near(&place("half_pixel", 4, 2), &[0.5, 2.5]);
    assert_near(&place("half_pixel_symmetric", 4, 2), &[0.5, 2.5]);
    assert_near(&place("pytorch_half_pixel", 4, 2), &[0.5, 2.5]);
    assert_near(&place("pytorch_half_pixel", 4, 1), &[0.0]);
    assert_near(&place("half_pixel", 4, 1), &[1.5]);
    assert_near(&place("align_corners", 4, 2), &[0.0, 3.0]);
    assert_near(&place("align_corners", 4, 1), &[0.0]);
    assert_near(&place("asymmetric", 4, 2), &[0.0, 2.0]);
    assert_near(&place("tf_half_pixel_for_nn", 4, 2), &[1.0, 3.0]);
    assert_near(&place("half_pixel", 2, 4), &[0.0, 0.25, 0.75, 1.0]);
}

#[test]
fn symmetric_half_pixels_center_what_a_scale_cuts_off() {
    // 5 * 0.5 = 2.5 points, of which 2: the offset is 5/2 * (1 - 2/2.5) = 0.5.
    let attributes =
        [("mode", word("linear")), ("coordinate_transformation_mode", word("half_pixel_symmetric"))];
    assert_near(&by_scales(&attributes, &counting(DType::F32, &[5]), &[0.5]).unwrap(), &[1.0, 3.0]);
}

#[test]
fn every_nearest_mode_rounds_its_way() {
    // 8 points to 4: coordinates 0.5, 2.5, 4.5, 6.5.
    let picked = |mode: &str, from: usize, to: i64| {
        let attributes = [("nearest_mode", word(mode))];
        by_sizes(&attributes, &counting(DType::I64, &[from]), &[to]).unwrap().to_i64s()
    };
    assert_eq!(picked("round_prefer_floor", 8, 4), [0, 2, 4, 6]);
    assert_eq!(picked("round_prefer_ceil", 8, 4), [1, 3, 5, 7]);
    assert_eq!(picked("floor", 8, 4), [0, 2, 4, 6]);
    assert_eq!(picked("ceil", 8, 4), [1, 3, 5, 7]);
    // 20 points to 6 have ties at 4.5 and 14.5 that no rounding may hide.
    assert_eq!(picked("round_prefer_ceil", 20, 6), [1, 5, 8, 11, 15, 18]);
    // The first Resize: asymmetric, floor when enlarging and ceil when shrinking.
    let first = |from: usize, scale: f32| {
        let attributes =
            [("nearest_mode", word("simple")), ("coordinate_transformation_mode", word("asymmetric"))];
        by_scales(&attributes, &counting(DType::U8, &[from]), &[scale]).unwrap().to_i64s()
    };
    assert_eq!(first(3, 2.0), [0, 0, 1, 1, 2, 2]);
    assert_eq!(first(4, 0.6), [0, 2]);
}

#[test]
fn nearest_moves_every_type() {
    for dtype in DType::ALL {
        let input = Tensor::from_f64s(dtype, &[1, 3], &[1.0, 0.0, 1.0]).unwrap();
        let output = by_scales(&[], &input, &[2.0, 2.0]).unwrap();
        let expected = [1.0, 1.0, 0.0, 0.0, 1.0, 1.0].repeat(2);
        assert_eq!(output, Tensor::from_f64s(dtype, &[2, 6], &expected).unwrap(), "{dtype}");
    }
    let large = Tensor::vector(vec![i64::MAX, i64::MIN + 1]);
    assert_eq!(by_scales(&[], &large, &[1.5]).unwrap().to_i64s(), [i64::MAX, i64::MAX, i64::MIN + 1]);
}

#[test]
fn linear_and_cubic_weigh_their_neighbours() {
    let input = row(&[1.0, 2.0, 4.0, 8.0]);
    let linear = [("mode", word("linear"))];
    assert_near(&by_scales(&linear, &input, &[2.0]).unwrap(), &[1.0, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0, 8.0]);
    // Halfway between pixels the cubic weights are a/8, 1/2 - a/8, twice: with a = -3/4, -3/32 and 19/32.
    let cubic = [("mode", word("cubic"))];
    let halfway = (-3.0 * 1.0 + 19.0 * 2.0 + 19.0 * 4.0 - 3.0 * 8.0) / 32.0;
    let middle = by_sizes(&cubic, &input, &[1]).unwrap();
    assert_near(&middle, &[halfway]);
    // Outside, the border is repeated, or left out and the rest weighed up.
    let first = (-3.0 * 1.0 + 19.0 * 1.0 + 19.0 * 2.0 - 3.0 * 4.0) / 32.0;
    let last = (-3.0 * 2.0 + 19.0 * 4.0 + 19.0 * 8.0 - 3.0 * 8.0) / 32.0;
    assert_near(&by_sizes(&cubic, &input, &[2]).unwrap(), &[first, last]);
    let exclude = [("mode", word("cubic")), ("exclude_outside", Attribute::Bool(true))];
    let first = (19.0 * 1.0 + 19.0 * 2.0 - 3.0 * 4.0) / 35.0;
    let last = (-3.0 * 2.0 + 19.0 * 4.0 + 19.0 * 8.0) / 35.0;
    assert_near(&by_sizes(&exclude, &input, &[2]).unwrap(), &[first, last]);
    let coefficient = [("mode", word("cubic")), ("cubic_coeff_a", Attribute::Float(-0.5))];
    let halfway = (9.0 * 2.0 + 9.0 * 4.0 - 1.0 - 8.0) / 16.0;
    assert_near(&by_sizes(&coefficient, &input, &[1]).unwrap(), &[halfway]);
}

#[test]
fn antialias_takes_in_what_shrinks_together() {
    let attributes = |exclude| {
        [
            ("mode", word("linear")),
            ("antialias", Attribute::Bool(true)),
            ("exclude_outside", Attribute::Bool(exclude)),
        ]
    };
    // 4 to 2: a triangle of radius 2 around 0.5 has the weights 1/8, 3/8, 3/8, 1/8 at -1, 0, 1, 2.
    let input = row(&[1.0, 2.0, 4.0, 8.0]);
    let expected = [(4.0 * 1.0 + 3.0 * 2.0 + 4.0) / 8.0, (2.0 + 3.0 * 4.0 + 4.0 * 8.0) / 8.0];
    assert_near(&by_sizes(&attributes(false), &input, &[2]).unwrap(), &expected);
    let expected = [(3.0 * 1.0 + 3.0 * 2.0 + 4.0) / 7.0, (2.0 + 3.0 * 4.0 + 3.0 * 8.0) / 7.0];
    assert_near(&by_sizes(&attributes(true), &input, &[2]).unwrap(), &expected);
    // Enlarging, it changes nothing.
    let plain = by_scales(&[("mode", word("linear"))], &input, &[3.0]).unwrap();
    assert_eq!(by_scales(&attributes(false), &input, &[3.0]).unwrap(), plain);
    let nearest = by_sizes(&[("antialias", Attribute::Bool(true))], &input, &[2]);
    assert_eq!(nearest, Err(BadAttribute));
}

#[test]
fn axes_are_independent_and_in_any_order() {
    let image = counting(DType::F32, &[2, 3]);
    let linear = ("mode", word("linear"));
    // A plane stays a plane: value 3y + x at half-pixel coordinates clamped to the image.
    let doubled = by_scales(std::slice::from_ref(&linear), &image, &[2.0, 2.0]).unwrap();
    let (ys, xs) = ([0.0, 0.25, 0.75, 1.0], [0.0, 0.25, 0.75, 1.25, 1.75, 2.0]);
    let expected: Vec<f64> = ys.iter().flat_map(|y| xs.map(|x| 3.0 * y + x)).collect();
    assert_near(&doubled, &expected);
    assert_eq!(doubled.shape(), [4, 6]);
    let some = by_sizes(&[linear.clone(), ("axes", int_list(&[-1, 0]))], &image, &[6, 4]).unwrap();
    assert_eq!(some, doubled);
    let one = by_sizes(&[linear, ("axes", int_list(&[1]))], &image, &[1]).unwrap();
    assert_near(&one, &[1.0, 4.0]);
    // Five axes, the middle one resized.
    let deep = counting(DType::F64, &[1, 2, 2, 1, 2]);
    let deep = by_scales(&[("mode", word("cubic"))], &deep, &[1.0, 1.0, 2.0, 1.0, 1.0]).unwrap();
    assert_eq!(deep.shape(), [1, 2, 4, 1, 2]);
}

#[test]
fn integers_are_rounded_and_saturate() {
    let linear = [("mode", word("linear"))];
    let input = Tensor::vector(vec![0u8, 3, 10]);
    assert_eq!(by_scales(&linear, &input, &[2.0]).unwrap().to_i64s(), [0, 1, 2, 5, 8, 10]);
    let cubic =
        by_scales(&[("mode", word("cubic"))], &Tensor::vector(vec![0u8, 0, 255, 255]), &[2.0]).unwrap();
    assert_eq!(cubic.dtype(), DType::U8);
    // The filter overshoots on both sides of the step.
    assert_eq!(cubic.to_i64s(), [0, 0, 0, 58, 197, 255, 255, 255]);
}

#[test]
fn crops_extrapolate_outside() {
    let crop = |mode: &str, roi: &[f32], size: i64| {
        let attributes = [
            ("mode", word(mode)),
            ("coordinate_transformation_mode", word("tf_crop_and_resize")),
            ("extrapolation_value", Attribute::Float(-1.0)),
        ];
        let (roi, size) = (Tensor::vector(roi.to_vec()), Tensor::vector(vec![size]));
        let input = row(&[0.0, 10.0, 20.0, 30.0, 40.0]);
        run(named("Resize", &attributes), &[Some(&input), Some(&roi), None, Some(&size)])
    };
    assert_near(&crop("linear", &[0.25, 0.75], 3).unwrap(), &[10.0, 20.0, 30.0]);
    assert_near(&crop("linear", &[0.25, 0.75], 5).unwrap(), &[10.0, 15.0, 20.0, 25.0, 30.0]);
    assert_near(&crop("linear", &[0.5, 1.5], 3).unwrap(), &[20.0, 40.0, -1.0]);
    assert_near(&crop("nearest", &[-0.5, 0.5], 3).unwrap(), &[-1.0, 0.0, 20.0]);
    assert_near(&crop("cubic", &[0.0, 1.0], 1).unwrap(), &[20.0]);
    // The end of the region is exactly the last pixel, for any number of points.
    for size in 2..50 {
        assert_eq!(crop("linear", &[0.1, 1.0], size).unwrap().to_f64s().last(), Some(&40.0));
    }
    assert_eq!(crop("linear", &[0.25], 3), Err(BadShape));
    let attributes = [("coordinate_transformation_mode", word("tf_crop_and_resize"))];
    assert_eq!(by_sizes(&attributes, &row(&[1.0]), &[2]), Err(MissingInput));
    // Outside along one axis is outside.
    let attributes = [
        ("mode", word("linear")),
        ("coordinate_transformation_mode", word("tf_crop_and_resize")),
        ("extrapolation_value", Attribute::Float(9.0)),
        ("axes", int_list(&[1])),
    ];
    let (roi, size) = (Tensor::vector(vec![0.0f32, 2.0]), ints(&[2]));
    let inputs = [Some(&counting(DType::F32, &[2, 2])), Some(&roi), None, Some(&size)];
    assert_near(&run(named("Resize", &attributes), &inputs).unwrap(), &[0.0, 9.0, 2.0, 9.0]);
}

#[test]
fn aspect_ratio_policies_choose_one_scale() {
    let shape = |policy: &str| {
        let attributes = [("keep_aspect_ratio_policy", word(policy)), ("mode", word("linear"))];
        by_sizes(&attributes, &counting(DType::F32, &[2, 4]), &[7, 8]).unwrap().shape().to_vec()
    };
    assert_eq!(shape("stretch"), [7, 8]);
    assert_eq!(shape("not_larger"), [4, 8]);
    assert_eq!(shape("not_smaller"), [7, 14]);
}

#[test]
fn resize_refuses_and_passes_edges() {
    let input = counting(DType::F32, &[2, 3]);
    assert_eq!(by_scales(&[], &input, &[1.0]), Err(BadShape));
    assert_eq!(by_scales(&[], &input, &[1.0, 0.0]), Err(BadValue));
    assert_eq!(by_scales(&[], &input, &[1.0, f32::NAN]), Err(BadValue));
    assert_eq!(by_scales(&[], &input, &[1e30, 1e30]), Err(TooLarge));
    assert_eq!(by_sizes(&[], &input, &[1, -1]), Err(BadValue));
    assert_eq!(by_sizes(&[], &input, &[i64::MAX, i64::MAX]), Err(TooLarge));
    assert_eq!(by_sizes(&[("axes", int_list(&[0, -2]))], &input, &[1, 1]), Err(BadAttribute));
    assert_eq!(by_sizes(&[("axes", int_list(&[2]))], &input, &[1]), Err(BadAttribute));
    assert_eq!(run(named("Resize", &[]), &[&input]), Err(BadShape));
    let both = [Some(&input), None, Some(&row(&[1.0, 1.0])), Some(&ints(&[2, 3]))];
    assert_eq!(run(named("Resize", &[]), &both), Err(BadShape));
    let empty = Tensor::zeros(DType::F32, &[0, 3]).unwrap();
    assert_eq!(by_scales(&[], &empty, &[2.0, 2.0]).unwrap().shape(), [0, 6]);
    assert_eq!(by_sizes(&[], &empty, &[2, 2]), Err(BadShape));
    assert_eq!(by_sizes(&[("mode", word("linear"))], &input, &[0, 5]).unwrap().shape(), [0, 5]);
    let not_kept = [("keep_aspect_ratio_policy", word("not_larger"))];
    assert_eq!(by_sizes(&not_kept, &empty, &[2, 2]), Err(BadShape));
}

#[test]
fn an_image_is_doubled_quickly() {
    let image = counting(DType::F32, &[1, 3, 512, 512]);
    for mode in ["nearest", "linear", "cubic"] {
        let start = Instant::now();
        let output = by_scales(&[("mode", word(mode))], &image, &[1.0, 1.0, 2.0, 2.0]).unwrap();
        assert_eq!(output.shape(), [1, 3, 1024, 1024]);
        // Measured at 27, 174 and 114 ms on two cores under a load of 14; the limit leaves room for worse.
        let seconds = start.elapsed().as_secs_f64();
        assert!(seconds < 2.0, "{mode} took {seconds} s");
    }
}

fn sampled(mode: &str, padding: &str, align: bool, points: &[[f64; 2]]) -> Vec<f64> {
    let attributes =
        [("mode", word(mode)), ("padding_mode", word(padding)), ("align_corners", Attribute::Bool(align))];
    // Pixels 0 1 2 / 3 4 5.
    let image = counting(DType::F32, &[1, 1, 2, 3]);
    let grid = f32s(&[1, 1, points.len(), 2], points.as_flattened());
    run(named("GridSample", &attributes), &[&image, &grid]).unwrap().to_f64s()
}

#[test]
fn grid_points_are_read_in_every_mode() {
    let corners = [[-1.0, -1.0], [1.0, -1.0], [0.0, 0.0], [1.0, 1.0]];
    assert_eq!(sampled("linear", "zeros", true, &corners), [0.0, 2.0, 2.5, 5.0]);
    // Without align_corners the corner is half a pixel out: a quarter of the pixel's value remains.
    assert_eq!(sampled("linear", "zeros", false, &corners), [0.0, 0.5, 2.5, 1.25]);
    assert_eq!(sampled("linear", "border", false, &corners), [0.0, 2.0, 2.5, 5.0]);
    assert_eq!(sampled("linear", "reflection", false, &corners), [0.0, 2.0, 2.5, 5.0]);
    // Halves go to the even index: y = 0.5 to 0, and x = 2.5 (outside the pixels) to 2.
    assert_eq!(sampled("nearest", "zeros", true, &[[-1.0, 0.0], [0.5, -1.0]]), [0.0, 2.0]);
    assert_eq!(sampled("nearest", "zeros", false, &[[1.0, -1.0]]), [2.0]);
    // Far outside.
    let far = [[5.0, -1.0]];
    assert_eq!(sampled("nearest", "zeros", true, &far), [0.0]);
    assert_eq!(sampled("nearest", "border", true, &far), [2.0]);
    // x = 6 reflects at 2 to -2, then at 0 to 2.
    assert_eq!(sampled("nearest", "reflection", true, &far), [2.0]);
    assert_eq!(sampled("linear", "border", true, &[[-9.0, 9.0]]), [3.0]);
    // On the pixels the cubic filter reads them alone.
    assert_eq!(sampled("cubic", "zeros", true, &corners[..2]), [0.0, 2.0]);
    assert_eq!(sampled("cubic", "border", true, &[[-9.0, 9.0]]), [3.0]);
}

#[test]
fn grid_values_that_are_no_numbers_stay_inside() {
    let points = [[f64::NAN, 0.0], [f64::INFINITY, -1.0], [f64::NEG_INFINITY, -1.0], [1e30, -1.0]];
    for mode in ["nearest", "linear", "cubic"] {
        assert_eq!(sampled(mode, "zeros", true, &points), [0.0; 4], "{mode}");
        assert_eq!(sampled(mode, "border", true, &points[1..]), [2.0, 0.0, 2.0], "{mode}");
        assert!(sampled(mode, "reflection", true, &points).iter().all(|value| (0.0..=5.0).contains(value)));
    }
}

#[test]
fn volumes_and_integers_are_sampled() {
    let volume = counting(DType::F32, &[1, 1, 2, 2, 2]);
    let center = f32s(&[1, 1, 1, 1, 3], &[0.0, 0.0, 0.0]);
    assert_eq!(run(named("GridSample", &[]), &[&volume, &center]).unwrap().to_f64s(), [3.5]);
    // x comes first: it is the innermost axis.
    let first = f32s(&[1, 1, 1, 1, 3], &[0.5, -0.5, -0.5]);
    assert_eq!(run(named("GridSample", &[]), &[&volume, &first]).unwrap().to_f64s(), [1.0]);
    let cubic = [("mode", word("cubic")), ("padding_mode", word("border"))];
    assert_eq!(run(named("GridSample", &cubic), &[&volume, &center]).unwrap().to_f64s(), [3.5]);
    let bytes = counting(DType::U8, &[1, 1, 2, 2, 2]);
    // 3.5 is cast, which drops the fraction.
    assert_eq!(run(named("GridSample", &[]), &[&bytes, &center]).unwrap().to_i64s(), [3]);
    let line = counting(DType::F64, &[2, 2, 3]);
    let ends = f32s(&[2, 2, 1], &[-1.0, 1.0, 1.0, -1.0]);
    let align = [("align_corners", Attribute::Bool(true))];
    let output = run(named("GridSample", &align), &[&line, &ends]).unwrap();
    assert_eq!(output.to_f64s(), [0.0, 2.0, 3.0, 5.0, 8.0, 6.0, 11.0, 9.0]);
}

#[test]
fn grids_that_do_not_fit_are_refused() {
    let image = counting(DType::F32, &[1, 1, 2, 2]);
    let sample = |image: &Tensor, grid: &Tensor| run(named("GridSample", &[]), &[image, grid]);
    let zeros = |dtype, shape: &[usize]| Tensor::zeros(dtype, shape).unwrap();
    assert_eq!(sample(&image, &zeros(DType::F32, &[1, 1, 1, 3])), Err(BadShape));
    assert_eq!(sample(&image, &zeros(DType::F32, &[2, 1, 1, 2])), Err(BadShape));
    assert_eq!(sample(&image, &zeros(DType::F32, &[1, 1, 2])), Err(BadShape));
    assert_eq!(sample(&image, &zeros(DType::I32, &[1, 1, 1, 2])), Err(BadType));
    assert_eq!(sample(&zeros(DType::F32, &[1, 1, 0, 2]), &zeros(DType::F32, &[1, 1, 1, 2])), Err(BadShape));
    assert_eq!(sample(&image, &zeros(DType::F32, &[1, 0, 5, 2])).unwrap().shape(), [1, 1, 0, 5]);
}

#[test]
fn affine_grids_are_the_pixels_mapped() {
    let grid = |align: bool, theta: &Tensor, list: &[i64]| {
        run(named("AffineGrid", &[("align_corners", Attribute::Bool(align))]), &[theta, &ints(list)])
    };
    let identity = f32s(&[1, 2, 3], &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    let corners = grid(true, &identity, &[1, 1, 2, 3]).unwrap();
    assert_eq!(corners.shape(), [1, 2, 3, 2]);
    let expected = [-1.0, -1.0, 0.0, -1.0, 1.0, -1.0, -1.0, 1.0, 0.0, 1.0, 1.0, 1.0];
    assert_near(&corners, &expected);
    let centers = grid(false, &identity, &[1, 1, 1, 2]).unwrap();
    assert_near(&centers, &[-0.5, 0.0, 0.5, 0.0]);
    // x' = 2x + 3y + 4, y' = 5x + 6y + 7.
    let general = f32s(&[1, 2, 3], &[2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    assert_near(&grid(true, &general, &[1, 1, 1, 2]).unwrap(), &[-1.0, -4.0, 3.0, 6.0]);
    let shift = f32s(&[1, 3, 4], &[1.0, 0.0, 0.0, 0.5, 0.0, 1.0, 0.0, 0.25, 0.0, 0.0, 1.0, 0.125]);
    assert_near(&grid(false, &shift, &[1, 1, 1, 1, 1]).unwrap(), &[0.5, 0.25, 0.125]);
    assert_eq!(grid(true, &identity, &[1, 1, 0, 3]).unwrap().shape(), [1, 0, 3, 2]);
    assert_eq!(grid(true, &identity, &[2, 1, 2, 3]), Err(BadShape));
    assert_eq!(grid(true, &identity, &[1, 1, 2]), Err(BadShape));
    assert_eq!(grid(true, &identity, &[]), Err(BadShape));
    assert_eq!(grid(true, &identity, &[1, 1, -2, 3]), Err(BadValue));
    assert_eq!(grid(true, &identity, &[1, 1, i64::MAX, i64::MAX]), Err(TooLarge));
}

#[test]
fn crop_and_resize_reads_boxes_of_images() {
    let images = counting(DType::F32, &[2, 1, 3, 3]);
    let crop = |mode: &str, boxes: &[f64], batch: &[i32], size: &[i32]| {
        let attributes = [("mode", word(mode)), ("extrapolation_value", Attribute::Float(-1.0))];
        let boxes = f32s(&[boxes.len() / 4, 4], boxes);
        let (batch, size) = (Tensor::vector(batch.to_vec()), Tensor::vector(size.to_vec()));
        run(named("CropAndResize", &attributes), &[&images, &boxes, &batch, &size])
    };
    let whole = [0.0, 0.0, 1.0, 1.0];
    assert_near(&crop("bilinear", &whole, &[1], &[2, 2]).unwrap(), &[9.0, 11.0, 15.0, 17.0]);
    assert_near(&crop("bilinear", &whole, &[0], &[1, 1]).unwrap(), &[4.0]);
    assert_near(&crop("bilinear", &[0.25, 0.0, 0.25, 1.0], &[0], &[1, 3]).unwrap(), &[1.5, 2.5, 3.5]);
    // Columns at 1, 2 and 3, of which the last is outside.
    assert_near(&crop("bilinear", &[0.0, 0.5, 0.0, 1.5], &[0], &[1, 3]).unwrap(), &[1.0, 2.0, -1.0]);
    // A half goes away from zero: row 0.5 to 1.
    assert_near(&crop("nearest", &[0.25, 0.0, 0.25, 1.0], &[0], &[1, 2]).unwrap(), &[3.0, 5.0]);
    assert_eq!(crop("bilinear", &whole, &[2], &[1, 1]), Err(BadValue));
    assert_eq!(crop("bilinear", &whole, &[-1], &[1, 1]), Err(BadValue));
    assert_eq!(crop("bilinear", &whole, &[0, 0], &[1, 1]), Err(BadShape));
    assert_eq!(crop("bilinear", &whole, &[0], &[1]), Err(BadShape));
    assert_eq!(crop("bilinear", &whole, &[0], &[1, -1]), Err(BadValue));
    assert_eq!(crop("bilinear", &[], &[], &[2, 2]).unwrap().shape(), [0, 1, 2, 2]);
}

/// Boxes, scores and thresholds to selected indices.
fn selected(
    boxes: &Tensor,
    scores: &Tensor,
    limit: i64,
    iou: f32,
    score: Option<f32>,
) -> Result<Vec<i64>, EvalErrorKind> {
    let (limit, iou, score) = (Tensor::scalar(limit), Tensor::scalar(iou), score.map(Tensor::scalar));
    let inputs = [Some(boxes), Some(scores), Some(&limit), Some(&iou), score.as_ref()];
    Ok(run(named("NonMaxSuppression", &[]), &inputs)?.to_i64s())
}

#[test]
fn overlapping_boxes_are_suppressed() {
    // Unit squares at y = 0, 0.5 and 3; the first two overlap by a third.
    let boxes = f32s(&[1, 3, 4], &[0.0, 0.0, 1.0, 1.0, 1.5, 1.0, 0.5, 0.0, 3.0, 0.0, 4.0, 1.0]);
    let scores = f32s(&[1, 1, 3], &[0.8, 0.9, 0.3]);
    assert_eq!(selected(&boxes, &scores, 9, 0.3, None).unwrap(), [0, 0, 1, 0, 0, 2]);
    assert_eq!(selected(&boxes, &scores, 9, 0.34, None).unwrap(), [0, 0, 1, 0, 0, 0, 0, 0, 2]);
    assert_eq!(selected(&boxes, &scores, 1, 0.34, None).unwrap(), [0, 0, 1]);
    assert_eq!(selected(&boxes, &scores, 9, 0.34, Some(0.3)).unwrap(), [0, 0, 1, 0, 0, 0]);
    assert_eq!(selected(&boxes, &scores, 0, 0.5, None).unwrap(), []);
    assert_eq!(selected(&boxes, &scores, i64::MIN, 0.5, None).unwrap(), []);
    // Equal scores keep the order of the boxes.
    let equal = f32s(&[1, 1, 3], &[0.5, 0.5, 0.5]);
    assert_eq!(selected(&boxes, &equal, 9, 0.0, None).unwrap(), [0, 0, 0, 0, 0, 2]);
    // Without a limit nothing is selected.
    let none = run(named("NonMaxSuppression", &[]), &[&boxes, &scores]).unwrap();
    assert_eq!(none.shape(), [0, 3]);
}

#[test]
fn suppression_is_per_batch_and_class_and_knows_centers() {
    let boxes = f32s(&[2, 2, 4], &[0.0, 0.0, 2.0, 2.0, 0.1, 0.0, 2.0, 2.0].repeat(2));
    let scores = f32s(&[2, 2, 2], &[0.1, 0.2, 0.4, 0.3, 0.5, 0.6, 0.7, 0.8]);
    let expected = [0, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1];
    assert_eq!(selected(&boxes, &scores, 5, 0.5, None).unwrap(), expected);
    // Around their centres, (x, y, width, height), the same two boxes touch only in a corner.
    let centered = [("center_point_box", Attribute::Bool(true))];
    let boxes = f32s(&[1, 2, 4], &[0.0, 0.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]);
    let scores = f32s(&[1, 1, 2], &[0.1, 0.2]);
    let limit = Tensor::scalar(5i64);
    let output = run(named("NonMaxSuppression", &centered), &[&boxes, &scores, &limit]).unwrap();
    assert_eq!(output.to_i64s(), [0, 0, 1, 0, 0, 0]);
}

#[test]
fn suppression_refuses_what_does_not_fit() {
    let boxes = f32s(&[1, 1, 4], &[0.0, 0.0, 1.0, 1.0]);
    let scores = f32s(&[1, 1, 1], &[0.5]);
    assert_eq!(selected(&boxes, &f32s(&[1, 1, 2], &[0.5, 0.5]), 1, 0.5, None), Err(BadShape));
    assert_eq!(selected(&f32s(&[1, 4], &[0.0; 4]), &scores, 1, 0.5, None), Err(BadShape));
    assert_eq!(selected(&boxes, &scores, 1, 1.5, None), Err(BadValue));
    assert_eq!(selected(&boxes, &scores, 1, f32::NAN, None), Err(BadValue));
    assert_eq!(selected(&boxes, &counting(DType::I32, &[1, 1, 1]), 1, 0.5, None), Err(BadType));
    let empty =
        (Tensor::zeros(DType::F32, &[1, 0, 4]).unwrap(), Tensor::zeros(DType::F32, &[1, 3, 0]).unwrap());
    assert_eq!(selected(&empty.0, &empty.1, 1, 0.5, None).unwrap(), []);
}
