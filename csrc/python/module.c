/* module.c: the extension module transformer_c._core: multi-phase initialisation, and the functions that are not ops. */
#define TCPY_MODULE_FILE
#include "binding.h"
#include "call.h"

#include "../core/allocator.h"
#include "../core/cpu.h"
#include "../core/plan.h"
#include "../core/threads.h"

tcpy_state tcpy;

/* ---- settings and reports -------------------------------------------------------------------------------------------- */

static PyObject *set_num_threads(PyObject *module, PyObject *value)
{
    (void)module;
    tc_error err;
    if (!PyIndex_Check(value) || PyBool_Check(value))
        return PyErr_Format(PyExc_TypeError, "the number of threads must be an int, got %R (%s)", value, Py_TYPE(value)->tp_name);
    const Py_ssize_t count = PyNumber_AsSsize_t(value, NULL); /* the nearest one */
    if (count == -1 && PyErr_Occurred()) return NULL;
    if (count < 1 || count > 1024) {
        tcpy_raise_shown(PyExc_ValueError, value, "the number of threads must be from 1 to 1024, got %%S");
        return NULL;
    }
    if (tc_set_num_threads((int)count, &err) != TC_OK) return tcpy_raise(&err);
    Py_RETURN_NONE;
}

static PyObject *get_num_threads(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyLong_FromLong(tc_get_num_threads());
}

static PyObject *cpu_isas(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    const char *names[8];
    bool usable[8];
    const int count = tc_cpu_isas(names, usable, 8);
    PyObject *dict = PyDict_New();
    for (int i = 0; dict && i < count; i++)
        if (PyDict_SetItemString(dict, names[i], usable[i] ? Py_True : Py_False) < 0) Py_CLEAR(dict);
    return dict;
}

static PyObject *cpu_isa(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyUnicode_FromString(tc_cpu_isa());
}

static PyObject *cpu_select(PyObject *module, PyObject *name)
{
    (void)module;
    tc_error err;
    const char *text = PyUnicode_AsUTF8(name);
    if (!text) return NULL;
    if (tc_cpu_select(text, &err) != TC_OK) return tcpy_raise(&err);
    Py_RETURN_NONE;
}

/* By their indices in transformer_c.config's list of words. */
static PyObject *set_float32_precision(PyObject *module, PyObject *value)
{
    (void)module;
    const long place = PyLong_AsLong(value);
    if (place == -1 && PyErr_Occurred()) return NULL;
    if (place < TC_FLOAT32_HIGHEST || place > TC_FLOAT32_MEDIUM)
        return PyErr_Format(PyExc_ValueError, "there is no precision %ld; expected %d to %d", place, TC_FLOAT32_HIGHEST, TC_FLOAT32_MEDIUM);
    tc_set_float32_precision((tc_float32_precision)place);
    Py_RETURN_NONE;
}

static PyObject *get_float32_precision(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyLong_FromLong(tc_get_float32_precision());
}

static PyObject *last_plans(PyObject *module, PyObject *object)
{
    (void)module;
    tc_device device;
    tc_last_plan plans[64];
    if (tcpy_device_from_object(&device, object) < 0) return NULL;
    const int count = tc_last_plans(plans, 64, device.type);
    PyObject *dict = PyDict_New();
    for (int i = 0; dict && i < count; i++) {
        PyObject *plan = Py_BuildValue("(sLi)", plans[i].variant, (long long)plans[i].splits, (int)plans[i].precision);
        if (!plan || PyDict_SetItemString(dict, plans[i].kernel, plan) < 0) Py_CLEAR(dict);
        Py_XDECREF(plan);
    }
    return dict;
}

static PyObject *compiler(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
#if defined(__clang__)
    return PyUnicode_FromString("clang " __clang_version__);
#else
    return PyUnicode_FromString("gcc " __VERSION__);
#endif
}

static PyObject *memory_stats(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    const tc_allocator_stats s = tc_allocator_statistics();
    return Py_BuildValue("{s:n,s:n,s:n,s:K}", "in_use", (Py_ssize_t)s.in_use, "peak_in_use", (Py_ssize_t)s.peak_in_use, "cached",
                         (Py_ssize_t)s.cached, "system_calls", (unsigned long long)s.system_calls);
}

static PyObject *memory_reset_peak(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    tc_allocator_reset_peak();
    Py_RETURN_NONE;
}

static PyObject *memory_empty_cache(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    tc_allocator_empty_cache();
    Py_RETURN_NONE;
}

static PyObject *memory_fail_after(PyObject *module, PyObject *value)
{
    (void)module;
    const long long n = PyLong_AsLongLong(value);
    if (n == -1 && PyErr_Occurred()) return NULL;
    tc_allocator_fail_after(n);
    Py_RETURN_NONE;
}

static PyObject *grad_enabled(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(tc_grad_enabled());
}

static PyObject *set_grad_enabled(PyObject *module, PyObject *value)
{
    (void)module;
    const int truth = PyObject_IsTrue(value);
    if (truth < 0) return NULL;
    return PyBool_FromLong(tc_set_grad_enabled(truth));
}

