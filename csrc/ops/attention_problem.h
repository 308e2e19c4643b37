/* attention_problem.h: from tensors of any leading shape to the (B,H,T,D) operands that the kernels take. */
#ifndef TC_OPS_ATTENTION_PROBLEM_H
#define TC_OPS_ATTENTION_PROBLEM_H

#include "../kernels/attention.h"
#include "operands.h"

/* `scope` holds what was laid out anew. Leading axes [0, batch_axes) together are B, the one after them, if any, is H. */
typedef struct attention_problem {
    tc_old_scope scope;
    tc_device device;
    tc_dtype compute;
    int lead_ndim, batch_axes;
    int64_t lead[TC_MAX_DIMS];     /* leading axes of the results */
    int64_t key_lead[TC_MAX_DIMS]; /* the same with Hk in place of H */
    tc_attention_problem kernel;
} attention_problem;

/* Checks shapes and dtypes and fills in `problem`. q, k, v are of the compute dtype. attention_problem_end() also after a failure. */
TC_CHECKED tc_status attention_problem_begin(attention_problem *problem, tc_tensor *q, tc_tensor *k, tc_tensor *v,
                                             const tc_attention_options *options, tc_error *err);
void attention_problem_end(attention_problem *problem);

/* Floating q, k, v and additive terms of one dtype, everything on one device. */
TC_CHECKED tc_status attention_check_dtypes(const tc_tensor *q, const tc_tensor *k, const tc_tensor *v, const tc_attention_options *options,
                                            tc_error *err);

/* `tensor` of shape lead + (T, D) for the kernels, copied when its last axis or its leading axes are not laid out so that they can be read
 * in place. */
TC_CHECKED tc_status attention_operand(attention_problem *problem, tc_attention_operand *out, tc_tensor *tensor, const int64_t *lead,
                                       tc_error *err);

/* A new tensor lead + (T, D); `as` (a tensor of the same leading shape, or NULL) is followed in whether heads lie inside rows, (B,T,H,D) in
 * memory. */
TC_CHECKED tc_status attention_result(tc_tensor **out, tc_attention_operand *operand, const attention_problem *problem, const int64_t *lead,
                                      int64_t T, int64_t D, const tc_tensor *as, tc_error *err);

/* A term of the scores for the kernels, copied when its leading axes cannot be read as two. */
TC_CHECKED tc_status attention_plane(attention_problem *problem, tc_attention_plane *out, tc_tensor *mask, tc_error *err);

#endif
