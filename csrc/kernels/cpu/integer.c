/* integer.c: exact arithmetic on integers and bools, which wraps around: the rows of integer.def and `where`, in 8 bits where operands are
 * dense uint8 (integer_bytes.c), in 32 where none has more, and reductions in int64. The work does not depend on the precision, so the
 * float64 table shares float32's functions. */
#include "../function_ids.h"
#include "../kernels.h"
#include "../sort.h"
#include "simd.h"

#if TC_PRECISION == 64
#define INTEGER_F32(name, isa) TC_PASTE4(tc_, name, _f32_, isa)
#define INTEGER_KERNEL(name)                                                                                                               \
    void INTEGER_F32(name, TC_ISA)(const void *args, int64_t begin, int64_t end, void *scratch);                                           \
    TC_DEFINE_KERNEL(name)(const void *args, int64_t begin, int64_t end, void *scratch)                                                    \
    {                                                                                                                                      \
        INTEGER_F32(name, TC_ISA)(args, begin, end, scratch);                                                                              \
    }
INTEGER_KERNEL(integer_unary)
INTEGER_KERNEL(integer_binary)
INTEGER_KERNEL(integer_where)
INTEGER_KERNEL(integer_reduce)
INTEGER_KERNEL(integer_argsort)
#else

#define INTEGER_BITS 64
#include "integer_elements.h"
#include "reduced.h"

#include <string.h>

/* Are all operands integers of at most 32 bits? */
static bool is_narrow(const tc_elementwise_args *a)
{
    bool narrow = a->out.dtype != TC_INT64;
    for (int k = 0; k < a->inputs; k++) {
        const tc_operand *in = &a->in[k];
        narrow &= in->data ? in->dtype != TC_INT64 : in->integer == (int32_t)in->integer;
    }
    return narrow;
}

TC_INLINE void elements(const tc_elementwise_args *a, int64_t begin, int64_t end)
{
    if (a->inputs > 1 && integer_bytes(a, begin, end)) return;
    (is_narrow(a) ? integer_elements_32 : integer_elements_64)(a, begin, end);
}

TC_DEFINE_KERNEL(integer_unary)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    elements(args, begin, end);
}

/* Bools that are dense, beside bools or a number, into bools. */
static bool is_truth_table(const tc_elementwise_args *a)
{
    for (int k = 0; k < 2; k++) {
        const tc_operand *in = &a->in[k];
        if (in->data && (in->dtype != TC_BOOL || in->strides[0] != 1)) return false;
        if (!in->data && in->integer != 0 && in->integer != 1) return false;
    }
    return a->ndim == 1 && a->out.dtype == TC_BOOL && a->out.strides[0] == 1 && a->in[0].data;
}

/* Any function of two truth values, byte by byte, as x ^ (y & a) ^ (z & b) ^ (w & a & b). */
static void truth_table(const tc_elementwise_args *a, int64_t begin, int64_t end)
{
    const int64_t first[4] = {0, 1, 0, 1}, second[4] = {0, 0, 1, 1};
    const void *const pairs[2] = {first, second};
    const boolean *p = a->in[0].data, *q = a->in[1].data ? a->in[1].data : p;
    int64_t table[4];
    binary_functions[a->function](TC_STORED_AS_COMPUTED, table, pairs, (int[]){1, 1}, 4);
    if (!a->in[1].data) /* a number: either column of the table */
        for (int k = 0; k < 2; k++) table[k] = table[k + 2] = table[k + 2 * (int)a->in[1].integer];
    const boolean x = table[0] != 0, y = x ^ (table[1] != 0), z = x ^ (table[2] != 0), w = x ^ y ^ z ^ (table[3] != 0);
    const int64_t last = end * TC_ELEMENT_BLOCK < a->numel ? end * TC_ELEMENT_BLOCK : a->numel;
    boolean *out = a->out.data;
    for (int64_t i = begin * TC_ELEMENT_BLOCK; i < last; i++) {
        const boolean s = p[i] != 0, t = q[i] != 0;
        out[i] = x ^ (y & s) ^ (z & t) ^ (w & s & t);
    }
}

TC_DEFINE_KERNEL(integer_binary)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_elementwise_args *a = args;
    (void)scratch;
    if (is_truth_table(a)) {
        truth_table(a, begin, end);
        return;
    }
    elements(a, begin, end);
}

TC_DEFINE_KERNEL(integer_where)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    elements(args, begin, end);
}

/* ---- reductions ---------------------------------------------------------------------------------------------------------- */

/* The smallest is the opposite of the largest of opposites, any and all are the largest and the smallest of truth values. */
static bool of_truth(const tc_reduce_args *a) { return a->step == TC_STEP_any || a->step == TC_STEP_all; }
static int64_t flip_of(const tc_reduce_args *a) { return a->step == TC_STEP_min || a->step == TC_STEP_all ? -1 : 0; }

