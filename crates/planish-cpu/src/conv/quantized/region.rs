//! Regions as quantized products: which node is what, and the same product in f32, whose operands and epilogue are read
//! by what f32 products use.

use planish_kernel::pointwise::{Epilogue, Residual};
use planish_kernel::{Layout, Numeric, Operand, Problem, Ref, RegionNode};
use planish_op::Op;
use planish_op::window::PlacedAxis;
use planish_tensor::{DType, Tensor};

use super::super::geometry::{Geometry, Pixels, TRIVIAL_AXIS};
use super::super::region::Convolution;
use super::QUAD;
use super::aligned::Aligned;
use super::pack::Arrangement;

/// A region that is one quantized product with what follows it.
#[derive(Clone, Debug)]
pub(crate) struct Quantized {
    pub(crate) form: Form,
    /// Inputs of the region.
    pub(crate) x: usize,
    pub(crate) weight: usize,
    pub(crate) x_scale: Number<f32>,
    pub(crate) x_zero: Number<u8>,
    pub(crate) scales: Scales,
    pub(crate) weight_zeros: WeightZeros,
    /// The residual with its type, scale and zero point; those of f32 have none.
    pub(crate) residual: Option<Term>,
    pub(crate) output: Term,
}

/// The product itself.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    Conv(Box<Convolution>),
    Matrix { c: usize, k: usize, transposed: bool, epilogue: Epilogue },
}

/// A number of the whole tensor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Number<T> {
    Known(T),
    /// An input of the region: found while the model runs.
    Input(usize),
}

impl<T: Copy> Number<T> {
    /// The number, in a run with these inputs.
    ///
    /// # Safety
    /// The input that it is must be readable.
    pub(crate) unsafe fn of(self, inputs: &[*const u8]) -> T {
        match self {
            Number::Known(number) => number,
            // SAFETY: granted by the caller.
            Number::Input(idx) => unsafe { inputs[idx].cast::<T>().read() },
        }
    }
}

/// Zero points of the weight.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum WeightZeros {
    /// All are 0.
    None,
    One(i8),
    /// An input of the region, one for each output channel.
    Input(usize),
}

/// Scales of the weight.
#[derive(Clone, Debug)]
pub(crate) enum Scales {
    /// An input of the region, one for each output channel.
    Input(usize),
    /// For all of them.
    One(f32),
}

/// An operand of 8 bits with its scale and zero point, or of f32.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    /// Which input of the region; of the output, which output.
    pub(crate) idx: usize,
    pub(crate) dtype: DType,
    pub(crate) scale: f32,
    pub(crate) zero: i32,
}

impl Quantized {
    pub(crate) fn of(problem: &Problem) -> Option<Quantized> {
        let region = &problem.region;
        let is_product = |node: &RegionNode| {
            matches!(node.op, Op::Conv(_) | Op::ConvTranspose(_) | Op::MatMul(_) | Op::Gemm(_))
        };
        let mut products = region.nodes.iter().filter(|node| is_product(node));
        let (main, None) = (products.next()?, products.next()) else { return None };
        if !matches!(problem.numeric, Numeric::F32 | Numeric::I8) || problem.outputs.len() != 1 {
            return None;
        }
        let x = Dequantized::of(problem, main.inputs.first().copied().flatten()?)?;
        let weight = Dequantized::of(problem, main.inputs.get(1).copied().flatten()?)?;
        if x.dtype(problem) != DType::U8 || weight.dtype(problem) != DType::I8 {
            return None;
        }
        let x_zero = match x.single_zero(problem) {
            Some(zero) => Number::Known(u8::try_from(zero).ok()?),
            None => Number::Input(one_of(problem, x.zero?, DType::U8)?),
        };
        let x_scale = match single(problem, x.scale) {
            Some(scale) => Number::Known(scale as f32),
            None => Number::Input(one_of(problem, x.scale, DType::F32)?),
        };
        let (plain, residual, output) = in_floats(problem)?;
        let form = Form::of(&plain, main, x.input, weight.input)?.with_bias_in_floats(problem)?;
        let (k, axis) = form.output_channels(&problem.inputs[weight.input].dims);
        let of_channels = |reference: Ref, dtype: DType| {
            let Ref::Input(idx) = reference else { return None };
            let operand = problem.inputs.get(idx as usize)?;
            let fits = operand.dtype == dtype && operand.dims == [k] && weight.axis == axis;
            fits.then_some(idx as usize)
        };
        let scales = match single(problem, weight.scale) {
            Some(scale) => Scales::One(scale as f32),
            None => Scales::Input(of_channels(weight.scale, DType::F32)?),
        };
        let weight_zeros = match (weight.single_zero(problem), weight.zero) {
            (Some(0), _) => WeightZeros::None,
            (Some(zero), _) => WeightZeros::One(i8::try_from(zero).ok()?),
            (None, zero) => WeightZeros::Input(of_channels(zero?, DType::I8)?),
        };
        // Which taps a pixel of a transposed convolution has is settled before the run, by numbers that are known.
        let is_known = matches!(x_zero, Number::Known(_)) && weight_zeros == WeightZeros::None;
        if matches!(&form, Form::Conv(convolution) if convolution.transposed) && !is_known {
            return None;
        }
        let residual = match form.residual() {
            None => None,
            Some(idx) => {
                let in_floats = Term { idx, dtype: DType::F32, scale: 1.0, zero: 0 };
                let plain = (problem.inputs[idx].dtype == DType::F32).then_some(in_floats);
                // Integers whose scale is not one known number are no term.
                Some(residual.iter().copied().find(|term| term.idx == idx).or(plain)?)
            }
        };
        let (x, weight) = (x.input, weight.input);
        Some(Quantized { form, x, weight, x_scale, x_zero, scales, weight_zeros, residual, output })
    }

