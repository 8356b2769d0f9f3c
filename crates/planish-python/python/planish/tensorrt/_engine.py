"""Engines, and contexts that run them at addresses of the caller's."""

import enum
import json
import os
import tempfile

import planish

from ._logger import ILogger
from ._memory import array_at
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

    def deserialize_cuda_engine(self, serialized_engine):
        """The engine of a plan's bytes; None where the logger was told why not."""
        content = bytes(serialized_engine)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.plan")
            with open(path, "wb") as file:
                file.write(content)
            try:
                # Read into memory: the file goes with its folder.
                return ICudaEngine(planish.load(path, copy=True), IHostMemory(content))
            except planish.errors.Error as error:
                self._logger.log(ILogger.ERROR, str(error))
                return None


class ICudaEngine:
    """A plan that is ready to run."""

    def __init__(self, engine, serialized):
        self.engine = engine
        self._serialized = serialized
        self._inputs, self._outputs = engine.inputs, engine.outputs
        self._ports = {info.name: info for info in self._inputs + self._outputs}
        self._names = list(self._ports)

    name = "planish"
    max_batch_size = 1
    has_implicit_batch_dimension = False
    num_optimization_profiles = 1
    #: Only a context has memory.
    device_memory_size = device_memory_size_v2 = 0

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
        """Where its memory is."""
        return TensorLocation.HOST if self.engine.device == "cpu" else TensorLocation.DEVICE

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

    def create_execution_context(self):
        """Memory to run with, for one caller at a time."""
        return IExecutionContext(self)

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
    """Prints the time of every layer."""

    def report_layer_time(self, layer_name, ms):
        """Prints it."""
        print(f"{layer_name}: {ms:.6f} ms")


class IExecutionContext:
    """Runs an engine at addresses of the caller's, in host memory."""

    def __init__(self, engine):
        self.engine = engine
        self.profiler = None
        self.name = ""
        self.active_optimization_profile = 0
        self._context = engine.engine.context()
        self._shapes = {}
        self._addresses = {}
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

    def set_tensor_address(self, name, memory):
        """Where an input is, or an output is written."""
        if name not in self.engine._ports:
            return False
        self._addresses[name] = int(memory)
        return True

    def get_tensor_address(self, name):
        """Where an input is, or an output is written."""
        return self._addresses.get(name, 0)

    def _run(self):
        missing = self.infer_shapes()
        if missing:
            raise planish.errors.WrongShape(f"the sizes of {', '.join(missing)} are open; call set_input_shape first")
        feed = {}
        for info in self.engine._inputs:
            feed[info.name] = array_at(self._addresses.get(info.name, 0), info.dtype, self._shapes[info.name])
        made = self._context.run(feed)
        for name, array in made.items():
            if name in self._addresses:
                array_at(self._addresses[name], array.dtype, array.shape)[...] = array
        if self.profiler is not None:
            for step in self.engine.engine.profile(feed, runs=1):
                self.profiler.report_layer_time(step.name or step.operators, step.us / 1e3)
        return True

    def execute_v2(self, bindings):
        """Runs at these addresses, in the order of the engine's inputs and outputs, and waits."""
        self._addresses = {name: int(address) for name, address in zip(self.engine._names, bindings)}
        return self._run()

    def execute_async_v2(self, bindings, stream_handle=0):
        """The same: host memory has no streams, so this waits."""
        return self.execute_v2(bindings)

    def execute_async_v3(self, stream_handle=0):
        """Runs at the addresses of `set_tensor_address`; host memory has no streams, so this waits."""
        return self._run()

    def report_to_profiler(self):
        """Every run reports by itself."""
        return True


class EngineInspector:
    """Describes the layers of an engine."""

    def __init__(self, engine):
        self._engine = engine

    def get_engine_information(self, format=LayerInformationFormat.ONELINE):  # noqa: A002, as TensorRT calls it
        """All layers, as text or JSON."""
        steps = self._engine.engine.steps
        if format == LayerInformationFormat.JSON:
            layers = [{"Name": step.name, "LayerType": step.operators, "TacticName": step.kernel} for step in steps]
            return json.dumps({"Layers": layers, "Bindings": list(self._engine)}, indent=1)
        return str(steps)

    def get_layer_information(self, layer_index, format=LayerInformationFormat.ONELINE):  # noqa: A002
        """One layer, as text or JSON."""
        step = self._engine.engine.steps[layer_index]
        if format == LayerInformationFormat.JSON:
            return json.dumps({"Name": step.name, "LayerType": step.operators, "TacticName": step.kernel})
        return f"{step.name or step.operators}: {step.operators} by {step.kernel}"
