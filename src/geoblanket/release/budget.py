"""What reports may cost: a budget in every sliding window of time, counted in whole millionths.

The window slides in two times: that of the slots, which the caller gives, and real elapsed time
(`geoblanket.release.rollback`). A report counts until it has left the window in both.

The cost of a report depends on the mechanisms, on the zone that the report discloses and on whether there was a
history; on nothing else about where the vehicle is. Whether a report is refused does not depend on the zone. A location
is protected in its own report and as the past of the next Γ ones, and is charged for all of them when it is reported
(`geoblanket.mechanism.costs.Costs`). A report that is held costs nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, NamedTuple

from geoblanket._arguments import checked
from geoblanket.errors import ParameterError, RefusedError

_MICRO: Final = 10**6
_MS_PER_S: Final = 1000
_NS_PER_MS: Final = 10**6
_LARGEST_MICRO: Final = 10**15
_LARGEST_WINDOW_MS: Final = 10 * 366 * 86_400_000


@checked
@dataclass(frozen=True)
class Budget:
    """The most that may be spent in any window of time.

    Parameters
    ----------
    epsilon
        What the reports of a window may add up to, per kilometre.
    window_s
        The length of the window, seconds. The next report may be made when old ones have left it.

    Examples
    --------
    >>> from geoblanket import Budget
    >>> Budget(epsilon=400, window_s=3600)  # 400 per km in any hour
    Budget(epsilon=400, window_s=3600)
    """

    epsilon: float
    window_s: float

    def __post_init__(self) -> None:
        limits = {"epsilon": _LARGEST_MICRO / _MICRO, "window_s": _LARGEST_WINDOW_MS / _MS_PER_S}
        for name, largest in limits.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= largest:
                raise ParameterError(f"The budget's {name} must be a number above 0 and up to {largest:.0f}.")

    @property
    def micro(self) -> int:
        """ε in whole millionths per kilometre, rounded down."""
        return math.floor(Decimal(repr(self.epsilon)) * _MICRO)

    @property
    def window_ms(self) -> int:
        """The window in whole milliseconds, rounded up."""
        return math.ceil(Decimal(repr(self.window_s)) * _MS_PER_S)


class Answer(NamedTuple):
    """A report as it is stored: what was reported, never where the vehicle was."""

    slot_ms: int
    """Start of its slot, milliseconds since 1970 in UTC."""
    cost_micro: int
    place: int
    lat_e7: int
    lon_e7: int
    request: str | None
    """The name that the caller gave the request."""
    made_ns: int
    """When it was made, in real elapsed time; in a replay, the start of its slot."""


class Account:
    """What one vehicle spent in the window, and the answers that it got.

    Parameters
    ----------
    budget
        What it may spend.
    answers
        Those of the window, in order of time.
    reports, spent_micro
        How many reports it ever made, and what they cost in all.
    last_slot_ms
        The slot of the last one; None if there was none.
    drawn_slot_ms
        The slot of the last report that was drawn, not held; None if there was none.
    """

    def __init__(
        self,
        budget: Budget,
        answers: Sequence[Answer] = (),
        *,
        reports: int = 0,
        spent_micro: int = 0,
        last_slot_ms: int | None = None,
        drawn_slot_ms: int | None = None,
    ) -> None:
        self.drawn_slot_ms = drawn_slot_ms
        self.reports, self.spent_micro, self.last_slot_ms = reports, spent_micro, last_slot_ms
        self.limit_micro, self.window_ms = budget.micro, budget.window_ms
        self._window_ns = budget.window_ms * _NS_PER_MS
        self._answers: deque[Answer] = deque()
        self._by_slot: dict[int, Answer] = {}
        self._by_request: dict[str, Answer] = {}
        self._kept_micro = 0
        for answer in answers:
            self._keep(answer)

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The answers of the window that ends with the last report, in order of time."""
        return tuple(self._answers)

    @property
    def last(self) -> Answer | None:
        """The last answer; None if there was none."""
        return self._answers[-1] if self._answers else None

    def stored(self, slot_ms: int, request: str | None) -> Answer | None:
        """Return the earlier answer to the same request or in the same slot, if there is one."""
        if request is not None and (answer := self._by_request.get(request)) is not None:
            return answer
        return self._by_slot.get(slot_ms)

    def expiring(self, slot_ms: int, now_ns: int) -> list[Answer]:
        """Return the answers that have left the window in both times.

        Parameters
        ----------
        slot_ms
            The slot that the window ends with, milliseconds since 1970.
        now_ns
            Real elapsed time, as in `Answer.made_ns`.
        """
        last_slot_ms, last_made_ns = slot_ms - self.window_ms, now_ns - self._window_ns
        result = []
        for answer in self._answers:
            if answer.slot_ms > last_slot_ms or answer.made_ns > last_made_ns:
                break
            result.append(answer)
        return result

    def left_micro(self, slot_ms: int, now_ns: int) -> int:
        """Return what is left in the window that ends now and with this slot, which must not precede the last one."""
        left = self.limit_micro - self._kept_micro
        for answer in self.expiring(slot_ms, now_ns):
            left += answer.cost_micro
        return left

    def freeing(self, slot_ms: int, now_ns: int) -> Iterator[tuple[int, int]]:
        """Yield how long until reports leave the window, milliseconds, and what is then left, if no other is made.

        It depends on the times and costs of past reports only.

        Parameters
        ----------
        slot_ms, now_ns
            Now, as in `expiring`.
        """
        left = self.left_micro(slot_ms, now_ns)
        for answer in list(self._answers)[len(self.expiring(slot_ms, now_ns)) :]:
            in_real_time_ms = -((now_ns - self._window_ns - answer.made_ns) // _NS_PER_MS)
            left += answer.cost_micro
            yield max(0, answer.slot_ms + self.window_ms - slot_ms, in_real_time_ms), left

    def checked_left_micro(
        self, slot_ms: int, now_ns: int, cost_micro: int, *, wait_ms: Callable[[], int | None] | None = None
    ) -> int:
        """Return what is left after a report of this cost, made now in this slot; raise unless it is allowed.

        Parameters
        ----------
        wait_ms
            Tells how long until such a report is allowed, milliseconds, or None if it never is: for the refusal.

        Raises
        ------
        RefusedError
            If a later report was made, or the budget does not suffice.
        """
        if cost_micro < 0:
            raise ParameterError("A report cannot cost less than nothing.")
        if self.last_slot_ms is not None and slot_ms <= self.last_slot_ms:
            raise RefusedError(
                "A later report exists already. Set the clock right, and report in order of time.", "time"
            )
        left = self.left_micro(slot_ms, now_ns) - cost_micro
        if left < 0:
            raise _spent("The privacy budget of this window of time is spent.", slot_ms, wait_ms)
        return left

    def add(self, answer: Answer) -> None:
        """Count a report that was made; forget what has left the window."""
        for _ in self.expiring(answer.slot_ms, answer.made_ns):
            self._forget(self._answers.popleft())
        self._keep(answer)
        self.reports += 1
        self.spent_micro += answer.cost_micro
        self.last_slot_ms = answer.slot_ms
        if answer.cost_micro:
            self.drawn_slot_ms = answer.slot_ms

    def _keep(self, answer: Answer) -> None:
        self._answers.append(answer)
        self._by_slot[answer.slot_ms] = answer
        if answer.request is not None:
            self._by_request[answer.request] = answer
        self._kept_micro += answer.cost_micro

    def _forget(self, answer: Answer) -> None:
        del self._by_slot[answer.slot_ms]
        if answer.request is not None:
            del self._by_request[answer.request]
        self._kept_micro -= answer.cost_micro


def _spent(problem: str, slot_ms: int, wait_ms: Callable[[], int | None] | None) -> RefusedError:
    """Return the refusal of a report in a slot, with the time from which one is allowed again, if it is asked for."""
    if wait_ms is None:
        return RefusedError(f"{problem} Report again later.", "budget")
    if (wait := wait_ms()) is None:
        return RefusedError(f"{problem} All of it is less than a report costs: give a larger budget.", "budget")
    seconds = wait / _MS_PER_S
    then = datetime.fromtimestamp((slot_ms + wait) / _MS_PER_S, UTC)
    return RefusedError(
        f"{problem} Enough of it frees up in {seconds:,.0f} s: report again at {then:%Y-%m-%d %H:%M:%S} UTC.",
        "budget",
        seconds,
    )
