"""Passes over (4096, 768) that do little arithmetic: activations, softmax, dropout, and dropout before a layer norm."""

from .common import enter, float32_bytes, normal
from .harness import Workload

SHAPE = (4096, 768)
ELEMENTS = SHAPE[0] * SHAPE[1]


def _normal():
    return normal(0, *SHAPE)


def _masked():
    """Half of the elements filled as the tutorial's masks fill them."""
    x = _normal()
    x[normal(1, *SHAPE) < 0] = -9e15
    return x


def _function(library, name, *args, values=_normal, **options):
    """One call of a function of `functional`, nothing recorded."""

    def build():
        if library == "torch":
            import torch
            import torch.nn.functional as F

            enter(torch.inference_mode())
            x = torch.tensor(values())
        else:
            import transformer_c as torch
            from transformer_c import functional as F

            x = torch.tensor(values())
        call = getattr(F, name)
        return lambda: call(x, *args, **options)

    return build


def _dropout_norm(library):
    """layer_norm(x + dropout(y)), forward and backward, as between the layers of a block: here one call."""

    def build():
        module = __import__(library)
        layers = module.nn
        x, y = (module.tensor(normal(seed, *SHAPE), requires_grad=True) for seed in (0, 1))
        norm, dropout = layers.LayerNorm(SHAPE[1]), layers.Dropout(0.1)
        dz = module.tensor(normal(2, *SHAPE))

        def step():
            x.grad = y.grad = norm.weight.grad = norm.bias.grad = None
            normalised().backward(dz)

        def normalised():
            if library == "torch":
                return norm(x + dropout(y))
            return module.functional.add_layer_norm(y, x, norm.normalized_shape, norm.weight, norm.bias, norm.eps, dropout_p=0.1)

        return step

    return build


def _pair(name, *arguments, **options):
    """(ours, torch) of one function."""
    return _function("transformer_c", name, *arguments, **options), _function("torch", name, *arguments, **options)


WORKLOADS = [
    Workload("gelu", *_pair("gelu"), bytes=float32_bytes(2 * ELEMENTS)),
    Workload("gelu_tanh", *_pair("gelu", approximate="tanh"), bytes=float32_bytes(2 * ELEMENTS)),
    Workload("softmax", *_pair("softmax", -1), bytes=float32_bytes(2 * ELEMENTS)),
    Workload("softmax_masked", *_pair("softmax", -1, values=_masked), bytes=float32_bytes(2 * ELEMENTS)),
    Workload("dropout", *_pair("dropout", 0.1), bytes=float32_bytes(2 * ELEMENTS)),
    # Forward reads x, y and writes the sum and the result; backward reads dz and the sum, and writes dx and dy.
    Workload("dropout_layer_norm_train", _dropout_norm("transformer_c"), _dropout_norm("torch"), bytes=float32_bytes(8 * ELEMENTS)),
]
