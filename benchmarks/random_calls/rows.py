"""Calls along the lines of axes: sums, softmax, norms, running sums, sorting."""

import dataclasses

import numpy as np

from .draw import FLOATS, Call, functional, of_module

ONE_AXIS = ("all", "any", "argmax", "argmin", "max", "min", "prod")
ANY_AXES = ("amax", "amin", "count_nonzero", "logsumexp", "mean", "norm", "std", "sum", "var")
OF_INT = ("amax", "argmax", "argmin", "count_nonzero", "max", "min", "prod", "sum")
OF_BOOL = ("all", "any", "count_nonzero", "sum")
NOTHING_TO_DERIVE = ("all", "any", "argmax", "argmin", "count_nonzero")


def reduction(draw):
    dtype, shape = draw.choice((*FLOATS, "int64", "bool")), draw.shape()
    name = draw.choice({"int64": OF_INT, "bool": OF_BOOL}.get(dtype, ONE_AXIS + ANY_AXES))
    axes = tuple(sorted(draw.sample(range(len(shape)), draw.randint(1, len(shape))))) if name in ANY_AXES and draw.random() < 0.4 else None
    if axes is None and (draw.random() < 0.7 or name == "logsumexp"):
        axes = draw.randrange(len(shape))

    def function(module, x):
        found = getattr(module, name)(x) if axes is None else getattr(module, name)(x, dim=axes)
        return found[0] if name in ("max", "min") and axes is not None else found

    text = f"{name} of all" if axes is None else f"{name} dim={axes}"
    return Call(text, function, (draw.input(shape, dtype),), name not in NOTHING_TO_DERIVE and draw.sometimes())


def softmax(draw):
    name, shape = draw.choice(("softmax", "log_softmax", "softmin")), draw.shape()
    axis = draw.randrange(len(shape))
    return Call(f"{name} dim={axis}", functional(name, dim=axis), (draw.input(shape, draw.choice(FLOATS)),), draw.sometimes())


def norms(draw):
    shape, dtype = draw.shape(draw.choice((2, 3, 4))), draw.choice(FLOATS)
    x, y = draw.input(shape, dtype), draw.input(shape, dtype)
    axis, normalized = draw.randrange(len(shape)), shape[-draw.choice((1, 1, 1, 2)) :]
    weight = draw.plain(normalized, dtype)
    calls = {
        f"layer_norm {normalized}": ((x, weight, weight), lambda m, x, w, b: m.nn.functional.layer_norm(x, normalized, w, b)),
        f"layer_norm {normalized} alone": ((x,), lambda m, x: m.nn.functional.layer_norm(x, normalized)),
        f"rms_norm {normalized}": ((x, weight), lambda m, x, w: m.nn.functional.rms_norm(x, normalized, w)),
        f"normalize dim={axis}": ((x,), functional("normalize", dim=axis)),
        "cosine_similarity": ((x, y), functional("cosine_similarity", dim=-1)),
        "pairwise_distance": ((x, y), functional("pairwise_distance")),
    }
    name = draw.choice(tuple(calls))
    inputs, function = calls[name]
    return Call(name, function, inputs, draw.sometimes())


def cumulative(draw):
    shape = draw.shape()
    axis = draw.randrange(len(shape))
    x = draw.input(shape, draw.choice((*FLOATS, "int64", "bool")))
    return Call(f"cumsum dim={axis}", of_module("cumsum", dim=axis), (x,), draw.sometimes())


def sorting(draw):
    shape, dtype = draw.shape(largest=1 << 19), draw.choice((*FLOATS, "int64", "int32"))
    axis = draw.choice((draw.randrange(len(shape)), len(shape) - 1))
    count = min(shape[axis], draw.choice((1, 1, 2, 5, 10, 50, 100, shape[axis] // 2 + 1)))
    order = draw.choice(("random", "random", "sorted", "few"))
    x = draw.input(shape, dtype, "few" if order == "few" else "normal", below=2 if order == "few" else 100)
    if order == "sorted":
        x = dataclasses.replace(x, array=np.sort(x.array, axis=axis))
    name, function = draw.choice(
        (
            ("sort", lambda m, x: x.sort(dim=axis)[0]),
            ("sort descending", lambda m, x: x.sort(dim=axis, descending=True)[0]),
            ("argsort", lambda m, x: x.argsort(dim=axis, stable=True)),
            (f"topk {count}", lambda m, x: x.topk(count, dim=axis)[0]),
            ("argmax", lambda m, x: x.argmax(dim=axis)),
            ("max", lambda m, x: x.max(dim=axis)[0]),
        )
    )
    return Call(f"{name} dim={axis}, values {order}", function, (x,), name not in ("argsort", "argmax") and draw.sometimes(0.25))


FAMILIES = (reduction, softmax, norms, cumulative, sorting)
