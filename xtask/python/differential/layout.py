"""Cases of shape changes, data movement and indexing."""

import numpy as np

from .case import Case, registry
from .draw import ALL

GENERATORS, generator = registry()


def i64(values):
    return np.asarray(values, np.int64)


@generator("Shape")
def shape_of(draw, name):
    attributes = {}
    if draw.chance(0.5):
        attributes["start"] = draw.integer(-5, 5)
    if draw.chance(0.5):
        attributes["end"] = draw.integer(-5, 5)
    return Case(name, [draw.array(draw.pick(ALL), draw.shape())], attributes)


@generator("Size")
def size(draw, name):
    return Case(name, [draw.array(draw.pick(ALL), draw.shape())])


@generator("Reshape")
def reshape(draw, name):
    shape = draw.shape(0, 4, zero=0.02)
    target = [shape[i] for i in draw.permutation(len(shape))]
    if len(target) > 1 and draw.chance(0.5):
        target = [target[0] * target[1]] + target[2:]
    elif draw.chance(0.3):
        target.insert(draw.integer(0, len(target)), 1)
    if target and 0 not in target and draw.chance(0.5):
        target[draw.integer(0, len(target) - 1)] = -1
    if target == shape and target and draw.chance(0.5):
        target[draw.integer(0, len(target) - 1)] = 0
    return Case(name, [draw.array(draw.pick(ALL), shape), i64(target)], parameters=(1,))


@generator("Flatten")
def flatten(draw, name):
    shape = draw.shape()
    return Case(name, [draw.array(draw.pick(ALL), shape)], {"axis": draw.integer(-len(shape), len(shape))})


@generator("Squeeze")
def squeeze(draw, name):
    shape = draw.shape(1, 5)
    ones = [axis for axis, dim in enumerate(shape) if dim == 1]
    axes = [axis - len(shape) if draw.chance(0.5) else axis for axis in ones if draw.chance(0.6)]
    inputs = [draw.array(draw.pick(ALL), shape)]
    return Case(name, inputs + ([i64(axes)] if axes else []), parameters=(1,))


@generator("Unsqueeze")
def unsqueeze(draw, name):
    shape, count = draw.shape(0, 3), draw.integer(1, 2)
    rank = len(shape) + count
    axes = [axis - rank if draw.chance(0.5) else axis for axis in draw.permutation(rank)[:count]]
    return Case(name, [draw.array(draw.pick(ALL), shape), i64(axes)], parameters=(1,))


@generator("Transpose")
def transpose(draw, name):
    shape = draw.shape()
    attributes = {"perm": draw.permutation(len(shape))} if shape and draw.chance(0.8) else {}
    return Case(name, [draw.array(draw.pick(ALL), shape)], attributes)


@generator("Expand")
def expand(draw, name):
    shape = draw.shape()
    target = [1 if draw.chance(0.2) else dim for dim in shape]
    return Case(name, [draw.array(draw.pick(ALL), draw.operand(shape)), i64(target)], parameters=(1,))


@generator("Tile")
def tile(draw, name):
    shape = draw.shape(1, 4)
    repeats = [draw.pick([0, 1, 1, 2, 3]) for _ in shape]
    return Case(name, [draw.array(draw.pick(["float32", "int64", "uint8", "bool"]), shape), i64(repeats)], parameters=(1,))


@generator("Concat")
def concat(draw, name):
    shape, dtype = draw.shape(1, 4), draw.pick(ALL)
    axis = draw.axis(len(shape))
    parts = []
    for _ in range(draw.integer(1, 4)):
        part = list(shape)
        part[axis] = draw.dim(0.15)
        parts.append(draw.array(dtype, part))
    return Case(name, parts, {"axis": axis})


@generator("Split")
def split(draw, name):
    shape, count = draw.shape(1, 4), draw.integer(1, 4)
    axis, dtype = draw.axis(len(shape)), draw.pick(["float32", "int64", "uint8", "bool", "float64"])
    if draw.chance(0.5):
        sizes = [draw.integer(0, 4) for _ in range(count)]
        shape[axis] = sum(sizes)
        return Case(name, [draw.array(dtype, shape), i64(sizes)], {"axis": axis}, count, parameters=(1,))
    # Uneven parts: all of one size but for a smaller last one, which must exist.
    size = draw.integer(1, 3)
    shape[axis] = size * (count - 1) + draw.integer(1, size)
    return Case(name, [draw.array(dtype, shape)], {"axis": axis, "num_outputs": count}, count)


