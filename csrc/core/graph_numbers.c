/* graph_numbers.c: see graph_numbers.h. */
#include "graph_numbers.h"

#include <stdlib.h>
#include <string.h>

#include "../kernels/philox.h"
#include "status.h"

static tc_status no_memory(tc_error *err) { return tc_fail(err, TC_ERROR_MEMORY, "out of memory: the numbers of a captured graph"); }

tc_status tc_graph_numbers_make(tc_graph_numbers *numbers, tc_error *err)
{
    numbers->host = calloc(1, TC_GRAPH_PAGE_BYTES);
    return numbers->host ? TC_OK : no_memory(err);
}

void tc_graph_numbers_free(tc_graph_numbers *numbers)
{
    free(numbers->host);
    free(numbers->steps.items);
    free(numbers->draws.items);
}

static tc_status take_room(size_t *offset, tc_graph_numbers *numbers, size_t bytes, tc_error *err)
{
    const size_t rounded = (bytes + 15) / 16 * 16;
    if (numbers->used + rounded > TC_GRAPH_PAGE_BYTES)
        return tc_fail(err, TC_ERROR_STATE, "the captured function has more optimizer steps and generators than a graph has room for");
    *offset = numbers->used;
    numbers->used += rounded;
    return TC_OK;
}

/* ---- steps ----------------------------------------------------------------------------------------------------------------------- */

static uint64_t digest_of(const tc_optimizer_chunk *chunks, int64_t count)
{
    uint64_t digest = UINT64_C(14695981039346656037); /* FNV-1a */
    const unsigned char *bytes = (const unsigned char *)chunks;
    for (size_t i = 0; i < (size_t)count * sizeof *chunks; i++) digest = (digest ^ bytes[i]) * UINT64_C(1099511628211);
    return digest;
}

static tc_status other_steps(tc_error *err)
{
    return tc_fail(
        err, TC_ERROR_STATE,
        "the optimizer's step is not the one that was captured: other parameters, gradients or states; make a new tc.cuda.graph");
}

tc_status tc_graph_numbers_add_step(tc_graph_numbers *numbers, const void **at, const tc_kernel *kernel, const void *args,
                                    const tc_optimizer_chunk *chunks, int64_t chunk_count, tc_error *err)
{
    tc_step_numbers step = {.kernel = kernel, .digest = digest_of(chunks, chunk_count)};
    if (!TC_LIST_HAS_ROOM(&numbers->steps)) return no_memory(err);
    TC_TRY(take_room(&step.offset, numbers, kernel->args_bytes, err));
    numbers->steps.items[numbers->steps.count++] = step;
    memcpy(numbers->host + step.offset, args, kernel->args_bytes);
    *at = (char *)numbers->device + step.offset;
    return TC_OK;
}

tc_status tc_graph_numbers_collect(tc_graph_numbers *numbers, const tc_kernel *kernel, const void *args, const tc_optimizer_chunk *chunks,
                                   int64_t chunk_count, tc_error *err)
{
    if (numbers->collected == numbers->steps.count) return other_steps(err);
    const tc_step_numbers *recorded = &numbers->steps.items[numbers->collected++];
    if (recorded->kernel != kernel || recorded->digest != digest_of(chunks, chunk_count)) return other_steps(err);
    memcpy(numbers->host + recorded->offset, args, kernel->args_bytes);
    return TC_OK;
}

tc_status tc_graph_numbers_collected(const tc_graph_numbers *numbers, tc_error *err)
{
    return numbers->collected == numbers->steps.count ? TC_OK : other_steps(err);
}

/* ---- draws ----------------------------------------------------------------------------------------------------------------------- */

tc_status tc_graph_numbers_add_draw(tc_graph_numbers *numbers, const uint64_t **at, int number, uint64_t seed, uint64_t call,
                                    uint64_t count, tc_error *err)
{
    if (number == numbers->draws.count) {
        tc_draw_numbers added = {.base = call};
        if (!TC_LIST_HAS_ROOM(&numbers->draws)) return no_memory(err);
        TC_TRY(take_room(&added.offset, numbers, TC_DRAWN_WORDS * sizeof seed, err));
        numbers->draws.items[numbers->draws.count++] = added;
        tc_graph_numbers_set_draw(numbers, number, seed, call);
    }
    tc_draw_numbers *draw = &numbers->draws.items[number];
    if (call != draw->base + draw->count)
        return tc_fail(err, TC_ERROR_STATE, "another thread drew dropout masks from the same generator while tc.cuda.graph captured");
    draw->count += count;
    *at = (const uint64_t *)((char *)numbers->device + draw->offset);
    return TC_OK;
}

void tc_graph_numbers_set_draw(tc_graph_numbers *numbers, int number, uint64_t seed, uint64_t calls)
{
    const tc_draw_numbers *draw = &numbers->draws.items[number];
    const uint64_t words[TC_DRAWN_WORDS] = {seed, calls - draw->base};
    memcpy(numbers->host + draw->offset, words, sizeof words);
}

uint64_t tc_graph_numbers_first_draw(const tc_graph_numbers *numbers, int number)
{
    const tc_draw_numbers *draw = &numbers->draws.items[number];
    uint64_t words[TC_DRAWN_WORDS];
    memcpy(words, numbers->host + draw->offset, sizeof words);
    return draw->base + words[1];
}
