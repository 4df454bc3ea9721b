"""Every notebook of the documentation runs from top to bottom, in an empty folder."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def run(notebook: nbformat.NotebookNode, folder: Path) -> None:
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    run(nbformat.read(path, as_version=4), tmp_path)


def test_a_notebook_that_fails_is_found(tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell(text) for text in ("open('made', 'w').close()", "1 / 0")]
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        run(nbformat.v4.new_notebook(cells=cells), tmp_path)
    assert (tmp_path / "made").exists()
