"""Texts as sequences of integers, as Keras's TextVectorization makes them."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from .._arguments import count

_PUNCTUATION = string.punctuation.encode()
_STANDARDIZE = {
    "lower_and_strip_punctuation": lambda data: data.lower().translate(None, _PUNCTUATION),
    "lower": lambda data: data.lower(),
    "strip_punctuation": lambda data: data.translate(None, _PUNCTUATION),
    None: lambda data: data,
}


class TextVectorization:
    """Maps words to integers, the most frequent word first: 0 is padding, 1 a word that is not in the vocabulary.

    Parameters
    ----------
    max_tokens : int, optional
        The size of the vocabulary, including padding and the unknown word; None keeps every word.
    standardize : {"lower_and_strip_punctuation", "lower", "strip_punctuation"}, callable or None
        Applied to a text before it is split at white space. As in Keras, only the letters A to Z are lowercased, and ASCII punctuation
        is removed without leaving a space, so that "well-made" becomes "wellmade".
    output_mode : {"int"}
    output_sequence_length : int, optional
        The length of every sequence: longer ones are truncated, shorter ones padded. None: the length of the longest.

    Notes
    -----
    Words of equal frequency are in reverse alphabetical order, as in Keras.

    Examples
    --------
    >>> import transformer_c as tc
    >>> vectorize = tc.datasets.TextVectorization(max_tokens=5, output_sequence_length=4)
    >>> vectorize.adapt(["The film, the plot!", "A film..."])
    >>> vectorize.get_vocabulary()
    ['', '[UNK]', 'the', 'film', 'plot']
    >>> vectorize(["The best film", "A plot"])
    array([[2, 1, 3, 0],
           [1, 4, 0, 0]])
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        standardize: str | Callable[[str], str] | None = "lower_and_strip_punctuation",
        output_mode: str = "int",
        output_sequence_length: int | None = None,
    ) -> None:
        if output_mode != "int":
            raise ValueError(f"output_mode must be 'int', got {output_mode!r}")
        if not callable(standardize) and standardize not in _STANDARDIZE:
            raise ValueError(f"standardize must be a function or one of {', '.join(map(str, _STANDARDIZE))}, got {standardize!r}")
        self.max_tokens = None if max_tokens is None else count("max_tokens", max_tokens, 3)
        self.output_sequence_length = None if output_sequence_length is None else count("output_sequence_length", output_sequence_length)
        self.standardize, self.output_mode = standardize, output_mode
        self._words: list[bytes] = []
        self._index: dict[bytes, int] = {}

    def _split(self, text: str) -> list[bytes]:
        if not isinstance(text, str):
            raise TypeError(f"texts must be str, got {type(text).__name__}")
        if callable(self.standardize):
            return self.standardize(text).encode("utf-8", "surrogatepass").split()
        return _STANDARDIZE[self.standardize](text.encode("utf-8", "surrogatepass")).split()

    def adapt(self, texts: Iterable[str]) -> None:
        """Counts the words and keeps the most frequent as the vocabulary."""
        if isinstance(texts, str):
            raise TypeError("adapt() takes a sequence of texts, not one str")
        counts: Counter[bytes] = Counter()
        for text in texts:
            counts.update(self._split(text))
        order = sorted(counts.items(), key=lambda item: (item[1], item[0]), reverse=True)
        self._set([word for word, _ in order][: None if self.max_tokens is None else self.max_tokens - 2])

    def _set(self, words: list[bytes]) -> None:
        self._words, self._index = words, {word: i + 2 for i, word in enumerate(words)}

    def set_vocabulary(self, words: Sequence[str]) -> None:
        """Sets the vocabulary to these words, with or without the first two ("" and "[UNK]")."""
        words = list(words)
        words = words[2:] if words[:2] == ["", "[UNK]"] else words
        if len(set(words)) != len(words):
            raise ValueError("the vocabulary contains a word twice")
        if self.max_tokens is not None and len(words) + 2 > self.max_tokens:
            raise ValueError(f"the vocabulary has {len(words)} words; max_tokens={self.max_tokens} leaves room for {self.max_tokens - 2}")
        self._set([word.encode("utf-8", "surrogatepass") for word in words])

    def get_vocabulary(self) -> list[str]:
        """The words in the order of their integers: "", "[UNK]", then the most frequent first."""
        return ["", "[UNK]", *(word.decode("utf-8", "surrogatepass") for word in self._words)]

    def vocabulary_size(self) -> int:
        """The number of words in the vocabulary, including padding and the unknown word."""
        return len(self._words) + 2

    def __call__(self, texts: str | Sequence[str]) -> np.ndarray:
        """Maps texts to integers (N, length), int64; one text to (length,)."""
        if not self._words:
            raise RuntimeError("the vocabulary is empty: call adapt(texts) or set_vocabulary(words) first")
        if isinstance(texts, str):
            return self([texts])[0]
        sequences = [[self._index.get(word, 1) for word in self._split(text)] for text in texts]
        length = self.output_sequence_length
        if length is None:
            length = max(map(len, sequences), default=0)
        found = np.zeros((len(sequences), length), np.int64)
        for row, sequence in zip(found, sequences, strict=True):
            part = sequence[:length]
            row[: len(part)] = part
        return found

    def __repr__(self) -> str:
        return (
            f"TextVectorization(max_tokens={self.max_tokens}, output_sequence_length={self.output_sequence_length}), "
            f"{self.vocabulary_size()} words"
        )
