"""Runs models in ONNX Runtime on seeded, realistic inputs and stores inputs and outputs as TensorProto files.

usage: model_cases.py LIST OUT [--trace]   LIST: lines of name, model path and input specifications, tab-separated

Input specifications are those of feeds.py. OUT/NAME/test_data_set_0 is written last, so that a folder of that name
is complete. With --trace, the values between the nodes are written as well, to OUT/NAME/trace.
"""

import os
import sys
import tempfile

import feeds
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


def inputs_of(name, session, specification):
    types = {i.name: TYPES[i.type] for i in session.get_inputs()}
    return list(feeds.feeds(name, types, specification).items())


def trace(path, inputs, out):
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
        inputs = inputs_of(name, session, specification)
        if tracing:
            trace(path, inputs, os.path.join(out, name, "trace"))
            continue
        outputs = session.run(None, dict(inputs))
        os.makedirs(os.path.dirname(final), exist_ok=True)
        partial = tempfile.mkdtemp(dir=os.path.dirname(final))
        for idx, (_, array) in enumerate(inputs):
            save(numpy_helper.from_array(array), os.path.join(partial, f"input_{idx}.pb"))
        for idx, array in enumerate(outputs):
            save(numpy_helper.from_array(np.asarray(array)), os.path.join(partial, f"output_{idx}.pb"))
        os.rename(partial, final)


def save(tensor, path):
    with open(path, "wb") as file:
        file.write(tensor.SerializeToString())


main()
