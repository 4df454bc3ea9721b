"""Read tables of released reports (from `geoblanket perturb`): checked, and some vehicles at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from geoblanket._arrays import Bools, Ints
from geoblanket._files import sha256_file
from geoblanket._frames import FRAME, AnyFrame, conformed, is_path, to_polars
from geoblanket._tables import reading_parquet, scan_table
from geoblanket._training import ReleasedReports
from geoblanket.errors import InputError, MismatchError
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.release.bulk import RELEASED_CELLS_SCHEMA, RELEASED_SCHEMA

_ROWS_AT_A_TIME: Final = 2_000_000
_US_PER_MS: Final = 1000
_LATEST_MS: Final = 4_102_444_800_000
_AGAIN: Final = "Perturb again"
_SAME_E7: Final = 1.0  # 1e-7 degrees: a centimetre


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
    """For zones: how many earlier places of its walk the mechanism knew, shape (n,)."""
    time_ms: Ints | None
    """For zones: when the report was made, which chose the mechanism, milliseconds since 1970, shape (n,)."""


class ReleasedTable:
    """A table of reports that a bundle's mechanisms made.

    Parameters
    ----------
    released
        A table written by `geoblanket perturb`, or a data frame with its columns.
    bundle
        The bundle that made the reports. A frame does not name it: its locations must be outputs of the bundle.

    Raises
    ------
    InputError
        If it is another kind of table, damaged or empty.
    MismatchError
        If another bundle made it.
    """

    def __init__(self, released: str | Path | AnyFrame, bundle: Bundle) -> None:
        self.path = path = Path(released) if is_path(released) else FRAME
        if is_path(released):
            self.frame = _scanned(path, bundle)
        else:
            self.frame = _from_frame(released, bundle)
        self._interval_ms = bundle.needed_clock().interval_ms
        self._output = bundle.output_kind
        self.cells = bundle.output_kind == "cell"
        with reading_parquet(self.path):
            counts = self.frame.group_by(pl.col("vehicle")).len().collect(engine="streaming").sort("vehicle")
        self._counts = counts
        self.rows = int(counts["len"].sum())
        self.vehicles = counts.height
        if not self.rows:
            raise InputError("has no reports", path=path, hint=_AGAIN)
        if counts["vehicle"].null_count():
            raise InputError("some reports have no vehicle", path=path, hint=_AGAIN)
        self._cost_per_km = bundle.costs.largest_per_km if is_path(released) else None

    @property
    def statement(self) -> ReleasedReports:
        """What a model learned from these reports must state about them.

        Only a file names the bundle that made it. A frame does not, and bundles of another ε have the same cells.
        """
        if self._cost_per_km is None:
            return ReleasedReports()
        most = self._counts["len"].to_numpy().max()
        return ReleasedReports(sha256_file(self.path), self._cost_per_km, int(most))

    def parts(self, *, outputs: int, rows: int = _ROWS_AT_A_TIME) -> Iterator[ReleasedRows]:
        """Yield all reports, the reports of a vehicle together, about `rows` at a time.

        Parameters
        ----------
        outputs
            Outputs are numbered from 0 to below this.

        Raises
        ------
        InputError
            If a report has an impossible output, slot or step.
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


_KINDS: Final = {"place": ("released locations", RELEASED_SCHEMA), "cell": ("released cells", RELEASED_CELLS_SCHEMA)}


def _scanned(path: Path, bundle: Bundle) -> pl.LazyFrame:
    """Open a table that the bundle made."""
    kind, schema = _KINDS[bundle.output_kind]
    frame, about = scan_table(path, kind=kind, schema=schema, needs=["bundle"])
    if about["bundle"] != bundle.sha256:
        raise MismatchError(
            f"{path} was made by another bundle (SHA-256 {about['bundle'][:12]}…) than the one given "
            f"({bundle.sha256[:12]}…). Give the bundle that it was perturbed with."
        )
    return frame


def _from_frame(released: AnyFrame, bundle: Bundle) -> pl.LazyFrame:
    """Return the reports of a data frame, which must be at the places, or the cells, of the bundle."""
    kind, schema = _KINDS[bundle.output_kind]
    with reading_parquet(FRAME, f"cannot be computed as a table of {kind}"):
        rows = conformed(to_polars(released, schema), schema, kind=kind).collect(engine="streaming")
    output = rows[bundle.output_kind].fill_null(-1).to_numpy()
    known = (output >= 0) & (output < bundle.output_count)  # `parts` refuses the others, and names the row
    made_e7 = bundle.outputs_e7(output[known])
    given_e7 = rows.select("lat", "lon").to_numpy()[known] * 1e7
    if not (abs(given_e7 - made_e7) < _SAME_E7).all():
        raise MismatchError(
            "Some reports of the data frame do not lie at places or cells of the bundle. Give the bundle that it was "
            "perturbed with."
        )
    return rows.lazy()
