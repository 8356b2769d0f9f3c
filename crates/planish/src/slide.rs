//! Sliding windows: an image that is larger than a model's input, seen window by window, and the results blended.
//!
//! The arguments mean what those of MONAI's `sliding_window_inference` mean. What differs is memory: sums are kept in the
//! result itself (or, for labels, in a band as high as a window), and what they are divided by is computed row by row,
//! so no map of weights and no padded copy of the image exists.

mod blend;
mod grid;
mod read;
mod weights;

use planish_runtime::View;

use crate::{Error, ErrorKind, Item, NamedTensors, Session, session};
use blend::Blended;
use grid::{Axis, Grid};
use read::Image;

/// How much a pixel of a window counts where windows overlap.
/// A field of [`SlidingWindow`], which has an example.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Blend {
    /// Every pixel the same.
    #[default]
    Constant,
    /// By a Gaussian around the middle of the window, and never less than a thousandth.
    Gaussian,
}

/// What lies around an image that is smaller than a window; it is put into the middle.
/// A field of [`SlidingWindow`], which has an example.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Padding {
    /// One value, `cval`.
    #[default]
    Constant,
    /// The image mirrored at its border pixels, which are not repeated.
    Reflect,
    /// The border pixels.
    Replicate,
    /// The image again, from its other side.
    Circular,
}

/// How an image is cut into windows and put together again. Lists of one number hold for every axis.
///
/// ```
/// # #[cfg(feature = "build")] {
/// use planish::{Blend, Builder, DType, Device, Engine, NetworkBuilder, Padding, Session, SlidingWindow, Tensor};
///
/// # let mut net = NetworkBuilder::new("double");
/// # let x = net.input("x", DType::F32, "batch,1,8,8")?;
/// # let y = net.add(x, x)?;
/// # net.output("y", y)?;
/// # let plan = Builder::from_network(net)?.tune_level(0).threads(1).build()?;
/// let mut session = Session::new(&Engine::new(plan, Device::Auto)?)?;
/// let image = Tensor::new(&[20, 30], (0..600).map(|idx| idx as u16).collect())?;    // or [C,H,W], [N,C,H,W]
/// let windows = SlidingWindow {
///     roi: vec![8, 8],                                                 // empty: what the plan was tuned for
///     overlap: vec![0.5],
///     mode: Blend::Gaussian,
///     batch: 4,
///     padding_mode: Padding::Reflect,                                  // only for images smaller than the roi
///     ..SlidingWindow::default()
/// };
/// let mut n_done = 0;
/// let outputs = session.sliding_window_with(&image, &windows, &mut |done, of| n_done = done.max(of))?;
/// let y = outputs.get("y").unwrap();
/// assert_eq!((y.shape(), n_done), (&[1, 1, 20, 30][..], 28));
/// assert!((y.elements::<f32>()?[599] - 2.0 * 599.0).abs() < 1e-3);
/// assert_eq!(outputs, session.sliding_window(&image, &windows)?);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct SlidingWindow {
    /// The sizes of a window (MONAI's `roi_size`); a 0 takes the image's own size. Where the list is empty, the sizes
    /// that the plan was tuned for.
    pub roi: Vec<usize>,
    /// Windows in one run (`sw_batch_size`); 0 takes what the plan was tuned for.
    pub batch: usize,
    /// The part of a window that the next one covers too, from 0 up to but without 1.
    pub overlap: Vec<f64>,
    /// How overlapping windows are put together.
    pub mode: Blend,
    /// The Gaussian's standard deviation as a part of the window.
    pub sigma_scale: Vec<f64>,
    /// What lies around an image that is smaller than a window.
    pub padding_mode: Padding,
    /// The value of constant padding, in the units of the model's input.
    pub cval: f64,
    /// Whether outputs become labels, the number of the channel with the largest value (`u8`, or `u16` for more than
    /// 256 channels), while the windows run: the channels are never held for the whole image.
    pub argmax: bool,
    /// What pixels are multiplied by before they are given to the model: 1/255 for bytes, say.
    pub scale: f64,
    /// Subtracted by channel, after scaling; empty for nothing.
    pub mean: Vec<f64>,
    /// Divided by, by channel; empty for nothing.
    pub std: Vec<f64>,
}

impl Default for SlidingWindow {
    fn default() -> SlidingWindow {
        SlidingWindow {
            roi: Vec::new(),
            batch: 0,
            overlap: vec![0.25],
            mode: Blend::default(),
            sigma_scale: vec![0.125],
            padding_mode: Padding::default(),
            cval: 0.0,
            argmax: false,
            scale: 1.0,
            mean: Vec::new(),
            std: Vec::new(),
        }
    }
}

fn bad_option(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadOption, message)
}

/// A list for every axis, from one number or as many as there are axes.
fn for_axes<T: Copy>(list: &[T], n_axes: usize, name: &str) -> Result<Vec<T>, Error> {
    match list.len() {
        1 => Ok(vec![list[0]; n_axes]),
        n if n == n_axes => Ok(list.to_vec()),
        n => Err(bad_option(format!(
            "{name} has {n} numbers, the model sees {n_axes} axes; give 1 or {n_axes}"
        ))),
    }
}

