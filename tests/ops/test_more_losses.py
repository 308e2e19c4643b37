"""Losses next to cross-entropy and squares, forward and backward, on every instruction set; what tests of all ops take (op_cases.py)."""

import math

import numpy as np
import pytest
import transformer_c as tc
from tolerance import assert_close
from transformer_c import _core
from transformer_c import functional as F
from transformer_c.testing import reference as R

REDUCTIONS = ["mean", "sum", "none"]
CLASSES = np.array([0, 2])


def values(function, *arrays):
    return function, *arrays


def _nll(d):
    n, c, m = d.length(), d.length(2), d.length()
    target, weight = d.rng.integers(0, c, (n, m)), d.positive(c)
    return values(lambda x: _core.nll_loss(x, target, weight, reduction="none"), d.normal(n, c, m))


def _differences(beta):
    """Differences away from 0 and from beta."""

    def case(d):
        x = d.apart(*d.shape(2))
        return values(lambda x, t: _core.smooth_l1_loss(x, t, beta), x, np.zeros_like(x))

    return case


def _divergence(log_target):
    def case(d):
        shape = d.shape(2)
        return values(lambda x, t: _core.kl_div(x, t, "none", log_target), d.normal(*shape), d.positive(*shape))

    return case


GRADCHECK = {
    "nll_loss": [_nll],
    "smooth_l1_loss": [_differences(0.0), _differences(1e3)],
    "kl_div": [_divergence(False), _divergence(True)],
}
BACKWARD_ARGUMENTS = {
    "nll_loss": lambda rng: [np.float64(1), rng.random((2, 3)), CLASSES, rng.random(3)],
    "smooth_l1_loss": lambda rng: [np.float64(1), rng.random((2, 3, 4)), rng.random((2, 3, 4))],
    "kl_div": lambda rng: [np.float64(1), rng.random((2, 3, 4)), rng.random((2, 3, 4))],
}
SAVED = {
    "`nll_loss` of input (N, C), classes (N)": [
        (lambda x, t: _core.nll_loss(x, t), ["N,C"], {"t": lambda rng: rng.integers(0, 200, 512)}),
    ],
    "`smooth_l1_loss`, `kl_div` of input, target (n)": [(_core.smooth_l1_loss, ["n"] * 2), (_core.kl_div, ["n"] * 2)],
}


def recorded(f, dy, *arrays):
    """The loss of Tensors that all require a gradient, and the gradients."""
    tensors = [tc.tensor(a, requires_grad=True) for a in arrays]
    loss = f(*tensors)
    loss.backward(None if dy is None else tc.tensor(dy))
    return loss.numpy(), [t.grad.numpy() for t in tensors]


def check(f, reference, backward, arrays, dtype, dy, **options):
    loss, gradients = recorded(lambda *a: f(*a, **options), dy, *arrays)
    expected = reference(*arrays, **options)
    scale = 3 * (arrays[0].size if options["reduction"] == "sum" else 1)  # terms of both signs
    assert_close(loss, expected, dtype, max(4, arrays[0].size), scale=max(scale, np.abs(expected).max(initial=0)), name="loss")
    wanted = backward(1 if dy is None else dy, *arrays, **options)
    for g, e in zip(gradients, wanted if isinstance(wanted, tuple) else [wanted], strict=True):
        assert_close(g, e, dtype, gradient=True, scale=max(np.abs(e).max(initial=0), 1e-30))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_differences_and_divergences(isa, dtype, reduction, rng):
    for shape in [(), (1,), (5, 7), (16,), (17,), (31, 33), (3001,)]:
        x, t = (np.asarray(s * rng.standard_normal(shape)).astype(dtype) for s in (3, 1))
        x.flat[0] = t.flat[0]
        dy = np.asarray(rng.standard_normal(shape)).astype(dtype) if reduction == "none" else None
        for beta in (0.0, 0.5, 2.0):
            check(_core.smooth_l1_loss, R.smooth_l1_loss, R.smooth_l1_loss_backward, [x, t], dtype, dy, beta=beta, reduction=reduction)
        for log in (False, True):
            target = t if log else np.abs(t) + x.dtype.type(0.1)
            check(_core.kl_div, R.kl_div, R.kl_div_backward, [x, target], dtype, dy, reduction=reduction, log_target=log)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_loss(isa, dtype, reduction, rng):
    for shape in [(5,), (1, 1), (7, 3), (17, 10), (5, 33), (3, 5, 4), (2, 70, 3, 2)]:
        x, C = (3 * rng.standard_normal(shape)).astype(dtype), shape[len(shape) > 1]
        target = rng.integers(C, size=shape[:1] + shape[2:] if len(shape) > 1 else ())
        if target.size > 1:
            target = np.where(rng.random(target.shape) < 0.3, -100, target)
            target.flat[0] = 0
        dy = rng.standard_normal(target.shape).astype(dtype) if reduction == "none" else None
        for weight in (None, rng.random(C).astype(dtype) + np.dtype(dtype).type(0.5)):
            check(
                lambda x, w=weight, t=target, **k: _core.nll_loss(x, t, w, **k),
                lambda x, w=weight, t=target, **k: R.nll_loss(x, t, w, **k),
                lambda dy, x, w=weight, t=target, **k: R.nll_loss_backward(dy, x, t, w, **k),
                [x], dtype, dy, reduction=reduction,
            )  # fmt: skip


