"""Random shapes, arrays and choices for the differential cases. Everything comes from one seeded generator."""

import ml_dtypes
import numpy as np

FLOATS = ["float32", "float32", "float32", "float64", "float16"]
INTS = ["int32", "int64", "int8", "uint8", "int16", "uint16", "uint32", "uint64"]
ALL = FLOATS + INTS + ["bool"]


class Draw:
    """One case's source of randomness."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def chance(self, probability):
        return self.rng.random() < probability

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low, high):
        """An integer in low..=high."""
        return int(self.rng.integers(low, high + 1))

    def dim(self, zero=0.04):
        if self.chance(zero):
            return 0
        return self.pick([1, 1, 2, 3, 4, 5, 7])

    def shape(self, low=0, high=4, zero=0.04):
        return [self.dim(zero) for _ in range(self.integer(low, high))]

    def axis(self, rank):
        """An axis, counted from either end."""
        return self.integer(-rank, rank - 1)

    def operand(self, shape):
        """A shape that broadcasts to `shape`."""
        operand = [1 if self.chance(0.25) else dim for dim in shape]
        if self.chance(0.3):
            operand = operand[self.integer(0, len(operand)) :]
        return operand

    def array(self, dtype, shape, low=None, high=None):
        """Elements in low..high; by default small numbers of both signs, with repeats for integers."""
        if dtype == "bool":
            return self.rng.random(shape) < 0.5
        if np.issubdtype(np.dtype(dtype), np.floating):
            if low is not None:
                return np.asarray(self.rng.uniform(low, high, shape)).astype(dtype)
            return np.asarray(self.rng.normal(0, 2, shape)).astype(dtype)
        info = np.iinfo(dtype)
        low = max(-10 if low is None else int(low), info.min)
        high = min(10 if high is None else int(high), info.max)
        return np.asarray(self.rng.integers(low, high + 1, shape)).astype(dtype)

    def bfloat16(self, shape):
        return np.asarray(self.rng.normal(0, 2, shape)).astype(ml_dtypes.bfloat16)

    def distinct(self, dtype, shape):
        """Elements that all differ, for operators whose ties may be broken in any order."""
        count = int(np.prod(shape, dtype=int))
        return (self.rng.permutation(count) - count // 2).reshape(shape).astype(dtype)

    def permutation(self, count):
        return [int(i) for i in self.rng.permutation(count)]
