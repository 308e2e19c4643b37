"""Functions under PyTorch's names that are made of others: against NumPy in float64, with gradients; PyTorch's own samples are run by
test_torch_samples.py."""

import math

import numpy as np
import pytest
import transformer_c as tc
from interrupting import interrupted
from transformer_c import _core
from transformer_c.testing import gradcheck

X = np.random.default_rng(0).standard_normal((3, 4))
V = np.array([1.5, -2.5, 0.5])
BROKEN = np.array([[1.0, np.nan], [np.inf, -np.inf]])
# name: arguments; the function of NumPy
SAME = {
    "mm": ((X, X.T), np.matmul),
    "bmm": ((np.stack([X, -X]), np.stack([X.T, X.T])), np.matmul),
    "addmm": ((V, X[:, :3], X[:, :3]), lambda v, x, y: v + x @ y),
    "baddbmm": ((V[:, None], np.stack([X, -X]), np.stack([X.T, X.T])), lambda v, x, y: v + x @ y),
    "concat": (([X, X], 1), lambda a, axis: np.concatenate(a, axis)),
    "hstack": (([X, X],), np.hstack),
    "vstack": (([V, V],), np.vstack),
    "movedim": ((np.ones((2, 3, 4)), (0, 1), (-1, 0)), np.moveaxis),
    "tile": ((X, (2,)), np.tile),
    "diag": ((V, -1), np.diag),
    "t": ((X,), np.transpose),
    "count_nonzero": ((np.array([[0, 2, 0], [1, 0, 0]]), 1), np.count_nonzero),
    "log2": ((np.abs(X),), np.log2),
    "log10": ((np.abs(X),), np.log10),
    "round": ((1e3 * X, 1), np.round),
    "round to hundreds": ((1e3 * X, -2), np.round),
    "floor": ((X,), np.floor),
    "ceil": ((X,), np.ceil),
    "trunc": ((X,), np.trunc),
    "ravel": ((X,), np.ravel),
    "unflatten": ((X, -1, (2, -1)), lambda x, dim, sizes: x.reshape(3, 2, 2)),
    "unflatten in the middle": ((X.reshape(2, 6, 1), 1, (3, -1)), lambda x, dim, sizes: x.reshape(2, 3, 2, 1)),
    "broadcast_to": ((X, (2, 3, 4)), np.broadcast_to),
    "select": ((X, 1, -1), lambda x, dim, index: x[:, index]),
    "index_fill": ((X, 1, np.array([3, 0]), 7.0), lambda x, dim, index, value: np.where(np.isin(np.arange(4), index), value, x)),
    "index_add": (
        (X, 1, np.array([3, 0, 3]), X[:, :3]),
        lambda x, dim, index, source: x + source @ np.eye(4)[index],
    ),
    "index_copy": (
        (X, 1, np.array([3, 0]), X[:, 1:3]),
        lambda x, dim, index, source: np.stack([source[:, 1], x[:, 1], x[:, 2], source[:, 0]], 1),
    ),
    "nan_to_num": ((BROKEN, 2.0, None, -3.0), lambda x, *to: np.nan_to_num(x, True, *to)),
}


@pytest.mark.parametrize("name", SAME)
def test_arrays_and_tensors_give_numpys_values(name):
    arguments, reference = SAME[name]
    function, expected = getattr(tc, name.split()[0]), reference(*arguments)
    first, *rest = arguments
    tensor = [tc.tensor(a) for a in first] if isinstance(first, list) else tc.tensor(first)
    found, recorded = function(*arguments), function(tensor, *rest)
    assert isinstance(found, np.ndarray) and isinstance(recorded, tc.Tensor)
    for values in (found, recorded.numpy()):
        assert values.dtype == expected.dtype
        np.testing.assert_allclose(values, expected, rtol=1e-14)


