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

// A block of the grid is a block of the chunk list; f(chunk, i) for the elements i of this thread.
template <class Rule, class F> __device__ __forceinline__ void for_own_parameters(const Group<Rule> &group, F f)
{
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
    for (int64_t i = first + threadIdx.x; i < last; i += optimizer_threads) f(chunk, i);
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

template <class Real> __device__ __forceinline__ Real &at(void *array, int64_t i) { return static_cast<Real *>(array)[i]; }

// f(element) for element i of an array of this dtype, halves or Real.
template <class Real, class F> __device__ __forceinline__ void with_element(void *array, tc_dtype dtype, int64_t i, F f)
{
    if constexpr (sizeof(Real) == sizeof(float)) {
        if (dtype == TC_FLOAT16) return f(at<float16>(array, i));
        if (dtype == TC_BFLOAT16) return f(at<bfloat16>(array, i));
    }
    f(at<Real>(array, i));
}

template <class Real> __device__ __forceinline__ Real gradient_of(const tc_optimizer_chunk &chunk, int64_t i)
{
    Real g;
    with_element<Real>(chunk.gradient, chunk.gradient_dtype, i, [&](auto &element) { g = widen(element); });
    return g;
}

template <class Real> __device__ __forceinline__ void set_parameter(const tc_optimizer_chunk &chunk, int64_t i, Real p)
{
    at<Real>(chunk.parameter, i) = p;
    if (chunk.half) with_element<Real>(chunk.half, chunk.half_dtype, i, [&](auto &element) { narrow(element, p); });
}

// The gradient used by the rules: negated for maximize, with weight decay added.
template <class Real> __device__ __forceinline__ Real rule_gradient(Real g, Real p, double weight_decay, bool maximize)
{
    if (maximize) g = -g;
    return weight_decay != 0 ? static_cast<Real>(weight_decay) * p + g : g;
}

// Sutskever et al. 2013 in PyTorch's form:  b = momentum b + (1 - dampening) g;  p -= lr (nesterov ? g + momentum b : b).
template <class Real> __global__ void __launch_bounds__(optimizer_threads) sgd_kernel(const __grid_constant__ Group<tc_sgd_args> group)
{
    const tc_sgd_args &a = rule_of(group);
    const Real momentum = static_cast<Real>(a.momentum), keep = static_cast<Real>(1 - a.dampening);
    for_own_parameters(group, [&](const tc_optimizer_chunk &chunk, int64_t i) {
        const Real p = at<Real>(chunk.parameter, i);
        Real g = rule_gradient(gradient_of<Real>(chunk, i), p, a.weight_decay, a.maximize);
        if (chunk.state[0]) {
            Real &buffer = at<Real>(chunk.state[0], i);
            const Real m = a.first ? g : momentum * buffer + keep * g;
            buffer = m;
            g = a.nesterov ? momentum * m + g : m;
        }
        set_parameter<Real>(chunk, i, p - static_cast<Real>(a.lr) * g);
    });
}

// Blocks per multiprocessor at least: left to choose, ptxas takes so few registers that it spills.
template <class Real> constexpr int adam_residency = sizeof(Real) < 8 ? 4 : 3;

// Kingma & Ba 2015, algorithm 1; Loshchilov & Hutter 2019, algorithm 2 (decoupled); AMSGrad: Reddi et al. 2018.
template <class Real>
__global__ void __launch_bounds__(optimizer_threads, adam_residency<Real>) adam_kernel(const __grid_constant__ Group<tc_adam_args> group)
{
    const tc_adam_args &a = rule_of(group);
    const Real keep1 = static_cast<Real>(1 - a.beta1), beta2 = static_cast<Real>(a.beta2), keep2 = static_cast<Real>(1 - a.beta2);
    const Real step = static_cast<Real>(a.lr / a.correction1), per_root = static_cast<Real>(1 / sqrt(a.correction2));
    const Real decay = static_cast<Real>(1 - a.lr * a.weight_decay), eps = static_cast<Real>(a.eps);
    for_own_parameters(group, [&](const tc_optimizer_chunk &chunk, int64_t i) {
        Real p = at<Real>(chunk.parameter, i);
        const Real g = rule_gradient(gradient_of<Real>(chunk, i), p, a.decoupled ? 0.0 : a.weight_decay, a.maximize);
        if (a.decoupled) p *= decay;
        Real &mean = at<Real>(chunk.state[0], i), &square = at<Real>(chunk.state[1], i);
        mean += (g - mean) * keep1;
        square = g * g * keep2 + beta2 * square;
        Real s = square;
        if (chunk.state[2]) {
            Real &largest = at<Real>(chunk.state[2], i);
            largest = s = s != s || s > largest ? s : largest;
        }
        set_parameter<Real>(chunk, i, p - step * (mean / (real_sqrt(s) * per_root + eps)));
    });
}

// Hinton's lecture 6e in PyTorch's form; Graves 2013 (centered). eps_inside_sqrt is Keras's.
template <class Real>
__global__ void __launch_bounds__(optimizer_threads) rmsprop_kernel(const __grid_constant__ Group<tc_rmsprop_args> group)
{
    const tc_rmsprop_args &a = rule_of(group);
    const Real alpha = static_cast<Real>(a.alpha), keep = static_cast<Real>(1 - a.alpha), eps = static_cast<Real>(a.eps);
    for_own_parameters(group, [&](const tc_optimizer_chunk &chunk, int64_t i) {
        const Real p = at<Real>(chunk.parameter, i), g = rule_gradient(gradient_of<Real>(chunk, i), p, a.weight_decay, a.maximize);
        Real &square = at<Real>(chunk.state[0], i);
        square = g * g * keep + alpha * square;
        Real s = square;
        if (chunk.state[2]) {
            Real &mean = at<Real>(chunk.state[2], i);
            mean += (g - mean) * keep;
            s -= mean * mean;
        }
        Real d = g / (real_sqrt(s + (a.eps_inside_sqrt ? eps : Real(0))) + (a.eps_inside_sqrt ? Real(0) : eps));
        if (chunk.state[1]) {
            Real &buffer = at<Real>(chunk.state[1], i);
            buffer = d = static_cast<Real>(a.momentum) * buffer + d;
        }
        set_parameter<Real>(chunk, i, p - static_cast<Real>(a.lr) * d);
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
    for_own_parameters(group, [&](const tc_optimizer_chunk &chunk, int64_t i) {
        const Real g = gradient_of<Real>(chunk, i);
        const double x = g < 0 ? -g : g;
        if (power == 0)
            sum = larger(sum, x);
        else
            sum += power == 2 ? x * x : power == 1 ? x : pow(x, power);
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
    for_own_parameters(group, [&](const tc_optimizer_chunk &chunk, int64_t i) {
        with_element<Real>(chunk.gradient, chunk.gradient_dtype, i, [&](auto &element) {
            const Real g = widen(element) * factor;
            narrow(element, g > limit ? limit : g < -limit ? -limit : g); // NaN passes through
        });
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
