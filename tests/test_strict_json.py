from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket._untrusted import read_object

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(TEXT, VALUES, max_size=5), st.booleans())
def test_an_object_is_read_as_it_was_written(value: dict[str, object], ascii_only: bool) -> None:
    assert read_object(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"1",
        b"{}{}",
        b"{'a': 1}",
        b'{"a": 1, "a": 1}',
        b'{"b": {"a": 1, "\\u0061": 2}}',
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": -1e999}',
        b'{"a": "\\ud800"}',
        b'{"\\udfff": 1}',
        b'{"a": "\xff"}',
        b"\xef\xbb\xbf{}",
        '{"a": 1}'.encode("utf-16"),
        b'{"a": ' + b"[" * 100_000,
        b'{"a": ' + b"9" * 100_000 + b"}",
    ],
)
def test_anything_else_is_refused_without_a_word_of_it(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"^This is not strict JSON\.$") as caught:
        read_object(text)
    assert caught.value.__suppress_context__


@given(st.binary(max_size=200) | st.text('{}[]"\\u0aeN1-+.,: \n', max_size=60).map(str.encode))
def test_no_bytes_break_it(data: bytes) -> None:
    try:
        found = read_object(data)
    except ValueError:
        return
    assert read_object(json.dumps(found).encode()) == found
