"""ONNX Runtime's interface over Planish: `import planish.onnxruntime as ort` in place of `import onnxruntime as ort`.

>>> import planish.onnxruntime as ort
>>> planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }').save_onnx("relu.onnx")
>>> session = ort.InferenceSession("relu.onnx", providers=["CPUExecutionProvider"])
>>> session.get_inputs()[0].type, session.get_inputs()[0].shape
('tensor(float)', ['n'])
>>> session.run(None, {"x": numpy.float32([-1, 2])})
[array([0., 2.], dtype=float32)]

A session is built when it is made, and kept in the user's cache folder: the next one of the same model is opened. What has
no meaning here is taken and left alone; what is not honoured though it would change something says so once.
"""

from ._options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from ._providers import get_all_providers, get_available_providers, get_device
from ._session import InferenceSession, ModelMetadata, NodeArg
from ._values import IOBinding, OrtDevice, OrtValue

#: The version of ONNX Runtime's interface that is followed.
__version__ = "1.20.0"

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtDevice",
    "OrtValue",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "preload_dlls",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]

#: Another name of it.
SessionIOBinding = IOBinding


def get_version_string():
    """The version of ONNX Runtime's interface that is followed."""
    return __version__


def get_build_info():
    """What this is."""
    import planish

    return f"Planish {planish.__version__}, in the place of ONNX Runtime {__version__}"


def set_default_logger_severity(level):
    """Taken and left alone: nothing is logged."""


def set_default_logger_verbosity(level):
    """Taken and left alone: nothing is logged."""


def set_seed(seed):
    """Taken and left alone: operators that draw numbers have their seeds in the model."""


def enable_telemetry_events():
    """Taken and left alone: there is no telemetry."""


def disable_telemetry_events():
    """Taken and left alone: there is no telemetry."""


def preload_dlls(cuda=True, cudnn=True, msvc=True, directory=None):
    """Taken and left alone: libraries of CUDA are found when they are needed."""
