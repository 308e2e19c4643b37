// vectors.cpp: see vectors.h.
#include "vectors.h"
#include "hooks.h"
#include <cstring>

namespace emulator
{

#if !defined(EMULATOR_ACCESS_CHECK) && !defined(EMULATOR_COUNT)
void look(const void *, size_t, bool, bool, const void *) {} // ThreadSanitizer sees the memcpy
#endif

void load_whole(void *registers, const void *pointer, size_t bytes)
{
    look(pointer, bytes, false, true, __builtin_return_address(0));
    memcpy(registers, pointer, bytes);
}
void store_whole(void *pointer, const void *registers, size_t bytes)
{
    look(pointer, bytes, true, true, __builtin_return_address(0));
    memcpy(pointer, registers, bytes);
}

} // namespace emulator
