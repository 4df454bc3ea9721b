"""The motion model: a public Markov chain over recent places, of variable order.

A *state* is the present place and as many earlier places as matter there: none for order 1, one for order 2, two for
order 3. From a state a vehicle moves to a next place; the next state is the longest one that the chain has for the new
history. So a place whose past does not matter costs one state, and memory is used only where it helps.

The model is learned from a map, from walks, or from both (`learning`); its file says which.

`TripShape` says when trips start and how long they are. Lengths are counted in fixed bins, about two for each doubling,
the same for every city. Within a bin all lengths are equally probable.

`SparseRows` multiplies sparse matrices: by SciPy where it is installed, and by NumPy alone on a small device. Both give
the same products up to rounding; SciPy is several times as fast. Attributes are named as in SciPy's `csr_array`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from scipy.sparse import csr_array

    from geoblanket.roads.graph import RoadGraph

__all__ = [
    "DAY_S",
    "HOURS",
    "LENGTH_BINS",
    "LONGEST_MEMORY",
    "MAGIC",
    "MOST_STEPS",
    "MotionModel",
    "Singles",
    "SparseRows",
    "TripShape",
    "length_bin",
    "spacing_for",
    "steps_of_bins",
]

LONGEST_MEMORY: Final = 3
"""The largest number of places in a state, the present one included."""
MAGIC: Final = _MAGIC_OF["model"]
_SPACINGS_M: Final = (100.0, 250.0)
_MOST_STEPS_IN_SLOT: Final = 3600
_TYPICAL_MOVE_M_S: Final = 200 / 30
"""Without roads, the probability of a place falls by a factor e over 200 metres for a step of 30 seconds."""
_RARE_MOVE: Final = 2e-3
_MOST_STARTS: Final = 100
"""The longest chain of models learned from released reports, each started from the one before."""
_BY_BLANKET: Final = "by blanket"
_DTYPES: Final = {
    "places_e7": "<i4", "states": "<i4", "start": "<f4", "offsets": "<i8", "targets": "<i4", "chances": "<f4",
    "hours": "<f4", "lengths": "<f4",
}  # fmt: skip
_Entries = npt.NDArray[np.floating[Any]]
HOURS: Final = 24
DAY_S: Final = 86_400
_HOUR_S: Final = DAY_S // HOURS
MOST_STEPS: Final = 1024
"""A longer trip counts as a trip of this many steps."""
_LEAST_STEPS: Final[Ints] = np.ceil(2.0 ** np.arange(1, 10.5, 0.5) - 1e-9).astype(np.int64)
"""The fewest steps of each bin: powers of √2, from 2 to 1,024, where the last bin ends."""
LENGTH_BINS: Final = len(_LEAST_STEPS) - 1
_USUAL_TRIP_S: Final = 720.0
_USUAL_STEPS: Final = 24.0
_SMOOTHING: Final = 1.0
"""Weight of the usual shape, in trips, so that no hour and no length becomes impossible."""


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
    """`Places.identity` of the places; empty if they belong to no road graph."""
    interval_s: float
    """Length of a step, seconds."""
    states: Indices
    """The place at t, t − 1, ... of each state, −1 where the state does not reach so far back, shape (N, memory)."""
    start: Singles
    """Probability of each state at the start of a trip, shape (N,)."""
    offsets: Ints
    """Where the moves from each state start, shape (N + 1,)."""
    targets: Indices
    """The state that each move leads to, shape (M,)."""
    chances: Singles
    """Probability of each move, shape (M,); the moves of a state sum to 1."""
    spread_m: float = 0.0
    """Root mean square distance of a vehicle from its nearest place, metres; 0: it is at the place."""
    learned: Mapping[str, Any] = field(default_factory=dict)
    """What the model was learned from, and how: JSON values."""
    hours: Singles = field(default_factory=lambda: TripShape.usual().hours)
    """Share of the trips that start in each hour of the day, UTC, shape (24,)."""
    lengths: Singles = field(default_factory=lambda: TripShape.usual().lengths)
    """Share of the trips in each bin of length (`length_bin`), shape (18,)."""

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem is not None:
            raise ParameterError(f"This is not a motion model: {problem}.")

    def __len__(self) -> int:
        return len(self.states)

    @property
    def place_count(self) -> int:
        """P, the number of places."""
        return len(self.places_e7)

    @property
    def map_places(self) -> int:
        """The number of places on the map: all of them, but for cells around it (`tracking.surroundings`)."""
        return self.place_count

    @property
    def trips(self) -> TripShape:
        """When trips start, and how long they are."""
        return TripShape(self.hours, self.lengths)

    @cached_property
    def memory(self) -> int:
        """The order of the chain: how many places its longest state has."""
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
    def spreads_m(self) -> Singles:
        """Root mean square distance of a vehicle from each place, metres, shape (P,)."""
        return np.full(self.place_count, self.spread_m, np.float32)

    @cached_property
    def moves(self) -> SparseRows:
        """Probability of each move, shape (N, N): rows are left, columns are entered."""
        return SparseRows(self.chances, self.targets, self.offsets, len(self))

    @cached_property
    def moves_into(self) -> SparseRows:
        """The transpose of `moves`, shape (N, N): a product with it takes a belief one step further."""
        return self.moves.T

    @cached_property
    def to_places(self) -> SparseRows:
        """A product with it turns a belief over states into a belief over places, shape (P, N)."""
        ones, states = np.ones(len(self), np.float32), np.arange(len(self))
        return SparseRows.of_entries(ones, self.present, states, (self.place_count, len(self)))

    @cached_property
    def training(self) -> Training:
        """What the model was learned from, and what that promises the drivers.

        A model from released reports combines three statements: of the model it started from, of the bundle that made
        the reports (`training` in `learned`), and of the reports (`released`). Files of an earlier version lack the
        last: the ε of their reports is unknown.
        """
        return _training(self.learned)

    def in_words(self) -> str:
        """Return what the model was learned from, and whether those who drove are protected."""
        return _in_words(self.learned)

    def steps_in(self, interval_s: float) -> int:
        """Return how many steps fit into an interval of seconds.

        Raises
        ------
        MismatchError
            If this is not a whole number from 1 to 3,600.
        """
        steps = round(interval_s / self.interval_s)
        if not 1 <= steps <= _MOST_STEPS_IN_SLOT or abs(steps * self.interval_s - interval_s) > 1e-6 * interval_s:
            raise MismatchError(
                f"Reports come every {interval_s:g} s, and a step of the motion model takes {self.interval_s:g} s. "
                "Learn a model whose step fits a whole number of times into the interval of the reports."
            )
        return steps

    @cached_property
    def usual(self) -> Singles:
        """Probability of each state in the long run, shape (N,)."""
        belief = self.start.astype(np.float64)
        # Power iteration. A thousandth starts anew in each step, so that it converges on any chain.
        for _ in range(200):
            belief = 0.999 * (self.moves_into @ belief) + 0.001 * self.start
        result: Singles = (belief / belief.sum()).astype(np.float32)
        return result

    @classmethod
    @checked
    def by_distance(cls, places_e7: npt.ArrayLike, *, interval_s: float) -> MotionModel:
        """Return a model that knows no roads: the probability of a move falls with its distance.

        Parameters
        ----------
        places_e7
            Latitude and longitude of each place, 1e-7 degrees, shape (P, 2).
        interval_s
            Length of a step, seconds.
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
            places_identity="",
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
        """Write the model to a file, completely or not at all; the same model gives the same bytes."""
        write_arrays(path, magic=MAGIC, fields=self._fields(), arrays=self._arrays())

    @classmethod
    @checked
    def load(cls, path: str | Path) -> MotionModel:
        """Read a model written by `save`.

        Raises
        ------
        InputError
            If the file is damaged, or is not a motion model.
        """
        fields, arrays = read_arrays(path, magic=MAGIC, kind="a motion model", hint="Make it again")
        try:
            parts: dict[str, Any] = {**fields, **arrays}
            return cls(**parts)
        except (ParameterError, TypeError) as error:
            raise InputError(
                f"is not a motion model of this version of geoblanket, or was changed: {f'{error}'.rstrip('.')}",
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
        return {name: getattr(self, name) for name in _DTYPES}

    def _problem(self) -> str | None:
        """Return what is wrong: types or shapes of arrays, or an impossible statement of its training."""
        if {name: array.dtype.str for name, array in self._arrays().items()} != _DTYPES:
            return "an array has another type"
        states, moves = len(self.states), len(self.targets)
        shapes: dict[str, tuple[int, ...]] = {
            "places_e7": (self.place_count, 2), "start": (states,), "offsets": (states + 1,), "chances": (moves,),
            "hours": (HOURS,), "lengths": (LENGTH_BINS,),
        }  # fmt: skip
        if any(getattr(self, name).shape != shape for name, shape in shapes.items()) or self.offsets[-1] != moves:
            return "its arrays do not fit together"
        if not 0 < self.interval_s <= DAY_S:
            return f"a step must take more than 0 and at most {DAY_S:,} seconds"
        return _untrue(self.learned)

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
            self.training.in_words(),
        )


