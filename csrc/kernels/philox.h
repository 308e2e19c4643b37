/* philox.h: the counter-based generator behind dropout, in words; every backend gives the same bits.
 *
 * Philox4x32 with 7 rounds, the fewest that pass BigCrush (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
 * 3", table 2), maps a 128-bit counter and a 64-bit key to four 32-bit words. The key is the seed. The counter is (block,
 * call), 64 bits each with the low word first: `call` distinguishes the dropouts that share a seed, `block` comes from the element:
 *
 *     group = element / 64;  word = element / 16 % 4;  block = group * 16 + element % 16
 *
 * so the words of a group of 64 elements are words 0 to 3 of 16 neighbouring blocks, the sixteen of each word next to each other.
 * A vector of blocks thus gives vectors of neighbouring elements, a GPU thread with one block has elements 16 apart, and
 * any one element can be computed alone. An op with rows that are not multiples of 64 may number its elements with gaps.
 *
 * Dropout with probability p keeps an element when its word >= tc_keep_threshold(p); with p = 1 it keeps none.
 */
#ifndef TC_KERNELS_PHILOX_H
#define TC_KERNELS_PHILOX_H

#include <stdint.h>

/* Where an op's elements are among those of the whole batch, when several processes share one: number i is
 * (first + i / row * step) * row + i % row there, in elements or in rows of scores. {count, 0, 1}: where they are here. */
typedef struct tc_places {
    int64_t row, first, step;
} tc_places;

/* The seed and the number of a dropout. A kernel that a graph starts many times has those of each start in the GPU's memory: drawn[0] is
 * the seed then and drawn[1] is added to the number. drawn is NULL elsewhere, and always for kernels of CPUs. */
#define TC_DRAWN_WORDS 2

#define TC_PHILOX_ROUNDS 7
#define TC_PHILOX_M0 0xD2511F53u /* multipliers */
#define TC_PHILOX_M1 0xCD9E8D57u
#define TC_PHILOX_W0 0x9E3779B9u /* added to the key in each round */
#define TC_PHILOX_W1 0xBB67AE85u
#define TC_PHILOX_GROUP 64  /* elements that share 16 blocks */
#define TC_PHILOX_BLOCKS 16 /* blocks per group */

/* p 2^32 to the nearest integer, at most 2^32 - 1. 0 <= p <= 1. */
static inline uint32_t tc_keep_threshold(double p)
{
    const double threshold = p * 4294967296.0 + 0.5;
    return threshold < 4294967295.0 ? (uint32_t)threshold : UINT32_MAX;
}

/* What an element that is kept is multiplied by. With p = 1 none is. */
static inline double tc_keep_scale(double p) { return p < 1.0 ? 1.0 / (1.0 - p) : 0.0; }

static inline int64_t tc_place(const tc_places *places, int64_t i)
{
    return (places->first + i / places->row * places->step) * places->row + i % places->row;
}

#endif
