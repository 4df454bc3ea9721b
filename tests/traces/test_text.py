from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket import _untrusted
from geoblanket.errors import InputError
from geoblanket.traces import _text
from geoblanket.traces._text import NOT_UTF8, WRONG_COLUMNS, Block, read_blocks, read_cells, read_header

WANTED = {"a": 0, "c": 2}


def cells(text: bytes, *, delimiter: str = ",") -> tuple[list[tuple[object, ...]], list[tuple[int, str]]]:
    found = read_cells(Block(text, 1, 0), width=3, wanted=WANTED, delimiter=delimiter)
    return found.frame.select("row", "a", "c").rows(), found.malformed


@pytest.mark.parametrize("block_bytes", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("compress", [False, True])
def test_blocks_are_whole_rows_whatever_their_size(tmp_path: Path, block_bytes: int, compress: bool) -> None:
    text = b'\xef\xbb\xbfhead\r\n1,"two\nlines",3\r\n4,5,6\r\n\r\n7,8,9'
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(text) if compress else text)
    blocks = list(read_blocks(path, header=False, block_bytes=block_bytes))
    assert b"".join(block.text for block in blocks) == text[3:]
    row = 1
    for block in blocks:
        assert block.first_row == row
        assert block.text.count(b'"') % 2 == 0
        row += block.text.count(b"\n")
    without = list(read_blocks(path, header=True, block_bytes=block_bytes))
    assert b"".join(block.text for block in without) == text[text.index(b"\n") + 1 :]
    assert without[0].first_row == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (gzip.compress(b"a,b\n1,2\n" * 10_000, mtime=0)[:-20], "cut short"),
        (gzip.compress(b"a,b\n1,2\n" * 10_000, mtime=0)[:-4] + b"abcd", "damaged"),
        (b"PK\x03\x04 and so on", "zip archive"),
        (b"\xff\xfea\x00,\x00", "UTF-16"),
        (b"PAR1 and so on", "Parquet"),
    ],
)
def test_what_is_not_text_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(read_blocks(path, header=False))


def test_a_row_without_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_text, "MAX_ROW_BYTES", 1000)
    path = tmp_path / "file"
    path.write_bytes(b"a,b\n" + b"7" * 5000)
    with pytest.raises(InputError, match="row 2: the row is longer"):
        list(read_blocks(path, header=False, block_bytes=100))


def test_header_is_read_without_byte_order_mark_and_carriage_return(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b'\xef\xbb\xbf"a", b ,"c;d"\r\n1,2,3\r\n')
    assert read_header(path, delimiter=",") == ["a", "b", "c;d"]


@pytest.mark.parametrize(("content", "message"), [(b"a,b\r1,2\r", "carriage return"), (b"a,\xff\n1,2\n", "not UTF-8")])
def test_odd_headers_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_header(path, delimiter=",")


CLEAN = [(1, "1", "3"), (3, "7", "9")]


@pytest.mark.parametrize(
    ("middle", "expected", "reason"),
    [
        (b"4,5,6", [(2, "4", "6")], None),
        (b'"4","5","6"', [(2, "4", "6")], None),
        (b'4,"5,5",6', [(2, "4", "6")], None),
        (b'4,"5""5",6', [(2, "4", "6")], None),
        (b"4,,6", [(2, "4", "6")], None),
        (b"4,5,", [(2, "4", None)], None),
        (b'4,5,""', [(2, "4", None)], None),
        (b"", [], None),
        (b"4,5", [], WRONG_COLUMNS),
        (b"4,5,6,7", [], WRONG_COLUMNS),
        (b"4", [], WRONG_COLUMNS),
        (b'4,"5,6', [], WRONG_COLUMNS),
        (b"4,5,6\x00", [], NOT_UTF8),
        (b"4,5,\xff", [], NOT_UTF8),
        (b"4,\xff,6", [(2, "4", "6")], None),
        (b'4,5 " 5,6', [(2, "4", "6")], None),
        ("4,5,ü".encode(), [(2, "4", "ü")], None),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_one_bad_row_costs_no_other(
    middle: bytes, expected: list[tuple[object, ...]], reason: str | None, end: bytes
) -> None:
    rows, malformed = cells(end.join([b"1,2,3", middle, b"7,8,9", b""]))
    assert rows == sorted(CLEAN + expected)
    assert malformed == ([] if reason is None else [(2, reason)])


def test_quoted_line_breaks_belong_to_their_cell_and_rows_keep_their_line_numbers() -> None:
    rows, malformed = cells(b'1,"x\ny\n",3\n4,5,6\n"7\n7",8,9\n')
    assert rows == [(1, "1", "3"), (4, "4", "6"), (5, "7\n7", "9")]
    assert malformed == []


def test_a_quote_that_never_closes_costs_only_its_row() -> None:
    text = b'1,2,3\n4,5,"6\n' + b'"7","8","9"\n' * 1000
    rows, malformed = cells(text)
    assert len(rows) == 1001
    assert malformed == [(2, WRONG_COLUMNS)]


@pytest.mark.parametrize("beginning", [b"x^", b"\x1f\x8b", b"x\x01", b"(\xb5/\xfd"])
def test_text_is_never_decompressed(beginning: bytes) -> None:
    _, malformed = cells(beginning + b",2,3\n4,5\n")
    assert malformed[-1] == (2, WRONG_COLUMNS)


def test_long_cells_are_read_row_by_row_too() -> None:
    long = b"9" * 500_000
    rows, malformed = cells(b"1,2," + long + b"\n4,5\n")
    assert rows == [(1, "1", long.decode())]
    assert malformed == [(2, WRONG_COLUMNS)]


CELL = st.text(st.sampled_from('ab1 ,;"\nü'), max_size=5)


@given(
    st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=8), st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
)
def test_any_table_that_the_csv_module_writes_is_read_back(table: list[tuple[str, str, str]], quoting: int) -> None:
    written = io.StringIO(newline="")
    csv.writer(written, quoting=quoting, lineterminator="\n").writerows(table)  # type: ignore[arg-type]  # an int enum
    rows, malformed = cells(written.getvalue().encode())
    assert malformed == []
    assert [(a or "", c or "") for _, a, c in rows] == [(a, c) for a, _, c in table]


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_break_the_reader(text: bytes) -> None:
    rows, malformed = cells(text)
    numbers = [row[0] for row in rows] + [row for row, _ in malformed]
    assert len(set(numbers)) == len(numbers) <= text.count(b"\n") + 1


def test_a_packed_file_that_inflates_beyond_reason_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_untrusted, "ALWAYS_ALLOWED_BYTES", 1 << 20)
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * (1 << 20)))
    with pytest.raises(InputError, match=r"bomb\.csv\.gz: holds more than 1 MiB when it is unpacked"):
        list(read_blocks(path, header=True))


def test_a_header_of_very_many_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_bytes(b"," * 20_000 + b"\n")
    with pytest.raises(InputError, match="more than 10,000 columns"):
        read_header(path, delimiter=",")
