"""Models that predict labels, and their scores.

The models are the paper's network, and two baselines that it must beat to be worth anything. The scores are the paper's
measures for both classes, and calibration.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import precision_recall_fscore_support
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Floats
from geoblanket._display import Progress, options_repr, silent
from geoblanket.blanket.findings import Parts
from geoblanket.blanket.predictor import Encoding, Network, PredictorInputs
from geoblanket.errors import ParameterError

Model = Callable[[PredictorInputs], Floats]
"""Returns P("fail to reject") of each hypothesis."""

_BOOSTING_STEPS = 200  # the most; the validation part chooses how many are used
_LEAST_GAIN = 1e-4
"""Nats by which the validation loss must fall to count as a gain: where nothing is noisy it would fall for ever."""
_MOST_CATEGORIES = 255  # what scikit-learn takes
_CALIBRATION_BINS = 10
"""Bins of equal width over the probability of "fail to reject", from 0 to 1."""


@dataclass(frozen=True)
class Scores:
    """Measures of predictions; None where one is not defined (nothing of a class was found, or predicted)."""

    n: int
    """Hypotheses judged."""
    kept: float
    """Share of them with the label "fail to reject": the accuracy of always saying so."""
    bce: float
    """Binary cross-entropy, nats."""
    accuracy: float
    precision: float | None
    """Precision, recall and F1 for "fail to reject" …"""
    recall: float | None
    f1: float | None
    negative_precision: float | None
    """… and for "reject"."""
    negative_recall: float | None
    negative_f1: float | None
    calibration_error: float
    """Expected calibration error over `_CALIBRATION_BINS` bins."""


@dataclass(frozen=True)
class CalibrationBin:
    """Predictions of about the same probability."""

    least: float
    most: float
    n: int
    predicted: float | None
    """Mean probability of "fail to reject"; None in an empty bin."""
    observed: float | None
    """Share of "fail to reject"; None in an empty bin."""


def score(kept: Bools, probability: Floats) -> Scores:
    """Return the measures of predictions.

    Parameters
    ----------
    kept
        The labels: true is "fail to reject".
    probability
        P("fail to reject"); above one half it is predicted.
    """
    precision, recall, f1, _ = precision_recall_fscore_support(
        kept, probability > 0.5, labels=[True, False], zero_division=np.nan
    )
    bins = calibration_bins(kept, probability)
    gaps = [
        interval.n * abs(interval.predicted - interval.observed)
        for interval in bins
        if interval.predicted is not None and interval.observed is not None
    ]
    return Scores(
        n=len(kept),
        kept=float(kept.mean()),
        bce=float(log_losses(kept, probability).mean()),
        accuracy=float(((probability > 0.5) == kept).mean()),
        precision=_defined(precision[0]),
        recall=_defined(recall[0]),
        f1=_defined(f1[0]),
        negative_precision=_defined(precision[1]),
        negative_recall=_defined(recall[1]),
        negative_f1=_defined(f1[1]),
        calibration_error=sum(gaps) / len(kept),
    )


def log_losses(kept: Bools, probability: Floats) -> Floats:
    """Return the cross-entropy of each prediction, nats; a probability of 0 is taken as the smallest step from 1."""
    least = np.finfo(np.float64).eps
    losses: Floats = -np.log(np.where(kept, probability, 1 - probability).clip(least, 1 - least))
    return losses


def calibration_bins(kept: Bools, probability: Floats) -> list[CalibrationBin]:
    """Return how often "fail to reject" was right in each bin of its probability."""
    place = np.minimum((probability * _CALIBRATION_BINS).astype(int), _CALIBRATION_BINS - 1)
    intervals = []
    for number in range(_CALIBRATION_BINS):
        inside = place == number
        n = int(inside.sum())
        predicted = float(probability[inside].mean()) if n else None
        observed = float(kept[inside].mean()) if n else None
        lower, upper = number / _CALIBRATION_BINS, (number + 1) / _CALIBRATION_BINS
        intervals.append(CalibrationBin(lower, upper, n, predicted, observed))
    return intervals


def _defined(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


@checked
@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """How the network is trained; but for the rate and the patience, as in the paper.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> from geoblanket.blanket import NetworkOptions
    >>> options = NetworkOptions(most_epochs=100)
    >>> options
    NetworkOptions(most_epochs=100)
    """

    hidden: tuple[int, int] = (64, 32)
    """Units of the two hidden layers."""
    learning_rate: float = 1e-3
    """Of Adam. The paper's is 1e-5."""
    patience: int = 50
    """Epochs without a smaller loss (by 1e-4 nats) on the validation part before training stops. The paper's is 400."""
    most_epochs: int = 20_000
    """The most epochs of training."""
    batch: int = 128
    """Hypotheses between two updates of the weights."""

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate <= 1:
            raise ParameterError(f"'learning_rate' must be above 0 and at most 1. Got {self.learning_rate:g} instead.")
        units = list(self.hidden)
        if len(units) != 2 or min(units) < 1:
            raise ParameterError("'hidden' must be two whole numbers of at least 1: the units of the two layers.")
        if min(self.patience, self.most_epochs, self.batch) < 1:
            raise ParameterError("'patience', 'most_epochs' and 'batch' must be at least 1.")

    def __repr__(self) -> str:
        return options_repr(self)


@dataclass(frozen=True)
class FittedNetwork:
    """A network and how its training went."""

    encoding: Encoding
    network: Network
    best_epoch: int
    """The epoch whose weights were kept, counted from 1; 0: the rate of each m did better than all of them."""
    validation_loss: tuple[float, ...]
    """Binary cross-entropy on the validation part after each epoch, nats."""

    def __call__(self, inputs: PredictorInputs) -> Floats:
        """Return P("fail to reject") of each hypothesis."""
        return self.network.probabilities(self.encoding.rows(inputs))


