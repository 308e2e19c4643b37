"""What ranks cost each other: `mpiexec -n 2 python -m benchmarks.ranks`; with -n 1 the step alone. docs/scale.md explains the figures.

Minima of several turns, on rank 0: microseconds of a barrier, of small values and of a sum over ranks, by size; milliseconds of a training step
with and without the other ranks.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import transformer_c as tc
from transformer_c import distributed

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
    """Blocks of the width of BERT-small, to have gradients of a few megabytes."""

    def __init__(self, width, layers):
        super().__init__()
        self.model = tc.TransformerEncoder(layers, input_dim=width, num_heads=width // 64, dim_feedforward=4 * width)

    def training_step(self, batch, batch_idx):
        return self.model(batch).square().mean()

    def configure_optimizers(self):
        return tc.optim.AdamW(self.parameters(), lr=1e-4)


def step_seconds(strategy, width=256, layers=4, rows=2, length=64, steps=8):
    """The least time of a step of `rows` sequences per rank."""
    times = []

    class Clock(tc.callbacks.Callback):
        def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
            times.append(time.perf_counter())

    size = 1 if strategy is None else distributed.world_size()
    x = np.random.default_rng(0).random((steps * rows * size, length, width)).astype(np.float32)
    model = Step(width, layers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tc.Trainer(1, progress=False, strategy=strategy, callbacks=[Clock()]).fit(model, tc.data.DataLoader(x, batch_size=rows))
    return float(np.diff(times).min()), sum(p.numel() for p in model.parameters())


def main():
    """Prints the figures of rank 0."""
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
    for strategy in (None, "ddp", "zero") if group.size > 1 else (None,):
        took, numbers = step_seconds(strategy)
        lines.append(f"step {strategy or 'alone':5} {1e3 * took:10.2f} ms  {numbers} parameters, {tc.get_num_threads()} threads")
    if group.rank == 0:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