LAYOUTS = {
    "contiguous": lambda x: tc.tensor(x),
    "classes last": lambda x: tc.tensor(np.moveaxis(x, 1, 2).copy()).movedim(2, 1),
    "permuted": lambda x: tc.tensor(x.transpose(2, 1, 0).copy()).permute(2, 1, 0),
    "stepped": lambda x: tc.tensor(np.repeat(x, 2, axis=2))[:, :, ::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ignore_index", [-100, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_nll_loss_takes_single_elements(dtype, weighted, ignore_index, layout, rng):
    """Of any strides and dtype: each loss, and each gradient, has the bits of one product."""
    wide = np.float64 if dtype == "float64" else np.float32
    x = LAYOUTS[layout](rng.standard_normal((5, 7, 70)).astype(wide)).to(dtype)
    target = rng.integers(7, size=(5, 70))
    target[0, :2] = ignore_index
    weight, dy = (tc.tensor(a.astype(wide)).to(dtype) for a in (rng.random(7), rng.standard_normal(target.shape)))
    counted = target != ignore_index
    classes = np.where(counted, target, 0)
    factors = np.where(counted, (numbers(weight) if weighted else np.ones(7, wide))[classes], wide(0))
    picked = np.take_along_axis(numbers(x), classes[:, None], 1)[:, 0]
    x.requires_grad_()
    loss = F.nll_loss(x, target, weight if weighted else None, ignore_index, reduction="none")
    loss.backward(dy)
    assert loss._dtype_name == x.grad._dtype_name == dtype
    np.testing.assert_array_equal(numbers(loss), numbers(tc.tensor(-factors * picked).to(dtype)))
    expected = np.zeros(x.shape, wide)
    np.put_along_axis(expected, classes[:, None], (-factors * numbers(dy))[:, None], 1)
    np.testing.assert_array_equal(numbers(x.grad), numbers(tc.tensor(expected).to(dtype)))
    x.grad = None
    mean = F.nll_loss(x, target, weight if weighted else None, ignore_index)
    mean.backward()
    expected = -(factors.astype(np.float64) * picked).sum() / factors.sum(dtype=np.float64)
    np.testing.assert_allclose(numbers(mean), expected, rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(numbers(x.grad).sum(dtype=np.float64), -1.0, rtol=1e-2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_nll_loss_of_halves_copies_no_rows(dtype):
    x = tc.zeros(64, 20_000, dtype=dtype, requires_grad=True)
    _core.memory_reset_peak()
    before = _core.memory_stats()["in_use"]
    loss = F.nll_loss(x, np.arange(64))
    assert _core.memory_stats()["peak_in_use"] - before < x.nbytes / 8
    loss.backward()
    assert _core.memory_stats()["peak_in_use"] - before < 1.5 * x.nbytes  # the gradient


def numbers(tensor):
    """In the dtype that losses are computed in."""
    wide = tensor if tensor._dtype_name == "float64" else tensor.float()
    return wide.detach().numpy()


def test_nll_loss_of_log_softmax_is_cross_entropy(rng):
    x, t = rng.standard_normal((6, 5, 3)), rng.integers(5, size=(6, 3))
    assert_close(F.nll_loss(F.log_softmax(x, 1), t), F.cross_entropy(x, t), "float64", 8)


def test_impossible_classes_and_empty_probabilities(isa):
    """Log probabilities of minus infinity, and targets that are 0: PyTorch's values."""
    x = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    assert F.nll_loss(x, [0, 1]) == 0 and F.nll_loss(x, [1, 1], reduction="sum") == np.inf
    np.testing.assert_array_equal(recorded(lambda t: F.nll_loss(t, [1, 1], reduction="sum"), None, x)[1][0], [[0, -1], [0, -1]])
    assert np.isnan(F.nll_loss(x, [7, 7], ignore_index=7))
    np.testing.assert_array_equal(F.kl_div(np.array([-1.0, -2.0]), np.array([0.0, 1.0]), reduction="none"), [0, 2])
    assert np.isnan(F.l1_loss(np.ones(0), np.ones(0))) and F.l1_loss(np.ones(0), np.ones(0), reduction="sum") == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves(dtype, rng):
    kind = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.float16
    x, t = (rng.random((5, 7)).astype(kind) for _ in range(2))
    assert_close(F.smooth_l1_loss(x, t, beta=0.5), R.smooth_l1_loss(x, t, 0.5), kind)
    assert_close(F.kl_div(x, t), R.kl_div(x, t), kind)
    assert_close(F.nll_loss(x, [0, 1, 2, 3, 4]), R.nll_loss(x, np.arange(5)), kind)
    for p in (1, 2, 3, float("inf")):
        big = (x * 300).astype(kind)  # squares beyond float16
        norm = np.linalg.norm(R.f64(big), p, axis=1, keepdims=True)
        assert_close(F.normalize(big, p), R.f64(big) / norm, kind)
    assert F.cosine_similarity(x, t).dtype == kind
    assert F.relu6(np.array([-1, 3, 9])).tolist() == [0, 3, 6]


def test_bits_for_any_threads(threads):
    rng = np.random.default_rng(6)
    x, t = (rng.standard_normal((300, 1001)).astype(np.float32) for _ in range(2))
    many = recorded(F.smooth_l1_loss, None, x, t)
    _core.set_num_threads(1)
    one = recorded(F.smooth_l1_loss, None, x, t)
    assert many[0] == one[0] and all(map(np.array_equal, many[1], one[1]))


def test_errors():
    x = np.ones((2, 3), np.float32)
    for f in (F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.kl_div):
        with pytest.raises(ValueError, match=r"input has shape \(2, 3\) but target has \(3,\); they must be equal$"):
            f(x, x[0])
        with pytest.raises(ValueError, match=r"target has \(3, 2\); they must be equal$"):
            f(x, x.reshape(3, 2))
        with pytest.raises(ValueError, match=r"target has \(1, 3\); they must be equal: pass target.reshape\(input.shape\)$"):
            f(x[0], x[:1])
        with pytest.raises(ValueError, match="reduction must be 'none'"):
            f(x, x, reduction="average")
    with pytest.raises(ValueError, match="beta must not be negative, got -1"):
        F.smooth_l1_loss(x, x, beta=-1)
    with pytest.raises(ValueError, match="delta must be positive, got 0"):
        F.huber_loss(x, x, delta=0)
    with pytest.raises(TypeError, match="int64; a floating dtype is needed"):
        F.huber_loss(np.arange(3), np.arange(3), delta=2.0)
    with pytest.raises(TypeError, match="target is float32; here it holds classes"):
        F.nll_loss(x, x)
    with pytest.raises(ValueError, match="there are 3 classes"):
        F.nll_loss(x, [0, 3])


# ---- distances ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, float("inf")])
def test_normalize(p, rng):
    x = rng.standard_normal((4, 5, 3))
    x[1, :, 2] = 0
    for dim in (0, 1, -1):
        norm = np.linalg.norm(x, p, axis=dim, keepdims=True) if p != 1.5 else (np.abs(x) ** p).sum(dim, keepdims=True) ** (1 / p)
        np.testing.assert_allclose(F.normalize(x, p, dim), x / np.maximum(norm, 1e-12), rtol=1e-12)
    t = tc.tensor(x, requires_grad=True)
    F.normalize(t, p).sum().backward()
    assert np.isfinite(t.grad.numpy()).all()
    np.testing.assert_allclose(t.grad.numpy()[1, :, 2], 1e12)  # a vector of zeros is divided by eps
    away = rng.uniform(0.5, 2, (3, 4)) * np.arange(1, 5)
    assert tc.testing.gradcheck(lambda t: F.normalize(t, p), tc.tensor(away, requires_grad=True))


def test_cosine_similarity(rng):
    a, b = rng.standard_normal((4, 5, 3)), rng.standard_normal((5, 1))
    for dim in (0, 1, 2, -1):
        x, y = np.broadcast_arrays(a, b)
        wanted = (x * y).sum(dim) / np.linalg.norm(x, axis=dim) / np.linalg.norm(y, axis=dim)
        np.testing.assert_allclose(F.cosine_similarity(a, b, dim), wanted, rtol=1e-12)
        assert tc.testing.gradcheck(lambda s, t, d=dim: F.cosine_similarity(s, t, d), [tc.tensor(v, requires_grad=True) for v in (a, b)])
    assert F.cosine_similarity(np.zeros((1, 3)), np.ones((1, 3))) == 0
    with pytest.raises(ValueError, match="eps must not be negative"):
        F.cosine_similarity(a, a, eps=-1)


# ---- next to PyTorch ---------------------------------------------------------------------------------------------------------------

WEIGHTED = (F.mse_loss, F.l1_loss, F.huber_loss)
LAYERS_OF_BOTH = {  # name: (arguments, names of the arrays it is called with)
    "L1Loss": ({"reduction": "sum"}, "xy"),
    "SmoothL1Loss": ({"beta": 0.3}, "xy"),
    "HuberLoss": ({"delta": 0.3}, "xy"),
    "KLDivLoss": ({"reduction": "batchmean", "log_target": True}, "xy"),
    "NLLLoss": ({"ignore_index": 1, "reduction": "sum"}, "xc"),
    "CosineSimilarity": ({"dim": 2}, "xy"),
    "LeakyReLU": ({"negative_slope": 0.2}, "x"),
    "ELU": ({"alpha": 0.5}, "x"),
    "Softplus": ({"beta": 2.0, "threshold": 1.0}, "x"),
    "GaussianNLLLoss": ({"full": True}, "xyv"),
    "CosineEmbeddingLoss": ({"margin": 0.1}, "abs"),
    "MarginRankingLoss": ({"margin": 0.3}, "xyd"),
    "TripletMarginLoss": ({"swap": True, "p": 3.0}, "xyz"),
    "PairwiseDistance": ({"keepdim": True}, "xy"),
    "Hardtanh": ({"min_val": -0.5}, "x"),
    "PReLU": ({"num_parameters": 5, "dtype": "float64"}, "x"),
    "CELU": ({"alpha": 0.5}, "x"),
    "GLU": ({"dim": 0}, "x"),
    "Softmin": ({"dim": 1}, "x"),
    "Hardshrink": ({"lambd": 0.3}, "x"),
    "Softshrink": ({"lambd": 0.3}, "x"),
    "Threshold": ({"threshold": 0.2, "value": -3.0}, "x"),
    "RReLU": ({"lower": 0.1}, "x"),
    **dict.fromkeys(("ReLU6", "Hardsigmoid", "Hardswish", "SELU", "Mish", "LogSigmoid", "Softsign", "Tanhshrink"), ({}, "x")),
}


def test_errors_of_layers_and_composed_functions():
    for call, message in [
        (lambda: F.glu(np.ones((2, 3))), r"whose length must be even; the shape is \(2, 3\)"),
        (lambda: F.prelu(np.ones((2, 3)), np.ones(4)), r"weight has 4 slopes but input \(2, 3\) has 3 channels"),
        (lambda: F.hardtanh(np.ones(2), 1.0, -1.0), "min_val must not be larger than max_val"),
        (lambda: F.celu(np.ones(2), 0.0), "alpha must not be 0"),
        (lambda: tc.nn.Hardtanh(1, 1), "min_val must be smaller"),
        (lambda: F.softshrink(np.ones(2), -0.1), "lambd must not be negative"),
        (lambda: tc.nn.Softshrink(-0.1), "lambd must not be negative"),
        (lambda: F.rrelu(np.ones(2), 0.5, 0.25), "lower must not be larger than upper"),
        (lambda: F.rrelu(np.ones(2), 0.5, math.inf, True), "lower and upper must be finite"),
        (lambda: F.rrelu(np.ones(2), -1e308, 1e308), "lower and upper must be finite"),
        *((lambda f=f: f(np.ones(2), np.ones(2), weight=np.ones(3)), r"weight has shape \(3,\); expected \(2,\)") for f in WEIGHTED),
        (lambda: F.mse_loss(np.ones(2), np.ones(2), "max", np.ones(2)), "reduction must be"),
        (lambda: F.margin_ranking_loss(np.ones(2), np.ones(2), np.ones(2), reduction="max"), "reduction must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(IndexError, match="dim 3 is out of range for a tensor of 2 axes"):
        F.glu(np.ones((2, 2)), 3)


def test_an_array_that_is_none_is_named():
    x = np.ones((2, 2, 3))
    for call, name in [
        (lambda: F.conv1d(x, None), "weight"),
        (lambda: F.prelu(None, x), "input"),
        (lambda: F.cosine_similarity(x, None), "x2"),
        (lambda: F.pairwise_distance(x, None), "x2"),
        (lambda: F.cosine_embedding_loss(x, x, None), "target"),
        (lambda: F.margin_ranking_loss(x, x, None), "target"),
        (lambda: F.triplet_margin_loss(x, None, x), "positive"),
        (lambda: F.gaussian_nll_loss(x, x, None), "var"),
    ]:
        with pytest.raises(TypeError, match=f"^{name} is None; expected a Tensor"):
            call()


@pytest.mark.parametrize(
    "name, shapes, accepted",  # accepted: PyTorch's answer
    [
        ("cosine_embedding_loss", [(3, 4), (3, 4), (3, 1)], False),
        ("cosine_embedding_loss", [(3, 4), (3, 4), ()], False),
        ("cosine_embedding_loss", [(3, 4), (4,), (3,)], False),
        ("cosine_embedding_loss", [(4,), (4,), ()], True),
        ("margin_ranking_loss", [(3, 1), (3,), (3,)], False),
        ("margin_ranking_loss", [(3,), (3,), ()], False),
        ("margin_ranking_loss", [(3,), (1,), (3,)], True),
        ("triplet_margin_loss", [(3, 4), (4,), (3, 4)], False),
        ("triplet_margin_loss", [(3, 4), (3, 4), (1, 4)], True),
        ("gaussian_nll_loss", [(3,), (3,), (3, 1)], False),
        ("gaussian_nll_loss", [(3, 2), (3, 2), ()], False),
        ("gaussian_nll_loss", [(3, 2), (3, 2), (3,)], True),
        ("gaussian_nll_loss", [(3, 2), (3, 2), (1, 2)], True),
    ],
)
def test_shapes_that_do_not_match_are_refused(name, shapes, accepted):
    for arrays in [[np.ones(s) for s in shapes], [tc.ones(*s) for s in shapes]]:
        if accepted:
            assert np.isfinite(float(getattr(F, name)(*arrays)))
            continue
        with pytest.raises(ValueError, match="shape"):
            getattr(F, name)(*arrays)


@pytest.mark.parametrize("reduction", ["mean", "batchmean"])
def test_a_mean_of_no_rows_is_nan(reduction):
    assert np.isnan(float(F.kl_div(np.zeros((0, 3)), np.zeros((0, 3)), reduction)))


def test_variances_below_0_are_refused():
    with pytest.raises(ValueError, match="var has a negative value"):
        F.gaussian_nll_loss(np.ones(2), np.ones(2), np.array([1.0, -1.0]))
    assert float(F.gaussian_nll_loss(np.array([1.0]), np.array([3.0]), 1.0)) == 2.0


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("delta", [float("inf"), 1e39, 1e6])
def test_a_huge_delta_gives_squares(delta, dtype):
    x = tc.tensor(np.array([3.0, -0.5], dtype), requires_grad=True)
    loss = F.huber_loss(x, tc.zeros(2, dtype=dtype), "sum", delta)
    loss.backward()
    assert loss.item() == pytest.approx(4.625, rel=1e-6) and x.grad.tolist() == pytest.approx([3.0, -0.5], rel=1e-6)
    assert loss.dtype == np.dtype(dtype)


def test_weights_of_probabilities_get_a_gradient(rng):
    x, t = tc.tensor(rng.standard_normal((3, 4)), requires_grad=True), tc.tensor(rng.random((3, 4)), requires_grad=True)
    weight, positive = (tc.tensor(rng.random(4) + 0.5, requires_grad=True) for _ in range(2))
    for reduction in REDUCTIONS:
        constant = F.binary_cross_entropy_with_logits(x, t, weight.detach(), reduction, positive.detach())
        np.testing.assert_allclose(F.binary_cross_entropy_with_logits(x, t, weight, reduction, positive).detach(), constant.detach())
        assert tc.testing.gradcheck(
            lambda *a, r=reduction: F.binary_cross_entropy_with_logits(a[0], a[1], a[2], r, a[3]), (x, t, weight, positive)
        )
        assert tc.testing.gradcheck(lambda p, r=reduction: F.binary_cross_entropy_with_logits(x, t, None, r, p), (positive,))
        assert tc.testing.gradcheck(lambda w, r=reduction: F.binary_cross_entropy(x.detach().sigmoid(), t, w, r), (weight,))


def test_celu_of_a_small_alpha():
    for dtype, large, alpha in (("float16", 6e4, 1e-3), ("float32", 1e30, 1e-20)):
        x = tc.tensor([large, 1.0, 0.0, -1.0, -large, float("nan")], dtype=dtype, requires_grad=True)
        y = F.celu(x, alpha)
        y.sum().backward()
        assert y.detach()[:2].tolist() == x.detach()[:2].tolist() and np.isnan(y[-1].item())
        np.testing.assert_allclose(y.detach()[2:5], [0, -alpha, -alpha], rtol=1e-3)
        assert x.grad[:5].tolist() == [1, 1, 1, 0, 0]
    assert tc.testing.gradcheck(lambda x: F.celu(x, 0.3), tc.tensor([-1.0, -0.1, 0.4], dtype="float64", requires_grad=True))


def test_softmin():
    x = np.array([[1.0, 2.0, 4.0], [0.0, 0.0, -1.0]])
    np.testing.assert_allclose(F.softmin(x, dim=1), F.softmax(-x, 1), rtol=1e-15)
    np.testing.assert_allclose(F.softmin(x, dim=0).sum(0), 1.0, rtol=1e-15)


SHRINKING = (F.hardshrink, F.softshrink, F.tanhshrink)


def test_halves_and_nan_of_composed_functions():
    x = np.array([-60000, -8, -1, 0, 1, 8, np.nan], np.float16)
    for function in (F.hardtanh, F.relu6, F.hardsigmoid, F.hardswish, F.selu, F.celu, F.mish, F.logsigmoid, F.softsign, *SHRINKING):
        with np.errstate(over="ignore"):
            y = function(x)
        assert y.dtype == np.float16 and np.isnan(y[-1]) and np.isfinite(y[1:-1]).all(), function.__name__
        assert tc.testing.gradcheck(function, tc.tensor([-4.0, -0.7, 0.4, 3.5, 7.0], dtype="float64", requires_grad=True))


@pytest.mark.parametrize("inplace", [False, True])
def test_inplace_is_accepted_and_changes_nothing(inplace):
    x = tc.tensor([-1.0, 0.5, 7.0])
    for name in ("relu", "silu", "relu6", "hardtanh", "hardsigmoid", "hardswish", "selu", "celu", "elu", "mish", "leaky_relu", "rrelu"):
        function = getattr(F, name)
        assert (function(x, inplace=inplace).numpy() == function(x).numpy()).all(), name
    assert F.dropout(x, 1.0, True, inplace).tolist() == [0, 0, 0] and F.dropout(x, 0.5, False, inplace=inplace) is x
    assert x.tolist() == [-1.0, 0.5, 7.0]


@pytest.mark.parametrize("name", LAYERS_OF_BOTH)
def test_layers_are_those_of_pytorch(name, rng):
    torch = pytest.importorskip("torch")
    options, given = LAYERS_OF_BOTH[name]
    arrays = {k: rng.standard_normal((4, 5, 3)) for k in "xyz"} | {k: rng.standard_normal((6, 3)) for k in "ab"}
    arrays |= {"c": rng.integers(0, 5, (4, 3)), "v": rng.random((4, 5, 3)) + 0.1}
    arrays |= {"s": np.array([1, -1, 1, -1, -1, 1]), "d": np.sign(rng.standard_normal((4, 5, 3)))}
    tc.manual_seed(3)
    torch.manual_seed(3)
    ours = getattr(tc.nn, name)(**options)
    theirs = getattr(torch.nn, name)(**{k: torch.float64 if k == "dtype" else v for k, v in options.items()})
    leaves = [tc.tensor(arrays[k], requires_grad=k not in "csd") for k in given]
    their_leaves = [torch.tensor(arrays[k], requires_grad=k not in "csd") for k in given]
    y, expected = ours(*leaves), theirs(*their_leaves)
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), rtol=1e-12, atol=1e-15)
    y.sum().backward()
    expected.sum().backward()
    pairs = [*zip(leaves, their_leaves, strict=True), *zip(ours.parameters(), theirs.parameters(), strict=True)]
    for a, b in pairs:
        if a.requires_grad:
            rtol = 1e-7 if name == "Hardsigmoid" else 1e-10  # PyTorch multiplies by a 1 / 6 of float32
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=rtol, atol=1e-14)
    assert repr(ours) == repr(theirs)
    tc.manual_seed(3)
    np.testing.assert_allclose(ours(*(arrays[k] for k in given)), y.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("function", WEIGHTED)
def test_weights_of_differences_are_pytorchs(function, reduction, dtype, rng):
    torch = pytest.importorskip("torch")
    arrays = [rng.standard_normal((4, 5)).astype(dtype) for _ in range(2)] + [rng.random((4, 5)).astype(dtype) + 0.1]
    ours, theirs = ([make(a).requires_grad_() for a in arrays] for make in (tc.tensor, torch.tensor))
    y = function(*ours[:2], reduction=reduction, weight=ours[2])
    expected = getattr(torch.nn.functional, function.__name__)(*theirs[:2], reduction=reduction, weight=theirs[2])
    y.sum().backward()
    expected.sum().backward()
    rtol = 1e-5 if dtype == "float32" else 1e-12
    for a, b in [(y.detach(), expected.detach()), *((a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))]:
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=rtol, atol=rtol / 10)
        assert a.dtype == dtype
    found = function(*arrays[:2], reduction=reduction, weight=arrays[2])
    np.testing.assert_allclose(found, y.detach().numpy(), rtol=rtol)
    assert found.dtype == dtype and type(found) is not tc.Tensor


@pytest.mark.parametrize("dtype", ["float16", "float32", ">f4"])
def test_numbers_among_arrays_do_not_change_the_dtype(dtype):
    x = np.array([[0.25, 0.5], [0.75, 0.125]], dtype)
    for function, number in (
        (lambda n: F.binary_cross_entropy(x, x, weight=n), 2.0),
        (lambda n: F.binary_cross_entropy_with_logits(x, x, pos_weight=n), 3),
        (lambda n: F.gaussian_nll_loss(x, x, n if np.ndim(n) == 0 else np.full_like(x, n)), np.float64(0.5)),
        (lambda n: F.prelu(-x, n), 0.25),
        (lambda n: F.prelu(-x, n), np.float32(0.25)),
    ):
        result = function(number)
        assert result.dtype == np.dtype(dtype).newbyteorder("=")
        np.testing.assert_array_equal(result, function(np.full((1,), number, x.dtype)))
    assert F.mse_loss(2.0, 3.0).item() == 1.0


def test_arrays_have_the_promoted_dtype(rng):
    """In which halves of two kinds meet in float32; arrays take that of a Tensor."""
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x = rng.standard_normal((2, 3))
    for dtypes, expected in (
        (("float16", "float32", "float16"), "float32"),
        ((bfloat16, "float16", "float16"), "float32"),
        ((bfloat16, "float16", "float64"), "float64"),
        ((bfloat16, bfloat16, bfloat16), "bfloat16"),
    ):
        assert F.triplet_margin_loss(*map(x.astype, dtypes)).dtype == expected
    assert F.mse_loss(tc.tensor(x, dtype="float32"), x).dtype == tc.float32
    with pytest.raises(TypeError, match="weight is int64; a floating dtype is needed"):
        F.linear(x, np.ones((2, 3), np.int64))
