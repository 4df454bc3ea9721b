"""The compared methods: each makes a verified mechanism over rows of the same zone, for the same promise.

Context-free methods have one row for each place. Their promise between places at distance d holds between all histories
that end there, because those are at least d apart. So every method here keeps the promise of the history metric.

City-wide, the rows are all places of the city, any two of which are protected from each other, and no zone is
disclosed. The lattice promises more, between coordinates; the receiver replaces each cell by the best place, and an
attacker sees the cells.

A method of your own is a function in a Python file, named `FILE.py:FUNCTION`. It gets a `Problem` and returns a table
of probabilities, shape (S, K), or a `Mechanism`. It is not trusted: a table is repaired, and every result is verified
exactly for the problem. Settings, results and worker processes carry only its name; the file is read where the function
is called.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

import numpy as np

from geoblanket._arrays import Floats
from geoblanket._geodesy import haversine_m, local_metres
from geoblanket.build.rows import ZoneRows
from geoblanket.errors import GuaranteeViolation, MechanismError, ParameterError
from geoblanket.lab.baselines import (
    add_columns,
    best_replacements,
    const_opt,
    exponential,
    peaks,
    planar_laplace,
    remap,
    tight_constraints,
    truncated_exponential,
)
from geoblanket.mechanism.bundle.storage import save_lattice
from geoblanket.mechanism.lattice.making import Area, spec_over
from geoblanket.mechanism.lattice.spec import DENOMINATOR
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem
from geoblanket.mechanism.solver.optimiser import Outcome, optimise

_FORM: Final = "FILE.py:FUNCTION"
_TRIAL_SIDE: Final = 4
_TRIAL_KM: Final = 0.25


def is_own(method: str) -> bool:
    """Whether a method is named as a function in a file."""
    return ":" in method


@dataclass(frozen=True)
class OwnMaker:
    """Makes mechanisms by a function in a file."""

    file: Path
    function: str

    @classmethod
    def named(cls, method: str) -> OwnMaker:
        """Return the maker that a name stands for; the file is not read yet.

        Raises
        ------
        ParameterError
            If it is not of the form FILE.py:FUNCTION.
        """
        file, _, function = method.rpartition(":")
        if not file.endswith(".py") or not function.isidentifier():
            raise ParameterError(f"A method of your own is named {_FORM}. Got '{method}' instead.")
        return cls(Path(file), function)

    @property
    def label(self) -> str:
        """What reports call it."""
        return self.function.replace("_", " ")

    def load(self) -> Callable[[Problem], Any]:
        """Run the file, and return the function.

        Raises
        ------
        ParameterError
            If the file cannot be run, or has no such function.
        """
        spec = importlib.util.spec_from_file_location(self.file.stem, self.file)
        if not self.file.is_file() or spec is None or spec.loader is None:
            raise ParameterError(f"{self.file}: no such file. A method of your own is named {_FORM}.")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise ParameterError(f"{self.file}: cannot be run ({type(error).__name__}: {error}).") from error
        found: Callable[[Problem], Any] | None = getattr(module, self.function, None)
        if not callable(found):
            raise ParameterError(f"{self.file}: has no function '{self.function}'.")
        return found

    def try_out(self) -> None:
        """Call the function with a small problem, before any long work.

        A mechanism that breaks its promise is no reason to stop here: the comparison reports it for each zone.

        Raises
        ------
        ParameterError
            If the function cannot be loaded, fails, or returns a table of another shape.
        """
        self.load()
        km = _TRIAL_KM * np.stack(np.divmod(np.arange(_TRIAL_SIDE**2), _TRIAL_SIDE), axis=1)
        distance_km = np.linalg.norm(km[:, None] - km, axis=2)
        prior = np.full(len(km), 1 / len(km))
        try:
            self.make(Problem(loss=distance_km, prior=prior, distance_km=distance_km, epsilon=2.0))
        except (GuaranteeViolation, MechanismError):
            return
        except Exception as error:
            raise ParameterError(
                f"{self.file}: '{self.function}' must return a table of probabilities, a row for each secret and a "
                f"column for each output. With {len(km)} places on a grid it failed ({type(error).__name__}: {error})."
            ) from error

    def make(self, problem: Problem) -> Mechanism:
        """Return what the function makes of a problem, verified for this problem."""
        made = self.load()(problem)
        if isinstance(made, Mechanism):
            return Mechanism.from_weights(made.weights, problem)
        return Mechanism.from_probabilities(made, problem)


_FEW_ROWS = 100
_MOST_PLACES_LP = 400
"""City-wide, a linear program with more places takes longer than minutes."""
_MOST_WEIGHTS = 2**26
"""Of a lattice, places times cells: half a gigabyte."""

RowsKind = Literal["none", "order:1", "order:2", "order:3", "predicted", "found"]
"""Which part of the past determines the row: nothing, a fixed number of places, the predicted blanket, or the blanket
that tests found."""


@dataclass(frozen=True, eq=False)
class Task:
    """The problem that a method solves."""

    problem: Problem
    rows: ZoneRows
    gap: float
    """For linear programs: sufficient gap to the optimum."""
    time_limit_s: float
    near_km: float
    """Of ConstOPT and TEM; see `const_opt` and `truncated_exponential`."""
    city_wide: bool = False
    """The rows are all places of a city."""

    @property
    def output_distance_km(self) -> Floats:
        """Great-circle distance from each row's present place to each output, kilometres, shape (S, K)."""
        lat, lon = self.degrees(self.rows.histories[:, 0])
        output_lat, output_lon = self.degrees(self.rows.zone)
        return haversine_m(lat[:, None], lon[:, None], output_lat, output_lon) / 1000

    @property
    def positions_km(self) -> tuple[Floats, Floats]:
        """Rows' present places and outputs in a plane that touches the Earth at the zone, shapes (S, 2) and (K, 2)."""
        lat, lon = self.degrees(self.rows.zone)
        origin = {"origin_lat": float(lat.mean()), "origin_lon": float(lon.mean())}
        rows, outputs = (
            np.column_stack(local_metres(*self.degrees(places), **origin)) / 1000
            for places in (self.rows.histories[:, 0], self.rows.zone)
        )
        return rows, outputs

    def degrees(self, places: np.ndarray[tuple[int], np.dtype[np.int32]]) -> tuple[Floats, Floats]:
        """Return latitudes and longitudes of places."""
        lat, lon = (self.rows.places_e7[places] * 1e-7).T
        return lat, lon


