"""From transformers' names of arrays to those of the modules here, and back, by the tables of the architectures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .._core import Tensor, set_data
from ..checkpoint import CheckpointError
from ..checkpoint.safetensors_file import mapping_of
from .heads import WithHead
from .table import numbered, several


def plain(names: Iterable[str], kind: Any, values: Mapping[str, Any]) -> dict[str, str]:
    """Names as the tables have them, without the architecture's name in front: the file's name of each. `values`: of config.json."""
    found: dict[str, str] = {}
    for name in names:
        short = name.removeprefix(f"{kind.table.prefix}.") if kind.table.prefix else name
        for pattern, replacement in kind.table.renamed:
            short = re.sub(pattern, replacement, short)
        short = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", short))
        if short in found:
            raise CheckpointError(f"the weights have {found[short]!r} and {name!r}, which are two names of one array")
        found[short] = name
    for copy, name in kind.table.tied.items():  # safetensors' save_model writes one of both, the first in the order of the alphabet
        if copy in found and name not in found and values.get("tie_word_embeddings", kind.tie_word_embeddings) is not False:
            found[name] = found.pop(copy)
    return found


def source(key: str, module: Any) -> tuple[str, ...]:
    """The names of the arrays that a parameter of ours is made of: one, or several that are put one below the other."""
    if isinstance(module, WithHead) and key.startswith("encoder."):
        return source(key.removeprefix("encoder."), module.encoder)
    names: Mapping[str, Any] = type(module.encoder).table.heads[module.task] if isinstance(module, WithHead) else type(module).table.names
    if key in names:
        return (names[key],)  # a parameter that is no layer's
    whole, number = numbered(key)
    if number and whole in names:  # a parameter of a layer itself
        return (names[whole].format(number),)
    path, _, leaf = key.rpartition(".")
    pattern, number = numbered(path)
    if pattern not in names or leaf not in ("weight", "bias"):
        raise ValueError(
            f"the parameter {key!r} is none that transformers has a name for: the model has other layers than "
            f"{type(module).__name__}; put the first ones back, with what was added to them"
        )
    parts = several(names[pattern])
    return tuple(f"{part.format(number) if number else part}.{leaf}" for part in parts)


def is_transposed(key: str, module: Any) -> bool:
    """Whether the files have the transposed matrix of a parameter of ours."""
    encoder = module.encoder if isinstance(module, WithHead) else module
    path, _, leaf = key.removeprefix("encoder.").rpartition(".")
    return leaf == "weight" and numbered(path)[0] in type(encoder).table.transposed


def _parts(names: tuple[str, ...], kind: Any, files: Mapping[str, str]) -> tuple[str, ...]:
    """These names, or those of the parts that `files` has of an array."""
    for part, others in kind.table.split.items():
        own = tuple(names[0].replace(part, other) for other in others)
        if part in names[0] and any(name in files for name in own):
            return own
    return names


def fill(module: Any, kind: Any, state: Mapping[str, Any], convert: Any, owned: bool = False) -> set[str]:
    """Makes the parameters of a module those of `state`, without a copy where an array can be used as it is.

    Parameters
    ----------
    module : TextEncoder, ImageEncoder or WithHead
    kind : type
        The architecture.
    state : mapping of str to array
        By transformers' names.
    convert : callable
        Makes a Tensor of a list of arrays, one below the other, and of whether they are transposed.
    owned : bool
        Whether the arrays of `state` are nobody else's. Those that have been used are then taken out of it, a dict, so that no memory is
        needed for both, and packed weights are kept from call to call.

    Returns
    -------
    set of str
        Parameters of the head's layers of which the state has nothing; they are left as they are.

    Raises
    ------
    CheckpointError
        When arrays are missing, have other shapes or are not known.
    """
    files = plain(state, kind, module.config)
    wanted = {key: _parts(source(key, module), kind, files) for key in module.state_dict()}
    head = {key for key in wanted if isinstance(module, WithHead) and not key.startswith("encoder.")}
    known = {key.partition(".")[0] for key in head if any(name in files for name in wanted[key])}
    new = {key for key in head if key.partition(".")[0] not in known}
    lacking = [name for key, names in wanted.items() if key not in new for name in names if name not in files]
    if lacking:
        raise CheckpointError(f"the weights lack {_some(lacking)}")
    used = {name for names in wanted.values() for name in names}
    unknown = [files[name] for name in files if name not in used and not kind.table.is_beside(name)]
    if unknown:
        raise CheckpointError(f"the weights have arrays that {kind.table.name} does not know: {_some(unknown)}")
    _check_ties(kind, module, files, state)
    own = {key: parameter for key, parameter in module.named_parameters() if key not in new}
    for key, parameter in own.items():
        shape = tuple(parameter.shape)
        _check(wanted[key], [state[files[name]] for name in wanted[key]], shape[::-1] if is_transposed(key, module) else shape)
    # Of mapped arrays the largest first, which are in memory only while they are converted; of others the largest last.
    is_mapped = mapping_of(next(iter(state.values()), None)) is not None
    for key, parameter in sorted(own.items(), key=lambda item: item[1].numel(), reverse=is_mapped):
        set_data(parameter, convert([state[files[name]] for name in wanted[key]], is_transposed(key, module)), alone=owned)
        if owned:
            for name in wanted[key]:
                state.pop(files[name])  # type: ignore[attr-defined]
    return new


def lack(name: str, found: Iterable[str]) -> CheckpointError:
    """The error for an array that is needed first; the names of those that there are show a prefix that is not the architecture's."""
    return CheckpointError(f"the weights lack {name!r}; they have {_some(list(found)) or 'no arrays'}")


def _some(names: list[str]) -> str:
    return ", ".join(repr(name[:80]) for name in names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _check(names: tuple[str, ...], arrays: list[Any], shape: tuple[int, ...]) -> None:
    """Raises for arrays of other shapes than the parameter's."""
    each = (shape[0] // len(arrays), *shape[1:]) if shape else shape
    for name, array in zip(names, arrays, strict=True):
        if tuple(array.shape) != each:
            raise CheckpointError(f"{name!r} has shape {tuple(array.shape)}; by config.json it has {each}")
        if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
            raise CheckpointError(f"{name!r} has values of {array.dtype}, perhaps quantised; floating weights are read")


def _check_ties(kind: Any, module: Any, files: Mapping[str, str], state: Mapping[str, Any]) -> None:
    """Refuses second copies of an array that differ from it; of the head's, where it computes scores with it."""
    scores_words = isinstance(module, WithHead) and module.scores_words
    for copy, name in kind.table.tied.items():
        if not (scores_words or kind.table.is_encoders(copy)):
            continue
        if copy in files and name in files and not np.array_equal(np.asarray(state[files[copy]]), np.asarray(state[files[name]])):
            raise CheckpointError(f"{files[copy]!r} differs from {files[name]!r}; only models in which they are one array are supported")


def to_state(module: Any) -> dict[str, Tensor]:
    """The parameters by transformers' names: see ``tc.convert.to_hf``."""
    encoder = module.encoder if isinstance(module, WithHead) else module
    table = type(encoder).table
    found: dict[str, Tensor] = {}
    for key, value in module.state_dict().items():
        names = source(key, module)
        value = value.t().contiguous() if is_transposed(key, module) else value
        rows = value.shape[0] // len(names) if value.ndim else 0
        for i, name in enumerate(names):
            found[table.full(name) if encoder is not module else name] = value if len(names) == 1 else value[i * rows : (i + 1) * rows]
    if isinstance(module, WithHead) and module.scores_words:
        for copy, name in table.tied.items():
            found[copy] = found[table.full(name)]
    return found
