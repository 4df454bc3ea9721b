from __future__ import annotations

import pytest

from tests.lab.evaluate.towns import Town, make_town


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    return make_town(tmp_path_factory.mktemp("town"))
