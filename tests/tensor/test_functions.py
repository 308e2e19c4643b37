"""PyTorch's functions of tensors against NumPy in float64: values, gradients, edges, errors. test_torch_samples.py has PyTorch's own samples."""

import inspect
import itertools
import math
from functools import partial

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import tensor_functions
from transformer_c.tensor_functions import drawing
from transformer_c.testing import gradcheck

NAN, INF = np.nan, np.inf
X = np.array([[1.0, -2.0, 3.0, 3.0], [0.5, 4.0, -1.0, 2.0], [2.0, 2.0, 0.0, -3.0]])
V = np.array([0.5, -1.5, 2.0])


def logsumexp(x, axis):
    top = x.max(axis, keepdims=True)
    return np.log(np.exp(x - top).sum(axis)) + top.squeeze(axis)


# name: (ours, NumPy's), of X
CASES = {
    "clamp": (lambda x: tc.clamp(x, -1, 2), lambda x: x.clip(-1, 2)),
    "clamp of rows": (lambda x: tc.clamp(x, min=X[0], max=X[0] + 1), lambda x: np.minimum(np.maximum(x, X[0]), X[0] + 1)),
    "clip": (lambda x: tc.clip(x, max=1.5), lambda x: np.minimum(x, 1.5)),
    "std": (tc.std, lambda x: x.std(ddof=1)),
    "std of rows": (lambda x: tc.std(x, 1, correction=0), lambda x: x.std(1)),
    "std of columns, as in NumPy": (lambda x: tc.std(x, axis=0, ddof=0), lambda x: x.std(0)),
    "std kept": (lambda x: tc.std(x, axis=(0, 1), keepdims=True), lambda x: x.std((0, 1), ddof=1, keepdims=True)),
    "var": (lambda x: tc.var(x, 0, False, True), lambda x: x.var(0, keepdims=True)),
    "norm": (tc.norm, lambda x: np.sqrt((x * x).sum())),
    "norm 1": (lambda x: tc.norm(x, 1, 0), lambda x: abs(x).sum(0)),
    "norm 3": (lambda x: tc.norm(x, 3, dim=-1, keepdim=True), lambda x: (abs(x) ** 3).sum(-1, keepdims=True) ** (1 / 3)),
    "norm infinity": (lambda x: tc.norm(x, INF, 1), lambda x: abs(x).max(1)),
    "norm -infinity": (lambda x: tc.norm(x, -INF, 0), lambda x: abs(x).min(0)),
    "norm 0": (lambda x: tc.norm(x, 0), lambda x: np.float64((x != 0).sum())),
    "cumsum": (lambda x: tc.cumsum(x, 1), lambda x: x.cumsum(1)),
    "cumprod": (lambda x: tc.cumprod(x, 1), lambda x: x.cumprod(1)),
    "cumprod of rows": (lambda x: tc.cumprod(x, axis=0), lambda x: x.cumprod(0)),
    "prod": (tc.prod, np.prod),
    "prod of columns": (lambda x: tc.prod(x, 0), lambda x: x.prod(0)),
    "logsumexp": (lambda x: tc.logsumexp(x, -1), lambda x: logsumexp(x, -1)),
    "logsumexp of each": (lambda x: tc.logsumexp(x, axis=()), lambda x: x),
    "logsumexp of all": (lambda x: tc.logsumexp(x, (0, 1)), lambda x: np.log(np.exp(x).sum())),
    "amax": (lambda x: tc.amax(x, 1), lambda x: x.max(1)),
    "amin": (lambda x: tc.amin(x, (0, 1), keepdim=True), lambda x: x.min((0, 1), keepdims=True)),
    "max along axis": (lambda x: tc.max(x, axis=1), lambda x: x.max(1)),
    "max of two": (lambda x: tc.max(x, X[:1]), lambda x: np.maximum(x, X[:1])),
    "sort": (lambda x: tc.sort(x, 0).values, lambda x: np.sort(x, 0)),
    "sort down": (lambda x: tc.sort(x, descending=True)[0], lambda x: -np.sort(-x)),
    "topk": (lambda x: tc.topk(x, 2).values, lambda x: -np.sort(-x)[:, :2]),
    "topk smallest": (lambda x: tc.topk(x, 2, 0, largest=False).values, lambda x: np.sort(x, 0)[:2]),
    "isnan": (tc.isnan, np.isnan),
    "isinf": (tc.isinf, np.isinf),
    "isfinite": (tc.isfinite, np.isfinite),
    "logical_not": (tc.logical_not, np.logical_not),
    "nonzero": (tc.nonzero, np.argwhere),
    "masked_select": (lambda x: tc.masked_select(x, X[:, :1] > 0.75), lambda x: x[[0, 2]].reshape(-1)),
    "masked_fill": (lambda x: tc.masked_fill(x, X > 1, 7.0), lambda x: np.where(x > 1, 7.0, x)),
    "repeat": (lambda x: tc.repeat(x, 2, 1, 3), lambda x: np.tile(x, (2, 1, 3))),
    "repeat_interleave": (lambda x: tc.repeat_interleave(x, 2, 1), lambda x: np.repeat(x, 2, 1)),
    "repeat_interleave by counts": (lambda x: tc.repeat_interleave(x, np.array([0, 2, 1]), 0), lambda x: np.repeat(x, [0, 2, 1], 0)),
    "roll": (lambda x: tc.roll(x, (1, -2), (0, 1)), lambda x: np.roll(x, (1, -2), (0, 1))),
    "roll flat": (lambda x: tc.roll(x, 5), lambda x: np.roll(x, 5)),
    "outer": (lambda x: tc.outer(x[0], x[1]), lambda x: np.outer(x[0], x[1])),
    "index_select": (lambda x: tc.index_select(x, 1, np.array([3, 0, 3])), lambda x: x[:, [3, 0, 3]]),
    "index_select of a Tensor": (lambda x: tc.index_select(x, -2, tc.tensor([2, 0, 2])), lambda x: x[[2, 0, 2]]),
    "einsum": (lambda x: tc.einsum("ij,kj->ik", x, x), lambda x: x @ x.T),
    "einsum of three": (lambda x: tc.einsum("ij,kj,k->i", x, x, V), lambda x: np.einsum("ij,kj,k->i", x, x, V)),
    "einsum of a trace": (lambda x: tc.einsum("ii,i", x[:, :3], x[:, 3]), lambda x: np.einsum("ii,i", x[:, :3], x[:, 3])),
    "einsum with more axes": (lambda x: tc.einsum("...j,...->...", x, V), lambda x: np.einsum("...j,...->...", x, V)),
    "add": (lambda x: tc.add(x, X[0], alpha=-2), lambda x: x - 2 * X[0]),
    "sub": (lambda x: tc.sub(x, X[0], alpha=0.5), lambda x: x - 0.5 * X[0]),
    "div down": (lambda x: tc.div(x, 0.75, rounding_mode="floor"), lambda x: np.floor(x / 0.75)),
    "div to zero": (lambda x: tc.div(x, 0.75, rounding_mode="trunc"), lambda x: np.trunc(x / 0.75)),
    "reshape": (lambda x: tc.reshape(x, (2, -1)), lambda x: x.reshape(2, -1)),
    "reshape by name": (lambda x: tc.reshape(x, shape=(2, -1)), lambda x: x.reshape(2, -1)),
    "broadcast_to by name": (lambda x: tc.broadcast_to(x, size=(2, *x.shape)), lambda x: np.broadcast_to(x, (2, *x.shape))),
    "repeat by an array": (lambda x: tc.repeat(x, np.array([2, 1, 3])), lambda x: np.tile(x, (2, 1, 3))),
    "roll twice along an axis": (lambda x: tc.roll(x, (1, 1, 4), (1, 1, 0)), lambda x: np.roll(x, (2, 1), (1, 0))),
    "roll by arrays": (lambda x: tc.roll(x, np.array([1, -2]), np.array([0, -1])), lambda x: np.roll(x, (1, -2), (0, -1))),
    "repeat by name": (lambda x: tc.repeat(x, repeats=(2, 1, 3)), lambda x: np.tile(x, (2, 1, 3))),
    "tile by name": (lambda x: tc.tile(x, dims=(2,)), lambda x: np.tile(x, (2,))),
    "transpose": (lambda x: tc.transpose(x, 0, 1), lambda x: x.T),
    "squeeze": (lambda x: tc.squeeze(tc.unsqueeze(x, 1)), lambda x: x),
    "sum": (lambda x: tc.sum(x, 1), lambda x: x.sum(1)),
    "softmax": (lambda x: tc.softmax(x, dim=0), lambda x: np.exp(x) / np.exp(x).sum(0)),
    "log_softmax": (lambda x: tc.log_softmax(x, 1), lambda x: x - logsumexp(x, 1)[:, None]),
}
NO_GRADIENT = {"isnan", "isinf", "isfinite", "logical_not", "nonzero", "div down", "div to zero", "norm 0"}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, rng):
    ours, theirs = CASES[name]
    expected = theirs(X)
    as_array, as_tensor = ours(X), ours(tc.tensor(X))
    assert isinstance(as_array, np.ndarray) and as_array.flags.writeable and isinstance(as_tensor, tc.Tensor)
    for found in (as_array, as_tensor.numpy()):
        np.testing.assert_allclose(found, expected, rtol=1e-13)
        assert found.dtype == np.asarray(expected).dtype and found.shape == np.shape(expected)
    np.testing.assert_allclose(ours(X.astype(np.float32)), expected, rtol=1e-5, atol=1e-6)
    if name not in NO_GRADIENT:
        far = rng.permutation(np.linspace(-3, 3.1, X.size)).reshape(X.shape)  # no ties, nothing at a bound or a kink
        assert gradcheck(ours, far)


