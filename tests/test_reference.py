"""Tests the reference itself: analytic backwards against central differences, forwards against known values."""

import itertools
import math

import numpy as np
import pytest
from tolerance import assert_close, tolerance
from transformer_c.testing import reference as R


def check(f, backward, arrays, dy_shape, rng):
    """backward(dy) gives one gradient for each of `arrays`, the array arguments that f takes."""
    dy = rng.normal(size=dy_shape)
    analytic = backward(dy)
    analytic = analytic if isinstance(analytic, tuple) else (analytic,)
    numeric = R.numerical_gradient(f, arrays, dy)
    assert len(analytic) == len(numeric)
    for index, (a, n) in enumerate(zip(analytic, numeric, strict=True)):
        assert_close(a, n, scale=1e6 * (1 + np.abs(n).max()), name=f"gradient {index}")  # 1e-12 * 1e6: within 1e-6


# ---- tolerance -----------------------------------------------------------------------------------------------------


def test_tolerances_are_those_of_the_design():
    assert tolerance("float32", 64) == pytest.approx(1.6e-5)
    assert tolerance(np.float64, 64) == 1e-12
    assert tolerance(np.float32, gradient=True) == 5e-5


def test_close_accepts_what_is_within_and_refuses_what_is_not():
    expected = np.array([1.0, -4.0, np.inf])
    assert_close(np.array([1 + 7e-6, -4, np.inf], np.float32), expected, np.float32)
    with pytest.raises(AssertionError, match=r"result\[0\] is 1\.00001"):
        assert_close(np.array([1 + 1e-5, -4, np.inf], np.float32), expected, np.float32)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [([np.nan], [0.0]), ([0.0], [np.nan]), ([np.nan], [np.nan]), ([np.inf], [-np.inf]), ([1.0], [np.inf]), ([np.inf], [1.0])],
)
def test_nan_and_wrong_infinities_never_pass(actual, expected):
    for options in ({}, {"scale": np.inf}, {"gradient": True}):
        if "scale" in options and not (np.isnan(actual[0]) or np.isnan(expected[0])):
            continue  # an infinite scale allows any number, and no NaN
        with pytest.raises(AssertionError, match="result"):
            assert_close(np.array(actual), np.array(expected), np.float64, **options)


def test_close_refuses_other_shapes_and_dtypes():
    with pytest.raises(AssertionError, match="shape"):
        assert_close(np.zeros((1, 3)), np.zeros(3), np.float64)
    with pytest.raises(AssertionError, match="dtype float64, expected float32"):
        assert_close(np.zeros(3), np.zeros(3), np.float32)


def test_close_allows_twice_the_naive_error():
    expected = np.array([1.0, 2.0])
    naive = np.array([1.01, 2.0], np.float16)
    assert_close(np.array([1.0, 2.015], np.float16), expected, "float16", naive=naive)
    with pytest.raises(AssertionError, match="allowed"):
        assert_close(np.array([1.0, 2.03], np.float16), expected, "float16", naive=naive)


# ---- element-wise and products -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in R.ACTIVATIONS if name])
def test_activations(name, rng):
    f, backward = R.ACTIVATIONS[name]
    x = rng.normal(size=(3, 5)) * 2
    check(f, lambda dy: backward(dy, x), [x], x.shape, rng)


def test_activations_far_from_zero():
    x = np.array([-1e4, -40.0, 40.0, 1e4])
    for name in ("gelu", "gelu_tanh"):
        np.testing.assert_array_equal(R.ACTIVATIONS[name][0](x), [0, 0, 40, 1e4])
        np.testing.assert_array_equal(R.ACTIVATIONS[name][1](np.ones(4), x), [0, 0, 1, 1])
    np.testing.assert_allclose(R.sigmoid(x), [0, math.exp(-40), 1, 1], rtol=1e-15)
    assert np.isnan(R.relu([np.nan])).all()


