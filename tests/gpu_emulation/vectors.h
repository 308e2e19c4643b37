// vectors.h: loads and stores of up to 16 bytes that are one instruction on a GPU. g++ splits the plain C++ into elements, so where the
// compiler's hooks look at each access (EMULATOR_HOOKS) these are calls.
#pragma once
#include <cstddef>

namespace emulator
{

// Each moves the bytes and tells the flavour of one access.
void load_whole(void *registers, const void *pointer, size_t bytes);
void store_whole(void *pointer, const void *registers, size_t bytes);

} // namespace emulator

namespace tc
{

#if defined(EMULATOR_HOOKS)
template <class Vector> Vector load_whole(const void *pointer)
{
    Vector v;
    emulator::load_whole(&v, pointer, sizeof v);
    return v;
}
template <class Vector> void store_whole(void *pointer, const Vector &v) { emulator::store_whole(pointer, &v, sizeof v); }
#else
template <class Vector> Vector load_whole(const void *pointer) { return *static_cast<const Vector *>(pointer); }
template <class Vector> void store_whole(void *pointer, const Vector &v) { *static_cast<Vector *>(pointer) = v; }
#endif
template <class Vector> void store_global(void *pointer, const Vector &v) { store_whole(pointer, v); }

} // namespace tc
