"""Ctrl-C in the middle of a long call: it ends, all objects are as they were, and the next call is right."""

import contextlib
import os
import signal
import threading
import time

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core
from transformer_c import functional as F

pytestmark = pytest.mark.unsanitized  # seconds; tests/c/test_threads.c interrupts the pool under sanitizers
LONG = 2**40
SECONDS = 10  # until a call has ended; it looks every few hundredths of one


def wide(*shape, dtype=tc.float32):
    """A number that is read as many: no memory, but as much work as any tensor."""
    return tc.ones(*[1] * len(shape), dtype=dtype).expand(*shape)


def windows(rows, length, dtype):
    """The same for results that are elements themselves, of which one is read where all are the same: rows that overlap."""
    return tc.ones(rows + length - 1, dtype=dtype).unfold(0, length, 1)


CALLS = {
    "sum": lambda: wide(LONG).sum(),
    "sum of two axes": lambda: wide(2**20, 2**20).sum(),
    "sum over rows": lambda: wide(2**16, 2**24).sum(0),
    "mean of float64": lambda: wide(LONG, dtype=tc.float64).mean(),
    "max of float16": lambda: windows(2**20, 2**20, tc.float16).max(),
    "var": lambda: wide(2**10, 2**30).var(1),
    "sum of integers": lambda: wide(LONG, dtype=tc.int64).sum(),
    "min of integers along rows": lambda: windows(2**20, 2**20, tc.int32).min(axis=1),
    "all": lambda: windows(2**20, 2**20, bool).all(),
    "matmul": lambda: wide(2**15, 2**12) @ wide(2**12, 2**12),
    "matmul of few rows": lambda: wide(2**7, 2**18) @ wide(2**18, 2**16),
    "convolution of one sample": lambda: F.conv2d(wide(1, 2**14, 2**10, 2**11), wide(4, 2**14, 3, 3)),
    "attention": lambda: F.scaled_dot_product_attention(*[wide(2**4, 2**14, 64)] * 3),
}


def interrupted(call, after=0.2, seconds=SECONDS):
    """Sends Ctrl-C while `call` runs; the seconds until KeyboardInterrupt came."""
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    start, ended = time.monotonic(), False
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
            ended = True
            time.sleep(after + seconds)  # until it comes
    finally:
        timer.join()
    assert not ended, "the call was too short to be interrupted"
    assert time.monotonic() - start < after + seconds


@contextlib.contextmanager
def signals(handler, first, again=0.0):
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, first, again)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.alone
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", CALLS)
def test_a_long_call_is_interrupted(name, count):
    before = tc.get_num_threads()
    tc.set_num_threads(count)
    try:
        used = _core.memory_stats()["in_use"]
        interrupted(CALLS[name])
        assert _core.memory_stats()["in_use"] == used
        x = np.arange(1 << 20, dtype=np.float64)
        assert tc.tensor(x).sum().item() == x.sum()
    finally:
        tc.set_num_threads(before)


LONG_BACKWARD = tc.custom_op(lambda x: x.sum(), lambda dy, x: (wide(2**20, 2**20).sum().reshape(1),))


@pytest.mark.alone
def test_an_interrupted_backward_leaves_no_gradient():
    x, w = tc.ones(1, requires_grad=True), tc.ones(1, requires_grad=True)
    loss = (w * 2).sum() + LONG_BACKWARD(x)
    interrupted(loss.backward)
    assert x.grad is None and w.grad is None


@pytest.mark.alone
def test_a_handler_that_returns_changes_nothing():
    """Signals every few milliseconds, whose handler computes with the library itself."""
    x = np.linspace(0, 1, 1 << 16, dtype=np.float32)
    many = tc.tensor(x).expand(1 << 13, 1 << 16)
    want = many.sum().item()
    seen = []

    def handler(*_):
        seen.append(tc.ones(300, 300).sum().item())

    found = []
    with signals(handler, 0.01, 0.01):
        while len(found) < 4 or not seen:  # a machine may be faster than the first signal
            found.append(many.sum().item())
    assert set(found) == {want} and set(seen) == {90000.0}


def test_what_others_replace_meanwhile_is_not_read():
    """This attention is of few elements and much work: such a call keeps the GIL, and its tensors are not its own."""
    T = 16384
    q, v = tc.zeros(1, 1, T, 1), tc.ones(1, 1, T, 1)
    stop = threading.Event()

    def replace():
        kept = []
        while not stop.is_set():
            v.data = tc.ones(1, 1, T, 1)
            kept = [*kept[-50:], tc.full((1, 1, T, 1), 7.0)]

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        with signals(lambda *_: time.sleep(0.002), 0.02, 0.02):  # other threads run during a handler
            found = [F.scaled_dot_product_attention(q, q, v) for _ in range(4)]
    finally:
        stop.set()
        thread.join()
    assert all(float(y.min()) == float(y.max()) == 1.0 for y in found)


def test_a_handler_records():
    """In the middle of a backward as everywhere; and what it switches stays switched."""
    x, w = tc.ones(1500, 1500, requires_grad=True), tc.ones(1, requires_grad=True)
    y, seen = x, []
    while not seen:  # a backward that is too short for the signal is followed by a longer one
        for _ in range(3):
            y = y @ x
        loss = y.sum()
        with signals(lambda *_: seen.append((tc.is_grad_enabled(), (w * 2.0).requires_grad)), 0.1):
            loss.backward(retain_graph=True)
    assert seen == [(True, True)] and tc.is_grad_enabled() and x.grad is not None


def test_a_handler_that_forks():
    """The child has lost what the other threads had begun; the parent's call is right."""
    before = tc.get_num_threads()
    tc.set_num_threads(3)
    children, found, length = [], [], 2**14

    def fork(*_):
        children.append(os.fork())
        found.append(wide(300, 300).sum().item())  # in the child as well, which has no other threads

    try:
        while not children:  # a call that is too short for the signal is followed by a longer one
            length *= 4
            with signals(fork, 0.1):
                try:
                    right = (wide(2**14, length).sum(1).numpy() == length).all()
                except RuntimeError as error:
                    right = "forked this process in the middle of the call" in str(error) and wide(100, 100).sum().item() == 1e4
    finally:
        if children == [0]:
            os._exit(not (right and found == [9e4]))
        tc.set_num_threads(before)
    assert right and found == [9e4] and len(children) == 1 and os.waitpid(children[0], 0)[1] == 0


def test_other_threads_do_not_take_the_signal():
    """A handler runs on the main thread only: what another thread computes is whole."""
    found = []
    thread = threading.Thread(target=lambda: found.append(wide(2**31).sum().item()))
    caught = []
    before = signal.signal(signal.SIGINT, lambda *_: caught.append(threading.current_thread()))
    try:
        thread.start()
        time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert found == [2**31] and caught == [threading.main_thread()]


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_integers_of_many_segments(dtype, rng):
    """Long integer reductions are cut into segments: the same numbers."""
    a = rng.integers(-(2**62), 2**62, (2, (1 << 21) + 12345)).astype(dtype)
    t = tc.tensor(a)
    for view, t_view, axes in [(a, t, (None, 1)), (a[:, ::-1].T, t[:, ::-1].T, (None, 0))]:
        for axis in axes:
            np.testing.assert_array_equal(t_view.sum(axis), view.sum(axis, dtype=np.int64))
            for name in ("max", "min", "any", "all"):
                np.testing.assert_array_equal(getattr(t_view, name)(axis=axis), getattr(view, name)(axis))
