"""Element types and sizes as TensorRT calls them."""

import collections.abc
import math

import numpy as np

from .._named import Named


class DataType(Named):
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
    FP4 = 10
    E8M0 = 11

    @property
    def itemsize(self):
        """Bytes of an element; a fraction of one where several share it."""
        return {DataType.INT4: 0.5, DataType.FP4: 0.5, DataType.BF16: 2, DataType.FP8: 1, DataType.E8M0: 1}.get(self) or np.dtype(_NUMPY[self]).itemsize


float32, float16, int8, int32 = DataType.FLOAT, DataType.HALF, DataType.INT8, DataType.INT32
bool, uint8, fp8, bfloat16, int64, int4 = (  # noqa: A001, as TensorRT calls them
    DataType.BOOL, DataType.UINT8, DataType.FP8, DataType.BF16, DataType.INT64, DataType.INT4
)
fp4, e8m0 = DataType.FP4, DataType.E8M0

_NUMPY = {
    DataType.FLOAT: "float32",
    DataType.HALF: "float16",
    DataType.INT8: "int8",
    DataType.INT32: "int32",
    DataType.BOOL: "bool",
    DataType.UINT8: "uint8",
    DataType.INT64: "int64",
}


class Dims(collections.abc.Sequence):
    """Sizes; -1 is one that a run decides. Scripts write to them: `shape[0] = 8`."""

    MAX_DIMS = 8

    def __init__(self, *sizes):
        if len(sizes) == 1 and not isinstance(sizes[0], (int, np.integer)):
            sizes = tuple(sizes[0])
        self._sizes = [int(size) for size in sizes]

    def __len__(self):
        return len(self._sizes)

    def __getitem__(self, place):
        return Dims(self._sizes[place]) if isinstance(place, slice) else self._sizes[place]

    def __setitem__(self, place, size):
        self._sizes[place] = [int(each) for each in size] if isinstance(place, slice) else int(size)

    def __eq__(self, other):
        if not isinstance(other, (Dims, tuple, list)):
            return NotImplemented
        return self._sizes == list(other)

    __hash__ = None

    # Sizes are put together with tuples and lists.
    def __add__(self, other):
        return tuple(self) + tuple(other)

    def __radd__(self, other):
        return tuple(other) + tuple(self)

    def __repr__(self):
        return repr(tuple(self._sizes))

    def numel(self):
        """How many elements there are."""
        return math.prod(self._sizes)


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
    others = {"float8_e4m3fn": DataType.FP8, "bfloat16": DataType.BF16, "int4": DataType.INT4, "float4_e2m1fn": DataType.FP4}
    for dtype, known in _NUMPY.items():
        if known == name:
            return dtype
    if name not in others:
        raise TypeError(f"TensorRT has no element type for {name}")
    return others[name]


def dims_of(info):
    """Sizes of an input or an output, -1 where they are open."""
    return Dims(size if isinstance(size, int) else -1 for size in info.shape or ())
