//! A region as one convolution with what cuDNN fuses after it: scales, bias, residual, ReLU, rounding to 8 bits.

use planish_kernel::{Arithmetic, KernelError, Operand, Problem, Ref};
use planish_op::Op;
use planish_op::window::PlacedAxis;
use planish_tensor::{DType, Dim, Tensor};

use crate::families::product::Apart;
use crate::families::product::epilogue::{Bytes, Factors, Following};
use crate::formats::{Format, Packing};
use crate::libs::{function_after, multiplies};

/// An axis of size 1 under a window of one tap: what makes a 1-D image a 2-D one.
const TRIVIAL_AXIS: PlacedAxis =
    PlacedAxis { input: 1, output: 1, kernel: 1, stride: 1, dilation: 1, pad_begin: 0, pad_end: 0 };

/// Where the bias is.
#[derive(Clone, Debug)]
pub(super) enum Bias {
    Input(usize),
    /// A constant of the region, which is not an operand.
    Constant(Tensor),
}

/// A convolution with what follows it.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// Inputs of the region.
    pub(super) x: usize,
    pub(super) weight: usize,
    pub(super) bias: Option<Bias>,
    pub(super) residual: Option<usize>,
    /// Whether the residual is added after the ReLU.
    pub(super) residual_last: bool,
    /// Lower and upper bound of a ReLU.
    pub(super) relu: Option<(f64, f64)>,
    /// Two or three spatial axes.
    pub(super) axes: Vec<PlacedAxis>,
    /// Of both factors, in memory.
    pub(super) dtype: DType,
    /// What leads from 8 bits and back to them.
    pub(super) bytes: Bytes,
    pub(super) element: Arithmetic,
    /// Images, output channels, channels that one output reads.
    pub(super) n_images: usize,
    pub(super) outputs: usize,
    pub(super) depth: usize,
}

impl Shape {
    pub(super) fn of(problem: &Problem) -> Result<Shape, KernelError> {
        let refuse = |what: &str| KernelError::unsupported(format!("cuDNN: {what}"));
        let apart = Apart::of(problem)?;
        let plain = apart.as_ref().map_or(problem, Apart::problem);
        let node = plain.region.nodes.first().ok_or_else(|| refuse("an empty region"))?;
        let Op::Conv(conv) = &node.op else { return Err(refuse("no convolution")) };
        let input = |place: usize| match node.inputs.get(place).copied().flatten() {
            Some(Ref::Input(idx)) if (idx as usize) < problem.inputs.len() => Ok(idx as usize),
            _ => Err(refuse("image or weight are no inputs of the region")),
        };
        let (x_at, weight_at) = (input(0)?, input(1)?);
        let (x, weight) = (&problem.inputs[x_at], &problem.inputs[weight_at]);
        let [out] = &problem.outputs[..] else { return Err(refuse("several outputs")) };
        let spatial = x.rank().saturating_sub(2);
        if !(1..=3).contains(&spatial) || weight.rank() != x.rank() || out.is_empty() || !weight.constant {
            return Err(refuse("other than one to three axes, or a weight that is not a constant"));
        }
        let (dtype, element) = (x.dtype, problem.numeric.element);
        if weight.dtype != dtype || !multiplies(&problem.numeric, dtype) {
            return Err(refuse("types that are mixed, or that it does not multiply"));
        }
        let kernel: Vec<Dim> = weight.dims[2..].iter().map(|size| Dim::from(*size)).collect();
        let window = conv.window();
        let wrong = |error: planish_op::window::WindowError| refuse(&error.to_string());
        let placed = window.axes(&window.kernel_of_weight(&kernel).map_err(wrong)?).map_err(wrong)?;
        let mut axes = vec![TRIVIAL_AXIS; 2usize.saturating_sub(spatial)];
        for (idx, axis) in placed.iter().enumerate() {
            axes.push(axis.place(x.dims[2 + idx]).map_err(wrong)?);
        }
        let mut shape = Shape {
            x: x_at,
            weight: weight_at,
            bias: None,
            residual: None,
            residual_last: false,
            relu: None,
            axes,
            dtype,
            bytes: Bytes::default(),
            element,
            n_images: x.dims[0],
            outputs: weight.dims[0],
            depth: weight.dims[1],
        };
        shape.take_behind(problem, Following::of(problem, apart.as_ref())?)?;
        Ok(shape)
    }

