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


@pytest.mark.parametrize("average", ["macro", "weighted", None, "none"])
def test_accuracy_of_classes(average):
    """The share of each class is its recall; with top_k, of as many predictions for each target."""
    scores, target = data()
    for true, ignored in ((target, None), (np.where(target == 2, -100, target), -100)):
        metric, kept = metrics.Accuracy(average=average, num_classes=4, ignore_index=ignored), true != -100
        found = over_batches(metric, scores, true)
        expected = sklearn_metrics.recall_score(
            true[kept], scores[kept].argmax(1), average=None if average == "none" else average, zero_division=0, labels=range(4)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        again = metrics.Accuracy(average=average)
        again.load_state_dict(metric.state_dict())
        np.testing.assert_array_equal(again.compute(), found)
    best = [sklearn_metrics.top_k_accuracy_score(target[target == c], scores[target == c], k=2, labels=range(4)) for c in range(4)]
    shares = {"macro": np.mean(best), "weighted": (best * np.bincount(target)).sum() / 60}
    np.testing.assert_allclose(over_batches(metrics.Accuracy(2, average=average), scores, target), shares.get(average, best), rtol=1e-12)


def test_accuracy_of_classes_that_are_not_there():
    assert metrics.Accuracy(average="macro")([0, 1, 5], [0, 0, 3]) == 0.5 / 4  # 2 and 4 are neither predicted nor true
    assert metrics.Accuracy(average="macro", top_k=2)(np.eye(6)[[0, 1]], [0, 4]) == 0.5
    np.testing.assert_array_equal(metrics.Accuracy(average=None, num_classes=3)([np.nan, 0.9, 0.9], [0, 1, 1]), [0.0, 1.0, 0.0])
    assert metrics.Accuracy(task="binary", average="macro")([0.9, 0.8, 0.1], [1, 0, 0]) == 2 / 3
    assert math.isnan(metrics.Accuracy(average="macro")([], []))
    for given in (([0, 4], [0, 1]), ([0, -1], [0, 1])):
        with pytest.raises(ValueError, match="a class is not from 0 to 4 - 1"):
            metrics.Accuracy(average="macro", num_classes=4)(*given)


@pytest.mark.parametrize("normalize", ["true", "pred", "all", "none", None])
def test_shares_in_a_confusion_matrix(normalize):
    scores, target = data()
    expected = sklearn_metrics.confusion_matrix(target, scores.argmax(1), normalize=None if normalize == "none" else normalize)
    np.testing.assert_allclose(over_batches(metrics.ConfusionMatrix(normalize=normalize), scores, target), expected, rtol=1e-12)
    assert np.isfinite(metrics.ConfusionMatrix(3, normalize=normalize)([0, 1], [0, 0])).all()  # 0 for a class without any


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
    assert metrics.Accuracy()([0.5, 0.5], [0, 0]) == 1 == metrics.Accuracy(threshold=0.25)([0.25, 0.25], [0, 0])  # above, not at it
    assert metrics.F1Score(average=None)([0.2, 0.9, 0.8], [0, 1, 0])[1] == pytest.approx(2 / 3)


def test_predictions_that_are_nan_are_wrong():
    """A model that has diverged has no accuracy of 1; nor has one whose scores are all the same."""
    target = np.array([0, 1, 2, 2])
    for top_k, constant in ((1, 0.25), (2, 0.5), (3, 1.0)):
        accuracy = metrics.Accuracy(top_k=top_k)
        assert accuracy(np.full((4, 3), np.nan), target) == 0.0
        assert accuracy(np.ones((4, 3)), target) == constant
        assert accuracy([[0.5, np.nan, 0.1]], [0]) == float(top_k > 1)
    assert metrics.Accuracy()([np.nan, 0.2], [0, 0]) == 0.5
    for preds in (np.full((4, 3), np.nan), [np.nan, 0.0, 1.0, 1.0]):
        with pytest.raises(ValueError, match=r"[14] of 4 predictions are NaN, which is no class"):
            metrics.F1Score()(preds, target)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_floats_of_any_dtype_are_probabilities(dtype):
    preds, target = tc.tensor([0.9, 0.1, 0.8]).to(dtype), np.array([1, 0, 1])
    assert metrics.Accuracy()(preds, target) == metrics.F1Score()(preds, target) == 1.0
    scores = tc.tensor([[0.9, 0.1], [0.2, 0.7]]).to(dtype)
    assert metrics.Accuracy()(scores, [0, 1]) == metrics.Accuracy(top_k=2)(scores, [0, 1]) == metrics.Recall()(scores, [0, 1]) == 1.0


def test_floats_that_are_no_probabilities_or_classes():
    """As columns of a file are: classes given as floats are not taken for probabilities, nor cut to classes."""
    for kind in (metrics.Accuracy, metrics.F1Score):
        for preds in ([0.0, 1.0, 2.0], [0.5, -0.1, 0.0], [np.inf, 0.0, 0.0]):
            with pytest.raises(
                ValueError, match=r"preds are floats, probabilities of one class, but (2.0|-0.1|inf) is not from 0 to 1: pass classes"
            ):
                kind()(preds, [0, 1, 2])
        for target, preds in (([0.9, 0.0], [0, 0]), ([np.nan, 1.0], [0, 1]), ([1.0, 1e30], [0, 1]), ([0.5, 1.0], [[0.1, 0.9], [0.9, 0.1]])):
            with pytest.raises(ValueError, match=r"target has (0.9|nan|1e\+30|0.5), which is no class; expected whole numbers"):
                kind()(preds, target)
        assert kind(ignore_index=-100)([0.0, 1.0, 7.0], [0.0, 1.0, -100.0]) == 1.0 == kind(task="binary")([-3.0, 2.0], [0.0, 1.0])


def test_an_empty_batch_counts_nothing():
    for metric in (metrics.Accuracy(), metrics.Accuracy(top_k=2), metrics.F1Score(), metrics.ConfusionMatrix(), metrics.ConfusionMatrix(3)):
        for shape in ((0, 3), (0, 0)):
            metric.update(np.zeros(shape), np.zeros(0, np.int64))
        assert np.sum(np.nan_to_num(metric.compute())) == 0
    assert math.isnan(metrics.Accuracy().compute())


def test_arguments_of_torchmetrics():
    """Its metrics are called with a task, which also says how the classes are averaged if nothing else does."""
    scores, target = data(3)
    found = scores.argmax(1)
    assert metrics.Accuracy(task="multiclass", num_classes=3)(scores, target) == (found == target).mean()
    for kind, function in ((metrics.F1Score, "f1_score"), (metrics.Precision, "precision_score"), (metrics.Recall, "recall_score")):
        expected = getattr(sklearn_metrics, function)
        assert kind(task="multiclass", num_classes=3)(scores, target) == pytest.approx(expected(target, found, average="micro"))
        assert kind(task="multiclass", num_classes=3, average="macro")(scores, target) == pytest.approx(
            expected(target, found, average="macro")
        )
        logits, both = scores[:, 0].astype(np.float64), target > 0
        for given in (logits, 1 / (1 + np.exp(-logits))):
            assert kind(task="binary")(given, both) == pytest.approx(expected(both, logits > 0))
    assert metrics.ConfusionMatrix(task="binary")([0, 0], [0, 0]).shape == (2, 2) and metrics.F1Score(task="binary")([0, 0], [0, 0]) == 0.0
    for call, error, message in (
        (lambda: metrics.F1Score(task="multilabel"), ValueError, "task must be 'multiclass' or 'binary'"),
        (lambda: metrics.F1Score(num_labels=3), TypeError, r"F1Score\(\) has no argument 'num_labels'; it has average, num_classes"),
        (lambda: metrics.Precision(avrage="macro"), TypeError, r"Precision\(\) has no argument 'avrage'; did you mean 'average'"),
        (lambda: metrics.Accuracy(topk=3), TypeError, r"Accuracy\(\) has no argument 'topk'; did you mean 'top_k'"),
        (lambda: metrics.F1Score("binary")([0, 1, 2], [0, 1, 2]), ValueError, "of classes 0 and 1; there are 3"),
    ):
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("shape", [(8, 1), (4, 1, 2)])
def test_predictions_in_one_column(shape):
    """As of a sigmoid head, (N, 1) with targets (N): of a binary task the scores of class 1, else no scores of classes."""
    rng = np.random.default_rng(0)
    target = rng.integers(0, 2, 8).reshape(shape[0], *shape[2:])
    logits = rng.normal(size=shape)
    kinds = (metrics.Accuracy, metrics.ConfusionMatrix, metrics.Precision, metrics.Recall, metrics.F1Score)
    for preds in (logits, 1 / (1 + np.exp(-logits)), (logits > 0).astype(np.int64)):
        found = [kind(task="binary")(preds, target) for kind in kinds]
        for a, kind in zip(found, kinds, strict=True):
            np.testing.assert_array_equal(a, kind(task="binary")(preds[:, 0], target))
        np.testing.assert_array_equal(found[1], sklearn_metrics.confusion_matrix(target.reshape(-1), logits.reshape(-1) > 0))
    np.testing.assert_array_equal(metrics.ConfusionMatrix(task="binary")([[0.9], [0.8]], [0, 0]), [[0, 2], [0, 0]])
    assert metrics.Accuracy(task="binary", ignore_index=1)([[0.9], [0.8], [0.1]], [0, 1, 0]) == 0.5
    for metric in (*(kind() for kind in kinds), metrics.Accuracy(top_k=2), metrics.F1Score("binary"), metrics.F1Score(task="multiclass")):
        with pytest.raises(
            ValueError, match=r"scores of one class, .* at least 2 along axis 1 \(dim=\)\. .* pass preds\[:, 0\] with task="
        ):
            metric(logits, target)
    with pytest.raises(ValueError, match=r"pass preds\[:, :, 0\] with"):
        metrics.Accuracy(dim=-1)(np.ones((2, 3, 1)), np.zeros((2, 3)))
    for metric in (metrics.Accuracy(num_classes=1), metrics.F1Score(num_classes=1)):
        assert metric(logits, np.zeros_like(target)) == 1.0


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


def test_several_outputs():
    """R2Score is the mean of theirs, the errors are of all numbers."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 50, 3)) * np.array([1.0, 10.0, 100.0]) + 1e3
    assert over_batches(metrics.R2Score(), a, b) == pytest.approx(sklearn_metrics.r2_score(b, a), rel=1e-10)
    assert over_batches(metrics.R2Score(), a[:, :1], b[:, :1]) == over_batches(metrics.R2Score(), a[:, 0], b[:, 0])
    assert over_batches(metrics.MeanSquaredError(), a, b) == pytest.approx(sklearn_metrics.mean_squared_error(b, a))
    assert math.isnan(metrics.R2Score()(a, np.where([True, False, True], b, 2.0)))
    one = metrics.R2Score()
    for pair in zip(a[:, 0], b[:, 0], strict=True):
        one.update(*pair)
    assert one.compute() == pytest.approx(metrics.R2Score()(a[:, 0], b[:, 0]), rel=1e-10)
    with pytest.raises(ValueError, match=r"target has shape \(5, 10, 3\); expected \(N,\), or \(N, D\) for D outputs"):
        metrics.R2Score()(a.reshape(5, 10, 3), b.reshape(5, 10, 3))


def test_names_of_torchmetrics():
    for name, instead in (
        ("BinaryF1Score", r'F1Score\(task="binary"\)'),
        ("MulticlassAccuracy", r'Accuracy\(task="multiclass", num_classes=n, average="macro"\)'),
        ("MeanMetric", r"Mean\(\)"),
        ("MaxMetric", 'reduce_fx="max"'),
        ("MetricCollection", "a dict of metrics"),
    ):
        with pytest.raises(AttributeError, match=f"use .*{instead}"):
            getattr(metrics, name)
    metric = metrics.Accuracy(task="multiclass", num_classes=3)
    assert metric.to("cuda") is metric


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


def test_a_ratio_is_not_normalized():
    """Only ConfusionMatrix has the argument."""
    with pytest.raises(TypeError, match="F1Score\\(\\) has no argument 'normalize'"):
        metrics.F1Score(normalize="true")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.Accuracy()([[1.0, 2.0]], [0, 1]), "along axis 1"),
        (lambda: metrics.Accuracy()([1, 2, 3], [0, 1]), "expected the same, or scores"),
        (lambda: metrics.Accuracy(2)([1, 2], [0, 1]), "top_k needs scores"),
        (lambda: metrics.Accuracy(0), "top_k"),
        (lambda: metrics.Accuracy(2)(np.eye(3), [0, -1, 2]), "target has the class -1; expected 0 to 2, or ignore_index=-1"),
        (lambda: metrics.Accuracy()(np.eye(3), [0, 3, 2]), "target has the class 3; expected 0 to 2"),
        (lambda: metrics.F1Score("mean"), "average must be"),
        (lambda: metrics.Accuracy(average="binary"), "average must be"),
        (lambda: metrics.ConfusionMatrix(normalize="rows"), "normalize must be 'true' or 'pred' or 'all'"),
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
