"""tc.nn's layers with PyTorch's names, compared with torch.nn's: forward with backward, dropout 0.1; and one decoded position with cached keys.

Both sides run the same script: the class is looked up in `tc.nn` or `torch.nn`. PyTorch has no cache: its side of the decoding is the same steps
by hand, projection, the kept keys and values with the new ones behind them, by `torch.cat` or written into a buffer that has room, and
`F.scaled_dot_product_attention`.
"""

from .common import block_flops, enter, float32_bytes, mha_flops, normal
from .harness import Workload

# name: B, T, E, H
SHAPES = {"32x128x256": (32, 128, 256, 8), "8x512x512": (8, 512, 512, 8)}


def _step(library, kind, shape, hidden, batch_first):
    """Forward and backward of one layer of `library.nn`; a decoder layer attends to a memory of the same size."""
    batch, length, size, heads = shape
    library.manual_seed(42)
    layer = getattr(library.nn, kind)(size, heads, hidden, dropout=0.1, batch_first=batch_first)
    axes = (batch, length, size) if batch_first else (length, batch, size)
    count = 2 if kind == "TransformerDecoderLayer" else 1
    inputs = [library.tensor(normal(i, *axes), requires_grad=True) for i in range(count)]
    dy = library.tensor(normal(9, *axes))

    def step():
        for x in inputs:
            x.grad = None
        layer.zero_grad()
        layer(*inputs).backward(dy)

    return step


def _layer_workload(kind, name, batch_first=True, heavy=False):
    shape = batch, length, size, heads = SHAPES[name]
    hidden = 4 * size

    def ours():
        import transformer_c as tc

        return _step(tc, kind, shape, hidden, batch_first)

    def theirs():
        import torch

        return _step(torch, kind, shape, hidden, batch_first)

    flops = 3 * block_flops(batch, length, size, heads, hidden)
    if kind == "TransformerDecoderLayer":
        flops += 3 * mha_flops(batch, length, size, heads)
    label = {"TransformerEncoderLayer": "encoder_layer", "TransformerDecoderLayer": "decoder_layer"}[kind]
    case = f"{label}_{name}{'' if batch_first else '_length_first'}"
    return Workload(case, ours, {f"nn.{kind}": theirs}, flops, float32_bytes(6 * batch * length * size), heavy)


def _decode_workload(batch, past, size, heads):
    """One more position after `past`; the cache is truncated to `past` after every call."""

    def ours():
        import transformer_c as tc

        module = tc.nn.MultiheadAttention(size, heads, batch_first=True).eval()
        cache = tc.nn.KeyValueCache(past + 1)
        enter(tc.no_grad())
        prompt, x = tc.tensor(normal(0, batch, past, size)), tc.tensor(normal(1, batch, 1, size))
        module(prompt, prompt, prompt, need_weights=False, is_causal=True, past_key_value=cache)

        def step():
            module(x, x, x, need_weights=False, past_key_value=cache)
            cache.truncate(past)

        return step

    def theirs(in_place):
        def build():
            import torch
            import torch.nn.functional as F

            module = torch.nn.MultiheadAttention(size, heads, batch_first=True).eval()
            enter(torch.inference_mode())
            kept = torch.tensor(normal(0, 2, batch, heads, past + in_place, size // heads))
            x = torch.tensor(normal(1, batch, 1, size))

            def joined(new):
                if not in_place:
                    return [torch.cat([old, one], 2) for old, one in zip(kept, new, strict=True)]
                for old, one in zip(kept, new, strict=True):
                    old[:, :, past:] = one
                return kept

            def step():
                q, *new = F.linear(x, module.in_proj_weight, module.in_proj_bias).view(batch, 1, 3, heads, -1).permute(2, 0, 3, 1, 4)
                values = F.scaled_dot_product_attention(q, *joined(new))
                return module.out_proj(values.transpose(1, 2).reshape(batch, 1, size))

            return step

        return build

    flops = 8 * batch * size**2 + 4 * batch * past * size
    moved = float32_bytes(2 * batch * past * size, 4 * size**2)
    return Workload(f"decode_{batch}x{past}x{size}", ours, {"torch.cat": theirs(False), "buffer": theirs(True)}, flops, moved)


WORKLOADS = [
    _layer_workload("TransformerEncoderLayer", "32x128x256"),
    _layer_workload("TransformerEncoderLayer", "32x128x256", batch_first=False, heavy=True),
    _layer_workload("TransformerDecoderLayer", "32x128x256", heavy=True),
    _layer_workload("TransformerEncoderLayer", "8x512x512", heavy=True),
    _decode_workload(1, 1024, 256, 8),
    _decode_workload(8, 1024, 256, 8),
]
