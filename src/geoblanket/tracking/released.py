"""Tables of released reports, from `geoblanket perturb`, as a recipient reads them: checked, and in parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from geoblanket._arrays import Bools, Ints
from geoblanket._tables import is_text, reading_parquet, scan_table
from geoblanket.errors import InputError, MismatchError
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.release.bulk import RELEASED_SCHEMA
from geoblanket.release.lattice_bulk import RELEASED_CELLS_SCHEMA

__all__ = ["ReleasedRows", "ReleasedTable"]

_ROWS_AT_A_TIME: Final = 2_000_000
_US_PER_MS: Final = 1000
_LATEST_MS: Final = 4_102_444_800_000
_AGAIN: Final = "Perturb again"


@dataclass(frozen=True, eq=False)
class ReleasedRows:
    """All reports of some vehicles, in the order of the table."""

    row: Ints
    """Position in the table, from 0, shape (n,)."""
    vehicle: Ints
    """A number for each vehicle, shape (n,)."""
    slot: Ints
    """Intervals of the bundle since 1970, shape (n,)."""
    output: Ints
    """The cell or the place that was reported, shape (n,)."""
    follows: Ints | None
    """Of places: how many earlier places of its walk the mechanism knew, shape (n,)."""
    time_ms: Ints | None
    """Of places: when the report was made, which chose the mechanism, shape (n,)."""


class ReleasedTable:
    """A table of reports that a bundle's mechanisms made.

    Parameters
    ----------
    path
        Written by `geoblanket perturb`.
    bundle
        What it was made by.

    Raises
    ------
    InputError
        If it is no such table, damaged or empty.
    MismatchError
        If another bundle made it.
    """

    def __init__(self, path: str | Path, bundle: Bundle) -> None:
        self.path = Path(path)
        self.cells = bundle.lattice is not None
        self.frame, self.about = _scanned(self.path, cells=self.cells)
        if self.about["bundle"] != bundle.sha256:
            raise MismatchError(
                f"{path} was made by another bundle (SHA-256 {self.about['bundle'][:12]}…) than the one given "
                f"({bundle.sha256[:12]}…). Give the bundle that it was perturbed with."
            )
        self._interval_ms = bundle.needed_clock().interval_ms
        self._output = "cell" if self.cells else "place"
        with reading_parquet(self.path):
            counts = self.frame.group_by(pl.col("vehicle")).len().collect(engine="streaming").sort("vehicle")
        self._counts = counts
        self.rows = int(counts["len"].sum())
        self.vehicles = counts.height
        if not self.rows:
            raise InputError("has no reports", path=path, hint=_AGAIN)
        if counts["vehicle"].null_count():
            raise InputError("some reports have no vehicle", path=path, hint=_AGAIN)

    def parts(self, *, outputs: int, rows: int = _ROWS_AT_A_TIME) -> Iterator[ReleasedRows]:
        """Yield all reports, those of a vehicle together; about so many rows at a time, or those of one vehicle.

        Parameters
        ----------
        outputs
            Outputs are numbered from 0 to below this.

        Raises
        ------
        InputError
            If a report has an output, a slot or a step that cannot be.
        """
        names, start, held = self._counts["vehicle"], 0, 0
        for position, count in enumerate(self._counts["len"].to_list()):
            if held and held + count > rows:
                yield self._read(names[start:position], outputs)
                start, held = position, 0
            held += count
        yield self._read(names[start:], outputs)

    def _read(self, names: pl.Series, outputs: int) -> ReleasedRows:
        columns = ("vehicle", "slot", self._output) if self.cells else ("vehicle", "time", "step", self._output)
        rows = self.frame.select(columns).with_row_index("row")
        if len(names) < self.vehicles:
            rows = rows.filter(pl.col("vehicle").is_in(names.implode()))
        with reading_parquet(self.path):
            read = rows.collect(engine="streaming")
        row = read["row"].to_numpy().astype(np.int64)
        for name in columns:
            self._check(read[name].is_not_null().to_numpy(), row, f"no {name}")
        output = read[self._output].to_numpy().astype(np.int64)
        self._check((output >= 0) & (output < outputs), row, f"a {self._output} that the bundle does not have")
        follows = time_ms = None
        if self.cells:
            slot = read["slot"].to_numpy().astype(np.int64)
        else:
            time_ms = read["time"].to_physical().to_numpy() // _US_PER_MS
            slot = time_ms // self._interval_ms
            follows = read["step"].to_numpy().astype(np.int64)
            self._check(follows >= 0, row, "a step below 0")
        in_time = (slot >= 0) & (slot < _LATEST_MS // self._interval_ms)
        self._check(in_time, row, "a time before 1970 or after 2099")
        vehicle = read["vehicle"].rank("dense").to_numpy().astype(np.int64)
        return ReleasedRows(row, vehicle, slot, output, follows, time_ms)

    def _check(self, good: Bools, row: Ints, problem: str) -> None:
        if not good.all():
            raise InputError(
                f"report {int(row[np.argmin(good)]) + 1} of the table has {problem}", path=self.path, hint=_AGAIN
            )


_KINDS: Final = (("released locations", RELEASED_SCHEMA), ("released cells", RELEASED_CELLS_SCHEMA))


def _scanned(path: Path, *, cells: bool) -> tuple[pl.LazyFrame, dict[str, Any]]:
    """Open a table of the kind that the bundle makes; say so if it is of the other one."""
    kind, schema = _KINDS[cells]
    try:
        return scan_table(path, kind=kind, schema=schema, checks={"bundle": is_text})
    except InputError as error:
        other, other_schema = _KINDS[not cells]
        try:
            scan_table(path, kind=other, schema=other_schema)
        except InputError:
            raise error from None
    has = "a lattice" if cells else "zones"
    raise MismatchError(
        f"{path} is a table of {other}, and the bundle has {has}: they do not belong together. "
        "Give the bundle that the table was perturbed with."
    )
