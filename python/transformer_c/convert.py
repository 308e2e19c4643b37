"""Converts weights from one library's layout to another's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arguments import count
from ._core import Tensor
from ._joining import cat
from ._names import hooks
from ._tensor import readable

_NAMES = {
    "head": "head",
    "per_head": "head",
    "interleaved": "head",
    "qkv": "qkv",
    "packed": "qkv",
    "separate": "separate",
    "keras": "keras",
}
_SHAPES = {
    "head": "one array (3 E, C), or (3 E,) for a bias",
    "qkv": "one array (3 E, C), or (3 E,) for a bias",
    "separate": "three arrays (E, C), or (E,) for biases",
    "keras": "three arrays (C, H, D), or (H, D) for biases",
}


def packing(weights, source: str, target: str, num_heads: int):
    """Converts the weights or biases of the query, key and value projections to another layout.

    H heads of size D = E / H read C features. The layouts:

    ================================== ========================================== ====================================
    name                               arrays                                     used by
    ================================== ========================================== ====================================
    "head", "per_head", "interleaved"  one (3 E, C): head by head [q_h, k_h, v_h] ``tc.MultiheadAttention``, the tutorial
    "qkv", "packed"                    one (3 E, C): [Q, K, V]                    ``tc.nn.MultiheadAttention``, PyTorch
    "separate"                         three (E, C)                               PyTorch with `kdim` or `vdim`
    "keras"                            three (C, H, D)                            Keras, Flax
    ================================== ========================================== ====================================

    Biases have the same layouts, without C.

    Parameters
    ----------
    weights : array_like, tuple of three, or mapping of names to these
        Arrays in the layout `source`; a mapping (a state dict of weight and bias) is converted value by value.
    source, target : str
    num_heads : int
        H.

    Returns
    -------
    ndarray, Tensor, tuple of three, or dict
        Arrays in the layout `target`: Tensors (recorded) if `weights` are Tensors, otherwise ndarrays. They never share memory with `weights`.

    Raises
    ------
    ValueError
        When a name is unknown, when shapes do not match `source` and `num_heads`, or when queries, keys and values read different
        numbers of features and `target` is neither "separate" nor "keras".

    Examples
    --------
    The rows of two heads of size 1, named by what they produce:

    >>> import numpy as np, transformer_c as tc
    >>> rows = np.array(["q0", "k0", "v0", "q1", "k1", "v1"])
    >>> tc.convert.packing(rows, "head", "qkv", num_heads=2).tolist()
    ['q0', 'q1', 'k0', 'k1', 'v0', 'v1']

    From the tutorial's attention to PyTorch's:

    >>> ours = tc.MultiheadAttention(input_dim=8, embed_dim=8, num_heads=2)
    >>> other = tc.nn.MultiheadAttention(embed_dim=8, num_heads=2, batch_first=True)
    >>> qkv = tc.convert.packing(ours.qkv_proj.state_dict(), "head", "qkv", num_heads=2)
    >>> out = {f"out_proj.{name}": value for name, value in ours.o_proj.state_dict().items()}
    >>> other.load_state_dict({"in_proj_weight": qkv["weight"], "in_proj_bias": qkv["bias"], **out})
    <All keys matched successfully>
    """
    heads = count("num_heads", num_heads)
    read, write = (_order(name, value) for name, value in (("source", source), ("target", target)))
    if isinstance(weights, Mapping):
        return {key: packing(value, source, target, heads) for key, value in weights.items()}
    parts = _take_apart(weights, read, heads)
    found = _put_together(parts, write, heads)
    return tuple(_own(x) for x in found) if isinstance(found, tuple) else _own(found)


def _order(argument: str, name: Any) -> str:
    if not isinstance(name, str) or name not in _NAMES:
        raise ValueError(f"{argument} is {name!r}; expected one of {', '.join(map(repr, _NAMES))}")
    return _NAMES[name]


def _array(value: Any) -> Any:
    """A Tensor or an ndarray; another library's array becomes an ndarray, or a Tensor where it is of bfloat16."""
    if isinstance(value, Tensor):
        return value
    found = readable(value.detach() if hasattr(value, "detach") else value)
    if isinstance(found, Tensor):
        return found
    found = np.asarray(found)
    if found.dtype == object:
        raise TypeError(f"weights must be arrays, not {type(value).__name__}")
    return found


def _own(x: Any) -> Any:
    return x.clone() if isinstance(x, Tensor) else np.array(x, order="C")


