"""From a map, or a part of the Earth, to a bundle with a lattice: no traces, no solver, no zones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from geoblanket._arguments import checked
from geoblanket._display import Progress, silent
from geoblanket._files import check_output
from geoblanket.errors import ParameterError
from geoblanket.mechanism.bundle.storage import LatticeBundle, next_version, save_lattice
from geoblanket.mechanism.costs import check_epsilon
from geoblanket.mechanism.lattice.making import Area, spec_over
from geoblanket.roads.graph import RoadGraph

HOLD_M: Final = 50.0
"""GPS at rest stays within this distance, mostly."""
_BOX: Final = 4
_CIRCLE: Final = 3


@checked
def make_lattice(
    area: RoadGraph | str | Path | Sequence[float],
    out: str | Path,
    *,
    epsilon: float,
    interval_s: float = 30.0,
    hold_m: float = HOLD_M,
    cell_m: float | None = None,
    version: int | None = None,
    progress: Progress = silent,
) -> LatticeBundle:
    """Make a mechanism for a whole city: planar Laplace noise, exact, between any two coordinates.

    It needs no traces and takes seconds. A report discloses nothing besides its time.

    Parameters
    ----------
    area
        What vehicles report from: roads or their file; or south, west, north and east in degrees; or the latitude and
        longitude of a point, and how far around it, kilometres. A margin of 10/ε km comes on top.
    out
        The bundle to write, wholly or not at all.
    epsilon
        ε of a report, per kilometre. There is no default: choose it, or let `make_plan` choose.
    interval_s
        Seconds from one report to the next.
    hold_m
        Within this distance of where the last report was drawn, that report is repeated at no cost, metres: a stay
        costs one report. At least what coordinates are rounded to, at most 2/ε km; 0: never, and a parked vehicle is
        found.
    cell_m
        Metres from edge to edge of a cell; None: about 140/ε.
    version
        The publisher's number, which only grows; None: 1, or one more than that of the bundle that is replaced.
    progress
        Called as the work goes on.

    Returns
    -------
    bundle
        What was written, verified exactly.

    Raises
    ------
    ParameterError
        If a number is out of range, or no lattice of these numbers is useful.

    Examples
    --------
    >>> from geoblanket import make_lattice
    >>> bundle = make_lattice((45.0, -30.0, 3.0), "lattice.bundle", epsilon=8, interval_s=60)
    >>> bundle
    <LatticeBundle: 223,729 cells of 18 m, ε = 8 per km, held within 50 m, verified exactly, not signed>
    >>> print(bundle.promise.in_one_sentence)
    In one sentence: each report changes the odds between two locations, ...; a stay costs one report; ...
    """
    check_output(out)
    check_epsilon(epsilon)
    if not 0 <= hold_m <= 2000 / epsilon:
        raise ParameterError(
            f"hold_m must be 0 to {2000 / epsilon:,.0f} m, the mean error of a report at ε = {epsilon:g} per km. Got "
            f"{hold_m:g} m instead."
        )
    hold_mm = round(1000 * hold_m)
    version = next_version(out, version)
    spec = spec_over(_area(area), epsilon=epsilon, cell_m=cell_m, progress=progress)
    if 0 < hold_mm < spec.plane.unit_mm:
        raise ParameterError(
            f"hold_m must be 0, or at least the {spec.plane.unit_mm / 1000:g} m to which this lattice rounds "
            f"coordinates. Got {hold_m:g} m instead."
        )
    return save_lattice(out, spec, hold_mm=hold_mm, version=version, interval_s=interval_s)


def _area(area: RoadGraph | str | Path | Sequence[float]) -> Area:
    if isinstance(area, str | Path):
        area = RoadGraph.load(area)
    if isinstance(area, RoadGraph):
        return Area(float(area.lat.min()), float(area.lon.min()), float(area.lat.max()), float(area.lon.max()))
    numbers = [float(value) for value in area]
    if len(numbers) == _BOX:
        return Area(*numbers)
    if len(numbers) == _CIRCLE:
        return Area.around(*numbers)
    raise ParameterError(
        f"An area is a road graph, or {_BOX} numbers (south, west, north, east, degrees), or {_CIRCLE} (latitude and "
        f"longitude, degrees, and a radius, km). Got {len(numbers)} numbers instead."
    )
