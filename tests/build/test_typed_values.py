from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.build.typed_values import as_json, of_type, read_dataclass


@dataclass(frozen=True)
class Inner:
    count: int
    share: float


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner
    several: tuple[Inner, ...]
    maybe: Inner | None
    pair: tuple[int, str]
    table: dict[str, tuple[float, ...]]
    kind: Literal["a", "b"]
    sure: bool


inners = st.builds(Inner, st.integers(), st.floats(allow_nan=False, min_value=-1e300))
outers = st.builds(
    Outer,
    st.text(),
    inners,
    st.lists(inners).map(tuple),
    st.none() | inners,
    st.tuples(st.integers(), st.text()),
    st.dictionaries(st.text(), st.lists(st.floats(min_value=0, allow_nan=False)).map(tuple)),
    st.sampled_from(["a", "b"]),
    st.booleans(),
)


@given(outers)
def test_what_is_written_is_read_again(value: Outer) -> None:
    text = json.dumps(as_json(value), allow_nan=False)
    assert read_dataclass(Outer, json.loads(text)) == value


@pytest.mark.parametrize(
    ("value", "hint", "words"),
    [
        (True, int, "must be a whole number, not true or false"),
        (1.0, int, "must be a whole number, not a number"),
        ("1", float, "must be a number, not text"),
        (math.nan, float, "must be a number"),
        (1, str, "must be text, not a whole number"),
        ([1], dict[str, int], "must be a table"),
        ({"a": 1}, tuple[int, ...], "must be a list"),
        ([1, 2], tuple[int, int, int], "must have 3 values"),
        ("c", Literal["a", "b"], "must be a or b"),
        ({"count": 1}, Inner, "the keys of Inner"),
        ({"count": 1, "share": 1.0, "more": 2}, Inner, "the keys of Inner"),
        ({"count": "1", "share": 1.0}, Inner, "'count': must be a whole number"),
        ([1], Inner | None, "the keys of Inner"),
    ],
)
def test_what_is_of_another_type_is_refused_in_words(value: Any, hint: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        of_type(value, hint)


def test_whole_numbers_and_infinity_are_numbers() -> None:
    assert of_type(3, float) == 3.0
    assert type(of_type(3, float)) is float
    assert of_type("inf", float) == math.inf
    assert as_json(math.inf) == "inf"
