from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from geoblanket import make_lattice
from geoblanket.cli import demo
from geoblanket.cli.main import app
from tests.roads.graphs import grid_graph


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


def test_a_fence_keeps_a_home_hidden_for_a_month(tmp_path: Path) -> None:
    graph = grid_graph(6, 6, step_deg=0.004, lat=41.14, lon=-8.62)
    lattice = make_lattice(graph, tmp_path / "a.bundle", epsilon=8).lattice
    assert lattice is not None
    bare, fenced = (demo.found_homes_m(lattice, graph, fence_km=km) for km in (None, 1.0))
    # 2/ε, √(π/7)/ε and √(π/30)/ε; behind a fence of ρ = 1 km never nearer than 2ρ/3.
    assert bare == pytest.approx([250, 84, 40], rel=0.3)
    assert 560 < min(fenced) < max(fenced) < 900
