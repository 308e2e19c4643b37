// encoder_block.cu: a whole encoder block of short sequences in one launch. A block of threads takes a sequence, whose rows stay in its
// shared memory from x to y: the stream that residual connections add to, and what the branches, attention and the network with one hidden
// layer, make of it.
//
// The weights of the four products come through shared memory in panels of 64 rows and 32 elements, one after the other: while one is
// computed with, the next is on its way in registers, also while attention and norms are computed. A thread has 2 x 4 or 4 x 4 results of a
// product, and reads operands as vectors of 16 bytes. Eight lanes share a row of a norm, or two queries of a head.
//
// Everything between x and y is in the compute dtype, and each sum is in one order, which the sizes of a sequence decide alone.
#include "encoder_block_rows.cuh"
#include "launchers.h"

namespace
{

using namespace tc;

// Shared memory: rows of the sequence, and two panels.
template <class Real> struct Areas {
    Real *stream, *branch, *wide, *panels; // (T,E), (T,E), (T,3E) or (T,F)

    template <class T> __device__ __forceinline__ Areas(Real *shared, const Block<T> &block) : stream(shared)
    {
        branch = stream + block.length * block.row;
        wide = branch + block.length * block.row;
        panels = wide + block.length * block.wide_row;
    }
};

// Blocks per multiprocessor at least: with more ptxas spills on some of the GPUs.
template <class T, class S> constexpr int residency = S::rows == 2 && sizeof(T) < 8 ? 3 : 1;

// Block: one sequence, blockDim (group_lanes, groups).
template <class T, class S>
__global__ void __launch_bounds__(S::threads, residency<T, S>) encoder_block_kernel(const __grid_constant__ Block<T> block)
{
    using Real = compute<T>;
    TC_DYNAMIC_SHARED(Real, shared);
    const int64_t sequence = blockIdx.x;
    const Areas<Real> areas(shared, block);
    Panels<T, S> panels(block, areas.panels);
    load_rows<T, S>(block, sequence, block.x, areas.stream);
    clear_beyond<T, S>(block, block.width, areas.branch, block.row); // what attention does not write
    TC_ROLLED
    for (int branch = 0; branch < 2; branch++) {
        const bool attends = branch == 0, drops_hidden = !attends && block.dropping[1].is_on;
        const Dropping<T> &dropping = block.dropping[attends ? 0 : 2];
        const Real *from = areas.stream;
        if (block.norm_first) {
            normalise<T, S>(block, block.norm[branch], areas.stream, areas.branch);
            from = areas.branch;
        }
        multiply(panels, 2 * branch, from, block.row, attends || drops_hidden ? TC_ACTIVATION_NONE : block.activation,
                 [&](int row, int column, Real value) { areas.wide[row * block.wide_row + column] = value; });
        if (attends) attend<T, S>(block, sequence, areas.branch, areas.wide);
        if (drops_hidden) activate_kept<T, S>(block, sequence, areas.wide);
        const Real *const inner = attends ? areas.branch : areas.wide;
        Real *const update = attends ? areas.wide : areas.branch; // the area that is not read
        const int inner_row = attends ? block.row : block.wide_row, update_row = attends ? block.wide_row : block.row;
        multiply(panels, 2 * branch + 1, inner, inner_row, TC_ACTIVATION_NONE, [&](int row, int column, Real value) {
            if (dropping.is_on)
                update[row * update_row + column] = value;
            else
                areas.stream[row * block.row + column] += value;
        });
        if (dropping.is_on) add_kept<T, S>(block, dropping, sequence, areas.stream, update, update_row);
        if (!block.norm_first) normalise<T, S>(block, block.norm[branch], areas.stream, areas.stream);
    }
    __syncthreads(); // the rows are complete
    store_rows<T, S>(block, sequence, block.y, areas.stream);
}

} // namespace

template <class T> int tc_cuda_encoder_block_forward(const void *args, int64_t sequences, void *, void *stream)
{
    const auto &a = *static_cast<const tc_encoder_block_args *>(args);
    const size_t bytes = tc_encoder_block_shared_bytes(a.T, a.E, a.up.N, sizeof(compute<T>));
    const auto start_shape = [&](auto shape) {
        using S = decltype(shape);
        return launch<encoder_block_kernel<T, S>>(Launch(blocks(sequences), dim3(group_lanes, S::groups), bytes, stream), block_of<T>(a));
    };
    using Medium = Shape<4, 128>;
    return a.T <= Short::length ? start_shape(Short()) : a.T <= Medium::length ? start_shape(Medium()) : start_shape(Long());
}

TC_FOR_EACH_DTYPE(TC_CUDA_INSTANTIATE, encoder_block_forward)