def _training(learned: Mapping[str, Any], starts: int = 0) -> Training:
    """Return the statement of training that `learned` implies; raise ValueError if it is impossible."""
    source = learned.get("from")
    stated = Training.parsed(learned["training"]) if "training" in learned else None
    if source == "private":
        promised = Training("private", TrainingPromise.parsed(learned.get("promise")))
        # Noise on synthetic walks does not protect those who drove: the statement of the walks holds.
        return promised if stated is None else stated
    if source == "released":
        if not isinstance(learned.get("start"), Mapping) or starts == _MOST_STARTS:
            raise ValueError("it does not say from which model it started")
        reports = ReleasedReports.parsed(learned["released"]) if "released" in learned else ReleasedReports()
        started = _training(learned["start"], starts + 1).together(stated or NOBODY)
        return started.together(Training("released", released=(reports,)))
    training = {"roads": NOBODY, "distance": NOBODY, "roads and walks": stated or WALKS}.get(str(source), NOT_SAID)
    # The orders were found in walks, without privacy.
    return training.together(WALKS) if _BY_BLANKET in str(learned.get("order")) else training


def _untrue(learned: Mapping[str, Any]) -> str | None:
    """Return why the statement of training is impossible, or None."""
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


class SparseRows:
    """A sparse matrix in compressed rows.

    Parameters
    ----------
    data
        The entries of all rows, row after row, shape (M,).
    indices
        Their columns, shape (M,).
    indptr
        Where each row starts, and M, shape (rows + 1,).
    columns
        The number of columns.
    """

    def __init__(self, data: Singles, indices: Indices, indptr: Ints, columns: int) -> None:
        self.data, self.indices, self.indptr = data, indices, indptr
        self.shape = (len(indptr) - 1, columns)

    @classmethod
    def of_entries(
        cls, data: Singles, rows: Ints | Indices, indices: Ints | Indices, shape: tuple[int, int]
    ) -> SparseRows:
        """Return a matrix of entries in any order; entries of the same row and column add up."""
        order = np.argsort(rows, kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[0]))])
        return cls(data[order], indices[order].astype(np.int32), indptr, shape[1])

    @cached_property
    def row_numbers(self) -> Ints:
        """The row of each entry, shape (M,)."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    @cached_property
    def T(self) -> SparseRows:  # noqa: N802
        """The transpose."""
        return SparseRows.of_entries(self.data, self.indices, self.row_numbers, self.shape[::-1])

    def __matmul__(self, values: _Entries) -> npt.NDArray[Any]:
        """Return the product with a vector, or with the columns of a dense matrix."""
        if _has_scipy():
            product: npt.NDArray[Any] = self.as_scipy @ values
            return product
        if values.ndim == 1:
            return (self @ values[:, None])[:, 0]
        # Without SciPy: add the first entries of all rows at once, then the second ones, and so on. The longest rows
        # come first, so the rows with an entry left are always at the start.
        order, passes = self._passes
        sums = np.zeros((self.shape[0], values.shape[1]), np.result_type(self.data, values))
        for data, indices in passes:
            sums[: len(data)] += data[:, None] * values[indices]
        result = np.empty_like(sums)
        result[order] = sums
        return result

    @cached_property
    def as_scipy(self) -> csr_array[np.float32, tuple[int, int]]:
        """The matrix for SciPy, on the same memory: read only."""
        from scipy.sparse import csr_array

        # Offsets get the type of the indices: SciPy would convert both to the larger type, which takes longer.
        indptr = self.indptr.astype(np.int32) if len(self.data) < 1 << 31 else self.indptr
        return csr_array((self.data, self.indices, indptr), shape=self.shape)

    def toarray(self) -> Singles:
        """Return the dense matrix."""
        dense = np.zeros(self.shape, self.data.dtype)
        np.add.at(dense, (self.row_numbers, self.indices), self.data)
        return dense

    @cached_property
    def _passes(self) -> tuple[Ints, list[tuple[_Entries, Indices]]]:
        """Return the rows, longest first, and for each n the n-th entries and columns of the rows that have them."""
        length = np.diff(self.indptr)
        order = np.argsort(-length, kind="stable")
        start, longest_first = self.indptr[order], length[order]
        passes = []
        for number in range(int(longest_first.max(initial=0))):
            entry = start[: int(np.searchsorted(-longest_first, -number))] + number
            passes.append((self.data[entry], self.indices[entry]))
        return order, passes


@cache
def _has_scipy() -> bool:
    try:
        import scipy.sparse  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def spacing_for(epsilon: float) -> float:
    """Return how far apart the places of a tracker should be, metres: 1/ε km, from 100 to 250 m.

    Finer places hardly help. In Porto 100 m instead of 250 m take 10 % off the error at ε = 8, and 2 % or less up to 4.

    Parameters
    ----------
    epsilon
        ε of a report, per kilometre.
    """
    return float(np.clip(1000 / epsilon, *_SPACINGS_M))


def length_bin(steps: npt.ArrayLike) -> Ints:
    """Return the bin of each trip by its number of steps: 0 to `LENGTH_BINS` − 1."""
    bins: Ints = np.searchsorted(_LEAST_STEPS[1:-1], np.asarray(steps, np.int64), side="right").astype(np.int64)
    return bins


def steps_of_bins(bins: Ints) -> tuple[Ints, Ints]:
    """Return the least and the largest number of steps of some bins."""
    most = np.append(_LEAST_STEPS[1:-1] - 1, MOST_STEPS)
    return _LEAST_STEPS[bins], most[bins]


@dataclass(frozen=True, eq=False)
class TripShape:
    """When trips start, and how long they are."""

    hours: Singles
    """Share of the trips that start in each hour of the day, UTC, shape (24,)."""
    lengths: Singles
    """Share of the trips whose steps are in each bin, shape (`LENGTH_BINS`,)."""

    @classmethod
    def usual(cls, interval_s: float | None = None) -> TripShape:
        """Return the default shape: all hours equally probable, trips of 12 minutes on average.

        Parameters
        ----------
        interval_s
            Length of a step, seconds; None: such that a trip has 24 steps.
        """
        mean = _USUAL_STEPS if not interval_s else max(_USUAL_TRIP_S / interval_s, 2.5)
        # A geometric distribution from two steps on: after each step, the trip goes on with a constant probability.
        reaching = (1 - 1 / (mean - 1)) ** (_LEAST_STEPS[:-1] - 2.0)
        return cls(np.full(HOURS, 1 / HOURS, np.float32), _shares(reaching - np.append(reaching[1:], 0.0)))

    @classmethod
    def of(cls, start_hours: npt.ArrayLike | None, steps: npt.ArrayLike) -> TripShape:
        """Return the shape of some trips.

        Parameters
        ----------
        start_hours
            Hour of the day, UTC, in which each trip starts, 0 to 23; None: all hours are equally probable.
        steps
            The number of steps of each trip.
        """
        hours = np.zeros(HOURS) if start_hours is None else _counted(np.asarray(start_hours, np.int64), HOURS)
        return cls.of_counts(hours, _counted(length_bin(steps), LENGTH_BINS))

    @classmethod
    def of_counts(cls, hour_counts: npt.ArrayLike, length_counts: npt.ArrayLike) -> TripShape:
        """Return the shape of trips counted by hour and by bin of length; a noisy count below 0 counts as 0."""
        usual = cls.usual()
        return cls(*(
            _shares(np.maximum(np.asarray(counts, np.float64), 0.0) + _SMOOTHING * share)
            for counts, share in ((hour_counts, usual.hours), (length_counts, usual.lengths))
        ))  # fmt: skip

    def draw(self, trips: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Draw trips: the second of the day at which each starts, UTC, and its number of steps."""
        hour = _drawn(self.hours, trips, rng)
        start_s: Ints = hour * _HOUR_S + rng.integers(_HOUR_S, size=trips)
        least, most = steps_of_bins(_drawn(self.lengths, trips, rng))
        return start_s, rng.integers(least, most, endpoint=True)


def _drawn(shares: Singles, count: int, rng: np.random.Generator) -> Ints:
    chances = shares.astype(np.float64)
    return rng.choice(len(shares), count, p=chances / chances.sum())


def _counted(numbers: Ints, size: int) -> Floats:
    return np.bincount(numbers, minlength=size).astype(np.float64)


def _shares(weights: Floats) -> Singles:
    shares: Singles = (weights / weights.sum()).astype(np.float32)
    return shares
