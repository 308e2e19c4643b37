/* test_tape.c: a backward that gives a gradient of a wrong shape is an error, and the leaf keeps what it had. */
#include "check.h"
#include "core/tape.h"
#include "transformer_c.h"

static tc_tensor *wrong; /* the gradient given */

static tc_status give_wrong(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    (void)node, (void)grad_outputs, (void)err;
    grad_inputs[0] = tc_tensor_retain(wrong);
    return TC_OK;
}

static const tc_op planted = {.name = "planted", .backward = give_wrong};

static tc_tensor *ones(int ndim, const int64_t *shape)
{
    tc_error err;
    tc_tensor *made = NULL;
    CHECK(tc_tensor_full(&made, ndim, shape, 1.0, TC_FLOAT32, (tc_device){TC_CPU, 0}, &err) == TC_OK);
    return made;
}

static void try_shape(int ndim, const int64_t *shape, bool is_right)
{
    tc_error err;
    tc_tensor *x = ones(2, (int64_t[]){2, 3}), *y = ones(0, NULL);
    wrong = ones(ndim, shape);
    CHECK(tc_tensor_set_requires_grad(x, true, &err) == TC_OK);
    const tc_record record = {
        .op = &planted, .input_count = 1, .inputs = (tc_tensor *[]){x}, .output_count = 1, .outputs = (tc_tensor *[]){y}};
    CHECK(tc_tape_record(&record, &err) == TC_OK);
    const tc_status status = tc_backward(y, NULL, false, &err);
    CHECK((status == TC_OK) == is_right);
    CHECK((tc_tensor_grad(x) != NULL) == is_right);
    if (!is_right) CHECK(strstr(err.message, "planted") && strstr(err.message, "input 0"));
    tc_tensor_release(x), tc_tensor_release(y), tc_tensor_release(wrong);
}

int main(void)
{
    tc_error err;
    CHECK(tc_initialize(&err) == TC_OK);
    try_shape(2, (int64_t[]){2, 3}, true);
    try_shape(2, (int64_t[]){3, 2}, false);
    try_shape(1, (int64_t[]){6}, false);
    try_shape(1, (int64_t[]){2}, false);
    try_shape(3, (int64_t[]){1, 2, 3}, false);
    try_shape(3, (int64_t[]){2, 3, 1}, false);
    try_shape(0, NULL, false);
    try_shape(2, (int64_t[]){0, 3}, false);
    return check_finish();
}
