"""What the package imports is what it says that it needs: nothing rests on what another package happens to bring."""

from __future__ import annotations

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from geoblanket._lazy import EXTRA_OF_MODULE
from tests.only_light import PROJECT, canonical

ROOT = Path(__file__).parents[1]
PINS = (ROOT / "constraints.txt").read_text()
LIGHT = {canonical(line) for line in PROJECT["dependencies"]}
EXTRAS = PROJECT["optional-dependencies"]
BRINGS = {module: {canonical(name) for name in names} for module, names in packages_distributions().items()}
"""The distributions of each module that is installed."""


def of_extra(extra: str) -> set[str]:
    """The distributions that an extra names, and those of the extras that it stands on."""
    found = set()
    for line in EXTRAS[extra]:
        below = re.fullmatch(r"geoblanket\[([\w,]+)\]", line)
        found |= {canonical(line)} if below is None else {n for name in below[1].split(",") for n in of_extra(name)}
    return found


def declared() -> set[str]:
    """The distributions that are needed, always or by an extra."""
    return LIGHT.union(*(of_extra(extra) for extra in EXTRAS))


def imported(source: str) -> set[str]:
    """The packages of others that some code imports, anywhere in it."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            modules.add(node.module)
    return {module.partition(".")[0] for module in modules} - sys.stdlib_module_names - {"geoblanket"}


IMPORTED = sorted({name for file in (ROOT / "src").rglob("*.py") for name in imported(file.read_text())})


def test_imports_are_found_wherever_they_are() -> None:
    source = "import os\nimport one.part\nfrom . import near\ndef f():\n  from two.part import x\n"
    assert imported(source) == {"one", "two"}


@pytest.mark.parametrize("module", IMPORTED)
def test_every_import_is_declared_and_pinned(module: str) -> None:
    distributions = BRINGS[module]
    assert distributions & declared(), f"{module} is imported, and pyproject.toml does not name {distributions}"
    pinned = {canonical(line.partition("==")[0]) for line in PINS.splitlines() if "==" in line}
    assert distributions & pinned


@pytest.mark.parametrize("module", IMPORTED)
def test_every_import_is_light_or_has_an_extra_that_brings_it(module: str) -> None:
    distributions = BRINGS[module]
    if LIGHT.isdisjoint(distributions):
        assert distributions & of_extra(EXTRA_OF_MODULE[module])
    else:
        assert module not in EXTRA_OF_MODULE


def test_the_files_with_hashes_are_the_pinned_ones() -> None:
    lines = (ROOT / "requirements-hashed.txt").read_text().splitlines()
    hashed = [re.fullmatch(r"([\w.-]+==\S+) --hash=sha256:[0-9a-f]{64}", line) for line in lines if line[0] != "#"]
    assert all(hashed)
    versions = {canonical(name): version for name, _, version in (line[1].partition("==") for line in hashed if line)}
    pins = dict(line.split("==") for line in PINS.splitlines() if "==" in line)
    pinned = {canonical(name): version for name, version in pins.items()}
    assert versions.keys() >= declared() - {"geoblanket"}
    assert {name: pinned.get(name, version) for name, version in versions.items()} == versions


def test_extras_that_are_named_exist() -> None:
    assert set(EXTRA_OF_MODULE.values()) | {"all"} == set(EXTRAS)
    assert of_extra("all") == set().union(*(of_extra(extra) for extra in EXTRAS))
