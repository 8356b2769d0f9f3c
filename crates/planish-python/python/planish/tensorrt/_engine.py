"""Engines, and contexts that run them at addresses of the caller's."""

import enum
import json
import os
import tempfile

import numpy as np
import planish

from .. import _device
from ._enums import EngineCapability, ExecutionContextAllocationStrategy, HardwareCompatibilityLevel, ProfilingVerbosity, TensorFormat
from ._logger import ILogger, say_once
from ._memory import array_at, bytes_of
from ._types import Dims, dims_of, of_numpy


class TensorIOMode(enum.IntEnum):
    """What a tensor is to an engine."""

    NONE = 0
    INPUT = 1
    OUTPUT = 2


class TensorLocation(enum.IntEnum):
    """Where a tensor is."""

    DEVICE = 0
    HOST = 1


class LayerInformationFormat(enum.IntEnum):
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


class Runtime:
    """Opens plans."""

    def __init__(self, logger):
        self._logger = logger
        self.error_recorder = None
        self.gpu_allocator = None
        self.DLA_core = -1
        self.engine_host_code_allowed = False
        self.max_threads = 1

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
        content = bytes(serialized_engine)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.plan")
            with open(path, "wb") as file:
                file.write(content)
            try:
                # Read into memory: the file goes with its folder.
                return ICudaEngine(planish.load(path, copy=True), IHostMemory(content), self._logger)
            except planish.errors.Error as error:
                self._logger.log(ILogger.ERROR, str(error))
                return None


def _read_all(reader):
    """What a reader of streams gives, piece by piece."""
    parts = []
    while True:
        part = reader.read(1 << 24)
        if not part:
            return b"".join(parts)
        parts.append(bytes(part))


class IStreamReader:
    """Gives the bytes of a plan: `read(size)`."""


class ICudaEngine:
    """A plan that is ready to run."""

    def __init__(self, engine, serialized, logger=None):
        self.engine = engine
        self._logger = logger
        self._serialized = serialized
        #: Goes up where weights were exchanged: contexts take the new ones with their next run.
        self.generation = 0
        self._inputs, self._outputs = engine.inputs, engine.outputs
        self._ports = {info.name: info for info in self._inputs + self._outputs}
        self._names = list(self._ports)

    name = "planish"
    max_batch_size = 1
    has_implicit_batch_dimension = False
    num_optimization_profiles = 1
    #: Only a context has memory.
    device_memory_size = device_memory_size_v2 = 0
    refittable = True
    num_aux_streams = 0
    error_recorder = None
    tactic_sources = 7
    streamable_weights_size = 0
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
        return TensorIOMode.INPUT if any(info.name == name for info in self._inputs) else TensorIOMode.OUTPUT

    def get_tensor_shape(self, name):
        """Its sizes, -1 where a run decides."""
        return dims_of(self._ports[name])

    def get_tensor_dtype(self, name):
        """Its element type."""
        return of_numpy(self._ports[name].dtype)

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

    def is_shape_inference_io(self, name):
        """Whether it holds sizes that shapes follow from; none is said to."""
        return False

    def get_tensor_profile_shape(self, name, profile_index):
        """The smallest, the usual and the largest sizes: open ones are from 1 on."""
        shape = self.get_tensor_shape(name)
        return [Dims(size if size >= 0 else most for size in shape) for most in (1, 1, 2**31 - 1)]

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


class IOutputAllocator:
    """Gives memory for an output whose size only a run can tell: `reallocate_output`, `notify_shape`."""

