"""`geoblanket city`: a synthetic city."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import JsonOption, print_json, print_table, progress_bars, say

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["city"]


def city(
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write; created if it does not exist.")],
    size: Annotated[
        Literal["small", "medium", "large"], typer.Option(help="About 500, 5,000 or 45,000 nodes.")
    ] = "small",
    trips: Annotated[int, typer.Option(min=1, help="Number of taxi trips.")] = 3000,
    seed: options.Seed = 0,
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
    picture: options.Picture = None,
    overwrite: options.Overwrite = False,
    json_: JsonOption = False,
) -> None:
    """Make a synthetic city: roads, traces, and the truth about them.

    The same size, number of trips and seed always give the same files. A taxi's next node depends on its last one, two
    or three nodes, by district and speed: `orders.csv` says how many, as ground truth for methods that estimate it.
    """
    from geoblanket._picture import save_figure
    from geoblanket.city.folder import CITY_FILES, FORMATS, check_formats, write_city
    from geoblanket.city.model import make_city

    options.check_outputs(picture=picture, overwrite=overwrite)
    options.check_folder(out, *CITY_FILES, overwrite=overwrite)
    large = size == "large"
    chosen = (
        (["porto"] if large else list(FORMATS)) if formats is None else [name.strip() for name in formats.split(",")]
    )
    check_formats(chosen)
    with progress_bars() as progress:
        made = make_city(size, seed=seed, progress=progress)
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
    print_table("Traces", rows, header=("format", "points", "injected faults"))
    from geoblanket.city.folder import orders_frame

    rows = [
        (
            f"{row['district']}, {row['band']}",
            f"{row['speed_above_m_s']:.1f} to {row['speed_to_m_s']:.1f} m/s",
            f"{row['order']}",
        )
        for row in orders_frame().iter_rows(named=True)
    ]
    print_table("True Markov order", rows, header=("district, band", "speed", "order"))
