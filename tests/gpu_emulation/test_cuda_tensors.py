"""Tensors and ops on device="cuda:emulated": the same cases as on the CPU, against transformer_c.testing.reference. tests/gpu runs all of it on a GPU too."""

import copy
import os
import pickle
import re
import threading

import ml_dtypes
import numpy as np
import pytest
import transformer_c as tc
from cuda_library import CUDA_KERNELS, KERNEL_IDS, KERNELS
from device_cases import ALL_DTYPES, FLOATS, array, beside_the_cpu, check_gradients, host, leaves
from op_cases import of_all_ops
from tolerance import assert_close
from transformer_c import _core
from transformer_c import functional as F
from transformer_c.testing import reference as R

pytestmark = pytest.mark.usefixtures("nothing_is_left")

# ---- tensors ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_there_and_back(emulated_gpu, dtype, rng):
    for shape in [(), (0, 3), (7,), (3, 4, 5)]:
        x = array(rng, shape, dtype)
        on_gpu = tc.tensor(x, device=emulated_gpu)
        assert on_gpu.device == emulated_gpu and on_gpu.is_cuda and on_gpu.dtype == tc.tensor(x).dtype
        np.testing.assert_array_equal(host(on_gpu), x)
        np.testing.assert_array_equal(host(tc.tensor(x).to(emulated_gpu)), x)
        as_other = tc.tensor(x).type_as(tc.zeros(1, device=emulated_gpu))
        assert as_other.device == emulated_gpu and as_other.dtype == np.float32 and on_gpu.type_as(tc.zeros(1)).device == "cpu"
    views = tc.tensor(array(rng, (4, 5, 6), dtype), device=emulated_gpu)
    y = host(views)
    np.testing.assert_array_equal(host(views.permute(2, 0, 1)), y.transpose(2, 0, 1))
    np.testing.assert_array_equal(host(views[1:, ::-2]), y[1:, ::-2])
    np.testing.assert_array_equal(host(views[:1].expand(3, 5, 6)), np.broadcast_to(y[:1], (3, 5, 6)))
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
    assert float(x[1, 1]) == 1 and x[1].tolist() == [0, 1, 7, 3]
    assert f"device='{emulated_gpu}'" in repr(x)


def test_copies_and_pickle_keep_the_device(emulated_gpu):
    x = tc.tensor([1.0, 2.0], device=emulated_gpu, requires_grad=True)
    for y in (copy.deepcopy(x), copy.copy(x), pickle.loads(pickle.dumps(x)), x.clone()):
        assert y.device == emulated_gpu and host(y).tolist() == [1.0, 2.0]
    whole, part = copy.deepcopy([x.detach(), x.detach()[1:]])
    whole.zero_()
    assert host(part).tolist() == [0.0] and host(x).tolist() == [1.0, 2.0]


def test_the_host_is_not_read_by_mistake(emulated_gpu):
    x = tc.tensor([1.0, 2.0], device=emulated_gpu)
    with pytest.raises((TypeError, RuntimeError), match=r"\.cpu\(\)"):
        np.asarray(x)
    with pytest.raises((TypeError, RuntimeError), match=r"\.cpu\(\)"):
        x.numpy()
    with pytest.raises((BufferError, TypeError)):
        memoryview(x)
    with pytest.raises(RuntimeError, match=f"is on {emulated_gpu} but weight .* is on cpu"):
        tc.functional.layer_norm(x, (2,), tc.tensor([1.0, 1.0]))


def test_cuda_array_interface(emulated_gpu):
    x = tc.tensor(np.arange(6, dtype=np.float32).reshape(2, 3), device=emulated_gpu)
    interface = x.permute(1, 0).__cuda_array_interface__
    assert interface["shape"] == (3, 2) and interface["typestr"] == "<f4" and interface["strides"] == (4, 12)
    assert interface["data"] == (x.data_ptr(), False)
    assert not hasattr(tc.tensor([1.0]), "__cuda_array_interface__")


def test_every_kernel_is_there():
    """Except those that only the CPU uses: its packing, and the sums of split heads."""
    assert set(KERNEL_IDS) - set(CUDA_KERNELS) == {"gemm_pack", "attention_sum_splits"}


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


def test_a_move_takes_memory_for_its_result_alone(emulated_gpu, rng):
    x = array(rng, (70, 50), "float32")
    on_cpu, on_gpu = tc.tensor(x), tc.tensor(x, device=emulated_gpu)
    for move, calls in [(on_gpu.cpu, 0), (lambda: on_cpu.to(emulated_gpu), 1)]:
        tc.cuda.empty_cache(emulated_gpu)
        before = tc.cuda.memory_stats(emulated_gpu)["device_calls"]
        moved = move()
        assert tc.cuda.memory_stats(emulated_gpu)["device_calls"] == before + calls
        np.testing.assert_array_equal(host(moved), x)


