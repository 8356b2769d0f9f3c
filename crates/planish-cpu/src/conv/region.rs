//! Regions as convolutions: which operand is what, and what follows the sum.

use planish_kernel::{Numeric, Operand, Problem, Ref};
use planish_op::Op;
use planish_op::window::PlacedAxis;
use planish_tensor::{DType, Dim};

use super::geometry::{AXES, Geometry, Pixels, TRIVIAL_AXIS};
use super::pack::Filter;

/// A region that is one convolution with bias, residual and clamp.
#[derive(Clone, Debug)]
pub(super) struct Convolution {
    pub(super) groups: usize,
    /// Channels of a group.
    pub(super) c: usize,
    pub(super) k: usize,
    pub(super) axes: [PlacedAxis; AXES],
    pub(super) transposed: bool,
    /// Inputs of the region.
    pub(super) x: usize,
    pub(super) weight: usize,
    pub(super) bias: Option<usize>,
    pub(super) residual: Option<usize>,
    pub(super) lo: f32,
    pub(super) hi: f32,
}

impl Convolution {
    /// The region's convolution; `None` where it is something else or more.
    pub(super) fn of(problem: &Problem) -> Option<Convolution> {
        let region = &problem.region;
        let all = problem.inputs.iter().chain(&problem.outputs);
        if problem.numeric != Numeric::F32 || !all.clone().all(|operand| operand.dtype == DType::F32) {
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
        if groups * c != x_dims[1] {
            return None;
        }
        let mut found = Convolution {
            groups,
            c,
            k,
            axes,
            transposed,
            x,
            weight,
            bias: None,
            residual: None,
            lo: f32::NEG_INFINITY,
            hi: f32::INFINITY,
        };
        match main.inputs.get(2).copied().flatten() {
            None => {}
            Some(Ref::Input(bias)) => found.bias = Some(bias as usize),
            Some(_) => return None,
        }
        (found.out_dims(problem) == problem.outputs[0].dims && found.follow(problem)).then_some(found)
    }

    /// Takes the nodes behind the convolution; false where they are more than it can.
    fn follow(&mut self, problem: &Problem) -> bool {
        let region = &problem.region;
        let mut clamped = false;
        for (idx, node) in region.nodes.iter().enumerate().skip(1) {
            let last = Some(Ref::Node { node: idx as u32 - 1, output: 0 });
            match &node.op {
                Op::Add(_) if !clamped => {
                    let other = match node.inputs[..] {
                        [a, Some(Ref::Input(b))] if a == last => b as usize,
                        [Some(Ref::Input(a)), b] if b == last => a as usize,
                        _ => return false,
                    };
                    let Some(operand) = problem.inputs.get(other) else { return false };
                    if operand.dims == problem.outputs[0].dims && self.residual.is_none() {
                        self.residual = Some(other);
                    } else if self.is_bias(operand, problem.outputs[0].rank())
                        && self.bias.is_none()
                        && self.residual.is_none()
                    {
                        self.bias = Some(other);
                    } else {
                        return false;
                    }
                }
                Op::Relu(_) if !clamped && node.inputs.first() == Some(&last) => {
                    self.lo = 0.0;
                    clamped = true;
                }
                Op::Clip(_) if !clamped && node.inputs.first() == Some(&last) => {
                    let bound = |idx: usize, none: f32| match node.inputs.get(idx).copied().flatten() {
                        None => Some(none),
                        bound => region.constant(bound)?.elements::<f32>().ok()?.first().copied(),
                    };
                    let (Some(lo), Some(hi)) = (bound(1, f32::NEG_INFINITY), bound(2, f32::INFINITY)) else {
                        return false;
                    };
                    (self.lo, self.hi) = (lo, hi);
                    clamped = true;
                }
                _ => return false,
            }
        }
        region.outputs == [Ref::Node { node: region.nodes.len() as u32 - 1, output: 0 }]
    }

    /// Whether an operand is one number per output channel, as the sum of outputs of this rank sees it.
    fn is_bias(&self, operand: &Operand, rank: usize) -> bool {
        let channels = rank - 2;
        operand.len() == self.groups * self.k
            && operand.rank() > channels
            && operand.dims[operand.rank() - 1 - channels] == operand.len()
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
    pub(super) fn geometry(&self, problem: &Problem) -> Geometry {
        Geometry {
            n_images: problem.inputs[self.x].dims[0],
            groups: self.groups,
            c: self.c,
            k: self.k,
            axes: self.axes,
            transposed: self.transposed,
            input: pixels(&problem.inputs[self.x]),
            output: pixels(&problem.outputs[0]),
            residual: self.residual.map(|idx| pixels(&problem.inputs[idx])),
        }
    }
}

/// An operand's strides. Those of dimensions of size 1 mean nothing and are set to what is never far off.
fn pixels(operand: &Operand) -> Pixels {
    let mut axes = [1; AXES];
    let spatial = operand.rank() - 2;
    axes[AXES - spatial..].copy_from_slice(&operand.strides[2..]);
    let channel = if operand.dims[1] <= 1 { 1 } else { operand.strides[1] };
    Pixels { image: operand.strides[0], axes, channel }
}
