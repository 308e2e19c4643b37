"""What ranks cost each other: `mpiexec -n 2 python -m benchmarks.ranks`, one thread per rank. docs/scale.md explains the figures.

On rank 0: microseconds of a message, a barrier, small values and sums over ranks, by size; then of a training step, in alternating turns, the least
wall time, the median of its ratio to "ddp" in the same turn, and the median of the processor time: of one process while the others sleep, of
processes that exchange nothing, and of ranks that exchange gradients after the backward or during it. A step computes all the time, or its backward
mostly waits, which leaves the cores to the exchange, or it is tiny, which leaves Python. `--json FILE` writes the figures, from which `python -m
benchmarks.scale` makes the tables of docs/scale.md; `--trace FILE` what the ranks did when in the last two steps of each kind that exchange during the
backward, for chrome://tracing or ui.perfetto.dev.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings

import numpy as np
import transformer_c as tc
from transformer_c import distributed
from transformer_c.trainer.overlap import Overlap

SIZES = [2**k for k in range(8, 23, 2)]  # numbers, of 4 bytes


def microseconds(call, repeats):
    """The least time of a call in a few rounds; all ranks begin together."""
    best = float("inf")
    for _ in range(3):
        distributed.barrier()
        started = time.perf_counter()
        for _ in range(repeats):
            call()
        best = min(best, (time.perf_counter() - started) / repeats)
    return 1e6 * best


def there_and_back(group, byte):
    """A message from rank 0 to rank 1, and one back."""
    for sender, receiver in ((0, 1), (1, 0)):
        if group.rank == sender:
            group.communicator.Send(byte, receiver)
        elif group.rank == receiver:
            group.communicator.Recv(byte, sender)


def calls(numbers):
    """Microseconds by name, one turn; `numbers` are those of the gradients."""
    group, byte, copied = distributed.world.group(), np.zeros(1, np.uint8), np.ones((2, numbers), np.float32)
    found = {
        "message": microseconds(lambda: there_and_back(group, byte), 200) / 2,
        "barrier": microseconds(group.barrier, 50),
        "small values": microseconds(lambda: group.exchange("a benchmark", (1.0, 2)), 50),
    }
    for size in SIZES:
        x = np.ones(size, np.float32)
        found[f"sum of {4 * size:,} bytes"] = microseconds(lambda x=x: group.all_reduce(x), max(1, 2**15 // size))
    return {**found, "copy of the gradients": microseconds(lambda: np.copyto(*copied), 1)}


class Step(tc.TrainingModule):
    """Blocks of the width of BERT-small, to have gradients of a few megabytes; their backward waits for so many seconds."""

    def __init__(self, width, layers, waits=0.0):
        super().__init__()
        self.model = tc.TransformerEncoder(layers, input_dim=width, num_heads=width // 64, dim_feedforward=4 * width)
        self.wait = tc.custom_op(lambda x: x, lambda dy, x: (time.sleep(waits), dy)[1]) if waits else lambda x: x

    def training_step(self, batch, batch_idx):
        for layer in self.model.layers:
            batch = self.wait(layer(batch))
        return batch.square().mean()

    def configure_optimizers(self):
        return tc.optim.AdamW(self.parameters(), lr=1e-4)


# ---- steps -----------------------------------------------------------------------------------------------------------------------------

WIDTH, LAYERS = 256, 4
KINDS = {  # rows and length of a rank's batch
    "computes": {"width": WIDTH, "layers": LAYERS, "rows": 2, "length": 64},
    "waits": {"width": WIDTH, "layers": LAYERS, "rows": 1, "length": 8, "waits": 0.01},
    "is tiny": {"width": 64, "layers": 1, "rows": 1, "length": 2},
}
ONE = "one process"
STEPS = {  # name: strategy, exchange during the backward
    ONE: (None, "0"),
    "one process, a thread per rank, the rows of all": (None, "0"),
    "each by itself": (None, "0"),
    "ddp": ("ddp", "0"),
    "ddp, during": ("ddp", "1"),
    "zero": ("zero", "0"),
}
MEASURED = {"computes": list(STEPS), "waits": ["ddp", "ddp, during"], "is tiny": ["each by itself", "ddp"]}


def step_seconds(strategy, overlap, width, layers, rows, length, steps=12, waits=0.0):
    """Wall and processor time of steps of `rows` sequences per rank, and what a rank did when in the last two of them."""
    os.environ["TRANSFORMER_C_MPI_OVERLAP"] = overlap
    times, Overlap.trace = [], []

    class Clock(tc.callbacks.Callback):
        def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
            times.append((time.perf_counter(), time.process_time()))

    size = 1 if strategy is None else distributed.world_size()
    x = np.random.default_rng(0).random((steps * rows * size, length, width)).astype(np.float32)
    model = Step(width, layers, waits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tc.Trainer(1, progress=False, strategy=strategy, callbacks=[Clock()]).fit(model, tc.data.DataLoader(x, batch_size=rows))
    last = [row for row in Overlap.trace if row[1] > times[-3][0]]
    Overlap.trace = None
    wall, processor = np.diff(times, axis=0)[2:].T  # the first two lay out and allocate
    return wall.min(), np.median(processor), last


def turn(kind, name):
    """One turn of a step on all ranks; of one process, on rank 0, while the others sleep."""
    group, options, threads = distributed.world.group(), dict(KINDS[kind]), tc.get_num_threads()
    found = float("inf"), float("inf"), []
    group.barrier()
    if not name.startswith(ONE) or group.rank == 0:
        if name != ONE and name.startswith(ONE):
            options["rows"] *= group.size
            tc.set_num_threads(group.size)
        found = step_seconds(*STEPS[name], **options)
        tc.set_num_threads(threads)
    group.meet(lambda: False)
    return found


def in_turns(turns):
    """What main() writes, and {kind: trace} of the last turn."""
    rows, traces = [(kind, name) for kind, names in MEASURED.items() for name in names], {kind: [] for kind in MEASURED}
    walls, processors = {row: [] for row in rows}, {row: [] for row in rows}
    numbers, of_calls = sum(p.numel() for p in Step(WIDTH, LAYERS).parameters()), []
    for _ in range(turns):
        of_calls.append(calls(numbers))
        for kind, name in rows:
            wall, processor, trace = turn(kind, name)
            walls[kind, name].append(1e3 * wall)
            processors[kind, name].append(1e3 * processor)
            traces[kind] += [trace] if trace else []
    found = {kind: {} for kind in MEASURED}
    for kind, name in rows:
        ratios = [a / b for a, b in zip(walls[kind, name], walls[kind, "ddp"], strict=True)]
        found[kind][name] = {
            "ms": min(walls[kind, name]),
            "of ddp": statistics.median(ratios),
            "processor ms": statistics.median(processors[kind, name]),
        }
    figures = {
        "ranks": distributed.world_size(),
        "layers": LAYERS,
        "gradients": 4 * numbers,
        "us": {name: min(of_turn[name] for of_turn in of_calls) for name in of_calls[0]},
        "steps": found,
        "during": {kind: overlap_of(of_turns) for kind, of_turns in traces.items() if of_turns},
    }
    return figures, {kind: of_turns[-1] for kind, of_turns in traces.items() if of_turns}


def overlap_of(traces):
    """Of the last steps of turns with an exchange during the backward: buckets, how many were left at its end, and ms from the first one to the end."""
    counts, left, windows = [], [], []
    for trace in traces:
        (_, began, ended) = [row for row in trace if row[0] == "backward"][-1]
        buckets = [row for row in trace if row[0].startswith("sum") and row[1] > began]
        counts.append(len(buckets))
        left.append(sum(last > ended for _, _, last in buckets))
        windows.append(1e3 * (ended - min(first for _, first, _ in buckets)))
    return {"buckets": max(counts), "left": statistics.median(left), "window ms": statistics.median(windows)}


def write_trace(path, traces):
    """The rows of all ranks in Chrome's format; processes of one machine have one clock."""
    events = [
        {
            "name": name,
            "cat": kind,
            "ph": "X",
            "pid": rank,
            "tid": int(name.startswith("sum")),
            "ts": 1e6 * began,
            "dur": 1e6 * (ended - began),
        }
        for rank, of_rank in enumerate(distributed.world.group().exchange("the traces", traces))
        for kind, rows in of_rank.items()
        for name, began, ended in rows
    ]
    if distributed.rank() == 0:
        with open(path, "w") as file:
            json.dump({"traceEvents": events}, file)


def main():
    """Prints the figures of rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--trace", metavar="FILE")
    options = parser.parse_args()
    distributed.init()
    tc.set_num_threads(1)
    group = distributed.world.group()
    if group.size == 1:
        parser.error("start it with mpiexec -n 2, or more")
    found, traces = in_turns(options.turns)
    if options.trace:
        write_trace(options.trace, traces)
    if group.rank == 0:
        print_figures(found)
        if options.json:
            with open(options.json, "w") as file:
                json.dump(found, file, indent=1)
                file.write("\n")


def print_figures(found):
    """As lines."""
    print(f"{found['ranks']} ranks of one thread, {found['gradients']:,} bytes of gradients")
    for name, took in found["us"].items():
        print(f"{name:24}{took:10.1f} us")
    for kind, rows in found["steps"].items():
        for name, row in rows.items():
            print(
                f"step that {kind:8}  {name:50}{row['ms']:8.2f} ms{row['of ddp']:7.2f} of ddp{row['processor ms']:8.2f} ms of a processor"
            )
    for kind, row in found["during"].items():
        print(f"step that {kind:8}  {row['left']:g} of {row['buckets']} buckets are left after {row['window ms']:.1f} ms")


if __name__ == "__main__":
    main()
