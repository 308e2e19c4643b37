"""Compares two builds of the package: what a call costs, and how many instructions whole workloads take.

    python tools/compare_builds.py calls BEFORE AFTER          # folders that contain transformer_c/
    python tools/compare_builds.py instructions BEFORE AFTER   # with valgrind

`calls` loads both extension modules into one process and times batches in turn: processes of their own differ by more than what is
looked for. It prints the median of the ratios after / before, and the quartiles. `instructions` counts with callgrind, which repeats
exactly; valgrind has no AVX-512, so both builds run their AVX2 kernels, with one thread.
"""

import argparse
import gc
import importlib.util
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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


WORKLOADS = {
    "scaled_dot_product (3, 2)": (
        "q = np.ones((3, 2), np.float32)",
        "tc.scaled_dot_product(q, q, q)",
        200,
    ),
    "multi-head attention, 16 x 16 x 32": (
        "m = tc.MultiheadAttention(32, 32, 1); x = tc.randn(16, 16, 32)",
        "m(x)",
        20,
    ),
    "block, training step, 8 x 16 x 32": (
        "m = tc.EncoderBlock(32, 1, 64, 0.1); x = tc.randn(8, 16, 32)",
        "m.zero_grad(); m(x).sum().backward()",
        20,
    ),
    "layer norm, forward + backward, 256 x 384": (
        "m = tc.nn.LayerNorm(384); x = tc.randn(256, 384)",
        "m.zero_grad(); m(x).sum().backward()",
        20,
    ),
    "classifier, cross-entropy and Adam": (
        "m = tc.nn.Sequential(tc.nn.Embedding(16, 32), tc.nn.Linear(32, 64), tc.nn.GELU(), tc.nn.Linear(64, 16));"
        "o = tc.optim.Adam(m.parameters(), lr=1e-3); x = tc.randint(0, 16, (64,))",
        "o.zero_grad(); tc.functional.cross_entropy(m(x), x).backward(); o.step()",
        20,
    ),
    "attention in float16, T 128": (
        "q = tc.randn(1, 2, 128, 32).to(dtype='float16').requires_grad_()",
        "tc.functional.scaled_dot_product_attention(q, q, q).sum().backward()",
        5,
    ),
}


SWITCH = """
#include <valgrind/callgrind.h>
void start(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void stop(void) { CALLGRIND_STOP_INSTRUMENTATION; }
"""
PROGRAM = """
import ctypes, gc, numpy as np, transformer_c as tc
switch = ctypes.CDLL({switch!r})
tc.set_num_threads(1); tc.manual_seed(0)
{prepare}
def run(count):
    for _ in range(count): {step}
run(5)
gc.disable()
switch.start()
run({count})
switch.stop()
"""


def count_instructions(folder, scratch, prepare, step, count):
    switch = f"{scratch}/switch.so"
    if not os.path.exists(switch):
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", switch], input=SWITCH, text=True, check=True)
    environment = os.environ | {"PYTHONPATH": str(folder), "TRANSFORMER_C_ISA": "avx2", "PYTHONHASHSEED": "0"}
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={scratch}/out", sys.executable, "-c"]
    program = PROGRAM.format(switch=switch, prepare=prepare, step=step, count=count)
    done = subprocess.run([*command, program], capture_output=True, text=True, env=environment, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not found:
        raise SystemExit(done.stderr[-2000:])
    return int(found.group(1)) / count


def compare_instructions(before, after):
    print(f"{'workload':45} {'instructions a step before':>26} {'after / before':>15}")
    with tempfile.TemporaryDirectory() as scratch:
        for name, (prepare, step, count) in WORKLOADS.items():
            counts = [count_instructions(folder, scratch, prepare, step, count) for folder in (before, after)]
            print(f"{name:45} {counts[0]:26,.0f} {counts[1] / counts[0]:15.4f}", flush=True)


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
