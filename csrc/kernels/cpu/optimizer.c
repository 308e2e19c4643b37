/* optimizer.c: the update rules, one pass over all parameters. Items are blocks of the chunk list. */
#include "../optimizer.h"
#include "ahead.h"

/* A block of a chunk. */
typedef struct block {
    const tc_optimizer_chunk *chunk;
    int64_t first, last; /* elements */
} block;

/* The chunk that contains block `index`: the last one with first_block <= index that is not empty. */
static const tc_optimizer_chunk *find_chunk(const tc_optimizer_chunk *chunks, int64_t count, int64_t index)
{
    int64_t low = 0, high = count - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (chunks[middle].first_block <= index)
            low = middle;
        else
            high = middle - 1;
    }
    return &chunks[low];
}

TC_INLINE block block_at(const tc_optimizer_chunk *chunks, int64_t count, int64_t index)
{
    const tc_optimizer_chunk *chunk = find_chunk(chunks, count, index);
    const int64_t first = (index - chunk->first_block) * TC_OPTIMIZER_BLOCK;
    return (block){chunk, first, first + TC_OPTIMIZER_BLOCK < chunk->n ? first + TC_OPTIMIZER_BLOCK : chunk->n};
}

/* The gradient used by the rules: negated for maximize, with weight decay added. */
TC_INLINE vreal rule_gradient(const real *g, vreal p, real weight_decay, bool maximize, int lanes)
{
    vreal d = v_load_some(g, lanes);
    if (maximize) d = v_neg(d);
    return weight_decay != 0 ? v_fma(v_set1(weight_decay), p, d) : d;
}

/* Sutskever et al. 2013 in PyTorch's form:  b = momentum b + (1 - dampening) g;  p -= lr (nesterov ? g + momentum b : b). */
typedef struct sgd_block {
    vreal lr, momentum, keep;
    real *parameter, *buffer;
    const real *gradient;
    real weight_decay;
    bool nesterov, maximize, first, has_buffer;
} sgd_block;

TC_INLINE void sgd_vector(void *loop, int64_t i, int lanes)
{
    const sgd_block *b = loop;
    const vreal p = v_load_some(b->parameter + i, lanes);
    vreal g = rule_gradient(b->gradient + i, p, b->weight_decay, b->maximize, lanes);
    if (b->has_buffer) {
        const vreal m = b->first ? g : v_fma(b->momentum, v_load_some(b->buffer + i, lanes), b->keep * g);
        v_store_some(b->buffer + i, m, lanes);
        g = b->nesterov ? v_fma(b->momentum, m, g) : m;
    }
    v_store_some(b->parameter + i, v_fnma(b->lr, g, p), lanes);
}

/* A loop for each kind of usual steps: conditions take as long as the arithmetic. */
TC_INLINE void sgd_vectors(sgd_block of, const block *b, const bool plain, const bool decays, const bool has_buffer)
{
    if (plain) of.maximize = of.first = false;
    if (!decays) of.weight_decay = R(0.0);
    of.has_buffer = has_buffer;
    const vectors_ahead ahead = {sizeof(real), array_ahead(), {of.parameter, of.gradient, has_buffer ? of.buffer : NULL}};
    each_vector(sgd_vector, &of, &ahead, b->first, b->last);
}

TC_INLINE void sgd_of_block(const sgd_block *of, const block *b, const bool has_buffer)
{
    if (of->maximize || of->first)
        sgd_vectors(*of, b, false, true, has_buffer);
    else if (of->weight_decay != 0)
        sgd_vectors(*of, b, true, true, has_buffer);
    else
        sgd_vectors(*of, b, true, false, has_buffer);
}

TC_DEFINE_KERNEL(sgd_step)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_sgd_args *a = args;
    sgd_block of = {.lr = v_set1((real)a->lr),
                    .momentum = v_set1((real)a->momentum),
                    .keep = v_set1((real)(1 - a->dampening)),
                    .weight_decay = (real)a->weight_decay,
                    .nesterov = a->nesterov,
                    .maximize = a->maximize,
                    .first = a->first};
    (void)scratch;
    for (int64_t index = begin; index < end; index++) {
        const block b = block_at(a->chunks, a->chunk_count, index);
        of.parameter = b.chunk->parameter, of.gradient = b.chunk->gradient, of.buffer = b.chunk->state[0];
        if (of.buffer)
            sgd_of_block(&of, &b, true);
        else
            sgd_of_block(&of, &b, false);
    }
}

