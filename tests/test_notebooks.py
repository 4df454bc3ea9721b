"""Every notebook of the documentation runs from top to bottom, in an empty folder.

By default its code runs in the process of the tests; as Jupyter runs it, in a kernel of its own, in the slow tests.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import nbformat
import polars as pl
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def run(notebook: nbformat.NotebookNode, folder: Path) -> None:
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_code_of_notebook_runs(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    namespace: dict[str, object] = {}
    with contextlib.chdir(tmp_path), pl.Config():  # a notebook may change how tables are printed
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                exec(compile(cell.source, path.name, "exec"), namespace)  # noqa: S102
    pyplot.close("all")
    assert capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    run(nbformat.read(path, as_version=4), tmp_path)


def test_a_notebook_that_fails_is_found(tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell(text) for text in ("open('made', 'w').close()", "1 / 0")]
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        run(nbformat.v4.new_notebook(cells=cells), tmp_path)
    assert (tmp_path / "made").exists()
