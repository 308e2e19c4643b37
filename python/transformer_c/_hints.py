"""Advice for AttributeErrors: the replacement for a name that PyTorch or NumPy has and this library does not."""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import Any

import numpy as np

from . import _names

# NumPy's names, most of which PyTorch has as well, of what has a shorter one here.
_ALIASES = {
    "absolute": "abs",
    "divide": "div",
    "ger": "outer",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "mod": "remainder",
    "moveaxis": "movedim",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "power": "pow",
    "subtract": "sub",
    "swapdims": "transpose",
    "true_divide": "div",
}

# Attributes of a Tensor.
_TENSOR = {
    "values": "t.max(dim).values; with axis= the result itself is the values",
    "indices": "t.max(dim).indices, or t.argmax(dim): with axis= the result is the values alone",
    "append": "tc.cat([t, u])",
    "astype": "t.to(dtype)",
    "copy": "t.clone()",
    "equals": "t.equal(u)",
    "expand_dims": "t.unsqueeze(dim), or t[None]",
    "fill": "t.fill_(value)",
    "new": "t.new_empty(lengths), or t.new_tensor(data)",
    "char": "t.long(): there are no integers of 8 bits with a sign",
    "short": "t.int(): there are no integers of 16 bits",
    "ndimension": "t.ndim",
    "untyped_storage": "t.numpy(), a view of the memory",
    "storage": "t.numpy(), a view of the memory",
    "erfc": "1 - t.erf()",
    **dict.fromkeys(("erfinv", "erfinv_"), "tc.nn.init.trunc_normal_(t, mean, std), if the numbers are to be normal within bounds"),
    "expm1": "t.exp() - 1",
    "exp2": "2**t",
    "frac": "t - t.trunc()",
    "tan": "t.sin() / t.cos()",
    "H": "t.T",
    "random_": "t.copy_(tc.randint(low, high, t.shape))",
    "mH": "t.mT",
    "kthvalue": "t.sort(dim)",
    "dist": "(t - u).norm()",
    "fliplr": "t.flip(1)",
    "flipud": "t.flip(0)",
    "hypot": "(t * t + u * u).sqrt()",
    "inner": "t @ u.T",
    "log_normal_": "t.normal_(mean, std).exp_()",
    "reshape_as": "t.reshape(u.shape)",
    "rot90": "t.transpose(0, 1).flip(0)",
    "take": "t.reshape(-1)[index]",
    "split_with_sizes": "t.split(sizes)",
    "is_complex": "False: there are no complex dtypes",
    "concatenate": "tc.cat",
    "msort": "t.sort(0).values",
    "take_along_axis": "t.gather(dim, index)",
    "atan2": "np.arctan2(t.numpy(), u.numpy()), without a gradient",
    "fmod": "t - (t / u).trunc() * u",
    "pin_memory": "t.to(device): there is no pinned memory",
    **dict.fromkeys(("to_sparse", "to_dense"), "t itself: there are no sparse tensors"),
    "logit": "(t / (1 - t)).log()",
    "as_strided": "t.unfold(dim, size, step), for windows",
    "stft": "t.unfold(-1, size, step) * window, and products of it with cosines and sines",
    "tensor_split": "t.split(sizes, dim)",
    "diag_embed": "t.unsqueeze(-1) * tc.eye(n)",
    "aminmax": "t.amin(dim) and t.amax(dim)",
    "nansum": "t.masked_fill(t.isnan(), 0).sum()",
    "nanmean": "t.masked_fill(t.isnan(), 0).sum(dim) / (~t.isnan()).sum(dim)",
    "unique_consecutive": "t[tc.cat([tc.ones(1).bool(), t[1:] != t[:-1]])], of one axis",
    "dot": "t @ u",
    "mv": "t @ u",
    "diff": "t[..., 1:] - t[..., :-1]",
    **{name: f"t.{here}" for name, here in _ALIASES.items()},
}

# Names of the package.
_PACKAGE = {
    "array": "tc.tensor(data)",
    "asarray": "tc.as_tensor(data)",
    "GradScaler": "tc.amp.GradScaler",
    "argwhere": "tc.nonzero",
    "mode": "NumPy: np.unique of t.numpy(), with return_counts=True",
    "randint_like": "tc.randint(low, high, t.shape)",
    "row_stack": "tc.vstack",
    "newaxis": "None: t[None]",
    "append": "tc.cat([t, u])",
    "copy": "tc.clone",
    "array_equal": "tc.equal",
    "expand_dims": "tc.unsqueeze, or t[None]",
    "take_along_axis": "tc.gather",
    "set_printoptions": "NumPy's: np.set_printoptions is for arrays, t.numpy()",
    "tan": "tc.sin(t) / tc.cos(t)",
    "qr": "tc.linalg.qr, without a gradient",
    "func": "tc.autograd.grad of a loss, and functions themselves in place of vmap: they take leading axes",
    "device_count": "tc.cuda.device_count()",
    "onnx": "tc.export_onnx(model, example, path)",
    "fft": "NumPy: np.fft of t.numpy(), without a gradient",
    "nested": "lengths= or sequence_lengths= of the layers, for sequences of different lengths",
    "version": "tc.__version__",
    "get_default_dtype": "tc.float32, which it is",
    "set_default_dtype": "dtype= where a Tensor is made, and model.double()",
    "set_default_device": "device= where a Tensor is made, and model.to(device)",
    "use_deterministic_algorithms": "no such switch: the same seed gives the same bits as it is",
    "seed": "tc.manual_seed(seed)",
    "initial_seed": "tc.random.default_generator.initial_seed()",
    "multiprocessing": "tc.distributed, or Python's multiprocessing",
    "special": "the function of the same name: tc.erf(t), tc.logsumexp(t, dim)",
    "accelerator": "tc.cuda",
    "hub": "tc.models.load(folder)",
    "profiler": "python -m cProfile -s cumtime program.py",
    **dict.fromkeys(
        ("complex", "complex64", "complex128", "cfloat", "cdouble", "polar", "view_as_complex", "view_as_real"),
        "two real Tensors, such as tc.cos(t) and tc.sin(t): there are no complex dtypes",
    ),
    "logspace": "10 ** tc.linspace(start, end, steps)",
    "range": "tc.arange(start, end + 1)",
    "hann_window": "0.5 - 0.5 * tc.cos(2 * tc.pi * tc.arange(n) / n)",
    "set_default_tensor_type": "dtype= where a Tensor is made, and model.double()",
    "vmap": "the function itself: functions take leading axes",
    "inverse": "tc.linalg.inv(t)",
    "tensordot": "tc.einsum",
    "dot": "tc.matmul, or t @ u",
    "mv": "tc.matmul, or t @ u",
    "column_stack": "tc.stack(tensors, dim=1) of vectors, tc.cat(tensors, dim=1) of matrices",
    "histc": "NumPy: np.histogram of t.numpy()",
    **{name: f"tc.{here}" for name, here in _ALIASES.items()},
    **dict.fromkeys(("Tuner", "tuner"), "several runs of tc.Trainer: it searches for no learning rate"),
    "SentenceTransformer": "tc.models.SentenceEncoder.from_pretrained(folder)",
    "AutoModel": "tc.models.load(folder)",
    "pipeline": "tc.models.TextClassifier(folder), TokenClassifier or SentenceEncoder",
}


