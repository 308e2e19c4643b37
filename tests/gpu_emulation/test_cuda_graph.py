"""Whole steps, captured once and started many times, beside the same steps as usual: equal bits."""

import numpy as np
import pytest
import transformer_c as tc
from device_cases import host
from graph_cases import OPTIMIZERS, Run, assert_equal, late
from transformer_c import functional as F

__all__ = ["late"]
pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.mark.whole
@pytest.mark.parametrize(
    "precision, order, steps", [("float32", "random", 20), ("bfloat16", "late", 20), ("autocast", "late", 20), ("float32", "at_once", 8)]
)
def test_steps_have_the_bits_of_eager_ones(emulated_gpu, emulated_library, precision, order, steps):
    expected = Run(emulated_gpu, precision).train(steps).end()
    emulated_library.set_streams(order, 1)
    assert_equal(Run(emulated_gpu, precision, make=tc.cuda.graph).train(steps).end(), expected)


@pytest.mark.whole
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer(emulated_gpu, optimizer):
    expected = Run(emulated_gpu, optimizer=optimizer).train(5).end()
    assert_equal(Run(emulated_gpu, optimizer=optimizer, make=tc.cuda.graph).train(5).end(), expected)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "autocast"])
def test_a_capture_launches_what_the_first_call_has_loaded(emulated_gpu, emulated_library, precision):
    """A kernel's code is loaded at its first launch, which in a capture some drivers refuse."""
    run = Run(emulated_gpu, precision, make=tc.cuda.graph)
    tokens = tc.tensor(np.ones((3, 5), np.int64), device=emulated_gpu)
    tc.cuda.synchronize(emulated_gpu)
    found = []
    for _ in range(3):
        emulated_library.launches()
        run.step(tokens, tokens)
        tc.cuda.synchronize(emulated_gpu)
        found.append(set(emulated_library.launches()))
    assert len(found[0]) > 20 and found[1] <= found[0]
    assert not found[2] - found[1]


def test_a_step_is_one_launch(emulated_gpu, emulated_library):
    library, run = emulated_library.library, Run(emulated_gpu, make=tc.cuda.graph)
    tokens = tc.tensor(np.ones((3, 5), np.int64), device=emulated_gpu)
    launches = []
    tc.cuda.synchronize(emulated_gpu)  # no buffer is on its way
    for _ in range(4):
        emulated_library.launches()
        before = library.emulator_graph_launches(), library.emulator_host_waits(), library.emulator_copies_from_host()
        run.step(tokens, tokens)
        after = library.emulator_graph_launches(), library.emulator_host_waits(), library.emulator_copies_from_host()
        launches.append((len(emulated_library.launches()) > 0, *(b - a for a, b in zip(before, after, strict=True))))
    # kernels, graphs, waits, copies: the one copy has the numbers of the step
    assert launches == [(True, 0, 0, 0), (True, 1, 0, 1), (False, 1, 0, 1), (False, 1, 0, 1)]


@pytest.mark.whole
def test_what_is_set_between_steps_counts(emulated_gpu):
    """Learning rates, decays, seeds: whatever an eager step would see."""

    def changed(run):
        def between():
            group = run.optimizer.param_groups[0]
            group["weight_decay"] = 0.01 * len(run.losses)
            group["betas"] = (0.8, 0.99)
            if len(run.losses) == 4:
                tc.manual_seed(11)
            F.dropout(tc.ones(5, device=emulated_gpu), 0.5, True)  # draws in between

        return run.train(6, between).end()

    assert_equal(changed(Run(emulated_gpu, make=tc.cuda.graph)), changed(Run(emulated_gpu)))


def test_an_eager_backward_notices_that_a_graph_wrote(emulated_gpu):
    """Weights and results alike."""
    run = Run(emulated_gpu, make=tc.cuda.graph).train(2)
    weight = run.model.head.weight
    y = (weight * weight).sum()
    run.train(1)
    with pytest.raises(RuntimeError, match="changed in place|modified|written"):
        y.backward()
    step = tc.cuda.graph(lambda x: x * 2)
    x = tc.ones(3, device=emulated_gpu)
    step(x)
    z = (tc.ones(3, device=emulated_gpu, requires_grad=True) * step(x)).sum()
    step(x)
    with pytest.raises(RuntimeError, match="changed in place|modified|written"):
        z.backward()


def test_results_are_used_as_any_other_tensors(emulated_gpu):
    """They have no history, which would be that of the capture."""
    layer = tc.nn.Linear(3, 2).to(emulated_gpu)
    for make in (lambda step: step, tc.cuda.graph):
        step = make(lambda x: {"y": layer(x), "both": (layer(x).tanh(), [x * 2])})
        total, expected = tc.zeros((), device=emulated_gpu), 0.0
        for i in range(5):
            x = tc.full((4, 3), float(i), device=emulated_gpu)
            results = step(x)
            total = total + results["y"].softmax(-1).sum() + results["both"][0].clone().mean() + results["both"][1][0].sum()
            expected += 4 + float(layer(x).tanh().mean()) + 24 * i
        np.testing.assert_allclose(float(total), expected, rtol=1e-5)
    with pytest.raises(RuntimeError, match="nothing to go back through: .* or it is a result of tc.cuda.graph, in whose function backward"):
        step(x)["y"].sum().backward()


def test_a_graph_without_arguments(emulated_gpu):
    count = tc.zeros(3, device=emulated_gpu)
    step = tc.cuda.graph(lambda: count.add_(1.0), device=emulated_gpu)
    [step() for _ in range(5)]
    assert (host(count) == 5).all()
