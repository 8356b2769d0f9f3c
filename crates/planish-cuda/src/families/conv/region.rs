//! Regions as convolutions: which operand is what, sizes, layouts, and how weights are packed.

use planish_kernel::{KernelError, Layout, Problem, Ref, Want};
use planish_op::window::PlacedAxis;
use planish_op::{self as op, Op};
use planish_tensor::Dim;

use super::{ConvArgs, Pixels};
use crate::families::product::epilogue::{Rows, TileEpilogue};
use crate::families::product::{Apart, Math, Products, Way};
use crate::formats::{Format, Packing};

/// An axis of size 1 under a window of one tap.
const TRIVIAL_AXIS: PlacedAxis =
    PlacedAxis { input: 1, output: 1, kernel: 1, stride: 1, dilation: 1, pad_begin: 0, pad_end: 0 };

/// A region that is one convolution with what follows it.
#[derive(Clone, Debug)]
pub(in crate::families) struct Convolution {
    pub(in crate::families) n_images: usize,
    pub(in crate::families) groups: usize,
    /// Input and output channels of a group.
    pub(in crate::families) c: usize,
    pub(in crate::families) n: usize,
    /// Depth, rows, columns; those that the model does not have are trivial.
    pub(in crate::families) axes: [PlacedAxis; 3],
    /// Inputs of the region.
    pub(in crate::families) x: usize,
    pub(in crate::families) weight: usize,
    pub(in crate::families) epilogue: TileEpilogue,
    pub(in crate::families) spatial: usize,
}

impl Convolution {
    /// The region's convolution; refused where it is something else or more.
    pub(in crate::families) fn of(problem: &Problem) -> Result<Convolution, KernelError> {
        let refuse = |what: &str| KernelError::unsupported(format!("conv: {what}"));
        let apart = Apart::of(problem)?;
        let region = &apart.as_ref().map_or(problem, Apart::problem).region;
        let Some(main) = region.nodes.first() else { return Err(refuse("an empty region")) };
        let Op::Conv(conv) = &main.op else { return Err(refuse("the region begins with something else")) };
        let input = |idx: usize| match main.inputs.get(idx).copied().flatten() {
            Some(Ref::Input(input)) if (input as usize) < problem.inputs.len() => Ok(input as usize),
            _ => Err(refuse("image or weight are no inputs of the region")),
        };
        let (x, weight) = (input(0)?, input(1)?);
        let (x_dims, w_dims) = (&problem.inputs[x].dims, &problem.inputs[weight].dims);
        let spatial = x_dims.len().saturating_sub(2);
        if !(1..=3).contains(&spatial) || w_dims.len() != x_dims.len() || problem.outputs.len() != 1 {
            return Err(refuse("an image of other than one to three axes"));
        }
        let kernel: Vec<Dim> = w_dims[2..].iter().map(|size| Dim::from(*size)).collect();
        let window = conv.window();
        let wrong = |error: op::window::WindowError| KernelError::unsupported(format!("conv: {error}"));
        let placed = window.axes(&window.kernel_of_weight(&kernel).map_err(wrong)?).map_err(wrong)?;
        let mut axes = [TRIVIAL_AXIS; 3];
        for (idx, axis) in placed.iter().enumerate() {
            axes[3 - spatial + idx] = axis.place(x_dims[2 + idx]).map_err(wrong)?;
        }
        let groups = usize::try_from(conv.group).ok().filter(|groups| *groups > 0);
        let groups = groups.ok_or_else(|| refuse("no groups"))?;
        let (c, n) = (w_dims[1], w_dims[0] / groups);
        let mut out = vec![x_dims[0], groups * n];
        out.extend(axes[3 - spatial..].iter().map(|axis| axis.output));
        if groups * c != x_dims[1] || groups * n != w_dims[0] || out != problem.outputs[0].dims || c == 0 {
            return Err(refuse("sizes that do not fit together"));
        }
        let size = |dims: &[usize]| dims.iter().product::<usize>();
        if size(&out) >= 1 << 31 || size(x_dims) >= 1 << 31 || size(w_dims) >= 1 << 31 {
            return Err(refuse("2^31 elements or more"));
        }
        let epilogue = TileEpilogue::of(problem, apart.as_ref())?;
        Ok(Convolution { n_images: x_dims[0], groups, c, n, axes, x, weight, epilogue, spatial })
    }

