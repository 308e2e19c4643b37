// runtime.cpp: the emulated part of the CUDA runtime library, but for streams.cpp. There is one device.
#include "capture.h"
#include "streams.h"
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

using emulator::result;

namespace
{
int capability_major = 8, capability_minor = 0, multiprocessors = 108;
thread_local cudaError_t last_error = cudaSuccess;
bool last_errors_are_kept = false, launches_tell_last_error = false;
thread_local int current_device = 0;

std::map<const void *, size_t> page_locked; // bytes by address
bool host_memory_is_refused = false;
int pageable_copies = 0, pageable_waits = 0, copies_from_host = 0, copies_to_host = 0;

bool is_page_locked(const void *host)
{
    auto next = page_locked.upper_bound(host);
    if (next == page_locked.begin()) return false;
    --next;
    return static_cast<const char *>(host) < static_cast<const char *>(next->first) + next->second;
}

} // namespace

cudaError_t emulator::result(int error)
{
    if (error) last_error = static_cast<cudaError_t>(error);
    return static_cast<cudaError_t>(error);
}

cudaError_t emulator::result_of_launch(int error) { return !error && launches_tell_last_error ? cudaGetLastError() : result(error); }

cudaError_t cudaGetLastError() { return last_errors_are_kept ? last_error : std::exchange(last_error, cudaSuccess); }

void emulator_set_last_error(int error) { last_error = static_cast<cudaError_t>(error); }
int emulator_last_error(void) { return last_error; }
void emulator_keep_last_errors(int keep) { last_errors_are_kept = keep; }
void emulator_launches_tell_last_error(int tell) { launches_tell_last_error = tell; }

void emulator_set_compute_capability(int major, int minor)
{
    capability_major = major;
    capability_minor = minor;
}

// CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability": "maximum amount of shared memory per thread block".
size_t emulator::shared_limit()
{
    switch (10 * capability_major + capability_minor) {
    case 75: return 64 * 1024;
    case 80: return 163 * 1024;
    case 90:
    case 100: return largest_shared_limit;
    default: return 99 * 1024; // 8.6, 8.9, 12.0
    }
}

void emulator_set_multiprocessors(int count) { multiprocessors = count; }

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

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device > 1) return result(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}

bool emulator::own_device_is_current() { return current_device == 0; }
int emulator_current_device(void) { return current_device; }
void emulator_select_device(int device) { current_device = device; }

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    *unused = emulator::device_bytes_unused();
    *total = emulator::device_bytes_total();
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    if (device != 0) return result(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = multiprocessors; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(emulator::shared_limit()); break;
    case cudaDevAttrComputeCapabilityMajor: *value = capability_major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = capability_minor; break;
    }
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    if (!emulator::own_device_is_current()) return result(cudaErrorInvalidDevice);
    if (const int refused = emulator::refuse_unsafe()) return result(refused);
    *pointer = emulator::device_allocate(bytes);
    return result(*pointer ? cudaSuccess : cudaErrorMemoryAllocation);
}

// Waits for all that runs, as the driver does.
cudaError_t cudaFree(void *pointer)
{
    if (!pointer) return cudaSuccess;
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    if (const int refused = emulator::refuse_unsafe()) return result(refused);
    const int error = emulator::do_all_streams();
    return result(emulator::device_free(pointer) ? error : cudaErrorInvalidValue);
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    if (const int refused = emulator::refuse_unsafe()) return result(refused);
    *pointer = host_memory_is_refused ? nullptr : malloc(bytes);
    if (*pointer) page_locked[*pointer] = bytes;
    return result(*pointer ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *pointer)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    page_locked.erase(pointer);
    free(pointer);
    return cudaSuccess;
}

bool emulator::host_page_locked(const void *pointer)
{
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    return is_page_locked(pointer);
}

int emulator_copies_from_host(void) { return copies_from_host; }
int emulator_copies_to_host(void) { return copies_to_host; }
int emulator_pageable_copies(void) { return pageable_copies; }
int emulator_pageable_waits(void) { return pageable_waits; }
void emulator_refuse_host_memory(int refuse) { host_memory_is_refused = refuse; }

namespace
{

int copy_now(void *destination, const void *source, size_t bytes, bool to_device)
{
    const emulator::DeviceMemoryAccess access;
    memcpy(destination, source, bytes);
    if (to_device) emulator::mark_written(destination, bytes);
    return 0;
}

} // namespace

// Page-locked memory of the host is read or written when the stream comes to the copy. For other memory the caller waits for all that the
// stream has; a copy to the host is then complete on return, and one from the host has been read.
cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    const bool from_device = kind != cudaMemcpyHostToDevice, to_device = kind != cudaMemcpyDeviceToHost;
    const std::lock_guard<std::recursive_mutex> held(emulator::runtime_lock());
    if (from_device && !emulator::device_range(source, bytes)) return result(cudaErrorInvalidValue);
    if (to_device && !emulator::device_range(destination, bytes)) return result(cudaErrorInvalidValue);
    const bool with_host = !from_device || !to_device;
    copies_from_host += !from_device;
    copies_to_host += !to_device;
    if (!with_host || is_page_locked(from_device ? destination : source))
        return result(emulator::put_on_stream(stream, [=] { return copy_now(destination, source, bytes, to_device); }));
    pageable_copies++;
    pageable_waits += emulator::has_work_left(stream);
    const int before = emulator::do_stream(stream); // refuses one in capture
    if (before) return result(before);
    if (from_device) return result(copy_now(destination, source, bytes, false));
    const auto *read = static_cast<const unsigned char *>(source);
    return result(emulator::put_on_stream(
        stream, [=, kept = std::vector<unsigned char>(read, read + bytes)] { return copy_now(destination, kept.data(), bytes, true); }));
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
    case cudaErrorIllegalState: return "the operation cannot be performed in the present state";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureMerge: return "operation would result in a merge of separate capture sequences";
    case cudaErrorStreamCaptureUnmatched: return "capture was not ended in the same stream as it began";
    case cudaErrorStreamCaptureUnjoined: return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation: return "dependency created on uncaptured work in another stream";
    case cudaErrorStreamCaptureImplicit: return "operation would make the legacy stream depend on a capturing blocking stream";
    case cudaErrorCapturedEvent: return "operation not permitted on an event last recorded in a capturing stream";
    case cudaErrorStreamCaptureWrongThread: return "attempt to terminate a thread-local capture sequence from another thread";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    default: return "invalid argument";
    }
}
