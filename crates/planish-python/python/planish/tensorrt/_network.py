"""Networks: read by an `OnnxParser`, or defined layer by layer."""

import planish

from .._onnx_bytes import ELEMENT_TYPES, Graph
from . import _layers as layers
from . import _windows as windows
from ._enums import (
    ActivationType,
    GatherMode,
    InterpolationMode,
    LayerType,
    PaddingMode,
    ResizeCoordinateTransformation,
    ScaleMode,
)
from ._plugins import IPluginV2, IPluginV2Layer
from ._types import DataType, Dims, dims_of, nptype, of_numpy


class ITensor:
    """A tensor of a network: an input, or what a layer makes."""

    def __init__(self, network, name, dtype=None, shape=None, layer=None, index=0):
        self._network, self._layer, self._index = network, layer, index
        self._name = name
        self._dtype, self._shape = dtype, shape
        self.dynamic_range = None
        self.allowed_formats = 1
        self.location = 0

    @property
    def name(self):
        """Its name."""
        return self._name

    @name.setter
    def name(self, name):
        self._name = name

    @property
    def shape(self):
        """Its sizes, -1 where they are open."""
        return Dims(self._shape if self._layer is None else self._network._inferred(self)[1])

    @shape.setter
    def shape(self, shape):
        self._shape = Dims(shape)
        self._network._changed()

    @property
    def dtype(self):
        """Its element type."""
        return self._dtype if self._layer is None else self._network._inferred(self)[0]

    @dtype.setter
    def dtype(self, dtype):
        self._dtype = dtype
        self._network._changed()

    @property
    def is_network_input(self):
        """Whether it is an input."""
        return self in self._network._inputs

    @property
    def is_network_output(self):
        """Whether it is an output."""
        return self in self._network._outputs

    @property
    def is_shape_tensor(self):
        """Whether its elements are sizes: none is said to be."""
        return False

    is_execution_tensor = True

    def set_dynamic_range(self, min, max):  # noqa: A002, as TensorRT calls them
        """The range of its elements, for integers of 8 bits."""
        self.dynamic_range = (min, max)
        return True


class _Read(layers.ILayer):
    """A layer of a model that was read: it can be looked at, and told its precision."""

    def __init__(self, network, name, op):
        known = op.upper() if op.upper() in LayerType.__members__ else {"Conv": "CONVOLUTION", "MatMul": "MATRIX_MULTIPLY", "Gemm": "MATRIX_MULTIPLY"}.get(op, "PLUGIN")
        object.__setattr__(self, "type", LayerType[known])
        super().__init__(network, [], 0)
        self.name = name


