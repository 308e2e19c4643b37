"""tc.ops: every op without the tape, forward and backward separately, gives the same as the tape."""

import re
from pathlib import Path

import numpy as np
import op_lists
import pytest
import transformer_c as tc
from op_cases import of_all_ops
from tolerance import assert_close
from transformer_c import _core, ops

CSRC = Path(__file__).parents[2] / "csrc"


def what_unary_saves():
    return dict(re.findall(r"^TC_UNARY\((\w+), (\w+),", (CSRC / "kernels/unary.def").read_text(), re.M))


def taped(f, arrays, dy):
    """The result, and the gradients of the arrays, of one recorded call."""
    tensors = [tc.tensor(a, requires_grad=True) for a in arrays]
    y = f(*tensors)
    y.backward(gradient=tc.tensor(dy))
    return np.asarray(y), [np.asarray(t.grad) for t in tensors]


def check(f, arrays, forward, backward, dtype="float32"):
    """forward(*arrays) gives y; backward(dy, y) the gradients."""
    y = forward(*arrays)
    dy = np.random.default_rng(1).standard_normal(y.shape).astype(y.dtype)
    want, gradients = taped(f, arrays, dy)
    np.testing.assert_array_equal(y, want)
    found = backward(dy, y)
    for n, (a, e) in enumerate(zip(found if isinstance(found, tuple) else (found,), gradients, strict=True)):
        assert isinstance(a, np.ndarray) and a.flags.writeable and not np.shares_memory(a, dy)
        assert_close(a, e.astype(np.float64), dtype, gradient=True, name=f"gradient {n}")