@generator("Slice")
def slice_(draw, name):
    shape = draw.shape(1, 4)
    axes = draw.permutation(len(shape))[: draw.integer(1, len(shape))]
    starts, ends = ([draw.integer(-8, 8) for _ in axes] for _ in range(2))
    steps = [draw.pick([1, 1, 2, 3, -1, -2]) for _ in axes] if draw.chance(0.6) else None
    if draw.chance(0.3):
        # "To the end": the largest number forwards, the smallest backwards, as ONNX recommends.
        backwards = steps is not None and steps[0] < 0
        ends[0] = draw.pick([-(2**63), -(2**31)] if backwards else [2**63 - 1, 2**31 - 1])
    inputs = [draw.array(draw.pick(ALL), shape), i64(starts), i64(ends)]
    if draw.chance(0.8) or len(axes) < len(shape) or steps is not None:
        inputs.append(i64([axis - len(shape) if draw.chance(0.4) else axis for axis in axes]))
    if steps is not None:
        inputs.append(i64(steps))
    if draw.chance(0.3):
        inputs[1:] = [np.clip(a, -(2**31), 2**31 - 1).astype(np.int32) for a in inputs[1:]]
    return Case(name, inputs, parameters=(1, 2, 3, 4))


@generator("Pad")
def pad(draw, name):
    mode = draw.pick(["constant", "constant", "reflect", "edge", "wrap"])
    shape = [draw.pick([2, 3, 4, 5]) if mode != "constant" else draw.dim() for _ in range(draw.integer(1, 4))]
    limit = 1 if mode in ("reflect", "wrap") else 3
    low = 0 if mode == "wrap" else -1
    dtype = draw.pick(["float32", "float64", "int32", "int64", "uint8"])
    axes = None
    if draw.chance(0.3):
        axes = draw.permutation(len(shape))[: draw.integer(1, len(shape))]
    count = len(shape) if axes is None else len(axes)
    pads = [draw.integer(low if dim_ok(shape, axes, i % count) else 0, limit) for i in range(2 * count)]
    value = draw.array(dtype, []) if mode == "constant" and draw.chance(0.7) else None
    inputs = [draw.array(dtype, shape), i64(pads), value]
    if axes is not None:
        inputs.append(i64(axes))
    return Case(name, inputs, {"mode": mode}, parameters=(1, 2, 3))


def dim_ok(shape, axes, place):
    """Whether an axis is long enough to be cut on both sides."""
    return shape[place if axes is None else axes[place]] >= 3


@generator("DepthToSpace")
def depth_to_space(draw, name):
    block = draw.integer(1, 3)
    shape = [draw.integer(1, 2), draw.integer(1, 3) * block * block, draw.dim(0), draw.dim(0)]
    attributes = {"blocksize": block, "mode": draw.pick(["DCR", "CRD"])}
    return Case(name, [draw.array(draw.pick(["float32", "float64", "uint8"]), shape)], attributes)


@generator("SpaceToDepth")
def space_to_depth(draw, name):
    block = draw.integer(1, 3)
    shape = [draw.integer(1, 2), draw.dim(0), draw.integer(1, 3) * block, draw.integer(1, 3) * block]
    return Case(name, [draw.array(draw.pick(["float32", "float64", "uint8"]), shape)], {"blocksize": block})


@generator("Trilu")
def trilu(draw, name):
    shape = draw.shape(2, 4)
    k = i64(draw.integer(-4, 4)) if draw.chance(0.7) else None
    inputs = [draw.array(draw.pick(["float32", "float64", "int64", "bool"]), shape)] + ([] if k is None else [k])
    return Case(name, inputs, {"upper": draw.integer(0, 1)}, parameters=(1,))


@generator("ReverseSequence")
def reverse_sequence(draw, name):
    shape = draw.shape(2, 4, zero=0)
    batch, time = draw.permutation(2)
    lengths = i64([draw.integer(1, shape[time]) for _ in range(shape[batch])])
    return Case(name, [draw.array(draw.pick(["float32", "int64"]), shape), lengths], {"batch_axis": batch, "time_axis": time})


@generator("ConstantOfShape")
def constant_of_shape(draw, name):
    from onnx import numpy_helper

    dtype = draw.pick(["float32", "int64", "int32", "bool", "uint8", "float64"])
    attributes = {"value": numpy_helper.from_array(draw.array(dtype, [1]))} if draw.chance(0.8) else {}
    return Case(name, [i64(draw.shape())], attributes, parameters=(0,))


@generator("Range")
def range_(draw, name):
    dtype = draw.pick(["float32", "float64", "int16", "int32", "int64"])
    start, limit = draw.array(dtype, [], -8, 8), draw.array(dtype, [], -8, 8)
    delta = np.asarray(draw.pick([1, 2, 3, -1, -2]), dtype)
    return Case(name, [start, limit, delta], parameters=(0, 1, 2))


@generator("EyeLike")
def eye_like(draw, name):
    return Case(name, [draw.array(draw.pick(["float32", "int64", "int32", "float64"]), draw.shape(2, 2))], {"k": draw.integer(-3, 3)})


@generator("Gather")
def gather(draw, name):
    shape = draw.shape(1, 4, zero=0)
    axis = draw.axis(len(shape))
    size = shape[axis]
    indices = draw.array(draw.pick(["int32", "int64"]), draw.shape(0, 2), -size, size - 1)
    return Case(name, [draw.array(draw.pick(ALL), shape), indices], {"axis": axis}, parameters=(1,))


