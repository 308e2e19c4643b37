"""The documents' trainings at full length, with the figures that docs/documents.md has.

    python -m benchmarks.documents squares                 seconds
    python -m benchmarks.documents digits --seeds 5        minutes
    python -m benchmarks.documents anomaly                 minutes
    python -m benchmarks.documents reviews --csv FILE      minutes a seed; FILE as for tc.datasets.load_reviews

A line for each seed, then the median. A machine gives the same figures each time; another may differ in the last digits.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable

import numpy as np
import transformer_c as tc
from transformer_c.tutorials import godoy, keras_book, sensio, uva

# Cell 36 of the tutorial.
ANOMALY = dict(input_dim=512, num_classes=1, model_dim=256, num_heads=4, num_layers=4, dropout=0.1, input_dropout=0.1, lr=5e-4, warmup=100)


def squares(options: argparse.Namespace) -> None:
    """Mean squared error over the points, in eval mode, after the document's training."""
    for name, make in (("own layers", godoy.own_model), ("nn.Transformer", godoy.torch_style_model)):

        def train(seed: int, make=make) -> float:
            tc.manual_seed(seed)
            model = make()
            points = tc.as_tensor(np.stack(godoy.generate_sequences()[0]).astype(np.float32))
            sbs = godoy.StepByStep(model, tc.nn.MSELoss(), tc.optim.Adam(model.parameters(), lr=0.01))
            sbs.set_loaders(*godoy.loaders())
            sbs.train(options.epochs or 50, seed=seed)
            return float(tc.F.mse_loss(sbs.predict(points), points[:, 2:].numpy()))

        _report(f"squares, {name}: eval-mode MSE", _seeds(42, options.seeds or 8), train, "{:.4f}")


def digits(options: argparse.Namespace) -> None:
    """Validation accuracy of the Spanish post's models on scikit-learn's digits."""
    data = tc.datasets.digits()
    variants = {
        "MLP": (sensio.Dataset, sensio.MLP, 40),
        "encoder over features": (sensio.AttnDataset, lambda: sensio.Model(n_layers=3), 20),
        "encoder over patches": (sensio.AttnDataset, lambda: sensio.Model(n_layers=3, over="patches"), 20),
    }
    for name, (dataset, make, epochs) in variants.items():

        def train(seed: int, dataset=dataset, make=make, epochs=epochs) -> float:
            tc.manual_seed(seed)
            model = make()
            dm = sensio.MNISTDataModule(Dataset=dataset, data=data)
            trainer = tc.Trainer(max_epochs=options.epochs or epochs, progress=False)
            trainer.fit(model, dm)
            return 100 * trainer.history["val_acc"][-1]

        _report(f"digits, {name}: validation accuracy (%)", range(options.seeds or 5), train, "{:.2f}")


def anomaly(options: argparse.Namespace) -> None:
    """Test accuracy of the tutorial's Set Anomaly model on the stand-in features; training, validation and test share no image."""

    def train(seed: int) -> float:
        tc.manual_seed(seed)
        with tempfile.TemporaryDirectory() as folder:
            _, result = uva.train_anomaly(
                uva.anomaly_loaders(uva.stand_in_features(seed)),
                max_epochs=options.epochs or 100, checkpoint_path=folder, progress=False, pretrained=False, **ANOMALY,
            )  # fmt: skip
        return 100 * result["test_acc"]

    _report("Set Anomaly: test accuracy (%)", _seeds(42, options.seeds or 5), train, "{:.2f}")


def reviews(options: argparse.Namespace) -> None:
    """Accuracy of the book chapter's model on a fifth of the reviews, after the epoch that was best on another tenth."""
    if options.csv is None:
        sys.exit("reviews needs --csv FILE: a CSV file or a folder, as for tc.datasets.load_reviews")
    texts, labels = tc.datasets.load_reviews(options.csv, source=options.source)
    train, val, test = keras_book.split_reviews(len(texts))
    vectorization = keras_book.TextVectorization(max_tokens=20000, output_mode="int", output_sequence_length=600)
    vectorization.adapt([texts[i] for i in train])
    loaders = [
        keras_book.review_loader([texts[i] for i in part], labels[part], vectorization, shuffle=part is train)
        for part in (train, val, test)
    ]

    def fit(seed: int) -> float:
        tc.manual_seed(seed)
        with tempfile.TemporaryDirectory() as folder:
            trainer = tc.Trainer(max_epochs=options.epochs or 4, checkpoint_dir=folder, progress=False)
            trainer.fit(keras_book.build_model(), *loaders[:2])
            print("  validation accuracy by epoch:", " ".join(f"{100 * a:.2f}" for a in trainer.history["val_accuracy"]))
            best = keras_book.ReviewModel.load_from_checkpoint(trainer.best_model_path)
            return 100 * trainer.test(best, loaders[2], verbose=False)[0]["test_accuracy"]

    _report(f"reviews, {len(test)} of {len(texts)} held out: accuracy (%)", range(options.seeds or 3), fit, "{:.2f}")


def _seeds(first: int, count: int) -> Iterable[int]:
    return range(first, first + count)


def _report(title: str, seeds: Iterable[int], run: Callable[[int], float], form: str) -> None:
    print(title, flush=True)
    found = []
    for seed in seeds:
        started = time.perf_counter()
        found.append(run(seed))
        print(f"  seed {seed:3}  {form.format(found[-1])}  ({time.perf_counter() - started:.1f} s)", flush=True)
    print(f"  median {form.format(statistics.median(found))}, from {form.format(min(found))} to {form.format(max(found))}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.documents", description=__doc__.splitlines()[0])
    parser.add_argument("document", choices=["squares", "digits", "anomaly", "reviews"])
    parser.add_argument("--seeds", type=int, help="trainings with as many seeds (default: 8, 5, 5, 3)")
    parser.add_argument("--epochs", type=int, help="other than the document's (50; 40 and 20; 100; 4 of 15)")
    parser.add_argument("--csv", help="reviews: the file or folder")
    parser.add_argument("--source", help="reviews: only rows with this in the column source")
    options = parser.parse_args()
    {"squares": squares, "digits": digits, "anomaly": anomaly, "reviews": reviews}[options.document](options)


if __name__ == "__main__":
    main()
