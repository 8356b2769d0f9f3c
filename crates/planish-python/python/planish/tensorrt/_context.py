"""Contexts, which run engines at addresses of the caller's."""

import numpy as np
import planish

from .. import _device
from ._enums import ProfilingVerbosity, TensorIOMode
from ._interfaces import fail
from ._memory import array_at, bytes_of
from ._types import Dims, dims_of


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
        self._consumed = self._listener = None
        self.unfused_tensors_debug_state, self.device_memory = False, 0
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
        if name not in {info.name for info in self.engine._inputs}:
            fail(self.engine._logger, f"there is no input `{name}`", self.error_recorder)
            return False
        known = self.engine.get_tensor_shape(name)
        if len(known) != len(shape) or any(size not in (-1, given) for size, given in zip(known, shape)):
            fail(self.engine._logger, f"input `{name}` takes {known}, not {tuple(shape)}", self.error_recorder)
            return False
        refusal = self.engine._refusal(name, shape)
        if refusal is not None:
            fail(self.engine._logger, refusal, self.error_recorder)
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

    def get_shape(self, binding):
        """The elements of an input of sizes are read where it is."""
        return []

    def set_tensor_debug_state(self, name, flag):
        """Tensors are not listened to; mark them as outputs of the network."""
        return False

    def set_all_tensors_debug_state(self, flag):
        """Tensors are not listened to; mark them as outputs of the network."""
        return False

    def get_debug_state(self, name):
        """Tensors are not listened to."""
        return False

    def set_debug_listener(self, listener):
        """Kept, and never called."""
        self._listener = listener
        return True

    def get_debug_listener(self):
        """The same."""
        return self._listener

    def get_runtime_config(self):
        """What it was asked for."""
        return self.engine.create_runtime_config()

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
