"""Stage (b): train the predictor on findings, and compare it with baselines on groups that it has not seen.

In other domains the network is the same, and its columns follow from those that define the groups of a table. A column
of numbers has a border between each two of its values, 1 above and 0 below; one of texts has a column for each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Ints
from geoblanket._display import Progress, counted, short_repr, silent
from geoblanket._training import training_of
from geoblanket.blanket.findings import (
    Labels,
    blanket_sizes,
    choose_grouping,
    decided_hypotheses,
    labels_of,
    read_findings,
    read_labels,
    split_by_group,
)
from geoblanket.blanket.models import (
    CalibrationBin,
    FittedNetwork,
    Model,
    NetworkOptions,
    Scores,
    calibration_bins,
    fit_boosting,
    fit_network,
    fit_rate_by_order,
    log_losses,
    score,
)
from geoblanket.blanket.predictor import Origin, Predictor, PredictorInputs, blanket_lengths
from geoblanket.errors import ParameterError

LabelKind = Literal["all", "tested"]
_KINDS: tuple[LabelKind, ...] = ("all", "tested")
_PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class ModelEvaluation:
    """One model, judged on the groups of the test part."""

    model: str
    """`network`, `boosting` or `m alone` (the rate of each m)."""
    trained_on: LabelKind
    """All labels, or only tested ones (not imputed)."""
    scores: Mapping[LabelKind, Scores]
    """Measures on all labels of the test part, and on those tested."""
    calibration: Mapping[LabelKind, list[CalibrationBin]]
    """Where the calibration error of `scores` comes from."""
    right_length: float | None
    """Share of the test part's groups whose blanket has the length that Algorithm 1 found; None without such groups."""
    gain: float
    """By how much the cross-entropy on tested labels is below that of m alone, nats per hypothesis."""
    gain_error: float
    """Standard error of `gain`, over groups."""


@dataclass(frozen=True)
class TrainResult:
    """A trained predictor, and how good it is."""

    predictor: Predictor
    evaluations: tuple[ModelEvaluation, ...]
    groups: Mapping[str, int]
    """Groups in the parts `train`, `validation` and `test`."""
    hypotheses: Mapping[str, int]
    """Hypotheses `tested`, `imputed` and left out because they were `undecided`."""
    epochs: int
    """Epochs of training."""
    best_epoch: int
    """The epoch whose weights the predictor has; 0: the rate of each m did better on the validation part."""
    length_by_cell: Mapping[int, int]
    """How many cells of the grid (hours × speed bins × known regions) have each predicted length."""
    length_by_sample: Mapping[int, int]
    """How many samples of the findings, by the features of their groups, have each predicted length."""
    found_by_sample: Mapping[int, int]
    """How many of them are in groups for which Algorithm 1 found each length."""

    def evaluation(self, model: str, *, trained_on: str = "all") -> ModelEvaluation:
        """Return how good one of the models is."""
        of_model = (evaluation for evaluation in self.evaluations if evaluation.model == model)
        return next(evaluation for evaluation in of_model if evaluation.trained_on == trained_on)

    def __repr__(self) -> str:
        groups = counted(sum(self.groups.values()), "group")
        longest = f"blankets of up to {counted(self.predictor.largest, 'place')}"
        return short_repr(self, longest, groups, f"epoch {self.best_epoch:,} of {self.epochs:,}")


