"""From what an hour, a report and a home may tell to an ε, an interval and a fence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import homes, on_first_use

if TYPE_CHECKING:
    from geoblanket.planning.schedules import Budgets, Schedule
    from geoblanket.planning.search import Plan, Rated, make_plan

__all__ = ["Budgets", "Plan", "Rated", "Schedule", "make_plan"]

_HOME = homes(__name__)
__getattr__, __dir__ = on_first_use(__name__, _HOME)
