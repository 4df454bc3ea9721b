"""The study: blankets in every grouping, statistics of the findings, and densities of locations.

The paper's appendix asks whether every location has enough others around it to hide among. The density of recorded
points grows with the number of trips; the density of places, the outputs of a mechanism, does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.spatial import cKDTree

from geoblanket import __version__
from geoblanket._arrays import Floats, Ints, Positions
from geoblanket._display import Progress, silent
from geoblanket._files import sha256_file
from geoblanket._geodesy import local_metres
from geoblanket._tables import reading_parquet
from geoblanket._unfinished import unfinished_path
from geoblanket.blanket.discovery import Discovery, DiscoveryOptions, discover
from geoblanket.blanket.findings import read_findings
from geoblanket.blanket.groups import find_regions
from geoblanket.errors import InputError, OutputError, ParameterError
from geoblanket.lab.study.dependence import dependence_table
from geoblanket.lab.study.group_statistics import (
    FEATURES,
    correlation_table,
    grouping_for,
    main_grouping,
    rejection_table,
    size_table,
)
from geoblanket.mobility.walks import MatchedWalks
from geoblanket.roads.places import Places
from geoblanket.traces.table import scan_traces

_NEIGHBOURS, _NEAR_M = (10, 100, 500, 1000), (50, 100)

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


_AT_A_TIME = 2_000  # locations, to bound memory


@dataclass(frozen=True, eq=False)
class Density:
    """The neighbours of some locations among all of them, themselves not counted."""

    locations: int
    """Locations among which neighbours are counted."""
    radius_m: float
    count: Ints
    """Neighbours within the radius, of each location asked about, shape (q,)."""
    mean_m: Floats
    """Mean distance to the nearest neighbours, metres, shape (q,)."""

    def share_with(self, fewest: int) -> float:
        """Return the share of locations with at least `fewest` neighbours within the radius."""
        return float(np.mean(self.count >= fewest))

    def share_within(self, mean_m: float) -> float:
        """Return the share of locations whose nearest neighbours are at most this far away on average, metres."""
        return float(np.mean(self.mean_m <= mean_m))


def neighbourhood_density(
    lat: npt.ArrayLike,
    lon: npt.ArrayLike,
    *,
    radius_m: float = 100.0,
    neighbours: int = 50,
    most_locations: int = 2_000_000,
    queries: int = 10_000,
    seed: int = 0,
    progress: Progress = silent,
) -> Density:
    """Count the neighbours of locations and measure how far they are.

    Parameters
    ----------
    lat, lon
        Locations in degrees. Equal ones are neighbours at distance 0.
    radius_m
        Neighbours within this distance are counted, metres.
    neighbours
        Number of nearest neighbours in the mean distance; fewer if there are fewer locations.
    most_locations
        A larger number of locations is sampled down to this, to bound memory (about 50 bytes a location).
    queries
        Locations to ask about, drawn from all.
    seed
        Of the draws.
    """
    lat, lon = np.asarray(lat, np.float64), np.asarray(lon, np.float64)
    if lat.ndim != 1 or lat.shape != lon.shape or len(lat) < 2:
        raise ParameterError(f"Density needs two or more locations. Got shapes {lat.shape} and {lon.shape} instead.")
    rng = np.random.default_rng(seed)
    if len(lat) > most_locations:
        kept = np.sort(rng.choice(len(lat), most_locations, replace=False))
        lat, lon = lat[kept], lon[kept]
    # The median is the middle of the city even if some points stray far.
    x, y = local_metres(lat, lon, origin_lat=float(np.median(lat)), origin_lon=float(np.median(lon)))
    points = np.column_stack([x, y])
    asked = np.sort(rng.choice(len(points), min(queries, len(points)), replace=False))
    nearest = min(neighbours, len(points) - 1)
    count, mean_m = _measure(points, asked, radius_m=radius_m, neighbours=nearest, progress=progress)
    return Density(len(points), radius_m, count, mean_m)


def _measure(
    points: Floats, asked: Positions, *, radius_m: float, neighbours: int, progress: Progress
) -> tuple[Ints, Floats]:
    # Without balancing, many equal points do not slow it down.
    tree = cKDTree(points, balanced_tree=False, compact_nodes=False)
    counts, means = [], []
    for start in range(0, len(asked), _AT_A_TIME):
        progress("neighbours", start, len(asked))
        centres = points[asked[start : start + _AT_A_TIME]]
        counts.append(tree.query_ball_point(centres, radius_m, return_length=True) - 1)
        # The nearest is the location itself, or another at the same spot: either way one distance of 0 is left out.
        distance = np.asarray(tree.query(centres, k=np.arange(2, neighbours + 2))[0])
        means.append(distance.mean(axis=1))
    progress("neighbours", len(asked), len(asked))
    return np.concatenate(counts).astype(np.int64), np.concatenate(means)


@dataclass(frozen=True)
class StudyOptions:
    """What a study tests and measures."""

    discovery: DiscoveryOptions = field(default_factory=DiscoveryOptions)
    """Options of the tests; the study sets `by` and `stop_early`."""
    traces: Path | None = None
    """Traces whose points' density is measured; by default that of the walks' steps."""
    permutations: int = 199
    """Of each classifier test."""


@dataclass(frozen=True, eq=False)
class Study:
    """Tables and figures of a study."""

    found: Discovery
    """Groups of all their samples, up to the largest number used."""
    equal: Discovery
    """The same with equally many samples in every group, so that group size explains nothing."""
    rejections: pl.DataFrame
    sizes: pl.DataFrame
    correlations: pl.DataFrame
    equal_rejections: pl.DataFrame
    equal_correlations: pl.DataFrame
    dependence: pl.DataFrame
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

    def density_table(self) -> pl.DataFrame:
        """Return the shares of locations with neighbours near enough, a row for each kind of location."""
        return pl.DataFrame(
            {
                "locations": name,
                "number": density.locations,
                **{f"at_least_{k}_within_{density.radius_m:g}_m": density.share_with(k) for k in _NEIGHBOURS},
                **{f"nearest_within_{metres}_m": density.share_within(metres) for metres in _NEAR_M},
            }
            for name, density in self.densities.items()
        )

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return every table by name, as written to the folder."""
        return {
            "rejections": self.rejections,
            "rejections-equal": self.equal_rejections,
            "blanket-sizes": self.sizes,
            "correlations": self.correlations,
            "correlations-equal": self.equal_correlations,
            "classifier-tests": self.dependence,
            "density": self.density_table(),
        }