@pytest.mark.parametrize(("bias", "residual"), list(itertools.product([True, False], repeat=2)))
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh"])
def test_linear(activation, bias, residual, rng):
    x, weight = rng.normal(size=(2, 3, 4)), rng.normal(size=(5, 4))
    extra = {"bias": rng.normal(size=5) if bias else None, "residual": rng.normal(size=(2, 3, 5)) if residual else None}
    names = [name for name, value in extra.items() if value is not None]

    def f(x, weight, *given):
        return R.linear(x, weight, activation=activation, **dict(zip(names, given, strict=True)))

    def backward(dy):
        return tuple(g for g in R.linear_backward(dy, x, weight, activation=activation, **extra) if g is not None)

    check(f, backward, [x, weight, *(extra[name] for name in names)], (2, 3, 5), rng)


def test_matmul_broadcasts(rng):
    a, b = rng.normal(size=(2, 1, 3, 4)), rng.normal(size=(5, 4, 2))
    check(R.matmul, lambda dy: R.matmul_backward(dy, a, b), [a, b], (2, 5, 3, 2), rng)


@pytest.mark.parametrize("packing", ["per_head", "stacked"])
def test_qkv_projection(packing, rng):
    heads, head_dim = 2, 3
    x, weight, bias = rng.normal(size=(2, 4, 5)), rng.normal(size=(18, 5)), rng.normal(size=18)

    def f(x, weight, bias):
        return np.stack(R.qkv_projection(x, weight, bias, heads, packing))

    check(f, lambda dy: R.qkv_projection_backward(*dy, x, weight, bias, heads, packing), [x, weight, bias], (3, 2, heads, 4, head_dim), rng)


def test_packings_name_the_rows():
    weight = np.arange(12.0)[:, None]  # 2 heads of 2 features; the projection of 1 gives the row's number
    q, k, v = R.qkv_projection(np.ones((1, 1)), weight, None, 2, "per_head")
    np.testing.assert_array_equal([q[:, 0], k[:, 0], v[:, 0]], [[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [10, 11]]])
    q, k, v = R.qkv_projection(np.ones((1, 1)), weight, None, 2, "stacked")
    np.testing.assert_array_equal([q[:, 0], k[:, 0], v[:, 0]], [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]]])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmaxes(axis, rng):
    x = rng.normal(size=(3, 4, 2)) * 3
    check(lambda x: R.softmax(x, axis), lambda dy: R.softmax_backward(dy, x, axis), [x], x.shape, rng)
    check(lambda x: R.log_softmax(x, axis), lambda dy: R.log_softmax_backward(dy, x, axis), [x], x.shape, rng)
    np.testing.assert_allclose(np.exp(R.log_softmax(x, axis)), R.softmax(x, axis), rtol=1e-13)
    np.testing.assert_allclose(x - np.expand_dims(R.logsumexp(x, axis), axis), R.log_softmax(x, axis), atol=1e-13)


# ---- attention -----------------------------------------------------------------------------------------------------


def test_scaled_dot_product_gives_the_tutorials_numbers():
    q = [[0.3367, 0.1288], [0.2345, 0.2303], [-1.1229, -0.1863]]
    k = [[2.2082, -0.6380], [0.4617, 0.2674], [0.5349, 0.8094]]
    v = [[1.1103, -1.6898], [-0.9890, 0.9580], [1.3221, 0.8172]]
    values, attention = R.scaled_dot_product(q, k, v)
    np.testing.assert_allclose(values, [[0.5698, -0.1520], [0.5379, -0.0265], [0.2246, 0.5556]], atol=1.2e-4)
    np.testing.assert_allclose(attention, [[0.4028, 0.2886, 0.3086], [0.3538, 0.3069, 0.3393], [0.1303, 0.4630, 0.4067]], atol=1e-4)


@pytest.mark.parametrize("mask_shape", [None, (3, 4), (2, 1, 4), (2, 2, 3, 4)])
def test_scaled_dot_product(mask_shape, rng):
    q, k, v = rng.normal(size=(2, 2, 3, 5)), rng.normal(size=(2, 1, 4, 5)), rng.normal(size=(2, 4, 2))
    mask = None if mask_shape is None else rng.random(mask_shape) > 0.4
    if mask is not None and mask_shape[-2] == 3:
        mask[..., 0, :] = False  # nothing left to attend to: uniform
        np.testing.assert_allclose(R.scaled_dot_product(q, k, v, mask)[1][..., 0, :], 0.25)
    dvalues, dattention = rng.normal(size=(2, 2, 3, 2)), rng.normal(size=(2, 2, 3, 4))

    def f(q, k, v):
        values, attention = R.scaled_dot_product(q, k, v, mask)
        return (values * dvalues).sum() + (attention * dattention).sum()

    for a, n in zip(R.scaled_dot_product_backward(dvalues, q, k, v, mask, dattention), R.numerical_gradient(f, [q, k, v]), strict=True):
        np.testing.assert_allclose(a, n, atol=1e-7)


