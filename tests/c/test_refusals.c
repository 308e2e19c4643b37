/* test_refusals.c: what a C program can pass and the Python layer never does. Wrong numbers and shapes are refused with a message, and
 * nothing is written. */
#include "check.h"
#include "transformer_c.h"

#define REFUSED(call, part)                                                                                                                \
    do {                                                                                                                                   \
        tc_error err = {.message = ""};                                                                                                    \
        const tc_status status = call;                                                                                                     \
        CHECK(status != TC_OK && !out);                                                                                                    \
        CHECK_TEXT(err.message, part);                                                                                                     \
    } while (0)

static tc_tensor *ones(int ndim, const int64_t *shape, tc_dtype dtype)
{
    tc_error err;
    tc_tensor *made = NULL;
    CHECK(tc_tensor_full(&made, ndim, shape, 1.0, dtype, (tc_device){TC_CPU, 0}, &err) == TC_OK);
    return made;
}

int main(void)
{
    tc_error error;
    CHECK(tc_initialize(&error) == TC_OK);
    tc_tensor *out = NULL;
    tc_tensor *x = ones(2, (int64_t[]){2, 3}, TC_FLOAT32), *wide = ones(2, (int64_t[]){2, 3}, TC_FLOAT64);
    tc_tensor *whole = ones(2, (int64_t[]){2, 3}, TC_INT64), *row = ones(1, (int64_t[]){3}, TC_FLOAT32);
    const int64_t many[TC_MAX_DIMS + 2] = {0}, length = 3;

    REFUSED(tc_reduce_backward(&out, row, x, NULL, TC_REDUCE_any, 1, (int64_t[]){0}, &err), "any has no gradient");
    REFUSED(tc_reduce_backward(&out, row, x, NULL, TC_REDUCE_all, 1, (int64_t[]){0}, &err), "all has no gradient");
    REFUSED(tc_reduce_backward(&out, row, x, NULL, TC_REDUCE_max, 1, (int64_t[]){0}, &err), "y, the result of max, is needed");
    REFUSED(tc_add_layer_norm(&out, NULL, NULL, NULL, x, NULL, 1, &length, NULL, NULL, 1e-5, 0.5, 0, 0, &err), "residual is NULL");
    REFUSED(tc_pad(&out, x, 1, many, 0.0, &err), "pad has 1 numbers");
    REFUSED(tc_pad(&out, x, 6, many, 0.0, &err), "pad has 6 numbers");
    REFUSED(tc_pad_backward(&out, x, TC_MAX_DIMS + 2, many, &err), "at most 16 are possible");
    REFUSED(tc_split(&out, x, 0, (int64_t)INT32_MAX + 1, many, false, &err), "2147483648 pieces are too many");

    REFUSED(tc_tensor_set_grad(x, row, &err), "they must be equal");
    REFUSED(tc_tensor_set_grad(x, wide, &err), "grad is float64 but the tensor is float32");
    REFUSED(tc_tensor_set_grad(x, x, &err), "cannot be its own gradient");
    REFUSED(tc_tensor_set_grad_slot(x, row, &err), "must have the parameter's shape and dtype");
    REFUSED(tc_tensor_set_grad_slot(x, wide, &err), "must have the parameter's shape and dtype");
    CHECK(tc_tensor_set_requires_grad(x, true, &error) == TC_OK);
    REFUSED(tc_tensor_set_data(x, whole, &err), "the new data is int64");
    CHECK(tc_tensor_set_requires_grad(x, false, &error) == TC_OK);
    CHECK(!tc_tensor_grad(x) && tc_tensor_dtype(x) == TC_FLOAT32);

    const tc_tensors one = {.items = &x, .count = 1}, none = {.items = NULL, .count = 0};
    REFUSED(tc_sgd_step(&one, &none, NULL, 0.1, 0.0, 0.0, 0.0, false, false, true, NULL, &err), "lists of different lengths, 0 and 1");

    CHECK(tc_tensor_ndim(x) == 2 && tc_tensor_shape(x)[1] == 3 && tc_tensor_strides(x)[0] == 3 && tc_tensor_is_contiguous(x));
    const tc_argument large = {.scalar = tc_scalar_integer((1LL << 53) + 1)}, half = {.scalar = tc_scalar_real(0.5)};
    CHECK(tc_binary_arguments(&out, &large, &large, TC_BINARY_sub, &error) == TC_OK && tc_tensor_dtype(out) == TC_INT64);
    CHECK(*(int64_t *)tc_tensor_data(out) == 0);
    tc_tensor_release(out);
    CHECK(tc_binary_arguments(&out, &large, &half, TC_BINARY_mul, &error) == TC_OK && tc_tensor_dtype(out) == TC_FLOAT32);
    CHECK(*(float *)tc_tensor_data(out) == (float)(1LL << 52));
    tc_tensor_release(out);

    tc_tensor_release(x), tc_tensor_release(wide), tc_tensor_release(whole), tc_tensor_release(row);
    return check_finish();
}
