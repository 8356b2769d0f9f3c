"""Enumerations of networks and builds, with TensorRT's names and numbers."""

from .._named import Named


def _named(name, words, documentation):
    made = Named(name, [(word, number) for number, word in enumerate(words.split())], module=__name__)
    made.__doc__ = documentation
    return made


LayerType = _named(
    "LayerType",
    "CONVOLUTION CAST ACTIVATION POOLING LRN SCALE SOFTMAX DECONVOLUTION CONCATENATION ELEMENTWISE PLUGIN UNARY PADDING "
    "SHUFFLE REDUCE TOPK GATHER MATRIX_MULTIPLY RAGGED_SOFTMAX CONSTANT IDENTITY PLUGIN_V2 SLICE SHAPE PARAMETRIC_RELU "
    "RESIZE TRIP_LIMIT RECURRENCE ITERATOR LOOP_OUTPUT SELECT FILL QUANTIZE DEQUANTIZE CONDITION CONDITIONAL_INPUT "
    "CONDITIONAL_OUTPUT SCATTER EINSUM ASSERTION ONE_HOT NON_ZERO GRID_SAMPLE NMS REVERSE_SEQUENCE NORMALIZATION PLUGIN_V3 "
    "SQUEEZE UNSQUEEZE CUMULATIVE DYNAMIC_QUANTIZE ATTENTION_INPUT ATTENTION_OUTPUT ROTARY_EMBEDDING KV_CACHE_UPDATE MOE "
    "DIST_COLLECTIVE FULLY_CONNECTED",
    "Kinds of layers.",
)
ActivationType = _named(
    "ActivationType",
    "RELU SIGMOID TANH LEAKY_RELU ELU SELU SOFTSIGN SOFTPLUS CLIP HARD_SIGMOID SCALED_TANH THRESHOLDED_RELU GELU_ERF GELU_TANH",
    "Functions of an element.",
)
ElementWiseOperation = _named(
    "ElementWiseOperation", "SUM PROD MAX MIN SUB DIV POW FLOOR_DIV AND OR XOR EQUAL GREATER LESS", "Functions of two elements."
)
UnaryOperation = _named(
    "UnaryOperation",
    "EXP LOG SQRT RECIP ABS NEG SIN COS TAN SINH COSH ASIN ACOS ATAN ASINH ACOSH ATANH CEIL FLOOR ERF NOT SIGN ROUND ISINF ISNAN",
    "Functions of an element.",
)
PoolingType = _named("PoolingType", "MAX AVERAGE MAX_AVERAGE_BLEND", "What is kept of a window.")
MatrixOperation = _named("MatrixOperation", "NONE TRANSPOSE VECTOR", "How a factor is read.")
ReduceOperation = _named("ReduceOperation", "SUM PROD MAX MIN AVG NONE", "What is kept of an axis.")
TopKOperation = _named("TopKOperation", "MAX MIN", "Which elements are kept.")
GatherMode = _named("GatherMode", "DEFAULT ELEMENT ND", "What places say.")
ScatterMode = _named("ScatterMode", "ELEMENT ND", "What places say.")
ScaleMode = _named("ScaleMode", "UNIFORM CHANNEL ELEMENTWISE", "How many numbers a scale has.")
PaddingMode = _named(
    "PaddingMode", "EXPLICIT_ROUND_DOWN EXPLICIT_ROUND_UP SAME_UPPER SAME_LOWER CAFFE_ROUND_DOWN CAFFE_ROUND_UP", "How windows are laid."
)
InterpolationMode = _named("InterpolationMode", "NEAREST LINEAR CUBIC", "What lies between elements.")
ResizeMode = InterpolationMode
SampleMode = _named("SampleMode", "STRICT_BOUNDS WRAP CLAMP FILL REFLECT", "What lies beyond the first and the last element.")
ResizeRoundMode = _named("ResizeRoundMode", "HALF_UP HALF_DOWN FLOOR CEIL", "Which of two elements is the nearest.")
ResizeSelector = _named("ResizeSelector", "FORMULA UPPER", "Where the one element of an axis of one lies.")
ResizeCoordinateTransformation = _named("ResizeCoordinateTransformation", "ALIGN_CORNERS ASYMMETRIC HALF_PIXEL", "Where elements lie.")
BoundingBoxFormat = _named("BoundingBoxFormat", "CORNER_PAIRS CENTER_SIZES", "What the four numbers of a box are.")
CumulativeOperation = _named("CumulativeOperation", "SUM", "What is gathered up along an axis.")
TripLimit = _named("TripLimit", "COUNT WHILE", "How a loop ends.")
LoopOutput = _named("LoopOutput", "LAST_VALUE CONCATENATE REVERSE", "What is kept of a tensor of a loop.")
CausalMaskKind = _named("CausalMaskKind", "NONE UPPER_LEFT LOWER_RIGHT", "What an attention does not see.")
AttentionNormalizationOp = _named("AttentionNormalizationOp", "NONE SOFTMAX", "How the scores of an attention are normalized.")
FillOperation = _named("FillOperation", "LINSPACE RANDOM_UNIFORM RANDOM_NORMAL", "What is filled in.")
WeightsRole = _named("WeightsRole", "KERNEL BIAS SHIFT SCALE CONSTANT ANY", "What weights are to a layer.")
DeviceType = _named("DeviceType", "GPU DLA", "Where a layer runs. There is no DLA here.")
HardwareCompatibilityLevel = _named("HardwareCompatibilityLevel", "NONE AMPERE_PLUS SAME_COMPUTE_CAPABILITY", "Other GPUs that a plan is for: none here.")
EngineCapability = _named("EngineCapability", "STANDARD SAFETY DLA_STANDALONE", "What a plan is for.")
TensorFormat = _named("TensorFormat", "LINEAR CHW2 HWC8 CHW4 CHW16 CHW32 DHWC8 CDHW32 HWC DLA_LINEAR DLA_HWC4 HWC16 DHWC", "How elements lie: LINEAR, here.")
ExecutionContextAllocationStrategy = _named("ExecutionContextAllocationStrategy", "STATIC ON_PROFILE_CHANGE USER_MANAGED", "Whose memory a context uses.")
SerializationFlag = _named("SerializationFlag", "EXCLUDE_WEIGHTS EXCLUDE_LEAN_RUNTIME INCLUDE_REFIT", "What bytes of a plan leave out.")
OnnxParserFlag = _named("OnnxParserFlag", "NATIVE_INSTANCENORM ENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA REPORT_CAPABILITY_DLA ENABLE_PLUGIN_OVERRIDE ADJUST_FOR_DLA", "Of parsers: taken, and left alone.")
QuantizationFlag = _named("QuantizationFlag", "CALIBRATE_BEFORE_FUSION", "Of quantization: taken, and left alone.")
PreviewFeature = _named(
    "PreviewFeature",
    "PROFILE_SHARING_0806 ALIASED_PLUGIN_IO_10_03 RUNTIME_ACTIVATION_RESIZE_10_10 FASTER_DYNAMIC_SHAPES_0805 DISABLE_EXTERNAL_TACTIC_SOURCES_FOR_CORE_0805",
    "Features ahead of their time: taken, and left alone.",
)
PluginFieldType = _named("PluginFieldType", "FLOAT16 FLOAT32 FLOAT64 INT8 INT16 INT32 CHAR DIMS UNKNOWN BF16 INT64 FP8 INT4 FP4", "Types of a plugin's fields.")


