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
from ._values import (
    IOBinding,
    OrtAllocatorType,
    OrtArenaCfg,
    OrtDevice,
    OrtMemoryInfo,
    OrtMemType,
    OrtValue,
    OrtValueVector,
    SparseTensor,
)

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
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtDevice",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtValue",
    "OrtValueVector",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "SparseTensor",
    "create_and_register_allocator",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "print_debug_info",
    "register_execution_provider_library",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "unregister_execution_provider_library",
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


def create_and_register_allocator(mem_info, arena_cfg):
    """Taken and left alone: a context's memory is its own."""


def set_global_thread_pool_sizes(intra_op_num_threads, inter_op_num_threads):
    """Taken and left alone: sessions have threads of their own."""


def get_ep_devices():
    """None: devices are chosen by providers."""
    return []


def has_collective_ops():
    """Never."""
    return False


def register_execution_provider_library(name, path):
    """Refused: providers in libraries of ONNX Runtime's cannot be called."""
    raise NotImplementedError(f"{path}: providers of ONNX Runtime's libraries cannot be called from Planish")


def unregister_execution_provider_library(name):
    """There are none."""


def print_debug_info():
    """Prints what this is."""
    print(get_build_info())
