"""The attention maps of any module.

An attention layer says how its map is asked for, in an attribute of its class: ``_attention_map = {"return_attention": True}`` are arguments
of ``forward`` with which it returns (output, map), and without which it returns the output. A str is the name of an attribute that has the map
of the last call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from .module import Module
from .module_hooks import around


def attention_maps(module: Module) -> AbstractContextManager[dict[str, np.ndarray]]:
    """Collects the attention maps of all attention layers that are called inside the block, in any module.

    Parameters
    ----------
    module : Module

    Returns
    -------
    context manager
        Of a dict, which fills while the block runs: the map (B, H, Tq, Tk) of each layer's last call, under the layer's name in the module.

    Raises
    ------
    ValueError
        When no attention layer is in the module.

    Notes
    -----
    The layers are those of ``tc.nn``, of ``tc.models`` and of the tutorials. A layer of your own takes part when its class says how its ``forward`` is asked to
    return (output, map): ``_attention_map = {"return_attention": True}``.

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
    if not isinstance(module, Module):
        raise TypeError(f"module must be an nn.Module, got {module!r} ({type(module).__name__})")
    maps: dict[str, np.ndarray] = {}
    hooks = [(part, _collect(name, part, maps)) for name, part in module.named_modules() if getattr(part, "_attention_map", None)]
    if not hooks:
        raise ValueError(f"{type(module).__name__} contains no attention layer that says how its map is asked for; see attention_maps")
    return around(hooks, maps)


def _collect(name: str, part: Any, maps: dict[str, np.ndarray]) -> Callable[..., Any]:
    """A hook around a layer's forward that asks for the map, keeps it, and gives the caller what that had asked for."""
    wanted = part._attention_map
    signature = inspect.signature(part.forward)

    def keep(weights: Any) -> None:
        maps[name] = np.array(weights.detach().cpu())

    def with_attribute(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = forward(*args, **kwargs)
        keep(getattr(part, wanted))
        return result

    def with_options(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        asked = {option: bound.arguments[option] for option in wanted}
        bound.arguments.update(wanted)
        output, weights = forward(*bound.args, **bound.kwargs)
        keep(weights)
        if hasattr(part, "_as_asked"):
            return part._as_asked(output, weights, asked)
        return (output, weights) if all(asked.values()) else output

    return with_attribute if isinstance(wanted, str) else with_options


__all__ = ["attention_maps"]
