from __future__ import annotations

from pathlib import Path

import pytest

from geoblanket.errors import ParameterError
from geoblanket.mechanism.bundle.file import next_version
from tests.mechanism.bundles import save_located


def test_a_new_bundle_is_the_first_or_what_was_asked_for(tmp_path: Path) -> None:
    assert next_version(tmp_path / "new.bundle") == 1
    assert next_version(tmp_path / "new.bundle", 0) == 0
    (tmp_path / "notes.txt").write_text("no bundle")
    assert next_version(tmp_path / "notes.txt") == 1


def test_a_bundle_that_replaces_another_goes_beyond_it(tmp_path: Path) -> None:
    path = save_located(tmp_path / "city.bundle", version=3)
    assert next_version(path) == 4
    assert next_version(path, 9) == 9
    for asked in (3, 2):
        with pytest.raises(ParameterError, match=rf"greater than 3, .*city\.bundle.* Got {asked} .*for 4\."):
            next_version(path, asked)
    path.write_bytes(path.read_bytes()[:-1])
    assert next_version(path) == 1
