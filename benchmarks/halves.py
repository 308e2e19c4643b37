"""How fast float16 and bfloat16 are next to float32: products of few and many rows, an encoder on a batch, a decoding step.

python -m benchmarks.halves [--only linear] [--threads 1,2] [--turns 9] [--json FILE]

The dtypes take turns in one process; a cell is the least time in float32, and for each half the ratio of its least time to that: above 1
the half is faster. Products cycle over as many weights as the large ones need to be read from memory.
"""

import argparse
import itertools
import json
import time

import numpy as np
import transformer_c as tc

from . import run

DTYPES = ("float32", "bfloat16", "float16")
ROWS = (1, 2, 4, 8, 16, 32, 128, 1024)
WEIGHTS = ((384, 384), (384, 1536), (1024, 4096), (4096, 4096))  # in_features, out_features
FROM_MEMORY = 96 << 20  # bytes of the halves of a set of weights that no cache contains
MOST_WEIGHTS = 12
LEAST_SECONDS = 0.004  # of a turn


def tensor(rng, dtype, *shape, scale=1.0):
    return tc.tensor(rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)).to(dtype)


def weights(rng, dtype, inputs, outputs, transposed=False):
    """Small weights stay in the caches, as those of a small model do; of large ones there are so many that they do not."""
    size = 2 * inputs * outputs
    count = min(MOST_WEIGHTS, max(1, FROM_MEMORY // size)) if size > 4 << 20 else 1
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


def cases():
    for build in (linear, qkv_projection, matmul):
        for inputs, outputs in WEIGHTS:
            for rows in ROWS:
                yield f"{build.__name__} {rows} x {inputs} x {outputs}", build, (rows, inputs, outputs)
    for rows in (1, 16, 128):
        yield f"batched_matmul 32 x {rows} x 64 x 128", batched_matmul, (rows, 64, 128)
    yield "encoder 1 x 16", encoder, (1, 16)
    yield "encoder 32 x 128", encoder, (32, 128)
    yield "decoding 256, 4 layers, 256 cached", decoding, (256, 4, 256)
    yield "decoding 1024, 8 layers, 1024 cached", decoding, (1024, 8, 1024)


def least_seconds(calls, turns):
    """For each call the least time of one, in turns."""
    least, counts = [float("inf")] * len(calls), []
    for call in calls:
        for _ in range(MOST_WEIGHTS + 1):  # each weight's prepared form is made on first use
            call()
        start = time.perf_counter()
        call()
        counts.append(max(1, int(LEAST_SECONDS / (time.perf_counter() - start))))
    for _ in range(turns):
        for i, call in enumerate(calls):
            start = time.perf_counter()
            for _ in range(counts[i]):
                call()
            least[i] = min(least[i], (time.perf_counter() - start) / counts[i])
    return least


def measure(only, threads, turns):
    for name, build, arguments in cases():
        if only not in name:
            continue
        with tc.no_grad():
            calls = [build(dtype, *arguments) for dtype in DTYPES]
            for number in threads:
                tc.set_num_threads(number)
                yield name, number, least_seconds(calls, turns)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--threads", type=run.parse_threads, default=[1, 2], metavar="N[,N]", help="numbers of threads (1,2)")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--json")
    given = parser.parse_args()
    print(f"{'':44} threads  float32 us  bfloat16  float16")
    rows = []
    for name, threads, seconds in measure(given.only, given.threads, given.turns):
        print(f"{name:44} {threads:7} {1e6 * seconds[0]:11.1f} {seconds[0] / seconds[1]:9.2f} {seconds[0] / seconds[2]:8.2f}", flush=True)
        rows.append({"case": name, "threads": threads} | dict(zip(DTYPES, seconds, strict=True)))
    if given.json:
        with open(given.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
