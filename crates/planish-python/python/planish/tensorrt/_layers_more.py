"""More layers of networks that are defined in Python: those that are a node or two of ONNX, slices, sizes, fills."""

import numpy as np

from .._onnx_bytes import ELEMENT_TYPES
from ._emit import cast, nptype_name, scalar
from ._enums import (
    AttentionNormalizationOp,
    BoundingBoxFormat,
    FillOperation,
    InterpolationMode,
    LayerType,
    ResizeCoordinateTransformation,
    ResizeRoundMode,
    SampleMode,
    ScatterMode,
)
from ._layers import ILayer, _Simple, ints, weight
from ._types import DataType, nptype


class _OneNode(_Simple):
    """A layer that is one node: `_words` are its attributes by what the layer calls them, `_integers` inputs of 64 bits."""

    _words, _integers = {}, ()

    def __init__(self, network, inputs, operator, /, **told):
        object.__setattr__(self, "_op", operator)
        super().__init__(network, inputs, 1, **told)

    def nodes(self, graph, names, shapes):
        """The node."""
        names = [cast(graph, name, DataType.INT64, f"{self.name}.ints") if place in self._integers else name for place, name in enumerate(names)]
        told = {word: getattr(self, key) for key, word in self._words.items()}
        return self._node(graph, self._op, names, **{word: int(each) if isinstance(each, bool) else each for word, each in told.items()})


def _kind(name, kind, documentation, integers=(), **words):
    return type(name, (_OneNode,), {"type": LayerType[kind], "__doc__": documentation, "_words": words, "_integers": integers, "__module__": __name__})


IIdentityLayer = _kind("IIdentityLayer", "IDENTITY", "The tensor itself.")
IShapeLayer = _kind("IShapeLayer", "SHAPE", "The sizes of a tensor.")
ISelectLayer = _kind("ISelectLayer", "SELECT", "Elements of one tensor or the other.")
IEinsumLayer = _kind("IEinsumLayer", "EINSUM", "Sums of products.", equation="equation")
IParametricReLULayer = _kind("IParametricReLULayer", "PARAMETRIC_RELU", "Relu with a slope for what is negative.")
ILRNLayer = _kind("ILRNLayer", "LRN", "Local response normalization.", window_size="size", alpha="alpha", beta="beta", k="bias")
ISqueezeLayer = _kind("ISqueezeLayer", "SQUEEZE", "Without axes of one.", (1,))
IUnsqueezeLayer = _kind("IUnsqueezeLayer", "UNSQUEEZE", "With axes of one.", (1,))
ICumulativeLayer = _kind("ICumulativeLayer", "CUMULATIVE", "Sums of all elements up to each.", (1,), exclusive="exclusive", reverse="reverse")
IReverseSequenceLayer = _kind(
    "IReverseSequenceLayer", "REVERSE_SEQUENCE", "Sequences the other way round.", (1,), batch_axis="batch_axis", sequence_axis="time_axis"
)


class ICastLayer(_OneNode):
    """The elements in another type."""

    type = LayerType.CAST

    def nodes(self, graph, names, shapes):
        """Cast."""
        return [cast(graph, names[0], self.to_type, self.name)]


class IQuantizeLayer(_OneNode):
    """Integers of few bits, by a scale."""

    type = LayerType.QUANTIZE

    def nodes(self, graph, names, shapes):
        """QuantizeLinear."""
        return self._node(graph, self._op, names, axis=self.axis, output_dtype=ELEMENT_TYPES[nptype_name(self.to_type)])


class IDequantizeLayer(_OneNode):
    """Numbers of integers of few bits."""

    type = LayerType.DEQUANTIZE

    def nodes(self, graph, names, shapes):
        """DequantizeLinear."""
        return self._node(graph, self._op, names, axis=self.axis)


class INonZeroLayer(_OneNode):
    """The places of elements that are not zero."""

    type = LayerType.NON_ZERO

    def nodes(self, graph, names, shapes):
        """NonZero."""
        made = graph.node("NonZero", names, label=self.name)
        return [made if self.indices_type == DataType.INT64 else cast(graph, made, self.indices_type, f"{self.name}.places")]


