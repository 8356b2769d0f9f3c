//! Results of convolutions in f32 that are stored as bytes: each tile is rounded while it is in the nearest cache.

use planish_kernel::Problem;
use planish_kernel::quantized::Quantization;

use super::Finished;
use super::geometry::{AXES, Pixels};
use super::region::Convolution;
use crate::isa::Isa;
use crate::pointwise::ToBytes;

/// Where bytes go, and how they are rounded.
#[derive(Debug)]
pub(super) struct StoredBytes {
    isa: Isa,
    to_bytes: ToBytes,
    /// The sizes of the output, and where its pixels lie.
    sizes: [usize; AXES],
    output: Pixels,
}

impl StoredBytes {
    pub(super) fn new(
        isa: Isa,
        by: Quantization,
        convolution: &Convolution,
        problem: &Problem,
    ) -> StoredBytes {
        let sizes = convolution.axes.map(|axis| axis.output);
        let output = convolution.geometry(problem).output;
        StoredBytes { isa, to_bytes: ToBytes::new(by), sizes, output }
    }

    /// Rounds a tile to where it belongs.
    ///
    /// # Safety
    /// The tile must be readable, and the output writable for its pixels.
    pub(super) unsafe fn store(&self, finished: &Finished, output: *mut u8) {
        let Finished { at, stride, pixels, channels, .. } = finished;
        let n = channels.len();
        let mut pixel = pixels.start;
        while pixel < pixels.end {
            // Up to the end of the row.
            let row = self.sizes[2].max(1);
            let n_pixels = (row - pixel % row).min(pixels.end - pixel);
            let is_dense = *stride == n && self.output.axes[2] == n;
            let (n_runs, len) = if is_dense { (1, n_pixels * n) } else { (n_pixels, n) };
            for run in 0..n_runs {
                // SAFETY: granted by the caller.
                unsafe {
                    let from = at.add((pixel - pixels.start + run) * stride);
                    let to = output.add(self.offset(pixel) + run * self.output.axes[2] + channels.start);
                    self.to_bytes.run(self.isa, from, to, len);
                }
            }
            pixel += n_pixels;
        }
    }

    /// Where a pixel lies, counted over images, depths, rows and columns.
    fn offset(&self, pixel: usize) -> usize {
        let [depths, rows, columns] = self.sizes.map(|size| size.max(1));
        let (rest, column) = (pixel / columns, pixel % columns);
        let (rest, row) = (rest / rows, rest % rows);
        let (image, depth) = (rest / depths, rest % depths);
        let [z, y, x] = self.output.axes;
        image * self.output.image + depth * z + row * y + column * x
    }
}