ATTENTION_CASES = {
    "plain": {},
    "boolean mask": {"attn_mask": (np.arange(30).reshape(5, 6) % 3 > 0)},
    "mask with empty rows": {"attn_mask": (np.arange(5)[:, None] % 2 > 0) & np.ones(6, bool)},
    "additive mask": {"attn_mask": np.where(np.arange(30).reshape(5, 6) % 4 == 1, -np.inf, np.linspace(-1, 1, 30).reshape(5, 6))},
    "causal": {"is_causal": True},
    "causal with offsets a batch element": {"is_causal": True, "causal_offset": np.array([1, -2])},
    "window": {"window": (2, 1), "causal_offset": 1},
    "window open to the left": {"window": (None, 0)},
    "key lengths": {"key_lengths": np.array([0, 4])},
    "softcap": {"softcap": 1.5, "scale": 0.9},
    "everything": {
        "attn_mask": np.arange(24).reshape(2, 2, 1, 6) % 5 > 0, "is_causal": True, "causal_offset": 1, "window": (3, None),
        "key_lengths": np.array([6, 5]), "softcap": 2.0, "scale": 1.1,
    },
}  # fmt: skip


@pytest.mark.parametrize("empty_rows", ["zero", "uniform"])
@pytest.mark.parametrize("case", ATTENTION_CASES)
def test_attention(case, empty_rows, rng):
    q, k, v = rng.normal(size=(2, 2, 5, 4)), rng.normal(size=(2, 2, 6, 4)), rng.normal(size=(2, 2, 6, 3))
    bias, multiplier = rng.normal(size=(2, 5, 6)), (rng.random((2, 2, 5, 6)) > 0.3) / 0.7
    dvalues, dattention, dlse = rng.normal(size=(2, 2, 5, 3)), rng.normal(size=(2, 2, 5, 6)), rng.normal(size=(2, 2, 5))
    options = {**ATTENTION_CASES[case], "empty_rows": empty_rows, "dropout_multiplier": multiplier}

    def f(q, k, v, bias):
        values, attention, lse = R.attention(q, k, v, bias=bias, **options)
        return (values * dvalues).sum() + (attention * dattention).sum() + (np.where(np.isfinite(lse), lse, 0) * dlse).sum()

    analytic = R.attention_backward(dvalues, q, k, v, bias=bias, dattention=dattention, dlse=dlse, **options)
    for a, n in zip(analytic, R.numerical_gradient(f, [q, k, v, bias]), strict=True):
        np.testing.assert_allclose(a, n, atol=1e-7)


def test_attention_shares_heads_and_their_gradients(rng):
    q, k, v = rng.normal(size=(2, 6, 3, 4)), rng.normal(size=(2, 2, 5, 4)), rng.normal(size=(2, 2, 5, 3))
    check(
        lambda q, k, v: R.attention(q, k, v, enable_gqa=True)[0],
        lambda dy: R.attention_backward(dy, q, k, v, enable_gqa=True)[:3], [q, k, v], (2, 6, 3, 3), rng,
    )  # fmt: skip
    one = R.attention(q[:, 3:6], k[:, 1:], v[:, 1:])[0]
    np.testing.assert_allclose(R.attention(q, k, v, enable_gqa=True)[0][:, 3:6], one, rtol=1e-14)