#: What lies beyond the edge, in the words of ONNX's operators GridSample and Pad.
_BEYOND = {SampleMode.FILL: "zeros", SampleMode.CLAMP: "border", SampleMode.REFLECT: "reflection"}
_PADS = {SampleMode.FILL: "constant", SampleMode.CLAMP: "edge", SampleMode.REFLECT: "reflect", SampleMode.WRAP: "wrap"}


class IGridSampleLayer(_OneNode):
    """Elements at places between elements."""

    type = LayerType.GRID_SAMPLE

    def nodes(self, graph, names, shapes):
        """GridSample."""
        if self.sample_mode not in _BEYOND:
            raise NotImplementedError(f"`{self.name}`: grids with {self.sample_mode} are not among the layers here")
        how = {InterpolationMode.NEAREST: "nearest", InterpolationMode.LINEAR: "linear", InterpolationMode.CUBIC: "cubic"}[self.interpolation_mode]
        told = {"mode": how, "padding_mode": _BEYOND[self.sample_mode], "align_corners": int(self.align_corners)}
        return self._node(graph, self._op, names, **told)


class IScatterLayer(_Simple):
    """Elements with others at places."""

    type = LayerType.SCATTER

    def nodes(self, graph, names, shapes):
        """ScatterElements or ScatterND."""
        names = [names[0], cast(graph, names[1], DataType.INT64, f"{self.name}.places"), names[2]]
        if self.mode == ScatterMode.ND:
            return self._node(graph, "ScatterND", names)
        return self._node(graph, "ScatterElements", names, axis=int(self.axis))


class IOneHotLayer(_Simple):
    """One value at places, another elsewhere."""

    type = LayerType.ONE_HOT

    def nodes(self, graph, names, shapes):
        """OneHot, which has the depth before the values."""
        return self._node(graph, "OneHot", [names[0], names[2], names[1]], axis=int(self.axis))


class INMSLayer(ILayer):
    """The best boxes that do not overlap: which they are, and how many."""

    type = LayerType.NMS

    def nodes(self, graph, names, shapes):
        """NonMaxSuppression, which has scores by class."""
        if len(shapes[0]) != 3:
            raise NotImplementedError(f"`{self.name}`: boxes of each class apart are not among the layers here")
        scores = graph.node("Transpose", [names[1]], label=f"{self.name}.scores", perm=[0, 2, 1])
        most = scalar(graph, names[2], f"{self.name}.most", DataType.INT64)
        limits = [None if name is None else scalar(graph, name, f"{self.name}.limit") for name in names[3:]]
        center = int(self.bounding_box_format == BoundingBoxFormat.CENTER_SIZES)
        found = graph.node("NonMaxSuppression", [names[0], scores, most, *limits], label=self.name, center_point_box=center)
        rows = graph.node("Shape", [found], label=f"{self.name}.rows", start=0, end=1)
        return [cast(graph, found, self.indices_type, f"{self.name}.boxes"), scalar(graph, rows, f"{self.name}.count", DataType.INT32)]


class IAssertionLayer(ILayer):
    """Something that is to be true."""

    type = LayerType.ASSERTION

    def emit(self, scope):
        """Nothing is written."""


class IAttention(ILayer):
    """An attention over queries, keys and values of [batch, heads, places, channels]."""

    #: The kind that the layer at its end has.
    type = LayerType.ATTENTION_OUTPUT

    def __init__(self, network, inputs, **told):
        super().__init__(network, inputs, 1, mask=None, decomposable=False, **told)

    def reads(self):
        """Queries, keys, values, and the mask."""
        return super().reads() + ([self.mask] if self.mask is not None else [])

    def emit(self, scope):
        """Attention."""
        if self.norm_op != AttentionNormalizationOp.SOFTMAX:
            raise NotImplementedError(f"`{self.name}`: attentions without softmax are not among the layers here")
        names = [scope.name_of(tensor) for tensor in self.reads()]
        scope.keep(self, self.nodes(scope.graph, names, []))

    def nodes(self, graph, names, shapes):
        """Attention with a scale of one."""
        return [graph.node("Attention", names, label=self.name, is_causal=int(self.causal), scale=1.0)]


