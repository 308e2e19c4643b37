"""Tensor.register_hook and retain_grad, with PyTorch's order and sums."""

import gc
import threading
import weakref

import numpy as np
import pytest
import transformer_c as tc


def program(library, seen):
    """A result that is used twice, a leaf that is used twice, hooks that look, change and are removed."""
    x = library.tensor([1.0, -2.0], requires_grad=True)
    y = x * 3
    before = y * 2  # recorded before the hook is registered
    y.register_hook(lambda g: seen.append(("y", g.tolist())))
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: seen.append(("y again", g.tolist())))
    x.register_hook(lambda g: seen.append(("x", g.tolist())))
    removed = x.register_hook(lambda g: g * float("nan"))
    removed.remove()
    removed.remove()
    x.register_hook(lambda g: g + 1)
    y.retain_grad()
    total = (before + y * y).sum() + (x * x).sum()
    total.backward(retain_graph=True)
    total.backward()
    return x.grad.tolist(), y.grad.tolist()


def test_hooks_see_and_change_whole_gradients():
    seen = []
    x_grad, _ = program(tc, seen)
    # dy = 2 + 2 y; dx = 3 * 10 dy + 2 x + 1, twice
    dy = [2 + 2 * 3.0, 2 + 2 * -6.0]
    assert seen[:3] == [("y", dy), ("y again", [10 * d for d in dy]), ("x", [30 * dy[0] + 2, 30 * dy[1] - 4])]
    assert seen[3:] == seen[:3] and x_grad == [2 * (30 * dy[0] + 3), 2 * (30 * dy[1] - 3)]


def test_hooks_are_pytorchs():
    torch = pytest.importorskip("torch")
    ours, theirs = [], []
    assert program(tc, ours) == program(torch, theirs)
    assert ours == theirs


def written_in_place(library):
    """What is retained is the gradient of the last values; a hook stays with the values that it was added for, and comes first."""
    seen = []
    x = library.ones(3, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: seen.append(g.tolist()))
    before = (y * 3).sum()
    y.add_(1).mul_(3)
    y.register_hook(lambda g: g * 10)
    y[1:] *= 2
    y[0] = y[1]
    y.retain_grad()
    with library.no_grad():
        y += 1
    (before + (y * y).sum()).backward()
    return y.grad.tolist(), x.grad.tolist(), seen


