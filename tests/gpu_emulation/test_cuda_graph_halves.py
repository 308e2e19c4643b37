"""Captured steps under autocast: they use the copies of weights in halves that are kept, and never one of other values."""

import copy

import numpy as np
import pytest
import transformer_c as tc
from device_cases import array, host
from graph_cases import Run, assert_equal, late
from test_cuda_halves import NARROW, WIDEN, WRITES, casts, in_halves, linear, rounded

__all__ = ["late"]
pytestmark = pytest.mark.usefixtures("nothing_is_left")


class Training:
    """Of a small network on random numbers; `captured` says which part of a step is."""

    def __init__(self, gpu, captured):
        tc.manual_seed(3)
        self.model = tc.nn.Sequential(tc.nn.Linear(6, 5), tc.nn.ReLU(), tc.nn.Linear(5, 3)).to(gpu)
        self.optimizer = tc.optim.Adam(self.model.parameters(), lr=0.1)
        self.gpu, self.captured, self.losses, self.rng = gpu, captured, [], np.random.default_rng(0)
        self.part = self.gradients if captured == "gradients" else self.whole
        if captured:
            self.part = tc.cuda.graph(self.part)

    def gradients(self, x):
        self.optimizer.zero_grad()
        with tc.autocast():
            loss = (self.model(x).float() ** 2).sum()
        loss.backward()
        return loss

    def whole(self, x):
        loss = self.gradients(x)
        self.optimizer.step()
        return loss

    def train(self, steps, between=lambda run: None):
        for _ in range(steps):
            self.losses.append(float(self.part(tc.tensor(array(self.rng, (4, 6), "float32"), device=self.gpu))))
            if self.captured == "gradients":
                self.optimizer.step()
            between(self)
        return self

    def end(self):
        return {name: host(p) for name, p in self.model.state_dict().items()} | {"losses": self.losses}


def test_a_captured_step_casts_no_weight(emulated_gpu, emulated_library):
    """Its kernels that cast are those of an eager step, and nothing is cast beside the graph."""

    def launched(run, steps=1):
        emulated_library.launches()
        run.train(steps)
        return emulated_library.launches()

    eager, captured = Run(emulated_gpu, "autocast").train(1), Run(emulated_gpu, "autocast", make=tc.cuda.graph).train(1)
    found = casts(launched(captured))
    assert found == casts(launched(eager))
    assert found.count(NARROW) < len([p for p in eager.model.parameters() if p.ndim == 2])
    assert NARROW not in casts(launched(captured, 3))


@pytest.mark.parametrize("captured", ["whole", "gradients"])
def test_starts_cast_no_weight(emulated_gpu, emulated_library, captured):
    """Nor when the optimizer's step is not in the graph: its kernel writes the copies all the same."""
    run = Training(emulated_gpu, captured).train(2)
    emulated_library.launches()
    run.train(3)
    assert NARROW not in casts(emulated_library.launches())
    assert_equal(run.end(), Training(emulated_gpu, None).train(5).end())


def change(name):
    def between(run):
        if len(run.losses) in (1, 3, 4):
            with tc.no_grad():
                WRITES[name](run.model[0].weight)

    return between


def load(run):
    if len(run.losses) == 1:
        run.loaded = copy.deepcopy(run.model.state_dict())
    if len(run.losses) in (3, 4):
        run.model.load_state_dict(run.loaded)


def write_and_use(run):
    with tc.no_grad():
        run.model[0].weight.add_(1.0)
    in_dtype(run, "bfloat16")  # another copy is kept now


CHANGES = {name: change(name) for name in WRITES if name != "new data"} | {
    "a write and a use": write_and_use,
    "load_state_dict": load,
    "an eager step": lambda run: run.whole(tc.ones(2, 6, device=run.gpu)),
    "an eager step that waits": lambda run: run.__setattr__("waits", run.model(tc.ones(2, 6, device=run.gpu))) or run.optimizer.step(),
    "another dtype": lambda run: in_dtype(run, "float16"),
    "an eager forward": lambda run: in_dtype(run, "bfloat16"),
}


def in_dtype(run, dtype):
    with tc.autocast(dtype=dtype):
        run.losses.append(float(run.model(tc.ones(2, 6, device=run.gpu)).sum()))


@pytest.mark.whole
@pytest.mark.parametrize("captured", ["whole", "gradients"])
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_done_between_starts_counts(emulated_gpu, emulated_library, captured, name):
    expected = Training(emulated_gpu, None).train(6, CHANGES[name]).end()
    emulated_library.set_streams("random", 2)
    assert_equal(Training(emulated_gpu, captured).train(6, CHANGES[name]).end(), expected)


