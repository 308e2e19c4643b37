// memory.cpp: arenas for shared and global memory, with guard bytes around each array.
#include "memory.h"
#include "access_check.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#if defined(EMULATOR_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

namespace emulator
{

namespace
{

// For AddressSanitizer: these bytes may not, or may again be used.
void poison([[maybe_unused]] const void *start, [[maybe_unused]] size_t bytes)
{
#if defined(EMULATOR_ADDRESS_SANITIZER)
    __asan_poison_memory_region(start, bytes);
#endif
}
void unpoison([[maybe_unused]] const void *start, [[maybe_unused]] size_t bytes)
{
#if defined(EMULATOR_ADDRESS_SANITIZER)
    __asan_unpoison_memory_region(start, bytes);
#endif
}

constexpr unsigned char fill = 0xff; // NaN as float, double, float16 and bfloat16
constexpr size_t guard_bytes = 256;
constexpr size_t guard_period = 4096;

// So is every guard, and each is a NaN of its own: one that a kernel reads from there and writes elsewhere is noticed. The table has those
// of a page, and of the guard that begins at its end: after a launch, those of all arrays are compared.
struct GuardTable {
    unsigned char bytes[guard_period + guard_bytes];
    GuardTable()
    {
        for (size_t i = 0; i < sizeof bytes; i++) {
            const auto nan = static_cast<uint16_t>(0x7ff1u + (i % guard_period / 2 * 2654435761u >> 8) % 14);
            bytes[i] = static_cast<unsigned char>(nan >> 8 * (i & 1));
        }
    }
    const unsigned char *at(const unsigned char *p) const { return bytes + reinterpret_cast<uintptr_t>(p) % guard_period; }
};
const GuardTable guard_table;

void write_guard(unsigned char *from, const unsigned char *end)
{
    for (unsigned char *p = from; p < end; p++) *p = *guard_table.at(p);
}
// Large pages: hiding memory takes time for each page of it.
constexpr size_t page_bytes = size_t(2) << 20;
constexpr size_t global_arena_bytes = size_t(256) << 20;
constexpr size_t shared_arena_bytes = 4 * largest_shared_limit; // guards included

struct Array {
    const void *tag;
    const char *name;
    unsigned char *start;
    size_t bytes;
    Site site;
};

bool within(const Array &array, const void *pointer, size_t bytes)
{
    const unsigned char *p = static_cast<const unsigned char *>(pointer);
    return p >= array.start && p + bytes <= array.start + array.bytes;
}

// Memory handed out from low to high addresses, guard bytes between the arrays.
struct Arena {
    unsigned char *base = nullptr;
    size_t capacity = 0, used = 0;
    std::vector<Array> arrays; // in order of address
    mutable size_t recent = 0; // the one found last, mostly the next one too
    unsigned calls = 0;        // of overwritten()

