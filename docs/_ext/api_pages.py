"""The pages of the API reference, from the `__all__` of the public packages: one page for each task of a reader.

A name belongs to the group of the folder that defines it, and is documented where it is imported from: in `geoblanket`
itself where it is there too. So no name is listed here, and a new one appears by itself.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import geoblanket
from geoblanket import errors
from geoblanket._lazy import homes

__all__ = ["Group", "PublicName", "aliases", "described_fields", "listing", "public_names", "write_pages"]

_ERRORS = "geoblanket.errors"


@dataclass(frozen=True)
class Group:
    """A task of a reader, and the folders of `src/geoblanket` whose public names serve it."""

    page: str
    title: str
    rooms: tuple[str, ...]
    """Folders, or modules at the top."""

    @property
    def about(self) -> str:
        """What the folders say about themselves."""
        return "\n\n".join(inspect.getdoc(importlib.import_module(f"geoblanket.{room}")) or "" for room in self.rooms)

    def members(self, names: Iterable[PublicName]) -> list[PublicName]:
        """Return those of the names that are of this group."""
        return [public for public in names if public.room in self.rooms]


_GROUPS = (
    Group("device", "On the device", ("release",)),
    Group("walks", "From maps and traces to walks", ("traces", "roads", "mobility")),
    Group("build", "Bundles for a city", ("build",)),
    Group("mechanism", "Mechanisms and their proof", ("mechanism",)),
    Group("loss", "What a wrong place costs", ("loss",)),
    Group("blanket", "Markov blankets", ("blanket",)),
    Group("tracking", "Following vehicles by their reports", ("tracking",)),
    Group("learning", "Learning with a promise", ("learning",)),
    Group("planning", "Planning reports", ("planning",)),
    Group("lab", "Experiments", ("lab",)),
    Group("errors", "Errors", ("errors",)),
)


@dataclass(frozen=True)
class PublicName:
    """A name that users may rely on."""

    package: str
    """Where to import it from."""
    name: str
    home: str
    """The module that defines it."""

    @property
    def path(self) -> str:
        """What users write."""
        return f"{self.package}.{self.name}"

    @property
    def room(self) -> str:
        """The folder that defines it, or a module at the top."""
        return self.home.split(".")[1]

    @property
    def value(self) -> Any:
        """What it stands for."""
        return getattr(importlib.import_module(self.package), self.name)


def _public_packages() -> list[str]:
    """Return the packages with public names: those that load names on first use."""
    parts = pkgutil.walk_packages(geoblanket.__path__, "geoblanket.")
    packages = [importlib.import_module(found.name) for found in parts if found.ispkg]
    return ["geoblanket", *(package.__name__ for package in packages if homes(package.__name__))]


def public_names() -> list[PublicName]:
    """Return every public name once, errors as in `geoblanket.errors`."""
    found = {(_ERRORS, name): PublicName(_ERRORS, name, _ERRORS) for name in errors.__all__}
    for package in _public_packages():
        module = importlib.import_module(package)
        for name in module.__all__:
            home = homes(package)[name]
            if not name.startswith("__"):
                found.setdefault((home, name), PublicName(package, name, home))
    return list(found.values())


def aliases(names: Iterable[PublicName]) -> dict[str, str]:
    """Return where each name is documented, by its short name and by the module that defines it."""
    known: dict[str, str] = {}
    for public in names:
        known.setdefault(public.name, public.path)
        known[f"{public.home}.{public.name}"] = known[f"geoblanket.{public.name}"] = public.path
    return known


def described_fields(value: object) -> dict[str, str]:
    """Return what a pydantic model says about its fields, other than in strings below them."""
    fields = getattr(value, "model_fields", {}) if inspect.isclass(value) else {}
    return {name: field.description for name, field in fields.items() if field.description}


def listing(names: Sequence[PublicName]) -> str:
    """Return an overview of the pages and what is on each, as Markdown."""
    parts = []
    for group in _groups(names):
        links = ", ".join(f"{{py:obj}}`{public.name} <{public.path}>`" for public in group.members(names))
        parts.append(f"**[{group.title}](api/{group.page}.rst)**: {links}.")
    order = [f"api/{group.page}" for group in _groups(names)]
    return "\n\n".join([*parts, "\n".join(["```{toctree}", ":hidden:", "", *order, "```"])]) + "\n"


def write_pages(folder: Path, names: Sequence[PublicName]) -> None:
    """Write a page for each group with a public name; remove what else is in the folder."""
    pages = {f"{group.page}.rst": _page(group, group.members(names)) for group in _groups(names)}
    folder.mkdir(exist_ok=True)
    for stale in folder.iterdir():
        if stale.name not in pages:
            stale.unlink()
    for name, text in pages.items():
        page = folder / name
        if not page.exists() or page.read_text(encoding="utf-8") != text:  # Sphinx reads what changed
            page.write_text(text, encoding="utf-8")


def _groups(names: Iterable[PublicName]) -> list[Group]:
    rooms = {public.room for public in names}
    return [group for group in _GROUPS if not rooms.isdisjoint(group.rooms)]


def _page(group: Group, names: Iterable[PublicName]) -> str:
    line = "=" * len(group.title)
    table = [".. list-table::", "   :widths: auto", ""]
    for public in names:
        table += [f"   * - :py:obj:`{public.name} <{public.path}>`", f"     - {_summary(public)}"]
    parts = [line, group.title, line, "", group.about, "", *table, "", *(_entry(public) for public in names)]
    return "\n".join(parts)


def _entry(public: PublicName) -> str:
    context = f".. currentmodule:: {public.package}\n\n"
    if inspect.isclass(public.value):
        options = [":show-inheritance:"] if public.home == _ERRORS else [":members:"]
        listed = re.search(r"^(Attributes|Parameters)$", inspect.getdoc(public.value) or "", re.MULTILINE)
        if not (listed or described_fields(public.value)):
            # Fields without a word of their own, which the class does not describe either: at least their types.
            options.append(":undoc-members:")
        return "\n   ".join([f"{context}.. autoclass:: {public.name}", *options, "\n"])
    if callable(public.value):
        return f"{context}.. autofunction:: {public.name}\n"
    comment = _comment(public).replace("\n", "\n   ")
    return f"{context}.. py:data:: {public.name}\n\n   {comment}\n"


def _summary(public: PublicName) -> str:
    text = inspect.getdoc(public.value) or "" if callable(public.value) else _comment(public)
    return " ".join(text.partition("\n\n")[0].split())


def _comment(public: PublicName) -> str:
    """Return the string below a constant, in the module that assigns it."""
    text = _comment_in(public.home, public.name)
    if text is None:
        raise ValueError(f"{public.home}.{public.name} has no string below it that says what it is.")
    return text


def _comment_in(module: str, name: str) -> str | None:
    body = ast.parse(inspect.getsource(importlib.import_module(module))).body
    for statement, below in pairwise(body):
        if isinstance(statement, ast.ImportFrom) and name in (alias.name for alias in statement.names):
            return _comment_in(statement.module or "", name)
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    return inspect.cleandoc(text)
    return None
