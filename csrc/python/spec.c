/* spec.c: reads the spec of an op's arguments, which binding.h explains, and writes the signature that Python shows. */
#include "call.h"

#include <string.h>

enum { TCPY_PRESERVE_FORMAT, TCPY_CONTIGUOUS_FORMAT };

static const tcpy_choice choices[] = {
    {"activation",
     {[TC_ACTIVATION_NONE] = "none", [TC_ACTIVATION_RELU] = "relu", [TC_ACTIVATION_GELU] = "gelu", [TC_ACTIVATION_GELU_TANH] = "gelu_tanh"},
     "activation is '%s'; expected None, 'relu', 'gelu' or 'gelu_tanh'"},
    {"combination",
     {[TC_COMBINATION_PUT] = "put", [TC_COMBINATION_ADD] = "add", [TC_COMBINATION_MULTIPLY] = "multiply"},
     "combination is '%s'; expected 'put', 'add' or 'multiply'"},
    {"empty_rows",
     {[TC_EMPTY_ROWS_ZERO] = "zero", [TC_EMPTY_ROWS_UNIFORM] = "uniform", [TC_EMPTY_ROWS_RAISE] = "raise"},
     "empty_rows is '%s'; expected 'zero', 'uniform' or 'raise'"},
    {"memory_format",
     {[TCPY_PRESERVE_FORMAT] = "preserve_format", [TCPY_CONTIGUOUS_FORMAT] = "contiguous_format"},
     "memory_format is '%s'; a copy here is in C order: 'contiguous_format' or 'preserve_format'"},
    {"packing",
     {[TC_PACKING_HEAD] = "head", [TC_PACKING_QKV] = "qkv"},
     "packing is '%s'; expected 'head' (q, k, v of each head together) or 'qkv' (all of q, of k, of v together)"},
    {"pairing",
     {[TC_PAIRING_HALF] = "half", [TC_PAIRING_INTERLEAVED] = "interleaved"},
     "pairing is '%s'; expected 'half' (x[j] with x[j + D/2]) or 'interleaved' (x[2 j] with x[2 j + 1])"},
    {"reduction",
     {[TC_REDUCTION_NONE] = "none", [TC_REDUCTION_MEAN] = "mean", [TC_REDUCTION_SUM] = "sum"},
     "reduction must be 'none', 'mean' or 'sum', got '%s'"},
};

/* PyTorch's names of the operands that are x, or a and b, here: of every op, or of one alone. */
static const struct {
    const char *pytorchs, *ours[2], *op;
} operands[] = {
    {"input", {"x", "a"}, NULL},      {"other", {"b", "b"}, NULL},      {"exponent", {"b", "b"}, NULL},
    {"min", {"b", "b"}, "clamp_min"}, {"max", {"b", "b"}, "clamp_max"},
};

static int find_operand(const tcpy_op_object *self, PyObject *name)
{
    for (size_t k = 0; k < sizeof operands / sizeof *operands; k++) {
        if (PyUnicode_CompareWithASCIIString(name, operands[k].pytorchs) != 0) continue;
        if (operands[k].op && PyUnicode_CompareWithASCIIString(self->name, operands[k].op) != 0) continue;
        for (int i = 0; i < self->positional && i < 2; i++)
            if (strcmp(self->args[i].text, operands[k].ours[0]) == 0 || strcmp(self->args[i].text, operands[k].ours[1]) == 0) return i;
    }
    return -1;
}

int tcpy_find_argument(const tcpy_op_object *self, PyObject *name)
{
    for (int i = 0; i < self->count; i++)
        if (self->args[i].name == name) return i;
    for (int i = 0; i < self->count; i++)
        if (PyUnicode_Compare(self->args[i].name, name) == 0) return i;
    return find_operand(self, name);
}

int tcpy_find_word(const tcpy_choice *choice, const char *word, size_t length)
{
    for (int i = 0; choice->words[i]; i++)
        if (strlen(choice->words[i]) == length && memcmp(choice->words[i], word, length) == 0) return i;
    return -1;
}

const tcpy_choice *tcpy_find_choice(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (strlen(choices[i].argument) == length && memcmp(choices[i].argument, name, length) == 0) return &choices[i];
    return NULL;
}

static int parse_default(tcpy_argument *arg, const char *text, size_t length)
{
    arg->required = false;
    if (length == 4 && strncmp(text, "None", 4) == 0) {
        arg->fallback.none = true;
        if (arg->kind == 'o') arg->fallback.o = Py_None;
        return 0;
    }
    switch (arg->kind) {
    case 'i':
    case 'w': arg->fallback.i = strtoll(text, NULL, 10); return 0;
    case 'f': arg->fallback.f = strtod(text, NULL); return 0;
    case 'b': arg->fallback.b = strncmp(text, "True", 4) == 0; return 0;
    case 'c': arg->fallback.i = tcpy_find_word(arg->choice, text, length); return arg->fallback.i < 0 ? -1 : 0;
    default: return -1;
    }
}

