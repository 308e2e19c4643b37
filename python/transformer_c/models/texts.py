"""Lists of texts to batches of tokens; what all classes that read texts share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._evaluating import evaluating
from .._names import explained

Tokens = tuple[np.ndarray, np.ndarray]  # (ids, types) of a text

_AT_ONCE = 1024  # texts that the tokenizer reads at once, as what it gives is large


# Arguments of transformers' and sentence-transformers' readers: what to write instead, and the values that change nothing.
_READING = {
    "device": "encoder.model.to(device) moves the model",
    "device_map": "model.to(device) moves the model",
    "max_seq_length": "max_length=",
    "cache_folder": "nothing is downloaded: give the folder itself",
    "trust_remote_code": "nothing in a folder is executed",
    "model_kwargs": "dtype= and mmap=",
}
_HARMLESS_READING = {
    "device": (None, "cpu"),
    "trust_remote_code": (False,),
    "local_files_only": (True, False),
    "cache_folder": (None,),
    "revision": (None,),
}
as_others_read = explained(_READING, {"torch_dtype": "dtype"}, harmless=_HARMLESS_READING)

# The same of what computes with texts.
_COMPUTING = {
    "convert_to_tensor": "tc.tensor(vectors) is one",
    "convert_to_numpy": "the result is an ndarray; list(vectors) has its rows",
    "device": "encoder.model.to(device) moves the model",
    "output_value": "encoder.model gives the vectors of tokens",
    "precision": "quantise the vectors with NumPy",
    **dict.fromkeys(("activation_fn", "activation_fct"), "activation= of the encoder"),
    "apply_softmax": "np.exp(scores) / np.exp(scores).sum(1, keepdims=True)",
}
_HARMLESS_COMPUTING = {
    "convert_to_tensor": (False,),
    "convert_to_numpy": (True,),
    "device": (None, "cpu"),
    "output_value": ("sentence_embedding",),
    "precision": ("float32",),
    "activation_fn": (None,),
    "activation_fct": (None,),
    "apply_softmax": (False,),
}
as_others_compute = explained(_COMPUTING, {"show_progress_bar": "progress"}, harmless=_HARMLESS_COMPUTING)


def attributes(model: str, **more: str) -> dict[str, str]:
    """The same of attributes: what to write instead, where the model itself is the attribute `model`."""
    return {
        **dict.fromkeys(("to", "cuda", "cpu", "device"), f"{model}.to(device)"),
        **dict.fromkeys(("half", "float", "bfloat16", "double"), "dtype= where the folder is read"),
        **dict.fromkeys(("save_pretrained", "push_to_hub"), "save(folder)"),
        **more,
    }


def made_of(kind: str, model: Any, tokenizer: Any, wanted: type, call: str) -> None:
    """Raises unless `model` is one of the class `wanted`, as `call` gives it, and `tokenizer` a function."""
    if isinstance(model, (str, os.PathLike)):
        raise TypeError(f"{kind}(model, tokenizer) is made of a model; {kind}.from_pretrained({os.fspath(model)!r:.80}) reads a folder")
    if not callable(tokenizer):
        raise TypeError(f"{kind} needs a tokenizer, a function of a list of texts that gives (ids, types) of each, not {tokenizer!r:.80}")
    if not isinstance(model, wanted):
        raise TypeError(f"{kind} is made of a model, as {call} gives, not {type(model).__name__}")


def checked(texts: Any) -> list[str]:
    """A list of str."""
    texts = listed(texts, "str")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            advice = _ADVICE[bytes] if isinstance(text, bytes) else ""
            raise TypeError(f"texts must be str, but number {i} is {text!r:.80} ({type(text).__name__}){advice}")
        of_characters(text, f"text number {i}")
    return texts


def of_characters(text: str, name: str) -> str:
    """`text`, which a tokenizer can read; the error for any other calls it `name`."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} has {text[error.start]!r}, half of a pair of surrogates and no character: {text!r:.80}; "
            "read files with errors='replace'"
        ) from None
    return text


def checked_with_pairs(texts: Any) -> list[Any]:
    """A list of str and of pairs of str, which become tuples."""
    texts = listed(texts, "str or pairs of str")
    return [
        of_characters(text, f"text number {i}") if isinstance(text, str) else pair(text, i, "str or pairs of str")
        for i, text in enumerate(texts)
    ]


def pair(value: Any, number: int, of: str = "pairs of str", name: str = "texts") -> tuple[str, str]:
    """Two texts, number `number` of what the errors call `name`."""
    both = tuple(value) if isinstance(value, (tuple, list, np.ndarray)) else ()
    if len(both) != 2 or not all(isinstance(text, str) for text in both):
        raise TypeError(f"{name} must be {of}, but number {number} is {value!r:.80} ({type(value).__name__})")
    for text in both:
        of_characters(text, f"text number {number}" if name == "texts" else f"{name}[{number}]")
    return both


# For what is no list.
_ADVICE: dict[Any, str] = {
    str: "; put a single one into a list",
    bytes: "; decode() makes a str of bytes",
    (set, frozenset): "; it has no order",
}


def listed(values: Any, of: str, name: str = "texts") -> list[Any]:
    """A list, of anything that has an order and is no text itself; the errors for others call it `name`."""
    if isinstance(values, (str, bytes, Mapping, set, frozenset)) or not hasattr(values, "__iter__") or getattr(values, "ndim", 1) == 0:
        advice = next((advice for kind, advice in _ADVICE.items() if isinstance(values, kind)), "")
        kind = "an array of no dimensions" if hasattr(values, "ndim") else "None" if values is None else type(values).__name__
        raise TypeError(f"{name} must be a sequence of {of}, not {kind}{advice}")
    if hasattr(values, "columns") and hasattr(values, "to_numpy"):
        raise TypeError(f"{name} must be a sequence of {of}, not a frame; pass one of its columns: {', '.join(map(repr, values.columns))}")
    return list(values)


