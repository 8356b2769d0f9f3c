"""How each ATen operator is computed: one rule a family, by the names of overloads."""

import operator

import torch

from ._convert import Unsupported, made_by

#: Rules by the name of an overload.
OPERATORS = {}


def rule(*names):
    """Registers the rule of these overloads."""

    def register(convert):
        for name in names:
            OPERATORS[name] = convert
        return convert

    return register


def argument(node, position, name, default=None):
    """An argument of a node, by position or by name."""
    if position < len(node.args):
        return node.args[position]
    return node.kwargs.get(name, default)


def only_first(node):
    """Refuses nodes of which more than the first result is read."""
    for user in node.users:
        if user.target is operator.getitem and user.args[1] != 0 and user.users:
            raise Unsupported(f"its result {user.args[1]} is read")


def tensor_of(node):
    """The type and sizes of an argument that must be a tensor."""
    made = made_by(node) if isinstance(node, torch.fx.Node) else None
    if not isinstance(made, torch.Tensor):
        raise Unsupported("an argument is no tensor")
    return made


def axis_of(axis, rank):
    """An axis counted from the front."""
    return axis + rank if axis < 0 else axis


def axes_of(axes, rank):
    """Axes counted from the front; all of them if none is named."""
    if axes is None or axes == []:
        return list(range(rank))
    return [axis_of(axis, rank) for axis in ([axes] if isinstance(axes, int) else axes)]


@rule("<built-in function getitem>")
def _part(cx, node):
    parts = cx.value(node.args[0])
    if not isinstance(parts, list) or node.args[1] >= len(parts):
        raise Unsupported("a result of the operator before it is not made here")
    return parts[node.args[1]]


# One element of each input makes one of the output.

_UNARY = {
    "abs": "Abs",
    "acos": "Acos",
    "asin": "Asin",
    "atan": "Atan",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "isinf": "IsInf",
    "isnan": "IsNaN",
    "log": "Log",
    "logical_not": "Not",
    "neg": "Neg",
    "reciprocal": "Reciprocal",
    "relu": "Relu",
    "round": "Round",
    "sigmoid": "Sigmoid",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "tan": "Tan",
    "tanh": "Tanh",
}
#: Those that say something of a number, whatever its type.
_PREDICATES = {"IsInf", "IsNaN"}


@rule(*(f"aten.{name}.default" for name in _UNARY))
def _unary(cx, node):
    op = _UNARY[str(node.target).split(".")[1]]
    dtype = tensor_of(node.args[0]).dtype if op in _PREDICATES else made_by(node).dtype
    return cx.op(op, [cx.read(node.args[0], dtype)])


@rule("aten.rsqrt.default")
def _rsqrt(cx, node):
    return cx.op("Reciprocal", [cx.op("Sqrt", [cx.read(node.args[0], made_by(node).dtype)])])


@rule("aten.log2.default", "aten.log10.default", "aten.log1p.default", "aten.expm1.default")
def _shifted(cx, node):
    dtype, name = made_by(node).dtype, str(node.target).split(".")[1]
    x = cx.read(node.args[0], dtype)
    if name == "log1p":
        return cx.op("Log", [cx.op("Add", [x, cx.number(1, dtype)])])
    if name == "expm1":
        return cx.op("Sub", [cx.op("Exp", [x]), cx.number(1, dtype)])
    factor = {"log2": 1.4426950408889634, "log10": 0.4342944819032518}[name]
    return cx.op("Mul", [cx.op("Log", [x]), cx.number(factor, dtype)])


@rule("aten.bitwise_not.default")
def _not(cx, node):
    dtype = made_by(node).dtype
    return cx.op("Not" if dtype == torch.bool else "BitwiseNot", [cx.read(node.args[0], dtype)])


@rule("aten.gelu.default")
def _gelu(cx, node):
    form = argument(node, 1, "approximate", "none")
    return cx.op("Gelu", [cx.value(node.args[0])], approximate=form)


@rule("aten.leaky_relu.default")
def _leaky_relu(cx, node):
    return cx.op("LeakyRelu", [cx.value(node.args[0])], alpha=float(argument(node, 1, "negative_slope", 0.01)))


