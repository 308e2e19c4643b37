/* encoder_block_backward.c: the gradients of a whole encoder block, on a GPU, by one launch for all but the sums over the batch, which a
 * second one adds up. Saved are the inputs alone: x and the parameters, and the mask. */
#include "encoder_block.h"

/* Of the parameters, each in memory of its own, those that somebody wants. */
static tc_status sum_chunks(tc_scope *s, tc_node *node, tc_tensor **grad_inputs, const tc_tensor *partial,
                            const tc_encoder_block_places *places, tc_result *results)
{
    tc_encoder_block_sums_args a = {.partial = partial->data, .chunks = partial->shape[0], .places = *places};
    tc_dtype dtype = s->compute;
    for (int i = 0; i < TC_ENCODER_BLOCK_PARAMETERS; i++) {
        const tc_dtype own = tc_weight_gradient_dtype(s, tc_node_saved(node, 1 + i));
        results[i] = (tc_result){.out = tc_wanted(node, grad_inputs, 1 + i), .wide = own != s->compute};
        if (results[i].wide) dtype = own;
    }
    for (int i = 0; i < TC_ENCODER_BLOCK_PARAMETERS; i++) {
        const tc_tensor *parameter = tc_node_saved(node, 1 + i);
        if (!results[i].out) continue;
        TC_TRY(tc_make_as(s, &results[i].tensor, parameter->ndim, parameter->shape, dtype));
        a.out[i] = results[i].tensor->data;
    }
    return tc_run_interruptible(s->device, dtype, &tc_kernel_encoder_block_sums, &a, 1, (double)(a.chunks * places->end), s->err);
}

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    TC_SCOPE(s, err);
    const tc_block_attributes *attributes = node->attributes;
    tc_tensor *const x = tc_node_saved(node, TC_BLOCK_X), *dx, *partial;
    tc_input in[1 + TC_BLOCK_INPUTS] = {{"dy", grad_outputs[0]}};
    tc_encoder_block_backward_args a = {0};
    for (int i = 0; i < TC_BLOCK_INPUTS; i++) in[1 + i] = (tc_input){tc_block_names[i], tc_node_saved(node, i)};
    for (int i = 0; i < TC_ENCODER_BLOCK_MASKS; i++) TC_TRY(tc_check_mask(&attributes->dropped[i], err));
    TC_TRY(tc_begin_backward(&s, in, 1 + TC_BLOCK_INPUTS));
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_block_describe(&s, &a.block, in + 1, attributes, tc_node_saved(node, TC_BLOCK_MASK)));

    const tc_encoder_block_places places = tc_encoder_block_places_of(a.block.E, a.block.up.N);
    a.chunk = tc_encoder_block_chunk(a.block.B, &places);
    const int64_t chunks = x->numel ? tc_divide_up(a.block.B, a.chunk) : 0;
    TC_TRY(tc_make(&s, &dx, x->ndim, x->shape));
    TC_TRY(tc_make_statistic(&s, &partial, 2, (int64_t[]){chunks, places.end}));
    a.dx = dx->data, a.partial = partial->data;
    a.dy = in[0].data;
    TC_TRY(tc_compute(&s, &tc_kernel_encoder_block_backward, &a, chunks, 1.0));

    tc_result results[TC_BLOCK_INPUTS] = {{tc_wanted(node, grad_inputs, TC_BLOCK_X), dx}};
    TC_TRY(sum_chunks(&s, node, grad_inputs, partial, &places, results + 1));
    return tc_give_rounded(&s, TC_BLOCK_INPUTS, results);
}

const tc_op tc_encoder_block_op = {"encoder_block", backward, .attribute_bytes = sizeof(tc_block_attributes)};
