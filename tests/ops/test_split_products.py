"""Products of float32 that are split into bfloat16 where the processor multiplies tiles of them (`TRANSFORMER_C_ISA=amx`), and are whole on
every other instruction set: accuracy, bits, what cannot be split. tests/test_tiles.py tries the same kernels on any processor."""

import os
import subprocess
import sys

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core

# Largest error as a share of |A| |B|, whatever the shape.
LIMITS = {"highest": 4e-7, "high": 2e-5, "medium": 8e-3}
VARIANTS = {"highest": "tiles x 6", "high": "tiles x 3", "medium": "tiles"}


@pytest.fixture(params=LIMITS)
def precision(request):
    tc.set_float32_precision(request.param)
    yield request.param
    tc.set_float32_precision("highest")


def operands(rng, M, N, K):
    return [rng.standard_normal(shape).astype(np.float32) for shape in ((M, K), (N, K), (N,), (M, N))]


def error(got, a, b, bias=0.0):
    exact = a.astype(np.float64) @ b.astype(np.float64) + bias
    return np.max(np.abs(got - exact) / (np.abs(a).astype(np.float64) @ np.abs(b) + np.abs(bias)))


def splits(isa, precision, side, rows_of_a_gradient=0):
    if precision == "highest":
        return isa == "amx" and side >= 384 and rows_of_a_gradient >= 256
    return isa == "amx" and side >= 128


def variant():
    return tc.config.last_plans("cpu")["gemm"]["variant"].removesuffix(", split k")


@pytest.mark.parametrize(("M", "N", "K"), [(5, 130, 200), (201, 128, 131), (300, 400, 390), (40, 140, 127)])
def test_accuracy(isa, precision, rng, M, N, K):
    x, weight, bias, dy = operands(rng, M, N, K)
    side = min(N, K)
    y = _core.linear(x, weight, bias)
    assert (variant() == VARIANTS[precision]) == splits(isa, precision, side)
    limit = LIMITS[precision] if side >= 128 else LIMITS["highest"]
    assert error(y, x, weight.T, bias) < limit
    dx = _core.linear_backward(dy, x, weight)[0]
    dweight, dbias = _core.linear_backward(dy, x, weight)[1:]
    assert (variant() == VARIANTS[precision]) == splits(isa, precision, side, M)
    assert error(dx, dy, weight) < limit
    assert error(dweight, np.ascontiguousarray(dy.T), x) < limit
    np.testing.assert_allclose(dbias, dy.sum(0, dtype=np.float64), rtol=0, atol=1e-4)


def test_six_products_are_as_accurate_as_a_float32_product(isa, rng):
    x, weight, _, dy = operands(rng, 300, 400, 390)
    here = error(_core.linear_backward(dy, x, weight)[1], dy.T, x)
    _core.cpu_select("baseline")
    assert here <= (1.0 if isa == "amx" else 2.0) * error(_core.linear_backward(dy, x, weight)[1], dy.T, x)


def test_a_row_has_the_same_bits_in_any_batch_and_with_any_threads(isa, precision, threads, rng):
    x, weight, bias, dy = operands(rng, 350, 400, 390)
    y, dx = _core.linear(x, weight, bias), _core.linear_backward(dy, x, weight)[0]
    for first, last in ((0, 1), (3, 20), (7, 40), (100, 261), (349, 350)):
        np.testing.assert_array_equal(_core.linear(x[first:last], weight, bias), y[first:last])
        np.testing.assert_array_equal(_core.linear_backward(dy[first:last], x[first:last], weight)[0], dx[first:last])
    gradients = _core.linear_backward(dy, x, weight)
    _core.set_num_threads(1)
    for a, b in zip(_core.linear_backward(dy, x, weight), gradients, strict=True):
        np.testing.assert_array_equal(a, b)


def test_batches_and_strides(isa, precision, rng):
    a = rng.standard_normal((2, 3, 40, 300)).astype(np.float32)[..., ::2]
    b = rng.standard_normal((3, 140, 150)).astype(np.float32).swapaxes(1, 2)
    whole = _core.matmul(a, b)
    assert (variant() == VARIANTS[precision]) == splits(isa, precision, 140)
    for i in range(2):
        for j in range(3):
            np.testing.assert_array_equal(_core.matmul(np.ascontiguousarray(a[i, j]), b[j]), whole[i, j])


@pytest.mark.filterwarnings("ignore:(invalid value|overflow)")
def test_what_cannot_be_split_stays_in_its_row_and_its_columns(isa, precision, rng):
    """Infinities, NaN, huge and tiny numbers: their rows and columns have the digits of float32, the others their bits."""
    x, weight, _, _ = operands(rng, 40, 160, 130)
    clean = _core.linear(x, weight)
    x[3, 7], x[15, 0], x[20], x[30, 5] = np.nan, np.inf, 1e-38, 3.4e38
    weight[70, 9] = -np.inf
    y = _core.linear(x, weight)
    exact = x.astype(np.float64) @ weight.T.astype(np.float64)
    special = np.zeros_like(y, bool)
    special[[3, 15, 20, 30]], special[:, 64:80] = True, True
    np.testing.assert_array_equal(y[~special], clean[~special])
    np.testing.assert_array_equal(np.isnan(y), np.isnan(exact))
    finite = np.abs(exact) < 1e38
    np.testing.assert_array_equal(np.isfinite(y[finite]), True)
    size = np.abs(np.nan_to_num(x)).astype(np.float64) @ np.abs(np.nan_to_num(weight)).T.astype(np.float64)
    assert np.max((np.abs(y - exact) / size)[special & finite]) < LIMITS["highest"]


def test_parts_of_a_weight_follow_the_weight_and_the_precision(isa, rng):
    x = tc.tensor(rng.standard_normal((200, 130)).astype(np.float32))
    weight = tc.tensor(rng.standard_normal((140, 130)).astype(np.float32))
    try:
        for _ in range(2):
            for precision in LIMITS:
                tc.set_float32_precision(precision)
                y = tc.functional.linear(x, weight).numpy()
                assert error(y, x.numpy(), weight.numpy().T) < LIMITS[precision]
            weight *= 2
    finally:
        tc.set_float32_precision("highest")


PROGRAM = """
import os, threading
import numpy as np
def product(out):
    go.wait()
    out.append(_core.linear(x, w).tobytes())
go, early, late = threading.Event(), [], []
thread = threading.Thread(target=product, args=(early,))
thread.start()
import transformer_c as tc
from transformer_c import _core
tc.set_float32_precision("high")
tc.set_num_threads(2)
rng = np.random.default_rng(0)
x, w = (rng.standard_normal((n, 160)).astype(np.float32) for n in (400, 300))
first = _core.linear(x, w).tobytes()
go.set()
thread.join()
thread = threading.Thread(target=product, args=(late,))
thread.start()
thread.join()
assert early == late == [first]
child = os.fork()
if child == 0:
    os._exit(_core.linear(x, w).tobytes() != first)
assert os.waitpid(child, 0)[1] == 0
"""


def test_threads_from_before_and_after_the_import_and_a_fork():
    subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], check=True, timeout=60)


def test_tiles_that_are_not_there_are_an_error():
    if _core.cpu_isas().get("amx"):
        return
    done = subprocess.run(
        [sys.executable, "-c", "import transformer_c"], env={**os.environ, "TRANSFORMER_C_ISA": "amx"}, capture_output=True, text=True
    )
    assert done.returncode and "TRANSFORMER_C_ISA: 'amx'" in done.stderr and "usable here" in done.stderr
