"""The Spanish post on the Transformer encoder (SensIO, March 2021): digits cut into patches, an MLP and an encoder that classify them.

Quirks of the post that its numbers depend on, and that are kept:

- ``MultiHeadAttention`` attends over features: its maps are 49 x 49, not 16 x 16, its scale 1 / sqrt(sequence length), and the heads
  are interleaved when they are joined. ``over="patches"`` is attention over the 16 patches.
- ``Model`` derives from ``MLP`` and unregisters what that made, so that an MLP's weights are drawn before its own.
- The position embedding starts as 0; ``tranformer`` is spelled so, in state dicts too.

The post downloads MNIST; here the data module is given its data (``datasets.load_mnist``, ``datasets.digits``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import functional as F
from .. import nn, optim
from .._arguments import count
from .._core import Tensor
from .._names import hooks
from .._recording import no_grad
from .._tensor import as_tensor, tensor, zeros
from ..data import DataLoader
from ..data import Dataset as _Dataset
from ..datasets import cut_patches
from ..random import randint
from ..training import TrainingModule

SIDE = 28  # pixels


class Dataset(_Dataset):
    """Images as rows of pixels, with their classes.

    Parameters
    ----------
    X : array_like, shape (N, pixels)
    y : array_like, shape (N,)
    """

    def __init__(self, X, y) -> None:
        self.X, self.y = np.asarray(X), np.asarray(y)
        if len(self.X) != len(self.y):
            raise ValueError(f"X has {len(self.X)} images and y {len(self.y)} labels; expected the same number")

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, ix: int) -> tuple[Tensor, Tensor]:
        return as_tensor(np.asarray(self.X[ix], np.float32)), tensor(np.int64(self.y[ix]))

    def __getitems__(self, indices) -> tuple[Tensor, Tensor]:
        return as_tensor(np.asarray(self.X[indices], np.float32)), as_tensor(np.asarray(self.y[indices], np.int64))


class AttnDataset(Dataset):
    """28 x 28 images as sequences of patches, row by row, with their classes.

    Parameters
    ----------
    X : array_like, shape (N, 784)
    y : array_like, shape (N,)
    patch_size : (int, int), default (7, 7)
        Height and width; pixels left over at the right and at the bottom are dropped.
    """

    def __init__(self, X, y, patch_size: tuple[int, int] = (7, 7)) -> None:
        super().__init__(X, y)
        self.patch_size = patch_size

    def _cut(self, images: Tensor) -> Tensor:
        return as_tensor(cut_patches(images.numpy().reshape(-1, SIDE, SIDE), self.patch_size))

    def __getitem__(self, ix: int) -> tuple[Tensor, Tensor]:
        image, label = super().__getitem__(ix)
        return self._cut(image)[0], label

    def __getitems__(self, indices) -> tuple[Tensor, Tensor]:
        images, labels = super().__getitems__(indices)
        return self._cut(images), labels


class MNISTDataModule:
    """Training and validation loaders of digits.

    Parameters
    ----------
    batch_size : int, default 64
    Dataset : callable
        Makes a dataset of images (N, 784), between 0 and 1, and classes.
    data : ((X, y), (X, y))
        Training and validation images, integers from 0 to 255 or floats from 0 to 1, and classes: what ``datasets.load_mnist`` and
        ``datasets.digits`` give. The post downloads them.

    Examples
    --------
    >>> import numpy as np
    >>> from transformer_c.tutorials import sensio
    >>> images, classes = np.zeros((100, 28, 28), np.uint8), np.zeros(100, int)
    >>> dm = sensio.MNISTDataModule(Dataset=sensio.AttnDataset, data=((images, classes), (images, classes)))
    >>> dm.setup()
    >>> imgs, labels = next(iter(dm.train_dataloader()))
    >>> imgs.shape, labels.shape
    ((64, 16, 49), (64,))
    """

    def __init__(self, batch_size: int = 64, Dataset: Any = Dataset, data: Any = None) -> None:
        self.batch_size, self.Dataset, self.data = batch_size, Dataset, data
        self.train_ds = self.val_ds = None

    def setup(self, stage: str | None = None) -> None:
        """Makes ``train_ds`` and ``val_ds``."""
        if self.data is None:
            raise ValueError(
                "MNISTDataModule needs its data, nothing is downloaded: pass data=tc.datasets.load_mnist(folder), or data=tc.datasets.digits()"
            )
        self.train_ds, self.val_ds = (self.Dataset(scaled(X), np.asarray(y).astype(np.int64)) for X, y in self.data)

    def _loader(self, name: str, shuffle: bool) -> DataLoader:
        if getattr(self, name) is None:
            self.setup()
        return DataLoader(getattr(self, name), batch_size=self.batch_size, shuffle=shuffle)

    def train_dataloader(self) -> DataLoader:
        """Shuffled batches of the training images."""
        return self._loader("train_ds", shuffle=True)

    def val_dataloader(self) -> DataLoader:
        """Batches of the validation images, in order."""
        return self._loader("val_ds", shuffle=False)


def scaled(X) -> np.ndarray:
    """Images as rows of float32; integers, 0 to 255, are divided by 255."""
    X = np.asarray(X)
    rows = X.reshape(len(X), -1)
    return (rows / 255.0 if rows.dtype.kind in "ui" else rows).astype(np.float32)


class MLP(TrainingModule):
    """784 pixels, a hidden layer of 784, 10 classes.

    Parameters
    ----------
    n_hidden : int, default 784
    lr : float, default 3e-4
        The post hard-codes 784 and 3e-4.

    Examples
    --------
    >>> import numpy as np
    >>> from transformer_c.tutorials import sensio
    >>> mlp = sensio.MLP()
    >>> mlp(np.zeros((64, 784), np.float32)).shape, sum(p.numel() for p in mlp.parameters())
    ((64, 10), 623290)
    """

    def __init__(self, *, n_hidden: int = 784, lr: float = 3e-4) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.mlp: nn.Module | None = nn.Sequential(nn.Linear(784, n_hidden), nn.ReLU(inplace=True), nn.Linear(n_hidden, 10))

    def forward(self, x):
        """x (B, 784) to logits (B, 10)."""
        return self.mlp(x)

    def predict(self, x):
        """The likeliest class of each image."""
        with no_grad():
            return self(x).argmax(axis=1)

    def compute_loss_and_acc(self, batch):
        """Cross-entropy of a batch (images, classes) and the fraction of images that are classified correctly."""
        x, y = batch
        y_hat = self(x)
        loss = F.cross_entropy(y_hat, y)
        acc = as_tensor(y_hat.argmax(axis=1) == y).sum().double() / y.shape[0]  # a Tensor, for which a GPU is not waited for
        return loss, acc

    def training_step(self, batch, batch_idx):
        """Logs "loss" and "acc", and returns the loss."""
        loss, acc = self.compute_loss_and_acc(batch)
        self.log("loss", loss)
        self.log("acc", acc, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        """Logs "val_loss" and "val_acc"."""
        loss, acc = self.compute_loss_and_acc(batch)
        self.log("val_loss", loss, prog_bar=True)
        self.log("val_acc", acc, prog_bar=True)

    def test_step(self, batch, batch_idx):
        """Logs "test_loss" and "test_acc"."""
        loss, acc = self.compute_loss_and_acc(batch)
        self.log("test_loss", loss)
        self.log("test_acc", acc)

    def configure_optimizers(self):
        """Adam."""
        return optim.Adam(self.parameters(), lr=self.hparams.lr)


class MultiHeadAttention(nn.Module):
    """Self-attention whose heads are as wide as the embedding, without mask and dropout.

    Parameters
    ----------
    n_embd : int
        F, features of input and output.
    n_heads : int
        H.
    over : {"features", "patches"}
        "features" is the post's: features attend to features, maps (B, H, F, F), scale 1 / sqrt(L), and heads adjacent only in
        memory. "patches": patches attend to patches, maps (B, H, L, L), scale 1 / sqrt(F). The parameters have the same shapes.

    Examples
    --------
    >>> import numpy as np
    >>> from transformer_c.tutorials import sensio
    >>> x = np.zeros((2, 16, 49), np.float32)  # (B, L, F)
    >>> for over in ("features", "patches"):
    ...     y, maps = sensio.MultiHeadAttention(49, 4, over=over)(x, return_attention=True)
    ...     print(y.shape, maps.shape)
    (2, 16, 49) (2, 4, 49, 49)
    (2, 16, 49) (2, 4, 16, 16)
    """

    _attention_map: ClassVar = {"return_attention": True}

    def __init__(self, n_embd: int, n_heads: int, over: str = "features") -> None:
        super().__init__()
        if over not in ("features", "patches"):
            raise ValueError(f"over must be 'features' or 'patches', got {over!r}")
        self.n_heads, self.over = count("n_heads", n_heads), over
        self.key = nn.Linear(n_embd, n_embd * n_heads)
        self.query = nn.Linear(n_embd, n_embd * n_heads)
        self.value = nn.Linear(n_embd, n_embd * n_heads)
        self.proj = nn.Linear(n_embd * n_heads, n_embd)

    def _heads(self, x: Tensor) -> Tensor:
        """(B, L, F H) to (B, H, F, L), the heads interleaved, or to (B, H, L, F), one after the other."""
        B, L, width = x.shape
        if self.over == "features":
            return x.view(B, L, width // self.n_heads, self.n_heads).transpose(1, 3)
        return x.view(B, L, self.n_heads, width // self.n_heads).transpose(1, 2)

    def forward(self, x, return_attention: bool = False):
        """Maps x (B, L, F) to the same shape, and also returns the attention on request."""
        B, L, F_ = x.shape
        q, k, v = self._heads(self.query(x)), self._heads(self.key(x)), self._heads(self.value(x))
        found = F.scaled_dot_product_attention(q, k, v, return_attention=return_attention)
        y = found[0] if return_attention else found
        # Over features this reads rows of (B, F, H, L) as if they were (B, L, H F), as the post does.
        y = self.proj(y.transpose(1, 2).contiguous().view(B, L, F_ * self.n_heads))
        return (y, found[1]) if return_attention else y

    def extra_repr(self) -> str:
        return f"over={self.over!r}"


class TransformerBlock(nn.Module):
    """Attention and a network four times as wide, each with a residual and then layer norm.

    Parameters
    ----------
    n_embd, n_heads, over
        As for MultiHeadAttention.
    """

    def __init__(self, n_embd: int, n_heads: int, over: str = "features") -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(n_embd)
        self.ln2 = nn.LayerNorm(n_embd)
        self.attn = MultiHeadAttention(n_embd, n_heads, over)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.ReLU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        """x (B, L, n_embd) to the same shape."""
        x = self.ln1(x + self.attn(x))
        return self.ln2(x + self.mlp(x))


class Model(MLP):
    """The encoder: embedded patches, learned positions, blocks, then all patches together to 10 classes.

    Parameters
    ----------
    n_input : int, default 49
        Pixels of a patch.
    n_embd : int, default 49
    seq_len : int, default 16
        Patches of an image.
    n_heads : int, default 16
    n_layers : int, default 1
    over : {"features", "patches"}
        As for MultiHeadAttention.
    lr : float, default 3e-4

    Examples
    --------
    >>> from transformer_c.tutorials import sensio
    >>> model = sensio.Model(n_layers=3)
    >>> {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    {'inp_emb': 2450, 'tranformer': 527142, 'fc': 7850}
    """

    def __init__(
        self,
        n_input: int = 7 * 7,
        n_embd: int = 7 * 7,
        seq_len: int = 4 * 4,
        n_heads: int = 4 * 4,
        n_layers: int = 1,
        over: str = "features",
        *,
        lr: float = 3e-4,
    ) -> None:
        super().__init__(lr=lr)
        del self.hparams.n_hidden  # only the MLP has this argument
        self.mlp = None
        self.pos_emb = nn.Parameter(zeros(1, seq_len, n_embd))
        self.inp_emb = nn.Linear(n_input, n_embd)
        self.tranformer = nn.Sequential(*[TransformerBlock(n_embd, n_heads, over) for _ in range(n_layers)])
        self.fc = nn.Linear(n_embd * seq_len, 10)

    def forward(self, x):
        """x (B, seq_len, n_input) to logits (B, 10)."""
        y = self.tranformer(self.inp_emb(x) + self.pos_emb)
        return self.fc(y.reshape(y.size(0), -1))

    def attention_maps(self, x) -> list:
        """The attention of every block, without gradient; shapes as for MultiHeadAttention."""
        with no_grad():
            x = self.inp_emb(x) + self.pos_emb
            maps = []
            for block in self.tranformer:
                maps.append(block.attn(x, return_attention=True)[1])
                x = block(x)
        return maps


# ---- figures ---------------------------------------------------------------------------------------------------------------------------


def plot_digits(imgs, labels, preds=None, n_rows: int = 8):
    """Images with their classes above them, or "class/prediction" in green where that is right and red where it is not; gives the Figure.

    Parameters
    ----------
    imgs : array_like, shape (N, 784) or (N, 16, 49)
    labels : array_like, shape (N,)
    preds : array_like, shape (N,), optional
    n_rows : int, default 8
        Rows, of as many images.
    """
    from ..plot._figures import RIGHT, WRONG, new_figure, text_colour

    images, labels = _whole_images(np.asarray(imgs)), np.asarray(labels)
    figure = new_figure(n_rows * 1.0, n_rows * 1.2)
    for i, ax in enumerate(figure.subplots(n_rows, n_rows, squeeze=False).ravel()):
        ax.axis("off")
        if i < len(images):
            ax.imshow(images[i], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            if preds is None:
                ax.set_title(str(labels[i]), fontsize=9, color=text_colour())
            else:
                predicted = int(np.asarray(preds)[i])
                ax.set_title(f"{labels[i]}/{predicted}", fontsize=9, color=RIGHT if predicted == labels[i] else WRONG)
    return figure


def _whole_images(x: np.ndarray) -> np.ndarray:
    """Rows of pixels, or patches of 7 x 7, as (N, 28, 28)."""
    if x.ndim == 3:
        x = x.reshape(-1, 4, 4, 7, 7).swapaxes(2, 3)
    return x.reshape(-1, SIDE, SIDE)


def plot_prediction(model: MLP, imgs, labels, ix: int | None = None):
    """The patches of one image, under "class / prediction" in green or red; gives the Figure.

    Parameters
    ----------
    model : Model
    imgs, labels : array_like
        A batch, (N, 16, 49) and (N,).
    ix : int, optional
        Which image; a random one of the batch by default. (The post draws from one more than there are.)
    """
    from ..plot import patches

    ix = int(randint(len(labels), size=(1,))) if ix is None else ix
    label, predicted = int(labels[ix]), int(model.predict(imgs[ix : ix + 1])[0])
    return patches(np.asarray(imgs[ix]), title=f"{label} / {predicted}", correct=label == predicted)


__all__ = [
    "MLP",
    "AttnDataset",
    "Dataset",
    "MNISTDataModule",
    "Model",
    "MultiHeadAttention",
    "TransformerBlock",
    "plot_digits",
    "plot_prediction",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
