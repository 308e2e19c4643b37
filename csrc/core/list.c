/* list.c: see list.h. */
#include "list.h"

#include <stdlib.h>
#include <string.h>

bool tc_list_grow(void *items, int64_t count, int64_t *capacity, size_t bytes)
{
    void *memory;
    if (count < *capacity) return true;
    memcpy(&memory, items, sizeof memory);
    const int64_t wanted = *capacity ? 2 * *capacity : 64;
    memory = realloc(memory, (size_t)wanted * bytes);
    if (!memory) return false;
    memcpy(items, &memory, sizeof memory);
    *capacity = wanted;
    return true;
}