def test_out_of_memory(emulated_gpu):
    for elements in (tc.cuda.memory_stats(emulated_gpu)["total"] // 2, 2**50):
        with pytest.raises(MemoryError, match=rf"on {emulated_gpu}: {4 * elements} bytes were asked for, \d+ of its \d+ are free.*smaller"):
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

NUMBERS = {
    "x / n": lambda x, n: x / n,
    "n - x": lambda x, n: n - x,
    "x ** n": lambda x, n: x**n,
    "x // n": lambda x, n: x // n,
    "x > n": lambda x, n: x > n,
    "maximum": lambda x, n: tc.maximum(n, x),
    "clamp": lambda x, n: x.clamp(n, None),
    "where": lambda x, n: tc.where(x > 1, n, x),
    "two of them": lambda x, n: tc.where(x > 1, n, n + 1),
    "add_": lambda x, n: (x * 1).add_(n),
    "masked_fill": lambda x, n: x.masked_fill(x > 1, n),
}


@pytest.mark.parametrize("number", [np.float32(2), np.float64(2), np.int64(2)], ids=lambda n: n.dtype.name)
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_in_a_tensor_of_the_cpu(emulated_gpu, name, number):
    """A Tensor without axes goes to the GPU, as in PyTorch, with the values, dtype and gradients that both have on the CPU."""
    found = []
    for place in ("cpu", emulated_gpu):
        x, n = tc.tensor(np.arange(0.5, 4, dtype=np.float32), device=place, requires_grad=True), tc.tensor(number)
        n.requires_grad_(n.dtype.kind == "f")
        y = NUMBERS[name](x, n)
        assert y.device == place
        found.append([y])
        if y.requires_grad:
            (y * tc.arange(1, 5, device=place)).sum().backward()
            found[-1] += [leaf.grad for leaf in (x, n) if leaf.grad is not None]
            assert all(leaf.grad is None or leaf.grad.device == leaf.device for leaf in (x, n))
    for on_cpu, on_gpu in zip(*found, strict=True):
        assert on_cpu.dtype == on_gpu.dtype
        np.testing.assert_allclose(host(on_gpu), host(on_cpu), rtol=1e-5)


def test_a_number_on_the_cpu_in_place(emulated_gpu):
    """The sum is computed on the GPU, and written to where the number is."""
    total = tc.tensor(1.5)
    for other in (tc.tensor(2.0, device=emulated_gpu), tc.tensor(3.0, device=emulated_gpu)):
        before = total
        total += other
        assert total is before and total.device == "cpu" and other.device == emulated_gpu
    assert total.item() == 6.5
    with pytest.raises(ValueError, match="cannot be written in place"):
        total += tc.ones(2, device=emulated_gpu)


def test_a_number_that_does_not_fit_is_refused(emulated_gpu):
    """fill_ brought it to the GPU first, where it wrapped around."""
    x = tc.zeros(2, dtype="uint8", device=emulated_gpu)
    for write in (x.fill_, x.copy_, lambda number: x.__setitem__(slice(None), number)):
        for number in (300, -1, float("nan")):
            with pytest.raises(ValueError, match=f"value {number} does not fit uint8, whose numbers are 0 to 255"):
                write(number)
    assert x.tolist() == [0, 0] and x.fill_(255).tolist() == [255, 255] and x.fill_(tc.tensor([7])).tolist() == [7, 7]


def test_what_is_no_number_is_not_brought_to_the_gpu(emulated_gpu):
    x = tc.ones(3, device=emulated_gpu)
    for other in (tc.ones(1), tc.ones(3)):
        with pytest.raises(RuntimeError, match=f"the first argument is on {emulated_gpu} but the second is on cpu; move one with .to()"):
            x * other
        with pytest.raises(RuntimeError, match=f"condition is on {emulated_gpu} but the third argument is on cpu"):
            tc.where(x > 0, x, other)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "case, shapes", [pytest.param(case, shapes, id=f"{op}-{shapes}") for op, case in of_all_ops("ON_DEVICES").items() for shapes in case[3]]
)
def test_op(device, case, shapes, dtype, rng):
    """Values and gradients of the cases in the ops' own test files, against the reference."""
    function, forward, backward, _ = case
    arrays = [array(rng, shape, dtype) for shape in shapes]
    tensors = leaves(device, *arrays)
    y = function(*tensors)
    assert y.device == device and y.dtype == tensors[0].dtype
    terms = shapes[0][-1]
    assert_close(host(y), forward(*arrays), dtype, terms, name="y")
    dy = array(rng, y.shape, dtype)
    y.backward(tc.tensor(dy, device=device))
    check_gradients(tensors, backward(dy, *arrays), dtype)


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


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(5, 24), (3, 33), (2, 1032), (1, 2)], ids=str)
def test_add_layer_norm_without_a_record(device, dtype, shape, rng):
    """Sums that nobody reads later are written where the result will be: the same bits."""
    tensors = leaves(device, *(array(rng, s, dtype) for s in (shape, shape, shape[-1], shape[-1])))
    recorded = _core.add_layer_norm(tensors[0], tensors[1], shape[-1], tensors[2], tensors[3])
    with tc.no_grad():
        plain = _core.add_layer_norm(tensors[0], tensors[1], shape[-1], tensors[2], tensors[3])
    assert host(plain).tobytes() == host(recorded).tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(5, 24), (3, 33), (4, 5, 64), (2, 1088)], ids=str)
def test_add_layer_norm_with_dropout(emulated_gpu, dtype, shape, rng):
    """The bits of the op before it, except for the gradient of halves through the mask, which is rounded once; and the CPU's masks."""
    x, residual, gamma, beta, dy = (array(rng, s, dtype) for s in (shape, shape, shape[-1], shape[-1], shape))
    results = []
    for apart in (False, True):
        tensors = leaves(emulated_gpu, x, residual, gamma, beta)
        first, options = (_core.dropout(tensors[0], 0.3, 5, 6), {}) if apart else (tensors[0], {"dropout": 0.3, "seed": 5, "call": 6})
        y = _core.add_layer_norm(first, tensors[1], shape[-1], *tensors[2:], **options)
        y.backward(tc.tensor(dy, device=emulated_gpu))
        results.append([host(y), *(host(t.grad) for t in tensors)])
    multiplier = R.f64(_core.dropout_forward(np.ones(shape), 0.3, 5, 6))
    for i, (one, other) in enumerate(zip(*results, strict=True)):
        if i != 1 or dtype in ("float32", "float64"):
            assert one.tobytes() == other.tobytes(), i
    assert not results[0][1][multiplier == 0].any()
    if shape[-1] < 100 or dtype in ("float32", "float64"):  # in halves the sum is rounded, and more so the gradients of long rows
        check_gradients(tensors, R.add_layer_norm_backward(dy, x, residual, gamma, beta, multiplier=multiplier), dtype)
    assert_close(results[0][1], R.f64(results[1][1]), dtype, gradient=True, scale=1 + np.abs(R.f64(results[1][1])).max())


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_add_layer_norm_saves(device, dtype, rng):
    """The sum, of which y is the norm; mean and rstd are float32 for halves."""
    x, residual = (array(rng, (4, 5, 24), dtype) for _ in range(2))
    y, total, mean, rstd = _core.add_layer_norm_forward(*(tc.tensor(a, device=device) for a in (x, residual)))
    statistic = "float64" if dtype == "float64" else "float32"
    kept = statistic if device == "cpu" else dtype  # CPUs compute halves in float32
    assert_close(host(total), R.f64(x) + R.f64(residual), kept, name="sum")
    expected = R.layer_norm(host(total))
    for name, got, wanted, kind in zip(("y", "mean", "rstd"), (y, mean, rstd), expected, (dtype, statistic, statistic), strict=True):
        assert_close(host(got), wanted, kind, 24, name=name)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh"])
