/* integer_product.c: products of integer matrices in one plain loop: speed does not matter here. It does not depend on the compute dtype,
 * so the float64 table shares the float32 table's function. */
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

/* c (N) = a (K) B (K,N); unsigned, so that overflow wraps. */
#define ROW_PRODUCT(name, type, add)                                                                                                       \
    static void row_product_##name(type *c, const type *a, const type *b, const tc_gemm_args *g)                                           \
    {                                                                                                                                      \
        for (int64_t n = 0; n < g->N; n++) c[n] = 0;                                                                                       \
        for (int64_t k = 0; k < g->K; k++) {                                                                                               \
            const type x = a[k * g->a_col];                                                                                                \
            for (int64_t n = 0; n < g->N; n++) {                                                                                           \
                const type y = b[k * g->b_row + n * g->b_col];                                                                             \
                c[n] = (type)(add);                                                                                                        \
            }                                                                                                                              \
        }                                                                                                                                  \
    }
ROW_PRODUCT(int64, uint64_t, c[n] + x * y)
ROW_PRODUCT(int32, uint32_t, c[n] + x * y)
ROW_PRODUCT(uint8, uint8_t, c[n] + x * y)
ROW_PRODUCT(bool, uint8_t, c[n] | (x && y))

TC_DEFINE_KERNEL(integer_product)(const void *args, int64_t begin, int64_t end, void *scratch)
{
    const tc_integer_product_args *p = args;
    const tc_gemm_args *g = &p->product;
    (void)scratch;
    for (int64_t item = begin; item < end; item++) {
        int64_t batch = item / g->M, a = item % g->M * g->a_row, b = 0, c = item % g->M * g->c_row;
        for (int d = g->batch_dims - 1; d >= 0; batch /= g->batch_shape[d--]) {
            const int64_t index = batch % g->batch_shape[d];
            a += index * g->a_batch[d], b += index * g->b_batch[d], c += index * g->c_batch[d];
        }
        switch (p->dtype) {
        case TC_INT64: row_product_int64((uint64_t *)g->c + c, (const uint64_t *)g->a + a, (const uint64_t *)g->b + b, g); break;
        case TC_INT32: row_product_int32((uint32_t *)g->c + c, (const uint32_t *)g->a + a, (const uint32_t *)g->b + b, g); break;
        case TC_UINT8: row_product_uint8((uint8_t *)g->c + c, (const uint8_t *)g->a + a, (const uint8_t *)g->b + b, g); break;
        default: row_product_bool((uint8_t *)g->c + c, (const uint8_t *)g->a + a, (const uint8_t *)g->b + b, g); break;
        }
    }
}

#endif
