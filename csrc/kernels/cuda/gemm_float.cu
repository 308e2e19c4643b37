// gemm_float.cu: products of float32 for any strides. Sums are added in the order of gemm.h, as gemm.cu adds those
// of the other dtypes: a row has the same bits in tiles of any size, and where the sum over k is split into its blocks.
//
// A block computes a square tile of C, and a thread up to 8 x 8 results of it, of neighbouring rows and columns in groups of four. For 16 k
// at a time the tiles of A and B are copied to shared memory, three stages deep, as [k][row], so that a thread reads its rows and columns
// as vectors. What is contiguous across k is copied in vectors, all else in single elements, which cp.async transposes as it goes.
#include "gemm_epilogue.cuh"

namespace
{

using namespace tc;

constexpr int float_threads = 256; // at most: those of the largest tile
constexpr int float_depth = 16;
constexpr int float_stages = 3;
constexpr int copied_k = 8; // that a pass of a block's copies has

// How an operand is copied: in vectors across k; in elements that are neighbours along k; in elements of any strides.
enum { in_vectors, along_k, any_strides };

// Of a block and of its warps, whose lanes share what a warp computes.
template <int tile> struct FloatTile {
    static constexpr int side = tile == 32 ? 4 : 8, columns = tile == 128 ? 8 : 4; // a thread has so many results
    static constexpr int threads = tile * tile / (side * columns);
    static constexpr int warp_columns = tile / (8 * columns);
    static constexpr int row_floats = tile + 4; // of shared memory: neighbours along k, copied by one warp, are in different banks
    static constexpr int operand_floats = float_depth * row_floats, stage_floats = 2 * operand_floats;
    static constexpr int shared_floats = float_stages * stage_floats;

    static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % warp_lanes; }
    static __device__ __forceinline__ int warp_row() { return static_cast<int>(threadIdx.x) / warp_lanes / warp_columns * 4 * side; }
    static __device__ __forceinline__ int warp_column() { return static_cast<int>(threadIdx.x) / warp_lanes % warp_columns * 8 * columns; }
};

// Sums by multiply-adds. left_at(), right_at(): what of a stage's operands add() reads from; own_row(), own_column(): the first result.
template <int tile> struct FloatSums : FloatTile<tile> {
    using Tile = FloatTile<tile>;
    static constexpr int side = Tile::side, columns = Tile::columns, row_floats = Tile::row_floats;
    float sum[side][columns];

    static __device__ __forceinline__ int own_row() { return Tile::warp_row() + Tile::lane() / 8 * 4; }
    static __device__ __forceinline__ int own_column() { return Tile::warp_column() + Tile::lane() % 8 * 4; }
    static __device__ __forceinline__ int left_at() { return own_row(); }
    static __device__ __forceinline__ int right_at() { return own_column(); }
    __device__ __forceinline__ void add(const float *left, const float *right)
    {
        TC_UNROLL
        for (int k = 0; k < float_depth; k++) {
            Vector<float, 4> a[side / 4], b[columns / 4];
            TC_UNROLL
            for (int i = 0; i < side / 4; i++) a[i] = load_vector<4>(left + k * row_floats + 16 * i);
            TC_UNROLL
            for (int j = 0; j < columns / 4; j++) b[j] = load_vector<4>(right + k * row_floats + 32 * j);
            TC_UNROLL
            for (int i = 0; i < side; i++) TC_UNROLL
            for (int j = 0; j < columns; j++) sum[i][j] += a[i / 4].at[i % 4] * b[j / 4].at[j % 4];
        }
    }
    // Adds the sums to `total` and begins again.
    __device__ __forceinline__ void move_to(FloatSums &total)
    {
        TC_UNROLL
        for (int i = 0; i < side; i++) TC_UNROLL
        for (int j = 0; j < columns; j++) {
            total.sum[i][j] += sum[i][j];
            sum[i][j] = 0;
        }
    }
    // To rows of row_floats, of which `rows` points to this thread's first result.
    __device__ __forceinline__ void store(float *rows) const
    {
        TC_UNROLL
        for (int i = 0; i < side; i++) TC_UNROLL
        for (int j = 0; j < columns; j += 4)
            store_vector<4, float>(rows + (i / 4 * 16 + i % 4) * row_floats + j / 4 * 32,
                                   {sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]});
    }
};

