"""Words of texts into classes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .._arguments import count
from .classifier import Classifier, numbers, same_kind
from .problems import IGNORED, SINGLE, Head, Problem, accuracy
from .texts import finite, listed, of_characters, scores, softmax, tokens_of
from .tokenizing import Tokenizer


class TokenClassifier(Classifier):
    """Sorts the words of texts into classes (names, parts of speech), with a pretrained encoder.

    A text is a list of words. The first token of a word has the word's label; the others have none. A text that is longer than the model's
    greatest length is read in several parts. A word of which the tokenizer makes no tokens, such as one of invisible characters, has the label None.

    Parameters
    ----------
    model, num_labels, problem_type, max_length, dtype, mmap, learning_rate, epochs, batch_size, warmup, weight_decay, max_norm, random_state, progress
        As for ``TextClassifier``; there are only classes.
    tokenizer : callable, optional
        Instead of the folder's tokenizer: takes a list of texts, each a list of words, and gives (ids, types, words) of each; words are
        the numbers of the words that the tokens belong to, -1 for others.

    Attributes
    ----------
    classes_, problem_type_, model_, tokenizer_, history_
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
    _problems = (SINGLE.name,)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = None  # a classifier of scikit-learn's has one label of each sample, by which it splits them
        return tags

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
            NaN for words of which the tokenizer makes no tokens.
        """
        (model, _), texts = self._fitted(), self._checked(X)
        samples = self._samples(texts)
        found = scores(model, samples, count("batch_size", batch_size), True, self.progress, "classifying")
        result = [np.full((len(words), len(self.classes_)), np.nan) for words in texts]
        for (_, _, words, text), each in zip(samples, found, strict=True):
            result[text][words[words >= 0]] = softmax(finite(each[words >= 0], text, model))
        return result

    def predict(self, X: Any, *, batch_size: int = 32) -> list[list[Any]]:
        """The likeliest label of each word; parameters as for ``predict_proba``.

        Returns
        -------
        list of lists of str or int
            None for words of which the tokenizer makes no tokens.
        """
        return [self._labels(each) for each in self.predict_proba(X, batch_size=batch_size)]

    def score(self, X: Any, y: Any) -> float:
        """The share of the words whose label is predicted.

        Parameters
        ----------
        X, y : sequence of lists
            Words, and their labels.

        Returns
        -------
        float
        """
        head, texts = self._fitted()[1], self._checked(X)
        labels = self._given(texts, y, None)
        if not any(texts):
            raise ValueError("there are no words to score")
        wanted = same_kind(head, _in_a_row(labels))
        return accuracy(_in_a_row(self.predict(texts)), wanted)

    def _labels(self, odds: np.ndarray) -> list[Any]:
        """The likeliest label of each word."""
        best = self.classes_[odds.argmax(1)].tolist()
        return [None if absent else label for label, absent in zip(best, np.isnan(odds[:, 0]), strict=True)]

    def _checked(self, X: Any) -> list[Any]:
        texts = listed(X, "lists of words")
        for i, words in enumerate(texts):
            if isinstance(words, str):
                raise TypeError(f"text number {i} is a str; expected a list of words, as text.split() gives")
            texts[i] = listed(words, "words", f"text number {i}")
            for number, word in enumerate(texts[i]):
                if not isinstance(word, str):
                    raise TypeError(f"words must be str, but number {number} of text number {i} is {word!r:.80} ({type(word).__name__})")
                of_characters(word, f"word number {number} of text number {i}")
        return texts

    def _given(self, texts: list[Any], y: Any, problem: Problem | None) -> list[list[Any]]:
        labels = [listed(some, "labels", f"labels number {i}") for i, some in enumerate(listed(y, "lists of labels", "y"))]
        if len(labels) != len(texts):
            raise ValueError(f"there are {len(texts)} texts but {len(labels)} lists of labels")
        for i, (words, some) in enumerate(zip(texts, labels, strict=True)):
            if len(words) != len(some):
                raise ValueError(f"text number {i} has {len(words)} words but {len(some)} labels")
        return labels

    def _head_for(self, given: list[list[Any]]) -> Head:
        return self._head_of(_in_a_row(given))

    def _samples(self, texts: list[Any]) -> list[Any]:
        """(ids, types, words, text): the number of the word that each token is the first of, -1 elsewhere; the number of the text.

        The words that did not fit are another sample; a sample without the first token of any word is left out. The folder's tokenizer is given
        twice as many words as can fit, so that the time grows with the words of a text, not with their square.
        """
        own = self.tokenizer_
        tokenize, at_once = (own.words, 2 * own.max_length) if isinstance(own, Tokenizer) else (own, sys.maxsize)
        done, left = [], [(i, 0) for i in range(len(texts))]
        while left:
            later = []
            found = tokens_of(tokenize, [texts[i][begin : begin + at_once] for i, begin in left], some=False)
            for (text, begin), tokens in zip(left, found, strict=True):
                ids, types, words = _with_words(tokens, text, min(at_once, len(texts[text]) - begin))
                first = np.where((words >= 0) & (words != np.concatenate([[-1], words[:-1]])), words + begin, -1)
                end = int(first.max(initial=-1)) + 1
                if end:
                    done.append((ids, types, first, text))
                begin = end or begin + at_once  # past words without tokens
                if begin < len(texts[text]):
                    later.append((text, begin))
            left = later
        return done

    def _samples_and_goals(self, texts: list[Any], given: list[list[Any]], head: Head) -> tuple[list[Any], list[np.ndarray]]:
        samples, goals = self._samples(texts), []
        if not samples:
            raise ValueError("the tokenizer makes no tokens of any word")
        known = [numbers(head, some) for some in given]
        for _, _, words, text in samples:
            goals.append(np.full(len(words), IGNORED))
            goals[-1][words >= 0] = known[text][words[words >= 0]]
        return samples, goals


def _in_a_row(lists: list[list[Any]]) -> list[Any]:
    """The labels of all words, text after text."""
    return [label for labels in lists for label in labels]


def _with_words(tokens: Any, text: int, count: int) -> Any:
    """(ids, types, words), of what a tokenizer gives for a text of `count` words, the numbers of the words as int64."""
    words = np.asarray(tokens[2]) if len(tokens) == 3 else np.empty(0)
    if len(tokens) != 3 or words.shape != np.shape(tokens[0]) or (words.size and (words.dtype.kind not in "iu" or words.max() >= count)):
        raise ValueError(
            f"the tokenizer gives {tokens!r:.80} for text number {text}; expected (ids, types, words): of each token the number of its word, "
            f"0 to {count - 1}, or -1"
        )
    return (*tokens[:2], words.astype(np.int64, copy=False))
