"""The file of a predictor: weights, feature grid and table, in a strict container (`_arrayfile`).

A file from elsewhere is checked before it is used: known keys and parts only, sizes that follow from one another, and
finite numbers of moderate size. That the table is what the network says is not computed again: like any prediction it
chooses rows of a mechanism and promises nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrayfile import read_arrays, write_arrays
from geoblanket._arrays import Octets
from geoblanket._files import MAGIC
from geoblanket._training import WALKS, training_of
from geoblanket.blanket.features import HOURS, LARGEST_ORDER, LARGEST_REGIONS, SPEED_BIN_MPH, SPEED_BINS, Encoding
from geoblanket.blanket.predictor import LARGEST_LAYER, LAYERS, Network, Origin, Predictor
from geoblanket.errors import InputError

__all__ = ["load_predictor", "save_predictor"]

_LARGEST_BYTES: Final = 1 << 28
"""The largest file that is read unless the caller says otherwise."""

_MAGIC = MAGIC["predictor"]
_KIND = "a predictor of blankets"
_HINT = "Train it again, or get it again from where it came from"
_LARGEST_NUMBER = 1e6  # of weights and origins, either way
_LONGEST_TEXT = 2000  # characters
_INTEGERS = ("hours", "speeds_mph", "regions")
_TRAINING = "training"
_LAYER_PARTS = tuple(f"{part}_{layer}" for part in ("weights", "bias") for layer in range(1, LAYERS + 1))
_DTYPES = {
    **dict.fromkeys(_INTEGERS, "<i4"),
    **dict.fromkeys(("centre", *_LAYER_PARTS), "<f8"),
    "table": "|u1",
}

Arrays = Mapping[str, npt.NDArray[Any]]


@checked
def save_predictor(predictor: Predictor, path: str | Path) -> None:
    """Write a predictor, wholly or not at all; the same predictor always gives the same bytes."""
    encoding, network = predictor.encoding, predictor.network
    arrays: dict[str, npt.NDArray[Any]] = {name: np.array(getattr(encoding, name), np.int32) for name in _INTEGERS}
    arrays |= {"centre": encoding.centre, "table": predictor.table}
    for layer in range(LAYERS):
        arrays[f"weights_{layer + 1}"] = network.weights[layer]
        arrays[f"bias_{layer + 1}"] = network.biases[layer]
    header = {"largest": predictor.largest, **asdict(predictor.origin), _TRAINING: predictor.origin.training.as_json()}
    if predictor.origin.training == WALKS:
        del header[_TRAINING]  # as it was before there were statements
    write_arrays(path, magic=_MAGIC, fields=header, arrays=arrays)


@checked
def load_predictor(path: str | Path, *, largest_bytes: int = _LARGEST_BYTES) -> Predictor:
    """Read a predictor written by `save_predictor`. Needs only NumPy.

    Parameters
    ----------
    largest_bytes
        Larger files are refused before they are read.

    Raises
    ------
    InputError
        The file is damaged, hostile or something else.

    Examples
    --------
    >>> from geoblanket import load_predictor
    >>> load_predictor("city.blanket").length(hour=8)
    1
    """
    header, arrays = read_arrays(path, magic=_MAGIC, kind=_KIND, hint=_HINT, largest_bytes=largest_bytes)
    try:
        largest, origin = _header(header)
        _check_parts(arrays)
        encoding = _encoding(arrays, largest)
        network = _network(arrays, encoding.width)
        table = _table(arrays["table"], encoding)
    except ValueError as error:
        raise InputError(f"is not {_KIND} that can be used: {error}", path=path, hint=_HINT) from error
    return Predictor(encoding, network, origin, table=table)


def _header(values: dict[str, Any]) -> tuple[int, Origin]:
    names = [field.name for field in fields(Origin) if field.name != _TRAINING]
    if type(values) is not dict or set(values) - {_TRAINING} != {"largest", *names}:
        raise ValueError("its header has other keys")
    kinds = {field.name: field.type for field in fields(Origin)}
    for name in names:
        _check_value(name, values[name], str(kinds[name]))
    if type(values["largest"]) is not int or not 1 <= values["largest"] <= LARGEST_ORDER:
        raise ValueError(f"'largest' must be a whole number from 1 to {LARGEST_ORDER}")
    training = training_of(values)
    if _TRAINING in values and training == WALKS:
        raise ValueError(f"'{_TRAINING}' must be left out where it says nothing")
    return values["largest"], Origin(**{name: values[name] for name in names}, training=training)


def _check_value(name: str, value: Any, kind: str) -> None:
    """Raise unless a value of the header is of its kind and of moderate size."""
    if kind == "str":
        # What is not printable could steer a terminal.
        right = type(value) is str and 1 <= len(value) <= _LONGEST_TEXT and value.isprintable()
    elif kind == "int":
        right = type(value) is int and 0 <= value < 1 << 53
    else:
        right = type(value) in {int, float} and 0 < value <= _LARGEST_NUMBER
    if not right:
        raise ValueError(f"'{name}' in its header is of another kind or too large")


def _check_parts(arrays: Arrays) -> None:
    """Raise unless every part is there, of its type, and finite."""
    if set(arrays) != set(_DTYPES):
        raise ValueError("its parts are not those of a predictor")
    for name, array in arrays.items():
        dimensions = 3 if name == "table" else 2 if name.startswith("weights") else 1
        if array.dtype.str != _DTYPES[name] or array.ndim != dimensions:
            raise ValueError(f"its part '{name}' has another type")
        if array.dtype.kind == "f" and not (np.abs(array) <= _LARGEST_NUMBER).all():
            raise ValueError(f"its part '{name}' has a number that is not finite or too large")


def _encoding(arrays: Arrays, largest: int) -> Encoding:
    hours, speeds, regions = (tuple(arrays[name].tolist()) for name in _INTEGERS)
    for name in _INTEGERS:
        if (np.diff(arrays[name]) <= 0).any() or (arrays[name] < 0).any():
            raise ValueError(f"its part '{name}' is not in order")
    if max(hours, default=0) >= HOURS:
        raise ValueError("an hour is not one of a day")
    if any(speed % SPEED_BIN_MPH or speed >= SPEED_BIN_MPH * SPEED_BINS for speed in speeds):
        raise ValueError("a speed is not the lower edge of a bin")
    if len(regions) > LARGEST_REGIONS:
        raise ValueError(f"it has more than {LARGEST_REGIONS} regions")
    encoding = Encoding(hours, speeds, regions, largest, np.array(arrays["centre"]))
    if len(encoding.centre) != encoding.width:
        raise ValueError("its centre does not fit its features")
    return encoding


def _network(arrays: Arrays, width: int) -> Network:
    weights, biases = [], []
    for layer in range(1, LAYERS + 1):
        weight, bias = arrays[f"weights_{layer}"], arrays[f"bias_{layer}"]
        units = weight.shape[1]
        if weight.shape[0] != width or len(bias) != units or not 1 <= units <= LARGEST_LAYER:
            raise ValueError("the sizes of its layers do not fit")
        weights.append(np.array(weight))
        biases.append(np.array(bias))
        width = units
    if width != 1:
        raise ValueError("its last layer must have one output")
    return Network(tuple(weights), tuple(biases))


def _table(values: npt.NDArray[Any], encoding: Encoding) -> Octets:
    if values.shape != (HOURS, SPEED_BINS, len(encoding.regions) + 1):
        raise ValueError("its table does not fit its features")
    if values.min() < 1 or values.max() > encoding.largest:
        raise ValueError("its table has a length that is not possible")
    return np.array(values)
