"""Losses, forward and backward, on every instruction set."""

import numpy as np
import pytest
import transformer_c as tc
from golden import load
from tolerance import assert_close
from transformer_c import _core
from transformer_c.testing import reference as R

REDUCTIONS = ["mean", "sum", "none"]
reductions = pytest.mark.parametrize("reduction", REDUCTIONS)
floats = pytest.mark.parametrize("dtype", ["float32", "float64"])


def half(dtype):
    return pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)


def recorded(f, dy, *arrays):
    """The loss of Tensors that all require a gradient, and the gradients."""
    tensors = [tc.tensor(a, requires_grad=True) for a in arrays]
    loss = f(*tensors)
    loss.backward(None if dy is None else tc.tensor(dy))
    return loss.numpy(), [t.grad.numpy() for t in tensors]


# ---- cross-entropy ---------------------------------------------------------------------------------------------------

# logits: nothing, one, primes, around the widths and the longest short row, positions
LOGITS = [(1,), (5,), (1, 1), (7, 3), (17, 10), (5, 16), (9, 17), (4, 32), (3, 33), (70, 65), (2, 1031), (3, 5, 4), (2, 70, 3, 2)]


def classes_for(rng, shape, ignore=None):
    target = rng.integers(shape[0] if len(shape) == 1 else shape[1], size=() if len(shape) == 1 else (shape[0], *shape[2:]))
    if ignore is not None and target.size > 1:
        target = np.where(rng.random(target.shape) < 0.3, ignore, target)
        target.flat[0] = 0
    return target


def check_cross_entropy(x, target, dtype, rng, **options):
    expected = np.asarray(R.cross_entropy(x, target, **options))
    reduction = options.get("reduction", "mean")
    dy = rng.standard_normal(expected.shape).astype(dtype) if reduction == "none" else None
    given = {k: v for k, v in options.items() if k != "weight"}
    weight = options.get("weight")
    loss, (dx,) = recorded(lambda t: _core.cross_entropy(t, target, weight, **given), dy, x)
    scale = np.abs(R.f64(x)).max() + np.log(max(2, x.shape[x.ndim > 1]))
    count = x.size if reduction == "sum" else 1
    assert_close(loss, expected, dtype, 4 * x.shape[x.ndim > 1], scale=scale * count, name="loss")
    wanted = R.cross_entropy_backward(1 if dy is None else dy, x, target, **options)
    size = np.abs(wanted).max()
    if x.shape[x.ndim > 1] == 1:  # of one class: a difference of equal terms
        size = 2 * (1 if dy is None else np.abs(dy).max()) * (1 if weight is None else weight.max())
    assert_close(dx, wanted, dtype, gradient=True, scale=max(size, 1e-30), name="dx")


@floats
@reductions
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_of_classes(isa, dtype, reduction, smoothing, rng):
    for shape in LOGITS:
        x = (3 * rng.standard_normal(shape)).astype(dtype)
        weight = rng.random(shape[len(shape) > 1]).astype(dtype) + dtype_of(dtype)(0.5)
        for w in (None, weight):
            target = classes_for(rng, shape, ignore=-100)
            check_cross_entropy(x, target, dtype, rng, weight=w, reduction=reduction, label_smoothing=smoothing)


def dtype_of(dtype):
    return np.dtype(dtype).type


@floats
@reductions
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_of_probabilities(isa, dtype, reduction, smoothing, rng):
    for shape in LOGITS:
        x = (3 * rng.standard_normal(shape)).astype(dtype)
        target = R.softmax(rng.standard_normal(shape), int(len(shape) > 1)).astype(dtype)
        weight = rng.random(shape[len(shape) > 1]).astype(dtype)
        for w in (None, weight):
            check_cross_entropy(x, target, dtype, rng, weight=w, reduction=reduction, label_smoothing=smoothing)


