"""Builds of networks."""

import os
import struct
import tempfile

import planish

from ._calibrators import samples_of
from ._engine import ICudaEngine, IHostMemory
from ._enums import (
    BuilderFlag,
    DeviceType,
    EngineCapability,
    ErrorCodeTRT,
    HardwareCompatibilityLevel,
    MemoryPoolType,
    NetworkDefinitionCreationFlag,
    ProfilingVerbosity,
    RuntimePlatform,
    TilingOptimizationLevel,
)
from ._interfaces import fail
from ._logger import ILogger, say_once
from ._network import INetworkDefinition
from ._timing import ITimingCache, Kept
from ._types import DataType, Dims
from ._watchers import IAlgorithm, IAlgorithmContext, Watched


class IOptimizationProfile:
    """Ranges of sizes, by input."""

    def __init__(self):
        self.shapes, self._elements = {}, {}

    def set_shape(self, input, min, opt, max):  # noqa: A002, as TensorRT calls them
        """The smallest, the usual and the largest sizes of an input."""
        self.shapes[input] = [tuple(min), tuple(opt), tuple(max)]

    def get_shape(self, input):  # noqa: A002
        """The sizes of an input; none where they were not set."""
        return [Dims(shape) for shape in self.shapes.get(input, ())]

    def set_shape_input(self, input, min, opt, max):  # noqa: A002
        """The elements of an input of sizes: plans take any."""
        self._elements[input] = [list(min), list(opt), list(max)]

    def get_shape_input(self, input):  # noqa: A002
        """The same; none where they were not set."""
        return self._elements.get(input, [])

    extra_memory_target = 1.0

    def __bool__(self):
        return True


