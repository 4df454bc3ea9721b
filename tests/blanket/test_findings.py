from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from geoblanket.blanket.findings import FINDINGS_SCHEMA, blanket_sizes, scan_findings, write_findings
from geoblanket.errors import InputError
from geoblanket.mobility.walks import scan_walks


def findings(*groups: str) -> pl.DataFrame:
    """Make findings, a letter an order of a group: R(ejected), K(ept), I(mputed), F(ew), C(onstant), U(nresolved)."""
    status = {"R": "tested", "K": "tested", "I": "imputed", "F": "too_few", "C": "constant", "U": "unresolved"}
    rows = [
        {
            "group": group,
            "by": "speed",
            "speed_mph": 5 * group,
            "lat": 41.0,
            "lon": -8.0,
            "m": m,
            "available": 1000,
            "n": 100 * m if letter in "RK" else 0,
            "rejected": {"R": True, "K": False, "I": False}.get(letter),
            "status": status[letter],
        }
        for group, letters in enumerate(groups)
        for m, letter in enumerate(letters, 1)
    ]
    return pl.DataFrame(rows, schema=FINDINGS_SCHEMA)


@pytest.mark.parametrize(
    ("letters", "order", "capped", "n"),
    [
        ("KII", 1, False, 100),
        ("RKI", 2, False, 200),
        ("RRK", 3, False, 300),
        ("RRR", 3, True, 300),
        ("RFF", 2, True, 0),
        ("RCC", 2, True, 0),
        ("RUU", 2, True, 0),
        ("UUU", None, False, 0),
        ("RUK", 2, True, 0),  # all orders tested: what comes after an order that is not resolved does not count
        ("FFF", None, False, 0),
        ("CFF", None, False, 0),
        ("FRK", None, False, 0),  # the first hypothesis decides nothing, so the others do not either
        ("RKR", 2, False, 200),  # all orders tested: the first that is kept counts
    ],
)
def test_a_blanket_ends_at_the_first_order_that_is_kept(letters: str, order: int | None, capped: bool, n: int) -> None:
    row = blanket_sizes(findings("KII", letters)).row(1, named=True)
    assert (row["group"], row["speed_mph"], row["order"], row["capped"], row["n"]) == (1, 5, order, capped, n)


def test_findings_are_written_and_read(tmp_path: Path) -> None:
    table = findings("KII", "RKI")
    write_findings(table, tmp_path / "findings.parquet", about={"seed": 3, "time_zone": "UTC"})
    rows, about = scan_findings(tmp_path / "findings.parquet")
    assert rows.collect().equals(table)
    assert about["seed"] == 3
    with pytest.raises(InputError, match="not a table of walks"):
        scan_walks(tmp_path / "findings.parquet")
