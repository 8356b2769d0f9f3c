"""Cases of matrix products, convolutions, pools and recurrent layers."""

import numpy as np

from .case import Case, registry
from .draw import FLOATS

GENERATORS, generator = registry()


@generator("MatMul")
def matmul(draw, name):
    dtype = draw.pick(["float32", "float32", "float64", "int32", "int64", "uint32", "uint64"])
    m, k, n = draw.dim(), draw.dim(0.03), draw.dim()
    batch = draw.shape(0, 2)
    a, b = draw.operand(batch) + [m, k], draw.operand(batch) + [k, n]
    if draw.chance(0.15):
        a = [k]
    if draw.chance(0.15):
        b = [k]
    return Case(name, [draw.array(dtype, a), draw.array(dtype, b)])


@generator("Gemm")
def gemm(draw, name):
    dtype = draw.pick(["float32", "float32", "float64"])
    m, k, n = draw.dim(), draw.dim(0.03), draw.dim()
    trans_a, trans_b = draw.integer(0, 1), draw.integer(0, 1)
    inputs = [draw.array(dtype, [k, m] if trans_a else [m, k]), draw.array(dtype, [n, k] if trans_b else [k, n])]
    if draw.chance(0.7):
        inputs.append(draw.array(dtype, draw.pick([[], [1], [n], [1, n], [m, 1], [m, n], [1, 1]])))
    attributes = {"transA": trans_a, "transB": trans_b}
    if draw.chance(0.5):
        attributes.update(alpha=float(draw.rng.uniform(0.5, 2)), beta=float(draw.rng.uniform(0.5, 2)))
    return Case(name, inputs, attributes)


@generator("Einsum")
def einsum(draw, name):
    equation = draw.pick(
        ["ij,jk->ik", "bij,bjk->bik", "ij->ji", "ij->j", "ij->", "i,j->ij", "bhqd,bhkd->bhqk", "i,i->", "ij,ij->i",
         "b...d,b...d->b...", "...ij,...jk->...ik", "ij,jk,kl->il", "bij , bkj -> bik", "ii->i", "ij,jk"]
    )
    sizes = {letter: draw.pick([1, 2, 3, 4]) for letter in "ijkldbhq"}
    dots = draw.shape(0, 2, zero=0)
    inputs = []
    for term in equation.replace(" ", "").split("->")[0].split(","):
        left, _, right = term.partition("...")
        shape = [sizes[letter] for letter in left] + (dots if "..." in term else []) + [sizes[letter] for letter in right]
        inputs.append(draw.array(draw.pick(["float32"]), shape))
    return Case(name, inputs, {"equation": equation})


@generator("Det")
def det(draw, name):
    size = draw.integer(1, 4)
    return Case(name, [draw.array("float32", draw.shape(0, 2) + [size, size])])


def window(draw, n_axes, kernel, with_pads=True):
    attributes = {"kernel_shape": kernel}
    if draw.chance(0.6):
        attributes["strides"] = [draw.integer(1, 3) for _ in range(n_axes)]
    if draw.chance(0.4):
        attributes["dilations"] = [draw.integer(1, 2) for _ in range(n_axes)]
    if with_pads and draw.chance(0.6):
        attributes["pads"] = [draw.integer(0, min(size - 1, 2)) for size in kernel * 2]
    elif draw.chance(0.3):
        attributes["auto_pad"] = draw.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])
        if attributes["auto_pad"] != "VALID":
            # ONNX Runtime refuses dilation with SAME padding in some operators. And where a stride exceeds
            # the kernel it crops instead of padding; ONNX's own shape inference takes no padding below 0.
            attributes.pop("dilations", None)
            if "strides" in attributes:
                attributes["strides"] = [min(pair) for pair in zip(attributes["strides"], kernel)]
    return attributes


@generator("Conv")
def conv(draw, name):
    n_axes = draw.integer(1, 3)
    group, per_in, per_out = draw.pick([1, 1, 2, 3]), draw.integer(1, 3), draw.integer(1, 3)
    kernel = [draw.integer(1, 3) for _ in range(n_axes)]
    data = draw.array("float32", [draw.integer(0 if draw.chance(0.1) else 1, 2), group * per_in] + [draw.integer(5, 9) for _ in kernel])
    inputs = [data, draw.array("float32", [group * per_out, per_in] + kernel)]
    if draw.chance(0.5):
        inputs.append(draw.array("float32", [group * per_out]))
    return Case(name, inputs, {"group": group, **window(draw, n_axes, kernel)})


