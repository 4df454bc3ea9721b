"""Whether discovered blankets are the true ones: on a synthetic city, where the order of every step is known.

Run `python -m benchmarks.blanket_truth`. A medium city, true walks and walks matched from its GPS points; groups by
speed and zone (zones are cut at the borders of districts), and by hour, speed and district. It prints in what share of
the groups the discovered order is the true one: of those with at least 1,000 samples at order 1; of those that have as
many at every order up to the true one ("deep"); and of those that hardly mix orders ("clear"). Each deep group in which
it is not is listed with a reason.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks._measure import show
from benchmarks.true_blankets import compare_blankets, district_regions, write_true_walks
from geoblanket._arrays import Indices
from geoblanket.blanket.discovery import DiscoveryOptions, discover
from geoblanket.lab.city.folder import write_city
from geoblanket.lab.city.model import make_city
from geoblanket.lab.city.plan import DISTRICTS

TRIPS = 150_000
SAMPLES = 1000
CLEAR = (0.02, 0.2)
"""A hypothesis is clear if the share of samples that contradict it is not between these."""
ZONE_PLACES = 200
HEADER = ("groups", "number", "agree", "deep", "agree", "clear", "agree", "too large", "too small", "seconds")


def prepare(folder: Path, *, trips: int, size: str, matched: bool, seed: int = 0) -> dict[str, Path]:
    """Make the city in a folder, unless it is there; return the walks by name."""
    from geoblanket.mobility.matching import match_traces
    from geoblanket.roads.importer import import_roads
    from geoblanket.traces.importing import import_traces

    walks = {"true walks": folder / "true.parquet"}
    if not walks["true walks"].exists():
        write_city(make_city(size, seed=seed), folder, trips=trips, formats=["porto"] if matched else [])
        import_roads([folder / "roads.osm.pbf"])[0].save(folder / "city.roads")
        write_true_walks(folder, folder / "city.roads", walks["true walks"])
    if matched:
        walks["matched walks"] = folder / "matched.parquet"
        if not walks["matched walks"].exists():
            import_traces([folder / "porto.csv"], folder / "traces.parquet", format="porto")
            match_traces(folder / "traces.parquet", folder / "city.roads", walks["matched walks"])
    return walks


def compare(folder: Path, walks: Path, by: tuple[str, ...], regions: Indices) -> tuple[pl.DataFrame, float]:
    """Discover blankets; return the groups with enough samples beside the truth, and the seconds it took."""
    start = time.perf_counter()
    found = discover(walks, folder / "city.roads", DiscoveryOptions(by=by, regions=regions))
    seconds = time.perf_counter() - start
    compared = compare_blankets(
        found.findings, walks=walks, roads=folder / "city.roads", city=folder, by=by, regions=regions
    )
    return compared.filter(pl.col("available").list.first() >= SAMPLES), seconds


def line(name: str, groups: pl.DataFrame, seconds: float) -> tuple[str, ...]:
    """Return one line of the table."""
    deep = groups.filter(is_deep())
    clear = deep.filter(is_clear())
    return (
        name,
        *(text for some in (groups, deep, clear) for text in (f"{some.height}", agreement(some))),
        f"{clear.filter(pl.col('order') > pl.col('true_order')).height}",
        f"{clear.filter(pl.col('order') < pl.col('true_order')).height}",
        f"{seconds:.0f}",
    )


def agreement(groups: pl.DataFrame) -> str:
    """Return the share of groups in which the discovered order is the true one."""
    return f"{groups.filter(pl.col('order') == pl.col('true_order')).height / max(groups.height, 1):.1%}"


def is_deep() -> pl.Expr:
    """Whether there are enough samples at every order up to the true one."""
    return pl.col("available").list.head(pl.col("true_order")).list.min() >= SAMPLES


def is_clear() -> pl.Expr:
    """Whether no hypothesis up to the true order is true of some samples and false of others."""
    share = pl.element()
    mixed = ((share > CLEAR[0]) & (share < CLEAR[1])).any()
    return ~pl.col("share_above").list.head(pl.col("true_order")).list.eval(mixed).list.first()


def reason(row: dict[str, object]) -> str:
    """Say why a group may disagree."""
    order, true_order = row["order"], row["true_order"]
    shares, p_values = row["share_above"], row["p_values"]
    assert isinstance(order, int)
    assert isinstance(true_order, int)
    assert isinstance(shares, list)
    assert isinstance(p_values, list)
    share = shares[min(order, true_order) - 1]
    if row["capped"] and order < true_order:
        return "too few samples of the next order"
    if CLEAR[0] < share < CLEAR[1]:
        return f"mixed: {share:.0%} of the samples have a higher order"
    if order > true_order:
        return f"rejected though true, p = {p_values[true_order - 1]:.3f}"
    return f"not rejected though {share:.0%} have a higher order, p = {p_values[order - 1]:.3f}"


def disagreements(title: str, groups: pl.DataFrame, district: list[str]) -> list[tuple[str, ...]]:
    """Return a line for each group whose order is not the true one."""
    lines: list[tuple[str, ...]] = []
    for row in groups.filter(pl.col("order") != pl.col("true_order")).iter_rows(named=True):
        hour = "" if row["hour"] is None else f", {row['hour']} h"
        name = f"region {row['region']} ({district[row['region']]}), {row['speed_mph']} mph{hour}"
        samples = f"{row['available'][min(row['order'], row['true_order']) - 1]:,}"
        lines.append((title, name, samples, f"{row['true_order']}", f"{row['order']}", reason(row)))
    return lines


def main() -> None:
    """Make the city, discover, compare, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trips", type=int, default=TRIPS)
    parser.add_argument("--size", default="medium")
    parser.add_argument("--seed", type=int, default=0, help="of the city")
    parser.add_argument("--matched", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--folder", type=Path, help="keep the city here")
    options, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        walks = prepare(folder, trips=options.trips, size=options.size, matched=options.matched, seed=options.seed)
        districts = district_regions(folder, folder / "city.roads")
        zones = district_regions(folder, folder / "city.roads", max_places=ZONE_PLACES)
        lines, wrong = [], []
        for name, path in walks.items():
            for groups_by, by, regions in (
                ("speed × zone", ("speed", "region"), zones),
                ("hour × speed × district", ("hour", "speed", "region"), districts),
            ):
                title = f"{name}, {groups_by}"
                groups, seconds = compare(folder, path, by, regions)
                lines.append(line(title, groups, seconds))
                number, first = np.unique(regions, return_index=True)
                wrong += disagreements(
                    title, groups.filter(is_deep()), [DISTRICTS[district] for district in districts[first[number]]]
                )
    show(f"Discovered orders against the truth: groups with {SAMPLES:,} samples or more", HEADER, lines)
    show("Where they disagree", ("groups", "group", "samples", "true", "found", "why"), wrong)


if __name__ == "__main__":
    main()
