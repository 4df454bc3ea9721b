"""What reports may cost: a budget in every sliding window of time, counted in whole millionths.

The window slides in two times: that of the slots, which the caller gives, and real elapsed time
(`geoblanket.release.elapsed`). A report counts until it has left the window in both.

The cost of a report depends on the mechanisms and on whether there was a history, which is public; never on where the
vehicle is. A location is protected in its own report and as the past of the next Γ ones, and is charged for all of them
when it is reported (`geoblanket.mechanism.costs.Costs`).

With an anchor (`geoblanket.mechanism.lattice.anchor`) each period that was begun costs as well, from a budget of its
own. It counts as long as one of its reports does: until the last of them has left the window in both times.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import zip_longest
from typing import Final, NamedTuple

from geoblanket._arguments import checked
from geoblanket.errors import ParameterError, RefusedError
from geoblanket.mechanism.lattice.anchor import Shift

__all__ = ["WIPED_MICRO", "Account", "Anchor", "Answer", "Budget", "Freed"]

_MICRO: Final = 10**6
_MS_PER_S: Final = 1000
_NS_PER_MS: Final = 10**6
_LARGEST_MICRO: Final = 10**15
_LARGEST_WINDOW_MS: Final = 10 * 366 * 86_400_000

WIPED_MICRO: Final = 1 << 62
"""More than any budget: what another anchor costs for a period whose shift was wiped."""


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
    anchor_epsilon
        What the anchors of a window may add up to, per kilometre, one for each period that was begun; None: the same
        number as `epsilon`.

    Examples
    --------
    >>> from geoblanket import Budget
    >>> Budget(epsilon=400, window_s=3600)  # 400 per km in any hour
    Budget(epsilon=400, window_s=3600, anchor_epsilon=None)
    """

    epsilon: float
    window_s: float
    anchor_epsilon: float | None = None

    def __post_init__(self) -> None:
        most = _LARGEST_MICRO / _MICRO
        limits = [("epsilon", most), ("window_s", _LARGEST_WINDOW_MS / _MS_PER_S), ("anchor_epsilon", most)]
        for name, largest in limits[: 3 - (self.anchor_epsilon is None)]:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= largest:
                raise ParameterError(f"The budget's {name} must be a number above 0 and up to {largest:.0f}.")

    @property
    def micro(self) -> int:
        """ε in whole millionths per kilometre, rounded down."""
        return math.floor(Decimal(repr(self.epsilon)) * _MICRO)

    @property
    def anchor_micro(self) -> int:
        """What anchors may add up to, in whole millionths per kilometre, rounded down."""
        return self.micro if self.anchor_epsilon is None else math.floor(Decimal(repr(self.anchor_epsilon)) * _MICRO)

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


@dataclass(frozen=True)
class Anchor:
    """The anchor of a period, as it is stored: what it cost and, while the period lasts, the secret shift."""

    slot_ms: int
    """The slot of the report that it was drawn for, milliseconds since 1970 in UTC."""
    starts_ms: int
    """The start of its period."""
    ends_ms: int
    """The end of its period."""
    cost_micro: int
    """ε₀ in millionths per kilometre."""
    report_micro: int
    """What each report of it costs besides."""
    interval_ms: int
    """From one slot to the next."""
    frame: str
    """A hash of the frame and of the anchor's numbers: with others, another anchor is drawn."""
    shift: Shift | None = field(repr=False)
    """Never to be told to anyone; None once the period is over."""

    def wiped(self) -> Anchor:
        """Return it without the shift."""
        return self if self.shift is None else replace(self, shift=None)


