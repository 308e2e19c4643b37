"""Gradients with respect to some Tensors alone, as values.

Examples
--------
>>> import transformer_c as tc
>>> x = tc.tensor([1.0, 2.0], requires_grad=True)
>>> tc.autograd.grad((x * x).sum(), x)
(tensor([2., 4.]),)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .. import _core
from .._core import Tensor
from .._names import hooks
from .._recording import enable_grad, inference_mode, no_grad, set_grad_enabled
from .._tensor import as_tensor, ones_like, zeros_like
from .function import Function


def grad(
    outputs: Tensor | Iterable[Tensor],
    inputs: Tensor | Iterable[Tensor],
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]:
    """Computes the gradients of `outputs` with respect to `inputs`, and returns them; no ``.grad`` changes.

    Only the ops between the two are gone back through, and only these call their hooks and free their saved values. Other gradients, such
    as those of a model's weights when one asks for that of its input, are not computed.

    Parameters
    ----------
    outputs : Tensor or iterable of Tensor
        With several, the gradients are those of their sum.
    inputs : Tensor or iterable of Tensor
        Leaves, or results of other computations.
    grad_outputs : Tensor, or sequence of Tensor or None, optional
        A factor for each output, of its shape: the gradient of something else with respect to it. None is 1, for an output of one element.
    retain_graph : bool, optional
        Keep the saved values for another backward; default False.
    create_graph : bool
        Must be False: there are no gradients of gradients.
    only_inputs : bool
        Must be True.
    allow_unused : bool, optional
        None as the gradient of an input on which no output depends; by default an error, unless `materialize_grads` is set.
    is_grads_batched : bool
        Must be False.
    materialize_grads : bool, default False
        Zeros as the gradient of an input on which no output depends.

    Returns
    -------
    tuple of Tensor
        One for each input, with its shape and dtype, in memory of its own.

    Examples
    --------
    >>> import transformer_c as tc
    >>> model = tc.nn.Linear(3, 1)
    >>> x = tc.ones(2, 3, requires_grad=True)
    >>> (saliency,) = tc.autograd.grad(model(x).sum(), x)
    >>> saliency.shape, x.grad, model.weight.grad
    ((2, 3), None, None)
    """
    if create_graph:
        raise ValueError("create_graph must be False: there are no gradients of gradients; retain_graph=True keeps the graph")
    if not only_inputs:
        raise ValueError("only_inputs must be True: for the gradients of all leaves, call backward()")
    if is_grads_batched:
        raise ValueError("is_grads_batched must be False: call grad() for each of the gradients, with retain_graph=True")
    if materialize_grads and allow_unused is False:
        raise ValueError("materialize_grads=True gives zeros for inputs that are not used, which allow_unused=False refuses")
    roots, leaves = _tensors("outputs", outputs), _requiring(inputs)
    found = _core.gradients(roots, leaves, _factors(roots, grad_outputs), bool(retain_graph))
    if materialize_grads:
        return tuple(zeros_like(tensor) if gradient is None else gradient for tensor, gradient in zip(leaves, found, strict=True))
    for i, gradient in enumerate(found):
        if gradient is None and not allow_unused:
            raise RuntimeError(
                f"no output depends on inputs[{i}], of shape {tuple(leaves[i].shape)}; "
                "allow_unused=True gives None for it, materialize_grads=True zeros"
            )
    return found


def backward(
    tensors: Tensor | Iterable[Tensor],
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Iterable[Tensor] | None = None,
) -> None:
    """Adds the gradients of `tensors` to ``.grad`` of all leaves: ``t.backward()`` of several at once.

    Parameters
    ----------
    tensors : Tensor or iterable of Tensor
        With several, the gradients are those of their sum.
    grad_tensors : Tensor, or sequence of Tensor or None, optional
        A factor for each tensor, of its shape. None is 1, for a tensor of one element.
    retain_graph : bool, optional
        Keep the saved values for another backward; default False.
    create_graph : bool
        Must be False: there are no gradients of gradients.
    inputs : Tensor or iterable of Tensor, optional
        Leaves, or results of other computations, whose ``.grad`` alone is added to. Only the ops that lead to them are gone back through.

    Examples
    --------
    >>> import transformer_c as tc
    >>> x = tc.tensor([1.0, 2.0], requires_grad=True)
    >>> tc.autograd.backward([x[0] * 3, x * 2], [None, tc.tensor([1.0, 10.0])])
    >>> x.grad
    tensor([ 5., 20.])
    """
    if create_graph:
        raise ValueError("create_graph must be False: there are no gradients of gradients; retain_graph=True keeps the graph")
    roots = _tensors("tensors", tensors)
    factors = _factors(roots, grad_tensors, "backward()", "tensors", "grad_tensors")
    if inputs is not None:
        return _add_gradients(roots, factors, _requiring(inputs), bool(retain_graph))
    if len(roots) == 1:
        return roots[0].backward(factors[0], retain_graph=bool(retain_graph))
    for i, (root, factor) in enumerate(zip(roots, factors, strict=True)):
        if not root.requires_grad:
            raise RuntimeError(f"tensors[{i}], of shape {tuple(root.shape)}, recorded nothing to go back through")
        if root.shape != factor.shape:
            raise ValueError(f"grad_tensors[{i}] has shape {tuple(factor.shape)}, tensors[{i}] has {tuple(root.shape)}")
    with enable_grad():  # one pass over the graph for all of them
        total = sum((root * factor.detach()).sum() for root, factor in zip(roots, factors, strict=True))
    total.backward(retain_graph=bool(retain_graph))


def _add_gradients(roots: list[Tensor], factors: list[Tensor], inputs: list[Tensor], retain_graph: bool) -> None:
    """Adds the gradients of `inputs` to their ``.grad``, each once."""
    for tensor in inputs:
        tensor.retain_grad()  # adds that of a result
    _core.backward_to(roots, inputs, factors, retain_graph)


def _requiring(inputs: Any) -> list[Tensor]:
    tensors = _tensors("inputs", inputs)
    for i, tensor in enumerate(tensors):
        if not tensor.requires_grad:
            raise RuntimeError(
                f"inputs[{i}], of shape {tuple(tensor.shape)}, does not require a gradient; call requires_grad_() before the forward"
            )
    return tensors


def _tensors(name: str, given: Any) -> list[Tensor]:
    """A Tensor, or several, as a list."""
    tensors = [given] if isinstance(given, Tensor) else list(given) if isinstance(given, Iterable) else [given]
    if not tensors:
        raise ValueError(f"{name} is empty; expected a Tensor, or several")
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            place = f"{name}[{i}]" if isinstance(given, Iterable) else name
            raise TypeError(f"{place} is of type {type(tensor).__name__}; expected a Tensor, which records gradients")
    return tensors


def _factors(
    outputs: list[Tensor], given: Any, call: str = "grad()", name: str = "outputs", of_factors: str = "grad_outputs"
) -> list[Tensor]:
    """The gradients that the outputs begin with."""
    factors = list(given) if isinstance(given, (list, tuple)) else [given] * (1 if given is not None else len(outputs))
    if len(factors) != len(outputs):
        raise ValueError(f"{of_factors} has {len(factors)} gradients for {len(outputs)} {name}; expected one for each, or None")
    for i, (output, factor) in enumerate(zip(outputs, factors, strict=True)):
        if factor is None and output.numel() != 1:
            raise RuntimeError(
                f"{name}[{i}] has shape {tuple(output.shape)}; {call} starts from tensors of one element: reduce it (.sum(), .mean()) or pass "
                f"{of_factors}="
            )
    return [ones_like(output) if factor is None else as_tensor(factor) for output, factor in zip(outputs, factors, strict=True)]


__all__ = ["Function", "backward", "enable_grad", "grad", "inference_mode", "no_grad", "set_grad_enabled"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(
        __name__,
        instead={
            "Variable": "the Tensor itself: a Variable is a Tensor",
            "gradcheck": "tc.testing.gradcheck",
            "functional": "tc.autograd.grad for each row: there are no gradients of gradients",
            "detect_anomaly": "isfinite().all() of the values in question",
            "set_detect_anomaly": "isfinite().all() of the values in question",
        },
    )