TempfileControlFlag = _named("TempfileControlFlag", "ALLOW_IN_MEMORY_FILES ALLOW_TEMPORARY_FILES", "Files of a runtime's: taken, and left alone.")
EngineStat = _named("EngineStat", "TOTAL_WEIGHTS_SIZE STRIPPED_WEIGHTS_SIZE", "Numbers about an engine.")
RuntimePlatform = _named("RuntimePlatform", "SAME_AS_BUILD WINDOWS_AMD64", "What a plan is for: the machine that it is built on.")
TilingOptimizationLevel = _named("TilingOptimizationLevel", "NONE FAST MODERATE FULL", "Of builds: taken, and left alone.")
SeekPosition = _named("SeekPosition", "SET CUR END", "What a place in a stream is counted from.")
AllocatorFlag = _named("AllocatorFlag", "RESIZABLE", "What memory is asked for.")
APILanguage = _named("APILanguage", "CPP PYTHON", "What a class is written in.")
TensorRTPhase = _named("TensorRTPhase", "BUILD RUNTIME", "When a plugin is made.")
PluginCapabilityType = _named("PluginCapabilityType", "CORE BUILD RUNTIME", "A part of a plugin.")
ErrorCodeTRT = _named(
    "ErrorCodeTRT",
    "SUCCESS UNSPECIFIED_ERROR INTERNAL_ERROR INVALID_ARGUMENT INVALID_CONFIG FAILED_ALLOCATION FAILED_INITIALIZATION FAILED_EXECUTION "
    "FAILED_COMPUTATION INVALID_STATE UNSUPPORTED_STATE",
    "Kinds of errors, for error recorders.",
)
ErrorCode = _named(
    "ErrorCode",
    "SUCCESS INTERNAL_ERROR MEM_ALLOC_FAILED MODEL_DESERIALIZE_FAILED INVALID_VALUE INVALID_GRAPH INVALID_NODE UNSUPPORTED_GRAPH "
    "UNSUPPORTED_NODE UNSUPPORTED_NODE_ATTR UNSUPPORTED_NODE_INPUT UNSUPPORTED_NODE_DATATYPE UNSUPPORTED_NODE_DYNAMIC "
    "UNSUPPORTED_NODE_SHAPE REFIT_FAILED",
    "Kinds of a parser's errors.",
)


