"""Every snippet of README.md and docs/ is executed, and what it prints is compared with what is shown.

In a page, the blocks run from top to bottom in one empty folder:

- ``console``: lines that start with ``$ `` are run by the shell and must succeed; the lines below are the expected
  output, where ``...`` stands for anything. A command without expected lines may print what it likes.
- ``python``: runs in one namespace for the whole page.
- ``sh``: only `make` targets; they set up and run everything, so here it is only checked that they exist.
- ``text`` and others: shown, not run.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_console(block: str, folder: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        done = subprocess.run(  # noqa: S602
            command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        assert not expected.strip() or doctest.OutputChecker().check_output(expected, done.stdout, LOOSE), (
            f"$ {command}\nprinted\n{done.stdout}\nbut the page shows\n{expected}"
        )


def run_python(block: str, namespace: dict[str, object], folder: Path) -> None:
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        exec(compile(block, "snippet", "exec"), namespace)  # noqa: S102


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_snippets_run(page: Path, tmp_path: Path) -> None:
    namespace: dict[str, object] = {}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for language, block in BLOCK.findall(page.read_text()):
        if language == "console":
            run_console(block, tmp_path)
        elif language == "python":
            run_python(block, namespace, tmp_path)
        elif language == "sh":
            for line in block.splitlines():
                assert line.split()[0] == "make"
                assert line.split("#")[0].split()[1] in targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith(("http", "mailto:")):
            assert (page.parent / target).exists(), target
