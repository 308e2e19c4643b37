// hooks.h: what a flavour does with each load and store of a kernel, and with calls of functions. Those that look (EMULATOR_ACCESS_CHECK,
// EMULATOR_COUNT) are called from hooks.cpp and vectors.cpp.
#pragma once
#include <cstddef>

namespace emulator
{

// `instruction`: the one after the access. aligned: the address is to be a multiple of `bytes`.
void look(const void *pointer, size_t bytes, bool write, bool aligned, const void *instruction);
void enter(const void *caller); // the running thread, into a function
void leave();

} // namespace emulator
