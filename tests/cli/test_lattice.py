"""`geoblanket lattice`, and the commands that take its bundles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geoblanket import certainty
from geoblanket.cli.main import app
from geoblanket.errors import MismatchError
from tests.mechanism.bundles import load_lattice
from tests.release.test_lattice_bulk import save_traces
from tests.roads.graphs import grid_graph


def run(*arguments: object) -> tuple[int, str, str, BaseException | None]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr, result.exception


def talk_of(bundle: Path) -> str:
    return run("verify", bundle)[1]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lattice") / "city.bundle"
    code, _, talk, _ = run("lattice", "--center", "41.15,-8.61,3", "--epsilon", 20, "--out", path, "--set", "cell_m=20")
    assert code == 0, talk
    assert "A stay costs one report, however long: a recipient of all reports is about 100 m off (20 per km)." in talk
    assert "after a month 16 m (600 per km). A fence of 1 km keeps a home about 570 m off" in talk
    assert "7.4 at 100 m" in talk
    return path


def test_the_area_is_within_the_frame(bundle: Path) -> None:
    lattice = load_lattice(bundle).lattice
    assert lattice.hold_m == 50
    for lat, lon in ((41.15 - 0.026, -8.61), (41.15 + 0.026, -8.61), (41.15, -8.645), (41.15, -8.575)):
        assert lattice.spec.plane.holds(lat, lon)


def test_verify_show_and_report_take_it(bundle: Path, tmp_path: Path) -> None:
    code, text, talk, _ = run("verify", bundle)
    assert code == 0, talk
    assert text.startswith(f"OK: {bundle}: 1 mechanism, a lattice of ")
    assert "Every report discloses when a report was made" in run("verify", bundle, "--verbose")[1]
    assert "no device accepts" not in talk
    code, text, _, _ = run("show", bundle, "--picture", tmp_path / "a.png")
    assert code == 0
    assert "20 m" in text
    assert (tmp_path / "a.png").stat().st_size > 10_000
    code, text, _, _ = run("show", bundle, "--json")
    facts = json.loads(text)
    assert facts["lattice"]["epsilon_per_km"] == 20
    assert facts["lattice"]["hold_m"] == 50
    assert "a stay costs one report; disclosed: when a report was made, and when the vehicle rests" in talk_of(bundle)
    assert facts["lattice"]["area"]["south"] < 41.15 < facts["lattice"]["area"]["north"]
    grid_graph(5, 5).save(tmp_path / "elsewhere.roads")
    code, _, _, error = run("report", bundle, "--out", tmp_path / "report", "--roads", tmp_path / "elsewhere.roads")
    assert code == 1
    assert isinstance(error, MismatchError)
    assert "elsewhere.roads reaches beyond the frame, which lies from 41.1" in str(error)
    code, _, talk, _ = run("report", bundle, "--out", tmp_path / "report")
    assert code == 0, talk
    assert "A stay costs one report, however long" in (tmp_path / "report" / "report.html").read_text("utf-8")


def test_how_sure_anyone_can_be(bundle: Path) -> None:
    """A stay that is held is one report, and a month of them 30; on the road every report counts."""
    lattice = load_lattice(bundle)
    for options, reports, held in (
        ((), 1, True),
        (("--for", "30d"), 30, True),
        (("--trip",), 120, False),
        (("--trip", "--for", "90s", "--apart", 20), 3, False),
    ):
        facts = json.loads(run("certainty", bundle, *options, "--json")[1])
        assert (facts["reports"], facts["held"]) == (reports, held)
        found = certainty(lattice, apart_m=facts["apart_m"], reports=reports)
        assert facts["right"] == found.right
        assert facts["added_up_per_km"] == 20 * reports
        assert facts["epsilon_at_delta_1e-6"] <= 20 * reports * (facts["apart_m"] + 1.44) / 1000
        said = run("certainty", bundle, *options)[1]
        assert said.startswith(f"{found.in_words()}, after ")
        # Half of the fence's δ above chance: the share of its disc that another one, 100 m away, does not cover.
        if held:
            assert facts["right_inside_a_fence"] == pytest.approx(0.5 + 0.066 / 2, abs=0.005)
            assert "Inside a fence of 1 km: right 54 times in 100, once for life" in said
        else:
            assert facts["right_inside_a_fence"] is None
    for wrong in ("1", "h", "0h", "1.2.3h", "-1h", "3 weeks"):
        assert "--for must be a time such as" in str(run("certainty", bundle, "--for", wrong)[3])


def test_a_policy_is_heard(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("largest_epsilon = 4")
    code, text, _, _ = run("verify", bundle, "--policy", tmp_path / "policy.toml")
    assert code == 1
    assert text.startswith("NOT OK: ")
    assert "its ε is 20 per km, more than 4" in text


def test_an_area_of_roads_and_json(tmp_path: Path) -> None:
    grid_graph(5, 5).save(tmp_path / "city.roads")
    code, text, _, _ = run(
        "lattice", "--roads", tmp_path / "city.roads", "--epsilon", 20, "--set", "cell_m=20", "--set", "hold_m=0",
        "--json", "--out", tmp_path / "a.bundle",
    )  # fmt: skip
    assert code == 0
    facts = json.loads(text)
    assert (facts["hold_m"], facts["roads"]) == (0, "city.roads")
    assert any("Every report at rest is a new draw" in sentence for sentence in facts["meaning"])
    code, _, talk, _ = run(
        "report", tmp_path / "a.bundle", "--out", tmp_path / "report", "--roads", tmp_path / "city.roads"
    )
    assert code == 0, talk
    page = (tmp_path / "report" / "report.html").read_text("utf-8")
    assert facts["where"] in page
    assert "city.roads" in page


def test_a_summary_says_where_the_frame_is(bundle: Path, tmp_path: Path) -> None:
    """Somebody who exchanged latitude and longitude sees it."""
    code, text, talk, _ = run(
        "lattice", "--center", "-8.61,41.15,3", "--epsilon", 20, "--out", tmp_path / "a.bundle",
        "--set", "cell_m=20",
    )  # fmt: skip
    assert code == 0, talk
    where = "8.642° S 41.118° E to 8.578° S 41.182° E"
    assert f"The frame lies from {where} (latitude first)." in talk
    for corner in where.split(" to "):
        assert corner in text
    where = "41.118° N 8.652° W to 41.182° N 8.568° W"
    assert where in run("verify", bundle)[1]
    assert json.loads(run("show", bundle, "--json")[1])["lattice"]["where"] == where
    for corner in where.split(" to "):
        assert corner in run("show", bundle)[1]


def test_a_lattice_that_devices_refuse_says_which_policy_they_need(tmp_path: Path) -> None:
    options = ("lattice", "--epsilon", 0.07, "--center", "41,-8", "--out", tmp_path / "a.bundle")
    code, _, talk, _ = run(*options)
    assert code == 0, talk
    assert "Devices refuse this bundle by default." in talk
    assert "rounds a coordinate by up to 14.2 m, more than 10 m (largest_rounding_m)" in talk
    assert run("verify", tmp_path / "a.bundle")[0] == 1
    (tmp_path / "policy.toml").write_text("largest_rounding_m = 14.2")
    assert run("verify", tmp_path / "a.bundle", "--policy", tmp_path / "policy.toml")[0] == 0


def test_perturb_warns_of_locations_far_away(bundle: Path, tmp_path: Path) -> None:
    points = [(41.15, -8.61)] * 3 + [(-8.61, 41.15)] * 2 + [(48.2, 16.4)]
    lat, lon = zip(*points, strict=True)
    save_traces(tmp_path / "t.parquet", vehicle=["a"] * 6, trip=[0] * 6, time=range(0, 180, 30), lat=lat, lon=lon)
    code, text, talk, _ = run("perturb", bundle, "--traces", tmp_path / "t.parquet", "--out", tmp_path / "o", "--json")
    assert code == 0, talk
    assert (json.loads(text)["points_outside"], json.loads(text)["points_exchanged"]) == (3, 2)
    assert "Warning: 3 of 6 reports were made outside the bundle's frame, from 41.1" in talk
    assert "Warning: latitude and longitude seem to be exchanged in 2 of them." in talk
    lines = "".join(
        f'{{"lat": {lat}, "lon": {lon}, "time": {1_719_792_000 + 30 * step}}}\n'
        for step, (lat, lon) in enumerate(points)
    )
    done = CliRunner().invoke(
        app, ["perturb", str(bundle), "--stream", "--set", "replay=true", "--set", "budget=1000"], input=lines + "{}\n"
    )
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 7
    assert "arning" not in done.stdout
    exchanged, outside = "Latitude and longitude seem to be exchanged: ", "This location lies outside the area of "
    told = done.stderr.splitlines()
    assert [sum(words in line for line in told) for words in (exchanged, outside)] == [2, 2]
    assert told[0].startswith(f"Warning: {exchanged}")
    assert told[-2].startswith(f"Warning for 2 reports in total: {exchanged}")
    assert told[-1].startswith(f"Warning for 1 report in total: {outside}")
    for hidden in ("8.61", "41.15", "48.2", "16.4"):
        assert hidden not in talk + done.stderr


@pytest.mark.parametrize(("options", "words"), [
    (("--epsilon", 2), "one of --roads"),
    (("--epsilon", 2, "--area", "1,2,3,4", "--center", "1,2"), "one of --roads"),
    (("--epsilon", 2, "--area", "1,2,3"), "SOUTH,WEST,NORTH,EAST"),
    (("--epsilon", 2, "--area", "41,x,42,3"), "SOUTH,WEST,NORTH,EAST"),
    (("--epsilon", 2, "--area", "42,1,41,2"), "ends south"),
    (("--epsilon", 2, "--area", "88,1,89,2"), "85°"),
    (("--epsilon", 2, "--area", "36,-9,44,3"), "more than 67,108,864"),
    (("--epsilon", 0, "--center", "41,-8"), "ε must be"),
    (("--epsilon", 1e6, "--center", "41,-8"), "ε must be"),
    (("--epsilon", "nan", "--center", "41,-8"), "ε must be"),
    (("--epsilon", 0.001, "--center", "41,-8"), "ε must be"),
    (("--epsilon", 30, "--center", "41,-8"), "from 0.01 to 20 per km. Got 30 instead. Devices refuse"),
    (("--epsilon", 4, "--set", "hold_m=501", "--center", "41,-8,2"), "hold_m must be 0 to 500 m"),
    (("--epsilon", 2, "--area", "30,1,60,80"), "wide where"),
    (("--epsilon", 2, "--center", "41,-8", "--set", "cell_m=5000"), "fewer than 100"),
    (("--epsilon", 2, "--center", "41,-8,100", "--set", "cell_m=3000"), "too coarse"),
    (("--epsilon", 2, "--center", "41,-8,0"), "radius"),
    (("--epsilon", 2, "--center", "89.5,-8"), "pole"),
    (("--epsilon", 4, "--center", "41,-8,2", "--set", "hold_m=nan"), "hold_m must be"),
    (("--epsilon", 4, "--center", "41,-8,2", "--set", "hold_m=0.4"), "at least the 1 m"),
])  # fmt: skip
def test_bad_input_is_refused_in_words(tmp_path: Path, options: tuple[object, ...], words: str) -> None:
    code, _, _, error = run("lattice", *options, "--out", tmp_path / "a.bundle")
    assert code == 1
    assert words in str(error)
    assert not (tmp_path / "a.bundle").exists()


def test_epsilon_has_no_default(tmp_path: Path) -> None:
    code, _, talk, _ = run("lattice", "--center", "41,-8", "--out", tmp_path / "a.bundle")
    assert code == 2
    assert "--epsilon" in talk
