"""How well walks found from the city's GPS points agree with the true ones."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from geoblanket.errors import MismatchError
from geoblanket.mobility.walks import scan_walks
from geoblanket.roads.graph import RoadGraph
from geoblanket.roads.places import choose_places

__all__ = ["share_of_true_places"]


def share_of_true_places(walks: str | Path, *, roads: str | Path, city: str | Path) -> float:
    """Return the share of the steps at whose time the vehicle truly was at the place.

    Parameters
    ----------
    walks
        A table written by `geoblanket match` from the city's Porto file, on its 30 s clock.
    roads
        The road graph it was matched to.
    city
        The folder written by `geoblanket city`.
    """
    graph = RoadGraph.load(roads)
    frame, about = scan_walks(walks)
    if about["roads"] != graph.identity:
        raise MismatchError(f"{walks} was matched to other roads than {roads}. Give the roads that it was matched to.")
    places = choose_places(graph, spacing_m=about["spacing_m"])
    node = pl.LazyFrame({"place": range(len(places)), "found": graph.node_ids[places.nodes]}).cast({"place": pl.Int32})
    truth = pl.scan_parquet(Path(city) / "true_walks.parquet").select("vehicle", "time", "node")
    steps = frame.join(node, on="place").join(truth, on=["vehicle", "time"], how="left")
    right = pl.col("found").eq_missing(pl.col("node")).mean()
    return float(steps.select(right).collect(engine="streaming").item())