def test_every_function_is_a_method_or_takes_arrays():
    for name in tensor_functions.__all__:
        function = getattr(tensor_functions, name)
        assert name in tc.__all__ or name == "ValuesAndIndices"
        assert function.__doc__, name
        if inspect.isfunction(function) and not hasattr(tc.Tensor, name):
            assert name in {
                "allclose",
                "bucketize",
                "cartesian_prod",
                "cdist",
                "eye",
                "isin",
                "linspace",
                "meshgrid",
                "einsum",
                "hstack",
                "is_tensor",
                "searchsorted",
                "std_mean",
                "tril_indices",
                "triu_indices",
                "var_mean",
                "vstack",
            }, name


def test_lists_and_scalars():
    assert tc.clamp([1.0, 5.0], 2, 3).dtype == np.float64 and tc.sum([1, 2]) == 3
    assert tc.isnan(NAN) and tc.clamp(np.float32([1, 5]), 2.5).dtype == np.float32
    assert tc.tensor([1, 5]).clamp(2).dtype == np.int64 and tc.tensor([1, 5]).clamp(2.5).dtype == np.float32
    assert isinstance(tc.clamp(X, tc.tensor(0.0, dtype="float64")), tc.Tensor)


# ---- the pair of max, min -----------------------------------------------------------------------------------------------------------


def test_max_along_dim_is_a_pair_and_along_axis_the_values():
    x = tc.tensor(X, requires_grad=True)
    values, indices = x.max(1)  # a batch of 2 would unpack in silence, if it were the values alone
    assert values.tolist() == [3.0, 4.0, 2.0] and indices.tolist() == [2, 1, 0]
    for pair in (x.max(dim=1), tc.max(x, -1), tc.max(tc.tensor(X), 1)):
        assert pair.values.tolist() == [3.0, 4.0, 2.0] and pair.indices.tolist() == [2, 1, 0]
    assert x.min(0, keepdim=True).values.shape == (1, 4) and x.min(0, True).indices.tolist() == [[1, 0, 1, 2]]
    assert x.max(axis=1).tolist() == [3.0, 4.0, 2.0] and x.max(axis=(0, 1)).item() == 4 and x.max().item() == 4
    assert isinstance(tc.max(X, 1), tuple) and tc.max(X, axis=1).tolist() == [3.0, 4.0, 2.0]
    values.sum().backward()
    assert x.grad.tolist() == [[0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]]  # the first of equal ones
    x.grad = None
    x.amax(1).sum().backward()
    assert x.grad.tolist() == [[0, 0, 0.5, 0.5], [0, 1, 0, 0], [0.5, 0.5, 0, 0]]
    assert tc.tensor(3).max(0) == (3, 0) and tc.maximum(x, 1.0).shape == x.shape
    pair = tc.tensor([[1.0, NAN, NAN]]).max(1)
    assert np.isnan(pair.values.item()) and pair.indices.item() == 1
    for call, error in ((lambda: x.max(True), TypeError), (lambda: x.max((0, 1)), TypeError), (lambda: x.max(2), IndexError)):
        with pytest.raises(error, match="dim|int"):
            call()


# ---- edges ---------------------------------------------------------------------------------------------------------------------------------


def gradient(function, x):
    t = tc.tensor(x, requires_grad=True)
    function(t).sum().backward()
    return t.grad.numpy()


