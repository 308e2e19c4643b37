// optimizer.cu: the update rules, norms and clipping over all parameters of a step: a launch has a list of chunks in its arguments.
#include "../optimizer.h"
#include "device.cuh"
#include "launchers.h"

namespace
{

using namespace tc;

constexpr int optimizer_threads = 256;
constexpr int chunks_a_launch = 52; // the arguments of a launch are limited to 4 KiB

template <class Rule> struct Group {
    Rule rule; // its chunk list is in host memory: device code must not follow it
    int count;
    int64_t first_block; // of the group, counted among the blocks of all chunks
    tc_optimizer_chunk chunks[chunks_a_launch];
};

inline int64_t blocks_of(const tc_optimizer_chunk &chunk) { return divide_up(chunk.n, TC_OPTIMIZER_BLOCK); }

__device__ __forceinline__ bool fits(const void *array, int bytes) { return reinterpret_cast<uintptr_t>(array) % bytes == 0; }
__device__ __forceinline__ int size_of(tc_dtype dtype) { return dtype == TC_FLOAT64 ? 8 : dtype == TC_FLOAT32 ? 4 : 2; }

// Do all arrays of a chunk start where vectors of N may be moved? Blocks of a chunk then do, too.
template <int N> __device__ __forceinline__ bool vectors_fit(const tc_optimizer_chunk &chunk)
{
    bool fit = fits(chunk.parameter, 16) && fits(chunk.gradient, N * size_of(chunk.gradient_dtype));
    for (int s = 0; s < TC_OPTIMIZER_STATES; s++) fit = fit && fits(chunk.state[s], 16);
    return fit && fits(chunk.half, N * size_of(chunk.half_dtype));
}

// A block of the grid is a block of the chunk list; f(chunk, i, N) for the elements i to i + N of this thread: vectors of 16 bytes of Real,
// and one by one the last ones, and all where an array starts elsewhere.
template <class Real, class Rule, class F> __device__ __forceinline__ void for_own_parameters(const Group<Rule> &group, F f)
{
    constexpr int N = vector_lanes<Real>;
    const int64_t block = group.first_block + blockIdx.x;
    int low = 0, high = group.count - 1;
    while (low < high) { // the last chunk that begins at this block or before
        const int middle = (low + high + 1) / 2;
        if (group.chunks[middle].first_block <= block)
            low = middle;
        else
            high = middle - 1;
    }
    const tc_optimizer_chunk &chunk = group.chunks[low];
    const int64_t first = (block - chunk.first_block) * TC_OPTIMIZER_BLOCK;
    const int64_t last = first + TC_OPTIMIZER_BLOCK < chunk.n ? first + TC_OPTIMIZER_BLOCK : chunk.n;
    const int64_t whole = vectors_fit<N>(chunk) ? first + (last - first) / N * N : first;
    for (int64_t i = first + threadIdx.x * N; i < whole; i += optimizer_threads * N) f(chunk, i, Constant<N>());
    for (int64_t i = whole + threadIdx.x; i < last; i += optimizer_threads) f(chunk, i, Constant<1>());
}

// The numbers of a group's step: its own, or those in memory.
template <class Rule> __device__ __forceinline__ const Rule &rule_of(const Group<Rule> &group)
{
    return group.rule.at ? *static_cast<const Rule *>(group.rule.at) : group.rule;
}

// Launches `kernel` on the chunk list of `rule`, one group after another.
template <auto kernel, class Rule> int launch_groups(const Rule &rule, void *stream)
{
    static_assert(sizeof(Group<Rule>) <= 4096, "more than a launch's arguments may have");
    for (int64_t begin = 0; begin < rule.chunk_count; begin += chunks_a_launch) {
        Group<Rule> group = {};
        int64_t count = 0;
        group.rule = rule;
        group.first_block = rule.chunks[begin].first_block;
        while (group.count < chunks_a_launch && begin + group.count < rule.chunk_count) {
            group.chunks[group.count] = rule.chunks[begin + group.count];
            count += blocks_of(group.chunks[group.count++]);
        }
        const int error = count ? launch<kernel>(Launch(blocks(count), dim3(optimizer_threads), 0, stream), group) : 0;
        if (error) return error;
    }
    return 0;
}

// f(T()) for the type of an array of this dtype, halves or Real.
template <class Real, class F> __device__ __forceinline__ void with_type(tc_dtype dtype, F f)
{
    if constexpr (sizeof(Real) == sizeof(float)) {
        if (dtype == TC_FLOAT16) return f(float16());
        if (dtype == TC_BFLOAT16) return f(bfloat16());
    }
    f(Real());
}

template <int N, class T> __device__ __forceinline__ Vector<T, N> load_at(const void *array, int64_t i)
{
    return load_vector<N>(static_cast<const T *>(array) + i);
}

// Elements [i, i + N) of the gradient.
template <class Real, int N> __device__ __forceinline__ Vector<Real, N> gradient_of(const tc_optimizer_chunk &chunk, int64_t i)
{
    Vector<Real, N> g;
    with_type<Real>(chunk.gradient_dtype, [&](auto type) {
        const auto v = load_at<N, decltype(type)>(chunk.gradient, i);
        TC_UNROLL
        for (int j = 0; j < N; j++) g.at[j] = widen(v.at[j]);
    });
    return g;
}
template <class Real, int N> __device__ __forceinline__ void store_as(tc_dtype dtype, void *array, int64_t i, const Vector<Real, N> &x)
{
    with_type<Real>(dtype, [&](auto type) {
        using T = decltype(type);
        Vector<T, N> v;
        TC_UNROLL
        for (int j = 0; j < N; j++) narrow(v.at[j], x.at[j]);
        store_global(static_cast<T *>(array) + i, v);
    });
}

// rule(p, g, state) for each element: it changes the parameter p and the three numbers of its state, of which those exist that the chunk
// has. read_states: or else they are not set yet.
template <class Real, class Rule, class F>
__device__ __forceinline__ void update_parameters(const Group<Rule> &group, bool read_states, F rule)
{
    for_own_parameters<Real>(group, [&](const tc_optimizer_chunk &chunk, int64_t i, auto lanes) {
        constexpr int N = decltype(lanes)::value;
        Vector<Real, N> p = load_at<N, Real>(chunk.parameter, i), state[TC_OPTIMIZER_STATES] = {};
        const Vector<Real, N> g = gradient_of<Real, N>(chunk, i);
        TC_UNROLL
        for (int s = 0; s < TC_OPTIMIZER_STATES; s++)
            if (chunk.state[s] && read_states) state[s] = load_at<N, Real>(chunk.state[s], i);
        TC_UNROLL
        for (int j = 0; j < N; j++) {
            Real own[TC_OPTIMIZER_STATES] = {state[0].at[j], state[1].at[j], state[2].at[j]};
            rule(chunk, p.at[j], g.at[j], own);
            TC_UNROLL
            for (int s = 0; s < TC_OPTIMIZER_STATES; s++) state[s].at[j] = own[s];
        }
        store_global(static_cast<Real *>(chunk.parameter) + i, p);
        if (chunk.half) store_as(chunk.half_dtype, chunk.half, i, p);
        TC_UNROLL
        for (int s = 0; s < TC_OPTIMIZER_STATES; s++)
            if (chunk.state[s]) store_global(static_cast<Real *>(chunk.state[s]) + i, state[s]);
    });
}

// The gradient used by the rules: negated for maximize, with weight decay added.
template <class Real> __device__ __forceinline__ Real rule_gradient(Real g, Real p, Real weight_decay, bool maximize)
{
    if (maximize) g = -g;
    return weight_decay != 0 ? weight_decay * p + g : g;
}

// Sutskever et al. 2013 in PyTorch's form:  b = momentum b + (1 - dampening) g;  p -= lr (nesterov ? g + momentum b : b).
template <class Real> __global__ void __launch_bounds__(optimizer_threads) sgd_kernel(const __grid_constant__ Group<tc_sgd_args> group)
{
    const tc_sgd_args &a = rule_of(group);
    const Real momentum = static_cast<Real>(a.momentum), keep = static_cast<Real>(1 - a.dampening);
    const Real lr = static_cast<Real>(a.lr), decay = static_cast<Real>(a.weight_decay);
    const bool first = a.first, nesterov = a.nesterov, maximize = a.maximize;
    update_parameters<Real>(group, !first, [=](const tc_optimizer_chunk &chunk, Real &p, Real g, Real(&state)[TC_OPTIMIZER_STATES]) {
        g = rule_gradient(g, p, decay, maximize);
        if (chunk.state[0]) {
            const Real m = state[0] = first ? g : momentum * state[0] + keep * g;
            g = nesterov ? momentum * m + g : m;
        }
        p -= lr * g;
    });
}

// Blocks per multiprocessor at least: left to choose, ptxas takes so few registers that it spills.
template <class Real> constexpr int rule_residency = sizeof(Real) < 8 ? 4 : 3;

// Kingma & Ba 2015, algorithm 1; Loshchilov & Hutter 2019, algorithm 2 (decoupled); AMSGrad: Reddi et al. 2018.
template <class Real>
__global__ void __launch_bounds__(optimizer_threads, rule_residency<Real>) adam_kernel(const __grid_constant__ Group<tc_adam_args> group)
{
    const tc_adam_args &a = rule_of(group);
    const Real keep1 = static_cast<Real>(1 - a.beta1), beta2 = static_cast<Real>(a.beta2), keep2 = static_cast<Real>(1 - a.beta2);
    const Real step = static_cast<Real>(a.lr / a.correction1), per_root = static_cast<Real>(1 / sqrt(a.correction2));
    const bool decoupled = a.decoupled, maximize = a.maximize;
    const Real decay = static_cast<Real>(decoupled ? 1 - a.lr * a.weight_decay : a.weight_decay), eps = static_cast<Real>(a.eps);
    update_parameters<Real>(group, true, [=](const tc_optimizer_chunk &chunk, Real &p, Real g, Real(&state)[TC_OPTIMIZER_STATES]) {
        g = rule_gradient(g, p, decoupled ? Real(0) : decay, maximize);
        if (decoupled) p *= decay;
        state[0] += (g - state[0]) * keep1;
        Real s = state[1] = g * g * keep2 + beta2 * state[1];
        if (chunk.state[2]) state[2] = s = s != s || s > state[2] ? s : state[2];
        p -= step * (state[0] / (real_sqrt(s) * per_root + eps));
    });
}

// Hinton's lecture 6e in PyTorch's form; Graves 2013 (centered). eps_inside_sqrt is Keras's.
template <class Real>
__global__ void __launch_bounds__(optimizer_threads, rule_residency<Real>)
    rmsprop_kernel(const __grid_constant__ Group<tc_rmsprop_args> group)
{
    const tc_rmsprop_args &a = rule_of(group);
    const Real alpha = static_cast<Real>(a.alpha), keep = static_cast<Real>(1 - a.alpha), eps = static_cast<Real>(a.eps);
    const Real lr = static_cast<Real>(a.lr), momentum = static_cast<Real>(a.momentum), decay = static_cast<Real>(a.weight_decay);
    const Real inside = a.eps_inside_sqrt ? eps : Real(0), outside = a.eps_inside_sqrt ? Real(0) : eps;
    const bool maximize = a.maximize;
    update_parameters<Real>(group, true, [=](const tc_optimizer_chunk &chunk, Real &p, Real g, Real(&state)[TC_OPTIMIZER_STATES]) {
        g = rule_gradient(g, p, decay, maximize);
        Real s = state[0] = g * g * keep + alpha * state[0];
        if (chunk.state[2]) {
            state[2] += (g - state[2]) * keep;
            s -= state[2] * state[2];
        }
        Real d = g / (real_sqrt(s + inside) + outside);
        if (chunk.state[1]) d = state[1] = momentum * state[1] + d;
        p -= lr * d;
    });
}

// Larger of two numbers that are not negative; NaN when either is.
__device__ __forceinline__ double larger(double a, double b) { return a != a || a > b ? a : b; }

// Two sums, or for power 0 two largest values, of parts of the gradients.
__device__ __forceinline__ double joined(double power, double a, double b) { return power == 0 ? larger(a, b) : a + b; }

// Those of all threads together, in thread 0. `sums` has an element for each.
__device__ __forceinline__ double block_total(double power, double own, double *sums)
{
    sums[threadIdx.x] = own;
    join_block<optimizer_threads>([&](int i, int j) { sums[i] = joined(power, sums[i], sums[j]); });
    return sums[0];
}

template <class Real> __global__ void __launch_bounds__(optimizer_threads) norm_kernel(const __grid_constant__ Group<tc_norm_args> group)
{
    TC_SHARED(double, sums, [optimizer_threads]);
    const double power = group.rule.power;
    double sum = 0;
    for_own_parameters<Real>(group, [&](const tc_optimizer_chunk &chunk, int64_t i, auto lanes) {
        constexpr int N = decltype(lanes)::value;
        const Vector<Real, N> g = gradient_of<Real, N>(chunk, i);
        for (int j = 0; j < N; j++) {
            const double x = g.at[j] < 0 ? -g.at[j] : g.at[j];
            if (power == 0)
                sum = larger(sum, x);
            else
                sum += power == 2 ? x * x : power == 1 ? x : pow(x, power);
        }
    });
    sum = block_total(power, sum, sums);
    if (threadIdx.x == 0) group.rule.partial[group.first_block + blockIdx.x] = sum;
}

// One block: each thread takes every 256th block's sum, and then a tree adds those up.
template <class Real> __global__ void __launch_bounds__(optimizer_threads) clip_kernel(const __grid_constant__ tc_clip_factor_args a)
{
    TC_SHARED(double, sums, [optimizer_threads]);
    double total = 0;
    for (int64_t i = threadIdx.x; i < a.blocks; i += optimizer_threads) total = joined(a.power, total, a.partial[i]);
    total = block_total(a.power, total, sums);
    if (threadIdx.x != 0) return;
    const double norm = a.power == 0 ? total : a.power == 2 ? sqrt(total) : pow(total, 1 / a.power);
    const double factor = (a.max_norm_at ? *a.max_norm_at : a.max_norm) / (norm + TC_CLIP_EPSILON);
    *a.factor = factor > 1 ? 1 : factor;
    *static_cast<Real *>(a.norm) = static_cast<Real>(norm);
}

template <class Real> __global__ void __launch_bounds__(optimizer_threads) scale_kernel(const __grid_constant__ Group<tc_scale_args> group)
{
    const Real factor = static_cast<Real>(group.rule.factor_at ? *group.rule.factor_at : group.rule.factor),
               limit = static_cast<Real>(group.rule.limit);
    for_own_parameters<Real>(group, [&](const tc_optimizer_chunk &chunk, int64_t i, auto lanes) {
        Vector<Real, decltype(lanes)::value> g = gradient_of<Real, decltype(lanes)::value>(chunk, i);
        for (Real &x : g.at) {
            x *= factor;
            x = x > limit ? limit : x < -limit ? -limit : x; // NaN passes through
        }
        store_as(chunk.gradient_dtype, chunk.gradient, i, g);
    });
}

} // namespace

template <class T> int tc_cuda_clip_factor(const void *args, int64_t, void *, void *stream)
{
    return launch<clip_kernel<compute<T>>>(Launch(dim3(1), dim3(optimizer_threads), 0, stream),
                                           *static_cast<const tc_clip_factor_args *>(args));
}
TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, clip_factor)
#define TC_OPTIMIZER_KERNEL(name, kernel, args_type)                                                                                       \
    template <class T> int tc_cuda_##name(const void *args, int64_t, void *, void *stream)                                                 \
    {                                                                                                                                      \
        return launch_groups<kernel<compute<T>>>(*static_cast<const args_type *>(args), stream);                                           \
    }                                                                                                                                      \
    TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, name)
TC_OPTIMIZER_KERNEL(sgd_step, sgd_kernel, tc_sgd_args)
TC_OPTIMIZER_KERNEL(adam_step, adam_kernel, tc_adam_args)
TC_OPTIMIZER_KERNEL(rmsprop_step, rmsprop_kernel, tc_rmsprop_args)
TC_OPTIMIZER_KERNEL(gradient_norm, norm_kernel, tc_norm_args)
TC_OPTIMIZER_KERNEL(gradient_scale, scale_kernel, tc_scale_args)
