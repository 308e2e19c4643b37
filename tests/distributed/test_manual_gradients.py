"""What manual_backward() leaves where it fails with several ranks."""

from types import SimpleNamespace

import pytest
import transformer_c as tc
from transformer_c.trainer.manual import ManualOptimization


@pytest.mark.parametrize("failing", ["backward", "sum"])
def test_gradients_of_earlier_calls_are_kept(failing):
    weight = tc.nn.Parameter(tc.ones(3))
    optimizer = tc.optim.SGD([weight], lr=0.1)
    (2.0 * weight).sum().backward()

    def fail(*args):
        raise KeyboardInterrupt

    ranks = SimpleNamespace(size=2, exchange=lambda what, value: [value, value], add_up=fail)
    model = SimpleNamespace(backward=fail if failing == "backward" else lambda loss: loss.backward())
    hooks = SimpleNamespace(on_before_backward=lambda loss: None, on_after_backward=lambda: None)
    run = SimpleNamespace(ranks=ranks, read=lambda values: [float(value) for value in values])
    manual = ManualOptimization(run, model, [optimizer], hooks)
    with pytest.raises(KeyboardInterrupt):
        manual.backward((5.0 * weight).sum())
    assert weight.grad.tolist() == [2.0, 2.0, 2.0]