def test_nan_and_infinity():
    bad = np.array([1.0, NAN, INF, -INF])
    np.testing.assert_array_equal(tc.clamp(bad, -2, 2), [1, NAN, 2, -2])
    np.testing.assert_array_equal(tc.clamp(np.ones(2), np.array([NAN, 0.0])), [NAN, 1])
    np.testing.assert_array_equal(tc.isfinite(bad), np.isfinite(bad))
    np.testing.assert_array_equal(tc.isinf(bad), np.isinf(bad))
    assert np.isnan(tc.norm(bad)) and np.isnan(tc.logsumexp(bad, 0)) and np.isnan(tc.amax(bad))
    assert tc.logsumexp(np.array([-INF, -INF]), 0) == -INF and tc.logsumexp(np.array([INF, 1.0]), 0) == INF
    values, indices = tc.sort(bad)
    np.testing.assert_array_equal(values, [-INF, 1, INF, NAN])
    assert indices.tolist() == [3, 0, 2, 1] and tc.topk(bad, 1).indices.tolist() == [1]


def test_slopes_at_zero_are_those_of_pytorch():
    zeros = np.zeros((2, 3))
    for function in (tc.norm, lambda x: tc.norm(x, 3, 1), lambda x: tc.norm(x, 0.5), lambda x: tc.std(x, 1), lambda x: tc.norm(x, 1)):
        np.testing.assert_array_equal(gradient(function, zeros), 0.0)
    np.testing.assert_array_equal(gradient(lambda x: tc.logsumexp(x, 0), np.full(3, -INF)), 0.0)
    np.testing.assert_array_equal(gradient(tc.prod, np.array([0.0, 2.0, 3.0])), [6, 0, 0])
    np.testing.assert_array_equal(gradient(tc.prod, np.array([0.0, 0.0, 3.0])), 0)
    np.testing.assert_array_equal(gradient(lambda x: x.clamp(0.0, 1.0), np.array([0.0, 1.0, 2.0, -1.0])), [1, 1, 0, 0])


def test_empty():
    empty = tc.zeros(0, 3)
    assert tc.prod(empty, 0).tolist() == [1, 1, 1] and tc.prod(tc.zeros(0)).item() == 1 and tc.norm(empty).item() == 0
    assert tc.cumsum(empty, 0).shape == (0, 3) and tc.sort(empty, 1).values.shape == (0, 3) and tc.topk(empty, 2, 1).indices.shape == (0, 2)
    assert tc.nonzero(empty).shape == (0, 2) and tc.nonzero(tc.tensor(1)).shape == (1, 0) and tc.logsumexp(empty, 0).tolist() == [-INF] * 3
    assert tc.repeat(empty, 2, 2).shape == (0, 6) and tc.roll(empty, 1, 0).shape == (0, 3) and tc.linspace(0, 1, 0).shape == (0,)
    assert tc.einsum("ij,ij->j", empty, empty).tolist() == [0, 0, 0] and tc.eye(0).shape == (0, 0) and tc.clamp(empty, 0).shape == (0, 3)
    for call in (lambda: tc.amax(empty, 0), lambda: tc.max(empty), lambda: empty.min(0)):
        with pytest.raises(ValueError, match="no elements"):
            call()


def test_no_axes():
    x = tc.tensor(2.0)
    assert x.sort().values.item() == 2 and x.topk(1).indices.item() == 0 and x.cumsum(0).item() == 2 and x.prod(0).item() == 2
    assert x.std(correction=0).item() == 0 and x.norm(dim=0).item() == 2 and x.logsumexp(0).item() == 2 and x.amax(-1).item() == 2
    assert x.repeat(3).tolist() == [2, 2, 2] and x.repeat_interleave(2).tolist() == [2, 2] and x.roll(1).item() == 2
    assert x.gather(0, tc.tensor(0)).item() == 2 and x.masked_select(tc.tensor(True)).tolist() == [2]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int32"])
def test_products_have_the_bits_of_recorded_ones(dtype, threads):
    """And those of integers are exact, or wrap around."""
    rng = np.random.default_rng(3)
    for shape in ((1, 1), (2, 3), (7, 64), (65, 9), (300, 130), (3, 5000)):
        x = tc.tensor(rng.uniform(0.9, 1.1, shape) if tc.zeros(0, dtype=dtype).is_floating_point() else rng.integers(-3, 4, shape)).to(
            dtype
        )
        for view in (x, x.T, x[:, ::2], x[-1:].expand(4, shape[1])):
            for axis in (None, 0, 1):
                product = view.prod() if axis is None else view.prod(axis)
                if not x.is_floating_point():
                    np.testing.assert_array_equal(product, view.numpy().astype(np.int64).prod(axis))
                    continue
                recorded = view.clone().requires_grad_()
                recorded = recorded.prod() if axis is None else recorded.prod(axis)
                assert product._dtype_name == dtype and tc.equal(product, recorded.detach())
            for axis in (0, 1):
                running = view.cumprod(axis)
                if x.is_floating_point():
                    expected = view.clone().requires_grad_().cumprod(axis).detach()
                    assert running._dtype_name == dtype and tc.equal(running, expected) and running.is_contiguous()
                else:
                    np.testing.assert_array_equal(running, view.numpy().astype(np.int64).cumprod(axis))
    assert tc.prod(tc.full((40,), 3, dtype="int32"), dtype="int32").item() == np.full(40, 3, np.int32).prod(dtype=np.int32)
    with pytest.raises(IndexError):
        x.prod(2)


def test_running_products():
    for length in (0, 1, 2, 5, 8, 33):
        x = np.linspace(-2, 2, 3 * length).reshape(length, 3)
        np.testing.assert_allclose(tc.cumprod(x, 0), x.cumprod(0), rtol=1e-13)
        np.testing.assert_allclose(tc.cumprod(x.T, 1), x.T.cumprod(1), rtol=1e-13)
    # y = a, a b, a b c; of their sum da = 1 + b + b c, db = a + a c, dc = a b
    for (a, b, c), expected in (((2.0, 0.0, 3.0), [1, 8, 0]), ((0.0, 0.0, 3.0), [1, 0, 0]), ((0.0, 2.0, 3.0), [9, 0, 0])):
        np.testing.assert_array_equal(gradient(lambda x: tc.cumprod(x, 0), np.array([a, b, c])), expected)
    whole = tc.cumprod(tc.tensor([3, 2, 5]), 0)
    assert whole.tolist() == [3, 6, 30] and whole.dtype == tc.cumprod(tc.tensor([True, False]), 0).dtype == "int64"
    assert tc.cumprod(tc.tensor([1.5, 2.0]), 0, dtype="float64").dtype == "float64"
    half = tc.cumprod(tc.full((40,), 1.5, dtype="bfloat16"), 0)
    assert half.dtype == tc.bfloat16 and half[-1].item() == tc.tensor(1.5**40).to(tc.bfloat16).item(), "rounded once"
    one = tc.tensor([2.0])
    one.cumprod(0).mul_(3)
    assert one.item() == 2 and tc.tensor(2.0).cumprod(0).item() == 2
    with pytest.raises(TypeError, match="cumprod\\(\\) needs one axis"):
        tc.cumprod(one)


