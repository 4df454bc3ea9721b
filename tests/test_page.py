from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoblanket._page import Page
from geoblanket._picture import new_figure, save_figure
from geoblanket.errors import InputError, ParameterError

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&{}"


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> _Reader:
    reader = _Reader()
    reader.feed(html)
    return reader


def full_page(text: str, picture: Path) -> str:
    page = Page(text, lead=text)
    page.heading(text)
    page.subheading(text)
    page.paragraph(text)
    page.note(text)
    page.bullets([text])
    page.table([text, text], [[text, text]], caption=text)
    page.figure(picture, caption=text, alt=text)
    return page.html(footer=text)


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "a.svg"
    figure = new_figure(width_in=2, height_in=1)
    figure.add_subplot().plot([0, 1])
    save_figure(figure, path)
    return path


@given(text=st.sampled_from([HOSTILE]) | st.text(min_size=1))
def test_text_is_never_markup(text: str, picture: Path) -> None:
    plain, page = read(full_page("x", picture)), read(full_page(text, picture))
    assert page.tags == plain.tags
    assert [name for name, _ in page.attributes] == [name for name, _ in plain.attributes]


def test_text_arrives_as_it_was(picture: Path) -> None:
    page = read(full_page(HOSTILE, picture))
    assert page.text.count(HOSTILE) == 16
    assert ("alt", HOSTILE) in page.attributes


def test_nothing_is_fetched(picture: Path) -> None:
    html = full_page("x", picture)
    targets = [value or "" for name, value in read(html).attributes if name in {"src", "href"}]
    assert targets
    assert all(target.startswith(("data:image/", "#")) for target in targets)
    assert not re.search(r"https?:|//[a-z]|url\(|@import", html.split("</style>")[0])
    assert "http" not in re.sub(r"data:[^\"]+|http-equiv", "", html)
    assert "default-src 'none'" in html


def test_it_fits_a_phone_and_the_dark() -> None:
    html = Page("x").html()
    assert "width=device-width" in html
    assert "prefers-color-scheme: dark" in html


def test_it_is_saved_whole(tmp_path: Path) -> None:
    page = Page("Größe ≤ 5 µs")
    page.save(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page.html()
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_bad_input(tmp_path: Path) -> None:
    page = Page("x")
    with pytest.raises(ParameterError, match="must have 2 cells"):
        page.table(["a", "b"], [["1"]])
    with pytest.raises(ParameterError, match=r"\.svg or \.png"):
        page.figure(tmp_path / "a.html", caption="", alt="")
    with pytest.raises(InputError, match="cannot be read"):
        page.figure(tmp_path / "absent.png", caption="", alt="")
