"""Layers of networks that are defined in Python: what each is called, what it may be told, and the ONNX nodes of it.

A layer is described until the network is built: sizes follow from what it was told last.
"""

import numpy as np

from ._enums import (
    ActivationType,
    ElementWiseOperation,
    GatherMode,
    LayerType,
    MatrixOperation,
    ReduceOperation,
    ScaleMode,
    TopKOperation,
)
from ._emit import cast, is_hint
from ._memory import array_at
from ._tensor import ITensor
from ._types import DataType, Dims, nptype, of_numpy


class Weights:
    """Elements of a layer: an array, none of a type, or those at an address."""

    def __init__(self, of=DataType.FLOAT, ptr=0, count=0):
        if not isinstance(of, DataType):
            self._array = np.ascontiguousarray(of)
        elif ptr and count:
            self._array = array_at(int(ptr), np.dtype(nptype(of)), (int(count),))
        else:
            self._array = np.zeros(0, nptype(of))

    @property
    def dtype(self):
        """Their type."""
        return of_numpy(self._array.dtype.name)

    @property
    def size(self):
        """How many there are."""
        return self._array.size

    @property
    def nbytes(self):
        """Their bytes."""
        return self._array.nbytes

    def numpy(self):
        """The elements, one after another."""
        return self._array.reshape(-1)

    def __len__(self):
        return self._array.size


def array_of(weights):
    """Elements as an array; None where there are none."""
    if weights is None:
        return None
    array = weights._array if isinstance(weights, Weights) else np.ascontiguousarray(weights)
    return array if array.size else None


class ILayer:
    """A layer: reads tensors, makes tensors."""

    type = LayerType.PLUGIN
    #: Whether it stands at the edge of the body of a loop or a conditional.
    is_boundary = False
    #: What a layer is told that TensorRT calls its type, too.
    _kind = None
    #: What can be set of every layer, beside what a kind of layers is told.
    _OWN = ("name", "metadata", "precision", "num_ranks")

    def __init__(self, network, inputs, n_outputs=1, **told):
        object.__setattr__(self, "_told", {})
        self._network = network
        self._inputs = list(inputs)
        object.__setattr__(self, "_told", told)
        self.number = len(network._layers)
        self.metadata, self.num_ranks = "", 1
        self._precision = None
        self._output_types = {}
        self.name = f"(Unnamed Layer* {len(network._layers)}) [{self.type.name.title()}]"
        self._outputs = [ITensor(network, f"{self.name}_output" + (f"_{i}" if i else ""), layer=self, index=i) for i in range(n_outputs)]
        network._layers.append(self)
        network._changed(self)

    def __getattr__(self, key):
        told = self.__dict__.get("_told", {})
        if key in told:
            # Sizes are given away as a copy: to write to it is not to tell the layer.
            return type(told[key])(told[key]) if isinstance(told[key], Dims) else told[key]
        raise AttributeError(f"a layer of kind {self.type.name} has no `{key}`")

    def __setattr__(self, key, value):
        # Layers of one kind of function have it under this name.
        key = self._kind if key == "type" and self._kind else key
        if key in self._told:
            self._told[key] = value
            self._network._changed(self)
        elif key in self._OWN or key in self.__dict__ or "_outputs" not in self.__dict__ or key.startswith("__"):
            object.__setattr__(self, key, value)
        else:
            raise AttributeError(f"a layer of kind {self.type.name} has no `{key}`")

    @property
    def num_inputs(self):
        """How many tensors it reads."""
        return len(self._inputs)

    @property
    def num_outputs(self):
        """How many tensors it makes."""
        return len(self._outputs)

    def get_input(self, index):
        """A tensor that it reads; None where there is none."""
        return self._inputs[index] if index < len(self._inputs) else None

    def set_input(self, index, tensor):
        """Has it read another tensor."""
        while len(self._inputs) <= index:
            self._inputs.append(None)
        self._inputs[index] = tensor
        if tensor is not None and tensor._layer is not None and tensor._layer.number > self.number:
            self._network._is_rewired = True
        self._network._changed(self)

    def get_output(self, index):
        """A tensor that it makes; None where there is none."""
        return self._outputs[index] if index < len(self._outputs) else None

    @property
    def precision(self):
        """What it is to be computed in."""
        return self._precision if self._precision is not None else DataType.FLOAT

    @precision.setter
    def precision(self, dtype):
        object.__setattr__(self, "_precision", dtype)

    @property
    def precision_is_set(self):
        """Whether that was said."""
        return self._precision is not None

    def reset_precision(self):
        """Leaves the precision to the build."""
        object.__setattr__(self, "_precision", None)

    def set_output_type(self, index, dtype):
        """The element type of an output."""
        self._output_types[index] = dtype
        self._network._changed(self)

    def get_output_type(self, index):
        """The element type of an output."""
        return self._output_types.get(index, self._outputs[index].dtype)

    def output_type_is_set(self, index):
        """Whether that was said."""
        return index in self._output_types

    def reset_output_type(self, index):
        """Leaves the type of an output to what it is computed of."""
        self._output_types.pop(index, None)
        self._network._changed(self)

    @property
    def pattern(self):
        """What builds know it by."""
        return self.name

    def reads(self):
        """All tensors that it depends on."""
        return [tensor for tensor in self._inputs if tensor is not None]

    def casts(self, index, wanted):
        """Whether the type that an output was given is one to convert to, and no mere hint."""
        network = self._network
        return not is_hint(wanted, network._computed(self._outputs[index])[0], network.is_strongly_typed)

    def emit(self, scope):
        """Writes it to the graph of a scope."""
        names = [None if tensor is None else scope.name_of(tensor) for tensor in self._inputs]
        shapes = [tuple(tensor.shape) for tensor in self.reads()]
        scope.keep(self, self.nodes(scope.graph, names, shapes))

    def nodes(self, graph, names, shapes):
        """Writes it to a graph of ONNX: gives the names of its outputs. `names` are those of its inputs."""
        raise NotImplementedError(f"layers of kind {self.type.name} cannot be built")


