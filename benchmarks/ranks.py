"""What ranks cost each other: `mpiexec -n 2 python -m benchmarks.ranks`; with -n 1 the step alone. docs/scale.md explains the figures.

Minima of several turns, on rank 0: microseconds of a barrier, of small values and of a sum over ranks, by size; milliseconds of a training step
with and without the other ranks, with gradients exchanged after the backward and during it: of a step that computes all the time, and of one whose
backward mostly waits, which leaves the cores to the exchange. `--trace FILE` writes what the ranks did when in their last two steps, for
chrome://tracing or ui.perfetto.dev.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings

import numpy as np
import transformer_c as tc
from transformer_c import distributed
from transformer_c.trainer.overlap import Overlap

SIZES = [2**k for k in range(8, 23, 2)]  # numbers, of 4 bytes
TURNS = 7


def seconds(call, repeats):
    """The least time of a call over some turns; all ranks begin together."""
    best = float("inf")
    for _ in range(TURNS):
        distributed.barrier()
        started = time.perf_counter()
        for _ in range(repeats):
            call()
        best = min(best, (time.perf_counter() - started) / repeats)
    return best


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


def step_seconds(strategy, overlap="0", width=256, layers=4, rows=2, length=64, steps=8, waits=0.0):
    """The least time of a step of `rows` sequences per rank, and what it did when."""
    os.environ["TRANSFORMER_C_MPI_OVERLAP"] = overlap
    times, Overlap.trace = [], []

    class Clock(tc.callbacks.Callback):
        def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
            times.append(time.perf_counter())

    size = 1 if strategy is None else distributed.world_size()
    x = np.random.default_rng(0).random((steps * rows * size, length, width)).astype(np.float32)
    model = Step(width, layers, waits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tc.Trainer(1, progress=False, strategy=strategy, callbacks=[Clock()]).fit(model, tc.data.DataLoader(x, batch_size=rows))
    last = [row for row in Overlap.trace if row[1] > times[-3]]
    Overlap.trace = None
    return float(np.diff(times).min()), last


STEPS = {  # name: strategy, exchange during the backward
    "alone": (None, "0"),
    "ddp": ("ddp", "0"),
    "ddp, during": ("ddp", "1"),
    "zero": ("zero", "0"),
}
KINDS = {"computes": {}, "waits": {"rows": 1, "length": 8, "waits": 0.01}}


def steps_seconds(names, turns=4):
    """{(kind, name): least milliseconds}, in turns, and the trace of one."""
    found, trace = {}, []
    for _ in range(turns):
        for kind, options in KINDS.items():
            for name in names:
                distributed.barrier()
                took, rows = step_seconds(*STEPS[name], **options)
                found[kind, name] = min(1e3 * took, found.get((kind, name), float("inf")))
                trace = rows or trace
    return found, trace


def write_trace(path, rows):
    """The rows of all ranks in Chrome's format; processes of one machine have one clock."""
    events = [
        {"name": name, "ph": "X", "pid": rank, "tid": int(name.startswith("sum")), "ts": 1e6 * began, "dur": 1e6 * (ended - began)}
        for rank, of_rank in enumerate(distributed.world.group().exchange(rows))
        for name, began, ended in of_rank
    ]
    if distributed.rank() == 0:
        with open(path, "w") as file:
            json.dump({"traceEvents": events}, file)


def main():
    """Prints the figures of rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", metavar="FILE")
    options = parser.parse_args()
    distributed.init()
    group, lines = distributed.world.group(), []
    if group.size > 1:
        lines.append(f"barrier          {1e6 * seconds(group.barrier, 50):10.1f} us")
        lines.append(f"small values     {1e6 * seconds(lambda: group.exchange((1.0, 2)), 50):10.1f} us")
        for size in SIZES:
            x = np.ones(size, np.float32)
            took = seconds(lambda x=x: group.all_reduce(x), max(1, 2**15 // size))
            lines.append(
                f"sum {4 * size:10d} B {1e6 * took:10.1f} us  {2 * (group.size - 1) / group.size * 4 * size / took / 1e9:6.2f} GB/s"
            )
    found, trace = steps_seconds(STEPS if group.size > 1 else ["alone"])
    for (kind, name), took in found.items():
        lines.append(f"step that {kind:8} {name:12} {took:10.2f} ms")
    numbers = sum(p.numel() for p in Step(256, 4).parameters())
    lines.append(f"{numbers} parameters, {tc.get_num_threads()} threads per rank")
    if options.trace:
        write_trace(options.trace, trace)
    if group.rank == 0:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
