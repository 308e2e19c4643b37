"""A whole encoder block in one launch each way, of sequences that fit a block of threads: against the float64 reference, beside its parts, in
graphs."""

import os
import pathlib
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import transformer_c as tc
from device_cases import FLOATS, host
from tolerance import ROUNDING, assert_close
from transformer_c import _core
from transformer_c.random import default_generator
from transformer_c.testing import reference as R

pytestmark = pytest.mark.usefixtures("nothing_is_left")

# batch, length, width, heads, hidden: one of each; rows of whole vectors and others; one panel of a weight and several; up to what fits
SHAPES = [
    (2, 1, 1, 1, 1),
    (2, 7, 6, 2, 5),
    (3, 16, 32, 4, 64),
    (2, 17, 8, 8, 12),
    (1, 21, 40, 5, 70),
    (1, 64, 8, 1, 100),
    (1, 15, 64, 64, 33),
]
LARGEST = (1, 64, 64, 2, 256)  # in float64 it does not fit


def block_of(gpu, shape, dtype="float32", **options):
    _, _, E, H, F = shape
    tc.manual_seed(0)
    block = tc.EncoderBlock(E, H, F, **options)
    with tc.no_grad():
        for p in block.parameters():  # biases and norms that do something
            p.copy_(p + 0.3 * tc.randn(*p.shape))
    return block.to(gpu).to(dtype).eval()


def array(rng, shape, dtype):
    return rng.standard_normal(shape[:3]).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def masks(gpu, rng, shape):
    B, T, _, H, _ = shape
    yield None
    yield rng.random((T, T)) < 0.6
    yield tc.tensor(rng.random((B, 1, T, T)) < 0.6, device=gpu)
    yield tc.tensor(rng.random((T, H, B, T)) < 0.6, device=gpu).permute(2, 1, 0, 3)  # with strides of its own
    yield np.zeros((T, T), np.int64)  # nobody may attend: uniformly


def in_one_launch(block, x, mask=None):
    with tc.no_grad():
        return host(block._in_one_pass(x, mask))


class ByParts(tc.EncoderBlock):
    def _in_one_pass(self, x, mask):
        return None


def by_parts(block, x, mask=None):
    block.__class__ = ByParts
    try:
        return host(block(x, mask))
    finally:
        block.__class__ = tc.EncoderBlock


def expected(block, x, heads, mask, **options):
    parameters = {name: R.f64(host(value).astype(np.float64)) for name, value in block.state_dict().items()}
    mask = host(mask) if isinstance(mask, tc.Tensor) else mask
    return R.encoder_block(parameters, x.astype(np.float64), heads, mask, **options)[0]


def check(got, wanted, dtype, shape):
    """Halves are rounded once, at the end."""
    assert_close(got, wanted, dtype, 16 * shape[2], scale=1 + np.abs(wanted).max())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("norm_first", "activation"), [(False, "relu"), (True, "gelu")])
@pytest.mark.parametrize("shape", [*SHAPES, LARGEST], ids=str)
def test_against_the_reference(emulated_gpu, shape, dtype, norm_first, activation, rng):
    if shape == LARGEST and dtype == "float64":
        pytest.skip("does not fit")
    options = {"norm_first": norm_first, "activation": activation}
    block = block_of(emulated_gpu, shape, dtype, layer_norm_eps=1e-3, **options)
    x = array(rng, shape, dtype)
    for mask in [*masks(emulated_gpu, rng, shape)][:: 1 if shape[2] < 10 else 3]:
        got = in_one_launch(block, tc.tensor(x, device=emulated_gpu), mask)
        check(got, expected(block, x, shape[3], mask, eps=1e-3, **options), dtype, shape)


# ---- gradients ------------------------------------------------------------------------------------------------------------------------

LARGEST_TRAINED = (1, 33, 64, 2, 70)
NOT_IN_FLOAT64 = [SHAPES[5], LARGEST_TRAINED]