/* Kingma & Ba 2015, algorithm 1; Loshchilov & Hutter 2019, algorithm 2 (decoupled); AMSGrad: Reddi et al. 2018. */
typedef struct adam_block {
    vreal keep1, beta2, keep2, step, root, eps, decay;
    real *parameter, *mean, *square, *largest;
    const real *gradient;
    real coupled;
    bool decoupled, maximize;
} adam_block;

TC_INLINE void adam_vector(void *loop, int64_t i, int lanes)
{
    const adam_block *b = loop;
    vreal p = v_load_some(b->parameter + i, lanes);
    const vreal g = rule_gradient(b->gradient + i, p, b->coupled, b->maximize, lanes);
    if (b->decoupled) p = p * b->decay;
    const vreal m0 = v_load_some(b->mean + i, lanes);
    const vreal m = v_fma(g - m0, b->keep1, m0);
    vreal s = v_fma(g * g, b->keep2, b->beta2 * v_load_some(b->square + i, lanes));
    v_store_some(b->mean + i, m, lanes);
    v_store_some(b->square + i, s, lanes);
    if (b->largest) {
        s = v_max(v_load_some(b->largest + i, lanes), s);
        v_store_some(b->largest + i, s, lanes);
    }
    v_store_some(b->parameter + i, v_fnma(b->step, m / (v_sqrt(s) / b->root + b->eps), p), lanes);
}

TC_DEFINE_KERNEL(adam_step)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_adam_args *a = args;
    adam_block of = {.keep1 = v_set1((real)(1 - a->beta1)),
                     .beta2 = v_set1((real)a->beta2),
                     .keep2 = v_set1((real)(1 - a->beta2)),
                     .step = v_set1((real)(a->lr / a->correction1)),
                     .root = v_set1((real)sqrt(a->correction2)),
                     .eps = v_set1((real)a->eps),
                     .decay = v_set1((real)(1 - a->lr * a->weight_decay)),
                     .coupled = a->decoupled ? R(0.0) : (real)a->weight_decay,
                     .decoupled = a->decoupled,
                     .maximize = a->maximize};
    (void)scratch;
    for (int64_t index = begin; index < end; index++) {
        const block b = block_at(a->chunks, a->chunk_count, index);
        of.parameter = b.chunk->parameter, of.gradient = b.chunk->gradient;
        of.mean = b.chunk->state[0], of.square = b.chunk->state[1], of.largest = b.chunk->state[2];
        const vectors_ahead ahead = {sizeof(real), array_ahead(), {of.parameter, of.gradient, of.mean, of.square}};
        each_vector(adam_vector, &of, &ahead, b.first, b.last);
    }
}

/* Hinton's lecture 6e in PyTorch's form; Graves 2013 (centered). eps_inside_sqrt is Keras's. */
TC_DEFINE_KERNEL(rmsprop_step)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_rmsprop_args *a = args;
    (void)scratch;
    const vreal lr = v_set1((real)a->lr), alpha = v_set1((real)a->alpha), keep = v_set1((real)(1 - a->alpha)), eps = v_set1((real)a->eps);
    const vreal momentum = v_set1((real)a->momentum);
    for (int64_t index = begin; index < end; index++) {
        const block b = block_at(a->chunks, a->chunk_count, index);
        real *parameter = b.chunk->parameter, *square = b.chunk->state[0], *buffer = b.chunk->state[1], *mean = b.chunk->state[2];
        const real *gradient = b.chunk->gradient;
        for (int64_t i = b.first; i < b.last; i += TC_LANES) {
            const int lanes = v_left(b.last, i);
            const vreal p = v_load_some(parameter + i, lanes);
            const vreal g = rule_gradient(gradient + i, p, (real)a->weight_decay, a->maximize, lanes);
            vreal s = v_fma(g * g, keep, alpha * v_load_some(square + i, lanes));
            v_store_some(square + i, s, lanes);
            if (mean) {
                const vreal m0 = v_load_some(mean + i, lanes), m = v_fma(g - m0, keep, m0);
                v_store_some(mean + i, m, lanes);
                s = v_fnma(m, m, s);
            }
            vreal d = g / (a->eps_inside_sqrt ? v_sqrt(s + eps) : v_sqrt(s) + eps);
            if (buffer) {
                d = v_fma(momentum, v_load_some(buffer + i, lanes), d);
                v_store_some(buffer + i, d, lanes);
            }
            v_store_some(parameter + i, v_fnma(lr, d, p), lanes);
        }
    }
}

