"""One thread that turns true positions into released ones.

It owns the ledger, with an account for each device, and puts what it releases into the outbox. Positions that wait are
worked on together, in one transaction of the ledger and one of the outbox: that is how hundreds of durable messages a
second fit on a small machine. Sources that can wait are told only after both. A crash between the two loses nothing:
the ledger has the answer, and the next start puts it into the outbox.

Messages that are not positions go the same way, and the sources of a batch are told together, on a beat. So neither an
answer nor its time discloses the outcome of a message. A second thread waits for the beat, while the first continues.

Requests for fences go this way, too. A fence is drawn and stored before the positions of its batch are processed. A
refused request costs a transaction all the same.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

from geoblanket._untrusted import read_object
from geoblanket.errors import LedgerError, ParameterError
from geoblanket.release.fleet import Fleet
from geoblanket.release.inputs import accepted_ms, checked_location_e7, checked_time_ms
from geoblanket.serve.gateway.messages import Position, Reason, Released, WantedFence
from geoblanket.serve.gateway.outbox import Outbox, Schedule
from geoblanket.serve.metrics import GatewayMetrics, where

_log = logging.getLogger(__name__)

_WAITING: Final = 4096
_AT_ONCE: Final = 512
_LARGEST_FENCE: Final = 4096
"""Bytes of a message that asks for a fence."""
_BEAT_S: Final = 0.02
"""Sources are told at multiples of this time after a batch was begun. Most batches take less, whatever they hold."""
_WARNINGS_S: Final = 3600.0
"""Seconds from one log of warnings to the next, at least. The first is logged at once, the last at the end."""
TOLERANCE_MARGIN_S: Final = 3600.0
"""Seconds by which the fleet accepts times further off than the worker does, in case the clock is set in between."""

Done = Callable[[Reason | None], None]
"""Called once a position is durable, or dropped: with its outcome, or None if the gateway failed."""


def _nobody_waits(_outcome: Reason | None) -> None:
    pass


@dataclass(frozen=True)
class Enrolment:
    """Which devices are known."""

    names: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    """Even if the ledger has an account of theirs."""
    anyone: bool = False
    """Whether devices are enrolled at first sight."""
    most: int = 10_000
    """How many devices there may be in all."""


@dataclass(slots=True)
class _Job:
    content: Position | WantedFence | Reason = field(repr=False)
    source: str
    done: Done
    since_s: float
    outcome: Reason | None = None


def open_outbox(path: Path, fleet: Fleet, *, capacity: int, metrics: GatewayMetrics, schedule: Schedule) -> Outbox:
    """Open the outbox beside a fleet's ledger, and add what a crash kept from it."""
    accounts = fleet.accounts
    answered = {name: answers[-1].slot_ms for name, answers in accounts.items() if answers}
    outbox = Outbox(path, capacity=capacity, answered=answered, schedule=schedule)
    if outbox.is_new and answered:
        _log.warning("The queue is new, and the ledger is not: what was released before is not sent again.")
    missing = [
        Released(name, answer.slot_ms, answer.place, answer.lat_e7, answer.lon_e7)
        for name, answers in accounts.items()
        for answer in answers
        if answer.slot_ms > (outbox.last_slot_ms(name) or 0)
    ]
    if missing:
        metrics.dropped.inc(outbox.add(sorted(missing, key=lambda message: message.slot_ms)))
        metrics.recovered.inc(len(missing))
        _log.info("%d released position(s) of the last run were put into the queue.", len(missing))
    return outbox


