"""`OrtValue` and `IOBinding`: tensors that a session is given beforehand."""

import ctypes

import numpy as np

from planish import _device

from planish._named import Named

from ._notes import say_once
from ._types import numpy_type, onnx_number, type_name


class OrtDevice:
    """Where a tensor is said to be."""

    #: Kinds of devices, as numbers.
    _KINDS = {"cpu": 0, "cuda_pinned": 0, "cuda": 1, "gpu": 1}

    def __init__(self, device_type, device_id=0):
        self._type = device_type if isinstance(device_type, int) else self._KINDS.get(str(device_type).lower(), 1)
        self._id = device_id

    @staticmethod
    def make(ort_device_name, device_id, vendor_id=-1):
        """A device by its name."""
        return OrtDevice(ort_device_name, device_id)

    @staticmethod
    def cpu():
        """The host."""
        return 0

    @staticmethod
    def cuda():
        """NVIDIA's GPUs."""
        return 1

    def device_type(self):
        """Its kind."""
        return self._type

    def device_id(self):
        """Its number."""
        return self._id

    def device_mem_type(self):
        """Memory of the usual kind."""
        return 0

    def device_vendor_id(self):
        """NVIDIA's number for a GPU."""
        return 0x10DE if self._type else 0


class OrtMemoryInfo:
    """Where memory is."""

    def __init__(self, name, allocator_type, device_id, mem_type):
        self.name, self.allocator_type, self.device_id, self.mem_type = name, allocator_type, device_id, mem_type

    @classmethod
    def of(cls, device):
        """That of a device of Planish's."""
        kind, _, number = device.partition(":")
        return cls("Cpu" if kind == "cpu" else "Cuda", OrtAllocatorType.ORT_DEVICE_ALLOCATOR, int(number or 0), OrtMemType.DEFAULT)


class OrtArenaCfg:
    """How memory grows: taken, and left alone."""

    def __init__(self, *settings):
        self.settings = settings


class OrtAllocatorType(Named):
    """Kinds of allocators."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(Named):
    """Kinds of memory."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    DEFAULT = 0


class OrtValueVector(list):
    """Values, one after another."""


class SparseTensor:
    """Sparse tensors are not here; the name is, for `isinstance`."""


def _is_on_host(device_type, bound=""):
    """Whether a value is the host's; where there is no GPU all are, which is said once, but for addresses."""
    if str(device_type).lower() in ("cpu", "cuda_pinned"):
        return True
    if not _device.has_gpu():
        if bound:
            raise ValueError(f"{bound} is bound to memory of `{device_type}`, and there is no GPU here")
        say_once(f"values for `{device_type}` stay in host memory: there is no GPU here")
        return True
    return False


class _Away:
    """A tensor in the memory of a GPU: the caller's, or its own."""

    def __init__(self, address, element_type, shape, index, owner=None):
        self.dtype, self.shape, self.index = np.dtype(numpy_type(element_type)), tuple(shape), index
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        self._owner = owner or (None if address else _device.Memory(self.nbytes, index))
        self.address = address or self._owner.address

    @classmethod
    def of(cls, array, index):
        """A copy of an array."""
        array = np.ascontiguousarray(array)
        made = cls(None, array.dtype, array.shape, index)
        _device.copy_from_host(made.address, array)
        return made

    def to_host(self):
        """A copy in host memory."""
        array = np.empty(self.shape, self.dtype)
        if array.nbytes:
            _device.copy_to_host(array, self.address)
        return array


def _at(pointer, element_type, shape):
    """The array at an address, which whoever gave it keeps."""
    dtype = np.dtype(numpy_type(element_type))
    n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = (ctypes.c_char * n_bytes).from_address(pointer)
    return np.frombuffer(memory, dtype).reshape(shape)


