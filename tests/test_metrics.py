"""tc.metrics against scikit-learn's, over batches, and logged by a module over epochs and a resumed run."""

import contextlib
import math

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import metrics

sklearn_metrics = pytest.importorskip("sklearn.metrics")


def data(classes=4, n=60, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, classes)).astype(np.float32), rng.integers(0, classes, n)


def over_batches(metric, preds, target, size=7):
    for i in range(0, len(target), size):
        metric.update(preds[i : i + size], target[i : i + size])
    return metric.compute()


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", None])
@pytest.mark.parametrize(("kind", "function"), [("F1Score", "f1_score"), ("Precision", "precision_score"), ("Recall", "recall_score")])
def test_scores_of_classes(kind, function, average):
    scores, target = data()
    found = over_batches(getattr(metrics, kind)(average=average), scores, target)
    expected = getattr(sklearn_metrics, function)(target, scores.argmax(1), average=average, zero_division=0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_class_that_is_never_right():
    preds, target = np.array([0, 1, 1, 3]), np.array([0, 0, 1, 2])
    for average in ("macro", "weighted"):
        assert metrics.F1Score(average)(preds, target) == pytest.approx(
            sklearn_metrics.f1_score(target, preds, average=average, zero_division=0)
        )
    assert metrics.F1Score("macro", num_classes=9)(preds, target) == metrics.F1Score("macro")(preds, target)
    np.testing.assert_array_equal(
        over_batches(metrics.ConfusionMatrix(), preds, target, 1), sklearn_metrics.confusion_matrix(target, preds)
    )


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_accuracy(top_k):
    scores, target = data()
    found = over_batches(metrics.Accuracy(top_k), tc.tensor(scores), tc.tensor(target))
    assert found == sklearn_metrics.top_k_accuracy_score(target, scores, k=top_k)
    assert metrics.Accuracy()(scores.argmax(1), target) == sklearn_metrics.accuracy_score(target, scores.argmax(1))


def test_axes_ignored_targets_and_probabilities():
    rng = np.random.default_rng(0)
    scores, target = rng.normal(size=(2, 5, 3)), rng.integers(0, 3, (2, 5))
    expected = (scores.argmax(-1) == target).mean()
    assert metrics.Accuracy(dim=-1)(scores, target) == metrics.Accuracy()(scores.transpose(0, 2, 1), target) == expected
    masked = target.copy()
    masked[:, 3:] = -100
    assert metrics.Accuracy(dim=-1, ignore_index=-100)(scores, masked) == (scores.argmax(-1) == target)[:, :3].mean()
    assert metrics.Accuracy(2, dim=-1, ignore_index=-100)(scores, masked) == metrics.Accuracy(2, dim=-1)(scores[:, :3], target[:, :3])
    assert metrics.Accuracy()([0.2, 0.9], [0, 1]) == 1 == metrics.Accuracy(threshold=0.1)([0.2, 0.9], [1, 1])
    assert metrics.F1Score(average=None)([0.2, 0.9, 0.8], [0, 1, 0])[1] == pytest.approx(2 / 3)


def test_errors_and_means():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=50) + 1e3, rng.normal(size=50) + 1e3
    for metric, expected in (
        (metrics.MeanSquaredError(), ((a - b) ** 2).mean()),
        (metrics.MeanSquaredError(squared=False), math.sqrt(((a - b) ** 2).mean())),
        (metrics.MeanAbsoluteError(), abs(a - b).mean()),
        (metrics.R2Score(), sklearn_metrics.r2_score(b, a)),
    ):
        assert over_batches(metric, a, b) == pytest.approx(expected, rel=1e-10)
    mean = metrics.Mean()
    mean.update(a[:10], weight=2)
    assert mean(b[:4], weight=np.arange(4)) == pytest.approx(np.average(b[:4], weights=np.arange(4)))
    assert mean.compute() == pytest.approx((2 * a[:10].sum() + (b[:4] * np.arange(4)).sum()) / 26) == float(mean)


def test_states():
    scores, target = data()
    for metric in (metrics.Accuracy(), metrics.F1Score(), metrics.R2Score(), metrics.Mean()):
        assert math.isnan(metric.compute())
        given = (scores, target) if isinstance(metric, (metrics.Accuracy, metrics.F1Score)) else (scores[:, 0], scores[:, 1])
        whole = metric(*given)
        assert metric.compute() == whole
        again = type(metric)()
        again.load_state_dict(metric.state_dict())
        metric.reset()
        assert again.compute() == whole and math.isnan(metric.compute()) and repr(metric).endswith("()")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.Accuracy()([[1.0, 2.0]], [0, 1]), "along axis 1"),
        (lambda: metrics.Accuracy()([1, 2, 3], [0, 1]), "expected the same, or scores"),
        (lambda: metrics.Accuracy(2)([1, 2], [0, 1]), "top_k needs scores"),
        (lambda: metrics.Accuracy(0), "top_k"),
        (lambda: metrics.F1Score("mean"), "average must be"),
        (lambda: metrics.ConfusionMatrix(2)([0, 2], [0, 1]), "from 0 to 2 - 1"),
        (lambda: metrics.ConfusionMatrix()([0, 1], [0, -1]), "from 0 to"),
        (lambda: metrics.MeanAbsoluteError()([1.0], [1.0, 2.0]), "expected the same"),
    ],
)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


class Classifier(tc.TrainingModule):
    def __init__(self):
        super().__init__()
        self.net = tc.nn.Linear(4, 4)
        self.f1, self.train_f1 = metrics.F1Score(), metrics.F1Score()

    def configure_optimizers(self):
        return tc.optim.SGD(self.parameters(), lr=0.0)

    def training_step(self, batch, batch_idx):
        x, y = batch
        scores = self.net(x)
        self.train_f1.update(scores, y)
        self.log("train_f1", self.train_f1)
        if batch_idx == self.fails_at and self.trainer.current_epoch == 1:
            raise InterruptedError
        return tc.F.cross_entropy(scores, y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.f1(self.net(x), y)
        self.log("val_f1", self.f1, prog_bar=True)

    test_step = validation_step


def test_logged_over_epochs_and_resumed(tmp_path):
    x, y = data()
    found = []
    for name, stops in (("whole", [None]), ("stopped", [5, None])):
        for stop in stops:
            tc.manual_seed(0)
            model = Classifier()
            model.fails_at = stop
            run = tc.Trainer(2, progress=False, checkpoint_dir=tmp_path / name, checkpoint_every_n_steps=1, monitor="val_f1", mode="max")
            with contextlib.suppress(InterruptedError):
                run.fit(model, (x, y), (x, y), resume="last", batch_size=8)
        found.append(run.history)
    expected = sklearn_metrics.f1_score(y, model.net(x).argmax(1), average="macro")
    assert found[0] == found[1]
    np.testing.assert_allclose([found[0]["train_f1"], found[0]["val_f1"]], np.full((2, 2), expected))
    assert run.test(model, (x, y), verbose=False, batch_size=9)[0]["val_f1"] == pytest.approx(expected)
