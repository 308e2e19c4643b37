"""Element-wise kernels on flat arrays: vectors of 16 bytes where number and addresses allow it, and the same values elsewhere."""

import ctypes
import itertools
import math

import numpy as np
import pytest
import transformer_c as tc
from cuda_library import DTYPES, NUMBERS, STORAGE, compute_dtype, normal, small
from device_cases import array, beside_the_cpu
from transformer_c.testing import reference as R

FUNCTIONS = [
    lambda x, y: x * y + x.exp(),
    lambda x, y: (2 / (x + 3)) * y,
    lambda x, y: tc.where(x > y, x, y).clamp(0.5, 8),
    lambda x, y: tc.functional.gelu(x) - y,
]


def launched(library, gpu, call):
    tc.cuda.synchronize(gpu)
    library.launches()
    call()
    tc.cuda.synchronize(gpu)
    return library.launches()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("shape, start", [((2, 32), 0), ((8,), 0), ((63,), 0), ((1,), 8), ((64,), 1), ((7, 5), 3)])
def test_element_wise(emulated_gpu, emulated_library, dtype, shape, start, rng):
    x, y = array(rng, 80, dtype), array(rng, 80, dtype)

    def views(*whole):
        return [t[start : start + math.prod(shape)].reshape(shape) for t in whole]

    for function in FUNCTIONS:
        beside_the_cpu(lambda *whole, f=function: f(*views(*whole)), emulated_gpu, rng, x, y)
    a, b = views(*(tc.tensor(z, device=emulated_gpu) for z in (x, y)))
    kernels = launched(emulated_library, emulated_gpu, lambda: a * b)
    assert any("flat_kernel" in kernel for kernel in kernels) == (start == 0 and dtype != "float64" and a.numel() % 8 == 0), kernels


# With how many kernels of their own their backward has.
OWN = {
    "relu": (tc.functional.relu, 1),
    "gelu": (tc.functional.gelu, 1),
    "gelu_tanh": (lambda x: tc.functional.gelu(x, approximate="tanh"), 1),
    "silu": (tc.functional.silu, 1),
    "add": (lambda x: x + x, 0),
    "sub": (lambda x: x.exp() - x, 0),
    "mul": (lambda x: x * x, 0),
    "mul by a number": (lambda x: 1.25 * x, 0),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", OWN)
def test_common_functions_have_kernels_of_their_own(emulated_gpu, emulated_library, dtype, name, rng):
    """With the same bits as the general kernel, which takes what begins anywhere; both ways."""
    function, backward = OWN[name]
    values = array(rng, 137, dtype)
    results = []
    for start in (0, 1):  # the second array begins between vectors
        x = tc.zeros(137, dtype=dtype, device=emulated_gpu)[start : start + 136]
        x.copy_(tc.tensor(values[:136], device=emulated_gpu))
        x.requires_grad_()
        made = {}
        kernels = launched(emulated_library, emulated_gpu, lambda x=x, made=made: made.update(y=function(x)))
        assert sum("own_flat_kernel" in kernel for kernel in kernels) == (not start), kernels
        kernels = launched(emulated_library, emulated_gpu, lambda x=x, made=made: made["y"].backward(tc.ones_like(x)))
        assert start or sum("own_flat_kernel" in kernel for kernel in kernels) >= backward, kernels
        results.append([t.detach().cpu().float().numpy() for t in (made["y"], x.grad)])
    np.testing.assert_array_equal(*results)
    beside_the_cpu(function, emulated_gpu, rng, array(rng, 64, dtype))


def test_tails_of_gelu(emulated_gpu):
    """Beside float64, with errors relative to each value, and of slopes to one; the largest numbers, and NaN."""
    x = np.concatenate([np.linspace(-13, 13, 1001), [-1e-30, 0, 1e-30, 30, 3e38, -20, -3e38, np.nan]]).astype(np.float32)
    t = tc.tensor(x, device=emulated_gpu).requires_grad_()
    y = tc.functional.gelu(t)
    y.backward(tc.ones_like(t))
    x = x.astype(float)
    cumulative = np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in x])
    np.testing.assert_allclose(y.detach().cpu().numpy(), x * cumulative, rtol=2e-5, atol=1e-37)
    with np.errstate(over="ignore"):
        slope = cumulative + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(t.grad.cpu().numpy(), slope, rtol=2e-5, atol=2e-7)


