"""Scores of pairs of texts."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from .._arguments import count, one_of
from .._names import Explaining
from ..checkpoint import CheckpointError
from .folder import find, mapping, naming, read_config, read_weights
from .heads import TextClassification
from .loading import assemble, check
from .modules import read_modules
from .texts import as_others_compute, as_others_read, attributes, checked, finite, listed, made_of, pair, scores, sigmoid, tokens_of
from .tokenizing import Tokenizer, check_sentence_config, longest

_TASK = "text-classification"
_OF_ENCODERS: dict[str, Any] = {"transformer_task": "sequence-classification", "processing_kwargs": {}}  # of sentence_bert_config.json
# By the last part of the class's name in the folder's files.
_ACTIVATIONS = {"Sigmoid": "sigmoid", "Identity": "identity"}


class CrossEncoder(Explaining):
    """Scores pairs of texts, such as a question and a document, by reading both at once (Nogueira & Cho 2019).

    It is slower than comparing embeddings of ``SentenceEncoder``, and better: let it rank the best hundred of those.
    ``CrossEncoder.from_pretrained(folder)`` makes one.

    Parameters
    ----------
    model : Module
        With a head for texts, of ``tc.models.load(folder, task="text-classification")``.
    tokenizer : callable
        Takes a list of pairs of str and gives (ids, types) of each.
    activation : {"sigmoid", "identity"}, optional
        What is made of the head's scores; by default a sigmoid of one score, nothing of several.

    Attributes
    ----------
    model, tokenizer, activation
        As above. ``encoder.model.to("cuda")`` moves the model.

    Examples
    --------
    With a new model and a tokenizer of one's own:

    >>> import numpy as np, transformer_c as tc
    >>> model = tc.models.create({"model_type": "bert", "vocab_size": 128, "hidden_size": 8, "num_hidden_layers": 1,
    ...                           "num_attention_heads": 2, "intermediate_size": 16, "num_labels": 1}, task="text-classification")
    >>> def tokenizer(pairs):
    ...     return [(np.array([1, *map(ord, a), 2, *map(ord, b), 2]), np.array([0] * (len(a) + 2) + [1] * (len(b) + 1))) for a, b in pairs]
    >>> encoder = tc.models.CrossEncoder(model, tokenizer)
    >>> encoder.predict([("a question", "an answer"), ("a question", "something else")]).shape
    (2,)
    >>> best = encoder.rank("a question", ["an answer", "something else", "more"], top_k=2, return_documents=True)
    >>> len(best), sorted(best[0])
    (2, ['corpus_id', 'score', 'text'])
    """

    _instead = attributes(
        "encoder.model",
        fit='tc.models.TextClassifier(folder, problem_type="regression").fit(pairs, scores)',
        save="the folder that it was read from, which does not change",
        max_length="encoder.tokenizer.max_length",
        **dict.fromkeys(("score", "predict_proba", "encode", "forward"), "encoder.predict(pairs)"),
        **dict.fromkeys(("eval", "train"), "encoder.predict(pairs), which computes in eval mode"),
    )

    def __init__(self, model: Any, tokenizer: Any = None, activation: str | None = None) -> None:
        made_of("CrossEncoder", model, tokenizer, TextClassification, 'tc.models.load(folder, task="text-classification")')
        self.model, self.tokenizer = model, tokenizer
        self._outputs = model.out.out_features
        self.activation = ("sigmoid" if self._outputs == 1 else "identity") if activation is None else activation
        one_of("activation", self.activation, tuple(_ACTIVATIONS.values()))

    @classmethod
    @as_others_read
    def from_pretrained(
        cls, folder: Any, *, max_length: int | None = None, activation: str | None = None, dtype: Any = None, mmap: bool = True
    ) -> CrossEncoder:
        """A cross-encoder from a folder of sentence-transformers', or of transformers' with a head for texts and a tokenizer.

        Parameters
        ----------
        folder : str or path-like
        max_length : int, optional
            The number of tokens at which pairs are cut off, the longer text first.
        activation : {"sigmoid", "identity"}, optional
            By default what the folder's files say.
        dtype : dtype, optional
            Of the model's parameters.
        mmap : bool, default True
            Map safetensors files into memory, as ``tc.models.load`` does.

        Raises
        ------
        CheckpointError
            As ``tc.models.load``; when the weights have no head for texts.
        ImportError
            When the package tokenizers is not installed.
        """
        path = find(folder)
        modules = read_modules(path)
        if len(modules) > 1:
            raise CheckpointError(
                f"{path!r} has the modules {', '.join(kind for kind, _ in modules)}, which make embeddings: SentenceEncoder reads them"
            )
        inner = modules[0][1]
        options = mapping(os.path.join(path, "config_sentence_transformers.json"))
        if options.get("default_prompt_name") is not None:
            raise CheckpointError(
                f"{path!r} has default_prompt_name = {options['default_prompt_name']!r:.80}; prompts of pairs are not supported"
            )
        check_sentence_config(inner, _OF_ENCODERS)
        config = read_config(inner)
        with naming(inner):
            check(config, _TASK)
            model, lacking = assemble(config, read_weights(inner, mmap), _TASK, dtype, owned=True)
        if lacking:
            raise CheckpointError(f"{inner!r} has no weights for {', '.join(lacking)}: it is no cross-encoder")
        return cls(
            model,
            Tokenizer(inner, longest(inner, max_length, model.encoder.longest), pairs=True),
            _activation(path, options, config) if activation is None else activation,
        )

    def __repr__(self) -> str:
        kind = type(self.model.encoder).__name__
        length = getattr(self.tokenizer, "max_length", None)
        return f"CrossEncoder({kind}, outputs={self._outputs}, activation={self.activation}, max_length={length})"

    @as_others_compute
    def predict(self, pairs: Any, batch_size: int = 32, sort_by_length: bool = True, progress: bool = False) -> Any:
        """The scores of pairs.

        Parameters
        ----------
        pairs : sequence of pairs of str, or one pair
        batch_size : int, default 32
            How many pairs are computed at once.
        sort_by_length : bool, default True
            Compute pairs of similar lengths together. Neither this nor the batch changes any bit of the result.
        progress : bool, default False
            Show a bar.

        Returns
        -------
        ndarray of float32, shape (N,)
            (N, outputs) where the model has several; without the first axis for one pair.

        Raises
        ------
        TypeError
            When a pair is not two str.
        """
        if isinstance(batch_size, (str, list, tuple, np.ndarray)):
            raise TypeError(
                "predict takes pairs of texts in one argument: predict(list(zip(queries, documents))), or predict((query, document))"
            )
        listing = listed(pairs, "pairs of str")
        if len(listing) == 2 and all(isinstance(text, str) for text in listing):
            return self.predict([listing], batch_size, progress=progress)[0]
        tokens = tokens_of(self.tokenizer, [pair(both, i) for i, both in enumerate(listing)])
        found = scores(self.model, tokens, count("batch_size", batch_size), sort_by_length, progress, "scoring")
        result = np.array([self._activated(finite(each, i, self.model)) for i, each in enumerate(found)], np.float32).reshape(
            -1, self._outputs
        )
        return result[:, 0] if self._outputs == 1 else result

    @as_others_compute
    def rank(
        self,
        query: str,
        documents: Any,
        top_k: int | None = None,
        return_documents: bool = False,
        batch_size: int = 32,
        progress: bool = False,
    ) -> list[dict[str, Any]]:
        """Documents in the order of their scores with a query, the best first.

        Parameters
        ----------
        query : str
        documents : sequence of str
        top_k : int, optional
            Only so many; by default all.
        return_documents : bool, default False
            Whether the documents themselves are in the result.
        batch_size : int, default 32
        progress : bool, default False

        Returns
        -------
        list of dict
            ``corpus_id``, the document's number; ``score``; and ``text`` where it is asked for. Equal scores keep their order.

        Raises
        ------
        ValueError
            When the model gives several scores to a pair.
        """
        if self._outputs != 1:
            raise ValueError(f"this model gives {self._outputs} scores to a pair; documents are ranked by one")
        if not isinstance(query, str):
            raise TypeError(f"query must be a str, got {query!r:.80} ({type(query).__name__})")
        texts = checked(documents)
        found = self.predict([(query, text) for text in texts], batch_size, progress=progress)
        order = np.argsort(-found, kind="stable")[: None if top_k is None else count("top_k", top_k)]
        return [{"corpus_id": int(i), "score": float(found[i]), **({"text": texts[i]} if return_documents else {})} for i in order]

    def _activated(self, x: np.ndarray) -> np.ndarray:
        return x if self.activation == "identity" else sigmoid(x)


def _activation(path: str, options: dict[str, Any], config: dict[str, Any]) -> str | None:
    """What the files of versions from 6, 4 and 1 on say."""
    inner = config.get("sentence_transformers")
    for name, said in (
        ("activation_fn", options.get("activation_fn")),
        ("sentence_transformers.activation_fn", inner.get("activation_fn") if isinstance(inner, dict) else None),
        ("sbert_ce_default_activation_function", config.get("sbert_ce_default_activation_function")),
    ):
        if said is not None:
            last = said.rpartition(".")[2] if isinstance(said, str) and said.startswith("torch.nn.") else None
            if last not in _ACTIVATIONS:
                raise CheckpointError(f"{path!r} has {name} = {said!r:.80}; supported are torch.nn.{', torch.nn.'.join(_ACTIVATIONS)}")
            return _ACTIVATIONS[last]
    return None
