/* graph_numbers.h: numbers that change from one start of a captured graph to the next: the arguments of optimizers' steps, the seeds and
 * numbers of dropouts. They are a page on the host, which a start copies to one on the device, where the kernels read it. */
#ifndef TC_CORE_GRAPH_NUMBERS_H
#define TC_CORE_GRAPH_NUMBERS_H

#include "../kernels/optimizer.h"
#include "list.h"
#include "tensor.h"

#define TC_GRAPH_PAGE_BYTES ((size_t)1 << 15)

typedef struct tc_step_numbers {
    const tc_kernel *kernel;
    size_t offset; /* of its arguments in the page */
    uint64_t digest;
} tc_step_numbers;

typedef struct tc_draw_numbers {
    size_t offset;
    uint64_t base, count; /* calls before the capture, and in it */
} tc_draw_numbers;

typedef struct tc_graph_numbers {
    TC_LIST(tc_step_numbers) steps;
    TC_LIST(tc_draw_numbers) draws; /* of each generator */
    char *host;                     /* (TC_GRAPH_PAGE_BYTES) */
    void *device;                   /* likewise */
    size_t used;
    int64_t collected; /* steps */
} tc_graph_numbers;

/* The host's page; whoever calls has the device's. */
TC_CHECKED tc_status tc_graph_numbers_make(tc_graph_numbers *numbers, tc_error *err);
void tc_graph_numbers_free(tc_graph_numbers *numbers);

/* A step in the capture: *at points to its numbers on the device. The same step before a start, whose numbers it has; and its end. */
TC_CHECKED tc_status tc_graph_numbers_add_step(tc_graph_numbers *numbers, const void **at, const tc_kernel *kernel, const void *args,
                                               const tc_optimizer_chunk *chunks, int64_t chunk_count, tc_error *err);
TC_CHECKED tc_status tc_graph_numbers_collect(tc_graph_numbers *numbers, const tc_kernel *kernel, const void *args,
                                              const tc_optimizer_chunk *chunks, int64_t chunk_count, tc_error *err);
TC_CHECKED tc_status tc_graph_numbers_collected(const tc_graph_numbers *numbers, tc_error *err);

/* `count` draws of the generator `number`, whose next one is `call`, in the capture: *at points to its words on the device. */
TC_CHECKED tc_status tc_graph_numbers_add_draw(tc_graph_numbers *numbers, const uint64_t **at, int number, uint64_t seed, uint64_t call,
                                               uint64_t count, tc_error *err);
void tc_graph_numbers_set_draw(tc_graph_numbers *numbers, int number, uint64_t seed, uint64_t calls);
uint64_t tc_graph_numbers_first_draw(const tc_graph_numbers *numbers, int number);

#endif