#define CHAINS 16 /* comparisons that do not wait for one another */

/* The largest of dense elements, flipped. Vectors of 64 bits have no instruction for it. */
TC_INLINE int64_t int64_t_largest(int64_t flip, const int64_t *x, int64_t n)
{
    int64_t most[CHAINS], i = 0;
    for (int j = 0; j < CHAINS; j++) most[j] = INT64_MIN;
    for (; i + CHAINS <= n; i += CHAINS)
        for (int j = 0; j < CHAINS; j++) most[j] = (x[i + j] ^ flip) > most[j] ? x[i + j] ^ flip : most[j];
    for (; i < n; i++) most[0] = (x[i] ^ flip) > most[0] ? x[i] ^ flip : most[0];
    for (int j = 1; j < CHAINS; j++) most[0] = most[j] > most[0] ? most[j] : most[0];
    return most[0];
}

#define LARGEST(TYPE)                                                                                                                      \
    TC_INLINE int64_t TYPE##_largest(int64_t flip, const TYPE *x, int64_t n)                                                               \
    {                                                                                                                                      \
        TYPE most = (TYPE)(x[0] ^ flip);                                                                                                   \
        for (int64_t i = 1; i < n; i++) most = (TYPE)(x[i] ^ flip) > most ? (TYPE)(x[i] ^ flip) : most;                                    \
        return (TYPE)(most ^ flip) ^ flip;                                                                                                 \
    }
LARGEST(int32_t)
LARGEST(uint8_t)

/* What is made of n > 0 dense elements: the step's largest value, flipped; and the first place of a value, in bounds even if somebody
 * writes to x meanwhile. */
#define CHUNKS(TYPE)                                                                                                                       \
    static int64_t TYPE##_reduced(int step, int64_t flip, const void *x_, int64_t n)                                                       \
    {                                                                                                                                      \
        const TYPE *x = x_;                                                                                                                \
        TYPE found = 0;                                                                                                                    \
        if (step != TC_STEP_any && step != TC_STEP_all) return TYPE##_largest(flip, x, n);                                                 \
        if (step == TC_STEP_any)                                                                                                           \
            for (int64_t i = 0; i < n; i++) found |= x[i];                                                                                 \
        else                                                                                                                               \
            for (int64_t i = 0; i < n; i++) found |= x[i] == 0;                                                                            \
        return (step == TC_STEP_any ? found != 0 : found == 0) ^ flip;                                                                     \
    }                                                                                                                                      \
    static int64_t TYPE##_place(int64_t value, const void *x_, int64_t n)                                                                  \
    {                                                                                                                                      \
        const TYPE *x = x_;                                                                                                                \
        int64_t at = 0;                                                                                                                    \
        while (at < n - 1 && x[at] != value) at++;                                                                                         \
        return at;                                                                                                                         \
    }
CHUNKS(int64_t)
CHUNKS(int32_t)
CHUNKS(uint8_t)

/* Eight bytes at a time, or whether each of them is not 0, are added up in fields of 16 bits, which hold so many words of them. */
#define WORDS_OF_A_SUM 128
TC_INLINE int64_t sum_of_bytes(bool truth, const uint8_t *x, int64_t n)
{
    const uint64_t fields = 0x00ff00ff00ff00ff, ones = 0x0101010101010101;
    int64_t sum = 0;
    for (int64_t words; n >= 8; n -= 8 * words, x += 8 * words) {
        uint64_t total = 0;
        words = n / 8 < WORDS_OF_A_SUM ? n / 8 : WORDS_OF_A_SUM;
        for (int64_t i = 0; i < words; i++) {
            uint64_t w;
            memcpy(&w, x + 8 * i, sizeof w);
            if (truth) w = (((w & 0x7f * ones) + 0x7f * ones) | w) >> 7 & ones;
            total += (w & fields) + (w >> 8 & fields);
        }
        for (; total; total >>= 16) sum += (int64_t)(total & 0xffff);
    }
    for (int64_t i = 0; i < n; i++) sum += truth ? x[i] != 0 : x[i];
    return sum;
}

static int64_t sum_of(int dtype, const void *x_, int64_t n)
{
    if (dtype == TC_UINT8) return sum_of_bytes(false, x_, n);
    if (dtype == TC_BOOL) return sum_of_bytes(true, x_, n);
    int64_t sum = 0;
    const int64_t *x = x_;
    const int32_t *narrow = x_;
    if (dtype == TC_INT64)
        for (int64_t i = 0; i < n; i++) sum = WRAP(sum, +, x[i]);
    else
        for (int64_t i = 0; i < n; i++) sum += narrow[i]; /* of a chunk, so that it does not wrap around */
    return sum;
}

