"""Makes models of a configuration and weights; writes them as transformers does."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .. import nn
from .._core import Tensor
from .._joining import cat
from .._names import explained
from .._recording import no_grad
from .._tensor import as_tensor
from ..checkpoint import CheckpointError
from ..checkpoint.files import write_atomically
from ..checkpoint.safetensors_file import release
from .architectures import ALONE, ARCHITECTURES, GATED, kind_in
from .config import Config
from .folder import as_json, find, naming, path_of, read_config, read_weights, write_arrays
from .heads import CLASSES, HEADS, WithHead, other_task
from .layers import LayerScale, OffsetNorm
from .names import fill, lack, plain, to_state
from .speech_recognition import SpeechRecognition
from .text2text_generation import Text2TextGeneration
from .texts import as_others_read

_HEADS: dict[str, type[WithHead]] = {**HEADS, **{kind.task: kind for kind in (SpeechRecognition, Text2TextGeneration)}}
_WITH_CLASSES = ("text-classification", "token-classification", "image-classification")  # tasks


@as_others_read
def load(folder: Any, *, dtype: Any = None, task: str | None = None, mmap: bool = True) -> nn.Module:
    """A model from a folder of transformers': config.json and the weights.

    Safetensors files, one or several with an index, are mapped into memory; PyTorch's files (``pytorch_model.bin``) are read without
    PyTorch and without executing anything in them. Nothing is downloaded.

    Parameters
    ----------
    folder : str or path-like
    dtype : dtype, optional
        Of the parameters; by default as in the file, float32 where it has several.
    task : {"text-classification", "token-classification", "question-answering", "fill-mask", "image-classification", "text-generation", "text2text-generation", "automatic-speech-recognition"}, optional
        Put this head on the encoder. Its layers that the file has no weights for get new ones, with a warning. By default the encoder alone, whatever
        head the file has.
    mmap : bool, default True
        Map safetensors files into memory instead of reading them. While the model is in use, such a file may be replaced by another (as ``save``
        does), but its contents must not be overwritten, as ``cp`` does: the model would change with them, or the process end. False reads all
        of it.

    Returns
    -------
    Module
        In eval mode. Encoders of texts take ``(ids, mask=None, lengths=None, token_types=None)`` and give (B, T, E), those of images take
        pixels (B, C, height, width) and give (B, 1 + patches, E), SigLIP's (B, patches, E); those of both take ids and pixels and give scores (images, texts), or of one
        alone vectors; encoder-decoders also take ``decoder_ids`` (B, T) and give (B, T, E), and those of
        speech log-mel features (B, mels, frames) in the place of ids; with a task they give scores. ``config`` is the contents of config.json.

    Raises
    ------
    CheckpointError
        When there is no such architecture as config.json's ``model_type`` (the error lists those there are); when config.json asks
        for something that is not supported; when weights are missing, unknown, damaged or of other shapes; when their head is, by
        config.json, one for another task.
    FileNotFoundError
        When there is no such folder.
    ValueError
        When the architecture has no head for the task, or the dtype is none of float32, float64, float16 and bfloat16.

    See Also
    --------
    save, tc.convert.from_hf, tc.convert.to_hf

    Examples
    --------
    A folder made here stands for a downloaded one:

    >>> import numpy as np, tempfile, transformer_c as tc
    >>> config = {"model_type": "bert", "vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    ...           "intermediate_size": 16, "max_position_embeddings": 32}
    >>> folder = tempfile.mkdtemp()
    >>> tc.models.save(tc.models.create(config, task="fill-mask"), folder)
    >>> model = tc.models.load(folder)
    >>> ids = np.array([[1, 7, 9, 2], [1, 5, 2, 0]])
    >>> model(ids, lengths=np.array([4, 3])).shape
    (2, 4, 8)
    >>> tc.models.load(folder, task="fill-mask")(ids).shape
    (2, 4, 50)
    """
    path = find(folder)
    config = read_config(path)
    with naming(path):
        check(config, task)
        return build(config, read_weights(path, mmap), task, dtype, owned=True, stacklevel=4)  # the decorator is a call


def check(values: Any, task: str | None) -> tuple[Config, Any]:
    """(configuration, architecture); raises for those that there are not, and for tasks that the architecture does not have."""
    config = Config(values)
    name = config.values.get("model_type")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        said = config.values.get("architectures")
        also = f" (architectures: {said!r:.80})" if said else ""
        raise CheckpointError(f"config.json has model_type = {name!r:.80}{also}; expected one of {', '.join(ARCHITECTURES)}")
    kind = kind_in(config.values)
    if task is not None and (not isinstance(task, str) or task not in kind.table.heads):
        raise ValueError(
            f"task is {task!r}; for {name} there are {', '.join(map(repr, kind.table.heads)) or 'none'}, or None for the model without a head (config.json has model_type = {name!r})"
        )
    return config, kind


def build(
    values: Any, state: Mapping[str, Any], task: str | None = None, dtype: Any = None, owned: bool = False, stacklevel: int = 3
) -> Any:
    """The model of a configuration, with the weights of `state`; warns when its head has new ones."""
    model, lacking = assemble(values, state, task, dtype, owned)
    if lacking:
        names = ", ".join(lacking)
        warnings.warn(
            f"there are no weights for {task!r} ({names}): the head has new ones, to be trained", RuntimeWarning, stacklevel=stacklevel
        )
    return model


def assemble(values: Any, state: Mapping[str, Any], task: str | None, dtype: Any, owned: bool = False) -> tuple[Any, list[str]]:
    """(model, layers of its head for which `state` has no weights); `owned` as for ``fill``."""
    config, kind = check(values, task)
    files = plain(state, kind, config.values)
    if hasattr(kind, "settle"):
        kind.settle(config, {short: state[name] for short, name in files.items()})
    _check_sizes(config, kind, task, {short: tuple(state[name].shape) for short, name in files.items()})
    pooler = kind.table.names.get("pooler")
    with nn.init.skip():
        model = _make(config, kind, task, pooler=pooler is not None and f"{pooler}.weight" in files)
    needed = (
        state[name] for short, name in files.items() if not kind.table.is_buffer(short)
    )  # none is kept: each is freed once it is taken
    wanted = _dtype(needed) if dtype is None else _floating(dtype)

    taken: list[np.ndarray] = []  # as they are, by parameters

    def is_free(array: np.ndarray) -> bool:
        return array.flags.writeable and not any(np.may_share_memory(array, other) for other in taken)

    def convert(arrays: list[Any], transposed: bool) -> Tensor:
        writable = [a.detach() if isinstance(a, Tensor) else as_tensor(a if is_free(a) else a.copy()) for a in arrays]
        parts = [array.to(wanted) for array in writable]  # joined first, they would take the memory of all in both dtypes
        made = parts[0] if len(parts) == 1 else cat(parts, 0)
        made = made.t().contiguous() if transposed else made
        if owned and made is not writable[0]:  # copies
            for array in arrays:
                release(array)
        if made is writable[0] and isinstance(arrays[0], np.ndarray):
            taken.append(arrays[0])
        return made

    new = fill(model, kind, state, convert, owned)
    if new:
        new -= set(getattr(model, "optional", ()))
        _draw(model, new, config)
        model.to(dtype=wanted)
    return model.eval(), sorted({key.partition(".")[0] for key in new})


@explained({"dtype": "tc.models.create(config).to(dtype)", "device": "tc.models.create(config).to(device)"})
def create(config: Any, *, task: str | None = None) -> nn.Module:
    """A new model of an architecture, with random weights: N(0, initializer_range), as BERT has in transformers; biases and the padding 0.

    Parameters
    ----------
    config : mapping
        As in config.json; anything with ``to_dict()``.
    task : str, optional
        As for ``load``.

    Returns
    -------
    Module
        In eval mode, with parameters of float32.

    Raises
    ------
    CheckpointError
        When there is no such architecture, or the configuration asks for something that is not supported.
    ValueError
        When the architecture has no head for the task.

    Examples
    --------
    >>> import transformer_c as tc
    >>> model = tc.models.create({"model_type": "distilbert", "vocab_size": 100, "dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 16})
    >>> sum(p.numel() for p in model.parameters())
    6112
    """
    found, kind = check(config, task)
    with nn.init.skip():
        model = _make(found, kind, task, pooler=task is None)
    _draw(model, set(model.state_dict()) - set(getattr(model, "optional", ())), found)
    return model.eval()


def _make(config: Config, kind: Any, task: str | None, pooler: bool) -> Any:
    encoder = kind(config, pooler=pooler and task is None)
    if task is None:
        return encoder
    return _HEADS[task].build(encoder, config, encoder.layers[0].out.out_features, kind.head_options(config, task))


def _draw(model: Any, keys: set[str], config: Config) -> None:
    """Initial values of these parameters: matrices N(0, initializer_range), norms what multiplies by 1, everything else 0, as the embeddings of padding."""
    spread = config.number("initializer_range", 0.02)
    for key, parameter in model.named_parameters():
        if key in keys and parameter.requires_grad:
            if key.endswith("weight") and parameter.ndim == 1:
                nn.init.ones_(parameter)
            elif parameter.ndim > 1:
                nn.init.normal_(parameter, 0.0, spread)
            else:
                nn.init.zeros_(parameter)
    for name, layer in model.named_modules():
        if f"{name}.weight" in keys and getattr(layer, "padding_idx", None) is not None:
            with no_grad():
                layer.weight[layer.padding_idx] = 0.0
        elif f"{name}.weight" in keys and isinstance(layer, (LayerScale, OffsetNorm)):
            layer.reset_parameters()


def _check_sizes(config: Config, kind: Any, task: str | None, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Compares the sizes of the configuration with the arrays, before memory is taken for anything."""
    for name, (array, axis) in kind.table.sizes.items():
        if array not in shapes:
            raise lack(array, shapes)
        found = shapes[array][axis] if len(shapes[array]) > axis else None
        place, key = config.place(name)
        if place.values.setdefault(key, found) != found:
            raise CheckpointError(f"{place.file} has {key} = {place.values[key]!r:.80} but {array!r} has shape {shapes[array]}")
    if hasattr(kind, "check_shapes"):
        kind.check_shapes(config, shapes)
    last = f"{kind.table.heads[task].get('out')}.weight" if task is not None else ""
    if last in shapes and (other := other_task(config.values, task)):
        own = [known for known, end in CLASSES.items() if known and other.endswith(end)]
        advice = f"task={own[0]!r} reads it" if own else f"there are {', '.join(map(repr, kind.table.heads))}"
        raise CheckpointError(
            f"the weights have a head of another task than {task!r}: config.json has architectures = [{other!r:.80}]; {advice}; "
            "without its arrays a new head is made"
        )
    if task in _WITH_CLASSES and last in shapes and shapes[last][:1] != (len(config.labels()),):
        raise CheckpointError(f"config.json has {len(config.labels())} labels but {last!r} has shape {shapes[last]}")
    name, prefix = kind.table.layers
    numbers = {int(n[1]) for n in (re.match(re.escape(prefix) + r"(\d{1,6})\.", key) for key in shapes) if n}
    counted, key = config.place(name)
    counted.values.setdefault(key, len(numbers))
    absent = set(range(len(numbers))) - numbers
    if absent:
        raise CheckpointError(f"the weights have a layer {max(numbers)}, but no layer {min(absent)}")
    if counted.size(key) != len(numbers):
        raise CheckpointError(f"{counted.file} has {key} = {counted.values.get(key)!r}; the weights have {len(numbers)} layers")


def _check_arrays(wanted: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Raises where `state` has other arrays than a model of its configuration."""
    for name in sorted(wanted.keys() | state.keys()):
        shapes = [tuple(arrays[name].shape) if name in arrays else None for arrays in (state, wanted)]
        if shapes[0] != shapes[1]:
            found, expected = (f"has shape {shape}" if shape is not None else "is not there" for shape in shapes)
            raise CheckpointError(f"{name!r} {found}; by config.json it {expected}")


def _floating(dtype: Any) -> str:
    """The name of a floating dtype of NumPy's or PyTorch's, or PyTorch's short name of one."""
    try:
        name = str(dtype).removeprefix("torch.") if isinstance(dtype, str) or type(dtype).__module__ == "torch" else np.dtype(dtype).name
    except TypeError:
        name = ""
    name = {"float": "float32", "double": "float64", "half": "float16"}.get(name, name)
    if name not in ("float32", "float64", "float16", "bfloat16"):
        raise ValueError(f"dtype must be float32, float64, float16 or bfloat16, got {dtype!r:.80}")
    return name


def _dtype(arrays: Iterable[Any]) -> Any:
    """The dtype of the floating ones, float32 where there are several."""
    kinds = {array.dtype for array in arrays if array.dtype.kind == "f" or array.dtype.name == "bfloat16"}
    return kinds.pop() if len(kinds) == 1 else np.dtype(np.float32)


def save(model: Any, folder: Any) -> None:
    """Writes a model to a folder that transformers loads: config.json and model.safetensors.

    Parameters
    ----------
    model : Module
        Of ``load``, ``create`` or ``tc.convert.from_hf``.
    folder : str or path-like
        Is made where it does not exist. Tokenizer files are not written: copy them.

    Raises
    ------
    TypeError
        When it is no model of ``tc.models``, or ``model.config`` has what JSON has not: no file is written.
    ValueError
        When layers have been put in place of others, or taken away, and ``model.config`` does not say so: no file is written.
    OSError
        When the files cannot be written.

    Examples
    --------
    >>> import os, tempfile, transformer_c as tc
    >>> model = tc.models.create({"model_type": "mpnet", "vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 1,
    ...                           "num_attention_heads": 2, "intermediate_size": 16})
    >>> folder = tempfile.mkdtemp()
    >>> tc.models.save(model, folder)
    >>> sorted(os.listdir(folder))
    ['config.json', 'model.safetensors']
    """
    encoder = model.encoder if isinstance(model, WithHead) else model
    kind = kind_of(encoder)
    state = state_of(model)
    copies = kind.table.tied if isinstance(model, WithHead) and model.scores_words else ()
    arrays = {name: value for name, value in state.items() if name not in copies}
    task = model.task if isinstance(model, WithHead) else None
    name = getattr(model, "class_name", None) or kind.table.name + kind.table.classes.get(task, CLASSES[task])
    config = {**model.config, "architectures": [name]}
    config["dtype"] = next(iter(arrays.values())).dtype.name
    config.pop("torch_dtype", None)
    path = path_of(folder)
    try:
        said = Config(config)
        _check_sizes(said, kind, task, {short: tuple(state[name].shape) for short, name in plain(state, kind, config).items()})
        with nn.init.skip():
            _check_arrays(to_state(_make(said, kind, task, pooler=encoder.pooler is not None)), state)
    except CheckpointError as error:
        raise ValueError(f"the folder could not be loaded: {error}; model.config is what config.json will have") from None
    contents = as_json(config, "config.json")
    os.makedirs(path, exist_ok=True)
    write_arrays(os.path.join(path, "model.safetensors"), arrays)
    write_atomically(os.path.join(path, "config.json"), contents)


def state_of(model: Any) -> dict[str, Tensor]:
    """The parameters by transformers' names, after a check that this is a model: ``tc.convert.to_hf``."""
    kind_of(model.encoder if isinstance(model, WithHead) else model)
    return to_state(model)


def kind_of(encoder: Any) -> Any:
    """The architecture of an encoder; raises for what is none."""
    if type(encoder) not in (*ARCHITECTURES.values(), *ALONE.values(), *GATED.values()):
        advice = "; it has a save of its own" if callable(getattr(encoder, "save", None)) else ""
        raise TypeError(f"expected a model of tc.models, not {type(encoder).__name__}{advice}")
    return type(encoder)
