"""Networks: read by an `OnnxParser`, or defined layer by layer."""

import os
import tempfile

import planish

from .._onnx_bytes import ELEMENT_TYPES, Graph
from .._onnx_read import File, renamed
from . import _layers as layers
from . import _layers_more as more
from . import _windows as windows
from ._emit import Scope, cast, inside_of, nptype_name
from ._enums import (
    ActivationType,
    BoundingBoxFormat,
    CausalMaskKind,
    FillOperation,
    GatherMode,
    InterpolationMode,
    NetworkDefinitionCreationFlag,
    PaddingMode,
    ResizeCoordinateTransformation,
    ResizeRoundMode,
    ResizeSelector,
    SampleMode,
    ScaleMode,
    ScatterMode,
)
from ._logger import say_once
from ._loops import IIfConditional, ILoop
from ._plugins import IPluginV2, IPluginV2Layer
from ._read_layer import ReadLayer
from ._tensor import ITensor
from ._types import DataType, Dims, dims_of, of_numpy


class INetworkDefinition:
    """A network."""

    def __init__(self, flags, logger=None, builder=None):
        self.flags = int(flags)
        self.name = ""
        self.builder, self.error_recorder = builder, None
        self._logger = logger
        #: The model that was read, its file, and whether it is still as it was read.
        self._model, self._file, self._is_as_read = None, None, True
        self._inputs, self._outputs, self._own, self._loops = [], [], [], []
        #: The model, the types of what was read, and those of each layer, as far as they were asked for.
        self._known, self._is_rewired = {}, False

    has_implicit_batch_dimension = False
    has_explicit_precision = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def get_flag(self, flag):
        """Whether it was made with a flag."""
        return bool(self.flags >> int(flag) & 1)

    @property
    def is_strongly_typed(self):
        """Whether types are as they are said to be."""
        return self.get_flag(NetworkDefinitionCreationFlag.STRONGLY_TYPED)

    def _changed(self, layer=None):
        """Something was set: of a layer, which those before it do not depend on, unless they were wired to it afterwards."""
        self._is_as_read = False
        if layer is None or self._is_rewired:
            self._known.clear()
            return
        for known in [known for known in self._known if known == "model" or isinstance(known, layers.ILayer) and known.number >= layer.number]:
            del self._known[known]

    @property
    def model(self):
        """The model that it stands for; None where it is empty. A network that cannot be is an error."""
        if self._model is not None and self._is_as_read:
            return self._model
        if not self._outputs:
            return None
        if "model" not in self._known:
            self._known["model"] = planish.Model(self._to_onnx())
        return self._known["model"]

    # Models that were read.

    def read(self, model):
        """Takes a model that was read."""
        self._model, self.name = model, model.name
        self._inputs = [self._tensor_of(info.name, of_numpy(info.dtype), dims_of(info)) for info in model.inputs]
        self._outputs = [self._tensor_of(info.name, of_numpy(info.dtype), dims_of(info)) for info in model.outputs]
        for tensor, info in zip(self._inputs, model.inputs):
            tensor.axis_names = {axis: size for axis, size in enumerate(info.shape or ()) if isinstance(size, str)}
        self._own, self._is_as_read = None, True

    def _tensor_of(self, name, dtype=None, shape=None):
        tensor = ITensor(self, name, dtype, shape)
        tensor.original, tensor.original_dtype = name, dtype
        return tensor

    @property
    def _layers(self):
        """The layers: those of a model that was read are made when somebody looks at them."""
        if self._own is None:
            self._own = []
            was_as_read = self._is_as_read
            tensors = {tensor.original: tensor for tensor in self._inputs + self._outputs}
            for node in self._opened().nodes:
                ReadLayer(self, node, tensors)
            self._is_as_read = was_as_read
        return self._own

    @property
    def touched_layers(self):
        """The layers that somebody may have told something."""
        return self._own or []

    def _opened(self):
        """The file of a model that was read."""
        if self._file is None:
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "model.onnx")
                self._model.save_onnx(path)
                with open(path, "rb") as file:
                    self._file = File(file.read())
        return self._file

    def _read_types(self):
        """The types and sizes of all that a model computes, by name, for the inputs as they are now."""
        if "read" not in self._known:
            graph, scope = self._begun()
            for layer in self._layers:
                if isinstance(layer, ReadLayer):
                    graph.raw_node(renamed(layer._node.content, scope.renamed) if scope.renamed else layer._node.content)
            names = [name for node in self._opened().nodes for name in node.outputs if name]
            for name in names:
                graph.output(scope.renamed.get(name, name), None, None)
            infos = planish.Model(graph.to_bytes()).outputs
            self._known["read"] = {name: _type_of(info) for name, info in zip(names, infos)}
        return self._known["read"]

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
        if not tensor.is_network_output:
            self._outputs.append(tensor)
        self._changed()

    def unmark_output(self, tensor):
        """The other way."""
        self._layers  # noqa: B018, what makes the tensor is known from then on
        self._outputs = [each for each in self._outputs if each is not tensor]
        self._changed()

    def mark_output_for_shapes(self, tensor):
        """The same: sizes are tensors like any other."""
        self.mark_output(tensor)
        return True

    def unmark_output_for_shapes(self, tensor):
        """The other way."""
        self.unmark_output(tensor)
        return True

    def remove_tensor(self, tensor):
        """Forgets a tensor: it is no output any more."""
        self.unmark_output(tensor)
        self._inputs = [each for each in self._inputs if each is not tensor]

    def set_weights_name(self, weights, name):
        """Taken, and left alone: weights are exchanged by whole models."""
        return True

    def mark_weights_refittable(self, name):
        """Taken, and left alone: weights are exchanged by whole models."""
        return True

    unmark_weights_refittable = are_weights_marked_refittable = mark_weights_refittable

    def mark_debug(self, tensor):
        """Refused: mark the tensor as an output, or see `planish run --dump-tensors`."""
        say_once(self._logger, "tensors are not listened to; mark them as outputs, or see `planish run --dump-tensors`")
        return False

    unmark_debug = is_debug_tensor = mark_debug

    # What the network amounts to.

    def _computed(self, tensor):
        """The type and the sizes of what a layer makes."""
        layer = tensor._layer
        if isinstance(layer, ReadLayer):
            return self._read_types()[tensor.original]
        for each in self._unknown_before(layer):
            self._known[each] = each.infer() if hasattr(each, "infer") else self._inferred_alone(each)
        return self._known[layer][tensor._index]

    def _unknown_before(self, layer):
        """The layers whose types have to be found for those of this one, it being the last."""
        order, seen, todo = [], set(), [(layer, False)]
        while todo:
            each, is_left = todo.pop()
            if is_left:
                order.append(each)
            elif each is not None and each not in seen and each not in self._known and not isinstance(each, ReadLayer):
                seen.add(each)
                todo.append((each, True))
                # What a recurrence becomes has the type that it begins with.
                reads = each._inputs[:1] if each.is_boundary else each._inputs
                todo.extend((tensor._layer, False) for tensor in reads if tensor is not None)
        return order

    def _actual(self, tensor):
        """The type in which a tensor is computed with, whatever hints there are."""
        layer = tensor._layer
        if layer is None:
            return tensor.dtype if tensor.original_dtype is None else tensor.original_dtype
        wanted = layer._output_types.get(tensor._index)
        return wanted if wanted is not None and layer.casts(tensor._index, wanted) else self._computed(tensor)[0]

    def _inferred(self, tensor):
        """The same, in the type that was asked for."""
        dtype, shape = self._computed(tensor)
        return tensor._layer._output_types.get(tensor._index, dtype), shape

    def _inferred_alone(self, layer):
        """The types and the sizes of what a layer makes, by a model of that layer alone."""
        graph, names, shapes = Graph("layer"), [], []
        for position, read in enumerate(layer._inputs):
            if read is None:
                names.append(None)
                continue
            shape = [size if size >= 0 else f"d{position}_{axis}" for axis, size in enumerate(read.shape)]
            shapes.append(tuple(read.shape))
            # Constants are part of it: sizes may follow from their elements.
            if isinstance(read._layer, layers.IConstantLayer):
                names.append(read._layer.nodes(graph, [], [])[0])
            else:
                graph.input(f"in{position}", nptype_name(self._actual(read)), shape)
                names.append(f"in{position}")
        for name in layer.nodes(graph, names, shapes):
            graph.output(name, None, None)
        return [_type_of(info) for info in planish.Model(graph.to_bytes()).outputs]

    def _shape_for_onnx(self, tensor):
        sizes = enumerate(tensor.shape)
        return [size if size >= 0 else tensor.axis_names.get(axis) or f"{tensor.name}.{axis}" for axis, size in sizes]

    def _begun(self):
        """A graph with the inputs as they are now, and the scope that knows their names."""
        graph = Graph(self.name or "network")
        scope = Scope(graph)
        if self._model is not None:
            graph.go_on(self._opened())
        for tensor in self._inputs:
            graph.input(tensor.name, nptype_name(tensor.dtype), self._shape_for_onnx(tensor))
            name = tensor.name
            if tensor.original is not None and tensor.dtype != tensor.original_dtype:
                name = cast(graph, name, tensor.original_dtype, f"{tensor.name}.type")
            scope.names[tensor] = name
            if tensor.original not in (None, name):
                scope.renamed[tensor.original] = name
        return graph, scope

    def _to_onnx(self):
        graph, scope = self._begun()
        given = {tensor.name for tensor in self._outputs if not tensor.is_network_input}
        graph.reserve(given)
        for tensor in self._outputs:
            # An output's name is free for what leaves the network, if that is not what the file has under it.
            if tensor.original in given and (self._leaves_as(tensor) or tensor.name != tensor.original):
                scope.renamed.setdefault(tensor.original, graph.name_like(f"{tensor.original}.made"))
        inside = set()
        for loop in self._loops:
            inside |= inside_of(self._layers, loop)
        for layer in self._layers:
            if layer not in inside and not layer.is_boundary and any(tensor not in scope.names for tensor in layer._outputs):
                layer.emit(scope)
        for tensor in self._outputs:
            name, wanted = scope.name_of(tensor), self._leaves_as(tensor)
            if name != tensor.name:
                graph.release(tensor.name)
            if wanted is not None:
                graph.node("Cast", [name], (tensor.name,), label=f"{tensor.name}.output", to=ELEMENT_TYPES[nptype_name(wanted)])
            elif name != tensor.name:
                graph.node("Identity", [name], (tensor.name,), label=f"{tensor.name}.output")
            graph.output(tensor.name, None, None)
        return graph.to_bytes()

    def _leaves_as(self, tensor):
        """The type that an output is converted to where it leaves; None where it is as it is computed."""
        if tensor._layer is None:
            return None
        wanted = tensor.wanted if tensor.wanted is not None else tensor._layer._output_types.get(tensor._index)
        return None if wanted in (None, self._computed(tensor)[0]) else wanted

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


class Missing(NotImplementedError, AttributeError):
    """What TensorRT has and is not here: for `hasattr`, too."""


def _type_of(info):
    """The type and the sizes of a tensor; those of what is no tensor are of none."""
    try:
        return of_numpy(info.dtype), dims_of(info)
    except TypeError:
        return DataType.FLOAT, Dims()
