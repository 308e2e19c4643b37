// async_copy.cpp: the queue of copies each thread has on their way.
#include "async_copy.h"
#include "access_check.h"
#include "count.h"
#include "memory.h"
#include <algorithm>
#include <cstring>

namespace emulator
{

void copy_async(void *destination, const void *source, int bytes, int valid_bytes, Site site)
{
    if (bytes != 4 && bytes != 8 && bytes != 16) fail(site, "cp.async copies 4, 8 or 16 bytes, not %d", bytes);
    if (valid_bytes < 0 || valid_bytes > bytes) fail(site, "cp.async: %d of %d bytes cannot be valid", valid_bytes, bytes);
    const size_t size = static_cast<size_t>(bytes);
    check_access(Space::shared, destination, size, size, "cp.async", site);
    if (valid_bytes) check_access(Space::global, source, static_cast<size_t>(valid_bytes), size, "cp.async", site);
    record_access(destination, size, true, "cp.async", site);
    count_access(destination, size, true, site);
    if (valid_bytes) count_access(source, static_cast<size_t>(valid_bytes), false, site);
    const OwnWork own;
    memset(destination, 0xff, size);
    current->copies.push_back({destination, source, bytes, valid_bytes, current->copy_group, site});
}

void copy_async_commit() { current->copy_group++; }

void copy_async_wait(int groups_left)
{
    const OwnWork own;
    auto &copies = current->copies;
    const int last = current->copy_group - groups_left; // groups before this one are complete
    const auto arrived = [last](const AsyncCopy &copy) { return copy.group < last; };
    for (const AsyncCopy &copy : copies) {
        if (!arrived(copy)) continue;
        const size_t valid = static_cast<size_t>(copy.valid_bytes), size = static_cast<size_t>(copy.bytes);
        record_access(copy.source, valid, false, "cp.async", copy.site);
        record_access(copy.destination, size, true, "cp.async", copy.site);
        memcpy(copy.destination, copy.source, valid);
        memset(static_cast<char *>(copy.destination) + valid, 0, size - valid);
    }
    const size_t in_flight = copies.size();
    copies.erase(std::remove_if(copies.begin(), copies.end(), arrived), copies.end());
    count_copy_wait(in_flight, copies.size());
}

} // namespace emulator