def test_the_sum_of_bools_is_a_bool():
    """With alpha, too, as in PyTorch."""
    x, y = tc.tensor([True, False, False]), tc.tensor([True, True, False])
    assert tc.add(x, y, alpha=2).tolist() == [True, True, False] and tc.add(x, y, alpha=0).tolist() == x.tolist()
    assert tc.add(x.numpy(), y.numpy(), alpha=2).dtype == bool and x.add(True, alpha=3).tolist() == [True] * 3
    assert x.clone().add_(y, alpha=2).tolist() == [True, True, False]
    assert tc.add(x, 1, alpha=2).tolist() == [3, 2, 2] and tc.add(tc.tensor([1]), y[:1], alpha=2).tolist() == [3]


@pytest.mark.parametrize("empty", [(), []])
@pytest.mark.parametrize("p", [2, 1, 3, INF])
def test_a_vector_of_all_axes(empty, p):
    np.testing.assert_allclose(tc.functional.normalize(X, p, dim=empty), X / np.linalg.norm(X.ravel(), p), rtol=1e-12)


@pytest.mark.parametrize("empty", [(), []])
def test_an_empty_dim_is_all_axes(empty):
    x = tc.tensor([[1.0, 0.0], [3.0, 2.0]])
    assert x.amax(dim=empty).item() == 3 and x.amin(dim=empty).item() == 0 and x.count_nonzero(dim=empty).item() == 3
    assert x.amax(empty, True).shape == (1, 1) and x.amax(axis=empty).tolist() == x.tolist()


@pytest.mark.parametrize(
    ("shape", "arguments"),
    [((), ()), ((), (0,)), ((), (0, True)), ((1,), ()), ((1,), (0,)), ((1, 1), ()), ((2, 1), (1,)), ((2, 1), (1, True))],
)
@pytest.mark.parametrize("dtype", ["float64", "int64", "float16"])
def test_a_product_of_one_element_is_a_copy(shape, arguments, dtype):
    x = tc.ones(shape, dtype=dtype)
    x.prod(*arguments).fill_(7)
    assert (x == 1).all()


def test_a_repetition_or_a_diagonal_is_a_copy():
    x = tc.ones(1, 3)
    for y in (x.repeat(1, 1), x.repeat(2, 1), x.repeat(2, 1, 2), x.tile(1), x.repeat_interleave(1, 0), x.repeat_interleave(2, 0), x.diag()):
        assert y.is_contiguous()
        y[0] = 5.0
    assert x.tolist() == [[1.0, 1.0, 1.0]]


def test_a_roll_by_nothing_is_a_copy():
    x = tc.tensor(X)
    for shifts, dims in ((0, None), (4, 1), (0, 0), ((-4, 6), (1, 0)), ((), ())):
        rolled = x.roll(shifts, dims)
        np.testing.assert_array_equal(rolled, X)
        rolled.fill_(7.0)
        np.testing.assert_array_equal(x, X)


# ---- made anew, drawn -----------------------------------------------------------------------------------------------------------------------


def test_numbers_in_equal_steps_are_exact_at_both_ends():
    for n in range(1, 40):
        x = tc.linspace(0.1, 0.7, n, dtype="float64")
        assert x[-1].item() == (0.7 if n > 1 else 0.1) and x[0].item() == 0.1


