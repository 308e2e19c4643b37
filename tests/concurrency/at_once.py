"""Threads that use the library at once, each as a program may: `python at_once.py SECONDS [NAME ...]`. No two of them write the same elements, or read
elements that another writes, so ThreadSanitizer has nothing to report (test_thread_sanitizer.py); races.py has what else may happen."""

import sys
import threading
import time

import numpy as np
import races
import transformer_c as tc
from transformer_c import _core

N = races.N


def a_shared_module():
    """Forwards of one module: packed weights, the pool, results in half precision."""
    model, x = races.model_and_input()
    y = model(x).detach().numpy().copy()

    def forward():
        with tc.no_grad():
            np.testing.assert_array_equal(model(x).numpy(), y)

    def half():
        model[0](x).half().sum().item()

    return [forward, forward, half]


def gradients_of_shared_parameters():
    """Backwards of several graphs into the same leaves; one thread drops the gradients, as zero_grad does."""
    model, x = races.model_and_input()

    def backward():
        model(x).sum().backward()

    return [backward, backward, model.zero_grad]


def own_modules():
    """Trainings side by side: optimizers, dropout, losses, clipping, checkpoints in memory."""

    def training():
        model = tc.nn.Sequential(tc.nn.Linear(N, 30), tc.nn.ReLU(), tc.nn.Dropout(0.5), tc.nn.Linear(30, 10))
        optimizer = tc.optim.Adam(model.parameters(), 1e-3)
        x, labels = tc.randn(N, N), np.arange(N) % 10

        def step():
            optimizer.zero_grad()
            tc.nn.functional.cross_entropy(model(x), labels).backward()
            tc.optim.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            model.load_state_dict({name: value.numpy().copy() for name, value in model.state_dict().items()})

        return step

    return [training(), training(), training()]


def attention():
    block, x = tc.EncoderBlock(64, 4, 128), tc.randn(4, 64, 64)

    def step():
        block(x).sum().backward()

    return [step, step]


def random_numbers():
    shared = tc.Generator(1)

    def draw():
        tc.rand(30_000, rng=shared)
        tc.randn(100)
        tc.Generator(2).get_state()

    def restart():
        shared.manual_seed(3)
        shared.set_state(shared.get_state())
        tc.manual_seed(4)

    return [draw, draw, restart]


def settings_and_statistics():
    x = tc.ones(300_000)

    def settings():
        for n in (1, 2, 3):
            tc.set_num_threads(n)
        tc.config.set_float32_precision("highest")
        tc.config.last_plans()
        _core.memory_reset_peak()

    def statistics():
        assert _core.memory_stats()["in_use"] > 0
        _core.memory_empty_cache()

    return [lambda: x.exp().sum().item(), lambda: (x * 2.0)[np.arange(20_000)], settings, statistics]


def parts_of_one_tensor():
    """Writes to elements that the others do not touch: by slices, masks, and places."""
    x, v = tc.zeros(N, N), tc.ones(N, N)
    columns = [np.arange(k, N, 5) for k in range(5)]
    places = np.broadcast_to(columns[2], (N, len(columns[2]))).copy()
    mask = tc.tensor(np.isin(np.arange(N), columns[1])[None])

    def slices():
        x[:, ::5] = v[:, ::5]
        x[:, ::5].add_(1.0)

    def random():
        x[:, 4::5].uniform_()

    return [
        slices,
        lambda: x.masked_fill_(mask, 2.0),
        lambda: x.scatter_(1, places, v),
        lambda: x.index_add_(1, columns[3], v[:, : len(columns[3])]),
        random,
    ]


def memory():
    held = [None] * 20

    def allocate(i=[0]):  # noqa: B006
        i[0] += 1
        held[i[0] % 20] = tc.empty(1 + i[0] * 977 % 100_000)

    def release():
        held[time.monotonic_ns() % 20] = None

    return [allocate, allocate, release]


def arrays_released_without_the_gil():
    def step():
        leaf = tc.ones(N, N, requires_grad=True)
        square = tc.custom_op(lambda x: x * x, lambda dy, x: 2 * x * dy)
        (square(leaf) * tc.as_tensor(np.ones((N, N), np.float32))).sum().backward()
        tc.from_dlpack(np.ones((N, N), np.float32)).exp()

    return [step, step]


USES = [
    a_shared_module,
    gradients_of_shared_parameters,
    own_modules,
    attention,
    random_numbers,
    settings_and_statistics,
    parts_of_one_tensor,
    memory,
    arrays_released_without_the_gil,
    races.data_and_forward,
    races.dtype_and_forward,
    races.data_and_backward,
    races.grad_none_and_backward,
    races.two_backwards_and_grad_none,
    races.data_of_the_grad_and_backward,
    races.to_and_forward,
    races.requires_grad_and_forward,
    races.arrays_and_data,
    races.indices_and_data,
]

if __name__ == "__main__":
    sys.setswitchinterval(1e-4)
    tc.set_num_threads(2)
    names = sys.argv[2:]
    for use in USES:
        if not names or use.__name__ in names:
            races.run(use(), float(sys.argv[1]))
    print("done", threading.active_count())
