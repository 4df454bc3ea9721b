"""How vehicles move, as anyone may know it: a Markov chain over recent places, of the order that each place needs.

A *state* is the present place with as many earlier ones as matter there: one for order 1, two for order 2, three for
order 3. From a state a vehicle goes to a next place; the state that follows is the longest one that the chain has for
the new history. So a place where the past tells nothing costs one state, and a memory is paid for only where it helps.

The model is public: it is learned from a map, from walks, or from both (`learning`), and says so in its file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrayfile import content_hash, read_arrays, write_arrays
from geoblanket._arrays import Floats, Indices, Ints, Singles
from geoblanket._display import card, counted, short_repr
from geoblanket._files import MAGIC as _MAGIC_OF
from geoblanket._geodesy import haversine_m, local_degrees, local_metres
from geoblanket._lazy import companion
from geoblanket._training import NOBODY, NOT_SAID, WALKS, ReleasedReports, Training, TrainingPromise
from geoblanket.errors import InputError, MismatchError, ParameterError
from geoblanket.tracking.sparse_rows import SparseRows
from geoblanket.tracking.trip_shape import TripShape

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from geoblanket.roads.graph import RoadGraph

__all__ = ["LONGEST_MEMORY", "MAGIC", "MotionModel", "Singles"]

LONGEST_MEMORY: Final = 3
"""Places of a state, the present one included, at most."""
MAGIC: Final = _MAGIC_OF["model"]
_MOST_PLACES: Final = 1 << 20
_MOST_STATES: Final = 1 << 26
_MOST_STEPS: Final = 3600
_TOLERANCE: Final = 1e-3
_LARGEST_SPREAD_M: Final = 100_000.0
_TYPICAL_MOVE_M_S: Final = 200 / 30
"""By distance alone, a place becomes less probable by a factor e over 200 metres for an interval of 30 seconds."""
_RARE_MOVE: Final = 2e-3
_MOST_STARTS: Final = 100
"""How often a model may have been learned from released reports, each time starting from the one before."""
_BY_BLANKET: Final = "by blanket"


@checked
@dataclass(frozen=True, eq=False)
class MotionModel:
    """Where a vehicle goes next, by its recent places. Made by `learn_motion`, `MotionModel.by_distance` or `load`.

    Examples
    --------
    With the file in the example of `learn_motion`:

    >>> from geoblanket import MotionModel
    >>> model = MotionModel.load("city.model")
    >>> model.interval_s, model.memory
    (30.0, 2)
    """

    places_e7: Indices
    """Latitude and longitude of each place, 1e-7 degrees, shape (P, 2)."""
    places_identity: str
    """SHA-256 of the places, as `Places.identity` has it; empty where they are of no road graph."""
    interval_s: float
    """Seconds of a step."""
    states: Indices
    """The place at t, t − 1, ... of each state, −1 where the state does not look so far back, shape (N, memory)."""
    start: Singles
    """How probable each state is where nothing is known of a vehicle, shape (N,)."""
    offsets: Ints
    """Where the moves from each state start, shape (N + 1,)."""
    targets: Indices
    """The state that each move leads to, shape (M,)."""
    chances: Singles
    """How probable each move is, shape (M,); those of a state sum to 1."""
    spread_m: float = 0.0
    """How far a vehicle is from the place that stands for it, root mean square, metres; 0: it is at the place."""
    learned: Mapping[str, Any] = field(default_factory=dict)
    """What it was learned from, and how: JSON values."""
    hours: Singles = field(default_factory=lambda: TripShape.usual().hours)
    """Share of the trips that start in each hour of the day, UTC, shape (24,)."""
    lengths: Singles = field(default_factory=lambda: TripShape.usual().lengths)
    """Share of the trips by how many steps they have, in the bins of `trip_shape`, shape (18,)."""

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem is not None:
            raise ParameterError(f"This is not a motion model: {problem}.")

    def __len__(self) -> int:
        return len(self.states)

    @property
    def place_count(self) -> int:
        """P."""
        return len(self.places_e7)

    @property
    def trips(self) -> TripShape:
        """When trips start, and how long they are."""
        return TripShape(self.hours, self.lengths)

    @cached_property
    def memory(self) -> int:
        """How many places the longest state has: the order of the chain."""
        return int((self.states >= 0).sum(axis=1).max())

    @cached_property
    def identity(self) -> str:
        """SHA-256 of the whole model."""
        return content_hash(self._fields(), self._arrays())

    @cached_property
    def present(self) -> Ints:
        """The present place of each state, shape (N,)."""
        return self.states[:, 0].astype(np.int64)

    @cached_property
    def lat(self) -> Floats:
        """Latitudes of the places, degrees, shape (P,)."""
        result: Floats = self.places_e7[:, 0].astype(np.float64) * 1e-7
        return result

    @cached_property
    def lon(self) -> Floats:
        """Longitudes of the places, degrees, shape (P,)."""
        result: Floats = self.places_e7[:, 1].astype(np.float64) * 1e-7
        return result

    @cached_property
    def origin(self) -> tuple[float, float]:
        """Latitude and longitude of the middle of the places, degrees: the origin of `to_plane`."""
        return float(self.lat.min() + self.lat.max()) / 2, float(self.lon.min() + self.lon.max()) / 2

    @cached_property
    def xy_m(self) -> Floats:
        """The places in a plane of the city, metres east and north, shape (P, 2)."""
        return self.to_plane(self.lat, self.lon)

    def to_plane(self, lat: npt.ArrayLike, lon: npt.ArrayLike) -> Floats:
        """Return coordinates in the plane of `xy_m`, shape (..., 2)."""
        return np.stack(local_metres(lat, lon, origin_lat=self.origin[0], origin_lon=self.origin[1]), axis=-1)

    def to_degrees(self, xy_m: Floats) -> tuple[Floats, Floats]:
        """Return latitudes and longitudes of points of the plane, shape (..., 2)."""
        return local_degrees(xy_m[..., 0], xy_m[..., 1], origin_lat=self.origin[0], origin_lon=self.origin[1])

    @cached_property
    def moves(self) -> SparseRows:
        """Probability of each move, shape (N, N): rows are left, columns are entered."""
        return SparseRows(self.chances, self.targets, self.offsets, len(self))

    @cached_property
    def moves_into(self) -> SparseRows:
        """The same turned round, shape (N, N): a product with it takes a belief one step further."""
        return self.moves.T

    @cached_property
    def to_places(self) -> SparseRows:
        """What adds up a belief over states to one over places, shape (P, N)."""
        ones, states = np.ones(len(self), np.float32), np.arange(len(self))
        return SparseRows.of_entries(ones, self.present, states, (self.place_count, len(self)))

    @cached_property
    def training(self) -> Training:
        """What it was learned from, and what that promises to those who drove.

        From released reports it is three statements together: of the model from which it started, of the bundle that
        made the reports (`training` of `learned`), and of the reports (`released`). A file of an earlier version does
        not have the last: then the ε of the reports is unknown.
        """
        return _training(self.learned)

    def in_words(self) -> str:
        """Return what it was learned from, and whether those who drove are protected."""
        return _in_words(self.learned)

    def steps_in(self, interval_s: float) -> int:
        """Return how many steps there are in an interval of seconds.

        Raises
        ------
        MismatchError
            If it is not a whole number of steps, from 1 to 3,600.
        """
        steps = round(interval_s / self.interval_s)
        if not 1 <= steps <= _MOST_STEPS or abs(steps * self.interval_s - interval_s) > 1e-6 * interval_s:
            raise MismatchError(
                f"Reports come every {interval_s:g} s, and a step of the motion model takes {self.interval_s:g} s. "
                "Learn a model whose step fits a whole number of times into the interval of the reports."
            )
        return steps

    def of_order_1(self) -> MotionModel:
        """Return the chain without memory that moves as this one does on the whole: a state for each place."""
        count, left = self.place_count, self.moves.row_numbers
        weight = (self.usual.astype(np.float64) + 1e-12)[left] * self.chances
        pairs, pair_of = np.unique(self.present[left] * count + self.present[self.targets], return_inverse=True)
        flow = np.bincount(pair_of, weight)
        source, target = np.divmod(pairs, count)
        return MotionModel(
            places_e7=self.places_e7,
            places_identity=self.places_identity,
            interval_s=self.interval_s,
            spread_m=self.spread_m,
            states=np.arange(count, dtype=np.int32)[:, None],
            start=np.asarray(self.to_places @ self.start, np.float32),
            offsets=np.concatenate([[0], np.cumsum(np.bincount(source, minlength=count))]),
            targets=target.astype(np.int32),
            chances=(flow / np.bincount(source, flow)[source]).astype(np.float32),
            learned={
                **self.learned,
                "order": "1" if self.learned.get("order") != _BY_BLANKET else f"1, {_BY_BLANKET} before",
            },
            hours=self.hours,
            lengths=self.lengths,
        )

    @cached_property
    def usual(self) -> Singles:
        """How probable each state is at any time, in the long run, shape (N,)."""
        belief = self.start.astype(np.float64)
        for _ in range(200):
            belief = 0.999 * (self.moves_into @ belief) + 0.001 * self.start
        result: Singles = (belief / belief.sum()).astype(np.float32)
        return result

    @classmethod
    @checked
    def by_distance(cls, places_e7: npt.ArrayLike, *, interval_s: float, places_identity: str = "") -> MotionModel:
        """Return a model that knows no roads: near places are more probable than far ones.

        Parameters
        ----------
        places_e7
            Latitude and longitude of each place, 1e-7 degrees, shape (P, 2).
        interval_s
            Seconds of a step.
        """
        places = np.asarray(places_e7, np.int32)
        lat, lon = places.T * 1e-7
        typical_m = _TYPICAL_MOVE_M_S * interval_s
        offsets, targets, chances = [0], [], []
        for row in range(len(places)):
            chance = np.exp(-haversine_m(lat[row], lon[row], lat, lon) / typical_m)
            chance = np.where(chance >= _RARE_MOVE, chance, 0.0)
            reached = np.flatnonzero(chance)
            targets.append(reached)
            chances.append(chance[reached] / chance.sum())
            offsets.append(offsets[-1] + len(reached))
        count = len(places)
        return cls(
            places_e7=places,
            places_identity=places_identity,
            interval_s=interval_s,
            states=np.arange(count, dtype=np.int32)[:, None],
            start=np.full(count, 1 / max(count, 1), np.float32),
            offsets=np.array(offsets, np.int64),
            targets=np.concatenate(targets).astype(np.int32) if targets else np.empty(0, np.int32),
            chances=np.concatenate(chances).astype(np.float32) if chances else np.empty(0, np.float32),
            learned={"from": "distance"},
            lengths=TripShape.usual(interval_s).lengths,
        )

    def save(self, path: str | Path) -> None:
        """Write the model to one file, wholly or not at all; the same model gives the same bytes."""
        write_arrays(path, magic=MAGIC, fields=self._fields(), arrays=self._arrays())

    @classmethod
    @checked
    def load(cls, path: str | Path) -> MotionModel:
        """Read a model written by `save`.

        Raises
        ------
        InputError
            If the file is damaged, or something else.
        """
        fields, arrays = read_arrays(path, magic=MAGIC, kind="a motion model", hint="Make it again")
        try:
            parts: dict[str, Any] = {**_typed(fields), **arrays}
            if (problem := _untrue(parts["learned"])) is not None:
                raise InputError(f"was changed after it was written: {problem}", path=path, hint="Make it again")
            return cls(**parts)
        except (ParameterError, TypeError, ValueError) as error:
            raise InputError(
                "is not a motion model written by geoblanket: its parts do not fit together",
                path=path,
                hint="Make it again",
            ) from error

    def _fields(self) -> dict[str, Any]:
        return {
            "interval_s": self.interval_s,
            "places_identity": self.places_identity,
            "spread_m": self.spread_m,
            "learned": dict(self.learned),
        }

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        names = ("places_e7", "states", "start", "offsets", "targets", "chances", "hours", "lengths")
        return {name: getattr(self, name) for name in names}

    def _problem(self) -> str | None:  # noqa: PLR0911
        """Return what is wrong, so that no index can point outside and no belief can vanish."""
        places, states = len(self.places_e7), len(self.states)
        types = {"places_e7": "<i4", "states": "<i4", "start": "<f4", "offsets": "<i8", "targets": "<i4"}
        if any(getattr(self, name).dtype.str != dtype for name, dtype in {**types, "chances": "<f4"}.items()):
            return "an array has another type"
        if self.places_e7.shape != (places, 2) or not 1 <= places <= _MOST_PLACES:
            return f"it must have 1 to {_MOST_PLACES} places, each with two coordinates"
        if self.states.ndim != 2 or not 1 <= self.states.shape[1] <= LONGEST_MEMORY or states > _MOST_STATES:
            return f"its states must have 1 to {LONGEST_MEMORY} places"
        if not 0 <= self.spread_m <= _LARGEST_SPREAD_M:
            return f"vehicles must be 0 to {_LARGEST_SPREAD_M:g} metres from their places"
        if not (0 < self.interval_s <= 86_400):
            return "a step must take more than 0 and at most 86,400 seconds"
        shapes = self.start.shape == (states,) and self.offsets.shape == (states + 1,)
        if not shapes or self.targets.ndim != 1 or self.targets.shape != self.chances.shape:
            return "its arrays do not fit together"
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.targets) or (np.diff(self.offsets) < 1).any():
            return "every state must have a move"
        if self.targets.min() < 0 or self.targets.max() >= states:
            return "a move leads to no state"
        if self.states[:, 0].min() < 0 or self.states.min() < -1 or self.states.max() >= places:
            return "a state has no place"
        if (np.abs(self.places_e7.astype(np.int64)).max(axis=0) > (900_000_000, 1_800_000_000)).any():
            return "a place is not on Earth"
        sums = np.append(np.add.reduceat(self.chances.astype(np.float64), self.offsets[:-1]), self.start.sum())
        if not (min(self.chances.min(), self.start.min()) >= 0 and np.abs(sums - 1).max() < _TOLERANCE):
            return "probabilities must not be negative, and must sum to 1"
        return self.trips.problem() or _untrue(self.learned)

    def plot(self, *, ax: Axes | None = None, roads: RoadGraph | None = None) -> Axes:
        """Draw how often vehicles are at each place (extra `city`).

        Parameters
        ----------
        ax
            Axes of Matplotlib to draw on; None: those of a new figure.
        roads
            Drawn beneath the places.
        """
        axes: Axes = companion("geoblanket.tracking.picture", "MotionModel.plot").plot_motion(self, ax=ax, roads=roads)
        return axes

    def _repr_html_(self) -> str:
        rows = [
            ("places", f"{self.place_count:,}"),
            ("order", f"{self.memory}"),
            ("states, moves", f"{len(self):,}, {len(self.targets):,}"),
            ("a step", f"{self.interval_s:g} s"),
            ("privacy", self.training.in_words()),
        ]
        return card(self, rows, draw=lambda ax: self.plot(ax=ax))

    def __repr__(self) -> str:
        return short_repr(
            self,
            counted(self.place_count, "place"),
            f"order {self.memory}",
            counted(len(self.targets), "move"),
            f"steps of {self.interval_s:g} s",
            self.training.in_few_words(),
        )


def _typed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a file, or raise ValueError unless they are what `save` writes."""
    if set(fields) != {"interval_s", "places_identity", "spread_m", "learned"}:
        raise ValueError("fields")
    numbers = all(type(fields[name]) in (int, float) for name in ("interval_s", "spread_m"))
    if not numbers or type(fields["places_identity"]) is not str:
        raise ValueError("types")
    if type(fields["learned"]) is not dict:
        raise ValueError("learned")
    return dict(fields)


