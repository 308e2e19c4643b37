"""What padding costs: time for each real token of a batch of mixed lengths as a share of that of a full batch, in turns.

python -m benchmarks.mixed_lengths [--texts 32] [--longest 256] [--threads 1] [--turns 7] [--cpu-clock] [--limit 1.1]

An encoder of MiniLM's size (6 layers, E 384, H 12, random weights), forward and training step. Lengths are evenly spaced from 8 to the longest and in
random order; the full batch has as many texts, all of their mean length. "padded": the mixed batch without lengths, so that padding is computed as
if it were tokens. Exit status 1 when mixed lengths cost more than the limit; they are measured again before that, twice at most, and the least times count.
"""

import argparse
import sys
import time

import numpy as np

SIZES = {"model_type": "bert", "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536, "num_hidden_layers": 6}
AGAIN = 2  # times that what misses the limit is measured once more


def batches(texts, longest):
    """{name: (ids, lengths or None)}"""
    rng = np.random.default_rng(0)
    lengths = rng.permutation(np.linspace(8, longest, texts).round().astype(int))
    ids = rng.integers(1000, 30000, (texts, longest))
    full = rng.integers(1000, 30000, (texts, round(lengths.mean())))
    return {"full": (full, None), "mixed": (np.where(np.arange(longest) < lengths[:, None], ids, 0), lengths), "padded": (ids, None)}


def least_seconds(call, made, turns, limit=None, clock=time.perf_counter):
    """{name: the least time for each real token}, in turns; in more turns while the mixed batch is above the limit."""
    counts = {name: ids.size if lengths is None else int(lengths.sum()) for name, (ids, lengths) in made.items()}
    counts["padded"] = counts["mixed"]
    best = dict.fromkeys(made, float("inf"))
    for again in range(1 + AGAIN):
        if again and (limit is None or best["mixed"] <= limit * best["full"]):
            break
        for _ in range(turns):
            for name, batch in made.items():
                start = clock()
                call(*batch)
                best[name] = min(best[name], (clock() - start) / counts[name])
    return best


def calls(longest):
    """The forward and a training step of an encoder."""
    import transformer_c as tc

    model = tc.models.create({**SIZES, "vocab_size": 30522, "max_position_embeddings": max(512, longest)})

    def forward(ids, lengths):
        model.eval()(ids, lengths=lengths)

    def train(ids, lengths):
        states = model.train()(tc.tensor(ids), lengths=None if lengths is None else tc.tensor(lengths))
        (states * states).mean().backward()
        model.zero_grad()

    return forward, train


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("texts", 32), ("longest", 256), ("threads", 1), ("turns", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--limit", type=float, metavar="RATIO", help="of the time for a token of mixed lengths to that of a full batch")
    parser.add_argument("--cpu-clock", action="store_true", help="count the time on the core, not that of waiting for it; for one thread")
    given = parser.parse_args(argv)
    if given.cpu_clock and given.threads != 1:
        parser.error("--cpu-clock counts threads that wait as well: it needs --threads 1")
    import transformer_c as tc

    tc.set_num_threads(given.threads)
    made, failures = batches(given.texts, given.longest), []
    tokens = int(made["mixed"][1].sum())
    print(f"{given.texts} texts of 8 to {given.longest} tokens, {tokens} in all, float32, threads: {given.threads}")
    for call in calls(given.longest):
        best = least_seconds(call, made, given.turns, given.limit, time.process_time if given.cpu_clock else time.perf_counter)
        for name, seconds in best.items():
            print(f"{call.__name__:8} {name:7} {1e6 * seconds:8.1f} us for each token {seconds / best['full']:6.2f}", flush=True)
        ratio = best["mixed"] / best["full"]
        if given.limit is not None and not ratio <= given.limit:
            failures.append(
                f"{call.__name__}: a token of mixed lengths takes {ratio:.2f} times as long as one of a full batch, at most {given.limit} is allowed"
            )
    for line in failures:
        print(f"not met: {line}", file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