def _is_function(name: str) -> bool:
    """Is this a public function of tc.functional?"""
    from . import functional

    return name in functional.__all__


# First parameters of NumPy's functions of an array.
_ARRAYS = ("A", "a", "a1", "ar", "ar1", "arr", "array", "ary", "arys", "element", "f", "m", "p", "v", "val", "x", "xi", "y", "z")

# Modules whose names may be looked for in the package itself.
_MODULES = (
    "optim",
    "data",
    "callbacks",
    "loggers",
    "metrics",
    "optim.lr_scheduler",
    "models",
    "nn.init",
    "nn.utils",
    "datasets",
    "testing",
)


def _numpy(name: str) -> str | None:
    """A function of NumPy that takes an array."""
    function = getattr(np, name, None)
    if name.startswith("_") or not callable(function) or isinstance(function, type):
        return None
    if not isinstance(function, np.ufunc):
        try:
            first = next(iter(inspect.signature(function).parameters), None)
        except ValueError:  # written in C
            return None
        if first not in _ARRAYS:
            return None
    return f"NumPy: np.{name}, with t.numpy() and without a gradient"


def _elsewhere(name: str) -> str | None:
    """The name in a module of the package."""
    for module in _MODULES:
        if name in dir(importlib.import_module(f"transformer_c.{module}")):
            return f"tc.{module}.{name}"
    return None


# Methods whose variants in place give this Tensor another shape.
_OF_SHAPES = ("squeeze", "swapaxes", "t", "transpose", "unsqueeze")


def _in_place(tensor: Any, name: str) -> str | None:
    """What to write for ``t.exp_()`` where there is ``t.exp()``."""
    plain = name.removesuffix("_")
    if plain == name or name.startswith("_") or not callable(getattr(type(tensor), plain, None)):
        return None
    return f"t = t.{plain}(...)" if plain in _OF_SHAPES else f"t.copy_(t.{plain}(...)), or t = t.{plain}(...)"


def _tensor_advice(tensor: Any, name: str) -> str | None:
    if name in _TENSOR:
        return _TENSOR[name]
    if in_place := _in_place(tensor, name):
        return in_place
    if _is_function(name):
        return f"tc.functional.{name}(t)"
    if name.startswith("_"):
        return None
    if _numpy(name):
        return _numpy(name)
    if hasattr(np.ndarray, name):
        return f"t.numpy().{name}, without a gradient"
    found = _names.nearest(name, dir(type(tensor)))
    return None if found is None else f"t.{found}, if that is what you mean"


def _similar(name: str) -> str | None:
    """The name of the package, of its functions or of its layers that `name` looks like."""
    from . import functional, nn

    for prefix, names in (("tc", dir(sys.modules["transformer_c"])), ("tc.functional", dir(functional)), ("tc.nn", nn.__all__)):
        found = _names.nearest(name, names)
        if found is not None:
            return f"{prefix}.{found}, if that is what you mean"
    return None


def _package_advice(name: str) -> str | None:
    from . import nn
    from ._core import Tensor

    if name in _PACKAGE:
        return _PACKAGE[name]
    if _is_function(name):
        return f"tc.functional.{name}"
    if name in nn.__all__:
        return f"tc.nn.{name}"
    if not name.startswith("_") and callable(getattr(Tensor, name, None)):
        return f"the method, t.{name}()"
    if name in _TENSOR:
        return _TENSOR[name]
    return None if name.startswith("_") else _elsewhere(name) or _numpy(name) or _similar(name)


def _use(advice: str | None) -> str:
    return f"; use {advice}" if advice else ""


def tensor_attribute(tensor: Any, name: str) -> None:
    """Raises the AttributeError of a Tensor, with advice on what to write instead if there is any."""
    message = f"{type(tensor).__name__!r} object has no attribute {name!r}"
    raise _names.MissingName(message, lambda: _use(_tensor_advice(tensor, name)), name, tensor)


def package_attribute(name: str) -> AttributeError:
    """The AttributeError of ``tc.<name>``."""
    message = f"module 'transformer_c' has no attribute {name!r}"
    return _names.MissingName(message, lambda: _use(_package_advice(name)), name, sys.modules["transformer_c"])
