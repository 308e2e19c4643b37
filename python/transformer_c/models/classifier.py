"""Encoders with a head, fine-tuned and used in scikit-learn's manner: what TextClassifier, TokenClassifier and ImageClassifier share."""

from __future__ import annotations

import inspect
import os
from typing import Any, ClassVar

import numpy as np

from .._arguments import count, one_of
from .._core import Tensor
from .._names import Explaining, explained
from .._tensor import as_tensor
from ..random import drawing_from
from .config import MAX_LABELS
from .fitting import OTHER_NAMES, Options, generator_of, train, without_halves
from .loading import save
from .pretrained import Pretrained
from .problems import PROBLEMS, REGRESSION, SINGLE, Head, Problem, validated
from .texts import arguments, attributes, of_characters, scores, tokens_of
from .tokenizing import Tokenizer, longest

# Of transformers' and Keras' names for the options, what to write instead.
OPTIONS = {
    **OTHER_NAMES,
    "max_seq_length": "max_length=",
    "device": "classifier.model_.to(device) moves the model",
    **dict.fromkeys(("id2label", "labels", "classes"), "the classes are those of y"),
    "early_stopping": "fit(X, y, validation=(X, y)) keeps the weights of the best epoch",
    "class_weight": "texts of rare classes several times in X",
}
_OF_FIT = {
    **dict.fromkeys(("sample_weight", "class_weight"), "texts of rare classes several times in X"),
    **dict.fromkeys(("validation_data", "eval_set", "validation_split", "val"), "validation=(X, y)"),
    **dict.fromkeys(
        ("epochs", "batch_size", "learning_rate", "random_state", "progress"), "an argument of the constructor, or of set_params"
    ),
}


