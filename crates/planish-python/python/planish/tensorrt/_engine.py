"""Engines: plans that are ready to run."""

import json
import os
import tempfile

import planish

from .._named import Named
from ._context import IExecutionContext
from ._enums import (
    EngineCapability,
    EngineStat,
    ErrorCodeTRT,
    ExecutionContextAllocationStrategy,
    HardwareCompatibilityLevel,
    ProfilingVerbosity,
    TensorFormat,
    TensorIOMode,
    TensorLocation,
)
from ._interfaces import fail
from ._logger import say_once
from ._types import DataType, Dims, dims_of, of_numpy


class LayerInformationFormat(Named):
    """How layers are described."""

    ONELINE = 0
    JSON = 1


class IHostMemory(bytes):
    """The bytes of a plan."""

    @classmethod
    def of(cls, plan):
        """Those of a plan that was built."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.plan")
            plan.save(path)
            with open(path, "rb") as file:
                return cls(file.read())

    @property
    def nbytes(self):
        """How many there are."""
        return len(self)

    @property
    def dtype(self):
        """Their type."""
        return DataType.INT8

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Runtime:
    """Opens plans."""

    def __init__(self, logger):
        self._logger = logger
        self.error_recorder = None
        self.gpu_allocator = None
        self.DLA_core = -1
        self.engine_host_code_allowed = False
        self.max_threads = 1
        self.temporary_directory = None
        self.tempfile_control_flags = 3

    num_DLA_cores = 0

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

    def deserialize_cuda_engine(self, serialized_engine):
        """The engine of a plan's bytes; None where the logger was told why not."""
        if hasattr(serialized_engine, "read") and not isinstance(serialized_engine, (bytes, bytearray, memoryview)):
            serialized_engine = _read_all(serialized_engine)
        elif not isinstance(serialized_engine, (bytes, bytearray, memoryview)) and not hasattr(serialized_engine, "__array_interface__"):
            raise TypeError(f"an engine is opened from bytes, not from {type(serialized_engine).__name__}")
        content = bytes(serialized_engine)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.plan")
            with open(path, "wb") as file:
                file.write(content)
            try:
                # Read into memory: the file goes with its folder.
                return ICudaEngine(planish.load(path, copy=True), IHostMemory(content), self._logger)
            except planish.errors.Error as error:
                fail(self._logger, str(error), self.error_recorder, ErrorCodeTRT.FAILED_INITIALIZATION)
                return None

    def load_runtime(self, path):
        """This one: plans of other versions are opened, or built again, by it."""
        return self


def _read_all(reader):
    """What a reader of streams gives, piece by piece."""
    parts, more = [], (0,) if isinstance(reader, IStreamReaderV2) else ()
    while True:
        part = reader.read(1 << 24, *more)
        if not part:
            return b"".join(parts)
        parts.append(bytes(part))


class IStreamReader:
    """Gives the bytes of a plan: `read(size)`."""


class IStreamReaderV2(IStreamReader):
    """Gives the bytes of a plan: `read(size, stream)`; `seek(offset, where)` is not called."""


class IRuntimeConfig:
    """What a context is asked for."""

    def __init__(self):
        self._strategy = ExecutionContextAllocationStrategy.STATIC

    def set_execution_context_allocation_strategy(self, strategy):
        """Whose memory a context uses: its own, whatever is asked for."""
        self._strategy = strategy

    def get_execution_context_allocation_strategy(self):
        """The same."""
        return self._strategy


