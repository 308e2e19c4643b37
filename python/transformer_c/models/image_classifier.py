"""Images into classes, into several labels each, or into numbers."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numpy as np

from .._arguments import count
from .._evaluating import evaluating
from .._names import explained
from ..checkpoint import CheckpointError
from .classifier import OPTIONS
from .folder import naming, preprocessing, write_json
from .images import checked, preprocessor_of
from .texts import Bar, parts
from .whole_classifier import WholeClassifier


class ImageClassifier(WholeClassifier):
    """Sorts images into classes, with a pretrained encoder; or says which of several labels each has, or predicts numbers.

    Images are arrays of uint8 (height, width, 3), red, green and blue, of any sizes, or Pillow's (``PIL.Image.open(path)``). They are resized,
    cropped and normalised as preprocessor_config.json says.

    Parameters
    ----------
    model : str, path-like or Module
        A folder of transformers', or a model of ``tc.models``, which is not changed; what is frozen in it (``requires_grad_(False)``) is not
        trained. Where it has a head for images, ``predict`` works without a ``fit``.
    num_labels, problem_type, dtype, mmap, learning_rate, epochs, batch_size, warmup, weight_decay, max_norm, random_state, progress
        As for ``TextClassifier``.
    preprocessor : mapping, optional
        Contents of preprocessor_config.json, instead of the folder's.

    Attributes
    ----------
    classes_, problem_type_, model_, history_
        As for ``TextClassifier``.
    preprocessor_ : callable
        ``preprocessor_(image)`` gives the pixels (3, height, width) of an image.

    Notes
    -----
    An image has the same probabilities to the bit in any batch. Pixels and probabilities are those of transformers; images are resized by Pillow, as
    by its image processors without torchvision. A fit sees each image as ``predict`` does, without random changes.

    Examples
    --------
    With a new model:

    >>> import numpy as np, transformer_c as tc
    >>> _ = tc.manual_seed(0)
    >>> model = tc.models.create({"model_type": "vit", "image_size": 8, "patch_size": 4, "hidden_size": 16, "num_hidden_layers": 1,
    ...                           "num_attention_heads": 2, "intermediate_size": 32})
    >>> classifier = tc.models.ImageClassifier(model, preprocessor={"do_resize": False}, epochs=15, learning_rate=0.01, random_state=0)
    >>> bright, dark = (np.full((8, 8, 3), value, np.uint8) for value in (220, 30))
    >>> images, labels = [bright, dark, bright // 2 + 100, dark // 2] * 4, ["day", "night"] * 8
    >>> classifier.fit(images, labels).predict([dark + 5])
    array(['night'], dtype='<U5')
    >>> classifier.predict_proba([bright, dark]).shape, classifier.score(images, labels)
    ((2, 2), 1.0)
    """

    task = "image-classification"
    _what = "image"
    _instead: ClassVar[dict[str, str]] = {
        **WholeClassifier._instead,
        **dict.fromkeys(("transform", "encode"), "tc.models.load(folder)(pixels), the states of an encoder of images"),
    }

    @explained(
        {
            **OPTIONS,
            **dict.fromkeys(("image_processor", "feature_extractor", "processor"), "preprocessor={...}, as in preprocessor_config.json"),
        }
    )
    def __init__(
        self,
        model: Any,
        num_labels: int | None = None,
        *,
        problem_type: str | None = None,
        preprocessor: Any = None,
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
        self.preprocessor = preprocessor
        super().__init__(
            model,
            num_labels,
            problem_type=problem_type,
            dtype=dtype,
            mmap=mmap,
            learning_rate=learning_rate,
            epochs=epochs,
            batch_size=batch_size,
            warmup=warmup,
            weight_decay=weight_decay,
            max_norm=max_norm,
            random_state=random_state,
            progress=progress,
        )

    def top(self, images: Any, k: int = 5, *, batch_size: int = 32) -> list[list[tuple[Any, float]]]:
        """The likeliest labels of each image, the likeliest first, with their probabilities.

        Parameters
        ----------
        images : sequence
        k : int, default 5
            How many; all where there are fewer.
        batch_size : int, default 32

        Returns
        -------
        list of list of (label, float)

        Examples
        --------
        After those of ``ImageClassifier``, ``classifier.top([bright], k=1)`` is ``[[("day", 0.9)]]`` or so.
        """
        k, rows = count("k", k), self.predict_proba(images, batch_size=batch_size)
        return [[(self.classes_[i].item(), float(row[i])) for i in np.argsort(-row, kind="stable")[:k]] for row in rows]

    def _checked(self, X: Any) -> list[Any]:
        return checked(X)

    def _prepare(self, encoder: Any) -> None:
        path, values = self._pretrained.path, self.preprocessor
        if values is None and path is not None:
            values = preprocessing(path, "image_processor")
            if not values:
                raise CheckpointError(f"{path!r} has no preprocessor_config.json; preprocessor={{...}} gives its contents")
        with naming(path):
            self.preprocessor_ = preprocessor_of(encoder, values)

    def _reading(self) -> str:
        return repr(self.preprocessor_)

    def _save(self, path: str) -> None:
        write_json(os.path.join(path, "preprocessor_config.json"), self.preprocessor_.values)

    def _samples(self, texts: list[Any]) -> list[Any]:
        return list(enumerate(texts))  # (number, image): pixels would take much more memory

    @staticmethod
    def _lengths(samples: list[Any]) -> None:
        return None

    def _arguments(self, model: Any, samples: list[Any]) -> dict[str, np.ndarray]:
        return {"pixels": self._pixels(samples)}

    def _pixels(self, samples: list[Any]) -> np.ndarray:
        numbers, images = zip(*samples, strict=True) if samples else ((), ())
        return self.preprocessor_.stacked(images, numbers)

    def _scores(self, model: Any, samples: list[Any], size: int, progress: bool = False) -> list[np.ndarray]:
        found: list[np.ndarray] = []
        with evaluating(model), Bar(len(samples), progress, "classifying", "image") as bar:
            for rows in parts(np.arange(len(samples)), size):
                found += list(np.asarray(model(self._pixels([samples[i] for i in rows]))).astype(np.float32, copy=False))
                bar.update(len(rows))
        return found


__all__ = ["ImageClassifier"]