def weight(graph, wanted, array):
    """Has a graph hold an array; gives its name there."""
    return graph.weight(wanted, array.dtype.name, array.shape, array.tobytes())


def ints(graph, wanted, numbers):
    """The same of integers."""
    return weight(graph, wanted, np.asarray(numbers, np.int64))


_ACTIVATIONS = {
    ActivationType.RELU: ("Relu", ()),
    ActivationType.SIGMOID: ("Sigmoid", ()),
    ActivationType.TANH: ("Tanh", ()),
    ActivationType.LEAKY_RELU: ("LeakyRelu", ("alpha",)),
    ActivationType.ELU: ("Elu", ("alpha",)),
    ActivationType.SELU: ("Selu", ("alpha", "gamma")),
    ActivationType.SOFTSIGN: ("Softsign", ()),
    ActivationType.SOFTPLUS: ("Softplus", ()),
    ActivationType.HARD_SIGMOID: ("HardSigmoid", ("alpha", "beta")),
    ActivationType.THRESHOLDED_RELU: ("ThresholdedRelu", ("alpha",)),
    ActivationType.GELU_ERF: ("Gelu", ()),
    ActivationType.GELU_TANH: ("Gelu", ()),
}


class IActivationLayer(ILayer):
    """A function of each element."""

    type = LayerType.ACTIVATION
    _kind = "activation"

    def nodes(self, graph, names, shapes):
        """The operator of that name; Clip for limits."""
        kind, dtype = self.activation, nptype(self._network._actual(self._inputs[0]))
        if kind == ActivationType.CLIP:
            limits = [weight(graph, f"{self.name}.{each}", np.asarray(value, dtype)) for each, value in (("alpha", self.alpha), ("beta", self.beta))]
            return [graph.node("Clip", names + limits, label=self.name)]
        if kind == ActivationType.SCALED_TANH:
            factors = [weight(graph, f"{self.name}.{each}", np.asarray(value, dtype)) for each, value in (("alpha", self.alpha), ("beta", self.beta))]
            inner = graph.node("Mul", [*names, factors[1]], label=f"{self.name}.scaled")
            return [graph.node("Mul", [graph.node("Tanh", [inner], label=f"{self.name}.tanh"), factors[0]], label=self.name)]
        op, told = _ACTIVATIONS[kind]
        # TensorRT calls the second number of SELU beta; ONNX has its own defaults where nothing was said.
        values = {"alpha": self.alpha, "beta": self.beta, "gamma": self.beta}
        told = {each: float(values[each]) for each in told if values[each]}
        if kind == ActivationType.GELU_TANH:
            told["approximate"] = "tanh"
        return [graph.node(op, names, label=self.name, **told)]


