// async_copy.h: cp.async. A copy happens at the last moment the GPU could make it: when its thread waits for it. Until
// then its destination is NaN, so that a missing wait, or a barrier before the wait, shows in the result.
#pragma once
#include "block.h"

namespace emulator
{

// Copies valid_bytes and fills up to `bytes` with zeros, as the instruction's src-size operand does.
void copy_async(void *destination, const void *source, int bytes, int valid_bytes, Site site);
void copy_async_commit();
void copy_async_wait(int groups_left); // until at most so many committed groups of this thread are on their way

} // namespace emulator
