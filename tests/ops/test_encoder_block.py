"""The whole encoder block, a few sequences at a time: against the float64 reference, with the bits of its parts, and where the parts run."""

import numpy as np
import pytest
import transformer_c as tc
from tolerance import assert_close
from transformer_c import _core
from transformer_c.testing import reference as R

# batch, length, width, heads, hidden: one of each, odd ones, several groups of sequences, the longest and the widest
SHAPES = [(1, 1, 1, 1, 1), (3, 5, 7, 1, 3), (70, 7, 36, 4, 50), (40, 16, 32, 1, 64), (3, 64, 24, 3, 400), (2, 33, 256, 8, 130)]


def block_of(shape, dtype="float32", **options):
    _, _, E, H, F = shape
    tc.manual_seed(0)
    block = tc.EncoderBlock(E, H, F, **options)
    for p in block.parameters():  # biases and norms that do something
        with tc.no_grad():
            p.copy_(p + 0.3 * tc.randn(*p.shape))
    return block.to(dtype).eval()


def masks(rng, shape):
    B, T, _, H, _ = shape
    yield None
    for axes in ((T, T), (B, 1, T), (B, T, T), (1, H, T, T), (B, H, T, T)):
        yield rng.random(axes) < 0.6
    yield np.tril(np.ones((T, T), np.float32))
    yield np.zeros((T, T), np.int64)  # nobody may attend: uniformly


def in_one_pass(block, x, mask=None):
    with tc.no_grad():
        return block._in_one_pass(tc.as_tensor(x), mask)


