"""A whole build with a second stage: bundle, record, costs and report."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from geoblanket.build import zone_task
from geoblanket.build.building import build_bundle
from geoblanket.build.config import BuildConfig
from geoblanket.build.record import BuildRecord, read_record, record_path
from geoblanket.build.refinement import split_rows
from geoblanket.build.report import write_build_report
from geoblanket.errors import ParameterError
from geoblanket.mechanism.bundle.storage import load_bundle
from tests.towns import Town, make_town

PLAIN = BuildConfig(
    epsilon=4.0, order=1, history_weights=(1.0, 0.5), max_places=14, max_rows=20, gap=0.05, loss="straight"
)
REFINED = PLAIN.replaced(refine=1)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    return make_town(tmp_path_factory.mktemp("town"))


@pytest.fixture(scope="module")
def plain(town: Town) -> Path:
    out = town.folder / "plain.bundle"
    build_bundle(town.roads, town.walks, out, config=PLAIN, workers=1)
    return out


@pytest.fixture(scope="module")
def refined(town: Town) -> tuple[Path, BuildRecord]:
    out = town.folder / "refined.bundle"
    return out, build_bundle(town.roads, town.walks, out, config=REFINED, workers=1)


def test_refined_zones_are_verified_and_recorded_like_others(plain: Path, refined: tuple[Path, BuildRecord]) -> None:
    out, record = refined
    before = read_record(record_path(plain))
    bundle = load_bundle(out)
    assert read_record(record_path(out)) == record
    used = [zone for zone in record.zones if zone.refinement is not None and zone.refinement.used]
    assert used
    for zone, first in zip(record.zones, before.zones, strict=True):
        stage = zone.refinement
        assert (zone.zone, zone.regime) == (first.zone, first.regime)
        if zone.regime == "start" or stage is None or not stage.used:
            assert (zone.loss, zone.lower_bound, zone.rows) == (first.loss, first.lower_bound, first.rows)
            continue
        assert (stage.lower_bound, stage.loss) == (zone.lower_bound, zone.loss)
        assert stage.lower_bound <= stage.least_loss <= stage.loss < stage.loss_before
        assert stage.marginal_error < 1e-5
        assert zone.gap == pytest.approx(1 - stage.lower_bound / stage.loss)
        mechanism = bundle.get(zone.zone, zone.regime)
        assert mechanism.mechanism.row_count == zone.rows.rows == stage.rows > first.rows.rows
        assert mechanism.history_weights_micro == (1_000_000, 500_000)
        assert mechanism.mechanism.epsilon == 4.0
    together = record.refinement
    assert together is not None
    assert 0 < together.gain <= together.least_gain < 1


def test_one_more_place_counts_in_the_budget(plain: Path, refined: tuple[Path, BuildRecord]) -> None:
    out, record = refined
    assert read_record(record_path(plain)).costs.other == 8_000_000
    assert record.costs.other == load_bundle(out).costs.other == 10_000_000


def test_the_same_inputs_give_the_same_bytes(town: Town, refined: tuple[Path, BuildRecord], tmp_path: Path) -> None:
    build_bundle(town.roads, town.walks, tmp_path / "again.bundle", config=REFINED, workers=2)
    assert (tmp_path / "again.bundle").read_bytes() == refined[0].read_bytes()


def test_where_it_does_not_fit_the_first_stage_stays(
    town: Town, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zone_task, "split_rows", partial(split_rows, most_rows=20))
    record = build_bundle(town.roads, town.walks, tmp_path / "a.bundle", config=REFINED, workers=1)
    assert (tmp_path / "a.bundle").read_bytes() == plain.read_bytes()
    assert record.refinement is None
    for zone in record.zones:
        told = [note for note in zone.notes if note.startswith("the first stage stays: ")]
        assert len(told) == (0 if zone.regime == "start" else 1)
        assert all("more than 20" in note for note in told)


def test_without_context_the_first_stage_is_what_is_compared_with(town: Town, tmp_path: Path) -> None:
    config = PLAIN.replaced(context="none", order=None, refine=1, compare=True)
    record = build_bundle(town.roads, town.walks, tmp_path / "a.bundle", config=config, workers=1)
    gained = [zone for zone in record.zones if zone.refinement is not None and zone.refinement.used]
    assert gained
    for zone in gained:
        assert zone.held_out is not None
        assert zone.context_free_held_out is not None
        assert zone.history_weights == (1.0,)
        assert zone.held_out.loss != zone.context_free_held_out.loss


def test_the_report_compares_the_stages(town: Town, refined: tuple[Path, BuildRecord], tmp_path: Path) -> None:
    page = write_build_report(refined[0], town.roads, tmp_path).read_text(encoding="utf-8")
    assert "The second stage" in page
    stage = next(zone.refinement for zone in refined[1].zones if zone.refinement is not None)
    for loss in (stage.loss_before, stage.loss, stage.least_loss, stage.lower_bound):
        assert f"{loss:.4g}" in page


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"history_weights": (1.0,)}, r"refine needs history weights for more than 1 earlier place\(s\), got 1"),
        ({"context": "full", "order": None}, "refine needs another context than full"),
        ({"refine": -1}, "refine must be"),
        ({"refine": 4}, "refine must be"),
    ],
)
def test_what_cannot_be_refined_is_told(changed: dict[str, object], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        BuildConfig(**{**dict(REFINED), **changed})
