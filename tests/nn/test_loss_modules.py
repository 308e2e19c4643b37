"""Losses as modules: weights in another dtype than what they weight."""

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import nn

WEIGHTED = {
    "cross_entropy": (lambda: nn.CrossEntropyLoss(weight=np.array([1.0, 2.0])), [0, 1, 1]),
    "nll": (lambda: nn.NLLLoss(weight=np.array([1.0, 2.0])), [0, 1, 1]),
    "bce": (lambda: nn.BCELoss(weight=np.array([1.0, 2.0])), [[0.0, 1.0]] * 3),
    "bce with logits": (lambda: nn.BCEWithLogitsLoss(np.array([0.5, 2.0]), pos_weight=np.array([1.0, 2.0])), [[0.0, 1.0]] * 3),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_of_numpy_are_float64(name, dtype):
    """As scikit-learn's compute_class_weight gives them; the loss has the dtype of its input, and PyTorch's value."""
    torch = pytest.importorskip("torch")
    make, target = WEIGHTED[name]
    x = np.array([[0.2, 0.7], [0.9, 0.4], [0.5, 0.5]], dtype)
    loss = make()
    ours = loss(tc.tensor(x, requires_grad=True), tc.tensor(target, dtype=None if name in ("cross_entropy", "nll") else dtype))
    weights = {key: torch.tensor(value.numpy().astype(dtype)) for key, value in loss.state_dict().items()}
    theirs = getattr(torch.nn, type(loss).__name__)(**weights)
    expected = theirs(torch.tensor(x), torch.tensor(target, dtype=None if name in ("cross_entropy", "nll") else getattr(torch, dtype)))
    assert ours.dtype == dtype and loss.weight.dtype == np.float64
    np.testing.assert_allclose(ours.item(), expected.item(), rtol=1e-6 if dtype == "float32" else 1e-12)


def test_a_subclass_whose_constructor_takes_tensors():
    class Weighted(tc.nn.MSELoss):
        def __init__(self, prior, costs):
            super().__init__()
            self.prior, self.costs = prior, costs

    loss = Weighted(tc.ones(2), np.ones(3))
    assert loss(tc.ones(2), tc.zeros(2)).item() == 1 and loss.costs.shape == (3,)
