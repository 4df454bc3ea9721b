"""Checks the types of arguments of public functions and constructors, before anything is done with them.

The annotations say what is taken; `checked` holds arguments against them. Paths, numbers, arrays, sequences and classes
are told apart. What an annotation says beyond that (one of several words, a range, a shape) the function checks itself.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, wraps
from inspect import signature
from numbers import Real
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from geoblanket.errors import ParameterError

_HOW: Final = {
    "path": "Give the name of a file",
    "LatticeBundle": "Load one with load_bundle",
    "Mechanism": "The result of optimise has one",
    "MotionModel": "Load one with MotionModel.load, or learn one with learn_motion",
    "Places": "Choose them with choose_places",
    "Predictor": "Load one with load_predictor, or train one with train",
    "Problem": "Make one of a loss, a prior, distances and an epsilon: Problem(...)",
    "RoadGraph": "Load one with RoadGraph.load, or import one with import_roads",
    "TrainingBudget": "Make one with TrainingBudget.of",
    "ZoneBundle": "Load one with load_bundle",
    "ZoneRows": "Make them with make_rows",
    "Zones": "Make them with partition_zones",
}
"""How to get what is wanted."""

_Target = TypeVar("_Target", bound=Callable[..., Any])


class _Kind(NamedTuple):
    """What an annotation takes."""

    name: str
    """As a message says it, after "a" or "an"."""
    takes: Callable[[Any], bool]


def checked(target: _Target) -> _Target:
    """Raise ParameterError where an argument is of another type than the annotations say.

    For public functions and classes, of which the constructor is checked. A message names types only: the value could
    be a location.
    """
    if isinstance(target, type):
        target.__init__ = checked(target.__init__)  # type: ignore[misc]  # the same constructor, checked
        return target
    names = tuple(signature(target).parameters)

    @wraps(target)
    def checking(*arguments: Any, **options: Any) -> Any:
        kinds = _kinds_of(target)
        for name, value in (*zip(names, arguments, strict=False), *options.items()):
            if name in kinds and not any(kind.takes(value) for kind in kinds[name]):
                raise wrong_type(target, name, value, _names(kinds[name]))
        return target(*arguments, **options)

    return checking  # type: ignore[return-value]  # it is called as the target is


def forgetting(target: _Target) -> _Target:
    """Let errors leave without the frames below: tools that print local variables must find no location or key."""

    @wraps(target)
    def calling(*arguments: Any, **options: Any) -> Any:
        try:
            return target(*arguments, **options)
        except BaseException as error:
            failure = error.with_traceback(None)
            failure.__cause__ = failure.__context__ = None
        del arguments, options
        raise failure

    return calling  # type: ignore[return-value]  # it is called as the target is


def wrong_type(target: Callable[..., Any], name: str, value: object, wanted: Sequence[str]) -> ParameterError:
    """Return the error for an argument of another type.

    Parameters
    ----------
    target
        What was called.
    name, value
        The parameter, and what was given for it, of which the type is said and no more.
    wanted
        What it can be, in words.
    """
    *owner, called = target.__qualname__.split(".")
    where = owner[-1] if called == "__init__" else ".".join((*owner, called))
    hints = [_HOW[kind] for kind in wanted if kind in _HOW]
    return ParameterError(
        f"The '{name}' parameter of {where} must be {' or '.join(map(_with_article, wanted))}. "
        f"Got {type(value).__name__} instead." + (f" {hints[0]}." if hints else "")
    )


def _names(kinds: Iterable[_Kind]) -> list[str]:
    names = dict.fromkeys(kind.name for kind in kinds)
    if "path" in names:
        names.pop("string", None)  # which is one as well
    return list(names)


def _with_article(name: str) -> str:
    return name if name == "None" else f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


@cache
def _kinds_of(target: Callable[..., Any]) -> dict[str, tuple[_Kind, ...]]:
    """Return the kinds of value that each parameter takes; parameters that take anything are left out."""
    hints = get_type_hints(target)
    hints.pop("return", None)
    kinds = {name: tuple(map(_kind, _alternatives(hint))) for name, hint in hints.items()}
    return {name: known for name, found in kinds.items() if len(known := _all_known(found))}


def _all_known(kinds: tuple[_Kind | None, ...]) -> tuple[_Kind, ...]:
    known = tuple(kind for kind in kinds if kind is not None)
    return known if len(known) == len(kinds) else ()


def _alternatives(hint: Any) -> list[Any]:
    """Return what a union is of. What NumPy takes as an array is a union itself, and stays one alternative."""
    if get_origin(hint) not in {Union, types.UnionType}:
        return [hint]
    parts, array_like = list(get_args(hint)), get_args(npt.ArrayLike)
    if set(array_like) <= set(parts):
        return [npt.ArrayLike, *(part for part in parts if part not in array_like)]
    return parts


def _kind(hint: Any) -> _Kind | None:
    """Return what one alternative of an annotation takes; None if that cannot be told."""
    origin = get_origin(hint) or hint
    if origin is np.ndarray or hint == npt.ArrayLike:
        return _Kind("array of numbers", _holds_numbers)
    if origin in {Sequence, Iterable, tuple}:
        parts = [part for argument in get_args(hint) if argument is not ... for part in _alternatives(argument)]
        items = _all_known(tuple(map(_kind, parts)))
        name = f"sequence of {' or '.join(_names(items))}" if items else "sequence"
        return _Kind(name, lambda value: _is_sequence(value, items, once=origin is Iterable))
    if origin is Mapping or origin is dict:
        return _Kind("mapping", lambda value: isinstance(value, Mapping))
    if origin is Callable:
        return _Kind("function", callable)
    if not isinstance(origin, type) or getattr(origin, "_is_protocol", False) or origin in {Any, object}:
        return None
    return _kind_of_class(origin)


def _kind_of_class(wanted: type) -> _Kind:
    if wanted is types.NoneType:
        return _Kind("None", lambda value: value is None)
    if wanted is bool:
        return _Kind("truth value", lambda value: isinstance(value, bool | np.bool_))
    if wanted in {int, float}:
        return _Kind("number", lambda value: isinstance(value, Real))
    if wanted is Path:
        return _Kind("path", lambda value: isinstance(value, os.PathLike))
    return _Kind("string" if wanted is str else wanted.__name__, lambda value: isinstance(value, wanted))


def _holds_numbers(value: Any) -> bool:
    try:
        return np.asarray(value).dtype.kind in "biuf"
    except (TypeError, ValueError):  # of several lengths
        return False


def _is_sequence(value: Any, items: tuple[_Kind, ...], *, once: bool) -> bool:
    """Whether a value holds items of some kinds; `once`: an iterator will do, which is not read here."""
    if isinstance(value, str | bytes | Mapping) or (isinstance(value, np.ndarray) and not value.ndim):
        return False
    if not isinstance(value, Collection):
        return once and isinstance(value, Iterable)
    return not items or all(any(kind.takes(item) for kind in items) for item in value)
