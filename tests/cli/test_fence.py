"""`geoblanket fence`: a place goes in by a prompt or standard input, and comes out nowhere."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from geoblanket.cli.main import app
from geoblanket.errors import GeoblanketError
from geoblanket.release import Ledger
from geoblanket.release.fence import MOST_FENCES, Fence, Fences, read_fences
from tests.release.lattices import START, save_small

LAT, LON = 41.1051237, -8.5931529
PLACE = f"{LAT}, {LON}\n"
OLD = Path(__file__).parents[1] / "release" / "old"


def run(*arguments: object, place: str = "") -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=place)


def add(ledger: Path, *options: object, place: str = PLACE) -> Any:
    return run("fence", "add", "--ledger", ledger, "--radius-km", 1, *options, place=place)


def listed(ledger: Path) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = json.loads(run("fence", "list", "--ledger", ledger, "--json").stdout)["fences"]
    return result


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "car.ledger"
    assert run("ledger", "create", path, "--budget", 100, "--window", 3600).exit_code == 0
    return path


def test_a_place_becomes_a_fence_that_stays_with_the_ledger(ledger: Path) -> None:
    done = add(ledger)
    assert done.exit_code == 0, done.output
    assert "counts as the centre from now on" in done.stderr
    assert "stays about 570 m off, after any number of nights" in done.stderr
    (fence,) = listed(ledger)
    assert (fence["number"], fence["name"], fence["radius_m"], fence["in_use"]) == (1, "home", 1302, True)
    opened = Ledger.open(ledger)
    assert opened.fences[0].holds(LAT, LON)
    opened.close()
    assert "radius 1,302 m" in run("fence", "list", "--ledger", ledger).stdout


def test_a_prompt_asks_for_the_place_on_a_terminal(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(text: str, *, err: bool) -> str:
        asked.append(text)
        assert err
        return f"{LAT} {LON}"

    monkeypatch.setattr("geoblanket.cli.device.typer.prompt", answer)
    monkeypatch.setattr("geoblanket.cli.device._is_terminal", lambda: True)
    assert add(ledger, place="").exit_code == 0
    assert asked == ["Latitude and longitude of the place, degrees (not kept)"]
    assert len(listed(ledger)) == 1


def test_the_place_is_in_no_file_no_output_and_no_argument(ledger: Path, tmp_path: Path) -> None:
    """All commands in processes of their own, as people run them."""
    bundle = save_small(tmp_path / "city.bundle", hold_m=50)
    out = tmp_path / "fences.json"
    line = json.dumps({"lat": LAT, "lon": LON, "time": START}) + "\n"
    commands: list[tuple[list[object], str]] = [
        (["fence", "add", "--ledger", ledger, "--radius-km", 1], PLACE),
        (["fence", "list", "--ledger", ledger], ""),
        (["fence", "export", "--ledger", ledger, "--out", out], ""),
        (["perturb", bundle, "--stream", "--set", "replay=true", "--set", "budget=100", "--fences", out], line),
        (["fence", "remove", "home", "--ledger", ledger], ""),
    ]
    told = ""
    for words, given in commands:
        done = subprocess.run(
            [sys.executable, "-m", "geoblanket", *map(str, words)],
            input=given, capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
        told += done.stdout + done.stderr + " ".join(map(str, done.args))
    assert '"cell":' in told
    kept = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()) if path.is_file())
    # The centre may be told. It is drawn so near that it is sometimes the same to four or five decimals.
    (fence,) = read_fences(out)
    told = told.replace(f"{fence.lat_e7 / 1e7:.5f}, {fence.lon_e7 / 1e7:.5f}", "the centre")
    rounded = [f"{value:.{digits}f}" for value in (LAT, LON) for digits in range(4, 8)]
    for secret in ("411051237", "85931529", *rounded):
        whole = re.compile(rf"{re.escape(secret)}(?!\d)")
        assert not whole.search(told)
        assert not whole.search(kept.decode("latin-1"))
    for number in (411_051_237, -85_931_529):
        assert not any(
            number.to_bytes(size, order, signed=True) in kept for size in (4, 8) for order in ("little", "big")
        )


def test_the_same_place_has_one_fence(ledger: Path) -> None:
    add(ledger)
    again = add(ledger, "--name", "second")
    assert again.exit_code == 1
    assert "A fence holds this place already." in str(again.exception)
    assert len(listed(ledger)) == 1
    assert str(LAT) not in str(again.exception)


def test_a_former_centre_comes_back(ledger: Path) -> None:
    add(ledger)
    (before,) = listed(ledger)
    removed = run("fence", "remove", "home", "--ledger", ledger)
    assert "reports now disclose something about that place" in removed.stderr
    assert [fence["in_use"] for fence in listed(ledger)] == [False]
    assert "not in use" in run("fence", "list", "--ledger", ledger).stdout
    back = add(ledger, "--name", "other", "--margin-m", 100)
    assert back.exit_code == 0, back.output
    assert "This place already had the fence 'home'. It is in use again, with its old centre and radius." in back.stderr
    assert listed(ledger) == [before]
    assert run("fence", "remove", "work", "--ledger", ledger).exit_code == 1


def test_fences_move_to_another_device(ledger: Path, tmp_path: Path) -> None:
    add(ledger)
    file, phone = tmp_path / "fences.json", tmp_path / "phone.ledger"
    assert run("fence", "export", "--ledger", ledger, "--out", file).exit_code == 0
    assert file.stat().st_mode & 0o077 == 0
    run("ledger", "create", phone, "--budget", 100, "--window", 3600)
    for _ in range(2):  # twice is once
        done = run("fence", "import", file, "--ledger", phone)
        assert done.exit_code == 0, done.output
        assert listed(phone) == listed(ledger)
    # Another draw for the same place would show where the two overlap.
    other = tmp_path / "other.json"
    other.write_text(Fences([Fence.draw(LAT, LON, radius_km=0.2, name="else")]).as_json())
    refused = run("fence", "import", other, "--ledger", phone)
    assert "may be for one place" in str(refused.exception)
    assert listed(phone) == listed(ledger)


@pytest.mark.parametrize(
    "place", ["", "\n", "41.1\n", "41.1, -8.5, 3\n", "x, y\n", "nan, nan\n", "91, 0\n", "84, 1\n", "7.7,\n"]
)
def test_what_is_no_place_is_refused_and_not_repeated(ledger: Path, place: str) -> None:
    done = add(ledger, place=place)
    assert done.exit_code == 1
    assert isinstance(done.exception, GeoblanketError)
    assert not place.strip() or place.strip() not in str(done.exception)
    assert listed(ledger) == []


@pytest.mark.parametrize(("options", "words"), [
    (("--radius-km", 0), "The radius of a fence must be .1 to 10 km. Got 0 km instead."),
    (("--radius-km", 40_000), "must be .1 to 10 km"),
    (("--radius-km", "nan"), "must be .1 to 10 km"),
    (("--radius-km", -1), "must be .1 to 10 km"),
    (("--margin-m", "inf"), "The margin of a fence must be 0 to 2,000 m."),
    (("--margin-m", -5), "must be 0 to 2,000 m"),
    (("--name", ""), "1 to 60 printable characters"),
    (("--name", "a\nb"), "1 to 60 printable characters"),
])  # fmt: skip
def test_bad_options_are_refused_in_words(ledger: Path, options: tuple[object, ...], words: str) -> None:
    done = add(ledger, *options)
    assert done.exit_code == 1
    assert words in str(done.exception)
    assert listed(ledger) == []


def test_a_hundred_fences_are_too_many(ledger: Path, tmp_path: Path) -> None:
    some = [Fence.draw(30 + 0.5 * n, 7.0, radius_km=0.1, name=f"place {n}") for n in range(100)]
    file = tmp_path / "fences.json"
    file.write_text(Fences(some[:MOST_FENCES]).as_json())
    assert run("fence", "import", file, "--ledger", ledger).exit_code == 0
    one_more = add(ledger)
    assert one_more.exit_code == 1
    assert f"A vehicle can have {MOST_FENCES} fences" in str(one_more.exception)
    text = json.loads(file.read_text())
    text["fences"] = [json.loads(Fences([fence]).as_json())["fences"][0] for fence in some]
    file.write_text(json.dumps(text))
    refused = run("perturb", save_small(tmp_path / "a.bundle"), "--stream", "--set", "budget=9", "--fences", file)
    assert refused.exit_code == 1
    assert f"A vehicle can have {MOST_FENCES} fences" in str(refused.exception)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"format": 9, "fences": []}', b"[" * 100_000])
def test_what_is_no_list_of_fences_is_refused(ledger: Path, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "fences.json"
    file.write_bytes(content)
    for command in (("fence", "import", file, "--ledger", ledger), ("perturb", file, "--stream", "--fences", file)):
        done = run(*command)
        assert done.exit_code == 1
        assert isinstance(done.exception, GeoblanketError)
    assert "cannot be read" in str(run("fence", "import", tmp_path / "none", "--ledger", ledger).exception)
    assert listed(ledger) == []


def test_a_ledger_of_version_0_2_takes_fences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"sixteen bytes!!!")
    monkeypatch.setenv("GEOBLANKET_LEDGER_KEY", str(key))
    for file in ("format3.ledger", "format3.ledger.count"):
        shutil.copy(OLD / file, tmp_path / file)
    path = tmp_path / "format3.ledger"
    added = add(path)
    assert added.exit_code == 0, added.exception
    opened = Ledger.open(path, device_key=key.read_bytes())
    assert opened.fences.names == ("home",)
    opened.close()


def test_a_stream_uses_the_fences_of_a_file(tmp_path: Path) -> None:
    """At a huge ε a report is where the vehicle counts as: in the cell of the centre, wherever in the fence it is."""
    from geoblanket.build.city_lattice import make_lattice

    make_lattice((LAT, LON, 4), tmp_path / "a.bundle", epsilon=20, cell_m=20, hold_m=0)
    fences = Fences([Fence.draw(LAT, LON, radius_km=2)])
    (tmp_path / "f.json").write_text(fences.as_json())
    assert read_fences(tmp_path / "f.json") == fences
    lines = "".join(json.dumps({"lat": LAT, "lon": LON, "time": START + 30 * n}) + "\n" for n in range(60))
    done = run(
        "perturb", tmp_path / "a.bundle", "--stream", "--set", "replay=true", "--set", "budget=5000",
        "--set", "hold_in_memory=true", "--fences", tmp_path / "f.json", place=lines,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    mean = [sum(answer[name] for answer in answers) / 60 for name in ("lat", "lon")]
    # 60 reports of ε = 20 average out to 15 m; within 100 m with certainty.
    assert abs(mean[0] - fences[0].lat_e7 / 1e7) < 0.0009
    assert abs(mean[1] - fences[0].lon_e7 / 1e7) < 0.0012
