"""Texts and their words into classes: encoders with a head, fine-tuned and used in scikit-learn's manner."""

from __future__ import annotations

import inspect
import os
from typing import Any

import numpy as np

from .. import functional as F
from .._arguments import count
from .._core import Tensor
from .._names import explained
from .._tensor import as_tensor
from ..checkpoint import CheckpointError
from ..random import drawing_from
from .fitting import Options, generator_of, train
from .loading import save
from .pretrained import Pretrained
from .texts import arguments, checked_with_pairs, listed, of_characters, scores, softmax, tokens_of
from .tokenizing import Tokenizer, longest

_IGNORED = -100  # the class of tokens that have none, as in PyTorch


class Classifier:
    """What ``TextClassifier`` and ``TokenClassifier`` share. A sample is what the model reads at once: a text, or a part of a long one."""

    task: str
    _pairs = False  # whether texts may come in pairs

    @explained({"num_epochs": "epochs=", "max_epochs": "epochs="})
    def __init__(
        self,
        model: Any,
        num_labels: int | None = None,
        *,
        tokenizer: Any = None,
        max_length: int | None = None,
        dtype: Any = None,
        mmap: bool = True,
        learning_rate: float = 5e-5,
        epochs: int = 3,
        batch_size: int = 16,
        warmup: float = 0.1,
        weight_decay: float = 0.01,
        max_norm: float = 1.0,
        random_state: int | None = None,
        progress: bool = False,
    ) -> None:
        self.model, self.num_labels, self.tokenizer = model, num_labels, tokenizer
        self.max_length, self.dtype, self.mmap = max_length, dtype, mmap
        self.learning_rate, self.epochs, self.batch_size, self.warmup = learning_rate, epochs, batch_size, warmup
        self.weight_decay, self.max_norm, self.random_state, self.progress = weight_decay, max_norm, random_state, progress
        self._load()

    def _load(self) -> None:
        """What the folder says, and its model where that has a head."""
        self._pretrained = Pretrained(self.model, self.task, self.mmap)
        self.history_: list[dict[str, float]] = []
        self.classes_: Any = self._pretrained.classes
        if self.classes_ is not None:
            if len(self.classes_) < 2:
                raise CheckpointError("config.json has one label, for a score and no class; CrossEncoder reads such models")
            if self.num_labels is not None and count("num_labels", self.num_labels, 2) != len(self.classes_):
                self.classes_ = None
        with drawing_from(generator_of(0)):  # what is drawn here is not used
            made = self._pretrained.start(self.classes_, self.dtype)
        self.model_ = None if self.classes_ is None else made
        if self.tokenizer is not None:
            self.tokenizer_ = self.tokenizer
        elif self._pretrained.path is None:
            raise TypeError("a model without a folder needs tokenizer=, a function of a list of texts")
        else:
            limit = None if self.max_length is None else count("max_length", self.max_length)
            path = self._pretrained.path
            self.tokenizer_ = Tokenizer(path, longest(path, limit, made.encoder.longest), self._pairs)

    @classmethod
    def from_pretrained(cls, folder: Any, num_labels: int | None = None, **options: Any) -> Any:
        """A classifier from a folder; the same as the constructor.

        Parameters
        ----------
        folder : str or path-like
            With config.json, weights and the files of a tokenizer.
        num_labels, **options
            As above.
        """
        return cls(folder, num_labels, **options)

    def __repr__(self) -> str:
        classes = "to be fitted" if self.classes_ is None else f"{len(self.classes_)} classes"
        kind = self._pretrained.config["model_type"]
        return f"{type(self).__name__}({kind}, {classes}, max_length={getattr(self.tokenizer_, 'max_length', None)})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor, as in scikit-learn."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Any:
        """Other arguments of the constructor, for the next ``fit``; another model or tokenizer is loaded at once."""
        known = self.get_params()
        for name in params:
            if name not in known:
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}")
        if params.keys() & {"model", "num_labels", "tokenizer", "max_length", "dtype", "mmap"}:
            self.__dict__ = vars(type(self)(**{**known, **params}))
        vars(self).update(params)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags("classifier", TargetTags(required=True), classifier_tags=ClassifierTags(), input_tags=InputTags(string=True))

    def __sklearn_is_fitted__(self) -> bool:
        return self.model_ is not None

    def fit(self, X: Any, y: Any, *, validation: tuple[Any, Any] | None = None) -> Any:
        """Fine-tunes the pretrained weights; returns the classifier.

        Every call begins with the weights of the folder. Where all labels are those of the folder's own head, that head is trained further;
        otherwise it gets a new last layer. A fit that is refused or interrupted changes nothing.

        Parameters
        ----------
        X : sequence
            Texts, as for ``predict_proba``.
        y : sequence
            Their labels, str or int: one of each text, or a list of those of its words.
        validation : (X, y), optional
            Other texts and labels: their ``val_loss`` and ``val_accuracy`` are in ``history_``, and the weights of the epoch with the lowest
            loss are kept.

        Raises
        ------
        ValueError
            When texts and labels differ in number, there are not two classes, or the loss is not finite.
        """
        options = Options.of(vars(self))
        texts = self._checked(X)
        labels = self._labels(texts, y)
        classes = self._classes([label for some in labels for label in some])
        samples = self._samples(texts)
        goals = self._goals(samples, labels, classes)
        if validation is not None:
            if not isinstance(validation, (tuple, list)) or len(validation) != 2:
                raise TypeError("validation must be a pair (X, y)")
            held = self._checked(validation[0])
            if not held:
                raise ValueError("validation has no texts; without validation=, the weights of the last epoch are kept")
            held_labels = self._labels(held, validation[1])
            held_samples = self._samples(held)
            held_goals = self._goals(held_samples, held_labels, classes)
        lengths = np.array([len(ids) for ids, *_ in samples])
        with drawing_from(generator_of(self.random_state)):
            model = self._pretrained.start(classes, self.dtype)
            if next(model.parameters()).dtype.name in ("float16", "bfloat16"):  # too coarse for small steps
                model.to(dtype=np.float32)

            def loss(rows: np.ndarray) -> Tensor:
                batch = {name: as_tensor(value) for name, value in arguments(model.encoder, [samples[i] for i in rows]).items()}
                found = model(**batch)
                wanted = np.full(found.shape[:-1], _IGNORED, np.int64)
                for row, i in zip(wanted.reshape(len(rows), -1), rows, strict=True):
                    row[: len(goals[i])] = goals[i]
                return F.cross_entropy(found.view(-1, len(classes)), as_tensor(wanted.reshape(-1)))

            def validate() -> dict[str, float]:
                return _validation(scores(model, held_samples, 2 * options.batch_size, True, False, ""), held_goals)

            check = None if validation is None else validate
            history = train(model, loss, len(samples), options, lengths, check, self.progress)
        self.__dict__ = {**vars(self), "model_": model, "classes_": classes, "history_": history}  # in one step
        return self

    def save(self, folder: Any) -> None:
        """Writes a folder that ``from_pretrained`` and transformers load: config.json, weights, tokenizer.

        Parameters
        ----------
        folder : str or path-like
            Is made where it does not exist. A tokenizer of one's own is not written.
        """
        save(self._fitted(), folder)
        if isinstance(self.tokenizer_, Tokenizer):
            self.tokenizer_.save(os.fsdecode(folder))

    # ---- parts ------------------------------------------------------------------------------------------------------------

    def _fitted(self) -> Any:
        if self.model_ is None:
            raise RuntimeError(f"the weights have no head for {self.task!r}, or one for other labels: call fit first")
        return self.model_

    def _classes(self, labels: list[Any]) -> np.ndarray:
        """The classes of a fit: those of the folder's head where all labels are among them, or all that occur, sorted."""
        if not labels:
            raise ValueError("there are no labels to train with")
        kind = str if isinstance(labels[0], str) else (int, np.integer)
        for label in labels:
            if not isinstance(label, kind) or isinstance(label, (bool, np.bool_)):
                raise TypeError(f"labels must be all str or all int, but one is {label!r:.80} ({type(label).__name__})")
        found = np.unique(np.array([str(label) if kind is str else int(label) for label in labels]))
        own = self._pretrained.classes
        fits = own is not None and self.num_labels in (None, len(own)) and set(found.tolist()) <= set(own.tolist())
        if fits:
            return own  # type: ignore[return-value]
        if self.num_labels is not None:
            every = np.arange(count("num_labels", self.num_labels, 2))
            if kind is not str and set(found.tolist()) <= set(every.tolist()):
                return every
            if len(found) != self.num_labels:
                raise ValueError(f"num_labels is {self.num_labels}, but the labels are {found.tolist()!r:.200}")
        if len(found) < 2:
            raise ValueError(f"the labels are all {found.tolist()[0]!r}; two classes are needed")
        return found

    def _checked(self, X: Any) -> list[Any]:
        """The texts."""
        raise NotImplementedError

    def _labels(self, texts: list[Any], y: Any) -> list[list[Any]]:
        """The labels of each text."""
        raise NotImplementedError

    def _samples(self, texts: list[Any]) -> list[Any]:
        """What the model reads: (ids, types, ...) each."""
        raise NotImplementedError

    def _goals(self, samples: list[Any], labels: list[list[Any]], classes: np.ndarray) -> list[np.ndarray]:
        """The numbers of the classes of each sample: one, or one for each token."""
        raise NotImplementedError


