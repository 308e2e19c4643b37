/* switches.h: states that a `with` block switches and switches back. They are in C because an interrupt (Ctrl-C, any exception of a
 * signal handler, MemoryError) comes between two instructions of Python: in a method written in Python, between switching a state and
 * remembering what it was, or before it is switched back. Here nothing comes between them.
 *
 * From Python 3.14 on one may come between __enter__ and the block, which is then never left. So an object that is dropped while its state
 * is on switches it back; it is dropped with the frame's stack, before the exception is seen. */
#ifndef TC_PYTHON_SWITCHES_H
#define TC_PYTHON_SWITCHES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#define TCPY_FAST(function) (PyCFunction)(void (*)(void)) function, METH_FASTCALL

/* Interrupts that wait are raised by a call before it does anything; it is then called again, this many times at most. */
#define TCPY_TRIES 100

/* Clears the exception that is set; the first one is kept. */
void tcpy_keep_first(PyObject *error[3]);
/* function(value), again after an interrupt; *error is the first exception, or stays what it was. */
void tcpy_insist(PyObject *function, PyObject *value, PyObject *error[3]);

/* For tp_finalize, of an object that is dropped while it is on: leaves it, as an exception would. */
void tcpy_leave_dropped(PyObject *object, PyObject *(*leave)(PyObject *, PyObject *const *, Py_ssize_t));
/* tp_dealloc: tp_finalize, what tp_clear lets go of, then the object. */
void tcpy_finalize_and_free(PyObject *object);

extern PyType_Spec tcpy_switched_spec, tcpy_restored_spec; /* restoring.c */
extern PyType_Spec tcpy_replaced_spec;                     /* replaced.c */
extern PyType_Spec tcpy_registered_spec;                   /* registered.c */

#endif
