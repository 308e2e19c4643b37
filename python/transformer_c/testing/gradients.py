"""Gradients against central differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._core import Tensor
from .._recording import no_grad
from .._tensor import tensor


class GradcheckError(RuntimeError):
    """A gradient differs from its numerical estimate."""


def gradcheck(
    f: Callable[..., Any], inputs: Any, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True
) -> bool:
    """Compares the gradients of `f` with central differences, in float64.

    Parameters
    ----------
    f : callable
        Takes Tensors, returns a Tensor or a tuple of Tensors, of which those that are not floating are not checked.
    inputs : Tensor, ndarray, or a sequence of them
        Floating ones are taken in float64 and differentiated (Tensors only if they require a gradient, when any of the inputs does);
        others are passed on unchanged.
    eps : float
        The step of the differences.
    atol, rtol : float
        A gradient passes when |analytic - numerical| <= atol + rtol |numerical|, elementwise.
    raise_exception : bool
        Raise GradcheckError (True) or return False.

    Returns
    -------
    bool

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.testing.gradcheck(lambda x: x * x, np.array([1.0, 2.0]))
    True
    """
    given = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    asked = [isinstance(i, Tensor) and i.requires_grad for i in given]
    prepared = []
    for value, wanted in zip(given, asked, strict=True):
        array = _array(value) if isinstance(value, Tensor) else np.asarray(value)
        differentiate = array.dtype.kind == "f" and (wanted or not any(asked))
        device = value.device if isinstance(value, Tensor) else None
        prepared.append(tensor(array.astype(np.float64), device=device, requires_grad=True) if differentiate else value)
    wanted = [i for i, p in enumerate(prepared) if isinstance(p, Tensor) and p.requires_grad]
    if not wanted:
        raise ValueError("gradcheck needs at least one floating input")
    try:
        _check(f, prepared, wanted, eps, atol, rtol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _array(x: Tensor) -> np.ndarray:
    return x.detach().cpu().numpy()


def _outputs(f: Callable[..., Any], inputs: Sequence[Any]) -> list[Tensor]:
    result = f(*inputs)
    results = result if isinstance(result, (tuple, list)) else (result,)
    for k, r in enumerate(results):
        if not isinstance(r, (Tensor, type(None))):
            raise TypeError(f"f returned a value of type {type(r).__name__} as output {k}; expected a Tensor, which records gradients")
    if all(r is None for r in results):
        raise TypeError(f"f returned {result!r}; expected a Tensor, or a tuple with one")
    return [r for r in results if r is not None and r.dtype.kind == "f"]


def _check(f, inputs, wanted, eps, atol, rtol) -> None:
    shapes = [tuple(o.shape) for o in _outputs(f, inputs)]
    rng = np.random.default_rng(0)
    for k, shape in enumerate(shapes):
        # One random direction of the output would miss errors that cancel: every element of small outputs, else many directions.
        size = int(np.prod(shape))
        directions = np.eye(size) if size <= 64 else rng.standard_normal((16, size))
        numerical = {i: _numerical(f, inputs, i, k, eps).reshape(inputs[i].numel(), size) for i in wanted}
        for direction in directions:
            for i in wanted:
                inputs[i].grad = None
            output = _outputs(f, inputs)[k]
            if not output.requires_grad:
                raise GradcheckError(f"output {k} recorded nothing")
            output.backward(gradient=tensor(direction.reshape(shape), device=output.device))
            for i in wanted:
                grad = inputs[i].grad
                analytic = np.zeros(inputs[i].shape) if grad is None else _array(grad)
                expected = (numerical[i] @ direction).reshape(inputs[i].shape)
                _compare(analytic, expected, i, k, atol, rtol)


def _numerical(f, inputs, i: int, k: int, eps: float) -> np.ndarray:
    """Rows: elements of input i; columns: elements of output k."""
    base = _array(inputs[i])
    rows = []
    with no_grad():
        for index in np.ndindex(*base.shape):
            sides = []
            for sign in (1, -1):
                moved = base.copy()
                moved[index] += sign * eps
                changed = [tensor(moved, device=v.device) if j == i else v for j, v in enumerate(inputs)]
                sides.append(_array(_outputs(f, changed)[k]).reshape(-1).copy())
            rows.append((sides[0] - sides[1]) / (2 * eps))
    return np.array(rows)


def _compare(analytic: np.ndarray, expected: np.ndarray, i: int, k: int, atol: float, rtol: float) -> None:
    error = np.abs(analytic - expected)
    good = error <= atol + rtol * np.abs(expected)  # a NaN is not
    if not good.all():
        worst = (
            np.unravel_index(np.argmax(np.where(good, -1.0, np.where(np.isnan(error), np.inf, error))), error.shape) if error.size else ()
        )
        raise GradcheckError(
            f"the gradient of output {k} with respect to input {i} is wrong at {tuple(int(w) for w in worst)}: "
            f"analytic {analytic[worst]:.9g}, numerical {expected[worst]:.9g} ({int((~good).sum())} of {good.size} elements)"
        )


__all__ = ["GradcheckError", "gradcheck"]
