//! A 1x1 convolution of an image whose channels are multiplied with numbers that only a run knows, as after
//! squeeze-and-excite: the weights are multiplied instead, once for each image, which are fewer.
//!
//! The image then is neither read nor written once more, and stays where the threads have it.

use super::ConvCall;
use super::geometry::Geometry;
use super::igemm::Igemm;
use crate::gemm::table::Tile;
use crate::isa::Isa;
use crate::simd::{Simd, SimdKernel};
use crate::team::Team;

/// Elements of weights that are worth a fork.
const FORK_ELEMENTS: usize = 1 << 16;

/// A convolution with scaled weights.
#[derive(Debug)]
pub(super) struct Scaled {
    isa: Isa,
    /// Of one image.
    igemm: Igemm,
    tile: Tile,
    c: usize,
    k: usize,
    n_images: usize,
    pixels: usize,
    /// Elements from one image to the next: input, output, residual, scale.
    steps: [usize; 4],
}

impl Scaled {
    /// Plans a run; numbers of the next image lie `scale_step` elements further on.
    pub(super) fn new(isa: Isa, geometry: Geometry, tile: Tile, scale_step: usize) -> Scaled {
        let (n_images, c, k) = (geometry.n_images, geometry.c, geometry.k);
        let residual = geometry.residual.map_or(0, |pixels| pixels.image);
        let steps = [geometry.input.image, geometry.output.image, residual, scale_step];
        let pixels = geometry.axes.iter().map(|axis| axis.output).product();
        let igemm = Igemm::new(Geometry { n_images: 1, ..geometry }, tile);
        Scaled { isa, igemm, tile, c, k, n_images, pixels, steps }
    }

    pub(super) fn n_tasks(&self) -> usize {
        self.n_images * self.igemm.n_tasks()
    }

    fn weight_bytes(&self) -> usize {
        (self.igemm.weights_len() * size_of::<f32>()).next_multiple_of(64)
    }

    pub(super) fn workspace_bytes(&self, n_slots: usize) -> usize {
        self.weight_bytes() + self.igemm.workspace_bytes(n_slots)
    }

    /// Runs over all images. `after` of the call counts pixels from the image's first: see `first_pixel`.
    ///
    /// # Safety
    /// As for [`Igemm::run`], and `scale` must be readable for the channels of all images.
    pub(super) unsafe fn run(&self, call: &ConvCall<'_>, scale: *const f32, team: &Team) {
        let scaled = Aimed(call.workspace.cast::<f32>());
        let [input, output, residual, step] = self.steps;
        for image in 0..self.n_images {
            let scale = Aimed(scale.wrapping_add(image * step).cast_mut());
            let from = Aimed(call.weights.cast_mut());
            let panels = self.k.div_ceil(self.tile.nr());
            let panel = |idx: usize| {
                let (scaled, scale, from) = (scaled, scale, from);
                let k0 = idx * self.tile.nr();
                let width = self.tile.panel_width(self.tile.nr().min(self.k - k0));
                // SAFETY: the panel lies in the packed weights and in the workspace, which is as long.
                unsafe {
                    let (from, to) = (from.0.add(k0 * self.c), scaled.0.add(k0 * self.c));
                    self.isa.run(Rows { from, to, scale: scale.0, n: self.c, width });
                }
            };
            match self.c * self.k < FORK_ELEMENTS {
                true => (0..panels).for_each(panel),
                false => team.for_each(panels, &|task| panel(task.idx)),
            }
            let first = image * self.pixels;
            let hook;
            let after: Option<&super::After<'_>> = match call.after {
                None => None,
                Some(after) => {
                    hook = move |finished: &super::Finished| {
                        let mut finished = finished.clone();
                        finished.pixels = finished.pixels.start + first..finished.pixels.end + first;
                        after(&finished);
                    };
                    Some(&hook)
                }
            };
            let one = ConvCall {
                input: call.input.wrapping_add(image * input),
                weights: scaled.0,
                residual: call.residual.wrapping_add(image * residual),
                output: call.output.wrapping_add(image * output),
                workspace: call.workspace.wrapping_add(self.weight_bytes()),
                after,
                ..*call
            };
            // SAFETY: granted by the caller for every image; the workspace is after the weights.
            unsafe { self.igemm.run(&one, team) };
        }
    }
}

/// An address that tasks share.
#[derive(Clone, Copy)]
struct Aimed(*mut f32);

// SAFETY: tasks write different panels, and read what nobody writes meanwhile.
unsafe impl Sync for Aimed {}
// SAFETY: as above: the address belongs to no thread.
unsafe impl Send for Aimed {}

/// Rows of a panel times a number each.
struct Rows {
    from: *const f32,
    to: *mut f32,
    scale: *const f32,
    n: usize,
    /// A multiple of the vector's length.
    width: usize,
}

impl SimdKernel for Rows {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in 0..self.n {
            // SAFETY: the panel has `n` rows of `width` elements on both sides, the scale `n` numbers.
            unsafe {
                let factor = s.splat(*self.scale.add(row));
                let mut at = row * self.width;
                while at < (row + 1) * self.width {
                    s.store(self.to.add(at), s.mul(s.load(self.from.add(at)), factor));
                    at += S::LANES;
                }
            }
        }
    }
}