class IBuilderConfig:
    """What a build is asked for."""

    def __init__(self, logger=None):
        self._logger = logger
        self.reset()

    def reset(self):
        """As it was made."""
        self.int8_calibrator = None
        self.builder_optimization_level = 3
        self.profiling_verbosity = ProfilingVerbosity.LAYER_NAMES_ONLY
        self.max_workspace_size = 0
        self.avg_timing_iterations = 1
        self.min_timing_iterations = 1
        self.progress_monitor = None
        self.algorithm_selector = None
        self.engine_capability = EngineCapability.STANDARD
        self.hardware_compatibility_level = HardwareCompatibilityLevel.NONE
        self.profile_stream = 0
        self.DLA_core = -1
        self.max_aux_streams = 0
        self.plugins_to_serialize = []
        self.runtime_platform = RuntimePlatform.SAME_AS_BUILD
        self.tiling_optimization_level = TilingOptimizationLevel.NONE
        self.l2_limit_for_tiling, self.max_num_tactics = 0, -1
        self.remote_auto_tuning_config = ""
        self.quantization_flags = 0
        self._default_device_type = DeviceType.GPU
        self._flags = {BuilderFlag.TF32}
        self._profiles = []
        self._calibration_profile = None
        self._timing_cache = None
        self._tactic_sources = 7
        self._preview = set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def set_flag(self, flag):
        """Sets a flag."""
        self._flags.add(BuilderFlag(flag))

    def clear_flag(self, flag):
        """Clears a flag."""
        self._flags.discard(BuilderFlag(flag))

    def get_flag(self, flag):
        """Whether a flag is set."""
        return flag in self._flags

    @property
    def flags(self):
        """All flags, as a mask of bits."""
        return sum(1 << int(flag) for flag in self._flags)

    @flags.setter
    def flags(self, mask):
        self._flags = {flag for flag in BuilderFlag if int(mask) >> int(flag) & 1}

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
        """Libraries that kernels may come from, as a mask of bits: kept, and what a build uses where it measures is its own."""
        self._tactic_sources = int(tactic_sources)
        return True

    def get_tactic_sources(self):
        """The same."""
        return self._tactic_sources

    def create_timing_cache(self, serialized_timing_cache):
        """Measured times, of bytes that were written before; empty bytes for none."""
        content = bytes(serialized_timing_cache)
        if content and not content.startswith(ITimingCache.BEGINNING):
            self._say("the timing cache is none of Planish's; an empty one takes its place")
            content = b""
        return ITimingCache(content)

    def set_timing_cache(self, cache, ignore_mismatch):
        """Has the build take times from here, and keep new ones here."""
        self._timing_cache = cache
        return True

    def get_timing_cache(self):
        """The times that the build knows."""
        if self._timing_cache is None:
            self._timing_cache = ITimingCache(b"")
        return self._timing_cache

    def set_preview_feature(self, feature, enable):
        """Taken, and left alone."""
        (self._preview.add if enable else self._preview.discard)(feature)

    def get_preview_feature(self, feature):
        """Whether a feature was asked for."""
        return feature in self._preview

    @property
    def default_device_type(self):
        """Where layers run."""
        return self._default_device_type

    @default_device_type.setter
    def default_device_type(self, device_type):
        if device_type == DeviceType.DLA:
            self._say("there is no DLA here; layers run on the GPU or the CPU")
        self._default_device_type = device_type

    def set_device_type(self, layer, device_type):
        """Where a layer runs: never on a DLA, as there is none."""
        if device_type == DeviceType.DLA:
            self._say("there is no DLA here; layers run on the GPU or the CPU")

    def get_device_type(self, layer):
        """Where a layer runs."""
        return DeviceType.GPU

    def is_device_type_set(self, layer):
        """Never: the build decides."""
        return False

    def can_run_on_DLA(self, layer):  # noqa: N802, as TensorRT calls it
        """Never: there is none."""
        return False

    def reset_device_type(self, layer):
        """Leaves it to the build, which decides anyway."""

    def set_quantization_flag(self, flag):
        """Taken, and left alone."""
        self.quantization_flags |= 1 << int(flag)

    def clear_quantization_flag(self, flag):
        """Taken, and left alone."""
        self.quantization_flags &= ~(1 << int(flag))

    def get_quantization_flag(self, flag):
        """Whether a flag is set."""
        return bool(self.quantization_flags >> int(flag) & 1)

    def _say(self, msg):
        if self._logger is not None:
            say_once(self._logger, msg)

    def options(self, network, logger):
        """What it amounts to, as `planish.build` takes it."""
        # Kernels for sparse weights compete where weights are so, flag or not: results are the same. Plans can be refitted,
        # and their times kept, flag or not.
        honoured = {BuilderFlag.FP16, BuilderFlag.BF16, BuilderFlag.INT8, BuilderFlag.TF32, BuilderFlag.SPARSE_WEIGHTS}
        honoured |= {BuilderFlag.REFIT, BuilderFlag.REFIT_IDENTICAL, BuilderFlag.REFIT_INDIVIDUAL, BuilderFlag.EDITABLE_TIMING_CACHE}
        honoured |= {BuilderFlag.OBEY_PRECISION_CONSTRAINTS, BuilderFlag.PREFER_PRECISION_CONSTRAINTS, BuilderFlag.GPU_FALLBACK}
        honoured |= {BuilderFlag.DISABLE_TIMING_CACHE, BuilderFlag.DISABLE_COMPILATION_CACHE}
        for flag in sorted(self._flags - honoured):
            say_once(logger, f"BuilderFlag.{flag.name} is not honoured")
        if self.algorithm_selector is not None:
            say_once(logger, "the algorithm selector is told of the kernels that were chosen; choosing is the build's")
        options = {"tune_level": self.builder_optimization_level, "precision": self._precision(network, logger)}
        if self.max_workspace_size:
            options["workspace"] = self.max_workspace_size
        profiles = [profile.shapes for profile in self._profiles if profile.shapes]
        if profiles:
            options["profiles"] = profiles
        if options["precision"] == "int8":
            options["calib"] = self._ranges(network) if self.int8_calibrator is None else self._calibration(network.model)
        for tensor in network._inputs + network._outputs:
            if not int(tensor.allowed_formats) & 1:
                say_once(logger, f"`{tensor.name}`: elements of inputs and outputs lie one after another, whatever formats are allowed")
        wide = [layer.pattern for layer in network.touched_layers if layer.precision_is_set and layer.precision == DataType.FLOAT]
        if wide and options["precision"] != "fp32":
            options["fp32_layers"] = wide
        whole = [layer.pattern for layer in network.touched_layers if layer.precision_is_set and layer.precision == DataType.INT8]
        if whole and options["precision"] == "int8":
            options["int8_layers"] = whole
        if self.progress_monitor is not None:
            options["progress"] = Watched(self.progress_monitor)
        return options

    def _precision(self, network, logger):
        if network.get_flag(NetworkDefinitionCreationFlag.STRONGLY_TYPED):
            return "fp32"
        if BuilderFlag.INT8 in self._flags:
            if self.int8_calibrator is not None or any(tensor.dynamic_range for tensor in _tensors(network)):
                return "int8"
            say_once(logger, "BuilderFlag.INT8 without a calibrator changes nothing: models with Q/DQ keep their integers")
        return self.float_precision

    @property
    def float_precision(self):
        """The narrowest floating point that is allowed."""
        allowed = ((BuilderFlag.FP16, "fp16"), (BuilderFlag.BF16, "bf16"))
        return next((precision for flag, precision in allowed if flag in self._flags), "fp32")

    def _ranges(self, network):
        """The ranges that tensors were given, as a cache of TensorRT's."""
        lines = ["TRT-100000-EntropyCalibration2"]
        for tensor in _tensors(network):
            if tensor.dynamic_range:
                scale = max(abs(limit) for limit in tensor.dynamic_range) / 127
                lines.append(f"{tensor.name}: {struct.pack('>f', scale).hex()}")
        return _opened("\n".join(lines).encode() + b"\n", network.model)

    def _calibration(self, model):
        """The ranges of the calibrator's cache, or of its batches, of which the cache is written."""
        calibrator = self.int8_calibrator
        cache = calibrator.read_calibration_cache()
        if cache:
            return _opened(bytes(cache), model)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "calibration.cache")
            profile = self._calibration_profile or (self._profiles[0] if self._profiles else None)
            shapes = {name: three[1] for name, three in profile.shapes.items()} if profile else {}
            samples = samples_of(calibrator, model.inputs, shapes)
            planish.calibrate(model, samples, calibrator=calibrator.calibrator).save_tensorrt(path)
            with open(path, "rb") as file:
                calibrator.write_calibration_cache(file.read())
            # The file in both cases: it holds no means of channels to correct biases by, and an engine must not depend
            # on whether its cache was there.
            return planish.Calibration.open(path).bound_to(model)


