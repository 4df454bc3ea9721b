from __future__ import annotations

import json
from pathlib import Path

import pytest

from geoblanket._page import Page, ReportFolder
from geoblanket._picture import new_figure
from geoblanket.errors import OutputError


@pytest.mark.parametrize("shown", ["svg", "png"])
def test_figures_page_and_summary(tmp_path: Path, shown: str) -> None:
    folder = ReportFolder(tmp_path / "a" / "b", shown=shown)
    folder.draw([("small", new_figure(width_in=4, height_in=1)), ("wide", new_figure(width_in=12, height_in=1))])
    assert folder.widths == {"small": 0.5, "wide": 1.0}
    page = Page("A report")
    folder.show(page, "small", "What it shows")
    folder.show(page, "never drawn", "Nothing")
    folder.write_json("report.json", {"ε": 2})
    html = folder.write_page(page).read_text("utf-8")
    assert html.count("<img ") == 1
    assert 'alt="What it shows"' in html
    assert ("image/png" if shown == "png" else "image/svg") in html
    assert "Nothing" not in html
    assert json.loads((folder.path / "report.json").read_text("utf-8")) == {"ε": 2}
    assert {path.name for path in folder.path.iterdir()} == {
        "report.html", "report.json", "small.png", "small.svg", "wide.png", "wide.svg",
    }  # fmt: skip


def test_a_folder_that_cannot_be_made_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be made"):
        ReportFolder(tmp_path / "file" / "report")
