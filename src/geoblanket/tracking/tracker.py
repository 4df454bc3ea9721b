"""The tracker: follows many vehicles by their released reports, one report at a time, at no cost in privacy.

Reports of a vehicle come in the order of its slots. A report that is late by at most `late_slots` is inserted where it
belongs, as if it had been on time; later ones are left out. If a slot has two reports, the first counts. Beliefs are
kept for as many vehicles as fit into memory; the vehicle that was silent for longest is dropped first.

`answers` reads released reports as JSON lines, and answers each with the vehicle's estimated position.

A line is an answer of `geoblanket perturb --stream` with the vehicle's name:
`{"vehicle": "taxi 7", "cell": 4711, "slot": 59241600}`. A bundle with zones has `"place"` instead of `"cell"`, and
`"time"` may stand for `"slot"`. Other keys are ignored. All lines without a vehicle belong to one vehicle. The answer
is an estimate, or `{"error": ..., "message": ..., "line": ...}`, which never repeats any of the line. A bad line does
not end the stream.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrays import Ints
from geoblanket._display import card, counted, short_repr
from geoblanket._lazy import companion
from geoblanket._untrusted import read_object
from geoblanket.errors import InputError, ParameterError
from geoblanket.loss.place_loss import PlaceLoss
from geoblanket.mechanism.bundle.storage import Bundle, ZoneBundle
from geoblanket.release.fence import NO_FENCES, Fences
from geoblanket.release.inputs import checked_time_ms
from geoblanket.release.reporter import Kind
from geoblanket.tracking.estimate import Estimates, Estimator
from geoblanket.tracking.filtering import LONGEST_GAP_MS, BeliefFilter
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.observation import Reports

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from geoblanket.roads.graph import RoadGraph

Outcome = Literal["used", "late", "repeated", "conflicting", "impossible"]
"""Outcome of a report. used: it counted. late: it came too late. repeated: its slot already had the same report.
conflicting: its slot already had another report, as if two vehicles had one name. impossible: no place explains it."""

_MEMORY_BYTES: Final = 1 << 30
_LATEST_MS: Final = 4_102_444_800_000
"""The start of the year 2100: a later slot is a mistake."""
_NEW: Final = -1
"""In place of the slots since the last report: the vehicle is new, or was silent for too long."""
_HELD: Final = 0
"""In place of the slots since the last report: the report is held, so the belief stays as it was."""
_PLAIN_SPACING_M: Final = 300.0
_MOST_ACROSS: Final = 100
LARGEST_LINE: Final = 4096
"""Bytes of a line; longer lines are skipped."""
LONGEST_NAME: Final = 200
"""Characters of a vehicle's name."""
_LINES_AT_A_TIME: Final = 256
_BYTES_AT_A_TIME: Final = 1 << 16
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Tracked(NamedTuple):
    """The estimated position of a vehicle.

    Examples
    --------
    >>> from geoblanket import Tracker, load_bundle
    >>> tracked = Tracker(load_bundle("city.bundle")).see("taxi 7", 57_326_400, 3)
    >>> tracked.outcome
    'used'
    """

    lat: float
    """Degrees."""
    lon: float
    radius_m: float
    """The circle around the estimate that holds the vehicle with a probability of 90 %, metres."""
    outcome: Outcome

    def __repr__(self) -> str:
        return short_repr(self, f"90 % within {self.radius_m:,.0f} m", self.outcome)


class _Past(NamedTuple):
    """A report that counted, and the belief before it."""

    slot: int
    output: int
    follows: int
    """Number of consecutive slots with a report just before."""
    before: Singles
    """Empty for the first report of a vehicle."""


@dataclass(eq=False, slots=True)
class _Vehicle:
    slot: int
    """Slot of the last report."""
    output: int
    follows: int
    """Number of consecutive slots with a report just before that slot."""
    belief: Singles
    """Shape (N, 1)."""
    past: deque[_Past]
    """The reports that a late report could still precede, and one earlier report."""


@dataclass(frozen=True, eq=False)
class _Given:
    """Reports that are processed together, and their results."""

    vehicles: Sequence[Hashable]
    slot: Ints
    output: Ints
    places: Singles
    """The belief in places after each report, shape (P, B)."""
    outcomes: list[Outcome]
    steps_ahead: int
    """Steps of the model after each report at which the belief is asked for."""


