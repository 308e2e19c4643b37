/* random.c: the generators of random.h, which gives the recipes. */
#include "random.h"
#include "../kernels/philox.h"
#include "box_muller.h"
#include "lock.h"
#include "status.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TC_INLINE static inline __attribute__((always_inline))

/* ---- MT19937 (Matsumoto and Nishimura 1998) --------------------------------------------------------------------- */

#define MT_WORDS 624
#define MT_SHIFT 397

typedef struct mt_stream {
    uint32_t word[MT_WORDS]; /* untempered */
    uint32_t next;           /* index of the next word */
    int32_t left;            /* words left in the block, and one more; 1 asks for a new block */
    double spare;            /* the sine of the last scalar Box-Muller pair, standard normal */
    bool has_spare;
} mt_stream;

struct tc_generator {
    tc_lock lock;          /* guards stream, and writes of seed, which is read without it: a long draw holds it */
    _Atomic uint64_t seed; /* all 64 bits as given; only the low 32 enter the state */
    mt_stream stream;
};

static void mt_seed(mt_stream *s, uint64_t seed)
{
    s->word[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < MT_WORDS; i++) s->word[i] = 1812433253u * (s->word[i - 1] ^ (s->word[i - 1] >> 30)) + i;
    s->next = 0;
    s->left = 1;
    s->has_spare = false;
    s->spare = 0.0;
}

TC_INLINE uint32_t mt_twist(uint32_t high, uint32_t low)
{
    return (((high & 0x80000000u) | (low & 0x7fffffffu)) >> 1) ^ ((0u - (low & 1u)) & 0x9908b0dfu);
}

static void mt_next_block(mt_stream *s)
{
    uint32_t *w = s->word;
    for (int i = 0; i < MT_WORDS - MT_SHIFT; i++) w[i] = w[i + MT_SHIFT] ^ mt_twist(w[i], w[i + 1]);
    for (int i = MT_WORDS - MT_SHIFT; i < MT_WORDS - 1; i++) w[i] = w[i + MT_SHIFT - MT_WORDS] ^ mt_twist(w[i], w[i + 1]);
    w[MT_WORDS - 1] = w[MT_SHIFT - 1] ^ mt_twist(w[MT_WORDS - 1], w[0]);
    s->next = 0;
    s->left = MT_WORDS;
}

