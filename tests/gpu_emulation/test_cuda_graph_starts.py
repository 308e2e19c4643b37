"""Starts of captured graphs that are refused: each leaves everything as it was."""

import itertools
import threading

import numpy as np
import pytest
import transformer_c as tc
from device_cases import host
from graph_cases import Run, late
from interrupting import Interrupt, interrupted
from transformer_c import _core, _graph
from transformer_c import functional as F
from transformer_c.optim import lr_scheduler as LR

__all__ = ["late"]
pytestmark = pytest.mark.usefixtures("nothing_is_left")


def test_other_states_are_refused(emulated_gpu):
    run = Run(emulated_gpu, make=tc.cuda.graph).train(2)
    run.optimizer.load_state_dict(run.optimizer.state_dict())  # copies: the graph knows the old ones
    with pytest.raises(RuntimeError, match="is not the one that was captured"):
        run.train(1)


class Late(LR.LambdaLR):
    """A schedule that ends after some steps."""

    def get_lr(self):
        if self.last_epoch > 3:
            raise ValueError("the schedule has ended")
        return super().get_lr()


@pytest.mark.parametrize("refused", ["states", "schedule", "gradient"])
def test_a_refused_start_leaves_everything_as_it_was(emulated_gpu, refused):
    """Also what optimizers and schedules that come before the refused one have counted, and the versions of their parameters."""
    tc.manual_seed(2)
    one, two = tc.nn.Linear(3, 2).to(emulated_gpu), tc.nn.Linear(3, 2).to(emulated_gpu)
    first, second = tc.optim.Adam(one.parameters(), lr=0.1), tc.optim.Adam(two.parameters(), lr=0.1)
    parts = [LR.LambdaLR(first, lambda n: 0.5**n), LR.StepLR(first, 2)]
    schedules = [LR.ChainedScheduler(parts), (Late if refused == "schedule" else LR.LambdaLR)(second, lambda n: 1.0)]
    extra = tc.nn.Parameter(tc.ones(2, device=emulated_gpu))

    def step(x):
        first.zero_grad(), second.zero_grad()
        F.dropout(one(x), 0.5, True).sum().backward()
        two(x).sum().backward()
        [o.step() for o in (first, second)], [s.step() for s in schedules]

    step, x = tc.cuda.graph(step), tc.ones(4, 3, device=emulated_gpu)
    [step(x) for _ in range(3)]
    one.weight.grad = tc.ones(2, 3, device=emulated_gpu)
    if refused == "states":
        second.load_state_dict(second.state_dict())
    if refused == "gradient":
        second.add_param_group({"params": [extra]})
        extra.grad = tc.ones(2, device=emulated_gpu)

    def everything():
        states = [[(id(p), s["step"], host(s["exp_avg"]).tobytes()) for p, s in o.state.items()] for o in (first, second)]
        rates = [[{k: v for k, v in g.items() if k != "params"} for g in o.param_groups] for o in (first, second)]
        rest = [s.state_dict() for s in schedules], [p.last_epoch for p in parts], tc.random.default_generator.get_state()
        tensors = [host(t).tobytes() for p in (*one.parameters(), *two.parameters()) for t in (p, p.grad)]
        return repr((states, rates, rest)), [p.grad.data_ptr() for p in one.parameters()], tensors

    y, before = (one.weight * one.weight).sum(), everything()
    for _ in range(2):
        with pytest.raises((RuntimeError, ValueError), match="not the one that was captured|schedule has ended|on the GPU outside of its"):
            step(x)
        assert everything() == before
    one.zero_grad()
    y.backward()  # the weight has not changed


