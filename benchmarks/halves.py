"""How fast float16 and bfloat16 are next to float32: products of few and many rows, an encoder on a batch, a decoding step.

python -m benchmarks.halves [--only linear] [--threads 1,2] [--turns 9] [--json FILE] [--cpu-clock] [--limit 1.7] [--tolerance 0.9]

The dtypes take turns in one process; a cell is the least time in float32, and for each half the ratio of its least time to that: above 1
the half is faster. Products cycle over as many weights as the large ones need to be read from memory.

With --limit the exit status is 1 where a half is not that many times as fast as float32 and weights are read from memory (marked *: one or two rows
by weights that no cache contains), or below --tolerance elsewhere: 1 would be "never slower". What misses is measured again, twice at most; the least times count.
"""

import argparse
import itertools
import json
import sys
import time
from typing import NamedTuple

import numpy as np
import transformer_c as tc

from . import run

DTYPES = ("float32", "bfloat16", "float16")
ROWS = (1, 2, 4, 8, 16, 32, 128, 1024)
WEIGHTS = ((384, 384), (384, 1536), (1024, 4096), (4096, 4096))  # in_features, out_features
FROM_MEMORY = 96 << 20  # bytes of the halves of a set of weights that no cache contains
MOST_WEIGHTS = 12
LEAST_SECONDS = 0.004  # of a turn
FEW_ROWS = 2  # up to which the time of a product is that of reading its weights; from 4 on halves are bound by arithmetic
AGAIN = 2  # times that what misses a limit is measured once more


def tensor(rng, dtype, *shape, scale=1.0):
    return tc.tensor(rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)).to(dtype)


def is_large(inputs, outputs):
    """Whether weights are read from memory."""
    return 2 * inputs * outputs > 4 << 20


def weights(rng, dtype, inputs, outputs, transposed=False):
    """Small weights stay in the caches, as those of a small model do; of large ones there are so many that they do not."""
    size = 2 * inputs * outputs
    count = min(MOST_WEIGHTS, max(1, FROM_MEMORY // size)) if is_large(inputs, outputs) else 1
    shape = (inputs, outputs) if transposed else (outputs, inputs)
    return itertools.cycle([tensor(rng, dtype, *shape, scale=inputs**-0.5) for _ in range(count)])


def linear(dtype, rows, inputs, outputs):
    rng = np.random.default_rng(0)
    x, bias, all_weights = tensor(rng, dtype, rows, inputs), tensor(rng, dtype, outputs), weights(rng, dtype, inputs, outputs)
    return lambda: tc.functional.linear(x, next(all_weights), bias)


def matmul(dtype, rows, inputs, outputs):
    rng = np.random.default_rng(0)
    x, all_weights = tensor(rng, dtype, rows, inputs), weights(rng, dtype, inputs, outputs, transposed=True)
    return lambda: tc.matmul(x, next(all_weights))


def qkv_projection(dtype, rows, inputs, outputs):
    rng = np.random.default_rng(0)
    heads, third = 8, outputs // 24 * 8
    x, bias = tensor(rng, dtype, 1, rows, inputs), tensor(rng, dtype, 3 * third)
    all_weights = weights(rng, dtype, inputs, 3 * third)
    return lambda: tc.functional.qkv_projection(x, next(all_weights), bias, heads)


def batched_matmul(dtype, rows, inputs, outputs):
    """32 products of their own of (rows, 64) and (64, 128), as in attention by hand."""
    rng = np.random.default_rng(0)
    a, b = tensor(rng, dtype, 32, rows, inputs), tensor(rng, dtype, 32, inputs, outputs)
    return lambda: tc.matmul(a, b)


def encoder(dtype, batch, length, layers=2):
    """MiniLM's layers: 384 features, 12 heads, 1536 hidden features with GELU."""
    tc.manual_seed(0)
    layer = tc.nn.TransformerEncoderLayer(384, 12, 1536, activation="gelu", batch_first=True)
    model = tc.nn.TransformerEncoder(layer, layers).eval().to(dtype)
    x = tensor(np.random.default_rng(0), dtype, batch, length, 384)
    return lambda: model(x)


def decoding(dtype, size, layers, cached):
    """One token through a causal model with `cached` earlier ones: what a step reads are weights, and the keys and values."""
    tc.manual_seed(0)
    rng = np.random.default_rng(0)
    heads = size // 64
    parts = []
    for _ in range(layers):
        one = {name: tensor(rng, dtype, *shape, scale=size**-0.5)
               for name, shape in {"qkv": (3 * size, size), "out": (size, size), "up": (4 * size, size), "down": (size, 4 * size)}.items()}  # fmt: skip
        one |= {name: tensor(rng, dtype, 1, heads, cached, 64) for name in ("k", "v")}
        one["gamma"] = tensor(rng, dtype, size)
        parts.append(one)
    token, F = tensor(rng, dtype, 1, 1, size), tc.functional

    def step():
        x = token
        for p in parts:
            q, _, _ = F.qkv_projection(F.layer_norm(x, (size,), p["gamma"]), p["qkv"], None, heads)
            attended = F.scaled_dot_product_attention(q, p["k"], p["v"])
            x = x + F.linear(attended.transpose(1, 2).reshape(1, 1, size), p["out"])
            x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, (size,), p["gamma"]), p["up"])), p["down"])
        return x

    return step


