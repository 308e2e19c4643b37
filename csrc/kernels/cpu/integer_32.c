/* integer_32.c: see integer_elements.h. */
#if TC_PRECISION == 32
#define INTEGER_BITS 32
#include "integer_elements.h"
#endif