def test_attention_is_the_tutorials_where_both_are_defined(rng):
    q, k, v = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 5, 4)), rng.normal(size=(2, 5, 4))
    mask = rng.random((3, 5)) > 0.3
    mask[1] = False
    values, attention = R.scaled_dot_product(q, k, v, mask)
    ours = R.attention(q, k, v, mask, empty_rows="uniform")
    np.testing.assert_allclose(ours[0], values, rtol=1e-13)
    np.testing.assert_allclose(ours[1], attention, rtol=1e-13)
    assert (ours[2][:, 1] == -np.inf).all() and np.isfinite(ours[2][:, [0, 2]]).all()


def test_nothing_comes_through_from_masked_keys(rng):
    q, k, v, dvalues = (rng.normal(size=(1, 4, 3)) for _ in range(4))
    mask = np.ones((4, 4), bool)
    mask[:, 2] = False

    def everything():
        return R.attention(q, k, v, mask) + R.attention_backward(dvalues, q, k, v, mask)[:3]

    clean = everything()
    k[:, 2], v[:, 2] = np.nan, np.inf
    for before, after in zip(clean, everything(), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-12, atol=1e-15)


def test_empty_rows(rng):
    q, k, v = (rng.normal(size=(1, 3, 2)) for _ in range(3))
    mask = np.array([[True], [False], [True]]) & np.ones(3, bool)
    values, attention, lse = R.attention(q, k, v, mask)
    assert not values[:, 1].any() and not attention[:, 1].any() and lse[0, 1] == -np.inf
    np.testing.assert_allclose(R.attention(q, k, v, mask, empty_rows="uniform")[0][:, 1], v.mean(1))
    with pytest.raises(ValueError, match="attend to nothing"):
        R.attention(q, k, v, mask, empty_rows="raise")
    values, attention, _ = R.attention(q, k[:, :0], v[:, :0])
    assert values.shape == (1, 3, 2) and not values.any() and attention.shape == (1, 3, 0)


# ---- normalisation and losses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalized_ndim", [1, 2])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(affine, normalized_ndim, rng):
    x = rng.normal(size=(3, 2, 5))
    arrays = [x, *(rng.normal(size=x.shape[-normalized_ndim:]) for _ in range(2 if affine else 0))]
    options = {"eps": 1e-3, "normalized_ndim": normalized_ndim}
    check(
        lambda *a: R.layer_norm(*a, **options)[0],
        lambda dy: tuple(g for g in R.layer_norm_backward(dy, *arrays, **options) if g is not None), arrays, x.shape, rng,
    )  # fmt: skip
    y, mean, rstd = R.layer_norm(x, normalized_ndim=normalized_ndim, eps=0)
    assert mean.shape == rstd.shape == x.shape[: 3 - normalized_ndim]
    axes = tuple(range(3 - normalized_ndim, 3))
    np.testing.assert_allclose([y.mean(axes), y.std(axes)], [np.zeros_like(mean), np.ones_like(mean)], atol=1e-12)


def test_add_layer_norm(rng):
    arrays = [rng.normal(size=(3, 5)), rng.normal(size=(3, 5)), rng.normal(size=5), rng.normal(size=5)]
    m = (rng.random((3, 5)) > 0.2) / 0.8
    check(
        lambda *a: R.add_layer_norm(*a, multiplier=m)[0],
        lambda dy: R.add_layer_norm_backward(dy, *arrays, multiplier=m), arrays, (3, 5), rng,
    )  # fmt: skip


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["rows", "positions", "probabilities", "one row"])
def test_cross_entropy(kind, smoothing, reduction, rng):
    shape = {"rows": (6, 4), "positions": (3, 4, 2), "probabilities": (3, 4, 2), "one row": (4,)}[kind]
    losses = shape[:1] + shape[2:] if len(shape) > 1 else ()
    target = R.softmax(rng.normal(size=shape), 1) if kind == "probabilities" else rng.integers(4, size=losses)
    if kind in ("rows", "positions"):
        target.flat[1] = -100
    logits = rng.normal(size=shape)
    options = {"weight": rng.random(4) + 0.5, "label_smoothing": smoothing, "reduction": reduction}
    check(
        lambda x: R.cross_entropy(x, target, **options),
        lambda dy: R.cross_entropy_backward(dy, logits, target, **options), [logits], losses if reduction == "none" else (), rng,
    )  # fmt: skip


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_other_losses(reduction, rng):
    x, t, w, pw = rng.normal(size=(3, 4)) * 2, rng.random((3, 4)), rng.random((3, 4)) + 0.5, rng.random(4) + 0.5
    p = R.sigmoid(x)
    shape = x.shape if reduction == "none" else ()
    cases = [
        (lambda x, t: R.mse_loss(x, t, reduction), lambda dy: R.mse_loss_backward(dy, x, t, reduction), [x, t]),
        (
            lambda p: R.binary_cross_entropy(p, t, w, reduction),
            lambda dy: R.binary_cross_entropy_backward(dy, p, t, w, reduction),
            [p],
        ),
        (
            lambda x: R.binary_cross_entropy_with_logits(x, t, w, pw, reduction),
            lambda dy: R.binary_cross_entropy_with_logits_backward(dy, x, t, w, pw, reduction),
            [x],
        ),
    ]
    for f, backward, arrays in cases:
        check(f, backward, arrays, shape, rng)
    np.testing.assert_allclose(
        R.binary_cross_entropy_with_logits(x, t, reduction=reduction), R.binary_cross_entropy(p, t, reduction=reduction), rtol=1e-12
    )