@generator("ConvTranspose")
def conv_transpose(draw, name):
    n_axes = draw.integer(1, 3)
    group, per_in, per_out = draw.pick([1, 1, 2]), draw.integer(1, 3), draw.integer(1, 3)
    kernel = [draw.integer(1, 3) for _ in range(n_axes)]
    inputs = [
        draw.array("float32", [draw.integer(1, 2), group * per_in] + [draw.integer(2, 5) for _ in kernel]),
        draw.array("float32", [group * per_in, per_out] + kernel),
    ]
    if draw.chance(0.5):
        inputs.append(draw.array("float32", [group * per_out]))
    attributes = {"group": group, **window(draw, n_axes, kernel)}
    if "auto_pad" not in attributes and draw.chance(0.4):
        strides = attributes.get("strides", [1] * n_axes)
        attributes["output_padding"] = [draw.integer(0, stride - 1) for stride in strides]
    return Case(name, inputs, attributes)


@generator("MaxPool", "AveragePool", "LpPool")
def pool(draw, name):
    n_axes = draw.integer(1, 3)
    kernel = [draw.integer(1, 3) for _ in range(n_axes)]
    attributes = window(draw, n_axes, kernel)
    if "auto_pad" not in attributes and draw.chance(0.4):
        attributes["ceil_mode"] = 1
    if name == "AveragePool" and draw.chance(0.5):
        attributes["count_include_pad"] = 1
    if name == "LpPool":
        attributes["p"] = draw.integer(1, 3)
    shape = [draw.integer(1, 2), draw.integer(1, 3)] + [draw.integer(5, 9) for _ in kernel]
    if name == "MaxPool" and draw.chance(0.5):
        return Case(name, [draw.distinct("float32", shape)], attributes, 2)
    return Case(name, [draw.array("float32", shape)], attributes)


@generator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(draw, name):
    return Case(name, [draw.array("float32", draw.shape(3, 5, zero=0))])


@generator("RNN", "GRU", "LSTM")
def recurrent(draw, name):
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[name]
    direction = draw.pick(["forward", "reverse", "bidirectional"])
    n_directions = 2 if direction == "bidirectional" else 1
    length, batch, size, hidden = draw.integer(1, 5), draw.integer(1, 3), draw.integer(1, 4), draw.integer(1, 4)

    def array(*shape):
        return draw.array("float32", shape, -0.8, 0.8)

    inputs = [
        array(length, batch, size),
        array(n_directions, gates * hidden, size),
        array(n_directions, gates * hidden, hidden),
        array(n_directions, 2 * gates * hidden) if draw.chance(0.6) else None,
        # ONNX Runtime's reverse direction with lengths is defined for lengths of at least 1.
        draw.array("int32", [batch], 1, length) if draw.chance(0.4) else None,
        array(n_directions, batch, hidden) if draw.chance(0.5) else None,
    ]
    attributes = {"hidden_size": hidden, "direction": direction}
    n_outputs = 2
    if name == "LSTM":
        n_outputs = 3
        inputs.append(array(n_directions, batch, hidden) if draw.chance(0.5) else None)
        inputs.append(array(n_directions, 3 * hidden) if draw.chance(0.3) else None)
        if draw.chance(0.2):
            attributes["input_forget"] = 1
    if name == "GRU" and draw.chance(0.5):
        attributes["linear_before_reset"] = 1
    if draw.chance(0.3):
        # ONNX clips "the input of activations", the cell state before its activation included; ONNX Runtime
        # leaves the cell state out. A threshold that cell states of these sizes do not reach avoids that.
        low = 2.0 if name == "LSTM" else 0.5
        attributes["clip"] = float(draw.rng.uniform(low, 3))
    while inputs[-1] is None:
        inputs.pop()
    return Case(name, inputs, attributes, n_outputs)
