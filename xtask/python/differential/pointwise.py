"""Cases of the pointwise operators."""

import numpy as np

from .case import Case, registry
from .draw import ALL, FLOATS, INTS




GENERATORS, generator = registry()


@generator(
    "Abs", "Neg", "Ceil", "Floor", "Round", "Sign", "Exp", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Tanh",
    "Asinh", "Erf", "Sigmoid", "Relu", "Softplus", "Softsign", "HardSwish", "Mish", "Identity", "IsNaN", "IsInf",
)
def unary(draw, name):
    dtype = draw.pick(FLOATS + (INTS if name in ("Abs", "Neg", "Sign", "Relu", "Identity") else []))
    array = draw.array(dtype, draw.shape())
    if dtype.startswith("float") and name in ("IsNaN", "IsInf", "Identity", "Relu", "Abs", "Sign", "Floor", "Ceil"):
        mask = draw.rng.random(array.shape)
        array = np.where(mask < 0.1, np.nan, np.where(mask < 0.2, np.inf, np.where(mask < 0.3, -np.inf, array)))
        array = np.asarray(array, dtype)
        if name in ("Relu", "Sign"):
            # ONNX does not define these of NaN.
            array = np.nan_to_num(array, nan=0.0, posinf=np.inf, neginf=-np.inf).astype(dtype)
    return Case(name, [array])


@generator("Log", "Sqrt", "Reciprocal", "Acosh")
def positive(draw, name):
    low = 1.0 if name == "Acosh" else 0.05
    return Case(name, [draw.array(draw.pick(FLOATS), draw.shape(), low, 9.0)])


@generator("Acos", "Asin", "Atanh")
def inside_one(draw, name):
    return Case(name, [draw.array(draw.pick(FLOATS), draw.shape(), -0.95, 0.95)])


@generator("LeakyRelu", "Elu", "Celu", "ThresholdedRelu", "HardSigmoid", "Selu", "Shrink", "Gelu")
def activation(draw, name):
    attributes = {}
    if name in ("LeakyRelu", "Elu", "Celu", "ThresholdedRelu", "HardSigmoid", "Selu") and draw.chance(0.7):
        attributes["alpha"] = float(draw.rng.uniform(0.1, 2))
    if name == "HardSigmoid" and draw.chance(0.5):
        attributes["beta"] = float(draw.rng.uniform(0.1, 1))
    if name == "Selu" and draw.chance(0.5):
        attributes["gamma"] = float(draw.rng.uniform(0.5, 2))
    if name == "Shrink":
        attributes = {"lambd": float(draw.rng.uniform(0, 2)), "bias": float(draw.rng.uniform(0, 1))}
    if name == "Gelu" and draw.chance(0.5):
        attributes["approximate"] = "tanh"
    return Case(name, [draw.array(draw.pick(FLOATS), draw.shape())], attributes)


def two(draw, dtype, low=None, high=None):
    shape = draw.shape()
    return [draw.array(dtype, draw.operand(shape), low, high), draw.array(dtype, shape, low, high)]


@generator("Add", "Sub", "Mul")
def arithmetic(draw, name):
    pair = two(draw, draw.pick(FLOATS + INTS))
    return Case(name, pair[:: draw.pick([1, -1])])


@generator("Div")
def division(draw, name):
    dtype = draw.pick(FLOATS + INTS)
    a, b = two(draw, dtype)
    if dtype not in ("float16", "float32", "float64"):
        b = np.where(b == 0, np.asarray(3, b.dtype), b)
    else:
        b = np.where(np.abs(b) < 0.1, np.asarray(1.5, b.dtype), b)
    return Case(name, [a, np.asarray(b, dtype)])


@generator("Mod")
def modulo(draw, name):
    fmod = draw.chance(0.5)
    dtype = draw.pick(FLOATS + INTS) if fmod else draw.pick(INTS)
    a, b = two(draw, dtype)
    b = np.where(np.abs(b.astype("float64")) < 0.5, np.asarray(3, b.dtype), b)
    return Case(name, [a, np.asarray(b, dtype)], {"fmod": int(fmod)})


@generator("Pow")
def power(draw, name):
    shape = draw.shape()
    base = draw.array(draw.pick(["float32", "float64", "int32", "int64"]), draw.operand(shape), 0.1, 3)
    exponent = draw.array(draw.pick(["float32", "float64", "int32", "int64"]), shape, 0, 3)
    return Case(name, [base, exponent])


@generator("Min", "Max", "Sum", "Mean")
def variadic(draw, name):
    dtype = draw.pick(FLOATS + (["int32", "int64", "uint32", "uint64"] if name in ("Min", "Max") else []))
    shape = draw.shape()
    return Case(name, [draw.array(dtype, draw.operand(shape)) for _ in range(draw.integer(1, 4))])


@generator("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
def comparison(draw, name):
    dtype = draw.pick(ALL if name == "Equal" else FLOATS + INTS)
    a, b = two(draw, dtype)
    if dtype.startswith("float"):
        a, b = np.round(a), np.round(b)
    return Case(name, [a.astype(dtype), b.astype(dtype)])


@generator("And", "Or", "Xor")
def logic(draw, name):
    return Case(name, two(draw, "bool"))


@generator("Not")
def negation(draw, name):
    return Case(name, [draw.array("bool", draw.shape())])


@generator("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(draw, name):
    return Case(name, two(draw, draw.pick(INTS), -100, 100))


@generator("BitwiseNot")
def bitwise_not(draw, name):
    return Case(name, [draw.array(draw.pick(INTS), draw.shape(), -100, 100)])


@generator("BitShift")
def bit_shift(draw, name):
    dtype = draw.pick(["uint8", "uint32", "uint64"])
    shape = draw.shape()
    values, amounts = draw.array(dtype, shape, 0, 200), draw.array(dtype, draw.operand(shape), 0, 7)
    return Case(name, [values, amounts], {"direction": draw.pick(["LEFT", "RIGHT"])})


@generator("Where")
def where(draw, name):
    shape, dtype = draw.shape(), draw.pick(["float32", "float64", "int32", "int64", "uint8", "bool"])
    condition = draw.array("bool", draw.operand(shape))
    return Case(name, [condition, draw.array(dtype, draw.operand(shape)), draw.array(dtype, draw.operand(shape))])


@generator("Clip")
def clip(draw, name):
    dtype = draw.pick(["float32", "float64", "float16", "int32", "int64", "int8", "uint8", "uint32", "uint64"])
    low = draw.array(dtype, [], -3, 0) if draw.chance(0.7) else None
    high = draw.array(dtype, [], 0, 4) if draw.chance(0.7) else None
    return Case(name, [draw.array(dtype, draw.shape()), low, high], parameters=(1, 2))


@generator("PRelu")
def prelu(draw, name):
    dtype, shape = draw.pick(FLOATS), draw.shape(1, 4)
    return Case(name, [draw.array(dtype, shape), draw.array(dtype, draw.operand(shape))])


@generator("Cast")
def cast(draw, name):
    source = draw.pick(ALL)
    target = draw.pick(["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT8", "INT16", "INT32", "INT64", "UINT8",
                        "UINT16", "UINT32", "UINT64", "BOOL"])
    from onnx import TensorProto

    # Numbers that every target can hold: what overflow gives is not defined.
    low, high = (0, 100) if target.startswith("U") else (-100, 100)
    return Case(name, [draw.array(source, draw.shape(), low, high)], {"to": getattr(TensorProto, target)})
