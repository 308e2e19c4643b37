/* list.h: arrays that grow. The owner frees the items. */
#ifndef TC_CORE_LIST_H
#define TC_CORE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TC_LIST(type)                                                                                                                      \
    struct {                                                                                                                               \
        type *items;                                                                                                                       \
        int64_t count, capacity;                                                                                                           \
    }

/* Is there room for one more item, made if need be? False: out of memory, and the list is as it was. */
#define TC_LIST_HAS_ROOM(list) tc_list_grow(&(list)->items, (list)->count, &(list)->capacity, sizeof *(list)->items)
/* items: the address of the pointer to them. */
bool tc_list_grow(void *items, int64_t count, int64_t *capacity, size_t bytes);

#endif
