from __future__ import annotations

import importlib
import pkgutil
import py_compile
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import geoblanket

NAMES = ("blanket", "build", "evaluate", "learning", "loss", "mechanism", "planning", "release", "tracking")
PACKAGES = ["geoblanket", *(f"geoblanket.{name}" for name in NAMES)]
ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_listed_sorted_and_importable(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__ == sorted(module.__all__, key=lambda name: (not name.isupper(), name))
    assert set(module._HOME) <= set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_hides_a_public_name(package: str) -> None:
    module = importlib.import_module(package)
    assert not {found.name for found in pkgutil.iter_modules(module.__path__)} & set(module.__all__)


def test_names_are_found_where_only_compiled_files_are_installed(tmp_path: Path) -> None:
    source = Path(geoblanket.__file__).parent
    (tmp_path / "geoblanket").mkdir()
    for name in ("__init__", "_lazy", "errors"):
        py_compile.compile(f"{source / name}.py", f"{tmp_path}/geoblanket/{name}.pyc", doraise=True)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import geoblanket as g; print(g.__file__, g._HOME)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{tmp_path / 'geoblanket' / '__init__.pyc'} {geoblanket._HOME}"


def test_public_surface_is_locked() -> None:
    """Changing this list is a decision about what users may rely on: note it in CHANGELOG.md."""
    assert geoblanket.__all__ == [
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


def test_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == geoblanket.__version__
    assert f"version: {geoblanket.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {geoblanket.__version__}" in (ROOT / "CHANGELOG.md").read_text()
