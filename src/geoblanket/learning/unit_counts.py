"""Counts of walks by unit (a vehicle or a trip), and their sums with every unit scaled to the same length.

A unit's counts of one kind are a vector. Scaled to Euclidean length 1, in fixed point and rounded down, it changes the
sums by at most 1, however much the unit drove: the bound does not depend on the data. Scaling up, and not only down,
gives those who drove little the same weight.

`kinds_of` lists the numbers that are counted for a model, and `split_budget` the cost of each. The road network gives
the cells. The number of units (declared or noisy), ε and δ decide which kinds are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from geoblanket._arrays import Indices, Ints
from geoblanket._display import Progress, silent
from geoblanket._tables import reading_parquet
from geoblanket._training import UNITS, Unit
from geoblanket.errors import InputError
from geoblanket.learning.chain_cells import ChainCells, regions
from geoblanket.learning.noise import BOUND
from geoblanket.mobility.walks import walk_batches
from geoblanket.tracking.motion_model import HOURS, LENGTH_BINS, length_bin

_STEPS_AT_ONCE: Final = 16_000_000
"""Steps that are counted in one pass: more steps need more passes, not more memory."""
_LONGEST_RUN: Final = 4

Sums = dict[str, Ints]
RUNS: Final = ("runs", "long runs")
"""Runs of three places, and of four."""
UNITS_SHARE: Final = 0.02
"""Share of the budget for counting the units, where their number is not declared."""
_FINE_SHARE: Final = 0.5
"""Share of single places in the budget for places; the squares get the rest."""
_COARSE_WEIGHTS: Final = {"hours": 0.02, "lengths": 0.02, "starts": 0.3, "places": 0.15, "turns": 0.15}
_FINE_WEIGHTS: Final = {"moves": 0.12, "runs": 0.3, "long runs": 0.2}
_COARSE_LESS: Final = 0.7
"""Share by which coarse counts cost less for a large fleet, whose counts are large."""
_SMALL_FLEET, _LARGE_FLEET = 50.0, 500.0
"""Number of units over the noise of a single count. Fine counts begin at the first, and have full weight from the
second."""


@dataclass(frozen=True, eq=False)
class UnitWalks:
    """Walks, and the unit of each."""

    walk: Ints
    """Numbers of all walks, ascending, shape (W,)."""
    unit: Ints
    """The unit of each walk, numbered from 0, shape (W,)."""
    start_hour: Ints
    """Hour of the day, UTC, of each walk's first step, shape (W,)."""
    start_place: Ints
    steps: Ints

    @classmethod
    def read(cls, frame: pl.LazyFrame, *, path: str | Path, unit: Unit) -> UnitWalks:
        """Read the unit, the start and the length of each walk of a table.

        Raises
        ------
        InputError
            If a walk names several vehicles or trips: only the first of them would be hidden. If a walk names no
            vehicle, and the unit is the vehicle. Each check depends on one walk alone.
        """
        columns = frame.group_by("walk").agg(
            pl.col("vehicle").first(),
            pl.col("trip").first(),
            pl.col("time").min().dt.hour().alias("hour"),
            pl.col("place").sort_by("step").first(),
            pl.len().alias("steps"),
            (pl.col("vehicle").n_unique() + pl.col("trip").n_unique()).alias("names"),
        )
        with reading_parquet(path):
            walks = columns.collect(engine="streaming").sort("walk")
        shared = walks.filter(pl.col("names") > 2)["walk"]
        if len(shared):
            raise InputError(
                f"walk {shared[0]} names more than one vehicle or trip", path=path, hint="Match the traces again"
            )
        if unit == "vehicle" and (walks["vehicle"].fill_null("").str.strip_chars() == "").any():
            raise InputError(
                "a walk names no vehicle, so that no vehicle can be hidden with all its trips",
                path=path,
                hint="Leave such walks out, or learn with unit=trip, which promises nothing to vehicles",
            )
        whose = pl.struct("vehicle") if unit == "vehicle" else pl.struct("vehicle", "trip")
        numbered = walks.select(whose.rank("dense").cast(pl.Int64) - 1).to_series().to_numpy()
        hour, place, steps = (walks[name].to_numpy().astype(np.int64) for name in ("hour", "place", "steps"))
        return cls(walks["walk"].to_numpy(), numbered, hour, place, steps)


