"""A whole encoder block in one launch, of sequences that fit a block of threads: against the float64 reference, beside its parts, in graphs."""

import ml_dtypes
import numpy as np
import pytest
import transformer_c as tc
from device_cases import FLOATS, host
from tolerance import ROUNDING, assert_close
from transformer_c import _core
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


def by_parts(block, x, mask=None):
    assert tc.is_grad_enabled()
    return host(block(x, mask))


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
