// The calls of CUDA's runtime that clients of TensorRT make, for machines without CUDA: "device memory" is host memory, and
// streams are in order because every call waits. For plans on the CPU; put this folder on the include path instead of CUDA's.
#ifndef PLANISH_HOST_CUDA_RUNTIME_API_H
#define PLANISH_HOST_CUDA_RUNTIME_API_H

#include <chrono>
#include <cstddef>
#include <cstring>

#include <stdlib.h>

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

struct CUstream_st {};
struct CUevent_st {
    std::chrono::steady_clock::time_point at;
};

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2 };
typedef cudaError_t cudaError;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};

enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaHostAllocDefault = 0 };

inline char const *cudaGetErrorString(cudaError_t error) {
    return error == cudaSuccess ? "no error" : error == cudaErrorMemoryAllocation ? "out of memory" : "invalid argument";
}
inline char const *cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return cudaSuccess; }

// Aligned as CUDA's is.
inline cudaError_t cudaMalloc(void **memory, size_t n_bytes) {
    if (memory == nullptr) {
        return cudaErrorInvalidValue;
    }
    *memory = nullptr;
    return n_bytes != 0 && posix_memalign(memory, 256, n_bytes) != 0 ? cudaErrorMemoryAllocation : cudaSuccess;
}
template <class T> cudaError_t cudaMalloc(T **memory, size_t n_bytes) {
    return cudaMalloc(reinterpret_cast<void **>(memory), n_bytes);
}
inline cudaError_t cudaFree(void *memory) {
    std::free(memory);
    return cudaSuccess;
}
template <class T> cudaError_t cudaMallocHost(T **memory, size_t n_bytes) {
    return cudaMalloc(reinterpret_cast<void **>(memory), n_bytes);
}
template <class T> cudaError_t cudaHostAlloc(T **memory, size_t n_bytes, unsigned) {
    return cudaMalloc(reinterpret_cast<void **>(memory), n_bytes);
}
template <class T> cudaError_t cudaMallocAsync(T **memory, size_t n_bytes, cudaStream_t) {
    return cudaMalloc(reinterpret_cast<void **>(memory), n_bytes);
}
inline cudaError_t cudaFreeHost(void *memory) { return cudaFree(memory); }
inline cudaError_t cudaFreeAsync(void *memory, cudaStream_t) { return cudaFree(memory); }

inline cudaError_t cudaMemcpy(void *to, void const *from, size_t n_bytes, cudaMemcpyKind) {
    if (n_bytes != 0) {
        std::memmove(to, from, n_bytes);
    }
    return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void *to, void const *from, size_t n_bytes, cudaMemcpyKind kind, cudaStream_t = nullptr) {
    return cudaMemcpy(to, from, n_bytes, kind);
}
inline cudaError_t cudaMemset(void *to, int value, size_t n_bytes) {
    if (n_bytes != 0) {
        std::memset(to, value, n_bytes);
    }
    return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void *to, int value, size_t n_bytes, cudaStream_t = nullptr) {
    return cudaMemset(to, value, n_bytes);
}

inline cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    *stream = new CUstream_st;
    return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) { return cudaStreamCreate(stream); }
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete stream;
    return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidValue; }
inline cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}

inline cudaError_t cudaEventCreate(cudaEvent_t *event) {
    *event = new CUevent_st{};
    return cudaSuccess;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) { return cudaEventCreate(event); }
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t = nullptr) {
    event->at = std::chrono::steady_clock::now();
    return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    *ms = std::chrono::duration<float, std::milli>(to->at - from->at).count();
    return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}

#endif // PLANISH_HOST_CUDA_RUNTIME_API_H
