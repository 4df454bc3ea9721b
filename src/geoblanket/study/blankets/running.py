"""The study from walks to tables: discovery in every grouping, then the statistics of what it found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from geoblanket import __version__
from geoblanket._display import Progress, silent
from geoblanket._files import sha256_file
from geoblanket._tables import reading_parquet
from geoblanket._unfinished import unfinished_path
from geoblanket.blanket.discovery import Discovery, DiscoveryOptions, discover
from geoblanket.blanket.findings import read_findings
from geoblanket.blanket.groups import find_regions
from geoblanket.errors import InputError, OutputError, ParameterError
from geoblanket.mobility.walks import scan_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import Places, choose_places
from geoblanket.study.blankets.correlations import FEATURES, correlation_table
from geoblanket.study.blankets.density import Density, neighbourhood_density
from geoblanket.study.blankets.dependence import dependence_table
from geoblanket.study.blankets.differences import (
    difference_table,
    grouping_for,
    main_grouping,
    rejection_table,
    size_table,
)
from geoblanket.traces.table import scan_traces

__all__ = ["COMBINED", "GROUPINGS", "Study", "run_study"]

COMBINED = "hour+speed+region"

GROUPINGS: tuple[tuple[str, ...], ...] = (
    (),
    ("hour",),
    ("speed",),
    ("region",),
    ("hour", "speed"),
    ("hour", "region"),
    ("speed", "region"),
    ("hour", "speed", "region"),
)
"""Every grouping that the study tests: by nothing, by one feature, by two, and by all three as the paper does."""


@dataclass(frozen=True, eq=False)
class Study:
    """What the study found."""

    found: Discovery
    """Groups of all their samples, up to the largest number used."""
    equal: Discovery
    """The same with the same number of samples in every group, so that size explains nothing."""
    rejections: pl.DataFrame
    sizes: pl.DataFrame
    correlations: pl.DataFrame
    equal_rejections: pl.DataFrame
    equal_correlations: pl.DataFrame
    dependence: pl.DataFrame
    differences: pl.DataFrame
    densities: Mapping[str, Density]
    """By name: of the recorded points and of the places."""

    @property
    def about(self) -> dict[str, Any]:
        """How the findings were made."""
        return self.found.about

    @cached_property
    def main(self) -> str:
        """The grouping for questions about all features; see `main_grouping`."""
        return main_grouping(self.found.findings)

    @cached_property
    def grouping(self) -> dict[str, str | None]:
        """By feature, the grouping for questions about it; see `grouping_for`."""
        return {feature: grouping_for(self.found.findings, feature) for feature in FEATURES}

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return every table by name, as written to the folder."""
        return {
            "rejections": self.rejections,
            "rejections-equal": self.equal_rejections,
            "blanket-sizes": self.sizes,
            "correlations": self.correlations,
            "correlations-equal": self.equal_correlations,
            "classifier-tests": self.dependence,
            "differences": self.differences,
            "density-counts": _counts(self.densities),
            "density-distances": _distances(self.densities),
        }