GRADIENTS = {
    "mm": lambda x: tc.mm(x, x.t()),
    "addmm": lambda x: tc.addmm(x[:, 0], x, x.t(), beta=0.5, alpha=-2),
    "baddbmm": lambda x: tc.baddbmm(x[None], x[None, :, :3], x[None, 1:].tile(1, 2, 1)[:, :3], alpha=3),
    "hstack": lambda x: tc.hstack([x, 2 * x]),
    "vstack": lambda x: tc.vstack([x[0], x]),
    "movedim": lambda x: tc.movedim(x, 0, 1) * tc.tensor(X.T),
    "tile": lambda x: x.tile(2, 1, 2) ** 2,
    "diag of a vector": lambda x: tc.diag(x[0], 1) ** 2,
    "diag of a matrix": lambda x: tc.diag(x, 1) ** 2,
    "diag below": lambda x: x.T.diag(-2) ** 2,
    "expand_as": lambda x: x[:1].expand_as(x) * x,
    "view_as": lambda x: x.view_as(tc.zeros(4, 3)) ** 2,
    "ravel": lambda x: x.T.ravel() ** 2,
    "unflatten": lambda x: x.unflatten(1, (2, 2))[:, 0] ** 2,
    "broadcast_to": lambda x: x[0].broadcast_to(2, 4) * x[:2],
    "select": lambda x: x.select(0, -1) * x[0],
    "index_fill": lambda x: x.index_fill(1, tc.tensor([1, 1]), 0.5) ** 2,
    "index_fill_": lambda x: (x * 1).index_fill_(0, np.array([2]), x[0, 0]) ** 2,
    "index_add": lambda x: x.index_add(-1, tc.tensor([2, 0, 2]), x[:, 1:] ** 2, alpha=-3) ** 2,
    "index_copy": lambda x: x.index_copy(1, tc.tensor([2, 0]), x[:, 1:3] ** 3) ** 2,
    "index_copy_": lambda x: (x * 1).index_copy_(-1, np.array([1]), x[:, 3:]) ** 2,
    "index_add_": lambda x: (x * 1).index_add_(0, np.array([2]), x[:1]) ** 2,
    "where": lambda x: x.where(x > 0, 3 * x),
    "nan_to_num": lambda x: tc.where(x > 0, x, float("inf")).nan_to_num(posinf=2.0) ** 2,
    "in place": lambda x: (x * 1).add_(x, alpha=2).mul_(2.0).sub_(x).div_(2.0),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    assert gradcheck(GRADIENTS[name], [tc.tensor(X, requires_grad=True)])


TRIANGLE = [[1.0, 3.0, 2.0, 2.0], [0.5, -1.0, 4.0, 0.0], [-2.0, 5.0, 5.0, 1.0]]
# Functions of compositions.py as PyTorch has them: name: call, with a library and a matrix of it
AS_IN_PYTORCH = {
    "bincount": lambda f, x: [
        f.bincount(x.detach().abs().long().reshape(-1), minlength=9),
        f.bincount(x.detach()[0].long(), x.detach()[0]),
    ],
    "bucketize": lambda f, x: [f.bucketize(x.detach(), f.tensor([0.0, 2.0, 4.0]).to(x.dtype), right=r, out_int32=r) for r in (False, True)],
    "cdist": lambda f, x: [f.cdist(x, x[:2]), f.cdist(x[None], x[1:], p=1.0), f.cdist(x[:, :0], x[:2, :0], p=math.inf)],
    "cummax": lambda f, x: [*f.cummax(x, 1), *x.cummax(0)],
    "cummin": lambda f, x: [*f.cummin(x, 1), *x.cummin(0)],
    "diagonal": lambda f, x: [
        f.diagonal(x, 1),
        x.diagonal(-1),
        x.T.diagonal(2),
        x[:, 1:].diagonal(),
        x[None].diagonal(0, 2, 1),
        x.diagonal(9),
    ],
    "fill_diagonal_": lambda f, x: [x.detach().clone().fill_diagonal_(9), (x.detach() > 0).fill_diagonal_(True)],
    "logaddexp": lambda f, x: [f.logaddexp(x, x[0]), (x * 1000).logaddexp(-x)],
    "logcumsumexp": lambda f, x: [f.logcumsumexp(x, 1), f.logcumsumexp(x * 100, 0)],
    "quantile": lambda f, x: [f.quantile(x, 0.3), f.quantile(x, f.tensor([0.1, 0.9]).to(x.dtype), dim=1, keepdim=True), x.quantile(1.0, 0)],
    "scatter_reduce": lambda f, x: [
        f.scatter_reduce(x, dim, index, x[: len(index)] * 2 - 1.5, reduce, include_self=with_self)
        for index in (f.tensor([[0, 0, 2, 2], [0, 1, 2, 2]]),)
        for dim in (0, 1)
        for reduce in ("sum", "mean", "amax", "amin")
        for with_self in (True, False)
    ],
    "masked_scatter": lambda f, x: [
        f.masked_scatter(x, x.detach() > 1, x.T * 2),
        x[0].masked_scatter(x.detach() < 2, x * 3),
        x.masked_scatter(f.tensor([True, False, False, True]), x[1:]),
        (x * 1).masked_scatter_(x.detach()[:, :1] > 0.7, x[1:] + 1),
        x[0, 0].masked_scatter(f.tensor(True), x[2, :1]),
        x.masked_scatter(x.detach() > 99, x[:0]),
    ],
    "scatter_reduce of infinities": lambda f, x: [
        f.scatter_reduce(f.where(x > 2, x, x * 0 + own), 1, f.tensor([[0, 0, 1, 1]] * 3), f.where(x > 1, x, x * 0 + other), reduce)
        for own in (-math.inf, math.inf)
        for other in (-math.inf, math.inf, math.nan)
        for reduce in ("amax", "amin")
    ],
    "searchsorted": lambda f, x: [
        f.searchsorted(x.detach()[0].sort()[0], x.detach()),
        f.searchsorted(x.detach().sort(-1)[0], x.detach(), side="right"),
        f.searchsorted(f.tensor([0.0, math.inf]), f.tensor([math.nan, math.inf, 1.0])),
        f.searchsorted(f.tensor([0.0, math.inf, math.nan]), f.tensor([math.nan])),
        f.bucketize(f.tensor([[math.nan, -math.inf]]), f.tensor([0.0, 1.0]), right=True),
    ],
    "std_mean": lambda f, x: [*f.std_mean(x, 1), *f.std_mean(x, unbiased=False), *f.std_mean(x, 0, correction=0, keepdim=True)],
    "take_along_dim": lambda f, x: [f.take_along_dim(x, f.argsort(x.detach(), 1)[:, :2], 1), x.take_along_dim(f.tensor([3, 0, 3]))],
    "trace": lambda f, x: [f.trace(x), x[:, 1:].trace()],
    "tril_indices": lambda f, x: [f.tril_indices(3, 4, 1), f.tril_indices(2, 0)],
    "triu_indices": lambda f, x: [f.triu_indices(3, 4, -1), f.triu_indices(2, 2, 5, dtype=f.int32)],
    "var_mean": lambda f, x: [*f.var_mean(x), *f.var_mean(x, (0, 1)), *f.var_mean(x, 1, correction=2)],
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", AS_IN_PYTORCH)
def test_compositions_are_pytorchs(name, dtype):
    torch, found = pytest.importorskip("torch"), []
    for library in (tc, torch):
        x = library.tensor(TRIANGLE, dtype=getattr(library, dtype)).requires_grad_()
        results = [y for y in AS_IN_PYTORCH[name](library, x)]
        recorded = [(y * (i + 1)).sum() for i, y in enumerate(results) if y.requires_grad]
        if recorded:
            sum(recorded).backward()
        found.append([y.detach().numpy() for y in results] + ([x.grad.numpy()] if recorded else []))
    assert len(found[0]) == len(found[1])
    rtol = 1e-5 if dtype == "float32" else 1e-10
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol / 10)


@pytest.mark.parametrize("name", ["cummax", "logcumsumexp", "quantile", "trace", "var_mean"])
def test_compositions_of_arrays(name):
    x = np.array(TRIANGLE)
    more = {"cummax": (1,), "logcumsumexp": (0,), "quantile": (0.4,)}.get(name, ())
    found, recorded = getattr(tc, name)(x, *more), getattr(tc, name)(tc.tensor(x), *more)
    several = found if isinstance(found, tuple) else (found,)
    for array, tensor in zip(several, recorded if isinstance(recorded, tuple) else (recorded,), strict=True):
        assert not isinstance(array, tc.Tensor) and isinstance(tensor, tc.Tensor)
        np.testing.assert_array_equal(array, tensor.numpy())


def test_diagonals_are_views():
    x = tc.zeros(2, 3, 3)
    x.diagonal(dim1=1, dim2=2).fill_(1)
    x.mT.diagonal(1, 1, 2).fill_(2)  # below it
    assert x[1].tolist() == [[1, 0, 0], [2, 1, 0], [0, 2, 1]]


def test_scans_at_infinities_and_of_halves():
    x = np.array([-np.inf, -np.inf, 0.0, -1e300, np.inf, 1.0])
    np.testing.assert_array_equal(tc.logcumsumexp(x, 0), [-np.inf, -np.inf, 0, 0, np.inf, np.inf])
    np.testing.assert_array_equal(tc.cummax(np.array([1.0, np.nan, 2.0]), 0).values, [1, np.nan, np.nan])
    assert tc.logcumsumexp(tc.zeros(2000).half(), 0)[-1].item() == np.float16(math.log(2000))
    for half in ("float16", "bfloat16"):
        y = tc.logaddexp(tc.tensor([1.0, 2.0]).to(half), tc.tensor([1.0, -5.0]).to(half))
        assert y.dtype == half and tc.allclose(y.float(), tc.tensor([1.6931, 2.0009]), atol=0.01)
        assert tc.cummin(tc.tensor([1.0, 2.0]).to(half), 0).values.dtype == half


def test_diagonals_of_all_offsets():
    for shape in ((3, 4), (4, 3), (3, 3), (1, 5), (0, 3), (3, 0)):
        matrix = np.arange(np.prod(shape)).reshape(shape)
        for k in range(-5, 6):
            np.testing.assert_array_equal(tc.diag(matrix, k), np.diag(matrix, k))
            np.testing.assert_array_equal(tc.diag(tc.tensor(matrix).T, k), np.diag(matrix.T, k))
    for n in (0, 1, 3):
        for k in (-2, 0, 1):
            np.testing.assert_array_equal(tc.diag(np.arange(n), k), np.diag(np.arange(n), k))


def test_equal_is_of_shapes_and_elements():
    assert tc.equal(X, X.copy()) and tc.tensor(X).equal(X) and tc.equal(tc.zeros(0), tc.zeros(0))
    assert not tc.equal(np.zeros(2), np.zeros(1)) and not tc.equal(X, -X) and not tc.equal(np.array([np.nan]), np.array([np.nan]))


def test_selected_slices_and_split_axes_are_views():
    x = tc.zeros(2, 4)
    x.select(0, 1).fill_(1.0)
    x.unflatten(1, (2, 2))[0, 1] = 2.0
    x.ravel()[:2] = 3.0
    assert x.tolist() == [[3.0, 3.0, 2.0, 2.0], [1.0] * 4]


def test_ravel_of_a_slice_with_gaps_is_a_contiguous_copy():
    x = tc.zeros(2, 4)
    for flat in (x[:, ::2].ravel(), tc.zeros(6)[::2].ravel(), x.T.ravel()):
        assert flat.is_contiguous()
        flat.fill_(1.0)
    assert not x.any()


def test_filling_places_in_place():
    x = tc.ones(3, 2)
    assert x.index_fill_(0, tc.tensor([[2]]).squeeze(), 0.0) is x and x.tolist() == [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    assert x.index_fill_(-1, tc.zeros(0).long(), 5.0).sum() == 4 and tc.tensor(1.0).index_fill(0, tc.tensor(0), 2.0) == 2
    assert tc.ones(2, dtype="int64").index_fill(0, np.array([0]), tc.tensor(7)).tolist() == [7, 1]


def test_slices_are_copied_into_a_tensor_itself():
    """As to a cache of keys, part of which is a view."""
    cache = tc.zeros(3, 4, 2)
    part = cache[:2]
    assert part.index_copy_(-2, tc.tensor([3, 1]), tc.arange(8.0).view(2, 2, 2)) is part
    assert cache[:, :, 0].tolist() == [[0.0, 2.0, 0.0, 0.0], [0.0, 6.0, 0.0, 4.0], [0.0] * 4]
    assert (
        tc.tensor(1.0).index_copy_(0, tc.tensor(0), tc.tensor(2.0)) == 2
        and tc.ones(2).index_copy(0, tc.zeros(0).long(), tc.ones(0)).sum() == 2
        and tc.ones(2).index_copy(0, tc.tensor([1]), tc.tensor(3.0)).tolist() == [1, 3]
    )
    with pytest.raises(IndexError, match="out of"):
        part.index_copy_(1, tc.tensor([4]), tc.ones(2, 1, 2))


def test_adding_slices_in_place():
    x = tc.zeros(3, 2)
    assert x.index_add_(0, tc.tensor([2, 0, 2]), tc.ones(3, 2), alpha=0.5) is x and x.tolist() == [[0.5, 0.5], [0.0, 0.0], [1.0, 1.0]]
    assert x.index_add_(-1, tc.zeros(0).long(), tc.ones(3, 0)).sum() == 3 and tc.tensor(1.0).index_add(0, tc.tensor(0), tc.tensor(2.0)) == 3
    with pytest.raises(ValueError, match=r"source has shape \(1, 2\); 2 places along dim 0 of \(3, 2\) take \(2, 2\)"):
        x.index_add_(0, tc.tensor([0, 1]), tc.ones(1, 2))
    with pytest.raises(IndexError, match=r"index 3 \(element 2 of index, shape \(2, 2\)\) is out of range for axis 0 of length 3"):
        x.index_add_(0, tc.tensor([0, 3]), tc.ones(2, 2))
    assert x.tolist() == [[0.5, 0.5], [0.0, 0.0], [1.0, 1.0]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_infinities_become_the_largest_numbers(dtype):
    x = tc.tensor(BROKEN).to(dtype).nan_to_num()
    assert tc.isfinite(x).all() and tc.isinf(x[1] * 1.01).all() and x[0].tolist() == [1.0, 0.0]


IN_PLACE = {
    **{
        name: ()
        for name in ("abs", "cos", "erf", "exp", "neg", "relu", "sigmoid", "sin", "square", "tanh", "tril", "nan_to_num", "reciprocal")
    },
    "addcdiv": (tc.tensor(X[::-1].copy()), 2 + tc.tensor(X).abs()),
    "addcmul": (tc.tensor(X[::-1].copy()), tc.tensor(X)),
    "clip": (-0.5, 0.5),
    "cumprod": (1,),
    "cumsum": (1,),
    "lerp": (tc.tensor(X[::-1].copy()), 0.75),
    "pow": (3,),
    "round": (),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_functions_in_place(name):
    """The values of the function, in the tensor itself, and its gradients."""
    x = tc.tensor(X)
    expected = getattr(x, name)(*IN_PLACE[name])
    assert getattr(x, f"{name}_")(*IN_PLACE[name]) is x and tc.equal(x, expected)
    assert gradcheck(lambda x: getattr(x * 1, f"{name}_")(*IN_PLACE[name]) ** 2, [tc.tensor(X, requires_grad=True)])
    with pytest.raises(RuntimeError, match="leaf"):
        getattr(tc.tensor(X, requires_grad=True), f"{name}_")(*IN_PLACE[name])


def test_weights_of_an_interpolation():
    start, end, weight = tc.zeros(2), tc.tensor([1.0, 3.0]), np.array([0.25, 1.0], np.float32)
    for given in (weight, tc.tensor(weight)):
        assert start.lerp(end, given).tolist() == [0.25, 3.0] == tc.lerp(start.numpy(), end.numpy(), weight).tolist()
    assert start.lerp(end, np.float64(0.75)).tolist() == start.lerp(end, tc.tensor(0.75)).tolist() == [0.75, 2.25]
    for number in (np.float64(0.75), np.float32(0.75), np.int64(1), np.bool_(True), 0.75, 1, True):
        assert start.lerp(end, number).dtype == tc.lerp(start.numpy(), end.numpy(), number).dtype == "float32"
    w = tc.tensor(weight, requires_grad=True)
    start.lerp(end, w).sum().backward()
    assert w.grad.tolist() == [1.0, 3.0]


@pytest.mark.parametrize("weight", [-1.5, -0.5, -0.375, 0.0, 0.375, 0.5, 0.625, 1.0, 3.0])
def test_an_interpolation_begins_at_the_nearer_end(weight, rng):
    start, end = rng.standard_normal((2, 500)).astype(np.float32)
    w = np.float32(weight)
    expected = start + w * (end - start) if abs(weight) < 0.5 else end - (end - start) * (1 - w)
    for given in (weight, w, tc.tensor(weight), tc.full((500,), weight)):
        np.testing.assert_array_equal(tc.tensor(start).lerp(tc.tensor(end), given), expected)


def test_bounds_and_replacements_at_their_limits():
    x, low = tc.tensor([0.0, 5.0, 7.0]), tc.tensor([3.0, 3.0, 9.0], requires_grad=True)
    assert x.clamp_(min=low) is x
    x.sum().backward()
    assert x.tolist() == [3.0, 5.0, 9.0] and low.grad.tolist() == [1.0, 0.0, 1.0]
    for high, expected in (
        (4.0, [1.0, 1.0, 0.0]),
        (9.0, [1.0, 1.0, 0.0]),
        (3.0, [0.0, 0.0, 0.0]),
    ):  # what both bounds give is the upper one's
        low.grad = None
        tc.clamp(tc.zeros(3), low, high).sum().backward()
        assert low.grad.tolist() == expected
    broken = tc.tensor([np.nan, np.inf, -np.inf])
    assert broken.nan_to_num(None, 0.0, 0.0).tolist() == [0.0, 0.0, 0.0]


def test_what_is_close_is_so_by_the_second_number():
    assert tc.isclose(tc.tensor([1.0, 1.11]), tc.tensor([1.11, 1.0]), rtol=0.1, atol=0.0).tolist() == [True, False]
    assert tc.isclose(tc.tensor([100, 100]), tc.tensor([101, 120]), rtol=0.1).tolist() == [True, False]
    assert tc.isclose(tc.tensor([100, 7]), tc.tensor([101, 7]), rtol=0, atol=0).tolist() == [False, True]


def test_a_quotient_of_halves_is_not_rounded_up_before_it_is_cut_off():
    quotient = tc.div(tc.tensor([1001.0, -1001.0]).half(), tc.tensor(333.75).half(), rounding_mode="trunc")
    assert quotient.tolist() == [2.0, -2.0] and quotient.dtype == "float16"


def test_a_factor_of_zero_keeps_what_is_not_finite():
    x, inf = tc.ones(3), tc.tensor([np.inf, np.nan, 2.0])
    for found in (tc.addcmul(x, inf, x, value=0), tc.addcdiv(x, inf, x, value=0), x.add(inf, alpha=0), x.sub(inf, alpha=0)):
        np.testing.assert_array_equal(found, [np.nan, np.nan, 1.0])


def test_a_step_of_an_optimizer_as_papers_write_it():
    p, grad, mean, square = (tc.tensor(a, dtype="float32") for a in (X, X**2, 0 * X, 0 * X))
    mean.lerp_(grad, 0.1)
    square.mul_(0.999).addcmul_(grad, grad, value=0.001)
    p.addcdiv_(mean / 0.1, (square / 0.001).sqrt_().add_(1e-8), value=-0.01)
    np.testing.assert_allclose(p, X - 0.01, rtol=1e-4)


def test_writing_in_place():
    """The object itself, with the rules of ``+=``: a leaf that requires a gradient, and a dtype that does not fit, are refused."""
    x = tc.tensor([1.0, -7.0])
    assert x.add_(1) is x and x.sub_(tc.ones(2), alpha=2) is x and x.mul_(3.0) is x and x.div_(2) is x
    assert x.tolist() == [0.0, -12.0] and x.add_(0.5).div_(5, rounding_mode="trunc").tolist() == [0.0, -2.0]
    for change in (lambda t: t.add_(1.0), lambda t: t.mul_(2.0)):
        with pytest.raises(RuntimeError):
            change(tc.ones(2, requires_grad=True))
    with tc.no_grad():
        assert tc.ones(2, requires_grad=True).add_(1.0).tolist() == [2.0, 2.0]


def test_new_tensors_take_dtype_and_device_from_another():
    x = tc.ones(2, dtype="float16")
    for made in (
        x.new_zeros(2, 3),
        x.new_zeros(size=(2, 3)),
        x.new_ones((2, 3)),
        x.new_empty(2, 3),
        x.new_full((2, 3), 7),
        tc.randn_like(tc.ones(2, 3, dtype="float16")),
    ):
        assert (made.shape, made._dtype_name, made.device) == ((2, 3), "float16", "cpu")
    assert x.new_tensor([1, 2])._dtype_name == "float16" and x.new_zeros(2, dtype=tc.int64)._dtype_name == "int64"
    assert x.new_ones(2, requires_grad=True).requires_grad and tc.rand_like(X, dtype="float32")._dtype_name == "float32"


def test_numbers_are_pytorchs():
    torch = pytest.importorskip("torch")
    for name in ("rand", "randn"):
        for dtype in ("float32", "float64"):
            torch.manual_seed(3)
            theirs = getattr(torch, f"{name}_like")(torch.empty(5, 7, dtype=getattr(torch, dtype)))
            np.testing.assert_array_equal(
                getattr(tc, f"{name}_like")(tc.empty(5, 7, dtype=dtype), generator=tc.Generator(3)), theirs.numpy()
            )
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        for draw in (lambda x: x.normal_(1.0, 0.02), lambda x: x.normal_(), lambda x: x.uniform_(-1, 2), lambda x: x.data.uniform_()):
            torch.manual_seed(3)
            tc.manual_seed(3)
            theirs, ours = draw(torch.empty(5, 7, dtype=getattr(torch, dtype))), draw(tc.empty(5, 7, dtype=dtype))
            np.testing.assert_array_equal(ours.double().numpy(), theirs.double().numpy())
    for dtype in ("float32", "float64", "float16"):
        p = torch.linspace(0, 1, 1000).to(getattr(torch, dtype))
        torch.manual_seed(5)
        np.testing.assert_array_equal(tc.bernoulli(p.numpy(), rng=5), torch.bernoulli(p).numpy())


NORMAL = {
    "numbers": lambda m: m.normal(2, 0.5, size=(5, 7)),
    "numbers of another dtype": lambda m: m.normal(0.0, 3.0, (3,), dtype=m.float64, requires_grad=True),
    "means": lambda m: m.normal(m.arange(1.0, 26.0)),
    "means and a number": lambda m: m.normal(m.arange(1.0, 6.0).half(), 2.5),
    "deviations": lambda m: m.normal(mean=0.5, std=m.arange(20.0).double()),
    "both": lambda m: m.normal(m.arange(5.0)[:, None], m.arange(19.0)),
    "both, of two dtypes": lambda m: m.normal(m.arange(19.0).half(), m.arange(19.0).double()),
}


@pytest.mark.parametrize("name", NORMAL)
def test_normal_numbers_are_pytorchs(name):
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    tc.manual_seed(3)
    theirs, ours = NORMAL[name](torch), NORMAL[name](tc)
    np.testing.assert_array_equal(ours.detach(), theirs.detach().numpy())
    assert str(theirs.dtype) == f"torch.{ours._dtype_name}" and ours.requires_grad == theirs.requires_grad


def test_normal_refuses():
    x = tc.ones(3)
    for call, error, message in (
        (lambda: tc.normal(0.0, 1.0), TypeError, "needs a size"),
        (lambda: tc.normal(0.0, -1.0, (2,)), ValueError, "std must not be negative"),
        (lambda: tc.normal(x, -1.0), ValueError, "std must not be negative"),
        (lambda: tc.normal(x, -x), ValueError, "std has a negative element"),
        (lambda: tc.normal(x, 1.0, (3,)), TypeError, "from them"),
        (lambda: tc.normal(x.long()), TypeError, "not int64"),
        (lambda: tc.normal(x, tc.ones(2)), ValueError, "do not broadcast"),
    ):
        with pytest.raises(error, match=message):
            call()


REFUSED_DRAWS = {
    "randn": lambda g: tc.randn(3, device="gpu", generator=g),
    "rand": lambda g: tc.rand(3, device="gpu", generator=g),
    "randint": lambda g: tc.randint(3, (2,), device="gpu", generator=g),
    "randperm": lambda g: tc.randperm(3, device="gpu", generator=g),
    "normal": lambda g: tc.normal(0.0, 1.0, (3,), device="gpu", generator=g),
    "a leaf": lambda g: tc.ones(3, requires_grad=True).normal_(generator=g),
    "a leaf without axes": lambda g: tc.tensor(1.0, requires_grad=True).uniform_(generator=g),
    "a part of a leaf": lambda g: tc.ones(3, requires_grad=True)[1:].uniform_(generator=g),
    "read-only memory": lambda g: tc.as_tensor(np.frombuffer(bytes(12), np.float32)).uniform_(generator=g),
    "repeated elements": lambda g: tc.ones(1).expand(3).normal_(generator=g),
    "a generator and integers": lambda g: g.uniform(tc.zeros(3, dtype="int32"), 0.0, 1.0),
    "a generator and halves": lambda g: g.normal(tc.zeros(3, dtype="float16"), 0.0, 1.0),
    "a generator and columns": lambda g: g.normal(tc.zeros(3, 4)[:, 1:], 0.0, 1.0),
    "a generator and read-only memory": lambda g: g.uniform(tc.as_tensor(np.frombuffer(bytes(12), np.float32)), 0.0, 1.0),
}


@pytest.mark.parametrize("name", REFUSED_DRAWS)
def test_a_refused_draw_leaves_the_generator_as_it_was(name):
    generator = tc.Generator(3)
    before = np.asarray(generator.get_state())
    with pytest.raises((ValueError, RuntimeError)):
        REFUSED_DRAWS[name](generator)
    np.testing.assert_array_equal(np.asarray(generator.get_state()), before)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fill", ["normal_", "uniform_"])
def test_numbers_are_drawn_into_the_memory_itself(fill, dtype):
    """Without a second tensor; what a history kept of it is out of date then, and a part of it has the numbers."""
    x, y = tc.zeros(40_000, dtype=dtype), tc.zeros(40_000, dtype=dtype)
    part, leaf = x[7:], tc.ones(40_000, dtype=dtype, requires_grad=True)
    product = leaf * x
    getattr(y, fill)(generator=tc.Generator(3))
    _core.memory_reset_peak()
    before = _core.memory_stats()["in_use"]
    assert getattr(x, fill)(generator=tc.Generator(3)) is x
    assert _core.memory_stats()["peak_in_use"] - before < x.nbytes
    assert tc.equal(part, y[7:])
    with pytest.raises(RuntimeError):
        product.sum().backward()


VIEWS = {
    "transposed": lambda x: x.permute(2, 0, 1),
    "columns": lambda x: x[:, :, 1:4],
    "every other": lambda x: x[:, ::2],
    "few": lambda x: x[0, :2, ::2].T,
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_numbers_in_a_view_are_pytorchs(view, dtype):
    """Which fills in the order of the memory, with normal numbers drawn one by one."""
    torch = pytest.importorskip("torch")
    results = []
    for module in (torch, tc):
        module.manual_seed(3)
        x = module.zeros(4, 6, 5, dtype=getattr(module, dtype))
        part = VIEWS[view](x)
        part.normal_(1.0, 0.5)
        first = x.double().numpy().copy()
        module.nn.init.uniform_(part, -1.0, 2.0)
        results.append((first, x.double().numpy(), module.rand(2).numpy()))
    for theirs, ours in zip(*results, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("seed", [5, np.random.default_rng(5)], ids=["an int", "a generator of NumPy"])
def test_numbers_in_a_view_do_not_repeat(seed):
    """They are drawn in parts."""
    x = tc.zeros(40, 2)[:, 0]
    x.normal_(generator=seed)
    assert len(set(x.tolist())) == 40


def test_one_sample_and_a_generator_without_a_seed_are_pytorchs():
    torch = pytest.importorskip("torch")
    for replacement in (True, False):
        theirs, ours = (
            [m.multinomial(m.ones(50), 1, replacement, generator=generator).item() for _ in range(20)]
            for m in (torch, tc)
            for generator in [m.Generator()]
        )
        assert ours == theirs


def test_bernoulli_refuses():
    for given, error in ((np.array([0, 1]), TypeError), (np.array([1.5]), ValueError), (np.array([np.nan]), ValueError)):
        with pytest.raises(error, match="bernoulli|probabilities"):
            tc.bernoulli(given)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int64", "bool"])
def test_bernoulli_in_place(dtype):
    x, p = tc.zeros(3, 40, dtype=dtype), tc.rand(40)
    assert x.bernoulli_(p, generator=5) is x
    np.testing.assert_array_equal(x.float(), tc.bernoulli(p.expand(3, 40), rng=5))
    if x.is_floating_point():
        assert tc.equal(p.to(dtype).bernoulli(generator=5), tc.bernoulli(p.to(dtype), rng=5))
    x.T.bernoulli_(0.5, generator=5)
    np.testing.assert_array_equal(x.T.float(), tc.bernoulli(tc.full((40, 3), 0.5), rng=5))
    assert x.bernoulli_(0.0).sum() == 0 and x.bernoulli_(1).sum() == 120


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_exponential_numbers(dtype):
    x = tc.empty(200, 100, dtype=dtype)
    assert x.exponential_(4.0, generator=1) is x and (x > 0).all()
    found = np.sort(x.double().numpy().ravel())
    places = (np.arange(found.size) + 0.5) / found.size
    assert abs(-np.expm1(-4 * found) - places).max() < 0.015  # the distribution
    assert (tc.empty(5000, dtype=dtype).exponential_(1e38, generator=1) > 0).all()
    assert (tc.empty(5000, dtype="float16").exponential_(1e3, generator=1) > 0).all()
    with pytest.raises(TypeError, match="exponential_.. needs a floating tensor"):
        tc.ones(2, dtype="int64").exponential_()
    for rate in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="positive, finite lambd"):
            x.exponential_(rate)


def test_draws_of_classes_that_have_gradients():
    weights = np.array([0.2, 0.5, 0.3])
    scores = tc.tensor(np.log(np.tile(weights, (20_000, 1)))).requires_grad_()
    hard = tc.functional.gumbel_softmax(scores, tau=0.5, hard=True, rng=3)
    soft = tc.functional.gumbel_softmax(scores, tau=0.5, rng=3)
    assert tc.equal(hard.detach().round(12), tc.functional.one_hot(soft.argmax(-1), 3).double())
    assert abs(hard.detach().numpy().mean(0) - weights).max() < 0.015
    factors = tc.tensor(np.random.default_rng(0).standard_normal(scores.shape))
    gradients = [tc.autograd.grad((y * factors).sum(), scores)[0] for y in (hard, soft)]
    assert tc.equal(*gradients)
    assert gradcheck(lambda x: tc.functional.gumbel_softmax(x, 2.0, dim=0, rng=1), [tc.tensor(X, requires_grad=True)])
    found = tc.functional.gumbel_softmax(X, hard=True, dim=0)
    assert isinstance(found, np.ndarray) and found.sum() == 4 and tc.functional.gumbel_softmax(tc.zeros(2, 3).half()).dtype == tc.float16
    with pytest.raises(ValueError, match="tau must be positive"):
        tc.functional.gumbel_softmax(X, 0.0)
    with pytest.raises(TypeError, match="hard must be a bool, got 'no'"):
        tc.functional.gumbel_softmax(X, hard="no")


@pytest.mark.parametrize("count", [0, 1, 3, 100])
def test_elements_among_others(count):
    rng = np.random.default_rng(count)
    for dtype in ("int64", "float32"):
        x, others = rng.integers(0, 150, (3, 40)).astype(dtype), rng.integers(0, 150, (count, 1)).astype(dtype)
        for invert in (False, True):
            expected = np.isin(x, others, invert=invert)
            np.testing.assert_array_equal(tc.isin(x, others, invert=invert), expected)
            found = tc.isin(tc.tensor(x), tc.tensor(others), invert=invert)
            assert found.dtype == tc.bool and np.array_equal(found.numpy(), expected)
    assert tc.isin(tc.tensor([1, 2]), 2).tolist() == [False, True] and bool(tc.isin(2, tc.tensor([1, 2])))


def use_isin(library, count):
    """Of two dtypes; the first is an int that float32 rounds to the second."""
    tests = [2.0**24, 0.1, math.nan, math.inf, *range(100, 96 + count)][:count]
    for dtype, other in (
        ("int64", "float32"),
        ("float32", "float64"),
        ("bfloat16", "float32"),
        ("float16", "bfloat16"),
        ("int64", "float16"),
    ):
        elements = library.tensor([2**24 + 1, 5, 100] if dtype == "int64" else [0.1, 2.0**24, math.nan, math.inf, 100.0])
        elements, others = elements.to(getattr(library, dtype)), library.tensor(tests).to(getattr(library, other))
        yield library.isin(elements, others).tolist(), library.isin(elements, others, invert=True).tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 5, 32, 33, 100])
def test_elements_among_others_of_another_dtype(count):
    torch = pytest.importorskip("torch")
    assert list(use_isin(tc, count)) == list(use_isin(torch, count))
    assert tc.isin(tc.tensor([2**53 + 1]), tc.tensor([2**53, *range(count)])).tolist() == [False]


def test_refused_draws_leave_tensor_and_generator():
    x, leaf, generator = tc.ones(2, 3), tc.ones(2, 3, requires_grad=True), tc.Generator()
    before = generator.get_state()
    for given, p, error in ((x, 1.5, ValueError), (x, np.nan, ValueError), (x, tc.ones(4), ValueError), (leaf, 0.5, RuntimeError)):
        with pytest.raises(error):
            given.bernoulli_(p, generator=generator)
    assert x.sum() == leaf.sum() == 6
    np.testing.assert_array_equal(generator.get_state(), before)
    y = leaf.exp()
    for call in (lambda: y.bernoulli_(1.5), lambda: y.bernoulli_(generator="seed"), lambda: y.normal_(std=-1.0)):
        with pytest.raises((TypeError, ValueError)):
            call()
    assert y._version == 0 and y.grad_fn == "exp"


def test_an_interrupt_of_a_block_leaves_recording_as_it_was():
    def block():
        with tc.set_grad_enabled(False):
            tc.is_grad_enabled()

    nth, recorded = 0, []
    while interrupted(nth, block):
        recorded.append(_core.set_grad_enabled(True))
        nth += 1
    assert recorded and all(recorded)


def test_set_grad_enabled():
    with tc.set_grad_enabled(False):
        assert not tc.is_grad_enabled()
        with tc.set_grad_enabled(True):
            assert tc.is_grad_enabled()
        assert not tc.is_grad_enabled()
        with pytest.raises(ZeroDivisionError), tc.set_grad_enabled(True):
            raise ZeroDivisionError
        assert not tc.is_grad_enabled()
    assert tc.is_grad_enabled()
    decorated = tc.set_grad_enabled(False)(tc.is_grad_enabled)
    assert tc.is_grad_enabled() and not decorated() and tc.is_grad_enabled()
    tc.set_grad_enabled(False)
    try:
        assert not tc.is_grad_enabled()
    finally:
        tc.set_grad_enabled(True)
    with pytest.raises(TypeError, match="mode must be True or False, not 'train'"):
        tc.set_grad_enabled("train")
    assert tc.is_grad_enabled()


def test_inference_mode():
    x = tc.ones(2, requires_grad=True)
    with tc.inference_mode():
        assert not (x * 2).requires_grad
        with tc.inference_mode(False):
            assert (x * 2).requires_grad
    assert not tc.inference_mode()(lambda: x * 2)().requires_grad and not tc.inference_mode(lambda: x * 2)().requires_grad
    assert tc.is_grad_enabled()


def test_questions():
    assert tc.is_tensor(tc.ones(1)) and not tc.is_tensor(np.ones(1)) and not tc.is_tensor(None)
    assert tc.is_floating_point(tc.ones(1).half()) and not tc.ones(1).bool().is_floating_point()


REFUSED = {
    "a mask of places to fill": (lambda: tc.index_fill(X, 0, np.array([True, False, True]), 0.0), "bool; .*masked_fill"),
    "a mask of places to select": (lambda: tc.index_select(X, 0, np.array([True, False, True])), "bool; .*masked_select"),
    "a mask of places to add to": (lambda: tc.index_add(X, 0, np.array([True]), X[:1]), "bool; index_add"),
    "a slice too few to copy": (lambda: tc.index_copy(X, 0, np.array([0, 1]), X[:1]), "2 places along dim 0 .* take"),
    "slices of another dtype to copy": (
        lambda: tc.index_copy(X, 0, np.array([0]), X[:1].astype("float32")),
        "float32 but the tensor is float64",
    ),
    "a matrix of places to fill": (lambda: tc.index_fill(X, 0, np.zeros((1, 1), int), 0.0), "takes one axis"),
    "no axis to select from": (lambda: tc.select(X, 2, 0), "out of range"),
    "one length": (lambda: tc.unflatten(X, 1, 4), "sizes must be a sequence of ints, got 4"),
    "a weight that is none": (lambda: tc.lerp(X, X, "a"), "weight has dtype <U1; expected float32"),
    "lengths that do not fit": (lambda: tc.unflatten(X, 1, (3, 2)), "12"),
    "a vector to mm": (lambda: tc.mm(V, X), "input has shape \\(3,\\); mm"),
    "other batches": (lambda: tc.bmm(np.ones((2, 1, 1)), np.ones((3, 1, 1))), "as many matrices"),
    "three axes to t": (lambda: tc.ones(1, 1, 1).t(), "mT"),
    "a cube to diag": (lambda: tc.diag(np.ones((1, 1, 1))), "a vector or a matrix"),
    "counts of floats": (lambda: tc.bincount(V), "a vector of integers, got float64"),
    "counts of negative numbers": (lambda: tc.bincount(np.array([-1])), "negative"),
    "a matrix of boundaries": (lambda: tc.bucketize(V, X), "expected a vector"),
    "rows of others": (lambda: tc.searchsorted(X, V), "sorted_sequence has shape"),
    "two sides": (lambda: tc.searchsorted(V, V, right=True, side="left"), "opposite"),
    "a quantile beyond": (lambda: tc.quantile(X, 1.5), "q must be a number from 0 to 1"),
    "a quantile of NaN": (lambda: tc.quantile(X, math.nan), "q must be a number from 0 to 1"),
    "a quantile of integers": (lambda: tc.quantile(np.arange(3), 0.5), "float32 and float64, not int64"),
    "a quantile of nothing": (lambda: tc.quantile(X[:0], 0.5), "no elements"),
    "no axis to scan": (lambda: tc.cummax(X, 2), "out of range"),
    "logarithms of integers": (lambda: tc.logcumsumexp(np.arange(3), 0), "int64; a floating dtype is needed"),
    "a trace of a vector": (lambda: tc.trace(V), "takes a matrix"),
    "a diagonal of a vector": (lambda: tc.ones(3).fill_diagonal_(1), "takes a matrix"),
    "a product of places": (lambda: tc.scatter_reduce(X, 0, np.zeros((1, 1), int), X, "prod"), "reduce must be"),
    "a place to reduce beyond": (lambda: tc.scatter_reduce(X, 0, np.full((1, 1), 3), X, "amax"), "out of range"),
    "an array to reduce too short": (lambda: tc.scatter_reduce(X, 0, np.zeros((2, 1), int), X[:1], "amin"), "src"),
    "a mask of numbers": (lambda: tc.masked_scatter(X, X, X), "mask is float64"),
    "places for more than there is": (lambda: tc.masked_scatter(X, X > -9, X[:1]), "source has 4 elements for 12 places"),
    "an array of another dtype": (lambda: tc.masked_scatter(X, X > 0, X.astype(np.float32)), "source is float32 but the tensor is float64"),
    "a diagonal of one axis": (lambda: tc.diagonal(X, 0, 1, -1), "two different axes"),
    "rows of other lengths": (lambda: tc.cdist(X, X[:, 1:]), "as many columns"),
    "places of fewer axes": (lambda: tc.take_along_dim(X, np.array([0]), 1), "indices has 1 axes; expected 2"),
    "a place beyond": (lambda: tc.take_along_dim(X, np.array([[4]]), 1), "out of range"),
    "a size below 0": (lambda: tc.tril_indices(-1, 2), "row must be at least 0"),
    "fewer places": (lambda: tc.movedim(X, (0, 1), 0), "as many"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, message = REFUSED[name]
    with pytest.raises((ValueError, TypeError, IndexError), match=message):
        call()


EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (1, 4)), ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)), ("i,j->ij", (2,), (3,)), ("ii->i", (3, 3)),
    ("iji,i->j", (2, 3, 2), (2,)), ("ij->", (2, 3)), ("ij,kl->", (2, 3), (4, 5)), ("...ij,jk->...ik", (2, 1, 3, 4), (4, 5)), ("a...,a...->...", (2, 3, 4), (2, 1, 4)),
    ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 5)), ("ab,b,a->", (2, 3), (3,), (2,)), ("ij,ij->ij", (2, 3), (2, 3)), ("ij,jk->ki", (0, 3), (3, 2)), ("ij,jk->ik", (2, 0), (0, 3)),
    ("ij,i->", (2, 3), (2,)), ("cba->abc", (2, 3, 4)), ("i,i", (4,), (4,)), ("ij,jk->ik", (2, 1), (3, 4)), ("iii->i", (3, 3, 3)), ("i,jkjk->ik", (2,), (3, 4, 3, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("equation", "shapes"), [(e, s) for e, *s in EQUATIONS])
def test_einsum_is_numpys_each_time(equation, shapes):
    """Twice: the second call has a plan already, also for other lengths of the same equation."""
    rng = np.random.default_rng(1)
    for repeat in (1, 1, 2):
        arrays = [np.tile(rng.standard_normal(s), (repeat,) * len(s)) for s in shapes]
        if repeat == 2 and 1 in [n for s in shapes for n in s]:
            continue
        np.testing.assert_allclose(tc.einsum(equation, *arrays), np.einsum(equation, *arrays), rtol=1e-12, atol=1e-12)
        assert gradcheck(lambda *x: tc.einsum(equation, *x), arrays) if 0 not in arrays[0].shape and repeat == 1 else True


def test_products_are_added():
    broken = tc.full((2, 2), np.nan)
    assert tc.addmm(broken, tc.eye(2), tc.eye(2), beta=0).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert (
        broken.addmm(tc.eye(2), tc.eye(2)).isnan().all() and tc.addmm(np.int64(1), np.eye(2, dtype=int), np.eye(2, dtype=int)).dtype == int
    )
    for call, error, message in (
        (lambda: tc.addmm(tc.ones(3), tc.eye(2), tc.eye(2)), ValueError, "3"),
        (lambda: tc.addmm(tc.ones(4, 2, 2), tc.eye(2), tc.eye(2)), ValueError, "4, 2, 2"),
        (lambda: tc.addmm(tc.ones(2, dtype="float64"), tc.eye(2), tc.eye(2)), TypeError, "input is float64 but the products are float32"),
        (
            lambda: tc.addmm(np.arange(2), np.eye(2, dtype=int), np.eye(2, dtype=int), alpha=0.5),
            TypeError,
            "alpha 0.5 cannot be written to a tensor",
        ),
        (lambda: tc.baddbmm(tc.ones(2), tc.eye(2), tc.eye(2)), ValueError, r"shape \(2, 2\); baddbmm"),
    ):
        with pytest.raises(error, match=message):
            call()


def test_einsum_promotes_where_it_sums_nothing():
    """The angles of rotary embeddings, of whole positions; sums of products take one dtype, as matmul does."""
    angles = tc.einsum("i, j -> i j", tc.arange(3), tc.tensor([0.5, 1.0]))
    assert angles.dtype == np.float32 and angles.tolist() == [[0.0, 0.0], [0.5, 1.0], [1.0, 2.0]]
    assert tc.einsum("ij,j->ij", tc.eye(2).bool(), tc.ones(2, dtype="float64")).dtype == np.float64
    with pytest.raises(TypeError, match="one dtype, not int64, float32"):
        tc.einsum("i,i->", tc.arange(2), tc.ones(2))


def test_einsum_names_the_axis():
    with pytest.raises(ValueError, match=r"the axis 'j' has lengths 3 and 4 \(shapes \(2, 3\), \(4, 5\)\)"):
        tc.einsum("ij,jk->ik", np.ones((2, 3)), np.ones((4, 5)))
    with pytest.raises(ValueError, match=r"the axes 'i' of an operand of shape \(2, 3\)"):
        tc.einsum("ii->i", np.ones((2, 3)))


# ---- numbers that were wrong ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("scale", [1e-3, 30.0, 300.0])
@pytest.mark.parametrize("p", [2, 3, 0.5, 1, "std"])
def test_norms_of_halves_are_rounded_once(dtype, scale, p):
    h = tc.tensor(scale * X).to(dtype).requires_grad_()
    wide = tc.tensor(h.detach().double().numpy(), requires_grad=True)
    found, expected = (x.std() if p == "std" else x.norm(p) for x in (h, wide))
    found.backward()
    expected.backward()
    step = 2.0**-10 if dtype == "float16" else 2.0**-7
    assert found._dtype_name == dtype
    if float(expected) < 65504 or dtype == "bfloat16":
        np.testing.assert_allclose(float(found), float(expected), rtol=step)
        np.testing.assert_allclose(h.grad.double().numpy(), wide.grad.numpy(), rtol=2 * step, atol=1e-4)


def test_std_of_large_numbers_does_not_overflow():
    """The squares of float32 do. Other rows keep their bits."""
    x = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32) * np.float32([[1.0], [3e19], [1e37]])
    t = tc.tensor(x, requires_grad=True)
    found = t.std(1)
    found.sum().backward()
    wide = tc.tensor(x.astype(np.float64), requires_grad=True)
    wide.std(1).sum().backward()
    np.testing.assert_allclose(found.detach().numpy(), x.astype(np.float64).std(1, ddof=1), rtol=1e-6)
    np.testing.assert_allclose(t.grad.numpy(), wide.grad.numpy(), rtol=1e-5)
    assert found[0].item() == tc.std(x[0]).item() and np.isinf(tc.var(x[1])) and np.isnan(tc.std(np.float32([np.inf, 1.0, 3e19])))
    np.testing.assert_allclose(float(tc.tensor(x[2]).bfloat16().std()), x[2].astype(np.float64).std(ddof=1), rtol=2e-2)


