"""The predictor: how many past locations the blanket of the present one has, from the hour, speed and region.

A predictor answers in two ways. The network gives the probability of "fail to reject" for each order (Algorithm 2); a
table, computed once over the whole grid of features, gives the length at once. Predictions choose which rows of a
mechanism are used, never what the mechanism guarantees: a wrong length costs utility only.

The features are few and finite: 24 hours, 24 bins of 5 mph, the regions and the orders. Each contributes columns of its
own, so the first layer of a network on them is a sum of four rows looked up. Only NumPy is needed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrayfile import read_arrays, write_arrays
from geoblanket._arrays import ArrayTable, Bools, Floats, Ints, Octets
from geoblanket._display import counted, short_repr
from geoblanket._files import MAGIC
from geoblanket._training import WALKS, Training, training_of
from geoblanket.errors import InputError, ParameterError

HOURS: Final = 24
SPEED_BIN_MPH: Final = 5
SPEED_BINS: Final = 24
"""Bins of `SPEED_BIN_MPH` from 0 to 120 mph; faster speeds belong to the last."""

LARGEST_ORDER: Final = 20
"""No Γ is larger."""
LARGEST_REGIONS: Final = 1 << 17
"""The most regions of findings and predictors: tables have a column for each."""


@dataclass(frozen=True)
class PredictorInputs(ArrayTable):
    """Hypotheses to judge, one for each element; a feature that does not define the groups is -1 throughout."""

    hour: Ints
    """0 to 23, in the time zone of the findings."""
    speed_mph: Ints
    """Lower edge of the bin."""
    region: Ints
    m: Ints
    """The order: how many of the latest locations are in the blanket that is judged."""
    others: Floats = field(default_factory=lambda: np.empty((0, 0)))
    """Columns of features in another domain than vehicles, shape (n, columns)."""

    def __post_init__(self) -> None:
        if len(self.others) != len(self.m):
            object.__setattr__(self, "others", np.empty((len(self.m), 0)))

    def __len__(self) -> int:
        return len(self.m)

    def with_every_order(self, largest: int) -> PredictorInputs:
        """Return each hypothesis' group with m = 1, ..., `largest`, one group after the other."""
        repeated = self.where(np.repeat(np.arange(len(self)), largest))
        return replace(repeated, m=np.tile(np.arange(1, largest + 1), len(self)))


