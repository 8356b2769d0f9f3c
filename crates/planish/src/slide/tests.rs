//! Sliding windows against the blend written down as plainly as it can be: a padded image, a map of weights, loops.

use planish_tensor::{DType, Tensor};
use planish_testing::Random;

use super::*;
use crate::op::ResizeMode;
use crate::{Builder, Device, Engine, NetworkBuilder};

/// Sums of some hundred products in f32, in another order.
const TOLERANCE: f64 = 1e-5;

/// A model of two images with these axes of pixels. What it says of a pixel depends on the window that it is in. Its outputs
/// are as large as the window, twice as large, and half as large.
fn session(sizes: &str, n_axes: usize) -> Session {
    let mut net = NetworkBuilder::new("net");
    let x = net.input("x", DType::F32, sizes).unwrap();
    let w = net.input("w", DType::F32, sizes).unwrap();
    let axes: Vec<i64> = (2..2 + n_axes as i64).collect();
    let mean = net.reduce_mean(w, &axes, true).unwrap();
    let y = net.mul(x, x).unwrap();
    let y = net.sub(y, mean).unwrap();
    net.output("y", y).unwrap();
    let factors = [vec![1.0, 1.0], vec![2.0; n_axes]].concat();
    let larger = net.resize(w, &factors, ResizeMode::Nearest).unwrap();
    net.output("larger", larger).unwrap();
    let smaller = axes.iter().fold(y, |wire, &axis| net.slice_by(wire, axis, 0, i64::MAX, 2).unwrap());
    net.output("smaller", smaller).unwrap();
    let plan = Builder::from_network(net).unwrap().tune_level(0).threads(1).device(Device::Cpu).build();
    Session::new(&Engine::new(plan.unwrap(), Device::Cpu).unwrap()).unwrap()
}

/// The pixels of an axis in front of and behind which there is padding: what pixel `at` of the padded axis shows.
fn shown(at: isize, size: isize, padding: Padding) -> Option<usize> {
    let at = match padding {
        _ if (0..size).contains(&at) => at,
        Padding::Constant => return None,
        Padding::Replicate if at < 0 => 0,
        Padding::Replicate => size - 1,
        Padding::Circular if at < 0 => at + size,
        Padding::Circular => at - size,
        Padding::Reflect if at < 0 => -at,
        Padding::Reflect => size - 1 - (at - (size - 1)),
    };
    Some(at as usize)
}

/// Every element of a box of these sizes.
fn places(sizes: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    (0..sizes[0]).flat_map(move |a| (0..sizes[1]).flat_map(move |b| (0..sizes[2]).map(move |c| [a, b, c])))
}

fn number(at: [usize; 3], sizes: [usize; 3]) -> usize {
    (at[0] * sizes[1] + at[1]) * sizes[2] + at[2]
}

/// Where windows begin: counted up until one reaches the end, as MONAI's `dense_patch_slices` counts.
fn plain_starts(size: usize, roi: usize, overlap: f64) -> Vec<usize> {
    let interval = if roi == size { roi } else { ((roi as f64 * (1.0 - overlap)) as usize).max(1) };
    let mut starts = vec![0];
    while starts[starts.len() - 1] + roi < size {
        let next = starts.len() * interval;
        starts.push(if next + roi > size { size - roi } else { next });
    }
    starts
}

