//! A 1x1 convolution that widens, a depthwise one, and a 1x1 convolution that narrows, as one step: what mobile
//! networks are made of. One of the outer two may be missing.
//!
//! The widened image is several times as large as what comes in and goes out, and would pass through memory
//! twice. Here a task takes a band of output rows in chunks: it widens the input rows that a chunk still lacks
//! into workspace that stays in the second-level cache, convolves them depthwise, and narrows the result at once.
//! Rows that the next chunk needs again are kept; only bands widen a few rows twice.

mod family;
mod product;
#[cfg(test)]
mod tests;

pub(crate) use family::BottleneckFamily;

use crate::depthwise::{Depthwise, DepthwiseArguments};
use crate::pointwise::Pointwise;
use crate::shared::Shared;
use crate::spatial::ImageStrides;
use crate::team::Team;
use product::{Product, Row};

/// What the widened rows of a chunk may take of the second-level cache, which has 1 MiB or more on the machines
/// that this is for; weights, input and output need room as well.
const WIDENED_BYTES: usize = 384 << 10;

/// Bands of an image, where it is high enough: few rows are then widened twice, and there is work for a few
/// threads.
const BANDS: usize = 4;

/// The least rows of a band.
const BAND_ROWS: usize = 7;

/// A step with everything settled that its sizes settle.
#[derive(Debug)]
struct Bottleneck {
    widen: Option<Product>,
    /// Reads the workspace of widened rows, or the image where nothing widens it, and writes the output, or workspace where a product follows.
    depthwise: Depthwise,
    depthwise_weight: usize,
    depthwise_bias: Option<usize>,
    depthwise_program: Option<Pointwise>,
    narrow: Option<Product>,
    form: Form,
    chunk_rows: usize,
    band_rows: usize,
}

/// Sizes and places.
#[derive(Clone, Debug)]
struct Form {
    /// The input of the region that is the image.
    x: usize,
    batch: usize,
    /// Channels of the widened image.
    width: usize,
    in_rows: usize,
    in_cols: usize,
    out_rows: usize,
    out_cols: usize,
    /// Windows along the rows' axis: extent, stride, padding before.
    extent: usize,
    stride: usize,
    pad: usize,
    from: ImageStrides,
    to: ImageStrides,
    /// The image that is added after the last product.
    residual: Option<(usize, ImageStrides)>,
}

/// Where a slot's workspace has what, in bytes.
struct Workspace {
    narrowed: usize,
    programs: usize,
    total: usize,
}

impl Form {
    /// Input rows that output rows `first..last` read.
    fn reads(&self, first: usize, last: usize) -> (usize, usize) {
        let begin = (first * self.stride).saturating_sub(self.pad).min(self.in_rows);
        let end = ((last - 1) * self.stride + self.extent).saturating_sub(self.pad).min(self.in_rows);
        (begin, end.max(begin))
    }

    /// Elements of a widened row.
    fn row_len(&self) -> usize {
        self.in_cols * self.width
    }
}

impl Bottleneck {
    fn n_bands(&self) -> usize {
        self.form.out_rows.div_ceil(self.band_rows)
    }

    fn n_tasks(&self) -> usize {
        self.form.batch * self.n_bands()
    }

    /// Workspace of one slot.
    fn workspace(&self) -> Workspace {
        let form = &self.form;
        let rows = ((self.chunk_rows - 1) * form.stride + form.extent).min(form.in_rows.max(1));
        let line = |bytes: usize| bytes.next_multiple_of(64);
        let narrowed = self.widen.as_ref().map_or(0, |_| line(rows * form.row_len() * size_of::<f32>()));
        let between = match &self.narrow {
            Some(_) => line(self.chunk_rows * form.out_cols * form.width * size_of::<f32>()),
            None => 0,
        };
        let products = [&self.widen, &self.narrow].into_iter().flatten();
        let programs = products
            .filter_map(Product::program)
            .chain(self.depthwise_program.as_ref())
            .map(Pointwise::workspace_bytes)
            .max()
            .unwrap_or(0);
        Workspace { narrowed, programs: narrowed + between, total: narrowed + between + line(programs) }
    }

    /// # Safety
    /// As for `Work::run`.
    unsafe fn run(&self, shared: Shared<'_>, team: &Team) {
        team.for_each(self.n_tasks(), &|task| {
            let Shared { inputs, outputs, workspace } = { shared };
            let (image, band) = (task.idx / self.n_bands(), task.idx % self.n_bands());
            let first = band * self.band_rows;
            let last = (first + self.band_rows).min(self.form.out_rows);
            let workspace = workspace.wrapping_add(task.slot * self.workspace().total);
            // SAFETY: bands write different rows, slots have different workspace; the rest is the caller's.
            unsafe { self.band(inputs, outputs[0].cast(), workspace, image, first..last) };
        });
    }

