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
    /// Values between operations have numbers from here on.
    pub(in crate::libs::cudnn) const BETWEEN: i64 = 100;
}

/// What operands' addresses are multiples of: the least that vector loads and bulk copies need.
const ALIGNMENT: i64 = 16;

fn type_of(dtype: DType) -> cudnnDataType_t {
    match dtype {
        DType::F16 => cudnnDataType_t::CUDNN_DATA_HALF,
        DType::BF16 => cudnnDataType_t::CUDNN_DATA_BFLOAT16,
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

    /// A value between operations, in f32.
    fn between(&mut self, dims: &[i64], strides: &[i64]) -> Result<Arc<Descriptor>, CudaError> {
        self.next += 1;
        self.tensor(cudnnDataType_t::CUDNN_DATA_FLOAT, self.next, dims, strides, true)
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
            .set(
                Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE,
                Kind::CUDNN_TYPE_DATA_TYPE,
                &[cudnnDataType_t::CUDNN_DATA_FLOAT],
            )?
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

/// Convolution, then residual, bias and ReLU in the order that cuDNN's own fused engines have (sums in f32 commute
/// but for rounding), the residual last where it comes after the ReLU.
fn operations(
    functions: &Arc<Functions>,
    problem: &Problem,
    shape: &Shape,
) -> Result<Vec<Arc<Descriptor>>, KernelError> {
    let mut maker = Maker { functions, next: uid::BETWEEN };
    let refuse = || KernelError::unsupported("cuDNN: an image without its channels innermost");
    let dtype = type_of(shape.dtype);
    let (x_dims, x_strides) = shape.image(&problem.inputs[shape.x]).ok_or_else(refuse)?;
    let (y_dims, y_strides) = shape.image(&problem.outputs[0]).ok_or_else(refuse)?;
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
    let output = maker.tensor(dtype, uid::OUTPUT, &y_dims, &y_strides, false)?;
    let bias = match &shape.bias {
        None => None,
        Some(_) => {
            let mut dims = vec![1; y_dims.len()];
            dims[1] = y_dims[1];
            let mut strides = vec![y_dims[1]; y_dims.len()];
            strides[1] = 1;
            Some(maker.tensor(dtype, uid::BIAS, &dims, &strides, false)?)
        }
    };
    let residual = match shape.residual {
        None => None,
        Some(idx) => {
            let (dims, strides) = shape.image(&problem.inputs[idx]).ok_or_else(refuse)?;
            Some(maker.tensor(dtype, uid::RESIDUAL, &dims, &strides, false)?)
        }
    };
    /// One pointwise operation: another operand, or a ReLU.
    enum Then {
        Add(Arc<Descriptor>),
        Relu((f64, f64)),
    }
    let (early, late) = if shape.residual_last { (None, residual) } else { (residual, None) };
    let chain: Vec<Then> = early
        .map(Then::Add)
        .into_iter()
        .chain(bias.map(Then::Add))
        .chain(shape.relu.map(Then::Relu))
        .chain(late.map(Then::Add))
        .collect();
    let convolution = maker.convolution(shape)?;
    let mut value = match chain.is_empty() {
        true => Arc::clone(&output),
        false => maker.between(&y_dims, &y_strides)?,
    };
    let (one, zero) = ([1.0f32], [0.0f32]);
    let mut operations = vec![
        Making::new(functions, What::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)?
            .parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, &[&x])?
            .parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, &[&weight])?
            .parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, &[&value])?
            .parts(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, &[&convolution])?
            .set(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, Kind::CUDNN_TYPE_FLOAT, &one)?
            .set(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, Kind::CUDNN_TYPE_FLOAT, &zero)?
            .finish("a convolution")?,
    ];
    let n_then = chain.len();
    for (idx, then) in chain.into_iter().enumerate() {
        let to = match idx + 1 == n_then {
            true => Arc::clone(&output),
            false => maker.between(&y_dims, &y_strides)?,
        };
        let mut making = Making::new(functions, What::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?;
        let pointwise = match &then {
            Then::Add(other) => {
                making = making.parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &[other])?;
                maker.pointwise(cudnnPointwiseMode_t::CUDNN_POINTWISE_ADD, None)?
            }
            Then::Relu(bounds) => {
                maker.pointwise(cudnnPointwiseMode_t::CUDNN_POINTWISE_RELU_FWD, Some(*bounds))?
            }
        };
        let operation = making
            .parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[&pointwise])?
            .parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[&value])?
            .parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[&to])?
            .finish("a pointwise operation")?;
        operations.push(operation);
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
        let after = usize::from(shape.bias.is_some()) + usize::from(shape.relu.is_some());
        taken.push((operations(&functions, &laid, &shape)?.len(), 1 + after));
    }
    Ok(taken)
}
