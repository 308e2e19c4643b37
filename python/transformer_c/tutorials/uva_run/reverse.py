"""Cells 14 to 25: the Reverse task."""

from __future__ import annotations

import time

import numpy as np

from ... import functional as F
from ... import plot
from ...random import manual_seed
from .. import uva
from .report import OURS, Report, print_history, shape

TASK = "ReverseTask"


def run(report: Report, seed: int, epochs: int, progress: bool) -> None:
    """Trains with the tutorial's hyper-parameters, tests, and looks at the attention."""
    report.head("Cells 14 to 17", "model and data of the Reverse task")
    # The tutorial's data come from what the generator gives after cell 5.
    if seed == 42:
        uva.cell_5()
    else:
        manual_seed(seed)
    loaders = uva.reverse_loaders()
    train, val, _ = loaders
    report.compare(16, "training batches of 128", "390", f"{len(train)}")
    inputs, labels = (part.tolist() for part in train.dataset[0])
    if seed == 42:
        report.compare(17, "first sample", _digits(uva.CELL_17), _digits(inputs))
        report.compare(17, "its labels", _digits(uva.CELL_17[::-1]), _digits(labels))

    report.head("Cells 18 to 21", f"training, {epochs} epochs")
    started = time.perf_counter()
    model, result = uva.train_reverse(
        loaders, max_epochs=epochs, checkpoint_path=report.output, progress=progress, input_dim=train.dataset.num_categories, model_dim=32,
        num_heads=1, num_classes=train.dataset.num_categories, num_layers=1, dropout=0.0, lr=5e-4, warmup=50,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    history = report.history(TASK)
    if not progress:  # bars have shown it
        print_history(report, history)
    report.compare(20, "parameters", "10,346", f"{sum(p.numel() for p in model.parameters()):,}")
    if history:
        report.add(20, "training", "pre-trained file", f"{epochs} epochs, {seconds:.1f} s")
        report.picture("cell_20_reverse_history", lambda: plot.losses(history, log=True, title="Reverse task"))
    for name in ("val", "test"):
        ours = f"{100 * result[f'{name}_acc']:.2f} %"
        what = f"{name.capitalize()} accuracy of the Reverse task"
        if epochs >= 10:
            report.compare(21, what, "100.00 %", ours)
        else:
            report.add(21, what, "100.00 %", ours, OURS)
    _look(report, model, val)


def _digits(values: list[int]) -> str:
    return "".join(map(str, values))


def _look(report: Report, model: uva.ReversePredictor, val) -> None:
    """Where each position looks: the tutorial finds the mirrored one."""
    report.head("Cells 22 to 25", "attention of the trained model")
    sequences, _ = next(iter(val))
    maps = model.get_attention_maps(F.one_hot(sequences, num_classes=model.hparams.num_classes).float())
    report.compare(23, "shape of attention_maps[0]", "(128, 1, 16, 16)", shape(maps[0]))
    weights = np.asarray(maps[0])[:, 0]
    mirrored = weights[:, np.arange(16), 15 - np.arange(16)]
    most = 100 * np.mean(weights.argmax(-1) == 15 - np.arange(16))
    report.add(25, "weight on the mirrored position, mean", "the highest", f"{mirrored.mean():.2f}, the highest in {most:.0f} % of rows")
    report.picture("cell_25_reverse_attention", lambda: plot.attention_maps(maps, sequences, idx=0, title="Reverse task: attention"))
