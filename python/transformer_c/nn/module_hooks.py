"""Hooks on modules: functions that see, and may change, what goes into a module, what comes out of it, and its gradients.

A module without hooks pays nothing for them: the first hook puts a Hooked in the place of the module's ``forward``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import _core
from .._core import Tensor
from .attention import MultiheadAttention
from .module import Module

Hook = Callable[..., Any]


class Hooked:
    """The ``forward`` of a module with hooks.

    Parameters
    ----------
    module : Module
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self._replaced = vars(module).get("forward")
        self.before: dict[int, tuple[Hook, bool]] = {}
        self.after: dict[int, tuple[Hook, bool]] = {}
        self.backward: dict[int, Hook] = {}

    @classmethod
    def of(cls, module: Module) -> Hooked:
        """That of a module, created at first use."""
        found = vars(module).get("forward")
        if not isinstance(found, cls):
            found = cls(module)
            object.__setattr__(module, "forward", found)
        return found

    def drop_if_empty(self) -> None:
        """Puts the module's own ``forward`` back in its place once the last hook is gone."""
        if self.before or self.after or self.backward or vars(self._module).get("forward") is not self:
            return
        object.__delattr__(self._module, "forward")
        if self._replaced is not None:
            object.__setattr__(self._module, "forward", self._replaced)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._forward)

    @property
    def _forward(self) -> Callable[..., Any]:
        return self._replaced or type(self._module).forward.__get__(self._module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self._module
        for hook, with_kwargs in tuple(self.before.values()):
            changed = hook(module, args, kwargs) if with_kwargs else hook(module, args)
            if with_kwargs and changed is not None:
                args, kwargs = changed
            elif changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        watched = Gradients(module, tuple(self.backward.values())) if self.backward and _core.grad_enabled() else None
        if watched is not None:
            args = watched.of_inputs(args)
        result = self._forward(*args, **kwargs)
        for hook, with_kwargs in tuple(self.after.values()):
            changed = hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)
            result = result if changed is None else changed
        return result if watched is None else watched.of_outputs(result)


class Gradients:
    """Passes a module's inputs and outputs on, and calls its backward hooks with their gradients."""

    def __init__(self, module: Module, hooks: tuple[Hook, ...]) -> None:
        self._module, self._hooks = module, hooks
        self._given: tuple[Any, ...] = ()  # the gradients of the outputs
        self._has_inputs = False

    def of_inputs(self, args: tuple) -> tuple:
        """The arguments, whose gradients the hooks will see."""
        self._has_inputs = any(isinstance(a, Tensor) and a.requires_grad for a in args)
        return self._through(args, self._call) if self._has_inputs else args

    def of_outputs(self, result: Any) -> Any:
        """The result, or the tuple or list of results, whose gradients the hooks will see."""
        if isinstance(result, (tuple, list)):
            return type(result)(self._through(tuple(result), self._keep))
        return self._through((result,), self._keep)[0]

    def _through(self, values: tuple, see: Callable[[tuple], tuple]) -> tuple:
        """The values, with those that require a gradient passed through one node of the tape whose backward calls `see`."""
        places = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad]
        if not places:
            return values

        def backward(*gradients: Any) -> tuple:
            every = [None] * len(values)
            for place, gradient in zip(places, gradients, strict=True):
                every[place] = gradient
            return tuple(see(tuple(every))[place] for place in places)

        tensors = [values[i] for i in places]
        passed = _core.record_custom(tensors, tuple(np.asarray(t.detach()) for t in tensors), backward)
        found = list(values)
        for place, tensor in zip(places, passed if isinstance(passed, (tuple, list)) else (passed,), strict=True):
            found[place] = tensor
        return tuple(found)

    def _keep(self, gradients: tuple) -> tuple:
        self._given = gradients
        if not self._has_inputs:
            self._call((None,))
        return gradients

    def _call(self, gradients: tuple) -> tuple:
        arrays = lambda values: tuple(None if v is None else Tensor(np.asarray(v)) for v in values)
        for hook in self._hooks:
            changed = hook(self._module, arrays(gradients), arrays(self._given))
            if changed is not None:
                changed = changed if isinstance(changed, tuple) else (changed,)
                gradients = tuple(None if c is None else np.asarray(c) for c in changed)
        return gradients


class RemovableHandle:
    """What registering a hook returns: ``remove()`` takes the hook away, and so does the end of a ``with`` block."""

    _count = 0

    def __init__(self, hooked: Hooked, hooks: dict[int, Any], hook: Any, prepend: bool = False) -> None:
        RemovableHandle._count += 1
        self.id = RemovableHandle._count
        self._hooked, self._hooks = hooked, hooks
        rest = dict(hooks) if prepend else {}
        if prepend:
            hooks.clear()
        hooks[self.id] = hook
        hooks.update(rest)

    def remove(self) -> None:
        """Takes the hook away; does nothing the second time."""
        self._hooks.pop(self.id, None)
        self._hooked.drop_if_empty()

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *unused: Any) -> None:
        self.remove()


@contextmanager
def attention_maps(module: Module) -> Iterator[dict[str, np.ndarray]]:
    """Collects the attention maps of all attention layers that are called inside the block, in any module.

    Parameters
    ----------
    module : Module

    Yields
    ------
    dict of str to ndarray
        The map (B, H, Tq, Tk) of each layer's last call, under the layer's name in the module. Filled while the block runs.

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> layer = tc.nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16, batch_first=True)
    >>> encoder = tc.nn.TransformerEncoder(layer, num_layers=2).eval()
    >>> with tc.nn.attention_maps(encoder) as maps:
    ...     y = encoder(np.zeros((4, 5, 8), np.float32))
    >>> {name: map.shape for name, map in maps.items()}
    {'layers.0.self_attn': (4, 2, 5, 5), 'layers.1.self_attn': (4, 2, 5, 5)}
    """
    from ..encoder import MultiheadAttention as TutorialsAttention  # imports this package

    maps: dict[str, np.ndarray] = {}
    handles = []
    for name, part in module.named_modules():
        if isinstance(part, MultiheadAttention):
            handles += _collect(name, part, {"need_weights": True, "average_attn_weights": False}, maps)
        elif isinstance(part, TutorialsAttention):
            handles += _collect(name, part, {"return_attention": True}, maps)
    try:
        yield maps
    finally:
        for handle in handles:
            handle.remove()


def _collect(name: str, part: Module, wanted: dict[str, bool], maps: dict[str, np.ndarray]) -> list[RemovableHandle]:
    """Hooks that ask a layer for its map of every head, the second of two results, keep it, and give the caller what that had asked for."""
    signature = inspect.signature(part.forward)
    asked: list[dict[str, Any]] = []

    def before(module: Module, args: tuple, kwargs: dict[str, Any]) -> tuple:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        asked.append({option: bound.arguments[option] for option in wanted})
        bound.arguments.update(wanted)
        return bound.args, bound.kwargs

    def after(module: Module, args: tuple, result: Any) -> Any:
        output, weights = result
        maps[name] = np.array(weights.detach().cpu())
        options = asked.pop()
        if "return_attention" in options:
            return result if options["return_attention"] else output
        if not options["need_weights"]:
            return output, None
        return output, weights.mean(axis=-3) if options["average_attn_weights"] else weights

    return [part.register_forward_pre_hook(before, with_kwargs=True), part.register_forward_hook(after)]


__all__ = ["Gradients", "Hooked", "RemovableHandle", "attention_maps"]
