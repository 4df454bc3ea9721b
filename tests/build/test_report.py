from __future__ import annotations

import dataclasses
import math
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from geoblanket._display import parameter
from geoblanket.build.building import build_bundle
from geoblanket.build.config import BuildConfig
from geoblanket.build.measures import Measured
from geoblanket.build.record import BuildRecord, read_record, record_path, write_record
from geoblanket.build.report import write_build_report
from geoblanket.build.rows import Context
from geoblanket.cli.main import app
from geoblanket.errors import GuaranteeViolation, InputError, MismatchError, ParameterError, PolicyError
from geoblanket.lab.evaluate.leakage import compose
from geoblanket.mechanism.bundle.facts import BundleFacts
from geoblanket.mechanism.bundle.policy import ANYTHING
from geoblanket.mechanism.costs import Costs
from geoblanket.release import Budget, Device
from geoblanket.release.bulk import perturb_walks
from geoblanket.serve.service.bundles import guarantee_facts
from tests.mechanism.bundles import forge, load_zones
from tests.release.worlds import GRAPH, save_walks
from tests.roads.graphs import grid_graph


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with roads, walks, a bundle of two zones and its record."""
    folder = tmp_path_factory.mktemp("built")
    GRAPH.save(folder / "a.roads")
    rng = np.random.default_rng(0)
    ways = rng.integers(0, 8, (12, 8))
    save_walks(folder / "w.parquet", [ways[rng.integers(12)].tolist() for _ in range(120)])
    config = BuildConfig(
        epsilon=4.0,
        eta_km=2.0,
        history_weights=(1.0, 0.5),
        loss="straight",
        context=Context.of("order:2"),
        max_places=12,
        max_rows=400,
        gap=0.1,
        compare=True,
    )
    build_bundle(folder / "a.roads", folder / "w.parquet", folder / "a.bundle", config=config, workers=1)
    return folder


@pytest.fixture(scope="module")
def record(built: Path) -> BuildRecord:
    return read_record(record_path(built / "a.bundle"))


def text_of(page: Path) -> str:
    body = re.sub(r"<style>.*?</style>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", body)))


@pytest.fixture(scope="module")
def page(built: Path) -> Path:
    return write_build_report(built / "a.bundle", built / "a.roads", built / "report")


def test_the_page_tells_the_promise_and_every_zone(page: Path, record: BuildRecord) -> None:
    text = text_of(page)
    for words in (
        "ε = 4 per km for d ≤ η = 2 km",
        "times 1, 0.5",
        "Every report discloses the zone, the regime, and when a report was made",
        f"Verified exactly, in integers: {len(record.zones)} mechanisms",
        record.bundle_sha256,
        record.inputs["walks"],
    ):
        assert words in text
    for zone in record.zones:
        assert f"{zone.number} {zone.regime} {zone.share:.1%} {zone.loss:#.4g} {zone.gap:.2%}" in text
    for name, value in record.config["search"].items():
        assert f"{name} {parameter(value)}" in text
    assert page.read_text(encoding="utf-8").count("<img ") == 3
    assert {path.name for path in page.parent.iterdir()} == {
        "report.html",
        "a.bundle.build.json",
        *(f"{name}.{ending}" for name in ("zones", "losses", "loss-map") for ending in ("png", "svg")),
    }
    assert read_record(page.parent / "a.bundle.build.json") == record


def test_the_same_build_gives_the_same_page(built: Path, page: Path, tmp_path: Path) -> None:
    again = write_build_report(built / "a.bundle", built / "a.roads", tmp_path / "again")
    assert again.read_bytes() == page.read_bytes()


def test_the_command_writes_it(built: Path, tmp_path: Path) -> None:
    files = [str(built / "a.bundle"), "--roads", str(built / "a.roads"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["report", *files])
    assert result.exit_code == 0, result.output
    assert "report.html" in result.stderr
    assert "a.bundle</h1>" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def copied(built: Path, folder: Path) -> Path:
    for name in ("a.bundle", "a.bundle.build.json"):
        shutil.copy(built / name, folder / name)
    return folder / "a.bundle"


def test_what_does_not_belong_together_is_refused(built: Path, tmp_path: Path, record: BuildRecord) -> None:
    bundle = copied(built, tmp_path)
    write_record(dataclasses.replace(record, bundle_sha256="0" * 64), bundle)
    with pytest.raises(MismatchError, match="record of another bundle"):
        write_build_report(bundle, built / "a.roads", tmp_path / "out")
    record_path(bundle).unlink()
    with pytest.raises(InputError, match="no such file"):
        write_build_report(bundle, built / "a.roads", tmp_path / "out")
    grid_graph(4, 6, lat=42.0).save(tmp_path / "b.roads")
    with pytest.raises(MismatchError, match="other roads"):
        write_build_report(built / "a.bundle", tmp_path / "b.roads", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_bundle_edited_by_hand_is_refused_with_the_reason(built: Path, tmp_path: Path) -> None:
    """Right hashes do not help: the places tell the distances, and the integers the promise."""
    edits: list[tuple[str, type[Exception], str, int]] = [
        ("rows 0 and 1 are said to be further apart than some two histories", InputError, "distances_mm", 10**7),
        ("must not be used", GuaranteeViolation, "weights", 0),
    ]
    for problem, error, part, value in edits:
        bundle = copied(built, tmp_path)
        forge(bundle, lambda _, arrays: arrays[part].put([0], [value]))  # noqa: B023
        result = CliRunner().invoke(app, ["verify", str(bundle)])
        assert (result.exit_code, result.stdout.startswith("NOT OK: ")) == (1, True)
        assert problem in result.stdout
        with pytest.raises(error):
            write_build_report(bundle, built / "a.roads", tmp_path / "out")


def test_numbers_of_the_promise(built: Path) -> None:
    promise = load_zones(built / "a.bundle").promise
    assert dict(promise.factors()) == pytest.approx({km: math.exp(4 * km) for km in (0.1, 0.25, 0.5, 1.0, 2.0)})
    # 4·(1 + 1 + 2·0.5) per km for the first report, 4·(1 + 1 + 0.5) for each that follows.
    assert [row[:2] for row in promise.total_rows()[:3]] == [
        ("one report", "12"), ("ten reports in a row", "102"), ("an hour, one every 30 s", "1,202"),
    ]  # fmt: skip
    assert promise.factor_rows()[0] == ("0.1 km", "1.5 times")


def test_words_for_other_builds(record: BuildRecord) -> None:
    def changed(**values: Any) -> BuildRecord:
        zones = tuple(dataclasses.replace(zone, **values) for zone in record.zones)
        return dataclasses.replace(record, zones=zones)

    alone = Measured(steps=5, vehicles=1, loss=0.5, low=0.0, high=math.inf)
    assert alone.in_words("km") == "0.5000 km (one vehicle only; 5 steps)"
    assert "at most 3 different places" in changed(outputs_used=2).summary[-1]
    assert "at most 3 different places" not in " ".join(changed(outputs_used=12).summary)


def test_every_output_tells_the_same_cost(built: Path, record: BuildRecord, page: Path, tmp_path: Path) -> None:
    """ε = 4 and w = (1, 0.5): the first report of a history costs 4·(1 + 1 + 2·0.5), any other 4·(1 + 1 + 0.5)."""
    path, bundle = built / "a.bundle", load_zones(built / "a.bundle")
    assert bundle.costs == record.costs == Costs(start=12_000_000, other=10_000_000)

    # The build's page, in its table and in the verified text; and the same text from the command line.
    verified = CliRunner().invoke(app, ["verify", str(path)]).output
    assert "one report 12 " in text_of(page)
    for text in (text_of(page), re.sub(r"[\s│]+", " ", verified), str(bundle.promise)):
        assert "each costs a location up to 12 per km" in text

    # The service: the bundle, and each of its mechanisms.
    facts = BundleFacts.of(bundle, name="a", size=1)
    assert facts.epsilon_per_location_per_km == 12
    by_regime = {
        mechanism["regime"]: mechanism["epsilon_per_location_per_km"]
        for mechanism in guarantee_facts(bundle, facts)["mechanisms"]
    }
    assert by_regime == {regime: 12 if regime == "start" else 10 for regime in {zone.regime for zone in record.zones}}

    # The device and its ledger: what is left of the budget after each report.
    lat, lon = bundle.places_e7[0] * 1e-7
    with Device.open(bundle, ledger=None, budget=Budget(32, 3600), replay=True) as device:
        assert device.costs == record.costs
        assert [device.report(lat, lon, 1.7e9 + 30 * step).left for step in range(3)] == [20, 10, 0]
    with pytest.raises(ParameterError, match=r"costs up to 12 per km"):
        Device.open(bundle, ledger=None, budget=Budget(11.9, 3600), replay=True)

    # A file of walks at once, and the policy.
    summary = perturb_walks(built / "w.parquet", built / "a.roads", tmp_path / "reports.parquet", bundle=bundle)
    assert (summary.epsilon_per_location, summary.epsilon_per_hour) == (12, 1202)
    assert bundle.promise.total_rows()[2][1] == f"{summary.epsilon_per_hour:,.4g}"
    with pytest.raises(PolicyError, match=r"costs up to 12 per km, more than 11"):
        dataclasses.replace(ANYTHING, largest_cost=11).check(bundle)

    # An evaluation, whose histories are complete.
    assert compose(4.0, (1.0, 0.5), reports=10).per_location * 1e6 == record.costs.other
    assert {mechanism.epsilon_per_location for mechanism in bundle if mechanism.regime != "start"} == {10}
