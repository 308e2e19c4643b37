"""The tutorial's MultiheadAttention and EncoderBlock: forward alone, and forward with backward, dropout 0.1.

PyTorch's side is the fastest of the tutorial's own modules, the same with `F.scaled_dot_product_attention`, and, forward
alone, `torch.nn`'s layers with their fused inference path.
"""

from .common import block_flops, enter, float32_bytes, mha_flops, normal
from .harness import Workload

# name: B, T, E, H
SHAPES = {
    "128x16x32": (128, 16, 32, 1),
    "64x10x256": (64, 10, 256, 4),
    "32x128x256": (32, 128, 256, 8),
    "8x512x512": (8, 512, 512, 8),
    "1x2048x512": (1, 2048, 512, 8),
    "4x1024x768": (4, 1024, 768, 12),
}


def _flash(module):
    """Turns the attention layers below `module` into ones that compute values alone, through the fused kernel."""
    import torch.nn.functional as F

    from .torch_modules import MultiheadAttention

    class FlashAttention(MultiheadAttention):
        def forward(self, x, mask=None):
            batch, length, _ = x.shape
            packed = self.qkv_proj(x).reshape(batch, length, self.num_heads, -1).permute(0, 2, 1, 3)
            values = F.scaled_dot_product_attention(*packed.chunk(3, dim=-1))
            return self.o_proj(values.permute(0, 2, 1, 3).reshape(batch, length, -1))

    for layer in module.modules():
        if isinstance(layer, MultiheadAttention):
            layer.__class__ = FlashAttention
    return module


def _ours_attention(shape, with_map=False):
    batch, length, size, heads = shape

    def build():
        import transformer_c as tc

        tc.manual_seed(42)
        module, x = tc.MultiheadAttention(size, size, heads).eval(), tc.tensor(normal(0, batch, length, size))
        enter(tc.no_grad())
        return lambda: module(x, return_attention=with_map)

    return build


def _torch_attention(shape, with_map=False):
    batch, length, size, heads = shape

    def build(make):
        def built():
            import torch

            torch.manual_seed(42)
            enter(torch.inference_mode())
            return make(torch.tensor(normal(0, batch, length, size)))

        return built

    def tutorial(x):
        from .torch_modules import MultiheadAttention

        module = MultiheadAttention(size, size, heads).eval()
        return lambda: module(x, return_attention=with_map)

    def flash(x):
        from .torch_modules import MultiheadAttention

        module = _flash(MultiheadAttention(size, size, heads)).eval()
        return lambda: module(x)

    def native(x):
        from torch import nn

        module = nn.MultiheadAttention(size, heads, batch_first=True).eval()
        return lambda: module(x, x, x, need_weights=with_map, average_attn_weights=False)

    variants = {"tutorial": build(tutorial), "nn.MultiheadAttention": build(native)}
    return variants if with_map else {**variants, "flash": build(flash)}


def _training(block, x, dy):
    """A step of either library."""

    def step():
        x.grad = None
        block.zero_grad()
        block(x).backward(dy)

    return step


def _ours_block(shape, hidden, train):
    batch, length, size, heads = shape

    def build():
        import transformer_c as tc

        tc.manual_seed(42)
        block = tc.EncoderBlock(size, heads, hidden, dropout=0.1).train(train)
        x = tc.tensor(normal(0, batch, length, size), requires_grad=train)
        if not train:
            enter(tc.no_grad())
            return lambda: block(x)
        return _training(block, x, tc.tensor(normal(1, batch, length, size)))

    return build


def _torch_block(shape, hidden, train):
    batch, length, size, heads = shape

    def build(make):
        def built():
            import torch

            torch.manual_seed(42)
            block = make().train(train)
            x = torch.tensor(normal(0, batch, length, size), requires_grad=train)
            if not train:
                enter(torch.inference_mode())
                return lambda: block(x)
            return _training(block, x, torch.tensor(normal(1, batch, length, size)))

        return built

    def tutorial():
        from .torch_modules import EncoderBlock

        return EncoderBlock(size, heads, hidden, dropout=0.1)

    def native():
        from torch import nn

        return nn.TransformerEncoderLayer(size, heads, hidden, dropout=0.1, batch_first=True)

    variants = {"tutorial": build(tutorial), "flash": build(lambda: _flash(tutorial()))}
    return variants if train else {**variants, "nn.TransformerEncoderLayer": build(native)}


def _attention_workload(name, with_map=False, heavy=False):
    shape = batch, length, size, heads = SHAPES[name]
    moved = float32_bytes(2 * batch * length * size, 4 * size**2, with_map * batch * heads * length**2)
    sides = _ours_attention(shape, with_map), _torch_attention(shape, with_map)
    return Workload(f"mha_{name}{'_map' * with_map}", *sides, mha_flops(batch, length, size, heads), moved, heavy)


def _block_workload(name, train=False, heavy=False):
    shape = batch, length, size, heads = SHAPES[name]
    hidden = (2 if size < 512 else 4) * size
    sides = _ours_block(shape, hidden, train), _torch_block(shape, hidden, train)
    times = 3 if train else 1
    moved = float32_bytes(2 * times * batch * length * size)
    return Workload(f"block_{name}{'_train' * train}", *sides, times * block_flops(batch, length, size, heads, hidden), moved, heavy)


WORKLOADS = [
    _attention_workload("128x16x32"),
    _attention_workload("128x16x32", with_map=True),
    _attention_workload("64x10x256"),
    _attention_workload("32x128x256"),
    _attention_workload("8x512x512", heavy=True),
    _attention_workload("8x512x512", with_map=True, heavy=True),
    _block_workload("128x16x32"),
    _block_workload("128x16x32", train=True),
    _block_workload("64x10x256", train=True),
    _block_workload("32x128x256", train=True, heavy=True),
    _block_workload("8x512x512", train=True, heavy=True),
    _block_workload("1x2048x512", train=True, heavy=True),
    _block_workload("4x1024x768", train=True, heavy=True),
]
