"""The encoder-decoder Transformer on corners of squares (after Godoy's Deep Learning with PyTorch Step-by-Step, chapter 10).

From two corners of a square the model predicts the other two. Quirks of the document that its numbers depend on, and that are kept:

- ``MultiHeadedAttention`` keeps the projected keys and values of the last ``init_keys``, and ``alphas`` after dropout.
- ``PositionalEncoding(max_len, d_model)`` takes its arguments in the opposite order to ``tc.PositionalEncoding``, multiplies its input
  by sqrt(d_model) before it adds the encoding, and its table is in state dicts.
- The layers normalise first; the encoder and the decoder once more at their ends.
- The document's validation data are made of the training points (``full_test`` from ``points``); ``loaders`` does so, too.
- ``StepByStep.train`` seeds again, with 42, whatever was seeded before.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import functional as F
from .. import nn, optim
from .._core import Tensor
from .._joining import cat, matmul, triu
from .._names import hooks
from .._recording import no_grad
from .._tensor import as_tensor, ones
from ..checkpoint import load_mapping, save
from ..data import DataLoader, TensorDataset
from ..datasets import square_sequences
from ..encoder import PositionalEncoding as _PositionalEncoding
from ..random import manual_seed
from ..training import TrainingModule


class PositionalEncoding(_PositionalEncoding):
    """x sqrt(d_model) plus sines and cosines of the position.

    Parameters
    ----------
    max_len : int
        The longest sequence.
    d_model : int
        Features of the input.

    Attributes
    ----------
    pe : Tensor, shape (1, max_len, d_model)
        In the state dict.
    """

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__(d_model, max_len)
        self.d_model = d_model
        self.register_buffer("pe", self.pe)

    def forward(self, x):
        """x (N, L, d_model) to the same shape."""
        return super().forward(x * math.sqrt(self.d_model))


class MultiHeadedAttention(nn.Module):
    """Attention in two steps: ``init_keys`` with the keys' sequence, then a call with the queries.

    Parameters
    ----------
    n_heads : int
    d_model : int
        Features of input and output; a multiple of `n_heads`.
    dropout : float, default 0.1
        Of the attention.

    Attributes
    ----------
    alphas : Tensor, shape (N, n_heads, L, S), or None
        The attention of the last call, after dropout, so that in train mode its rows do not add up to 1.

    Examples
    --------
    >>> import transformer_c as tc
    >>> from transformer_c.tutorials import godoy
    >>> dummy_points = tc.randn(16, 2, 4)  # (N, L, F)
    >>> mha = godoy.MultiHeadedAttention(n_heads=2, d_model=4, dropout=0.0)
    >>> mha.init_keys(dummy_points)
    >>> mha(dummy_points).shape
    (16, 2, 4)
    """

    _attention_map = "alphas"

    def __init__(self, n_heads: int, d_model: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.d_model = d_model
        self.d_k = int(d_model / n_heads)
        self.linear_query = nn.Linear(d_model, d_model)
        self.linear_key = nn.Linear(d_model, d_model)
        self.linear_value = nn.Linear(d_model, d_model)
        self.linear_out = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(p=dropout)
        self.alphas = None

    def make_chunks(self, x: Tensor) -> Tensor:
        """(N, L, d_model) to (N, n_heads, L, d_k)."""
        return x.view(x.size(0), x.size(1), self.n_heads, self.d_k).transpose(1, 2)

    def init_keys(self, key) -> None:
        """Projects keys and values, (N, S, d_model), and keeps them."""
        self.proj_key = self.make_chunks(self.linear_key(as_tensor(key)))
        self.proj_value = self.make_chunks(self.linear_value(as_tensor(key)))

    def score_function(self, query: Tensor) -> Tensor:
        """Scaled dot products, (N, n_heads, L, S)."""
        proj_query = self.make_chunks(self.linear_query(query))
        return matmul(proj_query, self.proj_key.transpose(-2, -1)) / math.sqrt(self.d_k)

    def attn(self, query: Tensor, mask=None) -> Tensor:
        """The values that the queries attend to, (N, n_heads, L, d_k)."""
        scores = self.score_function(query)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        alphas = self.dropout(F.softmax(scores, dim=-1))
        self.alphas = alphas.detach()
        return matmul(alphas, self.proj_value)

    def output_function(self, contexts: Tensor) -> Tensor:
        """The last projection."""
        return self.linear_out(contexts)

    def forward(self, query, mask=None):
        """query (N, L, d_model) to the same shape; `mask`, (N or 1, L or 1, S), is 0 where a key may not be attended to."""
        if mask is not None:
            mask = mask.unsqueeze(1)
        context = self.attn(query, mask=mask).transpose(1, 2).contiguous()
        return self.output_function(context.view(query.size(0), -1, self.d_model))


def _feed_forward(d_model: int, ff_units: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(nn.Linear(d_model, ff_units), nn.ReLU(), nn.Dropout(dropout), nn.Linear(ff_units, d_model))


class EncoderLayer(nn.Module):
    """Self-attention and a two-layer network, each after a layer norm and inside a residual connection.

    Parameters
    ----------
    n_heads, d_model : int
    ff_units : int
        Width of the hidden layer.
    dropout : float, default 0.1
    """

    def __init__(self, n_heads: int, d_model: int, ff_units: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.n_heads, self.d_model, self.ff_units = n_heads, d_model, ff_units
        self.self_attn_heads = MultiHeadedAttention(n_heads, d_model, dropout=dropout)
        self.ffn = _feed_forward(d_model, ff_units, dropout)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.drop1 = nn.Dropout(dropout)
        self.drop2 = nn.Dropout(dropout)

    def forward(self, query, mask=None):
        """query (N, L, d_model) to the same shape; `mask` as for MultiHeadedAttention."""
        normed = self.norm1(query)
        self.self_attn_heads.init_keys(normed)
        att = query + self.drop1(self.self_attn_heads(normed, mask))
        return att + self.drop2(self.ffn(self.norm2(att)))


class DecoderLayer(nn.Module):
    """As EncoderLayer, with attention to the encoder's states between self-attention and network."""

    def __init__(self, n_heads: int, d_model: int, ff_units: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.n_heads, self.d_model, self.ff_units = n_heads, d_model, ff_units
        self.self_attn_heads = MultiHeadedAttention(n_heads, d_model, dropout=dropout)
        self.cross_attn_heads = MultiHeadedAttention(n_heads, d_model, dropout=dropout)
        self.ffn = _feed_forward(d_model, ff_units, dropout)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.norm3 = nn.LayerNorm(d_model)
        self.drop1 = nn.Dropout(dropout)
        self.drop2 = nn.Dropout(dropout)
        self.drop3 = nn.Dropout(dropout)

    def init_keys(self, states) -> None:
        """Sets the encoder's states for the attention to them."""
        self.cross_attn_heads.init_keys(states)

    def forward(self, query, source_mask=None, target_mask=None):
        """query (N, L, d_model) to the same shape; the masks as for MultiHeadedAttention."""
        normed = self.norm1(query)
        self.self_attn_heads.init_keys(normed)
        att1 = query + self.drop1(self.self_attn_heads(normed, target_mask))
        att2 = att1 + self.drop2(self.cross_attn_heads(self.norm2(att1), source_mask))
        return att2 + self.drop3(self.ffn(self.norm3(att2)))


class EncoderTransf(nn.Module):
    """Positions, `n_layers` copies of a layer, a last layer norm.

    Parameters
    ----------
    encoder_layer : EncoderLayer
        Copied, weights included.
    n_layers : int, default 1
    max_len : int, default 100
    """

    def __init__(self, encoder_layer: EncoderLayer, n_layers: int = 1, max_len: int = 100) -> None:
        super().__init__()
        self.d_model = encoder_layer.d_model
        self.pe = PositionalEncoding(max_len, self.d_model)
        self.norm = nn.LayerNorm(self.d_model)
        self.layers = nn.ModuleList([copy.deepcopy(encoder_layer) for _ in range(n_layers)])

    def forward(self, query, mask=None):
        """query (N, L, d_model) to the same shape."""
        x = self.pe(query)
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class DecoderTransf(nn.Module):
    """As EncoderTransf, of DecoderLayers."""

    def __init__(self, decoder_layer: DecoderLayer, n_layers: int = 1, max_len: int = 100) -> None:
        super().__init__()
        self.d_model = decoder_layer.d_model
        self.pe = PositionalEncoding(max_len, self.d_model)
        self.norm = nn.LayerNorm(self.d_model)
        self.layers = nn.ModuleList([copy.deepcopy(decoder_layer) for _ in range(n_layers)])

    def init_keys(self, states) -> None:
        """Sets the encoder's states for every layer."""
        for layer in self.layers:
            layer.init_keys(states)

    def forward(self, query, source_mask=None, target_mask=None):
        """query (N, L, d_model) to the same shape."""
        x = self.pe(query)
        for layer in self.layers:
            x = layer(x, source_mask, target_mask)
        return self.norm(x)


class EncoderDecoderSelfAttn(nn.Module):
    """Encodes the beginning of a sequence and decodes its end.

    In train mode the decoder is given the true sequence, one step late; in eval mode its own predictions, one after the other.

    Parameters
    ----------
    encoder, decoder : Module
    input_len, target_len : int
        Steps of the beginning and of the end.
    """

    def __init__(self, encoder, decoder, input_len: int, target_len: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.input_len = input_len
        self.target_len = target_len
        self.trg_masks = self.subsequent_mask(self.target_len)

    @staticmethod
    def subsequent_mask(size: int) -> Tensor:
        """(1, size, size), 1 where a step may attend: to itself and earlier steps."""
        return 1 - triu(ones(1, size, size), diagonal=1)

    def encode(self, source_seq, source_mask) -> None:
        """Gives the encoder's states to the decoder."""
        self.decoder.init_keys(self.encoder(source_seq, source_mask))

    def decode(self, shifted_target_seq, source_mask=None, target_mask=None):
        """The decoder's outputs."""
        return self.decoder(shifted_target_seq, source_mask=source_mask, target_mask=target_mask)

    def predict(self, source_seq, source_mask):
        """`target_len` steps, each from those before."""
        inputs = source_seq[:, -1:]
        for i in range(self.target_len):
            out = self.decode(inputs, source_mask, self.trg_masks[:, : i + 1, : i + 1])
            inputs = cat([inputs, out[:, -1:, :]], dim=-2).detach()
        return inputs[:, 1:, :]

    def forward(self, X, source_mask=None):
        """X (N, input_len + target_len, features), of which eval mode uses the first `input_len` steps, to (N, target_len, features)."""
        self.trg_masks = self.trg_masks.to(X.device).bool()
        source_seq = X[:, : self.input_len, :]
        self.encode(source_seq, source_mask)
        if self.training:
            return self.decode(X[:, self.input_len - 1 : -1, :], source_mask, self.trg_masks)
        return self.predict(source_seq, source_mask)


class EncoderDecoderTransf(EncoderDecoderSelfAttn):
    """The whole Transformer: features projected to the model's width and back.

    Parameters
    ----------
    encoder : EncoderTransf
    decoder : DecoderTransf
    input_len, target_len : int
    n_features : int

    Examples
    --------
    >>> import transformer_c as tc
    >>> from transformer_c.tutorials import godoy
    >>> encoder = godoy.EncoderTransf(godoy.EncoderLayer(n_heads=3, d_model=6, ff_units=10), n_layers=2)
    >>> decoder = godoy.DecoderTransf(godoy.DecoderLayer(n_heads=3, d_model=6, ff_units=10), n_layers=2)
    >>> model = godoy.EncoderDecoderTransf(encoder, decoder, input_len=2, target_len=2, n_features=2)
    >>> sum(p.numel() for p in model.parameters())
    1728
    >>> model.eval()(tc.zeros(16, 2, 2)).shape
    (16, 2, 2)
    """

    def __init__(self, encoder, decoder, input_len: int, target_len: int, n_features: int) -> None:
        super().__init__(encoder, decoder, input_len, target_len)
        self.n_features = n_features
        self.proj = nn.Linear(n_features, encoder.d_model)
        self.linear = nn.Linear(encoder.d_model, n_features)

    def encode(self, source_seq, source_mask=None) -> None:
        """Projects, then as EncoderDecoderSelfAttn."""
        super().encode(self.proj(source_seq), source_mask)

    def decode(self, shifted_target_seq, source_mask=None, target_mask=None):
        """Projects, decodes, projects back."""
        return self.linear(super().decode(self.proj(shifted_target_seq), source_mask, target_mask))


class TransformerModel(nn.Module):
    """The same task around ``nn.Transformer``: projection, positions and layer norm before it, projection after it.

    Parameters
    ----------
    transformer : nn.Transformer
        With ``batch_first=False``.
    input_len, target_len, n_features : int

    Notes
    -----
    As in the document, a source mask (N, input_len), True = ignore, hides steps from the encoder only; the decoder attends to the
    encoder's states of all steps.
    """

    def __init__(self, transformer, input_len: int, target_len: int, n_features: int) -> None:
        super().__init__()
        self.transf = transformer
        self.input_len = input_len
        self.target_len = target_len
        self.trg_masks = self.transf.generate_square_subsequent_mask(self.target_len)
        self.n_features = n_features
        self.proj = nn.Linear(n_features, self.transf.d_model)
        self.linear = nn.Linear(self.transf.d_model, n_features)
        self.pe = PositionalEncoding(max(input_len, target_len), self.transf.d_model)
        self.norm = nn.LayerNorm(self.transf.d_model)

    def preprocess(self, seq):
        """(N, L, n_features) to (N, L, d_model)."""
        return self.norm(self.pe(self.proj(seq)))

    def encode_decode(self, source, target, source_mask=None, target_mask=None):
        """The outputs for a target that is one step late, (N, L, n_features)."""
        src = self.preprocess(source).permute(1, 0, 2)
        tgt = self.preprocess(target).permute(1, 0, 2)
        out = self.transf(src, tgt, src_key_padding_mask=source_mask, tgt_mask=target_mask)
        return self.linear(out.permute(1, 0, 2))

    def predict(self, source_seq, source_mask=None):
        """`target_len` steps, each from those before."""
        inputs = source_seq[:, -1:]
        for i in range(self.target_len):
            out = self.encode_decode(source_seq, inputs, source_mask, self.trg_masks[: i + 1, : i + 1])
            out = cat([inputs, out[:, -1:, :]], dim=-2)
            inputs = out.detach()
        return out[:, 1:, :]

    def forward(self, X, source_mask=None):
        """As EncoderDecoderSelfAttn."""
        self.trg_masks = self.trg_masks.type_as(X)
        source_seq = X[:, : self.input_len, :]
        if self.training:
            return self.encode_decode(source_seq, X[:, self.input_len - 1 : -1, :], source_mask, self.trg_masks)
        return self.predict(source_seq, source_mask)


# ---- data ----------------------------------------------------------------------------------------------------------------------


def generate_sequences(n: int = 128, variable_len: bool = False, seed: int = 13) -> tuple[list[np.ndarray], np.ndarray]:
    """``datasets.square_sequences`` with the points as a list of ndarrays (length, 2), as the document has them."""
    points, directions = square_sequences(n, variable_len, seed)
    return list(points), directions


def loaders(batch_size: int = 16, seed: int = 13, n: int = 128) -> tuple[DataLoader, DataLoader]:
    """Loaders of training and test data: (points, last two corners) and (first two corners, last two corners) of the same `n` squares.

    The document makes its test data from the training points, and so does this function; ``corners_loader(17)`` has the intended data.
    """
    points = as_tensor(np.stack(generate_sequences(n, seed=seed)[0]).astype(np.float32))
    train = DataLoader(TensorDataset(points, points[:, 2:]), batch_size=batch_size, shuffle=True, generator=seed)
    return train, corners_loader(seed, batch_size, n)


def corners_loader(seed: int, batch_size: int = 16, n: int = 128) -> DataLoader:
    """(first two corners, last two corners) of `n` squares, in order."""
    points = as_tensor(np.stack(generate_sequences(n, seed=seed)[0]).astype(np.float32))
    return DataLoader(TensorDataset(points[:, :2], points[:, 2:]), batch_size=batch_size)


# ---- training --------------------------------------------------------------------------------------------------------------------


class StepByStep:
    """The book's training loop: a model, a loss, an optimizer, loaders.

    Parameters
    ----------
    model : Module
    loss_fn : callable
        (predictions, targets) -> loss.
    optimizer : Optimizer

    Attributes
    ----------
    losses, val_losses : list of float
        The mean over the batches of every epoch.
    total_epochs : int
    device : str

    Examples
    --------
    >>> import transformer_c as tc
    >>> from transformer_c.tutorials import godoy
    >>> model = tc.nn.Linear(1, 1)
    >>> sbs = godoy.StepByStep(model, tc.nn.MSELoss(), tc.optim.SGD(model.parameters(), lr=0.1))
    >>> x = tc.arange(16).float().view(16, 1) / 16
    >>> sbs.set_loaders(tc.data.DataLoader(tc.data.TensorDataset(x, 2 * x), batch_size=4, shuffle=True))
    >>> sbs.train(100)
    >>> len(sbs.losses), sbs.losses[-1] < 0.01
    (100, True)
    """

    def __init__(self, model, loss_fn, optimizer) -> None:
        self.model, self.loss_fn, self.optimizer = model, loss_fn, optimizer
        parameter = next(iter(model.parameters()), None)
        self.device = "cpu" if parameter is None else parameter.device
        self.train_loader: DataLoader | None = None
        self.val_loader: DataLoader | None = None
        self.losses: list[float] = []
        self.val_losses: list[float] = []
        self.total_epochs = 0

    def to(self, device: str) -> None:
        """Moves the model."""
        self.model.to(device)
        self.device = device

    def set_loaders(self, train_loader, val_loader=None) -> None:
        """The data; without `val_loader` nothing is validated."""
        self.train_loader, self.val_loader = train_loader, val_loader

    def set_seed(self, seed: int = 42) -> None:
        """Seeds the default generator and the training loader's own."""
        manual_seed(seed)
        generator = getattr(self.train_loader, "generator", None)
        if generator is not None:
            generator.manual_seed(seed)

    def _step(self, x, y, training: bool) -> float:
        loss = self.loss_fn(self.model(x.to(self.device)), y.to(self.device))
        if training:
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.item()

    def _mini_batch(self, loader: DataLoader, training: bool) -> float:
        """One pass over a loader; the mean loss."""
        self.model.train(training)
        return float(np.mean([self._step(x, y, training) for x, y in loader]))

    def train(self, n_epochs: int, seed: int = 42) -> None:
        """Seeds, then trains and validates for `n_epochs` epochs."""
        if self.train_loader is None:
            raise RuntimeError("there is nothing to train with: call set_loaders(train_loader, val_loader) first")
        self.set_seed(seed)
        for _ in range(n_epochs):
            self.total_epochs += 1
            self.losses.append(self._mini_batch(self.train_loader, training=True))
            if self.val_loader is not None:
                with no_grad():
                    self.val_losses.append(self._mini_batch(self.val_loader, training=False))

    def predict(self, x) -> np.ndarray:
        """The model's outputs in eval mode; its mode is train afterwards, as in the book."""
        self.model.eval()
        with no_grad():
            y = self.model(as_tensor(np.asarray(x, np.float32)).to(self.device))
        self.model.train()
        return y.detach().cpu().numpy()

    def count_parameters(self) -> int:
        """The number of trained parameters."""
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)

    def save_checkpoint(self, filename) -> None:
        """Writes weights, optimizer, epochs and losses (safetensors)."""
        save(
            {
                "epoch": self.total_epochs,
                "model_state_dict": dict(self.model.state_dict()),
                "optimizer_state_dict": self.optimizer.state_dict(),
                "loss": self.losses,
                "val_loss": self.val_losses,
            },
            filename,
        )

    def load_checkpoint(self, filename) -> None:
        """Restores a file of ``save_checkpoint``; the model is in train mode."""
        held = load_mapping(filename)
        self.model.load_state_dict(held["model_state_dict"])
        self.optimizer.load_state_dict(held["optimizer_state_dict"])
        self.total_epochs, self.losses, self.val_losses = held["epoch"], list(held["loss"]), list(held["val_loss"])
        self.model.train()

    def plot_losses(self):
        """Both losses by epoch, on a logarithmic axis; gives the Figure."""
        from ..plot import losses

        held = {"training loss": self.losses} | ({"validation loss": self.val_losses} if self.val_losses else {})
        return losses(held, log=True)


def plot_data(points, directions, n_rows: int = 2):
    """Ten sequences with their corners numbered in the order of the visit, five in a row; gives the Figure.

    Parameters
    ----------
    points : list of array_like (length, 2), or array_like (n, length, 2)
    directions : array_like, shape (n,)
    n_rows : int, default 2
        Rows of five sequences.
    """
    from ..plot import sequences

    return sequences(points, directions, most=5 * n_rows, n_rows=n_rows)


def sequence_pred(sbs_obj: StepByStep, X, directions=None, n_rows: int = 2):
    """Sequences with the corners that a model predicts, from the others alone, drawn dashed next to the true ones; returns the Figure.

    Parameters
    ----------
    sbs_obj : StepByStep
    X : array_like, shape (n, length, 2)
        The model is given the first ``input_len`` points.
    directions : array_like, shape (n,), optional
    n_rows : int, default 2
        Rows of five sequences.
    """
    from ..plot import sequences

    points = np.asarray(X, np.float32)
    predictions = sbs_obj.predict(points[:, : sbs_obj.model.input_len])
    return sequences(points, directions, predictions, most=5 * n_rows, n_rows=n_rows)


# ---- the document's models -------------------------------------------------------------------------------------------------------


def own_model(dropout: float = 0.1, *, n_heads: int = 3, d_model: int = 6, ff_units: int = 10, n_layers: int = 2) -> EncoderDecoderTransf:
    """The document's Transformer, 1,728 parameters: two layers each, 3 heads, width 6, hidden 10; weights by Xavier's rule."""
    encoder_layer = EncoderLayer(n_heads=n_heads, d_model=d_model, ff_units=ff_units, dropout=dropout)
    decoder_layer = DecoderLayer(n_heads=n_heads, d_model=d_model, ff_units=ff_units, dropout=dropout)
    encoder, decoder = EncoderTransf(encoder_layer, n_layers=n_layers), DecoderTransf(decoder_layer, n_layers=n_layers)
    return xavier(EncoderDecoderTransf(encoder, decoder, input_len=2, target_len=2, n_features=2))


def xavier(model: Any) -> Any:
    """Draws every parameter with more than one axis by ``nn.init.xavier_uniform_``; gives the model back."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    return model


def torch_style_model(
    dropout: float = 0.1, *, n_heads: int = 3, d_model: int = 6, ff_units: int = 20, n_layers: int = 1
) -> TransformerModel:
    """The document's model around ``nn.Transformer``, 1,164 parameters: one layer each, 3 heads, width 6, hidden 20; by Xavier's rule."""
    transformer = nn.Transformer(
        d_model=d_model, nhead=n_heads, num_encoder_layers=n_layers, num_decoder_layers=n_layers, dim_feedforward=ff_units, dropout=dropout
    )
    return xavier(TransformerModel(transformer, input_len=2, target_len=2, n_features=2))


class SquaresPredictor(TrainingModule):
    """Either of the document's models as a module that ``tc.Trainer`` trains; steps and optimizer are those of its ``StepByStep``.

    Parameters
    ----------
    model : {"own", "nn"}
        ``own_model`` or ``torch_style_model``.
    n_heads, d_model : int
    ff_units, n_layers : int, optional
        The document's by default: 10 and 2 for "own", 20 and 1 for "nn".
    dropout, lr : float

    Examples
    --------
    >>> import numpy as np
    >>> from transformer_c.tutorials import godoy
    >>> for name in ("own", "nn"):
    ...     squares = godoy.SquaresPredictor(name).eval()
    ...     print(squares(np.zeros((16, 2, 2), np.float32)).shape, sum(p.numel() for p in squares.parameters()))
    (16, 2, 2) 1728
    (16, 2, 2) 1164
    """

    def __init__(
        self,
        model: str = "own",
        n_heads: int = 3,
        d_model: int = 6,
        ff_units: int | None = None,
        n_layers: int | None = None,
        dropout: float = 0.1,
        lr: float = 0.01,
    ) -> None:
        super().__init__()
        if model not in MODELS:
            raise ValueError(f"model must be one of {', '.join(map(repr, MODELS))}, got {model!r}")
        make, document = MODELS[model]
        ff_units, n_layers = ff_units or document["ff_units"], n_layers or document["n_layers"]
        self.save_hyperparameters()
        self.model = make(dropout, n_heads=n_heads, d_model=d_model, ff_units=ff_units, n_layers=n_layers)

    def forward(self, X):
        """As the model's: in eval mode the first two corners (N, 2, 2), or more, to the last two (N, 2, 2)."""
        return self.model(X)

    def _loss(self, batch: Any, name: str) -> Any:
        x, y = batch
        loss = F.mse_loss(self(x), y)
        self.log(name, loss, prog_bar=True)
        return loss

    def training_step(self, batch, batch_idx):
        """Logs "loss", the mean squared error with the teacher's corners as input, and gives it."""
        return self._loss(batch, "loss")

    def validation_step(self, batch, batch_idx):
        """Logs "val_loss", that of the model's own predictions."""
        self._loss(batch, "val_loss")

    def test_step(self, batch, batch_idx):
        """Logs "test_loss"."""
        self._loss(batch, "test_loss")

    def configure_optimizers(self):
        """Adam."""
        return optim.Adam(self.parameters(), lr=self.hparams.lr)


MODELS: dict[str, tuple[Any, dict[str, int]]] = {
    "own": (own_model, {"ff_units": 10, "n_layers": 2}),
    "nn": (torch_style_model, {"ff_units": 20, "n_layers": 1}),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = hooks(__name__)
