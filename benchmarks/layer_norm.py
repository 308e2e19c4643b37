"""Layer normalisation over the last axis of (N, C): forward, and forward with backward."""

from .common import enter, float32_bytes, normal
from .harness import Workload


def _data(rows, size):
    return normal(0, rows, size), 1 + normal(1, size) / 10, normal(2, size)


def _ours(rows, size, train=False):
    def build():
        import transformer_c as tc

        x, gamma, beta = (tc.tensor(array, requires_grad=train) for array in _data(rows, size))
        dy = tc.tensor(normal(3, rows, size))

        def step():
            x.grad = gamma.grad = beta.grad = None
            tc.functional.layer_norm(x, (size,), gamma, beta, 1e-5).backward(dy)

        return step if train else lambda: tc.functional.layer_norm(x, (size,), gamma, beta, 1e-5)

    return build


def _torch(rows, size, train=False):
    def build():
        import torch
        import torch.nn.functional as F

        x, gamma, beta = (torch.tensor(array, requires_grad=train) for array in _data(rows, size))
        dy = torch.tensor(normal(3, rows, size))

        def step():
            x.grad = gamma.grad = beta.grad = None
            F.layer_norm(x, (size,), gamma, beta, 1e-5).backward(dy)

        if not train:
            enter(torch.inference_mode())
        return step if train else lambda: F.layer_norm(x, (size,), gamma, beta, 1e-5)

    return build


def _workload(rows, size, train=False):
    arrays = 5 if train else 2  # x, y; then x and dy again, and dx
    name = f"layer_norm_{rows}x{size}{'_train' * train}"
    return Workload(name, _ours(rows, size, train), _torch(rows, size, train), bytes=float32_bytes(arrays * rows * size))


WORKLOADS = [_workload(rows, size, train) for rows, size in [(2048, 32), (4096, 768)] for train in (False, True)]
