//! Pooling and regions of interest against values computed by hand.

use planish_op::Attribute;
use planish_tensor::{DType, Tensor};

use crate::EvalErrorKind::{BadAttribute, BadShape, BadType, BadValue, TooLarge};
use crate::testing::{counting, f32s, int_list, named, run, run_all, word};

#[test]
fn averages_count_what_they_should() {
    let x = f32s(&[1, 1, 5], &[1.0, 2.0, 3.0, 4.0, 5.0]);
    let padded = [("kernel_shape", int_list(&[3])), ("pads", int_list(&[1, 1])), ("strides", int_list(&[2]))];
    assert_eq!(run(named("AveragePool", &padded), &[&x]).unwrap(), f32s(&[1, 1, 3], &[1.5, 3.0, 4.5]));
    let counted: Vec<_> =
        padded.iter().cloned().chain([("count_include_pad", Attribute::Bool(true))]).collect();
    assert_eq!(run(named("AveragePool", &counted), &[&x]).unwrap(), f32s(&[1, 1, 3], &[1.0, 3.0, 3.0]));
    // Rounding up lets the last window reach past the padding; what lies beyond is never counted.
    let up = [
        ("kernel_shape", int_list(&[4])),
        ("pads", int_list(&[0, 1])),
        ("strides", int_list(&[3])),
        ("ceil_mode", Attribute::Bool(true)),
        ("count_include_pad", Attribute::Bool(true)),
    ];
    assert_eq!(run(named("AveragePool", &up), &[&x]).unwrap(), f32s(&[1, 1, 2], &[2.5, 3.0]));
    let lower = [("kernel_shape", int_list(&[2])), ("auto_pad", word("SAME_LOWER"))];
    assert_eq!(
        run(named("AveragePool", &lower), &[&x]).unwrap(),
        f32s(&[1, 1, 5], &[1.0, 1.5, 2.5, 3.5, 4.5])
    );
    let dilated = [("kernel_shape", int_list(&[2])), ("dilations", int_list(&[3]))];
    assert_eq!(run(named("AveragePool", &dilated), &[&x]).unwrap(), f32s(&[1, 1, 2], &[2.5, 3.5]));
    // Both taps in the padding: nothing to average.
    let hollow =
        [("kernel_shape", int_list(&[2])), ("dilations", int_list(&[6])), ("pads", int_list(&[1, 1]))];
    assert_eq!(run(named("AveragePool", &hollow), &[&x]).unwrap(), f32s(&[1, 1, 1], &[0.0]));
}

#[test]
fn maxima_and_their_indices() {
    let x = f32s(&[1, 2, 2, 3], &[1.0, 5.0, 2.0, 5.0, 0.0, 3.0, -1.0, -2.0, -3.0, -4.0, -5.0, -6.0]);
    let pool = ("kernel_shape", int_list(&[2, 2]));
    let out = run_all(named("MaxPool", std::slice::from_ref(&pool)), &[Some(&x)], 2).unwrap();
    assert_eq!(out[0], f32s(&[1, 2, 1, 2], &[5.0, 5.0, -1.0, -2.0]));
    assert_eq!(out[1], Tensor::new(&[1, 2, 1, 2], vec![1i64, 1, 6, 7]).unwrap());
    let columns = [pool.clone(), ("storage_order", Attribute::Int(1))];
    let out = run_all(named("MaxPool", &columns), &[Some(&x)], 2).unwrap();
    assert_eq!(out[1], Tensor::new(&[1, 2, 1, 2], vec![2i64, 2, 6, 8]).unwrap());
    // Padding is not an element: negative maxima stay, and NaN is not lost.
    let row = f32s(&[1, 1, 4], &[-3.0, -2.0, f64::NAN, 7.0]);
    let padded = [("kernel_shape", int_list(&[2])), ("pads", int_list(&[1, 0]))];
    let out = run_all(named("MaxPool", &padded), &[Some(&row)], 2).unwrap();
    assert_eq!(out[0].to_f64s()[..2], [-3.0, -2.0]);
    assert!(out[0].to_f64s()[2..].iter().all(|value| value.is_nan()));
    assert_eq!(out[1].to_i64s(), [0, 1, 2, 2]);
    let hollow =
        [("kernel_shape", int_list(&[2])), ("dilations", int_list(&[5])), ("pads", int_list(&[1, 1]))];
    let out = run_all(named("MaxPool", &hollow), &[Some(&row)], 2).unwrap();
    assert_eq!((out[0].to_f64s(), out[1].to_i64s()), (vec![f64::NEG_INFINITY], vec![-1]));
    let bytes = Tensor::new(&[1, 1, 2, 2], vec![-128i8, -127, -126, -125]).unwrap();
    assert_eq!(run(named("MaxPool", &[pool]), &[&bytes]).unwrap().to_i64s(), [-125]);
}