@dataclass(frozen=True, eq=False)
class UnitCounts:
    """How often each unit was in each cell; each pair of unit and cell comes once."""

    unit: Ints
    cell: Ints
    count: Ints

    @classmethod
    def of(cls, unit: Ints, cell: Ints, count: Ints | None = None) -> UnitCounts:
        """Count pairs of unit and cell, shape (n,); a cell of −1 is left out."""
        known = np.flatnonzero(cell >= 0)
        width = int(cell.max(initial=0)) + 1
        key = unit[known] * width + cell[known]
        # Without counts only the keys need sorting, which is several times as fast as to find their order.
        order = None if count is None else np.argsort(key, kind="stable")
        key = np.sort(key) if order is None else key[order]
        first = np.flatnonzero(np.diff(key, prepend=-1))
        if order is None or count is None:
            often = np.diff(np.append(first, len(key)))
        else:
            often = np.add.reduceat(count[known][order], first)
        return cls(*np.divmod(key[first], width), often.astype(np.int64))

    def grouped(self, group: Ints) -> UnitCounts:
        """Return the counts of groups of cells, by the group of each cell."""
        return UnitCounts.of(self.unit, group[self.cell], self.count)

    def scaled(self) -> Ints:
        """Return each unit's counts, scaled to Euclidean length `BOUND` and rounded down, shape (n,)."""
        count = self.count.astype(np.float64)
        length = np.sqrt(np.bincount(self.unit, count * count))
        # A hair less, so that no rounding of floats lifts a whole number above the exact value.
        values: Ints = np.floor(count * (BOUND * (1 - 1e-12)) / length[self.unit]).astype(np.int64)
        return values

    def sums(self, cells: int) -> Ints:
        """Return the sums of the scaled counts of all units, shape (cells,)."""
        values = self.scaled()
        lengths = np.zeros(int(self.unit.max(initial=-1)) + 1, np.int64)
        np.add.at(lengths, self.unit, values * values)
        values[lengths[self.unit] > BOUND * BOUND] = 0  # a second guard: a unit beyond the bound does not count
        sums = np.zeros(cells, np.int64)
        np.add.at(sums, self.cell, values)
        return sums


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of numbers to count: cells, or groups of cells."""

    source: str
    """What is counted: `UNITS`, "hours", "lengths", "starts", "places", "moves", "runs" or "long runs"."""
    cells: int
    group: Ints | None = None
    """The group of each cell of the source; None: cells are counted singly."""


def counted(
    frame: pl.LazyFrame,
    walks: UnitWalks,
    cells: ChainCells,
    kinds: dict[str, Kind],
    *,
    path: str | Path,
    progress: Progress = silent,
) -> Sums:
    """Return the sums over all units, each scaled to length `BOUND`, of each kind of numbers, by name."""
    sums = {name: np.zeros(kind.cells, np.int64) for name, kind in kinds.items()}
    blocks = max(1, -(-int(walks.steps.sum()) // _STEPS_AT_ONCE))
    for block in range(blocks):
        found = dict(_of_trips(walks, block, blocks))
        found |= _Reading(frame, walks, cells, path, {kind.source for kind in kinds.values()}, block, blocks).gathered(
            progress
        )
        for name, kind in kinds.items():
            of_source = found[kind.source]
            sums[name] += (of_source if kind.group is None else of_source.grouped(kind.group)).sums(kind.cells)
    return sums


def _of_trips(walks: UnitWalks, block: int, blocks: int) -> Iterator[tuple[str, UnitCounts]]:
    some = walks.unit % blocks == block
    unit = walks.unit[some]
    yield UNITS, UnitCounts.of(unit, np.zeros_like(unit))
    yield "hours", UnitCounts.of(unit, walks.start_hour[some])
    yield "lengths", UnitCounts.of(unit, length_bin(walks.steps[some]))
    yield "starts", UnitCounts.of(unit, walks.start_place[some])


@dataclass(frozen=True, eq=False)
class _Reading:
    """One pass over the steps of walks, for the units of one block."""

    frame: pl.LazyFrame
    walks: UnitWalks
    cells: ChainCells
    path: str | Path
    sources: set[str]
    block: int
    blocks: int

    def gathered(self, progress: Progress) -> dict[str, UnitCounts]:
        """Return the counts of the units of the block."""
        parts: dict[str, list[tuple[Indices, Indices]]] = {
            name: [] for name in ("places", "moves", *RUNS) if name in self.sources
        }
        if not parts:
            return {}
        rows = self.frame.select("walk", "step", "place")
        # The last steps of a batch are kept as the past of the next batch.
        kept = np.empty((3, 0), np.int64)
        steps = int(self.walks.steps.sum())
        done = self.block * steps
        for batch in walk_batches(rows, path=self.path, place_count=self.cells.places):
            fresh = np.stack([batch[name].to_numpy().astype(np.int64) for name in ("walk", "step", "place")])
            columns = np.concatenate([kept, fresh], axis=1)
            new = np.arange(kept.shape[1], columns.shape[1])
            unit = self.walks.unit[np.searchsorted(self.walks.walk, columns[0, new])]
            use = unit % self.blocks == self.block
            for name, cell in self._cells(columns, new[use]):
                if name in parts:
                    known = cell >= 0
                    parts[name].append((unit[use][known].astype(np.int32), cell[known].astype(np.int32)))
            kept = columns[:, -(_LONGEST_RUN - 1) :]
            done += batch.height
            progress("counting walks", done, self.blocks * steps)
        # One kind after the other, and its parts are freed, to bound memory.
        found = {}
        for name in list(parts):
            units, numbers = (
                np.concatenate([np.empty(0, np.int32), *(part[side] for part in parts[name])]).astype(np.int64)
                for side in (0, 1)
            )
            del parts[name]
            found[name] = UnitCounts.of(units, numbers)
        return found

    def _cells(self, columns: Ints, now: Ints) -> Iterator[tuple[str, Ints]]:
        """Yield the cells of the steps at some positions, −1 where the walk is too short."""
        _, step, place = columns
        yield "places", place[now]
        before = [place[np.maximum(now - lag, 0)] for lag in range(_LONGEST_RUN)]
        run = np.where(step[now] >= 1, self.cells.move(before[1], before[0]), -1)
        yield "moves", run
        prefix = np.where(step[now] >= 2, self.cells.move(before[2], before[1]), -1)
        for number, runs in enumerate(self.cells.runs):
            run = self.cells.run(runs, prefix, before[0])
            yield RUNS[number], run
            if number + 1 < len(self.cells.runs):
                shorter = np.where(step[now] >= 3, self.cells.move(before[3], before[2]), -1)
                prefix = self.cells.run(runs, shorter, before[1])


def in_squares(name: str, across: int) -> str:
    """Return the name of counts in `across` × `across` squares of the city."""
    return f"{name} in {across} × {across} squares"


def kinds_of(cells: ChainCells) -> Iterator[tuple[str, Kind]]:
    """Yield all numbers that could be counted, by name."""
    yield UNITS, Kind(UNITS, 1)
    yield "hours", Kind("hours", HOURS)
    yield "lengths", Kind("lengths", LENGTH_BINS)
    for name in ("starts", "places"):
        for across, region in regions(cells.road.xy_m).items():
            yield in_squares(name, across), Kind(name, int(region.max()) + 1, region)
        yield name, Kind(name, cells.places)
    yield "moves", Kind("moves", cells.move_count)
    yield "turns", Kind("runs" if cells.runs else "moves", int(cells.turn.max()) + 1, cells.turn)
    for name, runs in zip(RUNS, cells.runs, strict=False):
        yield name, Kind(name, len(runs))


def split_budget(rho: float, units: int, kinds: dict[str, Kind]) -> dict[str, float]:
    """Return the cost of each kind of numbers, without `UNITS` and without the kinds that are too fine for the fleet.

    Parameters
    ----------
    rho
        The total cost.
    units
        The number of vehicles or trips, which is public: declared or noisy.
    """
    carried = np.log(units * np.sqrt(2 * rho) / _SMALL_FLEET) / np.log(_LARGE_FLEET / _SMALL_FLEET)
    fine = float(np.clip(carried, 0.0, 1.0))
    weights = {}
    for name in kinds:
        kind = name.split(" in ")[0]
        weight = (1 - _COARSE_LESS * fine) * _COARSE_WEIGHTS.get(kind, 0.0) + fine * _FINE_WEIGHTS.get(kind, 0.0)
        squares = sum(other.startswith(f"{kind} in ") for other in kinds)
        if squares:
            weight *= _FINE_SHARE if name == kind else (1 - _FINE_SHARE) / squares
        if weight > 0:
            weights[name] = weight
    total = sum(weights.values()) * (1 + 1e-12)  # a hair more, so that the rounded costs never exceed ρ
    return {name: rho * weight / total for name, weight in weights.items()}
