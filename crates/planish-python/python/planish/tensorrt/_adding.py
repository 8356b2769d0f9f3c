"""The layers that networks are given in Python: `add_convolution_nd` and its like."""

from . import _layers as layers
from . import _layers_more as more
from . import _windows as windows
from ._enums import (
    ActivationType,
    BoundingBoxFormat,
    CausalMaskKind,
    FillOperation,
    GatherMode,
    InterpolationMode,
    PaddingMode,
    ResizeCoordinateTransformation,
    ResizeRoundMode,
    ResizeSelector,
    SampleMode,
    ScaleMode,
    ScatterMode,
)
from ._loops import IIfConditional, ILoop
from ._plugins import IPluginV2, IPluginV2Layer
from ._tensor import ITensor
from ._types import DataType, Dims


class Missing(NotImplementedError, AttributeError):
    """What TensorRT has and is not here: for `hasattr`, too."""


class Adding:
    """What adds a layer to a network, by kinds of layers."""

    def add_input(self, name, dtype, shape):
        """An input; -1 is a size that a run decides."""
        tensor = ITensor(self, name, dtype, Dims(shape))
        self._inputs.append(tensor)
        return tensor

    def add_constant(self, shape, weights):
        """Elements that do not change."""
        return layers.IConstantLayer(self, [], shape=Dims(shape), weights=weights)

    def add_convolution_nd(self, input, num_output_maps, kernel_shape, kernel=None, bias=None):  # noqa: A002
        """A convolution."""
        return self._convolution(windows.IConvolutionLayer, input, num_output_maps, kernel_shape, kernel, bias)

    add_convolution = add_convolution_nd

    def add_deconvolution_nd(self, input, num_output_maps, kernel_shape, kernel=None, bias=None):  # noqa: A002
        """A transposed convolution."""
        return self._convolution(windows.IDeconvolutionLayer, input, num_output_maps, kernel_shape, kernel, bias)

    add_deconvolution = add_deconvolution_nd

    def _convolution(self, kind, tensor, num_output_maps, kernel_shape, kernel, bias):
        window = Dims(kernel_shape)
        zeros, ones = Dims([0] * len(window)), Dims([1] * len(window))
        told = {"num_output_maps": num_output_maps, "kernel_size_nd": window, "kernel": kernel, "bias": bias, "stride_nd": ones}
        told.update(padding_nd=zeros, pre_padding=zeros, post_padding=zeros, dilation_nd=ones, num_groups=1)
        return kind(self, [tensor], padding_mode=PaddingMode.EXPLICIT_ROUND_DOWN, **told)

    def add_pooling_nd(self, input, type, window_size):  # noqa: A002
        """The largest, or the mean, of a window."""
        window = Dims(window_size)
        zeros, ones = Dims([0] * len(window)), Dims([1] * len(window))
        told = {"pooling": type, "window_size_nd": window, "stride_nd": ones, "padding_nd": zeros, "pre_padding": zeros, "post_padding": zeros}
        return windows.IPoolingLayer(self, [input], average_count_excludes_padding=True, padding_mode=PaddingMode.EXPLICIT_ROUND_DOWN, **told)

    add_pooling = add_pooling_nd

    def add_activation(self, input, type):  # noqa: A002
        """A function of each element."""
        return layers.IActivationLayer(self, [input], activation=ActivationType(type), alpha=0.0, beta=0.0)

    def add_unary(self, input, op):  # noqa: A002
        """A function of each element."""
        return layers.IUnaryLayer(self, [input], op=op)

    def add_elementwise(self, input1, input2, op):
        """A function of two elements."""
        return layers.IElementWiseLayer(self, [input1, input2], op=op)

    def add_matrix_multiply(self, input0, op0, input1, op1):
        """A product of matrices."""
        return layers.IMatrixMultiplyLayer(self, [input0, input1], op0=op0, op1=op1)

    def add_fully_connected(self, input, num_outputs, kernel, bias=None):  # noqa: A002
        """A matrix of weights over the last three axes."""
        return layers.IFullyConnectedLayer(self, [input], num_output_channels=num_outputs, kernel=kernel, bias=bias)

    def add_shuffle(self, input):  # noqa: A002
        """Other sizes and another order of axes."""
        return layers.IShuffleLayer(self, [input], first_transpose=None, reshape_dims=None, second_transpose=None, zero_is_placeholder=True)

    def add_softmax(self, input):  # noqa: A002
        """Softmax."""
        return layers.ISoftMaxLayer(self, [input], axes=0)

    def add_concatenation(self, inputs):
        """Tensors one behind the other."""
        return layers.IConcatenationLayer(self, inputs, axis=max(len(inputs[0].shape) - 3, 0))

    def add_reduce(self, input, op, axes, keep_dims):  # noqa: A002
        """A sum, a mean, or the like, along axes."""
        return layers.IReduceLayer(self, [input], op=op, axes=axes, keep_dims=keep_dims)

    def add_topk(self, input, op, k, axes):  # noqa: A002
        """The largest, or the smallest, along an axis."""
        return layers.ITopKLayer(self, [input], 2, op=op, k=k, axes=axes, indices_type=DataType.INT32)

    def add_gather(self, input, indices, axis):  # noqa: A002
        """Elements at places along an axis."""
        return self.add_gather_v2(input, indices, GatherMode.DEFAULT, axis)

    def add_gather_v2(self, input, indices, mode, axis=0):  # noqa: A002
        """Elements at places."""
        return layers.IGatherLayer(self, [input, indices], axis=axis, mode=mode, num_elementwise_dims=0)

    def add_slice(self, input, start, shape, stride):  # noqa: A002
        """A part of a tensor."""
        told = {"start": Dims(start), "shape": Dims(shape), "stride": Dims(stride), "axes": None}
        return more.ISliceLayer(self, [input], mode=SampleMode.STRICT_BOUNDS, **told)

    def add_resize(self, input):  # noqa: A002
        """Other sizes by interpolation."""
        told = {"shape": None, "scales": None, "resize_mode": InterpolationMode.NEAREST, "cubic_coeff": -0.75, "exclude_outside": False}
        told.update(nearest_rounding=ResizeRoundMode.FLOOR, selector_for_single_pixel=ResizeSelector.FORMULA)
        how = ResizeCoordinateTransformation.ASYMMETRIC
        return more.IResizeLayer(self, [input], coordinate_transformation=how, align_corners=False, **told)

    def add_scale(self, input, mode, shift=None, scale=None, power=None):  # noqa: A002
        """(x * scale + shift) ** power."""
        return self.add_scale_nd(input, mode, shift, scale, power, max(len(input.shape) - 3, 0))

    def add_scale_nd(self, input, mode, shift=None, scale=None, power=None, channel_axis=1):  # noqa: A002
        """The same, with channels along an axis."""
        told = {"mode": ScaleMode(mode), "shift": shift, "scale": scale, "power": power, "channel_axis": channel_axis}
        return layers.IScaleLayer(self, [input], **told)

    def add_normalization(self, input, scale, bias, axesMask):  # noqa: A002, N803
        """Elements without the mean and the variance along axes, scaled and shifted."""
        return layers.INormalizationLayer(self, [input, scale, bias], axes=axesMask, epsilon=1e-5, num_groups=1, compute_precision=DataType.FLOAT)

    add_normalization_v2 = add_normalization

    def add_padding_nd(self, input, pre_padding, post_padding):  # noqa: A002
        """Zeros around the last two axes."""
        return layers.IPaddingLayer(self, [input], pre_padding_nd=Dims(pre_padding), post_padding_nd=Dims(post_padding))

    add_padding = add_padding_nd

    def add_identity(self, input):  # noqa: A002
        """The tensor itself."""
        return more.IIdentityLayer(self, [input], "Identity")

    def add_cast(self, input, to_type):  # noqa: A002
        """The elements in another type."""
        return more.ICastLayer(self, [input], "Cast", to_type=to_type)

    def add_shape(self, input):  # noqa: A002
        """The sizes of a tensor."""
        return more.IShapeLayer(self, [input], "Shape")

    def add_select(self, condition, then_input, else_input):
        """Elements of one tensor or the other."""
        return more.ISelectLayer(self, [condition, then_input, else_input], "Where")

    def add_einsum(self, inputs, equation):
        """Sums of products, as the equation says."""
        return more.IEinsumLayer(self, inputs, "Einsum", equation=equation)

    def add_parametric_relu(self, input, slopes):  # noqa: A002
        """Relu with a slope for what is negative."""
        return more.IParametricReLULayer(self, [input, slopes], "PRelu")

    def add_lrn(self, input, window, alpha, beta, k):  # noqa: A002
        """Local response normalization."""
        return more.ILRNLayer(self, [input], "LRN", window_size=window, alpha=float(alpha), beta=float(beta), k=float(k))

    def add_non_zero(self, input):  # noqa: A002
        """The places of elements that are not zero."""
        return more.INonZeroLayer(self, [input], "NonZero", indices_type=DataType.INT64)

    def add_quantize(self, input, scale, output_type=DataType.INT8):  # noqa: A002
        """Integers of 8 bits, by a scale."""
        return more.IQuantizeLayer(self, [input, scale], "QuantizeLinear", axis=None, to_type=output_type)

    def add_dequantize(self, input, scale, output_type=DataType.FLOAT):  # noqa: A002
        """The other way."""
        return more.IDequantizeLayer(self, [input, scale], "DequantizeLinear", axis=None, to_type=output_type)

    def add_grid_sample(self, input, grid):  # noqa: A002
        """Elements at places between elements."""
        told = {"interpolation_mode": InterpolationMode.LINEAR, "align_corners": False, "sample_mode": SampleMode.FILL}
        return more.IGridSampleLayer(self, [input, grid], "GridSample", **told)

    def add_squeeze(self, input, axes):  # noqa: A002
        """Without axes of one."""
        return more.ISqueezeLayer(self, [input, axes], "Squeeze")

    def add_unsqueeze(self, input, axes):  # noqa: A002
        """With axes of one."""
        return more.IUnsqueezeLayer(self, [input, axes], "Unsqueeze")

    def add_scatter(self, data, indices, updates, mode):
        """Elements with others at places."""
        return more.IScatterLayer(self, [data, indices, updates], mode=ScatterMode(mode), axis=0)

    def add_one_hot(self, indices, values, depth, axis):
        """One value at places, another elsewhere."""
        return more.IOneHotLayer(self, [indices, values, depth], axis=axis)

    def add_nms(self, boxes, scores, max_output_boxes_per_class, indices_type=DataType.INT32):
        """The best boxes that do not overlap; the least overlap is its fourth input, the least score its fifth."""
        told = {"bounding_box_format": BoundingBoxFormat.CORNER_PAIRS, "topk_box_limit": 2048, "indices_type": indices_type}
        return more.INMSLayer(self, [boxes, scores, max_output_boxes_per_class], 2, **told)

    def add_cumulative(self, input, axis, op, exclusive, reverse):  # noqa: A002
        """Sums of all elements up to each."""
        return more.ICumulativeLayer(self, [input, axis], "CumSum", op=op, exclusive=exclusive, reverse=reverse)

    def add_reverse_sequence(self, input, sequence_lens):  # noqa: A002
        """The first elements of each sequence the other way round."""
        return more.IReverseSequenceLayer(self, [input, sequence_lens], "ReverseSequence", batch_axis=1, sequence_axis=0)

    def add_fill(self, shape, op, output_type=DataType.FLOAT):
        """Numbers in a row, or drawn."""
        told = {"shape": Dims(shape), "operation": FillOperation(op), "to_type": output_type, "alpha": None, "beta": None}
        return more.IFillLayer(self, [], **told)

    def add_assertion(self, condition, message):
        """Something that is to be true: builds take the network's word for it."""
        return more.IAssertionLayer(self, [condition], 0, message=message)

    def add_attention(self, query, key, value, norm_op, causal):
        """An attention: products of queries and keys, normalized, times values. Nothing is scaled."""
        return more.IAttention(self, [query, key, value], norm_op=norm_op, causal=causal)

    def add_attention_v2(self, query, key, value, norm_op, causal_kind):
        """The same, with the corner that a causal mask begins at."""
        if causal_kind == CausalMaskKind.LOWER_RIGHT:
            raise Missing("attentions with a causal mask from the lower right corner are not among the layers here; give a mask")
        return self.add_attention(query, key, value, norm_op, causal_kind != CausalMaskKind.NONE)

    def add_loop(self):
        """A loop, with recurrences, iterators and a limit."""
        return ILoop(self)

    def add_if_conditional(self):
        """Two branches, of which one is run."""
        return IIfConditional(self)

    def add_plugin_v2(self, inputs, plugin):
        """An operator of one's own, by a plugin of `get_plugin_registry().get_plugin_creator(…).create_plugin(…)`."""
        if not isinstance(plugin, IPluginV2):
            raise NotImplementedError(f"{plugin!r} is no plugin of Planish's: declare one with planish.plugin or planish.load_plugin")
        return IPluginV2Layer(self, inputs, plugin)

    def add_plugin_v3(self, inputs, shape_inputs, plugin):
        """The same in TensorRT 10's words; there are no inputs of shapes."""
        if shape_inputs:
            raise NotImplementedError("plugins here have no inputs of shapes: their sizes follow from those of the inputs")
        return self.add_plugin_v2(inputs, plugin)

    def __getattr__(self, key):
        if key.startswith("add_"):
            raise Missing(f"`{key}` is not among the layers here; docs/python.md lists them, and an OnnxParser takes more")
        raise AttributeError(key)
