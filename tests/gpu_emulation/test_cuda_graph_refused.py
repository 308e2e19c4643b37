"""What may not be captured, and what tc.cuda.graph does not take: the error names it."""

import copy

import numpy as np
import pytest
import transformer_c as tc
from device_cases import host
from graph_cases import late
from transformer_c import functional as F

__all__ = ["late"]
pytestmark = pytest.mark.usefixtures("nothing_is_left")


class OwnOptimizer(tc.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)


SCHEDULE = tc.optim.lr_scheduler.StepLR(tc.optim.SGD([tc.nn.Parameter([1.0])]), 1)
PLATEAU = tc.optim.lr_scheduler.ReduceLROnPlateau(tc.optim.SGD([tc.nn.Parameter([1.0])]))

FORBIDDEN = {
    "item": (lambda x: x.sum().item(), "the host read values"),
    "tolist": (lambda x: x.tolist(), "the host read values"),
    "numpy": (lambda x: x.cpu().numpy(), "the host read values"),
    "print": (lambda x: repr(x), "the host read values"),
    "if": (lambda x: bool(x[0] > 0), "the host read values"),
    "mask": (lambda x: x[x > 0], "the host read values"),
    "indices": (lambda x: x[[0, 2]], "values of the host were copied"),
    "tensor": (lambda x: tc.tensor([1.0, 2.0], device=x.device), "values of the host were copied"),
    "random": (lambda x: tc.rand(3, device=x.device), "random numbers were drawn on the host"),
    "one random number": (lambda x: x * tc.rand(1, device=x.device), "random numbers were drawn on the host"),
    "a normal one": (lambda x: tc.randn((), device=x.device), "random numbers were drawn on the host"),
    "a random integer": (lambda x: tc.randint(3, (1,), device=x.device), "random numbers were drawn on the host"),
    "a permutation": (lambda x: tc.randperm(1), "random numbers were drawn on the host"),
    "a generator of NumPy": (lambda x: F.dropout(x, 0.5, rng=OUTSIDE[2]), "a seed was drawn from a np.random.Generator"),
    "one made there": (lambda x: F.dropout(x, 0.5, rng=np.random.default_rng(0)), "a seed was drawn from a np.random.Generator"),
    "a seed": (lambda x: tc.random.default_generator.seed64(), "random numbers were drawn on the host"),
    "one number of the host": (lambda x: tc.zeros(1, device=x.device).copy_(tc.ones(1)), "values of the host were copied"),
    "a number beside": (lambda x: x * tc.ones(()), "values of the host were copied"),
    "an assigned number of the host": (lambda x: OUTSIDE[0].__setitem__(0, tc.ones(())), "values of the host were copied"),
    "synchronize": (lambda x: tc.cuda.synchronize(x.device), "the host waited"),
    "dlpack": (lambda x: x.__dlpack__(stream=1), "was given to another library"),
    "manual_seed": (lambda x: tc.manual_seed(1), r"manual_seed\(\) was called"),
    "next_call": (lambda x: tc.random.default_generator.next_call(), r"next_call\(\) was called"),
    "set_state": (lambda x: tc.random.default_generator.set_state(b""), r"set_state\(\) was called"),
    "get_state": (lambda x: tc.random.default_generator.get_state(), r"get_state\(\) was called"),
    "a copy of a generator": (lambda x: copy.deepcopy(tc.random.default_generator), r"__reduce__\(\), which copies and pickles it, was called"),
    "masks of numbers": (lambda x: OUTSIDE[1](tc.ones(1, 2, 2, device=x.device), x.reshape(2, 2)), "pass mask != 0, which is not read"),
    "data": (lambda x: setattr(OUTSIDE[0], "data", x * 2), r"a Tensor of shape \(4,\) got another .data"),
    "graph": (lambda x: [step(x) for step in [tc.cuda.graph(lambda y: y * 1)] for _ in range(2)], "another capture was begun"),
    "optimizer": (lambda x: OwnOptimizer([tc.nn.Parameter([1.0])]).step(), "OwnOptimizer.step.., which is not a method"),
    "schedule": (lambda x: SCHEDULE.step(3), "got an argument"),
    "plateau": (lambda x: PLATEAU.step(0.5), "got an argument"),
}  # fmt: skip


OUTSIDE: list = []  # what is not the function's own: a Tensor, a layer


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_may_not_be_done_in_a_capture(emulated_gpu, name):
    """The error names it. What came before is done, and the thread works on as usual."""
    call, message = FORBIDDEN[name]
    OUTSIDE[:] = [tc.ones(4, device=emulated_gpu), tc.MultiheadAttention(2, 2, 1).to(emulated_gpu), np.random.default_rng(0)]
    x, count = tc.ones(4, device=emulated_gpu), tc.zeros(4, device=emulated_gpu)
    calls = []

    def function(x):
        count.add_(x)
        calls.append(1)
        if len(calls) > 1:
            call(x)
        count.add_(x)

    step = tc.cuda.graph(function)
    step(x)
    with pytest.raises(RuntimeError, match=f"{message}.* while tc.cuda.graph captured"):
        step(x)
    assert (host(count) == 3).all()
    calls.clear()
    OUTSIDE.clear()
    assert float((x * 2).sum()) == 8


