"""What the package imports is what it says that it needs: nothing rests on what another package happens to bring."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = (ROOT / "constraints.txt").read_text()


def canonical(name: str) -> str:
    """A distribution's name, as package indexes compare them."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> set[str]:
    """The distributions that are needed, always or by an extra."""
    extras = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    names = [re.match(r"[\w.-]+", line) for line in [*PROJECT["dependencies"], *extras]]
    return {canonical(name.group()) for name in names if name is not None}


def imported(source: str) -> set[str]:
    """The packages of others that some code imports, anywhere in it."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            modules.add(node.module)
    return {module.partition(".")[0] for module in modules} - sys.stdlib_module_names - {"geoblanket"}


def test_imports_are_found_wherever_they_are() -> None:
    source = "import os\nimport one.part\nfrom . import near\ndef f():\n  from two.part import x\n"
    assert imported(source) == {"one", "two"}


@pytest.mark.parametrize(
    "module", sorted({name for f in (ROOT / "src").rglob("*.py") for name in imported(f.read_text())})
)
def test_every_import_is_declared_and_pinned(module: str) -> None:
    distributions = {canonical(name) for name in packages_distributions()[module]}
    assert distributions & declared(), f"{module} is imported, and pyproject.toml does not name {distributions}"
    pinned = {canonical(line.partition("==")[0]) for line in PINS.splitlines() if "==" in line}
    assert distributions & pinned