static PyObject *exchange_batch_share(PyObject *module, PyObject *args)
{
    long long rows, first, step;
    tc_error err;
    (void)module;
    if (!PyArg_ParseTuple(args, "LLL:exchange_batch_share", &rows, &first, &step)) return NULL;
    const tc_batch_share before = tc_get_batch_share();
    PyObject *result = Py_BuildValue("LLL", (long long)before.rows, (long long)before.first, (long long)before.step);
    if (result && tc_set_batch_share((tc_batch_share){rows, first, step}, &err) != TC_OK) {
        Py_DECREF(result);
        return tcpy_raise(&err);
    }
    return result;
}

static PyObject *encoder_block_takes_gradients(PyObject *module, PyObject *args)
{
    PyObject *x;
    long long hidden, num_heads;
    const char *word;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!LLz:encoder_block_takes_gradients", tcpy.tensor_type, &x, &hidden, &num_heads, &word)) return NULL;
    const tcpy_choice *activations = tcpy_find_choice("activation", strlen("activation"));
    const int activation = word ? tcpy_find_word(activations, word, strlen(word)) : TC_ACTIVATION_NONE;
    if (activation < 0) return PyErr_Format(PyExc_ValueError, activations->error, word);
    return PyBool_FromLong(tc_encoder_block_takes_gradients(((tcpy_tensor *)x)->tensor, hidden, num_heads, (tc_activation)activation));
}

static PyObject *encoder_block_takes(PyObject *module, PyObject *args)
{
    PyObject *x;
    long long hidden;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!L:encoder_block_takes", tcpy.tensor_type, &x, &hidden)) return NULL;
    return PyBool_FromLong(tc_encoder_block_takes(((tcpy_tensor *)x)->tensor, hidden));
}

static PyMethodDef methods[] = {
    {"set_num_threads", set_num_threads, METH_O, "set_num_threads(count, /)\n--\n\nSets how many threads computations use."},
    {"get_num_threads", get_num_threads, METH_NOARGS, "get_num_threads()\n--\n\nHow many threads computations use."},
    {"cpu_isas", cpu_isas, METH_NOARGS, "cpu_isas()\n--\n\n{instruction set built in: usable on this machine}."},
    {"cpu_isa", cpu_isa, METH_NOARGS, "cpu_isa()\n--\n\nThe instruction set in use."},
    {"cpu_select", cpu_select, METH_O, "cpu_select(name, /)\n--\n\nSwitches the instruction set (for tests)."},
    {"set_float32_precision", set_float32_precision, METH_O,
     "set_float32_precision(place, /)\n--\n\nWhat float32 products may give up: 0 nothing, 1 and 2 more."},
    {"get_float32_precision", get_float32_precision, METH_NOARGS, "get_float32_precision()\n--\n\nWhat was set."},
    {"last_plans", last_plans, METH_O,
     "last_plans(device, /)\n--\n\n{kernel: (variant, splits, float32 precision)} of what ran last on this kind of device, where it had a "
     "choice."},
    {"compiler", compiler, METH_NOARGS, "compiler()\n--\n\nThe compiler that built the core."},
    {"memory_stats", memory_stats, METH_NOARGS,
     "memory_stats()\n--\n\nBytes in use, their peak, bytes cached, and blocks taken from the system."},
    {"memory_reset_peak", memory_reset_peak, METH_NOARGS, "memory_reset_peak()\n--\n\nStarts the peak afresh."},
    {"memory_empty_cache", memory_empty_cache, METH_NOARGS, "memory_empty_cache()\n--\n\nGives cached blocks back to the system."},
    {"memory_fail_after", memory_fail_after, METH_O,
     "memory_fail_after(n, /)\n--\n\nMakes the n-th allocation from now fail (for tests); 0 turns it off."},
    {"grad_enabled", grad_enabled, METH_NOARGS, "grad_enabled()\n--\n\nWhether this thread records ops."},
    {"set_grad_enabled", set_grad_enabled, METH_O,
     "set_grad_enabled(enabled, /)\n--\n\nTurns recording on this thread on or off; returns what it was."},
    {"exchange_batch_share", exchange_batch_share, METH_VARARGS,
     "exchange_batch_share(rows, first, step, /)\n--\n\nFrom now on dropout on this thread numbers the rows of a batch first, first + "
     "step, "
     "...; returns what was set. rows 0: as they come."},
    {"encoder_block_takes_gradients", encoder_block_takes_gradients, METH_VARARGS,
     "encoder_block_takes_gradients(x, hidden, num_heads, activation, /)\n--\n\nWhether encoder_block takes a "
     "Tensor and a hidden layer of these sizes where gradients are recorded: only on a GPU whose blocks have the shared memory."},
    {"encoder_block_takes", encoder_block_takes, METH_VARARGS,
     "encoder_block_takes(x, hidden, /)\n--\n\nWhether encoder_block takes a Tensor and a hidden layer of these sizes where it is: "
     "on a CPU those with which it was measured to be faster than the parts, on a GPU those that its kernel has room for."},
    {"gradients_of_one_kind", tcpy_gradients_of_one_kind, METH_O,
     "gradients_of_one_kind(parameters, /)\n--\n\nA list of the gradients of those that have one, if they are contiguous, of one dtype and "
     "on "
     "one device; otherwise None."},
    {"step_of_one_kind", tcpy_step_of_one_kind, METH_VARARGS,
     "step_of_one_kind(parameters, state, names, counts_from, /)\n--\n\n(parameters, gradients, states, values, steps): those with a "
     "gradient, their dicts in `state`, a list of their Tensors for each name, and the steps taken, if `counts_from` is in the dicts. None "
     "if they are not all contiguous, in float32 or float64, on one device and as far, with all of these in their dicts."},
    {"set_device_type", tcpy_set_device_type, METH_O,
     "set_device_type(type, /)\n--\n\nFrom now on t.device is a `type`, a subclass of str."},
    {"product", (PyCFunction)(void (*)(void))tcpy_product, METH_FASTCALL,
     "product(x, axis, running, /)\n--\n\nA Tensor multiplied up along an axis, which stays with length 1, or the running products; "
     "unrecorded, None where that is not possible."},
    {"pad_by_itself", (PyCFunction)(void (*)(void))tcpy_pad_by_itself, METH_FASTCALL,
     "pad_by_itself(x, mode, /, *pads)\n--\n\nA Tensor with axes that are longer by their own elements; unrecorded, None where that is not "
     "possible."},
    {"compute_into", (PyCFunction)(void (*)(void))tcpy_compute_into, METH_FASTCALL,
     "compute_into(target, name, /, *operands)\n--\n\nThe target, or for None a new Tensor, with a function of elements of Tensors and "
     "numbers, in one pass and unrecorded; None where that is not possible."},
    {"set_tracer", tcpy_set_tracer, METH_O,
     "set_tracer(tracer, /)\n--\n\nFrom now on tracer(name, args, kwargs, result) is called after each op on this thread; None: nothing "
     "is. "
     "Returns the tracer until now."},
    {"is_traced", tcpy_is_traced, METH_NOARGS, "is_traced()\n--\n\nWhether a tracer sees the ops of this thread."},
    {"autocast_state", tcpy_autocast_state, METH_NOARGS, "autocast_state()\n--\n\nThe number of the innermost autocasting of this thread."},
    {"call_depth", tcpy_call_depth, METH_NOARGS,
     "call_depth()\n--\n\nHow many calls of call_nested this thread is in; -1 where a module is to be called by autocast."},
    {"call_nested", (PyCFunction)(void (*)(void))tcpy_call_nested, METH_FASTCALL,
     "call_nested(function, args, kwargs, /)\n--\n\nfunction(*args, **kwargs), one deeper."},
    {NULL, NULL, 0, NULL},
};

