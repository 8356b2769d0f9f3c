"""`OrtValue` and `IOBinding`: tensors that a session is given beforehand."""

import ctypes

import numpy as np

from ._notes import say_once
from ._types import numpy_type, onnx_number, type_name


class OrtDevice:
    """Where a tensor is said to be."""

    def __init__(self, device_type, device_id=0):
        self._type, self._id = device_type, device_id

    @staticmethod
    def make(ort_device_name, device_id):
        """A device by its name."""
        return OrtDevice(ort_device_name, device_id)

    @staticmethod
    def cpu():
        """The host."""
        return "cpu"

    @staticmethod
    def cuda():
        """NVIDIA's GPUs."""
        return "cuda"

    def device_type(self):
        """Its kind."""
        return self._type

    def device_id(self):
        """Its number."""
        return self._id


def _check_device(device_type):
    if device_type not in ("cpu", "Cpu"):
        say_once(f"values for `{device_type}` stay in host memory; runs copy them to the device and back")


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
        _check_device(device_type)
        return OrtValue(numpy_obj if numpy_obj.flags.c_contiguous else np.ascontiguousarray(numpy_obj))

    @staticmethod
    def ortvalue_from_shape_and_type(shape, element_type, device_type="cpu", device_id=0):
        """A value of zeros."""
        _check_device(device_type)
        return OrtValue(np.zeros(tuple(shape), numpy_type(element_type)))

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
        """The array."""
        return self._array

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
        return "cpu"

    def data_ptr(self):
        """The address of its elements."""
        return self._array.ctypes.data

    def tensor_size_in_bytes(self):
        """The bytes of its elements."""
        return self._array.nbytes

    def has_value(self):
        """Whether it holds anything."""
        return self._array is not None

    def is_tensor(self):
        """Whether it is a tensor."""
        return isinstance(self._array, np.ndarray)

    def is_tensor_sequence(self):
        """Whether it is a sequence of tensors."""
        return isinstance(self._array, list)

    def is_sparse_tensor(self):
        """Never: there are no sparse tensors here."""
        return False

    def update_inplace(self, np_arr):
        """Overwrites the elements."""
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
        self._inputs[name] = arr_on_cpu

    def bind_input(self, name, device_type, device_id, element_type, shape, buffer_ptr):
        """Reads an input from an address in host memory."""
        if device_type != "cpu":
            raise ValueError(f"input `{name}` is bound to memory of `{device_type}`, which Python cannot hand over yet")
        self._inputs[name] = _at(buffer_ptr, element_type, tuple(shape))

    def bind_ortvalue_input(self, name, ortvalue):
        """Reads an input from a value."""
        self._inputs[name] = ortvalue.numpy()

    def bind_output(self, name, device_type="cpu", device_id=0, element_type=None, shape=None, buffer_ptr=None):
        """Gives an output; at an address, if there is one, else where it is made."""
        if buffer_ptr is None:
            _check_device(device_type)
            self._outputs[name] = None
        elif device_type != "cpu":
            raise ValueError(f"output `{name}` is bound to memory of `{device_type}`, which Python cannot hand over yet")
        else:
            self._outputs[name] = _at(buffer_ptr, element_type, tuple(shape))

    def bind_ortvalue_output(self, name, ortvalue):
        """Writes an output to a value."""
        self._outputs[name] = ortvalue.numpy()

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
        return list(self._results)

    def run(self, run_options):
        """Runs the session on what is bound."""
        made = self._session.run(list(self._outputs), self._inputs, run_options)
        self._results = []
        for array, place in zip(made, self._outputs.values()):
            if place is not None:
                # Larger memory than the output needs is filled from its beginning.
                place.reshape(-1)[: array.size] = array.reshape(-1)
                array = place.reshape(-1)[: array.size].reshape(array.shape)
            self._results.append(array)