/// One output in three axes, blended over padded images with a map of weights.
fn plain(
    session: &mut Session,
    images: &[(&str, Tensor)],
    options: &SlidingWindow,
    n_axes: usize,
) -> Vec<Tensor> {
    let shape = images[0].1.shape().to_vec();
    let (n, c) = (shape[0], shape[1]);
    let three = |list: &[usize]| {
        let mut all = [1; 3];
        all[3 - n_axes..].copy_from_slice(list);
        all
    };
    let (size, roi) = (three(&shape[2..]), three(&options.roi));
    let padded = [0, 1, 2].map(|axis| size[axis].max(roi[axis]));
    let before = [0, 1, 2].map(|axis| (padded[axis] - size[axis]) / 2);
    let starts = [0, 1, 2].map(|axis| plain_starts(padded[axis], roi[axis], options.overlap[0]));
    // MONAI's importance map, clamped.
    let weight = |at: [usize; 3]| {
        let gauss = |axis: usize| {
            let x = at[axis] as f64 - (roi[axis] as f64 - 1.0) / 2.0;
            let sigma = roi[axis] as f64 * options.sigma_scale[0];
            (x * x / (-2.0 * sigma * sigma)).exp()
        };
        if options.mode == Blend::Constant { 1.0 } else { gauss(0) * gauss(1) * gauss(2) }
    };
    let least = places(roi).map(weight).fold(f64::INFINITY, f64::min).max(1e-3);
    let values: Vec<Vec<f64>> = images.iter().map(|(_, image)| image.to_f64s()).collect();
    let mut sums: Vec<Vec<f64>> = vec![Vec::new(); 3];
    let mut counts = sums.clone();
    let mut outs = [[0; 3]; 3];
    for image in 0..n {
        for window in places([starts[0].len(), starts[1].len(), starts[2].len()]) {
            let start = [0, 1, 2].map(|axis| starts[axis][window[axis]]);
            let cut = |values: &[f64]| -> Vec<f32> {
                let pixel = |(channel, at): (usize, [usize; 3])| {
                    let source = [0, 1, 2].map(|axis| {
                        let at = (start[axis] + at[axis]) as isize - before[axis] as isize;
                        shown(at, size[axis] as isize, options.padding_mode)
                    });
                    match source {
                        [Some(a), Some(b), Some(e)] => {
                            let plane = (image * c + channel) * size.iter().product::<usize>();
                            (values[plane + number([a, b, e], size)] * options.scale) as f32
                        }
                        _ => options.cval as f32,
                    }
                };
                (0..c).flat_map(|channel| places(roi).map(move |at| (channel, at))).map(pixel).collect()
            };
            let dims = [&[1, c], &options.roi[..]].concat();
            let inputs: Vec<(&str, Tensor)> = images
                .iter()
                .zip(&values)
                .map(|((name, _), values)| (*name, Tensor::new(&dims, cut(values)).unwrap()))
                .collect();
            let said = session.infer(&inputs).unwrap();
            for (idx, output) in said.tensors().iter().enumerate() {
                let out = three(&output.shape()[2..]);
                let total = [0, 1, 2].map(|axis| padded[axis] * out[axis] / roi[axis]);
                outs[idx] = out;
                sums[idx].resize(n * c * total.iter().product::<usize>(), 0.0);
                counts[idx].resize(sums[idx].len(), 0.0);
                let output = output.to_f64s();
                for channel in 0..c {
                    for at in places(out) {
                        let nearest = [0, 1, 2].map(|axis| {
                            ((at[axis] as f64 + 0.5) * (roi[axis] as f64 / out[axis] as f64)) as usize
                        });
                        let weight = weight(nearest).max(least);
                        let to = [0, 1, 2].map(|axis| start[axis] * out[axis] / roi[axis] + at[axis]);
                        let to = (image * c + channel) * total.iter().product::<usize>() + number(to, total);
                        sums[idx][to] +=
                            weight * output[channel * out.iter().product::<usize>() + number(at, out)];
                        counts[idx][to] += weight;
                    }
                }
            }
        }
    }
    let whole = |idx: usize| {
        let out = outs[idx];
        let total = [0, 1, 2].map(|axis| padded[axis] * out[axis] / roi[axis]);
        let kept = [0, 1, 2].map(|axis| {
            let zoom = total[axis] as f64 / roi[axis] as f64;
            let place = |at: usize| ((at as f64 * zoom).round_ties_even() as usize).min(total[axis]);
            if padded[axis] > size[axis] {
                place(before[axis])..place(before[axis] + size[axis])
            } else {
                0..total[axis]
            }
        });
        let mut values = Vec::new();
        for plane in 0..n * c {
            for at in places(total) {
                if (0..3).all(|axis| kept[axis].contains(&at[axis])) {
                    let place = plane * total.iter().product::<usize>() + number(at, total);
                    values.push(sums[idx][place] / counts[idx][place]);
                }
            }
        }
        let dims: Vec<usize> = kept[3 - n_axes..].iter().map(|kept| kept.len()).collect();
        Tensor::from_f64s(DType::F64, &[&[n, c], &dims[..]].concat(), &values).unwrap()
    };
    (0..3).map(whole).collect()
}

