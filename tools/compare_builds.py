"""Compares two builds of the package: what a call costs, and how many instructions whole workloads take.

    python tools/compare_builds.py calls BEFORE AFTER          # folders that contain transformer_c/
    python tools/compare_builds.py instructions BEFORE AFTER   # with valgrind

`calls` loads both extension modules into one process and times batches in turn: processes of their own differ by more than what is
looked for. It prints the median of the ratios after / before, and the quartiles. `instructions` counts those of the library by
count_instructions.py, and all of them.
"""

import argparse
import gc
import importlib.util
import statistics
import time
from pathlib import Path

import count_instructions
import numpy as np


def load_core(folder, name):
    (path,) = Path(folder, "transformer_c").glob("_core.*.so")
    spec = importlib.util.spec_from_file_location(f"{name}._core", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.set_num_threads(1)
    return module


def call_cases(core):
    """{name: a call of a few microseconds}, the arguments made by this build."""

    def tensor(*shape, grad=False, dtype=np.float32):
        values = np.random.default_rng(1).standard_normal(shape).astype(dtype)
        return core.as_tensor(values).requires_grad_(grad)

    x, y, leaf, half = tensor(4, 8), tensor(4, 8), tensor(4, 8, grad=True), tensor(4, 8, dtype=np.float16)
    w, b, square = tensor(8, 8), tensor(8), tensor(8, 8)
    array = np.ones((4, 8), np.float32)
    classes = core.as_tensor(np.array([1, 0, 3, 2]))
    q, mask = tensor(2, 3, 4, 8), core.as_tensor(array > 0)

    def backward():
        core.softmax(leaf, -1).sum().backward()

    return {
        "exp": lambda: core.exp(x),
        "exp, ndarray": lambda: core.exp(array),
        "add": lambda: core.add(x, y),
        "a + b": lambda: x + y,
        "a * 2": lambda: x * 2,
        "where": lambda: core.where(mask, y, 0.0),
        "sum": lambda: core.sum(x),
        "mean, axis": lambda: core.mean(x, -1),
        "reshape": lambda: x.reshape(8, 4),
        "transpose": lambda: x.transpose(0, 1),
        "x[0]": lambda: x[0],
        "cat": lambda: core.cat([x, y], 0),
        "softmax": lambda: core.softmax(x, -1),
        "softmax, recorded": lambda: core.softmax(leaf, -1),
        "softmax, float16": lambda: core.softmax(half, -1),
        "softmax, with backward": backward,
        "layer_norm": lambda: core.layer_norm(x, 8, b, b),
        "layer_norm_forward, ndarray": lambda: core.layer_norm_forward(array),
        "dropout": lambda: core.dropout(x, 0.5, 1, 2),
        "linear": lambda: core.linear(x, w, b),
        "linear, recorded": lambda: core.linear(leaf, w, b),
        "matmul": lambda: core.matmul(square, square),
        "embedding": lambda: core.embedding(classes, w),
        "cross_entropy": lambda: core.cross_entropy(x, classes),
        "mse_loss": lambda: core.mse_loss(x, y),
        "attention": lambda: core.attention(q, q, q),
        "scaled_dot_product, ndarray": lambda: core.scaled_dot_product(array, array, array),
    }


def seconds(call, count):
    started = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - started


def compare_calls(before, after, rounds):
    cases = [call_cases(load_core(folder, name)) for folder, name in ((before, "before"), (after, "after"))]
    print(f"{'call':30} {'us before':>10}  after / before: median [quartiles]")
    gc.disable()
    for name in cases[0]:
        calls = [each[name] for each in cases]
        count = max(1, int(2e-3 / max(seconds(calls[0], 50) / 50, 1e-7)))
        times = []
        for i in range(rounds):
            order = (0, 1) if i % 2 else (1, 0)
            pair = {which: seconds(calls[which], count) for which in order}
            times.append((pair[0], pair[1]))
        ratios = sorted(after / before for before, after in times)
        low, median, high = (ratios[int(len(ratios) * at)] for at in (0.25, 0.5, 0.75))
        print(f"{name:30} {1e6 * statistics.median(b for b, _ in times) / count:10.2f}  {median:.3f} [{low:.3f}, {high:.3f}]", flush=True)


def compare_instructions(before, after):
    names = list(count_instructions.WORKLOADS)
    try:
        first, second = (count_instructions.count(folder, names) for folder in (before, after))
    except count_instructions.CountError as error:
        raise SystemExit(f"error: {error}") from None
    print(f"{'workload':58} {'instructions a step before':>26} {'after / before':>15} {'with Python':>12}")
    for name in names:
        (library, everything), (library_after, everything_after) = first[name], second[name]
        print(f"{name:58} {library:26,.0f} {library_after / library:15.4f} {everything_after / everything:12.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["calls", "instructions"])
    parser.add_argument("before", help="the folder of one build's transformer_c/")
    parser.add_argument("after")
    parser.add_argument("--rounds", type=int, default=240)
    options = parser.parse_args()
    if options.what == "calls":
        compare_calls(options.before, options.after, options.rounds)
    else:
        compare_instructions(options.before, options.after)


if __name__ == "__main__":
    main()