static int set_name(tcpy_argument *arg, const char *text, Py_ssize_t length)
{
    arg->name = PyUnicode_FromStringAndSize(text, length);
    if (!arg->name) return -1;
    PyUnicode_InternInPlace(&arg->name);
    arg->text = PyUnicode_AsUTF8(arg->name);
    return arg->text ? 0 : -1;
}

/* One "name:kind=default" into `arg`. */
static int parse_argument(tcpy_argument *arg, const char *text, size_t length)
{
    const char *colon = memchr(text, ':', length), *end = text + length;
    arg->alias_of = -1;
    if (!colon || colon + 1 >= end) return -1;
    if (set_name(arg, text, colon - text) < 0) return -1;
    const char *at = colon + 1;
    arg->kind = *at++;
    if (at < end && *at == '*') arg->spread = true, at++;
    if (at < end && *at == '!') arg->not_empty = true, at++;
    if (at < end && *at == '+') arg->promoted = true, at++;
    if (at < end && *at == '@') arg->stays = true, at++;
    if (at < end && *at == '?') arg->optional = true, at++;
    arg->required = true;
    if (arg->kind == 'c' && !(arg->choice = tcpy_find_choice(text, (size_t)(colon - text)))) return -1;
    if (at == end) return 0;
    if (*at != '=') return -1;
    return parse_default(arg, at + 1, (size_t)(end - at - 1));
}

/* *text += part; both are NULL after a failure. Steals `part`. */
static void append(PyObject **text, PyObject *part)
{
    PyObject *joined = *text && part ? PyUnicode_Concat(*text, part) : NULL;
    Py_XDECREF(part);
    Py_XSETREF(*text, joined);
}

/* "dim=axis": the argument `dim` is another name of the earlier `axis`. */
static int parse_alias(tcpy_op_object *self, tcpy_argument *arg, const char *text, size_t length)
{
    const char *equals = memchr(text, '=', length);
    PyObject *of = equals ? PyUnicode_FromStringAndSize(equals + 1, text + length - equals - 1) : NULL;
    const int found = of ? tcpy_find_argument(self, of) : -1;
    Py_XDECREF(of);
    if (found < 0) return -1;
    *arg = (tcpy_argument){.kind = self->args[found].kind, .alias_of = found, .fallback.none = true};
    return set_name(arg, text, equals - text);
}

int tcpy_read_spec(tcpy_op_object *self, const char *spec)
{
    bool keyword_only = false;
    for (const char *at = spec; *at;) {
        const size_t length = strcspn(at, " ");
        if (length == 1 && *at == '|') {
            keyword_only = true;
        } else {
            if (self->count == TCPY_MAX_ARGS) return -1;
            tcpy_argument *arg = &self->args[self->count];
            if ((memchr(at, ':', length) ? parse_argument(arg, at, length) : parse_alias(self, arg, at, length)) < 0) return -1;
            arg->keyword_only = keyword_only;
            self->promotes |= arg->promoted;
            self->count++;
            if (!keyword_only) self->positional = self->count;
        }
        at += length;
        at += strspn(at, " ");
    }
    return 0;
}

PyObject *tcpy_signature(const tcpy_op_object *self)
{
    PyObject *text = PyUnicode_FromString("(");
    for (int i = 0; text && i < self->count; i++) {
        const tcpy_argument *arg = &self->args[i];
        const char *separator = i ? ", " : "";
        if (arg->keyword_only && (i == 0 || !self->args[i - 1].keyword_only))
            append(&text, PyUnicode_FromFormat("%s*", separator)), separator = ", ";
        PyObject *part;
        if (arg->spread)
            part = PyUnicode_FromFormat("%s*%U", separator, arg->name);
        else if (arg->required)
            part = PyUnicode_FromFormat("%s%U", separator, arg->name);
        else if (arg->fallback.none || arg->kind == 'o')
            part = PyUnicode_FromFormat("%s%U=None", separator, arg->name);
        else if (arg->kind == 'b')
            part = PyUnicode_FromFormat("%s%U=%s", separator, arg->name, arg->fallback.b ? "True" : "False");
        else if (arg->kind == 'i')
            part = PyUnicode_FromFormat("%s%U=%lld", separator, arg->name, (long long)arg->fallback.i);
        else if (arg->kind == 'c')
            part = PyUnicode_FromFormat("%s%U='%s'", separator, arg->name, arg->choice->words[arg->fallback.i]);
        else {
            PyObject *number = PyFloat_FromDouble(arg->fallback.f);
            part = number ? PyUnicode_FromFormat("%s%U=%R", separator, arg->name, number) : NULL;
            Py_XDECREF(number);
        }
        append(&text, part);
    }
    if (text) append(&text, PyUnicode_FromString(")"));
    return text;
}