fn assert_close(got: &Tensor, wanted: &Tensor, what: &str) {
    assert_eq!(got.shape(), wanted.shape(), "{what}");
    assert_eq!(got.dtype(), DType::F32, "{what}");
    for (a, b) in got.to_f64s().iter().zip(wanted.to_f64s()) {
        assert!((a - b).abs() <= TOLERANCE * b.abs().max(1.0), "{a} for {b}: {what}");
    }
}

/// A setting that the definitions allow.
fn random_setting(random: &mut Random, n_axes: usize) -> (Vec<usize>, SlidingWindow) {
    let roi: Vec<usize> = (0..n_axes).map(|_| random.between(2, 7)).collect();
    let padding_mode =
        *random.pick(&[Padding::Constant, Padding::Reflect, Padding::Replicate, Padding::Circular]);
    let size = |roi: usize, random: &mut Random| match padding_mode {
        // As much as the image itself can be continued by.
        Padding::Reflect | Padding::Circular => random.between(roi / 2 + 2, 14),
        _ => random.between(1, 14),
    };
    let sizes = roi.iter().map(|&roi| size(roi, random)).collect();
    let options = SlidingWindow {
        roi,
        batch: random.between(1, 5),
        overlap: vec![*random.pick(&[0.0, 0.25, 0.5, 0.6, 0.8])],
        mode: *random.pick(&[Blend::Constant, Blend::Gaussian]),
        sigma_scale: vec![*random.pick(&[0.125, 0.05, 0.3])],
        padding_mode,
        cval: f64::from(random.real(2.0)),
        scale: *random.pick(&[1.0, 0.5]),
        ..SlidingWindow::default()
    };
    (sizes, options)
}

/// The number of the first largest channel at every pixel.
fn labels_of(values: &Tensor) -> Vec<i64> {
    let (n, c) = (values.shape()[0], values.shape()[1]);
    let pixels = values.len() / (n * c);
    let all = values.to_f64s();
    let best = |(image, pixel): (usize, usize)| {
        let value = |channel: usize| all[(image * c + channel) * pixels + pixel];
        (1..c).fold(0, |best, channel| if value(channel) > value(best) { channel } else { best }) as i64
    };
    (0..n).flat_map(|image| (0..pixels).map(move |pixel| (image, pixel))).map(best).collect()
}

