/* encoder_block.h: what the two sides of the op have in common. */
#ifndef TC_OPS_ENCODER_BLOCK_H
#define TC_OPS_ENCODER_BLOCK_H

#include "../kernels/encoder_block.h"
#include "dropout.h"
#include "op.h"

/* x and the parameters, among the inputs of the forward and, one further, of the backward. */
enum {
    TC_BLOCK_X,
    TC_BLOCK_QKV,
    TC_BLOCK_QKV_BIAS,
    TC_BLOCK_OUT,
    TC_BLOCK_OUT_BIAS,
    TC_BLOCK_UP,
    TC_BLOCK_UP_BIAS,
    TC_BLOCK_DOWN,
    TC_BLOCK_DOWN_BIAS,
    TC_BLOCK_GAMMA1,
    TC_BLOCK_BETA1,
    TC_BLOCK_GAMMA2,
    TC_BLOCK_BETA2,
    TC_BLOCK_INPUTS,
    TC_BLOCK_MASK = TC_BLOCK_INPUTS /* of what is saved */
};
extern const char *const tc_block_names[TC_BLOCK_INPUTS];

/* Plain data: an attribute of what is recorded. */
typedef struct tc_block_attributes {
    int64_t num_heads;
    tc_activation activation;
    bool norm_first;
    double eps[2];
    tc_drawn_mask dropped[TC_ENCODER_BLOCK_MASKS];
} tc_block_attributes;

/* The args of a prepared x and its parameters, but for y, and without plans of products; in: those of TC_BLOCK_X and what follows. */
TC_CHECKED tc_status tc_block_describe(tc_scope *s, tc_encoder_block_args *args, const tc_input *in, const tc_block_attributes *attributes,
                                       tc_tensor *mask);

extern const tc_op tc_encoder_block_op;

#endif