@generator("GatherElements")
def gather_elements(draw, name):
    shape = draw.shape(1, 4, zero=0)
    axis = draw.axis(len(shape))
    size = shape[axis]
    index_shape = [draw.integer(1, dim) for dim in shape]
    index_shape[axis] = draw.dim()
    indices = draw.array(draw.pick(["int32", "int64"]), index_shape, -size, size - 1)
    return Case(name, [draw.array(draw.pick(ALL), shape), indices], {"axis": axis})


def nd_indices(draw, shape, batch):
    depth = draw.integer(1, len(shape) - batch)
    lead = shape[:batch] + draw.shape(0, 2)
    places = [draw.array("int64", lead, -shape[batch + i], shape[batch + i] - 1) for i in range(depth)]
    return np.stack(places, -1)


@generator("GatherND")
def gather_nd(draw, name):
    shape = draw.shape(2, 4, zero=0)
    batch = draw.integer(0, len(shape) - 1)
    data = draw.array(draw.pick(ALL), shape)
    return Case(name, [data, nd_indices(draw, shape, batch)], {"batch_dims": batch})


@generator("ScatterND")
def scatter_nd(draw, name):
    shape = draw.shape(1, 4, zero=0)
    reduction = draw.pick(["none", "add", "mul", "max", "min"])
    indices = nd_indices(draw, shape, 0)
    if reduction == "none":
        # Which of two writes to one place wins is not defined.
        flat = indices.reshape(-1, indices.shape[-1])
        wrapped = flat % np.asarray(shape[: flat.shape[1]])
        _, first = np.unique(wrapped, axis=0, return_index=True)
        indices = flat[np.sort(first)]
    dtype = draw.pick(["float32", "int64", "int32", "float64"])
    updates = draw.array(dtype, list(indices.shape[:-1]) + shape[indices.shape[-1] :])
    return Case(name, [draw.array(dtype, shape), indices, updates], {"reduction": reduction})


@generator("ScatterElements")
def scatter_elements(draw, name):
    shape = draw.shape(1, 4, zero=0)
    axis = draw.axis(len(shape))
    reduction = draw.pick(["none", "add", "mul", "max", "min"])
    index_shape = [draw.integer(1, dim) for dim in shape]
    if reduction == "none":
        order = np.argsort(draw.rng.random(index_shape[:axis % len(shape)] + [shape[axis]] + index_shape[axis % len(shape) + 1 :]), axis)
        indices = np.take(order, range(index_shape[axis]), axis)
    else:
        indices = draw.array("int64", index_shape, -shape[axis], shape[axis] - 1)
    dtype = draw.pick(["float32", "int64", "int32", "float64"])
    data, updates = draw.array(dtype, shape), draw.array(dtype, index_shape)
    return Case(name, [data, i64(indices), updates], {"axis": axis, "reduction": reduction})


@generator("OneHot")
def one_hot(draw, name):
    depth = draw.integer(1, 6)
    indices = draw.array("int64", draw.shape(0, 3), -depth, depth - 1)
    rank = indices.ndim + 1
    values = draw.array(draw.pick(["float32", "int64"]), [2])
    return Case(name, [indices, i64(depth), values], {"axis": draw.integer(-rank, rank - 1)}, parameters=(1,))


@generator("Compress")
def compress(draw, name):
    shape = draw.shape(1, 4, zero=0)
    data = draw.array(draw.pick(["float32", "int64", "bool"]), shape)
    if draw.chance(0.3):
        return Case(name, [data, draw.array("bool", [draw.integer(1, data.size)])])
    axis = draw.axis(len(shape))
    return Case(name, [data, draw.array("bool", [draw.integer(1, shape[axis])])], {"axis": axis})


@generator("NonZero")
def non_zero(draw, name):
    return Case(name, [draw.array(draw.pick(["float32", "int64", "int32", "uint8", "bool"]), draw.shape(1, 4), 0, 2)])


@generator("Unique")
def unique(draw, name):
    data = draw.array(draw.pick(["float32", "int64", "int8", "float64"]), draw.shape(1, 3, zero=0), 0, 3)
    if np.issubdtype(data.dtype, np.floating):
        data = np.round(data).astype(data.dtype)
    attributes = {"sorted": draw.integer(0, 1)}
    if draw.chance(0.5):
        attributes["axis"] = draw.axis(data.ndim)
    return Case(name, [data], attributes, 4)


@generator("TopK")
def topk(draw, name):
    shape = draw.shape(1, 4, zero=0)
    axis = draw.axis(len(shape))
    data = draw.distinct(draw.pick(["float32", "float64", "int64", "int32"]), shape)
    attributes = {"axis": axis, "largest": draw.integer(0, 1), "sorted": 1}
    return Case(name, [data, i64([draw.integer(1, shape[axis])])], attributes, 2, parameters=(1,))


@generator("CumSum")
def cumsum(draw, name):
    shape = draw.shape(1, 4)
    axis = np.asarray(draw.axis(len(shape)), draw.pick(["int32", "int64"]))
    attributes = {"exclusive": draw.integer(0, 1), "reverse": draw.integer(0, 1)}
    return Case(name, [draw.array(draw.pick(["float32", "float64", "int32", "int64"]), shape), axis], attributes, parameters=(1,))


