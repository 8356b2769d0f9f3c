"""Cases of com.microsoft operators."""

import numpy as np

from .case import Case, registry
from .linear import window
from .quantize import scale, zero_point

GENERATORS, generator = registry()
DOMAIN = "com.microsoft"


def case(name, inputs, attributes=None, n_outputs=1, **more):
    return Case(name.split(".")[-1], inputs, attributes or {}, n_outputs, domain=DOMAIN, **more)


@generator("ms.Gelu", "ms.QuickGelu")
def gelu(draw, name):
    return case(name, [draw.array("float32", draw.shape(1, 3, zero=0))])


@generator("ms.FastGelu", "ms.BiasGelu")
def bias_gelu(draw, name):
    shape = draw.shape(2, 3, zero=0)
    return case(name, [draw.array("float32", shape), draw.array("float32", shape[-1:])])


@generator("ms.FusedMatMul")
def fused_matmul(draw, name):
    m, k, n = draw.dim(0), draw.dim(0), draw.dim(0)
    batch = draw.shape(0, 2, zero=0)
    a, b = draw.integer(0, 1), draw.integer(0, 1)
    shapes = [batch + ([k, m] if a else [m, k]), batch + ([n, k] if b else [k, n])]
    attributes = {"transA": a, "transB": b, "alpha": float(draw.rng.uniform(0.5, 2))}
    return case(name, [draw.array("float32", shape) for shape in shapes], attributes)


@generator("ms.FusedConv")
def fused_conv(draw, name):
    kernel, channels = [draw.integer(1, 3), draw.integer(1, 3)], draw.integer(1, 3)
    activation = draw.pick(["Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid"])
    params = {"LeakyRelu": [0.1], "Clip": [-0.5, 1.5], "HardSigmoid": [0.2, 0.5]}.get(activation)
    attributes = {"activation": activation, **window(draw, 2, kernel)}
    if params:
        attributes["activation_params"] = params
    out = draw.integer(1, 3)
    inputs = [draw.array("float32", [1, channels, 6, 7]), draw.array("float32", [out, channels] + kernel), draw.array("float32", [out])]
    return case(name, inputs, attributes)


@generator("ms.FusedGemm")
def fused_gemm(draw, name):
    m, k, n = draw.dim(0), draw.dim(0), draw.dim(0)
    inputs = [draw.array("float32", shape) for shape in ([m, k], [k, n], [n])]
    activation = draw.pick(["Relu", "Tanh", "Sigmoid", "LeakyRelu"])
    attributes = {"activation": activation}
    if activation == "LeakyRelu":
        attributes["activation_alpha"] = 0.2
    return case(name, inputs, attributes)


@generator("ms.SkipLayerNormalization", "ms.SkipSimplifiedLayerNormalization")
def skip_norm(draw, name):
    shape = [draw.integer(1, 2), draw.integer(1, 4), draw.pick([4, 8, 6])]
    vector = shape[-1:]
    inputs = [draw.array("float32", shape), draw.array("float32", shape), draw.array("float32", vector)]
    if name == "ms.SkipLayerNormalization":
        inputs.append(draw.array("float32", vector) if draw.chance(0.7) else None)
    inputs.append(draw.array("float32", vector) if draw.chance(0.5) else None)
    while inputs[-1] is None:
        inputs.pop()
    return case(name, inputs, {"epsilon": 1e-5})


@generator("ms.EmbedLayerNormalization")
def embed(draw, name):
    batch, length, hidden = draw.integer(1, 2), draw.integer(1, 5), draw.pick([4, 8])
    inputs = [
        draw.array("int32", [batch, length], 0, 9),
        draw.array("int32", [batch, length], 0, 1),
        draw.array("float32", [10, hidden]),
        draw.array("float32", [8, hidden]),
        draw.array("float32", [2, hidden]),
        draw.array("float32", [hidden]),
        draw.array("float32", [hidden]),
        draw.array("int32", [batch, length], 0, 1),
    ]
    return case(name, inputs, {"epsilon": 1e-5}, 2)


