// gemm_tensor.cu: products of halves on tensor cores (sm_80 and later), summed in float32 in the order of k, whatever the tile: a row of C
// has the same bits in tiles of either size.
//
// A block of four warps computes a tile of C; each warp a quarter of it, 64 x 64 or 32 x 32. For 32 or 64 k at a time the tiles of A and B
// are copied to shared memory, three stages deep, in chunks of 8 elements along the operand's own contiguous axis: ldmatrix transposes
// those that do not run along k. The places of chunks are permuted so that neither copies nor ldmatrix meet in a bank. What lies beyond M
// and N, or before the sum, which ends with a stage, becomes zeros in both operands, so that no NaN comes in.
#include "gemm_epilogue.cuh"

namespace
{

using namespace tc;

constexpr int tensor_threads = 128;
constexpr int tensor_stages = 3;
// Of a stage: as many k as make both tiles' stages equally large.
constexpr int depth_of(int tile) { return tile == 128 ? 32 : 64; }
constexpr int chunk_elements = 8, chunk_bytes = 16;

// One operand's tile of rows x depth in shared memory. `along`: it runs along k in memory, otherwise across.
template <int rows, bool along> struct OperandTile {
    static constexpr int depth = depth_of(rows), bytes = rows * depth * 2;

    // Where the chunk is that begins at (row, k).
    static __device__ __forceinline__ int chunk_at(int row, int k)
    {
        const int turn = depth == 64 ? row % 8 : row / 2 % 4; // eight rows fill all banks once, or pairs of them do
        if (along) return row * depth * 2 + (k / chunk_elements ^ turn) * chunk_bytes;
        return k * rows * 2 + (row / chunk_elements ^ k % 8) * chunk_bytes;
    }
    // The row of an 8x8 matrix whose address this lane gives to ldmatrix, of the four that make 16 rows x 16 k from row `first` on. Of the
    // left operand the second matrix has the next rows, of the right one the next k.
    template <bool left> static __device__ __forceinline__ int matrix_at(int first, int lane)
    {
        const int i = lane / 8, r = lane % 8, row = first + (left ? i % 2 : i / 2) * 8, k = (left ? i / 2 : i % 2) * 8;
        return along ? chunk_at(row + r, k) : chunk_at(row, k + r);
    }
    // The same for the n-th 16 rows and the kk-th 16 k.
    static __device__ __forceinline__ int matrix_at(int start, int n, int kk)
    {
        constexpr int step = 16 / chunk_elements * chunk_bytes; // of what is contiguous
        return along ? (start ^ kk * step) + n * 16 * depth * 2 : (start ^ n * step) + kk * 16 * rows * 2;
    }
    static __device__ __forceinline__ void load(uint32_t (&fragment)[4], const char *matrices)
    {
        if (along)
            load_matrix_x4(fragment, matrices);
        else
            load_matrix_x4_transposed(fragment, matrices);
    }
};

// A thread's part of the copies of an operand: chunks of runs that are contiguous in memory. In the small tile it has both halves' chunk of
// a run, which have addresses a constant apart; the two runs that eight lanes copy are then four apart, for banks of their own.
template <class T, int rows, bool along> struct Copies {
    using Tile = OperandTile<rows, along>;
    static constexpr int runs = along ? rows : Tile::depth, run_elements = along ? Tile::depth : rows;
    static constexpr int halves = run_elements == 64 ? 2 : 1, lanes = run_elements / chunk_elements / halves; // of a run
    static constexpr int between = tensor_threads / lanes, count = runs / between; // runs from one of the thread's to the next; of them
    const T *from;                                                                 // of the next stage
    int64_t run, stage;       // elements from one of the thread's runs to the next, and to those of the next stage
    int k, to;                // of the first chunk
    int valid[count][halves]; // bytes of each chunk that are inside the operand

    // `across`, `along_k`: strides of rows and k. `rows_left`: rows from `data` on. `before`: k of the first stage before the sum.
    __device__ Copies(const T *data, int64_t across, int64_t along_k, int64_t rows_left, int before)
    {
        const int thread = static_cast<int>(threadIdx.x), in_run = thread % lanes * chunk_elements;
        const int number = thread / lanes, first = halves == 2 ? number / 8 * 8 + number % 2 * 4 + number / 2 % 4 : number;
        const int row = along ? first : in_run;
        k = along ? in_run : first;
        from = data + row * across + (k - before) * along_k;
        run = between * (along ? across : along_k);
        stage = Tile::depth * along_k;
        to = Tile::chunk_at(row, k);
        for (int i = 0; i < count; i++) {
            for (int half = 0; half < halves; half++) {
                const int64_t left = along ? (row + i * between < rows_left ? chunk_elements : 0) : rows_left - row - half * rows / 2;
                valid[i][half] = static_cast<int>(left < 0                ? 0
                                                  : left < chunk_elements ? left
                                                                          : chunk_elements) *
                                 static_cast<int>(sizeof(T));
            }
        }
    }
    // Starts the copies of the next stage, of which all but the first `before` k are in the sum.
    template <bool whole> __device__ __forceinline__ void start(char *tile, int before)
    {
        const T *source = from;
        TC_UNROLL
        for (int i = 0; i < count; i++) {
            TC_UNROLL
            for (int half = 0; half < halves; half++) {
                const bool inside = whole || k + (along ? half * run_elements / 2 : i * between) >= before;
                const int in_run = to ^ half * run_elements; // half as many bytes as a run has
                const int at = in_run + i * between * run_elements * static_cast<int>(sizeof(T));
                copy_async<chunk_bytes>(tile + at, source + half * run_elements / 2, inside ? valid[i][half] : 0);
            }
            source += run;
        }
        from += stage;
    }
};

template <class T> constexpr uint32_t pair_of_ones = 0;
template <> constexpr uint32_t pair_of_ones<float16> = 0x3c003c00;
template <> constexpr uint32_t pair_of_ones<bfloat16> = 0x3f803f80;

template <class T, int tile, bool a_along, bool b_along> struct TensorTile {
    using Left = OperandTile<tile, a_along>;
    using Right = OperandTile<tile, b_along>;
    static constexpr int stage_bytes = Left::bytes + Right::bytes, shared_bytes = tensor_stages * stage_bytes;
    static constexpr int side = tile / 2, n = side / 16; // of a warp's part; groups of 16 rows or columns
    float sum[n][2 * n][4], a_sum[n][4];

    // Adds the products of one stage, and of sums_a those of the left operand with ones, which are sums of its rows. left_at, right_at:
    // matrix_at() of this warp and lane.
    template <bool sums_a> __device__ __forceinline__ void add(const char *stage, int left_at, int right_at)
    {
        TC_UNROLL
        for (int kk = 0; kk < Left::depth / 16; kk++) {
            uint32_t left[n][4], right[n][4];
            TC_UNROLL
            for (int i = 0; i < n; i++) Left::load(left[i], stage + Left::matrix_at(left_at, i, kk));
            TC_UNROLL
            for (int j = 0; j < n; j++) Right::load(right[j], stage + Left::bytes + Right::matrix_at(right_at, j, kk));
            TC_UNROLL
            for (int i = 0; i < n; i++) TC_UNROLL
            for (int j = 0; j < 2 * n; j++) {
                const uint32_t b[2] = {right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]};
                mma(sum[i][j], left[i], b, T());
            }
            TC_UNROLL
            for (int i = 0; sums_a && i < n; i++) {
                const uint32_t ones[2] = {pair_of_ones<T>, pair_of_ones<T>};
                mma(a_sum[i], left[i], ones, T());
            }
        }
    }
};