def _opened(cache, model):
    """The ranges of a cache's bytes, for a model."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "calibration.cache")
        with open(path, "wb") as file:
            file.write(cache)
        return planish.Calibration.open(path).bound_to(model)


def _tensors(network):
    """All tensors of a network that somebody may have told something."""
    return [*network._inputs, *(tensor for layer in network.touched_layers for tensor in layer._outputs)]


class Builder:
    """Builds engines."""

    def __init__(self, logger):
        self._logger = logger
        self.max_batch_size = 1
        self.max_workspace_size = 0
        self.error_recorder = self.gpu_allocator = None

    max_DLA_batch_size = 0
    max_threads = 1

    @property
    def logger(self):
        """Who is told."""
        return self._logger

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def get_plugin_registry(self):
        """The plugins that there are."""
        from ._plugins import get_plugin_registry

        return get_plugin_registry()

    def is_network_supported(self, network, config):
        """Whether the network is a model that can be read."""
        try:
            return network.model is not None
        except planish.errors.Error as error:
            self._logger.log(ILogger.ERROR, str(error))
            return False

    def reset(self):
        """Nothing is kept."""

    #: All of them may be asked for; what the device computes in integers or halves is the build's to find out.
    platform_has_fast_fp16 = platform_has_fast_int8 = platform_has_tf32 = True
    num_DLA_cores = 0

    def create_network(self, flags=0):
        """A network, to be read."""
        return INetworkDefinition(flags, self._logger, self)

    def create_builder_config(self):
        """What a build is asked for."""
        return IBuilderConfig(self._logger)

    def create_optimization_profile(self):
        """Ranges of sizes."""
        return IOptimizationProfile()

    def _plan(self, network, config):
        if config.max_workspace_size == 0:
            config.max_workspace_size = self.max_workspace_size
        try:
            if network.model is None:
                fail(self._logger, "the network is empty; read a model with an OnnxParser, or mark an output", self.error_recorder, ErrorCodeTRT.INVALID_STATE)
                return None
            options = config.options(network, self._logger)
            with Kept(None if config.get_flag(BuilderFlag.DISABLE_TIMING_CACHE) else config._timing_cache) as path:
                plan = self._built(network.model, config, options, path)
        except (planish.errors.Error, NotImplementedError, ValueError) as error:
            fail(self._logger, str(error), self.error_recorder)
            return None
        except KeyboardInterrupt:
            if config.progress_monitor is None:
                raise
            self._logger.log(ILogger.ERROR, "the progress monitor ended the build")
            return None
        self._tell(plan, config)
        return plan

    def _built(self, model, config, options, timing_cache):
        """A plan; a model without a layer for integers is built in the widest type that is allowed, as TensorRT does."""
        try:
            return planish.build(model, timing_cache=timing_cache, **options)
        except planish.errors.Refused as error:
            if options["precision"] != "int8" or "can be quantized" not in str(error):
                raise
            self._logger.log(ILogger.WARNING, f"{error}; it is built without integers")
        options = {key: value for key, value in options.items() if key not in ("calib", "int8_layers")}
        options["precision"] = config.float_precision
        if options["precision"] == "fp32":
            options.pop("fp32_layers", None)
        return planish.build(model, timing_cache=timing_cache, **options)

    def _tell(self, plan, config):
        """Says what was decided: notes, and for each step its layers, what they were fused to, and its kernel."""
        for note in plan.notes:
            self._logger.log(ILogger.INFO, note)
        for step in plan.steps:
            fused = f"fused {step.operators}" if "+" in step.operators or "," in step.operators or " " in step.operators else step.operators
            self._logger.log(ILogger.VERBOSE, f"{step.name or step.operators}: {fused} in {step.precision} by {step.kernel}")
        if config.algorithm_selector is not None:
            contexts = [IAlgorithmContext(step.name) for step in plan.steps]
            config.algorithm_selector.report_algorithms(contexts, [IAlgorithm(step.kernel) for step in plan.steps])

    def build_serialized_network_to_stream(self, network, config, stream_writer):
        """Gives the bytes of a plan to a writer; whether that worked."""
        serialized = self.build_serialized_network(network, config)
        return serialized is not None and stream_writer.write(bytes(serialized)) == len(serialized)

    def build_serialized_network(self, network, config):
        """The bytes of a plan; None where the logger was told why not."""
        plan = self._plan(network, config)
        return None if plan is None else IHostMemory.of(plan)

    def build_engine(self, network, config):
        """An engine; None where the logger was told why not."""
        plan = self._plan(network, config)
        return None if plan is None else ICudaEngine(plan.engine(), IHostMemory.of(plan), self._logger)

    build_engine_with_config = build_engine

    def build_cuda_engine(self, network):
        """The same without a configuration, as TensorRT 7 has it."""
        return self.build_engine(network, self.create_builder_config())
