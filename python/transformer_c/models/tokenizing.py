"""Texts to numbers, by tokenizer.json, or older files, and the package tokenizers."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._arguments import count
from ..checkpoint import CheckpointError
from ..checkpoint.files import write_atomically
from .architectures import ARCHITECTURES
from .folder import contents, has, mapping, only, write_json
from .vocabularies import configure, tokenizer_class, tokenizer_of

_AS_IN_ITS_FILE = (
    "PreTrainedTokenizerFast",
    "TokenizersBackend",
)  # transformers' classes of tokenizers that tokenizer.json alone says all of
# Those that give no types of tokens unless model_input_names does; the first three are of transformers 5, whose forerunners gave them.
_WITHOUT_TYPES = ("TokenizersBackend", "AlbertTokenizer", "AlbertTokenizerFast", "DistilBertTokenizer", "DistilBertTokenizerFast")
# Arguments for transformers in sentence_bert_config.json: their names from version 6 of sentence-transformers on and before, those that change
# no result, and where the others belong.
_LOADING = ("trust_remote_code", "revision", "cache_dir", "local_files_only", "token")
_ARGUMENTS = (
    (("processor_kwargs", "tokenizer_args"), ("padding_side", "use_fast", *_LOADING), "tokenizer_config.json"),
    (
        ("model_kwargs", "model_args"),
        ("add_pooling_layer", "attn_implementation", "dtype", "torch_dtype", "low_cpu_mem_usage", "use_safetensors", *_LOADING),
        "config.json",
    ),
    (("config_kwargs", "config_args"), ("use_cache", *_LOADING), "config.json"),
)
MAX_TOKENIZER = 1 << 28  # bytes of tokenizer.json; those of multilingual models have 17 MB


class Tokenizer:
    """A folder's tokenizer.

    Parameters
    ----------
    folder : str
    max_length : int
        Longer texts are cut off there, special tokens included: at their ends, or at their beginnings where tokenizer_config.json has
        ``truncation_side`` "left". What tokenizer.json says of truncation, padding and dropout is not used.
    pairs : bool
        Whether texts come in pairs.

    Attributes
    ----------
    max_length : int
    config : dict
        The contents of tokenizer_config.json, which transformers needs.
    padding : dict or None
        What tokenizer.json says of it.
    """

    def __init__(self, folder: str, max_length: int, pairs: bool = False) -> None:
        self._tokenizer = _read(folder)
        self.padding: Any = self._tokenizer.padding
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        if getattr(self._tokenizer.model, "dropout", None):  # of byte pairs: a text would have other tokens each time
            self._tokenizer.model.dropout = None
        self.max_length = max_length
        path = os.path.join(folder, "tokenizer_config.json")
        self.config = mapping(path)
        self._side = side_of(path, self.config)
        names = self.config.get("model_input_names")
        self._has_types = "token_type_ids" in names if isinstance(names, list) else tokenizer_class(folder) not in _WITHOUT_TYPES
        check_room(folder, max_length, self._tokenizer.num_special_tokens_to_add(pairs))
        self._of_words: Any = self._tokenizer if tokenizer_class(folder) in _AS_IN_ITS_FILE else None  # the same, or a copy for words

    def __call__(self, texts: Sequence[Any], special: bool = True) -> list[tuple[np.ndarray, np.ndarray]]:
        """(ids, types), int64, of each text or pair of texts; types are 0 where tokenizer_config.json does not name them as the model's."""
        with refusing("the tokenizer failed"):
            found = self._tokenizer.encode_batch(list(texts), add_special_tokens=special)
        return [self._cut_off(e, self._side, e.ids, e.type_ids if self._has_types else [0] * len(e.ids)) for e in found]

    def as_written(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The same of texts that have the special tokens in them: none is added."""
        return self(texts, special=False)

    def lower(self) -> None:
        """Reads texts in lower case from now on, whatever tokenizer.json says."""
        import tokenizers

        before = self._tokenizer.normalizer
        lower = tokenizers.normalizers.Lowercase()
        self._tokenizer.normalizer = lower if before is None else tokenizers.normalizers.Sequence([lower, before])

    def number(self, word: str) -> int | None:
        """Of a token; None where there is no such."""
        return self._tokenizer.token_to_id(word)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        with refusing("the tokenizer failed"):
            return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def words(self, texts: Sequence[Sequence[str]]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(ids, types, words), int64, of texts that are lists of words; the number of each token's word, -1 where it has none.

        They are cut off at their ends: what is left of a text is read next.
        """
        with refusing("the tokenizer failed"):
            self._of_words = self._of_words or _for_words(self._tokenizer)
            found = self._of_words.encode_batch([list(text) for text in texts], is_pretokenized=True)
        return [self._cut_off(e, "right", e.ids, e.type_ids, [-1 if word is None else word for word in e.word_ids]) for e in found]

    def _cut_off(self, encoding: Any, side: str, *columns: list[int]) -> Any:
        """Numbers of the tokens of a text, int64, without those that are too many.

        The package would keep what it cuts off: of a pair every part of one text with every part of the other, 3 GB of two texts of 20,000 words.
        """
        arrays = tuple(np.array(column, np.int64) for column in columns)
        if len(arrays[0]) <= self.max_length:
            return arrays
        kept = _kept(encoding.sequence_ids, self.max_length, side)
        return tuple(array[kept] for array in arrays)

    def save(self, folder: str) -> None:
        """Writes tokenizer.json and tokenizer_config.json to a folder, with this ``max_length``."""
        text = self._tokenizer.to_str(pretty=True)
        write_atomically(os.path.join(folder, "tokenizer.json"), text.encode())
        write_json(os.path.join(folder, "tokenizer_config.json"), {**self.config, "model_max_length": self.max_length})
        path = sentence_config(folder)
        if has(path):  # of an encoder that was there before; it is what readers ask first
            write_json(path, {**mapping(path), "max_seq_length": self.max_length})


def side_of(path: str, config: Mapping[str, Any]) -> str:
    """The side at which texts are cut off, by the mapping in tokenizer_config.json."""
    side = config.get("truncation_side", "right")
    if side not in ("left", "right"):
        raise CheckpointError(f"{path!r} has truncation_side = {side!r:.80}; expected 'left' or 'right'")
    return side


def check_room(folder: str, max_length: int, special: int) -> None:
    """Refuses a length that special tokens alone have."""
    if max_length <= special:
        raise ValueError(
            f"texts are cut off at {max_length} tokens, but the tokenizer of {folder!r} adds {special} to each; nothing of the text is left"
        )


def _kept(parts: list[int | None], most: int, side: str) -> np.ndarray:
    """The numbers of the at most `most` tokens that are left when texts are cut off at a side: those of no text, and the first or last of each
    text, by the package's rule "longest first".

    `parts` has 0 or 1 for a token of the first or second text. The longer text loses tokens until both have half of the room; of an odd
    number the longer one has one more, or of equal ones the second.
    """
    numbers = np.array([-1 if part is None else part for part in parts])
    texts = [np.flatnonzero(numbers == part) for part in (0, 1)]
    room = max(0, most - int((numbers < 0).sum()))
    short = min(*map(len, texts), room // 2)
    counts = (room - short, short) if len(texts[0]) > len(texts[1]) else (short, room - short)
    own = [text[:count] if side == "right" else text[len(text) - count :] for text, count in zip(texts, counts, strict=True)]
    return np.sort(np.concatenate([np.flatnonzero(numbers < 0), *own]))


def _for_words(tokenizer: Any) -> Any:
    """The tokenizer itself, or a copy where a word would be none after a space, as transformers requires of RoBERTa's."""
    before = tokenizer.pre_tokenizer
    if type(before).__name__ != "ByteLevel" or before.add_prefix_space:
        return tokenizer
    made, before = copy.deepcopy(tokenizer), copy.deepcopy(before)
    before.add_prefix_space = True
    made.pre_tokenizer = before
    return made


def _read(folder: str) -> Any:
    try:
        import tokenizers
    except ImportError:
        raise ImportError(
            "texts are read by the package tokenizers: pip install 'transformer_c[models]', or pip install tokenizers"
        ) from None
    path = os.path.join(folder, "tokenizer.json")
    if not has(path):
        with refusing(f"the vocabulary of {folder!r} makes no tokenizer"):
            made = tokenizer_of(folder, tokenizers)
        if made is not None:
            return made
        others = [
            name
            for name in ("vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model", "spm.model")
            if os.path.exists(os.path.join(folder, name))
        ]
        also = (
            f"; it has {others[0]}, from which transformers' AutoTokenizer.from_pretrained(folder).save_pretrained(folder) makes it"
            if others
            else ""
        )
        raise CheckpointError(f"{folder!r} has no tokenizer.json{also}")
    data = contents(path, MAX_TOKENIZER)
    with refusing(f"{path!r} is not a tokenizer that can be read"):
        made = tokenizers.Tokenizer.from_buffer(data)
    if tokenizer_class(folder) not in _AS_IN_ITS_FILE:
        configure(made, folder)
    return made


class refusing:
    """What tokenizers or sentencepiece raises becomes a CheckpointError: Exception for bad files, and its own BaseException where its code panics."""

    def __init__(self, message: str) -> None:
        self._message = message

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: object) -> None:
        if error is None or isinstance(error, (CheckpointError, MemoryError, OSError)):
            return
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise CheckpointError(f"{self._message} ({type(error).__name__}: {str(error)[:200]})") from None


def sentence_config(folder: str) -> str:
    """The path of sentence_bert_config.json, or of the file that is named after another architecture, where a folder has that one."""
    paths = [os.path.join(folder, f"sentence_{name}_config.json") for name in ARCHITECTURES]
    return next(filter(has, paths), paths[0])


def check_sentence_config(folder: str, supported: Mapping[str, Any]) -> None:
    """Refuses what a folder's sentence_bert_config.json has besides these values, and arguments for transformers that change results."""
    path = sentence_config(folder)
    values = mapping(path)
    only(path, values, supported)
    for names, harmless, place in _ARGUMENTS:
        for name in names:
            given = values.get(name) or {}
            others = [key for key in given if key not in harmless] if isinstance(given, dict) else [given]
            if others:
                raise CheckpointError(f"{path!r} has {name} with {others[0]!r:.80}, which is not supported there; {place} may say it")


def longest(folder: str, given: int | None, positions: int) -> int:
    """The number of tokens at which texts are cut off: `given`, or what its files say: those of sentence-transformers first."""
    if given is not None:
        if count("max_length", given) > positions:
            raise ValueError(f"max_length is {given}; the model has embeddings for {positions} positions")
        return given
    for path, key in (
        (sentence_config(folder), "max_seq_length"),
        (os.path.join(folder, "tokenizer_config.json"), "model_max_length"),
    ):
        found = mapping(path).get(key)
        if found is not None:
            if type(found) not in (int, float) or not found >= 1:
                raise CheckpointError(f"{path!r} has {key} = {found!r:.80}; expected a number of tokens")
            return int(min(found, positions))  # 1e30 is transformers' word for no limit
    return positions
