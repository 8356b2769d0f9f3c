//! Images under windows: one, two or three spatial axes brought to three, with strides of both sides.
//!
//! Depthwise convolution, pooling and resizing all walk from an input image to an output image; the axes that
//! an image of fewer dimensions lacks have one element and one tap.

use planish_kernel::{Candidate, KernelError, Layout, Operand, Problem, Tactic, Want};
use planish_op::window::PlacedAxis;

use crate::family::Work;

/// Depth, height, width.
pub const AXES: usize = 3;

/// One axis with a single element under a single tap.
const ALONE: PlacedAxis =
    PlacedAxis { input: 1, output: 1, kernel: 1, stride: 1, dilation: 1, pad_begin: 0, pad_end: 0 };

/// Where the elements of an image lie, in elements of its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImageStrides {
    pub batch: usize,
    pub channel: usize,
    /// Depth, height, width.
    pub axes: [usize; AXES],
}

impl ImageStrides {
    /// Of an operand `N, C, spatial…` with up to three spatial axes; `None` for other ranks.
    pub fn of(operand: &Operand) -> Option<ImageStrides> {
        let &[batch, channel, ref spatial @ ..] = &*operand.strides else { return None };
        let mut axes = [0; AXES];
        let from = AXES.checked_sub(spatial.len())?;
        axes[from..].copy_from_slice(spatial);
        Some(ImageStrides { batch, channel, axes })
    }
}

/// Windows over an image, and where both sides lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Windows {
    pub batch: usize,
    /// Of the output; the input has as many, or fewer where each is used several times.
    pub channels: usize,
    pub axes: [PlacedAxis; AXES],
    pub from: ImageStrides,
    pub to: ImageStrides,
}

impl Windows {
    /// Windows from `x` to `y`, both `N, C, spatial…` with one to three spatial axes, as `axes` places them.
    /// `None` where ranks or sizes do not fit.
    pub fn new(axes: &[PlacedAxis], x: &Operand, y: &Operand) -> Option<Windows> {
        let n_axes = axes.len();
        let fits = (1..=AXES).contains(&n_axes)
            && x.rank() == n_axes + 2
            && y.rank() == n_axes + 2
            && x.dims[0] == y.dims[0]
            && axes.iter().zip(&x.dims[2..]).all(|(axis, dim)| axis.input == *dim)
            && axes.iter().zip(&y.dims[2..]).all(|(axis, dim)| axis.output == *dim);
        if !fits {
            return None;
        }
        let mut all = [ALONE; AXES];
        all[AXES - n_axes..].copy_from_slice(axes);
        let (batch, channels) = (x.dims[0], y.dims[1]);
        let (from, to) = (ImageStrides::of(x)?, ImageStrides::of(y)?);
        Some(Windows { batch, channels, axes: all, from, to })
    }

    /// The same with an axis of one element and one tap moved from the end to the front: kernels walk along the last axis,
    /// and a sequence may be written as an image of height n and width 1. Neither taps nor pixels change their order.
    pub fn with_rows(mut self) -> Windows {
        let is_alone = |axis: &PlacedAxis| {
            (axis.input, axis.output, axis.kernel, axis.pad_begin, axis.pad_end) == (1, 1, 1, 0, 0)
        };
        for _ in 1..AXES {
            if is_alone(&self.axes[AXES - 1]) && !self.axes.iter().all(is_alone) {
                self.axes.rotate_right(1);
                self.from.axes.rotate_right(1);
                self.to.axes.rotate_right(1);
            }
        }
        self
    }

    /// Taps of a whole window.
    pub fn n_taps(&self) -> usize {
        self.axes.iter().map(|axis| axis.kernel).product()
    }

    /// Output rows: everything but the width and the channels.
    pub fn n_rows(&self) -> usize {
        self.batch * self.axes[0].output * self.axes[1].output
    }

    /// Batch, depth and height of output row `row`.
    #[inline]
    pub fn row(&self, row: usize) -> [usize; 3] {
        let (rest, height) = (row / self.axes[1].output, row % self.axes[1].output);
        [rest / self.axes[0].output, rest % self.axes[0].output, height]
    }
}

/// How many equal pieces of `unit` work belong into one task, so that a task is worth at least `worth`: a fork
/// costs about a microsecond. Depends on sizes only, never on threads, so that bits do not either.
pub fn units_per_task(n_units: usize, unit: usize, worth: usize) -> usize {
    worth.div_ceil(unit.max(1)).clamp(1, n_units.max(1))
}

/// A candidate for each layout of an image that `plan` takes, channels last first; `ns` is what it is expected to take.
pub(crate) fn image_candidates<P>(
    problem: &Problem,
    tactic: &str,
    plan: impl Fn(&Operand, &Operand) -> Option<P>,
    ns: impl Fn(&P, Layout) -> f64,
) -> Vec<Candidate> {
    let ([x], [y]) = (&problem.inputs[..], &problem.outputs[..]) else { return Vec::new() };
    let candidate = |layout: Layout| {
        let laid = |operand: &Operand| Operand::dense(operand.dtype, &operand.dims, layout);
        let plan = plan(&laid(x), &laid(y))?;
        Some(Candidate::new(
            Tactic::new(tactic, 1),
            vec![Want::inside(layout)],
            vec![Want::inside(layout)],
            ns(&plan, layout),
        ))
    };
    [Layout::ChannelsLast, Layout::Plain].into_iter().filter_map(candidate).collect()
}

/// The plan for the image that a problem has, or the reason why there is none.
pub(crate) fn image_work<P: Work + 'static>(
    problem: &Problem,
    plan: impl Fn(&Operand, &Operand) -> Option<P>,
    refusal: &str,
) -> Result<Box<dyn Work>, KernelError> {
    let planned = match (&problem.inputs[..], &problem.outputs[..]) {
        ([x], [y]) => plan(x, y),
        _ => None,
    };
    match planned {
        Some(plan) => Ok(Box::new(plan)),
        None => Err(KernelError::unsupported(refusal)),
    }
}
