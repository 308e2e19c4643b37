"""Functions of elements in place, and those that are one pass instead of several: the bits, the memory and the history of what they stand for.

What is recorded takes the parts one after the other, and so is what these are compared with.
"""

import numpy as np
import pytest
import transformer_c as tc

RNG = np.random.default_rng(0)
SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-42, -1e-42, 3e38, -3e38, 0.5, -0.5, 1.0, -1.0]
DTYPES = ["float32", "float64", "float16", "bfloat16"]
NAMES = (
    "abs", "ceil", "cos", "erf", "exp", "floor", "log", "log1p", "neg", "reciprocal", "relu", "round", "rsqrt", "sigmoid",
    "sign", "sin", "sqrt", "square", "tanh", "trunc",
)  # fmt: skip
ALONE = {name: lambda x, name=name: getattr(x, name)() for name in NAMES}
WITH_NUMBERS = {
    "clamp": lambda x: x.clamp(-0.25, 0.75),
    "clamp below": lambda x: x.clamp(min=-0.25),
    "clamp above": lambda x: x.clamp(max=0.75),
    "clip": lambda x: x.clip(-0.25, 0.75),
    "crossed clamp": lambda x: x.clamp(0.75, -0.25),
    "clamp by NaN": lambda x: x.clamp(np.nan, 0.5),
    **{f"pow {p}": lambda x, p=p: x.pow(p) for p in (2, 0.5, -0.5, -1, 3, 1.5)},
}
WITH_TENSORS = {
    "add": lambda x, y, z: x.add(y, alpha=0.3),
    "add of a multiple": lambda x, y, z: x.add(y, alpha=-2),
    "sub": lambda x, y, z: x.sub(y, alpha=0.3),
    "sub of nothing": lambda x, y, z: x.sub(y, alpha=0),
    "addcmul": lambda x, y, z: x.addcmul(y, z),
    "addcmul scaled": lambda x, y, z: x.addcmul(y, z, value=0.3),
    "addcdiv": lambda x, y, z: x.addcdiv(y, z),
    "addcdiv scaled": lambda x, y, z: x.addcdiv(y, z, value=-0.3),
    "lerp": lambda x, y, z: x.lerp(y, 0.3),
    "lerp back": lambda x, y, z: x.lerp(y, -0.3),
    "lerp far": lambda x, y, z: x.lerp(y, 0.7),
    "lerp by tensors": lambda x, y, z: x.lerp(y, z),
}