def test_linear(device, activation, dtype, rng):
    x, weight, bias, residual, dy = (array(rng, s, dtype) / 8 for s in ((3, 7, 20), (33, 20), 33, (3, 7, 33), (3, 7, 33)))
    tensors = leaves(device, x, weight, bias, residual)
    y = _core.linear(tensors[0], tensors[1], tensors[2], activation, tensors[3])
    assert_close(host(y), R.linear(x, weight, bias, activation, residual), dtype, 20, scale=40)
    y.backward(tc.tensor(dy, device=device))
    check_gradients(tensors, R.linear_backward(dy, x, weight, bias, activation, residual), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("with_residual", [False, True])
@pytest.mark.parametrize("shape", [(3, 7, 20, 33), (2, 5, 24, 64)], ids=str)
def test_linear_with_dropout(emulated_gpu, emulated_library, shape, with_residual, activation, dtype, rng):
    """By one kernel; the masks of the CPU. Floats have the bits of the ops one by one; of halves the result is rounded once, so only the gradients have those bits."""
    B, T, K, N = shape
    shapes = ((B, T, K), (N, K), N, *[(B, T, N)] * with_residual)
    arrays, dy = [array(rng, s, dtype) / 8 for s in shapes], array(rng, (B, T, N), dtype) / 8
    results, launched, key = [], [], (0.3, 2**64 - 1, 3)
    for apart in (False, True):
        x, weight, bias, *residual = tensors = leaves(emulated_gpu, *arrays)
        emulated_library.launches()
        if apart:
            y = _core.dropout(_core.linear(x, weight, bias, activation), *key)
            y = y + residual[0] if residual else y
        else:
            y = _core.linear(x, weight, bias, activation, *residual, dropout=key[0], seed=key[1], call=key[2])
        tc.cuda.synchronize(emulated_gpu)
        launched.append(emulated_library.launches())
        y.backward(tc.tensor(dy, device=emulated_gpu))
        results.append([host(y), *(host(t.grad) for t in tensors)])
    assert len(launched[0]) == 1 and "gemm" in launched[0][0] and len(launched[1]) == 2 + with_residual, launched
    for i, (one, other) in enumerate(zip(*results, strict=True)):
        if i or dtype in ("float32", "float64"):
            assert one.tobytes() == other.tobytes(), i
    kept = R.f64(_core.dropout_forward(np.ones(dy.shape), *key))
    assert_close(results[0][0], R.linear(*arrays[:3], activation, *arrays[3:], multiplier=kept), dtype, K, scale=40)
    expected = R.linear_backward(dy, *arrays[:3], activation, *arrays[3:], multiplier=kept)
    check_gradients(tensors, expected[: len(tensors)], dtype)
    on_cpu = _core.linear(*arrays[:3], activation, *arrays[3:], dropout=key[0], seed=key[1], call=key[2])
    assert_close(results[0][0], R.f64(on_cpu), dtype, K, scale=4)
    zeros = arrays[3] if with_residual else np.zeros_like(dy)
    assert results[0][0][kept == 0].tobytes() == on_cpu[kept == 0].tobytes() == zeros[kept == 0].tobytes()


def test_a_sum_is_not_split_where_there_is_dropout(emulated_gpu, emulated_library, rng):
    """Without dropout it is split, to give idle multiprocessors work. In blocks of k the sum has the same bits either way."""
    x, weight = (tc.tensor(array(rng, s, "float32"), device=emulated_gpu) for s in ((3, 800), (64, 800)))
    emulated_library.launches()
    plain = _core.dropout(_core.linear(x, weight), 0.3, 5, 6)
    tc.cuda.synchronize(emulated_gpu)
    assert [name.split("<")[0].split("::")[-1] for name in emulated_library.launches()][1].startswith("sum_partials")
    y = _core.linear(x, weight, dropout=0.3, seed=5, call=6)
    tc.cuda.synchronize(emulated_gpu)
    (launched,) = emulated_library.launches()
    assert "gemm" in launched and host(y).tobytes() == host(plain).tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_linear_with_dropout_of_a_shared_batch(emulated_gpu, dtype, rng):
    x, weight, residual = (array(rng, s, dtype) for s in ((6, 3, 8), (40, 8), (6, 3, 40)))

    def run(rows):
        given = (tc.tensor(a, device=emulated_gpu) for a in (x[rows], weight, residual[rows]))
        x_, weight_, residual_ = given
        return host(_core.linear(x_, weight_, None, "relu", residual_, dropout=0.4, seed=11, call=3))

    whole = run(slice(None))
    for rank in range(3):
        before = _core.exchange_batch_share(2, rank, 3)
        try:
            part = run(slice(rank, None, 3))
        finally:
            _core.exchange_batch_share(*before)
        assert part.tobytes() == whole[rank::3].tobytes()


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dropout_of_a_layer_is_in_its_products(emulated_gpu, emulated_library, dtype, norm_first, rng):
    """That inside of the network, and where norms come first that after it, with the addition: the kernels that are missing, and the bits of the
    parts one by one, which a hook asks for, in float32."""
    layer = tc.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True, norm_first=norm_first).to(emulated_gpu)
    layer, x = layer.to(getattr(tc, dtype)), tc.tensor(array(rng, (2, 5, 8), dtype), device=emulated_gpu)

    def run():
        layer.zero_grad()
        tc.manual_seed(1)
        emulated_library.launches()
        y = layer(x)
        tc.cuda.synchronize(emulated_gpu)
        launched = emulated_library.launches()
        y.sum().backward()
        return len(launched), [host(y).tobytes(), *(host(p.grad).tobytes() for p in layer.parameters())]

    count, together = run()
    with layer.dropout.register_forward_hook(lambda *_: None):
        inside, apart = run()
    assert inside == count + 1 and (dtype != "float32" or apart == together)
    with layer.dropout2.register_forward_hook(lambda *_: None):
        after, apart = run()
    assert after == count + (2 if norm_first else 1) and (dtype != "float32" or apart == together)


