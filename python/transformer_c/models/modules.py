"""The parts of a model of sentence-transformers' besides its encoder: what modules.json names."""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np

from .. import nn
from .._arguments import count, one_of
from .._core import Tensor, set_data
from .._tensor import as_tensor
from ..checkpoint import CheckpointError
from ..nn.fusion import activated
from .folder import has, mapping, naming, only, read_json, read_weights
from .layers import ACTIVATIONS

_PARTS = ("Transformer", "Pooling", "Dense", "Normalize")
_CLASSES = {  # of PyTorch's, as files name them
    "torch.nn.modules.linear.Identity": "identity",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.activation.SiLU": "silu",
}


class Dense(nn.Module):
    """A linear layer and an activation for the vectors of texts, after pooling; sentence-transformers' module of this name.

    Parameters
    ----------
    in_features, out_features : int
        Sizes of the vectors before and after.
    bias : bool, default True
    activation : {"tanh", "identity", "relu", "gelu", "sigmoid", "silu"}, default "tanh"

    Examples
    --------
    >>> import numpy as np, transformer_c as tc
    >>> tc.models.Dense(8, 3)(np.ones((2, 8), np.float32)).shape
    (2, 3)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, activation: str = "tanh") -> None:
        super().__init__()
        self.activation = one_of("activation", activation, tuple(_CLASSES.values()))
        self.linear = nn.Linear(count("in_features", in_features), count("out_features", out_features), bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        """(B, in_features) to (B, out_features)."""
        return activated(self.linear, ACTIVATIONS[self.activation], input)

    def to_config(self) -> dict[str, Any]:
        """The contents of its config.json."""
        return {
            "in_features": self.linear.in_features,
            "out_features": self.linear.out_features,
            "bias": self.linear.bias is not None,
            "activation_function": next(name for name, own in _CLASSES.items() if own == self.activation),
        }


def read_dense(folder: str, mmap: bool = True) -> Dense:
    """The module of a folder, in float32, or in float64 as in the file."""
    path = os.path.join(folder, "config.json")
    values = mapping(path)
    said = values.get("activation_function", "torch.nn.modules.activation.Tanh")
    if not isinstance(said, str) or said not in _CLASSES:
        raise CheckpointError(f"{path!r} has activation_function = {said!r:.80}; supported are {', '.join(_CLASSES)}")
    only(path, values, {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding", "use_residual": False})
    with naming(folder):
        state = read_weights(folder, mmap)
        bias = values.get("bias", True)
        expected = {"linear.weight": ("out_features", "in_features"), **({"linear.bias": ("out_features",)} if bias is True else {})}
        if type(bias) is not bool or set(state) != set(expected):
            raise CheckpointError(f"config.json has bias = {bias!r:.80}, and the weights are {', '.join(sorted(state))!r:.200}")
        for name, sizes in expected.items():
            wanted = tuple(values.get(size) for size in sizes)
            if state[name].shape != wanted or (state[name].dtype.kind != "f" and state[name].dtype.name != "bfloat16"):
                raise CheckpointError(
                    f"{name!r} has shape {state[name].shape} and values of {state[name].dtype}; by config.json it has {wanted!r:.80}, floating"
                )
        with nn.init.skip():
            rows, columns = state["linear.weight"].shape
            made = Dense(columns, rows, bias, _CLASSES[said])
        for parameter, name in ((made.linear.weight, "linear.weight"), (made.linear.bias, "linear.bias")):
            if name in state:
                dtype = np.float64 if state[name].dtype == np.float64 else np.float32
                set_data(parameter, as_tensor(np.array(state[name], dtype)), alone=True)
    return made.eval()


def read_modules(folder: str) -> list[tuple[str, str]]:
    """(the last part of a class's name, its folder) of the modules that modules.json names, in their order."""
    path = os.path.join(folder, "modules.json")
    if not has(path):
        return [("Transformer", folder)]
    modules = read_json(path)
    if not isinstance(modules, list) or not all(isinstance(m, dict) and isinstance(m.get("type"), str) for m in modules):
        raise CheckpointError(f"{path!r} is not a list of modules")
    found: list[tuple[str, str]] = []
    for module in modules:
        kind, place = module["type"].rpartition(".")[2], module.get("path", "")
        if kind not in _PARTS or not module["type"].startswith("sentence_transformers."):  # code in the folder may be named like a part
            raise CheckpointError(
                f"{path!r} has a module {module['type']!r:.80}; supported are {', '.join(_PARTS)} of sentence_transformers"
            )
        if not isinstance(place, str) or os.path.isabs(place) or ".." in place.split("/") or "\0" in place or "\\" in place:
            raise CheckpointError(f"{path!r} has the path {place!r:.80}; expected a folder inside")
        found.append((kind, os.path.join(folder, place) if place else folder))
    if not re.fullmatch("Transformer( Pooling( Dense)*( Normalize)?)?", " ".join(kind for kind, _ in found)):
        names = ", ".join(kind for kind, _ in found)
        raise CheckpointError(
            f"{path!r} has the modules {names:.200}; supported are {', '.join(_PARTS)}, in this order, and Dense several times"
        )
    return found
