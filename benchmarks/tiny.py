"""The tutorial's first example: a scaled dot product of (3, 2). It measures the cost of a call."""

from .common import enter, normal
from .harness import Workload


def _qkv():
    return [normal(seed, 3, 2) for seed in range(3)]


def _ours(train=False, tensors=True):
    def build():
        import transformer_c as tc

        q, k, v = [tc.tensor(x, requires_grad=train) for x in _qkv()] if tensors else _qkv()
        if not train:
            return lambda: tc.scaled_dot_product(q, k, v)

        def step():
            q.grad = k.grad = v.grad = None
            values, _ = tc.scaled_dot_product(q, k, v)
            values.sum().backward()

        return step

    return build


def _torch(train=False):
    def build():
        import torch

        from .torch_modules import scaled_dot_product

        q, k, v = (torch.tensor(x, requires_grad=train) for x in _qkv())
        if not train:
            enter(torch.inference_mode())
            return lambda: scaled_dot_product(q, k, v)

        def step():
            q.grad = k.grad = v.grad = None
            values, _ = scaled_dot_product(q, k, v)
            values.sum().backward()

        return step

    return build


WORKLOADS = [
    Workload("tiny_forward", _ours(), _torch()),
    Workload("tiny_forward_arrays", _ours(tensors=False), _torch()),
    Workload("tiny_train", _ours(train=True), _torch(train=True)),
]
