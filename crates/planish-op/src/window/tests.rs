//! Windows are counted and placed as ONNX says, and hostile attributes are refused.

use super::*;

const DEFAULTS: WindowAttributes<'_> = WindowAttributes {
    kernel_shape: None,
    strides: &[],
    dilations: &[],
    pads: &[],
    auto_pad: AutoPad::NotSet,
    ceil_mode: false,
};

fn axis(attributes: WindowAttributes<'_>, kernel: i64) -> WindowAxis {
    attributes.axes(&[Dim::from(kernel)]).unwrap().remove(0)
}

fn transposed(attributes: WindowAttributes<'_>, kernel: i64, output: Option<i64>) -> TransposedAxis {
    let output: Option<Vec<i64>> = output.map(|size| vec![size]);
    attributes.transposed_axes(&[Dim::from(kernel)], &[], output.as_deref()).unwrap().remove(0)
}

#[test]
fn windows_are_counted() {
    let halving = axis(WindowAttributes { strides: &[2], pads: &[1, 1], ..DEFAULTS }, 3);
    assert_eq!(halving.output(&Dim::from(224i64)).unwrap(), 112);
    let dilated = axis(WindowAttributes { dilations: &[2], ..DEFAULTS }, 3);
    assert_eq!(dilated.extent(), 5);
    assert_eq!(dilated.output(&Dim::from(7i64)).unwrap(), 3);
    assert_eq!(dilated.output(&Dim::from(4i64)).unwrap(), 0);
    assert_eq!(dilated.output(&Dim::from(3i64)).unwrap_err().kind(), WindowErrorKind::Shape);
    assert_eq!(
        halving.output(&Dim::symbol("h")).unwrap(),
        (Dim::symbol("h") - 1).floor_div(&Dim::from(2i64)) + 1
    );
}

#[test]
fn rounding_up_drops_windows_that_start_in_the_end_padding() {
    let up = WindowAttributes { strides: &[2], ceil_mode: true, ..DEFAULTS };
    assert_eq!(axis(up, 3).output(&Dim::from(4i64)).unwrap(), 2);
    // ONNX's example: input 2, kernel 1, stride 2 would count ceil(1/2)+1 = 2 windows, one past the end.
    assert_eq!(axis(up, 1).output(&Dim::from(2i64)).unwrap(), 1);
    let padded = WindowAttributes { strides: &[3], pads: &[1, 1], ceil_mode: true, ..DEFAULTS };
    assert_eq!(axis(padded, 3).output(&Dim::from(5i64)).unwrap(), 2);
    // No window can start past the end here, so the symbolic size stays free of `min`.
    let usual = WindowAttributes { strides: &[2], pads: &[1, 1], ceil_mode: true, ..DEFAULTS };
    let size = axis(usual, 3).output(&Dim::symbol("h")).unwrap();
    assert_eq!(size, (Dim::symbol("h") - 1).ceil_div(&Dim::from(2i64)) + 1);
}

#[test]
fn same_padding_splits_odd_totals() {
    let upper = WindowAttributes { strides: &[2], auto_pad: AutoPad::SameUpper, ..DEFAULTS };
    let placed = axis(upper, 4).place(5).unwrap();
    assert_eq!((placed.output, placed.pad_begin, placed.pad_end), (3, 1, 2));
    let lower = WindowAttributes { auto_pad: AutoPad::SameLower, ..upper };
    let placed = axis(lower, 4).place(5).unwrap();
    assert_eq!((placed.output, placed.pad_begin, placed.pad_end), (3, 2, 1));
    // A stride larger than the kernel leaves gaps, never negative padding.
    let sparse = WindowAttributes { strides: &[5], ..upper };
    assert_eq!(axis(sparse, 1).place(6).unwrap().pad_end, 0);
    let valid = WindowAttributes { pads: &[7, 7], auto_pad: AutoPad::Valid, ..DEFAULTS };
    assert_eq!(axis(valid, 3).output(&Dim::from(5i64)).unwrap(), 3);
}

#[test]
fn positions_skip_the_padding() {
    let axis = axis(WindowAttributes { strides: &[2], pads: &[1, 1], ..DEFAULTS }, 3).place(4).unwrap();
    let seen: Vec<Vec<Option<usize>>> =
        (0..axis.output).map(|o| (0..axis.kernel).map(|k| axis.position(o, k)).collect()).collect();
    assert_eq!(seen, [vec![None, Some(0), Some(1)], vec![Some(1), Some(2), Some(3)]]);
    assert_eq!((axis.taps(0), axis.taps(1)), (1..3, 0..3));
}