    /// # Safety
    /// As for `run`; the workspace must be the caller's alone.
    unsafe fn band(
        &self,
        inputs: &[*const u8],
        y: *mut f32,
        workspace: *mut u8,
        image: usize,
        rows: std::ops::Range<usize>,
    ) {
        let form = &self.form;
        let places = self.workspace();
        let wide = workspace.cast::<f32>();
        let between = workspace.wrapping_add(places.narrowed).cast::<f32>();
        let programs = workspace.wrapping_add(places.programs);
        let row_len = form.row_len();
        // Widened rows `low..high` are in the workspace, the first of them at its beginning.
        let (mut low, mut high) = (0, 0);
        for first in rows.clone().step_by(self.chunk_rows) {
            let last = (first + self.chunk_rows).min(rows.end);
            let (begin, end) = form.reads(first, last);
            let x = inputs[form.x].cast::<f32>().wrapping_add(image * form.from.batch);
            // SAFETY: rows lie in the images and in the workspace, which has room for what a chunk reads.
            unsafe {
                if begin < high {
                    let kept = if self.widen.is_some() { high - begin } else { 0 };
                    std::ptr::copy(wide.add((begin - low) * row_len), wide, kept * row_len);
                } else {
                    high = begin;
                }
                low = begin;
                for (widen, row) in
                    self.widen.iter().flat_map(|widen| (high..end).map(move |row| (widen, row)))
                {
                    let at = Row {
                        from: x.wrapping_add(row * form.from.axes[1]),
                        from_pixel: form.from.axes[2],
                        to: wide.add((row - low) * row_len),
                        to_pixel: form.width,
                        residual: std::ptr::null(),
                        residual_pixel: 0,
                        n_pixels: form.in_cols,
                        first_pixel: (image * form.in_rows + row) * form.in_cols,
                    };
                    widen.row(inputs, &at, programs);
                }
                high = end.max(high);
                let to = match &self.narrow {
                    // As if the workspace began with the image's first row.
                    Some(_) => between.wrapping_sub(first * form.out_cols * form.width),
                    None => y.wrapping_add(image * form.to.batch),
                };
                let from = match self.widen {
                    Some(_) => wide.wrapping_sub(low * row_len).cast_const(),
                    None => x,
                };
                self.convolve(inputs, from, to, image, first..last, programs);
                if let Some(narrow) = &self.narrow {
                    let out = y.wrapping_add(image * form.to.batch);
                    for row in first..last {
                        let (residual, residual_pixel) = match &form.residual {
                            Some((input, strides)) => {
                                let at = image * strides.batch + row * strides.axes[1];
                                (inputs[*input].cast::<f32>().wrapping_add(at), strides.axes[2])
                            }
                            None => (std::ptr::null(), 0),
                        };
                        let at = Row {
                            from: between.add((row - first) * form.out_cols * form.width),
                            from_pixel: form.width,
                            to: out.wrapping_add(row * form.to.axes[1]),
                            to_pixel: form.to.axes[2],
                            residual,
                            residual_pixel,
                            n_pixels: form.out_cols,
                            first_pixel: (image * form.out_rows + row) * form.out_cols,
                        };
                        narrow.row(inputs, &at, programs);
                    }
                }
            }
        }
    }

    /// The depthwise convolution of output rows `rows` of an image; pointers are those of its first row.
    ///
    /// # Safety
    /// What the rows read must be there, what they write writable.
    unsafe fn convolve(
        &self,
        inputs: &[*const u8],
        x: *const f32,
        y: *mut f32,
        image: usize,
        rows: std::ops::Range<usize>,
        programs: *mut u8,
    ) {
        let form = &self.form;
        let shared = Shared { inputs, outputs: &[], workspace: programs };
        let after = |row: crate::depthwise::OutputRow| {
            let Shared { inputs, workspace, .. } = { shared };
            if let Some(program) = &self.depthwise_program {
                let first = image * form.out_rows * form.out_cols + row.first_pixel;
                // SAFETY: the row is this task's, and so is the workspace.
                unsafe {
                    program.run_block(
                        inputs,
                        row.start,
                        row.pixel_stride,
                        first..first + row.n_pixels,
                        row.channels,
                        workspace,
                    )
                };
            }
        };
        let arguments = DepthwiseArguments {
            x,
            weights: inputs[self.depthwise_weight].cast(),
            bias: self.depthwise_bias.map_or(std::ptr::null(), |input| inputs[input].cast()),
            y,
            hook: self.depthwise_program.as_ref().map(|_| &after as &crate::depthwise::RowHook<'_>),
        };
        // SAFETY: the caller says so.
        unsafe { self.depthwise.run_rows(&arguments, rows) };
    }
}