class TextClassifier(Classifier):
    """Sorts texts, or pairs of texts, into classes, with a pretrained encoder.

    Parameters
    ----------
    model : str, path-like or Module
        A folder of transformers', or a model of ``tc.models``, which is not changed. Where it has a head for texts, ``predict`` works without a
        ``fit``.
    num_labels : int, optional
        The number of classes where the labels are ints from 0 of which some may not occur; otherwise they are counted.
    tokenizer : callable, optional
        Instead of the folder's tokenizer: takes a list of texts and gives (ids, types) of each.
    max_length : int, optional
        The number of tokens at which texts are cut off; by default what the folder says.
    dtype : dtype, optional
        Of the model's parameters; halves are trained in float32.
    mmap : bool, default True
        Map safetensors files into memory, as ``tc.models.load`` does.
    learning_rate : float, default 5e-5
        The highest; it rises from 0 in the first steps and then falls to 0.
    epochs : int, default 3
    batch_size : int, default 16
        Of the training.
    warmup : float, default 0.1
        The share of the steps in which the learning rate rises.
    weight_decay : float, default 0.01
        AdamW's, for matrices; norms and biases have none.
    max_norm : float, default 1.0
        Larger gradients are scaled down to this norm; 0 leaves all as they are.
    random_state : int, optional
        Decides on the new head, the batches and dropout. The same int gives the same bits; None draws from ``tc.manual_seed``'s generator.
    progress : bool, default False
        Show bars.

    Attributes
    ----------
    classes_ : ndarray of str or int
        The labels, in the order of the probabilities; None before a fit of a new head.
    model_ : Module
        The model. ``classifier.model_.to("cuda")`` moves it.
    tokenizer_ : callable
    history_ : list of dict
        The ``loss`` of each epoch of the last fit, and ``val_loss`` and ``val_accuracy`` where it had a validation.

    Notes
    -----
    A text has the same probabilities to the bit in any batch.

    Examples
    --------
    With a new model and a tokenizer of one's own:

    >>> import numpy as np, transformer_c as tc
    >>> _ = tc.manual_seed(0)
    >>> model = tc.models.create({"model_type": "bert", "vocab_size": 128, "hidden_size": 16, "num_hidden_layers": 1,
    ...                           "num_attention_heads": 2, "intermediate_size": 32})
    >>> def tokenizer(texts):
    ...     return [(np.array([1, *map(ord, text)]), np.zeros(len(text) + 1, int)) for text in texts]
    >>> classifier = tc.models.TextClassifier(model, tokenizer=tokenizer, epochs=15, learning_rate=0.01, random_state=0)
    >>> texts, labels = ["great", "a great day", "awful", "an awful day"] * 4, ["good", "good", "bad", "bad"] * 4
    >>> classifier.fit(texts, labels).predict(["a great film"])
    array(['good'], dtype='<U4')
    >>> classifier.predict_proba(["a great film", "awful"]).shape, classifier.score(texts, labels)
    ((2, 2), 1.0)
    """

    task = "text-classification"
    _pairs = True

    def predict_proba(self, X: Any, *, batch_size: int = 32) -> np.ndarray:
        """The probabilities of the classes.

        Parameters
        ----------
        X : sequence of str, or of pairs of str
            N texts.
        batch_size : int, default 32
            How many texts are computed at once; texts of similar lengths are computed together.

        Returns
        -------
        ndarray of float64, shape (N, classes)
            In the order of ``classes_``.
        """
        model = self._fitted()
        found = scores(model, self._samples(self._checked(X)), count("batch_size", batch_size), True, self.progress, "classifying")
        return np.array([softmax(each) for each in found]).reshape(-1, len(self.classes_))

    def predict(self, X: Any, *, batch_size: int = 32) -> np.ndarray:
        """The likeliest label of each text; parameters as for ``predict_proba``."""
        return self.classes_[self.predict_proba(X, batch_size=batch_size).argmax(1)]

    def score(self, X: Any, y: Any) -> float:
        """The share of the texts whose label is predicted."""
        texts = self._checked(X)
        labels = self._labels(texts, y)
        return _share(self.predict(texts).tolist(), [label for (label,) in labels])

    def _checked(self, X: Any) -> list[Any]:
        return checked_with_pairs(X)

    def _labels(self, texts: list[Any], y: Any) -> list[list[Any]]:
        labels = listed(y, "labels")
        if len(labels) != len(texts):
            raise ValueError(f"there are {len(texts)} texts but {len(labels)} labels")
        return [[label] for label in labels]

    def _samples(self, texts: list[Any]) -> list[Any]:
        return tokens_of(self.tokenizer_, texts)

    def _goals(self, samples: list[Any], labels: list[list[Any]], classes: np.ndarray) -> list[np.ndarray]:
        numbers = _numbers(classes)
        return [np.array([_number(numbers, label)]) for (label,) in labels]


