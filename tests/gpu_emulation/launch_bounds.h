// launch_bounds.h: the __launch_bounds__ of kernels, which g++ does not read: emulation.py tells them.
#pragma once
#include <string>

namespace emulator
{

// Threads that a block of this kernel may have; `kernel` as launch() names it, with template arguments. 0: nobody said.
int most_threads(const std::string &kernel);

} // namespace emulator

extern "C" void emulator_limit_threads(const char *kernel, int threads); // all instances of a kernel, by its plain name
