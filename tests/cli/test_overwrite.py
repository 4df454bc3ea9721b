"""No command replaces a result that exists, unless it is told to; refused before any work is done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from geoblanket.cli.main import app
from geoblanket.errors import InputError, OutputError
from geoblanket.mechanism import load_bundle
from tests.cli.test_lattice import run
from tests.mechanism.bundles import save_located

AREA = "--area 41.14,-8.62,41.15,-8.61"
EVALUATE = "evaluate --roads no --walks no --out OUT"
COMMANDS = {
    "city --out OUT": "OUT/points.csv",
    "city --out new --picture OUT.png": "OUT.png",
    "traces import no --format porto --out OUT": "OUT",
    "roads import no --out OUT": "OUT",
    "roads import no --out new --picture OUT.svg": "OUT.svg",
    "roads zones no --out OUT": "OUT",
    "roads zones no --picture OUT.png": "OUT.png",
    "roads export no --to OUT.geojson": "OUT.geojson",
    "match --traces no --roads no --out OUT": "OUT",
    "match --traces no --roads no --out new --picture OUT.pdf": "OUT.pdf",
    "blanket discover --walks no --roads no --out OUT": "OUT",
    "blanket discover --walks no --roads no --out OUT --resume": "OUT",  # there is nothing to resume
    "blanket train --findings no --out OUT": "OUT",
    "blanket study --walks no --roads no --out OUT": "OUT/report.html",
    "build --roads no --walks no --epsilon 1 --out OUT": "OUT",
    "build --roads no --walks no --epsilon 1 --out OUT --resume": "OUT",
    "build --roads no --model no --epsilon 1 --out OUT": "OUT",
    "build --roads no --walks no --epsilon 1 --out new": "new.build.json",
    "build --roads no --walks no --epsilon 1 --out new --report OUT": "OUT/report.html",
    f"lattice --epsilon 4 {AREA} --out OUT": "OUT",
    "report no --roads no --out OUT": "OUT/report.html",
    "show no --picture OUT.png": "OUT.png",
    "perturb no --walks no --roads no --out OUT": "OUT",
    "perturb no --traces no --out OUT": "OUT",
    "model --roads no --out OUT": "OUT",
    "learn --walks no --roads no --epsilon-train 1 --out OUT": "OUT",
    "learn --released no --bundle no --roads no --out OUT": "OUT",
    "sample --model no --roads no --out OUT": "OUT",
    "track no no --out OUT": "OUT",
    "plan --roads no --sure 70% --picture OUT.png": "OUT.png",
    "fence export --ledger no --out OUT": "OUT",
    EVALUATE: "OUT/results.parquet",
    f"{EVALUATE} --resume": "OUT/results.csv",
    "reproduce porto --data no --out OUT": "OUT/results.csv",
    "reproduce rome --data no --out OUT --resume": "OUT/results.json",
}
"""Commands whose inputs are missing, and what exists of their outputs."""
WITHOUT = {
    "blanket predict", "certainty", "doctor", "evaluate report", "fence add", "fence import", "fence list",
    "fence remove", "gateway", "ledger create", "ledger show", "ledger verify", "roads info", "serve",
    "traces info", "verify",
}  # fmt: skip
"""Commands that write nothing, write again by their name, or never replace anything."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def existing(name: str) -> Path:
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("results of hours")
    return path


def commands(group: Any, name: Sequence[str] = ()) -> Iterator[tuple[str, Any]]:
    for word in group.commands:
        command = group.get_command(None, word)
        if hasattr(command, "commands"):
            yield from commands(command, (*name, word))
            if not command.no_args_is_help:
                yield word, command
        else:
            yield " ".join((*name, word)), command


@pytest.mark.parametrize("command", COMMANDS)
def test_what_exists_is_refused_before_anything_is_read(command: str, folder: Path) -> None:
    path = existing(COMMANDS[command])
    code, _, _, error = run(*command.split())
    assert code == 1
    assert isinstance(error, OutputError), error
    assert str(error).startswith((f"{path}: exists", f"{path.parent}: has results ({path.name})"))
    assert "add --overwrite to replace it." in str(error)
    assert path.read_text() == "results of hours"
    assert [file for file in folder.rglob("*") if file.is_file()] == [folder / path]


@pytest.mark.parametrize("command", [command for command in COMMANDS if " no" in command])
def test_with_overwrite_the_work_begins_and_what_exists_stays_until_it_is_done(command: str, folder: Path) -> None:
    path = existing(COMMANDS[command])
    code, _, talk, error = run(*command.split(), "--overwrite")
    assert code == 1, talk
    assert not isinstance(error, OutputError)
    assert "no such" in str(error) or "has none of" in str(error) or "cannot be read" in str(error), error
    assert (folder / path).read_text() == "results of hours"


@pytest.mark.parametrize(("command", "unfinished"), [
    ("blanket discover --walks no --roads no --out OUT", "OUT.unfinished"),
    ("build --roads no --walks no --epsilon 1 --out OUT", "OUT.unfinished"),
    (EVALUATE, "OUT/unfinished"),
])  # fmt: skip
@pytest.mark.usefixtures("folder")
def test_an_interrupted_run_may_replace_what_it_was_started_to_replace(command: str, unfinished: str) -> None:
    existing(COMMANDS[command])
    Path(unfinished).mkdir()
    assert isinstance(run(*command.split())[3], OutputError)
    _, _, talk, error = run(*command.split(), "--resume")
    assert isinstance(error, InputError), error
    assert f"Finished work is kept in {unfinished}; continue with --resume." in talk


def test_every_command_that_writes_is_checked() -> None:
    tree = dict(commands(get_command(app)))
    with_option = {name for name, command in tree.items() if any(p.name == "overwrite" for p in command.params)}
    assert with_option == tree.keys() - WITHOUT
    assert all(any(f"{command} ".startswith(f"{name} ") for command in COMMANDS) for name in with_option)


def test_a_lattice_that_replaces_another_has_the_next_version(folder: Path) -> None:
    path = save_located(folder / "city.bundle", version=3)
    given = ("lattice", "--epsilon", 20, *AREA.split(), "--out", path)
    assert "must be greater than 3" in str(run(*given, "--overwrite", "--set", "version=3")[3])
    code, _, talk, _ = run(*given, "--overwrite")
    assert code == 0, talk
    assert f"Bundle written to {path}, version 4." in talk
    assert load_bundle(path).version == 4
