"""geoblanket: context-aware metric differential privacy for vehicle locations.

Everything public is importable from here; submodules load on first use, so that `import geoblanket` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import homes, on_first_use
from geoblanket.errors import (
    BudgetError,
    GeoblanketError,
    GuaranteeViolation,
    InputError,
    LedgerError,
    MechanismError,
    MismatchError,
    MissingExtraError,
    OutputError,
    ParameterError,
    RandomnessError,
    RefusedError,
)

if TYPE_CHECKING:
    from geoblanket.blanket.discovery import Discovery, DiscoveryOptions, discover
    from geoblanket.blanket.findings import scan_findings
    from geoblanket.blanket.predictor import Predictor
    from geoblanket.blanket.predictor_file import load_predictor
    from geoblanket.blanket.training import train
    from geoblanket.build.building import build_bundle
    from geoblanket.build.city_lattice import make_lattice
    from geoblanket.build.config import BuildConfig
    from geoblanket.city.model import City, make_city
    from geoblanket.learning.from_released import learn_from_released
    from geoblanket.learning.noise import TrainingBudget
    from geoblanket.learning.private import learn_privately
    from geoblanket.learning.spending import TrainingLedger
    from geoblanket.mechanism.bundle.storage import Bundle, BundledMechanism, load_bundle, save_bundle
    from geoblanket.mechanism.bundle.trust import Trust
    from geoblanket.mechanism.mechanism import Mechanism
    from geoblanket.mechanism.problem import Problem
    from geoblanket.mechanism.repairer import repair
    from geoblanket.mechanism.solver.optimiser import OptimiseResult, optimise
    from geoblanket.mechanism.verifier import Certificate, verify
    from geoblanket.mobility.map_matcher import MapMatcher
    from geoblanket.mobility.matching import match_traces
    from geoblanket.mobility.walks import Walks, scan_walks
    from geoblanket.planning.search import Plan, make_plan
    from geoblanket.release.budget import Budget
    from geoblanket.release.bulk import perturb_traces, perturb_walks
    from geoblanket.release.device import Device, Report
    from geoblanket.release.fence import Fence, Fences
    from geoblanket.release.fleet import Fleet
    from geoblanket.release.ledger import Ledger
    from geoblanket.roads.distances import road_distances
    from geoblanket.roads.graph import RoadGraph
    from geoblanket.roads.importer import import_roads
    from geoblanket.roads.places import Places, choose_places
    from geoblanket.roads.zones import Zones, partition_zones
    from geoblanket.traces.cleaning import Cleaning
    from geoblanket.traces.importing import import_traces
    from geoblanket.traces.table import scan_traces
    from geoblanket.tracking.learning import learn_motion
    from geoblanket.tracking.motion_model import MotionModel
    from geoblanket.tracking.synthetic_walks import draw_walks
    from geoblanket.tracking.table import track_table
    from geoblanket.tracking.tracker import Tracker

__all__ = [
    "Budget",
    "BudgetError",
    "BuildConfig",
    "Bundle",
    "BundledMechanism",
    "Certificate",
    "City",
    "Cleaning",
    "Device",
    "Discovery",
    "DiscoveryOptions",
    "Fence",
    "Fences",
    "Fleet",
    "GeoblanketError",
    "GuaranteeViolation",
    "InputError",
    "Ledger",
    "LedgerError",
    "MapMatcher",
    "Mechanism",
    "MechanismError",
    "MismatchError",
    "MissingExtraError",
    "MotionModel",
    "OptimiseResult",
    "OutputError",
    "ParameterError",
    "Places",
    "Plan",
    "Predictor",
    "Problem",
    "RandomnessError",
    "RefusedError",
    "Report",
    "RoadGraph",
    "Tracker",
    "TrainingBudget",
    "TrainingLedger",
    "Trust",
    "Walks",
    "Zones",
    "__version__",
    "build_bundle",
    "choose_places",
    "discover",
    "draw_walks",
    "import_roads",
    "import_traces",
    "learn_from_released",
    "learn_motion",
    "learn_privately",
    "load_bundle",
    "load_predictor",
    "make_city",
    "make_lattice",
    "make_plan",
    "match_traces",
    "optimise",
    "partition_zones",
    "perturb_traces",
    "perturb_walks",
    "repair",
    "road_distances",
    "save_bundle",
    "scan_findings",
    "scan_traces",
    "scan_walks",
    "track_table",
    "train",
    "verify",
]

__version__ = "0.3.0"

_HOME = homes(__name__)

__getattr__, __dir__ = on_first_use(__name__, _HOME)