class Freed(NamedTuple):
    """What is left of the budgets after some time without a report."""

    wait_ms: int
    """How long that is."""
    left_micro: int
    anchor_left_micro: int


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
    anchors, anchor_spent_micro
        The anchors of the window, in order of time, and what all anchors ever cost.
    """

    def __init__(
        self,
        budget: Budget,
        answers: Sequence[Answer] = (),
        *,
        reports: int = 0,
        spent_micro: int = 0,
        last_slot_ms: int | None = None,
        anchors: Sequence[Anchor] = (),
        anchor_spent_micro: int = 0,
    ) -> None:
        self.anchors, self.anchor_spent_micro = tuple(anchors), anchor_spent_micro
        self.anchor_limit_micro = budget.anchor_micro
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

    def anchor(self, slot_ms: int, frame: str) -> Anchor | None:
        """Return the anchor of the period of a slot, on this frame, if there is one."""
        for anchor in reversed(self.anchors):
            if anchor.starts_ms <= slot_ms < anchor.ends_ms and anchor.frame == frame and anchor.shift is not None:
                return anchor
        return None

    def anchor_cost_micro(self, slot_ms: int, frame: str, cost_micro: int) -> int:
        """Return what a new anchor costs for a slot: nothing if its period has one already.

        A period whose shift was wiped gets no second anchor at any price: whatever the clocks say, it has one.
        """
        period = [one for one in self.anchors if one.starts_ms <= slot_ms < one.ends_ms and one.frame == frame]
        if not period:
            return cost_micro
        return 0 if any(one.shift is not None for one in period) else WIPED_MICRO

    def anchors_after(self, slot_ms: int, now_ns: int, new: Anchor | None = None) -> tuple[Anchor, ...]:
        """Return the anchors that are kept once a report was made now in this slot, those of past periods wiped.

        Parameters
        ----------
        new
            The one that was drawn for this report, if any.
        """
        if not self.anchors:
            return () if new is None else (new,)
        left = len(self.expiring(slot_ms, now_ns))
        oldest_ms = self._answers[left].slot_ms if left < len(self._answers) else slot_ms
        kept = (
            anchor.wiped() if anchor.ends_ms <= slot_ms else anchor
            for anchor in self.anchors
            if anchor.ends_ms > oldest_ms
        )
        return (*kept,) if new is None else (*kept, new)

    def anchor_left_micro(self, slot_ms: int, now_ns: int) -> int:
        """Return what is left for anchors in the window that ends now and with this slot."""
        return self.anchor_limit_micro - sum(anchor.cost_micro for anchor in self.anchors_after(slot_ms, now_ns))

    def freeing(self, slot_ms: int, now_ns: int) -> Iterator[Freed]:
        """Yield what will be left as reports leave the window, one after the other, if no other is made.

        It depends on the times and costs of past reports only.

        Parameters
        ----------
        slot_ms, now_ns
            Now, as in `expiring`.
        """
        left = self.left_micro(slot_ms, now_ns)
        staying = list(self._answers)[len(self.expiring(slot_ms, now_ns)) :]
        wait_ms = 0
        for answer, following in zip_longest(staying, staying[1:]):
            in_real_time_ms = -((now_ns - self._window_ns - answer.made_ns) // _NS_PER_MS)
            wait_ms = max(0, answer.slot_ms + self.window_ms - slot_ms, in_real_time_ms)
            left += answer.cost_micro
            oldest_ms = slot_ms + wait_ms if following is None else following.slot_ms
            yield Freed(wait_ms, left, self._anchor_left_micro(oldest_ms))
        for ends_ms in sorted({anchor.ends_ms for anchor in self.anchors if anchor.ends_ms > slot_ms + wait_ms}):
            yield Freed(ends_ms - slot_ms, left, self._anchor_left_micro(ends_ms))

    def _anchor_left_micro(self, oldest_ms: int) -> int:
        """Return what is left for anchors when the oldest report of the window is in this slot."""
        return self.anchor_limit_micro - sum(anchor.cost_micro for anchor in self.anchors if anchor.ends_ms > oldest_ms)

    def checked_left_micro(
        self,
        slot_ms: int,
        now_ns: int,
        cost_micro: int,
        anchor_micro: int = 0,
        *,
        wait_ms: Callable[[], int | None] | None = None,
    ) -> int:
        """Return what is left after a report of this cost, made now in this slot; raise unless it is allowed.

        Parameters
        ----------
        anchor_micro
            What the anchor costs that has to be drawn for it; 0: there is one, or none is needed.
        wait_ms
            Tells how long until such a report is allowed, milliseconds, or None if it never is: for the refusal.

        Raises
        ------
        RefusedError
            If a later report was made, the anchor of its period was wiped, or the budget does not suffice.
        """
        if cost_micro < 0:
            raise ParameterError("A report cannot cost less than nothing.")
        if self.last_slot_ms is not None and slot_ms <= self.last_slot_ms:
            raise RefusedError(
                "A later report exists already. Set the clock right, and report in order of time.", "time"
            )
        left = self.left_micro(slot_ms, now_ns) - cost_micro
        if anchor_micro == WIPED_MICRO:
            raise RefusedError(
                "The anchor of this period of time was wiped when the clock was past it. Set the clock right, and "
                "report again in the next period.",
                "time",
            )
        if anchor_micro and anchor_micro > self.anchor_left_micro(slot_ms, now_ns):
            raise _spent("The privacy budget of this window of time for anchors is spent.", slot_ms, wait_ms)
        if left < 0:
            raise _spent("The privacy budget of this window of time is spent.", slot_ms, wait_ms)
        return left

    def add(self, answer: Answer, anchor: Anchor | None = None) -> None:
        """Count a report that was made, and the anchor that was drawn for it; forget what has left the window."""
        self.anchors = self.anchors_after(answer.slot_ms, answer.made_ns, anchor)
        if anchor is not None:
            self.anchor_spent_micro += anchor.cost_micro
        for _ in self.expiring(answer.slot_ms, answer.made_ns):
            self._forget(self._answers.popleft())
        self._keep(answer)
        self.reports += 1
        self.spent_micro += answer.cost_micro
        self.last_slot_ms = answer.slot_ms

    def has_shift_before(self, time_ms: int) -> bool:
        """Return whether a period that is over at a time, milliseconds since 1970, still has its shift."""
        return any(anchor.ends_ms <= time_ms and anchor.shift is not None for anchor in self.anchors)

    def wipe_anchors(self, time_ms: int) -> None:
        """Forget the shifts of periods that are over at a time, milliseconds since 1970."""
        self.anchors = tuple(anchor.wiped() if anchor.ends_ms <= time_ms else anchor for anchor in self.anchors)

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
