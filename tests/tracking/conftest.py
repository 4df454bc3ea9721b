from __future__ import annotations

import pytest

from geoblanket.mechanism import load_bundle
from geoblanket.mechanism.bundle.storage import Bundle
from tests.serve.service.city_lattices import save_city


@pytest.fixture(scope="session")
def city(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A lattice without hold, ε = 4 per km."""
    return load_bundle(save_city(tmp_path_factory.mktemp("city") / "city.bundle"))


@pytest.fixture(scope="session")
def holding(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The same, with a vehicle at rest that repeats its last report."""
    return load_bundle(save_city(tmp_path_factory.mktemp("holding") / "city.bundle", hold_m=50.0))
