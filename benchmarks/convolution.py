"""Convolutions of a spectrum and of images: the first layers of speech and vision models, and one between."""

import math

from .common import enter, float32_bytes, normal
from .harness import Workload

# name: function, shape of x, shape of the weight, stride, padding
SHAPES = {
    "conv1d_8x80x1000_to_512": ("conv1d", (8, 80, 1000), (512, 80, 3), 1, 1),
    "conv2d_8x3x224x224_patches_16": ("conv2d", (8, 3, 224, 224), (768, 3, 16, 16), 16, 0),
    "conv2d_8x64x56x56_3x3": ("conv2d", (8, 64, 56, 56), (64, 64, 3, 3), 1, 1),
}


def _side(library, name, x_shape, weight_shape, stride, padding, train):
    def build():
        if library == "torch":
            import torch
            import torch.nn.functional as F

            if not train:
                enter(torch.inference_mode())
        else:
            import transformer_c as torch
            from transformer_c import functional as F
        x, weight, bias = (
            torch.tensor(normal(i, *s), requires_grad=train) for i, s in enumerate((x_shape, weight_shape, weight_shape[:1]))
        )
        call = getattr(F, name)

        def forward():
            return call(x, weight, bias, stride, padding)

        dy = torch.tensor(normal(3, *forward().shape))

        def step():
            x.grad = weight.grad = bias.grad = None
            forward().backward(dy)

        return step if train else forward

    return build


def _workload(name, train):
    function, x_shape, weight_shape, stride, padding = SHAPES[name]
    windows, window = x_shape[0], 1
    for n, k in zip(x_shape[2:], weight_shape[2:], strict=True):
        windows *= (n + 2 * padding - k) // stride + 1
        window *= k
    times = 3 if train else 1  # dx and dweight are a product each
    arguments = (function, x_shape, weight_shape, stride, padding, train)
    elements = math.prod(x_shape), math.prod(weight_shape), windows * weight_shape[0]
    return Workload(
        name.replace("_", "_train_", 1) if train else name,
        _side("transformer_c", *arguments),
        _side("torch", *arguments),
        times * 2 * windows * weight_shape[0] * weight_shape[1] * window,
        times * float32_bytes(*elements),
    )


WORKLOADS = [_workload(name, train) for name in SHAPES for train in (False, True)]