def forward_of(module):
    """A function that a graph captures: the module under autocast, without gradients."""

    def forward(x):
        with tc.autocast(), tc.no_grad():
            return module(x)

    return forward


@pytest.mark.parametrize("write", WRITES)
def test_a_forward_alone(emulated_gpu, write, rng):
    """Nothing but its copies tells that a weight has other values, or is elsewhere."""
    module, x = linear(emulated_gpu, rng)

    step = tc.cuda.graph(forward_of(module))
    step(x), step(x)
    with tc.no_grad():
        WRITES[write](module.weight)
    if write == "new data":
        with pytest.raises(RuntimeError, match=r"values of a leaf of shape \(3, 6\) are not where they were"):
            step(x)
    else:
        for _ in range(2):
            np.testing.assert_array_equal(host(step(x)), rounded(module, x))


def test_the_copy_after_a_start_is_that_of_the_stepped_weight(emulated_gpu, emulated_library, rng):
    """An eager use finds it, casts nothing, and two graphs share it."""
    run, x = Training(emulated_gpu, "whole"), tc.tensor(array(rng, (4, 6), "float32"), device=emulated_gpu)

    validation = tc.cuda.graph(forward_of(run.model))
    for step in range(5):
        run.train(1)
        emulated_library.launches()
        found, eager = host(validation(x)), in_halves(run.model, x)
        assert casts(emulated_library.launches()) == [NARROW, WIDEN] * (2 if step < 2 else 1)  # of input and result; a start has none
        again = copy.deepcopy(run.model)
        np.testing.assert_array_equal(found, in_halves(again, x))
        np.testing.assert_array_equal(eager, found)


def test_a_weight_that_changes_in_the_function_is_cast_there(emulated_gpu, rng):
    """Before it is used, and after."""
    for order in ("before", "after"):
        module, x = linear(emulated_gpu, rng)

        def forward(x, module=module, order=order):
            with tc.autocast(), tc.no_grad():
                if order == "before":
                    module.weight.mul_(1.5)
                y = module(x)
                if order == "after":
                    module.weight.mul_(1.5)
                return y

        expected = copy.deepcopy(module)
        step = tc.cuda.graph(forward)
        for _ in range(4):
            np.testing.assert_array_equal(in_halves(module, x), in_halves(expected, x))  # the capture finds a copy
            np.testing.assert_array_equal(host(step(x)), host(forward(x, expected)))


def test_a_weight_is_shared_after_the_capture(emulated_gpu, emulated_library, rng):
    """Another library may write there unnoticed: each start casts it."""
    module, x = linear(emulated_gpu, rng)

    step = tc.cuda.graph(forward_of(module))
    step(x), step(x)
    loan = module.weight.detach().__dlpack__(stream=1, max_version=(1, 0))
    emulated_library.launches()
    for count in (1, 2):
        step(x)
        assert len(casts(emulated_library.launches())) == 1, count
    del loan


@pytest.mark.parametrize("captured", ["whole", "forward"])
def test_a_backward_that_waits_notices_a_start(emulated_gpu, captured):
    """A start writes the copy that it needs, or casts the weight anew to it."""
    run = Training(emulated_gpu, "whole").train(2)
    x = tc.ones(4, 6, device=emulated_gpu)

    def forward(x):
        with tc.autocast():
            return run.model(x).float().sum()

    step = tc.cuda.graph(forward) if captured == "forward" else run.part
    for _ in range(2):
        step(x)
    waiting = forward(x.detach().requires_grad_())
    if captured == "forward":
        run.model[2].weight.data.add_(1.0)
    step(x)
    with pytest.raises(RuntimeError, match="changed in place|modified|written"):
        waiting.backward()


def test_a_graph_that_ends_leaves_the_copies(emulated_gpu, rng):
    run, x = Training(emulated_gpu, "whole").train(3), tc.tensor(array(rng, (4, 6), "float32"), device=emulated_gpu)
    run.part = run.whole
    run.train(2)
    assert_equal(run.end(), Training(emulated_gpu, None).train(5).end())
    np.testing.assert_array_equal(in_halves(run.model, x), in_halves(copy.deepcopy(run.model), x))


def test_copies_in_halves_are_of_the_weights_that_a_start_finds(emulated_gpu):
    layer = tc.nn.Linear(8, 8).to(emulated_gpu)
    x = tc.ones(2, 8, device=emulated_gpu)

    def forward(x):
        with tc.autocast(), tc.no_grad():
            return layer(x)

    step = tc.cuda.graph(forward)
    for scale in (1.0, 1.0, 2.0, 3.0):
        with tc.no_grad():
            layer.weight.mul_(scale)
        np.testing.assert_array_equal(host(step(x)), host(forward(x)))
