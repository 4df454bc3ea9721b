from __future__ import annotations

import importlib
import pkgutil
import tomllib
from pathlib import Path

import pytest

import geoblanket

NAMES = ("blanket", "build", "lab.evaluate", "learning", "loss", "mechanism", "planning", "release", "tracking")
PACKAGES = ["geoblanket", *(f"geoblanket.{name}" for name in NAMES)]
ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_listed_sorted_and_importable(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__ == sorted(module.__all__)
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_hides_a_public_name(package: str) -> None:
    module = importlib.import_module(package)
    assert not {found.name for found in pkgutil.iter_modules(module.__path__)} & set(module.__all__)


def test_public_surface_is_locked() -> None:
    """Changing this list is a decision about what users may rely on: note it in CHANGELOG.md."""
    assert vars(geoblanket)["__all__"] == [
        "Budget",
        "BudgetError",
        "BuildConfig",
        "Bundle",
        "BundledMechanism",
        "Certainty",
        "Certificate",
        "City",
        "Cleaning",
        "ContextProblem",
        "ContextVariable",
        "Device",
        "Discovery",
        "DiscoveryOptions",
        "Fence",
        "Fences",
        "Fleet",
        "GeoblanketError",
        "GuaranteeViolation",
        "InputError",
        "LatticeBundle",
        "Ledger",
        "LedgerError",
        "MapMatcher",
        "MatchOptions",
        "Mechanism",
        "MechanismError",
        "Metric",
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
        "Reading",
        "RefusedError",
        "Report",
        "RoadGraph",
        "SampleTable",
        "TablePredictor",
        "Tracker",
        "TrainingBudget",
        "TrainingLedger",
        "Trust",
        "Walks",
        "Wishes",
        "ZoneBundle",
        "Zones",
        "build_bundle",
        "certainty",
        "choose_places",
        "contextual_problem",
        "discover",
        "discover_table",
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
        "train_table",
        "verify",
    ]


def test_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == geoblanket.__version__
    assert f"version: {geoblanket.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {geoblanket.__version__}" in (ROOT / "CHANGELOG.md").read_text()
