"""Random masks in captured graphs: whose generator gives them, and what it has given afterwards."""

import contextlib
import copy

import numpy as np
import pytest
import transformer_c as tc
from device_cases import host, in_a_thread
from graph_cases import late
from transformer_c import _core
from transformer_c import functional as F
from transformer_c.random import as_generator

__all__ = ["late"]
pytestmark = pytest.mark.usefixtures("nothing_is_left")


def test_a_generator_of_its_own(emulated_gpu):
    x = tc.ones(300, device=emulated_gpu)
    found = []
    for make in (lambda f: f, tc.cuda.graph):
        one, two = tc.Generator(5), tc.Generator(5)
        step = make(lambda x, a=one, b=two: [F.dropout(x, 0.5, rng=g) for g in (a, b, a)])
        found.append([[host(y).copy() for y in step(x)] for _ in range(4)])
    np.testing.assert_array_equal(found[0], found[1])


def dropped(x, rng):
    return F.dropout(x, 0.5, rng=rng)


def attended(x, rng):
    q = x.reshape(2, 5, 3)
    return F.scaled_dot_product_attention(q, q, q, dropout_p=0.5, rng=rng)


def multiplied(x, rng):
    """Dropout in the epilogue of a product."""
    rows, weight = x.reshape(6, 5), tc.ones(5, 5, device=x.device)
    return as_generator(rng).with_mask(lambda seed, call: _core.linear(rows, weight, dropout=0.5, seed=seed, call=call))


