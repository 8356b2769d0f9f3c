"""Element types as ONNX Runtime and ONNX call them."""

import re

import numpy as np

#: By numpy's name: ONNX Runtime's name, ONNX's number, and Planish's own name.
_TYPES = {
    "float32": ("float", 1, "f32"),
    "uint8": ("uint8", 2, "u8"),
    "int8": ("int8", 3, "i8"),
    "uint16": ("uint16", 4, "u16"),
    "int16": ("int16", 5, "i16"),
    "int32": ("int32", 6, "i32"),
    "int64": ("int64", 7, "i64"),
    "bool": ("bool", 9, "bool"),
    "float16": ("float16", 10, "f16"),
    "float64": ("double", 11, "f64"),
    "uint32": ("uint32", 12, "u32"),
    "uint64": ("uint64", 13, "u64"),
    "bfloat16": ("bfloat16", 16, "bf16"),
    "float8_e4m3fn": ("float8e4m3fn", 17, "f8e4m3fn"),
    "float8_e4m3fnuz": ("float8e4m3fnuz", 18, "f8e4m3fnuz"),
    "float8_e5m2": ("float8e5m2", 19, "f8e5m2"),
    "float8_e5m2fnuz": ("float8e5m2fnuz", 20, "f8e5m2fnuz"),
    "uint4": ("uint4", 21, "u4"),
    "int4": ("int4", 22, "i4"),
    "float4_e2m1fn": ("float4e2m1", 23, "f4e2m1"),
}


def type_name(dtype):
    """`tensor(float)` of `float32`; of what is no tensor, from Planish's words."""
    if dtype in _TYPES:
        return f"tensor({_TYPES[dtype][0]})"
    names = {ours: ort for ort, _, ours in _TYPES.values()}
    # `seq(f32[n,4])` is a sequence of tensors.
    return re.sub(r"(\w+)\[[^\]]*\]", lambda found: f"tensor({names.get(found[1], found[1])})", dtype)


def type_of_number(number):
    """`tensor(float)` of ONNX's number 1."""
    return next((f"tensor({ort})" for ort, known, _ in _TYPES.values() if known == number), "tensor(string)")


def onnx_number(dtype):
    """ONNX's number of a type of numpy's."""
    return _TYPES[dtype][1]


def numpy_type(element_type):
    """A type of numpy's, from one of its own or from ONNX's number."""
    if isinstance(element_type, int) and not isinstance(element_type, bool):
        for name, (_, number, _) in _TYPES.items():
            if number == element_type:
                return name
        raise ValueError(f"{element_type} is the number of no element type that numpy has")
    return np.dtype(element_type)