/* The result of one row so far, flipped, and where it was found. */
typedef struct best {
    int64_t value, at;
} best;

/* The same with the elements [r, r + n), which are dense and of `dtype`. */
static best reduce_chunk(const tc_reduce_args *a, best so_far, int dtype, const void *x, int64_t n, int64_t r)
{
    if (a->step == TC_STEP_sum) return (best){WRAP(so_far.value, +, sum_of(dtype, x, n)), so_far.at};
    const int64_t flip = flip_of(a), largest = (dtype == TC_INT64   ? int64_t_reduced
                                                : dtype == TC_INT32 ? int32_t_reduced
                                                                    : uint8_t_reduced)(a->step, flip, x, n);
    if (largest <= so_far.value) return so_far;
    if (!a->arg) return (best){largest, r};
    return (best){largest, r + (dtype == TC_INT64   ? int64_t_place
                                : dtype == TC_INT32 ? int32_t_place
                                                    : uint8_t_place)(largest ^ flip, x, n)};
}

/* One more element of each of n results, `apart` elements from one another: into so_far, which is of this type but for sums, whose is
 * int64; largest elements are flipped, and `all` is whether any element is 0. */
#define ROWS(TYPE)                                                                                                                         \
    TC_INLINE void TYPE##_row_by(int step, int64_t flip, void *so_far_, const void *x_, int64_t apart, int64_t n)                          \
    {                                                                                                                                      \
        int64_t *const sum = so_far_;                                                                                                      \
        TYPE *const so_far = so_far_;                                                                                                      \
        const TYPE *x = x_;                                                                                                                \
        if (step == TC_STEP_sum) {                                                                                                         \
            SIDE_BY_SIDE                                                                                                                   \
            for (int64_t j = 0; j < n; j++) sum[j] = WRAP(sum[j], +, x[j * apart]);                                                        \
        } else if (step == TC_STEP_any) {                                                                                                  \
            SIDE_BY_SIDE                                                                                                                   \
            for (int64_t j = 0; j < n; j++) so_far[j] |= x[j * apart];                                                                     \
        } else if (step == TC_STEP_all) {                                                                                                  \
            SIDE_BY_SIDE                                                                                                                   \
            for (int64_t j = 0; j < n; j++) so_far[j] |= x[j * apart] == 0;                                                                \
        } else {                                                                                                                           \
            SIDE_BY_SIDE                                                                                                                   \
            for (int64_t j = 0; j < n; j++) {                                                                                              \
                const TYPE value = (TYPE)(x[j * apart] ^ flip);                                                                            \
                so_far[j] = value > so_far[j] ? value : so_far[j];                                                                         \
            }                                                                                                                              \
        }                                                                                                                                  \
    }                                                                                                                                      \
    static void TYPE##_row(int step, int64_t flip, void *so_far, const void *x, int64_t apart, int64_t n)                                  \
    {                                                                                                                                      \
        if (apart == 1)                                                                                                                    \
            TYPE##_row_by(step, flip, so_far, x, 1, n);                                                                                    \
        else                                                                                                                               \
            TYPE##_row_by(step, flip, so_far, x, apart, n);                                                                                \
    }
ROWS(int64_t)
ROWS(int32_t)
ROWS(uint8_t)

/* The same of largest elements, and where they are. */
static void arg_row(int64_t flip, int64_t *so_far, int64_t *found, const int64_t *x, int64_t n, int64_t r)
{
    for (int64_t j = 0; j < n; j++) {
        const int64_t value = x[j] ^ flip;
        found[j] = value > so_far[j] ? r : found[j];
        so_far[j] = value > so_far[j] ? value : so_far[j];
    }
}