class InPlace:
    """A Tensor whose functions are those in place."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __getattr__(self, name):
        return getattr(self.tensor, f"{name}_")


def numbers(count):
    """Special ones beside ordinary ones, in another order each time."""
    values = np.concatenate([np.repeat(SPECIAL, 3), RNG.standard_normal(max(0, count))])
    return RNG.permutation(values)[:count]


LAYOUTS = {
    "contiguous": lambda n: (tc.tensor(numbers(n)), lambda t: t),
    "transposed": lambda n: (tc.tensor(numbers(n).reshape(-1, 7)), lambda t: t.T),
    "stepped": lambda n: (tc.tensor(numbers(2 * n)), lambda t: t[::2]),
    "backwards": lambda n: (tc.tensor(numbers(n).copy()), lambda t: t[::-1][1:]),
    "of columns": lambda n: (tc.tensor(numbers(2 * n).reshape(-1, 14)), lambda t: t[:, 2:9]),
}


def same(a, b):
    """Of the same bits; a NaN is one."""
    a, b = (t.detach().contiguous() for t in (a, b))
    assert a.shape == b.shape and a.dtype == b.dtype
    a, b = (t.double().numpy() for t in (a, b))
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(np.signbit(a[~np.isnan(a)]), np.signbit(b[~np.isnan(b)]))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*ALONE, *WITH_NUMBERS, *WITH_TENSORS])
def test_the_bits_of_the_parts(name, dtype):
    function = {**ALONE, **WITH_NUMBERS, **WITH_TENSORS}[name]
    for layout in LAYOUTS.values():
        for count in (7, 56, 700):
            memory, view = layout(count)
            memory = memory.to(dtype)
            x = view(memory)
            others = [tc.tensor(numbers(x.numel()).reshape(tuple(x.shape))).to(dtype) for _ in range(2)] if name in WITH_TENSORS else []
            expected = function(x.clone().requires_grad_(), *others)
            same(function(x, *others), expected)
            around = memory.clone()
            view(around).copy_(expected.detach())
            assert function(InPlace(x), *others) is x
            same(x, expected)
            same(memory, around)  # and nothing else was written


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("given", [{}, {"nan": 3.0}, {"nan": None}, {"nan": np.inf}, {"posinf": 1.0}, {"neginf": -1.0, "nan": 2}])
def test_other_numbers_for_nan_and_infinity(given, dtype):
    for layout in LAYOUTS.values():
        memory, view = layout(56)
        x = view(memory.to(dtype))
        expected = x.clone().requires_grad_().nan_to_num(**given)
        same(x.nan_to_num(**given), expected)
        same(x.nan_to_num_(**given), expected)
    for empty in (tc.zeros(0, 3), tc.tensor(np.nan)):
        assert not np.isnan(empty.nan_to_num().numpy()).any()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", WITH_TENSORS)
def test_operands_that_broadcast_or_repeat(name, dtype):
    function = WITH_TENSORS[name]
    x = tc.tensor(RNG.standard_normal((5, 40))).to(dtype)
    for shapes in (((5, 1), (40,)), ((1,), (5, 40)), ((), (1, 40)), ((5, 40), (5, 1))):
        others = [tc.tensor(RNG.standard_normal(shape)).to(dtype) for shape in shapes]
        expected = function(x.clone().requires_grad_(), *others)
        same(function(x, *others), expected)
        same(function(InPlace(x.clone()), *others), expected)
    others = [tc.tensor(RNG.standard_normal((5, 1))).to(dtype).expand(5, 40), x]
    expected = function(x.clone().requires_grad_(), others[0], x.clone())
    y = x.clone()
    same(function(InPlace(y), others[0], y), expected)  # one of them is the target
    same(function(x[:1], *others), function(x[:1].clone().requires_grad_(), *others))  # the result is larger than x


@pytest.mark.parametrize("name", WITH_TENSORS)
def test_operands_of_other_dtypes_or_of_no_tensors(name):
    function = WITH_TENSORS[name]
    x = tc.tensor([1.5, -2.0, 3.0])
    for others in (
        (tc.tensor([1, 2, 3]), tc.tensor([4, 5, 6])),
        (tc.tensor([1.0, 2.0, 3.0]), tc.tensor([True, True, True])),
        (tc.tensor(2.0).double(), tc.tensor([0.1, 0.2, 0.3])),
        (tc.tensor([1.0, 2.0, 3.0]).half(), tc.tensor([0.1, 0.2, 0.3])),
        (np.float32([1.0, 2.0, 3.0]), np.float32([0.1, 0.2, 0.3])),
    ):
        expected = function(x.clone().requires_grad_(), *others)
        same(function(x, *others), expected)
        same(function(InPlace(x.clone()), *others), expected)


@pytest.mark.parametrize("name", WITH_TENSORS)
def test_memory_that_overlaps(name):
    function, whole = WITH_TENSORS[name], RNG.standard_normal(1001).astype(np.float32)
    for place, others in ((slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None)), (slice(None), slice(None, None, -1))):
        memory = whole.copy()
        x, y = tc.from_numpy(memory)[place], tc.from_numpy(memory[others])
        expected = function(tc.tensor(whole[place]).requires_grad_(), tc.tensor(whole[others].copy()), tc.tensor(whole[others].copy()))
        same(function(InPlace(x), y, y), expected)
    with pytest.raises(ValueError, match="repeats its elements"):
        function(InPlace(tc.ones(1).expand(4)), tc.ones(4), tc.ones(4))


@pytest.mark.parametrize("name", ["relu", "pow 2", "lerp", "addcmul"])
def test_threads_and_memory(name):
    """Many elements: the same bits with several threads, and no second tensor."""
    function, count = {**ALONE, **WITH_NUMBERS, **WITH_TENSORS}[name], 1 << 20
    values = [RNG.standard_normal(count).astype(np.float32) for _ in range(3)]
    others = [tc.tensor(v) for v in values[1:]] if name in WITH_TENSORS else []
    expected = function(tc.tensor(values[0]).requires_grad_(), *others)
    before, results = tc.get_num_threads(), []
    try:
        for threads in (1, 3):
            tc.set_num_threads(threads)
            x = tc.tensor(values[0])
            tc._core.memory_reset_peak()
            held = tc._core.memory_stats()["in_use"]
            function(InPlace(x), *others)
            assert tc._core.memory_stats()["peak_in_use"] - held < count
            results.append(x)
    finally:
        tc.set_num_threads(before)
    for result in results:
        same(result, expected)


def test_the_history():
    x, w = tc.randn(10), tc.randn(10, requires_grad=True)
    y = x * w  # which keeps x
    x.relu_()
    with pytest.raises(RuntimeError, match="written in place"):
        y.sum().backward()
    with tc.no_grad():
        w.lerp_(x, 0.1)
        w.addcmul_(x, x)
        w.clamp_(-1, 1)
    assert w.is_leaf and w.requires_grad and w.grad is None
    with pytest.raises(RuntimeError, match="leaf"):
        w.relu_()
    z = w * 1
    z.lerp_(x, 0.25)
    z.pow_(2)
    z.sum().backward()
    inner = w.detach() + 0.25 * (x - w.detach())
    np.testing.assert_allclose(w.grad.numpy(), (2 * inner * 0.75).numpy(), rtol=1e-5)


def test_integers_and_wrong_arguments():
    x = tc.tensor([3, -2, 1])
    assert x.clamp_(-1, 2).tolist() == [2, -1, 1] and x.add_(tc.tensor([1, 1, 1]), alpha=2).tolist() == [4, 1, 3]
    assert x.abs_().neg_().tolist() == [-4, -1, -3] and x.pow_(2).tolist() == [16, 1, 9]
    y = tc.ones(3)
    for call in (
        y.clamp_,
        lambda: y.relu_(1),
        lambda: y.lerp_(y),
        lambda: y.lerp_(y, 0.1, 2),
        lambda: y.addcmul_(y, y, 2),
        lambda: y.pow_(),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()
    with pytest.raises(ValueError, match="shape"):
        y.add_(tc.ones(2, 3), alpha=2)
    with pytest.raises(ValueError):
        y.lerp_(tc.ones(4), 0.1)
    assert y.tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["hardsigmoid", "hardswish"])
def test_activations_in_few_passes(name, dtype):
    function = getattr(tc.functional, name)
    for layout in LAYOUTS.values():
        memory, view = layout(56)
        memory = 4 * memory.to(dtype)
        x, before = view(memory), memory.clone()
        same(function(x), function(x.clone().requires_grad_()))
        same(memory, before)
    assert isinstance(function(np.ones(3)), np.ndarray)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_integers_in_place_are_written_where_they_are(dtype, layout):
    calls = {
        **{name: () for name in ("abs", "ceil", "floor", "neg", "relu", "round", "sign", "square", "trunc")},
        "clamp": (2, 40), "crossed clamp": (9, 2), "clamp below": (3,), "clamp above": (None, 40), "clamp by a tensor": (tc.tensor(5).to(dtype), 40),
    }  # fmt: skip
    for name, arguments in calls.items():
        method = "clamp" if "clamp" in name else name
        for n in (7, 700):
            base, view = LAYOUTS[layout](n)
            base = (base.nan_to_num().clamp(-9, 9) * 12).abs().to(dtype) - (0 if dtype == "uint8" else 20)
            written, place = view(base), view(base).clone()
            memory = written.data_ptr()
            expected = getattr(place, method)(*arguments)
            assert getattr(written, f"{method}_")(*arguments) is written and written.data_ptr() == memory
            same(written, expected)
            same(view(base), expected)
    for wrong in [(-300, 2), (0, 2**40)] if dtype == "uint8" else [(0, 2**70)]:
        before = written.clone()
        with pytest.raises((TypeError, ValueError)):
            written.clamp_(*wrong)
        same(written, before)