    /// What follows the convolution; refused where it is more than cuDNN fuses.
    fn take_behind(&mut self, problem: &Problem, following: Following) -> Result<(), KernelError> {
        let refuse = |what: &str| Err(KernelError::unsupported(format!("cuDNN: {what}")));
        if function_after(&following, problem.outputs[0].dtype)?.is_some() {
            return refuse("more than bias, residual and ReLU after a convolution");
        }
        let Following { epilogue, constant_bias, bytes } = following;
        self.relu = match (epilogue.lo, epilogue.hi) {
            (f32::NEG_INFINITY, f32::INFINITY) => None,
            (f32::NEG_INFINITY, _) => return refuse("a clamp without a lower bound"),
            (lo, hi) => Some((f64::from(lo), f64::from(hi.min(f32::MAX)))),
        };
        self.bias = match (constant_bias, epilogue.bias) {
            (Some(tensor), _) => Some(Bias::Constant(tensor)),
            (None, Some(idx)) => Some(Bias::Input(idx as usize)),
            (None, None) => None,
        };
        self.residual = epilogue.residual.map(|residual| residual.input as usize);
        self.residual_last = epilogue.residual.is_some_and(|residual| residual.after_clamp);
        let out = problem.outputs[0].dtype;
        let floats = self.bias_type(problem).into_iter();
        let floats = floats
            .chain(self.residual.filter(|_| bytes.residual.is_none()).map(|idx| problem.inputs[idx].dtype));
        let mut floats = floats.chain(bytes.output.is_none().then_some(out));
        // What is multiplied in 8 bits, or stored in them, may have floats of any type beside it.
        let known = [DType::F32, DType::F16, DType::BF16];
        let fits = match bytes == Bytes::default() {
            true => floats.all(|dtype| dtype == self.dtype),
            false => floats.all(|dtype| known.contains(&dtype)),
        };
        let stored = bytes.residual.iter().chain(&bytes.output);
        let is_plain = |dtype: DType, zero: i32| matches!(dtype, DType::I8 | DType::F8E4M3FN) && zero == 0;
        if !fits || !stored.into_iter().all(|stored| is_plain(stored.dtype, stored.zero)) {
            return refuse("a bias, residual or result of another type, or not around zero");
        }
        self.bytes = bytes;
        Ok(())
    }

    /// The type that the bias is stored in, where there is one.
    pub(super) fn bias_type(&self, problem: &Problem) -> Option<DType> {
        self.bias.as_ref().map(|bias| match bias {
            Bias::Constant(tensor) => tensor.dtype(),
            Bias::Input(idx) => problem.inputs[*idx].dtype,
        })
    }

    /// The input with what each channel of the sums is multiplied by.
    pub(super) fn channel_scales(&self) -> Option<usize> {
        self.bytes.factors.and_then(|Factors { columns, .. }| columns)
    }

    /// Operations of its graph.
    pub(super) fn n_operations(&self) -> usize {
        let scales = usize::from(self.bytes.factors.is_some()) + usize::from(self.channel_scales().is_some());
        let residual = usize::from(self.residual.is_some()) + usize::from(self.bytes.residual.is_some());
        let rest = [self.bias.is_some(), self.relu.is_some(), self.bytes.output.is_some()];
        1 + scales + residual + rest.into_iter().filter(|is_there| *is_there).count()
    }

    pub(super) fn taps(&self) -> usize {
        self.axes.iter().map(|axis| axis.kernel).product()
    }

    pub(super) fn flops(&self) -> f64 {
        let pixels: usize = self.axes.iter().map(|axis| axis.output).product();
        2.0 * (self.n_images * pixels * self.outputs) as f64 * (self.taps() * self.depth) as f64
    }

    /// How weights are packed: as those of our own kernels, which are the same bytes where rows need no padding.
    pub(super) fn packing(&self) -> Packing {
        let per_chunk = 128 / self.dtype.bits();
        let fits = (self.taps() * self.depth).is_multiple_of(per_chunk);
        let format = Format::Conv { per_chunk: if fits { per_chunk } else { 1 } };
        Packing { input: self.weight, format, dtype: self.dtype }
    }

