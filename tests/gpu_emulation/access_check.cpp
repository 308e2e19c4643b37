// access_check.cpp: looks at every load and store of a kernel, as compute-sanitizer does on a GPU.
//
// In the "access" build the kernels are compiled with -fsanitize=thread, which makes the compiler call a function before each
// load and store, but are not linked with ThreadSanitizer: the functions are here, and know what a GPU orders and what not.
// They report
//   - races: two accesses to the same byte, one of them a write, by two threads that nothing ordered: no __syncthreads, no
//     __syncwarp of both; between blocks of one launch nothing ever does;
//   - reads of shared or global memory that nobody has written;
//   - addresses outside every array, in another thread's stack, or in the host's memory; misaligned ones;
//   - global memory that the kernel's row of kernels.def does not let it touch (kernel_rows.h).
// A byte remembers its last write and its last two readers, so a write after three unordered reads may go unseen when the
// racing one was the oldest: the cases of a test take turns with the schedules, which run its kernel in other orders.
#if defined(EMULATOR_ACCESS_CHECK)
#include "access_check.h"
#include "hooks.h"
#include "kernel_rows.h"
#include "memory.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <string>

namespace emulator
{

namespace
{

struct Access {
    uint32_t block = 0; // serial of the block; 0: none; from_host: by the host, ordered before every launch
    uint32_t clock = 0;
    uint16_t thread = 0;
};
constexpr uint32_t from_host = 1;

struct Shadow {
    Access write, read[2];
};
// Of an aligned word: one for its bytes together, until a part of it is met by itself.
constexpr size_t word_bytes = 4;
struct Word {
    Shadow whole;
    bool is_split; // into those of its bytes
};
Shadow *shadows_of_bytes = nullptr;
Word *shadows_of_words = nullptr; // a quarter of the table is used

void make_tables()
{
    if (shadows_of_words) return;
    shadows_of_bytes = new_shadow_table<Shadow>();
    shadows_of_words = new_shadow_table<Word>();
}

inline bool ordered_before_me(const Access &access)
{
    if (access.block < block.launch_first) return true;
    if (access.block != block.serial) return false;
    const Thread &me = *current;
    if (access.thread == me.linear) return true;
    if (access.clock <= block.barrier_clock[access.thread]) return true;
    return access.thread / warp_size == me.linear / warp_size && access.clock <= me.seen[access.thread % warp_size];
}

[[noreturn]] void report_race(const Access &other, const char *mine, const char *theirs, const char *operation, const void *pointer,
                              Site site)
{
    const char *where = region_of(pointer) == Region::shared ? "shared" : "global";
    if (other.block != block.serial)
        fail(site, "race between blocks: %s (%s) of a byte of %s memory that another block's thread %d %s in the same launch", operation,
             mine, where, other.thread, theirs);
    fail(site, "race: %s (%s) of a byte of %s memory that thread %d %s, with no barrier between the two", operation, mine, where,
         other.thread, theirs);
}

inline bool is_allowed(const Shadow &byte, bool write)
{
    if (!ordered_before_me(byte.write)) return false;
    return write ? ordered_before_me(byte.read[0]) && ordered_before_me(byte.read[1]) : byte.write.block != 0;
}

// Why it is not allowed.
[[noreturn]] void report(const Shadow &byte, bool write, const char *operation, const void *pointer, Site site)
{
    if (!ordered_before_me(byte.write)) report_race(byte.write, write ? "write" : "read", "wrote", operation, pointer, site);
    if (!write)
        fail(site, "uninitialised: %s reads %s memory that nobody has written", operation,
             region_of(pointer) == Region::shared ? "shared" : "global");
    report_race(byte.read[ordered_before_me(byte.read[0])], "write", "read", operation, pointer, site);
}

inline void remember(Shadow &byte, bool write)
{
    const Access me = {block.serial, current->clock, static_cast<uint16_t>(current->linear)};
    if (write) {
        byte.write = me;
        return;
    }
    const bool again = byte.read[0].block == me.block && byte.read[0].thread == me.thread;
    if (!again) byte.read[1] = byte.read[0];
    byte.read[0] = me;
}

// Calls visit(shadow, offset) for all of the bytes from `first` on, a shadow_index(): for each word that is whole, and for each byte of the
// others. `anew`: the words in it are whole from here on.
template <class Visit> inline void each_shadow(size_t first, size_t bytes, bool anew, Visit visit)
{
    for (size_t i = 0; i < bytes;) {
        const size_t index = first + i;
        Word &word = shadows_of_words[index / word_bytes];
        const bool covered = index % word_bytes == 0 && bytes - i >= word_bytes;
        if (covered && anew) word.is_split = false;
        if (covered && !word.is_split) {
            visit(word.whole, i);
            i += word_bytes;
            continue;
        }
        if (!word.is_split) std::fill_n(shadows_of_bytes + index / word_bytes * word_bytes, word_bytes, word.whole);
        word.is_split = true;
        visit(shadows_of_bytes[index], i++);
    }
}

template <class Visit> void each_shadow(const void *pointer, size_t bytes, bool anew, Visit visit)
{
    if (!bytes) return;
    make_tables();
    each_shadow(shadow_index(pointer), bytes, anew, visit);
}

// Looks at each byte from `first` on, the pointer's shadow_index(); site() is asked for only when there is something to report.
template <class Place>
inline void check_bytes(size_t first, const void *pointer, size_t bytes, bool write, const char *operation, Place site)
{
    each_shadow(first, bytes, false, [=](Shadow &shadow, size_t offset) {
        if (!is_allowed(shadow, write)) report(shadow, write, operation, static_cast<const char *>(pointer) + offset, site());
        remember(shadow, write);
    });
}

// ---- from an instruction to its line ----

Site resolve(const void *instruction)
{
    static std::string file;
    Dl_info object;
    if (!dladdr(instruction, &object)) return {"?", 0};
    char command[4096], line[4096] = "";
    const unsigned long offset =
        static_cast<unsigned long>(static_cast<const char *>(instruction) - static_cast<const char *>(object.dli_fbase)) - 1;
    snprintf(command, sizeof command, "addr2line -e '%s' 0x%lx", object.dli_fname, offset);
    FILE *pipe = popen(command, "r");
    if (!pipe) return {"?", 0};
    if (!fgets(line, sizeof line, pipe)) line[0] = 0;
    pclose(pipe);
    char *colon = strrchr(line, ':');
    if (!colon) return {"?", 0};
    file.assign(line, static_cast<size_t>(colon - line));
    return {file.c_str(), atoi(colon + 1)};
}

// Constants and the vtable-like data of the program itself are as good as constant memory.
bool in_program(const void *pointer)
{
    Dl_info object;
    return dladdr(pointer, &object) != 0;
}

// The array that an instruction found at its last access, which its kernel's row allows: most go on in the same one. For one block, during
// which no array goes and no row changes.
struct Found {
    const void *instruction;
    uint32_t block; // its serial
    bool write;
    const unsigned char *start;
    size_t bytes;
    size_t shadow; // shadow_index() of the start
};
constexpr size_t found_entries = 4096;
Found found_by_instruction[found_entries];

// Of what is not on the thread's own stack: the array, when the access is inside one and the kernel may make it.
__attribute__((noinline)) bool find_array(const void *pointer, size_t bytes, bool write, const void *instruction, Found &found)
{
    const Region region = region_of(pointer);
    const char *operation = write ? "store" : "load";
    if (region == Region::other) {
        if (!write && in_program(pointer)) return false;
        if (host_page_locked(pointer)) return false;
        fail(resolve(instruction), "wrong address: %s of %zu bytes at %p, which is not in device memory", operation, bytes, pointer);
    }
    const unsigned char *start, *end;
    if (!array_of(region, pointer, bytes, &start, &end))
        fail(resolve(instruction), "out of bounds: %s of %zu bytes at %p is not inside one %s array", operation, bytes, pointer,
             region == Region::shared ? "shared" : "global");
    if (region == Region::global && !row_allows(pointer, write)) fail_row(resolve(instruction), pointer, bytes, write);
    make_tables();
    found = {instruction, block.serial, write, start, static_cast<size_t>(end - start), shadow_index(start)};
    return true;
}

// As look(), of what is not on the thread's own stack.
__attribute__((noinline)) void look_at_memory(const void *pointer, size_t bytes, bool write, bool aligned, const void *instruction)
{
    if (aligned && (reinterpret_cast<uintptr_t>(pointer) & (bytes - 1)) && region_of(pointer) != Region::other) // of powers of two
        fail(resolve(instruction), "misaligned access: %s of %zu bytes at %p", write ? "store" : "load", bytes, pointer);
    Found &found = found_by_instruction[reinterpret_cast<uintptr_t>(instruction) % found_entries];
    const auto offset = [&] { return static_cast<size_t>(static_cast<const unsigned char *>(pointer) - found.start); };
    const bool again = found.instruction == instruction && found.block == block.serial && found.write == write && offset() < found.bytes &&
                       bytes <= found.bytes - offset();
    if (!again && !find_array(pointer, bytes, write, instruction, found)) return;
    check_bytes(found.shadow + offset(), pointer, bytes, write, write ? "store" : "load", [=] { return resolve(instruction); });
}

} // namespace

void look(const void *pointer, size_t bytes, bool write, bool aligned, const void *instruction)
{
    if (!current || on_own_stack(pointer)) return; // host code, or what no other thread may touch
    look_at_memory(pointer, bytes, write, aligned, instruction);
}

void enter(const void *) {}
void leave() {}

void forget_accesses(const void *pointer, size_t bytes)
{
    each_shadow(pointer, bytes, true, [](Shadow &shadow, size_t) { shadow = Shadow(); });
}

void record_host_write(const void *pointer, size_t bytes)
{
    Shadow written;
    written.write.block = from_host;
    each_shadow(pointer, bytes, true, [=](Shadow &shadow, size_t) { shadow = written; });
}

void record_access(const void *pointer, size_t bytes, bool write, const char *operation, Site site)
{
    if (!bytes) return;
    if (region_of(pointer) == Region::global && !row_allows(pointer, write)) fail_row(site, pointer, bytes, write);
    make_tables();
    check_bytes(shadow_index(pointer), pointer, bytes, write, operation, [=] { return site; });
}

} // namespace emulator
#endif