def test_a_cache_that_grows_is_refused(emulated_gpu):
    """Each start would write to the same positions."""
    cache = tc.nn.KeyValueCache(8)
    step, x = tc.cuda.graph(lambda x: cache.append(x, x)[0].sum()), tc.ones(1, 2, 1, 4, device=emulated_gpu)
    step(x)
    with pytest.raises(RuntimeError, match="KeyValueCache, .* while tc.cuda.graph captured"):
        step(x)
    assert len(cache) == 1


def test_an_argument_that_requires_a_gradient_is_refused(emulated_gpu):
    """The graph's copy would get it, and the caller's Tensor none."""
    w = tc.ones(4, device=emulated_gpu, requires_grad=True)
    step = tc.cuda.graph(lambda x: x * 2)
    for x in (w.detach(), w.detach(), w.detach()):
        with pytest.raises(ValueError, match="argument 0 of a captured function requires a gradient"):
            step(w)
        step(x)


def test_a_function_that_changes_its_argument_is_refused(emulated_gpu):
    """The caller's Tensor would stay as it is."""
    x, y = tc.ones(4, device=emulated_gpu), tc.ones(4, device=emulated_gpu)
    for change in (lambda x, y: y.mul_(2), lambda x, y: setattr(y, "data", x * 2)):
        step = tc.cuda.graph(change)
        step(x, y)
        with pytest.raises(RuntimeError, match="changed argument 1 in place"):
            step(x, y)


def test_a_function_is_asked_for():
    with pytest.raises(TypeError, match=r"takes a function, not int: step = tc.cuda.graph\(function\).* no context manager"):
        tc.cuda.graph(3)


def test_a_decorated_function_keeps_its_name(emulated_gpu):
    @tc.cuda.graph
    def double(x):
        """Twice x."""
        return x * 2

    assert double.__name__ == "double" and double.__doc__ == "Twice x." and "double" in repr(double)
    x = tc.ones(3, device=emulated_gpu)
    assert (host(double.__wrapped__(x)) == 2).all()
    with pytest.raises(TypeError, match="by position, and got x by name"):
        double(x=x)
    with pytest.raises(TypeError, match="neither copied nor pickled"):
        copy.deepcopy(double)


def test_a_method_is_captured_for_each_object():
    class Owner:
        @tc.cuda.graph
        def step(self, x):
            return x

    with pytest.raises(TypeError, match=r"self.step = tc.cuda.graph\(self.step\)"):
        Owner().step(1)


@pytest.mark.parametrize("device", ["cpu", "gpu", 3.0])
def test_a_graph_is_for_a_gpu(device):
    with pytest.raises(ValueError, match="tc.cuda.graph is for a GPU"):
        tc.cuda.graph(lambda: None, device=device)


def test_a_function_without_arguments_is_not_run_without_a_gpu(emulated_gpu):
    """Its first call would compute on the CPU, and step optimizers there. Of the emulated GPU, "cuda" is no name."""
    if tc.cuda.is_available():
        pytest.skip("there is a GPU")
    calls = []
    step = tc.cuda.graph(lambda: calls.append(1))
    with pytest.raises(RuntimeError, match="cuda:0"):
        step()
    assert not calls
    with pytest.raises(RuntimeError, match="cuda:0"):
        tc.cuda.graph(lambda: None, device=0)


@pytest.mark.parametrize("draw", ["dropout", "linear"])
def test_a_backward_outside_of_the_graph_is_refused_where_masks_are_drawn(emulated_gpu, draw):
    w, x = tc.ones(10, 10, device=emulated_gpu, requires_grad=True), tc.ones(10, 10, device=emulated_gpu)
    kept = []  # with its history, which a result does not have
    dropped = {
        "dropout": lambda x: F.dropout(w * x, 0.5, True),
        "linear": lambda x: tc.random.default_generator.with_mask(
            lambda seed, call: tc._core.linear(x, w, dropout=0.5, seed=seed, call=call)
        ),
    }
    step = tc.cuda.graph(lambda x: kept.append(dropped[draw](x).sum()))
    step(x), step(x), (y := kept.pop())
    with pytest.raises(RuntimeError, match=r"call backward\(\) in the function"):
        y.backward()


def test_a_function_that_calls_itself(emulated_gpu):
    step = tc.cuda.graph(lambda x: step(x))
    with pytest.raises(RuntimeError, match="may not call itself"):
        step(tc.ones(4, device=emulated_gpu))
