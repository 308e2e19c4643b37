/* ops_attention.c: scaled dot-product attention, as Python sees it. */
#include <string.h>

#include "binding.h"

/* Arguments [0, count): ndarrays of several floating dtypes become the promoted one. Tensors are left to the op, which names both. */
static int promote_arrays(tcpy_call *call, int count)
{
    tc_dtype common = tc_tensor_dtype(call->v[0].t);
    bool same = true, floating = true;
    for (int i = 0; i < count; i++) {
        const tc_dtype dtype = tc_tensor_dtype(call->v[i].t);
        same = same && dtype == common;
        floating = floating && tc_dtype_is_float(dtype);
        common = tc_dtype_promote(common, dtype);
    }
    if (same || !floating || call->any_tensor) return 0;
    for (int i = 0; i < count; i++) {
        tc_error err;
        tc_tensor *given = call->v[i].t, *cast;
        if (tc_tensor_dtype(given) == common) continue;
        tc_status status = tc_tensor_empty(&cast, tc_tensor_ndim(given), tc_tensor_shape(given), common, tc_tensor_device(given), &err);
        if (status == TC_OK) {
            if (tcpy_own(call, cast) < 0) return -1;
            call->v[i].t = cast;
            status = tc_assign(cast, given, &err);
        }
        if (status != TC_OK) {
            tcpy_raise(&err);
            return -1;
        }
    }
    return 0;
}

/* ---- the tutorial's function ------------------------------------------------------------------------------------------------- */

static PyObject *scaled_dot_product(tcpy_call *call, int results)
{
    tc_error err;
    tc_status status;
    tc_tensor *out[2] = {NULL, NULL};
    tc_attention_options options = TC_ATTENTION_DEFAULTS;
    options.mask = call->v[3].t;
    options.mask_kind = TC_MASK_FILL;
    options.empty_rows = TC_EMPTY_ROWS_UNIFORM;
    if (promote_arrays(call, 3) < 0) return NULL;
    TCPY_COMPUTE(
        call, status,
        tc_attention(&out[0], results > 1 ? &out[1] : NULL, NULL, NULL, NULL, call->v[0].t, call->v[1].t, call->v[2].t, &options, &err));
    return tcpy_result(call, status, &err, results, out);
}

static PyObject *run_scaled_dot_product(tcpy_call *call) { return scaled_dot_product(call, 2); }
static PyObject *run_scaled_dot_product_values(tcpy_call *call) { return scaled_dot_product(call, 1); }

/* ---- attention in full --------------------------------------------------------------------------------------------------------- */

/* Arguments from `first` on: attn_mask, bias, key_lengths, causal_offset, is_causal, window, scale, softcap, enable_gqa, empty_rows,
 * dropout, seed, call. */
#define OPTIONS                                                                                                                            \
    "attn_mask:t?=None bias:t?=None key_lengths:t?=None causal_offset:o=None is_causal:b=False window:o=None scale:f?=None softcap:f=0 "   \
    "enable_gqa:b=False "                                                                                                                  \
    "empty_rows:s=zero dropout:f=0 seed:o=None call:o=None"

/* An int; one beyond 64 bits is as good as the last of them. */
static int take_integer(int64_t *out, PyObject *object)
{
    int overflow;
    PyObject *index = PyNumber_Index(object);
    if (!index) return -1;
    *out = PyLong_AsLongLongAndOverflow(index, &overflow);
    Py_DECREF(index);
    if (overflow) *out = overflow < 0 ? INT64_MIN : INT64_MAX;
    return !overflow && *out == -1 && PyErr_Occurred() ? -1 : 0;
}

/* None: unbounded. */
static int side_of_window(int64_t *out, PyObject *object)
{
    if (object == Py_None) return 0;
    if (!PyIndex_Check(object)) {
        PyErr_Format(PyExc_TypeError, "window holds a %s; both sides are counts of keys, integers, or None for no bound",
                     Py_TYPE(object)->tp_name);
        return -1;
    }
    if (take_integer(out, object) < 0) return -1;
    if (*out >= 0) return 0;
    PyErr_Format(PyExc_ValueError, "window holds %lld; both sides are counts of keys, at least 0, or None for no bound", (long long)*out);
    return -1;
}

static int take_window(tc_attention_options *options, PyObject *window)
{
    if (window == Py_None) return 0;
    PyObject *sides = tcpy_items(window, "window must be a pair (left, right), each a count of keys or None for no bound");
    if (!sides) return -1;
    int result = -1;
    if (PyTuple_GET_SIZE(sides) != 2)
        PyErr_Format(PyExc_ValueError, "window has %zd entries; expected (left, right)", PyTuple_GET_SIZE(sides));
    else if (side_of_window(&options->window_left, PyTuple_GET_ITEM(sides, 0)) == 0)
        result = side_of_window(&options->window_right, PyTuple_GET_ITEM(sides, 1));
    Py_DECREF(sides);
    return result;
}

/* An int, or (B,) integers. */
static int take_offset(tcpy_call *call, tc_attention_options *options, PyObject *offset)
{
    if (offset == Py_None) return 0;
    if (PyIndex_Check(offset) && !PyArray_Check(offset) && !tcpy_is_tensor(offset)) return take_integer(&options->causal_offset, offset);
    bool is_tensor;
    tc_tensor *offsets;
    if (tcpy_tensor_from_object(&offsets, offset, "causal_offset", &is_tensor) < 0 || tcpy_own(call, offsets) < 0) return -1;
    const tc_dtype dtype = tc_tensor_dtype(offsets);
    if (tc_tensor_ndim(offsets) == 0 && !tc_dtype_is_float(dtype) && dtype != TC_BOOL) return take_integer(&options->causal_offset, offset);
    options->causal_offsets = offsets;
    return 0;
}

