"""Captured graphs beside other threads."""

import threading

import numpy as np
import pytest
import transformer_c as tc
from device_cases import host, in_a_thread
from graph_cases import Run, assert_equal, late

__all__ = ["late"]
pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.mark.whole
def test_other_threads_and_freed_tensors_do_no_harm(emulated_gpu, emulated_library):
    """Another thread takes memory and gives it back, and between the starts results of eager calls are freed and taken again."""
    expected = Run(emulated_gpu).train(8).end()
    emulated_library.set_streams("random", 5)
    stop, failures = threading.Event(), []

    def allocate():
        rng = np.random.default_rng(1)
        kept = []
        try:
            while not stop.is_set():
                n = int(rng.integers(1, 3000))
                kept.append((tc.full((n,), float(n), device=emulated_gpu) * 2, n))
                if len(kept) > 5:
                    x, n = kept.pop(int(rng.integers(5)))
                    assert (x.cpu().numpy() == 2 * n).all()
                if n % 7 == 0:
                    tc.cuda.empty_cache(emulated_gpu)
                if n % 5 == 0:
                    tc.cuda.synchronize(emulated_gpu)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=allocate)
    thread.start()
    run = Run(emulated_gpu, make=tc.cuda.graph)
    run.train(8, between=lambda: [p.detach() * 2 for p in run.model.parameters()])
    stop.set()
    thread.join()
    assert not failures
    assert_equal(run.end(), expected)


def test_threads_start_a_graph_in_turn(emulated_gpu, emulated_library):
    emulated_library.set_streams("random", 3)
    x = tc.zeros(50, device=emulated_gpu)
    step = tc.cuda.graph(lambda one: x.add_(one))
    one = tc.ones(50, device=emulated_gpu)
    step(one), step(one)
    threads = [threading.Thread(target=lambda: [step(one) for _ in range(5)]) for _ in range(3)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert (host(x) == 17).all()


def test_what_other_threads_do_in_a_capture(emulated_gpu):
    """They read, copy, wait and give memory back; the capture is not theirs."""
    y = tc.full((1000,), 2.0, device=emulated_gpu)
    seen = []

    def other():
        seen.append(float((y * 3).sum()))
        tc.cuda.synchronize(emulated_gpu)
        tc.cuda.empty_cache(emulated_gpu)
        seen.append((tc.tensor(np.ones(5, np.float32), device=emulated_gpu) + 1).tolist())

    def function(x):
        in_a_thread(other)
        return x + 1

    step, x = tc.cuda.graph(function), tc.ones(4, device=emulated_gpu)
    for _ in range(3):
        assert (host(step(x)) == 2).all()
    assert seen == [6000.0, [2.0] * 5] * 2


OF_A_THREAD = {
    "computes": lambda y, x: y * 3,
    "writes": lambda y, x: y.add_(1),
    "reads": lambda y, x: y.tolist(),
    "copies": lambda y, x: y.clone(),
    "has a large copy": lambda y, x: y.repeat(500000).tolist(),
    "writes a number": lambda y, x: y.__setitem__(0, 1.0),
    "uses the argument": lambda y, x: x * 3,
    "uses a view": lambda y, x: y[1:].sum(),
    "lends": lambda y, x: y.__dlpack__(stream=1),
    "captures": lambda y, x: [step() for step in [tc.cuda.graph(lambda: y * 3, device=y.device)] for _ in range(2)],
}


@pytest.mark.parametrize("name", OF_A_THREAD)
def test_a_thread_of_the_function_may_not_use_what_the_capture_has_not_computed(emulated_gpu, name):
    errors, calls = [], []

    def use(y, x):
        try:
            OF_A_THREAD[name](y, x)
        except RuntimeError as error:
            errors.append(str(error))

    def function(x):
        y = x * 2
        calls.append(1)
        if len(calls) > 1:
            in_a_thread(lambda: use(y, x))
        return y * 5

    step = tc.cuda.graph(function)
    for i in range(1, 5):
        assert (host(step(tc.full((8,), float(i), device=emulated_gpu))) == 10 * i).all()
    assert len(errors) == 1 and "another thread computed, or got as an argument, while tc.cuda.graph captured" in errors[0]
