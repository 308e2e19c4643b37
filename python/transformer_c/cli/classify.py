"""classify: the classes of texts, or of their words."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from . import lines
from .options import CommandError


def add(commands) -> None:
    """Describes the command."""
    parser = commands.add_parser(
        "classify",
        help="classes of texts or words by a fine-tuned encoder: text or JSON lines in, JSON lines or a .npy file out",
        description="The class of each text, or of each word where the folder has a model for words, by an encoder with a head in a folder of "
        "transformers'. Each result is a line of JSON: the text, its label and its score (the probability); or words, labels and scores. JSON lines may have "
        "pairs of texts, as lists; and lists of words.",
    )
    lines.add_options(parser, "the probabilities of all classes, float32 (N, classes)")
    parser.add_argument("--all", action="store_true", help="the probabilities of all classes of a text, by their labels")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Loads, reads, writes."""
    from ..models import TextClassifier, TokenClassifier
    from ..models.folder import find, read_config

    said = read_config(find(options.folder)).get("architectures")
    of_words = isinstance(said, list) and any(isinstance(name, str) and name.endswith("ForTokenClassification") for name in said)
    kind: Any = TokenClassifier if of_words else TextClassifier
    classifier = lines.opened(lambda: kind(options.folder, max_length=options.max_length, dtype=options.dtype))
    if classifier.model_ is None:
        raise CommandError(
            f"{options.folder} has no weights for classes: fine-tune it with tc.models.TextClassifier(folder).fit(texts, labels)"
        )
    labels = classifier.classes_.tolist()

    def compute(texts: list[Any]) -> Any:
        return classifier.predict_proba(texts, batch_size=options.batch_size)

    def of_text(odds: np.ndarray) -> dict[str, Any]:
        best = int(odds.argmax())
        every = {str(label): lines.number(p) for label, p in zip(labels, odds, strict=True)}
        return {"label": labels[best], "score": lines.number(odds[best]), **({"scores": every} if options.all else {})}

    def of_each_word(odds: np.ndarray) -> dict[str, Any]:
        best = odds.argmax(1)
        return {"labels": [labels[i] for i in best], "scores": [lines.number(p[i]) for p, i in zip(odds, best, strict=True)]}

    if of_words:
        return lines.run(options, _words, compute, of_each_word, None, "words")
    return lines.run(options, _text, compute, of_text, len(labels))


def _text(value: Any) -> Any:
    """A text, or a pair of texts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 2 and all(isinstance(text, str) for text in value):
        return tuple(value)
    raise ValueError(f"expected a text or a list of two texts, got {value!r:.80}")


def _words(value: Any) -> list[str]:
    """The words of a text."""
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError(f"expected words, or a list of them, got {value!r:.80}")
    return words


__all__ = ["add", "run"]
