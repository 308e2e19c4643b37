"""_core.backward_watched: who asks is told of each leaf, while the backward goes on, that its gradient is final."""

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core


def leaf(*values):
    return tc.tensor(values, dtype="float32", requires_grad=True)


class Told:
    """What was told: names and gradients; ``moments`` may get other events in between."""

    def __init__(self, **leaves):
        self.names, self.leaves = list(leaves), list(leaves.values())
        self.moments, self.gradients = [], {}

    def __call__(self, place, gradient):
        name = self.names[place]
        assert name not in self.gradients, "told once"
        self.moments.append(name)
        self.gradients[name] = None if gradient is None else gradient.tolist()

    def see(self, tensor, name):
        tensor.register_hook(lambda gradient: self.moments.append(f"[{name}]"))

    def backward(self, loss, **options):
        return _core.backward_watched(loss, self.leaves, self, **options)


def test_told_as_soon_as_nothing_more_can_come():
    a, b, shared, unused = leaf(2.0, 3.0), leaf(5.0, 7.0), leaf(1.0, 2.0), leaf(1.0)
    told = Told(a=a, b=b, shared=shared, unused=unused)
    first = a * shared
    second = first * b
    third = second + shared
    told.see(first, "first"), told.see(second, "second"), told.see(third, "third")
    assert told.backward(third.sum()) is True
    assert told.moments == ["unused", "[third]", "[second]", "b", "[first]", "a", "shared"]
    assert told.gradients == {"unused": None, "b": [2.0, 6.0], "a": [5.0, 14.0], "shared": [11.0, 22.0]}
    assert all(told.gradients[n] == p.grad.tolist() for n, p in zip(["a", "b", "shared"], (a, b, shared), strict=True))
    assert unused.grad is None


def test_gradients_are_those_of_this_backward():
    a = leaf(2.0)
    for grad in (3.0, 6.0):
        told = Told(a=a)
        told.backward((a * 3).sum())
        assert told.gradients == {"a": [3.0]} and a.grad.tolist() == [grad]


def test_a_leaf_that_is_the_root():
    a, b = leaf(2.0), leaf(1.0)
    told = Told(b=b, a=a)
    told.backward(a)
    assert told.gradients == {"a": [1.0], "b": None}


def test_a_branch_without_a_gradient():
    """The walk never enters it, so that nothing there would count down."""
    a, b, c = leaf(2.0), leaf(3.0), leaf(4.0)
    told = Told(a=a, b=b, c=c)
    half = tc.custom_op(lambda x, y: x * 1.0, lambda dy, x, y: (dy, None))
    early = c * 1.0
    told.see(early, "early")
    told.backward(half(a * early, b * 2.0).sum())
    assert told.gradients == {"a": [4.0], "b": None, "c": [2.0]} and b.grad is None
    assert told.moments.index("b") < told.moments.index("[early]"), "its last reader comes after c's"


def test_hooks_of_leaves_come_first():
    a, b = leaf(2.0), leaf(3.0)
    a.register_hook(lambda gradient: gradient * 10)
    told = Told(a=a, b=b)
    told.backward((a * b).sum())
    assert told.moments == ["b", "a"] and told.gradients["a"] == [30.0] == a.grad.tolist()


def test_same_bits_and_order_of_a_model(rng):
    def model():
        tc.manual_seed(0)
        return tc.TransformerEncoder(3, input_dim=16, num_heads=2, dim_feedforward=32)

    x = rng.standard_normal((2, 5, 16)).astype(np.float32)
    plain, watched = model(), model()
    plain(tc.tensor(x)).square().mean().backward()
    names = dict(watched.named_parameters())
    told = Told(**names)
    told.backward(watched(tc.tensor(x)).square().mean())
    assert sorted(told.moments) == sorted(names)
    layers = [int(name.split(".")[1]) for name in told.moments]
    assert layers == sorted(layers, reverse=True)
    for p, q in zip(plain.parameters(), watched.parameters(), strict=True):
        assert np.array_equal(p.grad.numpy(), q.grad.numpy())


def test_halves_and_options():
    a = tc.ones(3, dtype="bfloat16").requires_grad_()
    told = Told(a=a)
    y = a * 2
    told.backward(y, gradient=tc.ones(3, dtype="bfloat16"), retain_graph=True)
    assert told.gradients["a"] == [2.0] * 3
    Told(a=a).backward(y, gradient=tc.ones(3, dtype="bfloat16"))
    assert a.grad.tolist() == [4.0] * 3
    with pytest.raises(RuntimeError, match="a second time"):
        Told(a=a).backward(y, gradient=tc.ones(3, dtype="bfloat16"))


def test_another_backward_meanwhile_is_told():
    """Its gradients may come after a leaf was final."""
    a = leaf(2.0)
    y, other = a * 3, (a * a).sum()
    y.register_hook(lambda gradient: other.backward())
    assert _core.backward_watched((y * 2).sum(), [a], lambda place, gradient: None) is False
    assert _core.backward_watched((a * 2).sum(), [a], lambda place, gradient: None) is True
    assert a.grad.tolist() == [4.0 + 6.0 + 2.0]


def test_failures_change_nothing():
    a, b = leaf(2.0), leaf(3.0)

    def fail(place, gradient):
        raise KeyError("planted")

    with pytest.raises(KeyError, match="planted"):
        _core.backward_watched((a * b).sum(), [a, b], fail)
    assert a.grad is None and b.grad is None
    with pytest.raises(ValueError, match="leaves has a Tensor twice"):
        _core.backward_watched((a * b).sum(), [a, b, a], fail)
    with pytest.raises(RuntimeError, match="recorded nothing"):
        _core.backward_watched(tc.tensor(1.0), [a], fail)
    broken = tc.custom_op(lambda x: x * 1.0, lambda dy, x: 1 / 0)
    told = Told(a=a, b=b)
    with pytest.raises(ZeroDivisionError):
        told.backward((broken(a) * b).sum())
    assert told.moments == ["b"] and a.grad is None and b.grad is None
    assert _core.backward_watched((a * b).sum(), [], fail) is True and a.grad is not None


def test_out_of_memory_at_every_allocation():
    a, b = leaf(2.0), leaf(3.0)
    for n in range(1, 100):
        y = (a * b + a).sum()
        _core.memory_fail_after(n)
        try:
            _core.backward_watched(y, [a, b], lambda place, gradient: None)
        except MemoryError:
            assert a.grad is None and b.grad is None
        else:
            break
        finally:
            _core.memory_fail_after(0)
    assert n > 5 and a.grad.tolist() == [4.0] and b.grad.tolist() == [2.0]


def test_long_chains_are_no_recursion():
    a = leaf(1.0)
    y = a
    for _ in range(100_000):
        y = y * 1.0
    told = Told(a=a)
    told.backward(y.sum())
    assert told.gradients == {"a": [1.0]}
