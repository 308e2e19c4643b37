"""Products with their epilogues: x (M, K) times weight^T (N, K), bias, and what follows it in a block."""

from .common import enter, float32_bytes, linear_flops, normal
from .harness import Workload

LARGE, SHORT_K, WITH_GELU = 0.92, 0.8, 0.87  # shares of the bound that are wanted

# name: M, K, N
SHAPES = {
    "linear_2048x32x96": (2048, 32, 96),
    "linear_2048x64x32": (2048, 64, 32),
    "linear_640x256x768": (640, 256, 768),
    "linear_4096x512x2048": (4096, 512, 2048),
}


def _data(m, k, n):
    return normal(0, m, k), normal(1, n, k) / k**0.5, normal(2, n)


def _ours(m, k, n, relu=False, gelu=False, train=False):
    def build():
        import transformer_c as tc

        functional = tc.functional
        x, weight, bias = (tc.tensor(array, requires_grad=train) for array in _data(m, k, n))
        dy = tc.tensor(normal(3, m, n))

        def forward():
            if gelu:
                return tc._core.linear(x, weight, bias, "gelu")  # as the encoders call it
            y = functional.linear(x, weight, bias)
            return functional.relu(y) if relu else y

        def step():
            x.grad = weight.grad = bias.grad = None
            forward().backward(dy)

        return step if train else forward

    return build


def _torch(m, k, n, relu=False, gelu=False, train=False):
    def build():
        import torch
        import torch.nn.functional as F

        x, weight, bias = (torch.tensor(array, requires_grad=train) for array in _data(m, k, n))
        dy = torch.tensor(normal(3, m, n))

        def forward():
            y = F.linear(x, weight, bias)
            if gelu:
                return F.gelu(y)
            return y.relu_() if relu else y

        def step():
            x.grad = weight.grad = bias.grad = None
            forward().backward(dy)

        if not train:
            enter(torch.inference_mode())
        return step if train else forward

    return build


def _product(library):
    def build():
        module = __import__(library)
        a, b = (module.tensor(normal(seed, 2048, 2048)) for seed in (0, 1))
        return lambda: module.matmul(a, b)

    return build


def _workload(name, shape, share=LARGE, **options):
    m, k, n = shape
    times = 3 if options.get("train") else 1  # dx and dweight are a product each
    moved = times * float32_bytes(m * k, n * k, m * n)
    return Workload(name, _ours(*shape, **options), _torch(*shape, **options), times * linear_flops(m, k, n), moved, share=share)


def _share(shape):
    return SHORT_K if shape[1] <= 64 else LARGE


WORKLOADS = [
    *(_workload(name, shape, _share(shape)) for name, shape in SHAPES.items()),
    _workload("linear_gelu_4096x512x2048", SHAPES["linear_4096x512x2048"], WITH_GELU, gelu=True),
    _workload("linear_relu_2048x32x64", (2048, 32, 64), None, relu=True),
    _workload("linear_train_2048x32x96", SHAPES["linear_2048x32x96"], SHORT_K, train=True),
    _workload("linear_train_640x256x768", SHAPES["linear_640x256x768"], train=True),
    Workload(
        "matmul_2048",
        _product("transformer_c"),
        _product("torch"),
        linear_flops(2048, 2048, 2048),
        float32_bytes(3 * 2048**2),
        heavy=True,
        share=LARGE,
    ),
]
