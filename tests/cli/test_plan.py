"""`geoblanket plan`: its words, its picture, and the commands that it prints."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from geoblanket.cli.main import app
from geoblanket.errors import ParameterError
from geoblanket.mechanism import load_bundle
from geoblanket.mechanism.bundle.storage import LatticeBundle
from geoblanket.release import Device
from tests.planning.worlds import walking

START = 1_719_792_000


def run(*arguments: object) -> tuple[int, str, str, BaseException | None]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr, result.exception


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("motion") / "city.motion"
    walking(6).model.save(path)
    return path


@pytest.fixture(scope="module")
def facts(model: Path) -> dict[str, Any]:
    code, text, talk, _ = run(
        "plan", "--model", model, "--home", "350m/month", "--set", "hour=240", "--set", "trips=40", "--json"
    )
    assert code == 0, talk
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_plan_has_errors_costs_and_shares(facts: dict[str, Any]) -> None:
    chosen = facts["recommended"]
    assert facts["home"] == {
        "nights": 30,
        "without_a_fence_m": pytest.approx(1000 * (math.pi / 30) ** 0.5 / chosen["epsilon_per_km"], abs=0.1),
        "fence_radius_km": 0.62,
        "with_the_fence_m": 353.4,
    }
    assert chosen["cost_per_km"]["hour"] <= 240
    for where in (chosen["on_the_road"], facts["without_any_report"]["on_the_road"]):
        shares = list(where["share_within"].values())
        assert list(where["share_within"]) == ["100 m", "250 m", "533.4 m", "563.88 m"]
        assert shares == sorted(shares)
        assert 0 <= shares[0] <= shares[-1] <= 1
    assert chosen["on_the_road"]["error_m"] < facts["without_any_report"]["on_the_road"]["error_m"]


def test_the_commands_that_are_printed_make_what_was_planned(
    facts: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lat, lon = walking(6).model.lat[0], walking(6).model.lon[0]
    for command in facts["commands"]:
        home = f"{lat}, {lon}\n".encode()  # which only the fence asks for
        subprocess.run(command, shell=True, check=True, capture_output=True, input=home)  # noqa: S602 - as a person would
    chosen, bundle = facts["recommended"], load_bundle("city.bundle")
    assert isinstance(bundle, LatticeBundle)
    assert (bundle.lattice.epsilon, bundle.lattice.hold_m) == (chosen["epsilon_per_km"], facts["hold_m"])
    assert bundle.needed_clock().interval_s == chosen["interval_s"]
    # Two hours of the planned reports away from home, further apart than hold reaches, and none is refused.
    with Device.open("city.bundle", ledger="car.ledger", replay=True) as device:
        assert [fence.reach_m for fence in device.fences] == [620]
        for number in range(round(7200 / chosen["interval_s"])):
            device.report(lat + 0.015 + number % 2 * 0.001, lon, START + 1234 + number * chosen["interval_s"])


def test_a_command_runs_whatever_is_there_and_wherever_the_program_is(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("city.bundle", "city-2.bundle", "car.ledger.count"):
        (tmp_path / name).touch()
    code, text, talk, _ = run("plan", "--model", model, "--set", "hour=480", "--set", "trips=40")
    assert code == 0, talk
    lattice, ledger, fence = (line.strip() for line in text.partition("To do so:\n")[2].splitlines())
    assert lattice.startswith(f"{sys.executable} -m geoblanket lattice --area=")
    assert lattice.endswith("--out city-3.bundle")
    assert "ledger create car-2.ledger" in ledger
    assert fence.endswith("fence add --ledger car-2.ledger --radius-km 1")
    subprocess.run(ledger, shell=True, check=True, capture_output=True)  # noqa: S602 - as a person would
    assert (tmp_path / "car-2.ledger").exists()


def test_a_person_reads_words_tables_and_commands(model: Path, tmp_path: Path) -> None:
    code, text, talk, _ = run(
        "plan", "--model", model, "--set", "hour=480", "--set", "trips=40", "--picture", tmp_path / "plan.png"
    )
    assert code == 0, talk
    assert text.startswith("Report every ")
    assert "A home needs a fence. After 30 nights without one" in text
    assert "With a fence of 1 km" in text
    assert "564 m (1,850 ft)" in text
    assert "geoblanket lattice --area=" in text
    assert "anchor" not in text
    assert "Errors on the road are estimates from a simulation." in talk
    assert (tmp_path / "plan.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "MODEL", "--home", "0m"), "--home must be a distance such as 350m"),
        (("--model", "MODEL", "--sure", "30%"), "above 50 %, which is chance"),
        (("--model", "MODEL", "--road", "near"), "--road must be a distance such as"),
        (("--model", "MODEL", "--set", "hour=-3"), "The wish hour must be a number above 0"),
        (("--sure", "70%"), "either --roads or --model"),
        (("--model", "MODEL", "--roads", "MODEL"), "either --roads or --model"),
        (("--model", "MODEL", "--walks", "MODEL"), "need --roads"),
        (("--model", "MODEL", "--picture", "plan.txt"), "must end in .png"),
    ],
)
def test_wrong_options_are_refused(model: Path, arguments: tuple[object, ...], message: str) -> None:
    code, _, _, error = run("plan", *(model if argument == "MODEL" else argument for argument in arguments))
    assert code == 1
    assert isinstance(error, ParameterError)
    assert message in str(error)


def test_first_figures_come_before_trips_and_wishes_are_answered_one_by_one(model: Path) -> None:
    code, text, talk, _ = run(
        "plan", "--model", model, "--home", "350m/month", "--apart", "0.1km", "--sure", "95%", "--road", "50m",
        "--set", "trips=30", "--set", "grid=false",
    )  # fmt: skip
    assert code == 0, talk
    first, _, after = talk.partition("Now the error on the road is simulated")
    assert first.startswith(
        "First figures: Report every 30 s at ε = 4.2 per km, held within 50 m, with a fence of 0.62 km"
    )
    assert "Errors on the road are estimates from a simulation." in after
    wishes = text.partition("Your wishes")[2].partition("Schedules that were tried")[0]
    assert [line.split()[-1] for line in wishes.splitlines() if line.rstrip().endswith(("yes", "no"))] == [
        "yes", "yes", "no"
    ]  # fmt: skip
    assert "Not kept: at most 50 m off on the road." in text
