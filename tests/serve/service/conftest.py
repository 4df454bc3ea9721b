from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from geoblanket.serve.service.bundles import BundleStore
from tests.mechanism.bundles import save_plain
from tests.release.worlds import save_certain
from tests.serve.service.browsing import browser, open_page
from tests.serve.service.living import Live, live
from tests.towns import Town, make_town

__all__ = ["browser", "open_page"]


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a small town, with coordinates and a clock. Not to be changed."""
    return save_certain(tmp_path_factory.mktemp("town") / "town.bundle")


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle without coordinates. Not to be changed."""
    return save_plain(tmp_path_factory.mktemp("plain") / "plain.bundle")


@pytest.fixture(scope="session")
def store(town: Path, plain: Path) -> BundleStore:
    return BundleStore([town, plain])


@pytest.fixture(scope="session")
def service(store: BundleStore) -> Iterator[Live]:
    """A service without reports."""
    with live(store) as found:
        yield found


@pytest.fixture(scope="session")
def small_town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    """Roads and walks, for the web page. Not to be changed."""
    return make_town(tmp_path_factory.mktemp("small_town"))
