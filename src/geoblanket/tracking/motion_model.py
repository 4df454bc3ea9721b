"""How vehicles move, as anyone may know it: a Markov chain over recent places, of the order that each place needs.

A *state* is the present place with as many earlier ones as matter there: one for order 1, two for order 2, three for
order 3. From a state a vehicle goes to a next place; the state that follows is the longest one that the chain has for
the new history. So a place where the past tells nothing costs one state, and a memory is paid for only where it helps.

The model is public: it is learned from a map, from walks, or from both (`learning`), and says so in its file.

`TripShape` says when trips start and how long they are. Lengths are known by fixed bins, so that few numbers tell them:
about two for each doubling, the same for every city. Within a bin all lengths are alike.

`SparseRows` multiplies sparse matrices: by SciPy where it is installed, and by NumPy alone on a small device. Both give
the same products up to rounding; SciPy's come several times sooner. Attributes are named as in SciPy's `csr_array`.
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
    "steps_of_bins",
]

LONGEST_MEMORY: Final = 3
"""Places of a state, the present one included, at most."""
MAGIC: Final = _MAGIC_OF["model"]
_MOST_PLACES: Final = 1 << 20
_MOST_STATES: Final = 1 << 26
_MOST_STEPS_IN_SLOT: Final = 3600
_TOLERANCE: Final = 1e-3
_LARGEST_SPREAD_M: Final = 100_000.0
_TYPICAL_MOVE_M_S: Final = 200 / 30
"""By distance alone, a place becomes less probable by a factor e over 200 metres for an interval of 30 seconds."""
_RARE_MOVE: Final = 2e-3
_MOST_STARTS: Final = 100
"""How often a model may have been learned from released reports, each time starting from the one before."""
_BY_BLANKET: Final = "by blanket"
_Entries = npt.NDArray[np.floating[Any]]
HOURS: Final = 24
DAY_S: Final = 86_400
_HOUR_S: Final = DAY_S // HOURS
MOST_STEPS: Final = 1024
"""A longer trip counts as one of so many steps."""
_LEAST_STEPS: Final[Ints] = np.ceil(2.0 ** np.arange(1, 10.5, 0.5) - 1e-9).astype(np.int64)
"""Steps of a trip from which a bin starts: powers of √2, from 2 to 1,024, where the last bin ends."""
LENGTH_BINS: Final = len(_LEAST_STEPS) - 1
_USUAL_TRIP_S: Final = 720.0
_USUAL_STEPS: Final = 24.0
_SMOOTHING: Final = 1.0
"""Trips of the usual shape that count besides those that were counted: nothing becomes impossible."""


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
    """Share of the trips by how many steps they have, in the bins of `length_bin`, shape (18,)."""

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
        if not 1 <= steps <= _MOST_STEPS_IN_SLOT or abs(steps * self.interval_s - interval_s) > 1e-6 * interval_s:
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


class SparseRows:
    """A sparse matrix, row by row.

    Parameters
    ----------
    data
        The entries of all rows, row after row, shape (M,).
    indices
        Their columns, shape (M,).
    indptr
        Where each row starts, and at last M, shape (rows + 1,).
    columns
        How many columns there are.
    """

    def __init__(self, data: Singles, indices: Indices, indptr: Ints, columns: int) -> None:
        self.data, self.indices, self.indptr = data, indices, indptr
        self.shape = (len(indptr) - 1, columns)

    @classmethod
    def of_entries(
        cls, data: Singles, rows: Ints | Indices, indices: Ints | Indices, shape: tuple[int, int]
    ) -> SparseRows:
        """Return a matrix of entries in any order; those of the same row and column add up."""
        order = np.argsort(rows, kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[0]))])
        return cls(data[order], indices[order].astype(np.int32), indptr, shape[1])

    @cached_property
    def row_numbers(self) -> Ints:
        """The row of each entry, shape (M,)."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    @cached_property
    def T(self) -> SparseRows:  # noqa: N802
        """The matrix with rows and columns exchanged."""
        return SparseRows.of_entries(self.data, self.indices, self.row_numbers, self.shape[::-1])

    def __matmul__(self, values: _Entries) -> npt.NDArray[Any]:
        """Return the product with a vector, or with the columns of a dense matrix."""
        if _has_scipy():
            product: npt.NDArray[Any] = self.as_scipy @ values
            return product
        if values.ndim == 1:
            return (self @ values[:, None])[:, 0]
        # The first entries of all rows at once, then the second ones, and so on: the longest rows come first, so that
        # the rows that have an entry left are always those at the start.
        order, passes = self._passes
        sums = np.zeros((self.shape[0], values.shape[1]), np.result_type(self.data, values))
        for data, indices in passes:
            sums[: len(data)] += data[:, None] * values[indices]
        result = np.empty_like(sums)
        result[order] = sums
        return result

    @cached_property
    def as_scipy(self) -> csr_array[np.float32, tuple[int, int]]:
        """The same as SciPy has it, on the same memory: not to be changed."""
        from scipy.sparse import csr_array

        # Offsets of the type of the indices: SciPy would turn both into the larger one, and take longer.
        indptr = self.indptr.astype(np.int32) if len(self.data) < 1 << 31 else self.indptr
        return csr_array((self.data, self.indices, indptr), shape=self.shape)

    def toarray(self) -> Singles:
        """Return it as a dense matrix."""
        dense = np.zeros(self.shape, self.data.dtype)
        np.add.at(dense, (self.row_numbers, self.indices), self.data)
        return dense

    @cached_property
    def _passes(self) -> tuple[Ints, list[tuple[_Entries, Indices]]]:
        """Return the rows, longest first, and the n-th entries and columns of all rows that have so many."""
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