@pytest.mark.parametrize("packing", [("head", "per_head"), ("qkv", "stacked")], ids=lambda p: p[0])
@pytest.mark.parametrize("dtype", FLOATS)
def test_qkv_projection(device, packing, dtype, rng):
    x, weight, bias = (array(rng, s, dtype) / 8 for s in ((2, 5, 12), (24, 12), 24))
    tensors = leaves(device, x, weight, bias)
    results = tc.functional.qkv_projection(*tensors, 2, packing=packing[0])
    upstream = [array(rng, (2, 2, 5, 4), dtype) for _ in range(3)]
    for got, wanted in zip(results, R.qkv_projection(x, weight, bias, 2, packing[1]), strict=True):
        assert_close(host(got), wanted, dtype, 12, scale=20)
    sum((r * tc.tensor(d, device=device)).sum() for r, d in zip(results, upstream, strict=True)).backward()
    check_gradients(tensors, R.qkv_projection_backward(*upstream, x, weight, bias, 2, packing[1]), dtype)


PRODUCTS = [((4, 5), (5, 3)), ((2, 1, 4, 5), (3, 5, 6)), ((3, 4, 5), (5, 6)), ((20, 600), (600, 10))]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shapes", PRODUCTS, ids=str)
def test_matmul(device, shapes, dtype, rng):
    """The last one is split along k: its partial sums are wider than halves."""
    a, b = (array(rng, s, dtype) / 8 for s in shapes)
    tensors = leaves(device, a, b)
    c = tc.matmul(*tensors)
    assert_close(host(c), R.matmul(a, b), dtype, a.shape[-1], scale=R.matmul(a, b).max())
    dc = array(rng, c.shape, dtype) / 8
    c.backward(tc.tensor(dc, device=device))
    check_gradients(tensors, R.matmul_backward(dc, a, b), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients_of_a_long_batch_are_split(device, dtype, rng):
    """Rows of x beyond two parts of the sum: the gradients of weight and bias are sums of partial results."""
    x, weight, bias, dy = (array(rng, s, dtype) / 8 for s in ((600, 6), (5, 6), 5, (600, 5)))
    tensors = leaves(device, x, weight, bias)
    _core.linear(*tensors, "gelu").backward(tc.tensor(dy, device=device))
    check_gradients(tensors, R.linear_backward(dy, x, weight, bias, "gelu")[:3], dtype)
    (alone,) = leaves(device, bias)
    _core.linear(tc.tensor(x, device=device), tc.tensor(weight, device=device), alone).backward(tc.tensor(dy, device=device))
    check_gradients([alone], [R.f64(dy).sum(0)], dtype)


def test_dtypes_of_a_product_promote(device, rng):
    a, b = array(rng, (3, 4), "float16"), array(rng, (4, 5), "float32")
    tensors = leaves(device, a, b)
    c = tc.matmul(*tensors)
    assert c.dtype == np.float32
    c.sum().backward()
    assert [t.grad.dtype for t in tensors] == [np.float16, np.float32]
    assert_close(host(c), R.matmul(a, b), "float32", 4, scale=8)
    beside = array(rng, (3, 4), "int32"), array(rng, (4, 5), "int64")
    np.testing.assert_array_equal(host(tc.matmul(*(tc.tensor(x, device=device) for x in beside))), beside[0] @ beside[1])
    large, small = tc.tensor([[70000, 3]], device=device), tc.tensor([[0.001], [1.0]], device=device)
    assert (large @ small.half()).tolist() == [[73.0]] and (large @ small.half()).dtype == np.float16  # 70000 is no float16


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_key_of_minus_infinity_beside_a_term(device, dtype):
    """The one key that the term leaves has no weight, as without the term where others are seen."""
    q, k, v = (tc.ones(1, 1, n, 4, device=device).to(dtype) for n in (2, 3, 3))
    k[:, :, 1] = -np.inf
    term = tc.tensor([[-np.inf, 2.0, -np.inf]], device=device).to(dtype)
    assert not F.scaled_dot_product_attention(q, k, v, attn_mask=term).any()


def rows(table, kind):
    """The names of the rows of one kind in unary.def or binary.def."""
    return re.findall(rf"^{kind}\((\w+),", (KERNELS / f"{table}.def").read_text(), re.M)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", rows("unary", "TC_UNARY"))
def test_functions_of_one_argument(emulated_gpu, name, dtype, rng):
    x = array(rng, (3, 50), dtype) + np.asarray(0.1, dtype)
    if name not in ("sqrt", "rsqrt", "log", "log2", "log10", "log1p"):
        x *= np.where(rng.random(x.shape) < 0.5, -1, 1).astype(dtype)
        x[0, 0] = 0
    if name != "reciprocal":
        x[0, 1] = np.nan
    with np.errstate(all="ignore"):
        beside_the_cpu(getattr(_core, name), emulated_gpu, rng, x)
        beside_the_cpu(lambda t: getattr(_core, name)(t.permute(1, 0)[::2]), emulated_gpu, rng, x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logarithms_of_powers(emulated_gpu, dtype):
    limits = np.finfo(dtype)
    n = np.arange(limits.minexp - limits.nmant, limits.maxexp)
    x = tc.tensor(np.ldexp(np.ones(1, dtype), n), device=emulated_gpu)
    np.testing.assert_array_equal(host(x.log2()), n.astype(dtype))
    n = np.arange(int(np.log10(limits.tiny)), int(np.log10(limits.max)) + 1)
    x = tc.tensor(np.array([f"1e{i}" for i in n], dtype), device=emulated_gpu)
    np.testing.assert_array_equal(host(x.log10()), n.astype(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", rows("binary", "TC_BINARY(?:_FLAT)?"))
def test_functions_of_two_arguments(emulated_gpu, name, dtype, rng):
    a, b = array(rng, (4, 1, 9), dtype) + 1, array(rng, (3, 9), dtype) + 1
    a[:2], a[0, 0, :3] = -a[:2] if name != "pow" else a[:2], b[0, :3]
    function = getattr(_core, name)
    beside_the_cpu(function, emulated_gpu, rng, a, b)
    beside_the_cpu(lambda t: function(t, 2.5), emulated_gpu, rng, a)


@pytest.mark.parametrize("dtype", FLOATS)
def test_division_rounded_down_has_the_bits_of_the_cpu(emulated_gpu, dtype, rng):
    """Large quotients and the signs of zeros too."""
    special = np.array([0, -0.0, 1, -1, 3, -10, 0.1, 1e-30, 1e30, 2049, 16777217, np.inf, -np.inf, np.nan])
    with np.errstate(over="ignore"):
        a, b = (np.concatenate([special, rng.standard_normal(20) * 10.0 ** rng.integers(-3, 8, 20)]) for _ in "ab")
        a, b = (tc.tensor(x.astype(array(rng, (), dtype).dtype)) for x in np.meshgrid(a, b))
    for function in (tc.floor_divide, tc.remainder):
        on_cpu, on_gpu = host(function(a, b)), host(function(a.to(emulated_gpu), b.to(emulated_gpu)))
        np.testing.assert_array_equal(on_gpu.astype(np.float64), on_cpu.astype(np.float64))
        numbers = on_cpu == on_cpu
        np.testing.assert_array_equal(np.signbit(on_gpu)[numbers], np.signbit(on_cpu)[numbers])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exponent", [2, 3, 0.5, -0.5, -1])
def test_simple_powers_have_the_bits_of_the_cpu(emulated_gpu, exponent, dtype, rng):
    x, dy = array(rng, (7, 60), dtype), array(rng, (7, 60), dtype)
    found = []
    for place in ("cpu", emulated_gpu):
        (t,) = leaves(place, x)
        (t**exponent).backward(tc.tensor(dy, device=place))
        found.append((host(t**exponent), host(t.grad)))
    for on_cpu, on_gpu in zip(*found, strict=True):
        np.testing.assert_array_equal(on_gpu, on_cpu)


def test_the_sign_of_zero_stays(device):
    """As on the CPU, tests/ops/test_binary.py."""
    x = tc.full((40,), -0.0, device=device)
    for y in (F.elu(x), F.relu6(x), tc.clamp(x, 0.0, 6.0), tc.clamp(x, min=0.0), tc.clamp(x, max=0.0)):
        assert np.signbit(host(y)).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_where(emulated_gpu, dtype, rng):
    condition = array(rng, (4, 5), "bool")
    beside_the_cpu(tc.where, emulated_gpu, rng, condition, array(rng, (4, 5), dtype), array(rng, 5, dtype))
    beside_the_cpu(lambda c, x: x.masked_fill(c, -1.0), emulated_gpu, rng, condition, array(rng, (4, 5), dtype))


def test_operands_of_several_dtypes(emulated_gpu, rng):
    half, single = array(rng, (3, 5), "float16"), array(rng, 5, "float32")
    for function in (_core.mul, _core.div, lambda a, b: tc.where(a > b, a, b)):
        beside_the_cpu(function, emulated_gpu, rng, half, single)
    beside_the_cpu(_core.sub, emulated_gpu, rng, half, array(rng, (3, 1), "int64"))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis", [None, 0, 1, 2, (0, 2)], ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "var", "max", "min"])
def test_reductions(emulated_gpu, name, axis, dtype, rng):
    """The second shape is cut into segments, over which the sums of halves stay float32."""
    for shape in [(3, 5, 7), (140, 2, 40)]:
        beside_the_cpu(lambda t: getattr(t, name)(axis=axis), emulated_gpu, rng, array(rng, shape, dtype))
    beside_the_cpu(lambda t: getattr(t.permute(2, 0, 1), name)(axis=axis), emulated_gpu, rng, array(rng, (3, 5, 7), dtype))


@pytest.mark.parametrize("shape, axis", [((33_000,), 0), ((140, 40), 0), ((2, 33_000), 1)], ids=str)
@pytest.mark.parametrize("name", ["sum", "amax", "amin"])
def test_the_last_segment_ends_with_the_axis(emulated_gpu, name, shape, axis, rng):
    """Of a part of a Tensor, what comes after it in memory is no part of the result."""
    whole = array(rng, tuple(length + 100 * (i == axis) for i, length in enumerate(shape)), "float32")
    part = tuple(slice(length) for length in shape)
    whole[tuple(slice(length if i == axis else 0, None) for i, length in enumerate(shape))] = -1e9 if name == "amin" else 1e9
    beside_the_cpu(lambda t: getattr(t[part], name)(axis), emulated_gpu, rng, whole)


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_truth_and_places(emulated_gpu, dtype, rng):
    x = array(rng, (3, 5, 4), dtype)
    x[0, 1] = 0
    for name in ("any", "all", "argmax", "argmin"):
        for axis in (None, 1):
            on_cpu, on_gpu = (getattr(tc.tensor(x, device=place), name)(axis) for place in ("cpu", emulated_gpu))
            assert on_gpu.dtype == on_cpu.dtype
            np.testing.assert_array_equal(host(on_gpu), host(on_cpu))


WIDE = {  # shapes, axes: columns beside one another in memory, in tiles of 32 and what is left; more rows than share a column
    "one tile and a bit": ((40, 33), 0),
    "outer": ((3, 50, 70), 1),
    "the first axis": ((20, 3, 40), 0),
    "two axes": ((5, 9, 2, 33), (0, 2)),
    "one row": ((1, 64), 0),
    "one column": ((70, 1), 0),
}


@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize("name", WIDE)
def test_reductions_along_columns(emulated_gpu, name, dtype, rng):
    """Of equal elements, which come several times, the first is found; NaN before all others."""
    shape, axis = WIDE[name]
    x = array(rng, shape, dtype)
    if dtype in ("float32", "float64"):
        x.reshape(-1)[:: x.size // 3 + 1] = np.nan
    views = [lambda t: t, lambda t: t[..., ::-1], lambda t: t[::2], lambda t: t.swapaxes(0, -1)]
    functions = ["any", "all"] if dtype in FLOATS else ["sum", "amax", "amin", "any", "all"]
    for function in functions + ([] if isinstance(axis, tuple) else ["argmax", "argmin"]):
        for view in views:
            on_cpu, on_gpu = (getattr(view(tc.tensor(x, device=place)), function)(axis) for place in ("cpu", emulated_gpu))
            assert on_gpu.dtype == on_cpu.dtype and on_gpu.shape == on_cpu.shape
            np.testing.assert_array_equal(host(on_gpu), host(on_cpu))


@pytest.mark.parametrize("shape, axis", [((33_000,), 0), ((33_000, 3), 0), ((3, 33_000), 1), ((2, 33_000, 2), 1)], ids=str)
@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_long_reductions_of_integers(device, shape, axis, dtype, rng):
    """In segments, over which another launch goes; where an extreme is, in one."""
    x = rng.integers(-(2**62), 2**62, shape).astype(dtype) if dtype == "int64" else rng.random(shape) < 1e-3
    for function in ("sum", "amax", "amin", "any", "all", "argmax"):
        wanted = getattr(np, function)(x, axis)
        np.testing.assert_array_equal(host(getattr(tc.tensor(x, device=device), function)(axis)), wanted)


def test_a_copy_stays_on_the_gpu(emulated_gpu):
    x = tc.arange(3.0, device=emulated_gpu)
    for copied in (tc.tensor(x), tc.tensor([x[0], x[1], x[2]]), tc.FloatTensor(x)):
        assert copied.device == x.device and copied.data_ptr() != x.data_ptr() and copied.tolist() == [0.0, 1.0, 2.0]
    assert str(tc.tensor(x, device="cpu").device) == "cpu"
    assert str(tc.tensor([0.0], device=emulated_gpu).device) == str(x.device)


def test_sums_of_halves_are_float32_on_the_way(device, rng):
    """A chain of float16 sums stops at 2048, where the next float16 is 2 away."""
    ones = tc.tensor(np.ones((40_000, 2), np.float16), device=device, requires_grad=True)
    mean = ones.mean(0)
    assert mean.dtype == np.float16 and host(mean).tolist() == [1, 1]
    tall = tc.tensor(np.full((5000,), 0.5, np.float16), device=device)
    assert float(tall.sum().cpu()) == 2500
    (mean * 3).sum().backward()
    assert ones.grad.dtype == np.float16 and host(ones.grad)[7, 1] == np.float16(np.float16(3) / np.float16(40_000))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("logarithm", [False, True])
def test_softmax(device, axis, logarithm, rng):
    x, dy = array(rng, (3, 40, 5), "float32"), array(rng, (3, 40, 5), "float32")
    (tensor,) = leaves(device, x)
    y = (tc.functional.log_softmax if logarithm else tc.functional.softmax)(tensor, axis)
    forward, backward = (R.log_softmax, R.log_softmax_backward) if logarithm else (R.softmax, R.softmax_backward)
    assert_close(host(y), forward(x, axis), "float32", 40)
    y.backward(tc.tensor(dy, device=device))
    check_gradients([tensor], [backward(dy, x, axis)], "float32")


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("logarithm", [False, True])
def test_softmax_of_other_dtypes(device, axis, logarithm, dtype, rng):
    """The result is what the backward reads: a gradient of halves may be off by twice what a rounded result costs a float64 backward."""
    x, dy = array(rng, (3, 40, 5), dtype), array(rng, (3, 40, 5), dtype)
    (tensor,) = leaves(device, x)
    y = (tc.functional.log_softmax if logarithm else tc.functional.softmax)(tensor, axis)
    forward, backward = (R.log_softmax, R.log_softmax_backward) if logarithm else (R.softmax, R.softmax_backward)
    assert_close(host(y), forward(x, axis), dtype, 40)
    y.backward(tc.tensor(dy, device=device))
    if dtype == "float64":
        check_gradients([tensor], [backward(dy, x, axis)], dtype)
        return
    rounded, d = R.f64(forward(x, axis).astype(x.dtype)), R.f64(dy)
    total = (d if logarithm else d * rounded).sum(axis, keepdims=True)
    naive = d - np.exp(rounded) * total if logarithm else rounded * (d - total)
    assert_close(host(tensor.grad), backward(dy, x, axis), dtype, naive=naive.astype(x.dtype), name="dx")


@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout_is_the_same_on_every_device(emulated_gpu, dtype, rng):
    for shape in ((7, 33), (3, 40), (4, 64)):
        for p in (0.0, 0.3, 1.0):
            beside_the_cpu(lambda t, p=p: _core.dropout(t, p, 5, 6), emulated_gpu, rng, array(rng, shape, dtype))
    x = array(rng, (7, 33), dtype)
    x = np.full(1684, np.nan, x.dtype)  # of this seed the word of the last one is 2^32 - 1, which every threshold of 32 bits keeps
    for p, kept in ((np.nextafter(1, 0), [1683]), (1.0, [])):
        y = host(_core.dropout(tc.tensor(x, device=emulated_gpu), p, 256857, 0))
        assert np.isnan(y).nonzero()[0].tolist() == kept


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_rotary(device, pairing, dtype, rng):
    for shape, positions in [((3, 7, 34), None), ((2, 3, 5, 6), np.arange(10).reshape(2, 1, 5) * 1001), ((1, 0, 4), None)]:
        x, dy = array(rng, shape, dtype), array(rng, shape, dtype)
        (tensor,) = leaves(device, x)
        y = tc.functional.rotary(tensor, None if positions is None else tc.tensor(positions, device=device), pairing=pairing)
        assert_close(host(y), R.rotary(x, positions, pairing=pairing), dtype)
        y.backward(tc.tensor(dy, device=device))
        check_gradients([tensor], [R.rotary(dy, positions, pairing=pairing, inverse=True)], dtype)


# ---- attention --------------------------------------------------------------------------------------------------------------------

ATTENTION = {
    "plain": {},
    "causal": {"is_causal": True},
    "offset": {"is_causal": True, "causal_offset": 2},
    "boolean": {"attn_mask": "boolean"},
    "additive": {"attn_mask": "float"},
    "bias": {"bias": "float"},
    "lengths": {"key_lengths": [0, 4]},
    "window": {"window": (2, 1)},
    "softcap": {"softcap": 3.0},
    "uniform": {"key_lengths": [0, 4], "empty_rows": "uniform"},
}


def normal(rng, dtype, *shape):
    return rng.standard_normal(shape).astype(np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", ATTENTION)
def test_attention(device, case, dtype, rng):
    """Values, map and log-sum-exp, and the gradients through all three. Halves stay halves, and their sums are float32."""
    B, H, Tq, Tk, D, Dv = 2, 4, 5, 7, 8, 6
    options = dict(ATTENTION[case])
    for name, value in options.items():
        if value == "boolean":
            options[name] = rng.random((B, 1, Tq, Tk)) < 0.6
        if value == "float":
            options[name] = normal(rng, dtype, H, Tq, Tk)
    q, k, v = (normal(rng, dtype, *s) for s in ((B, H, Tq, D), (B, H // 2, Tk, D), (B, H // 2, Tk, Dv)))
    dvalues, dmap, dlse = (normal(rng, dtype, *s) for s in ((B, H, Tq, Dv), (B, H, Tq, Tk), (B, H, Tq)))
    tensors = leaves(device, q, k, v)
    arrays = {name: tc.tensor(x, device=device) if isinstance(x, np.ndarray) else x for name, x in options.items()}
    if isinstance(options.get("key_lengths"), list):
        arrays["key_lengths"] = tc.tensor(np.array(options["key_lengths"]), device=device)
    added = [arrays[name].requires_grad_() for name in ("bias", "attn_mask") if name in options and options[name].dtype != bool]
    results = tc.functional.scaled_dot_product_attention(*tensors, enable_gqa=True, return_attention=True, return_logsumexp=True, **arrays)
    wide = {name: x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype != bool else x for name, x in options.items()}
    if case == "additive":
        wide["bias"] = wide.pop("attn_mask")  # the same, and the reference gives its gradient
    wide |= {"q": q.astype(np.float64), "k": k.astype(np.float64), "v": v.astype(np.float64), "enable_gqa": True}
    expected = R.attention(**wide)
    for name, found, wanted, scale in zip(("values", "map", "lse"), results, expected, (3, 1, 8), strict=True):
        assert_close(host(found), wanted, dtype, 16, scale=scale, name=name)
    dlse[np.isneginf(expected[2])] = 0
    upstream = dvalues, dmap, dlse
    sum((y * tc.tensor(dy, device=device)).sum() for y, dy in zip(results, upstream, strict=True)).backward()
    gradients = [x.astype(np.float64) for x in upstream]
    wanted = R.attention_backward(gradients[0], dattention=gradients[1], dlse=gradients[2], **wide)
    check_gradients([*tensors, *added], wanted[: 3 + len(added)], dtype)


PACKED = {**ATTENTION, "lengths": {"key_lengths": [2, 0, 36]}, "uniform": {"key_lengths": [2, 0, 36], "empty_rows": "uniform"}}
PACKED |= {"offsets": {"is_causal": True, "causal_offset": [1, -2, 3]}, "dropout": {"dropout_p": 0.4, "rng": 3}}
SOME_PACKED = ["additive", "lengths", "dropout"]  # in every dtype


@pytest.mark.parametrize(
    ("case", "dtype"), [(case, "float32") for case in PACKED] + [(c, d) for c in SOME_PACKED for d in FLOATS if d != "float32"]
)
def test_packed_attention_is_that_of_the_cpu(emulated_gpu, case, dtype, rng):
    """Sequences of 3, 1 and 70 positions, which the CPU's tests compare to each alone; the lengths stay on the host or come from the GPU."""
    lengths, H, N, T, D, Dv = np.array([3, 1, 70]), 2, 74, 70, 8, 6
    options = dict(PACKED[case])
    for name, value in options.items():
        if value == "boolean":
            options[name] = rng.random((3, 1, T, T)) < 0.6
        if value == "float":
            options[name] = normal(rng, dtype, H, T, T)
        if isinstance(value, list):
            options[name] = np.array(value)
    arrays = [normal(rng, dtype, *s) for s in ((1, H, N, D), (1, H // 2, N, D), (1, H // 2, N, Dv))]
    upstream = [normal(rng, dtype, *s) for s in ((1, H, N, Dv), (3, H, T, T), (1, H, N))]
    found = []
    for place in ("cpu", emulated_gpu):
        tensors = leaves(place, *arrays)
        placed = {name: tc.tensor(x, device=place) if isinstance(x, np.ndarray) else x for name, x in options.items()}
        tensors += [placed[name].requires_grad_() for name in ("bias", "attn_mask") if name in options and options[name].dtype != bool]
        counts = tc.tensor(lengths, device=place) if dtype == "float32" else lengths
        results = tc.functional.scaled_dot_product_attention(
            *tensors[:3], enable_gqa=True, return_attention=True, return_logsumexp=True, sequence_lengths=counts, **placed
        )
        upstream[2][np.isneginf(host(results[2]).astype(np.float64))] = 0
        sum((y * tc.tensor(dy, device=place)).sum() for y, dy in zip(results, upstream, strict=True)).backward()
        found.append([*map(host, results), *(host(t.grad) for t in tensors)])
    for on_cpu, on_gpu in zip(*found, strict=True):
        finite = np.isfinite(on_cpu.astype(np.float64))
        np.testing.assert_array_equal(on_gpu[~finite], on_cpu[~finite])
        wanted = on_cpu[finite].astype(np.float64)
        assert_close(on_gpu[finite], wanted, dtype, T, scale=4 * (1 + np.abs(wanted).max()))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_dropout_of_attention_is_that_of_the_cpu(emulated_gpu, dtype, rng):
    arrays = [normal(rng, dtype, 2, 2, 6, 8) for _ in range(4)]
    found = []
    for place in ("cpu", emulated_gpu):
        tensors = leaves(place, *arrays[:3])
        values = _core.attention(*tensors, dropout=0.4, seed=42, call=3)[0]
        values.backward(tc.tensor(arrays[3], device=place))
        found.append([host(values), *(host(t.grad) for t in tensors)])
    for on_cpu, on_gpu in zip(*found, strict=True):
        assert_close(on_gpu, on_cpu, dtype, 16, scale=2 * (1 + np.abs(on_cpu).max()))


def test_key_lengths_out_of_range(emulated_gpu, rng):
    """On a GPU they are not checked, because that would mean waiting; as on CPUs, nothing beyond the keys is read."""
    q, k, v, dvalues = (array(rng, (2, 2, 5, 4), "float32") for _ in range(4))
    found = []
    for lengths in ([0, 5], [-(2**40), 2**40]):
        tensors = leaves(emulated_gpu, q, k, v)
        values = _core.attention(*tensors, key_lengths=tc.tensor(np.array(lengths), device=emulated_gpu))[0]
        values.backward(tc.tensor(dvalues, device=emulated_gpu))
        found.append([host(values), *(host(t.grad) for t in tensors)])
    for nearest, out_of_range in zip(*found, strict=True):
        np.testing.assert_array_equal(out_of_range, nearest)
    assert not found[0][0][0].any() and np.isfinite(found[1][3]).all()


@pytest.mark.parametrize("given", [list, np.array, tc.tensor])
def test_integers_of_attention_that_are_on_the_cpu(device, given, rng):
    """They are copied to the queries' device, and checked: the host has them."""
    arrays = [normal(rng, "float32", 2, 2, 5, 4) for _ in range(3)]
    options = {"key_lengths": [3, 5], "causal_offset": [1, -2], "is_causal": True}
    tensors = leaves(device, *arrays)
    values = tc.F.scaled_dot_product_attention(*tensors, **{k: v if v is True else given(v) for k, v in options.items()})
    values.sum().backward()
    wanted = R.attention(*arrays, **options)[0]
    assert_close(host(values), wanted, "float32", 16)
    check_gradients(tensors, R.attention_backward(np.ones_like(wanted), *arrays, **options)[:3], "float32")
    with pytest.raises(ValueError, match="key_lengths holds 6; with 5 keys they are from 0 to 5"):
        tc.F.scaled_dot_product_attention(*tensors, key_lengths=given([3, 6]))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_tutorials_attention(device, dtype, rng):
    q, k, v = (array(rng, s, dtype) / 9 for s in ((2, 3, 5, 8), (2, 3, 6, 8), (2, 3, 6, 4)))
    mask = rng.random((2, 1, 5, 6)) < 0.5
    mask[0, 0, 1] = False  # attends uniformly
    tensors = leaves(device, q, k, v)
    values, attention = tc.scaled_dot_product(*tensors, tc.tensor(mask, device=device))
    expected = R.scaled_dot_product(q, k, v, mask)
    assert_close(host(values), expected[0], dtype, 16, scale=2)
    assert_close(host(attention), expected[1], dtype, 16, scale=1)
    dvalues = array(rng, (2, 3, 5, 4), dtype) / 9
    values.backward(tc.tensor(dvalues, device=device))
    check_gradients(tensors, R.scaled_dot_product_backward(dvalues, q, k, v, mask), dtype)


# ---- modules ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: tc.EncoderBlock(16, 4, 24, dropout=0.0),
        lambda: tc.EncoderBlock(16, 2, 24, dropout=0.0, norm_first=True, activation="gelu"),
        lambda: tc.TransformerEncoder(num_layers=2, input_dim=16, num_heads=4, dim_feedforward=24, dropout=0.0),
        lambda: tc.nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=True),
    ],
    ids=["block", "norm_first", "encoder", "torch_style"],
)
def test_modules_go_to_the_gpu_and_back(emulated_gpu, make, rng):
    module = make()
    x = array(rng, (2, 6, 16), "float32") / 9
    outcomes = []
    for place in ("cpu", emulated_gpu):
        module.zero_grad()
        module.to(place)
        assert {p.device for p in module.parameters()} == {place}
        (tensor,) = leaves(place, x)
        y = module(tensor)
        assert y.device == place
        (y * y).sum().backward()
        outcomes.append([host(y), host(tensor.grad), *(host(p.grad) for p in module.parameters())])
    for on_cpu, on_gpu in zip(*outcomes, strict=True):
        assert_close(on_gpu, on_cpu, "float32", gradient=True, scale=1 + np.abs(on_cpu).max())
    assert isinstance(module(x), np.ndarray)  # copied there and back
    module.cpu()
    assert {p.device for p in module.parameters()} == {"cpu"}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("length", [8, 150])
def test_keys_without_query_heads_have_gradients_of_zeros(emulated_gpu, rng, length, dtype):
    q, k, v = leaves(emulated_gpu, *(array(rng, (1, heads, length, 8), dtype) for heads in (0, 2, 2)))
    y = tc.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert y.shape == (1, 0, length, 8)
    y.sum().backward()
    for x in (k, v):
        assert not host(x.grad).astype(float).any()