class IElementWiseLayer(ILayer):
    """A function of two elements."""

    type = LayerType.ELEMENTWISE

    def nodes(self, graph, names, shapes):
        """The operator of that name."""
        ops = {
            ElementWiseOperation.SUM: "Add",
            ElementWiseOperation.PROD: "Mul",
            ElementWiseOperation.MAX: "Max",
            ElementWiseOperation.MIN: "Min",
            ElementWiseOperation.SUB: "Sub",
            ElementWiseOperation.DIV: "Div",
            ElementWiseOperation.POW: "Pow",
            ElementWiseOperation.AND: "And",
            ElementWiseOperation.OR: "Or",
            ElementWiseOperation.XOR: "Xor",
            ElementWiseOperation.EQUAL: "Equal",
            ElementWiseOperation.GREATER: "Greater",
            ElementWiseOperation.LESS: "Less",
        }
        if self.op == ElementWiseOperation.FLOOR_DIV:
            quotient = graph.node("Div", names, label=f"{self.name}.quotient")
            if self._network._actual(self._inputs[0]) in (DataType.FLOAT, DataType.HALF):
                return [graph.node("Floor", [quotient], label=self.name)]
            # Integers are divided towards zero; one less where there is a rest and the signs differ.
            rest = graph.node("Mod", names, label=f"{self.name}.rest")
            back = graph.node("Sub", [names[0], rest], label=f"{self.name}.back")
            return [graph.node("Div", [back, names[1]], label=self.name)]
        return [graph.node(ops[self.op], names, label=self.name)]


class IUnaryLayer(ILayer):
    """A function of each element."""

    type = LayerType.UNARY

    def nodes(self, graph, names, shapes):
        """The operator of that name."""
        words = {"RECIP": "Reciprocal", "ISINF": "IsInf", "ISNAN": "IsNaN"}
        return [graph.node(words.get(self.op.name, self.op.name.title()), names, label=self.name)]


class IMatrixMultiplyLayer(ILayer):
    """A product of matrices, or of vectors with them."""

    type = LayerType.MATRIX_MULTIPLY

    def nodes(self, graph, names, shapes):
        """MatMul, with transposed factors."""
        factors, squeezed = [], []
        for position, (name, shape, how) in enumerate(zip(names, shapes, (self.op0, self.op1))):
            if how == MatrixOperation.TRANSPOSE:
                order = list(range(len(shape)))
                order[-2:] = order[-1], order[-2]
                name = graph.node("Transpose", [name], label=f"{self.name}.transposed", perm=order)
            elif how == MatrixOperation.VECTOR:
                # A row, or a column, for the time of the product.
                axis = -2 if position == 0 else -1
                name = graph.node("Unsqueeze", [name, ints(graph, f"{self.name}.axis", [axis])], label=f"{self.name}.matrix")
                squeezed.append(axis)
            factors.append(name)
        made = graph.node("MatMul", factors, label=self.name)
        if squeezed:
            made = graph.node("Squeeze", [made, ints(graph, f"{self.name}.axes", squeezed)], label=self.name)
        return [made]