class Case(NamedTuple):
    """A function that makes a call, its arguments, and whether the time is that of reading weights from memory."""

    name: str
    build: object
    arguments: tuple
    reads: bool = False


def cases():
    for build in (linear, qkv_projection, matmul):
        for inputs, outputs in WEIGHTS:
            for rows in ROWS:
                reads = rows <= FEW_ROWS and is_large(inputs, outputs)
                yield Case(f"{build.__name__} {rows} x {inputs} x {outputs}", build, (rows, inputs, outputs), reads)
    for rows in (1, 16, 128):
        yield Case(f"batched_matmul 32 x {rows} x 64 x 128", batched_matmul, (rows, 64, 128))
    yield Case("encoder 1 x 16", encoder, (1, 16))
    yield Case("encoder 32 x 128", encoder, (32, 128))
    yield Case("decoding 256, 4 layers, 256 cached", decoding, (256, 4, 256))
    yield Case("decoding 1024, 8 layers, 1024 cached", decoding, (1024, 8, 1024), reads=True)


def least_seconds(calls, turns, missed=lambda least: False, clock=time.perf_counter):
    """For each call the least time of one, in turns; in more turns while `missed` says so of these times."""
    least, counts = [float("inf")] * len(calls), []
    for call in calls:
        for _ in range(MOST_WEIGHTS + 1):  # each weight's prepared form is made on first use
            call()
        start = clock()
        call()
        counts.append(max(1, int(LEAST_SECONDS / (clock() - start))))
    for again in range(1 + AGAIN):
        if again and not missed(least):
            break
        for _ in range(turns):
            for i, call in enumerate(calls):
                start = clock()
                for _ in range(counts[i]):
                    call()
                least[i] = min(least[i], (clock() - start) / counts[i])
    return least


def unmet(case, seconds, limit, tolerance):
    """A line for each half that is slower than the limits allow."""
    wanted = limit if case.reads else tolerance
    for name, own in zip(DTYPES[1:], seconds[1:], strict=True):
        if limit is not None and not seconds[0] / own >= wanted:
            yield f"{case.name}: {name} is {seconds[0] / own:.2f} times as fast as float32, {wanted} is required"


def measure(only, threads, turns, clock, limit=None, tolerance=None):
    for case in cases():
        if only not in case.name:
            continue
        with tc.no_grad():
            calls = [case.build(dtype, *case.arguments) for dtype in DTYPES]
            for number in threads:
                tc.set_num_threads(number)
                yield case, number, least_seconds(calls, turns, lambda least: any(unmet(case, least, limit, tolerance)), clock)  # noqa: B023 (called at once)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--threads", type=run.parse_threads, default=[1, 2], metavar="N[,N]", help="numbers of threads (1,2)")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--json")
    parser.add_argument("--cpu-clock", action="store_true", help="count the time on the core, not that of waiting for it; for one thread")
    parser.add_argument("--limit", type=float, metavar="RATIO", help="times float32's speed where weights are read from memory")
    parser.add_argument("--tolerance", type=float, default=0.9, metavar="RATIO", help="times float32's speed elsewhere, with --limit (0.9)")
    given = parser.parse_args(argv)
    if given.cpu_clock and given.threads != [1]:
        parser.error("--cpu-clock counts threads that wait as well: it needs --threads 1")
    clock = time.process_time if given.cpu_clock else time.perf_counter
    print(f"{'':46} threads  float32 us  bfloat16  float16")
    rows, failures = [], []
    for case, threads, seconds in measure(given.only, given.threads, given.turns, clock, given.limit, given.tolerance):
        ratios = f"{seconds[0] / seconds[1]:9.2f} {seconds[0] / seconds[2]:8.2f}"
        print(f"{case.name + ' *' * case.reads:46} {threads:7} {1e6 * seconds[0]:11.1f} {ratios}", flush=True)
        rows.append({"case": case.name, "threads": threads} | dict(zip(DTYPES, seconds, strict=True)))
        failures += unmet(case, seconds, given.limit, given.tolerance)
    if given.json:
        with open(given.json, "w") as file:
            json.dump(rows, file, indent=1)
    if not rows:
        parser.error(f"--only {given.only}: there is no such case")
    for line in failures:
        print(f"not met: {line}", file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