def length_bin(steps: npt.ArrayLike) -> Ints:
    """Return the bin of trips by their steps, the first and the last among them: 0 to `LENGTH_BINS` − 1."""
    bins: Ints = np.searchsorted(_LEAST_STEPS[1:-1], np.asarray(steps, np.int64), side="right").astype(np.int64)
    return bins


def steps_of_bins(bins: Ints) -> tuple[Ints, Ints]:
    """Return the least and the largest number of steps of trips in some bins."""
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
        """Return what to assume where nothing is known: all hours alike, trips of 12 minutes in the mean.

        Parameters
        ----------
        interval_s
            Seconds of a step; None: such that a trip has 24 of them.
        """
        mean = _USUAL_STEPS if not interval_s else max(_USUAL_TRIP_S / interval_s, 2.5)
        # Geometric from two steps on: it goes on after a step with a constant chance.
        reaching = (1 - 1 / (mean - 1)) ** (_LEAST_STEPS[:-1] - 2.0)
        return cls(np.full(HOURS, 1 / HOURS, np.float32), _shares(reaching - np.append(reaching[1:], 0.0)))

    @classmethod
    def of(cls, start_hours: npt.ArrayLike | None, steps: npt.ArrayLike) -> TripShape:
        """Return the shape of some trips.

        Parameters
        ----------
        start_hours
            Hour of the day, UTC, in which each trip starts, 0 to 23; None: all hours alike.
        steps
            How many steps each trip has, the first and the last among them.
        """
        hours = np.zeros(HOURS) if start_hours is None else _counted(np.asarray(start_hours, np.int64), HOURS)
        return cls.of_counts(hours, _counted(length_bin(steps), LENGTH_BINS))

    @classmethod
    def of_counts(cls, hour_counts: npt.ArrayLike, length_counts: npt.ArrayLike) -> TripShape:
        """Return the shape of counts of trips, by hour and by bin of length. They may be noisy: below 0 is 0."""
        usual = cls.usual()
        return cls(*(
            _shares(np.maximum(np.asarray(counts, np.float64), 0.0) + _SMOOTHING * share)
            for counts, share in ((hour_counts, usual.hours), (length_counts, usual.lengths))
        ))  # fmt: skip

    @property
    def mean_steps(self) -> float:
        """How many steps a trip has in the mean."""
        least, most = steps_of_bins(np.arange(LENGTH_BINS))
        return float(self.lengths.astype(np.float64) @ (least + most) / 2)

    def draw(self, trips: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Return the seconds of the day at which trips start, UTC, and how many steps they have."""
        hour = _drawn(self.hours, trips, rng)
        start_s: Ints = hour * _HOUR_S + rng.integers(_HOUR_S, size=trips)
        least, most = steps_of_bins(_drawn(self.lengths, trips, rng))
        return start_s, rng.integers(least, most, endpoint=True)

    def problem(self) -> str | None:
        """Return what is wrong, or None."""
        for shares, count in ((self.hours, HOURS), (self.lengths, LENGTH_BINS)):
            if shares.dtype.str != "<f4" or shares.shape != (count,):
                return f"hours must be {HOURS} and lengths {LENGTH_BINS} shares"
            if not (shares.min() >= 0 and abs(float(shares.sum(dtype=np.float64)) - 1) < _TOLERANCE):
                return "shares of hours and lengths must not be negative, and must sum to 1"
        return None


def _drawn(shares: Singles, count: int, rng: np.random.Generator) -> Ints:
    chances = shares.astype(np.float64)
    return rng.choice(len(shares), count, p=chances / chances.sum())


def _counted(numbers: Ints, size: int) -> Floats:
    return np.bincount(numbers, minlength=size).astype(np.float64)


def _shares(weights: Floats) -> Singles:
    shares: Singles = (weights / weights.sum()).astype(np.float32)
    return shares