@dataclass(frozen=True, eq=False)
class Made:
    """The result of a method for a task."""

    mechanism: Mechanism | None
    """None if no mechanism keeps the promise."""
    seconds: float
    """Time to make it, without rows and losses, seconds."""
    lower_bound: float | None = None
    """Proven to be below the loss of every mechanism of the same rows, where known."""
    note: str = ""
    """A remark; without a mechanism, the reason."""
    reports: Floats | None = None
    """Probability of each report from each row, if the mechanism includes the receiver's remapping; (S, any)."""
    epsilon_effective: float | None = None
    """The ε that reports spend, per kilometre, if it differs from the mechanism's."""
    stored_bytes: int | None = None
    """Bytes that a device stores, if that is not the mechanism."""


@dataclass(frozen=True)
class Method:
    """A compared method."""

    key: str
    label: str
    maker: Callable[[Task], Made | Mechanism]
    rows: RowsKind = "none"
    only_city_wide: bool = False
    """Whether it has no meaning for a zone."""

    @property
    def uses_past(self) -> bool:
        """Whether earlier places decide."""
        return self.rows != "none"


def make(method: Method, task: Task) -> Made:
    """Make the mechanism of a method, or return the reason why there is none."""
    started = time.perf_counter()
    try:
        made = method.maker(task)
    except (GuaranteeViolation, MechanismError, ParameterError) as error:
        return Made(None, time.perf_counter() - started, note=str(error))
    if isinstance(made, Made):
        return made
    return Made(made, time.perf_counter() - started)


def _optimal(task: Task) -> Made:
    if task.city_wide and len(task.rows) > _MOST_PLACES_LP:
        raise ParameterError(f"The linear program is for at most {_MOST_PLACES_LP} places. Got {len(task.rows):,}.")
    # Small problems are solved closer to the optimum in a second, so that gains of context are not overstated.
    gap = task.gap if len(task.rows) > _FEW_ROWS else task.gap / 10
    optimum = optimise(task.problem, gap=gap, time_limit_s=task.time_limit_s)
    if optimum.outcome is Outcome.INTERRUPTED:
        # An interrupted search must not count as finished.
        raise KeyboardInterrupt
    note = "" if optimum.gap <= task.gap else f"the gap of {task.gap:g} was not reached ({optimum.outcome.value})"
    return Made(optimum.mechanism, optimum.seconds, optimum.lower_bound, note)


def _const_opt(task: Task, far: Literal["scaled", "peaks"] = "scaled") -> Mechanism:
    return const_opt(task.problem, task.output_distance_km, near_km=task.near_km, far=far)


