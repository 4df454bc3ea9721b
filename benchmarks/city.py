"""Making a synthetic city and its trips; run `python -m benchmarks.city [--full]`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks._measure import measure, show


def build(size: str) -> int:
    """Make a city; return its number of nodes."""
    from geoblanket.lab.city.model import make_city

    return make_city(size).graph.node_count


def build_and_write(size: str, trips: int, folder: Path) -> int:
    """Make a city, and write its map, the Porto file and the true walks; return the number of points."""
    from geoblanket.lab.city.folder import write_city
    from geoblanket.lab.city.model import make_city

    facts = write_city(make_city(size), folder, trips=trips, formats=["porto"])
    points: int = facts["points"]["porto"]
    return points


def main() -> None:
    """Print seconds, points a second and peak memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the large city with 1.7 million trips, about 80 M points")
    size, trips = ("large", 1_700_000) if parser.parse_args().full else ("medium", 50_000)
    with tempfile.TemporaryDirectory() as folder:
        made = measure(build, size)
        written = measure(build_and_write, size, trips, Path(folder))
    show(
        "A synthetic city",
        ("work", "seconds", "per second", "peak memory"),
        [
            (f"make the {size} city: {made.result:,} nodes", f"{made.seconds:.1f}", "", f"{made.peak_mb:,.0f} MB"),
            (
                f"make it and write {trips:,} trips: {written.result:,} points",
                f"{written.seconds:.1f}",
                f"{trips / written.seconds:,.0f} trips, {written.result / written.seconds:,.0f} points",
                f"{written.peak_mb:,.0f} MB",
            ),
        ],
    )


if __name__ == "__main__":
    main()