class INetworkDefinition:
    """A network."""

    def __init__(self, flags, logger=None):
        self.flags = flags
        self.name = ""
        self._logger = logger
        self._model = None
        self._inputs, self._outputs, self._layers = [], [], []
        self._version, self._known = 0, {}

    has_implicit_batch_dimension = False
    has_explicit_precision = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def get_flag(self, flag):
        """Whether it was made with a flag."""
        return bool(self.flags >> int(flag) & 1)

    def _changed(self):
        self._version += 1
        self._known.clear()

    @property
    def model(self):
        """The model that it stands for; None where it is empty. A network that cannot be is an error."""
        if self._model is None and self._outputs:
            self._model_version, self._built = self._version, planish.Model(self._to_onnx())
        return self._model if self._model is not None else getattr(self, "_built", None)

    def read(self, model):
        """Takes a model that was read."""
        self._model, self.name = model, model.name
        self._inputs = [ITensor(self, info.name, of_numpy(info.dtype), dims_of(info)) for info in model.inputs]
        self._outputs = [ITensor(self, info.name, of_numpy(info.dtype), dims_of(info)) for info in model.outputs]
        for name, op in model.nodes:
            _Read(self, name, op)

    @property
    def num_inputs(self):
        """How many inputs there are."""
        return len(self._inputs)

    @property
    def num_outputs(self):
        """How many outputs there are."""
        return len(self._outputs)

    @property
    def num_layers(self):
        """How many layers there are."""
        return len(self._layers)

    def __len__(self):
        return len(self._layers)

    def __iter__(self):
        return iter(self._layers)

    def __getitem__(self, index):
        return self._layers[index]

    def get_input(self, index):
        """An input, by its number."""
        return self._inputs[index]

    def get_output(self, index):
        """An output, by its number."""
        return self._outputs[index]

    def get_layer(self, index):
        """A layer, by its number."""
        return self._layers[index]

    def mark_output(self, tensor):
        """Has the network give a tensor."""
        if self._model is not None:
            raise NotImplementedError("a model that was read keeps its outputs; cut it with `planish surgeon` or `planish extract`")
        if tensor not in self._outputs:
            self._outputs.append(tensor)
        self._changed()

    def unmark_output(self, tensor):
        """The other way."""
        if self._model is not None:
            raise NotImplementedError("a model that was read keeps its outputs; cut it with `planish surgeon` or `planish extract`")
        self._outputs.remove(tensor)
        self._changed()

    # What the network amounts to.

    def _shape_for_onnx(self, tensor):
        name = tensor.name
        return [size if size >= 0 else f"{name}.{axis}" for axis, size in enumerate(tensor.shape)]

    def _inferred(self, tensor):
        """The type and the sizes of what a layer makes, by a model of that layer alone."""
        layer = tensor._layer
        if layer not in self._known:
            graph = Graph("layer")
            names, shapes, open_sizes = [], [], {}
            for position, read in enumerate(layer._inputs):
                if read is None:
                    names.append(None)
                    continue
                small = isinstance(read._layer, layers.IConstantLayer)
                shape = [size if size >= 0 else f"d{position}_{axis}" for axis, size in enumerate(read.shape)]
                shapes.append(tuple(read.shape))
                # Constants are part of it: sizes may follow from their elements.
                if small:
                    names.append(read._layer.nodes(graph, [], [])[0])
                else:
                    graph.input(f"in{position}", nptype_name(read.dtype), shape)
                    names.append(f"in{position}")
                open_sizes.update({size: -1 for size in shape if isinstance(size, str)})
            made = layer.nodes(graph, names, shapes)
            for idx, name in enumerate(made):
                graph.output(name, None, None)
            infos = planish.Model(graph.to_bytes()).outputs
            self._known[layer] = [(of_numpy(info.dtype), dims_of(info)) for info in infos]
        dtype, shape = self._known[layer][tensor._index]
        return layer._output_types.get(tensor._index, dtype), shape

    def _to_onnx(self):
        graph = Graph(self.name or "network")
        names = {}
        for tensor in self._inputs:
            graph.input(tensor.name, nptype_name(tensor.dtype), self._shape_for_onnx(tensor))
            names[tensor] = tensor.name
        for layer in self._layers:
            read = [None if tensor is None else names[tensor] for tensor in layer._inputs]
            shapes = [tuple(tensor.shape) for tensor in layer._inputs if tensor is not None]
            made = layer.nodes(graph, read, shapes)
            for idx, (tensor, name) in enumerate(zip(layer._outputs, made)):
                if idx in layer._output_types:
                    name = graph.node("Cast", [name], label=f"{layer.name}.type", to=ELEMENT_TYPES[nptype_name(layer._output_types[idx])])
                names[tensor] = name
        for tensor in self._outputs:
            if names[tensor] != tensor.name:
                graph.node("Identity", [names[tensor]], (tensor.name,), label=f"{tensor.name}.output")
            graph.output(tensor.name, None, None)
        return graph.to_bytes()

    # Layers.

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
        return layers.ITopKLayer(self, [input], 2, op=op, k=k, axes=axes)

    def add_gather(self, input, indices, axis):  # noqa: A002
        """Elements at places along an axis."""
        return self.add_gather_v2(input, indices, GatherMode.DEFAULT, axis)

    def add_gather_v2(self, input, indices, mode, axis=0):  # noqa: A002
        """Elements at places."""
        return layers.IGatherLayer(self, [input, indices], axis=axis, mode=mode, num_elementwise_dims=0)

    def add_slice(self, input, start, shape, stride):  # noqa: A002
        """A part of a tensor."""
        return layers.ISliceLayer(self, [input], start=Dims(start), shape=Dims(shape), stride=Dims(stride))

    def add_resize(self, input):  # noqa: A002
        """Other sizes by interpolation."""
        how = ResizeCoordinateTransformation.ASYMMETRIC
        return layers.IResizeLayer(self, [input], shape=None, scales=None, resize_mode=InterpolationMode.NEAREST, coordinate_transformation=how)

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

    def _one(self, inputs, kind, op, **told):
        return layers.IOneNodeLayer(self, inputs, kind, op, **told)

    def add_identity(self, input):  # noqa: A002
        """The tensor itself."""
        return self._one([input], LayerType.IDENTITY, "Identity")

    def add_cast(self, input, to_type):  # noqa: A002
        """The elements in another type."""
        return self._one([input], LayerType.CAST, "Cast", to=ELEMENT_TYPES[nptype_name(to_type)])

    def add_shape(self, input):  # noqa: A002
        """The sizes of a tensor."""
        return self._one([input], LayerType.SHAPE, "Shape")

    def add_select(self, condition, then_input, else_input):
        """Elements of one tensor or the other."""
        return self._one([condition, then_input, else_input], LayerType.SELECT, "Where")

    def add_einsum(self, inputs, equation):
        """Sums of products, as the equation says."""
        return self._one(inputs, LayerType.EINSUM, "Einsum", equation=equation)

    def add_parametric_relu(self, input, slopes):  # noqa: A002
        """Relu with a slope for what is negative."""
        return self._one([input, slopes], LayerType.PARAMETRIC_RELU, "PRelu")

    def add_lrn(self, input, window, alpha, beta, k):  # noqa: A002
        """Local response normalization."""
        return self._one([input], LayerType.LRN, "LRN", size=window, alpha=float(alpha), beta=float(beta), bias=float(k))

    def add_non_zero(self, input):  # noqa: A002
        """The places of elements that are not zero."""
        return self._one([input], LayerType.NON_ZERO, "NonZero")

    def add_quantize(self, input, scale, output_type=DataType.INT8):  # noqa: A002
        """Integers of 8 bits, by a scale."""
        return self._one([input, scale], LayerType.QUANTIZE, "QuantizeLinear", output_dtype=ELEMENT_TYPES[nptype_name(output_type)])

    def add_dequantize(self, input, scale, output_type=DataType.FLOAT):  # noqa: A002
        """The other way."""
        return self._one([input, scale], LayerType.DEQUANTIZE, "DequantizeLinear")

    def add_grid_sample(self, input, grid):  # noqa: A002
        """Elements at places between elements."""
        return self._one([input, grid], LayerType.GRID_SAMPLE, "GridSample", align_corners=0)

    def add_squeeze(self, input, axes):  # noqa: A002
        """Without axes of one."""
        return self._one([input, axes], LayerType.SQUEEZE, "Squeeze")

    def add_unsqueeze(self, input, axes):  # noqa: A002
        """With axes of one."""
        return self._one([input, axes], LayerType.UNSQUEEZE, "Unsqueeze")

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
            raise NotImplementedError(f"`{key}` is not among the layers here; docs/python.md lists them, and an OnnxParser takes more")
        raise AttributeError(key)


def nptype_name(dtype):
    """The name of an element type, as ONNX's table here has it."""
    others = {DataType.BF16: "bfloat16", DataType.FP8: "float8_e4m3fn"}
    return others.get(dtype) or nptype(dtype).__name__.rstrip("_")


