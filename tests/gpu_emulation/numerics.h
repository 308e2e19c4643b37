// numerics.h: the arithmetic of the GPU's number formats and approximations, bit by bit.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace emulator
{

template <class To, class From> To bit_cast(From from)
{
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

inline float bfloat16_to_float(uint16_t bits) { return bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline uint16_t float_to_bfloat16(float value) // to nearest, ties to even; any NaN becomes 0x7fff, as on the GPU
{
    uint32_t bits = bit_cast<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    bits += 0x7fffu + (bits >> 16 & 1);
    return static_cast<uint16_t>(bits >> 16);
}

inline float float16_to_float(uint16_t bits)
{
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ffu;
    if (exponent == 31) return bit_cast<float>(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0) return bit_cast<float>(sign | bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24f));
    return bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

inline uint16_t float_to_float16(float value) // to nearest, ties to even; too large becomes infinity
{
    const uint32_t bits = bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
    if (magnitude > 0x7f800000u) return 0x7fff;
    if (magnitude >= 0x477ff000u) return sign | 0x7c00; // 65520 and above
    if (magnitude < 0x38800000u) {                      // below 2^-14: adding 0.5 rounds at 2^-24, the last place of a denormal
        const float shifted = bit_cast<float>(magnitude) + 0.5f;
        return static_cast<uint16_t>(sign | (bit_cast<uint32_t>(shifted) - bit_cast<uint32_t>(0.5f)));
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

// cvt.rna.tf32.f32: 10 bits of fraction, to nearest, ties away from zero.
inline uint32_t float_to_tf32(float value)
{
    const uint32_t bits = bit_cast<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bits & ~0x1fffu; // as a GPU does: of some NaN it makes infinity
    return (bits + 0x1000u) & ~0x1fffu;
}
// The tensor cores read 19 bits of a tf32 operand and ignore the rest.
inline float tf32_to_float(uint32_t bits) { return bit_cast<float>(bits & ~0x1fffu); }

// ex2.approx.ftz.f32 is good to 2 units in the last place and flushes denormals. To show that nothing depends on more,
// the emulated one is off by -2 to 2 units, chosen by the bits of the argument.
inline float exp2_approximate(float x)
{
    uint32_t bits = bit_cast<uint32_t>(x);
    const float exact = std::exp2(std::fabs(x) < 0x1p-126f ? 0.0f : x);
    if (!(exact >= 0x1p-126f)) return exact != exact ? exact : 0.0f;
    if (std::isinf(exact) || x == std::floor(x)) return exact; // powers of two are exact on the GPU too
    bits = (bits ^ bits >> 15) * 0x2c1b3c6du;
    return bit_cast<float>(bit_cast<uint32_t>(exact) + (bits >> 20) % 5 - 2);
}

// rcp.approx.ftz.f32: likewise to one unit, and exact for powers of two.
inline float reciprocal_approximate(float x)
{
    uint32_t bits = bit_cast<uint32_t>(x);
    if (!(std::fabs(x) >= 0x1p-126f)) return x != x ? x : std::copysign(std::numeric_limits<float>::infinity(), x);
    const float exact = 1 / x;
    if (!(std::fabs(exact) >= 0x1p-126f)) return std::copysign(0.0f, x);
    if (std::isinf(exact) || (bits & 0x7fffffu) == 0) return exact;
    bits = (bits ^ bits >> 15) * 0x2c1b3c6du;
    return bit_cast<float>(bit_cast<uint32_t>(exact) + (bits >> 20) % 3 - 1);
}

} // namespace emulator