class IExecutionContext:
    """Runs an engine at addresses of the caller's: of a GPU's memory, or of the host's."""

    def __init__(self, engine):
        self.engine = engine
        self.profiler = None
        self.name = ""
        self.active_optimization_profile = 0
        self.enqueue_emits_profile = True
        self.debug_sync = False
        self.error_recorder = None
        self.nvtx_verbosity = ProfilingVerbosity.DETAILED
        self.persistent_cache_limit = 0
        self.temporary_allocator = None
        self._context, self._generation = engine.engine.context(), engine.generation
        self._shapes = {}
        self._addresses = {}
        self._allocators = {}
        self._consumed = None
        self._made = {}
        #: Whether an address is of a GPU's memory, by address: asked of the driver once for each.
        self._places = {}
        for info in engine._inputs:
            shape = dims_of(info)
            if -1 not in shape:
                self._shapes[info.name] = tuple(shape)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._context.close()

    def set_input_shape(self, name, shape):
        """The sizes of an input. Gives whether the plan takes them."""
        known = self.engine.get_tensor_shape(name)
        if len(known) != len(shape) or any(size not in (-1, given) for size, given in zip(known, shape)):
            return False
        self._shapes[name] = tuple(shape)
        return True

    def set_binding_shape(self, binding, shape):
        """The same, by number."""
        return self.set_input_shape(self.engine._name(binding), shape)

    def get_tensor_shape(self, name):
        """The sizes of an input or an output, -1 where they are not known yet."""
        if name in self._shapes:
            return Dims(self._shapes[name])
        if self.all_binding_shapes_specified and self.engine.get_tensor_mode(name) == TensorIOMode.OUTPUT:
            shape = self.engine.engine.output_shapes(self._shapes)[name]
            if shape is not None:
                return Dims(shape)
            if name in self._made:
                return Dims(self._made[name])
        return self.engine.get_tensor_shape(name)

    def get_binding_shape(self, binding):
        """The same, by number."""
        return self.get_tensor_shape(self.engine._name(binding))

    @property
    def all_binding_shapes_specified(self):
        """Whether the sizes of all inputs are known."""
        return len(self._shapes) == len(self.engine._inputs)

    def infer_shapes(self):
        """The inputs whose sizes are not known."""
        return [info.name for info in self.engine._inputs if info.name not in self._shapes]

    def set_optimization_profile_async(self, profile_index, stream_handle):
        """Profiles are found by the sizes of inputs."""
        self.active_optimization_profile = profile_index
        return True

    def set_optimization_profile(self, profile_index):
        """The same."""
        return self.set_optimization_profile_async(profile_index, 0)

    def set_shape_input(self, binding, shape):
        """The elements of an input of sizes are read where it is."""
        return True

    @property
    def all_shape_inputs_specified(self):
        """Always: they are read where they are."""
        return True

    def get_strides(self, binding):
        """Steps from element to element, for each axis."""
        return self.get_tensor_strides(self.engine._name(binding))

    def get_tensor_strides(self, name):
        """Steps from element to element, for each axis."""
        strides, step = [], 1
        for size in reversed(self.get_tensor_shape(name)):
            strides.insert(0, step)
            step *= size
        return Dims(strides)

    def get_max_output_size(self, name):
        """The bytes of an output for inputs of these sizes."""
        return bytes_of(self.engine._ports[name].dtype, self.get_tensor_shape(name))

    def update_device_memory_size_for_shapes(self):
        """Memory is the context's own."""
        return 0

    def set_device_memory(self, memory, size):
        """Memory is the context's own."""

    def set_input_consumed_event(self, event):
        """Kept: inputs may be written again when the stream gets there."""
        self._consumed = event
        return True

    def get_input_consumed_event(self):
        """The same."""
        return self._consumed

    def set_aux_streams(self, aux_streams):
        """Runs are on one stream."""

    def set_output_allocator(self, name, output_allocator):
        """Who gives memory for an output."""
        self._allocators[name] = output_allocator
        return True

    def get_output_allocator(self, name):
        """The same."""
        return self._allocators.get(name)

    def set_tensor_address(self, name, memory):
        """Where an input is, or an output is written."""
        if name not in self.engine._ports:
            return False
        self._addresses[name] = int(memory)
        return True

    set_input_tensor_address = set_output_tensor_address = set_tensor_address

    def get_tensor_address(self, name):
        """Where an input is, or an output is written."""
        return self._addresses.get(name, 0)

    get_output_tensor_address = get_tensor_address

    def _is_on_device(self, address):
        if self.engine.engine.placed_on == "cpu":
            return False
        known = self._places.get(address)
        if known is None:
            if len(self._places) > 1024:
                self._places.clear()
            known = self._places[address] = _device.is_on_device(address)
        return known

    def _run(self, stream=None):
        if self._generation != self.engine.generation:
            self._context, self._generation = self.engine.engine.context(), self.engine.generation
        missing = self.infer_shapes()
        if missing:
            raise planish.errors.WrongShape(f"the sizes of {', '.join(missing)} are open; call set_input_shape first")
        inputs = [(self._addresses.get(info.name, 0), self._shapes[info.name]) for info in self.engine._inputs]
        for info, (address, _) in zip(self.engine._inputs, inputs):
            if not address:
                raise ValueError(f"the address of `{info.name}` is 0; give that of its memory")
        on_device = self._is_on_device(inputs[0][0]) if inputs else False
        sizes = self.engine.engine.output_shapes(self._shapes)
        if any(shape is None for shape in sizes.values()) or self._allocators:
            self._run_and_allocate(on_device, stream)
        else:
            outputs = [
                (self._addresses.get(info.name, 0), bytes_of(info.dtype, sizes[info.name]) if info.name in self._addresses else 0)
                for info in self.engine._outputs
            ]
            self._context.run_at(inputs, outputs, on_device=on_device, stream=stream)
        if self.profiler is not None:
            for step in self.engine.engine.profile(self._feed(on_device, stream), runs=1):
                self.profiler.report_layer_time(step.name or step.operators, step.us / 1e3)
        return True

    def _feed(self, on_device, stream):
        """The inputs as arrays of the host."""
        if on_device and stream is not None:
            _device.synchronize(stream)
        feed = {}
        for info in self.engine._inputs:
            address, shape = self._addresses[info.name], self._shapes[info.name]
            if on_device:
                feed[info.name] = np.empty(shape, info.dtype)
                _device.copy_to_host(feed[info.name], address)
            else:
                feed[info.name] = array_at(address, info.dtype, shape)
        return feed

    def _run_and_allocate(self, on_device, stream):
        """Runs where only the run can tell sizes: outputs go to memory that allocators give, or that there is."""
        made = self._context.run(self._feed(on_device, stream))
        for name, array in made.items():
            array = np.ascontiguousarray(array)
            self._made[name] = array.shape
            address, allocator = self._addresses.get(name, 0), self._allocators.get(name)
            if allocator is not None:
                again = getattr(allocator, "reallocate_output_async", None) or getattr(allocator, "reallocate_output")
                arguments = (name, address, max(array.nbytes, 1), 64)
                address = again(*arguments, stream or 0) if again.__name__.endswith("async") else again(*arguments)
                allocator.notify_shape(name, Dims(array.shape))
            if address and array.nbytes:
                _device.copy_from_host(int(address), array)

    def execute_v2(self, bindings):
        """Runs at these addresses, in the order of the engine's inputs and outputs, and waits."""
        self._addresses = {name: int(address) for name, address in zip(self.engine._names, bindings)}
        return self._run()

    def execute(self, batch_size=1, bindings=()):
        """The same, as TensorRT 7 has it."""
        return self.execute_v2(bindings)

    def execute_async_v2(self, bindings, stream_handle=0, input_consumed=None):
        """The same on a stream, without waiting; in host memory there are no streams, and it waits."""
        self._addresses = {name: int(address) for name, address in zip(self.engine._names, bindings)}
        return self._run(int(stream_handle))

    def execute_async(self, batch_size=1, bindings=(), stream_handle=0, input_consumed=None):
        """The same, as TensorRT 7 has it."""
        return self.execute_async_v2(bindings, stream_handle)

    def execute_async_v3(self, stream_handle=0):
        """Runs at the addresses of `set_tensor_address`: on a stream, without waiting. In host memory there are no streams."""
        return self._run(int(stream_handle))

    def report_to_profiler(self):
        """Every run reports by itself."""
        return True


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