/* ---- initialisation ----------------------------------------------------------------------------------------------------- */

/* Asked in the middle of long calls, on the thread that made them: runs the handlers of signals, if it is the main thread. They record what
 * they compute, as the user's code does around the call. A call that has kept the GIL holds nothing that a handler, or another thread
 * meanwhile, may replace (tcpy_hold): it is not interrupted. */
static bool is_interrupted(void)
{
    if (!Py_IsInitialized() || PyGILState_Check()) return false;
    const PyGILState_STATE gil = PyGILState_Ensure();
    const int suspended = tc_exchange_suspended(0);
    const bool stop = PyErr_CheckSignals() < 0; /* the exception stays set until the call has come back */
    tc_exchange_suspended(suspended);
    PyGILState_Release(gil);
    return stop;
}

static int module_exec(PyObject *module)
{
    static PyInterpreterState *owner;
    tc_error err;
    if (owner && owner != PyInterpreterState_Get()) {
        PyErr_SetString(PyExc_ImportError, "transformer_c can be loaded in one interpreter per process, as NumPy, which it uses");
        return -1;
    }
    owner = PyInterpreterState_Get();
    if (PyArray_ImportNumPyAPI() < 0) return -1;
    if (tc_initialize(&err) != TC_OK) {
        tcpy_raise(&err);
        return -1;
    }
    tc_set_interrupt_check(is_interrupted);
    if (tcpy_add_op_type(module) < 0 || tcpy_add_tensor_type(module) < 0 || tcpy_add_generator_type(module) < 0 ||
        tcpy_add_switches(module) < 0)
        return -1;
#define TCPY_OP_TABLE(name)                                                                                                                \
    if (tcpy_add_ops(module, tcpy_ops_##name) < 0) return -1;
#include "op_tables.def"
#undef TCPY_OP_TABLE
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_USED}, /* short calls rely on the GIL: a free-threaded Python switches it on at the import */
#endif
    {0, NULL},
};

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "transformer_c._core",
    .m_doc = "The C core of transformer_c: tensors, the tape, ops.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&definition); }