    pub(super) fn arrangement(&self) -> Arrangement {
        match &self.form {
            Form::Conv(convolution) => {
                let steps = convolution.axes.map(|axis| (axis.stride, axis.dilation));
                let steps = convolution.transposed.then_some(steps);
                Arrangement::Conv { groups: convolution.groups, steps }
            }
            Form::Matrix { transposed, .. } => Arrangement::Matrix { transposed: *transposed },
        }
    }

    /// What taps in the padding read, as far as it is known before a run.
    pub(super) fn padding(&self) -> u8 {
        match self.x_zero {
            Number::Known(zero) => zero,
            Number::Input(_) => 0,
        }
    }

    /// Bounds of the last step.
    pub(super) fn clamp(&self) -> (f32, f32) {
        let epilogue = self.form.epilogue();
        (epilogue.lo, epilogue.hi)
    }

    /// The bias among the region's inputs or constants; null where there is none.
    pub(super) fn bias(&self, inputs: &[*const u8]) -> *const f32 {
        match &self.form {
            Form::Conv(convolution) => convolution.bias(inputs),
            Form::Matrix { epilogue, .. } => {
                epilogue.bias.map_or(std::ptr::null(), |input| inputs[input as usize].cast())
            }
        }
    }

    /// Where everything lies; `None` where channels are not together.
    pub(super) fn placed(&self, problem: &Problem) -> Option<Placed> {
        let mut geometry = match &self.form {
            Form::Conv(convolution) => convolution.geometry(problem),
            Form::Matrix { c, k, .. } => {
                let (n_rows, input) = rows(&problem.inputs[self.x])?;
                let (_, output) = rows(&problem.outputs[0])?;
                let residual = match self.residual {
                    Some(term) => Some(rows(&problem.inputs[term.idx])?.1),
                    None => None,
                };
                let axis = PlacedAxis { input: n_rows, output: n_rows, ..TRIVIAL_AXIS };
                Geometry {
                    n_images: 1,
                    groups: 1,
                    c: *c,
                    k: *k,
                    axes: [TRIVIAL_AXIS, TRIVIAL_AXIS, axis],
                    transposed: false,
                    input,
                    output,
                    residual,
                }
            }
        };
        let innermost = [Some(geometry.input), Some(geometry.output), geometry.residual]
            .iter()
            .flatten()
            .all(|p| p.channel == 1);
        // Groups of so few channels are mostly depthwise, which has kernels of its own.
        if !innermost || geometry.groups > 1 && geometry.c < QUAD {
            return None;
        }
        let quads = |stride: usize| stride.is_multiple_of(QUAD);
        let is_aligned = quads(geometry.c)
            && quads(geometry.input.image)
            && geometry
                .input
                .axes
                .iter()
                .zip(&geometry.axes)
                .all(|(stride, axis)| axis.input == 1 || quads(*stride));
        let aligned = (!is_aligned).then(|| Aligned::of(&geometry));
        if let Some(aligned) = &aligned {
            geometry.input = aligned.pixels();
        }
        let Pixels { image, axes, channel } = geometry.input;
        let input = Pixels { image: image / QUAD, axes: axes.map(|stride| stride / QUAD), channel };
        Some(Placed { geometry: Geometry { c: geometry.c.div_ceil(QUAD), input, ..geometry }, aligned })
    }
}

