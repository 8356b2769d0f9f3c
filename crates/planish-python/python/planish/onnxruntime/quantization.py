"""ONNX Runtime's quantizer, where its package is installed: it writes ONNX files, which sessions here take.

Planish has its own: `planish quantize` writes a model with Q/DQ nodes, `planish.build(precision="int8", calib=…)` a plan.
"""

try:
    from onnxruntime.quantization import *  # noqa: F403
except ImportError as error:
    raise ImportError(
        "ONNX Runtime's quantizer comes with its package (pip install onnxruntime onnx); without it: planish quantize MODEL --calib FOLDER, "
        "or planish.build(model, precision='int8', calib=samples)"
    ) from error
