"""reviews: the sentiment of reviews with the book chapter's model."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ...checkpoint.files import open_regular
from ...datasets import TextVectorization, load_reviews
from ...tutorials import keras_book
from ..options import CommandError, Option, UsageError, above_zero, positive, share, small_seed, up_to, vocabulary_size
from .base import Prediction, Predictor, Score, Task, running_options

LONGEST = 100_000  # words of a review
MAX_BYTES = 1 << 28  # of a file of texts
LEAST = 10  # reviews, so that each part has one


class Sentiments(Predictor):
    """The probability that each text is a good review."""

    kind = keras_book.ReviewModel
    takes = "texts, each an argument of its own, or - for lines of the standard input"
    input_options = ("file",)
    options: ClassVar[dict[str, Option]] = {"file": Option(str, None, "a text file, a review a line, in place of INPUT", "FILE.txt")}

    def sizes(self, state):
        """See Predictor."""
        vocab_size, embed_dim = state["embedding.weight"].shape
        return {
            "vocab_size": vocab_size,
            "embed_dim": embed_dim,
            "num_heads": state["transformer_encoder.attention.query.weight"].shape[0] // embed_dim,
            "dense_dim": state["transformer_encoder.dense_proj.0.weight"].shape[0],
        }

    def least(self, sizes):
        """See Predictor."""
        width = sizes["embed_dim"]
        return width * (sizes["vocab_size"] + 4 * sizes["num_heads"] * width + 2 * sizes["dense_dim"])

    def check(self, parameters: Mapping[str, Any]) -> None:
        """See Predictor."""
        words, length = parameters.get("vocabulary"), parameters.get("sequence_length")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError("it has no vocabulary: make the model with vocabulary=vectorization.get_vocabulary() before it is trained")
        vectorization = TextVectorization()
        vectorization.set_vocabulary(words)  # raises when a word is there twice
        if vectorization.vocabulary_size() == 2:
            raise ValueError("its vocabulary has no word")
        if not isinstance(length, int) or not 1 <= length <= LONGEST:
            raise ValueError(f"sequence_length is {length!r}; expected a number from 1 to {LONGEST}")

    def predict(self, model, options):
        """See Predictor."""
        texts = _texts(options.input, options.file)
        p = model.predict_texts(texts)
        lines = (f"{_verdict(value)}  {_short(text)}" for text, value in zip(texts, p, strict=True))
        return Prediction(p, lines)


def _verdict(p: float) -> str:
    return f"positive {100 * p:6.2f} %" if p > 0.5 else f"negative {100 * (1 - p):6.2f} %"


def _short(text: str, width: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 3] + "..."


def _texts(given: list[str], path: str | None) -> list[str]:
    if path is not None:
        if given:
            raise UsageError("--file replaces INPUT: give one of them")
        return _lines(_read(path), path)
    if given == ["-"]:
        return _lines(sys.stdin.buffer.read(), "the standard input")
    return given


def _read(path: str) -> bytes:
    file, size = open_regular(path)
    with file:
        if size > MAX_BYTES:
            raise CommandError(f"{path} has {size} bytes; at most {MAX_BYTES >> 20} MiB are read")
        return file.read(size)


def _lines(data: bytes, name: str) -> list[str]:
    """The lines that are not empty."""
    try:
        lines = [line for line in data.decode("utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from None
    if not lines:
        raise CommandError(f"{name} has no text")
    return lines


class Reviews(Task):
    """Classifies reviews, sequences of words, as good or bad."""

    name = "reviews"
    title = "Reviews"
    help = "tell good reviews from bad ones; needs --csv FILE or --folder DIR"
    description = (
        "Trains the book chapter's model on reviews that you have: a CSV file, or a folder such as IMDB's. Seven tenths of them train, a tenth validates, "
        "two tenths test; of a folder with train and test in it, test has the last, and train nine tenths and a tenth."
    )
    example = '"A wonderful film"'
    predictors = (Sentiments(),)
    score = Score("accuracy", "accuracy", percent=True)
    monitor, mode = "val_loss", "min"
    options: ClassVar[dict[str, Option]] = {
        "csv": Option(os.path.abspath, None, "a column text, review or sentence and a column label or sentiment of 0 and 1", "FILE"),
        "folder": Option(os.path.abspath, None, "in it neg and pos, or train and test with neg and pos in each, of .txt files", "DIR"),
        "source": Option(str, None, "only rows of the CSV file with this in the column source", "NAME"),
        "split_seed": Option(small_seed, 0, "seed by which the reviews are split"),
        "epochs": Option(positive, 15, "passes over the training data"),
        "batch_size": Option(positive, 32, "reviews in a batch"),
        "lr": Option(above_zero, 1e-3, "learning rate", "X"),
        "vocab_size": Option(vocabulary_size, 20_000, "most frequent words, padding and unknown word included"),
        "sequence_length": Option(up_to(LONGEST), 600, "words of a review; longer ones are cut, shorter ones padded"),
        "embed_dim": Option(positive, 32, "features of a word, and of each head"),
        "num_heads": Option(positive, 2, "attention heads"),
        "dense_dim": Option(positive, 32, "width of the encoder's hidden layer"),
        "dropout": Option(share, 0.5, "dropout rate before the last layer", "P"),
        **running_options(),
    }

    def check(self, hp, error):
        """See Task."""
        if (hp.csv is None) == (hp.folder is None):
            error("train reviews needs reviews, none come with it: --csv FILE or --folder DIR" + (", not both" if hp.csv else ""))
        if hp.source is not None and hp.csv is None:
            error("--source picks rows of a CSV file: it needs --csv")

    def loaders(self, hp):
        """The vocabulary is made from the training reviews only."""
        parts = _parts(hp)
        vectorization = TextVectorization(hp.vocab_size, output_mode="int", output_sequence_length=hp.sequence_length)
        vectorization.adapt(parts[0][0])
        if vectorization.vocabulary_size() == 2:
            raise CommandError(f"the training reviews in {hp.csv or hp.folder} have no word")
        train, val, test = (
            keras_book.review_loader(texts, labels, vectorization, hp.batch_size, shuffle=i == 0) for i, (texts, labels) in enumerate(parts)
        )
        return train, val, test

    def model(self, hp, train):
        """See Task."""
        vocabulary = train.dataset.vectorization.get_vocabulary()
        return keras_book.ReviewModel(
            hp.vocab_size, hp.embed_dim, hp.num_heads, hp.dense_dim, hp.dropout, hp.lr, vocabulary, hp.sequence_length
        )


Part = tuple[list[str], np.ndarray]


def _parts(hp) -> list[Part]:
    """Texts and classes for training, validation and testing."""
    if hp.folder is not None and not os.path.isdir(hp.folder):
        raise CommandError(f"--folder {hp.folder}: there is no such folder")
    if hp.csv is not None and os.path.isdir(hp.csv):
        raise CommandError(f"--csv {hp.csv} is a folder: give it to --folder")
    if hp.folder is not None and all(os.path.isdir(os.path.join(hp.folder, name)) for name in ("train", "test")):
        texts, labels = _load(os.path.join(hp.folder, "train"), None)
        order = np.random.RandomState(hp.split_seed).permutation(len(texts))
        val, train = np.split(order, [len(texts) // 10])
        return [_part(texts, labels, train), _part(texts, labels, val), _load(os.path.join(hp.folder, "test"), None)]
    texts, labels = _load(hp.csv or hp.folder, hp.source)
    return [_part(texts, labels, numbers) for numbers in keras_book.split_reviews(len(texts), hp.split_seed)]


def _load(path: str, source: str | None) -> Part:
    texts, labels = load_reviews(path, source)
    if labels.max() > 1:
        raise CommandError(f"{path} has {labels.max() + 1} classes; expected two, such as neg and pos")
    if len(texts) < LEAST:
        raise CommandError(f"{path} has {len(texts)} reviews; expected {LEAST} or more")
    if labels.min() == labels.max():
        raise CommandError(f"{path}: all of its {len(texts)} reviews are {'good' if labels[0] else 'bad'}; expected some of each")
    return texts, labels


def _part(texts: list[str], labels: np.ndarray, numbers: np.ndarray) -> Part:
    return [texts[i] for i in numbers], labels[numbers]


TASK = Reviews()
