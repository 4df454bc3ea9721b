"""Releasing locations with a bundle: a device with a durable budget, fleets, and traces in bulk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import homes, on_first_use

if TYPE_CHECKING:
    from geoblanket.release.budget import Budget
    from geoblanket.release.bulk import PerturbSummary, perturb_traces, perturb_walks
    from geoblanket.release.device import Device, Report
    from geoblanket.release.fleet import Fleet, FleetReports
    from geoblanket.release.lattice_bulk import LatticeSummary, perturb_points, perturb_walk_points
    from geoblanket.release.ledger import Ledger
    from geoblanket.release.rule import ReleaseRule

__all__ = [
    "Budget",
    "Device",
    "Fleet",
    "FleetReports",
    "LatticeSummary",
    "Ledger",
    "PerturbSummary",
    "ReleaseRule",
    "Report",
    "perturb_points",
    "perturb_traces",
    "perturb_walk_points",
    "perturb_walks",
]

_HOME = homes(__name__)
__getattr__, __dir__ = on_first_use(__name__, _HOME)
