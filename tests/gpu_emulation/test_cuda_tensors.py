"""Tensors and ops on device="cuda:emulated": the same cases as on the CPU, against tests/reference.py."""

import copy
import ctypes
import os
import pickle
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
import reference as R
import transformer_c as tc
from tolerance import assert_close
from transformer_c import _core

FLOATS = ["float32", "float64", "float16", "bfloat16"]
ALL_DTYPES = [*FLOATS, "int64", "int32", "uint8", "bool"]


@pytest.fixture(params=["cpu", "cuda:emulated"])
def device(request):
    return request.getfixturevalue("emulated_gpu") if request.param != "cpu" else request.param


@pytest.fixture(autouse=True)
def nothing_is_left(emulated_gpu):
    """Every case gives its device memory back."""
    before = tc.cuda.memory_stats(emulated_gpu)["in_use"]
    yield
    assert tc.cuda.memory_stats(emulated_gpu)["in_use"] == before


def array(rng, shape, dtype):
    dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    values = rng.integers(0, 2, shape) if dtype == bool else 9 * np.abs(rng.standard_normal(shape))
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


# ---- tensors ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_there_and_back(emulated_gpu, dtype, rng):
    for shape in [(), (0, 3), (7,), (3, 4, 5)]:
        x = array(rng, shape, dtype)
        on_gpu = tc.tensor(x, device=emulated_gpu)
        assert on_gpu.device == emulated_gpu and on_gpu.is_cuda and on_gpu.dtype == tc.tensor(x).dtype
        np.testing.assert_array_equal(host(on_gpu), x)
        np.testing.assert_array_equal(host(tc.tensor(x).to(emulated_gpu)), x)
    views = tc.tensor(array(rng, (4, 5, 6), dtype), device=emulated_gpu)
    y = host(views)
    np.testing.assert_array_equal(host(views.permute(2, 0, 1)), y.transpose(2, 0, 1))
    np.testing.assert_array_equal(host(views[1:, ::-2]), y[1:, ::-2])
    np.testing.assert_array_equal(host(views.permute(2, 1, 0).contiguous()), y.T)


@pytest.mark.parametrize("source", ALL_DTYPES)
def test_casts_are_those_of_the_cpu(emulated_gpu, source, rng):
    x = array(rng, (3, 70), source)
    if source in ("float32", "float64"):
        x[0, :6] = [np.nan, np.inf, -np.inf, 3e38, -0.0, 1e19]
    for target in ALL_DTYPES:
        target = ml_dtypes.bfloat16 if target == "bfloat16" else np.dtype(target)
        on_cpu, on_gpu = tc.tensor(x).to(target), tc.tensor(x, device=emulated_gpu).to(target)
        assert on_gpu.device == emulated_gpu
        np.testing.assert_array_equal(host(on_gpu).astype(np.float64), host(on_cpu).astype(np.float64))  # which NaN is open


def test_creation_and_assignment(emulated_gpu, rng):
    x = tc.zeros(3, 4, device=emulated_gpu)
    np.testing.assert_array_equal(host(x), np.zeros((3, 4)))
    x[1] = tc.tensor(np.arange(4.0, dtype=np.float32))
    x[:, 2] = 7
    expected = np.zeros((3, 4))
    expected[1], expected[:, 2] = np.arange(4), 7
    np.testing.assert_array_equal(host(x), expected)
    np.testing.assert_array_equal(host(tc.full((2, 2), 3, dtype=np.int64, device=emulated_gpu)), np.full((2, 2), 3))
    assert x.sum is not None and float(x[1, 1]) == 1 and x[1].tolist() == [0, 1, 7, 3]
    assert "device='cuda:emulated'" in repr(x)


def test_copies_and_pickle_keep_the_device(emulated_gpu):
    x = tc.tensor([1.0, 2.0], device=emulated_gpu, requires_grad=True)
    for y in (copy.deepcopy(x), copy.copy(x), pickle.loads(pickle.dumps(x)), x.clone()):
        assert y.device == emulated_gpu and host(y).tolist() == [1.0, 2.0]


def test_the_host_is_not_read_by_mistake(emulated_gpu):
    x = tc.tensor([1.0, 2.0], device=emulated_gpu)
    with pytest.raises((TypeError, RuntimeError), match=r"\.cpu\(\)"):
        np.asarray(x)
    with pytest.raises((TypeError, RuntimeError), match=r"\.cpu\(\)"):
        x.numpy()
    with pytest.raises((BufferError, TypeError)):
        memoryview(x)
    with pytest.raises(RuntimeError, match="is on cuda:emulated but weight .* is on cpu"):
        tc.functional.layer_norm(x, (2,), tc.tensor([1.0, 1.0]))


