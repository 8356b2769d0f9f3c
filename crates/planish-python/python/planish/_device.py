"""Memory of NVIDIA's GPUs by the driver's own calls: where an address is, and copies to the host and back.

The driver is the one of the system; nothing is loaded before the first call, and no toolkit is needed.
"""

import ctypes
import functools

#: Attributes of `cuPointerGetAttribute`, and a memory type of it.
_MEMORY_TYPE, _DEVICE_ORDINAL = 2, 9
_DEVICE = 2


@functools.lru_cache(maxsize=None)
def _driver():
    """NVIDIA's driver; None where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def has_gpu():
    """Whether there is a driver with a GPU."""
    driver, count = _driver(), ctypes.c_int(0)
    return driver is not None and driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def _attribute(address, number):
    driver = _driver()
    value = ctypes.c_uint(0)
    if driver is None or driver.cuPointerGetAttribute(ctypes.byref(value), number, ctypes.c_uint64(address)) != 0:
        # What the driver has never seen is memory of the host.
        return None
    return value.value


def is_on_device(address):
    """Whether an address is of a GPU's memory."""
    return _attribute(address, _MEMORY_TYPE) == _DEVICE


def device_of(address):
    """The number of the GPU whose memory an address is of."""
    return _attribute(address, _DEVICE_ORDINAL) or 0


def _check(code, what):
    if code != 0:
        raise RuntimeError(f"the driver cannot {what} (error {code} of CUDA)")


def copy_to_host(array, address):
    """Fills an array of numpy's from an address, on a GPU or on the host."""
    if is_on_device(address):
        call = _driver().cuMemcpyDtoH_v2
        _check(call(ctypes.c_void_p(array.ctypes.data), ctypes.c_uint64(address), ctypes.c_size_t(array.nbytes)), "copy from the GPU")
    else:
        ctypes.memmove(array.ctypes.data, address, array.nbytes)


def copy_bytes_to_host(address, to, n_bytes):
    """Copies bytes of a GPU's memory to an address of the host's."""
    if n_bytes:
        _check(_driver().cuMemcpyDtoH_v2(ctypes.c_void_p(to), ctypes.c_uint64(address), ctypes.c_size_t(n_bytes)), "copy from the GPU")


def copy_from_host(address, array):
    """Writes an array of numpy's to an address, on a GPU or on the host."""
    if is_on_device(address):
        call = _driver().cuMemcpyHtoD_v2
        _check(call(ctypes.c_uint64(address), ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)), "copy to the GPU")
    else:
        ctypes.memmove(address, array.ctypes.data, array.nbytes)


def synchronize(stream):
    """Waits for a stream, by its number."""
    driver = _driver()
    if driver is not None:
        _check(driver.cuStreamSynchronize(ctypes.c_void_p(stream)), "wait for a stream")


class Memory:
    """Memory of a GPU, given back when nobody has it any more."""

    def __init__(self, n_bytes, index=0):
        driver, device, context, address = _driver(), ctypes.c_int(0), ctypes.c_void_p(), ctypes.c_uint64()
        if driver is None:
            raise RuntimeError("there is no driver of NVIDIA's here, so there is no memory of a GPU")
        _check(driver.cuInit(0), "start")
        _check(driver.cuDeviceGet(ctypes.byref(device), index), f"find GPU {index}")
        # The context that torch, CuPy and Planish itself work in.
        _check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "open the GPU")
        _check(driver.cuCtxSetCurrent(context), "open the GPU")
        _check(driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(n_bytes, 1))), f"give {n_bytes} bytes")
        self.address, self.n_bytes, self.index = address.value, n_bytes, index

    def __del__(self):
        driver = _driver()
        if driver is not None and hasattr(self, "address"):
            driver.cuMemFree_v2(ctypes.c_uint64(self.address))
