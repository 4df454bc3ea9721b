"""Reports of many vehicles in one process, many at a time: for servers, and for simulations.

Each vehicle is treated as by its own `Device`: the same rules and costs, and its own account in a shared ledger. The
reports of a call are one transaction.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked, forgetting
from geoblanket._arrays import Bools, Floats, Indices, Ints
from geoblanket._display import card, counted, short_repr
from geoblanket.errors import LedgerError, ParameterError, RefusedError
from geoblanket.mechanism.bundle.policy import DEFAULT_POLICY, Policy
from geoblanket.mechanism.bundle.release_tables import ReleaseTables
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.mechanism.bundle.trust import ANY_FILE, Trust
from geoblanket.release._opening import checked_clock, closed_on_failure, open_ledger, open_tables
from geoblanket.release.budget import Answer, Budget
from geoblanket.release.fence import NO_FENCES, Fences
from geoblanket.release.hold import DrawnAt
from geoblanket.release.inputs import (
    CLOCK_TOLERANCE_S,
    NO_FIX,
    accepted_ms,
    checked_location_e7,
    checked_locations_e7,
    checked_times_ms,
    checked_tolerance,
)
from geoblanket.release.ledger import Ledger, MemoryLedger
from geoblanket.release.source import FleetSource, Kind, LatticeFleetSource, ZoneFleetSource

__all__ = ["Fleet", "FleetReports"]


NO_FLEET_FENCES: Final[Mapping[str, Fences]] = MappingProxyType({})
_NS_PER_MS: Final = 10**6
_NEVER: Final = -(1 << 62)


@dataclass(frozen=True, eq=False)
class FleetReports:
    """Reported locations of some vehicles, one value for each, in the order in which they were asked for.

    Examples
    --------
    With the `reports` in the example of `Fleet`:

    >>> reports.stored.tolist()
    [False, False]
    """

    place: Indices
    """Number of the reported place in the bundle, or of the reported cell of its lattice; −1 where the report was
    refused."""
    lat: Floats
    """Degrees; NaN where the report was refused."""
    lon: Floats
    slot: Ints
    """Number of the slot of time."""
    stored: Bools
    """Whether the answer was given before."""
    refused: Bools
    """Whether the budget is spent, or a later report was made."""
    late: Bools
    """Of those refused, whether it was because a later report was made."""
    kind: Kind = "place"
    """What is reported: places, or cells of a lattice."""

    def __repr__(self) -> str:
        stored, refused = f"{int(self.stored.sum()):,} repeated", f"{int(self.refused.sum()):,} refused"
        return short_repr(self, counted(len(self.place), "vehicle"), stored, refused)


class Fleet:
    """Reports of many vehicles by the mechanisms of a bundle. Make one with `Fleet.open`, and close it.

    It is thread-safe. It refuses to work in a process forked from the one that opened it.

    Examples
    --------
    >>> from time import time
    >>> from geoblanket import Budget, Fleet
    >>> budget = Budget(epsilon=400, window_s=3600)
    >>> with Fleet.open("city.bundle", vehicles=["taxi 1", "taxi 2"], ledger=None, budget=budget) as fleet:
    ...     reports = fleet.report([0, 1], lat=[45.001, 45.002], lon=[-30.0, -30.001], time=time())
    >>> reports.refused.tolist()
    [False, False]
    """

    @checked
    def __init__(
        self,
        tables: ReleaseTables,
        vehicles: Sequence[str],
        ledger: MemoryLedger | None,
        *,
        clock_tolerance_s: float,
        fences: Mapping[str, Fences] = NO_FLEET_FENCES,
    ) -> None:
        checked_clock(tables, None if ledger is None else ledger.budget)
        self._tables, self._ledger = tables, ledger
        self._tolerance_s = clock_tolerance_s
        self._source: FleetSource = (ZoneFleetSource if tables.lattice is None else LatticeFleetSource)(tables)
        self.vehicles: tuple[str, ...] = ()
        self._slot, self._place = np.empty(0, np.int64), np.empty(0, np.int32)
        self._given_fences = dict(fences)
        self._fences: dict[int, Fences] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()
        self.enrol(vehicles)

    @classmethod
    @checked
    def open(
        cls,
        bundle: str | Path | Bundle,
        *,
        vehicles: Sequence[str],
        ledger: str | Path | None,
        budget: Budget | None = None,
        device_key: bytes | None = None,
        counter: str | Path | None = None,
        trust: Trust = ANY_FILE,
        policy: Policy = DEFAULT_POLICY,
        clock_tolerance_s: float = CLOCK_TOLERANCE_S,
        replay: bool = False,
        fences: Mapping[str, Fences] = NO_FLEET_FENCES,
        hold_in_memory: bool = False,
    ) -> Fleet:
        """Open a bundle and a ledger for many vehicles.

        Parameters
        ----------
        vehicles
            Their names, by which the ledger knows them.
        ledger
            As in `Device.open`. None: budgets are kept in memory.
        budget
            Of each vehicle. None, and no ledger: nothing is counted, which is for simulations only.
        fences
            Fences of vehicles, by name, besides those of the ledger, which are always used.
        device_key, counter, trust, policy, clock_tolerance_s, replay, hold_in_memory
            As in `Device.open`.
        """
        checked_tolerance(clock_tolerance_s)
        opened_ledger = None
        if ledger is not None or budget is not None:
            opened_ledger = open_ledger(
                ledger, budget, device_key=device_key, counter=counter, replay=replay, hold_in_memory=hold_in_memory
            )
        with closed_on_failure(opened_ledger):
            tables = open_tables(bundle, opened_ledger, trust=trust, policy=policy)
            tolerance_s = math.inf if replay else clock_tolerance_s
            return cls(tables, vehicles, opened_ledger, clock_tolerance_s=tolerance_s, fences=fences)

    @property
    def kind(self) -> Kind:
        """What is reported: places, or cells of a lattice."""
        return self._source.kind

    @property
    def interval_ms(self) -> int:
        """Milliseconds from one slot to the next: at most one report of a vehicle in each."""
        return self._source.interval_ms

    @property
    def accounts(self) -> dict[str, tuple[Answer, ...]]:
        """The vehicles that ever reported, by a ledger in a file, and their answers of the window in order of time."""
        if not isinstance(self._ledger, Ledger):
            return {}
        return {name: self._ledger.account(name).answers for name in self._ledger.vehicles}

    def enrol(self, names: Sequence[str]) -> None:
        """Add vehicles, which get the next numbers. What the ledger knows of them counts.

        Parameters
        ----------
        names
            Their names, none of which the fleet has already.
        """
        with self._lock:
            if len({*self.vehicles, *names}) < len(self.vehicles) + len(names):
                raise ParameterError("The names of vehicles must differ.")
            slot, place = self._last_answers(names)
            fences = {number: self.fences_of(name) for number, name in enumerate(names, len(self.vehicles))}
            self._source.grow([None if self._ledger is None else self._ledger.drawn_at(name) for name in names])
            self._fences |= {number: some for number, some in fences.items() if len(some)}
            self._slot, self._place = np.concatenate([self._slot, slot]), np.concatenate([self._place, place])
            self.vehicles = (*self.vehicles, *names)

    def set_fences(self, vehicle: str, fences: Fences) -> None:
        """Keep the fences of a vehicle with the ledger, and apply them from now on.

        Raises
        ------
        ParameterError
            They lack a fence that the vehicle has or had, or do not go with those that the fleet was opened with.
        """
        with self._lock:
            given, applied = self._given_fences.get(vehicle, NO_FENCES), fences
            if self._ledger is None:
                self._given_fences[vehicle] = given.replaced_by(fences)
            else:
                applied = fences.with_all(given)  # before anything is kept: it can be refused
                self._ledger.set_fences(fences, vehicle)
            if vehicle in self.vehicles:
                self._fences[self.vehicles.index(vehicle)] = applied

    def fences_of(self, vehicle: str) -> Fences:
        """Return the fences of a vehicle."""
        kept = NO_FENCES if self._ledger is None else self._ledger.fences_of(vehicle)
        return kept.with_all(self._given_fences.get(vehicle, NO_FENCES))

    def _fenced_e7(self, which: Ints, lat_e7: Ints, lon_e7: Ints) -> tuple[Ints, Ints]:
        """Return what positions of vehicles count as, 1e-7 degrees."""
        if not self._fences:
            return lat_e7, lon_e7
        lat_e7, lon_e7 = lat_e7.copy(), lon_e7.copy()
        for index, number in enumerate(which.tolist()):
            if number in self._fences:
                fenced = self._fences[number].apply_e7(int(lat_e7[index]), int(lon_e7[index]))
                lat_e7[index], lon_e7[index] = fenced
        return lat_e7, lon_e7

    def _last_answers(self, names: Sequence[str]) -> tuple[Ints, Indices]:
        """Return slot and place of the last answers of some vehicles, as the ledger has them."""
        slot, place = np.full(len(names), _NEVER, np.int64), np.full(len(names), -1, np.int32)
        for number, name in enumerate(names if self._ledger is not None else ()):
            if self._ledger is not None and (answers := self._ledger.account(name).answers):
                slot[number], place[number] = answers[-1].slot_ms // self._source.interval_ms, answers[-1].place
        return slot, place

    @forgetting
    def report(
        self, vehicle: npt.ArrayLike, lat: npt.ArrayLike, lon: npt.ArrayLike, time: npt.ArrayLike
    ) -> FleetReports:
        """Report where some vehicles are.

        Parameters
        ----------
        vehicle
            Their numbers, from 0, each at most once; shape (n,).
        lat, lon
            Degrees, shape (n,).
        time
            Seconds since 1970 in UTC, shape (n,), or one for all.

        Raises
        ------
        ParameterError
            Some of the input is not a location or time; nothing was reported.
        LedgerError, RandomnessError
            Nothing could be stored, or drawn; nothing is released.
        """
        which = np.asarray(vehicle)
        if which.ndim != 1 or (which.size and not np.issubdtype(which.dtype, np.integer)):
            raise ParameterError("Vehicles must be whole numbers, in one dimension.")
        which = which.astype(np.int64)
        if len(which) and (which.min() < 0 or which.max() >= len(self.vehicles)):
            raise ParameterError(f"There are {len(self.vehicles)} vehicles, counted from 0.")
        if np.bincount(which, minlength=1).max() > 1:
            raise ParameterError("Each vehicle may be asked for once in a call.")
        lat_e7, lon_e7 = checked_locations_e7(lat, lon, count=len(which))
        accepted = accepted_ms(self._tolerance_s)
        slot = checked_times_ms(time, count=len(which), accepted=accepted) // self._source.interval_ms
        with self._lock:
            if os.getpid() != self._process:
                raise LedgerError("The fleet was opened by another process. Open one in each process.")
            points = self._source.points(*self._fenced_e7(which, lat_e7, lon_e7))
            return self._answered(which, points, slot)

    def _answered(self, which: Ints, points: Ints, slot: Ints) -> FleetReports:
        stored = self._slot[which] == slot
        fresh = self._slot[which] < slot
        late = self._slot[which] > slot
        now_ns = self._now_ns(slot)
        held = (self._place[which] >= 0) & self._source.are_held(which, points)
        fresh[fresh] = self._affordable(which[fresh], slot[fresh], now_ns[fresh], held[fresh])
        result = np.where(stored, self._place[which], np.int32(-1))
        some = np.flatnonzero(fresh)
        result[some] = self._released(which[some], points[some], slot[some], now_ns[some], held[some])
        refused = result < 0
        lat, lon = self._source.coordinates_e7(np.maximum(result, 0)).T / 1e7
        return FleetReports(
            place=result,
            lat=np.where(refused, np.nan, lat),
            lon=np.where(refused, np.nan, lon),
            slot=slot,
            stored=stored,
            refused=refused,
            late=late,
            kind=self._source.kind,
        )

    def _now_ns(self, slot: Ints) -> Ints:
        """Return when reports in some slots are made; see `MemoryLedger.now_ns`."""
        if self._ledger is None or self._ledger.replay:
            return slot * (self._source.interval_ms * _NS_PER_MS)
        return np.full(len(slot), self._ledger.now_ns(0))

    def _affordable(self, which: Ints, slot: Ints, now_ns: Ints, held: Bools) -> Bools:
        """Return which reports the budgets allow."""
        allowed = np.ones(len(which), np.bool_)
        if self._ledger is None:
            return allowed
        for index, (vehicle, slot_ms, cost, now) in enumerate(self._charged(which, slot, now_ns, held)):
            try:
                self._ledger.account(vehicle).checked_left_micro(slot_ms, now, cost)
            except RefusedError:
                allowed[index] = False
        return allowed

    def _charged(self, which: Ints, slot: Ints, now_ns: Ints, held: Bools) -> Iterator[tuple[str, int, int, int]]:
        """Yield the vehicle, start of the slot, cost and creation time of some reports."""
        cost = np.where(held, 0, self._source.costs(which, slot))
        slots_ms = (slot * self._source.interval_ms).tolist()
        for number, *charge in zip(which.tolist(), slots_ms, cost.tolist(), now_ns.tolist(), strict=True):
            yield self.vehicles[number], *charge

    def _released(self, which: Ints, points: Ints, slot: Ints, now_ns: Ints, held: Bools) -> Indices:
        """Draw or repeat, store, and return the places or cells to report."""
        # A report that is held takes the steps of a fresh one: it is drawn and thrown away, and all is written.
        outputs = np.where(held, self._place[which], self._source.draw(which, points, slot))
        reported = outputs.astype(np.int32)
        if self._ledger is not None and len(which):
            outcomes = zip(reported.tolist(), self._source.coordinates_e7(outputs).tolist(), strict=True)
            charged = self._charged(which, slot, now_ns, held)
            self._ledger.write(
                [
                    (vehicle, Answer(slot_ms, cost, output, lat_e7, lon_e7, None, now))
                    for (vehicle, slot_ms, cost, now), (output, (lat_e7, lon_e7)) in zip(charged, outcomes, strict=True)
                ],
                self._drawn_at(self._ledger, which, points, slot, held),
            )
        self._source.made(which, points, slot, held)
        self._slot[which] = slot
        self._place[which] = reported
        return reported

    def _drawn_at(self, ledger: MemoryLedger, which: Ints, points: Ints, slot: Ints, held: Bools) -> dict[str, DrawnAt]:
        """Return where the reports of vehicles were drawn, now or before they were held."""
        fresh = self._source.drawn_at(which[~held], points[~held], slot[~held])
        result = {self.vehicles[number]: drawn_at for number, drawn_at in fresh.items()}
        for name in (self.vehicles[number] for number in which[held].tolist()):
            if (before := ledger.drawn_at(name)) is not None:
                result[name] = before
        return result

    @forgetting
    def warning_for(self, lat: float, lon: float) -> str | None:
        """Return what seems wrong with a location, or None; see `Device.warning_for`."""
        lat_e7, lon_e7 = checked_location_e7(lat, lon)
        return NO_FIX if lat_e7 == 0 == lon_e7 else self._source.warning_for(lat_e7, lon_e7)

    def close(self) -> None:
        """Release the ledger, and forget where the vehicles were."""
        with self._lock:
            self._source.forget()
            if self._ledger is not None:
                self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _repr_html_(self) -> str:
        left = [] if self._ledger is None else self._ledger.facts()
        return card(self, [("bundle", self._tables.sha256[:12]), ("vehicles", f"{len(self.vehicles):,}"), *left])

    def __repr__(self) -> str:
        vehicles = counted(len(self.vehicles), "vehicle")
        return short_repr(self, vehicles, f"bundle {self._tables.sha256[:12]}", repr(self._ledger))
