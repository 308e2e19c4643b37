"""digits: the Spanish post's MLP and encoder, on scikit-learn's digits or on MNIST's files."""

from __future__ import annotations

import io
import os
import zipfile
from typing import Any, ClassVar

import numpy as np

from ...checkpoint.errors import CheckpointError, parsing
from ...checkpoint.files import open_regular
from ...datasets import cut_patches, digits, load_mnist
from ...functional import softmax
from ...tutorials import sensio
from ..options import CommandError, Option, UsageError, above_zero, choice, positive, small_seed, up_to
from .base import Prediction, Predictor, Task, floats, layers, one_input, read_array, running_options

ENCODERS = ("features", "patches")
MNIST = Option(os.path.abspath, None, "the folder of MNIST's four files, plain or .gz (default: scikit-learn's digits)", "FOLDER")


def _data(folder: str | None, split_seed: int) -> Any:
    """((images, classes), (images, classes)) for training and validation."""
    if folder is None:
        try:
            return digits(seed=split_seed)
        except ImportError as error:
            raise CommandError(f"{error}; or pass --mnist FOLDER") from error
    data = load_mnist(folder)
    for images, _ in data:
        if images.shape[1:] != (sensio.SIDE, sensio.SIDE) or not len(images):
            raise CommandError(f"the images in {folder} have shape {images.shape}; expected (N, {sensio.SIDE}, {sensio.SIDE})")
    return data


class Classes(Predictor):
    """The class of each image, and its probability."""

    kind: type[sensio.MLP] = sensio.MLP
    takes = "numbers of validation images, or an .npy or .npz file of images (N, 28, 28), integers to 255 or floats to 1"
    options: ClassVar[dict[str, Option]] = {
        "mnist": MNIST,
        "split_seed": Option(small_seed, None, "of scikit-learn's digits, where the training had another than 0"),
    }

    def sizes(self, state):
        """See Predictor."""
        return {"n_hidden": state["mlp.0.weight"].shape[0]}

    def least(self, sizes):
        """See Predictor."""
        return (sensio.SIDE**2 + 10) * sizes["n_hidden"]

    def arranged(self, model: Any, images: np.ndarray) -> np.ndarray:
        """Converts images (N, 784), from 0 to 1, to the model's input."""
        return images

    def predict(self, model, options):
        """See Predictor."""
        if all(text.isdecimal() for text in options.input):
            numbers = [int(text) for text in options.input]
            images, truth = _chosen(numbers, options)
        else:
            if options.mnist or options.split_seed is not None:
                raise UsageError("--mnist and --split-seed are for numbers of images; INPUT is a file")
            images, truth = _read_images(one_input(options, "an .npy or .npz file, or numbers of images")), None
            numbers = list(range(len(images)))
        rows = self.arranged(model, sensio.scaled(images))
        shares = [softmax(np.asarray(model(rows[i : i + 256])), axis=-1) for i in range(0, len(rows), 256)]
        p = np.concatenate(shares) if shares else np.zeros((0, 10), np.float32)
        found = p.argmax(-1)
        lines = (
            f"{number}: {c}  {100 * p[i, c]:.2f} %" + ("" if truth is None else f"  (it is a {truth[i]})")
            for i, (number, c) in enumerate(zip(numbers, found, strict=True))
        )
        return Prediction(found, lines)


class EncoderClasses(Classes):
    """The same for the encoder, which takes patches."""

    kind = sensio.Model

    def sizes(self, state):
        """See Predictor."""
        n_embd, n_input = state["inp_emb.weight"].shape
        return {
            "n_input": n_input,
            "n_embd": n_embd,
            "seq_len": state["pos_emb"].shape[1],
            "n_heads": state["tranformer.0.attn.key.weight"].shape[0] // n_embd,
            "n_layers": layers(state, "tranformer."),
        }

    def least(self, sizes):
        """See Predictor. A block has four squares per head, and 4 + 4 in its network; the last layer has ten rows of all patches."""
        width = sizes["n_embd"]
        return width * (sizes["n_input"] + 11 * sizes["seq_len"] + sizes["n_layers"] * (4 * sizes["n_heads"] + 8) * width)

    def arranged(self, model, images):
        """See Classes."""
        side = round(model.hparams.n_input**0.5)
        patches = cut_patches(images.reshape(-1, sensio.SIDE, sensio.SIDE), (side, side))
        if patches.shape[1:] != (model.hparams.seq_len, model.hparams.n_input):
            raise CommandError(
                f"the model takes {model.hparams.seq_len} patches of {model.hparams.n_input} pixels; an image has {patches.shape[1]} of {patches.shape[2]}"
            )
        return patches