class ReleaseWorker:
    """Both threads, with a bounded queue in front of the first.

    Parameters
    ----------
    fleet
        All devices, on one ledger. The worker closes it.
    outbox
        Where released positions go. The worker does not close it: others still send.
    enrolment
        Which devices are known.
    tolerance_s
        How far the time of a position may be from the clock, seconds.
    metrics
        Where outcomes are counted.
    on_failure
        Called when nothing can be released any more.
    """

    def __init__(
        self,
        fleet: Fleet,
        outbox: Outbox,
        *,
        enrolment: Enrolment,
        tolerance_s: float,
        metrics: GatewayMetrics,
        on_failure: Callable[[], None],
    ) -> None:
        self._fleet, self._outbox, self._metrics, self._on_failure = fleet, outbox, metrics, on_failure
        self._enrolment, self._tolerance_s = enrolment, tolerance_s
        for reason in get_args(Reason):  # from the beginning, so that no name appears with the first of its kind
            metrics.outcomes.labels(reason)
        known = (enrolment.names | fleet.accounts.keys()) - enrolment.refused - set(fleet.vehicles)
        fleet.enrol(sorted(known))
        self._numbers = {name: number for number, name in enumerate(fleet.vehicles)}
        self._line: queue.Queue[_Job | None] = queue.Queue(_WAITING)
        self._closing = False
        self._warnings = Counter[str]()
        self._warned_s = -math.inf
        self.failed = False
        self._durable: queue.SimpleQueue[tuple[float, list[_Job]] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._run, name="ledger"), threading.Thread(target=self._tell)]
        for thread in self._threads:
            thread.start()

    @property
    def devices(self) -> int:
        """How many devices are known."""
        return len(self._numbers)

    def submit(
        self,
        content: Position | WantedFence | Reason,
        source: str,
        done: Done = _nobody_waits,
        *,
        wait_s: float = 0.0,
    ) -> bool:
        """Hand a message over; return False if too many wait, or the gateway stops.

        Parameters
        ----------
        content
            The position, a fence that is wanted, or why there is neither: then it is counted, and takes as long.
        source
            A fixed word for where it came from.
        done
            Called in a thread of the worker; must not raise or block.
        wait_s
            Seconds to wait for room in the line.
        """
        if self.failed or self._closing:
            return False
        try:
            self._line.put(_Job(content, source, done, time.perf_counter()), block=wait_s > 0, timeout=wait_s or None)
        except queue.Full:
            return False
        return not self.failed  # after the line was emptied nobody would look at it

    def close(self) -> None:
        """Finish what was handed over, and close the ledger."""
        self._closing = True
        if self._threads[0].is_alive():
            self._line.put(None)
        for thread in self._threads:
            thread.join()
        self._log_warnings()
        self._fleet.close()

    def _run(self) -> None:
        try:
            self._work_on()
        finally:
            self._durable.put(None)

    def _tell(self) -> None:
        """Tell sources about their messages, a batch at a time, each on its beat."""
        while (batch := self._durable.get()) is not None:
            due_s, jobs = batch
            time.sleep(max(0.0, due_s - time.monotonic()))
            for job in jobs:
                job.done(job.outcome)

    def _work_on(self) -> None:
        while True:
            batch = [self._line.get()]
            while len(batch) < _AT_ONCE and not self._line.empty():
                batch.append(self._line.get())
            jobs = [job for job in batch if job is not None]
            begun_s = time.monotonic()
            try:
                self._work(jobs)
            except Exception as error:
                # Without its message, which may be about what was sent.
                what = str(error) if isinstance(error, LedgerError) else where(error.__traceback__)
                _log.error("Nothing is released any more: %s (%s).", type(error).__name__, what)
                self._fail(jobs)
                return
            now_s = time.monotonic()
            self._durable.put((now_s + (begun_s - now_s) % _BEAT_S, jobs))
            if time.monotonic() >= self._warned_s + _WARNINGS_S:
                self._log_warnings()
            if len(jobs) < len(batch):
                return

    def _fail(self, jobs: Iterable[_Job]) -> None:
        self.failed = True
        pending = list(jobs)
        while not self._line.empty():
            if (job := self._line.get()) is not None:
                pending.append(job)
        for job in pending:
            job.done(None)
        self._on_failure()

    def _work(self, jobs: list[_Job]) -> None:
        """Answer positions, those of different devices together, those of the same device one after the other."""
        self._make_fences([(job, job.content) for job in jobs if isinstance(job.content, WantedFence)])
        accepted = accepted_ms(self._tolerance_s)
        waiting: list[tuple[_Job, Position]] = []
        for job in jobs:
            if isinstance(job.content, str):
                self._finish(job, job.content)
            elif isinstance(job.content, Position):
                if (reason := _problem(job.content, accepted)) is None:
                    waiting.append((job, job.content))
                else:
                    self._finish(job, reason)
        self._enrol(position.device for _, position in waiting)
        while waiting:
            first: dict[str, tuple[_Job, Position]] = {}
            later: list[tuple[_Job, Position]] = []
            for job, position in waiting:
                if position.device not in self._numbers:
                    self._finish(job, "unknown_device")
                elif position.device in first:
                    later.append((job, position))
                else:
                    first[position.device] = job, position
            if first:
                self._release(*zip(*first.values(), strict=True))
            waiting = later

    def _make_fences(self, wanted: Sequence[tuple[_Job, WantedFence]]) -> None:
        """Draw and store fences; log how many, and no more. No metric tells which were refused."""
        refused = 0
        for job, fence in wanted:
            fences = self._fleet.fences_of(fence.device)
            try:
                if fence.device not in self._numbers:
                    raise ValueError("The operator refuses this device.")
                fences, _ = fences.with_place(**_place_of(fence.body))
            except (ValueError, OverflowError, ParameterError):  # never logged: the message may be about the place
                refused += 1
            self._fleet.set_fences(fence.device, fences)  # the same ones, if it was refused: that takes as long
            self._finish(job, "fence")
        if refused:
            _log.warning(
                "%d fence(s) refused: malformed, a second one for a place, or of a name that is taken.", refused
            )
        if len(wanted) > refused:
            _log.info("%d fence(s) made.", len(wanted) - refused)

    def _enrol(self, names: Iterable[str]) -> None:
        """Add devices that are seen for the first time, if anyone may come."""
        if not self._enrolment.anyone:
            return
        new = [
            name for name in dict.fromkeys(names) if name not in self._numbers and name not in self._enrolment.refused
        ]
        new = new[: max(0, self._enrolment.most - len(self._numbers))]
        if new:
            self._fleet.enrol(new)
            self._numbers = {name: number for number, name in enumerate(self._fleet.vehicles)}

    def _release(self, jobs: Sequence[_Job], positions: Sequence[Position]) -> None:
        found = (self._fleet.warning_for(position.lat, position.lon) for position in positions)
        self._warnings.update(warning for warning in found if warning is not None)
        try:
            reports = self._fleet.report(
                [self._numbers[position.device] for position in positions],
                [position.lat for position in positions],
                [position.lon for position in positions],
                [position.time_s for position in positions],
            )
        except ParameterError:  # all was checked: the clock was set in between
            for job in jobs:
                self._finish(job, "clock")
            return
        messages: list[Released] = []
        outcomes: list[Reason] = []
        for index, position in enumerate(positions):
            if reports.refused[index]:
                outcomes.append("late" if reports.late[index] else "budget")
            elif reports.stored[index]:
                outcomes.append("repeated")
            else:
                outcomes.append("released")
                messages.append(
                    Released(
                        position.device,
                        int(reports.slot[index]) * self._fleet.interval_ms,
                        int(reports.place[index]),
                        round(float(reports.lat[index]) * 1e7),
                        round(float(reports.lon[index]) * 1e7),
                        position.extras,
                    )
                )
        if messages:
            self._metrics.dropped.inc(self._outbox.add(messages))
            self._metrics.batch.observe(len(messages))
        for job, outcome in zip(jobs, outcomes, strict=True):
            self._finish(job, outcome)

    def _finish(self, job: _Job, outcome: Reason) -> None:
        self._metrics.count(job.source, outcome)
        self._metrics.durable_seconds.observe(time.perf_counter() - job.since_s)
        job.outcome = outcome

    def _log_warnings(self) -> None:
        """Log how often positions seem wrong, without positions or devices; never in metrics, which others may read."""
        for warning, count in self._warnings.items():
            _log.warning("%d position(s) since the last such line: %s", count, warning)
            self._warned_s = time.monotonic()
        self._warnings.clear()


def _problem(position: Position, accepted: tuple[float, float]) -> Reason | None:
    """Return why a position is invalid or not of the present; None if it is valid."""
    try:
        checked_location_e7(position.lat, position.lon)
        checked_time_ms(position.time_s)
    except ParameterError:
        return "malformed"
    return None if accepted[0] <= position.time_s * 1000 <= accepted[1] else "clock"


def _place_of(body: bytes) -> dict[str, Any]:
    """Return the arguments of `Fences.with_place` in a message; raise ValueError if it has others, or is too long."""
    values = read_object(body) if len(body) <= _LARGEST_FENCE else {}
    required, optional = {"lat", "lon", "radius_km"}, {"margin_m", "name"}
    are_numbers = all(type(value) in {int, float} for name, value in values.items() if name != "name")
    if not are_numbers or not required <= values.keys() <= required | optional:
        raise ValueError("This is not a fence.")
    return values