    /// The same where its weight is constant and there is something to compute.
    pub(in crate::families) fn offered(problem: &Problem) -> Option<Convolution> {
        let convolution = Convolution::of(problem).ok()?;
        let is_offered = problem.inputs[convolution.weight].constant && !problem.outputs[0].is_empty();
        is_offered.then_some(convolution)
    }

    pub(in crate::families) fn n_taps(&self) -> usize {
        self.axes.iter().map(|axis| axis.kernel).product()
    }

    /// Rows of the product: output pixels.
    pub(in crate::families) fn m(&self) -> usize {
        self.n_images * self.axes.iter().map(|axis| axis.output).product::<usize>()
    }

    pub(in crate::families) fn k(&self) -> usize {
        self.n_taps() * self.c
    }

    /// How rows and columns lie in the output.
    pub(in crate::families) fn rows(&self) -> Rows {
        let [d, h, w] = [0, 1, 2].map(|axis| self.axes[axis].output);
        let axis = |idx: usize| (idx + self.spatial).checked_sub(3).map(|idx| idx + 2);
        Rows {
            sizes: [self.n_images, d, h, w],
            axes: [Some(0), axis(0), axis(1), axis(2)],
            column: Some(1),
            group: if self.groups == 1 { 8 } else { self.n },
            first: 0,
        }
    }

    /// Elements of a row of packed weights.
    pub(in crate::families) fn packed_row(&self, math: Math) -> usize {
        self.k().next_multiple_of(math.per_chunk())
    }

    /// The weight as all convolutions on tensor cores read it; it is the same for every tile.
    pub(in crate::families) fn packing(&self, math: Math) -> Packing {
        let format = Format::Conv { per_chunk: math.per_chunk() };
        Packing { input: self.weight, format, dtype: math.dtype() }
    }

    /// The image as `image` says, those of the output's sizes channels-last, and the rest dense.
    pub(in crate::families) fn wants(&self, problem: &Problem, image: Want) -> (Vec<Want>, Vec<Want>) {
        let mut inputs = Want::beside_image(problem);
        inputs[self.x] = image;
        inputs[self.weight] = Want::dense(Layout::Plain);
        (inputs, vec![Want::inside(Layout::ChannelsLast)])
    }

    /// Of the axes along x, y and z.
    pub(in crate::families) fn along(&self, of: impl Fn(&PlacedAxis) -> usize) -> [usize; 3] {
        [2, 1, 0].map(|axis| of(&self.axes[axis]))
    }

    /// Of depth, rows and columns, as kernels take them.
    pub(in crate::families) fn each(&self, of: impl Fn(&PlacedAxis) -> usize) -> [i32; 3] {
        [0, 1, 2].map(|axis| of(&self.axes[axis]) as i32)
    }

    /// A product for each group.
    pub(super) fn products<'a>(&self, way: &'a Way) -> Products<'a> {
        Products { way, count: self.groups, m: self.m(), n: self.n }
    }

    pub(super) fn arguments(
        &self,
        problem: &Problem,
        way: &Way,
        pixels: &Pixels,
    ) -> Result<ConvArgs, KernelError> {
        Ok(ConvArgs {
            epilogue: self.epilogue.args(problem, &self.rows()),
            sn: pixels.image as i64,
            sc: pixels.channel as i64,
            ss: pixels.axes.map(|stride| stride as i64),
            n_images: self.n_images as i32,
            groups: self.groups as i32,
            c: self.c as i32,
            n: self.n as i32,
            k: self.k() as i32,
            k_row: self.packed_row(way.math) as i32,
            sizes: self.each(|axis| axis.input),
            out: self.each(|axis| axis.output),
            kernel: self.each(|axis| axis.kernel),
            stride: self.each(|axis| axis.stride),
            dilation: self.each(|axis| axis.dilation),
            pad: self.each(|axis| axis.pad_begin),
            cut: self.products(way).cut()?,
        })
    }
}
