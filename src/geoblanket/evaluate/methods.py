"""The methods that are compared: each makes a verified mechanism over rows of the same zone, for the same promise.

Context-free methods have one row for each place. What they promise between places at distance d holds between all
histories that lead there, whose distance is no smaller: so every method here keeps the promise of the history metric.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from geoblanket._arrays import Floats
from geoblanket._geodesy import haversine_m, local_metres
from geoblanket.build.rows import ZoneRows
from geoblanket.errors import MechanismError, ParameterError
from geoblanket.mechanism.baselines.const_opt import const_opt
from geoblanket.mechanism.baselines.exponential import exponential
from geoblanket.mechanism.baselines.planar_laplace import planar_laplace
from geoblanket.mechanism.baselines.remap import remap
from geoblanket.mechanism.baselines.tight import tight_constraints
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem
from geoblanket.mechanism.solver.optimiser import Outcome, optimise

__all__ = ["METHODS", "Made", "Method", "RowsKind", "Task", "make"]

_FEW_ROWS = 100

RowsKind = Literal["none", "markov:1", "predicted", "found"]
"""What of the past decides: nothing, the last place, the predicted blanket, or the blanket that the tests found."""


@dataclass(frozen=True, eq=False)
class Task:
    """What a method is asked for."""

    problem: Problem
    rows: ZoneRows
    gap: float
    """For linear programs: the gap to the optimum that is enough."""
    time_limit_s: float
    near_km: float
    """For ConstOPT; see `const_opt`."""

    @property
    def output_distance_km(self) -> Floats:
        """Great-circle distance from each row's present place to each output, kilometres, shape (S, K)."""
        lat, lon = self._degrees(self.rows.histories[:, 0])
        output_lat, output_lon = self._degrees(self.rows.zone)
        return haversine_m(lat[:, None], lon[:, None], output_lat, output_lon) / 1000

    @property
    def positions_km(self) -> tuple[Floats, Floats]:
        """Rows' present places and outputs in a plane that touches the Earth at the zone, shapes (S, 2) and (K, 2)."""
        lat, lon = self._degrees(self.rows.zone)
        origin = {"origin_lat": float(lat.mean()), "origin_lon": float(lon.mean())}
        rows, outputs = (
            np.column_stack(local_metres(*self._degrees(places), **origin)) / 1000
            for places in (self.rows.histories[:, 0], self.rows.zone)
        )
        return rows, outputs

    def _degrees(self, places: np.ndarray[tuple[int], np.dtype[np.int32]]) -> tuple[Floats, Floats]:
        lat, lon = (self.rows.places_e7[places] * 1e-7).T
        return lat, lon


@dataclass(frozen=True, eq=False)
class Made:
    """What a method made of a task."""

    mechanism: Mechanism | None
    """None if there is none that keeps the promise."""
    seconds: float
    """How long it took, rows and losses not counted."""
    lower_bound: float | None = None
    """Proven to be below the loss of every mechanism of the same rows, where known."""
    note: str = ""
    """What should be known about it; without a mechanism, the reason."""


@dataclass(frozen=True)
class Method:
    """One of the methods that are compared."""

    key: str
    label: str
    maker: Callable[[Task], Made | Mechanism]
    rows: RowsKind = "none"

    @property
    def uses_past(self) -> bool:
        """Whether earlier places decide."""
        return self.rows != "none"


def make(method: Method, task: Task) -> Made:
    """Let a method make its mechanism; one that cannot gives its reason instead."""
    started = time.perf_counter()
    try:
        made = method.maker(task)
    except (MechanismError, ParameterError) as error:
        return Made(None, time.perf_counter() - started, note=str(error))
    if isinstance(made, Made):
        return made
    return Made(made, time.perf_counter() - started)


def _optimal(task: Task) -> Made:
    # Small problems are solved closer to the optimum: it takes a second, and what context gains is not overstated.
    gap = task.gap if len(task.rows) > _FEW_ROWS else task.gap / 10
    optimum = optimise(task.problem, gap=gap, time_limit_s=task.time_limit_s)
    if optimum.outcome is Outcome.INTERRUPTED:
        # What was found so far must not count as finished.
        raise KeyboardInterrupt
    note = "" if optimum.gap <= task.gap else f"the gap of {task.gap:g} was not reached ({optimum.outcome.value})"
    return Made(optimum.mechanism, optimum.seconds, optimum.lower_bound, note)


def _const_opt(task: Task) -> Mechanism:
    return const_opt(task.problem, task.output_distance_km, near_km=task.near_km)


def _exponential_published(task: Task) -> Mechanism:
    return exponential(task.problem, task.output_distance_km)


def _exponential(task: Task) -> Mechanism:
    return exponential(task.problem, task.output_distance_km, calibrated=True)


def _planar_laplace(task: Task) -> Mechanism:
    return planar_laplace(task.problem, *task.positions_km)


METHODS = {
    method.key: method
    for method in (
        Method("lp_cmdp", "LP+C-mDP", _optimal, "predicted"),
        Method("lp_true_mb", "LP+TrueMB", _optimal, "found"),
        Method("lp_markov1", "LP+Markov1", _optimal, "markov:1"),
        Method("lp", "LP", _optimal),
        Method("constopt", "ConstOPT", _const_opt),
        Method("expmech", "ExpMech", _exponential),
        Method("expmech_published", "ExpMech, as published", _exponential_published),
        Method("expmech_remap", "ExpMech + remap", lambda task: remap(_exponential(task), task.problem)),
        Method("planar_laplace", "Planar Laplace", _planar_laplace),
        Method(
            "planar_laplace_remap", "Planar Laplace + remap", lambda task: remap(_planar_laplace(task), task.problem)
        ),
        Method("tight", "Tight constraints", lambda task: tight_constraints(task.problem)),
    )
}
"""All methods by their keys."""
