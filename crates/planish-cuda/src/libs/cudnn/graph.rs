//! The operation graph of a convolution: tensors, the convolution, and pointwise operations after it.

use std::sync::Arc;

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Kind,
    cudnnBackendDescriptorType_t as What, cudnnConvolutionMode_t, cudnnDataType_t, cudnnHandle_t,
    cudnnNanPropagation_t, cudnnPointwiseMode_t,
};
use planish_kernel::{KernelError, Problem};
use planish_tensor::DType;

use super::descriptor::{Descriptor, Functions, Making};
use super::shape::Shape;
use crate::error::CudaError;

/// Numbers by which a run names the operands.
pub(super) mod uid {
    pub(in crate::libs::cudnn) const X: i64 = 1;
    pub(in crate::libs::cudnn) const WEIGHT: i64 = 2;
    pub(in crate::libs::cudnn) const BIAS: i64 = 3;
    pub(in crate::libs::cudnn) const RESIDUAL: i64 = 4;
    pub(in crate::libs::cudnn) const OUTPUT: i64 = 5;
    /// What each channel of the sums is multiplied by.
    pub(in crate::libs::cudnn) const CHANNELS: i64 = 6;
    /// One number each: what all sums, residuals and results are multiplied by.
    pub(in crate::libs::cudnn) const FACTOR: i64 = 7;
    pub(in crate::libs::cudnn) const RESIDUAL_SCALE: i64 = 8;
    pub(in crate::libs::cudnn) const INVERSE: i64 = 9;
    /// Values between operations have numbers from here on.
    pub(in crate::libs::cudnn) const BETWEEN: i64 = 100;
}

/// What operands' addresses are multiples of: the least that vector loads and bulk copies need.
const ALIGNMENT: i64 = 16;

fn type_of(dtype: DType) -> cudnnDataType_t {
    match dtype {
        DType::F16 => cudnnDataType_t::CUDNN_DATA_HALF,
        DType::BF16 => cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        DType::I8 => cudnnDataType_t::CUDNN_DATA_INT8,
        DType::I32 => cudnnDataType_t::CUDNN_DATA_INT32,
        DType::F8E4M3FN => cudnnDataType_t::CUDNN_DATA_FP8_E4M3,
        _ => cudnnDataType_t::CUDNN_DATA_FLOAT,
    }
}

/// Makes the parts of one graph.
struct Maker<'a> {
    functions: &'a Arc<Functions>,
    next: i64,
}

