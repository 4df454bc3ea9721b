"""`geoblanket city`: a synthetic city."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["city"]


class _Size(StrEnum):
    small = "small"
    medium = "medium"
    large = "large"


def city(
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write; made if it does not exist.")],
    size: Annotated[_Size, typer.Option(help="About 500, 5,000 or 45,000 nodes.")] = _Size.small,
    trips: Annotated[int, typer.Option(min=1, help="Taxi trips to make.")] = 3000,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another city.")] = 0,
    formats: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Formats of the traces, out of porto, rome, table and parquet. By default all, for large only porto.",
        ),
    ] = None,
    truth_points: Annotated[
        bool | None,
        typer.Option(
            "--truth-points/--no-truth-points",
            help="Write the true edge of every point of the Porto file. By default yes, for large no.",
        ),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the city and some walks (PNG, SVG or PDF).")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Make a synthetic city: roads, traces, and the truth about them.

    The same size, number of trips and seed always give the same files. The taxis' next node depends on the last one,
    two or three nodes, by district and speed: `orders.csv` says how many, so that methods that find it out can be
    tested.
    """
    from geoblanket._picture import check_picture, save_figure
    from geoblanket.city.folder import FORMATS, check_formats, write_city
    from geoblanket.city.model import make_city

    if picture is not None:
        check_picture(picture)
    large = size is _Size.large
    chosen = (
        (["porto"] if large else list(FORMATS)) if formats is None else [name.strip() for name in formats.split(",")]
    )
    check_formats(chosen)
    with progress_bars() as progress:
        made = make_city(size.value, seed=seed, progress=progress)
        facts = write_city(
            made,
            out,
            trips=trips,
            seed=seed,
            formats=chosen,
            true_edges=not large if truth_points is None else truth_points,
            progress=progress,
        )
        if picture is not None:
            from geoblanket.city.picture import draw_city

            save_figure(draw_city(made, trips=trips, seed=seed), picture)
            say(f"wrote {picture}")
    if json_:
        print_json(facts)
    else:
        _print_facts(facts, out)


def _print_facts(facts: Mapping[str, Any], out: Path) -> None:
    print_table(
        f"A synthetic city in {out}",
        [
            ("size, seed", f"{facts['size']}, {facts['seed']}"),
            ("nodes", f"{facts['nodes']:,}"),
            ("edges", f"{facts['edges']:,}"),
            ("length of the edges", f"{facts['length_km']:,.0f} km"),
            ("taxis", f"{facts['vehicles']:,}"),
            ("trips", f"{facts['trips']:,}"),
            ("steps of 30 s", f"{facts['steps']:,}"),
        ],
    )
    rows = []
    for name, count in facts["points"].items():
        faults = ", ".join(f"{number:,} {fault.replace('_', ' ')}" for fault, number in facts["faults"][name].items())
        rows.append((name, f"{count:,}", faults))
    print_table("Traces", rows, header=("format", "points", "faults put in"))
    from geoblanket.city.truth import orders_frame

    rows = [
        (
            f"{row['district']}, {row['band']}",
            f"{row['speed_above_m_s']:.1f} to {row['speed_to_m_s']:.1f} m/s",
            f"{row['order']}",
        )
        for row in orders_frame().iter_rows(named=True)
    ]
    print_table("Markov order, the truth", rows, header=("district, band", "speed", "order"))
