/* device.c: names of devices. */
#include "binding.h"

#include <string.h>

int tcpy_device_from_object(tc_device *out, PyObject *object)
{
    *out = (tc_device){TC_CPU, 0};
    if (object == NULL || object == Py_None) return 0;
    const bool is_number = PyLong_Check(object) && !PyBool_Check(object);    /* of a GPU */
    PyObject *shown = is_number ? tcpy_shown(object) : PyObject_Str(object); /* as a number of too many digits has no str */
    PyObject *text = is_number && shown ? PyUnicode_FromFormat("cuda:%U", shown) : Py_XNewRef(shown);
    Py_XDECREF(shown);
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
        tcpy_raise_shown(PyExc_ValueError, object, "device %%S is unknown; expected \"cpu\", \"cuda\" or \"cuda:<ordinal>\"");
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