class ISliceLayer(_Simple):
    """A part of a tensor, with steps; beyond its edge what the mode says."""

    type = LayerType.SLICE

    def nodes(self, graph, names, shapes):
        """Slice, after a Pad where it goes beyond the edge."""
        rank = len(shapes[0])
        axes = list(range(len(self.start))) if self.axes is None else [int(axis) % rank for axis in self.axes]
        given = names[1:4] + [None] * (3 - len(names[1:4]))
        if any(name is not None for name in given):
            return self._by_tensors(graph, names[0], given, axes)
        start, sizes, step, source = list(self.start), list(self.shape), list(self.stride), names[0]
        if self.mode != SampleMode.STRICT_BOUNDS:
            source, start = self._padded(graph, names, shapes[0], axes, start, sizes, step)
        # One step below the first element is no place that ONNX could name otherwise.
        ends = [first + size * by if first + size * by >= 0 else -(2**31) for first, size, by in zip(start, sizes, step)]
        parts = [ints(graph, f"{self.name}.{word}", each) for word, each in (("start", start), ("end", ends), ("axes", axes), ("step", step))]
        return self._node(graph, "Slice", [source, *parts])

    def _by_tensors(self, graph, source, given, axes):
        """Where a run says from where, how many, or in what steps: steps go forward."""
        if self.mode != SampleMode.STRICT_BOUNDS:
            raise NotImplementedError(f"`{self.name}`: slices beyond the edge, of sizes that a run says, are not among the layers here")
        names = []
        for word, name, said in zip(("start", "sizes", "step"), given, (self.start, self.shape, self.stride)):
            names.append(ints(graph, f"{self.name}.{word}", list(said)) if name is None else cast(graph, name, DataType.INT64, f"{self.name}.{word}"))
        length = graph.node("Mul", [names[1], names[2]], label=f"{self.name}.length")
        end = graph.node("Add", [names[0], length], label=f"{self.name}.end")
        return self._node(graph, "Slice", [source, names[0], end, ints(graph, f"{self.name}.axes", axes), names[2]])

    def _padded(self, graph, names, shape, axes, start, sizes, step):
        """The tensor with what is beyond its edge, and where the slice begins in it."""
        before, after = [0] * len(shape), [0] * len(shape)
        for place, axis in enumerate(axes):
            last = start[place] + (sizes[place] - 1) * step[place]
            if shape[axis] < 0:
                raise NotImplementedError(f"`{self.name}`: slices beyond the edge of an open axis are not among the layers here")
            before[axis] = max(0, -min(start[place], last))
            after[axis] = max(0, max(start[place], last) - shape[axis] + 1)
        value = names[4] if len(names) > 4 and self.mode == SampleMode.FILL else None
        value = None if value is None else scalar(graph, value, f"{self.name}.value")
        source = graph.node("Pad", [names[0], ints(graph, f"{self.name}.pads", before + after), value], label=f"{self.name}.padded", mode=_PADS[self.mode])
        return source, [first + before[axis] for first, axis in zip(start, axes)]