@dataclass(frozen=True)
class Encoding:
    """How inputs become the columns of a network, learned from the groups that it was trained on.

    The hour is a point on two circles (of 24 and of 12 hours, for days have two peaks). The speed has a column for each
    border between bins, 1 above it and 0 below: blankets change at some speeds and are alike between them, which is
    learned better so than from one number. Regions and orders have a column each. All columns are centred. An hour or a
    speed that no group had is taken as the nearest one that some group had, so that the network is never asked far from
    what it saw; a region that no group had is the mean of all regions.
    """

    hours: tuple[int, ...]
    """Hours that some group had, ascending; none where the hour does not define the groups."""
    speeds_mph: tuple[int, ...]
    """Lower edges of the bins that some group had, mph; none where the speed does not define the groups."""
    regions: tuple[int, ...]
    """Regions that some group had; none where the region does not define the groups."""
    largest: int
    """Γ, the largest order."""
    centre: Floats
    """What is subtracted from each column."""

    @classmethod
    def learned(cls, inputs: PredictorInputs, *, largest: int) -> Encoding:
        """Return the encoding for a network that is trained on `inputs`."""
        hours, speeds, regions = (
            tuple(np.unique(values[values >= 0]).tolist()) for values in (inputs.hour, inputs.speed_mph, inputs.region)
        )
        width = inputs.others.shape[1] + _width(hours, speeds, regions, largest)
        plain = cls(hours, speeds, regions, largest, np.zeros(width))
        return replace(plain, centre=plain.rows(inputs).mean(axis=0))

    @property
    def width(self) -> int:
        """How many columns there are."""
        return len(self.centre)

    def first_layer(self, weights: Floats) -> tuple[Floats, Floats, Floats]:
        """Return what each feature adds to the sums of a first layer with these weights (columns down, units across).

        Returns
        -------
        of_hour_speed, of_region, of_order
            Shapes (24, 24, units), (regions + 1, units), of which the last is any other region, and (Γ, units).
        """
        hours, speeds = _hour_columns(self.hours), _speed_columns(self.speeds_mph)
        borders = np.cumsum([hours.shape[1], speeds.shape[1], len(self.regions)])
        parts, centres = np.split(weights, borders), np.split(self.centre, borders)
        of_hour = (hours - centres[0]) @ parts[0]
        of_speed = (speeds - centres[1]) @ parts[1]
        # A column of its own for each: the product with such rows is the weights themselves.
        of_region = np.vstack([parts[2] - centres[2] @ parts[2], np.zeros(weights.shape[1])])
        return of_hour[:, None] + of_speed, of_region, parts[3] - centres[3] @ parts[3]

    def region_columns(self, region: Ints) -> Ints:
        """Return the position of each region among `regions`; their number for any other region."""
        if not self.regions:
            return np.zeros(len(region), np.int64)
        known = np.array(self.regions)
        position = np.searchsorted(known, region).clip(max=len(known) - 1)
        return np.where(known[position] == region, position, len(known))

    def rows(self, inputs: PredictorInputs) -> Floats:
        """Return the columns of each input, shape (n, width)."""
        position = self.region_columns(inputs.region)
        regions = np.array(position[:, None] == np.arange(len(self.regions)), np.float64)
        first = self.width - self.largest - len(self.regions)
        regions[position == len(self.regions)] = self.centre[first : first + len(self.regions)]
        columns = [
            inputs.others,
            _hour_columns(self.hours)[inputs.hour.clip(min=0)],
            _speed_columns(self.speeds_mph)[inputs.speed_mph.clip(min=0) // SPEED_BIN_MPH],
            regions,
            inputs.m[:, None] == np.arange(1, self.largest + 1),
        ]
        return np.hstack(columns) - self.centre


def _width(hours: tuple[int, ...], speeds: tuple[int, ...], regions: tuple[int, ...], largest: int) -> int:
    return 4 * bool(hours) + (SPEED_BINS - 1) * bool(speeds) + len(regions) + largest


def _hour_columns(seen: tuple[int, ...]) -> Floats:
    if not seen:
        return np.empty((HOURS, 0))
    apart = np.abs(np.subtract.outer(np.arange(HOURS), np.array(seen)))
    nearest = np.array(seen)[np.minimum(apart, HOURS - apart).argmin(axis=1)]
    angle = nearest * (2 * math.pi / HOURS)
    return np.column_stack([np.sin(angle), np.cos(angle), np.sin(2 * angle), np.cos(2 * angle)])


def _speed_columns(seen: tuple[int, ...]) -> Floats:
    if not seen:
        return np.empty((SPEED_BINS, 0))
    edges = SPEED_BIN_MPH * np.arange(SPEED_BINS)
    apart = np.abs(np.subtract.outer(edges, np.array(seen)))
    nearest = np.array(seen)[apart.argmin(axis=1)]
    return np.array(nearest[:, None] >= edges[1:], np.float64)


LAYERS = 3


@dataclass(frozen=True)
class Network:
    """Weights and biases of the three layers, as scikit-learn orders them: inputs down, outputs across."""

    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]

    def probabilities(self, rows: Floats) -> Floats:
        """Return P("fail to reject") of each encoded row."""
        return sigmoid(self.after_first(rows @ self.weights[0] + self.biases[0])[:, 0])

    def after_first(self, sums: Floats) -> Floats:
        """Return the logits, shape (n, 1), that follow from the first layer's sums before its ReLU, (n, units)."""
        second = np.maximum(sums, 0.0) @ self.weights[1] + self.biases[1]
        return np.maximum(second, 0.0) @ self.weights[2] + self.biases[2]