def _take_apart(weights: Any, source: str, heads: int) -> list:
    """The weights (E, C) or biases (E,) of queries, keys and values."""
    wanted = source in ("separate", "keras")
    several = isinstance(weights, (tuple, list)) and len(weights) == 3 and (wanted or any(hasattr(w, "shape") for w in weights))
    if several != wanted:
        hint = "'separate' or 'keras' was probably meant" if several else "'head' or 'qkv' was probably meant"
        given = "three" if several else f"one of shape {tuple(_array(weights).shape)}"
        raise ValueError(f"source {source!r} is {_SHAPES[source]}; got {given}: {hint}")
    if source == "keras":
        return [_from_keras(name, _array(w), heads) for name, w in zip("qkv", weights, strict=True)]
    if source == "separate":
        parts = [_array(w) for w in weights]
        for name, part in zip("qkv", parts, strict=True):
            if part.ndim not in (1, 2) or part.shape[0] % heads:
                raise ValueError(f"{name} has shape {tuple(part.shape)}; expected (E, C) or (E,) with E a multiple of num_heads={heads}")
        return parts
    whole = _array(weights)
    if whole.ndim not in (1, 2) or whole.shape[0] % (3 * heads):
        raise ValueError(
            f"weights have shape {tuple(whole.shape)}; expected (3 E, C) or (3 E,), rows a multiple of 3 num_heads = {3 * heads}"
        )
    rest, width = whole.shape[1:], whole.shape[0] // 3
    if source == "qkv":
        return [whole[i * width : (i + 1) * width] for i in range(3)]
    by_head = whole.reshape(heads, 3, width // heads, *rest)
    return [by_head[:, i].reshape(width, *rest) for i in range(3)]


def _from_keras(name: str, x: Any, heads: int) -> Any:
    if x.ndim not in (2, 3) or x.shape[-2] != heads:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; expected (C, H, D) or (H, D) with H = num_heads = {heads}")
    return x.reshape(x.shape[0], heads * x.shape[2]).T if x.ndim == 3 else x.reshape(heads * x.shape[1])


def _put_together(parts: list, target: str, heads: int) -> Any:
    if target == "separate":
        return tuple(parts)
    if target == "keras":
        return tuple((x.T if x.ndim == 2 else x).reshape(*x.shape[1:], heads, x.shape[0] // heads) for x in parts)
    shapes = [tuple(x.shape) for x in parts]
    if len(set(shapes)) > 1:
        raise ValueError(f"target {target!r} is {_SHAPES[target]}, which q, k and v of shapes (E, C) = {shapes} do not share")
    rows, *rest = shapes[0]
    if target == "qkv":
        return _join(parts, 0)
    return _join([x.reshape(heads, 1, rows // heads, *rest) for x in parts], 1).reshape(3 * rows, *rest)


def _join(parts: list, axis: int) -> Any:
    return cat(parts, axis) if any(isinstance(x, Tensor) for x in parts) else np.concatenate(parts, axis)


def from_hf(state: Mapping[str, Any], config: Any, *, task: str | None = None, dtype: Any = None) -> Any:
    """A model from a state dict and a configuration of transformers.

    Parameters
    ----------
    state : mapping of str to array_like
        ``model.state_dict()``, with the architecture's name before the names or without it. Arrays and Tensors in memory that can be read
        in place are shared, not copied.
    config : mapping
        As in config.json, or an object with ``to_dict()``.
    task, dtype : optional
        As for ``tc.models.load``.

    Returns
    -------
    Module
        In eval mode.

    Raises
    ------
    CheckpointError, ValueError
        As ``tc.models.load``.
    TypeError
        When `state` is no mapping of names to arrays.

    See Also
    --------
    to_hf, tc.models.load

    Examples
    --------
    >>> import transformer_c as tc
    >>> config = {"model_type": "bert", "vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    ...           "intermediate_size": 16, "max_position_embeddings": 32}
    >>> state = tc.convert.to_hf(tc.models.create(config))
    >>> state["encoder.layer.0.attention.self.query.weight"].shape
    (8, 8)
    >>> tc.convert.from_hf(state, config)([[1, 2, 3]]).shape
    (1, 3, 8)
    """
    from .models.loading import build

    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        kind = "a mapping with other keys" if isinstance(state, Mapping) else type(state).__name__
        raise TypeError(f"state must be a mapping of names to arrays, as model.state_dict() gives, not {kind}")
    return build(config, {name: _array(value) for name, value in state.items()}, task, dtype)


def to_hf(module: Any) -> dict[str, Tensor]:
    """The parameters of a model of ``tc.models`` under the names that transformers has for them in its files.

    Parameters
    ----------
    module : Module
        Of ``tc.models.load``, ``tc.models.create`` or ``from_hf``.

    Returns
    -------
    dict of str to Tensor
        Detached Tensors, which share the module's memory. Arrays that transformers has under two names are under both.

    Raises
    ------
    TypeError
        When it is no model of ``tc.models``.

    See Also
    --------
    from_hf, tc.models.save

    Examples
    --------
    >>> import transformer_c as tc
    >>> model = tc.models.create({"model_type": "distilbert", "vocab_size": 20, "dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 16})
    >>> list(tc.convert.to_hf(model))[-2:]
    ['embeddings.LayerNorm.weight', 'embeddings.LayerNorm.bias']
    """
    from .models.loading import state_of

    return state_of(module)


__all__ = ["from_hf", "packing", "to_hf"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
