from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geoblanket.cli.main import app
from geoblanket.errors import ParameterError

run = CliRunner()


def test_city_prints_json_and_draws(tmp_path: Path) -> None:
    command = ["city", "--out", str(tmp_path / "c"), "--trips", "60", "--json"]
    done = run.invoke(app, [*command, "--picture", str(tmp_path / "c.png")])
    assert done.exit_code == 0
    facts = json.loads(done.stdout)
    assert facts["trips"] == 60
    assert facts["points"].keys() == {"porto", "table"}
    assert (tmp_path / "c.png").read_bytes()[:4] == b"\x89PNG"


def test_city_prints_what_it_made(tmp_path: Path) -> None:
    done = run.invoke(app, ["city", "--out", str(tmp_path), "--trips", "50"])
    assert done.exit_code == 0
    words = " ".join(done.stdout.split())
    assert "trips 50" in words
    assert "length 179.6 km" in words


def test_wrong_options_are_refused_before_any_work(tmp_path: Path) -> None:
    assert run.invoke(app, ["city", "--out", str(tmp_path), "--size", "huge"]).exit_code == 2
    assert run.invoke(app, ["city", "--out", str(tmp_path), "--trips", "0"]).exit_code == 2
    with pytest.raises(ParameterError, match="picture"):
        run.invoke(app, ["city", "--out", str(tmp_path), "--picture", "c.doc"], catch_exceptions=False)
    assert not list(tmp_path.iterdir())
