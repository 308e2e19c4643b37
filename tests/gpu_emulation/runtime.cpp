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

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
    *unused = emulator::device_bytes_unused();
    *total = emulator::device_bytes_total();
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
    const emulator::DeviceMemoryAccess access;
    memcpy(destination, source, bytes);
    if (to_device) emulator::mark_written(destination, bytes);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    static uintptr_t created = 0; // a stream is no more than a number
    *stream = reinterpret_cast<cudaStream_t>(++created);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

void emulator_hide_device_memory() { emulator::hide_device_memory(); }

const char *cudaGetErrorString(cudaError_t error)
{
    if (*emulator_report()) { // told once: the next error has a report of its own, or none
        static std::string told;
        told = emulator_report();
        emulator_clear_report();
        return told.c_str();
    }
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    default: return "invalid argument";
    }
}
