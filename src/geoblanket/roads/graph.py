"""The road graph: a directed graph of junctions and road pieces in compressed sparse rows.

A graph has a credit line for its pictures and reports, because OpenStreetMap's licence asks everyone who shows its data
to name its contributors. Files in OpenStreetMap's formats and in OSMnx's GraphML are credited to OpenStreetMap, unless
the user says otherwise. So are tables whose nodes have OpenStreetMap's ids: the column is named `osmid`, as OSMnx names
it, and most of its numbers are above 10 million. The synthetic city is written in the same formats, and is recognised
by the program that its file names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrayfile import content_hash, read_arrays, write_arrays
from geoblanket._arrays import Bools, Floats, Indices, Ints, Octets, Positions
from geoblanket._display import card, counted, short_repr
from geoblanket._files import MAGIC
from geoblanket._lazy import companion
from geoblanket.errors import InputError, MissingExtraError, ParameterError

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes

ROAD_CLASSES = (
    "motorway", "trunk", "primary", "secondary", "tertiary", "unclassified", "residential", "living_street",
    "motorway_link", "trunk_link", "primary_link", "secondary_link", "tertiary_link", "road",
)  # fmt: skip
"""OpenStreetMap's drivable classes; an edge stores the index. `road` also stands for an unknown class."""

LengthModel = Literal["sphere", "given"]
"""`sphere`: lengths measured by geoblanket on the sphere; `given`: taken from the source's own column."""

_MAGIC = MAGIC["roads"]

_DTYPES = {
    "node_ids": "<i8", "lat": "<f8", "lon": "<f8", "offsets": "<i8", "targets": "<i4", "length_m": "<f8",
    "speed_m_s": "<f8", "road_class": "|u1", "shape_offsets": "<i8", "shape_lat": "<f8", "shape_lon": "<f8",
}  # fmt: skip

_SCENERY: Final = "scenery"
"""A part of files that not all have."""

OPENSTREETMAP: Final = "© OpenStreetMap contributors"
"""The words that OpenStreetMap asks for."""

SYNTHETIC: Final = "a synthetic city"
"""The credit of a synthetic city."""

SYNTHETIC_PROGRAM: Final = "geoblanket city"
"""The program that OpenStreetMap files of the synthetic city name as their writer."""

_LONGEST_CREDIT: Final = 200
"""The largest number of characters in a credit, which must fit into a picture's corner."""


class Nodes(NamedTuple):
    """Nodes as columns, shape (N,) each."""

    ids: npt.ArrayLike
    """The source's own numbers."""
    lat: npt.ArrayLike
    """Degrees WGS84."""
    lon: npt.ArrayLike


class Edges(NamedTuple):
    """Directed edges as columns, shape (E,) each."""

    sources: npt.ArrayLike
    """Positions among the nodes."""
    targets: npt.ArrayLike
    length_m: npt.ArrayLike
    speed_m_s: npt.ArrayLike
    road_class: npt.ArrayLike
    """Index of the class in `ROAD_CLASSES`."""


