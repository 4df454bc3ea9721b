"""Neighbourhood density: how many locations lie near each one, and how near.

The paper's appendix asks whether every location has enough others around it to hide among. Two kinds of location are
worth asking about: recorded points, whose density grows with the number of trips recorded, and places, which are the
outputs of a mechanism and do not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from geoblanket._arrays import Floats, Ints, Positions
from geoblanket._display import Progress, silent
from geoblanket._geodesy import local_metres
from geoblanket.errors import ParameterError

__all__ = ["Density", "neighbourhood_density"]

_AT_A_TIME = 2_000  # locations, to bound memory


@dataclass(frozen=True, eq=False)
class Density:
    """The neighbours of some locations among all of them, themselves not counted."""

    locations: int
    """Locations among which neighbours are counted."""
    drawn_from: int
    """Locations that were given; more than `locations` if there were too many."""
    radius_m: float
    count: Ints
    """Neighbours within the radius, of each location asked about, shape (q,)."""
    mean_m: Floats
    """Mean distance to the nearest neighbours, metres, shape (q,)."""
    neighbours: int
    """How many nearest neighbours."""
    edges_m: Floats
    """Edges of the bins of `pdf`, metres."""
    pdf: Floats
    """Density of the distance to one of the nearest neighbours, per metre; distances beyond the last edge are missing
    from it, so it may integrate to less than 1."""

    def share_with(self, fewest: int) -> float:
        """Return the share of locations with at least so many neighbours within the radius."""
        return float(np.mean(self.count >= fewest))

    def share_within(self, mean_m: float) -> float:
        """Return the share of locations whose nearest neighbours are at most so far away on average."""
        return float(np.mean(self.mean_m <= mean_m))


def neighbourhood_density(
    lat: npt.ArrayLike,
    lon: npt.ArrayLike,
    *,
    radius_m: float = 100.0,
    neighbours: int = 50,
    edges_m: npt.ArrayLike | None = None,
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
        How many nearest ones the mean distance is of; fewer if there are not so many locations.
    edges_m
        Edges of the bins for the density of distances, metres; by default every metre from 0 to 100.
    most_locations
        Of more, so many are drawn, which bounds memory (about 50 bytes a location).
    queries
        Locations to ask about, drawn from all.
    seed
        Of the draws.
    """
    lat, lon = np.asarray(lat, np.float64), np.asarray(lon, np.float64)
    if lat.ndim != 1 or lat.shape != lon.shape or len(lat) < 2:
        raise ParameterError(f"Density needs two or more locations. Got shapes {lat.shape} and {lon.shape} instead.")
    if not (np.isfinite(lat).all() and np.isfinite(lon).all()):
        raise ParameterError("Density needs finite latitudes and longitudes. Drop the rows that have none.")
    if radius_m <= 0 or neighbours < 1 or queries < 1 or most_locations < 2:
        raise ParameterError("The radius, neighbours and queries must be positive, and the most locations 2 or more.")
    rng = np.random.default_rng(seed)
    drawn_from = len(lat)
    if drawn_from > most_locations:
        kept = np.sort(rng.choice(drawn_from, most_locations, replace=False))
        lat, lon = lat[kept], lon[kept]
    # The middle of the city, whatever strays far from it.
    x, y = local_metres(lat, lon, origin_lat=float(np.median(lat)), origin_lon=float(np.median(lon)))
    points = np.column_stack([x, y])
    asked = np.sort(rng.choice(len(points), min(queries, len(points)), replace=False))
    edges = np.arange(101.0) if edges_m is None else np.asarray(edges_m, np.float64)
    count, mean_m, histogram = _measure(
        points, asked, radius_m=radius_m, neighbours=min(neighbours, len(points) - 1), edges=edges, progress=progress
    )
    return Density(
        locations=len(points),
        drawn_from=drawn_from,
        radius_m=radius_m,
        count=count,
        mean_m=mean_m,
        neighbours=min(neighbours, len(points) - 1),
        edges_m=edges,
        pdf=histogram / np.diff(edges) / (len(asked) * min(neighbours, len(points) - 1)),
    )


def _measure(
    points: Floats, asked: Positions, *, radius_m: float, neighbours: int, edges: Floats, progress: Progress
) -> tuple[Ints, Floats, Ints]:
    # Without balancing, many equal points do not slow it down.
    tree = cKDTree(points, balanced_tree=False, compact_nodes=False)
    counts, means = [], []
    histogram = np.zeros(len(edges) - 1, np.int64)
    for start in range(0, len(asked), _AT_A_TIME):
        progress("neighbours", start, len(asked))
        centres = points[asked[start : start + _AT_A_TIME]]
        counts.append(tree.query_ball_point(centres, radius_m, return_length=True) - 1)
        # The nearest of all is the location itself, or one at the same spot: either way one distance of 0 goes.
        distance = np.asarray(tree.query(centres, k=np.arange(2, neighbours + 2))[0])
        means.append(distance.mean(axis=1))
        histogram += np.histogram(distance, edges)[0]
    progress("neighbours", len(asked), len(asked))
    return np.concatenate(counts).astype(np.int64), np.concatenate(means), histogram