def test_cross_entropy_at_the_edges():
    assert np.isnan(R.cross_entropy(np.zeros((2, 3)), [-100, -100]))  # a mean over nothing
    assert R.cross_entropy(np.zeros((2, 3)), [-100, -100], reduction="sum") == 0
    assert R.binary_cross_entropy([0.0, 1.0], [1.0, 0.0], reduction="sum") == 200
    assert R.cross_entropy([[1e4, 0.0]], [1]) == 1e4


# ---- indexing, pooling, modules ------------------------------------------------------------------------------------


def test_embedding_and_one_hot(rng):
    indices, weight = np.array([[0, 2, 2], [1, 0, 4]]), rng.normal(size=(5, 3))
    check(lambda w: R.embedding(indices, w), lambda dy: R.embedding_backward(dy, indices, weight), [weight], (2, 3, 3), rng)
    dy = rng.normal(size=(2, 3, 3))
    padded = R.embedding_backward(dy, indices, weight, padding_idx=2)
    assert not padded[2].any() and np.array_equal(padded[[0, 1, 4]], R.embedding_backward(dy, indices, weight)[[0, 1, 4]])
    np.testing.assert_array_equal(R.one_hot([2, 0], 3), [[0, 0, 1], [1, 0, 0]])


def test_max_pooling(rng):
    x = rng.normal(size=(2, 5, 3))
    check(R.global_max_pool1d, lambda dy: R.global_max_pool1d_backward(dy, x), [x], (2, 3), rng)
    np.testing.assert_array_equal(R.global_max_pool1d_backward([[1.0]], [[[2.0], [7.0], [7.0]]]), [[[0], [1], [0]]])


def test_positional_encoding():
    pe = R.positional_encoding(5, 7)
    assert pe.shape == (1, 5, 7)
    np.testing.assert_allclose(pe[0, 3], [f(3 / 10000 ** (i / 7)) for i in (0, 2, 4, 6) for f in (math.sin, math.cos)][:7], rtol=1e-14)


def block_params(rng):
    """Size 6, 2 heads, hidden size 5."""
    sizes = {
        "self_attn.qkv_proj": (18, 6), "self_attn.o_proj": (6, 6), "linear_net.0": (5, 6), "linear_net.3": (6, 5), "norm1": (6,),
        "norm2": (6,),
    }  # fmt: skip
    return {
        f"{name}.{kind}": rng.normal(size=size if kind == "weight" else size[:1])
        for name, size in sizes.items()
        for kind in ("weight", "bias")
    }


