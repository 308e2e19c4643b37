"""Random masks in captured graphs: whose generator gives them, and what it has given afterwards."""

import numpy as np
import pytest
import transformer_c as tc
from device_cases import host
from graph_cases import late
from transformer_c import functional as F

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


@pytest.mark.parametrize("draw", [dropped, attended])
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