@pytest.mark.parametrize("classes", [1, 10, 16, 17, 32, 33])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_row_has_the_bits_that_it_has_alone(isa, dtype, classes, rng):
    """Rows of up to 32 classes are taken side by side, one per lane; what is in another lane changes nothing."""
    x, target = (3 * rng.standard_normal((21, classes))).astype(dtype), rng.integers(0, classes, 21)
    x[4], x[9, 0], target[[2, 9]] = np.inf, np.nan, -100
    options = {"weight": rng.random(classes).astype(dtype), "label_smoothing": 0.1, "reduction": "none"}

    def run(rows):
        return recorded(lambda t: _core.cross_entropy(t, target[rows], **options), np.ones(len(target[rows]), dtype), x[rows])

    loss, (dx,) = run(slice(None))
    assert not dx[[2, 9]].any() and not loss[[2, 9]].any() and np.isnan(dx[4]).all()
    for n in range(21):
        one_loss, (one_dx,) = run(slice(n, n + 1))
        assert one_loss.tobytes() == loss[n : n + 1].tobytes() and one_dx.tobytes() == dx[n : n + 1].tobytes(), n


@floats
def test_large_logits_keep_their_digits(isa, dtype, rng):
    for length in (7, 100):
        x = (1e4 + 3 * rng.standard_normal((5, length))).astype(dtype)
        target = rng.integers(length, size=5)
        for sign in (1, -1):
            logits = sign * x
            loss, (dx,) = recorded(lambda t: _core.cross_entropy(t, target, reduction="none"), np.ones(5, dtype), logits)
            assert_close(loss, R.cross_entropy(logits, target, reduction="none"), dtype, length)
            assert_close(dx, R.cross_entropy_backward(1, logits, target, reduction="none"), dtype, gradient=True)


def test_kinds_of_classes(rng):
    x, target = rng.standard_normal((6, 9)), rng.integers(9, size=6)
    expected = _core.cross_entropy(x, target)
    for given in (target.astype(np.int32), target.astype(np.uint8), target.astype(">i8"), np.repeat(target, 2)[::2], tc.tensor(target)):
        assert np.asarray(_core.cross_entropy(x, given)) == expected
    assert np.asarray(_core.cross_entropy(np.asfortranarray(x), target)) == expected
    assert np.asarray(_core.cross_entropy(x.astype(">f8"), target)) == expected