def test_what_is_not_flat_is_read_by_its_strides(emulated_gpu, emulated_library, rng):
    x = tc.tensor(array(rng, (8, 8), "float32"), device=emulated_gpu)
    for call in (lambda: x * x[:1], lambda: x * x.transpose(0, 1), lambda: x[:, ::2] * 2, lambda: x.half() * x, lambda: x[::-1] + 1):
        kernels = launched(emulated_library, emulated_gpu, call)
        assert not any("flat_kernel" in kernel for kernel in kernels), kernels


# ---- kernels on arrays that begin anywhere -------------------------------------------------------------------------------------

SIZES = [small(0, 9), small(1, 3), (0, 0), (0, 64), (0, 4099), (2, 64), (3, 5)]  # elements before the first, elements


def inside(cuda, kernel, dtype, first, count, to, inputs, **values):
    """What the kernel writes to elements first ... first + count - 1 of the array named and given by `to`; the others stay."""
    (name, before), arrays = to, {member: cuda.array(a) for member, a in inputs.items()}
    memory = cuda.array(before)
    places = {member: a.pointer + first * a.dtype.itemsize for member, a in {name: memory, **arrays}.items()}
    cuda.run(kernel, dtype, count, **values, **places)
    after = memory.numpy()
    np.testing.assert_array_equal(np.delete(after, range(first, first + count)), np.delete(before, range(first, first + count)))
    return after[first : first + count]


@pytest.mark.parametrize("first, n", SIZES)
def test_sums_in_place(cuda, dtype, first, n, rng):
    to, added = (normal(rng, first + n + 9, dtype) for _ in range(2))
    total = inside(cuda, "add_in_place", dtype, first, n, ("to", to), {"from": added}, numel=n)
    wide = compute_dtype(dtype)
    np.testing.assert_array_equal(total, (to.astype(wide) + added.astype(wide)).astype(dtype)[first : first + n])


SLOPES = {
    "NONE": lambda dy, x: dy,
    "RELU": lambda dy, x: dy * (x > 0),
    "GELU": R.gelu_backward,
    "GELU_TANH": lambda dy, x: R.gelu_backward(dy, x, "tanh"),
}
APART = {"float64": 1e-12, "float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}


@pytest.mark.parametrize("activation", SLOPES)
@pytest.mark.parametrize("first, n", SIZES)
def test_activation_backward(cuda, dtype, activation, first, n, rng):
    dx, dy, x = (normal(rng, first + n + 9, dtype) for _ in range(3))
    number = NUMBERS[f"TC_ACTIVATION_{activation}"]
    found = inside(cuda, "activation_backward", dtype, first, n, ("dx", dx), {"dy": dy, "x": x}, n=n, activation=number)
    expected = SLOPES[activation](dy.astype(np.float64), x.astype(np.float64))[first : first + n]
    apart = APART[np.dtype(dtype).name]
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=apart, atol=apart)


@pytest.mark.parametrize("source, target", list(itertools.permutations(DTYPES, 2)))
@pytest.mark.parametrize("first, n", SIZES)
def test_casts(cuda, source, target, first, n, rng):
    x, to = (normal(rng, first + n + 9, DTYPES[name]) for name in (source, target))
    x[first : first + 3] = [np.nan, np.inf, -0.0]
    flat = {name: (ctypes.c_int64 * 16)(1) for name in ("to_strides", "from_strides")}
    shape = {"numel": n, "ndim": 1, "shape": (ctypes.c_int64 * 16)(n)}
    dtypes = {"from_dtype": STORAGE[source], "to_dtype": STORAGE[target]}
    found = inside(cuda, "copy", np.float32, first, n, ("to", to), {"from": x}, **dtypes, **shape, **flat)
    np.testing.assert_array_equal(found.astype(np.float64), x[first : first + n].astype(DTYPES[target]).astype(np.float64))
