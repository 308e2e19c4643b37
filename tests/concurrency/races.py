"""Threads that compute with tensors while others replace what they compute with: `python races.py NAME SECONDS`. A race may give numbers of
before or of after it; it never ends the process, and what it leaves behind works.

Run by test_races.py; under AddressSanitizer it finds memory that is used after it was freed.
"""

import contextlib
import sys
import threading
import time

import numpy as np
import transformer_c as tc

N = 200  # more elements than calls without the GIL have (16,384)


def leaf(**options):
    return tc.ones(N, N, requires_grad=True, **options)


def new_data(parameter):
    """Other memory, with other strides in every second call."""
    fresh = tc.ones(N, N)
    parameter.data = fresh if new_data.turn % 2 else fresh.T
    new_data.turn += 1


new_data.turn = 0


def other_dtype(parameter):
    """The last one fits the other steps, which may need to go on until they succeed."""
    for dtype in ("float64", "float32"):
        parameter.data = tc.ones(N, N, dtype=dtype)


def grads_to_none(parameter):
    parameter.grad = None


def model_and_input():
    model = tc.nn.Sequential(tc.nn.Linear(N, N), tc.nn.GELU(), tc.nn.LayerNorm(N), tc.nn.Linear(N, N))
    return model, tc.ones(N, N)


def forwards(parameter, x):
    for y in (
        parameter * 2.0,
        parameter + x,
        parameter @ x,
        -parameter,
        parameter.exp(),
        parameter.sum(),
        tc.functional.layer_norm(x, (N,), parameter[0], None),
        tc.functional.linear(x, parameter),
        tc.cat([x, parameter]),
        parameter[np.arange(N)],
        parameter.to("float16"),
        tc.where(x > 0, parameter, x),
        parameter[x > 0],
        tc.functional.scaled_dot_product_attention(parameter[None], x[None], parameter[None]),
    ):
        assert y.ndim < 4


class Counted:
    """A step, called again and again: how often it succeeds, and its last error of a tolerated class."""

    def __init__(self, step, *tolerated):
        self.step, self.tolerated, self.successes, self.error = step, tolerated, 0, None

    def __call__(self):
        try:
            self.step()
            self.successes += 1
        except self.tolerated as error:
            self.error = error


def loops(*steps):
    """Several steps of other threads, each in a loop of its own. Between two steps of another thread dtypes may differ, or a graph be out of
    date: errors, and no crash."""
    return [Counted(step, TypeError, ValueError, RuntimeError) for step in steps]


def data_and_forward():
    p, x = leaf(), tc.ones(N, N)
    return loops(lambda: forwards(p, x), lambda: new_data(p))


def dtype_and_forward():
    p, x = leaf(), tc.ones(N, N)
    return loops(lambda: forwards(p, x), lambda: other_dtype(p))


def data_and_backward():
    p, x = leaf(), tc.ones(N, N)
    return loops(lambda: ((p @ x) * p).sum().backward(), lambda: new_data(p), lambda: other_dtype(p))


def grad_none_and_backward():
    p, x = leaf(), tc.ones(N, N)
    return loops(lambda: ((p @ x) * p).sum().backward(), lambda: grads_to_none(p))


def two_backwards_and_grad_none():
    p, x = leaf(), tc.ones(N, N)
    step = lambda: (p * x).sum().backward()
    return loops(step, step, lambda: grads_to_none(p))


def grad_read_and_set():
    p, x = leaf(), tc.ones(N, N)

    def read():
        grad = p.grad
        if grad is not None:
            (grad * 2.0).sum().item()

    return loops(read, lambda: setattr(p, "grad", tc.ones(N, N)), lambda: (p * x).sum().backward(), lambda: grads_to_none(p))


def data_of_the_grad_and_backward():
    p, x = leaf(), tc.ones(N, N)

    def replace():
        if p.grad is not None:
            p.grad.data = tc.ones(N, N)

    return loops(lambda: (p * x).sum().backward(), replace)


def zero_grad_and_step():
    model, x = model_and_input()
    optimizer = tc.optim.Adam(model.parameters(), 1e-3)

    def step():
        model(x).sum().backward()
        optimizer.step()

    return loops(step, optimizer.zero_grad, lambda: optimizer.zero_grad(set_to_none=False))


def step_and_data():
    model, x = model_and_input()
    optimizer = tc.optim.SGD(model.parameters(), 1e-3, momentum=0.9)

    def step():
        model(x).sum().backward()
        optimizer.step()

    def replace():
        for p in model.parameters():
            p.data = p.data.clone()

    return loops(step, replace)


def load_and_forward():
    model, x = model_and_input()
    state = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    return loops(lambda: model(x).sum().item(), lambda: model.load_state_dict(state))


def to_and_forward():
    model, x = model_and_input()

    def there_and_back():
        model.to("float64")
        model.to("float32")

    return loops(lambda: model(x).sum().backward(), there_and_back)


def requires_grad_and_forward():
    p, x = leaf(), tc.ones(N, N)

    def switch():
        p.requires_grad_(False)
        p.requires_grad_(True)

    return loops(lambda: (p @ x).sum().item(), switch, lambda: (p * x).sum().backward())


def in_place_and_forward():
    t, x = tc.ones(N, N), tc.ones(N, N, requires_grad=True)

    def write():
        t.copy_(x * 1.0)
        t[np.arange(10)] = 1.0
        t.zero_()

    def write_parts():
        with contextlib.suppress(RuntimeError):  # as below
            part = t[: N // 2]
            part.add_(x[: N // 2])
            t.T[0].mul_(2.0)
            (part * 1.0).sum()

    def backward():
        with contextlib.suppress(RuntimeError):  # mostly: t was written in place, or its history is freed; there is hardly another moment
            (t @ x).sum().backward()

    return loops(lambda: (t * 2.0).sum().item(), write, write, write_parts, backward)


def arrays_and_data():
    p = leaf()

    def read():
        assert p.numpy().shape == np.asarray(memoryview(p.detach())).shape == np.from_dlpack(p.detach()).shape
        assert float(p.detach().numpy().sum()) == N * N

    return loops(read, lambda: new_data(p))


def indices_and_data():
    i, x = tc.as_tensor(np.arange(N * N) % N), tc.ones(N * N)

    def replace():
        i.data = tc.as_tensor(np.arange(N * N) % N)

    return loops(lambda: x[i], lambda: tc.functional.embedding(i, tc.ones(N, 8)), replace)


def run(steps, seconds, patience=30):
    """Each step again and again on a thread of its own; so many seconds longer while one has not succeeded yet, which may need the others."""
    end, errors = time.monotonic() + seconds, []
    steps = [step if isinstance(step, Counted) else Counted(step) for step in steps]

    def loop(step):
        try:
            while time.monotonic() < end + (0 if all(other.successes for other in steps) else patience) and not errors:
                step()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=loop, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    for number, step in enumerate(steps):
        if not step.successes:
            raise AssertionError(f"step {number} never succeeded") from step.error


RACES = [name for name, value in list(globals().items()) if "_and_" in name and callable(value) and name != "model_and_input"]

if __name__ == "__main__":
    sys.setswitchinterval(1e-5)
    tc.set_num_threads(2)
    run(globals()[sys.argv[1]](), float(sys.argv[2]))
    print("done")
