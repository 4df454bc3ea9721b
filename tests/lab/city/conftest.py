from __future__ import annotations

import pytest

from geoblanket.lab.city.fleet import Walks, make_schedule, walk_blocks
from geoblanket.lab.city.model import City, make_city


@pytest.fixture(scope="session")
def small_city() -> City:
    return make_city("small", seed=0)


@pytest.fixture(scope="session")
def medium_city() -> City:
    return make_city("medium", seed=0)


@pytest.fixture(scope="session")
def walks(small_city: City) -> Walks:
    """One block of trips in the small city."""
    return next(walk_blocks(small_city, make_schedule(4000, seed=3)))