impl SlidingWindow {
    /// The windows of an image of these sizes, for a model that was tuned at `tuned`.
    fn grid(&self, image: &[usize], tuned: &[usize]) -> Result<Grid, Error> {
        let n_axes = image.len();
        let roi = if self.roi.is_empty() { tuned.to_vec() } else { for_axes(&self.roi, n_axes, "roi")? };
        let overlap = for_axes(&self.overlap, n_axes, "overlap")?;
        if let Some(wrong) = overlap.iter().find(|overlap| !(0.0..1.0).contains(*overlap)) {
            return Err(bad_option(format!("an overlap of {wrong} is none; give 0 up to less than 1")));
        }
        if let Some(axis) = image.iter().position(|&size| size == 0) {
            return Err(Error::new(
                ErrorKind::WrongShape,
                format!("the image has no pixel along axis {axis}"),
            ));
        }
        let axis = |axis: usize| {
            let roi = if roi[axis] == 0 { image[axis] } else { roi[axis] };
            Axis::new(image[axis], roi, overlap[axis], self.padding_mode)
        };
        Ok(Grid { axes: (0..n_axes).map(axis).collect::<Result<_, _>>()? })
    }

    /// How pixels of a channel become inputs, for so many channels: a factor and what is added.
    fn affine(&self, n_channels: usize) -> Result<Vec<(f32, f32)>, Error> {
        let list = |list: &[f64], usual: f64, name: &str| match list.len() {
            0 => Ok(vec![usual; n_channels]),
            1 => Ok(vec![list[0]; n_channels]),
            n if n == n_channels => Ok(list.to_vec()),
            n => Err(bad_option(format!("{name} has {n} numbers, the input has {n_channels} channels"))),
        };
        let (mean, std) = (list(&self.mean, 0.0, "mean")?, list(&self.std, 1.0, "std")?);
        let affine = |(mean, std): (f64, f64)| ((self.scale / std) as f32, (-mean / std) as f32);
        let all: Vec<(f32, f32)> = mean.into_iter().zip(std).map(affine).collect();
        if all.iter().any(|(factor, added)| !factor.is_finite() || !added.is_finite()) {
            return Err(bad_option("scale, mean and std are numbers, and no std is 0"));
        }
        Ok(all)
    }
}

impl Session {
    /// Runs the model over an image in windows and blends the results, as MONAI's `sliding_window_inference` does.
    /// [`SlidingWindow`] has an example.
    ///
    /// Every input of the model is `[N, C, …]` with one to three axes of pixels, and gets an image of the same sizes: `[N, C,
    /// …]`, `[C, …]` or, for one channel, the pixels alone, of any type. Every output is `[N, C, …]` with the window's
    /// sizes or a multiple or part of them; results are `f32`, `[N, C, …]`, or labels, `[N, …]`.
    pub fn sliding_window(
        &mut self,
        image: &(impl Item + ?Sized),
        options: &SlidingWindow,
    ) -> Result<NamedTensors, Error> {
        self.sliding_window_with(image, options, &mut |_, _| {})
    }

    /// As [`Session::sliding_window`], and tells `progress` how many windows are done, and of how many.
    pub fn sliding_window_with(
        &mut self,
        image: &(impl Item + ?Sized),
        options: &SlidingWindow,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<NamedTensors, Error> {
        let ports = self.engine().inputs();
        let names: Vec<String> = ports.iter().map(|port| port.name.clone()).collect();
        let views = session::views(image, &names)?;
        let mut images = Vec::with_capacity(views.len());
        for (port, view) in ports.iter().zip(&views) {
            images.push(Image::new(port, *view, options)?);
        }
        let first = images.first().ok_or_else(|| bad_option("the model has no input to give windows to"))?;
        if let Some(other) = images.iter().find(|image| image.sizes() != first.sizes()) {
            let message = format!(
                "input `{}` has pixels {:?}, `{}` has {:?}; windows are cut from images of one size",
                other.name,
                other.sizes(),
                first.name,
                first.sizes()
            );
            return Err(Error::new(ErrorKind::WrongShape, message));
        }
        let n_images = first.n_images;
        let tuned = match options.roi.is_empty() {
            true => self.tuned_dims(&ports[0])?.split_off(2),
            false => Vec::new(),
        };
        let grid = options.grid(first.sizes(), &tuned)?;
        let sizes: Vec<Vec<usize>> =
            images.iter().map(|image| [&[image.n_channels], &grid.roi()[..]].concat()).collect();
        let batch = if options.batch == 0 { self.batch_size() } else { options.batch };
        let n_windows = grid.n_windows();
        let n_items = n_windows * n_images;
        let mut blended: Vec<Blended> = Vec::new();
        let output_names = self.engine().outputs().into_iter().map(|port| port.name).collect::<Vec<_>>();
        let mut fill = |item: usize, input: usize, place: &mut [u8]| {
            let places = grid.places(item % n_windows);
            images[input].window(item / n_windows, &places, &grid, options.cval, place)
        };
        let mut take = |item: usize, outputs: &[View<'_>]| {
            if blended.is_empty() {
                for (name, output) in output_names.iter().zip(outputs) {
                    blended.push(Blended::new(name, output, n_images, &grid, options)?);
                }
            }
            let places = grid.places(item % n_windows);
            for (blended, output) in blended.iter_mut().zip(outputs) {
                blended.add(item / n_windows, &places, output)?;
            }
            progress(item + 1, n_items);
            Ok(())
        };
        self.in_batches(&sizes, n_items, batch.min(n_items.max(1)), &mut fill, &mut take)?;
        let tensors = blended.into_iter().map(Blended::finish).collect::<Result<_, _>>()?;
        Ok(self.named(tensors))
    }
}

#[cfg(all(test, feature = "build"))]
mod tests;
