//! Regions as convolutions: which operand is what, and what follows the sum.

use planish_kernel::pointwise::Epilogue;
use planish_kernel::quantized::{Dequantized, Quantization};
use planish_kernel::{Numeric, Operand, Problem, Ref};
use planish_op::Op;
use planish_op::window::PlacedAxis;
use planish_tensor::{DType, Dim};

use super::geometry::{AXES, Geometry, Pixels, TRIVIAL_AXIS};
use super::pack::Filter;
use crate::formats::MAX_STRIDE;

/// A region that is one convolution with what follows it.
#[derive(Clone, Debug)]
pub(crate) struct Convolution {
    pub(crate) groups: usize,
    /// Channels of a group.
    pub(crate) c: usize,
    pub(crate) k: usize,
    pub(crate) axes: [PlacedAxis; AXES],
    pub(crate) transposed: bool,
    /// Inputs of the region.
    pub(crate) x: usize,
    pub(crate) weight: usize,
    /// The input that the image's channels are multiplied with before the convolution.
    pub(crate) scale: Option<usize>,
    /// The bias, where it is part of the region.
    constant_bias: Option<Vec<f32>>,
    /// What follows: bias, residual and clamp, then a program.
    pub(crate) epilogue: Epilogue,
    /// What the result is rounded to in the end, where it is stored as bytes.
    pub(super) bytes: Option<Bytes>,
}

/// A result that is stored as bytes.
#[derive(Clone, Debug)]
pub(crate) struct Bytes {
    pub(super) by: Quantization,
    /// The problem with a result in f32.
    pub(super) in_floats: Problem,
}

impl Convolution {
    /// The region's convolution; `None` where it is something else or more.
    pub(super) fn of(problem: &Problem) -> Option<Convolution> {
        if matches!(problem.region.nodes.last()?.op, Op::QuantizeLinear(_)) {
            let Dequantized { problem: in_floats, inputs, output } = Dequantized::of(problem).ok()??;
            // Integers are multiplied by others; 8-bit floats are rounded by a kernel of their own.
            let is_integer = |by: &Quantization| matches!(by.dtype, DType::U8 | DType::I8);
            let by = output.filter(|by| inputs.is_empty() && is_integer(by))?;
            let found =
                Convolution::of(&in_floats).filter(|found| !found.transposed && found.scale.is_none())?;
            return Some(Convolution { bytes: Some(Bytes { by, in_floats }), ..found });
        }
        match without_scale(problem) {
            Some((bare, scale)) => {
                let found = Convolution::bare(&bare)?;
                (found.takes_scale()).then_some(Convolution { scale: Some(scale), ..found })
            }
            None => Convolution::bare(problem),
        }
    }

    /// Whether scaled weights do instead of a scaled image: squeeze-and-excite in front of a 1x1 convolution.
    fn takes_scale(&self) -> bool {
        let is_one =
            |axis: &PlacedAxis| (axis.kernel, axis.stride, axis.pad_begin, axis.pad_end) == (1, 1, 0, 0);
        self.groups == 1 && !self.transposed && self.axes.iter().all(is_one)
    }

    /// Whether it scales weights that are more than what they spare: the image is small. Such a product is left to
    /// others, but a plan for any size runs it at such sizes, too.
    pub(super) fn scales_too_much(&self) -> bool {
        let n_pixels: usize = self.axes.iter().map(|axis| axis.input).product();
        self.scale.is_some() && n_pixels <= self.k
    }

    fn bare(problem: &Problem) -> Option<Convolution> {
        let region = &problem.region;
        if !matches!(problem.numeric, Numeric::F32 | Numeric::BF16) {
            return None;
        }
        let main = region.nodes.first()?;
        let input = |idx: usize| match main.inputs.get(idx).copied().flatten() {
            Some(Ref::Input(input)) => Some(input as usize),
            _ => None,
        };
        let (x, weight) = (input(0)?, input(1)?);
        let x_dims = &problem.inputs.get(x)?.dims;
        let w_dims = &problem.inputs.get(weight)?.dims;
        let main_operands = [problem.inputs.get(x)?, problem.inputs.get(weight)?, problem.outputs.first()?];
        if main_operands.iter().any(|operand| operand.dtype != DType::F32) {
            return None;
        }
        let spatial = x_dims.len().checked_sub(2)?;
        if !(1..=AXES).contains(&spatial) || w_dims.len() != x_dims.len() || problem.outputs.len() != 1 {
            return None;
        }
        let kernel: Vec<Dim> = w_dims[2..].iter().map(|size| Dim::from(*size)).collect();
        let mut axes = [TRIVIAL_AXIS; AXES];
        let (groups, transposed) = match &main.op {
            Op::Conv(conv) => {
                let window = conv.window();
                let placed = window.axes(&window.kernel_of_weight(&kernel).ok()?).ok()?;
                for (idx, axis) in placed.iter().enumerate() {
                    axes[AXES - spatial + idx] = axis.place(x_dims[2 + idx]).ok()?;
                }
                (conv.group, false)
            }
            Op::ConvTranspose(conv) => {
                let window = conv.window();
                let kernel = window.kernel_of_weight(&kernel).ok()?;
                let placed = window
                    .transposed_axes(&kernel, &conv.output_padding, conv.output_shape.as_deref())
                    .ok()?;
                for (idx, axis) in placed.iter().enumerate() {
                    axes[AXES - spatial + idx] = axis.place(x_dims[2 + idx]).ok()?;
                }
                (conv.group, true)
            }
            _ => return None,
        };
        let groups = usize::try_from(groups).ok().filter(|groups| *groups > 0)?;
        let (c, k) =
            if transposed { (w_dims[0] / groups, w_dims[1]) } else { (w_dims[1], w_dims[0] / groups) };
        if groups.checked_mul(c) != Some(x_dims[1]) {
            return None;
        }
        // Taps are sorted into a class for each step of a stride: beyond some, the classes alone fill the memory.
        if transposed && axes.iter().any(|axis| axis.stride > MAX_STRIDE) {
            return None;
        }
        let (epilogue, constant_bias) = Epilogue::of_conv(problem, Epilogue::of).ok()?;
        let constant_bias = match constant_bias {
            Some(bias) if bias.len() != groups * k => return None,
            Some(bias) => Some(bias.elements::<f32>().ok()?.into_owned()),
            None => None,
        };
        // Whatever is added after a clamp is left to others.
        if epilogue.residual.is_some_and(|residual| residual.after_clamp) {
            return None;
        }
        let (scale, bytes) = (None, None);
        let found =
            Convolution { groups, c, k, axes, transposed, x, weight, scale, constant_bias, epilogue, bytes };
        (found.out_dims(problem) == problem.outputs[0].dims).then_some(found)
    }

