from __future__ import annotations

import pytest

from geoblanket.mechanism import load_bundle
from geoblanket.mechanism.bundle.storage import Bundle
from tests.service.city_lattices import save_city


@pytest.fixture(scope="session")
def city(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A lattice without an anchor, ε = 4 per km."""
    return load_bundle(save_city(tmp_path_factory.mktemp("city") / "city.bundle", anchor=False))


@pytest.fixture(scope="session")
def anchored(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load_bundle(save_city(tmp_path_factory.mktemp("anchored") / "city.bundle"))