// A thread's part of the copies of an operand.
template <int tile, int copied> struct FloatCopies {
    static constexpr int threads = FloatTile<tile>::threads, row_floats = FloatTile<tile>::row_floats;
    static constexpr int width = copied == in_vectors ? 4 : 1; // elements of a copy, along rows
    static constexpr int between = threads / copied_k * width; // rows, from one of the thread's copies to the next
    static constexpr int passes = tile / between;
    const float *from[passes]; // of the next stage
    int64_t along;
    int k, to, valid; // of the first copy, and how many bytes of each are inside the operand

    // `rows_left`: rows from `data` on. Beyond them the last one is copied again, for results that nobody writes; of a vector that is only
    // partly inside, the rest becomes zeros.
    __device__ FloatCopies(const float *data, int64_t across, int64_t along_, int64_t rows_left) : along(along_)
    {
        const int thread = static_cast<int>(threadIdx.x), lanes = tile / width;
        const int row = copied == in_vectors ? thread % lanes * width : thread / copied_k;
        const int rows = rows_left < tile ? static_cast<int>(rows_left) : tile, left = rows - row;
        k = copied == in_vectors ? thread / lanes : thread % copied_k;
        to = k * row_floats + row;
        valid = 4 * (width == 1 || left > width ? width : left < 0 ? 0 : left);
        TC_UNROLL
        for (int i = 0; i < passes; i++) {
            const int own = row + i * between;
            from[i] = data + (width > 1 || own < rows ? own : rows - 1) * across + k * along;
        }
    }
    // Starts the copies of a stage, of which `depth` k are in the sum: the others become zeros.
    __device__ __forceinline__ void start(float *stage, int depth)
    {
        TC_UNROLL
        for (int j = 0; j < float_depth / copied_k; j++) {
            const int bytes = k + j * copied_k < depth ? valid : 0;
            TC_UNROLL
            for (int i = 0; i < passes; i++)
                copy_async<4 * width>(stage + to + i * between + j * copied_k * row_floats,
                                      from[i] + j * copied_k * (copied == along_k ? 1 : along), bytes);
        }
        TC_UNROLL
        for (int i = 0; i < passes; i++) from[i] += depth * (copied == along_k ? 1 : along);
    }
};

// The copies of both operands, stage by stage: each block of k begins with a stage of its own.
template <int tile, int a_copied, int b_copied> struct FloatStages {
    FloatCopies<tile, a_copied> left;
    FloatCopies<tile, b_copied> right;
    int64_t k_block, k_left, block_left; // not copied yet: of the sum, and of the block
    float *shared;
    int free; // where the next stage goes

    __device__ __forceinline__ void copy()
    {
        if (k_left > 0) {
            const int64_t most = k_left < block_left ? k_left : block_left;
            const int depth = most < float_depth ? static_cast<int>(most) : float_depth;
            left.start(shared + free, depth);
            right.start(shared + free + FloatTile<tile>::operand_floats, depth);
            k_left -= depth;
            block_left -= depth;
            if (block_left == 0) block_left = k_block;
            free = free + FloatTile<tile>::stage_floats == FloatTile<tile>::shared_floats ? 0 : free + FloatTile<tile>::stage_floats;
        }
        copy_async_commit();
    }
};

// Block: one tile of C, of one chunk of the sum, of one element of the batch, as of gemm_kernel. `run`: columns_of_runs(). keep: of
// dropout, if it drops.
template <int tile, int a_copied, int b_copied, bool drops>
__device__ __forceinline__ void multiply_tile(const tc_gemm_args &a, int64_t k_block, int run, const Keep<float> &keep)
{
    using Tile = FloatTile<tile>;
    using Sums = FloatSums<tile>;
    TC_DYNAMIC_SHARED(float, shared);
    BlockPlace place;
    const int64_t row = place.take(divide_up(a.M, tile)) * tile, column = place.take(divide_up(a.N, tile)) * tile;
    const int64_t chunk = place.take(a.k_chunks), batch = place.rest;
    const int64_t first = chunk * a.k_chunk, K = a.K - first < a.k_chunk ? a.K - first : a.k_chunk;
    const float *left = static_cast<const float *>(a.a) + batch_offset(a, a.a_batch, batch) + row * a.a_row + first * a.a_col;
    const float *right = static_cast<const float *>(a.b) + batch_offset(a, a.b_batch, batch) + column * a.b_col + first * a.b_row;
    FloatStages<tile, a_copied, b_copied> stages = {
        {left, a.a_row, a.a_col, a.M - row}, {right, a.b_col, a.b_row, a.N - column}, k_block, K, k_block, shared, 0};

    const int own_row = Sums::own_row(), own_column = Sums::own_column(), thread = static_cast<int>(threadIdx.x);
    constexpr bool may_sum_a = a_copied == b_copied && a_copied != along_k;
    const bool sums_a_row = may_sum_a && a.a_sum && column == 0 && thread < tile;
    const int left_at = Sums::left_at(), right_at = Sums::right_at();
    float a_sum = 0;
    Sums total = {}, sum = {};
    for (int stage = 1; stage < float_stages; stage++) stages.copy();
    int oldest = 0; // where the stage is that was copied first
    for (int64_t block = 0; block < K; block += k_block) {
        const int64_t block_end = K - block < k_block ? K : block + k_block;
        TC_ROLLED
        for (int64_t k = block; k < block_end; k += float_depth) {
            copy_async_wait<float_stages - 2>();
            __syncthreads();
            stages.copy();
            const float *stage = shared + oldest;
            sum.add(stage + left_at, stage + Tile::operand_floats + right_at);
            for (int i = 0; sums_a_row && i < float_depth; i++) a_sum += stage[i * Tile::row_floats + thread];
            oldest = oldest + Tile::stage_floats == Tile::shared_floats ? 0 : oldest + Tile::stage_floats;
        }
        sum.move_to(total);
    }
    if (sums_a_row && row + thread < a.M) static_cast<float *>(a.a_sum)[chunk * a.M + row + thread] = a_sum;

    // A half of the tile's rows at a time goes through shared memory, so that the epilogue's code is there once.
    const int64_t c_batch = batch_offset(a, a.c_batch, batch);
    const auto write = [&](const auto &epilogue) {
        TC_ROLLED
        for (int top = 0; top < tile; top += tile / 2) {
            __syncthreads();
            if (own_row / (tile / 2) == top / (tile / 2)) total.store(shared + (own_row - top) * Tile::row_floats + own_column);
            __syncthreads();
            write_rows<float, tile, Tile::threads>(epilogue, shared, Tile::row_floats, tile / 2, row + top, column, a, run);
        }
    };
    if constexpr (drops)
        write(DroppedSum<float, tile>(a, c_batch, chunk, keep));
    else if (is_partial(a))
        write(PartialSum<float>(a, c_batch, chunk, keep));
    else
        write(WholeSum<float>(a, c_batch, chunk, keep));
}

