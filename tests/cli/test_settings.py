"""`--set KEY=VALUE`, and the tables that results print."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from geoblanket.cli._output import print_result
from geoblanket.cli._settings import Settings
from geoblanket.cli.main import app
from geoblanket.errors import ParameterError


@dataclass(frozen=True)
class Kitchen:
    """What is cooked.

    Parameters
    ----------
    guests
        How many eat.
    """

    guests: int
    oven_s: float = 60.0
    """Time in the oven, seconds."""
    recipe: Path | None = None
    name: str = "soup"
    spice: Literal["mild", "hot"] | None = None
    """How it tastes."""
    salted: bool = True


def serve(*, plates: int = 2, colours: tuple[str, ...] = (), progress: object = None) -> None:
    """Serve.

    Parameters
    ----------
    plates, colours
        What is on the table.
    """


SETTINGS = Settings(Kitchen, serve, without=("salted",))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("oven_s=5", 5.0),
        ("recipe=a b.txt", Path("a b.txt")),
        ("recipe=none", None),
        ("name=2024", "2024"),
        ('name="a=b"', "a=b"),
        ("spice = hot", "hot"),
        ("plates=3", 3),
        ('colours=["red", "blue"]', ["red", "blue"]),
    ],
)
def test_values_have_the_type_of_their_parameter(text: str, value: object) -> None:
    ((found),) = SETTINGS.read([text]).values()
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["guests=2"], "There is no setting 'guests'"),  # it has no default
        (["salted=false"], "The settings are: oven_s, recipe, name, spice, plates, colours."),
        (["plate=2"], "Did you mean 'plates'?"),
        (["plates=2", "plates=3"], "each key only once"),
        (["plates"], "KEY=VALUE"),
        (["plates=2.5"], "'plates' must be a whole number. Got '2.5' instead."),
        (["oven_s=hot"], "'oven_s' must be a number."),
        (["spice=sweet"], "'spice' must be one of mild, hot."),
    ],
)
def test_what_is_wrong_is_told(given: list[str], words: str) -> None:
    with pytest.raises(ParameterError) as refused:
        SETTINGS.read(given)
    assert words in str(refused.value)


def test_settings_go_where_they_belong() -> None:
    chosen = SETTINGS.read(["oven_s=5", "plates=3"])
    assert Kitchen(guests=1, **chosen.of(Kitchen)) == Kitchen(1, 5.0)
    assert chosen.of(serve) == {"plates": 3}
    assert SETTINGS.read(None) == {}


def test_help_explains_each_key() -> None:
    explained = SETTINGS.explain().splitlines()
    assert explained[:4] == ["# Time in the oven, seconds.", "oven_s = 60.0", "#", "# recipe = ..."]
    assert explained[-4:] == ["# What is on the table.", "plates = 2", "# What is on the table.", "colours = []"]


def with_settings(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [path] if any(parameter.name == "set_" for parameter in command.params) else []
    below = {name: command.get_command(None, name) for name in getattr(command, "commands", ())}
    return found + [each for name, sub in below.items() for each in with_settings(sub, (*path, name))]


@pytest.mark.parametrize("words", with_settings(typer.main.get_command(app)), ids=" ".join)
def test_every_command_explains_its_settings(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*words, "--set", "help"])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert "#" not in lines, "a setting without a word about it"
    assert any(" = " in line for line in lines)


def test_no_command_has_more_than_a_dozen_options() -> None:
    def commands(command: Any) -> list[Any]:
        below = [command.get_command(None, name) for name in getattr(command, "commands", ())]
        return [command, *(each for sub in below for each in commands(sub))]

    counts = {
        command.name: sum(parameter.param_type_name == "option" for parameter in command.params)
        for command in commands(typer.main.get_command(app))
    }
    assert max(counts.values()) <= 12
    assert sum(counts.values()) <= 205


def test_a_result_prints_its_figures_with_units(capsys: pytest.CaptureFixture[str]) -> None:
    more = {
        "spent_share": 0.25,
        "bytes": 2048,
        "breaks": {"gap_s": 1, "lost": 0, "gap": 7},
        "identity": "ab" * 32,
        "at_m": [1, 2.5],
    }
    print_result("Dinner", Kitchen(guests=1200, oven_s=90), json=False, without=("salted",), more=more)
    words = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert words == [
        "Dinner", "how many eat 1,200", "time in the oven 90 s", "recipe –", "name soup", "how it tastes –",
        "spent share 25.0%", "size 2,048 bytes", "breaks", "gap 1 s", "gap 7",
        "identity abababababababab…", "at 1 m · 2.5 m",
    ]  # fmt: skip