TC_INLINE uint32_t mt_next32(mt_stream *s)
{
    if (s->left == 1)
        mt_next_block(s);
    else
        s->left--;
    uint32_t y = s->word[s->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

TC_INLINE uint64_t mt_next64(mt_stream *s)
{
    const uint64_t high = mt_next32(s);
    return (high << 32) | mt_next32(s);
}

/* Skips `words` words. A new block is made while `left` is 1, so that its first word is number `left` from here. */
static void mt_skip(mt_stream *s, uint64_t words)
{
    while (words >= (uint64_t)s->left) {
        words -= (uint64_t)s->left;
        mt_next_block(s);
        s->next = 1;
    }
    s->next += (uint32_t)words;
    s->left -= (int32_t)words;
}

TC_INLINE float mt_uniform_f32(mt_stream *s) { return (float)(mt_next32(s) & 0xffffffu) * 0x1p-24f; }
TC_INLINE double mt_uniform_f64(mt_stream *s) { return (double)(mt_next64(s) & ((UINT64_C(1) << 53) - 1)) * 0x1p-53; }

/* ---- generators ------------------------------------------------------------------------------------------------- */

tc_generator *tc_generator_new(uint64_t seed)
{
    tc_generator *generator = malloc(sizeof *generator);
    if (!generator) return NULL;
    generator->lock = (tc_lock)TC_LOCK_INITIALIZER(TC_RANK_GENERATOR);
    atomic_init(&generator->seed, seed);
    mt_seed(&generator->stream, seed);
    tc_lock_add(&generator->lock);
    return generator;
}

void tc_generator_free(tc_generator *generator)
{
    if (!generator) return;
    tc_lock_remove(&generator->lock);
    pthread_mutex_destroy(&generator->lock.mutex);
    free(generator);
}

TC_INLINE mt_stream *take(tc_generator *generator)
{
    tc_lock_take(&generator->lock);
    return &generator->stream;
}

TC_INLINE void give_back(tc_generator *generator) { tc_lock_give(&generator->lock); }

tc_generator *tc_generator_reserve(tc_generator *generator, uint64_t words)
{
    tc_generator *copy = tc_generator_new(0);
    if (!copy) return NULL;
    mt_stream *s = take(generator);
    copy->stream = *s; /* nobody else has the copy yet */
    atomic_store(&copy->seed, atomic_load(&generator->seed));
    mt_skip(s, words);
    give_back(generator);
    return copy;
}

tc_generator *tc_generator_copy(tc_generator *generator) { return tc_generator_reserve(generator, 0); }

void tc_generator_seed(tc_generator *generator, uint64_t seed)
{
    mt_seed(take(generator), seed);
    atomic_store(&generator->seed, seed);
    give_back(generator);
}

uint64_t tc_generator_initial_seed(tc_generator *generator) { return atomic_load(&generator->seed); }

/* ---- state as bytes --------------------------------------------------------------------------------------------- */

/* Offsets in PyTorch's layout; bytes not named are zero. Words of the state take 8 bytes each. */
enum {
    STATE_SEED = 0,
    STATE_LEFT = 8,
    STATE_SEEDED = 12,
    STATE_NEXT = 16,
    STATE_WORDS = 24,
    STATE_SPARE = STATE_WORDS + 8 * MT_WORDS + 8,
    STATE_HAS_SPARE = STATE_SPARE + 16
};

static void put_little_endian(uint8_t *bytes, uint64_t value, int size)
{
    for (int i = 0; i < size; i++) bytes[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get_little_endian(const uint8_t *bytes, int size)
{
    uint64_t value = 0;
    for (int i = 0; i < size; i++) value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

void tc_generator_get_state(tc_generator *generator, uint8_t state[TC_GENERATOR_STATE_BYTES])
{
    memset(state, 0, TC_GENERATOR_STATE_BYTES);
    const mt_stream *s = take(generator);
    put_little_endian(state + STATE_SEED, atomic_load(&generator->seed), 8);
    put_little_endian(state + STATE_LEFT, (uint64_t)s->left, 4);
    put_little_endian(state + STATE_SEEDED, 1, 4);
    put_little_endian(state + STATE_NEXT, s->next, 8);
    for (int i = 0; i < MT_WORDS; i++) put_little_endian(state + STATE_WORDS + 8 * i, s->word[i], 8);
    if (s->has_spare) {
        uint64_t bits;
        memcpy(&bits, &s->spare, sizeof bits);
        put_little_endian(state + STATE_SPARE, bits, 8);
        put_little_endian(state + STATE_HAS_SPARE, 1, 4);
    }
    give_back(generator);
}

bool tc_generator_set_state(tc_generator *generator, const uint8_t state[TC_GENERATOR_STATE_BYTES])
{
    mt_stream s = {.has_spare = false};
    const uint64_t left = get_little_endian(state + STATE_LEFT, 4), next = get_little_endian(state + STATE_NEXT, 8);
    const uint64_t spare_bits = get_little_endian(state + STATE_SPARE, 8), has_spare = get_little_endian(state + STATE_HAS_SPARE, 4);
    const bool fresh_or_used_up = left == 1 && (next == 0 || next == MT_WORDS);
    const bool within_block = left > 1 && left <= MT_WORDS && next + left == MT_WORDS + 1;
    if (get_little_endian(state + STATE_SEEDED, 4) != 1 || !(fresh_or_used_up || within_block) || has_spare > 1) return false;
    s.left = (int32_t)left;
    s.next = (uint32_t)next;
    for (int i = 0; i < MT_WORDS; i++) {
        const uint64_t word = get_little_endian(state + STATE_WORDS + 8 * i, 8);
        if (word > UINT32_MAX) return false;
        s.word[i] = (uint32_t)word;
    }
    s.has_spare = has_spare;
    if (has_spare) memcpy(&s.spare, &spare_bits, sizeof s.spare);
    *take(generator) = s;
    atomic_store(&generator->seed, get_little_endian(state + STATE_SEED, 8));
    give_back(generator);
    return true;
}

/* ---- words ------------------------------------------------------------------------------------------------------ */

uint32_t tc_generator_next32(tc_generator *generator)
{
    const uint32_t word = mt_next32(take(generator));
    give_back(generator);
    return word;
}

uint64_t tc_generator_next64(tc_generator *generator)
{
    const uint64_t words = mt_next64(take(generator));
    give_back(generator);
    return words;
}

int64_t tc_generator_seed64(tc_generator *generator) { return (int64_t)(tc_generator_next64(generator) & INT64_MAX); }

/* ---- uniform ---------------------------------------------------------------------------------------------------- */

void tc_generator_uniform_f32(tc_generator *generator, float *values, int64_t n, double low, double high)
{
    const float from = (float)low, to = (float)high, width = to - from;
    mt_stream *s = take(generator);
    for (int64_t i = 0; i < n; i++) {
        const float value = fmaf(mt_uniform_f32(s), width, from);
        values[i] = value == to ? from : value;
    }
    give_back(generator);
}

void tc_generator_uniform_f64(tc_generator *generator, double *values, int64_t n, double low, double high)
{
    const double width = high - low;
    mt_stream *s = take(generator);
    for (int64_t i = 0; i < n; i++) {
        const double value = fma(mt_uniform_f64(s), width, low);
        values[i] = value == high ? low : value;
    }
    give_back(generator);
}

/* ---- normal ----------------------------------------------------------------------------------------------------- */

#define BLOCK TC_BOX_MULLER_BLOCK /* fills of at least this many values use whole blocks */

/* One standard normal by Box-Muller in double; every second call returns the sine kept by the one before. */
static double mt_normal(mt_stream *s)
{
    if (s->has_spare) {
        s->has_spare = false;
        return s->spare;
    }
    const double u1 = mt_uniform_f64(s), u2 = mt_uniform_f64(s);
    const double radius = sqrt(-2.0 * log1p(-u2)), angle = 2.0 * M_PI * u1;
    s->spare = radius * sin(angle);
    s->has_spare = true;
    return radius * cos(angle);
}

void tc_generator_normal_f32(tc_generator *generator, float *values, int64_t n, double mean, double std)
{
    mt_stream *s = take(generator);
    if (n < BLOCK) {
        for (int64_t i = 0; i < n; i++) values[i] = (float)fma(mt_normal(s), std, mean);
    } else {
        for (int64_t i = 0; i < n; i++) values[i] = mt_uniform_f32(s);
        tc_box_muller_f32(values, n, (float)mean, (float)std);
        if (n % BLOCK) {
            float *last = values + n - BLOCK;
            for (int i = 0; i < BLOCK; i++) last[i] = mt_uniform_f32(s);
            tc_box_muller_f32(last, BLOCK, (float)mean, (float)std);
        }
    }
    give_back(generator);
}

void tc_generator_normal_f64(tc_generator *generator, double *values, int64_t n, double mean, double std)
{
    mt_stream *s = take(generator);
    if (n < BLOCK) {
        for (int64_t i = 0; i < n; i++) values[i] = fma(mt_normal(s), std, mean);
    } else {
        for (int64_t i = 0; i < n; i++) values[i] = mt_uniform_f64(s);
        tc_box_muller_f64(values, n, mean, std);
        if (n % BLOCK) {
            double *last = values + n - BLOCK;
            for (int i = 0; i < BLOCK; i++) last[i] = mt_uniform_f64(s);
            tc_box_muller_f64(last, BLOCK, mean, std);
        }
    }
    give_back(generator);
}

void tc_generator_normal_one_by_one(tc_generator *generator, void *values, bool wide, int64_t n, double mean, double std)
{
    mt_stream *s = take(generator);
    for (int64_t i = 0; i < n; i++) {
        const double value = fma(mt_normal(s), std, mean);
        if (wide)
            ((double *)values)[i] = value;
        else
            ((float *)values)[i] = (float)value;
    }
    give_back(generator);
}

/* ---- integers --------------------------------------------------------------------------------------------------- */

void tc_generator_integers(tc_generator *generator, int64_t *values, int64_t n, int64_t low, int64_t high)
{
    const uint64_t range = (uint64_t)high - (uint64_t)low, base = (uint64_t)low; /* unsigned: the difference may exceed 2^63 */
    mt_stream *s = take(generator);
    if (range < UINT64_C(1) << 28)
        for (int64_t i = 0; i < n; i++) values[i] = (int64_t)(base + mt_next32(s) % (uint32_t)range);
    else
        for (int64_t i = 0; i < n; i++) values[i] = (int64_t)(base + mt_next64(s) % range);
    give_back(generator);
}

void tc_generator_permutation(tc_generator *generator, int64_t *values, int64_t n)
{
    mt_stream *s = take(generator);
    if (n < UINT32_MAX / 20) {
        for (int64_t i = 0; i < n; i++) values[i] = i;
        for (int64_t i = 0; i < n - 1; i++) {
            /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): i < n - 1 */
            const int64_t j = i + mt_next32(s) % (uint32_t)(n - i), swapped = values[i];
            values[i] = values[j];
            values[j] = swapped;
        }
    } else { /* a 32-bit word would favour small remainders */
        for (int64_t i = 0; i < n; i++) {
            const int64_t j = (int64_t)(mt_next64(s) % (uint64_t)(i + 1));
            values[i] = i;
            values[i] = values[j];
            values[j] = i;
        }
    }
    give_back(generator);
}

/* ---- Philox ----------------------------------------------------------------------------------------------------- */

uint32_t tc_philox(uint64_t seed, uint64_t call, uint64_t element)
{
    const uint64_t block = element / TC_PHILOX_GROUP * TC_PHILOX_BLOCKS + element % TC_PHILOX_BLOCKS;
    uint32_t c[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)call, (uint32_t)(call >> 32)};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < TC_PHILOX_ROUNDS; round++) {
        const uint64_t p0 = (uint64_t)TC_PHILOX_M0 * c[0], p1 = (uint64_t)TC_PHILOX_M1 * c[2];
        c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
        c[1] = (uint32_t)p1;
        c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[3] = (uint32_t)p0;
        k0 += TC_PHILOX_W0;
        k1 += TC_PHILOX_W1;
    }
    return c[element / TC_PHILOX_BLOCKS % 4];
}

/* ---- batches that processes share ------------------------------------------------------------------------------- */

static _Thread_local tc_batch_share batch_share;

tc_batch_share tc_get_batch_share(void) { return batch_share; }

tc_status tc_set_batch_share(tc_batch_share share, tc_error *err)
{
    if (share.rows < 0 || share.first < 0 || (share.rows > 0 && share.step < 1))
        return tc_fail(err, TC_ERROR_VALUE,
                       "a share of a batch has rows and a first row of at least 0, and a step of at least 1; got %" PRId64 ", %" PRId64
                       ", %" PRId64,
                       share.rows, share.first, share.step);
    batch_share = share;
    return TC_OK;
}

tc_places tc_places_of(tc_batch_share share, int64_t count)
{
    if (count > 0 && share.rows > 0 && count % share.rows == 0) return (tc_places){count / share.rows, share.first, share.step};
    return (tc_places){count > 0 ? count : 1, 0, 1};
}