/// Where everything lies.
#[derive(Debug)]
pub(super) struct Placed {
    /// With the input in quads of channels.
    pub(super) geometry: Geometry,
    /// The copy that the input of the geometry is, where the input itself is not of whole quads.
    pub(super) aligned: Option<Aligned>,
}

impl Form {
    fn of(plain: &Problem, main: &RegionNode, x: usize, weight: usize) -> Option<Form> {
        if let Op::Conv(_) | Op::ConvTranspose(_) = main.op {
            let convolution = Convolution::of(plain)?;
            let fits = convolution.scale.is_none()
                && convolution.epilogue.program.is_none()
                && (convolution.x, convolution.weight) == (x, weight);
            return fits.then(|| Form::Conv(Box::new(convolution)));
        }
        let transposed = match &main.op {
            Op::MatMul(_) => false,
            Op::Gemm(gemm) if !gemm.trans_a => gemm.trans_b,
            _ => return None,
        };
        let &[rows, columns] = &plain.inputs[weight].dims[..] else { return None };
        let (c, k) = if transposed { (columns, rows) } else { (rows, columns) };
        let fits = |operand: &Operand, n: usize| operand.rank() >= 2 && operand.dims.last() == Some(&n);
        if !fits(&plain.inputs[x], c) || !fits(&plain.outputs[0], k) {
            return None;
        }
        let epilogue = Epilogue::of(plain, 0).ok()?;
        let is_plain =
            epilogue.program.is_none() && epilogue.residual.is_none_or(|residual| !residual.after_clamp);
        is_plain.then_some(Form::Matrix { c, k, transposed, epilogue })
    }

    /// The same with no bytes as its bias. Of a single row or pixel any term has the sizes of a bias; the kernels read a
    /// bias as f32, but residuals of any type.
    fn with_bias_in_floats(mut self, problem: &Problem) -> Option<Form> {
        let is_float = |input: u32| problem.inputs[input as usize].dtype == DType::F32;
        let epilogue = self.epilogue_mut();
        let Some(bias) = epilogue.bias.filter(|&bias| !is_float(bias)) else { return Some(self) };
        // The other term takes its place: there is one row, so that it fits there.
        let other = match epilogue.residual {
            None => None,
            Some(residual) if is_float(residual.input) && !residual.after_clamp => Some(residual.input),
            Some(_) => return None,
        };
        if problem.inputs[bias as usize].dims != problem.outputs[0].dims {
            return None;
        }
        epilogue.bias = other;
        epilogue.residual = Some(Residual { input: bias, after_clamp: false });
        Some(self)
    }

    fn epilogue(&self) -> &Epilogue {
        match self {
            Form::Conv(convolution) => &convolution.epilogue,
            Form::Matrix { epilogue, .. } => epilogue,
        }
    }

    fn epilogue_mut(&mut self) -> &mut Epilogue {
        match self {
            Form::Conv(convolution) => &mut convolution.epilogue,
            Form::Matrix { epilogue, .. } => epilogue,
        }
    }

    fn residual(&self) -> Option<usize> {
        self.epilogue().residual.map(|residual| residual.input as usize)
    }

    /// How many output channels there are, and the weight's axis that they follow.
    fn output_channels(&self, weight: &[usize]) -> (usize, usize) {
        match self {
            Form::Conv(convolution) if convolution.transposed => (convolution.groups * weight[1], 1),
            Form::Conv(_) | Form::Matrix { transposed: true, .. } => (weight[0], 0),
            Form::Matrix { transposed: false, .. } => (weight[1], 1),
        }
    }
}

/// DequantizeLinear of an input of the region.
struct Dequantized {
    input: usize,
    scale: Ref,
    zero: Option<Ref>,
    axis: usize,
}

impl Dequantized {
    fn of(problem: &Problem, reference: Ref) -> Option<Dequantized> {
        let Ref::Node { node, output: 0 } = reference else { return None };
        let node = problem.region.nodes.get(node as usize)?;
        let Op::DequantizeLinear(op) = &node.op else { return None };
        let Some(Ref::Input(input)) = node.inputs.first().copied().flatten() else { return None };
        let operand = problem.inputs.get(input as usize)?;
        let axis = if op.axis < 0 { op.axis + operand.rank() as i64 } else { op.axis };
        let fits = op.block_size == 0 && op.output_dtype.is_none_or(|dtype| dtype == DType::F32);
        fits.then_some(Dequantized {
            input: input as usize,
            scale: node.inputs.get(1).copied().flatten()?,
            zero: node.inputs.get(2).copied().flatten(),
            axis: usize::try_from(axis).ok()?,
        })
    }

