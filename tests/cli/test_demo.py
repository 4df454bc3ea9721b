from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geoblanket.cli import demo
from geoblanket.cli.main import app


def test_loops_are_typed_as_a_shell_takes_them_and_run_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "{budget}.ledger"
    create: list[str | Path] = ["ledger", "create", ledger, "--budget", "{budget}", "--window", "3600"]
    loop = demo._Step("Two.", create, each={"budget": ("20", "40")})
    shown = demo._Step("One, as JSON.", ["ledger", "show", tmp_path / "40.ledger", "--json"], to=tmp_path / "40.json")
    assert loop.typed() == (
        f'for budget in 20 40; do geoblanket ledger create "{tmp_path}/$budget.ledger" --budget "$budget" '
        "--window 3600; done"
    )
    assert [path.name for path in shown.written()] == ["40.json"]
    monkeypatch.setattr(demo, "_steps", lambda _: [loop, shown])
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert (tmp_path / "20.ledger").exists()
    assert json.loads((tmp_path / "40.json").read_text())["budget"] == 40
    assert done.output.strip().splitlines()[-1].startswith("   $ geoblanket ledger show")
