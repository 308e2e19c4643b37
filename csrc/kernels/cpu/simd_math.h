/* simd_math.h: elementary functions on the vectors of simd.h, the same for every lane and every width.
 *
 * Errors are given in units in the last place (ulp) of the correctly rounded result. Signed zeros, infinities and NaN come out
 * as C's math.h has them.
 */
#ifndef TC_SIMD_MATH_H
#define TC_SIMD_MATH_H

#include "simd.h"

/* e^x within 1 ulp: 0 below the smallest denormal (so exp(-inf) = 0), infinity on overflow, NaN for NaN.
 *
 * x = n ln2 + r with |r| <= ln2 / 2 and ln2 in two parts, the first short enough that n times it is exact; then
 * e^r = 1 + r + r^2 P(r), where P has the least relative error in e^r over that interval: 2^-28 and 2^-58. */
TC_INLINE vreal v_exp(vreal x)
{
#if TC_PRECISION == 32
    static const real P[] = {0.49999993f, 0.16666520f, 0.041668391f, 0.0083687463f, 0.0013814528f};
    const vreal ln2_high = v_set1(0.693359375f), ln2_low = v_set1(-2.12194440e-4f);
    const vreal lowest = v_set1(-104.5f), highest = v_set1(89.0f); /* beyond them the result is 0 and infinity */
#else
    static const real P[] = {0.500000000000001067,   0.166666666666664115,    0.041666666666529691,   0.00833333333349497572,
                             0.00138888889437690926, 0.000198412695058148935, 2.4801492940811118e-05, 2.75575867442530287e-06,
                             2.7630309198639914e-07, 2.50000429106373455e-08};
    const vreal ln2_high = v_set1(6.93147180369123816490e-01), ln2_low = v_set1(1.90821492927058770002e-10);
    const vreal lowest = v_set1(-746.0), highest = v_set1(710.0);
#endif
    x = v_min(highest, v_max(lowest, x)); /* this order of arguments keeps NaN */
    const vreal n = v_round(x * v_set1(R(1.44269504088896340736)));
    const vreal r = v_fnma(n, ln2_low, v_fnma(n, ln2_high, x));
    const int degree = (int)(sizeof P / sizeof P[0]) - 1;
    vreal p = v_set1(P[degree]);
    TC_UNROLL
    for (int i = degree - 1; i >= 0; i--) p = v_fma(p, r, v_set1(P[i]));
    return v_scale2(v_fma(p, r * r, r) + v_set1(R(1.0)), n);
}

#endif