def test_making():
    np.testing.assert_array_equal(tc.eye(3, 5), np.eye(3, 5))
    np.testing.assert_array_equal(tc.eye(5, 3, dtype="int64"), np.eye(5, 3, dtype=int))
    np.testing.assert_array_equal(tc.linspace(-1, 3, 9, dtype="float64"), np.linspace(-1, 3, 9))
    np.testing.assert_array_equal(tc.linspace(4.3, 1, 1, dtype="int64"), [4])
    assert tc.linspace(0, 10, 4, dtype="int64").tolist() == [0, 3, 6, 10] and tc.linspace(tc.tensor(1.0), 2, 1).tolist() == [1]
    for indexing in ("ij", "xy"):
        for ours, theirs in zip(tc.meshgrid(V, X[0], indexing=indexing), np.meshgrid(V, X[0], indexing=indexing), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert all(isinstance(t, tc.Tensor) for t in tc.meshgrid(tc.tensor(V), X[0]))


def test_cartesian_prod():
    vectors = [[1.0, 2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]
    for count in (1, 2, 3):
        chosen = list(itertools.product(*vectors[:count])) if count > 1 else vectors[0]
        found = tc.cartesian_prod(*map(np.array, vectors[:count]))
        assert isinstance(found, np.ndarray) and found.tolist() == np.array(chosen).tolist()
    assert tc.cartesian_prod(tc.arange(2), tc.ones(0).long()).shape == (0, 2)
    x = tc.tensor(V, requires_grad=True)
    tc.cartesian_prod(x, x).prod(1).sum().backward()
    np.testing.assert_allclose(x.grad, 2 * V.sum() * np.ones_like(V))


def test_multinomial():
    weights = tc.tensor([[1.0, 0.0, 3.0], [0.0, 0.0, 2.0]])
    drawn = tc.multinomial(weights, 4000, replacement=True, rng=0)
    assert drawn.shape == (2, 4000) and drawn.dtype == np.int64 and set(drawn[1].tolist()) == {2} and set(drawn[0].tolist()) == {0, 2}
    assert abs((drawn[0] == 2).float().mean().item() - 0.75) < 0.03
    first = np.array([tc.multinomial(np.array([1.0, 0.0, 3.0]), 1, rng=i)[0] for i in range(400)])
    assert abs((first == 2).mean() - 0.75) < 0.08
    assert sorted(tc.multinomial(weights[0], 2, generator=tc.Generator(3)).tolist()) == [0, 2]
    np.testing.assert_array_equal(*(tc.multinomial(weights, 1, rng=5) for _ in range(2)))
    tc.manual_seed(1)
    again = tc.multinomial(weights, 1)
    tc.manual_seed(1)
    np.testing.assert_array_equal(tc.multinomial(weights, 1), again)
    for given, count, replacement, message in (
        ([[-1.0, 2.0]], 1, True, "not negative"),
        ([[0.0, 0.0]], 1, True, "above 0 in every row"),
        ([[INF, 1.0]], 1, True, "finite"),
        ([[1.0, 2.0], [NAN, 1.0]], 1, False, "finite"),
        ([[1.0, 2.0], [0.0, 0.0]], 1, False, "above 0 in every row"),
        ([[1.0, 0.0]], 2, False, "num_samples is 2"),
        ([1.0], 0, True, "at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            tc.multinomial(np.array(given), count, replacement)


@pytest.mark.parametrize("count", [1, 3, 300])  # of few numbers all are compared, in longer rows they are searched
def test_indices_drawn_again(count, rng):
    """The first running sum above each number; where there is none, the last weight above 0."""

    class Source:
        def uniform(self, shape, low, high, dtype):
            return tc.tensor(np.where(np.arange(math.prod(shape)) % 3 == 1, 1.0, numbers[: math.prod(shape)]).reshape(shape))

    numbers = rng.random(1500)
    weights = np.where(rng.random((5, 40)) < 0.5, 0.0, rng.random((5, 40)))
    weights[:, -2:] = 0.0
    found = drawing._with_replacement(tc.tensor(weights), count, Source())
    found = found.add_(0).numpy()  # it can be written
    sums = weights.cumsum(1)
    drawn = Source().uniform((5, count), 0.0, 1.0, "float64").numpy() * sums[:, -1:]
    for row, above, index in zip(weights, sums[:, None] > drawn[..., None], found, strict=True):
        np.testing.assert_array_equal(index, np.where(above.any(1), above.argmax(1), np.flatnonzero(row)[-1]))


def test_allclose():
    assert tc.allclose(X, X + 1e-9) and not tc.allclose(X, X + 1e-3) and tc.allclose(X, X + 1e-3, atol=1e-2)
    assert not tc.allclose(np.array([NAN]), np.array([NAN])) and tc.allclose(np.array([NAN, INF]), np.array([NAN, INF]), equal_nan=True)
    assert not tc.allclose(np.array([INF]), np.array([-INF])) and not tc.allclose(np.array([INF]), np.array([1.0]), rtol=1)
    assert tc.allclose(tc.tensor([1, 2]), tc.tensor([1, 2])) and isinstance(tc.allclose(X, X), bool)
    assert tc.isclose(X, X + 1e-3, atol=1e-2).all()


# ---- other forms of methods ------------------------------------------------------------------------------------------------------------------


def test_forms_of_methods():
    x = tc.tensor(X, requires_grad=True)
    assert x.to("cpu", "float32").dtype == np.float32 and x.to("float32", False, True).dtype == np.float32 and x.to("cpu") is x
    assert x.to("cpu", "float64", False, True) is not x and x.to(x, copy=True) is not x and x.to(dtype="float64", non_blocking=True) is x
    assert x.to("float64", copy=True).requires_grad
    assert tc.zeros(2).copy_(tc.ones(2), non_blocking=True).tolist() == tc.zeros(2).copy_(tc.ones(2), True).tolist() == [1, 1]
    assert x.clone(memory_format=tc.preserve_format).shape == x.shape and x.contiguous(memory_format=tc.contiguous_format) is x
    for call in (
        x.clone,
        *(partial(getattr(tc, f"{name}_like"), x) for name in ("empty", "ones", "rand", "randn", "zeros")),
        partial(tc.full_like, x, 2),
    ):
        assert call(memory_format=tc.preserve_format).shape == x.shape
        with pytest.raises(ValueError, match="C order"):
            call(memory_format="channels_last")
    for bad in (lambda: x.to("cpu", "float32", "float64"), lambda: x.to(True, "float32"), lambda: x.to("float32", True, True, True)):
        with pytest.raises((TypeError, ValueError)):
            bad()
    value = tc.tensor(9.0, dtype="float64", requires_grad=True)
    filled = x.masked_fill(x.detach() > 1, value)
    with pytest.raises(ValueError, match="no gradients of gradients"):
        filled.sum().backward(create_graph=True)
    filled.sum().backward(create_graph=False)
    assert value.grad.item() == (X > 1).sum() and x.grad.tolist() == (X <= 1).astype(float).tolist()
    assert tc.tensor([1.0, 2.0]).masked_fill(tc.tensor([True, False]), tc.tensor(7)).tolist() == [7, 2]
    with pytest.raises(ValueError, match=r"value has shape \(1,\)"):
        x.masked_fill(x > 1, tc.ones(1))
    with pytest.raises(TypeError, match="value of float32 cannot be written to a tensor of int64"):
        tc.tensor([1]).masked_fill(tc.tensor([True]), tc.tensor(1.5))
    for dtype, one in (("int64", 1), ("uint8", 1), ("bool", True)):
        zeros, place = tc.zeros(2, dtype=dtype), tc.tensor([False, True])
        for call in (lambda value: zeros.masked_fill(place, value), lambda value: zeros.scatter(0, tc.tensor([1]), value)):
            assert call(1.0).tolist() == [0, one] and call(1.0).dtype == zeros.dtype
            for value in (0.5, INF, NAN):
                with pytest.raises(TypeError, match=f"value {value} cannot be written to a tensor of {dtype}"):
                    call(value)
    with pytest.raises(ValueError, match="does not fit uint8"):
        tc.zeros(2, dtype="uint8").masked_fill(tc.tensor([False, True]), 256.0)
    assert tc.tensor([1, 2]).softmax(0, dtype="float64").dtype == np.float64
    y = tc.tensor(X)
    assert y.clamp_(0, 1) is y and y.max().item() == 1 and y.masked_fill_(y == 1, 5.0).max().item() == 5
    assert y.scatter_(1, tc.zeros(3, 1, dtype="int64"), 8.0)[:, 0].tolist() == [8, 8, 8]
    assert y.scatter_add_(1, tc.zeros(3, 2, dtype="int64"), tc.ones(3, 2, dtype="float64"))[:, 0].tolist() == [10, 10, 10]


IN_PLACE = {
    "clamp_": (lambda y, w: y.clamp_(-0.5, 0.5), lambda y, w: y.clamp(-0.5, 0.5)),
    "clamp_ to a tensor": (lambda y, w: y.clamp_(min=w), lambda y, w: y.clamp(min=w)),
    "mul_": (lambda y, w: y.mul_(w), lambda y, w: y * w),
    "/=": (lambda y, w: y.__itruediv__(w), lambda y, w: y / w),
    "**=": (lambda y, w: y.__ipow__(3), lambda y, w: y**3),
    "*= itself": (lambda y, w: y.__imul__(y), lambda y, w: y * y),
    "one after the other": (lambda y, w: y.mul_(w).div_(w * w).clamp_(-1, 1), lambda y, w: (y * w / (w * w)).clamp(-1, 1)),
}


@pytest.mark.parametrize(("changed", "computed"), IN_PLACE.values(), ids=IN_PLACE)
def test_gradients_of_what_is_written_over_its_own_operand(changed, computed):
    gradients = []
    for function in (changed, computed):
        x, w = tc.tensor([0.2, -0.7, 1.9], requires_grad=True), tc.tensor([1.2, 0.4, -2.0], requires_grad=True)
        y = x * 2.0
        result = function(y, w)
        assert (result is y) == (function is changed)
        (result * result * w).sum().backward()
        gradients.append((x.grad.tolist(), w.grad.tolist()))
    assert gradients[0] == gradients[1]


@pytest.mark.parametrize("write", [lambda y: y.__ifloordiv__(2), lambda y: y.div_(2, rounding_mode="floor")], ids=["//=", "div_"])
def test_what_is_rounded_in_place_has_no_gradient(write):
    x = tc.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * 1.5
    write(y)
    (y * y + x).sum().backward()
    assert y.tolist() == [0, 1, 2] and x.grad.tolist() == [1, 1, 1]
    y = x * 1.5
    with tc.no_grad():
        y //= 2  # such a write counts as a correction of the values
    assert y.requires_grad


def test_numbers_times_alpha_are_float64():
    x = tc.tensor(np.zeros(1))
    assert x.add(0.6, alpha=2).item() == tc.sub(x, -0.6, alpha=2).item() == x.add_(0.6, alpha=2).item() == 1.2


def test_what_is_flipped_is_a_copy():
    x = np.arange(3, dtype=">f8")
    result = tc.flip(x, (0,))
    result[0] = 7.0
    assert result.tolist() == [7, 1, 0] and x.tolist() == [0, 1, 2] and result.dtype.isnative


def test_factors_are_applied_in_the_dtype_of_the_result():
    """Not in that of the arguments that they belong to, where 2 * 200 would be 144."""
    small, x = tc.tensor([200], dtype="uint8"), tc.tensor([1.0])
    assert tc.add(tc.tensor([1]), small, alpha=2).tolist() == [401] and tc.sub(x, small, alpha=2).tolist() == [-399]
    assert tc.add(tc.tensor([1]), small, alpha=-1).tolist() == tc.add(np.array([1]), np.array([200], np.uint8), alpha=-1).tolist() == [-199]
    short = np.array([300], np.int16)  # as wide as a half, but int64 as a Tensor
    assert tc.add(short, short, alpha=200).tolist() == [60300] and tc.add(short, np.uint8([200]), alpha=200).tolist() == [40300]
    assert x.clone().add_(small, alpha=2).tolist() == [401] and x.clone().sub_(small, alpha=2).tolist() == [-399]
    assert tc.addcmul(x, small, small).tolist() == [40001] and tc.addcdiv(x.double(), small, tc.tensor([3])).item() == 1 + 200 / 3
    result = tc.addcmul(tc.ones(1, dtype="bfloat16"), tc.tensor([2]), tc.tensor([3]), value=0.5)
    assert result.item() == 4 and result.dtype == tc.bfloat16
    with pytest.raises(TypeError, match="expected Tensors, arrays or numbers, but a is NoneType"):
        tc.add(x, None, alpha=2)


@pytest.mark.parametrize(
    "operands",
    [
        ("int64 1", "float32 0", "float64 0"),
        ("float32 1", "float64 0", "float64 0"),
        ("float16 1", "float64 0", "float16 0"),
        ("int64 1", "float16 0", "bfloat16 0"),
        ("bool 1", "uint8 0", "int64 0"),
        ("uint8 1", "int64 0", "int64 0"),
        ("float16 1", "bfloat16 1", "float64 0"),
    ],
)
def test_the_dtype_of_three_operands_is_pytorchs_in_any_order(operands):
    """Those with axes decide, before those without, which decide among themselves."""
    torch = pytest.importorskip("torch")
    for order in itertools.permutations(operands):
        ours, theirs = (
            module.addcmul(*(module.ones((1,) * int(ndim)).to(getattr(module, dtype)) for dtype, ndim in map(str.split, order)))
            for module in (tc, torch)
        )
        assert str(ours.dtype) == str(theirs.dtype).removeprefix("torch."), order


def test_angles_and_distances_of_two_dtypes_have_the_promoted_one():
    x, y = tc.tensor([1.0, 2.0, 3.0]), tc.tensor(np.array([1.0, 2.0, 3.00000001]))
    for function in (lambda a, b: tc.F.cosine_similarity(a, b, dim=0), tc.F.pairwise_distance):
        for one, other in ((x, y), (x.half(), y)):
            result = function(one, other)
            assert result.dtype == tc.float64 and result.item() == function(one.double(), y).item()


@pytest.mark.parametrize("name, arguments", [("pow_", (0.5,)), ("clamp_", (0.5, 2.5)), ("remainder_", (0.7,)), ("lerp_", (4, 0.5))])
def test_a_float_result_is_not_written_to_integers(name, arguments):
    x = tc.tensor([2, 3])
    with pytest.raises(TypeError, match="the result is float32, which cannot be written in place to a tensor of int64"):
        getattr(x, name)(*arguments)
    with pytest.raises(TypeError, match="the result is float32"):
        x.div_(0.5, rounding_mode="floor")
    assert x.tolist() == [2, 3] and x.clamp_(3, 7).tolist() == [3, 3]


@pytest.mark.parametrize("name, arguments", [("pow_", (2,)), ("clamp_", (0, 3)), ("remainder_", (2,)), ("cumsum_", (0,))])
def test_an_integer_result_is_not_written_to_bools(name, arguments):
    x = tc.tensor([True, False])
    with pytest.raises(TypeError, match=r"the result is int64, which cannot be written in place to a tensor of bool; .* \.long\(\)"):
        getattr(x, name)(*arguments)
    assert x.tolist() == [True, False] and x.nan_to_num_() is x


def test_where_refuses_a_number_that_does_not_fit():
    mask, bytes_ = tc.tensor([True, False]), tc.zeros(2, dtype="uint8")
    for arguments in ((300, bytes_), (bytes_, 300), (-1, bytes_), (bytes_, -1)):
        with pytest.raises(ValueError, match="does not fit uint8, whose numbers are 0 to 255"):
            tc.where(mask, *arguments)


def test_a_crossed_bound_passes_no_gradient():
    x = tc.tensor([1.0, 2.0, 5.0], requires_grad=True)
    y = x.clamp(3.0, 1.0)
    y.sum().backward()
    assert y.tolist() == [1.0, 1.0, 1.0] and not x.grad.any()


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"])
def test_a_result_in_place_keeps_the_dtype(dtype):
    x = tc.tensor([2, 3]).to(dtype)
    wide = tc.tensor([2, 1], dtype="float64" if "float" in dtype else "int64")
    assert x.pow_(wide) is x and x.dtype == tc.zeros(1, dtype=dtype).dtype and x.tolist() == [4, 3]


def test_index_put(rng):
    indices = np.array([2, 0, 2, 2]), np.array([1, 1, 1, 3])
    values = rng.standard_normal(4)
    summed, written = X.copy(), X.copy()
    np.add.at(summed, indices, values)
    written[indices] = values
    np.testing.assert_allclose(tc.index_put(X, indices, values, accumulate=True), summed)
    np.testing.assert_array_equal(tc.index_put(X, indices, values), written)
    x, v = tc.tensor(X), tc.tensor(values, requires_grad=True)
    assert x.index_put_(indices, v, True) is x
    np.testing.assert_allclose(x.detach(), summed)
    (x * tc.tensor(X)).sum().backward()
    np.testing.assert_array_equal(v.grad, X[indices])
    rows = tc.tensor(X).index_put((None, np.array([0, 0])), tc.tensor(1.0, dtype="float64"), accumulate=True)
    np.testing.assert_array_equal(rows[:, 0], X[:, 0] + 2)
    mask = tc.tensor(X).index_put((tc.tensor(X > 1),), tc.tensor(1.0, dtype="float64"), accumulate=True)
    np.testing.assert_array_equal(mask, X + (X > 1))
    with pytest.raises(TypeError, match="values are float32 but input is float64"):
        tc.tensor(X).index_put((np.array([0]),), tc.ones(4))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_index_put_adds_up_what_numpy_does(in_place, dtype, rng):
    """With arrays for some of the axes, which broadcast, count from the end or repeat places; values that are rows, or repeated."""
    whole = rng.integers(-9, 9, (4, 5, 3)).astype(dtype)
    one, two = rng.integers(0, 4, 30), rng.integers(-5, 5, (6, 1))
    for indices in ((one,), (one, one), (one[:5], two), (two % 4, one[:5], one[:5] % 3), (one % 2 == 0)[:4], (one[:0],)):
        indices = indices if isinstance(indices, tuple) else (indices,)
        shape = whole[indices].shape
        for values in (rng.integers(-9, 9, shape).astype(dtype), rng.integers(-9, 9, shape[-1:]).astype(dtype), np.ones((), dtype)):
            x, expected = tc.tensor(whole), whole.copy()
            np.add.at(expected, indices, values)
            places = tuple(map(tc.tensor, indices))
            found = (x.index_put_ if in_place else x.index_put)(places, tc.tensor(values), accumulate=True)
            np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(x, expected if in_place else whole)
    for bad in ((np.array([4]),), (np.array([0]), np.array([-6]))):
        with pytest.raises(IndexError, match="out of bounds"):
            tc.tensor(whole).index_put_(bad, tc.tensor(np.ones((), dtype)), accumulate=True)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tc.clamp(X), ValueError, "needs a bound"),
        (lambda: tc.std(X, True), TypeError, "not bool"),
        (lambda: tc.norm(X, "nuc"), ValueError, "a number or 'fro'"),
        (lambda: tc.norm(np.arange(3)), TypeError, "argument of norm is int64"),
        (lambda: tc.logsumexp(np.arange(3), 0), TypeError, "argument of logsumexp is int64"),
        (lambda: tc.sort(X, ()), TypeError, "dim must be an int, not tuple"),
        (lambda: tc.topk(X, 1, [0, 1]), TypeError, "dim must be an int, not list"),
        (lambda: tc.logsumexp(X, (0, 0)), ValueError, "names an axis twice"),
        (lambda: tc.norm(X, dim=5), IndexError, "dim 5 is out of range for a tensor of 2 axes"),
        (lambda: tc.std(X, dim=0, axis=1), TypeError, "dim"),
        (lambda: tc.var(X, 0, 1), TypeError, "unbiased must be a bool"),
        (lambda: tc.var(X, unbiased=True, correction=1), TypeError, "two names of one argument"),
        (lambda: tc.std(X, ddof=0, correction=1), TypeError, "ddof= and correction= are two names of one argument"),
        (lambda: tc.prod(X, (0, 1)), TypeError, "takes one axis"),
        (lambda: tc.topk(X, 5), ValueError, r"k is 5; axis 1 has 4 elements"),
        (lambda: tc.topk(X, 1.0), TypeError, "k must be an int, got 1.0"),
        (lambda: tc.repeat(X, 2), ValueError, "a count for each axis"),
        (lambda: tc.repeat(X, -1, 2), ValueError, "a number of times must be at least 0, got -1"),
        (lambda: tc.repeat_interleave(X, np.array([1, 2]), 0), ValueError, "3 of them"),
        (lambda: tc.repeat_interleave(X, 2, 0, output_size=5), ValueError, "add up to 6"),
        (lambda: tc.roll(X, (1, 2), 0), ValueError, "2 shifts but 1 dims"),
        (lambda: tc.repeat_interleave(X, -1, 1), ValueError, "cannot repeat -1 times"),
        (lambda: tc.repeat_interleave(X, 2, 1, output_size=0), ValueError, "output_size is 0, but the repeats add up to 8"),
        (
            lambda: tc.repeat_interleave(X, np.ones((1, 4), int), 1),
            ValueError,
            r"repeats has shape \(1, 4\); expected an int, or 4 of them",
        ),
        (lambda: tc.tile(X, 2, dims=2), TypeError, "dims is given twice"),
        (lambda: tc.tile(X, 1.5), TypeError, r"tile\(\): a number of times must be an int, got 1.5"),
        (lambda: tc.broadcast_to(X, 3, 4, size=(3, 4)), TypeError, r"size is given twice: \(3, 4\) and size=\(3, 4\)"),
        (lambda: tc.roll(X, "a"), TypeError, "shifts must be an int, got 'a'"),
        (lambda: tc.randint(0, 2.5, (3,)), TypeError, "high must be an int, got 2.5"),
        (lambda: tc.randint("1", 5, (3,)), TypeError, "low must be an int, got '1'"),
        (lambda: tc.unflatten(X, 1, (0, -1)), ValueError, "cannot be given the shape"),
        (lambda: tc.unflatten(X[:0], 1, (-1, -1)), ValueError, "cannot be given the shape"),
        (lambda: tc.unflatten(X[:0], 1, (3, -1)), ValueError, "cannot be given the shape"),
        (lambda: tc.unflatten(X, 1, (None, 2)), TypeError, "a length of sizes must be an int, got None"),
        (lambda: tc.roll(X, 1.5), TypeError, "shifts must be an int, got 1.5"),
        (lambda: tc.roll(X, 1, 0.5), TypeError, "dims must be an int, not float"),
        (lambda: tc.outer(X, V), ValueError, r"input has shape \(3, 4\); outer\(\) takes two vectors"),
        (lambda: tc.masked_select(X, X), TypeError, "mask is float64"),
        (lambda: tc.einsum("ij,jk", X), ValueError, "2 terms for 1 operands"),
        (lambda: tc.einsum("ijk", X), ValueError, r"'ijk' of 'ijk' does not fit an operand of shape \(3, 4\)"),
        (lambda: tc.einsum("ij,jk->ik", X, X), ValueError, "lengths 4 and 3"),
        (lambda: tc.einsum("ij->ik", X), ValueError, "'k', which no operand has"),
        (lambda: tc.einsum("i1->i", X), ValueError, "labels are letters"),
        (lambda: tc.einsum("ij,j->i", tc.tensor(X), tc.ones(4)), TypeError, "one dtype, not float64, float32"),
        (lambda: tc.meshgrid(X), ValueError, "takes vectors"),
        (lambda: tc.meshgrid(V, indexing="ji"), ValueError, "indexing must be"),
        (lambda: tc.cartesian_prod(V, X), ValueError, "takes vectors"),
        (lambda: tc.cartesian_prod(), ValueError, "needs a vector"),
        (lambda: tc.cartesian_prod(tc.arange(2), tc.ones(2)), TypeError, "must have one dtype"),
        (lambda: tc.eye(-1), ValueError, "n must be at least 0"),
        (lambda: tc.linspace(0, 1, -1), ValueError, "steps must be at least 0"),
        (lambda: tc.linspace(0, None, 3), TypeError, "end must be a number, got None"),
        (lambda: tc.randint(0, 3.7, (2,)), TypeError, "high must be an int, got 3.7"),  # int() would make it 3
        (lambda: tc.randint(0.5, 3, (2,)), TypeError, "low must be an int, got 0.5"),
        (lambda: tc.randint(1, 2, 3, (2,)), TypeError, r"randint\(\) takes low, high and size"),
        (lambda: tc.randint(1, 3, low=2, size=(2,)), TypeError, r"randint\(\) takes low, high and size"),
        (lambda: tc.randint(0, 3, 2.5), TypeError, "size must be ints or one sequence of ints, got 2.5"),
        (lambda: tc.data.random_split([1, 2, 3], 2), TypeError, "lengths must be a list of sizes or of fractions, not int"),
        (lambda: tc.div(X, 2, rounding_mode="up"), ValueError, "rounding_mode must be 'trunc' or 'floor'"),
        (lambda: tc.index_select(X, 0, np.zeros((1, 1), int)), ValueError, "takes one axis"),
        (lambda: tc.isclose(X, X, rtol=-1), ValueError, "rtol must not be negative"),
        (lambda: tc.scatter(X, 0, np.zeros((1, 4), int)), TypeError, "a src or value"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


LISTS = {
    "relu": tc.F.relu,
    "layer_norm": lambda x: tc.F.layer_norm(x, (2,)),
    "linear": lambda x: tc.F.linear(x, np.ones((3, 2), np.float32)),
    "attention": lambda x: tc.F.scaled_dot_product_attention(x, x, x),
    "mse_loss": lambda x: tc.F.mse_loss(x, np.ones((2, 2), np.float32)),
    "pad": lambda x: tc.F.pad(x, (1, 1)),
    "flip": lambda x: tc.flip(x, 0),
}


@pytest.mark.parametrize("function", LISTS.values(), ids=LISTS)
def test_lists_lose_no_history_and_have_one_length(function):
    w = tc.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(TypeError, match=r"is a list of Tensors that require a gradient, .* join them with tc.stack\(\) first"):
        function([w, w])
    with pytest.raises(ValueError, match="is not an array: its nested lists have different lengths"):
        function([[1.0, 2.0], [3.0]])
    with tc.no_grad():
        np.testing.assert_array_equal(function([w, w]), function(np.float32([[1, 2], [1, 2]])))


def test_operands_by_pytorchs_names():
    t = tc.tensor([2.0, 3.0])
    assert tc.exp(input=t).tolist() == t.exp().tolist() and tc.sum(input=t, dim=0).item() == 5
    assert tc.pow(input=t, exponent=2).tolist() == t.pow(exponent=2).tolist() == [4, 9]
    assert tc.mul(input=t, other=2).tolist() == t.mul(other=2).tolist() == [4, 6] and tc.eq(t, other=2).tolist() == [True, False]
    assert tc.clamp_min(t, min=2.5).tolist() == [2.5, 3] and t.clamp_max(max=2.5).tolist() == [2, 2.5]
    assert tc.arange(end=3).tolist() == [0, 1, 2] and tc.arange(start=1, end=3).tolist() == [1, 2]
    with pytest.raises(TypeError, match=r"exp\(\) has no argument 'other'; its signature is exp\(x\)"):
        tc.exp(t, other=t)
    with pytest.raises(TypeError, match=r"mul\(\) has no argument 'min'"):
        tc.mul(t, min=t)
    with pytest.raises(TypeError, match=r"mul\(\) got two values for 'other'"):
        t.mul(t, other=t)
    with pytest.raises(TypeError, match="needs an end"):
        tc.arange()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"])
def test_unique_elements_are_pytorchs(dtype):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).integers(0, 4, (4, 3, 2))
    options = ({}, {"return_inverse": True}, {"return_counts": True, "dim": 0}, {"return_inverse": True, "return_counts": True, "dim": -1})
    for given, chosen in itertools.product((x, x[0, 0, 0], x[:0]), options):
        chosen = chosen if given.ndim else {**chosen, "dim": None}
        if not given.size and chosen.get("dim") == -1:
            continue
        pairs = zip(
            *(
                found if isinstance(found, tuple) else (found,)
                for m in (torch, tc)
                for found in [m.unique(m.tensor(given).to(getattr(m, dtype)), **chosen)]
            ),
            strict=True,
        )
        for theirs, ours in pairs:
            assert ours.tolist() == theirs.tolist() and str(theirs.dtype) == f"torch.{ours._dtype_name}"


def test_unique_elements_of_arrays_and_tensors():
    ones, counts = tc.unique([2, 1, 2], return_counts=True)
    assert type(ones) is np.ndarray and ones.tolist() == [1, 2] == counts.tolist()
    x = tc.tensor([1.0, NAN, 1.0, NAN], requires_grad=True)
    assert not x.unique().requires_grad and len(x.unique()) == 3 and x.unique(axis=0).shape == (3,)
    with pytest.raises(IndexError, match="dim 1 is out of range"):
        tc.unique(x, dim=1)
    with pytest.raises(TypeError, match="sorted must be a bool, got 0; an axis is given by name"):
        x.unique(0)
