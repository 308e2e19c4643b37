"""Tensors print as PyTorch prints them. The texts are here; where PyTorch is installed, they are compared with it as well."""

import numpy as np
import pytest
import transformer_c as tc
from transformer_c.nn import Parameter

TEXTS = [
    (
        [[0.3367, 0.1288], [0.2345, 0.2303], [-1.1229, -0.1863]],
        "tensor([[ 0.3367,  0.1288],\n        [ 0.2345,  0.2303],\n        [-1.1229, -0.1863]])",
    ),
    ([9, 6, 2, 0, 6, 2, 7, 9, 7, 3, 3, 4, 3, 7, 0, 9], "tensor([9, 6, 2, 0, 6, 2, 7, 9, 7, 3, 3, 4, 3, 7, 0, 9])"),
    ([1.0, 2.0], "tensor([1., 2.])"),
    ([1.0, float("nan"), float("inf")], "tensor([1., nan, inf])"),
    ([1e-5, 1.0], "tensor([1.0000e-05, 1.0000e+00])"),
    ([1e9, 1.0], "tensor([1.0000e+09, 1.0000e+00])"),
    (3.5, "tensor(3.5000)"),
    (True, "tensor(True)"),
    ([True, False], "tensor([ True, False])"),
    ([], "tensor([])"),
    ([[]], "tensor([], size=(1, 0))"),
]


@pytest.mark.parametrize(("data", "text"), TEXTS)
def test_texts(data, text):
    assert repr(tc.tensor(data)) == text


def test_notes():
    assert repr(tc.zeros(2, dtype="float64")) == "tensor([0., 0.], dtype=float64)"
    assert repr(tc.zeros(2, dtype="bfloat16")) == "tensor([0., 0.], dtype=bfloat16)"
    x = tc.ones(2, requires_grad=True)
    assert repr(x) == "tensor([1., 1.], requires_grad=True)"
    assert repr(x.view(2, 1)) == "tensor([[1.],\n        [1.]], grad_fn=<reshape>)"
    assert repr(Parameter([1.0])) == "Parameter containing:\ntensor([1.], requires_grad=True)"


@pytest.mark.parametrize(
    "shape", [(1000,), (1001,), (5, 300), (40, 40), (2, 30, 30), (7, 7, 7, 7), (1, 2000), (2000, 1), (3, 0, 2), (30,), (4, 33)]
)
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e4, 1e12, "int", "whole"])
def test_like_pytorch(rng, shape, scale):
    torch = pytest.importorskip("torch")
    values = rng.standard_normal(shape).astype(np.float32)
    if scale == "int":
        values = (values * 100).astype(np.int64)
    elif scale == "whole":
        values = np.round(values * 100)
    else:
        values = values * np.float32(scale)
    assert repr(tc.tensor(values)) == repr(torch.tensor(values)).replace("torch.", "")