def sigmoid(logits: Floats) -> Floats:
    """Return 1 / (1 + e^-x), without overflow."""
    probabilities: Floats = np.exp(-np.logaddexp(0.0, -logits))
    return probabilities


def blanket_lengths(kept: Bools) -> Ints:
    """Return the blanket's length by Algorithm 2: the first m that is not rejected, and Γ where all are.

    Parameters
    ----------
    kept
        Whether "fail to reject" is predicted for m = 1, ..., Γ, along the last axis.
    """
    lengths: Ints = np.where(kept.any(axis=-1), kept.argmax(axis=-1) + 1, kept.shape[-1])
    return lengths


_ZERO = np.zeros(())
"""NumPy takes a quarter less time with it than with 0.0, which it would have to convert."""
_ROWS = {hour: hour for hour in range(HOURS)}
_RULES = {
    "hour": "'hour' must be a whole number from 0 to 23.",
    "speed_mph": "'speed_mph' must be a finite number, not negative.",
}


@dataclass(frozen=True)
class Origin:
    """How a predictor was made: what its users must know."""

    by: str
    """The features that defined the groups, joined by +."""
    interval_s: float
    """Seconds between locations: the speed is that of the last interval, |X_t - X_{t-1}| / interval."""
    time_zone: str
    """The time zone of the hours."""
    regions: str
    """Which regions the numbers stand for, in the words of the findings."""
    test: str
    """The conditional-independence test that labelled the groups."""
    alpha: float
    """The level of that test."""
    labels: str
    """What the network was trained on: "all" labels, or those "tested"."""
    groups: int
    """How many groups it was trained on."""
    seed: int
    training: Training = WALKS
    """What the walks were learned from in which the blankets were found."""