@rule("aten.elu.default")
def _elu(cx, node):
    alpha, scale, input_scale = (float(argument(node, i, "", 1.0)) for i in (1, 2, 3))
    if (scale, input_scale) != (1.0, 1.0):
        raise Unsupported("it scales what goes in or comes out")
    return cx.op("Elu", [cx.value(node.args[0])], alpha=alpha)


@rule("aten.silu.default", "aten.mish.default", "aten.hardswish.default")
def _gated(cx, node):
    x, name = cx.value(node.args[0]), str(node.target).split(".")[1]
    if name == "silu":
        return cx.op("Mul", [x, cx.op("Sigmoid", [x])])
    return cx.op({"mish": "Mish", "hardswish": "HardSwish"}[name], [x])


@rule("aten.hardsigmoid.default")
def _hard_sigmoid(cx, node):
    return cx.op("HardSigmoid", [cx.value(node.args[0])], alpha=1 / 6, beta=0.5)


@rule("aten.softplus.default")
def _softplus(cx, node):
    if float(argument(node, 1, "beta", 1)) != 1.0:
        raise Unsupported("its beta is not 1")
    return cx.op("Softplus", [cx.value(node.args[0])])


@rule("aten.clamp.default", "aten.hardtanh.default", "aten.clamp_min.default", "aten.clamp_max.default")
def _clamp(cx, node):
    name, dtype = str(node.target).split(".")[1], made_by(node).dtype
    low, high = (argument(node, 1, "min"), argument(node, 2, "max"))
    if name == "hardtanh":
        low, high = argument(node, 1, "min_val", -1.0), argument(node, 2, "max_val", 1.0)
    elif name == "clamp_max":
        low, high = None, argument(node, 1, "max")
    bounds = [None if bound is None else cx.read(bound, dtype) for bound in (low, high)]
    return cx.op("Clip", [cx.read(node.args[0], dtype), *bounds])


_BINARY = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "true_divide": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "pow": "Pow",
    "remainder": "Mod",
    "eq": "Equal",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
    "logical_and": "And",
    "logical_or": "Or",
    "logical_xor": "Xor",
    "bitwise_and": "And",
    "bitwise_or": "Or",
    "bitwise_xor": "Xor",
}
_OVERLOADS = ("Tensor", "Scalar", "default", "Tensor_Scalar", "Tensor_Tensor")


@rule(*(f"aten.{name}.{overload}" for name in _BINARY for overload in _OVERLOADS))
def _binary(cx, node):
    name, made = str(node.target).split(".")[1], made_by(node)
    a, b = node.args[:2]
    compared = made.dtype == torch.bool
    known = [made_by(each) if isinstance(each, torch.fx.Node) else each for each in (a, b)]
    dtype = torch.result_type(*known) if compared else made.dtype
    if name.startswith("logical"):
        dtype = torch.bool
    op = _BINARY[name]
    if name.startswith("bitwise") and dtype != torch.bool:
        op = f"Bitwise{op}"
    if name == "remainder" and dtype.is_floating_point:
        raise Unsupported("it is a remainder of floats")
    a, b = cx.read(a, dtype), cx.read(b, dtype)
    alpha = node.kwargs.get("alpha", 1)
    if alpha != 1:
        b = cx.op("Mul", [b, cx.number(alpha, dtype)])
    return cx.op(op, [a, b])


@rule("aten.ne.Tensor", "aten.ne.Scalar")
def _not_equal(cx, node):
    known = [made_by(each) if isinstance(each, torch.fx.Node) else each for each in node.args[:2]]
    dtype = torch.result_type(*known)
    return cx.op("Not", [cx.op("Equal", [cx.read(each, dtype) for each in node.args[:2]])])


@rule("aten.rsub.Scalar", "aten.rsub.Tensor")
def _reverse_sub(cx, node):
    if node.kwargs.get("alpha", 1) != 1 or len(node.args) > 2:
        raise Unsupported("it scales what it takes away")
    dtype = made_by(node).dtype
    return cx.op("Sub", [cx.read(node.args[1], dtype), cx.read(node.args[0], dtype)])