@pytest.mark.parametrize("gradient", [5.0, None])
def test_gradients_from_elsewhere_are_refused(emulated_gpu, gradient):
    """The function only steps: a start must not step with the gradient of the capture in their place."""
    p = tc.ones(4, device=emulated_gpu, requires_grad=True)
    optimizer = tc.optim.SGD([p], lr=1.0)
    step = tc.cuda.graph(lambda x: optimizer.step())
    for _ in range(3):
        p.grad = p.grad if p.grad is not None else tc.ones(4, device=emulated_gpu)
        step(p.detach())
    p.grad = None if gradient is None else tc.full((4,), gradient, device=emulated_gpu)
    with pytest.raises(RuntimeError, match=r"a leaf of shape \(4,\) has (no gradient|a gradient elsewhere), but in the capture it had one"):
        step(p.detach())
    assert (host(p) == -2).all()


def test_parameters_that_were_moved_are_refused(emulated_gpu):
    layer = tc.nn.Linear(3, 2).to(emulated_gpu)
    step, x = tc.cuda.graph(lambda x: layer(x).sum().backward()), tc.ones(5, 3, device=emulated_gpu)
    [step(x) for _ in range(3)]
    layer.cpu().to(emulated_gpu)
    layer.zero_grad()
    with pytest.raises(RuntimeError, match="values of a leaf of shape .* are not where they were in the capture"):
        step(x)


def test_a_new_parameter_is_refused_in_a_capture(emulated_gpu):
    run, layer = Run(emulated_gpu), tc.nn.Linear(2, 1).to(emulated_gpu)
    run.optimizer.add_param_group({"params": list(layer.parameters())})
    uses = []

    def step(x):
        uses.append(1)
        if len(uses) > 1:
            layer(x).sum().backward()
        run.optimizer.step()

    step = tc.cuda.graph(step)
    x = tc.ones(3, 2, device=emulated_gpu)
    step(x)
    with pytest.raises(RuntimeError, match="got its first gradient"):
        step(x)


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_parameter_that_is_frozen_later_is_refused(emulated_gpu, name):
    layer = tc.nn.Linear(3, 2).to(emulated_gpu)
    optimizer = tc.optim.SGD(layer.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        layer(x).sum().backward()
        optimizer.step()

    step, x = tc.cuda.graph(step), tc.ones(5, 3, device=emulated_gpu)
    [step(x) for _ in range(3)]
    getattr(layer, name).requires_grad_(False)
    before = host(layer.weight).copy()
    with pytest.raises(RuntimeError, match="a leaf of shape .* no longer requires a gradient, which in the capture it did; make a new"):
        step(x)
    np.testing.assert_array_equal(host(layer.weight), before)
    getattr(layer, name).requires_grad_(True)
    step(x)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (lambda gpu: (tc.ones(3, device=gpu),), ValueError, r"argument 0 has shape \(3,\) and dtype float32, but shape \(4,\)"),
        (lambda gpu: (tc.ones(4, device=gpu, dtype="float64"),), ValueError, "dtype float64, but shape .* and dtype float32"),
        (lambda gpu: (tc.ones(4),), TypeError, "argument 0 of a captured function is on the CPU"),
        (lambda gpu: (np.ones(4),), TypeError, "argument 0 of a captured function is a ndarray"),
        (lambda gpu: (), ValueError, "got 1 Tensors at its first call and 0 now"),
    ],
)
def test_arguments_that_do_not_fit(emulated_gpu, arguments, error, message):
    step, x = tc.cuda.graph(lambda x: x * 2), tc.ones(4, device=emulated_gpu)
    for _ in range(3):
        step(x)
        with pytest.raises(error, match=message):
            step(*arguments(emulated_gpu))
    assert (host(step(x)) == 2).all()


@pytest.mark.parametrize("mode", [tc.no_grad, tc.autocast])
def test_a_start_in_another_mode_is_refused(emulated_gpu, mode):
    weight, x = tc.nn.Parameter(tc.ones(3, device=emulated_gpu)), tc.ones(3, device=emulated_gpu)
    step = tc.cuda.graph(lambda x: (weight * x).sum())
    for _ in range(2):
        with mode():
            step(x)
    with pytest.raises(
        RuntimeError, match=r"first called with(out)? gradients and .*, and now with gradients and without autocast; a graph"
    ):
        step(x)
    with mode():
        assert float(step(x)) == 3