@pytest.mark.parametrize("draw", [dropped, attended, multiplied])
@pytest.mark.parametrize("made", ["an int", "a generator", "one for two masks", "beside another"])
def test_a_generator_that_the_function_makes_begins_anew(emulated_gpu, draw, made):
    """With the masks, and so the gradients, of the function itself."""
    makers = {
        "an int": lambda other: [1, 1],
        "a generator": lambda other: [tc.Generator(1), tc.Generator(2)],
        "one for two masks": lambda other: [tc.Generator(1)] * 2,
        "beside another": lambda other: [other, tc.Generator(1), other],
    }

    def run(wrap):
        other, w = tc.Generator(5), tc.ones(30, device=emulated_gpu, requires_grad=True)

        def step(x):
            w.grad = None
            masked = [draw(w * x, rng) for rng in makers[made](other)]
            sum((y * y).sum() for y in masked).backward()
            return [*masked, w.grad]

        step = wrap(step)
        return [[host(y).copy() for y in step(tc.full((30,), float(i), device=emulated_gpu))] for i in range(1, 6)]

    for one, expected in zip(run(tc.cuda.graph), run(lambda step: step), strict=True):
        for found, wanted in zip(one, expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_a_generator_of_another_capture_goes_on(emulated_gpu):
    """It is outside of the function that draws from it."""

    def run(wrap):
        made = []
        first = wrap(lambda x: made.append(tc.Generator(3)) or F.dropout(x, 0.5, rng=made[-1]))
        x = tc.ones(100, device=emulated_gpu)
        first(x), first(x)
        second = wrap(lambda x: F.dropout(x, 0.5, rng=made[1]))
        return [host(second(x)).copy() for _ in range(4)]

    np.testing.assert_array_equal(run(tc.cuda.graph), run(lambda step: step))


def drawing(rng, calls, fails_at=None):
    """A function that draws two masks, of which each call has its number; the call after `fails_at` raises between them."""

    def function(x):
        calls.append(1)
        y = F.dropout(x, 0.5, rng=rng)
        if len(calls) == fails_at:
            raise KeyError("in between")
        return y + F.dropout(x, 0.5, rng=rng)

    return function


def test_a_capture_that_fails_has_drawn_what_the_function_would_have(emulated_gpu):
    """What came before the error is done: so the generator, and later calls, are those of the function itself."""
    x, found = tc.ones(200, device=emulated_gpu), []
    for wrap in (lambda f: f, tc.cuda.graph):
        rng, results = tc.Generator(4), []
        step = wrap(drawing(rng, [], 2))
        for _ in range(5):
            try:
                results.append(host(step(x)).tobytes())
            except KeyError:
                results.append(b"failed")
            results.append(rng.get_state())
        found.append(results)
    assert found[0] == found[1]


def test_a_mask_that_is_refused_in_a_capture_draws_nothing(emulated_gpu):
    """The function goes on after it, as it does by itself."""
    x, found = tc.ones(200, device=emulated_gpu), []

    def function(x):
        y = F.dropout(x, 0.5, rng=rng)
        with contextlib.suppress(ZeroDivisionError):
            rng.with_mask(lambda seed, call: 1 / 0)
        return y + F.dropout(x, 0.5, rng=rng)

    for wrap in (lambda f: f, tc.cuda.graph):
        rng = tc.Generator(4)
        step = wrap(function)
        found.append([(host(step(x)).tobytes(), rng.get_state()) for _ in range(4)])
    assert found[0] == found[1]


@pytest.mark.parametrize("is_drawn_between", [False, True])
def test_a_capture_without_memory_draws_nothing(emulated_gpu, emulated_library, is_drawn_between):
    """Its work is not done. Numbers that come after another thread's are left out, since a mask may not be drawn twice."""
    if not emulated_library.counts_launches:
        pytest.skip("the emulation alone can be short of it")
    rng, other, calls, x = tc.Generator(4), tc.Generator(4), [], tc.ones(200, device=emulated_gpu)
    function = drawing(rng, calls)

    def between(x):
        result = function(x)
        if is_drawn_between and len(calls) == 2:
            in_a_thread(rng.next_call)
        return result

    step = tc.cuda.graph(between)
    step(x)
    before = rng.get_state()
    emulated_library.library.emulator_fail_instantiations(2)
    with pytest.raises(MemoryError):
        step(x)
    [other.next_call() for _ in range(5 if is_drawn_between else 2)]
    assert rng.get_state() == other.get_state()
    assert is_drawn_between or rng.get_state() == before


def test_a_start_that_is_not_done_draws_nothing(emulated_gpu, emulated_library):
    """And its optimizer has not stepped: the next start is the next step."""
    if not emulated_library.counts_launches:
        pytest.skip("the emulation alone lets a launch fail")
    x, found = tc.ones(50, device=emulated_gpu), []
    for fails in (False, True):
        rng, w = tc.Generator(4), tc.nn.Parameter(tc.ones(50, device=emulated_gpu))
        optimizer = tc.optim.Adam([w], lr=0.1)
        schedule = tc.optim.lr_scheduler.StepLR(optimizer, 2)

        def function(x, rng=rng, w=w, optimizer=optimizer, schedule=schedule):
            optimizer.zero_grad()
            F.dropout(w * x, 0.5, rng=rng).sum().backward()
            optimizer.step(), schedule.step()

        step = tc.cuda.graph(function)
        for i in range(5):
            if fails and i == 3:
                before = rng.get_state(), schedule.state_dict(), host(w).tobytes(), optimizer.state[w]["step"]
                emulated_library.library.emulator_fail_starts(1)
                with pytest.raises(RuntimeError, match="a captured graph"):
                    step(x)
                assert before == (rng.get_state(), schedule.state_dict(), host(w).tobytes(), optimizer.state[w]["step"])
            step(x)
        found.append((rng.get_state(), host(w).tobytes(), schedule.get_last_lr()))
    assert found[0] == found[1]


def test_a_generator_of_the_function_may_be_copied_and_set(emulated_gpu):
    """It is the same in each call, and so is what is done with it. Its state and copies of another are refused (test_cuda_graph_refused)."""
    x, found = tc.ones(200, device=emulated_gpu), []
    state = tc.Generator(9).get_state()

    def function(x):
        own = tc.Generator(3)
        first = F.dropout(x, 0.5, rng=own)
        again, third = copy.deepcopy(own), tc.Generator(1)
        third.set_state(own.get_state())
        fourth = tc.Generator().manual_seed(5)
        fifth = tc.Generator()
        fifth.set_state(state), fourth.next_call()
        return [first, *(F.dropout(x, 0.5, rng=g) for g in (again, third, fourth, fifth, own))]

    for wrap in (lambda f: f, tc.cuda.graph):
        step = wrap(function)
        found.append([[host(y).copy() for y in step(x)] for _ in range(4)])
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0][0][1], found[0][0][2])