def fit_rate_by_order(parts: Parts) -> Model:
    """Return the baseline that knows m alone: the share of "fail to reject" among all groups.

    One of each label is added at every m, so that no probability is 0 or 1.
    """
    train = parts.train
    most = int(train.inputs.m.max())
    counts = np.bincount(train.inputs.m, minlength=most + 1)
    kept = np.bincount(train.inputs.m, weights=train.kept, minlength=most + 1)
    rate: Floats = (kept + 1) / (counts + 2)

    def predict(inputs: PredictorInputs) -> Floats:
        # Beyond the largest m of the training part, its rate is the best there is.
        probability: Floats = rate[inputs.m.clip(max=most)]
        return probability

    return predict


def fit_boosting(parts: Parts, *, seed: int) -> Model:
    """Return gradient-boosted trees, with as many steps as suit the validation part best."""
    if _has_one_class(parts):
        return fit_rate_by_order(parts)
    regions = np.unique(parts.train.inputs.region)

    def columns(inputs: PredictorInputs) -> Floats:
        position = np.searchsorted(regions, inputs.region).clip(max=len(regions) - 1)
        region = np.where(regions[position] == inputs.region, position, np.nan)
        return np.column_stack([inputs.hour, inputs.speed_mph, region, inputs.m]).astype(np.float64)

    def fit(steps: int) -> HistGradientBoostingClassifier:
        # scikit-learn's own early stopping would split rows, and so share groups between the parts.
        trees = HistGradientBoostingClassifier(
            max_iter=steps,
            early_stopping=False,
            categorical_features=[2] if len(regions) < _MOST_CATEGORIES else None,
            random_state=seed,
        )
        return trees.fit(columns(parts.train.inputs), parts.train.kept)

    with threadpool_limits(limits=1):
        stages = fit(_BOOSTING_STEPS).staged_predict_proba(columns(parts.validation.inputs))
        losses = [log_losses(parts.validation.kept, probability[:, 1]).mean() for probability in stages]
        trees = fit(1 + int(np.argmin(losses)))

    def predict(inputs: PredictorInputs) -> Floats:
        with threadpool_limits(limits=1):
            probability: Floats = trees.predict_proba(columns(inputs))[:, 1]
        return probability

    return predict


def fit_network(
    parts: Parts, *, largest: int, options: NetworkOptions, seed: int, progress: Progress = silent
) -> FittedNetwork:
    """Train the paper's network by Adam on the training part, and keep the weights that suit the validation part best.

    Training competes with a network that knows the rate of each m and nothing else, which is kept where no epoch is
    better: with few groups, or where hour, speed and region tell nothing.

    Parameters
    ----------
    largest
        Γ, the largest order.
    """
    encoding = Encoding.learned(parts.train.inputs, largest=largest)
    best = _network_of_orders(encoding, fit_rate_by_order(parts))
    if _has_one_class(parts):
        return FittedNetwork(encoding, best, 0, ())
    rows, validation = encoding.rows(parts.train.inputs), encoding.rows(parts.validation.inputs)
    classifier = MLPClassifier(
        hidden_layer_sizes=options.hidden,
        learning_rate_init=options.learning_rate,
        batch_size=min(options.batch, len(rows)),
        alpha=0.0,
        # A generator, not a number: a number would shuffle every epoch alike.
        random_state=np.random.RandomState(seed),
    )
    losses = [_mean_loss(best, validation, parts.validation.kept)]
    best_epoch, last_gain, least = 0, 0, np.inf
    with threadpool_limits(limits=1), warnings.catch_warnings():
        # scikit-learn turns Ctrl-C into this warning and goes on.
        warnings.filterwarnings("error", message="Training interrupted by user")
        for epoch in range(1, options.most_epochs + 1):
            try:
                classifier.partial_fit(rows, parts.train.kept, classes=[False, True])
            except UserWarning as interrupted:
                raise KeyboardInterrupt from interrupted
            network = Network(tuple(classifier.coefs_), tuple(classifier.intercepts_))
            losses.append(_mean_loss(network, validation, parts.validation.kept))
            if losses[-1] < losses[best_epoch]:
                best, best_epoch = copy.deepcopy(network), epoch
            if losses[-1] < least - _LEAST_GAIN:
                last_gain, least = epoch, losses[-1]
            progress("train the network (epochs)", epoch, None)
            if epoch - last_gain >= options.patience:
                break
    return FittedNetwork(encoding, best, best_epoch, tuple(losses[1:]))


def _network_of_orders(encoding: Encoding, rate: Model) -> Network:
    """Return a network whose answer depends on m alone, and is its rate: both hidden layers pass m on."""
    largest = encoding.largest
    nothing = np.full(largest, -1)
    rates = rate(PredictorInputs(nothing, nothing, nothing, np.arange(1, largest + 1)))
    first = np.zeros((encoding.width, largest))
    first[-largest:] = np.eye(largest)
    weights = (first, np.eye(largest), np.log(rates / (1 - rates))[:, None])
    return Network(weights, (encoding.centre[-largest:].copy(), np.zeros(largest), np.zeros(1)))


def _has_one_class(parts: Parts) -> bool:
    return bool(parts.train.kept.all() or not parts.train.kept.any())


def _mean_loss(network: Network, rows: Floats, kept: Bools) -> float:
    return float(log_losses(kept, network.probabilities(rows)).mean())
