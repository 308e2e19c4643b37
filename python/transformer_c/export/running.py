"""Runs of a module on the example, or on one with other lengths or other numbers."""

from __future__ import annotations

import inspect
import itertools
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._core import Tensor
from .._frames import is_array, numbers_of
from .._nested import holds
from .._recording import no_grad
from ..nn import Module
from ..nn.call import accept_array
from .tracing import ExportError, Trace, Tracer, traced

Axis = tuple[str, int]  # of an input


def named(module: Module, example: Any) -> dict[str, Any]:
    """{parameter of forward: what the example has for it}."""
    signature = inspect.signature(module.forward)
    try:
        if isinstance(example, Mapping):
            bound = signature.bind(**example)
        else:
            bound = signature.bind(*(example if isinstance(example, tuple) else (example,)))
    except TypeError as error:
        raise TypeError(f"the example does not fit {type(module).__name__}.forward{signature}: {error}") from None
    given: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            given.update({f"{name}_{i}": v for i, v in enumerate(value)})
        elif kind is inspect.Parameter.VAR_KEYWORD:
            given.update(value)
        else:
            given[name] = value
    return given


class Runner:
    """Runs a module on the example, or on one with other lengths or other numbers, and gives the trace."""

    def __init__(self, module: Module, example: Any) -> None:
        self.module = module
        self.signature = inspect.signature(module.forward)
        given = named(module, example)
        arrays = {n: v.detach().cpu() if isinstance(v, Tensor) else v for n, v in given.items() if _is_array(v)}
        self.arrays = {n: numbers_of(v, f"the example for {n!r}") for n, v in arrays.items()}
        self.options = {n: v for n, v in given.items() if n not in self.arrays}
        for name, value in self.options.items():
            if holds(np.ndarray, value) or holds(Tensor, value):
                raise TypeError(f"{name!r} is a {type(value).__name__} of arrays; export_onnx takes inputs that are arrays")
        if not self.arrays:
            raise TypeError("the example has no array; pass an array, a tuple or a dict of them")
        for name, array in self.arrays.items():
            if array.dtype.kind not in "biufV":
                raise TypeError(f"the example for {name!r} is an array of dtype {array.dtype}; expected numbers")
        self.order = list(given)
        self.names = {id(t): n for n, t in itertools.chain(module.named_buffers(), module.named_parameters())}

    def run(self, lengths: Mapping[Axis, int] | None = None, change: str | None = None) -> Trace:
        """`change` "all" draws new floats, "order" shuffles those of the example; integers and bools are shuffled."""
        dtype, device = self.module._dtype_and_device()
        tracer, given = Tracer(self.names), {}
        for name, array in self.arrays.items():
            array = _resized(array, {axis: n for (i, axis), n in (lengths or {}).items() if i == name})
            array = np.array(array) if change is None else _changed(array, change)  # a forward may write to it
            given[name] = accept_array(array, dtype, device)
            tracer.add_input(name, given[name])
        given.update(self.options)
        args, kwargs = [], {}
        for name in self.order:
            parameter = self.signature.parameters.get(name)
            if parameter is None or parameter.kind is parameter.KEYWORD_ONLY:
                if parameter is None and any(p.kind is p.VAR_POSITIONAL for p in self.signature.parameters.values()):
                    args.append(given[name])
                else:
                    kwargs[name] = given[name]
            elif len(args) == list(self.signature.parameters).index(name):
                args.append(given[name])
            else:
                kwargs[name] = given[name]
        with no_grad(), traced(tracer):
            output = self.module(*args, **kwargs)
        tracer.trace.output = _outputs(output, tracer)
        return tracer.trace


def _is_array(value: Any) -> bool:
    return (
        isinstance(value, (Tensor, np.ndarray, np.generic))
        or is_array(value)
        or (isinstance(value, list) and bool(value) and np.asarray(value).dtype.kind in "biuf")
    )


def _resized(array: np.ndarray, lengths: Mapping[int, int]) -> np.ndarray:
    for axis, length in lengths.items():
        array = np.take(array, np.arange(length) % array.shape[axis], axis)
    return array


def _changed(array: np.ndarray, change: str) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(array.tobytes()))  # not the numbers that made the example
    if change == "all" and array.dtype.kind == "f":
        return rng.standard_normal(array.shape).astype(array.dtype)
    if change == "all" and array.size and (array == array.flat[0]).all():  # no order would change anything
        return (array ^ rng.integers(0, 2, array.shape).astype(array.dtype)) if array.dtype.kind in "biu" else array
    return rng.permutation(array.reshape(-1)).reshape(array.shape)


def _outputs(output: Any, tracer: Tracer) -> Any:
    """The structure of the output with Refs; None stays."""
    if isinstance(output, Tensor):
        return tracer.ref(output)
    if isinstance(output, Mapping):
        return {str(k): _outputs(v, tracer) for k, v in output.items()}
    if isinstance(output, (tuple, list)):
        return [_outputs(v, tracer) for v in output]
    if output is None or isinstance(output, (bool, int, float, str)):
        return None
    raise ExportError(f"forward returned a {type(output).__name__}; expected Tensors, or tuples, lists and dicts of them")


__all__ = ["Axis", "Runner", "named"]
