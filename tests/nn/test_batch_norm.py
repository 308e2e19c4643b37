"""Batch normalisation: the function and its layers against NumPy, and next to PyTorch."""

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import functional as F


def reference(x, weight, bias, dy, eps):
    """y, dx, dweight and dbias of a batch, in float64: Ioffe and Szegedy 2015, section 3."""
    axes, n = (0, *range(2, x.ndim)), x.size // x.shape[1]
    of_channels = (1, -1, *(1,) * (x.ndim - 2))
    rstd = 1 / np.sqrt(x.var(axes, keepdims=True) + eps)
    normal = (x - x.mean(axes, keepdims=True)) * rstd
    g = dy * weight.reshape(of_channels)
    dx = rstd * (g - g.mean(axes, keepdims=True) - normal * (g * normal).sum(axes, keepdims=True) / n)
    return normal * weight.reshape(of_channels) + bias.reshape(of_channels), dx, (dy * normal).sum(axes), dy.sum(axes)


@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 7), (2, 1, 6), (3, 4, 5, 2), (1, 2, 2, 1)], ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-5)])
def test_of_a_batch(shape, dtype, tolerance, rng):
    x, dy = rng.standard_normal(shape) * 3 + 2, rng.standard_normal(shape)
    weight, bias = rng.standard_normal(shape[1]), rng.standard_normal(shape[1])
    y, dx, dweight, dbias = reference(x, weight, bias, dy, 1e-3)
    layer = (tc.nn.BatchNorm2d if len(shape) == 4 else tc.nn.BatchNorm1d)(shape[1], eps=1e-3, dtype=dtype)
    with tc.no_grad():
        layer.weight.copy_(tc.tensor(weight))
        layer.bias.copy_(tc.tensor(bias))
    t = tc.tensor(x.astype(dtype)).requires_grad_()
    found = layer(t)
    found.backward(tc.tensor(dy.astype(dtype)))
    for value, expected in ((found.detach(), y), (t.grad, dx), (layer.weight.grad, dweight), (layer.bias.grad, dbias)):
        np.testing.assert_allclose(value.numpy(), expected, atol=tolerance * 10, rtol=tolerance)
    axes, n = (0, *range(2, x.ndim)), x.size // shape[1]
    np.testing.assert_allclose(layer.running_mean.numpy(), 0.1 * x.mean(axes), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(layer.running_var.numpy(), 0.9 + 0.1 * x.var(axes) * n / (n - 1), rtol=tolerance)
    assert int(layer.num_batches_tracked) == 1

    layer.eval()
    mean, var = (v.numpy().reshape(1, -1, *(1,) * (x.ndim - 2)) for v in (layer.running_mean, layer.running_var))
    scale, shift = (v.reshape(mean.shape) for v in (weight, bias))
    np.testing.assert_allclose(layer(x.astype(dtype)), (x - mean) / np.sqrt(var + 1e-3) * scale + shift, atol=tolerance * 10)
    assert int(layer.num_batches_tracked) == 1


def test_gradients_of_what_is_evaluated(rng):
    mean, var = rng.standard_normal(3), rng.random(3) + 0.5
    given = [tc.tensor(v).requires_grad_() for v in (rng.standard_normal((4, 3, 2)), rng.standard_normal(3), rng.standard_normal(3))]
    assert tc.testing.gradcheck(lambda x, w, b: F.batch_norm(x, mean, var, w, b), given)
    assert tc.testing.gradcheck(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), given)


def test_equal_shares(rng):
    layer = tc.nn.BatchNorm1d(2, momentum=None, dtype="float64")
    batches = rng.standard_normal((3, 8, 2))
    for batch in batches:
        layer(batch)
    np.testing.assert_allclose(layer.running_mean.numpy(), batches.mean((0, 1)), atol=1e-15)
    np.testing.assert_allclose(layer.running_var.numpy(), batches.var(1, ddof=1).mean(0), atol=1e-15)
    layer.reset_running_stats()
    assert layer.running_mean.tolist() == [0, 0] and layer.running_var.tolist() == [1, 1] and int(layer.num_batches_tracked) == 0