#[test]
fn windows_blend_as_the_plain_loops_do() {
    for n_axes in 1..=3 {
        let sizes = ["n,c,d", "n,c,d,h", "n,c,d,h,w"][n_axes - 1];
        let mut session = session(sizes, n_axes);
        let mut random = Random::new(n_axes as u64);
        for case in 0..40 {
            let (pixels, options) = random_setting(&mut random, n_axes);
            let (n, c) = (random.between(1, 2), random.between(1, 3));
            let dims = [&[n, c], &pixels[..]].concat();
            let x = match random.below(3) {
                0 => random.whole(DType::U8, &dims, 0, 4),
                1 => random.whole(DType::I16, &dims, -3, 3),
                _ => random.floats(&dims),
            };
            let images = [("x", x), ("w", random.floats(&dims))];
            let what = format!("{n_axes} axes, case {case}: {dims:?} {options:?}");
            let wanted = plain(&mut session, &images, &options, n_axes);
            let got = session.sliding_window(&images, &options).unwrap();
            for (got, wanted) in got.tensors().iter().zip(&wanted) {
                assert_close(got, wanted, &what);
            }
            if c > 1 {
                let labels = SlidingWindow { argmax: true, ..options };
                let labels = session.sliding_window(&images, &labels).unwrap();
                for (labels, values) in labels.tensors().iter().zip(got.tensors()) {
                    assert_eq!(labels.shape(), [&[n], &values.shape()[2..]].concat(), "{what}");
                    assert_eq!(labels.dtype(), DType::U8);
                    // Sums that are equal may differ after the division, so values are compared, not numbers.
                    let (own, of_values) = (labels.to_i64s(), labels_of(values));
                    let pixels = own.len() / n;
                    let all = values.to_f64s();
                    for (at, (own, best)) in own.iter().zip(&of_values).enumerate() {
                        let value =
                            |label: i64| all[(at / pixels * c + label as usize) * pixels + at % pixels];
                        assert!((value(*own) - value(*best)).abs() <= TOLERANCE, "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn fixed_batches_are_filled_and_rois_taken_from_the_plan() {
    let (mut open, mut fixed) = (session("n,1,h,w", 2), session("3,1,4,4", 2));
    let mut random = Random::new(5);
    let images = [("x", random.floats(&[9, 10])), ("w", random.floats(&[9, 10]))];
    let options = SlidingWindow { overlap: vec![0.5], ..SlidingWindow::default() };
    let by_plan = fixed.sliding_window(&images, &options).unwrap();
    let options = SlidingWindow { roi: vec![4], batch: 5, ..options };
    let by_roi = open.sliding_window(&images, &options).unwrap();
    for (a, b) in by_plan.tensors().iter().zip(by_roi.tensors()) {
        assert_eq!(a.shape(), b.shape());
        assert!(a.to_f64s().iter().zip(b.to_f64s()).all(|(a, b)| (a - b).abs() <= TOLERANCE));
    }
    // A size of 0 is the image's own.
    let whole = SlidingWindow { roi: vec![0, 4], ..options };
    let mut n_windows = 0;
    open.sliding_window_with(&images, &whole, &mut |_, of| n_windows = of).unwrap();
    assert_eq!(n_windows, 4);
}

#[test]
fn pixels_are_normalized_by_channel() {
    let mut session = session("n,c,h,w", 2);
    let image = Tensor::new(&[2, 4, 4], (0..32).map(|idx| idx as u8).collect()).unwrap();
    let images = [("x", image.clone()), ("w", Tensor::zeros(DType::F32, &[2, 4, 4]).unwrap())];
    let options = SlidingWindow {
        roi: vec![2],
        overlap: vec![0.0],
        scale: 0.1,
        mean: vec![0.5, 1.0],
        std: vec![2.0, 4.0],
        ..SlidingWindow::default()
    };
    let y = session.sliding_window(&images, &options).unwrap().into_tensors().remove(0);
    // The other input is all zeros, whose normalized mean is subtracted.
    for (idx, (pixel, y)) in image.to_f64s().iter().zip(y.to_f64s()).enumerate() {
        let (mean, std) = [(0.5, 2.0), (1.0, 4.0)][idx / 16];
        let wanted = ((pixel * 0.1 - mean) / std).powi(2) - -mean / std;
        assert!((y - wanted).abs() < TOLERANCE, "{y} for {wanted}");
    }
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let mut session = session("n,c,h,w", 2);
    let (x, w) =
        (Tensor::zeros(DType::F32, &[1, 6, 6]).unwrap(), Tensor::zeros(DType::F32, &[1, 6, 5]).unwrap());
    let mut refused = |x: &Tensor, w: &Tensor, options: SlidingWindow| {
        let images = [("x", x.clone()), ("w", w.clone())];
        session.sliding_window(&images, &options).unwrap_err().to_string()
    };
    let options = SlidingWindow { roi: vec![4], ..SlidingWindow::default() };
    let error = refused(&x, &w, options.clone());
    assert!(error.contains("windows are cut from images of one size"), "{error}");
    for (options, why) in [
        (SlidingWindow { overlap: vec![1.0], ..options.clone() }, "an overlap of 1 is none"),
        (SlidingWindow { roi: vec![4, 4, 4], ..options.clone() }, "roi has 3 numbers"),
        (SlidingWindow { sigma_scale: vec![0.0], ..options.clone() }, "sigma_scale is a number above 0"),
        (SlidingWindow { std: vec![0.0], ..options.clone() }, "no std is 0"),
        (SlidingWindow { argmax: true, ..options.clone() }, "labels need at least 2"),
        (
            SlidingWindow { roi: vec![17], padding_mode: Padding::Reflect, ..options.clone() },
            "cannot be continued by 6",
        ),
    ] {
        let error = refused(&x, &x, options);
        assert!(error.contains(why), "{error}");
    }
    let tiny = Tensor::zeros(DType::F32, &[6]).unwrap();
    let error = refused(&tiny, &tiny, options.clone());
    assert!(error.contains("does not fit; give [N, C, …], [C, …] or pixels"), "{error}");
    let empty = Tensor::zeros(DType::F32, &[0, 4]).unwrap();
    assert!(refused(&empty, &empty, options).contains("no pixel along axis 0"));
}
