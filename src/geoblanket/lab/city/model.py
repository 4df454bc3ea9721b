"""The city as one object: streets, districts, and how its fleet moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from geoblanket._arguments import checked
from geoblanket._arrays import Bools, Indices, Octets
from geoblanket._display import Progress, card, counted, short_repr, silent
from geoblanket._lazy import companion
from geoblanket.lab.city.moves import Lines, Moves, build_moves, find_routes
from geoblanket.lab.city.plan import DISTRICTS, Plan, make_plan
from geoblanket.lab.city.streets import Streets, build_streets
from geoblanket.roads.graph import RoadGraph

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STAND_SHARES = (0.4, 0.35, 0.25)  # of the taxi stands, by district


@checked
@dataclass(frozen=True, eq=False)
class City:
    """A synthetic city: roads, districts, and how its taxis move. Made by `make_city`.

    Examples
    --------
    With the `city` in the example of `make_city`:

    >>> city.size, city.graph.edge_count
    ('small', 1433)
    """

    size: str
    seed: int
    plan: Plan
    streets: Streets
    district: Octets
    """District of each node, an index into `plan.DISTRICTS`, shape (N,)."""
    moves: Moves
    stands: Indices
    """Nodes of the taxi stands, those of the same district together."""

    @property
    def graph(self) -> RoadGraph:
        """The road graph: strongly connected, every node a junction or a dead end."""
        return self.streets.graph

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the streets, the districts and the river (extra `city`).

        Parameters
        ----------
        ax
            Axes of Matplotlib to draw on; None: those of a new figure.
        """
        axes: Axes = companion("geoblanket.lab.city.picture", "City.plot").plot_city(self, ax=ax)
        return axes

    def _repr_html_(self) -> str:
        rows = [
            ("size, seed", f"{self.size}, {self.seed}"),
            ("nodes", f"{self.graph.node_count:,}"),
            ("edges, one for each direction", f"{self.graph.edge_count:,}"),
            ("length", f"{self.graph.length_m.sum() / 1000:,.1f} km"),
        ]
        return card(self, rows, draw=lambda ax: self.plot(ax=ax))

    def __repr__(self) -> str:
        sizes = counted(self.graph.node_count, "node"), counted(self.graph.edge_count, "edge")
        return short_repr(self, self.size, f"seed {self.seed}", *sizes, f"{self.graph.length_m.sum() / 1000:,.1f} km")


@checked
def make_city(size: str = "medium", *, seed: int = 0, progress: Progress = silent) -> City:
    """Make a city: the same for the same size and seed.

    Parameters
    ----------
    size
        "small", "medium" or "large": about 500, 5,000 or 45,000 nodes.
    progress
        Called as the work goes on.

    Examples
    --------
    >>> from geoblanket import make_city
    >>> from geoblanket.lab.city.folder import write_city
    >>> city = make_city("small", seed=0)
    >>> city.graph.node_count
    539
    >>> _ = write_city(city, "city", trips=150, formats=["porto"])
    """
    plan = make_plan(size, seed)
    progress("streets", 0, 1)
    streets = build_streets(plan)
    progress("streets", 1, 1)
    graph = streets.graph
    district = plan.district(streets.points)
    routes = find_routes(plan, streets, Lines(graph), _junctions(graph), progress=progress)
    progress("how vehicles move", 0, 1)
    moves = build_moves(plan, streets, routes)
    progress("how vehicles move", 1, 1)
    return City(size, seed, plan, streets, district, moves, _place_stands(plan, district, moves.usable))


def _junctions(graph: RoadGraph) -> Bools:
    """Return which nodes have more than one neighbour."""
    ends = np.unique(np.sort(np.stack([graph.sources, graph.targets], 1), axis=1), axis=0)
    result: Bools = np.bincount(ends.ravel(), minlength=graph.node_count) > 1
    return result


def _place_stands(plan: Plan, district: Octets, usable: Bools) -> Indices:
    rng = np.random.default_rng([plan.seed, 6])
    stands = [
        np.sort(
            rng.choice(np.flatnonzero(usable & (district == number)), round(share * plan.size.stands), replace=False)
        )
        for number, share in zip(range(len(DISTRICTS)), _STAND_SHARES, strict=True)
    ]
    return np.concatenate(stands).astype(np.int32)
