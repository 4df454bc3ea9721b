"""Algorithm 2 online: how many past locations the blanket of the present one has, from the hour, speed and region.

A predictor answers in two ways. The network gives the probability of "fail to reject" for each order; a table, computed
once over the whole grid of features, gives the length at once. Predictions choose which rows of a mechanism are used,
never what the mechanism guarantees: a wrong length costs utility only. Only NumPy is needed here: devices use it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Floats, Ints, Octets
from geoblanket._display import counted, short_repr
from geoblanket._training import WALKS, Training
from geoblanket.blanket.features import HOURS, SPEED_BIN_MPH, SPEED_BINS, Encoding
from geoblanket.errors import ParameterError

__all__ = ["LARGEST_LAYER", "LAYERS", "Network", "Origin", "Predictor", "blanket_lengths", "sigmoid"]

LAYERS = 3
LARGEST_LAYER = 256
"""Units of a hidden layer; more are refused."""


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
    """How a predictor was made, as far as those who use it must know."""

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