def test_the_gradient_of_the_last_values_is_retained():
    x = tc.ones(3, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.add_(1).mul_(3)
    (y * y).sum().backward()
    assert y.grad.tolist() == [18.0] * 3 and x.grad.tolist() == [108.0] * 3
    large = tc.ones(200, 300, requires_grad=True)  # without the GIL
    y = large * 2
    y.retain_grad()
    y[:] = y * 3
    y.fill_(5)
    (y * y).sum().backward()
    assert (y.grad == 10).all() and not large.grad.any()


def test_a_result_written_in_place_is_pytorchs():
    torch = pytest.importorskip("torch")
    assert written_in_place(tc) == written_in_place(torch)


def test_retained_gradients_come_after_the_hooks():
    x = tc.ones(3, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    assert y.grad.tolist() == [10.0] * 3


def test_a_result_of_several_and_a_parameter():
    x = tc.nn.Parameter(tc.ones(2, 3))
    values, _ = x.max(1)
    seen = []
    values.register_hook(lambda g: seen.append(g.tolist()))
    x.register_hook(lambda g: g * 0)
    (values * 2).sum().backward()
    assert seen == [[2.0, 2.0]] and not x.grad.numpy().any()
    optimizer = tc.optim.SGD([x], lr=1.0)
    (x * 5).sum().backward()
    optimizer.step()
    assert (x.detach() == 1).all()


def test_the_hook_gets_a_copy():
    x, y = (tc.ones(3, requires_grad=True) for _ in range(2))

    def spoil(gradient):
        gradient.zero_()

    x.register_hook(spoil)
    ((x + y) * tc.ones(3)).sum().backward()
    assert x.grad.tolist() == y.grad.tolist() == [1.0] * 3


def test_refused():
    x = tc.ones(2, requires_grad=True)
    for call, error in (
        (lambda: tc.ones(2).register_hook(print), RuntimeError),
        (lambda: tc.ones(2).retain_grad(), RuntimeError),
        (lambda: x.register_hook(3), TypeError),
    ):
        with pytest.raises(error):
            call()
    with x.register_hook(lambda g: np.ones(3)), pytest.raises(ValueError, match=r"gradient of shape \(3,\) for one of shape \(2,\)"):
        (x * 2).sum().backward()
    with x.register_hook(lambda g: 1 / 0), pytest.raises(ZeroDivisionError):
        (x * 2).sum().backward()
    assert x.grad is None
    y = x * 2
    with y.register_hook(lambda g: 1 / 0), pytest.raises(ZeroDivisionError):
        y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    x.retain_grad()  # a leaf has its gradient anyway


def test_nothing_is_kept_alive():
    class Marker:
        pass

    for make in (lambda x: x, lambda x: x * 2):
        x = tc.ones(2, requires_grad=True)
        y, marker = make(x), Marker()
        y.register_hook(lambda g, marker=marker: None)
        if y is not x:
            y.retain_grad()
        gone = weakref.ref(marker)
        (y * 3).sum().backward()
        del marker, x, y
        gc.collect()
        tc.ones(1) + 1  # what waited for the GIL is released with the next call
        assert gone() is None


def test_a_result_that_is_out_of_date_takes_no_hook():
    x = tc.ones(3, requires_grad=True)
    y = x * 2
    with tc.no_grad():
        part = y[:2]  # y does not learn of writes to it
    part *= 3
    for add in (lambda: y.register_hook(lambda g: g * g), y.retain_grad):
        with pytest.raises(RuntimeError, match="shares memory that was written in place"):
            add()


def test_long_chains_with_hooks_are_freed():
    x = tc.ones(1, requires_grad=True)
    y = x
    for _ in range(20_000):
        y = y * 1.0
        y.register_hook(lambda g: None)
    y.backward()
    assert x.grad.tolist() == [1.0]
    del y


def test_threads_register_and_run_at_once():
    x = tc.ones(4, requires_grad=True)
    counts, failures = [], []

    def work():
        try:
            for _ in range(200):
                with x.register_hook(lambda g: counts.append(1)):
                    (x * 2).sum().backward()
        except Exception as error:  # told below
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and len(counts) >= 800 and x.grad.tolist() == [1600.0] * 4


def test_a_backward_within_a_backward():
    """A part that is computed again, as checkpointing does: its parameters get their gradients there and, from another use, outside."""
    layer, x = tc.nn.Linear(3, 3), tc.rand(2, 3).requires_grad_()

    def again(dy, values):
        assert not tc.is_grad_enabled()
        with tc.enable_grad():
            leaf = tc.tensor(values, requires_grad=True)
            layer(leaf).tanh().backward(tc.tensor(dy))
        return leaf.grad

    part = tc.custom_op(lambda values: layer(tc.tensor(values)).tanh().detach(), again)
    layer(part(part(x))).sum().backward()
    found = [t.grad.numpy().copy() for t in (x, *layer.parameters())]
    x.grad = None
    layer.zero_grad()
    layer(layer(layer(x).tanh()).tanh()).sum().backward()
    for t, gradient in zip((x, *layer.parameters()), found, strict=True):
        np.testing.assert_allclose(gradient, t.grad.numpy(), rtol=1e-5)


def test_a_hook_of_a_parameter_may_refer_to_its_module():
    class Masked(tc.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.mask = tc.nn.Linear(2, 2), tc.tensor([[1.0, 0.0], [0.0, 1.0]])
            self.linear.weight.register_hook(lambda gradient: gradient * self.mask)

    module = Masked()
    loss = module.linear(tc.ones(1, 2)).sum()
    weight, found = module.linear.weight, weakref.ref(module)
    del module
    gc.collect()
    loss.backward()
    assert weight.grad.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    del loss, weight
    gc.collect()
    assert found() is None
