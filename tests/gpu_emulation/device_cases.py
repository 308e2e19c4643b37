"""Shared by the tests with device="cuda:emulated": the fixture `device`, Tensors made from arrays, and comparison with the CPU."""

import gc
import threading

import ml_dtypes
import numpy as np
import pytest
import transformer_c as tc
from tolerance import assert_close

FLOATS = ["float32", "float64", "float16", "bfloat16"]
ALL_DTYPES = [*FLOATS, "int64", "int32", "uint8", "bool"]


@pytest.fixture(params=["cpu", "cuda:emulated"])
def device(request):
    return request.getfixturevalue("emulated_gpu") if request.param != "cpu" else request.param


@pytest.fixture
def nothing_is_left(emulated_gpu):
    """The case frees its device memory."""
    before = tc.cuda.memory_stats(emulated_gpu)["in_use"]
    yield
    gc.collect()  # a module and its trainer know each other
    assert tc.cuda.memory_stats(emulated_gpu)["in_use"] == before


def array(rng, shape, dtype):
    dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    values = rng.integers(0, 2, shape) if dtype == "bool" else 9 * np.abs(rng.standard_normal(shape))
    return np.asarray(values).astype(dtype)


def leaves(device, *arrays):
    return [None if a is None else tc.tensor(a, device=device, requires_grad=True) for a in arrays]


def host(x):
    return x.detach().cpu().numpy()


def check_gradients(tensors, expected, dtype):
    for i, (tensor, wanted) in enumerate(zip(tensors, expected, strict=True)):
        if tensor is not None:
            assert tensor.grad.device == tensor.device
            assert_close(host(tensor.grad), wanted, dtype, gradient=True, scale=1 + np.abs(wanted).max(initial=0), name=f"gradient {i}")


# What two devices may differ by: in half precision the last digit, in which both round what they computed in float32.
APART = {"float32": 2e-5, "float16": 2**-10, "bfloat16": 2**-7}


def beside_the_cpu(function, gpu, rng, *arrays, dtype=None):
    """Values and gradients of the same call on both devices; other tests compare the CPU's with the reference."""
    results = []
    for place in ("cpu", gpu):
        inputs = [tc.tensor(a, device=place, requires_grad=a.dtype.name in FLOATS) for a in arrays]
        y = function(*inputs)
        assert y.device == place
        if y.requires_grad:
            dy = np.random.default_rng(0).standard_normal(y.shape).astype(np.float64)
            y.backward(tc.tensor(dy, dtype=y.dtype, device=place))
        results.append([host(y), *(host(t.grad) for t in inputs if t.grad is not None)])
    assert len(results[0]) == len(results[1])
    for on_cpu, on_gpu in zip(*results, strict=True):
        assert on_cpu.dtype == on_gpu.dtype and on_cpu.shape == on_gpu.shape
        apart = APART.get(on_cpu.dtype.name, 1e-11)
        np.testing.assert_allclose(on_gpu.astype(np.float64), on_cpu.astype(np.float64), rtol=apart, atol=1e-6)


def in_a_thread(function):
    """What it returns in another thread."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]
