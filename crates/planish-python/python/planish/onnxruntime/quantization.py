"""ONNX Runtime's quantizer, where its package is installed: it writes ONNX files, which sessions here take.

Planish has its own: `planish quantize` writes a model with Q/DQ nodes, `planish.build(precision="int8", calib=…)` a plan.
"""

import importlib


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return getattr(importlib.import_module("onnxruntime.quantization"), name)
    except ImportError as error:
        raise ImportError(
            "ONNX Runtime's quantizer comes with its package (pip install onnxruntime onnx); without it: planish quantize MODEL --calib FOLDER, "
            "or planish.build(model, precision='int8', calib=samples)"
        ) from error
