// access_check.h: what the other parts tell the access check. Without it (see access_check.cpp) these do nothing.
#pragma once
#include "block.h"

namespace emulator
{
#if defined(EMULATOR_ACCESS_CHECK)
void forget_accesses(const void *pointer, size_t bytes);   // fresh memory: uninitialised, touched by nobody
void record_host_write(const void *pointer, size_t bytes); // initialised, ordered before every launch
void record_access(const void *pointer, size_t bytes, bool write, const char *operation, Site site); // by the running thread
#else
inline void forget_accesses(const void *, size_t) {}
inline void record_host_write(const void *, size_t) {}
inline void record_access(const void *, size_t, bool, const char *, Site) {}
#endif
} // namespace emulator
