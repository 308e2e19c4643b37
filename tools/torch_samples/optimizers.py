"""PyTorch's samples of optimizers: the same parameters and gradients for a few steps; in the middle, PyTorch's state is loaded."""

import re
import warnings
from unittest import mock

import numpy as np
import transformer_c as tc

from .comparing import Converter, Outcome, apart, described_call, named, numbers, refused

DTYPES = ("float32", "float64")
SHAPES = ((3, 5), (7,), (1,), (2, 3, 4), ())
MATRICES = (3, 5), (8, 2)
STEPS = 8
# What PyTorch alone refuses, by its message: why.
ACCEPTED = {r"foreach|capturable|both floats or both Tensors": "`foreach` and `capturable` have no effect, a Tensor is a number"}


class ParameterConverter(Converter):
    """Parameters, alone and in groups: one that is there twice is one."""

    def __init__(self, torch):
        super().__init__(torch)
        self.known = {}

    def both(self, value):
        if isinstance(value, self.torch.nn.Parameter):
            if id(value) not in self.known:
                self.known[id(value)] = value, tc.nn.Parameter(self.ours(value.detach()))
            return self.known[id(value)]
        return super().both(value)


def parameters(info, dtype, converter):
    """PyTorch's and ours, of the same numbers."""
    import torch

    rng = np.random.default_rng(0)
    shapes = MATRICES if info.name == "Muon" else SHAPES
    theirs = [torch.nn.Parameter(torch.tensor(rng.normal(size=shape), dtype=getattr(torch, dtype))) for shape in shapes]
    return converter.both(theirs)


def set_gradients(theirs, ours, rng, dtype):
    import torch

    for p, q in zip(theirs, ours, strict=True):
        gradient = rng.normal(size=q.shape)
        p.grad, q.grad = torch.tensor(gradient, dtype=p.dtype), tc.tensor(gradient, dtype=dtype)


def run(info, sample, dtype):
    """The outcome of one set of options, or None where PyTorch itself refuses it."""
    import torch

    converter = ParameterConverter(torch)
    theirs, ours = parameters(info, dtype, converter)
    their_options, our_options = converter.both(dict(sample.kwargs))
    call = described_call(("parameters",), sample.kwargs, torch).replace("'", "")
    kind, rng = getattr(tc.optim, info.name), np.random.default_rng(1)
    expected = info.optim_cls(theirs, **their_options)
    try:
        optimizer = kind(ours, **our_options)
    except Exception as error:
        return refused(named(error), call)
    for step in range(1, STEPS + 1):
        set_gradients(theirs, ours, rng, dtype)
        try:
            expected.step()
        except Exception:
            return None
        try:
            optimizer.step()
            if step == STEPS // 2:
                optimizer = kind(ours, lr=1.0)
                optimizer.load_state_dict(expected.state_dict())
        except Exception as error:
            return refused(named(error), call)
        for p, q in zip(theirs, ours, strict=True):
            if found := apart(numbers(q, converter), numbers(p, converter), dtype):
                return Outcome("different", f"step {step}: {found}", call)
    return Outcome("agreed", "", call)


def error_of(kind, params, options):
    """What making an optimizer raises, or None."""
    try:
        kind(params, **options)
    except (ValueError, TypeError, RuntimeError) as error:
        return error
    return None


def run_error(info, sample, dtype):
    """The outcome of arguments that PyTorch refuses, or None where it does not."""
    import torch

    converter, given = ParameterConverter(torch), sample.optimizer_error_input
    try:
        theirs, ours = parameters(info, dtype, converter) if given.params is None else converter.both(given.params)
    except TypeError:  # complex parameters, which there are none of
        return None
    their_options, our_options = converter.both(dict(given.kwargs))
    expected = error_of(info.optim_cls, theirs, their_options)
    if expected is None or any(re.search(pattern, str(expected)) for pattern in ACCEPTED):
        return None
    if error_of(getattr(tc.optim, info.name), ours, our_options) is None:
        return Outcome("different", f"accepted; PyTorch: {named(expected)}", given.desc)
    return Outcome("agreed", "", given.desc)


def outcomes(info, most=None):
    import torch

    found = []
    with warnings.catch_warnings(), mock.patch.object(torch.Tensor, "bfloat16", torch.Tensor.clone):  # Muon's iterations, which are in it
        warnings.simplefilter("ignore")
        for dtype in DTYPES:
            given = dict(device="cpu", dtype=getattr(torch, dtype))
            found += [run(info, sample, dtype) for sample in info.optim_inputs_func(**given)[:most]]
            found += [run_error(info, sample, dtype) for sample in info.optim_error_inputs_func(**given)[:most]]
    return [outcome for outcome in found if outcome]


def rows(names=(), most=None):
    """(title, outcomes) of each optimizer that exists here."""
    from torch.testing._internal.common_optimizers import optim_db

    for info in optim_db:
        if hasattr(tc.optim, info.name) and (not names or {info.name, f"optim.{info.name}"} & set(names)):
            yield f"optim.{info.name}", outcomes(info, most)
