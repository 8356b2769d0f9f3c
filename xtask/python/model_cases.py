"""Runs models in ONNX Runtime on seeded, realistic inputs and stores inputs and outputs as TensorProto files.

usage: model_cases.py LIST OUT [--trace]   LIST: lines of name, model path and input specifications, tab-separated

An input specification is `name=kind(arguments):shape`, a shape `1x3x224x224` (empty for a scalar). Kinds:
image (smooth picture in 0..1), audio (chirps and noise in -1..1), noise (normal), uniform(low,high),
ids(limit), ones, zeros, const(value). The element type is the model's. OUT/NAME/test_data_set_0 is written
last, so that a folder of that name is complete. With --trace, the values between the nodes are written as
well, to OUT/NAME/trace.
"""

import os
import re
import sys
import tempfile
import zlib

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(bool)": np.bool_,
}


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


def inputs_of(name, session, specification):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    types = {i.name: i.type for i in session.get_inputs()}
    feeds = {}
    for part in specification.split():
        input_name, kind, arguments, shape = re.fullmatch(r"(.+)=(\w+)(?:\((.*)\))?:([\dx]*)", part).groups()
        arguments = [float(a) for a in arguments.split(",")] if arguments else []
        shape = [int(d) for d in shape.split("x")] if shape else []
        feeds[input_name] = np.asarray(make(kind, arguments, shape, rng)).astype(TYPES[types[input_name]])
    return [(i.name, feeds[i.name]) for i in session.get_inputs()]


def trace(path, feeds, out):
    """Every value that the model's nodes make, as TensorProto files that carry the value's name."""
    model = onnx.load(path)
    outputs = {output.name for output in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name and name not in outputs]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = session_of(model.SerializeToString())
    os.makedirs(out, exist_ok=True)
    wanted = [output.name for output in session.get_outputs()]
    for idx, (name, array) in enumerate(zip(wanted, session.run(wanted, dict(feeds)))):
        if isinstance(array, np.ndarray):
            save(numpy_helper.from_array(array, name), os.path.join(out, f"{idx}.pb"))


def session_of(model):
    options = ort.SessionOptions()
    # The operators as they are written, not as fused: that is what the reference defines.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def main():
    listing, out = sys.argv[1:3]
    tracing = "--trace" in sys.argv
    for line in open(listing):
        name, path, specification = line.rstrip("\n").split("\t")
        final = os.path.join(out, name, "test_data_set_0")
        if os.path.isdir(final) and not tracing:
            continue
        session = session_of(path)
        feeds = inputs_of(name, session, specification)
        if tracing:
            trace(path, feeds, os.path.join(out, name, "trace"))
            continue
        outputs = session.run(None, dict(feeds))
        os.makedirs(os.path.dirname(final), exist_ok=True)
        partial = tempfile.mkdtemp(dir=os.path.dirname(final))
        for idx, (_, array) in enumerate(feeds):
            save(numpy_helper.from_array(array), os.path.join(partial, f"input_{idx}.pb"))
        for idx, array in enumerate(outputs):
            save(numpy_helper.from_array(np.asarray(array)), os.path.join(partial, f"output_{idx}.pb"))
        os.rename(partial, final)


def save(tensor, path):
    with open(path, "wb") as file:
        file.write(tensor.SerializeToString())


main()