def test_ignored_rows(isa):
    x = np.array([[1, 2, 3], [np.nan, 1, 2], [0, 0, 0]], np.float32)
    loss, (dx,) = recorded(lambda t: _core.cross_entropy(t, [0, 7, 1], ignore_index=7), None, x)
    kept = x[[0, 2]]
    assert_close(loss, R.cross_entropy(kept, [0, 1]), "float32", 3)
    assert_close(dx[[0, 2]], R.cross_entropy_backward(1, kept, [0, 1]), "float32", gradient=True)
    np.testing.assert_array_equal(dx[1], 0)
    assert np.isnan(_core.cross_entropy(x, [7, 7, 7], ignore_index=7))
    assert _core.cross_entropy(x, [7, 7, 7], ignore_index=7, reduction="sum") == 0
    assert np.isnan(_core.cross_entropy(np.ones((0, 3), np.float32), np.zeros(0, np.int64)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_cross_entropy_in_half_precision(dtype, rng):
    x, target = rng.standard_normal((6, 9)).astype(half(dtype)), rng.integers(9, size=6)
    loss, (dx,) = recorded(lambda t: _core.cross_entropy(t, target), None, x)
    assert_close(loss, R.cross_entropy(x, target), half(dtype))
    assert_close(dx, R.cross_entropy_backward(1, x, target), half(dtype), gradient=True)


def test_cross_entropy_bits_for_any_threads(isa, threads):
    rng = np.random.default_rng(6)
    for shape in [(3001, 10), (1500, 130)]:
        x, target = rng.standard_normal(shape).astype(np.float32), rng.integers(shape[1], size=shape[0])
        many = recorded(lambda t: _core.cross_entropy(t, target), None, x)
        _core.set_num_threads(1)
        one = recorded(lambda t: _core.cross_entropy(t, target), None, x)
        assert many[0] == one[0]
        np.testing.assert_array_equal(many[1][0], one[1][0])


def test_cross_entropy_errors():
    x = np.ones((2, 3), np.float32)
    for bad in (3, -1):
        with pytest.raises(ValueError, match=rf"target\[1\] \(flattened\) is {bad}, but there are 3 classes"):
            _core.cross_entropy(x, [0, bad])
    with pytest.raises(ValueError, match=r"target must have shape \(2,\)"):
        _core.cross_entropy(x, [0, 1, 2])
    with pytest.raises(ValueError, match=r"must have input's shape \(2, 3\)"):
        _core.cross_entropy(x, x[:1])
    with pytest.raises(
        ValueError, match=r"so the classes seem to be on the last axis; they belong on axis 1: pass input.swapaxes\(1, -1\)"
    ):
        _core.cross_entropy(np.ones((2, 4, 3)), np.zeros((2, 4), int))
    with pytest.raises(TypeError, match="target is bool"):
        _core.cross_entropy(x, [True, False])
    with pytest.raises(ValueError, match="reduction must be 'none', 'mean' or 'sum', got 'max'"):
        _core.cross_entropy(x, [0, 1], reduction="max")
    with pytest.raises(ValueError, match="label_smoothing must be between 0 and 1, got 2"):
        _core.cross_entropy(x, [0, 1], label_smoothing=2.0)
    with pytest.raises(ValueError, match=r"weight has shape \(2,\)"):
        _core.cross_entropy(x, [0, 1], np.ones(2, np.float32))


# ---- element by element -------------------------------------------------------------------------------------------------

SHAPES = [(), (1,), (5, 7), (15,), (16,), (17,), (31, 33), (3001,)]


def element_operands(rng, shape, dtype):
    x, t, p, w, pos = (rng.standard_normal(shape), rng.random(shape), rng.random(shape), rng.random(shape), rng.random(shape))
    return [np.asarray(a).astype(dtype) for a in (3 * x, t, p, w, pos)]


def check_elements(got, expected, gradients, wanted, dtype):
    assert_close(got, expected, dtype, max(4, np.size(wanted[0])), name="loss")
    for g, e in zip(gradients, wanted, strict=False):
        assert_close(g, e, dtype, gradient=True)


@floats
@reductions
def test_element_losses(isa, dtype, reduction, rng):
    for shape in SHAPES:
        x, t, p, w, pos = element_operands(rng, shape, dtype)
        dy = rng.standard_normal(shape).astype(dtype) if reduction == "none" else None
        d = 1 if dy is None else dy
        loss, gradients = recorded(lambda a, b: _core.mse_loss(a, b, reduction), dy, x, t)
        check_elements(loss, R.mse_loss(x, t, reduction), gradients, R.mse_loss_backward(d, x, t, reduction), dtype)
        for weight in (None, w):
            loss, gradients = recorded(lambda a, k=weight: _core.binary_cross_entropy(a, t, k, reduction), dy, p)
            wanted = R.binary_cross_entropy_backward(d, p, t, weight, reduction)
            check_elements(loss, R.binary_cross_entropy(p, t, weight, reduction), gradients, [wanted], dtype)
            for q in (None, pos):
                loss, gradients = recorded(lambda a, k=weight, m=q: _core.binary_cross_entropy_with_logits(a, t, k, m, reduction), dy, x)
                wanted = R.binary_cross_entropy_with_logits_backward(d, x, t, weight, q, reduction)
                check_elements(loss, R.binary_cross_entropy_with_logits(x, t, weight, q, reduction), gradients, [wanted], dtype)


def test_gradients_of_targets_and_weights_that_broadcast(isa, rng):
    x, t, p, _, _ = element_operands(rng, (5, 7), "float64")
    t, w, pos = 0.1 + 0.8 * t, rng.random(7), rng.random((5, 1))
    for f, reference, a in [
        (lambda a, b: _core.binary_cross_entropy(a, b, w), lambda a, b: R.binary_cross_entropy(a, b, w), 0.1 + 0.8 * p),
        (
            lambda a, b: _core.binary_cross_entropy_with_logits(a, b, w, pos),
            lambda a, b: R.binary_cross_entropy_with_logits(a, b, w, pos),
            x,
        ),
    ]:
        loss, gradients = recorded(f, None, a, t)
        assert_close(loss, reference(a, t), "float64")
        for got, wanted in zip(gradients, R.numerical_gradient(reference, [a, t]), strict=True):
            assert np.abs(got - wanted).max() <= 1e-8


def test_the_gradient_of_a_certain_logit_keeps_its_digits(isa):
    """PyTorch's sigmoid(x) - t, also where it is far below the numbers near 1 of which it is the difference."""
    x = np.array([-7, -20, -60, 7, 20, 60], np.float32)
    t = (x > 0).astype(np.float32)
    _, (dx,) = recorded(lambda a: _core.binary_cross_entropy_with_logits(a, t, reduction="none"), np.ones(6, np.float32), x)
    np.testing.assert_allclose(dx, np.where(x < 0, 1, -1) / (1 + np.exp(np.abs(x.astype(np.float64)))), rtol=1e-6)


def test_extreme_inputs(isa):
    x = np.array([1e4, -1e4, 0, 0, 1e4, -1e4, np.nan], np.float32)
    t = np.array([1, 0, 0, 1, 0, 1, 1], np.float32)
    loss, (dx,) = recorded(lambda a: _core.binary_cross_entropy_with_logits(a, t, reduction="none"), np.ones(7, np.float32), x)
    assert_close(loss[:6], [0, 0, np.log(2), np.log(2), 1e4, 1e4], "float32")
    assert_close(dx[:6], [0, 0, 0.5, -0.5, 1, -1], "float32", gradient=True)
    assert np.isnan(loss[6]) and np.isnan(dx[6])
    p, t = np.array([0, 1, 0, 1, np.nan], np.float32), np.array([0, 1, 1, 0, 1], np.float32)
    loss = _core.binary_cross_entropy(p, t, reduction="none")
    np.testing.assert_array_equal(loss[:4], [0, 0, 100, 100])
    assert np.isnan(loss[4])
    for f in (_core.mse_loss, _core.binary_cross_entropy, _core.binary_cross_entropy_with_logits):
        assert np.isnan(f(np.ones(0), np.ones(0)))
        assert f(np.ones(0), np.ones(0), reduction="sum") == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_element_losses_in_half_precision(dtype, rng):
    x, t, p, w, pos = element_operands(rng, (5, 7), half(dtype))
    loss, (dx,) = recorded(lambda a: _core.binary_cross_entropy_with_logits(a, t, w, pos), None, x)
    assert_close(loss, R.binary_cross_entropy_with_logits(x, t, w, pos), half(dtype))
    assert_close(dx, R.binary_cross_entropy_with_logits_backward(1, x, t, w, pos), half(dtype), gradient=True)
    assert_close(_core.mse_loss(x, t), R.mse_loss(x, t), half(dtype))
    assert_close(_core.binary_cross_entropy(p, t), R.binary_cross_entropy(p, t), half(dtype))


def test_strides_and_byte_order(rng):
    base = rng.standard_normal((6, 40))
    for x in (base.T, base[::-1, ::3], base.astype(">f8"), np.broadcast_to(base[0], (3, 40))):
        t = np.asarray(x)[::-1]
        loss, gradients = recorded(_core.mse_loss, None, x, t)
        check_elements(loss, R.mse_loss(x, t), gradients, R.mse_loss_backward(1, x, t), "float64")


def test_element_loss_bits_for_any_threads(isa, threads):
    x, t, _, _, _ = element_operands(np.random.default_rng(6), (300, 1001), "float32")
    many = recorded(_core.mse_loss, None, x, t), _core.binary_cross_entropy_with_logits(x, t)
    _core.set_num_threads(1)
    one = recorded(_core.mse_loss, None, x, t), _core.binary_cross_entropy_with_logits(x, t)
    assert many[0][0] == one[0][0] and many[1] == one[1]
    for a, b in zip(many[0][1], one[0][1], strict=True):
        np.testing.assert_array_equal(a, b)


def test_element_loss_errors():
    x = np.ones((2, 3), np.float32)
    for f in (_core.mse_loss, _core.binary_cross_entropy, _core.binary_cross_entropy_with_logits):
        with pytest.raises(ValueError, match=r"input has shape \(2, 3\) but target has \(3,\); they must be equal$"):
            f(x, x[0])
        with pytest.raises(ValueError, match=r"target has \(3, 2\); they must be equal$"):
            f(x, x.reshape(3, 2))
        with pytest.raises(ValueError, match=r"target has \(1, 3\); they must be equal: pass target.reshape\(input.shape\)$"):
            f(x[0], x[:1])
        with pytest.raises(TypeError, match="input is float32 but target is float64"):
            f(x, x.astype(np.float64))
        with pytest.raises(TypeError, match="target is int64"):
            f(x, np.ones((2, 3), np.int64))
        with pytest.raises(ValueError, match="reduction must be 'none', 'mean' or 'sum'"):
            f(x, x, reduction="average")
    with pytest.raises(ValueError, match="input has a value of 1.5 but must hold probabilities"):
        _core.binary_cross_entropy(x * 1.5, x)
    for target in (2.0, -0.5):
        with pytest.raises(ValueError, match=f"target has a value of {target:g} but must hold probabilities, from 0 to 1$"):
            _core.binary_cross_entropy(x, x * target)
    with pytest.raises(ValueError, match=r"pos_weight has shape \(2,\)|do not broadcast|broadcast"):
        _core.binary_cross_entropy_with_logits(x, x, None, np.ones(2, np.float32))
    with pytest.raises(ValueError, match=r"weight has shape \(4, 2, 3\), which does not broadcast to that of input, \(2, 3\)"):
        _core.binary_cross_entropy(x, x, np.ones((4, 2, 3), np.float32))
    with pytest.raises(NotImplementedError, match="weight requires a gradient"):
        _core.binary_cross_entropy(tc.tensor(x), tc.tensor(x), tc.tensor(x, requires_grad=True))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_weights_of_classes_get_a_gradient_or_an_error(reduction, rng):
    """As in PyTorch: with classes the weight is a constant, with probabilities it is an input like the others."""
    logits, weight = tc.tensor(rng.standard_normal((4, 3))), tc.tensor(rng.random(3), requires_grad=True)
    classes, probabilities = tc.tensor([0, 2, 1, 1]), tc.tensor(rng.random((4, 3)))
    with pytest.raises(NotImplementedError, match=r"weight requires a gradient, which this op does not give; pass weight.detach\(\)"):
        _core.cross_entropy(logits, classes, weight, reduction=reduction)
    with tc.no_grad():
        _core.cross_entropy(logits, classes, weight, reduction=reduction)
    assert _core.cross_entropy(logits, classes, weight.detach(), reduction=reduction).dtype == np.float64
    assert tc.testing.gradcheck(lambda w: _core.cross_entropy(logits, probabilities, w, reduction=reduction), weight)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@reductions
@pytest.mark.parametrize("loss", ["cross_entropy", "mse_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"])
def test_a_loss_is_one_node_that_keeps_its_input(loss, reduction, dtype, rng):
    """Casts and the reduction are part of the op, and it saves the input itself: to write there is an error, in half precision too."""
    x = tc.tensor(rng.random((4, 3, 2)).astype(half(dtype)), requires_grad=True)
    target = rng.integers(3, size=(4, 2)) if loss == "cross_entropy" else rng.random((4, 3, 2)).astype(half(dtype))
    y = getattr(_core, loss)(x, target, reduction=reduction)
    assert y.grad_fn == loss
    with tc.no_grad():
        x += 1
    with pytest.raises(RuntimeError, match=f"the backward of {loss} needs was written in place"):
        y.sum().backward()


# ---- golden -----------------------------------------------------------------------------------------------------------------

CASES = load("losses")


@pytest.mark.parametrize("name", CASES)
@floats
def test_golden(name, dtype):
    options, arrays = dict(CASES[name][0]), CASES[name][1]
    f = getattr(_core, options.pop("loss"))
    first = "logits" if "logits" in arrays else "x"
    target = arrays["target"]
    target = target.astype(dtype) if target.dtype.kind == "f" else target
    x, t = tc.tensor(arrays[first].astype(dtype), requires_grad=True), tc.tensor(target, requires_grad="f64.dtarget" in arrays)
    weights = {k: tc.tensor(arrays[k].astype(dtype)) for k in ("weight", "pos_weight") if k in arrays}
    loss = f(x, t, **weights, **options)
    assert_close(loss.numpy(), arrays["f64.y"], dtype, arrays[first].size)
    loss.backward(tc.tensor(arrays["dy"].astype(dtype)) if "dy" in arrays else None)
    scale = 1e3 if name == "bce_edges" and dtype == "float64" else 1  # PyTorch guards the division there by a float32 number
    wanted = arrays[f"f64.d{first}"]
    assert_close(x.grad.numpy(), wanted, dtype, gradient=True, scale=scale * np.abs(wanted).max())
    if t.requires_grad:
        assert_close(t.grad.numpy(), arrays["f64.dtarget"], dtype, gradient=True)
