"""`geoblanket traces`: GPS traces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars
from geoblanket.errors import ParameterError

if TYPE_CHECKING:
    from geoblanket.traces.summary import ImportSummary
    from geoblanket.traces.table import TracesInfo

__all__ = ["app"]

app = typer.Typer(help="GPS traces: import and inspect.", no_args_is_help=True)


@app.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Files to read; text may be gzipped.")],
    *,
    format_: Annotated[
        Literal["porto", "rome", "table"],
        typer.Option(
            "--format",
            help="porto: train.csv of ECML/PKDD 2015. rome: taxi_february.txt of CRAWDAD roma/taxi. "
            "table: any CSV or Parquet file with a header.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The table to write (Parquet).")],
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="ROLE=NAME,...",
            help="For table: names of the columns for the roles vehicle, trip, time, lat and lon, for example "
            "time=t,lat=y,lon=x,vehicle=taxi. By default a column is named like its role; vehicle and trip may be "
            "absent.",
        ),
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(help="Between cells; by default a comma, for rome a semicolon; \\t is a tab.")
    ] = None,
    time_unit: Annotated[
        Literal["s", "ms", "us", "ns"] | None,
        typer.Option(help="Unit of times that are numbers since 1970. By default detected; seconds for porto."),
    ] = None,
    time_zone: Annotated[
        str | None, typer.Option(help="Time zone of times without UTC offset, such as Europe/Lisbon.")
    ] = None,
    max_speed: Annotated[
        float, typer.Option(min=0, help="Drop points that jump away faster than this, m/s (0: keep them).")
    ] = 60.0,
    max_gap: Annotated[
        float, typer.Option(min=0, help="Cut trips at gaps in time longer than this, seconds (0: never).")
    ] = 300.0,
    min_points: Annotated[int, typer.Option(min=1, help="Drop trips with fewer points than this.")] = 2,
    min_duration: Annotated[float, typer.Option(min=0, help="Drop trips shorter than this, seconds.")] = 0.0,
    keep_impossible: Annotated[
        bool, typer.Option("--keep-impossible", help="Keep points with impossible coordinates.")
    ] = False,
    keep_duplicates: Annotated[
        bool, typer.Option("--keep-duplicates", help="Keep points at the time of another of the same vehicle.")
    ] = False,
    keep_missing_data: Annotated[
        bool, typer.Option("--keep-missing-data", help="Keep trips that the source marks as incomplete (porto).")
    ] = False,
    drop_out_of_order: Annotated[
        bool, typer.Option("--drop-out-of-order", help="Drop points that are out of order instead of sorting them.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first row that cannot be read, instead of counting them.")
    ] = False,
    overwrite: options.Overwrite = False,
    json_: JsonOption = False,
) -> None:
    """Import GPS traces of any source into one clean table: vehicle, trip, time (UTC), lat, lon.

    Nothing disappears silently: the summary says how many rows each rule changed, and which came first.
    """
    from geoblanket.traces.cleaning import Cleaning
    from geoblanket.traces.importing import import_traces

    options.check_outputs(out, overwrite=overwrite)
    with progress_bars() as progress:
        summary = import_traces(
            files,
            out,
            format=format_,
            columns=None if columns is None else _read_columns(columns),
            delimiter="\t" if delimiter == "\\t" else delimiter,
            time_unit=time_unit,
            time_zone=time_zone,
            cleaning=Cleaning(
                drop_missing_data=not keep_missing_data,
                drop_impossible=not keep_impossible,
                sort=not drop_out_of_order,
                drop_duplicates=not keep_duplicates,
                max_speed_m_s=max_speed or None,
                max_gap_s=max_gap or None,
                min_points=min_points,
                min_duration_s=min_duration,
            ),
            strict=strict,
            progress=progress,
        )
    if json_:
        print_json(summary.to_json())
    else:
        _print_summary(summary, out)


@app.command()
def info(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A table written by `geoblanket traces import`.")],
    *,
    json_: JsonOption = False,
) -> None:
    """Show what a table of traces holds."""
    from geoblanket.traces.table import describe_traces

    facts = describe_traces(file)
    if json_:
        print_json(facts.to_json())
    else:
        _print_info(facts, file)


def _read_columns(text: str) -> dict[str, str]:
    """Read a mapping such as time=t,lat=y."""
    columns: dict[str, str] = {}
    for part in text.split(","):
        role, equals, name = (piece.strip() for piece in part.partition("="))
        if not equals or role in columns:
            raise ParameterError(
                f"--columns must be ROLE=NAME,ROLE=NAME,... with each role once. Got {text!r} instead."
            )
        columns[role] = name
    return columns


def _print_summary(summary: ImportSummary, out: Path) -> None:
    from geoblanket.traces.summary import CHANGES, DROPS

    print_table(
        f"Traces in {out}",
        [
            ("rows read", f"{summary.rows_read:,}"),
            ("points read", f"{summary.points_read:,}"),
            ("points kept", f"{summary.points:,}"),
            ("trips", f"{summary.trips:,}"),
            ("vehicles", f"{summary.vehicles:,}"),
        ],
    )
    several = len(summary.files) > 1
    rows = []
    for rule, meaning in (DROPS | CHANGES).items():
        if rule in summary.rules:
            count = summary.rules[rule]
            where = ", ".join(f"{path.name}:{row}" if several else str(row) for path, row in summary.first_rows(rule))
            more = ", …" if count.rows > len(count.first) else ""
            verb = "dropped" if rule in DROPS else "changed"
            rows.append((f"{verb}: {meaning}", f"{count.rows:,}", f"{count.points:,}", where + more))
    rows.extend((f"  malformed: {reason}", f"{count:,}", "", "") for reason, count in summary.malformed.most_common())
    if rows:
        print_table("What the cleaning rules changed", rows, header=("rule", "rows", "points", "first rows"))


def _print_info(facts: TracesInfo, file: Path) -> None:
    def spread(values: tuple[float, ...] | None, unit: str = "") -> str:
        return "–" if values is None else " · ".join(f"{value:,.1f}" for value in values) + unit

    print_table(
        f"Traces in {file}",
        [
            ("vehicles", f"{facts.vehicles:,}"),
            ("trips", f"{facts.trips:,}"),
            ("points", f"{facts.points:,}"),
            ("from (UTC)", f"{facts.first:%Y-%m-%d %H:%M:%S}"),
            ("to (UTC)", f"{facts.last:%Y-%m-%d %H:%M:%S}"),
            ("latitude", f"{facts.south:.1f}° to {facts.north:.1f}°"),
            ("longitude", f"{facts.west:.1f}° to {facts.east:.1f}°"),
            ("median step", "–" if facts.median_step_s is None else f"{facts.median_step_s:.1f} s"),
            ("steps that stand still", "–" if facts.still_share is None else f"{facts.still_share:.1%}"),
            ("points per trip (5 · 50 · 95 %)", spread(facts.trip_points)),
            ("duration of a trip (5 · 50 · 95 %)", spread(facts.trip_duration_s, " s")),
            ("speed (5 · 50 · 95 %)", spread(facts.speed_m_s, " m/s")),
        ],
    )
