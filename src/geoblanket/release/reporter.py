"""From a position to a report: what `Device`, `Fleet` and the reports in bulk have in common.

A reporter knows a bundle and no vehicle. Each report takes the same steps: the point that a position counts as, whether
the last report is held and what a draw costs, the exact draw, and what the next report needs to know of the past. There
is one method for a single report, and one for many in arrays; both follow the same rule.

Zones report by the nearest place, with as much of its past as the mechanisms look at. A report follows the one of the
slot before. After a gap there is no history, and the next report uses the start regime.

A lattice reports by a point of the frame, then a cell. Its past is the point where the last report was drawn: near it
that report is held (`geoblanket.release.hold`). Every draw costs the same, and a held report costs nothing. A location
outside the frame counts as its nearest point.

`Opened` is what `Device` and `Fleet` share: a bundle and a ledger, opened together and checked against each other.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self, TypedDict, Unpack

import numpy as np

from geoblanket._arguments import checked, forgetting
from geoblanket._arrays import Bools, Ints
from geoblanket._display import card
from geoblanket.errors import LedgerError, MismatchError, ParameterError
from geoblanket.mechanism.bundle.policy import Policy
from geoblanket.mechanism.bundle.storage import Bundle, LatticeBundle, ZoneBundle, load_for_release
from geoblanket.mechanism.bundle.trust import ANY_FILE, Trust
from geoblanket.mechanism.costs import Costs
from geoblanket.release.budget import Budget
from geoblanket.release.hold import DrawnAt
from geoblanket.release.inputs import NO_FIX, checked_location_e7
from geoblanket.release.ledger import Ledger, MemoryLedger
from geoblanket.release.rule import NearestPlace, PlaceRaster, Regimes, ReleaseRule

Kind = Literal["place", "cell"]
"""What is reported: a place of a zone, or a cell of a lattice."""
Numbers = tuple[int, ...]
"""A point or a past, as a reporter knows it: a place and earlier ones, or x and y in the frame."""
NEVER: Final = -(1 << 62)
"""A slot before all others."""
_FAR: Final = -(1 << 40)
"""Nothing in a frame is near this."""
_EXCHANGED: Final = "Latitude and longitude seem to be exchanged: the latitude comes first."


class Drawn(NamedTuple):
    """What is reported."""

    output: int
    """Number of the place or cell."""
    lat_e7: int
    """Where that is, 1e-7 degrees."""
    lon_e7: int


class ZoneReporter:
    """Reports by the mechanisms of zones. The past is the places of the reports before, the latest first, −1: none."""

    kind: Kind = "place"
    gap_forgets = True
    """Whether the past counts only if the last report was in the slot before."""

    def __init__(self, bundle: ZoneBundle) -> None:
        clock = bundle.needed_clock()
        self.interval_ms = clock.interval_ms
        self._places_e7, self._costs = bundle.places_e7, bundle.costs
        self._rule = ReleaseRule(bundle)
        each = Costs.of_each(bundle.mechanisms, clock.start)
        costs = {(table.zone, table.regime): cost for table, cost in zip(bundle, each, strict=True)}
        self._cost_of = {name: self._rule.of_places(costs, name)[:, int(name != clock.start)] for name in clock.names}
        self._nearest = NearestPlace(bundle.places_e7)
        self._regimes = Regimes(clock)
        # The last place is kept even where no mechanism looks at it: it says that the report is not the first.
        self.no_past: Numbers = (-1,) * max(1, self._rule.past)

    def prepare(self) -> None:
        """Build all tables now, so that no single report is slower than the others."""
        self._rule.prepare(sorted({*self._regimes.names, self._regimes.start}))

    def point(self, lat_e7: int, lon_e7: int) -> Numbers:
        """Return the place nearest to a location."""
        return (self._nearest.of(lat_e7, lon_e7),)

    def charge(self, point: Numbers, past: Numbers, time_ms: int) -> tuple[int, int, bool]:
        """Return what a report costs, what must be left for it, and False: hold is for lattices.

        The cost is that of the zone. What must be left is the same in every zone: a refusal does not tell the zone.
        """
        if past[0] >= 0:
            return int(self._cost_of[self._regimes.at(time_ms)][point[0]]), self._costs.other, False
        return int(self._cost_of[self._regimes.start][point[0]]), self._costs.start, False

    def draw(self, point: Numbers, past: Numbers, time_ms: int) -> Drawn:
        """Draw a place by the history and the regime of a time."""
        if past[0] >= 0:
            place = self._rule.draw_one((*point, *past), self._regimes.at(time_ms))
        else:
            place = self._rule.draw_one(point, self._regimes.start)
        lat_e7, lon_e7 = self._places_e7[place].tolist()
        return Drawn(place, lat_e7, lon_e7)

    def remembered(self, point: Numbers, past: Numbers, *, held: bool) -> Numbers:
        """Return the past of the next report."""
        del held
        return (*point, *past)[: len(self.no_past)] if past[0] >= 0 else point

    def past_of(self, drawn: DrawnAt | None) -> Numbers:
        """Return what is known of the past after a start: nothing, as true places are kept in memory only."""
        del drawn
        return self.no_past

    def drawn_at(self, past: Numbers, slot_ms: int) -> DrawnAt | None:
        """Return None: nothing is kept beside the ledger."""
        del past, slot_ms
        return None

    @cached_property
    def _raster(self) -> PlaceRaster:
        return PlaceRaster(self._places_e7)

    def points(self, lat_e7: Ints, lon_e7: Ints) -> Ints:
        """Return the places nearest to n locations, shape (n, 1)."""
        return self._raster.of(lat_e7, lon_e7).astype(np.int64)[:, None]

    def charges(self, points: Ints, past: Ints, times_ms: Ints) -> tuple[Ints, Ints, Bools]:
        """Return what n reports cost, what must be left for them, and which are held: none."""
        cost = np.empty(len(points), np.int64)
        for regime, some in self.by_regime(past, times_ms).items():
            cost[some] = self._cost_of[regime][points[some, 0]]
        return cost, np.where(past[:, 0] >= 0, self._costs.other, self._costs.start), np.zeros(len(past), np.bool_)

    def draw_many(self, points: Ints, past: Ints, times_ms: Ints) -> Ints:
        """Draw n places by histories and the regimes of times."""
        return self.draw_by_regime(points, past, self.by_regime(past, times_ms))

    def by_regime(self, past: Ints, times_ms: Ints) -> dict[str, Ints]:
        """Return which of n reports use each regime, as ascending indices."""
        regime = np.where(past[:, 0] >= 0, self._regimes.numbers_at(times_ms), len(self._regimes.names))
        names = (*self._regimes.names, self._regimes.start)
        using = {name: np.flatnonzero(regime == number) for number, name in enumerate(names)}
        return {name: some for name, some in using.items() if len(some)}

    def draw_by_regime(self, points: Ints, past: Ints, regimes: Mapping[str, Ints]) -> Ints:
        """Draw n places by histories; see `by_regime`."""
        histories = np.column_stack([points, past])[:, : 1 + self._rule.past].astype(np.int32)
        result = np.empty(len(points), np.int64)
        for name, some in regimes.items():
            result[some] = self._rule.draw(histories[some], name)
        return result

    def count_outside(self, points: Ints, regimes: Mapping[str, Ints]) -> int:
        """Return how many of n places are outside all zones of their regime."""
        return sum(int(self._rule.outside(points[some, 0], name).sum()) for name, some in regimes.items())

    def remembered_many(self, points: Ints, past: Ints, held: Bools) -> Ints:
        """Return the past of the next n reports."""
        del held
        return np.column_stack([points, past])[:, :-1]

    def warning_for(self, lat_e7: int, lon_e7: int) -> str | None:
        """Return a warning if latitude and longitude seem to be exchanged."""
        return _EXCHANGED if self._nearest.seems_exchanged(lat_e7, lon_e7) else None


class LatticeReporter:
    """Reports by a lattice. The past is where the last report was drawn."""

    kind: Kind = "cell"
    gap_forgets = False
    no_past: Numbers = (_FAR, _FAR)

    def __init__(self, bundle: LatticeBundle) -> None:
        self.interval_ms = bundle.needed_clock().interval_ms
        self.lattice, self._plane = bundle.lattice, bundle.lattice.spec.plane
        self._hold_units = bundle.lattice.hold_mm // self._plane.unit_mm
        self._cost_micro = bundle.costs.other
        self._frame = bytes.fromhex(bundle.domain)[:16]

    def prepare(self) -> None:
        """Do nothing: a lattice has no tables to build."""

    def point(self, lat_e7: int, lon_e7: int) -> Numbers:
        """Return x and y of a location in the frame."""
        return self._plane.unit_of_e7(lat_e7, lon_e7)

    def charge(self, point: Numbers, past: Numbers, time_ms: int) -> tuple[int, int, bool]:
        """Return what a report costs, what must be left for it, and whether it is held: then it costs nothing."""
        del time_ms
        (x, y), (drawn_x, drawn_y) = point, past
        held = self.lattice.holds(x, y, drawn_x, drawn_y)
        cost = 0 if held else self._cost_micro
        return cost, cost, held

    def draw(self, point: Numbers, past: Numbers, time_ms: int) -> Drawn:
        """Draw a cell."""
        del past, time_ms
        x, y = point
        cell = self.lattice.draw_at(x, y)
        lat, lon = self.lattice.center(cell)
        return Drawn(cell, round(lat * 1e7), round(lon * 1e7))

    def remembered(self, point: Numbers, past: Numbers, *, held: bool) -> Numbers:
        """Return where the report was drawn, now or before it was held."""
        return past if held else point

    def past_of(self, drawn: DrawnAt | None) -> Numbers:
        """Return where the last report was drawn, as the ledger knows it; in another frame that means nothing."""
        return self.no_past if drawn is None or drawn.frame != self._frame else (drawn.x, drawn.y)

    def drawn_at(self, past: Numbers, slot_ms: int) -> DrawnAt | None:
        """Return what the ledger keeps of a draw in a slot, so that its report can be held; None if none ever is."""
        x, y = past
        return DrawnAt(slot_ms, self._frame, x, y) if self._hold_units else None

    def points(self, lat_e7: Ints, lon_e7: Ints) -> Ints:
        """Return x and y of n locations in the frame, shape (n, 2)."""
        return np.column_stack(self._plane.units_e7(lat_e7, lon_e7))

    def charges(self, points: Ints, past: Ints, times_ms: Ints) -> tuple[Ints, Ints, Bools]:
        """Return what n reports cost, what must be left for them, and which are held."""
        del times_ms
        held = np.zeros(len(points), np.bool_)
        if self._hold_units:
            apart = points - past
            held = np.abs(apart).max(axis=1) <= self._hold_units
            apart[~held] = 0  # squares of more could overflow
            held &= (apart**2).sum(axis=1) <= self._hold_units**2
        cost = np.where(held, 0, self._cost_micro)
        return cost, cost, held

    def draw_many(self, points: Ints, past: Ints, times_ms: Ints) -> Ints:
        """Draw n cells."""
        del past, times_ms
        return self.lattice.draw_many_at(points[:, 0], points[:, 1])

    def remembered_many(self, points: Ints, past: Ints, held: Bools) -> Ints:
        """Return where n reports were drawn, now or before they were held, shape (n, 2)."""
        return np.where(held[:, None], past, points)

    def warning_for(self, lat_e7: int, lon_e7: int) -> str | None:
        """Return a warning if a location lies outside the frame."""
        lat, lon = lat_e7 / 1e7, lon_e7 / 1e7
        if self._plane.holds(lat, lon):
            return None
        if abs(lon) <= 90 and self._plane.holds(lon, lat):
            return _EXCHANGED
        return "This location lies outside the area of the bundle, and counts as the nearest point of its edge."


Reporter = ZoneReporter | LatticeReporter


def reporter_of(bundle: Bundle) -> Reporter:
    """Return what makes the reports of a bundle."""
    return ZoneReporter(bundle) if isinstance(bundle, ZoneBundle) else LatticeReporter(bundle)


class Opened:
    """A bundle and a ledger, opened together: what `Device` and `Fleet` share."""

    _ledger: MemoryLedger | None

    def __init__(self, bundle: Bundle, ledger: MemoryLedger | None, *, clock_tolerance_s: float) -> None:
        _check_clock(bundle, None if ledger is None else ledger.budget)
        self._bundle, self._ledger = bundle, ledger
        self._tolerance_s = math.inf if ledger is not None and ledger.replay else clock_tolerance_s
        self._reporter = reporter_of(bundle)
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._costs, self._sha256 = bundle.costs, bundle.sha256

    @property
    def kind(self) -> Kind:
        """What is reported: places, or cells of a lattice."""
        return self._reporter.kind

    @property
    def interval_ms(self) -> int:
        """Milliseconds from one slot to the next: at most one report of a vehicle in each."""
        return self._reporter.interval_ms

    @property
    def costs(self) -> Costs:
        """What a report costs, in millionths per kilometre."""
        return self._costs

    @property
    def bundle_sha256(self) -> str:
        """Hash of the bundle's file."""
        return self._sha256

    @forgetting
    def warning_for(self, lat: float, lon: float) -> str | None:
        """Return what seems wrong with a location, or None: for the driver, before anything is reported.

        `report` refuses no location, because a refusal would reveal where the vehicle is. So would a reaction to this
        warning: do not let it decide whether a report is made.

        Raises
        ------
        ParameterError
            It is not a location.
        """
        lat_e7, lon_e7 = checked_location_e7(lat, lon)
        return NO_FIX if lat_e7 == 0 == lon_e7 else self._reporter.warning_for(lat_e7, lon_e7)

    def close(self) -> None:
        """Release the ledger, and forget where vehicles were."""
        with self._lock:
            self._forget()
            if self._ledger is not None:
                self._ledger.close()

    def _forget(self) -> None:
        raise NotImplementedError

    def _refuse_other_process(self) -> None:
        if os.getpid() != self._process:
            name = type(self).__name__.lower()
            raise LedgerError(f"The {name} was opened by another process. Open one in each process.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _repr_html_(self) -> str:
        left = [] if self._ledger is None else self._ledger.facts()
        return card(self, [("bundle", self.bundle_sha256[:12]), *left])


class LedgerOptions(TypedDict, total=False):
    """How a ledger is opened; see `Device.open`."""

    device_key: bytes | None
    counter: str | Path | None
    replay: bool
    hold_in_memory: bool


@contextmanager
def opened(
    bundle: str | Path | Bundle,
    ledger: str | Path | None,
    budget: Budget | None,
    *,
    trust: Trust,
    policy: Policy,
    **opening: Unpack[LedgerOptions],
) -> Iterator[tuple[Bundle, MemoryLedger | None]]:
    """Open a bundle and a ledger. If what follows fails, close the ledger, so that it can be opened again."""
    kept = _open_ledger(ledger, budget, **opening)
    try:
        yield _open_bundle(bundle, kept, trust=trust, policy=policy), kept
    except BaseException:
        if kept is not None:
            kept.close()
        raise


@checked
def _open_ledger(
    path: str | Path | None,
    budget: Budget | None,
    *,
    device_key: bytes | None = None,
    counter: str | Path | None = None,
    replay: bool = False,
    hold_in_memory: bool = False,
) -> MemoryLedger | None:
    """Open a ledger file, which must have the given budget, if any; without a file, keep the given budget in memory."""
    if path is None:
        return None if budget is None else MemoryLedger(budget, replay=replay)
    ledger = Ledger.open(path, device_key=device_key, counter=counter, replay=replay, hold_in_memory=hold_in_memory)
    if budget is not None and (budget.micro, budget.window_ms) != (ledger.budget.micro, ledger.budget.window_ms):
        ledger.close()
        raise MismatchError(
            f"{path}: has another budget than the one asked for. A ledger keeps the one it was made with."
        )
    return ledger


def _open_bundle(bundle: str | Path | Bundle, ledger: MemoryLedger | None, *, trust: Trust, policy: Policy) -> Bundle:
    """Return a bundle that promises what the policy asks for, and is not older than the last one.

    Verify the file, unless the ledger remembers that it was verified; the ledger then remembers it.
    """
    if isinstance(bundle, Bundle):
        if trust != ANY_FILE:
            raise ParameterError("`trust` is for files. A loaded bundle was checked by `load_bundle`: give it there.")
        loaded = bundle
    elif isinstance(ledger, Ledger):
        loaded = load_for_release(bundle, is_known=ledger.is_verified, trust=trust)
        ledger.remember_verified(loaded.sha256)
    else:
        loaded = load_for_release(bundle, trust=trust)
    policy.check(loaded)
    if ledger is not None:
        ledger.use_bundle(loaded.domain, loaded.version)
    return loaded


def _check_clock(bundle: Bundle, budget: Budget | None) -> None:
    """Raise unless a bundle has a clock and the budget allows any report."""
    clock, costs = bundle.needed_clock(), bundle.costs
    if budget is None:
        return
    if clock.interval_ms > budget.window_ms:
        raise ParameterError("The window of the budget is shorter than the interval between reports.")
    if max(costs) > budget.micro:
        raise ParameterError(
            f"One report costs up to {costs.largest_per_km:g} per km, and the whole budget is {budget.epsilon:g} per "
            "km. Choose a larger budget, or a bundle of a smaller ε."
        )
