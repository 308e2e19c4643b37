"""What is in a folder of transformers' or sentence-transformers': JSON files, and weights in one file or several; writes both."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from ..checkpoint import CheckpointError, load, load_torch_checkpoint, safetensors_file
from ..checkpoint.errors import parsing
from ..checkpoint.files import POINTER, open_regular, other_format, write_atomically
from ..checkpoint.safetensors_header import without_repeats

MAX_JSON = 1 << 24  # bytes of a JSON file other than a tokenizer's
_OTHERS = {  # files of weights that are not read
    ".gguf": "GGUF, of llama.cpp",
    ".onnx": "ONNX, a program",
    ".h5": "HDF5, of TensorFlow",
    ".msgpack": "msgpack, of Flax",
    ".ot": "of Rust",
    ".ckpt": "of a training",
}


def has(path: str) -> bool:
    """Whether there is such a file; a link to nothing is refused, which would be ignored otherwise."""
    found = os.path.exists(path)
    if not found and os.path.islink(path):
        raise CheckpointError(
            f"{path!r} is a link to {os.readlink(path)!r}, where there is no file; `cp -rL` copies a folder with what its links point to"
        )
    return found


def contents(path: str, most: int) -> bytes:
    """All of a file of at most `most` bytes."""
    file, size = open_regular(path)
    with file:
        if size > most:
            raise CheckpointError(f"{path!r} has {size} bytes; {most} is the most that is read")
        data = file.read()
    if data.startswith(POINTER):
        raise CheckpointError(f"{path!r} cannot be read: {other_format(data)}")
    return data


def read_json(path: str, most: int = MAX_JSON) -> Any:
    """The contents of a JSON file of at most `most` bytes."""
    text = contents(path, most)
    with parsing(f"{path!r} is not JSON that can be read"):
        return json.loads(text.decode(), object_pairs_hook=without_repeats)


def as_json(values: Any, name: str) -> bytes:
    """The contents of a JSON file as transformers writes it. Halves of surrogates, which a file may have as \\ud800, stay that."""

    def refuse(value: Any) -> None:
        raise TypeError(
            f"{name} cannot have {value!r:.80} ({type(value).__name__}); int, float, str, bool, None, and lists and dicts of them can be written"
        )

    return json.dumps(values, indent=2, ensure_ascii=False, default=refuse).encode(errors="backslashreplace") + b"\n"


def write_json(path: str, values: Any) -> None:
    """Writes a JSON file; it is never incomplete."""
    write_atomically(path, as_json(values, os.path.basename(path)))


def mapping(path: str) -> dict[str, Any]:
    """A JSON file with a mapping; {} where there is none."""
    values = read_json(path) if has(path) else {}
    if not isinstance(values, dict):
        raise CheckpointError(f"{path!r} is not a mapping")
    return values


def preprocessing(folder: str, part: str) -> dict[str, Any]:
    """The contents of preprocessor_config.json, or of this part of processor_config.json, as transformers 5 writes it; {} where there is neither."""
    values: Any = mapping(os.path.join(folder, "preprocessor_config.json"))
    return values or mapping(os.path.join(folder, "processor_config.json")).get(part) or {}


def flag(path: str, values: Mapping[str, Any], name: str, default: bool) -> bool:
    """True or False of the mapping in a JSON file; `default` where it says nothing."""
    value = values.get(name)
    if value is not None and type(value) is not bool:
        raise CheckpointError(f"{path!r} has {name} = {value!r:.80}; expected true or false")
    return default if value is None else value


def only(path: str, values: Mapping[str, Any], supported: Mapping[str, Any]) -> None:
    """Refuses other values in the mapping of a JSON file than null and the one that is supported, each by its name."""
    for name, value in supported.items():
        if values.get(name) not in (value, None):
            raise CheckpointError(f"{path!r} has {name} = {values[name]!r:.80}; only {value!r} is supported")


def path_of(folder: Any) -> str:
    """The path that a user gave."""
    if not isinstance(folder, (str, bytes, os.PathLike)):
        kind = "a mapping" if isinstance(folder, Mapping) else f"{folder!r:.80} ({type(folder).__name__})"
        raise TypeError(f"folder must be a path, such as 'all-MiniLM-L6-v2' or a pathlib.Path, not {kind}")
    return os.fsdecode(folder)


def find(folder: Any) -> str:
    """The path of a folder, after checking that it is one."""
    path = path_of(folder)
    if os.path.isfile(path):
        with open_regular(path)[0] as file:
            other = other_format(file.read(16)) or "expected a folder with config.json and the weights"
        raise CheckpointError(f"{path!r} is a file; {other}")
    if not os.path.isdir(path):
        raise FileNotFoundError(
            f"there is no folder {path!r}; models are loaded from a folder with config.json and weights, never downloaded{_advice(path)}"
        )
    return path


def _advice(path: str) -> str:
    """What to do about a path where there is no folder: one in the home folder, or the name of a model on the Hub."""
    if path.startswith("~"):
        return "; os.path.expanduser replaces ~"
    owner, _, name = path.partition("/")
    if name and owner and "/" not in name and not path.startswith(".") and not os.path.exists(owner):
        return f"; if that is its name on the Hub: `hf download {path} --local-dir {name}` (package huggingface_hub) makes one"
    return ""


def _inside(folder: str) -> str:
    """Says which folder inside, at most two levels down, has a model, as in packages and caches."""
    found = []
    for path in islice(_below(folder), 1000):
        files = _listed(path)
        if "config.json" in files and any(file.startswith(("model.safetensors", "pytorch_model.bin")) for file in files):
            found.append(path)
    return f"; there is a model in {', '.join(map(repr, found[:3]))}" if found else ""


def _below(folder: str) -> Iterator[str]:
    first = [os.path.join(folder, name) for name in _listed(folder)]
    yield from first
    for path in first:
        yield from (os.path.join(path, name) for name in _listed(path))


class naming:
    """``with naming(folder):`` names the folder in the errors of what is read from it."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: object) -> None:
        if self._folder is not None and isinstance(error, CheckpointError) and repr(self._folder) not in str(error):
            raise CheckpointError(f"{self._folder!r} cannot be loaded: {error}") from None