def gradients(block, x, dy, mask=None):
    """dx, and those of the parameters under their names."""
    x = tc.tensor(x, device=block.norm1.weight.device, requires_grad=True)
    for p in block.parameters():
        p.grad = None
    y = block(x, mask)
    assert y.grad_fn == "encoder_block"
    y.backward(tc.tensor(dy, device=x.device))
    return host(x.grad), {name: host(p.grad) for name, p in block.named_parameters()}


def expected_gradients(block, x, dy, heads, mask, **options):
    parameters = {name: R.f64(host(value).astype(np.float64)) for name, value in block.state_dict().items()}
    mask = host(mask) if isinstance(mask, tc.Tensor) else mask
    return R.encoder_block_backward(dy.astype(np.float64), parameters, x.astype(np.float64), heads, mask, **options)


def check_gradients(got, wanted, dtype, shape):
    (dx, of_parameters), (wanted_dx, wanted_of_parameters) = got, wanted
    check(dx, wanted_dx, dtype, shape)
    assert of_parameters.keys() == wanted_of_parameters.keys()
    for name, value in of_parameters.items():
        assert value.shape == wanted_of_parameters[name].shape
        check(value, wanted_of_parameters[name], dtype, shape)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("norm_first", "activation"), [(False, "relu"), (True, "gelu"), (True, "relu"), (False, "gelu")])
@pytest.mark.parametrize("shape", [*SHAPES, LARGEST_TRAINED], ids=str)
def test_gradients(emulated_gpu, shape, dtype, norm_first, activation, rng):
    options = {"norm_first": norm_first, "activation": activation}
    block = block_of(emulated_gpu, shape, dtype, layer_norm_eps=1e-3, **options)
    x, dy = array(rng, shape, dtype), array(rng, shape, dtype)
    if not _core.encoder_block_takes_gradients(tc.tensor(x, device=emulated_gpu), shape[4], shape[3], activation):
        assert shape in NOT_IN_FLOAT64 and dtype == "float64"
        return
    for mask in [*masks(emulated_gpu, rng, shape)][:: 1 if shape[2] < 10 else 3]:
        wanted = expected_gradients(block, x, dy, shape[3], mask, eps=1e-3, **options)
        check_gradients(gradients(block, x, dy, mask), wanted, dtype, shape)


def multipliers(shape, p, of_hidden):
    """What dropout makes of ones, drawn by the parts' own op."""
    B, T, E, _, F = shape
    draw = lambda p, width: R.f64(tc.functional.dropout(tc.ones(B, T, width, dtype=tc.float64), p).numpy()) if p else 1
    return draw(p, E), draw(of_hidden, F), draw(p, E)


@pytest.mark.parametrize(("p", "of_hidden"), [(0.3, 0.3), (0.5, 0), (0, 0.4), (1.0, 0.2), (0.1, 1.0)])
@pytest.mark.parametrize(("norm_first", "activation"), [(False, "relu"), (True, "gelu"), (True, "relu"), (False, "gelu")])
@pytest.mark.parametrize("shape", SHAPES[1:4], ids=str)
def test_dropout(emulated_gpu, shape, norm_first, activation, p, of_hidden, rng):
    """What the parts drop, in both directions, and in a forward alone."""
    options = {"norm_first": norm_first, "activation": activation}
    block = block_of(emulated_gpu, shape, "float64", **options).train()
    block.dropout.p, block.linear_net[1].p = p, of_hidden
    x, dy = array(rng, shape, "float64"), array(rng, shape, "float64")
    tc.manual_seed(7)
    options["multipliers"] = multipliers(shape, p, of_hidden)
    after = default_generator.get_state()
    tc.manual_seed(7)
    got = gradients(block, x, dy)
    assert default_generator.get_state() == after
    check_gradients(got, expected_gradients(block, x, dy, shape[3], None, **options), "float64", shape)
    tc.manual_seed(7)
    check(in_one_launch(block, tc.tensor(x, device=emulated_gpu)), expected(block, x, shape[3], None, **options), "float64", shape)


