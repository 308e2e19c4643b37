"""Gradients in captured graphs: zeroed anywhere, of leaves from outside and of those that the function makes."""

import numpy as np
import pytest
import transformer_c as tc
from device_cases import host
from graph_cases import Run, late
from transformer_c import functional as F

__all__ = ["late"]
pytestmark = pytest.mark.usefixtures("nothing_is_left")


def gradients(gpu, make, before, within, between=lambda p: None):
    """Three steps that zero gradients before the function, or within, or nowhere."""
    p = tc.ones(4, device=gpu, requires_grad=True)
    optimizer = tc.optim.SGD([p], lr=0.1)

    def step(x):
        if within:
            optimizer.zero_grad(set_to_none=within == "none")
        (p * x).sum().backward()
        optimizer.step()

    step, values = make(step), []
    for i in range(5):
        if before:
            optimizer.zero_grad(set_to_none=before == "none")
        step(tc.full((4,), float(i), device=gpu))
        values.append((host(p).copy(), host(p.grad).copy()))
        between(p)
    return np.array(values)


@pytest.mark.parametrize("before", [None, "none", "zeros"])
@pytest.mark.parametrize("within", [None, "none", "zeros"])
def test_gradients_are_zeroed_anywhere(emulated_gpu, before, within):
    expected = gradients(emulated_gpu, lambda f: f, before, within)
    np.testing.assert_array_equal(gradients(emulated_gpu, tc.cuda.graph, before, within), expected)


# ---- leaves that the function makes -------------------------------------------------------------------------------------------------


def an_attack(layer, x):
    """The gradient of the inputs, and a step in its direction."""
    d = tc.zeros(*x.shape, device=x.device, requires_grad=True)
    (layer(x + d) ** 2).sum().backward()
    layer.zero_grad()
    (layer(x + 0.1 * d.grad.tanh()) ** 2).sum().backward()
    return [d.grad]


def several_steps(layer, x):
    """Each gives the leaf other memory, and the gradients add up."""
    d = tc.nn.Parameter(x * 0.5)
    for _ in range(3):
        (layer(d) ** 2).sum().backward()
        d.data = d.data - 0.1 * d.grad
    return [d, d.grad]


def of_an_argument(layer, x):
    leaf = x.detach().requires_grad_()
    (layer(leaf) ** 2).sum().backward()
    return [leaf.grad, leaf]


def the_argument(layer, x):
    (layer(x.requires_grad_()) ** 2).sum().backward()
    return [x.grad]


def of_a_weight(layer, x):
    """A leaf over memory that was there before."""
    weight = layer.weight.detach().requires_grad_()
    (F.linear(x, weight) ** 2).sum().backward()
    (F.linear(x, weight * weight) ** 2).sum().backward()
    return [weight.grad]


def with_a_gradient(layer, x):
    d = (x * 1).requires_grad_()
    d.grad = tc.ones_like(x)
    (layer(d) ** 2).sum().backward()
    return [d.grad]


def retained(layer, x):
    y = layer(x)
    y.retain_grad()
    (y * y).sum().backward()
    return [y.grad]


@pytest.mark.parametrize("make", [an_attack, several_steps, of_an_argument, the_argument, of_a_weight, with_a_gradient, retained])
def test_a_leaf_that_the_function_makes_starts_without_a_gradient(emulated_gpu, make):
    """At each start, whatever was done to its gradient before."""

    def run(wrap):
        tc.manual_seed(1)
        layer, rng = tc.nn.Linear(3, 3).to(emulated_gpu), np.random.default_rng(0)
        optimizer = tc.optim.SGD(layer.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            results = make(layer, x)
            optimizer.step()
            return results

        step, found = wrap(step), []
        for i in range(6):
            results = step(tc.tensor(rng.standard_normal((2, 3), np.float32), device=emulated_gpu))
            found.append([host(t).copy() for t in (*results, *layer.parameters())])
            for leaf in results:
                if leaf.is_leaf and leaf.requires_grad and i > 2:
                    leaf.grad = None if i % 2 else tc.full(leaf.shape, 9.0, device=emulated_gpu)
        return found

    for one, other in zip(run(tc.cuda.graph), run(lambda step: step), strict=True):
        for found, expected in zip(one, other, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_leaf_from_outside_stays_one(emulated_gpu):
    """Though the function freezes it for a while, and one of its own is over the same memory."""
    p = tc.ones(4, device=emulated_gpu, requires_grad=True)

    def step(x):
        (p.detach().requires_grad_() * x).sum().backward()
        p.requires_grad_(False), p.requires_grad_(True)
        (p * x).sum().backward()

    step, x = tc.cuda.graph(step), tc.ones(4, device=emulated_gpu)
    [step(x) for _ in range(3)]
    assert (host(p.grad) == 3).all()
    p.grad = None
    with pytest.raises(RuntimeError, match="has no gradient, but in the capture it had one"):
        step(x)


def test_gradients_that_are_not_as_in_the_capture_are_refused(emulated_gpu):
    def drop(p):
        p.grad = None

    calls = []
    with pytest.raises(RuntimeError, match=r"a leaf of shape \(4,\) has no gradient, but in the capture it had one"):
        gradients(emulated_gpu, tc.cuda.graph, None, None, lambda p: calls.append(1) or (drop(p) if len(calls) == 2 else None))
    calls.clear()
    with pytest.raises(RuntimeError, match="has a gradient, but in the capture it had none"):
        gradients(emulated_gpu, tc.cuda.graph, None, None, lambda p: calls.append(1) or (drop(p) if len(calls) == 1 else None))


def test_a_gradient_that_was_dropped_is_there_after_a_start(emulated_gpu):
    run = Run(emulated_gpu, make=tc.cuda.graph).train(2)
    for p in run.model.parameters():
        p.grad = None
    run.train(1)
    assert all(p.grad is not None for p in run.model.parameters())
