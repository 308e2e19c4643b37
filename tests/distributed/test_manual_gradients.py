"""The gradients that manual_backward() leaves with several ranks, also where it fails."""

from types import SimpleNamespace

import pytest
import transformer_c as tc
from transformer_c.trainer.manual import ManualOptimization


def manual_of_two_ranks(weights, add_up, backward=lambda loss: loss.backward()):
    """With a call before it, that gave a gradient of 2 to the first weight."""
    (2.0 * weights[0]).sum().backward()
    ranks = SimpleNamespace(size=2, exchange=lambda what, value: [value, value], add_up=add_up)
    hooks = SimpleNamespace(on_before_backward=lambda loss: None, on_after_backward=lambda: None)
    run = SimpleNamespace(ranks=ranks, read=lambda values: [float(value) for value in values])
    return ManualOptimization(run, SimpleNamespace(backward=backward), [tc.optim.SGD(weights, lr=0.1)], hooks)


def test_gradients_of_all_ranks_are_added_to_those_of_earlier_calls():
    def double(parameters):
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(2.0)

    both, earlier, later = weights = [tc.nn.Parameter(tc.ones(1)) for _ in range(3)]
    manual = manual_of_two_ranks(weights, double)
    (3.0 * earlier).sum().backward()
    manual.backward((5.0 * both + 7.0 * later).sum())
    assert [weight.grad.tolist() for weight in weights] == [[12.0], [3.0], [14.0]]


@pytest.mark.parametrize("failing", ["backward", "sum"])
def test_gradients_of_earlier_calls_are_kept(failing):
    weight = tc.nn.Parameter(tc.ones(3))

    def fail(*args):
        raise KeyboardInterrupt

    manual = manual_of_two_ranks([weight], fail, **({"backward": fail} if failing == "backward" else {}))
    with pytest.raises(KeyboardInterrupt):
        manual.backward((5.0 * weight).sum())
    assert weight.grad.tolist() == [2.0, 2.0, 2.0]