// Block: one tile of C, of one chunk of the sum, of one element of the batch, as of gemm_kernel. `run`: columns_of_runs().
template <class T, int tile, bool a_along, bool b_along, bool sums_a>
__global__ void __launch_bounds__(tensor_threads, 2) gemm_tensor_kernel(const __grid_constant__ tc_gemm_args a, int run)
{
    using Tile = TensorTile<T, tile, a_along, b_along>;
    TC_DYNAMIC_SHARED(char, shared);
    BlockPlace place;
    const int64_t row = place.take(divide_up(a.M, tile)) * tile, column = place.take(divide_up(a.N, tile)) * tile;
    const int64_t chunk = place.take(a.k_chunks), batch = place.rest;
    const int64_t first = chunk * a.k_chunk, end = a.K - first < a.k_chunk ? a.K : first + a.k_chunk;
    const T *left_data = static_cast<const T *>(a.a) + batch_offset(a, a.a_batch, batch) + row * a.a_row + first * a.a_col;
    const T *right_data = static_cast<const T *>(a.b) + batch_offset(a, a.b_batch, batch) + column * a.b_col + first * a.b_row;
    // The first step has what is left when the others are whole, at its end: a multiple of a chunk where an operand runs along k.
    const int steps = static_cast<int>(divide_up(end - first, Tile::Left::depth));
    const int before = steps * Tile::Left::depth - static_cast<int>(end - first);
    Copies<T, tile, a_along> left(left_data, a.a_row, a.a_col, a.M - row, before);
    Copies<T, tile, b_along> right(right_data, a.b_col, a.b_row, a.N - column, before);

    const int lane = static_cast<int>(threadIdx.x) % warp_lanes, warp = static_cast<int>(threadIdx.x) / warp_lanes;
    const int warp_row = warp / 2 * Tile::side, warp_column = warp % 2 * Tile::side;
    const int left_at = Tile::Left::template matrix_at<true>(warp_row, lane);
    const int right_at = Tile::Right::template matrix_at<false>(warp_column, lane);
    const bool adds_a = sums_a && column == 0; // the same in the whole block
    Tile work = {};

    if (steps > 0) {
        left.template start<false>(shared, before);
        right.template start<false>(shared + Tile::Left::bytes, before);
    }
    copy_async_commit();
    const auto copy = [&](int step, int to) {
        if (step < steps) {
            left.template start<true>(shared + to, 0);
            right.template start<true>(shared + to + Tile::Left::bytes, 0);
        }
        copy_async_commit();
    };
    for (int step = 1; step < tensor_stages - 1; step++) copy(step, step * Tile::stage_bytes);
    const auto multiply = [&](auto adds) {
        int oldest = 0, free = (tensor_stages - 1) * Tile::stage_bytes; // where stages are: the next one, and the one that is done
        TC_ROLLED
        for (int step = 0; step < steps; step++) {
            copy_async_wait<tensor_stages - 2>();
            __syncthreads();
            copy(step + tensor_stages - 1, free);
            work.template add<decltype(adds)::value>(shared + oldest, left_at, right_at);
            free = oldest;
            oldest = oldest + Tile::stage_bytes == Tile::shared_bytes ? 0 : oldest + Tile::stage_bytes;
        }
    };
    if (adds_a)
        multiply(Constant<sums_a>());
    else
        multiply(Constant<false>());

    // A half of the tile's rows at a time goes through shared memory, so that each warp writes whole lines.
    constexpr int row_floats = tile + 8; // the four rows that a warp stores at a time are in different banks
    float *const sums = reinterpret_cast<float *>(shared);
    const auto write = [&](const auto &epilogue) {
        TC_ROLLED
        for (int top = 0; top < tile; top += Tile::side) {
            __syncthreads();
            if (warp_row == top) {
                TC_UNROLL
                for (int i = 0; i < Tile::n; i++) TC_UNROLL
                for (int j = 0; j < 2 * Tile::n; j++) TC_UNROLL
                for (int half = 0; half < 2; half++) {
                    float *to = sums + (lane / 4 + 16 * i + 8 * half) * row_floats + warp_column + 8 * j + lane % 4 * 2;
                    store_vector<2, float>(to, {work.sum[i][j][2 * half], work.sum[i][j][2 * half + 1]});
                }
            }
            __syncthreads();
            write_rows<T, tile, tensor_threads>(epilogue, sums, row_floats, Tile::side, row + top, column, a, run);
        }
    };
    const int64_t c_batch = batch_offset(a, a.c_batch, batch);
    if (is_partial(a))
        write(PartialSum<T>(a, c_batch, chunk));
    else
        write(WholeSum<T>(a, c_batch, chunk));
    if (adds_a && warp_column == 0 && lane % 4 == 0) { // each column of the products with ones has all sums
        TC_UNROLL
        for (int i = 0; i < Tile::n; i++) TC_UNROLL
        for (int half = 0; half < 2; half++) {
            const int64_t r = row + warp_row + lane / 4 + 16 * i + 8 * half, at = chunk * a.M + r;
            if (r >= a.M) continue;
            if (is_partial(a))
                static_cast<float *>(a.a_sum)[at] = work.a_sum[i][2 * half];
            else
                narrow(static_cast<T *>(a.a_sum)[at], work.a_sum[i][2 * half]);
        }
    }
}

