// runtime.cpp: the emulated part of the CUDA runtime library, but for streams.cpp. There is one device.
#include "emulator.h"
#include "streams.h"
#include <cstdlib>
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
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
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
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    *pointer = emulator::device_allocate(bytes);
    return *pointer ? cudaSuccess : cudaErrorMemoryAllocation;
}

// Waits for all that runs, as the driver does.
cudaError_t cudaFree(void *pointer)
{
    if (!pointer) return cudaSuccess;
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    const int error = emulator::do_all_streams();
    return emulator::device_free(pointer) ? static_cast<cudaError_t>(error) : cudaErrorInvalidValue;
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned)
{
    *pointer = malloc(bytes);
    return *pointer ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *pointer)
{
    free(pointer);
    return cudaSuccess;
}

// The host's memory is read or written when the stream comes to the copy, as with pinned memory; for other memory a GPU may do so earlier.
cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    const bool from_device = kind != cudaMemcpyHostToDevice, to_device = kind != cudaMemcpyDeviceToHost;
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    if (from_device && !emulator::device_range(source, bytes)) return cudaErrorInvalidValue;
    if (to_device && !emulator::device_range(destination, bytes)) return cudaErrorInvalidValue;
    return static_cast<cudaError_t>(emulator::put_on_stream(stream, [=] {
        const emulator::DeviceMemoryAccess access;
        memcpy(destination, source, bytes);
        if (to_device) emulator::mark_written(destination, bytes);
        return 0;
    }));
}

void emulator_hide_device_memory() { emulator::hide_device_memory(); }

const char *cudaGetErrorString(cudaError_t error)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    if (*emulator_report()) { // told once: the next error has a report of its own, or none
        static std::string told;
        told = emulator_report();
        emulator_clear_report();
        return told.c_str();
    }
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNotReady: return "not ready";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    default: return "invalid argument";
    }
}
