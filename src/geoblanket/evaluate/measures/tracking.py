"""What anyone makes of the reports of a whole walk: the service that receives them, and the attacker.

Both run the same filter (`geoblanket.tracking`) over the same reports, with a motion model that was learned from other
vehicles. The service wants to know where a vehicle is when it uses the report; the attacker wants to know where it is,
or, in hindsight, where it was. Walks go from zone to zone, and so does the filter: which zone a report is of is part of
what it tells.

Guesses are held against the true places, so a model that is wrong is no excuse. Steps of one vehicle are alike:
confidence intervals come from whole vehicles (`build.held_out.measure`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Floats, Ints, Positions
from geoblanket._display import counted, short_repr
from geoblanket._geodesy import haversine_m
from geoblanket.build.held_out import VehicleLosses, by_vehicle
from geoblanket._repr import counted, short_repr
from geoblanket.build.measures import VehicleLosses, by_vehicle
from geoblanket.errors import ParameterError
from geoblanket.mobility.histories import Steps
from geoblanket.tracking.filtering import NO_REPORT, BeliefFilter, Sequences, follow, smooth
from geoblanket.tracking.motion_model import MotionModel, Singles
from geoblanket.tracking.observation import ObservationModel

__all__ = ["Tracked", "WalkTracker", "find_runs", "place_distance_km"]

_UNKNOWN: Final = -1


@dataclass(frozen=True, eq=False)
class Tracked:
    """How well vehicles are tracked, summed over the steps of each. `build.held_out.measure` computes means.

    Examples
    --------
    With the `motion`, `steps`, `rows` and `drawn` in the example of `draw_reports`:

    >>> import numpy as np
    >>> from geoblanket.build.measures import measure
    >>> from geoblanket.evaluate import RowSight, WalkTracker
    >>> tracker = WalkTracker(motion, steps.where(np.isin(steps.histories[:, 0], rows.zone)))
    >>> tracked = tracker.single(RowSight(motion, [drawn]), drawn.sent)
    >>> measure(tracked.success).loss
    1.0
    """

    error_km: VehicleLosses
    """Distance of the best guess from the true place, kilometres."""
    success: VehicleLosses
    """How often the most probable place was the true one."""
    loss: VehicleLosses | None
    """What the service loses by its best guess of where the vehicle is when the report is used."""

    def __repr__(self) -> str:
        steps = max(float(self.error_km.steps.sum()), 1.0)
        return short_repr(
            self,
            counted(len(self.error_km.vehicle), "vehicle"),
            counted(int(self.error_km.steps.sum()), "step"),
            f"{self.error_km.loss.sum() / steps:.4g} km off on average",
            f"right {self.success.loss.sum() / steps:.1%} of the time",
        )


@checked
@dataclass(frozen=True, eq=False)
class WalkTracker:
    """Tracks held-out vehicles over their walks.

    Parameters
    ----------
    motion
        How vehicles move, from training walks.
    steps
        Steps of held-out walks as `collect_steps` gives them, less those without a past: at those, all methods are the
        same.
    loss
        What it costs to take a place for another, of true places (rows) and guesses (columns), shape (P, P); None if
        only errors are wanted.
    delay
        How many steps later the service uses a report.
    usual
        How probable each state is at any time, for single reports, shape (N,); None: as where nothing is known.
    judged
        Of which steps guesses are judged, shape (n,); None: of all.

    Examples
    --------
    With the `motion`, `steps`, `rows` and `drawn` in the example of `draw_reports`:

    >>> from geoblanket.build.measures import measure
    >>> from geoblanket.evaluate import RowSight, WalkTracker
    >>> import numpy as np
    >>> here = steps.where(np.isin(steps.histories[:, 0], rows.zone))
    >>> tracker = WalkTracker(motion, here)
    >>> round(measure(tracker.tracked(RowSight(motion, [drawn]), drawn.sent).error_km).loss, 6)
    0.0
    """

    motion: MotionModel
    steps: Steps
    loss: Floats | None = None
    delay: int = 1
    usual: Singles | None = None
    judged: Bools | None = None

    @property
    def number_in_walk(self) -> Ints:
        """How many of the steps of the same walk come before each one, shape (n,)."""
        starts = find_runs(self.steps)
        return np.arange(len(self.steps)) - np.repeat(starts, np.diff(np.append(starts, len(self.steps))))

    def tracked(self, sight: ObservationModel, outputs: Ints) -> Tracked:
        """Guess each place from all reports up to its own.

        Parameters
        ----------
        sight
            What is known of the mechanism.
        outputs
            The report of each step, −1 for none, shape (n,).
        """
        guesses = _Guesses(self, BeliefFilter(self.motion, sight))
        follow(guesses.filter, Sequences(np.arange(len(outputs)), outputs, find_runs(self.steps)), guesses.take)
        return guesses.held_against_truth()

    def single(self, sight: ObservationModel, outputs: Ints) -> Tracked:
        """Guess the place of each report from it alone; steps without a report are left out."""
        sent, whose = np.unique(outputs, return_inverse=True)
        motion = self.motion if self.usual is None else replace(self.motion, start=self.usual)
        guesses = _Guesses(self, BeliefFilter(motion, sight), count=len(sent))
        # Nothing tells equal reports apart, so one guess for all of them is enough.
        follow(guesses.filter, Sequences(np.arange(len(sent)), sent, np.arange(len(sent))), guesses.take)
        return guesses.held_against_truth(whose, outputs != NO_REPORT)

    def in_hindsight(self, sight: ObservationModel, outputs: Ints, *, steps: int) -> Tracked:
        """Guess each place from all reports of its window: walks are cut into windows of at most so many steps."""
        if steps < 1:
            raise ParameterError(f"An attacker needs one step or more. Got {steps} instead.")
        guesses = _Guesses(self, BeliefFilter(self.motion, sight), with_loss=False)
        starts = _windows(find_runs(self.steps), len(outputs), steps)
        smooth(guesses.filter, Sequences(np.arange(len(outputs)), outputs, starts), guesses.take)
        return guesses.held_against_truth()

    def __repr__(self) -> str:
        delay = f"reports are used {counted(self.delay, 'step')} later"
        return short_repr(self, counted(len(self.steps), "step"), counted(self.motion.place_count, "place"), delay)


class _Guesses:
    """The best guesses by beliefs, for the error, for success and for the service's loss."""

    def __init__(
        self, tracker: WalkTracker, beliefs: BeliefFilter, *, count: int | None = None, with_loss: bool = True
    ) -> None:
        self.filter, self._tracker = beliefs, tracker
        self._distance_km = place_distance_km(tracker.motion).astype(np.float32)
        self._loss = None if tracker.loss is None or not with_loss else tracker.loss.astype(np.float32)
        size = len(tracker.steps) if count is None else count
        self._nearest, self._likeliest, self._best = np.full((3, size), _UNKNOWN, np.int64)

    def take(self, positions: Positions, beliefs: Singles) -> None:
        """Note the guesses by some beliefs, shape (N, 1, B)."""
        places = self.filter.places(beliefs)
        self._nearest[positions] = (self._distance_km @ places).argmin(axis=0)
        self._likeliest[positions] = places.argmax(axis=0)
        if self._loss is not None:
            later = self.filter.places(self.filter.predicted(beliefs, self._tracker.delay))
            self._best[positions] = (self._loss.T @ later).argmin(axis=0)

    def held_against_truth(self, whose: Positions | None = None, reported: Bools | None = None) -> Tracked:
        """Return what became of the guesses; of the steps that reported, each with the guess of its number."""
        steps = self._tracker.steps
        which = np.arange(len(steps)) if whose is None else whose.ravel()
        chosen = np.ones(len(steps), bool)
        for part in (self._tracker.judged, reported):
            chosen &= True if part is None else part
        steps, which = steps.where(chosen), which[chosen]
        place = steps.histories[:, 0]
        error, success = (
            by_vehicle(steps, values.astype(np.float64))
            for values in (self._distance_km[place, self._nearest[which]], self._likeliest[which] == place)
        )
        loss = None
        if self._loss is not None and self._tracker.loss is not None:
            loss = by_vehicle(steps, self._tracker.loss[steps.next_place, self._best[which]])
        return Tracked(error, success, loss)


