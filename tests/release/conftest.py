from __future__ import annotations

from pathlib import Path

import pytest

from geoblanket.mechanism import Bundle, load_bundle
from tests.release.lattices import save_small
from tests.release.worlds import save_certain


@pytest.fixture(scope="session")
def town_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle whose reports are all but certain: each costs 40 per km."""
    return save_certain(tmp_path_factory.mktemp("town") / "town.bundle")


@pytest.fixture(scope="session")
def town(town_path: Path) -> Bundle:
    return load_bundle(town_path)


@pytest.fixture(scope="session")
def spread_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a small ε, which reports any place of the zone: each report costs 4 per km."""
    return save_certain(tmp_path_factory.mktemp("spread") / "spread.bundle", epsilon=2.0)


@pytest.fixture(scope="session")
def spread(spread_path: Path) -> Bundle:
    return load_bundle(spread_path)


@pytest.fixture(scope="session")
def lattice_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a small lattice: a draw costs 2 per km, and nothing is held."""
    return save_small(tmp_path_factory.mktemp("lattice") / "small.bundle")


@pytest.fixture(scope="session")
def lattice_bundle(lattice_path: Path) -> Bundle:
    return load_bundle(lattice_path)
