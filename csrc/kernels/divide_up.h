/* divide_up.h: the number of groups of b in a, of which the last may be shorter; a >= 0, b > 0. GPU code has tc::divide_up. */
#ifndef TC_KERNELS_DIVIDE_UP_H
#define TC_KERNELS_DIVIDE_UP_H

#include <stdint.h>

static inline int64_t tc_divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

#endif
