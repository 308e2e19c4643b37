// memory.h: the two memories a kernel may touch, shared and global, made so that a wrong access shows.
//
// Both are filled with bytes 0xFF, which is NaN in every floating dtype, before they are handed out; every array in them
// has guard bytes on both sides, checked when a block or a launch ends and poisoned under AddressSanitizer. In the
// access-check build (access_check.cpp) every load and store is looked up here.
#pragma once
#include "block.h"
#include <string>

namespace emulator
{

// Bytes a block may have: without asking for more (static arrays), and in all, as on a GPU of the compute capability that is emulated.
constexpr size_t static_shared_limit = 48 * 1024, largest_shared_limit = 227 * 1024;
size_t shared_limit();

// ---- shared memory: of the block that runs ----

// One array or variable declared __shared__; `tag` is unique to the declaration. The first thread of a block to come by
// allocates, the others get the same address.
void *shared_variable(const void *tag, const char *name, size_t bytes, size_t alignment, Site site);
void *dynamic_shared(); // aligned to 16 bytes; block.dynamic_bytes of it

void begin_shared_memory(size_t dynamic_bytes);
bool end_shared_memory(std::string &report); // false, and what was overwritten
void end_shared_memory_after_failure();

// ---- global memory: what the emulated cudaMalloc gives ----

void *device_allocate(size_t bytes); // aligned to 256 bytes; null when the arena is full
bool device_free(void *pointer);     // false: not one of ours
bool check_device_memory(std::string &report);
void mark_written(const void *pointer, size_t bytes); // by a copy from the host or a fill
bool device_range(const void *pointer, size_t bytes); // all of it inside one allocation
bool host_page_locked(const void *pointer);           // memory of the host that kernels may access as well
size_t device_bytes_in_use();
size_t device_bytes_unused();
size_t device_bytes_total();

// Device memory that the host may not touch outside of launches and copies (each of which holds a DeviceMemoryAccess).
void hide_device_memory();
struct DeviceMemoryAccess {
    DeviceMemoryAccess();
    ~DeviceMemoryAccess();
    DeviceMemoryAccess(const DeviceMemoryAccess &) = delete;
    DeviceMemoryAccess &operator=(const DeviceMemoryAccess &) = delete;
};

// ---- checks of the device layer's own operations, in every build ----

enum class Space { shared, global };
// Fails with a report unless [pointer, pointer + bytes) lies in one array of that space and is aligned.
void check_access(Space space, const void *pointer, size_t bytes, size_t alignment, const char *operation, Site site);

// ---- for the access check ----

// On the stack of the thread that runs, where most accesses are: asked for first, and without a call.
inline bool on_own_stack(const void *pointer)
{
    const Fiber &fiber = current->fiber;
    return static_cast<size_t>(static_cast<const char *>(pointer) - static_cast<const char *>(fiber.stack_bottom())) < fiber.stack_size();
}
enum class Region { shared, global, own_stack, other };
Region region_of(const void *pointer);
// The array that all of the bytes are in; false: none.
bool array_of(Region region, const void *pointer, size_t bytes, const unsigned char **start, const unsigned char **end);
// Number of the byte among all bytes of both memories, for shadow tables; only for shared and global.
size_t shadow_index(const void *pointer);
// A table with an element, zeros, for each byte; address space only: a page is made when it is touched.
void *new_shadow_memory(size_t element_bytes);
template <class T> T *new_shadow_table() { return static_cast<T *>(new_shadow_memory(sizeof(T))); }

} // namespace emulator
