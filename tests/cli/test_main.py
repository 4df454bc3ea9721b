from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from geoblanket.cli.main import _CONTENTS, app


def test_the_help_is_a_table_of_contents_with_one_line_a_command() -> None:
    result = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80", "TERM": "dumb"})
    lines = [line.strip("│ ") for line in result.stdout.splitlines() if line.startswith("│")]
    told = [line.split(maxsplit=1) for line in lines if not line.startswith("--")]
    assert told == [[name, line] for panel in _CONTENTS.values() for name, line in panel.items()]
    panels = [line.strip("╭─╮ ") for line in result.stdout.splitlines() if line.startswith("╭")]
    assert panels == ["Options", *_CONTENTS]
    assert "completion" not in result.stdout


def test_every_command_is_in_the_table() -> None:
    command = typer.main.get_command(app)
    assert set(command.commands) == {name for panel in _CONTENTS.values() for name in panel}  # type: ignore[attr-defined]


def test_shells_complete_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"_GEOBLANKET_COMPLETE": "complete_bash", "COMP_WORDS": "geoblanket ver", "COMP_CWORD": "1"}
    assert CliRunner().invoke(app, env=asked, prog_name="geoblanket").stdout.split() == ["verify"]
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    script = CliRunner().invoke(app, ["--show-completion", "bash"], prog_name="geoblanket")
    assert "complete -o default -F _geoblanket_completion geoblanket" in script.stdout
