"""Texts into classes, into several labels each, or into numbers."""

from __future__ import annotations

from typing import Any

from .texts import checked_with_pairs
from .whole_classifier import WholeClassifier


class TextClassifier(WholeClassifier):
    """Sorts texts, or pairs of texts, into classes, with a pretrained encoder; or says which of several labels each has, or predicts numbers.

    Parameters
    ----------
    model : str, path-like or Module
        A folder of transformers', or a model of ``tc.models``, which is not changed; what is frozen in it (``requires_grad_(False)``) is not
        trained. Where it has a head for texts, ``predict`` works without a ``fit``.
    num_labels : int, optional
        The number of classes where the labels are ints from 0 of which some may not occur; otherwise they are counted. 1 means regression.
    problem_type : {"single_label_classification", "multi_label_classification", "regression"}, optional
        transformers' words for what is answered. By default config.json says it, where one label is a number, and for a fit the labels do: str
        or int are classes, one of each text; an array (N, labels) of 0 and 1 says which labels each text has, and a frame also their names; other floats,
        (N,) or (N, outputs), are numbers to be predicted.
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
        The labels, in the order of the probabilities; None before a fit of a new head, and for regression.
    problem_type_ : str
        What is answered; None before a fit of a new head.
    model_ : Module
        The model. ``classifier.model_.to("cuda")`` moves it.
    tokenizer_ : callable
    history_ : list of dict
        The ``loss`` of each epoch of the last fit, and ``val_loss`` and ``val_accuracy`` (``val_r2`` of a regression) where it
        had a validation.

    Notes
    -----
    A text has the same probabilities to the bit in any batch. The losses are transformers': cross-entropy, binary cross-entropy of each label, mean
    squared error. Numbers are predicted as they are given; of about the size of 1 they are learnt fastest.

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

    Several labels of each text, and numbers:

    >>> labels = np.array([[1, 0], [1, 1], [0, 0], [0, 1]] * 4)  # is it praise? is it about a day?
    >>> classifier.fit(texts, labels).predict(["a great day", "awful"]).shape
    (2, 2)
    >>> stars = np.array([0.9, 1.0, 0.3, 0.2] * 4)
    >>> high, low = classifier.set_params(batch_size=4).fit(texts, stars).predict(["great", "awful"])
    >>> bool(high > 0.6 > low)
    True
    """

    task = "text-classification"
    _pairs = True

    def _checked(self, X: Any) -> list[Any]:
        return checked_with_pairs(X)