@pytest.mark.small
@pytest.mark.parametrize("p", [0, 0.3])
@pytest.mark.parametrize("shape", [(3, 5, 6, 2, 5), (2, 17, 8, 2, 12)], ids=str)
def test_small_blocks(emulated_gpu, shape, p, rng):
    """In each of the kernel's shapes, with dropout and without."""
    block, x, dy = block_of(emulated_gpu, shape, dropout=p).train(), array(rng, shape, "float32"), array(rng, shape, "float32")
    tc.manual_seed(5)
    options = {"multipliers": multipliers(shape, p, p)}
    tc.manual_seed(5)
    check_gradients(gradients(block, x, dy), expected_gradients(block, x, dy, shape[3], None, **options), "float32", shape)


@pytest.mark.parametrize("count", [1, 256, 257, 600])
def test_gradients_of_many_sequences(emulated_gpu, emulated_library, count, rng):
    """Whose sums blocks of threads share: one or several sequences each; a sequence has the same bits in all. With dropout, of which a process
    of two has the second half."""
    shape = (count, 2, 4, 2, 3)
    block = block_of(emulated_gpu, shape)
    x, dy = array(rng, shape, "float32"), array(rng, shape, "float32")
    dropping = block_of(emulated_gpu, shape, "float64", dropout=0.3).train()
    tc.manual_seed(9)
    of_all = multipliers((2 * count, *shape[1:]), 0.3, 0.3)
    tc.manual_seed(9)
    share = _core.exchange_batch_share(count, count, 1)
    try:
        shared = gradients(dropping, R.f64(x), R.f64(dy))
    finally:
        _core.exchange_batch_share(*share)
    options = {"multipliers": tuple(values[count:] for values in of_all)}
    check_gradients(shared, expected_gradients(dropping, x, dy, 2, None, **options), "float64", shape)
    got = gradients(block, x, dy)
    check_gradients(got, expected_gradients(block, x, dy, 2, None), "float32", shape)
    np.testing.assert_array_equal(gradients(block, x[:3], dy[:3])[0], got[0][:3])
    try:
        emulated_library.set_schedule("random", 1)
        again = gradients(block, x, dy)
    finally:
        emulated_library.set_schedule("round_robin", 0)
    for name, value in got[1].items():
        np.testing.assert_array_equal(again[1][name], value)


def test_gradients_that_nobody_wants(emulated_gpu, rng):
    shape = (2, 5, 8, 2, 12)
    block, x, dy = block_of(emulated_gpu, shape), array(rng, shape, "float32"), array(rng, shape, "float32")
    dx, wanted = gradients(block, x, dy)
    for p in block.parameters():
        p.grad = None
        p.requires_grad_(False)
    block.norm2.weight.requires_grad_(True)
    block(tc.tensor(x, device=emulated_gpu)).backward(tc.tensor(dy, device=emulated_gpu))
    np.testing.assert_array_equal(host(block.norm2.weight.grad), wanted["norm2.weight"])
    assert all(p.grad is None for name, p in block.named_parameters() if name != "norm2.weight")
    block.norm2.weight.requires_grad_(False)
    alone = tc.tensor(x, device=emulated_gpu, requires_grad=True)
    block(alone).backward(tc.tensor(dy, device=emulated_gpu))
    np.testing.assert_array_equal(host(alone.grad), dx)


def test_gradients_add_up(emulated_gpu, rng):
    """Those of two backwards, and of a block that is used twice."""
    shape = (2, 5, 8, 2, 12)
    block, x, dy = block_of(emulated_gpu, shape), array(rng, shape, "float32"), array(rng, shape, "float32")
    _, once = gradients(block, x, dy)
    block(tc.tensor(x, device=emulated_gpu)).backward(tc.tensor(dy, device=emulated_gpu))
    for name, p in block.named_parameters():
        np.testing.assert_allclose(host(p.grad), 2 * once[name], rtol=1e-6)
    tc.optim.SGD(block.parameters(), lr=0.1).zero_grad()
    twice = tc.tensor(x, device=emulated_gpu)
    block(block(twice)).backward(tc.tensor(dy, device=emulated_gpu))
    parameters = {name: R.f64(host(value)) for name, value in block.state_dict().items()}
    middle = R.encoder_block(parameters, x, 2)[0]
    dmiddle, second = R.encoder_block_backward(dy, parameters, middle, 2)
    _, first = R.encoder_block_backward(dmiddle, parameters, x, 2)
    for name, p in block.named_parameters():
        check(host(p.grad), first[name] + second[name], "float32", shape)