@generator("ms.Attention")
def attention(draw, name):
    batch, length, n_heads, size = draw.integer(1, 2), draw.integer(1, 5), draw.integer(1, 3), draw.pick([2, 4])
    hidden = n_heads * size
    mask = None
    form = draw.integer(0, 3)
    if form == 1:
        mask = draw.array("int32", [batch], 1, length)
    elif form == 2:
        mask = draw.array("int32", [batch, length], 0, 1)
        mask[:, 0] = 1
    elif form == 3:
        mask = draw.array("int32", [batch, length, length], 0, 1)
        mask[:, :, 0] = 1
    # Small numbers: softmax of large scores magnifies the rounding of the scores.
    inputs = [draw.array("float32", shape, -1, 1) for shape in ([batch, length, 5], [5, 3 * hidden], [3 * hidden])]
    if mask is not None:
        inputs.append(mask)
    attributes = {"num_heads": n_heads}
    if draw.chance(0.3) and form == 0:
        attributes["unidirectional"] = 1
    return case(name, inputs, attributes)


@generator("ms.MultiHeadAttention")
def mha(draw, name):
    batch, length, keys = draw.integer(1, 2), draw.integer(1, 5), draw.integer(1, 5)
    n_heads, size = draw.integer(1, 3), draw.pick([2, 4])
    hidden = n_heads * size
    inputs = [draw.array("float32", [batch, count, hidden], -1, 1) for count in (length, keys, keys)]
    inputs.append(draw.array("float32", [3 * hidden]) if draw.chance(0.5) else None)
    mask = None
    if draw.chance(0.4):
        mask = draw.array("int32", [batch, keys], 0, 1)
        mask[:, 0] = 1
    inputs.append(mask)
    inputs.append(draw.array("float32", [batch, n_heads, length, keys]) if draw.chance(0.3) else None)
    while inputs[-1] is None:
        inputs.pop()
    attributes = {"num_heads": n_heads}
    if draw.chance(0.3):
        attributes["scale"] = 0.3
    return case(name, inputs, attributes)


@generator("ms.QLinearAdd", "ms.QLinearMul")
def qlinear_binary(draw, name):
    shape, dtype = draw.shape(1, 4, zero=0), draw.pick(["uint8", "int8"])
    inputs = []
    for operand in (draw.operand(shape), shape):
        inputs += [draw.array(dtype, operand, -100, 100), scale(draw), zero_point(draw, dtype)]
    return case(name, inputs + [scale(draw, factor=4), zero_point(draw, dtype)])


@generator("ms.QLinearSigmoid", "ms.QLinearLeakyRelu", "ms.QLinearSoftmax")
def qlinear_unary(draw, name):
    shape, dtype = draw.shape(2, 4, zero=0), draw.pick(["uint8", "int8"])
    attributes = {"ms.QLinearLeakyRelu": {"alpha": 0.1}, "ms.QLinearSoftmax": {"axis": -1, "opset": 13}}.get(name, {})
    out_scale = np.asarray(1 / 256, np.float32) if name != "ms.QLinearLeakyRelu" else scale(draw)
    zero = np.asarray(0 if dtype == "uint8" else -128, dtype)
    inputs = [draw.array(dtype, shape, -100, 100), scale(draw, factor=0.25), zero_point(draw, dtype), out_scale, zero]
    return case(name, inputs, attributes, parameters=(1, 2, 3, 4))


@generator("ms.QLinearGlobalAveragePool", "ms.QLinearAveragePool")
def qlinear_pool(draw, name):
    last = draw.integer(0, 1)
    shape = [1, 5, 6, 3] if last else [1, 3, 5, 6]
    attributes = {"channels_last": last}
    if name == "ms.QLinearAveragePool":
        attributes["kernel_shape"] = [2, 2]
    inputs = [draw.array("uint8", shape, 0, 200), scale(draw), zero_point(draw, "uint8"), scale(draw), zero_point(draw, "uint8")]
    return case(name, inputs, attributes)


@generator("ms.QLinearConcat")
def qlinear_concat(draw, name):
    shape, axis = [2, 3, 4], draw.integer(0, 2)
    inputs = [scale(draw), zero_point(draw, "uint8")]
    for _ in range(draw.integer(1, 3)):
        inputs += [draw.array("uint8", shape, 0, 200), scale(draw), zero_point(draw, "uint8")]
    return case(name, inputs, {"axis": axis}, parameters=tuple(i for i in range(len(inputs)) if i < 2 or i % 3 != 2))


@generator("ms.DynamicQuantizeMatMul")
def dynamic_quantize_matmul(draw, name):
    m, k, n = draw.dim(0), draw.dim(0), draw.dim(0)
    inputs = [draw.array("float32", [m, k]), draw.array("uint8", [k, n], 0, 120), scale(draw), zero_point(draw, "uint8")]
    if draw.chance(0.5):
        inputs.append(draw.array("float32", [n]))
    return case(name, inputs)