class PluginCreatorVersion(Named):
    """What a creator of plugins is written for."""

    V1 = 0
    V1_PYTHON = 64


class TacticSource(Named):
    """Libraries that kernels may come from: `set_tactic_sources` is honoured for cuBLASLt and cuDNN."""

    CUBLAS = 0
    CUBLAS_LT = 1
    CUDNN = 2
    EDGE_MASK_CONVOLUTIONS = 3
    JIT_CONVOLUTIONS = 4


class NetworkDefinitionCreationFlag(Named):
    """Of networks: batches are always explicit here."""

    EXPLICIT_BATCH = 0
    STRONGLY_TYPED = 1
    EXPLICIT_PRECISION = 2
    PREFER_AOT_PYTHON_PLUGINS = 3
    PREFER_JIT_PYTHON_PLUGINS = 4


class BuilderFlag(Named):
    """Of builds. What is not honoured though it would change something says so once."""

    FP16 = 0
    INT8 = 1
    DEBUG = 2
    GPU_FALLBACK = 3
    STRICT_TYPES = 4
    REFIT = 5
    DISABLE_TIMING_CACHE = 6
    TF32 = 7
    SPARSE_WEIGHTS = 8
    SAFETY_SCOPE = 9
    OBEY_PRECISION_CONSTRAINTS = 10
    PREFER_PRECISION_CONSTRAINTS = 11
    DIRECT_IO = 12
    REJECT_EMPTY_ALGORITHMS = 13
    VERSION_COMPATIBLE = 14
    EXCLUDE_LEAN_RUNTIME = 15
    ERROR_ON_TIMING_CACHE_MISS = 16
    FP8 = 17
    BF16 = 18
    DISABLE_COMPILATION_CACHE = 19
    STRIP_PLAN = 20
    WEIGHTLESS = 21
    REFIT_IDENTICAL = 22
    WEIGHT_STREAMING = 23
    INT4 = 24
    REFIT_INDIVIDUAL = 25
    STRICT_NANS = 26
    MONITOR_MEMORY = 27
    FP4 = 28
    EDITABLE_TIMING_CACHE = 29
    DISTRIBUTIVE_INDEPENDENCE = 30


class MemoryPoolType(Named):
    """Of `set_memory_pool_limit`: the workspace is honoured."""

    WORKSPACE = 0
    DLA_MANAGED_SRAM = 1
    DLA_LOCAL_DRAM = 2
    DLA_GLOBAL_DRAM = 3
    TACTIC_DRAM = 4
    TACTIC_SHARED_MEMORY = 5


class ProfilingVerbosity(Named):
    """How much of layers is kept: everything is."""

    LAYER_NAMES_ONLY = 0
    NONE = 1
    DETAILED = 2


class TensorIOMode(Named):
    """What a tensor is to an engine."""

    NONE = 0
    INPUT = 1
    OUTPUT = 2


class TensorLocation(Named):
    """Where a tensor is."""

    DEVICE = 0
    HOST = 1
