"""An audit of private learning: attack it many times, and test whether it keeps its promise.

The attacker knows the walks of all other vehicles and guesses whether one vehicle was learned from. Models are learned
with it and without it, thousands of times, each with new noise; everything before the noise is computed once. There are
two attackers on each training:

    the noisy counts    more than is published; their log-likelihood ratio is the most powerful test
    the model           what is published; the attack learns from other models which of its numbers matter

The bounds below say what the attackers' errors prove. With the stated confidence, learning that keeps its promise stays
below it. Too little noise, or a vehicle that counts too much, exceeds it.

What an attack proves
---------------------
Its errors give a lower bound on the true privacy loss. An attack makes two errors: *false alarms*, at a rate FPR, and
*misses*; present vehicles are found at a rate TPR. Privacy bounds every attack:

    (ε, δ)          TPR ≤ e^ε · FPR + δ, and the same with the two hypotheses exchanged
    μ (Gaussian)    Φ⁻¹(TPR) − Φ⁻¹(FPR) ≤ μ

An attack that does better is a counterexample. Rates are counted, so they are taken at the bad end of exact confidence
intervals (Clopper and Pearson). Gaussian noise of a cost ρ, in zero-concentrated differential privacy, keeps
μ = √(2ρ), and no smaller one, so μ detects noise that is only somewhat too small. ε detects less with few runs: n runs
without a false alarm cannot prove an ε much above log n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.optimize import brentq
from scipy.special import betaincinv, log_ndtr, ndtr, ndtri

from geoblanket._arrays import Floats, Ints
from geoblanket._display import Progress, short_repr, silent
from geoblanket._tables import reading_parquet
from geoblanket._training import UNITS, PrivatePart
from geoblanket.errors import ParameterError
from geoblanket.learning.chain_cells import ChainCells
from geoblanket.learning.estimating import NoisyCounts, estimated
from geoblanket.learning.noise import BOUND, TrainingBudget
from geoblanket.learning.private import with_noise
from geoblanket.learning.unit_counts import UNITS_SHARE, UnitWalks, counted, kinds_of, split_budget
from geoblanket.mobility.walks import scan_walks_between
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places
from geoblanket.tracking.learning import learn_motion
from geoblanket.tracking.motion_model import MotionModel, length_bin

_FEWEST_RUNS = 4
_RIDGE = 1e-6
_LINES = 401
DEFAULT_TRAININGS: Final = 1000
DEFAULT_CONFIDENCE: Final = 0.999
_AT_ONCE: Final = 50
_IMPOSSIBLE: Final = 1e-9
"""Probability of a move that a model does not have."""

AddNoise = Callable[[dict[str, Ints], dict[str, float]], tuple[dict[str, NoisyCounts], tuple[PrivatePart, ...]]]


def clopper_pearson(hits: npt.ArrayLike, trials: npt.ArrayLike, *, confidence: float) -> tuple[Floats, Floats]:
    """Return a lower and an upper bound on a probability, each of which holds with the given confidence.

    Parameters
    ----------
    hits, trials
        How often it happened, and out of how many independent trials.
    """
    hits, trials = np.asarray(hits, np.float64), np.asarray(trials, np.float64)
    with np.errstate(invalid="ignore"):
        low = np.where(hits > 0, betaincinv(np.maximum(hits, 1e-9), trials - hits + 1, 1.0 - confidence), 0.0)
        high = np.where(hits < trials, betaincinv(hits + 1, np.maximum(trials - hits, 1e-9), confidence), 1.0)
    return low, high


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Return the ε of Gaussian differential privacy μ for a δ: the exact one (Dong, Roth and Su, 2022)."""
    if mu <= 0:
        return 0.0

    def excess(epsilon: float) -> float:
        above = math.exp(log_ndtr(mu / 2 - epsilon / mu))
        return above - math.exp(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))) - delta

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
    return float(brentq(excess, 0.0, high, xtol=1e-12))


