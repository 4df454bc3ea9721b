"""geoblanket: context-aware metric differential privacy for vehicle locations.

Everything public is importable from here; submodules load on first use, so that `import geoblanket` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import on_first_use
from geoblanket.errors import (
    GeoblanketError,
    GuaranteeViolation,
    InputError,
    MechanismError,
    MismatchError,
    MissingExtraError,
    OutputError,
    ParameterError,
    RandomnessError,
)

if TYPE_CHECKING:
    from geoblanket.city.model import City, make_city
    from geoblanket.mechanism.bundle import Bundle, BundledMechanism, load_bundle, save_bundle
    from geoblanket.mechanism.mechanism import Mechanism
    from geoblanket.mechanism.optimiser import OptimiseResult, optimise
    from geoblanket.mechanism.problem import Problem
    from geoblanket.mechanism.repairer import repair
    from geoblanket.mechanism.verifier import Certificate, verify
    from geoblanket.mobility.map_matcher import MapMatcher
    from geoblanket.mobility.matching import match_traces
    from geoblanket.mobility.walks import scan_walks
    from geoblanket.roads.distances import road_distances
    from geoblanket.roads.graph import RoadGraph
    from geoblanket.roads.importer import import_roads
    from geoblanket.roads.places import Places, choose_places
    from geoblanket.roads.zones import Zones, partition_zones
    from geoblanket.traces.cleaning import Cleaning
    from geoblanket.traces.importing import import_traces
    from geoblanket.traces.table import scan_traces

__all__ = [
    "Bundle",
    "BundledMechanism",
    "Certificate",
    "City",
    "Cleaning",
    "GeoblanketError",
    "GuaranteeViolation",
    "InputError",
    "MapMatcher",
    "Mechanism",
    "MechanismError",
    "MismatchError",
    "MissingExtraError",
    "OptimiseResult",
    "OutputError",
    "ParameterError",
    "Places",
    "Problem",
    "RandomnessError",
    "RoadGraph",
    "Zones",
    "__version__",
    "choose_places",
    "import_roads",
    "import_traces",
    "load_bundle",
    "make_city",
    "match_traces",
    "optimise",
    "partition_zones",
    "repair",
    "road_distances",
    "save_bundle",
    "scan_traces",
    "scan_walks",
    "verify",
]

__version__ = "0.1.0"

_HOME = {
    "Bundle": "geoblanket.mechanism.bundle",
    "BundledMechanism": "geoblanket.mechanism.bundle",
    "Certificate": "geoblanket.mechanism.verifier",
    "City": "geoblanket.city.model",
    "Cleaning": "geoblanket.traces.cleaning",
    "MapMatcher": "geoblanket.mobility.map_matcher",
    "Mechanism": "geoblanket.mechanism.mechanism",
    "OptimiseResult": "geoblanket.mechanism.optimiser",
    "Places": "geoblanket.roads.places",
    "Problem": "geoblanket.mechanism.problem",
    "RoadGraph": "geoblanket.roads.graph",
    "Zones": "geoblanket.roads.zones",
    "choose_places": "geoblanket.roads.places",
    "import_roads": "geoblanket.roads.importer",
    "import_traces": "geoblanket.traces.importing",
    "load_bundle": "geoblanket.mechanism.bundle",
    "make_city": "geoblanket.city.model",
    "match_traces": "geoblanket.mobility.matching",
    "optimise": "geoblanket.mechanism.optimiser",
    "partition_zones": "geoblanket.roads.zones",
    "repair": "geoblanket.mechanism.repairer",
    "road_distances": "geoblanket.roads.distances",
    "save_bundle": "geoblanket.mechanism.bundle",
    "scan_traces": "geoblanket.traces.table",
    "scan_walks": "geoblanket.mobility.walks",
    "verify": "geoblanket.mechanism.verifier",
}
"""The module that defines each public name that is loaded on first use."""

__getattr__, __dir__ = on_first_use(__name__, _HOME)
