"""Builds of whole cities: loss, proven gap, what context gains on walks held out, time, memory and size.

Run `python -m benchmarks.build`: a synthetic city. `python -m benchmarks.build --full` adds Porto (the whole
municipality) and the centre of Rome, from the files in ../shared/data, with places 250 m apart and a step every 30 s;
it takes a quarter of an hour or more. `--folder FOLDER` keeps what is made there, and goes on with what an interrupted
run finished.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks._measure import show
from geoblanket._unfinished import unfinished_path
from geoblanket.build.building import build_bundle
from geoblanket.build.config import BuildConfig
from geoblanket.build.record import BuildRecord, read_record, record_path
from geoblanket.lab.city.folder import write_city
from geoblanket.lab.city.model import make_city
from geoblanket.mechanism.bundle.storage import load_bundle
from geoblanket.mobility.matching import match_traces
from geoblanket.roads.importer import import_roads
from geoblanket.roads.simplification import in_largest_part
from geoblanket.traces.importing import Reading, import_traces

DATA = Path(__file__).parents[2] / "shared" / "data"
SPACING_M = 250.0
ROME_CENTRE = (41.880, 41.920, 12.450, 12.520)
"""South, north, west and east, degrees: within the Aurelian walls, about."""
CONFIG = BuildConfig(epsilon=2.0, eta_km=5.0, history_weights=(1.0, 0.5, 0.25), order=2, compare=True)


def prepare_city(folder: Path) -> None:
    """Write roads and traces of a synthetic city."""
    write_city(make_city("small"), folder / "city", trips=3000, formats=["porto"])
    graph, _ = import_roads([folder / "city" / "roads.osm.pbf"])
    graph.save(folder / "roads")
    import_traces([folder / "city" / "porto.csv"], folder / "traces.parquet", format="porto")


def prepare_porto(folder: Path) -> None:
    """Write roads and traces of Porto."""
    graph, _ = import_roads([DATA / "porto" / "nodes.csv", DATA / "porto" / "edges.csv"])
    graph.save(folder / "roads")
    import_traces([DATA / "porto" / "train_sample.csv.gz"], folder / "traces.parquet", format="porto")


def prepare_rome(folder: Path) -> None:
    """Write roads of the centre of Rome, and traces of the whole city: matching leaves out what is elsewhere."""
    graph, _ = import_roads([DATA / "rome" / "nodes.csv", DATA / "rome" / "edges.csv.gz"])
    south, north, west, east = ROME_CENTRE
    inside = (graph.lat >= south) & (graph.lat <= north) & (graph.lon >= west) & (graph.lon <= east)
    centre = graph.keep_nodes(inside)
    centre.keep_nodes(np.asarray(in_largest_part(centre))).save(folder / "roads")
    columns = {name: name for name in ("trip", "time", "lat", "lon")} | {"vehicle": "trip"}
    import_traces([DATA / "rome" / "trips_sample.csv.gz"], folder / "traces.parquet", reading=Reading(columns=columns))


def prepare_san_francisco(folder: Path) -> None:
    """Write roads and traces of San Francisco's cabs."""
    source = DATA / "sanfrancisco"
    import_roads([source / "nodes.csv", source / "edges.csv.gz"])[0].save(folder / "roads")
    import_traces([source / "cabspotting_421_taxis.tar.xz"], folder / "traces.parquet", format="cabspotting")


CITIES: dict[str, Callable[[Path], None]] = {"synthetic": prepare_city, "Porto": prepare_porto, "Rome": prepare_rome}


def build(name: str, folder: Path) -> BuildRecord:
    """Build a city, or read what was built there before."""
    folder.mkdir(parents=True, exist_ok=True)
    bundle, walks = folder / "city.bundle", folder / "walks.parquet"
    if record_path(bundle).exists():
        return read_record(record_path(bundle))
    if not walks.exists():
        CITIES[name](folder)
        match_traces(folder / "traces.parquet", folder / "roads", walks, spacing_m=SPACING_M)
    record = build_bundle(folder / "roads", walks, bundle, config=CONFIG, resume=unfinished_path(bundle).exists())
    load_bundle(bundle)
    return record


def row(name: str, record: BuildRecord) -> tuple[str, ...]:
    """Return the figures of a build."""
    totals = record.totals
    held_out, plain = totals.held_out, totals.context_free_held_out
    gain = (totals.held_out_gain or 0.0, totals.held_out_gain_low or 0.0, totals.held_out_gain_high or 0.0)
    return (
        name,
        f"{record.places:,}",
        f"{totals.mechanisms:,}",
        f"{totals.rows:,}",
        f"{totals.largest_gap:.2%}",
        f"{totals.loss:.3f}",
        f"{totals.gain or 0.0:.1%}",
        "–" if held_out is None else f"{held_out.loss:.3f}",
        "–" if plain is None else f"{plain.loss:.3f}",
        "{:.1%} ({:.1%} to {:.1%})".format(*gain),
        f"{record.seconds / 60:.1f} min",
        f"{max(zone.peak_memory_mb for zone in record.zones):,.0f} MB",
        f"{record.bundle_bytes / 1e6:.1f} MB",
    )


def main() -> None:
    """Build the cities that are asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    real = ["Porto", "Rome"] if options.full and DATA.is_dir() else []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        rows = [row(name, build(name, folder / name)) for name in ["synthetic", *real]]
    show(
        f"Builds: ε = {CONFIG.epsilon:g}/km, w = {CONFIG.history_weights[:2]}, losses in km of travel",
        (
            "city", "places", "mechanisms", "rows", "worst gap", "loss", "context gains", "held out", "no context",
            "context gains there", "time", "a process", "bundle",
        ),
        rows,
    )  # fmt: skip


if __name__ == "__main__":
    main()
