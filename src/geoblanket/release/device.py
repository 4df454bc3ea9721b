"""A vehicle's reports, within a durable budget.

Every location takes the same steps: check the input, replace it by the centre of a fence that holds it, look for a
stored answer, check the budget, draw what is reported or repeat it at rest (`hold`), store the answer and its cost
durably, and only then return it. The budget counts both the caller's times and real elapsed time, unless this is a
replay.

What is drawn, and from what, is up to the bundle (`geoblanket.release.reporter`). True places are kept in memory only,
and only as many as the mechanisms of zones look back. After a restart, a gap, a refusal or a change of bundle there is
no history, and the next report uses the start regime. Where a lattice's last report was drawn is kept beside the
ledger.

`answers` serves another process: it takes requests as JSON lines, and yields one answer for each.

A line asks: `{"lat": 41.15, "lon": -8.61, "time": "2026-05-04T07:00:00Z"}`, with a name (`"request"`) if the request
may be repeated. The answer is a report, or `{"error": ..., "message": ...}`, which never repeats any of the line; where
the budget is spent, it has `retry_after_s`, the seconds until enough of it frees up. A bad line does not end the
stream; a ledger that cannot be used does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, Final, Unpack

from geoblanket._arguments import checked, forgetting
from geoblanket._display import short_repr
from geoblanket._untrusted import read_object
from geoblanket.errors import GeoblanketError, LedgerError, ParameterError, RandomnessError, RefusedError
from geoblanket.mechanism.bundle.policy import DEFAULT_POLICY, Policy
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.mechanism.bundle.trust import ANY_FILE, Trust
from geoblanket.release.budget import Account, Answer, Budget
from geoblanket.release.fence import NO_FENCES, Fence, Fences
from geoblanket.release.inputs import (
    CLOCK_TOLERANCE_S,
    accepted_ms,
    checked_location_e7,
    checked_request,
    checked_time_ms,
    checked_tolerance,
)
from geoblanket.release.ledger import MemoryLedger
from geoblanket.release.reporter import NEVER, Drawn, Kind, LedgerOptions, Numbers, Opened, opened

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO: Final = 10**6
_E7: Final = 10**7
_VEHICLE: Final = ""
LARGEST_LINE: Final = 4096
"""Bytes of a line; longer lines are skipped."""

_NEEDED: Final = frozenset({"lat", "lon", "time"})
_KNOWN: Final = _NEEDED | {"request"}


@dataclass(frozen=True)
class Report:
    """A reported location. It depends on the true location only through the random draw.

    Examples
    --------
    With the `report` in the example of `Device`:

    >>> sorted(report.as_dict())
    ['lat', 'left', 'lon', 'place', 'slot', 'stored', 'time']
    """

    place: int
    """Number of the reported place in the bundle; of a lattice, of the reported cell."""
    lat: float
    """Latitude of that place, or of the cell's centre, degrees."""
    lon: float
    """Longitude of that place, or of the cell's centre, degrees."""
    slot: int
    """Number of the time slot: intervals of the bundle's clock since 1970."""
    slot_ms: int
    """Start of the slot, milliseconds since 1970 in UTC."""
    left_micro: int
    """What is left of the budget of this window, in millionths per kilometre."""
    stored: bool
    """Whether this repeats an earlier answer, to the same request or in the same slot, at no cost."""
    kind: Kind = "place"
    """What is reported: a place, or a cell of a lattice."""

    @property
    def cell(self) -> int | None:
        """Number of the reported cell; None if a place is reported."""
        return self.place if self.kind == "cell" else None

    @property
    def time(self) -> datetime:
        """Start of the slot, in UTC: publish this, not the time of the fix."""
        return _EPOCH + timedelta(milliseconds=self.slot_ms)

    @property
    def left(self) -> float:
        """What is left of the budget of this window, per kilometre."""
        return self.left_micro / _MICRO

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            self.kind: self.place,
            "lat": self.lat,
            "lon": self.lon,
            "slot": self.slot,
            "time": self.time.isoformat().replace("+00:00", "Z"),
            "left": self.left,
            "stored": self.stored,
        }

    def __repr__(self) -> str:
        repeated = "repeated at no cost" if self.stored else ""
        return short_repr(
            self, f"{self.kind} {self.place:,}", f"slot {self.slot:,}", f"{self.left:g} per km left", repeated
        )


