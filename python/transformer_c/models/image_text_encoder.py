"""Embeddings of images and of texts, which are compared with each other."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from .._arguments import count, switch
from .._evaluating import evaluating
from .._names import Explaining
from .._recording import no_grad
from ..checkpoint import CheckpointError
from .filling import Filling, filling_in
from .folder import find, naming, preprocessing, write_json
from .images import checked as checked_images
from .images import is_image, preprocessor_of
from .loading import load, save
from .sentence import of_length_one, similarity
from .siglip_pieces import SiglipPieces, tokenizer_in
from .texts import (
    Bar,
    arguments,
    as_others_compute,
    as_others_read,
    attributes,
    by_length,
    finite,
    listed,
    of_characters,
    parts,
    sigmoid,
    softmax,
    tokens_of,
)
from .tokenizing import Tokenizer, longest


class ImageTextEncoder(Explaining):
    """Turns images and texts into vectors, such that those of an image and of a text that describes it are similar, with CLIP or SigLIP.

    ``ImageTextEncoder.from_pretrained(folder)`` makes one. With texts that name classes it sorts images without a training.

    Parameters
    ----------
    model : Module
        Of ``tc.models.load``, with an encoder of images and one of texts.
    tokenizer : callable
        Takes a list of texts and gives (ids, types) of each. Texts of SigLIP are filled up with ``pad_token_id`` of its text_config.
    preprocessor : mapping, optional
        Contents of preprocessor_config.json.

    Attributes
    ----------
    model, tokenizer
        As above. ``encoder.model.to("cuda")`` moves the model.
    preprocessor : callable
        ``preprocessor(image)`` gives the pixels (3, height, width) of an image.

    Examples
    --------
    With a new model and a tokenizer of one's own:

    >>> import numpy as np, transformer_c as tc
    >>> _ = tc.manual_seed(0)
    >>> side = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    >>> model = tc.models.create({"model_type": "clip", "projection_dim": 6, "text_config": {**side, "vocab_size": 128, "eos_token_id": 3},
    ...                           "vision_config": {**side, "image_size": 8, "patch_size": 4}})
    >>> def tokenizer(texts):
    ...     return [(np.array([*map(ord, text), 3]), np.zeros(len(text) + 1, int)) for text in texts]
    >>> encoder = tc.models.ImageTextEncoder(model, tokenizer, {"do_resize": False, "do_center_crop": False})
    >>> image = np.zeros((8, 8, 3), np.uint8)
    >>> vectors = encoder.encode(["a cat", image])
    >>> vectors.shape, encoder.similarity(encoder.encode(image), vectors).shape
    ((2, 6), (1, 2))
    >>> encoder.predict_proba([image], ["a cat", "a dog"]).shape
    (1, 2)
    """

    _instead = attributes(
        "encoder.model",
        **dict.fromkeys(("get_text_features", "encode_text", "embed_documents", "embed_query"), "encoder.encode(texts)"),
        **dict.fromkeys(("get_image_features", "encode_image", "transform"), "encoder.encode(images)"),
        **dict.fromkeys(("forward", "logits_per_image", "rank"), "encoder.scores(images, texts)"),
        **dict.fromkeys(("fit", "train"), "a loop over encoder.model(ids, pixels), whose scores cross-entropy takes"),
    )

    def __init__(self, model: Any, tokenizer: Any = None, preprocessor: Any = None) -> None:
        if isinstance(model, (str, os.PathLike)):
            raise TypeError(
                f"ImageTextEncoder is made of a model; ImageTextEncoder.from_pretrained({os.fspath(model)!r:.80}) reads a folder"
            )
        if not _encodes_both(model):
            raise TypeError(
                f"ImageTextEncoder is made of a model of images and texts, as tc.models.load gives it, not {type(model).__name__}"
            )
        if not callable(tokenizer):
            raise TypeError(
                f"ImageTextEncoder needs a tokenizer, a function of a list of texts that gives (ids, types) of each, not {tokenizer!r:.80}"
            )
        self.model, self.tokenizer, self.preprocessor = model, tokenizer, preprocessor_of(model.vision, preprocessor)
        padding = getattr(model.text, "filling", None)
        self._filling = None if padding is None else Filling(model.text.longest, padding)

    @classmethod
    @as_others_read
    def from_pretrained(cls, folder: Any, *, max_length: int | None = None, dtype: Any = None, mmap: bool = True) -> ImageTextEncoder:
        """An encoder from a folder of transformers', with the files of a tokenizer and preprocessor_config.json.

        Parameters
        ----------
        folder : str or path-like
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
        model = load(path, dtype=dtype, mmap=mmap)
        if not _encodes_both(model):
            raise CheckpointError(f"{path!r} has a model of {type(model).__name__}, which does not encode both images and texts")
        values = preprocessing(path, "image_processor")
        if not values:
            raise CheckpointError(f"{path!r} has no preprocessor_config.json")
        with naming(path):
            made = cls(model, tokenizer_in(path, longest(path, max_length, model.text.longest)), values)
            if made._filling is not None:
                made._filling = filling_in(path, model.text, made.tokenizer)
            return made

    def __repr__(self) -> str:
        return f"ImageTextEncoder({type(self.model).__name__}, {self.preprocessor!r}, max_length={getattr(self.tokenizer, 'max_length', None)})"

    @as_others_compute
    def encode(self, inputs: Any, batch_size: int = 32, progress: bool = False, *, normalize_embeddings: bool = False) -> np.ndarray:
        """The vectors of images and texts, those of transformers' ``get_image_features`` and ``get_text_features``, computed in eval mode.

        Parameters
        ----------
        inputs : sequence of str and of images, or one
            Images are arrays of uint8 (height, width, 3), or Pillow's.
        batch_size : int, default 32
            How many are computed at once. This changes no bit of the result.
        progress : bool, default False
            Show a bar.
        normalize_embeddings : bool, default False
            Give the vectors length 1.

        Returns
        -------
        ndarray of float32, shape (N, D)
            In the order of the inputs; (D,) for one.

        Raises
        ------
        TypeError
            When something is neither a text nor an image.
        ValueError
            When an image has another shape, and when the tokenizer gives what the model cannot take.
        """
        if isinstance(inputs, str) or is_image(inputs) or (getattr(inputs, "ndim", 0) == 3 and inputs.dtype.kind == "u"):
            return self.encode([inputs], batch_size, progress, normalize_embeddings=normalize_embeddings)[0]
        size, normal = count("batch_size", batch_size), switch("normalize_embeddings", normalize_embeddings)
        given = listed(inputs, "str and images", "inputs")
        is_text = np.array([isinstance(each, str) for each in given], bool)
        texts, images = np.flatnonzero(is_text), np.flatnonzero(~is_text)
        tokens = tokens_of(self.tokenizer, [of_characters(given[i], f"text number {i}") for i in texts])
        pictures = checked_images([given[i] for i in images], images)
        result, given_to = (
            np.empty((len(given), self.model.size), np.float32),
            arguments if self._filling is None else self._filling.arguments,
        )
        with evaluating(self.model), no_grad(), Bar(len(given), progress, "encoding", "input") as bar:
            for batch in parts(by_length(tokens), size):
                found = self.model.of_texts(**given_to(self.model.text, [tokens[i] for i in batch]))
                result[texts[batch]] = self._finite(found, texts[batch], "text")
                bar.update(len(batch))
            for batch in parts(np.arange(len(pictures)), size):
                found = self.model.of_images(self.preprocessor.stacked([pictures[i] for i in batch], images[batch]))
                result[images[batch]] = self._finite(found, images[batch], "image")
                bar.update(len(batch))
        return of_length_one(result) if normal else result

    def _finite(self, found: Any, numbers: np.ndarray, what: str) -> np.ndarray:
        vectors = np.asarray(found).astype(np.float32)
        for number, vector in zip(numbers, vectors, strict=True):
            finite(vector, int(number), self.model, what)
        return vectors

    def similarity(self, a: Any, b: Any) -> np.ndarray:
        """The cosines of each vector of `a` with each of `b`, float32, (N, M).

        Parameters
        ----------
        a : array_like, shape (N, D) or (D,)
        b : array_like, shape (M, D) or (D,)
        """
        return similarity(a, b, "cosine")

    def scores(self, images: Any, texts: Any, *, batch_size: int = 32) -> np.ndarray:
        """How well each text describes each image, transformers' ``logits_per_image``.

        Parameters
        ----------
        images : sequence of images
        texts : sequence of str
        batch_size : int, default 32

        Returns
        -------
        ndarray of float64, shape (images, texts)
            Cosines, multiplied by a number that was trained; with SigLIP another one is added.
        """
        pictures, words = checked_images(images), [*listed(texts, "str")]
        for i, text in enumerate(words):
            if not isinstance(text, str):
                raise TypeError(f"texts must be str, but number {i} is {text!r:.80} ({type(text).__name__})")
        found = [of_length_one(self.encode(each, batch_size)).astype(np.float64) for each in (pictures, words)]
        scale, more = self.model.factors()
        return np.array([(found[1] * vector).sum(1) * scale + more for vector in found[0]]).reshape(len(pictures), len(words))

    def predict_proba(self, images: Any, labels: Any, *, template: str = "This is a photo of {}.", batch_size: int = 32) -> np.ndarray:
        """The probabilities of classes that are named by words, as in transformers' pipeline ``zero-shot-image-classification``.

        Parameters
        ----------
        images : sequence of images
        labels : sequence of str
            The classes.
        template : str, default "This is a photo of {}."
            The text of a class; "{}" leaves a label as it is.
        batch_size : int, default 32

        Returns
        -------
        ndarray of float64, shape (images, labels)
            They add up to 1; with SigLIP each is that of the label by itself, and none may be likely.
        """
        found = self.scores(images, self._described(labels, template), batch_size=batch_size)
        return sigmoid(found) if self.model.each_alone else softmax(found)

    def predict(self, images: Any, labels: Any, *, template: str = "This is a photo of {}.", batch_size: int = 32) -> np.ndarray:
        """The likeliest of the labels for each image, an array of str; parameters as for ``predict_proba``."""
        labels = listed(labels, "str", "labels")
        return np.array(labels, dtype=str)[self.predict_proba(images, labels, template=template, batch_size=batch_size).argmax(1)]

    def _described(self, labels: Any, template: Any) -> list[str]:
        labels = listed(labels, "str", "labels")
        if not isinstance(template, str) or "{}" not in template:
            raise ValueError(f"template must be a str with {{}} in the place of a label, got {template!r:.80}")
        for i, label in enumerate(labels):
            if not isinstance(label, str):
                raise TypeError(f"labels must be str, but number {i} is {label!r:.80} ({type(label).__name__})")
        if not labels:
            raise ValueError("there are no labels to choose from")
        return [template.replace("{}", label) for label in labels]

    def save(self, folder: Any) -> None:
        """Writes a folder that ``from_pretrained`` and transformers load: config.json, weights, tokenizer, preprocessor_config.json.

        Parameters
        ----------
        folder : str or path-like
            Is made where it does not exist. A tokenizer of one's own is not written.
        """
        save(self.model, folder)
        path = os.fsdecode(folder)
        if isinstance(self.tokenizer, (Tokenizer, SiglipPieces)):
            self.tokenizer.save(path)
        write_json(os.path.join(path, "preprocessor_config.json"), self.preprocessor.values)


def _encodes_both(model: Any) -> bool:
    return hasattr(model, "of_texts") and hasattr(model, "of_images")


__all__ = ["ImageTextEncoder"]