#[test]
fn taps_are_the_positions_inside() {
    for (stride, dilation, pads) in [(1, 1, [0, 0]), (2, 3, [2, 1]), (3, 2, [4, 4]), (5, 4, [0, 7])] {
        let attributes = WindowAttributes {
            strides: &[stride],
            dilations: &[dilation],
            pads: &pads,
            ceil_mode: true,
            ..DEFAULTS
        };
        let axis = axis(attributes, 3).place(7).unwrap();
        for window in 0..axis.output {
            let inside: Vec<usize> =
                (0..axis.kernel).filter(|tap| axis.position(window, *tap).is_some()).collect();
            assert_eq!(axis.taps(window).collect::<Vec<usize>>(), inside);
            let padded = 7 + axis.pad_begin + axis.pad_end;
            let reached = |tap: &usize| window * axis.stride + tap * axis.dilation < padded;
            for tap in 0..axis.kernel {
                assert_eq!(axis.windows(tap).contains(&window), axis.position(window, tap).is_some());
            }
            assert_eq!(axis.n_padded_taps(window), (0..axis.kernel).filter(reached).count());
        }
    }
}

#[test]
fn transposed_sizes_follow_the_specification() {
    let doubling = WindowAttributes { strides: &[2], pads: &[1, 1], ..DEFAULTS };
    assert_eq!(transposed(doubling, 4, None).output(&Dim::from(7i64)).unwrap(), 14);
    assert_eq!(transposed(doubling, 4, None).output(&Dim::symbol("h")).unwrap(), Dim::symbol("h") * 2);
    // covered = 2*(3-1)+3 = 7; asked for 6, so one is cut off: at the beginning unless SAME_UPPER.
    let plain = WindowAttributes { strides: &[2], ..DEFAULTS };
    let placed = transposed(plain, 3, Some(6)).place(3).unwrap();
    assert_eq!((placed.input, placed.output, placed.pad_begin, placed.pad_end), (6, 3, 1, 0));
    let upper = WindowAttributes { auto_pad: AutoPad::SameUpper, ..plain };
    let placed = transposed(upper, 3, None).place(3).unwrap();
    assert_eq!((placed.input, placed.pad_begin, placed.pad_end), (6, 0, 1));
    // More than is covered: nothing is cut off, the rest stays empty.
    let placed = transposed(plain, 3, Some(9)).place(3).unwrap();
    assert_eq!((placed.input, placed.pad_begin, placed.pad_end), (9, 0, 0));
}

#[test]
fn bad_attributes_are_refused() {
    let kernel = [Dim::from(3i64)];
    let refused = [
        WindowAttributes { strides: &[0], ..DEFAULTS },
        WindowAttributes { strides: &[1, 1], ..DEFAULTS },
        WindowAttributes { dilations: &[i64::MIN], ..DEFAULTS },
        WindowAttributes { pads: &[1], ..DEFAULTS },
        WindowAttributes { pads: &[-1, 0], ..DEFAULTS },
    ];
    for attributes in refused {
        let error = attributes.axes(&kernel).unwrap_err();
        assert_eq!(error.kind(), WindowErrorKind::Attribute, "{attributes:?}");
    }
    assert!(DEFAULTS.axes(&[Dim::ZERO]).is_err());
    let wrong_kernel = WindowAttributes { kernel_shape: Some(&[2]), ..DEFAULTS };
    assert!(wrong_kernel.kernel_of_weight(&kernel).is_err());
    assert!(DEFAULTS.transposed_axes(&kernel, &[-1], None).is_err());
    assert!(DEFAULTS.transposed_axes(&kernel, &[], Some(&[1, 2])).is_err());
}

#[test]
fn hostile_numbers_do_not_overflow() {
    let huge = WindowAttributes { pads: &[i64::MAX, i64::MAX], ..DEFAULTS };
    assert_eq!(axis(huge, 3).place(5).unwrap_err().kind(), WindowErrorKind::Attribute);
    let far = WindowAttributes { strides: &[i64::MAX], dilations: &[i64::MAX], ..DEFAULTS };
    assert!(axis(far, 3).place(5).is_err());
    assert!(transposed(far, 3, None).place(5).is_err());
    assert_eq!(axis(WindowAttributes { strides: &[i64::MAX], ..DEFAULTS }, 3).place(5).unwrap().output, 1);
}
