//! Regions as quantized products: which node is what, and the same product in f32, whose operands and epilogue are read
//! by what f32 products use.

use planish_kernel::pointwise::Epilogue;
use planish_kernel::{Layout, Numeric, Operand, Problem, Ref, RegionNode};
use planish_op::Op;
use planish_op::window::PlacedAxis;
use planish_tensor::{DType, Tensor};

use super::super::geometry::{Geometry, Pixels, TRIVIAL_AXIS};
use super::super::region::Convolution;
use super::QUAD;
use super::pack::Arrangement;

/// A region that is one quantized product with what follows it.
#[derive(Clone, Debug)]
pub(crate) struct Quantized {
    pub(crate) form: Form,
    /// Inputs of the region.
    pub(crate) x: usize,
    pub(crate) weight: usize,
    pub(crate) x_scale: f32,
    pub(crate) x_zero: u8,
    pub(crate) scales: Scales,
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
        let x_zero = u8::try_from(x.single_zero(problem)?).ok().filter(|_| x.dtype(problem) == DType::U8)?;
        if weight.dtype(problem) != DType::I8 || weight.single_zero(problem)? != 0 {
            return None;
        }
        let (plain, residual, output) = in_floats(problem)?;
        let form = Form::of(&plain, main, x.input, weight.input)?;
        let (k, axis) = form.output_channels(&problem.inputs[weight.input].dims);
        let scales = match (weight.scale, single(problem, weight.scale)) {
            (_, Some(scale)) => Scales::One(scale as f32),
            (Ref::Input(idx), None) => {
                let operand = &problem.inputs[idx as usize];
                let fits = operand.dtype == DType::F32 && operand.dims == [k] && weight.axis == axis;
                fits.then_some(Scales::Input(idx as usize))?
            }
            _ => return None,
        };
        let residual = form.residual().map(|idx| {
            let in_floats = Term { idx, dtype: DType::F32, scale: 1.0, zero: 0 };
            residual.iter().copied().find(|term| term.idx == idx).unwrap_or(in_floats)
        });
        let x_scale = single(problem, x.scale)? as f32;
        Some(Quantized { form, x: x.input, weight: weight.input, x_scale, x_zero, scales, residual, output })
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

    /// Where everything lies, in quads of input channels; `None` where quads or channels are not together.
    pub(super) fn geometry(&self, problem: &Problem) -> Option<Geometry> {
        let geometry = match &self.form {
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
        let quads = |stride: usize| stride.is_multiple_of(QUAD);
        let fits = innermost
            && geometry.c.is_multiple_of(QUAD)
            && quads(geometry.input.image)
            && geometry
                .input
                .axes
                .iter()
                .zip(&geometry.axes)
                .all(|(stride, axis)| axis.input == 1 || quads(*stride));
        if !fits {
            return None;
        }
        let Pixels { image, axes, channel } = geometry.input;
        let input = Pixels { image: image / QUAD, axes: axes.map(|stride| stride / QUAD), channel };
        Some(Geometry { c: geometry.c / QUAD, input, ..geometry })
    }
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

    fn epilogue(&self) -> &Epilogue {
        match self {
            Form::Conv(convolution) => &convolution.epilogue,
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