    fn dtype(&self, problem: &Problem) -> DType {
        problem.inputs[self.input].dtype
    }

    /// The zero point, where it is one number that is known.
    fn single_zero(&self, problem: &Problem) -> Option<i32> {
        match self.zero {
            None => Some(0),
            Some(zero) => single(problem, zero).map(|zero| zero as i32),
        }
    }
}

/// The one number of a constant of the region.
fn single(problem: &Problem, reference: Ref) -> Option<f64> {
    let constant = problem.region.constant(Some(reference))?;
    (constant.len() == 1).then(|| Tensor::to_f64s(constant)[0])
}

/// The input of the region that is one number of this type.
fn one_of(problem: &Problem, reference: Ref, dtype: DType) -> Option<usize> {
    let Ref::Input(idx) = reference else { return None };
    let operand = problem.inputs.get(idx as usize)?;
    (operand.dtype == dtype && operand.len() == 1).then_some(idx as usize)
}

/// The problem over f32 operands, without quantization; what inputs were dequantized for the whole tensor; and what the
/// output is stored as.
fn in_floats(problem: &Problem) -> Option<(Problem, Vec<Term>, Term)> {
    let region = &problem.region;
    let last = match region.outputs[..] {
        [Ref::Node { node, output: 0 }] => node as usize,
        _ => return None,
    };
    let mut plain = problem.clone();
    plain.numeric = Numeric::F32;
    let mut terms = Vec::new();
    let mut output = Term { idx: 0, dtype: DType::F32, scale: 1.0, zero: 0 };
    // What a reference to each node becomes.
    let mut place: Vec<Option<Ref>> = Vec::with_capacity(region.nodes.len());
    let mut nodes: Vec<RegionNode> = Vec::new();
    for (idx, node) in region.nodes.iter().enumerate() {
        let moved = |reference: &Option<Ref>| match reference {
            Some(Ref::Node { node, .. }) => place.get(*node as usize).copied().flatten(),
            other => *other,
        };
        match &node.op {
            Op::DequantizeLinear(_) => {
                let own = Dequantized::of(problem, Ref::Node { node: idx as u32, output: 0 })?;
                if let (Some(scale), Some(zero)) = (single(problem, own.scale), own.single_zero(problem)) {
                    let dtype = own.dtype(problem);
                    terms.push(Term { idx: own.input, dtype, scale: scale as f32, zero });
                }
                plain.inputs[own.input].dtype = DType::F32;
                place.push(Some(Ref::Input(own.input as u32)));
            }
            Op::QuantizeLinear(op) => {
                let fits = idx == last
                    && op.block_size == 0
                    && op.precision.is_none_or(|dtype| dtype == DType::F32)
                    && matches!(problem.outputs[0].dtype, DType::U8 | DType::I8);
                let scale = single(problem, node.inputs.get(1).copied().flatten()?).filter(|_| fits)?;
                let zero = match node.inputs.get(2).copied().flatten() {
                    None => 0,
                    Some(zero) => single(problem, zero)? as i32,
                };
                output = Term { idx: 0, dtype: problem.outputs[0].dtype, scale: scale as f32, zero };
                plain.region.outputs = vec![moved(node.inputs.first()?)?];
                place.push(None);
            }
            _ => {
                let inputs = node.inputs.iter().map(moved).collect();
                place.push(Some(Ref::Node { node: nodes.len() as u32, output: 0 }));
                if idx == last {
                    plain.region.outputs = vec![Ref::Node { node: nodes.len() as u32, output: 0 }];
                }
                nodes.push(RegionNode { inputs, ..node.clone() });
            }
        }
    }
    plain.region.nodes = nodes;
    plain.outputs[0].dtype = DType::F32;
    Some((plain, terms, output))
}

/// A matrix, or several of them one after the other, as rows: how many, and where they lie.
fn rows(operand: &Operand) -> Option<(usize, Pixels)> {
    let rank = operand.rank();
    let n_rows = operand.dims[..rank - 1].iter().product();
    let is_matrix = rank == 2 && (operand.dims[1] <= 1 || operand.strides[1] == 1);
    let stride = match is_matrix {
        true => operand.strides[0],
        false if operand.is_dense(Layout::Plain) => operand.dims[rank - 1],
        false => return None,
    };
    Some((n_rows, Pixels { image: 0, axes: [0, 0, stride], channel: 1 }))
}
