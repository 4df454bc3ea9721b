"""Every snippet of README.md and docs/ is executed, and its output is compared with what the page shows.

In a page, the blocks run from top to bottom in one empty folder (what several pages begin with runs once):

- ``console``: lines that start with ``$ `` are run by the shell and must succeed; the lines below are the expected
  output, where ``...`` stands for anything. A command without expected lines may print what it likes.
- ``python``: runs in one namespace for the whole page.
- ``sh``: `make` targets, which set up and run everything, and `pip install` with extras: here it is only checked that
  they exist (`test_wheel` installs each extra).
- ``text`` and others: shown, not run.

The examples in the docstrings of the public names run too, in one folder; some make the files that others use.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import geoblanket
import geoblanket.build
import geoblanket.lab.evaluate
import geoblanket.learning
import geoblanket.mechanism
import geoblanket.planning
import geoblanket.release
import geoblanket.tracking
from geoblanket.cli.main import app
from tests.test_html import IN_NOTEBOOKS, is_small_page
from tests.test_repr import is_short, made_by_hand, public_classes

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
ABSOLUTE = re.compile(
    rf"(?:{REPOSITORY}/(?:blob|tree)|{REPOSITORY.replace('github.com', 'raw.githubusercontent.com')})/main/(.+)"
)
"""Files of the repository in links of the README, which the package index shows too."""
PROGRAMS = Path(sys.executable).parent
TOGETHER = " 2>&1"
IN_THIS_PROCESS = re.compile(rf"geoblanket [^|<>&;$`*]*({TOGETHER})?")
"""Commands that need no shell."""
LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def console_parts(block: str) -> list[str]:
    """Return the commands of a block, each with the output that is expected of it."""
    return re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]


def first_parts(page: Path) -> tuple[str, ...]:
    """Return what a page runs in the shell before any Python."""
    blocks = [found for found in BLOCK.findall(page.read_text()) if found[0] in {"console", "python"}]
    return tuple(
        part for _, block in takewhile(lambda found: found[0] == "console", blocks) for part in console_parts(block)
    )


def common_start(page: Path) -> tuple[str, ...]:
    """Return the longest start of a page that another page has too."""
    own = first_parts(page)
    pairs = [zip(own, first_parts(other), strict=False) for other in PAGES if other != page]
    return own[: max(sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], some)) for some in pairs)]


@pytest.fixture(scope="module")
def one_core() -> Iterator[None]:
    """Where the system allows it: worker processes take longer to start than these small cities take to compute.

    That several processes give the same is tested for each command that has them.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, ...]], Path]:
    """The folder that the commands of a common start leave: several pages begin with the same city."""

    @cache
    def folder_after(parts: tuple[str, ...]) -> Path:
        folder = tmp_path_factory.mktemp("begun")
        run_console(parts, folder)
        return folder

    return folder_after


def run_console(parts: Iterable[str], folder: Path, *, programs: Path | None = None) -> None:
    """Run commands and compare what they print; with `programs`, all by the shell and with the programs there."""
    for part in parts:
        command, _, expected = part.partition("\n")
        if programs is None and IN_THIS_PROCESS.fullmatch(command):
            code, printed, error = _run_here(command, folder)
        else:
            code, printed, error = _run_by_shell(command, folder, programs or PROGRAMS)
        assert code == 0, f"$ {command}\n{printed}{error}"
        assert not expected.strip() or doctest.OutputChecker().check_output(expected, printed, LOOSE), (
            f"$ {command}\nprinted\n{printed}\nbut the page shows\n{expected}"
        )


def _run_here(command: str, folder: Path) -> tuple[int, str, str]:
    """Run a command of geoblanket in this process, which need not start Python and import everything again."""
    words, together = shlex.split(command.removesuffix(TOGETHER)), command.endswith(TOGETHER)
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, words[1:], env=_environment(PROGRAMS))
    return done.exit_code, done.output if together else done.stdout, f"{done.stderr}{done.exception or ''}"