class ICudaEngine:
    """A plan that is ready to run."""

    def __init__(self, engine, serialized, logger=None):
        self.engine = engine
        self.error_recorder = None
        self._logger = logger
        self._serialized = serialized
        #: Goes up where weights were exchanged: contexts take the new ones with their next run.
        self.generation = 0
        self._inputs, self._outputs = engine.inputs, engine.outputs
        self._ports = {info.name: info for info in self._inputs + self._outputs}
        self._names = list(self._ports)
        #: Of each profile the smallest, the usual and the largest shape of every input.
        self._profiles = engine.profiles

    @property
    def num_optimization_profiles(self):
        """How many ranges of sizes there are; 1 also where any size runs."""
        return max(1, len(self._profiles))

    name = "planish"
    max_batch_size = 1
    has_implicit_batch_dimension = False
    #: Only a context has memory.
    device_memory_size = device_memory_size_v2 = 0
    refittable = True
    num_aux_streams = 0
    tactic_sources = 7
    #: Weights are streamed by a device's budget where a model is larger than its memory, never by an engine's.
    streamable_weights_size = minimum_weight_streaming_budget = weight_streaming_scratch_memory_size = 0
    weight_streaming_budget = weight_streaming_budget_v2 = 0
    engine_capability = EngineCapability.STANDARD
    hardware_compatibility_level = HardwareCompatibilityLevel.NONE
    profiling_verbosity = ProfilingVerbosity.DETAILED

    def get_device_memory_size(self, profile_index=0):
        """The same."""
        return 0

    get_device_memory_size_for_profile = get_device_memory_size_for_profile_v2 = get_device_memory_size

    def _replace(self, plan):
        """Takes a plan with other weights over."""
        self.engine = plan.engine()
        self._serialized = IHostMemory.of(plan)
        self.generation += 1

    @property
    def num_io_tensors(self):
        """How many inputs and outputs there are."""
        return len(self._names)

    @property
    def num_bindings(self):
        """The same."""
        return len(self._names)

    @property
    def num_layers(self):
        """How many steps a run has."""
        return len(self.engine.steps)

    def __len__(self):
        return len(self._names)

    def __iter__(self):
        return iter(self._names)

    def __getitem__(self, key):
        return self._names.index(key) if isinstance(key, str) else self._names[key]

    def get_tensor_name(self, index):
        """The name of an input or an output."""
        return self._names[index]

    def get_tensor_mode(self, name):
        """Whether it is an input or an output."""
        if name not in self._ports:
            return TensorIOMode.NONE
        return TensorIOMode.INPUT if any(info.name == name for info in self._inputs) else TensorIOMode.OUTPUT

    def _port(self, name):
        """An input or an output; None where the logger was told that there is none of the name."""
        if name not in self._ports:
            fail(self._logger, f"there is no input or output `{name}`; there are {', '.join(self._names)}", self.error_recorder)
        return self._ports.get(name)

    def get_tensor_shape(self, name):
        """Its sizes, -1 where a run decides."""
        port = self._port(name)
        return Dims() if port is None else dims_of(port)

    def get_tensor_dtype(self, name):
        """Its element type."""
        port = self._port(name)
        return DataType.FLOAT if port is None else of_numpy(port.dtype)

    def get_tensor_location(self, name):
        """Where its memory is: on the device, which may be the host itself."""
        return TensorLocation.DEVICE

    def get_tensor_format(self, name, profile_index=0):
        """How its elements lie: one after another."""
        return TensorFormat.LINEAR

    def get_tensor_format_desc(self, name, profile_index=0):
        """The same in words."""
        return f"Row major linear {self._ports[name].dtype} format"

    def get_tensor_vectorized_dim(self, name, profile_index=0):
        """No axis is cut."""
        return -1

    def get_tensor_components_per_element(self, name, profile_index=0):
        """No axis is cut."""
        return -1

    def get_tensor_bytes_per_component(self, name, profile_index=0):
        """No axis is cut."""
        return -1

    def is_debug_tensor(self, name):
        """Tensors are not listened to."""
        return False

    def get_tensor_profile_values(self, name, profile_index):
        """The elements of an input of sizes: plans take any."""
        return []

    def get_weight_streaming_automatic_budget(self):
        """Nothing is streamed by an engine's budget."""
        return 0

    def get_engine_stat(self, stat=EngineStat.TOTAL_WEIGHTS_SIZE):
        """The bytes of the plan, which are those of its weights but for little; -1 for others."""
        return len(self._serialized) if stat == EngineStat.TOTAL_WEIGHTS_SIZE else -1

    def create_runtime_config(self):
        """What a context may be asked for."""
        return IRuntimeConfig()

    def is_shape_inference_io(self, name):
        """Whether it holds sizes that shapes follow from; none is said to."""
        return False

    def get_tensor_profile_shape(self, name, profile_index):
        """The smallest, the usual and the largest sizes; those that no profile bounds are from 1 on."""
        if not 0 <= profile_index < self.num_optimization_profiles:
            raise IndexError(f"profile {profile_index} of {self.num_optimization_profiles}")
        shape = self.get_tensor_shape(name)
        three = self._profiles[profile_index].get(name) if self._profiles else None
        opens = zip(three or [shape] * 3, (1, 1, 2**31 - 1))
        return [Dims(size if size >= 0 else most for size in shape) for shape, most in opens]

    def _refusal(self, name, shape):
        """Why no profile takes an input of this shape; None where one does."""
        ranges = [profile[name] for profile in self._profiles if name in profile]
        fits = [all(low <= size and (high < 0 or size <= high) for low, size, high in zip(least, shape, most))
                for least, _, most in ranges]
        if not ranges or any(fits):
            return None
        bounds = " or ".join(f"{tuple(least)} to {tuple(most)}" for least, _, most in ranges)
        return f"input {name} of shape {tuple(shape)} is outside of the optimization profiles: {bounds}"

    def get_profile_shape(self, profile_index, binding):
        """The same, by number."""
        return self.get_tensor_profile_shape(self._name(binding), profile_index)

    def get_aliased_input_tensor(self, name):
        """No output is an input's memory."""
        return None

    def _name(self, binding):
        return binding if isinstance(binding, str) else self._names[binding]

    def get_binding_name(self, index):
        """The name of an input or an output."""
        return self._names[index]

    def get_binding_index(self, name):
        """The number of an input or an output; -1 for none."""
        return self._names.index(name) if name in self._names else -1

    def get_binding_shape(self, binding):
        """Its sizes, -1 where a run decides."""
        return self.get_tensor_shape(self._name(binding))

    def get_binding_dtype(self, binding):
        """Its element type."""
        return self.get_tensor_dtype(self._name(binding))

    def binding_is_input(self, binding):
        """Whether it is an input."""
        return self.get_tensor_mode(self._name(binding)) == TensorIOMode.INPUT

    def is_shape_binding(self, binding):
        """Whether it holds sizes that shapes follow from; none is said to."""
        return False

    def is_execution_binding(self, binding):
        """Whether it is computed with."""
        return True

    def get_location(self, binding):
        """Where its memory is."""
        return self.get_tensor_location(self._name(binding))

    def get_binding_format(self, binding):
        """How its elements lie: one after another."""
        return TensorFormat.LINEAR

    def get_binding_format_desc(self, binding):
        """The same in words."""
        return self.get_tensor_format_desc(self._name(binding))

    def get_binding_vectorized_dim(self, binding):
        """No axis is cut."""
        return -1

    get_binding_components_per_element = get_binding_bytes_per_component = get_binding_vectorized_dim

    def get_profile_shape_input(self, profile_index, binding):
        """The elements of an input of sizes: plans take any."""
        return []

    def create_execution_context(self, strategy=ExecutionContextAllocationStrategy.STATIC):
        """Memory to run with, for one caller at a time; it is the context's own whatever the strategy."""
        return IExecutionContext(self)

    def create_execution_context_without_device_memory(self):
        """The same."""
        return IExecutionContext(self)

    def create_serialization_config(self):
        """What bytes of the plan leave out: nothing."""
        return ISerializationConfig()

    def serialize_with_config(self, config):
        """The bytes of the plan, whole."""
        if config.flags and self._logger is not None:
            say_once(self._logger, "serialization flags are not honoured: a plan is written whole")
        return self._serialized

    def create_engine_inspector(self):
        """What describes the layers."""
        return EngineInspector(self)

    def serialize(self):
        """The bytes of the plan."""
        return self._serialized

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class IProfiler:
    """Is told the time of every layer."""

    def report_layer_time(self, layer_name, ms):
        """A layer, and its time in milliseconds."""
        raise NotImplementedError("a profiler has a method report_layer_time(layer_name, ms)")


