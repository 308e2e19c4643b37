"""The cost of each argument of scaled_dot_product_attention: the time of a call as a share of the plain call's, in turns on one thread.

python -m benchmarks.attention_options [--length 2048] [--turns 15]
"""

import argparse
import statistics
import time

import numpy as np


def options(length):
    rng = np.random.default_rng(0)
    triangle = np.tril(np.ones((length, length), bool))
    return {
        "plain": {},
        "is_causal": {"is_causal": True},
        "attn_mask, boolean, the same triangle": {"attn_mask": triangle},
        "attn_mask, boolean, half of it at random": {"attn_mask": rng.random((length, length)) < 0.5},
        "attn_mask, floating": {"attn_mask": np.where(triangle, 0, -np.inf).astype(np.float32)},
        "bias (H, Tq, Tk)": {"bias": rng.standard_normal((8, length, length), dtype=np.float32)},
        "key_lengths, half": {"key_lengths": [length // 2]},
        "window (256, 0)": {"window": (256, 0)},
        "softcap": {"softcap": 30.0},
        "dropout_p": {"dropout_p": 0.1},
        "return_logsumexp": {"return_logsumexp": True},
        "return_attention": {"return_attention": True},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--turns", type=int, default=15)
    given = parser.parse_args()
    import transformer_c as tc

    tc.set_num_threads(1)
    attention = tc.functional.scaled_dot_product_attention
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 8, given.length, 64), dtype=np.float32)
    calls = options(given.length)
    times = {name: [] for name in calls}
    for _ in range(given.turns):
        for name, kw in calls.items():
            start = time.perf_counter()
            attention(q, k, v, **kw)
            times[name].append(time.perf_counter() - start)
    print(f"(1, 8, {given.length}, 64), float32, one thread: plain {1e3 * statistics.median(times['plain']):.1f} ms")
    for name, row in times.items():
        print(f"{statistics.median(a / b for a, b in zip(row, times['plain'], strict=True)):6.2f}  {name}")


if __name__ == "__main__":
    main()
