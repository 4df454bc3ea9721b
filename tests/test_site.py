"""The site of `make docs`: no page is left out, and what is generated is complete."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import api_pages
import command_pages
import pytest
import typer
from outside_links import with_includes, with_site_links

from geoblanket import errors
from geoblanket.cli.main import app
from tests.test_public_surface import PACKAGES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TOCTREE = re.compile(r"^```\{toctree\}\n(?::[^\n]*\n)*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_page_is_in_one_toctree() -> None:
    entries = [entry for block in TOCTREE.findall((DOCS / "index.md").read_text()) for entry in block.split()]
    pages = [page.stem for page in DOCS.glob("*.md") if page.stem != "index"]
    assert sorted(entries) == sorted(["notebooks/*", "tables/*", *pages])


def test_the_front_page_links_every_page() -> None:
    index = (DOCS / "index.md").read_text()
    for page in DOCS.glob("*.md"):
        included = re.match(r"```\{include\} (\S+)\n", page.read_text())
        assert page.stem == "index" or f"]({included[1] if included else page.name})" in index, page


def test_the_api_reference_has_every_public_name(tmp_path: Path) -> None:
    names = api_pages.public_names()
    api_pages.write_pages(tmp_path, names)
    described = [
        (package, name)
        for page in tmp_path.iterdir()
        for package, name in re.findall(
            r"^\.\. currentmodule:: (\S+)\n\n\.\. (?:autoclass|autofunction|py:data):: (\S+)$",
            page.read_text(),
            re.MULTILINE,
        )
    ]
    assert len(described) == len(set(described))
    values = [getattr(importlib.import_module(package), name) for package, name in described]
    for package in [*PACKAGES, "geoblanket.errors"]:
        module = importlib.import_module(package)
        for name in set(module.__all__) - {"__version__"}:
            assert sum(getattr(module, name) is value for value in values) == 1, f"{package}.{name}"
    overview = api_pages.listing(names)
    assert [f"{package}.{name}" for package, name in described if f"`{name} <{package}.{name}>`" not in overview] == []


def test_pages_of_names_that_are_gone_are_removed(tmp_path: Path) -> None:
    (tmp_path / "gone.rst").touch()
    api_pages.write_pages(tmp_path, [api_pages.PublicName("geoblanket", "Device", "geoblanket.release.device")])
    assert [page.name for page in tmp_path.iterdir()] == ["device.rst"]


def test_the_tree_of_errors_is_that_of_their_classes() -> None:
    drawn, above = {}, "GeoblanketError"
    for indent, name in re.findall(r"^    ([ │]*)[├└]── (\w+)", errors.__doc__ or "", re.MULTILINE):
        if not indent:
            above = name
        drawn[name] = above if indent else "GeoblanketError"
    below = set(errors.__all__) - {"GeoblanketError"}
    assert drawn == {name: getattr(errors, name).__bases__[0].__name__ for name in below}


def commands(command: Any, path: str) -> dict[str, Any]:
    """The commands below a command, by what users write."""
    found = {path: command}
    for name in getattr(command, "commands", ()):
        found |= commands(command.get_command(None, name), f"{path} {name}")
    return found


def test_the_command_reference_has_every_command_with_every_option() -> None:
    page = command_pages.listing()
    sections = re.split(r"^##+ (.+)$", page, flags=re.MULTILINE)
    described = dict(zip(sections[1::2], sections[2::2], strict=True))
    existing = commands(typer.main.get_command(app), "geoblanket")
    del existing["geoblanket"]
    assert set(described) == set(existing)
    for path, command in existing.items():
        for option in (name for parameter in command.params for name in parameter.opts if name.startswith("--")):
            assert option == "--help" or re.search(rf"^\| `[^`]*{option}\b", described[path], re.MULTILINE), (
                path,
                option,
            )


def test_options_have_their_meaning_and_default() -> None:
    rows = command_pages.listing().splitlines()
    assert rows.index(
        "# The promise covers histories at most this far apart, kilometres; inf for all."
    ) + 1 == rows.index("eta_km = 5.0")
    assert "| `--trips <int>` | Number of taxi trips. Range: x ≥ 1. | `3000` |" in rows
    assert "| `--out FOLDER` | The folder to write to. It is created if needed. | required |" in rows


def test_links_out_of_docs_lead_to_included_pages_or_the_repository(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (tmp_path / "client").mkdir()
    docs.mkdir()
    (tmp_path / "client" / "README.md").write_text("[page](../docs/page.md#part), [test](tests)")
    (docs / "client.md").write_text("```{include} ../client/README.md\n```\n")
    assert (
        with_includes((docs / "client.md").read_text(), docs)
        == "[page](../docs/page.md#part), [test](../client/tests)\n"
    )
    for link, expected in {
        "../client/README.md#use": "client.md#use",
        "../docs/page.md#part": "page.md#part",
        "../client/tests": "https://host/us/blob/main/client/tests",
        "page.md": "page.md",
        "#part": "#part",
        "https://host/../page": "https://host/../page",
    }.items():
        assert with_site_links(f"[text]({link})", docs, "https://host/us") == f"[text]({expected})"
    notebook = with_site_links("[text](../../client/README.md)", docs, "https://host/us", folder="notebooks")
    assert notebook == "[text](../client.md)"


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="the group docs is not installed: make docs")
    options = ["-W", "--keep-going", "-q", "-d", str(tmp_path / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, str(DOCS), str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = [*(tmp_path / "site").rglob("*.html"), *(tmp_path / "site").rglob("*.css")]
    assert len(pages) > 100
    loaded = re.compile(
        r"<(?:script|img|iframe)[^>]+src=\"?(?:https?:)?//|<link[^>]+href=\"?(?:https?:)?//|url\(['\"]?(?:https?:)?//"
    )
    assert [page for page in pages if loaded.search(page.read_text(encoding="utf-8"))] == []