class Profiler(IProfiler):
    """Prints the time of every layer, and keeps them: `times` by layer, in milliseconds."""

    def __init__(self):
        self.times = {}

    def report_layer_time(self, layer_name, ms):
        """Prints it."""
        self.times.setdefault(layer_name, []).append(ms)
        print(f"{layer_name}: {ms:.6f} ms")


class ISerializationConfig:
    """What bytes of a plan leave out: nothing."""

    def __init__(self):
        self.flags = 0

    def set_flag(self, flag):
        """Sets a flag."""
        self.flags |= 1 << int(flag)
        return True

    def clear_flag(self, flag):
        """Clears a flag."""
        self.flags &= ~(1 << int(flag))
        return True

    def get_flag(self, flag):
        """Whether a flag is set."""
        return bool(self.flags >> int(flag) & 1)


class EngineInspector:
    """Describes the layers of an engine."""

    def __init__(self, engine):
        self._engine = engine
        self.execution_context = None
        self.error_recorder = None

    @staticmethod
    def _described(step):
        return {"Name": step.name, "LayerType": step.operators, "TacticName": step.kernel, "Precision": step.precision}

    def get_engine_information(self, format=LayerInformationFormat.ONELINE):  # noqa: A002, as TensorRT calls it
        """All layers, as text or JSON."""
        steps = self._engine.engine.steps
        if format == LayerInformationFormat.JSON:
            layers = [self._described(step) for step in steps]
            return json.dumps({"Layers": layers, "Bindings": list(self._engine)}, indent=1)
        return str(steps)

    def get_layer_information(self, layer_index, format=LayerInformationFormat.ONELINE):  # noqa: A002
        """One layer, as text or JSON."""
        step = self._engine.engine.steps[layer_index]
        if format == LayerInformationFormat.JSON:
            return json.dumps(self._described(step))
        return f"{step.name or step.operators}: {step.operators} by {step.kernel}"