def test_norm_counts_nan_and_refuses_no_elements():
    assert tc.norm(np.array([0.0, 1.0, np.nan, np.inf]), 0) == 3
    x = tc.tensor([0.0, 2.0], requires_grad=True)
    x.norm(0).backward()
    assert x.grad.tolist() == [0.0, 0.0]
    for p in (-1, -np.inf):
        with pytest.raises(ValueError):
            tc.norm(np.ones((0, 2)), p, 0)


def test_div_truncates_the_quotient():
    a, b = np.array([1.0, -0.5, np.inf, 7.0, -7.0]), np.array([0.1, 0.1, 2.0, 2.0, 2.0])
    np.testing.assert_array_equal(tc.div(a, b, rounding_mode="trunc"), np.trunc(a / b))
    np.testing.assert_array_equal(tc.div(np.array([-7, 7, 2**62]), 2, rounding_mode="trunc"), [-3, 3, 2**61])
    half = tc.tensor([2047.0], dtype="float16")  # 2047 / 2048 rounds to 1 in float16
    assert tc.div(half, tc.tensor([2048.0], dtype="float16"), rounding_mode="trunc").tolist() == [0.0]
    x, y = tc.tensor([1.0, 2.0], requires_grad=True), tc.tensor([0.0, 1.0])
    (x + tc.div(x, y, rounding_mode="trunc").clamp(max=9)).sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_weights_of_any_size():
    for replacement in (True, False):
        drawn = [int(tc.multinomial(np.array([1e308] * 4), 1, replacement, rng=seed)[0]) for seed in range(40)]
        assert set(drawn) == {0, 1, 2, 3}
        assert tc.multinomial(np.array([0.0, 1e-310]), 1, replacement, rng=0).tolist() == [1]
        assert tc.multinomial(np.ones((0, 3)), 2, replacement).shape == (0, 2)
        with pytest.raises(ValueError, match="above 0"):
            tc.multinomial(np.ones((2, 0)), 1, replacement)
        sampler = tc.data.WeightedRandomSampler([1e308] * 4, 4 if not replacement else 100, replacement, rng=0)
        assert set(sampler) == {0, 1, 2, 3}
        assert list(tc.data.WeightedRandomSampler([0.0, 1e-310], 1, replacement, rng=0)) == [1]


def test_repeats_that_add_up_to_too_many():
    for repeats in (np.array([2**62, 2**62, 2**62]), np.array([2**61])):
        with pytest.raises(ValueError, match="more elements than memory can address"):
            tc.repeat_interleave(np.arange(3), repeats)


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles_of_infinities_and_by_float32(interpolation):
    torch = pytest.importorskip("torch")
    parts = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0], np.float32)
    for values in ([0.0, 1.0, np.inf], [-np.inf, 0.0, 1.0, 2.0, 3.0], [np.inf], [*range(11)]):
        for dtype in ("float32", "float64"):
            x = np.array(values, dtype)
            found = tc.quantile(tc.tensor(x), tc.tensor(parts.astype(dtype)), interpolation=interpolation)
            expected = torch.quantile(torch.tensor(x), torch.tensor(parts.astype(dtype)), interpolation=interpolation)
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)