def _run_by_shell(command: str, folder: Path, programs: Path) -> tuple[int, str, str]:
    done = subprocess.run(  # noqa: S602
        command, shell=True, cwd=folder, env=_environment(programs), capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def _environment(programs: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "100"}


def run_python(block: str, namespace: dict[str, object], folder: Path) -> None:
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        exec(compile(block, "snippet", "exec"), namespace)  # noqa: S102


@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_snippets_run(page: Path, tmp_path: Path, begun: Callable[[tuple[str, ...]], Path]) -> None:
    namespace: dict[str, object] = {}
    start = common_start(page)
    shutil.copytree(begun(start), tmp_path, dirs_exist_ok=True)
    left_out = len(start)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for language, block in BLOCK.findall(page.read_text()):
        if language == "console":
            parts = console_parts(block)
            run_console(parts[left_out:], tmp_path)
            left_out = max(left_out - len(parts), 0)
        elif language == "python":
            run_python(block, namespace, tmp_path)
        elif language == "sh":
            for line in block.splitlines():
                command, *words = line.split("#")[0].split()
                if command == "pip":
                    assert words[0] == "install"
                    assert set(re.findall(r"[a-z]+", words[1])) <= EXTRAS | {"geoblanket"}
                else:
                    assert command == "make"
                    assert words[0] in targets


def anchors(page: Path) -> set[str]:
    """Return the names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text()):
        if (in_repository := ABSOLUTE.match(target)) or not target.startswith(("http", "mailto:")):
            linked = ROOT / in_repository[1] if in_repository else page.parent / target if target else page
            assert linked.exists(), target
            assert not anchor or anchor in anchors(linked), f"{target}#{anchor}"


def test_the_readme_is_whole_wherever_it_is_shown_and_short() -> None:
    text = (ROOT / "README.md").read_text()
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert targets
    assert [target for target in targets if not ABSOLUTE.match(target)] == []
    assert len(text.split()) <= 700
    assert len((ROOT / "docs/results.md").read_text().split()) <= 2500


LAST_CHANGE = {
    "results.md": "0.3.0",  # where rows go, the most probable place
    "paper.md": "0.3.0",
    "tables/mechanisms.md": "0.3.0",
    "tables/blankets.md": "0.3.0",
}
"""The version in which what a page measures was changed last; kept by hand."""
MADE_WITH = re.compile(r"Made with geoblanket (\d+)\.(\d+)\.(\d+): `[^`]+`")


def is_made_anew_or_says_what_is_wrong(text: str, last_change: str) -> bool:
    """Return whether a page has its version and command, and says that it is stale if and only if it is."""
    made_with = {tuple(map(int, version)) for version in MADE_WITH.findall(text)}
    if len(made_with) != 1:
        return False
    version = made_with.pop()
    notice = re.search(r"^> \*\*Stale\.\*\* .*of (\d+\.\d+\.\d+)", text, re.MULTILINE)
    if version >= tuple(map(int, last_change.split("."))):
        return notice is None
    return notice is not None and notice[1] == ".".join(map(str, version))


def test_pages_of_figures_are_made_anew_or_say_what_is_wrong_with_them() -> None:
    tables = (ROOT / "docs").glob("tables/*.md")
    made = {page for page in tables if re.search(r"^<!-- .*made by make_", page.read_text(), re.MULTILINE)}
    written_by_hand = {"results.md", "paper.md"}
    assert made == {ROOT / "docs" / name for name in LAST_CHANGE.keys() - written_by_hand}
    for name, last_change in LAST_CHANGE.items():
        assert is_made_anew_or_says_what_is_wrong((ROOT / "docs" / name).read_text(), last_change), name
    fresh = "Made with geoblanket 0.3.0: `make it`."
    stale = fresh.replace("0.3.0", "0.2.0")
    assert is_made_anew_or_says_what_is_wrong(fresh, "0.3.0")
    assert not is_made_anew_or_says_what_is_wrong(stale, "0.3.0")
    assert is_made_anew_or_says_what_is_wrong(f"> **Stale.** It is of 0.2.0 and wrong.\n\n{stale}", "0.3.0")
    assert not is_made_anew_or_says_what_is_wrong("No version.", "0.3.0")


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_named_in_pages_exist(page: Path) -> None:
    text = page.read_text()
    for path in re.findall(r"`([\w/]+/\w+\.py)`", text):
        assert (ROOT / path).exists() or (ROOT / "src/geoblanket" / path).exists(), path
    for name in re.findall(r"`(geoblanket(?:\.\w+)+)`", text):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            module, _, attribute = name.rpartition(".")
            assert hasattr(importlib.import_module(module), attribute), name
    for name in re.findall(r"python -m ([\w.]+)", text):
        assert importlib.util.find_spec(name), name


PUBLIC: dict[str, Any] = {
    name: getattr(module, name)
    for module in (
        geoblanket,
        geoblanket.mechanism,
        geoblanket.build,
        geoblanket.release,
        geoblanket.tracking,
        geoblanket.learning,
        geoblanket.planning,
        geoblanket.lab.evaluate,
    )
    for name in module.__all__
    if callable(getattr(module, name))
}
MAKERS = (
    "make_city",
    "import_roads",
    "import_traces",
    "match_traces",
    "discover",
    "train",
    "train_table",
    "build_bundle",
    "learn_motion",
    "make_rows",
    "Problem",
    "optimise",
    "contextual_problem",
    "Device",
    "Fleet",
    "draw_reports",
    "make_plan",
    "certainty",
)
"""Names whose examples make what other examples use, in this order."""
WITHOUT_EXAMPLE = {
    # Errors of a machine without a package or without randomness.
    "MissingExtraError",
    "RandomnessError",
    # `sign_bundle` shows signing; `load_bundle` checks signatures for its callers.
    "check_signature",
    # docs/lattice.md makes a lattice, and perturbs traces and walks with it.
    "LatticeSummary",
    "perturb_points",
    "perturb_walk_points",
    # An experiment takes too long here; docs/evaluate.md runs one.
    "Evaluation",
    "Violation",
    "answers",
    "evaluate_cities",
    "read_results",
    "write_report",
}


def run_examples(name: str, namespace: dict[str, Any]) -> dict[str, Any]:
    """Run the examples of a public name; return the namespace that they leave."""
    (examples,) = doctest.DocTestFinder(recurse=False).find(PUBLIC[name], name, module=False, globs=namespace)
    assert bool(examples.examples) != (name in WITHOUT_EXAMPLE), f"{name} has {len(examples.examples)} example(s)"
    failures = io.StringIO()
    doctest.DocTestRunner(verbose=False, optionflags=LOOSE).run(examples, out=failures.write, clear_globs=False)
    assert not failures.getvalue(), failures.getvalue()
    return examples.globs


@pytest.mark.usefixtures("one_core")
def test_examples_of_public_names(tmp_path: Path) -> None:
    made: dict[str, Any] = {}
    with contextlib.chdir(tmp_path):
        for name in MAKERS:
            made = run_examples(name, made)
        left = [made, *(run_examples(name, made) for name in sorted(PUBLIC.keys() - set(MAKERS)))]
        # While their files are there: the objects that the examples leave show themselves on one line.
        made_by_examples = {type(thing): thing for namespace in left for thing in namespace.values()}
        shown = {kind: repr(thing) for kind, thing in made_by_examples.items()}
        pages = {kind: thing._repr_html_() for kind, thing in made_by_examples.items() if kind in IN_NOTEBOOKS}
    assert pages.keys() == IN_NOTEBOOKS
    for kind, page in pages.items():
        assert is_small_page(page), kind.__name__
    shown |= {type(thing): repr(thing) for thing in made_by_hand()}
    for kind in public_classes():
        assert is_short(shown[kind]), f"{kind.__name__}: {shown[kind]}"
