"""Every public function and constructor answers arguments of other types with a typed error that echoes no value."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from geoblanket import GeoblanketError, ParameterError
from geoblanket._arguments import checked
from tests.test_public_surface import PACKAGES

SECRET = "41.15794"  # noqa: S105  # a location
WRONG: dict[str, Any] = {
    "nothing": None,
    "a number": 3,
    "an object": object(),
    "a list": [SECRET, object()],
    "a string": SECRET,
    "a path to nothing": Path("/nowhere/at/all"),
    "an array": np.array([41.15794]),
    "an array of no dimension": np.array(41.15794),
    "a mapping": {SECRET: SECRET},
}
RESULTS = {
    *(
        "Audit",
        "BuildRecord",
        "Certainty",
        "LatticeBundle",
        "ZoneBundle",
        "CIResult",
        "Certificate",
        "Composition",
        "ContextProblem",
        "Discovery",
        "DrawnWalks",
    ),
    *(
        "Evaluation",
        "Event",
        "FleetReports",
        "Inference",
        "LatticeSummary",
        "Leakage",
        "OptimiseResult",
        "TablePredictor",
    ),
    *(
        "Outcome",
        "PerturbSummary",
        "Plan",
        "Rated",
        "Repaired",
        "Report",
        "Tracked",
        "TrackSummary",
        "TrainResult",
        "TrainingAccount",
    ),
    *("Violation", "WorstPair", "ZoneReports"),
}
"""Records that the library fills and nobody else makes: what makes them checks nothing."""
TAKEN = {
    ("BuildConfig", "a number"),  # an epsilon
    ("Effort", "a number"),
    ("TrainingLedger", "a string"),  # the name of a file that is made on first use
    ("TrainingLedger", "a path to nothing"),
    ("TrainingLedger.beside", "a string"),
    ("TrainingLedger.beside", "a path to nothing"),
    ("Trust", "nothing"),  # no key: the signature is not asked for
    ("Trust", "a string"),
    ("Trust", "a path to nothing"),
    ("Wishes", "nothing"),  # no wish for a home
    ("Wishes", "a number"),
    ("Wishes.read", "nothing"),
    ("Wishes.read", "a string"),  # metres
}
"""What is right, of all that is given below."""


def public_callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    """All public functions, constructors and class methods that make an object, once each."""
    seen = set()
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            found = getattr(module, name)
            if not callable(found) or found in seen:
                continue
            seen.add(found)
            if not isinstance(found, type):
                yield name, found
            elif not issubclass(found, BaseException | Enum) and not getattr(found, "_is_protocol", False):
                if name in RESULTS:
                    continue
                if inspect.signature(found).parameters:
                    yield name, found
                makers = (key for key, value in vars(found).items() if isinstance(value, classmethod))
                yield from ((f"{name}.{key}", getattr(found, key)) for key in makers if not key.startswith("_"))


def call(function: Callable[..., Any], first: object) -> Any:
    """Call with a first argument; all others that must be given are objects of no use."""
    parameters = list(inspect.signature(function).parameters.values())
    others = {parameter.name: object() for parameter in parameters[1:] if parameter.default is parameter.empty}
    others = {name: value for name, value in others.items() if name != "flags"}
    if parameters[0].kind is parameters[0].KEYWORD_ONLY:
        return function(**{parameters[0].name: first}, **others)
    return function(first, **others)


CALLABLES = dict(public_callables())


@pytest.mark.parametrize("name", CALLABLES)
def test_a_wrong_first_argument_gives_a_typed_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for kind, value in WRONG.items():
        if (name, kind) in TAKEN:
            call(CALLABLES[name], value)
            continue
        with pytest.raises(GeoblanketError) as raised:
            call(CALLABLES[name], value)
        if not isinstance(value, str):  # a name of a file may be said
            assert SECRET not in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_the_message_says_what_is_wanted_what_was_got_and_what_to_do() -> None:
    with pytest.raises(ParameterError) as raised:
        CALLABLES["optimise"](np.zeros(3))
    assert str(raised.value) == (
        "The 'problem' parameter of optimise must be a Problem. Got ndarray instead. "
        "Make one of a loss, a prior, distances and an epsilon: Problem(...)."
    )
    with pytest.raises(ParameterError, match=r"'graph' parameter of MapMatcher must be a RoadGraph\. Got str instead"):
        CALLABLES["MapMatcher"](SECRET)


class Thing:
    @checked
    def __init__(
        self,
        path: str | Path,
        things: Sequence[Thing] = (),
        *,
        array: npt.ArrayLike | None = None,
        number: float | None = None,
        words: Mapping[str, str] | None = None,
        anything: object = None,
    ) -> None:
        self.given = (path, things, array, number, words, anything)


def test_what_is_right_passes_as_it_is() -> None:
    thing = Thing("a")
    array = np.arange(3)
    given = Thing(Path("a"), [thing], array=array, number=np.float64(2), words={"a": "b"}, anything=3).given
    assert given[1] == [thing]
    assert given[2] is array
    assert Thing("a", array=[[1, 2], [3, 4]], number=3).given[2:4] == ([[1, 2], [3, 4]], 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": 3}, "'path' parameter of Thing must be a path. Got int instead. Give the name of a file."),
        ({"path": "a", "things": [3]}, "'things' parameter of Thing must be a sequence of Thing. Got list instead"),
        ({"path": "a", "things": "abc"}, "must be a sequence of Thing. Got str instead"),
        ({"path": "a", "array": "abc"}, "must be an array of numbers or None. Got str instead"),
        ({"path": "a", "array": [[1], [1, 2]]}, "must be an array of numbers or None. Got list instead"),
        ({"path": "a", "number": "3"}, "must be a number or None. Got str instead"),
        ({"path": "a", "words": ["a"]}, "must be a mapping or None. Got list instead"),
    ],
)
def test_every_argument_is_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message.replace(".", r"\.")):
        Thing(**options)