DTYPES = ["float32", "float64", "float16"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", op_lists.functions(CSRC.parent, "unary"))
def test_functions_of_one_argument(name, dtype, rng):
    x = rng.uniform(0.5, 2.0, (3, 5)).astype(dtype)
    saved = what_unary_saves()[name]
    backward = getattr(ops, f"{name}_backward")
    pick = {"NOTHING": lambda dy, y: backward(dy), "X": lambda dy, y: backward(dy, x), "Y": backward}[saved]
    check(getattr(_core, name), [x], getattr(ops, f"{name}_forward"), pick, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", op_lists.functions(CSRC.parent, "binary"))
def test_functions_of_two_arguments(name, dtype, rng):
    for shapes in [((3, 5), (3, 5)), ((3, 1), (5,)), ((), (4,))]:
        a, b = (rng.uniform(0.5, 2.0, s).astype(dtype) for s in shapes)
        check(
            getattr(_core, name), [a, b], getattr(ops, f"{name}_forward"), lambda dy, y: getattr(ops, f"{name}_backward")(dy, a, b), dtype
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_products(dtype, rng):
    for shapes in [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((4,), (2, 4, 5)), ((4,), (4,)), ((2, 1, 3, 4), (3, 4, 2)), ((0, 4), (4, 5))]:
        a, b = (rng.standard_normal(s).astype(dtype) for s in shapes)
        check(_core.matmul, [a, b], ops.matmul_forward, lambda dy, y: ops.matmul_backward(dy, a, b), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
def test_reductions(axis, dtype, rng):
    x = rng.permutation(np.arange(24.0) - 7.3).reshape(2, 3, 4).astype(dtype)
    for keepdims in (False, True):
        for name in ("sum", "mean"):
            check(lambda x: getattr(_core, name)(x, axis, keepdims), [x], lambda x: getattr(ops, f"{name}_forward")(x, axis, keepdims),
                  lambda dy, y: getattr(ops, f"{name}_backward")(dy, x, axis), dtype)  # fmt: skip
        for name in ("max", "min"):
            check(lambda x: getattr(_core, name)(x, axis, keepdims), [x], lambda x: getattr(ops, f"{name}_forward")(x, axis, keepdims),
                  lambda dy, y: getattr(ops, f"{name}_backward")(dy, x, y, axis), dtype)  # fmt: skip
        check(lambda x: _core.var(x, axis, keepdims, correction=0), [x], lambda x: ops.var_forward(x, axis, keepdims, correction=0),
              lambda dy, y: ops.var_backward(dy, x, axis, correction=0), dtype)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses(reduction, dtype, rng):
    x, t, w = (rng.uniform(0.1, 0.9, (4, 3)).astype(dtype) for _ in range(3))
    check(lambda x, t: _core.mse_loss(x, t, reduction), [x, t], lambda x, t: ops.mse_loss_forward(x, t, reduction),
          lambda dy, y: ops.mse_loss_backward(dy, x, t, reduction), dtype)  # fmt: skip
    for name in ("binary_cross_entropy", "binary_cross_entropy_with_logits"):
        check(lambda x, t: getattr(_core, name)(x, t, w[0], reduction=reduction), [x, t],
              lambda x, t: getattr(ops, f"{name}_forward")(x, t, w[0], reduction=reduction),
              lambda dy, y: getattr(ops, f"{name}_backward")(dy, x, t, w[0], reduction=reduction), dtype)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 5, 3), (2, 5, 3, 2)], ids=str)
def test_cross_entropy(shape, reduction, dtype, rng):
    x = rng.standard_normal(shape).astype(dtype)
    classes = rng.integers(0, 5, shape[:1] + shape[2:] if len(shape) > 1 else ())
    if classes.ndim:
        classes.flat[0] = -100
    weight = rng.uniform(0.5, 2.0, 5).astype(dtype)
    kw = {"reduction": reduction, "label_smoothing": 0.1}
    loss, top, log_sum = ops.cross_entropy_forward(x, classes, weight, **kw)
    rows_first = np.moveaxis(x, 1, -1).reshape(-1, 5) if len(shape) > 1 else x[None]
    np.testing.assert_array_equal(top, rows_first.max(-1))
    check(lambda x: _core.cross_entropy(x, classes, weight, **kw), [x], lambda x: loss,
          lambda dy, y: ops.cross_entropy_backward(dy, x, classes, top, log_sum, weight, **kw), dtype)  # fmt: skip


def test_choices_triangles_and_pooling(rng):
    condition, a, b = rng.random((3, 4)) < 0.5, rng.standard_normal((3, 4)), rng.standard_normal(4)
    check(lambda a, b: _core.where(condition, a, b), [a, b], lambda a, b: ops.where_forward(condition, a, b),
          lambda dy, y: ops.where_backward(dy, condition, a, b), "float64")  # fmt: skip
    check(lambda a: _core.masked_fill(a, condition, 2.0), [a], lambda a: ops.masked_fill_forward(a, condition, 2.0),
          lambda dy, y: ops.masked_fill_backward(dy, condition), "float64")  # fmt: skip
    check(lambda a: _core.clamp(a, -0.5, 0.5), [a], lambda a: ops.clamp_forward(a, -0.5, 0.5),
          lambda dy, y: ops.clamp_backward(dy, a, y), "float64")  # fmt: skip
    for name in ("triu", "tril"):
        check(lambda a: getattr(_core, name)(a, 1), [a], lambda a: getattr(ops, f"{name}_forward")(a, 1),
              lambda dy, y: getattr(ops, f"{name}_backward")(dy, 1), "float64")  # fmt: skip
    x = rng.standard_normal((2, 3, 4))
    check(_core.global_max_pool1d, [x], ops.global_max_pool1d_forward, lambda dy, y: ops.global_max_pool1d_backward(dy, x, y), "float64")
    indices = np.array([[0, 2], [2, 1]])
    check(lambda w: _core.embedding(indices, w), [a], lambda w: ops.embedding_forward(indices, w),
          lambda dy, y: ops.embedding_backward(dy, indices, 3), "float64")  # fmt: skip
    check(lambda a: _core.dropout(a, 0.5, 1, 2), [a], lambda a: ops.dropout_forward(a, 0.5, 1, 2),
          lambda dy, y: ops.dropout_backward(dy, 0.5, 1, 2), "float64")  # fmt: skip
    for name in ("softmax", "log_softmax"):
        check(lambda a: getattr(_core, name)(a, 0), [a], lambda a: getattr(ops, f"{name}_forward")(a, 0),
              lambda dy, y: getattr(ops, f"{name}_backward")(dy, y, 0), "float64")  # fmt: skip


def half_of(dtype):
    return np.dtype("float16") if dtype == "float16" else np.dtype(pytest.importorskip("ml_dtypes").bfloat16)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_come_back_as_halves(dtype, rng):
    """What is kept for the backward is in float32; results and gradients are in the dtype given."""
    half = half_of(dtype)

    def draw(*shape):
        return rng.standard_normal(shape).astype(half)

    x, w, gamma = draw(2, 3, 4), draw(5, 4), draw(4)
    y, mean, rstd = ops.layer_norm_forward(x, gamma, gamma)
    gradients = [*ops.layer_norm_backward(x, x, gamma, mean, rstd)]
    total = ops.add_layer_norm_forward(x, x, gamma, gamma)
    gradients += ops.add_layer_norm_backward(x, total[1], gamma, *total[2:])
    pre = ops.linear_forward(x, w, draw(5), "gelu")
    gradients += ops.linear_backward(pre[0], x, w, pre[1], "gelu")
    heads = ops.qkv_projection_forward(x, draw(12, 4), draw(12), 2)
    gradients += ops.qkv_projection_backward(*heads, x, draw(12, 4), 2)
    bias, mask = draw(3, 3), draw(3)
    values, attention, shift, total_weight = ops.attention_forward(x, x, x, bias=bias, attn_mask=mask)
    found = ops.attention_backward(values, x, x, x, values, shift, total_weight, bias=bias, attn_mask=mask)
    gradients += found
    assert shift.dtype == total_weight.dtype == np.float32
    assert all(r.dtype == half for r in (y, total[0], pre[0], *heads, values, attention, *gradients))
    tensors = [tc.tensor(a, requires_grad=True) for a in (x, x, x, bias)]
    taped_values = _core.attention(*tensors[:3], bias=tensors[3], attn_mask=mask)[0]
    taped_values.backward(gradient=tc.tensor(values))
    np.testing.assert_array_equal(values, np.asarray(taped_values))
    for a, t in zip(found, tensors, strict=True):
        assert_close(a, np.asarray(t.grad).astype(np.float64), dtype, scale=2.0)


# ---- completeness, errors -------------------------------------------------------------------------------------------------------------

# recorded ops that compute nothing: their gradients are views, copies and joins of dy
MOVES = {
    "reshape",
    "permute",
    "expand",
    "slice",
    "split",
    "index",
    "gather",
    "scatter",
    "cat",
    "stack",
    "clone",
    "cast",
    "item assignment",
    "custom_op",
}
NAMES = {"triangle": "triu"}


def test_every_recorded_op_is_here_in_both_directions():
    recorded = set(op_lists.recorded(CSRC.parent))
    assert recorded >= MOVES
    for name in recorded - MOVES:
        for direction in ("forward", "backward"):
            f = f"{NAMES.get(name, name)}_{direction}"
            assert f in ops.__all__ and getattr(ops, f).__doc__, f


def test_all_is_all():
    assert sorted(ops.__all__) == ops.__all__ and len(set(ops.__all__)) == len(ops.__all__)
    assert {n.rsplit("_", 1)[0] + "_forward" for n in ops.__all__} == {n for n in ops.__all__ if n.endswith("_forward")}
    assert {n.rsplit("_", 1)[0] + "_backward" for n in ops.__all__} == {n for n in ops.__all__ if n.endswith("_backward")}


X, Y = np.ones((2, 3)), np.ones((2, 4))
ROW, HEAD = np.ones(2), np.ones((2, 3, 4))
CLASSES = np.array([0, 1])


def leaf():
    return tc.ones(2, 3, requires_grad=True, dtype="float64")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ops.add_backward(Y, X, X), ValueError, r"dy has shape \(2, 4\) but the result has \(2, 3\); they must be equal"),
        (lambda: ops.mul_backward(X, X, X.astype("float32")), TypeError, "a is float64 but b is float32"),
        (lambda: ops.mul_backward(X, X.astype(int), X.astype(int)), TypeError, "a is int64; a floating dtype is needed"),
        (lambda: ops.mul_backward(X.astype("float32"), X, X), TypeError, "dy is float32 but a is float64"),
        (lambda: ops.div_backward(X, X, Y), ValueError, "do not broadcast"),
        (lambda: ops.matmul_backward(X, X, Y.T), ValueError, "3 columns but b has 4 rows"),
        (lambda: ops.matmul_backward(X, X, X.T), ValueError, r"dc has shape \(2, 3\) but the result has \(2, 2\)"),
        (lambda: ops.sum_backward(X, X, 0), ValueError, r"dy has shape \(2, 3\) but the result has \(1, 3\)"),
        (lambda: ops.sum_backward(np.ones(2), X, 0), ValueError, r"dy has shape \(2,\) but the result has \(3,\)"),
        (lambda: ops.mean_backward(np.ones(3), X, 2), IndexError, "axis 2 is out of range"),
        (lambda: ops.max_backward(np.ones(3), X, np.ones(2), 0), ValueError, r"y has shape \(2,\)"),
        (lambda: ops.var_backward(np.ones(3), X, 1), ValueError, r"dy has shape \(3,\) but the result has \(2,\)"),
        (
            lambda: ops.layer_norm_backward(Y, X, np.ones(3), ROW, ROW),
            ValueError,
            r"dy has shape \(2, 4\); with x of shape \(2, 3\) it must have",
        ),
        (lambda: ops.layer_norm_backward(X, X, np.ones(4), ROW, ROW), ValueError, r"gamma has shape \(4,\); .* it must have \(3,\)"),
        (lambda: ops.layer_norm_backward(X, X, np.ones(3), ROW, np.ones(3)), ValueError, r"rstd has shape \(3,\); .* it must have \(2,\)"),
        (lambda: ops.add_layer_norm_backward(X, X, None, np.ones(1), ROW), ValueError, r"mean has shape \(1,\)"),
        (
            lambda: ops.attention_backward(HEAD, HEAD, HEAD, HEAD, HEAD[:, :1], X, X),
            ValueError,
            r"values has shape \(2, 1, 4\); the forward gives \(2, 3, 4\)",
        ),
        (lambda: ops.attention_backward(HEAD[:1], HEAD, HEAD, HEAD, HEAD, X, X), ValueError, r"dvalues has shape \(1, 3, 4\)"),
        (
            lambda: ops.attention_backward(HEAD, HEAD, HEAD, HEAD, HEAD, X, ROW),
            ValueError,
            r"sum has shape \(2,\); the forward gives \(2, 3\)",
        ),
        (lambda: ops.where_backward(X, X, X, X), TypeError, "condition is float64"),
        (lambda: ops.where_backward(Y, X > 0, X, X), ValueError, r"dy has shape \(2, 4\)"),
        (lambda: ops.mse_loss_backward(X, X, X), ValueError, r"dloss has shape \(2, 3\) but the result has \(\)"),
        (lambda: ops.mse_loss_backward(np.ones(()), X, Y), ValueError, r"input has shape \(2, 3\) but target has \(2, 4\)"),
        (lambda: ops.mse_loss_backward(np.ones(()), X, X, "median"), ValueError, "reduction must be"),
        (lambda: ops.cross_entropy_forward(X, X), TypeError, "target is float64; here it holds classes"),
        (lambda: ops.cross_entropy_backward(np.ones(()), X, CLASSES, np.ones(3), np.ones(2)), ValueError, r"top has shape \(3,\)"),
        (lambda: ops.cross_entropy_backward(np.ones(2), X, CLASSES, np.ones(2), np.ones(2)), ValueError, r"dloss has shape \(2,\)"),
        (lambda: ops.cross_entropy_backward(np.ones(()), X, CLASSES + 2, np.ones(2), np.ones(2)), ValueError, "there are 3 classes"),
        (
            lambda: ops.cross_entropy_backward(np.ones(()), X, np.zeros(3, int), np.ones(2), np.ones(2)),
            ValueError,
            "target must have shape",
        ),
        (lambda: _core.softmax(X, dim=0, axis=1), TypeError, "axis=1 and dim=0 are two names of one argument"),
        (lambda: _core.linear(X, X, None, 5), TypeError, "activation must be a str, not int"),
        (lambda: _core.set_float32_precision(7), ValueError, "there is no precision 7; expected 0 to 2"),
        (lambda: _core.from_dlpack_capsule(np.zeros([1] * 17).__dlpack__()), ValueError, "the array has 17 axes; at most 16 are supported"),
        (lambda: _core.record_custom([leaf()], (), tuple), ValueError, "a custom op has 1 to 8 results, got 0"),
        (lambda: _core.record_custom([leaf()], (X,) * 9, tuple), ValueError, "a custom op has 1 to 8 results, got 9"),
        (
            lambda: _core.record_custom([leaf()], (X,), lambda *_: (X, X))[0].sum().backward(),
            ValueError,
            "the backward of a custom op gave 2 gradients for 1 inputs",
        ),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def good_arguments():
    """{op: arguments of its backward}, for shapes (2, 3, 4) where that is possible."""
    rng = np.random.default_rng(3)
    a = lambda *shape: rng.random(shape)
    x, flat, one = a(2, 3, 4), a(2, 3), np.float64(1)
    heads, normalized, added = ops.attention_forward(x, x, x), ops.layer_norm_forward(x, a(4), a(4)), ops.add_layer_norm_forward(x, x)
    _, top, log_sum = ops.cross_entropy_forward(flat, CLASSES)
    arguments = {name: [x, x] for name in rows_of_unary_that_save()}
    arguments |= {name: [x] for name in set(op_lists.functions(CSRC.parent, "unary")) - set(arguments)}
    arguments |= {name: [x, x, x] for name in op_lists.functions(CSRC.parent, "binary")}
    arguments |= {name: [flat, x, -1] for name in ("sum", "mean", "var")} | {name: [flat, x, flat, -1] for name in ("max", "min")}
    arguments |= {name: case(rng) for name, case in of_all_ops("BACKWARD_ARGUMENTS").items()}
    return arguments | {
        "add_layer_norm": [x, added[1], a(4), *added[2:]],
        "attention": [x, x, x, x, heads[0], *heads[2:]],
        "binary_cross_entropy": [one, x, x, x],
        "clamp": [x, x, x],
        "binary_cross_entropy_with_logits": [one, x, x, x, x],
        "cross_entropy": [one, flat, CLASSES, top, log_sum, a(3)],
        "dropout": [x, 0.5, 1, 2],
        "embedding": [a(2, 4), CLASSES, 3],
        "global_max_pool1d": [a(2, 4), x, a(2, 4)],
        "layer_norm": [x, x, a(4), *normalized[1:]],
        "linear": [a(2, 3, 5), x, a(5, 4)],
        "log_softmax": [x, x],
        "masked_fill": [x, x > 0.5],
        "matmul": [a(2, 3, 5), x, a(4, 5)],
        "mse_loss": [one, x, x],
        "qkv_projection": [*(a(2, 2, 3, 2) for _ in range(3)), x, a(12, 4), 2],
        "softmax": [x, x],
        "tril": [x],
        "triu": [x],
        "where": [x, x > 0.5, x, x],
    }


def rows_of_unary_that_save():
    return [name for name, saved in what_unary_saves().items() if saved != "NOTHING"]


WRONG = [np.ones(s).astype(t) for t in ("f8", "f4", "f2", "i8", "?") for s in
         [(), (1,), (3,), (24,), (2, 3), (1, 3, 4), (2, 1, 4), (2, 3, 1), (3, 2, 4), (0,), (2, 3, 0), (2, 2, 3, 4), (4, 3, 2)]]  # fmt: skip


@pytest.mark.parametrize("name", [n.removesuffix("_backward") for n in ops.__all__ if n.endswith("_backward")])
def test_an_argument_of_another_shape_or_dtype_is_refused_or_meant(name):
    """Under a sanitizer this says as well that nothing beyond an argument is read."""
    f, arguments = getattr(ops, f"{name}_backward"), good_arguments()[name]
    f(*arguments)
    refused = 0
    for i in range(len(arguments)):
        for wrong in [*WRONG, None, "a", np.ones((4, 3, 2)).T, np.broadcast_to(1.0, (2, 3, 4))]:
            try:
                f(*arguments[:i], wrong, *arguments[i + 1 :])
            except (ValueError, TypeError, IndexError):
                refused += 1
    assert refused >= len(WRONG) / 3
