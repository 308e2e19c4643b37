"""Loads Keras 3's ``.weights.h5`` files into the modules of ``keras_book``, through the optional package h5py."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from .. import nn
from .._core import Tensor
from .._recording import no_grad
from ..checkpoint.errors import CheckpointError, parsing

# The paths of the encoder's layers inside its group in a file, and their names here.
_ENCODER = {
    "attention/query_dense": "attention.query",
    "attention/key_dense": "attention.key",
    "attention/value_dense": "attention.value",
    "attention/output_dense": "attention.output",
    "dense_proj/layers/dense": "dense_proj.0",
    "dense_proj/layers/dense_1": "dense_proj.2",
    "layernorm_1": "layernorm_1",
    "layernorm_2": "layernorm_2",
}
_MODEL = {"layers/embedding": "embedding", "layers/dense": "dense"}


def load_keras_weights(module: Any, path: str | os.PathLike) -> None:
    """Loads weights written by ``model.save_weights("NAME.weights.h5")`` of Keras 3.

    Parameters
    ----------
    module : keras_book.TransformerEncoder or keras_book.ReviewModel
        The encoder, of which the file may contain only one, or the chapter's whole model.
    path : path-like

    Raises
    ------
    ImportError
        Without h5py: ``pip install h5py``, or transformer_c[keras].
    OSError
        When the file is missing, or is not an HDF5 file.
    CheckpointError
        When an array is missing or has another shape, or is outside the file, or the file is damaged. The module is then unchanged.
    """
    try:
        import h5py
    except ImportError as error:
        raise ImportError("Keras's weights are read through h5py: pip install h5py, or transformer_c[keras]") from error
    path = os.fspath(path)
    with h5py.File(path, "r") as file, parsing(f"{path!r} is damaged"):
        state = _state(module, file, _array_names(file, h5py), path)
    with no_grad():
        module.load_state_dict(state, strict=True)


def _state(module: Any, file: Any, names: set[str], path: str) -> dict[str, np.ndarray]:
    """The state dict of the module from the arrays of the file."""
    whole = hasattr(module, "transformer_encoder")
    encoder, inside = (module.transformer_encoder, "transformer_encoder.") if whole else (module, "")
    places = {f"{_encoder_group(names, path)}{k}": f"{inside}{v}" for k, v in _ENCODER.items()} | (_MODEL if whole else {})
    layers = dict(module.named_modules())
    state = {}
    for place, name in places.items():
        for i, (part, value) in enumerate(layers[name].named_parameters()):
            shapes = _keras_shape(name, part, value, layers[name], encoder)
            state[f"{name}.{part}"] = _read(file, names, f"{place}/vars/{i}", *shapes, path)
    return state


def _keras_shape(name: str, part: str, value: Tensor, layer: nn.Module, encoder: Any) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """(shape in the file, shape of the matrix it makes, whether that is transposed here)."""
    shape = tuple(value.shape)
    if not isinstance(layer, nn.Linear):
        return shape, shape, False
    heads, width = encoder.num_heads, encoder.embed_dim
    if part == "bias":
        split = ".attention." in f".{name}" and not name.endswith("output")
        return ((heads, width) if split else shape), shape, False
    outputs, inputs = shape
    matrix = (inputs, outputs)
    if ".attention." not in f".{name}":
        return matrix, matrix, True
    return ((heads, width, outputs) if name.endswith("output") else (inputs, heads, width)), matrix, True


def _array_names(file: Any, h5py: Any) -> set[str]:
    """The datasets of the file itself; links and external files are ignored."""
    names: set[str] = set()

    def visit(name: str, item: Any) -> None:
        if isinstance(name, bytes):  # h5py returns bytes for a name that is not UTF-8
            return
        if isinstance(item, h5py.Dataset) and item.external is None and not item.is_virtual:
            names.add(name)

    file.visititems(visit)  # follows hard links only
    return names


def _encoder_group(names: set[str], path: str) -> str:
    """What the names of the encoder's arrays begin with."""
    mark = "attention/query_dense/vars/0"
    found = sorted(name.removesuffix(mark) for name in names if name == mark or name.endswith(f"/{mark}"))
    if len(found) == 1:
        return found[0]
    held = ", ".join(sorted(names)[:20]) or "no arrays"
    raise CheckpointError(f"{path!r} has {len(found)} encoders with attention/query_dense; expected one. It has {held}")


def _read(file: Any, names: set[str], name: str, shape: tuple, matrix: tuple, transposed: bool, path: str) -> np.ndarray:
    """An array of that shape as the matrix it is here."""
    if name not in names:
        raise CheckpointError(f"{path!r} has no array {name}; it holds {', '.join(sorted(names)[:20])}")
    held = file[name]
    if held.shape != shape or held.dtype.kind != "f":
        raise CheckpointError(f"{name} in {path!r} is {held.dtype} {held.shape}; expected floats {shape}")
    with parsing(f"{name} in {path!r} cannot be read"):  # cut off, or packed by something that is not installed
        array = held[()].reshape(matrix)
    return np.ascontiguousarray(array.T if transposed else array)
