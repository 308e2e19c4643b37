/* sort_words.h: sorts words that hold a key and, below it, where the key comes from. */
#ifndef TC_CORE_SORT_WORDS_H
#define TC_CORE_SORT_WORDS_H

#include <stdint.h>

/* The words (n), ascending by their bits from `low` up to `high`, above which all are 0; equal ones keep their order, which is that of the
 * bits below `low`. spare: room for n. */
void tc_sort_words(uint64_t *words, uint64_t *spare, int64_t n, int low, int high);

#endif
