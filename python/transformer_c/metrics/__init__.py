"""Metrics that are computed batch by batch: counts and sums are kept, not the data.

In a step of a TrainingModule, ``self.log("val_acc", self.accuracy)`` after ``self.accuracy.update(scores, target)`` logs the value of the whole
epoch, which is exact where the mean over batches is not; the metric is reset after it.

base        Metric, which a metric of your own extends
regression  Mean, MeanSquaredError, MeanAbsoluteError, R2Score
classes     Accuracy, ConfusionMatrix, Precision, Recall, F1Score
"""

from typing import TYPE_CHECKING

from .._names import hooks
from .base import Metric
from .classes import Accuracy, ConfusionMatrix, F1Score, Precision, Recall
from .regression import Mean, MeanAbsoluteError, MeanSquaredError, R2Score

__all__ = [
    "Accuracy",
    "ConfusionMatrix",
    "F1Score",
    "Mean",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Metric",
    "Precision",
    "R2Score",
    "Recall",
]

if not TYPE_CHECKING:
    scores = "sklearn.metrics on the arrays of trainer.predict(), or a class of your own that extends tc.metrics.Metric"
    others = ("AUROC", "AveragePrecision", "ROC", "PrecisionRecallCurve", "CohenKappa", "MatthewsCorrCoef", "Specificity", "FBetaScore")
    kinds = ("Accuracy", "F1Score", "Precision", "Recall", "ConfusionMatrix")
    __getattr__, __dir__ = hooks(
        __name__,
        instead={
            **dict.fromkeys(others, scores),
            **{f"Binary{kind}": f'{kind}(task="binary")' for kind in kinds},
            **{f"Multiclass{kind}": f'{kind}(task="multiclass", num_classes=n, average="macro")' for kind in kinds[:-1]},
            "MulticlassConfusionMatrix": "ConfusionMatrix(num_classes=n)",
            "MeanMetric": "Mean()",
            **{f"{word}Metric": f'self.log(name, value, reduce_fx="{word.lower()}")' for word in ("Sum", "Max", "Min")},
            "MetricCollection": "a dict of metrics, each of which is updated and logged",
            "Perplexity": "Mean() of the cross entropies, and math.exp() of its compute()",
        },
    )
    del scores, others, kinds