impl Maker<'_> {
    fn tensor(
        &self,
        dtype: cudnnDataType_t,
        id: i64,
        dims: &[i64],
        strides: &[i64],
        is_between: bool,
    ) -> Result<Arc<Descriptor>, CudaError> {
        Making::new(self.functions, What::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
            .set(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, Kind::CUDNN_TYPE_DATA_TYPE, &[dtype])?
            .integers(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, dims)?
            .integers(Name::CUDNN_ATTR_TENSOR_STRIDES, strides)?
            .integers(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[id])?
            .integers(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[ALIGNMENT])?
            .set(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, Kind::CUDNN_TYPE_BOOLEAN, &[is_between])?
            .finish("a tensor")
    }

    /// A value between operations.
    fn between(&mut self, dtype: DType, dims: &[i64], strides: &[i64]) -> Result<Arc<Descriptor>, CudaError> {
        self.next += 1;
        self.tensor(type_of(dtype), self.next, dims, strides, true)
    }

    /// An operand with a value for each channel, or with one for all.
    fn channels(&self, dtype: DType, id: i64, n: i64, rank: usize) -> Result<Arc<Descriptor>, CudaError> {
        let mut dims = vec![1; rank];
        dims[1] = n;
        let mut strides = vec![n; rank];
        strides[1] = 1;
        self.tensor(type_of(dtype), id, &dims, &strides, false)
    }

    /// One pointwise operation on a value, with what it takes beside it.
    fn then(
        &self,
        then: &Then,
        value: &Arc<Descriptor>,
        to: &Arc<Descriptor>,
    ) -> Result<Arc<Descriptor>, CudaError> {
        use cudnnPointwiseMode_t as Mode;
        let mut making = Making::new(self.functions, What::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?;
        let (mode, other, bounds) = match then {
            Then::Add(other) => (Mode::CUDNN_POINTWISE_ADD, Some(other), None),
            Then::Multiply(other) => (Mode::CUDNN_POINTWISE_MUL, Some(other), None),
            Then::Relu(bounds) => (Mode::CUDNN_POINTWISE_RELU_FWD, None, Some(*bounds)),
        };
        if let Some(other) = other {
            making = making.parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &[other])?;
        }
        making
            .parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[&self.pointwise(mode, bounds)?])?
            .parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[value])?
            .parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[to])?
            .finish("a pointwise operation")
    }

    fn pointwise(
        &self,
        mode: cudnnPointwiseMode_t,
        relu: Option<(f64, f64)>,
    ) -> Result<Arc<Descriptor>, CudaError> {
        let mut making = Making::new(self.functions, What::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?
            .set(Name::CUDNN_ATTR_POINTWISE_MODE, Kind::CUDNN_TYPE_POINTWISE_MODE, &[mode])?
            .set(
                Name::CUDNN_ATTR_POINTWISE_MATH_PREC,
                Kind::CUDNN_TYPE_DATA_TYPE,
                &[cudnnDataType_t::CUDNN_DATA_FLOAT],
            )?;
        if let Some((lo, hi)) = relu {
            making = making
                .set(
                    Name::CUDNN_ATTR_POINTWISE_NAN_PROPAGATION,
                    Kind::CUDNN_TYPE_NAN_PROPOGATION,
                    &[cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN],
                )?
                .set(Name::CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, Kind::CUDNN_TYPE_DOUBLE, &[lo])?
                .set(Name::CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, Kind::CUDNN_TYPE_DOUBLE, &[hi])?;
        }
        making.finish("a pointwise operation")
    }

    fn convolution(&self, shape: &Shape) -> Result<Arc<Descriptor>, CudaError> {
        let each = |of: fn(&planish_op::window::PlacedAxis) -> usize| -> Vec<i64> {
            shape.axes.iter().map(|axis| of(axis) as i64).collect()
        };
        Making::new(self.functions, What::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?
            .set(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, Kind::CUDNN_TYPE_DATA_TYPE, &[type_of(sums(shape))])?
            .set(
                Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE,
                Kind::CUDNN_TYPE_CONVOLUTION_MODE,
                &[cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION],
            )?
            .integers(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[shape.axes.len() as i64])?
            .integers(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &each(|axis| axis.pad_begin))?
            .integers(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &each(|axis| axis.pad_end))?
            .integers(Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &each(|axis| axis.stride))?
            .integers(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, &each(|axis| axis.dilation))?
            .finish("a convolution")
    }
}

/// One pointwise operation: another operand, or a ReLU.
enum Then {
    Add(Arc<Descriptor>),
    Multiply(Arc<Descriptor>),
    Relu((f64, f64)),
}

/// What products are summed in.
fn sums(shape: &Shape) -> DType {
    if shape.dtype == DType::I8 { DType::I32 } else { DType::F32 }
}

/// The graph of a shape.
pub(super) fn graph(
    functions: &Arc<Functions>,
    handle: cudnnHandle_t,
    problem: &Problem,
    shape: &Shape,
) -> Result<Arc<Descriptor>, KernelError> {
    let operations = operations(functions, problem, shape)?;
    let operations: Vec<&Arc<Descriptor>> = operations.iter().collect();
    Ok(Making::new(functions, What::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
        .set(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, Kind::CUDNN_TYPE_HANDLE, &[handle])?
        .parts(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations)?
        .finish("an operation graph")?)
}

/// Convolution, scales of 8 bits, then residual, bias and ReLU in the order that cuDNN's own fused engines have (sums in
/// f32 commute but for rounding), the residual last where it comes after the ReLU, and steps of the result.
fn operations(
    functions: &Arc<Functions>,
    problem: &Problem,
    shape: &Shape,
) -> Result<Vec<Arc<Descriptor>>, KernelError> {
    let mut maker = Maker { functions, next: uid::BETWEEN };
    let refuse = || KernelError::unsupported("cuDNN: an image without its channels innermost");
    let dtype = type_of(shape.dtype);
    let out = &problem.outputs[0];
    let (x_dims, x_strides) = shape.image(&problem.inputs[shape.x]).ok_or_else(refuse)?;
    let (y_dims, y_strides) = shape.image(out).ok_or_else(refuse)?;
    let x = maker.tensor(dtype, uid::X, &x_dims, &x_strides, false)?;
    let weight = {
        let mut dims = vec![shape.outputs as i64, shape.depth as i64];
        dims.extend(shape.axes.iter().map(|axis| axis.kernel as i64));
        let mut strides = vec![0; dims.len()];
        strides[1] = 1;
        let mut step = dims[1];
        for axis in (2..dims.len()).rev().chain([0]) {
            strides[axis] = step;
            step *= dims[axis];
        }
        maker.tensor(dtype, uid::WEIGHT, &dims, &strides, false)?
    };
    let output = maker.tensor(type_of(out.dtype), uid::OUTPUT, &y_dims, &y_strides, false)?;
    let (n_channels, rank) = (y_dims[1], y_dims.len());
    let mut operations = Vec::new();
    let residual = match shape.residual {
        None => None,
        Some(idx) => {
            let operand = &problem.inputs[idx];
            let (dims, strides) = shape.image(operand).ok_or_else(refuse)?;
            let stored = maker.tensor(type_of(operand.dtype), uid::RESIDUAL, &dims, &strides, false)?;
            Some(match shape.bytes.residual {
                None => stored,
                Some(_) => {
                    let scale = Then::Multiply(maker.channels(DType::F32, uid::RESIDUAL_SCALE, 1, rank)?);
                    let wide = maker.between(DType::F32, &dims, &strides)?;
                    operations.push(maker.then(&scale, &stored, &wide)?);
                    wide
                }
            })
        }
    };
    let (early, late) = if shape.residual_last { (None, residual) } else { (residual, None) };
    let mut chain = Vec::new();
    if shape.bytes.factors.is_some() {
        chain.push(Then::Multiply(maker.channels(DType::F32, uid::FACTOR, 1, rank)?));
    }
    if shape.channel_scales().is_some() {
        chain.push(Then::Multiply(maker.channels(DType::F32, uid::CHANNELS, n_channels, rank)?));
    }
    chain.extend(early.map(Then::Add));
    if let Some(dtype) = shape.bias_type(problem) {
        chain.push(Then::Add(maker.channels(dtype, uid::BIAS, n_channels, rank)?));
    }
    chain.extend(shape.relu.map(Then::Relu));
    chain.extend(late.map(Then::Add));
    if shape.bytes.output.is_some() {
        chain.push(Then::Multiply(maker.channels(DType::F32, uid::INVERSE, 1, rank)?));
    }
    let convolution = maker.convolution(shape)?;
    let mut value = match chain.is_empty() {
        true => Arc::clone(&output),
        false => maker.between(sums(shape), &y_dims, &y_strides)?,
    };
    let (one, zero) = ([1.0f32], [0.0f32]);
    operations.push(
        Making::new(functions, What::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)?
            .parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, &[&x])?
            .parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, &[&weight])?
            .parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, &[&value])?
            .parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, &[&convolution])?
            .set(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, Kind::CUDNN_TYPE_FLOAT, &one)?
            .set(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, Kind::CUDNN_TYPE_FLOAT, &zero)?
            .finish("a convolution")?,
    );
    let n_then = chain.len();
    for (idx, then) in chain.iter().enumerate() {
        let to = match idx + 1 == n_then {
            true => Arc::clone(&output),
            false => maker.between(DType::F32, &y_dims, &y_strides)?,
        };
        operations.push(maker.then(then, &value, &to)?);
        value = to;
    }
    Ok(operations)
}

/// Has the library take every operation of every convolution, and gives for each how many it took and how many there are:
/// without a GPU there is no handle and no graph, but that much can be seen.
pub(crate) fn describe(problems: &[Problem]) -> Result<Vec<(usize, usize)>, KernelError> {
    let functions = Arc::new(super::functions()?);
    let mut taken = Vec::new();
    for problem in problems {
        let Ok(shape) = Shape::of(problem) else { continue };
        let laid = super::laid(problem, &shape);
        taken.push((operations(&functions, &laid, &shape)?.len(), shape.n_operations()));
    }
    Ok(taken)
}