def test_cuda_array_interface(emulated_gpu):
    x = tc.tensor(np.arange(6, dtype=np.float32).reshape(2, 3), device=emulated_gpu)
    interface = x.permute(1, 0).__cuda_array_interface__
    assert interface["shape"] == (3, 2) and interface["typestr"] == "<f4" and interface["strides"] == (4, 12)
    assert interface["data"] == (x.data_ptr(), False)
    assert not hasattr(tc.tensor([1.0]), "__cuda_array_interface__")


def test_what_has_no_kernel_says_so(emulated_gpu):
    x = tc.tensor([3.0, 1.0, 2.0], device=emulated_gpu)
    with pytest.raises(NotImplementedError, match=r"argsort of float32 has no CUDA kernel yet .*\.cpu\(\)"):
        x.argsort()


# ---- the device -------------------------------------------------------------------------------------------------------------------


def test_memory_is_used_again(emulated_gpu):
    tc.cuda.empty_cache(emulated_gpu)
    before = tc.cuda.memory_stats(emulated_gpu)
    for _ in range(5):
        tc.zeros(1000, device=emulated_gpu)
    after = tc.cuda.memory_stats(emulated_gpu)
    assert after["in_use"] == before["in_use"] and after["cached"] >= 4000
    for _ in range(5):
        tc.zeros(1000, device=emulated_gpu)
    assert tc.cuda.memory_stats(emulated_gpu)["device_calls"] == after["device_calls"]
    tc.cuda.empty_cache(emulated_gpu)
    assert tc.cuda.memory_stats(emulated_gpu)["cached"] == 0


def test_out_of_memory(emulated_gpu):
    for elements in (10**8, 2**50):
        with pytest.raises(MemoryError, match=rf"on cuda:emulated: {4 * elements} bytes were asked for, \d+ of its \d+ are free.*smaller"):
            tc.zeros(elements, device=emulated_gpu)
    assert host(tc.ones(3, device=emulated_gpu)).tolist() == [1, 1, 1]


def test_streams(emulated_gpu, rng):
    x = array(rng, (5, 6), "float32")
    with tc.cuda.stream(emulated_gpu) as address:
        y = tc.tensor(x, device=emulated_gpu)
        with tc.cuda.stream(emulated_gpu) as inner:
            assert inner != address
            z = y.permute(1, 0).contiguous()
    np.testing.assert_array_equal(host(z), x.T)
    tc.cuda.synchronize(emulated_gpu)
    with pytest.raises(NotImplementedError, match="graph"):
        tc.cuda.graph()


def test_threads(emulated_gpu, rng):
    x = array(rng, (9, 40), "float32")
    expected = R.layer_norm(x)[0]
    failures = []

    def work():
        try:
            for _ in range(5):
                assert_close(host(tc.functional.layer_norm(tc.tensor(x, device=emulated_gpu), (40,))), expected, "float32", 40)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_after_a_fork(emulated_gpu):
    kept = tc.ones(3, device=emulated_gpu)
    child = os.fork()
    if child == 0:
        try:
            tc.zeros(2, device=emulated_gpu)
        except RuntimeError as error:
            del kept  # nothing is given back twice
            os._exit(0 if "fork" in str(error) and "spawn" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert host(kept).tolist() == [1, 1, 1]


# ---- ops --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (67, 16), (3, 1031)], ids=str)
def test_layer_norm(device, shape, dtype, rng):
    x, gamma, beta, dy = (array(rng, s, dtype) for s in (shape, shape[-1:], shape[-1:], shape))
    tensors = leaves(device, x, gamma, beta)
    y = tc.functional.layer_norm(tensors[0], shape[-1:], tensors[1], tensors[2])
    assert y.device == device
    assert_close(host(y), R.layer_norm(x, gamma, beta)[0], dtype, 4 * shape[-1], scale=np.abs(R.f64(x)).max() * 10)
    y.backward(tc.tensor(dy, device=device))
    if shape[-1] > 1:
        expected = R.layer_norm_backward(dy, x, gamma, beta)
        for tensor, wanted in zip(tensors, expected, strict=True):
            assert_close(host(tensor.grad), wanted, dtype, gradient=True, scale=100 * (1 + np.abs(wanted).max()))


@pytest.mark.parametrize("dtype", FLOATS)
def test_add_layer_norm(device, dtype, rng):
    x, residual, gamma, beta, dy = (array(rng, s, dtype) for s in ((4, 5, 24), (4, 5, 24), 24, 24, (4, 5, 24)))
    tensors = leaves(device, x, residual, gamma, beta)
    y = _core.add_layer_norm(tensors[0], tensors[1], 24, tensors[2], tensors[3])
    assert_close(host(y), R.add_layer_norm(x, residual, gamma, beta)[0], dtype, 24)
    y.backward(tc.tensor(dy, device=device))
    check_gradients(tensors, R.add_layer_norm_backward(dy, x, residual, gamma, beta), dtype)
