"""Cells 26 to 42: the Set Anomaly task, on stand-ins for the features of CIFAR100."""

from __future__ import annotations

import time

import numpy as np

from ... import functional as F
from ... import plot
from ..._recording import no_grad
from ...random import manual_seed
from .. import uva
from ..uva_features import stand_in_features
from .report import OTHER_DATA, Report, numbers, print_history, shape

TASK = "SetAnomalyTask"
EQUIVARIANT = 1e-5  # the tutorial's bound


def run(report: Report, seed: int, epochs: int, progress: bool) -> None:
    """Trains with the tutorial's hyper-parameters, tests, and looks at predictions, maps and mistakes."""
    arrays = stand_in_features(seed)
    manual_seed(seed)
    loaders = _data(report, arrays)
    report.head("Cells 34 to 37", f"training, {epochs} epochs")
    if (report.output / f"{TASK}.ckpt").exists():
        report.note(f"{TASK}.ckpt is not used: it was trained on features of CIFAR100, not on the digits")
    started = time.perf_counter()
    model, result = uva.train_anomaly(
        loaders, max_epochs=epochs, checkpoint_path=report.output, progress=progress, pretrained=False, input_dim=arrays["train_features"].shape[-1],
        model_dim=256, num_heads=4, num_classes=1, num_layers=4, dropout=0.1, input_dropout=0.1, lr=5e-4, warmup=100,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    history = report.history(TASK)
    if not progress:
        print_history(report, history)
    report.compare(36, "parameters", "2,306,305", f"{sum(p.numel() for p in model.parameters()):,}")
    if history:
        report.add(36, "training", "pre-trained file", f"{epochs} epochs, {seconds:.1f} s")
        report.picture("cell_36_anomaly_history", lambda: plot.losses(history, log=True, title="Set Anomaly task"))
    for name, theirs in (("train", "96.45 %"), ("val", "95.94 %"), ("test", "94.42 %")):
        report.add(37, f"{name.capitalize()} accuracy of the Set Anomaly task", theirs, f"{100 * result[f'{name}_acc']:.2f} %", OTHER_DATA)
    _look(report, model, loaders[2], arrays["test_images"], seed)


def _data(report: Report, arrays: dict[str, np.ndarray]) -> uva.Loaders:
    """Cells 26 to 33."""
    report.head("Cells 26 to 33", "image features and sets")
    report.note("CIFAR100 and a pre-trained ResNet34 are not available: scikit-learn's digits through a random layer stand in for them")
    report.add(29, "training features", "(50000, 512)", shape(arrays["train_features"]), OTHER_DATA)
    report.add(29, "test features", "(10000, 512)", shape(arrays["test_features"]), OTHER_DATA)
    loaders = uva.anomaly_loaders(arrays)
    train, val, test = loaders
    report.add(30, "training and validation images", "45000 and 5000", f"{len(train.dataset)} and {len(val.dataset)}", OTHER_DATA)
    sample, indices, label = train.dataset[0]
    report.compare(31, "shapes of one sample, its label", "(10, 512) (10,) 9", f"{shape(sample)} {shape(indices)} {int(label)}")
    report.add(32, "training batches of 64", "703", f"{len(train)}", OTHER_DATA)
    shown = test.dataset.test_sets[[0, 100, 200, 299]]
    images = arrays["test_images"][shown]
    report.picture("cell_33_anomaly_sets", lambda: plot.image_sets(images, [9] * 4, title="Sets of the test data; green: the anomaly"))
    return loaders


def _look(report: Report, model: uva.AnomalyPredictor, test, images: np.ndarray, seed: int) -> None:
    """Cells 38 to 42, on the first test batch, or the first that has a mistake."""
    report.head("Cells 38 to 42", "equivariance, maps, mistakes")
    features, indices, _ = next(iter(test))
    chances = _probabilities(model, features)
    order = np.random.default_rng(seed % 2**64).permutation(features.shape[1])
    difference = float(np.abs(chances[:, order] - _probabilities(model, features[:, order])).max())
    report.add(38, "highest probability of the first set", "0.9998", numbers(chances[0].max()), OTHER_DATA)
    within = difference < EQUIVARIANT
    report.compare(
        38, "change when the sets are permuted", f"< {EQUIVARIANT:.0e}", f"< {EQUIVARIANT:.0e}" if within else f"{difference:.1e}", within
    )
    maps = model.get_attention_maps(features, add_positional_encoding=False)
    report.compare(39, "attention maps of a batch", "4 x (64, 4, 10, 10)", f"{len(maps)} x {shape(maps[0])}")
    predictions = chances.argmax(-1)
    report.add(40, "prediction for the first set", "9", f"{predictions[0]}", OTHER_DATA)
    sets = images[np.asarray(indices)]
    report.picture("cell_40_anomaly_set", lambda: plot.image_sets(sets[0], 9, predictions[0], chances[0]))
    report.picture(
        "cell_40_anomaly_attention", lambda: plot.attention_maps(maps, idx=0, title="Set Anomaly task: attention, first test set")
    )
    mistakes = np.flatnonzero(predictions != 9)
    report.add(41, "mistakes in the first 64 test sets", "[49]", _some(mistakes.tolist()), OTHER_DATA)
    if not len(mistakes):
        report.note("no mistake to look at")
        return
    last = mistakes[-1]
    report.add(42, "prediction for the last mistake", "7 (48.87 %)", f"{predictions[last]} ({100 * chances[last].max():.2f} %)", OTHER_DATA)
    report.add(42, "probability of the anomaly there", "27.16 %", f"{100 * chances[last, 9]:.2f} %", OTHER_DATA)
    for i, p in enumerate(chances[last]):
        report.note(f"image {i}: {100 * p:5.2f} %")
    report.picture("cell_42_anomaly_mistake", lambda: plot.image_sets(sets[last], 9, predictions[last], chances[last]))
    report.picture(
        "cell_42_mistake_attention", lambda: plot.attention_maps(maps, idx=int(last), title="Set Anomaly task: attention, a mistake")
    )


def _some(indices: list[int]) -> str:
    """All of a few, the first of many."""
    return str(indices) if len(indices) <= 8 else f"{len(indices)}: [{', '.join(map(str, indices[:5]))}, ...]"


def _probabilities(model: uva.AnomalyPredictor, features) -> np.ndarray:
    """(B, set size): a softmax over each set."""
    with no_grad():
        return F.softmax(model(features, add_positional_encoding=False).squeeze(-1), axis=-1).numpy()