@pytest.mark.parametrize(
    "optimizer, option", [(tc.optim.SGD, {"momentum": 0.5}), (tc.optim.Adam, {"amsgrad": True}), (tc.optim.RMSprop, {"centered": True})]
)
def test_an_option_with_a_state_of_its_own_wants_a_new_graph(emulated_gpu, optimizer, option):
    """The refused call changes nothing; a new graph goes on as eager steps do."""
    x, found = tc.ones(4, device=emulated_gpu), []
    for captures in (False, True):
        p = tc.nn.Parameter(tc.ones(4, device=emulated_gpu))
        own = optimizer([p], lr=0.1, capturable=True)

        def function(x, p=p, own=own):
            own.zero_grad()
            ((p * x) ** 2).sum().backward()
            own.step()

        for _ in range(2):
            step = tc.cuda.graph(function) if captures else function
            for _ in range(3):
                step(x)
            own.param_groups[0].update(option)
            if captures and len(found) == 1:
                found.append(None)
                with pytest.raises(
                    RuntimeError, match=r"another state \(momentum, amsgrad, centered\) was switched on, make a new tc.cuda.graph"
                ):
                    step(x)
        found.append(host(p))
    assert found[0].tobytes() == found[2].tobytes()


def test_a_start_within_a_start_is_refused(emulated_gpu):
    inner, x = tc.cuda.graph(lambda x: x * 2), tc.ones(2, device=emulated_gpu)
    inner(x), inner(x)
    p, calls = tc.nn.Parameter(tc.ones(2, device=emulated_gpu)), []
    optimizer = tc.optim.SGD([p], lr=0.1)

    def factor(epoch):
        calls.append(1)
        if len(calls) < 4:
            return 1.0
        inner(x)
        return 1.0

    schedule = LR.LambdaLR(optimizer, factor)

    def step():
        optimizer.zero_grad()
        (p * p).sum().backward()
        optimizer.step()
        schedule.step()

    step, errors = tc.cuda.graph(step, device=emulated_gpu), []

    def run():
        for _ in range(4):
            try:
                step()
            except RuntimeError as error:
                errors.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert len(errors) == 2 and all("called by an optimizer or a schedule within a start of tc.cuda.graph" in e for e in errors)
    before = host(p).copy()
    calls.clear()
    step()  # as usual
    assert (host(p) != before).all() and (host(inner(x)) == 2).all()


@pytest.mark.parametrize("calls", [1, 2], ids=["capture", "start"])
def test_an_interrupt_leaves_no_capture_and_no_start(emulated_gpu, calls):
    """At any place of them, however long its frames are kept. Later steps are taken, and those of optimizers are not noted."""
    for nth in itertools.count():
        layer, kept = tc.nn.Linear(2, 2).to(emulated_gpu), []
        optimizer = tc.optim.SGD(layer.parameters(), lr=0.1)
        schedule, x = LR.StepLR(optimizer, 1), tc.ones(1, 2, device=emulated_gpu)

        def train(x, layer=layer, optimizer=optimizer, schedule=schedule):
            optimizer.zero_grad()
            layer(x).sum().backward()
            optimizer.step()
            schedule.step()

        step = tc.cuda.graph(train)
        for _ in range(calls):
            step(x)

        def call(step=step, x=x, kept=kept):
            try:
                step(x)
            except Interrupt as error:
                kept.append(error)
                raise

        has_more = interrupted(nth, call, follows=lambda frame: frame.f_code.co_filename == _graph.__file__)
        assert not _graph._noting and not _core.cuda_is_capturing(), nth
        for again in (train, step, step):
            before = host(layer.weight)
            again(x)
            assert (host(layer.weight) != before).any(), nth
        if not has_more:
            break
    assert nth > 5
