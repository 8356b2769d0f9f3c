"""Arrays at addresses that callers vouch for."""

import ctypes
import math

import numpy as np

#: Bytes of element types that numpy does not have.
_SMALL = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


def bytes_of(dtype, shape):
    """The bytes of a tensor."""
    item = _SMALL[dtype] if dtype in _SMALL else np.dtype(dtype).itemsize
    return math.prod(shape) * item


def array_at(address, dtype, shape):
    """The array at an address in host memory."""
    if not address:
        raise ValueError("the address of a tensor is 0; give that of its memory")
    dtype = np.dtype(dtype)
    memory = (ctypes.c_char * (math.prod(shape) * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype).reshape(shape)
