"""The rows of a zone, and the problem that a mechanism solves for them.

A context says what of the past decides how a location is perturbed. The rows say which histories share one, how
probable each is, where it leads, and how far apart they are. With a loss they make the problem.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Floats, Indices, Ints, Positions
from geoblanket._display import counted, short_repr
from geoblanket._geodesy import haversine_m
from geoblanket.build.row_tree import FixedLengths, Lengths, Reach, every_history, grow_rows
from geoblanket.errors import ParameterError
from geoblanket.loss.place_loss import PlaceLoss
from geoblanket.mechanism.costs import weight_in_micro
from geoblanket.mechanism.history_table import HistoryTable
from geoblanket.mechanism.metric import Metric
from geoblanket.mechanism.problem import Problem, kilometres
from geoblanket.mechanism.row_distances import row_distances
from geoblanket.mobility.histories import LONGEST_PAST, Distributions, HistoryCounts, backed_off, near_places
from geoblanket.roads.places import Places

DEFAULT_HISTORY_WEIGHTS = (1.0, 0.5, 0.25)
"""What the places at t − 1, t − 2 and t − 3 count in the distance of two histories."""


@dataclass(frozen=True)
class Context:
    """What of the past decides; `Context.of` reads it from its name."""

    kind: Literal["none", "order", "blanket", "full"]
    """`none`: the present place only; `order`: a fixed number of earlier places; `blanket`: as many as the Markov
    blanket has; `full`: all, and every history within reach has a row of its own."""
    order: int = 0
    """How many earlier places `order` looks at."""
    lengths: Lengths | None = field(default=None, compare=False, repr=False)
    """How long the blanket is; needed where rows are made of it."""

    @classmethod
    def of(cls, context: Context | str | Lengths) -> Context:
        """Return the context named `none`, `order:1` (to `order:3`), `blanket` or `full`, or that of lengths.

        `markov:1`, the name in versions up to 0.2, is `order:1`.
        """
        if isinstance(context, Context):
            return context
        if callable(context):
            return cls("blanket", lengths=context)
        name = str(context).replace("markov:", "order:")
        if name not in (named := {str(known): known for known in _CONTEXTS}):
            raise ParameterError(
                f"The context must be none, order:1 to order:{LONGEST_PAST}, blanket or full. "
                f"Got {str(context)[:20]!r} instead."
            )
        return named[name]

    def past(self, most: int) -> int:
        """Return how many earlier places it looks at, where histories have `most`."""
        return {"none": 0, "order": self.order}.get(self.kind, most)

    def __str__(self) -> str:
        return f"order:{self.order}" if self.kind == "order" else self.kind


NO_CONTEXT = Context("none")
_CONTEXTS = (
    NO_CONTEXT,
    Context("blanket"),
    Context("full"),
    *(Context("order", order) for order in range(1, LONGEST_PAST + 1)),
)


MAX_ROWS = 1000
"""Rows of a zone, by default: more make the loss smaller, and the search longer than a minute."""
_SHRINKS = (0.0, 0.35, 0.5, 0.7, 1.0)
"""What the radius of rows may shrink by from lag to lag; see `grow_rows`."""
_TRIAL_SIZE = 5_000
"""Rows times outputs of a trial, which takes a few seconds. Few outputs, spread over the zone, rank rows as all do. A
part of the zone does not: the wider the zone, the more rows at t − 1 are worth."""
_FEWEST_OUTPUTS = 5
_TRIAL_GAP = 0.005
"""Rows that look back further must lose less by this share."""
_TRIAL_S = 3600.0
"""Trials are never cut short, so that a busy machine chooses the same rows."""
_BYTES_PER_PAIR = 40
"""Of memory, for each pair of rows: distances, and what is needed to find them."""

_PSEUDO_COUNT = 0.1
"""Steps added to those seen at each place, so that no row has a prior of 0."""
_TYPICAL_M = 300.0


@dataclass(frozen=True, eq=False)
class Aim:
    """What rows are for: their worth is what they save of this loss, under this promise."""

    loss: PlaceLoss
    epsilon: float = 2.0
    """ε per kilometre."""
    eta_km: float = 5.0
    """The largest distance at which rows are constrained, kilometres."""


@dataclass(frozen=True)
class RowsReport:
    """How many histories of a zone were seen, and how many rows it has."""

    context: str
    places: int
    """Places of the zone, which are its outputs too."""
    steps: int
    """Steps of the training walks in the zone."""
    unseen_places: int
    """Places of the zone where none of them was."""
    histories_seen: int
    """How many different histories were seen."""
    rows: int
    """How many histories have a row of their own; any other uses the row of the nearest."""
    rows_by_lag: tuple[int, ...] = ()
    """How many rows look back to the present place only, to t − 1, to t − 2, ...; empty in records of 0.2."""
    prior_by_lag: tuple[float, ...] = ()
    """How probable these rows are, together."""

    @property
    def by_lag(self) -> str:
        """The rows that look back to t − 1, t − 2, ..., and how probable those beyond t − 1 are: "120 + 80 (55%)"."""
        rows = " + ".join(f"{rows:,}" for rows in self.rows_by_lag[1:])
        return f"{rows} ({self.deeper_share:.0%})" if len(self.rows_by_lag) > 2 else f"{self.rows:,}"

    @property
    def deeper_share(self) -> float:
        """The share of the probability in rows that look further back than t − 1."""
        return sum(self.prior_by_lag[2:])


@checked
@dataclass(frozen=True, eq=False)
class ZoneRows:
    """The rows of a zone and regime; made by `make_rows`.

    Examples
    --------
    With the `rows` in the example of `make_rows`:

    >>> rows.histories.shape == (len(rows), 2)  # the present place and the one before
    True
    >>> rows.distance_mm.shape == (len(rows), len(rows))
    True
    """

    places_e7: Indices
    """Latitude and longitude of all places in 1e-7 degrees, shape (P, 2)."""
    zone: Indices
    """The places of the zone, ascending: the outputs."""
    history_weights: tuple[float, ...]
    """What each earlier place counts in distances, Γ values."""
    histories: Indices
    """The history that each row stands for: places at t, t − 1, ..., −1 for any; shape (S, 1 + Γ)."""
    prior: Floats
    """How probable each row is, shape (S,)."""
    next_place: Distributions
    """Where a vehicle is after the delay, shape (S, P)."""
    distance_mm: Ints
    """Row distances in millimetres, rounded down; `NEVER_MM` for infinitely far; shape (S, S)."""
    report: RowsReport
    unit: str = "km"
    """What distances are counted in."""

    def __len__(self) -> int:
        return len(self.prior)

    @property
    def distance_km(self) -> Floats:
        """Row distances in kilometres, shape (S, S)."""
        return kilometres(self.distance_mm)

    @cached_property
    def table(self) -> HistoryTable:
        """The public rule from histories to rows."""
        return HistoryTable(self.places_e7, self.histories, np.arange(len(self), dtype=np.int32))

    def measured(self, metric: Metric) -> ZoneRows:
        """Return the same rows with their distances in another metric between places."""
        weights = tuple(map(weight_in_micro, self.history_weights))
        distance_mm = row_distances(self.table, [metric] * (1 + len(weights)), weights)
        return replace(self, distance_mm=distance_mm, unit=metric.unit)

    def row_of(self, histories: npt.ArrayLike) -> Indices:
        """Return the row of each history, shape (n,); see `HistoryTable.row_of`."""
        return self.table.row_of(histories)

    def __repr__(self) -> str:
        past = counted(len(self.history_weights), "earlier place")
        return short_repr(self, counted(len(self), "row"), counted(len(self.zone), "output"), f"{past} in a history")


@checked
def make_rows(
    places: Places,
    zone: npt.ArrayLike,
    counts: HistoryCounts,
    *,
    reach_m: float,
    context: Context | str | Lengths = "blanket",
    history_weights: Sequence[float] = DEFAULT_HISTORY_WEIGHTS,
    max_rows: int = MAX_ROWS,
    aim: Aim | None = None,
) -> ZoneRows:
    """Make the rows of a zone.

    If every history that was seen fits, each has a row. Otherwise several ways to divide the rows among the lags are
    tried with some of the outputs, and the one with the least loss is taken. The first has no places before t − 1.

    If no training step lies in the zone, all its places are equally probable and vehicles move to nearby places; the
    report says so.

    Parameters
    ----------
    places
        All places.
    zone
        The places of the zone.
    counts
        Histories of training walks, of one regime; those elsewhere are left out.
    reach_m
        How far apart the places of a history can be, metres; see `reach_radius_m`.
    context
        See `Context`; "blanket" stands for lengths of blankets, which are given instead (`Lengths`).
    history_weights
        What earlier places count in distances, the latest first; `inf` for a past that is known.
    max_rows
        The most rows, except with the context "full"; never fewer than places.
    aim
        What rows are for; None for the straight-line distance with ε = 2 per km.

    Examples
    --------
    With the `graph` in the example of `import_roads`:

    >>> from geoblanket import choose_places
    >>> from geoblanket.build import make_rows
    >>> from geoblanket.mobility.histories import count_histories
    >>> places = choose_places(graph, spacing_m=500)
    >>> counts = count_histories("walks.parquet", places, largest=1)
    >>> rows = make_rows(places, range(8), counts, reach_m=1000, context="order:1", history_weights=[1], max_rows=20)
    >>> len(rows) <= 20
    True
    """
    context = Context.of(context)
    zone = np.unique(np.asarray(zone, np.int32))
    _check(places, zone, max_rows)
    largest = _largest(context, history_weights, counts)
    reach = Reach(places.coordinates_e7, reach_m)
    seen = counts.where(np.isin(counts.histories[:, 0], zone))
    seen = replace(seen, histories=seen.histories[:, : largest + 1])
    rows_of = partial(
        _rows_of_histories, places, reach_m=reach_m, history_weights=history_weights, context=str(context)
    )
    if context.kind == "full":
        return rows_of(zone, every_history(zone, reach, largest=largest), seen)
    grow = partial(grow_rows, reach=reach, largest=largest, lengths=_lengths(context, largest))
    listed, complete = grow(zone, seen, max_rows=max_rows, shrink=_SHRINKS[-1])
    if largest == 1 or complete:
        return rows_of(zone, listed, seen)
    trials = (rows_of(zone, grow(zone, seen, max_rows=max_rows, shrink=shrink)[0], seen) for shrink in _SHRINKS)
    return _best_rows(trials, _spread(places, zone, _TRIAL_SIZE // max_rows), aim or _default_aim(places))


def _best_rows(trials: Iterator[ZoneRows], outputs: Positions, aim: Aim) -> ZoneRows:
    """Return the rows that lose least with some of the outputs; of equally good ones the first, which look back least.

    Each of the trials looks back further than the one before. Once they lose more, so do the rest.
    """
    from geoblanket.mechanism.solver.optimiser import optimise

    def loss(rows: ZoneRows) -> float:
        problem = make_problem(rows, aim.loss, epsilon=aim.epsilon, eta_km=aim.eta_km)
        problem = replace(problem, loss=problem.loss[:, outputs])
        return optimise(problem, gap=_TRIAL_GAP, time_limit_s=_TRIAL_S).loss

    best = next(trials)
    least, before = loss(best), best
    for rows in trials:
        if np.array_equal(rows.histories, before.histories):
            continue
        before, found = rows, loss(rows)
        if found > least * (1 + _TRIAL_GAP):
            break
        if found < least * (1 - _TRIAL_GAP):
            best, least = rows, found
    return best


def _default_aim(places: Places) -> Aim:
    from geoblanket.loss.standard import StraightLine

    return Aim(StraightLine(places))


def _spread(places: Places, zone: Indices, count: int) -> Positions:
    """Return the positions of some places of a zone, each as far from those before it as can be."""
    lat, lon = places.lat[zone], places.lon[zone]
    chosen, away = [0], haversine_m(lat[0], lon[0], lat, lon)
    for _ in range(1, min(max(_FEWEST_OUTPUTS, count), len(zone))):
        chosen.append(int(away.argmax()))
        away = np.minimum(away, haversine_m(lat[chosen[-1]], lon[chosen[-1]], lat, lon))
    return np.sort(chosen)


def _rows_of_histories(
    places: Places,
    zone: Indices,
    listed: Indices,
    seen: HistoryCounts,
    *,
    reach_m: float,
    history_weights: Sequence[float],
    context: str,
) -> ZoneRows:
    """Make the rows of listed histories, −1 for any place, shape (S, 1 + Γ)."""
    _check_memory(len(listed))
    coordinates = places.coordinates_e7
    weights = tuple(history_weights[: listed.shape[1] - 1])
    numbers = np.arange(len(listed), dtype=np.int32)
    table, metric = HistoryTable(coordinates, listed, numbers), Metric.haversine(coordinates)
    of_seen = table.row_of(seen.histories)
    prior = _prior(listed[:, 0], np.bincount(of_seen, seen.count, len(listed)).astype(np.float64))
    return ZoneRows(
        places_e7=coordinates,
        zone=zone,
        history_weights=weights,
        histories=listed,
        prior=prior,
        next_place=_next_places(places, listed, of_seen, seen, reach_m),
        distance_mm=row_distances(table, [metric] * listed.shape[1], tuple(map(weight_in_micro, weights))),
        report=_report(context, zone, seen, listed, prior),
    )


def _check_memory(rows: int) -> None:
    needed, there = _BYTES_PER_PAIR * rows**2, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise ParameterError(
            f"{rows:,} rows need about {needed / 1e9:,.0f} GB for their distances, and this machine has "
            f"{there / 1e9:,.0f} GB. Set a smaller max_rows."
        )


def _check(places: Places, zone: Indices, max_rows: int) -> None:
    problems = []
    if not len(zone) or zone[0] < 0 or zone[-1] >= len(places):
        problems.append("the zone must have one place or more, all of them among the places")
    if max_rows < 1:
        problems.append(f"max_rows must be at least 1, got {max_rows}")
    if problems:
        raise ParameterError("Rows cannot be made: " + "; ".join(problems) + ".")


def _largest(context: Context, history_weights: Sequence[float], counts: HistoryCounts) -> int:
    """Return Γ, how many earlier places a context looks at."""
    largest = min(len(history_weights), counts.largest)
    if largest < context.past(1):
        raise ParameterError(
            f"The context {context} needs {context.past(1)} history weight(s), and histories with as many earlier "
            f"places. Got {len(history_weights)} and {counts.largest} instead."
        )
    return context.past(largest)


def _lengths(context: Context, largest: int) -> Lengths:
    if context.kind != "blanket":
        return FixedLengths(largest)
    if context.lengths is None:
        raise ParameterError("The context 'blanket' needs lengths: how long the blanket is. Give them as the context.")
    return context.lengths


def _prior(present: Indices, seen: Floats) -> Floats:
    """Return the probabilities of rows: as they were seen, and a little for each place, whether seen or not.

    No row gets 0: its loss would not count, and nothing would guide the search there.
    """
    _, place = np.unique(present, return_inverse=True)
    mass = seen + _PSEUDO_COUNT / np.bincount(place)[place]
    prior: Floats = mass / mass.sum()
    return prior


def _next_places(
    places: Places, histories: Indices, of_seen: Indices, seen: HistoryCounts, reach_m: float
) -> Distributions:
    """Return where each row leads: its own counts, backed off to those of the histories that begin alike."""
    shape = (len(histories), len(places))
    counts = csr_array((seen.count.astype(np.float64), (of_seen, seen.next_place)), shape=shape)
    result = near_places(places, histories[:, 0], reach_m=reach_m, typical_m=_TYPICAL_M)
    size = np.full(len(histories), 0)
    for lag in range(histories.shape[1]):
        _, group = np.unique(histories[:, : lag + 1], axis=0, return_inverse=True)
        group = group.ravel()
        rows = np.bincount(group)[group]
        together = csr_array((np.ones(len(group)), (group, np.arange(len(group)))))
        finer = backed_off(csr_array((together @ counts)[group]), result)
        # A group that is all of the larger one would count its steps twice.
        result = _chosen(rows != size, finer, result)
        size = rows
    return result


def _chosen(use_finer: Bools, finer: Distributions, coarser: Distributions) -> Distributions:
    """Return the rows of `finer` where they are to be used, else those of `coarser`."""
    pick = use_finer.astype(np.float64)
    return csr_array(finer.multiply(pick[:, None]) + coarser.multiply(1 - pick[:, None]))


def _report(context: str, zone: Indices, seen: HistoryCounts, listed: Indices, prior: Floats) -> RowsReport:
    lag = (listed >= 0).sum(axis=1) - 1
    return RowsReport(
        context=context,
        places=len(zone),
        steps=int(seen.count.sum()),
        unseen_places=int(len(zone) - len(np.unique(seen.histories[:, 0]))),
        histories_seen=len(np.unique(seen.histories, axis=0)),
        rows=len(listed),
        rows_by_lag=tuple(np.bincount(lag).tolist()),
        prior_by_lag=tuple(np.bincount(lag, prior).tolist()),
    )


@checked
def make_problem(rows: ZoneRows, loss: PlaceLoss, *, epsilon: float, eta_km: float = math.inf) -> Problem:
    """Return the problem of a zone; its outputs are the places of the zone, in order.

    Parameters
    ----------
    rows
        Rows with their prior, next places and distances.
    loss
        The cost of reporting a place when another is true.
    epsilon
        ε per kilometre.
    eta_km
        The largest distance at which rows are constrained, kilometres.

    Examples
    --------
    With the `places` and the `rows` in the example of `make_rows`:

    >>> from geoblanket.build import make_problem
    >>> from geoblanket.loss.standard import StraightLine
    >>> problem = make_problem(rows, StraightLine(places), epsilon=2.0, eta_km=5.0)
    >>> problem.loss.shape == (len(rows), 8)
    True
    """
    used = np.unique(rows.next_place.indices).astype(np.int32)
    # What an output costs in a row: the mean over where the vehicle is when the service uses the report.
    row_loss = np.asarray(rows.next_place[:, used] @ loss(used, rows.zone).values)
    mm, unit = rows.distance_mm, rows.unit
    return Problem.in_millimetres(
        loss=row_loss, prior=rows.prior, distance_mm=mm, epsilon=epsilon, eta_km=eta_km, unit=unit
    )
