/* attention.c: scaled dot-product attention, tiled: the (Tq, Tk) map is computed only when asked for. The gradients are in
 * attention_backward.c.
 *
 * Saved for the backward: q, k, v, masks and bias as they were given, values, and shift and sum of each row (2 B H Tq numbers); the map
 * when it was asked for. */
#include "../core/graph.h"
#include "attention_problem.h"

/* An error when a sum is 0: that row may attend to no key. */
static tc_status refuse_empty_rows(tc_scope *s, tc_tensor *sum)
{
    tc_tensor *host, *wide;
    TC_TRY(tc_tensor_on(&host, sum, (tc_device){TC_CPU, 0}, s->err));
    TC_TRY(tc_own(s, host));
    TC_TRY(tc_tensor_as(&wide, host, TC_FLOAT64, s->err));
    TC_TRY(tc_own(s, wide));
    for (int64_t i = 0; i < wide->numel; i++)
        if (((const double *)wide->data)[i] == 0.0)
            return tc_fail(s->err, TC_ERROR_VALUE,
                           "a query may attend to no key at all; with empty_rows \"zero\" or \"uniform\" such rows have a defined result");
    return TC_OK;
}

/* Where the options' tensors are. */
#define OPTION_TENSORS 5
static void find_tensors(tc_tensor **found[OPTION_TENSORS], tc_attention_options *o)
{
    found[0] = &o->mask;
    found[1] = &o->bias;
    found[2] = &o->key_lengths;
    found[3] = &o->causal_offsets;
    found[4] = &o->sequence_lengths;
}

enum { SAVED_Q, SAVED_K, SAVED_V, SAVED_VALUES, SAVED_ATTENTION, SAVED_SHIFT, SAVED_SUM, SAVED_OPTIONS };

typedef struct attention_attributes {
    tc_attention_options options; /* its tensors are saved, and its scale is the next member */
    double scale;
} attention_attributes;

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const attention_attributes *a = node->attributes;
    tc_attention_options options = a->options;
    TC_TRY(tc_check_drawn(&(tc_drawn){options.drawn_at, options.drawn_by}, err));
    tc_tensor **tensors[OPTION_TENSORS];
    find_tensors(tensors, &options);
    for (int i = 0; i < OPTION_TENSORS; i++) *tensors[i] = tc_node_saved(node, SAVED_OPTIONS + i);
    options.scale = &a->scale;
    const tc_attention_saved saved = {.q = tc_node_saved(node, SAVED_Q),
                                      .k = tc_node_saved(node, SAVED_K),
                                      .v = tc_node_saved(node, SAVED_V),
                                      .values = tc_node_saved(node, SAVED_VALUES),
                                      .attention = tc_node_saved(node, SAVED_ATTENTION),
                                      .shift = tc_node_saved(node, SAVED_SHIFT),
                                      .sum = tc_node_saved(node, SAVED_SUM)};
    return tc_attention_backward(tc_wanted(node, grad_inputs, ATTENTION_Q), tc_wanted(node, grad_inputs, ATTENTION_K),
                                 tc_wanted(node, grad_inputs, ATTENTION_V), tc_wanted(node, grad_inputs, ATTENTION_BIAS),
                                 tc_wanted(node, grad_inputs, ATTENTION_MASK), grad_outputs[0], grad_outputs[1], grad_outputs[2], &saved,
                                 &options, err);
}

static const tc_op attention_op = {"attention", backward, .attribute_bytes = sizeof(attention_attributes)};

tc_status tc_attention(tc_tensor **values, tc_tensor **attention, tc_tensor **lse, tc_tensor **shift, tc_tensor **sum, tc_tensor *q,
                       tc_tensor *k, tc_tensor *v, const tc_attention_options *options, tc_error *err)
{
    TC_SCOPE(s, err);
    TC_PLAN(plan);
    tc_input in[ATTENTION_INPUTS];
    attention_problem x;
    tc_attention_options here = *options;
    tc_attention_forward_args args = {0};
    tc_tensor *out, *map = NULL, *log_sum = NULL, *shifts, *sums;
    int64_t shape[TC_MAX_DIMS];
    here.share = tc_get_batch_share();
    const tc_drawn drawn = tc_tensor_on_cpu(q) ? (tc_drawn){.at = NULL} : tc_drawn_here();
    here.drawn_at = drawn.at;
    here.drawn_by = drawn.graph;
    attention_inputs(in, q, k, v, options);
    in[ATTENTION_Q].halves = in[ATTENTION_K].halves = in[ATTENTION_V].halves = true;
    TC_TRY(tc_begin(&s, in, ATTENTION_INPUTS));
    TC_TRY(attention_check(&x, &s, &here));
    TC_TRY(tc_prepare(&s));
    TC_TRY(attention_operands(&x, options));
    const tc_attention_problem *p = &x.kernel;
    TC_TRY(attention_result(&out, &args.values, &x, x.lead, x.queries, p->Dv, in[ATTENTION_Q].tensor));
    if (attention) TC_TRY(tc_make(&s, &map, attention_shape(shape, &x, x.score_lead, p->Tq, p->Tk), shape));
    const int rows = attention_shape(shape, &x, x.lead, x.queries, -1);
    TC_TRY(tc_make_statistic(&s, &shifts, rows, shape));
    TC_TRY(tc_make_statistic(&s, &sums, rows, shape));
    if (lse) TC_TRY(tc_make_statistic(&s, &log_sum, rows, shape));
    args.problem = *p;
    args.shift = shifts->data;
    args.sum = sums->data;
    args.lse = tc_data(log_sum);
    args.map = tc_data(map);
    TC_TRY(tc_plan_begin(&plan, s.device, s.compute, &tc_kernel_attention_forward, &args, NULL, err));
    plan.interruptible = true;
    TC_TRY(tc_plan_run(&plan, &args, err));
    if (options->empty_rows == TC_EMPTY_ROWS_RAISE) TC_TRY(refuse_empty_rows(&s, sums));
    attention_attributes a = {here, p->scale};
    tc_tensor *saved[SAVED_OPTIONS + OPTION_TENSORS] = {q, k, v, out, map, shifts, sums}, **tensors[OPTION_TENSORS];
    find_tensors(tensors, &a.options);
    for (int i = 0; i < OPTION_TENSORS; i++) saved[SAVED_OPTIONS + i] = *tensors[i];
    TC_TRY(
        tc_finish_all(&s, 3, (tc_result[]){{values, out}, {attention, map}, {lse, log_sum}},
                      &(tc_record){.op = &attention_op, .saved = saved, .saved_count = SAVED_OPTIONS + OPTION_TENSORS, .attributes = &a}));
    tc_give(&s, shift, shifts);
    tc_give(&s, sum, sums);
    return TC_OK;
}
