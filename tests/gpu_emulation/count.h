// count.h: what the other parts tell the counting flavour (count.cpp). Without it these do nothing.
#pragma once
#include "block.h"
#include <string>

namespace emulator
{

enum class Event { barrier, shuffle, tensor };

#if defined(EMULATOR_COUNT)
void count_launch(const std::string &kernel, int64_t blocks, int threads); // what is counted from now on is of this kernel
void count_event(Event event);                                             // of the block or warp that runs
void count_access(const void *pointer, size_t bytes, bool write, Site site);
void count_copy_wait(size_t in_flight, size_t left); // of a thread, for asynchronous copies: on their way before it, and after it
void count_block_so_far();                           // at a barrier and at the block's end: the accesses of all its threads are made
#else
inline void count_launch(const std::string &, int64_t, int) {}
inline void count_event(Event) {}
inline void count_access(const void *, size_t, bool, Site) {}
inline void count_copy_wait(size_t, size_t) {}
inline void count_block_so_far() {}
#endif

} // namespace emulator

// The counts since the last call: a line with the names of the columns, then one per kernel, all separated by tabs; and one column summed
// over the kernels, which forgets nothing. In the other flavours: empty, 0.
extern "C" const char *emulator_counts(void);
extern "C" int64_t emulator_count(const char *column);
