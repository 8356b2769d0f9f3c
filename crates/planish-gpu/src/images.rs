//! Images as kernels take them: strides, windows, and threads over their pixels.

use planish_kernel::{KernelError, Operand, Problem, Ref};
use planish_op::window::{PlacedAxis, WindowAttributes};
use planish_tensor::{DType, Dim};

use crate::kernel_args;
use crate::operands::{is_float, refuse};
use crate::space::{Threads, int};

kernel_args! {
    /// Strides of an image: sample, channel, depth, row, column; of axes that it has not, 0.
    pub struct ImageStrides {
        n: i32,
        pub c: i32,
        d: i32,
        h: i32,
        w: i32,
    }

    /// A window along one axis. A transposed convolution's slides over the output: `input` is its size there.
    pub struct WindowAxis {
        input: i32,
        output: i32,
        kernel: i32,
        stride: i32,
        dilation: i32,
        pad_begin: i32,
        pad_end: i32,
    }
}

impl ImageStrides {
    pub fn of(operand: &Operand) -> Result<ImageStrides, KernelError> {
        let rank = operand.rank();
        if !(3..=5).contains(&rank) {
            return refuse("not an image");
        }
        let strides = &operand.strides;
        let [d, h, w] = three(&strides[2..], 0);
        let [n, c, d, h, w] = crate::space::ints([strides[0], strides[1], d, h, w])?;
        Ok(ImageStrides { n, c, d, h, w })
    }

    /// Whether pixels begin at multiples of so many elements.
    pub fn are_multiples_of(&self, n: i32) -> bool {
        [self.n, self.d, self.h, self.w].iter().all(|stride| stride % n == 0)
    }
}

/// An image and a constant weight, both of one float type, that a region's first node reads as the first inputs of the
/// region, and its output, which has floats and the image's rank.
pub fn weighted_image(problem: &Problem) -> Result<(&Operand, &Operand, &Operand), KernelError> {
    let inputs = problem.region.nodes.first().map(|node| &node.inputs[..]);
    let own = [Some(Ref::Input(0)), Some(Ref::Input(1))];
    match (inputs, &problem.inputs[..], &problem.outputs[..]) {
        (Some(inputs), [x, weight, ..], [y]) if inputs.starts_with(&own) => {
            let fits = (3..=5).contains(&x.rank())
                && weight.rank() == x.rank()
                && weight.constant
                && is_float(x.dtype)
                && weight.dtype == x.dtype
                && (is_float(y.dtype) || matches!(y.dtype, DType::I8 | DType::U8 | DType::F8E4M3FN))
                && y.rank() == x.rank();
            if fits { Ok((x, weight, y)) } else { refuse("not a weighted image of floats") }
        }
        _ => refuse("image and weights that are inputs of the region"),
    }
}

/// The windows of an image along depth, row, column.
pub fn window_axes(axes: &[PlacedAxis; 3]) -> Result<[WindowAxis; 3], KernelError> {
    let mut made = <[WindowAxis; 3]>::default();
    for (to, axis) in made.iter_mut().zip(axes) {
        *to = WindowAxis {
            input: int(axis.input)?,
            output: int(axis.output)?,
            kernel: int(axis.kernel)?,
            stride: int(axis.stride)?,
            dilation: int(axis.dilation)?,
            pad_begin: int(axis.pad_begin)?,
            pad_end: int(axis.pad_end)?,
        };
    }
    Ok(made)
}

/// Spatial sizes as depth, row, column, filled up with ones.
pub fn three<T: Copy>(list: &[T], one: T) -> [T; 3] {
    let mut all = [one; 3];
    for (to, from) in all.iter_mut().rev().zip(list.iter().rev()) {
        *to = *from;
    }
    all
}

/// An axis that an image has not: one place, one tap.
pub const NO_AXIS: PlacedAxis =
    PlacedAxis { input: 1, output: 1, kernel: 1, stride: 1, dilation: 1, pad_begin: 0, pad_end: 0 };

/// The windows of an operator on an image, as depth, row, column.
pub fn placed(attributes: &WindowAttributes<'_>, kernel: &[Dim], x: &Operand) -> Option<[PlacedAxis; 3]> {
    let axes = attributes.axes(kernel).ok()?;
    let placed = axes.iter().zip(&x.dims[2..]).map(|(axis, size)| axis.place(*size).ok());
    let placed = placed.collect::<Option<Vec<_>>>().filter(|placed| placed.len() == x.rank() - 2)?;
    Some(three(&placed, NO_AXIS))
}

/// Threads over an image of these sizes, each with so many of its channels where they are innermost.
pub fn pixel_threads(
    samples: usize,
    channels: usize,
    sizes: [usize; 3],
    innermost: Option<usize>,
) -> Result<Threads, KernelError> {
    let [depth, height, width] = sizes;
    let axes = match innermost {
        Some(lanes) => [channels.div_ceil(lanes), width, height, depth],
        None => [width, height, depth, channels],
    };
    Threads::of(samples, &axes)
}
