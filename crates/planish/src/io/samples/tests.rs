//! Samples from files of every kind, good and bad.

use std::path::{Path, PathBuf};

use planish_ir::Graph;
use planish_tensor::Tensor;
use tiff::encoder::{TiffEncoder, colortype};

use super::*;
use crate::io::npy;

/// A folder of its own for each test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("planish-samples-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn graph(inputs: &[(&str, &str)]) -> Graph {
    let list: String = inputs.iter().map(|(name, ty)| format!("input %{name}: {ty} ")).collect();
    format!("graph \"g\" {{ {list} output %{} }}", inputs[0].0).parse().unwrap()
}

fn all(
    path: &Path,
    inputs: &[(&str, &str)],
    limit: usize,
    preprocess: &Preprocess,
) -> Result<Vec<Sample>, Error> {
    Samples::open(path, &graph(inputs), limit, preprocess)?.collect()
}

#[track_caller]
fn refused(path: &Path, inputs: &[(&str, &str)], preprocess: &Preprocess, what: &str) {
    let error = all(path, inputs, 10, preprocess).unwrap_err().to_string();
    assert!(error.contains(what), "{error}");
}

/// The only input of a sample.
fn only(sample: &Sample) -> &Tensor {
    assert_eq!(sample.inputs.len(), 1);
    &sample.inputs[0].1
}

fn save_gray(path: &Path, width: u32, height: u32, value: u8) {
    image::GrayImage::from_pixel(width, height, image::Luma([value])).save(path).unwrap();
}

const PLAIN: &str = "f32[n,1,4,4]";

#[test]
fn images_are_taken_in_order_and_evenly() {
    let folder = Folder::new("order");
    for (idx, name) in ["b/1.png", "a/2.png", "a/10.png", "c/x.bmp"].iter().enumerate() {
        save_gray(&folder.path(name), 8, 6, 10 * idx as u8);
    }
    std::fs::write(folder.path("a/readme.txt"), "not a sample").unwrap();
    std::fs::write(folder.path(".hidden.png"), "not one either").unwrap();
    let firsts = |limit| -> Vec<f64> {
        let samples = all(&folder.0, &[("x", PLAIN)], limit, &Preprocess::default()).unwrap();
        samples.iter().map(|sample| (only(sample).to_f64s()[0] * 255.0).round()).collect()
    };
    // a/10, a/2, b/1, c/x.
    assert_eq!(firsts(10), [20.0, 10.0, 0.0, 30.0]);
    assert_eq!(firsts(2), [20.0, 0.0]);
}

#[test]
fn imagenet_preprocessing_by_default() {
    let folder = Folder::new("imagenet");
    let mut image = image::RgbImage::from_pixel(16, 8, image::Rgb([0, 0, 0]));
    // The middle 8 columns are red; 7 x 7 of them are cut out after no resizing: 7 * 256 / 224 = 8.
    (4..12).for_each(|x| (0..8).for_each(|y| image.put_pixel(x, y, image::Rgb([255, 0, 0]))));
    image.save(folder.path("x.png")).unwrap();
    let path = folder.path("x.png");
    let samples = Samples::open(&path, &graph(&[("x", "f32[1,3,7,7]")]), 5, &Preprocess::default()).unwrap();
    assert!(samples.notes()[0].starts_with("images: shorter side to 8 (bilinear), 7x7 from the middle, RGB"));
    let samples: Vec<Sample> = samples.map(Result::unwrap).collect();
    assert_eq!((samples.len(), only(&samples[0]).shape()), (1, &[1, 3, 7, 7][..]));
    let values = only(&samples[0]).to_f64s();
    let close = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-5, "{value} {expected}");
    close(values[0], (1.0 - 0.485) / 0.229);
    close(values[49], (0.0 - 0.456) / 0.224);
    close(values[146], (0.0 - 0.406) / 0.225);
    // Blue first, channels last, bytes as they are.
    let preprocess = Preprocess {
        order: ChannelOrder::Bgr,
        scale: Some(255.0),
        mean: Some(vec![0.0, 0.0, 5.0]),
        std: Some(vec![1.0, 1.0, 2.0]),
        ..Preprocess::default()
    };
    let samples = all(&path, &[("x", "f32[n,7,7,3]")], 5, &preprocess).unwrap();
    assert_eq!(only(&samples[0]).to_f64s()[..3], [0.0, 0.0, 125.0]);
    // Integers are bytes.
    let samples = all(&path, &[("x", "u8[7,7,3]")], 5, &Preprocess::default()).unwrap();
    assert_eq!(only(&samples[0]).to_i64s()[..3], [255, 0, 0]);
}