#[test]
fn maxima_in_three_axes() {
    let x = counting(DType::F32, &[2, 1, 3, 3, 3]);
    let pool = [("kernel_shape", int_list(&[2, 1, 3])), ("strides", int_list(&[1, 2, 1]))];
    let out = run_all(named("MaxPool", &pool), &[Some(&x)], 2).unwrap();
    let expected = [11, 17, 20, 26];
    let both: Vec<i64> = expected.iter().copied().chain(expected.iter().map(|place| place + 27)).collect();
    assert_eq!(out[0].shape(), [2, 1, 2, 2, 1]);
    assert_eq!(out[0].to_i64s(), both);
    assert_eq!(out[1].to_i64s(), both);
    let columns: Vec<_> = pool.iter().cloned().chain([("storage_order", Attribute::Int(1))]).collect();
    let out = run_all(named("MaxPool", &columns), &[Some(&x)], 2).unwrap();
    // Place 11 is (1,0,2): 1 + 0*3 + 2*9 = 19.
    assert_eq!(out[1].to_i64s()[..4], [19, 25, 20, 26]);
}

#[test]
fn norms() {
    let x = f32s(&[1, 1, 4], &[3.0, -4.0, 0.0, 5.0]);
    let pool = [("kernel_shape", int_list(&[2])), ("strides", int_list(&[2]))];
    assert_eq!(run(named("LpPool", &pool), &[&x]).unwrap(), f32s(&[1, 1, 2], &[5.0, 5.0]));
    let first: Vec<_> = pool.iter().cloned().chain([("p", Attribute::Int(1))]).collect();
    assert_eq!(run(named("LpPool", &first), &[&x]).unwrap(), f32s(&[1, 1, 2], &[7.0, 5.0]));
    let zero: Vec<_> = pool.iter().cloned().chain([("p", Attribute::Int(0))]).collect();
    assert_eq!(run(named("LpPool", &zero), &[&x]), Err(BadAttribute));
}

#[test]
fn global_pools() {
    let x = f32s(&[1, 2, 1, 2], &[3.0, 4.0, -1.0, -5.0]);
    assert_eq!(run(named("GlobalAveragePool", &[]), &[&x]).unwrap(), f32s(&[1, 2, 1, 1], &[3.5, -3.0]));
    assert_eq!(run(named("GlobalMaxPool", &[]), &[&x]).unwrap(), f32s(&[1, 2, 1, 1], &[4.0, -1.0]));
    let norms = run(named("GlobalLpPool", &[]), &[&x]).unwrap();
    assert_eq!(norms, f32s(&[1, 2, 1, 1], &[5.0, 26f64.sqrt()]));
    let flat = f32s(&[1, 2], &[3.0, 4.0]);
    assert_eq!(run(named("GlobalAveragePool", &[]), &[&flat]).unwrap(), flat);
    let hollow = Tensor::zeros(DType::F32, &[0, 1, 1 << 40, 1 << 40]).unwrap();
    assert_eq!(run(named("GlobalMaxPool", &[]), &[&hollow]).unwrap().shape(), [0, 1, 1, 1]);
    assert_eq!(run(named("GlobalMaxPool", &[]), &[&f32s(&[1], &[0.0])]), Err(BadShape));
    assert_eq!(run(named("GlobalAveragePool", &[]), &[&counting(DType::I32, &[1, 1, 1])]), Err(BadType));
}

