"""A word in time: so many places that a build from them would not end."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from geoblanket.cli._output import say

__all__ = ["warn_of_many_places"]

_MANY: Final = 2_000
_SPACINGS_M: Final = (250, 500, 1000)
"""What is advised, the first that leaves few enough."""


def warn_of_many_places(roads: Path, spacing_m: float) -> None:
    """Say so if roads have too many places at a spacing for a build, and which spacing would do."""
    from geoblanket.build.config import DEFAULT_MAX_PLACES
    from geoblanket.roads.graph import RoadGraph
    from geoblanket.roads.places import choose_places

    graph = RoadGraph.load(roads)
    count = len(choose_places(graph, spacing_m=spacing_m))
    if count <= _MANY:
        return
    wider = {spacing: len(choose_places(graph, spacing_m=spacing)) for spacing in _SPACINGS_M if spacing > spacing_m}
    enough = next((spacing for spacing, left in wider.items() if left <= _MANY), None)
    advice = (
        "Cut the roads to a smaller area"
        if enough is None
        else f"Match with --spacing {enough}, which leaves {wider[enough]:,} places"
    )
    apart = f"{spacing_m:g} m apart" if spacing_m else "every road node"
    say(
        f"Warning: there are {count:,} places ({apart}), which makes about {math.ceil(count / DEFAULT_MAX_PLACES):,} "
        f"zones with two mechanisms or more in each: `geoblanket build` may take days. {advice}. A lattice "
        "(`geoblanket lattice`) needs no places."
    )