def read_config(folder: str) -> dict[str, Any]:
    """The contents of config.json."""
    path = os.path.join(folder, "config.json")
    if not has(path):
        raise CheckpointError(f"{folder!r} has no config.json{_inside(folder) or _other_weights(folder)}")
    values = read_json(path)
    if not isinstance(values, dict):
        raise CheckpointError(f"{path!r} is not a mapping")
    return values


def read_weights(folder: str, mmap: bool = True) -> dict[str, np.ndarray]:
    """The arrays of a folder by name; those of safetensors files are mapped, or read without `mmap`."""
    for name, read in (("model.safetensors", partial(_safetensors, mmap=mmap)), ("pytorch_model.bin", _torch)):
        path = os.path.join(folder, name)
        if has(path):
            return read(path)
        if has(f"{path}.index.json"):
            return _sharded(f"{path}.index.json", folder, read)
    raise CheckpointError(f"{folder!r} has no model.safetensors and no pytorch_model.bin{_other_weights(folder)}")


def write_arrays(path: str, arrays: Mapping[str, Any]) -> None:
    """Writes a safetensors file as transformers does; it is never incomplete."""
    safetensors_file.write_arrays(path, arrays, {"format": "pt"})


def _other_weights(folder: str) -> str:
    names = sorted(os.listdir(folder)) + [os.path.join("onnx", n) for n in _listed(os.path.join(folder, "onnx"))]
    others = [f"{name} ({_OTHERS[os.path.splitext(name)[1]]})" for name in names if os.path.splitext(name)[1] in _OTHERS]
    return f"; it has {', '.join(others[:3])}, which is not read: use the model's safetensors files" if others else ""


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    except OSError:  # only advice is sought there
        return []


def _safetensors(path: str, mmap: bool) -> dict[str, np.ndarray]:
    return _arrays(load(path, mmap=mmap), path)


def _torch(path: str) -> dict[str, np.ndarray]:
    state = load_torch_checkpoint(path)
    inner = state.get("state_dict") if isinstance(state, Mapping) else None
    return _arrays(inner if isinstance(inner, Mapping) else state, path)


def _arrays(state: Any, path: str) -> dict[str, np.ndarray]:
    if not isinstance(state, Mapping):
        raise CheckpointError(f"{path!r} contains a {type(state).__name__}; expected arrays by name")
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, np.ndarray):
            raise CheckpointError(f"{path!r} has {str(name)[:80]!r}, which is no array; expected arrays by name")
    return dict(state)


def _sharded(index: str, folder: str, read: Any) -> dict[str, np.ndarray]:
    """The arrays of the files that an index names."""
    values = read_json(index)
    places = values.get("weight_map") if isinstance(values, dict) else None
    if not isinstance(places, dict) or not places or not all(isinstance(file, str) for file in places.values()):
        raise CheckpointError(f"{index!r} has no weight_map of names to files")
    state: dict[str, np.ndarray] = {}
    for file in sorted(set(places.values())):
        if os.path.basename(file) != file or file in ("", ".", "..") or "\0" in file or "\\" in file:
            raise CheckpointError(f"{index!r} names the file {file[:80]!r}; expected files of its own folder")
        path = os.path.join(folder, file)
        if not has(path):
            raise CheckpointError(f"{index!r} names {file[:80]!r}, which the folder does not have; was all of the model downloaded?")
        shard = read(path)
        absent = [name for name, place in places.items() if place == file and name not in shard]
        if absent:
            raise CheckpointError(f"{path!r} lacks {absent[0][:80]!r}, which {os.path.basename(index)} says it has")
        astray = [name for name in shard if places.get(name) != file]
        if astray:
            raise CheckpointError(f"{path!r} has {astray[0][:80]!r}, of which {os.path.basename(index)} does not say so")
        state.update(shard)
    return state
