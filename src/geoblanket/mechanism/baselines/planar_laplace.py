"""Planar Laplace noise, given to the nearest output (Andrés, Bordenabe, Chatzikokolakis, Palamidessi, CCS 2013).

A point is drawn around the row's position x with density ε²/(2π)·e^(−ε·|x − z|) and replaced by its nearest output.
Replacing is post-processing, so the promise of the noise holds for the outputs: no normalisation, no loss of ε. An
output's probability is the mass of its Voronoi cell. Cells are convex, so a ray from x meets one in an interval
[a, b], on which the noise has the mass T(a) − T(b), T(r) = (1 + εr)·e^(−εr), exactly; the mean over evenly spread rays
is the probability, up to the error of the rays, which the repair makes good. The certificate of the result tells the ε
that is really spent.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.spatial import Delaunay, QhullError
from scipy.spatial.distance import cdist

from geoblanket._arrays import Floats, Ints
from geoblanket.errors import ParameterError
from geoblanket.mechanism.baselines._finish import check_table, from_probabilities
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem

__all__ = ["planar_laplace"]

_BLOCK = 1 << 17  # crossings at a time: a megabyte, which stays in the processor's cache


def planar_laplace(
    problem: Problem, row_xy_km: npt.ArrayLike, output_xy_km: npt.ArrayLike, *, rays: int = 1024
) -> Mechanism:
    """Return the planar Laplace mechanism, remapped to the nearest output.

    Parameters
    ----------
    problem
        Its loss and prior are not used. Where row distances are smaller than distances in the plane, ε is scaled
        down by the worst ratio, so that the promise holds in row distances.
    row_xy_km, output_xy_km
        Positions in one plane, kilometres, shapes (S, 2) and (K, 2). Of outputs at the same position the first is used;
        rows of one class (0 mm apart) stand at their mean.
    rays
        How many directions are integrated over.
    """
    if rays < 8:
        raise ParameterError(f"rays must be at least 8. Got {rays} instead.")
    rows = problem.class_means(check_table(row_xy_km, "row_xy_km", (problem.row_count, 2), signed=True))
    outputs = check_table(output_xy_km, "output_xy_km", (problem.output_count, 2), signed=True)
    sites, first = np.unique(outputs, axis=0, return_index=True)
    table = np.zeros((len(rows), problem.output_count))
    table[:, first] = _cell_masses(rows, sites, _plane_epsilon(problem, rows), rays)
    return from_probabilities(table, problem)


def _plane_epsilon(problem: Problem, rows: Floats) -> float:
    """Return the largest ε of the noise, at most the problem's, with ε·|x − x'| ≤ the bound of every pair of rows."""
    in_plane = cdist(rows, rows)
    apart = in_plane > 0
    bound = problem.merged().log_bound[apart] / in_plane[apart]
    return float(bound.min(initial=problem.epsilon))


def _cell_masses(rows: Floats, sites: Floats, epsilon: float, rays: int) -> Floats:
    """Return the mass of the noise around each row in the Voronoi cell of each site."""
    if len(sites) == 1:
        return np.ones((len(rows), 1))
    offsets, neighbours = _neighbours(sites)
    owners = np.repeat(np.arange(len(sites)), np.diff(offsets))
    normals = 2 * (sites[neighbours] - sites[owners])
    limits = (sites[neighbours] ** 2).sum(axis=1) - (sites[owners] ** 2).sum(axis=1)
    angles = (np.arange(rays) + 0.5) * (2 * np.pi / rays)
    masses = np.zeros((len(rows), len(sites)))
    for block in np.array_split(angles, -(-rays * len(normals) // _BLOCK)):
        # A ray x + r·u is in the cell while r·speed ≤ room for every neighbour.
        speed = normals @ np.stack([np.cos(block), np.sin(block)])
        speed[speed == 0] = 1e-300
        outward, pace = speed > 0, 1 / speed
        for row, position in enumerate(rows):
            crossing = pace * (limits - normals @ position)[:, None]
            leave = np.minimum.reduceat(np.where(outward, crossing, np.inf), offsets[:-1])
            enter = np.maximum.reduceat(np.where(outward, 0.0, crossing), offsets[:-1])
            enter = np.maximum(enter, 0.0)
            masses[row] += (_tail(epsilon * enter) - _tail(epsilon * np.maximum(leave, enter))).sum(axis=1)
    return masses / rays


def _tail(x: Floats) -> Floats:
    """Return the probability that the noise goes further than x / ε."""
    x = np.minimum(x, 700.0)
    result: Floats = (1 + x) * np.exp(-x)
    return result


def _neighbours(sites: Floats) -> tuple[Ints, Ints]:
    """Return the sites whose cells may touch each site's, as offsets and indices."""
    try:
        triangles = Delaunay(sites)
        if not len(triangles.coplanar):
            offsets, indices = triangles.vertex_neighbor_vertices
            return offsets.astype(np.int64), indices.astype(np.int64)
    except QhullError:
        pass  # fewer than three sites, or all on a line
    others = ~np.eye(len(sites), dtype=bool)
    return np.arange(len(sites) + 1) * (len(sites) - 1), np.nonzero(others)[1]
