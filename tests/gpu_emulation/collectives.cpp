// collectives.cpp: what the last thread to arrive does for all of a shuffle, a vote or a counting barrier.
#include "collectives.h"

namespace emulator
{

namespace
{

struct ShuffleOperand {
    void *value;
    size_t bytes;
    int source;
};

void combine_shuffle(Warp &warp, unsigned mask)
{
    const OwnWork own;
    unsigned char values[warp_size][8];
    for (int i = 0; i < warp_size; i++) {
        if (!(mask >> i & 1)) continue;
        const auto *operand = static_cast<ShuffleOperand *>(warp.lane[i]->waiting.operand);
        memcpy(values[i], operand->value, operand->bytes);
    }
    for (int i = 0; i < warp_size; i++) {
        if (!(mask >> i & 1)) continue;
        const auto *operand = static_cast<ShuffleOperand *>(warp.lane[i]->waiting.operand);
        memcpy(operand->value, values[operand->source], operand->bytes);
    }
}

struct BallotOperand {
    bool predicate;
    unsigned result;
};

void combine_ballot(Warp &warp, unsigned mask)
{
    unsigned votes = 0;
    for (int i = 0; i < warp_size; i++)
        if (mask >> i & 1 && static_cast<BallotOperand *>(warp.lane[i]->waiting.operand)->predicate) votes |= 1u << i;
    for (int i = 0; i < warp_size; i++)
        if (mask >> i & 1) static_cast<BallotOperand *>(warp.lane[i]->waiting.operand)->result = votes;
}

} // namespace

void shuffle(const char *operation, Site site, unsigned mask, void *value, size_t bytes, int source)
{
    if (source < 0 || source >= warp_size || !(mask >> source & 1))
        fail(site, "%s: reads lane %d, which is not in the mask 0x%x", operation, source, mask);
    ShuffleOperand operand = {value, bytes, source};
    warp_collective(operation, site, mask, &operand, combine_shuffle, false);
}

unsigned ballot(const char *operation, Site site, unsigned mask, bool predicate)
{
    BallotOperand operand = {predicate, 0};
    warp_collective(operation, site, mask, &operand, combine_ballot, false);
    return operand.result;
}

int block_count(const char *operation, Site site, bool predicate)
{
    current->vote = predicate;
    block_barrier(operation, site);
    int count = 0;
    for (int i = 0; i < block.size; i++) count += block.threads[i]->vote;
    block_barrier(operation, site); // nobody votes again before everyone has counted
    return count;
}

} // namespace emulator