/* Results [k, k + n), which lie along the innermost kept axis from `kept` on. */
static void reduce_columns(const tc_reduce_args *a, int64_t k, const position *kept, int64_t n)
{
    union {
        int64_t wide[STRIDED_CHUNK];
        int32_t narrow[STRIDED_CHUNK];
    } so_far;
    int64_t found[STRIDED_CHUNK], row[STRIDED_CHUNK];
    const int64_t step = a->kept_strides[a->kept_ndim - 1], flip = flip_of(a), bytes = element_bytes[a->x_dtype];
    const bool in_place = a->arg ? a->x_dtype == TC_INT64 && step == 1
                                 : a->x_dtype != TC_BOOL || of_truth(a); /* of a bool only the truth is known, not its byte */
    const int dtype = in_place ? a->x_dtype : TC_INT64;
    const char *x = (const char *)a->x + position_offset(kept, a->kept_ndim, a->kept_strides) * bytes;
    position at = position_of(0, a->reduced_ndim, a->reduced_shape);
    memset(&so_far, 0, (size_t)n * sizeof(int64_t));
    if (a->arg) memset(found, 0, (size_t)n * sizeof(int64_t));
    for (int64_t j = 0; j < n && (a->step == TC_STEP_max || a->step == TC_STEP_min); j++) {
        if (dtype == TC_INT64) so_far.wide[j] = INT64_MIN;
        if (dtype == TC_INT32) so_far.narrow[j] = INT32_MIN;
    }
    for (int64_t r = 0; r < a->reduced; r++) {
        const void *from = x + position_offset(&at, a->reduced_ndim, a->reduced_strides) * bytes;
        position_advance(&at, 1, a->reduced_ndim, a->reduced_shape);
        if (!in_place) cast_runs[a->x_dtype][TC_INT64](row, 1, from, step, n);
        if (a->arg)
            arg_row(flip, so_far.wide, found, in_place ? from : row, n, r);
        else
            (dtype == TC_INT64   ? int64_t_row
             : dtype == TC_INT32 ? int32_t_row
                                 : uint8_t_row)(a->step, flip, &so_far, in_place ? from : row, in_place ? step : 1, n);
    }
    const bool are_wide = a->step == TC_STEP_sum || dtype == TC_INT64;
    int64_t *const result = a->arg || !are_wide ? found : so_far.wide;
    if (!a->arg) {
        if (!are_wide) cast_runs[dtype][TC_INT64](result, 1, &so_far, 1, n);
        for (int64_t j = 0; j < n && a->step != TC_STEP_sum; j++) result[j] ^= a->step == TC_STEP_all ? 1 : flip;
    }
    cast_runs[TC_INT64][a->out_dtype]((char *)a->out + k * element_bytes[a->out_dtype], 1, result, 1, n);
}

/* Short rows, and rows whose neighbours are nearer than their elements, are reduced beside one another. */
static bool by_columns(const tc_reduce_args *a)
{
    return a->segments == 1 && a->reduced > 0 && a->kept_ndim > 0 && a->kept_shape[a->kept_ndim - 1] >= STRIDED_SHORT &&
           (a->reduced <= STRIDED_SHORT || tc_reduce_by_columns(a));
}

/* Rows that are read where they are. Only the truth of a bool is known, not its byte. */
#define DENSE_CHUNK 2048
static bool has_dense_rows(const tc_reduce_args *a)
{
    return a->reduced_ndim == 1 && a->reduced_strides[0] == 1 && (a->x_dtype != TC_BOOL || a->step == TC_STEP_sum || of_truth(a));
}

TC_DEFINE_KERNEL(integer_reduce)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_reduce_args *a = args;
    const bool columns = by_columns(a), dense = has_dense_rows(a);
    const int64_t chunk = dense ? DENSE_CHUNK : STRIDED_CHUNK, bytes = element_bytes[a->x_dtype];
    int64_t buffer[STRIDED_CHUNK];
    position kept = position_of(begin / a->segments, a->kept_ndim, a->kept_shape);
    (void)scratch;
    for (int64_t k = begin, done; k < end; k += done) {
        done = 1;
        if (columns) {
            const int64_t left = a->kept_shape[a->kept_ndim - 1] - kept.index[a->kept_ndim - 1];
            done = left < end - k ? left : end - k;
            if (done > STRIDED_CHUNK) done = STRIDED_CHUNK;
            reduce_columns(a, k, &kept, done);
            position_advance(&kept, done, a->kept_ndim, a->kept_shape);
            continue;
        }
        const int64_t first = a->segments == 1 ? 0 : k % a->segments * a->segment, left = a->reduced - first,
                      last = left < a->segment ? a->reduced : first + a->segment;
        const char *x = (const char *)a->x + position_offset(&kept, a->kept_ndim, a->kept_strides) * bytes;
        best so_far = {a->step == TC_STEP_sum || a->step == TC_STEP_any ? 0 : a->step == TC_STEP_all ? ~1 : INT64_MIN, first};
        for (int64_t r = first, n; r < last; r += n) {
            n = last - r < chunk ? last - r : chunk;
            if (!dense) gather_reduced(buffer, a, x, r, n);
            so_far = reduce_chunk(a, so_far, dense ? a->x_dtype : TC_INT64, dense ? x + r * bytes : (const char *)buffer, n, r);
            if (of_truth(a) && (so_far.value & 1)) break; /* some is true, or some is false: what follows changes nothing */
        }
        const int64_t result = a->arg ? so_far.at : so_far.value ^ flip_of(a);
        cast_runs[TC_INT64][a->out_dtype]((char *)a->out + k * element_bytes[a->out_dtype], 1, &result, 1, 1);
        if (last == a->reduced) position_advance(&kept, 1, a->kept_ndim, a->kept_shape);
    }
}

TC_DEFINE_KERNEL(integer_argsort)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    tc_argsort_rows_i64(args, begin, end, scratch);
}
#endif
