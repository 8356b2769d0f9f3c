//! A copy of activations whose pixels are whole quads of channels, for inputs that are not: channels that are no multiple
//! of four (pruned networks, pictures of three colours), or pixels that do not begin at one.
//!
//! What fills a pixel up is the zero point: its weights are 0, and where weights have zero points of their own, sums over
//! windows see nothing but zeros.

use super::super::geometry::{AXES, Geometry, Pixels};
use super::QUAD;
use crate::team::Team;

/// Bytes of the copy that a task writes.
const TASK_BYTES: usize = 1 << 16;
/// The copy ends at a cache line.
const LINE: usize = 64;
/// Expected nanoseconds of a pixel and of a byte: the loop over a pixel's quads, and what they take.
const PIXEL_NS: f64 = 0.5;
const BYTE_NS: f64 = 0.05;

/// How the copy is made.
#[derive(Clone, Debug)]
pub(super) struct Aligned {
    n_images: usize,
    sizes: [usize; AXES],
    groups: usize,
    /// Channels of a group.
    c: usize,
    from: Pixels,
}

impl Aligned {
    /// Of the input of a geometry in bytes.
    pub(super) fn of(geometry: &Geometry) -> Aligned {
        Aligned {
            n_images: geometry.n_images,
            sizes: [0, 1, 2].map(|axis| geometry.in_size(axis)),
            groups: geometry.groups,
            c: geometry.c,
            from: geometry.input,
        }
    }

    /// Where the copy's pixels lie, in bytes.
    pub(super) fn pixels(&self) -> Pixels {
        Pixels::channels_last(self.sizes, self.pitch())
    }

    pub(super) fn bytes(&self) -> usize {
        (self.n_pixels() * self.pitch()).next_multiple_of(LINE)
    }

    /// Expected nanoseconds.
    pub(super) fn cost(&self, threads: usize) -> f64 {
        let parts = threads.min(self.n_tasks()).max(1);
        self.n_pixels() as f64 * (PIXEL_NS + BYTE_NS * self.pitch() as f64) / parts as f64
    }

    fn n_pixels(&self) -> usize {
        self.n_images * self.sizes.iter().product::<usize>()
    }

    /// Bytes of a pixel of the copy.
    fn pitch(&self) -> usize {
        self.groups * self.c.next_multiple_of(QUAD)
    }

    fn pixels_of_a_task(&self) -> usize {
        (TASK_BYTES / self.pitch().max(1)).max(1)
    }

    fn n_tasks(&self) -> usize {
        self.n_pixels().div_ceil(self.pixels_of_a_task())
    }

    /// Makes the copy.
    ///
    /// # Safety
    /// `from` must be readable for all pixels, `to` writable for [`Aligned::bytes`].
    pub(super) unsafe fn copy(&self, from: *const u8, to: *mut u8, zero: u8, team: &Team) {
        let call = Call { from, to, zero };
        team.for_each(self.n_tasks(), &|task| {
            // SAFETY: granted by the caller; tasks write different pixels.
            unsafe { self.run(call, task.idx) };
        });
    }

    unsafe fn run(&self, call: Call, task: usize) {
        let Call { from, to, zero } = call;
        let [_, height, width] = self.sizes;
        let first = task * self.pixels_of_a_task();
        let end = (first + self.pixels_of_a_task()).min(self.n_pixels());
        let mut pixel = first;
        while pixel < end {
            // As far as the row and the task go.
            let (row, x) = (pixel / width, pixel % width);
            let n = (width - x).min(end - pixel);
            let (plane, y) = (row / height, row % height);
            let (image, z) = (plane / self.sizes[0], plane % self.sizes[0]);
            let [by_z, by_y, by_x] = self.from.axes;
            let place = image * self.from.image + z * by_z + y * by_y + x * by_x;
            // SAFETY: the pixel is one of the input; the copy has as many.
            unsafe {
                let (from, to) = (from.add(place), to.add(pixel * self.pitch()));
                match self.c % QUAD {
                    0 => self.row::<0>(from, to, n, zero),
                    1 => self.row::<1>(from, to, n, zero),
                    2 => self.row::<2>(from, to, n, zero),
                    _ => self.row::<3>(from, to, n, zero),
                }
            }
            pixel += n;
        }
    }

    /// `n` pixels in a row whose groups have `REST` channels beyond whole quads.
    #[inline(always)]
    unsafe fn row<const REST: usize>(&self, mut from: *const u8, mut to: *mut u8, n: usize, zero: u8) {
        let n_quads = self.c / QUAD;
        let kept = (1u32 << (8 * REST)) - 1;
        let fill = u32::from_le_bytes([zero; QUAD]) & !kept;
        for pixel in 0..n {
            // What a whole quad reads beyond a pixel's channels belongs to the three pixels after it.
            let is_inner = pixel + QUAD <= n;
            for group in 0..self.groups {
                // SAFETY: below the channels of the row on one side, below the pixel's quads on the other.
                unsafe {
                    let channels = from.add(group * self.c);
                    for quad in 0..n_quads {
                        let four = channels.add(quad * QUAD).cast::<[u8; QUAD]>().read();
                        to.add(quad * QUAD).cast::<[u8; QUAD]>().write(four);
                    }
                    to = to.add(n_quads * QUAD);
                    if REST > 0 {
                        let rest = channels.add(n_quads * QUAD);
                        let mut last = [zero; QUAD];
                        if is_inner {
                            let four = u32::from_le_bytes(rest.cast::<[u8; QUAD]>().read());
                            last = (four & kept | fill).to_le_bytes();
                        } else {
                            for (channel, last) in last.iter_mut().enumerate().take(REST) {
                                *last = *rest.add(channel);
                            }
                        }
                        to.cast::<[u8; QUAD]>().write(last);
                        to = to.add(QUAD);
                    }
                }
            }
            from = from.wrapping_add(self.from.axes[AXES - 1]);
        }
    }
}

/// The addresses of one copy.
#[derive(Clone, Copy)]
struct Call {
    from: *const u8,
    to: *mut u8,
    zero: u8,
}

// SAFETY: tasks write different pixels; the rest is read.
unsafe impl Sync for Call {}
// SAFETY: as above: the addresses belong to no thread.
unsafe impl Send for Call {}