def test_without_running_statistics(rng):
    layer = tc.nn.BatchNorm1d(3, affine=False, track_running_stats=False).eval()
    assert layer.state_dict() == {}
    y = layer(rng.standard_normal((50, 3)).astype(np.float32))
    np.testing.assert_allclose(y.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(y.std(0), 1, atol=1e-4)


def test_arrays_are_written_to(rng):
    x, mean, var = rng.standard_normal((6, 2)), np.zeros(2), np.ones(2)
    y = F.batch_norm(x, mean, var, training=True, momentum=1.0)
    assert isinstance(y, np.ndarray)
    np.testing.assert_allclose(mean, x.mean(0), atol=1e-15)
    np.testing.assert_allclose(var, x.var(0, ddof=1), atol=1e-15)
    before = mean.copy()
    F.batch_norm(x, mean, var)
    np.testing.assert_array_equal(mean, before)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_rounded_once(dtype, rng):
    x = tc.tensor(rng.standard_normal((16, 3, 4)) * 200).to(dtype)  # whose squares do not fit float16
    y = F.batch_norm(x, None, None, training=True)
    assert y.dtype == x.dtype and (y == F.batch_norm(x.float(), None, None, training=True).to(dtype)).all()
    layer = tc.nn.BatchNorm1d(3, dtype=dtype)
    assert layer(x).dtype == layer.running_var.dtype == x.dtype and np.isfinite(layer.running_var.float().numpy()).all()


def test_an_error_leaves_the_layer_as_it_was(rng):
    layer = tc.nn.BatchNorm1d(3)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    for bad in (np.zeros((1, 3), np.float32), np.zeros((4, 2), np.float32), np.zeros((4, 3, 2, 2), np.float32)):
        with pytest.raises(ValueError):
            layer(bad)
    assert all((value == before[name]).all() for name, value in layer.state_dict().items())


def test_an_error_leaves_the_statistics_as_they_were(rng):
    x, mean = rng.standard_normal((4, 3)), np.zeros(3)
    whole, fixed = np.ones(3, int), np.ones(3)
    fixed.flags.writeable = False
    for var, error, message in (
        (whole, TypeError, "running_var is int64; expected floats"),
        (fixed, ValueError, "running_var is read-only"),
    ):
        with pytest.raises(error, match=message):
            F.batch_norm(x, mean, var, training=True)
        assert not mean.any()
    mean = tc.zeros(3)
    with pytest.raises(ValueError):
        F.batch_norm(tc.tensor(x).float(), mean, tc.ones(1).expand(3), training=True)
    assert not mean.any()


def test_saved_and_loaded(rng, tmp_path):
    layer, other = tc.nn.BatchNorm2d(3), tc.nn.BatchNorm2d(3)
    layer(rng.standard_normal((2, 3, 4, 4)).astype(np.float32))
    tc.save(layer.state_dict(), tmp_path / "norm.safetensors")
    other.load_state_dict(tc.load(tmp_path / "norm.safetensors"))
    assert list(other.state_dict()) == ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    assert all((value == other.state_dict()[name]).all() for name, value in layer.state_dict().items())
    assert repr(layer) == "BatchNorm2d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)"


ONES = np.ones(3)
ERRORS = {
    "axes": (
        lambda: F.batch_norm(ONES, ONES, ONES),
        ValueError,
        r"takes floats of shape \(samples, channels, ...\), got float64 of shape \(3,\)",
    ),
    "integers": (lambda: F.batch_norm(np.ones((2, 3), int), ONES, ONES), TypeError, "takes floats .*, got int64"),
    "one number": (
        lambda: F.batch_norm(np.ones((1, 3)), None, None, training=True),
        ValueError,
        r"needs two numbers per channel, got input of shape \(1, 3\)",
    ),
    "no statistics": (lambda: F.batch_norm(np.ones((2, 3)), None, None), ValueError, "needs running_mean and running_var"),
    "one of them": (lambda: F.batch_norm(np.ones((2, 3)), ONES, None, training=True), ValueError, "or neither with training=True"),
    "a list": (
        lambda: F.batch_norm(np.ones((2, 3)), [0, 0, 0], ONES, training=True),
        TypeError,
        "running_mean must be a Tensor or ndarray, to which training=True can write, not list",
    ),
    "channels": (lambda: F.batch_norm(np.ones((2, 3)), ONES, ONES, ONES[:2]), ValueError, r"weight has shape \(2,\); expected \(3,\)"),
    "eps": (
        lambda: F.batch_norm(np.ones((2, 3)), None, None, training=True, eps=0.0),
        ValueError,
        "eps must be positive with training=True, got 0.0",
    ),
    "a word": (lambda: tc.nn.BatchNorm1d(3, affine="no"), TypeError, "affine must be a bool, got 'no'"),
    "a negative eps": (lambda: tc.nn.BatchNorm1d(3, eps=-1.0), ValueError, "eps"),
    "momentum": (lambda: tc.nn.BatchNorm1d(3, momentum="0.1"), TypeError, "momentum must be a number"),
    "another dtype": (
        lambda: tc.nn.BatchNorm1d(3)(tc.ones(2, 3, dtype="float64")),
        TypeError,
        "BatchNorm1d has float32 parameters but the input is a float64",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, error, message = ERRORS[name]
    with pytest.raises(error, match=message):
        call()


def test_next_to_pytorch(rng):
    torch = pytest.importorskip("torch")
    for turn in range(60):
        channels = int(rng.integers(1, 6))
        name, axes = ("BatchNorm2d", 2) if turn % 2 else ("BatchNorm1d", int(rng.integers(2)))
        shape = (int(rng.integers(2, 5)), channels, *rng.integers(1, 6, axes))
        options = {"momentum": [None, 0.1, 0.3][turn % 3], "affine": bool(rng.integers(4)), "track_running_stats": bool(rng.integers(4))}
        theirs, ours = (
            getattr(torch.nn, name)(channels, dtype=torch.float64, **options),
            getattr(tc.nn, name)(channels, dtype="float64", **options),
        )
        ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
        for step in range(4):
            theirs.train(step < 3), ours.train(step < 3)
            x, dy = rng.standard_normal(shape) * 2 + 1, rng.standard_normal(shape)
            t, u = torch.tensor(x, requires_grad=True), tc.tensor(x).requires_grad_()
            expected, y = theirs(t), ours(u)
            expected.backward(torch.tensor(dy))
            y.backward(tc.tensor(dy))
            np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), atol=1e-11)
            np.testing.assert_allclose(u.grad.numpy(), t.grad.numpy(), atol=1e-9)
        for key, value in theirs.state_dict().items():
            np.testing.assert_allclose(ours.state_dict()[key].numpy(), value.numpy(), atol=1e-12, err_msg=key)


def of_groups(x, groups, weight, bias, eps):
    rows = x.reshape(x.shape[0], groups, x[0].size // groups if len(x) else 1)
    normal = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + eps)
    of_channels = (1, -1, *(1,) * (x.ndim - 2))
    return normal.reshape(x.shape) * weight.reshape(of_channels) + bias.reshape(of_channels)


@pytest.mark.parametrize(
    ("shape", "groups"), [((5, 4), 2), ((3, 6, 7), 3), ((2, 4, 3, 5), 1), ((2, 3, 2, 1), 3), ((1, 4, 1, 2), 4), ((0, 4, 3), 2)], ids=str
)
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_group_norm(shape, groups, dtype, rng):
    x, weight, bias = rng.standard_normal(shape) * 3 + 2, rng.standard_normal(shape[1]), rng.standard_normal(shape[1])
    layer = tc.nn.GroupNorm(groups, shape[1], eps=1e-3, dtype=dtype)
    with tc.no_grad():
        layer.weight.copy_(tc.tensor(weight)), layer.bias.copy_(tc.tensor(bias))
    given = tc.tensor(x).to(dtype)
    exact = [t.detach().double().numpy() for t in (given, layer.weight, layer.bias)]
    y = layer(given)
    assert y.dtype == given.dtype and y.shape == shape
    tolerance = {"float64": 1e-12, "float32": 2e-5, "bfloat16": 1e-2}[dtype]
    np.testing.assert_allclose(
        y.detach().double().numpy(), of_groups(exact[0], groups, *exact[1:], 1e-3), rtol=tolerance, atol=tolerance * 5
    )
    if dtype == "float64" and x.size:
        leaves = [tc.tensor(v).requires_grad_() for v in (x, weight, bias)]
        assert tc.testing.gradcheck(lambda x, w, b: F.group_norm(x, groups, w, b), leaves)
        assert tc.testing.gradcheck(lambda x, w: F.group_norm(x, groups, w), leaves[:2])
        assert tc.testing.gradcheck(lambda x, b: F.group_norm(x, groups, bias=b), [leaves[0], leaves[2]])
        np.testing.assert_array_equal(F.group_norm(x, groups), tc.nn.GroupNorm(groups, shape[1], affine=False)(tc.tensor(x)).numpy())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_group_norm_of_no_samples_has_a_history(dtype):
    layer, x = tc.nn.GroupNorm(2, 4, dtype=dtype), tc.zeros(0, 4, dtype=dtype, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad.shape == (0, 4) and layer.weight.grad.tolist() == layer.bias.grad.tolist() == [0.0] * 4
    x = x.detach()
    assert F.group_norm(x, 2) is not x and layer(x).dtype == x.dtype


def test_group_norm_refuses():
    for error, match, call in (
        (ValueError, "num_groups is 3, which does not divide the 4 channels", lambda: F.group_norm(np.ones((2, 4)), 3)),
        (ValueError, "num_channels must be a multiple of num_groups", lambda: tc.nn.GroupNorm(3, 4)),
        (ValueError, "takes floats of shape", lambda: F.group_norm(np.ones(4), 2)),
        (TypeError, "takes floats of shape", lambda: F.group_norm(np.ones((2, 4), int), 2)),
        (ValueError, r"weight has shape \(2,\); expected \(4,\)", lambda: F.group_norm(np.ones((2, 4)), 2, np.ones(2))),
        (ValueError, "num_groups", lambda: F.group_norm(np.ones((2, 4)), 0)),
    ):
        with pytest.raises(error, match=match):
            call()
    layer = tc.nn.GroupNorm(2, 4, bias=False)
    assert [*layer.state_dict()] == ["weight"] and repr(layer) == "GroupNorm(2, 4, eps=1e-05, affine=True, bias=False)"


def test_files_from_before_batches_were_counted():
    """As in PyTorch, by the version in the state dict; without one a file counts as old."""
    layer = tc.nn.BatchNorm1d(2)
    state = layer.state_dict()
    old = {key: value + 1.0 for key, value in state.items() if key != "num_batches_tracked"}
    layer.load_state_dict(old)
    assert layer.running_mean.tolist() == [1.0, 1.0] and layer.num_batches_tracked.item() == 0
    del state["num_batches_tracked"]  # of version 2
    with pytest.raises(RuntimeError, match="missing keys: 'num_batches_tracked'"):
        layer.load_state_dict(state)
