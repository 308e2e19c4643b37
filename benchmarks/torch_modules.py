"""The tutorial's Transformer in eager PyTorch: the benchmarks compare with it, and the golden values come from it.

State-dict keys and the order in which layers are made (so, from one seed, the initial weights) are the tutorial's. Masks of
two and three dimensions are expanded to four, as `transformer_c.expand_mask` does.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


def scaled_dot_product(q, k, v, mask=None):
    """values (..., Tq, dv) and attention (..., Tq, Tk); a score becomes -9e15 where the mask is 0."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -9e15)
    attention = F.softmax(scores, dim=-1)
    return attention @ v, attention


def expand_mask(mask):
    """(Tq, Tk) or (B, Tq, Tk) to (B, H, Tq, Tk)."""
    if mask is not None and mask.ndim == 3:
        mask = mask.unsqueeze(1)
    while mask is not None and mask.ndim < 4:
        mask = mask.unsqueeze(0)
    return mask


class MultiheadAttention(nn.Module):
    def __init__(self, input_dim, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv_proj = nn.Linear(input_dim, 3 * embed_dim)
        self.o_proj = nn.Linear(embed_dim, embed_dim)
        for layer in (self.qkv_proj, self.o_proj):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x, mask=None, return_attention=False):
        batch, length, _ = x.shape
        # Each head's features are packed [q | k | v]:  (B, T, 3 E) -> (B, H, T, 3 D)
        packed = self.qkv_proj(x).reshape(batch, length, self.num_heads, -1).permute(0, 2, 1, 3)
        q, k, v = packed.chunk(3, dim=-1)
        values, attention = scaled_dot_product(q, k, v, expand_mask(mask))
        out = self.o_proj(values.permute(0, 2, 1, 3).reshape(batch, length, -1))
        return (out, attention) if return_attention else out


class EncoderBlock(nn.Module):
    def __init__(self, input_dim, num_heads, dim_feedforward, dropout=0.0):
        super().__init__()
        self.self_attn = MultiheadAttention(input_dim, input_dim, num_heads)
        self.linear_net = nn.Sequential(
            nn.Linear(input_dim, dim_feedforward), nn.Dropout(dropout), nn.ReLU(inplace=True), nn.Linear(dim_feedforward, input_dim)
        )
        self.norm1 = nn.LayerNorm(input_dim)
        self.norm2 = nn.LayerNorm(input_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask=None):
        x = self.norm1(x + self.dropout(self.self_attn(x, mask=mask)))
        return self.norm2(x + self.dropout(self.linear_net(x)))


class TransformerEncoder(nn.Module):
    def __init__(self, num_layers, **block_args):
        super().__init__()
        self.layers = nn.ModuleList(EncoderBlock(**block_args) for _ in range(num_layers))

    def forward(self, x, mask=None):
        for layer in self.layers:
            x = layer(x, mask=mask)
        return x

    @torch.no_grad()
    def get_attention_maps(self, x, mask=None, *, propagate_mask=False):
        """One map per layer. Between layers the tutorial omits the mask; `propagate_mask` applies it."""
        maps = []
        for layer in self.layers:
            maps.append(layer.self_attn(x, mask=mask, return_attention=True)[1])
            x = layer(x, mask=mask if propagate_mask else None)
        return maps


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=5000):
        super().__init__()
        angle = torch.arange(0, max_len, dtype=torch.float).unsqueeze(1)
        angle = angle * torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
        pe = torch.stack([torch.sin(angle), torch.cos(angle)], dim=-1).flatten(1)[:, :d_model]
        self.register_buffer("pe", pe.unsqueeze(0), persistent=False)

    def forward(self, x):
        return x + self.pe[:, : x.size(1)]


class TransformerPredictor(nn.Module):
    def __init__(self, input_dim, model_dim, num_classes, num_heads, num_layers, dropout=0.0, input_dropout=0.0):
        super().__init__()
        self.input_net = nn.Sequential(nn.Dropout(input_dropout), nn.Linear(input_dim, model_dim))
        self.positional_encoding = PositionalEncoding(model_dim)
        self.transformer = TransformerEncoder(
            num_layers, input_dim=model_dim, num_heads=num_heads, dim_feedforward=2 * model_dim, dropout=dropout
        )
        self.output_net = nn.Sequential(
            nn.Linear(model_dim, model_dim),
            nn.LayerNorm(model_dim),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(model_dim, num_classes),
        )

    def _encoder_input(self, x, add_positional_encoding):
        x = self.input_net(x)
        return self.positional_encoding(x) if add_positional_encoding else x

    def forward(self, x, mask=None, add_positional_encoding=True):
        return self.output_net(self.transformer(self._encoder_input(x, add_positional_encoding), mask=mask))

    @torch.no_grad()
    def get_attention_maps(self, x, mask=None, add_positional_encoding=True):
        return self.transformer.get_attention_maps(self._encoder_input(x, add_positional_encoding), mask=mask)


class CosineWarmupScheduler(torch.optim.lr_scheduler.LRScheduler):
    """Linear up to the base rate over `warmup` steps, times half a cosine that ends at `max_iters`."""

    def __init__(self, optimizer, warmup, max_iters):
        self.warmup, self.max_iters = warmup, max_iters
        super().__init__(optimizer)

    def get_lr_factor(self, epoch):
        factor = 0.5 * (1 + math.cos(math.pi * epoch / self.max_iters))
        return factor * min(1.0, epoch / self.warmup)

    def get_lr(self):
        return [base_lr * self.get_lr_factor(self.last_epoch) for base_lr in self.base_lrs]


class ReverseDataset(torch.utils.data.Dataset):
    """`size` random sequences of categories; the label of each is the reversed sequence."""

    def __init__(self, num_categories, seq_len, size):
        self.num_categories = num_categories
        self.data = torch.randint(num_categories, size=(size, seq_len))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index], torch.flip(self.data[index], dims=(0,))
