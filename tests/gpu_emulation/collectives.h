// collectives.h: barriers, shuffles and votes under their CUDA names. Each knows the place it was called from.
#pragma once
#include "block.h"
#include <cstring>

namespace emulator
{

// Gives every lane of the mask the bytes of its source lane. `source` is absolute (0..31); a source outside the mask is
// an error, since its value would be undefined.
void shuffle(const char *operation, Site site, unsigned mask, void *value, size_t bytes, int source);
unsigned ballot(const char *operation, Site site, unsigned mask, bool predicate); // lanes of the mask whose predicate holds
int block_count(const char *operation, Site site, bool predicate);                // threads of the block whose predicate holds

// The lane that `lane` reads, with width as CUDA has it: segments of `width` lanes, a source beyond the segment is the lane itself.
inline int source_down(int lane, unsigned delta, int width)
{
    return lane % width + static_cast<int>(delta) < width ? lane + static_cast<int>(delta) : lane;
}
inline int source_up(int lane, unsigned delta, int width)
{
    return lane % width >= static_cast<int>(delta) ? lane - static_cast<int>(delta) : lane;
}
inline int source_xor(int lane, int bits, int width) { return (lane ^ bits) / width <= lane / width ? lane ^ bits : lane; }
inline int source_index(int lane, int index, int width) { return lane / width * width + (index & (width - 1)); }

template <class T> T shuffled(const char *operation, Site site, unsigned mask, T value, int source)
{
    static_assert(sizeof(T) <= 8, "CUDA shuffles 4 and 8 byte values");
    shuffle(operation, site, mask, &value, sizeof value, source);
    return value;
}

} // namespace emulator

inline void __syncthreads(emulator::Site site = emulator::Site::here()) { emulator::block_barrier("__syncthreads", site); }
inline int __syncthreads_or(int predicate, emulator::Site site = emulator::Site::here())
{
    return emulator::block_count("__syncthreads_or", site, predicate != 0) > 0;
}
inline void __syncwarp(unsigned mask = ~0u, emulator::Site site = emulator::Site::here())
{
    emulator::warp_collective("__syncwarp", site, mask, nullptr, nullptr, true);
}

template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = 32, emulator::Site site = emulator::Site::here())
{
    return emulator::shuffled("__shfl_sync", site, mask, value, emulator::source_index(emulator::lane_index(), source, width));
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, emulator::Site site = emulator::Site::here())
{
    return emulator::shuffled("__shfl_xor_sync", site, mask, value, emulator::source_xor(emulator::lane_index(), bits, width));
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, emulator::Site site = emulator::Site::here())
{
    return emulator::shuffled("__shfl_down_sync", site, mask, value, emulator::source_down(emulator::lane_index(), delta, width));
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, emulator::Site site = emulator::Site::here())
{
    return emulator::shuffled("__shfl_up_sync", site, mask, value, emulator::source_up(emulator::lane_index(), delta, width));
}

inline unsigned __ballot_sync(unsigned mask, int predicate, emulator::Site site = emulator::Site::here())
{
    return emulator::ballot("__ballot_sync", site, mask, predicate != 0);
}
inline int __any_sync(unsigned mask, int predicate, emulator::Site site = emulator::Site::here())
{
    return emulator::ballot("__any_sync", site, mask, predicate != 0) != 0;
}
inline int __all_sync(unsigned mask, int predicate, emulator::Site site = emulator::Site::here())
{
    return emulator::ballot("__all_sync", site, mask, predicate != 0) == mask;
}
