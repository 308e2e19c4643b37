"""The memory of captured graphs: what they keep, what they give back, what another library has borrowed, and what happens without."""

import gc

import numpy as np
import pytest
import transformer_c as tc
from device_cases import host, in_a_thread
from graph_cases import Run, late
from test_cuda_runtime import Borrower

__all__ = ["late"]
pytestmark = pytest.mark.usefixtures("nothing_is_left")


def test_a_tensor_that_a_graph_reads_is_freed(emulated_gpu):
    table = [tc.full((100,), 3.0, device=emulated_gpu)]
    step = tc.cuda.graph(lambda x: x * table[0])
    x = tc.full((100,), 2.0, device=emulated_gpu)
    for _ in range(2):
        step(x)
    table.clear()  # nothing but the graph has it now
    others = [tc.full((100,), 9.0, device=emulated_gpu) for _ in range(5)]
    assert (host(step(x)) == 6).all() and (host(others[0]) == 9).all()


def test_a_result_that_was_dropped_is_nobody_elses(emulated_gpu):
    step = tc.cuda.graph(lambda x: (x * 2).sum())
    x = tc.ones(100, device=emulated_gpu)
    step(x), step(x)
    others = [tc.full((100,), 9.0, device=emulated_gpu) for _ in range(5)]  # of the size of the product within
    assert float(step(x)) == 200
    assert all((host(y) == 9).all() for y in others)


def test_results_live_on_without_their_graph(emulated_gpu):
    step = tc.cuda.graph(lambda x: x * 2)
    x = tc.ones(100, device=emulated_gpu)
    step(x), (y := step(x))
    step = None
    gc.collect()
    others = [tc.full((100,), 9.0, device=emulated_gpu) for _ in range(5)]
    assert (host(y) == 2).all() and (host(others[-1]) == 9).all()


def test_memory_of_a_graph_is_in_use_until_it_ends(emulated_gpu):
    def in_use():
        gc.collect()
        return tc.cuda.memory_stats(emulated_gpu)["in_use"]

    before = in_use()
    step = tc.cuda.graph(lambda x: (x * 2 + 1).sum())
    x = tc.ones(5000, device=emulated_gpu)
    step(x), step(x)
    during = in_use()
    assert during > before + 3 * 4 * 5000  # the input, the graph's own, and what is computed in between
    [step(x) for _ in range(3)]
    assert in_use() == during
    del step, x
    assert in_use() == before


def test_a_graph_uses_its_memory_again(emulated_gpu):
    """Twenty products one after the other, of which two are there at a time."""
    numel = 2**14
    x = tc.ones(numel, device=emulated_gpu)

    def function(y):
        for _ in range(20):
            y = y * 2
        return y.sum()

    step = tc.cuda.graph(function)
    step(x)
    before = tc.cuda.memory_stats(emulated_gpu)["in_use"]
    step(x)
    assert tc.cuda.memory_stats(emulated_gpu)["in_use"] - before < 4 * 4 * numel
    assert float(step(x)) == 2**20 * numel


def test_two_graphs(emulated_gpu):
    """A second graph reads what the first one writes; both name the same memory."""
    x, y = tc.zeros(50, device=emulated_gpu), tc.zeros(50, device=emulated_gpu)

    def first(one):
        x.add_(one)

    def second(one):
        y.add_(x * one)

    one, first, second = tc.ones(50, device=emulated_gpu), tc.cuda.graph(first), tc.cuda.graph(second)
    for _ in range(4):
        first(one), second(one)
    assert (host(x) == 4).all() and (host(y) == 10).all()
    del first
    gc.collect()
    second(one)
    assert (host(y) == 14).all()


def test_an_argument_that_is_not_used_is_taken_again(emulated_gpu):
    step, x = tc.cuda.graph(lambda x, y: x * 2), tc.ones(1000, device=emulated_gpu)
    step(x, x), step(x, x)
    del step
    gc.collect()
    others = [tc.full((1000,), float(i), device=emulated_gpu) for i in range(5)]
    assert [float(y[0]) for y in others] == [0, 1, 2, 3, 4]