def by_parts(block, x, mask=None):
    assert tc.is_grad_enabled()
    return block(tc.as_tensor(x), mask).detach().numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_against_the_reference(isa, dtype, norm_first, activation, rng):
    for shape in SHAPES[1:3]:
        block = block_of(shape, dtype, norm_first=norm_first, activation=activation, layer_norm_eps=1e-3)
        parameters = {name: R.f64(value.numpy()) for name, value in block.state_dict().items()}
        x = rng.standard_normal(shape[:3]).astype(dtype)
        for mask in masks(rng, shape):
            wanted, _ = R.encoder_block(parameters, x, shape[3], mask, norm_first, activation, 1e-3)
            got = in_one_pass(block, x, mask).numpy()
            assert_close(got, wanted, dtype, 16 * shape[2], scale=1 + np.abs(wanted).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bits_of_the_parts(isa, threads, shape, dtype, norm_first, rng):
    block = block_of(shape, dtype, norm_first=norm_first, activation="gelu" if norm_first else "relu")
    x = rng.standard_normal(shape[:3]).astype(dtype)
    for mask in [*masks(rng, shape)][:: 1 if shape[2] < 10 else 3]:
        with tc.no_grad():
            got = block(tc.tensor(x), mask).numpy()
        np.testing.assert_array_equal(got, in_one_pass(block, x, mask).numpy())
        np.testing.assert_array_equal(got, by_parts(block, x, mask))
    strided = tc.tensor(np.ascontiguousarray(x.transpose(1, 2, 0))).permute(2, 0, 1)
    np.testing.assert_array_equal(in_one_pass(block, strided).numpy(), by_parts(block, x))


def test_bits_of_a_sequence_in_any_batch(isa, threads, rng):
    block = block_of((0, 0, 32, 2, 64))
    x = rng.standard_normal((100, 11, 32)).astype(np.float32)
    whole = in_one_pass(block, x).numpy()
    for count in (1, 2, 3, 4, 15, 16, 17, 50, 99):
        np.testing.assert_array_equal(in_one_pass(block, x[:count]).numpy(), whole[:count])
    np.testing.assert_array_equal(in_one_pass(block, x[57:58]).numpy(), whole[57:58])


@pytest.mark.parametrize("shape", [(0, 4, 8), (3, 0, 8), (0, 0, 8)], ids=str)
def test_nothing(shape):
    assert in_one_pass(block_of((0, 0, 8, 2, 6)), np.zeros(shape, np.float32)).shape == shape


def test_nan_stays_in_its_sequence(rng):
    block = block_of((0, 0, 8, 2, 6))
    x = rng.standard_normal((40, 16, 8)).astype(np.float32)
    clean = in_one_pass(block, x).numpy()
    x[7, 3, 2] = np.nan
    got = in_one_pass(block, x).numpy()
    np.testing.assert_array_equal(got, by_parts(block, x))
    assert np.isnan(got[7, 3]).all() and np.isfinite(np.delete(got, 7, 0)).all()
    np.testing.assert_array_equal(np.delete(got, 7, 0), np.delete(clean, 7, 0))


def test_an_optimizer_step_is_seen(rng):
    """The prepared forms of weights are kept from call to call."""
    block = block_of((0, 0, 32, 2, 64))
    x = rng.standard_normal((40, 16, 32)).astype(np.float32)
    optimizer = tc.optim.SGD(block.parameters(), lr=0.1)
    before = in_one_pass(block, x).numpy()
    block(tc.tensor(x)).square().sum().backward()
    optimizer.step()
    after = in_one_pass(block, x).numpy()
    assert (after != before).any()
    np.testing.assert_array_equal(after, by_parts(block, x))


# ---- where the parts run ---------------------------------------------------------------------------------------------------------------


def test_what_runs_by_parts(rng, monkeypatch):
    taken = []
    original = tc.EncoderBlock._in_one_pass
    monkeypatch.setattr(tc.EncoderBlock, "_in_one_pass", lambda *args: taken.append(original(*args)) or taken[-1])

    def runs(block, x, **options):
        """Whether a call took the short path."""
        taken.clear()
        with tc.no_grad():
            block(x if isinstance(x, np.ndarray) else tc.tensor(x), **options)
        return bool(taken) and taken[-1] is not None

    x = rng.standard_normal((2, 5, 8)).astype(np.float32)
    shape = (2, 5, 8, 2, 6)
    block = block_of(shape)
    assert runs(block, x) and runs(tc.TransformerEncoder(2, input_dim=8, num_heads=2, dim_feedforward=6), x)
    assert runs(block_of(shape, dropout=0.5), x) and not runs(block_of(shape, dropout=0.5).train(), x)
    assert runs(block, np.zeros((2, 64, 8), np.float32)) and not runs(block, np.zeros((2, 65, 8), np.float32))
    assert runs(block_of((1, 1, 256, 2, 3)), np.zeros((1, 2, 256), np.float32))
    assert not runs(block_of((1, 1, 257, 1, 3)), np.zeros((1, 2, 257), np.float32))
    assert not runs(block_of(shape, "float16"), x.astype(np.float16))
    caches = tc.TransformerEncoder(1, input_dim=8, num_heads=2, dim_feedforward=6).new_caches()
    assert not runs(block, x, past_key_value=caches[0])
    with tc.autocast():
        assert not runs(block, x)
    taken.clear()
    block(tc.tensor(x))
    assert not taken  # gradients are recorded
    for name, module in block.named_modules():
        seen = []
        with module.register_forward_hook(lambda m, a, o, seen=seen: seen.append(m)):
            assert runs(block, x) == (name == ""), name
            assert seen or name == "self_attn.qkv_proj"  # which nobody calls
    for name in ("norm1", "linear_net.0", "self_attn.o_proj"):
        other = block_of(shape)
        other.get_submodule(name).bias = None
        assert not runs(other, x), name
    other = block_of(shape)
    other.norm2 = tc.nn.RMSNorm(8)
    assert not runs(other, x)
    other = block_of(shape)
    other.linear_net.append(tc.nn.Identity())
    assert not runs(other, x)


def test_errors_are_those_of_the_parts():
    block = block_of((0, 0, 8, 2, 6))
    for x, mask in (
        (np.zeros((2, 5, 9), np.float32), None), (np.zeros((2, 5), np.float32), None), (np.zeros((2, 5, 8), np.float32), np.ones((4, 5))),
        (np.zeros((2, 5, 8), np.float32), np.full((5, 5), 0.5)),
    ):  # fmt: skip
        messages = []
        for context in (tc.no_grad(), tc.enable_grad()):
            with context, pytest.raises((ValueError, TypeError)) as raised:
                block(tc.tensor(x), mask)
            messages.append(str(raised.value))
        assert messages[0] == messages[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((2, 8), np.float32)}, r"x has shape \(2, 8\); expected \(batch, sequence, features\)"),
        ({"num_heads": 3}, "num_heads is 3; it must divide the 8 features of x"),
        ({"num_heads": 0}, "num_heads is 0"),
        ({"up_weight": np.zeros((0, 8), np.float32)}, r"up_weight has shape \(0, 8\)"),
        ({"down_weight": np.zeros((8, 7), np.float32)}, r"down_weight has shape \(8, 7\); .* must have \(8, 6\)"),
        ({"qkv_bias": np.zeros(8, np.float32)}, r"qkv_bias has shape \(8,\); .* must have \(24,\)"),
        ({"mask": np.ones((3, 5, 5), bool)}, r"mask has shape \(3, 5, 5\), which does not broadcast"),
        ({"gamma1": np.zeros(8)}, "gamma1"),
        ({"up_weight": np.zeros(8, np.float32)}, r"up_weight has shape \(8,\); expected \(hidden, features\)"),
    ],
)
def test_bad_arguments_of_the_op(change, message):
    shapes = {"x": (2, 5, 8), "qkv_weight": (24, 8), "qkv_bias": 24, "out_weight": (8, 8), "out_bias": 8, "up_weight": (6, 8), "up_bias": 6}
    shapes |= {"down_weight": (8, 6), "down_bias": 8, "gamma1": 8, "beta1": 8, "gamma2": 8, "beta2": 8}
    arguments = {name: np.ones(shape, np.float32) for name, shape in shapes.items()} | {"num_heads": 2}
    assert _core.encoder_block_forward(**arguments).shape == (2, 5, 8)
    with pytest.raises((ValueError, TypeError), match=message):
        _core.encoder_block_forward(**arguments | change)
    for name, given, reason in (
        ("beta1", tc.ones(8, requires_grad=True), "an input requires a gradient"),
        ("dropout", 0.5, "dropout is above 0"),
        ("hidden_dropout", 0.5, "dropout is above 0"),
    ):
        with pytest.raises(ValueError, match=f"{reason}: on a CPU encoder_block has no dropout and no gradients"):
            _core.encoder_block(**arguments | {name: given, "seed": 1, "call": 0})