    void reserve(size_t bytes)
    {
        capacity = bytes;
        void *memory = mmap(nullptr, bytes + page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) abort();
        base = static_cast<unsigned char *>(memory);
        base += page_bytes - reinterpret_cast<uintptr_t>(base) % page_bytes;
        madvise(base, bytes, MADV_HUGEPAGE); // where the system has none, hiding takes longer
        poison(base, capacity);
    }
    unsigned char *allocate(const void *tag, const char *name, size_t bytes, size_t alignment, Site site)
    {
        size_t start = (used + guard_bytes + alignment - 1) / alignment * alignment;
        if (start % (2 * alignment) == 0) start += alignment; // no better aligned than was promised
        const size_t end = start + bytes + guard_bytes;
        if (end > capacity || end < start) return nullptr;
        unpoison(base + used, end - used);
        write_guard(base + used, base + start);
        memset(base + start, fill, bytes);
        write_guard(base + start + bytes, base + end);
        poison(base + used, start - used);
        poison(base + start + bytes, guard_bytes);
        used = end;
        arrays.push_back({tag, name, base + start, bytes, site});
        forget_accesses(base + start, bytes);
        return base + start;
    }
    bool contains(const void *pointer) const { return pointer >= base && pointer < base + capacity; }
    const Array *find(const void *pointer) const
    {
        const size_t last = recent;
        if (last < arrays.size() && within(arrays[last], pointer, 1)) return &arrays[last];
        auto next =
            std::upper_bound(arrays.begin(), arrays.end(), pointer, [](const void *p, const Array &array) { return p < array.start; });
        if (next == arrays.begin()) return nullptr;
        recent = static_cast<size_t>(next - arrays.begin()) - 1;
        return &arrays[recent];
    }
    void clear()
    {
        poison(base, used);
        used = 0;
        arrays.clear();
    }
    // The first array whose guard bytes are not as they were. Where many were freed, as by long trainings, those are looked at by every
    // 64th call.
    const Array *overwritten()
    {
#if !defined(EMULATOR_ADDRESS_SANITIZER)
        const auto damaged = [](const unsigned char *start) { return memcmp(start, guard_table.at(start), guard_bytes) != 0; };
        const bool freed_too = arrays.size() < 1000 || calls++ % 64 == 0;
        for (const Array &array : arrays)
            if ((array.name || freed_too) && (damaged(array.start - guard_bytes) || damaged(array.start + array.bytes))) return &array;
#endif
        return nullptr;
    }
};

Arena shared_arena, global_arena;
size_t live_global = 0; // allocations not yet freed
size_t live_bytes = 0;
unsigned char *dynamic_start = nullptr;
size_t static_bytes = 0;

void reserve_arenas()
{
    if (shared_arena.base) return;
    shared_arena.reserve(shared_arena_bytes);
    global_arena.reserve(global_arena_bytes);
}

std::string describe(const Array &array)
{
    if (!array.site.file) return std::string(array.name) + " of " + std::to_string(array.bytes) + " bytes";
    const char *slash = strrchr(array.site.file, '/');
    return "the shared array '" + std::string(array.name) + "' (" + std::to_string(array.bytes) + " bytes, " +
           (slash ? slash + 1 : array.site.file) + ":" + std::to_string(array.site.line) + ")";
}

} // namespace

void *shared_variable(const void *tag, const char *name, size_t bytes, size_t alignment, Site site)
{
    const OwnWork own;
    for (const Array &array : shared_arena.arrays)
        if (array.tag == tag) return array.start;
    static_bytes += bytes;
    if (static_bytes > static_shared_limit)
        fail(site, "too much shared memory: '%s' makes %zu bytes of static arrays, a block may have %zu", name, static_bytes,
             static_shared_limit);
    if (static_bytes + block.dynamic_bytes > shared_limit())
        fail(site, "too much shared memory: %zu bytes static and %zu dynamic, a block may have %zu", static_bytes, block.dynamic_bytes,
             shared_limit());
    return shared_arena.allocate(tag, name, bytes, alignment, site);
}

void *dynamic_shared() { return dynamic_start; }

void begin_shared_memory(size_t dynamic_bytes)
{
    reserve_arenas();
    shared_arena.clear();
    static_bytes = 0;
    dynamic_start = shared_arena.allocate(&dynamic_start, "the dynamic shared memory", dynamic_bytes, 16, {nullptr, 0});
}

bool end_shared_memory(std::string &report)
{
    const Array *array = shared_arena.overwritten();
    if (!array) return true;
    report = "out of bounds: the bytes around " + describe(*array) + " were overwritten\n  in kernel " + block.kernel;
    return false;
}
void end_shared_memory_after_failure()
{
    shared_arena.clear();
    std::string ignored; // an out-of-bounds write already reported must not be reported again by the next launch
    if (check_device_memory(ignored)) return;
    for (const Array &array : global_arena.arrays) {
        write_guard(array.start - guard_bytes, array.start);
        write_guard(array.start + array.bytes, array.start + array.bytes + guard_bytes);
    }
}

namespace
{
bool hidden = false;
int accesses = 0; // nested
size_t shown = 0; // bytes of the arena, from its start on, that may be touched while `accesses`

// The rest of the arena stays hidden: the system walks through all of its pages that were ever touched.
void show(size_t bytes)
{
    bytes = (bytes + page_bytes - 1) / page_bytes * page_bytes;
    if (bytes > global_arena.capacity) bytes = global_arena.capacity;
    if (bytes <= shown) return;
    mprotect(global_arena.base + shown, bytes - shown, PROT_READ | PROT_WRITE);
    shown = bytes;
}
} // namespace

void hide_device_memory()
{
    reserve_arenas();
    hidden = true;
    mprotect(global_arena.base, global_arena.capacity, PROT_NONE);
}
DeviceMemoryAccess::DeviceMemoryAccess()
{
    if (hidden && accesses++ == 0) show(global_arena.used);
}
DeviceMemoryAccess::~DeviceMemoryAccess()
{
    if (!hidden || --accesses > 0) return;
    mprotect(global_arena.base, shown, PROT_NONE);
    shown = 0;
}

void *device_allocate(size_t bytes)
{
    constexpr size_t alignment = 256;
    reserve_arenas();
    const DeviceMemoryAccess access;
    if (hidden) show(global_arena.used + bytes + 4 * alignment + 2 * guard_bytes);
    void *pointer = global_arena.allocate(nullptr, "a global array", bytes, alignment, {nullptr, 0});
    if (!pointer) return nullptr;
    live_global++;
    live_bytes += bytes;
    return pointer;
}

// The arena starts afresh when nothing is left in it; until then addresses are not used again, so that a use after the
// free is seen.
bool device_free(void *pointer)
{
    const Array *array = global_arena.find(pointer);
    if (!array || array->start != pointer || !array->name) return false;
    poison(array->start, array->bytes);
    live_bytes -= array->bytes;
    Array &freed = const_cast<Array &>(*array);
    freed.name = nullptr;
    if (--live_global == 0) global_arena.clear();
    return true;
}

bool check_device_memory(std::string &report)
{
    const Array *array = global_arena.overwritten();
    if (!array) return true;
    report = "out of bounds: the bytes around " + std::string(array->name ? describe(*array) : "a freed global array") +
             " were overwritten\n  in kernel " + block.kernel;
    return false;
}

void mark_written(const void *pointer, size_t bytes) { record_host_write(pointer, bytes); }
bool device_range(const void *pointer, size_t bytes)
{
    const unsigned char *start, *end;
    return array_of(Region::global, pointer, bytes, &start, &end);
}
size_t device_bytes_in_use() { return live_bytes; }
size_t device_bytes_unused() { return global_arena_bytes - global_arena.used; }
size_t device_bytes_total() { return global_arena_bytes; }

Region region_of(const void *pointer)
{
    if (shared_arena.contains(pointer)) return Region::shared;
    if (global_arena.contains(pointer)) return Region::global;
    return on_own_stack(pointer) ? Region::own_stack : Region::other;
}
bool array_of(Region region, const void *pointer, size_t bytes, const unsigned char **start, const unsigned char **end)
{
    const Array *array = (region == Region::shared ? shared_arena : global_arena).find(pointer);
    if (!array || !array->name || !within(*array, pointer, bytes)) return false;
    *start = array->start;
    *end = array->start + array->bytes;
    return true;
}

size_t shadow_index(const void *pointer)
{
    const unsigned char *p = static_cast<const unsigned char *>(pointer);
    return shared_arena.contains(p) ? static_cast<size_t>(p - shared_arena.base)
                                    : shared_arena_bytes + static_cast<size_t>(p - global_arena.base);
}
void *new_shadow_memory(size_t element_bytes)
{
    const size_t bytes = (shared_arena_bytes + global_arena_bytes) * element_bytes;
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) abort();
    return memory;
}

void check_access(Space space, const void *pointer, size_t bytes, size_t alignment, const char *operation, Site site)
{
    const Region wanted = space == Space::shared ? Region::shared : Region::global;
    const char *name = space == Space::shared ? "shared" : "global";
    if (region_of(pointer) != wanted) fail(site, "%s: the address %p is not in %s memory", operation, pointer, name);
    if (reinterpret_cast<uintptr_t>(pointer) % alignment)
        fail(site, "misaligned access: %s of %zu bytes at %p needs an address that is a multiple of %zu", operation, bytes, pointer,
             alignment);
    const unsigned char *start, *end;
    if (bytes && !array_of(wanted, pointer, bytes, &start, &end))
        fail(site, "out of bounds: %s of %zu bytes at %p is not inside one %s array", operation, bytes, pointer, name);
}

} // namespace emulator