@pytest.mark.parametrize("shape", [(4, 5, 8, 2, 12), (300, 3, 5, 1, 3)], ids=str)
def test_gradients_under_autocast(emulated_gpu, emulated_library, shape, rng):
    """Of float32 parameters, whose casts are computed with: not rounded to halves."""
    block = block_of(emulated_gpu, shape)
    x, dy = array(rng, shape, "bfloat16"), array(rng, shape, "bfloat16")
    emulated_library.launches()
    with tc.autocast():
        y = block(tc.tensor(x.astype(np.float32), device=emulated_gpu))
    y.backward(tc.tensor(dy.astype(np.float32), device=emulated_gpu))
    assert sum("encoder_block" in name for name in emulated_library.launches()) == 3
    rounded = {name: R.f64(host(p.bfloat16()).astype(np.float64)) for name, p in block.named_parameters()}
    _, wanted = R.encoder_block_backward(dy.astype(np.float64), rounded, x.astype(np.float64), shape[3])
    for name, p in block.named_parameters():
        check(host(p.grad), wanted[name], "float32", shape)


def test_gradients_of_a_nan(emulated_gpu, rng):
    """They stay in their sequence, but for the sums over all."""
    shape = (3, 6, 8, 2, 12)
    block, x, dy = block_of(emulated_gpu, shape), array(rng, shape, "float32"), array(rng, shape, "float32")
    clean, _ = gradients(block, x, dy)
    dy[1, 4, 3] = np.nan
    dx, of_parameters = gradients(block, x, dy)
    np.testing.assert_array_equal(dx[::2], clean[::2])
    assert np.isnan(dx[1]).all() and all(np.isnan(value).any() for value in of_parameters.values())


@pytest.mark.parametrize("p", [-0.1, float("nan"), 1.5, None])
def test_probabilities_that_are_refused(emulated_gpu, p):
    block = block_of(emulated_gpu, (1, 2, 8, 2, 6), dropout=0.1).train()
    x = tc.ones(1, 2, 8, device=emulated_gpu)
    for dropout in (block.dropout, block.linear_net[1]):
        before, dropout.p = dropout.p, p
        with pytest.raises((ValueError, TypeError), match="dropout"):
            block(x)
        dropout.p = before
    block(x)


def test_a_changed_mask_is_noticed(emulated_gpu, rng):
    shape = (2, 5, 8, 2, 12)
    block, x = block_of(emulated_gpu, shape), tc.tensor(array(rng, shape, "float32"), device=emulated_gpu)
    mask = tc.ones(5, 5, dtype=tc.bool, device=emulated_gpu)
    y = block(x, mask)
    mask[0, 1] = False
    with pytest.raises(RuntimeError, match="encoder_block"):
        y.sum().backward()


def test_a_changed_weight_is_noticed(emulated_gpu, rng):
    shape = (2, 5, 8, 2, 12)
    block, x = block_of(emulated_gpu, shape), tc.tensor(array(rng, shape, "float32"), device=emulated_gpu)
    y = block(x)
    with tc.no_grad():
        block.norm1.weight.add_(1)
    with pytest.raises(RuntimeError, match="encoder_block"):
        y.sum().backward()


