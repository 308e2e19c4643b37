// gemm_tensor.cuh: products on tensor cores (sm_80 and later), summed in float32 in the order of k, whatever the tile: a row of C has the
// same bits in tiles of any size. Of halves, and of float32 as tf32, which have half as many k for the same bytes.
//
// A warp computes 64 x 64 results of a large tile of C (64 x 32 with two parts of each number), and 32 x 32 or 16 x 16 of a small one. For
// 64 or 128 bytes of k at a time the tiles of A and B are copied to shared memory, some stages deep, in chunks of 16 bytes along the
// operand's own contiguous axis: ldmatrix transposes halves that do not run along k, and lanes read float32 that do not one by one. The
// places of chunks are permuted so that neither copies nor what reads them meet in a bank. What lies beyond M and N, or before the sum,
// which ends with a stage, becomes zeros in both operands, so that no NaN comes in.
#pragma once
#include "gemm_epilogue.cuh"
#include "mma.cuh"

namespace tc
{

constexpr int tensor_threads = 256; // at most
constexpr int chunk_bytes = 16;

// By tc_gemm_args.tile: the tile of C, the part of it that a warp computes, how many bytes of k a stage has of each row, and how many
// stages there are. With two parts of each number a warp's part of the large tile is half as wide, since there are two sums of each result.
template <int tile, int parts> struct TensorShape;
template <int parts> struct TensorShape<128, parts> {
    static constexpr int rows = 128, columns = 128, warp_rows = 64, warp_columns = parts == 1 ? 64 : 32, run = 64, stages = 3;
};
template <int parts> struct TensorShape<64, parts> {
    static constexpr int rows = 64, columns = 64, warp_rows = 32, warp_columns = 32, run = 128, stages = 3;
};
template <int parts> struct TensorShape<16, parts> { // of few rows, which wait for B: much of it is on its way
    static constexpr int rows = 16, columns = 32, warp_rows = 16, warp_columns = 16, run = 128, stages = 8;
};

// ---- what is multiplied --------------------------------------------------------------------------------------------------------------

struct tf32;    // float32 rounded to tf32
struct tf32_x3; // float32 as the sum of two tf32, whose three larger products are added up

template <class T> constexpr uint32_t pair_of_ones = 0;
template <> inline constexpr uint32_t pair_of_ones<float16> = 0x3c003c00;
template <> inline constexpr uint32_t pair_of_ones<bfloat16> = 0x3f803f80;

// Of a dtype or one of these. Element: what is stored; parts: how many operands of tensor cores add up to it. split() turns loaded numbers,
// which are in the first part, into all parts. add_row_sums() adds up A's rows, before they are split; after join_row_sums() the first
// column has the sums.
template <class T> struct Numbers {
    using Element = T;
    static constexpr int parts = 1;
    template <int n> static __device__ __forceinline__ void split(uint32_t (&)[1][n][4]) {}
    static __device__ __forceinline__ void multiply(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
    {
        mma(sum, a, b, T());
    }
    static __device__ __forceinline__ void add_row_sums(float (&sum)[4], const uint32_t (&a)[4])
    {
        constexpr uint32_t ones[2] = {pair_of_ones<T>, pair_of_ones<T>};
        multiply(sum, a, ones);
    }
    static __device__ __forceinline__ void join_row_sums(float (&)[4]) {}
};

__device__ __forceinline__ bool is_finite(float x) { return x - x == 0; }

// The first bits of a number, which stay finite if it is, and the rest, of which tensor cores read as many.
__device__ __forceinline__ uint32_t first_tf32(uint32_t x) { return x & ~0x1fffu; }
__device__ __forceinline__ uint32_t rest_of_tf32(uint32_t x) { return bits_of_float(float_of_bits(x) - float_of_bits(first_tf32(x))); }

template <> struct Numbers<tf32> {
    using Element = float;
    static constexpr int parts = 1;
    template <int n> static __device__ __forceinline__ void split(uint32_t (&x)[1][n][4])
    {
        TC_UNROLL
        for (int i = 0; i < n; i++) TC_UNROLL
        for (uint32_t &one : x[0][i]) one = float_to_tf32(float_of_bits(one));
    }
    static __device__ __forceinline__ void multiply(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
    {
        mma_tf32(sum, a, b);
    }
    static __device__ __forceinline__ void add_row_sums(float (&sum)[4], const uint32_t (&a)[4])
    {
        sum[0] += float_of_bits(a[0]) + float_of_bits(a[2]);
        sum[2] += float_of_bits(a[1]) + float_of_bits(a[3]);
    }
    static __device__ __forceinline__ void join_row_sums(float (&sum)[4])
    {
        TC_UNROLL
        for (int half = 0; half < 4; half += 2) {
            sum[half] += __shfl_xor_sync(all_lanes, sum[half], 1);
            sum[half] += __shfl_xor_sync(all_lanes, sum[half], 2);
        }
    }
};

template <> struct Numbers<tf32_x3> : Numbers<tf32> {
    static constexpr int parts = 2;
    template <int n> static __device__ __forceinline__ void split(uint32_t (&x)[2][n][4])
    {
        TC_UNROLL
        for (int i = 0; i < n; i++) TC_UNROLL
        for (int j = 0; j < 4; j++) {
            x[1][i][j] = rest_of_tf32(x[0][i][j]);
            x[0][i][j] = first_tf32(x[0][i][j]);
        }
    }
};

// ---- operands in shared memory -------------------------------------------------------------------------------------------------------

// One operand's tile of rows x depth in shared memory, `run` bytes of each row. `along`: it runs along k in memory, otherwise across.
// `left`: it is A.
template <class T, int rows, int run, bool along, bool left> struct OperandTile {
    static_assert(along || rows * sizeof(T) >= 128, "eight chunks that are permuted");
    static constexpr int size = sizeof(T), in_chunk = chunk_bytes / size; // elements
    static constexpr int depth = run / size, halves = run / 64, bytes = rows * run;
    static constexpr int step_bytes = 32, step = step_bytes / size; // k of mma
    static constexpr bool matrices = size == 2 || along;            // for ldmatrix, which transposes halves alone

    // Where the chunk is that begins at (row, k).
    static __device__ __forceinline__ int chunk_at(int row, int k)
    {
        const int turn = run == 128 ? row % 8 : row / 2 % 4; // eight rows fill all banks once, or pairs of them do
        if (along) return row * run + (k / in_chunk ^ turn) * chunk_bytes;
        return k * rows * size + (row / in_chunk ^ (size == 2 ? k % 8 : k % 4 * 2)) * chunk_bytes;
    }
    // What this lane reads of the first 16 rows and `step` k from row `first` on: the row of an 8x8 matrix whose address it gives to
    // ldmatrix, of the four that make these (of the left operand the second one has the next rows, of the right one the next k); or its
    // first number.
    static __device__ __forceinline__ int place(int first, int lane)
    {
        if (!matrices) return chunk_at(first + lane / 4, lane % 4) + lane / 4 % 4 * size;
        const int i = lane / 8, r = lane % 8, row = first + (left ? i % 2 : i / 2) * 8, k = (left ? i / 2 : i % 2) * (step / 2);
        return along ? chunk_at(row + r, k) : chunk_at(row, k + r);
    }
    // The fragment of the i-th 16 rows and the kk-th `step` k. `start`: place(), in bytes from `tile` on.
    static __device__ __forceinline__ void load(uint32_t (&fragment)[4], const char *tile, int start, int i, int kk)
    {
        if constexpr (along) {
            load_matrix_x4(fragment, tile + (start ^ kk * step_bytes) + i * 16 * run);
        } else if constexpr (matrices) {
            load_matrix_x4_transposed(fragment, tile + (start ^ i * step_bytes) + kk * step * rows * size);
        } else {
            TC_UNROLL
            for (int e = 0; e < 4; e++) {
                const int below = left ? e % 2 : e / 2, half = left ? e / 2 : e % 2; // eight rows on, and half of `step`
                const int at =
                    (start ^ (i % 2 * 4 + below * 2) * chunk_bytes) + i / 2 * 8 * chunk_bytes + (kk * step + half * step / 2) * rows * size;
                fragment[e] = bits_of_float(*reinterpret_cast<const float *>(tile + at));
            }
        }
    }
};

// A thread's part of the copies of an operand: chunks of runs that are contiguous in memory. In the small tiles it has both halves' chunk
// of a run, which have addresses a constant apart; where eight lanes copy two runs, these are then four apart, for banks of their own.
template <class Tile, int rows, bool along, int threads> struct Copies {
    static constexpr int size = Tile::size;
    static constexpr int runs = along ? rows : Tile::depth, run_elements = along ? Tile::depth : rows;
    static constexpr int halves = Tile::halves, lanes = run_elements / Tile::in_chunk / halves; // of a run
    static constexpr int between = threads / lanes, count = runs / between; // runs from one of the thread's to the next; of them
    static_assert(count > 0 && runs % between == 0 && (between % 8 == 0 || (size == 4 && between % 4 == 0)), "one permutation for all");
    const char *from;         // of the next stage
    int64_t run, stage;       // bytes from one of the thread's runs to the next, and to those of the next stage
    int k, to;                // of the first chunk
    int valid[count][halves]; // bytes of each chunk that are inside the operand

    // `across`, `along_k`: strides of rows and k. `rows_left`: rows from `data` on. `before`: k of the first stage before the sum.
    __device__ Copies(const void *data, int64_t across, int64_t along_k, int64_t rows_left, int before)
    {
        const int thread = static_cast<int>(threadIdx.x), in_run = thread % lanes * Tile::in_chunk, number = thread / lanes;
        const int first = halves == 2 && lanes == 4 ? number / 8 * 8 + number % 2 * 4 + number / 2 % 4 : number;
        const int row = along ? first : in_run;
        k = along ? in_run : first;
        from = static_cast<const char *>(data) + (row * across + (k - before) * along_k) * size;
        run = between * (along ? across : along_k) * size;
        stage = Tile::depth * along_k * size;
        to = Tile::chunk_at(row, k);
        for (int i = 0; i < count; i++) {
            for (int half = 0; half < halves; half++) {
                const int64_t left = along ? (row + i * between < rows_left ? Tile::in_chunk : 0) : rows_left - row - half * rows / 2;
                valid[i][half] = static_cast<int>(left < 0 ? 0 : left < Tile::in_chunk ? left : Tile::in_chunk) * size;
            }
        }
    }
    // Starts the copies of the next stage, of which all but the first `before` k are in the sum.
    template <bool whole> __device__ __forceinline__ void start(char *tile, int before)
    {
        constexpr int half_run = run_elements / 2 * size;
        const char *source = from;
        TC_UNROLL
        for (int i = 0; i < count; i++) {
            TC_UNROLL
            for (int half = 0; half < halves; half++) {
                const bool inside = whole || k + (along ? half * run_elements / 2 : i * between) >= before;
                const int in_run = to ^ half * half_run;
                const int at = in_run + i * between * run_elements * size;
                copy_async<chunk_bytes>(tile + at, source + half * half_run, inside ? valid[i][half] : 0);
            }
            source += run;
        }
        from += stage;
    }
};

// ---- sums ----------------------------------------------------------------------------------------------------------------------------

// Terms whose sums of two parts are added to a total: tensor cores cut off what they add up. Of fewer, roundings of the total would be
// more.
constexpr int settled_k = 64;

template <int m, int n> struct TileSums {
    float at[m][n][4];

    // Adds the sums to `total` and begins again.
    __device__ __forceinline__ void move_to(TileSums &total)
    {
        TC_UNROLL
        for (int i = 0; i < m; i++) TC_UNROLL
        for (int j = 0; j < n; j++) TC_UNROLL
        for (int e = 0; e < 4; e++) {
            total.at[i][j][e] += at[i][j][e];
            at[i][j][e] = 0;
        }
    }
};

// A warp's part of a tile.
template <class T, int tile, bool a_along, bool b_along> struct TensorTile : TensorShape<tile, Numbers<T>::parts> {
    static constexpr int parts = Numbers<T>::parts;
    using Element = typename Numbers<T>::Element;
    using Shape = TensorShape<tile, parts>;
    using Left = OperandTile<Element, Shape::rows, Shape::run, a_along, true>;
    using Right = OperandTile<Element, Shape::columns, Shape::run, b_along, false>;
    static constexpr int across = Shape::columns / Shape::warp_columns; // warps
    static constexpr int threads = Shape::rows / Shape::warp_rows * across * warp_lanes;
    static constexpr int stage_bytes = Left::bytes + Right::bytes, shared_bytes = Shape::stages * stage_bytes;
    static constexpr int m = Shape::warp_rows / 16, n = Shape::warp_columns / 16; // groups of 16 rows and columns
    using LeftCopies = Copies<Left, Shape::rows, a_along, threads>;
    using RightCopies = Copies<Right, Shape::columns, b_along, threads>;
    using Sums = TileSums<m, 2 * n>;
    Sums sum, total; // total: of two parts
    float a_sum[m][4];

    static __device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x) / warp_lanes; }
    static __device__ __forceinline__ int warp_row() { return warp() / across * Shape::warp_rows; }
    static __device__ __forceinline__ int warp_column() { return warp() % across * Shape::warp_columns; }

    // Adds the products of one stage, and of sums_a the sums of the left operand's rows. left_at, right_at: place() of this warp and lane.
    template <bool sums_a> __device__ __forceinline__ void add(const char *stage, int left_at, int right_at)
    {
        TC_UNROLL
        for (int kk = 0; kk < Left::depth / Left::step; kk++) {
            uint32_t left[parts][m][4], right[parts][n][4];
            TC_UNROLL
            for (int i = 0; i < m; i++) Left::load(left[0][i], stage, left_at, i, kk);
            TC_UNROLL
            for (int i = 0; sums_a && i < m; i++) Numbers<T>::add_row_sums(a_sum[i], left[0][i]);
            TC_UNROLL
            for (int j = 0; j < n; j++) Right::load(right[0][j], stage + Left::bytes, right_at, j, kk);
            Numbers<T>::split(left);
            Numbers<T>::split(right);
            const auto multiply = [&](int of_left, int of_right) {
                TC_UNROLL
                for (int i = 0; i < m; i++) TC_UNROLL
                for (int j = 0; j < 2 * n; j++) {
                    const uint32_t b[2] = {right[of_right][j / 2][j % 2 * 2], right[of_right][j / 2][j % 2 * 2 + 1]};
                    Numbers<T>::multiply(sum.at[i][j], left[of_left][i], b);
                }
            };
            if (parts == 2) { // the small ones first
                multiply(parts - 1, 0);
                multiply(0, parts - 1);
            }
            multiply(0, 0);
        }
    }
    __device__ __forceinline__ const Sums &result() const { return parts == 2 ? total : sum; }
    // Stores a warp's sums in rows of row_floats.
    static __device__ __forceinline__ void store(float *to, int row_floats, const Sums &sums)
    {
        TC_UNROLL
        for (int i = 0; i < m; i++) TC_UNROLL
        for (int j = 0; j < 2 * n; j++) TC_UNROLL
        for (int half = 0; half < 2; half++)
            store_vector<2, float>(to + (lane_group() + 16 * i + 8 * half) * row_floats + 8 * j + lane_pair(),
                                   {sums.at[i][j][2 * half], sums.at[i][j][2 * half + 1]});
    }
};

// The sum of one element by multiply-adds, where that of two parts is not finite: an infinity times a part that is zero is NaN.
__device__ __forceinline__ float single_sum(const float *a, int64_t a_along, const float *b, int64_t b_along, int64_t K)
{
    float sum = 0;
    for (int64_t k = 0; k < K; k++) sum += a[k * a_along] * b[k * b_along];
    return sum;
}

// Block: one tile of C, of one chunk of the sum, of one element of the batch, as of gemm_kernel. `run`: columns_of_runs(). keep: of
// dropout, if it drops.
template <class T, int tile, bool a_along, bool b_along, bool sums_a, bool drops>
__device__ __forceinline__ void multiply_tile(const tc_gemm_args &a, int run, const Keep<float> &keep)
{
    using Tile = TensorTile<T, tile, a_along, b_along>;
    using Element = typename Tile::Element;
    TC_DYNAMIC_SHARED(char, shared);
    BlockPlace place;
    const int64_t row = place.take(divide_up(a.M, Tile::rows)) * Tile::rows;
    const int64_t column = place.take(divide_up(a.N, Tile::columns)) * Tile::columns;
    const int64_t chunk = place.take(a.k_chunks), batch = place.rest;
    const int64_t first = chunk * a.k_chunk, end = a.K - first < a.k_chunk ? a.K : first + a.k_chunk;
    const auto *left_data = static_cast<const Element *>(a.a) + batch_offset(a, a.a_batch, batch) + row * a.a_row + first * a.a_col;
    const auto *right_data = static_cast<const Element *>(a.b) + batch_offset(a, a.b_batch, batch) + column * a.b_col + first * a.b_row;
    // The first step has what is left when the others are whole, at its end: a multiple of a chunk where an operand runs along k.
    constexpr int depth = Tile::Left::depth;
    const int steps = static_cast<int>(divide_up(end - first, depth)), before = steps * depth - static_cast<int>(end - first);
    typename Tile::LeftCopies left(left_data, a.a_row, a.a_col, a.M - row, before);
    typename Tile::RightCopies right(right_data, a.b_col, a.b_row, a.N - column, before);

    const int warp_row = Tile::warp_row(), warp_column = Tile::warp_column(), lane = lane_of();
    const int left_at = Tile::Left::place(warp_row, lane), right_at = Tile::Right::place(warp_column, lane);
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
    for (int step = 1; step < Tile::stages - 1; step++) copy(step, step * Tile::stage_bytes);
    const auto multiply = [&](auto adds) {
        int oldest = 0, free = (Tile::stages - 1) * Tile::stage_bytes; // where stages are: the next one, and the one that is done
        TC_ROLLED
        for (int step = 0; step < steps; step++) {
            copy_async_wait<Tile::stages - 2>();
            __syncthreads();
            copy(step + Tile::stages - 1, free);
            work.template add<decltype(adds)::value>(shared + oldest, left_at, right_at);
            free = oldest;
            oldest = oldest + Tile::stage_bytes == Tile::shared_bytes ? 0 : oldest + Tile::stage_bytes;
            if (Tile::parts == 2 && (steps - 1 - step) % (settled_k / depth) == 0) work.sum.move_to(work.total);
        }
    };
    if (adds_a)
        multiply(Constant<sums_a>());
    else
        multiply(Constant<false>());

    // One of its rows of warps at a time goes through shared memory, so that each warp writes whole lines.
    constexpr int row_floats = Tile::columns + 8; // the four rows that a warp stores at a time are in different banks
    float *const sums = reinterpret_cast<float *>(shared);
    const auto write = [&](const auto &epilogue) {
        TC_ROLLED
        for (int top = 0; top < Tile::rows; top += Tile::warp_rows) {
            __syncthreads();
            if (warp_row == top) Tile::store(sums + warp_column, row_floats, work.result());
            __syncthreads();
            if constexpr (Tile::parts == 2) {
                for (int at = static_cast<int>(threadIdx.x); at < Tile::warp_rows * Tile::columns; at += Tile::threads) {
                    float &value = sums[at / Tile::columns * row_floats + at % Tile::columns];
                    const int64_t r = top + at / Tile::columns, c = at % Tile::columns;
                    if (!is_finite(value) && row + r < a.M && column + c < a.N)
                        value = single_sum(left_data + r * a.a_row, a.a_col, right_data + c * a.b_col, a.b_row, end - first);
                }
                __syncthreads();
            }
            write_rows<Element, Tile::columns, Tile::threads>(epilogue, sums, row_floats, Tile::warp_rows, row + top, column, a, run);
        }
    };
    const int64_t c_batch = batch_offset(a, a.c_batch, batch);
    if constexpr (drops)
        write(DroppedSum<Element, Tile::columns>(a, c_batch, chunk, keep));
    else if (is_partial(a))
        write(PartialSum<Element>(a, c_batch, chunk, keep));
    else
        write(WholeSum<Element>(a, c_batch, chunk, keep));
    TC_UNROLL
    for (int i = 0; adds_a && i < Tile::m; i++) Numbers<T>::join_row_sums(work.a_sum[i]);
    if (adds_a && warp_column == 0 && lane % 4 == 0) {
        TC_UNROLL
        for (int i = 0; i < Tile::m; i++) TC_UNROLL
        for (int half = 0; half < 2; half++) {
            const int64_t r = row + warp_row + lane_group() + 16 * i + 8 * half, at = chunk * a.M + r;
            if (r >= a.M) continue;
            if (is_partial(a))
                static_cast<float *>(a.a_sum)[at] = work.a_sum[i][2 * half];
            else
                narrow(static_cast<Element *>(a.a_sum)[at], work.a_sum[i][2 * half]);
        }
    }
}

template <class T, int tile, bool a_along, bool b_along, bool sums_a>
__global__ void __launch_bounds__(tensor_threads, 1) gemm_tensor_kernel(const __grid_constant__ tc_gemm_args a, int run)
{
    multiply_tile<T, tile, a_along, b_along, sums_a, false>(a, run, {});
}

// A kernel of its own, so that the one without dropout keeps its registers.
template <class T, int tile, bool a_along, bool b_along>
__global__ void __launch_bounds__(tensor_threads, 1)
    gemm_tensor_dropout_kernel(const __grid_constant__ tc_gemm_args a, int run, const __grid_constant__ Keep<float> keep)
{
    multiply_tile<T, tile, a_along, b_along, false, true>(a, run, keep);
}

// ---- launches ------------------------------------------------------------------------------------------------------------------------

template <class T, int tile, bool a_along, bool b_along, bool sums_a> int launch_tensor_tile(const tc_gemm_args &a, void *stream)
{
    using Tile = TensorTile<T, tile, a_along, b_along>;
    const int64_t count = divide_up(a.M, Tile::rows) * divide_up(a.N, Tile::columns) * a.k_chunks * a.batch;
    const Launch shape(blocks(count), dim3(Tile::threads), Tile::shared_bytes, stream);
    const int run = columns_of_runs<typename Tile::Element>(a);
    if constexpr (!sums_a)
        if (a.mask.p > 0) return launch<gemm_tensor_dropout_kernel<T, tile, a_along, b_along>>(shape, a, run, keep_of<float>(a.mask));
    return launch<gemm_tensor_kernel<T, tile, a_along, b_along, sums_a>>(shape, a, run);
}

template <class T, int tile> int launch_tensor_operands(const tc_gemm_args &a, bool a_along, bool b_along, void *stream)
{
    if (a.a_sum) return launch_tensor_tile<T, tile, false, false, true>(a, stream);
    if (a_along)
        return b_along ? launch_tensor_tile<T, tile, true, true, false>(a, stream)
                       : launch_tensor_tile<T, tile, true, false, false>(a, stream);
    return b_along ? launch_tensor_tile<T, tile, false, true, false>(a, stream)
                   : launch_tensor_tile<T, tile, false, false, false>(a, stream);
}

// The product on tensor cores, of a dtype or of tf32 or tf32_x3.
template <class T> int launch_tensor_product(const tc_gemm_args &a, void *stream)
{
    constexpr size_t element = sizeof(typename Numbers<T>::Element);
    if (!tc_gemm_on_tensor_cores(&a, element)) return cudaErrorInvalidValue;
    const bool a_along = tc_gemm_runs(a.a_row, a.a_col, chunk_bytes / element) == TC_GEMM_ALONG;
    const bool b_along = tc_gemm_runs(a.b_col, a.b_row, chunk_bytes / element) == TC_GEMM_ALONG;
    switch (a.tile) {
    case 128: return launch_tensor_operands<T, 128>(a, a_along, b_along, stream);
    case 64: return launch_tensor_operands<T, 64>(a, a_along, b_along, stream);
    case 16: return a_along && b_along ? launch_tensor_tile<T, 16, true, true, false>(a, stream) : cudaErrorInvalidValue;
    default: return cudaErrorInvalidValue;
    }
}

} // namespace tc