template <int tile, int a_copied, int b_copied>
__global__ void __launch_bounds__(float_threads, tile == 32 ? 2 : 1)
    gemm_float_kernel(const __grid_constant__ tc_gemm_args a, int64_t k_block, int run)
{
    multiply_tile<tile, a_copied, b_copied, false>(a, k_block, run, {});
}

// A kernel of its own, so that the one without dropout keeps its registers; for operands along k, as those of a linear layer are, and of
// any strides.
template <int tile, int copied>
__global__ void __launch_bounds__(float_threads, tile == 32 ? 2 : 1)
    gemm_float_dropout_kernel(const __grid_constant__ tc_gemm_args a, int64_t k_block, int run, const __grid_constant__ Keep<float> keep)
{
    multiply_tile<tile, copied, copied, true>(a, k_block, run, keep);
}

template <int tile, int a_copied, int b_copied> int launch_copied(const tc_gemm_args &a, void *stream)
{
    const int64_t count = divide_up(a.M, tile) * divide_up(a.N, tile) * a.k_chunks * a.batch;
    const Launch shape(blocks(count), dim3(FloatTile<tile>::threads), FloatTile<tile>::shared_floats * sizeof(float), stream);
    const int run = columns_of_runs<float>(a);
    if constexpr (a_copied == b_copied && a_copied != in_vectors)
        if (a.mask.p > 0)
            return launch<gemm_float_dropout_kernel<tile, a_copied>>(shape, a, tc_gemm_item_k_block(&a), run, keep_of<float>(a.mask));
    return launch<gemm_float_kernel<tile, a_copied, b_copied>>(shape, a, tc_gemm_item_k_block(&a), run);
}

int copied_operand(const void *data, int64_t across, int64_t along, const int64_t *batch, int batch_dims)
{
    bool aligned = reinterpret_cast<uintptr_t>(data) % 16 == 0 && along % 4 == 0;
    for (int d = 0; d < batch_dims; d++) aligned = aligned && batch[d] % 4 == 0;
    return across == 1 && aligned ? in_vectors : along == 1 ? along_k : any_strides;
}

template <int tile> int launch_operands(const tc_gemm_args &a, void *stream)
{
    const int left = copied_operand(a.a, a.a_row, a.a_col, a.a_batch, a.batch_dims);
    const int right = copied_operand(a.b, a.b_col, a.b_row, a.b_batch, a.batch_dims);
    const bool sums_a_otherwise = a.a_sum && (left != in_vectors || right != in_vectors);
    const bool drops_otherwise = a.mask.p > 0 && (left != along_k || right != along_k);
    if (left == any_strides || right == any_strides || sums_a_otherwise || drops_otherwise)
        return launch_copied<tile, any_strides, any_strides>(a, stream);
    if (left == along_k)
        return right == along_k ? launch_copied<tile, along_k, along_k>(a, stream) : launch_copied<tile, along_k, in_vectors>(a, stream);
    return right == along_k ? launch_copied<tile, in_vectors, along_k>(a, stream) : launch_copied<tile, in_vectors, in_vectors>(a, stream);
}

} // namespace

int tc::launch_float_gemm(const tc_gemm_args &a, void *stream)
{
    switch (a.tile) {
    case 128: return launch_operands<128>(a, stream);
    case 64: return launch_operands<64>(a, stream);
    default: return launch_operands<32>(a, stream);
    }
}
