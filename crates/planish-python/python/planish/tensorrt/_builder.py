"""Networks from ONNX files, and builds of them."""

import enum
import os
import tempfile

import planish

from ._calibrators import samples_of
from ._engine import ICudaEngine, IHostMemory
from ._logger import ILogger, say_once
from ._types import dims_of, of_numpy


class NetworkDefinitionCreationFlag(enum.IntEnum):
    """Of networks: batches are always explicit here, and types those of the model."""

    EXPLICIT_BATCH = 0
    STRONGLY_TYPED = 1


class BuilderFlag(enum.IntEnum):
    """Of builds. `FP16`, `BF16`, `INT8` and `TF32` are honoured; the others are taken, and said to be left alone."""

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
    FP8 = 17
    BF16 = 18


class MemoryPoolType(enum.IntEnum):
    """Of `set_memory_pool_limit`: the workspace is honoured."""

    WORKSPACE = 0
    DLA_MANAGED_SRAM = 1
    DLA_LOCAL_DRAM = 2
    DLA_GLOBAL_DRAM = 3
    TACTIC_DRAM = 4
    TACTIC_SHARED_MEMORY = 5


class ProfilingVerbosity(enum.IntEnum):
    """How much of layers is kept: everything is."""

    LAYER_NAMES_ONLY = 0
    NONE = 1
    DETAILED = 2


class TacticSource(enum.IntEnum):
    """Libraries that kernels may come from."""

    CUBLAS = 0
    CUBLAS_LT = 1
    CUDNN = 2
    EDGE_MASK_CONVOLUTIONS = 3
    JIT_CONVOLUTIONS = 4


class ParserError:
    """Why a model could not be read."""

    def __init__(self, description):
        self._description = description

    def desc(self):
        """In words."""
        return self._description

    def __str__(self):
        return self._description


class ITensor:
    """An input or an output of a network."""

    def __init__(self, info, is_input):
        self.name = info.name
        self.shape = dims_of(info)
        self.dtype = of_numpy(info.dtype)
        self.is_network_input = is_input
        self.is_network_output = not is_input


class INetworkDefinition:
    """A network, read by an `OnnxParser`."""

    def __init__(self, flags):
        self.flags = flags
        self.model = None
        self.name = ""

    def _tensors(self, is_input):
        if self.model is None:
            return []
        return [ITensor(info, is_input) for info in (self.model.inputs if is_input else self.model.outputs)]

    @property
    def num_inputs(self):
        """How many inputs there are."""
        return len(self._tensors(True))

    @property
    def num_outputs(self):
        """How many outputs there are."""
        return len(self._tensors(False))

    def get_input(self, index):
        """An input, by its number."""
        return self._tensors(True)[index]

    def get_output(self, index):
        """An output, by its number."""
        return self._tensors(False)[index]


class OnnxParser:
    """Reads ONNX models into a network."""

    def __init__(self, network, logger):
        self._network, self._logger = network, logger
        self._errors = []

    def _parse(self, source):
        try:
            self._network.model = planish.Model(source)
        except planish.errors.Error as error:
            self._errors.append(ParserError(str(error)))
            self._logger.log(ILogger.ERROR, str(error))
            return False
        self._network.name = self._network.model.name
        return True

    def parse(self, model, path=None):
        """Reads the bytes of a model; `path` is where its external data is looked for. Gives whether that worked."""
        return self._parse(path if path is not None else bytes(model))

    def parse_from_file(self, model):
        """Reads a model's file. Gives whether that worked."""
        return self._parse(model)

    @property
    def num_errors(self):
        """How many errors there were."""
        return len(self._errors)

    def get_error(self, index):
        """An error, by its number."""
        return self._errors[index]

    def clear_errors(self):
        """Forgets the errors."""
        self._errors.clear()


class IOptimizationProfile:
    """Ranges of sizes, by input."""

    def __init__(self):
        self.shapes = {}

    def set_shape(self, input, min, opt, max):  # noqa: A002, as TensorRT calls them
        """The smallest, the usual and the largest sizes of an input."""
        self.shapes[input] = [tuple(min), tuple(opt), tuple(max)]

    def get_shape(self, input):  # noqa: A002
        """The sizes of an input."""
        return self.shapes[input]

    def __bool__(self):
        return True