# ---- memory that another library has borrowed --------------------------------------------------------------------------------------------


def test_a_loan_that_ends_in_a_capture(emulated_gpu, emulated_library):
    """Its reads have not run, and the device cannot be waited for: nobody else gets the memory."""
    borrower = Borrower(emulated_library)
    y = [tc.full((10,), 2.0, device=emulated_gpu)]
    loans, taken = [], []

    def give_back_and_take():
        borrower.gives_back(loans.pop())
        z = tc.full((10,), 9.0, device=emulated_gpu)
        taken.append((z.data_ptr(), float(z.sum())))

    def function(x):
        if loans:
            in_a_thread(give_back_and_take)
        return x + 1

    step, x = tc.cuda.graph(function), tc.ones(4, device=emulated_gpu)
    step(x)
    tc.cuda.synchronize(emulated_gpu)
    address = y[0].data_ptr()
    loans.append(borrower.borrows_and_reads(y[0]))
    y.clear()
    step(x)
    assert taken[0][0] != address and taken[0][1] == 90
    others = [tc.full((10,), 9.0, device=emulated_gpu) for _ in range(9)]  # the capture is over
    assert address in {z.data_ptr() for z in others} and all((host(z) == 9).all() for z in others)
    assert borrower.has_read() == [2.0] * 10


# ---- captures that cannot be made graphs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["float32", "autocast"])
def test_a_graph_that_finds_no_memory_leaves_the_step_undone(emulated_gpu, emulated_library, precision):
    """Weights, states, counts and schedules are those before the call, and later calls go on from there."""
    if not emulated_library.counts_launches:
        pytest.skip("the emulation alone can be short of it")
    run = Run(emulated_gpu, precision, make=lambda step: tc.cuda.graph(step))
    tokens = tc.tensor(np.arange(10).reshape(2, 5), device=emulated_gpu)
    run.step(tokens, tokens)
    state = lambda: (
        [host(p) for p in run.model.parameters()]
        + [host(v) if isinstance(v, tc.Tensor) else v for s in run.optimizer.state.values() for v in s.values()]
    )
    before, rate = state(), run.schedule.get_last_lr()
    emulated_library.library.emulator_fail_instantiations(2)
    with pytest.raises(MemoryError, match="out of memory"):
        run.step(tokens, tokens)
    for found, expected in zip(state(), before, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert run.schedule.get_last_lr() == rate and all(p.grad is None for p in run.model.parameters())
    for _ in range(3):
        run.step(tokens, tokens)
    assert {s["step"] for s in run.optimizer.state.values()} == {4}


def test_gradients_that_are_added_to_stay_where_no_graph_is_made(emulated_gpu, emulated_library):
    if not emulated_library.counts_launches:
        pytest.skip("the emulation alone can be short of memory")
    w, x = tc.ones(3, device=emulated_gpu, requires_grad=True), tc.tensor([1.0, 2.0, 3.0], device=emulated_gpu)
    step = tc.cuda.graph(lambda x: (w * x).sum().backward())
    step(x)
    emulated_library.library.emulator_fail_instantiations(2)
    with pytest.raises(MemoryError):
        step(x)
    np.testing.assert_array_equal(host(w.grad), host(x))
    step(x)
    step(x)
    np.testing.assert_array_equal(host(w.grad), 3 * host(x))


def test_a_graph_gets_the_memory_that_is_cached(emulated_gpu, emulated_library):
    if not emulated_library.counts_launches:
        pytest.skip("the emulation alone can be short of memory")
    tc.zeros(1 << 20, device=emulated_gpu)  # is cached from now on
    step = tc.cuda.graph(lambda x: x * 2)
    x = tc.ones(3, device=emulated_gpu)
    step(x)
    emulated_library.library.emulator_fail_instantiations(1)
    assert host(step(x)).tolist() == [2.0] * 3
    assert tc.cuda.memory_stats(emulated_gpu)["cached"] < 1 << 22