#[test]
fn bad_pools_are_refused() {
    let x = f32s(&[1, 1, 4], &[0.0; 4]);
    for op in ["AveragePool", "MaxPool", "LpPool"] {
        let refuses = |attributes: &[(&str, Attribute)], kind| {
            assert_eq!(run(named(op, attributes), &[&x]), Err(kind), "{op} {attributes:?}");
        };
        let kernel = |size: i64| ("kernel_shape", int_list(&[size]));
        refuses(&[("kernel_shape", int_list(&[2, 2]))], BadAttribute);
        refuses(&[("kernel_shape", int_list(&[]))], BadAttribute);
        refuses(&[kernel(0)], BadAttribute);
        refuses(&[kernel(i64::MAX)], BadShape);
        refuses(&[kernel(2), ("strides", int_list(&[0]))], BadAttribute);
        refuses(&[kernel(2), ("pads", int_list(&[0, i64::MAX]))], BadAttribute);
        refuses(&[kernel(2), ("pads", int_list(&[0, 1 << 50]))], TooLarge);
        // A huge kernel is walked only where it meets the input.
        let huge = [kernel(1 << 40), ("pads", int_list(&[1 << 40, 0])), ("strides", int_list(&[1 << 39]))];
        assert_eq!(run(named(op, &huge), &[&x]).unwrap().shape(), [1, 1, 1]);
        assert_eq!(run(named(op, &[kernel(2)]), &[&f32s(&[1, 1], &[0.0])]), Err(BadShape));
    }
    assert_eq!(
        run(named("MaxPool", &[("kernel_shape", int_list(&[1]))]), &[&counting(DType::I64, &[1, 1, 1])]),
        Err(BadType)
    );
    let order = [("kernel_shape", int_list(&[1])), ("storage_order", Attribute::Int(-1))];
    assert_eq!(run(named("MaxPool", &order), &[&x]), Err(BadAttribute));
}

