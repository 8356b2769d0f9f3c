#!/usr/bin/env python3
"""How far models in FP32 are from themselves in f64: the reference, plans with and without Winograd, ONNX Runtime.

    python3 bench/acceptance/exact.py --planish target/release/planish MODEL.onnx ...

Every float of the model becomes a double, and the reference runs that; the others run the model as it is, on the same
seeded inputs. Needs numpy, onnx and onnxruntime. Prints the relative L2 distance of each output.
"""

import argparse
import os
import subprocess
import tempfile

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper


def widened(model):
    """The model with doubles for floats."""

    def tensor(one):
        if one.data_type == TensorProto.FLOAT:
            one.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(one).astype("f8"), one.name))

    for one in model.graph.initializer:
        tensor(one)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                tensor(attribute.t)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    for value in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    return model


def random_inputs(session):
    """Normal numbers for floats, small ones for integers; 1 for open dimensions."""
    rng = numpy.random.default_rng(0)
    inputs = {}
    for port in session.get_inputs():
        shape = [size if isinstance(size, int) else 1 for size in port.shape]
        if "float" in port.type:
            inputs[port.name] = rng.standard_normal(shape).astype("f4")
        else:
            inputs[port.name] = rng.integers(0, 2 if "mask" in port.name else 100, shape)
    return inputs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--planish", default="target/release/planish")
    args = parser.parse_args()
    print(f"{'relative L2 to f64':<28} {'reference':>10} {'plan':>10} {'no Winograd':>11} {'ONNX Runtime':>12}")
    for path in args.models:
        with tempfile.TemporaryDirectory() as folder:
            wide, single, double = (os.path.join(folder, name) for name in ("wide.onnx", "single.npz", "double.npz"))
            onnx.save(widened(onnx.load(path)), wide)
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            inputs = random_inputs(session)
            numpy.savez(single, **inputs)
            numpy.savez(double, **{k: v.astype("f8") if v.dtype == numpy.float32 else v for k, v in inputs.items()})

            def run(model, given, *flags):
                target = os.path.join(folder, "out.npz")
                command = [args.planish, "run", model, "--inputs", given, "-o", target, *flags]
                subprocess.run(command, check=True, capture_output=True)
                with numpy.load(target) as found:
                    return {name: found[name].astype("f8") for name in found.files}

            exact = run(wide, double, "--backend", "reference")
            names = [port.name for port in session.get_outputs()]
            others = [
                run(path, single, "--backend", "reference"),
                run(path, single, "--device", "cpu", "--no-cache"),
                run(path, single, "--device", "cpu", "--no-cache", "--no-winograd"),
                dict(zip(names, (one.astype("f8") for one in session.run(None, inputs)))),
            ]
            for name in names:
                norm = numpy.linalg.norm(exact[name])
                apart = [numpy.linalg.norm(other[name] - exact[name]) / norm for other in others]
                title = os.path.splitext(os.path.basename(path))[0]
                print(f"{title:<28} {apart[0]:>10.1e} {apart[1]:>10.1e} {apart[2]:>11.1e} {apart[3]:>12.1e}")


if __name__ == "__main__":
    main()
