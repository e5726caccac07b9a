"""Statistics that steps return."""
import numbers
from typing import Dict

from divvy import _divvy, _values
from divvy._values import array_of_numbers

Metric = _divvy.Metric


class Metrics(Dict[str, float]):
    """The merged statistics of a loop, by name. `counts` has the number of elements of each."""

    def __init__(self, merged):
        super().__init__((name, metric.value) for name, metric in merged.items())
        self.counts = {name: metric.count for name, metric in merged.items()}


def Mean(values, count=None):
    """The mean over all elements of an array or of one number.

    With `count` the mean is values / count, where `values` is a sum that the step has counted.
    """
    if count is None:
        return _divvy.mean_of(array_of_numbers(values))
    return _divvy.mean(float(values), float(count))


def Auc(logits, labels):
    """The area under the ROC curve. logits, labels: [batch] or [batch, 1]; labels in [0, 1]."""
    return _divvy.auc(array_of_numbers(logits), array_of_numbers(labels))


def Rmse(predictions, labels):
    """The root of the mean squared error over all elements."""
    return _divvy.rmse(array_of_numbers(predictions), array_of_numbers(labels))


def Accuracy(logits, labels):
    """The fraction of right predictions.

    logits [batch, classes] with class numbers [batch] or probabilities [batch, classes]; or both
    [batch] or [batch, 1], where a logit above 0 and a label above 0.5 mean yes.
    """
    return _divvy.accuracy(array_of_numbers(logits), array_of_numbers(labels))


def RecallAt(k, scores):
    """The recall at k. scores: [batch, candidates]; the right candidate of row i is i."""
    return _divvy.recall_at(k, array_of_numbers(scores))


def as_metrics(result, step):
    """What a step returned to a loop, as Metrics."""
    if result is None:
        return {}
    if not isinstance(result, dict):
        raise TypeError(
            "step %s returned a %s: run_epoch and run_until merge what steps return, so return a "
            'dict such as {"loss": loss, "auc": divvy.Auc(logits, labels)}, or None. (schedule '
            "takes any result.)" % (step, type(result).__name__))
    return {_name(name, step): _as_metric(name, value, step) for name, value in result.items()}


def _name(name, step):
    if not isinstance(name, str):
        raise TypeError("step %s returned a metric named %r: wanted a text" % (step, name))
    return name


def _as_metric(name, value, step):
    if isinstance(value, Metric):
        return value
    if isinstance(value, numbers.Real):
        return _divvy.mean(float(value), 1.0)
    array = _values.as_array(value)
    if array is None:
        raise TypeError("step %s returned %r: a %s is no metric; wanted a number, an array (its "
                        "mean counts) or a divvy.Metric" % (step, name, type(value).__name__))
    return _divvy.mean_of(array)
