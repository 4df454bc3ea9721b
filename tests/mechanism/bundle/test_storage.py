from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from geoblanket.errors import GuaranteeViolation, InputError, ParameterError
from geoblanket.mechanism.bundle.storage import ZoneBundle, load_for_release, next_version
from tests.mechanism.bundles import load_zones, save_located, save_plain
from tests.release.worlds import save_certain


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


def test_a_known_file_has_the_tables_that_it_had_when_it_was_verified(tmp_path: Path) -> None:
    path = save_certain(tmp_path / "a.bundle")
    bundle = load_zones(path)
    asked: list[str] = []

    def known(sha256: str) -> bool:
        asked.append(sha256)
        return True

    for tables in (load_for_release(path, is_known=known), load_for_release(path)):
        assert isinstance(tables, ZoneBundle)
        assert (tables.version, tables.domain, tables.sha256) == (bundle.version, bundle.domain, bundle.sha256)
        assert (tables.clock, tables.disclosed) == (bundle.clock, bundle.disclosed)
        assert np.array_equal(tables.places_e7, bundle.places_e7)
        assert len(tables) == len(bundle)
        for table, bundled in zip(tables, bundle, strict=True):
            assert (table.zone, table.regime) == (bundled.zone, bundled.regime)
            assert table.epsilon_micro == bundled.mechanism.epsilon_micro
            assert table.history_weights_micro == bundled.history_weights_micro
            for mine, theirs in (
                (table.mechanism.weights, bundled.mechanism.weights),
                (table.histories, bundled.histories),
                (table.history_rows, bundled.history_rows),
                (table.output_places, bundled.output_places),
            ):
                assert np.array_equal(mine, theirs)
        with pytest.raises(ValueError, match="WRITEABLE"):
            tables.mechanisms[0].mechanism.weights.flags.writeable = True
    assert asked == [bundle.sha256]


def test_a_damaged_file_is_refused_even_if_its_hash_were_known(tmp_path: Path) -> None:
    path = save_plain(tmp_path / "a.bundle")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises((InputError, GuaranteeViolation)):
        load_for_release(path, is_known=lambda _: True)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_for_release(tmp_path / "absent")
    path = save_plain(tmp_path / "a.bundle")
    size = path.stat().st_size
    with pytest.raises(InputError, match=f"more than the {size - 1} allowed"):
        load_for_release(path, largest_bytes=size - 1)
    assert load_for_release(path, largest_bytes=size)
