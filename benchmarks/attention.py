"""Attention on its own, q, k, v (B, H, T, D): values alone, causal, with the map returned, and forward with backward.

PyTorch's side is the faster of `F.scaled_dot_product_attention` and the tutorial's function; with the map only the latter gives it.
"""

from .common import attention_flops, enter, float32_bytes, normal
from .harness import Workload

# name: B, H, T, D
SMALL = (128, 1, 16, 32)
MIDDLE = (8, 8, 512, 64)
LONG = (1, 8, 2048, 64)
WIDE = (1, 8, 2048, 128)
FORWARD, TRAIN = 0.8, 0.7  # shares of the bound that are wanted of long sequences


def _ours(shape, train=False, **options):
    def build():
        import transformer_c as tc

        attention = tc.functional.scaled_dot_product_attention
        q, k, v = (tc.tensor(normal(seed, *shape), requires_grad=train) for seed in range(3))
        dy = tc.tensor(normal(3, *shape))

        def step():
            q.grad = k.grad = v.grad = None
            attention(q, k, v, **options).backward(dy)

        return step if train else lambda: attention(q, k, v, **options)

    return build


def _torch(shape, train=False, with_map=False, is_causal=False):
    def build(make):
        def built():
            import torch

            q, k, v = (torch.tensor(normal(seed, *shape), requires_grad=train) for seed in range(3))
            dy, attend = torch.tensor(normal(3, *shape)), make()
            if not train:
                enter(torch.inference_mode())
                return lambda: attend(q, k, v)

            def step():
                q.grad = k.grad = v.grad = None
                attend(q, k, v).backward(dy)

            return step

        return built

    def fused():
        import torch.nn.functional as F

        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    def tutorial():
        from .torch_modules import scaled_dot_product

        return lambda q, k, v: scaled_dot_product(q, k, v)[0]

    if with_map:
        return build(tutorial)
    return build(fused) if is_causal else {"fused": build(fused), "tutorial": build(tutorial)}


def _workload(name, shape, train=False, with_map=False, causal=False, heavy=False, share=None):
    batch, heads, length, size = shape
    times = 3 if train else 1  # the backward has four products of the same size
    moved = float32_bytes(4 * times * batch * heads * length * size, with_map * batch * heads * length**2)
    return Workload(
        name,
        _ours(shape, train, is_causal=causal, return_attention=with_map),
        _torch(shape, train, with_map, causal),
        times * attention_flops(batch, heads, length, length, size, causal),
        moved,
        heavy=heavy,
        share=share,
    )


WORKLOADS = [
    _workload("attention_128x1x16x32", SMALL),
    _workload("attention_128x1x16x32_map", SMALL, with_map=True),
    _workload("attention_128x1x16x32_train", SMALL, train=True),
    _workload("attention_8x8x512x64", MIDDLE, share=FORWARD),
    _workload("attention_8x8x512x64_map", MIDDLE, with_map=True, heavy=True),
    _workload("attention_8x8x512x64_train", MIDDLE, train=True, heavy=True, share=TRAIN),
    _workload("attention_1x8x2048x64", LONG, heavy=True, share=FORWARD),
    _workload("attention_1x8x2048x64_causal", LONG, causal=True, heavy=True),
    _workload("attention_1x8x2048x128", WIDE, heavy=True, share=FORWARD),
    _workload("attention_1x8x2048x128_train", WIDE, train=True, heavy=True, share=TRAIN),
]