def test_a_step_in_a_graph(emulated_gpu, rng):
    """Has the bits of one without, dropout included."""
    shape = (2, 5, 8, 2, 12)
    x, dy = (tc.tensor(array(rng, shape, "float32"), device=emulated_gpu) for _ in range(2))

    def trained(step_of):
        block = block_of(emulated_gpu, shape, dropout=0.2).train()
        optimizer = tc.optim.SGD(block.parameters(), lr=0.1)
        tc.manual_seed(3)

        def step(x, dy):
            optimizer.zero_grad()
            loss = (block(x) * dy).sum()
            loss.backward()
            optimizer.step()
            return loss

        step = step_of(step)
        losses = [float(step(x, dy)) for _ in range(5)]
        return losses, [host(p) for p in block.parameters()]

    losses, parameters = trained(lambda step: step)
    assert len(set(losses)) == 5
    captured_losses, captured_parameters = trained(tc.cuda.graph)
    assert captured_losses == losses
    for got, wanted in zip(captured_parameters, parameters, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_two_launches_backward(emulated_gpu, emulated_library, rng):
    """Whose results become the gradients without a copy: each has its own memory, and nothing else is left."""
    shape = (2, 5, 8, 2, 12)
    block = block_of(emulated_gpu, shape)
    x, dy = (tc.tensor(array(rng, shape, "float32"), device=emulated_gpu) for _ in range(2))
    x = x.requires_grad_(True)
    y = block(x)
    in_use = lambda: tc.cuda.memory_stats(emulated_gpu)["in_use"]
    before = in_use()
    tc.cuda.synchronize(emulated_gpu)
    emulated_library.launches()
    y.backward(dy)
    tc.cuda.synchronize(emulated_gpu)
    first, second = emulated_library.launches()
    after = in_use()
    alike = [tc.empty_like(t.grad) for t in (x, *block.parameters())]
    assert after - before == in_use() - after > 0
    del alike
    assert "encoder_block_backward_kernel" in str(first) and "encoder_block_sums_kernel" in str(second)


# ---- one launch -----------------------------------------------------------------------------------------------------------------------


def test_every_activation(emulated_gpu, rng):
    shape = (2, 5, 8, 2, 12)
    block, x = block_of(emulated_gpu, shape), tc.tensor(array(rng, shape, "float32"), device=emulated_gpu)
    weights = {name: value for name, value in block.state_dict().items()}
    order = ["self_attn.qkv_proj", "self_attn.o_proj", "linear_net.0", "linear_net.3", "norm1", "norm2"]
    arguments = [weights[f"{name}.{part}"] for name in order for part in ("weight", "bias")]
    for activation in ("relu", "gelu", "gelu_tanh", None):
        got = host(_core.encoder_block_forward(x, *arguments, num_heads=2, activation=activation))
        wanted = _core.encoder_block_forward(x.cpu(), *(value.cpu() for value in arguments), num_heads=2, activation=activation)
        np.testing.assert_allclose(got, wanted.numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", FLOATS)
def test_beside_the_parts(emulated_gpu, dtype, rng):
    """Whose halves are rounded after each of them."""
    shape = (2, 9, 8, 2, 12)
    block, x = block_of(emulated_gpu, shape, dtype), tc.tensor(array(rng, shape, dtype), device=emulated_gpu)
    apart = 8 * ROUNDING.get(dtype, 1e-6 if dtype == "float32" else 1e-13)
    got, wanted = (f(block, x).astype(np.float64) for f in (in_one_launch, by_parts))
    np.testing.assert_allclose(got, wanted, rtol=apart, atol=apart * np.abs(wanted).max())


@pytest.mark.parametrize("shape", SHAPES[1:4], ids=str)
def test_bits_of_a_sequence_in_any_batch(emulated_gpu, emulated_library, shape, rng):
    x = tc.tensor(array(rng, (5, *shape[1:]), "float32"), device=emulated_gpu)
    block = block_of(emulated_gpu, shape)
    whole = in_one_launch(block, x)
    try:
        for n, schedule in enumerate(("greedy", "random", "round_robin")):
            emulated_library.set_schedule(schedule, n)
            np.testing.assert_array_equal(in_one_launch(block, x[n : 2 * n + 1]), whole[n : 2 * n + 1])
    finally:
        emulated_library.set_schedule("round_robin", 0)


def test_nan(emulated_gpu, rng):
    """In one sequence, and at keys that are masked: where the parts have it."""
    shape = (3, 6, 8, 2, 12)
    block, x = block_of(emulated_gpu, shape), array(rng, shape, "float32")
    clean = in_one_launch(block, tc.tensor(x, device=emulated_gpu))
    x[1, 4, 3] = np.nan
    mask = np.arange(6) != 4
    for hidden in (None, np.broadcast_to(mask, (6, 6))):
        got, parts = (f(block, tc.tensor(x, device=emulated_gpu), hidden) for f in (in_one_launch, by_parts))
        np.testing.assert_array_equal(np.isnan(got), np.isnan(parts))
        assert np.isnan(got[1, 4]).all() and np.isfinite(got[::2]).all()
        if hidden is None:
            np.testing.assert_array_equal(got[::2], clean[::2])


def test_views(emulated_gpu, rng):
    """Of operands that begin anywhere; x with strides of its own is copied."""
    shape = (2, 5, 8, 2, 12)
    block, x = block_of(emulated_gpu, shape), array(rng, shape, "float32")
    wanted = in_one_launch(block, tc.tensor(x, device=emulated_gpu))
    odd = tc.empty(x.size + 1, device=emulated_gpu)[1:].reshape(x.shape)
    odd.copy_(tc.tensor(x, device=emulated_gpu))
    strided = tc.tensor(np.ascontiguousarray(x.transpose(2, 0, 1)), device=emulated_gpu).permute(1, 2, 0)
    for view in (odd, strided):
        np.testing.assert_array_equal(in_one_launch(block, view), wanted)
    weight = block.linear_net[0].weight
    other = tc.empty(weight.numel() + 1, device=emulated_gpu)[1:].reshape(weight.shape)
    with tc.no_grad():
        other.copy_(weight)
    weight.data = other
    np.testing.assert_array_equal(in_one_launch(block, tc.tensor(x, device=emulated_gpu)), wanted)


@pytest.mark.parametrize("shape", [(0, 4, 8), (3, 0, 8)], ids=str)
def test_nothing(emulated_gpu, shape):
    assert in_one_launch(block_of(emulated_gpu, (0, 0, 8, 2, 6)), tc.zeros(shape, device=emulated_gpu)).shape == shape


def test_one_launch(emulated_gpu, emulated_library, rng):
    """From Python and in a graph, which has its bits."""
    shape = (2, 5, 8, 2, 12)
    block, x = block_of(emulated_gpu, shape), tc.tensor(array(rng, shape, "float32"), device=emulated_gpu)
    tc.cuda.synchronize(emulated_gpu)
    emulated_library.launches()

    @tc.no_grad()
    def forward(x):
        return block(x)

    wanted = host(forward(x))
    (launched,) = emulated_library.launches()
    assert "encoder_block_kernel" in str(launched)
    captured = tc.cuda.graph(forward)
    for _ in range(4):
        np.testing.assert_array_equal(host(captured(x)), wanted)
    other = tc.tensor(array(rng, shape, "float32"), device=emulated_gpu)
    np.testing.assert_array_equal(host(captured(other)), host(forward(other)))


def test_what_runs_by_parts(emulated_gpu, rng):
    """By sizes and shared memory, and not by the number of sequences."""
    takes = lambda shape, hidden, dtype="float32": _core.encoder_block_takes(
        tc.empty(shape, dtype=getattr(tc, dtype), device=emulated_gpu), hidden
    )
    assert all(takes((batch, 64, 64), 256, dtype) for batch in (1, 1000) for dtype in FLOATS if dtype != "float64")
    assert not takes((1, 65, 64), 256) and not takes((1, 64, 65), 256) and not takes((1, 64, 64), 257)
    assert takes((1, 32, 64), 256, "float64") and not takes((1, 64, 64), 256, "float64") and not takes((1, 64), 256)
    shape = (1, 2, 65, 5, 8)
    block, x = block_of(emulated_gpu, shape), tc.tensor(array(rng, shape, "float32"), device=emulated_gpu)
    parts = by_parts(block, x)
    with tc.no_grad():
        np.testing.assert_array_equal(host(block(x)), parts)
    np.testing.assert_array_equal(host(block(x)), parts)
    with tc.no_grad():
        assert block._in_one_pass(x, None) is None
        small = block_of(emulated_gpu, (1, 2, 8, 2, 6))
        ones = tc.ones(1, 2, 8, device=emulated_gpu)
        assert small._in_one_pass(ones, None) is not None and small._in_one_pass(ones.cpu(), None) is None
        assert small._in_one_pass(ones, tc.ones(2, 2)) is None  # a mask on the CPU
    weights = [value.detach() for layer in ("qkv_proj", "o_proj") for value in getattr(block.self_attn, layer).parameters()]
    weights += [
        value.detach() for layer in (block.linear_net[0], block.linear_net[3], block.norm1, block.norm2) for value in layer.parameters()
    ]
    with pytest.raises(ValueError, match=r"x has shape \(1, 2, 65\).*on a GPU encoder_block takes sequences of at most 64, 64 features"):
        _core.encoder_block_forward(x, *weights, num_heads=5)


def test_what_is_trained_by_parts(emulated_gpu, rng):
    """What has room in a forward, and not in a backward."""
    takes = lambda shape, hidden, heads, activation, dtype="float32": _core.encoder_block_takes_gradients(
        tc.empty(shape, dtype=getattr(tc, dtype), device=emulated_gpu), hidden, heads, activation
    )
    assert all(takes((batch, 32, 64), 128, 2, "relu", dtype) for batch in (1, 1000) for dtype in FLOATS if dtype != "float64")
    assert takes((1, 64, 32), 64, 4, "gelu") and not takes((1, 64, 64), 64, 2, "relu") and not takes((1, 48, 64), 192, 2, "gelu")
    assert takes((1, 16, 64), 128, 2, "relu", "float64") and not takes((1, 32, 64), 128, 2, "relu", "float64")
    assert not _core.encoder_block_takes_gradients(tc.empty(1, 2, 8), 8, 2, "relu")
    shape = (1, 64, 64, 2, 256)
    block, x = block_of(emulated_gpu, shape), tc.tensor(array(rng, shape, "float32"), device=emulated_gpu)
    assert block._in_one_pass(x, None) is None
    weights = [dict(block.named_parameters())[name] for name in
               [f"{layer}.{part}" for layer in ("self_attn.qkv_proj", "self_attn.o_proj", "linear_net.0", "linear_net.3", "norm1", "norm2") for part in ("weight", "bias")]]  # fmt: skip
    with pytest.raises(ValueError, match=r"x has shape \(1, 64, 64\), and up_weight 256 rows: a block of this GPU.*run the parts"):
        _core.encoder_block(x, *weights, num_heads=2)
    with pytest.raises(ValueError, match=r"an input requires a gradient: on a CPU encoder_block has no dropout and no gradients"):
        _core.encoder_block(x.cpu(), *(value.detach().cpu().requires_grad_(True) for value in weights), num_heads=2)
    with tc.no_grad(), pytest.raises(ValueError, match=r"dropout is above 0: on a CPU encoder_block has no dropout"):
        _core.encoder_block(x.cpu(), *(value.cpu() for value in weights), num_heads=2, dropout=0.1, seed=0, call=0)
    with tc.no_grad(), pytest.raises(ValueError, match=r"dropout probability p must be between 0 and 1, got 1.5"):
        _core.encoder_block(x, *weights, num_heads=2, hidden_dropout=1.5, seed=0, call=0)


ON_A_LARGER_GPU = """
import cuda_library, sys, numpy as np, transformer_c as tc
cuda_library.EmulatedLibrary(sys.argv[1]).set_compute_capability(9, 0)
import test_cuda_encoder_block as cases

shape = (1, 64, 64, 2, 192)
rng = np.random.default_rng(0)
block = cases.block_of("cuda:emulated", shape)
x, dy = cases.array(rng, shape, "float32"), cases.array(rng, shape, "float32")
cases.check_gradients(cases.gradients(block, x, dy), cases.expected_gradients(block, x, dy, 2, None), "float32", shape)
print("agrees")
"""


@pytest.mark.whole
def test_the_largest_that_is_trained(emulated_library):
    """With the shared memory of sm_90 and sm_100, which the library asks for once."""
    library = emulated_library.library._name
    own = {
        "TRANSFORMER_C_CUDA_LIBRARY": library,
        "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), str(pathlib.Path(__file__).parents[1]), str(pathlib.Path(tc.__file__).parents[1])]),
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", ON_A_LARGER_GPU, library], env={**os.environ, **own}, capture_output=True, text=True)
    assert done.stdout == "agrees\n", done.stderr
