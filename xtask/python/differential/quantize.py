"""Cases of quantized operators."""

import numpy as np

from .case import Case, registry
from .linear import window

GENERATORS, generator = registry()


def scale(draw, shape=(), factor=1.0):
    return draw.array("float32", list(shape), 0.02 * factor, 0.4 * factor)


def zero_point(draw, dtype, shape=()):
    return draw.array(dtype, list(shape), -20, 20)


@generator("QuantizeLinear")
def quantize(draw, name):
    shape, dtype = draw.shape(1, 4), draw.pick(["uint8", "int8", "uint16", "int16"])
    data = draw.array("float32", shape, -8, 8)
    if draw.chance(0.5):
        return Case(name, [data, scale(draw), zero_point(draw, dtype)])
    axis = draw.axis(len(shape))
    return Case(name, [data, scale(draw, [shape[axis]]), zero_point(draw, dtype, [shape[axis]])], {"axis": axis})


@generator("DequantizeLinear")
def dequantize(draw, name):
    shape, dtype = draw.shape(1, 4), draw.pick(["uint8", "int8", "int32", "uint16", "int16"])
    data = draw.array(dtype, shape, -120, 120)
    axis = draw.axis(len(shape))
    per_axis = draw.chance(0.5)
    dims = [shape[axis]] if per_axis else []
    inputs = [data, scale(draw, dims)]
    if dtype != "int32" and draw.chance(0.8):
        inputs.append(zero_point(draw, dtype, dims))
    return Case(name, inputs, {"axis": axis} if per_axis else {})


@generator("DynamicQuantizeLinear")
def dynamic(draw, name):
    return Case(name, [draw.array("float32", draw.shape(0, 3, zero=0))], {}, 3)


@generator("MatMulInteger")
def matmul_integer(draw, name):
    a_type, b_type = draw.pick(["uint8", "int8"]), draw.pick(["uint8", "int8"])
    m, k, n = draw.dim(0), draw.dim(0), draw.dim(0)
    batch = draw.shape(0, 2, zero=0)
    inputs = [draw.array(a_type, batch + [m, k], -60, 60), draw.array(b_type, batch + [k, n], -60, 60)]
    inputs.append(zero_point(draw, a_type) if draw.chance(0.6) else None)
    inputs.append(zero_point(draw, b_type) if draw.chance(0.6) else None)
    while inputs[-1] is None:
        inputs.pop()
    return Case(name, inputs)


@generator("QLinearMatMul")
def qlinear_matmul(draw, name):
    a_type, b_type = draw.pick(["uint8", "int8"]), draw.pick(["uint8", "int8"])
    m, k, n = draw.dim(0), draw.dim(0), draw.dim(0)
    inputs = [draw.array(a_type, [m, k], -60, 60), scale(draw), zero_point(draw, a_type)]
    inputs += [draw.array(b_type, [k, n], -60, 60), scale(draw), zero_point(draw, b_type)]
    return Case(name, inputs + [scale(draw, factor=20), zero_point(draw, a_type)])


def integer_conv(draw):
    n_axes, group = draw.integer(1, 2), draw.pick([1, 1, 2])
    per_in, per_out = draw.integer(1, 3), draw.integer(1, 3)
    kernel = [draw.integer(1, 3) for _ in range(n_axes)]
    data_shape = [draw.integer(1, 2), group * per_in] + [draw.integer(4, 7) for _ in kernel]
    return data_shape, [group * per_out, per_in] + kernel, {"group": group, **window(draw, n_axes, kernel)}


@generator("ConvInteger")
def conv_integer(draw, name):
    data_shape, weight_shape, attributes = integer_conv(draw)
    inputs = [draw.array("uint8", data_shape, 0, 120), draw.array("uint8", weight_shape, 0, 60)]
    inputs.append(zero_point(draw, "uint8") if draw.chance(0.7) else None)
    inputs.append(zero_point(draw, "uint8") if draw.chance(0.7) else None)
    while inputs[-1] is None:
        inputs.pop()
    return Case(name, inputs, attributes)


@generator("QLinearConv")
def qlinear_conv(draw, name):
    data_shape, weight_shape, attributes = integer_conv(draw)
    weight_type = draw.pick(["uint8", "int8"])
    dims = [weight_shape[0]] if weight_type == "int8" and draw.chance(0.5) else []
    weight_zero = np.zeros(dims, "int8") if weight_type == "int8" else zero_point(draw, "uint8")
    inputs = [draw.array("uint8", data_shape, 0, 120), scale(draw), zero_point(draw, "uint8")]
    inputs += [draw.array(weight_type, weight_shape, -60, 60), scale(draw, dims), weight_zero]
    inputs += [scale(draw, factor=20), zero_point(draw, "uint8")]
    if draw.chance(0.5):
        inputs.append(draw.array("int32", [weight_shape[0]], -500, 500))
    return Case(name, inputs, attributes, parameters=tuple(range(1, 8)))
