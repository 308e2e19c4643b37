/* integer_product.c: products of integer matrices. They do not depend on the compute dtype, so the float64 table shares the float32 table's
 * function. */
#include <string.h>

#include "../integer_product.h"
#include "simd.h"

#if TC_PRECISION == 64
#define PRODUCT_F32(isa) TC_PASTE4(tc_integer_product, _f32_, isa, )
void PRODUCT_F32(TC_ISA)(const void *args, int64_t begin, int64_t end, void *scratch);
TC_DEFINE_KERNEL(integer_product)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    PRODUCT_F32(TC_ISA)(args, begin, end, scratch);
}
#else

/* Columns of B are packed in panels of K_BLOCK rows, and rows of C computed by ROWS, so that the sums of a tile stay in registers.
 * Unsigned, so that overflow wraps: the sums do not depend on their order. */
enum { K_BLOCK = 128, ROWS = 4, VECTORS = 2, PANEL_BYTES = VECTORS * (int)sizeof(vreal) };

/* C (rows,N) = A (rows,K) B (K,N), of elements that `read` makes of those in memory. B is not packed for a few rows, if those in memory
 * will do. */
#define ROWS_PRODUCT(name, type, read, add, reads_in_place)                                                                                \
    typedef type name##_lanes __attribute__((vector_size(sizeof(vreal))));                                                                 \
    enum { name##_width = PANEL_BYTES / (int)sizeof(type) };                                                                               \
    TC_INLINE void pack_##name(type *panel, const type *b, int64_t row, int64_t col, int64_t depth, int64_t width)                         \
    {                                                                                                                                      \
        if (width < name##_width) memset(panel, 0, (size_t)depth *PANEL_BYTES);                                                            \
        if (row == 1 && col != 1) {                                                                                                        \
            for (int64_t n = 0; n < width; n++)                                                                                            \
                for (int64_t k = 0; k < depth; k++) panel[k * name##_width + n] = read(b[k + n * col]);                                    \
            return;                                                                                                                        \
        }                                                                                                                                  \
        for (int64_t k = 0; k < depth; k++)                                                                                                \
            for (int64_t n = 0; n < width; n++) panel[k * name##_width + n] = read(b[k * row + n * col]);                                  \
    }                                                                                                                                      \
    TC_INLINE void tile_##name(const int rows, type *c, const type *a, const type *panel, int64_t panel_row, int64_t depth, int64_t width, \
                               bool first, const tc_gemm_args *g)                                                                          \
    {                                                                                                                                      \
        name##_lanes kept[ROWS][VECTORS], sums[ROWS][VECTORS]; /* those in memory, and in registers */                                     \
        memset(kept, 0, sizeof kept);                                                                                                      \
        for (int i = 0; i < rows && !first; i++) memcpy(kept[i], c + i * g->c_row, (size_t)width * sizeof *c);                             \
        TC_UNROLL                                                                                                                          \
        for (int i = 0; i < rows * VECTORS; i++) sums[i / VECTORS][i % VECTORS] = kept[i / VECTORS][i % VECTORS];                          \
        for (int64_t k = 0; k < depth; k++) {                                                                                              \
            name##_lanes y[VECTORS];                                                                                                       \
            TC_UNROLL                                                                                                                      \
            for (int v = 0; v < VECTORS; v++) memcpy(&y[v], panel + k * panel_row + v * (name##_width / VECTORS), sizeof y[v]);            \
            TC_UNROLL                                                                                                                      \
            for (int i = 0; i < rows; i++) {                                                                                               \
                const name##_lanes x = (name##_lanes){0} + read(a[i * g->a_row + k * g->a_col]);                                           \
                TC_UNROLL                                                                                                                  \
                for (int v = 0; v < VECTORS; v++) sums[i][v] = add(sums[i][v], x, y[v]);                                                   \
            }                                                                                                                              \
        }                                                                                                                                  \
        TC_UNROLL                                                                                                                          \
        for (int i = 0; i < rows * VECTORS; i++) kept[i / VECTORS][i % VECTORS] = sums[i / VECTORS][i % VECTORS];                          \
        for (int i = 0; i < rows; i++) memcpy(c + i * g->c_row, kept[i], (size_t)width * sizeof *c);                                       \
    }                                                                                                                                      \
    TC_INLINE type dot_##name(const type *a, int64_t a_col, const type *b, int64_t b_row, int64_t K)                                       \
    {                                                                                                                                      \
        type sum = 0;                                                                                                                      \
        for (int64_t k = 0; k < K; k++) sum = (type)add(sum, read(a[k * a_col]), read(b[k * b_row]));                                      \
        return sum;                                                                                                                        \
    }                                                                                                                                      \
    static void rows_product_##name(type *c, const type *a, const type *b, int64_t rows, const tc_gemm_args *g)                            \
    {                                                                                                                                      \
        type panel[K_BLOCK * name##_width];                                                                                                \
        for (int64_t m = 0; m < rows && g->N == 1; m++)                                                                                    \
            c[m * g->c_row] = g->a_col == 1 && g->b_row == 1 ? dot_##name(a + m * g->a_row, 1, b, 1, g->K)                                 \
                                                             : dot_##name(a + m * g->a_row, g->a_col, b, g->b_row, g->K);                  \
        for (int64_t n = 0; n < g->N && g->N > 1; n += name##_width) {                                                                     \
            const int64_t width = g->N - n < name##_width ? g->N - n : name##_width;                                                       \
            for (int64_t k = 0; k == 0 || k < g->K; k += K_BLOCK) {                                                                        \
                const int64_t depth = g->K - k < K_BLOCK ? g->K - k : K_BLOCK;                                                             \
                const type *y = b + k * g->b_row + n * g->b_col;                                                                           \
                const bool in_place = reads_in_place && rows < ROWS && g->b_col == 1 && width == name##_width;                             \
                const int64_t y_row = in_place ? g->b_row : name##_width;                                                                  \
                if (!in_place) pack_##name(panel, y, g->b_row, g->b_col, depth, width), y = panel;                                         \
                int64_t m = 0;                                                                                                             \
                for (; m + ROWS <= rows; m += ROWS)                                                                                        \
                    tile_##name(ROWS, c + m * g->c_row + n, a + m * g->a_row + k * g->a_col, y, y_row, depth, width, k == 0, g);           \
                for (; m < rows; m++)                                                                                                      \
                    tile_##name(1, c + m * g->c_row + n, a + m * g->a_row + k * g->a_col, y, y_row, depth, width, k == 0, g);              \
            }                                                                                                                              \
        }                                                                                                                                  \
    }
#define AS_IT_IS(x) (x)
#define IS_TRUE(x) ((uint8_t)((x) != 0))
#define ADD_PRODUCT(sum, x, y) ((sum) + (x) * (y))
#define ANY(sum, x, y) ((sum) | ((x) & (y)))
ROWS_PRODUCT(int64, uint64_t, AS_IT_IS, ADD_PRODUCT, true)
ROWS_PRODUCT(int32, uint32_t, AS_IT_IS, ADD_PRODUCT, true)
ROWS_PRODUCT(uint8, uint8_t, AS_IT_IS, ADD_PRODUCT, true)
ROWS_PRODUCT(bool, uint8_t, IS_TRUE, ANY, false)

TC_DEFINE_KERNEL(integer_product)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_integer_product_args *p = args;
    const tc_gemm_args *g = &p->product;
    (void)scratch;
    for (int64_t item = begin, rows; item < end; item += rows) {
        const int64_t left = g->M - item % g->M;
        rows = left < end - item ? left : end - item;
        int64_t batch = item / g->M, a = item % g->M * g->a_row, b = 0, c = item % g->M * g->c_row;
        for (int d = g->batch_dims - 1; d >= 0; batch /= g->batch_shape[d--]) {
            const int64_t index = batch % g->batch_shape[d];
            a += index * g->a_batch[d], b += index * g->b_batch[d], c += index * g->c_batch[d];
        }
        switch (p->dtype) {
        case TC_INT64: rows_product_int64((uint64_t *)g->c + c, (const uint64_t *)g->a + a, (const uint64_t *)g->b + b, rows, g); break;
        case TC_INT32: rows_product_int32((uint32_t *)g->c + c, (const uint32_t *)g->a + a, (const uint32_t *)g->b + b, rows, g); break;
        case TC_UINT8: rows_product_uint8((uint8_t *)g->c + c, (const uint8_t *)g->a + a, (const uint8_t *)g->b + b, rows, g); break;
        default: rows_product_bool((uint8_t *)g->c + c, (const uint8_t *)g->a + a, (const uint8_t *)g->b + b, rows, g); break;
        }
    }
}

#endif