TC_INLINE double power_of(double x, double power) { return power == 2 ? x * x : power == 1 ? fabs(x) : pow(fabs(x), power); }

/* The sum of |g|^power. Elements are added to POWER_SUMS sums in turn, so that vectors of any width have independent additions. */
#define POWER_SUMS 16
TC_INLINE double sum_powers(const real *g, int64_t n, double power)
{
    double sums[POWER_SUMS] = {0};
    const int64_t whole = n - n % POWER_SUMS;
    for (int64_t i = 0; i < whole; i += POWER_SUMS) {
        TC_UNROLL
        for (int j = 0; j < POWER_SUMS; j++) sums[j] += power_of((double)g[i + j], power);
    }
    for (int64_t i = whole; i < n; i++) sums[i - whole] += power_of((double)g[i], power);
    for (int half = POWER_SUMS / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) sums[j] += sums[j + half];
    return sums[0];
}

/* The largest |g|; NaN where one is. */
static double largest_of(const real *g, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = fabs((double)g[i]);
        largest = x > largest || x != x ? x : largest;
    }
    return largest;
}

TC_DEFINE_KERNEL(gradient_norm)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_norm_args *a = args;
    (void)scratch;
    for (int64_t index = begin; index < end; index++) {
        const block b = block_at(a->chunks, a->chunk_count, index);
        const real *g = (const real *)b.chunk->gradient + b.first;
        const int64_t n = b.last - b.first;
        a->partial[index] = a->power == 0   ? largest_of(g, n)
                            : a->power == 2 ? sum_powers(g, n, 2)
                            : a->power == 1 ? sum_powers(g, n, 1)
                                            : sum_powers(g, n, a->power);
    }
}

TC_DEFINE_KERNEL(clip_factor)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_clip_factor_args *a = args;
    (void)begin, (void)end, (void)scratch;
    const double norm = tc_norm_of_sums(a->partial, a->blocks, a->power);
    const double factor = (a->max_norm_at ? *a->max_norm_at : a->max_norm) / (norm + TC_CLIP_EPSILON);
    *a->factor = factor > 1 ? 1 : factor;
    *(real *)a->norm = (real)norm;
}

typedef struct scaled {
    vreal factor, limit;
    real *gradient;
} scaled;

TC_INLINE void scale_vector(void *loop, int64_t i, int lanes)
{
    const scaled *s = loop;
    const vreal g = v_load_some(s->gradient + i, lanes) * s->factor;
    v_store_some(s->gradient + i, v_max(v_neg(s->limit), v_min(s->limit, g)), lanes); /* NaN passes through */
}

TC_DEFINE_KERNEL(gradient_scale)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_scale_args *a = args;
    (void)scratch;
    const double by = a->factor_at ? *a->factor_at : a->factor;
    if (by == 1 && a->limit == INFINITY) return; /* clipping a norm that is below the limit: every element stays what it is */
    const vreal factor = v_set1((real)by), limit = v_set1((real)a->limit);
    for (int64_t index = begin; index < end; index++) {
        const block b = block_at(a->chunks, a->chunk_count, index);
        real *gradient = b.chunk->gradient;
        scaled of = {factor, limit, gradient};
        each_vector(scale_vector, &of, &(vectors_ahead){sizeof(real), array_ahead(), {gradient}}, b.first, b.last);
    }
}