#[test]
fn unpooling_puts_maxima_back() {
    let x = f32s(&[1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let indices = Tensor::new(&[1, 1, 2, 2], vec![5i64, 7, 13, 15]).unwrap();
    let pool = [("kernel_shape", int_list(&[2, 2])), ("strides", int_list(&[2, 2]))];
    let out = run(named("MaxUnpool", &pool), &[&x, &indices]).unwrap();
    let mut expected = [0.0; 16];
    for (place, value) in [(5, 1.0), (7, 2.0), (13, 3.0), (15, 4.0)] {
        expected[place] = value;
    }
    assert_eq!(out, f32s(&[1, 1, 4, 4], &expected));
    let wanted = Tensor::vector(vec![1i64, 1, 4, 5]);
    let out = run(named("MaxUnpool", &pool), &[&x, &indices, &wanted]).unwrap();
    let mut expected = [0.0; 20];
    for (place, value) in [(6, 1.0), (8, 2.0), (16, 3.0), (18, 4.0)] {
        expected[place] = value;
    }
    assert_eq!(out, f32s(&[1, 1, 4, 5], &expected));
    let outside = Tensor::new(&[1, 1, 2, 2], vec![5i64, 7, 13, 16]).unwrap();
    assert_eq!(run(named("MaxUnpool", &pool), &[&x, &outside]), Err(BadValue));
    let negative = Tensor::new(&[1, 1, 2, 2], vec![5i64, 7, 13, -1]).unwrap();
    assert_eq!(run(named("MaxUnpool", &pool), &[&x, &negative]), Err(BadValue));
    assert_eq!(
        run(named("MaxUnpool", &pool), &[&x, &indices, &Tensor::vector(vec![1i64, 1, 3, 4])]),
        Err(BadValue)
    );
    assert_eq!(
        run(named("MaxUnpool", &pool), &[&x, &indices, &Tensor::vector(vec![4i64, 4])]),
        Err(BadValue)
    );
    assert_eq!(run(named("MaxUnpool", &pool), &[&x, &Tensor::new(&[1], vec![0i64]).unwrap()]), Err(BadShape));
    assert_eq!(run(named("MaxUnpool", &pool), &[&x, &x]), Err(BadType));
}

#[test]
fn regions_are_pooled_by_whole_pixels() {
    let x = counting(DType::F32, &[2, 1, 3, 4]);
    let size = [("pooled_shape", int_list(&[2, 2]))];
    // Image 1, columns 0..=2, rows 0..=2: bins of 1.5 pixels are cut outwards to 0..2 and 1..3.
    let roi = f32s(&[1, 5], &[1.0, 0.0, 0.0, 2.0, 2.0]);
    let out = run(named("MaxRoiPool", &size), &[&x, &roi]).unwrap();
    assert_eq!(out, f32s(&[1, 1, 2, 2], &[17.0, 18.0, 21.0, 22.0]));
    // Outside the image there is nothing: zero.
    let outside = f32s(&[2, 5], &[0.0, 9.0, 9.0, 12.0, 12.0, 0.0, -1e30, 0.0, 1e30, f64::NAN]);
    let out = run(named("MaxRoiPool", &size), &[&x, &outside]).unwrap();
    assert_eq!(out.to_f64s()[..4], [0.0; 4]);
    assert_eq!(
        run(named("MaxRoiPool", &size), &[&x, &f32s(&[1, 5], &[2.0, 0.0, 0.0, 1.0, 1.0])]),
        Err(BadValue)
    );
    assert_eq!(run(named("MaxRoiPool", &size), &[&x, &f32s(&[1, 4], &[0.0; 4])]), Err(BadShape));
    assert_eq!(
        run(named("MaxRoiPool", &[("pooled_shape", int_list(&[2, 0]))]), &[&x, &roi]),
        Err(BadAttribute)
    );
    assert_eq!(
        run(named("MaxRoiPool", &[("pooled_shape", int_list(&[1 << 40, 1]))]), &[&x, &roi]),
        Err(TooLarge)
    );
}

#[test]
fn regions_are_aligned_by_samples() {
    // A ramp x + 4y is interpolated exactly, so an average is the ramp at the bin's centre.
    let x = counting(DType::F32, &[1, 1, 4, 4]);
    let roi = f32s(&[1, 4], &[0.5, 0.5, 2.5, 2.5]);
    let image = Tensor::vector(vec![0i64]);
    let align = |attributes: &[(&str, Attribute)]| run(named("RoiAlign", attributes), &[&x, &roi, &image]);
    let size = [("output_height", Attribute::Int(2)), ("output_width", Attribute::Int(1))];
    // Shifted by half a pixel: rows 0..2 in two bins, columns 0..2; centres (0.5, 1) and (1.5, 1).
    assert_eq!(align(&size).unwrap(), f32s(&[1, 1, 2, 1], &[3.0, 7.0]));
    let unshifted: Vec<_> =
        size.iter().cloned().chain([("coordinate_transformation_mode", word("output_half_pixel"))]).collect();
    assert_eq!(align(&unshifted).unwrap(), f32s(&[1, 1, 2, 1], &[5.5, 9.5]));
    // The largest weighted pixel: samples at rows 0.5 and 1.5, columns 0.5 and 1.5; 0.25 * (2 + 4*2).
    assert_eq!(align(&[("mode", word("max"))]).unwrap(), f32s(&[1, 1, 1, 1], &[2.5]));
    let refuses = |attributes: &[(&str, Attribute)], kind| assert_eq!(align(attributes), Err(kind));
    refuses(&[("output_height", Attribute::Int(0))], BadAttribute);
    refuses(&[("sampling_ratio", Attribute::Int(-1))], BadAttribute);
    refuses(&[("sampling_ratio", Attribute::Int(i64::MAX))], BadValue);
    refuses(&[("output_width", Attribute::Int(i64::MAX))], TooLarge);
    let far = f32s(&[1, 4], &[0.0, 0.0, 1e30, 1e30]);
    assert_eq!(run(named("RoiAlign", &[]), &[&x, &far, &image]), Err(BadValue));
    let lost = f32s(&[1, 4], &[f64::NAN, 0.0, -5.0, -5.0]);
    assert_eq!(run(named("RoiAlign", &[]), &[&x, &lost, &image]).unwrap(), f32s(&[1, 1, 1, 1], &[0.0]));
    assert_eq!(run(named("RoiAlign", &[]), &[&x, &roi, &Tensor::vector(vec![1i64])]), Err(BadValue));
    assert_eq!(run(named("RoiAlign", &[]), &[&x, &roi, &Tensor::vector(vec![0i64, 0])]), Err(BadShape));
    assert_eq!(run(named("RoiAlign", &[]), &[&x, &roi, &f32s(&[1], &[0.0])]), Err(BadType));
    let empty =
        run(named("RoiAlign", &[]), &[&x, &f32s(&[0, 4], &[]), &Tensor::vector(Vec::<i64>::new())]).unwrap();
    assert_eq!(empty.shape(), [0, 1, 1, 1]);
}