class IFullyConnectedLayer(ILayer):
    """A matrix of weights over the last three axes, as TensorRT 8 has it."""

    type = LayerType.FULLY_CONNECTED

    def nodes(self, graph, names, shapes):
        """Gemm over flattened elements, with two axes of one behind."""
        kernel = array_of(self.kernel)
        n_in = kernel.size // self.num_output_channels
        flat = graph.node("Reshape", [names[0], ints(graph, f"{self.name}.flat", [-1, n_in])], label=f"{self.name}.flat")
        factors = [flat, weight(graph, f"{self.name}.kernel", kernel.reshape(self.num_output_channels, n_in))]
        bias = array_of(self.bias)
        if bias is not None:
            factors.append(weight(graph, f"{self.name}.bias", bias.reshape(-1)))
        made = graph.node("Gemm", factors, label=f"{self.name}.product", transB=1)
        sizes = ints(graph, f"{self.name}.sizes", [-1, self.num_output_channels, 1, 1])
        return [graph.node("Reshape", [made, sizes], label=self.name)]


class IConstantLayer(ILayer):
    """Elements that do not change."""

    type = LayerType.CONSTANT

    def nodes(self, graph, names, shapes):
        """A weight."""
        made = weight(graph, f"{self.name}.weights", array_of(self.weights).reshape(tuple(self.shape)))
        return [graph.node("Identity", [made], label=self.name)]


class IShuffleLayer(ILayer):
    """Axes in another order, elements with other sizes, and axes in another order again."""

    type = LayerType.SHUFFLE

    def nodes(self, graph, names, shapes):
        """Transpose, Reshape, Transpose."""
        made, rank = names[0], len(shapes[0])
        for step in ("first", "sizes", "second"):
            if step == "sizes":
                if len(names) > 1:
                    sizes = cast(graph, names[1], DataType.INT64, f"{self.name}.sizes")
                    made = graph.node("Reshape", [made, sizes], label=self.name, allowzero=int(not self.zero_is_placeholder))
                    rank = None
                elif self.reshape_dims is not None:
                    sizes = ints(graph, f"{self.name}.sizes", tuple(self.reshape_dims))
                    made = graph.node("Reshape", [made, sizes], label=self.name, allowzero=int(not self.zero_is_placeholder))
                    rank = len(self.reshape_dims)
                continue
            order = self.first_transpose if step == "first" else self.second_transpose
            if order is not None:
                made = graph.node("Transpose", [made], label=self.name, perm=[int(axis) for axis in list(order)[:rank]])
        return [made if made != names[0] else graph.node("Identity", names[:1], label=self.name)]


class _Simple(ILayer):
    def _node(self, graph, op, names, **told):
        return [graph.node(op, names, label=self.name, **told)]


def axes_of(mask):
    """The axes of a mask of bits."""
    return [axis for axis in range(32) if int(mask) >> axis & 1]


class ISoftMaxLayer(_Simple):
    """Softmax along an axis."""

    type = LayerType.SOFTMAX

    def nodes(self, graph, names, shapes):
        """Softmax."""
        axes = axes_of(self.axes) or [max(len(shapes[0]) - 3, 0)]
        return self._node(graph, "Softmax", names, axis=axes[0])


class IConcatenationLayer(_Simple):
    """Tensors one behind the other."""

    type = LayerType.CONCATENATION

    def nodes(self, graph, names, shapes):
        """Concat."""
        return self._node(graph, "Concat", names, axis=int(self.axis))


class IReduceLayer(_Simple):
    """A sum, a mean, or the like, along axes."""

    type = LayerType.REDUCE

    def nodes(self, graph, names, shapes):
        """ReduceSum and the like."""
        op = {"SUM": "ReduceSum", "PROD": "ReduceProd", "MAX": "ReduceMax", "MIN": "ReduceMin", "AVG": "ReduceMean"}[ReduceOperation(self.op).name]
        axes = ints(graph, f"{self.name}.axes", axes_of(self.axes))
        return self._node(graph, op, [names[0], axes], keepdims=int(self.keep_dims))


