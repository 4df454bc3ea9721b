"""Reports of many vehicles in one process, many at a time: for servers, and for simulations.

Each vehicle is treated as by its own `Device`: the same rules and costs, and its own account in a shared ledger. The
reports of a call are one transaction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked, forgetting
from geoblanket._arrays import Bools, Floats, Indices, Ints
from geoblanket._display import counted, short_repr
from geoblanket.errors import ParameterError, RefusedError
from geoblanket.mechanism.bundle.policy import DEFAULT_POLICY, Policy
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.mechanism.bundle.trust import ANY_FILE, Trust
from geoblanket.release.budget import Answer, Budget
from geoblanket.release.fence import NO_FENCES, Fences
from geoblanket.release.inputs import (
    CLOCK_TOLERANCE_S,
    accepted_ms,
    checked_locations_e7,
    checked_times_ms,
    checked_tolerance,
)
from geoblanket.release.ledger import Ledger, MemoryLedger
from geoblanket.release.reporter import NEVER, Kind, LedgerOptions, Opened, opened

NO_FLEET_FENCES: Final[Mapping[str, Fences]] = MappingProxyType({})
_NS_PER_MS: Final = 10**6


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
    """Whether the report was refused because a later one was made."""
    kind: Kind = "place"
    """What is reported: places, or cells of a lattice."""

    def __repr__(self) -> str:
        stored, refused = f"{int(self.stored.sum()):,} repeated", f"{int(self.refused.sum()):,} refused"
        return short_repr(self, counted(len(self.place), "vehicle"), stored, refused)


class _Asked(NamedTuple):
    """What some vehicles ask for: a value, or a row, for each."""

    which: Ints
    points: Ints
    past: Ints
    slot: Ints
    now_ns: Ints
    cost: Ints
    """Millionths per kilometre."""
    needed: Ints
    """What must be left in the budget."""
    held: Bools

    def chosen(self, some: Ints) -> _Asked:
        """Return those at some indices."""
        return _Asked._make(column[some] for column in self)


class Fleet(Opened):
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
        bundle: Bundle,
        vehicles: Sequence[str],
        ledger: MemoryLedger | None,
        *,
        clock_tolerance_s: float,
        fences: Mapping[str, Fences] = NO_FLEET_FENCES,
    ) -> None:
        super().__init__(bundle, ledger, clock_tolerance_s=clock_tolerance_s)
        self.vehicles: tuple[str, ...] = ()
        self._slot, self._place = np.empty(0, np.int64), np.empty(0, np.int32)
        """The last report of each vehicle."""
        self._past, self._past_slot = np.empty((0, len(self._reporter.no_past)), np.int64), np.empty(0, np.int64)
        """What later reports depend on, and the slot that it was made in."""
        self._given_fences = dict(fences)
        self._fences: dict[int, Fences] = {}
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
        trust: Trust = ANY_FILE,
        policy: Policy = DEFAULT_POLICY,
        clock_tolerance_s: float = CLOCK_TOLERANCE_S,
        fences: Mapping[str, Fences] = NO_FLEET_FENCES,
        **opening: Unpack[LedgerOptions],
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
            Fences by the name of their vehicle, besides those of the ledger, which are always used.
        trust, policy, clock_tolerance_s, device_key, counter, replay, hold_in_memory
            As in `Device.open`.
        """
        checked_tolerance(clock_tolerance_s)
        with opened(bundle, ledger, budget, trust=trust, policy=policy, **opening) as (loaded, kept):
            tolerance_s = math.inf if opening.get("replay") else clock_tolerance_s
            return cls(loaded, vehicles, kept, clock_tolerance_s=tolerance_s, fences=fences)

    @property
    def accounts(self) -> dict[str, tuple[Answer, ...]]:
        """Answers of the window, in order of time, by vehicle: of all that ever reported, if the ledger is a file."""
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
            fences = {number: self.fences_of(name) for number, name in enumerate(names, len(self.vehicles))}
            self._fences |= {number: some for number, some in fences.items() if len(some)}
            slot, place, past = self._known(names)
            self._slot, self._place = np.concatenate([self._slot, slot]), np.concatenate([self._place, place])
            self._past = np.concatenate([self._past, past])
            self._past_slot = np.concatenate([self._past_slot, np.full(len(names), NEVER, np.int64)])
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
                applied = fences.with_all(given)  # first, as it can be refused
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

    def _known(self, names: Sequence[str]) -> tuple[Ints, Indices, Ints]:
        """Return slot and place of the last answers of some vehicles, and their past, as the ledger has them."""
        slot, place = np.full(len(names), NEVER, np.int64), np.full(len(names), -1, np.int32)
        past = np.tile(np.array(self._reporter.no_past, np.int64), (len(names), 1))
        if self._ledger is not None:
            for number, name in enumerate(names):
                if (last := self._ledger.account(name).last) is not None:
                    slot[number], place[number] = last.slot_ms // self.interval_ms, last.place
                    past[number] = self._reporter.past_of(self._ledger.drawn_at(name))
        return slot, place, past

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
        slot = checked_times_ms(time, count=len(which), accepted=accepted) // self.interval_ms
        with self._lock:
            self._refuse_other_process()
            points = self._reporter.points(*self._fenced_e7(which, lat_e7, lon_e7))
            return self._answered(which, points, slot)

    def _answered(self, which: Ints, points: Ints, slot: Ints) -> FleetReports:
        before, past = self._slot[which], self._past[which]
        if self._reporter.gap_forgets:
            past[self._past_slot[which] != slot - 1] = self._reporter.no_past
        charges = self._reporter.charges(points, past, slot * self.interval_ms)
        asked = _Asked(which, points, past, slot, self._now_ns(slot), *charges)
        stored, fresh = before == slot, np.flatnonzero(before < slot)
        fresh = fresh[self._affordable(asked.chosen(fresh))]
        result = np.where(stored, self._place[which], np.int32(-1))
        result[fresh] = self._released(asked.chosen(fresh))
        refused = result < 0
        lat, lon = self._bundle.outputs_e7(np.maximum(result, 0)).T / 1e7
        return FleetReports(
            place=result,
            lat=np.where(refused, np.nan, lat),
            lon=np.where(refused, np.nan, lon),
            slot=slot,
            stored=stored,
            refused=refused,
            late=before > slot,
            kind=self.kind,
        )

    def _now_ns(self, slot: Ints) -> Ints:
        """Return when reports in some slots are made; see `MemoryLedger.now_ns`."""
        if self._ledger is None or self._ledger.replay:
            return slot * (self.interval_ms * _NS_PER_MS)
        return np.full(len(slot), self._ledger.now_ns(0))

    def _affordable(self, asked: _Asked) -> Bools:
        """Return which reports the budgets allow."""
        allowed = np.ones(len(asked.which), np.bool_)
        if self._ledger is None:
            return allowed
        charges = zip(
            *(column.tolist() for column in (asked.which, asked.slot, asked.now_ns, asked.needed)), strict=True
        )
        for index, (number, slot, now_ns, needed) in enumerate(charges):
            account = self._ledger.account(self.vehicles[number])
            try:
                account.checked_left_micro(slot * self.interval_ms, now_ns, needed)
            except RefusedError:
                allowed[index] = False
        return allowed

    def _released(self, asked: _Asked) -> Ints:
        """Draw or repeat, store, and return the places or cells to report."""
        reporter, (which, points, past, slot, *_, held) = self._reporter, asked
        # A report that is held takes the steps of a fresh one: it is drawn and thrown away, and all is written.
        drawn = reporter.draw_many(points, past, slot * self.interval_ms)
        outputs: Ints = np.where(held, self._place[which], drawn)
        past = reporter.remembered_many(points, past, held)
        if self._ledger is not None and len(which):
            self._store(self._ledger, asked, outputs, past)
        self._past[which], self._past_slot[which] = past, slot
        self._slot[which], self._place[which] = slot, outputs
        return outputs

    def _store(self, ledger: MemoryLedger, asked: _Asked, outputs: Ints, past: Ints) -> None:
        """Write answers, and where they were drawn, now or before they were held."""
        columns = (
            asked.which,
            asked.slot * self.interval_ms,
            asked.cost,
            outputs,
            self._bundle.outputs_e7(outputs),
            asked.now_ns,
            asked.held,
            past,
        )
        answers, drawn = [], {}
        for number, slot_ms, cost, output, (lat_e7, lon_e7), now_ns, held, at in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            name = self.vehicles[number]
            answers.append((name, Answer(slot_ms, cost, output, lat_e7, lon_e7, None, now_ns)))
            drawn_slot_ms = ledger.account(name).drawn_slot_ms if held else None
            if (drawn_at := self._reporter.drawn_at(at, drawn_slot_ms or slot_ms)) is not None:
                drawn[name] = drawn_at
        ledger.write(answers, drawn)

    def _forget(self) -> None:
        self._past[:] = self._reporter.no_past
        self._past_slot.fill(NEVER)

    def __repr__(self) -> str:
        vehicles = counted(len(self.vehicles), "vehicle")
        return short_repr(self, vehicles, f"bundle {self.bundle_sha256[:12]}", repr(self._ledger))