#[test]
fn images_are_resized_and_batched() {
    let folder = Folder::new("batch");
    (0..5).for_each(|idx| save_gray(&folder.path(&format!("{idx}.png")), 20 + idx, 40, 51));
    let samples = all(&folder.0, &[("x", "f32[2,1,8,8]")], 10, &Preprocess::default()).unwrap();
    // Five images make two batches of two.
    assert_eq!(samples.iter().map(|sample| sample.count).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(only(&samples[1]).shape(), [2, 1, 8, 8]);
    assert!(only(&samples[1]).to_f64s().iter().all(|value| (value - 0.2).abs() < 1e-6));
    refused(&folder.0, &[("x", "f32[8,1,8,8]")], &Preprocess::default(), "gives no sample");
    let small = Preprocess { resize: Some(4), ..Preprocess::default() };
    refused(&folder.0, &[("x", "f32[2,1,8,8]")], &small, "smaller than the 8x8 to be cut out");
}

#[test]
fn wrong_preprocessing_is_refused() {
    let folder = Folder::new("wrong");
    save_gray(&folder.path("x.png"), 4, 4, 0);
    let path = folder.path("x.png");
    let mean = Preprocess { mean: Some(vec![0.5, 0.5]), ..Preprocess::default() };
    refused(&path, &[("x", "f32[n,3,4,4]")], &mean, "--mean has 2 numbers, the input has 3 channels");
    let std = Preprocess { std: Some(vec![0.0]), ..Preprocess::default() };
    refused(&path, &[("x", PLAIN)], &std, "no --std is 0");
    refused(&path, &[("x", "f32[n,7]")], &Preprocess::default(), "takes no images");
    refused(&path, &[("x", PLAIN), ("y", PLAIN)], &Preprocess::default(), "the model has 2 inputs");
    std::fs::write(&path, b"no image").unwrap();
    refused(&path, &[("x", PLAIN)], &Preprocess::default(), "is not a usable image");
    refused(&folder.path("gone"), &[("x", PLAIN)], &Preprocess::default(), "cannot read");
    std::fs::remove_file(&path).unwrap();
    refused(&folder.0, &[("x", PLAIN)], &Preprocess::default(), "has no samples");
    assert!(all(&folder.0, &[("x", PLAIN)], 0, &Preprocess::default()).is_err());
}

fn counted(shape: &[usize]) -> Tensor {
    let n = shape.iter().product::<usize>();
    Tensor::new(shape, (0..n).map(|idx| idx as f32).collect()).unwrap()
}

#[test]
fn arrays_have_samples_along_their_first_axis() {
    let folder = Folder::new("arrays");
    let path = folder.path("x.npy");
    let shapes = |ty: &str, limit: usize| -> Vec<(Vec<usize>, usize, f64)> {
        let samples = all(&path, &[("x", ty)], limit, &Preprocess::default()).unwrap();
        let row = |sample: &Sample| (only(sample).shape().to_vec(), sample.count, only(sample).to_f64s()[0]);
        samples.iter().map(row).collect()
    };
    npy::save(&path, &counted(&[6, 2])).unwrap();
    assert_eq!(shapes("f32[n,2]", 2), [(vec![1, 2], 1, 0.0), (vec![1, 2], 1, 6.0)]);
    // A fixed batch takes several rows, and counts for them.
    assert_eq!(shapes("f32[3,2]", 10), [(vec![3, 2], 3, 0.0), (vec![3, 2], 3, 6.0)]);
    assert_eq!(shapes("f32[2]", 2), [(vec![2], 1, 0.0), (vec![2], 1, 6.0)]);
    assert_eq!(shapes("f32[n,6,2]", 10), [(vec![1, 6, 2], 1, 0.0)]);
    refused(&path, &[("x", "f32[4,2]")], &Preprocess::default(), "6x2 is no number of samples for input `x`");
    refused(&path, &[("x", "f32[n,3]")], &Preprocess::default(), "is no number of samples");
    refused(&path, &[("x", "f32[n,1,2,3,4]")], &Preprocess::default(), "is no number of samples");
    refused(&path, &[("x", "i64[n,2]")], &Preprocess::default(), "save the array as i64");
    let scaled = Preprocess { scale: Some(1.0), ..Preprocess::default() };
    refused(&path, &[("x", "f32[n,2]")], &scaled, "are taken as they are");
    // A sentence of open length stays whole.
    npy::save(&path, &Tensor::vector(vec![3i64, 1, 2])).unwrap();
    assert_eq!(shapes("i64[t]", 10), [(vec![3], 1, 3.0)]);
}

#[test]
fn bytes_in_arrays_need_a_scale() {
    let folder = Folder::new("bytes");
    let path = folder.path("x.npy");
    npy::save(&path, &Tensor::new(&[2, 3, 1, 2], vec![0u8, 255, 51, 102, 255, 0, 1, 2, 3, 4, 5, 6]).unwrap())
        .unwrap();
    let port = [("x", "f32[n,3,1,2]")];
    refused(&path, &port, &Preprocess::default(), "say what 255 becomes: --scale 1, or --scale 255");
    let unit = Preprocess { scale: Some(1.0), ..Preprocess::default() };
    let samples = all(&path, &port, 10, &unit).unwrap();
    assert_eq!(only(&samples[0]).elements::<f32>().unwrap()[..], [0.0, 1.0, 0.2, 0.4, 1.0, 0.0]);
    let bytes =
        Preprocess { mean: Some(vec![1.0, 2.0, 3.0]), scale: Some(255.0), std: Some(vec![2.0]), ..unit };
    let samples = all(&path, &port, 10, &bytes).unwrap();
    let values: Vec<f64> =
        only(&samples[1]).to_f64s().iter().map(|value| (value * 1e4).round() / 1e4).collect();
    assert_eq!(values, [0.0, 0.5, 0.5, 1.0, 1.0, 1.5]);
}

#[test]
fn archives_and_folders_serve_several_inputs() {
    let folder = Folder::new("several");
    let ports = [("x", "f32[n,2]"), ("mask", "i64[n,3]")];
    let mask = Tensor::new(&[1, 3], vec![1i64, 0, 1]).unwrap();
    let path = folder.path("a.npz");
    let named = |list: &[(&str, &Tensor)]| -> Vec<(String, Tensor)> {
        list.iter().map(|(name, tensor)| (name.to_string(), (*tensor).clone())).collect()
    };
    let labels = Tensor::vector(vec![1u8; 4]);
    npy::save_archive(&path, &named(&[("mask", &mask), ("labels", &labels), ("x", &counted(&[4, 2]))]))
        .unwrap();
    let samples = Samples::open(&path, &graph(&ports), 10, &Preprocess::default()).unwrap();
    assert!(samples.notes()[0].contains("`labels` are no inputs of the model"), "{:?}", samples.notes());
    let samples: Vec<Sample> = samples.map(Result::unwrap).collect();
    assert_eq!(samples.len(), 4);
    // The one mask serves all.
    assert_eq!(samples[3].inputs[0].1, Tensor::new(&[1, 2], vec![6f32, 7.0]).unwrap());
    assert_eq!(samples[3].inputs[1].1, mask);
    refused(
        &path,
        &[("x", "f32[n,2]"), ("other", "f32[n,2]")],
        &Preprocess::default(),
        "has no array `other`",
    );
    npy::save_archive(&path, &named(&[("mask", &counted(&[3, 3])), ("x", &counted(&[4, 2]))])).unwrap();
    refused(
        &path,
        &[("x", "f32[n,2]"), ("mask", "f32[n,3]")],
        &Preprocess::default(),
        "has 3 samples, another input has 4",
    );
    // A single array under numpy's name.
    npy::save_archive(&path, &named(&[("arr_0", &counted(&[4, 2]))])).unwrap();
    assert_eq!(all(&path, &[("x", "f32[n,2]")], 10, &Preprocess::default()).unwrap().len(), 4);
    std::fs::remove_file(&path).unwrap();
    npy::save(&folder.path("x.npy"), &counted(&[4, 2])).unwrap();
    refused(&folder.0, &ports, &Preprocess::default(), "there is no file mask.npy");
    npy::save(&folder.path("mask.npy"), &mask).unwrap();
    assert_eq!(all(&folder.0, &ports, 3, &Preprocess::default()).unwrap().len(), 3);
    save_gray(&folder.path("z.png"), 4, 4, 0);
    refused(&folder.0, &ports, &Preprocess::default(), "has .npy files and images");
}

/// A stack of pages whose pixels are all the page's number.
fn save_stack(path: &Path, n_pages: usize, sixteen_bits: bool) {
    let mut encoder = TiffEncoder::new(std::fs::File::create(path).unwrap()).unwrap();
    for page in 0..n_pages {
        if sixteen_bits {
            encoder.write_image::<colortype::Gray16>(6, 4, &[page as u16 * 257; 24]).unwrap();
        } else {
            encoder.write_image::<colortype::Gray8>(6, 4, &[page as u8; 24]).unwrap();
        }
    }
}

#[test]
fn stacks_are_pages_or_volumes() {
    let folder = Folder::new("stacks");
    for sixteen_bits in [false, true] {
        let path = folder.path("x.tif");
        save_stack(&path, 7, sixteen_bits);
        let bytes = Preprocess { scale: Some(255.0), ..Preprocess::default() };
        let values = |sample: &Sample| -> Vec<f64> {
            only(sample).to_f64s().iter().map(|value| value.round()).collect()
        };
        let pages = all(&path, &[("x", PLAIN)], 10, &bytes).unwrap();
        assert_eq!((pages.len(), only(&pages[6]).shape()), (7, &[1, 1, 4, 4][..]));
        assert_eq!(values(&pages[6]), [6.0; 16]);
        // Gray serves three channels; nothing is cut from sizes that are open.
        let pages = all(&path, &[("x", "f32[n,3,h,w]")], 2, &bytes).unwrap();
        assert_eq!((pages.len(), only(&pages[0]).shape()), (2, &[1, 3, 4, 6][..]));
        let volumes = all(&path, &[("x", "f32[n,1,3,4,4]")], 10, &bytes).unwrap();
        assert_eq!((volumes.len(), only(&volumes[1]).shape()), (2, &[1, 1, 3, 4, 4][..]));
        let expected: Vec<f64> = [3.0, 4.0, 5.0].iter().flat_map(|page| [*page; 16]).collect();
        assert_eq!(values(&volumes[1]), expected);
        let whole = all(&path, &[("x", "f32[n,1,d,h,w]")], 10, &bytes).unwrap();
        assert_eq!((whole.len(), only(&whole[0]).shape()), (1, &[1, 1, 7, 4, 6][..]));
        refused(&path, &[("x", "f32[n,1,8,4,4]")], &bytes, "has 7 pages, input `x` takes 8");
        refused(&path, &[("x", "f32[n,2,8,4,4]")], &bytes, "takes no TIFF stacks");
        refused(&path, &[("x", "f32[n,1,9,9]")], &bytes, "smaller than the 9x9");
        let resized = Preprocess { resize: Some(8), ..Preprocess::default() };
        refused(&path, &[("x", PLAIN)], &resized, "TIFF files are not resized");
        let whole = std::fs::read(&path).unwrap();
        for end in (0..whole.len()).step_by(7) {
            // What is cut off is missed, or no page of it was whole.
            std::fs::write(&path, &whole[..end]).unwrap();
            assert!(all(&path, &[("x", PLAIN)], 10, &bytes).is_err(), "cut at {end}");
        }
    }
}

#[test]
fn tables_have_a_sample_a_line() {
    let folder = Folder::new("tables");
    let path = folder.path("x.csv");
    let put = |text: &str| std::fs::write(&path, text).unwrap();
    put("a, b,c\n1,2,3\n\n-4,5.5,6e1\n");
    let samples = all(&path, &[("x", "f32[n,3]")], 10, &Preprocess::default()).unwrap();
    assert_eq!(
        (samples.len(), only(&samples[1])),
        (2, &Tensor::new(&[1, 3], vec![-4f32, 5.5, 60.0]).unwrap())
    );
    let samples = all(&path, &[("x", "f32[n,1,t]")], 10, &Preprocess::default()).unwrap();
    assert_eq!(only(&samples[0]).shape(), [1, 1, 3]);
    assert_eq!(all(&path, &[("x", "f32[3]")], 10, &Preprocess::default()).unwrap().len(), 2);
    refused(&path, &[("x", "f32[n,4]")], &Preprocess::default(), "3 numbers a line do not make input `x`");
    put("1,2\n3\n");
    refused(
        &path,
        &[("x", "f32[n,2]")],
        &Preprocess::default(),
        "line 2: 1 numbers, the lines before have 2",
    );
    put("1,2\n3,x\n");
    refused(&path, &[("x", "f32[n,2]")], &Preprocess::default(), "line 2: `x` is not a number");
    put("a,b\n");
    refused(&path, &[("x", "f32[n,2]")], &Preprocess::default(), "there are no numbers");
}

#[test]
fn a_bad_file_ends_the_samples() {
    let folder = Folder::new("ends");
    save_gray(&folder.path("1.png"), 4, 4, 0);
    std::fs::write(folder.path("2.png"), b"no image").unwrap();
    save_gray(&folder.path("3.png"), 4, 4, 0);
    let mut samples = Samples::open(&folder.0, &graph(&[("x", PLAIN)]), 10, &Preprocess::default()).unwrap();
    assert!(samples.next().unwrap().is_ok() && samples.next().unwrap().is_err() && samples.next().is_none());
}
