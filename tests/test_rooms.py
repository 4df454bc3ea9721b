"""The rooms: which folder may use which, as CONTRIBUTING lists them, and no cycles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
TREE = (ROOT / "CONTRIBUTING.md").read_text().split("```text")[1].split("```")[0]
ROOMS = [folder for folders in re.findall(r"^(\w+(?: \w+)*) {2,}\S", TREE, re.MULTILINE) for folder in folders.split()]
"""The folders in order; several may share a line."""
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts): path
    for path in SOURCE.rglob("*.py")
    if path.name not in {"__init__.py", "__main__.py"}  # these only name what others define
}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield from (name for name in {f"{module}.{alias.name}" for alias in node.names} & MODULES.keys())
            yield module


def room(module: str) -> int:
    """Return where a module's folder stands in the list; what belongs to no folder comes before all of them."""
    package, _, rest = module.partition(".")
    folder = rest.partition(".")[0]
    return ROOMS.index(folder) if package == "geoblanket" and folder in ROOMS else -1


def test_list_has_every_folder() -> None:
    assert sorted(ROOMS) == sorted(path.parent.name for path in SOURCE.glob("geoblanket/*/__init__.py"))


def test_folder_uses_only_those_before_it() -> None:
    pairs = ((name, used) for name, path in MODULES.items() for used in imports(path))
    assert not {f"{name} uses {used}" for name, used in pairs if room(used) > room(name)}


def test_there_is_no_cycle() -> None:
    TopologicalSorter({name: set(imports(path)) & MODULES.keys() - {name} for name, path in MODULES.items()}).prepare()


def test_no_folder_uses_what_another_keeps_private() -> None:
    private = {name for name in MODULES if name.count(".") > 1 and name.rpartition(".")[2].startswith("_")}
    wrong = {
        f"{name} uses {used}"
        for name, path in MODULES.items()
        for used in private.intersection(imports(path))
        if not name.startswith(used.rpartition(".")[0])
    }
    assert not wrong
