/* loss.c: element-wise losses and their gradients. */
#include "../loss.h"
#include "rows.h"
#include "simd_math.h"

TC_INLINE vreal one(void) { return v_set1(R(1.0)); }
TC_INLINE vreal load_or_one(const real *p, int64_t i, int lanes) { return p ? v_load_some(p + i, lanes) : one(); }

/* Divergences call these: their loops are many, and calls cost little next to them. */
TC_CALLED vreal exp_of(vreal x) { return v_exp(x); }
TC_CALLED vreal log_of(vreal x) { return v_log(x); }

/* log x and log(1 - x), clamped at -100; NaN stays. */
TC_INLINE vreal bounded_log(vreal x) { return v_max(v_set1(R(-100.0)), v_log(x)); }
TC_INLINE vreal bounded_log_rest(vreal x) { return v_max(v_set1(R(-100.0)), v_log1p(-x)); }

/* log(1 + e^-x) = max(-x, 0) + log(1 + e^-|x|), without overflow; NaN stays. */
TC_INLINE vreal softplus_of_minus(vreal x) { return v_maximum(-x, v_zero()) + v_log1p(v_exp_weight(-v_abs(x))); }

TC_INLINE vreal loss_of(int function, vreal x, vreal t, vreal p)
{
    switch (function) {
    case TC_LOSS_SQUARED: return (x - t) * (x - t);
    case TC_LOSS_PROBABILITY: return v_zero() - (t * bounded_log(x) + (one() - t) * bounded_log_rest(x));
    case TC_LOSS_SMOOTH: {
        const vreal e = v_abs(x - t);
        return v_select(v_lt(e, p), v_set1(R(0.5)) * e * e / p, e - v_set1(R(0.5)) * p);
    }
    case TC_LOSS_DIVERGENCE: return v_select(v_eq(t, v_zero()), v_zero(), t * log_of(t)) - t * x;
    case TC_LOSS_DIVERGENCE_LOG: return exp_of(t) * (t - x);
    default: return v_fma(v_fma(p - one(), t, one()), softplus_of_minus(x), (one() - t) * x);
    }
}

/* Of the smoothed absolute value of d; a NaN stays one, except with p = 0, as in PyTorch. */
TC_INLINE vreal smooth_slope(vreal d, vreal p)
{
    const vreal inside = v_select(v_lt(v_zero(), p), d / p, v_sign(d));
    return v_select(v_le(p, v_abs(d)), v_sign(d), inside);
}

/* (1 - t) sigmoid(x) - p t sigmoid(-x), both of one exponential, and neither as a difference from 1. */
TC_INLINE vreal logit_slope(vreal x, vreal t, vreal p)
{
    const vmask is_negative = v_lt(x, v_zero());
    const vreal z = v_exp_weight(-v_abs(x));
    return ((one() - t) * v_select(is_negative, z, one()) - p * t * v_select(is_negative, one(), z)) / (one() + z);
}

TC_INLINE vreal slope_of_input(int function, vreal x, vreal t, vreal p)
{
    switch (function) {
    case TC_LOSS_SQUARED: return (x - t) + (x - t);
    case TC_LOSS_PROBABILITY: return (x - t) / v_max(v_set1(R(1e-12)), x * (one() - x)); /* bounded at 0 and 1, as in PyTorch */
    case TC_LOSS_SMOOTH: return smooth_slope(x - t, p);
    case TC_LOSS_DIVERGENCE: return -t;
    case TC_LOSS_DIVERGENCE_LOG: return -exp_of(t);
    default: return logit_slope(x, t, p);
    }
}

TC_INLINE vreal slope_of_target(int function, vreal x, vreal t, vreal p)
{
    switch (function) {
    case TC_LOSS_SQUARED: return (t - x) + (t - x);
    case TC_LOSS_PROBABILITY: return bounded_log_rest(x) - bounded_log(x);
    case TC_LOSS_SMOOTH: return smooth_slope(t - x, p);
    case TC_LOSS_DIVERGENCE: return log_of(t) + (one() - x);
    case TC_LOSS_DIVERGENCE_LOG: return exp_of(t) * (one() + (t - x));
    default: return v_fma(p - one(), softplus_of_minus(x), -x);
    }
}

TC_INLINE void forward(int function, const tc_loss_forward_args *a, int64_t begin, int64_t end)
{
    const item_range range = range_of_items(begin, end, TC_LOSS_BLOCK, a->n);
    for (int64_t i = range.first; i < range.last; i += TC_LANES) {
        const int lanes = v_left(range.last, i);
        const vreal x = v_load_some((const real *)a->x + i, lanes), t = v_load_some((const real *)a->target + i, lanes);
        const vreal p = function == TC_LOSS_SMOOTH ? v_set1((real)a->parameter) : load_or_one(a->positive_weight, i, lanes);
        vreal loss = loss_of(function, x, t, p);
        if (a->weight) loss = loss * v_load_some((const real *)a->weight + i, lanes);
        v_store_some((real *)a->loss + i, loss, lanes);
    }
}

TC_INLINE void backward(int function, const tc_loss_backward_args *a, int64_t begin, int64_t end)
{
    const item_range range = range_of_items(begin, end, TC_LOSS_BLOCK, a->n);
    const real *dloss = a->dloss;
    for (int64_t i = range.first; i < range.last; i += TC_LANES) {
        const int lanes = v_left(range.last, i);
        const vreal x = v_load_some((const real *)a->x + i, lanes), t = v_load_some((const real *)a->target + i, lanes);
        const vreal p = function == TC_LOSS_SMOOTH ? v_set1((real)a->parameter) : load_or_one(a->positive_weight, i, lanes);
        vreal d = a->dloss_step ? v_load_some(dloss + i, lanes) : v_set1(dloss[0]);
        if (a->weight) d = d * v_load_some((const real *)a->weight + i, lanes);
        if (a->dx) v_store_some((real *)a->dx + i, d * slope_of_input(function, x, t, p), lanes);
        if (a->dtarget) v_store_some((real *)a->dtarget + i, d * slope_of_target(function, x, t, p), lanes);
    }
}

#define EACH_FUNCTION(run)                                                                                                                 \
    switch (a->function) {                                                                                                                 \
    case TC_LOSS_SQUARED: run(TC_LOSS_SQUARED, a, begin, end); break;                                                                      \
    case TC_LOSS_PROBABILITY: run(TC_LOSS_PROBABILITY, a, begin, end); break;                                                              \
    case TC_LOSS_SMOOTH: run(TC_LOSS_SMOOTH, a, begin, end); break;                                                                        \
    case TC_LOSS_DIVERGENCE: run(TC_LOSS_DIVERGENCE, a, begin, end); break;                                                                \
    case TC_LOSS_DIVERGENCE_LOG: run(TC_LOSS_DIVERGENCE_LOG, a, begin, end); break;                                                        \
    default: run(TC_LOSS_LOGIT, a, begin, end); break;                                                                                     \
    }

TC_DEFINE_KERNEL(loss_forward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_loss_forward_args *a = args;
    (void)scratch;
    EACH_FUNCTION(forward)
}

TC_DEFINE_KERNEL(loss_backward)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_loss_backward_args *a = args;
    (void)scratch;
    EACH_FUNCTION(backward)
}