def run_study(
    walks: str | Path,
    roads: str | Path,
    out: str | Path,
    options: StudyOptions | None = None,
    *,
    workers: int | None = None,
    cluster: str | None = None,
    overwrite: bool = True,
    progress: Progress = silent,
) -> Study:
    """Test every order in every grouping, and correlate p-values with speed, place and hour.

    Parameters
    ----------
    walks, roads
        Walks, and the roads they were matched to.
    out
        A folder, made if it is absent, for the findings (`findings.parquet`, `findings-equal.parquet`) and every
        finished test. An interrupted study continues where it stopped; a finished one is not tested again.
    options
        What is tested and measured.
    overwrite
        Whether to replace findings of other inputs or options in the folder.
    workers, cluster, progress
        As in `discover`.

    Raises
    ------
    OutputError
        If the folder has findings that may not be replaced, or cannot be used.
    """
    chosen = options or StudyOptions()
    traces, permutations = chosen.traces, chosen.permutations
    tests = replace(chosen.discovery, by=GROUPINGS, stop_early=False)
    folder = Path(out)
    if permutations < 19:
        raise ParameterError(
            f"There must be 19 permutations or more, or nothing can be seen at 5 %. Got {permutations}."
        )
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder}: is a file. Give the name of a folder.")
    matched = MatchedWalks.open(walks, roads)
    frame, places = matched.frame, matched.places
    inputs = {
        "regions": find_regions(tests.regions, places).about,
        "walks": sha256_file(walks),
        "geoblanket": __version__,
    }
    plans = {
        "findings.parquet": tests,
        "findings-equal.parquet": replace(tests, largest_sample=tests.smallest_group),
    }
    finished = {
        name: _finished(folder / name, {**plan.as_dict(), **inputs}, overwrite=overwrite)
        for name, plan in plans.items()
    }
    with reading_parquet(walks if traces is None else traces):
        densities = _densities(frame, places, traces, seed=tests.seed, progress=progress)
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
            f"no group has {tests.smallest_group} samples that can be tested",
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
        dependence=dependence_table(found.findings, permutations=permutations, seed=tests.seed, progress=progress),
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