@generator("ms.MatMulIntegerToFloat")
def matmul_integer_to_float(draw, name):
    m, k, n = draw.dim(0), draw.dim(0), draw.dim(0)
    inputs = [draw.array("uint8", [m, k], 0, 120), draw.array("uint8", [k, n], 0, 120), scale(draw), scale(draw)]
    inputs += [zero_point(draw, "uint8"), zero_point(draw, "uint8")]
    if draw.chance(0.5):
        inputs.append(draw.array("float32", [n]))
    return case(name, inputs)


@generator("ms.MatMulNBits")
def matmul_n_bits(draw, name):
    k, n, block = draw.pick([16, 32, 40, 64]), draw.integer(1, 5), draw.pick([16, 32])
    n_blocks = -(-k // block)
    weights = draw.rng.integers(0, 256, [n, n_blocks, block // 2]).astype("uint8")
    inputs = [draw.array("float32", [draw.integer(1, 3), k]), weights, draw.array("float32", [n * n_blocks], 0.01, 0.1)]
    if draw.chance(0.5):
        inputs.append(draw.rng.integers(0, 256, [n * ((n_blocks + 1) // 2)]).astype("uint8"))
    attributes = {"K": k, "N": n, "bits": 4, "block_size": block}
    return case(name, inputs, attributes, parameters=(1, 2, 3), always_constant=True)


@generator("ms.QAttention")
def qattention(draw, name):
    batch, length, n_heads, size = 1, draw.integer(1, 4), draw.integer(1, 2), 4
    hidden = n_heads * size
    inputs = [draw.array("uint8", [batch, length, 5], 0, 100), draw.array("uint8", [5, 3 * hidden], 0, 100), draw.array("float32", [3 * hidden])]
    inputs += [scale(draw, factor=0.1), scale(draw, factor=0.1), None, zero_point(draw, "uint8"), zero_point(draw, "uint8")]
    return case(name, inputs, {"num_heads": n_heads}, parameters=(1, 2, 3, 4, 6, 7), always_constant=True)


@generator("ms.NhwcMaxPool")
def nhwc_max_pool(draw, name):
    return case(name, [draw.array("uint8", [1, 6, 7, 3], 0, 200)], window(draw, 2, [2, 3]))


@generator("ms.Inverse")
def inverse(draw, name):
    size = draw.integer(1, 4)
    array = draw.array("float32", draw.shape(0, 2, zero=0) + [size, size], -1, 1) + 3 * np.eye(size, dtype="float32")
    return case(name, [array])


@generator("ms.GatherND")
def gather_nd(draw, name):
    return case(name, [draw.array("float32", [3, 4, 2]), draw.array("int64", [2, 2], 0, 2)])


@generator("ms.ExpandDims")
def expand_dims(draw, name):
    shape = draw.shape(1, 3)
    axis = np.asarray(draw.integer(-len(shape), len(shape)), np.int32)
    return case(name, [draw.array("float32", shape), axis], parameters=(1,))


@generator("ms.Range")
def range_(draw, name):
    return case(name, [np.asarray(v, np.float32) for v in (draw.integer(-3, 3), draw.integer(0, 9), draw.integer(1, 2))], parameters=(0, 1, 2))


@generator("ms.Unique")
def unique(draw, name):
    return case(name, [draw.array("int64", [draw.integer(1, 12)], 0, 4).astype("float32")], {}, 3)


@generator("ms.Pad")
def pad(draw, name):
    pads = np.asarray([draw.integer(0, 2) for _ in range(4)], np.int64)
    inputs = [draw.array("float32", [draw.integer(3, 5), draw.integer(3, 5)]), pads, draw.array("float32", [1])]
    return case(name, inputs, {"mode": "constant"}, parameters=(1, 2))


@generator("ms.CropAndResize")
def crop_and_resize(draw, name):
    count = draw.integer(1, 3)
    low, high = draw.array("float32", [count, 2], 0, 0.4), draw.array("float32", [count, 2], 0.5, 1.0)
    inputs = [draw.array("float32", [2, 2, 6, 7]), np.concatenate([low, high], 1), draw.array("int32", [count], 0, 1), np.asarray([3, 4], np.int32)]
    return case(name, inputs, {"mode": draw.pick(["bilinear", "nearest"]), "extrapolation_value": 0.5}, parameters=(3,))