class TokenClassifier(Classifier):
    """Sorts the words of texts into classes (names, parts of speech), with a pretrained encoder.

    A text is a list of words. The first token of a word has the word's label; the others have none. A text that is longer than the model's
    greatest length is read in several parts.

    Parameters
    ----------
    model, num_labels, max_length, dtype, mmap, learning_rate, epochs, batch_size, warmup, weight_decay, max_norm, random_state, progress
        As for ``TextClassifier``.
    tokenizer : callable, optional
        Instead of the folder's tokenizer: takes a list of texts, each a list of words, and gives (ids, types, words) of each; words are
        the numbers of the words that the tokens belong to, -1 for others.

    Attributes
    ----------
    classes_, model_, tokenizer_, history_
        As for ``TextClassifier``.

    Examples
    --------
    With a new model and a tokenizer of one's own:

    >>> import numpy as np, transformer_c as tc
    >>> _ = tc.manual_seed(0)
    >>> model = tc.models.create({"model_type": "bert", "vocab_size": 128, "hidden_size": 16, "num_hidden_layers": 1,
    ...                           "num_attention_heads": 2, "intermediate_size": 32})
    >>> def tokenizer(texts):
    ...     letters = [[(ord(letter), i) for i, word in enumerate(words) for letter in word] for words in texts]
    ...     return [(np.array([1, *(a for a, _ in text)]), np.zeros(len(text) + 1, int), np.array([-1, *(i for _, i in text)])) for text in letters]
    >>> classifier = tc.models.TokenClassifier(model, tokenizer=tokenizer, epochs=20, learning_rate=0.01, random_state=0)
    >>> texts = [["Ada", "sees", "Bob"], ["we", "see", "Cid"]] * 4
    >>> tags = [["NAME", "O", "NAME"], ["O", "O", "NAME"]] * 4
    >>> classifier.fit(texts, tags).predict([["Bob", "sees"]])
    [['NAME', 'O']]
    """

    task = "token-classification"

    def predict_proba(self, X: Any, *, batch_size: int = 32) -> list[np.ndarray]:
        """The probabilities of the classes of each word.

        Parameters
        ----------
        X : sequence of lists of str
            N texts, each a list of words.
        batch_size : int, default 32
            How many texts are computed at once; texts of similar lengths are computed together.

        Returns
        -------
        list of ndarray of float64, shape (words, classes)
        """
        model, texts = self._fitted(), self._checked(X)
        samples = self._samples(texts)
        found = scores(model, samples, count("batch_size", batch_size), True, self.progress, "classifying")
        result = [np.empty((len(words), len(self.classes_))) for words in texts]
        for (_, _, words, text), each in zip(samples, found, strict=True):
            result[text][words[words >= 0]] = softmax(each[words >= 0])
        return result

    def predict(self, X: Any, *, batch_size: int = 32) -> list[list[Any]]:
        """The likeliest label of each word; parameters as for ``predict_proba``."""
        return [self.classes_[each.argmax(1)].tolist() for each in self.predict_proba(X, batch_size=batch_size)]

    def score(self, X: Any, y: Any) -> float:
        """The share of the words whose label is predicted."""
        texts = self._checked(X)
        labels = self._labels(texts, y)
        return _share(*([label for some in each for label in some] for each in (self.predict(texts), labels)))

    def _checked(self, X: Any) -> list[Any]:
        texts = listed(X, "lists of words")
        for i, words in enumerate(texts):
            if isinstance(words, str):
                raise TypeError(f"text number {i} is a str; expected a list of words, as text.split() gives")
            texts[i] = listed(words, "words")
            if not texts[i] or not all(isinstance(word, str) for word in texts[i]):
                raise TypeError(f"text number {i} is {words!r:.80}; expected a list of words (str), at least one")
            for number, word in enumerate(texts[i]):
                of_characters(word, f"word number {number} of text number {i}")
        return texts

    def _labels(self, texts: list[Any], y: Any) -> list[list[Any]]:
        labels = [listed(some, "labels") for some in listed(y, "lists of labels")]
        if len(labels) != len(texts):
            raise ValueError(f"there are {len(texts)} texts but {len(labels)} lists of labels")
        for i, (words, some) in enumerate(zip(texts, labels, strict=True)):
            if len(words) != len(some):
                raise ValueError(f"text number {i} has {len(words)} words but {len(some)} labels")
        return labels

    def _samples(self, texts: list[Any]) -> list[Any]:
        """(ids, types, words, text): the number of the word that each token is the first of, -1 elsewhere; the number of the text."""
        tokenize = self.tokenizer_.words if isinstance(self.tokenizer_, Tokenizer) else self.tokenizer_
        done, left = [], [(i, 0) for i in range(len(texts))]
        while left:
            later = []
            for (text, begin), (ids, types, words) in zip(left, tokens_of(tokenize, [texts[i][begin:] for i, begin in left]), strict=True):
                words = np.asarray(words)
                first = np.where((words >= 0) & (words != np.concatenate([[-1], words[:-1]])), words + begin, -1)
                end = int(first.max()) + 1
                absent = np.setdiff1d(np.arange(begin, max(end, begin + 1)), first)
                if len(absent):
                    raise ValueError(
                        f"the tokenizer makes no tokens of word {absent[0]} of text number {text}, {texts[text][absent[0]]!r:.80}"
                    )
                done.append((ids, types, first, text))
                if end < len(texts[text]):
                    later.append((text, end))
            left = later
        return done

    def _goals(self, samples: list[Any], labels: list[list[Any]], classes: np.ndarray) -> list[np.ndarray]:
        numbers = _numbers(classes)
        return [
            np.array([_IGNORED if word < 0 else _number(numbers, labels[text][word]) for word in words]) for _, _, words, text in samples
        ]


def _numbers(classes: np.ndarray) -> dict[Any, int]:
    return {label: i for i, label in enumerate(classes.tolist())}


def _number(numbers: dict[Any, int], label: Any) -> int:
    if label not in numbers:
        raise ValueError(f"the label {label!r:.80} of the validation is none of {list(numbers)!r:.200}")
    return numbers[label]


def _share(found: list[Any], wanted: list[Any]) -> float:
    return sum(a == b for a, b in zip(found, wanted, strict=True)) / max(1, len(wanted))


def _validation(found: list[np.ndarray], goals: list[np.ndarray]) -> dict[str, float]:
    """The mean loss and the share of right classes, over texts or words."""
    total, right, number = 0.0, 0, 0
    for each, goal in zip(found, goals, strict=True):
        used = goal != _IGNORED
        odds = softmax(each.reshape(len(goal), -1)[used])[np.arange(used.sum()), goal[used]]
        total -= float(np.log(np.maximum(odds, 1e-300)).sum())
        right += int((each.reshape(len(goal), -1)[used].argmax(1) == goal[used]).sum())
        number += int(used.sum())
    return {"val_loss": total / max(1, number), "val_accuracy": right / max(1, number)}
