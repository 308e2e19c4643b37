"""Parts that are computed again in the backward (`utils.checkpoint`), beside the same parts without it."""

import copy

import numpy as np
import pytest
import transformer_c as tc
from transformer_c.utils.checkpoint import checkpoint, checkpoint_sequential


def block(dtype="float32"):
    return tc.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True).to(dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("needs_input", [False, True])
def test_a_block_has_the_same_bits(needs_input, dtype, rng):
    first, found = block(dtype), []
    x = rng.standard_normal((2, 5, 8)).astype(dtype)
    for call in (lambda part, x: part(x), lambda part, x: checkpoint(part, x, use_reentrant=False)):
        part, given = copy.deepcopy(first), tc.tensor(x, requires_grad=needs_input)
        tc.manual_seed(3)
        y = call(part, given)
        drawn = tc.rand(2)
        (y * y).sum().backward()
        found.append([y.detach(), drawn, tc.rand(2), *(p.grad for p in part.parameters()), *([given.grad] if needs_input else [])])
    assert all(map(tc.equal, *found))


def test_random_numbers_that_are_not_kept():
    x, drawn = tc.ones(50).requires_grad_(), []

    def part(x):
        drawn.append(tc.rand(2).tolist())
        return x * 2

    for keeps in (True, False):
        checkpoint(part, x, preserve_rng_state=keeps).sum().backward()
    assert drawn[0] == drawn[1] and drawn[2] != drawn[3]


def test_only_arguments_are_kept():
    def part(x):
        for _ in range(50):
            x = tc.sin(x)
        return x

    x = tc.ones(1000).requires_grad_()
    plain, again = part(x), checkpoint(part, x)
    assert str(again.grad_fn) != str(plain.grad_fn)
    plain.sum().backward()
    expected, x.grad = x.grad, None
    again.sum().backward()
    assert tc.equal(x.grad, expected)


def test_nested_arguments_and_results():
    def part(a, parts, *, factor=None, name="x"):
        return {name: a + parts["b"][0], "more": (a * factor, 3, None, factor > 2)}

    leaves = [tc.tensor([1.0, 2.0]).requires_grad_() for _ in range(2)]
    factor = tc.tensor([2.0, 3.0])
    y = checkpoint(part, leaves[0], {"b": [leaves[1]]}, factor=factor, name="y")
    assert list(y) == ["y", "more"] and y["more"][1:3] == (3, None) and y["more"][3].tolist() == [False, True]
    y["more"][0].sum().backward()
    assert leaves[0].grad.tolist() == [2.0, 3.0] and (leaves[1].grad is None or not leaves[1].grad.numpy().any())


def test_parts_in_parts_and_in_a_row():
    layers = tc.nn.Sequential(*(tc.nn.Linear(4, 4).double() for _ in range(5)))
    x, found = tc.linspace(0.0, 1.0, 8).double().reshape(2, 4), []
    for call in (
        layers,
        lambda x: checkpoint(lambda x: checkpoint(layers[1:], layers[0](x)), x),
        lambda x: checkpoint_sequential(layers, 3, x, use_reentrant=False),
        lambda x: checkpoint_sequential(list(layers), 1, x),
    ):
        layers.zero_grad()
        y = call(x)
        y.square().sum().backward()
        found.append([y.detach(), *(p.grad.clone() for p in layers.parameters())])
    for other in found[1:]:
        assert all(map(tc.equal, found[0], other))


def test_where_nothing_is_recorded_it_is_a_call():
    layer, calls = tc.nn.Linear(2, 2), []
    layer.register_forward_hook(lambda *given: calls.append(1))
    with tc.no_grad():
        assert not checkpoint(layer, tc.ones(1, 2)).requires_grad
    assert isinstance(checkpoint(layer, np.ones((1, 2), np.float32)), np.ndarray) and len(calls) == 2
    with tc.autocast("cpu"):
        y = checkpoint(layer, tc.ones(1, 2))
    y.sum().backward()
    assert len(calls) == 3 and layer.weight.grad is not None


def test_an_argument_that_was_written_to_is_refused():
    x = tc.ones(2).requires_grad_()
    given = x * 1
    y = checkpoint(lambda x: x * x, given)
    given.mul_(2)
    with pytest.raises(RuntimeError, match="written in place"):
        y.sum().backward()


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: checkpoint(3, tc.ones(1)), TypeError, r"a function and its arguments, got 3 \(int\)"),
        (lambda: checkpoint_sequential([tc.sin], 2, tc.ones(1)), ValueError, "segments is 2, but there are 1 functions"),
        (lambda: checkpoint_sequential([tc.sin], 0, tc.ones(1)), ValueError, "segments must be at least 1"),
        (lambda: checkpoint(lambda x: x.nothing, tc.ones(1).requires_grad_()), AttributeError, "nothing"),
    ],
)
def test_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_frozen_parts_are_computed_once():
    layer, calls = tc.nn.Linear(4, 4).requires_grad_(False), []
    layer.register_forward_hook(lambda *given: calls.append(given))
    assert not checkpoint(layer, tc.rand(2, 4)).requires_grad
    tc.nn.Linear(4, 4)(checkpoint(layer, tc.rand(2, 4))).sum().backward()
    assert len(calls) == 2


def test_tensors_with_a_gradient_must_be_arguments():
    x = tc.rand(3, 4, requires_grad=True)
    h = x * x
    y = checkpoint(lambda a: a * h, checkpoint(lambda a: a * h, x))
    with pytest.raises(RuntimeError, match=r"the backward through a checkpoint\(\) failed: .*must be arguments of checkpoint\(\)"):
        y.sum().backward()


def test_a_backward_in_autocast_computes_as_the_forward():
    pytest.importorskip("ml_dtypes")
    layer, x = tc.nn.Linear(64, 64), tc.rand(8, 64, requires_grad=True)
    found = []
    for dtype in (None, "bfloat16"):
        x.grad = None
        loss = checkpoint(layer, x).square().sum()
        with tc.autocast("cpu", dtype=dtype or "bfloat16", enabled=dtype is not None):
            loss.backward()
        found.append(x.grad.numpy().tobytes())
    assert found[0] == found[1]