def _truncated(task: Task) -> Mechanism:
    return truncated_exponential(task.problem, task.output_distance_km, radius_km=task.near_km)


def _exponential_published(task: Task) -> Mechanism:
    return exponential(task.problem, task.output_distance_km)


def _exponential(task: Task) -> Mechanism:
    return exponential(task.problem, task.output_distance_km, calibrated=True)


def _planar_laplace(task: Task) -> Mechanism:
    return planar_laplace(task.problem, *task.positions_km)


def _peaks(task: Task) -> Made:
    started = time.perf_counter()
    made = peaks(task.problem)
    seconds = time.perf_counter() - started
    left_out = len(made.nearest) - len(made.kept)
    note = ""
    if left_out:
        note = (
            f"{left_out} of {len(made.nearest)} places are too near to others for this ε and use the row of a "
            f"neighbour up to {made.snapped_mm / 1000:.0f} m away, by which the promise is weaker there"
        )
    return Made(remap(made.mechanism, task.problem), seconds, note=note, reports=made.mechanism.probabilities)


def _lattice(task: Task) -> Made:
    started = time.perf_counter()
    lat, lon = task.degrees(task.rows.histories[:, 0])
    spec = spec_over(
        Area(float(lat.min()), float(lon.min()), float(lat.max()), float(lon.max())), epsilon=task.problem.epsilon
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "lattice.bundle"
        lattice = save_lattice(path, spec, version=1, interval_s=60.0).lattice
        size = path.stat().st_size
    seconds = time.perf_counter() - started
    if len(lat) * lattice.cells > _MOST_WEIGHTS:
        raise ParameterError(
            f"The lattice was made and verified in {seconds:.1f} s ({size:,} bytes). Its leakage is computed "
            f"for all places times all cells, {_MOST_WEIGHTS:,} at most: got {len(lat):,} times {lattice.cells:,}."
        )
    weights = np.stack([lattice.weights(float(a), float(b)) for a, b in zip(lat, lon, strict=True)])
    reports = weights / float(DENOMINATOR)
    # The promise adds the rounding of both coordinates to their distance; here it does so between places.
    added_mm = 2 * lattice.certificate.rounding_mm * ~np.eye(len(lat), dtype=bool)
    rounded = Problem.in_millimetres(
        loss=task.problem.loss,
        prior=task.problem.prior,
        distance_mm=task.problem.distance_mm + added_mm,
        epsilon=task.problem.epsilon,
    )
    received = add_columns(weights, best_replacements(reports, task.problem), task.problem.output_count)
    return Made(
        Mechanism.from_weights(received, rounded),
        seconds,
        reports=reports,
        epsilon_effective=lattice.certificate.epsilon_effective,
        stored_bytes=size,
    )


class _Methods(dict[str, Method]):
    """Methods by their keys. Users' own methods are not in the table, but are found by their names."""

    def __missing__(self, key: str) -> Method:
        if not is_own(key):
            raise KeyError(key)
        own = OwnMaker.named(key)
        return Method(key, own.label, lambda task: own.make(task.problem))


METHODS = _Methods(
    (method.key, method)
    for method in (
        Method("lp_cmdp", "LP+C-mDP", _optimal, "predicted"),
        Method("lp_true_mb", "LP+TrueMB", _optimal, "found"),
        Method("lp_markov1", "LP+Markov1", _optimal, "order:1"),
        Method("lp_order2", "LP+Order2", _optimal, "order:2"),
        Method("lp_order3", "LP+Order3", _optimal, "order:3"),
        Method("lp", "LP", _optimal),
        Method("constopt", "ConstOPT", _const_opt),
        Method("constopt_peaks", "ConstOPT, peaks", lambda task: _const_opt(task, "peaks")),
        Method("expmech", "ExpMech", _exponential),
        Method("expmech_published", "ExpMech, as published", _exponential_published),
        Method("expmech_remap", "ExpMech + remap", lambda task: remap(_exponential(task), task.problem)),
        Method("tem", "TEM", _truncated),
        Method("planar_laplace", "Planar Laplace", _planar_laplace),
        Method(
            "planar_laplace_remap", "Planar Laplace + remap", lambda task: remap(_planar_laplace(task), task.problem)
        ),
        Method("tight", "Tight constraints", lambda task: tight_constraints(task.problem)),
        Method("lattice", "Lattice", _lattice, only_city_wide=True),
        Method("peaks", "Peaks", _peaks, only_city_wide=True),
    )
)
"""All methods by their keys; one of your own has the key `FILE.py:FUNCTION`."""