@rule("aten.div.Tensor_mode", "aten.floor_divide.default")
def _divide_whole(cx, node):
    dtype = made_by(node).dtype
    mode = node.kwargs.get("rounding_mode", "floor")
    made = cx.op("Div", [cx.read(each, dtype) for each in node.args[:2]])
    if not dtype.is_floating_point:
        if mode != "trunc":
            raise Unsupported("integers are divided towards zero alone")
        return made
    if mode != "floor":
        raise Unsupported(f"its rounding is `{mode}`")
    return cx.op("Floor", [made])


@rule("aten.where.self")
def _where(cx, node):
    condition, a, b = node.args
    dtype = made_by(node).dtype
    return cx.op("Where", [cx.read(condition, torch.bool), cx.read(a, dtype), cx.read(b, dtype)])


@rule("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def _masked_fill(cx, node):
    x, mask, value = node.args
    dtype = made_by(node).dtype
    return cx.op("Where", [cx.read(mask, torch.bool), cx.read(value, dtype), cx.read(x, dtype)])


# Types and copies.


@rule("aten._to_copy.default", "prims.convert_element_type.default")
def _to_copy(cx, node):
    if made_by(node).device != tensor_of(node.args[0]).device:
        raise Unsupported("it goes to another device")
    return cx.read(node.args[0], made_by(node).dtype)


@rule("aten.clone.default", "aten.alias.default", "aten.detach.default", "aten.lift_fresh_copy.default")
def _same(cx, node):
    return cx.value(node.args[0])


# Shapes.


@rule("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default")
def _view(cx, node):
    return cx.op("Reshape", [cx.value(node.args[0]), cx.target_shape(made_by(node).shape)])


@rule("aten.permute.default")
def _permute(cx, node):
    rank = tensor_of(node.args[0]).dim()
    return cx.op("Transpose", [cx.value(node.args[0])], perm=axes_of(node.args[1], rank))


@rule("aten.transpose.int", "aten.t.default")
def _transpose(cx, node):
    rank = tensor_of(node.args[0]).dim()
    order = list(range(rank))
    if rank > 1:
        a, b = (axis_of(axis, rank) for axis in (node.args[1:] or (0, 1)))
        order[a], order[b] = order[b], order[a]
    return cx.op("Transpose", [cx.value(node.args[0])], perm=order)


@rule("aten.unsqueeze.default")
def _unsqueeze(cx, node):
    rank = tensor_of(node.args[0]).dim() + 1
    return cx.op("Unsqueeze", [cx.value(node.args[0]), cx.ints([axis_of(node.args[1], rank)])])


@rule("aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze.default")
def _squeeze(cx, node):
    return cx.op("Reshape", [cx.value(node.args[0]), cx.target_shape(made_by(node).shape)])


@rule("aten.expand.default")
def _expand(cx, node):
    shape, given = made_by(node).shape, tensor_of(node.args[0]).shape
    if list(shape) == list(given):
        return cx.value(node.args[0])
    return cx.op("Expand", [cx.value(node.args[0]), cx.sizes(shape)])


@rule("aten.slice.Tensor")
def _slice(cx, node):
    rank = tensor_of(node.args[0]).dim()
    axis = axis_of(argument(node, 1, "dim", 0), rank)
    start, end = argument(node, 2, "start"), argument(node, 3, "end")
    start, end = 0 if start is None else start, 2**63 - 1 if end is None else end
    step = argument(node, 4, "step", 1)
    if (start, end, step) == (0, 2**63 - 1, 1):
        return cx.value(node.args[0])
    return cx.op("Slice", [cx.value(node.args[0]), cx.sizes([start]), cx.sizes([end]), cx.ints([axis]), cx.sizes([step])])


@rule("aten.select.int")
def _select(cx, node):
    rank = tensor_of(node.args[0]).dim()
    index = cx.read(node.args[2], torch.int64)
    return cx.op("Gather", [cx.value(node.args[0]), index], axis=axis_of(node.args[1], rank))


@rule("aten.cat.default")
def _cat(cx, node):
    dtype, rank = made_by(node).dtype, made_by(node).dim()
    # Empty lists join with tensors of any rank.
    parts = [part for part in node.args[0] if tensor_of(part).dim() == rank]
    return cx.op("Concat", [cx.read(part, dtype) for part in parts], axis=axis_of(argument(node, 1, "dim", 0), rank))


@rule("aten.stack.default")
def _stack(cx, node):
    axis = cx.ints([axis_of(argument(node, 1, "dim", 0), made_by(node).dim())])
    parts = [cx.op("Unsqueeze", [cx.value(part), axis]) for part in node.args[0]]
    return cx.op("Concat", parts, axis=axis_of(argument(node, 1, "dim", 0), made_by(node).dim()))


@rule("aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default")
def _split(cx, node):
    axis = axis_of(argument(node, 2, "dim", 0), tensor_of(node.args[0]).dim())
    lengths = cx.sizes([part.shape[axis] for part in made_by(node)])
    names = [f"{node.name}.{idx}" for idx in range(len(made_by(node)))]
    made = cx.op("Split", [cx.value(node.args[0]), lengths], names, axis=axis)
    return made if isinstance(made, list) else [made]


@rule("aten.unbind.int")
def _unbind(cx, node):
    axis = axis_of(argument(node, 1, "dim", 0), tensor_of(node.args[0]).dim())
    number = lambda idx: cx.number(idx, torch.int64)
    return [cx.op("Gather", [cx.value(node.args[0]), number(idx)], axis=axis) for idx in range(len(made_by(node)))]


@rule("aten.constant_pad_nd.default")
def _pad(cx, node):
    rank, given = tensor_of(node.args[0]).dim(), node.args[1]
    before, after = [0] * rank, [0] * rank
    for idx in range(len(given) // 2):
        before[rank - 1 - idx], after[rank - 1 - idx] = given[2 * idx], given[2 * idx + 1]
    value = cx.number(argument(node, 2, "value", 0), made_by(node).dtype)
    return cx.op("Pad", [cx.value(node.args[0]), cx.sizes(before + after), value])


@rule("aten.repeat.default")
def _repeat(cx, node):
    times, rank = node.args[1], tensor_of(node.args[0]).dim()
    x = cx.value(node.args[0])
    if len(times) > rank:
        x = cx.op("Unsqueeze", [x, cx.ints(range(len(times) - rank))])
    return cx.op("Tile", [x, cx.sizes(times)])


@rule("aten.full.default")
def _full(cx, node):
    made = made_by(node)
    return cx.op("Expand", [cx.number(node.args[1], made.dtype), cx.sizes(made.shape)])


@rule("aten.full_like.default")
def _full_like(cx, node):
    made = made_by(node)
    return cx.op("Expand", [cx.number(node.args[1], made.dtype), cx.sizes(made.shape)])


@rule("aten.scalar_tensor.default")
def _scalar(cx, node):
    return cx.read(node.args[0], made_by(node).dtype)


@rule("aten.arange.start_step")
def _arange(cx, node):
    start, end, step = node.args[0], node.args[1], argument(node, 2, "step", 1)
    dtype = made_by(node).dtype
    return cx.op("Range", [cx.read(each, dtype) for each in (start, end, step)])


@rule("aten.embedding.default")
def _embedding(cx, node):
    return cx.op("Gather", [cx.value(node.args[0]), cx.value(node.args[1])], axis=0)


@rule("aten.index_select.default")
def _index_select(cx, node):
    x, axis, index = node.args
    return cx.op("Gather", [cx.value(x), cx.value(index)], axis=axis_of(axis, tensor_of(x).dim()))


@rule("aten.gather.default")
def _gather(cx, node):
    x, axis, index = node.args[:3]
    return cx.op("GatherElements", [cx.value(x), cx.value(index)], axis=axis_of(axis, tensor_of(x).dim()))


@rule("aten.index.Tensor")
def _index(cx, node):
    x, indices = node.args
    given = [axis for axis, index in enumerate(indices) if index is not None]
    if any(tensor_of(indices[axis]).dtype == torch.bool for axis in given):
        raise Unsupported("a mask says what is taken")
    if len(given) == 1:
        return cx.op("Gather", [cx.value(x), cx.value(indices[given[0]])], axis=given[0])
    # Indices that meet all others, as of rows and of columns: one axis after the other.
    if given != list(range(given[0], given[0] + len(given))):
        raise Unsupported("axes between those that have indices")
    made = cx.value(x)
    for place, axis in enumerate(given):
        shape = list(tensor_of(indices[axis]).shape)
        along = [size == 1 or rank == len(given) - place for size, rank in zip(shape, range(len(shape), 0, -1))]
        if len(shape) > len(given) or not all(along):
            raise Unsupported("several tensors of indices that go together")
        index = cx.op("Reshape", [cx.value(indices[axis]), cx.ints([-1])])
        made = cx.op("Gather", [made, index], axis=axis)
    return made


# Along axes.

_REDUCTIONS = {"mean": "ReduceMean", "sum": "ReduceSum", "amax": "ReduceMax", "amin": "ReduceMin", "prod": "ReduceProd"}


@rule(
    *(f"aten.{name}.default" for name in _REDUCTIONS),
    "aten.mean.dim",
    "aten.sum.dim_IntList",
    "aten.prod.dim_int",
)
def _reduce(cx, node):
    x, dtype = tensor_of(node.args[0]), made_by(node).dtype
    axes = axes_of(argument(node, 1, "dim"), x.dim())
    op = _REDUCTIONS[str(node.target).split(".")[1]]
    keep = bool(argument(node, 2, "keepdim", False))
    return cx.op(op, [cx.read(node.args[0], dtype), cx.ints(axes)], keepdims=keep)


def _moments(cx, node):
    """The mean and the variance, both with their axes kept."""
    x, dtype = tensor_of(node.args[0]), tensor_of(node.args[0]).dtype
    axes = axes_of(argument(node, 1, "dim"), x.dim())
    count, correction = 1, node.kwargs.get("correction", 1)
    for axis in axes:
        size = cx.expression(x.shape[axis])
        if not isinstance(size, int):
            raise Unsupported("a variance over a size that is not fixed")
        count *= size
    mean = cx.op("ReduceMean", [cx.value(node.args[0]), cx.ints(axes)], keepdims=True)
    off = cx.op("Sub", [cx.value(node.args[0]), mean])
    squares = cx.op("ReduceSum", [cx.op("Mul", [off, off]), cx.ints(axes)], keepdims=True)
    return mean, cx.op("Div", [squares, cx.number(max(count - correction, 0), dtype)])


@rule("aten.var.correction", "aten.var_mean.correction")
def _variance(cx, node):
    mean, variance = _moments(cx, node)
    both = str(node.target).startswith("aten.var_mean")
    shape = (made_by(node)[0] if both else made_by(node)).shape
    if not node.kwargs.get("keepdim", False):
        mean, variance = (cx.op("Reshape", [each, cx.target_shape(shape)]) for each in (mean, variance))
    return [variance, mean] if both else variance


@rule("aten.argmax.default", "aten.argmin.default")
def _arg_max(cx, node):
    axis = argument(node, 1, "dim")
    if axis is None:
        raise Unsupported("it is over all elements")
    op = "ArgMax" if "argmax" in str(node.target) else "ArgMin"
    rank = tensor_of(node.args[0]).dim()
    keep = bool(argument(node, 2, "keepdim", False))
    return cx.op(op, [cx.value(node.args[0])], axis=axis_of(axis, rank), keepdims=keep)


@rule("aten.cumsum.default")
def _cumsum(cx, node):
    x, rank = cx.read(node.args[0], made_by(node).dtype), tensor_of(node.args[0]).dim()
    return cx.op("CumSum", [x, cx.number(axis_of(node.args[1], rank), torch.int64)])


@rule("aten.topk.default")
def _topk(cx, node):
    x, k = node.args[:2]
    axis = axis_of(argument(node, 2, "dim", -1), tensor_of(x).dim())
    largest, in_order = argument(node, 3, "largest", True), argument(node, 4, "sorted", True)
    names = [f"{node.name}.values", f"{node.name}.indices"]
    return cx.op("TopK", [cx.value(x), cx.sizes([k])], names, axis=axis, largest=bool(largest), sorted=bool(in_order))


@rule("aten._softmax.default", "aten._log_softmax.default", "aten._safe_softmax.default")
def _softmax(cx, node):
    op = "LogSoftmax" if "log" in str(node.target) else "Softmax"
    rank = tensor_of(node.args[0]).dim()
    x = cx.read(node.args[0], made_by(node).dtype)
    return cx.op(op, [x], axis=axis_of(node.args[1], rank))


# Products.


@rule("aten.mm.default", "aten.bmm.default", "aten.matmul.default")
def _matmul(cx, node):
    return cx.op("MatMul", [cx.value(each) for each in node.args[:2]])


@rule("aten.addmm.default")
def _addmm(cx, node):
    bias, a, b = node.args
    alpha, beta = float(node.kwargs.get("alpha", 1)), float(node.kwargs.get("beta", 1))
    return cx.op("Gemm", [cx.value(a), cx.value(b), cx.value(bias)], alpha=alpha, beta=beta)


@rule("aten.convolution.default")
def _convolution(cx, node):
    x, weight, bias, strides, pads, dilations, is_transposed, output_padding, groups = node.args
    inputs = [cx.value(x), cx.value(weight), None if bias is None else cx.value(bias)]
    n_axes = tensor_of(weight).dim() - 2
    every = lambda sizes: list(sizes) * (n_axes if len(sizes) == 1 else 1)
    form = {"strides": every(strides), "pads": every(pads) * 2, "dilations": every(dilations), "group": groups}
    if is_transposed:
        return cx.op("ConvTranspose", inputs, output_padding=every(output_padding), **form)
    return cx.op("Conv", inputs, **form)


def _windows(node, n_axes):
    """Kernel, strides and pads of a pool."""
    every = lambda sizes: list(sizes) * (n_axes if len(sizes) == 1 else 1)
    kernel = every(node.args[1])
    strides = every(argument(node, 2, "stride", []) or kernel)
    return {"kernel_shape": kernel, "strides": strides, "pads": every(argument(node, 3, "padding", [0])) * 2}


@rule("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def _max_pool(cx, node):
    only_first(node)
    n_axes = 3 if "3d" in str(node.target) else 2
    dilations = list(argument(node, 4, "dilation", [1]))
    dilations = dilations * (n_axes if len(dilations) == 1 else 1)
    ceil_mode = int(argument(node, 5, "ceil_mode", False))
    form = _windows(node, n_axes)
    return [_batched(cx, node, n_axes, "MaxPool", dilations=dilations, ceil_mode=ceil_mode, **form)]


@rule("aten.avg_pool2d.default", "aten.avg_pool3d.default")
def _average_pool(cx, node):
    if argument(node, 6, "divisor_override") is not None:
        raise Unsupported("it divides by a number of its own")
    n_axes = 3 if "3d" in str(node.target) else 2
    form = {"ceil_mode": int(argument(node, 4, "ceil_mode", False)), **_windows(node, n_axes)}
    return _batched(cx, node, n_axes, "AveragePool", count_include_pad=int(argument(node, 5, "count_include_pad", True)), **form)


def _batched(cx, node, n_axes, op, **form):
    if tensor_of(node.args[0]).dim() != n_axes + 2:
        raise Unsupported("its input has no batch")
    return cx.op(op, [cx.value(node.args[0])], **form)


@rule("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default")
def _adaptive_pool(cx, node):
    n_axes = 3 if "3d" in str(node.target) else 2
    sizes = list(tensor_of(node.args[0]).shape)[-n_axes:]
    wanted = list(made_by(node).shape)[-n_axes:]
    if all(size == 1 for size in wanted):
        return _batched(cx, node, n_axes, "GlobalAveragePool")
    whole = all(isinstance(size, int) and size % to == 0 for size, to in zip(sizes, wanted))
    if not whole:
        raise Unsupported("its windows are not all of one size")
    kernel = [size // to for size, to in zip(sizes, wanted)]
    return _batched(cx, node, n_axes, "AveragePool", kernel_shape=kernel, strides=kernel)


@rule(
    *(f"aten.upsample_{form}.{overload}" for form in ("nearest1d", "nearest2d", "nearest3d", "bilinear2d") for overload in ("default", "vec"))
)
def _upsample(cx, node):
    x, name = tensor_of(node.args[0]), str(node.target)
    linear = "bilinear" in name
    n_axes = x.dim() - 2
    rest = node.args[3 if linear else 2 :] if "default" in name else argument(node, 3 if linear else 2, "scale_factors")
    factors = list(rest or []) if not isinstance(rest, float) else [rest]
    aligned = bool(argument(node, 2, "align_corners", False)) if linear else False
    form = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if linear:
        form = {"mode": "linear", "coordinate_transformation_mode": "align_corners" if aligned else "half_pixel"}
    if len(factors) == n_axes and all(isinstance(factor, float) for factor in factors) and not aligned:
        scales = torch.tensor([1.0, 1.0, *factors])
        scales = cx.graph.weight("scales", "float32", (n_axes + 2,), scales.numpy().tobytes())
        return cx.op("Resize", [cx.value(node.args[0]), None, scales], **form)
    return cx.op("Resize", [cx.value(node.args[0]), None, None, cx.sizes(made_by(node).shape)], **form)


# Norms.


def _weight_or(cx, given, value, size, dtype):
    """A weight, or a constant one where there is none."""
    return cx.value(given) if given is not None else cx.op("Expand", [cx.number(value, dtype), cx.ints(size)])


@rule("aten._native_batch_norm_legit_no_training.default")
def _batch_norm(cx, node):
    only_first(node)
    x, weight, bias, mean, variance, _, epsilon = node.args
    made = tensor_of(x)
    dtype, size = made.dtype, [made.shape[1]]
    scale, shift = _weight_or(cx, weight, 1, size, dtype), _weight_or(cx, bias, 0, size, dtype)
    inputs = [cx.value(x), scale, shift, cx.value(mean), cx.value(variance)]
    return [cx.op("BatchNormalization", inputs, epsilon=float(epsilon))]


@rule("aten.native_layer_norm.default")
def _layer_norm(cx, node):
    only_first(node)
    x, shape, weight, bias, epsilon = node.args
    dtype = tensor_of(x).dtype
    scale = _weight_or(cx, weight, 1, shape, dtype)
    inputs = [cx.value(x), scale] + ([] if bias is None else [cx.value(bias)])
    return [cx.op("LayerNormalization", inputs, axis=-len(shape), epsilon=float(epsilon))]


@rule("aten.native_group_norm.default")
def _group_norm(cx, node):
    only_first(node)
    x, weight, bias, _, channels, _, groups, epsilon = node.args
    dtype = tensor_of(x).dtype
    scale, shift = _weight_or(cx, weight, 1, [channels], dtype), _weight_or(cx, bias, 0, [channels], dtype)
    inputs = [cx.value(x), scale, shift]
    return [cx.op("GroupNormalization", inputs, num_groups=groups, epsilon=float(epsilon))]


@rule("aten._scaled_dot_product_flash_attention_for_cpu.default")
def _attention(cx, node):
    only_first(node)
    if argument(node, 3, "dropout_p", 0.0):
        raise Unsupported("it drops out")
    mask, scale = node.kwargs.get("attn_mask"), node.kwargs.get("scale")
    inputs = [cx.value(each) for each in node.args[:3]] + ([] if mask is None else [cx.value(mask)])
    form = {"is_causal": int(bool(argument(node, 4, "is_causal", False)))}
    return [cx.op("Attention", inputs, scale=None if scale is None else float(scale), **form)]