class OrtValue:
    """A tensor in host memory.

    >>> import planish.onnxruntime as ort
    >>> value = ort.OrtValue.ortvalue_from_numpy(numpy.float32([[1, 2]]))
    >>> value.shape(), value.data_type(), value.device_name()
    ([1, 2], 'tensor(float)', 'cpu')
    """

    def __init__(self, array):
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(numpy_obj, device_type="cpu", device_id=0):
        """A value over an array; the array is not copied."""
        if not isinstance(numpy_obj, np.ndarray) or numpy_obj.dtype.kind in "OSU":
            raise RuntimeError("Creation of OrtValues is currently only supported from non-string numpy arrays")
        if not _is_on_host(device_type):
            return OrtValue(_Away.of(numpy_obj, device_id))
        return OrtValue(numpy_obj if numpy_obj.flags.c_contiguous else np.ascontiguousarray(numpy_obj))

    @staticmethod
    def ortvalue_from_shape_and_type(shape, element_type, device_type="cpu", device_id=0):
        """A value of zeros."""
        zeros = np.zeros(tuple(shape), numpy_type(element_type))
        return OrtValue(zeros if _is_on_host(device_type) else _Away.of(zeros, device_id))

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data, onnx_element_type):
        """A value over an array whose bytes are of another type: one that numpy lacks."""
        dtype = np.dtype(numpy_type(int(onnx_element_type)))
        return OrtValue(data if dtype.itemsize != data.dtype.itemsize else data.view(dtype))

    @staticmethod
    def from_dlpack(data, is_bool_tensor=False):
        """A value over another library's tensor, without a copy."""
        array = np.from_dlpack(data)
        return OrtValue(array.astype(bool) if is_bool_tensor else array)

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def numpy(self):
        """The array; a copy where it is a GPU's."""
        return self._array.to_host() if isinstance(self._array, _Away) else self._array

    def shape(self):
        """Its sizes."""
        return list(self._array.shape)

    def data_type(self):
        """Its type, as in `tensor(float)`."""
        return type_name(self._array.dtype.name)

    def element_type(self):
        """ONNX's number of its element type."""
        return onnx_number(self._array.dtype.name)

    def device_name(self):
        """Where it is."""
        return "cuda" if isinstance(self._array, _Away) else "cpu"

    def data_ptr(self):
        """The address of its elements."""
        return self._array.address if isinstance(self._array, _Away) else self._array.ctypes.data

    def tensor_size_in_bytes(self):
        """The bytes of its elements."""
        return self._array.nbytes

    def has_value(self):
        """Whether it holds anything."""
        return self._array is not None

    def is_tensor(self):
        """Whether it is a tensor."""
        return isinstance(self._array, (np.ndarray, _Away))

    def is_tensor_sequence(self):
        """Whether it is a sequence of tensors."""
        return isinstance(self._array, list)

    def is_sparse_tensor(self):
        """Never: there are no sparse tensors here."""
        return False

    def update_inplace(self, np_arr):
        """Overwrites the elements."""
        if isinstance(self._array, _Away):
            if np_arr.dtype != self._array.dtype or np_arr.shape != self._array.shape:
                raise TypeError(f"the value is {self._array.dtype} of {self._array.shape}, not {np_arr.dtype} of {np_arr.shape}")
            _device.copy_from_host(self._array.address, np.ascontiguousarray(np_arr))
        else:
            np.copyto(self._array, np_arr, casting="no")


