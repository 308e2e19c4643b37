"""Embeddings of texts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._arguments import all_of, count, not_negative, one_of, switch
from .._evaluating import evaluating
from .._names import Explaining, explained
from ..checkpoint import CheckpointError
from . import contrastive
from .fitting import OTHER_NAMES, Options
from .folder import find, flag, mapping, write_arrays, write_json
from .layers import TextEncoder
from .loading import load, save
from .modules import Dense, read_dense, read_modules
from .pooling import names_of, of_text, pooling_config, read_pooling
from .texts import (
    Bar,
    arguments,
    as_others_compute,
    as_others_read,
    attributes,
    by_length,
    checked,
    finite,
    made_of,
    of_characters,
    parts,
    tokens_of,
)
from .tokenizing import Tokenizer, check_sentence_config, longest, sentence_config

# Of sentence_bert_config.json, besides the greatest length: the only values with which the states of all tokens are pooled, and no others.
_OF_ENCODERS: dict[str, Any] = {
    "transformer_task": "feature-extraction", "module_output_name": "token_embeddings", "processing_kwargs": {}, "query_length": None,
    "document_length": None, "query_expansion": None,
}  # fmt: skip
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


class SentenceEncoder(Explaining):
    """Turns texts into vectors, such that texts of similar meaning have similar vectors (Reimers & Gurevych 2019).

    ``SentenceEncoder.from_pretrained(folder)`` makes one.

    Parameters
    ----------
    model : Module
        An encoder of ``tc.models.load``.
    tokenizer : callable
        Takes a list of texts and gives (ids, types) of each.
    pooling : {"cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"} or tuple of these, default "mean"
        How one vector is made of those of all tokens: the first token's, the largest numbers, their mean, their sum over the root of
        their number, their mean weighted by position, the last token's. The vectors of several are joined.
    normalize : bool
        Whether vectors get length 1.
    prompts : mapping of str to str
        Texts to begin with, by name.
    default_prompt : str, optional
        The name of the prompt where none is asked for.
    include_prompt : bool
        Whether pooling counts the tokens of the prompt.
    similarity_function : {"cosine", "dot", "euclidean", "manhattan"}
    lowercase : bool
        Whether texts are made lower-case before the tokenizer.
    dense : sequence of Dense
        Layers for the pooled vectors, before they are normalised. They stay on the CPU.
    truncate_dim : int, optional
        How many numbers of a vector are kept, the first ones, after it has been normalised.

    Attributes
    ----------
    model, tokenizer, pooling, normalize, prompts, default_prompt, include_prompt, similarity_function, lowercase, dense, truncate_dim
        As above. ``encoder.model.to("cuda")`` moves the model.
    history : list of dict
        The ``loss`` of each epoch of the last ``fit``.

    Examples
    --------
    With a new model and a tokenizer of one's own:

    >>> import numpy as np, transformer_c as tc
    >>> model = tc.models.create({"model_type": "bert", "vocab_size": 128, "hidden_size": 8, "num_hidden_layers": 1,
    ...                           "num_attention_heads": 2, "intermediate_size": 16})
    >>> def tokenizer(texts):
    ...     return [(np.array([1, *map(ord, text)]), np.zeros(len(text) + 1, int)) for text in texts]
    >>> encoder = tc.models.SentenceEncoder(model, tokenizer, normalize=True)
    >>> vectors = encoder.encode(["a cat", "a dog", "Transformers"])
    >>> vectors.shape, encoder.similarity(vectors, vectors).shape
    ((3, 8), (3, 3))
    >>> np.array_equal(encoder.encode("a cat"), vectors[0])
    True
    """

    _instead = attributes(
        "encoder.model",
        **dict.fromkeys(("max_seq_length", "max_length"), "encoder.tokenizer.max_length"),
        **dict.fromkeys(("get_sentence_embedding_dimension", "get_embedding_dimension"), "encoder.encode([]).shape[1]"),
        **dict.fromkeys(("predict", "transform", "embed", "forward", "embed_documents", "embed_query"), "encoder.encode(texts)"),
        **dict.fromkeys(("encode_query", "encode_document"), 'encoder.encode(texts, prompt_name="query"), of encoder.prompts'),
        **dict.fromkeys(("eval", "train"), "encoder.encode(texts), which computes in eval mode, or encoder.fit(pairs)"),
        **dict.fromkeys(("parameters", "named_parameters", "state_dict", "modules"), "encoder.model, which has them"),
        **dict.fromkeys(
            ("start_multi_process_pool", "encode_multi_process"), "encoder.encode(texts), which uses tc.get_num_threads() threads"
        ),
        similarity_pairwise="(a * b).sum(axis=1), of vectors of length 1",
        tokenize="encoder.tokenizer(texts)",
    )

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        pooling: str | Sequence[str] = "mean",
        normalize: bool = False,
        *,
        prompts: Mapping[str, str] | None = None,
        default_prompt: str | None = None,
        include_prompt: bool = True,
        similarity_function: str = "cosine",
        lowercase: bool = False,
        dense: Sequence[Dense] = (),
        truncate_dim: int | None = None,
    ) -> None:
        made_of("SentenceEncoder", model, tokenizer, TextEncoder, "tc.models.load")
        self.model, self.tokenizer, self.default_prompt, self.similarity_function = model, tokenizer, default_prompt, similarity_function
        self.pooling, self.prompts, self.normalize, self.include_prompt, self.lowercase, _ = all_of(
            (names_of, pooling), (_checked_prompts, prompts, default_prompt),
            (switch, "normalize", normalize), (switch, "include_prompt", include_prompt), (switch, "lowercase", lowercase),
            (one_of, "similarity_function", similarity_function, SIMILARITIES),
        )  # fmt: skip
        self.dense, width = tuple(dense), model.width * len(self.pooling)
        for layer in self.dense:
            if not isinstance(layer, Dense):
                raise TypeError(f"dense must be layers of tc.models.Dense, not {type(layer).__name__}")
            if layer.linear.in_features != width:
                raise ValueError(f"a layer of dense takes vectors of {layer.linear.in_features} numbers, but it is given {width}")
            width = layer.linear.out_features
        self.truncate_dim = None if truncate_dim is None else count("truncate_dim", truncate_dim)
        self._width = min(width, self.truncate_dim or width)
        self.history: list[dict[str, float]] = []

    @classmethod
    @as_others_read
    def from_pretrained(
        cls,
        folder: Any,
        *,
        pooling: str | Sequence[str] | None = None,
        normalize: bool | None = None,
        max_length: int | None = None,
        dtype: Any = None,
        mmap: bool = True,
    ) -> SentenceEncoder:
        """An encoder from a folder of sentence-transformers', or of transformers' with the files of a tokenizer.

        Pooling, normalisation, prompts and the greatest length are read from the folder's files; ``max_seq_length`` there is used instead of
        the tokenizer file's own truncation and padding. A folder without modules.json gets the mean of all tokens, not normalised.

        Parameters
        ----------
        folder : str or path-like
        pooling : {"cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"} or tuple of these, optional
        normalize : bool, optional
        max_length : int, optional
            The number of tokens at which texts are cut off.
        dtype : dtype, optional
            Of the model's parameters.
        mmap : bool, default True
            Map safetensors files into memory, as ``tc.models.load`` does.

        Raises
        ------
        CheckpointError
            As ``tc.models.load``; when a file of the folder is damaged or asks for something that is not supported.
        ImportError
            When the package tokenizers is not installed.
        """
        path = find(folder)
        modules = read_modules(path)
        places = dict(modules)
        inner, include = places["Transformer"], True
        found: tuple[str, ...] = ("mean",)
        if "Pooling" in places:
            found, include = read_pooling(places["Pooling"])
        dense = [read_dense(place, mmap) for kind, place in modules if kind == "Dense"]
        if pooling is not None:
            found = names_of(pooling)
        if not isinstance(normalize, (bool, np.bool_, type(None))):
            raise TypeError(f"normalize must be True, False or None, got {normalize!r:.80} ({type(normalize).__name__})")
        prompts, default, function, kept = _read_options(path)
        model = load(inner, dtype=dtype, mmap=mmap)
        if not isinstance(model, TextEncoder):
            also = "; tc.models.ImageTextEncoder reads it" if hasattr(model, "vision") else ""
            raise CheckpointError(f"{path!r} has a model of {type(model).__name__}, which is no encoder of texts alone{also}")
        tokenizer, options = Tokenizer(inner, longest(inner, max_length, model.longest)), sentence_config(inner)
        if "Pooling" in places:
            check_sentence_config(inner, _OF_ENCODERS)
        try:
            return cls(
                model,
                tokenizer,
                found,
                "Normalize" in places if normalize is None else bool(normalize),
                prompts=prompts,
                default_prompt=default,
                include_prompt=include,
                similarity_function=function,
                lowercase=flag(options, mapping(options), "do_lower_case", False),
                dense=dense,
                truncate_dim=kept,
            )
        except ValueError as error:  # layers of other widths
            raise CheckpointError(f"{path!r} cannot be loaded: {error}") from None

    def __repr__(self) -> str:
        return (
            f"SentenceEncoder({type(self.model).__name__}, pooling={'+'.join(self.pooling)}, normalize={self.normalize}, "
            f"max_length={getattr(self.tokenizer, 'max_length', None)})"
        )

    @as_others_compute
    def encode(
        self,
        texts: Any,
        batch_size: int = 32,
        sort_by_length: bool = True,
        progress: bool = False,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        normalize_embeddings: bool = False,
    ) -> np.ndarray:
        """The vectors of texts, computed in eval mode; the model is in the mode it was in afterwards.

        Parameters
        ----------
        texts : sequence of str, or str
            A list, an array or a column of N texts; or one text.
        batch_size : int, default 32
            How many texts are computed at once.
        sort_by_length : bool, default True
            Compute texts of similar lengths together, the longest first, so that little memory is taken for padding. Neither this nor
            the batch changes any bit of the result.
        progress : bool, default False
            Show a bar.
        prompt_name : str, optional
            The name of one of ``prompts``, which is put before each text; by default ``default_prompt``.
        prompt : str, optional
            A prompt itself.
        normalize_embeddings : bool, default False
            Give the vectors length 1 even if ``normalize`` is False.

        Returns
        -------
        ndarray of float32, shape (N, E)
            In the order of the texts; (E,) for one text.

        Raises
        ------
        TypeError
            When a text is no str.
        ValueError
            When there is no such prompt, and when the tokenizer gives what the model cannot take.
        """
        if isinstance(texts, str):
            return self.encode(
                [texts], batch_size, progress=progress, prompt_name=prompt_name, prompt=prompt, normalize_embeddings=normalize_embeddings
            )[0]
        size = count("batch_size", batch_size)
        texts = checked(texts)
        tokens, skipped = self._read(texts, self._prompt(prompt_name, prompt))
        order = by_length(tokens) if sort_by_length else np.arange(len(tokens))
        result = np.empty((len(texts), self._width), np.float32)
        with evaluating(self.model), Bar(len(texts), progress, "encoding") as bar:
            for batch in parts(order, size):
                vectors = self._embed([tokens[i] for i in batch], skipped)
                for layer in self.dense:
                    vectors = np.asarray(layer(vectors.astype(layer.linear.weight.dtype)))
                for i, vector in zip(batch, vectors, strict=True):
                    finite(vector, i, self.model)
                vectors = of_length_one(vectors) if self.normalize else vectors
                is_one = self.normalize and vectors.shape[1] == self._width
                kept = vectors[:, : self._width]
                result[batch] = of_length_one(kept) if normalize_embeddings and not is_one else kept
                bar.update(len(batch))
        return result

    def similarity(self, a: Any, b: Any) -> np.ndarray:
        """How similar each vector of `a` is to each of `b`, by ``similarity_function``.

        Parameters
        ----------
        a : array_like, shape (N, E) or (E,)
        b : array_like, shape (M, E) or (E,)

        Returns
        -------
        ndarray of float32, shape (N, M)
            Cosines, products, or distances times -1: larger is more similar.

        Raises
        ------
        ValueError
            When the vectors of `a` and `b` differ in size.
        """
        return similarity(a, b, self.similarity_function)

    @explained({**OTHER_NAMES, "loss": "it is multiple negatives ranking loss", "labels": "pairs belong together; they have no labels"})
    def fit(
        self,
        pairs: Any,
        *,
        learning_rate: float = 2e-5,
        epochs: int = 1,
        batch_size: int = 32,
        warmup: float = 0.1,
        weight_decay: float = 0.01,
        max_norm: float = 1.0,
        scale: float = 20.0,
        prompt_names: Sequence[str | None] | None = None,
        random_state: int | None = None,
        progress: bool = False,
    ) -> SentenceEncoder:
        """Trains the encoder on texts that belong together; returns it.

        The loss is multiple negatives ranking loss (Henderson et al. 2017, section 4.4): of all second texts of a batch, a text's own one should
        have the largest cosine with it. Larger batches are harder, and better. A fit that is refused or interrupted changes nothing.

        Parameters
        ----------
        pairs : sequence of (anchor, positive) or (anchor, positive, negative, ...)
            Texts, such as a question and its answer; negatives are answers that are similar and wrong. The same text should not be in
            several pairs of a batch.
        learning_rate : float, default 2e-5
            The highest; it rises from 0 in the first steps and then falls to 0.
        epochs : int, default 1
        batch_size : int, default 32
        warmup : float, default 0.1
            The share of the steps in which the learning rate rises.
        weight_decay : float, default 0.01
            AdamW's, for matrices; norms and biases have none.
        max_norm : float, default 1.0
            Larger gradients are scaled down to this norm; 0 leaves all as they are.
        scale : float, default 20.0
            The factor of the cosines; its inverse is often called temperature.
        prompt_names : sequence of str or None, optional
            The name of a prompt for each text of a pair; by default there are none.
        random_state : int, optional
            Decides on batches and dropout. The same int gives the same bits; None draws from ``tc.manual_seed``'s generator.
        progress : bool, default False
            Show a bar.

        Returns
        -------
        SentenceEncoder
            This one. The loss of each epoch is in ``history``.

        Raises
        ------
        TypeError
            When a pair is no tuple of two or more str.
        ValueError
            When the pairs have different numbers of texts, an option has a wrong value, or the loss is not finite.

        Examples
        --------
        >>> import numpy as np, transformer_c as tc
        >>> _ = tc.manual_seed(0)
        >>> model = tc.models.create({"model_type": "bert", "vocab_size": 128, "hidden_size": 16, "num_hidden_layers": 1,
        ...                           "num_attention_heads": 2, "intermediate_size": 16})
        >>> def tokenizer(texts):
        ...     return [(np.array([1, *map(ord, text)]), np.zeros(len(text) + 1, int)) for text in texts]
        >>> encoder = tc.models.SentenceEncoder(model, tokenizer)
        >>> pairs = [("one", "1"), ("two", "2"), ("three", "3"), ("four", "4")]
        >>> encoder = encoder.fit(pairs, epochs=30, learning_rate=0.01, random_state=0)
        >>> encoder.history[-1]["loss"] < 0.5 * encoder.history[0]["loss"]
        True
        """
        options = Options.of(locals())
        groups = contrastive.checked_groups(pairs)
        if len(groups[0]) == 2 and min(options.batch_size, len(groups)) == 1:
            raise ValueError(
                "a batch of one pair has no wrong answers, and nothing is learnt from it: give more pairs, a larger batch_size, or negatives"
            )
        names = list(prompt_names) if prompt_names is not None else [None] * len(groups[0])
        if len(names) != len(groups[0]):
            raise ValueError(f"prompt_names has {len(names)} names, but a pair has {len(groups[0])} texts")
        prompts = ["" if name is None else self._prompt(name, None) for name in names]
        factor = not_negative("scale", scale)
        columns = [self._read(list(texts), prompt) for prompt, texts in zip(prompts, zip(*groups, strict=True), strict=True)]
        model, dense, history = contrastive.fit(self, columns, options, factor, random_state, progress)
        self.__dict__ = {**vars(self), "model": model, "dense": dense, "history": history}  # in one step
        return self

    def save(self, folder: Any) -> None:
        """Writes a folder that sentence-transformers, transformers and ``from_pretrained`` load.

        Parameters
        ----------
        folder : str or path-like
            Is made where it does not exist. A tokenizer of one's own is not written.
        """
        pooling = pooling_config(self.pooling, self.model.width, self.include_prompt)
        save(self.model, folder)
        kind = "sentence_transformers.models."
        modules = ["Transformer", "Pooling", *["Dense"] * len(self.dense)] + ["Normalize"] * self.normalize
        files: dict[str, Any] = {
            "modules.json": [
                {"idx": i, "name": str(i), "path": f"{i}_{name}" if i else "", "type": kind + name} for i, name in enumerate(modules)
            ],
            "1_Pooling/config.json": pooling,
            **{f"{i}_Dense/config.json": layer.to_config() for i, layer in enumerate(self.dense, 2)},
            "config_sentence_transformers.json": {
                "prompts": self.prompts,
                "default_prompt_name": self.default_prompt,
                "similarity_fn_name": self.similarity_function,
                **({} if self.truncate_dim is None else {"truncate_dim": self.truncate_dim}),
            },
            "sentence_bert_config.json": {"do_lower_case": self.lowercase},
        }
        path = os.fsdecode(folder)
        if isinstance(self.tokenizer, Tokenizer):
            self.tokenizer.save(path)
            files["sentence_bert_config.json"]["max_seq_length"] = self.tokenizer.max_length
        for i, name in enumerate(modules[1:], 1):
            os.makedirs(os.path.join(path, f"{i}_{name}"), exist_ok=True)
        for i, layer in enumerate(self.dense, 2):
            write_arrays(os.path.join(path, f"{i}_Dense", "model.safetensors"), layer.state_dict())
        for name, values in files.items():
            write_json(os.path.join(path, name), values)

    # ---- parts ------------------------------------------------------------------------------------------------------------

    def _prompt(self, name: str | None, prompt: str | None) -> str:
        if prompt is not None:
            if name is not None:
                raise TypeError("prompt and prompt_name are two ways to say the same; give one of them")
            return _checked_prompt(prompt, "prompt")
        name = self.default_prompt if name is None else name
        if name is not None and name not in self.prompts:
            known = f"the prompts {', '.join(map(repr, self.prompts))}" if self.prompts else "no prompts"
            raise ValueError(f"prompt_name is {name!r}; this model has {known}")
        return "" if name is None else _checked_prompt(self.prompts[name], f"the prompt {name!r}")

    def _read(self, texts: list[str], prompt: str) -> tuple[list[Any], int]:
        """(tokens of each text after a prompt, how many of them are not pooled)."""
        skipped = 0
        if prompt and not self.include_prompt:
            skipped = len(self.tokenizer([self._cased(prompt)])[0][0]) - 1  # without the token that ends it
        return tokens_of(self.tokenizer, [self._cased(prompt + text) for text in texts]), skipped

    def _cased(self, text: str) -> str:
        return "".join(map(str.lower, text)) if self.lowercase else text  # each alone, as by sentence-transformers: Σ is σ everywhere

    def _embed(self, batch: list[tuple[np.ndarray, np.ndarray]], skipped: int) -> np.ndarray:
        """The vectors of a batch, before the dense layers; tokens before `skipped` are not pooled."""
        given = arguments(self.model, batch)
        lengths = given["lengths"]
        states = np.asarray(self.model(**given)).astype(np.float32, copy=False)
        return np.stack([of_text(self.pooling, state[:length], skipped) for state, length in zip(states, lengths, strict=True)])


def _read_options(folder: str) -> tuple[dict[str, str], str | None, str, int | None]:
    """(prompts by name, the name of the default one, the similarity, the numbers that are kept) of config_sentence_transformers.json."""
    config = mapping(os.path.join(folder, "config_sentence_transformers.json"))
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise CheckpointError(f"config_sentence_transformers.json has prompts = {prompts!r:.80}; expected texts by name")
    default, function = config.get("default_prompt_name"), config.get("similarity_fn_name") or "cosine"
    if default is not None and (not isinstance(default, str) or default not in prompts):
        raise CheckpointError(f"config_sentence_transformers.json has default_prompt_name = {default!r:.80}, which its prompts lack")
    if function not in SIMILARITIES:
        raise CheckpointError(f"config_sentence_transformers.json has similarity_fn_name = {function!r:.80}; there are {SIMILARITIES}")
    kept = config.get("truncate_dim")
    if kept is not None and (type(kept) is not int or kept < 1):
        raise CheckpointError(f"config_sentence_transformers.json has truncate_dim = {kept!r:.80}; expected null or a number of at least 1")
    return prompts, default, function, kept


def _checked_prompts(prompts: Any, default: Any) -> dict[str, str]:
    """Prompts by name, of which `default` is one or None."""
    if not isinstance(prompts, (Mapping, type(None))):
        raise TypeError(f"prompts must be a mapping of names to texts, not {prompts!r:.80} ({type(prompts).__name__})")
    found = {name: _checked_prompt(text, f"the prompt {name!r:.80}") for name, text in (prompts or {}).items()}
    if default is not None and default not in list(found):
        raise ValueError(f"default_prompt is {default!r:.80}, and prompts has {', '.join(map(repr, found)) or 'no names'}")
    return found


def _checked_prompt(prompt: Any, name: str) -> str:
    if not isinstance(prompt, str):
        raise TypeError(f"{name} must be a str, not {prompt!r:.80} ({type(prompt).__name__})")
    return of_characters(prompt, name)


def similarity(a: Any, b: Any, function: str) -> np.ndarray:
    """See ``SentenceEncoder.similarity``; `function` is one of SIMILARITIES."""
    a, b = (_vectors(x) for x in (a, b))
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(f"a and b must be vectors of the same size, (N, E) and (M, E); got {a.shape} and {b.shape}")
    if function == "cosine":
        a, b = (_divided(x, _lengths(x)) for x in (a, b))
    if function in ("cosine", "dot"):
        return a @ b.T
    distances = _lengths if function == "euclidean" else _sums
    return np.stack([-distances(row - b).astype(np.float32) for row in a]) if len(a) else np.empty((0, len(b)), np.float32)


def _vectors(x: Any) -> np.ndarray:
    """(N, E), of vectors or one."""
    try:
        found = np.asarray(x)
    except ValueError:
        raise ValueError("similarity takes vectors of one size; these lists have different lengths") from None
    if found.dtype.kind not in "biuf":
        raise TypeError(f"similarity takes vectors, as encode gives them, not {x!r:.80}; for texts: similarity(encode(a), encode(b))")
    return np.atleast_2d(found.astype(np.float32, copy=False))


def _lengths(vectors: np.ndarray) -> np.ndarray:
    """Of the rows. Squares of large or tiny elements are outside of float32's range, but not of float64's."""
    return np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))


def _sums(vectors: np.ndarray) -> np.ndarray:
    """The sum of the magnitudes of each row."""
    return np.abs(vectors).sum(1, dtype=np.float64)


def _divided(vectors: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The rows, divided by their lengths in float64, as float32; without a copy in float64."""
    return np.divide(vectors, np.maximum(lengths, 1e-12)[:, None], out=np.empty(vectors.shape, np.float32), casting="same_kind")


def of_length_one(vectors: np.ndarray) -> np.ndarray:
    """The rows, divided by their lengths, each of which is computed alone: with the same bits in any batch."""
    return _divided(vectors, np.array([np.linalg.norm(row.astype(np.float64)) for row in vectors]))