@checked
def train(
    findings: str | Path | pl.DataFrame,
    *,
    about: Mapping[str, Any] | None = None,
    by: str | None = None,
    labels: LabelKind = "all",
    network: NetworkOptions | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> TrainResult:
    """Train the predictor of blankets on findings, and compare it with two baselines.

    Groups are split 60 : 20 : 20 into training, early stopping and testing. With all labels, the network's probability
    for m is that of a blanket no longer than m, so Algorithm 2 returns the median length. With tested labels only, it
    is the probability that a blanket no shorter than m ends there.

    Parameters
    ----------
    findings
        A file written by `geoblanket blanket discover`, or its rows.
    about
        With rows: how they were made (`interval_s`, `time_zone`, `regions`, `test` and `alpha`), as in the file.
    by
        Which grouping to use if the findings have several; by default the one with the most features.
    labels
        What the predictor's network is trained on: "all", as in the paper, or "tested", without the imputed ones. Both
        networks are judged.
    network
        How the network is trained; by default as `NetworkOptions` says.
    seed
        Seed of the split and of the initial weights. The same seed and findings give the same predictor.

    Raises
    ------
    ParameterError
        There are fewer than 10 groups with a decision, or an option is out of range.

    Examples
    --------
    >>> from geoblanket import train
    >>> from geoblanket.blanket import NetworkOptions, save_predictor
    >>> trained = train("findings.parquet", network=NetworkOptions(most_epochs=20))
    >>> sum(trained.groups.values()) > 10
    True
    >>> save_predictor(trained.predictor, "city.blanket")
    """
    options = network or NetworkOptions()
    if labels not in _KINDS:
        raise ParameterError(f"'labels' must be one of {', '.join(_KINDS)}. Got '{labels}' instead.")
    if not isinstance(findings, pl.DataFrame):
        findings, about = read_findings(findings)
    findings = choose_grouping(findings, by)
    known = read_labels(findings)
    parts = split_by_group(known, seed=seed)
    largest = int(known.inputs.m.max())
    blankets = _known_blankets(findings, largest)
    origin = _origin(about or {}, findings, labels=labels, groups=len(np.unique(parts.train.group)), seed=seed)
    networks: dict[LabelKind, FittedNetwork] = {}
    evaluations: list[ModelEvaluation] = []
    for kind in _KINDS:
        if kind == "tested" and known.tested.all():
            networks[kind] = networks["all"]
            evaluations += [replace(evaluation, trained_on=kind) for evaluation in evaluations]
            break
        chosen = parts if kind == "all" else parts.tested()
        networks[kind] = fit_network(chosen, largest=largest, options=options, seed=seed, progress=progress)
        baseline = fit_rate_by_order(chosen)
        models: dict[str, Model] = {
            "network": networks[kind],
            "boosting": fit_boosting(chosen, seed=seed),
            "m alone": baseline,
        }
        evaluations += [
            _evaluate(model, baseline, parts.test, blankets, largest, name=name, trained_on=kind)
            for name, model in models.items()
        ]
    fitted = networks[labels]
    predictor = Predictor(fitted.encoding, fitted.network, origin)
    by_cell, by_sample, found_by_sample = _sizes(predictor, findings, blankets)
    return TrainResult(
        predictor=predictor,
        evaluations=tuple(evaluations),
        groups={name: len(np.unique(part.group)) for name, part in zip(_PARTS, parts, strict=True)},
        hypotheses={
            "tested": int(known.tested.sum()),
            "imputed": int((~known.tested).sum()),
            "undecided": len(findings) - len(known),
        },
        epochs=len(fitted.validation_loss),
        best_epoch=fitted.best_epoch,
        length_by_cell=by_cell,
        length_by_sample=by_sample,
        found_by_sample=found_by_sample,
    )


def _known_blankets(findings: pl.DataFrame, largest: int) -> pl.DataFrame:
    """Return the groups whose length is known, at most Γ: a test ended the blanket, or none up to Γ did."""
    ended = ~pl.col("capped") | (pl.col("order") == largest)
    return blanket_sizes(findings).filter(pl.col("order").is_not_null() & ended)


def _evaluate(
    model: Model,
    baseline: Model,
    test: Labels,
    blankets: pl.DataFrame,
    largest: int,
    *,
    name: str,
    trained_on: LabelKind,
) -> ModelEvaluation:
    judged: dict[LabelKind, Labels] = {"all": test, "tested": test.where(test.tested)}
    predicted = {kind: model(labels.inputs) for kind, labels in judged.items()}
    gain, gain_error = _gain(judged["tested"], predicted["tested"], baseline(judged["tested"].inputs))
    return ModelEvaluation(
        model=name,
        trained_on=trained_on,
        scores={kind: score(judged[kind].kept, predicted[kind]) for kind in _KINDS},
        calibration={kind: calibration_bins(judged[kind].kept, predicted[kind]) for kind in _KINDS},
        right_length=_right_length(model, test, blankets, largest),
        gain=gain,
        gain_error=gain_error,
    )


def _gain(labels: Labels, probability: Floats, baseline: Floats) -> tuple[float, float]:
    """Return the mean fall of the cross-entropy and its standard error, with groups as the independent units."""
    falls = log_losses(labels.kept, baseline) - log_losses(labels.kept, probability)
    _, unit = np.unique(labels.group, return_inverse=True)
    mean = float(falls.mean())
    excess = np.bincount(unit, weights=falls - mean)
    return mean, float(np.sqrt((excess**2).sum()) / len(falls))


def _right_length(model: Model, test: Labels, blankets: pl.DataFrame, largest: int) -> float | None:
    groups, first = np.unique(test.group, return_index=True)
    probability = model(test.inputs.where(first).with_every_order(largest))
    predicted = blanket_lengths(probability.reshape(-1, largest) > 0.5)
    frame = pl.DataFrame({"group": groups.astype(np.int32), "predicted": predicted})
    right = frame.join(blankets, on="group").select((pl.col("predicted") == pl.col("order")).mean()).item()
    return None if right is None else float(right)


def _origin(about: Mapping[str, Any], findings: pl.DataFrame, *, labels: LabelKind, groups: int, seed: int) -> Origin:
    try:
        return Origin(
            by=findings["by"][0],
            interval_s=about["interval_s"],
            time_zone=about["time_zone"],
            regions=json.dumps(about["regions"], sort_keys=True),
            test=about["test"],
            alpha=about["alpha"],
            labels=labels,
            groups=groups,
            seed=seed,
            training=training_of(about),
        )
    except KeyError as error:
        raise ParameterError(f"'about' must say how the findings were made; {error} is missing.") from None
    except ValueError as error:
        raise ParameterError(f"'about' must say how the findings were made: {error}.") from None


def _sizes(
    predictor: Predictor, findings: pl.DataFrame, blankets: pl.DataFrame
) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """Return how many cells and samples have each predicted length, and how many samples each length found."""
    regions = len(predictor.encoding.regions)
    cells = predictor.table[:, :, :regions] if regions else predictor.table
    samples = findings.filter((pl.col("m") == 1) & (pl.col("available") > 0))
    hour, speed, region = (
        None if samples[name].null_count() else samples[name].to_numpy() for name in ("hour", "speed_mph", "region")
    )
    predicted = predictor.lengths(hour=hour, speed_mph=speed, region=region)
    by_sample = samples.select("group", "available", length=pl.Series(np.broadcast_to(predicted, len(samples))))
    by_found_length = by_sample.join(blankets, on="group").select("available", length="order")
    by_cell = pl.DataFrame({"length": cells.ravel(), "available": np.ones(cells.size, np.int64)})
    return _counts(by_cell), _counts(by_sample), _counts(by_found_length)


def _counts(frame: pl.DataFrame) -> dict[int, int]:
    return dict(frame.group_by("length").agg(pl.col("available").sum()).sort("length").iter_rows())


@dataclass(frozen=True, eq=False)
class TablePredictor:
    """Predicts how many context variables the blanket has; made by `train_table`.

    Examples
    --------
    With the `predictor` in the example of `train_table`:

    >>> predictor.lengths(pl.DataFrame({"age": [3, 11]})).tolist()
    [1, 2]
    """

    levels: Mapping[str, pl.Series]
    """The values that each group column had, ascending."""
    fitted: FittedNetwork
    scores: Mapping[str, Scores]
    """Measures on groups that were not learned from, of the `network` and of the baseline `m alone`."""

    def lengths(self, groups: pl.DataFrame) -> Ints:
        """Return the length of the blanket in each of some groups, from their columns."""
        if missing := [name for name in self.levels if name not in groups.columns]:
            raise ParameterError(f"The predictor needs the group columns {', '.join(self.levels)}. No {missing[0]}.")
        inputs = _inputs(self.levels, groups, np.ones(groups.height, np.int64))
        largest = self.fitted.encoding.largest
        probability = self.fitted(inputs.with_every_order(largest))
        return blanket_lengths(probability.reshape(-1, largest) > 0.5)

    def __repr__(self) -> str:
        accuracy = f"right on {self.scores['network'].accuracy:.0%} of new groups' hypotheses"
        return short_repr(self, f"blankets by {', '.join(self.levels)}", accuracy)


@checked
def train_table(
    findings: pl.DataFrame, *, network: NetworkOptions | None = None, seed: int = 0, progress: Progress = silent
) -> TablePredictor:
    """Train a predictor of blankets on what `discover_table` found, and judge it on groups that it has not seen.

    Parameters
    ----------
    findings
        `Discovery.findings` of a table with group columns.
    network, seed, progress
        Those of `train`.

    Raises
    ------
    ParameterError
        There are fewer than 10 groups with a decision.

    Examples
    --------
    >>> import numpy as np
    >>> import polars as pl
    >>> from geoblanket import SampleTable, discover_table, train_table
    >>> rng, age = np.random.default_rng(1), np.repeat(np.arange(20), 300)
    >>> v = rng.normal(size=(6000, 3))
    >>> x = v[:, 0] + (age >= 8) * v[:, 1] + rng.normal(size=6000)  # from age 8 on, V_2 counts too
    >>> table = SampleTable(x, list(v.T), groups=pl.DataFrame({"age": age}))
    >>> predictor = train_table(discover_table(table).findings)
    """
    names = findings.columns[2 : findings.columns.index("m")]
    levels = {name: findings[name].unique().sort() for name in names}
    decided = decided_hypotheses(findings)
    known = labels_of(decided, _inputs(levels, decided, decided["m"].cast(pl.Int64).to_numpy()))
    parts = split_by_group(known, seed=seed)
    options, largest = network or NetworkOptions(), int(known.inputs.m.max())
    fitted = fit_network(parts, largest=largest, options=options, seed=seed, progress=progress)
    models: dict[str, Model] = {"network": fitted, "m alone": fit_rate_by_order(parts)}
    scores = {name: score(parts.test.kept, model(parts.test.inputs)) for name, model in models.items()}
    return TablePredictor(levels, fitted, scores)


def _inputs(levels: Mapping[str, pl.Series], groups: pl.DataFrame, m: Ints) -> PredictorInputs:
    columns = []
    for name, known in levels.items():
        value, level = groups[name].to_numpy()[:, None], known.to_numpy()
        columns.append(value >= level[1:] if known.dtype.is_numeric() else value == level)
    nothing = np.full(len(m), -1)
    return PredictorInputs(nothing, nothing, nothing, m, np.hstack(columns).astype(np.float64))