static int take_empty_rows(tc_empty_rows *out, const char *name)
{
    static const char *const names[] = {"zero", "uniform", "raise"};
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (tc_empty_rows)i;
            return 0;
        }
    PyErr_Format(PyExc_ValueError, "empty_rows is '%s'; expected 'zero', 'uniform' or 'raise'", name);
    return -1;
}

static int take_word(uint64_t *out, PyObject *object)
{
    if (object == Py_None) return 0;
    *out = PyLong_AsUnsignedLongLongMask(object);
    return *out == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

static int take_options(tcpy_call *call, int first, tc_attention_options *options)
{
    const tcpy_value *v = call->v + first;
    *options = TC_ATTENTION_DEFAULTS;
    options->mask = v[0].t;
    options->bias = v[1].t;
    options->key_lengths = v[2].t;
    options->causal = v[4].b;
    if (!v[6].none) options->scale = &v[6].f;
    options->softcap = v[7].f;
    options->shared_heads = v[8].b;
    options->dropout = v[10].f;
    options->long_names = true;
    if (take_offset(call, options, v[3].o) < 0 || take_window(options, v[5].o) < 0 || take_empty_rows(&options->empty_rows, v[9].s) < 0)
        return -1;
    return take_word(&options->seed, v[11].o) < 0 || take_word(&options->call, v[12].o) < 0 ? -1 : 0;
}

/* (values, attention or None, lse or None) */
static PyObject *run_attention(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_attention_options options;
    tc_tensor *out[3] = {NULL, NULL, NULL};
    if (take_options(call, 3, &options) < 0) return NULL;
    const bool map = call->v[16].b, lse = call->v[17].b;
    TCPY_COMPUTE(call, status,
                 tc_attention(&out[0], map ? &out[1] : NULL, lse ? &out[2] : NULL, NULL, NULL, call->v[0].t, call->v[1].t, call->v[2].t,
                              &options, &err));
    return tcpy_result(call, status, &err, 3, out);
}

static PyObject *run_attention_forward(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_attention_options options;
    tc_tensor *out[4] = {NULL, NULL, NULL, NULL};
    if (promote_arrays(call, 3) < 0 || take_options(call, 3, &options) < 0) return NULL;
    TCPY_COMPUTE(call, status,
                 tc_attention(&out[0], &out[1], NULL, &out[2], &out[3], call->v[0].t, call->v[1].t, call->v[2].t, &options, &err));
    return tcpy_result(call, status, &err, 4, out);
}

static PyObject *run_attention_backward(tcpy_call *call)
{
    tc_error err;
    tc_status status;
    tc_attention_options options;
    tc_tensor *out[4] = {NULL, NULL, NULL, NULL};
    if (promote_arrays(call, 5) < 0 || take_options(call, 7, &options) < 0) return NULL;
    const tcpy_value *v = call->v;
    const tc_attention_saved saved = {.q = v[1].t, .k = v[2].t, .v = v[3].t, .values = v[4].t, .shift = v[5].t, .sum = v[6].t};
    TCPY_COMPUTE(
        call, status,
        tc_attention_backward(&out[0], &out[1], &out[2], options.bias ? &out[3] : NULL, NULL, v[0].t, NULL, NULL, &saved, &options, &err));
    return tcpy_result(call, status, &err, 4, out);
}

const tcpy_op tcpy_ops_attention[] = {
    {"scaled_dot_product", "q:t k:t v:t mask:t?=None", run_scaled_dot_product,
     "softmax(q k^T / sqrt(d)) v, and the attention: the tutorial's function.\n\n"
     "Parameters\n----------\n"
     "q : array_like, shape (..., Tq, d)\nk : array_like, shape (..., Tk, d)\nv : array_like, shape (..., Tk, dv)\n"
     "    Leading axes broadcast.\n"
     "mask : array_like, optional\n"
     "    Broadcasts to (..., Tq, Tk). Where it is 0 the score becomes -9e15, so a row with every key masked attends uniformly.\n\n"
     "Returns\n-------\n"
     "values : shape (..., Tq, dv)\nattention : shape (..., Tq, Tk)\n",
     0},
    {"scaled_dot_product_values", "q:t k:t v:t mask:t?=None", run_scaled_dot_product_values,
     "scaled_dot_product without its map, which then is never made.", 0},
    {"attention", "query:t key:t value:t | " OPTIONS " return_attention:b=False return_logsumexp:b=False", run_attention,
     "values, attention or None, lse or None; see functional.scaled_dot_product_attention.", 0},
    {"attention_forward", "q:t k:t v:t | " OPTIONS, run_attention_forward,
     "values, attention, shift, sum, where attention[i, j] = exp(score[i, j] - shift[i]) / sum[i].", 0},
    {"attention_backward", "dvalues:t q:t k:t v:t values:t shift:t sum:t | " OPTIONS, run_attention_backward,
     "dq, dk, dv, and dbias or None.", 0},
    {NULL, NULL, NULL, NULL, 0},
};