def _chosen(numbers: list[int], options) -> tuple[np.ndarray, np.ndarray]:
    images, classes = _data(options.mnist, options.split_seed or 0)[1]
    if max(numbers) >= len(images):
        raise CommandError(f"there is no image {max(numbers)}: the validation images have the numbers 0 to {len(images) - 1}")
    return images[numbers], classes[numbers]


def _read_images(path: str) -> np.ndarray:
    """(N, 28, 28) or rows of 784 pixels."""
    file, size = open_regular(path)
    with file:
        is_zip = zipfile.is_zipfile(file)
        file.seek(0)
        images = _only_array(path, file.read(size)) if is_zip else read_array(path)
    images = images[None] if images.shape == (sensio.SIDE, sensio.SIDE) else images
    if images.shape[1:] not in ((sensio.SIDE, sensio.SIDE), (sensio.SIDE**2,)):
        raise CommandError(f"{path} has shape {images.shape}; expected images ({sensio.SIDE}, {sensio.SIDE}), or a batch of them")
    if images.dtype.kind == "f" and images.size and not (images.min() >= 0 and images.max() <= 1):
        raise CommandError(f"{path} has values from {images.min()} to {images.max()}; expected floats from 0 to 1, or integers to 255")
    if images.dtype.kind in "iu" and images.size and not (images.min() >= 0 and images.max() <= 255):
        raise CommandError(f"{path} has values from {images.min()} to {images.max()}; expected integers from 0 to 255, or floats to 1")
    return images if images.dtype.kind in "iu" else floats(images)


def _only_array(path: str, data: bytes) -> np.ndarray:
    with parsing(f"{path} is not an .npz file of arrays"), np.load(io.BytesIO(data), allow_pickle=False) as held:
        names = held.files
        if len(names) != 1 and "images" not in names:
            raise CheckpointError(f"{path} has the arrays {', '.join(names) or '(none)'}; expected one, or one that is called images")
        return held["images" if "images" in names else names[0]]


class Digits(Task):
    """Classifies images of digits, whole or cut into patches."""

    name = "digits"
    title = "Digits"
    help = "classify digits, with an MLP or with an encoder over patches"
    description = (
        "Trains the post's MLP, or its encoder with attention over features (as there) or over patches, to classify images of digits."
    )
    example = "0 1 2"
    predictors = (Classes(), EncoderClasses())
    options: ClassVar[dict[str, Option]] = {
        "model": Option(choice("mlp", *ENCODERS), "features", "the MLP, or the encoder by what attends to what", "mlp|features|patches"),
        "epochs": Option(positive, None, "passes over the training data", by_model={"mlp": 40, "features": 20, "patches": 20}),
        "batch_size": Option(positive, 64, "images in a batch"),
        "lr": Option(above_zero, 3e-4, "learning rate", "X"),
        "n_hidden": Option(positive, None, "width of the hidden layer", by_model={"mlp": 784}),
        "patch_size": Option(up_to(sensio.SIDE), None, "pixels of a patch's side", by_model=dict.fromkeys(ENCODERS, 7)),
        "n_embd": Option(positive, None, "features inside the encoder, and of each head", by_model=dict.fromkeys(ENCODERS, 49)),
        "n_heads": Option(positive, None, "attention heads", by_model=dict.fromkeys(ENCODERS, 16)),
        "n_layers": Option(positive, None, "encoder blocks", by_model=dict.fromkeys(ENCODERS, 3)),
        "mnist": MNIST,
        "split_seed": Option(small_seed, 0, "seed by which scikit-learn's digits are split"),
        **running_options(),
    }

    def loaders(self, hp):
        """The validation data are the post's test data; there are no other images."""
        dataset = sensio.Dataset if hp.model == "mlp" else self._patches(hp.patch_size)
        dm = sensio.MNISTDataModule(hp.batch_size, dataset, data=_data(hp.mnist, hp.split_seed))
        return dm.train_dataloader(), dm.val_dataloader(), None

    @staticmethod
    def _patches(side: int) -> Any:
        return lambda X, y: sensio.AttnDataset(X, y, patch_size=(side, side))

    def model(self, hp, train):
        """See Task."""
        if hp.model == "mlp":
            return sensio.MLP(n_hidden=hp.n_hidden, lr=hp.lr)
        return sensio.Model(
            n_input=hp.patch_size**2, n_embd=hp.n_embd, seq_len=(sensio.SIDE // hp.patch_size) ** 2, n_heads=hp.n_heads,
            n_layers=hp.n_layers, over=hp.model, lr=hp.lr,
        )  # fmt: skip


TASK = Digits()
