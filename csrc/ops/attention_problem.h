/* attention_problem.h: from tensors of any leading shape to the (B,H,T,D) operands that the kernels take. */
#ifndef TC_OPS_ATTENTION_PROBLEM_H
#define TC_OPS_ATTENTION_PROBLEM_H

#include "../kernels/attention.h"
#include "op.h"

/* The op's inputs, in the order of the tape. A mask that is not added to the scores is not among them: it gets no gradient. */
enum { ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_BIAS, ATTENTION_MASK, ATTENTION_INPUTS };

/* Leading axes [0, batch_axes) together are B, the one after them, if any, is H. */
typedef struct attention_problem {
    tc_scope *scope; /* owns the copies */
    int lead_ndim, batch_axes;
    int64_t lead[TC_MAX_DIMS];     /* leading axes of the results */
    int64_t key_lead[TC_MAX_DIMS]; /* the same with Hk in place of H */
    /* Packed sequences are a batch of scores, but one element of q, k, v and values. */
    int64_t score_lead[TC_MAX_DIMS]; /* leading axes of scores, masks and map */
    int64_t queries, keys;           /* rows of q, and of k and v */
    tc_tensor *starts;               /* where each sequence begins, and the end of the last, on the host; NULL: not packed */
    tc_attention_problem kernel;
} attention_problem;

/* Fills in in[0 .. ATTENTION_INPUTS), for tc_begin. */
void attention_inputs(tc_input *in, tc_tensor *q, tc_tensor *k, tc_tensor *v, const tc_attention_options *options);

/* After tc_begin with those inputs first: checks shapes and options. Nothing is allocated. */
TC_CHECKED tc_status attention_check(attention_problem *x, tc_scope *scope, const tc_attention_options *options);
/* After tc_prepare: the kernel's operands. */
TC_CHECKED tc_status attention_operands(attention_problem *x, const tc_attention_options *options);

/* *shape = lead + (rows, columns), or lead + (rows) when columns is -1. Returns how many axes. */
int attention_shape(int64_t shape[TC_MAX_DIMS], const attention_problem *x, const int64_t *lead, int64_t rows, int64_t columns);

/* `tensor` of shape lead + (T, D), copied when its last axis or its leading axes are not laid out so that they can be read in place. */
TC_CHECKED tc_status attention_operand(attention_problem *x, tc_attention_operand *out, tc_tensor *tensor, const int64_t *lead);
/* A term of the scores, copied when its leading axes cannot be read as two. */
TC_CHECKED tc_status attention_plane(attention_problem *x, tc_attention_plane *out, tc_tensor *term);

/* A new tensor lead + (T, D), which the scope owns. It is laid out as `like`, a tensor of the same leading shape: with heads inside rows,
 * (B,T,H,D) in memory, when that is. */
TC_CHECKED tc_status attention_result(tc_tensor **out, tc_attention_operand *operand, attention_problem *x, const int64_t *lead, int64_t T,
                                      int64_t D, const tc_tensor *like);

#endif
