"""Releasing locations with a bundle: a device with a durable budget, fleets, and traces in bulk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import on_first_use

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

_HOME = {
    "Budget": "geoblanket.release.budget",
    "Device": "geoblanket.release.device",
    "Fleet": "geoblanket.release.fleet",
    "FleetReports": "geoblanket.release.fleet",
    "LatticeSummary": "geoblanket.release.lattice_bulk",
    "Ledger": "geoblanket.release.ledger",
    "PerturbSummary": "geoblanket.release.bulk",
    "ReleaseRule": "geoblanket.release.rule",
    "Report": "geoblanket.release.device",
    "perturb_points": "geoblanket.release.lattice_bulk",
    "perturb_traces": "geoblanket.release.bulk",
    "perturb_walk_points": "geoblanket.release.lattice_bulk",
    "perturb_walks": "geoblanket.release.bulk",
}

__getattr__, __dir__ = on_first_use(__name__, _HOME)