class Tracker:
    """Follows vehicles by their released reports.

    Parameters
    ----------
    bundle
        The bundle that made the reports.
    model
        How vehicles move; None: a model by distance, in which near places are more probable than far ones.
    late_slots
        How many slots late a report may come.
    memory_bytes
        Memory for beliefs; if the vehicles do not fit, those that were silent for longest are forgotten.
    fences
        The fences of the vehicles, if the recipient knows them: a place inside one looks like its centre.

    Raises
    ------
    MismatchError
        If the model is for another city, or has other places than a bundle with zones.

    Examples
    --------
    >>> from geoblanket import MotionModel, Tracker, load_bundle
    >>> tracker = Tracker(load_bundle("city.bundle"), MotionModel.load("city.model"))
    >>> tracked = [tracker.see("taxi 7", slot, 3) for slot in (57_326_400, 57_326_401)]
    >>> later = tracker.estimate("taxi 7", ahead=10)
    >>> bool(later.radius_m[0] > tracked[1].radius_m)
    True
    """

    @checked
    def __init__(
        self,
        bundle: Bundle,
        model: MotionModel | None = None,
        *,
        late_slots: int = 0,
        memory_bytes: int = _MEMORY_BYTES,
        fences: Fences = NO_FENCES,
    ) -> None:
        if late_slots < 0:
            raise ParameterError(f"A report may be 0 or more slots late. Got {late_slots} instead.")
        model = plain_model(bundle) if model is None else model
        self.filter = BeliefFilter.of(bundle, model, fences=fences)
        self.kind: Kind = bundle.output_kind
        """What a report names: a cell or a place."""
        self.outcomes: Counter[Outcome] = Counter()
        """How many reports had each outcome."""
        self.dropped = 0
        """Vehicles that were forgotten because memory was full."""
        self._estimator = Estimator(self.filter.model)
        self._late = late_slots
        self._most = max(1, memory_bytes // (self.filter.bytes_per_vehicle * (1 + late_slots)))
        self.longest_ahead = max(1, LONGEST_GAP_MS // self.filter.interval_ms)
        """The largest number of slots to look ahead; after a longer silence a vehicle counts as new."""
        self._vehicles: OrderedDict[Hashable, _Vehicle] = OrderedDict()

    @property
    def model(self) -> MotionModel:
        """How vehicles move."""
        return self.filter.model

    @property
    def vehicles(self) -> int:
        """How many vehicles are followed now."""
        return len(self._vehicles)

    @property
    def slots(self) -> int:
        """The number of slots from 1970 to 2099, numbered from 0."""
        return _LATEST_MS // self.filter.interval_ms

    @property
    def outputs(self) -> int:
        """The number of outputs, which are numbered from 0."""
        return self.filter.observations.outputs

    def slots_in(self, seconds: float) -> int:
        """Return how many slots a time ahead, in seconds, takes.

        Raises
        ------
        ParameterError
            If it is not a whole number of slots, or longer than two hours.
        """
        return slots_ahead(seconds, self.filter)

    def slot_of(self, time_ms: int) -> int:
        """Return the slot of a time, milliseconds since 1970 in UTC."""
        return time_ms // self.filter.interval_ms

    def see(self, vehicle: Hashable, slot: int, output: int, *, ahead: int = 0) -> Tracked:
        """Process one report, and return the estimated position of its vehicle.

        Parameters
        ----------
        vehicle
            Name of the vehicle.
        slot
            The report's slot: intervals of the bundle since 1970.
        output
            The cell or the place that was reported.
        ahead
            Estimate the position this many slots after the report.

        Raises
        ------
        InputError
            If the bundle has no such output.
        """
        estimates, outcomes = self.see_many([vehicle], np.array([slot]), np.array([output]), ahead=ahead)
        return Tracked(float(estimates.lat[0]), float(estimates.lon[0]), float(estimates.radius_m[0]), outcomes[0])

    def see_many(
        self, vehicles: Sequence[Hashable], slots: npt.ArrayLike, outputs: npt.ArrayLike, *, ahead: int = 0
    ) -> tuple[Estimates, list[Outcome]]:
        """Process many reports, and return the estimated position of each one's vehicle, `ahead` slots later.

        Reports of one vehicle are processed in the order given.
        """
        self._check_ahead(ahead)
        slot, output = _whole(slots, "slots"), _whole(outputs, "outputs")
        if not len(vehicles) == len(slot) == len(output):
            raise ParameterError("There must be a vehicle, a slot and an output for each report.")
        self._check(slot, output)
        given = _Given(
            vehicles,
            slot,
            output,
            np.empty((self.model.place_count, len(slot)), np.float32),
            ["used"] * len(slot),
            ahead * self.filter.steps_per_slot,
        )
        for some in _rounds(vehicles):
            self._see_round(given, some)
        self.outcomes.update(given.outcomes)
        return self._estimator.estimates(given.places), given.outcomes

    def estimate(self, vehicle: Hashable, *, ahead: int = 0, loss: PlaceLoss | None = None) -> Estimates:
        """Return the estimated position of a vehicle, `ahead` slots after its last report.

        Parameters
        ----------
        ahead
            Slots after the last report.
        loss
            Cost of a wrong place; None: the distance.

        Raises
        ------
        ParameterError
            If the vehicle is not followed.
        """
        estimator = self._estimator if loss is None else Estimator(self.model, loss)
        return estimator.estimates(self.places(vehicle, ahead=ahead))

    def places(self, vehicle: Hashable, *, ahead: int = 0) -> Singles:
        """Return the probability of each place, `ahead` slots after the vehicle's last report, shape (P, 1)."""
        if vehicle not in self._vehicles:
            raise ParameterError("No report of this vehicle is known, or it was forgotten.")
        self._check_ahead(ahead)
        return self._places_ahead(self._vehicles[vehicle].belief, ahead * self.filter.steps_per_slot)

    def _check_ahead(self, ahead: int) -> None:
        if not 0 <= ahead <= self.longest_ahead:
            raise ParameterError(f"The slots ahead must be 0 to {self.longest_ahead}. Got {ahead} instead.")

    def _places_ahead(self, beliefs: Singles, steps: int) -> Singles:
        return self.filter.places(self.filter.predicted(beliefs, steps))

    def within(self, vehicle: Hashable, lat: float, lon: float, radius_m: float, *, ahead: int = 0) -> float:
        """Return the probability that a vehicle is within `radius_m` metres of a point, degrees."""
        return float(self._estimator.within(self.places(vehicle, ahead=ahead), lat, lon, radius_m)[0])

    def likeliest(self, vehicle: Hashable, count: int = 5, *, ahead: int = 0) -> list[tuple[int, float]]:
        """Return the most probable places of a vehicle and their probabilities, largest first."""
        places, chances = self._estimator.likeliest(self.places(vehicle, ahead=ahead), count)
        return list(zip(places[:, 0].tolist(), chances[:, 0].tolist(), strict=True))

    def forget(self, vehicle: Hashable) -> None:
        """Forget a vehicle, if it is known."""
        self._vehicles.pop(vehicle, None)

    def _check(self, slot: Ints, output: Ints) -> None:
        for values, count, what, hint in (
            (
                output,
                self.outputs,
                "an output that the bundle does not have",
                "Give the bundle that the reports were made with",
            ),
            (
                slot,
                self.slots,
                "a slot before 1970 or after 2099",
                "Give the slot of the report, as its device numbers it",
            ),
        ):
            wrong = np.flatnonzero((values < 0) | (values >= count))
            if len(wrong):
                raise InputError(
                    f"{len(wrong)} of {len(values)} reports have {what}, the first is report {wrong[0]}; possible are "
                    f"0 to {count - 1}",
                    hint=hint,
                )

    def _see_round(self, given: _Given, some: list[int]) -> None:
        """Process at most one report of each vehicle."""
        # One product steps all vehicles whose last report lies equally many slots back.
        on_time: dict[int, list[int]] = {}
        for index in some:
            known = self._vehicles.get(given.vehicles[index])
            elapsed = _NEW if known is None else int(given.slot[index]) - known.slot
            if known is not None and elapsed <= 0:
                given.outcomes[index] = self._see_late(known, int(given.slot[index]), int(given.output[index]))
                given.places[:, index] = self._places_ahead(known.belief, given.steps_ahead)[:, 0]
            elif known is None or elapsed > self.longest_ahead:
                on_time.setdefault(_NEW, []).append(index)
            else:
                held = self.filter.are_held(given.output[index], known.output)
                on_time.setdefault(_HELD if held else elapsed, []).append(index)
        for elapsed, indices in on_time.items():
            self._step(given, indices, elapsed)
        # `_step` moves a vehicle to the end, so the first ones were silent for longest.
        while len(self._vehicles) > self._most:
            self._vehicles.popitem(last=False)
            self.dropped += 1

    def _step(self, given: _Given, indices: list[int], elapsed: int) -> None:
        """Step vehicles whose last report lies equally many slots back, or whose report is held."""
        # Predict from the last report, or start anew.
        names = [given.vehicles[index] for index in indices]
        slot, output = given.slot[indices], given.output[indices]
        before = [np.empty((0, 0), np.float32)] * len(names)
        follows = np.zeros(len(names), np.int64)
        if elapsed == _NEW:
            beliefs = self.filter.begin(len(names))
        else:
            known = [self._vehicles[name] for name in names]
            before = [vehicle.belief for vehicle in known]
            beliefs = self.filter.predicted(np.concatenate(before, axis=1), elapsed * self.filter.steps_per_slot)
            in_a_row = slot - [vehicle.slot for vehicle in known] == 1
            follows[in_a_row] = 1 + np.array([vehicle.follows for vehicle in known])[in_a_row]
        # Weigh by the reports; a held report is no new evidence.
        if elapsed != _HELD:
            for number in np.flatnonzero(self.filter.weigh(beliefs, Reports(output, slot, follows))).tolist():
                given.outcomes[indices[number]] = "impossible"
        given.places[:, indices] = self._places_ahead(beliefs, given.steps_ahead)
        for column, name in enumerate(names):
            belief = beliefs if len(names) == 1 else beliefs[:, column : column + 1].copy()
            last = self._vehicles.pop(name, None)
            past = deque[_Past]() if last is None or elapsed == _NEW else last.past
            vehicle = _Vehicle(int(slot[column]), int(output[column]), int(follows[column]), belief, past)
            # Remember the reports that a late one may still precede.
            if self._late:
                past.append(_Past(vehicle.slot, vehicle.output, vehicle.follows, before[column]))
                while len(past) > 1 and past[1].slot <= vehicle.slot - self._late:
                    past.popleft()
            self._vehicles[name] = vehicle

    def _see_late(self, vehicle: _Vehicle, slot: int, output: int) -> Outcome:
        """Insert a late report where it belongs, if the tracker remembers that long."""
        same = [report for report in vehicle.past if report.slot == slot]
        if slot == vehicle.slot or same:
            known = vehicle.output if slot == vehicle.slot else same[0].output
            return "repeated" if known == output else "conflicting"
        if not vehicle.past or slot < vehicle.past[0].slot or slot < vehicle.slot - self._late:
            return "late"
        # Take back the reports after its slot, insert it, and process them again.
        later: list[_Past] = []
        while vehicle.past[-1].slot > slot:
            later.insert(0, vehicle.past.pop())
        belief, last = later[0].before, vehicle.past[-1]
        for report in [_Past(slot, output, 0, belief), *later]:
            follows = last.follows + 1 if report.slot == last.slot + 1 else 0
            vehicle.past.append(report._replace(follows=follows, before=belief))
            if not self.filter.are_held(report.output, last.output):
                belief = self.filter.predicted(belief, (report.slot - last.slot) * self.filter.steps_per_slot)
                self.filter.weigh(
                    belief, Reports(np.array([report.output]), np.array([report.slot]), np.array([follows]))
                )
            last = vehicle.past[-1]
        vehicle.belief, vehicle.follows = belief, last.follows
        return "used"

    def plot(
        self, vehicle: Hashable, *, ahead: int = 0, ax: Axes | None = None, roads: RoadGraph | None = None
    ) -> Axes:
        """Draw the probability of each place for a vehicle, and its estimate (extra `city`).

        Parameters
        ----------
        vehicle, ahead
            As for `estimate`.
        ax
            Axes of Matplotlib to draw on; None: those of a new figure.
        roads
            Drawn beneath the places.
        """
        belief, estimates = self.places(vehicle, ahead=ahead)[:, 0], self.estimate(vehicle, ahead=ahead)
        draw = companion("geoblanket.tracking.picture", "Tracker.plot").plot_belief
        axes: Axes = draw(self.model, belief, estimates, ax=ax, roads=roads)
        return axes

    def _repr_html_(self) -> str:
        rows = [
            ("vehicles followed", f"{self.vehicles:,}"),
            ("a report", f"a {self.kind} every {self.filter.interval_ms / 1000:g} s"),
            *((f"reports {outcome}", f"{count:,}") for outcome, count in sorted(self.outcomes.items())),
            ("motion model", f"{self.model.map_places:,} places, order {self.model.memory}"),
        ]
        return card(self, rows)

    def __repr__(self) -> str:
        used = counted(self.outcomes.total(), "report")
        about = f"a {self.kind} every {self.filter.interval_ms / 1000:g} s"
        return short_repr(
            self, f"follows {counted(self.vehicles, 'vehicle')}", f"{used} seen", about, f"order {self.model.memory}"
        )


def slots_ahead(seconds: float, beliefs: BeliefFilter) -> int:
    """Return how many slots a time ahead takes, for the reports of a filter; see `Tracker.slots_in`."""
    interval_s, longest_s = beliefs.interval_ms / 1000, LONGEST_GAP_MS // 1000
    slots = round(seconds / interval_s) if 0 <= seconds <= longest_s else -1
    if slots < 0 or abs(slots * interval_s - seconds) > 1e-6:
        raise ParameterError(
            f"The time ahead must be 0 to {longest_s:,} seconds, and a whole number of intervals of the reports "
            f"({interval_s:g} s). Got {seconds:g} instead."
        )
    return slots


def plain_model(bundle: Bundle) -> MotionModel:
    """Return a model by distance that needs only a bundle: between its places, or points of its lattice's frame."""
    interval_s = bundle.needed_clock().interval_s
    if isinstance(bundle, ZoneBundle):
        return MotionModel.by_distance(bundle.places_e7, interval_s=interval_s)
    plane = bundle.lattice.spec.plane
    side_m = plane.side * plane.unit_mm / 1000
    across = int(np.clip(round(side_m / _PLAIN_SPACING_M), 2, _MOST_ACROSS))
    axis = (np.arange(across) + 0.5) * plane.side / across
    x, y = (part.ravel() for part in np.meshgrid(axis, axis))
    lat, lon = plane.degrees(x, y)
    places_e7 = np.rint(np.column_stack([lat, lon]) * 1e7).astype(np.int32)
    # A grid point stands for a square: the root mean square distance from its middle.
    spread_m = side_m / across / 6**0.5
    return replace(MotionModel.by_distance(places_e7, interval_s=interval_s), spread_m=spread_m)


def _whole(values: npt.ArrayLike, name: str) -> Ints:
    given = np.asarray(values)
    if given.ndim != 1 or not (np.issubdtype(given.dtype, np.integer) or not given.size):
        raise ParameterError(f"The {name} must be whole numbers in one dimension.")
    return given.astype(np.int64)


def _rounds(vehicles: Sequence[Hashable]) -> list[list[int]]:
    """Return the positions of the first report of each vehicle, then of each second report, and so on."""
    seen: Counter[Hashable] = Counter()
    rounds: list[list[int]] = []
    for index, vehicle in enumerate(vehicles):
        if seen[vehicle] == len(rounds):
            rounds.append([])
        rounds[seen[vehicle]].append(index)
        seen[vehicle] += 1
    return rounds


@dataclass(frozen=True)
class ReportLine:
    """One report."""

    vehicle: str | None
    slot: int
    output: int


def answers(tracker: Tracker, lines: BinaryIO, *, ahead: int = 0) -> Iterator[list[dict[str, Any]]]:
    """Yield the answers to lines, as JSON values, together for all lines that have arrived.

    Parameters
    ----------
    lines
        A stream with `read1`, such as `sys.stdin.buffer`.
    ahead
        Estimate positions this many slots after the reports.
    """
    number = 1
    for some in _batches(lines):
        yield _answered(tracker, some, number, ahead)
        number += len(some)


def _batches(lines: BinaryIO) -> Iterator[list[bytes]]:
    """Yield lines as they arrive; a line that is too long is cut."""
    rest = b""
    while data := lines.read1(_BYTES_AT_A_TIME):  # type: ignore[attr-defined]  # of buffered readers and BytesIO
        *whole, rest = (rest + data).split(b"\n")
        rest = rest[: LARGEST_LINE + 1]
        for start in range(0, len(whole), _LINES_AT_A_TIME):
            yield whole[start : start + _LINES_AT_A_TIME]
    if rest:
        yield [rest]


def _answered(tracker: Tracker, lines: list[bytes], number: int, ahead: int) -> list[dict[str, Any]]:
    given: list[dict[str, Any] | ReportLine] = []
    for position, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            if len(line) > LARGEST_LINE:
                raise ParameterError(f"The line is longer than {LARGEST_LINE} bytes. Give one report on each line.")
            given.append(read_report(line, tracker))
        except ParameterError as error:
            given.append({"error": "input", "message": str(error), "line": number + position})
    reports = [report for report in given if isinstance(report, ReportLine)]
    estimated = iter(_estimated(tracker, reports, ahead))
    return [next(estimated) if isinstance(each, ReportLine) else each for each in given]


def _estimated(tracker: Tracker, reports: list[ReportLine], ahead: int) -> list[dict[str, Any]]:
    if not reports:
        return []
    names = [report.vehicle for report in reports]
    slots, outputs = (np.array([getattr(report, name) for report in reports]) for name in ("slot", "output"))
    estimates, outcomes = tracker.see_many(names, slots, outputs, ahead=ahead)
    interval = timedelta(milliseconds=tracker.filter.interval_ms)
    return [
        {
            **({} if report.vehicle is None else {"vehicle": report.vehicle}),
            "slot": report.slot,
            "time": (_EPOCH + (report.slot + ahead) * interval).isoformat().replace("+00:00", "Z"),
            "lat": round(float(estimates.lat[index]), 7),
            "lon": round(float(estimates.lon[index]), 7),
            "radius_m": round(float(estimates.radius_m[index]), 1),
            "outcome": outcomes[index],
        }
        for index, report in enumerate(reports)
    ]


def read_report(data: bytes, tracker: Tracker) -> ReportLine:
    """Read a report from a JSON text.

    Raises
    ------
    ParameterError
        If it is not a report, or not of the tracker's bundle.
    """
    try:
        values = read_object(data)
    except ValueError:
        raise ParameterError("The line is not a JSON object, or has a key twice.") from None
    name = tracker.kind
    other = "cell" if name == "place" else "place"
    if name not in values and other in values:
        raise ParameterError(
            f"The line reports a {other}, but reports of the bundle are a {name} each. Give the bundle of the report."
        )
    if name not in values or not values.keys() & {"slot", "time"}:
        raise ParameterError(f"The line must be a JSON object with {name}, slot or time, and vehicle.")
    output, vehicle = values[name], values.get("vehicle")
    if type(output) is not int or not 0 <= output < tracker.outputs:
        raise ParameterError(
            f"The {name} must be a whole number from 0 to {tracker.outputs - 1:,}, the last one of the bundle."
        )
    if vehicle is not None and not (type(vehicle) is str and 1 <= len(vehicle) <= LONGEST_NAME):
        raise ParameterError(f"The vehicle must be a text of 1 to {LONGEST_NAME} characters.")
    return ReportLine(vehicle, _slot(values, tracker), output)


def _slot(values: dict[str, Any], tracker: Tracker) -> int:
    slot = values.get("slot")
    at = None if values.get("time") is None else _slot_of_time(values["time"], tracker)
    slot = at if slot is None else slot
    if type(slot) is not int or not 0 <= slot < tracker.slots:
        raise ParameterError("The slot must be a whole number, and lie between 1970 and 2099.")
    if at is not None and at != slot:
        raise ParameterError("The slot and the time do not agree. Give the bundle that the report was made with.")
    return slot


def _slot_of_time(time: Any, tracker: Tracker) -> int:
    if type(time) is str:
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            raise ParameterError("The time must be in ISO 8601, or a number of seconds since 1970.") from None
    return tracker.slot_of(checked_time_ms(time))
