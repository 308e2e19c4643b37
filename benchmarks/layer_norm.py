"""Normalisation over the last axis of (N, C), layer norm and RMS norm: forward, and forward with backward."""

from .common import enter, float32_bytes, normal
from .harness import Workload


def _data(name, rows, size):
    weights = [1 + normal(1, size) / 10, normal(2, size)]
    return normal(0, rows, size), *weights[: 2 if name == "layer_norm" else 1]


def _ours(name, rows, size, train=False):
    def build():
        import transformer_c as tc

        x, *weights = (tc.tensor(array, requires_grad=train) for array in _data(name, rows, size))
        dy = tc.tensor(normal(3, rows, size))
        norm = getattr(tc.functional, name)

        def step():
            for tensor in (x, *weights):
                tensor.grad = None
            norm(x, (size,), *weights, eps=1e-5).backward(dy)

        return step if train else lambda: norm(x, (size,), *weights, eps=1e-5)

    return build


def _torch(name, rows, size, train=False):
    def build():
        import torch
        import torch.nn.functional as F

        x, *weights = (torch.tensor(array, requires_grad=train) for array in _data(name, rows, size))
        dy = torch.tensor(normal(3, rows, size))
        norm = getattr(F, name)

        def step():
            for tensor in (x, *weights):
                tensor.grad = None
            norm(x, (size,), *weights, eps=1e-5).backward(dy)

        if not train:
            enter(torch.inference_mode())
        return step if train else lambda: norm(x, (size,), *weights, eps=1e-5)

    return build


def _workload(name, rows, size, train=False):
    arrays = 5 if train else 2  # x, y; then x and dy again, and dx
    ours, theirs = _ours(name, rows, size, train), _torch(name, rows, size, train)
    return Workload(f"{name}_{rows}x{size}{'_train' * train}", ours, theirs, bytes=float32_bytes(arrays * rows * size))


WORKLOADS = [_workload("layer_norm", rows, size, train) for rows, size in [(2048, 32), (4096, 768)] for train in (False, True)]
WORKLOADS += [_workload("rms_norm", 4096, 768, train) for train in (False, True)]
