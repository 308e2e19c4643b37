/* ops_embedding.c: embedding, one-hot and pooling, as Python sees them. */
#include "binding.h"

#define RUN(name, expression)                                                                                                              \
    static PyObject *run_##name(tcpy_call *call)                                                                                           \
    {                                                                                                                                      \
        const tcpy_value *v = call->v;                                                                                                     \
        tc_tensor *y = NULL;                                                                                                               \
        tc_error err;                                                                                                                      \
        tc_status status;                                                                                                                  \
        TCPY_COMPUTE(call, status, expression);                                                                                            \
        return tcpy_result1(call, status, &err, y);                                                                                        \
    }

RUN(embedding, tc_embedding(&y, v[0].t, v[1].t, !v[2].none, v[2].none ? 0 : v[2].i, &err))
RUN(embedding_backward, tc_embedding_backward(&y, v[0].t, v[1].t, v[2].i, !v[3].none, v[3].none ? 0 : v[3].i, &err))
RUN(one_hot, tc_one_hot(&y, v[0].t, v[1].i, &err))
RUN(global_max_pool1d, tc_global_max_pool1d(&y, v[0].t, &err))

const tcpy_op tcpy_ops_embedding[] = {
    {"embedding", "indices:t weight:t padding_idx:i?=None", run_embedding, "Rows of a table; the row padding_idx gets no gradient.", 0},
    {"embedding_backward", "dy:t indices:t num_embeddings:i padding_idx:i?=None", run_embedding_backward, "dweight of embedding.", 0},
    {"one_hot", "x:t num_classes:i=-1", run_one_hot,
     "Integers as int64 rows of zeros with a one; num_classes -1: one more than the largest.", 0},
    {"global_max_pool1d", "x:t", run_global_max_pool1d, "The largest over T of x (B, T, C); the first of equal maxima gets the gradient.",
     0},
    {NULL, NULL, NULL, NULL, 0},
};