def _training(learned: Mapping[str, Any], starts: int = 0) -> Training:
    """Return the statement that follows from what a model says it was learned from; raise ValueError if none can."""
    source = learned.get("from")
    stated = Training.parsed(learned["training"]) if "training" in learned else None
    if source == "private":
        promised = Training("private", TrainingPromise.parsed(learned.get("promise")))
        # Noise on walks that were drawn from a model is none for those who drove: what the walks say holds.
        return promised if stated is None else stated
    if source == "released":
        if not isinstance(learned.get("start"), Mapping) or starts == _MOST_STARTS:
            raise ValueError("it does not say from which model it started")
        reports = ReleasedReports.parsed(learned["released"]) if "released" in learned else ReleasedReports()
        started = _training(learned["start"], starts + 1).together(stated or NOBODY)
        return started.together(Training("released", released=(reports,)))
    training = {"roads": NOBODY, "distance": NOBODY, "roads and walks": stated or WALKS}.get(str(source), NOT_SAID)
    # How many past places matter was found in walks, without privacy.
    return training.together(WALKS) if _BY_BLANKET in str(learned.get("order")) else training


def _untrue(learned: Mapping[str, Any]) -> str | None:
    """Return why what a model says of its training cannot be true, or None."""
    try:
        _training(learned)
    except ValueError as error:
        return str(error)
    return None


def _in_words(learned: Mapping[str, Any], *, in_all: bool = True) -> str:
    source, training = learned.get("from"), _training(learned)
    if source == "released":
        reports = learned.get("reports")
        count = f"{reports:,} released reports" if type(reports) is int else "released reports"
        words = f"from {count}, started with a model {_in_words(learned['start'], in_all=False)}"
        return f"{words}; all in all {training.in_words()}" if in_all else words
    steps = learned.get("steps")
    walks = f"{steps:,} steps of walks" if type(steps) is int and source != "private" else "walks"
    words = {
        "roads": "from the road network alone",
        "distance": "from distances between places alone",
        "roads and walks": f"from the road network and {walks}",
        "private": "from the road network and walks",
    }.get(str(source), "from what its file does not say")
    return words if training in (NOBODY, NOT_SAID) else f"{words}: {training.in_words()}"
