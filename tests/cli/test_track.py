"""`geoblanket track`: tables and streams."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from geoblanket.cli.main import app
from geoblanket.mechanism import load_bundle
from geoblanket.release.fence import Fence, Fences
from tests.cli.test_lattice import run
from tests.serve.service.city_lattices import save_city
from tests.tracking.lattice_reports import SLOT, cells_near, near_model, save_cells


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("track")
    save_city(folder / "city.bundle")
    save_city(folder / "other.bundle", epsilon=3.0)
    bundle = load_bundle(folder / "city.bundle")
    near_model().save(folder / "city.model")
    near_model(at=(48.1, 11.6)).save(folder / "other.model")
    cells = cells_near(bundle, near_model(), [24] * 20)
    save_cells(folder / "released.parquet", bundle, [("a", SLOT + t, cell) for t, cell in enumerate(cells)])
    return folder


def test_a_table(folder: Path, tmp_path: Path) -> None:
    given = (folder / "city.bundle", folder / "released.parquet", "--model", folder / "city.model")
    code, text, talk, _ = run("track", *given, "--out", tmp_path / "t.parquet", "--set", "smoothed=true", "--json")
    assert code == 0, talk
    facts = json.loads(text)
    assert (facts["reports"], facts["vehicles"], facts["smoothed"]) == (20, 1, True)
    assert "They cost no privacy" in talk
    assert pl.read_parquet(tmp_path / "t.parquet").columns[-4:] == ["lat", "lon", "radius_m", "geometry"]
    code, text, talk, _ = run("track", *given, "--out", tmp_path / "later.parquet", "--set", "ahead_s=60")
    assert code == 0, talk
    assert "60 s" in text
    assert "from distances between places alone" in " ".join(text.split())


def test_places_too_far_apart_for_the_reports_are_said(folder: Path, tmp_path: Path) -> None:
    for number, (spacing_m, coarse) in enumerate(((500.0, False), ("2000", False), (2000.0, True))):
        model, path = near_model(), tmp_path / f"{number}.model"
        replace(model, learned={**model.learned, "spacing_m": spacing_m}).save(path)
        given = (folder / "city.bundle", folder / "released.parquet", "--model", path)
        code, _, talk, error = run("track", *given, "--out", tmp_path / f"{number}.parquet")
        assert code == 0, (talk, error)
        assert ("Estimates may be no nearer than reports" in talk) == coarse
        assert ("2,000 m apart" in talk) == coarse


def test_a_recipient_may_know_the_fences(folder: Path, tmp_path: Path) -> None:
    """All reports are of one place. If it is the centre of a fence, the vehicle may be anywhere inside."""
    model = near_model()
    lat_e7, lon_e7 = model.places_e7[24].tolist()
    fence = replace(Fence.draw(lat_e7 / 1e7, lon_e7 / 1e7, radius_km=2), lat_e7=lat_e7, lon_e7=lon_e7)
    (tmp_path / "fences.json").write_text(Fences([fence]).as_json())
    given = (folder / "city.bundle", folder / "released.parquet", "--model", folder / "city.model", "--json")
    radius_m = []
    for number, options in enumerate(((), ("--fences", tmp_path / "fences.json"))):
        code, text, talk, error = run("track", *given, "--out", tmp_path / f"{number}.parquet", *options)
        assert code == 0, (talk, error)
        radius_m.append(json.loads(text)["median_radius_m"])
    assert radius_m[1] > 1.5 * radius_m[0], radius_m


@pytest.mark.parametrize(("options", "words"), [
    ((), "either a table of reports or --stream"),
    (("released.parquet", "--stream"), "either a table of reports or --stream"),
    (("--stream", "--out", "t.parquet"), "are for tables"),
    (("--stream", "--set", "smoothed=true"), "are for tables"),
    (("--stream", "--set", "ahead_s=7"), "whole number of intervals"),
    (("released.parquet",), "needs --out"),
    (("released.parquet", "--out", "t.parquet", "--set", "ahead_s=5"), "whole number of intervals"),
    (("released.parquet", "--out", "t.parquet", "--set", "ahead_s=30", "--set", "smoothed=true"), "exclude each other"),
    (("absent.parquet", "--out", "t.parquet"), "no such file"),
    (("city.bundle", "--out", "t.parquet"), "not a table of released cells"),
    (("released.parquet", "--out", "t.parquet", "--model", "city.bundle"), "not a motion model"),
    (("released.parquet", "--out", "t.parquet", "--model", "other.model"), "another city"),
    (("released.parquet", "--out", "absent/t.parquet"), "does not exist"),
])  # fmt: skip
def test_bad_input_is_refused_in_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[object, ...], words: str
) -> None:
    monkeypatch.chdir(folder)
    code, _, _, error = run("track", "city.bundle", *options)
    assert code == 1
    assert words in str(error)
    assert not (folder / "t.parquet").exists()


def test_reports_of_another_bundle(folder: Path, tmp_path: Path) -> None:
    code, _, _, error = run(
        "track", folder / "other.bundle", folder / "released.parquet", "--out", tmp_path / "t.parquet"
    )
    assert code == 1
    assert "was made by another bundle" in str(error)


def streamed(folder: Path, lines: bytes, *options: object) -> tuple[list[dict[str, Any]], str]:
    command = ["track", "--stream", folder / "city.bundle", "--model", folder / "city.model", *options]
    done = CliRunner().invoke(app, [str(part) for part in command], input=lines)
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_a_stream(folder: Path) -> None:
    lines = b"".join(json.dumps({"vehicle": "a", "slot": SLOT + t, "cell": 4000}).encode() + b"\n" for t in range(5))
    found, talk = streamed(folder, lines + b"nothing\n", "--set", "ahead_s=30")
    assert [answer.get("outcome") for answer in found] == ["used"] * 5 + [None]
    assert found[5] == {"error": "input", "message": "The line is not a JSON object, or has a key twice.", "line": 6}
    assert talk == ""


def test_a_full_memory_is_said(folder: Path) -> None:
    each = 4 * len(near_model())
    count = (1 << 20) // each
    lines = [json.dumps({"vehicle": f"v{n}", "slot": SLOT, "cell": 4000}) for n in range(count + 10)]
    found, talk = streamed(folder, "\n".join(lines).encode(), "--set", "memory_mib=1", "--set", "late_slots=0")
    assert len(found) == count + 10
    assert f"Memory is full with {count:,} vehicles" in talk
    assert "10 that were silent longest were forgotten so far" in talk


def test_an_answer_comes_before_the_next_line(folder: Path) -> None:
    script = "from geoblanket.cli import main; main()"
    command = [sys.executable, "-c", script, "track", "--stream", str(folder / "city.bundle")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for step in range(3):
            process.stdin.write(json.dumps({"slot": SLOT + step, "cell": 4000}).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["outcome"] == "used"
        process.stdin.close()
        assert process.wait(120) == 0
