/* rotary.c: rotates the pairs of a row by angles that depend on the row's position. */
#include "../rotary.h"
#include "simd.h"
#include "simd_math.h"

/* The angle in `real`. A float has too few digits for large ones, which are reduced to -pi .. pi in double; the sine and cosine of doubles
 * reduce them themselves, to more digits. */
TC_INLINE real reduced_angle(double angle)
{
#if TC_PRECISION == 32
    const double turn = 6.283185307179586476925286766559;
    return (real)(angle - turn * rint(angle * (1.0 / turn)));
#else
    return angle;
#endif
}

TC_DEFINE_KERNEL(rotary_table)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_rotary_table_args *a = args;
    const int64_t half = a->D / 2;
    double *frequencies = scratch;
    for (int64_t j = 0; j < half; j++) frequencies[j] = pow(a->base, -2.0 * (double)j / (double)a->D);
    for (int64_t i = begin; i < end; i++) {
        const double position = a->positions ? a->positions[i] : (double)i;
        for (int64_t j = 0; j < half; j += TC_LANES) {
            const int64_t n = half - j < TC_LANES ? half - j : TC_LANES;
            real reduced[TC_LANES] = {0};
            for (int64_t k = 0; k < n; k++) reduced[k] = reduced_angle(position * frequencies[j + k]);
            const vreal angles = v_load(reduced);
            v_store_n((real *)a->cosine + i * half + j, v_cos(angles), n);
            v_store_n((real *)a->sine + i * half + j, v_sin(angles), n);
        }
    }
}

TC_INLINE void turn_halves(real *restrict y, const real *restrict x, const real *restrict c, const real *restrict s, int64_t half,
                           real sign)
{
    for (int64_t j = 0; j < half; j++) {
        const real sine = sign * s[j];
        y[j] = x[j] * c[j] - x[j + half] * sine;
        y[j + half] = x[j + half] * c[j] + x[j] * sine;
    }
}

TC_INLINE void turn_neighbours(real *restrict y, const real *restrict x, const real *restrict c, const real *restrict s, int64_t half,
                               real sign)
{
    for (int64_t j = 0; j < half; j++) {
        const real sine = sign * s[j];
        y[2 * j] = x[2 * j] * c[j] - x[2 * j + 1] * sine;
        y[2 * j + 1] = x[2 * j + 1] * c[j] + x[2 * j] * sine;
    }
}

TC_DEFINE_KERNEL(rotary)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_rotary_args *a = args;
    const int64_t half = a->D / 2;
    const real sign = a->inverse ? R(-1.0) : R(1.0);
    (void)scratch;
    for (int64_t row = begin; row < end; row++) {
        int64_t at = 0, rest = row;
        for (int axis = a->ndim - 1; axis >= 0; axis--) {
            at += rest % a->shape[axis] * a->strides[axis];
            rest /= a->shape[axis];
        }
        const real *x = (const real *)a->x + row * a->D, *c = (const real *)a->cosine + at * half, *s = (const real *)a->sine + at * half;
        real *y = (real *)a->y + row * a->D;
        if (a->interleaved)
            turn_neighbours(y, x, c, s, half, sign);
        else
            turn_halves(y, x, c, s, half, sign);
    }
}