def run_study(
    walks: str | Path,
    roads: str | Path,
    out: str | Path,
    options: DiscoveryOptions | None = None,
    *,
    traces: str | Path | None = None,
    permutations: int = 199,
    workers: int | None = None,
    cluster: str | None = None,
    overwrite: bool = True,
    progress: Progress = silent,
) -> Study:
    """Test every order in every grouping and study how the p-values go with speed, place and hour.

    Parameters
    ----------
    walks, roads
        Walks, and the roads they were matched to.
    out
        A folder, made if need be. The findings are written to it (`findings.parquet`, `findings-equal.parquet`), and
        so is every finished test: an interrupted study goes on where it was, and a finished one is not tested again.
    options
        Of discovery; `by` and `stop_early` are the study's own.
    traces
        Traces whose points' density is measured; by default that of the walks' steps.
    permutations
        Of each classifier test.
    overwrite
        Whether findings of other inputs or options, which the folder may hold, are replaced.
    workers, cluster, progress
        As in `discover`.

    Raises
    ------
    OutputError
        If the folder has findings that may not be replaced, or cannot be used.
    """
    options = replace(options or DiscoveryOptions(), by=GROUPINGS, stop_early=False)
    folder = Path(out)
    if permutations < 19:
        raise ParameterError(
            f"There must be 19 permutations or more, or nothing can be seen at 5 %. Got {permutations}."
        )
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder}: is a file. Give the name of a folder.")
    frame, walks_about = scan_walks(walks)
    places = choose_places(RoadGraph.load(roads), spacing_m=walks_about["spacing_m"])
    inputs = {
        "regions": find_regions(options.regions, places).about,
        "walks": sha256_file(walks),
        "geoblanket": __version__,
    }
    plans = {
        "findings.parquet": options,
        "findings-equal.parquet": replace(options, largest_sample=options.smallest_group),
    }
    finished = {
        name: _finished(folder / name, {**plan.as_dict(), **inputs}, overwrite=overwrite)
        for name, plan in plans.items()
    }
    with reading_parquet(walks if traces is None else traces):
        densities = _densities(frame, places, traces, seed=options.seed, progress=progress)
    folder.mkdir(parents=True, exist_ok=True)

    def discovery(name: str) -> Discovery:
        path = folder / name
        return finished[name] or discover(
            walks,
            roads,
            plans[name],
            workers=workers,
            cluster=cluster,
            out=path,
            resume=unfinished_path(path).exists(),
            progress=progress,
        )

    found, equal = map(discovery, plans)
    if found.findings.filter(pl.col("status") == "tested").is_empty():
        raise InputError(
            f"no group has {options.smallest_group} samples that can be tested",
            path=walks,
            hint="Bring more walks, or ask for a smaller group",
        )
    return Study(
        found=found,
        equal=equal,
        rejections=rejection_table(found.findings),
        sizes=size_table(found.blankets),
        correlations=correlation_table(found.findings),
        equal_rejections=rejection_table(equal.findings),
        equal_correlations=correlation_table(equal.findings),
        dependence=dependence_table(found.findings, permutations=permutations, seed=options.seed, progress=progress),
        differences=difference_table(found.findings),
        densities=densities,
    )


def _finished(path: Path, made: Mapping[str, Any], *, overwrite: bool) -> Discovery | None:
    """Return the findings of an earlier study with the same inputs and options, if the file holds them."""
    if not path.exists():
        return None
    findings, about = read_findings(path)
    if all(about.get(key) == made[key] for key in made):
        return Discovery(findings, about)
    if not overwrite:
        raise OutputError(
            f"{path.parent}: has findings of another study ({path.name}). Give another folder, or add --overwrite to "
            "replace it."
        )
    return None


def _densities(
    frame: pl.LazyFrame, places: Places, traces: str | Path | None, *, seed: int, progress: Progress
) -> dict[str, Density]:
    if traces is None:
        name = "steps of walks"
        visited = frame.select("place").collect(engine="streaming")["place"]
        if not visited.is_between(0, len(places) - 1).fill_null(value=False).all():
            raise InputError("some walks have places that the roads do not have", hint="Match the traces again")
        place = visited.to_numpy()
        lat, lon = places.lat[place], places.lon[place]
    else:
        name = "recorded points"
        points = scan_traces(traces).select("lat", "lon").collect(engine="streaming")
        lat, lon = points["lat"].to_numpy(), points["lon"].to_numpy()
    return {
        name: neighbourhood_density(lat, lon, seed=seed, progress=progress),
        "places on the roads": neighbourhood_density(places.lat, places.lon, seed=seed, progress=progress),
    }


def _counts(densities: Mapping[str, Density]) -> pl.DataFrame:
    """Return the share of locations with at least k neighbours."""
    thresholds = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
    return pl.DataFrame(
        [
            (name, density.locations, density.radius_m, k, density.share_with(k))
            for name, density in densities.items()
            for k in thresholds
        ],
        schema=["of", "locations", "radius_m", "at_least", "share"],
        orient="row",
    )


def _distances(densities: Mapping[str, Density]) -> pl.DataFrame:
    """Return the density of neighbours' distances, and the distribution of their means, by distance."""
    return pl.concat(
        pl.DataFrame(
            {
                "from_m": density.edges_m[:-1],
                "to_m": density.edges_m[1:],
                "pdf_per_m": density.pdf,
                "share_with_mean_within": [density.share_within(edge) for edge in density.edges_m[1:]],
            }
        ).select(pl.lit(name).alias("of"), pl.all())
        for name, density in densities.items()
    )
