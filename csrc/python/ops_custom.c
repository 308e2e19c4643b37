/* ops_custom.c: ops whose backward is a Python function, and access to a Tensor's memory for modules and optimizers. */
#include "binding.h"

#include <string.h>

#include "../core/copy.h"
#include "../core/status.h"
#include "../core/tape.h"

/* ---- functions of the user's that a backward calls: nothing is recorded there, unless they enable it ---------------------- */

typedef struct callback {
    PyGILState_STATE gil;
    int suspended;
    bool was_enabled;
} callback;

static callback callback_begin(void)
{
    const callback self = {.gil = PyGILState_Ensure(), .suspended = tc_exchange_suspended(0), .was_enabled = tc_set_grad_enabled(false)};
    tcpy_drain_releases(); /* what the walk has let go of so far, which may be large */
    return self;
}

static void callback_end(callback self)
{
    tc_set_grad_enabled(self.was_enabled);
    tc_exchange_suspended(self.suspended);
    PyGILState_Release(self.gil);
}

/* ---- custom ops: the node owns the Python callable ------------------------------------------------------------------- */

typedef struct custom_attributes {
    PyObject *backward; /* called with the outputs' gradients (None where no gradient arrived); returns a sequence of one gradient or None
                         * per input */
} custom_attributes;

static void custom_release(void *attributes) { tcpy_release_object(((custom_attributes *)attributes)->backward); }

