/* runs.h: runs of elements as bits, of whatever dtype: repeated, backwards, short, spread. */
#ifndef TC_RUNS_H
#define TC_RUNS_H

#include <string.h>

#include "cast.h"

/* to[i] = to[0], i < n. */
static void repeat_first(void *to, int bytes, int64_t n)
{
    uint64_t word = 0;
    memcpy(&word, to, (size_t)bytes);
    switch (bytes) {
    case 1: memset(to, (int)word, (size_t)n); break;
    case 2:
        for (int64_t i = 0; i < n; i++) ((word_2 *)to)[i] = (word_2)word;
        break;
    case 4:
        for (int64_t i = 0; i < n; i++) ((word_4 *)to)[i] = (word_4)word;
        break;
    default:
        for (int64_t i = 0; i < n; i++) ((word_8 *)to)[i] = word;
    }
}

/* Dense runs from their end to their beginning, as flip() reads them. */
#define BACKWARDS(bytes, word, VALUE)                                                                                                      \
    static void backwards_##bytes(void *to_, const void *from_, int64_t n)                                                                 \
    {                                                                                                                                      \
        word *to = to_;                                                                                                                    \
        const word *from = (const word *)from_ - (n - 1);                                                                                  \
        for (int64_t i = 0; i < n; i++) to[i] = (word)VALUE(from[n - 1 - i]);                                                              \
    }
BACKWARDS(1, uint8_t, SAME)
BACKWARDS(2, word_2, SAME)
BACKWARDS(4, word_4, SAME)
BACKWARDS(8, word_8, SAME)
BACKWARDS(boolean, boolean, NOT_ZERO)

static void move_backwards(void *to, const void *from, int64_t n, int dtype)
{
    if (dtype == TC_BOOL)
        backwards_boolean(to, from, n);
    else if (element_bytes[dtype] == 1)
        backwards_1(to, from, n);
    else if (element_bytes[dtype] == 2)
        backwards_2(to, from, n);
    else if (element_bytes[dtype] == 4)
        backwards_4(to, from, n);
    else
        backwards_8(to, from, n);
}

/* memcpy of few bytes, many times. */
TC_INLINE void move_bytes(char *to, const char *from, int64_t n)
{
    for (; n >= 32; n -= 32, to += 32, from += 32) memcpy(to, from, 32);
    if (n >= 16) {
        memcpy(to, from, 16);
        n -= 16, to += 16, from += 16;
    }
    if (n >= 8) {
        memcpy(to, from, 8);
        n -= 8, to += 8, from += 8;
    }
    if (n >= 4) {
        memcpy(to, from, 4);
        n -= 4, to += 4, from += 4;
    }
    for (; n > 0; n--) *to++ = *from++;
}

/* The same of bools, which become 0 or 1. */
TC_INLINE void move_bools(char *to, const char *from, int64_t n)
{
    for (; n >= 16; n -= 16, to += 16, from += 16) {
        boolean_lanes x;
        memcpy(&x, from, 16);
        x = truths(x);
        memcpy(to, &x, 16);
    }
    for (; n > 0; n--) *to++ = *from++ != 0;
}

/* `runs` runs of n bytes. Not inlined: beside one another in one function, the compiler spills what these loops use. */
#define PIECES(name, move)                                                                                                                 \
    static __attribute__((noinline)) void pieces_of_##name(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n,      \
                                                           int64_t runs)                                                                   \
    {                                                                                                                                      \
        for (int64_t k = 0; k < runs; k++, to += to_step, from += from_step) move(to, from, n);                                            \
    }
PIECES(bytes, move_bytes)
PIECES(bools, move_bools)

/* n bytes, all elements of which are the one of so many bytes at `value`. */
TC_INLINE void fill_run(char *to, const char *value, const int bytes, int64_t n)
{
    uint64_t word = 0;
    memcpy(&word, value, (size_t)bytes);
    for (int have = 8 * bytes; have < 64; have *= 2) word |= word << have;
    for (; n >= 32; n -= 32, to += 32)
        for (int i = 0; i < 32; i += 8) memcpy(to + i, &word, 8);
    for (; n >= 8; n -= 8, to += 8) memcpy(to, &word, 8);
    for (; n > 0; n -= bytes, to += bytes) memcpy(to, &word, (size_t)bytes);
}

/* `runs` runs of `length` elements that are strided where they are read, one element after another. */
#define SINGLY(word, VALUE)                                                                                                                \
    static void singly_##word(void *to_, int64_t to_row, const void *from_, int64_t from_row, int64_t from_step, int64_t length,           \
                              int64_t runs)                                                                                                \
    {                                                                                                                                      \
        word *to = to_;                                                                                                                    \
        const word *from = from_;                                                                                                          \
        for (int64_t k = 0; k < runs; k++, to += to_row, from += from_row)                                                                 \
            for (int64_t i = 0; i < length; i++) to[i] = (word)VALUE(from[i * from_step]);                                                 \
    }
SINGLY(uint8_t, SAME)
SINGLY(word_2, SAME)
SINGLY(word_4, SAME)
SINGLY(word_8, SAME)
SINGLY(boolean, NOT_ZERO)

/* n elements: `left` times the first value, then each of the next ones `length` times. */
#define SPREAD(word)                                                                                                                       \
    static void spread_##word(word *to, const word *value, int64_t left, int64_t n, int64_t length)                                        \
    {                                                                                                                                      \
        for (; n > 0; left = length, value++) {                                                                                            \
            const int64_t count = left < n ? left : n;                                                                                     \
            for (int64_t i = 0; i < count; i++) to[i] = *value;                                                                            \
            to += count;                                                                                                                   \
            n -= count;                                                                                                                    \
        }                                                                                                                                  \
    }
SPREAD(word_4)
SPREAD(word_8)

#endif
