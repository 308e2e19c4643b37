/* random.h: the two sources of random numbers.
 *
 * 1. tc_generator (declared in transformer_c.h) draws in sequence: initial weights, shuffles, data. It is MT19937
 *    (Matsumoto and Nishimura 1998) used the way PyTorch's CPU generator uses it, so that a seed gives the same
 *    numbers. With r the next 32-bit word and r64 = (first word << 32) | second word:
 *
 *      uniform float32   x = (r mod 2^24) 2^-24;     fma(x, high - low, low); a result equal to high becomes low
 *      uniform float64   x = (r64 mod 2^53) 2^-53;   likewise in double
 *      normal, n < 16    Box-Muller in double, for both dtypes: u1, u2 uniform; radius sqrt(-2 log1p(-u2)), angle 2 pi u1;
 *                        the cosine is the value, the sine is kept for the next such draw, in whichever call that is
 *      normal, n >= 16   n uniforms of the result's dtype first; in each block of 16, elements j and j + 8 give
 *                        radius sqrt(-2 log(1 - x[j])) and angle 2 pi x[j + 8]; the cosine goes to j, the sine to j + 8.
 *                        If 16 does not divide n the last 16 elements are drawn afresh and transformed once more. The
 *                        kept sine is neither used nor changed.
 *      integers          low + (r mod range) for ranges below 2^28, low + (r64 mod range) from there on
 *      permutation       i from 0 to n - 2: swap i and i + (r mod (n - i)); from 2^32 / 20 elements on, the inside-out
 *                        shuffle with r64 mod (i + 1)
 *      seed64            r64 mod 2^63: drawn by a shuffling loader
 *
 *    What is exact. Words, uniforms, integers and permutations are the same bits on every machine. So are float32 normals
 *    of n >= 16: log, sin and cos are the polynomials of Cephes (Moshier), fused and ordered as in PyTorch's AVX2 and
 *    AVX-512 builds. PyTorch forced to run without AVX2 differs from its other builds, and so from this, in the last bits
 *    of these normals and of uniforms with bounds other than 0 and 1. The remaining normals go through the C library's
 *    log, log1p, sin and cos: PyTorch's bits on top of the same C library, within a unit or two in the last place elsewhere.
 *
 *    Threads. Every function but tc_generator_initial_seed holds the generator's own lock for the whole call, so calls
 *    from several threads each get an unbroken piece of the sequence; which piece comes first is up to the callers. What is
 *    drawn by several calls comes from a generator of its own (tc_generator_reserve). fork() waits for calls in progress, so
 *    the child finds every generator unlocked and whole.
 *
 * 2. tc_philox() below is a pure function: no state, so a mask does not depend on the number of threads or the device, and
 *    a backward computes it again instead of keeping it. kernels/philox.h says what it computes and how elements are
 *    numbered; the kernels have it in vectors and are tested against this one, in plain C.
 */
#ifndef TC_CORE_RANDOM_H
#define TC_CORE_RANDOM_H

#include "../kernels/philox.h"
#include "../transformer_c.h"

/* n normals of float32, or `wide` of float64, as of calls for fewer than 16. */
void tc_generator_normal_one_by_one(tc_generator *generator, void *values, bool wide, int64_t n, double mean, double std);

/* The 32-bit word of one element: Philox4x32 with 7 rounds (Salmon et al. 2011). */
uint32_t tc_philox(uint64_t seed, uint64_t call, uint64_t element);

/* Where `count` elements are that belong to the rows of `share`, as many to each; where they are here, when it does not divide them. */
tc_places tc_places_of(tc_batch_share share, int64_t count);

#endif
