/* strided.c: see strided.h. */
#include "simd.h"

typedef real element;
#include "strided_functions.h"
