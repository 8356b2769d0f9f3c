"""Element types and sizes as TensorRT calls them."""

import enum
import math

import numpy as np


class DataType(enum.IntEnum):
    """Element types."""

    FLOAT = 0
    HALF = 1
    INT8 = 2
    INT32 = 3
    BOOL = 4
    UINT8 = 5
    FP8 = 6
    BF16 = 7
    INT64 = 8
    INT4 = 9

    @property
    def itemsize(self):
        """Bytes of an element in memory."""
        return np.dtype(_NUMPY[self]).itemsize


float32, float16, int8, int32 = DataType.FLOAT, DataType.HALF, DataType.INT8, DataType.INT32
bool, uint8, fp8, bfloat16, int64, int4 = (  # noqa: A001, as TensorRT calls them
    DataType.BOOL, DataType.UINT8, DataType.FP8, DataType.BF16, DataType.INT64, DataType.INT4
)

_NUMPY = {
    DataType.FLOAT: "float32",
    DataType.HALF: "float16",
    DataType.INT8: "int8",
    DataType.INT32: "int32",
    DataType.BOOL: "bool",
    DataType.UINT8: "uint8",
    DataType.INT64: "int64",
}


class Dims(tuple):
    """Sizes; -1 is one that a run decides."""

    MAX_DIMS = 8

    def __new__(cls, *sizes):
        if len(sizes) == 1 and not isinstance(sizes[0], (int, np.integer)):
            sizes = tuple(sizes[0])
        return super().__new__(cls, (int(size) for size in sizes))

    def numel(self):
        """How many elements there are."""
        return math.prod(self)


class Dims2(Dims):
    """Two sizes."""


class Dims3(Dims):
    """Three sizes."""


class Dims4(Dims):
    """Four sizes."""


class DimsHW(Dims2):
    """Height and width."""

    h = property(lambda self: self[0], doc="The height.")
    w = property(lambda self: self[1], doc="The width.")


class Permutation(Dims):
    """An order of axes."""


def nptype(dtype):
    """Numpy's type of one of TensorRT's."""
    if dtype not in _NUMPY:
        raise TypeError(f"Could not resolve TensorRT datatype {dtype!r} to an equivalent numpy datatype.")
    return np.dtype(_NUMPY[dtype]).type


def volume(shape):
    """How many elements there are."""
    return math.prod(shape)


def of_numpy(name):
    """TensorRT's type of a name of numpy's."""
    others = {"float8_e4m3fn": DataType.FP8, "bfloat16": DataType.BF16, "int4": DataType.INT4}
    for dtype, known in _NUMPY.items():
        if known == name:
            return dtype
    if name not in others:
        raise TypeError(f"TensorRT has no element type for {name}")
    return others[name]


def dims_of(info):
    """Sizes of an input or an output, -1 where they are open."""
    return Dims(size if isinstance(size, int) else -1 for size in info.shape or ())
