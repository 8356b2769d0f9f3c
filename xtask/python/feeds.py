"""Seeded, realistic inputs for models, from specifications like those of xtask/suites/models.tsv.

An input specification is `name=kind(arguments):shape`, a shape `1x3x224x224` (empty for a scalar). Kinds:
image (smooth picture in 0..1), audio (chirps and noise in -1..1), noise (normal), uniform(low,high),
ids(limit), ones, zeros, const(value). The element type is the model's.
"""

import re
import zlib

import numpy as np


def smooth(rng, shape):
    """A picture-like array: a few waves of low frequency along the two longest axes, and a little noise."""
    rows, columns = sorted(range(len(shape)), key=lambda axis: shape[axis])[-2:]
    array = np.zeros(shape)
    for _ in range(6):
        phase = rng.uniform(0, 2 * np.pi, [1 if axis in (rows, columns) else n for axis, n in enumerate(shape)])
        for axis in (rows, columns):
            place = np.arange(shape[axis]) / shape[axis]
            view = [1] * len(shape)
            view[axis] = -1
            phase = phase + 2 * np.pi * rng.uniform(0.5, 6) * place.reshape(view)
        array += np.sin(phase)
    array += rng.normal(0, 0.2, shape)
    return (array - array.min()) / (array.max() - array.min())


def make(kind, arguments, shape, rng):
    if kind == "image":
        return smooth(rng, shape)
    if kind == "audio":
        t = np.arange(int(np.prod(shape))) / 16000
        wave = 0.4 * np.sin(2 * np.pi * (200 + 300 * t) * t) + 0.1 * rng.normal(size=t.shape)
        return wave.reshape(shape)
    if kind == "noise":
        return rng.normal(size=shape)
    if kind == "uniform":
        return rng.uniform(arguments[0], arguments[1], shape)
    if kind == "ids":
        return rng.integers(0, int(arguments[0]), shape)
    if kind == "ones":
        return np.ones(shape)
    if kind == "zeros":
        return np.zeros(shape)
    if kind == "const":
        return np.full(shape, arguments[0])
    raise ValueError(f"unknown kind of input: {kind}")


def feeds(name, types, specification):
    """Arrays by input name, in the order of `types` (input name to numpy type)."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    arrays = {}
    for part in specification.split():
        input_name, kind, arguments, shape = re.fullmatch(r"(.+)=(\w+)(?:\((.*)\))?:([\dx]*)", part).groups()
        arguments = [float(a) for a in arguments.split(",")] if arguments else []
        shape = [int(d) for d in shape.split("x")] if shape else []
        arrays[input_name] = np.asarray(make(kind, arguments, shape, rng)).astype(types[input_name])
    return {input_name: arrays[input_name] for input_name in types}
