/* box_muller.c: normals from uniforms with PyTorch's bits: log, sin and cos are the polynomials of its vectors (core/random.h). */
#include "box_muller.h"

#include <math.h>
#include <string.h>

#define TC_INLINE static inline __attribute__((always_inline))

TC_INLINE uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

TC_INLINE float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* log x for x in [2^-24, 1] as Cephes' logf: x = m 2^e with m in [sqrt(1/2), sqrt(2)), a polynomial in m - 1, and
 * log 2 in two parts. Which operations are fused is part of the result. No branches, so that the loop over a block becomes vectors. */
TC_INLINE float log_f32(float x)
{
    float e = (float)((int32_t)(bits_of(x) >> 23) - 126);
    float m = float_of((bits_of(x) & 0x007fffffu) | 0x3f000000u); /* [1/2, 1) */
    const uint32_t below = 0u - (uint32_t)(m < 0.707106781186547524f);
    e -= float_of(below & bits_of(1.0f));
    m = (m - 1.0f) + float_of(below & bits_of(m));

    const float z = m * m;
    float y = 7.0376836292e-2f;
    y = fmaf(y, m, -1.1514610310e-1f);
    y = fmaf(y, m, 1.1676998740e-1f);
    y = fmaf(y, m, -1.2420140846e-1f);
    y = fmaf(y, m, 1.4249322787e-1f);
    y = fmaf(y, m, -1.6668057665e-1f);
    y = fmaf(y, m, 2.0000714765e-1f);
    y = fmaf(y, m, -2.4999993993e-1f);
    y = fmaf(y, m, 3.3333331174e-1f);
    y = fmaf(y * m, z, e * -2.12194440e-4f);
    y = fmaf(z, -0.5f, y);
    return fmaf(e, 0.693359375f, m + y);
}

/* sin x and cos x for x in [0, 2 pi] as Cephes' sinf and cosf: x less a multiple of pi/4 in three parts, then a
 * polynomial for each; the octant says which is which and their signs. */
TC_INLINE void sin_cos_f32(float x, float *sin_out, float *cos_out)
{
    const int32_t octant = ((int32_t)(x * 1.27323954473516f) + 1) & ~1;
    const float y = (float)octant;
    x = fmaf(y, -0.78515625f, x);
    x = fmaf(y, -2.4187564849853515625e-4f, x);
    x = fmaf(y, -3.77489497744594108e-8f, x);

    const float z = x * x;
    float c = fmaf(fmaf(2.443315711809948e-5f, z, -1.388731625493765e-3f), z, 4.166664568298827e-2f);
    c = fmaf(c * z, z, z * -0.5f) + 1.0f;
    float s = fmaf(fmaf(-1.9515295891e-4f, z, 8.3321608736e-3f), z, -1.6666654611e-1f);
    s = fmaf(s * z, x, x);

    const uint32_t quarters = (uint32_t)octant >> 1; /* of a turn, 0 .. 4 */
    const uint32_t swap = (0u - (quarters & 1u)) & (bits_of(s) ^ bits_of(c));
    *sin_out = float_of(bits_of(s) ^ swap ^ (quarters & 2u) << 30);
    *cos_out = float_of(bits_of(c) ^ swap ^ ((quarters + 1u) & 2u) << 30);
}

/* n / 16 blocks of uniforms become normals in place. */
TC_INLINE void box_muller_f32(float *x, int64_t n, float mean, float std)
{
    for (; n >= TC_BOX_MULLER_BLOCK; n -= TC_BOX_MULLER_BLOCK, x += TC_BOX_MULLER_BLOCK)
        for (int j = 0; j < TC_BOX_MULLER_BLOCK / 2; j++) {
            float sine, cosine;
            const float radius = sqrtf(-2.0f * log_f32(1.0f - x[j]));
            sin_cos_f32((float)(2.0 * M_PI) * x[j + TC_BOX_MULLER_BLOCK / 2], &sine, &cosine);
            x[j] = fmaf(radius * cosine, std, mean);
            x[j + TC_BOX_MULLER_BLOCK / 2] = fmaf(radius * sine, std, mean);
        }
}

/* The same operations, and so the same bits, with and without fused multiply-add instructions: without them the C library's fmaf computes
 * the same. */
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void box_muller_f32_fma(float *x, int64_t n, float mean, float std)
{
    box_muller_f32(x, n, mean, std);
}
#endif

void tc_box_muller_f32(float *x, int64_t n, float mean, float std)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        box_muller_f32_fma(x, n, mean, std);
        return;
    }
#endif
    box_muller_f32(x, n, mean, std);
}

void tc_box_muller_f64(double *x, int64_t n, double mean, double std)
{
    for (; n >= TC_BOX_MULLER_BLOCK; n -= TC_BOX_MULLER_BLOCK, x += TC_BOX_MULLER_BLOCK)
        for (int j = 0; j < TC_BOX_MULLER_BLOCK / 2; j++) {
            const double radius = sqrt(-2.0 * log(1.0 - x[j])), angle = 2.0 * M_PI * x[j + TC_BOX_MULLER_BLOCK / 2];
            x[j] = fma(radius * cos(angle), std, mean);
            x[j + TC_BOX_MULLER_BLOCK / 2] = fma(radius * sin(angle), std, mean);
        }
}