    /// Input of the region that is added to the accumulators.
    pub(super) fn residual(&self) -> Option<usize> {
        self.epilogue.residual.map(|residual| residual.input as usize)
    }

    /// The bias among the region's inputs or constants; null where there is none.
    pub(super) fn bias(&self, inputs: &[*const u8]) -> *const f32 {
        match (&self.constant_bias, self.epilogue.bias) {
            (Some(bias), _) => bias.as_ptr(),
            (None, Some(input)) => inputs[input as usize].cast(),
            (None, None) => std::ptr::null(),
        }
    }

    fn out_dims(&self, problem: &Problem) -> Vec<usize> {
        let spatial = problem.inputs[self.x].rank() - 2;
        let size = |axis: &PlacedAxis| if self.transposed { axis.input } else { axis.output };
        let mut dims = vec![problem.inputs[self.x].dims[0], self.groups * self.k];
        dims.extend(self.axes[AXES - spatial..].iter().map(size));
        dims
    }

    pub(super) fn filter(&self) -> Filter {
        Filter::new(self.groups, self.c, self.k, &self.axes, self.transposed)
    }

    /// Where everything lies.
    pub(crate) fn geometry(&self, problem: &Problem) -> Geometry {
        Geometry {
            n_images: problem.inputs[self.x].dims[0],
            groups: self.groups,
            c: self.c,
            k: self.k,
            axes: self.axes,
            transposed: self.transposed,
            input: pixels(&problem.inputs[self.x]),
            output: pixels(&problem.outputs[0]),
            residual: self.residual().map(|idx| pixels(&problem.inputs[idx])),
        }
    }
}

/// The problem without the product that comes first, where that is an image times one number for each of its
/// channels and alone for the convolution after it; and the input that holds the numbers.
fn without_scale(problem: &Problem) -> Option<(Problem, usize)> {
    let [mul, conv, rest @ ..] = &problem.region.nodes[..] else { return None };
    let product = Some(Ref::Node { node: 0, output: 0 });
    let is_read_elsewhere = rest.iter().flat_map(|node| &node.inputs).chain(&conv.inputs[1..]);
    if !matches!((&mul.op, &conv.op), (Op::Mul(_), Op::Conv(_)))
        || conv.inputs.first() != Some(&product)
        || is_read_elsewhere.into_iter().any(|input| *input == product)
    {
        return None;
    }
    let [Some(Ref::Input(a)), Some(Ref::Input(b))] = mul.inputs[..] else { return None };
    let is_scale = |scale: u32, image: u32| {
        let (scale, image) = (&problem.inputs[scale as usize], &problem.inputs[image as usize]);
        scale.rank() == image.rank()
            && scale.rank() > 2
            && [scale, image].iter().all(|operand| operand.dtype == DType::F32 && !operand.constant)
            && (scale.dims[0] == image.dims[0] || scale.dims[0] == 1)
            && scale.dims[1] == image.dims[1]
            && scale.dims[2..].iter().all(|dim| *dim == 1)
    };
    let (scale, image) = match (is_scale(a, b), is_scale(b, a)) {
        (true, _) => (a, b),
        (_, true) => (b, a),
        _ => return None,
    };
    let mut bare = problem.clone();
    bare.region.nodes.remove(0);
    let region = &mut bare.region;
    let references = region.nodes.iter_mut().flat_map(|node| node.inputs.iter_mut().flatten());
    for reference in references.chain(&mut region.outputs) {
        match reference {
            Ref::Node { node: 0, .. } => *reference = Ref::Input(image),
            Ref::Node { node, .. } => *node -= 1,
            Ref::Input(_) | Ref::Constant(_) => {}
        }
    }
    Some((bare, scale as usize))
}

/// An operand's strides. Those of dimensions of size 1 mean nothing and are set to what is never far off.
fn pixels(operand: &Operand) -> Pixels {
    let mut axes = [1; AXES];
    let spatial = operand.rank() - 2;
    axes[AXES - spatial..].copy_from_slice(&operand.strides[2..]);
    let channel = if operand.dims[1] <= 1 { 1 } else { operand.strides[1] };
    Pixels { image: operand.strides[0], axes, channel }
}
