"""An attacker who follows a vehicle over several reports, on walks that its model was not made from.

The attacker knows the mechanism, the rule from histories to rows and a public model of mobility (`MobilityModel`). It
sees the reports of a vehicle while that stays in a zone: a *run* ends where the vehicle leaves the zone (or its walk
ends), and what follows is another run. A run is cut into windows of at most T reports, each attacked alone by
forward–backward. So any two T are compared on the same steps and the same reports; T = 1 is the attacker on one report.

Reports are drawn with a seed, from the mechanism's probabilities, for the true histories of held-out walks. Guesses are
held against the true places, so a model that is wrong is no excuse for the attacker. Steps of one vehicle are alike:
confidence intervals come from whole vehicles (`build.held_out.measure`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from geoblanket._arrays import Floats, Indices, Ints
from geoblanket.build.held_out import VehicleLosses
from geoblanket.build.rows import ZoneRows
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.evaluate.measures.attacker import zone_distance_km
from geoblanket.evaluate.measures.forward_backward import place_posteriors, prior_posteriors
from geoblanket.evaluate.measures.mobility_model import MobilityModel
from geoblanket.mobility.histories import Steps

__all__ = ["Attack", "Tracking", "find_runs", "track", "track_over_time"]

_CELLS: Final = 1 << 22
"""Places × steps × sequences at a time: posteriors of 32 megabytes."""


@dataclass(frozen=True, eq=False)
class Attack:
    """What an attacker achieved, summed over the steps of each vehicle. `build.held_out.measure` computes means.

    Examples
    --------
    With `tracking` in the example of `track`:

    >>> measure(tracking.smoothed.error_km).loss
    0.0
    """

    error_km: VehicleLosses
    """Distance of the best guess from the true place, kilometres."""
    success: VehicleLosses
    """How often the most probable place was the true one."""

    @classmethod
    def joined(cls, parts: Sequence[Attack]) -> Attack:
        """Add up the same vehicles in several zones."""
        return cls(
            VehicleLosses.joined([part.error_km for part in parts]),
            VehicleLosses.joined([part.success for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class Tracking:
    """How well vehicles are tracked with windows of at most a given number of reports.

    Examples
    --------
    With `tracking` in the example of `track`:

    >>> measure(tracking.prior.success).loss < measure(tracking.filtered.success).loss
    True
    """

    reports: int
    """T."""
    smoothed: Attack
    """Each place guessed from all reports of its window."""
    filtered: Attack
    """Each place guessed from the reports up to its own."""
    prior: Attack
    """The same attacker without reports: it knows that the vehicle is in the zone, and for how many steps."""

    @classmethod
    def joined(cls, parts: Sequence[Tracking]) -> Tracking:
        """Add up several zones, all with the same number of reports."""
        if len({part.reports for part in parts}) != 1:
            raise ParameterError("Only attacks by the same number of reports, one or more, can be joined.")
        smoothed, filtered, prior = (
            Attack.joined([getattr(part, name) for part in parts]) for name in ("smoothed", "filtered", "prior")
        )
        return cls(parts[0].reports, smoothed, filtered, prior)


def find_runs(steps: Steps) -> Ints:
    """Return where runs begin among steps in a zone, ascending, shape (R,).

    Steps must be as `collect_steps` gives them, less those elsewhere or without a past. A step goes on with the run
    before it if its history does, and is one step deeper into the same vehicle's walk. (With one earlier place only,
    and without the first steps of walks, trips of a vehicle that parks between them look like one.)
    """
    if steps.histories.shape[1] < 2:
        raise ParameterError("Runs are found by the places before: histories must have one or more earlier places.")
    past = steps.histories.shape[1] - 1
    goes_on = (
        (steps.histories[1:, 1:] == steps.histories[:-1, :-1]).all(axis=1)
        & (steps.vehicle[1:] == steps.vehicle[:-1])
        & (steps.depth[1:] == np.minimum(steps.depth[:-1] + 1, past))
    )
    return np.flatnonzero(np.concatenate([np.ones(min(1, len(steps)), bool), ~goes_on])).astype(np.int64)


def track(
    probabilities: npt.ArrayLike,
    rows: ZoneRows,
    steps: Steps,
    model: MobilityModel,
    *,
    reports: int = 10,
    seed: int = 0,
) -> Tracking:
    """Attack held-out walks with windows of reports.

    Parameters
    ----------
    probabilities
        Probability that each row reports each place of the zone, shape (S, P).
    rows
        The rows, and the rule from histories to them.
    steps
        Steps of held-out walks from `collect_steps`, with one or more earlier places; those outside the zone are
        ignored.
    model
        How vehicles move in the zone.
    reports
        T, the most reports that the attacker sees together.
    seed
        Seed of the drawn reports: they are the same for every T, and for mechanisms with the same probabilities.

    Raises
    ------
    MismatchError
        If probabilities, rows and model do not belong together.

    Examples
    --------
    With the `places`, `rows` and `counts` in the example of `make_rows`, and reports that are true:

    >>> from geoblanket.build.held_out import measure
    >>> from geoblanket.evaluate import MobilityModel, track
    >>> from geoblanket.mobility.histories import collect_steps
    >>> steps = collect_steps("walks.parquet", places, largest=1)
    >>> truth = (rows.histories[:, :1] == rows.zone).astype(float)
    >>> tracking = track(truth, rows, steps, MobilityModel.from_counts(rows, counts), reports=5)
    >>> measure(tracking.smoothed.success).loss
    1.0
    """
    return track_over_time(probabilities, rows, steps, model, lengths=[reports], seed=seed)[reports]


def track_over_time(
    probabilities: npt.ArrayLike,
    rows: ZoneRows,
    steps: Steps,
    model: MobilityModel,
    *,
    lengths: Iterable[int] = (1, 2, 5, 10, 20),
    seed: int = 0,
) -> dict[int, Tracking]:
    """Attack the same reports with windows of several lengths T; see `track`.

    Examples
    --------
    With the names in the example of `track`:

    >>> from geoblanket.evaluate import track_over_time
    >>> found = track_over_time(truth, rows, steps, MobilityModel.from_counts(rows, counts), lengths=[1, 5])
    >>> list(found)
    [1, 5]
    """
    q = np.asarray(probabilities, np.float64)
    if q.shape != (len(rows), len(rows.zone)):
        raise MismatchError(
            f"Probabilities of the shape {q.shape} do not belong to {len(rows)} rows and {len(rows.zone)} places."
        )
    here = steps.where(np.isin(steps.histories[:, 0], rows.zone))
    job = _Job(
        model=model,
        emissions=np.asarray(model.mixture(rows) @ q),
        distance_km=zone_distance_km(rows),
        place=np.searchsorted(rows.zone, here.histories[:, 0]).astype(np.int64),
        report=_drawn(q, rows.row_of(here.histories), seed),
        vehicle=here.vehicle,
        runs=find_runs(here),
    )
    return {reports: job.tracked(reports) for reports in lengths}


def _drawn(probabilities: Floats, rows: npt.NDArray[np.integer], seed: int) -> Ints:
    """Draw a report for each row: the number of cumulated probabilities at most as large as a random number."""
    # Not exact, as releases are: this is an estimate, and the seed makes it the same every time.
    chance = np.random.default_rng(seed).random(len(rows))
    cumulated = np.cumsum(probabilities, axis=1)
    cumulated /= cumulated[:, -1:]
    result = np.empty(len(rows), np.int64)
    for row, some in _by_value(rows):
        result[some] = np.searchsorted(cumulated[row], chance[some], side="right")
    return result


def _by_value(values: npt.NDArray[np.integer]) -> Iterable[tuple[int, Ints]]:
    """Yield each value and the positions that have it."""
    order = np.argsort(values, kind="stable").astype(np.int64)
    for some in np.split(order, np.flatnonzero(np.diff(values[order])) + 1):
        if len(some):
            yield int(values[some[0]]), some


@dataclass(frozen=True, eq=False)
class _Job:
    """Reports of the steps in a zone, and all that is needed to attack them."""

    model: MobilityModel
    emissions: Floats
    distance_km: Floats
    place: Ints
    report: Ints
    vehicle: Indices
    runs: Ints

    def tracked(self, reports: int) -> Tracking:
        if reports < 1:
            raise ParameterError(f"An attacker needs one report or more. Got {reports} instead.")
        first, length = _windows(self.runs, len(self.place), reports)
        guesses = np.zeros((3, 2, len(self.place)), np.int64)  # smoothed, filtered, prior × error, success
        for steps, some in _by_value(length):
            guesses[2][:, first[some][:, None] + np.arange(steps)] = self._guesses(
                prior_posteriors(self.model, steps)[:, :, None]
            ).transpose(0, 2, 1)
            size = max(1, _CELLS // (steps * len(self.distance_km)))
            for start in range(0, len(some), size):
                at = first[some[start : start + size]] + np.arange(steps)[:, None]
                posteriors = place_posteriors(self.model, self.emissions, self.report[at])
                guesses[0][:, at] = self._guesses(posteriors.smoothed)
                guesses[1][:, at] = self._guesses(posteriors.filtered)
        smoothed, filtered, prior = (self._attack(*each) for each in guesses)
        return Tracking(reports, smoothed, filtered, prior)

    def _guesses(self, posteriors: Floats) -> Ints:
        """Return the guesses of least error and of largest success for posteriors (T, P, B), shape (2, T, B)."""
        return np.stack([(self.distance_km @ posteriors).argmin(axis=1), posteriors.argmax(axis=1)])

    def _attack(self, nearest: Ints, likeliest: Ints) -> Attack:
        vehicle, whose = np.unique(self.vehicle, return_inverse=True)
        steps = np.bincount(whose, minlength=len(vehicle)).astype(np.float64)
        error, success = (
            VehicleLosses(vehicle.astype(np.int32), steps, np.bincount(whose, values, len(vehicle)).astype(np.float64))
            for values in (self.distance_km[nearest, self.place], likeliest == self.place)
        )
        return Attack(error, success)


def _windows(runs: Ints, steps: int, longest: int) -> tuple[Ints, Ints]:
    """Return the first step and the length of windows: each run is cut from its beginning."""
    length = np.diff(np.append(runs, steps))
    count = -(-length // longest)
    run = np.repeat(np.arange(len(runs)), count)
    number = np.arange(len(run)) - np.repeat(np.cumsum(count) - count, count)
    first: Ints = runs[run] + number * longest
    return first, np.minimum(longest, runs[run] + length[run] - first)