@checked
@dataclass(frozen=True, eq=False)
class RoadGraph:
    """A directed road graph. Edges are sorted by source node, then target, then length.

    The edges that leave node `i` are `offsets[i]:offsets[i + 1]`. Build one with `RoadGraph.from_edges`.

    Examples
    --------
    >>> from geoblanket import RoadGraph
    >>> graph = RoadGraph.load("city.roads")
    >>> graph.node_count, graph.edge_count
    (539, 1433)
    >>> graph.targets[graph.offsets[0] : graph.offsets[1]].tolist()  # the nodes that node 0 leads to
    [1, 18, 35, 362, 369, 378]
    """

    node_ids: Ints
    """The source's own node numbers (OpenStreetMap ids), shape (N,)."""
    lat: Floats
    """Latitude of each node, degrees WGS84, shape (N,)."""
    lon: Floats
    """Longitude of each node, degrees WGS84, shape (N,)."""
    offsets: Ints
    """Where each node's outgoing edges start, shape (N + 1,)."""
    targets: Indices
    """Target node of each edge, shape (E,)."""
    length_m: Floats
    """Length of each edge along the road, metres, shape (E,)."""
    speed_m_s: Floats
    """Free-flow speed of each edge, metres per second, shape (E,)."""
    road_class: Octets
    """Index of each edge's class in `ROAD_CLASSES`, shape (E,)."""
    shape_offsets: Ints
    """Where each edge's inner geometry points start, shape (E + 1,)."""
    shape_lat: Floats
    """Latitudes of the inner geometry points, without the end nodes, degrees."""
    shape_lon: Floats
    """Longitudes of the inner geometry points, degrees."""
    length_model: LengthModel
    """How `length_m` was measured."""
    credit: str = ""
    """Whose data it is, for pictures and reports; not part of `identity`."""
    scenery: bytes = field(default=b"", repr=False)
    """Names, water and parks for maps, as GeoJSON; empty: there are none. Not part of `identity`, nor of subgraphs."""

    @classmethod
    @checked
    def from_edges(
        cls,
        nodes: Nodes,
        edges: Edges,
        *,
        length_model: LengthModel,
        shapes: tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike] | None = None,
        credit: str = "",
    ) -> RoadGraph:
        """Sort the edges into compressed rows.

        Parameters
        ----------
        nodes, edges
            Their columns, in any order of the edges.
        shapes
            Inner geometry points as (offsets of shape (E + 1,), latitudes, longitudes), in the order of the
            edges given here; None for straight edges.
        credit
            Whose data it is.
        """
        node_count = len(np.asarray(nodes.ids))
        source = np.asarray(edges.sources, np.int64)
        target = np.asarray(edges.targets, np.int64)
        length = np.asarray(edges.length_m, np.float64)
        order = np.lexsort((length, target, source))
        if shapes is None:
            shapes = (np.zeros(len(source) + 1, np.int64), np.empty(0), np.empty(0))
        shape_offsets = np.asarray(shapes[0], np.int64)
        new_offsets, taken = reorder_ragged(shape_offsets, order)
        return cls(
            node_ids=np.asarray(nodes.ids, np.int64),
            lat=np.asarray(nodes.lat, np.float64),
            lon=np.asarray(nodes.lon, np.float64),
            offsets=np.concatenate([[0], np.cumsum(np.bincount(source, minlength=node_count))]).astype(np.int64),
            targets=target[order].astype(np.int32),
            length_m=length[order],
            speed_m_s=np.asarray(edges.speed_m_s, np.float64)[order],
            road_class=np.asarray(edges.road_class, np.uint8)[order],
            shape_offsets=new_offsets,
            shape_lat=np.asarray(shapes[1], np.float64)[taken],
            shape_lon=np.asarray(shapes[2], np.float64)[taken],
            length_model=length_model,
            credit=credit,
        )

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return len(self.node_ids)

    @property
    def edge_count(self) -> int:
        """Number of directed edges."""
        return len(self.targets)

    @cached_property
    def sources(self) -> Indices:
        """Source node of each edge, shape (E,)."""
        return np.repeat(np.arange(self.node_count, dtype=np.int32), np.diff(self.offsets))

    @cached_property
    def time_s(self) -> Floats:
        """Free-flow travel time of each edge, seconds, shape (E,)."""
        return self.length_m / self.speed_m_s

    @cached_property
    def is_one_way(self) -> Bools:
        """Whether no edge leads back between the two nodes of an edge, shape (E,)."""
        there = self.sources.astype(np.int64) * self.node_count + self.targets
        back = self.targets.astype(np.int64) * self.node_count + self.sources
        return ~np.isin(back, there)

    @cached_property
    def identity(self) -> str:
        """SHA-256 of the whole content: two graphs with the same identity are the same graph."""
        return content_hash({"length_model": self.length_model}, self._arrays())

    def keep_nodes(self, keep: Bools) -> RoadGraph:
        """Return the subgraph of the nodes where `keep` (shape (N,)) is true and of the edges between them."""
        return self._subgraph(keep, keep[self.sources] & keep[self.targets])

    def keep_edges(self, keep: Bools) -> RoadGraph:
        """Return the graph with all its nodes and the edges where `keep` (shape (E,)) is true."""
        return self._subgraph(np.ones(self.node_count, bool), keep)

    def _subgraph(self, keep_nodes: Bools, keep_edges: Bools) -> RoadGraph:
        new_index = np.cumsum(keep_nodes) - 1
        edges = np.flatnonzero(keep_edges)
        shape_offsets, taken = reorder_ragged(self.shape_offsets, edges)
        return RoadGraph.from_edges(
            Nodes(ids=self.node_ids[keep_nodes], lat=self.lat[keep_nodes], lon=self.lon[keep_nodes]),
            Edges(
                sources=new_index[self.sources[edges]],
                targets=new_index[self.targets[edges]],
                length_m=self.length_m[edges],
                speed_m_s=self.speed_m_s[edges],
                road_class=self.road_class[edges],
            ),
            length_model=self.length_model,
            shapes=(shape_offsets, self.shape_lat[taken], self.shape_lon[taken]),
            credit=self.credit,
        )

    def edge_line(self, edge: int) -> tuple[Floats, Floats]:
        """Return the latitudes and longitudes of an edge's whole line, end nodes included, degrees."""
        source, target = self.sources[edge], self.targets[edge]
        inner = slice(self.shape_offsets[edge], self.shape_offsets[edge + 1])
        return (
            np.concatenate([[self.lat[source]], self.shape_lat[inner], [self.lat[target]]]),
            np.concatenate([[self.lon[source]], self.shape_lon[inner], [self.lon[target]]]),
        )

    def one_of_each_road(self) -> Ints:
        """Return one edge of each road: edges back and forth of the same length (to 1 cm) are one road."""
        low, high = np.minimum(self.sources, self.targets), np.maximum(self.sources, self.targets)
        order = np.lexsort((self.length_m, high, low))
        is_first = np.ones(self.edge_count, bool)
        is_first[1:] = (np.diff(low[order]) != 0) | (np.diff(high[order]) != 0) | (np.diff(self.length_m[order]) > 0.01)
        return np.sort(order[is_first])

    def lines(self) -> tuple[Ints, Floats, Floats]:
        """Return the whole lines of all edges: offsets of shape (E + 1,), latitudes and longitudes, degrees."""
        return whole_lines(
            self.lat, self.lon, self.sources, self.targets, (self.shape_offsets, self.shape_lat, self.shape_lon)
        )

    def save(self, path: str | Path) -> None:
        """Write the graph to one file, completely or not at all; the same graph gives the same bytes."""
        # Without a credit or scenery they are left out, as in files of earlier versions, which still open.
        credit = {"credit": self.credit} if self.credit else {}
        scenery = {_SCENERY: np.frombuffer(self.scenery, np.uint8)} if self.scenery else {}
        fields = {"length_model": self.length_model, **credit}
        write_arrays(path, magic=_MAGIC, fields=fields, arrays={**self._arrays(), **scenery})

    @classmethod
    @checked
    def load(cls, path: str | Path) -> RoadGraph:
        """Read a graph written by `save`, in milliseconds for a city."""
        values, arrays = read_arrays(path, magic=_MAGIC, kind="a road graph")
        scenery = arrays.pop(_SCENERY, np.empty(0, np.uint8))
        dtypes = {name: array.dtype.str for name, array in arrays.items()}
        if scenery.dtype != np.uint8 or values.keys() - {"credit"} != {"length_model"} or dtypes != _DTYPES:
            raise InputError(
                "is not a road graph of this version of geoblanket", path=path, hint="Import the roads again"
            )
        parts: dict[str, Any] = {**arrays, **values, "scenery": scenery.tobytes()}
        return cls(**parts)

    def to_networkx(self) -> nx.MultiDiGraph:
        """Return the graph as a NetworkX MultiDiGraph in the conventions of OSMnx (extra `networkx`).

        Nodes are named by their OpenStreetMap ids and have `x`, `y` (degrees) and `street_count`. Edges have `osmid`,
        `highway`, `length` (m), `speed_kph`, `travel_time` (s), `oneway`, `reversed`, and, where the road bends,
        `geometry` (of Shapely). The ids of ways are not kept, so `osmid` is the number of the edge.

        Raises
        ------
        MissingExtraError
            If NetworkX or Shapely is not installed.
        """
        try:
            import networkx as nx
            import shapely
        except ImportError as error:
            raise MissingExtraError("to_networkx", "networkx") from error
        result = nx.MultiDiGraph(crs="epsg:4326", simplified=True)
        ids = self.node_ids.tolist()
        nodes = zip(ids, self.lon.tolist(), self.lat.tolist(), self._street_counts().tolist(), strict=True)
        result.add_nodes_from((node, {"x": x, "y": y, "street_count": streets}) for node, x, y, streets in nodes)
        columns: dict[str, list[Any]] = {
            "osmid": list(range(self.edge_count)),
            "highway": [ROAD_CLASSES[number] for number in self.road_class],
            "length": self.length_m.tolist(),
            "speed_kph": (self.speed_m_s * 3.6).tolist(),
            "travel_time": self.time_s.tolist(),
            "oneway": self.is_one_way.tolist(),
            "reversed": (~self.is_one_way & (self.sources > self.targets)).tolist(),
        }
        ends = [(ids[source], ids[target]) for source, target in zip(self.sources, self.targets, strict=True)]
        keys = self._keys_of_parallel_edges().tolist()
        for edge, values in enumerate(zip(*columns.values(), strict=True)):
            result.add_edge(*ends[edge], key=keys[edge], **dict(zip(columns, values, strict=True)))
        offsets, lat, lon = self.lines()
        points = np.column_stack([lon, lat])
        for edge in np.flatnonzero(np.diff(offsets) > 2).tolist():
            line = shapely.LineString(points[offsets[edge] : offsets[edge + 1]])
            result.edges[*ends[edge], keys[edge]]["geometry"] = line
        return result

    def _street_counts(self) -> Ints:
        """Return how many streets meet at each node: both directions of a road are one street."""
        roads = self.one_of_each_road()
        return np.bincount(np.append(self.sources[roads], self.targets[roads]), minlength=self.node_count)

    def _keys_of_parallel_edges(self) -> Ints:
        """Return numbers from 0 for the edges between the same two nodes, which are consecutive in the graph."""
        starts_pair = np.ones(self.edge_count, bool)
        starts_pair[1:] = (np.diff(self.sources) != 0) | (np.diff(self.targets) != 0)
        edges = np.arange(self.edge_count)
        keys: Ints = edges - edges[starts_pair][np.cumsum(starts_pair) - 1]
        return keys

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {name: getattr(self, name) for name in _DTYPES}

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the roads by class, with a scale bar and the credit (extra `city`).

        Parameters
        ----------
        ax
            Axes of Matplotlib to draw on, in longitude and latitude; None: those of a new figure.
        """
        axes: Axes = companion("geoblanket.roads.picture", "RoadGraph.plot").plot_roads(self, ax=ax)
        return axes

    def _repr_html_(self) -> str:
        rows = [
            ("nodes", f"{self.node_count:,}"),
            ("edges, one for each direction", f"{self.edge_count:,}"),
            ("length", f"{self.length_m.sum() / 1000:,.1f} km"),
        ]
        data = [("data", self.credit)] if self.credit else []
        return card(self, rows + data, draw=lambda ax: self.plot(ax=ax))

    def __repr__(self) -> str:
        return short_repr(
            self,
            counted(self.node_count, "node"),
            counted(self.edge_count, "edge"),
            f"{self.length_m.sum() / 1000:,.1f} km",
            self.credit,
        )


def whole_lines(
    lat: Floats,
    lon: Floats,
    sources: npt.NDArray[np.integer[Any]],
    targets: npt.NDArray[np.integer[Any]],
    shapes: tuple[Ints, Floats, Floats],
) -> tuple[Ints, Floats, Floats]:
    """Return whole lines, with the end nodes around the inner points: offsets, latitudes and longitudes, degrees."""
    shape_offsets, shape_lat, shape_lon = shapes
    offsets = shape_offsets + 2 * np.arange(len(shape_offsets))
    first, last = offsets[:-1], offsets[1:] - 1
    inner = np.ones(offsets[-1], bool)
    inner[first] = inner[last] = False
    line_lat, line_lon = np.empty(len(inner)), np.empty(len(inner))
    for line, node, shape in ((line_lat, lat, shape_lat), (line_lon, lon, shape_lon)):
        line[first], line[last], line[inner] = node[sources], node[targets], shape
    return offsets, line_lat, line_lon


def reorder_ragged(offsets: Ints, order: Positions | Sequence[int]) -> tuple[Ints, Ints]:
    """Return the offsets of the rows taken in `order`, and the indices of their values."""
    lengths = np.diff(offsets)[order]
    new_offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    starts = offsets[:-1][order]
    taken = np.arange(new_offsets[-1]) + np.repeat(starts - new_offsets[:-1], lengths)
    return new_offsets, taken


def credit_of_programs(programs: set[str]) -> str:
    """Return the credit of OpenStreetMap files by the programs that wrote them."""
    return SYNTHETIC if programs == {SYNTHETIC_PROGRAM} else OPENSTREETMAP


def check_credit(value: str) -> str:
    """Return a credit that the user gave.

    Raises
    ------
    ParameterError
        If it is not one line of at most 200 characters.
    """
    if len(value) > _LONGEST_CREDIT or not value.isprintable():
        raise ParameterError(
            f"The credit must be one line of at most {_LONGEST_CREDIT} printable characters. "
            "Shorten it, or give '' for none."
        )
    return value
