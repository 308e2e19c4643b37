"""Small stand-ins for what the documents download or import from elsewhere: torchvision with CIFAR100 and a network, MNIST, seaborn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import transformer_c as tc

CLASSES, TRAIN, TEST = 6, 90, 12  # the set-anomaly task takes nine images of a class, from the tenth that validates too
NOISE = 25.0  # so much that the model makes mistakes, which the last cells of 000 look at


class CIFAR100(tc.data.Dataset):
    """Images (3, 32, 32) of a few classes, each a pattern of its own in much noise."""

    def __init__(self, root: str, train: bool, transform: Any, download: bool) -> None:
        rng = np.random.default_rng(0)
        patterns = rng.normal(size=(CLASSES, 3, 32, 32))
        each = TRAIN if train else TEST
        self.targets = np.repeat(np.arange(CLASSES), each).tolist()
        noise = np.random.default_rng(1 + train).normal(size=(len(self.targets), 3, 32, 32))
        self.images = tc.tensor((patterns[self.targets] + NOISE * noise).astype(np.float32))

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: Any) -> tuple[tc.Tensor, int]:
        return self.images[int(index)], self.targets[int(index)]


class Network(tc.nn.Module):
    """512 random features of an image, instead of a trained network's."""

    def __init__(self) -> None:
        super().__init__()
        tc.manual_seed(0)
        self.body = tc.nn.Linear(3 * 32 * 32, 512)
        self.fc = self.classifier = tc.nn.Linear(1, 1)

    def forward(self, images: tc.Tensor) -> tc.Tensor:
        return tc.F.relu(self.body(images.reshape(len(images), -1)))


def make_grid(images: tc.Tensor, nrow: int, normalize: bool, pad_value: float, padding: int) -> tc.Tensor:
    """The images in rows of `nrow`, from 0 to 1."""
    n, channels, height, width = images.shape
    grid = (
        images.reshape(n // nrow, nrow, channels, height, width).permute(2, 0, 3, 1, 4).reshape(channels, n // nrow * height, nrow * width)
    )
    low, high = grid.min(), grid.max()
    return (grid - low) / (high - low)


def nothing(*arguments: Any, **options: Any) -> None:
    """Takes anything."""


transforms = SimpleNamespace(Compose=nothing, Resize=nothing, ToTensor=nothing, Normalize=nothing)
torchvision = SimpleNamespace(models=SimpleNamespace(resnet34=lambda pretrained: Network()), utils=SimpleNamespace(make_grid=make_grid))
seaborn = SimpleNamespace(reset_orig=nothing, set_theme=nothing, set=nothing)


class Divided:
    """Rows that the document takes as [:60000] and [60000:]: a few for training, fewer for validation."""

    def __init__(self, rows: np.ndarray, at: int) -> None:
        self._rows, self._at = rows, at

    def __getitem__(self, part: slice) -> np.ndarray:
        return self._rows[: self._at] if part.start is None else self._rows[self._at :]


def fetch_openml(name: str, version: int) -> dict[str, Divided]:
    """Images of 28 x 28 in ten classes, each a pattern of its own with noise."""
    rng = np.random.default_rng(0)
    target = rng.integers(0, 10, 800)
    images = rng.uniform(0, 255, (10, 784))[target] * 0.5 + rng.uniform(0, 127, (800, 784))
    return {"data": Divided(images, 640), "target": Divided(target.astype(str), 640)}
