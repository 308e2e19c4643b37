"""PyTorch's samples of operators, run as functions and methods of both libraries."""

import warnings

import numpy as np
import transformer_c as tc

from .comparing import Converter, Outcome, apart, compare_gradients, compare_results, described_call, flat, named, numbers, refused

DTYPES = ("float32", "float64", "int64", "bool")
# Their values are drawn at random or not set: shapes and dtypes are compared.
NO_VALUES = {
    "bernoulli",
    "new_empty",
    "rand_like",
    "randn_like",
    "empty",
    "empty_like",
    "randn",
    "randint",
    "multinomial",
    "normal",
    "nn.functional.dropout",
    "nn.functional.rrelu",
}
# Names whose samples cannot be called: why.
LEFT_OUT = {"item": "the samples have more than one element, which both refuse", "data": "a property"}
# Variants of an operator that do not exist here: why.
LEFT_OUT_VARIANTS = {
    ("norm", "nuc"): "norms of matrices",
    ("scatter_reduce", "prod"): "products of places",
    ("normal", "in_place"): "a method, `normal_`",
}
# PyTorch's database calls these by functions of its own, with arguments in another order.
ADAPTED = {
    "where": lambda f: lambda x, condition, other: f(condition, x, other),
    "einsum": lambda f: lambda tensors, equation: f(equation, tensors),
    "nn.functional.embedding": lambda f: lambda weight, indices, **kw: f(indices, weight, **kw),
    "zero_": lambda f: lambda x: f(x.clone()),
}
# Of equal elements any may be named: what the indices name is compared.
ANY_OF_EQUAL = {"topk", "sort", "argsort"}
# Where rows have one element, the gradient is a difference of large numbers that is 0 but for rounding. PyTorch's own gradient of
# hardsigmoid multiplies by a 1 / 6 of float32, that of logcumsumexp goes by logarithms of gradients.
ROUNDED = {"logcumsumexp": 50.0, "nn.functional.layer_norm": 50.0, "nn.functional.hardsigmoid": 50.0}


def functions_here(name):
    """{form: callable} of an operator of PyTorch: "tc.f", "t.f", "F.f"."""
    found = {}
    adapt = ADAPTED.get(name, lambda f: f)
    if name.startswith("nn.functional."):
        short = name.removeprefix("nn.functional.")
        if callable(getattr(tc.functional, short, None)):
            found[f"F.{short}"] = adapt(getattr(tc.functional, short))
        return found
    if "." in name or name in LEFT_OUT:
        return found
    if name in tc.__all__ and callable(getattr(tc, name)):
        found[f"tc.{name}"] = adapt(getattr(tc, name))
    if callable(getattr(tc.Tensor, name, None)) and name not in ("where", "einsum"):
        found[f"t.{name}"] = adapt(getattr(tc.Tensor, name))
    return found


def named_by(indices, values, dim, converter):
    """The elements of the argument that the indices name."""
    values, indices = numbers(values, converter), numbers(indices, converter)
    return np.take_along_axis(values, indices, dim) if values.ndim else values


def compare(ours, theirs, name, converter, arguments):
    """What differs between two results, or None."""
    a, b = flat(ours), flat(theirs)
    if name in ANY_OF_EQUAL:
        (x, *args), kwargs = arguments
        dim = kwargs.get("dim", args[name == "topk"] if len(args) > (name == "topk") else -1)
        found = apart(named_by(a[-1], x, dim, converter), named_by(b[-1], x, dim, converter), "float64")
        if found:
            return f"indices: {found}"
        a, b = a[:-1], b[:-1]
    has_values = not (name in NO_VALUES or arguments[1].get("dropout_p"))
    found = compare_results(a, b, converter, has_values)
    return found if found or not has_values else compare_gradients(a, b, converter, ROUNDED.get(name, 1.0))


def run(info, form, function, sample, torch):
    """The outcome of one sample, or None where PyTorch itself refuses it."""
    converter = Converter(torch)
    call = described_call((sample.input, *sample.args), sample.kwargs, torch)
    try:
        theirs_in, ours_in = converter.both((sample.input, *sample.args))
        theirs_kw, ours_kw = converter.both(dict(sample.kwargs))
    except TypeError as error:
        return refused(str(error), call)
    try:
        theirs = info.op(*theirs_in, **theirs_kw)
    except Exception:
        return None
    try:
        ours = function(*ours_in, **ours_kw)
    except Exception as error:
        return refused(named(error), call)
    try:
        found = compare(ours, theirs, info.name, converter, (theirs_in, theirs_kw))
    except Exception as error:
        return Outcome("different", named(error), call)
    return Outcome("different" if found else "agreed", found or "", call)


def samples_of(info, most=None):
    """The samples of an operator in our dtypes, at most so many per dtype."""
    import torch

    for name in DTYPES:
        dtype = getattr(torch, name)
        if dtype not in info.dtypes:
            continue
        records = info.supports_autograd and dtype.is_floating_point
        for count, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=records)):
            if count == most:
                break
            yield sample


def outcomes(info, most=None):
    """{form: [outcome of a sample]}"""
    import torch

    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for form, function in functions_here(info.name).items():
            torch.manual_seed(0)
            found[form] = [o for sample in samples_of(info, most) if (o := run(info, form, function, sample, torch))]
    return found


def operators(names=()):
    """The entries of PyTorch's database that exist here."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [
        info
        for info in op_db
        if functions_here(info.name)
        and (info.name, info.variant_test_name) not in LEFT_OUT_VARIANTS
        and (not names or info.name in names or info.name.rsplit(".")[-1] in names)
    ]


def title(info, form):
    return f"{form} ({info.variant_test_name})" if info.variant_test_name else form


def rows(names=(), most=None):
    """(title, outcomes) of each form of an operator."""
    for info in operators(names):
        for form, found in outcomes(info, most).items():
            yield title(info, form), found