class IOBinding:
    """Inputs and outputs that a session is given beforehand.

    >>> import planish.onnxruntime as ort
    >>> planish.Model.parse('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }').save_onnx("relu.onnx")
    >>> session = ort.InferenceSession("relu.onnx")
    >>> binding = session.io_binding()
    >>> binding.bind_cpu_input("x", numpy.float32([-1, 2]))
    >>> binding.bind_output("y")
    >>> session.run_with_iobinding(binding)
    >>> binding.copy_outputs_to_cpu()
    [array([0., 2.], dtype=float32)]
    """

    def __init__(self, session):
        self._session = session
        self._inputs = {}
        self._outputs = {}
        self._results = []

    def bind_cpu_input(self, name, arr_on_cpu):
        """Reads an input from an array."""
        if name not in self._session._input_names:
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")
        self._inputs[name] = arr_on_cpu

    def bind_input(self, name, device_type, device_id, element_type, shape, buffer_ptr):
        """Reads an input from an address in host memory."""
        if _is_on_host(device_type, f"input `{name}`"):
            self._inputs[name] = _at(buffer_ptr, element_type, tuple(shape))
        else:
            self._inputs[name] = _Away(buffer_ptr, element_type, shape, device_id)

    def bind_ortvalue_input(self, name, ortvalue):
        """Reads an input from a value."""
        self._inputs[name] = ortvalue._array

    def bind_output(self, name, device_type="cpu", device_id=0, element_type=None, shape=None, buffer_ptr=None):
        """Gives an output; at an address, if there is one, else where it is made."""
        if _is_on_host(device_type, buffer_ptr is not None and f"output `{name}`"):
            self._outputs[name] = None if buffer_ptr is None else _at(buffer_ptr, element_type, tuple(shape))
        else:
            # Of the sizes that the run has, where no memory is given.
            self._outputs[name] = _AWAY if buffer_ptr is None else _Away(buffer_ptr, element_type, shape, device_id)

    def bind_ortvalue_output(self, name, ortvalue):
        """Writes an output to a value."""
        self._outputs[name] = ortvalue._array

    def synchronize_inputs(self):
        """Nothing to wait for."""

    def synchronize_outputs(self):
        """Nothing to wait for: runs are waited for."""

    def clear_binding_inputs(self):
        """Forgets the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self):
        """Forgets the outputs."""
        self._outputs.clear()

    def get_outputs(self):
        """The outputs of the last run, in the order in which they were bound."""
        return [OrtValue(array) for array in self._results]

    def get_outputs_as_ortvaluevector(self):
        """The same."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self):
        """The outputs of the last run, as arrays."""
        return [OrtValue(array).numpy() for array in self._results]

    def run(self, run_options):
        """Runs the session on what is bound."""
        if all(isinstance(array, _Away) for array in self._inputs.values()) and self._inputs and self._run_away():
            return
        feed = {name: array.to_host() if isinstance(array, _Away) else array for name, array in self._inputs.items()}
        made = self._session.run(list(self._outputs), feed, run_options)
        self._results = []
        for array, place in zip(made, self._outputs.values()):
            if place is _AWAY:
                array = _Away.of(array, 0)
            elif isinstance(place, _Away):
                _device.copy_from_host(place.address, np.ascontiguousarray(array))
                array = place
            elif place is not None:
                # Larger memory than the output needs is filled from its beginning.
                place.reshape(-1)[: array.size] = array.reshape(-1)
                array = place.reshape(-1)[: array.size].reshape(array.shape)
            self._results.append(array)

    def _run_away(self):
        """Runs on a GPU's memory without a copy, where all that is bound is there; gives whether that can be."""
        engine = self._session._engine
        shapes = {name: array.shape for name, array in self._inputs.items()}
        if engine.placed_on == "cpu" or set(shapes) != {info.name for info in engine.inputs}:
            return False
        sizes = engine.output_shapes(shapes)
        if any(sizes[name] is None or place is not _AWAY and not isinstance(place, _Away) for name, place in self._outputs.items()):
            return False
        results = {}
        for info in engine.outputs:
            place = self._outputs.get(info.name)
            if isinstance(place, _Away):
                results[info.name] = _Away(place.address, info.dtype, sizes[info.name], place.index, place)
            elif place is _AWAY:
                results[info.name] = _Away(None, info.dtype, sizes[info.name], 0)
        inputs = [(self._inputs[info.name].address, self._inputs[info.name].shape) for info in engine.inputs]
        outputs = [(results[info.name].address, results[info.name].nbytes) if info.name in results else (0, 0) for info in engine.outputs]
        # Whatever stream the memory was written on: ONNX Runtime's runs are waited for, and begin after its default stream.
        _device.synchronize(0)
        with engine.context() as context:
            context.run_at(inputs, outputs, on_device=True)
        self._results = [results[name] for name in self._outputs]
        return True


#: Stands for an output that is to be made in a GPU's memory.
_AWAY = object()
