"""Arrays at addresses that callers vouch for."""

import ctypes
import math

import numpy as np


def array_at(address, dtype, shape):
    """The array at an address in host memory."""
    if not address:
        raise ValueError("the address of a tensor is 0; give that of its memory")
    dtype = np.dtype(dtype)
    memory = (ctypes.c_char * (math.prod(shape) * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype).reshape(shape)
