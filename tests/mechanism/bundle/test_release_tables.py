from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from geoblanket.errors import GuaranteeViolation, InputError
from geoblanket.mechanism import load_bundle
from geoblanket.mechanism.bundle.release_tables import ReleaseTables
from tests.mechanism.bundles import save_plain
from tests.release.worlds import save_certain


def test_a_known_file_has_the_tables_that_it_had_when_it_was_verified(tmp_path: Path) -> None:
    path = save_certain(tmp_path / "a.bundle")
    bundle = load_bundle(path)
    asked: list[str] = []

    def known(sha256: str) -> bool:
        asked.append(sha256)
        return True

    for tables in (ReleaseTables.read(path, is_known=known), ReleaseTables.read(path), ReleaseTables.of(bundle)):
        assert (tables.version, tables.domain, tables.sha256) == (bundle.version, bundle.domain, bundle.sha256)
        assert (tables.clock, tables.disclosed) == (bundle.clock, bundle.disclosed)
        assert np.array_equal(tables.places_e7, bundle.places_e7)
        assert len(tables.tables) == len(bundle)
        for table, bundled in zip(tables.tables, bundle, strict=True):
            assert (table.zone, table.regime) == (bundled.zone, bundled.regime)
            assert table.epsilon_micro == bundled.mechanism.epsilon_micro
            assert table.history_weights_micro == bundled.history_weights_micro
            for mine, theirs in (
                (table.weights, bundled.mechanism.weights),
                (table.histories, bundled.histories),
                (table.history_rows, bundled.history_rows),
                (table.output_places, bundled.output_places),
            ):
                assert np.array_equal(mine, theirs)
        with pytest.raises(ValueError, match="WRITEABLE"):
            tables.tables[0].weights.flags.writeable = True
    assert asked == [bundle.sha256]


def test_a_damaged_file_is_refused_even_if_its_hash_were_known(tmp_path: Path) -> None:
    path = save_plain(tmp_path / "a.bundle")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises((InputError, GuaranteeViolation)):
        ReleaseTables.read(path, is_known=lambda _: True)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        ReleaseTables.read(tmp_path / "absent")
    path = save_plain(tmp_path / "a.bundle")
    size = path.stat().st_size
    with pytest.raises(InputError, match=f"more than the {size - 1} allowed"):
        ReleaseTables.read(path, largest_bytes=size - 1)
    assert ReleaseTables.read(path, largest_bytes=size).tables
