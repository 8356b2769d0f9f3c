"""TensorRT's Python interface over Planish, for the scripts that people have: `import planish.tensorrt as trt`.

Build from ONNX, or layer by layer, with FP16 or INT8 and a calibrator, serialize, deserialize, run, profile, inspect, refit.
On a GPU, addresses are of its memory, and runs are put on the stream that they are given; on a machine without one, they are
those of the host: of numpy's arrays, or of torch's tensors on the CPU.

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

from ._builder import Builder, IBuilderConfig, IOptimizationProfile, OnnxParser, ParserError
from ._calibrators import (
    CalibrationAlgoType,
    IInt8Calibrator,
    IInt8EntropyCalibrator,
    IInt8EntropyCalibrator2,
    IInt8LegacyCalibrator,
    IInt8MinMaxCalibrator,
)
from ._context import IExecutionContext, IOutputAllocator
from ._engine import (
    EngineInspector,
    ICudaEngine,
    IHostMemory,
    IProfiler,
    ISerializationConfig,
    IStreamReader,
    LayerInformationFormat,
    Profiler,
    Runtime,
)
from ._enums import (
    ActivationType,
    BuilderFlag,
    DeviceType,
    ElementWiseOperation,
    EngineCapability,
    ExecutionContextAllocationStrategy,
    FillOperation,
    GatherMode,
    HardwareCompatibilityLevel,
    InterpolationMode,
    LayerType,
    MatrixOperation,
    MemoryPoolType,
    NetworkDefinitionCreationFlag,
    OnnxParserFlag,
    PaddingMode,
    PluginFieldType,
    PoolingType,
    PreviewFeature,
    ProfilingVerbosity,
    QuantizationFlag,
    ReduceOperation,
    ResizeCoordinateTransformation,
    ResizeMode,
    SampleMode,
    ScaleMode,
    ScatterMode,
    SerializationFlag,
    TacticSource,
    TensorFormat,
    TensorIOMode,
    TensorLocation,
    TopKOperation,
    UnaryOperation,
    WeightsRole,
)
from ._layers import ILayer, Weights
from ._logger import ILogger, Logger
from ._network import INetworkDefinition, ITensor
from ._plugins import (
    IPluginCreator,
    IPluginRegistry,
    IPluginV2,
    PluginField,
    PluginFieldCollection,
    get_plugin_registry,
    init_libnvinfer_plugins,
)
from ._refitter import OnnxParserRefitter, Refitter
from ._timing import ITimingCache
from ._types import (
    DataType,
    Dims,
    Dims2,
    Dims3,
    Dims4,
    DimsHW,
    Permutation,
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
from ._watchers import IAlgorithm, IAlgorithmContext, IAlgorithmSelector, IAlgorithmVariant, IProgressMonitor, IStreamWriter

#: The version of TensorRT's interface that is followed; calls of 8 work, too.
__version__ = "10.0.0"

__all__ = [
    "ActivationType",
    "Builder",
    "BuilderFlag",
    "CalibrationAlgoType",
    "DataType",
    "DeviceType",
    "Dims",
    "Dims2",
    "Dims3",
    "Dims4",
    "DimsHW",
    "ElementWiseOperation",
    "EngineCapability",
    "EngineInspector",
    "ExecutionContextAllocationStrategy",
    "FillOperation",
    "GatherMode",
    "HardwareCompatibilityLevel",
    "IAlgorithm",
    "IAlgorithmContext",
    "IAlgorithmSelector",
    "IAlgorithmVariant",
    "IBuilderConfig",
    "ICudaEngine",
    "IExecutionContext",
    "IHostMemory",
    "IInt8Calibrator",
    "IInt8EntropyCalibrator",
    "IInt8EntropyCalibrator2",
    "IInt8LegacyCalibrator",
    "IInt8MinMaxCalibrator",
    "ILayer",
    "ILogger",
    "INetworkDefinition",
    "IOptimizationProfile",
    "IOutputAllocator",
    "IPluginCreator",
    "IPluginRegistry",
    "IPluginV2",
    "IProfiler",
    "IProgressMonitor",
    "ISerializationConfig",
    "IStreamReader",
    "IStreamWriter",
    "ITensor",
    "ITimingCache",
    "InterpolationMode",
    "LayerInformationFormat",
    "LayerType",
    "Logger",
    "MatrixOperation",
    "MemoryPoolType",
    "NetworkDefinitionCreationFlag",
    "OnnxParser",
    "OnnxParserFlag",
    "OnnxParserRefitter",
    "PaddingMode",
    "ParserError",
    "Permutation",
    "PluginField",
    "PluginFieldCollection",
    "PluginFieldType",
    "PoolingType",
    "PreviewFeature",
    "Profiler",
    "ProfilingVerbosity",
    "QuantizationFlag",
    "ReduceOperation",
    "Refitter",
    "ResizeCoordinateTransformation",
    "ResizeMode",
    "Runtime",
    "SampleMode",
    "ScaleMode",
    "ScatterMode",
    "SerializationFlag",
    "TacticSource",
    "TensorFormat",
    "TensorIOMode",
    "TensorLocation",
    "TopKOperation",
    "UnaryOperation",
    "Weights",
    "WeightsRole",
    "get_plugin_registry",
    "init_libnvinfer_plugins",
    "nptype",
    "volume",
]
