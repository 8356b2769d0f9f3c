"""Cases of reductions, softmax and normalizations."""

import numpy as np

from .case import Case, registry
from .draw import FLOATS

GENERATORS, generator = registry()


@generator("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
           "ReduceLogSumExp", "ReduceSumSquare")
def reduction(draw, name):
    dtypes = ["float32", "float32", "float64", "int32", "int64"]
    if name in ("ReduceLogSum", "ReduceLogSumExp", "ReduceL2", "ReduceMean"):
        dtypes = dtypes[:3]
    if name in ("ReduceMax", "ReduceMin"):
        dtypes += ["int8", "uint8"]
    shape = draw.shape(0, 4, zero=0.02)
    low, high = (0.1, 3) if name == "ReduceLogSum" else (-3, 3)
    inputs = [draw.array(draw.pick(dtypes), shape, low, high)]
    attributes = {"keepdims": draw.integer(0, 1)}
    if shape and draw.chance(0.8):
        axes = draw.permutation(len(shape))[: draw.integer(0, len(shape))]
        inputs.append(np.asarray([axis - len(shape) if draw.chance(0.4) else axis for axis in axes], np.int64))
    if draw.chance(0.3):
        attributes["noop_with_empty_axes"] = 1
    return Case(name, inputs, attributes, opset=20 if name in ("ReduceMax", "ReduceMin") else 18, parameters=(1,))


@generator("ArgMax", "ArgMin")
def arg(draw, name):
    shape = draw.shape(1, 4, zero=0)
    data = draw.array(draw.pick(["float32", "float64", "int32", "int8", "uint8"]), shape, -3, 3)
    if np.issubdtype(data.dtype, np.floating):
        data = np.round(data).astype(data.dtype)
    attributes = {"axis": draw.axis(len(shape)), "keepdims": draw.integer(0, 1), "select_last_index": draw.integer(0, 1)}
    return Case(name, [data], attributes)


@generator("Softmax", "LogSoftmax", "Hardmax")
def softmax(draw, name):
    shape = draw.shape(1, 4)
    data = draw.distinct("float32", shape) if name == "Hardmax" else draw.array(draw.pick(["float32", "float64"]), shape)
    # Opsets before 13 flatten; both forms are drawn.
    opset = draw.pick([11, 13, 21])
    axis = draw.integer(0, len(shape) - 1) if opset == 11 else draw.axis(len(shape))
    return Case(name, [data], {"axis": axis}, opset=opset)


@generator("BatchNormalization")
def batch_norm(draw, name):
    shape = draw.shape(2, 5, zero=0)
    channels = [shape[1]]
    vectors = [draw.array("float32", channels) for _ in range(3)] + [draw.array("float32", channels, 0.1, 3)]
    return Case(name, [draw.array("float32", shape)] + vectors, {"epsilon": draw.pick([1e-5, 1e-3])})


@generator("InstanceNormalization")
def instance_norm(draw, name):
    # One element a channel has variance 0, and rounding errors grow by 1/sqrt(epsilon), over 300 times.
    shape = draw.shape(2, 4, zero=0) + [draw.integer(2, 5)]
    return Case(name, [draw.array("float32", shape), draw.array("float32", [shape[1]]), draw.array("float32", [shape[1]])])


@generator("GroupNormalization")
def group_norm(draw, name):
    groups, per_group = draw.integer(1, 3), draw.integer(1, 3)
    # At least a few elements a group: with a variance near 0 rounding errors grow by 1/sqrt(epsilon).
    shape = [draw.integer(1, 2), groups * per_group] + draw.shape(0, 2, zero=0) + [draw.integer(4, 7)]
    opset = draw.pick([18, 21])
    size = groups if opset == 18 else groups * per_group
    vectors = [draw.array("float32", [size]) for _ in range(2)]
    return Case(name, [draw.array("float32", shape)] + vectors, {"num_groups": groups}, opset=opset)


@generator("LayerNormalization")
def layer_norm(draw, name):
    shape = draw.shape(1, 4, zero=0)
    axis = draw.axis(len(shape))
    inputs = [draw.array("float32", shape), draw.array("float32", shape[axis:])]
    if draw.chance(0.6):
        inputs.append(draw.array("float32", shape[axis:]))
    return Case(name, inputs, {"axis": axis}, draw.pick([1, 3]))


@generator("LpNormalization")
def lp_norm(draw, name):
    shape = draw.shape(1, 4, zero=0)
    return Case(name, [draw.array(draw.pick(["float32", "float64"]), shape)], {"axis": draw.axis(len(shape)), "p": draw.integer(1, 2)})


@generator("LRN")
def lrn(draw, name):
    attributes = {"size": draw.pick([1, 3, 5]), "alpha": 0.1, "beta": 0.75, "bias": 1.0}
    return Case(name, [draw.array("float32", [draw.integer(1, 2), draw.integer(1, 6), 3, 2])], attributes)


@generator("MeanVarianceNormalization")
def mvn(draw, name):
    return Case(name, [draw.array("float32", [draw.integer(1, 3), draw.integer(1, 3), draw.integer(2, 4), draw.integer(2, 4)])])


@generator("Dropout")
def dropout(draw, name):
    return Case(name, [draw.array(draw.pick(FLOATS[:4]), draw.shape())], {}, draw.pick([1, 2]))
