from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mechanism import BundledMechanism, load_bundle, save_bundle
from geoblanket.release.rule import ReleaseRule
from tests.mechanism.bundles import save_plain
from tests.release.worlds import PLACES, certain, report, save_certain


def test_a_place_in_no_zone_counts_as_the_nearest_that_is_in_one(tmp_path: Path) -> None:
    rule = ReleaseRule(load_bundle(save_certain(tmp_path / "a.bundle")))
    drawn = rule.draw(np.array([[5, 2], [4, 2], [4, 5]], np.int32), "day")
    assert drawn.tolist() == [report("day", 4, 2), report("day", 4, 2), report("day", 4, 5)]
    assert rule.outside(np.array([5, 4, 0], np.int32), "day").tolist() == [True, False, False]


def test_draws_follow_the_weights(tmp_path: Path) -> None:
    """With a small ε a row has many outputs: a χ² test of 40,000 draws, at one in a million."""
    bundled = certain("day", "east", epsilon=2.0)
    save_bundle(tmp_path / "a.bundle", [bundled], version=1, places_e7=PLACES.coordinates_e7)
    rule = ReleaseRule(load_bundle(tmp_path / "a.bundle"))
    row = int(np.flatnonzero((bundled.histories == (9, 2)).all(axis=1))[0])
    drawn = rule.draw(np.tile(np.array([[9, 2]], np.int32), (40_000, 1)), "day")
    expected = bundled.mechanism.probabilities[row] * 40_000
    counts = np.bincount(np.searchsorted(bundled.output_places, drawn), minlength=len(expected))
    assert len(expected) == 8
    assert ((counts - expected) ** 2 / expected).sum() < 40.5


def test_bundles_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(MismatchError, match="has no places"):
        ReleaseRule(load_bundle(save_plain(tmp_path / "a.bundle")))
    rule = ReleaseRule(load_bundle(save_certain(tmp_path / "b.bundle")))
    with pytest.raises(MismatchError, match="no mechanism for the regime 'dusk'"):
        rule.draw(np.array([[0, 0]], np.int32), "dusk")


def test_zones_that_share_places_are_refused(tmp_path: Path) -> None:
    east = certain("start", "east")
    again = BundledMechanism.of(
        east.mechanism, zone="other", regime="start", histories=east.histories, output_places=east.output_places
    )
    with pytest.raises(ParameterError, match="zone 'east' and zone 'other' share 8 place"):
        save_bundle(tmp_path / "a.bundle", [east, again], version=1, places_e7=PLACES.coordinates_e7)