def place_distance_km(motion: MotionModel) -> Floats:
    """Return the great-circle distances of a model's places, kilometres, shape (P, P)."""
    return haversine_m(motion.lat[:, None], motion.lon[:, None], motion.lat, motion.lon) / 1000


def find_runs(steps: Steps) -> Ints:
    """Return where walks begin among steps, ascending, shape (R,).

    Steps must be as `collect_steps` gives them, in order; some may be left out, where a new run begins. A step goes on
    with the run before it if its history does, and is one step deeper into the same vehicle's walk. (With one earlier
    place only, and without the first steps of walks, trips of a vehicle that parks between them look like one.)
    """
    if steps.histories.shape[1] < 2:
        raise ParameterError("Runs are found by the places before: histories must have one or more earlier places.")
    past = steps.histories.shape[1] - 1
    goes_on = (
        (steps.histories[1:, 1:] == steps.histories[:-1, :-1]).all(axis=1)
        & (steps.vehicle[1:] == steps.vehicle[:-1])
        & (steps.depth[1:] == np.minimum(steps.depth[:-1] + 1, past))
    )
    return np.flatnonzero(np.concatenate([np.ones(min(1, len(steps)), bool), ~goes_on])).astype(np.int64)


def _windows(runs: Ints, steps: int, longest: int) -> Ints:
    """Return the first steps of windows: each run is cut from its beginning."""
    length = np.diff(np.append(runs, steps))
    count = -(-length // longest)
    run = np.repeat(np.arange(len(runs)), count)
    number = np.arange(len(run)) - np.repeat(np.cumsum(count) - count, count)
    first: Ints = runs[run] + number * longest
    return first
