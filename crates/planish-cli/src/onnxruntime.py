"""Runs a model with ONNX Runtime: python3 onnxruntime.py MODEL FOLDER. Every in_N.npz there becomes an out_N.npz."""

import pathlib
import sys

import numpy
import onnxruntime

options = onnxruntime.SessionOptions()
options.log_severity_level = 3
model, folder = sys.argv[1], pathlib.Path(sys.argv[2])
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
names = [output.name for output in session.get_outputs()]
wanted = {value.name for value in session.get_inputs()}
for path in sorted(folder.glob("in_*.npz")):
    with numpy.load(path) as arrays:
        feed = {name: arrays[name] for name in arrays.files if name in wanted}
    results = session.run(names, feed)
    numpy.savez(folder / path.name.replace("in_", "out_"), **{f"output {at}": x for at, x in enumerate(results)})
(folder / "names.txt").write_text("\n".join(names))