def tokens_of(tokenizer: Callable[[Sequence[Any]], Any], texts: list[Any], some: bool = True) -> list[Any]:
    """What a tokenizer makes of each text: an error where that is nothing, unless `some` is False."""
    found: list[Any] = []
    for begin in range(0, len(texts), _AT_ONCE):
        part = texts[begin : begin + _AT_ONCE]
        made = tokenizer(part)
        if not isinstance(made, Iterable) or len(made := list(made)) != len(part):
            count = f"{len(made)} results" if isinstance(made, list) else f"a {type(made).__name__}"
            raise ValueError(f"the tokenizer gives {count} for {len(part)} texts; expected (ids, types) of each")
        found += made
    for i, tokens in enumerate(found):
        if not _are_tokens(tokens):
            raise ValueError(
                f"the tokenizer gives {tokens!r:.80} for text number {i}; expected (ids, types), two sequences of ints of one length"
            )
        if some and not len(tokens[0]):
            raise ValueError(f"the tokenizer makes no tokens of text number {i}, {texts[i]!r:.80}")
    return found


def _are_tokens(tokens: Any) -> bool:
    """Are these (ids, types, ...)?"""
    if not (isinstance(tokens, (tuple, list)) or getattr(tokens, "ndim", 0) == 2) or len(tokens) < 2:
        return False
    try:
        ids, types = map(np.asarray, tokens[:2])
    except ValueError:  # nested lists of different lengths
        return False
    return ids.ndim == 1 and ids.shape == types.shape and (not ids.size or (ids.dtype.kind in "iu" and types.dtype.kind in "iub"))


def by_length(tokens: list[Any]) -> np.ndarray:
    """The numbers of the texts, the longest first."""
    return np.argsort([-len(ids) for ids, *_ in tokens], kind="stable")


def parts(order: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """An order in parts of at most `size`."""
    return (order[begin : begin + size] for begin in range(0, len(order), size))


def arguments(encoder: Any, batch: list[Any]) -> dict[str, np.ndarray]:
    """What a model takes for a batch of tokens; types where the encoder has more than one."""
    lengths = np.array([len(ids) for ids, *_ in batch])
    ids = np.zeros((len(batch), lengths.max()), np.int64)  # padding is what lies beyond `lengths`, whatever number it has
    for row, (own, *_) in zip(ids, batch, strict=True):
        row[: len(own)] = own
    check_numbers(ids, encoder.words, "tokens")
    found = {"ids": ids, "lengths": lengths}
    kinds = getattr(encoder, "types", None)
    if kinds is not None and getattr(kinds, "num_embeddings", 2) > 1 and any(np.asarray(types).any() for _, types, *_ in batch):
        found["token_types"] = np.zeros_like(ids)
        for row, (_, types, *_) in zip(found["token_types"], batch, strict=True):
            row[: len(types)] = types
        check_numbers(found["token_types"], kinds, "parts of a pair")
    return found


def check_numbers(numbers: np.ndarray, table: Any, of: str) -> None:
    """Raises where the tokenizer and the model do not belong together; what is in the place of an Embedding may take any numbers."""
    below = getattr(table, "num_embeddings", np.inf)
    if numbers.min() < 0 or numbers.max() >= below:
        wrong = int(numbers.min()) if numbers.min() < 0 else int(numbers.max())
        raise ValueError(f"the tokenizer gives the number {wrong}, but the model has embeddings of {below} {of}; are they of one folder?")


def scores(model: Any, tokens: list[Any], size: int, sort: bool, progress: bool, label: str) -> list[np.ndarray]:
    """What a model with a head gives for each text in eval mode, float32; at its own tokens only, where it gives something for tokens."""
    found: list[Any] = [None] * len(tokens)
    with evaluating(model), Bar(len(tokens), progress, label) as bar:
        for rows in parts(by_length(tokens) if sort else np.arange(len(tokens)), size):
            batch = [tokens[i] for i in rows]
            given = np.asarray(model(**arguments(model.encoder, batch))).astype(np.float32, copy=False)
            for i, (ids, *_), each in zip(rows, batch, given, strict=True):
                found[i] = each[: len(ids)] if each.ndim == 2 else each
            bar.update(len(rows))
    return found


def finite(x: np.ndarray, number: int, model: Any, what: str = "text") -> np.ndarray:
    """What a model gives for a text, or an image, unless that is no number: of NaN the first class would be the likeliest, and the first vector the nearest."""
    if not np.isfinite(x).all():
        dtype = next(model.parameters()).dtype.name
        advice = "; dtype='float32' has a larger range" if dtype == "float16" else ""
        raise ValueError(
            f"the model gives {x[~np.isfinite(x)][0]} for {what} number {number}: its weights are damaged, or numbers are too large for {dtype}{advice}"
        )
    return x


def softmax(x: np.ndarray) -> np.ndarray:
    """Probabilities over the last axis, in float64."""
    odds = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Probabilities, each for itself, in float64."""
    odds = np.exp(-np.abs(x.astype(np.float64)))
    return np.where(x >= 0, 1 / (1 + odds), odds / (1 + odds))


class Bar:
    """A bar of tqdm's, or nothing."""

    def __init__(self, total: int | None, shown: bool, label: str, unit: str = "text") -> None:
        self._bar: Any = None
        if shown and sys.stderr is not None:  # closed, as in pythonw: nobody sees a bar
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, unit=unit, desc=label)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, count: int) -> None:
        if self._bar is not None:
            self._bar.update(count)
