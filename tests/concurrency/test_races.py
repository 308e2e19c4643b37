"""What a call uses stays until it ends, whatever other threads replace meanwhile. In a normal build a hole may end the process; under AddressSanitizer
(`make sanitize`) every use after free does. races.py has the threads."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import races
import transformer_c as tc
from transformer_c import _core


@pytest.mark.parametrize("name", races.RACES)
def test_a_race_ends_no_process(name):
    program = Path(__file__).with_name("races.py")
    done = subprocess.run([sys.executable, str(program), name, "1"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == "done\n", (done.returncode, done.stderr[-3000:])


def test_a_step_that_never_succeeds_is_found():
    def fails():
        raise ValueError("always")

    with pytest.raises(AssertionError, match="step 1 never succeeded"):
        races.run(races.loops(lambda: None, fails), 0.05, patience=0)


def test_every_place_without_the_gil_is_known():
    """A new one computes with what tcpy_hold made, or with memory that no other thread has."""
    folder = Path(__file__).parents[2] / "csrc" / "python"
    found = {path.name: path.read_text().count("Py_BEGIN_ALLOW_THREADS") for path in folder.glob("*.[ch]")}
    assert {name: count for name, count in found.items() if count} == {
        "binding.h": 1,  # TCPY_COMPUTE: after tcpy_hold
        "generator_object.c": 5,  # fill a new Tensor; draw a number, or copy a generator, under its lock
        "ops_cuda.c": 2,  # no Tensors; the start of a graph, which keeps the memory that it names
        "ops_custom.c": 1,  # after tcpy_hold
    }
    for path in folder.glob("*.c"):
        for before in path.read_text().split("TCPY_COMPUTE(")[:-1]:
            assert "hold" in before[-500:] or "tc_cuda_device_count" in path.read_text(), path


LONG = {
    "broadcast": lambda x, column, row: column + row,
    "lerp": lambda x, column, row: column.lerp(row, 0.25),
    "where": lambda x, column, row: tc.where(column > 0, row, column),
    "index": lambda x, column, row: row.T[np.zeros(1 << 25, np.int64)],
    "cast": lambda x, column, row: x.half(),
    "type_as": lambda x, column, row: x.type_as(tc.zeros(1, dtype="float64")),
    "contiguous": lambda x, column, row: x.T.contiguous(),
    "reshape": lambda x, column, row: x.T.reshape(-1),
}


@pytest.mark.parametrize("name", LONG)
def test_other_threads_run_during_a_long_call(name):
    """However few elements its arguments have, and of functions that often compute nothing."""
    x, column, row = tc.ones(6000, 6000), tc.ones(6000, 1), tc.ones(1, 6000)
    stop, gap = threading.Event(), [0.0]

    def run():
        last = time.perf_counter()
        while not stop.is_set():
            now = time.perf_counter()
            gap[0] = max(gap[0], now - last)
            last = now
            time.sleep(1e-4)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for _ in range(10):  # the machine may have other work
            gap[0], start = 0.0, time.perf_counter()
            LONG[name](x, column, row)
            took = time.perf_counter() - start
            time.sleep(1e-3)
            if gap[0] < took / 2:
                return
    finally:
        stop.set()
        thread.join()
    raise AssertionError(f"another thread waited {gap[0]} s of {took} s")


# ---- what a race leaves, step by step: the other thread's part is done inside a custom op, in the middle of a backward --------------------


def in_the_middle_of_a_backward(change):
    """The identity, whose backward calls `change()`: other threads can do so whenever a backward is running."""

    def backward(dy, x):
        thread = threading.Thread(target=change)
        thread.start()
        thread.join()
        return dy

    return tc.custom_op(lambda x: x, backward)


def test_a_gradient_set_to_none_during_a_backward():
    p = tc.ones(3, requires_grad=True)
    p.grad = tc.full((3,), 5.0)
    before = p.grad
    in_the_middle_of_a_backward(lambda: setattr(p, "grad", None))(p * 2.0).sum().backward()
    assert p.grad.tolist() == [2.0, 2.0, 2.0] and before.tolist() == [5.0, 5.0, 5.0]


def test_data_replaced_during_a_backward():
    """The gradient is that of the call, at the values of the call."""
    p = tc.tensor([1.0, 2.0], requires_grad=True)
    in_the_middle_of_a_backward(lambda: setattr(p, "data", tc.tensor([7.0, 7.0])))(p * p).sum().backward()
    assert p.grad.tolist() == [2.0, 4.0] and p.tolist() == [7.0, 7.0]


def test_a_leaf_of_another_dtype_gets_its_gradient_in_that_dtype():
    p = tc.tensor([1.0, 2.0], requires_grad=True)
    y = (p * p).sum()
    p.data = p.data.double()
    y.backward()
    assert p.grad.dtype == np.float64 and p.grad.tolist() == [2.0, 4.0]


def test_a_call_gives_back_the_tensor_that_it_was_given():
    x = tc.ones(200, 200)
    big = tc.ones(200, 200, requires_grad=True)
    assert x.contiguous() is x and x.to("float32") is x and tc.as_tensor(x) is x and big.to("float32") is big
    assert x.copy_(big.detach()) is x and x.requires_grad_() is x and x.requires_grad
    y = tc.cat([big, big])
    y.sum().backward()
    assert big.grad is big.grad and big.grad.tolist() == np.full((200, 200), 2.0).tolist()


def test_a_large_tensor_that_is_written_in_place_has_the_history_of_the_write():
    w = tc.ones(200, 200, requires_grad=True)
    x = tc.zeros(200, 200)
    assert x.copy_(w * 3.0).grad_fn is not None
    x[np.arange(100)] = w[:100] * 2.0
    (x * x).sum().backward()
    np.testing.assert_array_equal(w.grad[:100].numpy(), 8.0)
    np.testing.assert_array_equal(w.grad[100:].numpy(), 18.0)


def test_headers_of_calls_are_freed():
    w = tc.ones(200, 200, requires_grad=True)

    def step():
        x = tc.ones(200, 200)
        x.copy_(w * 2.0)
        y = (x @ w)[np.arange(200)].sum() + tc.cat([w, x]).exp().sum()
        y.backward()
        _core.gradient_norm([w.grad])
        w.grad = None
        w.data = tc.ones(200, 200)
        with pytest.raises(ValueError):
            tc.cat([w, x[0]])

    step()
    before = _core.memory_stats()["in_use"]
    for _ in range(5):
        step()
    assert _core.memory_stats()["in_use"] == before


def test_an_operator_holds_both_operands():
    """`a + a` while another thread gives `a` other memory and takes the old memory for sevens."""
    a, stop, wrong = tc.ones(1500, 1500), threading.Event(), []

    def replace():
        while not stop.is_set():
            a.data = tc.ones(1500, 1500)
            tc.full((1500, 1500), 7.0)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(150):
            y = a + a
            wrong += [y.max().item()] if y.max().item() != 2 else []
    finally:
        stop.set()
        thread.join()
    assert not wrong


def places(rows, axis):
    """An index of whole columns (1) or rows (0) of N x N elements."""
    return tc.tensor(
        np.ascontiguousarray(np.broadcast_to(rows if axis else rows[:, None], (races.N, len(rows)) if axis else (len(rows), races.N)))
    )


WRITES = {
    "x[mask] = v": lambda x, mask, rows, v: x.__setitem__(mask, 2),
    "x[mask_of_rows] = v": lambda x, mask, rows, v: x.T.__setitem__(mask[0], 2),
    "masked_fill_": lambda x, mask, rows, v: x.masked_fill_(mask[:1], 2),
    "scatter_": lambda x, mask, rows, v: x.scatter_(1, places(rows, 1), v),
    "scatter_add_": lambda x, mask, rows, v: x.scatter_add_(0, places(rows, 0), v),
    "index_add_": lambda x, mask, rows, v: x.index_add_(1, tc.tensor(rows), v[:, : len(rows)]),
    "index_put_": lambda x, mask, rows, v: x.index_put_((tc.tensor(rows),), v[: len(rows)]),
    "index_put_, added": lambda x, mask, rows, v: x.index_put_((tc.tensor(rows),), v[: len(rows)], accumulate=True),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "bool"])
@pytest.mark.parametrize("name", WRITES)
def test_writes_to_other_elements_are_not_undone(name, dtype):
    """Two threads that write to parts of one Tensor that have no element in common."""
    x, v, barrier = tc.zeros(races.N, races.N, dtype=dtype), tc.full((races.N, races.N), 2, dtype=dtype), threading.Barrier(3)

    def work(first):
        rows = np.arange(first, races.N, 2)
        mask = np.zeros((races.N, races.N), bool)
        mask[:, rows] = True
        mask = tc.tensor(mask)
        for _ in range(20):
            barrier.wait()
            WRITES[name](x, mask, rows, v)
            barrier.wait()

    threads = [threading.Thread(target=work, args=(first,)) for first in range(2)]
    for thread in threads:
        thread.start()
    wrong = 0
    for _ in range(20):
        x.zero_()
        barrier.wait()
        barrier.wait()
        wrong += not tc.equal(x, v)
    for thread in threads:
        thread.join()
    assert wrong == 0
