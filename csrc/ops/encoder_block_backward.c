/* encoder_block_backward.c: the gradients of a whole encoder block, on a GPU, by one launch for all but the sums over the batch, which a
 * second one adds up. Saved are the inputs alone: x and the parameters, and the mask. */
#include "encoder_block.h"

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    TC_SCOPE(s, err);
    const tc_block_attributes *attributes = node->attributes;
    tc_tensor *const x = tc_node_saved(node, TC_BLOCK_X), *dx, *partial, *sums;
    tc_input in[1 + TC_BLOCK_INPUTS] = {{"dy", grad_outputs[0]}};
    tc_encoder_block_backward_args a = {.chunk = tc_divide_up(x->shape[0], TC_ENCODER_BLOCK_CHUNKS)};
    for (int i = 0; i < TC_BLOCK_INPUTS; i++) in[1 + i] = (tc_input){tc_block_names[i], tc_node_saved(node, i)};
    for (int i = 0; i < TC_ENCODER_BLOCK_MASKS; i++) TC_TRY(tc_check_mask(&attributes->dropped[i], err));
    TC_TRY(tc_begin_backward(&s, in, 1 + TC_BLOCK_INPUTS));
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_block_describe(&s, &a.block, in + 1, attributes, tc_node_saved(node, TC_BLOCK_MASK)));

    const tc_encoder_block_places places = tc_encoder_block_places_of(a.block.E, a.block.up.N);
    const int64_t chunks = x->numel ? tc_divide_up(a.block.B, a.chunk) : 0, total = places.end;
    TC_TRY(tc_make(&s, &dx, x->ndim, x->shape));
    TC_TRY(tc_make_statistic(&s, &partial, 2, (int64_t[]){chunks, total}));
    a.dx = dx->data, a.partial = partial->data;
    a.dy = in[0].data;
    TC_TRY(tc_compute(&s, &tc_kernel_encoder_block_backward, &a, chunks, 1.0));

    tc_result results[TC_BLOCK_INPUTS] = {{tc_wanted(node, grad_inputs, TC_BLOCK_X), dx}};
    tc_dtype dtype = s.compute;
    for (int i = 1; i < TC_BLOCK_INPUTS; i++) {
        const tc_dtype own = tc_weight_gradient_dtype(&s, tc_node_saved(node, i));
        results[i] = (tc_result){.out = tc_wanted(node, grad_inputs, i), .wide = own != s.compute};
        if (results[i].wide) dtype = own;
    }
    TC_TRY(tc_sum_rows(&s, &sums, partial, 1, &total, dtype));
    for (int i = 1; i < TC_BLOCK_INPUTS; i++) {
        const tc_tensor *parameter = tc_node_saved(node, i);
        const int64_t strides[2] = {parameter->ndim == 2 ? parameter->shape[1] : 1, 1};
        TC_TRY(tc_make_view(&s, &results[i].tensor, sums, parameter->ndim, parameter->shape, strides, places.begin[i - 1]));
    }
    return tc_give_rounded(&s, TC_BLOCK_INPUTS, results);
}

const tc_op tc_encoder_block_op = {"encoder_block", backward, .attribute_bytes = sizeof(tc_block_attributes)};
