/* test_regions.c: blocks of regions are apart, free neighbours become one range, and a region without blocks is given back. */
#include "core/regions.c" /* to see which regions there are */

#include "check.h"

#define KIB ((size_t)1 << 10)

static int region_count(void)
{
    int count = 0;
    for (const region *r = regions; r; r = r->next) count++;
    return count;
}

static void *allocate(size_t bytes)
{
    void *block = tc_region_allocate(bytes);
    CHECK(block != NULL);
    CHECK_EQUAL((uintptr_t)block % TC_ALIGNMENT, 0);
    return block;
}

static void free_neighbours_become_one(void)
{
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        char *blocks[3];
        for (int n = 0; n < 3; n++) blocks[n] = allocate(64 * KIB);
        void *behind = allocate(64 * KIB);
        CHECK(blocks[1] == blocks[0] + 64 * KIB && blocks[2] == blocks[1] + 64 * KIB);
        for (int n = 0; n < 3; n++) tc_region_free(blocks[orders[i][n]], 64 * KIB);
        char *all = allocate(192 * KIB);
        CHECK(all == blocks[0]);
        tc_region_free(all, 192 * KIB);
        tc_region_free(behind, 64 * KIB);
        CHECK_EQUAL(region_count(), 0);
    }
}

static void a_region_without_blocks_is_given_back(void)
{
    enum { BLOCKS = 32 };
    const size_t bytes = 1024 * KIB;
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = allocate(bytes);
    CHECK_EQUAL(region_count(), 3); /* 15 blocks each: its own record takes 64 bytes */
    for (int i = 15; i < 30; i++) tc_region_free(blocks[i], bytes);
    CHECK_EQUAL(region_count(), 2);
    for (int i = 15; i < 30; i++) blocks[i] = allocate(bytes);
    CHECK_EQUAL(region_count(), 3);
    for (int i = 0; i < BLOCKS; i++) tc_region_free(blocks[i], bytes);
    CHECK_EQUAL(region_count(), 0);
}

/* Any sizes in any order: nothing that is in use is given out again. */
static void blocks_are_apart(void)
{
    enum { SLOTS = 200, STEPS = 20000 };
    static struct {
        unsigned char *data;
        size_t bytes;
    } slots[SLOTS];
    uint64_t state = 1;
    size_t wrong = 0;
    for (int step = 0; step < STEPS; step++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const int slot = (int)((state >> 33) % SLOTS);
        unsigned char *data = slots[slot].data;
        const size_t bytes = slots[slot].bytes;
        if (data) {
            wrong += data[0] != slot || data[bytes / 2] != slot || data[bytes - 1] != slot;
            tc_region_free(data, bytes);
            slots[slot].data = NULL;
            continue;
        }
        slots[slot].bytes = TC_ALIGNMENT * (1 + (state >> 45) % (TC_HUGE_PAGE / TC_ALIGNMENT));
        data = slots[slot].data = allocate(slots[slot].bytes);
        if (data) data[0] = data[slots[slot].bytes / 2] = data[slots[slot].bytes - 1] = (unsigned char)slot;
    }
    CHECK_EQUAL(wrong, 0);
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].data) tc_region_free(slots[i].data, slots[i].bytes);
    CHECK_EQUAL(region_count(), 0);
}

int main(void)
{
    free_neighbours_become_one();
    a_region_without_blocks_is_given_back();
    blocks_are_apart();
    return check_finish();
}
