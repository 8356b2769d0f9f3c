"""TensorRT's Python interface over Planish, for the scripts that people have: `import planish.tensorrt as trt`.

Build from ONNX with FP16 or INT8 and a calibrator, serialize, deserialize, run, profile, inspect. On a machine without a
GPU, addresses are those of host memory: of numpy's arrays, or of torch's tensors on the CPU.

>>> import planish.tensorrt as trt
>>> planish.Model.parse('graph "g" { input %x: f32[2] %y: f32[2] = Relu(%x) output %y }').save_onnx("relu.onnx")
>>> logger = trt.Logger(trt.Logger.WARNING)
>>> builder = trt.Builder(logger)
>>> network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
>>> trt.OnnxParser(network, logger).parse_from_file("relu.onnx")
True
>>> serialized = builder.build_serialized_network(network, builder.create_builder_config())
>>> engine = trt.Runtime(logger).deserialize_cuda_engine(serialized)
>>> x, y = numpy.float32([-1, 2]), numpy.zeros(2, numpy.float32)
>>> engine.create_execution_context().execute_v2([x.ctypes.data, y.ctypes.data])
True
>>> y
array([0., 2.], dtype=float32)

What is not honoured though it would change something says so once, through the logger.
"""

from ._builder import (
    Builder,
    BuilderFlag,
    IBuilderConfig,
    INetworkDefinition,
    IOptimizationProfile,
    ITensor,
    MemoryPoolType,
    NetworkDefinitionCreationFlag,
    OnnxParser,
    ParserError,
    ProfilingVerbosity,
    TacticSource,
)
from ._calibrators import (
    CalibrationAlgoType,
    IInt8Calibrator,
    IInt8EntropyCalibrator,
    IInt8EntropyCalibrator2,
    IInt8LegacyCalibrator,
    IInt8MinMaxCalibrator,
)
from ._engine import (
    EngineInspector,
    ICudaEngine,
    IExecutionContext,
    IHostMemory,
    IProfiler,
    LayerInformationFormat,
    Profiler,
    Runtime,
    TensorIOMode,
    TensorLocation,
)
from ._logger import ILogger, Logger
from ._types import (
    DataType,
    Dims,
    bfloat16,
    bool,
    float16,
    float32,
    fp8,
    int4,
    int8,
    int32,
    int64,
    nptype,
    uint8,
    volume,
)

#: The version of TensorRT's interface that is followed; calls of 8 work, too.
__version__ = "10.0.0"

__all__ = [
    "Builder",
    "BuilderFlag",
    "CalibrationAlgoType",
    "DataType",
    "Dims",
    "EngineInspector",
    "IBuilderConfig",
    "ICudaEngine",
    "IExecutionContext",
    "IHostMemory",
    "IInt8Calibrator",
    "IInt8EntropyCalibrator",
    "IInt8EntropyCalibrator2",
    "IInt8LegacyCalibrator",
    "IInt8MinMaxCalibrator",
    "ILogger",
    "INetworkDefinition",
    "IOptimizationProfile",
    "IProfiler",
    "ITensor",
    "LayerInformationFormat",
    "Logger",
    "MemoryPoolType",
    "NetworkDefinitionCreationFlag",
    "OnnxParser",
    "ParserError",
    "Profiler",
    "ProfilingVerbosity",
    "Runtime",
    "TacticSource",
    "TensorIOMode",
    "TensorLocation",
    "init_libnvinfer_plugins",
    "nptype",
    "volume",
]


def init_libnvinfer_plugins(logger, namespace):
    """There are no plugins to look for; says that all is well."""
    return True
