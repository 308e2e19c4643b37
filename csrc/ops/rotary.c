/* rotary.c: rotary position embedding (Su et al. 2021, eq. 34): the pairs of a row are rotated by angles that grow with its position,
 * so that the product of two rows depends on their distance.
 *
 * Saved for the backward: the positions, where they were given. The gradient is dy, rotated back. */
#include "../kernels/rotary.h"

#include <math.h>
#include <string.h>

#include "op.h"

typedef struct rotary_attributes {
    double base;
    tc_pairing pairing;
    bool inverse;
} rotary_attributes;

static tc_status backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const rotary_attributes *a = node->attributes;
    return tc_rotary(&grad_inputs[0], grad_outputs[0], tc_node_saved(node, 0), a->base, a->pairing, !a->inverse, err);
}

static const tc_op rotary_op = {"rotary", backward, .attribute_bytes = sizeof(rotary_attributes)};

static tc_status check(tc_scope *s, const tc_tensor *x, const tc_tensor *positions, double base)
{
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (x->ndim < 2 || x->shape[x->ndim - 1] % 2 != 0)
        return tc_fail(s->err, TC_ERROR_VALUE, "x has shape %s; expected (..., T, D) with an even D, whose numbers are turned in pairs",
                       tc_tensor_text(a, x));
    if (!(base > 0.0 && isfinite(base))) return tc_fail(s->err, TC_ERROR_VALUE, "base is %g; it must be a positive number", base);
    if (!positions) return TC_OK;
    TC_TRY(tc_check_same_device(x, "x", positions, "positions", s->err));
    TC_TRY(tc_check_constant(positions, "positions", s->err));
    if (positions->dtype == TC_BOOL) return tc_fail(s->err, TC_ERROR_TYPE, "positions is bool; numbers are needed");
    const int rows = x->ndim - 1;
    bool fits = positions->ndim <= rows;
    for (int i = 1; fits && i <= positions->ndim; i++)
        fits = positions->shape[positions->ndim - i] == 1 || positions->shape[positions->ndim - i] == x->shape[rows - i];
    if (fits) return TC_OK;
    return tc_fail(s->err, TC_ERROR_VALUE,
                   "positions has shape %s, which does not broadcast to the rows %s of x; for (B, T) write positions[:, None, :]",
                   tc_tensor_text(a, positions), tc_shape_text(b, rows, x->shape));
}

/* *cosine, *sine (n, D/2) of the angles of n positions: those given, or 0, 1, ... */
static tc_status make_table(tc_scope *s, tc_tensor **cosine, tc_tensor **sine, tc_tensor *positions, int64_t n, int64_t D, double base)
{
    const int64_t shape[2] = {n, D / 2};
    tc_rotary_table_args args = {.D = D, .base = base};
    if (positions) {
        TC_TRY(tc_tensor_as(&positions, positions, TC_FLOAT64, s->err));
        TC_TRY(tc_own(s, positions));
        args.positions = (const double *)(const void *)positions->data;
    }
    TC_TRY(tc_make_statistic(s, cosine, 2, shape));
    TC_TRY(tc_make_statistic(s, sine, 2, shape));
    args.cosine = (*cosine)->data;
    args.sine = (*sine)->data;
    return tc_run(s->device, s->statistics, &tc_kernel_rotary_table, &args, n, 4.0 * (double)D, (size_t)(D / 2) * sizeof(double), s->err);
}

/* out = x, turned; x is prepared and not empty. */
static tc_status turn(tc_scope *s, tc_tensor *out, const tc_input *in, tc_tensor *positions, const rotary_attributes *how)
{
    const tc_tensor *x = in->given;
    const int64_t D = x->shape[x->ndim - 1], T = x->shape[x->ndim - 2];
    tc_tensor *cosine, *sine;
    TC_TRY(make_table(s, &cosine, &sine, positions, positions ? positions->numel : T, D, how->base));
    tc_rotary_args args = {.y = out->data,
                           .x = in->data,
                           .cosine = cosine->data,
                           .sine = sine->data,
                           .D = D,
                           .ndim = x->ndim - 1,
                           .interleaved = how->pairing == TC_PAIRING_INTERLEAVED,
                           .inverse = how->inverse};
    memcpy(args.shape, x->shape, sizeof *x->shape * (size_t)args.ndim);
    int64_t stride = 1; /* rows of the table from one position to the next along an axis of positions */
    const int ndim = positions ? positions->ndim : 1;
    for (int i = 1; i <= ndim; i++) {
        const int64_t length = positions ? positions->shape[ndim - i] : T;
        args.strides[args.ndim - i] = length == 1 ? 0 : stride;
        stride *= length;
    }
    return tc_compute(s, &tc_kernel_rotary, &args, x->numel / D, 3.0 * (double)D);
}

tc_status tc_rotary(tc_tensor **y, tc_tensor *x, tc_tensor *positions, double base, tc_pairing pairing, bool inverse, tc_error *err)
{
    TC_SCOPE(s, err);
    tc_input in[] = {{"x", x}};
    tc_tensor *out;
    const rotary_attributes how = {base, pairing, inverse};
    TC_TRY(tc_begin(&s, in, 1));
    TC_TRY(check(&s, x, positions, base));
    TC_TRY(tc_prepare(&s));
    TC_TRY(tc_make(&s, &out, x->ndim, x->shape));
    if (x->numel) TC_TRY(turn(&s, out, in, positions, &how)); /* no table for an empty x with many positions */
    return tc_finish(&s, y, out, &(tc_record){.op = &rotary_op, TC_SAVED(positions), .attributes = &how});
}