class Predictor:
    """Predicts the length of the blanket from hour, speed and region.

    A speed above 120 mph counts as 120 mph. An hour or a speed bin without a group is replaced by the nearest one with
    a group. A region without a group, or None, is the mean of all regions. A feature that does not define the groups
    may be omitted.

    Parameters
    ----------
    encoding
        How features become columns.
    network
        Its weights.
    origin
        How encoding and network were made.
    table
        The lengths over the grid, shape (24, 24, regions + 1), if already known.

    Examples
    --------
    >>> from geoblanket import load_predictor
    >>> predictor = load_predictor("city.blanket")
    >>> predictor.largest
    1
    >>> predictor.length(hour=8) == predictor.length_by_network(hour=8)
    True
    """

    @checked
    def __init__(self, encoding: Encoding, network: Network, origin: Origin, *, table: Octets | None = None) -> None:
        self.encoding = encoding
        self.network = network
        self.origin = origin
        # The first layer is a sum of one row for each feature, so two look-ups are all that it ever needs.
        of_hour_speed, self._of_region, of_order = encoding.first_layer(network.weights[0])
        self._of_others = of_hour_speed[:, :, None] + (of_order + network.biases[0])
        # Algorithm 2 takes microseconds, and each call of NumPy half of one: a unit that is always 1 carries the second
        # layer's bias, and the third's is on the other side of the comparison.
        self._with_unit = np.concatenate([self._of_others, np.ones((*self._of_others.shape[:-1], 1))], axis=-1)
        self._region_with_unit = np.pad(self._of_region, ((0, 0), (0, 1)))
        self._second = np.vstack([network.weights[1], network.biases[1]])
        self._third = np.ascontiguousarray(network.weights[2][:, 0])
        self._least = -float(network.biases[2][0])
        self.table = self._predicted_table() if table is None else table
        self._width = len(encoding.regions) + 1
        self._lengths = self.table.tobytes()
        self._columns: dict[int | None, int] = {region: column for column, region in enumerate(encoding.regions)}

    @property
    def largest(self) -> int:
        """Γ: no blanket is longer."""
        return self.encoding.largest

    def length(self, *, hour: int | None = None, speed_mph: float | None = None, region: int | None = None) -> int:
        """Return how many past locations the blanket has, from the table.

        Parameters
        ----------
        hour
            0 to 23, in the predictor's time zone.
        speed_mph
            The speed over the last interval, mph.
        region
            The number of the region.
        """
        row, speed_bin, column = self._cell(hour, speed_mph, region)
        return self._lengths[(row * SPEED_BINS + speed_bin) * self._width + column]

    def lengths(
        self,
        *,
        hour: npt.ArrayLike | None = None,
        speed_mph: npt.ArrayLike | None = None,
        region: npt.ArrayLike | None = None,
    ) -> Ints:
        """Return the lengths for many locations at once, from the table; arrays are broadcast against each other."""
        hours = _checked("hour", hour, self.encoding.hours)
        speeds = _checked("speed_mph", speed_mph, self.encoding.speeds_mph)
        bins = np.minimum(speeds // SPEED_BIN_MPH, SPEED_BINS - 1).astype(np.intp)
        regions = np.asarray(-1 if region is None else region)
        columns = self.encoding.region_columns(regions.ravel()).reshape(regions.shape)
        return self.table[hours.astype(np.intp), bins, columns].astype(np.int64)

    def probabilities(
        self, *, hour: int | None = None, speed_mph: float | None = None, region: int | None = None
    ) -> Floats:
        """Return P("fail to reject") for m = 1, ..., Γ by the network; the parameters are those of `length`."""
        row, speed_bin, column = self._cell(hour, speed_mph, region)
        return sigmoid(self.network.after_first(self._of_others[row, speed_bin] + self._of_region[column])[:, 0])

    def length_by_network(
        self, *, hour: int | None = None, speed_mph: float | None = None, region: int | None = None
    ) -> int:
        """Return the same as `length` without the table, by Algorithm 2: stop at the first m that is not rejected."""
        row, speed_bin, column = self._cell(hour, speed_mph, region)
        of_region, second, third = self._region_with_unit[column], self._second, self._third
        m = 0
        for of_others in self._with_unit[row, speed_bin]:
            m += 1
            hidden = np.maximum(np.dot(np.maximum(of_others + of_region, _ZERO), second), _ZERO)
            if np.dot(hidden, third) > self._least:
                break
        return m

    def grid(self) -> Iterator[tuple[int, int, int | None, int]]:
        """Yield hour, lower edge of the speed bin (mph), region (None: any other) and length for the whole table."""
        for (hour, speed, column), length in np.ndenumerate(self.table):
            region = None if column == self._width - 1 else self.encoding.regions[column]
            yield hour, SPEED_BIN_MPH * speed, region, int(length)

    def _cell(self, hour: int | None, speed_mph: float | None, region: int | None) -> tuple[int, int, int]:
        """Return the position in the table; raise unless the features are in order."""
        row = _left_out("hour", self.encoding.hours) if hour is None else _ROWS.get(hour)
        if row is None:
            raise ParameterError(_RULES["hour"])
        if speed_mph is None:
            speed_mph = _left_out("speed_mph", self.encoding.speeds_mph)
        elif not 0 <= speed_mph < math.inf:
            raise ParameterError(_RULES["speed_mph"])
        speed_bin = min(int(speed_mph) // SPEED_BIN_MPH, SPEED_BINS - 1)
        return row, speed_bin, self._columns.get(region, self._width - 1)

    def _predicted_table(self) -> Octets:
        """Return Algorithm 2's length in every cell; region by region, so that memory stays small."""
        units = self._of_others.shape[-1]
        lengths = []
        for of_region in self._of_region:
            logits = self.network.after_first((self._of_others + of_region).reshape(-1, units))
            lengths.append(blanket_lengths(logits.reshape(HOURS, SPEED_BINS, self.largest) > 0.0))
        return np.stack(lengths, axis=-1).astype(np.uint8)

    def __repr__(self) -> str:
        return short_repr(
            self,
            f"blankets of up to {counted(self.largest, 'place')} by {self.origin.by or 'nothing'}",
            f"steps of {self.origin.interval_s:g} s",
            f"learned from {counted(self.origin.groups, 'group')}",
        )


def _left_out(name: str, levels: tuple[int, ...]) -> int:
    if levels:
        raise ParameterError(f"'{name}' must be given: this predictor was trained on groups by it.")
    return 0


def _checked(name: str, values: npt.ArrayLike | None, levels: tuple[int, ...]) -> Floats:
    """Return hours or speeds as an array; raise unless all are in order."""
    if values is None:
        return np.asarray(_left_out(name, levels), np.float64)
    array = np.asarray(values, np.float64)
    right = (array >= 0) & np.isfinite(array)
    if name == "hour":
        right &= (array < HOURS) & (array == np.floor(array))
    if not right.all():
        raise ParameterError(_RULES[name])
    return array


_MAGIC = MAGIC["predictor"]
_KIND = "a predictor of blankets"
_HINT = "Train it again, or get it again from where it came from"
_INTEGERS = ("hours", "speeds_mph", "regions")
_LAYERS = tuple(range(1, LAYERS + 1))
_HEADER_TYPES = {"str": str, "int": int, "float": int | float}
_TRAINING = "training"


@checked
def save_predictor(predictor: Predictor, path: str | Path) -> None:
    """Write a predictor, wholly or not at all; the same predictor always gives the same bytes."""
    encoding, network = predictor.encoding, predictor.network
    arrays: dict[str, npt.NDArray[Any]] = {name: np.array(getattr(encoding, name), np.int32) for name in _INTEGERS}
    arrays |= {"centre": encoding.centre, "table": predictor.table}
    for layer in _LAYERS:
        arrays[f"weights_{layer}"], arrays[f"bias_{layer}"] = network.weights[layer - 1], network.biases[layer - 1]
    header = {"largest": predictor.largest, **asdict(predictor.origin), _TRAINING: predictor.origin.training.as_json()}
    if predictor.origin.training == WALKS:
        del header[_TRAINING]  # as it was before there were statements
    write_arrays(path, magic=_MAGIC, fields=header, arrays=arrays)


@checked
def load_predictor(path: str | Path) -> Predictor:
    """Read a predictor written by `save_predictor`. Needs only NumPy.

    Raises
    ------
    InputError
        The file is damaged, or something else.

    Examples
    --------
    >>> from geoblanket import load_predictor
    >>> load_predictor("city.blanket").length(hour=8)
    1
    """
    header, arrays = read_arrays(path, magic=_MAGIC, kind=_KIND, hint=_HINT)
    try:
        hours, speeds, regions = (tuple(map(int, arrays[name])) for name in _INTEGERS)
        encoding = Encoding(hours, speeds, regions, int(header["largest"]), arrays["centre"].astype(np.float64))
        network = Network(
            tuple(arrays[f"weights_{layer}"].astype(np.float64) for layer in _LAYERS),
            tuple(arrays[f"bias_{layer}"].astype(np.float64) for layer in _LAYERS),
        )
        if arrays["table"].shape != (HOURS, SPEED_BINS, len(encoding.regions) + 1):
            raise ValueError("its table does not fit its features")
        return Predictor(encoding, network, _origin(header), table=arrays["table"].astype(np.uint8))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"is not {_KIND} that can be used: {error}", path=path, hint=_HINT) from error


def _origin(header: dict[str, Any]) -> Origin:
    known = {each.name: header[each.name] for each in fields(Origin) if each.name != _TRAINING}
    for each in fields(Origin):
        if each.name in known and not isinstance(known[each.name], _HEADER_TYPES[str(each.type)]):
            raise ValueError(f"'{each.name}' in its header is of another type")
    return Origin(**known, training=training_of(header))