class IResizeLayer(_Simple):
    """Other sizes by interpolation."""

    type = LayerType.RESIZE

    def nodes(self, graph, names, shapes):
        """Resize."""
        how = {InterpolationMode.NEAREST: "nearest", InterpolationMode.LINEAR: "linear", InterpolationMode.CUBIC: "cubic"}[self.resize_mode]
        places = {
            ResizeCoordinateTransformation.ALIGN_CORNERS: "align_corners",
            ResizeCoordinateTransformation.ASYMMETRIC: "asymmetric",
            ResizeCoordinateTransformation.HALF_PIXEL: "half_pixel",
        }[ResizeCoordinateTransformation.ALIGN_CORNERS if self.align_corners else self.coordinate_transformation]
        told = {"mode": how, "coordinate_transformation_mode": places}
        if how == "nearest":
            told["nearest_mode"] = {
                ResizeRoundMode.HALF_UP: "round_prefer_ceil",
                ResizeRoundMode.HALF_DOWN: "round_prefer_floor",
                ResizeRoundMode.FLOOR: "floor",
                ResizeRoundMode.CEIL: "ceil",
            }[self.nearest_rounding]
        elif how == "cubic":
            told.update(cubic_coeff_a=float(self.cubic_coeff), exclude_outside=int(self.exclude_outside))
        if len(names) > 1:
            sizes = graph.node("Cast", [names[1]], label=f"{self.name}.sizes", to=7)
            return self._node(graph, "Resize", [names[0], None, None, sizes], **told)
        if self.scales is not None and len(self.scales):
            scales = weight(graph, f"{self.name}.scales", np.asarray(self.scales, np.float32))
            return self._node(graph, "Resize", [names[0], None, scales], **told)
        if self.shape is None:
            raise ValueError(f"`{self.name}` is told neither its shape nor its scales")
        return self._node(graph, "Resize", [names[0], None, None, ints(graph, f"{self.name}.sizes", tuple(self.shape))], **told)


class IFillLayer(ILayer):
    """Numbers in a row, or drawn: sizes, the first number and the step may be tensors."""

    type = LayerType.FILL

    def nodes(self, graph, names, shapes):
        """Range for each axis, or numbers of a generator."""
        names = list(names) + [None] * (3 - len(names))
        dtype = np.dtype(nptype(self.to_type))
        sizes = ints(graph, f"{self.name}.sizes", list(self.shape)) if names[0] is None else cast(graph, names[0], DataType.INT64, f"{self.name}.sizes")
        if self.operation != FillOperation.LINSPACE:
            return self._drawn(graph, sizes)
        rank = shapes[0][0] if names[0] is not None else len(self.shape)
        alpha = 0 if self.alpha is None else self.alpha
        beta = [1] * rank if self.beta is None else list(np.broadcast_to(self.beta, rank))
        start = names[1] or weight(graph, f"{self.name}.alpha", np.asarray(alpha, dtype))
        step = names[2] or weight(graph, f"{self.name}.beta", np.asarray(beta, dtype))
        made = graph.node("Expand", [start, sizes], label=f"{self.name}.start")
        for axis in range(rank):
            at = ints(graph, f"{self.name}.axis", axis)
            count = graph.node("Gather", [sizes, at], label=f"{self.name}.count")
            row = graph.node("Range", [ints(graph, f"{self.name}.from", 0), count, ints(graph, f"{self.name}.one", 1)], label=f"{self.name}.row")
            by = graph.node("Gather", [graph.node("Reshape", [step, ints(graph, f"{self.name}.flat", [-1])], label=f"{self.name}.steps"), at], label=f"{self.name}.by")
            row = graph.node("Mul", [cast(graph, row, self.to_type, f"{self.name}.numbers"), by], label=f"{self.name}.stepped")
            shape = ints(graph, f"{self.name}.shape", [-1] + [1] * (rank - axis - 1))
            made = graph.node("Add", [made, graph.node("Reshape", [row, shape], label=f"{self.name}.along")], label=self.name)
        return [made]

    def _drawn(self, graph, sizes):
        """Numbers between alpha and beta, or around alpha with the deviation beta."""
        base = graph.node("ConstantOfShape", [sizes], label=f"{self.name}.zeros")
        to = ELEMENT_TYPES[nptype_name(self.to_type)]
        alpha, beta = (float(default if each is None else each) for each, default in ((self.alpha, 0), (self.beta, 1)))
        if self.operation == FillOperation.RANDOM_UNIFORM:
            return [graph.node("RandomUniformLike", [base], label=self.name, dtype=to, low=alpha, high=beta)]
        return [graph.node("RandomNormalLike", [base], label=self.name, dtype=to, mean=alpha, scale=beta)]
