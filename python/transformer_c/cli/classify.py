"""classify: the classes of texts or of their words, the labels that texts have, or numbers."""

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
        "transformers'. Each result is a line of JSON: the text, its label and its score (the probability); or words, labels and scores, null for a word "
        "without tokens. Of a model for several labels of a text: those of a probability above 1/2, and their scores; of a regression the value. "
        "JSON lines may have pairs of texts, as lists; and lists of words.",
    )
    lines.add_options(parser, "the probabilities of all classes or the numbers, float32 (N, classes)")
    parser.add_argument("--all", action="store_true", help="the probabilities of all classes or labels of a text, by their names")
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
    problem = "words" if of_words else classifier.problem_type_
    labels = classifier.model_.labels if problem == "regression" else classifier.classes_.tolist()

    def compute(texts: list[Any]) -> Any:
        if problem == "regression":
            return classifier.predict(texts, batch_size=options.batch_size).reshape(-1, len(labels))
        return classifier.predict_proba(texts, batch_size=options.batch_size)

    def describe(answers: np.ndarray) -> dict[str, Any]:
        return _DESCRIBED[problem](labels, answers, options.all)

    return lines.run(
        options, _words if of_words else _text, compute, describe, None if of_words else len(labels), "words" if of_words else "text"
    )


def _class(labels: list[Any], odds: np.ndarray, every: bool) -> dict[str, Any]:
    best = int(odds.argmax())
    return {"label": labels[best], "score": lines.number(odds[best]), **({"scores": _named(labels, odds)} if every else {})}


def _several(labels: list[Any], odds: np.ndarray, every: bool) -> dict[str, Any]:
    chosen = [i for i, p in enumerate(odds) if p > 0.5]
    return {"labels": [labels[i] for i in chosen], "scores": _named(labels, odds, None if every else chosen)}


def _values(labels: list[Any], values: np.ndarray, every: bool) -> dict[str, Any]:
    return {"value": lines.number(values[0])} if len(labels) == 1 else {"values": _named(labels, values)}


def _of_words(labels: list[Any], odds: np.ndarray, every: bool) -> dict[str, Any]:
    best = [None if np.isnan(p[0]) else int(p.argmax()) for p in odds]  # a word without tokens has no probabilities
    return {
        "labels": [None if i is None else labels[i] for i in best],
        "scores": [None if i is None else lines.number(p[i]) for p, i in zip(odds, best, strict=True)],
    }


def _named(labels: list[Any], numbers: np.ndarray, chosen: list[int] | None = None) -> dict[str, float]:
    return {str(labels[i]): lines.number(numbers[i]) for i in (range(len(labels)) if chosen is None else chosen)}


# By problem_type: what a line of JSON says of the answers to a text; `every` asks for those to all labels.
_DESCRIBED = {
    "single_label_classification": _class,
    "multi_label_classification": _several,
    "regression": _values,
    "words": _of_words,
}


def _text(value: Any) -> Any:
    """A text, or a pair of texts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 2 and all(isinstance(text, str) for text in value):
        return tuple(value)
    raise ValueError(f"expected a text or a list of two texts, got {value!r:.80}")


def _words(value: Any) -> list[str]:
    """The words of a text; none of an empty line."""
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"expected words, or a list of them, got {value!r:.80}")
    return words


__all__ = ["add", "run"]