@dataclass(frozen=True)
class ErrorRates:
    """How often an attack was right, counted on runs that it had not seen.

    Arrays stand for several attacks; counts that are expected may be fractions.
    """

    found: int | Floats
    """Runs with the vehicle in which the attack said so."""
    present: int
    """Runs with the vehicle."""
    false_alarms: int | Floats
    """Runs without it in which the attack said that it was there."""
    absent: int
    """Runs without it."""

    def _bounds(self, confidence: float) -> tuple[Floats, Floats]:
        """Return the least TPR and the largest FPR; both hold with the given confidence."""
        each = 1.0 - (1.0 - confidence) / 2
        least_found, _ = clopper_pearson(self.found, self.present, confidence=each)
        _, most_alarms = clopper_pearson(self.false_alarms, self.absent, confidence=each)
        return least_found, most_alarms

    def mu(self, *, confidence: float) -> Floats:
        """Return what μ, of Gaussian differential privacy, is at least."""
        found, alarms = self._bounds(confidence)
        bound: Floats = np.maximum(ndtri(found) - ndtri(alarms), 0.0)
        return bound

    def epsilon(self, delta: float, *, confidence: float) -> Floats:
        """Return what ε is at least for a δ, whatever the noise."""
        found, alarms = self._bounds(confidence)
        with np.errstate(divide="ignore"):
            odds = np.maximum((found - delta).clip(0.0) / alarms, (1 - alarms - delta).clip(0.0) / (1 - found))
            return np.maximum(np.log(odds), 0.0)


@dataclass(frozen=True)
class MembershipAttack:
    """Lower bounds that an attack proves."""

    rates: ErrorRates
    """At the threshold that was best for μ."""
    mu: float
    """μ of Gaussian differential privacy is at least this."""
    epsilon: float
    """ε is at least this for the δ asked for, whatever the noise."""
    epsilon_by_mu: float
    """ε is at least this where noise is Gaussian, as μ has it."""


def check_runs(runs: int, *, confidence: float) -> None:
    """Raise ParameterError if there are fewer than four runs of each kind, or if the confidence is none."""
    if runs < _FEWEST_RUNS:
        raise ParameterError(f"An audit needs {_FEWEST_RUNS} trainings or more, with the vehicle and without it.")
    if not 0 < confidence < 1:
        raise ParameterError(f"A confidence must be more than 0 and less than 1. Got {confidence:g} instead.")


