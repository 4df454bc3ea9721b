from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket.build.validation import as_json, read_dataclass


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


GOOD = Outer("a", Inner(1, 2.0), (Inner(3, math.inf),), None, (1, "b"), {"c": (0.5,)}, "a", True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", 1),
        ("inner", {"count": 1.5, "share": 1.0}),
        ("inner", {"count": "one", "share": 1.0}),
        ("inner", {"count": 1}),
        ("inner", [1, 1.0]),
        ("several", {"a": 1}),
        ("maybe", [1]),
        ("pair", [1, "b", 2]),
        ("table", [1]),
        ("kind", "c"),
        ("sure", 2),
    ],
)
def test_what_is_of_another_type_is_refused(key: str, value: Any) -> None:
    assert read_dataclass(Outer, as_json(GOOD)) == GOOD
    with pytest.raises(ValueError, match="not Outer"):
        read_dataclass(Outer, {**as_json(GOOD), key: value})


def test_whole_numbers_and_infinity_are_numbers() -> None:
    made = read_dataclass(Inner, {"count": 1, "share": 3})
    assert type(made.share) is float
    assert read_dataclass(Inner, {"count": 1, "share": "inf"}).share == math.inf
    assert as_json(math.inf) == "inf"
