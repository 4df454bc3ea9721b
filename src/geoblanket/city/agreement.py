"""How well walks found from the city's GPS points agree with the true ones."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from geoblanket._tables import reading_parquet
from geoblanket._untrusted import check_parquet
from geoblanket.errors import InputError, MismatchError
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
    truth_path = Path(city) / "true_walks.parquet"
    if not truth_path.is_file():
        raise InputError("no such file", path=truth_path, hint="Make the city with `geoblanket city`")
    check_parquet(truth_path)
    truth = pl.scan_parquet(truth_path).select("vehicle", "time", "node")
    steps = frame.join(node, on="place").join(truth, on=["vehicle", "time"], how="left")
    right = pl.col("found").eq_missing(pl.col("node")).mean()
    with reading_parquet(truth_path):
        return float(steps.select(right).collect(engine="streaming").item())
