// mma.cuh: tiles of halves in shared memory, and their fragments for tensor cores (sm_80 and later).
//
// A fragment of mma() is 16 x 16 halves of the left operand, 16 x 8 of the right one, or 16 x 8 sums; tests/gpu_emulation/tensor_core.h has
// what each lane holds of it. lane_group() and lane_pair() are a lane's row and first column of sums.
#pragma once
#include "device.cuh"

namespace tc
{

__device__ __forceinline__ int lane_of() { return static_cast<int>(threadIdx.x % warp_lanes); }
__device__ __forceinline__ int lane_group() { return lane_of() / 4; }
__device__ __forceinline__ int lane_pair() { return lane_of() % 4 * 2; }

// Where things are in a tile with rows of `columns` halves, a multiple of 32, in chunks of 16 bytes. The chunks of a row change places by
// its number, so that the eight rows that ldmatrix reads at a time are in different banks. All in halves.
template <int columns> struct Swizzle {
    static_assert(columns % 32 == 0, "rows of 64, 128, 192 ... bytes");
    static constexpr int chunks = columns / 8;
    static constexpr bool whole = columns % 64 == 0; // rows begin in the first bank

    __device__ __forceinline__ static int turn(int row) { return whole ? row % 8 : row / 2 % 4; }
    __device__ __forceinline__ static int chunk(int row, int number) { return row * columns + (number ^ turn(row)) * 8; }
    __device__ __forceinline__ static int element(int row, int column) { return chunk(row, column / 8) + column % 8; }
};

// A lane's addresses of rows for load_matrix_x4() over blocks of 16 rows x 16 columns of a tile, in bytes from where all tiles begin. The
// swizzle of a lane's row is the same in all blocks, so that an address is one operation away from that in the block at (0,0).
template <int columns> struct MatrixRows {
    int row, chunk; // in the block at (0,0): of its beginning, and from there

    // tile: where the tile begins, in bytes; across: the second matrix is beside the first one, otherwise below it; the others follow.
    __device__ __forceinline__ MatrixRows(int tile, bool across)
    {
        const int matrix = lane_of() / 8, beside = across ? matrix % 2 : matrix / 2, below = across ? matrix / 2 : matrix % 2;
        const int number = below * 8 + lane_of() % 8;
        row = tile + number * columns * 2;
        chunk = (beside ^ Swizzle<columns>::turn(number)) * 16;
        if (Swizzle<columns>::whole) row += chunk;
    }
    __device__ __forceinline__ int at(int row_block, int column_block) const
    {
        constexpr int period = Swizzle<columns>::whole ? 4 : 2; // blocks of columns in which chunks change places: others are an offset
        const int turned = (Swizzle<columns>::whole ? row : chunk) ^ column_block % period * 32; // other bits than those of the row
        return row_block * 32 * columns + turned + column_block / period * period * 32 + (Swizzle<columns>::whole ? 0 : row);
    }
    __device__ __forceinline__ void move(int bytes) { row += bytes; }
};

// Copies of a thread that are unrolled at most: the addresses of more, as a block of one warp has, would not stay in registers.
constexpr int most_unrolled = 8;

// Copies the first `tile_rows` rows of an operand (tile.cuh, or another from.row()) to a tile, with zeros beyond the `rows` rows and
// `columns` columns that there are. Each of `threads` threads copies its part, which is on its way until copy_async_wait(); the others see
// it after a barrier. With `vectors` the operand's rows are aligned to 16 bytes.
template <int tile_rows, int tile_columns, int threads, bool vectors, class T, class Source>
__device__ __forceinline__ void load_rows(T *tile, const Source &from, int rows, int columns, unsigned thread)
{
    using Layout = Swizzle<tile_columns>;
    static_assert(tile_rows * Layout::chunks % threads == 0, "each thread copies as much as the others");
    const auto copy = [&](int i) {
        const unsigned e = thread + static_cast<unsigned>(i * threads), chunks = Layout::chunks; // without a sign division is shorter
        const int row = static_cast<int>(e / chunks), column = static_cast<int>(e % chunks) * 8;
        T *const to = tile + Layout::chunk(row, column / 8);
        const T *const source = from.row(row) + column;
        const int left = columns - column, whole = left < 0 ? 0 : left < 8 ? left : 8, count = row < rows ? whole : 0;
        if constexpr (vectors) {
            copy_async<16>(to, source, count * 2);
        } else {
            Vector<T, 8> values = {};
            TC_UNROLL
            for (int j = 0; j < 8; j++)
                if (j < count) values.at[j] = source[j];
            store_vector(to, values);
        }
    };
    constexpr int passes = tile_rows * Layout::chunks / threads;
    if constexpr (vectors && passes <= most_unrolled) {
        TC_UNROLL
        for (int i = 0; i < passes; i++) copy(i);
    } else {
        TC_ROLLED
        for (int i = 0; i < passes; i++) copy(i);
    }
}

// The same of a tile that is all there, for a loop over tiles: where a thread's copies are does not depend on the tile.
template <int tile_rows, int tile_columns, int threads, class T> struct WholeRows {
    using Layout = Swizzle<tile_columns>;
    static constexpr int passes = tile_rows * Layout::chunks / threads;
    static constexpr int group = passes < most_unrolled ? passes : passes % most_unrolled == 0 ? most_unrolled : passes / 2;
    static constexpr bool regular = Layout::whole && threads % Layout::chunks == 0; // a pass is whole rows
    static constexpr int pass_rows = threads / Layout::chunks;
    static_assert(passes % group == 0 && (!regular || pass_rows % 8 == 0 || (8 % pass_rows == 0 && group * pass_rows % 8 == 0)),
                  "what turns a row's chunks is known for each pass of a group");
    int64_t step;
    const T *from; // of the next tile
    int to;

    template <class Source> __device__ __forceinline__ WholeRows(const Source &source, unsigned thread) : step(source.across)
    {
        constexpr unsigned chunks = Layout::chunks;
        const int row = static_cast<int>(thread / chunks), chunk = static_cast<int>(thread % chunks);
        from = source.data + (regular ? row * step + chunk * 8 : 0);
        to = regular ? Layout::chunk(row, chunk) : static_cast<int>(thread);
    }
    // rows_on: from this tile to the next one.
    __device__ __forceinline__ void load(T *tile, int rows_on = tile_rows)
    {
        if constexpr (regular) {
            TC_ROLLED
            for (int first = 0; first < passes; first += group) {
                TC_UNROLL
                for (int i = 0; i < group; i++) // the bits of i that turn a row are others than those of its number in a pass
                    copy_async<16>(tile + (to ^ i * pass_rows % 8 * 8) + i * threads * 8, from + i * pass_rows * step);
                tile += group * threads * 8;
                from += group * pass_rows * step;
            }
            from += (rows_on - tile_rows) * step;
        } else {
            TC_ROLLED
            for (int first = 0; first < passes; first += group) TC_UNROLL
            for (int i = first; i < first + group; i++) {
                const int e = to + i * threads, row = e / Layout::chunks, chunk = e % Layout::chunks;
                copy_async<16>(tile + Layout::chunk(row, chunk), from + row * step + chunk * 8);
            }
            from += rows_on * step;
        }
    }
};

} // namespace tc