template <class T, int tile, bool a_along, bool b_along, bool sums_a> int launch_tile(const tc_gemm_args &a, void *stream)
{
    const int64_t count = divide_up(a.M, tile) * divide_up(a.N, tile) * a.k_chunks * a.batch;
    const Launch shape(blocks(count), dim3(tensor_threads), TensorTile<T, tile, a_along, b_along>::shared_bytes, stream);
    return launch<gemm_tensor_kernel<T, tile, a_along, b_along, sums_a>>(shape, a, columns_of_runs<T>(a));
}

template <class T, int tile> int launch_operands(const tc_gemm_args &a, void *stream)
{
    const bool a_along = tc_gemm_runs(a.a_row, a.a_col) == TC_GEMM_ALONG, b_along = tc_gemm_runs(a.b_col, a.b_row) == TC_GEMM_ALONG;
    if (a.a_sum) return launch_tile<T, tile, false, false, true>(a, stream);
    if (a_along) return b_along ? launch_tile<T, tile, true, true, false>(a, stream) : launch_tile<T, tile, true, false, false>(a, stream);
    return b_along ? launch_tile<T, tile, false, true, false>(a, stream) : launch_tile<T, tile, false, false, false>(a, stream);
}

} // namespace

template <class T> int tc::launch_tensor_gemm(const tc_gemm_args &a, void *stream)
{
    if (!tc_gemm_on_tensor_cores(&a)) return cudaErrorInvalidValue;
    return a.tile == 128 ? launch_operands<T, 128>(a, stream) : launch_operands<T, 64>(a, stream);
}

template int tc::launch_tensor_gemm<float16>(const tc_gemm_args &, void *);
template int tc::launch_tensor_gemm<bfloat16>(const tc_gemm_args &, void *);