class Device(Opened):
    """Reports of one vehicle by the mechanisms of a bundle. Make one with `Device.open`, and close it.

    It is thread-safe. It refuses to work in a process forked from the one that opened it.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from geoblanket import Budget, Device
    >>> with Device.open("city.bundle", ledger=None, budget=Budget(epsilon=400, window_s=3600)) as device:
    ...     report = device.report(45.001, -30.002, datetime.now(UTC))
    >>> report.left
    398.0
    """

    _ledger: MemoryLedger

    @checked
    def __init__(
        self, bundle: Bundle, ledger: MemoryLedger, *, clock_tolerance_s: float, fences: Iterable[Fence] = ()
    ) -> None:
        super().__init__(bundle, ledger, clock_tolerance_s=clock_tolerance_s)
        self._fences = ledger.fences_of(_VEHICLE).with_all(fences)
        self._past, self._past_slot = self._reporter.past_of(ledger.drawn_at(_VEHICLE)), NEVER
        self._reporter.prepare()

    @classmethod
    @checked
    def open(
        cls,
        bundle: str | Path | Bundle,
        *,
        ledger: str | Path | None,
        budget: Budget | None = None,
        trust: Trust = ANY_FILE,
        policy: Policy = DEFAULT_POLICY,
        clock_tolerance_s: float = CLOCK_TOLERANCE_S,
        fences: Fences = NO_FENCES,
        **opening: Unpack[LedgerOptions],
    ) -> Device:
        """Open a bundle and a ledger.

        The bundle is verified exactly before anything is released. The ledger remembers the hash of a verified file, so
        that the same software opens it in a fraction of a second the next time.

        Parameters
        ----------
        bundle
            A file, or a bundle that was loaded.
        ledger
            The file made by `Ledger.create` (or `geoblanket ledger create`). None: the budget is kept in memory only.
        budget
            Without a ledger: the budget. With one: the budget that it must have, if given.
        trust
            Which files are accepted: signed by whom, for which domain, how new.
        policy
            The least that the bundle must promise.
        clock_tolerance_s
            How far the time of a report may be from the system's clock, seconds, either way.
        fences
            Fences besides those of the ledger, which are always used.
        device_key
            The key that the ledger was made with; by default the key of this device.
        counter
            The file of the counter that the ledger was made with; by default beside it, with `.count` added.
        replay
            For simulations and tests: any time is accepted, and the budget counts the caller's time ONLY. An hour of
            data replayed in a second spends an hour's budget. A ledger is for replays or for real reports, never both.
        hold_in_memory
            Whether the point where the last report was drawn is kept in memory only: after a restart the next report
            is drawn, at its cost, instead of held. By default it is kept beside the ledger, encrypted.

        Raises
        ------
        LedgerError
            The ledger is missing, damaged, rolled back, another device's, or in use.
        InputError, GuaranteeViolation, MismatchError
            The bundle cannot be used; see `load_bundle`. Or the ledger has reports by a later version of it.
        PolicyError
            It promises less than the policy asks for.
        """
        checked_tolerance(clock_tolerance_s)
        if ledger is None and budget is None:
            raise ParameterError("Give a ledger, or a budget to be kept in memory.")
        with opened(bundle, ledger, budget, trust=trust, policy=policy, **opening) as (loaded, kept):
            return cls(loaded, kept, clock_tolerance_s=clock_tolerance_s, fences=fences)  # type: ignore[arg-type]

    @forgetting
    def report(self, lat: float, lon: float, time: datetime | float, *, request: str | None = None) -> Report:
        """Report a location: draw a place or a cell, store it and what it cost, and return it.

        Every valid location gets an answer. A slot or request that was answered before gets the same answer again.

        Parameters
        ----------
        lat, lon
            Where the vehicle is, degrees (WGS 84).
        time
            When: a datetime with a time zone, or seconds since 1970 in UTC.
        request
            A name for the request, so that a repeated one is recognised.

        Raises
        ------
        ParameterError
            The input is not a location and a time.
        RefusedError
            The budget is spent, or a later report was made.
        LedgerError, RandomnessError
            Nothing could be stored, or drawn; nothing is released.
        """
        lat_e7, lon_e7 = checked_location_e7(lat, lon)
        time_ms = checked_time_ms(time, accepted=accepted_ms(self._tolerance_s))
        request = checked_request(request)
        point = self._reporter.point(*self._fences.apply_e7(lat_e7, lon_e7))
        slot = time_ms // self.interval_ms
        with self._lock:
            self._refuse_other_process()
            return self._answered(point, slot, request)

    def _answered(self, point: Numbers, slot: int, request: str | None) -> Report:
        reporter, slot_ms = self._reporter, slot * self.interval_ms
        account = self._ledger.account(_VEHICLE)
        now_ns = self._ledger.now_ns(slot_ms)
        if (answer := account.stored(slot_ms, request)) is not None:
            return self._report_of(answer, account.left_micro(account.last_slot_ms or 0, now_ns), stored=True)
        last = account.last
        past = reporter.no_past if last is None or self._is_gap(slot) else self._past
        cost, most, is_held = reporter.charge(point, past, slot_ms)
        left = account.checked_left_micro(slot_ms, now_ns, most, wait_ms=lambda: self._wait_ms(slot, now_ns, account))
        # A report that is held takes the steps of a fresh one: it is drawn and thrown away, and all is written.
        drawn, drawn_slot_ms = reporter.draw(point, past, slot_ms), slot_ms
        if is_held and last is not None:
            drawn, drawn_slot_ms = Drawn(last.place, last.lat_e7, last.lon_e7), account.drawn_slot_ms or slot_ms
        answer = Answer(slot_ms, cost, *drawn, request, now_ns)
        past = reporter.remembered(point, past, held=is_held)
        drawn_at = reporter.drawn_at(past, drawn_slot_ms)
        self._ledger.write([(_VEHICLE, answer)], {} if drawn_at is None else {_VEHICLE: drawn_at})
        self._past, self._past_slot = past, slot
        return self._report_of(answer, left + most - cost, stored=False)

    def _is_gap(self, slot: int) -> bool:
        """Return whether a report has no history, because there was no report in the slot before."""
        return self._reporter.gap_forgets and slot != self._past_slot + 1

    def _wait_ms(self, slot: int, now_ns: int, account: Account) -> int | None:
        """Return how long until a report is allowed again, milliseconds, a whole number of slots; None: never."""
        interval_ms = self.interval_ms
        for wait_ms, left_micro in account.freeing(slot * interval_ms, now_ns):
            slots = -(-wait_ms // interval_ms)
            # After a refusal there is a gap, so that the next report has no history.
            if slots and self.costs.start <= left_micro:
                return slots * interval_ms
        return None

    def _report_of(self, answer: Answer, left_micro: int, *, stored: bool) -> Report:
        return Report(
            place=answer.place,
            lat=answer.lat_e7 / _E7,
            lon=answer.lon_e7 / _E7,
            slot=answer.slot_ms // self.interval_ms,
            slot_ms=answer.slot_ms,
            left_micro=left_micro,
            stored=stored,
            kind=self.kind,
        )

    @property
    def budget(self) -> Budget:
        """What may be spent."""
        return self._ledger.budget

    @property
    def fences(self) -> Fences:
        """The fences that are applied to every position."""
        return self._fences

    @property
    def interval_s(self) -> float:
        """Seconds from one slot to the next: at most one report in each."""
        return self.interval_ms / 1000

    def _forget(self) -> None:
        self._past = self._reporter.no_past

    def __repr__(self) -> str:
        return short_repr(self, f"bundle {self.bundle_sha256[:12]}", repr(self._ledger))


def answers(
    device: Device, lines: BinaryIO, *, on_warning: Callable[[str], None] = lambda _: None
) -> Iterator[dict[str, Any]]:
    """Yield the answer to each line, as JSON values.

    Parameters
    ----------
    device
        The device that reports.
    lines
        The requests, one in each line.
    on_warning
        Called with what seems wrong with a location that was reported (`Device.warning_for`).

    Raises
    ------
    LedgerError
        After the answer that says so: the ledger cannot be used any more.
    """
    while line := lines.readline(LARGEST_LINE + 1):
        if not line.endswith(b"\n") and len(line) > LARGEST_LINE:
            _skip_rest(lines)
            yield _error_answer(ParameterError(f"The line is longer than {LARGEST_LINE} bytes."))
            continue
        if not line.strip():
            continue
        reported = None
        try:
            request = _request(line)
            answer = device.report(**request).as_dict()
            reported = request["lat"], request["lon"]
        except LedgerError as error:
            yield _error_answer(error)
            raise
        except GeoblanketError as error:
            answer = _error_answer(error)
        yield answer
        # Only now, so that no answer takes longer because of where the vehicle is.
        if reported is not None and (warning := device.warning_for(*reported)) is not None:
            on_warning(warning)


def _skip_rest(lines: BinaryIO) -> None:
    while (part := lines.readline(LARGEST_LINE)) and not part.endswith(b"\n"):
        pass


def _request(line: bytes) -> dict[str, Any]:
    """Return the arguments of `Device.report` that a line gives."""
    try:
        values = read_object(line)
    except ValueError:
        raise ParameterError("The line is not a JSON object, or has a key twice.") from None
    if not values.keys() >= _NEEDED or not values.keys() <= _KNOWN:
        raise ParameterError("The line must be a JSON object with lat, lon and time, and no more than request besides.")
    if isinstance(values["time"], str):
        try:
            values["time"] = datetime.fromisoformat(values["time"])
        except ValueError:
            raise ParameterError("The time must be in ISO 8601, or a number of seconds since 1970.") from None
    return values


def _error_answer(error: GeoblanketError) -> dict[str, Any]:
    kind = {ParameterError: "input", LedgerError: "ledger", RandomnessError: "randomness"}
    code = error.reason if isinstance(error, RefusedError) else kind.get(type(error), "other")
    answer: dict[str, Any] = {"error": code, "message": str(error)}
    if isinstance(error, RefusedError) and error.retry_after_s is not None:
        answer["retry_after_s"] = error.retry_after_s
    return answer