static PyObject *gradients_tuple(const tc_node *node, tc_tensor *const *grad_outputs)
{
    PyObject *tuple = PyTuple_New(node->output_count);
    for (int i = 0; tuple && i < node->output_count; i++) {
        PyObject *item = grad_outputs[i] ? tcpy_array_from_tensor(grad_outputs[i], false) : Py_NewRef(Py_None);
        if (item)
            PyTuple_SET_ITEM(tuple, i, item);
        else
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* One gradient as the function returned it: of the input's shape and dtype, in its own memory. */
static int take_gradient(tc_tensor **out, PyObject *object, const tc_tensor *input, int i)
{
    tc_tensor *given = NULL;
    tc_error err;
    bool is_tensor;
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (object == Py_None) return 0;
    if (tcpy_tensor_from_object(&given, object, "a gradient", &is_tensor) < 0) return -1;
    int result = -1;
    if (!tc_tensor_same_shape(given, input)) {
        PyErr_Format(PyExc_ValueError, "the backward of a custom op gave a gradient of shape %s for input %d, which has shape %s",
                     tc_tensor_text(a, given), i, tc_tensor_text(b, input));
    } else if (tc_tensor_like(out, input, &err) != TC_OK || tc_tensor_copy(*out, given, &err) != TC_OK) {
        tcpy_raise(&err);
    } else {
        result = 0;
    }
    tc_tensor_release(given);
    return result;
}

static int call_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs)
{
    const custom_attributes *attributes = node->attributes;
    PyObject *gradients = gradients_tuple(node, grad_outputs);
    if (!gradients) return -1;
    PyObject *given = PyObject_CallObject(attributes->backward, gradients);
    Py_DECREF(gradients);
    PyObject *items = given ? tcpy_items(given, "the backward of a custom op must give one gradient an input, as a sequence") : NULL;
    Py_XDECREF(given);
    if (!items) return -1;
    int result = 0;
    if (PyTuple_GET_SIZE(items) != node->input_count) {
        PyErr_Format(PyExc_ValueError, "the backward of a custom op gave %zd gradients for %d inputs", PyTuple_GET_SIZE(items),
                     node->input_count);
        result = -1;
    }
    for (int i = 0; result == 0 && i < node->input_count; i++)
        if (tc_node_needs(node, i)) result = take_gradient(&grad_inputs[i], PyTuple_GET_ITEM(items, i), tc_node_saved(node, i), i);
    Py_DECREF(items);
    return result;
}

static tc_status custom_backward(tc_node *node, tc_tensor *const *grad_outputs, tc_tensor **grad_inputs, tc_error *err)
{
    const callback called = callback_begin();
    const int result = call_backward(node, grad_outputs, grad_inputs);
    callback_end(called);
    return result == 0 ? TC_OK : tc_fail(err, TC_ERROR_CALLBACK, "the backward of a custom op failed");
}

static const tc_op custom_op = {"custom_op", custom_backward, custom_release};

/* Shape, dtype and device of a tensor, which the backward asks for, over one element of memory. */
static tc_status shape_of(tc_tensor **out, const tc_tensor *tensor, tc_error *err)
{
    const int64_t one[TC_MAX_DIMS] = {0};
    tc_tensor *element;
    TC_TRY(tc_tensor_empty(&element, 0, NULL, tensor->dtype, tensor->storage->device, err));
    const tc_status status = tc_tensor_alias(out, element, tensor->ndim, tensor->shape, one, 0, err);
    tc_tensor_release(element);
    return status;
}

/* What the node keeps of the inputs; of arrays the Python function has copies. */
static tc_status inputs_to_keep(tc_tensor **kept, const tcpy_value *inputs, bool values, tc_error *err)
{
    for (int64_t i = 0; i < inputs->list.count; i++) {
        tc_tensor *input = inputs->list.items[i];
        if (input->storage->is_argument) continue;
        if (values)
            kept[i] = tc_tensor_retain(input);
        else
            TC_TRY(shape_of(&kept[i], input, err));
    }
    return TC_OK;
}

static tc_status record_custom(const tcpy_value *inputs, int count, tc_tensor **made, PyObject *backward, bool values, tc_error *err)
{
    const int64_t room = inputs->list.count ? inputs->list.count : 1;
    if (!tc_tape_wants((int)inputs->list.count, inputs->list.items)) return TC_OK;
    tc_tensor **kept = PyMem_Calloc((size_t)room, sizeof *kept);
    if (!kept) return tc_fail(err, TC_ERROR_MEMORY, "out of memory: recording a custom op");
    const custom_attributes attributes = {backward};
    const tc_record record = {.op = &custom_op,
                              .input_count = (int)inputs->list.count,
                              .inputs = inputs->list.items,
                              .output_count = count,
                              .outputs = made,
                              .saved_count = (int)inputs->list.count,
                              .saved = kept,
                              .attributes = &attributes,
                              .attribute_bytes = sizeof attributes};
    tc_status status = inputs_to_keep(kept, inputs, values, err);
    if (status == TC_OK) {
        Py_INCREF(backward);
        status = tc_tape_record(&record, err);
        if (status != TC_OK) Py_DECREF(backward);
    }
    for (int64_t i = 0; i < inputs->list.count; i++) tc_tensor_release(kept[i]);
    PyMem_Free(kept);
    return status;
}

/* The outputs (ndarrays of forward) as Tensors with a history. */
static PyObject *run_record_custom(tcpy_call *call)
{
    const tcpy_value *inputs = &call->v[0], *outputs = &call->v[1];
    tc_tensor *made[TC_MAX_OUTPUTS] = {NULL};
    tc_error err;
    tc_status status = TC_OK;
    const int count = (int)outputs->list.count;
    if (count < 1 || count > TC_MAX_OUTPUTS)
        return PyErr_Format(PyExc_ValueError, "a custom op has 1 to %d results, got %d", TC_MAX_OUTPUTS, count);
    for (int i = 0; i < count && status == TC_OK; i++) { /* our own memory: the function may keep and change its arrays */
        status = tc_tensor_like(&made[i], outputs->list.items[i], &err);
        if (status == TC_OK) status = tc_tensor_copy(made[i], outputs->list.items[i], &err);
    }
    if (status == TC_OK) status = record_custom(inputs, count, made, call->v[2].o, call->v[3].b, &err);
    if (status != TC_OK)
        for (int i = 0; i < count; i++) tc_tensor_release(made[i]);
    call->any_tensor = true;
    return tcpy_result(call, status, &err, count, made);
}

/* ---- hooks of gradients: the tensor, or its node, owns the Python function ------------------------------------------------ */

static int call_hook(PyObject *function, tc_tensor **gradient)
{
    tc_tensor *seen = NULL, *given = NULL, *ready = NULL;
    tc_error err;
    bool is_tensor;
    char a[TC_SHAPE_TEXT], b[TC_SHAPE_TEXT];
    if (tc_tensor_copy_of(&seen, *gradient, &err) != TC_OK) return tcpy_raise(&err), -1; /* others may share it */
    PyObject *argument = tcpy_wrap(seen), *result = argument ? PyObject_CallOneArg(function, argument) : NULL;
    Py_XDECREF(argument);
    int good = result ? 0 : -1;
    if (result && result != Py_None) {
        good = tcpy_tensor_from_object(&given, result, "the result of a hook", &is_tensor);
        if (good == 0 && !tc_tensor_same_shape(given, *gradient)) {
            PyErr_Format(PyExc_ValueError, "a hook gave a gradient of shape %s for one of shape %s", tc_tensor_text(a, given),
                         tc_tensor_text(b, *gradient));
            good = -1;
        }
        if (good == 0 && (tc_tensor_like(&ready, *gradient, &err) != TC_OK || tc_tensor_copy(ready, given, &err) != TC_OK)) {
            tcpy_raise(&err);
            good = -1;
        }
        if (good == 0) {
            tc_tensor_release(*gradient);
            *gradient = tc_tensor_retain(ready);
        }
        tc_tensor_release(ready);
        tc_tensor_release(given);
    }
    Py_XDECREF(result);
    return good;
}

static tc_status hook_called(void *function, tc_tensor **gradient, tc_error *err)
{
    const callback called = callback_begin();
    const int result = call_hook(function, gradient);
    callback_end(called);
    return result == 0 ? TC_OK : tc_fail(err, TC_ERROR_CALLBACK, "a hook failed");
}

/* The function that sees the gradient of a tensor: the one it has, or from now on the one given. `retained`: of a result, the gradient of
 * the values that it has in the end. */
static PyObject *run_gradient_hook(tcpy_call *call)
{
    tc_tensor *tensor = tc_tensor_itself(call->v[0].t);
    PyObject *function = call->v[1].o;
    tc_error err;
    const bool retained = call->v[2].b;
    const tc_hook *known = retained ? NULL : tc_tensor_hook(tensor);
    if (retained && tensor->retained) return Py_NewRef((PyObject *)tensor->retained->context);
    if (known) return Py_NewRef((PyObject *)known->context);
    const tc_hook hook = {.call = hook_called, .release = tcpy_release_object, .context = Py_NewRef(function)};
    if ((retained ? tc_tensor_retain_gradient : tc_tensor_add_hook)(tensor, &hook, &err) != TC_OK) {
        Py_DECREF(function);
        return tcpy_raise(&err);
    }
    return Py_NewRef(function);
}

/* ---- gradients that are final: a Python function is told of them ------------------------------------------------------- */

static tc_status final_told(void *function, int64_t place, tc_tensor *gradient, tc_error *err)
{
    const callback called = callback_begin();
    PyObject *seen = gradient ? tcpy_wrap(tc_tensor_retain(gradient)) : Py_NewRef(Py_None);
    PyObject *result = seen ? PyObject_CallFunction(function, "LO", (long long)place, seen) : NULL;
    const bool good = result != NULL;
    Py_XDECREF(result);
    Py_XDECREF(seen);
    callback_end(called);
    return good ? TC_OK : tc_fail(err, TC_ERROR_CALLBACK, "a function that is told of final gradients failed");
}

static PyObject *run_backward_watched(tcpy_call *call)
{
    tc_watch watch = {.count = call->v[1].list.count, .leaves = call->v[1].list.items, .is_final = final_told, .context = call->v[2].o};
    tc_error err;
    tc_status status;
    call->keep_gil = false;
    if (tcpy_hold(call, &call->v[0].t) < 0 || tcpy_hold(call, &call->v[3].t) < 0) return NULL;
    TCPY_COMPUTE(call, status, tc_backward_watched(call->v[0].t, call->v[3].t, call->v[4].b, &watch, &err));
    tcpy_drain_releases();
    if (status != TC_OK) return tcpy_raise(&err);
    return PyBool_FromLong(watch.was_alone);
}

/* ---- the gradients of some tensors alone ---------------------------------------------------------------------------------- */

static int hold_list(tcpy_call *call, const tcpy_value *value)
{
    for (int64_t i = 0; i < value->list.count; i++)
        if (tcpy_hold(call, (tc_tensor **)&value->list.items[i]) < 0) return -1;
    return 0;
}

/* A tuple of Tensors, with None for NULL. */
static PyObject *tuple_of(int64_t count, tc_tensor **gradients)
{
    PyObject *tuple = PyTuple_New(count);
    for (int64_t i = 0; i < count; i++) {
        PyObject *item = !tuple ? NULL : gradients[i] ? tcpy_wrap(tc_tensor_retain(gradients[i])) : Py_NewRef(Py_None);
        if (item)
            PyTuple_SET_ITEM(tuple, i, item);
        else
            Py_CLEAR(tuple);
    }
    return tuple;
}

static int hold_all(tcpy_call *call)
{
    const tcpy_value *roots = &call->v[0], *inputs = &call->v[1], *seeds = &call->v[2];
    call->keep_gil = false;
    if (roots->list.count != seeds->list.count) {
        PyErr_SetString(PyExc_ValueError, "outputs and grad_outputs are not equally many");
        return -1;
    }
    return hold_list(call, roots) < 0 || hold_list(call, inputs) < 0 || hold_list(call, seeds) < 0 ? -1 : 0;
}

static PyObject *run_backward_to(tcpy_call *call)
{
    const tcpy_value *roots = &call->v[0], *inputs = &call->v[1], *seeds = &call->v[2];
    tc_error err;
    tc_status status;
    if (hold_all(call) < 0) return NULL;
    TCPY_COMPUTE(call, status,
                 tc_backward_to(inputs->list.count, inputs->list.items, roots->list.count, roots->list.items, seeds->list.items,
                                call->v[3].b, &err));
    tcpy_drain_releases();
    if (status != TC_OK) return tcpy_raise(&err);
    Py_RETURN_NONE;
}

static PyObject *run_gradients(tcpy_call *call)
{
    const tcpy_value *roots = &call->v[0], *inputs = &call->v[1], *seeds = &call->v[2];
    const int64_t count = inputs->list.count;
    tc_error err;
    tc_status status;
    if (hold_all(call) < 0) return NULL;
    tc_tensor **out = PyMem_Calloc((size_t)count + 1, sizeof(tc_tensor *));
    if (!out) return PyErr_NoMemory();
    TCPY_COMPUTE(call, status,
                 tc_gradients(out, count, inputs->list.items, roots->list.count, roots->list.items, seeds->list.items, call->v[3].b, &err));
    tcpy_drain_releases();
    PyObject *tuple = status == TC_OK ? tuple_of(count, out) : tcpy_raise(&err);
    for (int64_t i = 0; i < count; i++) tc_tensor_release(out[i]);
    PyMem_Free(out);
    return tuple;
}

/* ---- memory ---------------------------------------------------------------------------------------------------------------- */

static PyObject *run_set_data(tcpy_call *call)
{
    tc_error err;
    call->v[1].t->storage->is_argument = false; /* an array is shared from now on */
    if (tc_tensor_set_data(call->v[0].t, call->v[1].t, &err) != TC_OK) return tcpy_raise(&err);
    if (call->v[2].b) atomic_store(&call->v[1].t->storage->shared, false);
    Py_RETURN_NONE;
}

/* The same for several, all of them or none. */
static PyObject *run_set_all_data(tcpy_call *call)
{
    const tcpy_value *targets = &call->v[0], *sources = &call->v[1];
    const int64_t count = targets->list.count;
    tc_error err;
    tc_status status = TC_OK;
    if (count != sources->list.count) return PyErr_Format(PyExc_ValueError, "targets and sources are not equally many");
    for (int64_t i = 0; status == TC_OK && i < count; i++)
        status = tc_tensor_check_data(targets->list.items[i], sources->list.items[i], &err);
    for (int64_t i = 0; status == TC_OK && i < count; i++) {
        ((tc_tensor *)sources->list.items[i])->storage->is_argument = false;
        status = tc_tensor_set_data(targets->list.items[i], (tc_tensor *)sources->list.items[i], &err);
    }
    if (status != TC_OK) return tcpy_raise(&err);
    Py_RETURN_NONE;
}

/* Copies each value into its target, all of them or none: everything that can fail comes before the first is written. */
static PyObject *run_assign_all(tcpy_call *call)
{
    const tcpy_value *targets = &call->v[0], *values = &call->v[1];
    const int64_t count = targets->list.count;
    tc_error err;
    tc_status status = TC_OK;
    if (count != values->list.count) return PyErr_Format(PyExc_ValueError, "targets and values are not equally many");
    call->keep_gil = false;
    for (int64_t i = 0; i < count; i++)
        if (tcpy_hold(call, (tc_tensor **)&targets->list.items[i]) < 0 || tcpy_hold(call, (tc_tensor **)&values->list.items[i]) < 0)
            return NULL;
    tc_tensor **ready = PyMem_Calloc(count ? (size_t)count : 1, sizeof *ready);
    if (!ready) return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS for (int64_t i = 0; status == TC_OK && i < count; i++)
    {
        tc_tensor *to = targets->list.items[i], *value = values->list.items[i], *moved = NULL;
        if (!tc_tensor_same_shape(to, value)) status = tc_fail(&err, TC_ERROR_VALUE, "a value has another shape than its target");
        if (status == TC_OK) status = tc_to(&moved, value, to->dtype, to->storage->device, &err);
        if (status == TC_OK) status = tc_tensor_contiguous(&ready[i], moved, &err);
        tc_tensor_release(moved);
    }
    for (int64_t i = 0; status == TC_OK && i < count; i++) status = tc_tensor_begin_write(targets->list.items[i], &err);
    for (int64_t i = 0; status == TC_OK && i < count; i++) status = tc_tensor_copy(targets->list.items[i], ready[i], &err);
    for (int64_t i = 0; i < count; i++) tc_tensor_release(ready[i]);
    Py_END_ALLOW_THREADS tcpy_end_holds(call);
    PyMem_Free(ready);
    if (status != TC_OK) return tcpy_raise(&err);
    Py_RETURN_NONE;
}

/* An ndarray over the memory of a result that nobody else has; for any other tensor, a copy. */
static PyObject *run_take_array(tcpy_call *call)
{
    tc_tensor *tensor = call->v[0].t;
    tc_error err;
    const bool alone = atomic_load(&tensor->references) == 1 && atomic_load(&tensor->storage->references) == 1 && tensor->storage->owned;
    if (alone) return tcpy_array_from_tensor(tensor, true);
    tc_tensor *copy = NULL;
    tc_status status = tc_tensor_empty(&copy, tensor->ndim, tensor->shape, tensor->dtype, (tc_device){TC_CPU, 0}, &err);
    if (status == TC_OK) status = tc_tensor_copy(copy, tensor, &err);
    PyObject *array = status == TC_OK ? tcpy_array_from_tensor(copy, true) : tcpy_raise(&err);
    tc_tensor_release(copy);
    return array;
}

const tcpy_op tcpy_ops_custom[] = {
    {"record_custom", "inputs:T outputs:T backward:o checks_inputs:b=True", run_record_custom,
     "The outputs of a Python function as recorded Tensors. checks_inputs: the backward is refused where an input was written to since.",
     0},
    {"gradient_hook", "tensor:t function:o retained:b=False", run_gradient_hook,
     "The function that sees the gradient of a Tensor: the one it has, or from now on this one. `retained`: of a result, the gradient of "
     "the "
     "values that it has in the end, after writes in place.",
     0},
    {"backward_watched", "loss:t leaves:T function:o gradient:t=None retain_graph:b=False", run_backward_watched,
     "loss.backward(), which calls function(place, gradient) as soon as it has no more gradient for leaves[place]; None: it has none. "
     "False where another backward ran meanwhile, so that gradients may be others than those told.",
     0},
    {"gradients", "outputs:T inputs:T grad_outputs:T retain_graph:b=False", run_gradients,
     "The gradients of the sum of outputs[i] times grad_outputs[i] with respect to each of `inputs`; None: no output depends on it.", 0},
    {"backward_to", "outputs:T inputs:T grad_outputs:T retain_graph:b=False", run_backward_to,
     "Adds those gradients to the grads of the `inputs` that are leaves.", 0},
    {"set_data", "tensor:t source:t alone:b=False", run_set_data,
     "Makes a leaf Tensor take on other memory; `alone`: which nobody else has, so that what is derived from it may be kept.", 0},
    {"set_all_data", "targets:T sources:T", run_set_all_data, "Makes leaf Tensors take on other memory: all of them or, on failure, none.",
     0},
    {"assign_all", "targets:T values:T", run_assign_all, "Copies each value into its target: all of them or, on failure, none.", 0},
    {"take_array", "tensor:t", run_take_array,
     "A writable ndarray of a Tensor's values, without a copy where nobody else can see the memory.", 0},
    {NULL, NULL, NULL, NULL, 0},
};
