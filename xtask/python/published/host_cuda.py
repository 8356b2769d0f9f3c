"""The calls of cuda-python that scripts make, over host memory: for machines without a GPU."""

import ctypes
import enum
import sys
import types


def has_gpu():
    """Whether there is a driver with a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


class Error(enum.IntEnum):
    """All is well, or an argument was wrong."""

    cudaSuccess = 0
    cudaErrorInvalidValue = 1


class Result(enum.IntEnum):
    """The driver's word for it."""

    CUDA_SUCCESS = 0


class Nvrtc(enum.IntEnum):
    """The compiler's word for it."""

    NVRTC_SUCCESS = 0


class Kind(enum.IntEnum):
    """Directions of copies: all of them are the host's."""

    cudaMemcpyHostToHost = 0
    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2
    cudaMemcpyDeviceToDevice = 3
    cudaMemcpyDefault = 4


_memory = {}
_libc = ctypes.CDLL(None)
_libc.aligned_alloc.restype = ctypes.c_void_p
_libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]


def _allocate(size, *_):
    address = _libc.aligned_alloc(256, -(-max(int(size), 1) // 256) * 256)
    _memory[address] = size
    return Error.cudaSuccess, address


def _free(address, *_):
    if _memory.pop(int(address), None) is None:
        return (Error.cudaErrorInvalidValue,)
    _libc.free(int(address))
    return (Error.cudaSuccess,)


def _address(memory):
    """An address as it is given: a number, or whatever has elements there."""
    return memory.ctypes.data if hasattr(memory, "ctypes") else int(memory)


def _copy(to, source, size, *_):
    ctypes.memmove(_address(to), _address(source), int(size))
    return (Error.cudaSuccess,)


def _done(*_):
    return (Error.cudaSuccess,)


class Stream(int):
    """A stream: a number."""


def _runtime():
    made = types.ModuleType("cuda.bindings.runtime")
    made.cudaError_t, made.cudaMemcpyKind, made.cudaStream_t = Error, Kind, Stream
    made.cudaMalloc = made.cudaMallocHost = made.cudaMallocAsync = _allocate
    made.cudaFree = made.cudaFreeHost = made.cudaFreeAsync = _free
    made.cudaMemcpy = made.cudaMemcpyAsync = _copy
    made.cudaStreamSynchronize = made.cudaStreamDestroy = made.cudaDeviceSynchronize = made.cudaSetDevice = _done
    made.cudaStreamCreate = lambda: (Error.cudaSuccess, Stream(1))
    made.cudaGetErrorName = made.cudaGetErrorString = lambda error: (Error.cudaSuccess, error.name)
    return made


def install():
    """Has `import cuda` find these."""
    package, bindings = types.ModuleType("cuda"), types.ModuleType("cuda.bindings")
    package.__path__, bindings.__path__ = [], []
    driver, nvrtc = types.ModuleType("cuda.bindings.driver"), types.ModuleType("cuda.bindings.nvrtc")
    driver.CUresult, nvrtc.nvrtcResult = Result, Nvrtc
    driver.cuInit = lambda flags: (Result.CUDA_SUCCESS,)
    driver.cuDeviceGet = lambda index: (Result.CUDA_SUCCESS, index)
    driver.cuCtxCreate = lambda *arguments: (Result.CUDA_SUCCESS, 1)
    runtime = _runtime()
    package.bindings, package.cuda, package.cudart, package.nvrtc = bindings, driver, runtime, nvrtc
    bindings.driver, bindings.runtime, bindings.nvrtc = driver, runtime, nvrtc
    names = {"cuda": package, "cuda.bindings": bindings, "cuda.cuda": driver, "cuda.cudart": runtime, "cuda.nvrtc": nvrtc}
    names.update({"cuda.bindings.driver": driver, "cuda.bindings.runtime": runtime, "cuda.bindings.nvrtc": nvrtc})
    sys.modules.update(names)
