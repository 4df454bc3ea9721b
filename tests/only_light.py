"""Runs commands, or any code, as if only some of the installed packages were there.

`run_commands` reads the names of modules that are not to be found and a list of commands, each with its words and its
input, as JSON. It runs the commands in turn and writes what each of them gave.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

__all__ = ["PROJECT", "canonical", "forget", "modules_beyond", "run_commands", "with_what_they_need"]

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def canonical(requirement: str) -> str:
    """A distribution's name, as package indexes compare them."""
    name = re.match(r"[\w.-]+", requirement)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name.group()).lower()


def with_what_they_need(distributions: Iterable[str]) -> set[str]:
    """The distributions, and all that they need without extras, if it is installed."""
    found: set[str] = set()
    waiting = [canonical(name) for name in distributions]
    while waiting:
        name = waiting.pop()
        try:
            needed = requires(name) or []
        except PackageNotFoundError:  # needed on other systems only
            continue
        if name not in found:
            found.add(name)
            waiting += [canonical(line) for line in needed if "extra ==" not in line]
    return found


def modules_beyond(distributions: Iterable[str]) -> list[str]:
    """The installed modules that do not belong to some distributions and what these need, nor to geoblanket."""
    known = with_what_they_need(distributions) | {"geoblanket"}
    return sorted(
        module
        for module, names in packages_distributions().items()
        if known.isdisjoint(canonical(name) for name in names) and module not in sys.stdlib_module_names
    )


class _Missing:
    """Finds some modules missing, as if they were not installed."""

    def __init__(self, modules: Iterable[str]) -> None:
        self._modules = frozenset(modules)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        del path, target
        if name.partition(".")[0] in self._modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def forget(modules: Iterable[str]) -> None:
    """Let modules be missing from now on."""
    sys.meta_path.insert(0, _Missing(modules))


def run_commands() -> None:
    """Run commands; see above."""
    missing, commands = json.load(sys.stdin)
    forget(missing)
    from typer.testing import CliRunner

    from geoblanket.cli.main import app

    answers = []
    for words, given in commands:
        done = CliRunner().invoke(app, words, input=given)
        answers.append(
            {
                "code": done.exit_code,
                "out": done.stdout,
                "error": "" if done.exception is None else f"{type(done.exception).__name__}: {done.exception}",
            }
        )
    json.dump(answers, sys.stdout)