    /// Sizes and strides of an image, channels second: two or three axes, those that the model does not have put
    /// in as if dense.
    pub(super) fn image(&self, operand: &Operand) -> Option<(Vec<i64>, Vec<i64>)> {
        let missing = self.axes.len() + 2 - operand.rank();
        let mut dims: Vec<i64> = operand.dims.iter().map(|dim| *dim as i64).collect();
        let mut strides: Vec<i64> = operand.strides.iter().map(|stride| *stride as i64).collect();
        // Strides of sizes of 1 mean nothing; cuDNN reads the layout from them, so they are those of dense
        // channels-last images.
        let (mut step, channels) = (1i64, dims[1].max(1));
        if dims[1] > 1 && strides[1] != 1 {
            return None;
        }
        strides[1] = 1;
        step *= channels;
        for axis in (2..dims.len()).rev().chain([0]) {
            if dims[axis] <= 1 {
                strides[axis] = step;
            }
            step = strides[axis] * dims[axis].max(1);
        }
        for _ in 0..missing {
            let outer = strides[2] * dims[2];
            dims.insert(2, 1);
            strides.insert(2, outer);
        }
        Some((dims, strides))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_kernel::{Layout, Numeric, Region, RegionNode};
    use planish_op as op;
    use planish_testing::problems;

    fn problem(x: &[usize], n: usize, kernel: &[usize]) -> Problem {
        let weight = [&[n, x[1]], kernel].concat();
        let out = [&[x[0], n], &x[2..]].concat();
        Problem {
            region: Region::single(problems::conv::padded(kernel).into(), 3, 1),
            inputs: vec![
                Operand::dense(DType::F16, x, Layout::ChannelsLast),
                Operand::weight(DType::F16, &weight),
                Operand::weight(DType::F16, &[n]),
            ],
            outputs: vec![Operand::dense(DType::F16, &out, Layout::ChannelsLast)],
            numeric: Numeric::F16,
            threads: 1,
        }
    }

    fn then(mut problem: Problem, op: Op, more: Vec<Option<Ref>>) -> Problem {
        let last = problem.region.nodes.len() as u32 - 1;
        let mut inputs = vec![Some(Ref::Node { node: last, output: 0 })];
        inputs.extend(more);
        problem.region.nodes.push(RegionNode { name: "then".into(), op, inputs, n_outputs: 1 });
        problem.region.outputs = vec![Ref::Node { node: last + 1, output: 0 }];
        problem
    }

    #[test]
    fn bias_residual_and_relu_are_taken_in_both_orders() {
        let base = || problem(&[1, 16, 8, 8], 32, &[3, 3]);
        let with_residual = |mut problem: Problem| {
            problem.region.n_inputs = 4;
            problem.inputs.push(Operand::dense(DType::F16, &[1, 32, 8, 8], Layout::ChannelsLast));
            then(problem, op::Add {}.into(), vec![Some(Ref::Input(3))])
        };
        let before = Shape::of(&then(with_residual(base()), op::Relu {}.into(), vec![])).unwrap();
        assert!(matches!(before.bias, Some(Bias::Input(2))));
        assert_eq!((before.residual, before.residual_last), (Some(3), false));
        assert_eq!(before.relu, Some((0.0, f64::from(f32::MAX))));
        let after = Shape::of(&with_residual(then(base(), op::Relu {}.into(), vec![]))).unwrap();
        assert_eq!((after.residual, after.residual_last), (Some(3), true));
        assert!(Shape::of(&then(base(), op::Tanh {}.into(), vec![])).is_err());
        assert_eq!(before.flops(), 2.0 * 64.0 * 32.0 * 144.0);
    }

    #[test]
    fn a_bias_of_the_region_is_found() {
        let mut problem = problem(&[1, 16, 8, 8], 32, &[3, 3]);
        problem.region.constants.push(Tensor::from_f64s(DType::F16, &[32], &[0.5; 32]).unwrap());
        problem.region.nodes[0].inputs[2] = Some(Ref::Constant(0));
        problem.region.n_inputs = 2;
        problem.inputs.truncate(2);
        assert!(matches!(Shape::of(&problem).unwrap().bias, Some(Bias::Constant(_))));
    }

    #[test]
    fn images_of_one_axis_become_flat_ones_of_two() {
        let problem = problem(&[2, 16, 9], 8, &[3]);
        let shape = Shape::of(&problem).unwrap();
        assert_eq!((shape.axes.len(), shape.taps()), (2, 3));
        let (dims, strides) = shape.image(&problem.inputs[0]).unwrap();
        assert_eq!((dims, strides), (vec![2, 16, 1, 9], vec![144, 1, 144, 16]));
        assert!(shape.image(&Operand::dense(DType::F16, &[2, 16, 9], Layout::Plain)).is_none());
    }

    #[test]
    fn weights_have_channels_innermost() {
        let shape = Shape::of(&problem(&[1, 2, 4, 4], 3, &[3, 3])).unwrap();
        // Output 1, tap 4, channel 1.
        assert_eq!(shape.packing().format.name(), "conv_rows1");
        let shape = Shape::of(&problem(&[1, 16, 4, 4], 3, &[1, 1])).unwrap();
        assert_eq!(shape.packing().format.name(), "conv_rows8");
    }

    #[test]
    fn scales_and_rounding_are_operations_of_the_graph() {
        use planish_testing::problems::conv::{conv, with_residual};
        use planish_testing::problems::quantized::{To, quantized};
        let wide = conv(DType::F16, &[1, 16, 8, 8], 32, &[3, 3], |_| {});
        let shape = |problem: &Problem, dtype, to| Shape::of(&quantized(problem, dtype, 0, to).unwrap());
        // Convolution, two scales, bias, ReLU, steps of the result.
        let bytes = shape(&wide, DType::I8, To::Bytes(0)).unwrap();
        assert_eq!((bytes.n_operations(), bytes.channel_scales()), (6, Some(3)));
        assert_eq!(bytes.packing().format.name(), "conv_rows16");
        assert_eq!(shape(&wide, DType::F8E4M3FN, To::F16).unwrap().n_operations(), 5);
        // Rounding around another number than zero would round halves otherwise.
        assert!(shape(&wide, DType::I8, To::Bytes(-5)).is_err());
        let residual = with_residual().remove(0);
        let (bytes, halves) =
            (shape(&residual, DType::I8, To::Bytes(0)), shape(&residual, DType::I8, To::F16));
        assert!(bytes.unwrap().bytes.residual.is_some());
        assert!(halves.unwrap().bytes.residual.is_none());
    }
}