class ITopKLayer(ILayer):
    """The largest, or the smallest, along an axis."""

    type = LayerType.TOPK

    def nodes(self, graph, names, shapes):
        """TopK; its places are of 32 bits here."""
        count = cast(graph, graph.node("Reshape", [names[1], ints(graph, f"{self.name}.one", [1])], label=f"{self.name}.k"), DataType.INT64, f"{self.name}.k") if len(names) > 1 else ints(graph, f"{self.name}.k", [self.k])
        largest = int(self.op == TopKOperation.MAX)
        values, places = graph.node("TopK", [names[0], count], ("", ""), label=self.name, axis=axes_of(self.axes)[0], largest=largest)
        return [values, cast(graph, places, self.indices_type, f"{self.name}.places")]


class IGatherLayer(_Simple):
    """Elements at places."""

    type = LayerType.GATHER

    def nodes(self, graph, names, shapes):
        """Gather, GatherElements or GatherND."""
        if self.mode == GatherMode.ND:
            return self._node(graph, "GatherND", names, batch_dims=int(self.num_elementwise_dims))
        op = "GatherElements" if self.mode == GatherMode.ELEMENT else "Gather"
        return self._node(graph, op, names, axis=int(self.axis))


class IScaleLayer(ILayer):
    """(x * scale + shift) ** power, for all elements, by channel, or for each."""

    type = LayerType.SCALE

    def nodes(self, graph, names, shapes):
        """Mul, Add, Pow."""
        made, rank = names[0], len(shapes[0])
        for op, word in (("Mul", "scale"), ("Add", "shift"), ("Pow", "power")):
            array = array_of(getattr(self, word))
            if array is None:
                continue
            if self.mode == ScaleMode.CHANNEL:
                axis = self.channel_axis % rank
                array = array.reshape([-1] + [1] * (rank - axis - 1))
            elif self.mode == ScaleMode.ELEMENTWISE:
                array = array.reshape([size for size in shapes[0][1:]])
            made = graph.node(op, [made, weight(graph, f"{self.name}.{word}", array)], label=self.name)
        return [made if made != names[0] else graph.node("Identity", names, label=self.name)]


class INormalizationLayer(ILayer):
    """Elements with the mean and the variance along axes removed, times a scale, plus a bias."""

    type = LayerType.NORMALIZATION

    def nodes(self, graph, names, shapes):
        """LayerNormalization where the axes are the last ones, GroupNormalization or InstanceNormalization else."""
        axes, rank = axes_of(self.axes), len(shapes[0])
        if self.num_groups > 1:
            flat = [graph.node("Reshape", [name, ints(graph, f"{self.name}.flat", [-1])], label=f"{self.name}.flat") for name in names[1:]]
            return [graph.node("GroupNormalization", [names[0], *flat], label=self.name, epsilon=float(self.epsilon), num_groups=int(self.num_groups))]
        if axes == list(range(axes[0], rank)) and axes[0] != 2:
            return [graph.node("LayerNormalization", names, label=self.name, axis=axes[0], epsilon=float(self.epsilon))]
        flat = [graph.node("Reshape", [name, ints(graph, f"{self.name}.flat", [-1])], label=f"{self.name}.flat") for name in names[1:]]
        return [graph.node("InstanceNormalization", [names[0], *flat], label=self.name, epsilon=float(self.epsilon))]


class IPaddingLayer(_Simple):
    """Zeros around the last two axes; fewer where negative."""

    type = LayerType.PADDING

    def nodes(self, graph, names, shapes):
        """Pad."""
        before, after = tuple(self.pre_padding_nd), tuple(self.post_padding_nd)
        rank = len(shapes[0])
        zeros = [0] * (rank - len(before))
        return self._node(graph, "Pad", [names[0], ints(graph, f"{self.name}.pads", zeros + list(before) + zeros + list(after))])
