from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from geoblanket import make_lattice
from geoblanket.cli.main import app
from tests.roads.graphs import grid_graph

SCRIPT = Path(__file__).parents[2] / "docs" / "demo.py"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["demo"] = module  # where dataclasses look for their annotations
    spec.loader.exec_module(module)
    return module


def test_loops_are_typed_as_a_shell_takes_them_and_run_silently(
    tmp_path: Path, demo: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = tmp_path / "{budget}.ledger"
    create: list[str | Path] = ["ledger", "create", ledger, "--budget", "{budget}", "--window", "3600"]
    loop = demo._Step("Two.", create, each={"budget": ("20", "40")})
    shown = demo._Step("One, as JSON.", ["ledger", "show", tmp_path / "40.ledger", "--json"], to=tmp_path / "40.json")
    assert loop.typed() == (
        f'for budget in 20 40; do geoblanket ledger create "{tmp_path}/$budget.ledger" --budget "$budget" '
        "--window 3600; done"
    )
    for step in (loop, shown):
        demo._run(step)
    assert (tmp_path / "20.ledger").exists()
    assert json.loads((tmp_path / "40.json").read_text())["budget"] == 40
    assert capsys.readouterr() == ("", "")


def test_every_command_takes_its_arguments(tmp_path: Path, demo: ModuleType) -> None:
    root = typer.main.get_command(app)
    for step in demo._steps(tmp_path):
        for words in demo._again(step).commands():
            command: Any = root
            context = typer.Context(root)
            while hasattr(command, "commands") and words[0] in command.commands:
                command = command.get_command(context, words.pop(0))
                context = typer.Context(command, parent=context)
            command.parse_args(context, words)


@pytest.mark.usefixtures("fixed_randomness")
def test_a_fence_keeps_a_home_hidden_for_a_month(tmp_path: Path, demo: ModuleType) -> None:
    graph = grid_graph(6, 6, step_deg=0.004, lat=41.14, lon=-8.62)
    lattice = make_lattice(graph, tmp_path / "a.bundle", epsilon=8).lattice
    bare, fenced = (demo.found_homes_m(lattice, graph, fence_km=km) for km in (None, 1.0))
    # 2/ε, √(π/7)/ε and √(π/30)/ε; behind a fence of ρ = 1 km never nearer than 2ρ/3.
    assert bare == pytest.approx([250, 84, 40], rel=0.3)
    assert 560 < min(fenced) < max(fenced) < 900