class Classifier(Explaining):
    """The base of all. A sample is what the model reads at once: a text, a part of a long one, or an image."""

    task: str
    _problems: ClassVar[tuple[str, ...]]  # those that there are for the task
    _head: Head | None
    model_: Any
    problem_type_: str | None
    classes_: Any
    history_: list[dict[str, float]]
    _pairs = False  # whether texts may come in pairs
    _what = "text"  # what is classified

    _instead = attributes(
        "classifier.model_",
        predict_log_proba="np.log(classifier.predict_proba(X))",
        decision_function="classifier.predict_proba(X)",
        history="classifier.history_",
        partial_fit="classifier.fit(X, y), which begins with the weights of the folder",
        **dict.fromkeys(("transform", "encode"), "SentenceEncoder for vectors of texts"),
        **dict.fromkeys(("train", "train_model", "finetune"), "classifier.fit(X, y)"),
    )

    @explained(OPTIONS)
    def __init__(
        self,
        model: Any,
        num_labels: int | None = None,
        *,
        problem_type: str | None = None,
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
        self.model, self.num_labels, self.problem_type, self.tokenizer = model, num_labels, problem_type, tokenizer
        self.max_length, self.dtype, self.mmap = max_length, dtype, mmap
        self.learning_rate, self.epochs, self.batch_size, self.warmup = learning_rate, epochs, batch_size, warmup
        self.weight_decay, self.max_norm, self.random_state, self.progress = weight_decay, max_norm, random_state, progress
        self._load()

    def _load(self) -> None:
        """What the folder says, and its model where that has a head."""
        asked = self._asked()
        if self.num_labels is not None:
            count("num_labels", self.num_labels, 2 if asked in (None, SINGLE) else 1)
            if self.num_labels > MAX_LABELS:
                raise ValueError(
                    f"num_labels must be at most {MAX_LABELS}, got {self.num_labels}; without it, the labels that occur are counted"
                )
        self._pretrained = Pretrained(self.model, self.task, self.mmap, asked)
        head = self._pretrained.head
        if head is not None and self.num_labels not in (None, len(head.classes)):
            head = None
        with drawing_from(generator_of(0)):  # nothing that is drawn here is used
            made = self._pretrained.start(head, self.dtype)
        vars(self).update(_results(head, made, []))
        self._prepare(made.encoder)

    @classmethod
    def from_pretrained(cls, folder: Any, num_labels: int | None = None, **options: Any) -> Any:
        """A classifier from a folder; the same as the constructor.

        Parameters
        ----------
        folder : str or path-like
            With config.json, weights and the files of a tokenizer.
        num_labels, **options
            Arguments of the constructor.
        """
        return cls(folder, num_labels, **options)

    def __repr__(self) -> str:
        classes = "to be fitted" if self._head is None else f"{len(self._head.classes)} {self._head.problem.outputs}"
        return f"{type(self).__name__}({self._pretrained.config['model_type']}, {classes}, {self._reading()})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor by name, as in scikit-learn; `deep` changes nothing."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Any:
        """Sets arguments of the constructor for the next ``fit``; returns the classifier. Another model or tokenizer is loaded at once.

        Raises
        ------
        ValueError
            When the constructor has no such argument.
        """
        known = self.get_params()
        for name in params:
            if name not in known:
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}")
        if params.keys() & {"model", "num_labels", "problem_type", "tokenizer", "max_length", "preprocessor", "dtype", "mmap"}:
            self.__dict__ = vars(type(self)(**{**known, **params}))
        vars(self).update(params)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        target, texts, several = TargetTags(required=True), InputTags(string=self._what == "text"), len(self._problems) > 1
        problem = self._asked() or (None if self._head is None else self._head.problem)
        if problem is REGRESSION:
            return Tags("regressor", target, regressor_tags=RegressorTags(), input_tags=texts)
        return Tags("classifier", target, classifier_tags=ClassifierTags(multi_label=several), input_tags=texts)

    def __sklearn_is_fitted__(self) -> bool:
        return self.model_ is not None

    @explained(_OF_FIT)
    def fit(self, X: Any, y: Any, *, validation: tuple[Any, Any] | None = None) -> Any:
        """Fine-tunes the pretrained weights; returns the classifier.

        Every call begins with the weights of the folder. Where all labels are those of the folder's own head, that head is trained further;
        otherwise it gets a new last layer. A fit that is refused or interrupted changes nothing.

        Parameters
        ----------
        X : sequence
            Texts, as for ``predict_proba``.
        y : sequence
            Their labels, str or int: one of each text, or a list of those of its words. For a ``TextClassifier`` also an array (N, labels) of
            0 and 1, which says what labels each text has, or floats, (N,) or (N, outputs), which are to be predicted.
        validation : (X, y), optional
            Other texts and labels: their ``val_loss`` and what ``score`` gives (``val_accuracy``, ``val_r2``) are in ``history_``, and the weights of
            the epoch with the lowest loss are kept.

        Raises
        ------
        TypeError
            When labels are of several types, or of another one than ``problem_type`` asks for.
        ValueError
            When texts and labels differ in number, when there are fewer than two classes, and when a number or the loss is not finite.
        """
        options = Options.of(vars(self))
        texts = self._checked(X)
        given = self._given(texts, y, self._asked())
        head = self._head_for(given)
        samples, goals = self._samples_and_goals(texts, given, head)
        if validation is not None:
            if not isinstance(validation, (tuple, list)) or len(validation) != 2:
                raise TypeError("validation must be a pair (X, y)")
            others = self._checked(validation[0])
            if not others:
                raise ValueError(f"validation has no {self._what}s; without validation=, the weights of the last epoch are kept")
            unseen, unseen_goals = self._samples_and_goals(others, self._given(others, validation[1], head.problem), head)
        with drawing_from(generator_of(self.random_state)):
            model = without_halves(self._pretrained.start(head, self.dtype))

            def loss(rows: np.ndarray) -> Tensor:
                batch = {name: as_tensor(value) for name, value in self._arguments(model, [samples[i] for i in rows]).items()}
                return head.problem.loss(model(**batch), [goals[i] for i in rows])

            def validate() -> dict[str, float]:
                return validated(head.problem, self._scores(model, unseen, 2 * options.batch_size), unseen_goals)

            check = None if validation is None else validate
            history = train(model, loss, len(samples), options, self._lengths(samples), check, self.progress)
        self.__dict__ = {**vars(self), **_results(head, model, history)}  # in one step
        return self

    def save(self, folder: Any) -> None:
        """Writes a folder that ``from_pretrained`` and transformers load: config.json, weights, and the tokenizer, or preprocessor_config.json.

        Parameters
        ----------
        folder : str or path-like
            Is made where it does not exist. A tokenizer of one's own is not written.
        """
        save(self._fitted()[0], folder)
        self._save(os.fsdecode(folder))

    # ---- reading texts ----------------------------------------------------------------------------------------------------

    def _prepare(self, encoder: Any) -> None:
        """Makes what reads texts for this encoder."""
        path = self._pretrained.path
        if self.tokenizer is not None and self.max_length is not None:
            raise TypeError("max_length= is of the folder's tokenizer; a function given as tokenizer= cuts texts off itself")
        if self.tokenizer is not None:
            self.tokenizer_ = self.tokenizer
        elif path is None:
            raise TypeError("a model without a folder needs tokenizer=, a function of a list of texts")
        else:
            self.tokenizer_ = Tokenizer(path, longest(path, self.max_length, encoder.longest), self._pairs)

    def _reading(self) -> str:
        return f"max_length={getattr(self.tokenizer_, 'max_length', None)}"

    def _save(self, path: str) -> None:
        if isinstance(self.tokenizer_, Tokenizer):
            self.tokenizer_.save(path)

    def _samples(self, texts: list[Any]) -> list[Any]:
        return tokens_of(self.tokenizer_, texts)

    @staticmethod
    def _lengths(samples: list[Any]) -> np.ndarray | None:
        """Of samples, those of similar lengths share a batch."""
        return np.array([len(ids) for ids, *_ in samples])

    def _arguments(self, model: Any, samples: list[Any]) -> dict[str, np.ndarray]:
        """What the model takes for a batch."""
        return arguments(model.encoder, samples)

    def _scores(self, model: Any, samples: list[Any], size: int, progress: bool = False) -> list[np.ndarray]:
        """What the model gives for each in eval mode, `size` at a time."""
        return scores(model, samples, size, True, progress, "classifying")

    # ---- parts ------------------------------------------------------------------------------------------------------------

    def _fitted(self) -> tuple[Any, Head]:
        if self._head is None:
            raise RuntimeError(f"the weights have no head for {self.task!r}, or one for other labels: call fit first")
        return self.model_, self._head

    def _asked(self) -> Problem | None:
        """The problem that the arguments name; as in transformers, one label is a number."""
        if self.problem_type is not None:
            return PROBLEMS[one_of("problem_type", self.problem_type, self._problems)]
        return REGRESSION if self.num_labels == 1 and REGRESSION.name in self._problems else None

    def _head_of(self, labels: list[Any]) -> Head:
        """The head of a fit: that of the folder where all labels are among its classes, or one for all that occur, sorted."""
        if not labels:
            raise ValueError("there are no labels to train with")
        kind = str if isinstance(labels[0], str) else (int, np.integer)
        for i, label in enumerate(labels):
            if not isinstance(label, kind) or isinstance(label, (bool, np.bool_)):
                advice = "; int(label) makes an int of it" if isinstance(label, (bool, np.bool_)) else ""
                raise TypeError(f"labels must be all str or all int, but number {i} is {label!r:.80} ({type(label).__name__}){advice}")
            if isinstance(label, str):
                of_characters(label, f"label number {i}")
                if label.endswith("\0"):
                    raise ValueError(f"label number {i} is {label!r:.80}; NumPy's arrays of str drop NUL characters at the end")
            elif not -(2**63) <= label < 2**63:
                raise ValueError(f"label number {i} is {label!r:.80}, which int64 does not have; str(label) makes a str of it")
        found = np.unique(np.array([str.__str__(label) for label in labels]) if kind is str else np.array(labels, np.int64))
        own = self._pretrained.head
        if own is not None and own.problem is SINGLE and self.num_labels in (None, len(own.classes)):
            names = own.classes.tolist()
            if set(found.tolist()) <= set(names):
                if len(set(names)) < len(names):
                    raise ValueError(f"config.json has two classes of one name, {names!r:.200}; a label must mean one of them")
                return own
        if self.num_labels is not None:
            every = np.arange(count("num_labels", self.num_labels, 2))
            if kind is not str and set(found.tolist()) <= set(every.tolist()):
                return Head(SINGLE, every)
            if len(found) != self.num_labels:
                raise ValueError(f"num_labels is {self.num_labels}, but the labels are {found.tolist()!r:.200}")
        if len(found) < 2:
            raise ValueError(f"the labels are all {found.tolist()[0]!r}; two classes are needed")
        return Head(SINGLE, found)

    def _checked(self, X: Any) -> list[Any]:
        """The texts."""
        raise NotImplementedError

    def _given(self, texts: list[Any], y: Any, problem: Problem | None) -> Any:
        """What `y` says of the texts."""
        raise NotImplementedError

    def _head_for(self, given: Any) -> Head:
        """The head of a fit."""
        raise NotImplementedError

    def _samples_and_goals(self, texts: list[Any], given: Any, head: Head) -> tuple[list[Any], list[np.ndarray]]:
        """What the model reads, (ids, types, ...) each, and what is wanted of it, as in ``Problem``."""
        raise NotImplementedError


def _results(head: Head | None, model: Any, history: list[dict[str, float]]) -> dict[str, Any]:
    """The attributes of a classifier with this head; without one it is to be fitted."""
    return {
        "_head": head,
        "model_": None if head is None else model,
        "problem_type_": None if head is None else head.problem.name,
        "classes_": None if head is None or head.problem is REGRESSION else head.classes,
        "history_": history,
    }


def numbers(head: Head, labels: list[Any]) -> np.ndarray:
    """The numbers of the classes that labels mean."""
    of = {label: i for i, label in enumerate(head.classes.tolist())}
    for label in labels:
        if label not in of:
            raise ValueError(f"the label {label!r:.80} of the validation is none of {list(of)!r:.200}")
    return np.array([of[label] for label in labels], np.int64)


def same_kind(head: Head, labels: list[Any]) -> list[Any]:
    """Labels, of the type of the classes; None is the label of a word without tokens."""
    kind = str if head.classes.dtype.kind == "U" else (int, np.integer)
    for i, label in enumerate(labels):
        if label is not None and not isinstance(label, kind):
            raise TypeError(
                f"label number {i} is {label!r:.80} ({type(label).__name__}), but the classes are {head.classes.tolist()!r:.200}"
            )
    return labels