class IBuilderConfig:
    """What a build is asked for."""

    def __init__(self):
        self.int8_calibrator = None
        self.builder_optimization_level = 3
        self.profiling_verbosity = ProfilingVerbosity.LAYER_NAMES_ONLY
        self.max_workspace_size = 0
        self.avg_timing_iterations = 1
        self.timing_cache_file = None
        self._flags = {BuilderFlag.TF32}
        self._profiles = []
        self._calibration_profile = None

    def set_flag(self, flag):
        """Sets a flag."""
        self._flags.add(flag)

    def clear_flag(self, flag):
        """Clears a flag."""
        self._flags.discard(flag)

    def get_flag(self, flag):
        """Whether a flag is set."""
        return flag in self._flags

    @property
    def flags(self):
        """All flags, as a mask of bits."""
        return sum(1 << int(flag) for flag in self._flags)

    def set_memory_pool_limit(self, pool, pool_size):
        """The most memory that a kernel may ask for."""
        if pool == MemoryPoolType.WORKSPACE:
            self.max_workspace_size = pool_size

    def get_memory_pool_limit(self, pool):
        """The most memory that a kernel may ask for."""
        return self.max_workspace_size if pool == MemoryPoolType.WORKSPACE else 0

    def add_optimization_profile(self, profile):
        """Adds ranges of sizes; gives their number."""
        self._profiles.append(profile)
        return len(self._profiles) - 1

    @property
    def num_optimization_profiles(self):
        """How many profiles there are."""
        return len(self._profiles)

    def set_calibration_profile(self, profile):
        """The sizes of batches of a calibrator."""
        self._calibration_profile = profile
        return True

    def get_calibration_profile(self):
        """The sizes of batches of a calibrator."""
        return self._calibration_profile

    def set_tactic_sources(self, tactic_sources):
        """Taken, and left alone."""
        return True

    def options(self, model, logger):
        """What it amounts to, as `planish.build` takes it."""
        # Kernels for sparse weights compete where weights are so, flag or not: results are the same.
        honoured = {BuilderFlag.FP16, BuilderFlag.BF16, BuilderFlag.INT8, BuilderFlag.TF32, BuilderFlag.SPARSE_WEIGHTS}
        for flag in sorted(self._flags - honoured):
            say_once(logger, f"BuilderFlag.{flag.name} is not honoured")
        options = {"tune_level": self.builder_optimization_level, "precision": self._precision(logger)}
        if self.max_workspace_size:
            options["workspace"] = self.max_workspace_size
        profiles = [profile.shapes for profile in self._profiles if profile.shapes]
        if profiles:
            options["profiles"] = profiles
        if options["precision"] == "int8":
            options["calib"] = self._calibration(model)
        return options

    def _precision(self, logger):
        if BuilderFlag.INT8 in self._flags:
            if self.int8_calibrator is not None:
                return "int8"
            say_once(logger, "BuilderFlag.INT8 without a calibrator changes nothing: models with Q/DQ keep their integers")
        for flag, precision in ((BuilderFlag.FP16, "fp16"), (BuilderFlag.BF16, "bf16")):
            if flag in self._flags:
                return precision
        return "fp32"

    def _calibration(self, model):
        """The ranges of the calibrator's cache, or of its batches, of which the cache is written."""
        calibrator = self.int8_calibrator
        cache = calibrator.read_calibration_cache()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "calibration.cache")
            if cache:
                with open(path, "wb") as file:
                    file.write(bytes(cache))
            else:
                profile = self._calibration_profile or (self._profiles[0] if self._profiles else None)
                shapes = {name: three[1] for name, three in profile.shapes.items()} if profile else {}
                samples = samples_of(calibrator, model.inputs, shapes)
                planish.calibrate(model, samples, calibrator=calibrator.calibrator).save_tensorrt(path)
                with open(path, "rb") as file:
                    calibrator.write_calibration_cache(file.read())
            # The file in both cases: it holds no means of channels to correct biases by, and an engine must not depend
            # on whether its cache was there.
            return planish.Calibration.open(path).bound_to(model)


class Builder:
    """Builds engines."""

    def __init__(self, logger):
        self._logger = logger
        self.max_batch_size = 1
        self.max_workspace_size = 0

    #: All of them may be asked for; what the device computes in integers or halves is the build's to find out.
    platform_has_fast_fp16 = platform_has_fast_int8 = platform_has_tf32 = True
    num_DLA_cores = 0

    def create_network(self, flags=0):
        """A network, to be read."""
        return INetworkDefinition(flags)

    def create_builder_config(self):
        """What a build is asked for."""
        return IBuilderConfig()

    def create_optimization_profile(self):
        """Ranges of sizes."""
        return IOptimizationProfile()

    def _plan(self, network, config):
        if network.model is None:
            self._logger.log(ILogger.ERROR, "the network is empty; read a model with an OnnxParser")
            return None
        try:
            plan = planish.build(network.model, **config.options(network.model, self._logger))
        except planish.errors.Error as error:
            self._logger.log(ILogger.ERROR, str(error))
            return None
        for note in plan.notes:
            self._logger.log(ILogger.INFO, note)
        for step in plan.steps:
            self._logger.log(ILogger.VERBOSE, f"{step.name or step.operators}: {step.operators} by {step.kernel}")
        return plan

    def build_serialized_network(self, network, config):
        """The bytes of a plan; None where the logger was told why not."""
        plan = self._plan(network, config)
        return None if plan is None else IHostMemory.of(plan)

    def build_engine(self, network, config):
        """An engine; None where the logger was told why not."""
        plan = self._plan(network, config)
        return None if plan is None else ICudaEngine(plan.engine(), IHostMemory.of(plan))

    build_engine_with_config = build_engine
