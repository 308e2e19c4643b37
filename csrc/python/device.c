/* device.c: names of devices. */
#include "binding.h"

#include <string.h>

int tcpy_device_from_object(tc_device *out, PyObject *object)
{
    *out = (tc_device){TC_CPU, 0};
    if (object == NULL || object == Py_None) return 0;
    const bool is_number = PyLong_Check(object) && !PyBool_Check(object); /* of a GPU */
    PyObject *text = is_number ? PyUnicode_FromFormat("cuda:%S", object) : PyObject_Str(object);
    if (!text) return -1;
    const char *name = PyUnicode_AsUTF8(text);
    int result = -1;
    if (name && (strcmp(name, "cpu") == 0 || strcmp(name, "cpu:0") == 0)) {
        result = 0;
    } else if (name && strncmp(name, "cuda", 4) == 0 && (name[4] == '\0' || name[4] == ':')) {
        char *end = NULL;
        const long index = name[4] ? strtol(name + 5, &end, 10) : 0;
        if (name[4] == '\0' || (end && *end == '\0' && end != name + 5 && index >= 0 && index < 1024)) {
            *out = (tc_device){TC_CUDA, (int)index};
            result = 0;
        } else if (strcmp(name, "cuda:emulated") == 0) {
            *out = (tc_device){TC_CUDA, TC_EMULATED_GPU};
            result = 0;
        }
    }
    if (result < 0 && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "device %R is unknown; expected \"cpu\", \"cuda\" or \"cuda:<ordinal>\"", object);
    Py_DECREF(text);
    return result;
}

PyObject *tcpy_device_to_object(tc_device device)
{
    char text[TC_DEVICE_TEXT];
    if (device.type == TC_CPU && tcpy.cpu) return Py_NewRef(tcpy.cpu);
    tc_device_text(text, device);
    return tcpy.device_type ? PyObject_CallFunction(tcpy.device_type, "s", text) : PyUnicode_FromString(text);
}

PyObject *tcpy_set_device_type(PyObject *module, PyObject *type)
{
    (void)module;
    PyObject *cpu = PyObject_CallFunction(type, "s", "cpu");
    if (!cpu) return NULL;
    Py_XSETREF(tcpy.cpu, cpu);
    Py_XSETREF(tcpy.device_type, Py_NewRef(type));
    Py_RETURN_NONE;
}
