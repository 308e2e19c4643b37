/* half.h: float16 and bfloat16 are storage: widened when read, rounded to nearest even when written. */
#ifndef TC_HALF_H
#define TC_HALF_H

#include <stdint.h>
#include <string.h>

static inline float tc_bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t tc_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float tc_from_bfloat16(uint16_t h) { return tc_bits_float((uint32_t)h << 16); }

static inline uint16_t tc_to_bfloat16(float x)
{
    const uint32_t bits = tc_float_bits(x);
    const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)(x != x ? (bits >> 16) | 0x40u : rounded);
}

static inline float tc_from_float16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = h & 0x7FFFu;
    /* normal: shift the exponent's bias by multiplying; this also turns float16 denormals into float32 normals */
    const float scaled = tc_bits_float(magnitude << 13) * 0x1p112f;
    const uint32_t bits = magnitude >= 0x7C00u ? (magnitude << 13) | 0x7F800000u : tc_float_bits(scaled);
    return tc_bits_float(sign | bits);
}

static inline uint16_t tc_to_float16(float x)
{
    const uint32_t bits = tc_float_bits(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
    uint32_t half;
    if (magnitude > 0x7F800000u)
        half = 0x7E00u | ((magnitude >> 13) & 0x3FFu); /* NaN stays NaN */
    else if (magnitude >= 0x477FF000u)
        half = 0x7C00u;               /* rounds to infinity */
    else if (magnitude < 0x38800000u) /* denormal: let the adder round at 2^-24 */
        half = tc_float_bits(tc_bits_float(magnitude) + 0.5f) - 0x3F000000u;
    else
        half = (magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    return (uint16_t)(sign | half);
}

#endif
