from __future__ import annotations

import tomllib
from pathlib import Path

import geoblanket

ROOT = Path(__file__).parents[1]


def test_every_public_name_is_listed_sorted_and_importable() -> None:
    assert geoblanket.__all__ == sorted(geoblanket.__all__)
    for name in geoblanket.__all__:
        assert getattr(geoblanket, name) is not None
    assert set(geoblanket._HOME) < set(geoblanket.__all__)


def test_public_surface_is_locked() -> None:
    """Changing this list is a decision about what users may rely on: note it in CHANGELOG.md."""
    assert geoblanket.__all__ == [
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


def test_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == geoblanket.__version__
    assert f"version: {geoblanket.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {geoblanket.__version__}" in (ROOT / "CHANGELOG.md").read_text()
