// runtime.cpp: the emulated part of the CUDA runtime library. There is one device; a stream does its work at once.
#include "emulator.h"
#include <cstring>

namespace
{
int capability_major = 8, capability_minor = 0;
}

void emulator_set_compute_capability(int major, int minor)
{
    capability_major = major;
    capability_minor = minor;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    if (device != 0) return cudaErrorInvalidDevice;
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? capability_major : capability_minor;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    *pointer = emulator::device_allocate(bytes);
    return *pointer ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *pointer) { return !pointer || emulator::device_free(pointer) ? cudaSuccess : cudaErrorInvalidValue; }

cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t bytes, cudaMemcpyKind kind, cudaStream_t)
{
    const bool from_device = kind != cudaMemcpyHostToDevice, to_device = kind != cudaMemcpyDeviceToHost;
    if (from_device && !emulator::device_range(source, bytes)) return cudaErrorInvalidValue;
    if (to_device && !emulator::device_range(destination, bytes)) return cudaErrorInvalidValue;
    memcpy(destination, source, bytes);
    if (to_device) emulator::mark_written(destination, bytes);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

const char *cudaGetErrorString(cudaError_t error)
{
    if (*emulator_report()) return emulator_report();
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    default: return "invalid argument";
    }
}