def test_encoder_block_masks_and_residual_path(rng):
    params, x, mask = block_params(rng), rng.normal(size=(2, 4, 6)), np.tril(np.ones((4, 4)))
    y, attention = R.encoder_block(params, x, 2, mask)
    assert attention.shape == (2, 2, 4, 4) and not np.triu(attention, 1).any()
    np.testing.assert_allclose(R.encoder_block(params, x[:, :2], 2, mask[:2, :2])[0], y[:, :2], rtol=1e-12)  # causal
    for other_rank in (mask[None], np.broadcast_to(mask, (2, 4, 4)), mask[None, None]):
        np.testing.assert_array_equal(R.encoder_block(params, x, 2, other_rank)[0], y)
    without = R.encoder_block(params, x, 2, norm_first=True, activation="gelu", multipliers=(0, 1, 0))[0]
    np.testing.assert_array_equal(without, x)


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_block(norm_first, activation, dropped, rng):
    params, x, mask = block_params(rng), rng.normal(size=(2, 3, 6)), np.tril(np.ones((3, 3)))
    options = {"norm_first": norm_first, "activation": activation, "eps": 1e-3}
    if dropped:
        options["multipliers"] = tuple((rng.random((2, 3, size)) > 0.3) / 0.7 for size in (6, 5, 6))
    names = list(params)

    def backward(dy):
        dx, gradients = R.encoder_block_backward(dy, params, x, 2, mask, **options)
        assert gradients.keys() == params.keys()
        return (dx, *(gradients[name] for name in names))

    check(
        lambda x, *values: R.encoder_block(dict(zip(names, values, strict=True)), x, 2, mask, **options)[0],
        backward,
        [x, *params.values()],
        x.shape,
        rng,
    )


# ---- optimizers ----------------------------------------------------------------------------------------------------


def test_optimizers_by_hand():
    state = {}
    p = R.sgd([1.0], [0.5], state, lr=0.1, momentum=0.9)
    assert R.sgd(p, [0.5], state, lr=0.1, momentum=0.9) == pytest.approx(1 - 0.05 - 0.095)
    assert R.sgd([1.0], [0.5], {}, lr=0.1, weight_decay=0.2, nesterov=True, momentum=0.5) == pytest.approx(1 - 0.1 * 0.7 * 1.5)
    assert R.adam([1.0], [123.0], {}, lr=0.1) == pytest.approx(0.9)  # the first step has the size of lr
    assert R.adamw([1.0], [123.0], {}, lr=0.1, weight_decay=0.5) == pytest.approx(0.85)
    assert R.nadam([1.0], [3.0], {}, lr=0.1, betas=(0.0, 0.5)) == pytest.approx(0.9)  # without momentum, by the size of lr
    assert R.radam([1.0], [2.0], {}, lr=0.125) == 0.75  # the first steps go by the gradient itself
    assert R.adafactor([2.0], [5.0], {}, lr=0.1) == pytest.approx(2 - 2 * 0.1)  # the first step has the size of lr times the parameter
    assert R.adagrad([1.0], [4.0], {}, lr=0.1, initial_accumulator_value=9.0) == pytest.approx(0.92)
    assert R.rmsprop([1.0], [4.0], {}, lr=0.1, alpha=0.75) == pytest.approx(0.8)
    assert R.rmsprop([1.0], [4.0], {}, lr=0.1, alpha=0.75, eps=12, eps_inside_sqrt=True) == pytest.approx(0.9)
    assert R.rmsprop([1.0], [4.0], {}, lr=0.1, alpha=0.5, centered=True) == pytest.approx(0.8)


def test_clipping(rng):
    gradients = [rng.normal(size=(3, 2)), rng.normal(size=4)]
    clipped, total = R.clip_grad_norm(gradients, 0.5)
    assert total == pytest.approx(math.sqrt(sum((g**2).sum() for g in gradients)))
    assert math.sqrt(sum((g**2).sum() for g in clipped)) == pytest.approx(0.5, rel=1e-5)
    for before, after in zip(gradients, R.clip_grad_norm(gradients, 1e3)[0], strict=True):
        np.testing.assert_array_equal(before, after)
    assert np.abs(np.concatenate([g.ravel() for g in R.clip_grad_value(gradients, 0.1)])).max() == 0.1


def test_cosine_warmup_factors():
    wanted = {0: 0, 50: 0.4992293, 100: 0.9938442, 101: 0.9937207, 1000: 0.5, 1999: 6.1685e-7, 2000: 0}
    for step, factor in wanted.items():
        assert R.cosine_warmup_factor(step, 100, 2000) == pytest.approx(factor, abs=5e-8)
