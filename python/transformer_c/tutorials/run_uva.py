"""The UvA tutorial's main job, as a command: each number the tutorial prints beside ours, and the Reverse task trained."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from tqdm import tqdm

from ..random import manual_seed
from . import uva

HYPERPARAMETERS: dict[str, Any] = dict(
    input_dim=10, model_dim=32, num_heads=1, num_classes=10, num_layers=1, dropout=0.0, lr=5e-4, warmup=50
)
CLIP = 5.0


def _side_by_side(name: str, theirs: np.ndarray, ours: np.ndarray) -> bool:
    """Prints two small matrices and whether they agree to the four printed decimals."""
    agree = bool(np.abs(theirs - ours).max() <= 6e-5)
    rows = zip(np.atleast_2d(theirs), np.atleast_2d(ours), strict=True)
    for i, (a, b) in enumerate(rows):
        left = "  ".join(f"{x:8.4f}" for x in a)
        right = "  ".join(f"{x:8.4f}" for x in b)
        print(f"  {name if i == 0 else '':10}{left:32}{right:32}{('agree' if agree else 'DIFFER') if i == 0 else ''}")
    return agree


def _print_cells(seed: int) -> bool:
    """Cell 5: the first example. The numbers are the tutorial's for seed 42 whatever `seed` is."""
    print("Cell 5: scaled dot product of random Q, K, V (seed 42)")
    print(f"  {'':10}{'tutorial':32}{'transformer_c':32}")
    ours = uva.cell_5()
    return all([_side_by_side(name, np.array(theirs), ours[name]) for name, theirs in uva.CELL_5.items()])


def _print_sample(dataset) -> bool:
    """Cell 17: the first training sample."""
    inputs, labels = dataset[0]
    agree = inputs.tolist() == uva.CELL_17 and labels.tolist() == uva.CELL_17[::-1]
    print("\nCell 17: first sample of the Reverse data")
    for name, theirs, ours in (("Input data", uva.CELL_17, inputs.tolist()), ("Labels", uva.CELL_17[::-1], labels.tolist())):
        print(f"  {name:12}tutorial       {theirs}\n  {'':12}transformer_c  {ours}")
    print(f"  {'agree' if agree else 'DIFFER'}")
    return agree


def _train(train, val, epochs: int, progress: bool):
    """Cell 20: the tutorial's hyper-parameters."""
    model = uva.ReversePredictor(max_iters=epochs * len(train), **HYPERPARAMETERS)
    optimizer = model.configure_optimizers()
    print(
        f"\nCell 20: training the Reverse task, {sum(p.numel() for p in model.parameters()):,} parameters, {epochs} epochs of {len(train)} batches"
    )
    for epoch in range(1, epochs + 1):
        with tqdm(total=len(train), desc=f"epoch {epoch:2}/{epochs}", unit="batch", disable=not progress, leave=False) as bar:

            def report(mean_loss: float, bar=bar) -> None:
                bar.update()
                if bar.n % 10 == 0:
                    bar.set_postfix_str(f"loss {mean_loss:.4f}", refresh=False)

            started = time.perf_counter()
            loss = uva.train_epoch(model, optimizer, train, CLIP, report)
            seconds = time.perf_counter() - started
        print(f"  epoch {epoch:2}  loss {loss:.5f}  val accuracy {100 * uva.accuracy(model, val):6.2f} %  ({seconds:.1f} s)", flush=True)
    return model.eval()


def run(seed: int = 42, epochs: int = 10, progress: bool = True) -> int:
    """Prints and trains; gives 0 when every number that is determined agrees with the tutorial's."""
    agree = _print_cells(seed)
    if seed != 42:
        manual_seed(seed)
    train, val, test = uva.reverse_loaders()
    if seed == 42:
        agree = _print_sample(train.dataset) and agree
    model = _train(train, val, epochs, progress)
    accuracies = {"Val accuracy": 100 * uva.accuracy(model, val), "Test accuracy": 100 * uva.accuracy(model, test)}
    print("\nCell 21: the trained model\n  " + f"{'':16}{'tutorial':>12}{'transformer_c':>16}")
    for name, value in accuracies.items():
        print(f"  {name:16}{'100.00 %':>12}{value:>14.2f} %")
    return 0 if agree else 1
