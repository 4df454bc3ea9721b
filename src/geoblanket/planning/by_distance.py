"""A schedule for somebody who knows how far off reports should be, and no ε: what to do, and what it means in metres.

All figures follow from planar Laplace noise. What somebody learns who follows a trip does not: a plan
(`geoblanket.planning.search`) estimates it.
"""

from __future__ import annotations

from geoblanket.mechanism.costs import check_epsilon
from geoblanket.mechanism.meaning import laplace_errors
from geoblanket.planning.schedules import Schedule, round_down

__all__ = ["schedule_by_distance"]


def schedule_by_distance(off_km: float, *, interval_s: float, anchored: bool) -> Schedule:
    """Return the schedule by which half of all single reports are this far off or further.

    Parameters
    ----------
    off_km
        The median distance from a report to the truth, kilometres.
    interval_s
        Seconds from one report to the next.
    anchored
        Whether the vehicle parks where nobody should know. Then there is an anchor for an hour with the report's ε:
        with a smaller ε₀, the reports of a drive tell more of the shift.

    Raises
    ------
    ParameterError
        If devices would refuse the ε that this needs.
    """
    # Twice the ε has half the noise.
    needed = laplace_errors(1.0, 1.0 if anchored else None).median_km / off_km
    epsilon = round_down(check_epsilon(needed, name="The ε for reports this far off"))
    return Schedule(epsilon, interval_s, epsilon if anchored else None)