def attack(present: Floats, absent: Floats, *, delta: float, confidence: float) -> MembershipAttack:
    """Tell runs with a vehicle from runs without it, and bound what that proves.

    On the first half of the runs of each kind the attack learns what to look at (a linear discriminant) and where to
    draw the line; the second half is what it is judged by.

    Parameters
    ----------
    present, absent
        What was seen in each run with the vehicle, and in each without it, shape (runs, features).
    delta
        δ of the promise.
    confidence
        With which each of the bounds holds.

    Raises
    ------
    ParameterError
        If there are fewer than four runs of each kind, or if the confidence is not between 0 and 1.
    """
    check_runs(min(len(present), len(absent)), confidence=confidence)
    halves = len(present) // 2, len(absent) // 2
    direction = _discriminant(present[: halves[0]], absent[: halves[1]])
    with_it, without_it = present @ direction, absent @ direction

    def best(value: Callable[[ErrorRates], Floats]) -> ErrorRates:
        own, others = with_it[: halves[0]], without_it[: halves[1]]
        lines = np.linspace(min(own.min(), others.min()), max(own.max(), others.max()), _LINES)
        # Each line is judged by fitted bell curves, not by its own counts: the best count may be luck.
        found, alarms = _expected(own, lines), _expected(others, lines)
        expected = value(ErrorRates(found, len(own), alarms, len(others)))
        gap = found / len(own) - alarms / len(others)
        top = np.lexsort((gap, expected))[-1]  # by the gap where no line would prove anything
        alike = np.flatnonzero((expected == expected[top]) & (gap == gap[top]))
        line = lines[alike[len(alike) // 2]]
        judged, judged_without = with_it[halves[0] :], without_it[halves[1] :]
        return ErrorRates(
            int((judged > line).sum()), len(judged), int((judged_without > line).sum()), len(judged_without)
        )

    by_mu = best(lambda rates: rates.mu(confidence=confidence))
    by_epsilon = best(lambda rates: rates.epsilon(delta, confidence=confidence))
    mu = float(by_mu.mu(confidence=confidence))
    return MembershipAttack(
        rates=by_mu,
        mu=mu,
        epsilon=float(by_epsilon.epsilon(delta, confidence=confidence)),
        epsilon_by_mu=epsilon_of_mu(mu, delta),
    )


def _expected(scores: Floats, lines: Floats) -> Floats:
    """Return how many scores are expected above each line."""
    low, middle, high = np.quantile(scores, [ndtr(-1.0), 0.5, ndtr(1.0)])
    spread = max(float(high - low) / 2, 1e-9 * float(np.ptp(lines)), 1e-30)
    count: Floats = len(scores) * ndtr((middle - lines) / spread)
    return count


def _discriminant(present: Floats, absent: Floats) -> Floats:
    """Return Fisher's linear discriminant, with a ridge for what hardly varies, shape (features,)."""
    scatter = np.zeros((present.shape[1],) * 2)
    for runs in (present, absent):
        off = runs - runs.mean(axis=0)
        scatter += off.T @ off / len(runs)
    scatter += (_RIDGE * np.trace(scatter) / len(scatter) + 1e-12) * np.eye(len(scatter))
    direction: Floats = np.linalg.solve(scatter, present.mean(axis=0) - absent.mean(axis=0))
    return direction


@dataclass(frozen=True)
class Audit:
    """Result of attacks on private learning. Made by `MembershipGame.played`."""

    epsilon: float
    """Promised for `delta`."""
    delta: float
    mu: float
    """Promised, as Gaussian differential privacy: √(2ρ) of all noise that was stated."""
    trainings: int
    """How many there were with the vehicle, and as many without it."""
    confidence: float
    """With which each bound holds."""
    on_counts: MembershipAttack
    """By an attacker who sees the noisy counts."""
    on_model: MembershipAttack | None
    """By an attacker who sees the model; None where no models were made."""

    @property
    def is_kept(self) -> bool:
        """Whether no attack proved that the promise was broken."""
        attacks = [found for found in (self.on_counts, self.on_model) if found is not None]
        return all(found.mu <= self.mu and found.epsilon <= self.epsilon for found in attacks)

    def __repr__(self) -> str:
        proven = max(found.epsilon for found in (self.on_counts, self.on_model) if found is not None)
        return short_repr(
            self,
            f"ε = {self.epsilon:g} promised for δ = {self.delta:g}",
            f"attacks prove {proven:.3g} or more",
            "kept" if self.is_kept else "broken",
            f"{self.trainings:,} trainings",
        )


@dataclass(frozen=True, eq=False)
class MembershipGame:
    """Learning with and without one vehicle; everything before the noise is computed once.

    Nothing is written to a ledger: all models are discarded.

    Examples
    --------
    Ten trainings with a vehicle and ten without it prove nothing yet:

    >>> from geoblanket import RoadGraph, TrainingBudget, choose_places, scan_walks
    >>> from benchmarks.membership_game import MembershipGame
    >>> graph = RoadGraph.load("city.roads")
    >>> places = choose_places(graph, spacing_m=500)
    >>> vehicle = scan_walks("walks.parquet")[0].head(1).collect()["vehicle"].item()
    >>> budget = TrainingBudget.of(1, 1e-6)
    >>> game = MembershipGame.of(graph, places, "walks.parquet", vehicle=vehicle, budget=budget, order=1)
    >>> audit = game.played(10, confidence=1 - 1e-9)
    >>> round(audit.mu, 2), audit.on_counts.mu, audit.is_kept
    (0.22, 0.0, True)
    """

    budget: TrainingBudget
    cells: ChainCells
    shares: dict[str, float]
    """What each part may cost."""
    present: dict[str, Ints]
    """Sums over all vehicles, by part, before noise."""
    absent: dict[str, Ints]
    """Sums over all vehicles but one."""
    trips: VehicleTrips
    """Of that one."""
    add_noise: AddNoise = with_noise

    @classmethod
    def of(
        cls,
        graph: RoadGraph,
        places: Places,
        walks: str | Path,
        *,
        vehicle: str,
        budget: TrainingBudget,
        order: int = 2,
        seed: int = 0,
        progress: Progress = silent,
    ) -> MembershipGame:
        """Count walks with a vehicle and without it, as `learn_privately` does.

        The attacker also sees the noisy number of vehicles. The rest of the budget is split by the number with the
        vehicle in both cases, so that all trainings have the same parts.

        Parameters
        ----------
        graph, places, walks, budget, order, seed
            As for `learn_privately`; the unit is the vehicle.
        vehicle
            Whose presence is guessed. One that drove where others seldom are is found most easily.

        Raises
        ------
        ParameterError
            If there is no such vehicle.
        InputError
            If a walk names no vehicle.
        """
        frame, about = scan_walks_between(walks, places)
        trips = VehicleTrips.read(frame, vehicle, path=walks)
        interval_s = float(about["interval_s"])
        road = learn_motion(graph, places, order=order, interval_s=interval_s, seed=seed, progress=progress)
        cells = ChainCells(road)
        kinds = dict(kinds_of(cells))
        whose = UnitWalks.read(frame, path=walks, unit="vehicle")
        shares = {UNITS: UNITS_SHARE * budget.rho}
        shares |= split_budget(budget.rho - shares[UNITS], int(whose.unit.max()) + 1, kinds)
        kinds = {name: kind for name, kind in kinds.items() if name in shares}
        others = frame.filter(pl.col("vehicle") != vehicle)
        present, absent = (
            counted(rows, walks_of, cells, kinds, path=walks, progress=progress)
            for rows, walks_of in ((frame, whose), (others, UnitWalks.read(others, path=walks, unit="vehicle")))
        )
        return cls(budget, cells, shares, present, absent, trips)

    def played(
        self,
        trainings: int = DEFAULT_TRAININGS,
        *,
        confidence: float = DEFAULT_CONFIDENCE,
        models: bool = True,
        progress: Progress = silent,
    ) -> Audit:
        """Learn many models with the vehicle and as many without it, and attack.

        Parameters
        ----------
        trainings
            How many models to learn with the vehicle, and as many without it, 4 or more.
        confidence
            Confidence of each bound. Learning that keeps its promise is wrongly found broken with a probability of at
            most 4 · (1 − confidence).
        models
            Whether to make models, too, and attack those; noisy counts alone take half the time.
        """
        check_runs(trainings, confidence=confidence)
        seen: list[tuple[Floats, Floats]] = []
        mu = 0.0
        for member, sums in enumerate((self.absent, self.present)):
            of_counts, of_models = [], []
            for first in range(0, trainings, _AT_ONCE):
                size = min(_AT_ONCE, trainings - first)
                # Noise is drawn for every number by itself: many trainings in one call are as independent as in many.
                drawn, parts = self.add_noise(
                    {name: np.tile(total, (size, 1)) for name, total in sums.items()}, self.shares
                )
                mu = float(np.sqrt(2 * sum(part.rho for part in parts)))
                for number in range(size):
                    counts = {name: NoisyCounts(part.counts[number], part.sigma) for name, part in drawn.items()}
                    of_counts.append([self.log_odds(counts)])
                    of_models.append(self.trips.seen_in(estimated(self.cells, counts)) if models else np.zeros(0))
                progress("trainings", member * trainings + first + size, 2 * trainings)
            seen.append((np.array(of_counts), np.array(of_models)))
        (absent_counts, absent_models), (present_counts, present_models) = seen
        delta = self.budget.delta
        return Audit(
            epsilon=self.budget.epsilon,
            delta=delta,
            mu=mu,
            trainings=trainings,
            confidence=confidence,
            on_counts=attack(present_counts, absent_counts, delta=delta, confidence=confidence),
            on_model=attack(present_models, absent_models, delta=delta, confidence=confidence) if models else None,
        )

    def log_odds(self, counts: dict[str, NoisyCounts]) -> float:
        """Return how much more probable noisy counts are with the vehicle than without it, as a logarithm."""
        odds = 0.0
        for name, noisy in counts.items():
            absent, added = self.absent[name] / BOUND, (self.present[name] - self.absent[name]) / BOUND
            odds += float((noisy.counts - absent - added / 2) @ added) / noisy.sigma**2
        return odds


@dataclass(frozen=True, eq=False)
class VehicleTrips:
    """The trips of one vehicle, to look for in models."""

    hours: Ints
    """Hours of the day in which they start, each once."""
    bins: Ints
    """Bins of their lengths, each once."""
    starts: Ints
    """Places where they start, each once."""
    walks: tuple[Ints, ...]
    """Places of each trip."""

    @classmethod
    def read(cls, frame: pl.LazyFrame, vehicle: str, *, path: str | Path) -> VehicleTrips:
        """Read the trips of a vehicle from walks.

        Raises
        ------
        ParameterError
            If the walks have no such vehicle.
        """
        rows = frame.filter(pl.col("vehicle") == vehicle).select("walk", "place", pl.col("time").dt.hour())
        with reading_parquet(path):
            trips = rows.collect().group_by("walk", maintain_order=True).agg("place", pl.col("time").first())
        if trips.is_empty():
            raise ParameterError(f"{path}: has no vehicle {vehicle!r}.")
        walks = tuple(np.array(places, np.int64) for places in trips["place"].to_list())
        return cls(
            hours=np.unique(trips["time"].to_numpy().astype(np.int64)),
            bins=np.unique(length_bin([len(walk) for walk in walks])),
            starts=np.unique([int(walk[0]) for walk in walks]),
            walks=walks,
        )

    def seen_in(self, model: MotionModel) -> Floats:
        """Return the log-probability in a model of each event of the vehicle, shape (events,).

        Events are hours and places of starts, lengths of trips, and runs of places as long as the model's memory.
        """
        by_place = np.bincount(model.present, model.start, model.place_count).astype(np.float64)
        seen: list[npt.NDArray[np.floating[Any]]] = [
            model.hours[self.hours],
            model.lengths[self.bins],
            by_place[self.starts],
            self._moves_in(model),
        ]
        result: Floats = np.log(np.concatenate(seen).astype(np.float64).clip(_IMPOSSIBLE))
        return result

    def _moves_in(self, model: MotionModel) -> Floats:
        """Return how probable each different run of places is to end as it does, after the places before."""
        width = model.memory + 1
        windows = [np.lib.stride_tricks.sliding_window_view(walk, width) for walk in self.walks if len(walk) >= width]
        runs = np.unique(np.concatenate([np.empty((0, width), np.int64), *windows]), axis=0)
        base = model.place_count + 1
        weights = base ** np.arange(model.states.shape[1], dtype=np.int64)
        keys = (model.states.astype(np.int64) + 1) @ weights
        order = np.argsort(keys)
        state = np.full(len(runs), -1, np.int64)
        for known in range(1, width):  # longer states stand for what shorter ones would
            past = runs[:, ::-1][:, 1 : known + 1] + 1
            asked = past @ weights[:known]
            position = np.searchsorted(keys[order], asked).clip(max=len(keys) - 1)
            state = np.where(keys[order][position] == asked, order[position], state)
        entry_keys = np.repeat(np.arange(len(model)), np.diff(model.offsets)) * base + model.present[model.targets]
        entry_order = np.argsort(entry_keys)
        asked = state * base + runs[:, -1]
        position = np.searchsorted(entry_keys[entry_order], asked).clip(max=len(entry_keys) - 1)
        entry = entry_order[position]
        result: Floats = np.where(entry_keys[entry] == asked, model.chances[entry], 0.0).astype(np.float64)
        return result
